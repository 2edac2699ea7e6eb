"""Compares the time that the processor takes for ops natively and on numpy, by one thread each."""

from __future__ import annotations

import collections
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import fluid

from .arrays import Fed
from .cases import Case, Unfit
from .choices import Choices
from .ops import make_op
from .running import first_values, new_scope, settings

Run = Callable[[int], float]
"""Runs a program so many times; returns what the processor took, in seconds."""

__all__ = ["Comparison", "compare_times", "compared"]

SLOW = 1.5
"""Times that of numpy; what takes longer natively is listed."""
_ROUNDS, _BLOCK = 7, 0.01
"""How often each is measured, and how many seconds a measurement has at least."""


@dataclass(frozen=True)
class Comparison:
    """Seconds of an op natively and on numpy."""

    op_type: str
    part: str
    what: str
    native: float
    numpy: float

    @property
    def ratio(self) -> float:
        return self.native / self.numpy

    def __str__(self) -> str:
        times = f"{self.native * 1e3:8.3f} ms, numpy {self.numpy * 1e3:8.3f} ms"
        return f"{self.ratio:7.2f}  {times}  {self.part:13} {self.what}"


def compare_times(count: int, first: int = 0, report: Callable[[str], None] = print) -> list[Comparison]:
    """Time the ops of some seeds, and list the ops that native code computes more slowly than numpy.

    Returns:
        All comparisons.
    """
    comparisons = [comparison for seed in range(first, first + count) for comparison in compared(seed)]
    slow: dict[str, list[Comparison]] = collections.defaultdict(list)
    for comparison in comparisons:
        if comparison.ratio > SLOW:
            slow[comparison.op_type].append(comparison)
    for op_type, slow_ones in sorted(slow.items(), key=lambda item: -max(each.ratio for each in item[1])):
        report(op_type)
        for comparison in sorted(slow_ones, key=lambda each: -each.ratio):
            report(f"  {comparison}")
    total, ops = sum(map(len, slow.values())), len({comparison.op_type for comparison in comparisons})
    if comparisons:
        mean = statistics.geometric_mean(comparison.ratio for comparison in comparisons)
        report(
            f"seeds {first} to {first + count - 1}: {total} of {len(comparisons)} comparisons of {ops} ops take over {SLOW} times"
        )
        report(f"as long natively as on numpy ({len(slow)} ops); the geometric mean of all ratios is {mean:.2f}")
    return comparisons


def compared(seed: int) -> Iterator[Comparison]:
    """The op of a seed alone, and with its gradient."""
    try:
        case = make_op(Choices(seed))
        first = first_values(case)
    except Unfit:
        return
    gradients = [name for name in case.fetches if "@GRAD" in name]
    outputs = [name for name in case.fetches if "@GRAD" not in name]
    for part, names in (("alone", outputs), ("with gradient", gradients)):
        if names:
            try:
                native, numpy = (_runner(case, names, first, native) for native in (True, False))
            except Exception as error:
                print(f"seed {seed}, {case.title}: {type(error).__name__}: {str(error)[:200]}")
                continue
            yield Comparison(case.title, part, f"{_described(case)}, seed {seed}", *_race(native, numpy))


def _runner(case: Case, names: list[str], first: dict[str, Any], native: bool) -> Run:
    executor, scope = fluid.Executor(), new_scope(first)
    feed = {
        name: (fed.array(), [list(level) for level in fed.lod]) if fed.lod else fed.array() for name, fed in case.feeds[0].items()
    }

    def run(count: int) -> float:
        """Seconds of the processor for so many runs."""
        with settings(native, case.is_single):
            start = time.process_time()
            for _ in range(count):
                executor.run(case.main, feed, names, scope=scope)
            return time.process_time() - start

    run(1)
    return run


def _race(*runs: Run) -> list[float]:
    """Median seconds of the processor of each, in turns."""
    times: list[list[float]] = [[] for _ in runs]
    counts = [max(1, round(_BLOCK / max(run(1), 1e-6))) for run in runs]
    for _ in range(_ROUNDS):
        for seconds, run, count in zip(times, runs, counts, strict=True):
            seconds.append(run(count) / count)
    return [statistics.median(seconds) for seconds in times]


def _described(case: Case) -> str:
    op = next(op for op in case.main.global_block().ops if op.type == case.title)
    feeds: dict[str, Fed] = {**case.state, **case.feeds[0]}
    shapes = []
    for slot, names in op.inputs.items():
        arrays = [feeds[name].array() for name in names if name in feeds]
        shapes.append(f"{slot} {' '.join(f'{array.dtype.name}{list(array.shape)}' for array in arrays)}")
    attrs = {name: value for name, value in op.attrs.items() if not name.startswith("op_")}
    return f"{', '.join(shapes)} {attrs}"
