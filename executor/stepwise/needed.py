"""The ops of a program that a run needs."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.ir.dataflow import needed_ops
from fluid.ir.program import Block, Operator
from fluid.ir.verify import refuse_deep
from fluid.ir.versions import BlockVersions

from .debug import has_effect

__all__ = ["ops_to_run", "versions_to_run"]

_EDGES = ("feed", "fetch")
"""Ops that only mark what the executor feeds and fetches."""


def ops_to_run(block: Block, fetches: Sequence[str]) -> list[Operator]:
    """The ops of block 0 that a fetch, a persistable variable or the outside world needs, in order."""
    return versions_to_run(block, fetches).ops


def versions_to_run(block: Block, fetches: Sequence[str]) -> BlockVersions:
    """The value versions of the ops to run; the versions of the full block if all its ops run."""
    refuse_deep(block.program)
    versions = BlockVersions(block)

    def runs_anyway(op: Operator) -> bool:
        if op.type in _EDGES:
            return False
        if not any(op.outputs.values()) or has_effect(op):
            return True
        return any((var := block.vars.get(name)) is not None and var.persistable for name in op.output_arg_names)

    indexes = needed_ops(versions, {versions.current(name) for name in fetches}, also=runs_anyway)
    ops = [op for index in indexes if (op := versions.ops[index]).type not in _EDGES]
    unwritten = {(index, slot) for index, op in enumerate(ops) for slot in _unchanged_outputs(op)}
    if len(ops) == len(versions.ops) and not unwritten:
        return versions
    shadow = Block.__new__(Block)
    shadow.program, shadow.vars, shadow.ops = block.program, block.vars, ops
    return BlockVersions(shadow, unwritten)


def _unchanged_outputs(op: Operator) -> list[str]:
    """The output slots whose variables keep the values that they have: they are inputs, too, which the op passes on."""
    definition = op.definition
    if definition is None or definition.passes_on is None:
        return []
    passed = definition.passes_on(definition.defaults(op.attrs))
    return [slot for slot, source in passed.items() if op.output(slot) and op.output(slot) == op.input(source)]
