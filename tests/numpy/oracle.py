"""Arrays for `fluid.numpy` and for array-api-strict, and comparisons of what both make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

strict = pytest.importorskip("array_api_strict", reason='needs array-api-strict: pip install "fluid-graph[test]"')
pytest.importorskip("hypothesis", reason='needs hypothesis: pip install "fluid-graph[test]"')

from hypothesis import strategies as st  # noqa: E402
from hypothesis.extra import numpy as hnp  # noqa: E402

import fluid.numpy as xp  # noqa: E402

REAL_FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOATS = (*REAL_FLOATS, *COMPLEX)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REALS = (*INTEGERS, *REAL_FLOATS)
NUMBERS = (*INTEGERS, *FLOATS)
ALL = ("bool", *NUMBERS)

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
FULL_SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)


def elements(dtype: str, **bounds: Any) -> st.SearchStrategy[Any]:
    """Elements of a type: small and special ones."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return st.booleans()
    if kind in "iu":
        limits = np.iinfo(dtype)
        return st.integers(max(limits.min, bounds.get("least", -100)), min(limits.max, bounds.get("most", 100)))
    special = [0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.5, float("inf"), -float("inf"), float("nan")]
    least, most = bounds.get("least", -1e3), bounds.get("most", 1e3)
    width = 32 if dtype in ("float32", "complex64") else 64
    usual = st.floats(least, most, width=width, allow_subnormal=False)
    special = special if bounds.get("special", True) else [number for number in special if least <= number <= most]
    if kind == "f":
        return st.one_of(st.sampled_from(special), usual)
    return st.builds(complex, usual, usual)


@st.composite
def arrays(draw: Any, dtypes: Any = ALL, shapes: Any = SHAPES, **bounds: Any) -> np.ndarray[Any, Any]:
    """Arrays of numpy."""
    dtype = draw(st.sampled_from(dtypes)) if isinstance(dtypes, tuple) else dtypes
    shape = draw(shapes) if not isinstance(shapes, tuple) else shapes
    return draw(hnp.arrays(dtype, shape, elements=elements(dtype, **bounds)))


def ours(value: Any) -> Any:
    """Arrays of numpy, also in lists and dicts, as arrays of `fluid.numpy`; element types by name."""
    return _mapped(value, lambda array: xp.asarray(array, copy=True), xp)


def theirs(value: Any) -> Any:
    """Arrays of numpy, also in lists and dicts, as arrays of array-api-strict; element types by name."""
    return _mapped(value, lambda array: strict.asarray(array, copy=True), strict)


def _mapped(value: Any, convert: Any, namespace: Any) -> Any:
    if isinstance(value, np.ndarray):
        return convert(value)
    if isinstance(value, np.dtype):
        return getattr(namespace, value.name)
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, convert, namespace) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(item, convert, namespace) for key, item in value.items()}
    return value


def same(result: Any, expected: Any, rtol: float | None = None, signs: bool = True) -> None:
    """Fail unless both results have the same shapes, element types and elements, signs of zeros included."""
    if isinstance(expected, (tuple, list)):
        assert len(result) == len(expected)
        assert getattr(result, "_fields", None) == getattr(expected, "_fields", None)
        for part, other in zip(result, expected, strict=True):
            same(part, other, rtol, signs)
        return
    assert type(result) is xp.NDArray, f"{type(result)} is no NDArray"
    mine, other = np.asarray(result), np.asarray(expected)
    assert mine.dtype == other.dtype, f"{mine.dtype} is not {other.dtype}"
    assert mine.shape == other.shape, f"{mine.shape} is not {other.shape}"
    if mine.dtype.kind not in "fc":
        np.testing.assert_array_equal(mine, other)
        return
    rtol = rtol or (1e-5 if mine.dtype in (np.float32, np.complex64) else 1e-12)
    np.testing.assert_allclose(mine, other, rtol=rtol, atol=rtol)
    if signs and mine.dtype.kind == "f":
        zero = (mine == 0) & (other == 0)
        np.testing.assert_array_equal(np.signbit(mine)[zero], np.signbit(other)[zero])


def agree(name: str, *args: Any, rtol: float | None = None, signs: bool = True, **kwargs: Any) -> None:
    """Fail unless a function gives here what it gives in array-api-strict."""
    function, other = xp, strict
    for part in name.split("."):
        function, other = getattr(function, part), getattr(other, part)
    with np.errstate(all="ignore"):
        expected = other(*theirs(args), **theirs(kwargs))
    same(function(*ours(args), **ours(kwargs)), expected, rtol, signs)
