"""Counter-based random numbers: they depend only on the seed, the name of the output, the run and the number of the draw."""

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

from fluid.errors import FluidTypeError, ProgramError
from fluid.ir.program import Program, default_main_program

from .calls import Source

_ENTROPY = int.from_bytes(os.urandom(7), "little")
"""Replaces a seed of 0; different in every process."""
_MASK = 2**64 - 1


def seed(number: int) -> None:
    """Set the default seed: of programs whose ``random_seed`` is 0, and of eager mode, which restarts its draws.

    With a seed, parameters start from the same values in every program that creates the same parameters in the same order, in
    every run of its startup program, and in eager mode. The draws of other ops also depend on their names and on the number of
    runs.

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
    if not isinstance(number, (int, np.integer)):
        raise FluidTypeError(f"seed: number should be an integer, not {number!r}")
    RANDOM.seed(number)
    _process.seed = int(number)


class _Process:
    """The seed set by `seed`; 0 before."""

    seed = 0


_process = _Process()


def seed_of(program_seed: int) -> int:
    """The seed that a program uses: `program_seed`, or the seed of this process if that is 0."""
    return program_seed or _process.seed or _ENTROPY


def is_entropy(seed: int) -> bool:
    """Whether a seed is the random one of this process, used if no seed is set."""
    return seed == _ENTROPY


_NUMBER = re.compile(r"_(\d{1,9})(?=\.|$)")


class _Names:
    """Renumbers names as if the process had created nothing before: ``fc_3.w_0`` -> ``fc_0.w_0``.

    Numbers after the same prefix form a group; the least number of each group becomes 0.
    """

    def __init__(self) -> None:
        self._least: dict[str, int] = {}

    def add(self, name: str) -> None:
        """Note the numbers of this name; the least of each group becomes its zero."""
        for match in _NUMBER.finditer(name):
            group, number = name[: match.start()], int(match[1])
            self._least[group] = min(number, self._least.get(group, number))

    def from_zero(self, name: str) -> str:
        """The renumbered name, based on all names added so far."""
        return _NUMBER.sub(lambda match: f"_{int(match[1]) - self._least[match.string[: match.start()]]}", name)


def names_from_zero(names: Iterable[str]) -> dict[str, str]:
    """Name -> its renumbered name, as if the process had created nothing before; see `_Names`."""
    every, counted = list(names), _Names()
    for name in every:
        counted.add(name)
    return {name: counted.from_zero(name) for name in every}


class Draw(NamedTuple):
    """Identifies one draw: a seed, a name, the number of former draws of the name in this run, and the run."""

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

    An op with a `seed` attribute draws the same numbers in every run. Any other op draws from the stream named by the program's
    seed and the op's first output, at a position given by the run and the number of former draws in the run. With a seed, the
    initial values of parameters do not depend on the run.
    """

    __slots__ = ("_draws", "_own_seed", "_run", "_seed", "_shared", "_xp")

    def __init__(self, xp: Any, program_seed: int) -> None:
        self._xp, self._own_seed, self._seed, self._run = xp, program_seed, seed_of(program_seed), 0
        self._draws: dict[Hashable, int] = {}
        self._shared: dict[str, tuple[Drawer, list[Draw]]] = {}
        """Name -> drawer and draws, for draws that follow eager mode in this run."""

    def begin(self, run: int) -> None:
        """Start run number `run`."""
        self._run, self._seed = run, seed_of(self._own_seed)
        if self._draws:
            self._draws.clear()
        if self._shared:
            self._shared.clear()

    @property
    def position(self) -> dict[Hashable, int]:
        """How often this run has drawn from each stream."""
        return dict(self._draws)

    def return_to(self, position: Mapping[Hashable, int]) -> None:
        """Draw again what this run has drawn after a `position`."""
        self._draws = dict(position)

    def source(self, name: str, op_seed: int, drawer: Hashable = None, op_type: str = "") -> Source:
        """The source of generators for the op that writes `name`.

        Each `drawer`, such as a copy of the op, counts separately and so repeats the draws of the op. A name of `stream_of_draw`
        stands for one draw of eager mode.
        """
        if draw := draw_of_stream(name):
            return _RepeatedDraw(self._xp, draw)
        return _fixed_source(self._xp, op_seed) if op_seed else _ByCounter(self, name, drawer, op_type)

    def first_values(self, name: str, op_seed: int, name_from_zero: str) -> Source:
        """The source of generators for the initial values of a parameter; for `name_from_zero` see `names_from_zero`."""
        return _fixed_source(self._xp, op_seed) if op_seed else _FirstValues(self, name, name_from_zero)


_DRAW = re.compile(r"@DRAW@(-?\d{1,20})@(\d{1,20})(?:@(\d{1,20})@(\d{1,20}))?")


