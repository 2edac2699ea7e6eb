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
from ..executor.binding.kinds import CPU, Kind, array_of
from ..ir.frames import OURS
from ..values.selected_rows import SelectedRows
from ..values.types import VarType
from .mode import state
from .parts import parts

if TYPE_CHECKING:
    from .dispatch import Recipe
    from .tensor import Tensor

__all__ = [
    "AccumulateGrad",
    "Edge",
    "Metadata",
    "Node",
    "OpNode",
    "RemovableHandle",
    "accumulate",
    "height",
    "leaf_edge",
    "user_line",
]

_LEAVES = 2**62
"""Sequence numbers of leaves: a leaf that is ready goes before all other nodes."""
LARGE = 1 << 21
"""From so many elements, or multiplications of a product, on, a gradient is worth a thread of its own."""
sequence = itertools.count()
_Edges = tuple["tuple[Node, int] | None", ...]
_Line = tuple[CodeType, int]


class Edge(NamedTuple):
    """To which node, and to which of its inputs, a gradient goes. The node is None where it is not wanted."""

    node: Node | None
    input_nr: int


class Metadata(NamedTuple):
    """What a node is to be given at one of its inputs."""

    shape: tuple[int, ...]
    dtype: VarType
    device: str


class Hooks(dict[int, Callable[..., Any]]):
    """Hooks in the order in which they were added."""

    __slots__ = ("__weakref__",)


