"""Kernels of `fluid.ops.special`. They compute in float64; the formulas' sources are named."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, log, pi, sqrt
from typing import Any

from fluid.opdef.registry import parameters_of

from .manipulation import ranges
from .table import kernel

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
"""The Bernoulli numbers B2, B4, ..., the coefficients of asymptotic series."""
_FAR = 10
"""From this argument on, ten terms of the asymptotic series have the precision of float64."""


def _elementwise(op_type: str, source: str = "X", target: str = "Out") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of float64 arrays as the kernel of an op; it is called for parts that fit a near cache."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        from inspect import Parameter, Signature

        attrs = list(parameters_of(function))[2:]

        def compute(xp: Any, **operands: Any) -> None:
            x, out = operands[source].reshape(-1), operands[target].reshape(-1)
            for start, end in ranges(xp, out.size, 1):
                out[start:end] = function(xp, x[start:end].astype("float64"), *(operands[name] for name in attrs))

        parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("xp", source, *attrs, target)]
        compute.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        kernel(op_type)(compute)
        return function

    return register


# ------------------------------------------------------------------------------------------------------ gamma functions
def _lgamma_above(xp: Any, x: Any) -> Any:
    """For x of at least a half: Stirling's series (Abramowitz and Stegun 6.1.41), from ten steps further up."""
    steps = xp.where(x < _FAR, 1, 0)
    product = xp.ones_like(x)
    for step in range(_FAR):
        product *= xp.where(steps, x + step, 1)
    far = x + steps * _FAR
    series = sum(b / (2 * k * (2 * k - 1)) / far ** (2 * k - 1) for k, b in enumerate(BERNOULLI, 1))
    return (far - 0.5) * xp.log(far) - far + 0.5 * log(2 * pi) + series - xp.log(product)


@_elementwise("lgamma")
def lgamma(xp: Any, x: Any) -> Any:
    below = x < 0.5
    above = _lgamma_above(xp, xp.where(below, 1 - x, x))
    sines = xp.abs(xp.sin(pi * (x - xp.round(x))))  # reflection: 6.1.17
    return xp.where(xp.isinf(x), xp.inf, xp.where(below, log(pi) - xp.log(sines) - above, above))


def _digamma(xp: Any, x: Any) -> Any:
    """The asymptotic series (Abramowitz and Stegun 6.3.18) from ten steps further up, and reflection (6.3.7) below a half."""
    below = x < 0.5
    above = xp.where(below, 1 - x, x)
    steps = above < _FAR
    far = above + steps * _FAR
    value = xp.log(far) - 0.5 / far - sum(b / (2 * k) / far ** (2 * k) for k, b in enumerate(BERNOULLI, 1))
    for step in range(_FAR):
        value -= xp.where(steps, 1 / (above + step), 0)
    reflected = value - pi / xp.tan(pi * (x - xp.round(x)))
    return xp.where(below, xp.where((x == xp.round(x)) | xp.isinf(x), xp.nan, reflected), value)


@_elementwise("digamma")
def digamma(xp: Any, x: Any) -> Any:
    return _digamma(xp, x)


_BELOW = 64
"""The lowest argument of the polygamma functions, negated."""


def _zeta(xp: Any, x: Any, n: int) -> Any:
    """Hurwitz's zeta function of order n + 1, for x of at least 0, by Euler's and Maclaurin's formula."""
    order, steps = n + 1, _FAR + n
    far = x + steps
    total = sum((x + step) ** -order for step in range(steps)) + far ** (1 - order) / n + 0.5 * far**-order
    factor = float(order)
    for k, b in enumerate(BERNOULLI, 1):
        total += b / factorial(2 * k) * factor * far ** (1 - order - 2 * k)
        factor *= (order + 2 * k - 1) * (order + 2 * k)
    return total


