"""Loops in the tables of their plan: a trip costs no Python time.

A loop fits if native code computes its whole block and checks its ids. A known number of trips is unrolled. If values decide
whether another trip follows, or there are very many, two trips are repeated: marks in the table lead back. A loop in the block of
a loop is a part of each outer trip. If the gradient of a loop does not fit, the loop stays, too: it has to store values for the
gradient as Python objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from fluid.ir.program import Operator
from fluid.ir.regions import region_of
from fluid.ir.versions import Value
from fluid.values.spec import Spec

from ..native.array_entries import FAULT
from ..native.copying import copy_call
from ..native.instructions import (
    BEGIN_LOOP,
    END_BRANCH,
    IF_TRUE,
    LEAVE_LOOP,
    REPEAT_LOOP,
    BaseInstruction,
    Check,
    KernelCall,
    NativeInstruction,
    Operand,
    Writer,
    within_branches,
)
from ..native.kernel import written_condition
from ..native.native_checks import FAILED, SPEC_OF_FAILED, checks_of, with_native_checks
from ..native.op_instructions import OpInstruction
from ..native.target import Target
from ..stepwise.interpreter import Captured
from ..stepwise.loop_body import LOOPS
from .native_loops import ArrayMemory, Copied, NativeLoop, NativeLoops, SavedRuns, TripPlace
from .trip_counts import MOST_TRIPS

__all__ = ["LoopCode", "TableLoops", "with_unrolled_loops"]

_MOST_CALLS = 1 << 15
"""The most kernel calls of a loop in its table: binding one takes some microseconds."""


class _LoopCalls:
    """The kernel calls of a loop.

    Args:
        loop: the loop; native code computes its whole block and checks its ids.
        target: the processor.

    Attributes:
        writers: signature of a kernel -> its writer, for the calls that were made.
        second_of: first buffer of a value that passes from trip to trip -> its second, and the other way round.
    """

    def __init__(self, loop: NativeLoop, target: Target) -> None:
        self._loop, self._target = loop, target
        self.body = loop.body
        invariant = _invariant_code(loop)
        self._invariant = [item for item in self.body if id(item) in invariant]
        self._varying = [item for item in self.body if id(item) not in invariant]
        self.writers: dict[str, Writer] = {name: writer for item in self.body for name, writer in item.writers.items()}
        self.second_of = dict(_buffer_pairs(loop.between))

    @property
    def checks(self) -> dict[int, Check]:
        return {number: _placed(check, self._loop) for item in self.body for number, check in item.checks.items()}

    def unrolled(self, trips: int) -> Iterator[KernelCall]:
        """The calls of a known number of trips, one trip behind the other."""
        loop = self._loop
        yield from self.copies(loop.before, 0)
        for trip in range(trips):
            yield from self.in_trip(self._varying if trip else self.body, trip)
        yield from self.copies(loop.after, trips)

    def repeated(self, condition: TripPlace | None) -> Iterator[KernelCall]:
        """The calls of two trips between marks, which repeat them while a condition is true."""
        assert condition is not None, "trips are counted, or a condition decides"
        loop, first, second = self._loop, condition.value, self.second_of[condition.value]
        yield from self.copies(loop.before, 0)
        if self._invariant:
            yield self._mark(IF_TRUE, first)
            yield from self.in_trip(self._invariant, 0)
            yield self._mark(END_BRANCH, first)
        yield self._mark(BEGIN_LOOP, first)
        yield from self.in_trip(self._varying, 0)
        yield self._mark(LEAVE_LOOP, second)
        yield from self.in_trip(self._varying, 1)
        yield self._mark(REPEAT_LOOP, first)
        # If the loop was left after the first of the two trips, its results lie in the second buffers.
        yield self._mark(IF_TRUE, first)
        yield from self.copies(loop.between, 0)
        yield self._mark(END_BRANCH, first)
        yield from self.copies(loop.after, 0)

    def _mark(self, kind: str, condition: Value) -> KernelCall:
        """A record that reads a condition; see `BRANCH_FLAGS`."""
        self.writers[kind] = partial(written_condition, self._target)
        return KernelCall(kind, [(condition, 0)], is_serial=False)

    def in_trip(self, items: Iterable[BaseInstruction], trip: int) -> Iterator[KernelCall]:
        """The calls of parts of the block in a trip."""
        for item in items:
            for call in item.calls:
                kernel, operands, is_serial = self._loop.in_trip(call, trip)
                yield KernelCall(kernel, [self._buffer_in_trip(operand, trip) for operand in operands], is_serial)

    def _buffer_in_trip(self, operand: Operand, trip: int) -> Operand:
        """The operand in a trip. Odd trips swap the two buffers of a passed value, so that nothing is copied between trips."""
        value, offset = operand
        return (self.second_of.get(value, value), offset) if value is not None and trip % 2 else operand

    def copies(self, copies: Sequence[Copied], trips: int) -> Iterator[KernelCall]:
        """The calls of copies that run after a number of trips."""
        for target, source, size in copies:
            read = None if source is None else self._buffer_in_trip((source.value, source.offset), trips)
            call, writer = copy_call((target.value, target.offset), read, size, self._target)
            self.writers[call.kernel] = writer
            yield call


class TripDraws(NamedTuple):
    """The draws of an op of a loop's block.

    Attributes:
        instruction: draws once.
        memory: a value of the plan, with an entry for each trip.
        trips: their number.
    """

    instruction: OpInstruction
    memory: Value
    trips: int

    def in_plan(self, loop: Any) -> Any:
        """The draws as an instruction of the plan, made of the one of their loop."""
        item = self.instruction
        (slot,) = item.writes
        writes = {slot: [self.memory]}
        facts = {"definition": item.definition, "stand_ins": item.stand_ins, "draws": self.trips, "dynamic": False}
        return replace(loop, op=item.op, reads={}, writes=writes, outer={}, **facts)


@dataclass(eq=False)
class LoopCode(NativeInstruction):
    """A loop as kernel calls.

    Attributes:
        text: describes it.
        arrays, runs, past: see `NativeLoop`.
        fault: the memory of `FAULT`; None without arrays.
        draws: the draws of all trips, which come before the loop.
    """

    ops: list[Operator]
    text: str
    calls: list[KernelCall]
    writers: dict[str, Writer]
    read: list[Value]
    written: list[Value]
    layouts: Mapping[Value, str]
    shares: dict[Value, Value]
    workspace_bytes: int
    checks: dict[int, Check] = field(default_factory=dict)
    arrays: Sequence[ArrayMemory] = ()
    runs: SavedRuns | None = None
    past: SavedRuns | None = None
    fault: Value | None = None
    draws: Sequence[TripDraws] = ()

    @classmethod
    def of(cls, loop: NativeLoop, draws: Sequence[TripDraws], specs: dict[Value, Spec], target: Target) -> LoopCode:
        """Make the code of a loop whose whole block is native, with checks of ids. Adds the specs of its buffers."""
        if loop.trips is None:
            loop = _with_two_conditions(loop, specs)
        calls = _LoopCalls(loop, target)
        all_calls = [*(calls.unrolled(loop.trips) if loop.trips is not None else calls.repeated(loop.condition))]
        fault = loop.places[FAULT].value if FAULT in loop.places else None
        signals = [] if fault is None else [fault]
        return cls(
            loop.ops,
            text=loop.describe(),
            calls=all_calls,
            writers=calls.writers,
            read=loop.read,
            written=[*loop.written, *(array.memory for array in loop.arrays), *signals],
            layouts=loop.layouts,
            shares=loop.shares,
            workspace_bytes=loop.workspace_bytes,
            checks=calls.checks,
            arrays=loop.arrays,
            runs=loop.runs,
            past=loop.past,
            fault=fault,
            draws=draws,
        )

    def describe(self) -> str:
        return self.text


def _with_two_conditions(loop: NativeLoop, specs: dict[Value, Spec]) -> NativeLoop:
    """Give the condition two buffers, if no trip reads it, as values have that pass from trip to trip."""
    assert loop.condition is not None
    first = loop.condition.value
    if first in dict(_buffer_pairs(loop.between)):
        return loop
    second = f"{first[0]}.second", first[1]
    specs[second] = specs[first]
    places = {value: TripPlace(second) if place.value == first else place for value, place in loop.places.items()}
    return replace(loop, places=places, between=[*loop.between, Copied(TripPlace(first), TripPlace(second), specs[first].nbytes)])


def _placed(check: Check, loop: NativeLoop) -> Check:
    """A check of a loop's block as a check of the plan. The values that it inspects have one address in all trips."""
    instruction, specs = check.instruction, dict[Value, Spec]()

    def placed(slots: Mapping[str, list[Value | None]]) -> dict[str, list[Value | None]]:
        return {slot: [value and place_of(value) for value in values] for slot, values in slots.items()}

    def place_of(value: Value) -> Value:
        place = loop.places[value].value if value in loop.places else value
        specs[place] = check.specs[value]
        return place

    return Check(replace(instruction, reads=placed(instruction.reads), writes=placed(instruction.writes)), specs)