def own_seed(attrs: Mapping[str, Any]) -> int:
    """The `seed` attribute of an op; 0 for no seed, also if the attribute is -1."""
    seed = int(attrs.get("seed") or 0)
    return 0 if seed == -1 else seed


def stream_of_draw(draw: Draw) -> str:
    """Encode a draw of eager mode as the name of a stream that repeats it, for the attribute ``random_stream``."""
    return "@DRAW@" + "@".join(map(str, draw))


def draw_of_stream(name: str) -> Draw | None:
    """Decode a name of `stream_of_draw` to its draw; None for other names."""
    match = _DRAW.fullmatch(name)
    if match is None:
        return None
    seed, second, *remaining = [int(part) for part in match.groups() if part is not None]
    if remaining:
        return Draw(seed, second, *remaining)
    return Draw(seed, 0, second, 0)  # from an older file, whose draws have a position and no name


class _RepeatedDraw(Source):
    """Repeats one draw."""

    __slots__ = ("_draw", "_xp")

    def __init__(self, xp: Any, draw: Draw) -> None:
        self._xp, self._draw = xp, draw

    def __call__(self) -> Any:
        return _generator(self._xp, self._draw)


def _fixed_source(xp: Any, op_seed: int) -> Source:
    """A source that draws the same numbers each time, from the seed attribute of an op."""
    return _RepeatedDraw(xp, Draw(op_seed, 0, 0, 0))


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
    """Draws the initial values of a parameter: with a seed, the same in each run, however its name is numbered."""

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
"""Returns the next draw of one call of an op, or of one parameter's initial values."""


class FirstDraws:
    """The draws of parameters' initial values since a seed was set, in eager mode or for one program."""

    def __init__(self) -> None:
        self._names = _Names()
        self._counts: dict[str, int] = {}
        self._added = 0

    def expect(self, name: str) -> None:
        """Note the name of a layer that will create parameters; their numbers count from its numbers."""
        self._names.add(name)

    def expect_more(self, names: Collection[str]) -> None:
        """Expect the `names` that are new since the last call."""
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
    """The caller of a random op: an unnamed layer, identified by its kind, or a named layer."""

    kind: str
    name: str = ""
    before: int = 0
    """For a named layer: the number of outputs of other ops since the last random op."""
    outputs: int = 1
    """For a named layer: the number of outputs of the op."""


class _RandomCall:
    """A call of a random op: its name, and whether it is the first call with this name in its run."""

    __slots__ = ("is_first", "name")

    def __init__(self, name: str, is_first: bool) -> None:
        self.name, self.is_first = name, is_first


class _Calls:
    """The calls of random ops in a run of eager mode, named as in a program of the same layers.

    Run 1 begins when the seed is set, as a program's first run follows the run of its startup program. An unnamed layer keeps the
    number of its first run. The memory does not grow with the number of calls.
    """

    def __init__(self) -> None:
        self.run = 1
        self.drawn = 0
        """The number of draws since the seed was set."""
        self._objects: dict[str, int] = {}
        """Kind of layer -> number of objects of this kind."""
        self._shifts: dict[str, list[tuple[int, int]]] = {}
        """Kind -> (first place, number of objects created before it), for parts of a run in order."""
        self._seen: dict[str, int] = {}
        """Kind -> number of calls of the longest run."""
        self._places: dict[str, int] = {}
        """Kind, or name of a layer -> number of calls, or of outputs, in this run so far."""
        self._most: dict[str, int] = {}
        """The greatest value of `_places` in this run."""
        self._counts: dict[str, int] = {}
        """Name of a call or a parameter -> number of repeated draws in this run."""

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
        """The places of the next calls of this run."""
        return self._places.copy()

    @places.setter
    def places(self, places: Mapping[str, int]) -> None:
        self._places = dict(places)

    def add_object(self, kind: str) -> None:
        """Count an object that takes the next number of its kind of layer."""
        self._objects[kind] = self._objects.get(kind, 0) + 1

    def of(self, caller: Caller) -> _RandomCall:
        """The next call by a layer."""
        if caller.name:
            key = f"{caller.name}.tmp"
            self._pass(key, caller.before)
            place, is_first = self._pass(key, caller.outputs)
            return _RandomCall(f"{key}_{place}", is_first)
        kind = caller.kind
        place, is_first = self._pass(kind, 1)
        shifts = self._shifts.setdefault(kind, [(0, self._objects.get(kind, 0))])
        if place >= self._seen.get(kind, 0):
            self._seen[kind] = place + 1
            if shifts[-1][1] != self._objects.get(kind, 0):
                shifts.append((place, self._objects[kind]))
        objects = next(count for start, count in reversed(shifts) if start <= place)
        return _RandomCall(f"{kind}_{objects + place}.tmp_0", is_first)

    def pass_over(self, layer: str, outputs: int) -> None:
        """Count outputs of an op that draws nothing, in the layer with this name."""
        key = f"{layer}@PASSED"
        self._places[key] = self._places.get(key, 0) + outputs

    def passed(self, layer: str) -> int:
        """Return and reset the number of outputs passed over since the last random op in the layer with this name."""
        return self._places.pop(f"{layer}@PASSED", 0)

    def _pass(self, key: str, count: int) -> tuple[int, bool]:
        """Advance by `count` places; returns the former place, and whether it is new in this run."""
        place = self._places.get(key, 0)
        self._places[key] = place + count
        if place < self._most.get(key, 0):
            return place, False
        self._most[key] = place + count
        return place, True

    def next_draw(self, seed: int, call: _RandomCall) -> Draw:
        """The next draw of a call."""
        return Draw(seed, _key_of(call.name), self._number(call), self.run)

    def next_draw_of_update(self, seed: int, call: _RandomCall) -> Draw:
        """The next draw of the op that updates a parameter; it belongs to the run that backward ended."""
        return Draw(seed, _key_of(call.name), self._number(call), max(self.run - 1, 1))

    def of_update(self, parameter: str) -> _RandomCall:
        """The next call of the op that updates a parameter."""
        return _RandomCall(parameter, self._pass(f"{parameter}@UPDATE", 1)[0] == 0)

    def _number(self, call: _RandomCall) -> int:
        self.drawn += 1
        if call.is_first:
            call.is_first = False
            return 0
        number = self._counts[call.name] = self._counts.get(call.name, 0) + 1
        return number


