"""The recorded graph: nodes that turn gradients of an op's outputs into gradients of its inputs."""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import BackwardError
from ..executor.binding.array_types import CPU, ArrayType, array_of
from ..executor.binding.halves import added
from ..ir.frames import OURS
from ..values.selected_rows import SelectedRows
from ..values.types import VarType
from .mode import state
from .parts import parts

if TYPE_CHECKING:
    from .dispatch import CompiledOp
    from .tensor import Tensor


_LEAVES = 2**62
"""Added to sequence numbers of leaves, so that a ready leaf runs before all other nodes."""
LARGE = 1 << 21
"""From this many elements, or multiplications of a product, computing a gradient is worth another thread."""
sequence = itertools.count()
_Edges = tuple["tuple[Node, int] | None", ...]
_Line = tuple[CodeType, int]


class Edge(NamedTuple):
    """The node that receives a gradient, and the number of its input there.

    Attributes:
        node: the node; None where no gradient is wanted.
        input_nr: the index of its input.
    """

    node: Node | None
    input_nr: int


class Metadata(NamedTuple):
    """Shape, dtype and device of the gradient that a node receives at one of its inputs."""

    shape: tuple[int, ...]
    dtype: VarType
    device: str


class Hooks(dict[int, Callable[..., Any]]):
    """Hooks in the order of registration."""

    __slots__ = ("__weakref__",)


