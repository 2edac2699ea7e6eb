"""Constants of programs with loops and branches.

The shape of a value is known while planning, and may decide how many trips a loop makes. Block 0 makes the arrays that ops of
inner blocks list (`assign_value`): native code has no kernel that makes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fluid.ir.copying import declare_like, rewritten_copy
from fluid.ir.program import Block, Operator, Program
from fluid.ir.versions import Value
from fluid.values.spec import Spec

from ..binding.constants import make_constant

__all__ = ["with_constants"]

Constant = tuple[str, dict[str, Any]]
"""The type and the attributes of the op that makes a constant."""


def with_constants(program: Program, instructions: Sequence[Any], specs: Mapping[Value, Spec]) -> Program | None:
    """Copy a program with loops or branches, and let block 0 make constants of its shapes and listed numbers.

    Args:
        instructions: the instructions of the program's ops, in order.
        specs: the specs of values, as far as they are known.

    Returns:
        None if nothing would change.
    """
    if len(program.blocks) == 1:
        return None
    known = _known_specs(program, specs)
    constants = [*_shapes_in_main(instructions, specs), *_constants_in_blocks(program, known)]
    return rewritten_copy(program, constants, _compute_outside) if constants else None


def _known_specs(program: Program, specs: Mapping[Value, Spec]) -> dict[str, Spec]:
    """The specs of names that have the same value wherever they are read."""
    main, *blocks = program.blocks
    inner = {name for block in blocks for op in block.ops for name in op.output_arg_names}
    counts = Counter(name for op in main.ops for name in {*op.output_arg_names})
    initial = {name for name, var in main.vars.items() if var.is_data or var.persistable}
    return {
        name: spec
        for (name, version), spec in specs.items()
        if name not in inner and counts[name] == version and version == (name not in initial)
    }


def _shapes_in_main(instructions: Sequence[Any], specs: Mapping[Value, Spec]) -> Iterator[tuple[Operator, Constant]]:
    """The ops of block 0 that tell a known shape, with their constants."""
    for instruction in instructions:
        if instruction.op.type in _ARRAYS:
            spec = specs.get(instruction.reads["Input"][0])
            if spec is not None:
                yield instruction.op, _make_constant(instruction.op, spec)


def _constants_in_blocks(program: Program, known: Mapping[str, Spec]) -> Iterator[tuple[Operator, Constant]]:
    """The ops of inner blocks that list numbers or tell a known shape, with their constants."""
    for block in program.blocks[1:]:
        for op in block.ops:
            if op.type == "assign_value":
                yield op, (op.type, dict(op.attrs))
            elif op.type in _ARRAYS and (source := block.find_var(op.input("Input")[0])) is not None:
                spec = known.get(source.name) if source.block.parent is None else None
                if spec is not None:
                    yield op, _make_constant(op, spec)


def _make_constant(op: Operator, spec: Spec) -> Constant:
    """Make the constant that stands for an op that tells the shape of a value."""
    return make_constant(_ARRAYS[op.type](op, spec))


def _size_of(op: Operator, spec: Spec) -> Any:
    return np.full(op.block.var(op.output("Out")[0]).shape, spec.size, np.int64)


_ARRAYS = {"shape": lambda op, spec: np.array(spec.shape, np.int32), "size": _size_of}
"""Type of an op that tells the shape of a value -> the array that it makes."""


def _compute_outside(op: Operator, constant: Constant) -> None:
    """Replace an op by a constant. In an inner block, it becomes a copy of a constant that block 0 makes."""
    block, (name,) = op.block, op.output_arg_names
    op.inputs = {}
    op.type, op.attrs = constant
    if block.parent is None:
        return
    main: Block = block.program.global_block()
    source = block.find_var(name)
    assert source is not None, "results of ops are declared"
    outside = declare_like(main, block.program.fresh_name(f"{name}.constant"), source).name
    main.insert_op(0, op.type, outputs={"Out": outside}, attrs=op.attrs, frames=op.frames)
    op.type, op.attrs, op.inputs = "assign", {}, {"X": [outside]}
