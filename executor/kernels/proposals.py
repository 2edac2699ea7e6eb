"""Kernels of `fluid.ops.proposals`.

The number of output rows depends on the selection, so all kernels compute on the host, image by image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from math import log
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.values.lod_array import LoDArray, checked_lod, repeated
from fluid.values.place import to_numpy
from fluid.values.spec import Lod

from .boxes import decode, encode, iou, sizes
from .table import Slots, kernel

LARGEST_FACTOR = log(1000.0 / 16.0)
"""No box becomes more than e to this power as wide or high as its anchor."""


# ------------------------------------------------------------------------------------------------------- rows of images
def _bounds(lod: Lod, name: str) -> list[tuple[int, int]]:
    """The range of rows of each sequence of the last level."""
    return list(pairwise(checked_lod(lod, name)[-1] or ()))


def _split(array: Any, lod: Lod, name: str) -> list[Any]:
    """The rows of each image, on the host."""
    rows = to_numpy(array)
    return [rows[start:end] for start, end in _bounds(lod, name)]


def _split_by(array: Any, counts: Any, lod: Lod, name: str) -> list[Any]:
    """The rows of each image by their numbers, or without these by sequences."""
    if counts is None:
        return _split(array, lod, name)
    lengths = to_numpy(counts).reshape(-1)
    if lengths.sum() != len(array) or (lengths < 0).any():
        raise ExecutionError(f"{name} has {len(array)} rows, which its numbers {lengths.tolist()} should add up to")
    return np.split(to_numpy(array), np.cumsum(lengths)[:-1]) if len(lengths) else []


def _joined(xp: Any, parts: Sequence[Any], like: Any, width: int = 0) -> LoDArray:
    """Parts, one for each image, as sequences of rows (of numbers, without `width`) with the type of `like`."""
    lod = (tuple(accumulate(map(len, parts), initial=0)),)
    empty = np.zeros((0, width) if width else 0, like)
    rows = np.concatenate([empty, *(np.reshape(part, (len(part), *empty.shape[1:])) for part in parts)])
    return LoDArray(xp.asarray(rows.astype(like, copy=False)), lod)


# ---------------------------------------------------------------------------------------------------------------- boxes
def _areas(boxes: Any, offset: int) -> Any:
    left, top, right, bottom = (boxes[..., side] for side in range(4))
    areas = (right - left + boxes.dtype.type(offset)) * (bottom - top + boxes.dtype.type(offset))
    return np.where((right < left) | (bottom < top), 0, areas)


def _shares(first: Any, second: Any, area: Any, areas: Any, offset: int) -> Any:
    """Intersection over union of boxes given as left, top, right and bottom; 0 of boxes that end before they begin.

    Areas are precomputed, because non-maximum suppression compares a box many times.
    """
    number = area.dtype.type
    width, height = (
        np.maximum(
            np.minimum(first[axis + 2], second[axis + 2]) - np.maximum(first[axis], second[axis]) + number(offset), number(0)
        )
        for axis in (0, 1)
    )
    common = width * height
    union = area + areas - common
    return common / np.where(union > 0, union, np.inf).astype(common.dtype, copy=False)


def _moved(anchors: Any, deltas: Any, edge: int) -> Any:
    """The boxes that deltas make of anchors [.., 4], none of them too large."""
    return decode(np, np.minimum(deltas, np.array([np.inf, np.inf, LARGEST_FACTOR, LARGEST_FACTOR], deltas.dtype)), anchors, edge)


def _limited(boxes: Any, height: Any, width: Any, offset: int) -> Any:
    """Boxes within an image."""
    most = np.array([width, height, width, height], boxes.dtype) - boxes.dtype.type(offset)
    return np.maximum(np.minimum(boxes, most), 0)


def _suppress(boxes: Any, threshold: float, eta: float, most: int, offset: int) -> list[int]:
    """Non-maximum suppression: the indices of boxes (in the order of their scores) to retain; at most `most`, unless negative.

    A box is retained if it overlaps no retained box by more than the threshold. If `eta` is below 1, each retained box
    multiplies the threshold by `eta`, as long as it is above 0.5.
    """
    survivors: list[int] = []
    places, worst = np.arange(len(boxes)), np.zeros(len(boxes), boxes.dtype)
    sides = np.concatenate([boxes.T, _areas(boxes, offset)[None]])  # along with the areas
    while len(places) and len(survivors) != most:
        best, sides = sides[:, 0], sides[:, 1:]
        survivors.append(int(places[0]))
        if eta < 1 and threshold > 0.5:
            threshold *= eta
        worst = np.maximum(worst[1:], _shares(best, sides, best[4], sides[4], offset))
        stays = np.flatnonzero(worst <= threshold)
        places = places[1:]
        if len(stays) < len(places):
            sides, places, worst = sides.take(stays, 1), places[stays], worst[stays]
    return survivors


# ------------------------------------------------------------------------------------------------------------ proposals
def _proposed(scores: Any, deltas: Any, anchors: Any, size: Any, scale: Any, attrs: Slots, offset: int) -> tuple[Any, Any]:
    """Select the proposed regions of one image from all places; returns the regions and their scores."""
    order = np.argsort(-scores, kind="stable")
    if attrs["pre_nms_topN"] > 0:
        order = order[: attrs["pre_nms_topN"]]
    boxes = _limited(_moved(anchors[order], deltas[order], offset), size[0], size[1], offset)
    large = ((boxes[:, 2:] - boxes[:, :2]) / scale + boxes.dtype.type(offset) >= max(attrs["min_size"], 1)).all(1)
    if offset:
        large &= (boxes[:, :2] + sizes(boxes, offset) / 2 <= size[::-1]).all(1)
    boxes, scores = boxes[large], scores[order[large]]
    if not len(boxes):
        return np.zeros((1, 4), boxes.dtype), np.zeros(1, boxes.dtype)
    if attrs["nms_thresh"] > 0:
        most = attrs["post_nms_topN"] if attrs["post_nms_topN"] > 0 else -1
        survivors = _suppress(boxes, attrs["nms_thresh"], attrs["eta"], most, offset)
        boxes, scores = boxes[survivors], scores[survivors]
    return boxes, scores


def _propose(
    xp: Any, Scores: Any, BboxDeltas: Any, sizes: Any, Anchors: Any, Variances: Any, attrs: Slots, offset: int, RpnRoisNum: Any
) -> tuple[LoDArray, LoDArray]:
    images, per_place, height, width = Scores.shape
    places = per_place * height * width
    scores = to_numpy(Scores).transpose(0, 2, 3, 1).reshape(images, places)
    deltas = to_numpy(BboxDeltas).reshape(images, per_place, 4, height, width).transpose(0, 3, 4, 1, 2).reshape(images, places, 4)
    deltas, anchors = deltas * to_numpy(Variances).reshape(-1, 4), to_numpy(Anchors).reshape(-1, 4)
    pairs = [
        _proposed(score, delta, anchors, size[:2], size[2], attrs, offset)
        for score, delta, size in zip(scores, deltas, sizes, strict=True)
    ]
    if RpnRoisNum is not None:
        RpnRoisNum[...] = xp.asarray([len(boxes) for boxes, _ in pairs], RpnRoisNum.dtype)
    rois, probabilities = ([pair[number] for pair in pairs] for number in (0, 1))
    return _joined(xp, rois, Scores.dtype, 4), _joined(xp, probabilities, Scores.dtype, 1)


@kernel("generate_proposals")
def generate_proposals(
    xp: Any, Scores: Any, BboxDeltas: Any, ImInfo: Any, Anchors: Any, Variances: Any, attrs: Slots, RpnRoisNum: Any
) -> tuple[LoDArray, LoDArray]:
    return _propose(xp, Scores, BboxDeltas, to_numpy(ImInfo), Anchors, Variances, attrs, 1, RpnRoisNum)


@kernel("generate_proposals_v2")
def generate_proposals_v2(
    xp: Any, Scores: Any, BboxDeltas: Any, ImShape: Any, Anchors: Any, Variances: Any, attrs: Slots, RpnRoisNum: Any
) -> tuple[Any, Any]:
    infos = np.concatenate([to_numpy(ImShape), np.ones((len(ImShape), 1), ImShape.dtype)], 1)
    offset = int(attrs["pixel_offset"])
    rois, probabilities = _propose(xp, Scores, BboxDeltas, infos, Anchors, Variances, attrs, offset, RpnRoisNum)
    return rois.array, probabilities.array


# --------------------------------------------------------------------------------------------------------------- levels
@kernel("distribute_fpn_proposals")
def distribute_fpn_proposals(
    xp: Any, FpnRois: Any, FpnRois_lod: Lod, RoisNum: Any, attrs: Slots, RestoreIndex: Any, MultiLevelRoIsNum: Any
) -> tuple[list[LoDArray]]:
    images = _split_by(FpnRois, RoisNum, FpnRois_lod, "FpnRois")
    rois = to_numpy(FpnRois)
    lowest, highest = attrs["min_level"], attrs["max_level"]
    scale = np.sqrt(_areas(rois, int(attrs["pixel_offset"]))) / rois.dtype.type(attrs["refer_scale"])
    levels = np.floor(np.log2(scale + rois.dtype.type(1e-6)) + attrs["refer_level"])
    levels = np.clip(levels, lowest, highest).astype(int) - lowest
    ids = np.repeat(np.arange(len(images)), [len(image) for image in images])
    if RestoreIndex is not None:
        RestoreIndex[:, 0] = xp.asarray(levels.argsort(kind="stable").argsort())
    by_level = []
    for level in range(highest - lowest + 1):
        chosen = levels == level
        counts = np.bincount(ids[chosen], minlength=len(images))
        by_level.append(LoDArray(xp.asarray(rois[chosen]), (tuple(accumulate(counts.tolist(), initial=0)),)))
        if MultiLevelRoIsNum is not None and MultiLevelRoIsNum[level] is not None:
            MultiLevelRoIsNum[level][...] = xp.asarray(counts)
    return (by_level,)


def _collect(xp: Any, rois: list[list[Any]], scores: list[Any], most: int, images: int, like: Any, RoisNum: Any) -> LoDArray:
    """The regions of most score, image by image; `rois` has them by level and image."""
    ids = np.concatenate([np.repeat(np.arange(images), list(map(len, level))) for level in rois])
    order = np.argsort(-np.concatenate(scores), kind="stable")[:most]
    order = order[ids[order].argsort(kind="stable")]
    counts = np.bincount(ids[order], minlength=images)
    if RoisNum is not None:
        RoisNum[...] = xp.asarray(counts)
    rows = np.concatenate([np.zeros((0, 4), like), *(image for level in rois for image in level)])[order]
    return LoDArray(xp.asarray(rows), (tuple(accumulate(counts.tolist(), initial=0)),))


@kernel("collect_fpn_proposals")
def collect_fpn_proposals(
    xp: Any,
    MultiLevelRois: list[Any],
    MultiLevelRois_lod: list[Lod],
    MultiLevelScores: list[Any],
    MultiLevelRoIsNum: list[Any] | None,
    post_nms_topN: int,
    RoisNum: Any,
) -> LoDArray:
    counts = MultiLevelRoIsNum or [None] * len(MultiLevelRois)
    lods = MultiLevelRois_lod or [()] * len(MultiLevelRois)
    levels = zip(MultiLevelRois, counts, lods, strict=True)
    rois = [_split_by(*level, "MultiLevelRois") for level in levels]
    scores = [to_numpy(values).reshape(-1) for values in MultiLevelScores]
    return _collect(xp, rois, scores, post_nms_topN, len(rois[0]), MultiLevelRois[0].dtype, RoisNum)


# -------------------------------------------------------------------------------------------------------------- targets
Draw = Callable[[Any, int], Any]
"""Draws a given count of an array's numbers, in their order; all if there are fewer."""


