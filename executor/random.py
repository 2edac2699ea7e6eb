"""Counter-based random numbers: they depend only on the seed, the op, the run and the number of the draw."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fluid.errors import ProgramError
from fluid.ir.program import default_main_program

from .binding.calls import Source

__all__ = [
    "RANDOM", "RandomStream", "RandomStreams", "draw_of_stream", "is_entropy", "names_from_zero", "own_seed", "seed", "seed_of",
    "stream_of_draw",
]  # fmt: skip

_ENTROPY = int.from_bytes(os.urandom(7), "little")
"""Replaces a seed of 0; different in every process."""
_MASK = 2**64 - 1


def seed(number: int) -> None:
    """Set the seed of all that draws random numbers without a seed of its own: programs whose ``random_seed`` is 0, and eager
    mode, whose stream starts again.

    With a seed, parameters start from the same values in every program that makes the same ones in the same order, in every run
    of its startup program. What a program's other ops draw depends on their names and on the number of runs in the scope too.

    Args:
        number: the seed; 0 stands for a new one in every process, as at the start.

    >>> with dygraph.guard():
    ...     fluid.seed(1)
    ...     first = layers.uniform_random([3]).numpy()
    ...     fluid.seed(1)
    ...     bool((layers.uniform_random([3]).numpy() == first).all())
    True
    """
    if RANDOM.is_on_tape:
        raise ProgramError("fluid.seed() cannot be part of a program; call it before tracing")
    RANDOM.seed(number)
    _process.seed = int(number)


class _Process:
    """The seed that `seed` has set; 0 before."""

    seed = 0


_process = _Process()


def seed_of(program_seed: int) -> int:
    """The seed that a program uses: its own, or that of this process if its own is 0."""
    return program_seed or _process.seed or _ENTROPY


def is_entropy(seed: int) -> bool:
    """Whether a seed is the one that stands for none, which differs in every process."""
    return seed == _ENTROPY


_NUMBER = re.compile(r"_(\d{1,9})(?=\.|$)")


def names_from_zero(names: Iterable[str]) -> dict[str, str]:
    """Names with the numbers that they would have in a process that made nothing before: ``fc_3.w_0`` -> ``fc_0.w_0``.

    What precedes a number decides what it counts; the least number of each such group becomes 0.
    """
    least: dict[str, int] = {}
    numbers = {name: list(_NUMBER.finditer(name)) for name in names}
    for name, matches in numbers.items():
        for match in matches:
            group, number = name[: match.start()], int(match[1])
            least[group] = min(number, least.get(group, number))
    return {name: _NUMBER.sub(lambda match: f"_{int(match[1]) - least[match.string[: match.start()]]}", name) for name in numbers}


def _generator(xp: Any, key: tuple[int, int], counter: tuple[int, int]) -> Any:
    if xp is np:
        return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64), counter=[0, *counter, 0]))
    seed = int(np.random.SeedSequence([*key, *counter]).generate_state(1, np.uint64)[0])
    return xp.random.Generator(xp.random.Philox4x3210(seed=seed))


Draw = tuple[int, int]
"""One draw of the stream outside programs: its seed, and the number of draws before it."""


class RandomStreams:
    """Generators for the random ops of one program.

    An op with a seed of its own draws the same numbers in every run. Any other op draws from the stream named by the program's
    seed and the op's first output, at a position given by the run and the number of its draws in it. The first values of
    parameters do not depend on the run, if there is a seed.
    """

    __slots__ = ("_draws", "_own_seed", "_run", "_seed", "_shared", "_xp")

    def __init__(self, xp: Any, program_seed: int) -> None:
        self._xp, self._own_seed, self._seed, self._run = xp, program_seed, seed_of(program_seed), 0
        self._draws: dict[Hashable, int] = {}
        self._shared: dict[str, list[Draw]] = {}
        """This run's draws from the stream outside programs, by name."""

    def begin(self, run: int) -> None:
        """Start run number `run`."""
        self._run, self._seed = run, seed_of(self._own_seed)
        self._draws.clear()
        self._shared.clear()

    def source(self, name: str, op_seed: int, drawer: Hashable = None) -> Source:
        """A source of generators for the draws of the op that writes `name`.

        A `drawer`, such as a copy of that op, has a count of its own and so repeats the draws of the op. A name of
        `stream_of_draw` stands for one draw from the stream outside programs.
        """
        if draw := draw_of_stream(name):
            return _Again(self._xp, draw)
        return _Same(self._xp, op_seed) if op_seed else _ByCounter(self, name, drawer)

    def first_values(self, name: str, op_seed: int, name_from_zero: str) -> Source:
        """A source of generators for the first values of the parameter `name`; `name_from_zero` is that of `names_from_zero`."""
        return _Same(self._xp, op_seed) if op_seed else _FirstValues(self, name, name_from_zero)


