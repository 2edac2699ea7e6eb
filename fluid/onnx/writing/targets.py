"""Write training targets of detectors: the anchors and regions with an object, and the object's place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import OnnxGraph, OnnxTensor, Size
from .making import as_vector, filled
from .proposals import counts_of, in_order
from .random import drawn_like
from .sequence_rows import ids_of, lengths_of_rows, longest_of, padded_rows, starts_of, taken_rows

_NEAR = 1e-5
"""Overlaps that differ by less count as equal."""


# ------------------------------------------------------------------------------------------------------------ arithmetic
def _part(g: OnnxGraph, boxes: OnnxTensor, start: int, end: int) -> OnnxTensor:
    """Slice the coordinates of boxes."""
    return g.slice(boxes, [boxes.ndim - 1], [start], [end])


def _sizes(g: OnnxGraph, boxes: OnnxTensor) -> OnnxTensor:
    """Widths and heights [..., 2] in pixels; the last pixels belong to the box."""
    extent = g.binary("Sub", _part(g, boxes, 2, 4), _part(g, boxes, 0, 2))
    return g.binary("Add", extent, g.number(1, extent))


def _area(g: OnnxGraph, sides: OnnxTensor) -> OnnxTensor:
    across, down = (g.squeeze(_part(g, sides, place, place + 1), sides.ndim - 1) for place in (0, 1))
    return g.binary("Mul", across, down)


def _overlaps(g: OnnxGraph, one: OnnxTensor, two: OnnxTensor) -> OnnxTensor:
    """Intersection over union of boxes [..., R, 4] and boxes [..., K, 4]: [..., R, K]."""
    one, two = g.unsqueeze(one, one.ndim - 1), g.unsqueeze(two, two.ndim - 2)
    ends = g.binary("Min", _part(g, one, 2, 4), _part(g, two, 2, 4))
    starts = g.binary("Max", _part(g, one, 0, 2), _part(g, two, 0, 2))
    sides = g.binary("Add", g.binary("Sub", ends, starts), g.number(1, ends))
    shared = _area(g, g.binary("Max", sides, g.number(0, sides)))
    union = g.binary("Sub", g.binary("Add", _area(g, _sizes(g, one)), _area(g, _sizes(g, two))), shared)
    is_zero = g.binary("Equal", union, g.number(0, union))
    return g.binary("Div", shared, g.where(is_zero, g.number(1, union), union))


def _encoded(g: OnnxGraph, boxes: OnnxTensor, anchors: OnnxTensor) -> OnnxTensor:
    """Encode boxes by the shift of their centers from anchors, and the logarithms of the ratios of sizes."""

    def center(x: OnnxTensor) -> OnnxTensor:
        size = _sizes(g, x)
        return g.binary("Add", _part(g, x, 0, 2), g.binary("Mul", size, g.number(0.5, size)))

    size = _sizes(g, anchors)
    shift = g.binary("Div", g.binary("Sub", center(boxes), center(anchors)), size)
    return g.concat([shift, g.unary("Log", g.binary("Div", _sizes(g, boxes), size))], boxes.ndim - 1)


# ---------------------------------------------------------------------------------------------------------- rows, choices
def _padded(g: OnnxGraph, x: OnnxTensor, lengths: OnnxTensor) -> tuple[OnnxTensor, OnnxTensor]:
    """Pad rows image by image to [N, K, ...], with K at least 1; also return a mask of the existing rows [N, K]."""
    index = padded_rows(g, lengths, g.binary("Max", longest_of(g, lengths), g.ints(1)))
    margin = filled(g, g.joined_sizes([1, *g.sizes_of(x)[1:]]), 0, Spec((1, *x.shape[1:]), x.dtype))
    exists = g.binary("GreaterOrEqual", index, g.ints(0))
    return taken_rows(g, g.concat([x, margin], 0), index), exists


def _greatest(g: OnnxGraph, overlaps: OnnxTensor, counted: OnnxTensor) -> tuple[OnnxTensor, OnnxTensor]:
    """The greatest counted overlap of each row [N, R], and its place."""
    counted_overlaps = g.where(counted, overlaps, g.number(-1, overlaps))
    best_place = g.sized_node("ArgMax", [counted_overlaps], VarType.INT64, counted_overlaps.sizes[:2], axis=2, keepdims=0)
    most = g.reduce("ReduceMax", counted_overlaps, [2])
    return g.binary("Max", most, g.number(0, most)), best_place


def _number(g: OnnxGraph, flags: OnnxTensor) -> OnnxTensor:
    """Count the flags of each row, [N, 1]."""
    return g.reduce("ReduceSum", g.cast(flags, VarType.INT64), [1], keep=True)


_Draw = Callable[[OnnxTensor, OnnxTensor], OnnxTensor]
"""Draws a number, [N, 1] or [1, 1], of the flags [N, R] of each row; all if there are fewer."""


def _drawing(g: OnnxGraph, use_random: bool) -> _Draw:
    def first(flags: OnnxTensor, count: OnnxTensor) -> OnnxTensor:
        place = g.sized_node("CumSum", [g.cast(flags, VarType.INT64), g.constant(np.int64(1))], VarType.INT64, flags.sizes)
        return g.binary("And", flags, g.binary("LessOrEqual", place, count))

    def drawn(flags: OnnxTensor, count: OnnxTensor) -> OnnxTensor:
        """Give each flag a random number, and draw the smallest numbers."""
        number = drawn_like(g, g.cast(flags, VarType.FP32), "RandomUniformLike", low=0.0, high=1.0)
        number = g.where(flags, number, g.number(2, number))
        size = g.as_size(g.size(flags, 1))
        spec = Spec(flags.shape, VarType.INT64)
        order = g.nodes("TopK", [number, size], [spec.with_dtype(VarType.FP32), spec], axis=1, largest=0)[1]
        rank = g.nodes("TopK", [order, size], [spec, spec], axis=1, largest=0)[1]
        rank.sizes = flags.sizes
        return g.binary("And", flags, g.binary("Less", rank, count))

    return drawn if use_random else first


class _ImageRows:
    """Rows of images [N, R], chosen by several sets of flags: the image, place and set of each row."""

    def __init__(self, g: OnnxGraph, images: Size, parts: Sequence[tuple[OnnxTensor, OnnxTensor]]) -> None:
        """Sort the rows of all parts by image; each part is a pair of images and places."""
        self.g = g
        image, place = (g.concat([part[side] for part in parts], 0) for side in (0, 1))
        sets = [
            g.binary("Add", g.binary("Mul", part[0], g.ints(0)), g.ints(part_number)) for part_number, part in enumerate(parts)
        ]
        part_number = g.concat(sets, 0)
        order = in_order(g, g.binary("Add", g.binary("Mul", image, g.ints(len(parts))), part_number))
        self.image, self.place, self.part_number = (g.gather(column, order) for column in (image, place, part_number))
        self.counts = counts_of(g, self.image, images)
        self.both = g.concat([g.unsqueeze(self.image, 1), g.unsqueeze(self.place, 1)], 1)

    def of(self, x: OnnxTensor) -> OnnxTensor:
        """The chosen rows of x [N, R, ...]."""
        return self.g.sized_node("GatherND", [x, self.both], x.dtype, (-1, *x.sizes[2:]))

    def objects(self, x: OnnxTensor, matches: OnnxTensor) -> OnnxTensor:
        """The objects of the chosen rows: x [N, K, ...] at the numbers `matches` [N, R]."""
        pair = self.g.concat([self.g.unsqueeze(self.image, 1), self.g.unsqueeze(self.of(matches), 1)], 1)
        return self.g.sized_node("GatherND", [x, pair], x.dtype, (-1, *x.sizes[2:]))

    def with_lengths(self, x: OnnxTensor) -> OnnxTensor:
        x.lengths = self.counts
        return x


def _chosen(g: OnnxGraph, flags: OnnxTensor) -> tuple[OnnxTensor, OnnxTensor]:
    """The images and places of flags [N, R]."""
    places = g.sized_node("NonZero", [flags], VarType.INT64, (2, -1))
    image, place = (g.squeeze(g.slice(places, [0], [side], [side + 1]), 0) for side in (0, 1))
    return image, place


# --------------------------------------------------------------------------------------------------------------- anchors
def _anchors_inside(g: OnnxGraph, anchors: OnnxTensor, infos: OnnxTensor, straddle: float) -> OnnxTensor:
    """A mask of the anchors [N, A] that extend beyond the image by at most `straddle`; all if it is negative."""
    if straddle < 0:
        all_true = g.binary("Equal", g.slice(infos, [1], [0], [1]), g.slice(infos, [1], [0], [1]))
        return g.expand(all_true, g.joined_sizes([g.size(infos, 0), g.size(anchors, 0)]), (infos.sizes[0], anchors.sizes[0]))
    start, end = (g.unsqueeze(_part(g, anchors, place, place + 2), 0) for place in (0, 2))
    size = g.unsqueeze(g.gather(infos, g.ints(1, 0), 1), 1)
    after = g.binary("GreaterOrEqual", start, g.number(-straddle, start))
    before = g.binary("Less", end, g.binary("Add", size, g.number(straddle, size)))
    fits = g.cast(g.binary("And", after, before), VarType.INT32)
    return g.cast(g.reduce("ReduceMin", fits, [2]), VarType.BOOL)


def _assigned(
    g: OnnxGraph,
    inputs: dict[str, Any],
    straddle: float,
    bounds: tuple[float, float],
    draw: _Draw,
    most: tuple[Size, Size],
    specs: Any,
) -> dict[str, OnnxTensor]:
    """The outputs of `rpn_target_assign`, with at most `most` anchors in the foreground, and in all."""
    anchors, infos = inputs["Anchor"], inputs["ImInfo"]
    images, lengths = g.size(infos, 0), lengths_of_rows(inputs["GtBoxes"])
    boxes, exists = _padded(g, inputs["GtBoxes"], lengths)
    crowd, _ = _padded(g, as_vector(g, inputs["IsCrowd"]), lengths)
    is_object = g.binary("And", exists, g.binary("Equal", crowd, g.ints(0)))  # [N, K]
    objects = g.binary("Mul", boxes, g.cast(g.unsqueeze(g.slice(infos, [1], [2], [3]), 2), boxes.dtype))
    is_inside = _anchors_inside(g, anchors, infos, straddle)
    overlaps = _overlaps(g, g.unsqueeze(anchors, 0), objects)  # [N, A, K]
    counted = g.binary("And", g.unsqueeze(is_inside, 2), g.unsqueeze(is_object, 1))
    greatest, matches = _greatest(g, overlaps, g.unsqueeze(is_object, 1))
    best = g.reduce("ReduceMax", g.where(counted, overlaps, g.number(-1, overlaps)), [1], keep=True)
    near = g.binary("Less", g.unary("Abs", g.binary("Sub", overlaps, best)), g.number(_NEAR, overlaps))
    near = g.cast(g.reduce("ReduceMax", g.cast(g.binary("And", near, counted), VarType.INT32), [2]), VarType.BOOL)
    large = g.binary("GreaterOrEqual", greatest, g.number(bounds[0], greatest))
    has_objects = g.cast(g.reduce("ReduceMax", g.cast(is_object, VarType.INT32), [1], keep=True), VarType.BOOL)
    hits = draw(g.binary("And", g.binary("And", is_inside, has_objects), g.binary("Or", near, large)), g.as_size(most[0]))
    small = g.binary("And", is_inside, g.binary("Less", greatest, g.number(bounds[1], greatest)))
    misses = draw(small, g.binary("Sub", g.as_size(most[1]), _number(g, hits)))
    both, foreground_only = g.binary("And", hits, misses), g.binary("And", hits, g.unary("Not", misses))
    # Repeat the first foreground anchor once for each foreground anchor that is also background.
    repetitions = g.squeeze(_number(g, both), 1)
    image = ids_of(g, repetitions, g.reduce("ReduceSum", repetitions, [0], keep=True))
    first = g.sized_node("ArgMax", [g.cast(hits, VarType.INT32)], VarType.INT64, hits.sizes[:1], axis=1, keepdims=0)
    located = _ImageRows(g, images, [(image, g.gather(first, image)), _chosen(g, foreground_only)])
    scored = _ImageRows(g, images, [_chosen(g, foreground_only), _chosen(g, misses)])
    count = g.as_size(g.size(anchors, 0))

    def numbers(rows: _ImageRows) -> OnnxTensor:
        return rows.with_lengths(g.binary("Add", g.binary("Mul", rows.image, count), rows.place))

    located_anchors = g.gather(anchors, located.place)
    learned = g.unsqueeze(g.cast(located.part_number, anchors.dtype), 1)
    one = g.binary("Sub", g.ints(1), scored.part_number)
    if inputs.get("GtLabels") is not None:
        labels, _ = _padded(g, as_vector(g, inputs["GtLabels"]), lengths)
        one = g.binary("Mul", one, scored.objects(labels, matches))
    foreground = g.unsqueeze(g.binary("Add", located.counts, g.ints(1)), 1)
    foreground.lengths = filled(g, g.joined_sizes([images]), 1, Spec((infos.shape[0],), VarType.INT64))
    results = {
        "LocationIndex": numbers(located),
        "ScoreIndex": numbers(scored),
        "TargetBBox": located.with_lengths(_encoded(g, located.objects(objects, matches), located_anchors)),
        "TargetLabel": scored.with_lengths(g.unsqueeze(one, 1)),
        "BBoxInsideWeight": located.with_lengths(g.expand(learned, g.dims(located_anchors), (-1, 4))),
        "ForegroundNumber": foreground,
    }
    return _as_asked(g, results, specs)


def _as_asked(g: OnnxGraph, available: dict[str, OnnxTensor], specs: Any) -> dict[str, OnnxTensor]:
    """Cast the requested results to their element types, with their sequences."""
    results = {}
    for slot, value in available.items():
        if specs.get(slot) is not None:
            results[slot] = g.cast(value, specs[slot].dtype)
            results[slot].lengths = value.lengths
    return results


@exports("rpn_target_assign")
def rpn_target_assign(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> dict[str, OnnxTensor]:
    batch = attrs["rpn_batch_size_per_im"]
    bounds = attrs["rpn_positive_overlap"], attrs["rpn_negative_overlap"]
    most = int(attrs["rpn_fg_fraction"] * batch), batch
    return _assigned(g, inputs, attrs["rpn_straddle_thresh"], bounds, _drawing(g, attrs["use_random"]), most, specs)


@exports("retinanet_target_assign")
def retinanet_target_assign(
    g: OnnxGraph, inputs: dict[str, Any], positive_overlap: float, negative_overlap: float, specs: Any
) -> dict[str, OnnxTensor]:
    def everything(flags: OnnxTensor, count: OnnxTensor) -> OnnxTensor:
        return flags

    return _assigned(g, inputs, -1, (positive_overlap, negative_overlap), everything, (0, 0), specs)


# --------------------------------------------------------------------------------------------------------------- regions
def _regions(g: OnnxGraph, f: Any, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
    """Labelled boxes and regions of each image, in the original image's pixels, with a 1 for crowds: [.., 5]."""
    rois, boxes = inputs["RpnRois"], inputs["GtBoxes"]
    lengths = lengths_of_rows(rois)
    image = ids_of(g, lengths, g.size(rois, 0))
    if attrs["is_cascade_rcnn"]:
        overlap = inputs.get("MaxOverlap")
        if overlap is None:
            place = g.binary("Sub", g.arange(g.size(rois, 0)), g.gather(starts_of(g, lengths), image))
            is_proposal = g.binary("GreaterOrEqual", place, g.gather(lengths_of_rows(boxes), image))
        else:
            sides = _sizes(g, rois)
            has_area = g.reduce("ReduceMin", g.cast(g.binary("Greater", sides, g.number(0, sides)), VarType.INT32), [1])
            flat = g.reshape(overlap, [-1], (-1,))
            is_proposal = g.binary("And", g.binary("Less", flat, g.number(1, flat)), g.cast(has_area, VarType.BOOL))
        rois = g.sized_node("Compress", [rois, is_proposal], rois.dtype, (-1, 4), axis=0)
        image = g.sized_node("Compress", [image, is_proposal], VarType.INT64, (-1,), axis=0)
        lengths = counts_of(g, image, g.size(lengths, 0))
    scale = g.gather(g.slice(inputs["ImInfo"], [1], [2], [3]), image)
    rois = g.binary("Div", rois, g.cast(scale, rois.dtype))
    zeros = g.binary("Mul", g.slice(rois, [1], [0], [1]), g.number(0, rois))
    is_crowd = g.differ(as_vector(g, inputs["IsCrowd"]), g.ints(0))
    rows = [g.concat([boxes, g.unsqueeze(g.cast(is_crowd, boxes.dtype), 1)], 1), g.concat([rois, zeros], 1)]
    for part, part_lengths in zip(rows, (lengths_of_rows(boxes), lengths), strict=True):
        part.lengths = part_lengths
    return f.sequence_concat(rows)  # type: ignore[no-any-return]


