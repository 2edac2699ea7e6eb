"""Programs as graphs, for the algorithms of networkx."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .framework import Block, Operator, Program
from .versions import BlockVersions, Value

if TYPE_CHECKING:
    from networkx import DiGraph

__all__ = ["OpNode", "ValueNode", "to_networkx"]

ValueNode = tuple[int, str, int]
"""Block number, name, version of a value; version 0 is what the block finds."""
OpNode = tuple[int, int]
"""Block number and position of an op."""


def to_networkx(program: Program) -> DiGraph[OpNode | ValueNode]:
    """A directed graph of ops and values: an edge from each value to the ops that read it, and from an op to what it makes.

    Ops are `OpNode`s with the attributes ``op`` (the `Operator`) and ``label``; values are `ValueNode`s with ``var`` (the
    `Variable`, or None if undeclared) and ``label``. Edges have the slot as ``slot``. What a block reads from outside is
    joined to the value of the block around it that the op which owns the block sees, and what it leaves there, likewise.
    """
    import networkx

    graph: DiGraph[OpNode | ValueNode] = networkx.DiGraph()
    _add_block(graph, program.global_block(), set())
    return graph


def _add_block(graph: DiGraph[OpNode | ValueNode], block: Block, seen: set[int]) -> BlockVersions:
    seen.add(block.idx)
    versions = BlockVersions(block)

    def node(value: Value) -> ValueNode:
        found = (block.idx, *value)
        if found not in graph:
            label = value[0] if value[1] < 2 else f"{value[0]} ({value[1]})"
            graph.add_node(found, var=block.find_var(value[0]), label=label)
        return found

    for index, op in enumerate(versions.ops):
        here: OpNode = (block.idx, index)
        graph.add_node(here, op=op, label=op.type)
        for slot, _, value in versions.read_at(index):
            graph.add_edge(node(value), here, slot=slot)
        for slot, _, value in versions.written_at(index):
            graph.add_edge(here, node(value), slot=slot)
        before = {value[0]: value for _, _, value in versions.read_at(index)}
        after = {value[0]: value for _, _, value in versions.written_at(index)}
        for sub in _owned(op, seen):
            inner = _add_block(graph, sub, seen)
            for name in [name for name in inner.read_first if name in before and name not in sub.vars]:
                graph.add_edge(node(before[name]), (sub.idx, name, 0), slot="")
            for name in [name for name in inner.last if name in after and name not in sub.vars]:
                graph.add_edge((sub.idx, name, inner.last[name]), node(after[name]), slot="")
    return versions


def _owned(op: Operator, seen: set[int]) -> list[Block]:
    return [block for block in op.sub_blocks if block.idx not in seen]
