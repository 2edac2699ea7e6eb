"""The parts of the rows of `op_versions` and `to_paddle3`: a row rewrites one type of op for a version of Paddle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ir.program import Operator, OpRole, Variable
from ..opdef.registry import EMPTY
from ..values.types import VarType


class Refused(Exception):
    """Why an op cannot be converted to the ops of a version."""


Rewrite = Callable[[Operator], None]
Condition = Callable[[Operator], bool]
"""A test of an op."""

BOTH = ("", "_grad")
"""Suffixes of an op's name, for the op and for its gradient op."""

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


def temporary(op: Operator, like: Variable, shape: Iterable[int] | None, dtype: VarType | None = None) -> Variable:
    """A new variable in the block of `op`, of the element type of `like`; of another one, without a gradient."""
    base, block = f"{like.name}.tmp", op.block
    name = block.program.fresh_name(base if block.find_var(base) is None else f"{base}_{len(block.vars)}")
    sizes = None if shape is None else list(shape)
    stops = like.stop_gradient if dtype is None else True
    return op.block.create_var(name=name, shape=sizes, dtype=like.dtype if dtype is None else dtype, stop_gradient=stops)


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
    role_attrs = {name: value for name, value in op.attrs.items() if name.startswith("op_")}
    op.type, op.attrs, op.wire = type_, attrs | role_attrs, None


def times_in(shape: Iterable[int], wanted: Iterable[int]) -> list[int]:
    """The number of times that each dimension of `shape` is repeated in `wanted`."""
    times = []
    for size, target in zip(shape, wanted, strict=True):
        if target == -1 or size == target:
            times.append(1)
        elif size == 1 and target > 0:
            times.append(target)
        else:
            raise Refused(f"how often a dimension of {size} is in {target} is not known")
    return times


def is_written(op: Operator, slot: str) -> bool:
    """Whether an output slot of an op names a variable."""
    return op.output(slot) not in ([], [EMPTY])


def put_view(op: Operator, type_: str, x: Variable, out: Any, attrs: Mapping[str, Any], after: bool) -> None:
    """Insert an op that changes only the shape of X: ``reshape2``, ``squeeze2``, ``unsqueeze2`` or ``transpose2``."""
    put(op, type_, {"X": x}, {"Out": out, "XShape": temporary(op, x, (0, *shape_of(x)))}, attrs, after)


def squeeze_ids(op: Operator, slot: str, subject: str) -> None:
    """Take the last dimension, which should be 1, from the ids in a slot; `subject` names them in the refusal."""
    ids = input_of(op, slot)
    shape = shape_of(ids)
    if not shape or shape[-1] != 1:
        raise Refused(f"{subject} {list(shape)}, the last dimension of which should be 1")
    squeezed = temporary(op, ids, shape[:-1])
    put_view(op, "squeeze2", ids, squeezed, {"axes": [-1]}, after=False)
    op.inputs[slot] = [squeezed.name]


def unsqueeze_input(op: Operator, slot: str, axes: Iterable[int]) -> None:
    """Give an input dimensions of 1 at these places of the result, and take them from its gradient."""
    var, places = input_of(op, slot), list(axes)
    shape = list(shape_of(var))
    for axis in places:
        shape.insert(axis, 1)
    wide, xshape = temporary(op, var, shape), temporary(op, var, (0, *shape_of(var)))
    put(op, "unsqueeze2", {"X": var}, {"Out": wide, "XShape": xshape}, {"axes": places}, after=False)
    op.inputs[slot] = [wide.name]
    if is_written(op, f"{slot}@GRAD"):
        inner = temporary(op, var, shape)
        put(op, "unsqueeze2_grad", {"Out@GRAD": inner, "XShape": xshape}, {"X@GRAD": op.output(f"{slot}@GRAD")}, {}, after=True)
        op.outputs[f"{slot}@GRAD"] = [inner.name]


def cast_input(op: Operator, slot: str, dtype: VarType) -> None:
    """Cast the variables of an input slot that have another element type."""
    for position, name in enumerate(op.input(slot)):
        var = op.block.var(name) if name != EMPTY else None
        if var is not None and var.dtype is not dtype:
            cast = temporary(op, var, var._shape, dtype)
            put(op, "cast", {"X": var}, {"Out": cast}, {"in_dtype": int(var.dtype), "out_dtype": int(dtype)}, after=False)
            op.inputs[slot][position] = cast.name


def filled_like(op: Operator, like: Variable, value: float) -> Variable:
    """A tensor of the shape and type of `like`, of one number, made before `op`."""
    filled = temporary(op, like, like._shape)
    put(op, "fill_any_like", {"X": like}, {"Out": filled}, {"value": value, "dtype": -1}, after=False)
    return filled


def constant(op: Operator, like: Variable, shape: Iterable[int], value: float, dtype: VarType | None = None) -> Variable:
    """A tensor of one number, of the element type of `like` or of another, made before `op`."""
    sizes = list(shape)
    filled = temporary(op, like, sizes, dtype)
    attrs = {"shape": sizes, "dtype": int(filled.dtype), "value": value}
    put(op, "fill_constant", {}, {"Out": filled}, attrs, after=False)
    return filled


def align(op: Operator) -> None:
    """Put ones behind the dimensions of Y, where they are not aligned with the last ones of X."""
    x, y, axis = shape_of(input_of(op, "X")), shape_of(input_of(op, "Y")), op.attr("axis")
    op.attrs["axis"] = -1
    if axis != -1 and y and len(x) > axis + len(y):
        unsqueeze_input(op, "Y", range(len(y), len(x) - axis))


def refuse_if(is_wrong: Condition, why: str) -> Rewrite:
    """Make a check that refuses an op when `is_wrong` holds for it."""

    def check(op: Operator) -> None:
        if is_wrong(op):
            raise Refused(why)

    return check
