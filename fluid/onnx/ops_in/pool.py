"""Pooling."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import is_floating
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from .convolution import as_image, flat, numbers, padded, spread
from .padding import lowest


class _PoolWindow:
    """The window of a pool.

    Attributes:
        x: the image, already padded if its padding depends on sizes known only at run time.
        pads: the padding for the op itself, by Fluid's padding_algorithm `algorithm`.
    """

    def __init__(self, b: Builder, node: OnnxNode, x: Any, value: float) -> None:
        count = x.ndim - 2
        if count not in (1, 2, 3):
            raise FormatError(f"X has {x.ndim} dimensions; it should have 3 to 5")
        self.kernel, self.strides, self.dilations = (
            numbers(node, name, count) for name in ("kernel_shape", "strides", "dilations")
        )
        wide = [(size - 1) * by + 1 for size, by in zip(self.kernel, self.dilations, strict=True)]
        self.x, self.pads, self.algorithm = padded(b, node, x, wide, self.strides, self.dilations, value)

    @property
    def is_dense(self) -> bool:
        """Whether it has no dilation."""
        return all(by == 1 for by in self.dilations)

    def pooled(self, b: Builder, **attrs: Any) -> Any:
        """Pool by an op of Fluid; over one dimension, pool images of one row."""
        count = self.x.ndim - 2
        op = b.f.pool3d if count == 3 else b.f.pool2d
        out = op(
            as_image(b, self.x, count),
            ksize=spread(self.kernel, count, 1),
            strides=spread(self.strides, count, 1),
            paddings=flat(spread(self.pads, count, (0, 0))),
            padding_algorithm=self.algorithm,
            **attrs,
        )
        return b.squeeze(out, [2]) if count == 1 else out


def _size(size: int, window: int, stride: int, pair: tuple[int, int], ceil: bool) -> int:
    """The number of windows; a window that begins beyond the image and its front padding does not count."""
    room = size + sum(pair) - window
    out = (-(-room // stride) if ceil else room // stride) + 1
    return out - 1 if ceil and (out - 1) * stride >= size + pair[0] else out


@imports("MaxPool")
def max_pool(b: Builder, node: OnnxNode) -> Any:
    window = _PoolWindow(b, node, node[0], lowest(node[0].dtype))
    x = window.x
    ceil = bool(node.int("ceil_mode", 0))
    wants_places = len(node.proto.output) > 1 and bool(node.proto.output[1])
    plain = is_floating(x.dtype) and window.is_dense and not wants_places
    if plain and (not ceil or _same_with_ceil(x, window.kernel, window.strides, window.pads)):
        return window.pooled(b, pooling_type="max", ceil_mode=ceil)
    if is_floating(x.dtype) and not wants_places:
        return _max_along_axes(b, window, ceil)
    values, places = _max_by_index(b, x, window.kernel, window.strides, window.dilations, window.pads, ceil)
    if not wants_places:
        return values
    if node.int("storage_order", 0):
        places = _column_major(b, places, x.shape[2:], x)
    return values, places


def _max_along_axes(b: Builder, window: _PoolWindow, ceil: bool) -> Any:
    """The maxima of dilated windows, one axis after the other."""
    x = window.x
    if -1 in x.shape[2:]:
        raise FormatError(_SIZES_AT_RUN)
    for axis, (kernel, stride, dilation, pair) in enumerate(
        zip(window.kernel, window.strides, window.dilations, window.pads, strict=True), 2
    ):
        x = _max_along(b, x, axis, kernel, stride, dilation, pair, ceil)
    return x


def _max_along(b: Builder, x: Any, axis: int, kernel: int, stride: int, dilation: int, pair: tuple[int, int], ceil: bool) -> Any:
    """The maxima of windows along one axis: of plain windows in rows of every `dilation`-th element."""
    span = (kernel - 1) * dilation + 1
    count = _size(x.shape[axis], span, stride, pair, ceil)
    used = max((count - 1) * stride + span, pair[0] + x.shape[axis])
    rows = -(-used // dilation)
    paddings = [0] * 2 * x.ndim
    paddings[2 * axis : 2 * axis + 2] = pair[0], rows * dilation - pair[0] - x.shape[axis]
    inner = prod(x.shape[axis + 1 :])
    image = b.f.reshape2(
        b.f.pad(x, paddings=paddings, pad_value=lowest(x.dtype)) if any(paddings) else x, shape=[-1, 1, rows, dilation * inner]
    )
    steps, skips = divmod(stride, dilation)
    if skips:
        maxima = b.f.pool2d(image, ksize=[kernel, 1], strides=[1, 1], pooling_type="max")
        maxima = b.f.reshape2(maxima, shape=[-1, (rows - kernel + 1) * dilation, inner])
    else:  # all windows begin at the first element of a row
        maxima = b.f.pool2d(b.slice(image, 3, 0, inner), ksize=[kernel, 1], strides=[steps, 1], pooling_type="max")
        maxima, stride = b.squeeze(maxima, [1]), 1
    end = (count - 1) * stride + 1
    maxima = b.f.strided_slice(maxima, axes=[1], starts=[0], ends=[end], strides=[stride])
    outer = [b.size_of(x, before) for before in range(2)]
    return b.reshape(maxima, [*outer, *x.shape[2:axis], count, *x.shape[axis + 1 :]])


_SIZES_AT_RUN = "dilations, or indices, are not supported for images whose size is known only at run time"


def _same_with_ceil(x: Any, kernel: list[int], strides: list[int], pads: list[tuple[int, int]]) -> bool:
    if -1 in x.shape[2:]:
        return False
    sizes = zip(x.shape[2:], kernel, strides, pads, strict=True)
    return all(-(-(s + sum(p) - k) // by) + 1 == _size(s, k, by, p, True) for s, k, by, p in sizes)


def _places(
    b: Builder, x: Any, kernel: list[int], strides: list[int], dilations: list[int], pads: list[tuple[int, int]], ceil: bool
) -> Any:
    """For each window, the indices of its elements in an image, -1 in the padding: [windows, elements of a window]."""
    if -1 in x.shape[2:]:
        raise FormatError(_SIZES_AT_RUN)
    sizes = zip(x.shape[2:], kernel, strides, dilations, pads, strict=True)
    counts = [_size(size, (window - 1) * by + 1, stride, pair, ceil) for size, window, stride, by, pair in sizes]
    for count, window in zip(counts, kernel, strict=True):
        b.reserve(count, window, itemsize=32)
    b.reserve(*counts, *kernel, itemsize=32)
    columns = []
    for count, size, window, stride, by, pair in zip(counts, x.shape[2:], kernel, strides, dilations, pads, strict=True):
        at = np.arange(count)[:, None] * stride - pair[0] + np.arange(window)[None] * by
        columns.append(np.where((at >= 0) & (at < size), at, -1))
    indices = np.zeros((1, 1), np.int64)
    for at, size in zip(columns, x.shape[2:], strict=True):
        joined = indices[:, None, :, None] * size + at[None, :, None, :]
        outside = (indices[:, None, :, None] < 0) | (at[None, :, None, :] < 0)
        joined = np.where(outside, -1, joined)
        indices = joined.reshape(indices.shape[0] * at.shape[0], indices.shape[1] * at.shape[1])
    return indices, [column.shape[0] for column in columns]


def windows(
    b: Builder,
    x: Any,
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    pads: list[tuple[int, int]],
    ceil: bool,
    fill: float,
) -> tuple[Any, Any, list[int]]:
    """The elements of each window: [N, C, windows, elements]; their indices; and the numbers of windows."""
    places, sizes = _places(b, x, kernel, strides, dilations, pads, ceil)
    rows = b.f.reshape2(x, shape=[0, 0, -1])
    outside = places < 0
    if outside.any():
        if is_floating(x.dtype):
            fill = max(fill, float(np.finfo(x.dtype.numpy).min))
        else:
            fill = max(fill, int(np.iinfo(x.dtype.numpy).min))
        rows = b.f.pad(rows, paddings=[0, 0, 0, 0, 0, 1], pad_value=float(fill))
        last = int(np.prod(x.shape[2:]))
        places = np.where(outside, last, places)
    elements = b.f.gather(rows, b.constant(places.reshape(-1)), axis=2)
    return b.f.reshape2(elements, shape=[0, 0, *places.shape]), places, sizes


def _max_by_index(b: Builder, x: Any, kernel: Any, strides: Any, dilations: Any, pads: Any, ceil: bool) -> tuple[Any, Any]:
    elements, places, sizes = windows(b, x, kernel, strides, dilations, pads, ceil, -np.inf)
    best = b.reduce("reduce_amax", elements, [3], False)
    best_place = b.f.arg_max(elements, axis=3)
    table = b.constant(places.reshape(-1))
    start = b.constant((np.arange(places.shape[0]) * places.shape[1]).astype(np.int64))
    at = b.f.elementwise_add(best_place, start)
    index = b.f.reshape_like(b.f.gather(table, b.f.reshape2(at, shape=[-1]), axis=0), at)
    b.reserve(x.shape[0], x.shape[1], itemsize=16)
    first = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], 1) * int(np.prod(x.shape[2:]))
    index = b.f.elementwise_add(index, b.constant(first.astype(np.int64)))
    return b.f.reshape2(best, shape=[0, 0, *sizes]), b.f.reshape2(index, shape=[0, 0, *sizes])


def _column_major(b: Builder, index: Any, sizes: Any, x: Any) -> Any:
    """Convert row-major indices to column-major indices."""
    area, image_count = prod(sizes), x.shape[0] * x.shape[1]
    b.reserve(area, itemsize=32)
    b.reserve(image_count, area, itemsize=16)
    table = np.arange(area).reshape(sizes)
    order = np.argsort(table.T.reshape(-1), kind="stable")
    all_places = (order[None] + np.arange(image_count)[:, None] * area).reshape(-1)
    return b.f.reshape_like(
        b.f.gather(b.constant(all_places.astype(np.int64, copy=False)), b.f.reshape2(index, shape=[-1]), axis=0), index
    )


@imports("AveragePool")
def average_pool(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    window = _PoolWindow(b, node, x, 0)
    ceil = bool(node.int("ceil_mode", 0))
    include = bool(node.int("count_include_pad", 0))
    if window.is_dense and not ceil:
        out = window.pooled(b, pooling_type="avg", exclusive=not include)
        if window.x is x or include:
            return out
        ones = _PoolWindow(b, node, b.f.fill_any_like(x, value=1.0), 0)
        return b.f.elementwise_div(out, ones.pooled(b, pooling_type="avg"))
    x, kernel, strides, dilations, pads = window.x, window.kernel, window.strides, window.dilations, window.pads
    elements, places, sizes = windows(b, x, kernel, strides, dilations, pads, ceil, 0.0)
    area = int(np.prod(x.shape[2:]))
    counts = (places < area).sum(1)
    if include:
        counts = _counts_with_padding(x, kernel, strides, dilations, pads, sizes)
    sums = b.reduce("reduce_sum", elements, [3], False)
    out = b.f.elementwise_div(sums, b.constant(counts.astype(x.dtype.numpy)))
    return b.f.reshape2(out, shape=[0, 0, *sizes])


def _counts_with_padding(x: Any, kernel: Any, strides: Any, dilations: Any, pads: Any, sizes: list[int]) -> Any:
    counts = np.ones(1, np.int64)
    for size, window, stride, by, pair, number in zip(x.shape[2:], kernel, strides, dilations, pads, sizes, strict=True):
        at = np.arange(number)[:, None] * stride - pair[0] + np.arange(window)[None] * by
        axis_counts = ((at >= -pair[0]) & (at < size + pair[1])).sum(1)
        counts = (counts[:, None] * axis_counts[None]).reshape(-1)
    return counts


def _global(op: str) -> Any:
    def build(b: Builder, node: OnnxNode) -> Any:
        return b.reduce(op, node[0], list(range(2, node[0].ndim)), True)

    return build


imports("GlobalAveragePool")(_global("reduce_mean"))
imports("GlobalMaxPool")(_global("reduce_amax"))


@imports("GlobalLpPool")
def global_lp_pool(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    p = float(node.int("p", 2))
    return b.f.pow(b.reduce("reduce_sum", b.f.pow(b.f.abs(x), factor=p), list(range(2, x.ndim)), True), factor=1.0 / p)


@imports("LpPool")
def lp_pool(b: Builder, node: OnnxNode) -> Any:
    window = _PoolWindow(b, node, node[0], 0)
    p = float(node.int("p", 2))
    size = b.f.pow(b.f.abs(window.x), factor=p)
    ceil = bool(node.int("ceil_mode", 0))
    elements, _, sizes = windows(b, size, window.kernel, window.strides, window.dilations, window.pads, ceil, 0.0)
    return b.f.reshape2(b.f.pow(b.reduce("reduce_sum", elements, [3], False), factor=1.0 / p), shape=[0, 0, *sizes])


@imports("MaxUnpool")
def max_unpool(b: Builder, node: OnnxNode) -> Any:
    x, index = node[0], node[1]
    count = x.ndim - 2
    kernel, strides = (numbers(node, name, count) for name in ("kernel_shape", "strides"))
    pads = node.ints("pads", [0] * 2 * count)
    sizes = [
        (size - 1) * by + window - pads[n] - pads[n + count]
        for n, (size, by, window) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    outer = list(x.shape[:2])
    shape = outer + sizes
    if -1 in x.shape:
        raise FormatError("images whose size is known only at run time are not supported")
    output_shape = node.constant_input(2, "its output shape")
    total = int(np.prod(shape))
    zeros = b.f.fill_constant(shape=[total], dtype=int(x.dtype), value=0.0)
    flat_x, flat_index = b.f.reshape2(x, shape=[-1]), b.f.reshape2(index, shape=[-1])
    out = b.f.reshape2(b.f.put_along_axis(zeros, flat_index, flat_x, Axis=0, Reduce="assign"), shape=shape)
    if output_shape is None or output_shape.tolist() == shape:
        return out
    paddings = [n for have, want in zip(shape, output_shape.tolist(), strict=True) for n in (0, want - have)]
    return b.f.pad(out, paddings=paddings, pad_value=0.0)
