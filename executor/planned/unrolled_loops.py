"""Loops in the tables of their plan: a trip costs no Python time.

A loop fits if native code computes its whole block and checks its ids. A known number of trips is unrolled. If values decide
whether another trip follows, some trips are unrolled, and repeated while the condition is true. If the gradient of a loop does
not fit, the loop stays, too: it has to store values for the gradient as Python objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from fluid.ir.regions import region_of
from fluid.ir.versions import Value
from fluid.values.spec import Spec

from ..native.copying import copy_call
from ..native.instructions import GO_ON, Check, KernelCall, NativeInstruction, Operand, Writer, within_branches
from ..native.kernel import written_condition
from ..native.native_checks import FAILED, checks_of, with_native_checks
from ..native.target import Target
from ..stepwise.interpreter import Captured
from ..stepwise.loop_body import LOOPS
from .native_loops import Copied, NativeLoop, NativeLoops, TripPlace
from .repeated_trips import LoopCode, RepeatedTrips
from .trip_counts import MOST_TRIPS

__all__ = ["UnrolledLoop", "with_unrolled_loops"]

_MOST_CALLS = 1 << 13
"""The most kernel calls of all trips: binding one takes some microseconds."""
_CALLS_REPEATED, _MOST_REPEATED = 256, 32
"""The most calls and trips of a table that is repeated; it has at least two trips. Interrupts wait for its end."""


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
        self._invariant = _invariant_code(loop)
        self.body = [item for item in loop.body if isinstance(item, NativeInstruction)]
        self.writers: dict[str, Writer] = {name: writer for item in self.body for name, writer in item.writers.items()}
        self.second_of = dict(_buffer_pairs(loop.between))

    @property
    def checks(self) -> dict[int, Check]:
        return {number: _placed(check, self._loop) for item in self.body for number, check in item.checks.items()}

    @property
    def invariant(self) -> list[NativeInstruction]:
        """The code that computes the same in every trip."""
        return [item for item in self.body if id(item) in self._invariant]

    @property
    def varying(self) -> list[NativeInstruction]:
        return [item for item in self.body if id(item) not in self._invariant]

    def in_trip(self, items: Iterable[NativeInstruction], trip: int) -> Iterator[KernelCall]:
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


class UnrolledLoop(LoopCode):
    """A loop as the kernel calls of all its trips.

    Args:
        loop: the loop; native code computes its whole block and checks its ids, and its number of trips is known.
        target: the processor.
    """

    def __init__(self, loop: NativeLoop, target: Target) -> None:
        calls, trips = _LoopCalls(loop, target), loop.trips or 0
        all_calls = [*calls.copies(loop.before, 0), *calls.in_trip(calls.body, 0)]
        for trip in range(1, trips):
            all_calls += calls.in_trip(calls.varying, trip)
        all_calls += calls.copies(loop.after, trips)
        super().__init__(
            loop.ops,
            loop.describe(),
            all_calls,
            calls.writers,
            loop.read,
            loop.written,
            **_memory_facts(loop),
            checks=calls.checks,
        )


class _RepeatedLoop:
    """A loop whose condition decides how many trips there are: code before its trips, code to repeat, and code behind them.

    Args:
        loop: the loop; native code computes its whole block and checks its ids, and its condition has two buffers.
        target: the processor.
    """

    def __init__(self, loop: NativeLoop, target: Target) -> None:
        self._loop, self._calls = loop, _LoopCalls(loop, target)
        self._calls.writers[GO_ON] = partial(written_condition, target)
        self._invariant = [item for item in self._calls.invariant if not item.checks]

    def parts(self) -> list[NativeInstruction]:
        return [self._before(), self._trips(), self._behind()]

    def _before(self) -> LoopCode:
        """Copies of the first values, and the code that computes the same in every trip."""
        loop, calls, text = self._loop, self._calls, f"before {self._loop.describe()}"
        sources = [*_sources(loop.before), *(self._memory(value) for item in self._invariant for value in item.read)]
        kernel_calls = [*calls.copies(loop.before, 0), *calls.in_trip(self._invariant, 0)]
        return LoopCode(loop.ops, text, kernel_calls, calls.writers, sources, self._results_before, **_memory_facts(self._loop))

    @property
    def _results_before(self) -> list[Value]:
        invariant = (self._memory(value) for item in self._invariant for value in item.written)
        return list(dict.fromkeys([*(copied.target.value for copied in self._loop.before), *invariant]))

    def _trips(self) -> RepeatedTrips:
        loop, calls = self._loop, self._calls
        assert loop.condition is not None
        first = loop.condition.value
        second = calls.second_of[first]
        to_first = LoopCode(loop.ops, "copies between trips", [*calls.copies(loop.between, 0)], calls.writers, [], [])
        return RepeatedTrips(
            loop.ops,
            loop.describe(),
            list(self._calls_of_trips(first, second)),
            calls.writers,
            list(dict.fromkeys([*loop.read, *self._results_before])),
            list(dict.fromkeys([*calls.second_of, *(value for value in loop.written if value not in self._results)])),
            **_memory_facts(self._loop),
            checks=calls.checks,
            to_first=to_first,
            first=first,
            second=second,
        )

    def _calls_of_trips(self, first: Value, second: Value) -> Iterator[KernelCall]:
        """The calls of an even number of trips, with a record behind each trip that stops if the condition is false."""
        varying = [item for item in self._calls.body if item not in self._invariant]
        calls_of_trip = max(sum(len(item.calls) for item in varying), 1)
        for trip in range(2 * max(1, min(_MOST_REPEATED, _CALLS_REPEATED // calls_of_trip) // 2)):
            if trip:
                yield KernelCall(GO_ON, [(second if trip % 2 else first, 0)], is_serial=False)
            yield from self._calls.in_trip(varying, trip)

    def _behind(self) -> LoopCode:
        loop, calls, text = self._loop, self._calls, f"behind {self._loop.describe()}"
        return LoopCode(
            loop.ops,
            text,
            [*calls.copies(loop.after, 0)],
            calls.writers,
            _sources(loop.after),
            self._results,
            **_memory_facts(self._loop),
        )

    @property
    def _results(self) -> list[Value]:
        return [copied.target.value for copied in self._loop.after]

    def _memory(self, value: Value) -> Value:
        """The value of the plan whose memory a value of the block has."""
        return self._loop.places[value].value


def _memory_facts(loop: NativeLoop) -> dict[str, Any]:
    return {"layouts": loop.layouts, "shares": loop.shares, "workspace_bytes": loop.workspace_bytes}


def _sources(copies: Iterable[Copied]) -> list[Value]:
    return [copied.source.value for copied in copies if copied.source is not None]


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


def _with_native_checks(loop: NativeLoop, specs: dict[Value, Spec], target: Target, first_number: int) -> NativeLoop:
    """Let native code check the ids of a loop's block."""
    body = with_native_checks(loop.body, specs, target, first_number)
    return replace(loop, body=body, places={**loop.places, FAILED: TripPlace(FAILED)})


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
    count = -1
    while count != len(candidates):
        count = len(candidates)
        for number, (read, results) in enumerate(zip(inputs, outputs, strict=True)):
            if not (varying | results).isdisjoint(read) or not varying.isdisjoint(results):
                candidates.discard(number)
            if number not in candidates:
                varying |= results
    return {id(loop.body[number]) for number in candidates}


