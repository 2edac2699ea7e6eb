"""Put the nodes of a graph into boxes: one for each part of the forward ops, with boxes for its gradients and updates beside
it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..ir.program import OpRole, Parameter
from .graph import BACKWARD, FORWARD, UPDATE, Area, ViewGraph, ViewNode
from .grouping import Part, find_parts
from .pairs import base_name

Chain = tuple[Part, ...]
"""The parts around a node, outermost first."""


def add_boxes(graph: ViewGraph) -> None:
    """Add a box for each part to the graph, with an area for its contents."""
    members: dict[int, list[int]] = defaultdict(list)
    for number, node in enumerate(graph.nodes):
        if node.op is not None:
            members[graph.areas[node.area].first].append(number)
    for block, numbers in members.items():
        forward = [number for number in numbers if graph.nodes[number].block == block and graph.nodes[number].kind == FORWARD]
        parts = find_parts(graph, forward)
        if parts:
            chains = _Chains(graph, parts).of(numbers)
            _Boxes(graph, chains).add(parts)


class _Chains:
    """The parts of the nodes of a block and of its gradient blocks."""

    def __init__(self, graph: ViewGraph, parts: Sequence[Part]) -> None:
        self.graph = graph
        self.chains: dict[int, Chain] = {}
        self.by_name: dict[str, Chain] = {}
        self._enter(parts, ())

    def _enter(self, items: Iterable[int | Part], around: Chain) -> None:
        for item in items:
            if isinstance(item, Part):
                self._enter(item.items, (*around, item))
            else:
                self.chains[item] = around

    def of(self, numbers: Sequence[int]) -> dict[int, Chain]:
        """Node -> its parts."""
        nodes, values = self.graph.nodes, self.graph.values
        for number in numbers:
            if nodes[number].kind == FORWARD:
                chain = self.chains.setdefault(number, ())
                self.by_name.update((values[value].name, chain) for value in nodes[number].all_writes())
                for value in nodes[number].all_reads():
                    self.by_name.setdefault(values[value].name, chain)
        for number in numbers:
            if nodes[number].kind != FORWARD:
                self.chains[number] = self._parts_beside(nodes[number])
        return self.chains

    def _parts_beside(self, node: ViewNode) -> Chain:
        """The parts of a gradient op or an update: the parts of the forward ops whose values it names."""
        if node.made_from in self.chains:
            return self.chains[node.made_from]
        values = [self.graph.values[value] for value in (*node.all_reads(), *node.all_writes())]
        names = {base_name(value.name) or (value.name if isinstance(value.var, Parameter) else None) for value in values}
        roles = node.op.attrs.get(OpRole.VARS) if node.op is not None else None
        names.update(name for name in (roles if isinstance(roles, list) else ()) if isinstance(name, str))
        chains = [self.by_name[name] for name in names if name in self.by_name]
        if not chains:
            makers = {self.graph.values[value].node for value in node.all_reads()} & self.chains.keys()
            chains = [
                self.chains[maker] for maker in makers if maker in self.chains and self.graph.nodes[maker].kind == node.kind
            ]
        return _common(chains)


def _common(chains: Sequence[Chain]) -> Chain:
    """The parts that all chains begin with."""
    common = []
    for parts in zip(*chains, strict=False):
        if any(part is not parts[0] for part in parts):
            break
        common.append(parts[0])
    return tuple(common)


class _Boxes:
    def __init__(self, graph: ViewGraph, chains: dict[int, Chain]) -> None:
        self.graph = graph
        self.insides: dict[Part, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
        self.innermost: dict[int, Part] = {}
        self.boxes: dict[Part, int] = {}
        for number, chain in chains.items():
            for part in chain:
                self.insides[part][graph.nodes[number].block, graph.nodes[number].kind].append(number)
            if chain:
                self.innermost[number] = chain[-1]
        self.readers: dict[int, list[int]] = defaultdict(list)
        for number, node in enumerate(graph.nodes):
            for value in node.all_reads():
                self.readers[value].append(number)

    def add(self, parts: Iterable[Part], around: dict[tuple[int, int], int] | None = None) -> None:
        """Add boxes for parts and for nested parts; `around` maps block and kind to the surrounding area."""
        for part in parts:
            areas: dict[tuple[int, int], int] = {}
            for key, members in sorted(self.insides[part].items(), key=lambda item: item[0][1]):
                areas[key] = self._add_box(part, key, members, (around or {}).get(key, key[0]))
            first = min(areas.values())
            for area in areas.values():
                self.graph.areas[area].first = first
            for key, members in self.insides[part].items():
                for number in members:
                    if self.innermost[number] is part:
                        self.graph.nodes[number].area = areas[key]
            self.add((item for item in part.items if isinstance(item, Part)), areas)

    def _add_box(self, part: Part, key: tuple[int, int], members: Sequence[int], around: int) -> int:
        """Add the box for a part's nodes of one block and one kind; return its area."""
        graph = self.graph
        block, kind = key
        box = ViewNode(block, kind, area=around, name=part.name, order=min(members), made_from=self.boxes.get(part, -1))
        number, area = len(graph.nodes), len(graph.areas)
        self.boxes.setdefault(part, number)
        if part.alike is not None and kind == FORWARD:
            box.alike = self.boxes[part.alike]
        graph.nodes.append(box)
        graph.areas.append(Area(number, area))
        member_set = set(members)
        written_values = dict.fromkeys(value for node in members for value in graph.nodes[node].all_writes())
        read = dict.fromkeys(value for node in members for value in graph.nodes[node].all_reads())
        box.writes = [
            ("", value) for value in sorted(written_values, key=self._size) if self._leaves(value, kind, member_set)
        ]  # the main one last
        box.reads = [("", value) for value in read if value not in written_values and self._is_drawn(value, kind)]
        if kind == FORWARD:
            for _, value in box.reads:
                graph.areas[area].inputs[value] = len(graph.nodes)
                graph.nodes.append(ViewNode(block, kind, area=area, writes=[("", value)]))
        return area

    def _size(self, value: int) -> int:
        """The number of elements of a value; unknown dimensions count as 1."""
        var = self.graph.values[value].var
        return math.prod(extent for extent in var.shape if extent > 0) if var is not None and var.has_shape else 0

    def _leaves(self, value: int, kind: int, members: set[int]) -> bool:
        """Whether a value made in a box leaves it: a node outside reads it, or no node does."""
        readers = self.readers[value]
        return not readers or any(
            reader not in members and _is_connected(kind, self.graph.nodes[reader].kind) for reader in readers
        )

    def _is_drawn(self, value: int, kind: int) -> bool:
        """Whether a way is drawn from the maker of a value to a box of this kind."""
        maker = self.graph.values[value].node
        return maker >= 0 and _is_connected(self.graph.nodes[maker].kind, kind)


def _is_connected(kind: int, next_kind: int) -> bool:
    """Whether ways are drawn between nodes of these kinds: not from forward ops to gradient ops, which read many forward
    values."""
    return kind == next_kind or (kind, next_kind) == (BACKWARD, UPDATE)
