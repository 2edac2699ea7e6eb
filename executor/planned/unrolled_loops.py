"""Loops unrolled into the table of their plan: a run of such a loop costs no Python time.

A loop fits if its number of trips is known, and native code computes its whole block. If the gradient of a loop does not fit, the
loop stays, too: it has to store values for the gradient as Python objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from fluid.ir.regions import region_of
from fluid.ir.versions import Value
from fluid.values.spec import Spec

from ..native.copying import copy_call
from ..native.instructions import KernelCall, NativeInstruction, Operand, Writer, within_branches
from ..native.target import Target
from ..stepwise.interpreter import Captured
from ..stepwise.loop_body import LOOPS
from .native_loops import Copied, NativeLoop, NativeLoops

__all__ = ["UnrolledLoop", "with_unrolled_loops"]

_MOST_CALLS = 1 << 13
"""The most kernel calls of all trips: binding one takes some microseconds."""
_MOST_TRIPS = 1 << 11
"""The most trips of a ``while`` that are counted while planning: counting a trip takes some ten microseconds."""


class UnrolledLoop(NativeInstruction):
    """A loop as the kernel calls of all its trips.

    Args:
        loop: the loop; native code computes its whole block, and its number of trips is known.
        target: the processor.
    """

    def __init__(self, loop: NativeLoop, target: Target) -> None:
        self._loop, self._target = loop, target
        self.ops, self.read, self.written = loop.ops, loop.read, loop.written
        self.layouts, self.shares, self.workspace_bytes = loop.layouts, loop.shares, loop.workspace_bytes
        body = [item for item in loop.body if isinstance(item, NativeInstruction)]
        self.writers: dict[str, Writer] = {name: writer for item in body for name, writer in item.writers.items()}
        self._other_buffer = dict(_buffer_pairs(loop.between))
        self.calls = list(self._all_calls(loop.trips or 0))

    def describe(self) -> str:
        return self._loop.describe()

    def _all_calls(self, trips: int) -> Iterator[KernelCall]:
        invariant = _invariant_code(self._loop)
        yield from self._copies(self._loop.before, 0)
        for trip in range(trips):
            for item in self._loop.body:
                if trip == 0 or id(item) not in invariant:
                    assert isinstance(item, NativeInstruction), "native code computes the whole block"
                    yield from [self._in_trip(call, trip) for call in item.calls]
        yield from self._copies(self._loop.after, trips)

    def _in_trip(self, call: KernelCall, trip: int) -> KernelCall:
        kernel, operands, is_serial = self._loop.in_trip(call, trip)
        return KernelCall(kernel, [self._buffer_in_trip(operand, trip) for operand in operands], is_serial)

    def _buffer_in_trip(self, operand: Operand, trip: int) -> Operand:
        """The operand in a trip. Odd trips swap the two buffers of a passed value, so that nothing is copied between trips."""
        value, offset = operand
        return (self._other_buffer.get(value, value), offset) if value is not None and trip % 2 else operand

    def _copies(self, copies: Sequence[Copied], trips: int) -> Iterator[KernelCall]:
        """The calls of copies that run after a number of trips."""
        for target, source, size in copies:
            read = None if source is None else self._buffer_in_trip((source.value, source.offset), trips)
            call, writer = copy_call((target.value, target.offset), read, size, self._target)
            self.writers[call.kernel] = writer
            yield call


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
    loops, families = NativeLoops(all_specs, captures, target, _MOST_TRIPS), _families(instructions)
    unrolled, unfit = dict[int, UnrolledLoop](), set[int]()
    for number, family in families.items():
        loop = loops.expand(instructions[number]) if family not in unfit else None
        if isinstance(loop, NativeLoop) and _fits(loop):
            unrolled[number] = UnrolledLoop(loop, target)
        else:
            unfit.add(family)
    accepted = {number: loop for number, loop in unrolled.items() if families[number] not in unfit}
    for loop in accepted.values():
        specs |= {value: all_specs[value] for value in (*loop.read, *loop.written)}
    return [accepted.get(number, instruction) for number, instruction in enumerate(instructions)]


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
    """Whether the number of trips is known, and native code computes the whole block by not too many calls."""
    if not loop.trips or not all(isinstance(item, NativeInstruction) for item in loop.body):
        return False
    return loop.trips * sum(len(item.calls) for item in loop.body if isinstance(item, NativeInstruction)) <= _MOST_CALLS