@exports("generate_proposal_labels")
def generate_proposal_labels(
    g: OnnxGraph, f: Any, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any
) -> dict[str, OnnxTensor]:
    infos, truth = inputs["ImInfo"], lengths_of_rows(inputs["GtBoxes"])
    candidates = _regions(g, f, inputs, attrs)
    rows, exists = _padded(g, candidates, lengths_of_rows(candidates))
    rois, crowd = _part(g, rows, 0, 4), g.squeeze(_part(g, rows, 4, 5), 2)
    objects, is_object = _padded(g, inputs["GtBoxes"], truth)
    most, matches = _greatest(g, _overlaps(g, rois, objects), g.unsqueeze(is_object, 1))
    most = g.where(g.binary("Greater", crowd, g.number(0, crowd)), g.number(-1, most), most)

    def least(bound: float) -> OnnxTensor:
        return g.binary("GreaterOrEqual", most, g.number(bound, most))

    hits = g.binary("And", exists, least(attrs["fg_thresh"]))
    misses = g.binary("And", exists, g.binary("And", least(attrs["bg_thresh_lo"]), g.unary("Not", least(attrs["bg_thresh_hi"]))))
    if not attrs["is_cascade_rcnn"]:
        batch, draw = attrs["batch_size_per_im"], _drawing(g, attrs["use_random"])
        hits = draw(hits, g.ints(int(batch * attrs["fg_fraction"])))
        misses = draw(misses, g.binary("Sub", g.ints(batch), _number(g, hits)))
    chosen = _ImageRows(g, g.size(infos, 0), [_chosen(g, hits), _chosen(g, misses)])
    chosen_rois = chosen.of(rois)
    is_hit = g.binary("Equal", chosen.part_number, g.ints(0))
    classes, _ = _padded(g, as_vector(g, inputs["GtClasses"]), truth)
    label = g.where(is_hit, chosen.objects(classes, matches), g.ints(0))
    column = g.ints(1) if attrs["is_cls_agnostic"] else g.unsqueeze(label, 1)
    in_column = g.binary("Equal", g.constant(np.arange(attrs["class_nums"])[None]), column)
    in_column = g.unsqueeze(g.binary("And", in_column, g.unsqueeze(is_hit, 1)), 2)
    offsets = _encoded(g, chosen.objects(objects, matches), chosen_rois)
    offsets = g.binary("Div", offsets, g.constant(attrs["bbox_reg_weights"], offsets.dtype))
    targets = g.where(in_column, g.unsqueeze(offsets, 1), g.number(0, offsets))
    weights = g.expand(g.cast(in_column, offsets.dtype), g.dims(targets), targets.sizes)
    scale = g.gather(g.slice(infos, [1], [2], [3]), chosen.image)
    width = 4 * attrs["class_nums"]

    def flat(x: OnnxTensor) -> OnnxTensor:
        return chosen.with_lengths(g.reshape(x, [-1, width], (-1, width)))

    results = {
        "Rois": chosen.with_lengths(g.binary("Mul", chosen_rois, g.cast(scale, chosen_rois.dtype))),
        "LabelsInt32": chosen.with_lengths(g.unsqueeze(label, 1)),
        "BboxTargets": flat(targets),
        "BboxInsideWeights": flat(weights),
        "BboxOutsideWeights": flat(weights),
        "MaxOverlapWithGT": chosen.with_lengths(chosen.of(most)),
    }
    return _as_asked(g, results, specs)
