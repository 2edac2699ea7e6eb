"""How activations are lowered: as formulas of other ops, as their gradients are."""

from __future__ import annotations

from math import log
from typing import Any

from fluid.ops.conv import image_axes
from fluid.ops.norm import dropout_scale

from .emitter import BOOL
from .graph import Drawn, mapped, reshaped
from .lowering import NAMESPACE, NotLowered, Tensor, lowers, number_like, only_floats

__all__ = ["at_least", "at_most", "chosen", "log1p_exp"]

f = NAMESPACE


def at_least(x: Tensor, low: float) -> Tensor:
    """The elements of x, or a number where they are below."""
    only_floats(x)
    return Tensor(mapped("max", number_like(low, x.node), x.node))


def at_most(x: Tensor, high: float) -> Tensor:
    """The elements of x, or a number where they are above."""
    only_floats(x)
    return Tensor(mapped("min", number_like(high, x.node), x.node))


def chosen(condition: Tensor, a: Tensor, b: Tensor | float) -> Tensor:
    """The elements of a where the condition holds, those of b elsewhere."""
    other = b.node if isinstance(b, Tensor) else number_like(b, a.node)
    return Tensor(mapped("select", condition.node, a.node, other, element=a.node.element))


# -------------------------------------------------------------------------------------------------------------- clipped
@lowers("relu6")
def relu6(X: Tensor, threshold: float) -> Tensor:
    return f.clip(X, min=0.0, max=threshold)


@lowers("brelu")
def brelu(X: Tensor, t_min: float, t_max: float) -> Tensor:
    return f.clip(X, min=t_min, max=t_max)


@lowers("hard_sigmoid")
def hard_sigmoid(X: Tensor, slope: float, offset: float) -> Tensor:
    return f.clip(X * slope + offset, min=0.0, max=1.0)


@lowers("hard_swish")
def hard_swish(X: Tensor, threshold: float, scale: float, offset: float) -> Tensor:
    return f.clip(X + offset, min=0.0, max=threshold) * X * (1.0 / scale)


@lowers("softshrink")
def softshrink(X: Tensor, attrs: dict[str, Any]) -> Tensor:
    width = attrs["lambda"]
    return X - f.clip(X, min=-width, max=width)


@lowers("hard_shrink")
def hard_shrink(X: Tensor, threshold: float) -> Tensor:
    return chosen(f.abs(X) > threshold, X, 0.0)


@lowers("thresholded_relu")
def thresholded_relu(X: Tensor, threshold: float) -> Tensor:
    return chosen(X > threshold, X, 0.0)


@lowers("prelu")
def prelu(X: Tensor, Alpha: Tensor, mode: str, data_format: str) -> Tensor:
    only_floats(X, Alpha)
    shape = [1] * X.ndim
    if mode == "element":
        shape[1:] = X.shape[1:]
    elif mode == "channel":
        shape[image_axes(data_format, X.ndim)[0]] = Alpha.node.size
    alpha = reshaped(Alpha.node, tuple(shape))
    return chosen(X <= 0.0, Tensor(mapped("mul", X.node, alpha)), X)


# ---------------------------------------------------------------------------------------------------- of exponentials
def _elu(X: Tensor, alpha: float, width: float) -> Tensor:
    """X where it is positive, ``alpha * (exp(X / width) - 1)`` elsewhere."""
    low = at_most(X, 0.0)
    return f.expm1(low if width == 1.0 else low / width) * alpha + at_least(X, 0.0)  # one of the two is 0


@lowers("elu")
def elu(X: Tensor, alpha: float) -> Tensor:
    return _elu(X, alpha, 1.0)


@lowers("celu")
def celu(X: Tensor, alpha: float) -> Tensor:
    return _elu(X, alpha, alpha)


@lowers("selu")
def selu(X: Tensor, scale: float, alpha: float) -> Tensor:
    return _elu(X, alpha, 1.0) * scale


def log1p_exp(x: Tensor) -> Tensor:
    """``log(1 + exp(x))`` without overflow."""
    return f.log1p(f.exp(-f.abs(x))) + at_least(x, 0.0)


@lowers("softplus")
def softplus(X: Tensor, beta: float, threshold: float) -> Tensor:
    scaled = X * beta
    return chosen(scaled > threshold, X, log1p_exp(scaled) / beta)


@lowers("logsigmoid")
def logsigmoid(X: Tensor) -> Tensor:
    return -log1p_exp(-X)


@lowers("soft_relu")
def soft_relu(X: Tensor, threshold: float) -> Tensor:
    return f.log1p(f.exp(f.clip(X, min=-threshold, max=threshold)))


@lowers("mish")
def mish(X: Tensor, threshold: float) -> Tensor:
    return X * f.tanh(f.softplus(X, threshold=threshold))


@lowers("swish")
def swish(X: Tensor, beta: float) -> Tensor:
    return X * f.sigmoid(X * beta)


@lowers("stanh")
def stanh(X: Tensor, scale_a: float, scale_b: float) -> Tensor:
    return f.tanh(X * scale_a) * scale_b


@lowers("tanh_shrink")
def tanh_shrink(X: Tensor) -> Tensor:
    return X - f.tanh(X)


# ------------------------------------------------------------------------------------------- logarithms, powers, angles
@lowers("log2")
def log2(X: Tensor) -> Tensor:
    return f.log(X) * (1.0 / log(2.0))


@lowers("log10")
def log10(X: Tensor) -> Tensor:
    return f.log(X) * (1.0 / log(10.0))


@lowers("tan")
def tan(X: Tensor) -> Tensor:
    return f.sin(X) / f.cos(X)


# --------------------------------------------------------------------------------------------------------------- dropout
@lowers("dropout")
def dropout(
    X: Tensor, Seed: Any, dropout_prob: float, dropout_implementation: str, is_test: bool, specs: dict[str, Any]
) -> dict[str, Tensor]:
    if Seed is not None or specs.get("Mask") is None:
        raise NotLowered("a mask that is not drawn from the op's own numbers, or that has no place")
    mask = Tensor(Drawn(X.shape, BOOL))
    kept = f.assign(X) if is_test else X * mask.astype(X.dtype)
    scale = dropout_scale(dropout_prob, dropout_implementation, is_test)
    return {"Out": kept if scale == 1.0 else kept * scale, "Mask": mask}
