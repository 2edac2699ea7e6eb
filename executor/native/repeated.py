"""The block of a loop as native code: the records of all trips form one table, so a trip costs no Python time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from fluid.ir.dataflow import Facts
from fluid.ir.versions import Value
from fluid.values.memory import ALIGNMENT, aligned_bytes
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..kernels.table import check_of, load_kernels
from ..runtime.calls import Call
from ..stepwise.indexed_arrays import ArrayRoom, TripStoppedError
from ..stepwise.inferred_specs import inferred_specs
from ..stepwise.loop_body import BRANCHES, CHOICES, LoopBody, Slots, Step
from ..stepwise.region_specs import AbstractValue, SpecAnalysis
from ..stepwise.repeated import RandomSource
from .array_entries import FAULT
from .array_values import ArrayValues
from .branches import Branches
from .id_ranges import tests_of
from .instructions import (
    CLEARED,
    GO_ON,
    RECORD_WORDS,
    Check,
    KernelCall,
    NativeInstruction,
    failure_of,
    inspected_values,
    within_branches,
)
from .kernel import written_condition
from .lowering import NotLowered
from .native_checks import FAILED, MOST_CHECKS, checks_of, with_native_checks
from .op_instructions import Op, OpInstruction, assignment
from .plans import with_native_code
from .pool import pool
from .tables import loaded, records_of
from .target import Target


def no_source(op: Any, attrs: Mapping[str, Any]) -> Any:
    """The source of random numbers of blocks that draw none."""
    raise AssertionError(f"{op.type} draws no numbers here")


class LoopWriter(Protocol):
    """Writes native code for the loops in a block."""

    def code(self, instruction: Any) -> NativeInstruction | None:
        """The code of a loop, from its instruction; None if it runs step by step."""


LoopsOfBlock: TypeAlias = "Callable[[dict[Value, Spec]], LoopWriter]"
"""Returns the writer of a block's loops from the specs of its values; specs are added."""


@dataclass(frozen=True)
class BlockCode:
    """What computes the block of a loop in one trip.

    Attributes:
        instructions: native code, checks, and ops on numpy.
        specs: of all values.
        external: values whose memory differs from trip to trip.
        may_be_missing: values that only a branch makes.
        rooms: indexed array -> the size of its memory.
    """

    instructions: Sequence[NativeInstruction | Check | OpInstruction]
    specs: Mapping[Value, Spec]
    external: Collection[Value]
    may_be_missing: Collection[Value]
    rooms: Mapping[str, ArrayRoom] = field(default_factory=dict)

    def spec(self, value: Value) -> Spec:
        return self.specs[value]

    @property
    def checks_in_branches(self) -> list[Check]:
        """The checks that run under a condition."""
        items = [self.instructions[number] for number in sorted(within_branches(self.instructions))]
        return [item for item in items if isinstance(item, Check)]


def compiled_block(
    body: LoopBody,
    specs: Mapping[Value, Spec],
    outputs: Collection[Value],
    target: Target,
    source: RandomSource,
    rooms: Mapping[str, ArrayRoom],
    loops: LoopsOfBlock | None,
) -> RepeatedBlock | None:
    """See `NativeBlocks.compile`."""
    code = block_code(body, specs, outputs, target, rooms, loops)
    return RepeatedBlock(code, target, source, body.condition) if code is not None else None


def block_code(
    body: LoopBody,
    specs: Mapping[Value, Spec],
    outputs: Collection[Value],
    target: Target,
    rooms: Mapping[str, ArrayRoom],
    loops: LoopsOfBlock | None,
) -> BlockCode | None:
    """Lower the steps of a block; None if it has to run op by op. See `NativeBlocks.compile`."""
    if loops is None and any(step.owns_loop for step in body.steps):
        return None
    external = {*specs, *outputs, *(value for pair in body.updated.items() for value in pair)}
    on_numpy: set[int] = set()
    while True:
        all_specs = dict(specs)
        arrays = ArrayValues(rooms, all_specs, target)
        branches = Branches(all_specs, (), arrays=arrays, external=external)
        try:
            instructions = _Steps(body, branches, external, on_numpy).instructions
            if not all(value in all_specs for value in outputs):
                return None
            for before, last in body.updated.items():
                all_specs.setdefault(before, all_specs[last])
            storage = {name: all_specs[name, version] for name, version in body.updated.values()}
            live = [value for value in (*outputs, *body.updated.values()) if all_specs[value].size]  # others need no memory
            items = with_native_code(instructions, all_specs, live, storage, target, fewest=1)
        except NotLowered:
            return None
        left = {item.number for item in items if item.is_op and not item.dynamic}
        if -1 in left or not any(item.is_native for item in items):
            return None
        if left <= on_numpy:
            break
        on_numpy |= left
    if not {*live} <= {value for item in items for value in item.written}:
        return None
    if loops is not None and not _replace_loops(items, loops(all_specs)):
        return None
    memories = {(name, 0) for name in rooms}
    code = BlockCode(items, all_specs, external | memories, frozenset(branches.only_if), arrays.rooms)
    return code if _can_check(code) else None