class Draws(NamedTuple):
    """How a program draws like eager mode.

    Attributes:
        callers: first output of a random op -> its caller, if its type does not imply that.
        events: what moves the stream of eager mode without a draw, in order: a caller of a random op that draws nothing (dropout
            in tests), or None for a backward pass, which ends a run of eager mode.
        events_before: first output of a random op -> the number of events before it, if there are any.
    """

    callers: dict[str, Caller]
    events: list[Caller | None]
    events_before: dict[str, int]


class _Shared:
    """A run of a program that draws like eager mode; `done` counts the events that have taken place."""

    __slots__ = ("done", "draws")

    def __init__(self, draws: Draws) -> None:
        self.draws, self.done = draws, 0


class _Tape(threading.local):
    """The state of a thread's draws."""

    noted: list[Draw] | None = None
    """Records the draws, if set."""
    repeated: tuple[list[int], Sequence[Draw]] | None = None
    """Draws to repeat, if set: the index of the next one, and all draws."""
    drawer: Drawer | None = None
    """Returns the draws of the running op."""
    caller: Caller | None = None
    """The caller of the running op, if its type does not imply that."""
    first: tuple[int, FirstDraws] | None = None
    """Seed and draws of initial values, for a program."""
    shared: _Shared | None = None
    """If set, programs draw like eager mode."""


