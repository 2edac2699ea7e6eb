"""Random numbers by counter: what an op draws depends on the seed, the op, the run and the draw, on nothing else."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

__all__ = ["RandomStreams", "seed_of"]

_ENTROPY = int.from_bytes(os.urandom(7), "little")
"""Stands in for a program's seed of zero: fresh in every process."""
_MASK = 2**64 - 1


def seed_of(program_seed: int) -> int:
    """The seed that a program draws by: its own, or, if that is 0, this process's."""
    return program_seed if program_seed else _ENTROPY


def _generator(xp: Any, key: tuple[int, int], counter: tuple[int, int]) -> Any:
    if xp is np:
        return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64), counter=[0, *counter, 0]))
    seed = int(np.random.SeedSequence([*key, *counter]).generate_state(1, np.uint64)[0])
    return xp.random.Generator(xp.random.Philox4x3210(seed=seed))


class RandomStreams:
    """Generators for the random ops of one program.

    An op with a seed of its own draws the same numbers each time. Another draws from the stream named by the program's
    seed and by the op's first output, at a position given by the run and by how often the op has drawn in it.
    """

    __slots__ = ("_draws", "_run", "_seed", "_xp")

    def __init__(self, xp: Any, program_seed: int) -> None:
        self._xp = xp
        self._seed = seed_of(program_seed)
        self._run = 0
        self._draws: dict[Hashable, int] = {}

    def begin(self, run: int) -> None:
        """Start the run of this number."""
        self._run = run
        self._draws.clear()

    def source(self, name: str, op_seed: int, drawer: Hashable = None) -> Callable[[], Any]:
        """A function that gives the generator for the next draw of the op that writes `name`.

        A `drawer` counts its draws by itself, and so draws what the op that writes `name` draws.
        """
        counter = (name, drawer)
        if op_seed:
            return lambda: _generator(self._xp, (op_seed & _MASK, 0), (0, 0))
        key = (self._seed & _MASK, zlib.crc32(name.encode()) + 1)

        def draw() -> Any:
            number = self._draws.get(counter, 0)
            self._draws[counter] = number + 1
            return _generator(self._xp, key, (number, self._run))

        return draw
