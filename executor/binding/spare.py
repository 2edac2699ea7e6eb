"""Spare memory of each thread, reused for the intermediate results of its ops.

The memory of large arrays returns to the system, which clears it before it hands it out again; that can take half as long as
the op. Results outlive their op and cannot share memory in this way, but arrays that are only read inside one call can.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

__all__ = ["LARGE", "give_back", "take"]

LARGE = 1 << 17
"""Arrays of this many bytes or more go into spare memory; smaller ones are faster to allocate."""
_KEPT = 1 << 28
"""The most bytes that a thread keeps."""


class _Spare(threading.local):
    memory: Any = None


_spare = _Spare()


def take(size: int) -> Any:
    """At least `size` bytes, uninitialized, that belong to the caller until it gives them back."""
    memory, _spare.memory = _spare.memory, None  # an op inside another one gets memory of its own
    return memory if memory is not None and memory.size >= size else np.empty(size, np.uint8)


def give_back(memory: Any) -> None:
    """Keep memory for the thread's next `take`; the caller must not use it any more."""
    if memory.size <= _KEPT:
        _spare.memory = memory
