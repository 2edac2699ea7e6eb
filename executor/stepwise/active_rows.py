"""Loops over a rank table, as `DynamicRNN` makes them: a trip computes one row for each sequence that is not over yet.

The longest sequences come first, so the active rows of a trip are the first rows of each value. Compiled code computes some
padding rows, too (`padded`). So one block serves many numbers of rows, and a new batch of lengths compiles nothing. Padding rows
of a forward block are copies of the first row, so they add no infinities. Padding rows of a gradient block have zero cotangents,
so they add nothing to gradients. This is right only if each op computes each row by itself (`names_of_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.ir.program import Block
from fluid.ir.regions import Region
from fluid.opdef.registry import EMPTY
from fluid.values.lod_array import lengths_of, step_counts
from fluid.values.spec import Lod, Spec

from .row_ops import SHRINKING, computes_by_rows, outputs_of_rows

__all__ = ["ActiveRows", "RankTable", "is_over_rank_table", "names_of_rows"]

_PARTS = 4
"""The number of row counts that blocks are compiled for: more of them mean fewer padding rows, and longer compiling."""
_SOURCES = frozenset({"read_from_array", SHRINKING, f"{SHRINKING}_grad"})
_SLOTS_OF_ROWS = {"take_rows": "X", "add_rows": "Like", "active_ids": "Numbers"}
"""Type of an op that moves rows -> the slot whose rows may belong to sequences. No index is the number of a padding row, or the
row adds nothing."""


class RankTable:
    """The sequences of one level, from the longest to the shortest.

    Attributes:
        lod: the LoD of the source tensor, from the level of the table on.
        outer: the levels above.
        order: the indices of the sequences, the longest first.
        lengths: the lengths of the sequences, by index.
    """

    def __init__(self, lod: Lod, level: int) -> None:
        if not 0 <= level < len(lod):
            raise ExecutionError(f"a rank table is made of level {level} of the sequences, but there are {len(lod)} levels")
        self.outer, self.lod = lod[:level], lod[level:]
        self.lengths = lengths_of(self.offsets)
        self.order = sorted(range(len(self.lengths)), key=lambda number: -self.lengths[number])

    @property
    def offsets(self) -> tuple[int, ...]:
        assert self.lod[0] is not None
        return self.lod[0]

    def copy(self) -> RankTable:
        return self

    def __repr__(self) -> str:
        return f"a rank table of {len(self.order)} sequences"

    def items(self) -> list[tuple[int, int]]:
        """(index, length) of each sequence, the longest first."""
        return [(number, self.lengths[number]) for number in self.order]

    @cached_property
    def counts(self) -> Any:
        """For each step, the number of sequences that are long enough for it."""
        return step_counts(self.lengths)

    @property
    def masks(self) -> list[Any]:
        """For each step, bools over the sequences in rank order: whether the sequence is long enough for it."""
        return list(np.arange(len(self.order)) < self.counts[:, None])

    @cached_property
    def rows(self) -> Any:
        """For each step, and each active sequence in rank order, the row of the source tensor, if the sequences hold rows."""
        steps = np.repeat(np.arange(len(self.counts)), self.counts)
        ranks = np.arange(len(steps)) - np.repeat(self.counts.cumsum() - self.counts, self.counts)
        return np.array(self.offsets, np.int64)[np.array(self.order, np.int64)[ranks]] + steps

    def active(self, step: int) -> int:
        """The number of sequences that are longer than `step`."""
        return int(self.counts[step]) if step < len(self.counts) else 0


@dataclass(frozen=True)
class ActiveRows:
    """The numbers of rows in the runs of a loop over a rank table.

    Attributes:
        capacity: the number of sequences; all memory has so many rows.
        counts: the number of active rows in each run.
        of_names: name of the forward block -> its number of rows in each run, where it may be larger than `counts`.
    """

    capacity: int
    counts: Any
    of_names: Mapping[str, Any] = field(default_factory=dict)

    def of(self, name: str) -> Any:
        """The number of rows of a name's value in each run."""
        return self.of_names.get(name, self.counts)

    @cached_property
    def padded(self) -> Any:
        """The number of rows that compiled code computes in each run: the active ones, rounded up to quarters of the capacity."""
        part = -(-self.capacity // _PARTS)
        return np.minimum(-(-self.counts // part) * part, self.capacity)

    def with_all(self, spec: Spec) -> Spec:
        """The spec of the memory for a value: with rows for all sequences."""
        return spec.with_shape((self.capacity, *spec.shape[1:]))


def is_over_rank_table(region: Region) -> bool:
    """Whether a block, or the forward block of a gradient block, shrinks its states as sequences end."""
    block = region.forward or region.body
    return any(op.type == SHRINKING for op in block.ops)


def names_of_rows(block: Block) -> set[str] | None:
    """The names in a loop over a rank table whose rows belong to sequences; None if an op may mix rows."""
    names = set[str]()
    if block.forward is not None:
        of_forward = names_of_rows(block.forward)
        if of_forward is None:
            return None
        names |= of_forward
    for op in block.ops:
        if op.sub_blocks:
            return None
        if op.type in _SOURCES:
            names.update(op.output_arg_names)
        elif op.type in _SLOTS_OF_ROWS and not names.isdisjoint(op.input_arg_names):
            slot = _SLOTS_OF_ROWS[op.type]
            if not names.isdisjoint(set(op.input_arg_names).difference(op.inputs[slot])):
                return None
            names.update(op.output_arg_names if slot == "Like" else ())
        elif not names.isdisjoint(op.input_arg_names) and op.type != "write_to_array":
            definition = op.definition
            if definition is None or not computes_by_rows(op, definition.forward or definition, names):
                return None
            names |= outputs_of_rows(op, definition, names)
    return names - {EMPTY}
