"""Regions of PIR as blocks: ``pd_op.if`` and ``pd_op.while``, and the stacks of ``cf``, which save values for gradients.

A branch is two blocks that copy their results out; `select_input` picks one copy. A loop has a variable for each value that
it passes on, which its block overwrites at the end. A stack has an array of tensors for each of the values that are pushed
together, and counts how often that was done.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import FormatError
from ...ir.program import Block
from ...ir.versions import outer_names
from ...values.types import VarType
from .data import ELEMENTS, PirBlock, PirOp, PirValue
from .special_to_blocks import expect
from .to_blocks import BlockReader, special


def _scopes(at: BlockReader, base: str) -> str:
    name = at.reader.fresh(base)
    at.block.create_var(name=name, type=VarType.STEP_SCOPES)
    return name


def _yielded(op: PirOp, region: PirBlock, count: int) -> list[PirValue]:
    """The values that the last op of a region yields."""
    last = region.ops[-1] if region.ops else None
    values = last.operands if last is not None and last.name == "cf.yield" else []
    if len(values) != count or None in values:
        raise FormatError(f"{op.name}: a region should end with a cf.yield of {count} values, not of {len(values)}")
    return [value for value in values if value is not None]


@special("cf.yield")
def _yield(at: BlockReader, op: PirOp) -> None:
    """Append nothing: the op that owns the region reads the yielded values."""


# ------------------------------------------------------------------------------------------------------------- branches
@special("pd_op.if")
def _if(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, len(op.results))
    if len(op.regions) != 2 or any(region.args for region in op.regions):
        raise FormatError("pd_op.if: it should have two regions, without arguments")
    condition = at.name(op.operands[0])
    number = op.results[0].id if op.results else len(at.reader.program.blocks)
    negated = at.temporary(f"if_{number}.not", op.operands[0].type.shape if op.operands[0] else None, VarType.BOOL, True)
    true_results = _branch(at, op, op.regions[0], condition, f"if_{number}.true")
    at.append("logical_not", {"X": [condition]}, {"Out": [negated]}, {})
    false_results = _branch(at, op, op.regions[1], negated, f"if_{number}.false")
    if not op.results:
        return
    mask = at.temporary(f"if_{number}.mask", op.operands[0].type.shape if op.operands[0] else None, VarType.INT32, True)
    at.append("cast", {"X": [condition]}, {"Out": [mask]}, {"in_dtype": int(VarType.BOOL), "out_dtype": int(VarType.INT32)})
    for value, a, b in zip(op.results, true_results, false_results, strict=True):
        for name in at.results(op, value, f"if_{value.id}"):
            at.append("select_input", {"X": [b, a], "Mask": [mask]}, {"Out": [name]}, {})


def _branch(at: BlockReader, op: PirOp, region: PirBlock, condition: str, base: str) -> list[str]:
    """Append a block that runs if `condition` holds; returns the variables around it that take its results."""
    body = at.reader.program.create_block(at.block)
    inner = BlockReader(at.reader, body)
    inner.read(region)
    outs = []
    for index, value in enumerate(_yielded(op, region, len(op.results))):
        source = inner.name(value)
        out = at.another(value, f"{base}.{index}", op.results[index].stop_gradient)
        inner.append("assign", {"X": [source]}, {"Out": [out]}, {})
        outs.append(out)
    reads, writes = outer_names(body)
    at.append(
        "conditional_block",
        {"Cond": [condition], "Input": [name for name in dict.fromkeys((*reads, *writes)) if name not in outs]},
        {"Out": writes, "Scope": [_scopes(at, f"{base}.scope")]},
        {"sub_block": body, "is_scalar_condition": True},
    )
    return outs


# ---------------------------------------------------------------------------------------------------------------- loops
@special("pd_op.while")
def _while(at: BlockReader, op: PirOp) -> None:
    count = len(op.results)
    expect(op, count + 1, count)
    if len(op.regions) != 1 or len(op.regions[0].args) != count:
        raise FormatError(f"pd_op.while: it should have one region with {count} arguments")
    region, number = op.regions[0], op.results[0].id if op.results else len(at.reader.program.blocks)
    condition = at.temporary(
        f"while_{number}.condition", op.operands[0].type.shape if op.operands[0] else None, VarType.BOOL, True
    )
    at.append("assign", {"X": [at.name(op.operands[0])]}, {"Out": [condition]}, {})
    carried = []
    for value, first, arg in zip(op.results, op.operands[1:], region.args, strict=True):
        name = at.declare(value, f"while_{value.id}").name
        at.append("assign", {"X": [at.name(first)]}, {"Out": [name]}, {})
        at.reader.names[arg] = name
        carried.append(name)
    body = at.reader.program.create_block(at.block)
    inner = BlockReader(at.reader, body)
    inner.read(region)
    _hand_on(inner, _yielded(op, region, count + 1), [condition, *carried])
    reads, writes = outer_names(body)
    at.append(
        "while",
        {"X": [name for name in dict.fromkeys((*reads, *writes)) if name != condition], "Condition": [condition]},
        {"Out": writes, "StepScopes": [_scopes(at, f"while_{number}.scopes")]},
        {"sub_block": body, "is_test": False},
    )


def _hand_on(at: BlockReader, values: list[PirValue], targets: list[str]) -> None:
    """Overwrite the variables that a loop passes on, all at once; an old value that another one gets is copied before."""
    sources = [at.name(value) for value in values]
    overwritten: set[str] = set()
    for index, target in enumerate(targets):
        if sources[index] != target and sources[index] in targets:
            copied = at.another(values[index], f"{sources[index]}.kept")
            at.append("assign", {"X": [sources[index]]}, {"Out": [copied]}, {})
            sources[index] = copied
        overwritten.add(target)
    for source, target in zip(sources, targets, strict=True):
        if source != target:
            at.append("assign", {"X": [source]}, {"Out": [target]}, {})


# --------------------------------------------------------------------------------------------------------------- stacks
@dataclass
class _VariableStack:
    """A stack: the variable that counts, and an array for each value that is pushed, with the value's type."""

    home: Block
    count: str
    arrays: list[str] = field(default_factory=list)


