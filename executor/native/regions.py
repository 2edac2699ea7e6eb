"""Finds the parts of a plan that become native code: its ops, lowered to the tensor graph and gathered into groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fluid.errors import FluidError
from fluid.ir.program import Operator
from fluid.ir.versions import Value
from fluid.values.spec import Spec
from fluid.values.types import VarType, is_floating

from ..binding.calls import Call
from ..kernels.table import CHECKS, check_call
from .cores import halos_of
from .emitter import BYTE, FLOAT, Type
from .fusion import Group, Schedule, is_elementwise, source_of
from .graph import PackedFilter, Choice, Constant, Map, Memory, Merged, Put, Node, Position, Product, Reduction, Reshaped, Rows, Scattered, View, constant, operands_of, memory_shape, offset_of, Turned, Core, Convolved, ConvolvedBack, FilterGradient, Pooled, Positions, PooledBack
from .loops import HEAVY, Nest, stages_of
from .lowering import ELEMENTS, NotLowered, Tensor, element_of, lower
from .sparse_lowering import SparseTensor, lower_sparse, makes_sparse_gradient

__all__ = ["CLEARED", "Check", "Region", "native_regions"]

CLEARED = "native.images."
"""How the names of values begin whose memory holds zeros before the first run: images with a halo."""
_FEWEST = 2
"""Ops that a program has to have at least, for native code to be made of it."""


@dataclass(eq=False)
class Region:
    """Ops that one native kernel computes, in the place of a plan's instructions.

    Attributes:
        ops: the ops, of which some may be computed by several regions.
        group: what is computed.
        value_of: node -> the value in whose memory it is read or stored.
        stored: the nodes of the group that get memory.
        partial: sums over rows -> the value of the partial sums that they are added up from.
    """

    ops: list[Operator]
    group: Group
    nest: Nest | None
    value_of: dict[Node, Value]
    stored: list[Node]
    partial: dict[Node, Value]
    definition: None = None
    dynamic: bool = False
    shares: dict[Value, Value] = field(default_factory=dict)

    @property
    def op(self) -> Operator:
        return self.ops[-1]

    def describe(self) -> str:
        """What is computed, in a line."""
        words = [
            f"{type(node).__name__.lower()}{list(node.shape)}" if not isinstance(node, Map) else node.formula for node in self.group.nodes
        ]
        space = f"{self.nest.rows} x {self.nest.columns}" if self.nest is not None else ""
        return f"{space} {' '.join(words)}"

    @cached_property
    def sources(self) -> list[tuple[Node, int]]:
        """Where elements are read from: nodes that have memory, and offsets in it."""
        nodes = [*self.group.uniform, *self.group.nodes]
        inside = set(nodes)
        places = []
        for node in nodes:
            by_start = halos_of(node)
            for operand in operands_of(node):
                source = source_of(operand)
                if source not in inside and not isinstance(source, (Constant, Position)):
                    places.append((source, 0 if operand in by_start else offset_of(operand)))
                elif source in inside and source in self.stored and operand is not source:
                    places.append((source, offset_of(operand)))
        return list(dict.fromkeys(places))

    @cached_property
    def targets(self) -> list[tuple[Node, int]]:
        """Where elements are stored: nodes of the group, and offsets in their memory."""
        starts = [(node, 0) for node in self.stored] if self.group.core is not None else []
        return list(dict.fromkeys([*((node, offset_of(node)) for node in self.stored), *starts]))

    @property
    def read(self) -> list[Value]:
        return list(dict.fromkeys(self.value_of[node] for node, _ in self.sources if node not in self.stored))

    @property
    def written(self) -> list[Value]:
        return [*(self.value_of[node] for node in self.stored), *self.partial.values()]

    @property
    def reads(self) -> dict[str, list[Value | None]]:
        return {"": list(self.read)}

    @property
    def writes(self) -> dict[str, list[Value | None]]:
        return {"": list(self.written)}

    @property
    def outer(self) -> dict[str, Value]:
        """The values that are read, by a text that tells versions of one name apart."""
        return {f"{name}.{version}": (name, version) for name, version in self.read}


class Check:
    """What looks at the values that an op reads, and raises an error for wrong ones, before native code computes the op."""

    definition = None
    dynamic = False

    def __init__(self, instruction: Any, specs: Mapping[Value, Spec]) -> None:
        self.instruction, self.op, self.specs = instruction, instruction.op, specs
        self.shares: dict[Value, Value] = {}
        self.written: list[Value] = []
        self.writes: dict[str, list[Value | None]] = {}
        values = [value for values in instruction.reads.values() for value in values if value is not None]
        self.read = [value for value in dict.fromkeys(values) if not is_floating(specs[value].dtype)]

    @property
    def reads(self) -> dict[str, list[Value | None]]:
        return {"": list(self.read)}

    @property
    def outer(self) -> dict[str, Value]:
        return {f"{name}.{version}": (name, version) for name, version in self.read}

    def call(self, array: Callable[[Value], Any]) -> Call:
        """The call that checks; of what is not looked at it is given the shape alone."""
        definition = self.instruction.definition

        def operands(slots: Mapping[str, list[Value | None]], declared: Mapping[str, Any]) -> dict[str, Any]:
            arrays = {slot: [None if value is None else self._array(value, array) for value in values] for slot, values in slots.items()}
            return {slot: items if declared[slot].many else items[0] for slot, items in arrays.items() if items and slot in declared}

        inputs, outputs = operands(self.instruction.reads, definition.inputs), operands(self.instruction.writes, definition.outputs)
        return check_call(CHECKS[definition.type], inputs, outputs, definition.defaults(self.op.attrs), {"xp": np}, {})

    def _array(self, value: Value, array: Callable[[Value], Any]) -> Any:
        spec = self.specs[value]
        return array(value) if value in self.read else np.broadcast_to(np.zeros((), spec.dtype.numpy), spec.shape)


class _Finder:
    def __init__(self, specs: Mapping[Value, Spec], kept: set[Value], storage: Mapping[str, Spec], as_rows: set[Value]) -> None:
        self.specs, self.kept, self.storage = specs, set(kept), storage
        self.as_rows = as_rows
        """Sparse gradients that something reads which is left to its kernel."""
        self.sparse: dict[Value, SparseTensor] = {}
        self.nodes: dict[Value, Node] = {}
        """The node of each value."""
        self.former: dict[Value, Value] = {}
        """Value of the scope -> the one that it overwrites."""
        self.latest: dict[str, Value] = {}
        self.lowered: dict[int, dict[Value, Node]] = {}
        self.checks: dict[int, Check] = {}
        self._checked: set[Any] = set()

    def node_of(self, value: Value) -> Node:
        if value not in self.nodes:
            spec = self.specs.get(value)
            if spec is None or not spec.known:
                raise NotLowered(f"{value[0]} has no shape")
            self.nodes[value] = Memory(spec.shape, element_of(spec.dtype), value)
        return self.nodes[value]

    def _check(self, number: int, instruction: Any) -> None:
        """Note that an op's inputs are checked before native code reads them; what an op has checked, its gradient need not."""
        definition = instruction.definition
        if definition.type not in CHECKS:
            return
        check = Check(instruction, self.specs)
        key = self._key(check)
        if definition.forward is not None and key in self._checked:
            return
        self._checked.add(key)
        self.checks[number] = check
        self.kept.update(check.read)

    @staticmethod
    def _key(check: Check) -> Any:
        """What an op and its gradient op have in common that check the same values."""
        definition = check.instruction.definition
        return (definition.forward or definition).type, tuple(check.read)

    def _is_empty(self, value: Value | None) -> bool:
        return value is not None and value in self.specs and self.specs[value].size == 0

    def lower(self, number: int, instruction: Any) -> None:
        """Lower an op, or note that what it reads has to be in memory."""
        try:
            results = self._results(instruction)
        except NotLowered:
            results = None
        if results is None:
            self.kept.update(value for value in [*instruction.read, *instruction.outer.values()])
            for value in instruction.written:
                self.nodes.pop(value, None)
                self.kept.add(value)
        else:
            self.lowered[number] = results
            self.nodes.update(results)
            self._check(number, instruction)
        for value in instruction.written:
            if value[0] in self.storage:
                before = self.latest.get(value[0], (value[0], 0))
                if before != value:
                    self.former[value] = before
                self.latest[value[0]] = value
                self.kept.add(value)

    def _results(self, instruction: Any) -> dict[Value, Node]:
        op, definition = instruction.op, instruction.definition
        is_sparse = any(value in self.sparse for value in instruction.read) or (
            definition is not None and makes_sparse_gradient(definition, op.attrs)
        )
        follows_sparse = is_sparse or any(value in self.nodes and value not in self.specs for value in instruction.read)
        if definition is None or op.sub_blocks or (instruction.dynamic and not follows_sparse):
            raise NotLowered("an op that runs step by step")
        if is_sparse and definition.type in CHECKS and self._key(Check(instruction, self.specs)) not in self._checked:
            raise NotLowered("ids that nobody checks")
        inputs: dict[str, Any] = {}
        for slot, values in instruction.reads.items():
            declared = definition.inputs.get(slot)
            if declared is None or not values:
                continue
            tensors = [None if value is None else self.sparse.get(value) or Tensor(self.node_of(value)) for value in values]
            inputs[slot] = tensors if declared.many else tensors[0]
        wanted: dict[str, Any] = {}
        for slot, values in (*instruction.reads.items(), *instruction.writes.items()):
            declared = definition.inputs.get(slot) or definition.outputs.get(slot)
            may_be_absent = declared is None or declared.intermediate or declared.optional or declared.shape_only
            if not may_be_absent and any(map(self._is_empty, values)):
                raise NotLowered("no elements")
        for slot, values in instruction.writes.items():
            declared = definition.outputs.get(slot)
            if declared is None or not values:
                continue
            if declared.updated:
                raise NotLowered("an output that is updated")
            specs = [None if value is None else self.specs.get(value) or (_declared(op, value) if follows_sparse else None) for value in values]
            unknown = any(value is not None and (spec is None or not spec.known) for value, spec in zip(values, specs, strict=True))
            if unknown and not follows_sparse:
                raise NotLowered("an output of unknown shape")
            wanted[slot] = specs if declared.many else specs[0]
        first = constant(0, FLOAT).serial
        try:
            outputs = (lower_sparse if is_sparse else lower)(definition, inputs, definition.defaults(op.attrs), wanted)
        except (FluidError, KeyError, AssertionError, ValueError, TypeError, IndexError) as error:
            raise NotLowered(f"{op.type}: {error}") from error
        if not is_sparse and definition.type not in CHECKS and _reads_by_index(outputs, first):
            raise NotLowered("indices that nobody checks")
        results: dict[Value, Node] = {}
        for slot, values in instruction.writes.items():
            output = outputs.get(slot)
            tensors = output if isinstance(output, list) else [output]
            for value, tensor in zip(values, tensors, strict=False):
                if value is None or self._is_empty(value):
                    continue
                if isinstance(tensor, SparseTensor):
                    self._keep_sparse(op, value, tensor)
                    continue
                spec = self.specs.get(value)
                if spec is None and tensor is not None:  # inference does not know how many rows there are
                    spec = Spec(tensor.shape, tensor.dtype)
                if tensor is not None and isinstance(tensor.node, (Scattered, Put)) and tensor.node.table is not None:
                    self._must_overwrite(value, tensor.node.table)
                if tensor is None or tensor.node.size != spec.size or tensor.node.element != element_of(spec.dtype):
                    raise NotLowered(f"no {slot} of {op.type}")
                results[value] = tensor.node if tensor.shape == spec.shape else _in_shape(tensor.node, spec.shape)
        return results


    def _keep_sparse(self, op: Operator, value: Value, tensor: SparseTensor) -> None:
        var = op.block.find_var(value[0])
        if value in self.as_rows or (var is not None and var.persistable):
            raise NotLowered("a sparse gradient that is read as one")
        self.sparse[value] = tensor

    def _must_overwrite(self, value: Value, table: Node) -> None:
        """`NotLowered` unless a value lies in the memory of a table of which it has other rows."""
        former = self.latest.get(value[0], (value[0], 0))
        if value[0] not in self.storage or self.nodes.get(former) is not table:
            raise NotLowered("a table that is not updated in place")


