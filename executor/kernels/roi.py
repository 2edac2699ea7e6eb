"""Kernels of `fluid.ops.roi`.

The mean over a part of a region is a weighted sum over rows of one over columns. So each region has two matrices, of the
weights that its parts give to the rows and columns of the image, and ``rows @ image @ columns`` is what is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

from fluid.errors import ExecutionError
from fluid.values.lod_array import lengths_of
from fluid.values.spec import Lod

from .manipulation import flattened, numbers
from .table import kernel
from .vision import inside

_FAR = 1 << 20
"""No coordinate is beyond this: what is (or is NaN) comes of a mistake, and would be sampled for hours."""


# ------------------------------------------------------------------------------------------------------------- regions
def _images(ROIs: Any, RoisNum: Any, ROIs_lod: Lod, images: int) -> list[int]:
    """Of each region, the number of its image."""
    counts = numbers(RoisNum, None, lengths_of(ROIs_lod[-1] or ()) if ROIs_lod and RoisNum is None else [])
    if len(counts) != images or min(counts, default=0) < 0 or sum(counts) != len(ROIs):
        source = "RoisNum" if RoisNum is not None else "the sequences of ROIs"
        raise ExecutionError(
            f"there are {len(ROIs)} regions in ROIs and {images} images in X, "
            f"but {source} should say how many are in each: {counts}"
        )
    return [image for image, count in enumerate(counts) for _ in range(count)]


def _edges(xp: Any, ROIs: Any, dtype: Any, scale: float) -> Any:
    """Left, top, right and bottom [4, R]."""
    edges = ROIs.T.astype(dtype)
    farthest = float(xp.abs(edges).max()) * abs(scale) if edges.size else 0.0
    if not farthest <= _FAR:
        raise ExecutionError(
            f"a region in ROIs reaches to {farthest:g} (times spatial_scale); places in images should be at most {_FAR}"
        )
    return edges


def _rounded(xp: Any, values: Any) -> Any:
    """To the nearest integer, halves away from zero."""
    return xp.sign(values) * xp.floor(xp.abs(values) + values.dtype.type(0.5))


def _sampled(xp: Any, first: Any, last: Any, parts: int, extent: int, attrs: dict[str, Any]) -> Any:
    """`roi_align` along one axis: the weights [R, parts, extent] of elements, of regions from `first` to `last` [R]."""
    number = first.dtype.type
    half = number(0.5 if attrs["aligned"] else 0)
    start, end = (edge * number(attrs["spatial_scale"]) - half for edge in (first, last))
    size = end - start if attrs["aligned"] else xp.maximum(end - start, 1)
    step = (size / number(parts))[:, None]
    ratio = attrs["sampling_ratio"]
    counts = xp.full_like(step, ratio) if ratio > 0 else xp.ceil(step)
    weights = xp.zeros((len(first), parts, extent), first.dtype)
    regions, part = xp.arange(len(first))[:, None], xp.arange(parts)
    for sample in range(int(counts.max()) if counts.size else 0):
        share = 1 / xp.maximum(counts, 1)
        at = start[:, None] + part.astype(first.dtype) * step + number(sample + 0.5) * step / xp.maximum(counts, 1)
        share = xp.where((sample < counts) & (at >= -1) & (at <= extent), share, 0)
        at = xp.clip(at, 0, extent - 1)
        low = at.astype("int64")
        weights[regions, part, low] += share * (1 - (at - low))
        weights[regions, part, xp.minimum(low + 1, extent - 1)] += share * (at - low)
    return weights


def _whole(xp: Any, first: Any, last: Any, parts: int, extent: int, attrs: dict[str, Any]) -> Any:
    """`psroi_pool` along one axis: as `_sampled`."""
    number = first.dtype.type
    scale = number(attrs["spatial_scale"])
    start, end = _rounded(xp, first) * scale, (_rounded(xp, last) + 1) * scale
    step = (xp.maximum(end - start, number(0.1)) / number(parts))[:, None]
    part = xp.arange(parts).astype(first.dtype)
    low = xp.clip(xp.floor(part * step + start[:, None]), 0, extent)[..., None]
    high = xp.clip(xp.ceil((part + 1) * step + start[:, None]), 0, extent)[..., None]
    element = xp.arange(extent)
    return (((element >= low) & (element < high)) / xp.maximum(high - low, 1)).astype(first.dtype)


def _spans(weights: Any) -> list[tuple[int, int]]:
    """Of each region, from where to where weights [R, parts, extent] are other than 0."""
    used = (weights != 0).any(axis=1)
    return list(zip(used.argmax(1).tolist(), (used.shape[1] - used[:, ::-1].argmax(1)).tolist(), strict=True))


def _regions(
    xp: Any, X: Any, ROIs: Any, images: list[int], Out: Any, axis_weights: Any, attrs: dict[str, Any]
) -> Iterator[tuple[Any, Any, Any, Any]]:
    """For each region: the part of its image that it covers, matrices of the weights to multiply this with from left and
    right, and what that gives, or gave."""
    height, width = attrs["pooled_height"], attrs["pooled_width"]
    if not X.size:
        return
    left, top, right, bottom = _edges(xp, ROIs, X.dtype, attrs["spatial_scale"])
    down = axis_weights(xp, top, bottom, height, X.shape[2], attrs)
    across = axis_weights(xp, left, right, width, X.shape[3], attrs)
    each = "output_channels" in attrs  # each part has its own channels
    tops, sides = _spans(down), _spans(across)
    for region, image in enumerate(images):
        (top, bottom), (left, right) = tops[region], sides[region]
        part = X[image][:, top:bottom, left:right]
        rows, columns = down[region][:, top:bottom], across[region][:, left:right].T
        if each:
            part = X[image].reshape(-1, height, width, *X.shape[2:])[..., top:bottom, left:right]
            rows, columns = rows[:, None, None, :], columns.T[:, :, None]
        yield part, rows, columns, Out[region][..., None, None] if each else Out[region]


def _define_averages(op_type: str, axis_weights: Any) -> None:
    @kernel(op_type)
    def forward(xp: Any, X: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, attrs: dict[str, Any], Out: Any) -> None:
        Out.fill(0)
        images = _images(ROIs, RoisNum, ROIs_lod, len(X))
        for part, rows, columns, target in _regions(xp, X, ROIs, images, Out, axis_weights, attrs):
            xp.copyto(target, rows @ (part @ columns))

    @kernel(f"{op_type}_back")
    def back(xp: Any, Out: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, attrs: dict[str, Any], X: Any) -> None:
        X.fill(0)
        images = _images(ROIs, RoisNum, ROIs_lod, len(X))
        for part, rows, columns, source in _regions(xp, X, ROIs, images, Out, axis_weights, attrs):
            part += rows.swapaxes(-1, -2) @ (source @ columns.swapaxes(-1, -2))


_define_averages("roi_align", _sampled)
_define_averages("psroi_pool", _whole)


def _bounds(xp: Any, first: Any, last: Any, parts: int, extent: int, scale: float) -> list[list[tuple[int, int]]]:
    """`roi_pool` along one axis: of each region, from where to where its parts reach."""
    start, end = (_rounded(xp, edge * edge.dtype.type(scale)) for edge in (first, last))
    step = (xp.maximum(end - start + 1, 1) / first.dtype.type(parts))[:, None]
    part = xp.arange(parts).astype(first.dtype)
    low = xp.clip(xp.floor(part * step) + start[:, None], 0, extent).astype("int64").tolist()
    high = xp.clip(xp.ceil((part + 1) * step) + start[:, None], 0, extent).astype("int64").tolist()
    return [list(zip(*pair, strict=True)) for pair in zip(low, high, strict=True)]


@kernel("roi_pool")
def roi_pool(xp: Any, X: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, attrs: dict[str, Any], Out: Any, Argmax: Any) -> None:
    images = _images(ROIs, RoisNum, ROIs_lod, len(X))
    scale, width = attrs["spatial_scale"], X.shape[3]
    left, top, right, bottom = _edges(xp, ROIs, X.dtype, scale)
    down = _bounds(xp, top, bottom, attrs["pooled_height"], X.shape[2], scale)
    across = _bounds(xp, left, right, attrs["pooled_width"], width, scale)
    Out.fill(0)
    if Argmax is not None:
        Argmax.fill(-1)
    for region, image in enumerate(images):
        for (i, (top, bottom)), (j, (left, right)) in product(enumerate(down[region]), enumerate(across[region])):
            if top >= bottom or left >= right:
                continue
            part = flattened(X[image][:, top:bottom, left:right], 1)
            at = part.argmax(1)
            Out[region, :, i, j] = xp.take_along_axis(part, at[:, None], 1)[:, 0]
            if Argmax is not None:
                Argmax[region, :, i, j] = (top + at // (right - left)) * width + left + at % (right - left)


def _maxima(xp: Any, X: Any, Argmax: Any, images: list[int]) -> tuple[Any, Any, Any]:
    """Images [N, C, H W], the index of each maximum in them, and where there is one."""
    there = Argmax >= 0
    index = (xp.asarray(images, "int64")[:, None, None, None], xp.arange(X.shape[1])[:, None, None], xp.where(there, Argmax, 0))
    return flattened(X, 2), index, there


@kernel("roi_place")
def roi_place(xp: Any, Out: Any, Argmax: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, X: Any) -> None:
    X.fill(0)
    if X.size:
        flat, index, there = _maxima(xp, X, Argmax, _images(ROIs, RoisNum, ROIs_lod, len(X)))
        xp.add.at(flat, index, Out * there)


@kernel("roi_pick")
def roi_pick(xp: Any, X: Any, Argmax: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, Out: Any) -> None:
    Out.fill(0)
    if X.size:
        flat, index, there = _maxima(xp, X, Argmax, _images(ROIs, RoisNum, ROIs_lod, len(X)))
        xp.copyto(Out, flat[index] * there)


# ---------------------------------------------------------------------------------------------- deformable convolution
def _corners(xp: Any, at: Any, extent: int, derivative: bool) -> list[tuple[Any, Any]]:
    """Along one axis: the elements around each place, and their weights, or the derivatives of these by the place."""
    low = xp.floor(at)
    weights = (xp.full_like(at, -1), xp.full_like(at, 1)) if derivative else (1 - (at - low), at - low)
    return inside(xp, list(zip((low, low + 1), weights, strict=True)), extent)


def _taps(
    xp: Any, extents: tuple[int, int], Offset: Any, sizes: tuple[int, int], attrs: dict[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """The elements, counted row by row, that are read for each image, group, element of the filter and place
    [N, G, 1, K P], and their weights: four of each."""
    (height, width), places = sizes, Offset.shape[2:]
    offset = Offset.reshape(len(Offset), attrs["deformable_groups"], height * width, 2, *places)
    taps, steps = xp.indices((height, width)).reshape(2, -1, 1, 1), xp.indices(places)
    pairs = []
    for axis, slope in enumerate(("along_y", "along_x")):
        base = steps[axis] * attrs["strides"][axis] - attrs["paddings"][axis] + taps[axis] * attrs["dilations"][axis]
        at = offset[:, :, :, axis] + base.astype(Offset.dtype)
        pairs.append(_corners(xp, at, extents[axis], attrs.get(slope, False)))
    shape = (*offset.shape[:2], 1, prod(offset.shape[2:]) // 2)
    for (row, by_row), (column, by_column) in product(*pairs):
        yield (row * extents[1] + column).reshape(shape), (by_row * by_column).reshape(shape)


def _by_group(values: Any, groups: int) -> Any:
    """[N, C, ...] seen as [N, G, C / G, the rest]."""
    shape = values.shape
    return values.reshape(shape[0], groups, shape[1] // groups, prod(shape[2:]))


def _factors(Mask: Any, groups: int) -> Any:
    """Mask as `_read` multiplies by it [N, G, 1, K P]."""
    return Mask.reshape(len(Mask), groups, 1, prod(Mask.shape[1:]) // groups)


def _read(xp: Any, Input: Any, Offset: Any, Mask: Any, sizes: tuple[int, int], attrs: dict[str, Any]) -> Any:
    """What the elements of a filter of this size read [N, G, C / G, K P], times Mask."""
    groups = attrs["deformable_groups"]
    image = _by_group(Input, groups)
    total: Any = None
    for index, weight in _taps(xp, Input.shape[2:], Offset, sizes, attrs):
        read = xp.take_along_axis(image, index, 3) * weight
        total = read if total is None else xp.add(total, read, out=total)
    return total if Mask is None else xp.multiply(total, _factors(Mask, groups), out=total)


@kernel("deform_columns")
def deform_columns(xp: Any, Input: Any, Offset: Any, Mask: Any, Filter: Any, attrs: dict[str, Any], Columns: Any) -> None:
    xp.copyto(Columns, _read(xp, Input, Offset, Mask, Filter.shape[2:], attrs).reshape(Columns.shape))


@kernel("deform_image")
def deform_image(xp: Any, Columns: Any, Offset: Any, Mask: Any, Filter: Any, attrs: dict[str, Any], Input: Any) -> None:
    groups = attrs["deformable_groups"]
    image, values = _by_group(Input, groups), _by_group(Columns, groups)
    if Mask is not None:
        values = values * _factors(Mask, groups)
    Input.fill(0)
    images, group, channel = (xp.arange(image.shape[0])[:, None, None, None], xp.arange(groups)[:, None, None],
                              xp.arange(image.shape[2])[:, None])  # fmt: skip
    for index, weight in _taps(xp, Input.shape[2:], Offset, Filter.shape[2:], attrs):
        xp.add.at(image, (images, group, channel, index), values * weight)


@kernel("deform_mask")
def deform_mask(xp: Any, Input: Any, Offset: Any, Filter: Any, Columns: Any, attrs: dict[str, Any], Mask: Any) -> None:
    read = _read(xp, Input, Offset, None, Filter.shape[2:], attrs)
    xp.multiply(read, _by_group(Columns, attrs["deformable_groups"]), out=read)
    xp.copyto(Mask, read.sum(2).reshape(Mask.shape))


def _convolve(xp: Any, Input: Any, Offset: Any, Mask: Any, Filter: Any, attrs: dict[str, Any], Output: Any) -> None:
    groups = attrs["groups"]
    columns = _read(xp, Input, Offset, Mask, Filter.shape[2:], attrs)
    rows, places = prod(Filter.shape[1:]), prod(Output.shape[2:])
    columns = columns.reshape(len(Input), groups, rows, places)
    by_group = Output.reshape(len(Input), groups, len(Filter) // groups, places)
    xp.matmul(Filter.reshape(groups, len(Filter) // groups, rows), columns, out=by_group)


@kernel("deformable_conv")
def deformable_conv(xp: Any, Input: Any, Offset: Any, Filter: Any, Mask: Any, attrs: dict[str, Any], Output: Any) -> None:
    _convolve(xp, Input, Offset, Mask, Filter, attrs, Output)


@kernel("deformable_conv_v1")
def deformable_conv_v1(xp: Any, Input: Any, Offset: Any, Filter: Any, attrs: dict[str, Any], Output: Any) -> None:
    _convolve(xp, Input, Offset, None, Filter, attrs, Output)
