"""Activations and other elementwise functions of one tensor.

A gradient is a formula in the output where that is cheaper to keep (``tanh``), and in the input elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import means
from ..opdef.registry import EXPLICIT, define, least, like
from ..values.spec import Spec
from ..values.types import is_complex, real_of
from .formulas import at_least, at_most, choose, log1p_exp
from .shapes import in_order


def _unary(op_type: str, of: str = "float", **attrs: Any) -> Callable[[Callable[..., Any]], Any]:
    return define(f"{op_type}(X: {of}) -> Out", infer=like("X"), **attrs)


def _where(holds: Any, like: Any) -> Any:
    """1 where `holds`, 0 elsewhere, with the dtype of `like`."""
    return holds.astype(like.dtype)


# ------------------------------------------------------------------------------------------- gradients by the output
@_unary("tanh")
def tanh(f: Any, Out: Any, dOut: Any) -> Any:
    """Hyperbolic tangent."""
    return {"X": dOut * (1.0 - Out * Out)}


@_unary("sigmoid")
def sigmoid(f: Any, Out: Any, dOut: Any) -> Any:
    """``1 / (1 + exp(-X))``."""
    return {"X": dOut * Out * (1.0 - Out)}


@_unary("relu", of="int|float")
def relu(f: Any, Out: Any, dOut: Any) -> Any:
    """``max(X, 0)``."""
    return {"X": dOut * _where(Out > 0.0, dOut)}


@_unary(
    "relu6", of="int|float", threshold=least(0, 6.0), meaning=means(lambda f, X, threshold: f.clip(X, min=0.0, max=threshold))
)
def relu6(f: Any, Out: Any, dOut: Any, threshold: float) -> Any:
    """``min(max(X, 0), threshold)``.

    Args:
        threshold: the upper bound.
    """
    return {"X": dOut * _where(Out > 0.0, dOut) * _where(Out < threshold, dOut)}


@_unary("exp")
def exp(f: Any, Out: Any, dOut: Any) -> Any:
    """``e ** X``."""
    return {"X": dOut * Out}


@_unary("expm1")
def expm1(f: Any, Out: Any, dOut: Any) -> Any:
    """``e ** X - 1``, exact near 0."""
    return {"X": dOut * (Out + 1.0)}


@_unary("sqrt")
def sqrt(f: Any, Out: Any, dOut: Any) -> Any:
    """Square root."""
    return {"X": dOut * 0.5 / Out}


@_unary("rsqrt", meaning=means(lambda f, X: f.reciprocal(f.sqrt(X))))
def rsqrt(f: Any, Out: Any, dOut: Any) -> Any:
    """``1 / sqrt(X)``."""
    return {"X": dOut * -0.5 * Out * Out * Out}


@_unary("reciprocal", of="int|float")
def reciprocal(f: Any, Out: Any, dOut: Any) -> Any:
    """``1 / X``."""
    return {"X": -dOut * Out * Out}


@_unary(
    "hard_sigmoid", slope=0.2, offset=0.5, meaning=means(lambda f, X, slope, offset: f.clip(X * slope + offset, min=0.0, max=1.0))
)
def hard_sigmoid(f: Any, Out: Any, dOut: Any, slope: float) -> Any:
    """``slope * X + offset``, clipped to ``[0, 1]``.

    Args:
        slope: of the line.
        offset: its value at 0.
    """
    return {"X": dOut * slope * _where(Out > 0.0, dOut) * _where(Out < 1.0, dOut)}


def _elu_of_width(f: Any, x: Any, alpha: float, width: float) -> Any:
    """x where it is positive, ``alpha * (exp(x / width) - 1)`` elsewhere."""
    low = at_most(f, x, 0.0)
    return f.expm1(low if width == 1.0 else low / width) * alpha + at_least(f, x, 0.0)  # one of the two is 0


@_unary(
    "selu",
    scale=1.0507010221481323,
    alpha=1.6732631921768188,
    composition=means(lambda f, X, scale, alpha: _elu_of_width(f, X, alpha, 1.0) * scale),
)
def selu(f: Any, Out: Any, dOut: Any, scale: float, alpha: float) -> Any:
    """``scale * X`` where X is positive, ``scale * alpha * (exp(X) - 1)`` elsewhere.

    Formula: Klambauer et al., Self-Normalizing Neural Networks, 2017.

    Args:
        scale, alpha: by default such that mean 0 and variance 1 are kept from layer to layer.
    """
    positive = _where(Out > 0.0, dOut)
    return {"X": dOut * (positive * scale + (1.0 - positive) * (Out + scale * alpha))}


@_unary(
    "soft_relu",
    threshold=least(0, 40.0),
    composition=means(lambda f, X, threshold: f.log1p(f.exp(f.clip(X, min=-threshold, max=threshold)))),
)
def soft_relu(f: Any, Out: Any, dOut: Any, threshold: float) -> Any:
    """``log(1 + exp(X))``, with X first clipped to ``[-threshold, threshold]``.

    Args:
        threshold: the bound of the absolute value of X.
    """
    lowest, highest = math.log1p(math.exp(-threshold)), threshold + math.log1p(math.exp(-threshold))
    middle = _where(Out > lowest * (1.0 + 1e-6), dOut) * _where(Out < highest * (1.0 - 1e-6), dOut)  # allows for rounding
    return {"X": dOut * middle * (1.0 - f.exp(-Out))}


# -------------------------------------------------------------------------------------------- gradients by the input
@define("abs(X: int|float) -> Out", infer=lambda X: X.with_dtype(real_of(X.dtype)), complex_rule=EXPLICIT)
def abs_(f: Any, X: Any, dOut: Any) -> Any:
    """Absolute value; it is real for complex numbers."""
    if not is_complex(X.dtype):
        return {"X": dOut * f.sign(X)}
    length = f.abs(X)
    at_zero = f.equal(length, f.fill_zeros_like(length)).astype(length.dtype)
    return {"X": (dOut / (length + at_zero)).astype(X.dtype) * X}


@_unary("square", of="int|float", meaning=means(lambda f, X: X * X))
def square(f: Any, X: Any, dOut: Any) -> Any:
    """``X * X``."""
    return {"X": dOut * X * 2.0}


@_unary("log")
def log(f: Any, X: Any, dOut: Any) -> Any:
    """Natural logarithm."""
    return {"X": dOut / X}


@_unary("log2", meaning=means(lambda f, X: f.log(X) * (1.0 / math.log(2.0))))
def log2(f: Any, X: Any, dOut: Any) -> Any:
    """Logarithm to base 2."""
    return {"X": dOut / X * (1.0 / math.log(2.0))}


@_unary("log10", meaning=means(lambda f, X: f.log(X) * (1.0 / math.log(10.0))))
def log10(f: Any, X: Any, dOut: Any) -> Any:
    """Logarithm to base 10."""
    return {"X": dOut / X * (1.0 / math.log(10.0))}


@_unary("log1p")
def log1p(f: Any, X: Any, dOut: Any) -> Any:
    """``log(1 + X)``, exact near 0."""
    return {"X": dOut / (X + 1.0)}


@_unary("sin")
def sin(f: Any, X: Any, dOut: Any) -> Any:
    """Sine."""
    return {"X": dOut * f.cos(X)}


@_unary("cos")
def cos(f: Any, X: Any, dOut: Any) -> Any:
    """Cosine."""
    return {"X": -dOut * f.sin(X)}


@_unary("tan", meaning=means(lambda f, X: f.sin(X) / f.cos(X)))
def tan(f: Any, X: Any, dOut: Any) -> Any:
    """Tangent."""
    return {"X": dOut / f.square(f.cos(X))}


@_unary("asin")
def asin(f: Any, X: Any, dOut: Any) -> Any:
    """Inverse sine."""
    return {"X": dOut * f.rsqrt(1.0 - X * X)}


@_unary("acos")
def acos(f: Any, X: Any, dOut: Any) -> Any:
    """Inverse cosine."""
    return {"X": -dOut * f.rsqrt(1.0 - X * X)}


@_unary("atan")
def atan(f: Any, X: Any, dOut: Any) -> Any:
    """Inverse tangent."""
    return {"X": dOut / (X * X + 1.0)}


@_unary("sinh")
def sinh(f: Any, X: Any, dOut: Any) -> Any:
    """Hyperbolic sine."""
    return {"X": dOut * f.cosh(X)}


@_unary("cosh")
def cosh(f: Any, X: Any, dOut: Any) -> Any:
    """Hyperbolic cosine."""
    return {"X": dOut * f.sinh(X)}


@_unary("asinh")
def asinh(f: Any, X: Any, dOut: Any) -> Any:
    """Inverse hyperbolic sine."""
    return {"X": dOut * f.rsqrt(X * X + 1.0)}


@_unary("acosh")
def acosh(f: Any, X: Any, dOut: Any) -> Any:
    """Inverse hyperbolic cosine."""
    return {"X": dOut * f.rsqrt(X * X - 1.0)}


@_unary("atanh")
def atanh(f: Any, X: Any, dOut: Any) -> Any:
    """Inverse hyperbolic tangent."""
    return {"X": dOut / (1.0 - X * X)}


@_unary("erf")
def erf(f: Any, X: Any, dOut: Any) -> Any:
    """The error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t * t)`` from 0 to X."""
    return {"X": dOut * f.exp(-(X * X)) * (2.0 / math.sqrt(math.pi))}


@_unary("leaky_relu", alpha=0.02, meaning=means(lambda f, X, alpha: choose(f, X > 0.0, X, X * alpha)))
def leaky_relu(f: Any, X: Any, dOut: Any, alpha: float) -> Any:
    """X where it is positive, ``alpha * X`` elsewhere.

    Args:
        alpha: the slope where X is negative.
    """
    return {"X": dOut * (_where(X > 0.0, dOut) * (1.0 - alpha) + alpha)}


@_unary("elu", alpha=1.0, composition=means(lambda f, X, alpha: _elu_of_width(f, X, alpha, 1.0)))
def elu(f: Any, X: Any, Out: Any, dOut: Any, alpha: float) -> Any:
    """X where it is positive, ``alpha * (exp(X) - 1)`` elsewhere.

    Formula: Clevert, Unterthiner and Hochreiter, Fast and Accurate Deep Network Learning by Exponential Linear Units, 2016.

    Args:
        alpha: minus the limit for large negative X.
    """
    positive = _where(X > 0.0, dOut)
    return {"X": dOut * (positive + (1.0 - positive) * (Out + alpha))}


def _celu(X: Spec, alpha: float) -> Spec:
    if alpha == 0:
        raise InferenceError(f"alpha {alpha}, by which X {X} is divided, should not be 0")
    return X


def _softplus(X: Spec, beta: float) -> Spec:
    if beta == 0:
        raise InferenceError(f"beta {beta}, by which the logarithm of X {X} is divided, should not be 0")
    return X


@define("celu(X: float) -> Out", infer=_celu, alpha=1.0, meaning=means(lambda f, X, alpha: _elu_of_width(f, X, alpha, alpha)))
def celu(f: Any, X: Any, dOut: Any, alpha: float) -> Any:
    """X where it is positive, ``alpha * (exp(X / alpha) - 1)`` elsewhere.

    Formula: Barron, Continuously Differentiable Exponential Linear Units, 2017.

    Args:
        alpha: minus the limit for large negative X; not 0.
    """
    return {"X": dOut * f.exp(f.relu(-X) * (-1.0 / alpha))}  # cannot overflow


GELU_TANH = math.sqrt(2.0 / math.pi), 0.044715
"""a and b of gelu's approximation ``X / 2 * (1 + tanh(a * (X + b * X ** 3)))``."""


