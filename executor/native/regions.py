"""Selects the native regions of a plan: lowers ops to the tensor graph and fuses the nodes into groups."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from fluid.ir.program import Operator
from fluid.ir.versions import Value
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .cores import halos_of, is_small, keeps_partial_sums, output_of
from .costs import fast_transform_seconds, multiplication_seconds
from .emitter import BYTE, FLOAT, Type
from .fallback import fault
from .fitting import fit, pack_constants, scale_filters, skip_copies
from .fusion import HEAVY, FusionSchedule, Group, base_of, is_elementwise, reads_of, source_of
from .graph import (
    ChannelsFirst,
    Choice,
    Constant,
    Convolved,
    ConvolvedBack,
    Core,
    FilterGradient,
    GraphNode,
    Joined,
    Map,
    Merged,
    PackedFilter,
    PackedIntegers,
    PlanArray,
    Pooled,
    PooledBack,
    Position,
    Positions,
    Product,
    Put,
    Reduction,
    Reshaped,
    Rows,
    Running,
    Scattered,
    Shape,
    View,
    constant,
    memory_of,
    memory_shape,
    offset_of,
    operands_of,
)  # fmt: skip
from .halo import NO_HALO, Halo
from .instructions import CLEARED, NATIVE_PREFIX, Check, KernelCall, NativeInstruction, Writer
from .loops import Nest, stages_of
from .lowering import ELEMENTS, Planes
from .plan_graph import PlanGraph
from .target import Target


@dataclass(eq=False)
class NativeRegion(NativeInstruction):
    """A group of nodes as an instruction of a plan. It replaces the instructions of its ops.

    Attributes:
        ops: the ops of the region; several regions may compute parts of one op.
        group: the nodes to compute.
        value_of: node -> the value whose memory holds it.
        stored: nodes of the group that get memory.
        partial: sum over rows -> the value that holds its partial sums.
        core_output: the node that the core's kernel stores directly; None without a core.
        target: the processor that the kernels are for.
    """

    ops: list[Operator]
    group: Group
    nest: Nest | None
    value_of: dict[GraphNode, Value]
    stored: list[GraphNode]
    partial: dict[GraphNode, Value]
    core_output: GraphNode | None
    target: Target
    shares: dict[Value, Value] = field(default_factory=dict)
    calls: list[KernelCall] = field(default_factory=list)
    writers: dict[str, Writer] = field(default_factory=dict)
    workspace_bytes: int = 0
    read: list[Value] = field(init=False)
    written: list[Value] = field(init=False)
    layouts: dict[Value, str] = field(init=False)

    def __post_init__(self) -> None:
        self.read = list(dict.fromkeys(self.value_of[node] for node, _ in self.sources if node not in self.stored))
        self.written = [*(self.value_of[node] for node in self.stored), *self.partial.values()]
        of_images = isinstance(self.group.core, (Convolved, ConvolvedBack, Pooled, Positions, PooledBack))
        self.layouts = {
            self.value_of[node]: "channels last" + (f", halo {node.halo}" if node.halo else "")
            for node in self.stored
            if node.halo or (of_images and node.ndim == 4)
        } | dict.fromkeys(self.partial.values(), "parts of a sum")

    def describe(self) -> str:
        """The index space and the formulas, in one line."""
        words = [
            node.formula if isinstance(node, Map) else f"{type(node).__name__.lower()}{list(node.shape)}"
            for node in [*self.group.uniform, *self.group.nodes]
        ]
        space = f"{self.nest.rows} x {self.nest.columns}: " if self.nest is not None else ""
        return f"{space}{' '.join(words)}"

    @cached_property
    def by_start(self) -> frozenset[GraphNode]:
        """Images whose pointer for the core is the start of the memory, halo included."""
        return frozenset(halos_of(self.group.core)) if self.group.core is not None else frozenset()

    @cached_property
    def sources(self) -> list[tuple[GraphNode, int]]:
        """Nodes that the region reads from memory, each with an offset in elements."""
        nodes = [*self.group.uniform, *self.group.nodes]
        members = set(nodes)
        places: dict[tuple[GraphNode, int], None] = {}
        for node in nodes:
            by_start = self.by_start if node is self.group.core else ()
            for operand in operands_of(node):
                source = source_of(operand)
                if source not in members:
                    if not isinstance(source, (Constant, Position)):
                        places[source, 0 if operand in by_start else offset_of(operand)] = None
                elif operand is not source and source in self.stored:
                    places[source, offset_of(operand)] = None
        return list(places)

    @cached_property
    def targets(self) -> list[tuple[GraphNode, int]]:
        """Nodes that the region stores, each with an offset in elements."""
        starts = [(node, 0) for node in self.stored] if self.group.core is not None else []
        return list(dict.fromkeys([*((node, offset_of(node)) for node in self.stored), *starts]))

    @property
    def keeps_partial_sums_in(self) -> Value | None:
        """The value whose memory holds partial sums while the core's kernel runs; None if there are none."""
        core, output = self.group.core, self.core_output
        return self.value_of[output] if core and output and keeps_partial_sums(core, self.target) else None

    @property
    def is_serial(self) -> bool:
        """Whether one thread computes it."""
        if self.nest is not None:
            return self.nest.is_serial
        assert self.group.core is not None
        return is_small(self.group.core, self.target)


