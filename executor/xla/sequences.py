"""Sequences of different lengths: ops that go by the LoD, which is known while tracing, run as they do without XLA."""

from __future__ import annotations

from ..stepwise import handlers
from .tracing import HANDLERS

__all__: list[str] = []

_BY_LOD = (
    *("lod_rank_table", "max_sequence_len", "lod_tensor_to_array", "array_to_lod_tensor", "shrink_rnn_memory"),
    *("reorder_lod_tensor_by_rank", "reorder_lod_tensor_by_rank_grad"),
    *("split_lod_tensor", "merge_lod_tensor", "merge_lod_tensor_infer"),
    *("new_array", "unstack_array"),
)
HANDLERS.update({op_type: handlers.HANDLERS[op_type] for op_type in _BY_LOD})
