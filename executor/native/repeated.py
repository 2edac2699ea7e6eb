"""The block of a loop as native code: the records of all trips form one table, so a trip costs no Python time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from fluid.errors import op_failure
from fluid.ir.versions import Value
from fluid.opdef.registry import get
from fluid.values.memory import ALIGNMENT, aligned_bytes
from fluid.values.spec import Spec
from fluid.values.types import is_floating

from ..kernels.table import CHECKS, load_kernels
from ..stepwise.loop_body import BRANCHES, CHOICES, LoopBody, Slots
from .branches import Branches, inferred_specs
from .instructions import AFTER_BARRIER, CLEARED, RECORD_WORDS, Check, NativeInstruction
from .lowering import NotLowered
from .op_instructions import Op, OpInstruction
from .plans import with_native_code
from .pool import pool
from .tables import flags_of, loaded, records_of
from .target import Target

__all__ = ["RepeatedBlock", "compiled_block"]


def compiled_block(
    body: LoopBody, specs: Mapping[Value, Spec], outputs: Collection[Value], target: Target
) -> RepeatedBlock | None:
    """See `NativeBlocks.compile`."""
    all_specs = dict(specs)
    external = {*specs, *outputs, *(value for pair in body.updated.items() for value in pair)}
    branches = Branches(all_specs, ())
    try:
        instructions = _instructions(body, branches, external)
        if not all(value in all_specs for value in outputs):
            return None
        for before, last in body.updated.items():
            all_specs.setdefault(before, all_specs[last])
        storage = {name: all_specs[name, version] for name, version in body.updated.values()}
        live = [value for value in (*outputs, *body.updated.values()) if all_specs[value].size]  # nothing to store of empty ones
        regions = with_native_code(instructions, all_specs, live, storage, target, fewest=1)
    except NotLowered:
        return None
    if not _are_native(regions, live):
        return None
    return RepeatedBlock(regions, all_specs, external, target, frozenset(branches.only_if))


def _are_native(regions: Sequence[Any], live: Sequence[Value]) -> bool:
    """Whether native code computes all ops and stores all live values."""
    if not all(isinstance(region, (NativeInstruction, Check)) for region in regions):
        return False
    return {*live} <= {value for region in regions for value in region.written}


def _instructions(body: LoopBody, branches: Branches, external: Collection[Value]) -> list[Any]:
    """The steps as instructions; adds the specs of all values. Raises `NotLowered` if a step has to run op by op.

    Checks read copies of external values, because a copy has the same address in all trips.
    """
    load_kernels()
    specs, instructions = branches.specs, list[Any]()
    copies: dict[Value, Value] = {}
    for step in body.steps:
        op = step.op if step.op is not None else Op(step.definition.type, {})
        if op.type in BRANCHES or op.type in CHOICES:
            instruction = OpInstruction(op, step.definition, dict(step.reads), dict(step.writes), outer=dict(step.outer))
            instructions += branches.expanded(instruction)
            continue
        for value in step.read:
            like = body.likes.get(value)
            if value not in specs and like in specs:
                specs[value] = specs[like]
        results = inferred_specs(op, step.definition, step.reads, step.writes, specs)
        if results is None or not step.read.isdisjoint(branches.only_if):
            raise NotLowered("a value without a known shape, or that may not exist")
        for value in step.read if step.definition.type in CHECKS else ():
            if value in external and value not in copies and not is_floating(specs[value].dtype):
                copies[value] = copy = f"{value[0]}.checked", value[1]
                specs[copy] = specs[value]
                instructions.append(OpInstruction(Op("assign", {}), get("assign"), {"X": [value]}, {"Out": [copy]}))
        specs |= results
        reads = _with_copies(step.reads, copies if step.definition.type in CHECKS else {})
        instructions += branches.expanded(OpInstruction(op, step.definition, reads, dict(step.writes)))
    return instructions


def _with_copies(slots: Slots, copies: Mapping[Value, Value]) -> dict[str, list[Value | None]]:
    return {slot: [copies.get(value, value) if value else None for value in values] for slot, values in slots.items()}


class RepeatedBlock:
    """Native code of a block, to run for many trips. Not thread-safe.

    Args:
        instructions: its native code, and checks.
        specs: of all values.
        external: values whose memory the caller gives, for each trip.
        target: the processor that the native code is for.
        may_be_missing: values that only a branch makes.
    """

    def __init__(
        self,
        instructions: Sequence[NativeInstruction | Check],
        specs: Mapping[Value, Spec],
        external: Collection[Value],
        target: Target,
        may_be_missing: Collection[Value],
    ) -> None:
        self._specs, self.may_be_missing = specs, may_be_missing
        regions = [item for item in instructions if isinstance(item, NativeInstruction)]
        calls = [call for region in regions for call in region.calls]
        writers = {signature: writer for region in regions for signature, writer in region.writers.items()}
        workspace_bytes = max(region.workspace_bytes for region in regions)
        kernels, workspace, self._kept_alive = loaded(calls, writers, lambda value: specs[value].nbytes, workspace_bytes, target)
        self._arrays = arrays = _allocated(specs, external)
        addresses: dict[Value | None, int] = {None: workspace}
        addresses |= {value: array.ctypes.data for value, array in arrays.items()}
        operands = [operand for call in calls for operand in call.operands]
        self._words = np.array([addresses.get(value, 0) + offset for value, offset in operands], np.int64)
        """Of one trip, the addresses of operands; where the caller gives memory, the offsets."""
        self._places: dict[Value, list[int]] = {}
        """Value whose memory the caller gives -> its places among the words."""
        for place, (value, _) in enumerate(operands):
            if value is not None and value not in addresses:
                self._places.setdefault(value, []).append(place)
        counts = np.cumsum([len(item.calls) if isinstance(item, NativeInstruction) else 0 for item in instructions])
        self._checks = [
            (int(count), item, item.call(arrays.__getitem__))
            for count, item in zip(counts, instructions, strict=True)
            if isinstance(item, Check)
        ]
        """The checks of a trip, with their calls, each after so many records."""
        self._rows = records_of(calls, kernels, 0)
        self._flags_after_trip = list(flags_of([*calls, calls[0]]))[-1]
        self._trips: NativeTrips | None = None
        """The trips prepared last, whose tables the next ones use again."""

    def spec(self, value: Value) -> Spec:
        return self._specs[value]

    def trips(self, count: int, addresses: Mapping[Value, Any]) -> NativeTrips:
        """Prepare trips; those prepared before end.

        Args:
            addresses: value -> the address of its memory, a number or an array with one of each trip.
        """
        if self._trips is None or self._trips.count != count:
            words = np.repeat(self._words[None], count, axis=0)
            rows = np.repeat(self._rows[None], count, axis=0)
            rows[:, :, 1] += words.ctypes.data + np.arange(count)[:, None] * words[0].nbytes
            self._trips = NativeTrips(rows, words, self._flags_after_trip, self._checks)
        for value, places in self._places.items():
            of_trips = np.asarray(addresses[value], np.int64).reshape(-1, 1)
            self._trips.words[:, places] = self._words[places] + of_trips
        return self._trips


def _allocated(specs: Mapping[Value, Spec], external: Collection[Value]) -> dict[Value, Any]:
    """Allocate the arrays of the values that nobody gives; images with a halo begin as zeros."""
    sizes = {value: -(-spec.nbytes // ALIGNMENT) * ALIGNMENT for value, spec in specs.items() if value not in external}
    memory = aligned_bytes(np.zeros if any(name.startswith(CLEARED) for name, _ in sizes) else np.empty, sum(sizes.values()))
    arrays: dict[Value, Any] = {}
    start = 0
    for value, size in sizes.items():
        spec = specs[value]
        arrays[value] = memory[start : start + spec.nbytes].view(spec.dtype.array_dtype).reshape(spec.shape)
        start += size
    return arrays


class NativeTrips:
    """Prepared trips through a block.

    Args:
        rows: their records.
        words: the addresses of operands.
        flags_after_trip: the flags of a trip's first record where another trip runs before it in the same call.
        checks: checks and their calls, each after so many records of a trip.

    Attributes:
        count: the number of trips.
    """

    def __init__(self, rows: Any, words: Any, flags_after_trip: int, checks: Sequence[tuple[int, Check, Any]]) -> None:
        self.count, self.words = len(rows), words
        self._rows, self._flags_after_trip, self._checks = rows, flags_after_trip, checks

    def run_all(self) -> None:
        if self._checks:
            for number in range(self.count):
                self._step(number)
            return
        self._all_trips()

    @cached_property
    def _all_trips(self) -> Callable[[], None]:
        rows = self._rows.copy()
        rows[1:, 0, 2] = self._flags_after_trip
        return pool().caller(rows.reshape(-1, RECORD_WORDS))

    def run_one(self, number: int) -> None:
        self._step(number)

    @cached_property
    def _step(self) -> Callable[[int], None]:
        """Runs one trip."""
        if not self._checks:
            return pool().stepper(self._rows)
        steps: list[Callable[[int], None]] = []
        start = 0
        for end, check, call in self._checks:
            if end > start:
                steps.append(self._stepper(start, end))
            steps.append(partial(_run_check, check, call))
            start = end
        if start < self._rows.shape[1]:
            steps.append(self._stepper(start, self._rows.shape[1]))

        def step(number: int) -> None:
            for part in steps:
                part(number)

        return step

    def _stepper(self, start: int, end: int) -> Callable[[int], None]:
        """Runs some records of one trip."""
        rows = np.ascontiguousarray(self._rows[:, start:end])
        rows[:, 0, 2] &= ~AFTER_BARRIER
        return pool().stepper(rows)


def _run_check(check: Check, call: Callable[[], None], number: int) -> None:
    """Raise an error of a check with its op, in any trip."""
    try:
        call()
    except Exception as error:
        raise op_failure(check.op, error) from error
