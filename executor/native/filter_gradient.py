"""The gradient of a convolution's filter: partial sums over groups of images, computed in tiles, then their total."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from .emitter import Function, Operand, Type, Value, zero
from .geometry import Convolution, Walk, forward_walk
from .images import (
    RowOutput,
    Store,
    affine,
    bounds_of,
    from_places,
    parts,
    require_halo,
    square_lanes,
    within,
    write_transposed,
)
from .kernel import Share
from .packing import packed_row, packed_rows
from .target import Limits, Target
from .tiles import Panel, Tiling, add_products, panels_of, split, tiling_of, unrolled, width_of

RowEpilogue = Callable[[Function, Value, Value, Value], "Value | None"]
"""``epilogue(f, value, row, column)``: the vector to store in place of `value` (consecutive elements of a filter's row, from a
column on); None if the epilogue has stored its results itself."""


def _gradient_tiling(g: Convolution, target: Target) -> Tiling:
    return tiling_of(forward_walk(g).runs[1], g.filters, g.element, target, 1, target.limits.gradient_rows)


def _partials(g: Convolution, panels: Sequence[Panel], limits: Limits) -> int:
    """The number of partial sums. It depends on the geometry alone, so that results do not depend on threads."""
    partial_bytes = packed_rows(g) * width_of(panels) * g.groups * g.element.bytes
    return max(1, min(g.x.count, limits.gradient_partials, limits.gradient_partial_bytes // max(partial_bytes, 1)))


def partial_elements(geometry: Convolution, target: Target) -> int:
    """Number of elements of the partial sums of the filter's gradient."""
    panels = panels_of(geometry.filters, _gradient_tiling(geometry, target))
    return _partials(geometry, panels, target.limits) * geometry.groups * packed_rows(geometry) * width_of(panels)