def _buffer_pairs(between: Sequence[Copied]) -> Iterator[tuple[Value, Value]]:
    """The two buffers of each value that passes from trip to trip, in both orders."""
    for target, source, _ in between:
        assert source is not None
        yield from [(target.value, source.value), (source.value, target.value)]


def _invariant_code(loop: NativeLoop) -> set[int]:
    """The `id` of each instruction that computes the same in every trip, and so runs in the first trip alone."""
    memory = {value: place.value for value, place in loop.places.items()}
    inputs = [{memory[value] for value in item.read} for item in loop.body]
    outputs = [{memory[value] for value in item.written} for item in loop.body]
    writers = Counter(chain.from_iterable(outputs))
    varying = {place.value for place in loop.places.values() if place.stride}
    varying |= {value for value, count in writers.items() if count > 1} | {value for value, _ in _buffer_pairs(loop.between)}
    candidates = {*range(len(loop.body))} - within_branches(loop.body)
    candidates -= {number for number, item in enumerate(loop.body) if item.is_stateful}
    count = -1
    while count != len(candidates):
        count = len(candidates)
        for number, (read, results) in enumerate(zip(inputs, outputs, strict=True)):
            if not (varying | results).isdisjoint(read) or not varying.isdisjoint(results):
                candidates.discard(number)
            if number not in candidates:
                varying |= results
    return {id(loop.body[number]) for number in candidates}


