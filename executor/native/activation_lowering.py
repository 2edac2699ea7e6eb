"""Lowers activations, as formulas of other ops; their gradients are lowered in the same way."""

from __future__ import annotations

from math import log
from typing import Any

from fluid.ops.conv import image_axes
from fluid.ops.norm import dropout_scale

from .emitter import BOOL
from .graph import Drawn, mapped, reshaped
from .lowering import NAMESPACE, GraphTensor, NotLowered, lowers, number_like, only_floats

__all__ = ["at_least", "at_most", "chosen", "log1p_exp"]

f = NAMESPACE


def at_least(x: GraphTensor, low: float) -> GraphTensor:
    """The maximum of x and a number, elementwise."""
    only_floats(x)
    return GraphTensor(mapped("max", number_like(low, x.node), x.node))


def at_most(x: GraphTensor, high: float) -> GraphTensor:
    """The minimum of x and a number, elementwise."""
    only_floats(x)
    return GraphTensor(mapped("min", number_like(high, x.node), x.node))


def chosen(condition: GraphTensor, a: GraphTensor, b: GraphTensor | float) -> GraphTensor:
    """Select `a` where the condition holds, `b` elsewhere."""
    alternative = b.node if isinstance(b, GraphTensor) else number_like(b, a.node)
    return GraphTensor(mapped("select", condition.node, a.node, alternative, element=a.node.element))


# -------------------------------------------------------------------------------------------------------------- clipped
@lowers("relu6")
def relu6(X: GraphTensor, threshold: float) -> GraphTensor:
    return f.clip(X, min=0.0, max=threshold)


@lowers("brelu")
def brelu(X: GraphTensor, t_min: float, t_max: float) -> GraphTensor:
    return f.clip(X, min=t_min, max=t_max)


@lowers("hard_sigmoid")
def hard_sigmoid(X: GraphTensor, slope: float, offset: float) -> GraphTensor:
    return f.clip(X * slope + offset, min=0.0, max=1.0)


@lowers("hard_swish")
def hard_swish(X: GraphTensor, threshold: float, scale: float, offset: float) -> GraphTensor:
    return f.clip(X + offset, min=0.0, max=threshold) * X * (1.0 / scale)


@lowers("softshrink")
def softshrink(X: GraphTensor, attrs: dict[str, Any]) -> GraphTensor:
    width = attrs["lambda"]
    return X - f.clip(X, min=-width, max=width)


@lowers("hard_shrink")
def hard_shrink(X: GraphTensor, threshold: float) -> GraphTensor:
    return chosen(f.abs(X) > threshold, X, 0.0)


@lowers("thresholded_relu")
def thresholded_relu(X: GraphTensor, threshold: float) -> GraphTensor:
    return chosen(X > threshold, X, 0.0)


@lowers("prelu")
def prelu(X: GraphTensor, Alpha: GraphTensor, mode: str, data_format: str) -> GraphTensor:
    only_floats(X, Alpha)
    shape = [1] * X.ndim
    if mode == "element":
        shape[1:] = X.shape[1:]
    elif mode == "channel":
        shape[image_axes(data_format, X.ndim)[0]] = Alpha.node.size
    alpha = reshaped(Alpha.node, tuple(shape))
    return chosen(X <= 0.0, GraphTensor(mapped("mul", X.node, alpha)), X)


# ---------------------------------------------------------------------------------------------------- of exponentials
def _elu(X: GraphTensor, alpha: float, width: float) -> GraphTensor:
    """X where it is positive, ``alpha * (exp(X / width) - 1)`` elsewhere."""
    low = at_most(X, 0.0)
    return f.expm1(low if width == 1.0 else low / width) * alpha + at_least(X, 0.0)  # one of the two is 0


@lowers("elu")
def elu(X: GraphTensor, alpha: float) -> GraphTensor:
    return _elu(X, alpha, 1.0)


@lowers("celu")
def celu(X: GraphTensor, alpha: float) -> GraphTensor:
    return _elu(X, alpha, alpha)


@lowers("selu")
def selu(X: GraphTensor, scale: float, alpha: float) -> GraphTensor:
    return _elu(X, alpha, 1.0) * scale


def log1p_exp(x: GraphTensor) -> GraphTensor:
    """``log(1 + exp(x))`` without overflow."""
    return f.log1p(f.exp(-f.abs(x))) + at_least(x, 0.0)


@lowers("softplus")
def softplus(X: GraphTensor, beta: float, threshold: float) -> GraphTensor:
    scaled = X * beta
    return chosen(scaled > threshold, X, log1p_exp(scaled) / beta)


@lowers("logsigmoid")
def logsigmoid(X: GraphTensor) -> GraphTensor:
    return -log1p_exp(-X)


@lowers("soft_relu")
def soft_relu(X: GraphTensor, threshold: float) -> GraphTensor:
    return f.log1p(f.exp(f.clip(X, min=-threshold, max=threshold)))


@lowers("mish")
def mish(X: GraphTensor, threshold: float) -> GraphTensor:
    return X * f.tanh(f.softplus(X, threshold=threshold))


@lowers("swish")
def swish(X: GraphTensor, beta: float) -> GraphTensor:
    return X * f.sigmoid(X * beta)


@lowers("stanh")
def stanh(X: GraphTensor, scale_a: float, scale_b: float) -> GraphTensor:
    return f.tanh(X * scale_a) * scale_b


@lowers("tanh_shrink")
def tanh_shrink(X: GraphTensor) -> GraphTensor:
    return X - f.tanh(X)


# ------------------------------------------------------------------------------------------- logarithms, powers, angles
@lowers("log2")
def log2(X: GraphTensor) -> GraphTensor:
    return f.log(X) * (1.0 / log(2.0))


@lowers("log10")
def log10(X: GraphTensor) -> GraphTensor:
    return f.log(X) * (1.0 / log(10.0))


@lowers("tan")
def tan(X: GraphTensor) -> GraphTensor:
    return f.sin(X) / f.cos(X)


# --------------------------------------------------------------------------------------------------------------- dropout
@lowers("dropout")
def dropout(
    X: GraphTensor, Seed: Any, dropout_prob: float, dropout_implementation: str, is_test: bool, specs: dict[str, Any]
) -> dict[str, GraphTensor]:
    if Seed is not None or specs.get("Mask") is None:
        raise NotLowered("a mask that is not drawn from the op's own numbers, or that has no place")
    mask = GraphTensor(Drawn(X.shape, BOOL))
    masked = f.assign(X) if is_test else X * mask.astype(X.dtype)
    scale = dropout_scale(dropout_prob, dropout_implementation, is_test)
    return {"Out": masked if scale == 1.0 else masked * scale, "Mask": mask}
