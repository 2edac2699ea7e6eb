"""Programs whose rows form sequences, rewritten so that one plan serves batches of many lengths.

The rows of a batch are padded to a capacity (`sequence_batch`). Ops that read a LoD become ops that read indices, which are fed:
the sequence of each row, say (`padded_ops`). So a plan depends on the number of sequences and on the capacity, not on the
lengths.

Padding rows of fed values are copies of the first row. Where an op moves rows, they copy a row, too, and so add no infinities.
They belong to no sequence: a sum over a sequence leaves them out, and their gradients are zeros, which add nothing to the
gradients of weights. This is right for ops that compute each row by itself (`computes_by_rows`). The kernels of all other ops
get the real rows alone (`real_rows`), if the shapes of their results follow from the numbers of rows and sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from fluid.errors import FluidError
from fluid.ir.copying import copy_to_rewrite
from fluid.ir.program import Block, Operator, Program
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import EMPTY, OpDef, by_slot, grad_slot
from fluid.opdef.tables import OpTable
from fluid.ops.collective import COLLECTIVE
from fluid.values.lod_array import ids_of, with_lod
from fluid.values.spec import Lod, Spec
from fluid.values.types import VarType

from ..kernels.sequence import context_of, ends_of
from ..stepwise.handlers import HANDLERS
from ..stepwise.interpreter import declared_scalars
from ..stepwise.needed import ops_to_run
from ..stepwise.row_ops import computes_by_rows, outputs_of_rows
from .real_rows import RealRows
from .sequence_batch import (
    DerivedLod,
    Extent,
    Index,
    SequenceBatch,
    countdown_of,
    divisors_of,
    filled,
    lods_of,
    number_of_rows,
    row_numbers_of,
    rows_in,
    square_roots_of,
)

__all__ = ["FLOATS", "REWRITES", "UNPADDING", "NotRewritten", "PaddedProgram", "Padding", "Rewriter", "RowFacts", "gives_zeros"]

UNPADDING = "sequence_unpad"
"""The op that makes rows of sequences from padded ones, ``[sequences, steps, ...]``."""
_WITHOUT_ROWS = frozenset({UNPADDING, "write_to_array", "take_rows_grad", "im2sequence", "mine_hard_examples"})
"""Ops that are rewritten even if they read no rows."""
FLOATS = (VarType.FP32, VarType.FP64)
_GRAD = grad_slot("")
_SIZES = (1009, 2003)
"""Two numbers of rows, for which the shapes of an op's results are inferred: results with so many rows have a row for each."""


# ----------------------------------------------------------------------------------------------------------------- facts
class Padding(Enum):
    """What padding rows are. Values of the forward part have copies, their gradients zeros."""

    COPIES = "copies of the first row"
    ZEROS = "zeros"
    UNKNOWN = "any numbers"


@dataclass(frozen=True)
class RowFacts:
    """Facts about a value with a row for each fed row.

    Attributes:
        group: the number of the LoD of these rows.
        has_lod: whether the value has this LoD.
        padding: what its padding rows are.
    """

    group: int
    has_lod: bool
    padding: Padding


