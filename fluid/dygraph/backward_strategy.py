"""Settings of `backward`, as in Fluid 1.6."""

from __future__ import annotations

__all__ = ["BackwardStrategy"]


class BackwardStrategy:
    """Settings of a backward pass.

    Attributes:
        sort_sum_gradient: sum gradients in the order of the ops that they come from; here that is always so.
    """

    def __init__(self) -> None:
        self.sort_sum_gradient = False
