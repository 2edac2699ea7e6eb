"""Functions with a user-defined backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import Any

from ..errors import BackwardError, FluidTypeError, ProgramError
from ..executor.binding.array_types import ArrayType
from .functional import gradcheck
from .graph import RecordedNode, leaf_edge, modified
from .mode import enable_grad, no_grad, state
from .tensor import Tensor, make


class PyLayerContext:
    """Carries values from `forward` to `backward`; both may set attributes of their own.

    Attributes:
        needs_input_grad: for each argument of `forward`, whether its gradient is wanted.
    """

    def __init__(self) -> None:
        self.needs_input_grad: tuple[bool, ...] = ()
        self._to_save: tuple[Any, ...] = ()
        self._saved: tuple[Any, ...] | None = ()
        self._materialize = True
        self._node: Any = None
        self._not_differentiable: tuple[Tensor, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors (arguments or results of `forward`, or others) for `backward`, until it has run."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise FluidTypeError(
                    f"save_for_backward takes tensors, not {type(tensor).__name__}; set an attribute of ctx instead"
                )
        self._to_save = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare that `forward` modifies these arguments in place; it returns each of them as a result."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare that these results have no gradient."""
        self._not_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """With False, `backward` receives None instead of zeros for results that no gradient reached."""
        self._materialize = bool(value)

    def saved_tensor(self) -> tuple[Any, ...]:
        """The saved tensors; a `BackwardError` if they were freed, or modified in place since."""
        node = self._node()
        if self._saved is None:
            raise node._released()
        tensors: list[Any] = []
        for entry in self._saved:
            if entry is None:
                tensors.append(None)
                continue
            array, kind, version, number, edge, output = entry
            if version[0] != number:
                raise modified(node, version, number)
            if edge is not None and edge[0].is_leaf:
                tensors.append(edge[0].variable)
            else:
                tensors.append(make(array, kind, edge if output is None else (node, output), version))
        return tuple(tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors."""
        return self.saved_tensor()

    def _keep(self, numbers: dict[int, int]) -> None:
        """Save the tensors as entries that do not reference this context's node, which would be a cycle.

        Args:
            numbers: by id of a result of `forward`: its number.
        """
        entries: list[Any] = []
        for tensor in self._to_save:
            if tensor is None:
                entries.append(None)
                continue
            output = numbers.get(id(tensor))
            edge = None if output is not None or tensor._stop else tensor._edge or leaf_edge(tensor)
            entries.append((tensor._array, tensor._kind, tensor._version, tensor._version[0], edge, output))
        self._saved, self._to_save, self._not_differentiable, self._dirty = tuple(entries), (), (), ()


class PyLayer:
    """A function with its own backward: a class that defines `forward` and `backward`.

    `forward` takes tensors and other values, and returns a tensor or other value, or a tuple of them. It names tensors that it
    modifies in place by ``ctx.mark_dirty``; a result in the memory of another tensor is copied. `backward` takes a gradient for
    each result, None for one that is no tensor, and returns one, or None, for each tensor that `forward` takes. Under
    ``create_graph=True`` it is recorded; a gradient that it does not compute by recorded ops cannot be differentiated again.

    >>> class Cube(dygraph.PyLayer):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, dy):
    ...         (x,) = ctx.saved_tensor()
    ...         return dy * 3.0 * x * x
    >>> x = dygraph.Tensor([2.0], stop_gradient=False)
    >>> Cube.apply(x).backward()
    >>> x.gradient()
    array([12.], dtype=float32)
    """

    @staticmethod
    def forward(ctx: PyLayerContext, *args: Any, **kwargs: Any) -> Any:
        """Compute the results; ``ctx.save_for_backward`` saves tensors for `backward`.

        Args:
            ctx: of this call.
            args, kwargs: the arguments of `apply`.
        """
        raise NotImplementedError("a PyLayer needs a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx: PyLayerContext, *grads: Any) -> Any:
        """Compute the gradients of `forward`'s tensors from `grads`, the gradients of its results; `ctx` is the same object."""
        raise NotImplementedError("a PyLayer needs a static method backward(ctx, ...)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` with `args` and `kwargs`, and record its `backward`."""
        ctx = PyLayerContext()
        tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor)]
        ctx.needs_input_grad = tuple(isinstance(arg, Tensor) and not arg._stop for arg in args)
        versions = [tensor._version[0] for tensor in tensors]
        with no_grad(), nullcontext() if state.tracer is None else state.tracer.differentiable():
            result = cls.forward(ctx, *args, **kwargs)
            results = list(result) if isinstance(result, (tuple, list)) else [result]
            outputs = cls._copy_shared(results, tensors, ctx._dirty)
        if state.recording and not all(tensor._stop for tensor in tensors):
            cls._check_modified(tensors, versions, outputs, ctx._dirty)
            edges = tuple(None if tensor._stop else tensor._edge or leaf_edge(tensor) for tensor in tensors)
            kinds = [output._kind if isinstance(output, Tensor) else None for output in outputs]
            node = PyLayerNode(cls, ctx, edges, [tensor._kind for tensor in tensors], kinds)
            constant = {id(tensor) for tensor in ctx._not_differentiable}
            untouched = {id(tensor) for tensor in tensors} - {id(tensor) for tensor in ctx._dirty}
            ctx._keep({id(value): number for number, value in enumerate(results) if id(value) not in untouched})
            for number, (value, output) in enumerate(zip(results, outputs, strict=True)):
                if isinstance(output, Tensor) and output._kind.differentiable and id(value) not in constant:
                    output._move_to((node, number))
        return type(result)(outputs) if isinstance(result, (tuple, list)) else outputs[0]

    @staticmethod
    def _copy_shared(results: Sequence[Any], arguments: Sequence[Tensor], dirty: Sequence[Tensor]) -> list[Any]:
        """Copy results that share memory with an argument or with an earlier result."""
        in_place = {id(tensor) for tensor in dirty}
        seen = {id(tensor._version) for tensor in arguments if id(tensor) not in in_place}
        outputs: list[Any] = []
        for output in results:
            if isinstance(output, Tensor):
                version = id(output._version)
                if version in seen:
                    output = output.clone()
                seen.add(version)
            outputs.append(output)
        return outputs

    @classmethod
    def _check_modified(
        cls, tensors: Sequence[Tensor], versions: Sequence[int], outputs: Sequence[Any], dirty: Sequence[Tensor]
    ) -> None:
        """Raise an error if `forward` modified arguments in place without declaring it, or arguments that must not change."""
        marked = {id(tensor) for tensor in dirty}
        for number, (tensor, version) in enumerate(zip(tensors, versions, strict=True)):
            if id(tensor) in marked:
                tensor._check_modifiable(f"{cls.__name__}.forward")
            elif tensor._version[0] != version:
                raise BackwardError(
                    f"{cls.__name__}.forward modified its argument {number} in place, so gradients would be wrong: "
                    "declare that by ctx.mark_dirty(x) and return x, or modify a clone()"
                )
        for tensor in dirty:
            if all(tensor is not argument for argument in tensors):
                raise ProgramError(f"{cls.__name__}: mark_dirty is for arguments of forward, which {tensor.name} is not")
            if all(tensor is not output for output in outputs):
                raise ProgramError(
                    f"{cls.__name__}: {tensor.name}, which mark_dirty names, should be among the results of forward"
                )

    @classmethod
    def gradcheck(cls, *args: Any, **kwargs: Any) -> bool:
        """Compare `backward` with central differences at these `args` and `kwargs`: float64 tensors that require a gradient."""
        return gradcheck(cls.apply, args, **kwargs)


