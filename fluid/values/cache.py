"""A bounded dict, cleared when full."""

from __future__ import annotations

from typing import TypeVar

PROCESS_LIMIT, OP_LIMIT = 4096, 64
"""The most entries of a cache that the process shares, and of a cache of one op; there may be thousands of such ops."""

K = TypeVar("K")
V = TypeVar("V")


class Cache(dict[K, V]):
    """A bounded dict, cleared when full. Values that are in use stay valid; only lookups no longer find them.

    Read it as a dict. If two threads store a value under one key, the last one wins.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int = PROCESS_LIMIT) -> None:
        self._most = most

    def keep(self, key: K, value: V) -> V:
        """Store a value under a key and return it."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value
