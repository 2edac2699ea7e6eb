"""Copies of ops and of the blocks that they own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from .program import Block, Operator, OpRole, Program, Variable

_Change = TypeVar("_Change")

RANDOM_STREAM = "random_stream"
"""Attribute of a random op that repeats the draws of another: the name of the other op's first output."""


def _is_random(op: Operator) -> bool:
    """Whether the op may draw random numbers; they depend on the name of its first output."""
    definition = op.definition
    return definition is not None and definition.is_random and bool(op.output_arg_names)


def _random_writers(block: Block) -> Counter[str]:
    """How many random ops of the program draw from the stream of each name."""
    ops = [op for home in block.program.blocks for op in home.ops if _is_random(op) and RANDOM_STREAM not in op.attrs]
    return Counter(op.output_arg_names[0] for op in ops)


def copy_for_backward(op: Operator, home: Block, blocks: dict[Block, Block]) -> Operator:
    """A copy of an op, as part of backward, in the block `home`; copies of the blocks that it owns are added to `blocks`."""
    attrs = {name: list(value) if isinstance(value, list) else value for name, value in op.attrs.items()}
    attrs[OpRole.NAME] = OpRole.BACKWARD
    attrs.pop(OpRole.VARS, None)
    if _is_random(op):
        attrs.setdefault(RANDOM_STREAM, op.output_arg_names[0])
    for name, value in attrs.items():
        if isinstance(value, Block):
            attrs[name] = _copy_block(value, home, blocks)
    inputs = {slot: list(names) for slot, names in op.inputs.items()}
    outputs = {slot: list(names) for slot, names in op.outputs.items()}
    return Operator(home, op.type, inputs, outputs, attrs, op.frames)


def copy_op(op: Operator, home: Block, names: Mapping[str, str] = MappingProxyType({})) -> Operator:
    """A copy of an op in a rewritten program, with other `names` for some variables; blocks that it owns are shared."""
    inputs, outputs = (
        {slot: [names.get(name, name) for name in listed] for slot, listed in slots.items()} for slots in (op.inputs, op.outputs)
    )
    copy = Operator(home, op.type, inputs, outputs, dict(op.attrs), op.frames)
    copy.origin = op.origin or op
    return copy


def copy_to_rewrite(program: Program) -> Program:
    """A copy of a program to rewrite for a run. Its ops know their origins."""
    return copy_with_ops(program)[0]


def copy_with_ops(program: Program) -> tuple[Program, dict[Operator, Operator]]:
    """As `copy_to_rewrite`, with the copy of each op."""
    copy = program.clone()
    copies = dict(zip(_all_ops(program), _all_ops(copy), strict=True))
    for op, twin in copies.items():
        twin.origin = op.origin or op
    return copy, copies


def _all_ops(program: Program) -> list[Operator]:
    return [op for block in program.blocks for op in block.ops]


def declare_like(block: Block, name: str, var: Variable) -> Variable:
    """Declare a variable in a block with the kind, shape, element type and `stop_gradient` of another."""
    new = Variable(block, type=var.type, name=name, shape=var._shape, dtype=var._dtype, lod_level=var.lod_level)
    new._stop_gradient = var.stop_gradient
    block.vars[name] = new
    return new


def rewritten_copy(
    program: Program, changes: Sequence[tuple[Operator, _Change]], rewrite: Callable[[Operator, _Change], None]
) -> Program | None:
    """Copy a program and rewrite ops of the copy; None if no op changes.

    Args:
        changes: ops of any block, each with its change.
        rewrite: gets the copy of an op, and the change.
    """
    if not changes:
        return None
    copy, copies = copy_with_ops(program)
    for op, change in changes:
        rewrite(copies[op], change)
    return copy


def _copy_block(block: Block, parent: Block, blocks: dict[Block, Block]) -> Block:
    copy = blocks[block] = parent.program.create_block(parent=parent)
    for name, var in block.vars.items():
        declare_like(copy, name, var)
    copy.ops = [copy_for_backward(op, copy, blocks) for op in block.ops]
    return copy
