"""Write softmax, losses and metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.values.types import VarType

from .activations import log1p
from .exporting import exports
from .graph import OnnxGraph, OnnxTensor
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
