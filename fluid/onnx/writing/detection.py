"""Write ops of object detection."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor
from .shaping import positions

__all__: list[str] = []


def _sides(g: OnnxGraph, boxes: OnnxTensor) -> list[OnnxTensor]:
    """Left, top, right and bottom, each with a last dimension of 1."""
    return [g.slice(boxes, [boxes.ndim - 1], [place], [place + 1]) for place in range(4)]


@exports("iou_similarity")
def iou_similarity(g: OnnxGraph, f: Any, X: OnnxTensor, Y: OnnxTensor, box_normalized: bool) -> Any:
    edge = 0.0 if box_normalized else 1.0
    x = [g.squeeze(side, -1) for side in _sides(g, X)]
    y = [g.squeeze(side, -1) for side in _sides(g, Y)]
    x = [g.unsqueeze(side, x[0].ndim) for side in x]

    def area(box: list[Any]) -> Any:
        return (box[2] - box[0] + edge) * (box[3] - box[1] + edge)

    wide = f.relu(g.binary("Min", x[2], y[2]) - g.binary("Max", x[0], y[0]) + edge)
    high = f.relu(g.binary("Min", x[3], y[3]) - g.binary("Max", x[1], y[1]) + edge)
    common = wide * high
    union = area(x) + area(y) - common
    is_positive = g.binary("Greater", union, g.number(0, union), VarType.BOOL)
    return g.where(is_positive, common / g.where(is_positive, union, g.number(1, union)), g.number(0, union))


def _halves(g: OnnxGraph, boxes: OnnxTensor) -> tuple[Any, Any]:
    """The first two and the last two numbers of boxes."""
    axis = boxes.ndim - 1
    return g.slice(boxes, [axis], [0], [2]), g.slice(boxes, [axis], [2], [4])


@exports("box_coder")
def box_coder(
    g: OnnxGraph, f: Any, PriorBox: OnnxTensor, PriorBoxVar: OnnxTensor | None, TargetBox: OnnxTensor, attrs: dict[str, Any]
) -> Any:
    edge = 0.0 if attrs["box_normalized"] else 1.0
    first, last = _halves(g, PriorBox)
    size = last - first + edge
    middle = first + size * 0.5
    variance = PriorBoxVar if PriorBoxVar is not None else g.constant(attrs["variance"] or [1.0] * 4, PriorBox.dtype)
    by_place, by_size = _halves(g, variance)
    if attrs["code_type"] == "decode_center_size":
        if attrs["axis"] == 1:
            middle, size = g.unsqueeze(middle, 1), g.unsqueeze(size, 1)
            if variance.ndim == 2:
                by_place, by_size = g.unsqueeze(by_place, 1), g.unsqueeze(by_size, 1)
        moved, ratio = _halves(g, TargetBox)
        middle = g.binary("Add", g.binary("Mul", g.binary("Mul", moved, by_place), size), middle)
        half: Any = g.binary("Mul", g.binary("Mul", g.unary("Exp", g.binary("Mul", ratio, by_size)), size), g.number(0.5, size))
        return g.concat([g.binary("Sub", middle, half), g.binary("Add", middle, half) - edge], middle.ndim - 1)
    first, last = _halves(g, g.unsqueeze(TargetBox, 1))
    center = g.binary("Mul", g.binary("Add", first, last), g.number(0.5, first))
    shift = g.binary("Div", g.binary("Div", g.binary("Sub", center, middle), size), by_place)
    ratio = g.unary("Abs", g.binary("Div", g.binary("Sub", last, first) + edge, size))
    return g.concat([shift, g.binary("Div", g.unary("Log", ratio), by_size)], 2)


@exports("polygon_box_transform")
def polygon_box_transform(g: OnnxGraph, Input: OnnxTensor) -> OnnxTensor:
    wide = g.cast(positions(g, g.size(Input, 3), 3, 4), Input.dtype)
    high = g.cast(positions(g, g.size(Input, 2), 2, 4), Input.dtype)
    number = positions(g, g.size(Input, 1), 1, 4)
    even = g.binary("Equal", g.binary("Mod", number, g.constant(np.int64(2))), g.constant(np.int64(0)), VarType.BOOL)
    places = g.binary("Mul", g.where(even, wide, high), g.number(4, Input))
    return g.binary("Sub", places, Input)


@exports("focal_weights")
def focal_weights(g: OnnxGraph, X: OnnxTensor, Label: OnnxTensor, FgNum: OnnxTensor, alpha: float) -> dict[str, OnnxTensor]:
    classes = g.cast(positions(g, g.size(X, 1), 1, 2), Label.dtype)
    one = g.binary("Add", classes, g.number(1, classes))
    hit = g.binary("Equal", Label, one, VarType.BOOL)
    counts = g.binary("GreaterOrEqual", Label, g.number(0, Label), VarType.BOOL)
    foreground = g.cast(g.reshape(FgNum, []), X.dtype)
    foreground = g.binary("Max", foreground, g.number(1, X))
    right = g.where(hit, g.number(alpha, X), g.number(0, X))
    is_other_class = g.binary("And", counts, g.unary("Not", hit))
    wrong = g.where(is_other_class, g.number(1 - alpha, X), g.number(0, X))
    return {"Right": g.binary("Div", right, foreground), "Wrong": g.binary("Div", wrong, foreground)}


@exports("box_clip")
def box_clip(g: OnnxGraph, Input: OnnxTensor, ImInfo: OnnxTensor) -> OnnxTensor:
    """ImInfo has height, width and scale of each image."""
    size = g.gather(ImInfo, g.ints(1, 0), 1)
    scaled = g.binary("Div", size, g.slice(ImInfo, [1], [2], [3]))
    most = g.binary("Sub", g.unary("Floor", g.binary("Add", scaled, g.number(0.5, scaled))), g.number(1, scaled))
    most = g.concat([most, most], 1)
    if Input.lengths is not None:  # the image of a row: how many images end at or before it
        ends = g._sized("CumSum", [Input.lengths, g.constant(np.int64(0))], VarType.INT64, Input.lengths.sizes)
        row = positions(g, g.size(Input, 0), 0, 2)
        image = g.cast(g.binary("GreaterOrEqual", row, g.unsqueeze(ends, 0), VarType.BOOL), VarType.INT64)
        most = g.gather(most, g.reduce("ReduceSum", image, [1]))
    elif Input.ndim == 3:
        most = g.unsqueeze(most, 1)
    return g.binary("Max", g.binary("Min", Input, most), g.number(0, Input))


@exports("box_decoder_and_assign")
def box_decoder_and_assign(g: OnnxGraph, f: Any, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    prior, deviation, target, score = (inputs.get(slot) for slot in ("PriorBox", "PriorBoxVar", "TargetBox", "BoxScore"))
    assert prior is not None and target is not None and score is not None
    classes = score.shape[1]
    if classes < 0:
        raise NotExported("numbers of classes that are known only at run time")
    deltas = g.reshape(target, [g.size(target, 0), classes, 4], (target.sizes[0], classes, 4))
    deltas = deltas if deviation is None else g.binary("Mul", deltas, deviation)
    first, last = _halves(g, prior)
    size: Any = last - first + 1.0
    middle = g.unsqueeze(first + size * 0.5, 1)
    size = g.unsqueeze(size, 1)
    moved, ratio = _halves(g, deltas)
    ratio = g.unary("Exp", g.binary("Min", ratio, g.number(attrs["box_clip"], ratio)))
    center: Any = g.binary("Add", g.binary("Mul", moved, size), middle)
    half: Any = g.binary("Mul", g.binary("Mul", ratio, size), g.number(0.5, size))
    decoded = g.concat([center - half, center + half - 1.0], 2)
    if classes == 1:
        return {"DecodeBox": g.reshape_as(decoded, target), "OutputAssignBox": g.identity(prior)}
    foreground = g.slice(score, [1], [1], [classes])
    best = g._sized("ArgMax", [foreground], VarType.INT64, (score.sizes[0],), axis=1, keepdims=0)
    chosen = g.binary("Equal", positions(g, classes, 1, 2), g.unsqueeze(g.binary("Add", best, g.ints(1)), 1), VarType.BOOL)
    box = g.reduce("ReduceSum", g.where(g.unsqueeze(chosen, 2), decoded, g.number(0, decoded)), [1])
    return {"DecodeBox": g.reshape_as(decoded, target), "OutputAssignBox": box}
