"""Ops on sequences that depend on the LoD only: it is known at trace time, so the interpreter's handlers run them."""

from __future__ import annotations

from ..stepwise import handlers
from .tracing import HANDLERS

_BY_LOD = (
    *("lod_rank_table", "max_sequence_len", "lod_tensor_to_array", "array_to_lod_tensor", "shrink_rnn_memory"),
    *("reorder_lod_tensor_by_rank", "reorder_lod_tensor_by_rank_grad"),
    *("split_lod_tensor", "merge_lod_tensor", "merge_lod_tensor_infer"),
    *("new_array", "unstack_array"),
)
HANDLERS.update({op_type: handlers.HANDLERS[op_type] for op_type in _BY_LOD})