def _replace_loops(items: list[Any], loops: LoopWriter) -> bool:
    """Replace the instructions of loops by native code; returns False if a loop runs step by step."""
    for number, item in enumerate(items):
        if item.is_op and item.dynamic:
            items[number] = loops.code(item)
    return None not in items


def _can_check(code: BlockCode) -> bool:
    """Whether all checks within branches can be native."""
    checks, conditional = [item for item in code.instructions if isinstance(item, Check)], code.checks_in_branches
    return not conditional or (len(checks) <= MOST_CHECKS and all(tests_of(check) is not None for check in conditional))


class _Steps:
    """The steps of a loop's body as instructions. Raises `NotLowered` if a step cannot be one.

    Checks and ops on numpy work on copies of external values, because a copy has the same address in all trips.

    Args:
        branches: gets the specs of all values.
        external: values whose memory differs from trip to trip.
        on_numpy: the numbers of steps that numpy computes, wholly or in part.
    """

    def __init__(self, body: LoopBody, branches: Branches, external: Container[Value], on_numpy: Container[int]) -> None:
        load_kernels()
        self._body, self._branches, self._specs = body, branches, branches.specs
        self._external, self._on_numpy = external, on_numpy
        self._copies: dict[Value, Value] = {}
        """External value -> its copy."""
        self.instructions: list[Any] = []
        for number, step in enumerate(body.steps):
            self._add(number, step)
        if body.memories:
            self.instructions += branches.end_trip(body.indexed, body.indexed_totals)

    def _add(self, number: int, step: Step) -> None:
        """Add the instructions of a step."""
        op = step.op if step.op is not None else Op(step.definition.type, {})
        instruction = OpInstruction(
            op, step.definition, dict(step.reads), dict(step.writes), outer=dict(step.outer), number=number
        )
        if step.owns_loop:
            self._add_loop(op, instruction)
            return
        if op.type in BRANCHES or op.type in CHOICES or self._branches.uses_arrays(op):
            self.instructions += self._branches.expand(instruction)
            return
        results = self._infer(op, step)
        if number not in self._on_numpy:
            self._read_masks_as_truths(step)
            instruction.reads = self._with_copies(step.reads, self._checked(step))
            self.instructions += self._branches.expand(instruction)
            return
        instruction.reads = self._with_copies(step.reads, step.read)
        copies = {value: self._copy_of(value) for value in results if value in self._external}
        instruction.writes = {
            slot: [value and copies.get(value, value) for value in values] for slot, values in step.writes.items()
        }
        self.instructions += self._branches.expand(instruction)
        self.instructions += [assignment(copy, value) for value, copy in copies.items()]

    def _infer(self, op: Any, step: Step) -> Collection[Value]:
        """Infer the specs of the results of a step, and return the results."""
        specs = self._specs
        for value in step.read:
            like = self._body.likes.get(value)
            if value not in specs and like in specs:
                specs[value] = specs[like]
        results = inferred_specs(op, step.definition, step.reads, step.writes, specs)
        if results is None or not step.read.isdisjoint(self._branches.only_if):
            raise NotLowered("a value without a known shape, or that may not exist")
        specs |= results
        return results

    def _add_loop(self, op: Any, instruction: OpInstruction) -> None:
        """Add a loop, with the specs of its results that are sure to exist."""
        specs, outer = self._specs, instruction.outer
        if not self._branches.only_if.keys().isdisjoint(outer.values()):
            raise NotLowered("a value that may not exist")
        facts = Facts(lambda name: AbstractValue(specs[outer[name]]) if outer.get(name) in specs else None)
        SpecAnalysis().visit(op, 0, facts)
        for value in instruction.written:
            fact = facts.get(value[0])
            if fact is not None and fact.is_certain and fact.tensor is not None:
                specs[value] = fact.tensor
        self.instructions.append(replace(instruction, dynamic=True))

    def _checked(self, step: Step) -> set[Value]:
        """The values that a check of the step inspects."""
        return set() if check_of(step.definition.type) is None else {*inspected_values(step, self._specs)}

    def _read_masks_as_truths(self, step: Step) -> None:
        """Let native code read the masks of dropout that the forward loop has stored: bytes of 0 or 1."""
        if step.definition.forward is not None and step.definition.forward.type == "dropout":
            for value in step.reads.get("Mask", ()):
                if value is not None and value in self._external:
                    self._specs[value] = self._specs[value].with_dtype(VarType.BOOL)

    def _copy_of(self, value: Value) -> Value:
        copy = f"{value[0]}.copy", value[1]
        self._specs[copy] = self._specs[value]
        return copy

    def _with_copies(self, slots: Slots, copied: Container[Value]) -> dict[str, list[Value | None]]:
        """The values of slots, with copies in place of external ones."""
        for value in {value for values in slots.values() for value in values if value in copied and value in self._external}:
            if value is not None and value not in self._copies:
                self._copies[value] = copy = self._copy_of(value)
                self.instructions.append(assignment(value, copy))
        return {slot: [value and self._replaced(value, copied) for value in values] for slot, values in slots.items()}

    def _replaced(self, value: Value, copied: Container[Value]) -> Value:
        return self._copies.get(value, value) if value in copied else value


