"""Write ranks, medians, counts and searches in sorted numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fluid.ops.statistics import median_axes
from fluid.values.spec import Spec
from fluid.values.types import VarType, as_dtype

from .arithmetic import is_nan
from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size
from .making import filled
from .shaping import add_rows, first_rows, gather_along, positions


def _ascending(g: OnnxGraph, x: OnnxTensor, axis: int) -> tuple[OnnxTensor, OnnxTensor]:
    """Stably sort elements along an axis; return them and their places."""
    spec = Spec(x.shape, x.dtype)
    count = g.as_size(g.size(x, axis))
    values, places = g.nodes("TopK", [x, count], [spec, spec.with_dtype(VarType.INT64)], axis=axis, largest=0, sorted=1)
    values.sizes = places.sizes = x.sizes
    return values, places


def _ranked(g: OnnxGraph, x: OnnxTensor, axis: int, keepdim: bool, choose: Any) -> dict[str, OnnxTensor]:
    """Pick one element along an axis, and its place; `choose` picks from the sorted elements and their places."""
    rows = x if x.ndim else g.reshape(x, [1])
    axis %= rows.ndim
    places = choose(*_ascending(g, rows, axis), axis)
    results = {"Out": gather_along(g, rows, places, axis), "Indices": places}
    return results if keepdim and x.ndim else {slot: g.squeeze(value, axis) for slot, value in results.items()}


@exports("kthvalue")
def kthvalue(g: OnnxGraph, X: OnnxTensor, k: int, axis: int, keepdim: bool) -> dict[str, OnnxTensor]:
    return _ranked(g, X, axis, keepdim, lambda values, places, at: g.slice(places, [at], [k - 1], [k]))


@exports("mode")
def mode(g: OnnxGraph, X: OnnxTensor, axis: int, keepdim: bool) -> dict[str, OnnxTensor]:
    """The longest run of equal sorted elements; ties go to the smallest element."""

    def last_of_longest(values: OnnxTensor, places: OnnxTensor, at: int) -> OnnxTensor:
        column, row = g.unsqueeze(values, at + 1), g.unsqueeze(values, at)
        same = g.cast(g.binary("Equal", column, row), VarType.INT32)
        counts = g.reduce("ReduceSum", same, [at + 1])
        best = g.sized_node("ArgMax", [counts], VarType.INT64, _one_at(counts.sizes, at), axis=at, keepdims=1)
        most = g.reduce("ReduceMax", counts, [at], keep=True)
        last = g.binary("Sub", g.binary("Add", best, g.cast(most, VarType.INT64)), g.ints(1))
        return gather_along(g, places, last, at)

    return _ranked(g, X, axis, keepdim, last_of_longest)


def _one_at(sizes: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(1 if place == axis else size for place, size in enumerate(sizes))


@exports("nanmedian")
def nanmedian(g: OnnxGraph, X: OnnxTensor, axis: list[int], specs: Any) -> dict[str, OnnxTensor]:
    axes = median_axes(X.ndim, axis)
    kept_axes = [dimension for dimension in range(X.ndim) if dimension not in axes]
    turned = g.transpose(X, [*kept_axes, *axes]) if X.ndim else X
    sizes = g.sizes_of(turned)
    rows = g.reshape(turned, [g.product_of(sizes[: len(kept_axes)]), g.product_of(sizes[len(kept_axes) :])])
    nan_mask = is_nan(g, rows)
    order = _ascending(g, g.where(nan_mask, g.number(math.inf, rows), rows), 1)[1]  # NaN comes last, after infinities
    flags = g.cast(g.unary("Not", nan_mask), VarType.INT64)
    count = g.reduce("ReduceSum", flags, [1], keep=True)
    is_empty = g.binary("Equal", count, g.ints(0))
    middle = [g.binary("Div", g.binary("Max", rank, g.ints(0)), g.ints(2)) for rank in (_plus(g, count, -1), count)]
    # NaN was replaced by infinity, so sort once more: numbers before NaN, by place.
    behind = _ascending(
        g, g.sized_node("GatherElements", [g.cast(nan_mask, VarType.INT32), order], VarType.INT32, order.sizes, axis=1), 1
    )
    order = gather_along(g, order, behind[1], 1)
    places = gather_along(g, order, g.concat(middle, 1), 1)
    values = gather_along(g, rows, places, 1)
    low, high = (g.slice(values, [1], [place], [place + 1]) for place in (0, 1))
    same = g.binary("Equal", g.slice(places, [1], [0], [1]), g.slice(places, [1], [1], [2]))
    half = g.binary("Mul", g.binary("Add", low, high), g.number(0.5, low))
    medians = g.where(is_empty, g.number(math.nan, low), g.where(same, low, half))
    index = g.where(is_empty, g.ints(-1), places)
    return {slot: g.in_shape(value, specs[slot].shape) for slot, value in {"Out": medians, "MedianIndex": index}.items()}


def _plus(g: OnnxGraph, x: OnnxTensor, number: int) -> OnnxTensor:
    return g.binary("Add", x, g.number(number, x))


# -------------------------------------------------------------------------------------------------------------- counting
@exports("searchsorted")
def searchsorted(g: OnnxGraph, SortedSequence: OnnxTensor, Values: OnnxTensor, right: bool, specs: Any) -> OnnxTensor:
    """Count the row's elements below each value, or not above it. NaN is above all numbers."""
    row, values = SortedSequence, g.unsqueeze(Values, Values.ndim)
    row = row if row.ndim == 1 else g.unsqueeze(row, row.ndim - 1)
    before = g.binary("LessOrEqual" if right else "Less", row, values)
    if row.is_floating:
        value_is_nan, row_is_nan = is_nan(g, values), is_nan(g, row)
        is_countable = g.unary("Not", row_is_nan) if not right else g.binary("Or", g.unary("Not", row_is_nan), row_is_nan)
        before = g.binary("Or", before, g.binary("And", value_is_nan, is_countable))
    return g.reduce("ReduceSum", g.cast(before, specs["Out"].dtype), [before.ndim - 1])


