"""Parts of a network whose values backward recomputes instead of storing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from ..errors import BackwardError, FluidTypeError, ProgramError
from ..executor.binding.array_types import ArrayType
from .again import Call
from .casting import Caster
from .engine import InnerTask, engine
from .graph import Node, RecordedNode, keep_gradient, leaf_edge, modified
from .mode import enable_grad, intercepting, state
from .nested import refilled, tensors_in
from .program import Parameter
from .tensor import Tensor, make, of_class_of


def recompute(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call ``function(*args, **kwargs)`` and keep only the arguments: backward calls the function again.

    So the values inside exist twice for a short time instead of once for a long time::

        for block in self.blocks:
            x = dygraph.recompute(block, x)

    Gradients are the same as for a plain call: in the second call random ops draw the same numbers, and the layers inside do not
    change their buffers and moving statistics. (Only sums may be rounded differently: the parts of a gradient that come from
    inside are added first.) Parameters that it uses get their gradients; gradients of gradients, `grad` and hooks work as without
    it, and calls may be nested. There is no second call where nothing is recorded or requires a gradient, nor while tracing
    (programs have ``append_backward(loss, checkpoints=[...])``).

    Args:
        function: a layer, or any function that does the same in each call. Computed tensors that it uses and that require a
            gradient should be arguments. Other tensors that its ops read should not be modified until backward, which is detected
            (except tensors that it modifies itself, such as statistics); nor should values that it uses. Random draws in threads
            that it starts differ the second time.
        args, kwargs: tensors, also in lists, tuples and dicts, or other values, which are passed on.

    Returns:
        What the function returns: tensors, also in lists, tuples and dicts, or other values.

    Raises:
        FluidTypeError: `function` cannot be called.
        ProgramError: it uses a tensor that was computed before and is not an argument.
        BackwardError: in backward: an argument, a parameter or another tensor that it reads was modified in place meanwhile, or
            the function does something else than the first time.

    >>> x = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    >>> dygraph.recompute(lambda x: (x * x).sum(), x).backward()
    >>> x.gradient()
    array([2., 4.], dtype=float32)
    """
    if not callable(function):
        raise FluidTypeError(f"recompute takes a function or a layer, and its arguments, not {function!r}")
    if not state.recording or state.tracer is not None:
        return function(*args, **kwargs)
    segment = Segment(function, args, kwargs)
    result, gate = segment.call()
    outputs = [item for item in tensors_in(result) if isinstance(item, Tensor)]
    if all(output._stop for output in outputs):
        return result
    node = RecomputeNode(segment, outputs, _leaves(outputs, gate))
    numbers = iter(range(len(outputs)))

    def cut(output: Any) -> Any:
        if not isinstance(output, Tensor):
            return output
        number = next(numbers)
        if output._stop:
            return output
        behind = of_class_of(output, make(output._array, output._kind, (node, number), output._version))
        keep_gradient(behind)
        return behind

    return refilled(result, iter([cut(item) for item in tensors_in(result)]))


class Segment:
    """A call of a function that backward repeats.

    Attributes:
        inputs: the tensors among the arguments.
        edges: their edges; None where no gradient is wanted.
    """

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._items = tensors_in([args, kwargs])
        self.inputs = [item for item in self._items if isinstance(item, Tensor)]
        self._versions = [tensor._version[0] for tensor in self.inputs]
        self.edges = tuple(None if tensor._stop else tensor._edge or leaf_edge(tensor) for tensor in self.inputs)
        self._call = Call("recompute: " + self.name)
        self._caster = state.interceptor if isinstance(state.interceptor, Caster) else None

    @property
    def name(self) -> str:
        function = self._function
        return str(getattr(function, "_full_name", None) or getattr(function, "__name__", type(function).__name__))

    def call(self) -> tuple[Any, Gate]:
        """Call the function, recorded back to the gate only; return its result and the gate."""
        reader = ConstantReads(state.interceptor if self._caster is None else self._caster.for_repeat(self._caster.around))
        with intercepting(reader):
            result = self._call.first(self._recorded)
        self._constants = [version for version, number in reader.constants.values() if version[0] == number]
        self._versions += [version[0] for version in self._constants]
        return result

    def _recorded(self) -> tuple[Any, Gate]:
        gate = Gate([tensor._kind for tensor in self.inputs], self.edges)
        inputs = [
            tensor if edge is None else of_class_of(tensor, make(tensor._array, tensor._kind, (gate, number), tensor._version))
            for number, (tensor, edge) in enumerate(zip(self.inputs, self.edges, strict=True))
        ]
        behind = iter(inputs)
        items = iter([next(behind) if isinstance(item, Tensor) else item for item in self._items])
        args, kwargs = refilled([self._args, self._kwargs], items)
        with enable_grad():
            return self._function(*args, **kwargs), gate

    def call_again(self, node: Node) -> tuple[list[Any], Gate]:
        """Repeat the call; return the tensors in its result, and the gate."""
        versions = [*(tensor._version for tensor in self.inputs), *self._constants]
        for version, number in zip(versions, self._versions, strict=True):
            if version[0] != number:
                raise modified(node, version, number)
        with intercepting(self._caster.for_repeat(None)) if self._caster is not None else nullcontext():
            result, gate = self._call.again(self._recorded)
        return [item for item in tensors_in(result) if isinstance(item, Tensor)], gate


