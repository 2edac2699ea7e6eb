"""Samples of `fluid.ops.roi`."""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import numpy as np

from .base import Data, Sample, add
from .conv import linear_transpose

data = Data("roi")

ROIS = np.array([[0.0, 0.3, 4.6, 6.2], [2.3, 1.4, 9.7, 7.2], [-3.3, -2.6, 4.4, 9.3], [5.2, 5.4, 4.1, 3.3]])
LOD = ((0, 1, 4),)
IMAGES = (0, 1, 1, 1)


def bilinear(image: Any, y: float, x: float) -> Any:
    """Images [..., H, W] at a place, with zeros outside."""
    total, (height, width) = 0.0, image.shape[-2:]
    for row in (floor(y), floor(y) + 1):
        for column in (floor(x), floor(x) + 1):
            if 0 <= row < height and 0 <= column < width:
                total = total + image[..., row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def parts(first: float, last: float, count: int) -> list[tuple[float, float]]:
    step = (last - first) / count
    return [(first + i * step, first + (i + 1) * step) for i in range(count)]


def align(X: Any, ROIs: Any, pooled_height: int = 1, pooled_width: int = 1, spatial_scale: float = 1.0,
          sampling_ratio: int = -1, aligned: bool = False) -> Any:  # fmt: skip
    out = np.zeros((len(ROIs), X.shape[1], pooled_height, pooled_width), X.dtype)
    height, width = X.shape[2:]
    for r, roi in enumerate(ROIs.astype("float64")):
        left, top, right, bottom = roi * spatial_scale - (0.5 if aligned else 0)
        if not aligned:
            right, bottom = max(right, left + 1), max(bottom, top + 1)
        for i, (low, high) in enumerate(parts(top, bottom, pooled_height)):
            for j, (start, end) in enumerate(parts(left, right, pooled_width)):
                rows, columns = (sampling_ratio if sampling_ratio > 0 else ceil(size) for size in (high - low, end - start))
                for y in np.linspace(low, high, 2 * max(rows, 0) + 1)[1::2]:
                    for x in np.linspace(start, end, 2 * max(columns, 0) + 1)[1::2]:
                        if -1 <= y <= height and -1 <= x <= width:
                            inside = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
                            out[r, :, i, j] += bilinear(X[IMAGES[r]], *inside) / (rows * columns)
    return out


def whole(X: Any, ROIs: Any, output_channels: int, pooled_height: int = 1, pooled_width: int = 1,
          spatial_scale: float = 1.0) -> Any:  # fmt: skip
    out = np.zeros((len(ROIs), output_channels, pooled_height, pooled_width), X.dtype)
    for r, (left, top, right, bottom) in enumerate((np.rint(ROIs.astype("float64")) + [0, 0, 1, 1]) * spatial_scale):
        for i, (low, high) in enumerate(parts(top, max(bottom, top + 0.1), pooled_height)):
            for j, (start, end) in enumerate(parts(left, max(right, left + 0.1), pooled_width)):
                channels = X[IMAGES[r], i * pooled_width + j :: pooled_height * pooled_width]
                inside = channels[:, max(floor(low), 0) : max(ceil(high), 0), max(floor(start), 0) : max(ceil(end), 0)]
                if inside.size:
                    out[r, :, i, j] = inside.mean((1, 2))
    return out


def greatest(X: Any, ROIs: Any, pooled_height: int = 1, pooled_width: int = 1, spatial_scale: float = 1.0) -> Any:
    shape = (len(ROIs), X.shape[1], pooled_height, pooled_width)
    out, index = np.zeros(shape, X.dtype), np.full(shape, -1)
    places = np.arange(X[0, 0].size).reshape(X.shape[2:])
    for r, (left, top, right, bottom) in enumerate(np.rint(ROIs.astype("float64") * spatial_scale)):
        for i, (low, high) in enumerate(parts(top, max(bottom, top) + 1, pooled_height)):
            for j, (start, end) in enumerate(parts(left, max(right, left) + 1, pooled_width)):
                spans = [slice(max(floor(a + 1e-9), 0), max(ceil(b - 1e-9), 0)) for a, b in ((low, high), (start, end))]
                if places[tuple(spans)].size:
                    inside = X[(IMAGES[r], slice(None), *spans)].reshape(X.shape[1], -1)
                    out[r, :, i, j] = inside.max(1)
                    index[r, :, i, j] = places[tuple(spans)].reshape(-1)[inside.argmax(1)]
    return {"Out": out, "Argmax": index}


def back(reference: Any) -> Any:
    """The transpose of `reference` in X."""

    def found(Out: Any, Like: Any, ROIs: Any, RoisNum: Any = None, **attrs: Any) -> Any:
        return linear_transpose(lambda X: reference(X, ROIs, **attrs), Like, Out)

    return found


NUMBERS = np.array([1, 3], "int32")
for op_type, reference, cases in (
    (
        "roi_align",
        align,
        (
            {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.5},
            {"pooled_height": 2, "pooled_width": 1, "aligned": True},
            {"pooled_height": 1, "pooled_width": 2, "sampling_ratio": 2, "spatial_scale": 0.75},
        ),
    ),
    (
        "psroi_pool",
        whole,
        (
            {"pooled_height": 2, "pooled_width": 1, "output_channels": 2, "spatial_scale": 0.5},
            {"pooled_height": 2, "pooled_width": 2, "output_channels": 1},
        ),
    ),
):
    for attrs in cases:
        channels = attrs.get("output_channels", 1) * attrs["pooled_height"] * attrs["pooled_width"] if reference is whole else 2
        X, Out = data(2, channels, 4, 5), reference(data(2, channels, 4, 5), ROIS, **attrs)
        add(op_type, Sample({"X": X, "ROIs": ROIS}, attrs, reference, lods={"ROIs": LOD}))
        add(f"{op_type}_back", Sample({"Out": Out, "ROIs": ROIS, "Like": X}, attrs, back(reference), lods={"ROIs": LOD}))
    add(op_type, Sample({"X": X, "ROIs": ROIS, "RoisNum": NUMBERS}, attrs, reference))
    add(f"{op_type}_back", Sample({"Out": Out, "ROIs": ROIS, "RoisNum": NUMBERS, "Like": X}, attrs, back(reference)))

X = data.distinct(2, 2, 4, 5)
for attrs in ({"pooled_height": 2, "pooled_width": 2}, {"pooled_height": 3, "pooled_width": 1, "spatial_scale": 0.45}):
    add("roi_pool", Sample({"X": X, "ROIs": ROIS}, attrs, greatest, lods={"ROIs": LOD}))
    add("roi_pool", Sample({"X": X, "ROIs": ROIS, "RoisNum": NUMBERS}, attrs, greatest))
found = greatest(X, ROIS, 3, 2)
where = {"Argmax": found["Argmax"], "ROIs": ROIS}


def picked(X: Any, Argmax: Any) -> Any:
    flat = X.reshape(*X.shape[:2], -1)
    out = [np.where(Argmax[r, c] < 0, 0, flat[IMAGES[r], c][Argmax[r, c]]) for r, c in np.ndindex(Argmax.shape[:2])]
    return np.array(out, X.dtype).reshape(Argmax.shape)


def placed(Out: Any, Argmax: Any, Like: Any) -> Any:
    return linear_transpose(lambda X: picked(X, Argmax), Like, Out)


for extra, lods in (({}, {"ROIs": LOD}), ({"RoisNum": NUMBERS}, {})):
    add("roi_pick", Sample({"X": X, **where, **extra}, {}, picked, lods=lods))
    add("roi_place", Sample({"Out": found["Out"], **where, **extra, "Like": X}, {}, placed, lods=lods))


# ---------------------------------------------------------------------------------------------- deformable convolution
def read(Input: Any, Offset: Any, Filter: Any, Mask: Any = None, strides: Any = (1, 1), paddings: Any = (0, 0),
         dilations: Any = (1, 1), deformable_groups: int = 1, along_x: bool = False, along_y: bool = False) -> Any:  # fmt: skip
    """Columns [N, C, K, P]; derivatives are differences, exact within the squares between elements."""
    (n, c), (_, _, a, b), (h, w) = Input.shape[:2], Filter.shape, Offset.shape[2:]
    out = np.zeros((n, c, a * b, h * w))
    for image, k, t, p in np.ndindex(n, c, a * b, h * w):
        group, i, j = k // (c // deformable_groups), p // w, p % w
        dy, dx = Offset[image, 2 * (group * a * b + t) :, i, j][:2].astype("float64")
        y = i * strides[0] - paddings[0] + t // b * dilations[0] + dy
        x = j * strides[1] - paddings[1] + t % b * dilations[1] + dx
        ys = [(floor(y), -1), (floor(y) + 1, 1)] if along_y else [(y, 1)]
        xs = [(floor(x), -1), (floor(x) + 1, 1)] if along_x else [(x, 1)]
        factor = 1.0 if Mask is None else Mask[image, group * a * b + t, i, j]
        out[image, k, t, p] = factor * sum(s * r * bilinear(Input[image, k], one, other) for one, s in ys for other, r in xs)
    return out.astype(Input.dtype)


def image_of(Columns: Any, Offset: Any, Filter: Any, Like: Any, Mask: Any = None, **attrs: Any) -> Any:
    return linear_transpose(lambda Input: read(Input, Offset, Filter, Mask, **attrs), Like, Columns)


def mask_of(Input: Any, Offset: Any, Filter: Any, Columns: Any, **attrs: Any) -> Any:
    n, channels, h, w = Offset.shape
    product = Columns * read(Input, Offset, Filter, **attrs)
    groups = attrs.get("deformable_groups", 1)
    return product.reshape(n, groups, -1, channels // 2 // groups, h, w).sum(2).reshape(n, channels // 2, h, w)


def convolved(Input: Any, Offset: Any, Filter: Any, Mask: Any = None, groups: int = 1, **attrs: Any) -> Any:
    columns = read(Input, Offset, Filter, Mask, **attrs)
    (n, c, k, p), m = columns.shape, len(Filter)
    columns, kernel = columns.reshape(n, groups, c // groups, k, p), Filter.reshape(groups, m // groups, -1, k)
    return np.einsum("ngckp,gmck->ngmp", columns, kernel).reshape(n, m, *Offset.shape[2:])


# Places keep away from elements, where the slope changes.
for shape, kernel, places, groups, parts_, windows in (
    ((2, 2, 3, 4), (2, 2), (2, 3), 1, 1, {}),
    ((1, 4, 4, 3), (1, 2), (2, 3), 2, 2, {"strides": [2, 1], "paddings": [0, 1], "dilations": [1, 2]}),
):
    taps, cells = kernel[0] * kernel[1], places[0] * places[1]
    arrays: dict[str, Any] = {
        "Input": data(*shape),
        "Offset": data.ints(shape[0], 2 * parts_ * taps, *places, low=-1, high=2)
        + data(shape[0], 2 * parts_ * taps, *places, low=0.1, high=0.9),
        "Filter": data(4, shape[1] // groups, *kernel),
    }
    Mask, Columns = data(shape[0], parts_ * taps, *places), data(shape[0], shape[1], taps, cells)
    attrs = {**windows, "deformable_groups": parts_}
    add("deformable_conv", Sample({**arrays, "Mask": Mask}, {**attrs, "groups": groups}, convolved))
    add("deformable_conv_v1", Sample(arrays, {**attrs, "groups": groups}, convolved))
    for slopes in ({}, {"along_x": True}, {"along_y": True}, {"along_x": True, "along_y": True}):
        given = {**attrs, **slopes}
        add("deform_columns", Sample({**arrays, "Mask": Mask}, given, read))
        add("deform_mask", Sample({**arrays, "Columns": Columns}, given, mask_of))
        add("deform_image", Sample(
            {"Columns": Columns, "Offset": arrays["Offset"], "Mask": Mask, "Filter": arrays["Filter"], "Like": arrays["Input"]},
            given, image_of,
        ))  # fmt: skip
    add("deform_columns", Sample(arrays, attrs, read))
    add("deform_image", Sample(
        {"Columns": Columns, "Offset": arrays["Offset"], "Filter": arrays["Filter"], "Like": arrays["Input"]}, attrs, image_of
    ))  # fmt: skip