def _declared(op: Operator, value: Value) -> Spec | None:
    """The spec that the program declares for a value, if that says all."""
    var = op.block.find_var(value[0])
    return var.spec if var is not None and var.has_shape and var.spec.known else None


def _reads_by_index(outputs: Mapping[str, Any], first: int) -> bool:
    """Whether outputs are found by indices, in the nodes that were made from a number on."""
    pending = [tensor.node for tensor in _tensors(outputs)]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, (Rows, Choice, Scattered)) and node.serial > first:
            return True
        seen.add(node)
        pending += [operand for operand in operands_of(node) if operand.serial > first and operand not in seen]
    return False


def _tensors(values: Mapping[str, Any]) -> Iterator[Tensor]:
    for value in values.values():
        yield from (item for item in (value if isinstance(value, list) else [value]) if item is not None)


def _in_shape(node: Node, shape: tuple[int, ...]) -> Node:
    from .graph import reshaped

    return reshaped(node, shape)


def native_regions(
    instructions: Sequence[Any], specs: dict[Value, Spec], kept: Iterable[Value], storage: Mapping[str, Spec], lanes: int
) -> list[Any]:
    """The instructions of a plan, with regions in the place of what becomes native code.

    Args:
        instructions: all ops of the plan, in order.
        specs: the specs of all values; those of what regions hand to each other are added.
        kept: values that are needed after the plan has run.
        storage: names whose values live in the scope, where they are overwritten in place.
        lanes: lanes of 32 bits in a vector.
    """
    kept = set(kept)
    as_rows: set[Value] = set()
    while True:
        finder = _Finder(specs, kept, storage, as_rows)
        for number, instruction in enumerate(instructions):
            finder.lower(number, instruction)
        refused = finder.sparse.keys() & finder.kept
        if not refused:
            break
        as_rows |= refused
    if len(finder.lowered) < _FEWEST:
        return list(instructions)
    owners = _owners(finder)
    needed = _needed(finder, owners)
    _give_halos(needed, set(owners.values()))
    schedule = Schedule()
    schedule.apart = set(owners.values())
    schedule.overwrites = {owners[value]: finder.nodes.get(old) for value, old in finder.former.items() if value in owners}
    for number, instruction in enumerate(instructions):
        results = finder.lowered.get(number)
        if results is None:
            reads = {value: finder.nodes[value] for value in [*instruction.read, *instruction.outer.values()] if value in finder.nodes}
            for node in reads.values():
                schedule.place(node)
            schedule.add_opaque(instruction, list(reads.values()), [])
            position = len(schedule.items) - 1
            for value in instruction.written:
                node = finder.nodes.get(value)
                if isinstance(node, Memory):
                    schedule.home[node] = position
            continue
        if (check := finder.checks.get(number)) is not None:
            schedule.add_opaque(check, [finder.node_of(value) for value in check.read], [])
        schedule.op = instruction.op
        for value, node in results.items():
            own = owners.get(value)
            if own is not None and own in needed:
                schedule.place(own)
            elif node in needed:
                schedule.place(node)
        schedule.op = None
    return _regions(schedule, finder, owners, lanes)


