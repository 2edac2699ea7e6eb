"""Products of bytes with sums of 32 bits: a matrix without signs times a packed matrix with signs.

A tile of sums stays in registers while the kernel loops over the inner extent, a few steps at a time: each lane adds the products
of 4 neighbouring bytes of a row (one instruction, VPDPBUSD) or, without it, of 2 bytes widened to 16 bits (VPMADDWD). Neither
saturates, as the older VPMADDUBSW does, so sums are exact up to 32 bits, and wrap beyond. The rows of a tile are widened once,
into a small array; the packed matrix, as it is loaded. Processors other than x86 multiply in 32 bits. Some multiply tiles (AMX):
16 rows of 64 bytes by 64 x 16 bytes with one instruction.

The packed matrix lies in panels of one vector of columns; for each step of a panel, the bytes of a column are neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TypeAlias

from .emitter import BYTE, INT16, INT32, UBYTE, Function, Operand, Type, Value, constant, zero
from .kernel import Share
from .target import Target
from .tiles import split

_IN_FLIGHT = 8
"""Independent sums that keep a processor busy: latency times issues per cycle."""


@dataclass(frozen=True)
class PackedShape:
    """The shape of the right matrix, and its strides along both extents before it is packed, in bytes.

    Its rows are cut into `segments` of `inner` rows each; a step never reaches from one segment into the next.
    """

    inner: int
    columns: int
    strides: tuple[int, int]
    segments: int = 1


@dataclass(frozen=True)
class ProductShape:
    """Where the elements of a product lie.

    Attributes:
        places: the extents of the result without its columns, with strides of the left operand (in bytes) and of the result (in
            elements): the last one is cut into tiles.
        right: the packed matrix.
        segments: the extents of the segments of a row of the left operand, with their strides in bytes; a segment is contiguous.
    """

    places: tuple[tuple[int, int, int], ...]
    right: PackedShape
    segments: tuple[tuple[int, int], ...] = ()


Epilogue: TypeAlias = "Callable[[Function, Value, Sequence[Value], Value], Value]"
"""``epilogue(f, value, places, column)``: the vector to store in place of a finished vector of neighbouring columns."""


_WIDENED = 512
"""Bytes of each row of a tile that are widened to 16 bits at a time: they stay in the nearest cache."""
_TILE = 64
"""Bytes of a row of a tile: the inner extent that one instruction multiplies."""
_TILE_ROWS = 16


def _depth(target: Target) -> int:
    """How many bytes of a row a lane multiplies in one step."""
    return 4 if target.byte_products in ("fours", "tiles") else 2


def _fits_tiles(shape: PackedShape, target: Target) -> bool:
    """Whether a packed matrix has whole tiles: its last one ends with the segment, and begins with zeros for rows of the tile
    before."""
    return target.byte_products == "tiles" and shape.inner >= _TILE


def _panel_bytes(shape: PackedShape, target: Target) -> int:
    block = _TILE if _fits_tiles(shape, target) else _depth(target)
    return target.lanes(4) * -(-shape.inner // block) * block * shape.segments


def packed_bytes(shape: PackedShape, target: Target) -> int:
    """Bytes that `write_pack` fills."""
    return -(-shape.columns // target.lanes(4)) * _panel_bytes(shape, target)


def write_pack(f: Function, shape: PackedShape, b: Value, packed: Value, share: Share, target: Target) -> None:
    """Write code that packs the right matrix; columns and steps beyond its extents are zeros."""
    depth, lanes, size = _depth(target), target.lanes(4), _panel_bytes(shape, target)
    vector = BYTE.of(lanes * depth)
    down, along = shape.strides
    block = _TILE if _fits_tiles(shape, target) else depth
    in_blocks, behind = shape.inner // block * block, shape.inner % block
    shift = _TILE - behind if block == _TILE else 0
    """How far the rows behind the last whole block move down."""
    whole_panels = shape.columns // lanes

    def numbers(rows: Value, steps: Value, first: int, stop: int, shift: int, columns: Operand) -> None:
        """Pack some rows of a segment number by number."""

        def column(place: Value) -> None:
            source, into = f.at(rows, f.mul(place, along), BYTE), f.at(steps, f.mul(place, depth), BYTE)

            def one(row: Value) -> None:
                step, byte = f.divided(f.add(row, shift), depth)
                at = f.at(into, f.add(f.mul(step, lanes * depth), byte), BYTE)
                f.store_number(f.load(f.at(source, f.mul(row, down), BYTE), BYTE), at)

            f.loop(first, stop, 1, [], one)

        f.loop(0, columns, 1, [], column)

    def vectors(rows: Value, steps: Value) -> None:
        """Pack the whole blocks of a segment, step by step."""

        def one(step: Value) -> None:
            source, into = f.at(rows, f.mul(step, depth * down), BYTE), f.at(steps, f.mul(step, lanes * depth), BYTE)
            if down == 1:
                for place in range(lanes):
                    f.store(f.load(f.at(source, place * along, BYTE), BYTE.of(depth)), f.at(into, place * depth, BYTE))
                return
            parts = [f.load(f.at(source, row * down, BYTE), BYTE.of(lanes)) for row in range(depth)]
            while len(parts) > 1:  # join neighbouring rows, column by column
                width = parts[0].type.lanes // lanes
                order = [side * lanes * width + at for place in range(0, lanes * width, width) for side in (0, 1)
                         for at in range(place, place + width)]  # fmt: skip
                parts = [f.shuffle(first, second, order) for first, second in zip(parts[::2], parts[1::2], strict=True)]
            f.store(parts[0], into)

        f.loop(0, in_blocks // depth, 1, [], one)

    def panel(number: Value, is_whole: bool) -> None:
        to, first = f.at(packed, f.mul(number, size), BYTE), f.mul(number, lanes)
        if behind or not is_whole:
            f.loop(0, size, lanes * depth, [], lambda place: f.store(zero(vector), f.at(to, place, BYTE)))
        columns: Operand = lanes if is_whole else f.min(f.sub(shape.columns, first), lanes)

        def segment(number: Value) -> None:
            rows = f.at(f.at(b, f.mul(first, along), BYTE), f.mul(number, shape.inner * down), BYTE)
            steps = f.at(to, f.mul(number, size // shape.segments), BYTE)
            if is_whole and lanes > 1 and 1 in (down, along):
                vectors(rows, steps)
            else:
                numbers(rows, steps, 0, in_blocks, 0, columns)
            numbers(rows, steps, in_blocks, shape.inner, shift, columns)

        f.loop(0, shape.segments, 1, [], segment)

    start, stop = share.of(f, -(-shape.columns // lanes))
    f.loop(start, f.min(f.int64(stop), whole_panels), 1, [], partial(panel, is_whole=True))
    f.loop(f.max(f.int64(start), whole_panels), stop, 1, [], partial(panel, is_whole=False))


def write_product(
    f: Function,
    shape: ProductShape,
    a: Value,
    packed: Value,
    c: Value,
    share: Share,
    target: Target,
    element: Type = INT32,
    epilogue: Epilogue | None = None,
) -> None:
    """Write code for one thread's share of a product.

    Args:
        a, packed, c: pointers to the first elements.
        element: the type of the elements that are stored; other than INT32 if an epilogue makes them.
    """
    writer, lanes = _IntegerProductWriter(f, shape, target, element, epilogue), target.lanes(4)
    panels = -(-shape.right.columns // lanes)
    rows = shape.places[-1][0]
    blocks, lines = -(-rows // writer.chunk_rows), prod(extent for extent, _, _ in shape.places[:-1])
    for start, vectors, count in split(panels, writer.vectors):

        def chunk(number: Value, start: int = start, vectors: int = vectors) -> None:
            group, at = f.divided(number, blocks * lines)
            line, block = f.divided(at, blocks)
            panel = f.add(f.mul(group, vectors), start)
            writer.panels(a, f.at(packed, f.mul(panel, writer.panel_bytes), BYTE), c, line, block, f.mul(panel, lanes), vectors)

        f.loop(*share.of(f, count * blocks * lines), 1, [], chunk)
    writer.end()


@dataclass(frozen=True)
class _IntegerTile:
    """A tile of the result: its extents, its place, and the pointer to the first of its rows."""

    rows: int
    vectors: int
    places: tuple[Value, ...]
    column: Value
    c: Value


class _IntegerProductWriter:
    """Writes the tiles of a product."""

    def __init__(self, f: Function, shape: ProductShape, target: Target, element: Type, epilogue: Epilogue | None) -> None:
        self.f, self.shape, self.target, self.element, self.epilogue = f, shape, target, element, epilogue
        self.lanes, self.depth = target.lanes(4), _depth(target)
        rows, limits = shape.places[-1][0], target.limits
        self.in_tiles = _fits_tiles(shape.right, target)
        self.by_tiles = self.in_tiles and rows >= limits.byte_tile_rows
        self.tile_rows = min(rows, _TILE_ROWS)
        self.chunk_rows = limits.integer_rows
        if self.by_tiles:
            self.vectors, self.rows = 2, 2 * _TILE_ROWS
            self.chunk_rows = -(-self.chunk_rows // self.rows) * self.rows
            f.configure_tiles([self.tile_rows] * 6 + [_TILE_ROWS] * 2)
        else:
            self.vectors = min(limits.tile_vectors, max(target.registers // 8, 1))
            spare = 2 if target.byte_products == "pairs" else 3
            self.rows = max(min((target.registers - self.vectors - spare) // self.vectors, limits.tile_rows), 1)
        self.panel_bytes = _panel_bytes(shape.right, target)
        self.vector = INT32.of(self.lanes)
        self.staged = f.stack(INT32, self.rows * self.vectors * self.lanes)
        """The sums of a tile, row by row."""
        self.widened = f.stack(INT16, self.rows * _WIDENED) if target.byte_products == "pairs" else None
        """Bytes of the rows of a tile as numbers of 16 bits."""

    def end(self) -> None:
        if self.by_tiles:
            self.f.release_tiles()

    def panels(self, a: Value, packed: Value, c: Value, line: Value, block: Value, column: Value, vectors: int) -> None:
        """Write the tiles of neighbouring panels for a block of rows of a line."""
        f, (*outer, (rows, a_stride, c_stride)) = self.f, self.shape.places
        places: list[Value] = []
        for extent, by_a, by_c in reversed(outer):
            line, place = f.divided(line, extent)
            places.insert(0, place)
            a, c = f.at(a, f.mul(place, by_a), UBYTE), f.at(c, f.mul(place, by_c), self.element)
        begin = f.mul(block, self.chunk_rows)
        stop = f.min(f.add(begin, self.chunk_rows), rows)

        def tile(row: Value, size: int) -> None:
            first = f.at(a, f.mul(row, a_stride), UBYTE)
            multiply = self._multiply_tiles if self.by_tiles else self._multiply_vectors
            staged = multiply(first, packed, size, vectors)
            self._finish(staged, _IntegerTile(size, vectors, (*places, row), column, f.at(c, f.mul(row, c_stride), self.element)))

        if rows <= min(self.rows, self.chunk_rows):
            tile(f.int64(0), rows)
            return
        main = f.add(begin, f.mul(f.div(f.sub(stop, begin), self.rows), self.rows))
        f.loop(begin, main, self.rows, [], partial(tile, size=self.rows))
        remainders = {part % self.rows for part in (min(rows, self.chunk_rows), rows % self.chunk_rows)}
        for size in sorted(remainders - {0}):
            with f.when(f.compare("eq", f.sub(stop, main), size)):
                tile(f.between(main, max(self.tile_rows - size, 0) if self.by_tiles else 0, rows - size), size)

    def _of_segments(self, a: Value, packed: Value, sums: Sequence[Value], add: Callable[..., list[Value]]) -> list[Value]:
        """Write the loops over segments: ``add(a, packed, sums)`` adds the products of a segment to the sums."""
        f = self.f

        def loop_over(
            segments: Sequence[tuple[int, int]], a: Value, packed: Value, size: int, sums: Sequence[Value]
        ) -> list[Value]:
            """Write a loop over the first axis of segments, around the loops over the others; `packed` has `size` bytes."""
            if not segments:
                return add(a, packed, sums)
            (count, stride), *inner = segments
            size //= count

            def add_segment(number: Value, *sums: Value) -> list[Value]:
                segment, filters = f.at(a, f.mul(number, stride), UBYTE), f.at(packed, f.mul(number, size), BYTE)
                return loop_over(inner, segment, filters, size, sums)

            return f.loop(0, count, 1, sums, add_segment)

        axes = [axis for axis in self.shape.segments if axis[0] > 1]
        return loop_over(axes, a, packed, self.panel_bytes, sums)

    def _multiply_tiles(self, a: Value, packed: Value, rows: int, vectors: int) -> Value:
        """Compute sums by tiles of AMX; returns the place of the sums of the first row.

        Where the last tile of rows is not full, it begins with rows of the tile before, whose sums are computed again.
        """
        f, stride, width = self.f, self.shape.places[-1][1], vectors * self.lanes
        height, inner = self.tile_rows, self.shape.right.inner
        starts = sorted({min(0, rows - height), rows - height})
        tiles = [(number, panel) for number in range(len(starts)) for panel in range(vectors)]
        for number, panel in tiles:
            f.clear_tile(2 * number + panel)

        def step(a: Value, b: Value) -> None:
            for panel in range(vectors):
                f.load_tile(6 + panel, f.at(b, panel * self.panel_bytes, BYTE), _TILE_ROWS, _TILE)
            for number, start in enumerate(starts):
                f.load_tile(4 + number, f.at(a, start * stride, UBYTE), height, stride)
            for number, panel in tiles:
                f.multiply_tiles(2 * number + panel, 4 + number, 6 + panel)

        def one(_: Value, a: Value, b: Value) -> tuple[Value, ...]:
            step(a, b)
            return f.opaque(f.at(a, _TILE, UBYTE)), f.opaque(f.at(b, _TILE * self.lanes, BYTE))

        def add(a: Value, b: Value, _: Sequence[Value]) -> list[Value]:
            f.loop(0, inner // _TILE, 1, [a, b], one, shows_index=True)
            if inner % _TILE:
                last = inner // _TILE * _TILE * self.lanes
                step(f.at(a, inner - _TILE, UBYTE), f.at(b, last, BYTE))
            return []

        self._of_segments(a, packed, [], add)
        for number, panel in tiles:
            place = (starts[number] - starts[0]) * width + panel * self.lanes
            f.store_tile(2 * number + panel, f.at(self.staged, place, INT32), height, width * INT32.bytes)
        return f.at(self.staged, -starts[0] * width, INT32)

    def _multiply_vectors(self, a: Value, packed: Value, rows: int, vectors: int) -> Value:
        """Compute the sums of a tile in registers; returns the place of the sums of the first row."""
        f = self.f

        def add(a: Value, b: Value, sums: Sequence[Value]) -> list[Value]:
            return self._segment(a, b, sums, rows, vectors)

        for number, vector in enumerate(self._of_segments(a, packed, [zero(self.vector)] * (rows * vectors), add)):
            f.store(vector, f.at(self.staged, number * self.lanes, INT32))
        return self.staged

    def _segment(self, a: Value, packed: Value, sums: Sequence[Value], rows: int, vectors: int) -> list[Value]:
        """Add the products of a segment to the sums of a tile."""
        if self.widened is not None:
            return self._widened_segment(self.widened, a, packed, sums, rows, vectors)
        f, depth, stride = self.f, self.depth, self.shape.places[-1][1]
        inner, step_bytes = self.shape.right.inner, self.lanes * depth
        count = rows * vectors
        copies = max(_IN_FLIGHT // count, 1) if inner >= 2 * _IN_FLIGHT * depth else 1

        def step(a: Value, b: Value, sums: Sequence[Value], bytes_: int = depth) -> list[Value]:
            panels = (f.at(b, number * self.panel_bytes, BYTE) for number in range(vectors))
            of_b = [self._right(f.load(panel, BYTE.of(step_bytes))) for panel in panels]
            of_a = (self._bytes(f.at(a, row * stride, UBYTE), bytes_) for row in range(rows))
            pairs = ((x, y) for x in of_a for y in of_b)
            return [self._add_products(total, x, y) for (x, y), total in zip(pairs, sums, strict=True)]

        steps = inner // _TILE * _TILE // depth if self.in_tiles else inner // depth
        first_a, first_b = a, packed
        a, b, *sums = self._loop_in_copies(copies, steps, (a, packed, UBYTE), sums, step)
        if self.in_tiles and inner % _TILE:
            zeros = (_TILE - inner % _TILE) // depth
            a = f.at(first_a, inner - _TILE + zeros * depth, UBYTE)
            b = f.at(first_b, (steps + zeros) * step_bytes, BYTE)
            return self._loop_in_copies(1, _TILE // depth - zeros, (a, b, UBYTE), sums, step)[2:]
        return step(a, b, sums, inner % depth) if inner % depth and not self.in_tiles else list(sums)

    def _widened_segment(
        self, widened: Value, a: Value, packed: Value, sums: Sequence[Value], rows: int, vectors: int
    ) -> list[Value]:
        """Add the products of a segment to the sums of a tile, in pairs of numbers of 16 bits."""
        f, inner = self.f, self.shape.right.inner

        def part(first: Value, *sums: Value, size: int = _WIDENED) -> list[Value]:
            self._widen(f.at(a, first, UBYTE), widened, rows, size)
            return self._products_of_pairs(widened, f.at(packed, f.mul(first, self.lanes), BYTE), sums, (rows, vectors, size))

        main = inner // _WIDENED * _WIDENED
        sums = f.loop(0, main, _WIDENED, sums, part)
        return part(f.int64(main), *sums, size=inner - main) if inner > main else list(sums)

    def _widen(self, a: Value, widened: Value, rows: int, size: int) -> None:
        """Widen some bytes of each row of a tile; behind an odd number of them comes a 0."""
        f, lanes = self.f, self.target.lanes(2)

        def row(number: Value) -> None:
            source = f.at(a, f.mul(number, self.shape.places[-1][1]), UBYTE)
            into = f.at(widened, f.mul(number, _WIDENED), INT16)

            def piece(at: Value, lanes: int = lanes) -> None:
                f.store(f.convert(f.load(f.at(source, at, UBYTE), UBYTE.of(lanes)), INT16), f.at(into, at, INT16))

            begin = 0
            for width in (lanes >> shift for shift in range(lanes.bit_length())):
                end = size // width * width
                f.loop(begin, end, width, [], partial(piece, lanes=width))
                begin = end
            if size % 2:
                f.store_number(constant(0, INT16), f.at(into, size, INT16))

        f.loop(0, rows, 1, [], row)

    def _products_of_pairs(
        self, widened: Value, packed: Value, sums: Sequence[Value], extents: tuple[int, int, int]
    ) -> list[Value]:
        """Add the products of widened rows to the sums of a tile. `extents`: the rows, vectors and numbers of a row."""
        f, (rows, vectors, size) = self.f, extents
        steps, count = -(-size // 2), rows * vectors
        copies = max(min(_IN_FLIGHT // count, steps // _IN_FLIGHT), 1)

        def step(a: Value, b: Value, sums: Sequence[Value]) -> list[Value]:
            panels = (f.at(b, number * self.panel_bytes, BYTE) for number in range(vectors))
            of_b = [f.convert(f.load(panel, BYTE.of(2 * self.lanes)), INT16) for panel in panels]
            of_a = (f.load(f.at(a, row * _WIDENED, INT16), INT32, align=2) for row in range(rows))
            pairs = ((f.bits_as(f.splat(x, self.lanes), INT16), y) for x in of_a for y in of_b)
            return [f.add(total, self._multiply_pairs(x, y)) for (x, y), total in zip(pairs, sums, strict=True)]

        return self._loop_in_copies(copies, steps, (widened, packed, INT16), sums, step)[2:]

    def _multiply_pairs(self, x: Value, y: Value) -> Value:
        """Sum the products of neighbouring numbers of 16 bits, in 32 bits."""
        bits = 8 * self.target.vector_bytes
        name = {128: "x86.sse2.pmadd.wd", 256: "x86.avx2.pmadd.wd", 512: "x86.avx512.pmaddw.d.512"}[bits]
        return self.f.of_processor(name, self.vector, x, y)

    def _loop_in_copies(
        self,
        copies: int,
        steps: int,
        factors: tuple[Value, Value, Type],
        sums: Sequence[Value],
        step: Callable[[Value, Value, Sequence[Value]], list[Value]],
    ) -> list[Value]:
        """Loop over steps with several copies of the sums in turn; returns both pointers behind the steps, and the sums.

        Args:
            factors: pointers to the numbers of the rows and to the packed matrix, and the type of the former.
        """
        f, (a, b, element), count, depth = self.f, factors, len(sums), self.depth

        def moved(a: Value, b: Value, steps: int) -> tuple[Value, Value]:
            return f.at(a, steps * depth, element), f.at(b, steps * depth * self.lanes, BYTE)

        def some(_: Value, a: Value, b: Value, *sums: Value, copies: int = copies) -> tuple[Value, ...]:
            following: list[Value] = []
            for copy in range(copies):
                following += step(*moved(a, b, copy), sums[copy * count : (copy + 1) * count])
            return *map(f.opaque, moved(a, b, copies)), *following

        main = steps // copies * copies
        begin = [a, b, *sums, *[zero(self.vector)] * (count * (copies - 1))]
        a, b, *sums = f.loop(0, main, copies, begin, some, shows_index=True)
        while len(sums) > count:
            sums = [f.add(x, y) for x, y in zip(sums[:count], sums[-count:], strict=True)] + sums[count:-count]
        return f.loop(main, steps, 1, [a, b, *sums], partial(some, copies=1), shows_index=True)

    def _bytes(self, pointer: Value, count: int) -> list[Value]:
        """The bytes of a row for one step, as factors of `_add_products`; beyond `count`, zeros."""
        f = self.f
        if self.depth == 4 and count == 4:
            fours = f.splat(f.load(pointer, INT32, align=1), self.lanes)
        else:
            numbers = [f.convert(f.load(f.at(pointer, place, UBYTE), UBYTE), INT32) for place in range(count)]
            if self.depth == 2:
                return [f.splat(number, self.lanes) for number in numbers]
            number = numbers[0]
            for place, following in enumerate(numbers[1:], 1):
                number = f.bit_or(number, f.shift_left(following, 8 * place))
            fours = f.splat(number, self.lanes)
        return [fours]

    def _right(self, vector: Value) -> list[Value]:
        """The bytes of a vector of the packed matrix, as factors of `_add_products`."""
        f = self.f
        if self.depth == 2:
            return [f.convert(f.shuffle(vector, vector, range(place, 2 * self.lanes, 2)), INT32) for place in (0, 1)]
        return [f.bits_as(vector, INT32)]

    def _add_products(self, sums: Value, a: list[Value], b: list[Value]) -> Value:
        """Add the products of the bytes of a row (`_bytes`) and of a vector of the packed matrix (`_right`)."""
        f, bits = self.f, 8 * self.target.vector_bytes
        for x, y in zip(a, b, strict=False):  # the last step of a row may have fewer bytes
            if self.depth == 2:
                sums = f.add(sums, f.mul(y, x))
            else:
                sums = f.of_processor(f"x86.avx512.vpdpbusd.{bits}", sums.type, sums, x, y)
        return sums

    def _finish(self, staged: Value, tile: _IntegerTile) -> None:
        """Store a tile, after the epilogue if there is one; lanes beyond the last column are left out."""
        f, width, columns = self.f, tile.vectors * self.lanes, self.shape.right.columns
        stop: Operand = width if columns % self.lanes == 0 else f.min(f.sub(columns, tile.column), width)
        *outer, first = tile.places

        def line(row: Value) -> None:
            places = [*outer, f.add(first, row)]
            to = f.at(tile.c, f.mul(row, self.shape.places[-1][2]), self.element)

            def piece(begin: Value, lanes: int) -> None:
                value = f.load(f.at(staged, f.add(f.mul(row, width), begin), INT32), INT32.of(lanes))
                column = f.add(tile.column, begin)
                result = value if self.epilogue is None else self.epilogue(f, value, places, column)
                f.store(result, f.at(to, column, self.element))

            self._pieces(stop, piece)

        f.loop(0, tile.rows, 1, [], line)

    def _pieces(self, stop: Operand, piece: Callable[..., Iterable[Value] | None]) -> None:
        """Write loops over `stop` columns in vectors, ever narrower ones at the end."""
        f = self.f
        if isinstance(stop, int):
            for place in range(0, stop, self.lanes):
                piece(f.int64(place), self.lanes)
            return
        begin: Operand = 0
        for lanes in (self.lanes >> shift for shift in range(self.lanes.bit_length())):
            if lanes < self.lanes and self.shape.right.columns % (2 * lanes) < lanes:
                continue  # the number of columns has no such remainder
            end: Operand = f.mul(f.div(stop, lanes), lanes)
            f.loop(begin, end, lanes, [], partial(piece, lanes=lanes))
            begin = end
