"""Counter-based random numbers: they depend only on the seed, the name of what is drawn, the run and the number of the draw."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
import weakref
import zlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fluid.errors import ProgramError
from fluid.ir.program import Program, default_main_program

from .calls import Source

__all__ = [
    "RANDOM", "Caller", "Draw", "RandomStream", "RandomStreams", "draw_of_stream", "is_entropy", "names_from_zero",
    "own_seed", "seed", "seed_of", "stream_of_draw",
]  # fmt: skip

_ENTROPY = int.from_bytes(os.urandom(7), "little")
"""Replaces a seed of 0; different in every process."""
_MASK = 2**64 - 1


def seed(number: int) -> None:
    """Set the seed of all that draws random numbers without a seed of its own: programs whose ``random_seed`` is 0, and eager
    mode, which begins anew.

    With a seed, parameters start from the same values in every program that makes the same ones in the same order, in every run
    of its startup program, and in eager mode. What other ops draw depends on their names and on the number of runs too.

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


class _Names:
    """Names with the numbers that they would have in a process that made nothing before: ``fc_3.w_0`` -> ``fc_0.w_0``.

    What precedes a number decides what it counts; the least number of each such group becomes 0.
    """

    def __init__(self) -> None:
        self._least: dict[str, int] = {}

    def add(self, name: str) -> None:
        """Count from the numbers of this name where they are the least."""
        for match in _NUMBER.finditer(name):
            group, number = name[: match.start()], int(match[1])
            self._least[group] = min(number, self._least.get(group, number))

    def from_zero(self, name: str) -> str:
        """The name with its numbers from zero, after all names that were added."""
        return _NUMBER.sub(lambda match: f"_{int(match[1]) - self._least[match.string[: match.start()]]}", name)


def names_from_zero(names: Iterable[str]) -> dict[str, str]:
    """Names with the numbers that they would have in a process that made nothing before; see `_Names`."""
    every, counted = list(names), _Names()
    for name in every:
        counted.add(name)
    return {name: counted.from_zero(name) for name in every}


class Draw(NamedTuple):
    """What decides the numbers of one draw: a seed, a name, how often the name drew before in this run, and the run."""

    seed: int
    key: int
    """Stands for the name; 0 for none."""
    number: int
    run: int


def _generator(xp: Any, draw: Draw) -> Any:
    key, counter = (draw.seed & _MASK, draw.key), (draw.number, draw.run)
    if xp is np:
        return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64), counter=[0, *counter, 0]))
    seed = int(np.random.SeedSequence([*key, *counter]).generate_state(1, np.uint64)[0])
    return xp.random.Generator(xp.random.Philox4x3210(seed=seed))


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
        self._shared: dict[str, tuple[Drawer, list[Draw]]] = {}
        """What this run draws as eager mode would, by name."""

    def begin(self, run: int) -> None:
        """Start run number `run`."""
        self._run, self._seed = run, seed_of(self._own_seed)
        self._draws.clear()
        self._shared.clear()

    def source(self, name: str, op_seed: int, drawer: Hashable = None, op_type: str = "") -> Source:
        """A source of generators for the draws of the op that writes `name`.

        A `drawer`, such as a copy of that op, has a count of its own and so repeats the draws of the op. A name of
        `stream_of_draw` stands for one draw of eager mode.
        """
        if draw := draw_of_stream(name):
            return _Again(self._xp, draw)
        return _same(self._xp, op_seed) if op_seed else _ByCounter(self, name, drawer, op_type)

    def first_values(self, name: str, op_seed: int, name_from_zero: str) -> Source:
        """A source of generators for the first values of the parameter `name`; `name_from_zero` is that of `names_from_zero`."""
        return _same(self._xp, op_seed) if op_seed else _FirstValues(self, name, name_from_zero)


_DRAW = re.compile(r"@DRAW@(-?\d{1,20})@(\d{1,20})(?:@(\d{1,20})@(\d{1,20}))?")


def own_seed(attrs: Mapping[str, Any]) -> int:
    """The seed that an op says by its attributes; 0 where it has none, which -1 says too."""
    seed = int(attrs.get("seed") or 0)
    return 0 if seed == -1 else seed