def _counted(g: OnnxGraph, places: OnnxTensor, size: Size, weights: OnnxTensor) -> OnnxTensor:
    """Sum the weights, [n], by their places, [n]."""
    zeros = filled(g, g.joined_sizes([size]), 0, Spec((size if isinstance(size, int) else -1,), weights.dtype))
    return add_rows(g, zeros, places, weights)


@exports("histogram")
def histogram(g: OnnxGraph, X: OnnxTensor, bins: int, min: int, max: int) -> OnnxTensor:
    x = g.cast(g.reshape(X, [-1], (X.spec.size,)), VarType.FP64)
    low, high = (g.constant(np.array(float(bound))) for bound in (min, max))
    if min == max:
        low, high = (g.reduce(op, x, [0]) for op in ("ReduceMin", "ReduceMax"))
    same = g.binary("Equal", low, high)
    one = g.constant(np.array(1.0))
    low, high = g.where(same, g.binary("Sub", low, one), low), g.where(same, g.binary("Add", high, one), high)
    is_inside = g.binary("And", g.binary("GreaterOrEqual", x, low), g.binary("LessOrEqual", x, high))
    scaled = g.binary("Mul", g.binary("Sub", x, low), g.constant(np.array(float(bins))))
    part = g.cast(g.binary("Div", scaled, g.binary("Sub", high, low)), VarType.INT64)
    part = g.binary("Min", g.where(is_inside, part, g.ints(0)), g.ints(bins - 1))
    return _counted(g, part, bins, g.cast(is_inside, VarType.INT64))


