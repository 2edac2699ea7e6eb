"""The values that names of an ONNX graph stand for while a program is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Union

import numpy as np

from ..errors import FormatError
from ..ir.program import Block, Variable
from ..values.types import VarType, as_dtype

MOST_NUMBERS = 4096
"""The most integers to handle one by one, such as the sizes of a shape."""


@dataclass(frozen=True)
class Element:
    """A number known only at run time: element `index` of the vector, or single number, that a variable holds."""

    name: str
    index: int


@dataclass(frozen=True)
class Size:
    """The size of a variable's dimension, known only at run time."""

    name: str
    axis: int


class TensorValue:
    """A tensor: a variable, or a constant array that becomes a variable where an op needs one.

    Attributes:
        array: the value, if it is constant.
        is_weight: whether training may change `array`, so that it must not be folded.
        elements: for partly known integers, an array of numbers, `Size` and `Element`.
        onnx_type: ONNX's element type where Fluid holds the value in a wider one; else None.
        quantized: if QuantizeLinear made it, its inputs: floats, scale and zero point; else empty.
    """

    __slots__ = ("_make", "_variables", "array", "elements", "is_weight", "onnx_type", "quantized")

    def __init__(
        self,
        variable: Variable | None = None,
        array: Any = None,
        make: Callable[[Any], Variable] | None = None,
        is_weight: bool = False,
        elements: Any = None,
        onnx_type: int | None = None,
        quantized: tuple[Any, ...] = (),
    ) -> None:
        self._variables: dict[Block, Variable] = {} if variable is None else {variable.block: variable}
        self._make = make
        self.array = array
        self.is_weight = is_weight
        self.elements = elements
        self.onnx_type = onnx_type
        self.quantized = quantized

    def variable(self, block: Block) -> Variable:
        """The tensor's variable that is visible in a block."""
        around: Block | None = block
        while around is not None:
            if around in self._variables:
                return self._variables[around]
            around = around.parent
        if self._make is None:
            return next(iter(self._variables.values()))
        variable = self._make(self.array)
        self._variables[variable.block] = variable
        return variable

    @property
    def fixed(self) -> Any:
        """The value, if it is constant and no weight; else None."""
        return None if self.is_weight else self.array

    @property
    def dtype(self) -> VarType:
        return as_dtype(self.array.dtype) if self.array is not None else next(iter(self._variables.values())).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape) if self.array is not None else next(iter(self._variables.values())).shape

    def numbers(self) -> list[Any] | None:
        """The elements of a vector of integers, each a number, a `Size` or an `Element`; None if its length is unknown.

        Raises:
            FormatError: they are more than `MOST_NUMBERS`.
        """
        count = prod(self.shape)
        if count > MOST_NUMBERS:
            raise FormatError(f"it takes a vector of {count} integers one by one; {MOST_NUMBERS} are the most")
        if self.array is not None:
            return [int(number) for number in np.asarray(self.array).reshape(-1)]
        if self.elements is not None:
            return list(self.elements.reshape(-1))
        shape = self.shape
        if len(shape) > 1 or -1 in shape:
            return None
        name = next(iter(self._variables.values())).name
        return [Element(name, index) for index in range(shape[0] if shape else 1)]


class SequenceValue:
    """A sequence: a list of items, if their number is known, else a variable that is an array of tensors."""

    __slots__ = ("_variable", "items")

    def __init__(self, items: list[Any] | None = None, variable: Variable | None = None) -> None:
        self.items = items
        self._variable = variable

    @property
    def array_variable(self) -> Variable | None:
        return self._variable


class Absent:
    """An optional that holds nothing."""


Value = Union[TensorValue, SequenceValue, Absent]
