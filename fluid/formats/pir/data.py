"""A program of PIR as plain data: values that are defined once, by ops in blocks, in regions of ops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...values.types import VarType

ELEMENTS = {
    "bool": VarType.BOOL, "i8": VarType.INT8, "ui8": VarType.UINT8, "i16": VarType.INT16, "i32": VarType.INT32,
    "i64": VarType.INT64, "f16": VarType.FP16, "bf16": VarType.BF16, "f32": VarType.FP32, "f64": VarType.FP64,
    "c64": VarType.COMPLEX64, "c128": VarType.COMPLEX128,
}  # fmt: skip
"""Element types of tensors, by PIR's names in types."""
DTYPES = {element.text: element for element in ELEMENTS.values()}
"""Element types by the names that attributes have them by."""

DENSE, ARRAY = "dtensor", "dense_tensor_array"
"""Kinds of values: tensors, and arrays of them."""
PLAIN: dict[str, list[Any]] = {DENSE: ["NCHW", [], 0], ARRAY: ["NCHW"]}
"""Layout, level of sequences and offset of the usual types."""


class Attribute(NamedTuple):
    """The value of an attribute, and its type: ``bool``, ``i32``, ``f32``, ``str``, ``dtype``, ...; ``[i32]`` for a list."""

    type: str
    value: Any


class PirType(NamedTuple):
    """The type of a value.

    Attributes:
        kind: `DENSE`, `ARRAY`, ``vec``, ``null``, or another by PIR's name.
        dtype: the elements' type, by PIR's name.
        shape: the shape, -1 for unknown dimensions.
        parts: of a ``vec``, the types of its values.
        unparsed: all else in the file: layout, level of sequences and offset; all data of another kind.
    """

    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    parts: tuple[PirType, ...] = ()
    unparsed: Any = None


NULL = PirType("null")


@dataclass(slots=True, eq=False)
class PirValue:
    """A result of an op, or an argument of a block."""

    id: int
    type: PirType
    stop_gradient: bool = False
    persistable: bool = False


@dataclass(slots=True, eq=False)
class PirOp:
    """An op: ``pd_op.relu``, ``cf.yield``, ``builtin.parameter``; None stands for an operand that is left out."""

    name: str
    operands: list[PirValue | None] = field(default_factory=list)
    results: list[PirValue] = field(default_factory=list)
    attrs: dict[str, Attribute] = field(default_factory=dict)
    regions: list[PirBlock] = field(default_factory=list)

    def attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        attribute = self.attrs.get(name)
        return default if attribute is None else attribute.value


@dataclass(slots=True, eq=False)
class PirBlock:
    """The block of a region: the values that it is given, and its ops in order."""

    args: list[PirValue] = field(default_factory=list)
    ops: list[PirOp] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class PirProgram:
    """A program, and the version of the format that it is written in: 1 to 4 for Paddle 3.0 to 3.3."""

    block: PirBlock
    version: int = 4
