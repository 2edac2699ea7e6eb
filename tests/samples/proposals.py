"""Samples of `fluid.ops.proposals`: box by box, in plain Python."""

from __future__ import annotations

from math import exp, floor, log, log2, sqrt
from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("proposals")


def boxes(count: int, size: float = 60.0, least: float = 2.0, most: float = 40.0) -> Any:
    corner = data(count, 2, low=0, high=size - least)
    return np.concatenate([corner, corner + data(count, 2, low=least, high=most)], 1)


def area(box: Any, offset: float = 1) -> float:
    left, top, right, bottom = map(float, box)
    return 0.0 if right < left or bottom < top else (right - left + offset) * (bottom - top + offset)


def overlap(one: Any, other: Any, offset: float = 1) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0]) + offset
    height = min(one[3], other[3]) - max(one[1], other[1]) + offset
    common = float(max(width, 0) * max(height, 0))
    return common / (area(one, offset) + area(other, offset) - common) if common else 0.0


def decoded(anchor: Any, delta: Any, offset: float = 1) -> list[float]:
    found = [0.0] * 4
    for axis in (0, 1):
        size = anchor[axis + 2] - anchor[axis] + offset
        middle = anchor[axis] + size / 2 + delta[axis] * size
        size *= exp(min(delta[axis + 2], log(1000 / 16)))
        found[axis], found[axis + 2] = middle - size / 2, middle + size / 2 - offset
    return found


def encoded(box: Any, target: Any) -> list[float]:
    found = [0.0] * 4
    for axis in (0, 1):
        size, wanted = box[axis + 2] - box[axis] + 1, target[axis + 2] - target[axis] + 1
        found[axis] = (target[axis] + wanted / 2 - box[axis] - size / 2) / size
        found[axis + 2] = log(wanted / size)
    return found


def within(box: Any, height: float, width: float, offset: float = 1) -> list[float]:
    return [max(min(x, most - offset), 0) for x, most in zip(box, (width, height) * 2, strict=True)]


def suppressed(ordered: Any, threshold: float, eta: float, offset: float = 1) -> list[int]:
    kept: list[int] = []
    for number, box in enumerate(ordered):
        if all(overlap(box, ordered[other], offset) <= threshold for other in kept):
            kept.append(number)
            threshold *= eta if eta < 1 and threshold > 0.5 else 1
    return kept


# ------------------------------------------------------------------------------------------------------------ proposals
def proposed(Scores: Any, BboxDeltas: Any, Anchors: Any, Variances: Any, pre_nms_topN: int, post_nms_topN: int, nms_thresh: float,
             min_size: float, eta: float, ImInfo: Any = None, ImShape: Any = None, pixel_offset: bool = True) -> Any:  # fmt: skip
    rois, scores, counts = [], [], []
    for image, scored in enumerate(Scores):
        height, width, scale = ImInfo[image] if ImShape is None else (*ImShape[image], 1)
        places = [(i, j, a) for i in range(scored.shape[1]) for j in range(scored.shape[2]) for a in range(scored.shape[0])]
        places.sort(key=lambda at: -scored[at[2], at[0], at[1]])
        found = []
        for i, j, a in places[:pre_nms_topN]:
            delta = BboxDeltas[image, 4 * a : 4 * a + 4, i, j] * Variances[i, j, a]
            box = within(decoded(Anchors[i, j, a], delta, pixel_offset), height, width, pixel_offset)
            sizes = [(box[axis + 2] - box[axis]) / scale + pixel_offset for axis in (0, 1)]
            middle = [(box[axis] + box[axis + 2] + 1) / 2 for axis in (0, 1)]
            if min(sizes) >= max(min_size, 1) and (not pixel_offset or (middle[0] <= width and middle[1] <= height)):
                found.append((box, scored[a, i, j]))
        kept = suppressed([box for box, _ in found], nms_thresh, eta, pixel_offset)[:post_nms_topN]
        chosen = [found[number] for number in kept] or [([0.0] * 4, 0.0)]
        rois += [box for box, _ in chosen]
        scores += [[score] for _, score in chosen]
        counts.append(len(chosen))
    return {
        "RpnRois": np.array(rois, Scores.dtype),
        "RpnRoiProbs": np.array(scores, Scores.dtype),
        "RpnRoisNum": np.array(counts),
    }


