"""Loops over the steps of sequences, as `DynamicRNN` makes them, in programs with padded rows (see `recurrences`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fluid.ir.program import Operator, Program
from fluid.opdef.registry import grad_slot

from .padded_labels import ON_STEPS
from .padded_ops import is_zero
from .padded_rows import REWRITES, NotRewritten, Padding, Rewriter, RowFacts
from .recurrence_gradients import write_gradient
from .recurrences import Recurrence, add_constant
from .sequence_batch import SequenceBatch
from .step_facts import Condition, First, FirstGradients, Ranked, Steps, Table, fact_of, has_as_many

__all__ = ["has_steps", "is_skewed"]

_MOST_PADDING, _FEW_ROWS = 4, 1024
"""The most rows of all steps for each row with padding, and a number of rows that is always small enough. Beyond both, the loop
that leaves out sequences as they end is faster."""
_rewrites = REWRITES.register


def has_steps(program: Program) -> bool:
    """Whether a program has loops over the steps of sequences, or ops that become ops on padded steps."""
    return any(op.type in ("lod_rank_table", *ON_STEPS) for op in program.global_block().ops)


def is_skewed(batch: SequenceBatch) -> bool:
    """Whether padding all sequences to the longest one would cost more than it saves."""
    pairs = zip(batch.sizes, batch.steps, strict=False)
    return any(count * steps > max(_MOST_PADDING * capacity, _FEW_ROWS) for (count, capacity), steps in pairs)


# --------------------------------------------------------------------------------------------------- ops around the loop
@_rewrites("lod_rank_table")
def _rewrite_table(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    levels = to.levels_of(to.rows_with_lod(op, "X").group)
    level = int(op.attr("level") or 0)
    if not 0 <= level < len(levels):
        raise NotRewritten
    to.loops[op.output("Out")[0]] = Table(levels[level])
    return {}


@_rewrites("max_sequence_len")
def _rewrite_length(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    to.loops[op.output("Out")[0]] = fact_of(to, op.input("RankTable")[0], Table)
    return {}


@_rewrites("less_than")
def _rewrite_condition(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (counter,), table = op.input("X"), fact_of(to, op.input("Y")[0], Table)
    if not is_zero(to, counter):
        raise NotRewritten
    to.loops[op.output("Out")[0]] = Condition(table.group, counter)
    return {}


@_rewrites("lod_tensor_to_array")
def _rewrite_to_array(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    table, (x,), rows = fact_of(to, op.input("RankTable")[0], Table), op.input("X"), to.rows_of(op, "X")
    if table.group not in to.levels_of(rows.group) or not (rows.has_lod or rows.group == table.group):
        raise NotRewritten  # gradients may come without a LoD
    to.loops[op.output("Out")[0]] = Steps(table.group, to.hold(x))
    return {}


@_rewrites("read_from_array")
def _rewrite_read(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Note the first step's rows, read for their number alone; or write the gradient of the first value of a state."""
    (out,), fact = op.output("Out"), to.loops.get(op.input("X")[0])
    if not is_zero(to, op.input("I")[0]):
        raise NotRewritten
    if isinstance(fact, FirstGradients):
        return fact.write(to, op)
    to.loops[out] = Ranked(fact_of(to, op.input("X")[0], Steps).group, "")
    return {}


@_rewrites("fill_constant_batch_size_like")
def _rewrite_constant(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Write a constant with a row for each sequence."""
    ranked, (out,) = fact_of(to, op.input("Input")[0], Ranked), op.output("Out")
    value = add_constant(to, op, to.sizes[ranked.group][0])
    to.loops[out] = Ranked(ranked.group, value)
    return {}


@_rewrites("reorder_lod_tensor_by_rank")
def _rewrite_order(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Note that a value is ranked. The recurrence needs no order."""
    (x,), table = op.input("X"), fact_of(to, op.input("RankTable")[0], Table)
    rows = to.rows.get(x)
    if rows is not None and not (rows.has_lod and has_as_many(to, rows, table.group)):
        raise NotRewritten
    to.loops[op.output("Out")[0]] = Ranked(table.group, to.hold(x if rows is not None else to.readable(x)))
    return {}


@_rewrites("reorder_lod_tensor_by_rank_grad")
def _rewrite_order_gradient(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    ranked, (out,) = fact_of(to, op.input("X")[0], Ranked), op.output("Out")
    to.add(op, "assign", {"X": ranked.value}, out)
    return {out: to.rows[ranked.value]} if ranked.value in to.rows else {}


@_rewrites("sum")
def _rewrite_sum(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Note a copy of an array."""
    names, (out,) = op.input("X"), op.output("Out")
    if len(names) > 1:
        raise NotRewritten
    to.loops[out] = fact_of(to, names[0], (Steps, FirstGradients))
    return {}


@_rewrites("write_to_array")
def _rewrite_write(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Note the first entry of an array, which holds the first value of a state."""
    (x,), (out,) = op.input("X"), op.output("Out")
    if x in to.rows or op.attr("clears") or not is_zero(to, op.input("I")[0]) or out in to.loops:
        raise NotRewritten
    to.loops[out] = First(x if x in to.loops else to.hold(to.readable(x)))
    return {}


@_rewrites("array_to_lod_tensor")
def _rewrite_from_array(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Write the rows of all steps as rows of sequences."""
    steps, table, (out,) = fact_of(to, op.input("X")[0], Steps), fact_of(to, op.input("RankTable")[0], Table), op.output("Out")
    rows = to.rows[steps.rows]
    if steps.group != table.group or table.group not in to.levels_of(rows.group):
        raise NotRewritten
    to.add(op, "assign", {"X": steps.rows}, out)
    return {out: replace(rows, has_lod=True)}


@_rewrites("while")
def _rewrite_loop(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    recurrence = Recurrence(to, op)
    recurrence.write()
    to.loops |= dict.fromkeys(op.output("StepScopes"), recurrence)
    return {}


@_rewrites("while_grad")
def _rewrite_loop_gradient(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    write_gradient(to, op, fact_of(to, op.input("StepScopes")[0], Recurrence))
    return {}


@_rewrites("take_rows_grad")
def _rewrite_take_gradient(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Add the gradients of the rows of steps, or of their sequences."""
    (x,), (index,), (gradient,) = op.input("X"), op.input("Index"), op.input(grad_slot("Out"))
    (out,) = op.output(grad_slot("X"))
    if index not in to.indices:
        raise NotRewritten
    gradient = to.with_zeros(op, gradient) if gradient in to.rows else gradient
    to.add(op, "add_rows", {"X": gradient, "Index": index, "Like": x}, out)
    return {out: replace(to.rows[x], padding=Padding.ZEROS)} if x in to.rows else {}
