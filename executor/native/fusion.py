"""Fuses nodes of the tensor graph into groups. Each group becomes one kernel.

A group iterates once over an index space of rows and columns. A node of the group has a value per element or per row. A later
pass over the row may use a per-row value (a reduction along the row) for all elements of the row. Sums over rows are complete
when all rows are done. A group may begin with a core, such as a matrix product. The other nodes of the group are then its
epilogue: they are computed from the core's elements while these are in registers.

Groups are in execution order, together with the ops that run on numpy kernels. A node joins the group of its last operand if it
fits there, or else a later group that reads the same memory. Otherwise it begins a new group.

Cheap elementwise formulas are deferred: they join the group of their first reader. To materialize a deferred formula is to put it
into a group before that.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from math import prod
from operator import mul
from typing import Any

from .graph import (
    ChannelsFirst,
    Choice,
    Constant,
    Core,
    CtcGradient,
    CtcPaths,
    Drawn,
    Factored,
    FilterGradient,
    Firsts,
    GraphNode,
    IntegerProduct,
    Joined,
    Leaves,
    Map,
    Merged,
    PackedFilter,
    PackedIntegers,
    PackedMatrix,
    Places,
    PlanArray,
    Position,
    Product,
    Put,
    Reduction,
    Reshaped,
    Rows,
    Running,
    Scattered,
    Shape,
    Solved,
    View,
    operands_by_element,
    operands_of,
    strides_of,
)
from .target import Limits

_LEAVES = frozenset({Constant, PlanArray, Drawn, Position})
"""Nodes that need no computation."""
_WITHOUT_EPILOGUE = (
    PackedFilter, PackedIntegers, PackedMatrix, Scattered, Firsts, Merged, Put, Places, Leaves, Solved, Factored, Running,
    CtcPaths, CtcGradient,
)  # fmt: skip
"""Cores whose kernels compute nothing else."""
_NUMBERS = frozenset({Constant, Position})
"""Nodes that occupy no memory."""
_LATE = 1 << 32
"""The position of the first item that is not early. Early groups have positions from 0, so that a new one moves no item."""

HEAVY = frozenset(
    {
        "exp", "log", "tanh", "sinh", "cosh", "sigmoid", "erf", "log1p", "expm1", "sin", "cos", "tan", "div", "sqrt", "rsqrt",
        "silu", "reciprocal", "pow",
    }
)  # fmt: skip
"""Formulas that are too slow to be computed twice."""


def base_of(node: GraphNode) -> GraphNode:
    """The node under all reshapes: same elements, same order."""
    while isinstance(node, Reshaped):
        node = node.source
    return node


def reads_of(node: GraphNode) -> list[GraphNode]:
    """The nodes that `node` reads; for a view, its source."""
    return [source_of(operand) for operand in operands_of(node)]


_ALIASES = frozenset({Reshaped, View, ChannelsFirst})
"""Aliases: nodes that only describe how the elements of another node lie in memory."""


def source_of(node: GraphNode) -> GraphNode:
    """The node under all aliases: the owner of the elements."""
    while type(node) in _ALIASES:
        node = node.source  # type: ignore[attr-defined]
    return node


def extents_of(core: GraphNode) -> tuple[int, ...]:
    """The index space of a core's epilogue."""
    if isinstance(core, Product) and not (isinstance(core, IntegerProduct) and core.windows is not None):
        return prod(core.shape[:-1]), core.shape[-1]
    if isinstance(core, FilterGradient):
        return core.shape[0], prod(core.shape[1:])
    return core.shape


@lru_cache(1 << 12)
def breaks_of(shape: Shape) -> frozenset[int]:
    """Products of the trailing extents: 1, the last extent, the product of the last two, and so on."""
    return frozenset(accumulate(reversed(shape), mul, initial=1))


@lru_cache(1 << 12)
def _is_chain(breaks: frozenset[int]) -> bool:
    """Whether each break divides the next one, so that an index space can have these breaks."""
    return all(large % small == 0 for small, large in pairwise(sorted(breaks)))


