"""Layers of one op each. Do not edit: ``python -m fluid.layers.generate`` writes this file from the op definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..framework import Variable
from ..layer_helper import apply

__all__ = [  # noqa: RUF022  (in the order of the functions)
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "brelu",
    "ceil",
    "celu",
    "cos",
    "cosh",
    "elementwise_add",
    "elementwise_div",
    "elementwise_floordiv",
    "elementwise_max",
    "elementwise_min",
    "elementwise_mod",
    "elementwise_mul",
    "elementwise_pow",
    "elementwise_sub",
    "elu",
    "equal",
    "erf",
    "exp",
    "expm1",
    "floor",
    "gelu",
    "greater_equal",
    "greater_than",
    "hard_shrink",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "less_equal",
    "less_than",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsigmoid",
    "mish",
    "not_equal",
    "reciprocal",
    "reduce_all",
    "reduce_amax",
    "reduce_amin",
    "reduce_any",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "relu",
    "relu6",
    "round",
    "rsqrt",
    "selu",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "soft_relu",
    "softplus",
    "softshrink",
    "softsign",
    "sqrt",
    "square",
    "stanh",
    "swish",
    "tan",
    "tanh",
    "tanh_shrink",
    "thresholded_relu",
]


def _reduce(op_type: str, input: Variable, dim: int | Sequence[int] | None, keep_dim: bool, name: str | None) -> Variable:
    attrs: dict[str, Any] = {"keep_dim": keep_dim}
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        attrs["reduce_all"] = True
    else:
        attrs["dim"] = [dim] if isinstance(dim, int) else list(dim)
    return apply(op_type, {"X": input}, attrs, name=name)


def _compare(op_type: str, x: Variable, y: Variable, cond: Variable | None) -> Variable:
    found = apply(op_type, {"X": x, "Y": y}, outputs={"Out": cond})
    found.stop_gradient = True
    return found


def _given(attrs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if value is not None}


def abs(x: Variable, name: str | None = None) -> Variable:
    """Absolute value."""
    return apply("abs", {"X": x}, name=name)


def acos(x: Variable, name: str | None = None) -> Variable:
    """Inverse cosine."""
    return apply("acos", {"X": x}, name=name)


def acosh(x: Variable, name: str | None = None) -> Variable:
    """Inverse hyperbolic cosine."""
    return apply("acosh", {"X": x}, name=name)


def asin(x: Variable, name: str | None = None) -> Variable:
    """Inverse sine."""
    return apply("asin", {"X": x}, name=name)


def asinh(x: Variable, name: str | None = None) -> Variable:
    """Inverse hyperbolic sine."""
    return apply("asinh", {"X": x}, name=name)


def atan(x: Variable, name: str | None = None) -> Variable:
    """Inverse tangent."""
    return apply("atan", {"X": x}, name=name)


def atanh(x: Variable, name: str | None = None) -> Variable:
    """Inverse hyperbolic tangent."""
    return apply("atanh", {"X": x}, name=name)


def brelu(x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """X brought into ``[t_min, t_max]``."""
    return apply("brelu", {"X": x}, {"t_min": t_min, "t_max": t_max}, name=name)


def ceil(x: Variable, name: str | None = None) -> Variable:
    """The smallest whole number that is not below X."""
    return apply("ceil", {"X": x}, name=name)


def celu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """X where it is positive, ``alpha * (exp(X / alpha) - 1)`` elsewhere."""
    return apply("celu", {"X": x}, {"alpha": alpha}, name=name)


def cos(x: Variable, name: str | None = None) -> Variable:
    """Cosine."""
    return apply("cos", {"X": x}, name=name)


def cosh(x: Variable, name: str | None = None) -> Variable:
    """Hyperbolic cosine."""
    return apply("cosh", {"X": x}, name=name)


def elementwise_add(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``X + Y``; the smaller operand's first dimension stands at `axis` of the larger one, -1 aligns the last ones."""
    return apply("elementwise_add", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_div(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``X / Y``, of integers cut towards zero; operands are aligned as in `elementwise_add`."""
    return apply("elementwise_div", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_floordiv(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The largest whole number that is not above ``X / Y``; operands are aligned as in `elementwise_add`."""
    return apply("elementwise_floordiv", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_max(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The larger of X and Y, aligned as in `elementwise_add`. Where they are equal, the gradient goes to Y."""
    return apply("elementwise_max", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_min(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The smaller of X and Y, aligned as in `elementwise_add`. Where they are equal, the gradient goes to Y."""
    return apply("elementwise_min", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_mod(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The remainder of ``X / Y``, with the sign of Y; operands are aligned as in `elementwise_add`."""
    return apply("elementwise_mod", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_mul(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``X * Y``; operands are aligned as in `elementwise_add`."""
    return apply("elementwise_mul", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_pow(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``X ** Y``; operands are aligned as in `elementwise_add`. With respect to Y, the gradient at ``X = 0`` is 0."""
    return apply("elementwise_pow", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_sub(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``X - Y``; operands are aligned as in `elementwise_add`."""
    return apply("elementwise_sub", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """X where it is positive, ``alpha * (exp(X) - 1)`` elsewhere."""
    return apply("elu", {"X": x}, {"alpha": alpha}, name=name)


def equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``X == Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("equal", x, y, cond)


def erf(x: Variable, name: str | None = None) -> Variable:
    """The error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t * t)`` from 0 to X."""
    return apply("erf", {"X": x}, name=name)


def exp(x: Variable, name: str | None = None) -> Variable:
    """``e ** X``."""
    return apply("exp", {"X": x}, name=name)


def expm1(x: Variable, name: str | None = None) -> Variable:
    """``e ** X - 1``, exact near 0."""
    return apply("expm1", {"X": x}, name=name)


def floor(x: Variable, name: str | None = None) -> Variable:
    """The largest whole number that is not above X."""
    return apply("floor", {"X": x}, name=name)


def gelu(x: Variable, approximate: bool = False, name: str | None = None) -> Variable:
    """X times the probability that a normal variable is below X; by a formula with tanh if `approximate`."""
    return apply("gelu", {"X": x}, {"approximate": approximate}, name=name)


def greater_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``X >= Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("greater_equal", x, y, cond)


def greater_than(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``X > Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("greater_than", x, y, cond)


def hard_shrink(x: Variable, threshold: float | None = None, name: str | None = None) -> Variable:
    """X where its absolute value is above `threshold`, 0 elsewhere."""
    return apply("hard_shrink", {"X": x}, _given({"threshold": threshold}), name=name)


def hard_sigmoid(x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None) -> Variable:
    """``slope * X + offset``, brought into ``[0, 1]``."""
    return apply("hard_sigmoid", {"X": x}, {"slope": slope, "offset": offset}, name=name)


def hard_swish(x: Variable, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0, name: str | None = None) -> Variable:
    """``X / scale`` times ``X + offset`` brought into ``[0, threshold]``."""
    return apply("hard_swish", {"X": x}, {"threshold": threshold, "scale": scale, "offset": offset}, name=name)


def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """X where it is positive, ``alpha * X`` elsewhere."""
    return apply("leaky_relu", {"X": x}, {"alpha": alpha}, name=name)


def less_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``X <= Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("less_equal", x, y, cond)


def less_than(x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None) -> Variable:
    """``X < Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("less_than", x, y, cond)


def log(x: Variable, name: str | None = None) -> Variable:
    """Natural logarithm."""
    return apply("log", {"X": x}, name=name)


def log10(x: Variable, name: str | None = None) -> Variable:
    """Logarithm to base 10."""
    return apply("log10", {"X": x}, name=name)


def log1p(x: Variable, name: str | None = None) -> Variable:
    """``log(1 + X)``, exact near 0."""
    return apply("log1p", {"X": x}, name=name)


def log2(x: Variable, name: str | None = None) -> Variable:
    """Logarithm to base 2."""
    return apply("log2", {"X": x}, name=name)


def logical_and(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``X and Y``, as bools; what is not zero counts as true."""
    return apply("logical_and", {"X": x, "Y": y}, name=name, outputs={"Out": out})


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``not X``, as bools; what is not zero counts as true."""
    return apply("logical_not", {"X": x}, name=name, outputs={"Out": out})


def logical_or(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``X or Y``, as bools; what is not zero counts as true."""
    return apply("logical_or", {"X": x, "Y": y}, name=name, outputs={"Out": out})


def logical_xor(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``X or Y, but not both``, as bools; what is not zero counts as true."""
    return apply("logical_xor", {"X": x, "Y": y}, name=name, outputs={"Out": out})


def logsigmoid(x: Variable, name: str | None = None) -> Variable:
    """The logarithm of `sigmoid`."""
    return apply("logsigmoid", {"X": x}, name=name)


def mish(x: Variable, threshold: float = 20.0, name: str | None = None) -> Variable:
    """``X * tanh(softplus(X))``, with the threshold of `softplus`."""
    return apply("mish", {"X": x}, {"threshold": threshold}, name=name)


def not_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``X != Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("not_equal", x, y, cond)


def reciprocal(x: Variable, name: str | None = None) -> Variable:
    """``1 / X``."""
    return apply("reciprocal", {"X": x}, name=name)


def reduce_all(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Whether all bools of X hold over the dimensions `dim`, or over all dimensions."""
    return _reduce("reduce_all", input, dim, keep_dim, name)


def reduce_amax(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """As `reduce_max`, but elements that are equally large share the gradient in equal parts."""
    return _reduce("reduce_amax", input, dim, keep_dim, name)


def reduce_amin(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """As `reduce_min`, but elements that are equally small share the gradient in equal parts."""
    return _reduce("reduce_amin", input, dim, keep_dim, name)


def reduce_any(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Whether any bool of X holds over the dimensions `dim`, or over all dimensions."""
    return _reduce("reduce_any", input, dim, keep_dim, name)


def reduce_max(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The largest element of X over the dimensions `dim`, or over all. The gradient goes to every element that is largest."""
    return _reduce("reduce_max", input, dim, keep_dim, name)


def reduce_mean(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The mean of X over the dimensions `dim`, or over all; `keep_dim` leaves ones in their places."""
    return _reduce("reduce_mean", input, dim, keep_dim, name)


def reduce_min(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The smallest element of X over the dimensions `dim`, or over all. The gradient goes to every element that is smallest."""
    return _reduce("reduce_min", input, dim, keep_dim, name)


def reduce_prod(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The product of X over the dimensions `dim`, or over all. The gradient of a factor is the product of the others."""
    return _reduce("reduce_prod", input, dim, keep_dim, name)


def reduce_sum(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The sum of X over the dimensions `dim`, or over all; `keep_dim` leaves ones in their places."""
    return _reduce("reduce_sum", input, dim, keep_dim, name)


def relu(x: Variable, name: str | None = None) -> Variable:
    """``max(X, 0)``."""
    return apply("relu", {"X": x}, name=name)


def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """``min(max(X, 0), threshold)``."""
    return apply("relu6", {"X": x}, {"threshold": threshold}, name=name)


def round(x: Variable, name: str | None = None) -> Variable:
    """The whole number nearest to X; of two equally near ones, that away from 0."""
    return apply("round", {"X": x}, name=name)


def rsqrt(x: Variable, name: str | None = None) -> Variable:
    """``1 / sqrt(X)``."""
    return apply("rsqrt", {"X": x}, name=name)


def selu(x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None) -> Variable:
    """``scale * X`` where X is positive, ``scale * alpha * (exp(X) - 1)`` elsewhere."""
    return apply("selu", {"X": x}, _given({"scale": scale, "alpha": alpha}), name=name)


def sigmoid(x: Variable, name: str | None = None) -> Variable:
    """``1 / (1 + exp(-X))``."""
    return apply("sigmoid", {"X": x}, name=name)


def sign(x: Variable, name: str | None = None) -> Variable:
    """-1 where X is negative, 1 where it is positive, 0 where it is 0."""
    return apply("sign", {"X": x}, name=name)


def silu(x: Variable, name: str | None = None) -> Variable:
    """``X * sigmoid(X)``."""
    return apply("silu", {"X": x}, name=name)


def sin(x: Variable, name: str | None = None) -> Variable:
    """Sine."""
    return apply("sin", {"X": x}, name=name)


def sinh(x: Variable, name: str | None = None) -> Variable:
    """Hyperbolic sine."""
    return apply("sinh", {"X": x}, name=name)


def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """``log(1 + exp(X))``, with X first brought into ``[-threshold, threshold]``."""
    return apply("soft_relu", {"X": x}, {"threshold": threshold}, name=name)


def softplus(x: Variable, beta: float = 1.0, threshold: float = 20.0, name: str | None = None) -> Variable:
    """``log(1 + exp(beta * X)) / beta``, and X itself where ``beta * X`` is above `threshold`."""
    return apply("softplus", {"X": x}, {"beta": beta, "threshold": threshold}, name=name)


def softshrink(x: Variable, alpha: float | None = None, name: str | None = None) -> Variable:
    """X brought towards 0 by `lambda`, and 0 where that would pass it."""
    return apply("softshrink", {"X": x}, _given({"lambda": alpha}), name=name)


def softsign(x: Variable, name: str | None = None) -> Variable:
    """``X / (1 + abs(X))``."""
    return apply("softsign", {"X": x}, name=name)


def sqrt(x: Variable, name: str | None = None) -> Variable:
    """Square root."""
    return apply("sqrt", {"X": x}, name=name)


def square(x: Variable, name: str | None = None) -> Variable:
    """``X * X``."""
    return apply("square", {"X": x}, name=name)


def stanh(x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None) -> Variable:
    """``scale_b * tanh(scale_a * X)``."""
    return apply("stanh", {"X": x}, {"scale_a": scale_a, "scale_b": scale_b}, name=name)


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """``X * sigmoid(beta * X)``."""
    return apply("swish", {"X": x}, {"beta": beta}, name=name)


def tan(x: Variable, name: str | None = None) -> Variable:
    """Tangent."""
    return apply("tan", {"X": x}, name=name)


def tanh(x: Variable, name: str | None = None) -> Variable:
    """Hyperbolic tangent."""
    return apply("tanh", {"X": x}, name=name)


def tanh_shrink(x: Variable, name: str | None = None) -> Variable:
    """``X - tanh(X)``."""
    return apply("tanh_shrink", {"X": x}, name=name)


def thresholded_relu(x: Variable, threshold: float | None = None, name: str | None = None) -> Variable:
    """X where it is above `threshold`, 0 elsewhere."""
    return apply("thresholded_relu", {"X": x}, _given({"threshold": threshold}), name=name)
