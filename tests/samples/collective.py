"""Samples of `fluid.ops.collective` for a worker that is alone; tests/distributed has those of several."""

from __future__ import annotations

from typing import Any

from .base import Data, Sample, add, structural

data = Data("collective")

structural("distributed/test_fleet.py", "c_comm_init", "c_comm_init_all", "c_gen_nccl_id")


def same(X: Any) -> Any:
    return X


X = data.away(3, 2)
for kind in ("sum", "max", "min", "prod"):
    for nranks in (0, 1):
        add(f"c_allreduce_{kind}", Sample({"X": X}, {"nranks": nranks}, same))
    add(f"c_allreduce_{kind}", Sample({"X": X}, {"use_calc_stream": True}, same))
for reduce_type in range(4):
    add("allreduce", Sample({"X": X}, {"reduce_type": reduce_type}, same))
for op_type in ("c_reduce_sum", "c_broadcast", "c_sync_calc_stream", "barrier"):
    add(op_type, Sample({"X": X}, {}, same))
for op_type in ("c_allgather", "c_reducescatter"):
    add(op_type, Sample({"X": X}, {"nranks": 1}, same))
add("c_sync_comm_stream", Sample({"X": [X, data(4)]}, {}, lambda X: {"Out": X}))
for parts in ([X], [X, data(4), data(0, 3), data(1)]):
    add("c_allreduce_sum_coalesced", Sample({"X": parts}, {}, lambda X: {"Out": X}))
add("c_allreduce_sum_coalesced", Sample({"X": [X, data(4)]}, {"nranks": 1, "use_calc_stream": True}, lambda X: {"Out": X}))
