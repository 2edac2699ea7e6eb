"""Programs whose rows form sequences, rewritten so that one plan serves batches of many lengths.

The rows of a batch are padded to a capacity (`capacity_of`). Ops that read a LoD become ops that read indices, which are fed: the
sequence of each row, say. So a plan depends on the number of sequences and on the capacity, not on the lengths.

Padding rows of fed values are copies of the first row. Where an op moves rows, they copy a row, too, and so add no infinities.
They belong to no sequence: a sum over a sequence leaves them out, and their gradients are zeros, which add nothing to the
gradients of weights. This is right only if all other ops compute each row by itself (`computes_by_rows`). A program with an op
that mixes rows is not rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from fluid.ir.program import Operator, OpRole, Program
from fluid.opdef.registry import EMPTY, grad_slot
from fluid.opdef.tables import OpTable
from fluid.ops.collective import COLLECTIVE
from fluid.values.lod_array import ids_of, with_lod
from fluid.values.spec import Lod, Spec
from fluid.values.types import VarType

from ..backend import Request
from ..kernels.sequence import context_of, ends_of, mirrored
from ..stepwise.active_rows import computes_by_rows, outputs_of_rows
from ..stepwise.needed import ops_to_run
from .specialization import deciding_names

__all__ = ["PaddedProgram", "Padding", "SequenceBatch", "batch_of", "capacity_of", "padded_program"]

_PARTS = 4
"""The number of capacities from one power of two to the next: more of them mean fewer padding rows, and more plans. Feeds with
different sequences share them, since there are plans for each combination of their capacities."""
_FLOATS = (VarType.FP32, VarType.FP64)
_GRAD = grad_slot("")
_LEAST = 8
"""Capacities are multiples of this number."""


def capacity_of(rows: int, lods: int = 1) -> int:
    """The number of rows, padding included, for a number of rows; `lods` is the number of different LoDs in the batch."""
    part = max((1 << (rows - 1).bit_length()) // (2 * max(_PARTS // lods, 1)), _LEAST)
    return -(-rows // part) * part


@dataclass(frozen=True)
class SequenceBatch:
    """The sequences of the feeds of a run.

    Attributes:
        groups: name of a feed -> the number of its LoD; feeds with equal LoDs share one.
        lods: the LoDs.
        sizes: for each LoD, the number of sequences, and the capacity.
        specs: the specs of the feeds with their padding, without LoDs.
    """

    groups: Mapping[str, int]
    lods: Sequence[Lod]
    sizes: tuple[tuple[int, int], ...]
    specs: Mapping[str, Spec]

    @property
    def key(self) -> Hashable:
        """What a plan for such batches depends on."""
        return (*self.groups.items(), *self.sizes, *self.specs.items())

    @property
    def division(self) -> Hashable:
        """Which feeds hold sequences, and which of these hold the same."""
        return tuple(self.groups.items())


def batch_of(request: Request) -> SequenceBatch | None:
    """The sequences of a request; None if a list is fed, or sequences of sequences, or no rows."""
    groups: dict[str, int] = {}
    lods: list[Lod] = []
    if len(request.specs) < len(request.feeds):
        return None
    fed = dict(sorted(request.specs.items()))
    for name, spec in fed.items():
        if not spec.lod:
            continue
        if len(spec.lod) > 1 or not spec.shape[0] or len(spec.lod[0] or ()) < 2:
            return None
        if spec.lod not in lods:
            lods.append(spec.lod)
        groups[name] = lods.index(spec.lod)
    sizes = tuple((len(lod[0] or ()) - 1, capacity_of(_rows_of(lod), len(lods))) for lod in lods)
    specs = {name: Spec((sizes[group][1], *fed[name].shape[1:]), fed[name].dtype) for name, group in groups.items()}
    return SequenceBatch(groups, lods, sizes, {**fed, **specs})


def _rows_of(lod: Lod) -> int:
    assert lod[0] is not None
    return lod[0][-1]


# ------------------------------------------------------------------------------------------------------------ indices
@dataclass(frozen=True)
class _Index:
    """Numbers that follow from the offsets of sequences; they are fed.

    Attributes:
        group: the number of the LoD.
        compute: from the offsets to the numbers, for each row or for each sequence.
        is_of_rows: whether there are numbers for each row.
        padding: the number in padding rows; None for the numbers of the first row.
        dtype: the element type.
        width: the numbers of a row; 0 for one in an array of one dimension.
    """

    group: int
    compute: Callable[..., Any]
    is_of_rows: bool = True
    padding: int | None = -1
    dtype: VarType = VarType.INT64
    width: int = 0
    arguments: tuple[Any, ...] = ()

    def array(self, offsets: Any, capacity: int) -> Any:
        """The array to feed."""
        numbers = self.compute(offsets, *self.arguments)
        if not self.is_of_rows:
            return np.asarray(numbers, self.dtype.numpy)
        return _filled(numbers, capacity, numbers[0] if self.padding is None else self.padding)


def _filled(array: Any, capacity: int, padding: Any) -> Any:
    """An array with further rows, up to a capacity."""
    result = np.empty((capacity, *array.shape[1:]), array.dtype)
    result[: len(array)] = array
    result[len(array) :] = padding
    return result


def _divisors(offsets: Any) -> Any:
    """The lengths of sequences, 1 for empty ones."""
    return np.maximum(np.diff(offsets), 1)


def _countdown(offsets: Any) -> Any:
    return np.arange(offsets[-1], 0, -1).astype(np.int32)[:, None]


def _places(offsets: Any) -> Any:
    return np.arange(offsets[-1])


def _roots(offsets: Any) -> Any:
    return np.sqrt(_divisors(offsets))


# ----------------------------------------------------------------------------------------------------------- rewriting
@dataclass(frozen=True)
class _Rows:
    """Facts about a value with a row for each fed row.

    Attributes:
        group: the number of the LoD of these rows.
        has_lod: whether the value has this LoD.
        padding: what its padding rows are.
    """

    group: int
    has_lod: bool
    padding: Padding


class Padding(Enum):
    """What padding rows are. Values of the forward part have copies, their gradients zeros."""

    COPIES = "copies of the first row"
    ZEROS = "zeros"
    UNKNOWN = "any numbers"


@dataclass
class PaddedProgram:
    """A rewritten program.

    Attributes:
        program: the program, which is fed plain arrays.
        indices: name of a further feed -> how it follows from the offsets.
        specs: the specs of all feeds.
        rows: facts about each fetched value; None for a value without padding rows.
    """

    program: Program
    batch: SequenceBatch
    indices: Mapping[str, _Index]
    specs: Mapping[str, Spec]
    rows: Sequence[_Rows | None]

    def feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The feeds of the rewritten program, for feeds of the original one."""
        offsets: dict[int, Any] = {}
        padded: dict[str, Any] = {}
        for name, value in feeds.items():
            group = self.batch.groups.get(name)
            if group is None:
                padded[name] = value
            else:
                offsets.setdefault(group, np.asarray(value.lod[0], np.int64))
                padded[name] = _filled(value.array, self.batch.sizes[group][1], value.array[0])
        for name, index in self.indices.items():
            padded[name] = index.array(offsets[index.group], self.batch.sizes[index.group][1])
        return padded

    def without_padding(self, results: Sequence[Any], feeds: Mapping[str, Any]) -> list[Any]:
        """The fetched values of the original program, for fetched values of the rewritten one."""
        lods = {group: feeds[name].lod for name, group in self.batch.groups.items()}
        return [
            result if rows is None else with_lod(result[: lods[rows.group][0][-1]], lods[rows.group] if rows.has_lod else ())
            for result, rows in zip(results, self.rows, strict=True)
        ]


