"""Write reductions, vector norms, positions of extrema and cumulative sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluid.ops.reduction import reduced_axes, reduces_all
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor


def _number(g: OnnxGraph, x: OnnxTensor, op: str, axes: Sequence[int], keep: bool) -> OnnxTensor:
    if x.dtype is VarType.BOOL:
        x = g.cast(x, VarType.INT64)
    return g.reduce(op, x, axes, keep)


def total(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    """The sum of all elements, of shape []."""
    return g.reduce("ReduceSum", x, range(x.ndim))


def mean_of(g: OnnxGraph, x: OnnxTensor, axes: Sequence[int], keep: bool = True) -> OnnxTensor:
    return g.reduce("ReduceMean", x, axes, keep)


@exports("reduce_sum")
def reduce_sum(g: OnnxGraph, X: OnnxTensor, dim: list[int], keep_dim: bool, reduce_all: bool, specs: Any) -> OnnxTensor:
    if specs["Out"].dtype is not X.dtype:
        X = g.cast(X, specs["Out"].dtype)
    return _number(g, X, "ReduceSum", reduced_axes(X.ndim, dim, reduce_all), keep_dim)


@exports("reduce_mean")
def reduce_mean(g: OnnxGraph, X: OnnxTensor, dim: list[int], keep_dim: bool, reduce_all: bool, specs: Any) -> OnnxTensor:
    if specs["Out"].dtype is not X.dtype:
        X = g.cast(X, specs["Out"].dtype)
    return _mean(g, X, reduced_axes(X.ndim, dim, reduce_all), keep_dim)


def _mean(g: OnnxGraph, x: OnnxTensor, axes: Sequence[int], keep: bool) -> OnnxTensor:
    if x.is_floating:
        return mean_of(g, x, axes, keep)
    return g.cast(mean_of(g, g.cast(x, VarType.FP64), axes, keep), x.dtype)


def _extremum(op: str) -> Any:
    def extremum(g: OnnxGraph, X: OnnxTensor, dim: list[int], keep_dim: bool, reduce_all: bool) -> OnnxTensor:
        x = g.cast(X, VarType.INT32) if X.dtype is VarType.BOOL else X
        return g.cast(g.reduce(op, x, reduced_axes(X.ndim, dim, reduce_all), keep_dim), X.dtype)

    return extremum


exports("reduce_max")(_extremum("ReduceMax"))
exports("reduce_min")(_extremum("ReduceMin"))
exports("reduce_prod")(_extremum("ReduceProd"))


def _test(op: str) -> Any:
    def test(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], dim: list[int], keep_dim: bool, reduce_all: bool) -> OnnxTensor:
        if inputs.get("AxisTensor") is not None or inputs.get("AxisTensorList"):
            raise NotExported("axes that are computed")
        numbers = g.reduce(op, g.cast(g.cast(X, VarType.BOOL), VarType.INT32), reduced_axes(X.ndim, dim, reduce_all), keep_dim)
        return g.cast(numbers, VarType.BOOL)

    return test


exports("reduce_all")(_test("ReduceMin"))
exports("reduce_any")(_test("ReduceMax"))


@exports("expand_reduced")
def expand_reduced(
    g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, dim: list[int], keep_dim: bool, reduce_all: bool, average: bool
) -> OnnxTensor:
    axes = reduced_axes(Like.ndim, dim, reduce_all)
    if reduces_all(Like.ndim, dim, reduce_all):
        x = g.reshape(X, [1] * Like.ndim)
    else:
        x = X if keep_dim else g.unsqueeze(X, *axes)
    if average:
        count = g.product_of([g.size(Like, axis) for axis in axes])
        divisor = g.number(count, x) if isinstance(count, int) else g.cast(g.squeeze(count, 0), x.dtype)
        x = g.binary("Div", x, divisor)
    return g.expand_as(x, Like)


def _position(op: str) -> Any:
    def position(g: OnnxGraph, X: OnnxTensor, axis: int, keepdims: bool, flatten: bool, dtype: int) -> OnnxTensor:
        x, at = X, axis
        if X.dtype is VarType.BOOL:
            x = g.cast(x, VarType.INT32)
        if flatten or X.ndim < 2:
            x, at = g.reshape(x, [-1], (X.spec.size,)), 0
            best_place = g.sized_node(op, [x], VarType.INT64, (1,), axis=0, keepdims=1)
            return g.reshape(best_place, [1] * X.ndim) if keepdims else best_place
        at = axis % X.ndim
        sizes = tuple(1 if place == at else size for place, size in enumerate(x.sizes) if keepdims or place != at)
        return g.sized_node(op, [x], VarType.INT64, sizes, axis=at, keepdims=int(keepdims))

    return position


exports("arg_max")(_position("ArgMax"))
exports("arg_min")(_position("ArgMin"))


@exports("cumsum")
def cumsum(g: OnnxGraph, X: OnnxTensor, axis: int, flatten: bool, exclusive: bool, reverse: bool) -> OnnxTensor:
    x = g.reshape(X, [-1], (X.spec.size,)) if flatten else X
    at = g.constant(np.int64(0 if flatten else axis % max(X.ndim, 1)))
    if x.dtype in (VarType.BOOL, VarType.UINT8, VarType.INT8, VarType.INT16):
        raise NotExported(f"cumulative sums of {x.dtype.text}")
    return g.node("CumSum", [x, at], x, exclusive=int(exclusive), reverse=int(reverse))


@exports("top_k", "top_k_v2")
def top_k(g: OnnxGraph, X: OnnxTensor, K: OnnxTensor | None, attrs: dict[str, Any], specs: Any) -> dict[str, OnnxTensor]:
    axis = attrs.get("axis", -1) % X.ndim
    count = g.ints(attrs["k"]) if K is None else g.reshape(g.cast(K, VarType.INT64), [1])
    spec = specs["Out"]
    values, places = g.nodes(
        "TopK",
        [X, count],
        [
            spec.with_shape(tuple(-1 if n >= 10**9 else n for n in spec.shape)),
            spec.with_shape(tuple(-1 if n >= 10**9 else n for n in spec.shape)).with_dtype(VarType.INT64),
        ],
        axis=axis,
        largest=int(attrs.get("largest", True)),
        sorted=1,
    )
    return {"Out": values, "Indices": places}