@dataclass(eq=False)
class Group:
    """Nodes that one kernel computes.

    Attributes:
        nodes: the nodes, in the order of computation.
        total: elements of the index space.
        breaks: see `breaks_of`; quotients of neighbouring breaks are the extents of the index space.
        columns: elements of a row; None while no node needs rows.
        core: the first node, if it is a core.
        sums: reductions over rows.
    """

    total: int
    breaks: frozenset[int]
    core: Core | None = None
    columns: int | None = None
    nodes: list[GraphNode] = field(default_factory=list)
    per_row: set[GraphNode] = field(default_factory=set)
    sums: set[GraphNode] = field(default_factory=set)
    uniform: list[GraphNode] = field(default_factory=list)
    """Scalars that the kernel computes before its loops; other groups may compute them, too."""
    operands: set[GraphNode] = field(default_factory=set)
    """Nodes that the group reads from memory."""
    touched: set[GraphNode] = field(default_factory=set)
    """Nodes that the group reads or computes."""
    scattered_reads: set[GraphNode] = field(default_factory=set)
    """Nodes that the group reads not only at the element it computes."""
    updates: bool = False
    """Whether the group overwrites arrays that it reads, so that it may pass over its elements only once."""
    overwritten: dict[GraphNode, GraphNode] = field(default_factory=dict)
    """Node of the group -> the older node whose memory it overwrites."""
    ops: list[Any] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.total // self.columns if self.columns else 1

    @property
    def summed_rows(self) -> int:
        """The number of neighbouring rows that each of `sums` reduces to one; 0 without sums."""
        return max(map(rows_reduced, self.sums), default=0)


