"""Random masks of dropout, drawn by compiled code as the executor draws them.

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

from ..executor.native.emitter import BYTE, INT32, INT64, POINTER, Function, Value
from ..executor.native.op_instructions import OpInstruction
from ..executor.planned.native_loops import NativeLoop
from ..executor.planned.plan import Instruction
from ..executor.runtime.random import RandomStreams
from ..executor.stepwise.interpreter import Machine, step_captures
from ..ir.program import Program
from ..ir.versions import Value as PlanValue
from ..values.spec import Spec

__all__ = ["MASK_PARAMETERS", "MaskDraw", "draws_of", "is_draw", "signed", "write_mask_function"]

_RUN = 0x1234_5678_9ABC
"""A number of a run; where it appears in a counter, the draw depends on the run."""
_UNIT = 1 << 24
"""A random float32 is a multiple of 1 / 2**24."""


@dataclass(frozen=True)
class MaskDraw:
    """A mask: 1 where a random number from 0 to 1 is at least a probability.

    Attributes:
        value: the mask.
        count: its number of elements.
        key, number: the key of the generator, and the number of the draw.
        follows_runs: whether each run draws another mask.
        counts_trips: whether each trip of a loop is another draw.
        least: the probability times 2**24; 0 for a mask of ones.
    """

    value: PlanValue
    count: int
    key: tuple[int, int]
    number: int
    follows_runs: bool
    counts_trips: bool
    least: int


def draws_of(program: Program, instructions: Iterable[Any], specs: Mapping[PlanValue, Spec]) -> dict[PlanValue, MaskDraw]:
    """Mask -> how to draw it, for the instructions of a plan, and of the bodies of its loops, that draw masks of dropout."""
    drawing = _Drawing(program)
    draws: dict[PlanValue, MaskDraw] = {}
    for instruction in instructions:
        if isinstance(instruction, NativeLoop):
            for item in instruction.body:
                if is_draw(item):
                    value = instruction.places[item.written[0]].value
                    draws[value] = drawing.mask(item, value, specs[value], instruction.trips)
        elif is_draw(instruction):
            (value,) = instruction.written
            draws[value] = drawing.mask(instruction, value, specs[value], None)
    return draws


def is_draw(instruction: Any) -> bool:
    """Whether an instruction draws a mask of dropout and does nothing else."""
    is_op = isinstance(instruction, (Instruction, OpInstruction))
    return is_op and instruction.op.type == "dropout" and not instruction.reads


class _Drawing:
    """Asks the executor's generators what ops draw, in the order of a run."""

    def __init__(self, program: Program) -> None:
        streams = RandomStreams(np, program.random_seed)
        streams.begin(_RUN)
        self._machine = Machine(np, streams, step_captures(program))

    def mask(self, instruction: Any, value: PlanValue, spec: Spec, trips: int | None) -> MaskDraw:
        """How to draw a mask; `trips` is the number of trips of the loop that it is in."""
        op, definition = instruction.op, instruction.definition
        attrs = definition.defaults(op.attrs)
        source = self._machine.random_source(op, attrs)
        states = [source().bit_generator.state["state"] for _ in range(trips or 1)]
        key, (_, number, run, _) = (tuple(map(int, states[0][part])) for part in ("key", "counter"))
        counts = len(states) > 1 and int(states[1]["counter"][1]) != number
        least = 0 if attrs["is_test"] else ceil(float(np.float32(attrs["dropout_prob"])) * _UNIT)
        return MaskDraw(value, spec.size, key, number, run == _RUN and bool(least), counts, least)  # type: ignore[arg-type]


_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_INCREMENTS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_ROUNDS = 10
_NUMBERS = 8
"""Numbers of 32 bits that a block of Philox gives."""


def write_mask_function(f: Function) -> None:
    """Write ``void f(mask, count, key 0, key 1, number, run, least)``, which draws a mask."""
    mask, count, *key, number, run, least = f.arguments
    block = f.stack(INT64, 4)

    def draw(index: Value) -> None:
        zero = f.int64(0)
        for place, word in enumerate(_philox(f, [f.add(index, 1), number, run, zero], key)):
            f.store_number(word, f.at(block, place, INT64))
        first = f.mul(index, _NUMBERS)

        def element(place: Value) -> None:
            bits = f.load(f.at(block, place, INT32), INT32)  # processors are little-endian: the lower half comes first
            is_one = f.compare("sge", f.shift_right_logical(bits, 8), least)
            f.store_number(f.convert(is_one, BYTE), f.at(mask, f.add(first, place), BYTE))

        f.loop(0, f.min(f.sub(count, first), _NUMBERS), 1, [], element)

    f.loop(0, f.div(f.add(count, _NUMBERS - 1), _NUMBERS), 1, [], draw)
    f.end()


MASK_PARAMETERS = [POINTER, INT64, INT64, INT64, INT64, INT64, INT32]
"""Types of the parameters of the function that draws a mask."""


def _philox(f: Function, counter: list[Value], key: list[Value]) -> list[Value]:
    """A block of four random words."""
    for turn in range(_ROUNDS):
        if turn:
            key = [f.add(part, signed(increment)) for part, increment in zip(key, _INCREMENTS, strict=True)]
        (high_0, low_0), (high_1, low_1) = (
            _product(f, counter[place], multiplier) for place, multiplier in zip((0, 2), _MULTIPLIERS, strict=True)
        )
        counter = [
            f.bit_xor(f.bit_xor(high_1, counter[1]), key[0]),
            low_1,
            f.bit_xor(f.bit_xor(high_0, counter[3]), key[1]),
            low_0,
        ]
    return counter


def _product(f: Function, x: Value, factor: int) -> tuple[Value, Value]:
    """The higher and the lower word of a product of words, by products of halves: not all processors have it."""
    low_half = (1 << 32) - 1
    x_low, x_high = f.bit_and(x, low_half), f.shift_right_logical(x, 32)
    factor_low, factor_high = factor & low_half, factor >> 32
    low_low = f.mul(x_low, factor_low)
    middle = f.add(f.mul(x_high, factor_low), f.shift_right_logical(low_low, 32))
    second_middle = f.add(f.mul(x_low, factor_high), f.bit_and(middle, low_half))
    high = f.add(f.mul(x_high, factor_high), f.shift_right_logical(middle, 32))
    return f.add(high, f.shift_right_logical(second_middle, 32)), f.mul(x, signed(factor))


def signed(number: int) -> int:
    """A word as a signed number."""
    return number - (1 << 64) if number >> 63 else number
