"""Finds the parts of a plan that become native code: its ops, lowered to the tensor graph and gathered into groups."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

from fluid.errors import FluidError
from fluid.ir.program import Operator
from fluid.ir.versions import Value
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..kernels.table import CHECKS
from .cores import halos_of, is_small, target_of
from .emitter import BYTE, FLOAT, Type
from .fallback import warn_of_lowering
from .fusion import Group, Schedule, is_elementwise, source_of
from .graph import (
    Choice,
    Constant,
    Convolved,
    ConvolvedBack,
    Core,
    Drawn,
    FilterGradient,
    Joined,
    Map,
    Memory,
    Merged,
    Node,
    PackedFilter,
    Pooled,
    PooledBack,
    Position,
    Positions,
    Product,
    Put,
    Reduction,
    Reshaped,
    Rows,
    Scattered,
    Turned,
    View,
    constant,
    memory_of,
    memory_shape,
    offset_of,
    operands_of,
    reshaped,
)  # fmt: skip
from .instructions import CLEARED, Check, NativeInstruction
from .loops import HEAVY, Nest, stages_of
from .lowering import ELEMENTS, NotLowered, Tensor, element_of, lower
from .sparse_lowering import SparseTensor, lower_sparse, makes_sparse_gradient

__all__ = ["Region", "native_regions"]

_FEWEST = 2
"""Ops that a program has to have at least, for native code to be made of it."""


@dataclass(eq=False)
class Region(NativeInstruction):
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
    shares: dict[Value, Value] = field(default_factory=dict)

    def describe(self) -> str:
        """What is computed, in a line."""
        words = [
            node.formula if isinstance(node, Map) else f"{type(node).__name__.lower()}{list(node.shape)}"
            for node in [*self.group.uniform, *self.group.nodes]
        ]
        space = f"{self.nest.rows} x {self.nest.columns}: " if self.nest is not None else ""
        return f"{space}{' '.join(words)}"

    @property
    def layouts(self) -> dict[Value, str]:
        """How values lie in memory that are no plain tensors."""
        of_images = isinstance(self.group.core, (Convolved, ConvolvedBack, Pooled, Positions, PooledBack))
        texts = {
            self.value_of[node]: "channels last" + (f", halo {node.halo}" if node.halo else "")
            for node in self.stored
            if node.halo or (of_images and node.ndim == 4)
        }
        return texts | dict.fromkeys(self.partial.values(), "parts of a sum")

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
    def is_serial(self) -> bool:
        """Whether one thread computes it."""
        if self.nest is not None:
            return self.nest.is_serial
        assert self.group.core is not None
        return is_small(self.group.core)

    @cached_property
    def read(self) -> list[Value]:  # type: ignore[override]  # asked for often; a region does not change
        return list(dict.fromkeys(self.value_of[node] for node, _ in self.sources if node not in self.stored))

    @property
    def written(self) -> list[Value]:
        return [*(self.value_of[node] for node in self.stored), *self.partial.values()]


_WORKSPACES = frozenset({"ReserveSpace", "StateOut", "Reserve", "DropoutState"})
"""Slots of what other backends of Paddle's keep, which may have no elements."""


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
        self.origins: list[tuple[int, Operator]] = []
        """Ops in order, with the number of a node that is older than their own."""
        self.last = 0
        """The number of a node that is newer than those of all ops."""
        self.checks: dict[int, Check] = {}
        self.draws: list[Any] = []
        """What draws random numbers for ops that are lowered."""
        self._checked: set[Any] = set()

    def node_of(self, value: Value) -> Node:
        if value not in self.nodes:
            spec = self.specs.get(value)
            if spec is None or not spec.known:
                raise NotLowered(f"{value[0]} has no shape")
            self.nodes[value] = Memory(spec.shape, element_of(spec.dtype), value)
        return self.nodes[value]

    def ops_of(self, group: Group) -> list[Operator]:
        """The ops that a group computes something of; a copy belongs to the op of what is copied."""
        ops: dict[int, Operator] = {}
        for node in [*group.uniform, *group.nodes]:
            while self._is_copy(node):
                node = source_of(operands_of(node)[0])
            place = bisect_right(self.origins, node.serial, key=itemgetter(0)) - 1
            if place >= 0 and not isinstance(node, Memory):
                ops[place] = self.origins[place][1]
        return [ops[place] for place in sorted(ops)] or group.ops

    def _is_copy(self, node: Node) -> bool:
        """Whether a node was made after all ops had been lowered."""
        return isinstance(node, Map) and node.serial > self.last

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

    def _is_checked(self, instruction: Any) -> bool:
        """Whether the indices that an op reads are looked at: by itself, or by the op of which it is the gradient."""
        definition = instruction.definition
        is_gradient = definition.forward is not None
        return definition.type in CHECKS or (is_gradient and self._key(Check(instruction, self.specs)) in self._checked)

    @staticmethod
    def _key(check: Check) -> Any:
        """What an op and its gradient op have in common that check the same values."""
        definition = check.instruction.definition
        return (definition.forward or definition).type, tuple(check.read)

    def _tensor_of(self, value: Value) -> Tensor | SparseTensor:
        return self.sparse.get(value) or Tensor(self.node_of(value))

    def _is_empty(self, value: Value | None) -> bool:
        return value is not None and value in self.specs and self.specs[value].size == 0

    def lower(self, number: int, instruction: Any) -> None:
        """Lower an op, or note that what it reads has to be in memory."""
        try:
            results = self._results(instruction)
        except NotLowered:
            results = None
        except Exception as error:  # a fault in the lowering of one op: the others need not suffer
            warn_of_lowering(instruction.op.type, error)
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
                    with suppress(NotLowered):  # a node, so that who reads or writes that memory before is known
                        self.node_of(before)
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
            if any(map(self._is_empty, values)) and not (slot in _WORKSPACES or declared.shape_only or declared.intermediate):
                raise NotLowered("no elements")
            absent = [value is None or (slot in _WORKSPACES and self._is_empty(value)) for value in values]
            tensors = [None if gone else self._tensor_of(value) for gone, value in zip(absent, values, strict=True)]
            inputs[slot] = tensors if declared.many else tensors[0]
        wanted: dict[str, Any] = {}
        first_out = next(iter(definition.outputs))
        if not definition.outputs[first_out].optional and any(map(self._is_empty, instruction.writes.get(first_out, []))):
            raise NotLowered("no elements")
        for slot, values in instruction.writes.items():
            declared = definition.outputs.get(slot)
            if declared is None or not values:
                continue
            if declared.updated:
                raise NotLowered("an output that is updated")
            specs = [
                None if value is None else self.specs.get(value) or (_declared(op, value) if follows_sparse else None)
                for value in values
            ]
            unknown = any(
                value is not None and (spec is None or not spec.known) for value, spec in zip(values, specs, strict=True)
            )
            if unknown and not follows_sparse:
                raise NotLowered("an output of unknown shape")
            wanted[slot] = specs if declared.many else specs[0]
        first = constant(0, FLOAT).serial
        self.origins.append((first, op))
        try:
            outputs = (lower_sparse if is_sparse else lower)(definition, inputs, definition.defaults(op.attrs), wanted)
        except FluidError as error:
            raise NotLowered(f"{op.type}: {error}") from error
        if not is_sparse and _reads_by_index(outputs, first) and not self._is_checked(instruction):
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
                if tensor is not None and isinstance(tensor.node, Drawn):
                    continue
                spec = self.specs.get(value)
                if spec is None and tensor is not None:  # inference does not know how many rows there are
                    spec = Spec(tensor.shape, tensor.dtype)
                if tensor is not None and isinstance(tensor.node, (Scattered, Put)) and tensor.node.table is not None:
                    self._must_overwrite(value, tensor.node.table)
                if tensor is None or tensor.node.size != spec.size or tensor.node.element != element_of(spec.dtype):
                    raise NotLowered(f"no {slot} of {op.type}")
                results[value] = tensor.node if tensor.shape == spec.shape else reshaped(tensor.node, spec.shape)
        self._draw(instruction, outputs)
        return self._in_order(results, first)

    def _draw(self, instruction: Any, outputs: Mapping[str, Any]) -> None:
        """Let the op's kernel draw the random numbers that its outputs are computed of, whatever its inputs hold."""
        for slot, tensor in outputs.items():
            if not isinstance(tensor, Tensor) or not isinstance(tensor.node, Drawn):
                continue
            (value,) = instruction.writes[slot]
            tensor.node.value, self.nodes[value] = value, tensor.node
            specs = {
                name: self.specs[values[0]] for name, values in instruction.reads.items() if values and values[0] is not None
            }
            stand_ins = {name: np.broadcast_to(np.zeros((), spec.dtype.numpy), spec.shape) for name, spec in specs.items()}
            self.draws.append(replace(instruction, reads={}, writes={slot: [value]}, outer={}, shares={}, stand_ins=stand_ins))

    def _in_order(self, results: dict[Value, Node], first: int) -> dict[Value, Node]:
        """The outputs of an op, those that overwrite memory behind those that read what it held before.

        Args:
            first: nodes of the op have higher numbers.
        """
        olds = {}
        for value in results:
            before = self.latest.get(value[0], (value[0], 0))
            if value[0] in self.storage and before != value and before in self.nodes:
                olds[value] = source_of(self.nodes[before])
        if not olds:
            return results
        reads = {value: _leaves(node, first) for value, node in results.items()}
        ordered: dict[Value, Node] = {}
        while len(ordered) < len(results):
            left = [value for value in results if value not in ordered]
            free = [value for value in left if not any(olds.get(value) in reads[other] for other in left if other != value)]
            if not free:
                raise NotLowered("outputs that overwrite what the others read")
            ordered.update((value, results[value]) for value in free)
        return ordered

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


