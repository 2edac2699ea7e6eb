"""A node of an ONNX graph, as the import functions see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FormatError
from ..ir.program import Variable
from ..values.types import VarType, is_floating
from .values import Absent, SequenceValue, TensorValue, Value

if TYPE_CHECKING:
    from .importing import Importer


Index = int
"""The type int: methods of `OnnxNode` hide the builtin name."""


class OnnxNode:
    """A node: its inputs as values, its attributes by type.

    ``node[2]`` is the third input as a variable; `get` gives None where it is missing.

    Attributes:
        proto: the message.
        opset: the version of the ops of its domain.
        inputs: the values of its inputs; None for those left out.
        reader: what builds the program, for nodes that hold graphs.
    """

    def __init__(self, proto: Any, inputs: list[Value | None], opset: Index, reader: Importer) -> None:
        self.proto = proto
        self.inputs = inputs
        self.opset = opset
        self.reader = reader
        self._attributes = {attribute.name: attribute for attribute in proto.attribute}

    # -- inputs
    def __len__(self) -> Index:
        return len(self.inputs)

    def value(self, index: Index) -> Value | None:
        """An input as a value; None if it is missing."""
        return self.inputs[index] if index < len(self.inputs) else None

    def __getitem__(self, index: Index) -> Variable:
        variable: Variable | None = self.get(index)
        if variable is None:
            raise FormatError(f"its input {index} is missing")
        return variable

    def get(self, index: Index) -> Any:
        """An input as a variable; None if it is missing."""
        value = self.value(index)
        if value is None:
            return None
        return self.tensor_of(value, index).variable(self.reader.builder.block)

    def tensor_of(self, value: Any, index: Index) -> TensorValue:
        """Check that a value is a tensor; `FormatError` if it is a sequence, or an empty optional."""
        if not isinstance(value, TensorValue):
            kind = "nothing, an empty optional" if isinstance(value, Absent) else "a sequence"
            raise FormatError(f"its input {index} is {kind}; it should be a tensor")
        return value

    def tensor(self, index: Index) -> TensorValue:
        """An input as a `TensorValue`; `FormatError` if it is missing, or a sequence."""
        value = self.value(index)
        if value is None:
            raise FormatError(f"its input {index} is missing")
        return self.tensor_of(value, index)

    def sequence(self, index: Index) -> SequenceValue:
        """An input that is a sequence."""
        value = self.value(index)
        if not isinstance(value, SequenceValue):
            raise FormatError(f"its input {index} should be a sequence")
        return value

    def variables(self) -> list[Variable]:
        """All inputs, as variables."""
        return [self[index] for index in range(len(self.inputs))]

    def array(self, index: Index) -> Any:
        """An input's constant value, weights included; None if it is known only at run time."""
        value = self.value(index)
        return value.array if isinstance(value, TensorValue) else None

    def constant_input(self, index: Index, label: str, default: Any = None) -> Any:
        """An input's value, which must be constant; `default` if it is missing."""
        value = self.value(index)
        if value is None:
            return default
        array = self.array(index)
        if array is None:
            raise FormatError(f"{label} (input {index}) is computed in a run; it can be read only where it is known before")
        return array

    def numbers(self, index: Index) -> list[Any] | None:
        """An input of integers as numbers, `Size`s and `Element`s; None if even the count is unknown, or the input is missing."""
        value = self.value(index)
        return value.numbers() if isinstance(value, TensorValue) else None

    # -- attributes
    def has(self, name: str) -> bool:
        return name in self._attributes

    def int(self, name: str, default: Any = None) -> Any:
        return self._attribute(name, default, 2, "i")

    def float(self, name: str, default: Any = None) -> Any:
        return self._attribute(name, default, 1, "f")

    def string(self, name: str, default: str = "") -> str:
        value = self._attribute(name, None, 3, "s")
        return default if value is None else value.decode("utf-8", "replace")

    def ints(self, name: str, default: Any = None) -> Any:
        value = self._attribute(name, None, 7, "ints")
        return default if value is None else list(value)

    def floats(self, name: str, default: Any = None) -> Any:
        value = self._attribute(name, None, 6, "floats")
        return default if value is None else list(value)

    def strings(self, name: str, default: Any = None) -> Any:
        value = self._attribute(name, None, 8, "strings")
        return default if value is None else [text.decode("utf-8", "replace") for text in value]

    def proto_of(self, name: str) -> Any:
        """The message in an attribute: a tensor, a graph, a type; None if there is none."""
        attribute = self._attributes.get(name)
        if attribute is None:
            return None
        fields = {4: "t", 5: "g", 11: "sparse_tensor", 13: "tp"}
        if attribute.type not in fields:
            raise FormatError(f"its attribute {name!r} should be a tensor or a graph")
        return getattr(attribute, fields[attribute.type])

    def _attribute(self, name: str, default: Any, kind: Index, field: str) -> Any:
        attribute = self._attributes.get(name)
        if attribute is None:
            return default
        if attribute.type not in (kind, 0):
            raise FormatError(f"its attribute {name!r} is of type {attribute.type}; it should be of type {kind} ({field})")
        return getattr(attribute, field)

    # -- types
    @property
    def dtype(self) -> VarType:
        """The element type of the first input."""
        return self.tensor(0).dtype

    def is_floating(self, index: Index = 0) -> bool:
        return is_floating(self.tensor(index).dtype)

    def scalar(self, index: Index) -> Any:
        """A constant single number that is no weight, as a Python number; else None."""
        value = self.value(index)
        if not isinstance(value, TensorValue) or value.fixed is None or np.size(value.fixed) != 1:
            return None
        return np.asarray(value.fixed).reshape(()).item()