@exports("bincount")
def bincount(g: OnnxGraph, X: OnnxTensor, Weights: OnnxTensor | None, minlength: int, specs: Any) -> OnnxTensor:
    places = g.cast(X, VarType.INT64)
    most = g.reduce("ReduceMax", g.concat([places, g.ints(-1)], 0), [0], keep=True)
    size = g.binary("Max", _plus(g, most, 1), g.ints(minlength))
    if Weights is None:
        weights = g.cast(g.binary("Equal", places, places), VarType.INT64)
        return g.cast(_counted(g, places, size, weights), specs["Out"].dtype)
    return g.cast(_counted(g, places, size, g.cast(Weights, VarType.FP64)), specs["Out"].dtype)


@exports("unique_consecutive")
def unique_consecutive(g: OnnxGraph, X: OnnxTensor, axis: list[int], specs: Any, dtype: int) -> dict[str, Any]:
    place = axis[0] % X.ndim if axis else 0
    order = [place, *(dimension for dimension in range(X.ndim) if dimension != place)]
    rows = g.transpose(X, order) if axis else g.reshape(X, [-1], (X.spec.size,))
    before, behind = g.slice(rows, [0], [0], [-1]), g.slice(rows, [0], [1], [2**31 - 1])
    differ = g.cast(g.differ(before, behind), VarType.INT32)
    differ = g.reduce("ReduceMax", differ, range(1, rows.ndim)) if rows.ndim > 1 else differ
    count = g.as_size(g.size(rows, 0))
    starts = first_rows(g, g.concat([g.constant([1], VarType.INT32), differ], 0), count)
    starts.sizes = rows.sizes[:1]
    places = g.sized_node(
        "Compress", [positions(g, g.size(rows, 0), 0, 1), g.cast(starts, VarType.BOOL)], VarType.INT64, (-1,), axis=0
    )
    out = g.gather(rows, places)
    results: dict[str, Any] = {"Out": g.transpose(out, [order.index(dimension) for dimension in range(X.ndim)]) if axis else out}
    if specs.get("Index") is not None:
        number = g.sized_node("CumSum", [starts, g.constant(np.int64(0))], starts.dtype, starts.sizes)
        results["Index"] = g.cast(g.binary("Sub", number, g.constant([1], VarType.INT32)), as_dtype(dtype))
    if specs.get("Counts") is not None:
        ends = first_rows(g, g.concat([g.slice(places, [0], [1], [2**31 - 1]), count], 0), count)
        results["Counts"] = g.cast(g.binary("Sub", ends, places), as_dtype(dtype))
    return results


@exports("median")
def median(g: OnnxGraph, x: OnnxTensor, axis: list[int], mode: str, specs: Any) -> dict[str, OnnxTensor]:
    axes = median_axes(x.ndim, axis)
    turned = g.transpose(x, [*(dimension for dimension in range(x.ndim) if dimension not in axes), *axes]) if x.ndim else x
    sizes = g.sizes_of(turned)
    batch_rank = x.ndim - len(axes)
    size = g.product_of(sizes[batch_rank:])
    if not isinstance(size, int):
        raise NotExported("medians over dimensions that are known only at run time")
    rows = g.reshape(turned, [g.product_of(sizes[:batch_rank]), size])
    nan_mask = is_nan(g, rows)
    order = _ascending(g, g.where(nan_mask, g.number(math.inf, rows), rows), 1)[1]
    middle = [(size - 1) // 2, size // 2] if mode == "avg" else [(size - 1) // 2]
    places = g.gather(order, g.ints(*middle), 1)
    values = g.reduce("ReduceMean", gather_along(g, rows, places, 1), [1], keep=True)
    has_nan = g.cast(g.reduce("ReduceMax", g.cast(nan_mask, VarType.INT32), [1], keep=True), VarType.BOOL)
    results = {"out": g.where(has_nan, g.number(math.nan, values), values), "medians": places}
    return {slot: g.in_shape(value, specs[slot].shape) for slot, value in results.items()}
