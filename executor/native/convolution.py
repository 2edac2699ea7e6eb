"""Convolutions as native kernels: images have their channels last, filters lie in panels, halos of zeros stand for padding.

A tile of outputs, some neighbours in a row times a panel of filters, is kept in registers while the taps of the filter and the
channels of the image go by: each step multiplies one element of the image for each neighbour with one row of the panel. The
gradient of the input is the same loop over the output's gradient with the filter turned around; of a convolution with strides it
is one such loop for each place that an input may have within a stride. The gradient of the filter keeps a tile of the filter
in registers while pixels go by; images are cut into groups, each with a partial sum of its own, which a second kernel adds
up in their order.

`Convolution` is the geometry. Filters are [M, C / groups, rows, columns] outside, and packed by `write_packed_filter` and
`write_packed_filter_for_input` for the kernels here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from .emitter import FLOAT, Function, Operand, Type, Value, zero
from .images import (
    Epilogue,
    Images,
    Load,
    Pixel,
    Store,
    affine,
    bounds_of,
    divided,
    from_rows,
    lanes_of,
    parts,
    require_halo,
    square_lanes,
    to_places,
    write_transposed,
)
from .kernel import AFTER_BARRIER, Share

__all__ = [
    "Convolution",
    "filter_gradient_phases",
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

_CHUNKS = 32
"""Chunks that work is cut into, at least, where shapes allow it: enough for the threads of common machines."""
_NEAR_BYTES = 256 << 10
"""What may be assumed to stay in the second cache of a core while other things go by."""
_PIXELS = 256
"""Pixels, at most, that go by while a tile of a filter's gradient is in registers."""
_PARTIAL_BYTES = 1 << 20
"""What all partial sums of a filter's gradient may take, if there is more than one."""
_SHORT = 128
"""Products in a run that is written without a loop: loops of few turns are predicted badly."""
_PARTIALS = 16
"""Partial sums of a filter's gradient, at most."""


@dataclass(frozen=True)
class _Phase:
    """Along one axis: every `stride`-th input from `first` on, and the taps of the filter that reach them.

    Attributes:
        taps: in the order in which they meet outputs of rising number.
        output: the number of the output that the first tap meets at the first input.
        step: outputs from one tap to the next.
    """

    first: int
    count: int
    taps: tuple[int, ...]
    output: int
    step: int


