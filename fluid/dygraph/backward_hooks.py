"""Hooks of layers that see the gradients of their inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..eager.graph import Hooks, RecordedNode, keep_gradient, leaf_edge
from ..eager.nested import refilled, tensors_in
from ..eager.tensor import Tensor, make
from ..errors import BackwardError

__all__ = ["called_between"]

Gradients = tuple[Any, ...]


class _Boundary(RecordedNode):
    """Passes gradients on, through its hooks, where they enter or leave a layer."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self._saved)

    def apply(self, grads: list[Any], wanted: Sequence[bool] | None, keep: bool) -> Sequence[Any]:
        return grads

    apply_recorded = apply


def _through(value: Any, name: str) -> tuple[Any, _Boundary, list[int]]:
    """Put the tensors of a value that require a gradient behind a boundary; returns the value, the boundary, and the positions of
    these tensors."""
    items = tensors_in(value)
    numbers = [number for number, item in enumerate(items) if isinstance(item, Tensor) and not item._stop]
    inner = [items[number] for number in numbers]
    boundary = _Boundary([tensor._kind for tensor in inner], [tensor._edge or leaf_edge(tensor) for tensor in inner], name)
    for place, number in enumerate(numbers):
        tensor = items[number]
        items[number] = make(tensor._array, tensor._kind, (boundary, place), tensor._version)
        keep_gradient(items[number])
    return refilled(value, iter(items)), boundary, numbers


def called_between(layer: Any, hooks: Hooks, call: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Call ``call(*inputs)``; its backward calls ``hook(layer, gradients of inputs, gradients of outputs)``."""
    name, count = layer.full_name(), len(tensors_in(inputs))
    behind, entry, places = _through(inputs, f"{name}_inputs")
    versions = [tensor._version[0] for tensor in tensors_in(behind) if isinstance(tensor, Tensor)]
    result = call(*behind)
    if versions != [tensor._version[0] for tensor in tensors_in(behind) if isinstance(tensor, Tensor)]:
        raise BackwardError(
            f"{name} modifies an input in place, which a layer with backward hooks may not: let it modify a clone()"
        )
    outputs, end, _ = _through(result, f"{name}_outputs")
    received: Gradients = ()

    def call_hooks(grads: Gradients) -> Any:
        spread: list[Any] = [None] * count
        for place, grad in zip(places, grads, strict=True):
            spread[place] = grad
        for hook in list(hooks.values()):
            replaced = hook(layer, tuple(spread), received)
            if replaced is not None:
                spread = list(replaced) if isinstance(replaced, (tuple, list)) else [replaced]
        return tuple(spread[place] for place in places) if len(spread) == count else tuple(spread)

    def receive_outputs(grads: Gradients) -> None:
        nonlocal received
        received = grads
        if not places:
            call_hooks(())

    if places:
        entry.register_prehook(call_hooks)
    end.register_prehook(receive_outputs)
    return outputs
