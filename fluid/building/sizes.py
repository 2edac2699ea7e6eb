"""Sizes of tensors that are known when a program runs."""

from __future__ import annotations

from typing import Any


class TracedSize:
    """Base class of sizes that a traced program computes; layers that take shapes ask for the axis where one comes from."""

    __slots__ = ()

    def is_size_of(self, x: Any, axis: int) -> bool:
        """Whether it is the size of `x` at this axis."""
        raise NotImplementedError
