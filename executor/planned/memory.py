"""Memory of plans: the arena, and the scratch of ops."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import prod
from sys import getrefcount
from typing import Any, Protocol
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from fluid.values.memory import ALIGNMENT, address_of, aligned_bytes, empty_array

from .placement import padded

__all__ = ["Borrower", "Memory", "Packed", "Results", "Scratch"]

_MOST_RESULTS = 4
_MOST_RESULT_BYTES = 4 << 20
"""Allocating a larger array takes no part of the time that it takes to fill."""
_UNUSED = 2
"""References to an array that nobody else uses: of its tuple, of the call that counts."""


class Borrower(Protocol):
    """A user of an arena."""

    def lose_arena(self) -> None:
        """Drop the arena, which is replaced."""


class Scratch:
    """Lends arrays to one op at a time; the next op gets the same memory."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._free: list[Any] = []
        self._lent: list[Any] = []

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> Any:
        element = self._xp.dtype(dtype)
        size = prod(shape) * element.itemsize
        fitting = min((raw for raw in self._free if raw.nbytes >= size), key=lambda raw: raw.nbytes, default=None)
        if fitting is None:
            fitting = self._xp.empty(padded(size), "uint8")
        else:
            self._free = [raw for raw in self._free if raw is not fitting]
        self._lent.append(fitting)
        return fitting[:size].view(element).reshape(shape)

    @property
    def memory(self) -> list[Any]:
        return sorted([*self._free, *self._lent], key=lambda raw: int(raw.nbytes))

    def reclaim(self) -> None:
        self._free += self._lent
        self._lent = []


@dataclass(eq=False)
class Packed:
    """An array that native code has made of arrays that never change, such as a weight packed in panels.

    It keeps its `sources` alive: `Memory.packed` finds it by their ids, and no new array may get these.
    """

    array: Any
    sources: Sequence[Any]


class Results:
    """Makes the arrays that callers get as results.

    The memory of arrays that callers have dropped is used again: it is in the processor's cache. A view of such an array refers
    to its memory, too, so the memory's references tell whether it is in use.
    """

    def __init__(self) -> None:
        self._used: deque[tuple[Any, int, int]] = deque(maxlen=_MOST_RESULTS)
        """Memory, the first byte that is aligned, and its address."""

    def array(self, shape: tuple[int, ...], dtype: Any, size: int) -> tuple[Any, int]:
        """An array of `size` bytes without values, in memory as of `aligned_bytes`, and its address."""
        for used in self._used:
            if used[0].nbytes == size + ALIGNMENT and getrefcount(used[0]) == _UNUSED:
                memory, first, address = used
                return np.ndarray(shape, dtype, memory, first), address
        array = empty_array(np, shape, dtype)
        memory, address = array.base, address_of(array)
        if size <= _MOST_RESULT_BYTES:
            self._used.append((memory, address - address_of(memory), address))
        return array, address


class Memory:
    """The memory shared by all plans of one scope: the arena, packed weights, and results.

    Plans run in turn, and no value in the arena outlives a run. A packed weight lives as long as a bound plan that reads it.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self.results = Results()
        self._arena: Any = None
        self._borrowers: WeakSet[Borrower] = WeakSet()
        self.packed: WeakValueDictionary[Hashable, Packed] = WeakValueDictionary()
        """Kernels and the ids of the arrays that they read -> the packed array."""

    def lend(self, size: int, borrower: Borrower) -> Any:
        """An arena of at least `size` bytes; a smaller one is replaced, and its borrowers lose it."""
        if self._arena is None or self._arena.nbytes < size:
            for former in self._borrowers:
                former.lose_arena()
            self._borrowers.clear()
            self._arena = None  # free it before allocating the new one
            self._arena = aligned_bytes(self._xp.empty, size)
        self._borrowers.add(borrower)
        return self._arena
