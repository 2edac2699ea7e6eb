"""Kernels of `fluid.ops.activation`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, pi
from typing import Any

from fluid.ops.activation import GELU_TANH

from .elementwise import negation, scalar
from .manipulation import ranges
from .table import Call, OutArray, kernel, prepared

_LARGE = 8192
"""The least number of elements for numpy's clip: it is slow to start, but then faster than its maximum with a number."""


def at_least(xp: Any, X: Any, low: float, out: Any) -> Call:
    """The call that brings elements below `low` up to it."""
    if X.size >= _LARGE and X.dtype.kind == "f":
        return partial(xp.clip, X, scalar(xp, low, X.dtype), scalar(xp, inf, X.dtype), out)
    return partial(xp.maximum, X, scalar(xp, low, X.dtype), out=out)


def _numbered(xp: Any, ufunc: str, number: float, out: Any) -> Call:
    """The call ``out = ufunc(out, number)``."""
    return partial(getattr(xp, ufunc), out, scalar(xp, number, out.dtype), out)


# ---------------------------------------------------------------------------------------------------------- one ufunc
def _ufunc(op_type: str, name: str) -> None:
    @prepared(op_type, inplace={"Out": "X"})
    def bind(xp: Any, X: Any, Out: Any) -> Call:
        return partial(getattr(xp, name), X, Out)


for _op in ("tanh", "exp", "sqrt", "reciprocal", "square", "log", "log2", "log10", "log1p", "sin", "cos", "tan"):
    _ufunc(_op, _op)
for _op in ("sinh", "cosh", "sign", "floor", "ceil", "rint"):
    _ufunc(_op, _op)
for _op, _name in {"abs": "absolute", "asin": "arcsin", "acos": "arccos", "atan": "arctan"}.items():
    _ufunc(_op, _name)
for _op, _name in {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}.items():
    _ufunc(_op, _name)


# -------------------------------------------------------------------------------------------------- several ufuncs
def _complex_expm1(xp: Any, X: Any, Out: OutArray) -> None:
    """Compute exp(X) - 1; numpy's expm1 (2.4.6) makes NaN of infinite parts, and -0.0 of 0.0."""
    plain, zero = xp.exp(X) - 1, X == 0
    xp.expm1(X, Out)
    xp.copyto(Out, plain, where=zero | ~xp.isfinite(Out))


@prepared("expm1", inplace={"Out": "X"})
def expm1(xp: Any, X: Any, Out: Any) -> Call:
    return partial(_complex_expm1, xp, X, Out) if X.dtype.kind == "c" else partial(xp.expm1, X, Out)


def sigmoid_of(xp: Any, x: Any) -> Any:
    """The sigmoid as a new array, exact to its last bits where it is near 0."""
    small = xp.exp(-xp.abs(x))
    return xp.where(x < 0, small, 1) / (1 + small)


def sigmoid_calls(xp: Any, X: Any, Out: Any) -> list[Call]:
    """Calls that compute the sigmoid, exact to its last bits where it is near 0; 0 where exp(-x) overflows."""
    return [
        negation(xp, X, Out),
        partial(xp.exp, Out, Out),
        _numbered(xp, "add", 1.0, Out),
        partial(xp.true_divide, scalar(xp, 1.0, Out.dtype), Out, Out),
    ]


@prepared("sigmoid", inplace={"Out": "X"})
def sigmoid(xp: Any, X: Any, Out: Any) -> list[Call]:
    return sigmoid_calls(xp, X, Out)


@prepared("relu", inplace={"Out": "X"})
def relu(xp: Any, X: Any, Out: Any) -> Call:
    return at_least(xp, X, 0.0, Out)


def _between(xp: Any, X: Any, low: float, high: float, out: Any) -> Call:
    return partial(xp.clip, X, scalar(xp, low, X.dtype), scalar(xp, high, X.dtype), out)


@prepared("relu6", inplace={"Out": "X"})
def relu6(xp: Any, X: Any, threshold: float, Out: Any) -> Call:
    return _between(xp, X, 0.0, threshold, Out)


@prepared("brelu", inplace={"Out": "X"})
def brelu(xp: Any, X: Any, t_min: float, t_max: float, Out: Any) -> Call:
    return _between(xp, X, t_min, t_max, Out)


@prepared("hard_sigmoid", inplace={"Out": "X"})
def hard_sigmoid(xp: Any, X: Any, slope: float, offset: float, Out: Any) -> list[Call]:
    scaled = partial(xp.multiply, X, scalar(xp, slope, X.dtype), Out)
    return [scaled, _numbered(xp, "add", offset, Out), _between(xp, Out, 0.0, 1.0, Out)]


