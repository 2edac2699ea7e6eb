"""Kernels of `fluid.ops.statistics`. Where an output's shape is known only now, the kernel makes and returns it."""

from __future__ import annotations

from math import prod
from typing import Any

from fluid.errors import ExecutionError
from fluid.ops.statistics import median_axes
from fluid.values.types import as_dtype

from .manipulation import write_wanted
from .sorting import stable_order
from .table import Slots, checked, kernel


def _last(xp: Any, array: Any, axis: int) -> Any:
    """A view with `axis` last."""
    return xp.moveaxis(array, axis, -1) if array.ndim else array.reshape(1)


def _write(X: Any, places: Any, picked: Any, Out: Any, Indices: Any) -> None:
    write_wanted(*((out, value.reshape(out.shape)) for out, value in ((Out, picked), (Indices, places)) if out is not None))


@kernel("kthvalue")
def kthvalue(xp: Any, X: Any, k: int, axis: int, Out: Any, Indices: Any) -> None:
    rows = _last(xp, X, axis)
    places = stable_order(xp, rows)[..., k - 1 : k]
    _write(X, places, xp.take_along_axis(rows, places, -1), Out, Indices)


@kernel("mode")
def mode(xp: Any, X: Any, axis: int, Out: Any, Indices: Any) -> None:
    rows = _last(xp, X, axis)
    order = stable_order(xp, rows)
    values = xp.take_along_axis(rows, order, -1)
    number = xp.arange(values.shape[-1])
    starts = xp.ones(values.shape, bool)
    starts[..., 1:] = values[..., 1:] != values[..., :-1]
    first = xp.where(starts, number, 0)
    for step in (1 << bit for bit in range(values.shape[-1].bit_length())):  # the start of the run that each element is in
        first[..., step:] = xp.maximum(first[..., step:], first[..., :-step])
    length = number - first + 1
    best = length.argmax(-1)[..., None]
    places = xp.take_along_axis(order, best, -1)
    _write(X, places, xp.take_along_axis(rows, places, -1), Out, Indices)


def _sorted_rows(xp: Any, X: Any, axis: list[int]) -> tuple[Any, Any]:
    """The elements as rows, one row for each median, and the sorting order of each row."""
    axes = median_axes(X.ndim, axis)
    remaining = [dim for dim in range(X.ndim) if dim not in axes]
    turned = X.transpose([*remaining, *axes])
    rows = turned.reshape(prod(turned.shape[: len(remaining)]), prod(turned.shape[len(remaining) :]))
    return rows, stable_order(xp, rows)  # NaN comes last


@kernel("nanmedian")
def nanmedian(xp: Any, X: Any, axis: list[int], Out: Any, MedianIndex: Any) -> None:
    rows, order = _sorted_rows(xp, X, axis)
    count = (rows == rows).sum(1, keepdims=True)
    middle = xp.concatenate([(count - 1) // 2, count // 2], 1)
    places = xp.take_along_axis(order, xp.maximum(middle, 0), 1)
    values = xp.take_along_axis(rows, places, 1)
    medians = xp.where(places[:, 0] == places[:, 1], values[:, 0], values.mean(1))
    _write(X, xp.where(count > 0, places, -1), medians, Out, MedianIndex)


@kernel("median")
def median(xp: Any, x: Any, axis: list[int], mode: str, out: Any, medians: Any) -> None:
    rows, order = _sorted_rows(xp, x, axis)
    size = rows.shape[1]
    places = order[:, [(size - 1) // 2, size // 2] if mode == "avg" else [(size - 1) // 2]]
    values = xp.take_along_axis(rows, places, 1)
    middle = xp.where(places[:, 0] == places[:, -1], values[:, 0], values.mean(1))
    _write(x, places, xp.where((rows != rows).any(1), xp.nan, middle), out, medians)


# -------------------------------------------------------------------------------------------------------------- counting
@kernel("searchsorted")
def searchsorted(xp: Any, SortedSequence: Any, Values: Any, right: bool, Out: Any) -> None:
    side = "right" if right else "left"
    if SortedSequence.ndim == 1:
        xp.copyto(Out, xp.searchsorted(SortedSequence, Values, side), "unsafe")
        return
    rows = SortedSequence.reshape(prod(SortedSequence.shape[:-1]), SortedSequence.shape[-1])
    values, out = (array.reshape(len(rows), array.shape[-1]) for array in (Values, Out))
    for row, wanted, target in zip(rows, values, out, strict=True):
        target[...] = xp.searchsorted(row, wanted, side)


@kernel("histogram")
def histogram(xp: Any, X: Any, bins: int, min: int, max: int, Out: Any) -> None:
    low, high = float(min), float(max)
    if low == high and X.size:
        low, high = float(X.min()), float(X.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise ExecutionError(f"histogram: X reaches from {low} to {high}; its numbers should be finite, or min and max given")
    values = X[(X >= low) & (X <= high)].astype("float64")
    places = xp.minimum(((values - low) * bins / (high - low)).astype("int64"), bins - 1)
    xp.copyto(Out, xp.bincount(places.astype(xp.intp, copy=False), minlength=bins))


_MOST = 1 << 30


@checked("bincount")
def check_bincount(xp: Any, X: Any, minlength: int) -> None:
    if X.size and not 0 <= int(X.min()) <= int(X.max()) < _MOST:
        raise ExecutionError(f"bincount: X reaches from {int(X.min())} to {int(X.max())}; it should be from 0 to below {_MOST}")
    if minlength > _MOST:
        raise ExecutionError(f"bincount: minlength {minlength} should not be above {_MOST}")


@kernel("bincount")
def bincount(xp: Any, X: Any, Weights: Any, minlength: int) -> Any:
    if Weights is None:
        return xp.bincount(X.astype(xp.intp, copy=False), minlength=minlength).astype("int64", copy=False)
    sums = xp.bincount(X.astype(xp.intp, copy=False), Weights.astype("float64"), minlength)
    return sums.astype("float32" if Weights.dtype == "float32" else "float64")


@kernel("unique_consecutive")
def unique_consecutive(
    xp: Any, X: Any, return_inverse: bool, return_counts: bool, axis: list[int], dtype: int, attrs: Slots, Index: Any
) -> Any:
    rows = xp.moveaxis(X, axis[0], 0) if axis else X.reshape(-1)
    starts = xp.ones(len(rows), bool)
    if len(rows):
        is_new = (rows[1:] != rows[:-1]).reshape(len(rows) - 1, prod(rows.shape[1:]))
        starts[1:] = is_new.any(1)
    first = xp.nonzero(starts)[0]
    out = rows[first]
    write_wanted((Index, xp.cumsum(starts) - 1))
    results = [xp.moveaxis(out, 0, axis[0]) if axis else out]
    if return_counts:
        ends = xp.concatenate([first[1:], xp.asarray([len(rows)])]) if len(first) else first
        results.append((ends - first).astype(as_dtype(dtype).numpy))
    return tuple(results) if len(results) > 1 else results[0]