@_elementwise("polygamma", "x", "out")
def polygamma(xp: Any, x: Any, n: int) -> Any:
    """Computed by Hurwitz's zeta function (Abramowitz and Stegun 6.4.10); its terms below 0 are summed first."""
    if n == 0:
        return _digamma(xp, x)
    below = x < 0
    total = _zeta(xp, xp.where(below, xp.maximum(x + _BELOW, 0), x), n)
    if bool(below.any()):
        total += xp.where(below, sum((x + step) ** -(n + 1) for step in range(_BELOW)), 0)
    return xp.where(x < -_BELOW, xp.nan, (-1) ** (n + 1) * float(factorial(n)) * total)


# -------------------------------------------------------------------------------------------------------------- inverses
_CENTRAL = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457)
    + (13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867)
    + (5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)
_NEAR_TAIL = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258)
    + (3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459)
    + (0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)
_FAR_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093)
    + (0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4)
    + (0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)
"""Numerators and denominators of quantiles of the normal distribution: Wichura, algorithm AS 241, Applied Statistics 37, 1988."""


def _ratio(xp: Any, polynomials: Any, at: Any) -> Any:
    above, below = (xp.zeros_like(at), xp.zeros_like(at))
    for high, low in zip(*polynomials, strict=True):
        above, below = above * at + high, below * at + low
    return above / below


@_elementwise("erfinv")
def erfinv(xp: Any, x: Any) -> Any:
    q = x / 2
    central = q * _ratio(xp, _CENTRAL, 0.180625 - q * q)
    distance = xp.sqrt(-xp.log(xp.where(xp.abs(x) < 1, (1 - xp.abs(x)) / 2, 0.25)))
    tail = xp.where(distance <= 5, _ratio(xp, _NEAR_TAIL, distance - 1.6), _ratio(xp, _FAR_TAIL, distance - 5))
    value = xp.where(xp.abs(q) <= 0.425, central, xp.copysign(tail, x)) / sqrt(2)
    return xp.where(xp.abs(x) > 1, xp.nan, xp.where(xp.abs(x) == 1, xp.copysign(xp.inf, x), value))


@_elementwise("logit")
def logit(xp: Any, x: Any, eps: float) -> Any:
    clipped = xp.clip(x, eps, 1 - eps) if eps else xp.where((x < 0) | (x > 1), xp.nan, x)
    return xp.log(clipped / (1 - clipped))


# ---------------------------------------------------------------------------------------------------------------- Bessel
_POINTS = 40
_NEAR = 30.0


def _bessel(xp: Any, x: Any, order: int) -> Any:
    """``exp(-|x|)`` times the Bessel function. Near 0: its integral (Abramowitz and Stegun 9.6.19) by the trapezoidal rule, which
    reaches the precision of float64 at 40 points for such integrands. Further away: the series 9.7.1."""
    size = xp.abs(x)
    near, far = xp.minimum(size, _NEAR), xp.maximum(size, _NEAR)
    angles = pi * xp.arange(_POINTS + 1) / _POINTS
    weights = xp.cos(order * angles) / _POINTS
    weights[0] /= 2
    weights[-1] /= 2
    integral = sum(w * xp.exp(near * (c - 1)) for w, c in zip(weights, xp.cos(angles), strict=True))
    series = term = xp.ones_like(far)
    for k in range(1, 25):
        term = term * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k * far)
        series = series + term
    values = xp.where(size < _NEAR, integral, series / xp.sqrt(2 * pi * far))
    return xp.copysign(values, x) if order % 2 else values


@_elementwise("i0e", "x", "out")
def i0e(xp: Any, x: Any) -> Any:
    return _bessel(xp, x, 0)


@_elementwise("i1e", "x", "out")
def i1e(xp: Any, x: Any) -> Any:
    return _bessel(xp, x, 1)


@_elementwise("i0", "x", "out")
def i0(xp: Any, x: Any) -> Any:
    return _bessel(xp, x, 0) * xp.exp(xp.abs(x))


@_elementwise("i1", "x", "out")
def i1(xp: Any, x: Any) -> Any:
    return _bessel(xp, x, 1) * xp.exp(xp.abs(x))
