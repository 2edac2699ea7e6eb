"""Loops over rank tables that read sequences, as an attention in a `DynamicRNN` does, rewritten to read plain rows.

A trip of such a loop reads the sequences that are not over: `shrink_rnn_memory` cuts them off the sequences that come in. In the
rewritten loop, a trip reads all rows, padded to a capacity. Rows of sequences that are over, and padding rows, are copies of the
first row. Ops that read a LoD become ops that read the number of each row's sequence; it is -1 in copies. So the block is made
of ops on plain tensors, which native code computes, and new lengths need no new code. Run op by op, it computes the same.

In the block of the gradient, the cotangents of copies are zeros, so they add nothing to gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fluid.errors import InferenceError
from fluid.ir.copying import copy_to_rewrite
from fluid.ir.program import Block, Operator, Program, Variable
from fluid.ir.regions import region_of
from fluid.opdef.registry import EMPTY, grad_slot
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..stepwise.active_rows import is_over_rank_table
from ..stepwise.row_ops import SHRINKING, computes_by_rows, outputs_of_rows
from .padded_ops import VIEWS, keeps_rows
from .padded_rows import gives_zeros

__all__ = ["with_padded_loops"]

_GRAD = grad_slot("")
_DIVISORS = {"SUM": "", "AVERAGE": "assign", "SQRT": "sqrt"}
"""Kind of `sequence_pool` -> the op that computes the divisors of sums from lengths; empty without divisors."""


class _UnpaddedError(Exception):
    """The loop has to stay as it is."""


class _Rows(NamedTuple):
    """A value with a row for each row of some sequences: their number, and whether the value has their LoD."""

    source: int
    has_lod: bool


def with_padded_loops(program: Program) -> Program:
    """Rewrite the loops over rank tables that read sequences; returns the program itself if there are none."""
    count = len(program.global_block().ops)
    for index in reversed(range(count)):
        op = program.global_block().ops[index]
        if op.type == "while" and _sequences_of(op):
            copy = copy_to_rewrite(program)
            try:
                _LoopRewriter(copy.global_block(), index).run()
            except (_UnpaddedError, InferenceError):  # an error of the program itself is reported as it runs
                continue
            program = copy
    return program


def _sequences_of(op: Operator) -> list[str]:
    """The sequences from outside that the block of a loop over a rank table reads."""
    region = region_of(op)
    if region is None or not is_over_rank_table(region):
        return []
    block = region.body
    names = dict.fromkeys(inner.input("X")[0] for inner in block.ops if inner.type == SHRINKING)
    return [name for name in names if name not in block.vars and name not in region.writes and _lod_level(block, name) == 1]


def _lod_level(block: Block, name: str) -> int:
    var = block.find_var(name)
    return var.lod_level if var is not None else 0


def _groups_of(block: Block, sequences: Sequence[str]) -> list[list[int]]:
    """The numbers of the sequences, in groups: those whose rows an op of the block reads together have equally many rows."""
    groups = [{number} for number in range(len(sequences))]
    rows = {name: number for number, name in enumerate(sequences)}
    for op in block.ops:
        numbers = {rows[name] for name in op.input_arg_names if name in rows}
        joined = set().union(*(group for group in groups if not group.isdisjoint(numbers)))
        groups = [group for group in groups if group.isdisjoint(numbers)] + ([joined] if joined else [])
        if numbers and op.type != "sequence_pool":
            rows |= dict.fromkeys(op.output_arg_names, min(numbers))
    return sorted(map(sorted, groups))


def _variable(block: Block, name: str) -> Variable:
    var = block.find_var(name)
    if var is None:
        raise _UnpaddedError
    return var


class _LoopRewriter:
    """Rewrites a loop and its gradient.

    Args:
        outside: the block that the loop is in.
        index: the position of the loop.
    """

    def __init__(self, outside: Block, index: int) -> None:
        self._outside, self._op = outside, outside.ops[index]
        self._sequences = _sequences_of(self._op)
        self._body: Block = self._op.attr("sub_block")
        self._has_means = any(op.type == "sequence_pool" and _kind_of(op) != "SUM" for op in self._body.ops)
        self._block = self._body
        """The block that is being rewritten."""
        self._rows: dict[str, _Rows] = {}
        """Values with rows of sequences, of the forward block and of the gradient block."""
        self._zeros: set[str] = set()
        """Cotangents: the values of `_rows` whose copies of rows are zeros."""
        self._padded: list[str] = []
        self._ids: list[str] = []
        self._divisors: list[str] = []
        """For each sequence, the outputs of `pad_sequences`."""
        self._numbers = self._all_numbers = ""
        """Two columns 0, 1, 2, ... from outside: trips shrink the first, and read all of the second."""
        self._trip: dict[str, str] | None = None
        """The counter of trips and the rank table that tell which sequences are over."""
        self._is_counted = False
        """Whether the block has counted the trip already."""
        self._active_numbers = ""
        """In the block, the numbers of the sequences that are not over."""
        self._active_ids: list[str] = []
        """In the block, for each sequence from outside, the number of each row's sequence; -1 in copies."""
        self._ids_to_take: list[str] = []
        """The same with 0 in copies, for `take_rows`."""
        self._active_divisors: list[str] = []
        """In the block, for each sequence from outside, the lengths of the sequences that are not over, for means."""
        self._masks: list[str] = []
        """In the block, for each sequence from outside, the rows that are no copies."""

    def run(self) -> None:
        gradients = [op for op in self._outside.ops if op.type == "while_grad" and op.attr("sub_block").forward is self._body]
        blocks = {self._body, *(op.attr("sub_block") for op in gradients)}
        is_read_further = any(block not in blocks and block.forward in blocks for block in self._outside.program.blocks)
        if len(gradients) > 1 or is_read_further or any(op.attrs.get("original_output_grad") for op in gradients):
            raise _UnpaddedError
        self._pad()
        self._rewrite(self._body)
        for op in gradients:
            self._rewrite(op.attr("sub_block"))
            self._unpad_gradients(op)

    # -- outside of the loop
    def _pad(self) -> None:
        """Pad the sequences before the loop."""
        outside, count, frames = self._outside, len(self._sequences), self._op.frames
        self._padded, self._ids, self._divisors = ([self._new(outside) for _ in range(count)] for _ in range(3))
        self._numbers, self._all_numbers = self._new(outside), self._new(outside)
        copies = {"inputs": {"X": [self._numbers]}, "outputs": {"Out": [self._all_numbers]}}
        for group in _groups_of(self._body, self._sequences):
            names = {"X": self._sequences, "Out": self._padded, "Ids": self._ids, "Divisors": self._divisors}
            operands = {slot: [listed[number] for number in group] for slot, listed in names.items()}
            operands["Numbers"] = [self._numbers if 0 in group else self._new(outside)]
            inputs = {"X": operands.pop("X")}
            outside.insert_op(outside.ops.index(self._op), "pad_sequences", inputs=inputs, outputs=operands, frames=frames)
        outside.insert_op(outside.ops.index(self._op), "assign", **copies, frames=frames)
        numbers = [self._numbers, self._all_numbers]
        self._op.inputs["X"] = [*self._op.input("X"), *self._padded, *self._ids, *self._divisors, *numbers]

    def _unpad_gradients(self, op: Operator) -> None:
        """Cut the padding off the gradients of the sequences, after the gradient of the loop."""
        outside, targets = self._outside, op.outputs[grad_slot("X")]
        for number, (name, target) in enumerate(zip(op.input("X"), targets, strict=True)):
            if name in self._sequences and target != EMPTY:
                targets[number] = self._new(outside, _variable(outside, name).spec)
                operands = {"inputs": {"X": [targets[number]], "Like": [name]}, "outputs": {"Out": [target]}}
                outside.insert_op(outside.ops.index(op) + 1, "resize_rows", **operands, frames=op.frames)

    @staticmethod
    def _new(block: Block, like: Spec | None = None) -> str:
        """Declare a new variable, like a spec or as its op will infer it; returns its name."""
        name: str = block.program.fresh_name("padded.0")
        block.create_var(name=name, stop_gradient=True, **({"shape": like.shape, "dtype": like.dtype} if like else {}))
        return name

    # -- blocks
    def _rewrite(self, block: Block) -> None:
        """Rewrite the ops of a block."""
        self._block, ops = block, block.ops
        block.ops = []
        for op in ops:
            if op.type == SHRINKING and op.input("X")[0] in self._sequences:
                self._shrink(op)
            elif op.type == f"{SHRINKING}_grad" and op.input("X")[0] in self._sequences:
                self._widen(op)
            elif self._sequences_in(op.input_arg_names):
                raise _UnpaddedError
            elif self._rows.keys().isdisjoint(op.input_arg_names):
                self._append(op)
            elif op.type in _REWRITES:
                _REWRITES[op.type](self, op)
            else:
                self._keep(op)
        if not self._rows.keys() <= {*self._body.vars, *block.vars}:
            raise _UnpaddedError  # rows leave the loop
        for name in self._rows.keys() & block.vars.keys():
            block.vars[name].lod_level = 0

    def _sequences_in(self, names: Sequence[str]) -> bool:
        return not {*self._sequences}.isdisjoint(names)

    def _append(self, op: Operator) -> None:
        """Keep an op whose outputs have no rows of sequences."""
        if self._trip is not None and self._trip["I"] in op.output_arg_names:
            self._is_counted = True
        self._forget(op.output_arg_names)
        self._block.ops.append(op)

    def _forget(self, names: Sequence[str]) -> None:
        """Drop the facts about names that are written again."""
        for name in names:
            self._rows.pop(name, None)
            self._zeros.discard(name)

    def _add(self, op: Operator, op_type: str, inputs: Mapping[str, str], out: str | None = None, **attrs: Any) -> str:
        """Add an op that stands for a part of `op`; returns the name of its output, a new one if `out` is None."""
        name = out if out is not None else self._new(self._block)
        self._block.append_op(op_type, inputs, {"Out": name}, attrs, frames=op.frames)
        self._forget([name])
        return name

    def _keep(self, op: Operator) -> None:
        """Keep an op that computes each row by itself."""
        definition = op.definition
        if definition is None or not computes_by_rows(op, definition.forward or definition, self._rows):
            raise _UnpaddedError
        outputs = outputs_of_rows(op, definition, self._rows) - {EMPTY}
        rows = [self._rows[name] for name in op.input_arg_names if name in self._rows]
        shared = next((item for item in rows if item.has_lod), rows[0])
        are_zeros = self._block is not self._body
        if definition.forward is not None:
            cotangents = {name for slot in op.inputs if slot.endswith(_GRAD) for name in op.input(slot)}
            is_fit = are_zeros and cotangents <= self._zeros
        else:
            is_fit = not are_zeros or op.type == "fill_zeros_like" or gives_zeros(op, self._zeros)
        if not is_fit:
            raise _UnpaddedError
        self._append(op)
        for name in outputs:
            self._set(name, shared, are_zeros)

    # -- facts
    def _rows_in(self, op: Operator, slot: str) -> _Rows:
        """The rows of an input, which has the LoD of its sequences."""
        rows = self._rows.get(op.input(slot)[0])
        if rows is None or not rows.has_lod:
            raise _UnpaddedError
        return rows

    def _cotangent(self, op: Operator) -> str:
        """The gradient of the output, with zeros in copies."""
        (name,) = op.input(grad_slot("Out"))
        if name not in self._zeros:
            raise _UnpaddedError
        return name

    def _set(self, name: str, rows: _Rows, is_zero: bool = False) -> None:
        """Note that a value has rows of sequences."""
        self._rows[name] = rows
        if is_zero:
            self._zeros.add(name)

    # -- ops
    def _shrink(self, op: Operator) -> None:
        """Write the rows of the sequences that are not over."""
        trip = {"I": op.input("I")[0], "RankTable": op.input("RankTable")[0]}
        if self._trip is None:
            self._trip = trip
            self._find_active_rows(op)
        if self._trip != trip or self._is_counted:
            raise _UnpaddedError  # another step's sequences
        number = self._sequences.index(op.input("X")[0])
        (out,) = op.output("Out")
        self._add(op, "repeat_first_row", {"X": self._padded[number], "Mask": self._masks[number]}, out)
        self._set(out, _Rows(number, True))

    def _find_active_rows(self, op: Operator) -> None:
        """Write what tells which rows belong to sequences that are not over."""
        assert self._trip is not None, "the caller has set it"
        self._active_numbers = numbers = self._add(op, SHRINKING, {"X": self._numbers, **self._trip})
        if self._has_means:
            self._active_divisors = [self._add(op, SHRINKING, {"X": divisors, **self._trip}) for divisors in self._divisors]
        for ids in self._ids:
            active = self._add(op, "active_ids", {"Ids": ids, "Numbers": numbers})
            zeros = self._add(op, "fill_zeros_like", {"X": active})
            self._active_ids.append(active)
            self._ids_to_take.append(self._add(op, "elementwise_max", {"X": active, "Y": zeros}))
            self._masks.append(self._add(op, "greater_equal", {"X": active, "Y": zeros}))

    def _widen(self, op: Operator) -> None:
        """Write the gradient of `_shrink`."""
        (out,) = op.output(grad_slot("X"))
        self._add(op, "assign", {"X": self._cotangent(op)}, out)

    def expand(self, op: Operator) -> None:
        (x,), (out,), rows = op.input("X"), op.output("Out"), self._rows_in(op, "Y")
        if x in self._rows or _variable(self._block, x).lod_level:
            raise _UnpaddedError
        self._add(op, "take_rows", {"X": x, "Index": self._ids_to_take[rows.source]}, out)
        self._set(out, rows._replace(has_lod=op.type == "sequence_expand_as"))

    def expand_grad(self, op: Operator) -> None:
        (x,), (out,), rows = op.input("X"), op.output(grad_slot("X")), self._rows_in(op, "Y")
        index = self._active_ids[rows.source]
        self._add(op, "add_rows", {"X": self._cotangent(op), "Index": index, "Like": x}, out)

    def softmax(self, op: Operator) -> None:
        """Write a softmax over each sequence. A number less its maximum is at most 0, and a sum of powers at least 1: the limits
        keep copies finite, which may belong to a sequence without other rows."""
        (x,), (out,), rows = op.input("X"), op.output("Out"), self._rows_in(op, "X")
        column = self._as_column(op, x)
        below = self._add(op, "elementwise_sub", {"X": column, "Y": self._of_sequences(op, "max_rows", column, rows, True)})
        below = self._add(op, "elementwise_min", {"X": below, "Y": self._add(op, "fill_zeros_like", {"X": below})})
        powers = self._add(op, "exp", {"X": below})
        sums = self._of_sequences(op, "add_rows", powers, rows, True)
        sums = self._add(op, "elementwise_max", {"X": sums, "Y": self._add(op, "fill_any_like", {"X": sums}, value=1.0)})
        self._like(op, x, self._add(op, "elementwise_div", {"X": powers, "Y": sums}), out)
        self._set(out, rows)

    def softmax_grad(self, op: Operator) -> None:
        (out,), (d_x,), gradient = op.input("Out"), op.output(grad_slot("X")), self._cotangent(op)
        rows = self._rows[out]
        columns = {"X": self._as_column(op, out), "Y": self._as_column(op, gradient)}
        sums = self._of_sequences(op, "add_rows", self._add(op, "elementwise_mul", columns), rows, False)
        apart = self._add(op, "elementwise_sub", {"X": columns["Y"], "Y": sums})
        self._like(op, out, self._add(op, "elementwise_mul", {"X": columns["X"], "Y": apart}), d_x)
        self._set(d_x, rows, is_zero=True)

    def _of_sequences(self, op: Operator, op_type: str, column: str, rows: _Rows, has_copies: bool) -> str:
        """For each row, the maximum or the sum of its sequence; in copies, the first sequence's or zeros."""
        ids = self._active_ids[rows.source]
        results = self._add(op, op_type, {"X": column, "Index": ids, "Like": self._all_numbers})
        return self._add(op, "take_rows", {"X": results, "Index": self._ids_to_take[rows.source] if has_copies else ids})

    def _as_column(self, op: Operator, name: str) -> str:
        """A value with one number in each row as a matrix of one column."""
        if _variable(self._block, name).ndim == 2:
            return name
        return self._add(op, "reshape", {"X": name}, shape=[-1, 1])

    def _like(self, op: Operator, like: str, column: str, out: str) -> None:
        """Give a column the number of dimensions of another value."""
        if _variable(self._block, like).ndim == 2:
            self._add(op, "assign", {"X": column}, out)
        else:
            self._add(op, "reshape", {"X": column}, out, shape=[-1])

    def pool(self, op: Operator) -> None:
        """Write a sum, or a mean, of each sequence that is not over."""
        (x,), (out,), rows, kind = op.input("X"), op.output("Out"), self._rows_in(op, "X"), _kind_of(op)
        var = _variable(self._block, x)
        if kind not in _DIVISORS or op.attr("pad_value") or len(var.shape) != 2 or var.shape[1] < 0:
            raise _UnpaddedError
        like = self._add(op, "expand", {"X": self._active_numbers}, expand_times=[1, var.shape[1]])
        index, is_mean = self._active_ids[rows.source], bool(_DIVISORS[kind])
        total = self._add(op, "add_rows", {"X": x, "Index": index, "Like": like}, None if is_mean else out)
        if is_mean:
            divisor = self._divisor(op, kind, self._active_divisors[rows.source], var.dtype)
            self._add(op, "elementwise_div", {"X": total, "Y": divisor}, out)

    def pool_grad(self, op: Operator) -> None:
        (x,), (gradient,), (d_x,) = op.input("X"), op.input(grad_slot("Out")), op.output(grad_slot("X"))
        rows, kind = self._rows_in(op, "X"), _kind_of(op)
        is_mean = bool(_DIVISORS[kind])
        of_rows = self._add(op, "take_rows", {"X": gradient, "Index": self._active_ids[rows.source]}, None if is_mean else d_x)
        if is_mean:
            divisors = self._divisor(op, kind, self._divisors[rows.source], _variable(self._block, x).dtype)
            divisor = self._add(op, "take_rows", {"X": divisors, "Index": self._ids_to_take[rows.source]})
            self._add(op, "elementwise_div", {"X": of_rows, "Y": divisor}, d_x)
        self._set(d_x, rows, is_zero=True)

    def _divisor(self, op: Operator, kind: str, divisors: str, dtype: VarType) -> str:
        """What the sums of sequences are divided by, for the lengths of the sequences."""
        if _variable(self._block, divisors).dtype != dtype:
            raise _UnpaddedError
        return self._add(op, _DIVISORS[kind], {"X": divisors})

    def view(self, op: Operator) -> None:
        """Keep an op that leaves the rows where they are."""
        (x,), (out,) = op.input("X"), op.output("Out")
        if len(op.input_arg_names) > 1 or not keeps_rows(op, _variable(self._block, x), _variable(self._block, out)):
            raise _UnpaddedError
        rows, is_zero = self._rows[x], x in self._zeros
        self._append(op)
        self._set(out, rows, is_zero)

    def view_grad(self, op: Operator) -> None:
        (d_x,), gradient = op.output(grad_slot("X")), self._cotangent(op)
        variables = [_variable(self._block, name) for name in (d_x, gradient)]
        if not all(var.has_shape for var in variables) or not keeps_rows(op, *variables):
            raise _UnpaddedError
        self._append(op)
        self._set(d_x, self._rows[gradient], is_zero=True)

    def reset(self, op: Operator) -> None:
        """Give rows the LoD of others."""
        (x,), (out,) = op.input("X"), op.output("Out")
        if not op.input("Y") or op.attr("append") or x not in self._rows or x in self._zeros:
            raise _UnpaddedError
        rows = self._rows_in(op, "Y")
        self._add(op, "assign", {"X": x}, out)
        self._set(out, rows)

    def reset_grad(self, op: Operator) -> None:
        (x,), (d_x,) = op.input("X"), op.output(grad_slot("X"))
        self._add(op, "assign", {"X": self._cotangent(op)}, d_x)
        self._set(d_x, self._rows[x], is_zero=True)


def _kind_of(op: Operator) -> str:
    """What `sequence_pool` computes."""
    return str(op.attr("pooltype")).upper()


_REWRITES: dict[str, Callable[[_LoopRewriter, Operator], None]] = {
    **dict.fromkeys(("sequence_expand", "sequence_expand_as"), _LoopRewriter.expand),
    **dict.fromkeys(("sequence_expand_grad", "sequence_expand_as_grad"), _LoopRewriter.expand_grad),
    "sequence_softmax": _LoopRewriter.softmax,
    "sequence_softmax_grad": _LoopRewriter.softmax_grad,
    "sequence_pool": _LoopRewriter.pool,
    "sequence_pool_grad": _LoopRewriter.pool_grad,
    "lod_reset": _LoopRewriter.reset,
    "lod_reset_grad": _LoopRewriter.reset_grad,
    **dict.fromkeys(VIEWS, _LoopRewriter.view),
    **dict.fromkeys((f"{op_type}_grad" for op_type in VIEWS), _LoopRewriter.view_grad),
}
"""Type of an op that reads rows of sequences -> what writes other ops for it."""