@prepared("leaky_relu")
def leaky_relu(xp: Any, X: Any, alpha: float, Out: Any) -> list[Call]:
    scaled = partial(xp.multiply, X, scalar(xp, alpha, X.dtype), Out)
    return [scaled, partial(xp.maximum if alpha <= 1.0 else xp.minimum, X, Out, out=Out)]


@prepared("rsqrt", inplace={"Out": "X"})
def rsqrt(xp: Any, X: Any, Out: Any) -> list[Call]:
    return [partial(xp.sqrt, X, Out), partial(xp.true_divide, scalar(xp, 1.0, X.dtype), Out, Out)]


@prepared("softsign")
def softsign(xp: Any, X: Any, Out: Any) -> list[Call]:
    return [partial(xp.absolute, X, Out), _numbered(xp, "add", 1.0, Out), partial(xp.true_divide, X, Out, Out)]


@prepared("softshrink")
def softshrink(xp: Any, X: Any, lambda_: float, Out: Any) -> list[Call]:
    return [_between(xp, X, -lambda_, lambda_, Out), partial(xp.subtract, X, Out, Out)]


@prepared("stanh", inplace={"Out": "X"})
def stanh(xp: Any, X: Any, scale_a: float, scale_b: float, Out: Any) -> list[Call]:
    scaled = partial(xp.multiply, X, scalar(xp, scale_a, X.dtype), Out)
    return [scaled, partial(xp.tanh, Out, Out), _numbered(xp, "multiply", scale_b, Out)]


# ----------------------------------------------------------------------------------------------------------- formulas
_PART = 1 << 15
"""Elements that formulas take at a time, few enough for their intermediate results to stay in a near cache."""


def _formula(op_type: str, into: str = "Out") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that gives the result, rather than writing it, of flat arrays (X, dOut) and attributes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        from inspect import Parameter, signature

        def compute(xp: Any, **operands: Any) -> None:
            out = operands.pop(into).reshape(-1)
            arrays = {name: value.reshape(-1) for name, value in operands.items() if name in ("X", "dOut")}
            for start, end in ranges(xp, out.size, 1, _PART):
                operands.update((name, array[start:end]) for name, array in arrays.items())
                out[start:end] = function(xp, **operands)

        declared = signature(function)
        parameters = [*declared.parameters.values(), Parameter(into, Parameter.POSITIONAL_OR_KEYWORD)]
        compute.__signature__ = declared.replace(parameters=parameters)  # type: ignore[attr-defined]
        kernel(op_type)(compute)
        return function

    return register


@_formula("celu")
def celu(xp: Any, X: Any, alpha: float) -> Any:
    result = xp.minimum(X, 0)
    result /= alpha
    xp.expm1(result, out=result)
    result *= alpha
    return xp.add(result, xp.maximum(X, 0), out=result)  # one of the two is 0


@_formula("hard_shrink")
def hard_shrink(xp: Any, X: Any, threshold: float) -> Any:
    return xp.where(xp.abs(X) > threshold, X, xp.zeros((), X.dtype))


@_formula("thresholded_relu")
def thresholded_relu(xp: Any, X: Any, threshold: float) -> Any:
    return xp.where(X > threshold, X, xp.zeros((), X.dtype))


@_formula("round")
def round_(xp: Any, X: Any) -> Any:
    truncated = xp.trunc(X)
    return truncated + xp.sign(X) * (xp.abs(X - truncated) >= 0.5)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluate the polynomial with these coefficients, highest power first."""
    total = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        total *= x
        total += coefficient
    return total


# Rational approximations by W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969):
# of erf(x) / x in x * x for |x| <= 0.46875, and of exp(x * x) * (1 - erf(x)) in x from there on.
_NEAR = (
    (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
_FAR = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)


# For float32, erf(x / sqrt(2)) = tanh(x * p(x * x)) with a polynomial p of degree 6, whose argument is smooth where erf is flat.
# Fitted for |x| <= 5.6 by Lawson's iteration, the relative error of erf is 1e-7, and 3e-7 with float32's roundings. Beyond, tanh
# is 1, since x * p(x * x) goes on growing. So tanh of any x will do: nothing has to be cut off, nor chosen.
_BEND = (1.56722395e-9, -1.2525544e-7, 3.87304149e-6, -5.47816404e-5, -3.3911469e-5, 3.63343484e-2, 7.97884637e-1)
_BEND_OF_ERF = tuple(coefficient * 2.0 ** (6.5 - place) for place, coefficient in enumerate(_BEND))


def _bent_by(xp: Any, x: Any, coefficients: Sequence[float]) -> Any:
    """``tanh(x * p(x * x))``, in float32 where x is of less."""
    x = x.astype("float32", copy=False)
    bent = _polynomial(x * x, coefficients)
    bent *= x
    return xp.tanh(bent, out=bent)


@_formula("erf")
def erf(xp: Any, X: Any) -> Any:
    if X.dtype.itemsize <= 4:
        return _bent_by(xp, X, _BEND_OF_ERF)
    size = xp.minimum(xp.abs(X), 6.0)  # 1 - erf(6) is far below the rounding of 1
    square = size * size
    near = X * (_polynomial(square, _NEAR[0]) / _polynomial(square, _NEAR[1]))
    far = 1.0 - xp.exp(-square) * (_polynomial(size, _FAR[0]) / _polynomial(size, _FAR[1]))
    return xp.where(size <= 0.46875, near, xp.copysign(far, X))


@_formula("gelu")
def gelu(xp: Any, X: Any, approximate: bool) -> Any:
    share = _twice_normal(xp, X) if not approximate else _bent(xp, X, X * X)
    if approximate:
        share += 1.0
    share *= 0.5
    share *= X
    return share


def _twice_normal(xp: Any, X: Any) -> Any:
    """Twice the probability that a normal variable is below X."""
    total = _bent_by(xp, X, _BEND) if X.dtype.itemsize <= 4 else erf(xp, X * 0.5**0.5)
    total += 1.0
    return total


def _bent(xp: Any, X: Any, square: Any) -> Any:
    """The tanh in gelu's approximation."""
    a, b = GELU_TANH
    argument = square * b
    argument += 1.0
    argument *= X
    argument *= a
    return xp.tanh(argument, out=argument)


