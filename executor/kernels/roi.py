"""Kernels of `fluid.ops.roi`.

The mean over a part of a region is a weighted sum over rows and over columns. So each region has two matrices, with the weights
of its parts for the rows and columns of the image, and the result is ``rows @ image @ columns``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import comb, factorial, prod
from typing import Any

from fluid.errors import ExecutionError
from fluid.values.lod_array import lengths_of
from fluid.values.spec import Lod

from .manipulation import flattened, numbers, ranges, write_wanted
from .table import checked, kernel
from .vision import within_extent

_FAR = 1 << 20
"""The greatest coordinate: a larger one (or NaN) is a mistake, and would be sampled for hours."""


# ------------------------------------------------------------------------------------------------------------- regions
def images_of(ROIs: Any, RoisNum: Any, ROIs_lod: Lod, images: int) -> list[int]:
    """The index of each region's image."""
    counts = numbers(RoisNum, None, lengths_of(ROIs_lod[-1] or ()) if ROIs_lod and RoisNum is None else [])
    if len(counts) != images or min(counts, default=0) < 0 or sum(counts) != len(ROIs):
        source = "RoisNum" if RoisNum is not None else "the sequences of ROIs"
        raise ExecutionError(
            f"there are {len(ROIs)} regions in ROIs and {images} images in X, "
            f"but {source} should say how many are in each: {counts}"
        )
    return [image for image, count in enumerate(counts) for _ in range(count)]


def edges_of(ROIs: Any, dtype: Any) -> Any:
    """Left, top, right and bottom [4, R]."""
    return ROIs.T.astype(dtype)


@checked(
    *("roi_align", "roi_align_back", "psroi_pool", "psroi_pool_back", "prroi_pool", "precise_parts", "precise_parts_back"),
    *("roi_pool", "deformable_psroi_pooling", "moved_parts", "moved_parts_back", "sum_of_shifts", "shift_of_parts"),
)
def check_regions(xp: Any, ROIs: Any, spatial_scale: float) -> None:
    farthest = float(xp.abs(ROIs).max()) * abs(spatial_scale) if ROIs.size else 0.0
    if not farthest <= _FAR:
        raise ExecutionError(
            f"a region in ROIs reaches to {farthest:g} (times spatial_scale); places in images should be at most {_FAR}"
        )


def _rounded(xp: Any, values: Any) -> Any:
    """To the nearest integer, halves away from zero."""
    return xp.sign(values) * xp.floor(xp.abs(values) + values.dtype.type(0.5))


def sampled(xp: Any, first: Any, last: Any, parts: int, extent: int, attrs: dict[str, Any], axis: int) -> Any:
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


def bin_weights(xp: Any, first: Any, last: Any, parts: int, extent: int, attrs: dict[str, Any], axis: int) -> Any:
    """Weights of `psroi_pool` along one axis, like `sampled`."""
    number = first.dtype.type
    scale = number(attrs["spatial_scale"])
    start, end = _rounded(xp, first) * scale, (_rounded(xp, last) + 1) * scale
    step = (xp.maximum(end - start, number(0.1)) / number(parts))[:, None]
    part = xp.arange(parts).astype(first.dtype)
    low = xp.clip(xp.floor(part * step + start[:, None]), 0, extent)[..., None]
    high = xp.clip(xp.ceil((part + 1) * step + start[:, None]), 0, extent)[..., None]
    element = xp.arange(extent)
    return (((element >= low) & (element < high)) / xp.maximum(high - low, 1)).astype(first.dtype)


def _integral(xp: Any, at: Any, order: int) -> Any:
    """The integral of the linear interpolation of a single 1 at place 0, from the left up to places; or its derivatives."""
    near = xp.clip(at, -1, 1)
    if order == 0:
        return 0.5 + near - near * xp.abs(near) / 2
    is_near = xp.abs(at) < 1
    return (1 - xp.abs(near)) * (order == 1) - xp.sign(at) * is_near * (order == 2)


