"""Write convolutions and pooling. Gradients of convolutions are convolutions with other arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluid.ops.conv import conv_geometry, image_axes
from fluid.ops.pool import pool_geometry, windows_of
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, is_number, without_symbols


def channels_second(g: OnnxGraph, x: OnnxTensor, data_format: str) -> OnnxTensor:
    """Move the channels of images to the second dimension."""
    channel, spatial = image_axes(data_format, x.ndim)
    return x if channel == 1 else g.transpose(x, [0, channel, *spatial])


def channels_back(g: OnnxGraph, x: OnnxTensor, data_format: str) -> OnnxTensor:
    """Undo `channels_second`."""
    channel, _ = image_axes(data_format, x.ndim)
    return x if channel == 1 else g.transpose(x, [0, *range(2, x.ndim), 1])


# -------------------------------------------------------------------------------------------------------- convolutions
class ConvGeometry:
    """The arguments of a convolution of images [N, C, ...] of this shape."""

    def __init__(self, image: tuple[int, ...], kernel: Sequence[int], attrs: Mapping[str, Any]) -> None:
        second = {**attrs, "data_format": "NCHW"}
        self.same = attrs["padding_algorithm"] == "SAME" and -1 in image[2:]
        self.out, self.pads, self.dilations = conv_geometry(image, kernel, second)
        self.strides, self.kernel, self.groups = list(attrs["strides"]), list(kernel), max(attrs["groups"], 1)

    @property
    def arguments(self) -> dict[str, Any]:
        shared: dict[str, Any] = {"strides": self.strides, "dilations": self.dilations, "group": self.groups}
        if self.same:
            return {**shared, "auto_pad": "SAME_UPPER"}
        return {**shared, "pads": [before for before, _ in self.pads] + [after for _, after in self.pads]}

    def require_static_padding(self) -> None:
        """`NotExported` if the padding depends on sizes that are known only at run time."""
        if self.same:
            raise NotExported(
                "the gradient of a convolution with the padding SAME of images whose size is known only at run time"
            )


def _kernel_of(Filter: OnnxTensor) -> list[int]:
    if -1 in Filter.shape[2:]:
        raise NotExported("a filter whose size is known only at run time")
    return list(Filter.shape[2:])


def _conv(g: OnnxGraph, x: OnnxTensor, w: OnnxTensor, geometry: ConvGeometry) -> OnnxTensor:
    return g.sized_node("Conv", [x, w], x.dtype, _sizes_of(x, w, geometry), **geometry.arguments)


def _sizes_of(x: OnnxTensor, w: OnnxTensor, geometry: ConvGeometry) -> tuple[int, ...]:
    """The sizes of a convolution."""
    return x.sizes[0], w.sizes[0], *geometry.out


@exports("conv2d", "depthwise_conv2d", "conv3d")
def conv(g: OnnxGraph, Input: OnnxTensor, Filter: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    x = channels_second(g, Input, attrs["data_format"])
    return channels_back(g, _conv(g, x, Filter, ConvGeometry(x.shape, _kernel_of(Filter), attrs)), attrs["data_format"])


@exports("conv2d_integer")
def conv_of_integers(
    g: OnnxGraph,
    Input: OnnxTensor,
    Filter: OnnxTensor,
    InputZeroPoint: OnnxTensor | None,
    FilterZeroPoint: OnnxTensor | None,
    attrs: dict[str, Any],
) -> OnnxTensor:
    """A ConvInteger, less the sums of windows times the zero points of filters: runtimes take one such zero point alone."""
    x = channels_second(g, Input, attrs["data_format"])
    geometry = ConvGeometry(x.shape, _kernel_of(Filter), attrs)
    zero = [] if InputZeroPoint is None else [g.reshape(InputZeroPoint, [], ())]

    def convolved(w: OnnxTensor) -> OnnxTensor:
        no_zero = [g.constant(np.zeros((), w.dtype.numpy))] if zero else []
        sizes = _sizes_of(x, w, geometry)
        return g.sized_node("ConvInteger", [x, w, *zero, *no_zero], VarType.INT32, sizes, **geometry.arguments)

    out = convolved(Filter)
    if FilterZeroPoint is not None:
        less = g.cast(g.reshape(FilterZeroPoint, [-1, 1, 1], (-1, 1, 1)), VarType.INT32)
        out = g.binary("Sub", out, g.binary("Mul", convolved(g.filled(g.dims(Filter), 1, Filter.spec)), less))
    return channels_back(g, out, attrs["data_format"])


def _transposed(
    g: OnnxGraph, y: OnnxTensor, w: OnnxTensor, like: OnnxTensor | None, sizes: Sequence[int], geometry: ConvGeometry
) -> OnnxTensor:
    """The transpose of a convolution: from y to images of spatial sizes; unknown sizes come from `like`."""
    channels = w.sizes[1] * geometry.groups if is_number(w.sizes[1]) else -1
    arguments = geometry.arguments
    spatial = list(range(2, y.ndim))
    least = [
        -1 if size < 0 else (size - 1) * stride + dilation * (window - 1) + 1
        for size, stride, dilation, window in zip(y.shape[2:], geometry.strides, geometry.dilations, geometry.kernel, strict=True)
    ]
    if -1 not in (*least, *sizes):
        extra = [size - full_size + sum(pad) for size, full_size, pad in zip(sizes, least, geometry.pads, strict=True)]
        if all(
            0 <= extra_size < max(stride, dilation)
            for extra_size, stride, dilation in zip(extra, geometry.strides, geometry.dilations, strict=True)
        ):
            shape = (y.sizes[0], channels, *sizes)
            return g.sized_node("ConvTranspose", [y, w], y.dtype, shape, output_padding=extra, **arguments)
    # Transpose without padding, then cut out the image.
    arguments["pads"] = [0] * (2 * len(spatial))
    full_output = g.sized_node("ConvTranspose", [y, w], y.dtype, (y.sizes[0], channels, *least), **arguments)
    end_padding = [stride - 1 + sum(pad) for stride, pad in zip(geometry.strides, geometry.pads, strict=True)]
    if -1 not in (*least, *sizes):
        end_padding = [max(size + pad[0] - n, 0) for size, pad, n in zip(sizes, geometry.pads, least, strict=True)]
    if any(end_padding):
        pads = g.ints(*[0] * (2 + len(spatial)), 0, 0, *end_padding)
        full_output = g.sized_node(
            "Pad",
            [full_output, pads],
            y.dtype,
            (y.sizes[0], channels, *(-1 if n < 0 else n + m for n, m in zip(least, end_padding, strict=True))),
        )
    starts = [before for before, _ in geometry.pads]
    if -1 not in sizes:
        ends = [start + size for start, size in zip(starts, sizes, strict=True)]
        return g.slice(full_output, spatial, starts, ends)
    assert like is not None
    dims = g.slice(g.dims(like), [0], [2], [2 + len(spatial)])
    bounds = [full_output, g.ints(*starts), g.binary("Add", dims, g.ints(*starts)), g.ints(*spatial)]
    return g.sized_node("Slice", bounds, y.dtype, (y.sizes[0], channels, *like.sizes[2:]))


def _shape_second(like: OnnxTensor, data_format: str) -> OnnxTensor:
    """Move the channels second in a tensor that only stands for a shape."""
    channel, spatial = image_axes(data_format, like.ndim)
    if channel == 1:
        return like
    return like.graph.transpose(like, [0, channel, *spatial])


@exports("conv2d_backprop_input", "conv3d_backprop_input")
def conv_backprop_input(
    g: OnnxGraph, Filter: OnnxTensor, Output: OnnxTensor, Like: OnnxTensor, attrs: dict[str, Any]
) -> OnnxTensor:
    like, y = _shape_second(Like, attrs["data_format"]), channels_second(g, Output, attrs["data_format"])
    geometry = ConvGeometry(like.shape, _kernel_of(Filter), attrs)
    geometry.require_static_padding()
    return channels_back(g, _transposed(g, y, Filter, like, like.shape[2:], geometry), attrs["data_format"])


@exports("conv2d_backprop_filter", "conv3d_backprop_filter")
def conv_backprop_filter(
    g: OnnxGraph, Input: OnnxTensor, Output: OnnxTensor, Like: OnnxTensor, attrs: dict[str, Any]
) -> OnnxTensor:
    """Convolve the image, with its channels as the batch, with the gradient; strides and dilations swap."""
    x, y = (channels_second(g, tensor, attrs["data_format"]) for tensor in (Input, Output))
    kernel = _kernel_of(Like)
    geometry = ConvGeometry(x.shape, kernel, attrs)
    geometry.require_static_padding()
    groups, places = geometry.groups, list(range(2, x.ndim))
    turned = g.transpose(x, [1, 0, *places])  # [C, N, ...]
    if groups > 1:
        channels, batch = g.size(x, 1), g.size(x, 0)
        if not isinstance(channels, int):
            raise NotExported("groups of channels whose number is known only at run time")
        spatial = g.sizes_of(x)[2:]
        parts = g.reshape(turned, [groups, channels // groups, batch, *spatial])
        parts = g.transpose(parts, [1, 0, 2, *(place + 1 for place in places)])
        turned = g.reshape(parts, [channels // groups, g.product_of([groups, batch]), *spatial])
    weights = g.transpose(y, [1, 0, *places])  # [M, N, ...]
    pads = [before for before, _ in geometry.pads] + [after for _, after in geometry.pads]
    product = g.sized_node(
        "Conv",
        [turned, weights],
        x.dtype,
        (turned.sizes[0], weights.sizes[0], *[-1] * len(places)),
        strides=geometry.dilations,
        dilations=geometry.strides,
        pads=pads,
        group=groups,
    )
    cut = g.slice(product, places, [0] * len(places), kernel)
    cut.sizes = (*cut.sizes[:2], *kernel)
    cut.spec = cut.spec.with_shape((*cut.shape[:2], *kernel))
    return g.transpose(cut, [1, 0, *places])


@exports("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose")
def conv_transpose(g: OnnxGraph, Input: OnnxTensor, Filter: OnnxTensor, attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    x = channels_second(g, Input, attrs["data_format"])
    out = specs["Output"].shape
    _, spatial = image_axes(attrs["data_format"], x.ndim)
    sizes = list(without_symbols(out[axis] for axis in spatial))
    # The padding SAME refers to a convolution of Input.
    geometry = ConvGeometry(x.shape, _kernel_of(Filter), attrs)
    geometry.require_static_padding()
    if -1 in sizes:
        arguments = geometry.arguments
        padding = list(attrs["output_padding"]) or [0] * len(sizes)
        if attrs["output_size"]:
            raise NotExported("an output_size for images whose size is known only at run time")
        channels = Filter.shape[1] * geometry.groups
        y = g.sized_node(
            "ConvTranspose", [x, Filter], x.dtype, (x.sizes[0], channels, *sizes), output_padding=padding, **arguments
        )
        return channels_back(g, y, attrs["data_format"])
    return channels_back(g, _transposed(g, x, Filter, None, sizes, geometry), attrs["data_format"])


# -------------------------------------------------------------------------------------------------------------- pooling
class Window:
    """The windows along one axis: the range of elements that each covers."""

    def __init__(self, size: int, out: int, window: int, stride: int, pad: tuple[int, int]) -> None:
        self.size, self.out = size, out
        if window == 0:  # adaptive, of different sizes
            self.spans = [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]
            self.counts = [end - start for start, end in self.spans]
            return
        starts = [i * stride - pad[0] for i in range(out)]
        self.spans = [(max(start, 0), min(start + window, size)) for start in starts]
        self.counts = [min(start + window, size + pad[1]) - start for start in starts]

    def weights(self, exclusive: bool, dtype: Any) -> Any:
        """The averaging matrix [out, size]."""
        matrix = np.zeros((self.out, self.size), dtype)
        for row, ((start, end), count) in enumerate(zip(self.spans, self.counts, strict=True)):
            divisor = end - start if exclusive else count
            matrix[row, start:end] = 1 / divisor if divisor > 0 else 0
        return matrix

    def places(self) -> Any:
        """The index of each element of each window, [out, window]; shorter windows repeat their last element."""
        widest = max(end - start for start, end in self.spans)
        return np.array([[min(start + i, end - 1) for i in range(widest)] for start, end in self.spans])


class Pooling:
    """The windows of pooling images [N, C, ...]."""

    def __init__(self, x: OnnxTensor, attrs: Mapping[str, Any]) -> None:
        second = {**attrs, "data_format": "NCHW"}
        self.sizes = list(x.shape[2:])
        self.out, self.windows, self.strides, self.pads = pool_geometry(self.sizes, second)
        self.is_static = -1 not in self.sizes
        self.is_global = bool(attrs["global_pooling"] or (attrs["adaptive"] and set(attrs["ksize"]) == {1}))
        self.ceil, self.same = attrs["ceil_mode"], attrs["padding_algorithm"] == "SAME"

    @property
    def even(self) -> bool:
        """Whether all windows of an axis have one size."""
        return 0 not in self.windows

    def axes(self) -> list[Window]:
        if not self.is_static:
            raise NotExported("such pooling of images whose size is known only at run time")
        return [
            Window(*axis_arguments)
            for axis_arguments in zip(self.sizes, self.out, self.windows, self.strides, self.pads, strict=True)
        ]

    def arguments(self) -> dict[str, Any] | None:
        """The attributes of ONNX's pooling, if it pads and counts as Fluid does; else None."""
        if not self.even or (not self.is_static and (self.is_global or -1 in self.windows or self.same)):
            return None
        arguments: dict[str, Any] = {"kernel_shape": self.windows, "strides": self.strides}
        before, after = [pad[0] for pad in self.pads], [pad[1] for pad in self.pads]
        if self.is_static:
            after = [
                max((out - 1) * stride + window - size - low, 0)
                for out, stride, window, size, low in zip(self.out, self.strides, self.windows, self.sizes, before, strict=True)
            ]
        elif self.ceil:
            arguments["ceil_mode"] = 1
        if any(pad >= window for pad, window in zip(before + after, self.windows * 2, strict=True)):
            return None
        return {**arguments, "pads": before + after}