_KEEP_ZEROS = {
    **dict.fromkeys(("scale", "assign", "cast", "split", "fill_zeros_like", "elementwise_div"), ("X",)),
    "elementwise_mul": ("X", "Y"),
}
"""Type of an op -> slots. If a row of one of them is zeros, that row of the result is."""
_ALL_ZEROS = frozenset({"sum", "concat", "elementwise_add", "elementwise_sub"})
"""Ops whose result has a row of zeros if all their operands have."""


class _Refused(Exception):
    """An op mixes rows."""


class _Rewriter:
    def __init__(self, program: Program, fetches: Sequence[str], batch: SequenceBatch) -> None:
        self.program, self._batch, self._fetches, self.sizes = program.clone(), batch, fetches, batch.sizes
        self.block = self.program.global_block()
        self.rows = {name: _Rows(group, True, Padding.COPIES) for name, group in batch.groups.items()}
        """Name -> facts, for values with padding rows."""
        self.indices: dict[str, _Index] = {}
        self._names: dict[_Index, str] = {}
        self.read: set[str] = set()
        """The names that ops read."""
        self._lost: set[str] = set()
        """Further outputs of ops, which the new ops do not make."""

    def run(self) -> PaddedProgram:
        """Rewrite all ops; `_Refused` if one mixes rows."""
        ops = ops_to_run(self.block, self._fetches)
        if any(op.sub_blocks or op.type in COLLECTIVE for op in ops) or deciding_names(self.program):
            raise _Refused
        self.read = {name for op in ops for name in op.input_arg_names}
        self.block.ops = []
        for name in self.rows:
            self.block.vars[name].lod_level = 0
        for op in ops:
            self._visit(op)
        if not self._lost.isdisjoint(self._fetches):
            raise _Refused
        specs = {**self._batch.specs, **{name: self._spec(index) for name, index in self.indices.items()}}
        return PaddedProgram(self.program, self._batch, self.indices, specs, [self.rows.get(name) for name in self._fetches])

    def _spec(self, index: _Index) -> Spec:
        count, capacity = self.sizes[index.group]
        shape = (capacity if index.is_of_rows else count, *([index.width] if index.width else []))
        return Spec(shape, index.dtype)

    def _visit(self, op: Operator) -> None:
        read = [name for name in op.input_arg_names if name in self.rows]
        if op.type not in _REWRITES and not self._lost.isdisjoint(op.input_arg_names):
            raise _Refused
        if not read:
            self.block.ops.append(op)
            self._note(op, {})
            return
        if op.type in _REWRITES:
            start = len(self.block.ops)
            self._note(op, _REWRITES[op.type](self, op))
            self._lost |= {*op.output_arg_names} - {name for new in self.block.ops[start:] for name in new.output_arg_names}
            return
        of_read = [self.rows[name] for name in read]
        definition, names = op.definition, {name for name, rows in self.rows.items() if rows.group == of_read[0].group}
        if definition is None or not names.issuperset(read):
            raise _Refused
        if not computes_by_rows(op, definition.forward or definition, names):
            raise _Refused
        if definition.forward is not None:
            self._refuse_other_cotangents(op)
            padding = Padding.ZEROS
        else:
            padding = self._padding(op)
        self.block.ops.append(op)
        rows = _Rows(of_read[0].group, any(rows.has_lod for rows in of_read), padding)
        self._note(op, dict.fromkeys(outputs_of_rows(op, definition, names) - {EMPTY}, rows))

    def _padding(self, op: Operator) -> Padding:
        """The padding rows of the results of an op that computes each row by itself."""
        of_slot = {slot: {self.rows[name].padding for name in names if name in self.rows} for slot, names in op.inputs.items()}
        present = set().union(*of_slot.values())
        if present == {Padding.COPIES}:
            return Padding.COPIES
        if op.type == "scale" and op.attr("bias"):
            return Padding.UNKNOWN
        is_zero = any(of_slot.get(slot) == {Padding.ZEROS} for slot in _KEEP_ZEROS.get(op.type, ()))
        return Padding.ZEROS if is_zero or (op.type in _ALL_ZEROS and present == {Padding.ZEROS}) else Padding.UNKNOWN

    def _refuse_other_cotangents(self, op: Operator) -> None:
        """The cotangents of rows have to be zeros in padding rows: they add nothing to the gradients of weights then."""
        cotangents = [name for slot, names in op.inputs.items() if slot.endswith(_GRAD) for name in names if name != EMPTY]
        if any(name not in self.rows or self.rows[name].padding is not Padding.ZEROS for name in cotangents):
            raise _Refused

    def _note(self, op: Operator, outputs: Mapping[str, _Rows]) -> None:
        """Note which outputs of an op have padding rows."""
        for name in op.output_arg_names:
            self.rows.pop(name, None)
        for name in outputs:
            var = self.block.find_var(name)
            if var is None or var.persistable:
                raise _Refused
        self.rows.update(outputs)

    # -- what rewriting functions use
    def rows_of(self, op: Operator, slot: str, padding: Padding | None = None) -> _Rows:
        """Facts about the rows of an input; `_Refused` if it has no padding rows, or not of this kind."""
        (name,) = op.input(slot)
        rows = self.rows.get(name)
        if rows is None or padding not in (None, rows.padding):
            raise _Refused
        return rows

    def with_sequences(self, op: Operator, slot: str, padding: Padding | None = None) -> _Rows:
        """As `rows_of`, for an input whose LoD is read."""
        rows = self.rows_of(op, slot, padding)
        if not rows.has_lod:
            raise _Refused
        return rows

    def index(self, index: _Index) -> str:
        """The name of the feed that holds an index."""
        if index not in self._names:
            name = self._names[index] = self.block.fresh_name("sequences.0")
            spec = self._spec(index)
            self.block.create_var(name=name, shape=spec.shape, dtype=spec.dtype, is_data=True, stop_gradient=True)
            self.indices[name] = index
        return self._names[index]

    def ids(self, group: int, padding: int | None = -1) -> str:
        """The sequence of each row."""
        return self.index(_Index(group, ids_of, padding=padding))

    def greatest(self, op: Operator, rows: str, group: int, out: str | None = None) -> str:
        """The maximum of each sequence, 0 for an empty one. Padding rows are one more sequence, which is cut off."""
        count, _ = self.sizes[group]
        edges = {"X": rows, "Src_index": self.index(_Index(group, _places, padding=None)), "Dst_index": self.ids(group, count)}
        greatest = self.add(op, "graph_send_recv", edges, reduce_op="MAX", out_size=[count + 1])
        return self.add(op, "slice", {"Input": greatest}, out, axes=[0], starts=[0], ends=[count])

    def countdown(self, group: int) -> str:
        """For each row, how many rows there are from it on."""
        return self.index(_Index(group, _countdown, dtype=VarType.INT32, width=1))

    def ends(self, group: int, kind: str) -> str:
        """The FIRST or LAST row of each sequence."""
        return self.index(_Index(group, ends_of, is_of_rows=False, arguments=(kind == "FIRST",)))

    def context(self, op: Operator, group: int, padding: int | None = -1) -> str:
        """The rows around each row that `sequence_conv` reads."""
        start, length = op.attr("contextStart"), op.attr("contextLength")
        return self.index(_Index(group, context_of, padding=padding, width=length, arguments=(start, length)))

    def divisor(self, op: Operator, rows: str, group: int) -> str | None:
        """The divisors of the sums of sequences, for `sequence_pool`; None for sums."""
        compute = {"AVERAGE": _divisors, "SQRT": _roots}.get(str(op.attr("pooltype")).upper())
        return None if compute is None else self.index(_Index(group, compute, False, dtype=self.block.vars[rows].dtype))

    def add(self, op: Operator, op_type: str, inputs: Mapping[str, str], out: str | None = None, **attrs: Any) -> str:
        """Add an op in place of a part of `op`, with an output to write to, by default a new one; returns its name."""
        name = out if out is not None else self.block.fresh_name("rows.0")
        if out is None:
            self.block.create_var(name=name, stop_gradient=True)
        self.block.append_op(op_type, inputs, {"Out": name}, attrs, frames=op.frames)
        return name

    def total(self, op: Operator, rows: str, group: int, out: str | None = None) -> str:
        """The sum of each sequence."""
        like = self.zeros(op, rows, self.sizes[group][0])
        return self.add(op, "add_rows", {"X": rows, "Index": self.ids(group), "Like": like}, out)

    def zeros(self, op: Operator, rows: str, count: int) -> str:
        """Zeros: `count` rows as wide as the rows of a value."""
        var = self.block.vars[rows]
        if -1 in var.shape[1:] or var.dtype not in _FLOATS:
            raise _Refused
        return self.add(op, "fill_constant", {}, shape=[count, *var.shape[1:]], dtype=var.dtype, value=0.0)