def integrated(xp: Any, first: Any, last: Any, parts: int, extent: int, attrs: dict[str, Any], axis: int) -> Any:
    """`prroi_pool` along one axis: as `sampled`, or a derivative by first and last edge, as `by` says.

    A weight is the difference of two integrals, divided by the distance of the edges; derivatives of the product of both are
    sums over all ways to share them.
    """
    by = attrs.get("by", [0] * 4)
    scale, share = first.dtype.type(attrs["spatial_scale"]), xp.arange(parts + 1).astype(first.dtype) / parts
    start, end = (edge[:, None] * scale for edge in (first, last))
    size = end - start
    at = ((start + size * share)[..., None] - xp.arange(extent)).astype(first.dtype)
    weights = xp.zeros((len(first), parts, extent), first.dtype)
    for low, high in product(range(by[axis] + 1), range(by[axis + 2] + 1)):
        edges = _integral(xp, at, low + high) * ((1 - share) ** low * share**high)[:, None]
        left, right = by[axis] - low, by[axis + 2] - high
        ways = comb(by[axis], low) * comb(by[axis + 2], high) * factorial(left + right) * (-1) ** right
        powers = parts * ways / xp.where(size > 0, size, 1) ** (left + right + 1)
        weights += (edges[:, 1:] - edges[:, :-1]) * powers[..., None]
    return weights * (size > 0)[..., None] * scale ** (by[axis] + by[axis + 2])


def _spans(weights: Any) -> list[tuple[int, int]]:
    """The range of nonzero weights [R, parts, extent] for each region."""
    used = (weights != 0).any(axis=1)
    return list(zip(used.argmax(1).tolist(), (used.shape[1] - used[:, ::-1].argmax(1)).tolist(), strict=True))


def _regions(
    xp: Any, X: Any, ROIs: Any, images: list[int], Out: Any, axis_weights: Any, attrs: dict[str, Any]
) -> Iterator[tuple[Any, Any, Any, Any]]:
    """For each region: the covered part of its image, the weight matrices to multiply it by from the left and the right, and the
    array of the result."""
    height, width = attrs["pooled_height"], attrs["pooled_width"]
    if not X.size:
        return
    left, top, right, bottom = edges_of(ROIs, X.dtype)
    down = axis_weights(xp, top, bottom, height, X.shape[2], attrs, 1)
    across = axis_weights(xp, left, right, width, X.shape[3], attrs, 0)
    has_own_channels = "output_channels" in attrs  # each part has its own channels
    tops, sides = _spans(down), _spans(across)
    for region, image in enumerate(images):
        (top, bottom), (left, right) = tops[region], sides[region]
        part = X[image][:, top:bottom, left:right]
        rows, columns = down[region][:, top:bottom], across[region][:, left:right].T
        if has_own_channels:
            part = X[image].reshape(-1, height, width, *X.shape[2:])[..., top:bottom, left:right]
            rows, columns = rows[:, None, None, :], columns.T[:, :, None]
        yield part, rows, columns, Out[region][..., None, None] if has_own_channels else Out[region]


def _average(xp: Any, X: Any, ROIs: Any, images: list[int], axis_weights: Any, attrs: dict[str, Any], Out: Any) -> None:
    Out.fill(0)
    for part, rows, columns, target in _regions(xp, X, ROIs, images, Out, axis_weights, attrs):
        xp.copyto(target, rows @ (part @ columns))


def _average_back(xp: Any, Out: Any, ROIs: Any, images: list[int], axis_weights: Any, attrs: dict[str, Any], X: Any) -> None:
    X.fill(0)
    for part, rows, columns, source in _regions(xp, X, ROIs, images, Out, axis_weights, attrs):
        part += rows.swapaxes(-1, -2) @ (source @ columns.swapaxes(-1, -2))


def _define_averages(op_type: str, axis_weights: Any) -> None:
    @kernel(op_type)
    def forward(xp: Any, X: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, attrs: dict[str, Any], Out: Any) -> None:
        _average(xp, X, ROIs, images_of(ROIs, RoisNum, ROIs_lod, len(X)), axis_weights, attrs, Out)

    @kernel(f"{op_type}_back")
    def back(xp: Any, Out: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, attrs: dict[str, Any], X: Any) -> None:
        _average_back(xp, Out, ROIs, images_of(ROIs, RoisNum, ROIs_lod, len(X)), axis_weights, attrs, X)


_define_averages("roi_align", sampled)
_define_averages("psroi_pool", bin_weights)


@kernel("prroi_pool", "precise_parts")
def precise_parts(xp: Any, X: Any, ROIs: Any, ROIs_lod: Lod, attrs: dict[str, Any], Out: Any) -> None:
    _average(xp, X, ROIs, images_of(ROIs, None, ROIs_lod, len(X)), integrated, attrs, Out)


