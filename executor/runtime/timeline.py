"""A watch that records timed events, and writes them in Chrome's trace format."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fluid.formats.writing import write_file
from fluid.ir.program import Operator

from .timing import Watch


@dataclass(frozen=True)
class Event:
    """A timed event of a thread, from `start` to `end`, in seconds of `time.perf_counter`.

    Attributes:
        kind: ``"op"`` for an op of a program; ``"native"`` for native code of one or several ops; ``"xla"`` for a program
            compiled by XLA; ``"tensors"`` for an op on tensors; ``"run"`` for an entire run.
        ops: the ops of a program that were computed.
        line: the user's line of an op on tensors; ops of programs hold their lines.
    """

    name: str
    kind: str
    start: float
    end: float
    thread: int
    ops: Sequence[Operator] = field(default=(), repr=False)
    line: str = ""

    @property
    def where(self) -> str:
        """The user's line that made the op, or the last of the ops; empty if unknown."""
        frame = self.ops[-1].user_frame if self.ops else None
        return self.line if frame is None else f"{frame[0]}:{frame[1]} in {frame[2]}"


class Timeline(Watch):
    """Records events in the order of their ends. Native code of several ops is one event.

    Attributes:
        events: the recorded events.
        threads: thread -> its name.
    """

    accepts_fused = True

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.threads: dict[int, str] = {}

    def add(self, name: str, start: float, end: float, kind: str = "op", ops: Sequence[Operator] = (), line: str = "") -> None:
        """Record an event.

        Args:
            name: the name of the event.
            start, end: when it began and ended.
            kind: the kind of the event.
            ops: the computed ops.
            line: the user's line.
        """
        self._add(Event(name, kind, start, end, self._thread(), ops, line))

    def add_inside(self, op: Operator, start: float, end: float) -> None:
        """Record an op of a block.

        Args:
            op: the op.
            start, end: when it began and ended.
        """
        self.add(op.type, start, end, ops=[op])

    def add_run(self, name: str, start: float, end: float) -> None:
        """Record a run.

        Args:
            name: the name of the run.
            start, end: when it began and ended.
        """
        self._add(Event(name, "run", start, end, self._thread()))

    def _add(self, event: Event) -> None:
        self.events.append(event)  # atomic, so threads need no lock

    def _thread(self) -> int:
        thread = threading.get_ident()
        if thread not in self.threads:
            self.threads[thread] = threading.current_thread().name
        return thread

    def to_chrome(self) -> dict[str, Any]:
        """Convert to Chrome's trace format: complete events, in microseconds from the start of the first one."""
        first = min((event.start for event in self.events), default=0.0)
        numbers = {thread: number for number, thread in enumerate(self.threads)}
        process = os.getpid()
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "thread_name", "pid": process, "tid": numbers[thread], "args": {"name": name}}
            for thread, name in self.threads.items()
        ]
        for event in sorted(self.events, key=lambda event: (event.start, -event.end)):
            args: dict[str, Any] = {"line": event.where} if event.where else {}
            if event.ops:
                args["ops"] = [str(op) for op in event.ops]
            times = {"ts": round(1e6 * (event.start - first), 3), "dur": round(1e6 * (event.end - event.start), 3)}
            thread = {"pid": process, "tid": numbers[event.thread]}
            events.append({"ph": "X", "name": event.name, "cat": event.kind, **times, **thread, "args": args})
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the events to a file that ``chrome://tracing`` and https://ui.perfetto.dev open.

        Raises:
            OSError: the file cannot be written.
        """
        write_file(os.fspath(path), [json.dumps(self.to_chrome()).encode()])
