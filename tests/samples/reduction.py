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
reduction("reduce_amax", np.max, data.distinct)
reduction("reduce_amin", np.min, data.distinct)
reduction("frobenius_norm", lambda x, **axes: np.sqrt(np.sum(x * x, **axes)), data)
reduction("reduce_prod", np.prod, lambda *shape: data.away(*shape, gap=0.3))
for _zeros in (1, 2, 3):  # derivatives of products with zeros are products of the others, at every order
    _X = data.away(3, 4, gap=0.3)
    _X[1, :_zeros] = 0.0
    add("reduce_prod", Sample({"X": _X}, {"dim": [1]}, lambda X, dim: X.prod(1)))
    add("reduce_prod", Sample({"X": _X}, {"reduce_all": True}, lambda X, reduce_all: X.prod().reshape(1)))
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


def log_of_sum(X: Any, axis: Sequence[int] = (0,), keepdim: bool = False, reduce_all: bool = False) -> Any:
    axes = None if reduce_all else tuple(axis)
    largest = np.max(X, axes, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0)
    with np.errstate(divide="ignore"):
        logs = np.log(np.sum(np.exp(X - shift), axes, keepdims=True)) + shift
    logs = logs if keepdim else np.squeeze(logs, axes)
    return np.asarray(logs, X.dtype).reshape(logs.shape or (1,))


for shape, attrs in CASES:
    attrs = {{"dim": "axis", "keep_dim": "keepdim"}.get(name, name): value for name, value in attrs.items()}
    add("logsumexp", Sample({"X": data(*shape)}, attrs, log_of_sum))
add(
    "logsumexp",
    Sample({"X": np.array([1000.0, 1000.0, -1000.0])}, {}, log_of_sum, orders=0),
    Sample({"X": np.array([-np.inf, -np.inf])}, {}, log_of_sum, orders=0),
)


def size(x: Any, order: float, **axes: Any) -> Any:
    x = np.abs(x)
    if abs(order) == np.inf:
        return (np.max if order > 0 else np.min)(x, **axes)
    return np.sum(x != 0, **axes) if order == 0 else np.sum(x**order, **axes) ** (1 / order)


def normed(X: Any, porder: float = 2.0, axis: int = -1, keepdim: bool = False, asvector: bool = False) -> Any:
    found = size(X, porder, axis=None if asvector else axis, keepdims=keepdim)
    return np.asarray(found, X.dtype).reshape(np.shape(found) or (1,))


ORDERS = (2.0, 1.0, 3.0, 0.5, 0.0, np.inf, -np.inf)
for order in ORDERS:
    signs = np.where(data.bools(2, 3), 1.0, -1.0)
    add(
        "p_norm",
        *(
            Sample({"X": (data.distinct(2, 3) + 0.5) * signs}, {"porder": order, **attrs}, normed, tolerance=10)
            for attrs in ({}, {"axis": 0, "keepdim": True}, {"asvector": True}, {"asvector": True, "keepdim": True})
        ),
    )
    for shape in ((2, 3), (3,), (1, 1)):
        apart = {"X": data.distinct(2, 3) + 3.0, "Y": data(*shape)}
        add("dist", Sample(apart, {"p": order}, lambda X, Y, p: np.asarray(size(X - Y, p), X.dtype).reshape(1), tolerance=10))
add("p_norm", Sample({"X": data(4)}, {}, normed, declared={"Out": ()}))
for order in (2.0, 3.0):  # at 0, where there is no gradient, it is taken to be 0, as central differences have it
    add("p_norm", Sample({"X": np.zeros((2, 3))}, {"porder": order}, normed, orders=1))


def unit(X: Any, axis: int, epsilon: float = 1e-10) -> Any:
    length = np.sqrt((X * X).sum(axis, keepdims=True) + epsilon)
    return {"Out": X / length, "Norm": length}


add(
    "norm",
    *(
        Sample({"X": data(2, 3, 4)}, {"axis": axis, "epsilon": epsilon}, unit, tolerance=10)
        for axis, epsilon in ((0, 1e-10), (1, 0.5), (-1, 1e-10))
    ),
    Sample({"X": data(3)}, {"axis": 0}, unit, tolerance=10),
)
add(
    "l1_norm",
    *(
        Sample({"X": data.away(*shape)}, {}, lambda X: np.asarray(np.abs(X).sum(), X.dtype).reshape(1))
        for shape in ((2, 3), (1,), (0, 2))
    ),
)


def clipped_by_norm(X: Any, max_norm: float) -> Any:
    norm = np.linalg.norm(X)
    return X * X.dtype.type(max_norm / norm if norm > max_norm else 1)


for X, most in ((data(2, 3), 0.5), (data(2, 3), 10.0), (np.zeros(3), 1.0)):
    add("clip_by_norm", Sample({"X": X}, {"max_norm": most}, clipped_by_norm))
add("reduce_all", Sample({"X": data.ints(2, 3) - 1}, {"dim": [1]}, lambda X, dim: X.all(1)))
add("reduce_any", Sample({"X": data.ints(2, 3) // 3}, {"dim": [1]}, lambda X, dim: X.any(1)))
add("reduce_sum", Sample({"X": data.bools(4, 3)}, {"dim": [0]}, lambda X, dim: X.sum(0, "int64")))
add("reduce_sum", Sample({"X": data.bools(4, 1)}, {"dim": [1]}, lambda X, dim: X.sum(1, "int64")))
