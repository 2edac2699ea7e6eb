"""Runs the block of a loop as one call for all trips, if all its ops compile.

Slices of sequences, values for gradients and stacked outputs lie in stacks: arrays with an entry for each trip. Values that pass
from trip to trip lie in chains: a trip reads one entry and writes the next. If nothing reads the entries later, a chain has two
entries that take turns. An array of tensors is a stack, too; each trip reads and writes some of its entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np

from fluid.ir.nesting import walk
from fluid.ir.program import Block, Operator
from fluid.ir.regions import Region, region_of, shape_slots
from fluid.ir.versions import BlockVersions, Value
from fluid.opdef.registry import EMPTY, get
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..runtime.specs import spec_of
from .active_rows import ActiveRows, RankTable
from .hoisting import hoisted_ops
from .indexed_arrays import ArrayRoom, IndexedArray, TripStoppedError, room_for
from .loop_arrays import LoopArrays, is_plain
from .loop_body import IS_TAKEN, Entry, LoopBody, name_in_branch, total_of

if TYPE_CHECKING:
    from .interpreter import Captured, Environment

__all__ = [
    "AT_ONCE", "BlockCompiler", "Chain", "CompiledBlock", "Frames", "Loop", "PreparedTrips", "RandomSource", "equal_runs",
    "repeat_with_room", "run_at_once", "run_while_true",
]  # fmt: skip

_FEWEST_RUNS = 16
"""The smallest capacity, in runs, of a loop with a condition."""
AT_ONCE = 1024
"""The most trips in one call: the addresses of each trip take some hundred bytes."""


_R = TypeVar("_R")
_Build: TypeAlias = "Callable[[Region, BlockVersions, Mapping[str, Sequence[str]]], LoopBody | None]"

RandomSource: TypeAlias = "Callable[[Operator, Mapping[str, Any]], Any]"
"""Returns the source of random generators for an op and its attributes, defaults included."""


class PreparedTrips(Protocol):
    """Consecutive trips through a compiled block. Running them may raise `TripStoppedError`, if the block has indexed arrays."""

    def run_all(self) -> None: ...

    def run_while(self, conditions: Any) -> int:
        """Run trips until one leaves a false condition; returns how many have run.

        Args:
            conditions: an array with the memory of the condition of each trip.
        """


class CompiledBlock(Protocol):
    """A block to run for many trips.

    Attributes:
        may_be_missing: values that only a branch of the block makes.
        rooms: indexed array -> the size of its memory.
    """

    may_be_missing: Collection[Value]
    rooms: Mapping[str, ArrayRoom]

    def spec(self, value: Value) -> Spec:
        """The spec of a value that the block writes."""

    def trips(self, count: int, addresses: Mapping[Value, Any]) -> PreparedTrips:
        """Prepare trips. This ends the trips that were prepared before.

        Args:
            addresses: external value -> its address, a number or an array with one address for each trip.
        """


class BlockCompiler(Protocol):
    """Compiles blocks."""

    def compile(
        self,
        body: LoopBody,
        specs: Mapping[Value, Spec],
        outputs: Collection[Value],
        source: RandomSource,
        rooms: Mapping[str, ArrayRoom],
    ) -> CompiledBlock | None:
        """Compile a block; None if it has to run op by op. See `native.block_compiler.NativeBlocks`."""


class Frames(Sequence[dict[str, Any]]):
    """Values for gradient blocks: one array for each name, with an entry for each run.

    Args:
        branches: variable of step scopes -> the names that the gradient of its branch reads (see `name_in_branch`).
        rows: names whose stacks have room for more rows than a run has.
        active: the rows of the runs of a loop over a rank table; None for other loops.
        arrays: names of arrays of tensors that gradients pass on, but do not look into.
    """

    def __init__(
        self,
        count: int,
        stacks: dict[str, Any],
        branches: Mapping[str, Collection[str]],
        rows: Collection[str] = (),
        active: ActiveRows | None = None,
        arrays: Collection[str] = (),
    ) -> None:
        self._arrays = arrays
        self._count, self.stacks, self._branches, self.active = count, stacks, branches, active
        self._rows = stacks.keys() & rows
        nested = {name for names in branches.values() for name in names}
        self._outermost = branches.keys() - nested
        within = {name_in_branch(scopes, name) for scopes, names in branches.items() for name in (*names, IS_TAKEN)}
        self._plain = {name: stack for name, stack in stacks.items() if name not in within}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < self._count:
            raise IndexError(number)
        frame: dict[str, Any] = {name: stack[number] for name, stack in self._plain.items()}
        frame |= {name: [] for name in self._arrays}
        if self.active is not None:
            frame |= {name: frame[name][: self.active.of(name)[number]] for name in self._rows}
        return frame | {scopes: self._of_branch(scopes, number) for scopes in self._outermost}

    def _of_branch(self, scopes: str, number: int) -> list[dict[str, Any]]:
        """The frames of a branch in one run: one frame, or none if the branch was not taken."""
        if not self.stacks[name_in_branch(scopes, IS_TAKEN)][number].item():
            return []
        return [
            {
                name: self._of_branch(name, number)
                if name in self._branches
                else self.stacks[name_in_branch(scopes, name)][number]
                for name in self._branches[scopes]
            }
        ]

    def copy(self) -> Frames:
        """The frames: nothing writes to them."""
        return self


class Chain:
    """The memory of a value that passes from trip to trip.

    Args:
        first: the value before the first trip.
        capacity: how many trips there is room for.
        has_all: keep an entry for each trip; otherwise two entries take turns.
        is_reversed: the first trip has the last number.
    """

    def __init__(self, first: Any, capacity: int, has_all: bool, is_reversed: bool = False) -> None:
        self._capacity, self._has_all, self._is_reversed = capacity, has_all, is_reversed
        self.array = np.empty((capacity + 1 if has_all else 2, *first.shape), first.dtype)
        self.array[self.entry(0)] = first

    def entry(self, trip: Any) -> Any:
        """The number of the entry that a trip reads; it writes the entry of the next trip."""
        if not self._has_all:
            return trip % 2
        return self._capacity - trip if self._is_reversed else trip

    def addresses(self, trips: Any) -> Any:
        """The address of the entry that each trip reads."""
        return self.array.ctypes.data + self.entry(trips) * self.array.strides[0]

    def value(self, trip: int) -> Any:
        """The value that a trip reads."""
        return self.array[self.entry(trip)]

    def before(self, count: int) -> Any:
        """The values before each run, by number."""
        return self.array[1 : count + 1] if self._is_reversed else self.array[:count]

    def after(self, count: int) -> Any:
        """The values after each run, by number."""
        return self.array[:count] if self._is_reversed else self.array[1 : count + 1]

    def grown(self, trips: int) -> Chain:
        """A copy with twice the capacity, after some trips."""
        if not self._has_all:
            return self
        larger = Chain(self.array[0], 2 * self._capacity, has_all=True)
        larger.array[: trips + 1] = self.array[: trips + 1]
        return larger


class _OutputStack:
    """The memory of a block's output: an entry for each run, by number, or one entry if only the last run's value is read."""

    def __init__(self, spec: Spec, capacity: int, has_all: bool) -> None:
        self._spec, self._has_all = spec, has_all
        self.array = np.empty((capacity if has_all else 1, *spec.shape), spec.dtype.array_dtype)

    def addresses(self, numbers: Any) -> Any:
        return self.array.ctypes.data + (numbers * self.array.strides[0] if self._has_all else 0)

    def value(self, runs: int) -> Any:
        """The value after so many runs."""
        return self.array[runs - 1 if self._has_all else 0]

    def grown(self, runs: int) -> _OutputStack:
        """A copy with twice the capacity, after some runs."""
        if not self._has_all:
            return self
        larger = _OutputStack(self._spec, 2 * len(self.array), has_all=True)
        larger.array[:runs] = self.array[:runs]
        return larger


def equal_runs(numbers: Any) -> list[tuple[int, int]]:
    """The first place of each run of equal numbers, and the place behind its last."""
    return list(pairwise([0, *((numbers[1:] != numbers[:-1]).nonzero()[0] + 1).tolist(), len(numbers)]))


class _TripsOfParts:
    """Trips through blocks for several numbers of rows.

    Args:
        blocks: number of rows -> the block.
        rows: the number of rows in each trip; equal ones lie together.
        addresses: see `CompiledBlock.trips`.
    """

    def __init__(self, blocks: Mapping[int | None, CompiledBlock], rows: Any, addresses: Mapping[Value, Any]) -> None:
        self._parts: list[tuple[PreparedTrips, int]] = []
        """Trips of equal numbers of rows, and how many there are."""
        for start, end in equal_runs(rows):
            of_part = {value: of_trips[start:end] if np.ndim(of_trips) else of_trips for value, of_trips in addresses.items()}
            self._parts.append((blocks[int(rows[start])].trips(end - start, of_part), end - start))

    def run_all(self) -> None:
        for part, _ in self._parts:
            part.run_all()

    def run_while(self, conditions: Any) -> int:
        count = 0
        for part, size in self._parts:
            count += part.run_while(conditions[count : count + size])
            if not conditions[count - 1]:
                break
        return count


class Loop:
    """The block of a loop, compiled for the shapes of its values, and the roles of its names.

    Args:
        compiler: compiles the block.
        op: the op.
        region: how values pass through its block.
        captures: variable of step scopes -> the names that gradient blocks read.
        source: returns the source of random generators of an op.
        build: makes the steps of a trip.

    Attributes:
        branches: variable of step scopes -> the names that the gradient of a branch in the block reads.
        local: names of the block; a gradient block reads their values after each run.
        unread_arrays: arrays that gradient blocks pass on, but do not look into.
        carried: outer names that the block overwrites; a gradient block reads their values before each run.
        capacity: the expected number of runs of a loop with a condition: the number of the last time.
        room: the expected number of entries of indexed arrays.
        hoisted: ops of the block that run before the loop.
    """

    def __init__(
        self,
        compiler: BlockCompiler,
        op: Operator,
        region: Region,
        captures: Mapping[str, Captured],
        source: RandomSource,
        build: _Build = LoopBody.of,
    ) -> None:
        captured = captures.get(region.scopes) if region.scopes is not None else None
        self._compiler, self._source, self.op, self.region = compiler, source, op, region
        self.is_captured = captured is not None
        local = captured.local if captured is not None else set()
        self.branches = _branches_within(local, captures)
        in_branches = {name for scopes in self.branches for name in _names_saved(scopes, captures)}
        carried = captured.carried & {*region.writes} if captured is not None else set()
        self.unread_arrays = _unread_arrays(region.body, local | carried)
        self.local: Set[str] = {*local} - captures.keys() - self.unread_arrays | in_branches
        self.carried: Set[str] = carried - self.unread_arrays
        self._compiled: dict[Any, dict[int | None, CompiledBlock | None]] = {}
        self.capacity, self.room = _FEWEST_RUNS, 0
        self.hoisted = hoisted_ops(region, local | carried)
        versions = BlockVersions(region.body, without=self.hoisted)
        versions.last.update(dict.fromkeys(in_branches, 1))
        self.last = versions.current
        saved = {scopes: _names_saved(scopes, captures) for scopes in captures}
        self.body = None if self._loses_former_values(captures) else build(region, versions, saved)
        (self.condition,) = op.input("Condition") if op.type == "while" else [""]
        """The name that tells whether another trip follows; empty if the number of trips is known."""
        if self.body is not None and self.condition in region.writes:
            self.body.condition = self.last(self.condition)
        by_array: dict[str, list[Entry]] = {}
        for entry in self.body.entries if self.body is not None else ():
            by_array.setdefault(entry.array, []).append(entry)
        self.entries = by_array
        """Array -> the entries that trips read or write."""
        self.indexed = self.body.memories if self.body is not None else set[str]()
        self._summed_arrays = {total_of(part.inner) for part in region.summed}
        self.reads, self.integers = ([], set[str]()) if self.body is None else (sorted(self.body.reads), self.body.integers)
        self.rows, self.shrunk = (set[str](), set[str]()) if self.body is None else (self.body.rows, self.body.shrunk)
        arrays = by_array.keys() | self.indexed
        self.writes = [name for name in region.writes if name not in arrays and name in versions.last]
        """The outputs, except arrays of tensors; a pruned block leaves some outputs as they are."""
        states = {state.before: state.after for state in region.states}
        self.links = states | {name: name for name in self.writes if name in versions.read_first or name in self.carried}
        """Name of a chain before a run -> its name after it."""
        self.sequences = dict(region.slices)
        self.stacked = {part.inner for part in region.stacked if part.inner != EMPTY}
        self.summed = [] if self.body is None else self.body.totals
        outputs = {*self.stacked, *self.writes, *(name for name in self.local if name in versions.last)}
        self.stacks = sorted(outputs - {*self.links.values()})
        """Outputs of the block that are no chains."""
        self.is_possible = self.body is not None and self._is_possible(versions)
        """Whether the names of the block allow one call."""

    @classmethod
    def all_of(
        cls, compiler: BlockCompiler, op: Operator, region: Region, captures: Mapping[str, Captured], source: RandomSource
    ) -> list[Loop]:
        """The ways to run the block as one call, the fastest first."""
        loops = [cls(compiler, op, region, captures, source, build) for build in (LoopBody.of, LoopBody.with_indexed_arrays)]
        return [loop for loop in loops if loop.is_possible]

    def _loses_former_values(self, captures: Mapping[str, Captured]) -> bool:
        """Whether the gradient of a branch reads the value of a variable before the branch, as Paddle's gradients do."""
        regions = [region for op in walk(self.region.body.ops) if op.sub_blocks and (region := region_of(op)) is not None]
        return any(
            not captures[region.scopes].carried.isdisjoint(region.writes)
            for region in regions
            if region.scopes is not None and region.scopes in self.branches
        )

    def _is_possible(self, versions: BlockVersions) -> bool:
        afters, last = list(self.links.values()), versions.last
        if not self.carried <= last.keys():
            return False
        if self.rows and ((self.is_captured and self.region.frames is not None) or not self.rows.isdisjoint(self.writes)):
            return False  # gradients of higher order, or rows that are no entries of an array
        if not (self.entries.keys() | self.indexed).isdisjoint(self.local | self.carried) or self._undoes_updates(versions):
            return False
        if EMPTY in self.links or len({*afters}) < len(afters) or {*self.sequences} & {*self.links}:
            return False
        if not all(name in last for name in (*afters, *self.stacks, *self.summed)) or {*self.summed} & {*afters, *self.stacks}:
            return False
        return not any(
            name in last for name in (*self.sequences, *(before for before, after in self.links.items() if before != after))
        )

    def _undoes_updates(self, versions: BlockVersions) -> bool:
        """Whether the block writes outer variables that the op does not list: gradient blocks of Paddle undo updates so."""
        forward, declared = self.region.forward, {*self.region.body.vars, *self.region.writes, *self.links.values(), *self.local}
        return not versions.last.keys() <= declared | (forward.vars.keys() if forward is not None else set())

    def compiled(
        self, arrays: Mapping[str, Any], former: Mapping[str, Sequence[Any]], sizes: Set[int | None]
    ) -> dict[int | None, CompiledBlock] | None:
        """Compile the block for the shapes and types of the values before a run; None if it has to run op by op.

        Args:
            arrays: name -> its value.
            former: array of tensors -> its entries, which have one shape and type.
            sizes: the numbers of rows of sequences that blocks compute, in a loop over a rank table; otherwise, None alone.
        """
        firsts = {name: next((item for item in entries if item is not None), None) for name, entries in former.items()}
        items = {name: item for name, item in firsts.items() if item is not None}
        room = room_for(max(self.room, *(len(former[name]) for name in self.indexed), 0)) if self.indexed else 0
        key = (
            room,
            *[(array.shape, array.dtype) for array in arrays.values()],
            *[(name, item.shape[bool(self.rows) :], item.dtype) for name, item in items.items()],
        )
        compiled = self._compiled.setdefault(key, {})
        for rows in sizes - compiled.keys():
            compiled[rows] = self._compile(arrays, items, rows, room)
        blocks = {rows: block for rows in sizes if (block := compiled[rows]) is not None}
        return blocks if len(blocks) == len(sizes) else None

    def _compile(self, arrays: Mapping[str, Any], items: Mapping[str, Any], rows: int | None, room: int) -> CompiledBlock | None:
        assert self.body is not None, "callers ask is_possible first"
        of_sequences = self.rows | self.shrunk
        specs = {(name, 0): _with_rows(spec_of(array), rows if name in of_sequences else None) for name, array in arrays.items()}
        for name, item in items.items():
            specs |= {(entry.name, 0): _with_rows(spec_of(item), rows) for entry in self.entries.get(name, ())}
        rooms = {name: ArrayRoom(room, spec_of(items[name]) if name in items else None) for name in self.indexed}
        outputs = [self.last(name) for name in (*self.links.values(), *self.stacks)]
        block = self._compiler.compile(self.body, specs, outputs, self._source, rooms)
        if block is None or not all(self._have_one_spec(block, entries) for entries in self.entries.values()):
            return None
        required = {*self.links.values(), *self.stacks} - (self.local - self.stacked)
        return None if any(self.last(name) in block.may_be_missing for name in required) else block

    @staticmethod
    def _have_one_spec(block: CompiledBlock, entries: Sequence[Entry]) -> bool:
        """Whether the entries of an array have one shape and type, before and after a trip."""
        specs = [block.spec(value) for entry in entries for value in {(entry.name, 0), entry.value}]
        return all(spec == specs[0] for spec in specs)

    def former_entries(self, env: Environment) -> dict[str, Sequence[Any]] | None:
        """Array of tensors -> its entries before the first run; None if some do not fit into a stack."""
        former: dict[str, Sequence[Any]] = {}
        active = self.body.active if self.body is not None else None
        for name in (*self.entries, *self.indexed):
            array = env.get(name) if name not in self._summed_arrays else None
            if active is not None and name == active.array:
                array = array.masks if isinstance(array, RankTable) else None
            former[name] = [] if array is None else array
            if not isinstance(former[name], list):
                return None
            items = [item for item in former[name] if item is not None]
            if not all(map(is_plain, items)) or len({(item.shape[bool(self.rows) :], item.dtype) for item in items}) > 1:
                return None
        return former

    def counters(self, values: Mapping[str, Any]) -> dict[str, tuple[int, int]] | None:
        """Integer that positions depend on -> its value in the first run, and the step to each next run; None if unknown.

        Args:
            values: chain, or outer name -> its value before the first run.
        """
        assert self.body is not None, "callers ask is_possible first"
        counters = {}
        for name in self.integers & values.keys():
            if name not in self.links:
                counters[name] = int(values[name].item()), 0
                continue
            after = self.body.affine.get(self.last(self.links[name]))
            step = after.step(name) if after is not None else None
            if step is None:
                return None
            counters[name] = int(values[name].item()), step
        return counters

    def active_rows(self, env: Environment, counters: Mapping[str, tuple[int, int]]) -> ActiveRows | None:
        """The rows of the runs of a forward loop over a rank table; None for other loops."""
        active = self.body.active if self.body is not None else None
        if active is None:
            return None
        table: RankTable = env.get(active.array)
        steps = np.arange(len(table.counts))
        places = active.position.at({name: first + step * steps for name, (first, step) in counters.items()})
        return ActiveRows(len(table.order), table.counts[places[(places >= 0) & (places < len(steps))]])

    def needs_all(self, name: str) -> bool:
        """Whether the values of all runs are read, not only the last."""
        return name in self.local or name in self.stacked

    def has_entries(self, before: str, after: str) -> bool:
        """Whether a chain keeps an entry for each run."""
        return before in self.local or before in self.carried or self.needs_all(after)


