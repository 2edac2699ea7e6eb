"""The image layout of native convolutions and pools.

Channels are contiguous. An image may have a halo: a border of zero pixels in place of a convolution's padding. The allocator of
an array of images zeroes the halo once. Kernels read it and never write it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .emitter import Function, Operand, Type, Value
from .halo import NO_HALO, Halo
from .target import Target


@dataclass(frozen=True)
class Pixel:
    """A pixel's coordinates: i64 values of the function being written.

    Attributes:
        first: the column of the first pixel of the tile; `shift` is the distance to this pixel. Pixels of a tile differ only
            in `shift`, so they share one address computation.
    """

    image: Value
    row: Value
    column: Value
    first: Value | None = None
    shift: int = 0

    def neighbour(self, f: Function, shift: int) -> Pixel:
        """The pixel `shift` columns to the right."""
        return Pixel(self.image, self.row, f.add(self.column, shift), self.column, shift)


Epilogue = Callable[[Function, Value, Pixel, Value], "Value | None"]
"""``epilogue(f, value, pixel, channel)``: the vector to store in place of `value` (consecutive channels of a pixel, from
`channel` on); None if the epilogue has stored its results itself. `Images.offset` gives the pixel's place in other images."""


@dataclass(frozen=True)
class Images:
    """The memory layout of images: [count, rows + height + rows, columns + width + columns, channels], by the rows and columns of
    the halo.

    A pointer to images points to the first element of the array, in the halo if there is one.

    Attributes:
        halo: the zeros on each side of an image.
        strides: strides of images, rows and pixels, in elements.
    """

    count: int
    height: int
    width: int
    channels: int
    halo: Halo
    strides: tuple[int, int, int]

    @classmethod
    def dense(cls, count: int, height: int, width: int, channels: int, halo: Halo = NO_HALO) -> Images:
        """Images without gaps."""
        row = (width + 2 * halo.columns) * channels
        return cls(count, height, width, channels, halo, ((height + 2 * halo.rows) * row, row, channels))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the array, halo included."""
        return self.count, self.height + 2 * self.halo.rows, self.width + 2 * self.halo.columns, self.channels

    @property
    def start(self) -> int:
        """Offset of the first pixel behind the halo, in elements."""
        return self.halo.rows * self.strides[1] + self.halo.columns * self.strides[2]

    def offset(self, f: Function, pixel: Pixel, channel: Operand = 0) -> Value:
        """The offset of a pixel's channel from the start of the array, in elements."""
        column = pixel.column if pixel.first is None else pixel.first
        places = zip((pixel.image, pixel.row, column, channel), (*self.strides, 1), strict=True)
        return f.add(affine(f, 0, *places), self.start + pixel.shift * self.strides[2])


def require_halo(images: Images, least: Halo, label: str) -> None:
    """Raise ValueError if the halo of images is narrower than a kernel reads."""
    if not images.halo.covers(least):
        raise ValueError(f"the {label} has a halo of {images.halo} pixels; this kernel reads {least}")


def affine(f: Function, start: int, *terms: tuple[Operand, int]) -> Value:
    """``start`` plus the sum of value * factor over all terms."""
    total: Operand = start
    for value, factor in terms:
        index = f.int64(value)
        if factor and index.text != "0":
            product = f.mul(index, factor)
            total = product if isinstance(total, int) and not total else f.add(total, product)
    return f.int64(total)


def bounds_of(f: Function, block: Value, blocks: int, extent: int) -> tuple[Operand, Operand]:
    """Start and end of one of `blocks` nearly equal blocks of an extent."""
    if blocks == 1:
        return 0, extent
    return f.div(f.mul(block, extent), blocks), f.div(f.mul(f.add(block, 1), extent), blocks)


def within(f: Function, start: Value, step: int, extent: int) -> tuple[Value, Value]:
    """The range of numbers n with ``0 <= start + n * step < extent``: the first, and the one after the last."""
    first = f.div(f.max(f.sub(step - 1, start), 0), step)
    return first, f.div(f.max(f.sub(extent - 1 + step, start), 0), step)


def parts(count: int, most: int) -> list[tuple[int, int]]:
    """Cut `count` elements into vectors of at most `most` lanes, powers of two: (first element, lanes) of each."""
    cut, start, lanes = [], 0, most
    while start < count:
        while lanes > count - start:
            lanes //= 2
        cut.append((start, lanes))
        start += lanes
    return cut


def each_vector(f: Function, count: int, lanes: int, body: Callable[[Operand, int], None]) -> None:
    """Write ``body(first, lanes)`` for `count` elements: a loop over full vectors, then narrower vectors for the remainder."""
    main = count // lanes * lanes
    f.loop(0, main, lanes, [], lambda first: body(first, lanes))
    for start, remaining_lanes in parts(count - main, lanes):
        body(main + start, remaining_lanes)


def store_pixel(
    f: Function, images: Images, output: Value, value: Value, pixel: Pixel, channel: Value, epilogue: Epilogue | None
) -> None:
    """Store consecutive channels of a pixel, after the epilogue if there is one."""
    last = value if epilogue is None else epilogue(f, value, pixel, channel)
    if last is not None:
        f.store(last, f.at(output, images.offset(f, pixel, channel), value.type))


def lanes_of(f: Function, vector: Value, start: int, lanes: int) -> Value:
    """Extract consecutive lanes of a vector."""
    if lanes == vector.type.lanes:
        return vector
    if lanes == 1:
        return f.splat(f.lane(vector, start), 1)
    return f.shuffle(vector, vector, range(start, start + lanes))