def _leaves(node: Node, first: int) -> set[Node]:
    """What a node is computed of, besides nodes that were made from a number on."""
    leaves: set[Node] = set()
    pending, seen = [node], {node}
    while pending:
        current = pending.pop()
        if current.serial <= first or isinstance(current, Memory):
            leaves.add(source_of(current))
            continue
        following = [operand for operand in operands_of(current) if operand not in seen]
        seen.update(following)
        pending += following
    return leaves


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
    finder.last = constant(0, FLOAT).serial
    if len(finder.lowered) < _FEWEST:
        return list(instructions)
    owners = _owners(finder)
    needed = _needed(finder, owners)
    _give_halos(needed, set(owners.values()))
    schedule = Schedule()
    schedule.apart = set(owners.values())
    schedule.lasting = _lasting(needed) | schedule.apart
    schedule.overwrites = {
        owners[value]: source_of(finder.nodes[old]) if old in finder.nodes else None
        for value, old in finder.former.items()
        if value in owners
    }
    for number, instruction in enumerate(instructions):
        results = finder.lowered.get(number)
        if results is None:
            reads = {
                value: finder.nodes[value] for value in [*instruction.read, *instruction.outer.values()] if value in finder.nodes
            }
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
            elif (source := source_of(node)) in needed:
                schedule.place(source)
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