class RemovableHandle:
    """Adds a hook to others, and removes it: by `remove`, or at the end of a ``with``."""

    def __init__(self, hooks: Hooks, hook: Callable[..., Any]) -> None:
        self._hooks = weakref.ref(hooks)
        self._key = next(sequence)
        hooks[self._key] = hook

    def remove(self) -> None:
        """Take the hook out; to do it again does no harm."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self._key, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class NodeHooks:
    """What is called as a node runs.

    Attributes:
        of_tensor: by output of the op: hooks of the tensor, called with its gradient.
        retained: by output of the op: the tensor that keeps its gradient.
        before: called with all the gradients that the node is given.
        after: called with those that it gives, and those that it was given.
    """

    __slots__ = ("after", "before", "of_tensor", "retained")

    def __init__(self) -> None:
        self.of_tensor: dict[int, Hooks] = {}
        self.retained: dict[int, weakref.ref[Tensor]] = {}
        self.before, self.after = Hooks(), Hooks()


# ---------------------------------------------------------------------------------------------------- the user's lines
def user_line() -> _Line:
    """Where the user's code is: the innermost frame outside Fluid. To be read with `line_text`."""
    frame = sys._getframe(1)
    while OURS[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def line_text(line: _Line | None) -> str:
    """``file:line in function``."""
    if line is None:
        return "an unknown line"
    code, at = line
    number = code.co_firstlineno
    for start, end, found in code.co_lines():
        if start <= at < end and found is not None:
            number = found
    return f"{code.co_filename}:{number} in {code.co_name}"


# ----------------------------------------------------------------------------------------------------------------- nodes
class Node:
    """One recorded op: called with gradients of its outputs, it gives gradients of its inputs.

    Attributes:
        sequence_nr: counts nodes as they are made.
        topological_nr: how many edges lie between it and its farthest leaf.
    """

    __slots__ = ("__weakref__", "_edges", "_hooks", "_line", "_saved", "sequence_nr", "topological_nr")

    _edges: _Edges
    _hooks: NodeHooks | None
    _line: _Line | None
    _saved: Any
    sequence_nr: int
    topological_nr: int

    is_leaf = False

    @property
    def large(self) -> bool:
        """Whether it has so much to do that a thread of its own pays."""
        return any(kind is not None and kind.size >= LARGE for kind in self.kinds)

    # -- what a kind of node says
    @property
    def kinds(self) -> Sequence[Kind | None]:
        """Kinds of the gradients that it is given; None where that is not known."""
        raise NotImplementedError

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        """Gradients of the inputs as arrays, from arrays; None stands for zero.

        Args:
            wanted: which of them; by default those that have an edge.
            keep: the node will be run again.
        """
        raise NotImplementedError

    def apply_recorded(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        """As `apply` over tensors, and recorded, so that it can be differentiated."""
        raise NotImplementedError

    # -- what users see
    @property
    def name(self) -> str:
        """What kind of node it is, such as ``tanh_grad``."""
        return type(self).__name__

    @property
    def next_edges(self) -> tuple[Edge, ...]:
        """Where the gradient of each input goes."""
        return tuple(Edge(None, 0) if edge is None else Edge(*edge) for edge in self._edges)

    @property
    def device(self) -> str:
        """Where it runs, ``"cpu"`` or such as ``"cuda:0"``."""
        return next((kind.device for kind in self.kinds if kind is not None), CPU)

    @property
    def input_metadata(self) -> tuple[Metadata | None, ...]:
        """Shape, dtype and device of each gradient that it is to be given."""
        return tuple(None if kind is None else Metadata(kind.shape, kind.dtype, kind.device) for kind in self.kinds)

    @property
    def where(self) -> str:
        """The line of the user's code that made it."""
        return line_text(self._line)

    def _all_hooks(self) -> NodeHooks:
        if self._hooks is None:
            self._hooks = NodeHooks()
        return self._hooks

    def register_prehook(self, hook: Callable[[tuple[Any, ...]], Any]) -> RemovableHandle:
        """Let ``hook(grads)`` see, and by what it returns replace, the gradients that the node is given."""
        return RemovableHandle(self._all_hooks().before, hook)

    def register_hook(self, hook: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> RemovableHandle:
        """Let ``hook(found, given)`` see the gradients that the node gives and was given, and replace the former."""
        return RemovableHandle(self._all_hooks().after, hook)

    def __call__(self, *grads: Any) -> Any:
        """Gradients of the op's inputs from gradients of its outputs, as tensors; None stands for zero.

        Args:
            grads: tensors, or arrays, of the shapes and element types that `input_metadata` says.
        """
        cls = parts.tensor
        if len(grads) != len(self.kinds):
            raise BackwardError(f"{self.name} takes {len(self.kinds)} gradients, not {len(grads)}")
        given: list[Any] = []
        for number, (grad, kind) in enumerate(zip(grads, self.kinds, strict=True)):
            if grad is not None and not isinstance(grad, cls):
                grad = cls._of(array_of(grad, None if hasattr(grad, "dtype") or kind is None else kind.dtype))
            if grad is not None and kind is not None and (grad.shape, grad.dtype) != (kind.shape, kind.dtype):
                raise BackwardError(f"{self.name}: gradient {number} should be {kind}, as what it belongs to, not {grad._kind}")
            given.append(grad)
        if state.recording or state.tracer is not None:
            found = self.apply_recorded(given, None, True)
        else:
            arrays = self.apply([None if grad is None else grad._array for grad in given], None, True)
            found = [None if array is None else cls._of(array) for array in arrays]
        return found[0] if len(found) == 1 else tuple(found)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def _released(self) -> BackwardError:
        return BackwardError(
            f"{self.name} has been run before, and what it needs was given free; say retain_graph=True in the first call of "
            f"backward or grad to go through it again\n  recorded at: {self.where}"
        )


def height(edges: Iterable[tuple[Node, int] | None]) -> int:
    """The `topological_nr` of a node with these edges."""
    return 1 + max((edge[0].topological_nr for edge in edges if edge is not None), default=0)


def modified(node: Node, version: list[Any], saved: int) -> BackwardError:
    """The error where a tensor that a node saved was modified in place since."""
    by, line = version[1:3] if len(version) > 1 else ("a change", None)
    return BackwardError(
        f"{node.name} needs a tensor that was modified in place after it was recorded: by {by}, version {version[0]} instead of "
        f"{saved}. Give that op a clone(), or use the op that makes a new tensor\n"
        f"  recorded at: {node.where}\n  modified at: {line_text(line)}"
    )


class OpNode(Node):
    """The gradient of an op of the registry."""

    __slots__ = ("_recipe",)

    _recipe: Recipe

    @property
    def kinds(self) -> Sequence[Kind | None]:
        return self._recipe.out_kinds

    @property
    def large(self) -> bool:
        return self._recipe.large

    @property
    def device(self) -> str:
        return self._recipe.device

    @property
    def name(self) -> str:
        return self._recipe.op.definition.grad_type

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        saved = self._saved
        if saved is None:
            raise self._released()
        arrays = []
        for array, version, number in saved:
            if version[0] != number:
                raise modified(self, version, number)
            arrays.append(array)
        recipe = self._recipe
        if wanted is None:
            wanted = recipe.all_wanted if None not in self._edges else tuple([edge is not None for edge in self._edges])
        found = recipe.backwards.get(wanted) if len(grads) == 1 and grads[0] is not None else None
        if found is None:
            found = recipe.backward(wanted, grads)
            if found is None:
                return (None,) * len(self._edges)
        if not keep and saved:
            self._saved = None
        return found(arrays, grads)

    def apply_recorded(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        saved = self._saved
        if saved is None:
            raise self._released()
        for _, version, number in saved:
            if version[0] != number:
                raise modified(self, version, number)
        if wanted is None:
            wanted = [edge is not None for edge in self._edges]
        found = parts.run_rule(self, grads, wanted)
        if not keep and saved:
            self._saved = None
        return found


# ---------------------------------------------------------------------------------------------------------------- leaves
_leaf_lock = threading.Lock()
_grad_locks = [threading.Lock() for _ in range(64)]
"""Guard the gradients of leaves, each those of many."""


class AccumulateGrad(Node):
    """Where the gradient of a leaf ends: it is added to the tensor's `grad`.

    It holds its tensor, which knows it only weakly.
    """

    __slots__ = ("variable",)

    is_leaf = True
    large = False

    @property
    def _hooks(self) -> NodeHooks | None:
        """Those of the tensor, which outlives its nodes."""
        return self.variable._hooks

    @_hooks.setter
    def _hooks(self, hooks: NodeHooks | None) -> None:
        self.variable._hooks = hooks

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable
        self.sequence_nr = _LEAVES + next(sequence)
        self.topological_nr = 0
        self._edges, self._line, self._saved = (), None, ()

    @property
    def kinds(self) -> Sequence[Kind | None]:
        return (self.variable._kind,)

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        if grads[0] is not None:
            accumulate(self.variable, grads[0])
        return ()

    apply_recorded = apply


def leaf_edge(tensor: Tensor) -> tuple[Node, int]:
    """The edge to the node of a leaf, which is made if nothing holds it any more."""
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


def accumulate(tensor: Tensor, grad: Any) -> None:
    """Add a gradient, an array that nobody else holds or a tensor with a graph of its own, to a tensor's `grad`."""
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
                np.add(array, grad, array)
            elif isinstance(array, SelectedRows) or isinstance(grad, SelectedRows):
                tensor._grad = cls._of(array + grad)
                return
            else:
                array += grad
            before._version[0] += 1


def chain(nodes: Iterable[Node]) -> str:
    """Nodes as text, one in a line with where it was recorded."""
    return "".join(f"\n    {node.name}, recorded at: {node.where}" for node in nodes)
