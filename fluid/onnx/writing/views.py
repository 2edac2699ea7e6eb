"""Write ops of Paddle 2.x that write, repeat or view elements by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.ops.shapes import slice_of
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size, is_number
from .making import as_vector, filled
from .shaping import add_rows, added_along, positions


# ------------------------------------------------------------------------------------------------------ writing by index
@exports("index_add")
def index_add(g: OnnxGraph, X: OnnxTensor, Index: OnnxTensor, AddValue: OnnxTensor, axis: int) -> OnnxTensor:
    added = added_along(g, AddValue, as_vector(g, Index), axis, g.size(X, axis), X.sizes)
    return g.binary("Add", X, added)


def _picking(g: OnnxGraph, indices: list[OnnxTensor]) -> OnnxTensor:
    """Join indices into the first dimensions into one tensor [..., dimensions]; a mask stands for the places where it is true."""
    columns_of_index: list[OnnxTensor] = []
    for index in indices:
        if index.dtype is VarType.BOOL:
            places = g.node("NonZero", [index], Spec((index.ndim, -1), VarType.INT64))
            columns_of_index += [g.squeeze(g.slice(places, [0], [place], [place + 1]), 0) for place in range(index.ndim)]
        else:
            columns_of_index.append(g.cast(index, VarType.INT64))
    together = columns_of_index[0]
    for column in columns_of_index[1:]:
        together = g.binary("Add", together, column)  # for its shape
    columns = [
        g.unsqueeze(column if len(columns_of_index) == 1 else g.expand(column, g.dims(together), together.sizes), together.ndim)
        for column in columns_of_index
    ]
    return g.concat(columns, together.ndim)


def _picked_dims(g: OnnxGraph, x: OnnxTensor, index: OnnxTensor) -> tuple[OnnxTensor, tuple[int, ...]]:
    depth = index.shape[-1]
    return g.joined_sizes([*g.sizes_of(index)[:-1], *g.sizes_of(x)[depth:]]), (*index.sizes[:-1], *x.sizes[depth:])


@exports("index_put")
def index_put(g: OnnxGraph, x: OnnxTensor, indices: list[OnnxTensor], value: OnnxTensor, accumulate: bool) -> OnnxTensor:
    if accumulate and g.opset < 16:
        raise NotExported("sums by index, before opset 16")
    index = _picking(g, indices)
    values = g.expand(value, *_picked_dims(g, x, index))
    return g.node("ScatterND", [x, index, values], x, **({"reduction": "add"} if accumulate else {}))


@exports("picked_sum")
def picked_sum(g: OnnxGraph, f: Any, X: OnnxTensor, Indices: list[OnnxTensor], Like: OnnxTensor) -> Any:
    index = _picking(g, Indices)
    return f.sum_to(g.sized_node("GatherND", [X, index], X.dtype, _picked_dims(g, X, index)[1]), Like)


@exports("masked_fill")
def masked_fill(g: OnnxGraph, x: OnnxTensor, mask: OnnxTensor, value: OnnxTensor) -> OnnxTensor:
    return g.where(mask, g.reshape(value, []), x)


# -------------------------------------------------------------------------------------------------------------- repeating
def _sources(g: OnnxGraph, size: Size, RepeatsTensor: OnnxTensor | None, repeats: int) -> OnnxTensor:
    """For each slice of the repeated result, the number of its source slice."""
    if RepeatsTensor is None:
        if isinstance(size, int):
            return g.constant(np.repeat(np.arange(size), repeats))
        grid = g.expand(g.unsqueeze(g.arange(size), 1), g.joined_sizes([size, repeats]), (-1, repeats))
        return g.reshape(grid, [-1], (-1,))
    counts = as_vector(g, RepeatsTensor)
    counts = g.expand(counts, g.as_size(size), (size if isinstance(size, int) else -1,))
    ends = g.sized_node("CumSum", [counts, g.constant(np.int64(0))], counts.dtype, counts.sizes)
    total = g.reduce("ReduceSum", counts, [0], keep=True)
    before = g.binary("LessOrEqual", g.unsqueeze(ends, 0), g.unsqueeze(g.arange(total), 1))
    return g.reduce("ReduceSum", g.cast(before, VarType.INT64), [1])


@exports("repeat_interleave")
def repeat_interleave(g: OnnxGraph, X: OnnxTensor, RepeatsTensor: OnnxTensor | None, Repeats: int, dim: int) -> OnnxTensor:
    return g.gather(X, _sources(g, g.size(X, dim), RepeatsTensor, Repeats), dim)


@exports("repeat_like")
def repeat_like(g: OnnxGraph, X: OnnxTensor, RepeatsTensor: OnnxTensor | None, Repeats: int, dim: int) -> OnnxTensor:
    return repeat_interleave(g, X, RepeatsTensor, Repeats, dim)


@exports("interleaved_sum")
def interleaved_sum(
    g: OnnxGraph, X: OnnxTensor, RepeatsTensor: OnnxTensor | None, Like: OnnxTensor, Repeats: int, dim: int
) -> OnnxTensor:
    size = g.size(Like, dim)
    return added_along(g, X, _sources(g, size, RepeatsTensor, Repeats), dim, size, Like.sizes)


@exports("broadcast_tensors")
def broadcast_tensors(g: OnnxGraph, X: list[OnnxTensor], specs: Any) -> dict[str, Any]:
    sizes = specs["Out"][0].shape
    if all(is_number(size) for size in sizes):
        return {"Out": [g.expand(tensor, g.ints(*sizes), sizes) for tensor in X]}
    broadcast = X[0]
    zeros = [g.where(g.binary("Equal", tensor, tensor), g.number(0, tensor), g.number(0, tensor)) for tensor in X]
    for zero in zeros[1:]:
        broadcast = g.binary("Add", broadcast, zero)
    return {"Out": [g.expand(tensor, g.dims(broadcast), sizes) for tensor in X]}


# ------------------------------------------------------------------------------------------------------------------ views
def _strided(dims: list[int], stride: list[int], offset: int) -> Any:
    """The places of a view's elements in the flattened source."""
    places = np.array(offset, np.int64)
    for size, step in zip(dims, stride, strict=True):
        places = places[..., None] + np.arange(size) * step
    return places


