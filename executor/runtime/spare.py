"""Spare memory of each thread, reused for the intermediate results of its ops.

The memory of large arrays returns to the system, which clears it before it hands it out again; that can take half as long as
the op. Results outlive their op and cannot share memory in this way, but arrays that are only read inside one call can.
"""

from __future__ import annotations

import threading
from math import prod
from typing import Any

import numpy as np

LARGE = 1 << 17
"""Arrays of this many bytes or more go into spare memory; smaller ones are faster to allocate."""
_RETAINED_BYTES = 1 << 28
"""The most bytes that a thread retains."""


class _Spare(threading.local):
    memory: Any = None


_spare = _Spare()


def take(size: int) -> Any:
    """Borrow at least `size` uninitialized bytes, until `give_back`."""
    memory, _spare.memory = _spare.memory, None  # a nested op gets separate memory
    return memory if memory is not None and memory.size >= size else np.empty(size, np.uint8)


def give_back(memory: Any) -> None:
    """Return memory for the thread's next `take`; the caller must not use it any more."""
    if memory.size <= _RETAINED_BYTES:
        _spare.memory = memory


class Loan:
    """Arrays for the intermediate results of one call; large ones share `size` bytes of spare memory.

    Attributes:
        used: total bytes of the large arrays; arrays that do not fit are allocated.
    """

    def __init__(self, size: int) -> None:
        self._memory, self.used = take(size), 0

    def __call__(self, shape: Any, dtype: Any) -> Any:
        element = np.dtype(dtype)
        size = element.itemsize * (shape if isinstance(shape, int) else prod(shape))
        if size < LARGE:
            return np.empty(shape, element)
        start = self.used
        self.used += size + -size % 64
        return (
            self._memory[start : start + size].view(element).reshape(shape)
            if self.used <= self._memory.size
            else np.empty(shape, element)
        )

    def give_back(self) -> None:
        """End the loan; its arrays must not be used any more."""
        give_back(self._memory)
