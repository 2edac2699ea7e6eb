"""Moved to `fluid.training.precision`; this is its name in Fluid 1.6."""

from __future__ import annotations

from ...training.precision import AutoMixedPrecisionLists

__all__ = ["AutoMixedPrecisionLists"]
