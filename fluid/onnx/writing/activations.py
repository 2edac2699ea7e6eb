"""Write elementwise functions of one operand: activations, powers, roundings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fluid.ops.activation import GELU_TANH
from fluid.values.types import VarType

from .arithmetic import plus, times
from .exporting import exports
from .graph import OnnxGraph, OnnxTensor

__all__ = ["log1p", "softplus"]


# -------------------------------------------------------------------------------------------------------- activations
def _unary(op: str, of_ints: str = "") -> Callable[..., OnnxTensor]:
    def of_one(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
        if not X.is_floating and of_ints:
            return g.unary(of_ints, X)
        return g.unary(op, X)

    return of_one


for _type, _op in {
    "tanh": "Tanh", "sigmoid": "Sigmoid", "exp": "Exp", "sqrt": "Sqrt", "abs": "Abs", "log": "Log", "sin": "Sin", "cos": "Cos",
    "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "sign": "Sign",
}.items():  # fmt: skip
    exports(_type)(_unary(_op))
exports("floor")(_unary("Floor", "Identity"))
exports("ceil")(_unary("Ceil", "Identity"))


@exports("relu")
def relu(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.unary("Relu", X) if X.is_floating else g.binary("Max", X, g.number(0, X))


@exports("reciprocal")
def reciprocal(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.unary("Reciprocal", X) if X.is_floating else g.binary("Div", g.number(1, X), X)


@exports("round")
def round_(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    """Round half away from zero; ONNX's Round rounds halves to even."""
    if not X.is_floating:
        return g.identity(X)
    return g.binary("Mul", g.unary("Sign", X), g.unary("Floor", plus(g, g.unary("Abs", X), 0.5)))