H, W = 3, 4
ANCHORS = np.array([[[[8 * j - s, 8 * i - s, 8 * j + s, 8 * i + s] for s in (4.0, 9.0)] for j in range(W)] for i in range(H)])
PLACES = {
    "Scores": data.distinct(2, 2, H, W, step=0.02),
    "BboxDeltas": data(2, 8, H, W),
    "Anchors": ANCHORS,
    "Variances": np.broadcast_to([0.1, 0.1, 0.2, 0.2], ANCHORS.shape).copy(),
}
INFO = np.array([[30.0, 38.0, 1.5], [26.0, 35.0, 1.25]])
for most, threshold, least, eta in ((5, 0.4, 0.1, 1.0), (40, 0.7, 9.0, 0.9), (5, 0.5, 90.0, 1.0)):
    attrs = {"pre_nms_topN": 18, "post_nms_topN": most, "nms_thresh": threshold, "min_size": least, "eta": eta}
    add("generate_proposals", Sample({**PLACES, "ImInfo": INFO}, attrs, proposed, shapes_by_value=True))
    for offset in (True, False):
        given = {**attrs, "pixel_offset": offset}
        add("generate_proposals_v2", Sample({**PLACES, "ImShape": INFO[:, :2]}, given, proposed, shapes_by_value=True))


# --------------------------------------------------------------------------------------------------------------- levels
ROIS, LOD = boxes(7, 150.0, 1.0, 120.0), ((0, 3, 7),)


def distributed(FpnRois: Any, min_level: int, max_level: int, refer_level: int, refer_scale: int, RoisNum: Any = None,
                pixel_offset: bool = True) -> Any:  # fmt: skip
    levels: list[list[int]] = [[] for _ in range(min_level, max_level + 1)]
    for number, box in enumerate(FpnRois):
        level = floor(refer_level + log2(sqrt(area(box, pixel_offset)) / refer_scale + 1e-6))
        levels[min(max(level, min_level), max_level) - min_level].append(number)
    order = [number for level in levels for number in level]
    return {
        "MultiFpnRois": [FpnRois[level].reshape(-1, 4) for level in levels],
        "RestoreIndex": np.array([[order.index(number)] for number in range(len(FpnRois))]),
        "MultiLevelRoIsNum": [np.array([sum(n < 3 for n in level), sum(n >= 3 for n in level)]) for level in levels],
    }


LEVELS = {"min_level": 2, "max_level": 5, "refer_level": 4, "refer_scale": 64}
add("distribute_fpn_proposals", Sample({"FpnRois": ROIS}, LEVELS, distributed, lods={"FpnRois": LOD}, shapes_by_value=True))
numbered = {"FpnRois": ROIS, "RoisNum": np.array([3, 4])}
add("distribute_fpn_proposals", Sample(numbered, {**LEVELS, "pixel_offset": False}, distributed, shapes_by_value=True))


def collected(MultiLevelRois: Any, MultiLevelScores: Any, post_nms_topN: int, MultiLevelRoIsNum: Any = None) -> Any:
    images = [0, 1, 1, 0, 0, 1, 1]  # by row, of both levels
    rows = list(zip(images, np.concatenate(MultiLevelRois), np.concatenate(MultiLevelScores)[:, 0], strict=True))
    rows = sorted(sorted(rows, key=lambda row: -row[2])[:post_nms_topN], key=lambda row: row[0])
    counts = np.array([sum(row[0] == image for row in rows) for image in (0, 1)])
    return {"FpnRois": np.array([row[1] for row in rows]), "RoisNum": counts}


SCORES = data.distinct(7, 1)
LEVEL_LODS = [((0, 1, 3),), ((0, 2, 4),)]
for most in (4, 100):
    by_level = {"MultiLevelRois": [ROIS[:3], ROIS[3:]], "MultiLevelScores": [SCORES[:3], SCORES[3:]]}
    lods = {"MultiLevelRois": LEVEL_LODS, "MultiLevelScores": LEVEL_LODS}
    add("collect_fpn_proposals", Sample(by_level, {"post_nms_topN": most}, collected, lods=lods, shapes_by_value=True))
    counted = {**by_level, "MultiLevelRoIsNum": [np.array([1, 2]), np.array([2, 2])]}
    add("collect_fpn_proposals", Sample(counted, {"post_nms_topN": most}, collected, shapes_by_value=True))


# -------------------------------------------------------------------------------------------------------------- targets
OF_IMAGES = ((0, 2, 4),)
TRUTH = boxes(4, 24.0, 6.0, 16.0)
CLASSES, CROWD = np.array([[1], [3], [2], [1]]), np.array([[0], [0], [0], [1]])


