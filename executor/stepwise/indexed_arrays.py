"""Arrays of tensors whose positions only running tells, such as a stack whose depth depends on values: their memory in a loop.

Native code finds entries by their positions (`native/array_entries.py`), in branches, too. It cannot continue where an entry is
missing, or lies beyond the memory. Then the loop runs again from its start: with more memory, or op by op, which reports the
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

__all__ = ["MOST_ENTRIES", "ArrayRoom", "EntryState", "IndexedArray", "TripStoppedError", "room_for"]

MOST_ENTRIES = 1 << 20
"""The most entries of an array of tensors: also entries that were never written take memory."""
_FEWEST, _GROWTH = 16, 4
"""The least room of an array, and the ratio of sizes: each size is compiled by itself."""
_MOST_BYTES = 1 << 30


class EntryState(IntEnum):
    """What a loop knows of an entry; from `PRESENT` on, it exists."""

    MISSING = 0
    CLEARED = 1
    PRESENT = 2
    UPDATED = 3


@dataclass(frozen=True)
class ArrayRoom:
    """The size of an array's memory.

    Attributes:
        count: the number of entries.
        spec: of each entry; None if unknown.
    """

    count: int
    spec: Spec | None

    @property
    def memory(self) -> Spec:
        """The spec of the memory: the entries, then the state of each."""
        return Spec((self.count * ((self.spec.nbytes if self.spec is not None else 0) + 1),), VarType.UINT8)


def room_for(count: int) -> int:
    """The least size of a memory with room for so many entries."""
    size = _FEWEST
    while size < count:
        size *= _GROWTH
    return size


class TripStoppedError(Exception):
    """A trip has stopped at an entry.

    Attributes:
        needed: the number of entries that there should be room for; None if the loop has to run op by op.
    """

    def __init__(self, position: int) -> None:
        super().__init__()
        self.needed = position + 1 if 0 <= position < MOST_ENTRIES else None


class IndexedArray:
    """The memory of an array in one execution of a loop.

    Args:
        former: the entries before the loop.
        room: its size.
    """

    def __init__(self, former: Sequence[Any], room: ArrayRoom) -> None:
        self._former, spec = former, room.spec
        self._memory = np.zeros(room.memory.size, np.uint8)
        size = room.memory.size - room.count
        self._states, self._entries = self._memory[size:], self._memory[:0]
        if spec is not None:
            self._entries = self._memory[:size].view(spec.dtype.array_dtype).reshape(room.count, *spec.shape)
        for position, entry in enumerate(former if spec is not None else ()):
            if entry is not None:
                self._entries[position], self._states[position] = entry, EntryState.PRESENT

    @staticmethod
    def fits(room: ArrayRoom) -> bool:
        """Whether the memory is not too large."""
        return room.memory.size <= _MOST_BYTES

    @property
    def address(self) -> int:
        return int(self._memory.ctypes.data)

    def values(self) -> list[Any]:
        """The entries after the loop; None for missing ones."""
        entries = list(self._former)
        for position in (self._states & 1).nonzero()[0].tolist():  # updated or cleared
            entries += [None] * (position + 1 - len(entries))
            entries[position] = self._entries[position] if self._states[position] == EntryState.UPDATED else None
        return entries
