"""Tiles of sums that stay in registers while a kernel adds products, and panels of packed filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .emitter import Function, Type, Value
from .images import lanes_of
from .target import Target

_ALIASED_BYTES = 4096
"""Cache lines at multiples of this distance map to the same set of the L1 cache. A set has `_WAYS` ways for them; one more way
is left for other data."""
_WAYS = 7


@dataclass(frozen=True)
class Tiling:
    """The size of a tile in registers: at most `rows` rows of `vectors` vectors of `lanes` lanes."""

    rows: int
    vectors: int
    lanes: int


@dataclass(frozen=True)
class Panel:
    """Equal panels of packed filters. A row of a panel holds one element of each filter, as vectors.

    Attributes:
        vectors: the lanes of each vector of a row.
        filters: filters per panel; the remaining lanes hold zeros.
        count: number of panels.
        first: number of the first filter.
        before: lanes of the panels stored before these.
    """

    vectors: tuple[int, ...]
    filters: int
    count: int
    first: int
    before: int

    @property
    def width(self) -> int:
        return sum(self.vectors)

    @property
    def columns(self) -> list[tuple[int, int]]:
        """(lanes, first column) of each vector."""
        return [(lanes, sum(self.vectors[:number])) for number, lanes in enumerate(self.vectors)]

    def load_padded(self, f: Function, element: Type, row: Value) -> list[Value]:
        """Load a row of a packed panel, padded with zeros to full vectors."""
        return [f.load(f.at(row, column, element), element.of(lanes)) for lanes, column in self.columns]

    def load_filters(self, f: Function, element: Type, row: Value) -> list[Value]:
        """Load one element per filter; lanes without a filter are zero, and memory behind the last filter is not read."""
        return [
            f.load_first(f.at(row, column, element), element.of(lanes), min(lanes, self.filters - column))
            for lanes, column in self.columns
        ]


def panels_of(filters: int, tiling: Tiling) -> list[Panel]:
    """Cut filters into panels as wide as tiles, plus a narrower panel for the remaining filters."""
    lanes, width = tiling.lanes, tiling.lanes * tiling.vectors
    full_panels, remaining_filters = divmod(filters, width)
    panels = [Panel((lanes,) * tiling.vectors, width, full_panels, 0, 0)] if full_panels else []
    if remaining_filters:
        full_vectors, tail = divmod(remaining_filters, lanes)
        last = (lanes,) * full_vectors + ((1 << (tail - 1).bit_length(),) if tail else ())
        panels.append(Panel(last, remaining_filters, 1, full_panels * width, full_panels * width))
    return panels


def width_of(panels: Sequence[Panel]) -> int:
    """The lanes of all panels together."""
    return sum(panel.count * panel.width for panel in panels)


def split(count: int, most: int) -> list[tuple[int, int, int]]:
    """Cut `count` into parts of at most `most`, with sizes that differ by at most one: (start, size, count) of each size."""
    parts = -(-count // most)
    if not parts:
        return []
    size, larger = divmod(count, parts)
    sizes = [(0, size + 1, larger), (larger * (size + 1), size, parts - larger)]
    return [span for span in sizes if span[2]]


def tiling_of(rows: int, filters: int, element: Type, target: Target, stride: int, least: int = 1) -> Tiling:
    """Choose the fastest tiles for `rows` rows and `filters` filters, by an estimate.

    A step of a tile takes as long as the slowest of its products, its loads and the latency of the sums. Each row is a separate
    stream of memory, and the prefetcher handles few streams better. Rows are `stride` elements apart; their cache lines
    should stay in the L1 cache until the neighbouring elements are read. Tiles have at least `least` rows, if possible.
    """
    registers = target.registers
    lanes = target.lanes(element.bytes)

    def cost(tiling: Tiling) -> float:
        total = 0.0
        panels, parts = panels_of(filters, tiling), split(rows, tiling.rows)
        for panel in panels:
            for _, size, count in parts:
                products, loads = size * len(panel.vectors), size + len(panel.vectors)
                total += panel.count * count * (max(products, loads, 8) + size / 4)
        return total * (1 + len(panels) * len(parts) / 50)  # each tile size is separate code

    most = max(1, min(4, -(-filters // lanes)))
    ways = _WAYS if stride * element.bytes % _ALIASED_BYTES == 0 else registers
    choices = [Tiling(min((registers - 1 - vectors) // vectors, ways), vectors, lanes) for vectors in range(1, most + 1)]
    return min([tiling for tiling in choices if tiling.rows >= least] or choices, key=cost)


def add_products(
    f: Function, element: Type, sums: Sequence[Value], scalars: Sequence[Value], panel: Panel, vectors: Sequence[Value]
) -> list[Value]:
    """Add the outer product of elements (loaded from `scalars`) and the vectors of one row of a panel to the sums."""
    following = []
    for number, pointer in enumerate(scalars):
        splat = f.splat(f.load(pointer, element), panel.vectors[0])
        for vector, total in zip(vectors, sums[number * len(vectors) :], strict=False):
            following.append(f.fma(lanes_of(f, splat, 0, vector.type.lanes), vector, total))
    return following


def unrolled(
    f: Function,
    element: Type,
    count: int,
    work: int,
    starts: Sequence[tuple[Value, int]],
    sums: Sequence[Value],
    step: Callable[[Sequence[Value], Sequence[Value]], list[Value]],
    most: int,
) -> list[Value]:
    """Write `count` steps of `work` products each, as a loop unrolled as far as it pays. At most `most` products are fully
    unrolled.

    ``step(pointers, sums)`` returns the new sums. `starts` are (pointer, elements to advance per step).
    """
    times = count if count * work <= most else max(1, min(count, 64 // max(work, 1), 8))
    while times > 1 and count % times and count // times > 8:
        times -= 1
    main = count // times * times

    def steps(pointers: Sequence[Value], totals: Sequence[Value], number: int) -> Sequence[Value]:
        for turn in range(number):
            at = [f.at(pointer, turn * stride, element) for pointer, (_, stride) in zip(pointers, starts, strict=True)]
            totals = step(at, totals)
        return totals

    def body(_: Value, *values: Value) -> list[Value]:
        pointers = values[: len(starts)]
        totals = steps(pointers, values[len(starts) :], times)
        following = [f.at(pointer, times * stride, element) for pointer, (_, stride) in zip(pointers, starts, strict=True)]
        return [*map(f.opaque, following), *totals]

    after = f.loop(0, main, times, [*(pointer for pointer, _ in starts), *sums], body)
    return list(steps(after[: len(starts)], after[len(starts) :], count - main))
