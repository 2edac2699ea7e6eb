"""Samples of `fluid.ops.rank_table`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add, structural

data = Data("rank_table")

structural("test_dynamic_rnn.py", "lod_rank_table", "max_sequence_len", "lod_tensor_to_array", "array_to_lod_tensor")
structural("test_dynamic_rnn.py", "shrink_rnn_memory", "reorder_lod_tensor_by_rank", "reorder_lod_tensor_by_rank_grad")
structural("test_dynamic_rnn.py", "split_lod_tensor", "merge_lod_tensor", "merge_lod_tensor_infer")
add(
    "resize_rows",
    *(
        Sample(
            {"X": data(rows, 2), "Like": data(like, 2)},
            {},
            lambda X, Like: np.concatenate([X, np.zeros_like(Like)])[: len(Like)].astype(X.dtype),
            wrt=["X"],
        )
        for rows, like in ((2, 4), (4, 2), (3, 3), (0, 2))
    ),
)
add(
    "active_ids",
    *(
        Sample(
            {"Ids": np.array([0, 0, 2, 1, 3, -1, 2]), "Numbers": np.array(numbers)[:, None]},
            {},
            lambda Ids, Numbers: np.array([i if -1 < i < len(Numbers) and Numbers[i] == i else -1 for i in Ids]),
        )
        for numbers in ([0, 1, 2, 3], [0, 1, 0, 0], [0, 1], [0])
    ),
)


def padded(X: Any, lod: Any) -> dict[str, Any]:
    rows, lengths = [len(x) for x in X], np.diff(lod[0])
    ids = np.concatenate([np.repeat(np.arange(len(lengths)), lengths), np.full(8 - rows[0], -1)])
    return {
        "Out": [np.concatenate([x, *[x[:1]] * (8 - len(x))]) for x in X],
        "Ids": [ids] * len(X),
        "Divisors": [np.maximum(lengths, 1).astype(x.dtype)[:, None] for x in X],
        "Numbers": np.arange(len(lengths))[:, None],
    }


for offsets in ((0, 2, 2, 5), (0, 5)):
    add(
        "pad_sequences",
        Sample(
            {"X": [data(5, 2), data(5)]},
            {},
            lambda X, lod=(offsets,): padded(X, lod),
            lods={"X": [(offsets,), (offsets,)]},
        ),
    )
add(
    "repeat_first_row",
    *(
        Sample(
            {"X": data(4, *shape), "Mask": np.array(mask)},
            {},
            lambda X, Mask: X[np.where(Mask, np.arange(4), 0)],
            wrt=["X"],
        )
        for shape in ((), (2,), (2, 3))
        for mask in ([True, True, False, False], [False, True, False, True])
    ),
)
