"""Activations."""

from __future__ import annotations

from typing import Any

from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from .elementwise import choose, unary

for _onnx, _ours in {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Softsign": "softsign", "Mish": "mish"}.items():
    imports(_onnx)(unary(_ours))


def _with(op: str, **attributes: tuple[str, float]) -> Any:
    """An importer for a node that is one op of Fluid; `attributes`: Fluid's name -> ONNX's name and default."""

    def build(b: Builder, node: OnnxNode) -> Any:
        return getattr(b.f, op)(node[0], **{ours: node.float(name, default) for ours, (name, default) in attributes.items()})

    return build


imports("LeakyRelu")(_with("leaky_relu", alpha=("alpha", 0.01)))
imports("Elu")(_with("elu", alpha=("alpha", 1.0)))
imports("Celu")(_with("celu", alpha=("alpha", 1.0)))
imports("HardSigmoid")(_with("hard_sigmoid", slope=("alpha", 0.2), offset=("beta", 0.5)))
imports("ThresholdedRelu")(_with("thresholded_relu", threshold=("alpha", 1.0)))
imports("Swish")(_with("swish", beta=("alpha", 1.0)))


@imports("Selu")
def selu(b: Builder, node: OnnxNode) -> Any:
    return b.f.selu(node[0], alpha=node.float("alpha", 1.6732632423543772), scale=node.float("gamma", 1.0507009873554805))


@imports("HardSwish")
def hard_swish(b: Builder, node: OnnxNode) -> Any:
    return b.f.hard_swish(node[0])


@imports("Softplus")
def softplus(b: Builder, node: OnnxNode) -> Any:
    return b.f.softplus(node[0], threshold=80.0 if node.dtype is not VarType.FP16 else 10.0)


@imports("Gelu")
def gelu(b: Builder, node: OnnxNode) -> Any:
    return b.f.gelu(node[0], approximate=node.string("approximate", "none") == "tanh")


@imports("PRelu")
def prelu(b: Builder, node: OnnxNode) -> Any:
    x, slope = node[0], node[1]
    if node.opset < 9 and slope.ndim == 1 and x.ndim > 2 and slope.shape != (1,):  # one for each channel
        slope = b.ones_like_axes(slope, 0, x.ndim - 2)
    positive = b.f.relu(x)
    negative = b.f.elementwise_min(x, b.number(0, x.dtype))
    return positive + b.f.elementwise_mul(negative, slope)


@imports("Shrink")
def shrink(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    bias, edge = node.float("bias", 0.0), node.float("lambd", 0.5)
    if node.is_floating():
        above = b.cast(b.f.greater_than(x, b.number(edge, x.dtype)), x.dtype)
        below = b.cast(b.f.less_than(x, b.number(-edge, x.dtype)), x.dtype)
        return b.f.elementwise_mul(x, above + below) - b.f.scale(above - below, scale=bias)
    wide = b.cast(x, VarType.FP32)
    above, below = (b.f.greater_than(wide, b.number(edge, VarType.FP32)), b.f.less_than(wide, b.number(-edge, VarType.FP32)))
    zero = b.number(0, VarType.FP32)
    bias_ = b.number(bias, VarType.FP32)
    return b.cast(choose(b, above, wide - bias_, choose(b, below, wide + bias_, zero)), x.dtype)


def _softmax(op: str, since_13: bool) -> Any:
    def build(b: Builder, node: OnnxNode) -> Any:
        x = node[0]
        if since_13:
            return getattr(b.f, op)(x, axis=node.int("axis", -1)) if x.ndim else getattr(b.f, op)(b.unsqueeze(x, [0]))
        axis = node.int("axis", 1)
        axis = axis + x.ndim if axis < 0 else axis
        if axis == x.ndim - 1:
            return getattr(b.f, op)(x, axis=-1)
        rows = getattr(b.f, op)(b.f.flatten2(x, axis=axis), axis=-1)
        return b.f.reshape_like(rows, x)

    return build


for _onnx, _ours in {"Softmax": "softmax", "LogSoftmax": "log_softmax"}.items():
    imports(_onnx)(_softmax(_ours, False))
    imports(_onnx, since=13)(_softmax(_ours, True))


def _hardmax(b: Builder, node: OnnxNode, axis: int, x: Any) -> Any:
    place = b.f.unsqueeze2(b.f.arg_max(x, axis=axis), axes=[axis]) if x.ndim > 1 else b.f.arg_max(x, axis=axis, keepdims=True)
    places = b.f.cumsum(b.f.fill_any_like(x, value=1.0, dtype=int(VarType.INT64)), axis=axis)
    first = b.number(1, VarType.INT64)
    return b.cast(b.f.equal(places - first, place), x.dtype)


@imports("Hardmax", trains=False)
def hardmax(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axis = node.int("axis", 1) % x.ndim
    return b.f.reshape_like(_hardmax(b, node, 1, b.f.flatten2(x, axis=axis)), x)


@imports("Hardmax", since=13, trains=False)
def hardmax_13(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    return _hardmax(b, node, node.int("axis", -1) % x.ndim, x)