def native_regions(
    instructions: Sequence[Any],
    specs: dict[Value, Spec],
    live_out: Iterable[Value],
    storage: Mapping[str, Spec],
    target: Target,
    fewest: int,
    latest: Mapping[str, Value] = MappingProxyType({}),
    tag: str = "",
    constants: Container[str] = (),
) -> list[Any]:
    """The instructions of a plan, or of a branch, with native regions in place of the ops that can be lowered.

    Args:
        instructions: all ops of the plan, in order.
        specs: the specs of all values; specs of new intermediate values are added.
        live_out: values that are needed after the plan has run.
        storage: names whose values live in the scope and are overwritten in place.
        target: the processor that native code is for.
        fewest: if fewer ops than this can be lowered, none is.
        latest: of a branch, name in the scope -> its value before.
        tag: part of the names of new values, different for each branch of a plan.
        constants: names of variables of the scope that never change.
    """
    graph = _graph_of(instructions, specs, set(live_out), storage, target, latest)
    if len(graph.lowered) < fewest:
        return list(instructions)
    owners = _owners(graph)
    overwritten = {graph.overwritten_by(value) for value in graph.former}
    skip_copies(_needed(owners), overwritten)
    scale_filters(_needed(owners), set(owners.values()), constants)
    pack_constants(_needed(owners), constants, target)
    fit(_needed(owners), target)
    needed = _needed(owners)
    stored = set(owners.values())
    _choose_halos(needed, stored)
    schedule = FusionSchedule(target.limits)
    schedule.computed_once = stored
    schedule.always_stored = _always_stored(needed) | stored
    schedule.unchanging = {node for node in needed if _is_of_scope(node, storage)} - overwritten
    schedule.overwrites = {owners[value]: graph.overwritten_by(value) for value in graph.former if value in owners}
    for number, instruction in enumerate(instructions):
        results = graph.lowered.get(number)
        if results is None:
            _add_opaque(schedule, graph, instruction)
            continue
        if (check := graph.checks.get(number)) is not None:
            schedule.add_opaque(check, [graph.node_of(value) for value in check.read], [])
        schedule.op = instruction.op
        for value, node in results.items():
            owner = owners.get(value) or source_of(node)
            if owner in needed:
                schedule.place(owner)
        schedule.op = None
    schedule.finish()
    return _with_regions(schedule, graph, owners, target, tag)


def _is_of_scope(node: GraphNode, storage: Container[str]) -> bool:
    """Whether a node is the first value of a variable of the scope."""
    return isinstance(node, PlanArray) and node.value[1] == 0 and node.value[0] in storage


def _graph_of(
    instructions: Sequence[Any],
    specs: dict[Value, Spec],
    live_out: set[Value],
    storage: Mapping[str, Spec],
    target: Target,
    latest: Mapping[str, Value],
) -> PlanGraph:
    """Lower all ops to one graph.

    Only lowering shows which sparse gradients numpy kernels read, how much of Fourier transforms is read, and whether an op needs
    images with channels last. If an op should have stayed on its numpy kernel, or moved its images, all ops are lowered again.
    """
    as_rows: set[Value] = set()
    on_numpy: set[int] = set()
    may_keep_planes = True
    while True:
        graph = PlanGraph(specs, live_out, storage, as_rows, on_numpy, latest, Planes(may_keep_planes))
        for number, instruction in enumerate(instructions):
            graph.lower(number, instruction)
        refused, slow = graph.sparse.keys() & graph.materialized, _slow_transforms(graph, target)
        is_mixed = graph.planes.is_used and any(isinstance(node, ChannelsFirst) for node in graph.nodes.values())
        if not refused and not slow and not is_mixed:
            graph.last = constant(0, FLOAT).serial
            return graph
        as_rows |= refused
        on_numpy |= slow
        may_keep_planes = may_keep_planes and not is_mixed


def _slow_transforms(graph: PlanGraph, target: Target) -> set[int]:
    """The numbers of ops whose Fourier transforms take longer as products than numpy's fast ones."""
    products = graph.transforms.products
    if not products:
        return set()
    needed = _needed(
        {value: node for results in graph.lowered.values() for value, node in results.items() if value in graph.materialized}
    )
    seconds: dict[int, float] = {}
    for number, product, multiplications in products:
        if product in needed:
            seconds[number] = seconds.get(number, 0.0) + multiplication_seconds(multiplications, product.element.bytes, target)
    fast = graph.transforms.fast
    return {number for number, time in seconds.items() if time > fast_transform_seconds(fast[number])}


