"""Write ops on images: shuffling, patches, cropping, resizing, sampling by a grid."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from fluid.executor.kernels.vision import interpolation_weights
from fluid.ops.shapes import scaled
from fluid.ops.vision import four_paddings, interp_size, patch_counts, resized_axes, scale_factors
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size
from .images import _along, channels_back, channels_second
from .making import as_vector, filled, joined_vector, requested_shape
from .shaping import add_rows, pad_node


# ------------------------------------------------------------------------------------------------- channels and places
def _require_static(x: OnnxTensor, *axes: int) -> None:
    if any(x.shape[axis] < 0 for axis in axes):
        raise NotExported("images whose size is known only at run time")


def _divided(g: OnnxGraph, size: Size, by: int) -> Size:
    return size // by if isinstance(size, int) else g.binary("Div", size, g.ints(by))


def _times(g: OnnxGraph, size: Size, by: int) -> Size:
    return size * by if isinstance(size, int) else g.binary("Mul", size, g.ints(by))


def _to_wide(g: OnnxGraph, x: OnnxTensor, by: int) -> OnnxTensor:
    """Move channels to pixels: [N, C by by, H, W] to [N, C, H by, W by]."""
    n, c, h, w = g.sizes_of(x)
    parts = g.reshape(x, [n, _divided(g, c, by * by), by, by, h, w])
    turned = g.transpose(parts, [0, 1, 4, 2, 5, 3])
    return g.reshape(turned, [n, _divided(g, c, by * by), _times(g, h, by), _times(g, w, by)])


def _to_deep(g: OnnxGraph, x: OnnxTensor, by: int) -> OnnxTensor:
    n, c, h, w = g.sizes_of(x)
    parts = g.reshape(x, [n, c, _divided(g, h, by), by, _divided(g, w, by), by])
    turned = g.transpose(parts, [0, 1, 3, 5, 2, 4])
    return g.reshape(turned, [n, _times(g, c, by * by), _divided(g, h, by), _divided(g, w, by)])


@exports("pixel_shuffle")
def pixel_shuffle(g: OnnxGraph, X: OnnxTensor, upscale_factor: int, data_format: str) -> OnnxTensor:
    return channels_back(g, _to_wide(g, channels_second(g, X, data_format), upscale_factor), data_format)


@exports("pixel_unshuffle")
def pixel_unshuffle(g: OnnxGraph, X: OnnxTensor, downscale_factor: int, data_format: str) -> OnnxTensor:
    return channels_back(g, _to_deep(g, channels_second(g, X, data_format), downscale_factor), data_format)


@exports("space_to_depth")
def space_to_depth(g: OnnxGraph, X: OnnxTensor, blocksize: int) -> OnnxTensor:
    n, c, h, w = g.sizes_of(X)  # of the wide images, [N, C, H by, W by]
    by = blocksize
    parts = g.reshape(X, [n, by, by, _divided(g, c, by * by), h, w])
    turned = g.transpose(parts, [0, 3, 4, 1, 5, 2])
    return g.reshape(turned, [n, _times(g, c, by * by), _divided(g, h, by), _divided(g, w, by)])


@exports("depth_to_space")
def depth_to_space(g: OnnxGraph, X: OnnxTensor, blocksize: int) -> OnnxTensor:
    n, c, h, w = g.sizes_of(X)
    by = blocksize
    least = _divided(g, c, by * by)
    wide = [_times(g, h, by), _times(g, w, by)]
    parts = g.reshape(X, [n, _divided(g, least, by * by), wide[0], by, wide[1], by])
    return g.reshape(g.transpose(parts, [0, 3, 5, 1, 2, 4]), [n, least, *wide])


def _shifted(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any], back: bool) -> OnnxTensor:
    x = channels_second(g, X, attrs["data_format"])
    _require_static(x, 1)
    images, channels = attrs["seg_num"], x.shape[1]
    first, second = scaled(channels, attrs["shift_ratio"]), scaled(2 * channels, attrs["shift_ratio"])
    n, *inner_sizes = g.sizes_of(x)
    videos = g.reshape(x, [_divided(g, n, images), images, *inner_sizes])
    parts = []
    for start, end, way in ((0, first, 1), (first, second, -1), (second, channels, 0)):
        if start == end:
            continue
        part = g.slice(videos, [2], [start], [end])
        way = -way if back else way
        if way:
            moved_part = g.slice(part, [1], [0], [images - 1]) if way > 0 else g.slice(part, [1], [1], [images])
            pads = [0] * 10
            pads[1 if way > 0 else 6] = 1
            part = pad_node(g, moved_part, g.ints(*pads), (*moved_part.sizes[:1], images, *moved_part.sizes[2:]))
        parts.append(part)
    moved = g.reshape_as(g.concat(parts, 2), x)
    return channels_back(g, moved, attrs["data_format"])


@exports("temporal_shift")
def temporal_shift(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    return _shifted(g, X, attrs, False)


@exports("temporal_unshift")
def temporal_unshift(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    return _shifted(g, X, attrs, True)


@exports("maxout")
def maxout(g: OnnxGraph, X: OnnxTensor, groups: int, axis: int) -> OnnxTensor:
    axis %= X.ndim
    sizes = g.sizes_of(X)
    parts = g.reshape(X, [*sizes[:axis], _divided(g, sizes[axis], groups), groups, *sizes[axis + 1 :]])
    return g.reduce("ReduceMax", parts, [axis + 1])


# -------------------------------------------------------------------------------------------------- patches of images
def _patch_places(sizes: tuple[int, ...], attrs: dict[str, Any]) -> Any:
    """For each element of each patch, its place in the image, row by row; the image's size stands for padding."""
    counts = patch_counts(sizes, attrs)
    (top, _), (left, _) = four_paddings(attrs["paddings"])
    axes = []
    for count, window, stride, dilation, pad in zip(
        counts, attrs["kernel_sizes"], attrs["strides"], attrs["dilations"], (top, left), strict=True
    ):
        axes.append(np.arange(window)[:, None] * dilation + np.arange(count)[None] * stride - pad)
    rows, columns = axes[0][:, None, :, None], axes[1][None, :, None, :]
    is_inside = (rows >= 0) & (rows < sizes[0]) & (columns >= 0) & (columns < sizes[1])
    places = np.where(is_inside, rows * sizes[1] + columns, sizes[0] * sizes[1])
    return places.reshape(places.shape[0] * places.shape[1], -1)


