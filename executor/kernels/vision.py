"""Kernels of `fluid.ops.vision`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.ops.conv import image_axes
from fluid.ops.shapes import scaled
from fluid.ops.vision import four_paddings, interp_size, patch_counts, resized_axes, scale_factors

from .manipulation import flattened, numbers
from .portable import reduction
from .table import Call, fill, kernel, prepared


# ------------------------------------------------------------------------------------------------- channels and places
def _channels_first(image: Any, data_format: str) -> Any:
    return image.transpose(0, 3, 1, 2) if image_axes(data_format, 4)[0] == 3 else image


def _split_axis(array: Any, axis: int, parts: int) -> Any:
    """A view of `array` with an axis in two: `parts` by the rest."""
    shape = array.shape
    return array.reshape(*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :], copy=False)


def _shift(xp: Any, X: Any, attrs: dict[str, Any], Out: Any, back: bool) -> list[Call]:
    images = attrs["seg_num"]
    x, out = (_channels_first(array, attrs["data_format"]) for array in (X, Out))
    if not x.size:
        return []
    x, out = (_split_axis(array, 0, len(array) // images) for array in (x, out))
    channels = x.shape[2]
    first, second = scaled(channels, attrs["shift_ratio"]), scaled(2 * channels, attrs["shift_ratio"])
    later, earlier = (slice(first, second), slice(0, first)) if back else (slice(0, first), slice(first, second))
    return [
        fill(xp, out[:, 0, later], 0) if out[:, 0, later].flags.c_contiguous else partial(xp.copyto, out[:, 0, later], 0),
        partial(xp.copyto, out[:, 1:, later], x[:, :-1, later]),
        partial(xp.copyto, out[:, -1, earlier], 0),
        partial(xp.copyto, out[:, :-1, earlier], x[:, 1:, earlier]),
        partial(xp.copyto, out[:, :, second:], x[:, :, second:]),
    ]


@prepared("temporal_shift")
def temporal_shift(xp: Any, X: Any, attrs: dict[str, Any], Out: Any) -> list[Call]:
    return _shift(xp, X, attrs, Out, False)


@prepared("temporal_unshift")
def temporal_unshift(xp: Any, X: Any, attrs: dict[str, Any], Out: Any) -> list[Call]:
    return _shift(xp, X, attrs, Out, True)


@prepared("maxout")
def maxout(xp: Any, X: Any, groups: int, axis: int, Out: Any) -> Call:
    axis %= X.ndim
    parts = X.reshape(*X.shape[:axis], X.shape[axis] // groups, groups, *X.shape[axis + 1 :])
    return reduction(xp, xp.maximum, parts, axis + 1, Out, keepdims=False)


@kernel("similarity_focus")
def similarity_focus(xp: Any, X: Any, axis: int, indexes: list[int], Out: Any) -> None:
    Out.fill(0)
    images, focus = xp.moveaxis(X, axis, 1), xp.moveaxis(Out, axis, 1)
    columns = images.shape[3]
    for image, target in zip(images, focus, strict=True):
        for index in indexes:
            free_rows, free_columns = set(range(images.shape[2])), set(range(columns))
            for place in (-image[index].reshape(-1)).argsort(kind="stable").tolist():
                row, column = divmod(place, columns)
                if row in free_rows and column in free_columns:
                    free_rows.remove(row)
                    free_columns.remove(column)
                    target[:, row, column] = 1


# -------------------------------------------------------------------------------------------------- patches of images
def _windows(xp: Any, frame: Any, attrs: dict[str, Any], counts: Sequence[int]) -> Any:
    """The patches of padded images as a view [N, C, h, w, rows, columns]."""
    (height, width), (down, across), (by_row, by_column) = attrs["kernel_sizes"], attrs["dilations"], attrs["strides"]
    n, c, h, w = frame.strides
    shape = (*frame.shape[:2], height, width, *counts)
    return xp.lib.stride_tricks.as_strided(frame, shape, (n, c, h * down, w * across, h * by_row, w * by_column))


def _frame(scratch: Any, image: Any, attrs: dict[str, Any]) -> tuple[Any, Any]:
    """An array for padded images, and its part that holds the images; without padding, the images themselves."""
    (top, bottom), (left, right) = four_paddings(attrs["paddings"])
    if not any((top, bottom, left, right)):
        return image, None
    n, c, h, w = image.shape
    frame = scratch((n, c, h + top + bottom, w + left + right), image.dtype)
    return frame, frame[:, :, top : top + h, left : left + w]


@prepared("unfold")
def unfold(xp: Any, scratch: Any, X: Any, attrs: dict[str, Any], Y: Any) -> list[Call]:
    counts = patch_counts(X.shape[2:], attrs)
    frame, inner = _frame(scratch, X, attrs)
    steps: list[Call] = [] if inner is None else [fill(xp, frame, 0), partial(xp.copyto, inner, X)]
    windows = _windows(xp, frame, attrs, counts)
    return [*steps, partial(xp.copyto, Y.reshape(windows.shape), windows)]


@prepared("fold", "fold_like")
def fold(xp: Any, scratch: Any, X: Any, attrs: dict[str, Any], Y: Any) -> list[Call]:
    counts = patch_counts(Y.shape[2:], attrs)
    frame, inner = _frame(scratch, Y, attrs)
    windows = _windows(xp, frame, attrs, counts)
    patches = X.reshape(windows.shape)
    steps: list[Call] = [fill(xp, frame, 0)]
    for tap in product(*map(range, attrs["kernel_sizes"])):  # elements of one tap lie apart: none is added to twice at once
        target = windows[(slice(None), slice(None), *tap)]
        steps.append(partial(xp.add, target, patches[(slice(None), slice(None), *tap)], target))
    return steps if inner is None else [*steps, partial(xp.copyto, Y, inner)]


# ------------------------------------------------------------------------------------------------------------ cropping
def _part(op_type: str, array: Any, offsets: Sequence[int], shape: Sequence[int]) -> Any:
    """The part of `array` with this shape, from `offsets` on."""
    starts = list(offsets) or [0] * array.ndim
    for axis, (start, size) in enumerate(zip(starts, shape, strict=True)):
        if start < 0 or start + size > array.shape[axis]:
            raise ExecutionError(
                f"{op_type}: {size} elements from {start} on do not lie within axis {axis} of the shape {list(array.shape)}"
            )
    return array[(*(slice(start, start + size) for start, size in zip(starts, shape, strict=True)), ...)]


@kernel("crop")
def crop(xp: Any, X: Any, Offsets: Any, offsets: list[int], Out: Any) -> None:
    xp.copyto(Out, _part("crop", X, numbers(Offsets, None, offsets), Out.shape))


@kernel("crop_tensor")
def crop_tensor(
    xp: Any,
    X: Any,
    Shape: Any,
    ShapeTensor: Any,
    Offsets: Any,
    OffsetsTensor: Any,
    shape: list[int],
    offsets: list[int],
    Out: Any,
) -> Any:
    starts = numbers(Offsets, OffsetsTensor, offsets) or [0] * X.ndim
    if Out is not None:
        return xp.copyto(Out, _part("crop_tensor", X, starts, Out.shape))
    extents = numbers(Shape, ShapeTensor, shape)
    sizes = [size if size > 0 else X.shape[axis] - starts[axis] for axis, size in enumerate(extents)]
    return _part("crop_tensor", X, starts, sizes).copy()


@kernel("crop_like")
def crop_like(xp: Any, X: Any, Offsets: Any, OffsetsTensor: Any, offsets: list[int], Out: Any) -> None:
    xp.copyto(Out, _part("crop", X, numbers(Offsets, OffsetsTensor, offsets), Out.shape))


@kernel("uncrop")
def uncrop(xp: Any, X: Any, Offsets: Any, OffsetsTensor: Any, offsets: list[int], Out: Any) -> None:
    Out.fill(0)
    xp.copyto(_part("crop", Out, numbers(Offsets, OffsetsTensor, offsets), X.shape), X)


@prepared("pad_constant_like")
def pad_constant_like(xp: Any, Y: Any, pad_value: float, Out: Any) -> list[Call]:
    return [fill(xp, Out, pad_value), partial(xp.copyto, Out[(*map(slice, Y.shape), ...)], Y)]


@kernel("random_crop")
def random_crop(xp: Any, rng: Any, X: Any, Seed: Any, shape: list[int], startup_seed: int, Out: Any, SeedOut: Any) -> None:
    if Seed is not None:
        generator = xp.random.default_rng(int(Seed.reshape(-1)[0]) & (2**63 - 1))
    else:
        generator = xp.random.default_rng(startup_seed) if startup_seed else rng()
    leading = X.ndim - len(shape)
    items, parts = X.reshape(-1, *X.shape[leading:]), Out.reshape(-1, *shape)
    room = [extent - size + 1 for extent, size in zip(X.shape[leading:], shape, strict=True)]
    for item, part in zip(items, parts, strict=True):
        starts = [int(generator.integers(0, places)) for places in room]
        xp.copyto(part, _part("random_crop", item, starts, shape))
    if SeedOut is not None:
        SeedOut[...] = generator.integers(0, min(2**62, xp.iinfo(SeedOut.dtype).max))


# ----------------------------------------------------------------------------------------------------------- resizing
def nearest_places(xp: Any, source: int, target: int, scale: float, is_aligned: bool) -> Any:
    """The places of the nearest elements along one axis, rounded as Paddle does, since that decides between neighbours."""
    ratio = nearest_ratio(source, target, scale, is_aligned)
    at = xp.arange(target).astype("float32") * ratio + xp.float32(0.5 if is_aligned else 0)
    return xp.minimum(at.astype("int64"), source - 1)


def nearest_ratio(source: int, target: int, scale: float, is_aligned: bool) -> np.float32:
    """`source_ratio` as Paddle rounds it for the nearest elements."""
    if scale > 0 and not is_aligned and target > 1:
        return 1 / np.float32(scale)
    return np.float32(source_ratio(source, target, scale, is_aligned))


def source_ratio(source: int, target: int, scale: float, is_aligned: bool) -> float:
    """The distance in the source between neighbouring elements of the target."""
    if target <= 1:
        return 0.0
    if is_aligned:
        return (source - 1) / (target - 1)
    return 1.0 / scale if scale > 0 else source / target


def interpolation_weights(xp: Any, method: str, source: int, target: int, scale: float, attrs: dict[str, Any], dtype: Any) -> Any:
    """The matrix [target, source] that interpolates along one axis."""
    aligned = attrs["align_corners"]
    by_area = not aligned and (method == "bicubic" or attrs["align_mode"] == 0)
    ratio = source_ratio(source, target, scale, aligned)
    places, rows = xp.arange(target), xp.arange(target)
    weights = xp.zeros((target, source), dtype)
    if method == "nearest":
        weights[rows, nearest_places(xp, source, target, scale, aligned)] = 1
        return weights
    at = (places + 0.5) * ratio - 0.5 if by_area else places * ratio
    if method == "bicubic":
        low = xp.floor(at)
        for tap in range(-1, 3):
            distance = xp.abs(at - low - tap)
            column = xp.clip(low.astype("int64") + tap, 0, source - 1)
            weights[rows, column] += _cubic(distance, tap in (0, 1))
        return weights
    at = xp.maximum(at, 0)
    low = xp.minimum(at.astype("int64"), source - 1)
    high = xp.minimum(low + 1, source - 1)
    weights[rows, low] = 1 - (at - low)
    weights[rows, high] += at - low
    return weights


def _cubic(distance: Any, near: bool) -> Any:
    """The kernel of cubic convolution, at distances up to 1 (`near`) or from 1 to 2."""
    a = -0.75
    if near:
        return ((a + 2) * distance - (a + 3)) * distance * distance + 1
    return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a


def _along(xp: Any, axis: int, matrix: Any, image: Any) -> Any:
    """`image` with the vectors along an axis multiplied by a matrix."""
    shape = image.shape
    before, after = prod(shape[:axis]), prod(shape[axis + 1 :])
    if after == 1:
        product = xp.matmul(image.reshape(before, shape[axis]), matrix.T)
    else:
        product = xp.matmul(matrix, image.reshape(before, shape[axis], after))
    return product.reshape(*shape[:axis], len(matrix), *shape[axis + 1 :])


def _resize(
    xp: Any, method: str, image: Any, source: Any, target: Any, scale: Sequence[float], attrs: dict[str, Any], back: bool = False
) -> Any:
    """`image` interpolated between the extents of the shapes `source` and `target`; `back`: by the transpose."""
    axes = resized_axes(attrs["data_layout"], image.ndim)
    for axis, factor in zip(axes, scale or [0.0] * len(axes), strict=True):
        if method == "nearest" and not back:  # a product would spread infinities and NaNs
            image = xp.take(image, nearest_places(xp, source[axis], target[axis], factor, attrs["align_corners"]), axis=axis)
            continue
        matrix = interpolation_weights(xp, method, source[axis], target[axis], factor, attrs, image.dtype)
        image = _along(xp, axis, matrix.T if back else matrix, image)
    return image


def _define_interp(method: str) -> None:
    def interp(
        xp: Any, X: Any, OutSize: Any, SizeTensor: Any, factors: Any, attrs: dict[str, Any], ratio_by_scale: bool, Out: Any
    ) -> Any:
        axes = resized_axes(attrs["data_layout"], X.ndim)
        scale = [] if SizeTensor else scale_factors(factors, len(axes))
        extents = numbers(OutSize, SizeTensor, []) or interp_size([X.shape[axis] for axis in axes], attrs, scale)
        target = list(X.shape)
        for axis, extent in zip(axes, extents, strict=True):
            target[axis] = extent
        numbers_of = X if X.dtype.kind == "f" else X.astype("float64")
        image = _resize(xp, method, numbers_of, X.shape, target, scale if ratio_by_scale else [], attrs)
        if X.dtype.kind != "f":
            image = xp.trunc(xp.round(image, 6)).astype(X.dtype)  # so that 6.999... becomes 7
        return image if Out is None else xp.copyto(Out, image)

    def scale_of(Scale: Any, scale: Any) -> Any:
        return scale if Scale is None else [float(number) for number in Scale.reshape(-1)]

    @kernel(f"{method}_interp")
    def first(xp: Any, X: Any, OutSize: Any, SizeTensor: Any, Scale: Any, scale: float, attrs: dict[str, Any], Out: Any) -> Any:
        return interp(xp, X, OutSize, SizeTensor, scale_of(Scale, scale), attrs, False, Out)

    @kernel(f"{method}_interp_v2")
    def second(
        xp: Any, X: Any, OutSize: Any, SizeTensor: Any, Scale: Any, scale: list[float], attrs: dict[str, Any], Out: Any
    ) -> Any:
        return interp(xp, X, OutSize, SizeTensor, scale_of(Scale, scale), attrs, True, Out)


for _method in ("linear", "bilinear", "trilinear", "nearest", "bicubic"):
    _define_interp(_method)


def _factors(Scale: Any, scale: Sequence[float], ndim: int) -> list[float]:
    return scale_factors(scale if Scale is None else [float(number) for number in Scale.reshape(-1)], ndim - 2)


@kernel("interp_like")
def interp_like(xp: Any, X: Any, Scale: Any, scale: list[float], interp_method: str, attrs: dict[str, Any], Out: Any) -> None:
    xp.copyto(Out, _resize(xp, interp_method, X, X.shape, Out.shape, _factors(Scale, scale, X.ndim), attrs))


@kernel("uninterp")
def uninterp(xp: Any, X: Any, Scale: Any, scale: list[float], interp_method: str, attrs: dict[str, Any], Out: Any) -> None:
    xp.copyto(Out, _resize(xp, interp_method, X, Out.shape, X.shape, _factors(Scale, scale, X.ndim), attrs, back=True))


# ------------------------------------------------------------------------------------------------------ sampling by grid
def _places(xp: Any, coordinate: Any, extent: int, attrs: dict[str, Any]) -> tuple[Any, Any]:
    """The places of coordinates from -1 to 1 among `extent` elements, and the derivative by the coordinate."""
    aligned, last = attrs["align_corners"], extent - 1
    slope = last / 2 if aligned else extent / 2
    at = (coordinate + 1) * slope - (0 if aligned else 0.5)
    slopes = xp.full_like(at, slope)
    if attrs["padding_mode"] == "reflection":
        edge = 0.0 if aligned else 0.5  # how far outside of the outermost centres the mirrors are
        period = 2 * (last + 2 * edge)
        if period == 0:
            return xp.zeros_like(at), xp.zeros_like(at)
        shifted = at + edge
        beyond = xp.abs(shifted) % period
        slopes *= xp.where(shifted < 0, -1, 1) * xp.where(beyond > period / 2, -1, 1)
        at = xp.minimum(beyond, period - beyond) - edge
    if attrs["padding_mode"] != "zeros":
        slopes *= (at >= 0) & (at <= last)
        at = xp.clip(at, 0, last)
    return at, slopes.astype(at.dtype)


def _corners(xp: Any, coordinate: Any, extent: int, attrs: dict[str, Any], derivative: bool) -> list[tuple[Any, Any]]:
    """Along one axis: the elements around each place, and their weights, or the derivatives of these by the coordinate."""
    at, slopes = _places(xp, coordinate, extent, attrs)
    if attrs["mode"] == "nearest":
        pairs = [(xp.rint(at), xp.zeros_like(at) if derivative else xp.ones_like(at))]
    else:
        low = xp.floor(at)
        pairs = [(low, -slopes if derivative else 1 - (at - low)), (low + 1, slopes if derivative else at - low)]
    return within_extent(xp, pairs, extent)


def within_extent(xp: Any, pairs: list[tuple[Any, Any]], extent: int) -> list[tuple[Any, Any]]:
    """Elements along an axis as integers, and their weights; the weights of elements outside of the axis are 0."""
    clipped = []
    for element, weight in pairs:
        is_there = (element >= 0) & (element < extent)
        clipped.append((xp.where(is_there, element, 0).astype("int64"), xp.where(is_there, weight, 0)))
    return clipped


def _taps(xp: Any, shape: tuple[int, ...], Grid: Any, attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The elements, counted row by row, that each place of the grid [N, places] reads, and their weights."""
    rows = _corners(xp, Grid[..., 1], shape[2], attrs, attrs.get("along_y", False))
    columns = _corners(xp, Grid[..., 0], shape[3], attrs, attrs.get("along_x", False))
    flat = (len(Grid), 1, prod(Grid.shape[1:3]))
    return [
        ((row * shape[3] + column).reshape(flat), (by_row * by_column).reshape(flat))
        for (row, by_row), (column, by_column) in product(rows, columns)
    ]


