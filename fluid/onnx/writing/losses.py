"""Write softmax, losses and metrics."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from fluid.values.types import VarType

from .activations import log1p, softplus
from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor
from .indexing import picked
from .reductions import total
from .shaping import shape_of

__all__: list[str] = []


@exports("softmax")
def softmax(g: OnnxGraph, X: OnnxTensor, axis: int) -> OnnxTensor:
    return g.unary("Softmax", X, axis=axis % X.ndim)


@exports("log_softmax")
def log_softmax(g: OnnxGraph, X: OnnxTensor, axis: int) -> OnnxTensor:
    return g.unary("LogSoftmax", X, axis=axis % X.ndim)


_LEAST = -1e20
"""The logarithm of 0."""


def _minus_log(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    return g.unary("Neg", g.binary("Max", g.unary("Log", x), g.number(_LEAST, x)))


@exports("cross_entropy")
def cross_entropy(g: OnnxGraph, X: OnnxTensor, Label: OnnxTensor, soft_label: bool, ignore_index: int, specs: Any) -> OnnxTensor:
    if soft_label:
        return g.reduce("ReduceSum", g.binary("Mul", Label, _minus_log(g, X)), [-1], keep=True)
    label = Label if Label.ndim == X.ndim else g.unsqueeze(Label, -1)
    loss = _minus_log(g, picked(g, X, label, -1, ignore_index, 1.0))
    return loss if Label.ndim == X.ndim else g.squeeze(loss, -1)


@exports("cross_entropy2")
def cross_entropy2(g: OnnxGraph, X: OnnxTensor, Label: OnnxTensor, ignore_index: int, specs: Any) -> dict[str, OnnxTensor]:
    label = Label if Label.ndim == X.ndim else g.unsqueeze(Label, -1)
    match = picked(g, X, label, -1, ignore_index, 1.0)
    match = match if Label.ndim == X.ndim else g.squeeze(match, -1)
    return {
        "Y": _minus_log(g, match),
        "MatchX": match,
        "XShape": shape_of(X),
    }


@exports("softmax_with_cross_entropy")
def softmax_with_cross_entropy(
    g: OnnxGraph, Logits: OnnxTensor, Label: OnnxTensor, soft_label: bool, use_softmax: bool, ignore_index: int, axis: int
) -> dict[str, OnnxTensor]:
    axis = axis % Logits.ndim
    if use_softmax:
        probabilities, logs = (g.unary(op, Logits, axis=axis) for op in ("Softmax", "LogSoftmax"))
        losses = g.unary("Neg", logs)
    else:
        probabilities = g.identity(Logits)
        losses = _minus_log(g, Logits)
    if soft_label:
        loss = g.reduce("ReduceSum", g.binary("Mul", Label, losses), [axis], keep=True)
    else:
        loss = picked(g, losses, Label, axis, ignore_index, 0.0)
    return {"Softmax": probabilities, "Loss": loss}


@exports("sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(
    g: OnnxGraph, X: OnnxTensor, Label: OnnxTensor, pos_weight: OnnxTensor | None, normalize: bool, ignore_index: int
) -> OnnxTensor:
    ignored = g.binary("Equal", Label, g.number(ignore_index, Label), VarType.BOOL)
    label = g.cast(Label, X.dtype)
    missed = softplus(g, g.unary("Neg", X))
    missed = missed if pos_weight is None else g.binary("Mul", missed, pos_weight)
    loss = g.binary("Add", missed, g.binary("Mul", g.binary("Sub", g.number(1, X), label), X))
    loss = g.where(ignored, g.number(0, X), loss)
    if not normalize:
        return loss
    count = total(g, g.cast(g.unary("Not", ignored), X.dtype))
    return g.binary("Div", loss, g.binary("Max", count, g.number(1, X)))


@exports("huber_loss")
def huber_loss(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, delta: float) -> dict[str, OnnxTensor]:
    residual = g.binary("Sub", Y, X)
    size = g.unary("Abs", residual)
    half = g.binary("Mul", g.binary("Mul", residual, residual), g.number(0.5, X))
    far = g.binary("Mul", g.binary("Sub", size, g.number(delta / 2, X)), g.number(delta, X))
    near = g.binary("LessOrEqual", size, g.number(delta, X), VarType.BOOL)
    return {"Out": g.where(near, half, far), "Residual": residual}


@exports("log_loss")
def log_loss(f: Any, Predicted: OnnxTensor, Labels: OnnxTensor, epsilon: float) -> Any:
    labels = Labels if Labels.dtype is Predicted.dtype else Labels.astype(Predicted.dtype)
    return -(labels * f.log(Predicted + epsilon)) - (1.0 - labels) * f.log((1.0 + epsilon) - Predicted)


@exports("label_smooth")
def label_smooth(g: OnnxGraph, X: OnnxTensor, PriorDist: OnnxTensor | None, epsilon: float) -> OnnxTensor:
    scaled_label = g.binary("Mul", X, g.number(1 - epsilon, X))
    if PriorDist is not None:
        return g.binary("Add", scaled_label, g.binary("Mul", PriorDist, g.number(epsilon, X)))
    count = g.size(X, -1)
    if isinstance(count, int):
        return g.binary("Add", scaled_label, g.number(epsilon / count, X))
    return g.binary("Add", scaled_label, g.binary("Div", g.number(epsilon, X), g.cast(count, X.dtype)))


@exports("hinge_loss")
def hinge_loss(f: Any, Logits: OnnxTensor, Labels: OnnxTensor) -> Any:
    labels = Labels if Labels.dtype is Logits.dtype else Labels.astype(Logits.dtype)
    return f.relu(1.0 - (labels * 2.0 - 1.0) * Logits)


@exports("bce_loss")
def bce_loss(g: OnnxGraph, X: OnnxTensor, Label: OnnxTensor) -> OnnxTensor:
    def clipped(x: OnnxTensor) -> OnnxTensor:
        return g.binary("Max", g.unary("Log", x), g.number(-100.0, x))

    one = g.number(1, X)
    hit = g.binary("Mul", Label, clipped(X))
    missed = g.binary("Mul", g.binary("Sub", one, Label), clipped(g.binary("Sub", one, X)))
    return g.unary("Neg", g.binary("Add", hit, missed))


@exports("kldiv_loss")
def kldiv_loss(g: OnnxGraph, X: OnnxTensor, Target: OnnxTensor, reduction: str) -> OnnxTensor:
    counts = g.binary("Greater", Target, g.number(0, Target), VarType.BOOL)
    safe = g.where(counts, Target, g.number(1, Target))
    loss = g.where(counts, g.binary("Mul", Target, g.binary("Sub", g.unary("Log", safe), X)), g.number(0, X))
    if reduction == "none":
        return loss
    if reduction == "mean":
        return g.reduce("ReduceMean", loss, range(loss.ndim))
    result = total(g, loss)
    if reduction == "sum":
        return result
    return g.binary("Div", result, g.cast(g.squeeze(g.as_size(g.size(X, 0)), 0), X.dtype))


@exports("nll_loss")
def nll_loss(
    g: OnnxGraph, X: OnnxTensor, Label: OnnxTensor, Weight: OnnxTensor | None, ignore_index: int, reduction: str
) -> dict[str, OnnxTensor]:
    index = g.unsqueeze(g.cast(Label, VarType.INT64), 1)
    chosen = picked(g, X, index, 1, ignore_index)
    if Weight is None:
        weights = picked(g, g.expand(g.constant(np.ones((), X.dtype.numpy)), g.dims(X), X.sizes), index, 1, ignore_index)
    else:
        column = g.unsqueeze(Weight, 0, *range(2, X.ndim))
        weights = picked(g, g.expand(column, g.dims(X), X.sizes), index, 1, ignore_index)
    losses = g.unary("Neg", g.binary("Mul", chosen, weights))
    weight = total(g, weights)
    if reduction == "none":
        return {"Out": g.squeeze(losses, 1), "Total_weight": g.number(0, X)}
    loss = total(g, losses)
    if reduction == "mean":
        loss = g.binary("Div", loss, weight)
    return {"Out": loss, "Total_weight": weight}


@exports("rank_loss")
def rank_loss(g: OnnxGraph, f: Any, Label: OnnxTensor, Left: OnnxTensor, Right: OnnxTensor) -> Any:
    difference: Any = Left - Right
    return softplus(g, difference) - Label * difference


@exports("margin_rank_loss")
def margin_rank_loss(f: Any, X1: OnnxTensor, X2: OnnxTensor, Label: OnnxTensor, margin: float) -> Any:
    out: Any = f.relu(-(Label * (X1 - X2)) + margin)
    return {"Out": out, "Activated": (out > 0.0).astype(X1.dtype)}


@exports("bpr_loss")
def bpr_loss(g: OnnxGraph, X: OnnxTensor, Label: OnnxTensor) -> OnnxTensor:
    chosen = picked(g, X, Label, -1)
    terms = softplus(g, g.binary("Sub", X, chosen))
    # The term of the label itself is log(2).
    losses = g.binary("Sub", g.reduce("ReduceSum", terms, [-1], keep=True), g.number(log(2.0), X))
    count = g.size(X, -1)
    if not isinstance(count, int):
        raise NotExported("classes whose number is known only at run time")
    return g.binary("Div", losses, g.number(count - 1, X))


@exports("squared_l2_distance")
def squared_l2_distance(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor) -> dict[str, OnnxTensor]:
    difference = g.binary("Sub", X, Y)
    sizes = g.sizes_of(difference)
    flat = g.reshape(difference, [sizes[0], g.product_of(sizes[1:])])
    return {"sub_result": flat, "Out": g.reduce("ReduceSum", g.binary("Mul", flat, flat), [1], keep=True)}


@exports("cos_sim")
def cos_sim(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor) -> dict[str, OnnxTensor]:
    axes = range(1, X.ndim)

    def length(x: OnnxTensor) -> OnnxTensor:
        norm = g.unary("Sqrt", g.reduce("ReduceSum", g.binary("Mul", x, x), range(1, x.ndim)))
        return g.unsqueeze(norm, 1)

    x, y = length(X), length(Y)
    product = g.unsqueeze(g.reduce("ReduceSum", g.binary("Mul", X, Y), axes), 1)
    return {"Out": g.binary("Div", g.binary("Div", product, x), y), "XNorm": x, "YNorm": y}


@exports("smooth_l1_loss")
def smooth_l1_loss(
    g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, InsideWeight: OnnxTensor | None, OutsideWeight: OnnxTensor | None, sigma: float
) -> dict[str, OnnxTensor]:
    difference = g.binary("Sub", X, Y)
    difference = difference if InsideWeight is None else g.binary("Mul", difference, InsideWeight)
    size, square = g.unary("Abs", difference), sigma * sigma
    near = g.binary("Less", size, g.number(1.0 / square, X), VarType.BOOL)
    curved = g.binary("Mul", g.binary("Mul", difference, difference), g.number(square / 2, X))
    terms = g.where(near, curved, g.binary("Sub", size, g.number(0.5 / square, X)))
    terms = terms if OutsideWeight is None else g.binary("Mul", terms, OutsideWeight)
    summed = g.reduce("ReduceSum", terms, range(1, terms.ndim))
    return {"Diff": difference, "Out": g.unsqueeze(summed, 1)}


@exports("modified_huber_loss")
def modified_huber_loss(g: OnnxGraph, f: Any, X: OnnxTensor, Y: OnnxTensor) -> dict[str, Any]:
    labels = Y if Y.dtype is X.dtype else Y.astype(X.dtype)
    a: Any = (labels * 2.0 - 1.0) * X
    curved = f.square(f.relu(1.0 - a))
    return {"Out": g.where(a < -1.0, a * -4.0, curved), "IntermediateVal": a}


@exports("teacher_student_sigmoid_loss")
def teacher_student_sigmoid_loss(g: OnnxGraph, f: Any, X: OnnxTensor, Label: OnnxTensor) -> Any:
    labels: Any = Label if Label.dtype is X.dtype else Label.astype(X.dtype)

    def at_least(number: float) -> Any:
        return (labels >= number).astype(X.dtype)

    score = at_least(0.0)
    click = at_least(-1.0) - score + at_least(1.0)
    teacher = (labels - click) * score
    common = softplus(g, X)
    return common - X * click + score * (common - X * teacher)


@exports("center_loss")
def center_loss(
    g: OnnxGraph,
    f: Any,
    X: OnnxTensor,
    Label: OnnxTensor,
    Centers: OnnxTensor,
    CenterUpdateRate: OnnxTensor,
    cluster_num: int,
    need_update: bool,
) -> dict[str, Any]:
    label = g.reshape(g.cast(Label, VarType.INT64), [-1], X.sizes[:1])
    difference = g.binary("Sub", X, g.gather(Centers, label))
    loss = g.reduce("ReduceSum", g.binary("Mul", g.binary("Mul", difference, difference), g.number(0.5, X)), [1], keep=True)
    centers = g.identity(Centers)
    if need_update:
        moved = f.scatter_add_like(difference, label, Centers, axis=0)
        ones = f.fill_any_like(f.slice(difference, axes=[1], starts=[0], ends=[1]), value=1.0)
        counts = f.scatter_add_like(ones, label, f.slice(Centers, axes=[1], starts=[0], ends=[1]), axis=0)
        rate = g.cast(g.reshape(CenterUpdateRate, []), X.dtype)
        centers = g.binary("Add", Centers, g.binary("Mul", moved / (counts + 1.0), rate))
    return {"CentersOut": centers, "SampleCenterDiff": difference, "Loss": loss}


@exports("accuracy")
def accuracy(g: OnnxGraph, Indices: OnnxTensor, Label: OnnxTensor, inputs: dict[str, Any]) -> dict[str, OnnxTensor]:
    label = g.reshape(g.cast(Label, VarType.INT64), [-1, 1], (-1, 1))
    hit = g.cast(g.binary("Equal", g.cast(Indices, VarType.INT64), label, VarType.BOOL), VarType.INT32)
    correct = g.reduce("ReduceSum", g.reduce("ReduceMax", hit, [1]), [0])
    count = g.squeeze(g.as_size(g.size(Indices, 0)), 0)
    share = g.binary("Div", g.cast(correct, VarType.FP32), g.cast(count, VarType.FP32))
    return {"Accuracy": share, "Correct": correct, "Total": g.cast(count, VarType.INT32)}


@exports("cvm")
def cvm(g: OnnxGraph, X: OnnxTensor, use_cvm: bool) -> OnnxTensor:
    features = g.slice(X, [1], [2], [2**31 - 1])
    if not use_cvm:
        return features
    shown, clicked = (log1p(g, g.slice(X, [1], [place], [place + 1])) for place in (0, 1))
    return g.concat([shown, g.binary("Sub", clicked, shown), features], 1)
