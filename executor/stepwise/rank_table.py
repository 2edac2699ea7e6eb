"""Rank tables, and sequences as arrays of time steps (see `fluid.ops.rank_table`)."""

from __future__ import annotations

from itertools import accumulate, chain, count, pairwise, starmap
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.ir.program import Operator
from fluid.opdef.registry import EMPTY
from fluid.values.lod_array import array_of, checked_lod, lengths_of, lod_of, with_lod
from fluid.values.place import to_numpy
from fluid.values.spec import Lod

from .active_rows import RankTable
from .control import array_in, position_of
from .handlers import runs
from .interpreter import Environment, Machine

__all__ = ["RankTable"]


def _input(op: Operator, slot: str, env: Environment) -> Any:
    return env.need(op.input(slot)[0])


def _table(op: Operator, env: Environment) -> RankTable:
    table = _input(op, "RankTable", env)
    if not isinstance(table, RankTable):
        raise ExecutionError(f"{op.input('RankTable')[0]} should be a rank table, made by lod_rank_table")
    return table


# --------------------------------------------------------------------------------------------------- parts of a value
def _rows_of(lod: Lod, start: int, end: int) -> tuple[int, int]:
    """The range of rows in the outermost entries `start` to `end` of a value with this LoD."""
    for level in lod:
        assert level is not None
        start, end = level[start], level[end]
    return start, end


def _gathered(xp: Any, value: Any, parts: list[tuple[int, int]]) -> Any:
    """The outermost entries (sequences or rows) of `value` in the ranges `parts`, one after the other."""
    array, lod = array_of(value), lod_of(value)
    rows = [_rows_of(lod, start, end) for start, end in parts] if lod else parts
    index = np.fromiter(chain.from_iterable(starmap(range, rows)), np.int64)
    return with_lod(array[xp.asarray(index)], _lod_of_parts(lod, parts))


def _lod_of_parts(lod: Lod, parts: list[tuple[int, int]]) -> Lod:
    levels: list[tuple[int, ...]] = []
    for level in lod:
        assert level is not None
        lengths = [length for first, last in parts for length in lengths_of(level[first : last + 1])]
        levels.append(tuple(accumulate(lengths, initial=0)))
        parts = [(level[first], level[last]) for first, last in parts]
    return tuple(levels)


def _concatenated(xp: Any, values: list[Any]) -> Any:
    """Values joined along the rows, with their sequences."""
    levels = max((len(lod_of(value)) for value in values), default=0)
    lod = []
    for depth in range(levels):
        lengths = [length for value in values for length in lengths_of(lod_of(value)[depth] or ())]
        lod.append(tuple(accumulate(lengths, initial=0)))
    return with_lod(xp.concatenate([array_of(value) for value in values]), tuple(lod))


def _count(value: Any) -> int:
    """The number of outermost entries: sequences or rows."""
    lod = lod_of(value)
    return len(lod[0]) - 1 if lod and lod[0] is not None else int(array_of(value).shape[0])


def _entries(xp: Any, value: Any, numbers: Any) -> Any:
    """The outermost entries with these indices: a list, or an array of numpy."""
    if not lod_of(value):
        return array_of(value)[xp.asarray(numbers, dtype="int64")]
    return _gathered(xp, value, [(number, number + 1) for number in numbers])


# -------------------------------------------------------------------------------------------------------- rank tables
@runs("lod_rank_table")
def lod_rank_table(machine: Machine, op: Operator, env: Environment) -> None:
    lod = checked_lod(lod_of(_input(op, "X", env)), op.input("X")[0])
    env.set(op.output("Out")[0], RankTable(lod, int(op.attr("level") or 0)))


@runs("max_sequence_len")
def max_sequence_len(machine: Machine, op: Operator, env: Environment) -> None:
    env.set(op.output("Out")[0], machine.xp.asarray([max(_table(op, env).lengths, default=0)], dtype="int64"))


@runs("lod_tensor_to_array")
def lod_tensor_to_array(machine: Machine, op: Operator, env: Environment) -> None:
    value, table = _input(op, "X", env), _table(op, env)
    lod = lod_of(value)[len(table.outer) :] or table.lod  # a gradient may come without a LoD
    offsets, rows = lod[0], with_lod(array_of(value), lod[1:])
    if offsets != table.offsets:
        raise ExecutionError(f"{op.input('X')[0]} has other sequences than the rank table was made of")
    counts = table.counts.tolist() or [0]  # at least one step, which has no rows if all sequences are empty
    parts = pairwise(accumulate(counts, initial=0))
    if lod_of(rows):
        env.set(op.output("Out")[0], [_entries(machine.xp, rows, table.rows[start:end]) for start, end in parts])
        return
    in_order = _entries(machine.xp, rows, table.rows)
    env.set(op.output("Out")[0], [in_order[start:end] for start, end in parts])


