"""Times of ops on tensors, and of their gradients, while `fluid.profiler` runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..executor import timing
from ..executor.binding.array_types import CPU
from ..executor.timing import Timer
from ..values.place import CPUPlace, CUDAPlace, Place
from .dispatch import TensorOp, UpdateOp
from .graph import Node
from .mode import state

__all__ = ["timed_node"]


def _place(device: str) -> Place:
    return CPUPlace() if device == CPU else CUDAPlace(int(device.partition(":")[2] or 0))


def timed_node(node: Node) -> AbstractContextManager[Any]:
    """Times the ``with`` as one call of the node's gradient op, if a profiler runs."""
    timer = timing.current
    return nullcontext() if timer is None or node.is_leaf else timing.counted(timer, node.name, _place(node.device))


_calls: dict[type[Any], Callable[..., Any]] = {op: op.__call__ for op in (TensorOp, UpdateOp)}


def _timed(call: Callable[..., Any], timer: Timer) -> Callable[..., Any]:
    def timed_call(self: Any, *tensors: Any) -> Any:
        if state.interceptor is not None:  # which calls it again
            return call(self, *tensors)
        device = tensors[0]._kind.device if tensors else CPU
        with timing.counted(timer, self.definition.type, _place(device)):
            return call(self, *tensors)

    return timed_call


def _follow(timer: Timer | None) -> None:
    """Let calls of ops be timed; without a timer, they are as they were, and cost nothing more."""
    for op, call in _calls.items():
        op.__call__ = call if timer is None else _timed(call, timer)


timing.followed_by(_follow)
