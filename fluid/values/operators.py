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
from .types import VarType, as_dtype, is_complex, is_floating, is_integer, real_of

_INT_RANGES: dict[VarType, tuple[float, float]] = {
    kind: (int(np.iinfo(kind.numpy).min), int(np.iinfo(kind.numpy).max)) for kind in filter(is_integer, VarType)
}
"""Integer type -> its least and its greatest value."""
_EXACT = 2**24
"""All integers up to here are exact as 32-bit floats. Program files store float attributes so."""
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
        dtype = self.dtype  # type: ignore[attr-defined]
        shape = [1] if self.shape else []  # type: ignore[attr-defined]  # with a scalar, the result is a scalar
        if is_complex(dtype) and isinstance(number, numbers.Complex):
            parts = (float(number.real), float(number.imag))
            constants = [self._ops().fill_constant(shape=shape, dtype=real_of(dtype), value=part) for part in parts]
            return self._ops().complex(*constants)
        self._check_number(number)
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
            advice = ": cast to complex64 first" if isinstance(number, numbers.Complex) else ""
            problem = f"{number} is none of them{advice}"
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

    def _binary(self, op_type: str, operand: Any, swap: bool = False) -> Any:
        if isinstance(operand, np.ndarray) and not self._eager:
            operand = self._number_of(operand)
        if isinstance(operand, numbers.Number):
            operand = self._constant(operand)
        elif not isinstance(operand, ValueOperators) or operand._eager is not self._eager:
            return NotImplemented
        left, right = (operand, self) if swap else (self, operand)
        return getattr(self._ops(), op_type)(left, right)

    def _number_of(self, array: Any) -> Any:
        """The element of an array of one, such as a fetched rate."""
        if array.size != 1:
            sizes = f"{array.dtype}{list(array.shape)}"
            raise FluidTypeError(
                f"{self._described()} cannot be combined with an array, {sizes}; write fluid.layers.assign(array)"
            )
        return array.item()

    def _compare(self, op_type: str, operand: Any) -> Any:
        """A comparison; with a number that no element can equal, the result is the same for all elements."""
        if isinstance(operand, ValueOperators):
            return self._binary(op_type, operand)
        if isinstance(operand, np.bool_):
            operand = bool(operand)
        if operand.__class__ is not float and not isinstance(operand, numbers.Real):
            return self._binary(op_type, operand)
        number: Any = operand
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

    def __add__(self, operand: Any) -> Any:
        if isinstance(operand, numbers.Real) and not self._is_large(operand := self._number(operand)):
            return self._ops().scale(self, scale=1.0, bias=operand)
        return self._binary("elementwise_add", operand)

    __radd__ = __add__

    def __sub__(self, operand: Any) -> Any:
        if isinstance(operand, numbers.Real) and not self._is_large(operand := self._number(operand)):
            return self._ops().scale(self, scale=1.0, bias=-operand)
        return self._binary("elementwise_sub", operand)

    def __rsub__(self, operand: Any) -> Any:
        if isinstance(operand, numbers.Real) and not self._is_large(operand := self._number(operand)):
            return self._ops().scale(self, scale=-1.0, bias=operand)
        return self._binary("elementwise_sub", operand, swap=True)

    def __mul__(self, operand: Any) -> Any:
        if isinstance(operand, numbers.Real) and not self._is_large(operand := self._number(operand)):
            return self._ops().scale(self, scale=operand)
        return self._binary("elementwise_mul", operand)

    __rmul__ = __mul__

    def __truediv__(self, operand: Any) -> Any:
        if isinstance(operand, numbers.Real):
            divisor = operand = self._number(operand)
            if divisor != 0 and divisor.__class__ is float:
                return self._ops().scale(self, scale=1.0 / divisor)
            if str(divisor) == "-0.0":  # a constant of -0.0 would be written as 0.0
                return -self / 0.0
        return self._binary("elementwise_div", operand)

    def __rtruediv__(self, operand: Any) -> Any:
        return self._binary("elementwise_div", operand, swap=True)

    def __floordiv__(self, operand: Any) -> Any:
        return self._binary("elementwise_floordiv", operand)

    def __rfloordiv__(self, operand: Any) -> Any:
        return self._binary("elementwise_floordiv", operand, swap=True)

    def __mod__(self, operand: Any) -> Any:
        return self._binary("elementwise_mod", operand)

    def __rmod__(self, operand: Any) -> Any:
        return self._binary("elementwise_mod", operand, swap=True)

    def __divmod__(self, operand: Any) -> Any:
        quotient = self.__floordiv__(operand)
        return NotImplemented if quotient is NotImplemented else (quotient, self % operand)

    def __rdivmod__(self, operand: Any) -> Any:
        quotient = self.__rfloordiv__(operand)
        return NotImplemented if quotient is NotImplemented else (quotient, operand % self)

    def __pow__(self, operand: Any) -> Any:
        if isinstance(operand, numbers.Number):
            self._check_number(operand)
            return self._ops().pow(self, factor=operand)
        return self._binary("elementwise_pow", operand)

    def __rpow__(self, operand: Any) -> Any:
        return self._binary("elementwise_pow", operand, swap=True)

    def __matmul__(self, operand: Any) -> Any:
        return NotImplemented if isinstance(operand, numbers.Number) else self._binary("matmul_v2", operand)

    def __neg__(self) -> Any:
        return self._ops().scale(self, scale=-1.0)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._ops().abs(self)

    def __round__(self, digits: int | None = None) -> Any:
        if not is_floating(self.dtype) and (digits or 0) >= 0:  # type: ignore[attr-defined]
            return self
        return self._ops().round(self) if not digits else self._ops().round(self * 10.0**digits) / 10.0**digits

    def __lt__(self, operand: Any) -> Any:
        return self._compare("less_than", operand)

    def __le__(self, operand: Any) -> Any:
        return self._compare("less_equal", operand)

    def __gt__(self, operand: Any) -> Any:
        return self._compare("greater_than", operand)

    def __ge__(self, operand: Any) -> Any:
        return self._compare("greater_equal", operand)

    def astype(self, dtype: Any) -> Any:
        """This value with its elements cast to another type."""
        return self._ops().cast(self, in_dtype=int(self.dtype), out_dtype=int(as_dtype(dtype)))  # type: ignore[attr-defined]
