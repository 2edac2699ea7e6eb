"""Random masks of dropout, drawn by compiled code as the executor draws them.

The executor draws from Philox4x64-10 (Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, 2011): its key is the seed
and a digest of the output's name, its counter the number of the draw and of the run. So compiled code needs no state but the
number of the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from ..executor.native.emitter import BYTE, INT32, INT64, POINTER, Function, Value
from ..executor.planned.plan import Instruction
from ..executor.runtime.random import RandomStreams
from ..executor.stepwise.interpreter import Machine, step_captures
from ..ir.program import Program
from ..ir.versions import Value as PlanValue

__all__ = ["MASK_PARAMETERS", "MaskDraw", "draws_of", "signed", "write_mask_function"]

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
        least: the probability times 2**24; 0 for a mask of ones.
    """

    value: PlanValue
    count: int
    key: tuple[int, int]
    number: int
    follows_runs: bool
    least: int


def draws_of(program: Program, instructions: Iterable[Any], specs: Any) -> dict[PlanValue, MaskDraw]:
    """Mask -> how to draw it, for the instructions of a plan that draw masks of dropout."""
    streams = RandomStreams(np, program.random_seed)
    streams.begin(_RUN)
    machine = Machine(np, streams, step_captures(program))
    draws: dict[PlanValue, MaskDraw] = {}
    for instruction in instructions:
        if not isinstance(instruction, Instruction) or instruction.op.type != "dropout" or instruction.reads:
            continue
        (value,) = instruction.written
        attrs = instruction.op.definition.defaults(instruction.op.attrs)  # type: ignore[union-attr]
        state = machine.random_source(instruction.op, attrs)().bit_generator.state["state"]
        key, (_, number, run, _) = (tuple(map(int, state[part])) for part in ("key", "counter"))
        least = 0 if attrs["is_test"] else ceil(float(np.float32(attrs["dropout_prob"])) * _UNIT)
        draws[value] = MaskDraw(value, specs[value].size, key, number, run == _RUN and bool(least), least)  # type: ignore[arg-type]
    return draws


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
