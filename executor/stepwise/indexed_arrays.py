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


_PRESENT, _UPDATED = int(EntryState.PRESENT), int(EntryState.UPDATED)
_MISSING, _EXISTING = bytes([EntryState.MISSING]), bytes([_PRESENT, _UPDATED])


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


class EntryList(list[Any]):
    """The entries of an array of tensors that are all there, and of one shape. Nobody changes it.

    Args:
        block: the entries, along its first axis.

    Attributes:
        block: see above.
    """

    def __init__(self, block: Any) -> None:
        super().__init__(block)
        self.block = block


def block_of(entries: Any) -> Any:
    """The block of memory that the entries of an array lie in, along its first axis; None if they do not lie in one."""
    return entries.block if type(entries) is EntryList else None


class IndexedArray:
    """The memory of an array in a loop.

    Args:
        room: its size.
        memory: `ArrayRoom.memory` as an array of bytes; new memory by default.
    """

    def __init__(self, room: ArrayRoom, memory: Any = None) -> None:
        self._memory, spec = np.empty(room.memory.size, np.uint8) if memory is None else memory, room.spec
        size = room.memory.size - room.count
        self._states, self._entries = self._memory[size:], self._memory[:0]
        if spec is not None:
            self._entries = self._memory[:size].view(spec.dtype.array_dtype).reshape(room.count, *spec.shape)
        self._former: Sequence[Any] = ()

    def load(self, former: Sequence[Any]) -> None:
        """Store the entries before the loop."""
        self._former, self._states[:], block = former, 0, block_of(former)
        if block is not None:
            self._entries[: len(block)], self._states[: len(block)] = block, _PRESENT
            return
        for position, entry in enumerate(former if len(self._entries) else ()):
            if entry is not None:
                self._entries[position], self._states[position] = entry, _PRESENT

    def can_load(self, former: Sequence[Any]) -> bool:
        """Whether these entries have the shape and type of the memory, and there is room for them."""
        entries, block = self._entries, block_of(former)
        if block is not None:
            return len(block) <= len(self._states) and (block.shape[1:], block.dtype) == (entries.shape[1:], entries.dtype)
        items = [entry for entry in former if entry is not None]
        if len(former) > len(self._states) or not all(type(item) is np.ndarray for item in items):
            return False
        return not items or {(item.shape, item.dtype) for item in items} == {(entries.shape[1:], entries.dtype)}

    @staticmethod
    def fits(room: ArrayRoom) -> bool:
        """Whether the memory is not too large."""
        return room.memory.size <= _MOST_BYTES

    @property
    def address(self) -> int:
        return int(self._memory.ctypes.data)

    def values(self) -> list[Any]:
        """The entries after the loop; None for missing ones."""
        states = self._states.tobytes().rstrip(_MISSING)
        if self._entries.ndim > 1 and _UPDATED in states and not states.strip(_EXISTING):
            return EntryList(self._entries[: len(states)].copy())  # the next run uses the memory again
        entries, positions = list(self._former), (self._states & 1).nonzero()[0].tolist()  # updated or cleared
        if positions:
            count = positions[-1] + 1
            entries += [None] * (count - len(entries))
            stored = self._entries[:count].copy()  # the next run uses the memory again
            is_updated = (self._states[:count] == _UPDATED).tolist()
            for position in positions:
                entries[position] = stored[position] if is_updated[position] else None
        return entries
