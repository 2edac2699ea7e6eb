"""Results of ops that read constants alone, such as ``assign_value``: a library holds them as constants."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

import numpy as np

from ..executor.binding.arrays import bind_op
from ..executor.kernels.table import kernel_of
from ..executor.planned.memory import Scratch
from ..executor.planned.plan import Instruction
from ..ir.versions import Value
from ..opdef.registry import by_slot
from ..values.spec import Spec


def constants_of(instructions: Iterable[Any], specs: Mapping[Value, Spec]) -> dict[Value, Any]:
    """Value -> its array, for ops on numpy that draw no random numbers, and read nothing or results of such ops alone."""
    constants: dict[Value, Any] = {}
    for instruction in instructions:
        if isinstance(instruction, Instruction) and _is_constant(instruction, specs, constants):
            constants |= _computed(instruction, specs, constants)
    return constants


def _is_constant(instruction: Instruction, specs: Mapping[Value, Spec], constants: Container[Value]) -> bool:
    kernel = kernel_of(instruction.op.type)
    if kernel is None or any(key == "rng" for _, _, key in kernel.parameters):
        return False
    reads_constants = all(value in constants for value in instruction.read) and not instruction.stand_ins
    is_plain = not instruction.dynamic and not instruction.op.sub_blocks
    return reads_constants and is_plain and all(value in specs for value in instruction.written)


def _computed(instruction: Instruction, specs: Mapping[Value, Spec], constants: Mapping[Value, Any]) -> dict[Value, Any]:
    """The results of an op that reads constants alone."""
    definition = instruction.definition
    assert definition is not None
    arrays = {value: np.empty(specs[value].shape, specs[value].dtype.array_dtype) for value in instruction.written}
    inputs = by_slot(definition.inputs, instruction.reads, constants.__getitem__)
    outputs = by_slot(definition.outputs, instruction.writes, arrays.__getitem__)
    attrs = definition.defaults(instruction.op.attrs)
    scratch = Scratch(np)
    for call in bind_op(definition, inputs, outputs, attrs, {"xp": np, "scratch": scratch}, scratch):
        call()
    return arrays