def _add_opaque(schedule: FusionSchedule, graph: PlanGraph, instruction: Any) -> None:
    """Leave an op to its numpy kernel: place its operands in memory first."""
    reads = {value: graph.nodes[value] for value in instruction.read_within if value in graph.nodes}
    for node in reads.values():
        schedule.place(node)
    for value in instruction.written:
        schedule.materialize_numbers_of(graph.overwritten_by(value))
    write_nodes = [graph.nodes.get(value) for value in instruction.written]
    schedule.add_opaque(instruction, list(reads.values()), [node for node in write_nodes if isinstance(node, PlanArray)])


def _owners(graph: PlanGraph) -> dict[Value, GraphNode]:
    """Value that needs memory -> the node stored there.

    A copy is made if the node is an alias, or already has memory, or cannot overwrite the old value elementwise.
    """
    owners: dict[Value, GraphNode] = {}
    owned: set[GraphNode] = set()
    for results in graph.lowered.values():
        for value, node in results.items():
            if value not in graph.materialized:
                continue
            base = base_of(node)
            old = graph.overwritten_by(value)
            if (
                isinstance(base, (View, ChannelsFirst, PlanArray, Constant, Position))
                or base in owned
                or not is_elementwise(base, old)
            ):
                base = Map(node.shape, node.element, "copy", (node,))
                graph.nodes[value] = base
            owned.add(base)
            owners[value] = base
            graph.specs.setdefault(value, Spec(node.shape, _DTYPES[node.element]))
    return owners


def _needed(owners: Mapping[Value, GraphNode]) -> set[GraphNode]:
    """The nodes that the stored values depend on."""
    pending = list(owners.values())
    needed: set[GraphNode] = set()
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += operands_of(node)
    return needed


def _always_stored(needed: set[GraphNode]) -> set[GraphNode]:
    """Nodes that always get memory: operands of cores, views and the like, and sums over rows, read by other groups."""
    nodes: set[GraphNode] = set()
    for node in needed:
        if isinstance(node, Reduction):
            nodes.add(node)
            nodes.update(source for source in reads_of(node) if isinstance(source, Core))  # computed in another group
        elif isinstance(node, Rows) and node.are_elements:
            nodes.add(source_of(node.table))
        elif isinstance(node, (Core, View, ChannelsFirst, Rows, Choice, Joined)):
            nodes.update(reads_of(node))
    return {node for node in nodes if not isinstance(node, (PlanArray, Constant, Position))}


_READS_DENSE = (View, Reshaped, Rows, Choice, Product, PackedFilter, PackedIntegers, Running, Scattered, Merged, Put)
"""Nodes whose operands have no halo."""


def _choose_halos(needed: set[GraphNode], owners: set[GraphNode]) -> None:
    """Choose the halo of each image in memory; copy images that cannot have a halo."""
    halos = {node: sources for node in needed if isinstance(node, Core) and (sources := halos_of(node))}
    if not halos:
        return
    widest: dict[GraphNode, Halo] = {}
    for sources in halos.values():
        for source, halo in sources.items():
            widest[source] = widest.get(source, NO_HALO).joined(halo)
    dense = owners.union(*(reads_of(node) for node in needed if isinstance(node, _READS_DENSE)))
    copies: dict[GraphNode, GraphNode] = {}
    for source, halo in widest.items():
        if isinstance(source, (Map, Core)) and (source not in dense or not halo):
            source.halo = halo
        elif halo or not isinstance(source, PlanArray):
            copies[source] = copy = Map(source.shape, source.element, "copy", (source,))
            copy.halo = halo
    for node in halos:
        node.source = copies.get(node.source, node.source)  # type: ignore[attr-defined]
        if isinstance(node, FilterGradient):
            node.gradient = copies.get(node.gradient, node.gradient)


def _with_regions(
    schedule: FusionSchedule, graph: PlanGraph, owners: Mapping[Value, GraphNode], target: Target, tag: str
) -> list[Any]:
    """The items of a schedule as instructions. Checks of values that exist before the first item come first."""
    stored = _stored(schedule, graph, owners)
    values = _Values(graph, owners, tag)
    items: list[Any] = []
    first: list[Any] = []
    for position, item in enumerate(schedule.items):
        if isinstance(item, Group):
            if position in stored:
                items.append(_region(item, stored[position], values, target))
        elif isinstance(item, Check) and all(
            schedule.position_of.get(source_of(graph.nodes[value]), -1) < 0 for value in item.read
        ):
            first.append(item)
        else:
            items.append(item)
    return [*graph.draws, *first, *items]


