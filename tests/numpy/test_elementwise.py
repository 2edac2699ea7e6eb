"""Elementwise functions, operators and element types beside array-api-strict."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from checks import each
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracle import (
    ALL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    REAL_FLOATS,
    REALS,
    agree,
    arrays,
    elements,
    ours,
    same,
    strict,
    theirs,
)

import fluid
import fluid.numpy as xp

few = settings(max_examples=10, deadline=None, derandomize=True)

UNARY = {
    **dict.fromkeys(
        [
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "cos",
            "cosh",
            "exp",
            "expm1",
            "log",
            "log10",
            "log1p",
            "log2",
            "reciprocal",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
        ],
        FLOATS,
    ),
    **dict.fromkeys(["abs", "isfinite", "isinf", "isnan", "negative", "positive", "sign", "square"], NUMBERS),
    **dict.fromkeys(["ceil", "floor", "round", "trunc"], REALS),
    **dict.fromkeys(["conj", "imag", "real"], COMPLEX),
    "signbit": REAL_FLOATS,
    "logical_not": ("bool",),
    "bitwise_invert": ("bool", *INTEGERS),
}
BINARY = {
    **dict.fromkeys(["add", "multiply", "subtract"], NUMBERS),
    **dict.fromkeys(["maximum", "minimum", "less", "less_equal", "greater", "greater_equal"], REALS),
    **dict.fromkeys(["atan2", "copysign", "hypot", "logaddexp", "nextafter"], REAL_FLOATS),
    **dict.fromkeys(["equal", "not_equal"], ALL),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor"], ("bool", *INTEGERS)),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor"], ("bool",)),
    "divide": FLOATS,
    "pow": NUMBERS,
    "remainder": REALS,
    "floor_divide": INTEGERS,
    "bitwise_left_shift": INTEGERS,
    "bitwise_right_shift": INTEGERS,
}


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name: str) -> None:
    bounds = {"least": -3, "most": 3} if UNARY[name] is FLOATS or name in ("negative",) else {}

    @few
    @given(arrays(UNARY[name], **bounds))
    def compare(x: Any) -> None:
        agree(name, x)

    compare()


@st.composite
def pairs(draw: Any, dtypes: tuple[str, ...], **bounds: Any) -> tuple[Any, Any]:
    """Two arrays that broadcast, of two types that have a common one."""
    first = draw(st.sampled_from(dtypes))
    second = draw(st.sampled_from([dtype for dtype in dtypes if promotes(first, dtype)]))
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3, min_side=0)).input_shapes
    return draw(arrays(first, shapes[0], **bounds)), draw(arrays(second, shapes[1], **bounds))


def promotes(first: str, second: str) -> bool:
    try:
        strict.result_type(getattr(strict, first), getattr(strict, second))
    except TypeError:
        return False
    return True


BOUNDS = {
    "pow": {"least": 0, "most": 5, "special": False},
    "bitwise_left_shift": {"least": 0, "most": 7},
    "bitwise_right_shift": {"least": 0, "most": 7},
    "remainder": {"least": 1},
    "floor_divide": {"least": 1},
}


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name: str) -> None:
    @few
    @given(pairs(BINARY[name], **BOUNDS.get(name, {})))
    def compare(both: Any) -> None:
        agree(name, *both)

    compare()


OPERATORS = {
    **dict.fromkeys(("add", "sub", "mul"), NUMBERS),
    **dict.fromkeys(("lt", "le", "gt", "ge"), REALS),
    "truediv": FLOATS,
    "eq": ALL,
    "ne": ALL,
    "and": ("bool", *INTEGERS),
    "or": ("bool", *INTEGERS),
    "xor": ("bool", *INTEGERS),
    "lshift": INTEGERS,
    "rshift": INTEGERS,
    "mod": REALS,
    "floordiv": INTEGERS,
    "pow": REAL_FLOATS,
}
REFLECTED = [name for name in OPERATORS if name not in ("lt", "le", "gt", "ge", "eq", "ne")]
OPERATOR_BOUNDS = {
    "mod": {"least": 1, "special": False},
    "floordiv": {"least": 1},
    "pow": BOUNDS["pow"],
    "lshift": {"least": 0, "most": 7},
    "rshift": {"least": 0, "most": 7},
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    bounds = OPERATOR_BOUNDS.get(name, {})

    @few
    @given(pairs(OPERATORS[name], **bounds))
    def between_arrays(both: Any) -> None:
        x, y = ours(both)
        a, b = theirs(both)
        with np.errstate(all="ignore"):
            same(getattr(x, f"__{name}__")(y), getattr(a, f"__{name}__")(b))

    @few
    @given(arrays(OPERATORS[name], **bounds), st.data())
    def with_numbers(array: Any, data: Any) -> None:
        number = data.draw(elements(str(array.dtype), **bounds))
        x, a = ours(array), theirs(array)
        with np.errstate(all="ignore"):
            same(getattr(x, f"__{name}__")(number), getattr(a, f"__{name}__")(number))
            if name in REFLECTED:
                same(getattr(x, f"__r{name}__")(number), getattr(a, f"__r{name}__")(number))
                in_place, other = ours(array), theirs(array)
                in_place = getattr(in_place, f"__i{name}__")(number)
                other = getattr(other, f"__i{name}__")(number)
                same(in_place, other)

    between_arrays()
    with_numbers()


@pytest.mark.parametrize("x, y, expected", [
    (float("inf"), 2.0, float("inf")), (float("inf"), -2.0, -float("inf")), (-float("inf"), 2.0, -float("inf")),
    (3.0, float("inf"), 0.0), (-3.0, -float("inf"), 0.0), (5.0, 2.0, 2.0), (-5.0, 2.0, -3.0),
])  # fmt: skip
def test_floor_divide_of_floats_by_the_standard(x: float, y: float, expected: float) -> None:
    assert float(xp.floor_divide(xp.asarray(x), xp.asarray(y))) == expected


@pytest.mark.parametrize("base", [-0.0, -float("inf")])
@pytest.mark.parametrize("size", [(), (3,)])
def test_powers_of_special_numbers_to_one_half(base: float, size: tuple[int, ...]) -> None:
    powers = xp.full(size, base) ** 0.5
    in_place = xp.full(size, base)
    in_place **= 0.5
    same(powers, np.full(size, abs(base), np.float32))
    same(in_place, np.full(size, abs(base), np.float32))


_INF, _NAN = float("inf"), float("nan")


@pytest.mark.parametrize("z, expected", [
    (complex(-0.0, 0.0), complex(0.0, 0.0)), (complex(_INF, 0.0), complex(_INF, 0.0)), (complex(_INF, _INF), complex(_INF, _NAN)),
    (complex(-_INF, _INF), -1.0), (complex(-_INF, _NAN), -1.0), (complex(_NAN, 0.0), complex(_NAN, 0.0)),
    (complex(1e-20, 1e-20), complex(1e-20, 1e-20)),
])  # fmt: skip
def test_expm1_of_special_complex_numbers(z: complex, expected: complex) -> None:
    result = complex(xp.expm1(xp.asarray(z, dtype=xp.complex128)))
    np.testing.assert_array_equal([result.real, np.abs(result.imag)], [expected.real, np.abs(expected.imag)])
    assert np.signbit(result.real) == np.signbit(expected.real)


@few
@given(arrays(REALS, special=False), st.integers(0, 5), st.integers(6, 90))
def test_clip(x: Any, low: int, high: int) -> None:
    agree("clip", x, low, high, signs=False)
    agree("clip", x, None, high)
    agree("clip", x, min=low, signs=False)
    agree("clip", x, np.asarray(low, x.dtype), np.asarray(high, x.dtype), signs=False)


def test_result_types() -> None:
    for first in ALL:
        for second in ALL:
            if promotes(first, second):
                expected = str(strict.result_type(getattr(strict, first), getattr(strict, second))).rpartition(".")[2]
                assert xp.result_type(getattr(xp, first), getattr(xp, second)) is getattr(xp, expected)
            a, b = getattr(strict, first), getattr(strict, second)
            assert xp.can_cast(getattr(xp, first), getattr(xp, second)) is strict.can_cast(a, b), (first, second)


def test_types_that_have_no_common_one_are_refused() -> None:
    with pytest.raises(TypeError, match="uint64 and int64 have no common integer type"):
        xp.asarray(1, dtype=xp.uint64) + xp.asarray(1)


def test_integers_beside_floats_become_floats() -> None:
    assert (xp.asarray([1, 2]) + xp.asarray([0.5, 0.5], dtype=xp.float64)).dtype is xp.float64
    assert (xp.asarray([1, 2]) * 0.5).dtype is xp.float32
    assert (xp.asarray([True]) + 1).dtype is xp.int64


@pytest.mark.parametrize("dtype", ALL)
def test_limits_and_kinds(dtype: str) -> None:
    mine, other = getattr(xp, dtype), getattr(strict, dtype)
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"):
        assert xp.isdtype(mine, kind) is strict.isdtype(other, kind)
    if dtype in INTEGERS:
        limits, expected = xp.iinfo(mine), strict.iinfo(other)
        assert (limits.bits, limits.max, limits.min, limits.dtype) == (expected.bits, expected.max, expected.min, mine)
    elif dtype in FLOATS:
        limits, expected = xp.finfo(mine), strict.finfo(other)
        for name in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(limits, name) == getattr(expected, name)


def _names(namespace: Any) -> list[str]:
    return [name for name in namespace.__all__ if inspect.isfunction(getattr(namespace, name)) and "strict" not in name.lower()]


@pytest.mark.parametrize("part", ["", "linalg", "fft"])
def test_signatures(part: str) -> None:
    mine, other = (getattr(xp, part), getattr(strict, part)) if part else (xp, strict)
    for name in _names(other):
        expected = inspect.signature(getattr(other, name)).parameters.values()
        actual = inspect.signature(getattr(mine, name)).parameters
        assert list(actual) == [parameter.name for parameter in expected], name
        for parameter in expected:
            assert actual[parameter.name].kind is parameter.kind, (name, parameter)
            if "Undef" not in str(parameter.default) and name != "expand_dims":  # whose axis has a default in some versions
                assert actual[parameter.name].default == parameter.default, (name, parameter)


@each("name", ["floor", "ceil", "trunc", "floor_divide", "remainder"])
def test_complex_numbers_are_not_rounded(name: str) -> None:
    z = xp.asarray(np.ones(3, "complex64"))
    with pytest.raises(fluid.errors.ElementTypeError, match="complex64"):
        getattr(xp, name)(*[z] * (2 if name in ("floor_divide", "remainder") else 1))