@kernel("precise_parts_back")
def precise_parts_back(xp: Any, Out: Any, ROIs: Any, ROIs_lod: Lod, attrs: dict[str, Any], X: Any) -> None:
    _average_back(xp, Out, ROIs, images_of(ROIs, None, ROIs_lod, len(X)), integrated, attrs, X)


def _windows(xp: Any, first: Any, last: Any, parts: int, extent: int, scale: float) -> Iterator[tuple[Any, Any]]:
    """For each region, the elements [parts, W] of the parts that `roi_pool` makes of it along one axis, and which parts have any.

    W is the size of the region's greatest part; smaller parts repeat their last element.
    """
    start, end = (_rounded(xp, edge * edge.dtype.type(scale)) for edge in (first, last))
    step = (xp.maximum(end - start + 1, 1) / first.dtype.type(parts))[:, None]
    part = xp.arange(parts).astype(first.dtype)
    low = xp.clip(xp.floor(part * step) + start[:, None], 0, extent).astype("int64")
    high = xp.clip(xp.ceil((part + 1) * step) + start[:, None], 0, extent).astype("int64")
    most = xp.maximum((high - low).max(1), 1).tolist()
    elements = xp.minimum(low[..., None] + xp.arange(max(most, default=1)), xp.maximum(high, 1)[..., None] - 1)
    return zip((listed[:, :width] for listed, width in zip(elements, most, strict=True)), low < high, strict=True)


def _greatest(xp: Any, values: Any, numbers: Any, axis: int) -> tuple[Any, Any]:
    """The greatest of `values` along an axis, NaN if there is one, and the least of the `numbers` of elements that equal it."""
    greatest = values.max(axis)
    peak = xp.expand_dims(greatest, axis)
    is_peak = (values == peak) | ((values != values) & (peak != peak))
    return greatest, xp.where(is_peak, numbers, numbers.dtype.type(2**31 - 1)).min(axis)


@kernel("roi_pool")
def roi_pool(xp: Any, X: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, attrs: dict[str, Any], Out: Any, Argmax: Any) -> None:
    """The maximum of each part: along its rows first, then along its columns."""
    images = images_of(ROIs, RoisNum, ROIs_lod, len(X))
    scale, (height, width) = attrs["spatial_scale"], X.shape[2:]
    left, top, right, bottom = edges_of(ROIs, X.dtype)
    rows = _windows(xp, top, bottom, attrs["pooled_height"], height, scale)
    columns = _windows(xp, left, right, attrs["pooled_width"], width, scale)
    write_wanted((Out, 0), (Argmax, -1))
    for region, (image, (down, has_rows), (across, has_columns)) in enumerate(zip(images, rows, columns, strict=True)):
        has_elements = has_rows[:, None] & has_columns
        if not has_elements.any():
            continue
        start = int(across.min())
        seen = X[image][:, :, start : int(across.max()) + 1]
        values, first = _greatest(xp, seen[:, down], (down * width).astype("int32")[..., None], 2)
        places = first[..., across - start] + across.astype("int32")
        values, at = _greatest(xp, values[..., across - start], places, 3)
        Out[region] = xp.where(has_elements, values, 0)
        if Argmax is not None:
            Argmax[region] = xp.where(has_elements, at, -1)


def _maxima(xp: Any, X: Any, Argmax: Any, images: list[int]) -> tuple[Any, Any, Any]:
    """Images [N, C, H W], the index of each maximum in them, and the mask of maxima that exist."""
    is_found = Argmax >= 0
    index = (
        xp.asarray(images, "int64")[:, None, None, None],
        xp.arange(X.shape[1])[:, None, None],
        xp.where(is_found, Argmax, 0),
    )
    return flattened(X, 2), index, is_found


@kernel("roi_place")
def roi_place(xp: Any, Out: Any, Argmax: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, X: Any) -> None:
    X.fill(0)
    if X.size:
        flat, index, is_found = _maxima(xp, X, Argmax, images_of(ROIs, RoisNum, ROIs_lod, len(X)))
        xp.add.at(flat, index, Out * is_found)


