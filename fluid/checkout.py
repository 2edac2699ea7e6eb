"""Makes a checkout importable: there, `executor/` and `proto/` lie beside `fluid/`, and an installation has them inside it."""

from __future__ import annotations

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_BESIDE = os.path.dirname(_FOLDER)

if not os.path.isdir(os.path.join(_FOLDER, "executor")) and os.path.isdir(os.path.join(_BESIDE, "executor")):
    sys.modules[__package__].__path__.append(_BESIDE)