def repeat_with_room(loop: Loop, run: Callable[[], _R], take_back: Callable[[], None]) -> _R | None:
    """Run a loop again, as long as its indexed arrays need more room; returns None if it has to run op by op.

    Args:
        take_back: takes back the draws of a run.
    """
    while True:
        try:
            return run()
        except TripStoppedError as error:
            take_back()
            if error.needed is None:
                return None
            loop.room = error.needed


def run_at_once(loop: Loop, env: Environment, count: int, is_reversed: bool, past: Frames | None) -> bool:
    """Run the block of a loop `count` times. Returns False, before anything has run, if it has to run op by op.

    Raises:
        TripStoppedError: a trip has stopped, and nothing has changed except draws.
    """
    memory = _Memory.of(loop, env, count, is_reversed, past)
    if memory is None or memory.count_possible(0, count) < count:
        return False
    for start in range(0, count, AT_ONCE):
        memory.trips(start, AT_ONCE).run_all()
    memory.finish(env, count)
    return True


def run_while_true(loop: Loop, env: Environment) -> int:
    """Run the block until the condition is false; returns the number of trips.

    Stops before a trip that has to run op by op. The condition is true then, and the caller runs this trip.

    Raises:
        TripStoppedError: a trip has stopped, and nothing has changed except draws.
    """
    condition = loop.condition
    memory = _Memory.of(loop, env, loop.capacity, False, None) if condition in loop.region.writes else None
    if memory is None:
        return 0
    count, is_true = 0, True
    while is_true:
        if count == memory.capacity:
            memory.grow(count)
        possible = memory.count_possible(count)
        if not possible:
            break
        count += memory.trips(count, possible).run_while(memory.values(condition, count, possible))
        is_true = bool(memory.value(condition, count).item())
    if count:
        memory.finish(env, count)
        loop.capacity = max(count, _FEWEST_RUNS)
    return count


