"""Python's operators and what they mean as ops, once for every kind of value that gradient rules compute with.

A rule is one function for several kinds of values. Each kind has a namespace that says what applying an op means:
over `Variable` it appends the op to a block (`fluid.ir.inference`), over `Spec` it infers shapes and dtypes
(`fluid.opdef.inference`), over arrays it binds and runs kernels (`fluid.executor`).
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InferenceError
from .types import VarType, as_dtype, is_floating

__all__ = ["ValueOperators"]

_WHOLE: dict[VarType, tuple[float, float]] = {
    kind: (int(np.iinfo(kind.numpy).min), int(np.iinfo(kind.numpy).max))
    for kind in (VarType.INT8, VarType.UINT8, VarType.INT16, VarType.INT32, VarType.INT64, VarType.SIZE_T)
}
"""Types of whole numbers -> the least and the greatest."""
_EXACT = 2**24
"""Up to here, all whole numbers are what floats in programs' files are, which have 32 bits."""
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less_than": operator.lt,
    "less_equal": operator.le,
    "greater_than": operator.gt,
    "greater_equal": operator.ge,
}


def _shown(number: Any) -> str:
    """A number for messages, which thousands of digits are not."""
    return f"a number of {number.bit_length()} bits" if isinstance(number, int) and number.bit_length() > 256 else str(number)


