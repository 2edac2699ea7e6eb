"""Arrange a program's nodes in rows: forward ops in layers, gradient ops and updates in the rows of their forward ops.

A *sheet* is a set of columns with common rows: the three kinds of ops of block 0; the block of a loop and, beside it, the block
of its gradients; or the contents of a box of ops, of the box of their gradients, and of the box of their updates. Where two
programs are shown, columns of the second one follow. Each kind of op of each area is a column. A row holds, for each column from
left to right, items: nodes (their indices) and values that only pass through on their way to a later row (``-1 - index``).

All this takes linear time, except the order within rows, which is sorted by barycenters a fixed number of times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .graph import BACKWARD, UPDATE, ViewGraph
from .pairs import base_name

_WIDEST = 8
"""The maximal number of nodes side by side in a column."""
_SWEEPS = 6
_PASSES = 12
"""The average number of rows that values may pass through, per node; the longest ways beyond that are drawn on request only."""

Column = tuple[int, int]
"""Area and kind."""


@dataclass
class _Way:
    """The path of a value within a column: from its maker through the rows in between to its readers."""

    column: int
    maker: int
    start: int
    end: int
    readers: list[int]

    def between(self, row_of: Mapping[int, int]) -> list[int]:
        """The rows that the value passes through."""
        return [row for row in range(self.start + 1, self.end) if row != row_of[self.maker]]


@dataclass
class Sheet:
    columns: list[Column]
    rows: list[list[list[int]]]
    """For each row, for each column, its items."""

    def to_json(self) -> dict[str, Any]:
        return {"columns": self.columns, "rows": self.rows}


def make_sheets(graph: ViewGraph) -> list[Sheet]:
    """The sheets of a program; each node is in one row of one of them."""
    members: dict[int, list[int]] = defaultdict(list)
    for number, node in enumerate(graph.nodes):
        members[graph.areas[node.area].first].append(number)
    return [_SheetMaker(graph, numbers).make() for _, numbers in sorted(members.items())]


class _SheetMaker:
    def __init__(self, graph: ViewGraph, members: Sequence[int]) -> None:
        self.graph = graph
        nodes = graph.nodes
        self.members = sorted(members, key=lambda number: nodes[number].order)
        self.columns = sorted({self._column(number) for number in members})
        member_set = set(members)
        self.before = {number: self._makers(number, member_set) for number in self.members}
        self.anchors = self._anchors(member_set)

    def _column(self, number: int) -> Column:
        node = self.graph.nodes[number]
        return node.area, node.kind

    def _is_body(self, number: int) -> bool:
        """Whether a node is in the first column, whose nodes determine the layers; others are placed beside these."""
        return self._column(number) == self.columns[0]

    def maker(self, value: int) -> int:
        """The node that makes a value, in this block or outside."""
        values = self.graph.values
        while values[value].node < 0 and values[value].source >= 0:
            value = values[value].source
        return values[value].node

    def _shown(self, value: int, area: int, members: Container[int]) -> int:
        """The node of this sheet that represents the maker of a value, for a reader in an area."""
        maker = self.maker(value)
        while maker >= 0 and maker not in members and self.graph.nodes[maker].area >= len(self.graph.blocks):
            maker = self.graph.areas[self.graph.nodes[maker].area].owner
        return maker if maker in members else self.graph.areas[area].inputs.get(value, -1)

    def _makers(self, number: int, members: set[int]) -> list[int]:
        node = self.graph.nodes[number]
        makers = dict.fromkeys(self._shown(value, node.area, members) for value in node.all_reads())
        return [maker for maker in makers if maker in members and maker != number]

    # -------------------------------------------------------------------------------------------------------- layers
    def _anchors(self, members: set[int]) -> dict[int, int]:
        """For each gradient op, update and node of a second program: the node of the first column to place it beside, if any."""
        graph = self.graph
        makers: dict[str, int] = {}
        by_name: dict[str, int] = {}
        anchors: dict[int, int] = {}
        for number in self.members:
            node = graph.nodes[number]
            reads = [graph.values[value].name for value in node.all_reads()]
            writes = [graph.values[value].name for value in node.all_writes()]
            if self._is_body(number):
                makers.update(dict.fromkeys(writes, number))
                continue
            beside = node.twin if 0 <= node.twin < number else node.made_from
            anchor = anchors.get(beside, beside)
            if anchor not in members or not self._is_body(anchor):
                placed = [anchors[maker] for maker in self.before[number] if maker in anchors]
                bases = [makers[base] for name in [*reads, *writes] if (base := base_name(name)) is not None and base in makers]
                if placed and node.kind == UPDATE:
                    anchor = placed[0]
                elif bases and node.kind != UPDATE and not (placed and placed[-1] < bases[0]):  # not below its inputs
                    anchor = bases[0]
                elif placed:
                    anchor = placed[-1]
                elif node.kind == BACKWARD and any(self._is_body(maker) for maker in self.before[number]):
                    anchor = next(maker for maker in self.before[number] if self._is_body(maker))
                else:
                    anchor = next((by_name[name] for name in [*reads, *writes] if name in by_name), -1)
            if anchor >= 0:
                anchors[number] = anchor
                by_name.update(dict.fromkeys([*reads, *writes], anchor))
        return anchors

    def _layers(self) -> dict[int, int]:
        """Node -> layer: the longest way from the start; a node with few inputs moves down to just above its readers."""
        layer: dict[int, int] = {}
        for number in self.members:
            anchor = self.anchors.get(number)
            if anchor is not None:
                layer[number] = layer.get(anchor, 0)
            else:
                layer[number] = max((layer[maker] + 1 for maker in self.before[number] if maker in layer), default=0)
        after: dict[int, list[int]] = defaultdict(list)
        for number in self.members:
            if self._is_body(number):
                for maker in self.before[number]:
                    after[maker].append(number)
        for number in reversed(self.members):
            readers = after.get(number)
            if readers and self._is_body(number) and len(self.before[number]) <= len(readers):
                layer[number] = max(layer[number], min(layer[reader] for reader in readers) - 1)
        for number, anchor in self.anchors.items():
            layer[number] = layer[anchor]
        return layer

    def _cells(self, numbers: Iterable[int]) -> list[list[list[int]]]:
        """The rows of the nodes of one layer; a row has a list for each column."""
        by_column: dict[Column, list[int]] = defaultdict(list)
        for number in numbers:
            by_column[self._column(number)].append(number)
        stacks: dict[Column, list[list[int]]] = {}
        for column, cell in by_column.items():
            depth: dict[int, int] = {}
            here = set(cell)
            for number in cell:
                depth[number] = max((depth.get(maker, -1) + 1 for maker in self.before[number] if maker in here), default=0)
            lines: dict[int, list[int]] = defaultdict(list)
            for number in cell:
                lines[depth[number]].append(number)
            stack = [part for level in sorted(lines) for part in _parts(lines[level])]
            stacks[column] = stack[::-1] if column[1] == BACKWARD else stack  # gradients flow upwards
        # Forward ops are placed beside their gradient ops, not beside the sums of the gradients.
        bodies = set(by_column.get(self.columns[0], ()))
        gradients = [stack for column, stack in stacks.items() if column[1] == BACKWARD]
        nodes = self.graph.nodes
        beside = [row for stack in gradients for row, line in enumerate(stack) if any(nodes[n].made_from in bodies for n in line)]
        down = min(beside, default=0)
        for column, stack in stacks.items():
            if column[1] != BACKWARD:
                stacks[column] = [[] for _ in range(down)] + stack
        rows: list[list[list[int]]] = [[[] for _ in self.columns] for _ in range(max(map(len, stacks.values())))]
        for place, column in enumerate(self.columns):
            for cells, line in zip(rows, stacks.get(column, ()), strict=False):
                cells[place] = line
        return rows

    def make(self) -> Sheet:
        layer = self._layers()
        by_layer: dict[int, list[int]] = defaultdict(list)
        for number in self.members:
            by_layer[layer[number]].append(number)
        rows: list[list[list[int]]] = []
        for level in sorted(by_layer):
            rows += self._cells(by_layer[level])
        row_of = {number: row for row, cells in enumerate(rows) for cell in cells for number in cell}
        ways = self._ways(row_of)
        for value, way in ways.items():
            for row in way.between(row_of):
                rows[row][way.column].append(-1 - value)
        for column in range(len(self.columns)):
            self._order([cells[column] for cells in rows], ways, column, row_of)
        return Sheet(self.columns, rows)

    # --------------------------------------------------------------------------------------------------------- order
    def _ways(self, row_of: Mapping[int, int]) -> dict[int, _Way]:
        """Value -> way, for values that are read in the column where they are made."""
        place = {column: index for index, column in enumerate(self.columns)}
        ways: dict[int, _Way] = {}
        for number in self.members:
            column = self._column(number)
            for value in self.graph.nodes[number].all_reads():
                if self.graph.values[value].node < 0:
                    continue
                maker = self._shown(value, self.graph.nodes[number].area, row_of)
                if maker == number or maker not in row_of or self._column(maker) != column:
                    continue
                way = ways.setdefault(value, _Way(place[column], maker, row_of[maker], row_of[maker], []))
                way.readers.append(number)
                way.start, way.end = min(way.start, row_of[number]), max(way.end, row_of[number])
        budget = _PASSES * len(self.members) + 100
        drawn = {}
        for value, way in sorted(ways.items(), key=lambda item: item[1].end - item[1].start):
            budget -= way.end - way.start
            if budget < 0:
                break
            drawn[value] = way
        return drawn

    def _order(self, rows: list[list[int]], ways: Mapping[int, _Way], column: int, row_of: Mapping[int, int]) -> None:
        """Sort the items of each row of a column by the positions of the items joined to them above, then below, and so on."""
        below: list[dict[int, list[int]]] = [defaultdict(list) for _ in rows]  # row -> item -> items in the next row
        above: list[dict[int, list[int]]] = [defaultdict(list) for _ in rows]
        for value, way in ways.items():
            if way.column != column:
                continue
            stops: dict[int, list[int]] = defaultdict(list)
            for number in [way.maker, *way.readers]:
                stops[row_of[number]].append(number)
            passed = set(way.between(row_of))
            before: list[int] = []
            for row in range(way.start, way.end + 1):
                passing = [-1 - value] if row in passed else []
                here = [*passing, *stops.get(row, ())]
                for item in before:
                    below[row - 1][item] += here
                for item in here:
                    above[row][item] += before
                before = passing or here
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            for row in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
                if len(rows[row]) > 1:
                    _sort(rows[row], rows[row - 1 if down else row + 1], above[row] if down else below[row])


def _sort(row: list[int], neighbours: Sequence[int], joined: Mapping[int, Sequence[int]]) -> None:
    width = max(len(neighbours) - 1, 1)
    place = {item: index / width for index, item in enumerate(neighbours)}
    last = max(len(row) - 1, 1)
    keys = {}
    for index, item in enumerate(row):
        near = [place[neighbour] for neighbour in joined.get(item, ()) if neighbour in place]
        keys[item] = sum(near) / len(near) if near else index / last
    row.sort(key=keys.__getitem__)


def _parts(line: list[int]) -> list[list[int]]:
    """Split a line of nodes into lines of about equal width that are not too wide."""
    if len(line) <= _WIDEST:
        return [line]
    count = -(-len(line) // _WIDEST)
    width = -(-len(line) // count)
    return [line[start : start + width] for start in range(0, len(line), width)]
