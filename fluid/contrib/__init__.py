"""The parts of ``fluid.contrib`` of Fluid 1.6."""

from __future__ import annotations

from . import extend_optimizer, layers

__all__ = ["extend_optimizer", "layers"]
