"""Select boxes and pool regions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports


def _corners(b: Builder, boxes: Any, center: bool) -> Any:
    """Convert boxes to left, top, right, bottom; ONNX has two opposite corners, y first, or centers and sizes."""
    one, two, three, four = (b.slice(boxes, 2, place, place + 1) for place in range(4))
    if center:
        halves = [b.f.scale(side, scale=0.5) for side in (three, four)]
        low = [b.f.elementwise_sub(at, half) for at, half in zip((one, two), halves, strict=True)]
        high = [b.f.elementwise_add(at, half) for at, half in zip((one, two), halves, strict=True)]
    else:
        low = [b.f.elementwise_min(*pair) for pair in ((two, four), (one, three))]
        high = [b.f.elementwise_max(*pair) for pair in ((two, four), (one, three))]
    return b.f.concat([*low, *high], axis=2)


def _number(node: OnnxNode, index: int, label: str, default: float) -> float:
    value = node.constant_input(index, label, np.array(default))
    return float(np.reshape(value, ())) if np.size(value) == 1 else default


@imports("NonMaxSuppression", trains=False)
def non_max_suppression(b: Builder, node: OnnxNode) -> Any:
    boxes, scores = node[0], node[1]
    most = int(_number(node, 2, "the most boxes of a class", 0))
    overlap = _number(node, 3, "the greatest overlap", 0.0)
    least = _number(node, 4, "the least score", -3e38)
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[1] < 0 or scores.shape[1] < 0:
        raise FormatError("numbers of boxes and classes known only at run time are not supported")
    if most <= 0:
        return b.constant(np.zeros((0, 3), np.int64))
    attrs = {"score_threshold": least, "nms_top_k": -1, "keep_top_k": -1, "nms_threshold": overlap, "nms_eta": 1.0}
    selected = b.f.multiclass_nms3(
        b.cast(_corners(b, boxes, bool(node.int("center_point_box", 0))), VarType.FP32),
        b.cast(scores, VarType.FP32), normalized=True, background_label=-1, **attrs,
    )  # fmt: skip
    rows, places = selected[0], b.cast(selected[1], VarType.INT64)
    count = b.number(boxes.shape[1], VarType.INT64)
    image, box = b.f.elementwise_floordiv(places, count), b.f.elementwise_mod(places, count)
    label = b.cast(b.slice(rows, 1, 0, 1), VarType.INT64)
    # Keep the first boxes of each image and class, which are adjacent.
    key = b.f.elementwise_add(b.f.elementwise_mul(image, b.number(scores.shape[1], VarType.INT64)), label)
    key = b.squeeze(key, [1])
    how = {"return_inverse": True, "return_counts": True, "dtype": int(VarType.INT64)}
    _, group, sizes = b.f.unique_consecutive(key, **how)
    starts = b.f.elementwise_sub(b.f.cumsum(sizes, axis=0), sizes)
    number = b.f.cumsum(b.f.fill_any_like(key, value=1.0), axis=0)  # from 1 on
    rank = b.f.elementwise_sub(number, b.f.gather(starts, group, axis=0))
    chosen = b.f.where_index(b.f.less_equal(rank, b.number(most, VarType.INT64)))
    return b.f.gather_nd(b.f.concat([image, label, box], axis=1), chosen)


def _images_of_regions(b: Builder, x: Any, images: Any) -> tuple[Any, Any]:
    """Gather the image of each region; each of these images has one region."""
    return b.f.gather(x, images, axis=0), b.f.fill_any_like(b.cast(images, VarType.INT32), value=1.0)


@imports("MaxRoiPool")
def max_roi_pool(b: Builder, node: OnnxNode) -> Any:
    x, rois = node[0], node[1]
    high, wide = node.ints("pooled_shape")
    images = b.cast(b.f.round(b.squeeze(b.slice(rois, 1, 0, 1), [1])), VarType.INT64)
    attrs = {"pooled_height": high, "pooled_width": wide, "spatial_scale": node.float("spatial_scale", 1.0)}
    region_images, counts = _images_of_regions(b, x, images)
    return b.f.roi_pool(region_images, b.slice(rois, 1, 1, 5), counts, **attrs)


@imports("RoiAlign")
def roi_align(b: Builder, node: OnnxNode) -> Any:
    """Pool each part of each region by the mean or the maximum of points between the image's elements."""
    x, rois, images = node[0], node[1], b.cast(node[2], VarType.INT64)
    mode = node.string("coordinate_transformation_mode", "half_pixel") if node.opset >= 16 else "output_half_pixel"
    attrs = {
        "pooled_height": node.int("output_height", 1), "pooled_width": node.int("output_width", 1),
        "spatial_scale": node.float("spatial_scale", 1.0), "sampling_ratio": node.int("sampling_ratio", 0),
        "aligned": mode == "half_pixel",
    }  # fmt: skip
    is_known = attrs["sampling_ratio"] > 0 and -1 not in x.shape[1:]
    is_greatest = node.string("mode", "avg") == "max"
    if is_known:  # gradients flow to the regions, too
        points = _points(b, x, rois, images, attrs, b.f.elementwise_max if is_greatest else b.f.elementwise_add)
        if is_greatest:  # among equal points, for example beyond an edge, one gets the whole gradient
            return b.squeeze(b.f.top_k_v2(points, k=1, axis=4)[0], [4])
        return b.reduce("reduce_mean", points, [4], False)
    if is_greatest:
        raise FormatError("in the mode 'max', sampling_ratio should be above 0, and the sizes of images known beforehand")
    region_images, counts = _images_of_regions(b, x, images)
    return b.f.roi_align(region_images, rois, counts, **attrs)