@exports("as_strided")
def as_strided(g: OnnxGraph, input: OnnxTensor, dims: list[int], stride: list[int], offset: int) -> OnnxTensor:
    return g.gather(g.reshape(input, [-1], (input.spec.size,)), g.constant(_strided(dims, stride, offset)))


@exports("strided_sum")
def strided_sum(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, dims: list[int], stride: list[int], offset: int) -> OnnxTensor:
    size = g.product_of(g.sizes_of(Like))
    zeros = filled(g, g.joined_sizes([size]), 0, Spec((size if isinstance(size, int) else -1,), X.dtype))
    places = g.constant(_strided(dims, stride, offset).reshape(-1))
    return g.reshape_as(add_rows(g, zeros, places, g.reshape(X, [-1], (X.spec.size,))), Like)


@exports("view_shape")
def view_shape(g: OnnxGraph, f: Any, input: OnnxTensor, dims: list[int]) -> Any:
    return f.reshape2(input, shape=dims)


@exports("index_select_strided")
def index_select_strided(g: OnnxGraph, x: OnnxTensor, index: int, axis: int) -> OnnxTensor:
    return g.gather(x, g.constant(np.int64(index)), axis)


# ----------------------------------------------------------------------------------------------------------------- frames
def _windows(g: OnnxGraph, size: Size, length: int, hop: int, count: Size | None = None) -> OnnxTensor:
    """The places of the elements of windows along a dimension, [windows, length]."""
    if isinstance(size, int):
        count = (size - length) // hop + 1 if count is None else count
    elif count is None:
        count = g.binary("Add", g.binary("Div", g.binary("Sub", size, g.ints(length)), g.ints(hop)), g.ints(1))
    starts = g.binary("Mul", positions(g, count, 0, 2), g.ints(hop))
    return g.binary("Add", starts, g.constant(np.arange(length)[None]))


def _framed(g: OnnxGraph, x: OnnxTensor, length: int, hop: int, axis: int, count: Size | None = None) -> OnnxTensor:
    """Windows along the first dimension as [windows, length, ...], or along the last one as [..., length, windows]."""
    windows = _windows(g, g.size(x, axis), length, hop, count)
    return g.gather(x, g.transpose(windows, [1, 0]) if axis else windows, axis)


@exports("frame")
def frame(g: OnnxGraph, X: OnnxTensor, frame_length: int, hop_length: int, axis: int) -> OnnxTensor:
    return _framed(g, X, frame_length, hop_length, axis)


@exports("frame_like")
def frame_like(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, hop_length: int, axis: int) -> OnnxTensor:
    length, count = (g.size(Like, place) for place in ((-2, -1) if axis else (1, 0)))
    if not isinstance(length, int):
        raise NotExported("frames whose length is known only at run time")
    return _framed(g, X, length, hop_length, axis, count)


@exports("tensor_unfold")
def tensor_unfold(g: OnnxGraph, input: OnnxTensor, axis: int, size: int, step: int) -> OnnxTensor:
    axis %= input.ndim
    parts = g.gather(input, _windows(g, g.size(input, axis), size, step), axis)
    return g.transpose(parts, [*(dimension for dimension in range(parts.ndim) if dimension != axis + 1), axis + 1])