def _owners(finder: _Finder) -> dict[Value, Node]:
    """Value that has to be in memory -> the node that is stored there; a copy where a node is there already, or only a view."""
    owners: dict[Value, Node] = {}
    taken: set[Node] = set()
    for results in finder.lowered.values():
        for value, node in results.items():
            if value not in finder.kept:
                continue
            base = node
            while isinstance(base, Reshaped):
                base = base.source
            old = finder.nodes.get(finder.former[value]) if value in finder.former else None
            if isinstance(base, (View, Turned, Memory, Constant, Position)) or base in taken or not is_elementwise(base, old):
                base = Map(node.shape, node.element, "copy", (node,))
                finder.nodes[value] = base
            taken.add(base)
            owners[value] = base
            finder.specs.setdefault(value, Spec(node.shape, _dtype(node.element)))  # type: ignore[attr-defined]
    return owners


def _needed(finder: _Finder, owners: Mapping[Value, Node]) -> set[Node]:
    pending = list(owners.values())
    needed: set[Node] = set()
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += operands_of(node)
    return needed


def _give_halos(needed: set[Node], owners: set[Node]) -> None:
    """Decide how wide a halo images have in memory; what cannot have one is copied to where there is one."""
    wanted: dict[Node, int] = {}
    plain = set(owners)
    for node in needed:
        for source, halo in halos_of(node).items():
            wanted[source] = max(wanted.get(source, 0), halo)
        for operand in operands_of(node):
            if isinstance(node, (View, Reshaped, Rows, Choice, Product, PackedFilter, Scattered, Merged, Put)):
                plain.add(source_of(operand))
    copies: dict[Node, Node] = {}
    for source, halo in wanted.items():
        if isinstance(source, (Map, Core)) and (source not in plain or not halo):
            source.halo = halo
        elif halo or not isinstance(source, Memory):
            copies[source] = copy = Map(source.shape, source.element, "copy", (source,))
            copy.halo = halo
    for node in needed:
        if halos_of(node):
            node.source = copies.get(node.source, node.source)  # type: ignore[attr-defined]
            if isinstance(node, FilterGradient):
                node.gradient = copies.get(node.gradient, node.gradient)