@special("cf.stack_create")
def _stack_create(at: BlockReader, op: PirOp) -> None:
    expect(op, 0, 3)
    count = at.temporary(f"stack_{op.results[0].id}.count", (1,), VarType.INT64, True)
    at.append("fill_constant", {}, {"Out": [count]}, {"shape": [1], "dtype": int(VarType.INT64), "value": 0.0})
    stack = _VariableStack(at.block, count)
    for value in op.results:
        at.reader.stacks[value] = stack


def _stack(at: BlockReader, op: PirOp) -> _VariableStack:
    first = op.operands[0] if op.operands else None
    stack = at.reader.stacks.get(first) if first is not None else None
    if not isinstance(stack, _VariableStack):
        raise FormatError(f"{op.name}: its first operand is no stack")
    return stack


@special("cf.tuple_push")
def _tuple_push(at: BlockReader, op: PirOp) -> None:
    stack, values = _stack(at, op), op.operands[1:]
    if stack.arrays:
        raise FormatError("cf.tuple_push: something is pushed onto this stack elsewhere")
    for index, value in enumerate(values):
        if value is None:
            raise FormatError("cf.tuple_push: a value that is pushed is missing")
        name = at.reader.fresh(f"{stack.count.removesuffix('.count')}.{index}")
        dtype = ELEMENTS.get(value.type.dtype)
        stack.home.create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, shape=value.type.shape, dtype=dtype, stop_gradient=True)
        stack.arrays.append(name)
        if value not in at.reader.constants or value in at.reader.read_as_tensors:
            at.append("write_to_array", {"X": [at.name(value)], "I": [stack.count]}, {"Out": [name]}, {})
    at.append("increment", {"X": [stack.count]}, {"Out": [stack.count]}, {"step": 1.0})


@special("cf.tuple_pop")
def _tuple_pop(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, len(op.results))
    stack = _stack(at, op)
    if len(stack.arrays) != len(op.results):
        raise FormatError(f"cf.tuple_pop: {len(stack.arrays)} values were pushed, and {len(op.results)} are popped")
    at.append("increment", {"X": [stack.count]}, {"Out": [stack.count]}, {"step": -1.0})
    for value, array in zip(op.results, stack.arrays, strict=True):
        if value.type.kind != "null":
            out = at.declare(value, f"popped_{value.id}")
            at.append("read_from_array", {"X": [array], "I": [stack.count]}, {"Out": [out.name]}, {})


@special("cf.has_elements")
def _has_elements(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, 1)
    zero = at.temporary(f"has_elements_{op.results[0].id}.zero", (1,), VarType.INT64, True)
    at.append("fill_constant", {}, {"Out": [zero]}, {"shape": [1], "dtype": int(VarType.INT64), "value": 0.0})
    out = at.declare(op.results[0], f"has_elements_{op.results[0].id}")
    at.append("greater_than", {"X": [_stack(at, op).count], "Y": [zero]}, {"Out": [out.name]}, {})
