"""Lowers ops that move elements: slice, concatenate, pad, tile, gather."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from itertools import product as combinations
from math import prod
from typing import Any

from fluid.ops.manipulation import PAD_MODES, all_paddings, cut_sizes
from fluid.ops.selection import REDUCTIONS
from fluid.ops.shapes import slice_of

from .emitter import BOOL, INT32, INT64
from .graph import (
    ChannelsFirst,
    GraphNode,
    Position,
    Rows,
    Scattered,
    View,
    assembled,
    broadcast_to,
    channels_first,
    channels_last,
    constant,
    joined,
    mapped,
    places_of_channels_last,
    plain,
    reduced,
    reshaped,
    sliced,
    summed,
)
from .lowering import GraphTensor, NotLowered, lowers, number_like, only_floats, only_numbers


def _none(*tensors: Any) -> None:
    """Raise `NotLowered` if tensors are given in place of attributes."""
    if any(tensors):
        raise NotLowered("bounds or numbers in tensors")


def _none_but(inputs: Mapping[str, Any], *slots: str) -> None:
    """Like `_none`, for all inputs except the given slots."""
    _none(*(value for slot, value in inputs.items() if slot not in slots))


# ------------------------------------------------------------------------------------------------------------ cut, joined
def _cut(node: GraphNode, axis: int, places: range) -> GraphNode:
    """A view of a range of elements along an axis."""
    if isinstance(node, ChannelsFirst):
        inner = mapped(
            "copy", sliced(node.source, places_of_channels_last(node.ndim)[axis], places.start, len(places), places.step)
        )
        return channels_first(inner)
    return sliced(node, axis, places.start, len(places), places.step)


def _joined(nodes: Sequence[GraphNode], axis: int) -> GraphNode:
    """Concatenate tensors along an axis; if any of them are images with channels last, the result is, too."""
    if len({node.element for node in nodes}) > 1:
        raise NotLowered("tensors of several element types")
    if any(isinstance(node, ChannelsFirst) for node in nodes):
        place = places_of_channels_last(nodes[0].ndim)[axis]
        return channels_first(joined([channels_last(node) for node in nodes], place))
    return joined(nodes, axis)


def slices_of(shape: Sequence[int], inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> list[tuple[int, range]]:
    """(axis, places that the slice selects) for each sliced axis."""
    _none_but(inputs, "Input", "X", "Like")
    axes = attrs["axes"]
    strides = attrs.get("strides") or [1] * len(axes)
    return [
        (axis % len(shape), range(*slice_of(start, end, stride).indices(shape[axis])))
        for axis, start, end, stride in zip(axes, attrs["starts"], attrs["ends"], strides, strict=True)
    ]


@lowers("slice", "strided_slice")
def slice_(Input: GraphTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: dict[str, Any]) -> GraphTensor:
    node = Input.node
    for axis, places in slices_of(Input.shape, inputs, attrs):
        node = _cut(node, axis, places)
    return GraphTensor(mapped("copy", reshaped(node, specs["Out"].shape)))


@lowers("slice_like", "strided_slice_like")
def slice_like(X: GraphTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: dict[str, Any]) -> GraphTensor:
    return slice_(X, inputs, attrs, specs)


@lowers("unslice", "strided_unslice")
def unslice(X: GraphTensor, Like: GraphTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> GraphTensor:
    cuts = slices_of(Like.shape, inputs, attrs)
    if any(places.step < 0 for _, places in cuts):
        raise NotLowered("elements in the other direction")
    shape, pads = list(Like.shape), [(0, 0)] * Like.ndim
    for axis, places in cuts:
        shape[axis] = len(places)
    node = reshaped(X.node, tuple(shape))
    for axis, places in cuts:
        node = apart(node, axis, places.step)
        pads[axis] = places.start, Like.shape[axis] - places.start - node.shape[axis]
    return GraphTensor(padded(node, pads, 0.0))


def apart(node: GraphNode, axis: int, step: int) -> GraphNode:
    """Insert zeros between the elements along an axis, so that the elements lie `step` apart."""
    count = node.shape[axis]
    if step == 1 or not count:
        return node
    split = reshaped(node, (*node.shape[: axis + 1], 1, *node.shape[axis + 1 :]))
    spread = padded(split, [(0, step - 1) if place == axis + 1 else (0, 0) for place in range(split.ndim)], 0.0)
    spread = reshaped(spread, (*node.shape[:axis], count * step, *node.shape[axis + 1 :]))
    return sliced(plain(spread), axis, 0, (count - 1) * step + 1)


@lowers("roll")
def roll(X: GraphTensor, ShiftsTensor: Any, shifts: list[int], axis: list[int]) -> GraphTensor:
    _none(ShiftsTensor)
    node = X.node if axis else reshaped(plain(X.node), (X.node.size,))
    for number, shift in zip(axis or [0], shifts if axis else [sum(shifts)], strict=True):
        place = number % node.ndim
        count = node.shape[place]
        start = -shift % count
        if start:
            node = _joined([_cut(node, place, range(start, count)), _cut(node, place, range(start))], place)
    return GraphTensor(reshaped(node, X.shape) if node is not X.node else mapped("copy", node))


@lowers("size")
def size(Input: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    return GraphTensor(broadcast_to(constant(Input.node.size, INT64), specs["Out"].shape))


@lowers("shape")
def shape(Input: GraphTensor) -> GraphTensor:
    if not Input.ndim:
        raise NotLowered("a number, which has no sizes")
    return GraphTensor(joined([broadcast_to(constant(extent, INT32), (1,)) for extent in Input.shape], 0))


@lowers("split")
def split(
    X: GraphTensor, AxisTensor: Any, SectionsTensorList: Any, axis: int, num: int, sections: list[int], specs: dict[str, Any]
) -> dict[str, Any]:
    _none(AxisTensor, SectionsTensorList)
    axis %= X.ndim
    return {"Out": _parts(X, axis, cut_sizes(X.shape, axis, num or len(specs["Out"]), sections))}


def _parts(X: GraphTensor, axis: int, sizes: Sequence[int]) -> list[GraphTensor]:
    """Split X along an axis."""
    start, parts = 0, []
    for size in sizes:
        parts.append(GraphTensor(mapped("copy", _cut(X.node, axis, range(start, start + size)))))
        start += size
    return parts


@lowers("split_like")
def split_like(X: GraphTensor, Like: list[GraphTensor], AxisTensor: Any, axis: int) -> dict[str, Any]:
    _none(AxisTensor)
    axis %= X.ndim
    return {"Out": _parts(X, axis, [like.shape[axis] for like in Like])}


@lowers("unstack", "unbind")
def unstack(X: GraphTensor, axis: int, specs: dict[str, Any]) -> dict[str, Any]:
    axis %= X.ndim
    part_shape = (*X.shape[:axis], *X.shape[axis + 1 :])
    parts = [GraphTensor(reshaped(part.node, part_shape)) for part in _parts(X, axis, [1] * X.shape[axis])]
    return {next(iter(specs)): parts}


@lowers("concat")
def concat(X: list[GraphTensor], AxisTensor: Any, axis: int) -> GraphTensor:
    _none(AxisTensor)
    parts = [tensor.node for tensor in X if tensor.node.size]  # formulas may join tensors without elements
    return GraphTensor(_joined(parts or [X[0].node], axis % X[0].ndim))


@lowers("stack")
def stack(X: list[GraphTensor], axis: int) -> GraphTensor:
    place = axis % (X[0].ndim + 1)
    parts = [reshaped(tensor.node, (*tensor.shape[:place], 1, *tensor.shape[place:])) for tensor in X]
    return GraphTensor(
        _joined([broadcast_to(part, (1,)) if not part.shape else part for part in parts], place)
    )  # numbers without shape


# ---------------------------------------------------------------------------------------------------------------- padded
def padded(node: GraphNode, pads: Sequence[tuple[int, int]], number: GraphNode | float) -> GraphNode:
    """Pad a node with a number, or a node of one element; `pads` gives the elements before and after, per dimension."""
    filler = number if isinstance(number, GraphNode) else number_like(number, node)
    if not any(map(any, pads)):
        return mapped("copy", node)
    if isinstance(node, ChannelsFirst):
        places = places_of_channels_last(node.ndim)
        return channels_first(padded(node.source, [pads[places.index(place)] for place in range(node.ndim)], number))
    shape, firsts = list(node.shape), [before for before, _ in pads]
    blocks: list[tuple[GraphNode, Sequence[int]]] = [(node, firsts)]
    for axis, (before, after) in enumerate(pads):
        for start, size in ((0, before), (before + shape[axis], after)):
            if size:
                block = broadcast_to(filler, (*shape[:axis], size, *shape[axis + 1 :]))
                blocks.append((block, [0] * axis + [start] + firsts[axis + 1 :]))
        shape[axis] += before + after
    return assembled(tuple(shape), blocks)


def _pairs(paddings: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(paddings[::2], paddings[1::2], strict=True))


@lowers("pad")
def pad(X: GraphTensor, paddings: list[int], pad_value: float) -> GraphTensor:
    return GraphTensor(padded(X.node, _pairs(paddings), pad_value))


@lowers("pad2d")
def pad2d(X: GraphTensor, Paddings: Any, paddings: list[int], mode: str, pad_value: float, data_format: str) -> GraphTensor:
    _none(Paddings)
    return _padded_by(X, all_paddings(paddings, data_format, False), PAD_MODES[mode], pad_value)


@lowers("pad3d")
def pad3d(X: GraphTensor, paddings: list[int], mode: str, value: float, data_format: str) -> GraphTensor:
    return _padded_by(X, all_paddings(paddings, data_format, True), PAD_MODES[mode], value)


@lowers("pad_by")
def pad_by(X: GraphTensor, Paddings: Any, paddings: list[int], mode: str) -> GraphTensor:
    _none(Paddings)
    return _padded_by(X, paddings, mode, 0.0)


def _padded_by(X: GraphTensor, paddings: Sequence[int], mode: str, number: float) -> GraphTensor:
    """X padded with a number (mode "constant") or with copies of its elements."""
    pads = _pairs(paddings)
    if mode == "constant":
        return GraphTensor(padded(X.node, pads, number))
    return GraphTensor(_padded_by_copies(X.node, pads, mode))


def _padded_by_copies(node: GraphNode, pads: Sequence[tuple[int, int]], mode: str) -> GraphNode:
    """Assemble a padded node from blocks of its elements, one for each side of it, each edge and each corner."""
    if isinstance(node, ChannelsFirst):
        order = places_of_channels_last(node.ndim)
        return channels_first(_padded_by_copies(node.source, [pads[order.index(place)] for place in range(node.ndim)], mode))
    parts: list[list[tuple[int, range, int]]] = []
    """For each axis, its parts: first index, positions that are copied, and their number."""
    for extent, (before, after) in zip(node.shape, pads, strict=True):
        sides = [
            (0, _copied(extent, before, mode), before),
            (before, range(extent), extent),
            (before + extent, _copied(extent, after, mode, at_end=True), after),
        ]
        parts.append([side for side in sides if side[2]])
    if not node.size or all(len(of_axis) == 1 for of_axis in parts):
        return mapped("copy", node)
    source, blocks = plain(node), []
    for block_sides in combinations(*parts):
        block = source
        for axis, (_, places, count) in enumerate(block_sides):
            if places != range(block.shape[axis]):
                block = _cut(block, axis, places)
            if len(places) < count:
                block = broadcast_to(block, (*block.shape[:axis], count, *block.shape[axis + 1 :]))
        blocks.append((block, [first for first, _, _ in block_sides]))
    return assembled(tuple(before + extent + after for extent, (before, after) in zip(node.shape, pads, strict=True)), blocks)


def _copied(extent: int, count: int, mode: str, at_end: bool = False) -> range:
    """The positions that padding of one side copies, in the order of the padding; for mode "edge", the position of the edge."""
    if mode == "edge" and extent:
        return range(extent - 1, extent) if at_end else range(1)
    if count > extent - (mode == "reflect"):
        raise NotLowered("padding that copies elements more than once")
    if mode == "reflect":
        return range(extent - 2, extent - 2 - count, -1) if at_end else range(count, 0, -1)
    return range(count) if at_end else range(extent - count, extent)


@lowers("unpad_by")
def unpad_by(X: GraphTensor, Like: GraphTensor, Paddings: Any, paddings: list[int], mode: str) -> GraphTensor:
    """Cut the padding off a gradient, and add its numbers to the elements that they are copies of."""
    _none(Paddings)
    only_floats(X)
    node = X.node
    for axis, (before, after) in reversed([*enumerate(_pairs(paddings))]):
        extent = Like.shape[axis]
        parts = [(0, _cut(node, axis, range(before, before + extent)))]
        for first, count in ((0, before), (before + extent, after)):
            if count and mode != "constant":
                places = _copied(extent, count, mode, at_end=first > 0)
                part = _cut(node, axis, range(first, first + count)[:: places.step])
                parts.append((min(places), reduced("sum", mapped("copy", part), [axis]) if mode == "edge" else part))
        node = _overlaid(parts, axis)
    return GraphTensor(mapped("copy", node) if isinstance(node, View) else node)


def _overlaid(parts: Sequence[tuple[int, GraphNode]], axis: int) -> GraphNode:
    """The sum of tensors that begin at places along an axis; the first one covers the others."""
    ranges = [range(start, start + part.shape[axis]) for start, part in parts]
    pieces = []
    for first, end in pairwise(sorted({place for covered in ranges for place in (covered.start, covered.stop)})):
        here = [
            _cut(part, axis, range(first - covered.start, end - covered.start))
            for covered, (_, part) in zip(ranges, parts, strict=True)
            if first in covered
        ]
        pieces.append(summed(here))
    return pieces[0] if len(pieces) == 1 else _joined(pieces, axis)


# -------------------------------------------------------------------------------------------------------------- repeated
@lowers("expand_v2")
def expand_v2(X: GraphTensor, Shape: Any, expand_shapes_tensor: Any, specs: dict[str, Any]) -> GraphTensor:
    _none(Shape, expand_shapes_tensor)
    return GraphTensor(mapped("copy", broadcast_to(X.node, specs["Out"].shape)))


@lowers("expand_as_v2")
def expand_as_v2(X: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    return GraphTensor(mapped("copy", broadcast_to(X.node, specs["Out"].shape)))


def _in_tiles(small: Sequence[int], large: Sequence[int]) -> tuple[int, ...]:
    """The shape of a large tensor as tiles of a small one: (number of tiles, extent of a tile) per dimension, flattened."""
    small = (1,) * (len(large) - len(small)) + tuple(small)
    return tuple(number for extent, full_extent in zip(small, large, strict=True) for number in (full_extent // extent, extent))


@lowers("tile", "expand", "expand_as", "tile_like")
def tile(
    X: GraphTensor,
    RepeatTimes: Any,
    repeat_times_tensor: Any,
    ExpandTimes: Any,
    expand_times_tensor: Any,
    specs: dict[str, Any],
) -> GraphTensor:
    _none(RepeatTimes, repeat_times_tensor, ExpandTimes, expand_times_tensor)
    shape = specs["Out"].shape
    tiles = _in_tiles(X.shape, shape)
    one = tuple(extent if place % 2 else 1 for place, extent in enumerate(tiles))
    return GraphTensor(reshaped(mapped("copy", broadcast_to(reshaped(X.node, one), tiles)), shape))


@lowers("untile")
def untile(X: GraphTensor, Like: GraphTensor) -> GraphTensor:
    only_floats(X)
    tiles = _in_tiles(Like.shape, X.shape)
    return GraphTensor(reshaped(reduced("sum", reshaped(X.node, tiles), range(0, len(tiles), 2)), Like.shape))


# --------------------------------------------------------------------------------------------------------- rows by number
def _ids_of(tensor: GraphTensor) -> GraphNode:
    """Reshape indices to a column."""
    if tensor.node.element not in (INT32, INT64):
        raise NotLowered("indices that are no integers")
    return reshaped(plain(tensor.node), (tensor.node.size, 1))


def _table(node: GraphNode, rows: int) -> GraphNode:
    """Reshape a tensor to a matrix: the first `rows` dimensions become rows."""
    return reshaped(plain(node), (prod(node.shape[:rows]), prod(node.shape[rows:])))


def _gathered_rows(X: GraphTensor, ids: GraphNode, rows: int, shape: tuple[int, ...]) -> GraphTensor:
    table = _table(X.node, rows)
    return GraphTensor(reshaped(Rows((ids.size, table.shape[1]), table.element, table, ids), shape))


@lowers("gather", copies=True)
def gather(X: GraphTensor, Index: GraphTensor, Axis: Any, axis: int, specs: dict[str, Any]) -> GraphTensor:
    _none(Axis)
    axis, shape = axis % X.ndim, specs["Out"].shape
    if isinstance(X.node, ChannelsFirst) and axis > 1 and len(shape) == X.ndim:  # all channels of a pixel are one row
        pixels, (images, channels, *extents) = GraphTensor(channels_last(X.node)), shape
        rows = _gathered_rows(pixels, _ids_along(Index, pixels.shape, axis - 1), axis, (images, *extents, channels))
        return GraphTensor(channels_first(rows.node))
    return _gathered_rows(X, _ids_along(Index, X.shape, axis), axis + 1, shape)


def _ids_along(Index: GraphTensor, shape: Sequence[int], axis: int) -> GraphNode:
    """Convert indices along an axis to numbers of rows in the matrix of all rows up to that axis."""
    ids, count = _ids_of(Index), prod(shape[:axis])
    if count == 1:
        return ids
    width = ids.size
    block = Position((count,), ids.element)
    first = reshaped(mapped("mul", block, number_like(shape[axis], block)), (count, 1))
    places = broadcast_to(reshaped(ids, (1, width)), (count, width))
    return reshaped(mapped("add", broadcast_to(first, (count, width)), places), (count * width, 1))


@lowers("flip", "reverse")
def flip(X: GraphTensor, axis: list[int]) -> GraphTensor:
    node = plain(X.node)
    for number in {number % X.ndim for number in axis}:
        node = sliced(node, number, node.shape[number] - 1, node.shape[number], -1)
    return GraphTensor(mapped("copy", node))


@lowers("scatter_add_like")
def scatter_add_like(X: GraphTensor, Index: GraphTensor, Like: GraphTensor, Axis: Any, axis: int) -> GraphTensor:
    _none(Axis)
    only_floats(X)
    axis %= Like.ndim
    ids, shape = _ids_along(Index, Like.shape, axis), (prod(Like.shape[: axis + 1]), prod(Like.shape[axis + 1 :]))
    rows = reshaped(plain(X.node), (ids.size, shape[1]))
    return GraphTensor(reshaped(Scattered(shape, X.node.element, rows, ids), Like.shape))


@lowers("take_rows")
def take_rows(X: GraphTensor, Index: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    ids, table = _ids_of(Index), _table(X.node, 1)
    is_row = mapped("oge", ids, number_like(0, ids), element=BOOL)
    places = mapped("select", is_row, ids, number_like(0, ids), element=ids.element)
    rows: GraphNode = Rows((ids.size, table.shape[1]), table.element, table, places)
    rows = mapped("select", is_row, rows, number_like(0, rows), element=rows.element)
    return GraphTensor(reshaped(rows, specs["Out"].shape))


@lowers("add_rows")
def add_rows(X: GraphTensor, Index: GraphTensor, Like: GraphTensor) -> GraphTensor:
    only_floats(X)
    ids, shape = _ids_of(Index), (Like.shape[0], prod(Like.shape[1:]))
    rows = reshaped(plain(X.node), (ids.size, shape[1]))
    return GraphTensor(reshaped(Scattered(shape, X.node.element, rows, ids), Like.shape))


def _zeros_without_rows(extremes: GraphNode, ids: GraphNode) -> GraphNode:
    """Maxima or minima of the rows with each id; zeros for ids without rows."""
    ones = mapped("copy", broadcast_to(reshaped(constant(1, INT32), (1, 1)), (ids.size, 1)))
    is_met = mapped("ogt", Scattered((extremes.shape[0], 1), INT32, ones, ids), constant(0, INT32), element=BOOL)
    return mapped("select", is_met, extremes, number_like(0, extremes), element=extremes.element)


@lowers("max_rows")
def max_rows(X: GraphTensor, Index: GraphTensor, Like: GraphTensor) -> GraphTensor:
    only_floats(X)
    ids, shape = _ids_of(Index), (Like.shape[0], prod(Like.shape[1:]))
    maxima = Scattered(shape, X.node.element, reshaped(plain(X.node), (ids.size, shape[1])), ids, kind="max")
    return GraphTensor(reshaped(_zeros_without_rows(maxima, ids), Like.shape))


@lowers("active_ids")
def active_ids(Ids: GraphTensor, Numbers: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    ids, numbers = _ids_of(Ids), _table(Numbers.node, 1)
    none = number_like(-1, ids)
    below = mapped("olt", ids, number_like(numbers.shape[0], ids), element=BOOL)
    is_row = mapped("and", mapped("oge", ids, number_like(0, ids), element=BOOL), below, element=BOOL)
    places = mapped("select", is_row, ids, number_like(0, ids), element=ids.element)
    numbers_there: GraphNode = Rows((ids.size, 1), numbers.element, numbers, places, in_bounds=True)
    is_active = mapped("and", is_row, mapped("oeq", numbers_there, ids, element=BOOL), element=BOOL)
    return GraphTensor(reshaped(mapped("select", is_active, ids, none, element=ids.element), specs["Out"].shape))


@lowers("graph_send_recv")
def graph_send_recv(
    X: GraphTensor,
    Src_index: GraphTensor,
    Dst_index: GraphTensor,
    Out_size: Any,
    reduce_op: str,
    wanted: set[str],
    specs: dict[str, Any],
) -> dict[str, GraphTensor]:
    _none(Out_size)
    only_numbers(X)
    if reduce_op == "MEAN" or "Dst_count" in wanted:
        raise NotLowered("numbers of rows")
    out, source, target = specs["Out"], _ids_of(Src_index), _ids_of(Dst_index)
    shape, table = (out.shape[0], prod(out.shape[1:])), _table(X.node, 1)
    rows = Rows((source.size, shape[1]), table.element, table, source)
    result: GraphNode = Scattered(shape, table.element, rows, target, kind=reduce_op.lower())
    return {"Out": GraphTensor(reshaped(result if reduce_op == "SUM" else _zeros_without_rows(result, target), out.shape))}


def _with_rows(table: GraphNode, ids: GraphNode, rows: GraphNode) -> GraphNode:
    """A table with some rows replaced; of the rows with one id, the last one counts."""
    numbers = reshaped(mapped("copy", Position((ids.size,), INT64)), (ids.size, 1))
    last = Scattered((table.shape[0], 1), INT64, numbers, ids, kind="max")
    is_replaced = mapped("oge", last, constant(0, INT64), element=BOOL)
    places = mapped("select", is_replaced, last, constant(0, INT64), element=INT64)
    replacing = Rows(table.shape, table.element, rows, places, in_bounds=True)
    return mapped("select", is_replaced, replacing, table, element=table.element)


@lowers("scatter")
def scatter(X: GraphTensor, Ids: GraphTensor, Updates: GraphTensor, overwrite: bool) -> GraphTensor:
    ids, shape = _ids_of(Ids), (X.shape[0], prod(X.shape[1:]))
    if not overwrite or X.node.element != Updates.node.element:
        raise NotLowered("sums of rows")
    table, updates = reshaped(plain(X.node), shape), reshaped(plain(Updates.node), (ids.size, shape[1]))
    return GraphTensor(reshaped(_with_rows(table, ids, updates), X.shape))


def _flat_ids(Index: GraphTensor, shape: Sequence[int]) -> GraphNode:
    """Combine indices along the leading dimensions to row numbers."""
    if Index.node.element not in (INT32, INT64) or not Index.shape[-1]:
        raise NotLowered("indices that are no integers, or none")
    depth = Index.shape[-1]
    columns = reshaped(plain(Index.node), (Index.node.size // depth, depth))
    total = sliced(columns, 1, 0, 1)
    for place in range(1, depth):
        total = mapped("add", mapped("mul", total, number_like(shape[place], total)), sliced(columns, 1, place, 1))
    return mapped("copy", total)


@lowers("gather_nd")
def gather_nd(X: GraphTensor, Index: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    return _gathered_rows(X, _flat_ids(Index, X.shape), Index.shape[-1], specs["Out"].shape)


@lowers("scatter_nd_add")
def scatter_nd_add(X: GraphTensor, Index: GraphTensor, Updates: GraphTensor) -> GraphTensor:
    only_floats(X, Updates)
    ids, table = _flat_ids(Index, X.shape), _table(X.node, Index.shape[-1])
    rows = reshaped(plain(Updates.node), (ids.size, table.shape[1]))
    return GraphTensor(reshaped(mapped("add", table, Scattered(table.shape, table.element, rows, ids)), X.shape))


def elements_along(Index: GraphTensor, shape: Sequence[int], axis: int) -> GraphNode:
    """The flat positions in a tensor of `shape` of the elements at indices along an axis."""
    ids, size = Index.node, prod(shape)
    if ids.element not in (INT32, INT64) or (ids.element == INT32 and size >= 1 << 31):
        raise NotLowered("indices that are no integers, or too many elements for their type")
    before, behind = prod(shape[:axis]), prod(shape[axis + 1 :])
    places = reshaped(plain(ids), (before, Index.shape[axis], behind))
    if behind > 1:
        places = mapped("mul", places, number_like(behind, places))
        offsets = reshaped(mapped("copy", Position((behind,), ids.element)), (1, 1, behind))
        places = mapped("add", places, broadcast_to(offsets, places.shape))
    if before > 1:
        starts = reshaped(
            mapped("mul", row := Position((before,), ids.element), number_like(size // before, row)), (before, 1, 1)
        )
        places = mapped("add", places, broadcast_to(starts, places.shape))
    return reshaped(mapped("copy", places), (ids.size, 1))


@lowers("take_along_axis")
def take_along_axis(Input: GraphTensor, Index: GraphTensor, Axis: int) -> GraphTensor:
    if not Input.node.size:
        raise NotLowered("no elements")
    return _gathered_rows(Input, elements_along(Index, Input.shape, Axis % Input.ndim), Input.ndim, Index.shape)


@lowers("put_along_axis")
def put_along_axis(
    Input: GraphTensor, Index: GraphTensor, Value: GraphTensor, Axis: int, Reduce: str, Include_self: bool
) -> GraphTensor:
    kind = REDUCTIONS[Reduce]
    if kind == "mul" or not (Include_self or kind == "assign") or not Input.node.size:
        raise NotLowered("products, or elements that do not count")
    ids = elements_along(Index, Input.shape, Axis % Input.ndim)
    values, table = reshaped(plain(Value.node), (ids.size, 1)), reshaped(plain(Input.node), (Input.node.size, 1))
    if kind == "assign":
        return GraphTensor(reshaped(_with_rows(table, ids, values), Input.shape))
    only_numbers(Input, Value)
    combined = Scattered(table.shape, table.element, values, ids, kind="sum" if kind == "add" else kind)
    return GraphTensor(reshaped(mapped(kind, table, combined), Input.shape))


@lowers("one_hot", "one_hot_v2")
def one_hot(X: GraphTensor, depth_tensor: Any, specs: dict[str, Any]) -> GraphTensor:
    _none(depth_tensor)
    if X.node.element not in (INT32, INT64):
        raise NotLowered("indices that are no integers")
    out = specs["Out"]
    ids = reshaped(X.node, (*out.shape[:-1], 1))
    return GraphTensor(mapped("oeq", Position(out.shape, ids.element), ids, element=BOOL)).astype(out.dtype)


@lowers("sequence_mask")
def sequence_mask(X: GraphTensor, MaxLenTensor: Any, maxlen: int, specs: dict[str, Any]) -> GraphTensor:
    _none(MaxLenTensor)
    if maxlen <= 0:
        raise NotLowered("a length that depends on values")
    out = specs["Y"]
    lengths = reshaped(X.node, (*X.shape, 1))
    return GraphTensor(mapped("olt", Position(out.shape, lengths.element), lengths, element=BOOL)).astype(out.dtype)
