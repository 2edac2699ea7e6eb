"""Mixed precision, as scripts of Fluid 1.6 ask for it."""

from __future__ import annotations

from ...not_here import names_here
from .decorator import OptimizerWithMixedPrecison, decorate
from .fp16_lists import AutoMixedPrecisionLists

__all__ = ["AutoMixedPrecisionLists", "OptimizerWithMixedPrecison", "decorate"]

__dir__ = names_here(__name__)