def _drawing(rng: Any, use_random: bool) -> Draw:
    if not use_random:
        return lambda numbers, count: numbers[: max(count, 0)]
    generator = rng()

    def draw(numbers: Any, count: int) -> Any:
        if len(numbers) <= count:
            return numbers
        return numbers[np.sort(to_numpy(generator.random(len(numbers))).argsort()[: max(count, 0)])]

    return draw


def _is_best(overlaps: Any) -> Any:
    """The mask of rows with the greatest overlap of some column, in overlaps [.., objects]."""
    return (np.abs(overlaps - overlaps.max(0)) < 1e-5).any(1) if overlaps.size else np.zeros(len(overlaps), bool)


def _greatest(overlaps: Any) -> tuple[Any, Any]:
    """The greatest overlap of each row, and its column; 0 and 0 without columns."""
    if not overlaps.shape[1]:
        return np.zeros(len(overlaps), overlaps.dtype), np.zeros(len(overlaps), int)
    return overlaps.max(1), overlaps.argmax(1)


def _near_image(anchors: Any, size: Any, straddle: float) -> Any:
    """The numbers of the anchors that do not reach over the edge of an image by more than this; of all, if it is negative."""
    if straddle < 0:
        return np.arange(len(anchors))
    return np.flatnonzero((anchors[:, :2] >= -straddle).all(1) & (anchors[:, 2:] < size[1::-1] + straddle).all(1))


