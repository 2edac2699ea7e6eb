"""Samples of `fluid.ops.special`, against the standard library and sums to convergence."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from .base import SHAPES, Data, Sample, add, unary

data = Data("special")
EULER = 0.57721566490153286061


def each(function: Any) -> Any:
    return np.vectorize(function, otypes=["float64"])


def psi(x: float, n: int = 0) -> float:
    """Polygamma functions by sums of 1,000 terms, and an integral for the remaining terms."""
    if n == 0:
        return -EULER - 1 / x + math.fsum(x / (k * (k + x)) for k in range(1, 1000)) + rest(x)
    terms = math.fsum((k + x) ** -(n + 1) for k in range(1000))
    far = 1000 + x
    tail = far**-n / n + far ** -(n + 1) / 2 + (n + 1) * far ** -(n + 2) / 12
    return (-1) ** (n + 1) * math.factorial(n) * (terms + tail)


def rest(x: float) -> float:
    """The sum of ``x / (k * (k + x))`` from 1000 on, by Euler's and Maclaurin's formula."""
    k = 1000.0
    value = x / (k * (k + x))
    slope = -x * (2 * k + x) / (k * (k + x)) ** 2
    return math.log1p(x / k) + value / 2 - slope / 12


def bessel(order: int, scaled: bool) -> Any:
    def function(x: float) -> float:
        if abs(x) > 600:
            return 0.0
        terms = (
            [
                math.exp(
                    (2 * k + order) * math.log(abs(x) / 2)
                    - math.lgamma(k + 1)
                    - math.lgamma(k + order + 1)
                    - (abs(x) if scaled else 0)
                )
                for k in range(200)
            ]
            if x
            else [float(order == 0)]
        )
        return math.copysign(math.fsum(terms), x) if order else math.fsum(terms)

    return each(function)


unary("lgamma", each(math.lgamma), low=0.2, high=4)
for X in (np.array([-3.5, -0.5, 0.25, 1, 2, 9.99, 10, 171, 1e5]), np.array([-100.3, -12.7])):
    add("lgamma", Sample({"X": X}, {}, lambda X: each(math.lgamma)(X).astype(X.dtype), orders=1, wrt=()))
unary("digamma", each(psi), low=0.3, high=4)
DIGAMMA = {
    1.0: -EULER,
    0.5: -EULER - 2 * math.log(2),
    0.25: -EULER - math.pi / 2 - 3 * math.log(2),
    2.0: 1 - EULER,
    -0.5: 0.03648997397857652,
}
add(
    "digamma",
    Sample({"X": np.array([*DIGAMMA])}, {}, lambda X: each(lambda x: DIGAMMA[x] if x in DIGAMMA else psi(x))(X).astype(X.dtype)),
)
for n in (0, 1, 2, 3, 5):
    for shape in SHAPES if n == 1 else SHAPES[:1]:
        reference = lambda x, n: np.asarray(each(lambda value: psi(value, n))(x), x.dtype)
        add("polygamma", Sample({"x": data(*shape, low=0.5, high=4)}, {"n": n}, reference, tolerance=10.0 ** min(n, 3)))
TRIGAMMA = {1.0: math.pi**2 / 6, 0.5: math.pi**2 / 2}
add(
    "polygamma",
    Sample(
        {"x": np.array([*TRIGAMMA])},
        {"n": 1},
        lambda x: each(lambda value: TRIGAMMA.get(value) or psi(value, 1))(x).astype(x.dtype),
    ),
)
unary("erfinv", each(lambda x: NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2)), low=-0.9, high=0.9)


def inverse_erfc(y: float) -> float:
    """By bisection."""
    low, high = 0.0, 6.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(middle) > y else (low, middle)
    return low


def inverse_erf(x: float) -> float:
    """Also outside of the numbers between -1 and 1."""
    if abs(x) >= 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    return math.copysign(inverse_erfc(1 - abs(x)), x)


ENDS = np.array([-1.0, 1, 2, 0, 0.999999, -0.99, 1 - 1e-12])
add(
    "erfinv",
    Sample(
        {"X": ENDS},
        {},
        lambda X: each(inverse_erf)(X),
        dtypes=["float64"],
        orders=0,
    ),
)


def logit(X: Any, eps: float = 1e-6) -> Any:
    with np.errstate(all="ignore"):
        inside = np.clip(X, eps, 1 - eps) if eps else X
        return np.log(inside / (1 - inside))


unary("logit", logit, {"eps": 0.2}, {"eps": 0.0}, low=0.05, high=0.95, kinks=(0.2, 0.8))
add("logit", Sample({"X": np.array([-1.0, 0.5, 2])}, {"eps": 0.1}, lambda X, eps: logit(X, eps).astype(X.dtype)))
for name, order, scaled in (("i0", 0, False), ("i0e", 0, True), ("i1", 1, False), ("i1e", 1, True)):
    function = bessel(order, scaled)
    reference = lambda x, function=function: np.asarray(function(x), x.dtype)
    for shape in SHAPES:
        add(name, Sample({"x": data.away(*shape)}, {}, reference))
    add(name, Sample({"x": np.array([0.0, 5, -17, 29.9, 30.1, -60])}, {}, reference, orders=0, tolerance=20))
