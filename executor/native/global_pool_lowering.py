"""Lowers pools that are reductions, where channels come first: global ones, whose window is a whole image or volume, and those
whose windows lie side by side."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from fluid.ops.conv import image_axes
from fluid.ops.pool import pool_geometry

from .emitter import BOOL, INT32
from .graph import ChannelsFirst, GraphNode, Position, broadcast_to, mapped, plain, reduced, reshaped
from .lowering import GraphTensor, number_like, only_floats
from .reduction_lowering import MOST_COLUMNS, greatest_place, is_greatest


def is_global_pool(X: GraphTensor, attrs: Mapping[str, Any]) -> bool:
    """Whether a pool has one window, a whole image or volume that is not empty, and channels come first in memory."""
    channels, axes = image_axes(attrs["data_format"], X.ndim)
    extents = [X.shape[axis] for axis in axes]
    _, sizes, _, pads = pool_geometry(extents, attrs)
    has_one_window = sizes == extents and not any(map(any, pads))
    has_channels_first = channels == 1 and not isinstance(X.node, ChannelsFirst)
    return has_one_window and has_channels_first and 0 < X.node.size and prod(extents) < MOST_COLUMNS


def _channel_rows(X: GraphTensor) -> GraphNode:
    """Images or volumes as a matrix: a row for each channel."""
    only_floats(X)
    return reshaped(plain(X.node), (X.shape[0] * X.shape[1], prod(X.shape[2:])))


def global_pool(X: GraphTensor, attrs: Mapping[str, Any]) -> GraphTensor:
    """The maximum or the average of each channel."""
    rows = _channel_rows(X)
    if attrs["pooling_type"] == "max":
        pooled = mapped("copy", reduced("max", rows, [1]))
    else:
        pooled = mapped("mul", reduced("sum", rows, [1]), number_like(1.0 / rows.shape[1], rows))
    return GraphTensor(reshaped(pooled, (*X.shape[:2], *[1] * (X.ndim - 2))))


def global_pool_gradient(X: GraphTensor, dOut: GraphTensor, attrs: Mapping[str, Any]) -> GraphTensor:
    """The gradient of `global_pool`; of equal maxima, the first gets it."""
    rows = _channel_rows(X)
    gradient = reshaped(plain(dOut.node), (rows.shape[0], 1))
    if attrs["pooling_type"] == "max":
        _, place = greatest_place(rows)
        is_place = mapped("oeq", Position(rows.shape, INT32), place, element=BOOL)
        spread = mapped("select", is_place, gradient, number_like(0.0, rows), element=rows.element)
    else:
        spread = broadcast_to(mapped("mul", gradient, number_like(1.0 / rows.shape[1], rows)), rows.shape)
    return GraphTensor(reshaped(spread, X.shape))


# ---------------------------------------------------------------------------------------------------------------- tiles
_LEAST_WIDTH = 16
"""The least width of windows side by side that are reduced as rows."""


def is_pool_of_tiles(X: GraphTensor, attrs: Mapping[str, Any]) -> bool:
    """Whether the wide windows of a pool cover images without overlap, and channels come first in memory."""
    channels, axes = image_axes(attrs["data_format"], X.ndim)
    if X.ndim != 4 or channels != 1 or isinstance(X.node, ChannelsFirst) or not X.node.size:
        return False
    extents = [X.shape[axis] for axis in axes]
    out, sizes, strides, pads = pool_geometry(extents, attrs)
    are_tiles = sizes == strides and not any(map(any, pads))
    covers = all(count * size == extent for count, size, extent in zip(out, sizes, extents, strict=True))
    return are_tiles and covers and sizes[1] >= _LEAST_WIDTH


def _in_tiles(X: GraphTensor, attrs: Mapping[str, Any]) -> GraphNode:
    """Images as [channels and rows of tiles, rows in a tile, columns of tiles, columns in a tile]."""
    only_floats(X)
    (rows, columns), (height, width), _, _ = pool_geometry(X.shape[2:], attrs)
    return reshaped(plain(X.node), (X.shape[0] * X.shape[1] * rows, height, columns, width))


def pool_of_tiles(X: GraphTensor, attrs: Mapping[str, Any]) -> GraphTensor:
    """The maximum or the average of each tile."""
    tiles = _in_tiles(X, attrs)
    kind = "max" if attrs["pooling_type"] == "max" else "sum"
    pooled = reduced(kind, reduced(kind, tiles, [3]), [1])
    if kind == "sum":
        pooled = mapped("mul", pooled, number_like(1.0 / (tiles.shape[1] * tiles.shape[3]), tiles))
    return GraphTensor(reshaped(mapped("copy", pooled), (*X.shape[:2], X.shape[2] // tiles.shape[1], tiles.shape[2])))


def pool_of_tiles_gradient(X: GraphTensor, dOut: GraphTensor, attrs: Mapping[str, Any]) -> GraphTensor:
    """The gradient of `pool_of_tiles`; of equal maxima, the first gets it."""
    tiles = _in_tiles(X, attrs)
    rows, height, columns, width = tiles.shape
    gradient = reshaped(plain(dOut.node), (rows, 1, columns, 1))
    if attrs["pooling_type"] != "max":
        scaled = mapped("mul", gradient, number_like(1.0 / (height * width), gradient))
        return GraphTensor(reshaped(broadcast_to(broadcast_to(scaled, (rows, 1, columns, width)), tiles.shape), X.shape))
    greatest_of_rows, places = greatest_place(reshaped(tiles, (rows * height * columns, width)))
    greatest_of_rows = reshaped(greatest_of_rows, (rows, height, columns, 1))
    numbers = reshaped(mapped("copy", _with_row_starts(height, width)), (1, height, 1, 1))
    behind = number_like(height * width, numbers)
    greatest = reduced("max", greatest_of_rows, [1])
    first = mapped("add", reshaped(places, greatest_of_rows.shape), numbers)
    first = mapped("select", is_greatest(greatest_of_rows, greatest), first, behind, element=INT32)
    first = mapped("sub", reduced("min", first, [1]), numbers)  # counted from the row's start
    is_first = mapped("oeq", Position(tiles.shape, INT32), first, element=BOOL)
    return GraphTensor(reshaped(mapped("select", is_first, gradient, number_like(0.0, tiles), element=tiles.element), X.shape))


def _with_row_starts(height: int, width: int) -> GraphNode:
    """The number of the first element of each row of a tile."""
    number = Position((height,), INT32)
    return mapped("mul", number, number_like(width, number))