_Rewrite = Callable[[_Rewriter, Operator], Mapping[str, _Rows]]
_REWRITES: OpTable[_Rewrite] = OpTable("rewriting for padded rows")
"""Type of an op that reads rows -> the function that writes other ops for it, and returns its outputs with padding rows."""
_rewrites = _REWRITES.register


@_rewrites("sequence_pool")
def _rewrite_pool(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    (x,), (out,), group = op.input("X"), op.output("Out"), to.with_sequences(op, "X").group
    kind = str(op.attr("pooltype")).upper()
    if op.attr("pad_value") or to.block.vars[x].dtype not in _FLOATS:
        raise _Refused
    if kind == "MAX":
        _rewrite_greatest(to, op, x, out, group)
        return {}
    if kind in ("FIRST", "LAST"):
        to.add(op, "take_rows", {"X": x, "Index": to.ends(group, kind)}, out)
        return {}
    divisor = to.divisor(op, x, group)
    total = to.total(op, x, group, out if divisor is None else None)
    if divisor is not None:
        to.add(op, "elementwise_div", {"X": total, "Y": divisor}, out, axis=0)
    return {}


def _rewrite_greatest(to: _Rewriter, op: Operator, x: str, out: str, group: int) -> None:
    """Write a maximum over sequences. MaxIndex holds the countdown of the first row with the maximum, 0 for an empty sequence."""
    to.greatest(op, x, group, out)
    place = next(iter(op.output("MaxIndex")), None)
    if place not in to.read:
        return
    if len(to.block.vars[x].shape) != 2:
        raise _Refused
    ids = to.ids(group, None)
    is_greatest = to.add(op, "equal", {"X": x, "Y": to.add(op, "take_rows", {"X": out, "Index": ids})})
    numbers = to.add(op, "cast", {"X": is_greatest}, in_dtype=VarType.BOOL, out_dtype=VarType.INT32)
    to.greatest(op, to.add(op, "elementwise_mul", {"X": numbers, "Y": to.countdown(group)}), group, place)


def _rewrite_greatest_grad(to: _Rewriter, op: Operator, group: int, d_x: str) -> None:
    """Write the gradient of a maximum: it goes to the first row with the maximum."""
    (x,), (place,), (gradient,), ids = op.input("X"), op.input("MaxIndex"), op.input(grad_slot("Out")), to.ids(group)
    is_greatest = to.add(op, "equal", {"X": to.add(op, "take_rows", {"X": place, "Index": ids}), "Y": to.countdown(group)})
    choices = {"X": to.add(op, "take_rows", {"X": gradient, "Index": ids}), "Y": to.zeros(op, x, to.sizes[group][1])}
    to.add(op, "where", {"Condition": is_greatest, **choices}, d_x)


@_rewrites("sequence_pool_grad")
def _rewrite_pool_grad(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    (x,), (gradient,), (d_x,) = op.input("X"), op.input(grad_slot("Out")), op.output(grad_slot("X"))
    group, kind = to.with_sequences(op, "X").group, str(op.attr("pooltype")).upper()
    result = {d_x: _Rows(group, True, Padding.ZEROS)}
    if kind == "MAX":
        _rewrite_greatest_grad(to, op, group, d_x)
        return result
    if kind in ("FIRST", "LAST"):
        to.add(op, "add_rows", {"X": gradient, "Index": to.ends(group, kind), "Like": x}, d_x)
        return result
    divisor = to.divisor(op, x, group)
    if divisor is not None:
        gradient = to.add(op, "elementwise_div", {"X": gradient, "Y": divisor}, axis=0)
    to.add(op, "take_rows", {"X": gradient, "Index": to.ids(group)}, d_x)
    return result


@_rewrites("sequence_expand", "sequence_expand_as")
def _rewrite_expand(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    (x,), (out,), rows = op.input("X"), op.output("Out"), to.with_sequences(op, "Y")
    if x in to.rows or to.block.vars[x].lod_level or op.role & OpRole.BACKWARD:
        raise _Refused
    to.add(op, "take_rows", {"X": x, "Index": to.ids(rows.group, None)}, out)
    return {out: _Rows(rows.group, op.type == "sequence_expand_as", Padding.COPIES)}


@_rewrites("sequence_expand_grad", "sequence_expand_as_grad")
def _rewrite_expand_grad(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    (x,), (gradient,), rows = op.input("X"), op.input(grad_slot("Out")), to.rows_of(op, grad_slot("Out"))
    if x in to.rows or to.with_sequences(op, "Y").group != rows.group:
        raise _Refused
    to.add(op, "add_rows", {"X": gradient, "Index": to.ids(rows.group), "Like": x}, op.output(grad_slot("X"))[0])
    return {}


@_rewrites("sequence_reverse")
def _rewrite_reverse(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    (out,), rows = op.output("Y"), to.with_sequences(op, "X")
    if rows.padding is Padding.UNKNOWN:
        raise _Refused
    index = to.index(_Index(rows.group, mirrored, padding=None if rows.padding is Padding.COPIES else -1))
    to.add(op, "take_rows", {"X": op.input("X")[0], "Index": index}, out)
    return {out: rows}


@_rewrites("lod_reset")
def _rewrite_reset(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    """Give rows the LoD that they have without saying so."""
    (x,), (out,), rows = op.input("X"), op.output("Out"), to.rows_of(op, "X")
    if not op.input("Y") or op.attr("append") or to.with_sequences(op, "Y").group != rows.group:
        raise _Refused
    to.add(op, "assign", {"X": x}, out)
    return {out: replace(rows, has_lod=True)}


def _windows(to: _Rewriter, op: Operator, rows: _Rows) -> str:
    """The rows that `sequence_conv` multiplies by the filter, for each row one after the other."""
    if op.attr("paddingTrainable") or op.attr("contextStride") != 1:
        raise _Refused
    length, (x,) = op.attr("contextLength"), op.input("X")
    in_windows = to.add(op, "take_rows", {"X": x, "Index": to.context(op, rows.group, None)})
    return to.add(op, "reshape", {"X": in_windows}, shape=[-1, length * to.block.vars[x].shape[1]])


@_rewrites("sequence_conv")
def _rewrite_conv(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    (out,), rows = op.output("Out"), to.with_sequences(op, "X", Padding.COPIES)
    to.add(op, "mul", {"X": _windows(to, op, rows), "Y": op.input("Filter")[0]}, out)
    return {out: rows}


@_rewrites("sequence_conv_grad")
def _rewrite_conv_grad(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    (x,), (gradient,), (weight,) = op.input("X"), op.input(grad_slot("Out")), op.input("Filter")
    rows, results = to.with_sequences(op, "X", Padding.COPIES), dict[str, _Rows]()
    to.rows_of(op, grad_slot("Out"), Padding.ZEROS)
    for name in op.output(grad_slot("Filter")):
        to.add(op, "matmul", {"X": _windows(to, op, rows), "Y": gradient}, name, transpose_X=True)
    for name in op.output(grad_slot("X")):
        of_windows = to.add(op, "matmul", {"X": gradient, "Y": weight}, transpose_Y=True)
        in_windows = to.add(op, "reshape", {"X": of_windows}, shape=[-1, op.attr("contextLength"), to.block.vars[x].shape[1]])
        to.add(op, "add_rows", {"X": in_windows, "Index": to.context(op, rows.group), "Like": x}, name)
        results[name] = replace(rows, padding=Padding.ZEROS)
    return results


@_rewrites("sequence_softmax")
def _rewrite_softmax(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    (x,), (out,), rows = op.input("X"), op.output("Out"), to.with_sequences(op, "X", Padding.COPIES)
    ids = to.ids(rows.group, None)
    greatest = to.add(op, "take_rows", {"X": to.greatest(op, x, rows.group), "Index": ids})
    powers = to.add(op, "exp", {"X": to.add(op, "elementwise_sub", {"X": x, "Y": greatest})})
    total = to.total(op, powers, rows.group)
    to.add(op, "elementwise_div", {"X": powers, "Y": to.add(op, "take_rows", {"X": total, "Index": ids})}, out)
    return {out: rows}


@_rewrites("sequence_softmax_grad")
def _rewrite_softmax_grad(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    (out,), (gradient,), (d_x,) = op.input("Out"), op.input(grad_slot("Out")), op.output(grad_slot("X"))
    to.rows_of(op, "Out", Padding.COPIES)
    rows = to.rows_of(op, grad_slot("Out"), Padding.ZEROS)
    total = to.total(op, to.add(op, "elementwise_mul", {"X": out, "Y": gradient}), rows.group)
    mean = to.add(op, "take_rows", {"X": total, "Index": to.ids(rows.group)})
    to.add(op, "elementwise_mul", {"X": out, "Y": to.add(op, "elementwise_sub", {"X": gradient, "Y": mean})}, d_x)
    return {d_x: rows}


@_rewrites("squeeze2", "unsqueeze2", "squeeze", "unsqueeze")
def _rewrite_squeeze(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    """Keep an op that leaves the rows where they are."""
    (out,), rows = op.output("Out"), to.rows_of(op, "X")
    ndim = len(to.block.vars[out if op.type.startswith("un") else op.input("X")[0]].shape)
    if len(op.input_arg_names) > 1 or not op.attr("axes") or any(axis % ndim == 0 for axis in op.attr("axes")):
        raise _Refused
    to.block.ops.append(op)
    return {out: rows}


@_rewrites("squeeze2_grad", "unsqueeze2_grad", "squeeze_grad", "unsqueeze_grad")
def _rewrite_squeeze_grad(to: _Rewriter, op: Operator) -> Mapping[str, _Rows]:
    (d_x,), rows = op.output(grad_slot("X")), to.rows_of(op, grad_slot("Out"), Padding.ZEROS)
    to.block.ops.append(op)
    return {d_x: rows}


def padded_program(program: Program, fetches: Sequence[str], batch: SequenceBatch) -> PaddedProgram | None:
    """A program, rewritten for batches like this one; None if an op mixes rows."""
    try:
        return _Rewriter(program, fetches, batch).run()
    except _Refused:
        return None
