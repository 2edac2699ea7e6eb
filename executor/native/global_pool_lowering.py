"""Lowers global pools, whose window is a whole image or volume. Where channels come first, they are reductions of rows."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from fluid.ops.conv import image_axes
from fluid.ops.pool import pool_geometry

from .emitter import BOOL, INT32
from .graph import ChannelsFirst, GraphNode, Position, broadcast_to, mapped, plain, reduced, reshaped
from .lowering import GraphTensor, number_like, only_floats
from .reduction_lowering import MOST_COLUMNS, greatest_place


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