class ConstantReads:
    """Records the tensors without a gradient that ops read.

    Attributes:
        constants: by id: the version counter of each, and its count when it was first read.
    """

    def __init__(self, around: Any) -> None:
        self._around = around
        self.constants: dict[int, tuple[list[Any], int]] = {}

    def call(self, op: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
        """Run an op."""
        for tensor in tensors:
            if tensor._stop:
                self.constants.setdefault(id(tensor._version), (tensor._version, tensor._version[0]))
        with intercepting(self._around):
            return op(*tensors)


# ------------------------------------------------------------------------------------------------------------------ nodes
class Gate(RecordedNode):
    """A node between the graph of a segment and the graph of its inputs. A pass through the segment ends here until the gate is
    opened."""

    __slots__ = ()

    def __init__(self, kinds: list[ArrayType], edges: tuple[Any, ...]) -> None:
        super().__init__(kinds, edges, ())
        self._edges, self._line = (), None

    @property
    def name(self) -> str:
        return "recompute_inputs"

    def open(self, edges: tuple[Any, ...]) -> None:
        """Pass gradients on along these edges."""
        self._edges = edges

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        return grads

    apply_recorded = apply


class RecomputeNode(RecordedNode):
    """The backward of a segment: its edges go to the inputs, then to other leaves that the segment uses."""

    __slots__ = ("_leaves", "_versions")

    def __init__(self, segment: Segment, outputs: Sequence[Tensor], leaves: Sequence[Any]) -> None:
        super().__init__([output._kind for output in outputs], (*segment.edges, *((leaf, 0) for leaf in leaves)), segment)
        self._leaves, self._versions = leaves, [leaf.variable._version[0] for leaf in leaves]

    @property
    def name(self) -> str:
        return "recompute_backward"

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        gradients = self._run(grads, wanted, keep, create_graph=False)
        received = [id(grad) for grad in grads if grad is not None]
        # A gradient that is passed through is also held by the caller, and the pass adds to its gradients in place.
        return [value.copy() if id(value) in received else value for value in gradients]

    def apply_recorded(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        return self._run(grads, wanted, keep, create_graph=True)

    def _run(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool, create_graph: bool) -> list[Any]:
        segment: Segment | None = self._saved
        if segment is None:
            raise self._released()
        gradients: list[Any] = [None] * len(self._edges)
        if all(grad is None for grad in grads):
            return gradients
        for leaf, version in zip(self._leaves, self._versions, strict=True):
            if leaf.variable._version[0] != version:
                raise modified(self, leaf.variable._version, version)
        outputs, gate = segment.call_again(self)
        self._check(segment, outputs, gate)
        pairs = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if grad is not None and not output._stop]
        roots = [output._edge or leaf_edge(output) for output, _ in pairs]
        seeds = [grad for _, grad in pairs]
        inputs = len(segment.inputs)
        targets = {
            number: (gate, number) if number < inputs else edge
            for number, edge in enumerate(self._edges)
            if edge is not None and (wanted is None or wanted[number])
        }
        ends = list(targets.values())
        values = engine.execute(lambda: InnerTask(roots, seeds, create_graph, create_graph, ends))
        for number, value in zip(targets, values, strict=True):
            gradients[number] = value
        if create_graph:
            gate.open(segment.edges)
        if not keep:
            self._saved = None
        return gradients

    def _check(self, segment: Segment, outputs: Sequence[Tensor], gate: Gate) -> None:
        """Raise a `BackwardError` if the repeated call differs from the first."""
        kinds = [output._kind for output in outputs]
        if kinds != self._kinds:
            raise BackwardError(
                f"recompute: {segment.name} gave {_listed(self._kinds)} at first, but {_listed(kinds)} when backward called it "
                "again; it should do the same each time"
            )
        used = [_parameters(leaves) for leaves in (self._leaves, _leaves(outputs, gate))]
        if used[0].keys() != used[1].keys():
            raise BackwardError(
                f"recompute: {segment.name} used {_some(used[0])} at first, but {_some(used[1])} when backward called it again; "
                "it should do the same each time"
            )


def _leaves(outputs: Sequence[Tensor], gate: Gate) -> list[Node]:
    """The leaves, other than inputs, that a segment's outputs were computed from."""
    leaves: list[Node] = []
    seen: set[Node] = {gate}
    stack = [(output._edge or leaf_edge(output))[0] for output in outputs if not output._stop]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.is_leaf:
            leaves.append(node)
        elif node.sequence_nr < gate.sequence_nr:
            raise ProgramError(
                f"recompute: the function uses what {node.name} has computed before, recorded at: {node.where}\n"
                "  give it as an argument: recompute(function, x, that), or its detach() if no gradient is to flow there"
            )
        else:
            stack += [edge[0] for edge in node._edges if edge is not None]
    return leaves


def _parameters(leaves: Sequence[Any]) -> dict[int, str]:
    """The names of leaves that are parameters; these outlive the call of a function."""
    return {id(leaf.variable): leaf.variable.name for leaf in leaves if isinstance(leaf.variable, Parameter)}


def _some(names: dict[int, str]) -> str:
    return ", ".join(sorted(names.values())) or "no parameter"


def _listed(kinds: Sequence[ArrayType | None]) -> str:
    return ", ".join(map(str, kinds)) or "nothing"
