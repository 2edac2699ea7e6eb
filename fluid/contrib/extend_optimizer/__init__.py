"""Functions that extend optimizers."""

from __future__ import annotations

from ...not_here import names_here
from . import extend_optimizer_with_weight_decay
from .extend_optimizer_with_weight_decay import extend_with_decoupled_weight_decay

__all__ = ["extend_optimizer_with_weight_decay", "extend_with_decoupled_weight_decay"]

__dir__ = names_here(__name__)
