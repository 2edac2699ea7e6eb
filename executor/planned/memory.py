"""Memory of plans: the arena, and the scratch of ops."""

from __future__ import annotations

from math import prod
from typing import Any, Protocol
from weakref import WeakSet

from fluid.values.memory import aligned_bytes

from .placement import padded

__all__ = ["Borrower", "Memory", "Scratch"]


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


class Memory:
    """The arena shared by all plans of one scope: they run in turn, and no value in it outlives a run."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._arena: Any = None
        self._borrowers: WeakSet[Borrower] = WeakSet()

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
