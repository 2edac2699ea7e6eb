"""Lowers the ops of a plan to one graph of tensors."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from operator import itemgetter
from typing import Any

from fluid.errors import FluidError
from fluid.ir.program import Block, Operator, Program
from fluid.ir.versions import Value
from fluid.opdef.registry import OpDef
from fluid.values.spec import Spec
from fluid.values.types import VarType, is_complex, real_of

from ..kernels.table import CHECKS, check_of, load_kernels
from .complex_tensors import ComplexTensor, InPairs, in_shape
from .emitter import BOOL, FLOAT
from .fallback import warn_of_lowering
from .fusion import Group, source_of
from .graph import (
    Choice,
    Drawn,
    Factored,
    GraphNode,
    Map,
    PlanArray,
    Put,
    Rows,
    Scattered,
    Solved,
    constant,
    operands_of,
    reshaped,
)
from .instructions import Check, is_persistable
from .lowering import GraphNamespace, GraphTensor, NotLowered, Planes, element_of, lower
from .sparse_lowering import SparseTensor, lower_sparse, makes_sparse_gradient
from .transforms import Transforms

_WORKSPACES = frozenset({"ReserveSpace", "StateOut", "Reserve", "DropoutState"})
"""Workspace slots of other Paddle backends; their arrays may be empty."""


class PlanGraph:
    """Tensor graph of a plan: the node of each value.

    Args:
        specs: the specs of values.
        materialized: values that need memory: the plan's results; values that numpy kernels read or write are added.
        storage: names whose values live in the scope and are overwritten in place.
        as_rows: sparse gradients that a numpy kernel reads.
        on_numpy: numbers of ops that stay on their numpy kernels.
        latest: name in the scope -> its value at first; version 0 by default.
    """

    def __init__(
        self,
        specs: dict[Value, Spec],
        materialized: set[Value],
        storage: Mapping[str, Spec],
        as_rows: set[Value],
        on_numpy: set[int],
        latest: Mapping[str, Value],
        planes: Planes,
    ) -> None:
        load_kernels()  # they register the checks of inputs
        self.specs, self.materialized, self.storage = specs, set(materialized), storage
        self.as_rows, self.on_numpy = as_rows, on_numpy
        self.sparse: dict[Value, SparseTensor] = {}
        self.complex: dict[Value, ComplexTensor] = {}
        self.transforms = Transforms()
        self.planes = planes
        self._namespace = GraphNamespace(self.transforms, planes)
        self.nodes: dict[Value, GraphNode] = {}
        """Value -> its node."""
        self.former: dict[Value, Value] = {}
        """Value of the scope -> the value that it overwrites."""
        self.latest = dict(latest)
        """Name in the scope -> its current value."""
        self.lowered: dict[int, dict[Value, GraphNode]] = {}
        """Number of a lowered op -> the nodes of its outputs."""
        self.origins: list[tuple[int, Operator]] = []
        """Ops in order, each with a serial number below the numbers of its nodes."""
        self.last = 0
        """A serial number above the numbers of all nodes."""
        self.checks: dict[int, Check] = {}
        """Number of an op -> the check of its inputs."""
        self.draws: list[Any] = []
        """Instructions that draw random numbers for lowered ops."""
        self._checked: set[Any] = set()

    def node_of(self, value: Value) -> GraphNode:
        if value not in self.nodes:
            spec = self.specs.get(value)
            if spec is None or not spec.known:
                raise NotLowered(f"{value[0]} has no shape")
            shape = (*spec.shape, 2) if is_complex(spec.dtype) else spec.shape
            self.nodes[value] = PlanArray(shape, element_of(real_of(spec.dtype)), value)
        return self.nodes[value]

    def overwritten_by(self, value: Value) -> GraphNode | None:
        """The node whose memory a value of the scope overwrites; None if no op computes or reads that memory."""
        old = self.nodes.get(self.former[value]) if value in self.former else None
        return source_of(old) if old is not None else None

    def ops_of(self, group: Group) -> list[Operator]:
        """The ops that a group computes, wholly or in part; a copy counts as part of the op that made the original."""
        ops: dict[int, Operator] = {}
        for node in [*group.uniform, *group.nodes]:
            while self._is_copy(node):
                node = source_of(operands_of(node)[0])
            place = bisect_right(self.origins, node.serial, key=itemgetter(0)) - 1
            if place >= 0 and not isinstance(node, PlanArray):
                ops[place] = self.origins[place][1]
        return [ops[place] for place in sorted(ops)] or group.ops

    def _is_copy(self, node: GraphNode) -> bool:
        """Whether a node is a copy, created after all ops had been lowered."""
        return isinstance(node, Map) and node.serial > self.last

    def _check(self, number: int, instruction: Any) -> None:
        """Register a check of an op's inputs before native code reads them. A gradient op skips its forward op's checks."""
        definition = instruction.definition
        if check_of(definition.type) is None:
            return
        check = Check(instruction, self.specs)
        key = check.key
        if definition.forward is not None and key in self._checked:
            return
        self._checked.add(key)
        self.checks[number] = check
        self.materialized.update(check.read)

    def _is_checked(self, instruction: Any) -> bool:
        """Whether the indices that an op reads are checked, by the op or by its forward op."""
        definition = instruction.definition
        is_gradient = definition.forward is not None
        return definition.type in CHECKS or (is_gradient and Check(instruction, self.specs).key in self._checked)

    def _tensor_of(self, value: Value) -> GraphTensor | ComplexTensor | SparseTensor:
        if value in self.sparse:
            return self.sparse[value]
        node, spec = self.node_of(value), self.specs.get(value)
        if spec is None or not is_complex(spec.dtype):
            return GraphTensor(node)
        if value not in self.complex:
            self.complex[value] = InPairs(node)
        return self.complex[value]

    def _is_empty(self, value: Value | None) -> bool:
        spec = self.specs.get(value) if value is not None else None
        return spec is not None and 0 in spec.shape

    def lower(self, number: int, instruction: Any) -> None:
        """Lower an op; if that is impossible, materialize all values that it reads and writes."""
        self.transforms.op = number
        try:
            results = None if number in self.on_numpy else self._results(instruction)
        except NotLowered:
            results = None
        except Exception as error:  # a fault in one lowering must not affect other ops
            warn_of_lowering(instruction.op.type, error, _program_of(instruction.op))
            results = None
        if results is None:
            self.materialized.update(instruction.read_within)
            if instruction.op.type == "c_allgather":  # each worker has checked its values before it sends them
                (source,), (gathered,) = instruction.read, instruction.written
                self._checked |= {(op_type, (gathered,)) for op_type, read in self._checked if read == (source,)}
            for value in instruction.written:
                self.nodes.pop(value, None)
                self.complex.pop(value, None)
                self.materialized.add(value)
        else:
            self.lowered[number] = results
            self.nodes.update(results)
            self._check(number, instruction)
        for value in instruction.written:
            if value[0] in self.storage:
                before = self.latest.get(value[0], (value[0], 0))
                if before != value:
                    self.former[value] = before
                    with suppress(NotLowered):  # create a node, so that earlier reads and writes of that memory are tracked
                        self.node_of(before)
                self.latest[value[0]] = value
                self.materialized.add(value)

    def _results(self, instruction: Any) -> dict[Value, GraphNode]:
        """The nodes of an op's outputs; raises `NotLowered` if the op stays on its numpy kernel."""
        op, definition, read = instruction.op, instruction.definition, instruction.read
        is_sparse = (bool(self.sparse) and not self.sparse.keys().isdisjoint(read)) or (
            definition is not None and makes_sparse_gradient(definition, op.attrs)
        )
        follows_sparse = is_sparse or any(value not in self.specs and value in self.nodes for value in read)
        if definition is None or op.sub_blocks or (instruction.dynamic and not follows_sparse):
            raise NotLowered("an op that runs step by step")
        if any(name not in self.storage and is_persistable(op, name) for name, _ in instruction.written):
            raise NotLowered("a variable of the scope that gets a new array in each run")
        inputs = self._inputs(definition, instruction.reads)
        wanted = self._wanted(op, definition, instruction.writes, follows_sparse)
        first = constant(0, FLOAT).serial
        self.origins.append((first, op))
        attrs = definition.defaults(op.attrs)
        try:
            if is_sparse:
                outputs = lower_sparse(definition, inputs, attrs, wanted)
            else:
                outputs = lower(definition, inputs, attrs, wanted, self._namespace)
        except FluidError as error:
            raise NotLowered(f"{op.type}: {error}") from error
        computed = set() if is_sparse else _nodes_since(outputs, first)
        if any(map(_reads_by_index, computed)) and not self._is_checked(instruction):
            raise NotLowered("indices that nobody checks")
        if any(isinstance(node, (Factored, Solved)) for node in computed) and not _checks_matrices(definition):
            raise NotLowered("matrices that nobody checks")
        nodes = self._nodes_of(instruction, outputs)
        self._draw(instruction, outputs)
        return self._order_outputs(nodes, first)

    def _inputs(self, definition: OpDef, reads: Mapping[str, list[Value | None]]) -> dict[str, Any]:
        """The tensors that an op reads, by slot."""
        inputs: dict[str, Any] = {}
        for slot, values in reads.items():
            declared = definition.inputs.get(slot)
            if declared is None or not values:
                continue
            if definition.type == "concat" and declared.many:
                values = [value for value in values if not self._is_empty(value)]
            is_workspace = slot in _WORKSPACES
            if not (is_workspace or declared.shape_only or declared.intermediate) and any(map(self._is_empty, values)):
                raise NotLowered("no elements")
            tensors = [
                None if value is None or (is_workspace and self._is_empty(value)) else self._tensor_of(value) for value in values
            ]
            inputs[slot] = tensors if declared.many else tensors[0]
        return inputs

    def _wanted(
        self, op: Operator, definition: OpDef, writes: Mapping[str, list[Value | None]], follows_sparse: bool
    ) -> dict[str, Any]:
        """The specs of an op's outputs, by slot."""
        first_out = next(iter(definition.outputs))
        if not definition.outputs[first_out].optional and any(map(self._is_empty, writes.get(first_out, ()))):
            raise NotLowered("no elements")
        wanted: dict[str, Any] = {}
        for slot, values in writes.items():
            declared = definition.outputs.get(slot)
            if declared is None or not values:
                continue
            if declared.updated:
                raise NotLowered("an output that is updated")
            specs: list[Spec | None] = []
            for value in values:
                spec = None if value is None else self.specs.get(value) or (_declared(op, value) if follows_sparse else None)
                if value is not None and not follows_sparse and (spec is None or not spec.known):
                    raise NotLowered("an output of unknown shape")
                specs.append(spec)
            wanted[slot] = specs if declared.many else specs[0]
        return wanted

    def _nodes_of(self, instruction: Any, outputs: Mapping[str, Any]) -> dict[Value, GraphNode]:
        """The nodes of the values that an op writes; `outputs` are its tensors by slot."""
        op = instruction.op
        nodes: dict[Value, GraphNode] = {}
        for slot, values in instruction.writes.items():
            output = outputs.get(slot)
            tensors = output if isinstance(output, list) else [output]
            for value, tensor in zip(values, tensors, strict=False):
                if value is None or self._is_empty(value):
                    continue
                if isinstance(tensor, SparseTensor):
                    self._keep_sparse(op, value, tensor)
                    continue
                if tensor is None:
                    raise NotLowered(f"no {slot} of {op.type}")
                if isinstance(tensor, ComplexTensor):
                    nodes[value] = self._keep_complex(op, value, tensor)
                    continue
                node = tensor.node
                if isinstance(node, Drawn):
                    continue
                spec = self.specs.get(value) or Spec(node.shape, tensor.dtype)  # inference may not know how many rows there are
                if isinstance(node, (Scattered, Put)) and node.table is not None:
                    self._require_in_place_update(value, node.table)
                is_mask = spec.dtype is VarType.UINT8 and node.element == BOOL  # of 0 and 1
                element = BOOL if is_mask else element_of(spec.dtype)
                if node.size != spec.size or node.element != element:
                    raise NotLowered(f"no {slot} of {op.type}")
                nodes[value] = node if node.shape == spec.shape else reshaped(node, spec.shape)
        return nodes

    def _draw(self, instruction: Any, outputs: Mapping[str, Any]) -> None:
        """Let the op's numpy kernel draw the random numbers that the outputs depend on; they do not depend on the inputs."""
        for slot, tensor in outputs.items():
            if not isinstance(tensor, GraphTensor) or not isinstance(tensor.node, Drawn):
                continue
            (value,) = instruction.writes[slot]
            tensor.node.value, self.nodes[value] = value, tensor.node
            self.draws.append(instruction.drawing(slot, self.specs))

    def _order_outputs(self, results: dict[Value, GraphNode], first: int) -> dict[Value, GraphNode]:
        """Order the outputs of an op: reads of old memory before its overwriting.

        Args:
            first: nodes of the op have serial numbers above this.
        """
        olds = {}
        for value in results:
            before = self.latest.get(value[0], (value[0], 0))
            if value[0] in self.storage and before != value and before in self.nodes:
                olds[value] = source_of(self.nodes[before])
        if not olds:
            return results
        nodes_of = {value: _read_and_computed(node, first) for value, node in results.items()}
        ordered: dict[Value, GraphNode] = {}
        while len(ordered) < len(results):
            left = [value for value in results if value not in ordered]
            free = [
                value
                for value in left
                if not any(olds.get(value) in nodes_of[sibling][0] for sibling in left if sibling != value)
            ]
            if not free:  # what siblings compute on the way to their own results can be stored after them
                on_the_way = {node for value in left for node in nodes_of[value][1] if node is not source_of(results[value])}
                free = [value for value in left if source_of(results[value]) not in on_the_way]
            if not free:
                raise NotLowered("outputs that overwrite what the others read")
            ordered.update((value, results[value]) for value in free)
        for value, old in olds.items():
            node = ordered[value]
            siblings = [nodes_of[sibling] for sibling in results if sibling != value]
            if any(old in read and source_of(node) in computed for read, computed in siblings):
                ordered[value] = Map(node.shape, node.element, "copy", (node,))  # stored after the siblings are computed
        return ordered

    def _keep_complex(self, op: Operator, value: Value, tensor: ComplexTensor) -> GraphNode:
        """Remember a complex tensor as the value of an op; returns its numbers as pairs."""
        spec = self.specs.get(value) or tensor.spec
        if tensor.spec.size != spec.size or tensor.dtype is not spec.dtype:
            raise NotLowered(f"no complex numbers of {op.type}")
        self.complex[value] = result = in_shape(tensor, spec.shape)
        return result.pairs

    def _keep_sparse(self, op: Operator, value: Value, tensor: SparseTensor) -> None:
        var = op.block.find_var(value[0])
        if value in self.as_rows or (var is not None and var.persistable):
            raise NotLowered("a sparse gradient that is read as one")
        self.sparse[value] = tensor

    def _require_in_place_update(self, value: Value, table: GraphNode) -> None:
        """Raise `NotLowered` unless `value` updates `table` in place."""
        former = self.latest.get(value[0], (value[0], 0))
        if value[0] not in self.storage or self.nodes.get(former) is not table:
            raise NotLowered("a table that is not updated in place")