class RandomStream:
    """The draws of random ops outside programs: equal to a program of the same layers, see docs/how_to/same_results.md.

    `seed` restarts them.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tape = _Tape()
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Restart the draws with this seed; 0 stands for a seed that differs in every process."""
        with self._lock:
            self._seed = int(seed)
            self._calls, self._first = _Calls(), FirstDraws()
            self._for_programs: weakref.WeakKeyDictionary[Program, FirstDraws] = weakref.WeakKeyDictionary()

    def source(self, xp: Any, op_seed: int, op_type: str) -> Source:
        """The source of generators for an op; an op with a `seed` attribute draws the same each time."""
        return _Next(self, xp, op_type) if not op_seed else _fixed_source(xp, op_seed)

    def _current_seed(self) -> int:
        return seed_of(self._seed or default_main_program().random_seed)

    # -- names
    def add_object(self, kind: str) -> None:
        """Count an object that takes the next number of its kind of layer."""
        with self._lock:
            self._calls.add_object(kind)

    def expect(self, name: str, startup: Program | None) -> None:
        """Note a layer that creates parameters later; their numbers count from the numbers in its name.

        Args:
            name: the name of the layer.
            startup: the startup program that may get the parameters.
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
        """Begin the next run of eager mode; has no effect while draws are repeated."""
        if self._tape.repeated is None:
            with self._lock:
                self._calls.end_run()

    def loop(self) -> Callable[[], None]:
        """Return a function that begins the next iteration of a loop; calls have the same names in all iterations."""
        places = self._calls.places

        def begin() -> None:
            if self._tape.repeated is None:
                with self._lock:
                    self._calls.places = places

        return begin

    # -- drawers
    def drawer_of(self, caller: Caller) -> Drawer:
        """The drawer of the next call by a layer."""
        with self._lock:
            call = self._calls.of(caller)
        return lambda: self._calls.next_draw(self._current_seed(), call)

    def drawer_in_program(self, name: str, op_type: str) -> Drawer:
        """The drawer of a program's op that writes `name`, in the context `shared`."""
        shared = self._tape.shared
        if shared is None:
            return self.drawer_of(Caller(op_type))
        self._pass_events(shared, shared.draws.events_before.get(name, 0))
        return self.drawer_of(shared.draws.callers.get(name, Caller(op_type)))

    def _pass_events(self, shared: _Shared, until: int) -> None:
        """Let the events of a run take place, up to number `until`."""
        for caller in shared.draws.events[shared.done : until]:
            if caller is None:
                self.end_run()
            else:
                self.drawer_of(caller)
        shared.done = max(shared.done, until)

    def call_of_kind(self, kind: str) -> contextlib.AbstractContextManager[None]:
        """In the ``with`` block, the running op draws as the next call of a layer of this kind."""
        caller = Caller(kind)
        return self._drawing(lambda: self.drawer_of(caller), caller)

    def call_of_layer(self, name: str, outputs: int) -> contextlib.AbstractContextManager[None]:
        """In the ``with`` block, the running op draws as the next op (with `outputs` outputs) of the layer with this name."""
        with self._lock:
            caller = Caller("", name, self._calls.passed(name), outputs)
        return self._drawing(lambda: self.drawer_of(caller), caller)

    def update(self, parameter: str) -> contextlib.AbstractContextManager[None]:
        """In the ``with`` block, the running op draws as the next update of a parameter."""

        def drawer() -> Drawer:
            with self._lock:
                call = self._calls.of_update(parameter)
            return lambda: self._calls.next_draw_of_update(self._current_seed(), call)

        return self._drawing(drawer)

    def first_values(self, name: str) -> contextlib.AbstractContextManager[None]:
        """In the ``with`` block, the running op draws the initial values of the parameter `name`."""
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
        """The caller of the running op, if its type does not imply that."""
        return self._tape.caller

    def naming(self, op_type: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the run of a random op: by default, the op draws as the next call of a layer named by its type."""
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
        """In the ``with`` block, parameters get the initial values that a startup program with a seed would draw."""
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
        """The next draw of the running op."""
        return self.next_draw(self._tape.drawer or (lambda: self.drawer_of(Caller(op_type))()))

    def next_draw(self, drawer: Drawer) -> Draw:
        """The next draw of this thread: a repeated draw if there is a list, otherwise the draw of `drawer`."""
        tape = self._tape
        if tape.repeated is None:
            with self._lock:
                draw = drawer()
        else:
            count, draws = tape.repeated
            # the count shows the caller that there were too many draws
            draw = draws[count[0]] if count[0] < len(draws) else Draw(0, 0, 0, 0)
            count[0] += 1
        if tape.noted is not None:
            tape.noted.append(draw)
        return draw

    @contextlib.contextmanager
    def noting(self, draws: list[Draw]) -> Iterator[None]:
        """In the ``with`` block, append this thread's draws to a list, so that they can be repeated."""
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
        """In the ``with`` block, this thread repeats `draws`; yields a list with one number, the count of its draws."""
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
        """Whether programs draw like eager mode in this thread."""
        return self._tape.shared is not None

    @contextlib.contextmanager
    def shared(self, draws: Draws) -> Iterator[None]:
        """In the ``with`` block, a program that this thread runs draws like eager mode."""
        tape, shared = self._tape, _Shared(draws)
        before, tape.shared = tape.shared, shared
        try:
            yield
        finally:
            tape.shared = before
        self._pass_events(shared, len(draws.events))

    @property
    def drawn(self) -> int:
        """The number of draws since the seed was set."""
        return self._calls.drawn

    def position(self) -> _Calls:
        """The state of the draws, for `take_back`."""
        with self._lock:
            return self._calls.copy()

    def take_back(self, before: _Calls, count: int) -> None:
        """Return to position `before` if exactly `count` draws have been made since."""
        with self._lock:
            if self._calls.drawn == before.drawn + count:
                self._calls = before

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """In the ``with`` block, draws of this thread are new, and are not recorded."""
        tape = self._tape
        before = tape.noted, tape.repeated
        tape.noted = tape.repeated = None
        try:
            yield
        finally:
            tape.noted, tape.repeated = before


class _Next(Source):
    """Draws for the running op of eager mode."""

    __slots__ = ("_op_type", "_stream", "_xp")

    def __init__(self, stream: RandomStream, xp: Any, op_type: str) -> None:
        self._stream, self._xp, self._op_type = stream, xp, op_type

    def __call__(self) -> Any:
        return _generator(self._xp, self._stream.next_draw_of(self._op_type))


RANDOM = RandomStream()
"""The draws of eager mode in this process."""