class _Assigned:
    """The anchors of one image to train on, with their targets: the results of `rpn_target_assign`."""

    def __init__(self, anchors: Any, chosen: Any, objects: Any, classes: Any, positive: float, negative: float,
                 draw: Draw, foreground: int, batch: int) -> None:  # fmt: skip
        overlaps = iou(np, anchors[chosen][:, None], objects, 1)
        most, matched = _greatest(overlaps)
        hits = draw(np.flatnonzero(_is_best(overlaps) | (most >= positive)), foreground) if len(objects) else chosen[:0]
        misses = draw(np.flatnonzero(most < negative), batch - len(hits))
        hit_only, both = np.setdiff1d(hits, misses), np.intersect1d(hits, misses)
        located = np.concatenate([np.repeat(hits[:1], len(both)), hit_only])
        self.location = chosen[located]
        self.score = chosen[np.concatenate([hit_only, np.sort(misses)])]
        self.labels = np.concatenate([classes[matched[hit_only]] if len(hit_only) else [], np.zeros(len(misses))])
        self.targets = encode(np, objects[matched[located]], anchors[self.location], 1) if len(located) else anchors[:0]
        self.weights = np.repeat(np.arange(len(located)) >= len(both), 4).reshape(-1, 4)
        self.foreground = len(located)


