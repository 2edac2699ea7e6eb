"""Samples of `fluid.ops.rank_table`."""

from __future__ import annotations

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
