"""Group the forward ops of a block into parts: by name scopes and layers, and by structure if these are too many.

A part is a run of ops that follow each other in the program, so that no value leaves a part and comes back. From the bottom up:

- ops of one name scope are a part; in large blocks, so are the ops of a layer, which starts at an op that reads its parameter;
- where parts are more than a screen holds, they are cut where the fewest values live on, as between the blocks of a residual net;
- parts in a row of the same structure are alike: one may stand for all, and where there are still too many, they become one;
- levels that are still too long become pieces of equal length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ..ir.program import Parameter
from .graph import ViewGraph, ViewNode

_FEW = 40
"""Blocks with at most this number of forward ops show ops instead of layers."""
_MANY = 30
"""The number of items that one level should not exceed."""
_DEEPEST = 16
"""The maximal depth of nested scopes that are distinguished."""
_LONGEST = 8
"""The maximal number of parts of a repeated sequence."""
_LIVE = 4
"""The maximal number of values that live on where a level is cut."""

Path = tuple[str, ...]


@dataclass(eq=False)
class Part:
    """Ops in a row, under a name.

    Attributes:
        inside: indices of nodes, and smaller parts.
        alike: the first of the parts in a row that have the structure of this one, if there are several.
    """

    name: str
    items: list[int | Part]
    alike: Part | None = None

    def nodes(self) -> Iterator[int]:
        """The indices of all nodes inside, in order."""
        return _nodes(self.items)


def find_parts(graph: ViewGraph, forward: Sequence[int]) -> list[Part]:
    """The outermost parts of the forward ops of a block, which are given in order."""
    paths = _paths(graph, forward)
    level = _Levels(graph).settled(_nested(list(zip(forward, paths, strict=True)), ()))
    return [item for item in level if isinstance(item, Part)]


def _nodes(items: Sequence[int | Part]) -> Iterator[int]:
    for item in items:
        if isinstance(item, Part):
            yield from _nodes(item.items)
        else:
            yield item


# ------------------------------------------------------------------------------------------------------- names of parts
def _paths(graph: ViewGraph, forward: Sequence[int]) -> list[Path]:
    """For each op, the names of the parts around it, outermost first."""
    paths = [_scope(graph.nodes[number]) for number in forward]
    if len(forward) > _FEW:
        layers = _layers(graph, forward)
        if any(paths):
            layers = [(".".join(layer),) if layer else () for layer in layers]
        paths = [(*scope, *layer) for scope, layer in zip(paths, layers, strict=True)]
    return [path[:_DEEPEST] for path in paths]


def _scope(node: ViewNode) -> Path:
    scope = node.op.attrs.get("op_namescope") if node.op is not None else None
    return tuple(part for part in scope.split("/") if part) if isinstance(scope, str) else ()


def _layers(graph: ViewGraph, forward: Sequence[int]) -> list[Path]:
    """For each op, the layer of its parameter, or of the op before it. An op that also reads fed data, such as a loss, ends the
    layer."""
    layers: list[Path] = []
    layer: Path = ()
    for number in forward:
        node = graph.nodes[number]
        parameter = _parameter(graph, node)
        if node.op is not None and node.op.type in ("feed", "fetch"):
            layer = ()
        elif parameter is not None:
            layer = _layer_of(parameter)
        elif any(graph.values[value].version == 0 for value in node.all_reads()):
            layer = ()
        layers.append(layer)
    return layers


def _parameter(graph: ViewGraph, node: ViewNode) -> str | None:
    """The name of the first parameter that an op reads; in inference models, which have none, of the first persistable
    variable."""
    persistables = [
        value for value in map(graph.values.__getitem__, node.all_reads()) if value.var is not None and value.var.persistable
    ]
    persistables.sort(key=lambda value: not isinstance(value.var, Parameter))
    return (
        persistables[0].name
        if persistables and (persistables[0].version == 0 or isinstance(persistables[0].var, Parameter))
        else None
    )


def _layer_of(parameter: str) -> Path:
    """The layer that a parameter is of, such as ``("encoder", "0", "fc")`` for ``encoder.0.fc.weight``."""
    *path, last = [part for part in re.split(r"[./]", parameter) if part] or [parameter]
    return tuple(path) or (last.rpartition("_")[0] or last,)


def _nested(entries: Sequence[tuple[int, Path]], around: Path) -> list[int | Part]:
    """Group consecutive ops of one part that have the same next name, level by level."""
    depth = len(around)
    items: list[int | Part] = []
    times: Counter[str] = Counter()
    for name, group in groupby(entries, key=lambda entry: entry[1][depth] if len(entry[1]) > depth else ""):
        members = list(group)
        if not name:
            items.extend(number for number, _ in members)
            continue
        inner = _nested(members, (*around, name))
        only = inner[0] if len(inner) == 1 else None
        if isinstance(only, int):
            items.append(only)
            continue
        times[name] += 1
        title = f"{around[-1]}.{name}" if name.isdigit() and around else name
        items.append(Part(title if times[name] == 1 else f"{title} ({times[name]})", only.items if only is not None else inner))
    return items


# ----------------------------------------------------------------------------------------------------- parts by structure
class _Levels:
    """Makes levels short, from the innermost out."""

    def __init__(self, graph: ViewGraph) -> None:
        self.graph = graph
        self.readers: dict[int, list[int]] = {}
        for number, node in enumerate(graph.nodes):
            for value in node.all_reads():
                self.readers.setdefault(value, []).append(number)

    def settled(self, items: Sequence[int | Part]) -> list[int | Part]:
        for item in items:
            if isinstance(item, Part):
                item.items = self.settled(item.items)
        level = list(items)
        if len(level) > _MANY:
            level = self._cut(level)
        level = self._repeats(level, _LONGEST if len(items) > _MANY else 1)
        if len(level) > _MANY:
            level = [self._joined(row) for _, row in groupby(level, key=_first_alike)]
        return self._in_pieces(level)

    def _in_pieces(self, items: list[int | Part]) -> list[int | Part]:
        """Split items into pieces of about equal length, recursively while these are too many."""
        while len(items) > _MANY:
            length = -(-len(items) // -(-len(items) // _MANY))
            items = [self._joined(items[start : start + length]) for start in range(0, len(items), length)]
        return items

    def _joined(self, run: Iterable[int | Part]) -> int | Part:
        """A part of several items, named after its first and last; a single item stays itself."""
        items = list(run)
        if len(items) == 1:
            return items[0]
        names = [self._name(items[0], 0), self._name(items[-1], -1)]
        return Part(names[0] if names[0] == names[1] else f"{names[0]} … {names[1]}", items)

    def _name(self, item: int | Part, end: int) -> str:
        if isinstance(item, Part):
            return item.name.split(" … ")[end]
        node = self.graph.nodes[item]
        parameter = _parameter(self.graph, node)
        return ".".join(_layer_of(parameter)) if parameter is not None else node.op.type if node.op is not None else ""

    def _cut(self, items: Sequence[int | Part]) -> list[int | Part]:
        """Cut between items where at most one value lives on, or a few where that makes pieces too large."""
        place = {number: index for index, item in enumerate(items) for number in _nodes([item])}
        change = [0] * (len(items) + 1)
        for number, start in place.items():
            for value in self.graph.nodes[number].all_writes():
                ends = [place[reader] for reader in self.readers.get(value, ()) if reader in place]
                if ends and max(ends) > start:
                    change[start] += 1
                    change[max(ends)] -= 1
        live, count = [], 0
        for step in change[: len(items)]:
            count += step
            live.append(count)
        pieces: list[list[int | Part]] = []
        for most in range(1, _LIVE + 1):
            pieces = [[]]
            for item, after in zip(items, live, strict=True):
                pieces[-1].append(item)
                if after <= most:
                    pieces.append([])
            pieces = [piece for piece in pieces if piece]
            if max(map(len, pieces)) <= max(_MANY, len(items) // 3):
                break
        return [self._joined(self._in_pieces(piece)) for piece in pieces]

    # -------------------------------------------------------------------------------------------------------- repeats
    def _repeats(self, items: list[int | Part], longest: int) -> list[int | Part]:
        """Mark items of the same structure in a row; repeated sequences of up to `longest` items become parts."""
        numbers: dict[Hashable, int] = {}
        marks = [numbers.setdefault(self._structure(item), len(numbers)) for item in items]
        level: list[int | Part] = []
        at = 0
        while at < len(items):
            length, times = _repeat_at(marks, at, longest)
            row = [self._joined(items[at + length * n : at + length * (n + 1)]) for n in range(times)]
            parts = [part for part in row if isinstance(part, Part)]
            if times > 1 and len(parts) == times:
                for part in parts:
                    part.alike = parts[0]
            level += row
            at += length * times
        return level

    def _structure(self, item: int | Part) -> Hashable:
        """The structure of an item, equal for items that are alike: types, shapes, and which values ops pass to each other."""
        graph = self.graph
        place = {number: index for index, number in enumerate(_nodes([item]))}
        ops = []
        for number in place:
            node = graph.nodes[number]
            shapes = [graph.values[value].var for value in node.all_writes()]
            ops.append((
                node.op.type if node.op is not None else "",
                tuple(tuple(var.shape) if var is not None and var.has_shape else None for var in shapes),
                tuple(place.get(graph.values[value].node, -1) for value in node.all_reads()),
            ))  # fmt: skip
        return tuple(ops)


def _first_alike(item: int | Part) -> int | Part:
    return item.alike or item if isinstance(item, Part) else item


def _repeat_at(marks: Sequence[int], start: int, longest: int) -> tuple[int, int]:
    """The sequence from `start` whose repeats reach furthest: its length, and the number of repeats."""
    best = 1, 1
    for length in range(1, min(longest, (len(marks) - start) // 2) + 1):
        times = 1
        while marks[start + times * length : start + (times + 1) * length] == marks[start : start + length]:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = length, times
    return best