def assigned(Anchor: Any, GtBoxes: Any, IsCrowd: Any, ImInfo: Any, GtLabels: Any = None, **attrs: Any) -> Any:
    names = ("LocationIndex", "ScoreIndex", "TargetBBox", "TargetLabel", "BBoxInsideWeight")
    found: dict[str, Any] = {name: [] for name in names}
    straddle, batch = attrs.get("rpn_straddle_thresh", -1), attrs.get("rpn_batch_size_per_im", 10**6)
    positive, negative = (attrs.get(f"rpn_{name}", attrs.get(name)) for name in ("positive_overlap", "negative_overlap"))
    foreground = []
    for image, (height, width, scale) in enumerate(ImInfo):
        real = [n for n in range(*OF_IMAGES[0][image : image + 2]) if not IsCrowd[n]]
        objects = [GtBoxes[n] * scale for n in real]
        inside = [
            n for n, (left, top, right, bottom) in enumerate(Anchor)
            if straddle < 0 or (min(left, top) >= -straddle and right < width + straddle and bottom < height + straddle)
        ]  # fmt: skip
        overlaps = {n: [overlap(Anchor[n], box) for box in objects] for n in inside}
        best = [max(overlaps[n][k] for n in inside) for k in range(len(objects))]
        hits = [n for n in inside if max(overlaps[n]) >= positive or np.any(np.abs(np.subtract(overlaps[n], best)) < 1e-5)]
        hits = hits[: int(batch * attrs.get("rpn_fg_fraction", 0.5))]
        misses = [n for n in inside if max(overlaps[n]) < negative][: batch - len(hits)]
        both, kept = [n for n in hits if n in misses], [n for n in hits if n not in misses]
        located = hits[:1] * len(both) + kept
        which = {n: int(np.argmax(overlaps[n])) for n in hits}
        start = image * len(Anchor)
        found["LocationIndex"] += [start + n for n in located]
        found["ScoreIndex"] += [start + n for n in kept + misses]
        found["TargetBBox"] += [encoded(Anchor[n], objects[which[n]]) for n in located]
        labels = [1 if GtLabels is None else int(GtLabels[real[which[n]], 0]) for n in kept]
        found["TargetLabel"] += [[label] for label in labels + [0] * len(misses)]
        found["BBoxInsideWeight"] += [[float(number >= len(both))] * 4 for number in range(len(located))]
        foreground.append([len(located) + 1])
    arrays = {name: np.array(rows, Anchor.dtype if name.startswith(("TargetB", "B")) else int) for name, rows in found.items()}
    return arrays if GtLabels is None else {**arrays, "ForegroundNumber": np.array(foreground)}


SEEN = {"Anchor": ANCHORS.reshape(-1, 4), "GtBoxes": TRUTH, "IsCrowd": CROWD, "ImInfo": INFO}
SEEN_LODS = {"GtBoxes": OF_IMAGES, "IsCrowd": OF_IMAGES}
for batch, straddle, positive, negative in ((256, 0.0, 0.7, 0.3), (256, -1.0, 0.5, 0.4), (8, 4.0, 0.3, 0.9)):
    attrs = {"rpn_batch_size_per_im": batch, "rpn_straddle_thresh": straddle, "rpn_positive_overlap": positive}
    attrs |= {"rpn_negative_overlap": negative, "rpn_fg_fraction": 0.5, "use_random": False}
    add("rpn_target_assign", Sample(SEEN, attrs, assigned, lods=SEEN_LODS, shapes_by_value=True))
for positive, negative in ((0.5, 0.4), (0.3, 0.3)):
    attrs = {"positive_overlap": positive, "negative_overlap": negative}
    labelled, lods = {**SEEN, "GtLabels": CLASSES}, {**SEEN_LODS, "GtLabels": OF_IMAGES}
    add("retinanet_target_assign", Sample(labelled, attrs, assigned, lods=lods, shapes_by_value=True))


