"""Element types: their names, promotion, limits, and conversion."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..errors import ElementTypeError, FluidTypeError
from ..values.operators import ValueOperators
from ..values.types import BFLOAT16, DTypeLike, VarType, as_dtype, complex_of, is_complex, is_floating, is_integer, real_of

__all__ = [
    "bool",
    "can_cast",
    "complex64",
    "complex128",
    "finfo",
    "float32",
    "float64",
    "iinfo",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "result_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]  # fmt: skip

bool = VarType.BOOL
int8, int16, int32, int64 = VarType.INT8, VarType.INT16, VarType.INT32, VarType.INT64
uint8, uint16, uint32, uint64 = VarType.UINT8, VarType.UINT16, VarType.UINT32, VarType.UINT64
float32, float64 = VarType.FP32, VarType.FP64
complex64, complex128 = VarType.COMPLEX64, VarType.COMPLEX128

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
DEFAULTS: dict[type, VarType] = {builtins.bool: bool, int: int64, float: float32, complex: complex64}
"""Type of Python's numbers -> the element type that stands for it where nothing else is said."""
KINDS = {
    "bool": frozenset({bool}),
    "signed integer": frozenset(SIGNED),
    "unsigned integer": frozenset(UNSIGNED),
    "integral": frozenset({*SIGNED, *UNSIGNED}),
    "real floating": frozenset({VarType.FP16, VarType.BF16, float32, float64}),
    "complex floating": frozenset({complex64, complex128}),
}
KINDS["numeric"] = KINDS["integral"] | KINDS["real floating"] | KINDS["complex floating"]
"""Name of a kind -> its element types."""


def rank(dtype: VarType) -> int:
    """The place of an element type's kind in promotion: bools, integers, floats, complex numbers."""
    return 3 if is_complex(dtype) else 2 if is_floating(dtype) else 0 if dtype is bool else 1


_RANKS: dict[type, int] = {builtins.bool: 0, int: 1, float: 2, complex: 3}


@cache
def promoted(first: VarType, second: VarType) -> VarType:
    """The element type of an operation on two.

    Where the standard leaves it open, an integer beside a float takes the float's type, and a bool the other's.
    """
    if first is second:
        return first
    low, high = sorted((first, second), key=rank)
    if rank(low) < 2 and rank(low) < rank(high):
        return high
    if BFLOAT16 in (first.array_dtype, second.array_dtype):
        partner = second if first is VarType.BF16 else first
        return float32 if partner is VarType.FP16 else promoted(float32, partner)
    result = as_dtype(np.promote_types(first.numpy, second.numpy))
    if is_floating(result) and not is_floating(high):
        raise ElementTypeError(f"{first.text} and {second.text} have no common integer type; cast one by astype")
    return result


def beside(number: Any, dtype: VarType) -> VarType:
    """The element type of an operation on elements of a type and one of Python's numbers, which takes theirs if it fits."""
    return _beside(number.__class__, dtype)


@cache
def _beside(number_type: type, dtype: VarType) -> VarType:
    kind = next((python_type for python_type in _RANKS if issubclass(number_type, python_type)), None)
    if kind is None:
        raise FluidTypeError(f"{number_type.__name__} is neither an array nor a number; asarray makes an array of lists")
    if _RANKS[kind] <= rank(dtype):
        return dtype
    return complex_of(dtype) if kind is complex and is_floating(dtype) else DEFAULTS[kind]


def result_type(*arrays_and_dtypes: Any) -> VarType:
    """The element type of an operation on these.

    Args:
        arrays_and_dtypes: arrays, element types and Python's numbers; numbers take the type of the others where they fit it.

    Raises:
        ElementTypeError: there is no common type, as of uint64 and int64.
        FluidTypeError: there is neither an array nor an element type.

    >>> import fluid.numpy as xp
    >>> xp.result_type(xp.int8, xp.uint8) is xp.int16, xp.result_type(xp.asarray([1.0]), 3) is xp.float32
    (True, True)
    """
    dtypes = [
        value if isinstance(value, VarType) else value.dtype
        for value in arrays_and_dtypes
        if isinstance(value, VarType) or hasattr(value, "dtype")
    ]
    if not dtypes:
        raise FluidTypeError("result_type takes an array or an element type at least")
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = promoted(result, dtype)
    for value in arrays_and_dtypes:
        if not isinstance(value, VarType) and not hasattr(value, "dtype"):
            result = beside(value, result)
    return result


