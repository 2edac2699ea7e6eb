"""Memory of plans: the arena, and the scratch of ops."""

from __future__ import annotations

from math import prod
from typing import Any

from fluid.values.memory import aligned_bytes

from .placement import padded

__all__ = ["Memory", "Scratch"]


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
    """The arena that all plans of one scope share: they take turns, and no value in it outlives a run."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._arena: Any = None

    @property
    def size(self) -> int:
        return 0 if self._arena is None else int(self._arena.nbytes)

    def lend(self, size: int) -> Any:
        """An arena of at least `size` bytes; if the present one is smaller, a new one replaces it."""
        if self._arena is None or self.size < size:
            self._arena = None
            self._arena = aligned_bytes(self._xp.empty, size)
        return self._arena