class _Memory:
    """The arrays of one execution of a loop.

    Args:
        firsts: name of a chain -> its value before the first run.
        fixed: outer name -> its value, the same for all runs.
        by_number: name -> an array with an entry for each run: a sequence, or values for the gradient.
        arrays: the arrays of tensors.
        indexed: the indexed arrays.
        capacity: how many runs there is room for.
        is_reversed: the first trip has the last number.
    """

    def __init__(
        self,
        loop: Loop,
        blocks: Mapping[int | None, CompiledBlock],
        firsts: Mapping[str, Any],
        fixed: Mapping[str, Any],
        by_number: Mapping[str, Any],
        arrays: LoopArrays,
        indexed: Mapping[str, IndexedArray],
        active: ActiveRows | None,
        capacity: int,
        is_reversed: bool,
    ) -> None:
        self._loop, self._blocks, self._fixed, self._by_number, self._arrays = loop, blocks, fixed, by_number, arrays
        self._indexed = indexed
        self._active, self.capacity, self._is_reversed = active, capacity, is_reversed
        self.chains = {
            before: Chain(firsts[before], capacity, after == loop.condition or loop.has_entries(before, after), is_reversed)
            for before, after in loop.links.items()
        }
        self._stacks = {
            name: _OutputStack(self._spec(name), capacity, name == loop.condition or loop.needs_all(name)) for name in loop.stacks
        }
        self._sums = {name: _zeros(self._spec(name)) for name in loop.summed}

    @classmethod
    def of(cls, loop: Loop, env: Environment, capacity: int, is_reversed: bool, past: Frames | None) -> _Memory | None:
        """The memory for an environment; None if the block has to run op by op there."""
        firsts: dict[str, Any] = {name: env.get(name) for name in loop.writes if name in loop.links}
        for state in loop.region.states:
            first = env.get(state.first)
            firsts[state.before] = np.zeros_like(first) if state.from_zero and is_plain(first) else first
        by_number = {inner: env.get(outer) for inner, outer in loop.sequences.items()}
        if past is not None:
            names = {name for name in loop.reads if name in past.stacks} - {*firsts, *by_number}
            by_number |= {name: past.stacks[name] for name in names}
        fixed = {name: env.get(name) for name in loop.reads if name not in firsts and name not in by_number}
        if not all(map(is_plain, chain(firsts.values(), by_number.values(), fixed.values()))):
            return None
        before = {**firsts, **fixed, **{name: stack[0] for name, stack in by_number.items()}}
        former = loop.former_entries(env)
        if former is None:
            return None
        counters = loop.counters({**firsts, **fixed})
        if counters is None:
            return None
        active = loop.active_rows(env, counters) if past is None else past.active
        if active is not None:
            if not len(active.counts) or any(len(fixed[name]) != active.capacity for name in loop.shrunk & fixed.keys()):
                return None
            if any(len(item) > active.capacity for items in former.values() for item in items if item is not None):
                return None  # a memory of more rows than there are sequences
            capacity = len(active.counts)
        sizes: Set[int | None] = {None} if active is None else {*active.padded.tolist()}
        blocks = loop.compiled({name: before[name] for name in loop.reads}, former, sizes)
        if blocks is None:
            return None
        block = next(iter(blocks.values()))
        if any(block.spec(loop.last(after)) != spec_of(firsts[name]) for name, after in loop.links.items()):
            return None  # the entries of a chain have one shape
        integers = {name: stack.reshape(-1) for name, stack in by_number.items() if name in loop.integers}
        in_entries = loop.body.positions if loop.body is not None else {}
        arrays = LoopArrays(loop.entries, former, block.spec, counters, integers, in_entries, active, past is None)
        if not all(map(IndexedArray.fits, block.rooms.values())):
            return None
        indexed = {name: IndexedArray(room) for name, room in block.rooms.items()}
        for name, array in indexed.items():
            array.load(former[name])
        return cls(loop, blocks, firsts, fixed, by_number, arrays, indexed, active, capacity, is_reversed)

    def _spec(self, name: str) -> Spec:
        """The spec of the memory for a result of the block."""
        spec = next(iter(self._blocks.values())).spec(self._loop.last(name))
        return self._active.with_all(spec) if self._active is not None and name in self._loop.rows else spec

    def count_possible(self, start: int, most: int = AT_ONCE) -> int:
        """Count the trips from number `start` on, up to `most`, whose positions in arrays of tensors are valid."""
        if self._active is not None and start >= len(self._active.counts):
            return 0
        return self._arrays.count_possible(*self._next(start, most))

    def _next(self, start: int, count: int) -> tuple[Any, Any]:
        """The numbers of `count` trips from `start` on, within the capacity, and the numbers of their runs."""
        trips = np.arange(start, min(start + count, self.capacity))
        return trips, self.capacity - 1 - trips if self._is_reversed else trips

    def trips(self, start: int, most: int) -> PreparedTrips:
        """At most so many trips from number `start` on, within the capacity."""
        loop, (trips, numbers) = self._loop, self._next(start, most)
        addresses: dict[Value, Any] = {(name, 0): array.ctypes.data for name, array in self._fixed.items()}
        addresses |= {(name, 0): array.address for name, array in self._indexed.items()}
        addresses |= self._arrays.addresses(trips, numbers)
        for name, stack in self._by_number.items():
            addresses[name, 0] = stack.ctypes.data + numbers * stack.strides[0]
        for before, after in loop.links.items():
            link = self.chains[before]
            addresses[before, 0], addresses[loop.last(after)] = link.addresses(trips), link.addresses(trips + 1)
        for name, output in self._stacks.items():
            addresses[loop.last(name)] = output.addresses(numbers)
        for name, total in self._sums.items():
            addresses |= dict.fromkeys([(total_of(name), 0), (total_of(name), 1)], total.ctypes.data)
        if self._active is None:
            return self._blocks[None].trips(len(trips), addresses)
        return _TripsOfParts(self._blocks, self._active.padded[numbers], addresses)

    def grow(self, count: int) -> None:
        """Double the capacity after `count` runs."""
        self.capacity *= 2
        self.chains = {name: link.grown(count) for name, link in self.chains.items()}
        self._stacks = {name: stack.grown(count) for name, stack in self._stacks.items()}

    def values(self, name: str, start: int, count: int) -> Any:
        """The memory of a number after each of `count` runs from number `start` on."""
        array = self.chains[name].after(start + count) if name in self.chains else self._stacks[name].array
        return array[start : start + count].reshape(count)

    def value(self, name: str, count: int) -> Any:
        """The value of an outer name after so many runs."""
        if name in self.chains:
            return self.chains[name].value(count)
        return self._stacks[name].value(count)

    def finish(self, env: Environment, count: int) -> None:
        """Set the op's outputs."""
        loop, region = self._loop, self._loop.region
        finals = {after: self.chains[before].value(count) for before, after in loop.links.items()}
        after = {name: self.chains[before].after(count) for before, name in loop.links.items() if loop.has_entries(before, name)}
        after |= {name: stack.array[:count] for name, stack in self._stacks.items() if loop.needs_all(name)}
        lists = self._arrays.values(count) | {name: array.values() for name, array in self._indexed.items()}
        for name in region.writes:
            if name in lists:
                env.set(name, lists[name])
            elif name in self.chains or name in self._stacks:
                env.set(name, self.value(name, count).copy())
        for part in region.stacked:
            if part.name != EMPTY:
                env.set(part.name, after[part.inner].copy() if part.inner in loop.local else after[part.inner])
        for part in region.summed:
            if part.name != EMPTY:
                total = total_of(part.inner)
                env.set(part.name, lists[total] if total in lists else self._sums[part.inner])
        for part in region.final:
            if part.name != EMPTY:
                env.set(part.name, finals[part.inner].copy())
        if region.scopes is not None:
            stacks = {name: value for name, value in after.items() if name in loop.local}
            for name in loop.local:
                if name in self._by_number:
                    stacks[name] = self._by_number[name].copy()  # the gradient may be computed when it has been overwritten
                elif name in self.chains:
                    stacks[name] = self.chains[name].before(count)
            stacks |= {name: self.chains[name].before(count) for name in loop.carried if name in self.chains}
            rows = self._rows_after(count)
            frames = Frames(count, stacks, loop.branches, loop.rows, rows, loop.unread_arrays)
            env.set(region.scopes, frames if loop.is_captured else [])

    def _rows_after(self, count: int) -> ActiveRows | None:
        """The rows of the first `count` runs; None if the loop is not over a rank table."""
        loop, active = self._loop, self._active
        if active is None or loop.body is None:
            return None
        of_names = {name: self._arrays.rows_read(entry, count) for name, entry in loop.body.unshrunk.items()}
        return ActiveRows(active.capacity, active.counts[:count], of_names)


