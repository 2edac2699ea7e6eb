"""Lowers convolutions and pools to the tensor graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from math import prod
from typing import Any

from fluid.ops.conv import conv_geometry, image_axes
from fluid.ops.pool import pool_geometry

from .cores import position_type
from .emitter import BOOL, BYTE, FLOAT, INT32, UBYTE
from .global_pool_lowering import (
    global_pool,
    global_pool_gradient,
    is_global_pool,
    is_pool_of_tiles,
    pool_of_tiles,
    pool_of_tiles_gradient,
)
from .graph import (
    ChannelsFirst,
    Convolved,
    ConvolvedBack,
    FilterGradient,
    GraphNode,
    PackedFilter,
    Pooled,
    PooledBack,
    Positions,
    Shape,
    Windows,
    channels_first,
    channels_last,
    joined,
    mapped,
    plain,
    product,
    reduced,
    reshaped,
    sliced,
    transposed,
)
from .integer_lowering import convolved_bytes, quantized_convolution, shifted, shifted_zero
from .lowering import GraphTensor, NotLowered, Planes, lowers, number_like, only_floats
from .reduction_lowering import is_greatest

_FEW_CHANNELS = 8
"""Channels from which on they fill a vector alone."""
_MOST_CHANNELS = 16
"""The most channels of a group of maxout: each has formulas of its own."""


def channel_axis(tensor: GraphTensor, attrs: dict[str, Any]) -> int:
    """The axis of the channels of images or volumes, by the op's `data_format`."""
    return image_axes(attrs["data_format"], tensor.ndim)[0]


def with_channels_last(node: GraphNode, axis: int) -> GraphNode:
    """Move the channels of images or volumes from an axis to the end."""
    return node if axis == node.ndim - 1 else channels_last(node)


def with_channels_at(axis: int, node: GraphNode) -> GraphTensor:
    """Undo `with_channels_last`."""
    return GraphTensor(node if axis == node.ndim - 1 else channels_first(node))


def shape_channels_last(shape: Shape, axis: int) -> Shape:
    """The shape of images or volumes after `with_channels_last`."""
    return (*shape[:axis], *shape[axis + 1 :], shape[axis])


def _images_of(tensor: GraphTensor, axis: int) -> GraphNode:
    """Images, whose channels are at an axis, as [N, H, W, C]."""
    only_floats(tensor)
    if tensor.ndim != 4:
        raise NotLowered("images of other than two dimensions")
    return with_channels_last(tensor.node, axis)


# -------------------------------------------------------------------------------------------------------- convolutions
def _windows_of_filter(shape: Shape, filter_shape: Shape, attrs: dict[str, Any]) -> Windows:
    """The windows of a filter over images [N, H, W, C] of the given shape."""
    _, pads, dilations = conv_geometry(shape, filter_shape[2:], {**attrs, "data_format": "NHWC"})
    kernel, strides = tuple(filter_shape[2:]), tuple(attrs["strides"])
    return Windows(kernel, strides, tuple(map(tuple, pads)), tuple(dilations), max(attrs["groups"], 1))  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Direct:
    """A convolution of images [N, H, W, C] to images [N, rows, columns, M]."""

    images: Shape
    outputs: Shape
    filter: Shape
    windows: Windows

    def forward(self, image: GraphNode, weights: GraphNode) -> GraphNode:
        return Convolved(self.outputs, image.element, image, self._packed(weights, for_input=False))

    def backward(self, gradient: GraphNode, weights: GraphNode) -> GraphNode:
        """The gradient of the images; `gradient` is the outputs'."""
        return ConvolvedBack(self.images, gradient.element, gradient, self._packed(weights, for_input=True))

    def filter_gradient(self, image: GraphNode, gradient: GraphNode) -> GraphNode:
        return FilterGradient(self.filter, image.element, image, gradient, self.windows)

    def _packed(self, weights: GraphNode, for_input: bool) -> PackedFilter:
        weights = plain(weights)
        return PackedFilter((0,), weights.element, weights, self.windows, (self.images, self.outputs), for_input)