def _program_of(op: Operator) -> Program | None:
    """The program of an op; None for a single op outside of programs."""
    block: Block | None = op.block
    return block.program if block is not None else None


def _declared(op: Operator, value: Value) -> Spec | None:
    """The spec that the program declares for a value; None if it is incomplete."""
    var = op.block.find_var(value[0])
    return var.spec if var is not None and var.has_shape and var.spec.known else None


def _read_and_computed(node: GraphNode, first: int) -> tuple[set[GraphNode], set[GraphNode]]:
    """The nodes that a node depends on: those older than `first` (read), and the newer ones (computed)."""
    read: set[GraphNode] = set()
    computed = {node}
    pending = [node]
    while pending:
        current = pending.pop()
        if current.serial <= first or isinstance(current, PlanArray):
            computed.discard(current)
            read.add(source_of(current))
            continue
        following = [operand for operand in operands_of(current) if operand not in computed]
        computed.update(following)
        pending += following
    return read, computed


_BY_INDEX = frozenset({Rows, Choice, Scattered})
"""Nodes that read or write at indices given by another node."""


def _reads_by_index(node: GraphNode) -> bool:
    """Whether a node reads at indices that may be out of bounds."""
    return type(node) in _BY_INDEX and not getattr(node, "in_bounds", False)


def _checks_matrices(definition: OpDef) -> bool:
    """Whether an op, or the op that it is a gradient of, has a check that refuses singular matrices."""
    while definition.forward is not None:
        definition = definition.forward
    return check_of(definition.type) is not None


def _nodes_since(outputs: Mapping[str, Any], first: int) -> set[GraphNode]:
    """The nodes that outputs depend on and whose serial number is above `first`."""
    pending = [tensor.pairs if isinstance(tensor, ComplexTensor) else tensor.node for tensor in _tensors(outputs)]
    nodes: set[GraphNode] = set()
    while pending:
        node = pending.pop()
        if node.serial > first and node not in nodes:
            nodes.add(node)
            pending += operands_of(node)
    return nodes


def _tensors(values: Mapping[str, Any]) -> Iterator[GraphTensor | ComplexTensor]:
    for value in values.values():
        yield from (item for item in (value if isinstance(value, list) else [value]) if item is not None)
