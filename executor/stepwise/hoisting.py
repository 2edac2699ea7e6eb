"""Ops of a loop's block that compute the same in each trip, and decide sizes: they run once, before the loop.

Compiled code needs the sizes of all values. So the size of a `range` has to be known before the first trip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import chain

from fluid.ir.program import Operator
from fluid.ir.regions import Region
from fluid.opdef.registry import EMPTY
from fluid.ops.numbers import is_sized_by_values
from fluid.values.types import VarType

from .handlers import HANDLERS

__all__ = ["hoisted_ops"]


def hoisted_ops(region: Region, captured: Collection[str]) -> list[Operator]:
    """The ops of a region's block that have the same results in each trip, of a size that depends on values; and their makers.

    Args:
        captured: names whose values gradient blocks read from each trip.
    """
    ops = region.body.ops
    if region.frames is not None or not any(map(is_sized_by_values, ops)):
        return []
    invariant = _invariant_ops(region, captured)
    needed, hoisted = set[str](), list[Operator]()
    for op in reversed(invariant):
        if is_sized_by_values(op) or not needed.isdisjoint(op.output_arg_names):
            hoisted.insert(0, op)
            needed.update(op.input_arg_names)
    return hoisted


def _invariant_ops(region: Region, captured: Collection[str]) -> list[Operator]:
    """The ops of a region's block that have the same results in each trip, in order."""
    block = region.body
    writers = Counter(chain.from_iterable(op.output_arg_names for op in block.ops))
    varying = {*captured, *region.writes, *(name for name, _ in region.slices), *region.leaving.values()}
    varying.update(chain.from_iterable((state.before, state.after) for state in region.states))
    varying.update(name for name, count in writers.items() if count > 1 or name not in block.vars)
    invariant: list[Operator] = []
    for op in block.ops:
        names = {*op.input_arg_names, *op.output_arg_names} - {EMPTY}
        if varying.isdisjoint(names) and _is_function(op) and all(_is_tensor(region, name) for name in names):
            invariant.append(op)
        else:
            varying.update(op.output_arg_names)
    return invariant


def _is_function(op: Operator) -> bool:
    """Whether an op computes its results from its inputs alone."""
    definition = op.definition
    if definition is None or definition.is_random or definition.updated:
        return False
    return op.type not in HANDLERS and not op.sub_blocks


def _is_tensor(region: Region, name: str) -> bool:
    var = region.body.find_var(name)
    return var is not None and var.type is VarType.LOD_TENSOR
