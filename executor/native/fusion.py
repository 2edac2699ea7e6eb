"""Gathers nodes of the tensor graph into groups, each of which becomes one kernel.

A group goes over an index space of rows and columns once. In it, a node has a value for each element, or one for each row: what
is computed of rows (a reduction along them) may be used for all their elements, in a later pass over the row. Sums over rows come
out when all rows are done. A group may begin with a product of matrices; what follows is then computed of the product's elements
while they are in registers.

Groups stand in the order in which they run, among the ops that are left to kernels. A node joins the group in which the last of
its operands is computed, if it fits there, or a later one that reads what it reads; otherwise it begins a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from math import prod
from operator import mul
from typing import Any

from .graph import (
    Choice,
    Constant,
    Core,
    Drawn,
    FilterGradient,
    Firsts,
    Joined,
    Map,
    Memory,
    Merged,
    Node,
    PackedFilter,
    PackedMatrix,
    Places,
    Position,
    Product,
    Put,
    Reduction,
    Reshaped,
    Rows,
    Scattered,
    Shape,
    Turned,
    View,
    operands_of,
    strides_of,
)
from .target import Limits

__all__ = ["HEAVY", "Group", "Schedule", "base_of", "is_elementwise", "reads_of", "source_of", "steps_over"]

_LEAVES = frozenset({Constant, Memory, Drawn, Position})
"""What is there without being computed."""
_NUMBERS = frozenset({Constant, Position})
"""What is in no memory."""

HEAVY = frozenset(
    {
        "exp", "log", "tanh", "sinh", "cosh", "sigmoid", "erf", "log1p", "expm1", "sin", "cos", "div", "sqrt", "rsqrt", "silu",
        "reciprocal", "pow",
    }
)  # fmt: skip
"""Formulas that take long enough not to be computed twice."""


def base_of(node: Node) -> Node:
    """The node whose elements these are, in the same order."""
    while isinstance(node, Reshaped):
        node = node.source
    return node


def reads_of(node: Node) -> list[Node]:
    """The nodes that are read to compute a node: of a view, what it is a view of."""
    return [source_of(operand) for operand in operands_of(node)]


_ELSEWHERE = frozenset({Reshaped, View, Turned})
"""What only says where the elements of another node lie."""


def source_of(node: Node) -> Node:
    """The node in whose memory, or group, the elements of a node are found."""
    while type(node) in _ELSEWHERE:
        node = node.source  # type: ignore[attr-defined]
    return node


def extents_of(core: Node) -> tuple[int, ...]:
    """The index space in which what follows a core is computed."""
    if isinstance(core, Product):
        return prod(core.shape[:-1]), core.shape[-1]
    if isinstance(core, FilterGradient):
        return core.shape[0], prod(core.shape[1:])
    return core.shape


@lru_cache(1 << 12)
def breaks_of(shape: Shape) -> frozenset[int]:
    """The numbers of elements that the last dimensions have: 1, the last one, the last two, and so on."""
    return frozenset(accumulate(reversed(shape), mul, initial=1))


@lru_cache(1 << 12)
def _is_chain(breaks: frozenset[int]) -> bool:
    """Whether an index space has dimensions that lie between these breaks."""
    return all(large % small == 0 for small, large in pairwise(sorted(breaks)))


@dataclass(eq=False)
class Group:
    """Nodes that one kernel computes.

    Attributes:
        nodes: in the order in which they are computed.
        total: elements of the index space.
        breaks: see `breaks_of`; the extents of the space's dimensions are the quotients of neighbours.
        columns: elements of a row; None as long as no node asks for rows.
        core: what it begins with, if that has a kernel of its own.
        sums: reductions over rows.
    """

    total: int
    breaks: frozenset[int]
    core: Core | None = None
    columns: int | None = None
    nodes: list[Node] = field(default_factory=list)
    per_row: set[Node] = field(default_factory=set)
    sums: set[Node] = field(default_factory=set)
    uniform: list[Node] = field(default_factory=list)
    """Single numbers that the kernel computes before its loops; other groups may compute them, too."""
    operands: set[Node] = field(default_factory=set)
    """What is read that other groups compute, or is there before."""
    touched: set[Node] = field(default_factory=set)
    """What is read or computed."""
    apart: set[Node] = field(default_factory=set)
    """What is read elsewhere than at the element that is computed."""
    updates: bool = False
    """Whether it writes to arrays that it reads, so that it may go over its elements only once."""
    overwritten: dict[Node, Node] = field(default_factory=dict)
    """Node of the group that is written in the memory of an older one -> that older node."""
    ops: list[Any] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.total // self.columns if self.columns else 1


class Schedule:
    """Groups, and ops that are left to kernels, in the order in which they run."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.items: list[Any] = []
        self.home: dict[Node, int] = {}
        """Node -> position of the item that computes it; -1 for what is there before."""
        self.last_reader: dict[Node, int] = {}
        """Node -> position of the last item that reads it, as far as it is known."""
        self.uniform: set[Node] = set()
        """Formulas of single numbers, which each group that needs them computes for itself."""
        self.uniform_of: dict[Node, list[Node]] = {}
        """Node -> the formulas of single numbers that are computed of it."""
        self.floating: dict[Node, None] = {}
        """Formulas of what is, or will be, in memory; the first that reads one takes it into its group."""
        self._taken: dict[tuple[Group, Node, int], bool] = {}
        self.lasting: set[Node] = set()
        """Nodes that get memory in any case, since they are read by what is in groups of its own."""
        self.apart: set[Node] = set()
        """Nodes that get memory, and are computed once, in any case."""
        self.overwrites: dict[Node, Node | None] = {}
        """Node -> the one whose memory it takes, which has to be read before."""
        self.op: Any = None
        """The op whose nodes are being placed."""
        self._op_of: dict[Node, Any] = {}

    def add_opaque(self, item: Any, reads: Sequence[Node], writes: Sequence[Memory]) -> None:
        """Add an op that is left to its kernel."""
        for node in list(self.floating):
            self._settle(node)
        position = len(self.items)
        self.items.append(item)
        for node in reads:
            self.last_reader[source_of(node)] = position
        for node in writes:
            self.home[node] = position

    def place(self, node: Node) -> int:
        """Find a group for a node and what it is computed of; returns its position."""
        pending = [node]
        while pending:
            current = pending[-1]
            if current in self.home:
                pending.pop()
                continue
            missing = [operand for operand in operands_of(current) if operand not in self.home]
            if missing:
                pending += missing
                continue
            pending.pop()
            self._op_of.setdefault(current, self.op)
            kind = type(current)
            if kind in _LEAVES:
                self.home[current] = -1
            elif kind is Joined:
                self.home[current] = max(self.home[part] for part in operands_of(current))
            elif kind in _ELSEWHERE:
                source = source_of(current)
                if kind is not Reshaped:
                    self._give_memory(source)
                self.home[current] = self.home[source]
            else:
                self._place_computed(current)
        return self.home[node]

    def _place_computed(self, node: Node) -> None:
        """Place what is computed: with the numbers that groups compute for themselves, among what floats, or in a group."""
        for operand in operands_of(node):
            source = source_of(operand)
            if not isinstance(node, Map) or isinstance(operand, View):
                self._give_memory(source)
            if source in self.floating and not _may_float_into(node, operand):
                self._settle(source)
        updates, after = node in self.overwrites, -1
        if updates:
            old = self.overwrites[node]
            self._settle_readers(node, old)
            after = self._last_read(old)
        reads = self._reads(node)
        is_free = isinstance(node, Map) and node.within is None and node not in self.apart
        if is_free and not updates and node.size == 1 and self._are_numbers(node):
            self.uniform.add(node)
            for operand in reads:
                self.uniform_of.setdefault(operand, []).append(node)
            self.home[node] = self._latest(reads)
        elif is_free and self._may_float(node, reads):
            self.floating[node] = None
            self.home[node] = self._latest(reads)
        else:
            self._place_in_group(node, reads, after, updates)

    def _may_float(self, node: Node, reads: Sequence[Node]) -> bool:
        """Whether a formula is of nothing but what is, or will be, in memory, and not too long to wait for what reads it."""
        are_in_memory = all(type(operand) in _LEAVES or operand in self.floating or operand in self.lasting for operand in reads)
        return are_in_memory and len(self._floating_of(node)) < self.limits.deferred_nodes

    def _latest(self, nodes: Sequence[Node]) -> int:
        """The position of the last item that computes one of these."""
        return max((self.home[node] for node in nodes), default=-1)

    def _place_in_group(self, node: Node, reads: Sequence[Node], after: int, updates: bool) -> None:
        least = max([after, *(self._ready(operand) for operand in reads)])
        places = self._candidates(node, reads, least)
        position = next((place for place in places if self._fits(self.items[place], node, place, updates)), None)
        if position is None:
            position = len(self.items)
            group = _new_group(node)
            for operand in reads:
                if operand not in self.floating:
                    continue
                need = self._need_of_all(operand)
                if need is not None and self._fits(group, operand, position, False):
                    _, breaks, columns = need  # which the next operands have to fit, too
                    group.breaks, group.columns = group.breaks | breaks, group.columns or columns
                else:
                    self._settle(operand)
                    position = len(self.items)
            self.items.append(group)
        self._add(node, reads, position, updates)

    def _add(self, node: Node, reads: Sequence[Node], position: int, updates: bool) -> None:
        """Add a node to a group, after what floats."""
        self._taken.clear()
        group = self.items[position]
        for operand in reads:
            if operand in self.floating:
                del self.floating[operand]
                self._add(operand, self._reads(operand), position, False)
        self._add_uniform(group, node)
        self._join(group, node)
        group.updates |= updates
        if (old := self.overwrites.get(node)) is not None:
            group.overwritten[node] = old
        self.home[node] = position
        for operand in reads:
            self.last_reader[operand] = max(self.last_reader.get(operand, -1), position)
            if self.home[operand] != position and type(operand) not in _NUMBERS:
                group.operands.add(operand)
                group.touched.add(operand)
        group.apart.update(source_of(operand) for operand in operands_of(node) if not _is_elementwise(node, operand))
        op = self._op_of.get(node)
        if op is not None and (not group.ops or group.ops[-1] is not op):
            group.ops.append(op)

    def _settle(self, node: Node) -> None:
        """Let what floats be computed by a group of its own."""
        if node in self.floating:
            del self.floating[node]
            self._place_in_group(node, self._reads(node), -1, False)

    def _settle_readers(self, node: Node, old: Node | None) -> None:
        """Let what floats, or is computed by each group for itself, and reads memory that is to be overwritten by a node, be
        computed before; but not what floats and the node is computed of."""
        self.keep_numbers_of(old)
        own: set[Node] = set()
        pending = [source_of(operand) for operand in operands_of(node)]
        while pending:
            current = pending.pop()
            if current in self.floating and current not in own:
                own.add(current)
                pending += reads_of(current)
        for floating in list(self.floating):
            if (floating not in own or not is_elementwise(floating, old)) and old in self._memory_of(floating):
                self._settle(floating)

    def keep_numbers_of(self, old: Node | None) -> None:
        """Let single numbers that are computed of memory which is to be overwritten be computed now, once for all groups."""
        for number in self.uniform_of.pop(old, ()) if old is not None else ():
            self._give_memory(number)

    def _ready(self, node: Node) -> int:
        """The position from which on a node can be read: of what floats, that of what it is computed of, some of which may have
        floated when this did."""
        if node not in self.floating:
            return self.home[node]
        return max((self.home[leaf] for leaf in self._memory_of(node)), default=-1)

    def _floating_of(self, node: Node) -> set[Node]:
        """A node, and what floats of all that it is computed of."""
        nodes, pending = {node}, [node]
        while pending:
            floating = [read for read in self._reads(pending.pop()) if read in self.floating and read not in nodes]
            nodes.update(floating)
            pending += floating
        return nodes

    def _memory_of(self, node: Node) -> set[Node]:
        """What a node that floats is computed of, and does not float."""
        return {read for each in self._floating_of(node) for read in self._reads(each) if read not in self.floating}

    def _last_read(self, old: Node | None) -> int:
        """The first position at which the memory of a node may be overwritten: it is written before, and read no more."""
        if old is None:
            return -1
        written, position = self.home.get(old, -1), self.last_reader.get(old, -1)
        if position <= written:
            return written + 1 if written >= 0 else -1
        item = self.items[position]
        is_elementwise = isinstance(item, Group) and old in item.operands and old not in item.apart
        return position if is_elementwise else position + 1

    def _give_memory(self, node: Node) -> None:
        """Let a number be computed by a group of its own, since what reads it asks for memory."""
        if node in self.uniform:
            self.uniform.discard(node)
            self.apart.add(node)
            del self.home[node]
            self.place(node)

    def _are_numbers(self, node: Node) -> bool:
        """Whether a formula is of single numbers that are in memory."""
        return all(
            isinstance(source, (Constant, Memory)) or source in self.uniform or (source.size == 1 and source in self.apart)
            for source in reads_of(node)
        )

    def _reads(self, node: Node) -> list[Node]:
        """The nodes that are read to compute a node, and the numbers that it needs."""
        sources = reads_of(node)
        if self.uniform.isdisjoint(sources):
            return sources
        reads = []
        for source in sources:
            reads += self._reads(source) if source in self.uniform else [source]
        return reads

    def _add_uniform(self, group: Group, node: Node) -> None:
        for source in reads_of(node):
            if source in self.uniform and source not in group.uniform:
                self._add_uniform(group, source)
                group.uniform.append(source)

    def _candidates(self, node: Node, reads: Sequence[Node], least: int) -> Iterator[int]:
        if isinstance(node, Core):
            return
        if 0 <= least < len(self.items):
            yield least
        shared = [operand for operand in reads if type(operand) not in _NUMBERS and operand.size > 1]
        for position in range(max(least + 1, len(self.items) - self.limits.nearby_groups), len(self.items)):
            item = self.items[position]
            if isinstance(item, Group) and not item.touched.isdisjoint(shared):
                yield position

    # -- what fits
    def _fits(self, group: Any, node: Node, position: int, updates: bool) -> bool:
        if not isinstance(group, Group):
            return False
        if (group.updates or updates) and any(isinstance(one, (Reduction, Choice)) for one in (*group.nodes, node)):
            return False  # it would go over its elements more than once
        if len(group.nodes) >= self.limits.group_nodes or len(group.operands) >= self.limits.group_operands:
            return False
        need = self._need_of_all(node)
        if need is None:
            return False
        total, breaks, columns = need
        if group.core is not None:
            return isinstance(node, Map) and total == group.total and self._fits_core(group, node, position)
        if total != group.total:
            # One value for each row of the group.
            if not (isinstance(node, Map) and group.columns and node.size == group.rows and node.size > 0):
                return False
            breaks = frozenset(group.columns * number for number in breaks)
            per_row = True
        else:
            per_row = isinstance(node, Choice)
        if columns is not None and group.columns not in (None, columns):
            return False
        columns = columns or group.columns
        if not _is_chain(group.breaks | breaks | ({columns} if columns else set())):
            return False
        if columns and min(group.total, columns) > self.limits.long_row:
            return False
        return all(self._reads_fit(group, node, operand, position, per_row, columns) for operand in operands_of(node))

    def _need_of_all(self, node: Node) -> tuple[int, frozenset[int], int | None] | None:
        """What a node needs together with what floats and joins its group before it; None if no group has all that."""
        need = _need(node)
        if need is None:
            return None
        total, breaks, columns = need
        for floating in self._floating_of(node) - {node}:
            its_need = _need(floating)
            assert its_need is not None, floating
            _, its_breaks, its_columns = its_need
            if columns is not None and its_columns not in (None, columns):
                return None
            breaks, columns = breaks | its_breaks, columns or its_columns
        return total, breaks, columns

    def _takes(self, group: Group, node: Node, position: int) -> bool:
        """Whether a group can compute what floats. The answer is kept until something is placed: many ways may lead to a node."""
        key = group, node, position
        if key not in self._taken:
            self._taken[key] = self._fits(group, node, position, False)
        return self._taken[key]

    def _reads_fit(self, group: Group, node: Node, operand: Node, position: int, per_row: bool, columns: int | None) -> bool:
        """Whether an operand that the group itself computes can be used in it."""
        source = source_of(operand)
        if source in self.floating:
            return self._takes(group, source, position)
        if self.home[source] != position:
            return True
        if source in self.uniform or isinstance(source, Joined):
            return False  # it is computed before all else, or consists of what other nodes leave there
        if base_of(operand) is not source or source in group.sums:
            return False  # a view of what is not all there
        if isinstance(node, Choice) and operand is node.source:
            return bool(columns) and source not in group.per_row and operand.shape[-1] == columns
        if isinstance(node, Rows):
            return operand is node.ids and source in group.per_row
        if isinstance(node, Reduction):
            return source not in group.per_row
        if per_row:
            return source in group.per_row or (isinstance(node, Choice) and operand is node.ids and source in group.per_row)
        if source in group.per_row:
            return columns is not None and columns > 0 and _is_repeated_along_rows(operand, node, columns)
        return operand.size == group.total

    def _fits_core(self, group: Group, node: Map, position: int) -> bool:
        assert group.core is not None
        if isinstance(group.core, (PackedFilter, PackedMatrix, Scattered, Firsts, Merged, Put, Places)):
            return False
        extents = extents_of(group.core)
        if node.halo and node.shape != group.core.shape:
            return False
        if node.within is not None:  # kernels of cores store the last dimension in vectors
            steps = steps_over(node, node.shape, extents)
            if steps is None or (steps[-1] != 1 and extents[-1] != 1):
                return False
        for operand in node.operands:
            source = source_of(operand)
            if source in self.floating:
                if not self._takes(group, source, position):
                    return False
            elif self.home[source] == position:
                if (
                    source in self.uniform
                    or isinstance(source, Joined)
                    or base_of(operand) is not source
                    or operand.size != group.total
                ):
                    return False
            elif isinstance(operand, Position):
                if node.shape[-1] != extents[-1]:  # kernels of cores count along their own last dimension
                    return False
            elif not isinstance(operand, Constant) and steps_over(operand, node.shape, extents) is None:
                return False
        return _is_chain(breaks_of(node.shape) | breaks_of(extents))

    @staticmethod
    def _join(group: Group, node: Node) -> None:
        group.nodes.append(node)
        group.touched.add(node)
        need = _need(node)
        if need is None:
            return
        total, breaks, columns = need
        if group.core is not None:
            return
        if total != group.total:
            assert group.columns
            group.per_row.add(node)
            group.breaks |= {group.columns * number for number in breaks}
            return
        group.breaks |= breaks
        if columns:
            group.columns = columns
            group.breaks |= {columns}
        if isinstance(node, Choice) or (isinstance(node, Reduction) and _is_along_rows(node)):
            group.per_row.add(node)
        elif isinstance(node, Reduction):
            group.sums.add(node)


