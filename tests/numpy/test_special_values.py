"""Special values of functions of two floats, as the standard lists them, for each pair of special numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import copysign, inf, isfinite, isinf, isnan, nan

import numpy as np
from checks import each

import fluid.numpy as xp

NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, -2.5, inf, -inf, nan, 1e30, -1e30]
PAIRS = [(x, y) for x in NUMBERS for y in NUMBERS]
OPEN = None
"""The standard leaves the result to the formula."""


def signed(x: float, y: float, size: float) -> float:
    """A number with the sign of the quotient of two others."""
    return -size if copysign(1, x) != copysign(1, y) else size


def divide(x: float, y: float) -> float | None:
    if isnan(x) or isnan(y) or (isinf(x) and isinf(y)) or x == y == 0:
        return nan
    if x == 0 or isinf(y):
        return signed(x, y, 0.0)
    return signed(x, y, inf) if y == 0 or isinf(x) else OPEN


def remainder(x: float, y: float) -> float | None:
    if isnan(x) or isnan(y) or isinf(x) or y == 0:
        return nan
    if x == 0:
        return copysign(0.0, y)
    if isinf(y):
        return x if (x < 0) == (y < 0) else y
    return OPEN


def power(x: float, y: float) -> float | None:
    if y == 0 or x == 1:
        return 1.0
    if isnan(x) or isnan(y):
        return nan
    if isinf(y):
        return 1.0 if abs(x) == 1 else inf if (abs(x) > 1) == (y > 0) else 0.0
    is_odd = y.is_integer() and y % 2 == 1
    if isinf(x) or x == 0:
        size = inf if isinf(x) == (y > 0) else 0.0
        return -size if is_odd and copysign(1, x) < 0 else size
    return nan if x < 0 and not y.is_integer() else OPEN


def multiply(x: float, y: float) -> float | None:
    return x * y if not isfinite(x) or not isfinite(y) or x == 0 or y == 0 else OPEN


def add(x: float, y: float) -> float:
    return x + y


def subtract(x: float, y: float) -> float:
    return x - y


def hypot(x: float, y: float) -> float | None:
    if isinf(x) or isinf(y):
        return inf
    if isnan(x) or isnan(y):
        return nan
    return abs(x + y) if x == 0 or y == 0 else OPEN


def logaddexp(x: float, y: float) -> float | None:
    if isnan(x) or isnan(y):
        return nan
    return inf if inf in (x, y) else OPEN


def maximum(x: float, y: float) -> float | None:
    return nan if isnan(x) or isnan(y) else max(x, y) if x != y else OPEN


def minimum(x: float, y: float) -> float | None:
    return nan if isnan(x) or isnan(y) else min(x, y) if x != y else OPEN


def copied_sign(x: float, y: float) -> float | None:
    return nan if isnan(x) else OPEN if isnan(y) else copysign(x, y)


def nextafter(x: float, y: float) -> float | None:
    return nan if isnan(x) or isnan(y) else y if x == y else OPEN


RULES: dict[str, Callable[[float, float], float | None]] = {
    "add": add, "atan2": math.atan2, "copysign": copied_sign, "divide": divide, "floor_divide": divide, "hypot": hypot,
    "logaddexp": logaddexp, "maximum": maximum, "minimum": minimum, "multiply": multiply, "nextafter": nextafter,
    "pow": power, "remainder": remainder, "subtract": subtract,
}  # fmt: skip
OPERATORS = {
    "add": "add", "divide": "truediv", "floor_divide": "floordiv", "multiply": "mul", "pow": "pow", "remainder": "mod",
    "subtract": "sub",
}  # fmt: skip


def check(name: str, dtype: str, results: list[float], pairs: list[tuple[float, float]]) -> None:
    for (x, y), result in zip(pairs, results, strict=True):
        expected = RULES[name](x, y)
        if expected is not OPEN:
            expected = float(np.array(expected, dtype))
            same = isnan(result) if isnan(expected) else np.isclose(result, expected, rtol=1e-5, atol=0)
            same = same and (expected != 0 or copysign(1, result) == copysign(1, expected))
            assert same, f"{name}({x}, {y}) of {dtype} is {result}, not {expected}"


@each("name, dtype", [(name, dtype) for name in RULES for dtype in ("float32", "float64")])
def test_special_values(name: str, dtype: str) -> None:
    x, y = (xp.asarray(np.array(column, dtype)) for column in zip(*PAIRS, strict=True))
    check(name, dtype, getattr(xp, name)(x, y).tolist(), PAIRS)
    singles = [(x, y) for x in NUMBERS[:4] for y in NUMBERS]
    function, kind = getattr(xp, name), getattr(xp, dtype)
    check(name, dtype, [float(function(xp.asarray(x, dtype=kind), xp.asarray(y, dtype=kind))) for x, y in singles], singles)
    if name in OPERATORS:
        operator = OPERATORS[name]
        check(name, dtype, getattr(x, f"__{operator}__")(y).tolist(), PAIRS)
        for number in NUMBERS:
            numbers = xp.asarray(np.array(NUMBERS, dtype))
            check(name, dtype, getattr(numbers, f"__{operator}__")(number).tolist(), [(x, number) for x in NUMBERS])
            check(name, dtype, getattr(numbers, f"__r{operator}__")(number).tolist(), [(number, y) for y in NUMBERS])
        check(name, dtype, getattr(xp.asarray(x, copy=True), f"__i{operator}__")(y).tolist(), PAIRS)


def test_an_element_type_is_true() -> None:
    """As `dtype or default` expects; the number of bool is 0."""
    assert all(map(bool, xp.__array_namespace_info__().dtypes().values()))