def write_partial_filters(
    f: Function, geometry: Convolution, x: Value, dy: Value, partials: Value, share: Share, target: Target
) -> None:
    """Write a kernel for partial sums, each over some images, of the gradient of a filter."""
    g, walk = geometry, forward_walk(geometry)
    require_halo(g.x, g.x_halo, "input")
    tiling = _gradient_tiling(g, target)
    panels = panels_of(g.filters, tiling)
    count = _partials(g, panels, target.limits)
    group_size = packed_rows(g) * width_of(panels)
    partial_size = g.groups * group_size
    for panel in panels:
        sums = _PartialSums(f, g, walk, panel, tiling.rows, group_size, x, dy, target.limits)
        cuts = max(1, min(sums.strips, -(-target.limits.convolution_chunks // count)))

        def chunk(number: Value, sums: _PartialSums = sums, cuts: int = cuts) -> None:
            partial, cut = f.divided(number, cuts)
            output = f.at(partials, affine(f, 0, (partial, partial_size)), g.element)
            sums.write(output, bounds_of(f, partial, count, g.x.count), bounds_of(f, cut, cuts, sums.strips))

        f.loop(*share.of(f, count * cuts), 1, [], chunk)


@dataclass(frozen=True)
class _PartialSums:
    """Writes the gradient of the filters of a panel, summed over some images.

    It consists of strips: one per panel and row of taps, or per tap if the taps of a row are not contiguous. A tile is some rows
    of a strip.
    """

    f: Function
    g: Convolution
    walk: Walk
    panel: Panel
    most: int
    group_size: int
    x: Value
    dy: Value
    limits: Limits

    @property
    def strips(self) -> int:
        return self.g.groups * self.panel.count * prod(self.walk.runs[0])

    @property
    def block(self) -> tuple[int, int]:
        """Images and rows of a block, so few that they stay in the L2 cache while all tiles use them."""
        g = self.g
        near = self.limits.gradient_bytes // ((g.channels * prod(g.strides) + g.filters) * g.element.bytes)
        pixels = min(self.limits.gradient_pixels, max(64, near))
        rows = max(1, min(g.y.height, pixels // max(g.y.width, 1)))
        return (max(1, pixels // max(g.y.height * g.y.width, 1)) if rows == g.y.height else 1), rows

    def write(self, output: Value, images: tuple[Operand, Operand], strips: tuple[Operand, Operand]) -> None:
        """Write a range of strips, summed over a range of images."""
        f, (images_at_once, rows_at_once) = self.f, self.block
        last_image, height = f.int64(images[1]), self.g.y.height
        f.loop(*strips, 1, [], lambda strip: self._clear(self._strip(output, strip)[0]))

        def block(image: Value) -> None:
            end = f.min(f.add(image, images_at_once), last_image)
            f.loop(0, height, rows_at_once, [], lambda row: rows(image, end, row))

        def rows(image: Value, end: Value, row: Value) -> None:
            ends = f.min(f.add(row, rows_at_once), height) if height % rows_at_once else f.add(row, rows_at_once)
            f.loop(*strips, 1, [], lambda strip: self._add(output, strip, (image, end), (row, ends)))

        f.loop(*images, images_at_once, [], block)

    def _strip(self, output: Value, strip: Value) -> tuple[Value, Value, Value, Value]:
        """Pointers to a strip, to the input's elements for its first row, and to the output's gradient; and the strip's row of
        taps."""
        f, g, walk, panel = self.f, self.g, self.walk, self.panel
        (tap_rows, tap_columns), length = walk.runs
        filters, tap = f.divided(strip, tap_rows * tap_columns)
        group, panel_index = f.divided(filters, panel.count)
        tap_row, tap_column = f.divided(tap, tap_columns)
        rows = packed_rows(g)
        steps = (panel_index, panel.width * rows), (tap, length * panel.width)
        before = panel.before * rows
        at = affine(f, before, (group, self.group_size), *steps)
        x = affine(f, walk.start, (group, g.channels), (tap_row, walk.tap_steps[0]), (tap_column, walk.tap_steps[1]))
        dy = affine(f, g.y.start + panel.first, (group, g.filters), (panel_index, panel.width))
        return f.at(output, at, g.element), f.at(self.x, x, g.element), f.at(self.dy, dy, g.element), tap_row

    def _clear(self, output: Value) -> None:
        f, length = self.f, self.walk.runs[1]

        def row(number: Value) -> None:
            at = f.at(output, f.mul(number, self.panel.width), self.g.element)
            for lanes, column in self.panel.columns:
                f.store(zero(self.g.element.of(lanes)), f.at(at, column, self.g.element))

        f.loop(0, length, 1, [], row)

    def _add(self, output: Value, strip: Value, images: tuple[Value, Value], rows: tuple[Value, Value]) -> None:
        """Add the products of some rows of some images to a strip, tile by tile. Rows with taps in the halo are skipped."""
        f, walk = self.f, self.walk
        output, x, dy, tap_row = self._strip(output, strip)
        if not walk.is_inside:
            first, step, tap_step = walk.source_rows
            start, stop = within(f, affine(f, first, (tap_row, tap_step)), step, walk.source.height)
            rows = f.max(rows[0], start), f.min(rows[1], stop)
        for start_of_tiles, size, count in split(walk.runs[1], self.most):

            def tile(number: Value, start: int = start_of_tiles, size: int = size) -> None:
                self._tile(output, x, dy, affine(f, start, (number, size)), size, images, rows)

            f.loop(0, count, 1, [], tile)

    def _tile(
        self,
        output: Value,
        x: Value,
        dy: Value,
        first: Value,
        size: int,
        images: tuple[Value, Value],
        rows: tuple[Value, Value],
    ) -> None:
        f, element = self.f, self.g.element
        x = f.at(x, first, element)
        output = f.opaque(f.at(output, f.mul(first, self.panel.width), element))
        places = [
            (f.at(output, number * self.panel.width + column, element), lanes)
            for number in range(size)
            for lanes, column in self.panel.columns
        ]

        def image(number: Value, *sums: Value) -> list[Value]:
            return f.loop(*rows, 1, sums, lambda row, *inner: self._row(x, dy, number, row, size, inner))

        sums = [zero(element.of(lanes)) for _, lanes in places]
        sums = f.loop(*images, 1, sums, image, at_least_once=True) if self.block[0] > 1 else image(images[0], *sums)
        for (place, lanes), total in zip(places, sums, strict=True):  # so the error does not grow with the number of pixels
            f.store(f.add(f.load(place, element.of(lanes)), total), place)

    def _row(self, x: Value, dy: Value, image: Value, row: Value, size: int, sums: Sequence[Value]) -> list[Value]:
        """Add the products of one row of outputs to a tile."""
        f, g, element = self.f, self.g, self.g.element
        x = f.at(x, affine(f, 0, (image, g.x.strides[0]), (row, self.walk.steps[0])), element)
        dy = f.at(dy, affine(f, 0, (image, g.y.strides[0]), (row, g.y.strides[1])), element)

        def step(pointers: Sequence[Value], totals: Sequence[Value]) -> list[Value]:
            at, gradient = pointers
            scalars = [f.at(at, number, element) for number in range(size)]
            return add_products(f, element, totals, scalars, self.panel, self.panel.load_filters(f, element, gradient))

        starts = [(x, self.walk.steps[1]), (dy, g.y.strides[2])]
        return unrolled(f, element, g.y.width, size * len(self.panel.vectors), starts, sums, step, self.limits.unrolled_products)


def write_filter_gradient(
    f: Function,
    geometry: Convolution,
    partials: Value,
    d_filter: Value,
    share: Share,
    target: Target,
    epilogue: RowEpilogue | None = None,
) -> None:
    """Write a kernel that adds up the partial sums to the gradient of a filter, [M, C / groups, rows, columns].

    The kernel overwrites `partials`.

    ``epilogue(f, value, row, column)`` takes consecutive elements of one filter's row, from a column on.
    """
    g, element = geometry, geometry.element
    panels = panels_of(g.filters, _gradient_tiling(g, target))
    rows, group_size = packed_rows(g), packed_rows(g) * width_of(panels)
    for panel in panels:

        def chunk(number: Value, panel: Panel = panel) -> None:
            group, panel_index = f.divided(number, panel.count)
            start = affine(f, panel.before * rows, (group, group_size), (panel_index, panel.width * rows))
            sums = f.at(partials, start, element)
            add_partials(f, element, sums, rows * panel.width, _partials(g, panels, target.limits), g.groups * group_size, target)
            first = affine(f, panel.first, (group, g.filters), (panel_index, panel.width))

            def place(row: Value) -> Value:
                return f.at(sums, f.mul(packed_row(f, g, row), panel.width), element)

            source, output = from_places(f, element, place), to_filter(f, element, d_filter, rows, first, epilogue)
            write_transposed(f, rows, panel.filters, square_lanes(element, target), source, output)

        f.loop(*share.of(f, g.groups * panel.count), 1, [], chunk)


def to_filter(f: Function, element: Type, d_filter: Value, length: int, first: Value, epilogue: RowEpilogue | None) -> RowOutput:
    """Stores to the rows of a filter's gradient, counted from `first`, through the epilogue."""

    def output(row: Value, column: Value) -> Store:
        number = f.add(first, row)
        at = f.opaque(f.at(d_filter, affine(f, 0, (number, length), (column, 1)), element))

        def store(row_shift: int, value: Value) -> None:
            last = value if epilogue is None else epilogue(f, value, f.add(number, row_shift), column)
            if last is not None:
                f.store(last, f.at(at, row_shift * length, element))

        return store

    return output


def add_partials(f: Function, element: Type, sums: Value, size: int, count: int, stride: int, target: Target) -> None:
    """Add all partial sums to the first, in order: `count` sums of `size` elements, `stride` elements from one to the next."""
    if count == 1:
        return
    lanes = target.lanes(element.bytes)

    def add(number: Value, lanes: int) -> None:
        place = f.opaque(f.at(sums, number, element))
        total = f.load(place, element.of(lanes))
        for partial in range(1, count):
            total = f.add(total, f.load(f.at(place, partial * stride, element), element.of(lanes)))
        f.store(total, place)

    main = size // lanes * lanes
    f.loop(0, main, lanes, [], lambda number: add(number, lanes))
    for start, remaining_lanes in parts(size - main, lanes):
        add(f.int64(main + start), remaining_lanes)