def _may_float_into(node: Node, operand: Node) -> bool:
    """Whether each element of what floats is read once, where the element is computed that it belongs to."""
    size = node.source.size if isinstance(node, Reduction) else node.size if isinstance(node, Map) else -1
    return base_of(operand) is source_of(operand) and operand.size == size


def is_elementwise(node: Node, source: Node | None) -> bool:
    """Whether each element of a node is computed of no other element of a source than the one at the same place."""
    return all(_is_elementwise(node, operand) for operand in operands_of(node) if source_of(operand) is source)


def _is_elementwise(node: Node, operand: Node) -> bool:
    if isinstance(node, (Scattered, Put)):
        return operand is node.table
    return isinstance(node, Map) and not isinstance(operand, View) and operand.size == node.size


def _is_repeated_along_rows(operand: Node, node: Node, columns: int) -> bool:
    """Whether an operand with one element for each row is broadcast over the columns."""
    inner = 1
    for extent, own in zip(reversed(node.shape), reversed(operand.shape), strict=True):
        if inner < columns and own != 1:
            return False
        inner *= extent
    return True


def _is_along_rows(node: Reduction) -> bool:
    """Whether a reduction is over the last dimensions, not the first ones."""
    return all(extent == 1 for extent in node.shape[min(node.axes) :])


