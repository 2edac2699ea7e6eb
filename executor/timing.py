"""Times of ops: while `current` is a timer, runs add to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from fluid.ir.program import Operator
from fluid.values.place import Place

__all__ = ["Count", "Timer", "timed"]


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


def timed(timer: Timer | None, op: Operator, place: Place) -> AbstractContextManager[Any]:
    """Times the ``with`` as one call of the op, and waits for the device before it stops."""
    return _counted(timer, op.type, place) if timer is not None else nullcontext()


@contextmanager
def _counted(timer: Timer, op_type: str, place: Place) -> Iterator[None]:
    start = time.perf_counter()
    yield
    place.wait()
    timer.add(op_type, time.perf_counter() - start)
