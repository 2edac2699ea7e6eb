"""Samples of `fluid.ops.matmul`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("matmul")


def flattened(X: Any, Y: Any, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> Any:
    rows = int(np.prod(X.shape[:x_num_col_dims]))
    inner = int(np.prod(Y.shape[:y_num_col_dims]))
    out = X.reshape(rows, -1 if rows else inner) @ Y.reshape(inner, -1)
    return out.reshape(X.shape[:x_num_col_dims] + Y.shape[y_num_col_dims:])


add(
    "mul",
    Sample({"X": data(2, 3), "Y": data(3, 4)}, {}, flattened),
    Sample({"X": data(2, 3, 2), "Y": data(6, 4)}, {}, flattened),
    Sample({"X": data(2, 2, 3), "Y": data(3, 4)}, {"x_num_col_dims": 2}, flattened),
    Sample({"X": data(2, 3, 2), "Y": data(3, 2, 2, 2)}, {"x_num_col_dims": 1, "y_num_col_dims": 2}, flattened),
    Sample({"X": data(2, 2, 2, 3), "Y": data(2, 3, 2)}, {"x_num_col_dims": 2, "y_num_col_dims": 2}, flattened),
    Sample({"X": data(0, 3), "Y": data(3, 4)}, {}, flattened),
    Sample({"X": data(1, 1), "Y": data(1, 1)}, {}, flattened),
)


def turned(array: Any, turn: bool) -> Any:
    return np.swapaxes(array, -1, -2) if turn and array.ndim > 1 else array


def product(X: Any, Y: Any, trans_x: bool = False, trans_y: bool = False) -> Any:
    return np.asarray(np.matmul(turned(X, trans_x), turned(Y, trans_y)))


PAIRS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (3, 4)),
    ((2, 2, 3), (2, 3, 4)),
    ((2, 2, 3), (3, 4)),
    ((2, 3), (2, 3, 4)),
    ((2, 1, 2, 3), (3, 3, 2)),
    ((1, 2, 3), (2, 3, 2)),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 2, 3), (3,)),
    ((3,), (3, 2)),
    ((3,), (2, 3, 2)),
    ((1, 1), (1, 1)),
    ((0, 3), (3, 2)),
]


def swap(shape: tuple[int, ...], turn: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if turn and len(shape) > 1 else shape


for x, y in PAIRS:
    for trans_x in (False, True):
        for trans_y in (False, True):
            if (trans_x and len(x) == 1) or (trans_y and len(y) == 1):
                continue
            attrs = {key: True for key, value in (("trans_x", trans_x), ("trans_y", trans_y)) if value}
            add("matmul_v2", Sample({"X": data(*swap(x, trans_x)), "Y": data(*swap(y, trans_y))}, attrs, product))


def old_product(X: Any, Y: Any, transpose_X: bool = False, transpose_Y: bool = False, alpha: float = 1.0) -> Any:
    found = alpha * np.matmul(turned(X, transpose_X), turned(Y, transpose_Y))
    return np.asarray(found, X.dtype).reshape(found.shape or (1,))


add(
    "matmul",
    Sample({"X": data(2, 3), "Y": data(3, 4)}, {}, old_product),
    Sample({"X": data(3, 2), "Y": data(3, 4)}, {"transpose_X": True}, old_product),
    Sample({"X": data(2, 3), "Y": data(4, 3)}, {"transpose_Y": True, "alpha": 0.5}, old_product),
    Sample({"X": data(3, 2), "Y": data(4, 3)}, {"transpose_X": True, "transpose_Y": True, "alpha": -2.0}, old_product),
    Sample({"X": data(2, 2, 3), "Y": data(2, 3, 4)}, {}, old_product),
    Sample({"X": data(2, 2, 3), "Y": data(2, 4, 3)}, {"transpose_Y": True, "alpha": 0.25}, old_product),
    Sample({"X": data(2, 2, 3), "Y": data(3, 4)}, {}, old_product),
    Sample({"X": data(2, 3), "Y": data(3)}, {}, old_product),
    Sample({"X": data(3), "Y": data(3)}, {}, old_product),
    Sample({"X": data(0, 3), "Y": data(3, 2)}, {}, old_product),
)
