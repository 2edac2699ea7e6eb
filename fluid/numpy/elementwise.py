"""Functions of each element. Operands broadcast and are promoted to one element type; one of two may be a number."""

from __future__ import annotations

from typing import Any

from ..errors import ElementTypeError
from ..opdef.inference import OpNamespace
from ..values.operators import ValueOperators
from ..values.types import VarType, is_complex, is_floating, is_integer
from .dtypes import DEFAULTS, KINDS, iinfo
from .operands import EXACT, cast, constant, operand, ops_of, pair, spread

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ of one operand
def _floats(x: Any) -> tuple[OpNamespace, Any]:
    """The ops for an operand, and the operand as floats: integers and bools become float32."""
    x = operand(x)
    return ops_of(x), x if is_floating(x.dtype) else cast(x, DEFAULTS[float])


def _numbers(x: Any) -> tuple[OpNamespace, Any]:
    """The ops for an operand, and the operand; an error for bools."""
    x = operand(x)
    if x.dtype is VarType.BOOL:
        raise ElementTypeError("bools are no numbers here: astype makes them integers or floats")
    return ops_of(x), x


def abs(x: Any, /) -> Any:
    """The absolute value; of complex numbers, a float.

    Args:
        x: numbers.

    >>> import fluid.numpy as xp
    >>> xp.abs(xp.asarray([-2, 3]))
    NDArray([2, 3], dtype=int64)
    """
    f, x = _numbers(x)
    return f.abs(x)


