"""Boxes that are chosen, and regions that are pooled."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import VarType
from ..builder import Builder
from ..node import Node
from ..table import imports


def _corners(b: Builder, boxes: Any, center: bool) -> Any:
    """Boxes as left, top, right, bottom; ONNX has two opposite corners, y first, or centers and sizes."""
    one, two, three, four = (b.slice(boxes, 2, place, place + 1) for place in range(4))
    if center:
        halves = [b.f.scale(side, scale=0.5) for side in (three, four)]
        low = [b.f.elementwise_sub(at, half) for at, half in zip((one, two), halves, strict=True)]
        high = [b.f.elementwise_add(at, half) for at, half in zip((one, two), halves, strict=True)]
    else:
        low = [b.f.elementwise_min(*pair) for pair in ((two, four), (one, three))]
        high = [b.f.elementwise_max(*pair) for pair in ((two, four), (one, three))]
    return b.f.concat([*low, *high], axis=2)


def _number(node: Node, index: int, what: str, default: float) -> float:
    value = node.known(index, what, np.array(default))
    return float(np.reshape(value, ())) if np.size(value) == 1 else default


@imports("NonMaxSuppression", trains=False)
def non_max_suppression(b: Builder, node: Node) -> Any:
    boxes, scores = node[0], node[1]
    most = int(_number(node, 2, "the most boxes of a class", 0))
    overlap = _number(node, 3, "the greatest overlap", 0.0)
    least = _number(node, 4, "the least score", -3e38)
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[1] < 0 or scores.shape[1] < 0:
        raise FormatError("numbers of boxes and classes that only a run tells are not read")
    if most <= 0:
        return b.constant(np.zeros((0, 3), np.int64))
    attrs = {"score_threshold": least, "nms_top_k": -1, "keep_top_k": -1, "nms_threshold": overlap, "nms_eta": 1.0}
    found = b.f.multiclass_nms3(
        b.cast(_corners(b, boxes, bool(node.int("center_point_box", 0))), VarType.FP32),
        b.cast(scores, VarType.FP32), normalized=True, background_label=-1, **attrs,
    )  # fmt: skip
    rows, places = found[0], b.cast(found[1], VarType.INT64)
    count = b.number(boxes.shape[1], VarType.INT64)
    image, box = b.f.elementwise_floordiv(places, count), b.f.elementwise_mod(places, count)
    label = b.cast(b.slice(rows, 1, 0, 1), VarType.INT64)
    # The first so many of each image and class, which stand together.
    key = b.f.elementwise_add(b.f.elementwise_mul(image, b.number(scores.shape[1], VarType.INT64)), label)
    key = b.squeeze(key, [1])
    how = {"return_inverse": True, "return_counts": True, "dtype": int(VarType.INT64)}
    _, group, sizes = b.f.unique_consecutive(key, **how)
    starts = b.f.elementwise_sub(b.f.cumsum(sizes, axis=0), sizes)
    number = b.f.cumsum(b.f.fill_any_like(key, value=1.0), axis=0)  # from 1 on
    rank = b.f.elementwise_sub(number, b.f.gather(starts, group, axis=0))
    chosen = b.f.where_index(b.f.less_equal(rank, b.number(most, VarType.INT64)))
    return b.f.gather_nd(b.f.concat([image, label, box], axis=1), chosen)


@imports("MaxRoiPool")
def max_roi_pool(b: Builder, node: Node) -> Any:
    x, rois = node[0], node[1]
    high, wide = node.ints("pooled_shape")
    if rois.shape[0] < 0:
        raise FormatError("a number of regions that only a run tells is not read")
    images = b.cast(b.f.round(b.squeeze(b.slice(rois, 1, 0, 1), [1])), VarType.INT64)
    each = b.constant(np.ones(rois.shape[0], np.int32))
    attrs = {"pooled_height": high, "pooled_width": wide, "spatial_scale": node.float("spatial_scale", 1.0)}
    return b.f.roi_pool(b.f.gather(x, images, axis=0), b.slice(rois, 1, 1, 5), each, **attrs)