def _overlapped(g: OnnxGraph, x: OnnxTensor, hop: int, axis: int, total: Size | None, sizes: tuple[int, ...]) -> OnnxTensor:
    """Sum windows into a dimension of size `total`; by default it ends with the last window."""
    length, count = (g.size(x, place) for place in ((-2, -1) if axis else (1, 0)))
    if not isinstance(length, int):
        raise NotExported("frames whose length is known only at run time")
    if total is None:
        if isinstance(count, int):
            total = (count - 1) * hop + length
        else:
            total = g.binary("Add", g.binary("Mul", count, g.ints(hop)), g.ints(length - hop))
    order = [x.ndim - 1, x.ndim - 2, *range(x.ndim - 2)] if axis else list(range(x.ndim))
    rows = g.transpose(x, order)  # [windows, length, ...]
    flat = g.reshape(rows, [g.product_of([count, length]), *g.sizes_of(rows)[2:]])
    flat.sizes = (*flat.sizes[:1], *rows.sizes[2:])
    places = g.reshape(_windows(g, total, length, hop, count), [-1], flat.sizes[:1])
    turned = (total if isinstance(total, int) else -1, *rows.sizes[2:])
    added = added_along(g, flat, places, 0, total, turned)
    return g.transpose(added, [*range(1, added.ndim), 0]) if axis else added


@exports("overlap_add")
def overlap_add(g: OnnxGraph, X: OnnxTensor, hop_length: int, axis: int, specs: Any) -> OnnxTensor:
    return _overlapped(g, X, hop_length, axis, None, specs["Out"].shape)


@exports("overlap_like")
def overlap_like(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, hop_length: int, axis: int) -> OnnxTensor:
    return _overlapped(g, X, hop_length, axis, g.size(Like, axis), Like.sizes)


# ----------------------------------------------------------------------------------------------------- writing to a part
class _Region:
    """The elements that `set_value` replaces."""

    def __init__(self, g: OnnxGraph, x: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> None:
        if any(inputs.get(f"{name}TensorList") for name in ("Starts", "Ends", "Steps")):
            raise NotExported("bounds of what is replaced that are a size that is computed")
        self.g, self.x = g, x
        self.dropped = sorted(axis % x.ndim for axis in attrs["decrease_axes"])
        self.added = list(attrs["none_axes"])
        self.indices: dict[int, range] = {}
        for axis, *bounds in zip(attrs["axes"], attrs["starts"], attrs["ends"], attrs["steps"], strict=True):
            size = g.size(x, axis)
            if not isinstance(size, int):
                raise NotExported("a part of a dimension that is known only at run time")
            start, end, step = bounds
            self.indices[axis % x.ndim] = _range_of(start, end, step, size)

    def aligned(self, value: OnnxTensor) -> OnnxTensor:
        """Reshape values to the rank of the full tensor."""
        ndim = self.x.ndim - len(self.dropped) + len(self.added)
        extra = value.ndim - ndim
        value = self.g.squeeze(value, *range(extra)) if extra > 0 else value
        value = self.g.unsqueeze(value, *range(ndim - value.ndim))
        for axis in reversed(self.added):
            value = self.g.squeeze(value, axis)
        return self.g.unsqueeze(value, *self.dropped)

    def put(self, value: OnnxTensor) -> OnnxTensor:
        g, x = self.g, self.x
        is_inside: OnnxTensor | None = None
        for axis, indices in self.indices.items():
            size = x.shape[axis]
            source, mask = np.zeros(size, np.int64), np.zeros(size, bool)
            source[list(indices)], mask[list(indices)] = np.arange(len(indices)), True
            if not len(indices):
                return g.identity(x)
            if value.shape[axis] != 1:
                value = g.gather(value, g.constant(source), axis)
            flag = g.constant(mask.reshape([-1 if place == axis else 1 for place in range(x.ndim)]))
            is_inside = flag if is_inside is None else g.binary("And", is_inside, flag)
        if is_inside is None:
            return g.expand_as(value, x)
        return g.where(is_inside, value, x)

    def part(self) -> OnnxTensor:
        """The elements, in the shape of values to put there."""
        part = self.x
        for axis, indices in self.indices.items():
            part = self.g.gather(part, self.g.constant(np.array(indices, np.int64)), axis)
        part = self.g.squeeze(part, *self.dropped)
        for axis in self.added:
            part = self.g.unsqueeze(part, axis)
        return part


def _range_of(start: int, end: int, step: int, size: int) -> range:
    return range(size)[slice_of(start, end, step)]


@exports("set_value")
def set_value(g: OnnxGraph, Input: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
    region = _Region(g, Input, inputs, attrs)
    value = inputs.get("ValueTensor")
    if value is None:
        value = g.constant(np.array(attrs["values"]).astype(Input.dtype.numpy).reshape(attrs["shape"]))
    return region.put(region.aligned(value))


@exports("region_sum")
def region_sum(g: OnnxGraph, f: Any, X: OnnxTensor, Like: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> Any:
    part = _Region(g, X, inputs, attrs).part()
    extra = Like.ndim - part.ndim
    if extra > 0:
        return g.reshape_as(f.sum_to(part, g.squeeze(Like, *range(extra))), Like)
    return f.sum_to(part, Like)
