"""Functions with a backward of the user's own."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ..errors import BackwardError, FluidTypeError
from ..executor.binding.array_types import ArrayType
from .functional import gradcheck
from .graph import RecordedNode, leaf_edge, modified
from .mode import enable_grad, no_grad, state
from .tensor import Tensor, make

__all__ = ["PyLayer", "PyLayerContext"]


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

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors (arguments or results of `forward`, or others) for `backward`, until it has run."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise FluidTypeError(
                    f"save_for_backward takes tensors, not {type(tensor).__name__}; set an attribute of ctx instead"
                )
        self._to_save = tensors

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

    def _keep(self, outputs: Sequence[Tensor]) -> None:
        """Save the tensors as entries that do not reference this context's node, which would be a cycle."""
        numbers = {id(tensor): number for number, tensor in enumerate(outputs)}
        entries: list[Any] = []
        for tensor in self._to_save:
            if tensor is None:
                entries.append(None)
                continue
            output = numbers.get(id(tensor))
            edge = None if output is not None or tensor._stop else tensor._edge or leaf_edge(tensor)
            entries.append((tensor._array, tensor._kind, tensor._version, tensor._version[0], edge, output))
        self._saved, self._to_save, self._not_differentiable = tuple(entries), (), ()


class PyLayer:
    """A function with a backward of its own::

        class Cube(PyLayer):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x * x

            @staticmethod
            def backward(ctx, dy):
                (x,) = ctx.saved_tensor()
                return dy * 3.0 * x * x

        y = Cube.apply(x)

    `forward` takes tensors and other values, and returns a tensor or a tuple of them. `backward` takes a gradient for each of
    these, and returns one, or None, for each tensor that `forward` takes. It is recorded under ``create_graph=True``.
    """

    @staticmethod
    def forward(ctx: PyLayerContext, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a PyLayer needs a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx: PyLayerContext, *grads: Any) -> Any:
        raise NotImplementedError("a PyLayer needs a static method backward(ctx, ...)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`, and record its `backward`."""
        ctx = PyLayerContext()
        tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor)]
        ctx.needs_input_grad = tuple(isinstance(arg, Tensor) and not arg._stop for arg in args)
        with no_grad(), nullcontext() if state.tracer is None else state.tracer.differentiable():
            result = cls.forward(ctx, *args, **kwargs)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        for number, output in enumerate(outputs):
            if not isinstance(output, Tensor):
                raise FluidTypeError(f"{cls.__name__}.forward should give tensors; result {number} is a {type(output).__name__}")
        if state.recording and not all(tensor._stop for tensor in tensors):
            edges = tuple(None if tensor._stop else tensor._edge or leaf_edge(tensor) for tensor in tensors)
            seen = {id(tensor) for tensor in tensors}
            for number, output in enumerate(outputs):
                if id(output) in seen:  # an argument returned as it is, or one result returned twice
                    outputs[number] = output.detach()
                seen.add(id(output))
            node = PyLayerNode(cls, ctx, edges, [tensor._kind for tensor in tensors], [output._kind for output in outputs])
            constant = {id(tensor) for tensor in ctx._not_differentiable}
            ctx._keep(outputs)
            for number, output in enumerate(outputs):
                if output._kind.differentiable and id(output) not in constant:
                    output._edge, output._stop = (node, number), False
        return type(result)(outputs) if isinstance(result, (tuple, list)) else outputs[0]

    @classmethod
    def gradcheck(cls, *args: Any, **kwargs: Any) -> bool:
        """Compare `backward` with central differences at these arguments: float64 tensors that require a gradient."""
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
        out_kinds: list[ArrayType],
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
        with enable_grad():
            gradients = self._run(grads, keep)
        if state.forward and not all(grad is None or grad._stop for grad in grads):
            for number, grad in enumerate(gradients):
                if grad is not None and grad._stop:
                    raise BackwardError(
                        f"{self.name}: gradient {number} does not depend on the gradients that backward received by ops on "
                        "tensors, so no product with the Jacobian matrix can be computed through it: compute it by such ops, not "
                        f"by numpy or on detached tensors, and give None where it is zero\n  recorded at: {self.where}"
                    )
        return gradients

    def _run(self, grads: list[Any], keep: bool) -> Sequence[Any]:
        ctx: PyLayerContext = self._saved
        if all(grad is None for grad in grads):
            return [None] * len(self._edges)
        if ctx._materialize:
            grads = [
                make(kind.xp.zeros(kind.shape, kind.numpy_dtype), kind) if grad is None else grad
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
