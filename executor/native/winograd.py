"""Convolutions of 3 x 3 taps by Winograd's algorithm F(2 x 2, 3 x 3): 16 products instead of 36.

2 x 2 outputs are linear in the 16 image elements under them: ``y = A^T [(G g G^T) * (B^T d B)] A`` for a filter g and a part d of
an image, both of one channel; ``*`` multiplies elementwise (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks,
2015, section 4.1). So the kernel transforms the image, computes one matrix product over the channels for each of the 16 places,
and transforms the sums back. Rounding errors differ from the direct algorithm but are not larger, as sums over channels are
shorter. If an output reads an infinity, it may become NaN.

A block of work is some rows of tiles of 2 x 2 outputs. It is transformed into the workspace of its thread and multiplied there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from .costs import uses_winograd
from .emitter import BYTE, FLOAT, Function, Operand, Value, constant, zero
from .geometry import Convolution, Walk, forward_walk, input_walks
from .images import Epilogue, Pixel, affine, each_vector, store_pixel
from .kernel import Share
from .target import Target
from .tiles import Panel, Tiling, add_products, panels_of, split, tiling_of, unrolled, width_of

PLACES = 16
"""Places of a transformed tile."""
TAPS = 9
_ALIASED_BYTES = 1024
"""Rows at multiples of this distance map to the same sets of the L1 cache."""


@dataclass(frozen=True)
class Tiles:
    """Tiles of 2 x 2 outputs of a walk, in blocks.

    Attributes:
        of_image: rows of tiles in an image, and tiles in a row.
        rows: rows of tiles in a block; a block may continue in the next image.
    """

    walk: Walk
    of_image: tuple[int, int]
    rows: int
    target: Target

    @property
    def lanes(self) -> int:
        return self.target.lanes(FLOAT.bytes)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self.walk.output.count * self.of_image[0] // self.rows

    @property
    def size(self) -> int:
        """Tiles in a block."""
        return self.rows * self.of_image[1]

    @property
    def tile_stride(self) -> int:
        """Stride of transformed tiles in a block of the workspace, [places][tiles][channels], in elements."""
        return self.row_of(self.walk.channels)

    def row_of(self, count: int) -> int:
        """Stride of rows of `count` elements: full vectors, plus one vector if rows would alias in the cache."""
        padded = -(-count // self.lanes) * self.lanes
        return padded + self.lanes if padded * FLOAT.bytes % _ALIASED_BYTES == 0 else padded

    def bytes_with(self, row: int) -> int:
        """Bytes of workspace for a block of transformed tiles, and for one row with stride `row` per tile, at each place."""
        return PLACES * (self.plane_of(self.tile_stride) + self.plane_of(row)) * FLOAT.bytes

    def plane_of(self, row: int) -> int:
        """Stride from one place of all tiles to the next, for rows with stride `row`, in elements."""
        return self.size * row + self.lanes


def tiles_of(g: Convolution, walk: Walk, target: Target, fewest: int) -> Tiles | None:
    """The tiles of a walk; None if this algorithm does not apply or is slower. It needs at least `fewest` tiles."""
    if g.element != FLOAT or g.groups != 1 or tuple(map(len, walk.taps)) != (3, 3):
        return None
    are_neighbours = (g.strides, g.dilations, walk.spacing) == ((1, 1),) * 3
    if not are_neighbours:
        return None
    rows, columns = -(-walk.extents[0] // 2), -(-walk.extents[1] // 2)
    all_rows = walk.output.count * rows
    if not uses_winograd(walk.channels, walk.filters, all_rows * columns, fewest, target.limits):
        return None
    bytes_of_tile = PLACES * (walk.channels + walk.filters) * FLOAT.bytes
    least_of_block, most_of_block = target.limits.winograd_block_tiles
    most = min(max(target.limits.winograd_block_bytes // bytes_of_tile, least_of_block), most_of_block) // columns
    of_block = max(count for count in range(1, max(most, 1) + 1) if all_rows % count == 0)
    return Tiles(walk, (rows, columns), of_block, target)


@dataclass(frozen=True)
class Blocks:
    """The blocks of tiles for a convolution's output, or for the gradient of its input."""

    tiles: Tiles

    @cached_property
    def parts(self) -> int:
        """The number of parts of the filters, more than one if there are few blocks. Each part repeats the image transform."""
        panels = self.panels[0].count if len(self.panels) == 1 else 1
        choices = [parts for parts in range(1, panels + 1) if panels % parts == 0]
        least = self.tiles.target.limits.convolution_chunks
        return next((parts for parts in choices if parts * self.tiles.blocks >= least), panels)

    @cached_property
    def tiling(self) -> Tiling:
        tiles = self.tiles
        return tiling_of(tiles.size, tiles.walk.filters, FLOAT, tiles.target, tiles.tile_stride)

    @cached_property
    def panels(self) -> list[Panel]:
        return panels_of(self.tiles.walk.filters, self.tiling)

    @property
    def filter_elements(self) -> int:
        """Number of elements of the transformed filter: [places][panels][channels][filters of a panel]."""
        return PLACES * self.tiles.walk.channels * width_of(self.panels)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the filter before it is transformed."""
        return TAPS * self.tiles.walk.channels * width_of(self.panels) * FLOAT.bytes

    @property
    def sums_stride(self) -> int:
        """Stride of the sums of tiles, in elements."""
        return self.tiles.row_of(width_of(self.panels) // self.parts)

    @property
    def bytes(self) -> int:
        """Bytes of workspace that a thread needs."""
        return self.tiles.bytes_with(self.sums_stride)


def forward_blocks(g: Convolution, target: Target) -> Blocks | None:
    """The blocks of a convolution's output; None if this algorithm does not apply or is slower."""
    tiles = tiles_of(g, forward_walk(g), target, target.limits.winograd_tiles)
    return Blocks(tiles) if tiles is not None else None