def with_unrolled_loops(
    instructions: Sequence[Any], specs: dict[Value, Spec], captures: Mapping[str, Captured], target: Target
) -> list[Any]:
    """Unroll the loops of a plan that fit, with all their gradients. Adds the specs of their buffers.

    Args:
        captures: variable of step scopes -> the names that gradient blocks read.
    """
    all_specs = dict(specs)
    loops, families = NativeLoops(all_specs, captures, target, MOST_TRIPS), _families(instructions)
    fitting, unfit = dict[int, list[NativeInstruction]](), set[int]()
    first_number = 1
    for number, family in families.items():
        loop = loops.expand(instructions[number]) if family not in unfit else None
        if isinstance(loop, NativeLoop):
            loop = _with_native_checks(loop, all_specs, target, first_number)
        if isinstance(loop, NativeLoop) and _fits(loop):
            fitting[number] = (
                [UnrolledLoop(loop, target)]
                if loop.trips
                else _RepeatedLoop(_with_two_conditions(loop, all_specs), target).parts()
            )
            first_number += len(checks_of(fitting[number]))
        else:
            unfit.add(family)
    accepted = {number: code for number, code in fitting.items() if families[number] not in unfit}
    for item in chain(*accepted.values()):
        specs |= {value: all_specs[value] for value in (*item.read, *item.written)}
    return list(chain.from_iterable(accepted.get(number, [instruction]) for number, instruction in enumerate(instructions)))


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


def _fits(loop: NativeLoop) -> bool:
    """Whether native code computes the whole block, by not too many calls if their number is known."""
    if not all(isinstance(item, NativeInstruction) for item in loop.body):
        return False
    return (loop.trips or 1) * sum(len(item.calls) for item in loop.body if isinstance(item, NativeInstruction)) <= _MOST_CALLS
