"""Memory for what an op computes in between: each thread writes over the same again and again.

What large arrays give back goes to the system, which has to clear it before it lends it anew; that can take half as long as
the op. Results of ops outlive them and cannot share memory so, but what is only read inside one call can.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

__all__ = ["LARGE", "give_back", "take"]

LARGE = 1 << 17
"""From so many bytes on, an array is worth a place in spare memory; smaller ones are quicker made."""
_KEPT = 1 << 28
"""A thread keeps no more bytes than this."""


class _Spare(threading.local):
    memory: Any = None


_spare = _Spare()


def take(size: int) -> Any:
    """At least `size` bytes, with anything in them, that are the caller's until it gives them back."""
    memory, _spare.memory = _spare.memory, None  # an op that runs inside another takes memory of its own
    return memory if memory is not None and memory.size >= size else np.empty(size, np.uint8)


def give_back(memory: Any) -> None:
    """Let the thread's next call of `take` have it. Nothing is to look at it any more."""
    if memory.size <= _KEPT:
        _spare.memory = memory