def can_cast(from_: Any, to: VarType, /) -> builtins.bool:
    """Whether promotion leads from one element type to another.

    Args:
        from_: an element type, or an array.
        to: an element type.

    >>> import fluid.numpy as xp
    >>> xp.can_cast(xp.int8, xp.int16), xp.can_cast(xp.int16, xp.int8)
    (True, False)
    """
    source = _dtype_of(from_)
    if rank(source) != rank(to) and (rank(source), rank(to)) != (2, 3):
        return False
    try:
        return promoted(source, to) is to
    except ElementTypeError:
        return False


def isdtype(dtype: VarType, kind: Any) -> builtins.bool:
    """Whether an element type is of a kind.

    Args:
        dtype: an element type.
        kind: ``"bool"``, ``"signed integer"``, ``"unsigned integer"``, ``"integral"``, ``"real floating"``,
            ``"complex floating"``, ``"numeric"``, an element type, or a tuple of these.

    >>> import fluid.numpy as xp
    >>> xp.isdtype(xp.float32, "real floating"), xp.isdtype(xp.int8, ("bool", "unsigned integer"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, item) for item in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ElementTypeError(f"isdtype: {kind!r} is no kind of element types; there are {', '.join(KINDS)}")
        return dtype in KINDS[kind]
    return dtype is as_dtype(kind)


@dataclass(frozen=True)
class FloatLimits:
    """Limits of a type of floats.

    Attributes:
        bits: how many bits a number has.
        eps: the distance of 1.0 to the next larger number.
        max, min: the largest and the smallest number.
        smallest_normal: the smallest positive number with full precision.
        dtype: the element type.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: VarType


@dataclass(frozen=True)
class IntegerLimits:
    """Limits of a type of integers.

    Attributes:
        bits: how many bits a number has.
        max, min: the largest and the smallest number.
        dtype: the element type.
    """

    bits: int
    max: int
    min: int
    dtype: VarType


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a type of floats; of complex numbers, of their parts.

    Args:
        type: an element type, or an array.

    >>> import fluid.numpy as xp
    >>> xp.finfo(xp.float32).eps
    1.1920928955078125e-07
    """
    dtype = real_of(_dtype_of(type))
    if not is_floating(dtype):
        raise ElementTypeError(f"finfo: {dtype.text} is no type of floats")
    if dtype is VarType.BF16:
        wide = np.finfo(np.float32)
        largest = float(np.ldexp(255.0, 120))
        return FloatLimits(16, 2.0**-7, largest, -largest, float(wide.smallest_normal), dtype)
    limits = np.finfo(dtype.numpy)
    eps, most, least, normal = (float(number) for number in (limits.eps, limits.max, limits.min, limits.smallest_normal))
    return FloatLimits(limits.bits, eps, most, least, normal, dtype)


def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of a type of integers.

    Args:
        type: an element type, or an array.

    >>> import fluid.numpy as xp
    >>> xp.iinfo(xp.int8).max
    127
    """
    dtype = _dtype_of(type)
    if not is_integer(dtype):
        raise ElementTypeError(f"iinfo: {dtype.text} is no type of integers")
    limits = np.iinfo(dtype.numpy)
    return IntegerLimits(limits.bits, int(limits.max), int(limits.min), dtype)


def _dtype_of(value: DTypeLike | ValueOperators) -> VarType:
    return value.dtype if isinstance(value, ValueOperators) else as_dtype(value)  # type: ignore[attr-defined]
