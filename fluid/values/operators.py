"""Python's operators as ops, defined once for every type of value that gradient rules compute with.

A rule is one function for several types of values. Each type has a namespace that defines what applying an op does:
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

from ..errors import ElementTypeError, FluidTypeError, InferenceError
from .types import VarType, as_dtype, is_floating

__all__ = ["ValueOperators"]

_INT_RANGES: dict[VarType, tuple[float, float]] = {
    kind: (int(np.iinfo(kind.numpy).min), int(np.iinfo(kind.numpy).max))
    for kind in (VarType.INT8, VarType.UINT8, VarType.INT16, VarType.INT32, VarType.INT64, VarType.SIZE_T)
}
"""Integer type -> its least and its greatest value."""
_EXACT = 2**24
"""All integers up to here are exact as 32-bit floats, in which files of programs keep float attributes."""
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less_than": operator.lt,
    "less_equal": operator.le,
    "greater_than": operator.gt,
    "greater_equal": operator.ge,
}


def _brief(number: Any) -> str:
    """A number for messages; of one with very many digits, only its size."""
    return f"a number of {number.bit_length()} bits" if isinstance(number, int) and number.bit_length() > 256 else str(number)


class ValueOperators:
    """Base class of values: Python's operators as ops of the value's namespace."""

    __slots__ = ()

    _eager = False
    """Whether it has elements. It cannot be combined with a value that only stands for elements."""

    def _ops(self) -> Any:
        """The namespace of ops over this type of value (`fluid.opdef.inference.OpNamespace`)."""
        raise NotImplementedError

    def _described(self) -> str:
        """A description for messages."""
        return str(self)

    def _constant(self, number: Any) -> Any:
        self._check_number(number)
        dtype = self.dtype  # type: ignore[attr-defined]
        shape = [1] if self.shape else []  # type: ignore[attr-defined]  # with a scalar, the result is a scalar
        if not self._is_large(number):
            return self._ops().fill_constant(shape=shape, dtype=dtype, value=float(number))
        if number > _INT_RANGES[VarType.INT64][1]:
            return self._ops().fill_constant(shape=shape, dtype=dtype, value=float(number), str_value=str(int(number)))
        values = {"int32_values" if dtype is VarType.INT32 else "int64_values": [int(number)]}
        return self._ops().assign_value(shape=shape, dtype=int(dtype), **values)

    def _check_number(self, number: Any) -> None:
        """`InferenceError` if the element type cannot hold this number: a fraction among integers, one that is too large."""
        dtype = self.dtype  # type: ignore[attr-defined]
        if is_floating(dtype):
            self._float(number)
        elif dtype is VarType.BOOL:
            if number not in (0, 1):
                raise InferenceError(f"{self._described()} holds True and False, and {_brief(number)} is neither")
        elif isinstance(number, numbers.Integral) or self._float(number).is_integer():
            self._check_range(number)
        else:
            problem = f"the fraction of {number} would be lost: cast to float32 first"
            raise InferenceError(f"{self._described()} holds integers, and {problem}")

    def _check_range(self, number: Any) -> None:
        least, most = _INT_RANGES.get(self.dtype, (-math.inf, math.inf))  # type: ignore[attr-defined]
        if not least <= number <= most:
            problem = f"{self._described()} holds integers from {least} to {most}, and {_brief(number)} is none of them"
            raise InferenceError(f"{problem}: cast to a wider type first")

    def _float(self, number: Any) -> float:
        try:
            return float(number)
        except OverflowError:
            problem = f"{_brief(number)} is larger than all of them"
        except TypeError:
            problem = f"{number} is none of them"
        elements = "floats" if is_floating(self.dtype) else "integers"  # type: ignore[attr-defined]
        raise InferenceError(f"{self._described()} holds {elements}, and {problem}")

    def _number(self, number: Any) -> Any:
        """A number as an element, for arithmetic with elements; a fraction beside integers is left for the op to handle."""
        dtype = self.dtype  # type: ignore[attr-defined]
        if is_floating(dtype):
            return number if number.__class__ is float else self._float(number)
        if dtype is VarType.BOOL:
            advice = "holds bools, with which numbers are not calculated: cast to int64 or float32 first"
            raise ElementTypeError(f"{self._described()} {advice}")
        if number.__class__ is not int and not isinstance(number, numbers.Integral):
            number = self._float(number)
            if not number.is_integer():
                return number
            number = int(number)
        self._check_range(number)
        return number

    def _is_large(self, number: Any) -> bool:
        """Whether this is an integer, beside integers, that a float attribute may not hold exactly."""
        return self.dtype in _INT_RANGES and not -_EXACT <= number <= _EXACT and number % 1 == 0  # type: ignore[attr-defined]

    def _binary(self, op_type: str, other: Any, swap: bool = False) -> Any:
        if isinstance(other, np.ndarray) and not self._eager:
            other = self._number_of(other)
        if isinstance(other, numbers.Number):
            other = self._constant(other)
        elif not isinstance(other, ValueOperators) or other._eager is not self._eager:
            return NotImplemented
        left, right = (other, self) if swap else (self, other)
        return getattr(self._ops(), op_type)(left, right)

    def _number_of(self, array: Any) -> Any:
        """The element of an array of one, such as a fetched rate."""
        if array.size != 1:
            sizes = f"{array.dtype}{list(array.shape)}"
            raise FluidTypeError(
                f"{self._described()} cannot be combined with an array, {sizes}; write fluid.layers.assign(array)"
            )
        return array.item()

    def _compare(self, op_type: str, other: Any) -> Any:
        """A comparison; with a number that no element can equal, the result is the same for all elements."""
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
        least, most = _INT_RANGES.get(dtype, (-math.inf, math.inf))
        return self._binary(op_type, number) if least <= number <= most else self._alike(_COMPARISONS[op_type](0, number))

    def _alike(self, value: bool) -> Any:
        """This bool in place of each element."""
        return self._ops().fill_any_like(self, value=float(value), dtype=int(VarType.BOOL))

    def __add__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number) and not self._is_large(other := self._number(other)):
            return self._ops().scale(self, scale=1.0, bias=other)
        return self._binary("elementwise_add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number) and not self._is_large(other := self._number(other)):
            return self._ops().scale(self, scale=1.0, bias=-other)  # type: ignore[operator]
        return self._binary("elementwise_sub", other)

    def __rsub__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number) and not self._is_large(other := self._number(other)):
            return self._ops().scale(self, scale=-1.0, bias=other)
        return self._binary("elementwise_sub", other, swap=True)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number) and not self._is_large(other := self._number(other)):
            return self._ops().scale(self, scale=other)
        return self._binary("elementwise_mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number):
            divisor = other = self._number(other)
            if divisor != 0 and divisor.__class__ is float:
                return self._ops().scale(self, scale=1.0 / divisor)
            if str(divisor) == "-0.0":  # a constant of -0.0 would be written as 0.0
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
        """This value with its elements cast to another type."""
        return self._ops().cast(self, in_dtype=int(self.dtype), out_dtype=int(as_dtype(dtype)))  # type: ignore[attr-defined]
