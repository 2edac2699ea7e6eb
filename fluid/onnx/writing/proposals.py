"""Propose regions of images, and distribute them over the levels of a pyramid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fluid.executor.kernels.proposals import LARGEST_FACTOR
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size
from .making import as_vector, filled
from .sequence_rows import ids_of, lengths_of_rows, within
from .shaping import add_rows, positions
from .suppression import suppressed

_LOWEST = -3e38


def _half(g: OnnxGraph, x: OnnxTensor, last: bool) -> OnnxTensor:
    return g.slice(x, [x.ndim - 1], [2 if last else 0], [4 if last else 2])


def in_order(g: OnnxGraph, keys: OnnxTensor) -> OnnxTensor:
    """The stable sort order of numbers."""
    spec = Spec((-1,), VarType.INT64)
    return g.nodes("TopK", [keys, g.dims(keys)], [spec, spec], axis=0, largest=0, sorted=1)[1]


def counts_of(g: OnnxGraph, images: OnnxTensor, count: Size) -> OnnxTensor:
    """Count the regions of each image."""
    zeros = filled(g, g.joined_sizes([count]), 0, Spec((count if isinstance(count, int) else -1,), VarType.INT64))
    return add_rows(g, zeros, images, g.cast(g.binary("Equal", images, images), VarType.INT64))


def _decoded(g: OnnxGraph, anchors: OnnxTensor, deltas: OnnxTensor, edge: int) -> OnnxTensor:
    """Shift anchors relative to their size, and scale them by factors whose logarithms are bounded."""

    def plus(x: OnnxTensor, number: float) -> OnnxTensor:
        return g.binary("Add", x, g.number(number, x))

    size = plus(g.binary("Sub", _half(g, anchors, True), _half(g, anchors, False)), edge)
    half = g.number(0.5, size)
    center = g.binary("Add", _half(g, anchors, False), g.binary("Mul", size, half))
    middle = g.binary("Add", g.binary("Mul", _half(g, deltas, False), size), center)
    factor = g.unary("Exp", g.binary("Min", _half(g, deltas, True), g.number(LARGEST_FACTOR, size)))
    side = g.binary("Mul", g.binary("Mul", factor, size), half)
    return g.concat([g.binary("Sub", middle, side), plus(g.binary("Add", middle, side), -edge)], 2)


def _proposed(g: OnnxGraph, inputs: dict[str, Any], infos: OnnxTensor, attrs: dict[str, Any], edge: int) -> dict[str, OnnxTensor]:
    scores, deltas = inputs["Scores"], inputs["BboxDeltas"]
    if attrs["nms_thresh"] <= 0 or (attrs["eta"] < 1 and attrs["nms_thresh"] > 0.5):
        raise NotExported("a threshold that falls, or none")
    images, anchor_count, high, wide = g.sizes_of(scores)
    places = g.product_of([anchor_count, high, wide])
    flat = g.reshape(g.transpose(scores, [0, 2, 3, 1]), [images, places])
    parts = g.transpose(g.reshape(deltas, [images, anchor_count, 4, high, wide]), [0, 3, 4, 1, 2])
    moves = g.reshape(parts, [images, places, 4])
    anchors, variances = (g.reshape(inputs[name], [-1, 4], (-1, 4)) for name in ("Anchors", "Variances"))
    moves = g.binary("Mul", moves, variances)
    most = g.as_size(places)
    if attrs["pre_nms_topN"] > 0:
        most = g.binary("Min", most, g.ints(attrs["pre_nms_topN"]))
    value, order = g.nodes("TopK", [flat, most], [Spec((-1, -1), dtype) for dtype in (scores.dtype, VarType.INT64)])
    chosen = g.sized_node("GatherND", [moves, g.unsqueeze(order, 2)], moves.dtype, (-1, -1, 4), batch_dims=1)
    boxes = _decoded(g, g.gather(anchors, order), chosen, edge)
    size = g.gather(infos, g.ints(1, 0, 1, 0), 1)
    limit = g.unsqueeze(g.binary("Sub", size, g.number(edge, size)), 1)
    boxes = g.binary("Max", g.binary("Min", boxes, limit), g.number(0, boxes))
    first, last = _half(g, boxes, False), _half(g, boxes, True)
    scale = g.unsqueeze(g.slice(infos, [1], [2], [3]), 1)
    side = g.binary("Add", g.binary("Div", g.binary("Sub", last, first), scale), g.number(edge, boxes))
    large = g.binary("GreaterOrEqual", side, g.number(max(attrs["min_size"], 1), side))
    if edge:
        sides = g.binary("Add", g.binary("Sub", last, first), g.number(edge, first))
        middle = g.binary("Add", first, g.binary("Mul", sides, g.number(0.5, first)))
        is_inside = g.binary("LessOrEqual", middle, g.unsqueeze(g.gather(infos, g.ints(1, 0), 1), 1))
        large = g.binary("And", large, is_inside)
    fits = g.cast(g.reduce("ReduceMin", g.cast(large, VarType.INT32), [2]), VarType.BOOL)
    ranked = g.unsqueeze(g.where(fits, value, g.number(-np.inf, value)), 1)
    how = {"normalized": not edge, "nms_threshold": attrs["nms_thresh"], "score_threshold": _LOWEST}
    limit_of = attrs["post_nms_topN"] if attrs["post_nms_topN"] > 0 else None
    selected = suppressed(g, boxes, ranked, how, limit_of)
    image = g.squeeze(g.slice(selected, [1], [0], [1]), 1)
    where = g.gather(selected, g.ints(0, 2), 1)
    rows = g.sized_node("GatherND", [boxes, where], boxes.dtype, (-1, 4))
    values = g.sized_node("GatherND", [value, where], value.dtype, (-1,))
    # An image without boxes gets a box of zeros.
    counts = counts_of(g, image, images)
    is_empty = g.binary("Equal", counts, g.ints(0))
    empty = g.squeeze(g.sized_node("NonZero", [is_empty], VarType.INT64, (1, -1)), 0)
    number = g.concat([image, empty], 0)
    sorted_places = in_order(g, number)
    missing = g.dims(empty)
    rows = g.concat([rows, filled(g, g.concat([missing, g.ints(4)], 0), 0, Spec((-1, 4), rows.dtype))], 0)
    values = g.concat([values, filled(g, missing, 0, Spec((-1,), values.dtype))], 0)
    counts = g.binary("Max", counts, g.ints(1))
    return {
        "RpnRois": g.gather(rows, sorted_places), "RpnRoiProbs": g.unsqueeze(g.gather(values, sorted_places), 1),
        "RpnRoisNum": counts,
    }  # fmt: skip


def _with_counts(g: OnnxGraph, results: dict[str, OnnxTensor], specs: Any) -> dict[str, OnnxTensor]:
    spec = specs.get("RpnRoisNum")
    return {**results, "RpnRoisNum": g.cast(results["RpnRoisNum"], spec.dtype)} if spec is not None else results


@exports("generate_proposals_v2")
def generate_proposals_v2(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> dict[str, OnnxTensor]:
    shape = inputs["ImShape"]
    ones = g.number(1, shape)
    scale = g.where(g.binary("Equal", g.slice(shape, [1], [0], [1]), ones), ones, ones)
    return _with_counts(g, _proposed(g, inputs, g.concat([shape, scale], 1), attrs, int(attrs["pixel_offset"])), specs)


@exports("generate_proposals")
def generate_proposals(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> dict[str, OnnxTensor]:
    results = _proposed(g, inputs, inputs["ImInfo"], attrs, 1)
    for slot in ("RpnRois", "RpnRoiProbs"):
        results[slot].lengths = results["RpnRoisNum"]
    return _with_counts(g, results, specs)


# --------------------------------------------------------------------------------------------------------------- levels
@exports("distribute_fpn_proposals")
def distribute_fpn_proposals(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> dict[str, Any]:
    rois, counts_input = inputs["FpnRois"], inputs.get("RoisNum")
    lengths = lengths_of_rows(rois) if counts_input is None else as_vector(g, counts_input)
    image = ids_of(g, lengths, g.size(rois, 0))
    side = g.binary("Sub", _half(g, rois, True), _half(g, rois, False))
    is_valid = g.cast(
        g.reduce("ReduceMin", g.cast(g.binary("GreaterOrEqual", side, g.number(0, side)), VarType.INT32), [1]),
        VarType.BOOL,
    )
    side = g.binary("Add", side, g.number(int(attrs["pixel_offset"]), side))
    wide, high = (g.squeeze(g.slice(side, [1], [place], [place + 1]), 1) for place in (0, 1))
    area = g.where(is_valid, g.binary("Mul", wide, high), g.number(0, wide))
    scale = g.binary("Div", g.unary("Sqrt", area), g.number(attrs["refer_scale"], area))
    power = g.binary("Mul", g.unary("Log", g.binary("Add", scale, g.number(1e-6, scale))), g.number(1 / math.log(2), scale))
    level = g.unary("Floor", g.binary("Add", power, g.number(attrs["refer_level"], power)))
    lowest, highest = attrs["min_level"], attrs["max_level"]
    level = g.cast(g.binary("Min", g.binary("Max", level, g.number(lowest, level)), g.number(highest, level)), VarType.INT64)
    restored = in_order(g, in_order(g, level))
    levels, counts = [], []
    for place in range(lowest, highest + 1):
        is_on_level = g.binary("Equal", level, g.ints(place))
        rows = g.sized_node("Compress", [rois, is_on_level], rois.dtype, (-1, 4), axis=0)
        count = counts_of(g, g.sized_node("Compress", [image, is_on_level], VarType.INT64, (-1,), axis=0), g.size(lengths, 0))
        rows.lengths = count
        levels.append(rows)
        counts.append(count)
    results: dict[str, Any] = {
        "MultiFpnRois": levels,
        "RestoreIndex": g.cast(g.unsqueeze(restored, 1), specs["RestoreIndex"].dtype),
    }
    wanted = specs.get("MultiLevelRoIsNum")
    if wanted:
        results["MultiLevelRoIsNum"] = [g.cast(count, spec.dtype) for count, spec in zip(counts, wanted, strict=True)]
    return results


@exports("collect_fpn_proposals")
def collect_fpn_proposals(g: OnnxGraph, inputs: dict[str, Any], post_nms_topN: int, specs: Any) -> dict[str, OnnxTensor]:
    rois, counts_input = inputs["MultiLevelRois"], inputs.get("MultiLevelRoIsNum")
    lengths = [as_vector(g, counts) for counts in counts_input] if counts_input else [lengths_of_rows(rows) for rows in rois]
    image = g.concat([ids_of(g, counts, g.size(rows, 0)) for counts, rows in zip(lengths, rois, strict=True)], 0)
    scores = g.concat([g.reshape(level_scores, [-1], (-1,)) for level_scores in inputs["MultiLevelScores"]], 0)
    most = g.binary("Min", g.dims(scores), g.ints(post_nms_topN))
    order = g.nodes("TopK", [scores, most], [Spec((-1,), dtype) for dtype in (scores.dtype, VarType.INT64)])[1]
    order = g.gather(order, in_order(g, g.gather(image, order)))
    counts = counts_of(g, g.gather(image, order), g.size(lengths[0], 0))
    rows = g.gather(g.concat(rois, 0), order)
    rows.lengths = counts
    spec = specs.get("RoisNum")
    return {"FpnRois": rows, **({"RoisNum": g.cast(counts, spec.dtype)} if spec is not None else {})}


# ----------------------------------------------------------------------------------------------------------- detections
def _candidates(
    g: OnnxGraph, level: tuple[OnnxTensor, OnnxTensor, OnnxTensor], threshold: float, most: int
) -> tuple[OnnxTensor, OnnxTensor, OnnxTensor]:
    """The best boxes [N, M, 4] of one level, their classes [N, M], and scores, minus infinity below the threshold."""
    boxes, scores, anchors = level
    images, places, classes = g.sizes_of(scores)
    count = g.product_of([places, classes])
    flat = g.reshape(scores, [images, count], (scores.sizes[0], -1))
    limit = g.as_size(count) if most < 0 else g.binary("Min", g.as_size(count), g.ints(most))
    value, order = g.nodes("TopK", [flat, limit], [Spec((-1, -1), dtype) for dtype in (scores.dtype, VarType.INT64)])
    place, label = g.binary("Div", order, g.as_size(classes)), g.binary("Mod", order, g.as_size(classes))
    deltas = g.sized_node("GatherND", [boxes, g.unsqueeze(place, 2)], boxes.dtype, (-1, -1, 4), batch_dims=1)
    above = g.binary("Greater", value, g.number(threshold, value))
    return _decoded(g, g.gather(anchors, place), deltas, 1), label, g.where(above, value, g.number(-np.inf, value))


@exports("retinanet_detection_output")
def retinanet_detection_output(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
    if attrs["nms_eta"] < 1 and attrs["nms_threshold"] > 0.5:
        raise NotExported("a threshold that falls")
    levels, infos = list(zip(inputs["BBoxes"], inputs["Scores"], inputs["Anchors"], strict=True)), inputs["ImInfo"]
    thresholds = [attrs["score_threshold"]] * (len(levels) - 1) + [0.0]
    pairs = zip(levels, thresholds, strict=True)
    level_candidates = [_candidates(g, level, threshold, attrs["nms_top_k"]) for level, threshold in pairs]
    boxes, labels, scores = (g.concat([candidates[part] for candidates in level_candidates], 1) for part in range(3))
    scale = g.slice(infos, [1], [2], [3])
    size = g.unary("Round", g.binary("Div", g.gather(infos, g.ints(1, 0, 1, 0), 1), scale))
    limit = g.unsqueeze(g.cast(g.binary("Sub", size, g.number(1, size)), boxes.dtype), 1)
    boxes = g.binary("Div", boxes, g.cast(g.unsqueeze(scale, 1), boxes.dtype))
    boxes = g.binary("Max", g.binary("Min", boxes, limit), g.number(0, boxes))
    classes = g.size(levels[0][1], 2)
    is_of_class = g.binary("Equal", positions(g, classes, 1, 3), g.unsqueeze(labels, 1))
    by_class = g.where(is_of_class, g.unsqueeze(scores, 1), g.number(-np.inf, scores))
    how = {"normalized": False, "nms_threshold": attrs["nms_threshold"], "score_threshold": _LOWEST}
    selected = suppressed(g, boxes, by_class, how)
    where = g.gather(selected, g.ints(0, 2), 1)
    value = g.sized_node("GatherND", [scores, where], scores.dtype, (-1,))
    # Image by image, the best first; ties go to the first class.
    best = g.nodes("TopK", [value, g.dims(value)], [Spec((-1,), dtype) for dtype in (value.dtype, VarType.INT64)])[1]
    image = g.gather(g.squeeze(g.slice(selected, [1], [0], [1]), 1), best)
    order = g.gather(best, in_order(g, image))
    counts = counts_of(g, image, g.size(infos, 0))
    if attrs["keep_top_k"] >= 0:
        image = ids_of(g, counts, g.size(order, 0))
        first = g.binary("Less", within(g, counts, g.size(order, 0), image), g.ints(attrs["keep_top_k"]))
        order = g.sized_node("Compress", [order, first], VarType.INT64, (-1,), axis=0)
        counts = g.binary("Min", counts, g.ints(attrs["keep_top_k"]))
    where, selected = g.gather(where, order), g.gather(selected, order)
    label = g.cast(g.binary("Add", g.slice(selected, [1], [1], [2]), g.ints(1)), boxes.dtype)
    score = g.unsqueeze(g.gather(value, order), 1)
    rows = g.concat([label, score, g.sized_node("GatherND", [boxes, where], boxes.dtype, (-1, 4))], 1)
    rows.lengths = counts
    return rows