def _unread_arrays(block: Block, names: Collection[str]) -> set[str]:
    """The arrays of tensors among some names that gradients of a block pass on, but do not look into."""
    variables = {name: block.find_var(name) for name in names}
    arrays = {name for name, var in variables.items() if var is not None and var.type is VarType.LOD_TENSOR_ARRAY}
    for gradient in block.program.blocks if arrays else ():
        for op in walk(gradient.ops) if gradient.forward is block else ():
            unread = {*shape_slots(op), *_slots_of_outputs(op)}
            arrays.difference_update(*(names for slot, names in op.inputs.items() if slot not in unread))
    return arrays


def _slots_of_outputs(op: Operator) -> Collection[str]:
    """The slots where a loop's or branch's gradient op lists the forward op's outputs; running it does not read them."""
    definition = op.definition
    return get(definition.gradient_of).outputs if definition is not None and definition.gradient_of else ()


def _branches_within(names: Set[str], captures: Mapping[str, Captured]) -> dict[str, Set[str]]:
    """Variable of step scopes -> the names that its gradient reads, for branches among some names and the branches in these."""
    branches: dict[str, Set[str]] = {}
    for scopes in names & captures.keys():
        branches[scopes] = captures[scopes].local
        branches |= _branches_within(captures[scopes].local, captures)
    return branches


def _names_saved(scopes: str, captures: Mapping[str, Captured]) -> list[str]:
    """The variables that hold the saved values of a branch, and of the branches in it, for their gradients."""
    names = [name_in_branch(scopes, IS_TAKEN)]
    for name in sorted(captures[scopes].local):
        names += _names_saved(name, captures) if name in captures else [name_in_branch(scopes, name)]
    return names


def _with_rows(spec: Spec, rows: int | None) -> Spec:
    return spec if rows is None else spec.with_shape((rows, *spec.shape[1:]))


def _zeros(spec: Spec) -> Any:
    return np.zeros(spec.shape, spec.dtype.array_dtype)
