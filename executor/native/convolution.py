"""Native convolution kernels. Images have channels last, filters are packed in panels, and halos of zeros replace padding.

A tile of outputs (some neighbouring pixels of a row times a panel of filters) stays in registers while the kernel loops over the
taps of the filter and the channels of the image. Each step multiplies one image element per pixel by one row of the panel.

The gradient of the input is the same loop over the output's gradient, with the filter reversed. A convolution with strides needs
one such loop for each position of an input within a stride. The gradient of the filter keeps a tile of the filter in registers
and loops over pixels. Images are split into groups with one partial sum each; a second kernel adds these up in order.

`Convolution` is the geometry. Filters are [M, C / groups, rows, columns]; `write_packed_filter` and
`write_packed_filter_for_input` pack them for these kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from .emitter import Function, Operand, Type, Value, zero
from .filter_gradient import partial_elements, write_filter_gradient, write_partial_filters
from .geometry import Convolution, Walk, forward_walk, input_walks
from .images import Epilogue, Pixel, affine, bounds_of, lanes_of, parts, require_halo, within
from .kernel import Share
from .packing import (
    forward_tiling,
    input_tiling,
    packed_elements,
    packed_elements_for_input,
    write_packed_filter,
    write_packed_filter_for_input,
)
from .target import Limits, Target
from .tiles import Panel, Tiling, add_products, panels_of, split, unrolled, width_of

__all__ = [
    "Convolution",
    "first_pixel",
    "packed_elements",
    "packed_elements_for_input",
    "partial_elements",
    "write_filter_gradient",
    "write_forward",
    "write_input_gradient",
    "write_packed_filter",
    "write_packed_filter_for_input",
    "write_partial_filters",
]


def write_forward(
    f: Function,
    geometry: Convolution,
    x: Value,
    packed_filter: Value,
    y: Value,
    share: Share,
    target: Target,
    epilogue: Epilogue | None = None,
) -> None:
    """Write a kernel for a convolution's output; `packed_filter` comes from `write_packed_filter`. Leaves the halo of `y`."""
    require_halo(geometry.x, geometry.x_halo, "input")
    tiling = forward_tiling(geometry, target)
    rows = geometry.taps * geometry.channels
    _write_walk(f, geometry, forward_walk(geometry), tiling, rows, x, packed_filter, y, share, target.limits, epilogue)


def write_input_gradient(
    f: Function,
    geometry: Convolution,
    dy: Value,
    packed_filter: Value,
    dx: Value,
    share: Share,
    target: Target,
    epilogue: Epilogue | None = None,
) -> None:
    """Write a kernel for the gradient of a convolution's input; `packed_filter` comes from `write_packed_filter_for_input`.

    The halo of `dx` is not written. The halo of `dy` must be at least `Convolution.y_halo` wide. The code grows with
    `Convolution.places`.
    """
    require_halo(geometry.y, geometry.y_halo, "gradient of the output")
    tiling = input_tiling(geometry, target)
    for walk in input_walks(geometry):
        rows = geometry.taps * geometry.filters
        _write_walk(f, geometry, walk, tiling, rows, dy, packed_filter, dx, share, target.limits, epilogue)


