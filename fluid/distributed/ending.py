"""Ends a worker that has an error."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

_GRACE = 1.5
"""Seconds from an error to the end, since others may be about to report the same one."""


def end_at_once(tell_others: Callable[[], object] = lambda: None) -> NoReturn:
    """End this process with status 1, at once, as a clean end may wait for the others; `tell_others` is called just before."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    time.sleep(_GRACE)
    tell_others()
    os._exit(1)
