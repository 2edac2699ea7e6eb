"""Ops that cannot compute padding rows: in a program with padded rows, their kernels compute the real rows alone.

Such an op reads offsets, too, by the slot `OFFSETS`, and an attribute tells which of its values have padding rows. It gets the
real rows with their LoD, as in a run op by op. Then padding rows of its results are filled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fluid.ir.program import Operator
from fluid.opdef.registry import EMPTY, OpDef
from fluid.values.spec import Lod, Spec

from ..binding.arrays import bind_op
from ..runtime.calls import Call
from .sequence_batch import lods_of, rows_in

__all__ = ["OFFSETS", "RealRows", "RealRowsStep"]

OFFSETS = "Offsets@ROWS"
"""The slot of the offsets of sequences."""
_ATTRIBUTE = "real_rows"


@dataclass(frozen=True)
class RealRows:
    """Which values of an op have padding rows.

    Attributes:
        reads: name of an input -> the place of its offsets in the slot, and whether it has their LoD.
        writes: name of an output -> the place of its offsets, and whether padding rows are copies of the first row, not zeros.
        parents: for the offsets at each place, the place of the level above, which is earlier; -1 for the first level.
    """

    reads: Mapping[str, tuple[int, bool]]
    writes: Mapping[str, tuple[int, bool]]
    parents: Sequence[int]

    @classmethod
    def of(cls, op: Operator) -> RealRows | None:
        """Read this from an op; None for an op that computes all rows."""
        facts = op.attrs.get(_ATTRIBUTE)
        if facts is None:
            return None
        reads, writes = ({name: (place, flag) for name, place, flag in part} for part in facts[:2])
        return cls(reads, writes, facts[2])

    def write_to(self, op: Operator, offsets: Sequence[str]) -> None:
        """Write this, and the names of the offsets, into an op."""
        op.inputs[OFFSETS] = list(offsets)
        facts = [[[name, *fact] for name, fact in part.items()] for part in (self.reads, self.writes)]
        op.attrs[_ATTRIBUTE] = [*facts, self.parents]

    def lods(self, offsets: Sequence[Any]) -> list[Lod]:
        """The LoD at each place, for the offsets of its last level."""
        return lods_of(offsets, (None if parent < 0 else parent for parent in self.parents))

    def spec(self, name: str, spec: Spec, offsets: Sequence[Spec]) -> Spec:
        """The spec of an input with a LoD of the right numbers of rows and sequences: shapes depend on no more than these."""
        place, has_lod = self.reads.get(name, (0, False))
        return spec.with_lod(self._lod_of_specs(place, spec.shape[0], offsets)) if has_lod else spec

    def _lod_of_specs(self, place: int, rows: int, offsets: Sequence[Spec]) -> Lod:
        """A LoD of the right numbers of sequences, whose last one has all rows."""
        parent, count = self.parents[place], offsets[place].shape[0] - 1
        above = self._lod_of_specs(parent, count, offsets) if parent >= 0 else ()
        return (*above, (*[0] * count, rows))


class RealRowsStep:
    """Computes an op on the real rows of arrays. Its calls stay bound while batches have the same lengths."""

    def __init__(
        self, op: Operator, definition: OpDef, real: RealRows, operands: tuple[Mapping[str, Any], Mapping[str, Any]],
        context: Mapping[str, Any], offsets: Sequence[Any],
    ) -> None:  # fmt: skip
        self._op, self._definition, self._real, self._offsets = op, definition, real, offsets
        self._inputs, self._outputs = operands
        self._attrs = definition.defaults(op.attrs)
        self._empty = context["xp"].empty
        self._context = {**context, "scratch": self._empty}
        self._bound_for: list[bytes] | None = None
        """The offsets that the calls are bound for."""
        self._calls: list[Call] = []
        self._padding: list[tuple[Any, Any]] = []
        """Padding rows of results; each with the row that they copy, or None for zeros."""

    def __call__(self) -> None:
        key = [offsets.tobytes() for offsets in self._offsets]
        if key != self._bound_for:
            self._bound_for = None
            self._bind()
            self._bound_for = key
        for call in self._calls:
            call()
        for rows, first in self._padding:
            rows[...] = 0 if first is None else first

    def _bind(self) -> None:
        op, real = self._op, self._real
        lods = real.lods(self._offsets)
        inputs, input_lods = _without_padding(self._inputs, op.inputs, real.reads, lods)
        outputs, _ = _without_padding(self._outputs, op.outputs, real.writes, lods)
        self._calls = bind_op(self._definition, inputs, outputs, self._attrs, self._context, self._empty, lods=input_lods)
        self._padding = []
        for slot, arrays in self._outputs.items():
            for name, array in _named(op.outputs, slot, arrays):
                if name in real.writes and array is not None:
                    place, has_copies = real.writes[name]
                    self._padding.append((array[rows_in(lods[place]) :], array[0] if has_copies else None))


def _named(slots: Mapping[str, Sequence[str]], slot: str, arrays: Any) -> list[tuple[str, Any]]:
    """The arrays of a slot with their names."""
    return list(zip(slots[slot], arrays if isinstance(arrays, list) else [arrays], strict=True))


def _without_padding(
    arrays: Mapping[str, Any], slots: Mapping[str, Sequence[str]], facts: Mapping[str, tuple[int, bool]], lods: Sequence[Lod]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The real rows of arrays by slot, and the LoDs of slots whose rows have one."""

    def real_rows(name: str, array: Any) -> Any:
        return array[: rows_in(lods[facts[name][0]])] if name in facts and array is not None else array

    def lod_of(name: str) -> Lod:
        place, has_lod = facts.get(name, (0, False))
        return lods[place] if has_lod and name != EMPTY else ()

    results: dict[str, Any] = {}
    lods_of_slots: dict[str, Any] = {}
    for slot, value in arrays.items():
        parts = [real_rows(name, array) for name, array in _named(slots, slot, value)]
        part_lods = [lod_of(name) for name in slots[slot]]
        is_list = isinstance(value, list)
        results[slot] = parts if is_list else parts[0]
        if any(part_lods):
            lods_of_slots[slot] = part_lods if is_list else part_lods[0]
    return results, lods_of_slots
