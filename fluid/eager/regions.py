"""Branches and loops of a traced function, in the recorded graph.

The example took one branch and tells nothing about the other one. So a single node represents the whole branch or loop: in the
program, `fluid.autodiff.reverse` differentiates its ops; the values for the example come from the example's own graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..autodiff.reverse import Differentiator
from ..backward import _undone_on_error
from ..errors import BackwardError
from ..ir.nesting import nested_blocks
from ..ir.program import Block, Operator, OpRole, Variable
from ..ir.regions import is_gradient_op
from .engine import InnerTask, engine
from .graph import Node, OpNode, RecordedNode, leaf_edge, sequence
from .mode import state, tracing
from .tensor import Tensor, make

if TYPE_CHECKING:
    from ..dygraph.tracing import Tracer


_Edge = tuple[Node, int]
_INSTEAD = "differentiate the traced program instead, by append_backward or fluid.gradients"


class EagerRegion:
    """The ops of one traced branch or loop.

    Attributes:
        name: ``"cond"`` or ``"while_loop"``.
        block: the block that its ops are in.
        first: nodes with this sequence number or a higher one were recorded inside.
        ops: its ops.
    """

    def __init__(self, tracer: Tracer, name: str) -> None:
        self._tracer = weakref.ref(tracer)
        self.name = name
        self.block: Block = tracer.program.current_block()
        self.first = next(sequence)
        self.ops: list[Operator] = []
        self._reads: dict[str, _Edge] = {}

    def build(self, build: Callable[[], Any]) -> Any:
        """Call a function that appends the region's ops, and return its result."""
        last = self.block.ops[-1] if self.block.ops else None
        with self.tracer.record_reads(self._reads):
            result = build()
        self.ops = self.block.ops[0 if last is None else self.block.ops.index(last) + 1 :]
        return result

    @property
    def tracer(self) -> Tracer:
        tracer = self._tracer()
        assert tracer is not None
        return tracer

    def is_traced_now(self) -> bool:
        """Whether the program of these ops is still being traced."""
        return state.tracer is not None and state.tracer is self._tracer()

    def edges(self) -> dict[_Edge, list[str]]:
        """The edges of values that the ops read but do not compute, each with the names of its variables."""
        computed = {name for op in self.ops for name in op.output_arg_names}
        computed.update(name for block in nested_blocks(self.ops) for name in block.vars)
        edges: dict[_Edge, list[str]] = {}
        for name, edge in self._reads.items():
            if name not in computed:
                edges.setdefault(edge, []).append(name)
        return edges

    def edges_of(self, outputs: Sequence[Tensor], names: Sequence[str], results: Iterable[Sequence[Tensor]]) -> list[Any]:
        """The edges of the region's outputs; None where no gradient is required.

        Args:
            outputs: the outputs for the example.
            names: of the variables that the outputs are in the program.
            results: the results of each function of the region. An output requires a gradient if it does in one of them.
        """
        listed = list(results)
        complete = [part for part in listed if len(part) == len(outputs)]  # a loop's condition gives but one
        asks = [
            state.recording and tensor._kind.differentiable and any(not part[n]._stop for part in complete)
            for n, tensor in enumerate(outputs)
        ]
        if not any(asks):
            return [None] * len(outputs)
        node = RegionNode(self, outputs, names, [tensor for part in listed for tensor in part])
        return [(node, number) if ask else None for number, ask in enumerate(asks)]

    def differentiate(self, seeds: Sequence[tuple[str, str]], wanted: Sequence[Sequence[str]]) -> list[Variable | None]:
        """Append the gradient ops of the region's ops.

        Args:
            seeds: (output of the region, its gradient), by name.
            wanted: names of variables that the region reads, in groups.

        Returns:
            For each group the sum of its gradients; None stands for zero.
        """
        block, program = self.block, self.block.program
        start, end = block.ops.index(self.ops[0]), block.ops.index(self.ops[-1]) + 1
        earlier = {id(op) for any_block in program.blocks for op in any_block.ops}
        walker = Differentiator(block, block, frozenset())
        before = {name: walker.versions.before(name, start) for group in wanted for name in group}
        walker.mark_varied(before.values(), end, start)
        gradients: list[Variable | None] = []
        with _undone_on_error(program):
            for name, grad in seeds:
                value = walker.versions.before(name, end)
                if value in walker.varied:
                    walker.seed(value, grad)
            walker.walk(end, start)
            for group in wanted:
                grads = [grad for grad in (walker.gradient(before[name]) for name in group) if grad is not None]
                if len(grads) > 1:
                    total = block.fresh_name(grads[0])
                    walker.append("sum", {"X": grads}, {"Out": [total]}, None)
                    walker.declare(total, block.var(grads[0]))
                    grads = [total]
                gradients.append(block.var(grads[0]) if grads else None)
            walker.apply_inserts()
        for any_block in program.blocks:
            for op in any_block.ops:
                if id(op) not in earlier:
                    op.attrs.pop(OpRole.NAME, None)  # they are part of the function, not of a backward part
        program._changed()
        return gradients


