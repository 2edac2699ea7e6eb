"""Join two programs in one graph: match their ops, find differences, and place both side by side."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from ..ir.program import Operator
from ..transform.compare import match_ops, telling_attrs
from .graph import ALONE, CHANGED, FORWARD, SAME, ViewGraph, ViewNode

_ROUNDS = 3
"""The number of rounds that search for twins among unmatched ops."""


def join_ops(graph: ViewGraph) -> None:
    """Link corresponding ops and inputs of a graph's two programs, and mark their differences."""
    one, two = (program.blocks for program in graph.programs)
    numbers = {node.op: number for number, node in enumerate(graph.nodes) if node.op is not None}
    for node in graph.nodes:
        node.difference = ALONE

    def telling(op: Operator) -> tuple[str, str]:
        return op.type, _description(graph, graph.nodes[numbers[op]])

    def named(op: Operator) -> tuple[str, str, str]:
        return *telling(op), repr((sorted(op.inputs.items()), sorted(op.outputs.items())))

    for pair in zip(one, two, strict=False):
        before, after = ([op for op in block.ops if graph.nodes[numbers[op]].kind == FORWARD] for block in pair)
        start = next(
            (at for at, ops in enumerate(zip(before, after, strict=False)) if named(ops[0]) != named(ops[1])),
            min(len(before), len(after)),
        )
        alike = zip(before[:start], after[:start], strict=True)  # layers that were added to many are the last ones
        matched = match_ops(before[start:], after[start:], telling, lambda op: op.type)
        for op, twin in [*alike, *((op, twin) for op, twin, _ in matched)]:
            if op is not None and twin is not None:
                _join(graph, numbers[op], numbers[twin])
    inputs: dict[tuple[int, str], int] = {}
    for number, node in enumerate(graph.nodes):
        if node.op is None:
            key = node.block % len(one), graph.values[node.writes[0][1]].name
            if node.block < len(one):
                inputs[key] = number
            elif node.block < 2 * len(one) and key in inputs:
                _join(graph, inputs[key], number)
    _join_gradients_and_updates(graph, len(one))
    for number, node in enumerate(graph.nodes):
        if node.twin > number:
            is_same = _description(graph, node) == _description(graph, graph.nodes[node.twin]) and _reads_the_same(graph, node)
            node.difference = graph.nodes[node.twin].difference = SAME if is_same else CHANGED


def _join(graph: ViewGraph, one: int, two: int) -> None:
    graph.nodes[one].twin, graph.nodes[two].twin = two, one


def _join_gradients_and_updates(graph: ViewGraph, count: int) -> None:
    """Join a gradient op like its forward op; join other gradient ops and updates by their inputs.

    Inputs are outputs of other twins, and parameters that forward twins read. Names and places shift where layers come in
    between.
    """
    homes: dict[tuple[bool, str], tuple[int, int]] = {}
    waiting: dict[tuple[Any, ...], list[int]] = defaultdict(list)

    def first_of(number: int) -> int:
        """The node of the first program that a node is, or is the twin of."""
        return number if number < 0 or graph.nodes[number].block < count else graph.nodes[number].twin

    def identity(node: ViewNode) -> tuple[Any, ...]:
        op_type = node.op.type if node.op is not None else ""
        if node.made_from >= 0:
            return node.kind, op_type, first_of(node.made_from)
        makers = [(graph.values[value].node, graph.values[value].name) for value in node.all_reads()]
        reads = [first_of(maker) if maker >= 0 else homes.get((node.block < count, name)) for maker, name in makers]
        return node.kind, op_type, node.block % count, tuple(reads)

    unmatched: list[int] = []
    for number, node in enumerate(graph.nodes):
        if node.op is not None and node.kind != FORWARD:
            unmatched.append(number)
        elif node.op is not None:
            for place, value in enumerate(node.all_reads()):
                homes.setdefault((node.block < count, graph.values[value].name), (first_of(number), place))
    for _ in range(_ROUNDS):  # in loops, values come from ops further down
        waiting.clear()
        for number in unmatched:
            node = graph.nodes[number]
            if node.block < count:
                waiting[identity(node)].append(number)
            elif candidates := waiting.get(identity(node)):
                _join(graph, candidates.pop(0), number)
        unmatched = [number for number in unmatched if graph.nodes[number].twin < 0]


def _description(graph: ViewGraph, node: ViewNode) -> str:
    """The specs and attributes of an op, without names: these shift where layers are inserted."""
    declared = [(slot, graph.values[value].var if value >= 0 else None) for slot, value in (*node.reads, *node.writes)]
    specs = [(slot, var.describe() if var is not None else "") for slot, var in declared]
    return repr((specs, telling_attrs(node.op) if node.op is not None else ()))


def _reads_the_same(graph: ViewGraph, node: ViewNode) -> bool:
    """Whether a node and its twin read only parameters and outputs of twins."""
    twin = graph.nodes[node.twin]
    for (_, one), (_, two) in zip(node.reads, twin.reads, strict=True):
        makers = [graph.values[value].node if value >= 0 else -1 for value in (one, two)]
        if makers[0] >= 0 and makers[1] >= 0 and graph.nodes[makers[0]].twin != makers[1]:
            return False
    return True


def join_rows(graph: ViewGraph) -> None:
    """Let blocks of the same number, and boxes with most ops in common, share rows; mark the differences in boxes."""
    rows: dict[int, list[int]] = defaultdict(list)
    area_of: dict[int, int] = {}
    for number, area in enumerate(graph.areas):
        rows[area.first].append(number)
        area_of[area.owner] = number

    def share(one: int, two: int) -> None:
        first, second = graph.areas[one].first, graph.areas[two].first
        if first != second:
            for area in rows.pop(second):
                graph.areas[area].first = first
                rows[first].append(area)

    count = len(graph.programs[0].blocks)
    for block in range(min(count, len(graph.blocks) - count)):
        owners = [graph.areas[number].owner for number in (block, count + block)]
        if max(owners) < 0 or (min(owners) >= 0 and graph.nodes[owners[0]].twin == owners[1]):
            share(block, count + block)
    common = _in_common(graph)
    for _, one, two in sorted(common, key=lambda key: (key[0], -common[key])):  # outer boxes first
        first, second = graph.nodes[one], graph.nodes[two]
        is_beside = graph.areas[first.area].first == graph.areas[second.area].first
        if first.twin < 0 and second.twin < 0 and first.kind == second.kind and is_beside:
            first.twin, second.twin = two, one
            share(area_of[one], area_of[two])


def _in_common(graph: ViewGraph) -> Counter[tuple[int, int, int]]:
    """(depth, box, box of the other program) -> how many ops they have in common."""
    common: Counter[tuple[int, int, int]] = Counter()
    differences: dict[int, set[int]] = defaultdict(set)
    for number, node in enumerate(graph.nodes):
        if node.op is None:
            continue
        around = list(_boxes_around(graph, number))[::-1]
        for box in around:
            differences[box].add(node.difference)
        if node.twin > number:
            beside = list(_boxes_around(graph, node.twin))[::-1]
            common.update((depth, *boxes) for depth, boxes in enumerate(zip(around, beside, strict=False)))
    for box, members in differences.items():
        graph.nodes[box].difference = members.pop() if len(members) == 1 else CHANGED
    return common


def _boxes_around(graph: ViewGraph, number: int) -> Iterator[int]:
    """The boxes around a node, innermost first."""
    area = graph.nodes[number].area
    while area >= len(graph.blocks):
        number = graph.areas[area].owner
        yield number
        area = graph.nodes[number].area