class PyLayerNode(RecordedNode):
    """The backward of a `PyLayer`."""

    __slots__ = ("_cls", "_in_kinds")

    def __init__(
        self,
        cls: type[PyLayer],
        ctx: PyLayerContext,
        edges: tuple[Any, ...],
        in_kinds: list[ArrayType],
        out_kinds: list[ArrayType | None],
    ) -> None:
        super().__init__(out_kinds, edges, ctx)
        self._cls, self._in_kinds = cls, in_kinds
        ctx._node = weakref.ref(self)

    @property
    def name(self) -> str:
        return self._cls.__name__ + "_backward"

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        with no_grad():
            gradients = self._run([None if grad is None else Tensor._of(grad) for grad in grads], keep)
        # The user may keep references to them, and the pass adds to its gradients in place.
        return [None if grad is None else grad._array.copy() for grad in gradients]

    def apply_recorded(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        if state.tracer is not None:
            with enable_grad():
                return self._run(grads, keep)
        # A gradient is linear in those received: one without a graph was not computed of them by ops, and is no constant.
        kinds = [None if grad is None else grad._kind for grad in grads]
        received = _Received(kinds, (), ())
        with enable_grad():
            gradients = self._run([_with_graph(grad, (received, number)) for number, grad in enumerate(grads)], keep)
        edges = [*self._edges, *(None if grad is None or grad._stop else grad._edge or leaf_edge(grad) for grad in grads)]
        return [
            grad if grad is None or not grad._stop else _with_graph(grad, (_NotRecorded(self, number, grad._kind, edges), 0))
            for number, grad in enumerate(gradients)
        ]

    def _run(self, grads: list[Any], keep: bool) -> Sequence[Any]:
        ctx: PyLayerContext = self._saved
        if all(grad is None for grad in grads):
            return [None] * len(self._edges)
        if ctx._materialize:
            grads = [
                make(kind.xp.zeros(kind.shape, kind.numpy_dtype), kind) if grad is None and kind is not None else grad
                for grad, kind in zip(grads, self._kinds, strict=True)
            ]
        gradients = self._cls.backward(ctx, *grads)
        gradients = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
        name = self._cls.__name__
        if len(gradients) != len(self._edges):
            raise BackwardError(
                f"{name}.backward gave {len(gradients)} gradients, but forward took {len(self._edges)} tensors; give one, or "
                "None, for each"
            )
        for number, (grad, edge, kind) in enumerate(zip(gradients, self._edges, self._in_kinds, strict=True)):
            if grad is None:
                continue
            if not isinstance(grad, Tensor):
                raise FluidTypeError(
                    f"{name}.backward: gradient {number} should be a Tensor or None, not a {type(grad).__name__}"
                )
            if edge is None:
                gradients[number] = None
            elif (grad.shape, grad.dtype) != (kind.shape, kind.dtype):
                raise BackwardError(f"{name}.backward: gradient {number} is {grad._kind}, but the tensor it belongs to is {kind}")
        if not keep and ctx._saved:
            ctx._saved = None
        return gradients


def _with_graph(tensor: Tensor | None, edge: tuple[Any, int]) -> Tensor | None:
    """The tensor, with this edge if it has no graph."""
    return make(tensor._array, tensor._kind, edge, tensor._version) if tensor is not None and tensor._stop else tensor


class _Received(RecordedNode):
    """The source of constant gradients that a `backward` receives, so that values computed from them have a graph too."""

    __slots__ = ()

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        return ()

    apply_recorded = apply


class _NotRecorded(RecordedNode):
    """A node in place of the derivatives of a gradient that a `backward` computed without recorded ops."""

    __slots__ = ()

    def __init__(self, node: PyLayerNode, number: int, kind: ArrayType, edges: Sequence[Any]) -> None:
        why = (
            f"{node.name}: gradient {number} does not depend on the gradients that backward received by recorded ops on tensors, "
            "so it cannot be differentiated: compute it by such ops, not by numpy, on detached tensors or under "
            f"once_differentiable, and give None where it is zero\n  recorded at: {node.where}"
        )
        super().__init__([kind], edges, why)

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        raise BackwardError(self._saved)

    apply_recorded = apply


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a `backward` that should not be recorded; differentiating its results is an error.

    Write it below ``@staticmethod``. The function may compute by any means, for example numpy, and is not recorded needlessly.

    >>> class Sine(dygraph.PyLayer):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return dygraph.Tensor(np.sin(x.numpy()))
    ...     @staticmethod
    ...     @dygraph.once_differentiable
    ...     def backward(ctx, dy):
    ...         (x,) = ctx.saved_tensor()
    ...         return dygraph.Tensor(dy.numpy() * np.cos(x.numpy()))
    >>> x = dygraph.Tensor([0.0], stop_gradient=False)
    >>> Sine.apply(x).backward()
    >>> x.gradient()
    array([1.], dtype=float32)
    """

    @wraps(backward)
    def unrecorded(ctx: PyLayerContext, *grads: Tensor | None) -> Any:
        with no_grad():
            return backward(ctx, *[None if grad is None else grad.detach() for grad in grads])

    return unrecorded
