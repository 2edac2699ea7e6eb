"""Kernels of `fluid.ops.indexing`."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from fluid.errors import ExecutionError

from .manipulation import check_ids, take
from .portable import copy, values_in_order
from .table import Call, OutArray, checked, kernel, prepared


@checked("index_add")
def check_index_add(X: Any, Index: Any, axis: int) -> None:
    check_ids(Index, X.shape[axis], "index_add")


@kernel("index_add")
def index_add(xp: Any, X: Any, Index: Any, AddValue: Any, axis: int, Out: Any) -> None:
    xp.copyto(Out, X)
    xp.add.at(xp.moveaxis(Out, axis, 0), Index, xp.moveaxis(AddValue, axis, 0))


def _check_places(op_type: str, x: Any, indices: list[Any]) -> None:
    used = 0
    for index in indices:
        if index.dtype.kind == "b":
            used += index.ndim
            continue
        size = x.shape[used]
        if index.size and not -size <= int(index.min()) <= int(index.max()) < size:
            reach = f"from {int(index.min())} to {int(index.max())}"
            raise ExecutionError(
                f"{op_type}: indices reach {reach}; for a dimension of {size} they should be in [{-size}, {size})"
            )
        used += 1


@checked("index_put")
def check_index_put(x: Any, indices: list[Any]) -> None:
    _check_places("index_put", x, indices)


@checked("picked_sum")
def check_picked_sum(X: Any, Indices: list[Any]) -> None:
    _check_places("picked_sum", X, Indices)


def _values_in_order(xp: Any, out: Any, indices: list[Any], value: Any) -> Any:
    """`value` for the places that the indices name, such that the order of writing does not matter."""
    if all(index.dtype.kind == "b" for index in indices):
        return value  # masks name each element once
    index = [place for index in indices for place in (index.nonzero() if index.dtype.kind == "b" else [index])]
    return values_in_order(xp, out, tuple(index), value)


@kernel("index_put")
def index_put(xp: Any, x: Any, indices: list[Any], value: Any, accumulate: bool, out: Any) -> None:
    xp.copyto(out, x)
    try:
        if accumulate:
            xp.add.at(out, tuple(indices), value)
        else:
            out[tuple(indices)] = _values_in_order(xp, out, indices, value)
    except ValueError as error:  # a mask decides how many places there are
        raise ExecutionError(
            f"index_put: value should have, or broadcast to, the shape of the picked elements: {error}"
        ) from None


@kernel("picked_sum")
def picked_sum(xp: Any, X: Any, Indices: list[Any], Out: Any) -> None:
    picked = X[tuple(Indices)]
    shape = (1,) * (picked.ndim - Out.ndim) + Out.shape
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 != picked.shape[axis])
    xp.copyto(Out, (picked.sum(axes) if axes else picked).reshape(Out.shape))


# -------------------------------------------------------------------------------------------------------------- repeating
def _sources(xp: Any, RepeatsTensor: Any, Repeats: int, size: int) -> Any:
    """For each slice of the result, the number of the slice that it repeats."""
    if RepeatsTensor is None:
        return xp.repeat(xp.arange(size), Repeats)
    counts = [int(count) for count in RepeatsTensor.reshape(-1)]
    if any(count < 0 for count in counts):
        raise ExecutionError(f"repeat_interleave: RepeatsTensor has {min(counts)}; no number should be below 0")
    counts = counts * size if len(counts) == 1 else counts
    if len(counts) != size:
        raise ExecutionError(f"repeat_interleave: RepeatsTensor has {len(counts)} numbers; it should have {size}")
    return xp.asarray(np.repeat(np.arange(size), counts))


@kernel("repeat_interleave", "repeat_like")
def repeat_interleave(xp: Any, X: Any, RepeatsTensor: Any, Repeats: int, dim: int, Out: Any) -> Any:
    sources = _sources(xp, RepeatsTensor, Repeats, X.shape[dim])
    if Out is None:
        return X.take(sources, dim)
    xp.copyto(Out, X.take(sources, dim))
    return None


@kernel("interleaved_sum")
def interleaved_sum(xp: Any, X: Any, RepeatsTensor: Any, Repeats: int, dim: int, Out: Any) -> None:
    Out.fill(0)
    xp.add.at(xp.moveaxis(Out, dim, 0), _sources(xp, RepeatsTensor, Repeats, Out.shape[dim]), xp.moveaxis(X, dim, 0))


@prepared("broadcast_tensors")
def broadcast_tensors(xp: Any, X: list[Any], Out: list[Any]) -> list[Call]:
    return [partial(xp.copyto, out, array) for array, out in zip(X, Out, strict=True) if out is not None]


# -------------------------------------------------------------------------------------------------------------- diagonals
@kernel("fill_diagonal")
def fill_diagonal(xp: Any, X: Any, value: float, offset: int, wrap: bool, Out: Any) -> None:
    xp.copyto(Out, X)
    width = Out.shape[1]
    step = sum(prod(Out.shape[axis + 1 :]) for axis in range(Out.ndim))
    places = xp.arange(0, Out.size if wrap else min(Out.size, width * width), step)
    columns = places % max(width, 1) + offset
    Out.reshape(-1)[(places + offset)[(columns >= 0) & (columns < width)]] = value


def _diagonal_of(xp: Any, array: Any, offset: int, first: int, second: int) -> tuple[Any, Any, Any]:
    """A view with two dimensions first, and the places of a diagonal in them."""
    view = xp.moveaxis(array, (first, second), (0, 1))
    count = max(0, min(view.shape[0] + min(offset, 0), view.shape[1] - max(offset, 0)))
    steps = xp.arange(count)
    return view, steps + max(-offset, 0), steps + max(offset, 0)


@kernel("fill_diagonal_tensor")
def fill_diagonal_tensor(xp: Any, X: Any, Y: Any, offset: int, dim1: int, dim2: int, Out: Any) -> None:
    xp.copyto(Out, X)
    view, rows, columns = _diagonal_of(xp, Out, offset, dim1, dim2)
    view[rows, columns] = xp.moveaxis(Y, -1, 0).reshape(view[rows, columns].shape)


@kernel("diag_embed")
def diag_embed(xp: Any, Input: Any, offset: int, dim1: int, dim2: int, Out: Any) -> None:
    Out.fill(0)
    view, rows, columns = _diagonal_of(xp, Out, offset, dim1, dim2)
    view[rows, columns] = xp.moveaxis(Input, -1, 0)


@kernel("tril_indices")
def tril_indices(xp: Any, rows: int, cols: int, offset: int, out: Any) -> None:
    out[0], out[1] = xp.tril_indices(rows, offset, cols)


@kernel("triu_indices")
def triu_indices(xp: Any, row: int, col: int, offset: int, out: Any) -> None:
    out[0], out[1] = xp.triu_indices(row, offset, col)


# ------------------------------------------------------------------------------------------------------------------ views
def _places(xp: Any, dims: list[int], stride: list[int], offset: int) -> Any:
    places = xp.asarray(offset)
    for size, step in zip(dims, stride, strict=True):
        places = places[..., None] + xp.arange(size) * step
    return places.reshape(-1)


@kernel("as_strided")
def as_strided(xp: Any, input: Any, dims: list[int], stride: list[int], offset: int, out: Any) -> None:
    if out.size:
        take(xp, input.reshape(-1), _places(xp, dims, stride, offset), 0, out.reshape(-1))


@kernel("strided_sum")
def strided_sum(xp: Any, X: Any, dims: list[int], stride: list[int], offset: int, Out: Any) -> None:
    Out.fill(0)
    xp.add.at(Out.reshape(-1), _places(xp, dims, stride, offset), X.reshape(-1))


@kernel("tensor_unfold")
def tensor_unfold(xp: Any, input: Any, axis: int, size: int, step: int, out: Any) -> None:
    axis %= input.ndim
    source, target = xp.moveaxis(input, axis, 0), xp.moveaxis(out, axis, 0)
    for place in range(size):
        target[..., place] = source[place : place + step * len(target) : step][: len(target)]


def _bytes_of(array: Any) -> Any:
    return array.reshape(-1).view("uint8")


@prepared("view_dtype")
def view_dtype(xp: Any, input: Any, out: Any) -> Call:
    return partial(_copy_bytes, xp, input, out)


def _copy_bytes(xp: Any, source: Any, out: OutArray) -> None:
    xp.copyto(_bytes_of(out), _bytes_of(xp.ascontiguousarray(source)))


@prepared("view_shape", inplace={"out": "input"})
def view_shape(xp: Any, input: Any, out: Any) -> list[Call]:
    return copy(xp, input, out)


@prepared("index_select_strided")
def index_select_strided(xp: Any, x: Any, index: int, axis: int, out: Any) -> Call:
    return partial(xp.copyto, out, xp.moveaxis(x, axis, 0)[index, ...])


@kernel("masked_fill")
def masked_fill(xp: Any, x: Any, mask: Any, value: Any, out: Any) -> None:
    xp.copyto(out, xp.where(mask, value.reshape(()), x))