class TableLoops:
    """Makes loops parts of the table that runs the instructions around them.

    Args:
        specs: the specs of values; the specs of the loops' buffers are added.
        captures: variable of step scopes -> the names that gradient blocks read.
        target: the processor.
        checks: number of a check -> the check, for checks that native code makes; checks of the loops are added.
        entries: array of tensors -> the spec of its entries; None for loops in the blocks of loops, which do not fit if they have
            arrays, or draw random numbers.
    """

    def __init__(
        self,
        specs: dict[Value, Spec],
        captures: Mapping[str, Captured],
        target: Target,
        checks: dict[int, Check] | None = None,
        entries: Mapping[Value, Spec] | None = None,
    ) -> None:
        self._specs, self._target, self._checks = specs, target, {} if checks is None else checks
        self._may_draw = entries is not None
        self._loops = NativeLoops(specs, captures, target, self.within, entries)

    def within(self, specs: dict[Value, Spec]) -> TableLoops:
        """The maker of the loops in the block of a loop, whose trips no gradient reads."""
        return TableLoops(specs, {}, self._target, self._checks)

    def code(self, instruction: Any) -> LoopCode | None:
        """The code of a loop; None if it does not fit."""
        for most_trips in (MOST_TRIPS, 0):
            loop = self._loops.loop(instruction, most_trips)
            if loop is not None and _calls_in_table(loop) <= _MOST_CALLS:
                loop, draws = self._with_draws_before(self._with_native_checks(loop))
                if all(item.is_native for item in loop.body):
                    return LoopCode.of(loop, draws, self._specs, self._target)
        return None

    def _with_draws_before(self, loop: NativeLoop) -> tuple[NativeLoop, list[TripDraws]]:
        """Take the draws of random numbers out of a loop's block, if the loop makes a known number of them; adds their specs."""
        conditional, draws, places = within_branches(loop.body), list[TripDraws](), dict(loop.places)
        if not self._may_draw or loop.trips is None or loop.arrays:
            return loop, draws
        body: list[Any] = []
        for number, item in enumerate(loop.body):
            drawing = _drawing(item, loop.block_specs) if number not in conditional else None
            if drawing is None:
                body.append(item)
                continue
            (value,), spec = drawing.written, loop.block_specs[drawing.written[0]]
            (name, version) = loop.places[value].value
            memory = f"{name}.draws", version
            self._specs[memory] = spec.with_shape((loop.trips, *spec.shape))
            places[value] = TripPlace(memory, 0, spec.nbytes)
            draws.append(TripDraws(drawing, memory, loop.trips))
        return replace(loop, body=body, places=places), draws

    def _with_native_checks(self, loop: NativeLoop) -> NativeLoop:
        """Let native code check the ids of a loop's block."""
        body = with_native_checks(loop.body, self._specs, self._target, max(self._checks, default=0) + 1)
        before = loop.before
        if checks := checks_of(body):
            self._checks |= checks
            self._specs[FAILED] = SPEC_OF_FAILED
            before = [*before, Copied(TripPlace(FAILED), None, 1)]  # there may be no trip
        return replace(loop, body=body, places={**loop.places, FAILED: TripPlace(FAILED)}, before=before)