def _regions(schedule: Schedule, finder: _Finder, owners: Mapping[Value, Node], lanes: int) -> list[Any]:
    value_of: dict[Node, Value] = {node: value for value, node in owners.items()}
    stored: dict[int, list[Node]] = {}
    for position, item in enumerate(schedule.items):
        if isinstance(item, Group):
            stored[position] = []
    must = set(owners.values())
    for position, item in enumerate(schedule.items):
        if isinstance(item, Group):
            must |= _must_store(schedule, item, position) | {node for node in item.nodes if node.within is not None}
        else:
            must |= {source_of(finder.nodes[value]) for value in item.read if value in finder.nodes}
    for node in must:
        position = schedule.home.get(node, -1)
        if position >= 0 and isinstance(schedule.items[position], Group):
            stored[position].append(node)
    items: list[Any] = []
    first: list[Any] = []
    count = 0
    for position, item in enumerate(schedule.items):
        if not isinstance(item, Group):
            if isinstance(item, Check) and all(schedule.home[source_of(finder.nodes[value])] < 0 for value in item.read):
                first.append(item)
            else:
                items.append(item)
            continue
        of_group = [node for node in item.nodes if node in set(stored[position])]
        if not of_group:
            continue
        for node in of_group:
            whole = node if node.within is None else node.within.source
            if node is not whole and whole in value_of:
                value_of[node] = value_of[whole]
            if node not in value_of:
                value_of[node] = value_of[whole] = value = (f"native.{count}" if not node.halo else f"{CLEARED}{count}", 0)
                count += 1
                finder.specs[value] = Spec(memory_shape(whole), _dtype(node.element))  # type: ignore[index]
        nest = None if item.core is not None else Nest(item, of_group, lanes)
        partial: dict[Node, Value] = {}
        if nest is not None and nest.chunks > 1:
            for node in item.nodes:
                if node in item.sums:
                    partial[node] = value = (f"native.{count}", 0)
                    count += 1
                    finder.specs[value] = Spec((nest.chunks, nest.columns), _dtype(node.element))  # type: ignore[index]
        for node in [*item.uniform, *item.nodes]:
            for operand in operands_of(node):
                source = source_of(operand)
                if isinstance(source, Memory):
                    value_of[source] = source.value
        items.append(Region(item.ops, item, nest, value_of, of_group, partial))
    return [*first, *items]