def stream_of_draw(draw: Draw) -> str:
    """The name of a stream that repeats one draw of eager mode, for the attribute ``random_stream``."""
    return "@DRAW@" + "@".join(map(str, draw))


def draw_of_stream(name: str) -> Draw | None:
    """The draw that a name of `stream_of_draw` repeats; None for other names."""
    match = _DRAW.fullmatch(name)
    if match is None:
        return None
    seed, second, *remaining = [int(part) for part in match.groups() if part is not None]
    return (
        Draw(seed, second, *remaining) if remaining else Draw(seed, 0, second, 0)
    )  # of files whose draws had a position and no name


class _Again(Source):
    """Repeats one draw."""

    __slots__ = ("_draw", "_xp")

    def __init__(self, xp: Any, draw: Draw) -> None:
        self._xp, self._draw = xp, draw

    def __call__(self) -> Any:
        return _generator(self._xp, self._draw)


def _same(xp: Any, op_seed: int) -> Source:
    """A source that draws the same numbers each time, by an op's own seed."""
    return _Again(xp, Draw(op_seed, 0, 0, 0))


class _ByCounter(Source):
    """Draws from the stream named by a program's seed and a name, at a position given by the run and the draw."""

    __slots__ = ("_counter", "_key", "_name", "_op_type", "_streams")

    def __init__(self, streams: RandomStreams, name: str, drawer: Hashable, op_type: str = "") -> None:
        self._streams, self._name, self._counter, self._op_type = streams, name, (name, drawer), op_type
        self._key = _key_of(name)

    def __call__(self) -> Any:
        streams = self._streams
        number = streams._draws.get(self._counter, 0)
        streams._draws[self._counter] = number + 1
        if not RANDOM.is_shared:
            return _generator(streams._xp, Draw(streams._seed, self._key, number, streams._run))
        if self._name not in streams._shared:
            streams._shared[self._name] = RANDOM.drawer_in_program(self._name, self._op_type), []
        drawer, draws = streams._shared[self._name]
        if number == len(draws):
            draws.append(RANDOM.next_draw(drawer))
        return _generator(streams._xp, draws[number])


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
        return _generator(streams._xp, Draw(streams._seed, self._start, 0, 0))


def _key_of(name: str) -> int:
    return zlib.crc32(name.encode()) + 1


Drawer = Callable[[], Draw]
"""Gives the next draw of one call of an op, or of the first values of one parameter."""


class FirstDraws:
    """The draws that give parameters their first values, in eager mode or for one program, since a seed was set."""

    def __init__(self) -> None:
        self._names = _Names()
        self._counts: dict[str, int] = {}
        self._added = 0

    def expect(self, name: str) -> None:
        """Count the numbers in the names of parameters from those in this name of a layer, which is to make some."""
        self._names.add(name)

    def expect_more(self, names: Collection[str]) -> None:
        """Expect those of `names` that were not among them in the last call."""
        for name in itertools.islice(names, self._added, None):
            self._names.add(name)
        self._added = len(names)

    def next_draw(self, seed: int, name: str) -> Draw:
        """The next draw of the parameter `name`."""
        self._names.add(name)
        name = self._names.from_zero(name)
        number = self._counts[name] = self._counts.get(name, -1) + 1
        return Draw(seed, _key_of(name), number, 0)


class Caller(NamedTuple):
    """What calls a random op: a layer without a name of its own, of which only the kind counts, or one with a name."""

    kind: str
    name: str = ""
    before: int = 0
    """Of a layer with a name: how many outputs of other ops came since the last random op."""
    outputs: int = 1
    """Of a layer with a name: how many outputs the op has."""


class _Call:
    """A call of a random op: its name, and whether it is the first one with this name in its run."""

    __slots__ = ("is_first", "name")

    def __init__(self, name: str, is_first: bool) -> None:
        self.name, self.is_first = name, is_first