def _around(b: Builder, rois: Any, axis: int, size: int, attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """For each point of regions along an axis: its two neighbour elements [R, points], and their weights."""
    dtype, ratio = rois.dtype, attrs["sampling_ratio"]
    parts = attrs["pooled_height" if axis else "pooled_width"]
    corners = b.f.scale(rois, scale=attrs["spatial_scale"], bias=-0.5 if attrs["aligned"] else 0.0)
    start, end = (b.slice(corners, 1, place, place + 1) for place in (axis, axis + 2))
    side = end - start if attrs["aligned"] else b.f.elementwise_max(end - start, b.number(1.0, dtype))
    b.reserve(parts, ratio, itemsize=32)
    at = (np.arange(parts)[:, None] + (np.arange(ratio) + 0.5)[None] / ratio).reshape(1, -1) / parts
    place = b.f.elementwise_add(start, b.f.elementwise_mul(side, b.constant(at.astype(dtype.numpy))))
    is_inside = b.f.logical_and(b.f.greater_equal(place, b.number(-1.0, dtype)), b.f.less_equal(place, b.number(size, dtype)))
    near = b.f.clip(place, min=0.0, max=float(size - 1))
    low = b.f.floor(near)
    share, visible = near - low, b.cast(is_inside, dtype)
    after = b.f.elementwise_min(b.f.scale(low, bias=1.0), b.number(size - 1, dtype))
    return [(b.cast(low, VarType.INT64), (1.0 - share) * visible), (b.cast(after, VarType.INT64), share * visible)]


def _points(b: Builder, x: Any, rois: Any, images: Any, attrs: dict[str, Any], join: Callable[[Any, Any], Any]) -> Any:
    """Join the four weighted neighbours of each point: [R, C, high, wide, points]."""
    last = b.transpose(x, [0, 2, 3, 1])
    rows, columns = (_around(b, rois, axis, x.shape[3 - axis], attrs) for axis in (1, 0))
    joined = None
    for (row, by_row), (column, by_column) in product(rows, columns):
        at = [b.unsqueeze(part, axes) for part, axes in ((images, [1, 2]), (row, [2]), (column, [1]))]
        zeros = b.f.fill_zeros_like(at[1] + at[2])
        index = b.f.stack([b.f.elementwise_add(zeros, part) for part in at], axis=3)
        weight = b.f.elementwise_mul(b.unsqueeze(by_row, [2, 3]), b.unsqueeze(by_column, [1, 3]))
        part = b.f.elementwise_mul(b.f.gather_nd(last, index), weight)
        joined = part if joined is None else join(joined, part)
    ratio, high, wide = attrs["sampling_ratio"], attrs["pooled_height"], attrs["pooled_width"]
    parts = b.f.reshape2(joined, shape=[-1, high, ratio, wide, ratio, x.shape[1]])
    return b.f.reshape2(b.transpose(parts, [0, 5, 1, 3, 2, 4]), shape=[-1, x.shape[1], high, wide, ratio * ratio])
