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
from fluid.ir.program import Block, Operator
from fluid.ir.regions import Region
from fluid.opdef.parameters import grad_slot
from fluid.opdef.registry import EMPTY, OpDef
from fluid.ops.shapes import aligned
from fluid.values.lod_array import lengths_of, step_counts
from fluid.values.spec import Lod, Spec

__all__ = ["SHRINKING", "ActiveRows", "RankTable", "computes_by_rows", "is_over_rank_table", "names_of_rows", "outputs_of_rows"]

_PARTS = 4
"""The number of row counts that blocks are compiled for: more of them mean fewer padding rows, and longer compiling."""
SHRINKING = "shrink_rnn_memory"
"""The op that keeps the rows of the sequences that are not over."""
_SOURCES = frozenset({"read_from_array", SHRINKING, f"{SHRINKING}_grad"})


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
        elif not names.isdisjoint(op.input_arg_names) and op.type != "write_to_array":
            definition = op.definition
            if definition is None or not computes_by_rows(op, definition.forward or definition, names):
                return None
            names |= outputs_of_rows(op, definition, names)
    return names - {EMPTY}


_ROWS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("scale", "cast", "assign", "fill_zeros_like", "sum", "concat", "split", "softmax", "mul", SHRINKING), ("X",)
    ),
    **dict.fromkeys(("lookup_table", "lookup_table_v2"), ("Ids",)),
    **dict.fromkeys((f"elementwise_{kind}" for kind in ("add", "sub", "mul", "div", "max", "min", "pow")), ("X", "Y")),
    "lstm_unit": ("X", "C_prev"),
    "gru_unit": ("Input", "HiddenPrev"),
}
"""Type of an op that computes each row by itself -> the slots with rows. Values of the other slots are the same for all rows."""
_ALONG_AXIS = frozenset({"concat", "split", "softmax"})
_BROADCAST = "Y"
"""A slot that holds rows, or one value for all rows."""


def _slots_of(definition: OpDef) -> tuple[str, ...]:
    """The slots with rows of an op that computes each row by itself, such as an activation; none for other ops."""
    return ("X",) if definition.module == "fluid.ops.activation" else _ROWS.get(definition.type, ())


def computes_by_rows(op: Operator, forward: OpDef, names: set[str]) -> bool:
    """Whether an op, or the forward op of a gradient op, computes each row by itself."""
    slots = _slots_of(forward)
    if not slots or (forward.type in _ALONG_AXIS and _is_along_rows(op)):
        return False
    for slot in forward.inputs:
        have_rows = [name in names for name in op.inputs.get(slot, []) if name != EMPTY]
        if any(have_rows) if slot not in slots else not (all(have_rows) or (slot == _BROADCAST and _is_same_for_all_rows(op))):
            return False
    return True


def _is_same_for_all_rows(op: Operator) -> bool:
    """Whether an elementwise op, or its gradient, broadcasts its second operand along the rows of the first one."""
    x, y = (op.block.find_var(op.inputs[slot][0]) for slot in ("X", _BROADCAST))
    if x is None or y is None or not (x.has_shape and y.has_shape) or y.ndim > x.ndim:
        return False
    return not x.ndim or aligned(y.shape, x.ndim, int(op.attr("axis")))[0] == 1


def _is_along_rows(op: Operator) -> bool:
    """Whether the axis of an op may be the axis of rows."""
    axis, var = int(op.attr("axis")), op.block.find_var(op.output_arg_names[0])
    ndim = len(var.shape) if var is not None and var.has_shape else -axis
    return bool(op.inputs.get("AxisTensor")) or axis % max(ndim, 1) == 0


def outputs_of_rows(op: Operator, definition: OpDef, names: set[str]) -> set[str]:
    """The outputs of an op that have rows. In a gradient op these are the gradients of inputs with rows."""
    if definition.forward is None:
        return {*op.output_arg_names}
    results = set[str]()
    for slot in _slots_of(definition.forward):
        gradients, sources = op.outputs.get(grad_slot(slot), []), op.inputs.get(slot, [])
        shared = {gradient for gradient, source in zip(gradients, sources, strict=False) if source not in names}
        results |= {*gradients} - shared
    return results
