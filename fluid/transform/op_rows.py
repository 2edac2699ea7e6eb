"""What the rows of `op_versions` and `to_paddle3` are made of: how an op is rewritten for a version of Paddle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ir.program import Operator, OpRole, Variable
from ..opdef.registry import EMPTY

__all__ = ["Names", "Refused", "Rewrite", "Row", "input_of", "only", "put", "set_type", "shape_of", "temporary"]


class Refused(Exception):
    """Why an op cannot be converted to the ops of a version."""


Rewrite = Callable[[Operator], None]
Names = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One op, for one version.

    Attributes:
        rewrite: changes the op, and may insert others before and after it; raises `Refused` if the version has no equivalent.
        attrs: attributes newer than the version, with the values at which they have no effect.
        slots: slots newer than the version.
        check: raises `Refused` if the version has the op, but would run it wrongly.
    """

    type: str
    rewrite: Rewrite | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    slots: tuple[str, ...] = ()
    check: Rewrite | None = None


def input_of(op: Operator, slot: str = "X") -> Variable:
    names = op.inputs.get(slot, [])
    if len(names) != 1 or names[0] == EMPTY:
        raise Refused(f"its slot {slot} holds {len(names)} variables")
    return op.block.var(names[0])


def shape_of(var: Variable) -> tuple[int, ...]:
    if not var.has_shape:
        raise Refused(f"the shape of {var.name} is not known")
    return var.shape


def only(op: Operator, *slots: str) -> None:
    """Refuse an op with inputs in other slots than these."""
    for slot, names in op.inputs.items():
        if slot not in slots and any(name != EMPTY for name in names):
            raise Refused(f"its input {slot} is given by a variable")
    op.inputs = {slot: names for slot, names in op.inputs.items() if slot in slots}


def temporary(op: Operator, like: Variable, shape: Iterable[int] | None) -> Variable:
    """A new variable in the block of `op`."""
    base, block = f"{like.name}.tmp", op.block
    name = block.program.fresh_name(base if block.find_var(base) is None else f"{base}_{len(block.vars)}")
    sizes = None if shape is None else list(shape)
    return op.block.create_var(name=name, shape=sizes, dtype=like.dtype, stop_gradient=like.stop_gradient)


def put(
    op: Operator, type_: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], attrs: Mapping[str, Any], after: bool
) -> None:
    """Insert an op with the same role before or after `op`."""
    full = dict(attrs)
    if op.role:
        full[OpRole.NAME] = op.role
    op.block.insert_op(op.idx + after, type_, inputs=inputs, outputs=outputs, attrs=full, frames=op.frames)


def set_type(op: Operator, type_: str, **attrs: Any) -> None:
    """Set the type and attributes of an op, and keep the attributes that any op has."""
    kept = {name: value for name, value in op.attrs.items() if name.startswith("op_")}
    op.type, op.attrs, op.wire = type_, attrs | kept, None
