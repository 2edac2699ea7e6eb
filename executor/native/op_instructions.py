"""Ops outside of plans as instructions that can be lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fluid.ir.program import Operator
from fluid.ir.versions import Value
from fluid.opdef.registry import OpDef, by_slot, get
from fluid.values.spec import Spec

from ..binding.arrays import bind_op
from ..runtime.calls import Call
from .instructions import BaseOp, stand_in


@dataclass
class Op:
    """The attributes of an operator that lowering needs."""

    type: str
    attrs: Mapping[str, Any]
    block: None = None
    sub_blocks: Sequence[Any] = ()


@dataclass
class OpInstruction(BaseOp):
    """The attributes of a plan's instruction that lowering needs.

    Attributes:
        number: the number of the step of a loop that it computes; -1 for none.
        stand_ins: slot -> spec, for inputs used only for their shape and type.
    """

    op: Op | Operator
    definition: OpDef
    reads: dict[str, list[Value | None]]
    writes: dict[str, list[Value | None]]
    dynamic: bool = False
    outer: dict[str, Value] = field(default_factory=dict)
    number: int = -1
    stand_ins: dict[str, Spec] = field(default_factory=dict)

    def drawing(self, slot: str, specs: Mapping[Value, Spec]) -> OpInstruction:
        """A copy of the op that only draws random numbers into one output, without reading its inputs."""
        stand_ins = {name: specs[values[0]] for name, values in self.reads.items() if values and values[0] is not None}
        return replace(self, reads={}, writes={slot: list(self.writes[slot])}, outer={}, stand_ins=stand_ins)

    def call(self, array: Callable[[Value], Any], source: Callable[[Any, Mapping[str, Any]], Any]) -> Call:
        """The call that computes the op on numpy.

        Args:
            array: returns the array of a value.
            source: returns the source of random generators for an op and its attributes, defaults included.
        """
        attrs = self.definition.defaults(self.op.attrs)
        inputs = {slot: stand_in(spec) for slot, spec in self.stand_ins.items()}
        inputs |= by_slot(self.definition.inputs, self.reads, array)
        outputs = by_slot(self.definition.outputs, self.writes, array)
        context = {"xp": np, "scratch": np.empty, "rng": source(self.op, attrs)}
        return partial(_run_all, bind_op(self.definition, inputs, outputs, attrs, context, np.empty))


def _run_all(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def assignment(source: Value, target: Value) -> OpInstruction:
    """An instruction that copies a value."""
    return OpInstruction(Op("assign", {}), get("assign"), {"X": [source]}, {"Out": [target]})