def _must_store(schedule: Schedule, group: Group, position: int) -> set[Node]:
    """What other groups, or later passes of this one, read from memory."""
    must: set[Node] = set(group.sums)
    stage = stages_of(group)[0] if group.core is None else {}
    for node in [*group.uniform, *group.nodes]:
        for operand in operands_of(node):
            source = source_of(operand)
            if isinstance(source, (Constant, Position)) or source in group.uniform:
                continue
            home = schedule.home[source]
            if home != position or (isinstance(node, Choice) and operand is node.source):
                must.add(source)
            elif node in stage and source not in group.per_row and stage[source] < stage[node] and _is_heavy(source, group, {}):
                must.add(source)
    return must


def _is_heavy(node: Node, group: Group, memo: dict[Node, int]) -> bool:
    """Whether a node takes too long to be computed again in a later pass."""

    def cost(node: Node) -> int:
        if node not in memo:
            memo[node] = 0
            if isinstance(node, Map) and node in set(group.nodes):
                memo[node] = (10 if node.formula in HEAVY else 1) + sum(cost(source_of(operand)) for operand in node.operands)
            elif isinstance(node, Rows):
                memo[node] = 1
        return memo[node]

    return cost(node) > 4


_DTYPES = {element: dtype for dtype, element in ELEMENTS.items()} | {BYTE: VarType.UINT8}


def _dtype(element: Type) -> VarType:
    return _DTYPES[element]
