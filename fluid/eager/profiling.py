"""Times of ops on tensors, and of their gradients, while `fluid.profiler` runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..executor.binding.array_types import CPU
from ..executor.runtime import timing
from ..executor.runtime.timing import Watch
from ..values.place import CPUPlace, CUDAPlace, Place
from .dispatch import CompiledOp, UpdateOp
from .graph import Node, line_text, user_line
from .tensor import Tensor


def _place(device: str) -> Place:
    return CPUPlace() if device == CPU else CUDAPlace(int(device.partition(":")[2] or 0))


def timed_node(node: Node) -> AbstractContextManager[Any]:
    """Time the ``with`` as one call of the node's gradient op, if a profiler runs."""
    timer = timing.current
    return (
        nullcontext()
        if timer is None or node.is_leaf
        else timing.counted(timer, node.name, _place(node.device), "tensors", line=line_text(node._line))
    )


_run_op, _run_update = CompiledOp.call, UpdateOp.__call__


def _follow(timer: Watch | None) -> None:
    """Time calls of ops, or with None, restore the plain calls, which cost nothing extra."""
    if timer is None:
        CompiledOp.call, UpdateOp.__call__ = _run_op, _run_update  # type: ignore[method-assign]
        return

    def timed_op(self: CompiledOp, tensors: Sequence[Tensor]) -> Any:
        with timing.counted(timer, self.op.definition.type, _place(self.device), "tensors", line=line_text(user_line())):
            return _run_op(self, tensors)

    def timed_update(self: UpdateOp, *tensors: Tensor) -> None:
        with timing.counted(timer, self.definition.type, _place(tensors[0]._kind.device), "tensors", line=line_text(user_line())):
            _run_update(self, *tensors)

    CompiledOp.call, UpdateOp.__call__ = timed_op, timed_update  # type: ignore[method-assign]


timing.followed_by(_follow)