class _AlongRows(_Direct):
    """Windows as wide as the images, as windows over rows [N, 1, H, W * C]: columns become channels."""

    @property
    def _of_rows(self) -> _Direct:
        (count, height, width, channels), (_, rows, _, filters), windows = self.images, self.outputs, self.windows
        return _Direct(
            (count, 1, height, width * channels),
            (count, 1, rows, filters),
            (filters, width * channels, 1, windows.kernel[0]),
            Windows((1, windows.kernel[0]), (1, windows.strides[0]), ((0, 0), windows.pads[0]), (1, windows.dilations[0])),
        )

    def _filter_of_rows(self, weights: GraphNode) -> GraphNode:
        """[M, C, rows, columns] as [M, columns * C, 1, rows]."""
        return reshaped(plain(transposed(weights, (0, 3, 1, 2))), self._of_rows.filter)

    def forward(self, image: GraphNode, weights: GraphNode) -> GraphNode:
        convolution = self._of_rows
        node = convolution.forward(reshaped(image, convolution.images), self._filter_of_rows(weights))
        return reshaped(node, self.outputs)

    def backward(self, gradient: GraphNode, weights: GraphNode) -> GraphNode:
        convolution = self._of_rows
        node = convolution.backward(reshaped(gradient, convolution.outputs), self._filter_of_rows(weights))
        return reshaped(node, self.images)

    def filter_gradient(self, image: GraphNode, gradient: GraphNode) -> GraphNode:
        convolution, (filters, channels, rows, columns) = self._of_rows, self.filter
        node = convolution.filter_gradient(reshaped(image, convolution.images), reshaped(gradient, convolution.outputs))
        return plain(transposed(reshaped(node, (filters, columns, channels, rows)), (0, 2, 3, 1)))


class _OneWindow(_Direct):
    """One window, as large as the image: a product of matrices."""

    def _matrix(self, weights: GraphNode) -> GraphNode:
        """[M, C, rows, columns] as [M, rows * columns * C]."""
        return reshaped(plain(transposed(weights, (0, 2, 3, 1))), (self.filter[0], prod(self.filter[1:])))

    def forward(self, image: GraphNode, weights: GraphNode) -> GraphNode:
        pixels = reshaped(image, (self.images[0], prod(self.images[1:])))
        return reshaped(product(pixels, transposed(self._matrix(weights), (1, 0))), self.outputs)

    def backward(self, gradient: GraphNode, weights: GraphNode) -> GraphNode:
        return reshaped(product(reshaped(gradient, (self.images[0], self.filter[0])), self._matrix(weights)), self.images)

    def filter_gradient(self, image: GraphNode, gradient: GraphNode) -> GraphNode:
        filters, channels, rows, columns = self.filter
        pixels = reshaped(image, (self.images[0], prod(self.images[1:])))
        node = product(transposed(reshaped(gradient, (self.images[0], filters)), (1, 0)), pixels)
        return plain(transposed(reshaped(node, (filters, rows, columns, channels)), (0, 3, 1, 2)))


def convolution_of(images: Shape, outputs: Shape, filter_shape: Shape, attrs: dict[str, Any]) -> _Direct:
    """A convolution by the ops that compute it fastest: windows as wide as the image cover no zeros then."""
    windows = _windows_of_filter(images, filter_shape, attrs)
    is_wide, is_high = (
        windows.groups == 1
        and outputs[axis] == 1
        and windows.kernel[axis - 1] == images[axis]
        and not any(windows.pads[axis - 1])
        for axis in (2, 1)
    )
    kind = (_OneWindow if is_high else _AlongRows) if is_wide and prod(windows.kernel) > 1 else _Direct
    return kind(images, outputs, filter_shape, windows)


@dataclass(frozen=True)
class _PointwiseConvolution:
    """A convolution with one tap, of images [N, C, H, W]: the filter [M, C] times the planes [C, H * W] of each image."""

    images: Shape
    outputs: Shape
    filter: Shape

    @classmethod
    def of(
        cls, planes: Planes, shapes: tuple[Shape, Shape, Shape], attrs: dict[str, Any], *images: GraphTensor
    ) -> _PointwiseConvolution | None:
        """The convolution for the shapes of images, outputs and filter; None if it has more taps, or if images are moved."""
        convolution = cls(*shapes)
        (_, channels, *extents), outputs, filter_shape = shapes
        is_one_tap = tuple(filter_shape[1:]) == (channels, 1, 1) and list(outputs[2:]) == extents
        is_pointwise = is_one_tap and channel_axis(images[0], attrs) == 1 and attrs["strides"] == [1, 1]
        return convolution if is_pointwise and planes.keep(*images) else None

    def forward(self, image: GraphNode, weights: GraphNode) -> GraphTensor:
        return GraphTensor(reshaped(product(self._matrix(weights), _planes(image)), self.outputs))

    def backward(self, gradient: GraphNode, weights: GraphNode) -> GraphTensor:
        """The gradient of the images; `gradient` is the outputs'."""
        return GraphTensor(reshaped(product(transposed(self._matrix(weights), (0, 2, 1)), _planes(gradient)), self.images))

    def filter_gradient(self, image: GraphNode, gradient: GraphNode) -> GraphTensor:
        parts = product(_planes(gradient), transposed(_planes(image), (0, 2, 1)))
        return GraphTensor(reshaped(reduced("sum", parts, [0]), self.filter))

    def _matrix(self, weights: GraphNode) -> GraphNode:
        return reshaped(plain(weights), (1, *self.filter[:2]))


