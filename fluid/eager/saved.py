"""Hooks on values saved for backward: store them elsewhere, or in another form, until backward needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import FluidTypeError
from ..executor.binding.array_types import ArrayType, array_type_of
from .graph import OpNode
from .mode import intercepting, state
from .tensor import Tensor, make


class saved_tensors_hooks:
    """Inside the ``with``, ops save ``pack(tensor)`` for backward; backward calls ``unpack`` on it.

    For example, to keep it in files instead of memory::

        def pack(tensor):
            path = folder / f"{next(numbers)}.npy"
            numpy.save(path, tensor.numpy())
            return path

        with dygraph.saved_tensors_hooks(pack, lambda path: dygraph.Tensor(numpy.load(path))):
            loss = network(x)
        loss.backward()

    It does not pack tensors that a `PyLayer` saves, or the arguments of `recompute`.

    Args:
        pack: a function of a tensor; its result is saved.
        unpack: a function of the saved result; it returns a tensor of the same shape and element type, each time that backward
            runs.

    >>> x = dygraph.Tensor([3.0], stop_gradient=False)
    >>> with dygraph.saved_tensors_hooks(lambda tensor: tensor.numpy(), dygraph.Tensor):
    ...     y = x * x
    >>> y.backward()
    >>> x.gradient()
    array([6.], dtype=float32)
    """

    def __init__(self, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> None:
        self._pack, self._unpack = pack, unpack

    def __enter__(self) -> None:
        if state.tracer is not None:
            state.tracer.refuse_call("saved_tensors_hooks", "what runs while tracing saves nothing for backward")
        self._around = state.interceptor
        self._interception = intercepting(self)
        self._interception.__enter__()

    def __exit__(self, *_: object) -> None:
        self._interception.__exit__()

    def call(self, op: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
        """Run `op` on these `tensors`, and pack the values that its node saved."""
        with intercepting(self._around):
            result = op(*tensors)
            outputs = result if isinstance(result, tuple) else (result,)
            listed = [item for output in outputs for item in (output if isinstance(output, list) else [output])]
            nodes = {item._edge[0] for item in listed if item is not None and item._edge is not None}
            for node in nodes:
                if type(node) is OpNode:
                    node.__class__ = _PackedNode
                    node._saved = tuple([self._packed(*entry) for entry in node._saved])
        return result

    def _packed(self, array: Any, version: list[Any], number: int) -> tuple[_PackedValue, list[Any], int]:
        kind = array_type_of(array)
        return _PackedValue(self._pack(make(array, kind, None, version)), self._unpack, kind), version, number


class _PackedValue:
    """A saved value, packed by the hooks."""

    def __init__(self, value: Any, unpack: Callable[[Any], Tensor], kind: ArrayType) -> None:
        self._value, self._unpack, self._kind = value, unpack, kind

    def unpacked(self) -> Tensor:
        """The value as a tensor."""
        tensor = self._unpack(self._value)
        if not isinstance(tensor, Tensor) or (tensor.shape, tensor.dtype) != (self._kind.shape, self._kind.dtype):
            description = tensor._kind if isinstance(tensor, Tensor) else type(tensor).__name__
            raise FluidTypeError(f"saved_tensors_hooks: unpack should give a tensor that is {self._kind}, not {description}")
        return tensor


class _PackedNode(OpNode):
    """The gradient of an op whose saved values hooks have packed."""

    __slots__ = ()

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        return self._unpacked(super().apply, grads, wanted, keep)

    def apply_recorded(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        return self._unpacked(super().apply_recorded, grads, wanted, keep)

    def _unpacked(self, apply: Callable[..., Sequence[Any]], *args: Any) -> Sequence[Any]:
        packed = self._saved
        if packed is None:
            return apply(*args)  # it raises the error for freed values
        entries = []
        for value, version, number in packed:
            tensor = value.unpacked()
            if tensor._version is not version:  # changes matter only where it still lies in the memory that it lay in
                version, number = tensor._version, tensor._version[0]
            entries.append((tensor._array, version, number))
        self._saved = tuple(entries)
        try:
            return apply(*args)
        finally:
            if self._saved is not None:
                self._saved = packed