def _drawing(item: Any, specs: Mapping[Value, Spec]) -> OpInstruction | None:
    """An instruction that fills one value with random numbers and reads nothing but shapes; None for another instruction."""
    if not isinstance(item, OpInstruction) or not item.definition.is_random or not isinstance(item.op, Operator):
        return None
    declared, filled = item.definition.inputs, [slot for slot, values in item.writes.items() if any(values)]
    if len(filled) != 1 or not all(declared[slot].shape_only for slot, values in item.reads.items() if any(values)):
        return None
    return item.drawing(filled[0], specs) if item.reads else item


def _calls_in_table(loop: NativeLoop) -> int:
    """The number of kernel calls of a loop in its table."""
    trips = 2 if loop.trips is None else loop.trips
    return trips * sum(len(item.calls) for item in loop.body)


def with_unrolled_loops(
    instructions: Sequence[Any],
    specs: dict[Value, Spec],
    captures: Mapping[str, Captured],
    target: Target,
    entries: Mapping[Value, Spec],
) -> list[Any]:
    """Unroll the loops of a plan that fit, with all their gradients. Adds the specs of their buffers.

    A loop with arrays of tensors stays an instruction that runs step by step, with code that runs in its place.

    Args:
        captures: variable of step scopes -> the names that gradient blocks read.
        entries: array of tensors -> the spec of its entries.
    """
    all_specs = dict(specs)
    loops, families = TableLoops(all_specs, captures, target, entries=entries), _families(instructions)
    fitting, unfit = dict[int, LoopCode](), set[int]()
    for number, family in families.items():
        code = loops.code(instructions[number]) if family not in unfit else None
        if code is None:
            unfit.add(family)
        else:
            fitting[number] = code
    accepted: dict[int, Any] = {number: code for number, code in fitting.items() if families[number] not in unfit}
    draws = {number: [drawn.in_plan(instructions[number]) for drawn in code.draws] for number, code in accepted.items()}
    for item in chain(accepted.values(), *draws.values()):
        specs |= {value: all_specs[value] for value in (*item.read, *item.written)}
    with_arrays = {families[number] for number, code in accepted.items() if code.arrays}
    for number, code in accepted.items():
        if families[number] in with_arrays:  # if a loop has to run step by step in a run, its gradients do
            accepted[number] = _with_code(instructions[number], code)
    items = ([*draws.get(number, ()), accepted.get(number, one)] for number, one in enumerate(instructions))
    return [*chain.from_iterable(items)]


def _with_code(instruction: Any, code: LoopCode) -> Any:
    """Add to the instruction of a loop the code that runs in its place."""
    past = code.past.values.values() if code.past is not None else ()
    read = [*code.read, *(place.value for place, spec in past if spec.size)]
    outer = {f"{name}.{version}": (name, version) for name, version in read}
    return replace(instruction, loop_code=code, outer={**instruction.outer, **outer})


def _families(instructions: Sequence[Any]) -> dict[int, int]:
    """Number of a loop -> the number of its family: a forward loop gives its number to all its gradients, of any order."""
    families, family_of_scopes = dict[int, int](), dict[str, int]()
    for number, instruction in enumerate(instructions):
        region = region_of(instruction.op) if instruction.is_op and instruction.op.type in LOOPS else None
        if region is not None:
            families[number] = family_of_scopes.get(region.frames or "", number)
            if region.scopes is not None:
                family_of_scopes[region.scopes] = families[number]
    return families
