"""The gradient of a filter of 3 x 3 taps by Winograd's algorithm: the transpose of the algorithm in `winograd.py`.

The outputs of a tile are ``A^T [(G g G^T) * (B^T d B)] A``, so the gradient of g is ``G^T [(A dy A^T) * (B^T d B)] G``, summed
over all tiles. That is one matrix product over tiles for each place, and one transformation at the end. Partial sums over parts
of the tiles are added up in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from .emitter import BYTE, FLOAT, Function, Operand, Value, constant, zero
from .filter_gradient import RowEpilogue, add_partials, to_filter
from .geometry import Convolution, forward_walk
from .images import Images, affine, bounds_of, each_vector, from_places, square_lanes, write_transposed
from .kernel import Share
from .packing import packed_row, packed_rows
from .target import Target
from .tiles import Panel, Tiling, add_products, panels_of, split, tiling_of, unrolled, width_of
from .winograd import PLACES, TAPS, ImageTiles, Row, Tile, Tiles, in_rows_and_columns, store_places, tiles_of


@dataclass(frozen=True)
class GradientBlocks:
    """The blocks of tiles for the gradient of a filter. A chunk is some blocks times one part of the filters."""

    tiles: Tiles
    gradient: Images
    """The layout of the output's gradient."""

    @cached_property
    def tiling(self) -> Tiling:
        walk = self.tiles.walk
        return tiling_of(walk.channels, walk.filters, FLOAT, self.tiles.target, 1)

    @cached_property
    def panels(self) -> list[Panel]:
        return panels_of(self.tiles.walk.filters, self.tiling)

    @property
    def parts(self) -> int:
        """The number of parts of the filters: the panels if all are alike, else 1."""
        return self.panels[0].count if len(self.panels) == 1 else 1

    @property
    def elements(self) -> int:
        """Number of elements of one partial sum: [panels][places][channels][filters of a panel]."""
        return PLACES * self.tiles.walk.channels * width_of(self.panels)

    @property
    def partials(self) -> int:
        """The number of partial sums."""
        limits = self.tiles.target.limits
        fitting = min(limits.gradient_partials, limits.winograd_partial_bytes // (self.elements * FLOAT.bytes))
        return min(self.tiles.blocks, max(fitting, -(-limits.winograd_gradient_chunks // self.parts), 1))

    @property
    def tile_stride(self) -> int:
        """Stride of the transformed tiles of the output's gradient, in elements."""
        return self.tiles.row_of(width_of(self.panels) // self.parts)

    @property
    def shared_bytes(self) -> int:
        """Bytes of workspace that all threads share: the partial sums."""
        return -(-self.partials * self.elements * FLOAT.bytes // 64) * 64

    @property
    def bytes(self) -> int:
        """Bytes of workspace per thread, in addition to the shared bytes."""
        return self.tiles.bytes_with(self.tile_stride)


def gradient_blocks(g: Convolution, target: Target) -> GradientBlocks | None:
    """The blocks for the gradient of a convolution's filter; None if this algorithm does not apply or is slower."""
    tiles = tiles_of(g, forward_walk(g), target, target.limits.winograd_gradient_tiles)
    return GradientBlocks(tiles, g.y) if tiles is not None else None


def _of_gradient(f: Function, y: Row) -> Row:
    """``A y``."""
    return [y[0], f.add(y[0], y[1]), f.sub(y[0], y[1]), f.neg(y[1])]


def _of_products(f: Function, s: Row) -> Row:
    """``G^T s``."""
    half = f.splat(constant(0.5, FLOAT), s[0].type.lanes)
    total, difference = f.mul(f.add(s[1], s[2]), half), f.mul(f.sub(s[1], s[2]), half)
    return [f.add(s[0], total), difference, f.add(total, s[3])]


def write_partial_sums(f: Function, blocks: GradientBlocks, x: Value, dy: Value, workspace: Value, share: Share) -> None:
    """Write a kernel for the partial sums. The workspace holds the shared bytes, then the bytes of each thread."""
    tiles = blocks.tiles
    local = f.at(workspace, affine(f, blocks.shared_bytes, (share.thread, blocks.bytes)), BYTE)
    images = ImageTiles(f, tiles, x, local)
    gradients = f.at(local, PLACES * tiles.plane_of(tiles.tile_stride), FLOAT)

    def chunk(number: Value) -> None:
        part, partial = f.divided(number, blocks.partials)
        steps = (partial, blocks.elements), (part, blocks.elements // blocks.parts)
        sums = _Sums(f, blocks, images, gradients, dy, f.at(workspace, affine(f, 0, *steps), FLOAT), part)
        each_vector(f, blocks.elements // blocks.parts, tiles.lanes, sums.clear)

        def block(block_index: Value) -> None:
            first = f.mul(block_index, tiles.rows)
            images.transform(first)
            images.for_tiles(first, sums.transform)
            f.loop(0, PLACES, 1, [], sums.add)

        f.loop(*bounds_of(f, partial, blocks.partials, tiles.blocks), 1, [], block)

    f.loop(*share.of(f, blocks.parts * blocks.partials), 1, [], chunk)


@dataclass(frozen=True)
class _Sums:
    """Writes one partial sum, for a part of the filters."""

    f: Function
    blocks: GradientBlocks
    images: ImageTiles
    gradients: Value
    """The pointer to a block of transformed tiles of the output's gradient."""
    dy: Value
    sums: Value
    part: Value

    def clear(self, first: Operand, lanes: int) -> None:
        self.f.store(zero(FLOAT.of(lanes)), self.f.at(self.sums, first, FLOAT))

    def transform(self, tile: Tile) -> None:
        """Transform the output's gradient under a tile, with zeros outside of the image."""
        f, blocks, tiles, images = self.f, self.blocks, self.blocks.tiles, self.blocks.gradient
        filters = tiles.walk.filters // blocks.parts
        places = zip((tile.image, tile.row, tile.column, f.mul(self.part, filters)), (*images.strides, 1), strict=True)
        at = f.at(self.dy, affine(f, images.start, *places), FLOAT)
        output = f.at(self.gradients, f.mul(tile.number, blocks.tile_stride), FLOAT)
        has_two = [self.images.has_two(axis, first) for axis, first in enumerate((tile.row, tile.column))]
        steps: list[Operand] = [
            step if condition is None else f.select(condition, f.int64(step), f.int64(0))
            for step, condition in zip(images.strides[1:], has_two, strict=True)
        ]

        def some(number: Operand, lanes: int) -> None:
            def element(down: int, along: int) -> Value:
                place = f.at(at, number, FLOAT)
                for is_second, step in zip((down, along), steps, strict=True):
                    place = f.at(place, step, FLOAT) if is_second else place
                value = f.load(place, FLOAT.of(lanes))
                for is_second, condition in zip((down, along), has_two, strict=True):
                    if is_second and condition is not None:
                        value = f.select(condition, value, zero(FLOAT.of(lanes)))
                return value

            transformed = in_rows_and_columns([[element(0, 0), element(0, 1)], [element(1, 0), element(1, 1)]], self._row)
            store_places(f, transformed, f.opaque(f.at(output, number, FLOAT)), tiles.plane_of(blocks.tile_stride))

        each_vector(f, filters, tiles.lanes, some)

    def _row(self, y: Row) -> Row:
        return _of_gradient(self.f, y)

    def add(self, place: Value) -> None:
        """Add the products at one place of all tiles."""
        f, blocks, tiles = self.f, self.blocks, self.blocks.tiles
        channels = tiles.walk.channels
        images = self.images.at_place(place)
        gradients = f.at(self.gradients, f.mul(place, tiles.plane_of(blocks.tile_stride)), FLOAT)
        for panel in blocks.panels:

            def with_panel(panel_index: Value, panel: Panel = panel) -> None:
                columns = f.at(gradients, affine(f, panel.before, (panel_index, panel.width)), FLOAT)
                before = (panel_index, PLACES * channels * panel.width), (place, channels * panel.width)
                sums = f.at(self.sums, affine(f, panel.before * PLACES * channels, *before), FLOAT)
                for start, size, count in split(channels, blocks.tiling.rows):

                    def rows(number: Value, start: int = start, size: int = size) -> None:
                        first = affine(f, start, (number, size))
                        self._rows(f.at(images, first, FLOAT), columns, f.at(sums, f.mul(first, panel.width), FLOAT), size, panel)

                    f.loop(0, count, 1, [], rows)

            f.loop(0, panel.count // blocks.parts, 1, [], with_panel)

    def _rows(self, x: Value, columns: Value, sums: Value, size: int, panel: Panel) -> None:
        """Add the products of some channels with a panel of filters."""
        f, tiles = self.f, self.blocks.tiles

        def step(pointers: Sequence[Value], totals: Sequence[Value]) -> list[Value]:
            at, row = pointers
            scalars = [f.at(at, number, FLOAT) for number in range(size)]
            return add_products(f, FLOAT, totals, scalars, panel, panel.load_padded(f, FLOAT, row))

        sums = f.opaque(sums)
        places = [(number * panel.width + column, lanes) for number in range(size) for lanes, column in panel.columns]
        totals = [f.load(f.at(sums, at, FLOAT), FLOAT.of(lanes)) for at, lanes in places]
        starts = [(x, tiles.tile_stride), (columns, self.blocks.tile_stride)]
        most = tiles.target.limits.unrolled_products
        totals = unrolled(f, FLOAT, tiles.size, size * len(panel.vectors), starts, totals, step, most)
        for (at, _), total in zip(places, totals, strict=True):
            f.store(total, f.at(sums, at, FLOAT))


def write_filter_gradient(
    f: Function,
    g: Convolution,
    blocks: GradientBlocks,
    workspace: Value,
    d_filter: Value,
    share: Share,
    target: Target,
    epilogue: RowEpilogue | None = None,
) -> None:
    """Write a kernel for the gradient of the filter, [M, C, 3, 3]. It overwrites the partial sums. For `epilogue`, see
    `filter_gradient.write_filter_gradient`."""
    channels, rows = blocks.tiles.walk.channels, packed_rows(g)
    for panel in blocks.panels:
        size = PLACES * channels * panel.width

        def chunk(panel_index: Value, panel: Panel = panel, size: int = size) -> None:
            sums = f.at(workspace, affine(f, panel.before * PLACES * channels, (panel_index, size)), FLOAT)
            add_partials(f, FLOAT, sums, size, blocks.partials, blocks.elements, target)
            f.loop(0, channels, 1, [], lambda channel: _transform_back(f, sums, channels, channel, panel, blocks.tiles.lanes))

            def place(row: Value) -> Value:
                return f.at(sums, f.mul(packed_row(f, g, row), panel.width), FLOAT)

            first = affine(f, panel.first, (panel_index, panel.width))
            source, output = from_places(f, FLOAT, place), to_filter(f, FLOAT, d_filter, rows, first, epilogue)
            write_transposed(f, rows, panel.filters, square_lanes(FLOAT, target), source, output)

        f.loop(*share.of(f, panel.count), 1, [], chunk)


def _transform_back(f: Function, sums: Value, channels: int, channel: Value, panel: Panel, lanes: int) -> None:
    """Transform the sums of one channel in place, from 16 places to 9 taps."""

    def some(column: Operand, lanes: int) -> None:
        at = f.opaque(f.at(sums, affine(f, 0, (channel, panel.width), (column, 1)), FLOAT))
        places = [f.at(at, place * channels * panel.width, FLOAT) for place in range(PLACES)]
        values = [f.load(place, FLOAT.of(lanes)) for place in places]
        matrix = [values[first : first + 4] for first in range(0, PLACES, 4)]
        taps = in_rows_and_columns(matrix, lambda s: _of_products(f, s))
        for place, value in zip(places[:TAPS], taps, strict=True):
            f.store(value, place)

    each_vector(f, panel.width, lanes, some)