def _planes(image: GraphNode) -> GraphNode:
    return reshaped(image, (*image.shape[:2], prod(image.shape[2:])))


@lowers("conv2d", "depthwise_conv2d")
def conv2d(Input: GraphTensor, Filter: GraphTensor, attrs: dict[str, Any], specs: dict[str, Any], planes: Planes) -> GraphTensor:
    axis = channel_axis(Input, attrs)
    image = _images_of(Input, axis)
    outputs = shape_channels_last(specs["Output"].shape, axis)
    a, b = Input.node.quantized, Filter.node.quantized
    if a is not None and b is not None:
        windows = _windows_of_filter(image.shape, Filter.shape, attrs)
        levels = _images_of(GraphTensor(a.levels), axis)
        of_integers = quantized_convolution(replace(a, levels=levels), b, windows, outputs)
        if of_integers is not None:
            return with_channels_at(axis, of_integers)
    pointwise = _PointwiseConvolution.of(planes, (Input.shape, specs["Output"].shape, Filter.shape), attrs, Input)
    if pointwise is not None:
        return pointwise.forward(Input.node, Filter.node)
    convolution = convolution_of(image.shape, outputs, Filter.shape, attrs)
    return with_channels_at(axis, convolution.forward(image, Filter.node))


_MOST_IN_FLOATS = (1 << 24) // 255**2
"""The most products of bytes, less their zero points, whose sums float32 holds exactly."""


def _floats_less(integers: GraphNode, zero: GraphNode | None) -> GraphNode:
    """Subtract a zero point, one or one for each filter, from integers, in floats."""
    floats = mapped("convert", integers, element=FLOAT)
    if zero is None:
        return floats
    return mapped("sub", floats, mapped("convert", reshaped(zero, (zero.size, 1, 1, 1)), element=FLOAT))


@lowers("conv2d_integer", of_bytes=True)
def conv2d_integer(
    Input: GraphTensor,
    Filter: GraphTensor,
    InputZeroPoint: GraphTensor | None,
    FilterZeroPoint: GraphTensor | None,
    attrs: dict[str, Any],
    specs: dict[str, Any],
) -> GraphTensor:
    axis = channel_axis(Input, attrs)
    outputs = shape_channels_last(specs["Output"].shape, axis)
    is_of_bytes = all(side.node.element in (BYTE, UBYTE) for side in (Input, Filter))
    if not is_of_bytes or not Input.node.size * Filter.node.size * prod(outputs):
        raise NotLowered("a convolution of other integers than bytes")
    if FilterZeroPoint is not None and FilterZeroPoint.node.size != 1 and FilterZeroPoint.shape != (Filter.shape[0], 1, 1, 1):
        raise NotLowered("a zero point for each element of a filter")
    image = with_channels_last(Input.node, axis)
    zeros = [None if zero is None else mapped("convert", zero.node, element=INT32) for zero in (InputZeroPoint, FilterZeroPoint)]
    if attrs["groups"] > 1 and prod(Filter.shape[1:]) <= _MOST_IN_FLOATS:
        floats = [_floats_less(side, zero) for side, zero in zip((image, Filter.node), zeros, strict=True)]
        out = convolution_of(image.shape, outputs, Filter.shape, attrs).forward(*floats)
        return with_channels_at(axis, mapped("convert", out, element=INT32))
    of_image, of_filter = (128 if Input.node.element == BYTE else 0), (0 if Filter.node.element == BYTE else -128)
    out = convolved_bytes(
        shifted(image, of_image, UBYTE),
        shifted_zero(zeros[0], of_image),
        shifted(Filter.node, of_filter, BYTE),
        shifted_zero(zeros[1], of_filter),
        _windows_of_filter(image.shape, Filter.shape, attrs),
        outputs,
    )
    return with_channels_at(axis, out)


