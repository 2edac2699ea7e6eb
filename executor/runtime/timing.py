"""Times of ops: while `current` is a watch, runs of programs, and ops on tensors, report to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from fluid.ir.program import Operator, Program
from fluid.values.place import Place


class Watch:
    """Receives the times of ops. Several threads may share one."""

    accepts_fused = False
    """Whether it accepts one event for several ops, as of native code; otherwise runs compute ops one by one."""

    def add(self, name: str, start: float, end: float, kind: str = "op", ops: Sequence[Operator] = (), line: str = "") -> None:
        """An op, or code for several ops, ran from `start` to `end`, in seconds of `time.perf_counter`.

        Args:
            name: type of the op.
            kind: see `Event`.
            ops: the ops of a program that were computed.
            line: the user's line, for ops on tensors.
        """
        raise NotImplementedError

    def add_inside(self, op: Operator, start: float, end: float) -> None:
        """An op ran in a block; the time of the op that owns the block includes this time."""

    def add_run(self, name: str, start: float, end: float) -> None:
        """An entire run of a program, including its ops."""


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


class Timer(Watch):
    """Counts by op type."""

    def __init__(self) -> None:
        self.counts: dict[str, Count] = {}
        self._lock = threading.Lock()

    def add(self, name: str, start: float, end: float, kind: str = "op", ops: Sequence[Operator] = (), line: str = "") -> None:
        with self._lock:
            self.counts.setdefault(name, Count()).add(end - start)


current: Watch | None = None
_followers: list[Callable[[Watch | None], None]] = []


def use(watch: Watch | None) -> None:
    """Let runs, and ops on tensors, report to this watch; to none with None."""
    global current
    current = watch
    for follow in _followers:
        follow(watch)


def followed_by(follow: Callable[[Watch | None], None]) -> None:
    """Call a function with the watch, or None, now and at each change."""
    _followers.append(follow)
    follow(current)


def timed(watch: Watch | None, op: Operator, place: Place) -> AbstractContextManager[Any]:
    """Time the ``with`` block as one call of the op; waits for the device before it stops."""
    return nullcontext() if watch is None else counted(watch, op.type, place, "op", [op])


@contextmanager
def counted(watch: Watch, name: str, place: Place, kind: str, ops: Sequence[Operator] = (), line: str = "") -> Iterator[None]:
    """Time the ``with`` block as one call of an op of this type; waits for the device before it stops."""
    start = time.perf_counter()
    yield
    place.wait()
    watch.add(name, start, time.perf_counter(), kind, ops, line)


@contextmanager
def timed_in_block(watch: Watch, op: Operator) -> Iterator[None]:
    """Time the ``with`` block as a call of an op in a block."""
    start = time.perf_counter()
    yield
    watch.add_inside(op, start, time.perf_counter())


@contextmanager
def around_run(watch: Watch | None, program: Program, place: Place, settings: AbstractContextManager[Any]) -> Iterator[None]:
    """A run of a program at a place, with the `settings` of its bound plan; times it if there is a watch."""
    start = time.perf_counter()
    with place.active(), settings:
        yield
    if watch is not None:
        watch.add_run(f"run of {len(program.global_block().ops)} ops", start, time.perf_counter())