def check_drawn(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """At most so many are learned, and those are of the ones that may be."""
    everything = assigned(**{**inputs, **DRAWN, "rpn_batch_size_per_im": 10**6})
    drawn = outputs["ScoreIndex"][outputs["ScoreIndex"] < len(inputs["Anchor"])]
    assert len(drawn) == DRAWN["rpn_batch_size_per_im"] and len(set(drawn)) == len(drawn)
    assert set(outputs["ScoreIndex"]) <= set(everything["ScoreIndex"])
    assert set(outputs["LocationIndex"]) <= set(everything["LocationIndex"])


DRAWN: dict[str, Any] = {"rpn_batch_size_per_im": 6, "rpn_straddle_thresh": -1.0, "rpn_positive_overlap": 0.1}
DRAWN |= {"rpn_negative_overlap": 0.1, "rpn_fg_fraction": 0.5, "use_random": True}
add("rpn_target_assign", Sample(SEEN, DRAWN, check=check_drawn, lods=SEEN_LODS, shapes_by_value=True, random=True))

PROPOSALS = np.concatenate([TRUTH[:2] + data(2, 4), boxes(4, 24.0, 6.0, 16.0), TRUTH[2:] + 1, boxes(3, 20.0)])
ROI_LOD = ((0, 5, 11),)


def labelled_rois(RpnRois: Any, GtClasses: Any, IsCrowd: Any, GtBoxes: Any, ImInfo: Any, batch_size_per_im: int,
                  fg_fraction: float, fg_thresh: float, bg_thresh_hi: float, bg_thresh_lo: float, bbox_reg_weights: Any,
                  class_nums: int, use_random: bool, is_cascade_rcnn: bool = False, is_cls_agnostic: bool = False,
                  MaxOverlap: Any = None) -> Any:  # fmt: skip
    rows = []
    for image, scale in enumerate(ImInfo[:, 2]):
        truth = range(*OF_IMAGES[0][image : image + 2])
        numbers = list(range(*ROI_LOD[0][image : image + 2]))
        if is_cascade_rcnn:
            numbers = numbers[len(truth) :] if MaxOverlap is None else [n for n in numbers if MaxOverlap[n] < 1]
        rois = [*(GtBoxes[n] for n in truth), *(RpnRois[n] / scale for n in numbers)]
        overlaps = [[overlap(roi, GtBoxes[n]) for n in truth] for roi in rois]
        most = [-1 if number < len(truth) and IsCrowd[truth[number]] else max(all_) for number, all_ in enumerate(overlaps)]
        hits = [number for number, best in enumerate(most) if best >= fg_thresh]
        misses = [number for number, best in enumerate(most) if bg_thresh_lo <= best < bg_thresh_hi]
        if not is_cascade_rcnn:
            hits = hits[: int(batch_size_per_im * fg_fraction)]
            misses = misses[: batch_size_per_im - len(hits)]
        for number in hits + misses:
            targets, weights, label = np.zeros((class_nums, 4)), np.zeros((class_nums, 4)), 0
            if number in hits:
                which = truth[int(np.argmax(overlaps[number]))]
                label = int(GtClasses[which, 0])
                column = 1 if is_cls_agnostic else label
                targets[column], weights[column] = np.array(encoded(rois[number], GtBoxes[which])) / bbox_reg_weights, 1
            rows.append((rois[number] * scale, [label], targets.reshape(-1), weights.reshape(-1), most[number]))
    found = [np.array(column) for column in zip(*rows, strict=True)]
    floats = [array.astype(RpnRois.dtype) for array in (found[0], found[2], found[3], found[4])]
    return {"Rois": floats[0], "LabelsInt32": found[1], "BboxTargets": floats[1], "BboxInsideWeights": floats[2],
            "BboxOutsideWeights": floats[2], "MaxOverlapWithGT": floats[3]}  # fmt: skip


SECOND = {"RpnRois": PROPOSALS, "GtClasses": CLASSES, "IsCrowd": CROWD, "GtBoxes": TRUTH, "ImInfo": INFO}
SECOND_LODS = {"RpnRois": ROI_LOD, "GtClasses": OF_IMAGES, "IsCrowd": OF_IMAGES, "GtBoxes": OF_IMAGES}
DRAW = {"fg_fraction": 0.25, "fg_thresh": 0.5, "bg_thresh_hi": 0.5, "bg_thresh_lo": 0.0, "use_random": False}
DRAW |= {"bbox_reg_weights": [0.1, 0.1, 0.2, 0.2], "class_nums": 4}
best = np.array([1, 0.3, 0.4, 1, 0.1, 0.1, 1, 0.2, 0.7, 0.9, 0.5])
for given in (
    {"batch_size_per_im": 64},
    {"batch_size_per_im": 5, "is_cls_agnostic": True},
    {"batch_size_per_im": 5, "is_cascade_rcnn": True},
):
    add("generate_proposal_labels", Sample(SECOND, DRAW | given, labelled_rois, lods=SECOND_LODS, shapes_by_value=True))
measured, lods = {**SECOND, "MaxOverlap": best}, {**SECOND_LODS, "MaxOverlap": ROI_LOD}
add("generate_proposal_labels", Sample(measured, DRAW | given, labelled_rois, lods=lods, shapes_by_value=True))


# ----------------------------------------------------------------------------------------------------------- detections
def detected(BBoxes: Any, Scores: Any, Anchors: Any, ImInfo: Any, score_threshold: float, nms_top_k: int, nms_threshold: float,
             nms_eta: float, keep_top_k: int) -> Any:  # fmt: skip
    rows = []
    for image, (height, width, scale) in enumerate(ImInfo):
        found = []
        for level, anchors in enumerate(Anchors):
            scores = Scores[level][image]
            least = score_threshold if level < len(Anchors) - 1 else 0.0
            places = sorted((-scores[at], at) for at in np.ndindex(scores.shape) if scores[at] > least)[:nms_top_k]
            for score, (anchor, class_) in places:
                box = np.array(decoded(anchors[anchor], BBoxes[level][image, anchor])) / scale
                found.append([class_ + 1, -score, *within(box, round(height / scale), round(width / scale))])
        kept = []
        for class_ in {row[0] for row in found}:
            of_class = sorted((row for row in found if row[0] == class_), key=lambda row: -row[1])
            kept += [of_class[number] for number in suppressed([row[2:] for row in of_class], nms_threshold, nms_eta)]
        rows += sorted(kept, key=lambda row: -row[1])[:keep_top_k]
    return np.array(rows, BBoxes[0].dtype).reshape(-1, 6)


BY_LEVEL = [ANCHORS.reshape(-1, 4)[::2], np.array([[0.0, 0.0, 30.0, 30.0], [4.0, 2.0, 30.0, 20.0]])]
LEVEL_INPUTS = {
    "BBoxes": [data(2, len(level), 4) for level in BY_LEVEL],
    "Scores": [data.distinct(2, len(level), 2, step=0.015) + 0.5 for level in BY_LEVEL],
    "Anchors": BY_LEVEL,
    "ImInfo": INFO,
}
for threshold, first, last, nms, eta in ((0.05, 1000, 100, 0.3, 1.0), (0.3, 12, 5, 0.6, 0.9), (9.0, 2, 9, 0.5, 1.0)):
    attrs = {"score_threshold": threshold, "nms_top_k": first, "keep_top_k": last, "nms_threshold": nms, "nms_eta": eta}
    add("retinanet_detection_output", Sample(LEVEL_INPUTS, attrs, detected, shapes_by_value=True))


# ---------------------------------------------------------------------------------------------------------------- masks
def rectangles(Rois: Any, LabelsInt32: Any, GtSegms: Any, ImInfo: Any, num_classes: int, resolution: int, **others: Any) -> Any:
    """Of objects that are rectangles from 4 to 20, in regions whose elements they do not cut."""
    rois, numbers, masks = [], [], []
    for start, end, scale in ((0, 2, INFO[0, 2]), (2, 3, INFO[1, 2])):
        hits = [number for number in range(start, end) if LabelsInt32[number]]
        for number in hits or [start]:
            mask = np.full((num_classes, resolution, resolution), -1)
            if hits:
                left, top, right, bottom = Rois[number] / scale
                rows, columns = (low + (np.arange(resolution) + 0.5) * (high - low) / resolution
                                 for low, high in ((top, bottom), (left, right)))  # fmt: skip
                mask[LabelsInt32[number, 0]] = ((rows > 4) & (rows < 20))[:, None] & ((columns > 4) & (columns < 20))
            rois.append(Rois[number])
            numbers.append([number - start])
            masks.append(mask.reshape(-1))
    return {"MaskRois": np.array(rois), "RoiHasMaskInt32": np.array(numbers), "MaskInt32": np.array(masks)}


SQUARE = np.array([[4.0, 4.0], [20.0, 4.0], [20.0, 20.0], [4.0, 20.0]])
REGIONS = np.array([[0.0, 0.0, 24.0, 24.0], [2.0, 2.0, 18.0, 18.0], [0.0, 8.0, 16.0, 24.0]])
for labels in ([1, 0, 2], [1, 2, 0], [0, 0, 1]):
    masked = {
        "ImInfo": INFO,
        "GtClasses": np.array([[1], [2], [1]]),
        "IsCrowd": np.array([[0], [1], [0]]),
        "GtSegms": np.concatenate([SQUARE, 3 * SQUARE, SQUARE]),
        "Rois": REGIONS * np.array([[INFO[0, 2]], [INFO[0, 2]], [INFO[1, 2]]]),
        "LabelsInt32": np.array(labels)[:, None],
    }
    lods = {"GtClasses": ((0, 2, 3),), "IsCrowd": ((0, 2, 3),), "Rois": ((0, 2, 3),), "LabelsInt32": ((0, 2, 3),)}
    lods["GtSegms"] = ((0, 2, 3), (0, 1, 2, 3), (0, 4, 8, 12))
    attrs = {"num_classes": 3, "resolution": 8}
    add("generate_mask_labels", Sample(masked, attrs, rectangles, lods=lods, shapes_by_value=True))
