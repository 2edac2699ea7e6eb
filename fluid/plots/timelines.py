"""Timelines of runs, as bars."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from ..errors import FluidTypeError, ProgramError
from ..executor.runtime.timeline import Event, Timeline
from .axes import axes_or_new

__all__ = ["timeline"]

_COLOURS = ("C0", "C1", "C2", "C3", "C4", "C5", "C6", "C8", "C9")
"""Of the names that took the longest; the others share a grey, as which C7 would pass."""
_MOST_BARS = 20_000


def timeline(trace: Timeline, axes: Any = None) -> Any:
    """Draw the events of a `fluid.profiler.trace` as bars: rows for each thread, one for each level of nesting.

    The names that took the longest have colours of their own, and stand in the legend with their times. Of a long trace the
    longest 20,000 events are drawn.

    Args:
        trace: the timeline that `fluid.profiler.trace` yielded.
        axes: axes of matplotlib to draw on, by default the axes of a new figure.

    Returns:
        The axes.

    Raises:
        FluidTypeError: `trace` is none.
        ProgramError: nothing ran.

    ::

        with fluid.profiler.trace() as trace:
            executor.run(feed=feed)
        fluid.plots.timeline(trace)
    """
    if not isinstance(trace, Timeline):
        raise FluidTypeError(f"plots.timeline draws what fluid.profiler.trace() yields, not {trace!r}")
    if not trace.events:
        raise ProgramError("plots.timeline: nothing ran inside of the trace")
    is_new, axes = axes is None, axes_or_new(axes)
    events = sorted(trace.events, key=lambda event: event.end - event.start)[-_MOST_BARS:]
    events.sort(key=lambda event: (event.start, -event.end))
    first = events[0].start
    totals: dict[str, float] = {}
    for event, own_time in zip(events, _own_times(events), strict=True):
        totals[event.name] = totals.get(event.name, 0.0) + (own_time if event.kind != "run" else 0.0)
    named = [name for name in sorted(totals, key=lambda name: -totals[name])[: len(_COLOURS)] if totals[name]]
    places = _places(events)
    depths: dict[int, int] = {}
    for thread, depth in places:
        depths[thread] = max(depths.get(thread, 0), depth + 1)
    bases = dict(zip(depths, accumulate(depths.values(), initial=0), strict=False))
    bars: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ("run", *named, "others")}
    for event, (thread, depth) in zip(events, places, strict=True):
        kind = "run" if event.kind == "run" else event.name if event.name in named else "others"
        bars[kind].append((1e3 * (event.start - first), 1e3 * (event.end - event.start), bases[thread] + depth))
    colours = dict(zip(named, _COLOURS, strict=False)) | {"run": "0.88", "others": "0.6"}
    other_time = sum(total for name, total in totals.items() if name not in named)
    for name, boxes in bars.items():
        if boxes:
            starts, widths, rows = zip(*boxes, strict=True)
            time = other_time if name == "others" else totals.get(name, 0.0)
            label = name if name == "run" else f"{name}, {1e3 * time:.3g} ms"
            axes.barh(rows, widths, 0.9, starts, align="edge", color=colours[name], label=label)
    axes.set_yticks([bases[thread] + depths[thread] / 2 for thread in depths], [trace.threads[thread] for thread in depths])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(sum(depths.values()), 0)
    if is_new:
        axes.figure.set_size_inches(9, max(2.6, 0.8 + 0.45 * sum(depths.values())))
    axes.set_xlabel("ms")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize="small", borderaxespad=0)
    return axes


def _places(events: list[Event]) -> list[tuple[int, int]]:
    """For each event, in order of starts: its thread, and the number of events of this thread around it."""
    around: dict[int, list[float]] = {}
    places = []
    for event in events:
        ends = around.setdefault(event.thread, [])
        while ends and ends[-1] <= event.start:
            ends.pop()
        places.append((event.thread, len(ends)))
        ends.append(event.end)
    return places


def _own_times(events: list[Event]) -> list[float]:
    """For each event, in order of starts: its time without the time of nested events."""
    times = [event.end - event.start for event in events]
    around: dict[int, list[int]] = {}
    for number, event in enumerate(events):
        outer = around.setdefault(event.thread, [])
        while outer and events[outer[-1]].end <= event.start:
            outer.pop()
        if outer:
            times[outer[-1]] -= event.end - event.start
        outer.append(number)
    return times
