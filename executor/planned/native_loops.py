"""Loops as instructions of native code: the block of a loop, with the memory that each trip reads and writes.

They stand for the ops ``while``, ``recurrent`` and their gradients. Libraries compile them as loops; plans of the executor hold
the calls of all their trips (`unrolled_loops`). If the number of trips is not known, only values of the last trip may be read.

Values that pass from trip to trip lie in *buffers*, which are values of the plan. A buffer has an entry for each trip if a
gradient or a stacked output reads it. Otherwise there are two buffers: a trip reads the first and writes the second, which is
copied to the first after the trip.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fluid.ir.program import Operator
from fluid.ir.regions import Region, region_of
from fluid.ir.versions import Value
from fluid.opdef.registry import EMPTY
from fluid.values.spec import Spec

from ..native.branches import BranchMark, named_writes
from ..native.instructions import (
    CLEARED,
    NATIVE_PREFIX,
    Check,
    KernelCall,
    NativeInstruction,
    Operand,
    Writer,
    stand_in,
    within_branches,
)
from ..native.op_instructions import OpInstruction
from ..native.repeated import BlockCode, LoopsOfBlock, block_code, no_source
from ..native.target import Target
from ..stepwise.indexed_arrays import ArrayRoom
from ..stepwise.interpreter import Captured
from ..stepwise.loop_body import LOOPS, LoopBody, total_of
from ..stepwise.repeated import Loop, RandomSource
from .trip_counts import count_trips

__all__ = ["Copied", "NativeLoop", "NativeLoops", "TripPlace"]


class TripPlace(NamedTuple):
    """An address in a trip of a loop: `offset` bytes into a value, and `stride` bytes further with each trip."""

    value: Value
    offset: int = 0
    stride: int = 0


class Copied(NamedTuple):
    """A copy of `size` bytes; without a source, zeros are written."""

    target: TripPlace
    source: TripPlace | None
    size: int


class ArrayMemory(NamedTuple):
    """The memory of an array of tensors.

    Attributes:
        memory: a value of the plan.
        room: its size.
        before: the array before the loop; None if it begins without entries.
        after: the array after the loop; None if nothing reads it.
    """

    memory: Value
    room: ArrayRoom
    before: Value | None
    after: Value | None


class SavedRuns(NamedTuple):
    """The values that the trips of a loop leave for its gradient.

    Attributes:
        scopes: the value of its step scopes.
        trips: their number.
        values: name -> the memory of its values of all runs, and their spec.
        branches, unread: see `Frames`.
    """

    scopes: Value
    trips: int
    values: Mapping[str, tuple[TripPlace, Spec]]
    branches: Mapping[str, Collection[str]]
    unread: Collection[str]


@dataclass(eq=False)
class NativeLoop(NativeInstruction):
    """A loop.

    Attributes:
        trips: their number; None if `condition` tells.
        condition: the byte that holds whether another trip follows; None if the number of trips is known.
        body: native code, checks, and draws of a trip.
        places: value of the block -> its memory.
        before, between, after: the copies before the first trip, after each trip, and after the last one.
        block_specs: the specs of the values of the block.
        arrays: the memories of its arrays of tensors.
        runs: what the trips leave for a gradient; None if no gradient reads them.
        past: for a gradient, what the trips of the forward loop have left.
    """

    ops: list[Operator]
    trips: int | None
    condition: TripPlace | None
    body: Sequence[NativeInstruction | Check | OpInstruction]
    places: Mapping[Value, TripPlace]
    before: list[Copied]
    between: list[Copied]
    after: list[Copied]
    block_specs: Mapping[Value, Spec]
    arrays: Sequence[ArrayMemory] = ()
    runs: SavedRuns | None = None
    past: SavedRuns | None = None
    shares: dict[Value, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        copies = [*self.before, *self.between, *self.after]
        sources = [copied.source for copied in copies if copied.source is not None]
        targets = [copied.target for copied in copies]
        inner = [value for item in self.body for value in (*item.read, *item.written)]
        used = dict.fromkeys(place.value for place in [*sources, *targets, *(self.places[value] for value in inner)])
        outputs = {place.value for place in targets} | {self.places[value].value for item in self.body for value in item.written}
        self.read = [value for value in used if value not in outputs]
        self.written = [value for value in used if value in outputs]
        native = [item for item in self.body if not isinstance(item, BranchMark)]
        self.layouts = {self.places[value].value: text for item in native for value, text in item.layouts.items()}
        self.workspace_bytes = max(item.workspace_bytes for item in native)
        ends = sorted({0, (self.trips or 1) - 1})
        self.calls = [self.in_trip(call, trip) for trip in ends for item in native for call in item.calls]
        """The calls of the first and of the last trip: they access the first and the last bytes of the memory."""
        self.writers: dict[str, Writer] = {name: writer for item in native for name, writer in item.writers.items()}

    def describe(self) -> str:
        return f"{self.trips if self.trips is not None else 'some'} trips of {self.op.type}"

    def in_trip(self, call: KernelCall, trip: int) -> KernelCall:
        """A call of the body with the addresses of a trip."""
        places = [self.memory_of(operand) for operand in call.operands]
        operands = [
            operand if place is None else (place.value, place.offset + trip * place.stride)
            for operand, place in zip(call.operands, places, strict=True)
        ]
        return KernelCall(call.kernel, operands, call.is_serial)

    def memory_of(self, operand: Operand) -> TripPlace | None:
        """The memory of an operand of a call in the body; None for the workspace."""
        value, offset = operand
        if value is None:
            return None
        place = self.places[value]
        return place._replace(offset=place.offset + offset)


_LEAST_ROOM, _MOST_ROOM, _ROOM_BYTES = 64, 1 << 12, 1 << 22
"""The least and the most entries that an array of tensors has room for, and the most bytes: large entries get less room."""


def _room_of(entry_bytes: int, trips: int | None) -> int:
    """The number of entries that an array gets room for; each trip may add one, if the number of trips is known."""
    most = min(_MOST_ROOM, _ROOM_BYTES // max(entry_bytes, 1))
    return max(min(_LEAST_ROOM if trips is None else trips + _LEAST_ROOM, most), 1)


_MOST_COUNTED_TRIPS = 1 << 16
"""The most trips of a ``while`` that are counted in advance for a library."""


class _StepwiseError(Exception):
    """The loop has to run step by step; the message says why."""


class _Compiler:
    """Lowers the block of a loop, for `Loop`."""

    def __init__(self, target: Target, loops: LoopsOfBlock | None) -> None:
        self._target, self._loops = target, loops

    def compile(
        self, body: LoopBody, specs: Mapping[Value, Spec], outputs: Any, source: RandomSource, rooms: Mapping[str, ArrayRoom]
    ) -> Any:
        return block_code(body, specs, outputs, self._target, rooms, self._loops)


class NativeLoops:
    """Makes loops of the instructions of a plan.

    Args:
        specs: the specs of values; the loops' buffers are added.
        captures: variable of step scopes -> the names that gradient blocks read.
        target: the processor.
        within: makes the code of loops in the blocks of loops; None if loops with such blocks stay.
        entries: array of tensors -> the spec of its entries; None if loops with arrays stay.
    """

    def __init__(
        self,
        specs: dict[Value, Spec],
        captures: Mapping[str, Captured],
        target: Target,
        within: LoopsOfBlock | None = None,
        entries: Mapping[Value, Spec] | None = None,
    ) -> None:
        self._entries = entries
        self._specs, self._captures, self._compiler = specs, captures, _Compiler(target, within)
        self._frames: dict[str, SavedRuns] = {}
        self._count = 0

    def expand(self, instruction: Any) -> Any:
        """Replace the instruction of a loop by native code. Other instructions, and loops that run step by step, stay."""
        if instruction.op.type not in LOOPS:
            return instruction
        try:
            loop = self._make_loop(instruction, _MOST_COUNTED_TRIPS)
            if any(isinstance(loop.body[number], Check) for number in within_branches(loop.body)):
                raise _StepwiseError("ids are checked in a branch of its block")
            return loop
        except _StepwiseError as error:
            return replace(instruction, obstacle=str(error))

    def loop(self, instruction: Any, most_trips: int) -> NativeLoop | None:
        """The native code of a loop; None if it runs step by step.

        Args:
            most_trips: the most trips of a ``while`` that are counted in advance.
        """
        with suppress(_StepwiseError):
            return self._make_loop(instruction, most_trips)
        return None

    def _make_loop(self, instruction: Any, most_trips: int) -> NativeLoop:
        """Make the native code of a loop; `_StepwiseError` if it has to run step by step."""
        region = region_of(instruction.op)
        assert region is not None, "a loop owns a block"
        loop = Loop(self._compiler, instruction.op, region, self._captures, no_source)
        if (loop.entries or not loop.is_possible) and self._entries is not None:
            loop = Loop(self._compiler, instruction.op, region, self._captures, no_source, LoopBody.with_indexed_arrays)
        self._count += 1
        tag, entries = f"loop{self._count}.", self._entries or {}
        return _LoopMaker(self._specs, self._frames, tag, loop, instruction, most_trips, entries).make()


class _LoopMaker:
    """Makes one loop.

    Args:
        specs, frames: see `NativeLoops`.
        tag: begins the names of new values.
        loop: the roles of the block's names.
        instruction: the instruction of the plan.
        most_trips: see `NativeLoops.loop`.
        entries: see `NativeLoops`.
    """

    def __init__(
        self,
        specs: dict[Value, Spec],
        frames: dict[str, SavedRuns],
        tag: str,
        loop: Loop,
        instruction: Any,
        most_trips: int,
        entries: Mapping[Value, Spec],
    ) -> None:
        if not loop.is_possible or loop.entries:
            raise _StepwiseError("its block uses arrays of tensors, owns a loop, or passes values as native code cannot")
        if loop.hoisted:
            raise _StepwiseError("sizes in its block depend on values")
        self._specs, self._all_frames, self._tag, self._loop, self._instruction = specs, frames, tag, loop, instruction
        self._region: Region = loop.region
        past = self._region.frames
        if past is not None and past not in frames:
            raise _StepwiseError("it is the gradient of a loop that cannot be compiled")
        self._past = frames[past] if past is not None else None
        op = instruction.op
        self._is_reversed = op.attrs.get("reverse", False) != (self._past is not None)
        self._trips = self._number_of_trips(most_trips)
        self._entries = entries
        self._runs: SavedRuns | None = None
        self._places: dict[Value, TripPlace] = {}
        self._before: list[Copied] = []
        self._between: list[Copied] = []
        self._after: list[Copied] = []
        self._saved: dict[str, tuple[TripPlace, Spec]] = {}
        """Name -> the memory of its values before each run, which a gradient reads, in the order of runs; and their spec."""
        self._stacked: dict[str, tuple[TripPlace, Spec]] = {}
        """Name -> the memory of its values after each run, in the order of runs; and their spec."""
        self._last: dict[str, TripPlace] = {}
        """Name -> the memory of its value after the last trip."""

    # -- facts
    def _outer(self, name: str) -> tuple[Value, Spec]:
        value = self._instruction.outer.get(name)
        if value is None or value not in self._specs:
            raise _StepwiseError(f"the size of {name}, which it reads, is not known")
        return value, self._specs[value]

    def _number_of_trips(self, most: int) -> int | None:
        if self._past is not None:
            return self._past.trips
        if self._loop.sequences:
            lengths = {self._outer(outer)[1].shape[0] for outer in self._loop.sequences.values()}
            if len(lengths) != 1:
                raise _StepwiseError("its sequences have different lengths")
            return lengths.pop()
        count = count_trips(self._loop.op, self._loop.region, most)
        keeps_all = self._loop.is_captured or self._loop.stacked
        if count is None and keeps_all:
            raise _StepwiseError("its number of trips depends on values, but its gradient needs memory for each trip")
        return count if count or keeps_all else None

    @property
    def _known_trips(self) -> int:
        """The number of trips of a loop that keeps the values of all runs."""
        assert self._trips is not None, "loops that keep values have a known number of trips"
        return self._trips

    # -- memory
    def _buffer(self, name: str, spec: Spec, entries: int = 1) -> TripPlace:
        """Create memory for some entries."""
        value = f"{NATIVE_PREFIX}{self._tag}{name}", 0
        self._specs[value] = Spec((entries, *spec.shape), spec.dtype)
        return TripPlace(value)

    def _entry(self, start: TripPlace, spec: Spec, entries: int, first: int) -> TripPlace:
        """The entries of a buffer that trips use: from number `first` on; in a reversed loop, counted from the end."""
        size = spec.nbytes
        if self._is_reversed:
            return start._replace(offset=start.offset + (entries - 1 - first) * size, stride=-size)
        return start._replace(offset=start.offset + first * size, stride=size)

    def _at_last_trip(self, place: TripPlace) -> TripPlace:
        """The address that a place has in the last trip."""
        return place._replace(offset=place.offset + (self._known_trips - 1) * place.stride, stride=0)

    def make(self) -> NativeLoop:
        """Compile the block, and give all its values memory."""
        if self._trips == 0:
            raise _StepwiseError("it has no trip: its condition is false from the beginning, or its sequences are empty")
        firsts, by_run, fixed = self._sources()
        code = self._compiled({name: spec for name, (_, spec) in {**firsts, **by_run, **fixed}.items()})
        for name, (value, _) in fixed.items():
            self._places[name, 0] = TripPlace(value)
        for name, (start, spec) in by_run.items():
            self._places[name, 0] = self._entry(start, spec, self._trips or 0, 0)
            if name in self._loop.local:
                self._saved[name] = self._copy_sequence(name, start, spec)
        for before, after in self._loop.links.items():
            self._chain(code, before, after, *firsts[before])
        for name in self._loop.stacks:
            self._stack(name, code.spec(self._loop.last(name)))
        for name in self._loop.summed:
            self._sum(name, code.spec(self._loop.last(name)))
        arrays = [self._array(name, room) for name, room in code.rooms.items()]
        self._place_others(code)
        self._copy_results()
        condition = self._condition() if self._trips is None else None
        ops, places = [self._instruction.op], self._places
        copies = self._before, self._between, self._after
        return NativeLoop(
            ops, self._trips, condition, code.instructions, places, *copies, code.specs, arrays, self._runs, self._past
        )

    def _sources(
        self,
    ) -> tuple[dict[str, tuple[Value | None, Spec]], dict[str, tuple[TripPlace, Spec]], dict[str, tuple[Value, Spec]]]:
        """The values that the block reads from outside, by name.

        Returns:
            The first values of chains, None for zeros; values with an entry for each run; values that all runs share.
        """
        loop = self._loop
        firsts: dict[str, tuple[Value | None, Spec]] = {name: self._outer(name) for name in loop.writes if name in loop.links}
        for state in self._region.states:
            value, spec = self._outer(state.first)
            firsts[state.before] = None if state.from_zero else value, spec
        by_run = {inner: self._sequence(outer) for inner, outer in loop.sequences.items()}
        if self._past is not None:
            names = [name for name in loop.reads if name in self._past.values and name not in firsts and name not in by_run]
            by_run |= {name: self._past.values[name] for name in names}
        fixed = {name: self._outer(name) for name in loop.reads if name not in firsts and name not in by_run}
        return firsts, by_run, fixed

    def _compiled(self, specs: Mapping[str, Spec]) -> BlockCode:
        """Compile the block for specs of the names that it reads."""
        former = self._former_entries()
        self._loop.room = max([_room_of(entry[0].nbytes, self._trips) for entry in former.values() if entry], default=_LEAST_ROOM)
        blocks: Any = self._loop.compiled({name: stand_in(specs[name]) for name in self._loop.reads}, former, {None})
        code = None if blocks is None else blocks[None]
        if not isinstance(code, BlockCode):
            raise _StepwiseError("an op of its block has no native code, or a value changes its shape from trip to trip")
        return code

    def _former_entries(self) -> dict[str, list[Any]]:
        """Array of tensors -> a list with a stand-in for its entries before the loop; an empty list if their spec is unknown."""
        entries: dict[str, list[Any]] = {}
        for name in self._loop.indexed:
            value = self._instruction.outer.get(name)
            spec = self._entries.get(value) if value is not None else None
            entries[name] = [stand_in(spec)] if spec is not None else []
        return entries

    def _array(self, name: str, room: ArrayRoom) -> ArrayMemory:
        """Create the memory of an array of tensors."""
        place = self._places[name, 0] = TripPlace((f"{NATIVE_PREFIX}{self._tag}{name}", 0))
        self._specs[place.value] = room.memory
        totals = {total_of(part.inner): part.name for part in self._region.summed if part.name != EMPTY}
        if name in totals:
            return ArrayMemory(place.value, room, None, self._outputs.get(totals[name]))
        return ArrayMemory(place.value, room, self._instruction.outer.get(name), self._outputs.get(name))

    @property
    def _outputs(self) -> dict[str, Value]:
        """Name in the program -> the value that the op makes."""
        return {name: value for slot, name, value in named_writes(self._instruction) if slot != self._region.scopes_slot}

    def _sequence(self, outer: str) -> tuple[TripPlace, Spec]:
        value, spec = self._outer(outer)
        return TripPlace(value), Spec(spec.shape[1:], spec.dtype)

    def _copy_sequence(self, name: str, start: TripPlace, spec: Spec) -> tuple[TripPlace, Spec]:
        """Copy a sequence for the gradient: the sequence itself may be overwritten before."""
        buffer = self._buffer(f"saved.{name}", spec, self._known_trips)
        self._before.append(Copied(buffer, start, self._known_trips * spec.nbytes))
        return buffer, spec

    def _chain(self, code: BlockCode, before: str, after: str, first: Value | None, spec: Spec) -> None:
        """Give memory to a value that passes from trip to trip."""
        loop = self._loop
        if code.spec(loop.last(after)) != spec:
            raise _StepwiseError(f"{before} is {spec} before the loop, and {code.spec(loop.last(after))} after a trip")
        source = TripPlace(first) if first is not None else None
        if not loop.has_entries(before, after):
            read, write = self._buffer(f"before.{before}", spec), self._buffer(f"after.{before}", spec)
            self._between.append(Copied(read, write, spec.nbytes))
            self._last[after] = read
        else:
            entries, size = self._known_trips + 1, spec.nbytes
            start = self._buffer(f"chain.{before}", spec, entries)
            read, write = (self._entry(start, spec, entries, place) for place in (0, 1))
            self._last[after] = self._at_last_trip(write)
            earlier, later = start, start._replace(offset=size)
            if self._is_reversed:
                earlier, later = later, earlier
            if before in loop.local or before in loop.carried:
                self._saved[before] = earlier, spec
            self._stacked[after] = later, spec
        self._before.append(Copied(read._replace(stride=0), source, spec.nbytes))
        self._places[before, 0], self._places[loop.last(after)] = read, write

    def _stack(self, name: str, spec: Spec) -> None:
        """Give memory to an output of the block that no trip reads."""
        if not self._loop.needs_all(name):
            buffer = self._places[self._loop.last(name)] = self._last[name] = self._buffer(f"last.{name}", spec)
            if self._trips is None:  # there may be none
                self._before.append(Copied(buffer, TripPlace(self._outer(name)[0]), spec.nbytes))
            return
        start = self._buffer(f"stack.{name}", spec, self._known_trips)
        write = self._places[self._loop.last(name)] = self._entry(start, spec, self._known_trips, 0)
        self._stacked[name] = start, spec
        self._last[name] = self._at_last_trip(write)

    def _sum(self, name: str, spec: Spec) -> None:
        """Give memory to the sum of a value over all runs; it begins at 0."""
        total = total_of(name)
        buffer = self._last[total] = self._buffer(total, spec)
        self._places[total, 0] = self._places[total, 1] = buffer
        self._before.append(Copied(buffer, None, spec.nbytes))

    def _place_others(self, code: BlockCode) -> None:
        """Give memory to the remaining values of the block."""
        for value, spec in code.specs.items():
            if value not in self._places:
                name, version = value
                prefix = CLEARED if name.startswith(CLEARED) else NATIVE_PREFIX
                renamed = f"{prefix}{self._tag}{name.removeprefix(prefix)}", version
                self._specs[renamed] = spec
                self._places[value] = TripPlace(renamed)

    # -- results
    def _copy_results(self) -> None:
        """Copy the results to the values that the op makes, and register the memory that a gradient reads."""
        loop, region, outputs = self._loop, self._region, self._outputs
        results = [(name, self._last[name]) for name in region.writes if name in self._last]
        results += [(part.name, self._stacked[part.inner][0]) for part in region.stacked if part.name != EMPTY]
        sums = [(part.name, self._last.get(total_of(part.inner))) for part in region.summed if part.name != EMPTY]
        results += [(name, source) for name, source in sums if source is not None]
        results += [(part.name, self._last[part.inner]) for part in region.final if part.name != EMPTY]
        for name, source in results:
            self._copy_result(outputs.get(name), source)
        if region.scopes is not None and loop.is_captured:
            after = {name: place for name, place in self._stacked.items() if name in loop.local}
            scopes = self._instruction.writes[region.scopes_slot][0]
            self._runs = SavedRuns(scopes, self._known_trips, after | self._saved, loop.branches, loop.unread_arrays)
            self._all_frames[region.scopes] = self._runs

    def _copy_result(self, target: Value | None, source: TripPlace) -> None:
        if target is None:
            return
        if target not in self._specs:
            raise _StepwiseError(f"the size of {target[0]}, a result, is not known")
        self._after.append(Copied(TripPlace(target), source, self._specs[target].nbytes))

    def _condition(self) -> TripPlace:
        """The memory of the condition of a ``while``."""
        (name,) = self._instruction.op.input("Condition")
        return self._last[name]