@_formula("gelu_grad", into="dX")
def gelu_grad(xp: Any, X: Any, dOut: Any, approximate: bool) -> Any:
    square = X * X
    if not approximate:
        slope = xp.exp(square * -0.5)
        slope *= X
        slope *= (0.5 / pi) ** 0.5
        slope += _twice_normal(xp, X) * 0.5
        slope *= dOut
        return slope
    a, b = GELU_TANH
    bent = _bent(xp, X, square)
    square *= 3.0 * b
    square += 1.0
    square *= X
    square *= 0.5 * a
    square *= 1.0 - bent * bent
    bent += 1.0
    bent *= 0.5
    bent += square
    bent *= dOut
    return bent


# ---------------------------------------------------------------------------------------------------------- gradients
# Where dX may not be dOut, it holds intermediate results.
@prepared("tanh_grad")
def tanh_grad(xp: Any, Out: Any, dOut: Any, dX: Any) -> list[Call]:
    steps = partial(xp.subtract, scalar(xp, 1.0, dX.dtype), dX, dX)
    return [partial(xp.square, Out, dX), steps, partial(xp.multiply, dX, dOut, dX)]


@prepared("sigmoid_grad")
def sigmoid_grad(xp: Any, Out: Any, dOut: Any, dX: Any) -> list[Call]:
    steps = partial(xp.subtract, scalar(xp, 1.0, dX.dtype), Out, dX)
    return [steps, partial(xp.multiply, dX, Out, dX), partial(xp.multiply, dX, dOut, dX)]


@prepared("relu_grad", inplace={"dX": "dOut"})
def relu_grad(xp: Any, Out: Any, dOut: Any, dX: Any, scratch: Any) -> list[Call]:
    positive = scratch(Out.shape, bool)
    return [partial(xp.greater, Out, scalar(xp, 0.0, Out.dtype), positive), partial(xp.multiply, dOut, positive, dX)]


@prepared("leaky_relu_grad")
def leaky_relu_grad(xp: Any, X: Any, dOut: Any, alpha: float, dX: Any, scratch: Any) -> list[Call]:
    positive = scratch(X.shape, bool)
    return [
        partial(xp.greater, X, scalar(xp, 0.0, X.dtype), positive),
        partial(xp.multiply, positive, scalar(xp, 1.0 - alpha, dX.dtype), dX),
        _numbered(xp, "add", alpha, dX),
        partial(xp.multiply, dX, dOut, dX),
    ]


@prepared("exp_grad", inplace={"dX": "dOut"})
def exp_grad(xp: Any, Out: Any, dOut: Any, dX: Any) -> Call:
    return partial(xp.multiply, dOut, Out, dX)


@prepared("log_grad", inplace={"dX": "dOut"})
def log_grad(xp: Any, X: Any, dOut: Any, dX: Any) -> Call:
    return partial(xp.true_divide, dOut, X, dX)


@prepared("sqrt_grad", inplace={"dX": "dOut"})
def sqrt_grad(xp: Any, Out: Any, dOut: Any, dX: Any) -> list[Call]:
    return [partial(xp.true_divide, dOut, Out, dX), _numbered(xp, "multiply", 0.5, dX)]


@prepared("square_grad", inplace={"dX": "dOut"})
def square_grad(xp: Any, X: Any, dOut: Any, dX: Any) -> list[Call]:
    return [partial(xp.multiply, dOut, X, dX), _numbered(xp, "multiply", 2.0, dX)]