class _Calls:
    """The calls of random ops in a run of eager mode, by the names that they have in a program of the same layers.

    Run 1 begins when the seed is set, as the first run of a program comes after that of its startup program. A layer without a
    name of its own has the number in later runs that it had in the first. What is kept does not grow with the number of calls.
    """

    def __init__(self) -> None:
        self.run = 1
        self.drawn = 0
        """How many draws there were since the seed was set."""
        self._objects: dict[str, int] = {}
        """Kind of layer -> how many objects have taken a number of it."""
        self._shifts: dict[str, list[tuple[int, int]]] = {}
        """Kind -> from which place in a run on calls come after how many objects."""
        self._seen: dict[str, int] = {}
        """Kind -> how many calls the longest run had."""
        self._places: dict[str, int] = {}
        """Kind, or name of a layer -> how many calls, or outputs, this run has had."""
        self._most: dict[str, int] = {}
        """The most that `_places` has said in this run."""
        self._counts: dict[str, int] = {}
        """Name of a call or a parameter -> how often it has drawn again in this run."""

    def copy(self) -> _Calls:
        copy = _Calls()
        copy.run, copy.drawn, copy.places = self.run, self.drawn, self._places
        copy._objects, copy._seen, copy._most = self._objects.copy(), self._seen.copy(), self._most.copy()
        copy._shifts = {kind: shifts.copy() for kind, shifts in self._shifts.items()}
        copy._counts = self._counts.copy()
        return copy

    def end_run(self) -> None:
        self.run += 1
        for counts in (self._places, self._most, self._counts):
            counts.clear()

    @property
    def places(self) -> dict[str, int]:
        """Where the next calls of this run stand."""
        return self._places.copy()

    @places.setter
    def places(self, places: Mapping[str, int]) -> None:
        self._places = dict(places)

    def add_object(self, kind: str) -> None:
        """Count an object whose name takes the next number of this kind of layer."""
        self._objects[kind] = self._objects.get(kind, 0) + 1

    def of(self, caller: Caller) -> _Call:
        """The next call by a layer."""
        if caller.name:
            key = f"{caller.name}.tmp"
            self._pass(key, caller.before)
            place, is_first = self._pass(key, caller.outputs)
            return _Call(f"{key}_{place}", is_first)
        kind = caller.kind
        place, is_first = self._pass(kind, 1)
        shifts = self._shifts.setdefault(kind, [(0, self._objects.get(kind, 0))])
        if place >= self._seen.get(kind, 0):
            self._seen[kind] = place + 1
            if shifts[-1][1] != self._objects.get(kind, 0):
                shifts.append((place, self._objects[kind]))
        objects = next(count for start, count in reversed(shifts) if start <= place)
        return _Call(f"{kind}_{objects + place}.tmp_0", is_first)

    def pass_over(self, layer: str, outputs: int) -> None:
        """Count outputs of an op that draws nothing, in the layer with this name."""
        key = f"{layer}@PASSED"
        self._places[key] = self._places.get(key, 0) + outputs

    def passed(self, layer: str) -> int:
        """How many outputs were passed over since the last random op in the layer with this name."""
        return self._places.pop(f"{layer}@PASSED", 0)

    def _pass(self, key: str, count: int) -> tuple[int, bool]:
        """Go on by `count` places; the place before, and whether it is new in this run."""
        place = self._places.get(key, 0)
        self._places[key] = place + count
        if place < self._most.get(key, 0):
            return place, False
        self._most[key] = place + count
        return place, True

    def next_draw(self, seed: int, call: _Call) -> Draw:
        """The next draw of a call."""
        return Draw(seed, _key_of(call.name), self._number(call), self.run)

    def next_draw_of_update(self, seed: int, call: _Call) -> Draw:
        """The next draw of the op that updates a parameter: it belongs to the run that backward has ended."""
        return Draw(seed, _key_of(call.name), self._number(call), max(self.run - 1, 1))

    def of_update(self, parameter: str) -> _Call:
        """The next call of the op that updates a parameter."""
        return _Call(parameter, self._pass(f"{parameter}@UPDATE", 1)[0] == 0)

    def _number(self, call: _Call) -> int:
        self.drawn += 1
        if call.is_first:
            call.is_first = False
            return 0
        number = self._counts[call.name] = self._counts.get(call.name, 0) + 1
        return number


