"""Take and place elements by index, sort and search."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from .elementwise import choose
from .shapes import LAST


@imports("Gather")
def gather(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axis = node.int("axis", 0) % x.ndim
    index_array = node.array(1)
    if index_array is not None and index_array.ndim == 0:
        place = int(index_array)
        end = place + 1 or LAST
        return b.squeeze(b.slice(x, axis, place, end), [axis])
    index = _not_negative(b, node, 1, x, axis)
    shape = node.tensor(1).shape
    if axis == 0 and x.ndim == 2 and len(shape) >= 1 and node.is_floating():
        return b.f.lookup_table_v2(x, index)
    if len(shape) == 1:
        return b.f.gather(x, index, axis=axis)
    flat = b.f.gather(x, b.f.reshape2(index, shape=[-1]), axis=axis)
    sizes = [b.size_of(x, n) for n in range(axis)] + [b.size_of(index, n) for n in range(index.ndim)]
    sizes += [b.size_of(x, n) for n in range(axis + 1, x.ndim)]
    return b.reshape(flat, sizes) if len(sizes) != flat.ndim else flat


def _not_negative(b: Builder, node: OnnxNode, place: int, x: Any, axis: int) -> Any:
    """Convert negative indices along an axis of `x`, which count from its end, to indices from its start."""
    index_array = node.array(place)
    size = x.shape[axis]
    if index_array is not None:
        if not np.any(index_array < 0):
            return node[place]
        if size >= 0:
            return b.constant(np.where(index_array < 0, index_array + size, index_array)).variable(b.block)
    index = node[place]
    if size >= 0:
        return _from_start(b, index, b.number(size, index.dtype))
    return _from_start(b, index, b.cast(b.squeeze(b.slice(b.f.shape(x), 0, axis, axis + 1), [0]), index.dtype))


def _from_start(b: Builder, index: Any, sizes: Any) -> Any:
    """Add the sizes of dimensions to the indices below 0, which count from the end."""
    is_negative = b.cast(b.f.less_than(index, b.number(0, index.dtype)), index.dtype)
    return index + b.f.elementwise_mul(is_negative, sizes)


@imports("GatherElements")
def gather_elements(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axis = node.int("axis", 0) % x.ndim
    index = _not_negative(b, node, 1, x, axis)
    return b.f.take_along_axis(_as_wide(b, x, index, axis), index, Axis=axis)


def _as_wide(b: Builder, x: Any, index: Any, axis: int) -> Any:
    """Cut `x` to the sizes of the indices in all dimensions except `axis`."""
    axes = [n for n in range(x.ndim) if n != axis and x.shape[n] != index.shape[n] and index.shape[n] >= 0]
    if not axes:
        return x
    return b.f.slice(x, axes=axes, starts=[0] * len(axes), ends=[index.shape[n] for n in axes])


@imports("GatherND")
def gather_nd(b: Builder, node: OnnxNode) -> Any:
    x, index = node[0], node[1]
    batch = node.int("batch_dims", 0)
    depth = index.shape[-1]
    index = _each_from_start(b, x, index, batch, depth)
    if batch:
        index = _with_batch(b, index, batch)
    return b.f.gather_nd(x, index)


def _each_from_start(b: Builder, x: Any, index: Any, batch: int, depth: int) -> Any:
    """Convert the last dimension of `index`: negative indices of `depth` dimensions of x, after the first `batch` ones."""
    if depth < 0:
        raise FormatError("the last dimension of its indices should be known beforehand")
    sizes = x.shape[batch : batch + depth]
    if -1 in sizes:
        return _from_start(b, index, b.cast(b.slice(b.f.shape(x), 0, batch, batch + depth), index.dtype))
    return _from_start(b, index, b.variables(b.constant(np.array(sizes, index.dtype.numpy))))


def _with_batch(b: Builder, index: Any, batch: int) -> Any:
    """Prepend the indices of the first `batch` dimensions."""
    if -1 in index.shape[:-1]:
        raise FormatError("batch_dims is not supported with sizes known only at run time")
    shape = index.shape[:-1]
    b.reserve(batch, *shape, itemsize=16)
    places = [
        np.broadcast_to(np.arange(shape[n]).reshape([-1 if m == n else 1 for m in range(len(shape))]), shape)
        for n in range(batch)
    ]
    front = np.stack(places, -1).astype(index.dtype.numpy, copy=False)
    return b.f.concat([b.constant(front), index], axis=len(shape))


_REDUCTIONS = {"none": "assign", "add": "add", "mul": "mul", "max": "amax", "min": "amin"}


def _reduction(node: OnnxNode) -> str:
    """How `put_along_axis` combines values, by the attribute `reduction`."""
    how = node.string("reduction", "none")
    if how not in _REDUCTIONS:
        raise FormatError(f"its reduction {how!r} should be one of {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS[how]


@imports("Scatter", "ScatterElements")
def scatter_elements(b: Builder, node: OnnxNode) -> Any:
    x, updates = node[0], node[2]
    axis = node.int("axis", 0) % x.ndim
    index = _not_negative(b, node, 1, x, axis)
    how = _reduction(node)
    smaller_axes = [n for n in range(x.ndim) if n != axis and x.shape[n] != index.shape[n]]
    if smaller_axes:
        return _scattered_beside(b, x, index, updates, axis, how)
    return b.f.put_along_axis(x, index, updates, Axis=axis, Reduce=how)


def _scattered_beside(b: Builder, x: Any, index: Any, updates: Any, axis: int, how: str) -> Any:
    """Scatter indices that are smaller than the data in some dimensions; the data beyond them stay."""
    if -1 in (*x.shape, *index.shape):
        raise FormatError("indices of another shape than the data are not supported if sizes are known only at run time")
    axes = [n for n in range(x.ndim) if n != axis and x.shape[n] != index.shape[n]]
    part = b.f.slice(x, axes=axes, starts=[0] * len(axes), ends=[index.shape[n] for n in axes])
    part = b.f.put_along_axis(part, index, updates, Axis=axis, Reduce=how)
    return _reassembled(b, x, part, index.shape, axes)


def _reassembled(b: Builder, x: Any, inner: Any, size: Any, axes: list[int]) -> Any:
    """Replace the first elements of `x` along some axes by `inner`."""
    if not axes:
        return inner
    axis, remaining_axes = axes[0], axes[1:]
    head = b.slice(x, axis, 0, size[axis])
    return b.f.concat([_reassembled(b, head, inner, size, remaining_axes), b.slice(x, axis, size[axis], LAST)], axis=axis)


@imports("ScatterND")
def scatter_nd(b: Builder, node: OnnxNode) -> Any:
    x, index, updates = node[0], node[1], node[2]
    depth = index.shape[-1]
    index = _each_from_start(b, x, index, 0, depth)
    how = _reduction(node)
    if how == "add":
        return b.f.scatter_nd_add(x, index, updates)
    flat, new = b.f.flatten2(x, axis=depth), b.f.flatten2(updates, axis=index.ndim - 1)
    places = b.reduce("reduce_sum", b.f.elementwise_mul(index, _strides(b, x, index)), [index.ndim - 1], False)
    at = b.f.reshape2(places, shape=[-1])
    if how == "assign":
        out = b.f.scatter(flat, at, new, overwrite=True)
    else:
        out = b.f.put_along_axis(flat, b.f.expand_to(b.unsqueeze(at, [1]), new), new, Axis=0, Reduce=how)
    return b.f.reshape_like(out, x)


def _strides(b: Builder, x: Any, index: Any) -> Any:
    """For each of the leading dimensions of `x` that indices name: how many rows lie between neighbours along it."""
    depth, strides = index.shape[-1], [b.integer(1)]
    if -1 not in x.shape[1:depth]:
        rows = np.cumprod([1, *x.shape[1:depth][::-1]])[::-1]
        return b.constant(rows.astype(index.dtype.numpy))
    for axis in range(depth - 1, 0, -1):
        strides.insert(0, strides[0] * b.integer(b.size_of(x, axis)))
    return b.cast(b.f.concat(strides, axis=0), index.dtype)


@imports("Slice")
def slice_(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    if node.opset < 10:
        starts, ends = node.ints("starts"), node.ints("ends")
        axes, steps = node.ints("axes", list(range(len(starts)))), None
    else:
        starts, ends = node.numbers(1), node.numbers(2)
        if starts is None or ends is None:
            raise FormatError("not even the number of its starts is known beforehand")
        optional_input = node.constant_input(3, "its axes")
        axes = list(range(len(starts))) if optional_input is None else [int(axis) for axis in optional_input.reshape(-1)]
        optional_input = node.constant_input(4, "its steps")
        steps = None if optional_input is None else [int(step) for step in optional_input.reshape(-1)]
    axes = [axis % x.ndim for axis in axes]
    steps = steps or [1] * len(axes)
    if not len(axes) == len(starts) == len(ends) == len(steps):
        raise FormatError(f"it has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    if not axes:
        return x
    if all(isinstance(number, int) for number in (*starts, *ends)):
        return _sliced(b, x, axes, starts, ends, steps)
    if any(step != 1 for step in steps):
        raise FormatError("steps are not supported with bounds known only at run time")
    bounds = [[_bounded(number) for number in side] for side in (starts, ends)]
    lists = {
        "StartsTensorList": [b.number_variable(n) for n in bounds[0]],
        "EndsTensorList": [b.number_variable(n) for n in bounds[1]],
    }
    return b.f.slice(x, axes=axes, starts=[0] * len(axes), ends=[LAST] * len(axes), **lists)


def _bounded(number: Any) -> Any:
    return max(min(number, LAST), -LAST) if isinstance(number, int) else number


def _sliced(b: Builder, x: Any, axes: list[int], starts: list[int], ends: list[int], steps: list[int]) -> Any:
    first, last = [], []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = x.shape[axis]
        if size >= 0 and step != 0:
            start, end, _ = slice(start, end, step).indices(size)
            if step > 0:
                end = max(start, end)
            elif end < 0:
                end = -1  # none, for strided_slice
        elif step < 0:
            end = -1 if end < -LAST else end
        first.append(_bounded(start))
        last.append(_bounded(end))
    if all(step == 1 for step in steps):
        if all(start == 0 and end == x.shape[axis] for axis, start, end in zip(axes, first, last, strict=True)):
            return x
        return b.f.slice(x, axes=axes, starts=first, ends=last)
    return b.f.strided_slice(x, axes=axes, starts=first, ends=last, strides=steps)


@imports("OneHot", trains=False)
def one_hot(b: Builder, node: OnnxNode) -> Any:
    index = node[0]
    depth = int(np.reshape(node.constant_input(1, "its depth"), ()))
    values = node[2]
    axis = node.int("axis", -1)
    rank = index.ndim + 1
    axis = axis + rank if axis < 0 else axis
    indices = _from_start(b, b.cast(index, VarType.INT64), b.number(depth, VarType.INT64))
    column = b.f.unsqueeze2(indices, axes=[axis])
    b.reserve(depth)
    places = np.arange(depth, dtype=np.int64).reshape([depth if n == axis else 1 for n in range(rank)])
    hot = b.f.equal(column, b.constant(places))
    off, on = (b.f.slice(values, axes=[0], starts=[n], ends=[n + 1]) for n in (0, 1))
    return choose(b, hot, on, off)


@imports("Trilu")
def trilu(b: Builder, node: OnnxNode) -> Any:
    diagonal = node.constant_input(1, "its diagonal")
    x = node[0]
    k = max(min(0 if diagonal is None else int(np.reshape(diagonal, ())), LAST), -LAST)
    numbers = b.cast(x, VarType.INT32) if x.dtype is VarType.BOOL else x
    return b.cast(b.f.tril_triu(numbers, diagonal=k, lower=not node.int("upper", 1)), x.dtype)


@imports("NonZero", trains=False)
def non_zero(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    if not x.ndim:
        x = b.unsqueeze(x, [0])
    mask = x if x.dtype is VarType.BOOL else b.f.not_equal(x, b.number(0, x.dtype))
    return b.f.transpose2(b.f.where_index(mask), axis=[1, 0])


@imports("Compress")
def compress(b: Builder, node: OnnxNode) -> Any:
    x, condition = node[0], node[1]
    axis = node.int("axis", None)
    if axis is None:
        x, axis = b.f.reshape2(x, shape=[-1]), 0
    places = b.f.reshape2(b.f.where_index(condition), shape=[-1])
    return b.f.gather(x, places, axis=axis % x.ndim)


@imports("TopK")
def top_k(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    how: dict[str, Any] = {"axis": node.int("axis", -1), "largest": bool(node.int("largest", 1)), "sorted": True}
    k = node.int("k") if node.opset < 10 else node.array(1)
    values, places = b.f.top_k_v2(x, node[1], **how) if k is None else b.f.top_k_v2(x, k=int(np.reshape(k, ())), **how)
    return values, b.cast(places, VarType.INT64)


@imports("Unique", trains=False)
def unique(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axis = node.int("axis", None)
    attrs: dict[str, Any] = {"return_index": True, "return_inverse": True, "return_counts": True, "is_sorted": True}
    if axis is not None:
        attrs["axis"] = [axis % x.ndim]
    outputs = {slot: b.temporary() for slot in ("Out", "Indices", "Index", "Counts")}
    b.append("unique", {"X": x}, outputs, attrs)
    out, first, inverse, counts = outputs.values()
    if node.int("sorted", 1):
        return out, first, inverse, counts
    _, order = b.f.argsort(first, axis=0)  # by first place
    _, ranks = b.f.argsort(order, axis=0)
    place = 0 if axis is None else axis % x.ndim
    return (
        b.f.gather(out, order, axis=place),
        b.f.gather(first, order, axis=0),
        b.f.gather(ranks, inverse, axis=0),
        b.f.gather(counts, order, axis=0),
    )


@imports("ReverseSequence")
def reverse_sequence(b: Builder, node: OnnxNode) -> Any:
    return reversed_within(b, node[0], node[1], node.int("batch_axis", 1), node.int("time_axis", 0))


def reversed_within(b: Builder, x: Any, lengths: Any, batch: int = 1, time: int = 0) -> Any:
    """Reverse the steps of each sequence within its length; `batch` and `time` are axes."""
    rows = b.transpose(x, [batch, time, *(n for n in range(x.ndim) if n not in (batch, time))])
    steps = b.f.cumsum(b.f.fill_any_like(rows, value=1.0, dtype=int(VarType.INT64)), axis=1) - b.number(1, VarType.INT64)
    lengths = b.ones_like_axes(b.cast(lengths, VarType.INT64), 0, x.ndim - 1)
    back = lengths - b.number(1, VarType.INT64) - steps
    places = choose(b, b.f.less_than(steps, lengths), back, steps)
    out = b.f.take_along_axis(rows, places, Axis=1)
    order = [batch, time, *(n for n in range(x.ndim) if n not in (batch, time))]
    return b.transpose(out, [order.index(n) for n in range(x.ndim)])


@imports("TensorScatter")
def tensor_scatter(b: Builder, node: OnnxNode) -> Any:
    past, update = node[0], node[1]
    axis = node.int("axis", -2) % past.ndim
    if -1 in update.shape or past.shape[axis] < 0:
        raise FormatError("sizes known only at run time are not supported")
    b.reserve(update.shape[axis])
    steps = np.arange(update.shape[axis], dtype=np.int64).reshape([-1 if n == axis else 1 for n in range(past.ndim)])
    places: Any = b.variables(b.constant(steps))
    if node.value(2) is not None:
        places = places + b.ones_like_axes(b.cast(node[2], VarType.INT64), 0, past.ndim - 1)
    if node.string("mode", "linear") == "circular":
        places = b.f.elementwise_mod(places, b.number(past.shape[axis], VarType.INT64))
    places = b.f.expand_v2(places, shape=list(update.shape))
    return b.f.put_along_axis(past, places, update, Axis=axis, Reduce="assign")