class FusionSchedule:
    """Groups, and ops that run on numpy kernels, in execution order."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.items: list[Any] = []
        """All items in order, once the schedule is finished."""
        self._early: list[Group] = []
        """Groups that read only unchanging arrays, and each other's nodes; they come before all items."""
        self._late: list[Any] = []
        """The other items."""
        self.position_of: dict[GraphNode, int] = {}
        """Node -> position of the item that computes it; -1 for arrays that exist before the first item."""
        self.last_reader: dict[GraphNode, int] = {}
        """Node -> position of its last reader so far."""
        self.uniform: set[GraphNode] = set()
        """Scalar formulas; each group that needs one recomputes it."""
        self.uniform_of: dict[GraphNode, list[GraphNode]] = {}
        """Node -> the scalar formulas that read it."""
        self.deferred: dict[GraphNode, None] = {}
        """Formulas that wait for their first reader and join its group; their operands are in memory, or will be."""
        self._last_opaque = -1
        """The position of the last op, or check, that is not native code."""
        self._fitting: dict[tuple[Group, GraphNode, int], bool] = {}
        self.always_stored: set[GraphNode] = set()
        """Nodes that always get memory, because their readers are in other groups."""
        self.computed_once: set[GraphNode] = set()
        """Nodes that always get memory and are computed once."""
        self.overwrites: dict[GraphNode, GraphNode | None] = {}
        """Node -> the node whose memory it overwrites; all reads of the old node come first."""
        self.unchanging: Container[GraphNode] = ()
        """Arrays that exist before the first item, and that no item overwrites."""
        self.op: Any = None
        """The op whose nodes are being placed."""
        self._op_of: dict[GraphNode, Any] = {}

    def finish(self) -> None:
        """Join early and other items; positions become places among them."""
        self.items = [*self._early, *self._late]
        self.position_of = {node: self._place_of(position) for node, position in self.position_of.items()}

    def add_opaque(self, item: Any, reads: Sequence[GraphNode], writes: Sequence[PlanArray]) -> None:
        """Add an op that runs on its numpy kernel."""
        for node in list(self.deferred):
            self._materialize(node)
        position = self._last_opaque = self._end
        self._late.append(item)
        for node in reads:
            self.last_reader[source_of(node)] = position
        for node in writes:
            self.position_of[node] = position

    def place(self, node: GraphNode) -> int:
        """Place a node and all nodes it depends on; returns the node's position."""
        pending = [node]
        while pending:
            current = pending[-1]
            if current in self.position_of:
                pending.pop()
                continue
            missing = [operand for operand in operands_of(current) if operand not in self.position_of]
            if missing:
                pending += missing
                continue
            pending.pop()
            self._op_of.setdefault(current, self.op)
            kind = type(current)
            if kind in _LEAVES:
                self.position_of[current] = -1
            elif kind is Joined:
                self.position_of[current] = max(self.position_of[part] for part in operands_of(current))
            elif kind in _ALIASES:
                source = source_of(current)
                if kind is not Reshaped:
                    self._materialize_number(source)
                self.position_of[current] = self.position_of[source]
            else:
                self._place_computed(current)
        return self.position_of[node]

    def _place_computed(self, node: GraphNode) -> None:
        """Make a computed node uniform, or deferred, or add it to a group."""
        for operand in operands_of(node):
            source = source_of(operand)
            if not isinstance(node, Map) or isinstance(operand, View):
                self._materialize_number(source)
            if source in self.deferred and not _may_defer_into(node, operand):
                self._materialize(source)
        updates, after = node in self.overwrites, -1
        if updates:
            old = self.overwrites[node]
            self._materialize_readers(node, old)
            after = self._first_overwrite(old)
        reads = self._reads(node)
        is_free = isinstance(node, Map) and node.within is None and node not in self.computed_once
        if is_free and not updates and node.size == 1 and self._are_numbers(node):
            self.uniform.add(node)
            for operand in reads:
                self.uniform_of.setdefault(operand, []).append(node)
            self.position_of[node] = self._latest(reads)
        elif is_free and self._is_deferrable(node, reads):
            self.deferred[node] = None
            self.position_of[node] = self._latest(reads)
        else:
            self._place_in_group(node, reads, after, updates)

    def _is_deferrable(self, node: GraphNode, reads: Sequence[GraphNode]) -> bool:
        """Whether all operands are in memory, or will be, and the chain of deferred formulas is short enough."""
        are_in_memory = all(
            type(operand) in _LEAVES or operand in self.deferred or operand in self.always_stored for operand in reads
        )
        return are_in_memory and len(self._deferred_chain(node)) < self.limits.deferred_nodes

    def _latest(self, nodes: Sequence[GraphNode]) -> int:
        """The position of the last item that computes one of the nodes."""
        return max((self.position_of[node] for node in nodes), default=-1)

    def _place_in_group(self, node: GraphNode, reads: Sequence[GraphNode], after: int, updates: bool) -> None:
        """Add a node to a group that fits, or else to a new group; its position is at least `after`."""
        if isinstance(node, (Rows, Choice)):  # not before the check of its ids
            after = max(after, self._last_opaque)
        least = max([after, *(self._ready_position(operand) for operand in reads)])
        places = self._candidate_positions(node, reads, least)
        position = next((place for place in places if self._fits(self._item(place), node, place, updates)), None)
        if position is None:
            group = self._new_group(node, reads, lambda: self._end)
            position = self._end
            self._late.append(group)
        self._add(node, reads, position, updates)

    def _new_group(self, node: GraphNode, reads: Sequence[GraphNode], position: Callable[[], int]) -> Group:
        """A group that begins with a node and the deferred operands that fit; the others are computed before it."""
        group = _new_group(node)
        for operand in reads:
            if operand not in self.deferred:
                continue
            need = self._combined_requirements(operand)
            if need is not None and self._fits(group, operand, position(), False):
                _, breaks, columns = need  # the next operands have to fit these, too
                group.breaks, group.columns = group.breaks | breaks, group.columns or columns
            else:
                self._materialize(operand)
        return group

    def _add(self, node: GraphNode, reads: Sequence[GraphNode], position: int, updates: bool) -> None:
        """Add a node to a group, after its deferred operands."""
        self._fitting.clear()
        group = self._item(position)
        for operand in reads:
            if operand in self.deferred:
                del self.deferred[operand]
                self._add(operand, self._reads(operand), position, False)
        self._add_uniform(group, node)
        self._join(group, node)
        group.updates |= updates
        if (old := self.overwrites.get(node)) is not None:
            group.overwritten[node] = old
        self.position_of[node] = position
        for operand in reads:
            self.last_reader[operand] = max(self.last_reader.get(operand, -1), position)
            if self.position_of[operand] != position and type(operand) not in _NUMBERS:
                group.operands.add(operand)
                group.touched.add(operand)
        group.scattered_reads.update(source_of(operand) for operand in operands_of(node) if not _is_elementwise(node, operand))
        op = self._op_of.get(node)
        if op is not None and (not group.ops or group.ops[-1] is not op):
            group.ops.append(op)

    def _materialize(self, node: GraphNode) -> None:
        """Compute a deferred formula now, in a separate group if necessary."""
        if node in self.deferred:
            is_early = self._is_early(node)
            del self.deferred[node]
            if is_early:
                self._place_early(node)
            else:
                self._place_in_group(node, self._reads(node), -1, False)

    def _is_early(self, node: GraphNode) -> bool:
        """Whether a vector can be computed before all else: a scale of batch_norm, say, which a convolution then uses.

        A matrix, such as a weight that is stored in fewer bytes, would take memory all the time.
        """
        return node.size == max(node.shape, default=1) <= self.limits.early_numbers and all(
            type(source) in _NUMBERS or source in self.unchanging or 0 <= self.position_of[source] < _LATE
            for source in self._materialized_sources(node)
        )

    def _place_early(self, node: GraphNode) -> None:
        """Compute a formula in a group behind the other early ones."""
        reads = self._reads(node)
        self._early.append(self._new_group(node, reads, lambda: len(self._early)))
        self._add(node, reads, len(self._early) - 1, False)

    @property
    def _end(self) -> int:
        """The position of the next item that is not early."""
        return _LATE + len(self._late)

    def _item(self, position: int) -> Any:
        return self._early[position] if position < _LATE else self._late[position - _LATE]

    def _place_of(self, position: int) -> int:
        """The place of an item among all items."""
        return position if position < _LATE else position - _LATE + len(self._early)

    def _from(self, position: int) -> int:
        """The position of the first item at a position or behind it."""
        return _LATE if len(self._early) <= position < _LATE else position

    def _materialize_readers(self, node: GraphNode, old: GraphNode | None) -> None:
        """Before `node` overwrites `old`, materialize the deferred formulas that read `old`.

        Formulas that `node` itself depends on stay deferred if they read `old` elementwise.
        """
        self.materialize_numbers_of(old)
        inputs: set[GraphNode] = set()
        pending = [source_of(operand) for operand in operands_of(node)]
        while pending:
            current = pending.pop()
            if current in self.deferred and current not in inputs:
                inputs.add(current)
                pending += reads_of(current)
        for formula in list(self.deferred):
            if (formula not in inputs or not is_elementwise(formula, old)) and old in self._materialized_sources(formula):
                self._materialize(formula)

    def materialize_numbers_of(self, old: GraphNode | None) -> None:
        """Before `old` is overwritten, compute its uniform formulas once for all groups."""
        for number in self.uniform_of.pop(old, ()) if old is not None else ():
            self._materialize_number(number)

    def _ready_position(self, node: GraphNode) -> int:
        """The first position where a node can be read; for a deferred formula, where its materialized sources can be read."""
        if node not in self.deferred:
            return self.position_of[node]
        return max((self.position_of[leaf] for leaf in self._materialized_sources(node)), default=-1)

    def _position_of_last_source(self, node: GraphNode) -> int:
        """The position of the item that computes a node; for a uniform formula, of the last item that computes its sources.

        It is not the position that the formula had at first: a source that was uniform, too, may be in a group since.
        """
        return self._latest(self._reads(node)) if node in self.uniform else self.position_of[node]

    def _deferred_chain(self, node: GraphNode) -> set[GraphNode]:
        """A node and all deferred formulas that it depends on."""
        nodes, pending = {node}, [node]
        while pending:
            pending_formulas = [read for read in self._reads(pending.pop()) if read in self.deferred and read not in nodes]
            nodes.update(pending_formulas)
            pending += pending_formulas
        return nodes

    def _materialized_sources(self, node: GraphNode) -> set[GraphNode]:
        """The nodes in memory that a deferred formula depends on, directly or through deferred formulas."""
        return {read for formula in self._deferred_chain(node) for read in self._reads(formula) if read not in self.deferred}

    def _first_overwrite(self, old: GraphNode | None) -> int:
        """The first position where the memory of `old` may be overwritten: after its write and its last read."""
        if old is None:
            return -1
        write_position, read_position = self.position_of.get(old, -1), self.last_reader.get(old, -1)
        if read_position <= write_position:
            return write_position + 1 if write_position >= 0 else -1
        item = self._item(read_position)
        is_elementwise = isinstance(item, Group) and old in item.operands and old not in item.scattered_reads
        return read_position if is_elementwise else read_position + 1

    def _materialize_number(self, node: GraphNode) -> None:
        """Compute a uniform formula in a group, because its reader needs it in memory."""
        if node in self.uniform:
            self.uniform.discard(node)
            self.computed_once.add(node)
            del self.position_of[node]
            self.place(node)

    def _are_numbers(self, node: GraphNode) -> bool:
        """Whether all sources of a formula are scalars in memory or uniform."""
        return all(
            isinstance(source, (Constant, PlanArray))
            or source in self.uniform
            or (source.size == 1 and source in self.computed_once)
            for source in reads_of(node)
        )

    def _reads(self, node: GraphNode) -> list[GraphNode]:
        """The nodes that a node reads, with uniform formulas replaced by the nodes they read."""
        sources = reads_of(node)
        if self.uniform.isdisjoint(sources):
            return sources
        reads: list[GraphNode] = []
        replaced: set[GraphNode] = set()
        pending = list(reversed(sources))
        while pending:
            source = pending.pop()
            if source not in self.uniform:
                reads.append(source)
            elif source not in replaced:  # one that several formulas share is replaced once
                replaced.add(source)
                pending += reversed(reads_of(source))
        return reads

    def _add_uniform(self, group: Group, node: GraphNode) -> None:
        for source in reads_of(node):
            if source in self.uniform and source not in group.uniform:
                self._add_uniform(group, source)
                group.uniform.append(source)

    def _candidate_positions(self, node: GraphNode, reads: Sequence[GraphNode], least: int) -> Iterator[int]:
        if isinstance(node, Core):
            return
        least = self._from(least)
        if 0 <= least < self._end:
            yield least
        shared = [operand for operand in reads if type(operand) not in _NUMBERS and operand.size > 1]
        end = self._place_of(self._end)
        for place in range(max(self._place_of(least) + 1, end - self.limits.nearby_groups), end):
            position = place if place < len(self._early) else place - len(self._early) + _LATE
            item = self._item(position)
            if isinstance(item, Group) and not item.touched.isdisjoint(shared):
                yield position

    # -- fitting nodes into groups
    def _fits(self, group: Any, node: GraphNode, position: int, updates: bool) -> bool:
        if not isinstance(group, Group) or node in group.uniform:  # its readers in the group come before
            return False
        if (group.updates or updates) and any(isinstance(one, (Reduction, Choice)) for one in (*group.nodes, node)):
            return False  # the group would pass over its elements more than once
        if len(group.nodes) >= self.limits.group_nodes or len(group.operands) >= self.limits.group_operands:
            return False
        need = self._combined_requirements(node)
        if need is None:
            return False
        total, breaks, columns = need
        if group.core is not None:
            return isinstance(node, Map) and total == group.total and self._fits_core(group, node, position)
        if total != group.total:
            # One value for each row of the group, so a formula of columns does not fit.
            if not (isinstance(node, Map) and columns is None and group.columns and node.size == group.rows and node.size > 0):
                return False
            breaks = frozenset(group.columns * number for number in breaks)
            per_row = True
        else:
            per_row = isinstance(node, Choice)
        if columns is not None and group.columns not in (None, columns):
            return False
        if group.sums and rows_reduced(node) not in (0, group.summed_rows):
            return False
        columns = columns or group.columns
        if not _is_chain(group.breaks | breaks | ({columns} if columns else set())):
            return False
        if columns and min(group.total, columns) > self.limits.long_row:
            return False
        return all(self._reads_fit(group, node, operand, position, per_row, columns) for operand in operands_of(node))

    def _combined_requirements(self, node: GraphNode) -> tuple[int, frozenset[int], int | None] | None:
        """The `_need` of a node together with its deferred operands; None if no group can satisfy all of them."""
        need = _requirements(node)
        if need is None:
            return None
        total, breaks, columns = need
        for formula in self._deferred_chain(node) - {node}:
            its_need = _requirements(formula)
            assert its_need is not None, formula
            _, its_breaks, its_columns = its_need
            if columns is not None and its_columns not in (None, columns):
                return None
            breaks, columns = breaks | its_breaks, columns or its_columns
        return total, breaks, columns

    def _fits_deferred(self, group: Group, node: GraphNode, position: int) -> bool:
        """Whether a deferred formula fits a group. Cached until the next node is placed: many paths may lead to one formula."""
        key = group, node, position
        if key not in self._fitting:
            self._fitting[key] = self._fits(group, node, position, False)
        return self._fitting[key]

    def _reads_fit(
        self, group: Group, node: GraphNode, operand: GraphNode, position: int, per_row: bool, columns: int | None
    ) -> bool:
        """Whether a node of the group can use an operand; operands from other groups always fit."""
        source = source_of(operand)
        if source in self.deferred:
            return self._fits_deferred(group, source, position)
        if self._position_of_last_source(source) != position:
            return True
        if source in self.uniform or isinstance(source, Joined):
            return False  # computed before the loops, or its parts are stored by other nodes
        if base_of(operand) is not source or source in group.sums:
            return False  # not complete before the loops end
        if isinstance(node, Choice) and operand is node.source:
            return bool(columns) and source not in group.per_row and operand.shape[-1] == columns
        if isinstance(node, Rows) and operand is node.table:
            return False
        if isinstance(node, Rows) and not node.are_elements:
            return source in group.per_row
        if isinstance(node, Reduction):
            return source not in group.per_row
        if per_row:
            return source in group.per_row or (isinstance(node, Choice) and operand is node.ids and source in group.per_row)
        if source in group.per_row:
            return columns is not None and columns > 0 and _is_repeated_along_rows(operand, node, columns)
        return operand.size == group.total

    def _fits_core(self, group: Group, node: Map, position: int) -> bool:
        """Whether the kernel of a group's core can compute a node on its results."""
        assert group.core is not None
        if isinstance(group.core, _WITHOUT_EPILOGUE):
            return False
        extents = extents_of(group.core)
        if node.halo and node.shape != group.core.shape:
            return False
        if node.within is not None:  # kernels of cores store the last dimension in vectors
            steps = strides_over(node, node.shape, extents)
            if steps is None or (steps[-1] != 1 and extents[-1] != 1):
                return False
        fits = all(self._fits_core_operand(group, operand, node.shape, position) for operand in node.operands)
        return fits and _is_chain(breaks_of(node.shape) | breaks_of(extents))

    def _fits_core_operand(self, group: Group, operand: GraphNode, shape: tuple[int, ...], position: int) -> bool:
        """Whether a node of this shape, behind the core of a group, can read an operand there."""
        assert group.core is not None
        source, extents = source_of(operand), extents_of(group.core)
        if source in self.deferred:
            return self._fits_deferred(group, source, position)
        if self._position_of_last_source(source) == position:
            is_element = source not in self.uniform and not isinstance(source, Joined)
            return is_element and base_of(operand) is source and operand.size == group.total
        if isinstance(operand, Position):
            return shape[-1] == extents[-1]  # a core's kernel counts along the last dimension of the core
        return isinstance(operand, Constant) or strides_over(operand, shape, extents) is not None

    @staticmethod
    def _join(group: Group, node: GraphNode) -> None:
        group.nodes.append(node)
        group.touched.add(node)
        need = _requirements(node)
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