@kernel("roi_pick")
def roi_pick(xp: Any, X: Any, Argmax: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, Out: Any) -> None:
    Out.fill(0)
    if X.size:
        flat, index, is_found = _maxima(xp, X, Argmax, images_of(ROIs, RoisNum, ROIs_lod, len(X)))
        xp.copyto(Out, flat[index] * is_found)


# ------------------------------------------------------------------------------------------------------ quadrangles
NEAR = 1e-4
"""Coordinates that differ by less are the same."""


def _perspective(xp: Any, corners: Any, height: int, width: int) -> Any:
    """Matrices [R, 3, 3] that map places in a rectangle to places in quadrangles [R, 4, 2]."""
    sides = xp.sqrt(((corners - xp.roll(corners, -1, 1)) ** 2).sum(2))
    rows = max(2, height)
    columns = xp.floor((sides[:, 0] + sides[:, 2]) * (rows - 1) / (sides[:, 1] + sides[:, 3]) + 0.5) + 1
    columns = xp.clip(columns, 2, max(width, 2)) - 1
    rows -= 1
    first, second, third, fourth = corners.transpose(1, 2, 0)
    (dx1, dy1), (dx2, dy2), (dx3, dy3) = second - third, fourth - third, first - second + third - fourth
    area = dx1 * dy2 - dx2 * dy1
    across, down = (dx3 * dy2 - dx2 * dy3) / area / columns, (dx1 * dy3 - dx3 * dy1) / area / rows
    lines = [
        [(second[axis] - first[axis]) / columns + across * second[axis],
         (fourth[axis] - first[axis]) / rows + down * fourth[axis], first[axis]]
        for axis in (0, 1)
    ]  # fmt: skip
    lines.append([across, down, xp.ones_like(across)])
    return xp.stack([xp.stack(line, -1) for line in lines], 1)


def _in_quadrangle(xp: Any, x: Any, y: Any, corners: Any) -> Any:
    """The mask of places [R, P] in quadrangles [R, 4, 2] or on their outlines."""
    crossings, outline = xp.zeros(x.shape, "int64"), xp.zeros(x.shape, bool)
    for corner in range(4):
        (x1, y1), (x2, y2) = (corners[:, number % 4].T[..., None] for number in (corner, corner + 1))
        low, high = xp.minimum(y1, y2), xp.maximum(y1, y2)
        is_level = high - low < NEAR
        between = (x > xp.minimum(x1, x2) - NEAR) & (x < xp.maximum(x1, x2) + NEAR)
        at = (y - y1) * (x2 - x1) / xp.where(is_level, 1, y2 - y1) + x1
        on_edge = (xp.abs(at - x) < NEAR) & (y > low - NEAR) & (y < high + NEAR)
        outline |= xp.where(is_level, (xp.abs(y - y1) < NEAR) & between, on_edge)
        crossings += ~is_level & (y > low + NEAR) & (y < high + NEAR) & (at > x + NEAR)
    return outline | (crossings % 2 == 1)


def _sources(xp: Any, X: Any, ROIs: Any, attrs: dict[str, Any]) -> tuple[Any, Any, list[tuple[Any, Any]]]:
    """Matrices, the mask of places [R, P] of Out in a quadrangle, and four pairs of elements and weights for each place."""
    height, width, (rows, columns) = attrs["transformed_height"], attrs["transformed_width"], X.shape[2:]
    corners = ROIs.astype("float64").reshape(-1, 4, 2) * attrs["spatial_scale"]
    matrices = _perspective(xp, corners, height, width)
    places = xp.stack([*xp.indices((height, width)).reshape(2, -1)[::-1], xp.ones(height * width)])
    x, y, depth = (matrices @ places).transpose(1, 0, 2)
    x, y = x / depth, y / depth
    seen = _in_quadrangle(xp, x, y, corners)
    pairs = []
    for at, extent in ((y, rows), (x, columns)):
        seen &= (at > NEAR - 0.5) & (at < extent - 0.5 - NEAR)
        near = xp.clip(xp.where(seen, at, 0), 0, max(extent - 1, 0))
        low = xp.floor(near)
        index = low.astype("int64")
        pairs.append([(index, 1 - (near - low)), (xp.minimum(index + 1, max(extent - 1, 0)), near - low)])
    elements = [
        (row * columns + column, (by_row * by_column * seen).astype(X.dtype))
        for (row, by_row), (column, by_column) in product(*pairs)
    ]
    return matrices, seen, elements