def transpose(f: Function, rows: list[Value]) -> list[Value]:
    """Transpose a square matrix; each row is a vector."""
    lanes = len(rows)
    span = min(lanes, 16 // rows[0].type.bytes)  # lanes of 128 bits, within which shuffles are cheap

    def interleaved(a: Value, b: Value, width: int, start: int) -> Value:
        runs = [block + start + at for block in range(0, lanes, span) for at in range(0, span // 2, width)]
        return f.shuffle(a, b, [lane for at in runs for vector in (0, lanes) for lane in range(vector + at, vector + at + width)])

    def swapped(a: Value, b: Value, distance: int) -> tuple[Value, Value]:
        low = [block for block in range(lanes // span) if not block & distance]
        low_lanes: list[int] = []
        high_lanes: list[int] = []
        for block in range(lanes // span):
            first = block if block in low else lanes // span + block - distance
            second = block + distance if block in low else lanes // span + block
            low_lanes += range(first * span, first * span + span)
            high_lanes += range(second * span, second * span + span)
        return f.shuffle(a, b, low_lanes), f.shuffle(a, b, high_lanes)

    width, half = 1, span // 2
    while width < span:  # transpose each block of `span` rows and columns
        following = []
        for first in range(0, lanes, span):
            group = rows[first : first + span]
            pairs = [(group[at], group[at + width]) for at in range(span) if not at & width]
            following += [interleaved(a, b, width, start) for a, b in pairs for start in (0, half)]
        rows, width = following, 2 * width
    distance = 1
    while distance < lanes // span:  # exchange blocks of `span` rows and columns
        for at in range(lanes):
            if not at // span & distance:
                partner = at + distance * span
                rows[at], rows[partner] = swapped(rows[at], rows[partner], distance)
        distance *= 2
    return rows


Load = Callable[[int, int], Value]
"""``load(row_shift, lanes)``: loads consecutive elements, `row_shift` rows below the start."""
Store = Callable[[int, Value], None]
"""``store(row_shift, value)``: stores consecutive elements, `row_shift` rows below the start."""
Source = Callable[[Value, Value], Load]
"""``source(row, column)``: a `Load` from a matrix that starts at a row and column."""
RowOutput = Callable[[Value, Value], Store]
"""``output(row, column)``: a `Store` to a matrix that starts at a row and column."""


def from_rows(f: Function, element: Type, matrix: Value, stride: int) -> Source:
    """Loads from a matrix with a row stride of `stride` elements."""

    def source(row: Value, column: Value) -> Load:
        at = f.opaque(f.at(matrix, affine(f, 0, (row, stride), (column, 1)), element))
        return lambda row_shift, lanes: f.load(f.at(at, row_shift * stride, element), element.of(lanes))

    return source


def scaled_rows(f: Function, element: Type, source: Source, scale: Value | None) -> Source:
    """Loads from a matrix whose rows are multiplied by the numbers at `scale`, if there are any."""
    if scale is None:
        return source

    def scaled(row: Value, column: Value) -> Load:
        load = source(row, column)

        def times(row_shift: int, lanes: int) -> Value:
            factor = f.load(f.at(scale, f.add(row, row_shift), element), element)
            return f.mul(load(row_shift, lanes), f.splat(factor, lanes))

        return times

    return scaled


def to_rows(f: Function, element: Type, matrix: Value, stride: int) -> RowOutput:
    """Stores to a matrix with a row stride of `stride` elements."""

    def output(row: Value, column: Value) -> Store:
        at = f.opaque(f.at(matrix, affine(f, 0, (row, stride), (column, 1)), element))
        return lambda row_shift, value: f.store(value, f.at(at, row_shift * stride, element))

    return output


def from_places(f: Function, element: Type, place: Callable[[Value], Value]) -> Source:
    """Loads from rows; ``place(row)`` gives the pointer to each."""

    def source(row: Value, column: Value) -> Load:
        return lambda row_shift, lanes: f.load(f.at(place(f.add(row, row_shift)), column, element), element.of(lanes))

    return source


def to_places(f: Function, element: Type, place: Callable[[Value], Value]) -> RowOutput:
    """Stores to rows; ``place(row)`` gives the pointer to each."""

    def output(row: Value, column: Value) -> Store:
        return lambda row_shift, value: f.store(value, f.at(place(f.add(row, row_shift)), column, element))

    return output


def write_transposed(f: Function, rows: int, columns: int, lanes: int, source: Source, output: RowOutput) -> None:
    """Transpose a matrix in squares of `lanes` rows and columns; the remaining elements one by one."""
    whole_rows, whole_columns = rows // lanes * lanes, columns // lanes * lanes

    def single(row: Value, column: Value) -> None:
        output(column, row)(0, source(row, column)(0, 1))

    def square(row: Value, column: Value) -> None:
        load, store = source(row, column), output(column, row)
        for number, vector in enumerate(transpose(f, [load(number, lanes) for number in range(lanes)])):
            store(number, vector)

    def strip(row: Value) -> None:
        f.loop(0, whole_columns, lanes, [], lambda column: square(row, column))

    def row_ends(row: Value) -> None:
        for column in range(whole_columns, columns):
            single(row, f.int64(column))

    def column_ends(column: Value) -> None:
        for row in range(whole_rows, rows):
            single(f.int64(row), column)

    f.loop(0, whole_rows, lanes, [], strip)
    if whole_columns < columns:
        f.loop(0, whole_rows, 1, [], row_ends)
    if whole_rows < rows:
        f.loop(0, columns, 1, [], column_ends)


def square_lanes(element: Type, target: Target) -> int:
    """Edge of the squares that transpose a matrix: 256 bits, the fastest on every processor."""
    return min(target.lanes(element.bytes), 32 // element.bytes)
