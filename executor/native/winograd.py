"""Convolutions of 3 x 3 taps by the algorithm of Winograd, F(2 x 2, 3 x 3): 16 products where the definition has 36.

Four outputs that are neighbours are linear in the 16 elements of the image under them: with ``y = A^T [(G g G^T) * (B^T d B)] A``
for a filter g and a part d of an image, both of one channel, where ``*`` multiplies element by element (Lavin and Gray, Fast
Algorithms for Convolutional Neural Networks, 2015, section 4.1). So images are transformed, each of the 16 places is a product of
matrices of its own, over the channels, and the sums are transformed back. Results are rounded otherwise than those of the
definition, and not worse: sums over channels are shorter. Where an output reads an infinity, there may be a NaN.

A block of work is some rows of tiles of 2 x 2 outputs. It is transformed to the workspace of its thread, and multiplied there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from .emitter import BYTE, FLOAT, Function, Operand, Value, constant, zero
from .geometry import Convolution, Walk, forward_walk, input_walks
from .images import Epilogue, Pixel, affine, divided, parts
from .kernel import Share
from .tiles import Panel, Tiling, add_products, panels_of, split, tiling_of, unrolled, width_of

__all__ = ["Blocks", "forward_blocks", "input_blocks", "write_blocks", "write_transformed_filter"]

_PLACES = 16
"""Places of a transformed tile."""
_TAPS = 9
_LEAST_CHANNELS = 16
"""With fewer channels, or filters, the transformations take what the products save."""
_FEWEST_TILES = 8
"""With fewer tiles, the transformation of the filter takes what the products save."""
_NEAR_BYTES = 512 << 10
"""What a block should have of the workspace, to stay in the second cache of common processors."""
_ALIASED_BYTES = 1024
"""Several rows at multiples of this distance take the same places of the nearest cache."""
_CHUNKS = 32
"""Chunks that work is cut into, at least, where shapes allow it: enough for the threads of common machines."""
_LEAST_TILES, _MOST_TILES = 24, 128
"""Tiles of a block: filters are read from further away once for each block."""


@dataclass(frozen=True)
class Blocks:
    """How a walk is computed in blocks of tiles.

    Attributes:
        tiles: rows of tiles in an image, and tiles in a row.
        rows: rows of tiles in a block; a block may go on in the next image.
    """

    walk: Walk
    tiles: tuple[int, int]
    rows: int
    vector_bytes: int

    @property
    def count(self) -> int:
        """The number of blocks."""
        return self.walk.target.count * self.tiles[0] // self.rows

    @cached_property
    def parts(self) -> int:
        """How many parts the filters are cut into where there are few blocks. Each part transforms the images for itself."""
        panels = self.panels[0].count if len(self.panels) == 1 else 1
        return next(
            parts for parts in range(1, panels + 1) if panels % parts == 0 and (parts * self.count >= _CHUNKS or parts == panels)
        )

    @property
    def size(self) -> int:
        """Tiles in a block."""
        return self.rows * self.tiles[1]

    @property
    def lanes(self) -> int:
        return self.vector_bytes // FLOAT.bytes

    @cached_property
    def tiling(self) -> Tiling:
        return tiling_of(self.size, self.walk.filters, FLOAT, self.vector_bytes, self.image_row)

    @cached_property
    def panels(self) -> list[Panel]:
        return panels_of(self.walk.filters, self.tiling)

    @property
    def filter_elements(self) -> int:
        """Elements of the transformed filter: [places][panels][channels][filters of a panel]."""
        return _PLACES * self.walk.channels * width_of(self.panels)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the filter before it is transformed."""
        return _TAPS * self.walk.channels * width_of(self.panels) * FLOAT.bytes

    @property
    def image_row(self) -> int:
        """Elements from a transformed tile to the next."""
        return _apart(self.walk.channels, self.lanes)

    @property
    def image_plane(self) -> int:
        """Elements from a place of the transformed tiles to the next."""
        return self.size * self.image_row + self.lanes

    @property
    def sums_row(self) -> int:
        """Elements from the sums of a tile to those of the next."""
        return _apart(width_of(self.panels) // self.parts, self.lanes)

    @property
    def sums_plane(self) -> int:
        """Elements from a place of the sums to the next."""
        return self.size * self.sums_row + self.lanes

    @property
    def bytes(self) -> int:
        """Bytes of workspace that a thread needs."""
        return _PLACES * (self.image_plane + self.sums_plane) * FLOAT.bytes


def _apart(count: int, lanes: int) -> int:
    """Elements from a row to the next: whole vectors, and one more where rows would take the same places of a cache."""
    whole = -(-count // lanes) * lanes
    return whole + lanes if whole * FLOAT.bytes % _ALIASED_BYTES == 0 else whole


def forward_blocks(g: Convolution, vector_bytes: int) -> Blocks | None:
    """The blocks of a convolution's output, if this algorithm computes it, and faster."""
    return _blocks_of(g, forward_walk(g), vector_bytes)


def input_blocks(g: Convolution, vector_bytes: int) -> Blocks | None:
    """The blocks of the gradient of a convolution's input, if this algorithm computes it, and faster."""
    return _blocks_of(g, input_walks(g)[0], vector_bytes) if g.strides == (1, 1) and g.x.height and g.x.width else None


def _blocks_of(g: Convolution, walk: Walk, vector_bytes: int) -> Blocks | None:
    if g.element != FLOAT or g.groups != 1 or tuple(map(len, walk.taps)) != (3, 3):
        return None
    are_neighbours = (g.strides, g.dilations, walk.apart) == ((1, 1),) * 3
    if not are_neighbours or min(walk.channels, walk.filters) < _LEAST_CHANNELS:
        return None
    rows, columns = -(-walk.extents[0] // 2), -(-walk.extents[1] // 2)
    all_rows = walk.target.count * rows
    if all_rows * columns < _FEWEST_TILES:
        return None
    bytes_of_tile = _PLACES * (walk.channels + walk.filters) * FLOAT.bytes
    most = min(max(_NEAR_BYTES // bytes_of_tile, _LEAST_TILES), _MOST_TILES) // columns
    of_block = max(count for count in range(1, max(most, 1) + 1) if all_rows % count == 0)
    return Blocks(walk, (rows, columns), of_block, vector_bytes)


# ---------------------------------------------------------------------------------------------------- transformations
Row = Sequence[Value]


def _in_rows_and_columns(matrix: Sequence[Row], transform: Callable[[Row], Row]) -> list[Value]:
    """A matrix whose columns, and then whose rows, are transformed; its elements in their order."""
    columns = [transform(column) for column in zip(*matrix, strict=True)]
    return [value for row in zip(*columns, strict=True) for value in transform(row)]


def _of_image(f: Function, d: Row) -> Row:
    """``B^T d``."""
    return [f.sub(d[0], d[2]), f.add(d[1], d[2]), f.sub(d[2], d[1]), f.sub(d[1], d[3])]


def _of_filter(f: Function, g: Row) -> Row:
    """``G g``."""
    half = f.splat(constant(0.5, FLOAT), g[0].type.lanes)
    ends, middle = f.mul(f.add(g[0], g[2]), half), f.mul(g[1], half)
    return [g[0], f.add(ends, middle), f.sub(ends, middle), g[2]]


def _of_sums(f: Function, m: Row) -> Row:
    """``A^T m``."""
    return [f.add(f.add(m[0], m[1]), m[2]), f.sub(f.sub(m[1], m[2]), m[3])]


def write_transformed_filter(f: Function, blocks: Blocks, packed: Value, target: Value, share: Share) -> None:
    """Transform a filter that lies in the panels of `blocks`: [panels][taps][channels][filters of a panel]."""
    channels = blocks.walk.channels
    width = width_of(blocks.panels)
    for panel in blocks.panels:

        def row(number: Value, panel: Panel = panel) -> None:
            which, channel = divided(f, number, channels)
            source = affine(f, panel.before * _TAPS * channels, (which, panel.width * _TAPS * channels), (channel, panel.width))
            start = affine(f, panel.before * channels, (which, panel.width * channels), (channel, panel.width))
            for lanes, column in panel.columns:
                taps = [
                    f.load(f.at(packed, f.add(source, tap * channels * panel.width + column), FLOAT), FLOAT.of(lanes))
                    for tap in range(_TAPS)
                ]
                rows = [taps[first : first + 3] for first in range(0, _TAPS, 3)]
                for place, value in enumerate(_in_rows_and_columns(rows, lambda taps: _of_filter(f, taps))):
                    f.store(value, f.at(target, f.add(start, place * channels * width + column), FLOAT))

        f.loop(*share.of(f, panel.count * channels), 1, [], row)


# ---------------------------------------------------------------------------------------------------------------- walk
def write_blocks(
    f: Function,
    blocks: Blocks,
    source: Value,
    filter_: Value,
    target: Value,
    workspace: Value,
    share: Share,
    epilogue: Epilogue | None,
) -> None:
    """Write a walk; `filter_` comes from `write_transformed_filter`, `workspace` points to `Blocks.bytes` for each thread."""
    images = f.at(workspace, f.mul(share.thread, blocks.bytes), BYTE)
    sums = f.at(images, _PLACES * blocks.image_plane, FLOAT)

    def chunk(number: Value) -> None:
        part, which = divided(f, number, blocks.count)
        first = f.mul(which, blocks.rows)
        block = _Block(f, blocks, source, filter_, target, images, sums, part, epilogue)
        block.each_tile(first, block.transform)
        f.loop(0, _PLACES, 1, [], block.multiply)
        block.each_tile(first, block.store)

    f.loop(*share.of(f, blocks.parts * blocks.count), 1, [], chunk)


@dataclass(frozen=True)
class _Tile:
    """A tile: its number in the block, its image, and the first row and column of its outputs."""

    number: Value
    image: Value
    row: Value
    column: Value


@dataclass(frozen=True)
class _Block:
    """A block of tiles with a part of the filters, as it is written."""

    f: Function
    blocks: Blocks
    source: Value
    filter: Value
    target: Value
    images: Value
    sums: Value
    part: Value
    epilogue: Epilogue | None

    def each_tile(self, first: Value, body: Callable[[_Tile], None]) -> None:
        """Write ``body(tile)`` for the tiles of the rows from a first one on."""
        f, (rows, columns) = self.f, self.blocks.tiles

        def row(further: Value) -> None:
            image, row = divided(f, f.add(first, further), rows)

            def tile(column: Value) -> None:
                number = affine(f, 0, (further, columns), (column, 1))
                body(_Tile(number, image, f.mul(row, 2), f.mul(column, 2)))

            f.loop(0, columns, 1, [], tile)

        f.loop(0, self.blocks.rows, 1, [], row)

    def transform(self, tile: _Tile) -> None:
        """Transform what of the image is under a tile."""
        f, blocks, walk = self.f, self.blocks, self.blocks.walk
        places = (tile.image, walk.source.strides[0]), (tile.row, walk.steps[0]), (tile.column, walk.steps[1])
        under = f.at(self.source, affine(f, walk.start, *places), FLOAT)
        place = f.at(self.images, f.mul(tile.number, blocks.image_row), FLOAT)

        down, along = (self._steps(axis, first) for axis, first in enumerate((tile.row, tile.column)))

        def some(channel: Operand, lanes: int) -> None:
            at = f.at(under, channel, FLOAT)
            rows = [[f.load(f.at(f.at(at, row, FLOAT), column, FLOAT), FLOAT.of(lanes)) for column in along] for row in down]
            for number, value in enumerate(_in_rows_and_columns(rows, lambda d: _of_image(f, d))):
                f.store(value, f.at(f.at(place, number * blocks.image_plane, FLOAT), channel, FLOAT))

        self._each_vector(walk.channels, some)

    def _steps(self, axis: int, first: Value) -> list[Operand]:
        """How far the four elements under a tile are from the first along an axis. The last is read twice where only one output
        is there, to which the other does not belong: it may lie outside."""
        f, step = self.f, self.blocks.walk.tap_steps[axis]
        has_two = self._has_two(axis, first)
        last: Operand = 3 * step if has_two is None else f.select(has_two, f.int64(3 * step), f.int64(2 * step))
        return [0, step, 2 * step, last]

    def _has_two(self, axis: int, first: Value) -> Value | None:
        """Whether a tile has two outputs along an axis; None if all have."""
        extent = self.blocks.walk.extents[axis]
        return self.f.compare("slt", first, extent - 1) if extent % 2 else None

    def multiply(self, place: Value) -> None:
        """Multiply what is at one place of all tiles with what is there of all filters."""
        f, blocks, walk = self.f, self.blocks, self.blocks.walk
        width = width_of(blocks.panels)
        images = f.at(self.images, f.mul(place, blocks.image_plane), FLOAT)
        sums = f.at(self.sums, f.mul(place, blocks.sums_plane), FLOAT)
        of_part = affine(f, 0, (place, walk.channels * width), (self.part, walk.channels * width // blocks.parts))
        filters = f.at(self.filter, of_part, FLOAT)
        for panel in blocks.panels:

            def with_panel(which: Value, panel: Panel = panel) -> None:
                start = affine(f, panel.before * walk.channels, (which, panel.width * walk.channels))
                packed = f.at(filters, start, FLOAT)
                column = f.at(sums, affine(f, panel.before, (which, panel.width)), FLOAT)
                for first, size, count in split(blocks.size, blocks.tiling.rows):
                    f.loop(
                        0,
                        count,
                        1,
                        [],
                        lambda number, first=first, size=size: self._rows(
                            affine(f, first, (number, size)), size, panel, images, packed, column
                        ),
                    )

            f.loop(0, panel.count // blocks.parts, 1, [], with_panel)

    def _rows(self, first: Value, size: int, panel: Panel, images: Value, packed: Value, sums: Value) -> None:
        """Multiply some rows of transformed tiles with a panel."""
        f, blocks = self.f, self.blocks
        x = f.at(images, f.mul(first, blocks.image_row), FLOAT)

        def step(pointers: Sequence[Value], totals: Sequence[Value]) -> list[Value]:
            at, row = pointers
            scalars = [f.at(at, number * blocks.image_row, FLOAT) for number in range(size)]
            return add_products(f, FLOAT, totals, scalars, panel, row)

        totals = [zero(FLOAT.of(lanes)) for _ in range(size) for lanes in panel.vectors]
        channels, work = blocks.walk.channels, size * len(panel.vectors)
        totals = unrolled(f, FLOAT, channels, work, [(x, 1), (packed, panel.width)], totals, step)
        out = f.at(sums, f.mul(first, blocks.sums_row), FLOAT)
        for number in range(size):
            for (_, column), total in zip(panel.columns, totals[number * len(panel.vectors) :], strict=False):
                f.store(total, f.at(out, number * blocks.sums_row + column, FLOAT))

    def store(self, tile: _Tile) -> None:
        """Transform the sums of a tile back, and store its outputs."""
        f, blocks, walk = self.f, self.blocks, self.blocks.walk
        sums = f.at(self.sums, f.mul(tile.number, blocks.sums_row), FLOAT)
        row, column = f.add(tile.row, walk.first[0]), f.add(tile.column, walk.first[1])
        has_two = [self._has_two(axis, first) for axis, first in enumerate((tile.row, tile.column))]

        filters = walk.filters // blocks.parts
        before = f.mul(self.part, filters)

        def some(number: Operand, lanes: int) -> None:
            planes = [f.at(sums, place * blocks.sums_plane, FLOAT) for place in range(_PLACES)]
            values = [f.load(f.at(plane, number, FLOAT), FLOAT.of(lanes)) for plane in planes]
            channel = f.add(before, number)
            rows = [values[first : first + 4] for first in range(0, _PLACES, 4)]
            outputs = _in_rows_and_columns(rows, lambda m: _of_sums(f, m))
            for number, value in enumerate(outputs):
                with contextlib.ExitStack() as stack:
                    for axis, is_second in enumerate(divmod(number, 2)):
                        if is_second and (condition := has_two[axis]) is not None:
                            stack.enter_context(f.when(condition))
                    self._store_output(
                        Pixel(tile.image, f.add(row, number // 2), column).neighbour(f, number % 2), channel, value
                    )

        self._each_vector(filters, some)

    def _store_output(self, pixel: Pixel, channel: Value, value: Value) -> None:
        f, last = self.f, value
        if self.epilogue is not None:
            result = self.epilogue(f, value, pixel, channel)
            if result is None:
                return
            last = result
        f.store(last, f.at(self.target, self.blocks.walk.target.offset(f, pixel, channel), FLOAT))

    def _each_vector(self, count: int, some: Callable[[Operand, int], None]) -> None:
        """Write ``some(first, lanes)`` for so many neighbours: a loop over whole vectors, and what is left."""
        lanes = self.blocks.lanes
        whole = count // lanes * lanes
        self.f.loop(0, whole, lanes, [], lambda first: some(first, lanes))
        for first, rest in parts(count - whole, lanes):
            some(whole + first, rest)
