"""Numbers that only running tells, and that shapes depend on: the trips of a loop, the length of an array of tensors.

Shapes are part of a compiled program. So such a number is assumed when the program is traced, and what the program computes
says whether the assumption held. Where one did not, nothing of that run counts: the program is compiled for the number that
was met, and the run is made again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from jax import numpy as jnp

__all__ = ["HELD", "Sizes"]

HELD = -1
"""What stands for an assumption that held."""


class Sizes:
    """The assumptions of one compiled program.

    Attributes:
        assumed: what each is about -> the number. Of a `room`, any number up to it will do; of an `exact` number, only itself.
    """

    def __init__(self, assumed: Mapping[Hashable, int] | None = None) -> None:
        self.assumed: dict[Hashable, int] = dict(assumed or {})
        self._rooms: set[Hashable] = set()
        self._met: dict[Hashable, Any] = {}
        """What each is about -> `HELD`, or the number that was met, as a traced value."""

    @property
    def may_be_wrong(self) -> bool:
        """Whether a number was assumed that only itself will do for: what is traced with it may fail because of that."""
        return any(about not in self._rooms for about in self._met)

    def room(self, about: Hashable, first: int) -> int:
        """How many there is room for; `first` at first."""
        self._rooms.add(about)
        return self.assumed.setdefault(about, first)

    def met(self, about: Hashable, number: Any) -> None:
        """A number for which there should be room was met while running."""
        number = jnp.asarray(number, jnp.int32).reshape(())
        self._note(about, jnp.where(number <= self.assumed[about], HELD, number))

    def exact(self, about: Hashable, number: Any, first: int) -> int:
        """The number, as it is assumed."""
        assumed = self.assumed.setdefault(about, first)
        number = jnp.asarray(number, jnp.int32).reshape(())
        self._note(about, jnp.where(number == assumed, HELD, number))
        return assumed

    def _note(self, about: Hashable, met: Any) -> None:
        former = self._met.get(about)
        self._met[about] = met if former is None else jnp.maximum(former, met)

    @contextlib.contextmanager
    def inside(self) -> Iterator[dict[Hashable, Any]]:
        """What is met inside a function that XLA runs, for the function to return; `merge` takes it outside."""
        outside, self._met = self._met, {}
        try:
            yield self._met
        finally:
            self._met = outside

    def merge(self, about: Iterable[Hashable], met: Iterable[Any]) -> None:
        """Note what a function returned of `inside`, of one run or of several."""
        for each, number in zip(about, met, strict=True):
            self._note(each, jnp.max(number) if number.size else jnp.int32(HELD))

    def result(self) -> tuple[list[Hashable], Any]:
        """What the assumptions are about, and for each, `HELD` or the number that was met, as one int32 array; None for none."""
        about = list(self._met)
        return about, jnp.stack([self._met[each] for each in about]) if about else None

    def corrected(self, about: list[Hashable], met: Any) -> dict[Hashable, int] | None:
        """The assumptions to compile the program with, after a run met these numbers; None if all held."""
        wrong = {each: int(number) for each, number in zip(about, met, strict=True) if int(number) != HELD}
        grown = {each: 1 << (number - 1).bit_length() if each in self._rooms else number for each, number in wrong.items()}
        return {**self.assumed, **grown} if wrong else None
