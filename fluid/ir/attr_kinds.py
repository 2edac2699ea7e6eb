"""The kinds of attributes in files: which values each can hold, and the kind as which an attribute is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ProgramError
from ..values.types import AttrType
from .paddle_attrs import attrs_of_paddle
from .roles import OpRole

if TYPE_CHECKING:
    from .program import Operator


class BlockValue:
    """The base of `Block`: the values of attributes of the kind ``block``."""

    __slots__ = ()

    @property
    def idx(self) -> int:
        """The position of the block in its program."""
        raise NotImplementedError


_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
_BEYOND_FLOAT32 = float.fromhex("0x1.ffffffp+127")
"""The least number that rounds to infinity."""


def _is_int32(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _INT32


def _is_int64(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _INT64


def _is_float64(value: Any) -> bool:
    return isinstance(value, float) or _is_int64(value)


def _is_float32(value: Any) -> bool:
    return _is_float64(value) and (abs(value) < _BEYOND_FLOAT32 or value - value != 0)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, complex)) or _is_float64(value)


def _is(type_: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, type_)


@dataclass(frozen=True)
class _Kind:
    """A kind of attribute: its number in files, the field that holds it, and the values that the field can hold."""

    number: AttrType
    field: str
    holds: Callable[[Any], bool]
    many: bool = False


KINDS = {
    "int": _Kind(AttrType.INT, "i", _is_int32),
    "float": _Kind(AttrType.FLOAT, "f", _is_float32),
    "string": _Kind(AttrType.STRING, "s", _is(str)),
    "ints": _Kind(AttrType.INTS, "ints", _is_int32, many=True),
    "floats": _Kind(AttrType.FLOATS, "floats", _is_float32, many=True),
    "strings": _Kind(AttrType.STRINGS, "strings", _is(str), many=True),
    "bool": _Kind(AttrType.BOOL, "b", _is(bool)),
    "bools": _Kind(AttrType.BOOLS, "bools", _is(bool), many=True),
    "block": _Kind(AttrType.BLOCK, "block_idx", _is(BlockValue)),
    "long": _Kind(AttrType.LONG, "l", _is_int64),
    "blocks": _Kind(AttrType.BLOCKS, "blocks_idx", _is(BlockValue), many=True),
    "longs": _Kind(AttrType.LONGS, "longs", _is_int64, many=True),
    "float64s": _Kind(AttrType.FLOAT64S, "float64s", _is_float64, many=True),
    "var": _Kind(AttrType.VAR, "var_name", _is(str)),
    "vars": _Kind(AttrType.VARS, "vars_name", _is(str), many=True),
    "float64": _Kind(AttrType.FLOAT64, "float64", _is_float64),
    "scalar": _Kind(AttrType.SCALAR, "scalar", _is_scalar),
    "scalars": _Kind(AttrType.SCALARS, "scalars", _is_scalar, many=True),
}
"""Kinds of attributes, by the names that definitions use."""

BY_NUMBER = {kind.number: name for name, kind in KINDS.items()}
_BY_VALUE = ("bool", "int", "long", "float", "float64", "string", "block", "scalar")
_EVERY_OP = {
    OpRole.NAME: "int",
    OpRole.VARS: "strings",
    "op_namescope": "string",
    "op_callstack": "strings",
    "op_device": "string",
    "with_quant_attr": "bool",
}
"""Attributes that any op may carry."""


def fits(kind: str, value: Any) -> bool:
    """Whether an attribute of this kind can hold `value`."""
    definition = KINDS.get(kind)
    if definition is None:
        return False
    if definition.many:
        return isinstance(value, (list, tuple)) and all(map(definition.holds, value))
    return definition.holds(value)


def attr_kind(op: Operator, name: str, value: Any) -> str:
    """The kind as which an attribute is written unless a file says otherwise: its definition's, else one that can hold its value.

    `ProgramError` if no kind can.
    """
    definition = op.definition
    attr = definition.attrs.get(name) if definition is not None else None
    kind = attr.kind if attr is not None else _EVERY_OP.get(name) or attrs_of_paddle(op.type).get(name, ("",))[0]
    if fits(kind, value):
        return kind
    many = "s" if isinstance(value, (list, tuple)) else ""
    for kind in _BY_VALUE:
        if kind + many in KINDS and (value or not many or kind == "int") and fits(kind + many, value):
            return kind + many
    raise ProgramError(f"{op.type}: attribute {name!r} is {value!r}, which no kind of attribute on the wire can hold")


def written_kind(op: Operator, name: str, value: Any) -> str:
    """The kind for writing an attribute: the kind in the op's file if the value fits it, else `attr_kind`."""
    kind = op.wire.kinds.get(name) if op.wire is not None else None
    return kind if kind is not None and fits(kind, value) else attr_kind(op, name, value)


def attr_type(op: Operator, name: str) -> AttrType:
    """The kind of an attribute in files; `ProgramError` if the op has none of this name."""
    return KINDS[written_kind(op, name, op.attr(name))].number