class _Tape(threading.local):
    """What decides the draws of a thread."""

    noted: list[Draw] | None = None
    """The draws are appended here."""
    repeated: tuple[list[int], Sequence[Draw]] | None = None
    """The draws are these: the index of the next one, and all of them."""
    drawer: Drawer | None = None
    """Gives the draws of the op that is running."""
    caller: Caller | None = None
    """What calls it, where its type does not say that."""
    first: tuple[int, FirstDraws] | None = None
    """First values are drawn by this seed, for a program."""
    shared: Mapping[str, Caller] | None = None
    """Programs draw as eager mode does; output of a random op in these -> its caller."""


class RandomStream:
    """What random ops draw outside programs: the same as in a program of the same layers, see docs/how_to/same_results.md.

    `seed` begins anew.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tape = _Tape()
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Begin the draws of this seed; for 0, of one that differs in every process."""
        with self._lock:
            self._seed = int(seed)
            self._calls, self._first = _Calls(), FirstDraws()
            self._for_programs: weakref.WeakKeyDictionary[Program, FirstDraws] = weakref.WeakKeyDictionary()

    def source(self, xp: Any, op_seed: int, op_type: str) -> Source:
        """A source of generators for an op's draws; an op with a seed of its own draws the same each time."""
        return _Next(self, xp, op_type) if not op_seed else _same(xp, op_seed)

    def _current_seed(self) -> int:
        return seed_of(self._seed or default_main_program().random_seed)

    # -- names
    def add_object(self, kind: str) -> None:
        """Count an object whose name takes the next number of this kind of layer."""
        with self._lock:
            self._calls.add_object(kind)

    def expect(self, name: str, startup: Program | None) -> None:
        """Count the numbers in the names of parameters from those of a layer that makes its own later.

        Args:
            name: of the layer.
            startup: of the program for which the layer may make them.
        """
        with self._lock:
            self._first.expect(name)
            if startup is not None:
                self._first_draws_for(startup).expect(name)

    def pass_over(self, layer: str, outputs: int) -> None:
        """Count outputs of an op that draws nothing, in the layer with this name."""
        if self._tape.repeated is None:
            with self._lock:
                self._calls.pass_over(layer, outputs)

    def end_run(self) -> None:
        """Begin the next run of eager mode; draws that are repeated belong to none."""
        if self._tape.repeated is None:
            with self._lock:
                self._calls.end_run()

    def loop(self) -> Callable[[], None]:
        """A function that begins the next iteration of a loop, in which calls have the names that they had in the first."""
        places = self._calls.places

        def begin() -> None:
            if self._tape.repeated is None:
                with self._lock:
                    self._calls.places = places

        return begin

    # -- what draws
    def drawer_of(self, caller: Caller) -> Drawer:
        """What the next call by a layer draws."""
        with self._lock:
            call = self._calls.of(caller)
        return lambda: self._calls.next_draw(self._current_seed(), call)

    def drawer_in_program(self, name: str, op_type: str) -> Drawer:
        """What the op of a program that writes `name` draws inside `shared`."""
        return self.drawer_of((self._tape.shared or {}).get(name, Caller(op_type)))

    def call_of_kind(self, kind: str) -> contextlib.AbstractContextManager[None]:
        """Inside the ``with``, the op that runs draws as the next call of a layer of this kind."""
        caller = Caller(kind)
        return self._drawing(lambda: self.drawer_of(caller), caller)

    def call_of_layer(self, name: str, outputs: int) -> contextlib.AbstractContextManager[None]:
        """Inside the ``with``, the op that runs draws as the next op, of so many outputs, in the layer with this name."""
        with self._lock:
            caller = Caller("", name, self._calls.passed(name), outputs)
        return self._drawing(lambda: self.drawer_of(caller), caller)

    def update(self, parameter: str) -> contextlib.AbstractContextManager[None]:
        """Inside the ``with``, the op that runs draws as the next update of a parameter."""

        def drawer() -> Drawer:
            with self._lock:
                call = self._calls.of_update(parameter)
            return lambda: self._calls.next_draw_of_update(self._current_seed(), call)

        return self._drawing(drawer)

    def first_values(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Inside the ``with``, the op that runs draws the first values of the parameter `name`."""
        if self._tape.first is None:
            return self._drawing(lambda: lambda: self._first.next_draw(self._current_seed(), name))
        seed, draws = self._tape.first
        return self._drawing(lambda: lambda: draws.next_draw(seed, name))

    @contextlib.contextmanager
    def _drawing(self, drawer: Callable[[], Drawer], caller: Caller | None = None) -> Iterator[None]:
        tape = self._tape
        before = tape.drawer, tape.caller
        tape.caller = caller
        if tape.repeated is None:
            tape.drawer = drawer()
        try:
            yield
        finally:
            tape.drawer, tape.caller = before

    @property
    def caller(self) -> Caller | None:
        """What calls the op that runs, where its type does not say that."""
        return self._tape.caller

    def naming(self, op_type: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """A function that runs a random op, which draws as the next call of a layer of its name unless something else is said."""
        tape = self._tape

        def call(*arrays: Any) -> Any:
            if tape.drawer is not None or tape.repeated is not None:
                return run(*arrays)
            tape.drawer = self.drawer_of(Caller(op_type))
            try:
                return run(*arrays)
            finally:
                tape.drawer = None

        return call

    @contextlib.contextmanager
    def for_program(self, startup: Program) -> Iterator[None]:
        """Inside the ``with``, first values are those that a startup program with a seed gives its own parameters."""
        tape, seed = self._tape, startup.random_seed or self._seed
        before = tape.first
        if seed:
            with self._lock:
                draws = self._first_draws_for(startup)
                draws.expect_more(startup.global_block().vars)
            tape.first = seed, draws
        try:
            yield
        finally:
            tape.first = before

    def _first_draws_for(self, startup: Program) -> FirstDraws:
        return self._for_programs.setdefault(startup, FirstDraws())

    # -- draws
    def next_draw_of(self, op_type: str) -> Draw:
        """The next draw of the op that runs."""
        return self.next_draw(self._tape.drawer or (lambda: self.drawer_of(Caller(op_type))()))

    def next_draw(self, drawer: Drawer) -> Draw:
        """The next draw of this thread: a repeated one, or else that of `drawer`."""
        tape = self._tape
        if tape.repeated is None:
            with self._lock:
                draw = drawer()
        else:
            count, draws = tape.repeated
            # the count tells the caller that there were too many
            draw = draws[count[0]] if count[0] < len(draws) else Draw(0, 0, 0, 0)
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

    @property
    def is_on_tape(self) -> bool:
        """Whether this thread's draws are recorded, or repeat recorded ones."""
        return self._tape.noted is not None or self._tape.repeated is not None

    @property
    def is_shared(self) -> bool:
        """Whether programs draw as eager mode does in this thread."""
        return self._tape.shared is not None

    @contextlib.contextmanager
    def shared(self, callers: Mapping[str, Caller]) -> Iterator[None]:
        """Inside the ``with``, programs that this thread runs draw as eager mode does.

        Args:
            callers: first output of a random op -> what called it, where its type does not say that.
        """
        tape = self._tape
        before, tape.shared = tape.shared, callers
        try:
            yield
        finally:
            tape.shared = before

    def position(self) -> _Calls:
        """How far the draws of ops have come, for `take_back`."""
        with self._lock:
            return self._calls.copy()

    def take_back(self, before: _Calls, count: int) -> None:
        """Return to position `before` if exactly `count` draws have been made since."""
        with self._lock:
            if self._calls.drawn == before.drawn + count:
                self._calls = before

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
    """Draws what the op that runs draws in eager mode."""

    __slots__ = ("_op_type", "_stream", "_xp")

    def __init__(self, stream: RandomStream, xp: Any, op_type: str) -> None:
        self._stream, self._xp, self._op_type = stream, xp, op_type

    def __call__(self) -> Any:
        return _generator(self._xp, self._stream.next_draw_of(self._op_type))


RANDOM = RandomStream()
"""The draws of eager mode in this process."""
