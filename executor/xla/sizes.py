"""Numbers that decide shapes, but are known only at run time: the trips of a loop, the length of an array of tensors.

Shapes are part of a compiled program. So tracing assumes such a number, and the program also computes whether the assumption
held. If it did not, the run is invalid: the program is compiled for the number that the run met, and runs again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from jax import numpy as jnp

HELD = -1
"""Marks an assumption that held."""


class Sizes:
    """The assumptions of one compiled program.

    Attributes:
        assumed: key -> assumed number. A `room` allows any number up to it, an `exact` number only itself.
    """

    def __init__(self, assumed: Mapping[Hashable, int] | None = None) -> None:
        self.assumed: dict[Hashable, int] = dict(assumed or {})
        self._rooms: set[Hashable] = set()
        self._met: dict[Hashable, Any] = {}
        """Key -> `HELD`, or the number that the run met, as a traced value."""

    @property
    def may_be_wrong(self) -> bool:
        """Whether an exact number was assumed: tracing with it may fail because it is wrong."""
        return any(key not in self._rooms for key in self._met)

    def room(self, key: Hashable, first: int) -> int:
        """The assumed room; `first` at the first compilation."""
        self._rooms.add(key)
        return self.assumed.setdefault(key, first)

    def met(self, key: Hashable, number: Any) -> None:
        """Note a number that the run met; it should not exceed the room."""
        number = jnp.asarray(number, jnp.int32).reshape(())
        self._note(key, jnp.where(number <= self.assumed[key], HELD, number))

    def exact(self, key: Hashable, number: Any, first: int) -> int:
        """Assume an exact number (`first` at the first compilation); the run notes whether it met the number."""
        assumed = self.assumed.setdefault(key, first)
        number = jnp.asarray(number, jnp.int32).reshape(())
        self._note(key, jnp.where(number == assumed, HELD, number))
        return assumed

    def _note(self, key: Hashable, met: Any) -> None:
        former = self._met.get(key)
        self._met[key] = met if former is None else jnp.maximum(former, met)

    @contextlib.contextmanager
    def nested(self) -> Iterator[dict[Hashable, Any]]:
        """Collect the numbers met in a nested function of XLA; the function returns them, and `merge` notes them outside."""
        outside, self._met = self._met, {}
        try:
            yield self._met
        finally:
            self._met = outside

    def merge(self, keys: Iterable[Hashable], met: Iterable[Any]) -> None:
        """Note the numbers that a nested function returned, for one run or for several."""
        for key, number in zip(keys, met, strict=True):
            self._note(key, jnp.max(number) if number.size else jnp.int32(HELD))

    def result(self) -> tuple[list[Hashable], Any]:
        """The keys of the assumptions, and an int32 array with `HELD` or the met number for each; None without assumptions."""
        keys = list(self._met)
        return keys, jnp.stack([self._met[key] for key in keys]) if keys else None

    def corrected(self, keys: list[Hashable], met: Any) -> dict[Hashable, int] | None:
        """The assumptions for the next compilation, after a run met these numbers; None if all held."""
        wrong = {key: int(number) for key, number in zip(keys, met, strict=True) if int(number) != HELD}
        grown = {key: 1 << (number - 1).bit_length() if key in self._rooms else number for key, number in wrong.items()}
        return {**self.assumed, **grown} if wrong else None