class RepeatedBlock:
    """Native code of a block, to run for many trips. Not thread-safe.

    Args:
        code: what computes a trip; the caller gives the memory of external values.
        target: the processor that the native code is for.
        source: see `OpInstruction.call`.
        condition: the value that tells whether another trip follows; None if the caller knows it.
    """

    def __init__(self, code: BlockCode, target: Target, source: RandomSource, condition: Value | None = None) -> None:
        specs, external = dict(code.specs), code.external
        last_check = max(checks_of(code.instructions), default=0)
        instructions = with_native_checks(code.instructions, specs, target, last_check + 1)
        self._specs, self.may_be_missing, self.rooms = specs, code.may_be_missing, code.rooms
        calls = [call for item in instructions for call in item.calls]
        writers = {signature: writer for item in instructions for signature, writer in item.writers.items()}
        if condition is not None and all(item.is_native for item in instructions):
            calls.append(KernelCall(GO_ON, [(condition, 0)], is_serial=False))
            writers[GO_ON] = partial(written_condition, target)
        workspace_bytes = max(item.workspace_bytes for item in instructions)
        kernels, workspace, self._kept_alive = loaded(calls, writers, lambda value: specs[value].nbytes, workspace_bytes, target)
        operands = [operand for call in calls for operand in call.operands]
        on_numpy = [value for item in instructions if not item.is_native for value in (*item.read, *item.written)]
        used = dict.fromkeys([*(value for value, _ in operands if value is not None), *on_numpy])
        self._arrays = arrays = _allocated({value: specs[value] for value in used if value not in external})
        for signal in (FAILED, FAULT):
            if signal in arrays:
                arrays[signal][:] = 0
        self._raise_failure = partial(_raise_failure, instructions, arrays) if FAILED in arrays or FAULT in arrays else None
        addresses: dict[Value | None, int] = {None: workspace}
        addresses |= {value: array.ctypes.data for value, array in arrays.items()}
        self._words = np.array([addresses.get(value, 0) + offset for value, offset in operands], np.int64)
        """Of one trip, the addresses of operands; where the caller gives memory, the offsets."""
        self._places = [place for place, (value, _) in enumerate(operands) if value not in addresses]
        """The places among the words of values whose memory the caller gives."""
        self.external = [value for value, _ in operands if value is not None and value not in addresses]
        """The value at each of these places."""
        counts = np.cumsum([len(item.calls) for item in instructions])
        self._calls: list[tuple[int, Callable[[int], None]]] = []
        """The calls of ops that numpy checks or computes in a trip, each after so many records."""
        for count, item in zip(counts, instructions, strict=True):
            if isinstance(item, Check):
                self._calls.append((int(count), partial(_run_on_numpy, item, item.call(arrays.__getitem__), specs)))
            elif isinstance(item, OpInstruction):
                self._calls.append((int(count), partial(_run_on_numpy, item, item.call(arrays.__getitem__, source), specs)))
        self._rows = records_of(calls, kernels, 0)
        self._trips: NativeTrips | None = None
        """The trips prepared last, whose tables the next ones use again."""

    def spec(self, value: Value) -> Spec:
        return self._specs[value]

    def trips(self, count: int, addresses: Mapping[Value, Any]) -> NativeTrips:
        """Prepare trips; those prepared before end.

        Args:
            addresses: value -> the address of its memory, a number or an array with one of each trip.
        """
        starts = np.empty((len(self.external), count), np.int64)
        for number, value in enumerate(self.external):
            starts[number] = addresses[value]
        return self.trips_at(starts)

    def trips_at(self, starts: Any) -> NativeTrips:
        """Prepare trips as `trips` does, by the addresses [value of `external`, trip] of their memory."""
        count = starts.shape[1]
        if self._trips is None or len(self._trips.words) < count:
            words = np.repeat(self._words[None], count, axis=0)
            rows = np.repeat(self._rows[None], count, axis=0)
            rows[:, :, 1] += words.ctypes.data + np.arange(count)[:, None] * words[0].nbytes
            self._trips = NativeTrips(rows, words, self._calls, self._raise_failure)
        self._trips.count = count
        self._trips.words[:count, self._places] = self._words[self._places] + starts.T
        return self._trips


