"""Results of ops without inputs, such as ``assign_value``: a library holds them as constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..executor.binding.arrays import bind_op
from ..executor.kernels.table import kernel_of
from ..executor.planned.memory import Scratch
from ..executor.planned.plan import Instruction
from ..ir.versions import Value
from ..values.spec import Spec

__all__ = ["constants_of"]


def constants_of(instructions: Iterable[Any], specs: Mapping[Value, Spec]) -> dict[Value, Any]:
    """Value -> its array, for ops of a plan that have no inputs and draw no random numbers."""
    constants: dict[Value, Any] = {}
    for instruction in instructions:
        if isinstance(instruction, Instruction) and _is_constant(instruction, specs):
            constants |= _computed(instruction, specs)
    return constants


def _is_constant(instruction: Instruction, specs: Mapping[Value, Spec]) -> bool:
    kernel = kernel_of(instruction.op.type)
    if kernel is None or any(key == "rng" for _, _, key in kernel.parameters):
        return False
    reads_nothing = not instruction.read and not instruction.stand_ins
    return reads_nothing and not instruction.dynamic and all(value in specs for value in instruction.written)


def _computed(instruction: Instruction, specs: Mapping[Value, Spec]) -> dict[Value, Any]:
    """The results of an op that reads nothing."""
    definition = instruction.definition
    assert definition is not None
    arrays = {value: np.empty(specs[value].shape, specs[value].dtype.array_dtype) for value in instruction.written}
    outputs: dict[str, Any] = {}
    for slot, values in instruction.writes.items():
        if slot in definition.outputs and values:
            by_value = [None if value is None else arrays[value] for value in values]
            outputs[slot] = by_value if definition.outputs[slot].many else by_value[0]
    scratch = Scratch(np)
    attrs = definition.defaults(instruction.op.attrs)
    for call in bind_op(definition, {}, outputs, attrs, {"xp": np, "scratch": scratch}, scratch):
        call()
    return arrays
