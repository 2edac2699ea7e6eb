"""The order of nodes: each node after those whose outputs it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import FormatError


def in_order(nodes: Sequence[Any]) -> Sequence[Any]:
    """Sort the nodes of a graph so that each follows the nodes whose outputs it reads; otherwise, they keep their order.

    Args:
        nodes: the messages of one graph; names that none of them computes are not looked at.

    Raises:
        FormatError: nodes read each other's outputs in a circle.
    """
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    before = [sorted({makers[name] for name in _names_read(node) if name in makers}) for node in nodes]
    if all(not places or places[-1] < place for place, places in enumerate(before)):
        return nodes
    import networkx  # takes a tenth of a second

    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(range(len(nodes)))
    graph.add_edges_from((maker, place) for place, places in enumerate(before) for maker in places)
    try:
        return [nodes[place] for place in networkx.lexicographical_topological_sort(graph)]
    except networkx.NetworkXUnfeasible:
        maker, _ = networkx.find_cycle(graph)[-1]
        raise FormatError(
            f"the node that makes {nodes[maker].output[0]!r} is part of a circle of nodes that read each other"
        ) from None


def _names_read(node: Any) -> Iterator[str]:
    """The names that a node reads, including the outer names that its graphs read."""
    yield from node.input
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.type == 5 else attribute.graphs:
            local = {name for inner in graph.node for name in inner.output}
            local |= {value.name for value in (*graph.input, *graph.initializer)}
            read = [name for inner in graph.node for name in _names_read(inner)]
            yield from (name for name in (*read, *(output.name for output in graph.output)) if name not in local)
