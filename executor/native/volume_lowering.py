"""Lowers convolutions and pools of volumes [N, D, H, W, C] to convolutions and pools of images, the planes of the volumes.

A convolution takes the planes under its filter as channels of one image. A pool first pools each plane, then along the depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluid.ops.conv import conv_geometry
from fluid.ops.pool import pool_geometry

from .emitter import DOUBLE
from .global_pool_lowering import global_pool, global_pool_gradient, is_global_pool
from .graph import GraphNode, Shape, broadcast_to, joined, mapped, plain, reshaped, sliced, summed, transposed
from .image_lowering import (
    channel_axis,
    convolution_of,
    maximum,
    maximum_back,
    pool2d,
    pool2d_grad,
    shape_channels_last,
    with_channels_at,
    with_channels_last,
)
from .lowering import GraphTensor, NotLowered, lowers, number_like, only_floats
from .shape_lowering import apart, padded

_MOST_PLANES = 8
"""The most planes under a window: native code has formulas for each of them."""


def _volumes_of(tensor: GraphTensor, axis: int) -> GraphNode:
    """Volumes, whose channels are at an axis, as [N, D, H, W, C]."""
    only_floats(tensor)
    if not tensor.node.size:
        raise NotLowered("volumes without elements")
    return with_channels_last(tensor.node, axis)


def _of_images(attrs: dict[str, Any], pads: Sequence[tuple[int, int]], **changes: Any) -> dict[str, Any]:
    """Convert the attributes of an op on volumes to attributes of an op on images [N, H, W, C]."""
    return {
        **attrs,
        "strides": list(attrs["strides"][1:]),
        "paddings": [pad for pair in pads[1:] for pad in pair],
        "padding_algorithm": "EXPLICIT",
        "data_format": "NHWC",
        **changes,
    }


def _planes(node: GraphNode) -> GraphNode:
    """The planes of volumes [N, D, ...] as images [N * D, ...]."""
    return reshaped(plain(node), (node.shape[0] * node.shape[1], *node.shape[2:]))


# --------------------------------------------------------------------------------------------------- windows along depth
@dataclass(frozen=True)
class _Depth:
    """Windows along the depth of volumes.

    Attributes:
        extent: the depth of the input.
        out: the depth of the output, the number of windows.
        taps: the number of planes of a window.
        stride: the distance of neighbouring windows.
        pad: the first window begins so many planes before the input.
        dilation: the distance of neighbouring taps.
    """

    extent: int
    out: int
    taps: int
    stride: int
    pad: int
    dilation: int = 1

    def covered(self, tap: int) -> tuple[range, range]:
        """The windows that have a tap inside the input, and the planes that the tap covers."""
        first = tap * self.dilation - self.pad
        start = min(max(-(first // self.stride), 0), self.out)
        stop = max(min((self.extent - 1 - first) // self.stride + 1, self.out), start)
        return range(start, stop), range(first + start * self.stride, first + stop * self.stride, self.stride)

    def gather(self, node: GraphNode, tap: int, number: float) -> GraphNode:
        """Gather the plane under a tap of each window; planes outside the input are filled with a number."""
        outputs, places = self.covered(tap)
        if not outputs:
            return broadcast_to(number_like(number, node), (node.shape[0], self.out, *node.shape[2:]))
        cut = sliced(plain(node), 1, places.start, len(places), places.step)
        return _along_depth(cut, outputs.start, self.out - outputs.stop, number)

    def scatter(self, node: GraphNode, tap: int) -> GraphNode:
        """Scatter the values of a tap of each window to the planes under it; the other planes are 0."""
        outputs, places = self.covered(tap)
        if not outputs:
            return broadcast_to(number_like(0.0, node), (node.shape[0], self.extent, *node.shape[2:]))
        cut = apart(sliced(plain(node), 1, outputs.start, len(outputs)), 1, self.stride)
        return _along_depth(cut, places.start, self.extent - places.start - cut.shape[1], 0.0)

    def counts(self) -> list[int]:
        """The number of taps of each window that are inside the input."""
        return [sum(output in self.covered(tap)[0] for tap in range(self.taps)) for output in range(self.out)]


def _along_depth(node: GraphNode, before: int, after: int, number: float) -> GraphNode:
    return padded(node, [(0, 0), (before, after), *[(0, 0)] * (node.ndim - 2)], number)


# -------------------------------------------------------------------------------------------------------- convolutions
class _VolumeConvolution:
    """A convolution of volumes.

    Args:
        shape, out: the shapes of input and output, with channels last.
        filter_shape: [M, C / groups, depth, rows, columns].
    """

    def __init__(self, shape: Shape, out: Shape, filter_shape: Shape, attrs: dict[str, Any]) -> None:
        _, pads, dilations = conv_geometry(shape, filter_shape[2:], {**attrs, "data_format": "NDHWC"})
        self.shape, self.out, self.filter, self.groups = shape, out, filter_shape, max(attrs["groups"], 1)
        filters, channels, taps, *kernel = filter_shape
        self.depth = _Depth(shape[1], out[1], taps, attrs["strides"][0], pads[0][0], dilations[0])
        if taps > _MOST_PLANES:
            raise NotLowered("filters of many planes")
        images, outputs = ((volume[0] * out[1], *volume[2:4]) for volume in (shape, out))
        self.filter_of_images = (filters, taps * channels, *kernel)
        attrs = _of_images(attrs, pads, dilations=dilations[1:])
        self.images = convolution_of((*images, taps * shape[4]), (*outputs, filters), self.filter_of_images, attrs)

    def _under_filter(self, volume: GraphNode) -> GraphNode:
        """The planes under the filter as channels of images; the channels of a group lie together."""
        count, _, height, width, channels = self.shape
        shape = (count, self.depth.out, height, width, self.groups, 1, channels // self.groups)
        planes = [reshaped(self.depth.gather(volume, tap, 0.0), shape) for tap in range(self.depth.taps)]
        return reshaped(joined(planes, 5), self.images.images)

    def _filter(self, weights: GraphNode) -> GraphNode:
        return reshaped(plain(transposed(weights, (0, 2, 1, 3, 4))), self.filter_of_images)

    def forward(self, volume: GraphNode, weights: GraphNode) -> GraphNode:
        return reshaped(plain(self.images.forward(self._under_filter(volume), self._filter(weights))), self.out)

    def backward(self, gradient: GraphNode, weights: GraphNode) -> GraphNode:
        """The gradient of the volumes; `gradient` is the outputs'."""
        count, _, height, width, channels = self.shape
        images = self.images.backward(_planes(gradient), self._filter(weights))
        split = (count, self.depth.out, height, width, self.groups, self.depth.taps, channels // self.groups)
        parts = [sliced(reshaped(plain(images), split), 5, tap, 1) for tap in range(self.depth.taps)]
        shape = (count, self.depth.out, height, width, channels)
        return summed([self.depth.scatter(reshaped(plain(part), shape), tap) for tap, part in enumerate(parts)])

    def filter_gradient(self, volume: GraphNode, gradient: GraphNode) -> GraphNode:
        node = self.images.filter_gradient(self._under_filter(volume), _planes(gradient))
        filters, channels, taps, *kernel = self.filter
        return plain(transposed(reshaped(node, (filters, taps, channels, *kernel)), (0, 2, 1, 3, 4)))


@lowers("conv3d")
def conv3d(Input: GraphTensor, Filter: GraphTensor, attrs: dict[str, Any], specs: dict[str, Any]) -> GraphTensor:
    axis = channel_axis(Input, attrs)
    volume, out = _volumes_of(Input, axis), shape_channels_last(specs["Output"].shape, axis)
    return with_channels_at(axis, _VolumeConvolution(volume.shape, out, Filter.shape, attrs).forward(volume, Filter.node))


@lowers("conv3d_backprop_input")
def conv3d_backprop_input(Filter: GraphTensor, Output: GraphTensor, Like: GraphTensor, attrs: dict[str, Any]) -> GraphTensor:
    return _convolved_back(Filter, Output, Like.shape, attrs)


def _convolved_back(Filter: GraphTensor, gradient: GraphTensor, shape: Shape, attrs: dict[str, Any]) -> GraphTensor:
    """The gradient of a convolution's input, for volumes of the given shape, from the gradient of the output."""
    axis = channel_axis(gradient, attrs)
    volume = _volumes_of(gradient, axis)
    convolution = _VolumeConvolution(shape_channels_last(shape, axis), volume.shape, Filter.shape, attrs)
    return with_channels_at(axis, convolution.backward(volume, Filter.node))


@lowers("conv3d_backprop_filter")
def conv3d_backprop_filter(Input: GraphTensor, Output: GraphTensor, Like: GraphTensor, attrs: dict[str, Any]) -> GraphTensor:
    axis = channel_axis(Input, attrs)
    volume, gradient = _volumes_of(Input, axis), _volumes_of(Output, axis)
    convolution = _VolumeConvolution(volume.shape, gradient.shape, Like.shape, attrs)
    return GraphTensor(convolution.filter_gradient(volume, gradient))


@lowers("conv3d_transpose")
def conv3d_transpose(Input: GraphTensor, Filter: GraphTensor, attrs: dict[str, Any], specs: dict[str, Any]) -> GraphTensor:
    if attrs["padding_algorithm"] == "SAME":
        raise NotLowered("margins that are chosen for another volume")
    return _convolved_back(Filter, Input, specs["Output"].shape, attrs)


# --------------------------------------------------------------------------------------------------------------- pools
class _VolumePool:
    """A pool of volumes.

    Args:
        shape: the shape of the input, with channels last.
    """

    def __init__(self, shape: Shape, attrs: dict[str, Any]) -> None:
        out, sizes, strides, pads = pool_geometry(shape[1:4], attrs)
        self.is_max = attrs["pooling_type"] == "max"
        self.counts_inside = attrs["exclusive"] and not attrs["adaptive"]
        if not all(sizes) or sizes[0] > _MOST_PLANES or (attrs["ceil_mode"] and not (self.is_max or self.counts_inside)):
            raise NotLowered("windows of many planes, or of different sizes")
        self.depth = _Depth(shape[1], out[0], sizes[0], strides[0], pads[0][0])
        self.attrs = _of_images({**attrs, "strides": strides}, pads, ksize=sizes[1:], global_pooling=False, adaptive=False)
        self.shape = shape

    def pool_planes(self, volume: GraphNode) -> GraphNode:
        """Pool each plane of volumes: [N, D, rows, columns, C]."""
        pooled = pool2d(GraphTensor(_planes(volume)), self.attrs).node
        return reshaped(plain(pooled), (*self.shape[:2], *pooled.shape[1:]))

    def forward(self, volume: GraphNode) -> GraphNode:
        planes = self._planes_under_taps(self.pool_planes(volume))
        if self.is_max:
            maxima = maximum(planes)
            return maxima if all(self.depth.counts()) else mapped("max", maxima, self._least_maxima(maxima))
        return mapped("mul", summed(planes), self._shares(planes[0]))

    def backward(self, volume: GraphNode, gradient: GraphNode) -> GraphNode:
        """The gradient of the volumes; `gradient` is the outputs'."""
        if self.is_max:
            planes = self.pool_planes(volume)
            above_padding = mapped("max", planes, number_like(_lowest(planes), planes))
            parts = maximum_back(self._planes_under_taps(above_padding), gradient)
        else:
            parts = [mapped("mul", gradient, self._shares(gradient))] * self.depth.taps
        of_planes = summed([self.depth.scatter(part, tap) for tap, part in enumerate(parts)])
        back: Callable[..., Any] = pool2d_grad
        images = back(GraphTensor(_planes(volume)), GraphTensor(_planes(of_planes)), self.attrs)["X@GRAD"].node
        return reshaped(plain(images), self.shape)

    def _planes_under_taps(self, planes: GraphNode) -> list[GraphNode]:
        number = -math.inf if self.is_max else 0.0
        return [self.depth.gather(planes, tap, number) for tap in range(self.depth.taps)]

    def _least_maxima(self, like: GraphNode) -> GraphNode:
        """The lowest finite number for each window outside the input, -infinity for others."""
        numbers = [-math.inf if count else _lowest(like) for count in self.depth.counts()]
        return joined([broadcast_to(number_like(number, like), (1, 1, 1, 1, 1)) for number in numbers], 1)

    def _shares(self, like: GraphNode) -> GraphNode:
        """One over the number of planes of each window; with `counts_inside`, only planes inside the input count."""
        counts = self.depth.counts() if self.counts_inside else [self.depth.taps] * self.depth.out
        if len(set(counts)) == 1:
            return number_like(1.0 / counts[0], like)
        return joined([broadcast_to(number_like(1.0 / max(count, 1), like), (1, 1, 1, 1, 1)) for count in counts], 1)


def _lowest(like: GraphNode) -> float:
    """The lowest finite number of the type of a node."""
    return float(np.finfo(np.float64 if like.element is DOUBLE else np.float32).min)


@lowers("pool3d")
def pool3d(X: GraphTensor, attrs: dict[str, Any]) -> GraphTensor:
    if is_global_pool(X, attrs):
        return global_pool(X, attrs)
    axis = channel_axis(X, attrs)
    volume = _volumes_of(X, axis)
    return with_channels_at(axis, _VolumePool(volume.shape, attrs).forward(volume))


@lowers("pool3d_grad")
def pool3d_grad(X: GraphTensor, dOut: GraphTensor, attrs: dict[str, Any]) -> dict[str, GraphTensor]:
    if is_global_pool(X, attrs):
        return {"X@GRAD": global_pool_gradient(X, dOut, attrs)}
    axis = channel_axis(X, attrs)
    volume, gradient = _volumes_of(X, axis), _volumes_of(dOut, axis)
    return {"X@GRAD": with_channels_at(axis, _VolumePool(volume.shape, attrs).backward(volume, gradient))}
