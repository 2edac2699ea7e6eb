"""Samples of `fluid.ops.nms`, stated box by box."""

from __future__ import annotations

from math import exp
from typing import Any

import numpy as np

from .base import Data, Sample, add
from .detection import LOD, SPANS, boxes, overlap

data = Data("nms")


def sides(shape: Any) -> float:
    """The area of a polygon."""
    x, y = shape[::2], shape[1::2]
    return abs(sum(x[k - 1] * y[k] - x[k] * y[k - 1] for k in range(len(x)))) / 2


def is_convex(points: list[Any]) -> bool:
    """Whether the corners go round once, in one sense."""
    edges = np.roll(points, -1, 0) - np.asarray(points)
    angles = np.angle(np.roll(edges, -1, 0) @ [1, 1j] / (edges @ [1, 1j]))
    return bool((angles > 0).all() and angles.sum() < 7)


def shared(one: Any, other: Any) -> list[float]:
    """The convex polygon that two share: the first one, cut at each side of the second."""
    points = [tuple(point) for point in np.reshape(one, (-1, 2))]
    corners = [tuple(point) for point in np.reshape(other, (-1, 2))]
    if not (is_convex(points) and is_convex(corners)):
        raise ValueError("only of convex polygons is the shared part one polygon")
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        inside = [(x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) for x, y in points]
        kept = []
        for k, (x, y) in enumerate(points):
            (last_x, last_y), before = points[k - 1], inside[k - 1]
            if (before < 0) != (inside[k] < 0):
                share = before / (before - inside[k])
                kept.append((last_x + share * (x - last_x), last_y + share * (y - last_y)))
            if inside[k] >= 0:
                kept.append((x, y))
        points = kept
    return [number for point in points for number in point]


def alike(one: Any, other: Any, normalized: bool) -> float:
    if len(one) == 4:
        apart = one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]
        return 0.0 if apart else overlap(one, other, float(not normalized))
    both = sides(shared(one, other))
    return both / (sides(one) + sides(other) - both)


def best(scores: Any, threshold: float, most: int) -> list[int]:
    order = sorted((m for m in range(len(scores)) if scores[m] > threshold), key=lambda m: -scores[m])
    return order if most < 0 else order[:most]


def choose(
    boxes: Any,
    scores: Any,
    own: bool,
    background_label: int = 0,
    score_threshold: float = 0.0,
    nms_top_k: int = -1,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
    keep_top_k: int = -1,
    normalized: bool = True,
) -> list[tuple[int, int]]:
    """(class, box) of each detection in an image with scores [C, M]."""
    detections = []
    for label, row in enumerate(scores):
        kept: list[int] = []
        threshold = nms_threshold
        for m in best(row, score_threshold, nms_top_k) if label != background_label else ():
            mine = boxes[:, label] if own else boxes
            if all(alike(mine[m], mine[other], normalized) <= threshold for other in kept):
                kept.append(m)
                threshold *= nms_eta if threshold > 0.5 else 1
        detections += [(label, m) for m in kept]
    if 0 <= keep_top_k:
        detections = sorted(sorted(detections, key=lambda pair: -scores[pair])[:keep_top_k], key=lambda pair: pair[0])
    return sorted(detections) if own else detections


def detected(op_type: str) -> Any:
    def reference(BBoxes: Any, Scores: Any, RoisNum: Any = None, **attrs: Any) -> Any:
        own = Scores.ndim == 2
        ends = [] if RoisNum is None else np.cumsum(RoisNum).tolist()
        spans = list(zip([0, *ends[:-1]], ends, strict=True)) if ends else SPANS
        images = (
            [(BBoxes[s:e], Scores[s:e].T, s) for s, e in spans]
            if own
            else [(b, s, 0) for b, s in zip(BBoxes, Scores, strict=True)]
        )
        rows, places, counts = [], [], []
        for number, (mine, scores, before) in enumerate(images):
            chosen = choose(mine, scores, own, **attrs)
            counts.append(len(chosen))
            for label, m in chosen:
                rows.append([label, scores[label, m], *(mine[m, label] if own else mine[m])])
                places.append((before + m) * len(scores) + label if own else number * len(mine) + m)
        width = 2 + BBoxes.shape[2]
        out = (
            np.array(rows, BBoxes.dtype).reshape(-1, width) if rows or op_type[-1] in "23" else np.full((1, 1), -1, BBoxes.dtype)
        )
        index = {"Index": np.array(places, "int32").reshape(-1, 1)} if op_type[-1] in "23" else {}
        return {"Out": out, **index, **({"NmsRoisNum": np.array(counts, "int32")} if op_type[-1] == "3" else {})}

    return reference


def rotated(*shape: int) -> Any:
    """Quadrilaterals whose corners go round in one sense."""
    angle, size = data(*shape, low=0.0, high=1.5), data(*shape, low=1.0, high=3.0)
    turns = angle[..., None] + np.arange(4) * np.pi / 2
    corner = np.stack([np.cos(turns), np.sin(turns)], -1) * size[..., None, None] * [1.0, 1.5]
    return (data(*shape, 1, 2, low=0.0, high=4.0) + corner).reshape(*shape, 8)


