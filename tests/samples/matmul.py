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
            attrs = {key: True for key, value in (("trans_x", trans_x), ("trans_y", trans_y)) if value}
            add("matmul_v2", Sample({"X": data(*swap(x, trans_x)), "Y": data(*swap(y, trans_y))}, attrs, product))


def old_product(X: Any, Y: Any, transpose_X: bool = False, transpose_Y: bool = False, alpha: float = 1.0) -> Any:
    """Vectors are matrices, which are turned like others; a dimension of 1 that was added to one is left out again."""
    x, y = (X[None] if X.ndim == 1 else X), (Y[:, None] if Y.ndim == 1 else Y)
    found = alpha * np.matmul(turned(x, transpose_X), turned(y, transpose_Y))
    if Y.ndim == 1 and found.shape[-1] == 1:
        found = found[..., 0]
        if X.ndim == 1 and found.shape[-1] == 1:
            found = found[..., 0]
    elif X.ndim == 1 and found.shape[-2] == 1:
        found = found[..., 0, :]
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
    Sample({"X": data(3), "Y": data(3, 2)}, {}, old_product),
    Sample({"X": data(3), "Y": data(2, 2, 3)}, {"transpose_Y": True}, old_product),
    Sample({"X": data(2, 3, 2), "Y": data(3)}, {"transpose_X": True, "alpha": 0.5}, old_product),
    *(
        Sample(
            {"X": data(*x), "Y": data(*y)},
            {"transpose_X": True, "transpose_Y": turn_y, "alpha": 2.0},
            old_product,
            known=("X", "Y") if 1 in (*x, *y) else (),
        )
        for x, y, turn_y in (
            ((3,), (3,), True),
            ((3,), (2,), True),
            ((1,), (3,), True),
            ((3,), (1,), True),
            ((1,), (1,), True),
            ((3,), (1,), False),
            ((3,), (1, 2), False),
            ((3,), (2, 1), True),
            ((3,), (2, 1, 4), False),
            ((1,), (2, 1, 4), False),
            ((1, 3), (2,), True),
            ((2, 1, 3), (4,), True),
        )
    ),
    Sample({"X": data(2, 3, 1), "Y": data(4)}, {"transpose_Y": True}, old_product),
    Sample({"X": data(1), "Y": data(3)}, {"transpose_Y": True}, old_product),
    Sample(
        {"X": data(1), "Y": data(3)},
        {"transpose_X": True, "transpose_Y": True},
        old_product,
        known=("X", "Y"),
        declared={"Out": (1, 3)},
    ),
)


add("bmm", *(Sample({"X": data(b, 2, 3), "Y": data(b, 3, 4)}, {}, lambda X, Y: X @ Y) for b in (2, 1, 0)))
add("mv", *(Sample({"X": data(rows, 3), "Vec": data(3)}, {}, lambda X, Vec: X @ Vec) for rows in (2, 1, 0)))
add(
    "addmm",
    *(
        Sample(
            {"Input": data(*shape), "X": data(2, 3), "Y": data(3, 4)},
            attrs,
            lambda Input, X, Y, Beta=1.0, Alpha=1.0: (Beta * Input + Alpha * (X @ Y)).astype(X.dtype),
        )
        for shape, attrs in (
            ((2, 4), {}),
            ((2, 4), {"Beta": 0.5, "Alpha": -2.0}),
            ((1, 4), {}),
            ((4,), {"Beta": 3.0}),
            ((2, 1), {}),
        )
    ),
)
add(
    "dot",
    Sample({"X": data(3), "Y": data(3)}, {}, lambda X, Y: np.asarray(X @ Y).reshape(1)),
    Sample({"X": data(3), "Y": data(3)}, {}, lambda X, Y: np.asarray(X @ Y).reshape(1), declared={"Out": ()}),
    Sample({"X": data(2, 3), "Y": data(2, 3)}, {}, lambda X, Y: (X * Y).sum(1)),
    Sample({"X": data.ints(2, 3), "Y": data.ints(2, 3)}, {}, lambda X, Y: (X * Y).sum(1)),
)
add(
    "cross",
    Sample({"X": data(3, 2), "Y": data(3, 2)}, {}, lambda X, Y: np.cross(X, Y, axis=0)),
    Sample({"X": data(2, 3), "Y": data(2, 3)}, {"dim": 1}, lambda X, Y, dim: np.cross(X, Y, axis=dim)),
    Sample({"X": data(3, 3), "Y": data(3, 3)}, {"dim": -1}, lambda X, Y, dim: np.cross(X, Y, axis=dim)),
    Sample({"X": data(3), "Y": data(3)}, {}, lambda X, Y: np.cross(X, Y)),
)
KRONS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (3, 2)),
    ((2,), (3,)),
    ((2, 2), (3,)),
    ((2,), (3, 2)),
    ((1, 2, 2), (2, 1, 3)),
    ((1,), (1,)),
]
add("kron", *(Sample({"X": data(*x), "Y": data(*y)}, {}, lambda X, Y: np.kron(X, Y)) for x, y in KRONS))


def unkroned(X: Any, Y: Any, Like: Any) -> Any:
    out = np.zeros_like(Like)
    for place in np.ndindex(*Like.shape):
        one = np.zeros_like(Like)
        one[place] = 1
        out[place] = (np.kron(one, Y) * X).sum()
    return out


for x, y in KRONS:
    whole = np.kron(np.ones(x), np.ones(y)).shape
    add("unkron", Sample({"X": data(*whole), "Y": data(*y), "Like": data(*x)}, {}, unkroned, wrt=["X", "Y"]))


def bilinear(X: Any, Y: Any, Weight: Any, Bias: Any = 0) -> Any:
    return np.einsum("bm,smn,bn->bs", X, Weight, Y) + Bias


FORM = {"X": data(3, 2), "Y": data(3, 4), "Weight": data(5, 2, 4)}
add("bilinear_tensor_product", Sample(FORM, {}, bilinear), Sample({**FORM, "Bias": data(1, 5)}, {}, bilinear))


def shifted(X: Any, Y: Any) -> Any:
    """Each filter times the windows of its row, repeated thrice."""
    width, half = X.shape[1], Y.shape[1] // 2
    return np.array(
        [[np.tile(x, 3)[i - half + width : i + half + 1 + width] @ y for i in range(width)] for x, y in zip(X, Y, strict=True)]
    )


for size in (1, 3, 5):
    add("conv_shift", Sample({"X": data(2, 5), "Y": data(2, size)}, {}, shifted, known=["Y"]))