def _convolved_back(
    Filter: GraphTensor, gradient: GraphTensor, shape: Shape, attrs: dict[str, Any], planes: Planes
) -> GraphTensor:
    """The gradient of a convolution's input, for images of the given shape, from the gradient of the output."""
    only_floats(gradient)
    pointwise = _PointwiseConvolution.of(planes, (shape, gradient.shape, Filter.shape), attrs, gradient)
    if pointwise is not None:
        return pointwise.backward(gradient.node, Filter.node)
    axis = channel_axis(gradient, attrs)
    source = _images_of(gradient, axis)
    convolution = convolution_of(shape_channels_last(shape, axis), source.shape, Filter.shape, attrs)
    return with_channels_at(axis, convolution.backward(source, Filter.node))


@lowers("conv2d_backprop_input")
def conv2d_backprop_input(
    Filter: GraphTensor, Output: GraphTensor, Like: GraphTensor, attrs: dict[str, Any], planes: Planes
) -> GraphTensor:
    return _convolved_back(Filter, Output, Like.shape, attrs, planes)


@lowers("conv2d_backprop_filter")
def conv2d_backprop_filter(
    Input: GraphTensor, Output: GraphTensor, Like: GraphTensor, attrs: dict[str, Any], planes: Planes
) -> GraphTensor:
    only_floats(Input, Output)
    pointwise = _PointwiseConvolution.of(planes, (Input.shape, Output.shape, Like.shape), attrs, Input, Output)
    if pointwise is not None and Input.shape[0] * prod(Like.shape) <= Input.node.size + Output.node.size:
        return pointwise.filter_gradient(Input.node, Output.node)
    axis = channel_axis(Input, attrs)
    image, gradient = _images_of(Input, axis), _images_of(Output, axis)
    convolution = convolution_of(image.shape, gradient.shape, Like.shape, attrs)
    return GraphTensor(convolution.filter_gradient(image, gradient))


@lowers("conv2d_transpose", "depthwise_conv2d_transpose")
def conv2d_transpose(
    Input: GraphTensor, Filter: GraphTensor, attrs: dict[str, Any], specs: dict[str, Any], planes: Planes
) -> GraphTensor:
    if attrs["padding_algorithm"] == "SAME":
        raise NotLowered("margins that are chosen for another image")
    return _convolved_back(Filter, Input, specs["Output"].shape, attrs, planes)