def _pool_sizes(x: OnnxTensor, pooling: Pooling) -> tuple[int, ...]:
    return (*x.sizes[:2], *pooling.out)


def _windowed(g: OnnxGraph, x: OnnxTensor, pooling: Pooling) -> OnnxTensor:
    """The elements of each window along a new last dimension: [N, C, out..., elements]."""
    axes = pooling.axes()
    for number, axis in enumerate(axes):
        x = g.gather(x, g.constant(axis.places()), 2 + 2 * number)
    count = len(axes)
    outs, inner = [2 + 2 * number for number in range(count)], [3 + 2 * number for number in range(count)]
    x = g.transpose(x, [0, 1, *outs, *inner])
    sizes = g.sizes_of(x)
    return g.reshape(x, [*sizes[: 2 + count], g.product_of(sizes[2 + count :])])


def _max_pool(g: OnnxGraph, x: OnnxTensor, pooling: Pooling) -> OnnxTensor:
    arguments = pooling.arguments()
    if arguments is not None:
        return g.sized_node("MaxPool", [x], x.dtype, _pool_sizes(x, pooling), **arguments)
    if pooling.is_global:
        return g.reduce("ReduceMax", x, range(2, x.ndim), keep=True)
    return g.reduce("ReduceMax", _windowed(g, x, pooling), [-1])


