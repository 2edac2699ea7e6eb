"""Programs as graphs, for networkx and graphviz."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..ir.checked import checked
from ..ir.program import Block, OpRole, Parameter, Program
from ..ir.versions import BlockVersions, Value
from ..not_here import names_here

if TYPE_CHECKING:
    from networkx import DiGraph

__all__ = ["OpNode", "ValueNode", "to_dot", "to_networkx"]

__dir__ = names_here(__name__)

ValueNode = tuple[int, str, int]
"""Block number, name and version of a value; version 0 is the value when the block starts."""
OpNode = tuple[int, int]
"""Block number and position of an op."""


@checked
def to_networkx(program: Program) -> DiGraph[OpNode | ValueNode]:
    """A directed graph of ops and values: edges go from each value to the ops that read it, and from each op to its outputs.

    An op is an `OpNode` with the attributes ``op`` (the `Operator`) and ``label``; a value is a `ValueNode` with ``var`` (the
    `Variable`, or None if undeclared) and ``label``. Edges have the slot as ``slot``. Edges also join a value that a sub-block
    reads from outside, or writes there, to the value in the block around it.

    >>> y = layers.relu(fluid.data("x", [None, 2]))
    >>> graph = fluid.graph.to_networkx(fluid.default_main_program())
    >>> sorted(data["label"] for _, data in graph.nodes(data=True))
    ['relu', 'relu_0.tmp_0', 'x']
    """
    import networkx

    graph: DiGraph[OpNode | ValueNode] = networkx.DiGraph()
    _add_block(graph, program.global_block(), set())
    return graph


def _add_block(graph: DiGraph[OpNode | ValueNode], block: Block, seen: set[int]) -> BlockVersions:
    seen.add(block.idx)
    versions = BlockVersions(block)

    def node(value: Value) -> ValueNode:
        key = (block.idx, *value)
        if key not in graph:
            label = value[0] if value[1] < 2 else f"{value[0]} ({value[1]})"
            graph.add_node(key, var=block.find_var(value[0]), label=label)
        return key

    for index, op in enumerate(versions.ops):
        here: OpNode = (block.idx, index)
        graph.add_node(here, op=op, label=op.type)
        for slot, _, value in versions.read_at(index):
            graph.add_edge(node(value), here, slot=slot)
        for slot, _, value in versions.written_at(index):
            graph.add_edge(here, node(value), slot=slot)
        before = {value[0]: value for _, _, value in versions.read_at(index)}
        after = {value[0]: value for _, _, value in versions.written_at(index)}
        for sub in [sub for sub in op.sub_blocks if sub.idx not in seen]:
            inner = _add_block(graph, sub, seen)
            for name in [name for name in inner.read_first if name in before and name not in sub.vars]:
                graph.add_edge(node(before[name]), (sub.idx, name, 0), slot="")
            for name in [name for name in inner.last if name in after and name not in sub.vars]:
                graph.add_edge((sub.idx, name, inner.last[name]), node(after[name]), slot="")
    return versions


# ---------------------------------------------------------------------------------------------------------------- dot
_COLOURS = ((OpRole.OPTIMIZE, "#e8d5f0"), (OpRole.BACKWARD, "#fbe0c8"), (OpRole.LR_SCHED, "#e8d5f0"), (0, "#d6e6f5"))


@checked
def to_dot(program: Program) -> str:
    """The program in graphviz's language: ops as boxes, values as ovals, sub-blocks as boxes around their contents.

    Parameters are bold; gradient ops and optimizers have their own colours. ``dot -Tsvg`` draws it.

    >>> y = layers.relu(fluid.data("x", [None, 2]))
    >>> fluid.graph.to_dot(fluid.default_main_program()).splitlines()[0]
    'digraph program {'
    """
    graph = to_networkx(program)
    node_lines: dict[int, list[str]] = {}
    for node, data in graph.nodes(data=True):
        node_lines.setdefault(node[0], []).append(f"{_identity(node)} [{_look(data)}];")
    lines = ["digraph program {", "  rankdir=TB;", '  node [fontname="sans-serif", fontsize=10];']
    owners = {sub.idx: block.idx for block in program.blocks for op in block.ops for sub in op.sub_blocks}
    lines += _cluster(0, node_lines, owners, "  ")
    slot: Any
    for source, target, slot in graph.edges(data="slot"):
        label = f" [label={_quoted(slot)}, fontsize=8]" if slot and slot not in ("X", "Out") else ""
        lines.append(f"  {_identity(source)} -> {_identity(target)}{label};")
    return "\n".join([*lines, "}"]) + "\n"


def _cluster(number: int, node_lines: dict[int, list[str]], owners: dict[int, int], indent: str) -> Iterator[str]:
    if number:
        yield f"{indent}subgraph cluster_{number} {{"
        yield f'{indent}  label="block {number}"; color="#999999";'
    for line in node_lines.get(number, ()):
        yield f"{indent if number == 0 else indent + '  '}{line}"
    for sub, owner in owners.items():
        if owner == number and sub in node_lines:
            yield from _cluster(sub, node_lines, owners, indent + "  ")
    if number:
        yield f"{indent}}}"


def _identity(node: OpNode | ValueNode) -> str:
    return _quoted(" ".join(map(str, node)))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _look(data: dict[str, Any]) -> str:
    if "op" in data:
        role = data["op"].role
        colour = next(colour for bit, colour in _COLOURS if not bit or role & bit)
        return f'shape=box, style=filled, fillcolor="{colour}", label={_quoted(data["label"])}'
    var = data.get("var")
    label = data["label"] + (f"\n{var.describe()}" if var is not None else "")
    return f"shape=ellipse, label={_quoted(label)}" + (", style=bold" if isinstance(var, Parameter) else "")