def acos(x: Any, /) -> Any:
    """The inverse cosine, from 0 to pi.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.acos(xp.asarray(1.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.acos(x)


def acosh(x: Any, /) -> Any:
    """The inverse hyperbolic cosine.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.acosh(xp.asarray(1.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.acosh(x)


def asin(x: Any, /) -> Any:
    """The inverse sine, from -pi / 2 to pi / 2.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.asin(xp.asarray(0.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.asin(x)


def asinh(x: Any, /) -> Any:
    """The inverse hyperbolic sine.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.asinh(xp.asarray(0.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.asinh(x)


def atan(x: Any, /) -> Any:
    """The inverse tangent, from -pi / 2 to pi / 2.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.atan(xp.asarray(0.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.atan(x)


def atanh(x: Any, /) -> Any:
    """The inverse hyperbolic tangent.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.atanh(xp.asarray(0.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.atanh(x)


def bitwise_invert(x: Any, /) -> Any:
    """The opposite of each bit.

    Args:
        x: integers or bools.

    >>> import fluid.numpy as xp
    >>> xp.bitwise_invert(xp.asarray([0, 1]))
    NDArray([-1, -2], dtype=int64)
    """
    x = operand(x)
    return ops_of(x).bitwise_not(x)


def ceil(x: Any, /) -> Any:
    """The smallest integer that is not below the element.

    Args:
        x: real numbers; integers stay.

    >>> import fluid.numpy as xp
    >>> xp.ceil(xp.asarray([1.2, -1.2]))
    NDArray([ 2., -1.], dtype=float32)
    """
    f, x = _numbers(x)
    return f.ceil(x) if is_floating(x.dtype) else f.assign(x)


def conj(x: Any, /) -> Any:
    """The complex conjugate.

    Args:
        x: numbers.

    >>> import fluid.numpy as xp
    >>> xp.conj(xp.asarray(1 + 2j))
    NDArray(1.-2.j, dtype=complex64)
    """
    f, x = _numbers(x)
    return f.conj(x) if is_complex(x.dtype) else f.assign(x)


def cos(x: Any, /) -> Any:
    """The cosine of an angle in radians.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.cos(xp.asarray(0.0))
    NDArray(1., dtype=float32)
    """
    f, x = _floats(x)
    return f.cos(x)


def cosh(x: Any, /) -> Any:
    """The hyperbolic cosine.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.cosh(xp.asarray(0.0))
    NDArray(1., dtype=float32)
    """
    f, x = _floats(x)
    return f.cosh(x)


def exp(x: Any, /) -> Any:
    """The power of e.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.exp(xp.asarray(0.0))
    NDArray(1., dtype=float32)
    """
    f, x = _floats(x)
    return f.exp(x)


def expm1(x: Any, /) -> Any:
    """The power of e, less 1: exact for small elements.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.expm1(xp.asarray(0.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.expm1(x)


def floor(x: Any, /) -> Any:
    """The largest integer that is not above the element.

    Args:
        x: real numbers; integers stay.

    >>> import fluid.numpy as xp
    >>> xp.floor(xp.asarray([1.2, -1.2]))
    NDArray([ 1., -2.], dtype=float32)
    """
    f, x = _numbers(x)
    return f.floor(x) if is_floating(x.dtype) else f.assign(x)


def imag(x: Any, /) -> Any:
    """The imaginary part.

    Args:
        x: numbers.

    >>> import fluid.numpy as xp
    >>> xp.imag(xp.asarray(1 + 2j))
    NDArray(2., dtype=float32)
    """
    f, x = _numbers(x)
    return f.imag(x) if is_complex(x.dtype) else f.fill_any_like(x, value=0.0, dtype=-1)


def isfinite(x: Any, /) -> Any:
    """Whether the element is neither infinite nor NaN.

    Args:
        x: numbers.

    >>> import fluid.numpy as xp
    >>> xp.isfinite(xp.asarray([1.0, float('inf')]))
    NDArray([ True, False], dtype=bool)
    """
    f, x = _numbers(x)
    return f.isfinite_v2(x)


def isinf(x: Any, /) -> Any:
    """Whether the element is infinite.

    Args:
        x: numbers.

    >>> import fluid.numpy as xp
    >>> xp.isinf(xp.asarray([1.0, float('inf')]))
    NDArray([False,  True], dtype=bool)
    """
    f, x = _numbers(x)
    return f.isinf_v2(x)


def isnan(x: Any, /) -> Any:
    """Whether the element is NaN.

    Args:
        x: numbers.

    >>> import fluid.numpy as xp
    >>> xp.isnan(xp.asarray([1.0, float('nan')]))
    NDArray([False,  True], dtype=bool)
    """
    f, x = _numbers(x)
    return f.isnan_v2(x)


def log(x: Any, /) -> Any:
    """The natural logarithm.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.log(xp.asarray(1.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.log(x)


def log10(x: Any, /) -> Any:
    """The logarithm to the base 10.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.log10(xp.asarray(1000.0))
    NDArray(3., dtype=float32)
    """
    f, x = _floats(x)
    return f.log10(x)


def log1p(x: Any, /) -> Any:
    """The natural logarithm of 1 + x: exact for small elements.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.log1p(xp.asarray(0.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.log1p(x)


def log2(x: Any, /) -> Any:
    """The logarithm to the base 2.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.log2(xp.asarray(8.0))
    NDArray(3., dtype=float32)
    """
    f, x = _floats(x)
    return f.log2(x)


def logical_not(x: Any, /) -> Any:
    """Whether the element is False, or zero.

    Args:
        x: bools.

    >>> import fluid.numpy as xp
    >>> xp.logical_not(xp.asarray([True, False]))
    NDArray([False,  True], dtype=bool)
    """
    x = operand(x)
    return ops_of(x).logical_not(x)


def negative(x: Any, /) -> Any:
    """The number of the opposite sign.

    Args:
        x: numbers.

    >>> import fluid.numpy as xp
    >>> xp.negative(xp.asarray([-2, 3]))
    NDArray([ 2, -3], dtype=int64)
    """
    f, x = _numbers(x)
    if is_complex(x.dtype):
        return f.complex(negative(f.real(x)), negative(f.imag(x)))  # a product with -1 has other signs of zeros
    return f.scale(x, scale=-1.0)


def positive(x: Any, /) -> Any:
    """The number itself, in a new array.

    Args:
        x: numbers.

    >>> import fluid.numpy as xp
    >>> xp.positive(xp.asarray([-2, 3]))
    NDArray([-2,  3], dtype=int64)
    """
    f, x = _numbers(x)
    return f.assign(x)


def real(x: Any, /) -> Any:
    """The real part.

    Args:
        x: numbers.

    >>> import fluid.numpy as xp
    >>> xp.real(xp.asarray(1 + 2j))
    NDArray(1., dtype=float32)
    """
    f, x = _numbers(x)
    return f.real(x) if is_complex(x.dtype) else f.assign(x)


def reciprocal(x: Any, /) -> Any:
    """One over each element.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.reciprocal(xp.asarray([4.0]))
    NDArray([0.25], dtype=float32)
    """
    f, x = _floats(x)
    return f.reciprocal(x)


def round(x: Any, /) -> Any:
    """The nearest integer; of two, the even one.

    Args:
        x: numbers; integers stay.

    >>> import fluid.numpy as xp
    >>> xp.round(xp.asarray([0.5, 1.5, 2.4]))
    NDArray([0., 2., 2.], dtype=float32)
    """
    f, x = _numbers(x)
    if is_complex(x.dtype):
        return f.complex(round(f.real(x)), round(f.imag(x)))
    if not is_floating(x.dtype):
        return f.assign(x)
    half = f.equal(f.abs(f.elementwise_sub(x, f.trunc(x))), constant(0.5, x.dtype, x))
    even = f.scale(f.round(f.scale(x, scale=0.5)), scale=2.0)  # where x lies between two integers, the op takes the outer one
    return copysign(f.where(half, even, f.round(x)), x)


def sign(x: Any, /) -> Any:
    """-1, 0 or 1, by the sign; of complex numbers, the number of length 1 in the same direction.

    Args:
        x: numbers.

    >>> import fluid.numpy as xp
    >>> xp.sign(xp.asarray([-2.5, 0.0]))
    NDArray([-1.,  0.], dtype=float32)
    """
    f, x = _numbers(x)
    if not is_complex(x.dtype):
        return f.sign(x)
    zero = f.equal(x, constant(0, x.dtype, x))
    length = cast(f.abs(x), x.dtype)
    ratio = f.elementwise_div(x, f.elementwise_add(length, cast(zero, x.dtype)))
    return ratio


def signbit(x: Any, /) -> Any:
    """Whether the sign is negative, also of -0.0 and NaN.

    Args:
        x: floats.

    >>> import fluid.numpy as xp
    >>> xp.signbit(xp.asarray([1.0, -0.0]))
    NDArray([False,  True], dtype=bool)
    """
    f, x = _floats(x)
    return f.signbit(x)


def sin(x: Any, /) -> Any:
    """The sine of an angle in radians.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.sin(xp.asarray(0.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.sin(x)


def sinh(x: Any, /) -> Any:
    """The hyperbolic sine.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.sinh(xp.asarray(0.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.sinh(x)


def sqrt(x: Any, /) -> Any:
    """The square root.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.sqrt(xp.asarray([4.0, 9.0]))
    NDArray([2., 3.], dtype=float32)
    """
    f, x = _floats(x)
    return f.sqrt(x)


def square(x: Any, /) -> Any:
    """The square.

    Args:
        x: numbers.

    >>> import fluid.numpy as xp
    >>> xp.square(xp.asarray([-2, 3]))
    NDArray([4, 9], dtype=int64)
    """
    f, x = _numbers(x)
    return f.square(x)


def tan(x: Any, /) -> Any:
    """The tangent of an angle in radians.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.tan(xp.asarray(0.0))
    NDArray(0., dtype=float32)
    """
    f, x = _floats(x)
    return f.tan(x)


def tanh(x: Any, /) -> Any:
    """The hyperbolic tangent.

    Args:
        x: floats or complex numbers; integers become float32.

    >>> import fluid.numpy as xp
    >>> xp.tanh(xp.asarray([-1.0, 0.0, 1.0]))
    NDArray([-0.7616,  0.    ,  0.7616], dtype=float32)
    """
    f, x = _floats(x)
    return f.tanh(x)


def trunc(x: Any, /) -> Any:
    """The integer part.

    Args:
        x: real numbers; integers stay.

    >>> import fluid.numpy as xp
    >>> xp.trunc(xp.asarray([1.2, -1.2]))
    NDArray([ 1., -1.], dtype=float32)
    """
    f, x = _numbers(x)
    return f.trunc(x) if is_floating(x.dtype) else f.assign(x)


# ----------------------------------------------------------------------------------------------------------- of two operands
def _float_pair(x1: Any, x2: Any) -> tuple[OpNamespace, Any, Any]:
    """The ops for two operands, and the operands in one type of floats."""
    f, x1, x2 = pair(x1, x2)
    if is_floating(x1.dtype):
        return f, x1, x2
    return f, cast(x1, DEFAULTS[float]), cast(x2, DEFAULTS[float])


def _comparable(number: Any, beside: Any) -> Any:
    """The operand; an integer that the type of the other operand cannot hold is made a float, which is as far outside."""
    if isinstance(number, int) and is_integer(getattr(beside, "dtype", None)):
        limits = iinfo(beside)
        return number if limits.min <= number <= limits.max else float(number)
    return number


def _compared(op_type: str, x1: Any, x2: Any) -> Any:
    """A comparison by an op."""
    f, x1, x2 = pair(_comparable(x1, x2), _comparable(x2, x1))
    return getattr(f, op_type)(x1, x2)


def add(x1: Any, x2: Any, /) -> Any:
    """The sum.

    Args:
        x1, x2: numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.add(xp.asarray([1, 2]), 1)
    NDArray([2, 3], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    return f.elementwise_add(x1, x2)


def atan2(x1: Any, x2: Any, /) -> Any:
    """The angle of the point with the coordinates `x2` and `x1`, from -pi to pi.

    Args:
        x1, x2: floats; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.atan2(xp.asarray([0.0, 1.0]), 1.0)
    NDArray([0.    , 0.7854], dtype=float32)
    """
    f, x1, x2 = _float_pair(x1, x2)
    return f.atan2(x1, x2)


def bitwise_and(x1: Any, x2: Any, /) -> Any:
    """The bits that are set in both.

    Args:
        x1, x2: integers or bools; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.bitwise_and(xp.asarray([1, 6]), 3)
    NDArray([1, 2], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    return f.bitwise_and(x1, x2)


def bitwise_left_shift(x1: Any, x2: Any, /) -> Any:
    """The bits of `x1`, moved up by `x2` places.

    Args:
        x1, x2: integers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.bitwise_left_shift(xp.asarray([1, 6]), 2)
    NDArray([ 4, 24], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    return f.bitwise_left_shift(x1, x2)


def bitwise_or(x1: Any, x2: Any, /) -> Any:
    """The bits that are set in one at least.

    Args:
        x1, x2: integers or bools; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.bitwise_or(xp.asarray([1, 6]), 3)
    NDArray([3, 7], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    return f.bitwise_or(x1, x2)


def bitwise_right_shift(x1: Any, x2: Any, /) -> Any:
    """The bits of `x1`, moved down by `x2` places; the sign stays.

    Args:
        x1, x2: integers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.bitwise_right_shift(xp.asarray([1, 6]), 2)
    NDArray([0, 1], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    return f.bitwise_right_shift(x1, x2)


def bitwise_xor(x1: Any, x2: Any, /) -> Any:
    """The bits that are set in exactly one.

    Args:
        x1, x2: integers or bools; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.bitwise_xor(xp.asarray([1, 6]), 3)
    NDArray([2, 5], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    return f.bitwise_xor(x1, x2)


def copysign(x1: Any, x2: Any, /) -> Any:
    """The size of `x1` with the sign of `x2`.

    Args:
        x1, x2: floats; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.copysign(xp.asarray([1.0, -2.0]), -1.0)
    NDArray([-1., -2.], dtype=float32)
    """
    f, x1, x2 = _float_pair(x1, x2)
    same = f.equal(f.signbit(x1), f.signbit(x2))
    return f.where(*spread((same, x1, f.scale(x1, scale=-1.0))))


def divide(x1: Any, x2: Any, /) -> Any:
    """The quotient; of integers, as float32.

    Args:
        x1, x2: numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.divide(xp.asarray([1.0, 3.0]), 2)
    NDArray([0.5, 1.5], dtype=float32)
    """
    f, x1, x2 = _float_pair(x1, x2)
    return f.elementwise_div(x1, x2)


def equal(x1: Any, x2: Any, /) -> Any:
    """Whether both are equal.

    Args:
        x1, x2: elements of any type; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.equal(xp.asarray([1, 2, 3]), 2)
    NDArray([False,  True, False], dtype=bool)
    """
    return _compared("equal", x1, x2)


def floor_divide(x1: Any, x2: Any, /) -> Any:
    """The quotient, rounded down.

    Args:
        x1, x2: real numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.floor_divide(xp.asarray([5, -5]), 3)
    NDArray([ 1, -2], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    quotient = f.elementwise_floordiv(x1, x2)
    if not is_floating(x1.dtype):
        return quotient
    # The standard has infinity over a number as an infinity, and a number over infinity as a zero.
    exact = f.elementwise_div(x1, x2)
    limit = f.logical_xor(f.isinf_v2(x1), f.isinf_v2(x2))
    return f.where(limit, exact, quotient)


def greater(x1: Any, x2: Any, /) -> Any:
    """Whether `x1` is more than `x2`.

    Args:
        x1, x2: real numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.greater(xp.asarray([1, 2, 3]), 2)
    NDArray([False, False,  True], dtype=bool)
    """
    return _compared("greater_than", x1, x2)


def greater_equal(x1: Any, x2: Any, /) -> Any:
    """Whether `x1` is at least `x2`.

    Args:
        x1, x2: real numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.greater_equal(xp.asarray([1, 2, 3]), 2)
    NDArray([False,  True,  True], dtype=bool)
    """
    return _compared("greater_equal", x1, x2)


def hypot(x1: Any, x2: Any, /) -> Any:
    """The length of the hypotenuse, ``sqrt(x1**2 + x2**2)``, without overflow in between.

    Args:
        x1, x2: floats; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.hypot(xp.asarray([3.0]), 4.0)
    NDArray([5.], dtype=float32)
    """
    f, x1, x2 = _float_pair(x1, x2)
    return f.abs(f.complex(*spread((x1, x2))))


def less(x1: Any, x2: Any, /) -> Any:
    """Whether `x1` is less than `x2`.

    Args:
        x1, x2: real numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.less(xp.asarray([1, 2, 3]), 2)
    NDArray([ True, False, False], dtype=bool)
    """
    return _compared("less_than", x1, x2)


def less_equal(x1: Any, x2: Any, /) -> Any:
    """Whether `x1` is at most `x2`.

    Args:
        x1, x2: real numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.less_equal(xp.asarray([1, 2, 3]), 2)
    NDArray([ True,  True, False], dtype=bool)
    """
    return _compared("less_equal", x1, x2)


def logaddexp(x1: Any, x2: Any, /) -> Any:
    """``log(exp(x1) + exp(x2))``, without overflow in between.

    Args:
        x1, x2: floats; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.logaddexp(xp.asarray([0.0]), 0.0)
    NDArray([0.6931], dtype=float32)
    """
    f, x1, x2 = _float_pair(x1, x2)
    x1, x2 = spread((x1, x2))
    first = f.greater_equal(x1, x2)
    larger, smaller = f.where(first, x1, x2), f.where(first, x2, x1)
    result = f.elementwise_add(larger, f.log1p(f.exp(f.elementwise_sub(smaller, larger))))
    infinite = f.logical_and(f.equal(x1, x2), f.isinf_v2(x1))
    return f.where(infinite, x1, result)


def logical_and(x1: Any, x2: Any, /) -> Any:
    """Whether both hold.

    Args:
        x1, x2: bools; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.logical_and(xp.asarray([True, False]), True)
    NDArray([ True, False], dtype=bool)
    """
    f, x1, x2 = pair(x1, x2)
    return f.logical_and(x1, x2)


def logical_or(x1: Any, x2: Any, /) -> Any:
    """Whether one holds at least.

    Args:
        x1, x2: bools; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.logical_or(xp.asarray([True, False]), True)
    NDArray([ True,  True], dtype=bool)
    """
    f, x1, x2 = pair(x1, x2)
    return f.logical_or(x1, x2)


def logical_xor(x1: Any, x2: Any, /) -> Any:
    """Whether exactly one holds.

    Args:
        x1, x2: bools; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.logical_xor(xp.asarray([True, False]), True)
    NDArray([False,  True], dtype=bool)
    """
    f, x1, x2 = pair(x1, x2)
    return f.logical_xor(x1, x2)


def maximum(x1: Any, x2: Any, /) -> Any:
    """The larger of both; NaN where one is.

    Args:
        x1, x2: real numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.maximum(xp.asarray([1, 5]), 3)
    NDArray([3, 5], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    return f.elementwise_max(x1, x2)


def minimum(x1: Any, x2: Any, /) -> Any:
    """The smaller of both; NaN where one is.

    Args:
        x1, x2: real numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.minimum(xp.asarray([1, 5]), 3)
    NDArray([1, 3], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    return f.elementwise_min(x1, x2)


def multiply(x1: Any, x2: Any, /) -> Any:
    """The product.

    Args:
        x1, x2: numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.multiply(xp.asarray([1, 2]), 3)
    NDArray([3, 6], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    return f.elementwise_mul(x1, x2)


def nextafter(x1: Any, x2: Any, /) -> Any:
    """The next float from `x1` in the direction of `x2`.

    Args:
        x1, x2: floats; one may be a number.

    >>> import fluid.numpy as xp
    >>> bool(xp.nextafter(xp.asarray(1.0), 2.0) > 1.0)
    True
    """
    f, x1, x2 = _float_pair(x1, x2)
    return f.nextafter(x1, x2)


def not_equal(x1: Any, x2: Any, /) -> Any:
    """Whether they differ.

    Args:
        x1, x2: elements of any type; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.not_equal(xp.asarray([1, 2, 3]), 2)
    NDArray([ True, False,  True], dtype=bool)
    """
    return _compared("not_equal", x1, x2)


def pow(x1: Any, x2: Any, /) -> Any:
    """The power of a base `x1` with an exponent `x2`.

    Args:
        x1, x2: numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.pow(xp.asarray([2, 3]), 2)
    NDArray([4, 9], dtype=int64)
    """
    if _is_whole(x2) and isinstance(x1, ValueOperators) and x1.dtype in KINDS["real floating"]:  # type: ignore[attr-defined]
        return ops_of(x1).pow(x1, factor=float(x2))
    f, x1, x2 = pair(x1, x2)
    return f.elementwise_pow(x1, x2)


def _is_whole(exponent: Any) -> bool:
    """Whether an exponent is a whole number of Python that an attribute of an op holds exactly."""
    return (exponent.__class__ is int or exponent.__class__ is float) and -EXACT <= exponent <= EXACT and exponent % 1 == 0


def remainder(x1: Any, x2: Any, /) -> Any:
    """The remainder of the floored quotient, of the sign of the divisor `x2`.

    Args:
        x1, x2: real numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.remainder(xp.asarray([5, -5]), 3)
    NDArray([2, 1], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    return f.elementwise_mod(x1, x2)


def subtract(x1: Any, x2: Any, /) -> Any:
    """The difference.

    Args:
        x1, x2: numbers; one may be a number.

    >>> import fluid.numpy as xp
    >>> xp.subtract(xp.asarray([1, 2]), 1)
    NDArray([0, 1], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    return f.elementwise_sub(x1, x2)


# --------------------------------------------------------------------------------------------------------- of three operands
def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """The nearest number between two bounds.

    Args:
        x: real numbers.
        min, max: the bounds, numbers or arrays that broadcast with `x`; None for no bound. They take the type of `x`.

    >>> import fluid.numpy as xp
    >>> xp.clip(xp.asarray([-2, 5, 1]), 0, 3)
    NDArray([0, 3, 1], dtype=int64)
    """
    f, x = _numbers(x)
    if min is None and max is None:
        return f.assign(x)
    for bound, op_type in ((min, "elementwise_max"), (max, "elementwise_min")):
        if bound is not None:
            x = getattr(f, op_type)(x, _bound(bound, x))
    return x


def _bound(bound: Any, x: Any) -> Any:
    """A bound in the element type of `x`; an integer outside it becomes the nearest one."""
    if not isinstance(bound, (int, float)):
        return cast(operand(bound), x.dtype)
    if is_integer(x.dtype):
        limits = iinfo(x.dtype)
        bound = limits.min if bound < limits.min else limits.max if bound > limits.max else bound
    return constant(bound, x.dtype, x)
