"""Random static programs, by number: straight ones of all families of ops, control flow, nests of it, and training.

`check` holds program number `seed` against all that is known to be true of it, `smallest` finds what is left of one that fails.
The tests check some thousand numbers in the cheap way, ``benchmarks/attack.py`` as many as one likes in the thorough one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
from numeric import direction_like, interpret, interpreter, moved
from random_nests import check_nest
from random_programs import (
    KINDS,
    STRAIGHT,
    Instruction,
    RandomProgram,
    assert_same_bits,
    check_gradients,
    check_runs,
    check_second_order,
    frozen_values,
)
from random_training import check_training

import fluid

__all__ = ["check", "smallest"]

STEP = 1e-5


def instructions_of(seed: int, thorough: bool) -> list[Instruction]:
    """The instructions of program number `seed`: one program in four (one in sixteen of small ones) may have blocks."""
    rng = random.Random(seed)
    last = len(KINDS) if seed % (4 if thorough else 16) == 3 else STRAIGHT
    count = rng.randrange(2, 12) if thorough else rng.randrange(1, 5)
    return [(rng.randrange(last), *(rng.randrange(12) for _ in range(3))) for _ in range(count)]


def check(seed: int, thorough: bool) -> None:
    """Check program number `seed`; raises an error that describes the fault."""
    often = 20 if thorough else 100
    if seed % often == 19:
        check_nest(seed, deepest=3 if thorough else 1, orders=2 if thorough else 1)
    elif seed % often == 9:
        check_training(seed)
    else:
        check_instructions(instructions_of(seed, thorough), seed, thorough)


def check_instructions(instructions: list[Instruction], seed: int, thorough: bool) -> None:
    """Check the program that is made of these."""
    if not thorough:
        check_cheaply(instructions, seed)
        return
    check_gradients(instructions)
    check_second_order(instructions)
    check_runs(instructions, seed)


def check_cheaply(instructions: list[Instruction], seed: int) -> None:
    """Plan against no plan, bit by bit, and gradients against one central difference along all inputs at once."""
    made = RandomProgram(instructions)
    fixed = RandomProgram(instructions, frozen_values(made)) if made.stopped else None
    run = interpreter(fixed.program if fixed else made.program.clone(), [var.name for var in made.targets])
    grads = fluid.gradients(made.targets, made.inputs)
    fetch = [*made.targets, *(grad for grad in grads if grad is not None)]
    expected = interpret(made.program, made.feed, fetch)
    assert_same_bits(fluid.Executor().run(made.program, made.feed, fetch, scope=fluid.Scope()), expected)
    rng, feed = np.random.default_rng(seed), (fixed or made).feed
    directions = {var.name: direction_like(rng, made.feed[var.name]) for var in made.inputs}

    def total(by: float) -> float:
        moves = {name: moved(feed[name], direction, by) for name, direction in directions.items()}
        return sum(float(value.sum()) for value in run({**feed, **moves}))

    values = iter(expected[len(made.targets) :])
    pairs = [(next(values), directions[var.name]) for var, grad in zip(made.inputs, grads, strict=True) if grad is not None]
    slope, difference = sum(float((value * along).sum()) for value, along in pairs), (total(STEP) - total(-STEP)) / (2 * STEP)
    largest = max((float(np.abs(value).max(initial=0)) for value, _ in pairs), default=0.0)
    assert abs(slope - difference) <= 2e-5 * max(1.0, abs(difference), largest), f"a slope is {slope}, not {difference}"


def smallest(seed: int, thorough: bool) -> str:
    """The smallest part of program number `seed` that still fails, and its fault."""
    if seed % (20 if thorough else 100) in (9, 19):
        return _failure(lambda: check(seed, thorough)) or ""
    left = instructions_of(seed, thorough)

    def failure(instructions: Sequence[Instruction]) -> str | None:
        return _failure(lambda: check_instructions(list(instructions), seed, thorough))

    place = 0
    while place < len(left):
        shorter = [*left[:place], *left[place + 1 :]]
        if shorter and failure(shorter) is not None:
            left = shorter
        else:
            place += 1
    return f"{failure(left)}\n{left}\n{RandomProgram(left).program}"


def _failure(call: Callable[[], None]) -> str | None:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
