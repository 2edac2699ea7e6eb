"""Samples of `fluid.ops.collective` for a single worker; tests/distributed tests several."""

from __future__ import annotations

from typing import Any

import numpy as np

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
for by, shape in (("flat", (6,)), ("rows", (3, 2))):
    add("c_take_part", Sample({"X": X}, {"nranks": 1, "by": by}, lambda X, shape=shape: X.reshape(shape)))
add(
    "c_join_parts",
    Sample({"X": [data(6), data(4)], "Like": [X, data(4)]}, {"nranks": 1}, lambda X, Like: {"Out": [X[0].reshape(3, 2), X[1]]}),
)
TABLE, IDS = data(5, 2), np.array([[3, 0, 3], [1, 4, 3]])
for padding in (-1, 3):
    attrs = {"rows": 5, "nranks": 1, "padding_idx": padding}

    def looked_up(W: Any, Ids: Any, padding: int = padding) -> Any:
        return W[Ids] * (Ids != padding)[..., None]

    def sent(X: Any, Ids: Any, Like: Any, padding: int = padding) -> Any:
        total = np.zeros_like(Like)
        np.add.at(total, Ids, X * (Ids != padding)[..., None])
        return total

    add("c_lookup_rows", Sample({"W": TABLE, "Ids": IDS}, attrs, looked_up))
    add("c_send_rows", Sample({"X": data(2, 3, 2), "Ids": IDS, "Like": TABLE}, attrs, sent))
add(
    "c_lookup_rows",
    Sample({"W": TABLE, "Ids": IDS[..., None]}, {"rows": 5, "nranks": 1, "squeeze": True}, lambda W, Ids: W[Ids[..., 0]]),
)
for parts in ([X], [X, data(4), data(0, 3), data(1)]):
    add("c_allreduce_sum_coalesced", Sample({"X": parts}, {}, lambda X: {"Out": X}))
add("c_allreduce_sum_coalesced", Sample({"X": [X, data(4)]}, {"nranks": 1, "use_calc_stream": True}, lambda X: {"Out": X}))
