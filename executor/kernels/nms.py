"""Kernels of `fluid.ops.nms`: on the host, since how many detections there are depends on values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fluid.values.lod_array import LoDArray
from fluid.values.place import to_numpy
from fluid.values.spec import Lod

from .boxes import images_of, jaccard, suppress
from .manipulation import numbers, write_wanted
from .table import Slots, kernel


# -------------------------------------------------------------------------------------------------------------- polygons
def _edges(polygons: Any) -> tuple[Any, Any]:
    """The corners [..., V, 2] of polygons [..., 2 V], and the next corner of each."""
    corners = polygons.reshape(*polygons.shape[:-1], -1, 2).astype(np.float64)
    return corners, np.roll(corners, -1, -2)


def _crossings(edges: tuple[Any, Any], level: Any) -> Any:
    """The places [P, S, V] where the edges of polygons [P, V] cross heights [P, S], in order; infinite without a crossing."""
    (x, y), (next_x, next_y) = (np.moveaxis(ends, -1, 0)[:, :, None] for ends in edges)
    level = level[..., None]
    across = (y <= level) != (next_y <= level)
    rise = np.where(across, next_y - y, 1)
    return np.sort(np.where(across, x + (level - y) * (next_x - x) / rise, np.inf), -1)


def _shared_area(first: tuple[Any, Any], second: tuple[Any, Any]) -> Any:
    """The areas of the intersections of polygons [P, V]. All corners and crossings of edges cut the plane into horizontal strips.
    In a strip both polygons have straight sides, so its shared area is the shared width in the middle times the height."""
    (a, a_next), (b, b_next) = ([ends[:, :, None] for ends in first], [ends[:, None] for ends in second])
    along, beside = a_next - a, b_next - b
    cross = along[..., 0] * beside[..., 1] - along[..., 1] * beside[..., 0]
    apart = b - a
    share = (apart[..., 0] * beside[..., 1] - apart[..., 1] * beside[..., 0]) / np.where(cross == 0, np.inf, cross)
    meet = a[..., 1] + np.clip(share, 0, 1) * along[..., 1]
    heights = np.sort(np.concatenate([first[0][..., 1], second[0][..., 1], meet.reshape(len(meet), -1)], 1), 1)
    middle = (heights[:, 1:] + heights[:, :-1]) / 2
    low, high = zip(
        *((crossings[..., ::2], crossings[..., 1::2]) for crossings in (_crossings(first, middle), _crossings(second, middle))),
        strict=True,
    )
    with np.errstate(invalid="ignore"):  # of no crossing, infinity less infinity
        width = np.minimum(high[0][..., :, None], high[1][..., None, :]) - np.maximum(low[0][..., :, None], low[1][..., None, :])
    width = np.where(np.isfinite(width), np.maximum(width, 0), 0).sum((-2, -1))
    return (width * np.diff(heights, axis=1)).sum(1)


def polygon_iou(polygon: Any, peer: Any) -> Any:
    """Intersection over union of polygons [..., 2 V], which broadcast."""
    polygon, peer = np.broadcast_arrays(polygon, peer)
    flat = [_edges(polygons.reshape(-1, polygons.shape[-1])) for polygons in (polygon, peer)]
    shared = _shared_area(*flat)
    first, second = (_shared_area(edges, edges) for edges in flat)
    union = first + second - shared
    return (shared / np.where(union == 0, 1, union)).reshape(polygon.shape[:-1]).astype(polygon.dtype)


def _overlap(boxes: Any, normalized: bool) -> Callable[[Any, Any], Any]:
    """The overlap function for boxes of this kind."""
    return partial(jaccard, np, edge=int(not normalized)) if boxes.shape[-1] == 4 else polygon_iou


# ------------------------------------------------------------------------------------------------- non-maximum suppression
class _Image(NamedTuple):
    """Boxes [M, K] or, of each class, [M, C, K], and scores [C, M] of an image; and the number of boxes before it."""

    boxes: Any
    scores: Any
    before: int

    def of_class(self, label: int) -> Any:
        return self.boxes if self.boxes.ndim == 2 else self.boxes[:, label]


def _images(BBoxes: Any, BBoxes_lod: Lod, Scores: Any, RoisNum: Any = None) -> Iterator[_Image]:
    boxes, scores = to_numpy(BBoxes), to_numpy(Scores)
    if scores.ndim == 3:
        for number, (image_boxes, score) in enumerate(zip(boxes, scores, strict=True)):
            yield _Image(image_boxes, score, number * len(image_boxes))
        return
    counts = numbers(to_numpy(RoisNum), None, ()) if RoisNum is not None else None
    for start, end in images_of("BBoxes", len(boxes), BBoxes_lod, counts):
        yield _Image(boxes[start:end], scores[start:end].T, start)


def _best(scores: Any, threshold: float, most: int) -> Any:
    """The indices of scores above a threshold, the largest first; at most `most` of them, or all for -1."""
    above = np.flatnonzero(scores > np.float32(threshold))
    values = scores[above]
    if 0 < most < len(above):  # far fewer to sort
        best = values >= np.partition(values, -most)[-most]
        above, values = above[best], values[best]
    order = above[(-values).argsort(kind="stable")]
    return order[:most] if most > -1 else order


def _select(image: _Image, attrs: Slots) -> tuple[Any, Any]:
    """The classes and box indices of the detections of an image."""
    classes, chosen = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    overlap = _overlap(image.boxes, attrs["normalized"])
    for number, scores in enumerate(image.scores):
        if number != attrs["background_label"]:
            order = _best(scores, attrs["score_threshold"], attrs["nms_top_k"])
            survivors = order[suppress(image.of_class(number)[order], attrs["nms_threshold"], overlap, attrs["nms_eta"])]
            classes.append(np.full(len(survivors), number))
            chosen.append(survivors)
    label, index = np.concatenate(classes), np.concatenate(chosen)
    most = attrs["keep_top_k"]
    if -1 < most < len(label):
        first = (-image.scores[label, index]).argsort(kind="stable")[:most]
        first = first[label[first].argsort(kind="stable")]
        label, index = label[first], index[first]
    if image.boxes.ndim == 3:  # then the detections of a class are in the order of the boxes
        first = np.lexsort((index, label))
        label, index = label[first], index[first]
    return label, index


class _DetectedRows(NamedTuple):
    """Rows of class, score and box; the index of each box among the boxes of all images; and the number of rows per image."""

    rows: Any
    index: Any
    counts: list[int]

    @property
    def lod(self) -> Lod:
        return (tuple(np.cumsum([0, *self.counts]).tolist()),)


def _row(image: _Image, label: Any, index: Any) -> Any:
    boxes = image.boxes[index] if image.boxes.ndim == 2 else image.boxes[index, label]
    return np.concatenate([label[:, None].astype(boxes.dtype), image.scores[label, index][:, None], boxes], 1)


def _detect(images: Iterator[_Image], attrs: Slots, width: int, dtype: Any) -> _DetectedRows:
    """Detect in each image, and join the results."""
    rows, places, counts = [np.empty((0, 2 + width), dtype)], [np.empty(0, np.int64)], []
    for image in images:
        label, index = _select(image, attrs)
        rows.append(_row(image, label, index))
        places.append(
            (image.before + index) * (1 if image.boxes.ndim == 2 else len(image.scores)) + (image.boxes.ndim == 3) * label
        )
        counts.append(len(label))
    return _DetectedRows(np.concatenate(rows), np.concatenate(places).astype(np.int32)[:, None], counts)


def _rows_or_none(xp: Any, detections: _DetectedRows) -> LoDArray:
    """The detections or, if there are none at all, -1 as the only one."""
    if not len(detections.rows):
        return LoDArray(xp.full((1, 1), -1, detections.rows.dtype), ((0, 1),))
    return LoDArray(xp.asarray(detections.rows), detections.lod)


@kernel("multiclass_nms")
def multiclass_nms(xp: Any, BBoxes: Any, BBoxes_lod: Lod, Scores: Any, attrs: Slots) -> LoDArray:
    return _rows_or_none(xp, _detect(_images(BBoxes, BBoxes_lod, Scores), attrs, BBoxes.shape[2], BBoxes.dtype))


@kernel("multiclass_nms2")
def multiclass_nms2(xp: Any, BBoxes: Any, BBoxes_lod: Lod, Scores: Any, attrs: Slots) -> tuple[LoDArray, LoDArray]:
    detections = _detect(_images(BBoxes, BBoxes_lod, Scores), attrs, BBoxes.shape[2], BBoxes.dtype)
    return LoDArray(xp.asarray(detections.rows), detections.lod), LoDArray(xp.asarray(detections.index), detections.lod)


@kernel("multiclass_nms3")
def multiclass_nms3(
    xp: Any, BBoxes: Any, BBoxes_lod: Lod, Scores: Any, RoisNum: Any, attrs: Slots, NmsRoisNum: Any
) -> tuple[Any, Any]:
    detections = _detect(_images(BBoxes, BBoxes_lod, Scores, RoisNum), attrs, BBoxes.shape[2], BBoxes.dtype)
    write_wanted((NmsRoisNum, xp.asarray(detections.counts)))
    return xp.asarray(detections.rows), xp.asarray(detections.index)


# ----------------------------------------------------------------------------------------------------------------- others
def _decayed(boxes: Any, scores: Any, attrs: Slots) -> Any:
    """Scores, the best first, lowered by how far better boxes overlap theirs; see `matrix_nms`."""
    overlaps = np.triu(_overlap(boxes, attrs["normalized"])(boxes[:, None], boxes), 1)
    most = overlaps.max(0, initial=0)[:, None]
    if attrs["use_gaussian"]:
        decay = np.exp((most**2 - overlaps**2) * np.float32(attrs["gaussian_sigma"]))
    else:
        decay = (1 - overlaps) / (1 - most)
    better = np.triu(np.ones(overlaps.shape, bool), 1)
    return np.where(better, decay, 1).min(0, initial=1) * scores


def _rank(image: _Image, attrs: Slots) -> tuple[Any, Any, Any]:
    """The classes, box indices and lowered scores of the detections of an image."""
    dtype = image.scores.dtype
    classes, chosen, values = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, dtype)]
    for number, scores in enumerate(image.scores):
        if number != attrs["background_label"]:
            order = _best(scores, attrs["score_threshold"], attrs["nms_top_k"])
            decayed = _decayed(image.boxes[order], scores[order], attrs)
            survivors = decayed > np.float32(attrs["post_threshold"])
            classes.append(np.full(survivors.sum(), number))
            chosen.append(order[survivors])
            values.append(decayed[survivors].astype(dtype))
    value = np.concatenate(values)
    first = (-value).argsort(kind="stable")
    first = first[: attrs["keep_top_k"]] if attrs["keep_top_k"] > -1 else first
    return np.concatenate(classes)[first], np.concatenate(chosen)[first], value[first]


@kernel("matrix_nms")
def matrix_nms(xp: Any, BBoxes: Any, Scores: Any, attrs: Slots, RoisNum: Any) -> tuple[Any, Any]:
    rows, places, counts = [np.empty((0, 6), BBoxes.dtype)], [np.empty(0, np.int64)], []
    for image in _images(BBoxes, (), Scores):
        label, index, value = _rank(image, attrs)
        rows.append(np.concatenate([label[:, None].astype(BBoxes.dtype), value[:, None], image.boxes[index]], 1))
        places.append(image.before + index)
        counts.append(len(label))
    write_wanted((RoisNum, xp.asarray(counts)))
    return xp.asarray(np.concatenate(rows)), xp.asarray(np.concatenate(places).astype(np.int32)[:, None])


def _merged(image: _Image, attrs: Slots) -> _Image:
    """Merge neighbouring boxes of an image; a box merged into another one loses its score."""
    boxes, scores = image.boxes.copy(), image.scores.copy()
    overlap = _overlap(boxes, attrs["normalized"])
    for label, weight in enumerate(scores):
        if label == attrs["background_label"]:
            continue
        last = 0
        for number in range(1, len(boxes)):  # the merged box is compared with the next one, so the order matters
            if overlap(boxes[number], boxes[last]) > attrs["nms_threshold"]:
                total = weight[number] + weight[last]
                boxes[last] = (boxes[number] * weight[number] + boxes[last] * weight[last]) / total
                weight[last], weight[number] = total, -np.inf
            else:
                last = number
    return _Image(boxes, scores, image.before)


@kernel("locality_aware_nms")
def locality_aware_nms(xp: Any, BBoxes: Any, Scores: Any, attrs: Slots) -> LoDArray:
    images = (_merged(image, attrs) for image in _images(BBoxes, (), Scores))
    return _rows_or_none(xp, _detect(images, attrs, BBoxes.shape[2], BBoxes.dtype))


@kernel("nms")
def nms(xp: Any, Boxes: Any, iou_threshold: float) -> Any:
    boxes = to_numpy(Boxes)
    return xp.asarray(np.asarray(suppress(boxes, iou_threshold, lambda one, two: jaccard(np, one, two)), np.int64))
