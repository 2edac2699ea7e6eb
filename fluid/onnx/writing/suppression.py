"""Write non-maximum suppression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor
from .making import filled
from .rounds import in_rounds
from .shaping import add_rows, positions


def _column(g: OnnxGraph, x: OnnxTensor, place: int) -> OnnxTensor:
    return g.squeeze(g.slice(x, [x.ndim - 1], [place], [place + 1]), x.ndim - 1)


def _candidates(g: OnnxGraph, scores: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    """Scores [N, C, M], minus infinity for the background and outside the `nms_top_k` best of a class."""
    lowest = g.number(-np.inf, scores)
    most, background = attrs["nms_top_k"], attrs["background_label"]
    if most > -1:
        count = g.binary("Min", g.ints(most), g.as_size(g.size(scores, 2)))
        best = g.nodes(
            "TopK", [scores, count], [Spec((*scores.shape[:2], -1), dtype) for dtype in (scores.dtype, VarType.INT64)]
        )[1]
        best.sizes = (*scores.sizes[:2], -1)
        zeros = g.cast(filled(g, g.dims(scores), 0, Spec(scores.shape, VarType.INT32)), VarType.INT32)
        ones = filled(g, g.dims(best), 1, Spec(best.shape, VarType.INT32))
        chosen = g.node("ScatterElements", [zeros, best, ones], Spec(scores.shape, VarType.INT32), axis=2)
        scores = g.where(g.cast(chosen, VarType.BOOL), scores, lowest)
    if background >= 0:
        label = positions(g, g.size(scores, 1), 1, 3)
        scores = g.where(g.binary("Equal", label, g.ints(background)), lowest, scores)
    return scores


def suppressed(
    g: OnnxGraph, boxes: OnnxTensor, scores: OnnxTensor, attrs: dict[str, Any], limit: int | None = None
) -> OnnxTensor:
    """Image, class and number [D, 3] of each selected box, best first within a class; at most `limit`."""
    boxes, scores = g.cast(boxes, VarType.FP32), g.cast(scores, VarType.FP32)
    if not attrs["normalized"]:  # the pixels at the ends belong to the box
        boxes = g.binary("Add", boxes, g.constant(np.array([0, 0, 1, 1]), VarType.FP32))
    bounds = [g.constant([attrs[name]], VarType.FP32) for name in ("nms_threshold", "score_threshold")]
    most = g.as_size(g.size(boxes, 1)) if limit is None else g.ints(limit)
    return g.node("NonMaxSuppression", [boxes, scores, most, *bounds], Spec((-1, 3), VarType.INT64))


def _best_of_images(g: OnnxGraph, image: OnnxTensor, score: OnnxTensor, most: int, images: int) -> OnnxTensor:
    """The places of detections among the best of their image, in order; ties go to the first."""
    if images == 1:
        count = g.binary("Min", g.ints(most), g.dims(score))
        pair = [Spec((-1,), score.dtype), Spec((-1,), VarType.INT64)]
        first = g.nodes("TopK", [score, count], pair)[1]
        return g.nodes("TopK", [first, g.dims(first)], [pair[1], pair[1]], largest=0)[0]
    place = g.arange(g.size(score, 0))
    box, rival = (tuple(g.unsqueeze(tensor, axis) for tensor in (image, score, place)) for axis in (1, 0))
    better = g.binary("Greater", rival[1], box[1])
    first = g.binary("And", g.binary("Equal", rival[1], box[1]), g.binary("Less", rival[2], box[2]))
    before = g.binary("And", g.binary("Equal", box[0], rival[0]), g.binary("Or", better, first))
    rank = g.reduce("ReduceSum", g.cast(before, VarType.INT32), [1])
    is_best = g.binary("Less", rank, g.number(most, rank))
    return g.sized_node("Compress", [place, is_best], VarType.INT64, (-1,), axis=0)


@dataclass
class _Detections:
    """Rows of class, score and box; the numbers of the boxes; and the count of each image."""

    rows: OnnxTensor
    index: OnnxTensor
    counts: OnnxTensor


def _row(g: OnnxGraph, label: OnnxTensor, value: OnnxTensor, boxes: OnnxTensor) -> OnnxTensor:
    return g.concat([g.unsqueeze(g.cast(label, boxes.dtype), 1), g.unsqueeze(value, 1), boxes], 1)


def _detections(g: OnnxGraph, boxes: OnnxTensor, chosen: OnnxTensor, value: OnnxTensor) -> _Detections:
    """Detections of the selected (image, class, box) triples, with their scores."""
    image, label, box = (_column(g, chosen, place) for place in range(3))
    where = g.concat([g.unsqueeze(image, 1), g.unsqueeze(box, 1)], 1)
    rows = _row(g, label, value, g.sized_node("GatherND", [boxes, where], boxes.dtype, (-1, 4)))
    before = g.binary("Mul", image, g.as_size(g.size(boxes, 1)))
    index = g.unsqueeze(g.cast(g.binary("Add", before, box), VarType.INT32), 1)
    images = g.size(boxes, 0)
    zeros = filled(g, g.joined_sizes([images]), 0, Spec((images if isinstance(images, int) else -1,), VarType.INT64))
    ones = g.cast(g.binary("Equal", image, image), VarType.INT64)
    return _Detections(rows, index, add_rows(g, zeros, image, ones))


def _of_each_class(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> _Detections:
    """Detections of one image with separate boxes for each class [R, C, 4], in the order of classes and boxes."""
    boxes, scores, counts_input = inputs["BBoxes"], inputs["Scores"], inputs.get("RoisNum")
    if counts_input is None or counts_input.shape != (1,):
        raise NotExported("boxes of each class, of several images")
    by_class = g.unsqueeze(g.transpose(scores, [1, 0]), 1)  # [C, 1, R]
    ranked = _candidates(g, by_class, {**attrs, "background_label": -1})
    if attrs["background_label"] >= 0:
        is_background = g.binary("Equal", positions(g, g.size(ranked, 0), 0, 3), g.ints(attrs["background_label"]))
        ranked = g.where(is_background, g.number(-np.inf, ranked), ranked)
    chosen = suppressed(g, g.transpose(boxes, [1, 0, 2]), ranked, attrs)
    value = g.sized_node("GatherND", [by_class, chosen], scores.dtype, (-1,))
    if attrs["keep_top_k"] > -1:
        best = _best_of_images(g, _column(g, chosen, 0), value, attrs["keep_top_k"], 1)
        chosen, value = g.gather(chosen, best), g.gather(value, best)
    place = g.binary("Add", g.binary("Mul", _column(g, chosen, 0), g.as_size(g.size(boxes, 0))), _column(g, chosen, 2))
    spec = Spec((-1,), VarType.INT64)
    order = g.nodes("TopK", [place, g.dims(place)], [spec, spec], axis=0, largest=0, sorted=1)[1]
    chosen, value = g.gather(chosen, order), g.gather(value, order)
    label, box = _column(g, chosen, 0), _column(g, chosen, 2)
    where = g.concat([g.unsqueeze(box, 1), g.unsqueeze(label, 1)], 1)
    rows = _row(g, label, value, g.sized_node("GatherND", [boxes, where], boxes.dtype, (-1, 4)))
    index = g.binary("Add", g.binary("Mul", box, g.as_size(g.size(boxes, 1))), label)
    return _Detections(rows, g.unsqueeze(g.cast(index, VarType.INT32), 1), g.slice(g.dims(rows), [0], [0], [1]))


def _detected(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> _Detections:
    boxes, scores = inputs["BBoxes"], inputs["Scores"]
    if boxes.shape[-1] != 4:
        raise NotExported("polygons")
    if attrs["nms_eta"] < 1 and attrs["nms_threshold"] > 0.5:
        raise NotExported("a threshold that falls")
    if scores.ndim != 3:
        return _of_each_class(g, inputs, attrs)
    chosen = suppressed(g, boxes, _candidates(g, scores, attrs), attrs)
    value = g.sized_node("GatherND", [scores, chosen], scores.dtype, (-1,))
    if attrs["keep_top_k"] > -1:
        images = boxes.shape[0]
        best = _best_of_images(g, _column(g, chosen, 0), value, attrs["keep_top_k"], images)
        chosen, value = g.gather(chosen, best), g.gather(value, best)
    return _detections(g, boxes, chosen, value)


def _rows_or_none(g: OnnxGraph, detections: _Detections) -> OnnxTensor:
    """The detections; a single row of -1 if there are none."""
    is_empty = g.binary("Equal", g.slice(g.dims(detections.rows), [0], [0], [1]), g.ints(0))
    no_row = g.constant([[-1]], detections.rows.dtype)
    rows, counts = g.choose(is_empty, lambda: [no_row, g.ints(1)], lambda: [detections.rows, detections.counts])
    rows.lengths = counts
    return rows


@exports("multiclass_nms")
def multiclass_nms(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
    return _rows_or_none(g, _detected(g, inputs, attrs))


@exports("multiclass_nms2")
def multiclass_nms2(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    detections = _detected(g, inputs, attrs)
    detections.rows.lengths = detections.index.lengths = detections.counts
    return {"Out": detections.rows, "Index": detections.index}


@exports("multiclass_nms3")
def multiclass_nms3(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> dict[str, OnnxTensor]:
    detections = _detected(g, inputs, attrs)
    counts = g.cast(detections.counts, VarType.INT32)
    return {
        "Out": detections.rows,
        "Index": detections.index,
        **({"NmsRoisNum": counts} if specs.get("NmsRoisNum") is not None else {}),
    }


@exports("nms")
def nms(g: OnnxGraph, Boxes: OnnxTensor, iou_threshold: float) -> OnnxTensor:
    """Order the selected boxes by their scores."""
    boxes = g.unsqueeze(Boxes, 0)
    scores = g.unsqueeze(g.unary("Neg", g.cast(g.arange(g.size(Boxes, 0)), VarType.FP32)), 0, 1)
    attrs = {"normalized": True, "nms_threshold": iou_threshold, "score_threshold": -np.inf}
    return _column(g, suppressed(g, boxes, scores, attrs), 2)


# ------------------------------------------------------------------------------------------------------------ merging
def _overlap(g: OnnxGraph, one: OnnxTensor, two: OnnxTensor, edge: int) -> OnnxTensor:
    """Intersection over union of boxes [..., 4]; 0 where they do not touch."""
    zero, pixel = g.number(0, one), g.number(edge, one)
    across, down = (
        g.binary("Sub", g.binary("Min", _column(g, one, end), _column(g, two, end)),
                 g.binary("Max", _column(g, one, start), _column(g, two, start)))
        for start, end in ((0, 2), (1, 3))
    )  # fmt: skip
    shared = g.binary("Mul", g.binary("Add", across, pixel), g.binary("Add", down, pixel))

    def area(box: OnnxTensor) -> OnnxTensor:
        wide, high = (g.binary("Sub", _column(g, box, end), _column(g, box, start)) for start, end in ((0, 2), (1, 3)))
        full_area = g.binary("Mul", g.binary("Add", wide, pixel), g.binary("Add", high, pixel))
        is_valid = g.binary("GreaterOrEqual", g.binary("Min", wide, high), zero)
        return g.where(is_valid, full_area, zero)

    union = g.binary("Sub", g.binary("Add", area(one), area(two)), shared)
    is_disjoint = g.binary("Less", g.binary("Min", across, down), zero)
    return g.where(is_disjoint, zero, g.binary("Div", shared, union))


@exports("locality_aware_nms")
def locality_aware_nms(g: OnnxGraph, BBoxes: OnnxTensor, Scores: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    """Class by class, each round merges a box of each image into the previous one, or starts a new box to merge into."""
    if BBoxes.shape[-1] != 4:
        raise NotExported("polygons")
    if Scores.shape[1] < 0:
        raise NotExported("numbers of classes that are known only at run time")
    images, count = g.size(BBoxes, 0), g.size(BBoxes, 1)
    rounds = g.binary("Max", g.binary("Sub", g.as_size(count), g.ints(1)), g.ints(0))
    place = positions(g, count, 1, 2)
    boxes, scores = BBoxes, []

    def body(number: OnnxTensor, states: Sequence[OnnxTensor]) -> list[OnnxTensor]:
        last, boxes, weights = states
        here = g.binary("Add", g.reshape(number, [1, 1]), g.ints(1))
        at_last, at_here = (g.binary("Equal", place, step) for step in (last, here))

        def picked(x: OnnxTensor, at: OnnxTensor) -> OnnxTensor:
            flags = g.unsqueeze(at, 2) if x.ndim == 3 else at
            return g.reduce("ReduceSum", g.where(flags, x, g.number(0, x)), [1], keep=True)

        box_here, before = picked(boxes, at_here), picked(boxes, at_last)
        overlap = _overlap(g, box_here, before, int(not attrs["normalized"]))
        merges = g.binary("Greater", overlap, g.number(attrs["nms_threshold"], overlap))
        weight, weight_before = picked(weights, at_here), picked(weights, at_last)
        total = g.binary("Add", weight, weight_before)
        joined = g.binary(
            "Add", g.binary("Mul", box_here, g.unsqueeze(weight, 2)), g.binary("Mul", before, g.unsqueeze(weight_before, 2))
        )
        joined = g.binary("Div", joined, g.unsqueeze(total, 2))
        into, gone = g.binary("And", merges, at_last), g.binary("And", merges, at_here)
        boxes = g.where(g.unsqueeze(into, 2), joined, boxes)
        weights = g.where(gone, g.number(-np.inf, weights), g.where(into, total, weights))
        return [g.where(merges, last, here), boxes, weights]

    for label in range(Scores.shape[1]):
        weights = g.squeeze(g.slice(Scores, [1], [label], [label + 1]), 1)
        if label != attrs["background_label"]:
            first = filled(g, g.joined_sizes([images, 1]), 0, Spec((BBoxes.shape[0], 1), VarType.INT64))
            _, boxes, weights = in_rounds(g, rounds, [first, boxes, weights], body)
        scores.append(g.unsqueeze(weights, 1))
    return _rows_or_none(g, _detected(g, {"BBoxes": boxes, "Scores": g.concat(scores, 1)}, attrs))


# ------------------------------------------------------------------------------------------------------------ matrix nms
@exports("matrix_nms")
def matrix_nms(g: OnnxGraph, BBoxes: OnnxTensor, Scores: OnnxTensor, attrs: dict[str, Any], specs: Any) -> dict[str, OnnxTensor]:
    if BBoxes.shape[-1] != 4:
        raise NotExported("polygons")
    if Scores.shape[1] < 0:
        raise NotExported("numbers of classes that are known only at run time")
    most, number = attrs["nms_top_k"], g.as_size(g.size(BBoxes, 1))
    count = number if most < 0 else g.binary("Min", g.ints(most), number)
    pair = [Spec((*Scores.shape[:2], -1), dtype) for dtype in (Scores.dtype, VarType.INT64)]
    values, places = g.nodes("TopK", [Scores, count], pair)
    images, classes = g.size(BBoxes, 0), Scores.shape[1]
    flat = g.reshape(
        places, [images, -1] if isinstance(images, int) else [images, g.binary("Mul", count, g.ints(classes))], (-1, -1)
    )
    boxes = g.sized_node("GatherND", [BBoxes, g.unsqueeze(flat, 2)], BBoxes.dtype, (-1, -1, 4), batch_dims=1)
    sizes = [images, classes, count, 4]
    boxes = g.reshape(boxes, sizes, (-1, classes, -1, 4))
    zero, one = g.number(0, values), g.number(1, values)
    counts = g.binary("Greater", values, g.number(attrs["score_threshold"], values))
    better = g.binary("Less", positions(g, count, 0, 2), positions(g, count, 1, 2))
    counted = g.binary("And", better, g.unsqueeze(counts, 3))  # pairs of a better box and a box
    edge = int(not attrs["normalized"])
    overlaps = g.where(counted, _overlap(g, g.unsqueeze(boxes, 3), g.unsqueeze(boxes, 2), edge), zero)
    most_of = g.unsqueeze(g.reduce("ReduceMax", g.concat([overlaps, g.unsqueeze(g.where(counts, zero, zero), 2)], 2), [2]), 3)
    if attrs["use_gaussian"]:
        squares = g.binary("Sub", g.binary("Mul", most_of, most_of), g.binary("Mul", overlaps, overlaps))
        decay = g.unary("Exp", g.binary("Mul", squares, g.number(attrs["gaussian_sigma"], squares)))
    else:
        decay = g.binary("Div", g.binary("Sub", one, overlaps), g.binary("Sub", one, most_of))
    decay = g.reduce("ReduceMin", g.where(counted, decay, one), [2])
    lowered = g.binary("Mul", decay, values)
    is_kept = g.binary("And", counts, g.binary("Greater", lowered, g.number(attrs["post_threshold"], lowered)))
    if attrs["background_label"] >= 0:
        label = g.constant(np.arange(classes).reshape(1, -1, 1) != attrs["background_label"])
        is_kept = g.binary("And", is_kept, label)
    # Sort by score, image by image: suppressed boxes come last, and are dropped.
    size = g.binary("Mul", count, g.ints(classes))
    lowest = g.number(-np.inf, lowered)
    shape = [images, size]
    ranked = g.reshape(g.where(is_kept, lowered, lowest), shape, (-1, -1))
    limit = size if attrs["keep_top_k"] < 0 else g.binary("Min", size, g.ints(attrs["keep_top_k"]))
    score, order = g.nodes("TopK", [ranked, limit], [Spec((-1, -1), dtype) for dtype in (values.dtype, VarType.INT64)])
    image = g.expand(positions(g, images, 0, 2), g.dims(order), (-1, -1))
    label = g.binary("Div", order, count)
    box = g.sized_node("GatherElements", [g.reshape(places, shape, (-1, -1)), order], VarType.INT64, (-1, -1), axis=1)
    is_detection = g.reshape(g.binary("Greater", score, lowest), [-1], (-1,))
    columns = [g.reshape(column, [-1, 1], (-1, 1)) for column in (image, label, box)]
    chosen = g.sized_node("Compress", [g.concat(columns, 1), is_detection], VarType.INT64, (-1, 3), axis=0)
    value = g.sized_node("Compress", [g.reshape(score, [-1], (-1,)), is_detection], score.dtype, (-1,), axis=0)
    detections = _detections(g, BBoxes, chosen, value)
    counts = g.cast(detections.counts, VarType.INT32)
    return {
        "Out": detections.rows,
        "Index": detections.index,
        **({"RoisNum": counts} if specs.get("RoisNum") is not None else {}),
    }
