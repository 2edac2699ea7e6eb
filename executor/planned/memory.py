"""Memory of plans: the arena, the scratch of ops, and arrays."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from fluid.errors import ExecutionError

from .placement import ALIGNMENT, padded

__all__ = ["Memory", "Scratch", "aligned_bytes", "contiguous_copy", "empty_array"]


def aligned_bytes(make: Callable[..., Any], size: int) -> Any:
    """As many bytes, which begin where a line of the processor's cache does: vectors that lie across two lines load slower.

    Args:
        make: what allocates them, such as ``numpy.empty`` or ``numpy.zeros``.
        size: how many.

    Raises:
        ExecutionError: there is no room for them.
    """
    try:
        raw = make(size + ALIGNMENT, "uint8")
    except (ValueError, MemoryError) as error:  # numpy raises ValueError for impossible sizes; cupy's error is a MemoryError
        raise ExecutionError(f"the program's values do not fit into memory: there is no room for {size} bytes: {error}") from None
    first = -raw.ctypes.data % ALIGNMENT if isinstance(raw, np.ndarray) else 0  # devices align by themselves
    return raw[first : first + size]


def empty_array(xp: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array without values, in memory as of `aligned_bytes`."""
    element = xp.dtype(dtype)
    return aligned_bytes(xp.empty, prod(shape) * element.itemsize).view(element).reshape(shape)


def contiguous_copy(xp: Any, array: Any) -> Any:
    """A copy of an array in memory as of `empty_array`."""
    copied = empty_array(xp, array.shape, array.dtype)
    copied[...] = array
    return copied


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
