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


# --------------------------------------------------------------------------------------------------- precise regions
def mean_shares(first: float, last: float, count: int, extent: int) -> Any:
    """[count, extent]: the mean of the hat of each element over each part; between whole numbers a hat is a line."""
    out = np.zeros((count, extent))
    for part, (low, high) in enumerate(parts(first, last, count) if last > first else []):
        at = np.array([low, *range(ceil(low), ceil(high)), high])
        hats = np.maximum(1 - np.abs(at - np.arange(extent)[:, None]), 0)
        out[part] = ((hats[:, 1:] + hats[:, :-1]) / 2 * np.diff(at)).sum(1) / (high - low)
    return out


def precise(X: Any, ROIs: Any, pooled_height: int = 1, pooled_width: int = 1, spatial_scale: float = 1.0,
            by: Any = (0, 0, 0, 0)) -> Any:  # fmt: skip
    """Derivatives are differences."""
    edge, step = next((edge for edge in range(4) if by[edge]), None), 1e-4
    if edge is not None:
        rest = [order - (number == edge) for number, order in enumerate(by)]
        sides = [ROIs + sign * step * (np.arange(4) == edge) for sign in (1, -1)]
        more, less = (precise(X, side, pooled_height, pooled_width, spatial_scale, rest) for side in sides)
        return (more - less) / (2 * step)
    out = np.zeros((len(ROIs), X.shape[1], pooled_height, pooled_width), X.dtype)
    for r, (left, top, right, bottom) in enumerate(ROIs.astype("float64") * spatial_scale):
        rows, columns = (mean_shares(top, bottom, pooled_height, X.shape[2]), mean_shares(left, right, pooled_width, X.shape[3]))
        out[r] = rows @ X[IMAGES[r]] @ columns.T
    return out


