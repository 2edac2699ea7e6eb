"""Measure a run of a program: the time of each op, and statistics of the values that it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..executor import CPUPlace, Executor, Scope
from ..executor.runtime.timing import Watch
from ..ir.checked import checked
from ..ir.program import Operator, Program
from ..values.bfloat16 import computable
from .graph import ViewGraph

_TIMED = 3
"""The number of timed runs; the least time counts."""

Place = tuple[int, int]
"""The place of an op: the number of its block, and its number there."""


@dataclass(frozen=True)
class Stats:
    """A value, in numbers.

    Attributes:
        least, mean, most: of the elements that are finite; None if there are none, or if these are no numbers.
        nans, infinities: counts of elements.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    least: float | None = None
    mean: float | None = None
    most: float | None = None
    nans: int = 0
    infinities: int = 0


@dataclass
class Measured:
    """Measurements of a run.

    Attributes:
        seconds: place of an op of block 0 -> the time of its kernel on numpy, with its blocks, if it owns some.
        values: (place of an op, name) -> statistics of its output; in a loop, of the last iteration.
    """

    seconds: dict[Place, float] = field(default_factory=dict)
    values: dict[tuple[Place, str], Stats] = field(default_factory=dict)


@checked
def measure(program: Program, feed: Mapping[str, Any], fetches: Sequence[str], scope: Scope) -> Measured:
    """Run a program op by op on the CPU: once for its values, and some more times for the times of its ops.

    Args:
        program: the program to run, without ops that neither the fetches nor persistable variables need.
        feed: array by name of a variable.
        fetches: names of variables; if there are none, the loss, or else the outputs of the last forward op.
        scope: where persistable variables live; it is changed as by any run.

    Raises:
        FeedError: a feed is missing or unknown, or of another dtype or shape than declared.
        ExecutionError: an op failed.

    Example:
        >>> import fluid, numpy as np
        >>> from fluid.viewer import measure
        >>> program = fluid.Program()
        >>> with fluid.program_guard(program):
        ...     y = fluid.layers.relu(fluid.data("x", [2]))
        >>> measured = measure(program, {"x": np.array([-1, 3], "float32")}, [y.name], fluid.Scope())
        >>> measured.values[(0, 0), y.name].most
        3.0
    """
    executor = Executor(CPUPlace())
    fetches = list(fetches) or _result(program)
    places: dict[Operator, Place] = {}
    result = Measured()

    def place_of(op: Operator) -> Place:
        if op not in places:
            places.update((sibling, (op.block.idx, index)) for index, sibling in enumerate(op.block.ops))
        return places[op]

    def note(op: Operator, name: str, value: Any) -> None:
        result.values[place_of(op), name] = _stats(value)

    executor.interpret(program, dict(feed), fetches, scope, check=note)
    for _ in range(_TIMED):
        times = _Times()
        executor.interpret(program, dict(feed), fetches, scope, timer=times)
        for op, seconds in times.seconds.items():
            place = place_of(op)
            result.seconds[place] = min(seconds, result.seconds.get(place, seconds))
    return result


def _result(program: Program) -> list[str]:
    graph = ViewGraph(program)
    loss = graph.loss()
    return [graph.values[loss].name] if loss >= 0 else []


def measures_of(graph: ViewGraph, program: Program, measured: Measured) -> dict[str, Any]:
    """For the page: seconds of nodes, and statistics of values."""
    seconds: list[tuple[int, float]] = []
    values: dict[int, list[Any]] = {}
    for number, node in enumerate(graph.nodes):
        if node.op is None or node.op.block.program is not program:
            continue
        place = (node.op.block.idx, node.index)
        if place in measured.seconds:
            seconds.append((number, measured.seconds[place]))
        for value in node.all_writes():
            stats = measured.values.get((place, graph.values[value].name))
            if stats is not None:
                kind = f"{stats.dtype}{list(stats.shape)}"
                values[value] = [kind, stats.bytes, stats.least, stats.mean, stats.most, stats.nans, stats.infinities]
    return {"seconds": seconds, "values": list(values.items())}


class _Times(Watch):
    """The seconds that each op of block 0 takes in a run."""

    def __init__(self) -> None:
        self.seconds: dict[Operator, float] = {}

    def add(self, name: str, start: float, end: float, kind: str = "op", ops: Sequence[Operator] = (), line: str = "") -> None:
        for op in ops:
            self.seconds[op] = self.seconds.get(op, 0.0) + end - start


def _stats(value: Any) -> Stats:
    held = np.asarray(getattr(value, "array", value))
    array = computable(held)
    plain = Stats(str(held.dtype) if array is held else "bfloat16", held.shape, held.nbytes)
    if array.dtype.kind not in "fiub" or not array.size:
        return plain
    finite = np.isfinite(array)
    nans = int(np.isnan(array).sum())
    numbers = array[finite].astype(np.float64)
    if not numbers.size:
        return Stats(plain.dtype, plain.shape, plain.bytes, nans=nans, infinities=array.size - nans)
    return Stats(
        plain.dtype,
        plain.shape,
        plain.bytes,
        float(numbers.min()),
        float(numbers.mean()),
        float(numbers.max()),
        nans,
        array.size - numbers.size - nans,
    )