@exports("unfold")
def unfold(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    _require_static(X, 1, 2, 3)
    places, count = _patch_places(X.shape[2:], attrs), X.shape[2] * X.shape[3]
    n, c = g.sizes_of(X)[:2]
    flat = g.reshape(X, [n, c, count])
    padded = pad_node(g, flat, g.ints(0, 0, 0, 0, 0, 1), (*flat.sizes[:2], count + 1))
    elements = g.gather(padded, g.constant(places), 2)
    return g.reshape(elements, [n, X.shape[1] * places.shape[0], places.shape[1]])


def _folded(g: OnnxGraph, X: OnnxTensor, sizes: tuple[int, ...], attrs: dict[str, Any]) -> OnnxTensor:
    places, count = _patch_places(sizes, attrs), sizes[0] * sizes[1]
    _require_static(X, 1)
    channels = X.shape[1] // places.shape[0]
    n = g.size(X, 0)
    flat = g.reshape(X, [n, channels, places.size])
    rows = g.transpose(flat, [2, 0, 1])
    zeros = filled(g, g.joined_sizes([count + 1, n, channels]), 0, Spec((count + 1, -1, channels), X.dtype))
    added = add_rows(g, zeros, g.constant(places.reshape(-1)), rows)
    image = g.transpose(g.slice(added, [0], [0], [count]), [1, 2, 0])
    return g.reshape(image, [n, channels, *sizes])


@exports("fold")
def fold(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    return _folded(g, X, tuple(attrs["output_sizes"]), attrs)


@exports("fold_like")
def fold_like(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    _require_static(Like, 2, 3)
    return _folded(g, X, Like.shape[2:], attrs)


# ------------------------------------------------------------------------------------------------------------ cropping
def _offsets(g: OnnxGraph, inputs: dict[str, Any], offsets: list[int], ndim: int) -> OnnxTensor:
    if inputs.get("OffsetsTensor"):
        return joined_vector(g, inputs["OffsetsTensor"])
    if inputs.get("Offsets") is not None:
        return as_vector(g, inputs["Offsets"])
    return g.ints(*(offsets or [0] * ndim))


def _part(g: OnnxGraph, x: OnnxTensor, starts: OnnxTensor, dims: OnnxTensor, sizes: tuple[int, ...]) -> OnnxTensor:
    return g.sized_node("Slice", [x, starts, g.binary("Add", starts, dims), g.ints(*range(x.ndim))], x.dtype, sizes)


@exports("crop", "crop_like")
def crop(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    like = inputs.get("Like") if "Like" in inputs else inputs.get("Y")
    if like is not None:
        dims = g.dims(like)
    else:  # a first -1 takes all rows
        dims = g.joined_sizes([g.size(X, 0) if size == -1 else size for size in attrs["shape"]])
    return _part(g, X, _offsets(g, inputs, attrs["offsets"], X.ndim), dims, specs["Out"].shape)


@exports("crop_tensor")
def crop_tensor(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    starts = _offsets(g, inputs, attrs["offsets"], X.ndim)
    dims = requested_shape(g, attrs["shape"], inputs.get("Shape"), inputs.get("ShapeTensor"))
    sizes_left = g.binary("Sub", g.dims(X), starts)
    dims = g.where(g.binary("Greater", dims, g.constant(np.int64(0))), dims, sizes_left)
    return _part(g, X, starts, dims, specs["Out"].shape)


@exports("uncrop")
def uncrop(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
    starts = _offsets(g, inputs, attrs["offsets"], X.ndim)
    after = g.binary("Sub", g.binary("Sub", g.dims(Like), starts), g.dims(X))
    return pad_node(g, X, g.concat([starts, after], 0), Like.sizes)


@exports("pad_constant_like")
def pad_constant_like(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, pad_value: float) -> OnnxTensor:
    after = g.binary("Sub", g.dims(X), g.dims(Y))
    pads = g.concat([g.ints(*[0] * X.ndim), after], 0) if X.ndim else after
    return pad_node(g, Y, pads, X.sizes, pad_value)


# ----------------------------------------------------------------------------------------------------------- resizing
def _resized(
    g: OnnxGraph, x: OnnxTensor, source: Any, target: Any, factors: list[float], attrs: dict[str, Any], back: bool = False
) -> OnnxTensor:
    """Multiply x by a matrix along each spatial axis."""
    axes = resized_axes(attrs["data_layout"], x.ndim)
    if any(source[axis] < 0 or target[axis] < 0 for axis in axes):
        raise NotExported("images whose size is known only at run time")
    for axis, factor in zip(axes, factors or [0.0] * len(axes), strict=True):
        matrix = interpolation_weights(np, attrs["interp_method"], source[axis], target[axis], factor, attrs, x.dtype.numpy)
        x = _along(g, x, matrix.T if back else matrix, axis)
    return x


def _constants(tensors: list[OnnxTensor]) -> list[Any]:
    if any(tensor.value is None for tensor in tensors):
        raise NotExported("a size that is computed")
    return [number for tensor in tensors for number in np.asarray(tensor.value).reshape(-1).tolist()]


def _interp(method: str, ratio_by_scale: bool) -> Any:
    def interp(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
        attrs = {**attrs, "interp_method": method}
        axes = resized_axes(attrs["data_layout"], X.ndim)
        scale = _constants([inputs["Scale"]]) if inputs.get("Scale") is not None else attrs["scale"]
        factors = [] if inputs.get("SizeTensor") else scale_factors(scale, len(axes))
        sizes: Any = []
        if inputs.get("SizeTensor"):
            sizes = _constants(inputs["SizeTensor"])
        elif inputs.get("OutSize") is not None:
            sizes = _constants([inputs["OutSize"]])
        sizes = sizes or interp_size([X.shape[axis] for axis in axes], attrs, factors)
        target = list(X.shape)
        for axis, size in zip(axes, sizes, strict=True):
            target[axis] = int(size)
        x = X if X.is_floating else g.cast(X, VarType.FP64)
        result = _resized(g, x, X.shape, target, factors if ratio_by_scale else [], attrs)
        if not X.is_floating:
            million = g.number(1e6, result)
            rounded = g.binary("Div", g.unary("Round", g.binary("Mul", result, million)), million)
            result = g.cast(rounded, X.dtype)
        return result

    return interp


for _method in ("linear", "bilinear", "trilinear", "nearest", "bicubic"):
    exports(f"{_method}_interp")(_interp(_method, False))
    exports(f"{_method}_interp_v2")(_interp(_method, True))


def _like_factors(inputs: dict[str, Any], attrs: dict[str, Any], ndim: int) -> list[float]:
    scale = _constants([inputs["Scale"]]) if inputs.get("Scale") is not None else attrs["scale"]
    return scale_factors(scale, ndim - 2)


@exports("interp_like")
def interp_like(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
    return _resized(g, X, X.shape, Like.shape, _like_factors(inputs, attrs, X.ndim), attrs)


@exports("uninterp")
def uninterp(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
    return _resized(g, X, Like.shape, X.shape, _like_factors(inputs, attrs, X.ndim), attrs, back=True)


# ------------------------------------------------------------------------------------------------------ sampling by grid
def _places(g: OnnxGraph, at: Any, size: int, attrs: dict[str, Any]) -> tuple[Any, Any]:
    """Map coordinates from -1 to 1 to places of elements, with the derivatives."""
    aligned, last = attrs["align_corners"], size - 1
    slope = last / 2 if aligned else size / 2
    at = (at + 1.0) * slope - (0.0 if aligned else 0.5)
    slopes: Any = at * 0.0 + slope
    if attrs["padding_mode"] == "reflection":
        edge = 0.0 if aligned else 0.5
        period = 2 * (last + 2 * edge)
        if period == 0:
            return at * 0.0, at * 0.0
        shifted = at + edge
        size_of = g.unary("Abs", shifted)
        beyond: Any = size_of - g.unary("Floor", size_of / period) * period
        turned = (beyond > period / 2).astype(at.dtype) * -2.0 + 1.0
        side = (shifted < 0.0).astype(at.dtype) * -2.0 + 1.0
        slopes = slopes * side * turned
        at = g.binary("Min", beyond, period - beyond) - edge
    if attrs["padding_mode"] != "zeros":
        slopes = slopes * (at >= 0.0).astype(at.dtype) * (at <= float(last)).astype(at.dtype)
        at = g.binary("Min", g.binary("Max", at, g.number(0, at)), g.number(last, at))
    return at, slopes


def _corners(g: OnnxGraph, coordinate: Any, size: int, attrs: dict[str, Any], derivative: bool) -> list[tuple[Any, Any]]:
    at, slopes = _places(g, coordinate, size, attrs)
    if attrs["mode"] == "nearest":
        pairs = [(g.unary("Round", at), at * 0.0 + (0.0 if derivative else 1.0))]
    else:
        low: Any = g.unary("Floor", at)
        share = at - low
        pairs = [(low, -slopes if derivative else 1.0 - share), (low + 1.0, slopes if derivative else share)]
    clipped = []
    for element, weight in pairs:
        is_inside = g.binary("And", element >= 0.0, element < float(size))
        clipped.append(
            (
                g.cast(g.where(is_inside, element, g.number(0, element)), VarType.INT64),
                g.where(is_inside, weight, g.number(0, weight)),
            )
        )
    return clipped


def _taps(g: OnnxGraph, sizes: tuple[int, ...], Grid: OnnxTensor, attrs: dict[str, Any]) -> list[tuple[OnnxTensor, OnnxTensor]]:
    """The elements, counted row by row, that each place of the grid reads, and their weights: [N, 1, places]."""
    x, y = (g.squeeze(g.slice(Grid, [3], [place], [place + 1]), 3) for place in range(2))
    rows = _corners(g, y, sizes[0], attrs, attrs.get("along_y", False))
    columns = _corners(g, x, sizes[1], attrs, attrs.get("along_x", False))
    n, high, wide = g.sizes_of(Grid)[:3]
    shape: list[Size] = [n, 1, g.product_of([high, wide])]
    taps = []
    for (row, by_row), (column, by_column) in product(rows, columns):
        index = g.binary("Add", g.binary("Mul", row, g.constant(np.int64(sizes[1]))), column)
        taps.append((g.reshape(index, shape), g.reshape(g.binary("Mul", by_row, by_column), shape)))
    return taps


@exports("grid_gather")
def grid_gather(g: OnnxGraph, X: OnnxTensor, Grid: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    _require_static(X, 2, 3)
    n, c = g.sizes_of(X)[:2]
    image = g.reshape(X, [n, c, X.shape[2] * X.shape[3]])
    total: OnnxTensor | None = None
    for index, weight in _taps(g, X.shape[2:], Grid, attrs):
        dims = g.joined_sizes([n, c, g.size(index, 2)])
        expanded = g.expand(index, dims, (image.sizes[0], image.sizes[1], index.sizes[2]))
        part = g.binary("Mul", g.sized_node("GatherElements", [image, expanded], X.dtype, expanded.sizes, axis=2), weight)
        total = part if total is None else g.binary("Add", total, part)
    assert total is not None
    return g.reshape(total, [n, c, *g.sizes_of(Grid)[1:3]])


@exports("grid_scatter")
def grid_scatter(g: OnnxGraph, Output: OnnxTensor, Grid: OnnxTensor, Like: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    _require_static(Like, 2, 3)
    if g.opset < 16:
        raise NotExported("sums by index along an axis, before opset 16")
    n, c = g.sizes_of(Like)[:2]
    count = Like.shape[2] * Like.shape[3]
    values = g.reshape(Output, [n, c, g.product_of(g.sizes_of(Output)[2:])])
    image = filled(g, g.joined_sizes([n, c, count]), 0, Spec((*Like.shape[:2], count), Output.dtype))
    for index, weight in _taps(g, Like.shape[2:], Grid, attrs):
        part = g.binary("Mul", values, weight)
        expanded = g.expand(index, g.dims(part), part.sizes)
        image = g.node("ScatterElements", [image, expanded, part], image, axis=2, reduction="add")
    return g.reshape_as(image, Like)


def _base(high: int, wide: int, aligned: bool, dtype: Any) -> Any:
    """The places (x, y, 1) of images of this size."""
    base = np.ones((high, wide, 3), dtype)
    lines = [np.linspace(-1, 1, n, dtype=dtype) * (1 if aligned else (n - 1) / n) for n in (wide, high)]
    base[..., 0], base[..., 1] = lines[0], lines[1][:, None]
    return base


@exports("affine_grid")
def affine_grid(
    g: OnnxGraph, Theta: OnnxTensor, OutputShape: OnnxTensor | None, align_corners: bool, output_shape: list[int]
) -> OnnxTensor:
    sizes = output_shape if OutputShape is None else [int(size) for size in _constants([OutputShape])]
    high, wide = sizes[2:]
    base = g.constant(_base(high, wide, align_corners, Theta.dtype.numpy).reshape(1, -1, 3))
    grid = g.matmul(base, g.transpose(Theta, [0, 2, 1]))
    return g.reshape(grid, [g.size(Theta, 0), high, wide, 2])


@exports("places_like")
def places_like(g: OnnxGraph, Like: OnnxTensor, align_corners: bool) -> OnnxTensor:
    _require_static(Like, 1, 2)
    return g.constant(_base(Like.shape[1], Like.shape[2], align_corners, Like.dtype.numpy)[None])
