"""Arrays that hypothesis makes by the standard's functions, with all elements of all types, beside array-api-strict and numpy."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from checks import each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.array_api import make_strategies_namespace
from oracle import same, strict

import fluid.numpy as xp

few = settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
xps = make_strategies_namespace(xp)

INTEGERS = (xp.int8, xp.int16, xp.int32, xp.int64, xp.uint8, xp.uint16, xp.uint32, xp.uint64)
FLOATS = (xp.float32, xp.float64)
COMPLEX = (xp.complex64, xp.complex128)
NUMBERS = (*INTEGERS, *FLOATS, *COMPLEX)
ALL = (xp.bool, *NUMBERS)
SHAPES = xps.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 2.0**100, -(2.0**100), float("inf"), -float("inf"), float("nan"))
_WAVES = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan", "tanh")
_POWERS = ("exp", "log", "log10", "log1p", "log2", "reciprocal", "sqrt")
UNARY = {
    **dict.fromkeys((*_WAVES, *_POWERS), (*FLOATS, *COMPLEX)),
    **dict.fromkeys(("abs", "negative", "positive", "round", "sign", "square", "isfinite", "isinf", "isnan"), NUMBERS),
    **dict.fromkeys(("ceil", "floor", "trunc"), (*INTEGERS, *FLOATS)),
    "bitwise_invert": (xp.bool, *INTEGERS),
    "conj": COMPLEX,
    **dict.fromkeys(("expm1", "signbit"), FLOATS),  # numpy's expm1 makes NaN of infinite complex numbers
}
BINARY = {
    **dict.fromkeys(("add", "multiply", "subtract", "equal", "not_equal"), NUMBERS),
    **dict.fromkeys(("maximum", "minimum", "less", "less_equal", "greater", "greater_equal"), (*INTEGERS, *FLOATS)),
    **dict.fromkeys(("atan2", "copysign", "hypot", "logaddexp", "nextafter", "remainder"), FLOATS),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), (xp.bool, *INTEGERS)),
    **dict.fromkeys(("divide", "pow"), (*FLOATS, *COMPLEX)),
}


def drawn(data: Any, dtypes: tuple[Any, ...], shape: Any = SHAPES) -> Any:
    """An array: any elements, or special ones alone."""
    dtype = data.draw(st.sampled_from(dtypes))
    special: Any = None
    if dtype in (*FLOATS, *COMPLEX) and data.draw(st.booleans()):
        part = st.sampled_from(SPECIAL)
        special = part if dtype in FLOATS else st.builds(complex, part, part)
    return data.draw(xps.arrays(dtype, shape, elements=special))


def as_strict(x: Any) -> Any:
    return strict.asarray(x.numpy().copy())


def equal(result: Any, expected: Any) -> None:
    array = result.numpy()
    assert array.dtype == expected.dtype
    assert isinstance(result.shape, tuple)
    np.testing.assert_array_equal(array, expected, strict=True)


@each("name", UNARY)
@few
@given(data=st.data())
def test_functions_of_one_array(name: str, data: Any) -> None:
    x = drawn(data, UNARY[name])
    with np.errstate(all="ignore"):
        expected = getattr(strict, name)(as_strict(x))
    same(getattr(xp, name)(x), expected)


@each("name", BINARY)
@few
@given(data=st.data())
def test_functions_of_two_arrays(name: str, data: Any) -> None:
    x = drawn(data, BINARY[name])
    y = drawn(data, (x.dtype,), data.draw(xps.broadcastable_shapes(x.shape, min_side=0, max_dims=3)))
    with np.errstate(all="ignore"):
        expected = getattr(strict, name)(as_strict(x), as_strict(y))
    same(getattr(xp, name)(x, y), expected)


@few
@given(data=st.data())
def test_elements_by_indices(data: Any) -> None:
    x = drawn(data, ALL)
    key = data.draw(xps.indices(x.shape, allow_newaxis=data.draw(st.booleans())))
    equal(x[key], x.numpy()[key])


@few
@given(data=st.data())
def test_elements_by_masks(data: Any) -> None:
    x = drawn(data, ALL)
    mask = data.draw(xps.arrays(xp.bool, data.draw(st.one_of(st.sampled_from([x.shape, ()]), SHAPES))))
    try:
        expected = x.numpy()[mask.numpy()]
    except IndexError:
        with pytest.raises(IndexError):
            x[mask]
        return
    equal(x[mask], expected)


@few
@given(data=st.data())
def test_elements_that_are_set(data: Any) -> None:
    x = drawn(data, ALL)
    key = data.draw(st.one_of(xps.indices(x.shape), xps.arrays(xp.bool, x.shape)))
    place = key.numpy() if isinstance(key, xp.NDArray) else key
    value = data.draw(st.one_of(xps.from_dtype(x.dtype), xps.arrays(x.dtype, ())))
    changed, expected = xp.asarray(x, copy=True), x.numpy().copy()
    expected[place] = value.numpy() if isinstance(value, xp.NDArray) else value
    changed[key] = value
    equal(changed, expected)


@each("convert", [bool, int, float, complex, operator.index], ids=lambda convert: convert.__name__)
@few
@given(data=st.data())
def test_numbers_of_python(convert: Any, data: Any) -> None:
    x = drawn(data, (xp.bool, *INTEGERS, *FLOATS), ())
    try:
        expected = convert(x.numpy()[()])
    except (TypeError, ValueError, OverflowError) as error:
        with pytest.raises(type(error)):
            convert(x)
        return
    assert repr(convert(x)) == repr(expected)


@few
@given(data=st.data())
def test_arrays_of_one_number(data: Any) -> None:
    dtype = data.draw(st.sampled_from(ALL))
    number, shape = data.draw(xps.from_dtype(dtype)), data.draw(SHAPES)
    expected = np.full(shape, number, dtype.numpy)
    equal(xp.full(shape, number, dtype=dtype), expected)
    equal(xp.full_like(xp.zeros(shape, dtype=dtype), number), expected)
    equal(xp.asarray(number, dtype=dtype), np.asarray(number, dtype.numpy))