def _assign(
    xp: Any,
    inputs: Slots,
    lods: dict[str, Lod],
    straddle: float,
    overlaps: tuple[float, float],
    draw: Draw,
    most: tuple[int, int],
) -> tuple[Any, ...]:
    """Assign targets for all images; returns the joined results, and the number of anchors with an object per image."""
    anchors, sizes = to_numpy(inputs["Anchor"]), to_numpy(inputs["ImInfo"])
    columns = [_split(inputs[name], lod, name) for name, lod in lods.items()]
    images = []
    for size, boxes, crowd, *labels in zip(sizes, *columns, strict=True):
        real = crowd.reshape(-1) == 0
        classes = labels[0].reshape(-1)[real] if labels else np.ones(int(real.sum()))
        chosen = _near_image(anchors, size, straddle)
        images.append(_Assigned(anchors, chosen, boxes[real] * size[2], classes, *overlaps, draw, *most))
    starts = [len(anchors) * number for number in range(len(images))]
    return (
        _joined(xp, [start + image.location for start, image in zip(starts, images, strict=True)], "int32"),
        _joined(xp, [start + image.score for start, image in zip(starts, images, strict=True)], "int32"),
        _joined(xp, [image.targets for image in images], anchors.dtype, 4),
        _joined(xp, [image.labels for image in images], "int32", 1),
        _joined(xp, [image.weights for image in images], anchors.dtype, 4),
        [image.foreground for image in images],
    )


@kernel("rpn_target_assign")
def rpn_target_assign(xp: Any, rng: Any, inputs: Slots, GtBoxes_lod: Lod, IsCrowd_lod: Lod, attrs: Slots) -> tuple[LoDArray, ...]:
    batch = attrs["rpn_batch_size_per_im"]
    overlaps = attrs["rpn_positive_overlap"], attrs["rpn_negative_overlap"]
    most = int(attrs["rpn_fg_fraction"] * batch), batch
    draw, lods = _drawing(rng, attrs["use_random"]), {"GtBoxes": GtBoxes_lod, "IsCrowd": IsCrowd_lod}
    *targets, _ = _assign(xp, inputs, lods, attrs["rpn_straddle_thresh"], overlaps, draw, most)
    return tuple(targets)