def _average(g: OnnxGraph, x: OnnxTensor, pooling: Pooling, exclusive: bool) -> OnnxTensor:
    if pooling.is_global:
        return g.reduce("ReduceMean", x, range(2, x.ndim), keep=True)
    arguments = pooling.arguments()
    padded = any(map(any, pooling.pads)) or pooling.ceil
    if arguments is not None and (exclusive or not padded):
        return g.sized_node("AveragePool", [x], x.dtype, _pool_sizes(x, pooling), count_include_pad=0, **arguments)
    if arguments is not None and not pooling.ceil:
        return g.sized_node("AveragePool", [x], x.dtype, _pool_sizes(x, pooling), count_include_pad=1, **arguments)
    for number, axis in enumerate(pooling.axes()):
        x = _along(g, x, axis.weights(exclusive, x.dtype.numpy), 2 + number)
    return x


def _along(g: OnnxGraph, x: OnnxTensor, matrix: Any, axis: int) -> OnnxTensor:
    """Multiply x by a matrix [new, old] along an axis."""
    order = [*(place for place in range(x.ndim) if place != axis), axis]
    product = g.matmul(g.transpose(x, order), g.constant(np.ascontiguousarray(matrix.T)))
    return g.transpose(product, [order.index(place) for place in range(x.ndim)])