@runs("array_to_lod_tensor")
def array_to_lod_tensor(machine: Machine, op: Operator, env: Environment) -> None:
    table, xp = _table(op, env), machine.xp
    array = list(array_in(op, "X", env))  # absent if the loop that writes it made no trip
    steps = max(table.lengths, default=0)
    present = [value for value in array if value is not None] or [_without_rows(op, xp, steps)]
    like = array_of(present[0])
    array += [None] * (steps - len(array))
    for step, value in enumerate(array):
        if value is None:  # never written: zeros
            array[step] = xp.zeros((table.active(step), *like.shape[1:]), like.dtype)
        elif _count(value) != table.active(step):
            raise ExecutionError(
                f"entry {step} of {op.input('X')[0]} has {_count(value)} rows, but {table.active(step)} sequences have that step"
            )
    rows = _entries(xp, _concatenated(xp, array[:steps]) if steps else present[0], np.argsort(table.rows))
    env.set(op.output("Out")[0], with_lod(array_of(rows), (*table.outer, table.offsets, *lod_of(rows))))


def _without_rows(op: Operator, xp: Any, steps: int) -> Any:
    """A tensor without rows, of the declared shape of the output, if there are no steps."""
    var = op.block.var(op.output("Out")[0])
    if steps or not var.has_shape or -1 in var.shape[1:]:
        raise ExecutionError(f"the array {op.input('X')[0]} has no entry to make sequences of")
    return xp.empty((0, *var.shape[1:]), var.dtype.array_dtype)


@runs("shrink_rnn_memory")
def shrink_rnn_memory(machine: Machine, op: Operator, env: Environment) -> None:
    value = _input(op, "X", env)
    active = _table(op, env).active(position_of(op, env))
    env.set(op.output("Out")[0], _gathered(machine.xp, value, [(0, active)]))


@runs("reorder_lod_tensor_by_rank")
def reorder_lod_tensor_by_rank(machine: Machine, op: Operator, env: Environment) -> None:
    _reorder(machine, op, env, _table(op, env).order)


@runs("reorder_lod_tensor_by_rank_grad")
def reorder_lod_tensor_by_rank_grad(machine: Machine, op: Operator, env: Environment) -> None:
    order = _table(op, env).order
    _reorder(machine, op, env, [order.index(number) for number in range(len(order))])


def _reorder(machine: Machine, op: Operator, env: Environment, order: list[int]) -> None:
    value = _input(op, "X", env)
    if _count(value) != len(order):
        raise ExecutionError(f"{op.input('X')[0]} has {_count(value)} sequences or rows, but the rank table has {len(order)}")
    env.set(op.output("Out")[0], _entries(machine.xp, value, order))


# ---------------------------------------------------------------------------------------------------------- two parts
def _chosen(op: Operator, env: Environment) -> list[bool]:
    return [bool(item) for item in to_numpy(array_of(_input(op, "Mask", env))).reshape(-1)]


def _at_level(op: Operator, value: Any) -> Lod:
    """The LoD of `value` from the level of the op on; without sequences, the entries are rows."""
    level = int(op.attr("level") or 0)
    lod = lod_of(value)
    if lod and level >= len(lod):
        raise ExecutionError(f"{op.type} works on level {level}, but the tensor has {len(lod)} levels of sequences")
    return lod[level:]


@runs("split_lod_tensor")
def split_lod_tensor(machine: Machine, op: Operator, env: Environment) -> None:
    full, mask = _input(op, "X", env), _chosen(op, env)
    value = with_lod(array_of(full), _at_level(op, full))
    if _count(value) != len(mask):
        raise ExecutionError(f"the mask has {len(mask)} elements, but {op.input('X')[0]} has {_count(value)} sequences or rows")
    for slot, wanted in (("OutTrue", True), ("OutFalse", False)):
        (name,) = op.output(slot) or [EMPTY]
        if name != EMPTY:
            env.set(name, _entries(machine.xp, value, [number for number, chosen in enumerate(mask) if chosen is wanted]))


@runs("merge_lod_tensor", "merge_lod_tensor_infer")
def merge_lod_tensor(machine: Machine, op: Operator, env: Environment) -> None:
    xp, mask = machine.xp, _chosen(op, env)
    halves = [_input(op, slot, env) for slot in ("InFalse", "InTrue")]
    if [_count(half) for half in halves] != [mask.count(False), mask.count(True)]:
        raise ExecutionError(
            f"the mask asks for {mask.count(True)} and {mask.count(False)} rows, but InTrue has {_count(halves[1])} "
            f"and InFalse {_count(halves[0])}"
        )
    positions = [count(0), count(mask.count(False))]  # of the next row of InFalse, and of InTrue
    order = [next(positions[chosen]) for chosen in mask]
    env.set(op.output("Out")[0], _entries(xp, _concatenated(xp, halves), order))