@kernel("retinanet_target_assign")
def retinanet_target_assign(
    xp: Any, inputs: Slots, GtBoxes_lod: Lod, IsCrowd_lod: Lod, GtLabels_lod: Lod, positive_overlap: float,
    negative_overlap: float, ForegroundNumber: Any,
) -> tuple[Any, ...]:  # fmt: skip
    lods = {"GtBoxes": GtBoxes_lod, "IsCrowd": IsCrowd_lod, "GtLabels": GtLabels_lod}
    everything = len(inputs["Anchor"])
    draw, most = _drawing(None, use_random=False), (everything, 2 * everything)
    *targets, counts = _assign(xp, inputs, lods, -1, (positive_overlap, negative_overlap), draw, most)
    if ForegroundNumber is not None:
        ForegroundNumber[:, 0] = xp.asarray(counts) + 1
    return tuple(targets)


class _Sampled:
    """The regions of one image to train on, with their targets: the results of `generate_proposal_labels`."""

    def __init__(self, rois: Any, classes: Any, crowd: Any, objects: Any, scale: Any, draw: Draw, attrs: Slots) -> None:
        rois = np.concatenate([objects, rois / scale])
        most, matched = _greatest(iou(np, rois[:, None], objects, 1))
        most[: len(objects)][crowd.reshape(-1) != 0] = -1
        hits = np.flatnonzero(most >= attrs["fg_thresh"])
        misses = np.flatnonzero((most >= attrs["bg_thresh_lo"]) & (most < attrs["bg_thresh_hi"]))
        if not attrs["is_cascade_rcnn"]:
            batch = attrs["batch_size_per_im"]
            hits = draw(hits, int(batch * attrs["fg_fraction"]))
            misses = draw(misses, batch - len(hits))
        chosen = np.concatenate([hits, misses])
        self.rois, self.overlaps = rois[chosen] * scale, most[chosen]
        self.labels = np.concatenate([classes.reshape(-1)[matched[hits]] if len(hits) else [], np.zeros(len(misses))]).astype(int)
        self.targets = np.zeros((len(chosen), attrs["class_nums"], 4), rois.dtype)
        self.weights = np.zeros_like(self.targets)
        columns = (np.arange(len(hits)), 1 if attrs["is_cls_agnostic"] else self.labels[: len(hits)])
        if len(hits):
            offsets = encode(np, objects[matched[hits]], rois[hits], 1)
            self.targets[columns] = offsets / np.array(attrs["bbox_reg_weights"], rois.dtype)
            self.weights[columns] = 1


@kernel("generate_proposal_labels")
def generate_proposal_labels(
    xp: Any,
    rng: Any,
    RpnRois: Any,
    RpnRois_lod: Lod,
    GtClasses: Any,
    GtClasses_lod: Lod,
    IsCrowd: Any,
    IsCrowd_lod: Lod,
    GtBoxes: Any,
    GtBoxes_lod: Lod,
    ImInfo: Any,
    MaxOverlap: Any,
    attrs: Slots,
) -> tuple[LoDArray, ...]:
    draw, dtype, width = _drawing(rng, attrs["use_random"]), RpnRois.dtype, 4 * attrs["class_nums"]
    images = []
    rows = zip(
        _split(RpnRois, RpnRois_lod, "RpnRois"),
        _bounds(RpnRois_lod, "RpnRois"),
        _split(GtClasses, GtClasses_lod, "GtClasses"),
        _split(IsCrowd, IsCrowd_lod, "IsCrowd"),
        _split(GtBoxes, GtBoxes_lod, "GtBoxes"),
        to_numpy(ImInfo)[:, 2],
        strict=True,
    )
    for rois, (start, end), classes, crowd, objects, scale in rows:
        if len(classes) and not attrs["is_cls_agnostic"] and not 0 <= classes.min() <= classes.max() < attrs["class_nums"]:
            raise ExecutionError(
                f"GtClasses has {classes.reshape(-1).tolist()}; class_nums allows 0 to {attrs['class_nums'] - 1}"
            )
        if attrs["is_cascade_rcnn"] and MaxOverlap is not None:
            rois = rois[(to_numpy(MaxOverlap).reshape(-1)[start:end] < 1) & (sizes(rois, 1) > 0).all(1)]
        elif attrs["is_cascade_rcnn"]:
            rois = rois[len(objects) :]
        images.append(_Sampled(rois, classes, crowd, objects, scale, draw, attrs))
    weights = _joined(xp, [image.weights for image in images], dtype, width)
    return (
        _joined(xp, [image.rois for image in images], dtype, 4),
        _joined(xp, [image.labels for image in images], "int32", 1),
        _joined(xp, [image.targets for image in images], dtype, width),
        weights,
        LoDArray(weights.array.copy(), weights.lod),
        _joined(xp, [image.overlaps for image in images], dtype),
    )


