"""Functions with a backward of their own that several tests use."""

from __future__ import annotations

from typing import Any

from fluid.dygraph import PyLayer, Tensor


class Cube(PyLayer):
    """The cube of each element."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (x,) = ctx.saved_tensor()
        return dy * 3.0 * x * x
