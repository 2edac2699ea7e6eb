"""Profile runs: calls and times by op type, or a timeline of ops."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from .errors import ExecutionError, ProgramError
from .executor.runtime import timing
from .executor.runtime.timeline import Timeline
from .executor.runtime.timing import Count, Timer
from .formats.writing import write_file
from .not_here import names_here
from .values.place import is_compiled_with_cuda

__all__ = ["Timeline", "cuda_profiler", "profiler", "reset_profiler", "start_profiler", "stop_profiler", "trace"]

__dir__ = names_here(__name__)

_STATES = ("CPU", "GPU", "All")
_KEYS: dict[str, Callable[[Count], float]] = {
    "calls": lambda count: count.calls,
    "total": lambda count: count.total,
    "max": lambda count: count.most,
    "min": lambda count: count.least,
    "ave": lambda count: count.total / count.calls,
}


def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Start timing runs of programs, and of ops on tensors with their gradients, from an op's start until its device is done.

    Args:
        state: ``"CPU"``, ``"GPU"`` or ``"All"``; each of them times ops on every device.
        tracer_option: accepted as in Fluid 1.8, without effect.

    Native code computes several ops at once, so programs are timed without it.

    Raises:
        ProgramError: another state.

    >>> fluid.profiler.start_profiler("CPU")
    >>> fluid.profiler.stop_profiler(profile_path="profile.txt")  # doctest: +ELLIPSIS
    op ...
    """
    if state not in _STATES:
        raise ProgramError(f"start_profiler: state should be one of {', '.join(_STATES)}, not {state!r}")
    if timing.current is None:
        timing.use(Timer())
    elif not isinstance(timing.current, Timer):
        raise ProgramError("start_profiler: a trace runs already; end it before")


def stop_profiler(sorted_key: str | None = None, profile_path: str = "/tmp/profile") -> None:
    """Stop timing; print the table of op types, and write it to a file.

    Args:
        sorted_key: ``"calls"``, ``"total"``, ``"max"``, ``"min"`` or ``"ave"``, largest first; if None or ``"default"``, rows
            are in the order of first calls.
        profile_path: the file.

    The time of a ``while``, ``conditional_block`` or ``recurrent`` op includes the ops of its block.

    >>> fluid.profiler.start_profiler("CPU")
    >>> fluid.profiler.stop_profiler(profile_path="profile.txt")  # doctest: +ELLIPSIS
    op ...
    """
    _check_key(sorted_key)
    timer = timing.current
    if not isinstance(timer, Timer):
        return
    timing.use(None)
    text = _table(timer.counts, sorted_key)
    print(text, end="")
    write_file(profile_path, [text.encode()])


def reset_profiler() -> None:
    """Discard the times measured so far.

    >>> fluid.profiler.start_profiler("CPU")
    >>> fluid.profiler.reset_profiler()
    >>> fluid.profiler.stop_profiler(profile_path="profile.txt")  # doctest: +ELLIPSIS
    op ...
    """
    if isinstance(timing.current, Timer):
        timing.use(Timer())


@contextlib.contextmanager
def profiler(
    state: str, sorted_key: str | None = None, profile_path: str = "/tmp/profile", tracer_option: str = "Default"
) -> Iterator[None]:
    """Profile the ``with``: `start_profiler`, then `stop_profiler`.

    Args:
        state, tracer_option: see `start_profiler`.
        sorted_key, profile_path: see `stop_profiler`.

    >>> y = layers.fc(fluid.data("x", [None, 2]), 1)
    >>> exe = fluid.Executor()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> with fluid.profiler.profiler("CPU", "total", "profile.txt"):  # doctest: +ELLIPSIS
    ...     _ = exe.run(feed={"x": np.ones([3, 2], "float32")}, fetch_list=[y])
    op                                          calls     total ms ...
    """
    _check_key(sorted_key)
    start_profiler(state)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


@contextlib.contextmanager
def trace(path: str | os.PathLike[str] | None = None) -> Iterator[Timeline]:
    """Record when each op runs inside the ``with``, in programs and on tensors, and gradients; native code and XLA as they are.

    Events of a loop's or branch's ops lie within the event of the op that owns the block; native code is one event that lists its
    ops. Each event says the user's line, and the thread that ran it.

    Args:
        path: a file for the events, which ``chrome://tracing`` and https://ui.perfetto.dev open; None for none.

    Yields:
        The `Timeline`, which has the events; `fluid.plots.timeline` draws it.

    Raises:
        ProgramError: a profiler, or another trace, runs already.
        OSError: the file cannot be written.

    >>> x = fluid.data("x", [2, 3])
    >>> y = layers.tanh(x)
    >>> with fluid.profiler.trace() as timeline:
    ...     _ = fluid.Executor().run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=[y])
    >>> [event.kind for event in timeline.events]
    ['op', 'run']
    >>> timeline.save("/tmp/run.json")  # doctest: +SKIP
    """
    if timing.current is not None:
        raise ProgramError("profiler.trace: a profiler or another trace runs already; end it before")
    timeline = Timeline()
    timing.use(timeline)
    try:
        yield timeline
    finally:
        timing.use(None)
        if path is not None:
            timeline.save(path)


@contextlib.contextmanager
def cuda_profiler(output_file: str, output_mode: str | None = None, config: Any = None) -> Iterator[None]:
    """Inside the ``with``, an external CUDA profiler records this process (``nsys profile -c cudaProfilerApi python ...``).

    Args:
        output_file, output_mode, config: accepted as in Fluid, without effect: the profiler has its own settings.

    Raises:
        ExecutionError: there is no CUDA.
    """
    if not is_compiled_with_cuda():
        raise ExecutionError("cuda_profiler: there is no CUDA device here; use fluid.profiler.profiler('CPU')")
    from cupyx.profiler import profile

    with profile():
        yield


def _check_key(sorted_key: str | None) -> None:
    if sorted_key not in (None, "default", *_KEYS):
        raise ProgramError(f"profiler: sorted_key should be None or one of {', '.join(_KEYS)}, not {sorted_key!r}")


def _table(counts: dict[str, Count], sorted_key: str | None) -> str:
    rows = list(counts.items())
    if sorted_key in _KEYS:
        rows.sort(key=lambda row: -_KEYS[sorted_key](row[1]))
    overall = sum(count.total for count in counts.values()) or 1.0
    line = "{:<40} {:>8} {:>12} {:>12} {:>12} {:>12} {:>8}\n".format
    text = line("op", "calls", "total ms", "min ms", "max ms", "ave ms", "ratio")
    for op_type, count in rows:
        times = (count.total, count.least, count.most, count.total / count.calls)
        text += line(op_type, count.calls, *(f"{1000 * item:.4f}" for item in times), f"{count.total / overall:.4f}")
    return text