# ----------------------------------------------------------------------------------------------------------- detections
def _candidates(boxes: Any, scores: Any, anchors: Any, threshold: float, most: int) -> tuple[Any, Any, Any]:
    """The boxes, classes and scores with the greatest scores, for one level of an image."""
    flat = scores.reshape(-1)
    chosen = np.flatnonzero(flat > threshold)
    chosen = chosen[np.argsort(-flat[chosen], kind="stable")]
    if most >= 0:
        chosen = chosen[:most]
    places, classes = np.divmod(chosen, scores.shape[1])
    return _moved(anchors[places], boxes[places], 1), classes, flat[chosen]


def _detections(levels: Iterable[tuple[Any, Any, Any]], size: Any, attrs: Slots) -> Any:
    """The objects of one image [.., 6], of candidates of each level."""
    boxes, classes, scores = (np.concatenate(parts) for parts in zip(*levels, strict=True))
    height, width = (np.round(size[:2] / size[2])).astype(boxes.dtype)
    boxes = _limited(boxes / size[2], height, width, 1)
    survivors: list[int] = []
    for class_ in np.unique(classes):
        members = np.flatnonzero(classes == class_)
        members = members[np.argsort(-scores[members], kind="stable")]
        survivors += members[_suppress(boxes[members], attrs["nms_threshold"], attrs["nms_eta"], -1, 1)].tolist()
    chosen = np.array(survivors, int)
    chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
    if attrs["keep_top_k"] >= 0:
        chosen = chosen[: attrs["keep_top_k"]]
    return np.concatenate([classes[chosen, None] + 1, scores[chosen, None], boxes[chosen]], 1)


@kernel("retinanet_detection_output")
def retinanet_detection_output(
    xp: Any, BBoxes: list[Any], Scores: list[Any], Anchors: list[Any], ImInfo: Any, attrs: Slots
) -> LoDArray:
    levels = [tuple(map(to_numpy, level)) for level in zip(BBoxes, Scores, Anchors, strict=True)]
    thresholds = [attrs["score_threshold"]] * (len(levels) - 1) + [0.0]
    images = []
    for number, size in enumerate(to_numpy(ImInfo)):
        parts = (
            _candidates(boxes[number], scores[number], anchors, threshold, attrs["nms_top_k"])
            for (boxes, scores, anchors), threshold in zip(levels, thresholds, strict=True)
        )
        images.append(_detections(parts, size, attrs))
    return _joined(xp, images, BBoxes[0].dtype, 6)


# ---------------------------------------------------------------------------------------------------------------- masks
_FINER = 5
"""Outlines of polygons are traced on a grid finer than the mask by this factor."""


def _outline(corners: Any) -> tuple[Any, Any]:
    """The grid points x and y along the outline of a polygon [.., 2], in order."""
    first = np.floor(_FINER * corners.astype("float64") + 0.5).astype("int64")
    last = np.roll(first, -1, axis=0)
    spans = np.abs(last - first)
    steep = spans[:, 0] < spans[:, 1]
    main = steep.astype(int)  # the axis along which an edge has a point at each place
    edges = np.arange(len(first))
    backwards = first[edges, main] > last[edges, main]
    starts, ends = (np.where(backwards[:, None], *pair) for pair in ((last, first), (first, last)))
    steps = spans.max(1)
    slopes = (ends - starts)[edges, 1 - main] / np.maximum(steps, 1)
    edge = repeated(edges, steps + 1)
    place = np.arange(len(edge)) - repeated(np.cumsum(steps + 1) - steps - 1, steps + 1)
    place = np.where(backwards[edge], steps[edge] - place, place)
    along = starts[edge, main[edge]] + place
    beside = np.floor(starts[edge, 1 - main[edge]] + slopes[edge] * place + 0.5).astype("int64")
    return np.where(steep[edge], beside, along), np.where(steep[edge], along, beside)


