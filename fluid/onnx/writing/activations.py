"""Write elementwise functions of one operand: activations, powers, roundings."""

from __future__ import annotations

import math
from collections.abc import Callable

from .arithmetic import plus, times
from .exporting import exports
from .graph import OnnxGraph, OnnxTensor


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
    "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "sign": "Sign", "rint": "Round",
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


@exports("expm1")
def expm1(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    """``tanh(x / 2) * (exp(x) + 1)``, which is exact near 0."""
    return g.binary("Mul", g.unary("Tanh", times(g, X, 0.5)), plus(g, g.unary("Exp", X), 1.0))


@exports("log1p")
def log1p(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    """``x * log(1 + x) / ((1 + x) - 1)``, which is exact near 0: it corrects the rounding of 1 + x."""
    above = plus(g, X, 1.0)
    step = plus(g, above, -1.0)
    is_zero = g.binary("Equal", step, g.number(0, X))
    finite = g.binary("Less", above, g.number(math.inf, X))
    ratio = g.binary("Div", X, g.where(is_zero, g.number(1, X), step))
    ratio = g.where(g.binary("And", finite, g.binary("Greater", above, g.number(0, X))), ratio, g.number(1, X))
    return g.where(is_zero, X, g.binary("Mul", g.unary("Log", above), ratio))


def softplus(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    """``log(1 + exp(x))`` without overflow."""
    small = g.unary("Exp", g.unary("Neg", g.unary("Abs", x)))
    return g.binary("Add", g.unary("Relu", x), g.unary("Log", plus(g, small, 1.0)))


@exports("leaky_relu")
def leaky_relu(g: OnnxGraph, X: OnnxTensor, alpha: float) -> OnnxTensor:
    return g.unary("LeakyRelu", X, alpha=float(alpha))