class RemovableHandle:
    """Adds a hook, and removes it by `remove` or at the end of a ``with``."""

    def __init__(self, hooks: Hooks, hook: Callable[..., Any]) -> None:
        self._hooks = weakref.ref(hooks)
        self._key = next(sequence)
        hooks[self._key] = hook

    def remove(self) -> None:
        """Remove the hook; a second call has no effect."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self._key, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class NodeHooks:
    """Functions that are called when a node runs.

    Attributes:
        of_tensor: by output of the op: hooks of the tensor, called with its gradient.
        retained: by output of the op: the tensor that keeps its gradient.
        before: called with the gradients that the node receives.
        after: called with the gradients that it computed, and with the gradients that it received.
        accumulated: of a leaf: called with the tensor after a gradient was added to its `grad`.
    """

    __slots__ = ("accumulated", "after", "before", "of_tensor", "retained")

    def __init__(self) -> None:
        self.of_tensor: dict[int, Hooks] = {}
        self.retained: dict[int, weakref.ref[Tensor]] = {}
        self.before, self.after, self.accumulated = Hooks(), Hooks(), Hooks()


# ---------------------------------------------------------------------------------------------------- the user's lines
def user_line(depth: int = 1) -> _Line:
    """The position in the innermost frame outside Fluid, which is at least this deep; `line_text` formats it."""
    frame = sys._getframe(depth)
    while OURS[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def line_text(line: _Line | None) -> str:
    """``file:line in function``."""
    if line is None:
        return "an unknown line"
    code, at = line
    number = code.co_firstlineno
    for start, end, line_number in code.co_lines():
        if start <= at < end and line_number is not None:
            number = line_number
    return f"{code.co_filename}:{number} in {code.co_name}"


# ----------------------------------------------------------------------------------------------------------------- nodes
class Node:
    """One recorded op: called with gradients of its outputs, it returns gradients of its inputs.

    Attributes:
        sequence_nr: increases with each new node.
        topological_nr: the number of edges on the longest path to a leaf.
    """

    __slots__ = ("__weakref__", "_edges", "_hooks", "_keepers", "_line", "_saved", "sequence_nr", "topological_nr")

    _edges: _Edges
    _hooks: NodeHooks | None
    _keepers: weakref.ref[Tensor] | dict[int, weakref.ref[Tensor]] | None
    """The tensor that keeps its gradient because it was computed inside a guard; for several outputs, by number."""
    _line: _Line | None
    _saved: Any
    """What its gradient reads; None once it is freed."""
    sequence_nr: int
    topological_nr: int

    is_leaf = False

    @property
    def large(self) -> bool:
        """Whether the node has enough work for another thread."""
        return any(kind is not None and kind.size >= LARGE for kind in self.kinds)

    # -- defined by subclasses
    @property
    def kinds(self) -> Sequence[ArrayType | None]:
        """Kinds of the gradients that it receives; None where unknown."""
        raise NotImplementedError

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        """Gradients of the inputs as arrays, from arrays; None stands for zero.

        Args:
            grads: gradients of the outputs.
            wanted: for each input whether to compute its gradient; by default, of inputs with an edge.
            keep: keep the saved values, so that the node can run again.
        """
        raise NotImplementedError

    def apply_recorded(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        """Like `apply`, but on tensors and recorded, so that it can be differentiated.

        Args:
            grads, wanted, keep: see `apply`.
        """
        raise NotImplementedError

    # -- public interface
    @property
    def name(self) -> str:
        """The type of the node, such as ``tanh_grad``."""
        return type(self).__name__

    @property
    def next_edges(self) -> tuple[Edge, ...]:
        """The edge that the gradient of each input follows."""
        return tuple(Edge(None, 0) if edge is None else Edge(*edge) for edge in self._edges)

    @property
    def device(self) -> str:
        """The device that the node runs on: ``"cpu"``, or for example ``"cuda:0"``."""
        return next((kind.device for kind in self.kinds if kind is not None), CPU)

    @property
    def input_metadata(self) -> tuple[Metadata | None, ...]:
        """Shape, dtype and device of each gradient that it receives."""
        return tuple(None if kind is None else Metadata(kind.shape, kind.dtype, kind.device) for kind in self.kinds)

    @property
    def where(self) -> str:
        """The line of the user's code that recorded it."""
        return line_text(self._line)

    def _all_hooks(self) -> NodeHooks:
        if self._hooks is None:
            self._hooks = NodeHooks()
        return self._hooks

    def register_prehook(self, hook: Callable[[tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call ``hook(grads)`` with the gradients that the node receives; a result other than None replaces them."""
        return RemovableHandle(self._all_hooks().before, hook)

    def register_hook(self, hook: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call ``hook(computed, received)`` with the node's gradients; a result other than None replaces the first."""
        return RemovableHandle(self._all_hooks().after, hook)

    def __call__(self, *grads: Any) -> Any:
        """Gradients of the op's inputs from gradients of its outputs, as tensors; None stands for zero.

        Args:
            grads: tensors or arrays of the shapes and element types in `input_metadata`.
        """
        cls = parts.tensor
        if len(grads) != len(self.kinds):
            raise BackwardError(f"{self.name} takes {len(self.kinds)} gradients, not {len(grads)}")
        tensors: list[Any] = []
        for number, (grad, kind) in enumerate(zip(grads, self.kinds, strict=True)):
            if grad is not None and not isinstance(grad, cls):
                grad = cls._of(array_of(grad, None if hasattr(grad, "dtype") or kind is None else kind.dtype))
            if grad is not None and kind is not None and (grad.shape, grad.dtype) != (kind.shape, kind.dtype):
                raise BackwardError(f"{self.name}: gradient {number} should be {kind}, as the op's output, not {grad._kind}")
            tensors.append(grad)
        if state.recording or state.tracer is not None:
            gradients = self.apply_recorded(tensors, None, True)
        else:
            arrays = self.apply([None if grad is None else grad._array for grad in tensors], None, True)
            gradients = [None if array is None else cls._of(array) for array in arrays]
        return gradients[0] if len(gradients) == 1 else tuple(gradients)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def _released(self) -> BackwardError:
        return BackwardError(
            f"{self.name} has run before, and its saved values were freed; pass retain_graph=True to the first call of backward "
            f"or grad to run it again\n  recorded at: {self.where}"
        )


def height(edges: Iterable[tuple[Node, int] | None]) -> int:
    """The `topological_nr` of a node with these edges."""
    return 1 + max((edge[0].topological_nr for edge in edges if edge is not None), default=0)


class RecordedNode(Node):
    """A node that keeps the kinds of the gradients that it receives."""

    __slots__ = ("_kinds",)

    def __init__(self, kinds: Sequence[ArrayType | None], edges: Iterable[tuple[Node, int] | None], saved: Any) -> None:
        self._kinds, self._edges, self._saved, self._line = kinds, tuple(edges), saved, user_line()
        self._hooks = self._keepers = None
        self.sequence_nr, self.topological_nr = next(sequence), height(self._edges)

    @property
    def kinds(self) -> Sequence[ArrayType | None]:
        return self._kinds


def modified(node: Node, version: list[Any], saved: int) -> BackwardError:
    """The error for a tensor that was modified in place after a node saved it."""
    by, line = version[1:3] if len(version) > 1 else ("a change", None)
    return BackwardError(
        f"{node.name} needs a tensor that was modified in place after it was recorded: by {by}, version {version[0]} instead of "
        f"{saved}. Apply that op to a clone(), or use the one that makes a new tensor\n"
        f"  recorded at: {node.where}\n  modified at: {line_text(line)}"
    )


class OpNode(Node):
    """The gradient of an op of the registry."""

    __slots__ = ("_compiled_op",)

    _compiled_op: CompiledOp

    @property
    def kinds(self) -> Sequence[ArrayType | None]:
        return self._compiled_op.out_kinds

    @property
    def large(self) -> bool:
        return self._compiled_op.large

    @property
    def device(self) -> str:
        return self._compiled_op.device

    @property
    def name(self) -> str:
        return self._compiled_op.op.definition.grad_type

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        saved = self._saved
        if saved is None:
            raise self._released()
        arrays = []
        for array, version, number in saved:
            if version[0] != number:
                raise modified(self, version, number)
            arrays.append(array)
        compiled_op = self._compiled_op
        if wanted is None:
            wanted = compiled_op.all_wanted if None not in self._edges else tuple([edge is not None for edge in self._edges])
        backward = compiled_op.backwards.get(wanted) if len(grads) == 1 and grads[0] is not None else None
        if backward is None:
            backward = compiled_op.backward(wanted, grads)
        if not keep and saved:
            self._saved = None
        if backward is None:
            return (None,) * len(self._edges)
        return backward(arrays, grads)

    def apply_recorded(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        saved = self._saved
        if saved is None:
            raise self._released()
        for _, version, number in saved:
            if version[0] != number:
                raise modified(self, version, number)
        if wanted is None:
            wanted = [edge is not None for edge in self._edges]
        gradients = parts.passes.run_rule(self, grads, wanted)
        if not keep and saved:
            self._saved = None
        return gradients


# ---------------------------------------------------------------------------------------------------------------- leaves
_leaf_lock = threading.Lock()
_grad_locks = [threading.Lock() for _ in range(64)]
"""Locks of the gradients of leaves, each shared by many leaves."""


class AccumulateGrad(Node):
    """The node of a leaf: adds the gradient to the tensor's `grad`, unless the tensor no longer requires one.

    It references its tensor, which has only a weak reference to it.

    Args:
        variable: the leaf.

    >>> x = dygraph.Tensor([1.0], stop_gradient=False)
    >>> node, _ = (x * x).grad_fn.next_edges[0]
    >>> type(node).__name__, node.variable is x
    ('AccumulateGrad', True)
    """

    __slots__ = ("variable",)

    is_leaf = True
    large = False

    @property
    def _hooks(self) -> NodeHooks | None:
        """The hooks of the tensor, which outlives its nodes."""
        return self.variable._hooks

    @_hooks.setter
    def _hooks(self, hooks: NodeHooks | None) -> None:
        self.variable._hooks = hooks

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable
        self.sequence_nr = _LEAVES + next(sequence)
        self.topological_nr = 0
        self._edges, self._line, self._saved, self._keepers = (), None, (), None

    @property
    def kinds(self) -> Sequence[ArrayType | None]:
        return (self.variable._kind,)

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        variable = self.variable
        if grads[0] is not None and not variable._stop:
            accumulate(variable, grads[0])
            if variable._hooks is not None:
                for hook in list(variable._hooks.accumulated.values()):
                    hook(variable)
        return ()

    apply_recorded = apply


def leaf_edge(tensor: Tensor) -> tuple[Node, int]:
    """The edge to the node of a leaf; makes the node if it does not exist."""
    reference = tensor._accumulator
    node = None if reference is None else reference()
    if node is None:
        with _leaf_lock:
            reference = tensor._accumulator
            node = None if reference is None else reference()
            if node is None:
                node = AccumulateGrad(tensor)
                tensor._accumulator = weakref.ref(node)
    return node, 0


NO_GRAPH = (
    "has no graph: no tensor that it was computed from requires a gradient, or recording was off; set stop_gradient=False on the "
    "tensors to differentiate by"
)


def keep_gradient(tensor: Tensor) -> None:
    """Inside a guard, let a tensor keep the gradient of its edge, although another tensor may share the edge."""
    if state.keeps_gradients and tensor._edge is not None:
        node, number = tensor._edge
        if len(node.kinds) == 1:
            node._keepers = weakref.ref(tensor)
            return
        if not isinstance(node._keepers, dict):
            node._keepers = {}
        node._keepers[number] = weakref.ref(tensor)


def accumulate(tensor: Tensor, grad: Any) -> None:
    """Add a gradient to a tensor's `grad`: an array that nothing else references, or a tensor."""
    cls = parts.tensor
    with _grad_locks[id(tensor) >> 6 & 63]:
        before = tensor._grad
        if before is None:
            tensor._grad = grad if isinstance(grad, cls) else cls._of(grad)
        elif isinstance(grad, cls) or before._edge is not None:
            tensor._grad = before + (grad if isinstance(grad, cls) else cls._of(grad))
        else:
            array = before._array
            if isinstance(array, np.ndarray) and isinstance(grad, np.ndarray):
                added(array, grad, array)
            elif isinstance(array, SelectedRows) or isinstance(grad, SelectedRows):
                tensor._grad = cls._of(array + grad)
                return
            else:
                array += grad
            before._version[0] += 1


def chain(nodes: Iterable[Node]) -> str:
    """Nodes as text, one per line, each with the line that recorded it."""
    return "".join(f"\n    {node.name}, recorded at: {node.where}" for node in nodes)
