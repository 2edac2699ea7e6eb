"""The parts of ``fluid.contrib`` of Fluid 1.6."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..not_here import names_here, names_not_here
from . import decoder, extend_optimizer, layers, mixed_precision
from .decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from .extend_optimizer import extend_with_decoupled_weight_decay
from .layers import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm, fused_elemwise_activation
from .memory_usage_calc import memory_usage
from .op_frequence import op_freq_statistic
from .reader import distributed_batch_reader

__all__ = [
    "BasicGRUUnit", "BasicLSTMUnit", "BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder", "basic_gru", "basic_lstm",
    "decoder", "distributed_batch_reader", "extend_optimizer", "extend_with_decoupled_weight_decay",
    "fused_elemwise_activation", "layers", "memory_usage", "mixed_precision", "op_freq_statistic",
]  # fmt: skip

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)