def _allocated(specs: Mapping[Value, Spec]) -> dict[Value, Any]:
    """Allocate arrays; images with a halo begin as zeros."""
    sizes = {value: -(-spec.nbytes // ALIGNMENT) * ALIGNMENT for value, spec in specs.items()}
    memory = aligned_bytes(np.zeros if any(name.startswith(CLEARED) for name, _ in sizes) else np.empty, sum(sizes.values()))
    arrays: dict[Value, Any] = {}
    start = 0
    for value, size in sizes.items():
        spec = specs[value]
        arrays[value] = memory[start : start + spec.nbytes].view(spec.dtype.array_dtype).reshape(spec.shape)
        start += size
    return arrays


class NativeTrips:
    """Prepared trips through a block. There may be fewer trips than there is room for.

    Args:
        rows: the records of each trip.
        words: the addresses of operands in each trip.
        calls: ops on numpy, called with the number of the trip, each after so many records of a trip.
        raise_failure: raises the error of a check that has failed in native code; None without such checks.

    Attributes:
        count: the number of trips.
    """

    def __init__(
        self,
        rows: Any,
        words: Any,
        calls: Sequence[tuple[int, Callable[[int], None]]],
        raise_failure: Callable[[], None] | None,
    ) -> None:
        self.count, self.words = len(rows), words
        self._rows, self._calls = rows, calls
        self._raise_failure = raise_failure
        self._callers: dict[int, Callable[[], None]] = {}
        """Number of trips -> the function that runs them."""

    def run_while(self, conditions: Any) -> int:
        """See `PreparedTrips`."""
        if self._calls:
            for number in range(self.count):
                self._step(number)
                if not conditions[number]:
                    return number + 1
            return self.count
        self.run_all()
        ends = np.flatnonzero(~conditions)
        return int(ends[0]) + 1 if len(ends) else self.count

    def run_all(self) -> None:
        if self._calls:
            for number in range(self.count):
                self._step(number)
            return
        if self.count not in self._callers:
            self._callers[self.count] = pool().caller(self._rows[: self.count].reshape(-1, RECORD_WORDS))
        self._callers[self.count]()
        if self._raise_failure is not None:
            self._raise_failure()

    @cached_property
    def _step(self) -> Callable[[int], None]:
        """Runs one trip."""
        if not self._calls:
            return pool().stepper(self._rows)
        steps: list[Callable[[int], None]] = []
        start = 0
        for end, call in self._calls:
            if end > start:
                steps.append(self._stepper(start, end))
            steps.append(call)
            start = end
        if start < self._rows.shape[1]:
            steps.append(self._stepper(start, self._rows.shape[1]))

        def step(number: int) -> None:
            for part in steps:
                part(number)

        return step

    def _stepper(self, start: int, end: int) -> Callable[[int], None]:
        """Runs some records of one trip."""
        step, raise_failure = pool().stepper(np.ascontiguousarray(self._rows[:, start:end])), self._raise_failure
        if raise_failure is None:
            return step

        def checked_step(number: int) -> None:
            step(number)
            raise_failure()

        return checked_step


def _raise_failure(instructions: Sequence[Any], arrays: Mapping[Value, Any]) -> None:
    """Raise the error of the check that has failed in native code, if one has: numpy's check reports it. So with a fault."""
    if FAULT in arrays and arrays[FAULT][0]:
        arrays[FAULT][0] = 0
        raise TripStoppedError(int(arrays[FAULT][1]))
    if FAILED in arrays and (number := int(arrays[FAILED][0])):
        arrays[FAILED][0] = 0
        check = checks_of(instructions)[number]
        _run_on_numpy(check, check.call(arrays.__getitem__), check.specs, 0)
        raise AssertionError(f"{check.label} fails in native code alone")


def _run_on_numpy(instruction: Check | OpInstruction, call: Call, specs: Mapping[Value, Spec], number: int) -> None:
    """Run the call of an instruction in any trip; its errors name the op."""
    try:
        call()
    except Exception as error:
        raise failure_of(instruction, error, specs) from error
