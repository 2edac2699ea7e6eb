"""Write ops of YOLO: the predicted boxes, and the loss on labelled boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.executor.kernels.yolo import SMALLEST
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .activations import softplus
from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor
from .making import filled
from .shaping import positions


class _Predictions:
    """The numbers X [N, A * n, H, W] of A anchors, and the boxes that they encode, relative to the image size."""

    def __init__(self, g: OnnxGraph, X: OnnxTensor, anchors: list[int], attrs: dict[str, Any]) -> None:
        self.g, self.attrs = g, attrs
        self.high, self.wide = X.shape[2:]
        if min(X.shape[1:]) < 0:
            raise NotExported("images whose size is known only at run time")
        self.kind, self.anchors, self.count = X.dtype.numpy, anchors, len(anchors) // 2
        self.numbers = X.shape[1] // self.count
        self.rows = self.count * self.high * self.wide
        self.batch, self.images = g.size(X, 0), X.sizes[0]
        sizes = (self.count, self.numbers, self.high, self.wide)
        self.values = g.reshape(X, [self.batch, *sizes], (self.images, *sizes))

    def part(self, start: int, end: int) -> OnnxTensor:
        """Some numbers of each place, last: [N, A, H, W, numbers]."""
        return self.g.transpose(self.g.slice(self.values, [2], [start], [end]), [0, 1, 3, 4, 2])

    def by_row(self, x: OnnxTensor) -> OnnxTensor:
        """Reshape [N, A, H, W, numbers] to [N, A * H * W, numbers]."""
        return self.g.reshape(x, [self.batch, self.rows, x.shape[-1]], (self.images, self.rows, x.shape[-1]))

    def as_given(self, x: OnnxTensor) -> OnnxTensor:
        """Reshape [N, A * H * W, numbers] to the layout of X."""
        places, sizes = (self.high, self.wide), (self.count * self.numbers, self.high, self.wide)
        x = self.g.reshape(x, [self.batch, self.count, *places, self.numbers], (self.images, self.count, *places, self.numbers))
        return self.g.reshape(self.g.transpose(x, [0, 1, 4, 2, 3]), [self.batch, *sizes], (self.images, *sizes))

    def corners(self) -> tuple[Any, Any]:
        """The corners [N, A, H, W, 2] of the boxes."""
        g, scale = self.g, self.attrs["scale_x_y"]
        extents = np.array([self.wide, self.high], self.kind)
        places = np.stack(np.meshgrid(np.arange(self.wide), np.arange(self.high)), -1).astype(self.kind)
        middle: Any = g.unary("Sigmoid", self.part(0, 2)) * scale
        middle = (middle + g.constant(places - self.kind.type(0.5 * (scale - 1)))) / g.constant(extents)
        sides = np.array(self.anchors, self.kind).reshape(-1, 1, 1, 2) / (
            self.kind.type(self.attrs["downsample_ratio"]) * extents
        )
        half: Any = g.binary("Mul", g.unary("Exp", self.part(2, 4)), g.constant(sides)) * 0.5
        return middle - half, middle + half


@exports("yolo_box")
def yolo_box(g: OnnxGraph, X: OnnxTensor, ImgSize: OnnxTensor, attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    count, classes = len(attrs["anchors"]) // 2, attrs["class_num"]
    aware = g.slice(X, [1], [0], [count]) if attrs["iou_aware"] else None
    predictions = _Predictions(g, g.slice(X, [1], [count], [2**31 - 1]) if attrs["iou_aware"] else X, attrs["anchors"], attrs)
    confidence = g.unary("Sigmoid", predictions.part(4, 5))
    if aware is not None:
        share = attrs["iou_aware_factor"]
        overlap = g.unsqueeze(g.unary("Sigmoid", aware), 4)
        confidence = g.binary("Pow", confidence, g.number(1 - share, confidence))
        confidence = g.binary("Mul", confidence, g.binary("Pow", overlap, g.number(share, overlap)))
    is_confident = g.binary("GreaterOrEqual", confidence, g.number(attrs["conf_thresh"], confidence))
    scores = g.binary(
        "Mul", g.unary("Sigmoid", predictions.part(5, 5 + classes)), g.where(is_confident, confidence, g.number(0, confidence))
    )
    image = g.unsqueeze(g.cast(g.gather(ImgSize, g.ints(1, 0), 1), X.dtype), 1, 2, 3)
    corners = [g.binary("Mul", corner, image) for corner in predictions.corners()]
    if attrs["clip_bbox"]:
        corners[0] = g.binary("Max", corners[0], g.number(0, X))
        corners[1] = g.binary("Min", corners[1], g.binary("Sub", image, g.number(1, X)))
    boxes = g.where(is_confident, g.concat(corners, 4), g.number(0, X))
    return {"Boxes": predictions.by_row(boxes), "Scores": predictions.by_row(scores)}


# ------------------------------------------------------------------------------------------------------------------ loss
class _Labelled:
    """Labelled boxes [N, B, 4], and the predictions of their anchors, `matches` [N, B], -1 for none."""

    def __init__(
        self, g: OnnxGraph, predictions: _Predictions, inputs: dict[str, Any], matches: OnnxTensor | None, attrs: dict[str, Any]
    ) -> None:
        self.g, self.predictions, self.attrs = g, predictions, attrs
        self.box = inputs["GTBox"]
        self.middle, self.size = (g.slice(self.box, [2], [start], [start + 2]) for start in (0, 2))
        self.label = g.unsqueeze(inputs["GTLabel"], 2)
        large = g.binary("Greater", self.size, g.number(SMALLEST, self.size))
        self.is_box = g.cast(g.reduce("ReduceMin", g.cast(large, VarType.INT32), [2]), VarType.BOOL)
        self.matches = self._best() if matches is None else g.cast(matches, VarType.INT64)
        self.is_matched = g.binary("GreaterOrEqual", self.matches, g.ints(0))
        self.match = g.binary("Max", self.matches, g.ints(0))
        one = g.where(self.is_matched, g.number(1, self.box), g.number(0, self.box))
        score_input = inputs.get("GTScore")
        self.score = one if score_input is None else g.where(self.is_matched, score_input, g.number(0, score_input))
        self._place()

    def _best(self) -> OnnxTensor:
        """For each box, the place in `anchor_mask` of the most similar anchor."""
        g, attrs, kind = self.g, self.attrs, self.predictions.kind
        side = attrs["downsample_ratio"] * self.predictions.high
        sizes = np.array(attrs["anchors"], kind).reshape(-1, 2) / kind.type(side)
        box_size = g.unsqueeze(self.size, 2)

        def area(x: OnnxTensor) -> Any:
            across, down = (g.squeeze(g.slice(x, [3], [place], [place + 1]), 3) for place in (0, 1))
            return g.binary("Mul", across, down)

        shared = area(g.binary("Min", box_size, g.constant(sizes)))
        union = g.binary("Sub", area(box_size) + g.constant(sizes.prod(1)), shared)
        alike = g.binary("Div", shared, g.binary("Max", union, g.number(1e-20, union)))
        best = g.sized_node("ArgMax", [alike], VarType.INT64, alike.sizes[:2], axis=2, keepdims=0)
        places = [attrs["anchor_mask"].index(anchor) if anchor in attrs["anchor_mask"] else -1 for anchor in range(len(sizes))]
        return g.where(self.is_box, g.gather(g.constant(np.array(places)), best), g.ints(-1))

    def _place(self) -> None:
        """Set each box's matched prediction, and its center's place in the cell."""
        g, extent = self.g, self.predictions.high
        at = g.binary("Mul", self.middle, g.number(extent, self.middle))
        cell = g.cast(at, VarType.INT64)
        cell = g.binary("Max", g.binary("Min", cell, g.ints(extent - 1)), g.ints(0))
        self.within = g.binary("Sub", at, g.cast(cell, at.dtype))
        column, row = (g.squeeze(g.slice(cell, [2], [place], [place + 1]), 2) for place in (0, 1))
        across = g.binary("Add", g.binary("Mul", self.match, g.ints(extent)), row)
        place = g.binary("Add", g.binary("Mul", across, g.ints(self.predictions.wide)), column)
        self.place = g.where(self.is_matched, place, g.ints(0))
        all_predictions = self.predictions.by_row(self.predictions.part(0, self.predictions.numbers))
        index = g.unsqueeze(self.place, 2)
        self.x = g.sized_node(
            "GatherND",
            [all_predictions, index],
            all_predictions.dtype,
            (self.predictions.images, self.box.sizes[1], self.predictions.numbers),
            batch_dims=1,
        )

    def hits(self) -> OnnxTensor:
        """A mask of the predictions [N, A * H * W, 1] matched by boxes [N, 1, B]."""
        g = self.g
        same = g.binary("Equal", positions(g, self.predictions.rows, 1, 3), g.unsqueeze(self.place, 1))
        return g.binary("And", same, g.unsqueeze(self.is_matched, 1))

    def terms(self) -> tuple[OnnxTensor, OnnxTensor, OnnxTensor, OnnxTensor]:
        """The weights of the cross entropies of x and y; the errors of width and height; the weights of classes; the class
        targets.
        """
        g, attrs, kind, classes = self.g, self.attrs, self.predictions.kind, self.predictions.numbers - 5
        anchors = np.array(attrs["anchors"], kind).reshape(-1, 2)[attrs["anchor_mask"]]
        side = g.number(attrs["downsample_ratio"] * self.predictions.high, self.size)
        sizes = g.gather(g.constant(anchors), self.match)
        wanted = g.binary("Div", g.where(g.unsqueeze(self.is_matched, 2), g.binary("Mul", self.size, side), sizes), sizes)
        differences = g.binary("Sub", g.slice(self.x, [2], [2], [4]), g.unary("Log", wanted))
        width, height = (g.slice(self.size, [2], [place], [place + 1]) for place in (0, 1))
        score = g.unsqueeze(self.score, 2)
        location = g.binary("Mul", g.binary("Sub", g.number(2, width), g.binary("Mul", width, height)), score)
        smooth = min(1 / classes, 1 / 40) if attrs["use_label_smooth"] else 0
        is_class = g.binary("Equal", g.cast(self.label, VarType.INT64), g.constant(np.arange(classes).reshape(1, 1, -1)))
        labels = g.where(is_class, g.number(1 - smooth, self.box), g.number(smooth, self.box))
        return location, differences, score, labels


def _confidence(g: OnnxGraph, objectness: OnnxTensor) -> tuple[OnnxTensor, OnnxTensor]:
    """The weights of the cross entropies of confidences, and the targets times the weights."""
    target = g.binary("Max", objectness, g.number(0, objectness))
    is_free = g.binary("Equal", objectness, g.number(0, objectness))
    return g.where(is_free, g.number(1, target), target), target


def _objectness(g: OnnxGraph, predictions: _Predictions, labelled: _Labelled) -> OnnxTensor:
    """The score of the labelled box at a place [N, A * H * W], the last of several.

    It is -1 where a prediction overlaps a box enough to be ignored; 0 elsewhere.
    """
    first, last = (g.unsqueeze(predictions.by_row(corner), 2) for corner in predictions.corners())
    half = labelled.size * 0.5
    starts, ends = (g.unsqueeze(g.binary(op, labelled.middle, half), 1) for op in ("Sub", "Add"))

    def area(sides: OnnxTensor) -> OnnxTensor:
        across, down = (g.squeeze(g.slice(sides, [3], [place], [place + 1]), 3) for place in (0, 1))
        return g.binary("Mul", across, down)

    sides: Any = g.binary("Sub", g.binary("Min", last, ends), g.binary("Max", first, starts))
    shared = area(g.binary("Max", sides, g.number(0, sides)))
    union = g.binary("Sub", g.binary("Add", area(g.binary("Sub", last, first)), area(g.binary("Sub", ends, starts))), shared)
    is_zero = g.binary("Equal", union, g.number(0, union))
    overlap = g.binary("Div", shared, g.where(is_zero, g.number(1, union), union))
    counted = g.where(g.unsqueeze(labelled.is_box, 1), overlap, g.number(0, overlap))
    is_overlapping = g.binary("Greater", counted, g.number(labelled.attrs["ignore_thresh"], counted))
    ignored = g.reduce("ReduceSum", g.cast(is_overlapping, VarType.INT32), [2])
    ignored = g.binary("Greater", ignored, g.number(0, ignored))
    number = g.binary("Add", positions(g, g.size(labelled.box, 1), 2, 3), g.ints(1))
    initial = filled(
        g, g.joined_sizes([predictions.batch, predictions.rows, 1]), 0, Spec((-1, predictions.rows, 1), VarType.INT64)
    )
    hits = g.where(labelled.hits(), number, g.ints(0))
    last_hit = g.reduce("ReduceMax", g.concat([initial, hits], 2), [2])
    zero = filled(g, g.joined_sizes([predictions.batch, 1]), 0, Spec((-1, 1), labelled.score.dtype))
    scores = g.concat([zero, labelled.score], 1)
    score = g.sized_node("GatherElements", [scores, last_hit], scores.dtype, last_hit.sizes, axis=1)
    elsewhere = g.where(ignored, g.number(-1, score), g.number(0, score))
    return g.where(g.binary("Greater", last_hit, g.ints(0)), score, elsewhere)


@exports("yolov3_loss")
def yolov3_loss(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> dict[str, OnnxTensor]:
    anchors = [number for anchor in attrs["anchor_mask"] for number in attrs["anchors"][2 * anchor : 2 * anchor + 2]]
    predictions = _Predictions(g, X, anchors, attrs)
    labelled = _Labelled(g, predictions, inputs, None, attrs)
    objectness = _objectness(g, predictions, labelled)

    def entropy(x: OnnxTensor, weight: OnnxTensor, target: OnnxTensor) -> Any:
        """The cross entropy of logits x, times a weight; the target includes the weight."""
        return g.binary("Sub", g.binary("Mul", weight, softplus(g, x)), g.binary("Mul", target, x))

    location, differences, score, labels = labelled.terms()
    location_loss = entropy(g.slice(labelled.x, [2], [0], [2]), location, g.binary("Mul", location, labelled.within))
    size_loss = g.binary("Mul", g.unary("Abs", differences), location)
    class_loss = entropy(g.slice(labelled.x, [2], [5], [2**31 - 1]), score, g.binary("Mul", score, labels))
    confidence_loss = entropy(g.squeeze(predictions.by_row(predictions.part(4, 5)), 2), *_confidence(g, objectness))
    total: Any = g.reduce("ReduceSum", confidence_loss, [1])
    for term in (location_loss, size_loss, class_loss):
        total = g.binary("Add", total, g.reduce("ReduceSum", term, [1, 2]))
    sizes = (predictions.count, predictions.high, predictions.wide)
    return {
        "Loss": total,
        "ObjectnessMask": g.reshape(objectness, [predictions.batch, *sizes], (predictions.images, *sizes)),
        "GTMatchMask": g.cast(labelled.matches, specs["GTMatchMask"].dtype),
    }


@exports("yolo_terms")
def yolo_terms(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    anchors = [number for anchor in attrs["anchor_mask"] for number in attrs["anchors"][2 * anchor : 2 * anchor + 2]]
    predictions = _Predictions(g, X, anchors, attrs)
    labelled = _Labelled(g, predictions, inputs, inputs["GTMatchMask"], attrs)
    location, differences, score, labels = labelled.terms()
    zero = g.binary("Mul", differences, g.number(0, differences))
    above = g.binary("Greater", differences, zero)
    slopes = g.where(above, g.unary("Neg", location), location)
    hits = g.cast(labelled.hits(), X.dtype)
    objectness = g.reshape(
        inputs["ObjectnessMask"], [predictions.batch, predictions.rows, 1], (predictions.images, predictions.rows, 1)
    )
    weight_of, target_of = _confidence(g, objectness)

    def at_predictions(moved: OnnxTensor, sized: OnnxTensor, named: OnnxTensor, confidence: OnnxTensor) -> OnnxTensor:
        before, after = (g.matmul(hits, terms) for terms in (g.concat([moved, sized], 2), named))
        return predictions.as_given(g.concat([before, confidence, after], 2))

    return {
        "Weight": at_predictions(g.concat([location, location], 2), zero, g.expand_as(score, labels), weight_of),
        "Target": at_predictions(g.binary("Mul", location, labelled.within), slopes, g.binary("Mul", score, labels), target_of),
    }
