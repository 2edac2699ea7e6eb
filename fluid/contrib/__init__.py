"""What Fluid 1.6 keeps beside its main interface."""

from __future__ import annotations

from . import extend_optimizer, layers

__all__ = ["extend_optimizer", "layers"]
