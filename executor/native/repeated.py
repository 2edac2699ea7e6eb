"""The block of a loop as native code: the records of all trips form one table, so a trip costs no Python time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fluid.errors import FluidError
from fluid.ir.program import Block
from fluid.ir.versions import BlockVersions, Value
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import get
from fluid.values.memory import ALIGNMENT, aligned_bytes
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..stepwise.interpreter import declared_scalars
from ..stepwise.repeated import sums_of
from . import compiler
from .functions import Op, OpInstruction
from .instructions import CLEARED, RECORD_WORDS, NativeInstruction
from .plans import with_native_code
from .pool import pool
from .tables import flags_of, loaded

__all__ = ["RepeatedBlock", "compiled_block"]


def compiled_block(
    block: Block, specs: Mapping[str, Spec], outputs: Collection[str], summed: Collection[str]
) -> RepeatedBlock | None:
    """See `NativeBlocks.compile`."""
    versions = BlockVersions(block)
    of_values = {(name, 0): spec for name, spec in specs.items()}
    instructions = _instructions(versions, of_values)
    if instructions is None or not all(name in versions.last for name in (*outputs, *summed)):
        return None
    storage: dict[str, Spec] = {}
    live = [versions.current(name) for name in outputs]
    for name in summed:
        (before, total), part = sums_of(name), versions.current(name)
        storage[total[0]] = of_values[before] = of_values[total] = of_values[part]
        reads: dict[str, list[Value | None]] = {"X": [before, part]}
        writes: dict[str, list[Value | None]] = {"Out": [total]}
        instructions.append(OpInstruction(Op("sum", {}), get("sum"), reads, writes))
        live.append(total)
    regions = with_native_code(instructions, of_values, live, storage, fewest=1)
    if not _are_native(regions, live):
        return None
    external = {*live, *((name, 0) for name in specs), *(value for name in summed for value in sums_of(name))}
    return RepeatedBlock(regions, of_values, external)


def _are_native(regions: Sequence[Any], live: Sequence[Value]) -> bool:
    """Whether native code computes all ops and stores all live values."""
    if not all(isinstance(region, NativeInstruction) for region in regions):
        return False
    return {*live} <= {value for region in regions for value in region.written}


def _instructions(versions: BlockVersions, specs: dict[Value, Spec]) -> list[OpInstruction] | None:
    """The ops as instructions; adds the specs of their outputs. None if an op takes or makes more than plain tensors."""
    instructions = []
    for index, (op, definition) in enumerate(zip(versions.ops, versions.definitions, strict=True)):
        if definition is None or op.sub_blocks or versions.updates[index]:
            return None
        inputs: dict[str, Any] = {}
        for slot, values in versions.reads[index].items():
            if slot in definition.inputs and values:
                read = [None if value is None else specs.get(value) for value in values]
                if any(value is not None and spec is None for value, spec in zip(values, read, strict=True)):
                    return None
                inputs[slot] = read if definition.inputs[slot].many else read[0]
        try:
            results = infer_specs(definition, inputs, op.attrs, declared_scalars(op))
        except FluidError:
            return None
        for slot, values in versions.writes[index].items():
            of_slot = results.get(slot)
            for value, spec in zip(values, of_slot if isinstance(of_slot, list) else [of_slot], strict=False):
                if value is not None:
                    if spec is None or not spec.known or spec.lod or spec.type is not VarType.LOD_TENSOR:
                        return None
                    specs[value] = spec
        instructions.append(OpInstruction(op, definition, versions.reads[index], versions.writes[index]))
    return instructions


class RepeatedBlock:
    """Native code of a block, to run for many trips. Not thread-safe.

    Args:
        regions: its instructions.
        specs: of all values.
        external: values whose memory the caller gives, for each trip.
    """

    def __init__(self, regions: Sequence[NativeInstruction], specs: Mapping[Value, Spec], external: Collection[Value]) -> None:
        self._specs = specs
        calls = [call for region in regions for call in region.calls]
        writers = {signature: writer for region in regions for signature, writer in region.writers.items()}
        workspace_bytes = max(region.workspace_bytes for region in regions)
        kernels, workspace, self._keep = loaded(
            calls, writers, lambda value: specs[value].nbytes, workspace_bytes, compiler.host()
        )
        self._memory, own = _own_memory(specs, external)
        own[None] = workspace
        operands = [operand for call in calls for operand in call.operands]
        self._words = np.array([own.get(value, 0) + offset for value, offset in operands], np.int64)
        """Of one trip, the addresses of operands; where the caller gives memory, the offsets."""
        self._places: dict[Value, list[int]] = {}
        """Value whose memory the caller gives -> its places among the words."""
        for place, (value, _) in enumerate(operands):
            if value is not None and value not in own:
                self._places.setdefault(value, []).append(place)
        first, following = list(flags_of(calls)), list(flags_of([*calls, *calls]))[len(calls) :]
        sizes = np.array([len(call.operands) for call in calls], np.int64)
        starts = (np.cumsum(sizes) - sizes) * self._words.itemsize
        self._rows = np.zeros((len(calls), RECORD_WORDS), np.int64)
        self._rows[:, 0] = [kernels.addresses[call.kernel] for call in calls]
        self._rows[:, 1] = starts
        self._rows[:, 2] = first
        self._flags_after_trip = following[0]

    def spec(self, value: Value) -> Spec:
        return self._specs[value]

    def trips(self, count: int, addresses: Mapping[Value, Any]) -> NativeTrips:
        """Prepare trips.

        Args:
            addresses: value -> the address of its memory, a number or an array with one of each trip.
        """
        words = np.repeat(self._words[None], count, axis=0)
        for value, places in self._places.items():
            words[:, places] += np.asarray(addresses[value], np.int64).reshape(-1, 1)
        rows = np.repeat(self._rows[None], count, axis=0)
        rows[:, :, 1] += words.ctypes.data + np.arange(count)[:, None] * words[0].nbytes
        return NativeTrips(rows, words, self._flags_after_trip)


def _own_memory(specs: Mapping[Value, Spec], external: Collection[Value]) -> tuple[Any, dict[Value | None, int]]:
    """Memory for the values that nobody gives, and the address of each; images with a halo begin as zeros."""
    sizes = {value: -(-spec.nbytes // ALIGNMENT) * ALIGNMENT for value, spec in specs.items() if value not in external}
    memory = aligned_bytes(np.zeros if any(name.startswith(CLEARED) for name, _ in sizes) else np.empty, sum(sizes.values()))
    addresses: dict[Value | None, int] = {}
    start = memory.ctypes.data
    for value, size in sizes.items():
        addresses[value] = start
        start += size
    return memory, addresses


class NativeTrips:
    """Prepared trips through a block.

    Args:
        rows: their records.
        words: the addresses of operands.
        flags_after_trip: the flags of a trip's first record where another trip runs before it in the same call.
    """

    def __init__(self, rows: Any, words: Any, flags_after_trip: int) -> None:
        self._rows, self._words, self._flags_after_trip = rows, words, flags_after_trip

    def run_all(self) -> None:
        self._rows[1:, 0, 2] = self._flags_after_trip
        pool().caller(self._rows.reshape(-1, RECORD_WORDS))()

    def run_one(self, number: int) -> None:
        self._step(number)

    @cached_property
    def _step(self) -> Callable[[int], None]:
        return pool().stepper(self._rows)