CHOICE = {"score_threshold": 0.2, "nms_top_k": 8, "keep_top_k": 6}
SHARED = {"BBoxes": boxes(2, 12), "Scores": data.distinct(2, 3, 12, step=0.01) + 0.4}
OWN = {"BBoxes": boxes(5, 3, size=5), "Scores": data.distinct(5, 3, step=0.05) + 0.5}
OWN_LODS = {"BBoxes": LOD, "Scores": LOD}
NMS_CASES: tuple[tuple[dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    (SHARED, CHOICE, {}),
    (SHARED, {**CHOICE, "nms_threshold": 0.7, "nms_eta": 0.7, "keep_top_k": -1, "nms_top_k": -1, "background_label": -1}, {}),
    ({**SHARED, "BBoxes": rotated(2, 12)}, {**CHOICE, "nms_threshold": 0.2}, {}),
    (OWN, {**CHOICE, "normalized": False, "keep_top_k": 2}, OWN_LODS),
    (SHARED, {**CHOICE, "score_threshold": 2.0}, {}),
)
for op_type in ("multiclass_nms", "multiclass_nms2", "multiclass_nms3"):
    for arrays, more, lods in NMS_CASES:
        add(op_type, Sample(arrays, more, detected(op_type), lods=lods, shapes_by_value=True))
COUNTED = {**OWN, "RoisNum": np.array([2, 0, 3], "int32")}
add("multiclass_nms3", Sample(COUNTED, CHOICE, detected("multiclass_nms3"), shapes_by_value=True))
ONE_IMAGE = {**OWN, "RoisNum": np.array([5], "int32")}
add("multiclass_nms3", Sample(ONE_IMAGE, {**CHOICE, "keep_top_k": 4}, detected("multiclass_nms3"), shapes_by_value=True))


def lowered(
    BBoxes: Any,
    Scores: Any,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    post_threshold: float,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
) -> Any:
    rows, index, counts = [], [], []
    for number, (mine, scores) in enumerate(zip(BBoxes, Scores, strict=True)):
        detections = []
        for label, row in enumerate(scores):
            order = best(row, score_threshold, nms_top_k) if label != background_label else []
            most: list[float] = []
            for place, m in enumerate(order):
                overlaps = [alike(mine[m], mine[other], normalized) for other in order[:place]]
                pairs = list(zip(overlaps, most, strict=True))
                factors = [exp(gaussian_sigma * (b * b - a * a)) if use_gaussian else (1 - a) / (1 - b) for a, b in pairs]
                most.append(max(overlaps, default=0.0))
                detections.append((row[m] * min(factors, default=1.0), label, m))
        detections = sorted((each for each in detections if each[0] > post_threshold), key=lambda each: -each[0])
        detections = detections if keep_top_k < 0 else detections[:keep_top_k]
        rows += [[label, score, *mine[m]] for score, label, m in detections]
        index += [number * len(mine) + m for _, _, m in detections]
        counts.append(len(detections))
    return {"Out": np.array(rows, BBoxes.dtype).reshape(-1, 6), "Index": np.array(index, "int32").reshape(-1, 1),
            "RoisNum": np.array(counts, "int32")}  # fmt: skip


for more in ({}, {"use_gaussian": True, "keep_top_k": -1, "nms_top_k": -1}, {"score_threshold": 2.0}):
    add("matrix_nms", Sample(SHARED, {**CHOICE, "post_threshold": 0.1, **more}, lowered, shapes_by_value=True))


def merged(
    BBoxes: Any, Scores: Any, background_label: int = -1, nms_threshold: float = 0.3, normalized: bool = True, **attrs: Any
) -> Any:
    boxes, weights = BBoxes.copy(), Scores.copy()
    for image, label in np.ndindex(Scores.shape[:2]):
        last, mine, score = 0, boxes[image], weights[image, label]
        for m in range(1, len(mine)):
            if label != background_label and alike(mine[m], mine[last], normalized) > nms_threshold:
                mine[last] = (mine[m] * score[m] + mine[last] * score[last]) / (score[m] + score[last])
                score[last], score[m] = score[last] + score[m], -1
            else:
                last = m
    choice = {"background_label": background_label, "nms_threshold": nms_threshold, "normalized": normalized, **attrs}
    return detected("multiclass_nms")(boxes, weights, **choice)["Out"]


def near(places: Any, spread: float) -> Any:
    """Each box three times, moved a little."""
    tripled = np.repeat(places, 3, 1)
    return tripled + data(*tripled.shape, low=-spread, high=spread)


SCORES = np.exp(data.distinct(2, 2, 12, step=0.02) - 0.5)  # no two sums of which are the same but for rounding
add(
    "locality_aware_nms",
    Sample({"BBoxes": near(boxes(2, 4), 0.01), "Scores": SCORES}, {**CHOICE, "keep_top_k": -1}, merged, shapes_by_value=True),
    Sample(
        {"BBoxes": near(boxes(2, 4), 0.01) * 9, "Scores": SCORES},
        {**CHOICE, "background_label": 0, "normalized": False},
        merged,
        shapes_by_value=True,
    ),
    Sample(
        {"BBoxes": near(rotated(2, 4), 0.05), "Scores": SCORES}, {**CHOICE, "background_label": 0}, merged, shapes_by_value=True
    ),
)


def plain_nms(Boxes: Any, iou_threshold: float = 1.0) -> Any:
    kept: list[int] = []
    for number, box in enumerate(Boxes):
        shared = [
            np.maximum(np.minimum(box[2:], Boxes[other][2:]) - np.maximum(box[:2], Boxes[other][:2]), 0).prod() for other in kept
        ]
        areas = [np.prod(one[2:] - one[:2]) for one in (box, *Boxes[kept])]
        if all(each / (areas[0] + area - each) <= iou_threshold for each, area in zip(shared, areas[1:], strict=True)):
            kept.append(number)
    return np.array(kept, np.int64)


corners = Data("plain nms")(30, 2, low=0, high=5)
BOXES = np.concatenate([corners, corners + Data("sizes")(30, 2, low=1, high=3)], 1)
for threshold in (0.1, 0.5, 1.0):
    add("nms", Sample({"Boxes": BOXES}, {"iou_threshold": threshold}, plain_nms, shapes_by_value=True, orders=0))