class Refusal(RecordedNode):
    """A node that raises an error when a gradient reaches it."""

    __slots__ = ("_message",)

    def __init__(self, message: str, tensors: Sequence[Tensor]) -> None:
        edges = (None if tensor._stop else tensor._edge or leaf_edge(tensor) for tensor in tensors)
        super().__init__([tensor._kind for tensor in tensors], edges, ())
        self._message = message

    @property
    def edges(self) -> list[_Edge | None]:
        """Edges to this node that replace the edges of tensors; None where a tensor has no edge."""
        return [None if edge is None else (self, number) for number, edge in enumerate(self._edges)]

    @property
    def name(self) -> str:
        return "traced"

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        raise BackwardError(f"{self._message}\n  recorded at: {self.where}")

    apply_recorded = apply


class RegionNode(RecordedNode):
    """The gradient of a traced branch or loop."""

    __slots__ = ("_names", "_variables")

    def __init__(self, region: EagerRegion, outputs: Sequence[Tensor], names: Sequence[str], results: Sequence[Tensor]) -> None:
        reads = region.edges()
        super().__init__([tensor._kind for tensor in outputs], reads, (region, list(outputs), list(results)))
        self._variables, self._names = list(reads.values()), list(names)

    @property
    def name(self) -> str:
        return "region_backward"

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        return self._through_example(grads, wanted, keep, False)

    def apply_recorded(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        if self._saved is None:
            raise self._released()
        region: EagerRegion = self._saved[0]
        if not region.is_traced_now():
            return self._through_example(grads, wanted, keep, True)
        self._check(region)
        tracer = region.tracer
        received = [(number, grad) for number, grad in enumerate(grads) if grad is not None]
        chosen = [number for number in range(len(self._edges)) if wanted is None or wanted[number]]
        seeds = [(self._names[number], tracer.variable(grad).name) for number, grad in received]
        variables = region.differentiate(seeds, [self._variables[number] for number in chosen])
        with tracing(None):
            arrays = self._through_example([None if g is None else g._array for g in grads], wanted, True, False)
        again = Refusal(
            f"a gradient of the gradient of {region.name} is not traced; {_INSTEAD}",
            [grad for _, grad in received] + [_stand_in(self._edges[number]) for number in chosen],
        )
        gradients: list[Any] = [None] * len(self._edges)
        for number, variable in zip(chosen, variables, strict=True):
            if variable is None:
                continue
            node, place = self._edges[number]  # type: ignore[misc]
            kind = node.kinds[place]
            assert kind is not None
            array = arrays[number] if arrays[number] is not None else kind.xp.zeros(kind.shape, kind.numpy_dtype)
            gradients[number] = make(array, kind, (again, len(received) + chosen.index(number)))
            tracer.bind(gradients[number], variable)
        return gradients

    def _check(self, region: EagerRegion) -> None:
        """Raise a `ProgramError` where the gradient cannot be derived from the program's ops."""
        tracer = region.tracer
        if tracer.program.current_block() is not region.block:
            tracer.refuse_call(f"the gradient of a {region.name} inside another branch or loop", _INSTEAD)
        if any(is_gradient_op(op) for block in nested_blocks(region.ops) for op in block.ops):
            tracer.refuse_call(f"the gradient of a {region.name} in which gradients are computed", _INSTEAD)
        seen: set[Node] = set()
        stack = [tensor._edge[0] for tensor in self._saved[2] if tensor._edge is not None]
        while stack:
            node = stack.pop()
            if node in seen or node.is_leaf or node.sequence_nr < region.first:
                continue
            seen.add(node)
            if not isinstance(node, (OpNode, RegionNode, Refusal)) or node._hooks is not None:
                culprit = "a hook" if node._hooks is not None else f"the backward of {node.name.removesuffix('_backward')}"
                tracer.refuse_call(
                    f"{culprit} inside a {region.name} whose gradient is taken", "bring it out of the branch or loop"
                )
            stack += [edge[0] for edge in node._edges if edge is not None]

    def _through_example(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool, create_graph: bool) -> list[Any]:
        """The gradients for the example, through the graph that it recorded."""
        if self._saved is None:
            raise self._released()
        region, outputs, _ = self._saved
        gradients: list[Any] = [None] * len(self._edges)
        pairs = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if grad is not None and not output._stop]
        targets = {number: edge for number, edge in enumerate(self._edges) if wanted is None or wanted[number]}
        if not pairs or not targets:
            return gradients
        roots = [output._edge or leaf_edge(output) for output, _ in pairs]
        seeds = [grad for _, grad in pairs]
        ends = [edge for edge in targets.values() if edge is not None]
        values = engine.execute(lambda: _RegionPass(region.first, roots, seeds, keep, create_graph, ends))
        received = [id(grad) for grad in seeds]
        for number, value in zip(targets, values, strict=True):
            # A gradient that is passed through is also held by the caller, and the pass adds to its gradients in place.
            gradients[number] = value.copy() if not create_graph and id(value) in received else value
        if not keep:
            self._saved = None
        return gradients


def _stand_in(edge: Any) -> Tensor:
    """A tensor that has this edge."""
    node, number = edge
    kind = node.kinds[number]
    return make(kind.xp.empty((0,), kind.numpy_dtype), kind, edge)


class _RegionPass(InnerTask):
    """A pass through the nodes with the sequence number `first` or a higher one."""

    def __init__(self, first: int, *args: Any) -> None:
        self._first = first
        super().__init__(*args)

    def _between(self, roots: Sequence[_Edge], targets: set[_Edge]) -> set[Node]:
        return {node for node in super()._between(roots, targets) if node.sequence_nr >= self._first}