@kernel("roi_perspective_transform")
def roi_perspective_transform(
    xp: Any, X: Any, ROIs: Any, ROIs_lod: Lod, attrs: dict[str, Any],
    Out: Any, Mask: Any, TransformMatrix: Any, Out2InIdx: Any, Out2InWeights: Any,
) -> None:  # fmt: skip
    images = xp.asarray(images_of(ROIs, None, ROIs_lod, len(X)), "int64")
    matrices, seen, elements = _sources(xp, X, ROIs, attrs)
    shape = (len(ROIs), X.shape[1], attrs["transformed_height"], attrs["transformed_width"])
    write_wanted((TransformMatrix, matrices.reshape(-1, 9)), (Mask, seen.reshape(-1, 1, *shape[2:])))
    channels, places = xp.arange(X.shape[1])[:, None], prod(X.shape[2:])
    if Out is not None and not X.size:
        Out.fill(0)
    elif Out is not None:
        flat = X.reshape(*X.shape[:2], places)
        total = sum(flat[images[:, None, None], channels, index[:, None]] * weight[:, None] for index, weight in elements)
        xp.copyto(Out, total.reshape(shape))
    if Out2InIdx is not None:
        first = (images[:, None, None] * X.shape[1] + channels) * places
        Out2InIdx[...] = xp.stack([first + index[:, None] for index, _ in elements], -1).reshape(-1, 4)
    if Out2InWeights is not None:
        weights = xp.stack([weight for _, weight in elements], -1)[:, None]
        Out2InWeights[...] = xp.broadcast_to(weights, (*shape[:2], *weights.shape[2:])).reshape(-1, 4)


@kernel("straightened_back")
def straightened_back(xp: Any, Out: Any, ROIs: Any, ROIs_lod: Lod, attrs: dict[str, Any], X: Any) -> None:
    images = xp.asarray(images_of(ROIs, None, ROIs_lod, len(X)), "int64")
    X.fill(0)
    flat, values = X.reshape(*X.shape[:2], prod(X.shape[2:])), Out.reshape(*Out.shape[:2], prod(Out.shape[2:]))
    _, _, elements = _sources(xp, X, ROIs, attrs) if X.size else (None, None, [])
    for index, weight in elements:
        where = images[:, None, None], xp.arange(X.shape[1])[:, None], index[:, None]
        xp.add.at(flat, where, values * weight[:, None])


