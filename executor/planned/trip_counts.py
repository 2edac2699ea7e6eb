"""Counts trips of loops while planning, by computing the ops on constants that their conditions depend on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fluid.errors import FluidError
from fluid.ir.dataflow import needed_ops
from fluid.ir.program import Operator
from fluid.ir.regions import Region
from fluid.ir.versions import BlockVersions, Value, outer_names
from fluid.opdef.registry import EMPTY, by_slot

from ..binding.compiled import apply_op
from ..kernels.table import kernel_of

MOST_TRIPS = 1 << 12
"""The most trips that are counted while planning: counting one takes some ten microseconds."""


def count_trips(op: Operator, region: Region, most: int) -> int | None:
    """Count the trips of a ``while`` from constants; None if its condition depends on anything else, or if they are too many."""
    (condition,) = op.input("Condition")
    versions = BlockVersions(region.body)
    needed = {versions.current(condition)}
    inner = [versions.ops[index] for index in needed_ops(versions, needed, carried=region.carried)]
    values = constants_before(op, {condition, *(name for name, version in needed if not version)})
    if values is None:
        return None
    for count in range(most + 1):
        if not values[condition].item():
            return count
        if not all(_add_outputs(one, values) for one in inner):
            return None
    return None


def bound_trips(op: Operator, region: Region, most: int) -> int | None:
    """The number of trips of a ``while`` that a part of its condition allows, which constants decide; None if there is none.

    Values may end the loop earlier: one of them is false when a sentence is over, another one counts.
    """
    versions = BlockVersions(region.body)
    counts = (
        _count_while(op, region, versions, part, most)
        for part in _conjuncts(versions, versions.current(op.input("Condition")[0]))
    )
    return min((count for count in counts if count is not None), default=None)


def _conjuncts(versions: BlockVersions, value: Value) -> Iterator[Value]:
    """The truths that all hold if a truth does."""
    index = versions.writer.get(value)
    kind = versions.ops[index].type if index is not None else ""
    if index is None or kind not in ("assign", "logical_and"):
        yield value
        return
    for slot in ("X", "Y") if kind == "logical_and" else ("X",):
        for part in versions.reads[index][slot]:
            if part is not None:
                yield from _conjuncts(versions, part)


def _count_while(op: Operator, region: Region, versions: BlockVersions, truth: Value, most: int) -> int | None:
    """Count the trips, at least one, until a truth of the block does not hold; None if constants do not decide it."""
    if versions.current(truth[0]) != truth:
        return None
    needed = {truth}
    inner = [versions.ops[index] for index in needed_ops(versions, needed, carried=region.carried)]
    values = constants_before(op, {name for name, version in needed if not version})
    if values is None:
        return None
    for count in range(1, most + 1):
        if not all(_add_outputs(one, values) for one in inner):
            return None
        if not values[truth[0]].item():
            return count
    return None


def constants_before(op: Operator, names: Iterable[str]) -> dict[str, Any] | None:
    """Compute the values that names have before an op from constants; returns None if they depend on anything else."""
    needed, chosen = set(names), list[Operator]()
    earlier = op.block.ops[: op.block.ops.index(op)]
    for one in reversed(earlier):
        if not needed.isdisjoint(one.output_arg_names):
            chosen.append(one)
            needed.difference_update(one.output_arg_names)
            needed.update(_inputs(one))
    values = _constants_outside(op, needed) if needed else dict[str, Any]()
    if values is None:
        return None
    return values if all(_add_outputs(one, values) for one in reversed(chosen)) else None


def _constants_outside(op: Operator, names: set[str]) -> dict[str, Any] | None:
    """The values that names have in each run of the block that an op is in, from constants outside; None if they have others."""
    block, parent = op.block, op.block.parent
    owner = next((one for one in parent.ops if block in one.sub_blocks), None) if parent is not None else None
    if owner is None or not names.isdisjoint(outer_names(block)[1]) or not names.isdisjoint(block.vars):
        return None
    return constants_before(owner, names)


def _inputs(op: Operator) -> list[str]:
    return [name for name in op.input_arg_names if name != EMPTY]


def _add_outputs(op: Operator, values: dict[str, Any]) -> bool:
    """Compute an op from known values, and add its outputs to them. Returns False if the op draws, owns a block, or fails."""
    definition, kernel = op.definition, kernel_of(op.type)
    if definition is None or op.sub_blocks or kernel is None or any(name not in values for name in _inputs(op)):
        return False
    if kernel.reads_lods or any(key == "rng" for _, _, key in kernel.parameters):
        return False
    arrays = by_slot(definition.inputs, op.inputs, values.get)
    wanted = {slot for slot, listed in op.outputs.items() if any(name != EMPTY for name in listed)}
    try:
        results = apply_op(op.type, arrays, definition.defaults(op.attrs), wanted=wanted)
    except (FluidError, ArithmeticError, LookupError, TypeError, ValueError):
        return False  # running it will report the error
    for slot, listed in op.outputs.items():
        value = results.get(slot)
        pairs = zip(listed, value if isinstance(value, list) else [value], strict=False)
        values.update((name, item) for name, item in pairs if name != EMPTY and item is not None)
    return True
