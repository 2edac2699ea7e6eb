"""Write softmax, losses and metrics."""

from __future__ import annotations

from typing import Any

from fluid.values.types import VarType

from .exporting import exports
from .graph import OnnxGraph, OnnxTensor
from .indexing import picked
from .shaping import shape_of


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


@exports("accuracy")
def accuracy(g: OnnxGraph, Indices: OnnxTensor, Label: OnnxTensor, inputs: dict[str, Any]) -> dict[str, OnnxTensor]:
    label = g.reshape(g.cast(Label, VarType.INT64), [-1, 1], (-1, 1))
    hit = g.cast(g.binary("Equal", g.cast(Indices, VarType.INT64), label), VarType.INT32)
    correct = g.reduce("ReduceSum", g.reduce("ReduceMax", hit, [1]), [0])
    count = g.squeeze(g.as_size(g.size(Indices, 0)), 0)
    share = g.binary("Div", g.cast(correct, VarType.FP32), g.cast(count, VarType.FP32))
    return {"Accuracy": share, "Correct": correct, "Total": g.cast(count, VarType.INT32)}