def input_blocks(g: Convolution, target: Target) -> Blocks | None:
    """The blocks of the gradient of a convolution's input; None if this algorithm does not apply or is slower."""
    if g.strides != (1, 1) or not (g.x.height and g.x.width):
        return None
    tiles = tiles_of(g, input_walks(g)[0], target, target.limits.winograd_tiles)
    return Blocks(tiles) if tiles is not None else None


# ---------------------------------------------------------------------------------------------------- transformations
Row = Sequence[Value]


def in_rows_and_columns(matrix: Sequence[Row], transform: Callable[[Row], Row]) -> list[Value]:
    """Transform the columns and then the rows of a matrix; returns its elements, row by row."""
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


def write_transformed_filter(f: Function, blocks: Blocks, packed: Value, output: Value, share: Share) -> None:
    """Transform a filter that is packed in the panels of `blocks`: [panels][taps][channels][filters of a panel]."""
    channels, width = blocks.tiles.walk.channels, width_of(blocks.panels)
    for panel in blocks.panels:

        def row(number: Value, panel: Panel = panel) -> None:
            panel_index, channel = f.divided(number, channels)
            source = affine(
                f, panel.before * TAPS * channels, (panel_index, panel.width * TAPS * channels), (channel, panel.width)
            )
            start = affine(f, panel.before * channels, (panel_index, panel.width * channels), (channel, panel.width))

            def some(column: Operand, lanes: int) -> None:
                at = f.opaque(f.at(packed, f.add(source, column), FLOAT))
                taps = [f.load(f.at(at, tap * channels * panel.width, FLOAT), FLOAT.of(lanes)) for tap in range(TAPS)]
                rows = [taps[first : first + 3] for first in range(0, TAPS, 3)]
                transformed = in_rows_and_columns(rows, lambda taps: _of_filter(f, taps))
                store_places(f, transformed, f.opaque(f.at(output, f.add(start, column), FLOAT)), channels * width)

            each_vector(f, panel.width, blocks.tiles.lanes, some)

        f.loop(*share.of(f, panel.count * channels), 1, [], row)


# -------------------------------------------------------------------------------------------------------------- images
@dataclass(frozen=True)
class Tile:
    """A tile: its number in the block, its image, and the first row and column of its outputs."""

    number: Value
    image: Value
    row: Value
    column: Value


