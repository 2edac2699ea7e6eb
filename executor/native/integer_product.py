"""Products of bytes with sums of 32 bits: a matrix without signs times a packed matrix with signs.

A tile of sums stays in registers while the kernel loops over the inner extent, a few steps at a time: each lane adds the products
of 4 neighbouring bytes of a row (one instruction, VPDPBUSD) or, without it, of 2 (VPMADDWD, of bytes widened to 16 bits). Neither
saturates, as the older VPMADDUBSW does, so sums are exact up to 32 bits, and wrap beyond. Processors other than x86 multiply
in 32 bits.

The packed matrix lies in panels of one vector of columns; for each step of a panel, the bytes of a column are neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TypeAlias

from .emitter import BYTE, INT16, INT32, UBYTE, Function, Operand, Type, Value, zero
from .kernel import Share
from .target import Target
from .tiles import split

__all__ = ["Epilogue", "PackedShape", "ProductShape", "packed_bytes", "write_pack", "write_product"]

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


def _depth(target: Target) -> int:
    """How many bytes of a row a lane multiplies in one step."""
    return 4 if target.byte_products == "fours" else 2


def _panel_bytes(shape: PackedShape, target: Target) -> int:
    depth = _depth(target)
    return target.lanes(4) * -(-shape.inner // depth) * depth * shape.segments


def packed_bytes(shape: PackedShape, target: Target) -> int:
    """Bytes that `write_pack` fills."""
    return -(-shape.columns // target.lanes(4)) * _panel_bytes(shape, target)


def write_pack(f: Function, shape: PackedShape, b: Value, packed: Value, share: Share, target: Target) -> None:
    """Write code that packs the right matrix; columns and steps beyond its extents are zeros."""
    depth, lanes, size = _depth(target), target.lanes(4), _panel_bytes(shape, target)
    vector = BYTE.of(lanes * depth)
    down, along = shape.strides

    def panel(number: Value) -> None:
        to, first = f.at(packed, f.mul(number, size), BYTE), f.mul(number, lanes)
        f.loop(0, size, lanes * depth, [], lambda place: f.store(zero(vector), f.at(to, place, BYTE)))

        def column(place: Value) -> None:
            source, into = f.at(b, f.mul(f.add(first, place), along), BYTE), f.at(to, f.mul(place, depth), BYTE)

            def segment(number: Value) -> None:
                rows = f.at(source, f.mul(number, shape.inner * down), BYTE)
                steps = f.at(into, f.mul(number, size // shape.segments), BYTE)

                def one(row: Value) -> None:
                    step, byte = f.divided(row, depth)
                    at = f.at(steps, f.add(f.mul(step, lanes * depth), byte), BYTE)
                    f.store_number(f.load(f.at(rows, f.mul(row, down), BYTE), BYTE), at)

                f.loop(0, shape.inner, 1, [], one)

            f.loop(0, shape.segments, 1, [], segment)

        f.loop(0, f.min(f.sub(shape.columns, first), lanes), 1, [], column)

    f.loop(*share.of(f, -(-shape.columns // lanes)), 1, [], panel)


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
    writer, lanes = _Writer(f, shape, target, element, epilogue), target.lanes(4)
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


@dataclass(frozen=True)
class _Tile:
    """A tile of the result: its extents, its place, and the pointer to the first of its rows."""

    rows: int
    vectors: int
    places: tuple[Value, ...]
    column: Value
    c: Value


class _Writer:
    """Writes the tiles of a product."""

    def __init__(self, f: Function, shape: ProductShape, target: Target, element: Type, epilogue: Epilogue | None) -> None:
        self.f, self.shape, self.target, self.element, self.epilogue = f, shape, target, element, epilogue
        self.lanes, self.depth = target.lanes(4), _depth(target)
        self.vectors = min(target.limits.tile_vectors, max(target.registers // 8, 1))
        self.chunk_rows = target.limits.integer_rows
        self.rows = max(min((target.registers - self.vectors - 3) // self.vectors, target.limits.tile_rows), 1)
        self.panel_bytes = _panel_bytes(shape.right, target)
        self.vector = INT32.of(self.lanes)

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
            sums = self._sums(f.at(a, f.mul(row, a_stride), UBYTE), packed, size, vectors)
            self._finish(sums, _Tile(size, vectors, (*places, row), column, f.at(c, f.mul(row, c_stride), self.element)))

        if rows <= min(self.rows, self.chunk_rows):
            tile(f.int64(0), rows)
            return
        main = f.add(begin, f.mul(f.div(f.sub(stop, begin), self.rows), self.rows))
        f.loop(begin, main, self.rows, [], partial(tile, size=self.rows))
        remainders = {part % self.rows for part in (min(rows, self.chunk_rows), rows % self.chunk_rows)}
        for size in sorted(remainders - {0}):
            with f.when(f.compare("eq", f.sub(stop, main), size)):
                tile(f.between(main, 0, rows - size), size)

    def _sums(self, a: Value, packed: Value, rows: int, vectors: int) -> list[Value]:
        """Compute the sums of a tile, row by row."""
        f = self.f

        def add(a: Value, packed: Value, sums: Sequence[Value], segments: tuple[tuple[int, int], ...], size: int) -> list[Value]:
            if not segments:
                return self._segment(a, packed, sums, rows, vectors)
            (count, stride), *inner = segments
            size //= count

            def one(number: Value, *sums: Value) -> list[Value]:
                of_a, of_b = f.at(a, f.mul(number, stride), UBYTE), f.at(packed, f.mul(number, size), BYTE)
                return add(of_a, of_b, sums, tuple(inner), size)

            return f.loop(0, count, 1, sums, one)

        several = tuple(segment for segment in self.shape.segments if segment[0] > 1)
        return add(a, packed, [zero(self.vector)] * (rows * vectors), several, self.panel_bytes)

    def _segment(self, a: Value, packed: Value, sums: Sequence[Value], rows: int, vectors: int) -> list[Value]:
        """Add the products of a segment to the sums of a tile."""
        f, depth, stride = self.f, self.depth, self.shape.places[-1][1]
        inner, step_bytes = self.shape.right.inner, self.lanes * depth
        count = rows * vectors
        copies = max(_IN_FLIGHT // count, 1) if inner >= 2 * _IN_FLIGHT * depth else 1

        def step(a: Value, b: Value, sums: Sequence[Value], bytes_: int = depth) -> list[Value]:
            of_b = [f.load(f.at(b, number * self.panel_bytes, BYTE), BYTE.of(step_bytes)) for number in range(vectors)]
            of_a = (self._bytes(f.at(a, row * stride, UBYTE), bytes_) for row in range(rows))
            pairs = ((x, y) for x in of_a for y in of_b)
            return [self._add_products(total, x, y) for (x, y), total in zip(pairs, sums, strict=True)]

        def some(_: Value, a: Value, b: Value, *sums: Value) -> tuple[Value, ...]:
            following: list[Value] = []
            for copy in range(copies):
                part = sums[copy * count : (copy + 1) * count]
                following += step(f.at(a, copy * depth, UBYTE), f.at(b, copy * step_bytes, BYTE), part)
            return *self._advanced(a, b, copies), *following

        def one(_: Value, a: Value, b: Value, *sums: Value) -> tuple[Value, ...]:
            return *self._advanced(a, b, 1), *step(a, b, sums)

        steps = inner // depth
        main = steps // copies * copies
        begin = [*sums, *[zero(self.vector)] * (count * (copies - 1))]
        a, b, *sums = f.loop(0, main, copies, [a, packed, *begin], some, shows_index=True)
        while len(sums) > count:
            sums = [f.add(x, y) for x, y in zip(sums[:count], sums[-count:], strict=True)] + sums[count:-count]
        a, b, *sums = f.loop(main, steps, 1, [a, b, *sums], one, shows_index=True)
        return step(a, b, sums, inner % depth) if inner % depth else list(sums)

    def _advanced(self, a: Value, b: Value, steps: int) -> tuple[Value, Value]:
        f = self.f
        by_a, by_b = steps * self.depth, steps * self.depth * self.lanes
        return f.opaque(f.at(a, by_a, UBYTE)), f.opaque(f.at(b, by_b, BYTE))

    def _bytes(self, pointer: Value, count: int) -> list[Value]:
        """The bytes of a row for one step: as one number of 32 bits, or as a number each; beyond `count`, zeros."""
        f = self.f
        if self.depth == 4 and count == 4:
            return [f.splat(f.load(pointer, INT32, align=1), self.lanes)]
        numbers = [f.convert(f.load(f.at(pointer, place, UBYTE), UBYTE), INT32) for place in range(count)]
        if self.target.byte_products == "numbers":
            return [f.splat(number, self.lanes) for number in numbers]
        number = numbers[0]
        for place, following in enumerate(numbers[1:], 1):
            number = f.bit_or(number, f.shift_left(following, place * 32 // self.depth))
        return [f.splat(number, self.lanes)]

    def _add_products(self, sums: Value, a: list[Value], b: Value) -> Value:
        """Add the products of the bytes of a row (`_bytes`) and of a vector of the packed matrix."""
        f, bits = self.f, 8 * self.target.vector_bytes
        if self.depth == 4:
            return f.of_processor(f"x86.avx512.vpdpbusd.{bits}", sums.type, sums, a[0], f.bits_as(b, INT32))
        if self.target.byte_products == "pairs":
            wide = f.convert(b, INT16)
            name = {128: "x86.sse2.pmadd.wd", 256: "x86.avx2.pmadd.wd", 512: "x86.avx512.pmaddw.d.512"}[bits]
            return f.add(sums, f.of_processor(name, sums.type, f.bits_as(a[0], INT16), wide))
        for place, number in enumerate(a):
            part = f.shuffle(b, b, range(place, 2 * self.lanes, 2))
            sums = f.add(sums, f.mul(f.convert(part, INT32), number))
        return sums

    def _finish(self, sums: Sequence[Value], tile: _Tile) -> None:
        """Store a tile, after the epilogue if there is one; lanes beyond the last column are left out."""
        f, width, columns = self.f, tile.vectors * self.lanes, self.shape.right.columns
        staged = f.stack(INT32, tile.rows * width)
        for number, vector in enumerate(sums):
            f.store(vector, f.at(staged, number * self.lanes, INT32))
        stop = f.int64(width) if columns % self.lanes == 0 else f.min(f.sub(columns, tile.column), width)
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

    def _pieces(self, stop: Value, piece: Callable[..., Iterable[Value] | None]) -> None:
        """Write loops over `stop` columns in vectors, ever narrower ones at the end."""
        f = self.f
        begin: Operand = 0
        for lanes in (self.lanes >> shift for shift in range(self.lanes.bit_length())):
            if lanes < self.lanes and self.shape.right.columns % (2 * lanes) < lanes:
                continue  # the number of columns has no such remainder
            end: Operand = f.mul(f.div(stop, lanes), lanes)
            f.loop(begin, end, lanes, [], partial(piece, lanes=lanes))
            begin = end