# --------------------------------------------------------------------------------------------------------------- pools
def _windows_of_pool(extents: Sequence[int], attrs: dict[str, Any]) -> tuple[Windows, tuple[int, int], str]:
    """The windows of a pool, the extents of its output (rows, columns), and its kind."""
    out, sizes, strides, pads = pool_geometry(extents, attrs)
    kind = "max" if attrs["pooling_type"] == "max" else "inside" if attrs["exclusive"] and not attrs["adaptive"] else "average"
    sizes = [size or -(-extent // count) + 1 for size, extent, count in zip(sizes, extents, out, strict=True)]
    return Windows(tuple(sizes), tuple(strides), tuple(map(tuple, pads))), (out[0], out[1]), kind  # type: ignore[arg-type]


def _are_columns_apart(windows: Windows) -> bool:
    """Whether each column of the result is pooled from the same column alone."""
    return windows.kernel[1] == windows.strides[1] == 1 and windows.pads[1] == (0, 0)


def _columns_as_channels(image: GraphNode, windows: Windows) -> GraphNode:
    """Images [N, H, W, C] as [N, H, 1, W * C], if columns are pooled apart and few channels would leave vectors empty."""
    if not _are_columns_apart(windows) or image.shape[3] >= _FEW_CHANNELS:
        return image
    return reshaped(image, (*image.shape[:2], 1, image.shape[2] * image.shape[3]))


def _shape_pooled(image: GraphNode, windows: Windows, out: tuple[int, int]) -> Shape:
    """The shape of the result for images that `_columns_as_channels` gives."""
    columns = image.shape[2] if _are_columns_apart(windows) else out[1]
    return image.shape[0], out[0], columns, image.shape[3]


_FEWEST_TAPS = 9
"""The fewest elements of a window for which pooling along one axis after the other is faster, with few channels."""


@dataclass(frozen=True)
class _AxisByAxis:
    """A pool of images [N, C, H, W] with few channels: along columns, then along rows.

    To the kernels, the elements of the other axis are channels, which are enough to fill vectors.
    """

    images: Shape
    windows: Windows
    out: tuple[int, int]
    kind: str

    @classmethod
    def of(cls, X: GraphTensor, attrs: dict[str, Any]) -> _AxisByAxis | None:
        """The pool; None if another way is faster."""
        if X.ndim != 4 or channel_axis(X, attrs) != 1 or X.shape[1] >= _FEW_CHANNELS or min(X.shape[2:]) < _FEW_CHANNELS:
            return None
        windows, out, kind = _windows_of_pool(X.shape[2:], attrs)
        is_fast = min(windows.kernel) > 1 and prod(windows.kernel) >= _FEWEST_TAPS
        return cls(X.shape, windows, out, kind) if is_fast else None

    def forward(self, X: GraphTensor) -> GraphTensor:
        by_columns = self._pooled(self._turned(self._planes(X.node)), 1)
        return GraphTensor(reshaped(self._pooled(self._turned(by_columns), 0), (*self.images[:2], *self.out)))

    def backward(self, X: GraphTensor, gradient: GraphTensor) -> GraphTensor:
        """The gradient of the images; `gradient` is the outputs'."""
        columns = self._turned(self._planes(X.node))
        rows = self._turned(self._pooled(columns, 1)) if self.kind == "max" else None
        height, width = self.images[2:]
        of_rows = self._back(self._planes(gradient.node), rows, height, 0)
        of_columns = self._back(self._turned(of_rows), columns, width, 1)
        return GraphTensor(reshaped(self._turned(of_columns), self.images))

    def _planes(self, image: GraphNode) -> GraphNode:
        return reshaped(plain(image), (prod(image.shape[:2]), *image.shape[2:]))

    def _turned(self, planes: GraphNode) -> GraphNode:
        """Planes whose rows are columns, and whose columns are rows."""
        return plain(transposed(planes, (0, 2, 1)))

    def _along(self, axis: int) -> Windows:
        windows = self.windows
        return Windows((windows.kernel[axis], 1), (windows.strides[axis], 1), (windows.pads[axis], (0, 0)))

    def _pooled(self, planes: GraphNode, axis: int) -> GraphNode:
        """Pool the rows of planes by the windows of an axis."""
        source = _as_images(planes)
        shape = (source.shape[0], self.out[axis], 1, source.shape[3])
        node = Pooled(shape, source.element, self.kind, source, self._along(axis))
        return reshaped(node, (shape[0], shape[1], shape[3]))

    def _back(self, gradient: GraphNode, planes: GraphNode | None, extent: int, axis: int) -> GraphNode:
        """The gradient of planes with rows of an extent that `_pooled` pools."""
        source, windows, positions = _as_images(gradient), self._along(axis), None
        if self.kind == "max" and planes is not None:
            pooled = _as_images(planes)
            positions = Positions(source.shape, position_type(pooled, source.shape, windows), pooled, windows)
        shape = (source.shape[0], extent, 1, source.shape[3])
        node = PooledBack(shape, source.element, self.kind, source, windows, positions)
        return reshaped(node, (shape[0], shape[1], shape[3]))


def _as_images(planes: GraphNode) -> GraphNode:
    """Planes [M, rows, columns] as images of one column, whose channels are the columns."""
    return reshaped(planes, (*planes.shape[:2], 1, planes.shape[2]))


@lowers("pool2d")
def pool2d(X: GraphTensor, attrs: dict[str, Any]) -> GraphTensor:
    if is_global_pool(X, attrs):
        return global_pool(X, attrs)
    if is_pool_of_tiles(X, attrs):
        return pool_of_tiles(X, attrs)
    only_floats(X)
    by_axes = _AxisByAxis.of(X, attrs)
    if by_axes is not None:
        return by_axes.forward(X)
    axis = channel_axis(X, attrs)
    image = _images_of(X, axis)
    windows, out, kind = _windows_of_pool(image.shape[1:3], attrs)
    source, shape = _columns_as_channels(image, windows), (image.shape[0], *out, image.shape[3])
    node = Pooled(_shape_pooled(source, windows, out), image.element, kind, source, windows)
    return with_channels_at(axis, reshaped(node, shape))


@lowers("pool2d_grad")
def pool2d_grad(X: GraphTensor, dOut: GraphTensor, attrs: dict[str, Any]) -> dict[str, GraphTensor]:
    if is_global_pool(X, attrs):
        return {"X@GRAD": global_pool_gradient(X, dOut, attrs)}
    if is_pool_of_tiles(X, attrs):
        return {"X@GRAD": pool_of_tiles_gradient(X, dOut, attrs)}
    only_floats(X, dOut)
    by_axes = _AxisByAxis.of(X, attrs)
    if by_axes is not None:
        return {"X@GRAD": by_axes.backward(X, dOut)}
    axis = channel_axis(X, attrs)
    image, gradient = _images_of(X, axis), _images_of(dOut, axis)
    windows, out, kind = _windows_of_pool(image.shape[1:3], attrs)
    source, gradient = (_columns_as_channels(node, windows) for node in (image, gradient))
    positions = None
    if kind == "max":
        shape = _shape_pooled(source, windows, out)
        positions = Positions(shape, position_type(source, shape, windows), source, windows)
    node = PooledBack(source.shape, image.element, kind, gradient, windows, positions)
    return {"X@GRAD": with_channels_at(axis, reshaped(node, image.shape))}


@lowers("pool2d_average_back")
def pool2d_average_back(Output: GraphTensor, Like: GraphTensor, attrs: dict[str, Any]) -> GraphTensor:
    return pool2d_grad(Like, Output, {**attrs, "pooling_type": "avg"})["X@GRAD"]


# -------------------------------------------------------------------------------------------------------------- maxima
def maximum(parts: Sequence[GraphNode]) -> GraphNode:
    """The greatest of several tensors, element by element."""
    return reduce(lambda a, b: mapped("max", a, b), parts)


def maximum_back(parts: Sequence[GraphNode], gradient: GraphNode) -> list[GraphNode]:
    """The gradients of tensors from their maximum's: the first of equal elements gets it, or the first NaN."""
    best = list(accumulate(parts, lambda a, b: mapped("max", a, b)))
    zero, gradients = number_like(0.0, gradient), []
    for place, part in enumerate(parts):
        chosen = is_greatest(part, best[-1])
        if place:
            is_first = mapped("not", is_greatest(best[place - 1], best[-1]), element=BOOL)
            chosen = mapped("and", chosen, is_first, element=BOOL)
        gradients.append(mapped("select", chosen, gradient, zero, element=gradient.element))
    return gradients


def _channels_of_groups(X: GraphTensor, groups: int, axis: int) -> list[GraphNode]:
    """For each place in a group of channels, which are at an axis, these channels of images [N, H, W, C]."""
    image = _images_of(X, axis)
    if groups > _MOST_CHANNELS or axis not in (1, 3):
        raise NotLowered("groups of many channels")
    return [sliced(plain(image), 3, place, image.shape[3] // groups, groups) for place in range(groups)]


@lowers("maxout")
def maxout(X: GraphTensor, groups: int, axis: int) -> GraphTensor:
    axis %= X.ndim
    if not isinstance(X.node, ChannelsFirst) and axis < X.ndim - 1:  # reads memory once, in its order
        only_floats(X)
        before, after = X.shape[:axis], X.shape[axis + 1 :]
        parts = reshaped(plain(X.node), (*before, X.shape[axis] // groups, groups, *after))
        return GraphTensor(reshaped(reduced("max", parts, [axis + 1]), (*before, X.shape[axis] // groups, *after)))
    return with_channels_at(axis, maximum(_channels_of_groups(X, groups, axis)))


@lowers("maxout_grad")
def maxout_grad(X: GraphTensor, dOut: GraphTensor, groups: int, axis: int) -> dict[str, GraphTensor]:
    axis %= X.ndim
    gradient = _images_of(dOut, axis)
    parts = maximum_back(_channels_of_groups(X, groups, axis), gradient)
    columns = [reshaped(part, (*part.shape, 1)) for part in parts]
    shape = (*gradient.shape[:3], gradient.shape[3] * groups)
    return {"X@GRAD": with_channels_at(axis, reshaped(joined(columns, 4), shape))}