@dataclass(frozen=True)
class ImageTiles:
    """Transformed tiles of images.

    Attributes:
        source: the images.
        output: the pointer to a block of transformed tiles.
    """

    f: Function
    tiles: Tiles
    source: Value
    output: Value

    def transform(self, first: Value) -> None:
        """Write the transformation of a block; `first` is its first row of tiles."""
        self.for_tiles(first, self._transform)

    def for_tiles(self, first: Value, body: Callable[[Tile], None]) -> None:
        """Write ``body(tile)`` for the tiles of a block; `first` is its first row of tiles."""
        f, (rows, columns) = self.f, self.tiles.of_image

        def row(block_row: Value) -> None:
            image, row = f.divided(f.add(first, block_row), rows)

            def tile(column: Value) -> None:
                number = affine(f, 0, (block_row, columns), (column, 1))
                body(Tile(number, image, f.mul(row, 2), f.mul(column, 2)))

            f.loop(0, columns, 1, [], tile)

        f.loop(0, self.tiles.rows, 1, [], row)

    def at_place(self, place: Value) -> Value:
        """The pointer to the elements at one place of all transformed tiles."""
        return self.f.at(self.output, self.f.mul(place, self.tiles.plane_of(self.tiles.tile_stride)), FLOAT)

    def _transform(self, tile: Tile) -> None:
        """Write the transform of one tile, for all channels."""
        f, tiles, walk = self.f, self.tiles, self.tiles.walk
        places = (tile.image, walk.source.strides[0]), (tile.row, walk.steps[0]), (tile.column, walk.steps[1])
        under = f.at(self.source, affine(f, walk.start, *places), FLOAT)
        down, along = (self._steps(axis, first) for axis, first in enumerate((tile.row, tile.column)))
        output = f.at(self.output, f.mul(tile.number, tiles.tile_stride), FLOAT)

        def some(channel: Operand, lanes: int) -> None:
            at = f.opaque(f.at(under, channel, FLOAT))
            rows = [[f.load(f.at(f.at(at, row, FLOAT), column, FLOAT), FLOAT.of(lanes)) for column in along] for row in down]
            transformed = in_rows_and_columns(rows, lambda d: _of_image(f, d))
            store_places(f, transformed, f.opaque(f.at(output, channel, FLOAT)), tiles.plane_of(tiles.tile_stride))

        each_vector(f, walk.channels, tiles.lanes, some)

    def _steps(self, axis: int, first: Value) -> list[Operand]:
        """Offsets of the four elements under a tile along an axis. If the tile has only one output there, the fourth element may
        be outside, and the third is read twice."""
        f, step = self.f, self.tiles.walk.tap_steps[axis]
        has_two = self.has_two(axis, first)
        last: Operand = 3 * step if has_two is None else f.select(has_two, f.int64(3 * step), f.int64(2 * step))
        return [0, step, 2 * step, last]

    def has_two(self, axis: int, first: Value) -> Value | None:
        """Whether a tile has two outputs along an axis; None if all tiles have."""
        extent = self.tiles.walk.extents[axis]
        return self.f.compare("slt", first, extent - 1) if extent % 2 else None


def store_places(f: Function, values: Sequence[Value], output: Value, plane: int) -> None:
    """Store the values of a tile, one per place, with a stride of `plane` elements."""
    for place, value in enumerate(values):
        f.store(value, f.at(output, place * plane, FLOAT))


# ---------------------------------------------------------------------------------------------------------------- walk
def write_blocks(
    f: Function,
    blocks: Blocks,
    source: Value,
    filter_: Value,
    output: Value,
    workspace: Value,
    share: Share,
    epilogue: Epilogue | None,
) -> None:
    """Write a walk. `filter_` comes from `write_transformed_filter`; `workspace` has `Blocks.bytes` per thread."""
    tiles = blocks.tiles
    images = ImageTiles(f, tiles, source, f.at(workspace, f.mul(share.thread, blocks.bytes), BYTE))
    sums = f.at(images.output, PLACES * tiles.plane_of(tiles.tile_stride), FLOAT)

    def chunk(number: Value) -> None:
        part, block_index = f.divided(number, tiles.blocks)
        first = f.mul(block_index, tiles.rows)
        block = _TileBlock(f, blocks, images, filter_, output, sums, part, epilogue)
        images.transform(first)
        f.loop(0, PLACES, 1, [], block.multiply)
        images.for_tiles(first, block.store)

    f.loop(*share.of(f, blocks.parts * tiles.blocks), 1, [], chunk)