def _stored(schedule: FusionSchedule, graph: PlanGraph, owners: Mapping[Value, GraphNode]) -> dict[int, set[GraphNode]]:
    """Position of a group -> its nodes that get memory; groups without a needed result are absent."""
    must = set(owners.values())
    for position, item in enumerate(schedule.items):
        if isinstance(item, Group):
            must |= _nodes_to_store(schedule, item, position)
            must.update(node for node in item.nodes if node.within is not None)
        else:
            must |= {source_of(graph.nodes[value]) for value in item.read if value in graph.nodes}
    stored: dict[int, set[GraphNode]] = {}
    for node in must:
        position = schedule.position_of.get(node, -1)
        if position >= 0 and isinstance(schedule.items[position], Group):
            stored.setdefault(position, set()).add(node)
    return stored


class _Values:
    """Assigns a value, and so its memory, to each node that is read or stored."""

    def __init__(self, graph: PlanGraph, owners: Mapping[Value, GraphNode], tag: str) -> None:
        self.graph, self._tag = graph, tag
        self.of: dict[GraphNode, Value] = {node: value for value, node in owners.items()}
        self._count = 0

    def new(self, shape: Shape, element: Type, prefix: str = NATIVE_PREFIX) -> Value:
        """A new intermediate value."""
        value = f"{prefix}{self._tag}{self._count}", 0
        self._count += 1
        self.graph.specs[value] = Spec(shape, _DTYPES[element])
        return value

    def assign(self, node: GraphNode) -> None:
        """Assign memory to a node: part of its container's memory, if it has a container."""
        container = memory_of(node)
        value = self.of.get(container) or self.of.get(node)
        if value is None:
            value = self.new(memory_shape(container), node.element, CLEARED if node.halo else NATIVE_PREFIX)
        self.of[node] = value
        while node.within is not None:
            node = node.within.source
            self.of[node] = value


def _verify_uniform(group: Group) -> None:
    """Verify that formulas that a kernel computes before its loops read nothing that the loops compute."""
    computed = set(group.nodes)
    for formula in group.uniform:
        for source in reads_of(formula):
            if source in computed:
                raise fault(f"a kernel computes {formula!r} before {source!r}, which it reads")


def _region(group: Group, stored: set[GraphNode], values: _Values, target: Target) -> NativeRegion:
    _verify_uniform(group)
    in_order = [node for node in group.nodes if node in stored]
    core_output = output_of(group, in_order, target) if group.core is not None else None
    if core_output is not None and core_output not in stored:
        in_order.insert(0, core_output)
    for node in in_order:
        values.assign(node)
    for node in [*group.uniform, *group.nodes]:
        for source in reads_of(node):
            if isinstance(source, PlanArray):
                values.of[source] = source.value
    nest = None if group.core is not None else Nest(group, in_order, target)
    partial: dict[GraphNode, Value] = {}
    if nest is not None and nest.chunks > 1 and not nest.sums_are_whole:
        sums = [node for node in group.nodes if node in group.sums]
        partial = {node: values.new((nest.chunks, nest.columns), node.element) for node in sums}
    return NativeRegion(values.graph.ops_of(group), group, nest, values.of, in_order, partial, core_output, target)


def _nodes_to_store(schedule: FusionSchedule, group: Group, position: int) -> set[GraphNode]:
    """Nodes of the group that other groups, or later passes of this group, read from memory."""
    must: set[GraphNode] = set(group.sums)
    stage = stages_of(group)[0] if group.core is None else {}
    for node in [*group.uniform, *group.nodes]:
        for operand in operands_of(node):
            source = source_of(operand)
            if isinstance(source, (Constant, Position)) or source in group.uniform:
                continue
            if schedule.position_of[source] != position:
                must.add(source)
                continue
            is_table = isinstance(node, Choice) and operand is node.source  # its rows are chosen by number
            is_of_earlier_pass = node in stage and source not in group.per_row and stage[source] < stage[node]
            if is_table or (is_of_earlier_pass and _is_heavy(source, group, {})):
                must.add(source)
    return must


def _is_heavy(node: GraphNode, group: Group, memo: dict[GraphNode, int]) -> bool:
    """Whether a node is too slow to be recomputed in a later pass."""

    def cost(node: GraphNode) -> int:
        if node not in memo:
            memo[node] = 0
            if isinstance(node, Map) and node in set(group.nodes):
                memo[node] = (10 if node.formula in HEAVY else 1) + sum(cost(source_of(operand)) for operand in node.operands)
            elif isinstance(node, Rows):
                memo[node] = 5 if node.are_elements else 1
        return memo[node]

    return cost(node) > 4


_DTYPES = {element: dtype for dtype, element in ELEMENTS.items()} | {BYTE: VarType.UINT8}