EDGES = ROIS + np.array([0.4, 0.0, 0.0, 0.0])  # no edge is at an element, where slopes change
X = data(2, 2, 4, 5)
for attrs, orders in (
    ({"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.53}, ([0, 0, 0, 0], [1, 0, 1, 0])),
    ({"pooled_height": 1, "pooled_width": 2}, ([0, 0, 0, 1], [0, 2, 0, 0])),
):
    add("prroi_pool", Sample({"X": X, "ROIs": EDGES}, attrs, precise, lods={"ROIs": LOD}, tolerance=3))
    for by in orders:
        how: dict[str, Any] = {"lods": {"ROIs": LOD}, "tolerance": 3.0}
        how |= {"dtypes": ["float64"], "tolerance": 3e4} if any(by) else {}
        given = {**attrs, "by": by}
        Out = precise(data(2, 2, 4, 5), EDGES, **attrs)
        add("precise_parts", Sample({"X": X, "ROIs": EDGES}, given, precise, **how))
        add("precise_parts_back", Sample({"Out": Out, "ROIs": EDGES, "Like": X}, given, back(precise), **how))


# ------------------------------------------------------------------------------------------------------ quadrangles
def straightened(X: Any, ROIs: Any, transformed_height: int, transformed_width: int, spatial_scale: float = 1.0) -> Any:
    """The transformation is what four corners determine; places in a convex quadrangle are on one side of all edges.

    Places nearer than 1e-4 to the border of an image are outside, as the op defines it: none of them is decided by a last bit.
    """
    out = np.zeros((len(ROIs), X.shape[1], transformed_height, transformed_width), X.dtype)
    mask, matrices = np.zeros((len(ROIs), 1, *out.shape[2:]), "int32"), np.zeros((len(ROIs), 9), X.dtype)
    for r, roi in enumerate(ROIs.astype("float64").reshape(-1, 4, 2) * spatial_scale):
        lengths = [np.linalg.norm(roi[k] - roi[(k + 1) % 4]) for k in range(4)]
        wide = floor((lengths[0] + lengths[2]) / (lengths[1] + lengths[3]) * (transformed_height - 1) + 0.5) + 1
        wide = max(2, min(wide, transformed_width))
        corners = [(0, 0), (wide - 1, 0), (wide - 1, transformed_height - 1), (0, transformed_height - 1)]
        lines, goals = [], []
        for (u, v), (x, y) in zip(corners, roi, strict=True):
            lines += [[u, v, 1, 0, 0, 0, -u * x, -v * x], [0, 0, 0, u, v, 1, -u * y, -v * y]]
            goals += [x, y]
        matrix = np.append(np.linalg.solve(lines, goals), 1).reshape(3, 3)
        matrices[r] = matrix.reshape(-1)
        for i, j in np.ndindex(*out.shape[2:]):
            x, y, depth = matrix @ [j, i, 1]
            x, y = x / depth, y / depth
            sides = [np.cross([*(roi[(k + 1) % 4] - roi[k]), 0], [x - roi[k][0], y - roi[k][1], 0])[2] for k in range(4)]
            if min(sides) > -1e-6 and all(
                1e-4 - 0.5 < at < size - 0.5 - 1e-4 for at, size in zip((y, x), X.shape[2:], strict=True)
            ):
                mask[r, 0, i, j] = 1
                out[r, :, i, j] = bilinear(X[IMAGES[r]], np.clip(y, 0, X.shape[2] - 1), np.clip(x, 0, X.shape[3] - 1))
    return {"Out": out, "Mask": mask, "TransformMatrix": matrices}


def straight_back(Out: Any, ROIs: Any, Like: Any, **attrs: Any) -> Any:
    return linear_transpose(lambda X: straightened(X, ROIs, **attrs)["Out"], Like, Out)


QUADRANGLES = np.array([
    [1.0, 0.5, 8.0, 1.5, 7.5, 5.0, 0.5, 4.0], [2, 1, 6, 0.5, 9, 7, 1, 6],
    [-2, -1, 3, -1.5, 4, 3, -1, 4], [3, 2, 12, 3, 13, 5, 2, 4.5],
])  # fmt: skip
for size in ({"transformed_height": 3, "transformed_width": 4}, {"transformed_height": 2, "transformed_width": 6}):
    attrs = {**size, "spatial_scale": 0.5}
    X = data(2, 2, 4, 5)
    straight = Sample({"X": X, "ROIs": QUADRANGLES}, attrs, straightened, lods={"ROIs": LOD}, tolerance=3)
    add("roi_perspective_transform", straight)
X, attrs = data(2, 1, 3, 4), {"transformed_height": 2, "transformed_width": 3, "spatial_scale": 0.5}
reverse = {"Out": straightened(X, QUADRANGLES, **attrs)["Out"], "ROIs": QUADRANGLES, "Like": X}
add("straightened_back", Sample(reverse, attrs, straight_back, lods={"ROIs": LOD}, tolerance=3))


# ------------------------------------------------------------------------------------------------- deformable regions
def moved(Input: Any, ROIs: Any, Trans: Any, no_trans: bool, spatial_scale: float, output_dim: int, group_size: Any,
          pooled_height: int, pooled_width: int, part_size: Any, sample_per_part: int, trans_std: float,
          along_x: bool = False, along_y: bool = False) -> Any:  # fmt: skip
    """Sums and counts of points; derivatives are differences, exact within the squares between elements."""
    shape = (len(ROIs), output_dim, pooled_height, pooled_width)
    out, counts = np.zeros(shape, Input.dtype), np.zeros(shape, Input.dtype)
    height, width = Input.shape[2:]
    classes = 1 if no_trans else Trans.shape[1] // 2
    for r, c, i, j in np.ndindex(shape):
        left, top, right, bottom = (np.rint(ROIs[r].astype("float64")) + [0, 0, 1, 1]) * spatial_scale - 0.5
        sizes = max(bottom - top, 0.1), max(right - left, 0.1)
        shift = [0.0, 0.0]
        if not no_trans:
            place = (i * part_size[0] // pooled_height, j * part_size[1] // pooled_width)
            class_ = c // (output_dim // classes)
            shift = [float(Trans[(r, 2 * class_ + 1, *place)]) * trans_std, float(Trans[(r, 2 * class_, *place)]) * trans_std]
        group = (i * group_size[0] // pooled_height) * group_size[1] + j * group_size[1] // pooled_width
        image = Input[IMAGES[r], c * group_size[0] * group_size[1] + group]
        for one, other in np.ndindex(sample_per_part, sample_per_part):
            y = top + sizes[0] * (i / pooled_height + shift[0] + one / pooled_height / sample_per_part)
            x = left + sizes[1] * (j / pooled_width + shift[1] + other / pooled_width / sample_per_part)
            if not Input.size or not (-0.5 <= y <= height - 0.5 and -0.5 <= x <= width - 0.5):
                continue
            counts[r, c, i, j] += 1
            limited = not 0 < y < height - 1, not 0 < x < width - 1
            y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
            if (along_y and limited[0]) or (along_x and limited[1]):
                continue
            ys = [(floor(y), -1), (floor(y) + 1, 1)] if along_y else [(y, 1)]
            xs = [(floor(x), -1), (floor(x) + 1, 1)] if along_x else [(x, 1)]
            out[r, c, i, j] += sum(s * t * bilinear(image, a, b) for a, s in ys for b, t in xs)
    return {"TopCount": counts, "Output": out / np.maximum(counts, 1)}


def means(*inputs: Any, **attrs: Any) -> Any:
    return moved(*inputs, **attrs)["Output"]


def spread_out(Output: Any, ROIs: Any, Trans: Any, Like: Any, **attrs: Any) -> Any:
    return linear_transpose(lambda Input: means(Input, ROIs, Trans, **attrs), Like, Output)


def shifts(Out: Any, ROIs: Any, Like: Any, along: str, output_dim: int, spatial_scale: float, trans_std: float, part_size: Any,
           **others: Any) -> Any:  # fmt: skip
    out = np.zeros(Like.shape, Like.dtype)
    for r, c, i, j in np.ndindex(out.shape):
        axis = 0 if along == "along_x" else 1
        first, last = np.rint(ROIs[r].astype("float64"))[[axis, axis + 2]]
        row, column = i * part_size[0] // out.shape[2], j * part_size[1] // out.shape[3]
        channel = 2 * (c // (output_dim // (Out.shape[1] // 2))) + axis
        out[r, c, i, j] = Out[r, channel, row, column] * trans_std * max((last + 1 - first) * spatial_scale, 0.1)
    return out


def sum_shifts(X: Any, ROIs: Any, Like: Any, **attrs: Any) -> Any:
    return linear_transpose(lambda Out: shifts(Out, ROIs, X, **attrs), Like, X)


MOVED: dict[str, Any] = {"output_dim": 2, "pooled_height": 2, "pooled_width": 3, "trans_std": 0.1, "spatial_scale": 0.53}
for given, classes in (
    ({"no_trans": False, "group_size": [1, 1], "part_size": [2, 3], "sample_per_part": 2}, 2),
    ({"no_trans": False, "group_size": [2, 1], "part_size": [1, 2], "sample_per_part": 1}, 1),
    ({"no_trans": True, "group_size": [1, 2], "part_size": [1, 1], "sample_per_part": 2}, 1),
):
    attrs = {**MOVED, **given}
    Input = data(2, 2 * attrs["group_size"][0] * attrs["group_size"][1], 4, 5)
    Trans, Output = data(4, 2 * classes, *attrs["part_size"]), data(4, 2, 2, 3)
    inputs, lods = {"Input": Input, "ROIs": ROIS, "Trans": Trans}, {"ROIs": LOD}
    add("deformable_psroi_pooling", Sample(inputs, attrs, moved, lods=lods, tolerance=3))
    for slopes in ({}, {"along_x": True}, {"along_x": True, "along_y": True}) if classes == 2 else ():
        add("moved_parts", Sample(inputs, {**attrs, **slopes}, means, lods=lods, tolerance=3))
        few = {**attrs, **slopes, "pooled_height": 1, "pooled_width": 2, "part_size": [1, 2]}
        moves = Trans if attrs["no_trans"] else Trans[:, :, :1, :2]
        transposed = {"Output": Output[:, :, :1, :2], "ROIs": ROIS, "Trans": moves, "Like": Input[:, :, :3, :4]}
        add("moved_parts_back", Sample(transposed, few, spread_out, lods=lods, tolerance=3))
    for along in ("along_x", "along_y"):
        if not attrs["no_trans"]:
            summed = Sample({"X": Output, "ROIs": ROIS, "Like": Trans}, {**attrs, "along": along}, sum_shifts, lods=lods)
            add("sum_of_shifts", summed)
            add(
                "shift_of_parts",
                Sample({"Out": Trans, "ROIs": ROIS, "Like": Output}, {**attrs, "along": along}, shifts, lods=lods),
            )


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
