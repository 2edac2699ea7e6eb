"""Times of ops: while `current` is a timer, runs add to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from fluid.ir.program import Operator
from fluid.values.place import Place

__all__ = ["Count", "Timer", "counted", "followed_by", "timed", "use"]


@dataclass
class Count:
    """The number of calls of one op type, and their times in seconds."""

    calls: int = 0
    total: float = 0.0
    least: float = float("inf")
    most: float = 0.0

    def add(self, seconds: float) -> None:
        self.calls += 1
        self.total += seconds
        self.least = min(self.least, seconds)
        self.most = max(self.most, seconds)


class Timer:
    """Counts by op type. Several threads may share a timer."""

    def __init__(self) -> None:
        self.counts: dict[str, Count] = {}
        self._lock = threading.Lock()

    def add(self, op_type: str, seconds: float) -> None:
        with self._lock:
            self.counts.setdefault(op_type, Count()).add(seconds)


current: Timer | None = None
_followers: list[Callable[[Timer | None], None]] = []


def use(timer: Timer | None) -> None:
    """Let runs, and ops on tensors, add to this timer; to none with None."""
    global current
    current = timer
    for follow in _followers:
        follow(timer)


def followed_by(follow: Callable[[Timer | None], None]) -> None:
    """Call a function with the timer, or None, now and at each change."""
    _followers.append(follow)
    follow(current)


def timed(timer: Timer | None, op: Operator, place: Place) -> AbstractContextManager[Any]:
    """Times the ``with`` as one call of the op, and waits for the device before it stops."""
    return counted(timer, op.type, place) if timer is not None else nullcontext()


@contextmanager
def counted(timer: Timer, op_type: str, place: Place) -> Iterator[None]:
    """Times the ``with`` as one call of an op of this type, and waits for the device before it stops."""
    start = time.perf_counter()
    yield
    place.wait()
    timer.add(op_type, time.perf_counter() - start)