def _may_defer_into(node: GraphNode, operand: GraphNode) -> bool:
    """Whether `node` reads each element of a deferred operand once, at the same place of the index space."""
    by_element = operand in operands_by_element(node)
    size = node.source.size if isinstance(node, Reduction) else node.size if by_element else -1
    return base_of(operand) is source_of(operand) and operand.size == size


def is_elementwise(node: GraphNode, source: GraphNode | None) -> bool:
    """Whether each element of a node depends only on the element of `source` at the same place."""
    return all(_is_elementwise(node, operand) for operand in operands_of(node) if source_of(operand) is source)


def _is_elementwise(node: GraphNode, operand: GraphNode) -> bool:
    if isinstance(node, (Scattered, Put)):
        return operand is node.table
    return operand in operands_by_element(node) and not isinstance(operand, View) and operand.size == node.size


def _is_repeated_along_rows(operand: GraphNode, node: GraphNode, columns: int) -> bool:
    """Whether an operand with one element for each row is broadcast over the columns."""
    inner = 1
    for extent, operand_extent in zip(reversed(node.shape), reversed(operand.shape), strict=True):
        if inner < columns and operand_extent != 1:
            return False
        inner *= extent
    return True


def _is_along_rows(node: Reduction) -> bool:
    """Whether a reduction is over the last dimensions, not the first ones."""
    return all(extent == 1 for extent in node.shape[min(node.axes) :])