def _filled(corners: Any, size: int) -> Any:
    """The elements [size, size] of a grid that are inside of a polygon.

    Where its outline passes the middle of a column, inside and outside change places from there on down.
    """
    x, y = _outline(corners)
    passes = np.flatnonzero(np.diff(x))
    column = (np.maximum(x[1:], x[:-1])[passes] - 1 + 0.5) / _FINER - 0.5
    row = np.ceil(np.clip((np.minimum(y[1:], y[:-1])[passes] + 0.5) / _FINER - 0.5, 0, size))
    seen = (column == np.floor(column)) & (column >= 0) & (column < size)
    index = (column[seen] * size + row[seen]).astype("int64")
    changes = np.bincount(index, minlength=size * size + 1)[: size * size]
    return (np.cumsum(changes) % 2 == 1).reshape(size, size).T


def _mask(polygons: Sequence[Any], box: Any, size: int) -> Any:
    """The elements of a grid laid over a box that are inside of one of these polygons."""
    sides = np.maximum(box[2:] - box[:2], 1)
    mask = np.zeros((size, size), bool)
    for corners in filter(len, polygons):
        mask |= _filled((corners - box[:2]) * size / sides, size)
    return mask


def _polygons(GtSegms: Any, lod: Lod) -> list[list[list[Any]]]:
    """Polygons [.., 2] by image and object."""
    if len(lod) != 3:
        text = "objects of images, polygons of objects, points of polygons"
        raise ExecutionError(f"GtSegms has {len(lod)} levels of sequences; it should have three: {text}")
    points = to_numpy(GtSegms)
    polygons = [points[start:end] for start, end in pairwise(lod[2] or ())]
    objects = [polygons[start:end] for start, end in pairwise(lod[1] or ())]
    return [objects[start:end] for start, end in pairwise(lod[0] or ())]


def _masked(rois: Any, labels: Any, objects: list[list[Any]], scale: Any, size: int, classes: int) -> tuple[Any, Any, Any]:
    """The regions of one image that have a mask, their numbers, and the masks by class."""
    hits = np.flatnonzero(labels > 0) if objects else np.zeros(0, int)
    masks = np.full((max(len(hits), 1), classes, size, size), -1)
    if not len(hits):
        return rois[:1], np.zeros(len(rois[:1]), int), masks[: len(rois)]
    bounds = [np.concatenate(polygons) for polygons in objects]
    boxes = np.array([[*points.min(0), *points.max(0)] for points in bounds], rois.dtype)
    regions = rois[hits] / scale
    _, matched = _greatest(iou(np, regions[:, None], boxes, 1))
    for number, (hit, region) in enumerate(zip(hits, regions, strict=True)):
        masks[number, labels[hit]] = _mask(objects[matched[number]], region, size)
    return rois[hits], hits, masks


@kernel("generate_mask_labels")
def generate_mask_labels(
    xp: Any,
    ImInfo: Any,
    GtClasses: Any,
    GtClasses_lod: Lod,
    IsCrowd: Any,
    IsCrowd_lod: Lod,
    GtSegms: Any,
    GtSegms_lod: Lod,
    Rois: Any,
    Rois_lod: Lod,
    LabelsInt32: Any,
    LabelsInt32_lod: Lod,
    num_classes: int,
    resolution: int,
) -> tuple[LoDArray, ...]:
    images = zip(
        _split(Rois, Rois_lod, "Rois"),
        _split(LabelsInt32.reshape(-1), LabelsInt32_lod, "LabelsInt32"),
        _polygons(GtSegms, GtSegms_lod),
        _split(GtClasses.reshape(-1), GtClasses_lod, "GtClasses"),
        _split(IsCrowd.reshape(-1), IsCrowd_lod, "IsCrowd"),
        to_numpy(ImInfo)[:, 2],
        strict=True,
    )
    results = []
    for rois, labels, objects, classes, crowd, scale in images:
        if len(labels) and labels.max() >= num_classes:
            raise ExecutionError(f"LabelsInt32 has the class {labels.max()}; num_classes allows 0 to {num_classes - 1}")
        shapes = zip(objects, classes, crowd, strict=True)
        real = [polygons for polygons, class_, many in shapes if class_ > 0 and not many and any(map(len, polygons))]
        results.append(_masked(rois, labels, real, scale, resolution, num_classes))
    rois, numbers, masks = zip(*results, strict=True) if results else ((), (), ())
    width = num_classes * resolution**2
    return _joined(xp, rois, Rois.dtype, 4), _joined(xp, numbers, "int32", 1), _joined(xp, masks, "int32", width)