@exports("pool2d", "pool3d")
def pool(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    x = channels_second(g, X, attrs["data_format"])
    pooling = Pooling(x, attrs)
    pooled = _max_pool(g, x, pooling) if attrs["pooling_type"] == "max" else _average(g, x, pooling, attrs["exclusive"])
    return channels_back(g, pooled, attrs["data_format"])


@exports("pool2d_average_back", "pool3d_average_back")
def average_back(g: OnnxGraph, Output: OnnxTensor, Like: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    y, like = channels_second(g, Output, attrs["data_format"]), _shape_second(Like, attrs["data_format"])
    pooling = Pooling(like, attrs)
    if pooling.is_global and not pooling.is_static:
        count = g.as_size(g.product_of(g.sizes_of(like)[2:]))
        y = g.expand_as(g.binary("Div", y, g.cast(g.squeeze(count, 0), y.dtype)), like)
        return channels_back(g, y, attrs["data_format"])
    for number, axis in enumerate(pooling.axes()):
        y = _along(g, y, axis.weights(attrs["exclusive"] or pooling.is_global, y.dtype.numpy).T, 2 + number)
    return channels_back(g, y, attrs["data_format"])


def _max_index(g: OnnxGraph, x: OnnxTensor, pooling: Pooling) -> OnnxTensor:
    """The place of the first maximum of each window in its image, counted row by row."""
    arguments = pooling.arguments()
    if arguments is not None:
        spec = Spec(without_symbols(_pool_sizes(x, pooling)), x.dtype)
        _, index = g.nodes("MaxPool", [x], [spec, spec.with_dtype(VarType.INT64)], **arguments)
        index.sizes = _pool_sizes(x, pooling)
        places = g.product_of(g.sizes_of(x)[2:])
        return g.binary("Mod", index, g.as_size(places))
    axes = pooling.axes()
    best = g.sized_node("ArgMax", [_windowed(g, x, pooling)], VarType.INT64, _pool_sizes(x, pooling), axis=-1, keepdims=0)
    table = np.zeros((), np.int64)
    for axis in axes:  # [out, ..., window, ...]
        places = axis.places()
        done = table.ndim // 2
        table = table.reshape(*table.shape[:done], 1, *table.shape[done:], 1) * axis.size
        shape = [1] * table.ndim
        shape[done], shape[-1] = places.shape
        table = table + places.reshape(shape)
    count = len(axes)
    flat = table.reshape(*table.shape[:count], -1)
    rows = np.arange(flat[..., 0].size).reshape(flat.shape[:-1]) * flat.shape[-1]
    return g.gather(g.constant(flat.reshape(-1)), g.binary("Add", best, g.constant(rows)))


@exports("pool2d_index", "pool3d_index")
def pool_index(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    x = channels_second(g, X, attrs["data_format"])
    return channels_back(g, _max_index(g, x, Pooling(x, attrs)), attrs["data_format"])


@exports("max_pool2d_with_index", "max_pool3d_with_index")
def max_pool_with_index(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    pooling = Pooling(X, windows_of(attrs, X.ndim - 2))
    return {"Out": _max_pool(g, X, pooling), "Mask": g.cast(_max_index(g, X, pooling), VarType.INT32)}


def _image_places(g: OnnxGraph, x: OnnxTensor, index: OnnxTensor) -> tuple[OnnxTensor, OnnxTensor]:
    """Flatten the spatial dimensions of images and indices."""
    return tuple(  # type: ignore[return-value]
        g.reshape(tensor, [*g.sizes_of(tensor)[:2], g.product_of(g.sizes_of(tensor)[2:])]) for tensor in (x, index)
    )


@exports("unpool", "unpool3d")
def unpool(g: OnnxGraph, X: OnnxTensor, Indices: OnnxTensor, OutputSize: list[OnnxTensor] | None, specs: Any) -> OnnxTensor:
    sizes: list[Any] = list(specs["Out"].shape[2:])
    if OutputSize:
        flat = g.concat([g.reshape(g.cast(part, VarType.INT64), [-1]) for part in OutputSize], 0)
        sizes = [g.slice(flat, [0], [place], [place + 1]) for place in range(len(sizes))]
    x, index = _image_places(g, X, Indices)
    count = g.product_of(sizes)
    extent = count if isinstance(count, int) else -1
    zeros = g.filled(g.joined_sizes([*g.sizes_of(x)[:2], count]), 0, Spec((*x.shape[:2], extent), x.dtype))
    result = g.node("ScatterElements", [zeros, g.cast(index, VarType.INT64), x], zeros, axis=2)
    return g.reshape(result, [*g.sizes_of(X)[:2], *sizes])


@exports("unpool_back", "unpool3d_back")
def unpool_back(g: OnnxGraph, Output: OnnxTensor, Indices: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    """If several elements have one index, only the last gets the gradient, as `unpool` keeps the last."""
    y, index = _image_places(g, Output, Indices)
    index = g.cast(index, VarType.INT64)
    numbers = g.expand(g.unsqueeze(g.arange(g.size(index, 2)), 0, 1), g.dims(index), index.sizes)
    initial = g.filled(g.dims(y), -1, Spec(y.shape, VarType.INT64))
    last_writers = g.node("ScatterElements", [initial, index, numbers], initial, axis=2)
    winner = g.sized_node("GatherElements", [last_writers, index], VarType.INT64, index.sizes, axis=2)
    values = g.sized_node("GatherElements", [y, index], y.dtype, index.sizes, axis=2)
    result = g.where(g.binary("Equal", winner, numbers), values, g.number(0, y))
    return g.reshape_as(result, Like)