class _Same(Source):
    """Draws the same numbers each time, by an op's own seed."""

    __slots__ = ("_key", "_xp")

    def __init__(self, xp: Any, op_seed: int) -> None:
        self._xp, self._key = xp, (op_seed & _MASK, 0)

    def __call__(self) -> Any:
        return _generator(self._xp, self._key, (0, 0))


_DRAW = re.compile(r"@DRAW@(-?\d{1,20})@(\d{1,20})")


def own_seed(attrs: Mapping[str, Any]) -> int:
    """The seed that an op says by its attributes; 0 where it has none, which -1 says too."""
    seed = int(attrs.get("seed") or 0)
    return 0 if seed == -1 else seed


def stream_of_draw(draw: Draw) -> str:
    """The name of a stream that repeats one draw from the stream outside programs, for the attribute ``random_stream``."""
    return f"@DRAW@{draw[0]}@{draw[1]}"


def draw_of_stream(name: str) -> Draw | None:
    """The draw that a name of `stream_of_draw` repeats; None for other names."""
    match = _DRAW.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


class _Again(Source):
    """Repeats one draw from the stream outside programs."""

    __slots__ = ("_draw", "_xp")

    def __init__(self, xp: Any, draw: Draw) -> None:
        self._xp, self._draw = xp, draw

    def __call__(self) -> Any:
        seed, position = self._draw
        return _generator(self._xp, (seed & _MASK, 0), (position, 0))


class _ByCounter(Source):
    """Draws from the stream named by a program's seed and a name, at a position given by the run and the draw."""

    __slots__ = ("_counter", "_key", "_name", "_streams")

    def __init__(self, streams: RandomStreams, name: str, drawer: Hashable) -> None:
        self._streams, self._name, self._counter = streams, name, (name, drawer)
        self._key = _key_of(name)

    def __call__(self) -> Any:
        streams = self._streams
        number = streams._draws.get(self._counter, 0)
        streams._draws[self._counter] = number + 1
        if RANDOM.is_shared:
            draws = streams._shared.setdefault(self._name, [])
            if number == len(draws):
                draws.append(RANDOM.next_draw())
            seed, position = draws[number]
            return _generator(streams._xp, (seed & _MASK, 0), (position, 0))
        return _generator(streams._xp, (streams._seed & _MASK, self._key), (number, streams._run))


class _FirstValues(_ByCounter):
    """Draws the first values of a parameter: with a seed, the same in each run, wherever its name was counted from."""

    __slots__ = ("_start",)

    def __init__(self, streams: RandomStreams, name: str, name_from_zero: str) -> None:
        super().__init__(streams, name, None)
        self._start = _key_of(name_from_zero)

    def __call__(self) -> Any:
        streams = self._streams
        if RANDOM.is_shared or is_entropy(streams._seed):
            return super().__call__()
        return _generator(streams._xp, (streams._seed & _MASK, self._start), (0, 0))


def _key_of(name: str) -> int:
    return zlib.crc32(name.encode()) + 1