class ValueOperators:
    """Python's operators, written once for every kind of value."""

    __slots__ = ()

    _eager = False
    """It has elements; it and what only stands for such cannot be the operands of one op."""

    def _ops(self) -> Any:
        """The namespace of ops over this kind of value (`fluid.opdef.inference.OpNamespace`)."""
        raise NotImplementedError

    def _described(self) -> str:
        """What it is, for messages."""
        return str(self)

    def _constant(self, number: Any) -> Any:
        self._check_number(number)
        dtype = self.dtype  # type: ignore[attr-defined]
        shape = [1] if self.shape else []  # type: ignore[attr-defined]  # a scalar stays one
        if not self._is_large(number):
            return self._ops().fill_constant(shape=shape, dtype=dtype, value=float(number))
        if number > _WHOLE[VarType.INT64][1]:
            return self._ops().fill_constant(shape=shape, dtype=dtype, value=float(number), str_value=str(int(number)))
        values = {"int32_values" if dtype is VarType.INT32 else "int64_values": [int(number)]}
        return self._ops().assign_value(shape=shape, dtype=int(dtype), **values)

    def _check_number(self, number: Any) -> None:
        """Refuse a number that is none of the elements' type: a fraction among whole numbers, one that is too large."""
        dtype = self.dtype  # type: ignore[attr-defined]
        if is_floating(dtype):
            self._float(number)
        elif dtype is VarType.BOOL:
            if number not in (0, 1):
                raise InferenceError(f"{self._described()} holds True and False, and {_shown(number)} is neither")
        elif isinstance(number, numbers.Integral) or self._float(number).is_integer():
            self._check_range(number)
        else:
            said = f"the fraction of {number} would be lost: cast to float32 first"
            raise InferenceError(f"{self._described()} holds whole numbers, and {said}")

    def _check_range(self, number: Any) -> None:
        least, most = _WHOLE.get(self.dtype, (-math.inf, math.inf))  # type: ignore[attr-defined]
        if not least <= number <= most:
            said = f"{self._described()} holds whole numbers from {least} to {most}, and {_shown(number)} is none of them"
            raise InferenceError(f"{said}: cast to a wider type first")

    def _float(self, number: Any) -> float:
        try:
            return float(number)
        except OverflowError:
            said = f"{_shown(number)} is larger than all of them"
        except TypeError:
            said = f"{number} is none of them"
        kind = "floats" if is_floating(self.dtype) else "whole numbers"  # type: ignore[attr-defined]
        raise InferenceError(f"{self._described()} holds {kind}, and {said}")

    def _number(self, number: Any) -> Any:
        """A number for arithmetic with these elements, as one of them; fractions beside whole numbers are left to the op."""
        dtype = self.dtype  # type: ignore[attr-defined]
        if is_floating(dtype):
            return number if number.__class__ is float else self._float(number)
        if dtype is VarType.BOOL:
            said = "holds bools, with which numbers are not calculated: cast to int64 or float32 first"
            raise InferenceError(f"{self._described()} {said}")
        if number.__class__ is not int and not isinstance(number, numbers.Integral):
            number = self._float(number)
            if not number.is_integer():
                return number
            number = int(number)
        self._check_range(number)
        return number

    def _is_large(self, number: Any) -> bool:
        """A whole number, to be beside others, that an attribute may not hold: these are floats."""
        return self.dtype in _WHOLE and not -_EXACT <= number <= _EXACT and number % 1 == 0  # type: ignore[attr-defined]

    def _binary(self, op_type: str, other: Any, swap: bool = False) -> Any:
        if isinstance(other, numbers.Number):
            other = self._constant(other)
        elif not isinstance(other, ValueOperators) or other._eager is not self._eager:
            return NotImplemented
        left, right = (other, self) if swap else (self, other)
        return getattr(self._ops(), op_type)(left, right)

    def _compare(self, op_type: str, other: Any) -> Any:
        """A comparison; with a number that no element can be, it comes out alike for all of them."""
        if isinstance(other, ValueOperators):
            return self._binary(op_type, other)
        if isinstance(other, np.bool_):
            other = bool(other)
        if other.__class__ is not float and not isinstance(other, numbers.Real):
            return self._binary(op_type, other)
        number: Any = other
        dtype = self.dtype  # type: ignore[attr-defined]
        if is_floating(dtype):
            try:
                return self._binary(op_type, float(number))
            except OverflowError:
                return self._binary(op_type, math.inf if number > 0 else -math.inf)
        if dtype is VarType.BOOL:
            return self._binary(op_type, number) if number in (0, 1) else self.astype(VarType.INT32)._compare(op_type, number)
        least, most = _WHOLE.get(dtype, (-math.inf, math.inf))
        return self._binary(op_type, number) if least <= number <= most else self._alike(_COMPARISONS[op_type](0, number))

    def _alike(self, value: bool) -> Any:
        """This bool for each element."""
        return self._ops().fill_any_like(self, value=float(value), dtype=int(VarType.BOOL))

    def __add__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number):
            other = self._number(other)
            if not self._is_large(other):
                return self._ops().scale(self, scale=1.0, bias=other)
        return self._binary("elementwise_add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number):
            other = self._number(other)
            if not self._is_large(other):
                return self._ops().scale(self, scale=1.0, bias=-other)
        return self._binary("elementwise_sub", other)

    def __rsub__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number):
            other = self._number(other)
            if not self._is_large(other):
                return self._ops().scale(self, scale=-1.0, bias=other)
        return self._binary("elementwise_sub", other, swap=True)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number):
            other = self._number(other)
            if not self._is_large(other):
                return self._ops().scale(self, scale=other)
        return self._binary("elementwise_mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number):
            divisor = other = self._number(other)
            if divisor != 0:
                return self._ops().scale(self, scale=1.0 / divisor)
            if str(divisor) == "-0.0":  # which attributes do not tell from 0.0
                return -self / 0.0
        return self._binary("elementwise_div", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("elementwise_div", other, swap=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._binary("elementwise_floordiv", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._binary("elementwise_floordiv", other, swap=True)

    def __mod__(self, other: Any) -> Any:
        return self._binary("elementwise_mod", other)

    def __rmod__(self, other: Any) -> Any:
        return self._binary("elementwise_mod", other, swap=True)

    def __divmod__(self, other: Any) -> Any:
        quotient = self.__floordiv__(other)
        return NotImplemented if quotient is NotImplemented else (quotient, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        quotient = self.__rfloordiv__(other)
        return NotImplemented if quotient is NotImplemented else (quotient, other % self)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number):
            self._check_number(other)
            return self._ops().pow(self, factor=other)
        return self._binary("elementwise_pow", other)

    def __rpow__(self, other: Any) -> Any:
        return self._binary("elementwise_pow", other, swap=True)

    def __matmul__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, numbers.Number) else self._binary("matmul_v2", other)

    def __neg__(self) -> Any:
        return self._ops().scale(self, scale=-1.0)

    def __pos__(self) -> Any:
        return self

    def __round__(self, digits: int | None = None) -> Any:
        if not is_floating(self.dtype) and (digits or 0) >= 0:  # type: ignore[attr-defined]
            return self
        return self._ops().round(self) if not digits else self._ops().round(self * 10.0**digits) / 10.0**digits

    def __lt__(self, other: Any) -> Any:
        return self._compare("less_than", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("less_equal", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare("greater_than", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare("greater_equal", other)

    def astype(self, dtype: Any) -> Any:
        """This value with elements of another type."""
        return self._ops().cast(self, in_dtype=int(self.dtype), out_dtype=int(as_dtype(dtype)))  # type: ignore[attr-defined]