def _gelu_formula(f: Any, X: Any, approximate: bool) -> Any:
    a, b = GELU_TANH
    share = f.tanh(X * (X * X * b + 1.0) * a) if approximate else f.erf(X * math.sqrt(0.5))
    return (share + 1.0) * 0.5 * X


@_unary("gelu", approximate=False, meaning=means(_gelu_formula))
def gelu(f: Any, X: Any, dOut: Any, approximate: bool) -> Any:
    """X times the probability that a standard normal variable is below X; if `approximate`, by a formula with tanh.

    Formula: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.

    Args:
        approximate: whether to compute ``0.5 * X * (1 + tanh(sqrt(2 / pi) * (X + 0.044715 * X ** 3)))``.
    """
    if not approximate:
        density = f.exp(X * X * -0.5) * (1.0 / math.sqrt(2.0 * math.pi))
        return {"X": dOut * (f.erf(X * math.sqrt(0.5)) * 0.5 + 0.5 + X * density)}
    a, b = GELU_TANH
    square = X * X
    bent = f.tanh(X * (square * b + 1.0) * a)
    return {"X": dOut * ((bent + 1.0) * 0.5 + X * (1.0 - bent * bent) * (square * (3.0 * b) + 1.0) * (0.5 * a))}


def _softplus_formula(f: Any, X: Any, beta: float, threshold: float) -> Any:
    scaled = X * beta
    return choose(f, scaled > threshold, X, log1p_exp(f, scaled) / beta)