def rows_reduced(node: GraphNode) -> int:
    """The number of neighbouring rows that a reduction over rows reduces to one; 0 for other nodes."""
    if not isinstance(node, Reduction) or _is_along_rows(node):
        return 0
    return prod(node.source.shape[axis] for axis in node.axes)


def _requirements(node: GraphNode) -> tuple[int, frozenset[int], int | None] | None:
    """The node's requirements for a group: size of the index space, breaks, and columns (None: any)."""
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
            return node.size, breaks_of(node.shape), None if node.are_elements else node.shape[-1]
        case Core():
            return node.size, breaks_of(node.shape), None
    return None


def _new_group(node: GraphNode) -> Group:
    need = _requirements(node)
    assert need is not None, node
    total, breaks, columns = need
    return Group(total, breaks, node if isinstance(node, Core) else None, columns)


def strides_over(operand: GraphNode, shape: Sequence[int], extents: Sequence[int]) -> list[int] | None:
    """The strides of an operand over the dimensions of an index space, in elements.

    Args:
        operand: the operand; each extent is equal to the extent in `shape`, or 1 (broadcast).
        shape: the shape that the operand is broadcast to.
        extents: the extents of the index space, with the same number of elements as `shape`.

    Returns:
        None if the stride is not constant within a dimension of the space.
    """
    steps = _strides_over(operand.shape, strides_of(operand), tuple(shape), tuple(extents))
    return None if steps is None else list(steps)


@lru_cache(1 << 12)
def _strides_over(operand_shape: Shape, strides: Shape, shape: Shape, extents: Shape) -> list[int] | None:
    """`strides_over` for an operand with the given shape and strides."""
    breaks = breaks_of(shape) | breaks_of(extents)
    if not _is_chain(breaks):
        return None
    finest = sorted(breaks)
    fine = []  # (break, stride) of the finest dimensions, the last one first
    inner = 1
    for extent, operand_extent, stride in zip(reversed(shape), reversed(operand_shape), reversed(strides), strict=True):
        outer = inner * extent
        fine += [
            (number, following // number, 0 if operand_extent == 1 else stride * (number // inner))
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