def _write_walk(
    f: Function,
    g: Convolution,
    walk: Walk,
    tiling: Tiling,
    packed_rows: int,
    source: Value,
    packed: Value,
    output: Value,
    share: Share,
    limits: Limits,
    epilogue: Epilogue | None,
) -> None:
    """Write a walk. A chunk is some rows of one image times one panel of filters; a panel has `packed_rows` rows."""
    panels = panels_of(walk.filters, tiling)
    if not prod(walk.extents) * walk.output.count:
        return
    pixels = tiling.rows if walk.rows else 1  # without taps, only zeros are stored, and large tiles of them take LLVM long
    width = width_of(panels)
    stays = walk.rows * width * g.groups * g.element.bytes <= limits.convolution_filter_bytes
    for panel in panels:
        count, walks = g.groups * panel.count, prod(walk.repeats)
        needed = -(-limits.convolution_chunks // (walk.output.count * count * walks))
        if stays:  # all panels use a block of the source while it is in the L1 cache
            needed = max(needed, walk.extents[0] * walk.steps[0] * g.element.bytes // limits.convolution_block_bytes)
        blocks = min(walk.extents[0], needed)

        def chunk(number: Value, panel: Panel = panel, count: int = count, blocks: int = blocks) -> None:
            repeat, number = f.divided(number, walk.output.count * blocks * count)
            if stays:
                images, filters = f.divided(number, count)
            else:
                filters, images = f.divided(number, walk.output.count * blocks)
            image, block = f.divided(images, blocks)
            group, panel_index = f.divided(filters, panel.count)
            column = affine(f, panel.first, (panel_index, panel.width))
            base = f.at(source, affine(f, walk.start, (image, walk.source.strides[0]), (group, walk.channels)), g.element)
            at = affine(
                f,
                walk.rows_before * width + panel.before * walk.rows,
                (group, packed_rows * width),
                (panel_index, panel.width * walk.rows),
                (repeat, walk.rows * width),
            )
            channel = f.add(f.mul(group, walk.filters), column) if g.groups > 1 else column
            start, stop = bounds_of(f, block, blocks, walk.extents[0])
            first = first_pixel(f, walk, repeat)
            strip = _Strip(
                f, g.element, walk, panel, base, f.at(packed, at, g.element), output, image, first, channel, limits, epilogue
            )
            f.loop(start, stop, 1, [], lambda row: strip.write(row, pixels), at_least_once=True)

        f.loop(*share.of(f, walk.output.count * blocks * count * walks), 1, [], chunk)


def first_pixel(f: Function, walk: Walk, repeat: Value) -> tuple[Value, Value]:
    """Row and column in the output where one of the merged walks begins."""
    row, column = f.divided(repeat, walk.repeats[1])
    return f.add(row, walk.first[0]), f.add(column, walk.first[1])


@dataclass(frozen=True)
class _Strip:
    """Writes rows of one image times one panel of filters, tile by tile."""

    f: Function
    element: Type
    walk: Walk
    panel: Panel
    source: Value
    packed: Value
    output: Value
    image: Value
    first: tuple[Value, Value]
    channel: Value
    limits: Limits
    epilogue: Epilogue | None

    def write(self, row: Value, most: int) -> None:
        """Write one row of the grid in tiles of at most `most` pixels."""
        taps = self._tap_rows(row)
        for start, size, count in split(self.walk.extents[1], most):
            self.f.loop(
                0,
                count,
                1,
                [],
                lambda tile, start=start, size=size: self._tile(row, taps, affine(self.f, start, (tile, size)), size),
            )

    def _tap_rows(self, row: Value) -> tuple[Operand, Operand]:
        """The range of tap rows that lie within the image; the remaining rows would only add zeros."""
        f, walk = self.f, self.walk
        if walk.is_inside:
            return 0, len(walk.taps[0])
        first, step, tap_step = walk.source_rows
        start, stop = within(f, affine(f, first, (row, step)), tap_step, walk.source.height)
        return start, f.min(stop, len(walk.taps[0]))

    def _tap_columns(self, column: Value, size: int) -> tuple[Operand, Operand]:
        """The range of tap columns that lie within the image for some pixel of a tile."""
        f, walk = self.f, self.walk
        first, step, tap_step = walk.source_columns

        def of_pixel(number: int) -> tuple[Value, Value]:
            return within(f, affine(f, first + number * step, (column, step)), tap_step, walk.source.width)

        starts, stops = zip(of_pixel(0), of_pixel(size - 1), strict=True)
        return f.min(f.min(*starts), len(walk.taps[1])), f.min(f.max(*stops), len(walk.taps[1]))

    def _tile(self, row: Value, taps: tuple[Operand, Operand], column: Value, size: int) -> None:
        f, walk, panel = self.f, self.walk, self.panel
        source = f.at(self.source, affine(f, 0, (row, walk.steps[0]), (column, walk.steps[1])), self.element)
        (_, tap_columns), length = walk.runs

        columns = self._tap_columns(column, size) if walk.skips_columns else (0, tap_columns)

        def tap_row(tap: Value, *sums: Value) -> list[Value]:
            return f.loop(
                *columns, 1, sums, lambda tap_column, *inner: self._run(source, size, (tap, tap_column), 0, length, inner)
            )

        sums = [zero(self.element.of(lanes)) for _ in range(size) for lanes in panel.vectors]
        if len(walk.taps[0]) * tap_columns * length > self.limits.summed_products:
            sums = self._summed_in_parts(source, size, taps, columns, sums)
        elif length:
            sums = f.loop(*taps, 1, sums, tap_row)
        self._store(row, column, size, sums)

    def _summed_in_parts(
        self, source: Value, size: int, taps: tuple[Operand, Operand], columns: tuple[Operand, Operand], zeros: Sequence[Value]
    ) -> list[Value]:
        """The sums of many products, added up part by part, which loses fewer digits."""
        f, element, length = self.f, self.element, self.walk.runs[1]
        widest = max(value.type.lanes for value in zeros)
        totals = f.stack(element, len(zeros) * widest)
        places = [f.at(totals, number * widest, element) for number in range(len(zeros))]
        for value, place in zip(zeros, places, strict=True):
            f.store(value, place)

        def part(tap: tuple[Value, Value], start: Operand, count: int) -> None:
            for value, place in zip(self._run(source, size, tap, start, count, zeros), places, strict=True):
                f.store(f.add(f.load(place, value.type), value), place)

        def under(tap: tuple[Value, Value]) -> None:
            most = self.limits.summed_products
            full = length // most * most
            f.loop(0, full, most, [], lambda start: part(tap, start, most))
            if full < length:
                part(tap, full, length - full)

        f.loop(*taps, 1, [], lambda row: f.loop(*columns, 1, [], lambda column: under((row, column))))
        return [f.load(place, value.type) for value, place in zip(zeros, places, strict=True)]

    def _run(
        self, source: Value, size: int, tap: tuple[Value, Value], start: Operand, count: int, sums: Sequence[Value]
    ) -> list[Value]:
        """Add products under one tap, or under a whole row of taps if these are contiguous: `count`, from number `start` on."""
        f, walk, panel = self.f, self.walk, self.panel
        (_, tap_columns), length = walk.runs
        tap_row, tap_column = tap
        x = f.at(
            source, affine(f, 0, (tap_row, walk.tap_steps[0]), (tap_column, walk.tap_steps[1]), (f.int64(start), 1)), self.element
        )
        size_of_run = length * panel.width
        packed = f.at(
            self.packed,
            affine(f, 0, (tap_row, tap_columns * size_of_run), (tap_column, size_of_run), (f.int64(start), panel.width)),
            self.element,
        )

        def step(pointers: Sequence[Value], totals: Sequence[Value]) -> list[Value]:
            at, filter_row = pointers
            scalars = [f.at(at, number * walk.steps[1], self.element) for number in range(size)]
            return add_products(f, self.element, totals, scalars, panel, panel.load_padded(f, self.element, filter_row))

        return unrolled(
            f,
            self.element,
            count,
            size * len(panel.vectors),
            [(x, 1), (packed, panel.width)],
            sums,
            step,
            self.limits.unrolled_products,
        )

    def _store(self, row: Value, column: Value, size: int, sums: list[Value]) -> None:
        f, walk, panel = self.f, self.walk, self.panel
        first = Pixel(
            self.image,
            f.add(affine(f, 0, (row, walk.spacing[0])), self.first[0]),
            f.add(affine(f, 0, (column, walk.spacing[1])), self.first[1]),
        )
        output = f.at(self.output, walk.output.offset(f, first, self.channel), self.element)
        for number in range(size):
            shift = number * walk.spacing[1]
            for (lanes, start), total in zip(panel.columns, sums[number * len(panel.vectors) :], strict=False):
                for at, number_of_lanes in parts(min(lanes, panel.filters - start), lanes):
                    value = lanes_of(f, total, at, number_of_lanes)
                    last: Value | None = value
                    if self.epilogue is not None:
                        pixel = first.neighbour(f, shift)
                        last = self.epilogue(f, value, pixel, f.add(self.channel, start + at))
                    if last is not None:
                        f.store(last, f.at(output, shift * walk.output.strides[2] + start + at, self.element))
