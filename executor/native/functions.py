"""Single ops as native functions of arrays, without a program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fluid.ir.versions import Value
from fluid.opdef.registry import OpDef
from fluid.values.spec import Spec

from ..runtime import spare
from .instructions import CLEARED
from .op_instructions import Op, OpInstruction
from .plans import with_native_code
from .regions import NativeRegion
from .tables import Tables
from .target import Target

_LINE = 64
"""Values start at multiples of this many bytes."""

Slots = Sequence[tuple[str, Spec | None]]
"""(slot, spec) of each array, in order; the spec is None for gaps in list slots, and for outputs that are not needed."""


def native_function(
    definition: OpDef,
    attrs: Mapping[str, Any],
    inputs: Slots,
    passed: Sequence[bool],
    outputs: Slots,
    target: Target,
    into: Mapping[str, str] | None = None,
) -> tuple[Callable[..., Any], frozenset[int]] | None:
    """Compile an op to a native function; None if the op stays on numpy.

    The function takes the arrays of the inputs that are passed, C-contiguous, and returns one array or a tuple: new arrays, or
    the overwritten ones. It is thread-safe. The second result holds the positions of the arrays that the function reads.

    Args:
        passed: for each input, whether its array is passed; otherwise only its shape is used.
        target: this processor, or an older one with compatible code.
        into: output slot -> the input slot whose array it overwrites.
    """
    specs: dict[Value, Spec] = {}
    places: dict[Value, int] = {}

    def by_slot(values: Slots, start: int) -> dict[str, list[Value | None]]:
        slots: dict[str, list[Value | None]] = {}
        for number, (slot, spec) in enumerate(values, start):
            value = (f"value{number}", 0)
            slots.setdefault(slot, []).append(None if spec is None else value)
            if spec is not None:
                specs[value], places[value] = spec, number
        return slots

    reads, writes = by_slot(inputs, 0), by_slot(outputs, len(inputs))
    storage: dict[str, Spec] = {}
    targets: dict[int, int] = {}
    for slot, source in (into or {}).items():
        (former, *more_inputs), (new, *more_outputs) = reads[source], writes[slot]
        if more_inputs or more_outputs:
            return None
        if former is not None and new is not None:
            value = former[0], 1
            storage[former[0]] = specs[value] = specs.pop(new)
            targets[places.pop(new)] = places[value] = places[former]
            writes[slot] = [value]
    instruction = OpInstruction(Op(definition.type, attrs), definition, reads, writes)
    regions = with_native_code([instruction], specs, instruction.written, storage, target, fewest=1)
    if not regions or not all(isinstance(region, NativeRegion) for region in regions):
        return None
    position = {number: at for at, number in enumerate(number for number, is_passed in enumerate(passed) if is_passed)}
    read = {places[value] for region in regions for value in region.read if value in places}
    read = {number for number in read if number < len(inputs)}
    if not read <= position.keys():
        return None
    function = NativeFunction(regions, specs, places, position, targets, len(inputs), [spec for _, spec in outputs], target)
    return function, frozenset(position[number] for number in read)


class NativeFunction:
    """Computes an op with a table; each call sets the table's addresses to the arrays of the call."""

    def __init__(
        self,
        regions: Sequence[NativeRegion],
        specs: Mapping[Value, Spec],
        places: Mapping[Value, int],
        position: Mapping[int, int],
        targets: Mapping[int, int],
        inputs: int,
        outputs: Sequence[Spec | None],
        target: Target,
    ) -> None:
        self._place_intermediates({value: spec.nbytes for value, spec in specs.items() if value not in places})
        self._outputs: list[tuple[tuple[int, ...], Any] | None] = []
        self._results: list[int] = []
        """Positions of the results among the arrays of a call."""
        for number, output in enumerate(outputs, inputs):
            self._outputs.append(None if output is None or number in targets else (output.shape, output.dtype.array_dtype))
            if output is not None:
                self._results.append(position[targets[number]] if number in targets else len(position) + number - inputs)
        self._operands: list[tuple[Value, int]] = []
        """Values of the op, with the positions of their arrays in a call: first the passed arrays, then new ones."""
        used = {value for region in regions for value in (*region.read, *region.written)}
        for value, number in places.items():
            if value in used:
                self._operands.append((value, position[number] if number < inputs else len(position) + number - inputs))
        self._tables, self._lock = Tables(target), threading.Lock()
        self._run = self._tables.add(regions)
        self._tables.compile(lambda value: 0, lambda value: specs[value].nbytes)

    def _place_intermediates(self, sizes: Mapping[Value, int]) -> None:
        """Place intermediate values of these sizes in the scratch memory, each at the start of a cache line."""
        self._scratch: list[tuple[Value, int]] = []
        """Intermediate values, with their offsets in the scratch memory."""
        self._cleared: list[tuple[int, int]] = []
        """Start and end of images with a halo in the scratch memory; they are zeroed before each call."""
        self._scratch_bytes = 0
        for value, size in sizes.items():
            start = self._scratch_bytes
            self._scratch.append((value, start))
            if value[0].startswith(CLEARED):
                self._cleared.append((start, start + size))
            self._scratch_bytes = -(-(start + size) // _LINE) * _LINE

    def __call__(self, *arrays: Any) -> Any:
        operands = [*arrays, *[None if layout is None else np.empty(*layout) for layout in self._outputs]]
        memory = spare.take(self._scratch_bytes + _LINE)
        start = memory.ctypes.data
        start += -start % _LINE
        scratch = memory[start - memory.ctypes.data :]
        for begin, end in self._cleared:
            scratch[begin:end].fill(0)
        set_address = self._tables.set_address
        with self._lock:
            for value, place in self._operands:
                set_address(value, operands[place].__array_interface__["data"][0])
            for value, offset in self._scratch:
                set_address(value, start + offset)
            self._run()
        spare.give_back(memory)
        return operands[self._results[0]] if len(self._results) == 1 else tuple([operands[place] for place in self._results])
