"""Kernels of `fluid.ops.detection`. What depends on values, such as matches, is computed on the host."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.ops.detection import aspect_ratios_of
from fluid.values.lod_array import LoDArray
from fluid.values.place import to_numpy
from fluid.values.spec import Lod

from .boxes import corners, images_of, jaccard
from .manipulation import check_ids, write_wanted
from .sorting import stable_order
from .table import Call, Slots, checked, kernel, prepared


# ------------------------------------------------------------------------------------------------------ priors, anchors
def _laid_out(Input: Any, first: Any, step: Any, shifts: Any, extents: Any) -> Any:
    """Boxes [H, W, P, 4] of `extents` [P, 2], moved by `shifts` from places that begin at `first` and are `step` apart (x, y)."""
    height, width = Input.shape[2:]
    across, down = (first[axis] + np.arange(count) * step[axis] for axis, count in enumerate((width, height)))
    places = np.stack(np.meshgrid(across, down), -1)[:, :, None]
    return corners(np, places + shifts, np.broadcast_to(extents, (height, width, *extents.shape)))


def _constants(xp: Any, boxes: Any, variances: list[float], outputs: Slots) -> list[Call]:
    """Calls that write constant boxes and variances."""
    values = zip(outputs.values(), (boxes, np.tile(variances, boxes.size // 4)), strict=True)
    return [partial(xp.copyto, out, xp.asarray(value.reshape(out.shape), out.dtype)) for out, value in values if out is not None]


def _over_image(xp: Any, inputs: Slots, attrs: Slots, shifts: Any, extents: Any, outputs: Slots, clip: bool) -> list[Call]:
    """Boxes in parts of the image."""
    image = np.array(inputs["Image"].shape[:1:-1], np.float64)
    step = _steps(inputs, attrs)
    boxes = _laid_out(inputs["Input"], attrs["offset"] * step, step, shifts, extents) / np.tile(image, 2)
    return _constants(xp, np.clip(boxes, 0, 1) if clip else boxes, attrs["variances"], outputs)


def _steps(inputs: Slots, attrs: Slots) -> Any:
    """The distances of places in pixels (x, y)."""
    if attrs["step_w"] == 0 or attrs["step_h"] == 0:
        return np.array(inputs["Image"].shape[:1:-1], np.float64) / np.maximum(inputs["Input"].shape[:1:-1], 1)
    return np.array([attrs["step_w"], attrs["step_h"]], np.float64)


@prepared("prior_box")
def prior_box(xp: Any, inputs: Slots, attrs: Slots, outputs: Slots) -> list[Call]:
    roots = [ratio**0.5 for ratio in aspect_ratios_of(attrs)]
    extents = []
    for number, size in enumerate(attrs["min_sizes"]):
        sizes_by_ratio = [(size * root, size / root) for root in roots]
        mean = [((size * most) ** 0.5,) * 2 for most in attrs["max_sizes"][number : number + 1]]
        extents += (
            [*sizes_by_ratio[:1], *mean, *sizes_by_ratio[1:]]
            if attrs["min_max_aspect_ratios_order"]
            else [*sizes_by_ratio, *mean]
        )
    return _over_image(xp, inputs, attrs, 0, np.array(extents), outputs, attrs["clip"])


@prepared("density_prior_box")
def density_prior_box(xp: Any, inputs: Slots, attrs: Slots, outputs: Slots) -> list[Call]:
    average = int(_steps(inputs, attrs).mean())
    shifts, extents = [], []
    for density, size in zip(attrs["densities"], attrs["fixed_sizes"], strict=True):
        apart = average // density
        places = -average / 2 + apart / 2 + np.arange(density) * apart
        grid = np.stack(np.meshgrid(places, places), -1).reshape(-1, 2)
        for ratio in attrs["fixed_ratios"]:
            shifts.append(grid)
            extents.append(np.broadcast_to([size * ratio**0.5, size / ratio**0.5], grid.shape))
    return _over_image(xp, inputs, attrs, np.concatenate(shifts), np.concatenate(extents), outputs, True)


@prepared("anchor_generator")
def anchor_generator(xp: Any, inputs: Slots, attrs: Slots, outputs: Slots) -> list[Call]:
    stride = np.array(attrs["stride"])
    ratios = np.array(attrs["aspect_ratios"])
    width = np.floor(np.sqrt(stride.prod() / ratios) + 0.5)
    base = np.stack([width, np.floor(width * ratios + 0.5)], -1)[:, None]
    extents = (base * (np.array(attrs["anchor_sizes"])[:, None] / stride)).reshape(-1, 2)
    boxes = _laid_out(inputs["Input"], attrs["offset"] * (stride - 1), stride, 0, extents - 1)
    return _constants(xp, boxes, attrs["variances"], outputs)


# ------------------------------------------------------------------------------------------------------ boxes as numbers


@kernel("box_clip")
def box_clip(xp: Any, Input: Any, Input_lod: Lod, ImInfo: Any, Output: Any) -> None:
    high = xp.floor(ImInfo[:, 1::-1] / ImInfo[:, 2:] + ImInfo.dtype.type(0.5)) - 1
    if Input.ndim == 3 and not Input_lod:
        images = [(number, number + 1) for number in range(len(Input))]
    else:
        images = images_of("Input", len(Input), Input_lod)
    if len(images) != len(ImInfo):
        raise ExecutionError(f"box_clip: ImInfo tells of {len(ImInfo)} images, but Input has boxes of {len(images)}")
    most = xp.concatenate([high, high], 1)[_image_of_row(xp, images)].reshape(len(Input), *[1] * (Input.ndim - 2), 4)
    xp.copyto(Output, xp.maximum(xp.minimum(Input, most), 0))


def _image_of_row(xp: Any, images: list[tuple[int, int]]) -> Any:
    """The number of the image that each row belongs to."""
    return xp.asarray(np.repeat(np.arange(len(images)), [end - start for start, end in images]))


@kernel("polygon_box_transform")
def polygon_box_transform(xp: Any, Input: Any, Output: Any) -> None:
    height, width = Input.shape[2:]
    for first, places in ((0, xp.arange(width)), (1, xp.arange(height)[:, None])):
        xp.subtract((4 * places).astype(Input.dtype), Input[:, first::2], out=Output[:, first::2])


# -------------------------------------------------------------------------------------------------------------- matching
SIMILAR = 1e-6
"""Overlaps up to this number match nothing."""


def _match(similar: Any, threshold: float | None) -> tuple[Any, Any]:
    """For each column the matching row, and their similarity; see `bipartite_match`."""
    rows, distances = np.full(similar.shape[1], -1, np.int32), np.zeros(similar.shape[1], similar.dtype)
    left = similar.T.copy()
    for _ in range(min(similar.shape)):
        column, row = divmod(int(left.argmax()), len(similar))
        if not left[column, row] >= SIMILAR:
            break
        rows[column], distances[column] = row, similar[row, column]
        left[column], left[:, row] = 0, 0
    if threshold is not None and len(similar):
        best = similar.argmax(0)
        value = np.take_along_axis(similar, best[None], 0)[0]
        chosen = (rows < 0) & (value >= max(threshold, SIMILAR))
        rows[chosen], distances[chosen] = best[chosen], value[chosen]
    return rows, distances


@kernel("bipartite_match")
def bipartite_match(
    xp: Any,
    DistMat: Any,
    DistMat_lod: Lod,
    match_type: str,
    dist_threshold: float,
    ColToRowMatchIndices: Any,
    ColToRowMatchDist: Any,
) -> None:
    similar = to_numpy(DistMat)
    threshold = dist_threshold if match_type == "per_prediction" else None
    for image, (start, end) in enumerate(images_of("DistMat", len(similar), DistMat_lod)):
        rows, distances = _match(similar[start:end], threshold)
        for out, value in ((ColToRowMatchIndices, rows), (ColToRowMatchDist, distances)):
            if out is not None:
                out[image] = xp.asarray(value)


@checked("target_assign")
def check_target_assign(X: Any, X_lod: Lod, MatchIndices: Any, NegIndices: Any) -> None:
    counts = [end - start for start, end in images_of("X", len(X), X_lod)]
    if len(counts) != len(MatchIndices):
        raise ExecutionError(f"target_assign: X has sequences of {len(counts)} images, but MatchIndices {len(MatchIndices)} rows")
    for image, (count, matches) in enumerate(zip(counts, to_numpy(MatchIndices), strict=True)):
        if len(matches) and matches.max() >= count:
            raise ExecutionError(
                f"target_assign: MatchIndices of image {image} should be below {count}, its rows in X, or -1, not {matches.max()}"
            )
    if NegIndices is not None:
        check_ids(NegIndices, MatchIndices.shape[1], "target_assign: NegIndices")


@kernel("target_assign")
def target_assign(
    xp: Any,
    X: Any,
    X_lod: Lod,
    MatchIndices: Any,
    NegIndices: Any,
    NegIndices_lod: Lod,
    mismatch_value: int,
    Out: Any,
    OutWeight: Any,
) -> None:
    matched = (MatchIndices >= 0)[..., None]
    write_wanted((OutWeight, matched), (Out, mismatch_value))
    if Out is not None and len(X):
        first = xp.asarray([start for start, _ in images_of("X", len(X), X_lod)])[:, None]
        rows = xp.minimum(first + xp.maximum(MatchIndices, 0), len(X) - 1)
        values = X[rows, xp.arange(MatchIndices.shape[1]) % X.shape[1]]
        xp.copyto(Out, xp.where(matched, values, mismatch_value), "unsafe")
    if NegIndices is not None:
        negatives = NegIndices.reshape(-1)
        image = _image_of_row(xp, images_of("NegIndices", len(NegIndices), NegIndices_lod))
        for out, value in ((Out, mismatch_value), (OutWeight, 1)):
            if out is not None:
                out[image, negatives] = value


@kernel("mine_hard_examples")
def mine_hard_examples(
    xp: Any, ClsLoss: Any, LocLoss: Any, MatchIndices: Any, MatchDist: Any, attrs: Slots, UpdatedMatchIndices: Any
) -> LoDArray:
    loss, matches, similar = (to_numpy(value) for value in (ClsLoss, MatchIndices, MatchDist))
    hard = attrs["mining_type"] == "hard_example"
    if hard and LocLoss is not None:
        loss = loss + to_numpy(LocLoss)
    eligible = np.ones(loss.shape, bool) if hard else (matches == -1) & (similar < attrs["neg_dist_threshold"])
    counts = eligible.sum(1)
    most = attrs["sample_size"] if hard else ((matches != -1).sum(1) * np.float32(attrs["neg_pos_ratio"])).astype(np.int64)
    order = stable_order(np, np.where(eligible, -loss, np.inf))
    first = np.arange(loss.shape[1]) < np.minimum(counts, most)[:, None]
    chosen = np.zeros(loss.shape, bool)
    np.put_along_axis(chosen, order, first, 1)
    if UpdatedMatchIndices is not None:
        xp.copyto(UpdatedMatchIndices, xp.asarray(np.where(chosen, matches, -1) if hard else matches))
    negative = chosen & (matches == -1) if hard else chosen
    offsets = np.cumsum([0, *negative.sum(1)])
    return LoDArray(xp.asarray(negative.nonzero()[1].astype(np.int32)[:, None]), (tuple(offsets.tolist()),))


# ---------------------------------------------------------------------------------------------------------------- losses
@checked("sigmoid_focal_loss", "focal_weights")
def check_focal_labels(X: Any, Label: Any) -> None:
    if Label.size and not (-1 <= int(Label.min()) and int(Label.max()) <= X.shape[1]):
        raise ExecutionError(f"Label should be in [-1, {X.shape[1]}], the classes, 0 for the background and -1 for none")


# -------------------------------------------------------------------------------------------------------------- measures
def _judged(detected: Any, truth: Any, difficult: Any, threshold: float, counts_difficult: bool) -> Any:
    """Judge the detections (score, box) of a class in an image; returns rows of score and correctness; see `detection_map`."""
    right, counted = np.zeros(len(detected), bool), np.ones(len(detected), bool)
    if len(truth):
        detected = detected[(-detected[:, 0]).argsort(kind="stable")]
        overlap = jaccard(np, np.clip(detected[:, None, 1:], 0, 1), truth)
        best = overlap.argmax(1)
        above = overlap.max(1) > threshold
        counted = ~above | counts_difficult | ~difficult[best]
        hits = (above & counted).nonzero()[0]
        right[hits[np.unique(best[hits], return_index=True)[1]]] = True  # a box is taken by the first that hits it
    return np.stack([detected[:, 0], right], 1)[counted]


def _average_precision(judged: Any, positives: int, by_points: bool) -> float:
    judged = judged[(-judged[:, 0]).argsort(kind="stable")]
    hits = judged[:, 1].cumsum()
    precision, recall = hits / np.arange(1, len(hits) + 1), hits / positives
    if by_points:
        return float(np.mean([precision[recall >= number / 10].max(initial=0) for number in range(11)]))
    return float((precision * np.diff(recall, prepend=0)).sum())


def _earlier(TruePos: Any, TruePos_lod: Lod, classes: int) -> list[Any]:
    """The detections of earlier batches, by class."""
    spans = images_of("TruePos", len(TruePos), TruePos_lod)
    if len(spans) > classes:
        raise ExecutionError(f"detection_map: TruePos has sequences of {len(spans)} classes, but class_num is {classes}")
    rows = [to_numpy(TruePos)[start:end] for start, end in spans]
    return rows + [rows[0][:0]] * (classes - len(rows))


@kernel("detection_map")
def detection_map(
    xp: Any,
    DetectRes: Any,
    DetectRes_lod: Lod,
    Label: Any,
    Label_lod: Lod,
    HasState: Any,
    PosCount: Any,
    TruePos: Any,
    TruePos_lod: Lod,
    attrs: Slots,
    AccumPosCount: Any,
    MAP: Any,
) -> tuple[LoDArray, LoDArray]:
    classes, threshold, all_count = attrs["class_num"], attrs["overlap_threshold"], attrs["evaluate_difficult"]
    detections, labels = to_numpy(DetectRes), to_numpy(Label)
    for name, values in (("DetectRes", detections), ("Label", labels)):
        if len(values) and not (values[:, 0].min() >= 0 and values[:, 0].max() < classes):
            raise ExecutionError(f"detection_map: the labels in {name} should be in [0, {classes}), class_num")
    difficult = labels[:, 1] != 0 if labels.shape[1] == 6 else np.zeros(len(labels), bool)
    counts = np.bincount(labels[difficult <= all_count, 0].astype(np.intp), minlength=classes)
    judged: list[list[Any]] = [[] for _ in range(classes)]
    if HasState is not None and int(HasState.reshape(-1)[0]) and PosCount is not None and TruePos is not None:
        counts = counts + to_numpy(PosCount).reshape(-1)
        judged = [[rows] for rows in _earlier(TruePos, TruePos_lod, classes)]
    spans = [
        images_of(name, len(rows), lod)
        for name, rows, lod in (("DetectRes", detections, DetectRes_lod), ("Label", labels, Label_lod))
    ]
    if len(spans[0]) != len(spans[1]):
        raise ExecutionError(f"detection_map: DetectRes has sequences of {len(spans[0])} images, but Label of {len(spans[1])}")
    for detected, labelled_rows in zip(*spans, strict=True):
        detected_boxes, truth, hard = (
            detections[slice(*detected)],
            labels[slice(*labelled_rows)],
            difficult[slice(*labelled_rows)],
        )
        for label in np.unique(detected_boxes[:, 0]).astype(np.int64).tolist():
            in_class = truth[:, 0] == label
            judged[label].append(
                _judged(
                    detected_boxes[detected_boxes[:, 0] == label, 1:], truth[in_class, -4:], hard[in_class], threshold, all_count
                )
            )
    by_class = [np.concatenate([np.empty((0, 2), np.float32), *rows]) for rows in judged]
    labelled = [label for label in range(classes) if counts[label] and label != attrs["background_label"]]
    points = attrs["ap_type"] == "11point"
    precisions = [_average_precision(by_class[label], counts[label], points) for label in labelled]
    write_wanted((AccumPosCount, xp.asarray(counts[:, None])), (MAP, np.mean(precisions) if precisions else 0))
    rows = np.concatenate(by_class).astype(np.float32)
    lod = (tuple(np.cumsum([0, *map(len, by_class)]).tolist()),)
    wrong = np.stack([rows[:, 0], 1 - rows[:, 1]], 1)
    return LoDArray(xp.asarray(rows), lod), LoDArray(xp.asarray(wrong), lod)
