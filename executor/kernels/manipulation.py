"""Kernels of `fluid.ops.manipulation`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from fluid.errors import ExecutionError, IndexRangeError, InferenceError
from fluid.ops.manipulation import PAD_MODES, all_paddings, cut_sizes, expanded, joined, reshaped
from fluid.ops.shapes import normalize_axis, slice_of
from fluid.values.selected_rows import add_rows_at
from fluid.values.types import as_dtype

from .portable import copy, values_in_order
from .sums import sum_over
from .table import SPARSE_CHECKS, Call, OutArray, Slots, checked, fill, kernel, prepared


def write_wanted(*pairs: tuple[Any, Any]) -> None:
    """Write values into the wanted outputs."""
    for out, value in pairs:
        if out is not None:
            out[...] = value


def numbers(tensor: Any, tensors: Sequence[Any] | None, otherwise: Sequence[int]) -> list[int]:
    """A list of integers that is a tensor, many tensors of one element, or else an attribute."""
    if tensors:
        return [int(item.reshape(-1)[0]) for item in tensors]
    return [int(item) for item in tensor.reshape(-1)] if tensor is not None else list(otherwise)


def flattened(array: Any, axis: int) -> Any:
    """`array` with the dimensions from `axis` on as one; a -1 would not do that for empty arrays."""
    return array.reshape(*array.shape[:axis], prod(array.shape[axis:]))


def check_ids(ids: Any, extent: int, label: str) -> None:
    """An `IndexRangeError` if an id is outside of [0, extent)."""
    if not ids.size:
        return
    bits = 8 * ids.itemsize - 1
    is_plain = ids.dtype.kind == "i" and extent < 1 << bits
    if not is_plain or int(ids.view(f"u{ids.itemsize}").max()) >= extent:  # as unsigned, a negative id is too great
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= extent:
            raise IndexRangeError(f"{label}: index {low if low < 0 else high} is outside of [0, {extent})")


def ranges(xp: Any, rows: int, width: int, elements: int = 1 << 15) -> list[tuple[int, int]]:
    """Bounds of parts of `rows` rows with about `elements` elements each, which fit a near cache. Only numpy's arrays are split;
    others are one part."""
    step = max(1, elements // max(width, 1) if xp.__name__ == "numpy" else rows)
    return [(start, min(start + step, rows)) for start in range(0, rows, step)]


def take(xp: Any, array: Any, ids: Any, axis: int, out: Any) -> None:
    """``array.take(ids, axis)`` into `out`, of checked ids."""
    if xp.__name__ == "numpy":
        array.take(ids, axis, out, "clip")  # "raise" would go through a buffer
    else:
        array.take(ids, axis, out)


# ----------------------------------------------------------------------------------------------------------- reshaping
@prepared(
    "reshape_like",
    "unreshape",
    "squeeze2",
    "squeeze",
    "unsqueeze",
    "flatten2",
    "flatten",
    "flatten_contiguous_range",
    inplace={"Out": "X"},
)
def reshape(xp: Any, X: Any, Out: Any) -> list[Call]:
    return copy(xp, X, Out)


def _reshape_to(X: Any, Shape: Any, ShapeTensor: Any, shape: list[int]) -> Any:
    if ShapeTensor and len(shape) == len(ShapeTensor):
        sizes = [s if s > 0 else n for s, n in zip(shape, numbers(None, ShapeTensor, ()), strict=True)]
    else:
        sizes = numbers(Shape, ShapeTensor, shape)
    return X.reshape(reshaped(X.shape, sizes)).copy()


@prepared("reshape2", "reshape", inplace={"Out": "X"})
def reshape2(xp: Any, X: Any, Shape: Any, ShapeTensor: Any, shape: list[int], Out: Any) -> list[Call]:
    if Out is None:
        return [partial(_reshape_to, X, Shape, ShapeTensor, shape)]
    return copy(xp, X, Out)


def _insert_axes(xp: Any, X: Any, AxesTensor: Any, AxesTensorList: Any, axes: list[int]) -> Any:
    for axis in numbers(AxesTensor, AxesTensorList, axes):
        X = xp.expand_dims(X, normalize_axis(axis, X.ndim + 1))
    return X.copy()


@prepared("unsqueeze2", inplace={"Out": "X"})
def unsqueeze2(xp: Any, X: Any, AxesTensor: Any, AxesTensorList: Any, axes: list[int], Out: Any) -> list[Call]:
    if Out is None:
        return [partial(_insert_axes, xp, X, AxesTensor, AxesTensorList, axes)]
    return copy(xp, X, Out)


@prepared(
    "reshape2_grad",
    "reshape_grad",
    "squeeze2_grad",
    "squeeze_grad",
    "unsqueeze2_grad",
    "unsqueeze_grad",
    "flatten2_grad",
    "flatten_grad",
    "flatten_contiguous_range_grad",
    inplace={"dX": "dOut"},
)
def reshape_grad(xp: Any, dOut: Any, dX: Any) -> list[Call]:
    return copy(xp, dOut, dX)


@prepared("transpose2", "transpose")
def transpose2(xp: Any, X: Any, axis: list[int], Out: Any) -> Call:
    return partial(xp.copyto, Out, X.transpose(axis))


# -------------------------------------------------------------------------------------------------- joining and cutting
def _parts(array: Any, extents: list[int], axis: int) -> list[Any]:
    parts, start = [], 0
    for extent in extents:
        parts.append(array[(slice(None),) * (axis % array.ndim) + (slice(start, start + extent),)])
        start += extent
    return parts


def _join_at_run(xp: Any, X: list[Any], axis: Any, out: OutArray) -> Any:
    axis = numbers(axis, None, ())[0]
    shape = joined([x.shape for x in X], axis)
    if out is not None:
        _check_parts(X, shape, out.shape, axis)
    return xp.concatenate(X, axis, out)


def _check_parts(parts: list[Any], shape: tuple[int, ...], expected: tuple[int, ...], axis: int) -> None:
    if tuple(shape) != tuple(expected):
        shapes = ", ".join(str(list(part.shape)) for part in parts)
        raise InferenceError(f"parts {shapes}, joined along axis {axis}, give {list(shape)} instead of {list(expected)}")


@prepared("concat")
def concat(xp: Any, X: list[Any], AxisTensor: Any, axis: int, Out: Any) -> Call:
    if Out is None:
        return partial(_join_at_run, xp, X, AxisTensor, None)
    return partial(xp.concatenate, X, axis, Out)


def _cut(xp: Any, X: Any, likes: list[Any], axis: int, Out: list[Any]) -> list[Call]:
    parts = _parts(X, [like.shape[axis] for like in likes], axis)
    return [partial(xp.copyto, out, part) for out, part in zip(Out, parts, strict=True) if out is not None]


def _cut_along(xp: Any, X: Any, likes: list[Any], AxisTensor: Any, axis: int, Out: list[Any]) -> list[Call]:
    if AxisTensor is None:
        return _cut(xp, X, likes, axis, Out)
    return [partial(_cut_at_run, xp, X, likes, AxisTensor, Out)]


def _cut_at_run(xp: Any, X: Any, likes: list[Any], axis: Any, out: list[OutArray]) -> None:
    axis = numbers(axis, None, ())[0]
    _check_parts(likes, joined([like.shape for like in likes], axis), X.shape, axis)
    for call in _cut(xp, X, likes, axis, out):
        call()


@prepared("concat_like")
def concat_like(xp: Any, X: list[Any], AxisTensor: Any, Out: Any) -> Call:
    return partial(_join_at_run, xp, X, AxisTensor, Out)


@prepared("split_like")
def split_like(xp: Any, X: Any, Like: list[Any], AxisTensor: Any, axis: int, Out: list[Any]) -> list[Call]:
    return _cut_along(xp, X, Like, AxisTensor, axis, Out)


def _split_at_run(X: Any, AxisTensor: Any, SectionsTensorList: Any, axis: int, sections: list[int], Out: list[Any]) -> Any:
    axis = normalize_axis(numbers(AxisTensor, None, [axis])[0], X.ndim)
    extents = cut_sizes(X.shape, axis, len(Out), numbers(None, SectionsTensorList, sections))
    return ([part.copy() for part in _parts(X, extents, axis)],)


@prepared("split")
def split(
    xp: Any, X: Any, AxisTensor: Any, SectionsTensorList: Any, axis: int, sections: list[int], num: int, Out: list[Any]
) -> list[Call]:
    if AxisTensor is not None or SectionsTensorList:
        return [partial(_split_at_run, X, AxisTensor, SectionsTensorList, axis, [] if num else sections, Out)]
    extent = X.shape[axis]
    extents = list(sections) if sections and not num else [extent // len(Out)] * len(Out)
    if -1 in extents:
        extents[extents.index(-1)] = extent - sum(extents) - 1
    return [partial(xp.copyto, out, part) for out, part in zip(Out, _parts(X, extents, axis), strict=True) if out is not None]


def _faces(xp: Any, array: Any, axis: int) -> list[Any]:
    """Views of the parts along `axis`; of shape [] too, where iterating would copy."""
    moved = xp.moveaxis(array, axis, 0)
    return [moved[i, ...] for i in range(len(moved))]


@prepared("stack")
def stack(xp: Any, X: list[Any], axis: int, Y: Any) -> list[Call]:
    return [partial(xp.copyto, part, x) for part, x in zip(_faces(xp, Y, axis), X, strict=True)]


def _unstack(xp: Any, X: Any, axis: int, Y: list[Any]) -> list[Call]:
    return [partial(xp.copyto, out, part) for out, part in zip(Y, _faces(xp, X, axis), strict=True) if out is not None]


@prepared("unstack")
def unstack(xp: Any, X: Any, axis: int, Y: list[Any]) -> list[Call]:
    return _unstack(xp, X, axis, Y)


def _bounds(inputs: Slots, attrs: Slots) -> tuple[Slots, bool]:
    """The bounds of a slice, and whether they are known only at run time: attributes, or tensors in slots that replace them."""
    tensors = {slot: value for slot, value in inputs.items() if "Tensor" in slot and value is not None and len(value)}
    return {**attrs, **tensors}, bool(tensors)


def _bound_numbers(bounds: Slots, name: str) -> list[int]:
    slot = name.capitalize() + "Tensor"
    return numbers(bounds.get(slot), bounds.get(slot + "List"), bounds.get(name, ()))


def _part(array: Any, bounds: Slots) -> Any:
    """The part of `array` that a slice takes, with all axes."""
    index = [slice(None)] * array.ndim
    axes, starts, ends = bounds["axes"], _bound_numbers(bounds, "starts"), _bound_numbers(bounds, "ends")
    strides = _bound_numbers(bounds, "strides") or [1] * len(axes)
    if 0 in strides:
        raise ExecutionError(f"slice: strides {strides} should not be 0")
    for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True):
        # The last element, where its index is in a tensor, and so is the next one, 0.
        index[axis] = (
            slice_of(start, end, stride) if (start, end) != (-1, 0) or axis not in bounds["decrease_axis"] else slice(-1, None)
        )
    return array[(*index, ...)]


def _take_at_run(source: Any, bounds: Slots) -> Any:
    return _part(source, bounds).squeeze(tuple(bounds["decrease_axis"])).copy()


def _copy_at_run(xp: Any, source: Any, bounds: Slots, out: OutArray) -> None:
    xp.copyto(out, _part(source, bounds).reshape(out.shape))


def _put_back_at_run(xp: Any, source: Any, bounds: Slots, out: OutArray) -> None:
    part = _part(out, bounds)
    xp.copyto(part, source.reshape(part.shape))


def _take(xp: Any, source: Any, inputs: Slots, attrs: Slots, out: Any) -> Call:
    """The call that gives the part of an array that a slice takes."""
    bounds, at_run = _bounds(inputs, attrs)
    if out is None:
        return partial(_take_at_run, source, bounds)
    if at_run:
        return partial(_copy_at_run, xp, source, bounds, out)
    part = _part(source, bounds)
    return partial(xp.copyto, out, part.reshape(out.shape) if bounds["decrease_axis"] else part)


def _put_back(xp: Any, source: Any, inputs: Slots, attrs: Slots, out: Any) -> list[Call]:
    """Calls for the transpose of `_take`."""
    bounds, at_run = _bounds(inputs, attrs)
    if at_run:
        return [fill(xp, out, 0), partial(_put_back_at_run, xp, source, bounds, out)]
    part = _part(out, bounds)
    return [fill(xp, out, 0), partial(xp.copyto, part, source.reshape(part.shape))]


@prepared("slice", "strided_slice")
def slice_(xp: Any, Input: Any, inputs: Slots, attrs: Slots, Out: Any) -> Call:
    return _take(xp, Input, inputs, attrs, Out)


@prepared("slice_like", "strided_slice_like")
def slice_like(xp: Any, X: Any, inputs: Slots, attrs: Slots, Out: Any) -> Call:
    return _take(xp, X, inputs, attrs, Out)


@prepared("unslice", "strided_unslice")
def unslice(xp: Any, X: Any, inputs: Slots, attrs: Slots, Out: Any) -> list[Call]:
    return _put_back(xp, X, inputs, attrs, Out)


@prepared("flip", "reverse")
def flip(xp: Any, X: Any, axis: list[int], Out: Any) -> Call:
    return partial(xp.copyto, Out, xp.flip(X, tuple(axis)))


# ------------------------------------------------------------------------------------------------------------ indexing
@checked("gather")
def check_gather(X: Any, Index: Any, Axis: Any, axis: int) -> None:
    check_ids(Index, X.shape[numbers(Axis, None, [axis])[0]], "gather")


@checked("gather_like")
def check_gather_like(X: Any, Index: Any, Axis: Any) -> None:
    check_gather(X, Index, Axis, 0)


@checked("index_select")
def check_index_select(X: Any, Index: Any, dim: int) -> None:
    check_gather(X, Index, None, dim)


@kernel("gather")
def gather(xp: Any, X: Any, Index: Any, Axis: Any, axis: int, Out: Any) -> Any:
    axis = numbers(Axis, None, [axis])[0]
    ids = Index.reshape(-1) if Index.ndim else Index
    if Out is None:
        return X.take(ids, axis)
    take(xp, X, ids, axis, Out)
    return None


@kernel("gather_like")
def gather_like(xp: Any, X: Any, Index: Any, Axis: Any, Out: Any) -> None:
    gather(xp, X, Index, Axis, 0, Out)


@checked("scatter_add_like")
def check_scatter_add_like(Index: Any, Axis: Any, axis: int, Out: Any) -> None:
    check_ids(Index, Out.shape[numbers(Axis, None, [axis])[0]], "the gradient of gather")


@checked("gather_grad")
def check_gather_grad(Index: Any, Axis: Any, axis: int, dX: Any) -> None:
    check_scatter_add_like(Index, Axis, axis, dX)


@kernel("scatter_add_like")
def scatter_add_like(xp: Any, X: Any, Index: Any, Axis: Any, axis: int, Out: Any) -> None:
    axis = numbers(Axis, None, [axis])[0]
    rows = X if Index.ndim else xp.expand_dims(X, axis)
    Out.fill(0)
    add_rows_at(xp, xp.moveaxis(rows, axis, 0), Index.reshape(-1), xp.moveaxis(Out, axis, 0))


@checked("scatter")
def check_scatter(X: Any, Ids: Any) -> None:
    check_ids(Ids, len(X), "scatter")


@kernel("scatter")
def scatter(xp: Any, X: Any, Ids: Any, Updates: Any, overwrite: bool, Out: Any) -> None:
    ids = Ids.reshape(-1)
    xp.copyto(Out, X)
    if overwrite:
        Out[ids] = values_in_order(xp, Out, (ids,), Updates)
    else:
        Out[ids] = 0
        add_rows_at(xp, Updates, ids, Out)


@checked("gather_nd", "scatter_nd_add")
def check_nd_index(xp: Any, X: Any, Index: Any) -> None:
    for ids, extent in zip(_nd_index(xp, Index), X.shape, strict=False):
        check_ids(ids, extent, "gather_nd or scatter_nd_add")


def _nd_index(xp: Any, Index: Any) -> tuple[Any, ...]:
    return tuple(xp.moveaxis(Index, -1, 0))


@kernel("gather_nd")
def gather_nd(xp: Any, X: Any, Index: Any, Out: Any) -> None:
    xp.copyto(Out, X[_nd_index(xp, Index)] if Index.shape[-1] else X)  # without indices, copy all of X to each position


@kernel("scatter_nd_add")
def scatter_nd_add(xp: Any, X: Any, Index: Any, Updates: Any, Out: Any) -> None:
    xp.copyto(Out, X)
    if Index.shape[-1]:
        xp.add.at(Out, _nd_index(xp, Index), Updates)
    else:  # each update has the shape of X
        Out += Updates.sum(tuple(range(Index.ndim - 1)))


@checked("lookup_table_v2", "lookup_table")
def check_lookup_table(xp: Any, W: Any, Ids: Any, padding_idx: int) -> None:
    check_ids(Ids if padding_idx == -1 else xp.where(Ids == padding_idx, 0, Ids), len(W), "the table's rows")


@checked("lookup_table_v2", "lookup_table", table=SPARSE_CHECKS)
def check_lookup_table_of_rows(xp: Any, W: Any, Ids: Any, padding_idx: int) -> None:
    W.places(xp, Ids if padding_idx == -1 else Ids[Ids != padding_idx])


@kernel("lookup_table_v2", "lookup_table")
def lookup_table(xp: Any, W: Any, Ids: Any, padding_idx: int, Out: Any) -> None:
    ids = Ids.reshape(-1)
    rows = Out.reshape(ids.size, W.shape[1])
    if padding_idx == -1:
        take(xp, W, ids, 0, rows)
        return
    padded = ids == padding_idx
    take(xp, W, xp.where(padded, 0, ids), 0, rows)
    rows[padded] = 0


@checked("scatter_rows_like")
def check_scatter_rows_like(Ids: Any, padding_idx: int, Out: Any) -> None:
    check_ids(Ids if padding_idx == -1 else Ids[Ids != padding_idx], len(Out), "the table's rows")


@checked("lookup_table_v2_grad", "lookup_table_grad")
@checked("lookup_table_v2_grad", "lookup_table_grad", table=SPARSE_CHECKS)
def check_lookup_table_grad(W: Any, Ids: Any, padding_idx: int) -> None:
    check_scatter_rows_like(Ids, padding_idx, W)


@kernel("scatter_rows_like")
def scatter_rows_like(xp: Any, X: Any, Ids: Any, padding_idx: int, Out: Any) -> None:
    ids = Ids.reshape(-1)
    rows = X.reshape(ids.size, Out.shape[1])
    Out.fill(0)
    if padding_idx != -1:  # zeros are added to the first row
        ids, is_counted = kept_ids(xp, ids, padding_idx)
        rows = xp.where(is_counted[:, None], rows, rows.dtype.type(0))
    add_rows_at(xp, rows, ids, Out)


def check_kept_ids(xp: Any, ids: Any, ignore_index: int, extent: int) -> None:
    """An `IndexRangeError` if an index that is not ignored is outside of [0, extent)."""
    if not ids.size:
        return
    if xp.__name__ != "numpy":  # each look at a number waits for the device
        return check_ids(xp.where(ids == ignore_index, 0, ids), extent, "an index or label")
    low, high = int(ids.min()), int(ids.max())
    if low <= ignore_index <= high:
        check_ids(xp.where(ids == ignore_index, 0, ids), extent, "an index or label")
    elif low < 0 or high >= extent:
        raise IndexRangeError(f"an index or label: {low if low < 0 else high} is outside of [0, {extent})")


def kept_ids(xp: Any, ids: Any, ignore_index: int) -> tuple[Any, Any]:
    """Indices with ignored ones replaced by 0, and the mask of indices that are not ignored."""
    is_counted = ids != ignore_index
    return xp.where(is_counted, ids, 0), is_counted


@checked("pick")
def check_pick(xp: Any, X: Any, Index: Any, axis: int, ignore_index: int) -> None:
    check_kept_ids(xp, Index, ignore_index, X.shape[axis])


@kernel("pick")
def pick(xp: Any, X: Any, Index: Any, axis: int, ignore_index: int, default: float, Out: Any) -> None:
    ids, is_counted = kept_ids(xp, Index, ignore_index)
    picked = xp.take_along_axis(X, ids, axis)
    xp.copyto(Out, xp.where(is_counted, picked, X.dtype.type(default)))


def place_into(xp: Any, X: Any, Index: Any, axis: int, ignore_index: int, out: OutArray) -> None:
    """Adds X to zeros in `out` at the indices along `axis`."""
    ids, is_counted = kept_ids(xp, Index, ignore_index)
    out.fill(0)
    X = xp.where(is_counted, X, X.dtype.type(0))
    axis %= out.ndim
    if ids.shape[axis] == 1:
        xp.put_along_axis(out, ids, X, axis)  # one index each: none can come twice
        return
    before, extent, behind = prod(out.shape[:axis]), out.shape[axis], prod(out.shape[axis + 1 :])
    places = ids.reshape(before, ids.shape[axis], behind) + xp.arange(before).reshape(-1, 1, 1) * extent
    xp.add.at(out.reshape(-1), (places * behind + xp.arange(behind)).reshape(-1), X.reshape(-1))  # at once, where flat


@checked("place")
def check_place(xp: Any, Index: Any, axis: int, ignore_index: int, Out: Any) -> None:
    check_kept_ids(xp, Index, ignore_index, Out.shape[axis])


@kernel("place")
def place(xp: Any, X: Any, Index: Any, axis: int, ignore_index: int, Out: Any) -> None:
    place_into(xp, X, Index, axis, ignore_index, Out)


@checked("one_hot", "one_hot_v2")
def check_one_hot(X: Any, depth_tensor: Any, depth: int, allow_out_of_range: bool) -> None:
    if not allow_out_of_range:
        check_ids(X, numbers(depth_tensor, None, [depth])[0], "one_hot")


def _one_hot(xp: Any, ids: Any, depth_tensor: Any, depth: int, dtype: int, prefix: Any, out: Any) -> Any:
    depth = numbers(depth_tensor, None, [depth])[0]
    if out is None:
        out = xp.empty((*prefix, depth), as_dtype(dtype).numpy)
    xp.equal(ids[..., None] if out.ndim > ids.ndim else ids, xp.arange(depth), out=out, casting="unsafe")
    return out


@kernel("one_hot")
def one_hot(xp: Any, X: Any, depth_tensor: Any, depth: int, dtype: int, Out: Any) -> Any:
    return _one_hot(xp, X, depth_tensor, depth, dtype, X.shape[:-1], Out)


@kernel("one_hot_v2")
def one_hot_v2(xp: Any, X: Any, depth_tensor: Any, depth: int, dtype: int, Out: Any) -> Any:
    return _one_hot(xp, X, depth_tensor, depth, dtype, X.shape, Out)


# ----------------------------------------------------------------------------------------------------------- repeating
@prepared("expand_v2")
def expand_v2(xp: Any, X: Any, Shape: Any, expand_shapes_tensor: Any, shape: list[int], Out: Any) -> Call:
    if Out is not None:
        return partial(xp.copyto, Out, X)
    return partial(_expand_at_run, xp, X, Shape, expand_shapes_tensor, shape)


def _expand_at_run(xp: Any, X: Any, tensor: Any, tensors: Any, shape: list[int]) -> Any:
    wanted = numbers(tensor, tensors, shape)
    return xp.broadcast_to(X, expanded(X.shape, wanted)).copy()


@prepared("expand_as")
def expand_as(xp: Any, X: Any, Out: Any) -> Call:
    return _tile(xp, X, None, None, [], Out)


@prepared("expand_as_v2")
def expand_as_v2(xp: Any, X: Any, Out: Any) -> Call:
    return partial(xp.copyto, Out, X)


def _tiled_views(X: Any, Out: Any) -> tuple[Any, Any]:
    """Views of both, of shapes [1, d0, 1, d1, ...] and [r0, d0, r1, d1, ...]."""
    extents = (1,) * (Out.ndim - X.ndim) + X.shape
    pairs = zip(Out.shape, extents, strict=True)
    repeated = [n for out, extent in pairs for n in ((out // extent if extent else 0), extent)]
    return X.reshape([n for extent in extents for n in (1, extent)]), Out.reshape(repeated)


def _tile(xp: Any, X: Any, tensor: Any, tensors: Any, times: list[int], Out: Any) -> Call:
    if Out is None:
        return partial(_tile_at_run, xp, X, tensor, tensors, times)
    source, target = _tiled_views(X, Out)
    return partial(xp.copyto, target, source)


def _tile_at_run(xp: Any, X: Any, tensor: Any, tensors: Any, times: list[int]) -> Any:
    return xp.tile(X, numbers(tensor, tensors, times))


@prepared("tile")
def tile(xp: Any, X: Any, RepeatTimes: Any, repeat_times_tensor: Any, repeat_times: list[int], Out: Any) -> Call:
    return _tile(xp, X, RepeatTimes, repeat_times_tensor, repeat_times, Out)


@prepared("expand")
def expand(xp: Any, X: Any, ExpandTimes: Any, expand_times_tensor: Any, expand_times: list[int], Out: Any) -> Call:
    return _tile(xp, X, ExpandTimes, expand_times_tensor, expand_times, Out)


@prepared("tile_like")
def tile_like(xp: Any, X: Any, Out: Any) -> Call:
    return _tile(xp, X, None, None, [], Out)


@prepared("untile")
def untile(xp: Any, scratch: Any, X: Any, Out: Any) -> list[Call]:
    _, source = _tiled_views(Out, X)
    return sum_over(xp, source, range(0, source.ndim, 2), Out, scratch)


# --------------------------------------------------------------------------------------------------- triangles, diagonals
@prepared("diag")
def diag(Diagonal: Any, Out: Any, xp: Any) -> list[Call]:
    return [fill(xp, Out, 0), partial(xp.copyto, Out.reshape(-1)[:: len(Out) + 1], Diagonal)]


@prepared("meshgrid")
def meshgrid(xp: Any, X: list[Any], Out: list[Any]) -> list[Call]:
    def along(axis: int, vector: Any) -> Any:
        return vector.reshape([-1 if place == axis else 1 for place in range(len(X))])

    return [partial(xp.copyto, out, along(i, x)) for i, (x, out) in enumerate(zip(X, Out, strict=True)) if out is not None]


@kernel("tril_triu")
def tril_triu(xp: Any, X: Any, diagonal: int, lower: bool, Out: Any) -> None:
    xp.copyto(Out, (xp.tril if lower else xp.triu)(X, diagonal))


def _on_diagonal(xp: Any, X: Any, offset: int, axis1: int, axis2: int, out: Any) -> None:
    """Writes X to the diagonals of `out`."""
    matrices = xp.moveaxis(out, (axis1, axis2), (-2, -1))
    row, column = max(-offset, 0), max(offset, 0)
    places = xp.arange(max(0, min(matrices.shape[-2] - row, matrices.shape[-1] - column)))
    matrices[..., places + row, places + column] = X


@prepared("diagonal")
def diagonal(xp: Any, Input: Any, offset: int, axis1: int, axis2: int, Out: Any) -> Call:
    return partial(xp.copyto, Out, xp.diagonal(Input, offset, axis1, axis2))


@kernel("undiagonal")
def undiagonal(xp: Any, X: Any, offset: int, axis1: int, axis2: int, Out: Any) -> None:
    Out.fill(0)
    _on_diagonal(xp, X, offset, axis1, axis2, Out)


@kernel("diag_v2")
def diag_v2(xp: Any, X: Any, offset: int, padding_value: float, Out: Any) -> None:
    if X.ndim == 2:
        xp.copyto(Out, xp.diagonal(X, offset))
        return
    Out.fill(padding_value)
    _on_diagonal(xp, X, offset, 0, 1, Out)


# ----------------------------------------------------------------------------------------------- rolling, choosing, parting
@kernel("roll")
def roll(xp: Any, X: Any, ShiftsTensor: Any, shifts: list[int], axis: list[int], Out: Any) -> None:
    by = numbers(ShiftsTensor, None, shifts)
    xp.copyto(Out, xp.roll(X, tuple(by), tuple(axis)) if axis else xp.roll(X, sum(by)))


@prepared("unbind")
def unbind(xp: Any, X: Any, axis: int, Out: list[Any]) -> list[Call]:
    return _unstack(xp, X, axis, Out)


# ------------------------------------------------------------------------------------------------------------- padding
def _pad(xp: Any, X: Any, paddings: list[int], mode: str, value: float, out: Any) -> list[Call]:
    if mode != "constant":
        widths = list(zip(paddings[::2], paddings[1::2], strict=True))
        return [partial(_pad_by_itself, xp, X, widths, mode, out)]
    inner = out[(*(slice(low, low + extent) for low, extent in zip(paddings[::2], X.shape, strict=True)), ...)]
    return [fill(xp, out, value), partial(xp.copyto, inner, X)]


def _pad_by_itself(xp: Any, X: Any, widths: list[tuple[int, int]], mode: str, out: OutArray) -> None:
    xp.copyto(out, xp.pad(X, widths, mode))


@prepared("pad")
def pad(xp: Any, X: Any, paddings: list[int], pad_value: float, Out: Any) -> list[Call]:
    return _pad(xp, X, paddings, "constant", pad_value, Out)


@prepared("pad2d")
def pad2d(
    xp: Any, X: Any, Paddings: Any, paddings: list[int], mode: str, pad_value: float, data_format: str, Out: Any
) -> list[Call]:
    if Paddings is not None:
        return [partial(_pad_at_run, xp, X, Paddings, data_format, PAD_MODES[mode], pad_value, Out)]
    return _pad(xp, X, all_paddings(paddings, data_format, False), PAD_MODES[mode], pad_value, Out)


def _pad_at_run(xp: Any, X: Any, Paddings: Any, data_format: str, mode: str, value: float, out: OutArray) -> Any:
    paddings = all_paddings(numbers(Paddings, None, []), data_format, False)
    if min(paddings) < 0:
        raise ExecutionError(f"pad2d: Paddings {numbers(Paddings, None, [])} should not be below 0")
    widths = list(zip(paddings[::2], paddings[1::2], strict=True))
    padded = xp.pad(X, widths, mode, **({"constant_values": value} if mode == "constant" else {}))
    return padded if out is None else xp.copyto(out, padded)


@prepared("pad3d")
def pad3d(xp: Any, X: Any, paddings: list[int], mode: str, value: float, data_format: str, Out: Any) -> list[Call]:
    return _pad(xp, X, all_paddings(paddings, data_format, True), PAD_MODES[mode], value, Out)


@prepared("pad_by")
def pad_by(xp: Any, X: Any, Paddings: Any, paddings: list[int], mode: str, data_format: str, Out: Any) -> list[Call]:
    if Paddings is not None:
        return [partial(_pad_at_run, xp, X, Paddings, data_format, mode, 0.0, Out)]
    return _pad(xp, X, paddings, mode, 0.0, Out)


@kernel("unpad_by")
def unpad_by(xp: Any, X: Any, Paddings: Any, paddings: list[int], mode: str, data_format: str, Out: Any) -> None:
    if Paddings is not None:
        paddings = all_paddings(numbers(Paddings, None, []), data_format, False)
    if mode == "constant":
        starts = (slice(low, low + extent) for low, extent in zip(paddings[::2], Out.shape, strict=True))
        xp.copyto(Out, X[tuple(starts)])
        return
    for axis, extent in enumerate(Out.shape):
        low, high = paddings[2 * axis : 2 * axis + 2]
        if low or high:
            folded = xp.zeros((*X.shape[:axis], extent, *X.shape[axis + 1 :]), X.dtype)
            sources = xp.pad(xp.arange(extent), (low, high), mode)
            xp.add.at(xp.moveaxis(folded, axis, 0), sources, xp.moveaxis(X, axis, 0))
            X = folded
    xp.copyto(Out, X)