class _Stream(Sequence[Draw]):
    """All draws of the stream of a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __getitem__(self, position: Any) -> Any:
        return self._seed, position

    def __len__(self) -> int:
        return sys.maxsize


class _Tape(threading.local):
    """The draws that a thread records, and those that it repeats: the index of the next one, and all of them."""

    noted: list[Draw] | None = None
    repeated: tuple[list[int], Sequence[Draw]] | None = None
    shared: bool = False


class RandomStream:
    """The stream that random ops outside programs draw from, one draw after the other; `seed` restarts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seed, self._count = 0, 0
        self._tape = _Tape()

    def seed(self, seed: int) -> None:
        """Start the stream of this seed; for 0, one that differs in every process."""
        with self._lock:
            self._seed, self._count = int(seed), 0

    def source(self, xp: Any, op_seed: int) -> Source:
        """A source of generators for an op's draws; an op with a seed of its own draws the same each time."""
        return _Same(xp, op_seed) if op_seed else _Next(self, xp)

    def next_draw(self) -> Draw:
        tape = self._tape
        if tape.repeated is None:
            with self._lock:
                number = self._count
                self._count += 1
            draw = seed_of(self._seed or default_main_program().random_seed), number
        else:
            count, draws = tape.repeated
            draw = draws[count[0]] if count[0] < len(draws) else (0, 0)  # the count tells the caller that there were too many
            count[0] += 1
        if tape.noted is not None:
            tape.noted.append(draw)
        return draw

    @contextlib.contextmanager
    def noting(self, draws: list[Draw]) -> Iterator[None]:
        """Inside the ``with``, this thread's draws are appended to a list, so that they can be repeated."""
        tape = self._tape
        before, tape.noted = tape.noted, draws
        try:
            yield
        finally:
            tape.noted = before
            if before is not None:
                before += draws

    @contextlib.contextmanager
    def repeating(self, draws: Sequence[Draw]) -> Iterator[list[int]]:
        """Inside the ``with``, this thread repeats `draws`; yields a list of one number, how many it drew."""
        tape = self._tape
        before, count = tape.repeated, [0]
        tape.repeated = count, draws
        try:
            yield count
        finally:
            tape.repeated = before

    @contextlib.contextmanager
    def drawing(self, seed: int, count: list[int]) -> Iterator[None]:
        """Inside the ``with``, this thread draws from the stream of a seed, after `count` draws (one number), which goes on."""
        tape = self._tape
        before, tape.repeated = tape.repeated, (count, _Stream(seed))
        try:
            yield
        finally:
            tape.repeated = before

    @property
    def is_on_tape(self) -> bool:
        """Whether this thread's draws are recorded, or repeat recorded ones."""
        return self._tape.noted is not None or self._tape.repeated is not None

    @property
    def is_shared(self) -> bool:
        """Whether programs draw from this stream in this thread."""
        return self._tape.shared

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Inside the ``with``, programs that this thread runs draw from this stream, as ops outside programs do."""
        tape = self._tape
        before, tape.shared = tape.shared, True
        try:
            yield
        finally:
            tape.shared = before

    def position(self) -> Draw:
        """The seed, and the number of draws since it was set."""
        with self._lock:
            return self._seed, self._count

    def take_back(self, before: Draw, count: int) -> None:
        """Return to position `before` if exactly `count` draws have been made since."""
        with self._lock:
            if (self._seed, self._count - count) == before:
                self._count -= count

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Inside the ``with``, draws of this thread are new ones and are not recorded."""
        tape = self._tape
        before = tape.noted, tape.repeated
        tape.noted = tape.repeated = None
        try:
            yield
        finally:
            tape.noted, tape.repeated = before


class _Next(Source):
    """Draws the next numbers of a stream."""

    __slots__ = ("_stream", "_xp")

    def __init__(self, stream: RandomStream, xp: Any) -> None:
        self._stream, self._xp = stream, xp

    def __call__(self) -> Any:
        seed, number = self._stream.next_draw()
        return _generator(self._xp, (seed & _MASK, 0), (number, 0))


RANDOM = RandomStream()
"""The stream of this process."""
