"""Choices of a generator: drawn by a seed, or replayed, to make a failing program smaller."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["BATCHES", "EXTENTS", "IMAGE_SIZES", "Choices", "shrink"]

T = TypeVar("T")

EXTENTS = (
    *(1, 2, 3, 4, 5, 7, 8, 10, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 100, 127, 128, 129, 200, 240, 255, 256, 257, 300),
    *(500, 511, 512, 513, 768, 1000, 1023, 1024, 1025, 2000, 2047, 2048, 2049, 3000, 4095, 4096, 5000, 8192),
)
"""Widths and batches from practice, and those around powers of two."""
BATCHES = tuple(extent for extent in EXTENTS if extent != 5000)
IMAGE_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 20, 24, 27, 28, 32, 33, 40, 56, 63, 64, 65, 100, 112, 128, 224)


class Choices:
    """Makes choices and records them; of each, 0 is the simplest.

    Attributes:
        drawn: all choices so far, as numbers.
        spans: where choices that belong together begin and end.
    """

    def __init__(self, seed: int | None = None, replayed: Sequence[int] = ()) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._replayed = replayed
        self.drawn: list[int] = []
        self.spans: list[tuple[int, int]] = []

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1; 0 where the replayed choices are over."""
        place = len(self.drawn)
        if self._random is not None:
            number = self._random.randrange(count)
        else:
            number = min(self._replayed[place], count - 1) if place < len(self._replayed) else 0
        self.drawn.append(number)
        return number

    def pick(self, options: Sequence[T]) -> T:
        """Choose an option; the first one is the simplest."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """Whether something happens that happens so often."""
        return self.below(100) >= 100 - percent

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def extent(self, most: int, options: Sequence[int] = EXTENTS, least: int = 1) -> int:
        """A size from practice, or now and then any other."""
        most = max(most, least)
        if self.chance(15):
            return self.between(least, most)
        fitting = [option for option in options if least <= option <= most]
        return self.pick(fitting) if fitting else least

    @contextmanager
    def span(self) -> Iterator[None]:
        """Choices inside the ``with`` belong together."""
        start = len(self.drawn)
        yield
        self.spans.append((start, len(self.drawn)))

    def repeat(self, most: int, percent: int) -> Iterator[int]:
        """Numbers of trips; each further trip happens with a fixed probability."""
        for number in range(most):
            start = len(self.drawn)
            if not self.chance(percent):
                return
            yield number
            self.spans.append((start, len(self.drawn)))


def shrink(choices: Choices, attempt: Callable[[Sequence[int]], Choices | None], seconds: float) -> Choices:
    """Find simpler choices that still fail, for so many seconds.

    Args:
        attempt: replays choices; returns those that were made if what they make still fails.
    """
    until = time.monotonic() + seconds
    seen: set[tuple[int, ...]] = {tuple(choices.drawn)}

    def take(replayed: Sequence[int]) -> bool:
        nonlocal choices
        key = tuple(replayed)
        if key in seen or time.monotonic() > until:
            return False
        seen.add(key)
        simpler = attempt(replayed)
        if simpler is None or _size(simpler.drawn) >= _size(choices.drawn):
            return False
        choices = simpler
        return True

    is_smaller = True
    while is_smaller and time.monotonic() < until:
        is_smaller = False
        for change in (_without_spans, _with_zeros, _lower):
            again = True
            while again:
                again = any(take(replayed) for replayed in change(choices))
                is_smaller |= again
    return choices


def _size(drawn: Sequence[int]) -> tuple[int, int]:
    return len(drawn), sum(drawn)


def _without_spans(choices: Choices) -> Iterator[list[int]]:
    for start, end in sorted(choices.spans, key=lambda span: span[0] - span[1]):
        yield choices.drawn[:start] + choices.drawn[end:]


def _with_zeros(choices: Choices) -> Iterator[list[int]]:
    """In place of several neighbours; those at the end first, which are mostly about the rest of a program."""
    count = len(choices.drawn)
    while count:
        for end in range(len(choices.drawn), 0, -count):
            start = max(end - count, 0)
            if any(choices.drawn[start:end]):
                yield choices.drawn[:start] + [0] * (end - start) + choices.drawn[end:]
        count = count // 2 if count > 3 else 0


def _lower(choices: Choices) -> Iterator[list[int]]:
    for place, number in enumerate(choices.drawn):
        for lower in dict.fromkeys((0, number // 2, number - number // 4, number - 1)):
            if 0 <= lower < number:
                yield [*choices.drawn[:place], lower, *choices.drawn[place + 1 :]]
