"""Loops over the steps of sequences, as `DynamicRNN` makes them, written as recurrences over padded steps.

Such a loop has a rank table: its trips compute one row for each sequence that is not over, the longest sequence first. The
recurrence computes a row for each sequence at each step, in the order of the batch. A sequence that is over repeats its last
step, from the same states: this gives the same numbers again, so nothing overflows that does not overflow in the loop. Only the
rows of real steps leave the recurrence.

Ops of the block that depend on the step's input alone, or on static inputs alone, move out of the loop: they compute all steps at
once. Where a step has sequences, as the sentences of a text have words, they have to become one row each in this way.

The mean of all rows of a step, and the branch that such a number chooses, read only sequences that still run. In the places of
sequences that have ended, they read the row of the longest one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, NamedTuple

from fluid.ir.copying import RANDOM_STREAM, copy_op, declare_like
from fluid.ir.nesting import nested_blocks, walk
from fluid.ir.program import Block, Operator
from fluid.ir.regions import region_of
from fluid.ir.versions import outer_names
from fluid.opdef.registry import EMPTY
from fluid.values.types import VarType

from ..stepwise.row_ops import SHRINKING, computes_by_rows, outputs_of_rows
from .padded_ops import VIEWS, keeps_rows
from .padded_rows import FLOATS, NotRewritten, Padding, Rewriter, RowFacts
from .sequence_batch import (
    Extent,
    Index,
    active_sequences_at_steps,
    active_sequences_or_none_at_steps,
    goes_on,
    places_at_steps,
    ranks_of,
    rows_at_steps,
    shares_at_steps,
)
from .step_facts import Condition, First, Ranked, Steps, Table, fact_of, has_as_many

__all__ = ["Recurrence", "add_constant"]

_EXPANSIONS = frozenset({"sequence_expand", "sequence_expand_as"})
_MEANS = frozenset({"mean", "reduce_mean"})
_SUMS = frozenset({"reduce_sum", *_MEANS})
_OF_SEQUENCES = frozenset({"sequence_pool", "sequence_softmax", "sequence_reverse", "sequence_conv", "gru", "lstm"})
"""Ops that compute each sequence of one input by itself."""


def add_constant(to: Rewriter, op: Operator, count: int, out: str | None = None) -> str:
    """Write `fill_constant_batch_size_like` for a number of rows; returns the name of the result."""
    if op.attr("input_dim_idx") or op.attr("output_dim_idx"):
        raise NotRewritten
    shape = [count, *op.attr("shape")[1:]]
    return to.add(op, "fill_constant", {}, out, shape=shape, dtype=op.attr("dtype"), value=op.attr("value"))


# ---------------------------------------------------------------------------------------------------------- the recurrence
class _Role(Enum):
    """What a value that has moved out of the block depends on."""

    STEPS = "the input of each step"
    STATIC = "static inputs alone"


class _Moved(NamedTuple):
    """A value of the block that is computed outside, for all steps at once."""

    name: str
    role: _Role


class Recurrence:
    """Writes a recurrence in place of a loop over steps.

    Args:
        to: writes the program.
        op: the loop.
    """

    def __init__(self, to: Rewriter, op: Operator) -> None:
        region, condition = region_of(op), fact_of(to, op.input("Condition")[0], Condition)
        assert region is not None, "the op owns a block"
        self._to, self._op, self._region = to, op, region
        self.outside, self.body, self._ops = to.block, region.body, region.body.ops
        self.group, self._counter, self._condition = condition.group, condition.counter, op.input("Condition")[0]
        self._count, self._steps = to.sizes[self.group][0], to.steps_of(self.group)
        backward = [one for one in to.ops if one.type == "while_grad" and one.input("StepScopes") == op.output("StepScopes")]
        self.has_gradient = bool(backward)
        """Whether the program makes the gradient of the loop."""
        results = [name for one in backward for inner in one.sub_blocks[0].ops for name in inner.output_arg_names]
        self.have_gradients = {name.split("@GRAD")[0] for name in results if "@GRAD" in name}
        """The values of the block whose gradients the program makes."""
        self.names = {*self.body.vars}
        """The variables of the loop's block."""
        self.segment: list[Operator] = []
        """The ops outside, before they are written for padded rows: the gradient is made of these."""
        self.steps: list[Operator] = []
        """The ops of the block, before they are written for padded rows."""
        self._is_counted = False
        """Whether the block has counted the step already."""
        self.moved: dict[str, _Moved] = {}
        """Name in the block -> the value outside that it stands for."""
        self._slices: dict[str, str] = {}
        """Value outside with rows of all steps, or index of all steps -> its slice in the block."""
        self._rows: set[str] = set()
        """Values, inside and outside, with a row for each sequence."""
        self._parts: set[str] = set()
        """Values of the branches of an ``IfElse``, with some of these rows."""
        self.states: dict[str, str] = {}
        """Array of a state -> its value before a step."""
        self.updates: dict[str, str] = {}
        """Array of a state -> its value after a step."""
        self.outputs: dict[str, str] = {}
        """Array -> the value that each step writes to it."""
        self._unreadable = {self._counter, self._condition}
        """Values that the ops of the recurrence cannot read."""
        self._numbers: set[str] = set()
        """Values of the block without rows that differ from step to step."""
        self._active: set[str] = set()
        """Values where the row of the longest sequence stands in the places of sequences that are over."""
        self._of_active: dict[str, str] = {}
        """Value with a row for each sequence -> its copy in `_active`."""
        self._renamed: dict[str, str] = {}
        """Name that a branch may have overwritten -> the value that it stands for."""
        self._unshrunk: dict[str, str] = {}
        """Value of a state that is not shrunk yet -> its array."""

    def write(self) -> None:
        """Write the recurrence, and note what its arrays hold; `NotRewritten` if the block does anything else."""
        self.body.ops = []
        for op in self._ops:
            _IN_BLOCK.get(op.type, Recurrence._compute)(self, op)
        arrays = {*self.updates, *self.outputs}
        if not self._is_counted or {*self._region.writes} - arrays != {self._counter, self._condition}:
            raise NotRewritten
        if self.states.keys() != self.updates.keys():
            raise NotRewritten
        firsts = [self._first(array) for array in self.states]
        afters = [self._after(before, self.updates[array]) for array, before in self.states.items()]
        self._append(firsts, afters, self._stacked())

    def _add(self, op_type: str, inputs: Mapping[str, str | list[str]], out: str | None = None, **attrs: Any) -> str:
        """Add an op to the block; returns the name of its output."""
        with self._to.writing_to(self.body):
            name = self._to.add(self._op, op_type, inputs, out, **attrs)
        return self._noted(name, self.body, self.steps)

    def _add_outside(self, op_type: str, inputs: Mapping[str, str], **attrs: Any) -> str:
        """Add an op outside of the loop; returns the name of its output."""
        return self._noted(self._to.add(self._op, op_type, inputs, **attrs), self.outside, self.segment)

    @staticmethod
    def _noted(name: str, block: Block, ops: list[Operator]) -> str:
        """Note the last op of a block, whose output may have a gradient; returns the name of the output."""
        ops.append(copy_op(block.ops[-1], block))
        block.vars[name].stop_gradient = False
        return name

    # -- reading
    def read(self, op: Operator) -> None:
        """Note the input of a step, or a state."""
        (array,), (out,) = op.input("X"), op.output("Out")
        fact = self._to.loops.get(array)
        if op.input("I") != [self._counter] or self._is_counted:
            raise NotRewritten
        if isinstance(fact, Steps) and fact.group == self.group:
            self.moved[out] = _Moved(fact.rows, _Role.STEPS)
        elif isinstance(fact, First) and array not in self._unshrunk.values():
            self._unshrunk[out] = array
            self._unreadable.add(out)
        else:
            raise NotRewritten

    def shrink(self, op: Operator) -> None:
        """Note a state, or a static input."""
        (x,), (out,), table = op.input("X"), op.output("Out"), fact_of(self._to, op.input("RankTable")[0], Table)
        if op.input("I") != [self._counter] or self._is_counted or table.group != self.group:
            raise NotRewritten
        if x in self._unshrunk:
            self.states[self._unshrunk[x]] = out
            self._rows.add(out)
        elif x in self.body.vars:
            raise NotRewritten
        else:
            value = self._in_batch_order(x)
            self.moved[out] = _Moved(value, _Role.STATIC)
            if value not in self._to.rows:
                self._rows.add(value)

    def _in_batch_order(self, name: str) -> str:
        """A value outside, whose rows or sequences are in rank order, in the order of the batch."""
        fact = self._to.loops.get(name)
        if isinstance(fact, Ranked) and fact.group == self.group and fact.value:
            return fact.value
        if name in self._to.rows:
            raise NotRewritten
        ranks = self._to.index(Index(self.group, ranks_of, Extent.SEQUENCES))
        return self._add_outside("take_rows", {"X": self._to.readable(name), "Index": ranks})

    def _first(self, array: str) -> str:
        """The first value of a state, with its rows in the order of the batch."""
        return self._in_batch_order(fact_of(self._to, array, First).value)

    def _value(self, name: str) -> str:
        """The name, for the ops of the recurrence, of a value of the block: a slice stands for the input of a step."""
        name = self._renamed.get(name, name)
        moved = self.moved.get(name)
        if moved is None or moved.role is _Role.STATIC:
            return name if moved is None else moved.name
        if moved.name not in self._slices:
            facts = self._to.rows[moved.name]
            if facts.group != self.group or facts.padding is Padding.UNKNOWN:
                raise NotRewritten
            at_steps = {"X": moved.name, "Index": self._index_of_steps(rows_at_steps)}
            self._rows.add(self._slice(moved.name, self._add_outside("take_rows", at_steps)))
        return self._slices[moved.name]

    def _index_of_steps(self, compute: Callable[..., Any], dtype: VarType = VarType.INT64) -> str:
        """The name of an index of all steps and sequences."""
        index = Index(self.group, compute, Extent.STEPS, None, dtype, self._count, self._steps, arguments=(self._steps,))
        return self._to.index(index)

    def _slice(self, name: str, sequence: str) -> str:
        """Let the block read the slices of a sequence outside, for a value; a slice has the name of its sequence."""
        if name not in self._slices:
            var = self.outside.var(sequence)
            self.body.create_var(name=sequence, shape=var.shape[1:], dtype=var.dtype, stop_gradient=False)
            self._slices[name] = sequence
        return sequence

    # -- computing
    def _compute(self, op: Operator) -> None:
        self._check(op)
        if not self._parts.isdisjoint(op.input_arg_names):
            self._compute_part(op)
            return
        roles = {self.moved[name].role for name in op.input_arg_names if name in self.moved}
        is_movable = len(roles) == 1 and not any(name in self.body.vars for name in self._unmoved(op))
        if not is_movable or not self._move_out(op, *roles):
            op.inputs = {slot: [self._value(name) for name in names] for slot, names in op.inputs.items()}
            self._compute_in_block(op)

    def split(self, op: Operator) -> None:
        """Write an op that gives each branch of an ``IfElse`` its rows."""
        self._check(op)
        op.inputs = {slot: [self._row_value(name) for name in names] for slot, names in op.inputs.items()}
        if not self._active.isdisjoint(op.input_arg_names):
            raise NotRewritten
        self._append_op(op)
        self._parts.update(op.output_arg_names)

    def merge(self, op: Operator) -> None:
        """Write an op that joins the rows of both branches."""
        self._check(op)
        if not self._parts >= {*op.input("InTrue"), *op.input("InFalse")}:
            raise NotRewritten
        op.inputs = {**op.inputs, "X": op.input("InTrue"), "Mask": [self._row_value(op.input("Mask")[0])]}
        self._append_op(op)
        self._rows.update(op.output("Out"))

    def _compute_part(self, op: Operator) -> None:
        """Write an op that computes each row of a branch by itself."""
        definition = op.definition
        reads = {name for name in op.input_arg_names if name in self._rows or name in self._to.rows or name in self.moved}
        reads |= self._numbers.intersection(op.input_arg_names)
        if definition is None or reads or definition.is_random or not computes_by_rows(op, definition, self._parts):
            raise NotRewritten
        self._append_op(op)
        self._parts |= outputs_of_rows(op, definition, self._parts) - {EMPTY}

    # -- numbers of all rows, and branches
    def reduce(self, op: Operator) -> None:
        """Write a sum, a mean or an extreme of all rows of a step; other reductions stay."""
        x, *tensors = op.input_arg_names
        axes = _reduced_axes(op, self.body.var(x).ndim) if x in self._rows or x in self.moved else None
        if tensors or axes is None or (axes and 0 not in axes):
            self._compute(op)
            return
        self._check(op)
        if op.type not in _SUMS and x in self.have_gradients:
            raise NotRewritten  # copies of the longest sequence would share its gradient
        value, dtype = self._row_value(x), self.body.var(x).dtype
        if op.type not in _SUMS:
            value = self._rows_of_active(value)
        elif dtype in (FLOATS if op.type in _MEANS else (*FLOATS, VarType.INT64)):
            index = self._index_of_steps(active_sequences_or_none_at_steps)  # zeros: a weight of 0 would make infinities NaN
            value = self._add("take_rows", {"X": value, "Index": self._slice(index, index)})
        else:
            raise NotRewritten
        if op.type in _MEANS:
            shares = self._index_of_steps(shares_at_steps, dtype)
            value = self._add("elementwise_mul", {"X": value, "Y": self._slice(shares, shares)}, axis=0)
            inner = [number for number in range(1, self.body.var(x).ndim) if not axes or number in axes]
            value = self._add("reduce_mean", {"X": value}, dim=inner, keep_dim=True) if inner else value
            op.type, op.attrs = "reduce_sum", {**op.attrs, "dim": axes or [0], "reduce_all": not axes}
        op.inputs = {"X": [value]}
        self._append_op(op)
        self._numbers.update(op.output("Out"))

    def _rows_of_active(self, value: str) -> str:
        """Copy a value, and put the row of the longest sequence into the places of sequences that are over; see `_active`."""
        if value in self._active:
            return value
        if value not in self._of_active:
            index = self._index_of_steps(active_sequences_at_steps)
            self._of_active[value] = new = self._add("take_rows", {"X": value, "Index": self._slice(index, index)})
            self._rows.add(new)
            self._active.add(new)
        return self._of_active[value]

    def _read_active(self, op: Operator) -> None:
        """Let an op read rows of sequences that are not over, if it reads a number of the step or rows that depend on one."""
        if not (self._numbers | self._active).isdisjoint(op.input_arg_names):
            op.inputs = {
                slot: [self._rows_of_active(name) if name in self._rows else name for name in names]
                for slot, names in op.inputs.items()
            }

    def _note_numbers(self, op: Operator) -> None:
        """Note which outputs of an op depend on a number of the step."""
        if not (self._numbers | self._active).isdisjoint(op.input_arg_names):
            outputs = {*op.output_arg_names}
            self._active |= outputs & self._rows
            self._numbers |= outputs - self._rows

    def branch(self, op: Operator) -> None:
        """Write a branch whose ops compute each row by itself. Values that it overwrites become choices between two."""
        (block,), (condition, *conditions) = op.sub_blocks, op.input("Cond")
        names, results = outer_names(block)
        written = {name for one in self.body.ops for name in one.output_arg_names}
        overwritten = [name for name in results if name in written or name in self.moved or name in self._renamed]
        if conditions or not op.attr("is_scalar_condition") or not self._are_numbers([condition]):
            raise NotRewritten
        leaving = {*self.outputs.values(), *self.updates.values()}
        if not self.body.vars.keys() >= {*results} or not leaving.isdisjoint(overwritten):
            raise NotRewritten
        values = {name: self._in_branch(name) for name in (*names, *overwritten) if name in overwritten or name not in results}
        former, new = {name: values[name] for name in overwritten}, {name: self._declare_new(name) for name in overwritten}
        op.inputs = {slot: [values.get(name, name) for name in listed] for slot, listed in op.inputs.items()}
        op.outputs = {slot: [new.get(name, name) for name in listed] for slot, listed in op.outputs.items()}
        inner_ops, block.ops = block.ops, []
        for inner in inner_ops:
            self._compute_in_branch(inner, block, values, new)
        self.steps.append(copy_op(op, self.body))
        self.body.ops.append(op)
        self._active |= self._rows.intersection([*results, *new.values()])
        self._numbers |= {*results} - self._rows - {*overwritten}
        for name in overwritten:
            self._choose_between(condition, name, former[name], new[name])

    def _declare_new(self, name: str) -> str:
        """Declare another value of a variable of the block."""
        return declare_like(self.body, self._to.fresh_name(name), self.body.vars[name]).name

    def _choose_between(self, condition: str, name: str, former: str, new: str) -> None:
        """Let a name stand for the new one of two values if a condition holds. Both have a row for each sequence."""
        if not self._rows.issuperset([former, new]):
            raise NotRewritten
        mask = self._add("cast", {"X": condition}, in_dtype=int(VarType.BOOL), out_dtype=int(VarType.INT32))
        self.body.vars[mask].stop_gradient = True
        chosen = self._renamed[name] = self._add("select_input", {"X": [former, new], "Mask": mask}, self._declare_new(name))
        self._numbers.add(mask)
        self._rows |= {name, chosen}
        self._active.add(chosen)
        self.moved.pop(name, None)

    def _are_numbers(self, names: Collection[str]) -> bool:
        """Whether ops of the recurrence can read all these values, and none of them has rows."""
        return not any(name in self._rows or name in self.moved or name in self._to.rows for name in names) and all(
            name not in self._unreadable and self._to.readable(name) for name in names
        )

    def _in_branch(self, name: str) -> str:
        """The name of a value of the block, for the ops of a branch."""
        if self._are_numbers([name]):
            return name
        return self._rows_of_active(self._row_value(name))

    def _compute_in_branch(self, op: Operator, block: Block, values: dict[str, str], new: Mapping[str, str]) -> None:
        """Write an op of a branch.

        Args:
            values: name -> the value that it stands for; a name that the op overwrites stands for the result then.
            new: name that the branch overwrites -> the value that the branch gives it.
        """
        op.inputs = {slot: [values.get(name, name) for name in names] for slot, names in op.inputs.items()}
        values |= {name: new[name] for name in op.output_arg_names if name in new}
        op.outputs = {slot: [new.get(name, name) for name in names] for slot, names in op.outputs.items()}
        definition, reads = op.definition, {name for name in op.input_arg_names if name in self._rows}
        results = [block.find_var(name) for name in op.output_arg_names if name != EMPTY]
        if definition is None or definition.is_random or op.sub_blocks or any(var is None or var.persistable for var in results):
            raise NotRewritten
        if reads and op.type == "fill_constant_batch_size_like":
            with self._to.writing_to(block):
                add_constant(self._to, op, self._count, op.output("Out")[0])
            self._rows.update(op.output("Out"))
            return
        if reads and not self._is_by_rows(op):
            raise NotRewritten
        block.ops.append(op)
        self._note_rows(op)

    def choose(self, op: Operator) -> None:
        """Write the choice among the results of branches."""
        self._check(op)
        are_rows = {name in self._rows or name in self.moved for name in op.input("X")}
        if not self._are_numbers(op.input("Mask")) or len(are_rows) != 1:
            raise NotRewritten
        if are_rows.pop():
            op.inputs["X"] = [self._rows_of_active(self._row_value(name)) for name in op.input("X")]
            self._rows.update(op.output("Out"))
        self._numbers.update(op.input("Mask"))
        self._note_numbers(op)
        self.steps.append(copy_op(op, self.body))
        self.body.ops.append(op)

    def _append_op(self, op: Operator) -> None:
        """Write an op into the block."""
        self.steps.append(copy_op(op, self.body))
        with self._to.writing_to(self.body):
            self._visit(op)

    def draw(self, op: Operator) -> None:
        """Write a dropout, whose random numbers are for the longest sequence first, as in the loop."""
        if op.attr("is_test"):
            self._compute(op)
            return
        if op.input("Seed"):
            raise NotRewritten
        self._check(op)
        (x,), (out,) = op.input("X"), op.output("Out")
        var, value = self.body.var(out), self._row_value(x)
        shape = [self._count, *var.shape[1:]]
        if -1 in shape:
            raise NotRewritten
        ones = self._add("fill_constant", {}, shape=shape, dtype=var.dtype, value=1.0)
        drawn = self._to.fresh_name("drawn")
        declare_like(self.body, drawn, var)
        self.body.ops.append(copy_op(op, self.body, {x: ones, out: drawn}))
        self.body.ops[-1].attrs.setdefault(RANDOM_STREAM, out)
        self._noted(drawn, self.body, self.steps)
        ranks = self._to.index(Index(self.group, ranks_of, Extent.SEQUENCES))
        factors = self._add("take_rows", {"X": drawn, "Index": ranks})
        self._add("elementwise_mul", {"X": value, "Y": factors}, out, axis=-1)
        self._rows.add(out)
        self._unreadable.update(op.output("Mask"))

    def _unmoved(self, op: Operator) -> set[str]:
        """The inputs of an op that have not moved out of the block."""
        return {name for name in op.input_arg_names if name != EMPTY and name not in self.moved}

    def _check(self, op: Operator) -> None:
        """Raise `NotRewritten` for an op that reads what the recurrence has not, or writes to variables outside, or twice."""
        reads, outputs = self._unmoved(op), {name for name in op.output_arg_names if name != EMPTY}
        outer = reads - self.body.vars.keys()
        if op.sub_blocks or not self._unreadable.isdisjoint(reads) or not self._to.rows.keys().isdisjoint(outer):
            raise NotRewritten
        if any(self.body.var(name).persistable for name in outputs):
            raise NotRewritten
        if not outputs <= self.body.vars.keys() - self.moved.keys() - self._rows - self._to.rows.keys():
            raise NotRewritten
        for name in outer:
            self._to.readable(name)

    def _move_out(self, op: Operator, role: _Role) -> bool:
        """Compute an op outside of the loop, for all steps at once; False if that is impossible."""
        to, start = self._to, len(self.outside.ops)
        names = {name: self.moved[name].name for name in op.input_arg_names if name in self.moved}
        outputs = {name: self._declare_outside(name) for name in op.output_arg_names if name != EMPTY}
        moved = copy_op(op, self.outside, names | outputs)
        if not self._is_by_rows(moved):
            return False
        original = copy_op(moved, self.outside)
        try:
            self._visit(moved)
        except NotRewritten:
            del self.outside.ops[start:]
            return False
        self.segment.append(original)
        if role is _Role.STATIC:
            self._note_rows(moved)
        self._unreadable |= {name for name, new in outputs.items() if new not in to.rows and new not in self._rows}
        self.moved |= {name: _Moved(new, role) for name, new in outputs.items() if name not in self._unreadable}
        return True

    def _visit(self, op: Operator) -> None:
        """Write an op for padded rows."""
        if self.has_gradient:  # which may read all outputs
            self._to.read |= {*op.output_arg_names}
        self._to.visit(op)

    def _declare_outside(self, name: str) -> str:
        """Declare a variable outside like one of the block."""
        var, new = self.body.vars[name], self._to.fresh_name("moved")
        shape, dtype = var.shape if var.has_shape else None, var.dtype if var.has_dtype else None
        self.outside.create_var(name=new, shape=shape, dtype=dtype, stop_gradient=var.stop_gradient)
        return new

    def _is_by_rows(self, op: Operator) -> bool:
        """Whether an op computes each row, or each sequence, by itself."""
        definition, sequences = op.definition, {name for name in op.input_arg_names if name in self._to.rows}
        rows = {name for name in op.input_arg_names if name in self._rows}
        if op.type in _EXPANSIONS:
            return {*op.input("X")} == rows and {*op.input("Y")} == sequences
        if definition is None or (rows and sequences):
            return False
        if op.type in VIEWS:
            return len(op.input_arg_names) == 1 and keeps_rows(op, op.block.var(_x_of(op)), op.block.var(_out_of(op)))
        is_of_sequences = op.type in _OF_SEQUENCES and len(sequences) == 1 and not op.input("H0") and not op.input("C0")
        return (
            is_of_sequences
            or (op.type == "lod_reset" and bool(op.input("Y")))
            or computes_by_rows(op, definition, rows | sequences)
        )

    def _compute_in_block(self, op: Operator) -> None:
        """Write an op that depends on states into the recurrence."""
        to, is_constant = self._to, op.type == "fill_constant_batch_size_like"
        reads = {name for name in op.input_arg_names if name in self._rows or name in to.rows}
        if is_constant and reads and reads <= self._rows:
            with to.writing_to(self.body):
                add_constant(to, op, self._count, op.output("Out")[0])
            self.steps.append(self.body.ops[-1])
            self._rows.update(op.output("Out"))
            return
        if reads and not self._is_by_rows(op):
            raise NotRewritten
        if not all(self._is_static(name) for name in reads if name in to.rows):
            raise NotRewritten
        self._read_active(op)
        self._append_op(op)
        self._note_rows(self.steps[-1])
        self._note_numbers(self.steps[-1])
        if reads:
            self._unreadable |= {name for name in op.output_arg_names if name not in to.rows and name not in self._rows}

    def _is_static(self, name: str) -> bool:
        """Whether a value has one level of sequences, one for each sequence of the loop."""
        return has_as_many(self._to, self._to.rows[name], self.group)

    def _note_rows(self, op: Operator) -> None:
        """Note which outputs of an op have a row for each sequence."""
        if op.type == "sequence_pool":
            self._rows.update(op.output("Out"))
        elif op.definition is not None and not self._rows.isdisjoint(op.input_arg_names) and op.type not in _EXPANSIONS:
            outputs = [_out_of(op)] if op.type in VIEWS else outputs_of_rows(op, op.definition, self._rows)
            self._rows.update(name for name in outputs if name != EMPTY)

    # -- writing
    def store(self, op: Operator) -> None:
        """Note an output, or the new value of a state."""
        (x,), (array,) = op.input("X"), op.output("Out")
        target = self.updates if self._is_counted else self.outputs
        is_state = isinstance(self._to.loops.get(array), First)
        if op.input("I") != [self._counter] or x in self._unreadable or array in target or is_state != self._is_counted:
            raise NotRewritten
        target[array] = x

    def count(self, op: Operator) -> None:
        """Note that the step is counted."""
        if op.input("X") != [self._counter] or op.output("Out") != [self._counter] or op.attr("step") != 1 or self._is_counted:
            raise NotRewritten
        self._is_counted = True

    def compare(self, op: Operator) -> None:
        """Leave out the condition of the next trip; other comparisons stay."""
        if op.output("Out") != [self._condition]:
            self._compute(op)
        elif (
            op.input("X") != [self._counter]
            or fact_of(self._to, op.input("Y")[0], Table).group != self.group
            or not self._is_counted
        ):
            raise NotRewritten

    def copy(self, op: Operator) -> None:
        """Leave out a copy of the counter, which only the loop's gradient reads; other copies stay."""
        if op.input("X") == [self._counter]:
            self._unreadable.update(op.output("Out"))
        else:
            self._compute(op)

    def _row_value(self, name: str) -> str:
        """The name, for the recurrence, of a value with a row for each sequence."""
        value = self._value(name)
        if value not in self._rows:
            raise NotRewritten
        return value

    def _after(self, before: str, new: str) -> str:
        """The value of a state after a step: the new one; in the rows of sequences without a further step, the former one."""
        index, value = self._index_of_steps(goes_on, VarType.BOOL), self._row_value(new)
        condition = self._add("expand_to", {"X": self._slice(index, index), "Like": value}, axis=0)
        return self._add("where", {"Condition": condition, "X": value, "Y": before})

    def _stacked(self) -> dict[str, str]:
        """Array -> the name of its values of all steps, which the recurrence makes."""
        stacked: dict[str, str] = {}
        for array, name in self.outputs.items():
            moved = self.moved.get(name)
            if moved is not None and moved.role is _Role.STEPS and self._has_rows_of_steps(moved.name):
                self._to.loops[array] = Steps(self.group, self._to.hold(moved.name))
                continue
            stack = stacked[array] = self._add("assign", {"X": self._row_value(name)})
            var = self.body.var(stack)
            shape = [self._steps, self._count, *var.shape[1:]]
            if -1 in shape:
                raise NotRewritten
            self.outside.create_var(name=stack, shape=shape, dtype=var.dtype, stop_gradient=False)
        return stacked

    def _has_rows_of_steps(self, name: str) -> bool:
        """Whether a value outside has rows for each step, or sequences for each step."""
        return self.group in self._to.levels_of(self._to.rows[name].group)

    def _append(self, firsts: list[str], afters: list[str], stacked: Mapping[str, str]) -> None:
        """Append the recurrence, and write its results as rows of sequences."""
        index, befores = self._index_of_steps(goes_on, VarType.BOOL), [*self.states.values()]
        slices = list(dict.fromkeys(self._slices.values())) or [self._slice(index, index)]  # they tell the number of steps
        in_body = {name for op in self.body.ops for name in op.output_arg_names} | {*slices, *befores, EMPTY}
        in_body |= {name for block in nested_blocks(self.body.ops) for name in block.vars}
        reads = dict.fromkeys(name for op in walk(self.body.ops) for name in op.input_arg_names if name not in in_body)
        scopes = self._to.fresh_name("scopes")
        self.outside.create_var(name=scopes, type=VarType.STEP_SCOPES)
        states = {"has_states": bool(befores), "ex_states": befores, "states": afters}
        op = self.outside.append_op(
            "recurrent",
            {"inputs": slices, "initial_states": firsts, "parameters": [*reads]},
            {"outputs": [*stacked.values()], "step_scopes": [scopes]},
            {"sub_block": self.body, **states, "is_train": self.has_gradient},
            frames=self._op.frames,
        )
        self.segment.append(op)
        for array, stack in stacked.items():
            in_steps = self._add_outside("reshape", {"X": stack}, shape=[-1, *self.outside.var(stack).shape[2:]])
            places = self._to.index(Index(self.group, places_at_steps, padding=None))
            rows = self._add_outside("take_rows", {"X": in_steps, "Index": places})
            self._to.rows[rows] = RowFacts(self.group, True, Padding.COPIES)
            self._to.loops[array] = Steps(self.group, self._to.hold(rows))


def _reduced_axes(op: Operator, rank: int) -> list[int]:
    """The axes that an op reduces; empty if it reduces all."""
    return [] if op.type == "mean" or op.attr("reduce_all") else [axis % rank for axis in op.attr("dim")]


def _x_of(op: Operator) -> str:
    return op.input("X")[0]


def _out_of(op: Operator) -> str:
    return op.output("Out")[0]


_IN_BLOCK: dict[str, Callable[[Recurrence, Operator], None]] = {
    "read_from_array": Recurrence.read,
    SHRINKING: Recurrence.shrink,
    "write_to_array": Recurrence.store,
    "increment": Recurrence.count,
    "less_than": Recurrence.compare,
    "assign": Recurrence.copy,
    "dropout": Recurrence.draw,
    "split_lod_tensor": Recurrence.split,
    "merge_lod_tensor": Recurrence.merge,
    "conditional_block": Recurrence.branch,
    "select_input": Recurrence.choose,
    **dict.fromkeys(("mean", *(f"reduce_{kind}" for kind in ("sum", "mean", "max", "min", "all", "any"))), Recurrence.reduce),
}
"""Type of an op that makes a block a step -> what notes its part."""
