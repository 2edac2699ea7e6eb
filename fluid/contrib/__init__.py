"""The parts of ``fluid.contrib`` of Fluid 1.6."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..not_here import names_here, names_not_here
from . import decoder, extend_optimizer, layers, mixed_precision
from .decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from .extend_optimizer import extend_with_decoupled_weight_decay
from .layers import *  # noqa: F403
from .layers import __all__ as _LAYERS
from .memory_usage_calc import memory_usage
from .op_frequence import op_freq_statistic
from .reader import distributed_batch_reader

__all__ = [
    "BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder", "decoder", "distributed_batch_reader", "extend_optimizer",
    "extend_with_decoupled_weight_decay", "layers", "memory_usage", "mixed_precision", "op_freq_statistic",
    *(name for name in _LAYERS if name not in ("nn", "rnn_impl")),
]  # fmt: skip

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)