@define("softplus(X: float) -> Out", infer=_softplus, beta=1.0, threshold=20.0, composition=means(_softplus_formula))
def softplus(f: Any, X: Any, dOut: Any, beta: float, threshold: float) -> Any:
    """``log(1 + exp(beta * X)) / beta``, and X itself where ``beta * X`` is above `threshold`.

    Args:
        beta: how sharp the bend at 0 is.
        threshold: from here on, ``beta * X`` is taken to be its own softplus.
    """
    linear = _where(X * beta > threshold, dOut)
    return {"X": dOut * (linear + (1.0 - linear) * f.sigmoid(X * beta))}


@_unary("softsign", meaning=means(lambda f, X: X / (f.abs(X) + 1.0)))
def softsign(f: Any, X: Any, dOut: Any) -> Any:
    """``X / (1 + abs(X))``."""
    return {"X": dOut / f.square(f.abs(X) + 1.0)}


@_unary("logsigmoid", composition=means(lambda f, X: -log1p_exp(f, -X)))
def logsigmoid(f: Any, X: Any, dOut: Any) -> Any:
    """The logarithm of `sigmoid`."""
    return {"X": dOut * f.sigmoid(-X)}


@_unary("swish", beta=1.0, composition=means(lambda f, X, beta: X * f.sigmoid(X * beta)))
def swish(f: Any, X: Any, dOut: Any, beta: float) -> Any:
    """``X * sigmoid(beta * X)``.

    Formula: Ramachandran, Zoph and Le, Searching for Activation Functions, 2017.

    Args:
        beta: factor of X in the sigmoid.
    """
    gate = f.sigmoid(X * beta)
    return {"X": dOut * gate * (1.0 + X * beta * (1.0 - gate))}