# ------------------------------------------------------------------------------------------------- deformable regions
def _spread(xp: Any, ROIs: Any, dtype: Any, attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Along y and x, where each region starts, and its size [R]."""
    scale, least = xp.asarray(attrs["spatial_scale"], dtype), xp.asarray(0.1, dtype)
    left, top, right, bottom = _rounded(xp, edges_of(ROIs, dtype))
    return [
        (first * scale - dtype.type(0.5), xp.maximum((last + 1) * scale - first * scale, least))
        for first, last in ((top, bottom), (left, right))
    ]


def shared_parts(count: int, parts: int) -> list[int]:
    """The group, of `count` groups in a row, for each of `parts` parts of the same row."""
    return [min(part * count // parts, count - 1) for part in range(parts)]


class _SamplingPoints:
    """The sampling points of `deformable_psroi_pooling`: by region, class, part, and point of a part."""

    def __init__(self, xp: Any, extents: tuple[int, int], ROIs: Any, Trans: Any, dtype: Any, attrs: dict[str, Any]) -> None:
        self.xp, self.extents, self.attrs, self.trans = xp, extents, attrs, None if attrs["no_trans"] else Trans
        self.pooled = attrs["pooled_height"], attrs["pooled_width"]
        self.spread = _spread(xp, ROIs, dtype, attrs)
        self.classes = 1 if self.trans is None else Trans.shape[1] // 2
        rows, columns = (shared_parts(*pair) for pair in zip(attrs["group_size"], self.pooled, strict=True))
        channel = xp.arange(attrs["output_dim"])[:, None, None] * attrs["group_size"][0] + xp.asarray(rows)[:, None]
        self.channels = (channel * attrs["group_size"][1] + xp.asarray(columns)).reshape(self.classes, -1, *self.pooled, 1, 1)

    def parts(self) -> tuple[Any, Any]:
        """The row and column of Trans that moves each part."""
        rows, columns = (shared_parts(*pair) for pair in zip(self.attrs["part_size"], self.pooled, strict=True))
        return self.xp.asarray(rows)[:, None], self.xp.asarray(columns)

    def at(self, regions: slice) -> tuple[Any, list[tuple[Any, Any]]]:
        """For some regions: the mask of points in the image, and four pairs of indices and weights of elements. All broadcast to
        [regions, classes, 1, pooled_height, pooled_width, points, points]."""
        xp, in_image, pairs = self.xp, True, []
        count = self.attrs["sample_per_part"]
        for axis, ((starts, sizes), parts, extent) in enumerate(zip(self.spread, self.pooled, self.extents, strict=True)):
            start, size = (edge[regions].reshape(-1, *[1] * 6) for edge in (starts, sizes))
            in_row = [-1 if dimension == axis else 1 for dimension in range(2)]
            part, point = xp.arange(parts).reshape(1, 1, 1, *in_row, 1, 1), xp.arange(count).reshape(1, 1, 1, 1, 1, *in_row)
            bins = part.astype(start.dtype) * (size / start.dtype.type(parts))
            points = point.astype(start.dtype) * (size / start.dtype.type(parts * count))
            at = bins + start + points
            if self.trans is not None:
                trans = self.trans[regions]
                rows, columns = self.parts()
                shift = trans.reshape(len(trans), self.classes, 2, *trans.shape[2:])[:, :, 1 - axis][:, :, rows, columns]
                at = at + shift[:, :, None, :, :, None, None] * (size * start.dtype.type(self.attrs["trans_std"]))
            in_image = in_image & (at >= -0.5) & (at <= extent - 0.5)
            pairs.append(self._elements(at, extent, self.attrs.get(("along_y", "along_x")[axis], False)))
        (rows, columns), width = pairs, self.extents[1]
        return in_image, [
            (row * width + column, by_row * by_column) for (row, by_row), (column, by_column) in product(rows, columns)
        ]

    def counts(self, in_image: Any, dtype: Any) -> Any:
        """The number of points of each part [regions, classes, 1, pooled_height, pooled_width] that are in the image."""
        points = len(in_image), self.classes, 1, *self.pooled, *in_image.shape[-2:]
        return self.xp.broadcast_to(in_image, points).sum((5, 6)).astype(dtype)

    def ranges(self, images: list[int]) -> list[tuple[slice, Any]]:
        """Some regions at a time, and the number of the image of each."""
        points = self.channels.size * self.attrs["sample_per_part"] ** 2
        return [
            (slice(start, end), self.xp.asarray(images[start:end], dtype="int64").reshape(-1, *[1] * 6))
            for start, end in ranges(self.xp, len(images), points)
        ]

    def _elements(self, at: Any, extent: int, derivative: bool) -> list[tuple[Any, Any]]:
        """Along one axis, the two elements around each point, and their weights or the derivatives of these."""
        xp = self.xp
        near = xp.clip(at, 0, extent - 1)
        low = xp.floor(near)
        weights = near - low
        if derivative:
            moves = ((at > 0) & (at < extent - 1)).astype(at.dtype)
            below, above = -moves, moves
        else:
            below, above = 1 - weights, weights
        index = low.astype("int64")
        return [(index, below), (xp.minimum(index + 1, extent - 1), above)]


def _means(
    xp: Any, Input: Any, ROIs: Any, Trans: Any, ROIs_lod: Lod, attrs: dict[str, Any], Output: Any, TopCount: Any = None
) -> None:
    if not Input.size:
        write_wanted((Output, 0), (TopCount, 0))
        return
    points = _SamplingPoints(xp, Input.shape[2:], ROIs, Trans, Input.dtype, attrs)
    flat = Input.reshape(*Input.shape[:2], -1)
    for regions, image in points.ranges(images_of(ROIs, None, ROIs_lod, len(Input))):
        in_image, elements = points.at(regions)
        count = points.counts(in_image, Input.dtype)
        if TopCount is not None:
            shape = (len(image), points.classes, points.channels.shape[1], *points.pooled)
            TopCount[regions] = xp.broadcast_to(count, shape).reshape(len(image), *TopCount.shape[1:])
        if Output is not None:
            total = sum(flat[image, points.channels, index] * weight for index, weight in elements)
            means = (total * in_image).sum((5, 6)) / xp.maximum(count, 1)
            Output[regions] = means.reshape(len(image), *Output.shape[1:])


@kernel("deformable_psroi_pooling")
def deformable_psroi_pooling(
    xp: Any, Input: Any, ROIs: Any, ROIs_lod: Lod, Trans: Any, attrs: dict[str, Any], TopCount: Any, Output: Any
) -> None:
    _means(xp, Input, ROIs, Trans, ROIs_lod, attrs, Output, TopCount)


@kernel("moved_parts")
def moved_parts(xp: Any, Input: Any, ROIs: Any, ROIs_lod: Lod, Trans: Any, attrs: dict[str, Any], Output: Any) -> None:
    _means(xp, Input, ROIs, Trans, ROIs_lod, attrs, Output)


@kernel("moved_parts_back")
def moved_parts_back(xp: Any, Output: Any, ROIs: Any, ROIs_lod: Lod, Trans: Any, attrs: dict[str, Any], Input: Any) -> None:
    points = _SamplingPoints(xp, Input.shape[2:], ROIs, Trans, Input.dtype, attrs)
    Input.fill(0)
    flat = Input.reshape(*Input.shape[:2], prod(Input.shape[2:]))
    for regions, image in points.ranges(images_of(ROIs, None, ROIs_lod, len(Input))) if Input.size else ():
        in_image, elements = points.at(regions)
        count = points.counts(in_image, Input.dtype)
        share = Output[regions].reshape(len(image), points.classes, -1, *points.pooled) / xp.maximum(count, 1)
        for index, weight in elements:
            xp.add.at(flat, (image, points.channels, index), share[..., None, None] * (weight * in_image))


def _factor(xp: Any, ROIs: Any, dtype: Any, attrs: dict[str, Any]) -> tuple[Any, int]:
    """The offset of the parts of each region [R, 1, 1, 1] per unit of Trans, and the channel of Trans (of two) that holds it."""
    (_, height), (_, width) = _spread(xp, ROIs, dtype, attrs)
    size, channel = (width, 0) if attrs["along"] == "along_x" else (height, 1)
    return (size * dtype.type(attrs["trans_std"]))[:, None, None, None], channel


@kernel("sum_of_shifts")
def sum_of_shifts(xp: Any, X: Any, ROIs: Any, attrs: dict[str, Any], Out: Any) -> None:
    Out.fill(0)
    factor, channel = _factor(xp, ROIs, X.dtype, attrs)
    classes = Out.shape[1] // 2
    by_class = Out.reshape(len(Out), classes, 2, *Out.shape[2:])[:, :, channel]
    rows, columns = (xp.asarray(shared_parts(*pair)) for pair in zip(attrs["part_size"], X.shape[2:], strict=True))
    sums = (X * factor).reshape(len(X), classes, X.shape[1] // classes, *X.shape[2:]).sum(2)
    xp.add.at(by_class, (slice(None), slice(None), rows[:, None], columns), sums)


@kernel("shift_of_parts")
def shift_of_parts(xp: Any, Out: Any, ROIs: Any, attrs: dict[str, Any], X: Any) -> None:
    factor, channel = _factor(xp, ROIs, X.dtype, attrs)
    classes = Out.shape[1] // 2
    by_class = Out.reshape(len(Out), classes, 2, *Out.shape[2:])[:, :, channel]
    rows, columns = (xp.asarray(shared_parts(*pair)) for pair in zip(attrs["part_size"], X.shape[2:], strict=True))
    moved = by_class[:, :, rows[:, None], columns][:, :, None]
    shape = (len(X), classes, X.shape[1] // classes, *X.shape[2:])
    xp.multiply(moved, factor[:, None], out=X.reshape(shape))


# ---------------------------------------------------------------------------------------------- deformable convolution
def _corners(xp: Any, at: Any, extent: int, derivative: bool) -> list[tuple[Any, Any]]:
    """Along one axis: the elements around each place, and their weights, or the derivatives of these by the place."""
    low = xp.floor(at)
    weights = (xp.full_like(at, -1), xp.full_like(at, 1)) if derivative else (1 - (at - low), at - low)
    return within_extent(xp, list(zip((low, low + 1), weights, strict=True)), extent)


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
    """The image values [N, G, C / G, K P] read by the elements of a filter of this size, times Mask."""
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