@exports("square")
def square(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.binary("Mul", X, X)


@exports("rsqrt")
def rsqrt(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.unary("Reciprocal", g.unary("Sqrt", X))


@exports("expm1")
def expm1(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    """``tanh(x / 2) * (exp(x) + 1)``, which is exact near 0."""
    return g.binary("Mul", g.unary("Tanh", times(g, X, 0.5)), plus(g, g.unary("Exp", X), 1.0))


@exports("log1p")
def log1p(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    """``x * log(1 + x) / ((1 + x) - 1)``, which is exact near 0: it corrects the rounding of 1 + x."""
    above = plus(g, X, 1.0)
    step = plus(g, above, -1.0)
    is_zero = g.binary("Equal", step, g.number(0, X), VarType.BOOL)
    finite = g.binary("Less", above, g.number(math.inf, X), VarType.BOOL)
    ratio = g.binary("Div", X, g.where(is_zero, g.number(1, X), step))
    ratio = g.where(g.binary("And", finite, g.binary("Greater", above, g.number(0, X), VarType.BOOL)), ratio, g.number(1, X))
    return g.where(is_zero, X, g.binary("Mul", g.unary("Log", above), ratio))


@exports("log2")
def log2(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return times(g, g.unary("Log", X), 1.0 / math.log(2.0))


@exports("log10")
def log10(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return times(g, g.unary("Log", X), 1.0 / math.log(10.0))


def softplus(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    """``log(1 + exp(x))`` without overflow."""
    small = g.unary("Exp", g.unary("Neg", g.unary("Abs", x)))
    return g.binary("Add", g.unary("Relu", x), g.unary("Log", plus(g, small, 1.0)))


def _between(g: OnnxGraph, x: OnnxTensor, low: float, high: float) -> OnnxTensor:
    return g.binary("Min", g.binary("Max", x, g.number(low, x)), g.number(high, x))


@exports("relu6")
def relu6(g: OnnxGraph, X: OnnxTensor, threshold: float) -> OnnxTensor:
    return _between(g, X, 0, threshold)


@exports("brelu")
def brelu(g: OnnxGraph, X: OnnxTensor, t_min: float, t_max: float) -> OnnxTensor:
    return _between(g, X, t_min, t_max)


@exports("hard_sigmoid")
def hard_sigmoid(g: OnnxGraph, X: OnnxTensor, slope: float, offset: float) -> OnnxTensor:
    return _between(g, plus(g, times(g, X, slope), offset), 0, 1)


@exports("hard_swish")
def hard_swish(g: OnnxGraph, X: OnnxTensor, threshold: float, scale: float, offset: float) -> OnnxTensor:
    return times(g, g.binary("Mul", X, _between(g, plus(g, X, offset), 0, threshold)), 1.0 / scale)


def _choice(g: OnnxGraph, x: OnnxTensor, above: float, yes: OnnxTensor, no: OnnxTensor) -> OnnxTensor:
    """Select `yes` where x is above a number, `no` elsewhere."""
    return g.where(g.binary("Greater", x, g.number(above, x), VarType.BOOL), yes, no)


def _negative(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    return g.binary("Min", x, g.number(0, x))


@exports("selu")
def selu(g: OnnxGraph, X: OnnxTensor, scale: float, alpha: float) -> OnnxTensor:
    return times(g, _choice(g, X, 0, X, times(g, expm1(g, _negative(g, X)), alpha)), scale)


@exports("elu")
def elu(g: OnnxGraph, X: OnnxTensor, alpha: float) -> OnnxTensor:
    return _choice(g, X, 0, X, times(g, expm1(g, _negative(g, X)), alpha))


@exports("celu")
def celu(g: OnnxGraph, X: OnnxTensor, alpha: float) -> OnnxTensor:
    return _choice(g, X, 0, X, times(g, expm1(g, times(g, _negative(g, X), 1.0 / alpha)), alpha))


@exports("soft_relu")
def soft_relu(g: OnnxGraph, X: OnnxTensor, threshold: float) -> OnnxTensor:
    return softplus(g, _between(g, X, -threshold, threshold))


@exports("leaky_relu")
def leaky_relu(g: OnnxGraph, X: OnnxTensor, alpha: float) -> OnnxTensor:
    return g.unary("LeakyRelu", X, alpha=float(alpha))


@exports("gelu")
def gelu(g: OnnxGraph, X: OnnxTensor, approximate: bool) -> OnnxTensor:
    if approximate:
        a, b = GELU_TANH
        bent = g.binary("Mul", X, plus(g, times(g, g.binary("Mul", X, X), b), 1.0))
        share = g.unary("Tanh", times(g, bent, a))
    else:
        share = g.unary("Erf", times(g, X, math.sqrt(0.5)))
    return times(g, g.binary("Mul", X, plus(g, share, 1.0)), 0.5)


@exports("softplus")
def softplus_(g: OnnxGraph, X: OnnxTensor, beta: float, threshold: float) -> OnnxTensor:
    bent = times(g, X, beta)
    return _choice(g, bent, threshold, X, times(g, softplus(g, bent), 1.0 / beta))


@exports("softsign")
def softsign(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.binary("Div", X, plus(g, g.unary("Abs", X), 1.0))


@exports("logsigmoid")
def logsigmoid(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.unary("Neg", softplus(g, g.unary("Neg", X)))


@exports("swish")
def swish(g: OnnxGraph, X: OnnxTensor, beta: float) -> OnnxTensor:
    return g.binary("Mul", X, g.unary("Sigmoid", times(g, X, beta)))


@exports("silu")
def silu(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.binary("Mul", X, g.unary("Sigmoid", X))


@exports("mish")
def mish(g: OnnxGraph, X: OnnxTensor, threshold: float) -> OnnxTensor:
    return g.binary("Mul", X, g.unary("Tanh", _choice(g, X, threshold, X, softplus(g, X))))


@exports("tanh_shrink")
def tanh_shrink(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.binary("Sub", X, g.unary("Tanh", X))


@exports("softshrink")
def softshrink(g: OnnxGraph, X: OnnxTensor, lambda_: float) -> OnnxTensor:
    shrunk = g.unary("Relu", plus(g, g.unary("Abs", X), -lambda_))
    return g.binary("Mul", g.unary("Sign", X), shrunk)


@exports("hard_shrink")
def hard_shrink(g: OnnxGraph, X: OnnxTensor, threshold: float) -> OnnxTensor:
    return _choice(g, g.unary("Abs", X), threshold, X, g.number(0, X))


@exports("thresholded_relu")
def thresholded_relu(g: OnnxGraph, X: OnnxTensor, threshold: float) -> OnnxTensor:
    return _choice(g, X, threshold, X, g.number(0, X))


@exports("stanh")
def stanh(g: OnnxGraph, X: OnnxTensor, scale_a: float, scale_b: float) -> OnnxTensor:
    return times(g, g.unary("Tanh", times(g, X, scale_a)), scale_b)


@exports("tanh_grad_grad")
def tanh_grad_grad(inputs: dict[str, Any], Out: OnnxTensor, grad_out: OnnxTensor) -> dict[str, Any]:
    upper = inputs["grad_x@GRAD"]
    return {"grad_out@GRAD": upper * (1.0 - Out * Out), "Out@GRAD": Out * grad_out * upper * -2.0}