def _lasting(needed: set[Node]) -> set[Node]:
    """Nodes that get memory in any case: what cores, views and the like read, and sums over rows, which are read by others."""
    lasting = {node for node in needed if isinstance(node, Reduction)}
    for node in needed:
        for operand in operands_of(node):
            source = source_of(operand)
            of_core = isinstance(node, Reduction) and isinstance(source, Core)  # which is in a group with a kernel of its own
            if of_core or isinstance(node, (Core, View, Turned, Rows, Choice, Joined)):
                lasting.add(source)
    return {node for node in lasting if not isinstance(node, (Memory, Constant, Position))}


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
        if item.core is not None and (target := target_of(item, of_group)) not in of_group:
            of_group.insert(0, target)
        for node in of_group:
            whole = memory_of(node)
            if node is not whole and whole in value_of:
                value_of[node] = value_of[whole]
            if node not in value_of:
                value_of[node] = value_of[whole] = value = (f"native.{count}" if not node.halo else f"{CLEARED}{count}", 0)
                count += 1
                finder.specs[value] = Spec(memory_shape(whole), _dtype(node.element))  # type: ignore[index]
            around = node
            while around.within is not None:
                around = around.within.source
                value_of[around] = value_of[whole]
            value_of[node] = value_of[whole]
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
        items.append(Region(finder.ops_of(item), item, nest, value_of, of_group, partial))
    return [*finder.draws, *first, *items]


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
            if (
                home != position
                or (isinstance(node, Choice) and operand is node.source)
                or (
                    node in stage and source not in group.per_row and stage[source] < stage[node] and _is_heavy(source, group, {})
                )
            ):
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