@kernel("grid_sampler", "grid_gather")
def grid_gather(xp: Any, X: Any, Grid: Any, attrs: dict[str, Any], Output: Any) -> None:
    image = flattened(X, 2)
    total = xp.zeros((*X.shape[:2], prod(Grid.shape[1:3])), X.dtype)
    for index, weight in _taps(xp, X.shape, Grid, attrs):
        total += xp.take_along_axis(image, index, 2) * weight
    xp.copyto(Output, total.reshape(Output.shape))


@kernel("grid_scatter")
def grid_scatter(xp: Any, Output: Any, Grid: Any, attrs: dict[str, Any], X: Any) -> None:
    X.fill(0)
    image, values = flattened(X, 2), flattened(Output, 2)
    images, channels = xp.arange(X.shape[0])[:, None, None], xp.arange(X.shape[1])[:, None]
    for index, weight in _taps(xp, X.shape, Grid, attrs):
        xp.add.at(image, (images, channels, index), values * weight)


def _base(xp: Any, height: int, width: int, aligned: bool, dtype: Any) -> Any:
    """The places (x, y, 1) of images of this size."""

    def places(extent: int) -> Any:
        line = xp.linspace(-1, 1, extent, dtype=dtype)
        return line if aligned else line * ((extent - 1) / extent)

    base = xp.ones((height, width, 3), dtype)
    base[..., 0], base[..., 1] = places(width), places(height)[:, None]
    return base


@kernel("affine_grid")
def affine_grid(xp: Any, Theta: Any, OutputShape: Any, align_corners: bool, output_shape: list[int], Output: Any) -> Any:
    height, width = numbers(OutputShape, None, output_shape)[2:]
    base = _base(xp, height, width, align_corners, Theta.dtype)
    grid = xp.matmul(base.reshape(1, -1, 3), Theta.swapaxes(1, 2)).reshape(len(Theta), height, width, 2)
    return grid if Output is None else xp.copyto(Output, grid)


@kernel("places_like")
def places_like(xp: Any, align_corners: bool, Out: Any) -> None:
    xp.copyto(Out[0], _base(xp, Out.shape[1], Out.shape[2], align_corners, Out.dtype))