@dataclass(frozen=True)
class _TileBlock:
    """Writes a block of tiles times a part of the filters."""

    f: Function
    blocks: Blocks
    images: ImageTiles
    filter: Value
    output: Value
    sums: Value
    part: Value
    epilogue: Epilogue | None

    def multiply(self, place: Value) -> None:
        """Write the matrix product at one place: tiles times filters, over the channels."""
        f, blocks, tiles = self.f, self.blocks, self.blocks.tiles
        channels, width = tiles.walk.channels, width_of(blocks.panels)
        sums = f.at(self.sums, f.mul(place, tiles.plane_of(blocks.sums_stride)), FLOAT)
        of_part = affine(f, 0, (place, channels * width), (self.part, channels * width // blocks.parts))
        filters, images = f.at(self.filter, of_part, FLOAT), self.images.at_place(place)
        for panel in blocks.panels:

            def with_panel(panel_index: Value, panel: Panel = panel) -> None:
                packed = f.at(filters, affine(f, panel.before * channels, (panel_index, panel.width * channels)), FLOAT)
                column = f.at(sums, affine(f, panel.before, (panel_index, panel.width)), FLOAT)
                for start, size, count in split(tiles.size, blocks.tiling.rows):

                    def rows(number: Value, start: int = start, size: int = size) -> None:
                        self._rows(affine(f, start, (number, size)), size, panel, images, packed, column)

                    f.loop(0, count, 1, [], rows)

            f.loop(0, panel.count // blocks.parts, 1, [], with_panel)

    def _rows(self, first: Value, size: int, panel: Panel, images: Value, packed: Value, sums: Value) -> None:
        """Multiply some rows of transformed tiles with a panel."""
        f, tiles = self.f, self.blocks.tiles
        x = f.at(images, f.mul(first, tiles.tile_stride), FLOAT)

        def step(pointers: Sequence[Value], totals: Sequence[Value]) -> list[Value]:
            at, row = pointers
            scalars = [f.at(at, number * tiles.tile_stride, FLOAT) for number in range(size)]
            return add_products(f, FLOAT, totals, scalars, panel, panel.load_padded(f, FLOAT, row))

        totals = [zero(FLOAT.of(lanes)) for _ in range(size) for lanes in panel.vectors]
        work = size * len(panel.vectors)
        most = tiles.target.limits.unrolled_products
        totals = unrolled(f, FLOAT, tiles.walk.channels, work, [(x, 1), (packed, panel.width)], totals, step, most)
        out = f.opaque(f.at(sums, f.mul(first, self.blocks.sums_stride), FLOAT))
        for number in range(size):
            for (_, column), total in zip(panel.columns, totals[number * len(panel.vectors) :], strict=False):
                f.store(total, f.at(out, number * self.blocks.sums_stride + column, FLOAT))

    def store(self, tile: Tile) -> None:
        """Transform the sums of a tile back, and store its outputs."""
        f, blocks, tiles, walk = self.f, self.blocks, self.blocks.tiles, self.blocks.tiles.walk
        sums = f.at(self.sums, f.mul(tile.number, blocks.sums_stride), FLOAT)
        row, column = f.add(tile.row, walk.first[0]), f.add(tile.column, walk.first[1])
        has_two = [self.images.has_two(axis, first) for axis, first in enumerate((tile.row, tile.column))]
        filters = walk.filters // blocks.parts
        before = f.mul(self.part, filters)

        def some(number: Operand, lanes: int) -> None:
            at, plane = f.opaque(f.at(sums, number, FLOAT)), tiles.plane_of(blocks.sums_stride)
            values = [f.load(f.at(at, place * plane, FLOAT), FLOAT.of(lanes)) for place in range(PLACES)]
            rows = [values[first : first + 4] for first in range(0, PLACES, 4)]
            channel = f.add(before, number)
            for output, value in enumerate(in_rows_and_columns(rows, lambda m: _of_sums(f, m))):
                down, along = divmod(output, 2)
                with contextlib.ExitStack() as stack:
                    for axis, is_second in enumerate((down, along)):
                        if is_second and (condition := has_two[axis]) is not None:
                            stack.enter_context(f.when(condition))
                    pixel = Pixel(tile.image, f.add(row, down), column).neighbour(f, along)
                    store_pixel(f, walk.output, self.output, value, pixel, channel, self.epilogue)

        each_vector(f, filters, tiles.lanes, some)
