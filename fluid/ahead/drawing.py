"""Random numbers, drawn by compiled code as the executor draws them.

The executor draws from Philox4x64-10 (Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, 2011): its key is the seed
and a digest of the output's name, its counter the number of the draw and of the run. So compiled code needs no state but the
number of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from ..executor.planned.native_loops import NativeLoop
from ..executor.runtime.random import RandomStreams
from ..executor.stepwise.interpreter import Machine, step_captures
from ..ir.program import Program
from ..ir.versions import Value as PlanValue
from ..values.spec import Spec
from ..values.types import VarType

_RUN = 0x1234_5678_9ABC
"""A run number that no counter holds by chance: a counter that holds it depends on the run."""
_UNIT = 1 << 24
"""A random float32 is a multiple of 1 / 2**24."""


@dataclass(frozen=True)
class TensorDraw:
    """Random numbers.

    Attributes:
        value: the tensor of the numbers.
        count: its number of elements.
        generator: the function that draws them, of `generators.GENERATORS`.
        key, number: the key of the generator, and the number of the draw.
        follows_runs: whether each run draws other numbers.
        counts_trips: whether each trip of a loop is another draw.
        parameters: the generator's last arguments.
    """

    value: PlanValue
    count: int
    generator: str
    key: tuple[int, int]
    number: int
    follows_runs: bool
    counts_trips: bool
    parameters: tuple[float, ...]


def draws_of(program: Program, instructions: Iterable[Any], specs: Mapping[PlanValue, Spec]) -> dict[PlanValue, TensorDraw]:
    """Tensor -> how to draw it, for the draws of a plan and of the bodies of its loops."""
    streams = RandomStreams(np, program.random_seed)
    streams.begin(_RUN)
    machine = Machine(np, streams, step_captures(program))
    draws: dict[PlanValue, TensorDraw] = {}
    for instruction in instructions:
        if isinstance(instruction, NativeLoop):
            trips = 2 if instruction.trips is None else instruction.trips  # of two trips it is seen whether trips differ
            for item in filter(is_draw, instruction.body):
                value = instruction.places[item.written[0]].value
                draws[value] = _draw(machine, item, value, specs[value], trips)
        elif is_draw(instruction):
            (value,) = instruction.written
            draws[value] = _draw(machine, instruction, value, specs[value], 1)
    return draws


def is_draw(instruction: Any) -> bool:
    """Whether an instruction only draws random numbers, by a generator that compiled code has."""
    if not instruction.is_op or instruction.dynamic or len(instruction.written) != 1:
        return False
    definition, kind = instruction.definition, _KINDS.get(instruction.op.type)
    if definition is None or kind is None:
        return False
    reads = [slot for slot, values in instruction.reads.items() if values]
    if not all(slot in definition.inputs and definition.inputs[slot].shape_only for slot in reads):
        return False
    return kind == "mask" or _is_plain(kind, definition.defaults(instruction.op.attrs))


_KINDS = {
    "dropout": "mask",
    "uniform_random": "uniform",
    "uniform_random_batch_size_like": "uniform",
    "gaussian_random": "normal",
    "gaussian_random_batch_size_like": "normal",
    "truncated_gaussian_random": "truncated_normal",
}
"""Type of an op -> the kind of random numbers that it draws."""


def _is_plain(kind: str, attrs: Mapping[str, Any]) -> bool:
    """Whether a generator has the element type, and no diagonal is set to another number."""
    dtype = VarType(attrs["dtype"])
    has_generator = dtype is VarType.FP32 or (kind == "uniform" and dtype is VarType.FP64)
    return has_generator and not attrs.get("diag_num")


def _draw(machine: Machine, instruction: Any, value: PlanValue, spec: Spec, trips: int) -> TensorDraw:
    """How to draw a tensor.

    Args:
        trips: how often the op runs in a run.
    """
    op = instruction.op
    attrs = instruction.definition.defaults(op.attrs)
    source = machine.random_source(op, attrs)
    states = [source().bit_generator.state["state"] for _ in range(trips)]
    key, (_, number, run, _) = (tuple(map(int, states[0][part])) for part in ("key", "counter"))
    counts_trips = trips > 1 and int(states[1]["counter"][1]) != number
    generator, parameters = _KINDS[op.type], _parameters(op.type, attrs)
    if generator == "uniform":
        generator += "32" if spec.dtype is VarType.FP32 else "64"
    is_drawn = generator != "mask" or bool(parameters[0])
    return TensorDraw(value, spec.size, generator, key, number, run == _RUN and is_drawn, counts_trips, parameters)  # type: ignore[arg-type]


def _parameters(op_type: str, attrs: Mapping[str, Any]) -> tuple[float, ...]:
    """The last arguments of a generator: for a mask, the probability of zeros times 2**24; else a factor and a summand."""
    if op_type == "dropout":
        return (0 if attrs["is_test"] else ceil(float(np.float32(attrs["dropout_prob"])) * _UNIT),)
    if _KINDS[op_type] == "uniform":
        return attrs["max"] - attrs["min"], attrs["min"]
    return attrs["std"], attrs["mean"]
