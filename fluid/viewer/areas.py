"""Puts the nodes of a graph into boxes: each part of the forward ops gets one, beside it those of its gradients and updates."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..ir.program import OpRole, Parameter
from .graph import BACKWARD, FORWARD, UPDATE, Area, Graph, Node
from .grouping import Part, find_parts
from .pairs import base_name

__all__ = ["add_boxes"]

Chain = tuple[Part, ...]
"""The parts around a node, outermost first."""


def add_boxes(graph: Graph) -> None:
    """Add nodes for the boxes of all parts to the graph, with areas for what is inside."""
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
    """Which parts the nodes of a block, and of its gradients, are in."""

    def __init__(self, graph: Graph, parts: Sequence[Part]) -> None:
        self.graph = graph
        self.chains: dict[int, Chain] = {}
        self.by_name: dict[str, Chain] = {}
        self._enter(parts, ())

    def _enter(self, items: Iterable[int | Part], around: Chain) -> None:
        for item in items:
            if isinstance(item, Part):
                self._enter(item.inside, (*around, item))
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
                self.chains[number] = self._beside(nodes[number])
        return self.chains

    def _beside(self, node: Node) -> Chain:
        """The parts of a gradient op or an update: those of the forward ops whose values its names tell of."""
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
    def __init__(self, graph: Graph, chains: dict[int, Chain]) -> None:
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
        """Add boxes for parts, and those in them; `around` has the areas, by block and kind, that they lie in."""
        for part in parts:
            areas: dict[tuple[int, int], int] = {}
            for key, inside in sorted(self.insides[part].items(), key=lambda item: item[0][1]):
                areas[key] = self._add_box(part, key, inside, (around or {}).get(key, key[0]))
            first = min(areas.values())
            for area in areas.values():
                self.graph.areas[area].first = first
            for key, inside in self.insides[part].items():
                for number in inside:
                    if self.innermost[number] is part:
                        self.graph.nodes[number].area = areas[key]
            self.add((item for item in part.inside if isinstance(item, Part)), areas)

    def _add_box(self, part: Part, key: tuple[int, int], inside: Sequence[int], around: int) -> int:
        """Add the box of what a part has of one block and one kind; its area."""
        graph = self.graph
        block, kind = key
        box = Node(block, kind, area=around, name=part.name, order=min(inside), made_from=self.boxes.get(part, -1))
        number, area = len(graph.nodes), len(graph.areas)
        self.boxes.setdefault(part, number)
        if part.alike is not None and kind == FORWARD:
            box.alike = self.boxes[part.alike]
        graph.nodes.append(box)
        graph.areas.append(Area(number, area))
        own = set(inside)
        made = dict.fromkeys(value for node in inside for value in graph.nodes[node].all_writes())
        read = dict.fromkeys(value for node in inside for value in graph.nodes[node].all_reads())
        box.writes = [
            ("", value) for value in sorted(made, key=self._size) if self._leaves(value, kind, own)
        ]  # the main one last
        box.reads = [("", value) for value in read if value not in made and self._is_drawn(value, kind)]
        if kind == FORWARD:
            for _, value in box.reads:
                graph.areas[area].inputs[value] = len(graph.nodes)
                graph.nodes.append(Node(block, kind, area=area, writes=[("", value)]))
        return area

    def _size(self, value: int) -> int:
        """How large a value is, apart from what is not known of it."""
        var = self.graph.values[value].var
        return math.prod(extent for extent in var.shape if extent > 0) if var is not None and var.has_shape else 0

    def _leaves(self, value: int, kind: int, own: set[int]) -> bool:
        """Whether ops beyond a box go on with a value that is made in it, or nothing reads it."""
        readers = self.readers[value]
        return not readers or any(reader not in own and _goes_on(kind, self.graph.nodes[reader].kind) for reader in readers)

    def _is_drawn(self, value: int, kind: int) -> bool:
        """Whether a way is drawn from where a value is made to a box of this kind."""
        maker = self.graph.values[value].node
        return maker >= 0 and _goes_on(self.graph.nodes[maker].kind, kind)


def _goes_on(kind: int, other: int) -> bool:
    """Whether ops of one kind go on with what another makes: not so gradient ops with forward values, of which they read many."""
    return kind == other or (kind, other) == (BACKWARD, UPDATE)