def _phases(extent: int, kernel: int, stride: int, pad: int, dilation: int) -> list[_Phase]:
    """The phases of an axis of the input: what lies at the same place within a stride is reached by the same taps."""
    phases = []
    for first in range(min(stride, extent)):
        taps = tuple(tap for tap in reversed(range(kernel)) if (first + pad - tap * dilation) % stride == 0)
        outputs = [(first + pad - tap * dilation) // stride for tap in taps] or [0]
        step = outputs[1] - outputs[0] if len(taps) > 1 else 1
        phases.append(_Phase(first, -(-(extent - first) // stride), taps, outputs[0], step))
    return phases


@dataclass(frozen=True)
class Convolution:
    """The geometry of a convolution.

    Attributes:
        x: how the input lies, or its gradient.
        y: how the output lies, or its gradient. The output's extents say what padding there is at the far ends.
        kernel: rows and columns of the filter; `strides`, `pads` (above and on the left) and `dilations` likewise.
    """

    x: Images
    y: Images
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    element: Type = FLOAT

    @property
    def channels(self) -> int:
        """Channels of the input in one group."""
        return self.x.channels // self.groups

    @property
    def filters(self) -> int:
        """Filters in one group."""
        return self.y.channels // self.groups

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @cached_property
    def phases(self) -> tuple[list[_Phase], list[_Phase]]:
        """The phases of rows and of columns, for the gradient of the input."""
        rows, columns = (
            _phases(*each)
            for each in zip((self.x.height, self.x.width), self.kernel, self.strides, self.pads, self.dilations, strict=True)
        )
        return rows, columns

    @property
    def x_halo(self) -> int:
        """The halo that the input needs, at least: for the output, and for the filter's gradient."""
        ends = [
            (out - 1) * stride + (kernel - 1) * dilation - pad - (extent - 1)
            for extent, out, kernel, stride, pad, dilation in zip(
                (self.x.height, self.x.width),
                (self.y.height, self.y.width),
                self.kernel,
                self.strides,
                self.pads,
                self.dilations,
                strict=True,
            )
        ]
        return max(0, *self.pads, *ends)

    @property
    def y_halo(self) -> int:
        """The halo that the gradient of the output needs, at least, for the gradient of the input."""
        needed = [0]
        for phases, extent in zip(self.phases, (self.y.height, self.y.width), strict=True):
            for phase in phases:
                if phase.taps:
                    last = phase.output + phase.count - 1 + (len(phase.taps) - 1) * phase.step
                    needed += [-phase.output, last - (extent - 1)]
        return max(needed)


# -------------------------------------------------------------------------------------------------------------- tiles
@dataclass(frozen=True)
class _Tiling:
    """What is kept in registers: at most `rows` rows of as many vectors of `lanes` lanes."""

    rows: int
    vectors: int
    lanes: int


@dataclass(frozen=True)
class _Panel:
    """Panels of packed filters, all alike: filters side by side, as vectors.

    Attributes:
        vectors: the lanes of each vector.
        filters: how many filters are in a panel; the lanes that are left hold zeros.
        count: how many such panels there are.
        first: the first filter in them.
        before: lanes of other panels that lie before them.
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
        """The lanes of each vector, and the first column in it."""
        return [(lanes, sum(self.vectors[:number])) for number, lanes in enumerate(self.vectors)]


def _panels(filters: int, tiling: _Tiling) -> list[_Panel]:
    """Filters in panels as wide as tiles, and one narrower panel for those that are left."""
    lanes, width = tiling.lanes, tiling.lanes * tiling.vectors
    whole, rest = divmod(filters, width)
    panels = [_Panel((lanes,) * tiling.vectors, width, whole, 0, 0)] if whole else []
    if rest:
        last = (lanes,) * (rest // lanes) + ((1 << (rest % lanes - 1).bit_length(),) if rest % lanes else ())
        panels.append(_Panel(last, rest, 1, whole * width, whole * width))
    return panels


def _width(panels: Sequence[_Panel]) -> int:
    """The lanes of all panels together."""
    return sum(panel.count * panel.width for panel in panels)


def _split(count: int, most: int) -> list[tuple[int, int, int]]:
    """`count` in nearly equal parts of at most `most`, the sizes of which differ by one: (start, size, how many) of each size."""
    parts = -(-count // most)
    if not parts:
        return []
    size, larger = divmod(count, parts)
    sizes = [(0, size + 1, larger), (larger * (size + 1), size, parts - larger)]
    return [each for each in sizes if each[2]]


def _tiling(rows: int, filters: int, element: Type, vector_bytes: int) -> _Tiling:
    """The tiles that take the least time for as many rows and filters, by an estimate.

    A step of a tile takes as long as its products, its loads, or as the latency of the sums asks for, whichever is most.
    """
    registers = 16 if vector_bytes == 32 else 32
    lanes = vector_bytes // element.bytes

    def cost(tiling: _Tiling) -> float:
        total = 0.0
        panels, parts = _panels(filters, tiling), _split(rows, tiling.rows)
        for panel in panels:
            for _, size, count in parts:
                products, loads = size * len(panel.vectors), size + len(panel.vectors)
                total += panel.count * count * (max(products, loads, 8) + loads / 8)
        return total * (1 + len(panels) * len(parts) / 50)  # each kind of tile is code of its own

    most = max(1, min(4, -(-filters // lanes)))
    return min((_Tiling((registers - 1 - vectors) // vectors, vectors, lanes) for vectors in range(1, most + 1)), key=cost)


def _step(f: Function, element: Type, sums: Sequence[Value], scalars: Sequence[Value], panel: _Panel, row: Value) -> list[Value]:
    """Add the products of some elements, each at a pointer, and one row of a panel."""
    vectors = [f.load(f.at(row, column, element), element.of(lanes)) for lanes, column in panel.columns]
    following = []
    for number, pointer in enumerate(scalars):
        splat = f.splat(f.load(pointer, element), panel.vectors[0])
        for vector, total in zip(vectors, sums[number * len(vectors) :], strict=False):
            following.append(f.fma(lanes_of(f, splat, 0, vector.type.lanes), vector, total))
    return following


def _unrolled(
    f: Function,
    element: Type,
    count: int,
    work: int,
    starts: Sequence[tuple[Value, int]],
    sums: Sequence[Value],
    step: Callable[[Sequence[Value], Sequence[Value]], list[Value]],
) -> list[Value]:
    """The sums after as many steps, each with `work` products, in a loop that is unrolled as far as it pays.

    ``step(pointers, sums)`` is given pointers that begin at `starts` and go on by as many elements with each step.
    """
    times = count if count * work <= _SHORT else max(1, min(count, 64 // max(work, 1), 8))
    while times > 1 and count % times and count // times > 8:
        times -= 1
    main = count // times * times

    def steps(pointers: Sequence[Value], totals: Sequence[Value], number: int) -> Sequence[Value]:
        for further in range(number):
            at = [f.at(pointer, further * apart, element) for pointer, (_, apart) in zip(pointers, starts, strict=True)]
            totals = step(at, totals)
        return totals

    def body(_: Value, *values: Value) -> list[Value]:
        pointers = values[: len(starts)]
        totals = steps(pointers, values[len(starts) :], times)
        following = [f.at(pointer, times * apart, element) for pointer, (_, apart) in zip(pointers, starts, strict=True)]
        return [*map(f.opaque, following), *totals]

    after = f.loop(0, main, times, [*(pointer for pointer, _ in starts), *sums], body)
    return list(steps(after[: len(starts)], after[len(starts) :], count - main))


# --------------------------------------------------------------------------------------------- outputs, inputs' gradients
@dataclass(frozen=True)
class _Walk:
    """Sums of products over taps and channels, for pixels of `target` that lie on a grid. Steps are in elements.

    Attributes:
        extents: rows and columns of the grid; `first` and `apart` say which pixels of the target they are.
        taps: rows and columns of taps.
        start: where the source's element under the first tap of the first pixel lies.
        steps: from the source's element of a pixel to that of the next in the grid; `tap_steps`, from tap to tap.
        rows_before: rows of packed filters, in each panel, that belong to other walks.
    """

    source: Images
    target: Images
    channels: int
    filters: int
    extents: tuple[int, int]
    first: tuple[int, int]
    apart: tuple[int, int]
    taps: tuple[int, int]
    start: int
    steps: tuple[int, int]
    tap_steps: tuple[int, int]
    rows_before: int

    @property
    def runs(self) -> tuple[tuple[int, int], int]:
        """Rows and columns of taps that loops go over, and the length of the runs of neighbours under each."""
        if self.tap_steps[1] == self.channels:
            return (self.taps[0], 1), self.taps[1] * self.channels
        return self.taps, self.channels


def _forward_walk(g: Convolution) -> _Walk:
    _, row, pixel = g.x.strides
    return _Walk(
        g.x,
        g.y,
        g.channels,
        g.filters,
        extents=(g.y.height, g.y.width),
        first=(0, 0),
        apart=(1, 1),
        taps=g.kernel,
        start=g.x.start - g.pads[0] * row - g.pads[1] * pixel,
        steps=(g.strides[0] * row, g.strides[1] * pixel),
        tap_steps=(g.dilations[0] * row, g.dilations[1] * pixel),
        rows_before=0,
    )


def _input_walks(g: Convolution) -> list[_Walk]:
    walks: list[_Walk] = []
    _, row, pixel = g.y.strides
    rows_before = 0
    for rows in g.phases[0]:
        for columns in g.phases[1]:
            taps = len(rows.taps), len(columns.taps)
            walk = _Walk(
                g.y,
                g.x,
                g.filters,
                g.channels,
                extents=(rows.count, columns.count),
                first=(rows.first, columns.first),
                apart=g.strides,
                taps=taps,
                start=g.y.start + rows.output * row + columns.output * pixel,
                steps=(row, pixel),
                tap_steps=(rows.step * row, columns.step * pixel),
                rows_before=rows_before,
            )
            walks.append(walk)
            rows_before += prod(taps) * g.filters
    return walks


def _forward_tiling(g: Convolution, vector_bytes: int) -> _Tiling:
    return _tiling(g.y.width, g.filters, g.element, vector_bytes)


def _input_tiling(g: Convolution, vector_bytes: int) -> _Tiling:
    return _tiling(-(-g.x.width // g.strides[1]), g.channels, g.element, vector_bytes)


def write_forward(
    f: Function,
    geometry: Convolution,
    x: Value,
    packed_filter: Value,
    y: Value,
    share: Share,
    vector_bytes: int,
    epilogue: Epilogue | None = None,
) -> None:
    """The output of a convolution; `packed_filter` comes from `write_packed_filter`. The halo of `y` is not written."""
    require_halo(geometry.x, geometry.x_halo, "input")
    tiling = _forward_tiling(geometry, vector_bytes)
    _write_walk(
        f, geometry, _forward_walk(geometry), tiling, geometry.taps * geometry.channels, x, packed_filter, y, share, epilogue
    )


def write_input_gradient(
    f: Function,
    geometry: Convolution,
    dy: Value,
    packed_filter: Value,
    dx: Value,
    share: Share,
    vector_bytes: int,
    epilogue: Epilogue | None = None,
) -> None:
    """The gradient of a convolution's input; `packed_filter` comes from `write_packed_filter_for_input`. The halo of `dx` is
    not written; that of `dy` has to be `Convolution.y_halo` wide, at least."""
    require_halo(geometry.y, geometry.y_halo, "gradient of the output")
    tiling = _input_tiling(geometry, vector_bytes)
    for walk in _input_walks(geometry):
        _write_walk(f, geometry, walk, tiling, geometry.taps * geometry.filters, dy, packed_filter, dx, share, epilogue)


def _write_walk(
    f: Function,
    g: Convolution,
    walk: _Walk,
    tiling: _Tiling,
    packed_rows: int,
    source: Value,
    packed: Value,
    target: Value,
    share: Share,
    epilogue: Epilogue | None,
) -> None:
    """Write a walk. A chunk is some rows of one image with one panel of filters; `packed_rows` is how many rows panels have."""
    panels = _panels(walk.filters, tiling)
    if not prod(walk.extents) * walk.target.count:
        return
    width = _width(panels)
    rows = prod(walk.taps) * walk.channels
    stays = rows * width * g.groups * g.element.bytes <= _NEAR_BYTES
    for panel in panels:
        count = g.groups * panel.count
        blocks = min(walk.extents[0], -(-_CHUNKS // (walk.target.count * count)))

        def chunk(number: Value, panel: _Panel = panel, count: int = count, blocks: int = blocks) -> None:
            if stays:
                images, filters = divided(f, number, count)
            else:
                filters, images = divided(f, number, walk.target.count * blocks)
            image, block = divided(f, images, blocks)
            group, which = divided(f, filters, panel.count)
            column = affine(f, panel.first, (which, panel.width))
            base = f.at(source, affine(f, walk.start, (image, walk.source.strides[0]), (group, walk.channels)), g.element)
            at = affine(
                f,
                walk.rows_before * width + panel.before * rows,
                (group, packed_rows * width),
                (which, panel.width * rows),
            )
            channel = f.add(f.mul(group, walk.filters), column) if g.groups > 1 else column
            start, stop = bounds_of(f, block, blocks, walk.extents[0])
            strip = _Strip(f, g.element, walk, panel, base, f.at(packed, at, g.element), target, image, channel, epilogue)
            f.loop(start, stop, 1, [], lambda row: strip.write(row, tiling.rows), at_least_once=True)

        f.loop(*share.of(f, walk.target.count * blocks * count), 1, [], chunk)


@dataclass(frozen=True)
class _Strip:
    """Rows of one image with one panel of filters, as they are written in tiles."""

    f: Function
    element: Type
    walk: _Walk
    panel: _Panel
    source: Value
    packed: Value
    target: Value
    image: Value
    channel: Value
    epilogue: Epilogue | None

    def write(self, row: Value, most: int) -> None:
        """One row of the grid, in tiles of at most as many pixels."""
        for start, size, count in _split(self.walk.extents[1], most):
            self.f.loop(
                0, count, 1, [], lambda tile, start=start, size=size: self._tile(row, affine(self.f, start, (tile, size)), size)
            )

    def _tile(self, row: Value, column: Value, size: int) -> None:
        f, walk, panel = self.f, self.walk, self.panel
        source = f.at(self.source, affine(f, 0, (row, walk.steps[0]), (column, walk.steps[1])), self.element)
        (tap_rows, tap_columns), length = walk.runs

        def tap_row(tap: Value, *sums: Value) -> list[Value]:
            return f.loop(0, tap_columns, 1, sums, lambda other, *inner: self._run(source, size, tap, other, inner))

        sums = [zero(self.element.of(lanes)) for _ in range(size) for lanes in panel.vectors]
        if length:
            sums = f.loop(0, tap_rows, 1, sums, tap_row)
        self._store(row, column, size, sums)

    def _run(self, source: Value, size: int, tap_row: Value, tap_column: Value, sums: Sequence[Value]) -> list[Value]:
        """Add the products under one tap, or under the taps of one row where these are neighbours."""
        f, walk, panel = self.f, self.walk, self.panel
        (_, tap_columns), length = walk.runs
        x = f.at(source, affine(f, 0, (tap_row, walk.tap_steps[0]), (tap_column, walk.tap_steps[1])), self.element)
        size_of_run = length * panel.width
        packed = f.at(self.packed, affine(f, 0, (tap_row, tap_columns * size_of_run), (tap_column, size_of_run)), self.element)

        def step(pointers: Sequence[Value], totals: Sequence[Value]) -> list[Value]:
            at, filter_row = pointers
            scalars = [f.at(at, number * walk.steps[1], self.element) for number in range(size)]
            return _step(f, self.element, totals, scalars, panel, filter_row)

        return _unrolled(f, self.element, length, size * len(panel.vectors), [(x, 1), (packed, panel.width)], sums, step)

    def _store(self, row: Value, column: Value, size: int, sums: list[Value]) -> None:
        f, walk, panel = self.f, self.walk, self.panel
        first = Pixel(
            self.image,
            affine(f, walk.first[0], (row, walk.apart[0])),
            affine(f, walk.first[1], (column, walk.apart[1])),
        )
        target = f.at(self.target, walk.target.offset(f, first, self.channel), self.element)
        for number in range(size):
            further = number * walk.apart[1]
            for (lanes, start), total in zip(panel.columns, sums[number * len(panel.vectors) :], strict=False):
                for at, number_of_lanes in parts(min(lanes, panel.filters - start), lanes):
                    last: Value | None = lanes_of(f, total, at, number_of_lanes)
                    if self.epilogue is not None:
                        pixel = Pixel(first.image, first.row, f.add(first.column, further))
                        last = self.epilogue(f, last, pixel, f.add(self.channel, start + at))
                    if last is not None:
                        f.store(last, f.at(target, further * walk.target.strides[2] + start + at, self.element))


# -------------------------------------------------------------------------------------------------- filters' gradients
def _gradient_tiling(g: Convolution, vector_bytes: int) -> _Tiling:
    return _tiling(_forward_walk(g).runs[1], g.filters, g.element, vector_bytes)


def _packed_rows(g: Convolution) -> int:
    """The rows that a panel of filters has: one for each tap and channel."""
    return g.taps * g.channels


def _partials(g: Convolution, panels: Sequence[_Panel]) -> int:
    """How many partial sums there are: it depends on the geometry alone, so that results do not depend on threads."""
    each = _packed_rows(g) * _width(panels) * g.groups * g.element.bytes
    return max(1, min(g.x.count, _PARTIALS, _PARTIAL_BYTES // max(each, 1)))


def partial_elements(geometry: Convolution, vector_bytes: int) -> int:
    """The elements that the partial sums of the filter's gradient take."""
    panels = _panels(geometry.filters, _gradient_tiling(geometry, vector_bytes))
    return _partials(geometry, panels) * geometry.groups * _packed_rows(geometry) * _width(panels)


def write_partial_filters(
    f: Function, geometry: Convolution, x: Value, dy: Value, partials: Value, share: Share, vector_bytes: int
) -> None:
    """Partial sums of the gradient of a convolution's filter, each over some of the images."""
    g, walk = geometry, _forward_walk(geometry)
    require_halo(g.x, g.x_halo, "input")
    tiling = _gradient_tiling(g, vector_bytes)
    panels = _panels(g.filters, tiling)
    count = _partials(g, panels)
    each_group = _packed_rows(g) * _width(panels)
    each = g.groups * each_group
    for panel in panels:
        sums = _PartialSums(f, g, walk, panel, tiling.rows, each_group, x, dy)
        cuts = max(1, min(sums.strips, -(-_CHUNKS // count)))

        def chunk(number: Value, sums: _PartialSums = sums, cuts: int = cuts) -> None:
            partial, cut = divided(f, number, cuts)
            target = f.at(partials, affine(f, 0, (partial, each)), g.element)
            sums.write(target, bounds_of(f, partial, count, g.x.count), bounds_of(f, cut, cuts, sums.strips))

        f.loop(*share.of(f, count * cuts), 1, [], chunk)


@dataclass(frozen=True)
class _PartialSums:
    """The gradient of the filters of a panel, summed over some images.

    It consists of strips, one for each row of taps (or each tap, where the taps of a row are no neighbours) of each panel.
    A tile is some rows of a strip.
    """

    f: Function
    g: Convolution
    walk: _Walk
    panel: _Panel
    most: int
    each_group: int
    x: Value
    dy: Value

    @property
    def strips(self) -> int:
        return self.g.groups * self.panel.count * prod(self.walk.runs[0])

    @property
    def block(self) -> tuple[int, int]:
        """Images and rows of a block: so few that they stay in the near cache while all tiles go over them."""
        g = self.g
        near = _NEAR_BYTES // ((g.channels * prod(g.strides) + g.filters) * g.element.bytes)
        pixels = max(64, min(_PIXELS, near))
        rows = max(1, min(g.y.height, pixels // max(g.y.width, 1)))
        return (max(1, pixels // max(g.y.height * g.y.width, 1)) if rows == g.y.height else 1), rows

    def write(self, target: Value, images: tuple[Operand, Operand], strips: tuple[Operand, Operand]) -> None:
        """Write the strips within bounds, summed over the images within bounds."""
        f, (images_at_once, rows_at_once) = self.f, self.block
        last_image, height = f.int64(images[1]), self.g.y.height
        f.loop(*strips, 1, [], lambda strip: self._clear(self._strip(target, strip)[0]))

        def block(image: Value) -> None:
            end = f.min(f.add(image, images_at_once), last_image)
            f.loop(0, height, rows_at_once, [], lambda row: rows(image, end, row))

        def rows(image: Value, end: Value, row: Value) -> None:
            ends = f.min(f.add(row, rows_at_once), height) if height % rows_at_once else f.add(row, rows_at_once)
            f.loop(*strips, 1, [], lambda strip: self._add(target, strip, (image, end), (row, ends)))

        f.loop(*images, images_at_once, [], block)

    def _strip(self, target: Value, strip: Value) -> tuple[Value, Value, Value]:
        """Where a strip lies, where the input's elements for its first row lie, and where the output's gradient does."""
        f, g, walk, panel = self.f, self.g, self.walk, self.panel
        (tap_rows, tap_columns), length = walk.runs
        filters, tap = divided(f, strip, tap_rows * tap_columns)
        group, which = divided(f, filters, panel.count)
        tap_row, tap_column = divided(f, tap, tap_columns)
        rows = _packed_rows(g)
        steps = (which, panel.width * rows), (tap, length * panel.width)
        before = panel.before * rows
        at = affine(f, before, (group, self.each_group), *steps)
        x = affine(f, walk.start, (group, g.channels), (tap_row, walk.tap_steps[0]), (tap_column, walk.tap_steps[1]))
        dy = affine(f, g.y.start + panel.first, (group, g.filters), (which, panel.width))
        return f.at(target, at, g.element), f.at(self.x, x, g.element), f.at(self.dy, dy, g.element)

    def _clear(self, target: Value) -> None:
        f, length = self.f, self.walk.runs[1]

        def row(number: Value) -> None:
            at = f.at(target, f.mul(number, self.panel.width), self.g.element)
            for lanes, column in self.panel.columns:
                f.store(zero(self.g.element.of(lanes)), f.at(at, column, self.g.element))

        f.loop(0, length, 1, [], row)

    def _add(self, target: Value, strip: Value, images: tuple[Value, Value], rows: tuple[Value, Value]) -> None:
        """Add what some rows of some images give to a strip, tile by tile."""
        target, x, dy = self._strip(target, strip)
        for start, size, count in _split(self.walk.runs[1], self.most):
            self.f.loop(
                0,
                count,
                1,
                [],
                lambda tile, start=start, size=size: self._tile(
                    target, x, dy, affine(self.f, start, (tile, size)), size, images, rows
                ),
            )

    def _tile(
        self,
        target: Value,
        x: Value,
        dy: Value,
        first: Value,
        size: int,
        images: tuple[Value, Value],
        rows: tuple[Value, Value],
    ) -> None:
        f, element = self.f, self.g.element
        x = f.at(x, first, element)
        places = [
            (f.at(target, affine(f, number * self.panel.width + column, (first, self.panel.width)), element), lanes)
            for number in range(size)
            for lanes, column in self.panel.columns
        ]

        def image(number: Value, *sums: Value) -> list[Value]:
            return f.loop(*rows, 1, sums, lambda row, *inner: self._row(x, dy, number, row, size, inner), at_least_once=True)

        sums = [f.load(place, element.of(lanes)) for place, lanes in places]
        sums = f.loop(*images, 1, sums, image, at_least_once=True) if self.block[0] > 1 else image(images[0], *sums)
        for (place, _), total in zip(places, sums, strict=True):
            f.store(total, place)

    def _row(self, x: Value, dy: Value, image: Value, row: Value, size: int, sums: Sequence[Value]) -> list[Value]:
        """Add what one row of outputs gives to a tile."""
        f, g, element = self.f, self.g, self.g.element
        x = f.at(x, affine(f, 0, (image, g.x.strides[0]), (row, self.walk.steps[0])), element)
        dy = f.at(dy, affine(f, 0, (image, g.y.strides[0]), (row, g.y.strides[1])), element)

        def step(pointers: Sequence[Value], totals: Sequence[Value]) -> list[Value]:
            at, gradient = pointers
            scalars = [f.at(at, number, element) for number in range(size)]
            return _step(f, element, totals, scalars, self.panel, gradient)

        starts = [(x, self.walk.steps[1]), (dy, g.y.strides[2])]
        return _unrolled(f, element, g.y.width, size * len(self.panel.vectors), starts, sums, step)


def write_filter_gradient(
    f: Function,
    geometry: Convolution,
    partials: Value,
    d_filter: Value,
    share: Share,
    vector_bytes: int,
    epilogue: Callable[[Function, Value, Value, Value], Value | None] | None = None,
) -> None:
    """The gradient of a convolution's filter, [M, C / groups, rows, columns], from its partial sums, which are overwritten.

    ``epilogue(f, value, row, column)`` is given neighbours in the row of one filter, from a column on.
    """
    g, element = geometry, geometry.element
    panels = _panels(g.filters, _gradient_tiling(g, vector_bytes))
    rows, each_group = _packed_rows(g), _packed_rows(g) * _width(panels)
    for panel in panels:

        def chunk(number: Value, panel: _Panel = panel) -> None:
            group, which = divided(f, number, panel.count)
            start = affine(f, panel.before * rows, (group, each_group), (which, panel.width * rows))
            sums = f.at(partials, start, element)
            _add_partials(f, element, sums, rows, panel, _partials(g, panels), g.groups * each_group)
            first = affine(f, panel.first, (group, g.filters), (which, panel.width))

            def source(row: Value, column: Value) -> Load:
                at = f.at(sums, column, element)

                def load(further: int, lanes: int) -> Value:
                    packed = f.mul(_packed_row(f, g, f.add(row, further)), panel.width)
                    return f.load(f.at(at, packed, element), element.of(lanes))

                return load

            def target(column: Value, row: Value) -> Store:
                at = f.opaque(f.at(d_filter, affine(f, 0, (f.add(first, column), rows), (row, 1)), element))

                def store(further: int, value: Value) -> None:
                    last: Value | None = value
                    if epilogue is not None:
                        last = epilogue(f, value, f.add(f.add(first, column), further), row)
                    if last is not None:
                        f.store(last, f.at(at, further * rows, element))

                return store

            write_transposed(f, rows, panel.filters, square_lanes(element, vector_bytes), source, target)

        f.loop(*share.of(f, g.groups * panel.count), 1, [], chunk)


def _add_partials(f: Function, element: Type, sums: Value, rows: int, panel: _Panel, count: int, apart: int) -> None:
    """Add the other partial sums of a panel to the first, in their order."""
    if count == 1:
        return

    def add(number: Value) -> None:
        at = f.at(sums, f.mul(number, panel.width), element)
        for lanes, column in panel.columns:
            place = f.at(at, column, element)
            total = f.load(place, element.of(lanes))
            for partial in range(1, count):
                total = f.add(total, f.load(f.at(place, partial * apart, element), element.of(lanes)))
            f.store(total, place)

    f.loop(0, rows, 1, [], add)


def _packed_row(f: Function, g: Convolution, index: Value) -> Value:
    """The row of a panel where an element of a filter is, which lies at an index within the filter."""
    channel, tap = divided(f, index, g.taps)
    return f.add(f.mul(tap, g.channels), channel)


Writer = Callable[[Function, Value, Value, Value, Value, Share], None]


def filter_gradient_phases(
    geometry: Convolution,
    vector_bytes: int,
    epilogue: Callable[[Function, Value, Value, Value], Value | None] | None = None,
) -> list[tuple[Writer, int]]:
    """The kernels for the gradient of a filter, ``writer(f, x, dy, partials, d_filter, share)``, and the flags of their
    records. `partial_elements` says how large `partials` is."""

    def sums(f: Function, x: Value, dy: Value, partials: Value, d_filter: Value, share: Share) -> None:
        write_partial_filters(f, geometry, x, dy, partials, share, vector_bytes)

    def total(f: Function, x: Value, dy: Value, partials: Value, d_filter: Value, share: Share) -> None:
        write_filter_gradient(f, geometry, partials, d_filter, share, vector_bytes, epilogue)

    return [(sums, 0), (total, AFTER_BARRIER)]


# ------------------------------------------------------------------------------------------------------------- packing
def packed_elements(geometry: Convolution, vector_bytes: int) -> int:
    """The elements of the filter that `write_packed_filter` packs."""
    panels = _panels(geometry.filters, _forward_tiling(geometry, vector_bytes))
    return geometry.groups * _packed_rows(geometry) * _width(panels)


def packed_elements_for_input(geometry: Convolution, vector_bytes: int) -> int:
    """The elements of the filter that `write_packed_filter_for_input` packs."""
    panels = _panels(geometry.channels, _input_tiling(geometry, vector_bytes))
    return geometry.groups * geometry.taps * geometry.filters * _width(panels)


def write_packed_filter(
    f: Function, geometry: Convolution, filter_: Value, packed: Value, share: Share, vector_bytes: int
) -> None:
    """Pack a filter [M, C / groups, rows, columns] for `write_forward`: [groups][panels][taps][channels][filters of a panel]."""
    g, element = geometry, geometry.element
    panels = _panels(g.filters, _forward_tiling(g, vector_bytes))
    rows = _packed_rows(g)
    for panel in panels:

        def chunk(number: Value, panel: _Panel = panel) -> None:
            group, which = divided(f, number, panel.count)
            start = affine(f, panel.before * rows, (group, rows * _width(panels)), (which, panel.width * rows))
            first = affine(f, panel.first, (group, g.filters), (which, panel.width))
            source = f.at(filter_, f.mul(first, rows), element)
            packed_panel = f.at(packed, start, element)

            def place(column: Value) -> Value:
                return f.at(packed_panel, f.mul(_packed_row(f, g, column), panel.width), element)

            plain, scattered = from_rows(f, element, source, rows), to_places(f, element, place)
            write_transposed(f, panel.filters, rows, square_lanes(element, vector_bytes), plain, scattered)
            _clear_rest(f, element, packed_panel, rows, panel)

        f.loop(*share.of(f, g.groups * panel.count), 1, [], chunk)


def _clear_rest(f: Function, element: Type, packed: Value, rows: int, panel: _Panel) -> None:
    """Write zeros into the lanes of a packed panel that have no filter."""
    if panel.filters == panel.width:
        return

    def row(number: Value) -> None:
        at = f.at(packed, f.mul(number, panel.width), element)
        for column in range(panel.filters, panel.width):
            f.store(zero(element), f.at(at, column, element))

    f.loop(0, rows, 1, [], row)


def write_packed_filter_for_input(
    f: Function, geometry: Convolution, filter_: Value, packed: Value, share: Share, vector_bytes: int
) -> None:
    """Pack a filter [M, C / groups, rows, columns] for `write_input_gradient`: for each walk over the input,
    [groups][panels][taps of the walk][M / groups][channels of a panel]."""
    g, element = geometry, geometry.element
    panels = _panels(g.channels, _input_tiling(g, vector_bytes))
    width = _width(panels)
    for panel in panels:

        def chunk(number: Value, panel: _Panel = panel) -> None:
            group, which = divided(f, number, panel.count)
            first = affine(f, panel.first, (which, panel.width))
            source = f.at(filter_, affine(f, 0, (group, g.filters * g.channels * g.taps), (first, g.taps)), element)
            targets = []
            for taps, before in _taps_of_walks(g):
                start = (before * width + panel.before * len(taps)) * g.filters
                steps = (group, g.taps * g.filters * width), (which, panel.width * len(taps) * g.filters)
                targets.append((f.at(packed, affine(f, start, *steps), element), taps))

            def row(filter_: Value) -> None:
                at, to = f.at(source, f.mul(filter_, g.channels * g.taps), element), f.mul(filter_, panel.width)
                _copy_taps(f, g, at, [(f.at(target, to, element), taps) for target, taps in targets], panel)

            f.loop(0, g.filters, 1, [], row)

        f.loop(*share.of(f, g.groups * panel.count), 1, [], chunk)


def _taps_of_walks(g: Convolution) -> list[tuple[list[int], int]]:
    """For each walk over the input: its taps, by their numbers in the filter, and how many taps the walks before it have."""
    walks: list[tuple[list[int], int]] = []
    before = 0
    for rows in g.phases[0]:
        for columns in g.phases[1]:
            taps = [row * g.kernel[1] + column for row in rows.taps for column in columns.taps]
            walks.append((taps, before))
            before += len(taps)
    return walks


def _copy_taps(f: Function, g: Convolution, source: Value, targets: Sequence[tuple[Value, list[int]]], panel: _Panel) -> None:
    """Copy the elements of one filter for the channels of a panel, [channels][taps], to rows of the panel, which begin at a
    pointer for each walk and have the walk's taps in their order."""
    element, apart = g.element, g.filters * panel.width

    def channel(number: Value) -> None:
        at = f.opaque(f.at(source, f.mul(number, g.taps), element))
        for target, taps in targets:
            to = f.opaque(f.at(target, number, element))
            for place, tap in enumerate(taps):
                f.store(f.load(f.at(at, tap, element), element), f.at(to, place * apart, element))

    def neighbours(start: int, lanes: int) -> None:
        value = f.load(f.at(source, start, element), element.of(lanes))
        for target, taps in targets:
            if taps:
                f.store(value, f.at(target, start, element))

    if g.taps == 1:
        for lanes, column in panel.columns:
            for start, part in parts(min(lanes, panel.filters - column), lanes):
                neighbours(column + start, part)
    else:
        f.loop(0, panel.filters, 1, [], channel)
    for column in range(panel.filters, panel.width):
        for target, taps in targets:
            for place in range(len(taps)):
                f.store(zero(element), f.at(target, place * apart + column, element))
