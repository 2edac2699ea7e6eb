"""Samples of `fluid.ops.reduction`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("reduction")

CASES: Sequence[tuple[tuple[int, ...], dict[str, Any]]] = (
    ((2, 3), {}),
    ((2, 3, 4), {"dim": [1]}),
    ((2, 3, 4), {"dim": [-1], "keep_dim": True}),
    ((2, 3, 4), {"dim": [0, 2]}),
    ((2, 3, 4), {"dim": [-1, 0], "keep_dim": True}),
    ((2, 3), {"reduce_all": True}),
    ((2, 3), {"reduce_all": True, "keep_dim": True}),
    ((2, 3), {"dim": [0, 1]}),
    ((4,), {}),
    ((1,), {}),
    ((3, 1), {"dim": [1]}),
)


def reduction(op_type: str, function: Callable[..., Any], make: Callable[..., Any], orders: int = 2, empty: bool = False) -> None:
    """Samples of a reduction over some dimensions or all, keeping them or not."""

    def reference(X: Any, dim: Sequence[int] = (0,), keep_dim: bool = False, reduce_all: bool = False) -> Any:
        axes = tuple(range(X.ndim)) if reduce_all else tuple(axis % X.ndim for axis in dim)
        found = np.asarray(function(X, axis=axes, keepdims=keep_dim), None if function in (np.all, np.any) else X.dtype)
        return found.reshape((1,)) if found.ndim == 0 else found

    for shape, attrs in CASES:
        add(op_type, Sample({"X": make(*shape)}, attrs, reference, orders=orders))
    add(op_type, Sample({"X": make(2, 3)}, {"reduce_all": True}, lambda X: reference(X, reduce_all=True), declared={"Out": ()}))
    if empty:
        add(op_type, Sample({"X": make(0, 3)}, {"dim": [0]}, reference), Sample({"X": make(0, 3)}, {"dim": [1]}, reference))


reduction("reduce_sum", np.sum, data, empty=True)
reduction("reduce_mean", np.mean, data)
reduction("reduce_max", np.max, data.distinct)
reduction("reduce_min", np.min, data.distinct)
reduction("reduce_prod", np.prod, lambda *shape: data.away(*shape, gap=0.3))
reduction("reduce_all", np.all, data.bools)
reduction("reduce_any", np.any, data.bools)
add("reduce_sum", Sample({"X": data.ints(2, 3)}, {"dim": [1]}, lambda X, dim: X.sum(1)))
add("reduce_max", Sample({"X": data.ints(2, 3)}, {"dim": [1]}, lambda X, dim: X.max(1)))

add(
    "mean",
    *(Sample({"X": data(*shape)}, {}, lambda X: np.asarray(X.mean(), X.dtype).reshape(1)) for shape in ((2, 3), (4,), (1,), ())),
    Sample({"X": data(2, 3)}, {}, lambda X: np.asarray(X.mean(), X.dtype).reshape(1), declared={"Out": ()}),
)
add(
    "squared_l2_norm",
    *(
        Sample({"X": data(*shape)}, {}, lambda X: np.asarray((X * X).sum(), X.dtype).reshape(1))
        for shape in ((2, 3), (1,), (0, 2))
    ),
)


def expanded(X: Any, Like: Any, dim: Sequence[int] = (0,), keep_dim: bool = False, reduce_all: bool = False) -> Any:
    axes = range(Like.ndim) if reduce_all else [axis % Like.ndim for axis in dim]
    return np.broadcast_to(X.reshape([1 if i in axes else n for i, n in enumerate(Like.shape)]), Like.shape)


for shape, attrs in CASES:
    like = data(*shape)
    axes = range(like.ndim) if attrs.get("reduce_all") else [axis % like.ndim for axis in attrs.get("dim", [0])]
    kept = [1 if i in axes else n for i, n in enumerate(shape)]
    small = kept if attrs.get("keep_dim") else [n for i, n in enumerate(shape) if i not in axes] or [1]
    add("expand_reduced", Sample({"X": data(*small), "Like": like}, attrs, expanded, wrt=["X"]))


def cumulated(X: Any, axis: int = -1, exclusive: bool = False, reverse: bool = False, flatten: bool = False) -> Any:
    if flatten:
        X, axis = X.reshape(-1), 0
    X = np.flip(X, axis) if reverse else X
    found = np.cumsum(X, axis) - (X if exclusive else 0)
    return (np.flip(found, axis) if reverse else found).astype(X.dtype)


add(
    "cumsum",
    *(
        Sample({"X": data(2, 3)}, attrs, cumulated)
        for attrs in (
            {},
            {"axis": 0},
            {"exclusive": True},
            {"reverse": True},
            {"axis": 0, "reverse": True, "exclusive": True},
            {"flatten": True},
        )
    ),
)