@_unary("silu", composition=means(lambda f, X: X * f.sigmoid(X)))
def silu(f: Any, X: Any, Out: Any, dOut: Any) -> Any:
    """``X * sigmoid(X)``."""
    return {"X": dOut * f.sigmoid(X) * (X - Out + 1.0)}


@_unary("mish", threshold=20.0, composition=means(lambda f, X, threshold: X * f.tanh(f.softplus(X, threshold=threshold))))
def mish(f: Any, X: Any, dOut: Any, threshold: float) -> Any:
    """``X * tanh(softplus(X))``, with the threshold of `softplus`.

    Formula: Misra, Mish: A Self Regularized Non-Monotonic Activation Function, 2019.

    Args:
        threshold: where `softplus` becomes X itself.
    """
    linear = _where(X > threshold, dOut)
    bent = f.tanh(f.softplus(X, threshold=threshold))
    slope = linear + (1.0 - linear) * f.sigmoid(X)
    return {"X": dOut * (bent + X * (1.0 - bent * bent) * slope)}


@_unary(
    "hard_swish",
    threshold=6.0,
    scale=least(1e-12, 6.0),
    offset=3.0,
    composition=means(lambda f, X, threshold, scale, offset: f.clip(X + offset, min=0.0, max=threshold) * X * (1.0 / scale)),
)
def hard_swish(f: Any, X: Any, dOut: Any, threshold: float, scale: float, offset: float) -> Any:
    """``X / scale`` times ``X + offset`` clipped to ``[0, threshold]``.

    Formula: Howard et al., Searching for MobileNetV3, 2019.

    Args:
        threshold: the upper bound of ``X + offset``.
        scale: the divisor of the product.
        offset: the number added to X.
    """
    above, middle = _where(X + offset >= threshold, dOut), _where(X + offset > 0.0, dOut) * _where(X + offset < threshold, dOut)
    return {"X": dOut * (above * threshold + middle * (X * 2.0 + offset)) * (1.0 / scale)}