@dataclass
class PaddedProgram:
    """A rewritten program.

    Attributes:
        program: the program, which is fed plain arrays.
        derived: the LoDs of sequences that ops make, numbered after the LoDs of the batch.
        capacities: for each LoD, the number of rows with padding.
        indices: name of a further feed -> how it follows from the offsets.
        specs: the specs of all feeds.
        rows: facts about each fetched value; None for a value without padding rows.
    """

    program: Program
    batch: SequenceBatch
    derived: Sequence[DerivedLod]
    capacities: Sequence[int]
    indices: Mapping[str, Index]
    specs: Mapping[str, Spec]
    rows: Sequence[RowFacts | None]

    def feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The feeds of the rewritten program, for feeds of the original one."""
        batch, offsets = self.batch, self._offsets(feeds)
        padded = {
            name: filled(value.array, self.capacities[batch.groups[name]], value.array[0]) if name in batch.groups else value
            for name, value in feeds.items()
        }
        for name, index in self.indices.items():
            padded[name] = index.array(offsets, self.capacities[index.group], feeds)
        return padded

    def _offsets(self, feeds: Mapping[str, Any]) -> dict[int, Any]:
        """The offsets of each LoD, empty sequences included."""
        offsets: dict[int, Any] = {}
        for group, lod in self.batch.lods(feeds).items():
            offsets[group] = ends = np.asarray(lod[-1], np.int64)
            missing = self.batch.sizes[group][0] + 1 - len(ends)
            if missing:
                offsets[group] = np.append(ends, np.full(missing, ends[-1]))
        for derived in self.derived:
            offsets[len(offsets)] = derived.offsets(offsets, feeds)
        return offsets

    def without_padding(self, results: Sequence[Any], feeds: Mapping[str, Any]) -> list[Any]:
        """The fetched values of the original program, for fetched values of the rewritten one."""
        if not any(self.rows):
            return list(results)
        lods = lods_of(self._offsets(feeds).values(), (*self.batch.parents, *[None] * len(self.derived)))
        return [
            result if rows is None else with_lod(result[: rows_in(lods[rows.group])], lods[rows.group] if rows.has_lod else ())
            for result, rows in zip(results, self.rows, strict=True)
        ]


_KEEP_ZEROS = {
    **dict.fromkeys(("scale", "assign", "cast", "split", "fill_zeros_like", "elementwise_div"), ("X",)),
    "elementwise_mul": ("X", "Y"),
}
"""Type of an op -> slots: where a row of one of them is zeros, the row of the result is zeros."""
_ALL_ZEROS = frozenset({"sum", "concat", "elementwise_add", "elementwise_sub"})
"""Ops whose result has rows of zeros where all operands have rows of zeros."""


def gives_zeros(op: Operator, zeros: Set[str]) -> bool:
    """Whether an op that computes each row by itself gives zeros in the rows where all values in `zeros` are zeros."""
    if op.type == "scale" and op.attr("bias"):
        return False
    keeps_zeros = any(op.input(slot) and zeros >= {*op.input(slot)} for slot in _KEEP_ZEROS.get(op.type, ()))
    return keeps_zeros or (op.type in _ALL_ZEROS and zeros >= {*op.input_arg_names})


# ------------------------------------------------------------------------------------------------------------- rewriting
class NotRewritten(Exception):
    """An op cannot be rewritten."""


class Rewriter:
    """Rewrites the ops of a program for batches of some sizes."""

    def __init__(self, program: Program, fetches: Sequence[str], batch: SequenceBatch) -> None:
        self.program, self._batch, self._fetches = copy_to_rewrite(program), batch, fetches
        self.sizes, self.lengths = list(batch.sizes), dict(batch.lengths)
        """For each LoD, the number of sequences and the capacity; name of lengths -> the number of their LoD."""
        self._derived: list[DerivedLod] = []
        self._steps = dict(enumerate(batch.steps))
        """Number of a LoD -> the number of steps that its longest sequence is padded to."""
        self.block = self.program.global_block()
        self.rows = {name: RowFacts(group, True, Padding.COPIES) for name, group in batch.groups.items()}
        """Name -> facts, for values with padding rows."""
        self.indices: dict[str, Index] = {}
        self._names: dict[Index, str] = {}
        self._numbers = itertools.count()
        """The numbers of new names."""
        self.read: set[str] = set()
        """The names that ops read."""
        self._lost: set[str] = set()
        """Outputs of the original ops that the rewritten program does not compute."""
        self.private: set[str] = set()
        """Values that only rewritten ops understand."""
        self.loops: dict[str, Any] = {}
        """Facts about values of loops over steps, such as rank tables (see `padded_steps`), by name."""
        self.held: set[str] = set()
        """Values that ops to come read, so that no op may overwrite them."""
        self.ops: Sequence[Operator] = ()
        """The ops of the original program."""

    def run(self) -> PaddedProgram:
        """Rewrite all ops; `NotRewritten` if that is impossible."""
        self.ops = ops = ops_to_run(self.block, self._fetches)
        if any((op.sub_blocks and op.type not in REWRITES) or op.type in COLLECTIVE for op in ops):
            raise NotRewritten
        self.read = {name for op in ops for name in op.input_arg_names}
        self.block.ops = []
        for name in self.rows:
            self.block.vars[name].lod_level = 0
            self._open_rows(name)
        for op in ops:
            self.visit(op)
        if not (self._lost | self.private).isdisjoint(self._fetches):
            raise NotRewritten
        specs = {**self._batch.specs, **{name: self._spec(index) for name, index in self.indices.items()}}
        capacities, rows = [capacity for _, capacity in self.sizes], [self.rows.get(name) for name in self._fetches]
        return PaddedProgram(self.program, self._batch, self._derived, capacities, self.indices, specs, rows)

    def _spec(self, index: Index) -> Spec:
        return index.spec(*self.sizes[index.group])

    def visit(self, op: Operator) -> None:
        """Write an op, or others in its place, into the block."""
        if not self.held.isdisjoint(op.output_arg_names):
            raise NotRewritten
        inputs, start = dict(op.inputs), len(self.block.ops)
        for attempt in (self._rewrite, self._keep, self._compute_by_rows, self._compute_real_rows):
            with suppress(NotRewritten):
                self._note(op, attempt(op))
                for new in self.block.ops[start:]:
                    new.origin = new.origin or op.origin
                return
            op.inputs = dict(inputs)
            del self.block.ops[start:]
        raise NotRewritten

    def _reads_private(self, op: Operator) -> bool:
        """Whether an op reads a value that is absent, or that only rewritten ops understand."""
        return not (self._lost | self.private).isdisjoint(op.input_arg_names)

    def _rewrite(self, op: Operator) -> Mapping[str, RowFacts]:
        """Write other ops in place of an op; its outputs with padding rows."""
        if op.type not in REWRITES or (op.type not in _WITHOUT_ROWS and not self._has_facts(op)):
            raise NotRewritten
        start = len(self.block.ops)
        outputs = REWRITES[op.type](self, op)
        lost = {*op.output_arg_names} - {name for new in self.block.ops[start:] for name in new.output_arg_names} - {EMPTY}
        if any(self.block.var(name).persistable for name in lost):
            raise NotRewritten
        self._lost |= lost
        return outputs

    def _has_facts(self, op: Operator) -> bool:
        """Whether an op reads a value with padding rows, or one of a loop over steps."""
        return any(name in self.rows or name in self.loops for name in op.input_arg_names)

    def _keep(self, op: Operator) -> Mapping[str, RowFacts]:
        """Keep an op that reads no rows."""
        if not self.rows.keys().isdisjoint(op.input_arg_names) or self._reads_private(op):
            raise NotRewritten
        self.block.ops.append(op)
        return {}

    def _compute_by_rows(self, op: Operator) -> Mapping[str, RowFacts]:
        """Keep an op that computes each row by itself; its outputs with padding rows."""
        facts = [self.rows[name] for name in op.input_arg_names if name in self.rows]
        if len({rows.group for rows in facts}) != 1 or self._reads_private(op):
            raise NotRewritten
        definition, names = op.definition, {name for name, rows in self.rows.items() if rows.group == facts[0].group}
        if definition is None or not computes_by_rows(op, definition.forward or definition, names):
            raise NotRewritten
        if definition.forward is not None:
            self._clear_cotangents(op)
            padding = Padding.ZEROS
        else:
            padding = self._padding(op)
        self.block.ops.append(op)
        rows = RowFacts(facts[0].group, any(rows.has_lod for rows in facts), padding)
        return dict.fromkeys(outputs_of_rows(op, definition, names) - {EMPTY}, rows)

    def _padding(self, op: Operator) -> Padding:
        """The padding rows of the results of an op that computes each row by itself."""
        present = {self.rows[name].padding for name in op.input_arg_names if name in self.rows}
        if present == {Padding.COPIES}:
            return Padding.COPIES
        zeros = {name for name, rows in self.rows.items() if rows.padding is Padding.ZEROS}
        return Padding.ZEROS if gives_zeros(op, zeros) else Padding.UNKNOWN

    def _clear_cotangents(self, op: Operator) -> None:
        """Let an op read cotangents that are zeros in padding rows: they add nothing to the gradients of weights then."""
        for slot, names in list(op.inputs.items()):
            if slot.endswith(_GRAD):
                if any(name not in self.rows for name in names if name != EMPTY):
                    raise NotRewritten
                op.inputs[slot] = [name if name == EMPTY else self.with_zeros(op, name) for name in names]

    def _note(self, op: Operator, outputs: Mapping[str, RowFacts]) -> None:
        """Note which outputs of an op have padding rows."""
        for name in outputs:
            var = self.block.find_var(name)
            if var is None or var.persistable:
                raise NotRewritten
            self._open_rows(name)
        for name in op.output_arg_names:
            self.rows.pop(name, None)
        self.rows.update(outputs)

    def _open_rows(self, name: str) -> None:
        """Let a value have any number of rows, whatever is declared: it has padding rows."""
        var = self.block.vars[name]
        if var.has_shape and var.shape:
            var.shape = (-1, *var.shape[1:])

    # -- ops on real rows
    def _compute_real_rows(self, op: Operator) -> Mapping[str, RowFacts]:
        """Let the kernel of an op compute the real rows alone; its outputs with padding rows."""
        definition = op.definition
        if definition is None or op.type in HANDLERS or op.attrs.get("is_sparse") or not self._are_tensors(op):
            raise NotRewritten
        if self.rows.keys().isdisjoint(op.input_arg_names) or self._reads_private(op) or self.block.idx:
            raise NotRewritten
        outputs = self._outputs_with_rows(op, definition)
        reads = {name: self.rows[name] for name in op.input_arg_names if name in self.rows}
        groups = sorted({level for rows in (*reads.values(), *outputs.values()) for level in self.levels_of(rows.group)})
        places = {group: place for place, group in enumerate(groups)}
        real = RealRows(
            {name: (places[rows.group], rows.has_lod) for name, rows in reads.items()},
            {name: (places[rows.group], rows.padding is Padding.COPIES) for name, rows in outputs.items()},
            [-1 if (parent := self.parent_of(group)) is None else places[parent] for group in groups],
        )
        real.write_to(op, [self.index(Index(group, np.asarray, Extent.OFFSETS)) for group in groups])
        self.block.ops.append(op)
        return outputs

    def _are_tensors(self, op: Operator) -> bool:
        """Whether all values of an op are ordinary tensors."""
        variables = [self.block.find_var(name) for name in (*op.input_arg_names, *op.output_arg_names) if name != EMPTY]
        return all(var is not None and var.type is VarType.LOD_TENSOR for var in variables)

    def _outputs_with_rows(self, op: Operator, definition: OpDef) -> dict[str, RowFacts]:
        """The outputs of an op that have padding rows; `NotRewritten` if another output depends on the lengths of sequences."""
        outputs: dict[str, RowFacts] = {}
        to_infer: dict[str, list[str]] = {}
        for slot, names in op.outputs.items():
            sources = op.inputs.get(slot.removesuffix(_GRAD)) if definition.forward is not None else None
            if sources:  # a gradient has the spec of its input
                pairs = zip(names, sources, strict=True)
                with_rows = {name: self.rows[source] for name, source in pairs if source in self.rows and name != EMPTY}
                outputs |= {name: replace(rows, padding=Padding.ZEROS) for name, rows in with_rows.items()}
            else:
                to_infer[slot] = names
        variants = [self._inferred(op, definition, variant) for variant in range(len(_SIZES))] if to_infer else []
        padding = Padding.COPIES if definition.forward is None else Padding.ZEROS
        for slot, names in to_infer.items():
            for number, name in enumerate(names):
                specs = [_spec_at(inferred.get(slot), number) for inferred in variants]
                rows = None if name == EMPTY else self._rows_of_output(specs, padding)
                if rows is not None:
                    outputs[name] = rows
        return outputs

    def _inferred(self, op: Operator, definition: OpDef, variant: int) -> dict[str, Any]:
        """The specs of an op's outputs for a batch of made-up lengths."""
        try:
            inputs = by_slot(
                definition.inputs, op.inputs, lambda name: None if name == EMPTY else self._spec_in_batch(name, variant)
            )
            return infer_specs(definition, inputs, op.attrs, declared_scalars(op))
        except FluidError as error:
            raise NotRewritten from error

    def _spec_in_batch(self, name: str, variant: int) -> Spec:
        """The spec of a value for a batch of made-up lengths."""
        rows, var = self.rows.get(name), self.block.var(name)
        if rows is None:
            return self._batch.specs.get(name) or Spec(var.shape, var.dtype)
        return Spec((self._made_up_rows(rows.group, variant), *var.shape[1:]), var.dtype, lod=self._lod(rows, variant))

    def _made_up_rows(self, group: int, variant: int) -> int:
        """The number of rows of a LoD in a made-up batch; the longest sequences of two such batches differ."""
        rows: int = (_SIZES[variant] + group * 8) * (2 + variant) ** (len(self.levels_of(group)) - 1)
        return rows

    def _lod(self, rows: RowFacts, variant: int) -> Lod:
        """The LoD of rows in a batch of made-up lengths."""
        if not rows.has_lod:
            return ()
        lod: list[tuple[int, ...]] = []
        for group in self.levels_of(rows.group):
            count, total = lod[-1][-1] if lod else self.sizes[group][0], self._made_up_rows(group, variant)
            lod.append(tuple(total * number // count for number in range(count + 1)))
        return tuple(lod)

    def _rows_of_output(self, specs: Sequence[Spec | None], padding: Padding) -> RowFacts | None:
        """Facts about an output with these specs in batches of made-up lengths; None for an output without padding rows."""
        first, second = specs
        if first is None or second is None or first.shape[1:] != second.shape[1:]:
            raise NotRewritten
        for group in range(len(self.sizes)):
            for rows in (RowFacts(group, True, padding), RowFacts(group, False, padding)):
                expected = [(self._made_up_rows(group, variant), self._lod(rows, variant)) for variant in range(len(_SIZES))]
                if [(spec.shape[0], spec.lod) for spec in (first, second) if spec.shape] == expected:
                    return rows
        if first != second or first.lod or (first.shape and first.shape[0] == -1):
            raise NotRewritten
        return None

    # -- what rewriting functions use
    @contextmanager
    def writing_to(self, block: Block) -> Iterator[None]:
        """A context: ops are added to another block."""
        outside, self.block = self.block, block
        try:
            yield
        finally:
            self.block = outside

    def readable(self, name: str) -> str:
        """The name of a value that all ops understand; `NotRewritten` if only rewritten ops do."""
        if name in self._lost or name in self.private:
            raise NotRewritten
        return name

    def hold(self, name: str) -> str:
        """Let no op overwrite a value; returns its name."""
        self.held.add(name)
        return name

    def fresh_name(self, base: str) -> str:
        """A name that no block declares."""
        numbered = (f"{base}.{number}" for number in self._numbers)
        return next(name for name in numbered if not any(name in block.vars for block in self.program.blocks))

    def rows_of(self, op: Operator, slot: str, padding: Padding | None = None) -> RowFacts:
        """Facts about the rows of an input; `NotRewritten` if it has no padding rows, or of another kind than `padding`."""
        (name,) = op.input(slot)
        rows = self.rows.get(name)
        if rows is None or padding not in (None, rows.padding):
            raise NotRewritten
        return rows

    def rows_with_lod(self, op: Operator, slot: str, padding: Padding | None = None) -> RowFacts:
        """Facts about the rows of an input with a LoD; `NotRewritten` if it has none."""
        rows = self.rows_of(op, slot, padding)
        if not rows.has_lod:
            raise NotRewritten
        return rows

    def with_zeros(self, op: Operator, name: str, out: str | None = None) -> str:
        """The name of a value with the real rows of value `name`, and zeros in padding rows."""
        rows = self.rows[name]
        if rows.padding is Padding.ZEROS and out is None:
            return name
        cleared = self.add(op, "take_rows", {"X": name, "Index": self.index(Index(rows.group, row_numbers_of))}, out)
        self.rows[cleared] = replace(rows, padding=Padding.ZEROS)
        return cleared

    def with_copies(self, op: Operator, name: str, rows: RowFacts, out: str | None = None) -> str:
        """The name of a value with the real rows of value `name`, and copies of the first row in padding rows."""
        return self.add(op, "take_rows", {"X": name, "Index": self.index(Index(rows.group, row_numbers_of, padding=0))}, out)

    def writes(self, names: Sequence[str]) -> bool:
        """Whether an op so far has written one of some names."""
        return any(not set(names).isdisjoint(op.output_arg_names) for op in self.block.ops)

    def steps_of(self, group: int) -> int:
        """The number of steps that the longest sequence is padded to; `NotRewritten` if nobody knows it."""
        if group not in self._steps:
            raise NotRewritten
        return self._steps[group]

    def parent_of(self, group: int) -> int | None:
        """The LoD without its last level; None for one level."""
        parents = self._batch.parents
        return parents[group] if group < len(parents) else None

    def levels_of(self, group: int) -> list[int]:
        """The groups of all levels of a LoD, from the outermost level to this group's."""
        parent = self.parent_of(group)
        return [*(self.levels_of(parent) if parent is not None else ()), group]

    def of_sequences(self, op: Operator, value: str, group: int, out: str) -> Mapping[str, RowFacts]:
        """Facts about an output with a row for each sequence, `value`: these rows may form sequences, too."""
        parent = self.parent_of(group)
        if parent is None:
            return {}
        rows = RowFacts(parent, True, Padding.COPIES)
        self.with_copies(op, value, rows, out)
        return {out: rows}

    def derive(self, lod: DerivedLod, capacity: int, steps: int | None = None) -> int:
        """The number of a LoD that follows from others; equal LoDs are one. `steps`: the length of its longest sequence."""
        if any(self.parent_of(group) is not None for group in lod.groups):
            raise NotRewritten
        if lod not in self._derived:
            self._derived.append(lod)
            self.sizes.append((self.sizes[lod.groups[0]][0], capacity))
            if steps is not None:
                self._steps[len(self.sizes) - 1] = steps
        return len(self._batch.sizes) + self._derived.index(lod)

    def index(self, index: Index) -> str:
        """The name of the feed that holds an index."""
        if index not in self._names:
            outside = self.program.global_block()
            name = self._names[index] = self.fresh_name("sequences")
            spec = self._spec(index)
            outside.create_var(name=name, shape=spec.shape, dtype=spec.dtype, is_data=True, stop_gradient=True)
            self.indices[name] = index
        return self._names[index]

    def ids(self, group: int, padding: int | None = -1) -> str:
        """The sequence of each row."""
        return self.index(Index(group, ids_of, padding=padding))

    def maxima(self, op: Operator, rows: str, group: int, out: str | None = None) -> str:
        """The maximum of each sequence, 0 for an empty one. Padding rows form one more sequence, which is cut off."""
        count, _ = self.sizes[group]
        edges = {
            "X": rows,
            "Src_index": self.index(Index(group, row_numbers_of, padding=None)),
            "Dst_index": self.ids(group, count),
        }
        maxima = self.add(op, "graph_send_recv", edges, reduce_op="MAX", out_size=[count + 1])
        return self.add(op, "slice", {"Input": maxima}, out, axes=[0], starts=[0], ends=[count])

    def countdown(self, group: int) -> str:
        """For each row, the number of rows from it on."""
        return self.index(Index(group, countdown_of, dtype=VarType.INT32, width=1))

    def ends(self, group: int, kind: str) -> str:
        """The FIRST or LAST row of each sequence."""
        return self.index(Index(group, ends_of, Extent.SEQUENCES, arguments=(kind == "FIRST",)))

    def context(self, op: Operator, group: int, padding: int | None = -1) -> str:
        """The rows around each row that `sequence_conv` reads."""
        start, length = op.attr("contextStart"), op.attr("contextLength")
        return self.index(Index(group, context_of, padding=padding, width=length, arguments=(start, length)))

    def divisor(self, op: Operator, rows: str, group: int) -> str | None:
        """The divisor of each sequence's sum in `sequence_pool`; None if it does not divide."""
        compute = {"AVERAGE": divisors_of, "SQRT": square_roots_of}.get(str(op.attr("pooltype")).upper())
        if compute is None:
            return None
        return self.index(Index(group, compute, Extent.SEQUENCES, dtype=self.block.var(rows).dtype))

    def count(self, rows: str, group: int, factor: int) -> str:
        """The number of real rows, times a factor."""
        return self.index(Index(group, number_of_rows, Extent.BATCH, dtype=self.block.var(rows).dtype, arguments=(factor,)))

    def add(
        self,
        op: Operator,
        op_type: str,
        inputs: Mapping[str, str | list[str]],
        out: str | None = None,
        slot: str = "Out",
        **attrs: Any,
    ) -> str:
        """Add an op that stands for a part of `op`; returns the name of its output, a new one if `out` is None."""
        name = out if out is not None else self.fresh_name("rows")
        if out is None:
            self.block.create_var(name=name, stop_gradient=True)
        self.block.append_op(op_type, inputs, {slot: name}, attrs, frames=op.frames)
        return name

    def sums(self, op: Operator, rows: str, group: int, out: str | None = None) -> str:
        """The sum of each sequence."""
        like = self.zeros(op, rows, self.sizes[group][0])
        return self.add(op, "add_rows", {"X": rows, "Index": self.ids(group), "Like": like}, out)

    def zeros(self, op: Operator, rows: str, count: int) -> str:
        """Zeros: `count` rows as wide as the rows of a value."""
        var = self.block.var(rows)
        if -1 in var.shape[1:] or var.dtype not in FLOATS:
            raise NotRewritten
        return self.add(op, "fill_constant", {}, shape=[count, *var.shape[1:]], dtype=var.dtype, value=0.0)


def _spec_at(specs: Any, number: int) -> Spec | None:
    """The spec of a variable in a slot; None if the slot has no such variable."""
    if not isinstance(specs, list):
        return specs if not number else None
    return specs[number] if number < len(specs) else None


_Rewrite = Callable[[Rewriter, Operator], Mapping[str, RowFacts]]
REWRITES: OpTable[_Rewrite] = OpTable("rewriting for padded rows")
"""Type of an op that reads rows -> the function that writes other ops for it, and returns its outputs with padding rows."""
