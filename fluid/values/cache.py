"""What has been found out, kept as long as there is room."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["FEW", "MANY", "Cache"]

MANY, FEW = 4096, 64
"""How much is kept of what the whole process finds out, and of what a single op does, of which there may be thousands."""

K = TypeVar("K")
V = TypeVar("V")


class Cache(dict[K, V]):
    """A dict that forgets everything when it is full. What is in use stays as it is; it is only found no more.

    It is read as a dict is. Of threads that keep something under one key, the last one wins.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int = MANY) -> None:
        self._most = most

    def keep(self, key: K, value: V) -> V:
        """Hold a value under a key, and give it."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value