def _need(node: Node) -> tuple[int, frozenset[int], int | None] | None:
    """The size of the index space in which a node is computed, its breaks, and the columns that it asks for."""
    match node:
        case Map():
            columns = next((operand.shape[-1] for operand in node.operands if isinstance(operand, Position)), None)
            return node.size, breaks_of(node.shape), columns
        case Reduction():
            shape = node.source.shape
            if _is_along_rows(node):
                return node.source.size, breaks_of(shape), prod(shape[min(node.axes) :])
            return node.source.size, breaks_of(shape), prod(shape[max(node.axes) + 1 :])
        case Choice():
            return node.source.size, breaks_of(node.source.shape), node.source.shape[-1]
        case Rows():
            return node.size, breaks_of(node.shape), node.shape[-1]
        case Core():
            return node.size, breaks_of(node.shape), None
    return None


def _new_group(node: Node) -> Group:
    need = _need(node)
    assert need is not None, node
    total, breaks, columns = need
    return Group(total, breaks, node if isinstance(node, Core) else None, columns)


def steps_over(operand: Node, shape: Sequence[int], extents: Sequence[int]) -> list[int] | None:
    """The steps in memory from one element of an operand to the next, by dimension of an index space.

    Args:
        operand: what is read; its extents are those of `shape`, or 1 where it is broadcast.
        shape: the shape in which it is used.
        extents: the dimensions of the index space, which has as many elements as `shape`.

    Returns:
        None where the steps within a dimension of the space differ.
    """
    steps = _steps(operand.shape, strides_of(operand), tuple(shape), tuple(extents))
    return None if steps is None else list(steps)


@lru_cache(1 << 12)
def _steps(own_shape: Shape, strides: Shape, shape: Shape, extents: Shape) -> list[int] | None:
    """`steps_over` for an operand of a shape and strides."""
    breaks = breaks_of(shape) | breaks_of(extents)
    if not _is_chain(breaks):
        return None
    finest = sorted(breaks)
    fine = []  # (break, stride) of the finest dimensions, the last one first
    inner = 1
    for extent, own, stride in zip(reversed(shape), reversed(own_shape), reversed(strides), strict=True):
        outer = inner * extent
        fine += [
            (number, following // number, 0 if own == 1 else stride * (number // inner))
            for number, following in pairwise(finest)
            if inner <= number < outer
        ]
        inner = outer
    steps = []
    inner = 1
    for extent in reversed(extents):
        parts = [(count, stride) for number, count, stride in fine if inner <= number < inner * extent]
        if any(after != before * count for (count, before), (_, after) in pairwise(parts)):
            return None
        steps.append(parts[0][1] if parts else 0)
        inner *= extent
    return steps[::-1]