@_unary("tanh_shrink", composition=means(lambda f, X: X - f.tanh(X)))
def tanh_shrink(f: Any, X: Any, dOut: Any) -> Any:
    """``X - tanh(X)``."""
    return {"X": dOut * f.square(f.tanh(X))}


@_unary(
    "softshrink",
    "float",
    **{"lambda": least(0, 0.5)},
    meaning=means(lambda f, X, lambda_: X - f.clip(X, min=-lambda_, max=lambda_)),
)
def softshrink(f: Any, X: Any, dOut: Any, lambda_: float) -> Any:
    """X moved towards 0 by `lambda`; 0 where its absolute value is below that.

    Args:
        lambda: what X is moved by, at least 0.
    """
    return {"X": dOut * _where(f.abs(X) > lambda_, dOut)}


@_unary("hard_shrink", threshold=0.5, meaning=means(lambda f, X, threshold: choose(f, f.abs(X) > threshold, X, 0.0)))
def hard_shrink(f: Any, X: Any, dOut: Any, threshold: float) -> Any:
    """X where its absolute value is above `threshold`, 0 elsewhere.

    Args:
        threshold: the largest absolute value that becomes 0.
    """
    return {"X": dOut * _where(f.abs(X) > threshold, dOut)}


@_unary("thresholded_relu", threshold=1.0, meaning=means(lambda f, X, threshold: choose(f, X > threshold, X, 0.0)))
def thresholded_relu(f: Any, X: Any, dOut: Any, threshold: float) -> Any:
    """X where it is above `threshold`, 0 elsewhere.

    Args:
        threshold: X up to this becomes 0.
    """
    return {"X": dOut * _where(X > threshold, dOut)}


def _brelu(X: Spec, t_min: float, t_max: float) -> Spec:
    in_order("t_min", t_min, "t_max", t_max)
    return X


@define(
    "brelu(X: int|float) -> Out",
    infer=_brelu,
    t_min=0.0,
    t_max=24.0,
    meaning=means(lambda f, X, t_min, t_max: f.clip(X, min=t_min, max=t_max)),
)
def brelu(f: Any, X: Any, dOut: Any, t_min: float, t_max: float) -> Any:
    """X clipped to ``[t_min, t_max]``.

    Args:
        t_min, t_max: the bounds; `t_min` is not above `t_max`.
    """
    return {"X": dOut * _where(X > t_min, dOut) * _where(X < t_max, dOut)}


@_unary("stanh", scale_a=0.67, scale_b=1.7159, meaning=means(lambda f, X, scale_a, scale_b: f.tanh(X * scale_a) * scale_b))
def stanh(f: Any, X: Any, dOut: Any, scale_a: float, scale_b: float) -> Any:
    """``scale_b * tanh(scale_a * X)``.

    Args:
        scale_a: factor of X.
        scale_b: factor of the result.
    """
    return {"X": dOut * (1.0 - f.square(f.tanh(X * scale_a))) * (scale_a * scale_b)}


# --------------------------------------------------------------------------------------------------------- steps
@_unary("floor", of="int|real")
def floor(f: Any, dOut: Any) -> Any:
    """The largest integer that is not above X."""
    return {"X": f.fill_zeros_like(dOut)}


@_unary("ceil", of="int|real")
def ceil(f: Any, dOut: Any) -> Any:
    """The smallest integer that is not below X."""
    return {"X": f.fill_zeros_like(dOut)}


@_unary("round", of="int|float")
def round_(f: Any, dOut: Any) -> Any:
    """The integer nearest to X; halves are rounded away from 0."""
    return {"X": f.fill_zeros_like(dOut)}


def _half_to_even(f: Any, X: Any) -> Any:
    below = f.floor(X)
    even = f.floor(below * 0.5 + 0.5) * 2.0
    return f.where(f.equal(X - below, f.fill_any_like(X, value=0.5)), even, f.round(X))


@_unary("rint", inline_grad=True, meaning=means(_half_to_even))
def rint(f: Any, dOut: Any) -> Any:
    """The integer nearest to X; halves are rounded to the even one."""
    return {"X": f.fill_zeros_like(dOut)}


@_unary("sign", of="int|real", inline_grad=True)
def sign(f: Any, dOut: Any) -> Any:
    """-1 where X is negative, 1 where it is positive, 0 where it is 0."""
    return {"X": f.fill_zeros_like(dOut)}
