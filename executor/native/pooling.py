"""Native pooling kernels on images with channels last (`images`). The lanes of a vector are channels of one pixel.

The gradient of a max pool uses positions: the place of the first maximum in each window, which `write_max_pool` stores on
request. Gradients are gathered: each element of the input sums the contributions of the windows over it, in a fixed order, so
that threads can share the rows of the input. Windows outside are read as zeros from the halo of the output's gradient.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .emitter import BYTE, DOUBLE, FLOAT, INT32, INT64, Function, Operand, Type, Value, constant, zero
from .halo import Halo
from .images import Epilogue, Images, Pixel, affine, bounds_of, parts, require_halo, store_pixel
from .kernel import Share
from .target import Target


class _Window(NamedTuple):
    """A window, and the place of an element in it along an axis; `is_over`: whether it contains the element, if that varies."""

    number: Value
    place: Value
    is_over: Value | None


@dataclass(frozen=True)
class _PoolAxis:
    """The windows along rows or along columns."""

    extent: int
    out: int
    size: int
    stride: int
    pad: tuple[int, int]

    @property
    def step(self) -> int:
        """The stride; for a single window, a step past the image."""
        return self.stride if self.out > 1 else max(self.size, self.extent + self.pad[0])

    @property
    def is_inside(self) -> bool:
        """Whether all windows lie within the image."""
        return not self.pad[0] and (self.out - 1) * self.step + self.size <= self.extent

    @property
    def leaves_image(self) -> bool:
        """Whether a window has no element of the image."""
        return self.pad[0] >= self.size or (self.out - 1) * self.step - self.pad[0] >= self.extent

    @property
    def ranges(self) -> list[tuple[int, int, bool]]:
        """Ranges of windows: (first, end, whether they are within the image)."""
        first = min(-(-self.pad[0] // self.step), self.out)
        end = max(first, min(self.out, (self.extent - self.size + self.pad[0]) // self.step + 1))
        return [span for span in ((0, first, False), (first, end, True), (end, self.out, False)) if span[0] < span[1]]

    @property
    def overlap(self) -> int:
        """The largest number of windows over one element."""
        return -(-self.size // self.step)

    @property
    def places(self) -> int:
        """The number of places that `windows` gives; the last ones may lie behind the window."""
        return self.overlap * self.step

    @property
    def input_reach(self) -> int:
        """How far windows reach beyond the image, at most, on either side."""
        return max(0, self.pad[0], (self.out - 1) * self.step + self.size - self.pad[0] - self.extent)

    @property
    def output_reach(self) -> int:
        """How far the windows over an element reach beyond the pooled image, at most, on either side."""
        last = (max(self.extent, 1) - 1 + self.pad[0]) // self.step
        return max(0, self.overlap - 1 - self.pad[0] // self.step, last - (self.out - 1))

    def start(self, f: Function, window: Value) -> Value:
        """The start of a window; negative if it is before the image."""
        return f.sub(f.mul(window, self.step), self.pad[0])

    def bounds(self, f: Function, window: Value) -> tuple[Operand, Operand]:
        """The range of places in a window that are within the image: first and end."""
        if self.is_inside:
            return 0, self.size
        start = self.start(f, window)
        return f.max(f.neg(start), 0), f.min(f.sub(self.extent, start), self.size)

    def summed(self, f: Function, window: Value) -> tuple[Operand, Operand]:
        """The range of places in a window that are summed; those in the padding are zeros."""
        return 0, self.size

    def weight(self, f: Function, window: Value, element: Type, exclusive: bool) -> Value:
        """One over the number of elements of a window; `exclusive` leaves out the padding."""
        if exclusive:
            first, end = self.bounds(f, window)
            count = f.sub(f.int64(end), first)
        else:
            count = f.min(f.sub(self.extent + sum(self.pad), f.mul(window, self.step)), self.size)
        return f.div(1.0, f.convert(f.max(count, 1), element))

    def windows(self, f: Function, element: Value) -> list[_Window]:
        """The windows that may contain an element, in the order of its place in them."""
        last, first_place = f.divided(f.add(element, self.pad[0]), self.step)
        windows = []
        for number in range(self.overlap):
            place = f.add(first_place, number * self.step)
            is_over = f.compare("slt", place, self.size) if self.size % self.step else None
            windows.append(_Window(f.sub(last, number), place, is_over))
        return windows


@dataclass(frozen=True)
class _UnevenAxis:
    """The windows of an adaptive pool along rows or columns: the i-th reaches from i * extent // out to (i + 1) * extent / out,
    rounded up. It has what `_PoolAxis` has."""

    extent: int
    out: int

    is_inside, leaves_image, input_reach, output_reach = True, False, 0, 0

    @property
    def ranges(self) -> list[tuple[int, int, bool]]:
        return [(0, self.out, False)]

    @property
    def places(self) -> int:
        return max(-(-(window + 1) * self.extent // self.out) - window * self.extent // self.out for window in range(self.out))

    @property
    def overlap(self) -> int:
        return max(-(-(place + 1) * self.out // self.extent) - place * self.out // self.extent for place in range(self.extent))

    def start(self, f: Function, window: Value) -> Value:
        return f.div(f.mul(window, self.extent), self.out)

    def bounds(self, f: Function, window: Value) -> tuple[Operand, Operand]:
        end = f.div(f.add(f.mul(f.add(window, 1), self.extent), self.out - 1), self.out)
        return 0, f.sub(end, self.start(f, window))

    summed = bounds

    def weight(self, f: Function, window: Value, element: Type, exclusive: bool) -> Value:
        return f.div(1.0, f.convert(f.int64(self.bounds(f, window)[1]), element))

    def windows(self, f: Function, element: Value) -> list[_Window]:
        first = f.div(f.mul(element, self.out), self.extent)
        last = f.sub(f.div(f.add(f.mul(f.add(element, 1), self.out), self.extent - 1), self.extent), 1)
        windows = []
        for number in range(self.overlap):
            window = f.max(f.sub(last, number), 0)
            is_over = f.compare("sge", f.sub(last, number), first) if number else None
            windows.append(_Window(window, f.sub(element, self.start(f, window)), is_over))
        return windows


@dataclass(frozen=True)
class PoolGeometry:
    """The geometry of a pool.

    Attributes:
        x: the layout of the input, or its gradient; `y`, of the output. Positions have the layout of the output's gradient.
        kernel: rows and columns of the largest window; likewise `strides`: 0 for the windows of `_UnevenAxis`.
        pads: padding (top, bottom) and (left, right).
    """

    x: Images
    y: Images
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    element: Type = FLOAT

    @property
    def rows(self) -> _PoolAxis | _UnevenAxis:
        return self._axis(0, self.x.height, self.y.height)

    @property
    def columns(self) -> _PoolAxis | _UnevenAxis:
        return self._axis(1, self.x.width, self.y.width)

    def _axis(self, axis: int, extent: int, out: int) -> _PoolAxis | _UnevenAxis:
        if not self.strides[axis]:
            return _UnevenAxis(extent, out)
        return _PoolAxis(extent, out, self.kernel[axis], self.strides[axis], self.pads[axis])

    @property
    def x_halo(self) -> Halo:
        """The minimal halo of the input of an average pool; a max pool needs none."""
        return Halo(self.rows.input_reach, self.columns.input_reach)

    @property
    def y_halo(self) -> Halo:
        """The minimal halo of the output's gradient, and of the positions."""
        return Halo(self.rows.output_reach, self.columns.output_reach)

    @property
    def position_row(self) -> int:
        """The difference of positions between consecutive rows of a window."""
        return self.columns.places

    @property
    def position(self) -> Type:
        """The element type of positions."""
        return BYTE if self.rows.places * self.position_row <= 128 else INT32


def write_max_pool(
    f: Function,
    pool: PoolGeometry,
    x: Value,
    y: Value | None,
    share: Share,
    target: Target,
    positions: Value | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """Write a kernel for the maxima of windows (if `y` is given) and their first positions (if `positions` is given).

    A NaN is greater than all numbers. Positions have the element type `PoolGeometry.position` and the layout of the output.
    """
    integer = INT32 if pool.element.bits == 32 else INT64
    infinity = constant(-math.inf, pool.element)
    has_empty = pool.rows.leaves_image or pool.columns.leaves_image

    def window(pixel: Pixel, channel: Value, vectors: Sequence[tuple[int, int]], is_inside: bool) -> None:
        rows = pool.rows.bounds(f, pixel.row)
        columns = (0, pool.kernel[1]) if is_inside else pool.columns.bounds(f, pixel.column)
        corner = Pixel(pixel.image, pool.rows.start(f, pixel.row), pool.columns.start(f, pixel.column))
        source = f.at(x, pool.x.offset(f, corner, channel), pool.element)
        maxima = [f.splat(infinity, lanes) for _, lanes in vectors]
        # The gradient of a window outside the image goes to its last place at most, which is no element.
        row, column = (f.min(f.int64(begin), size - 1) for begin, size in zip((rows[0], columns[0]), pool.kernel, strict=True))
        first = f.convert(affine(f, 0, (row, pool.position_row), (column, 1)), integer)
        places = [f.splat(first, lanes) for _, lanes in vectors] if positions is not None else []

        def tap(row: Value, column: Value, *carried: Value) -> list[Value]:
            at = f.at(source, affine(f, 0, (row, pool.x.strides[1]), (column, pool.x.strides[2])), pool.element)
            place = f.convert(affine(f, 0, (row, pool.position_row), (column, 1)), integer)
            values = [f.load(f.at(at, start, pool.element), pool.element.of(lanes)) for start, lanes in vectors]
            if places:
                return _later_maxima(f, values, carried[: len(vectors)], place, carried[len(vectors) :])
            return [_greater(f, value, maximum) for value, maximum in zip(values, carried, strict=True)]

        after = _over(f, rows, columns, [*maxima, *places], tap, target.limits.pool_unrolled)
        for number, (start, _) in enumerate(vectors):
            vector_channel = f.add(channel, start)
            if positions is not None:
                place = f.convert(after[len(vectors) + number], pool.position)
                f.store(place, f.at(positions, pool.y.offset(f, pixel, vector_channel), pool.position))
            if y is not None:
                maximum = after[number]
                if has_empty:
                    is_empty = f.bit_or(*(f.compare("sge", f.int64(begin), f.int64(end)) for begin, end in (rows, columns)))
                    maximum = f.select(f.splat(is_empty, maximum.type.lanes), _LOWEST[pool.element], maximum)
                store_pixel(f, pool.y, y, maximum, pixel, vector_channel, epilogue)

    for first, end, is_inside in pool.columns.ranges:
        body = functools.partial(window, is_inside=is_inside)
        _each_pixel(f, pool.y, (first, end), pool.element, share, target, body)


def _greater(f: Function, value: Value, maximum: Value) -> Value:
    """The greater of two vectors; a NaN of `value` is greater than all."""
    return f.select(f.compare("uno", value, value), value, f.max(value, maximum))


def _later_maxima(
    f: Function, values: Sequence[Value], maxima: Sequence[Value], place: Value, places: Sequence[Value]
) -> list[Value]:
    """The maxima with more values, which come from one place; behind them, the places of the maxima."""
    new_maxima, new_places = [], []
    for value, maximum, former in zip(values, maxima, places, strict=True):
        is_no_nan = f.compare("ord", maximum, maximum)  # the first NaN stays
        is_new = f.bit_and(f.compare("ugt", value, maximum), is_no_nan)
        new_maxima.append(f.select(is_new, value, maximum))
        new_places.append(f.select(is_new, f.splat(place, value.type.lanes), former))
    return new_maxima + new_places


def write_max_pool_gradient(
    f: Function,
    pool: PoolGeometry,
    positions: Value,
    dy: Value,
    dx: Value,
    share: Share,
    target: Target,
    epilogue: Epilogue | None = None,
) -> None:
    """Write a kernel for the gradient of a max pool: each window's gradient goes to the element at its position.

    `dy` needs a halo of zeros, at least `PoolGeometry.y_halo` wide. `positions` has the same layout; its halo may hold anything.
    """
    require_halo(pool.y, pool.y_halo, "gradient of the output")

    def part(image: Value, row: _Window, column: _Window, channel: Value, lanes: int) -> Value:
        at = pool.y.offset(f, Pixel(image, row.number, column.number), channel)
        position = f.load(f.at(positions, at, pool.position), pool.position.of(lanes))
        number = f.convert(affine(f, 0, (row.place, pool.position_row), (column.place, 1)), pool.position)
        value = f.load(f.at(dy, at, pool.element), pool.element.of(lanes))
        result = f.select(f.compare("eq", position, f.splat(number, lanes)), value, 0)
        return _if_over(f, result, [row, column] if has_uneven else [])

    has_uneven = not all(pool.strides)

    # Sums over columns of sums over rows, each by rising places in the windows.
    def gathered(image: Value, rows: Sequence[_Window], columns: Sequence[_Window], channel: Value, lanes: int) -> Value:
        return _sum(f, (_sum(f, (part(image, row, column, channel, lanes) for row in rows)) for column in columns))

    _write_gathered(f, pool, dx, share, target, epilogue, gathered)


def write_average_pool(
    f: Function,
    pool: PoolGeometry,
    x: Value,
    y: Value,
    exclusive: bool,
    share: Share,
    target: Target,
    epilogue: Epilogue | None = None,
) -> None:
    """Write a kernel for the averages of windows; `exclusive` leaves out the padding. `x` needs a halo of zeros, at least
    `PoolGeometry.x_halo` wide."""
    require_halo(pool.x, pool.x_halo, "input")

    def window(pixel: Pixel, channel: Value, vectors: Sequence[tuple[int, int]]) -> None:
        corner = Pixel(pixel.image, pool.rows.start(f, pixel.row), pool.columns.start(f, pixel.column))
        source = f.at(x, pool.x.offset(f, corner, channel), pool.element)

        def tap(column: Value, row: Value, *sums: Value) -> list[Value]:
            at = f.at(source, affine(f, 0, (row, pool.x.strides[1]), (column, pool.x.strides[2])), pool.element)
            values = [f.load(f.at(at, start, pool.element), pool.element.of(lanes)) for start, lanes in vectors]
            return [f.add(total, value) for total, value in zip(sums, values, strict=True)]

        sums = [zero(pool.element.of(lanes)) for _, lanes in vectors]
        places = pool.columns.summed(f, pixel.column), pool.rows.summed(f, pixel.row)
        sums = _over(f, *places, sums, tap, target.limits.pool_unrolled)
        rows = pool.rows.weight(f, pixel.row, pool.element, exclusive)
        weight = f.mul(rows, pool.columns.weight(f, pixel.column, pool.element, exclusive))
        for total, (start, lanes) in zip(sums, vectors, strict=True):
            store_pixel(f, pool.y, y, f.mul(total, f.splat(weight, lanes)), pixel, f.add(channel, start), epilogue)

    _each_pixel(f, pool.y, (0, pool.y.width), pool.element, share, target, window)


def write_average_pool_gradient(
    f: Function,
    pool: PoolGeometry,
    dy: Value,
    dx: Value,
    exclusive: bool,
    share: Share,
    target: Target,
    epilogue: Epilogue | None = None,
) -> None:
    """Write a kernel for the gradient of an average pool. `dy` needs a halo of zeros, at least `PoolGeometry.y_halo` wide."""
    require_halo(pool.y, pool.y_halo, "gradient of the output")

    def part(image: Value, row: _Window, column: _Window, channel: Value, lanes: int) -> Value:
        rows = pool.rows.weight(f, row.number, pool.element, exclusive)
        weight = f.mul(rows, pool.columns.weight(f, column.number, pool.element, exclusive))
        at = pool.y.offset(f, Pixel(image, row.number, column.number), channel)
        value = f.load(f.at(dy, at, pool.element), pool.element.of(lanes))
        return _if_over(f, f.mul(value, f.splat(weight, lanes)), [row, column])

    def gathered(image: Value, rows: Sequence[_Window], columns: Sequence[_Window], channel: Value, lanes: int) -> Value:
        return _sum(f, (_sum(f, (part(image, row, column, channel, lanes) for column in columns)) for row in rows))

    _write_gathered(f, pool, dx, share, target, epilogue, gathered)


_LOWEST = {FLOAT: -(2 - 2**-23) * 2.0**127, DOUBLE: -sys.float_info.max}
"""The maximum of a window that lies in the padding."""


def _write_gathered(
    f: Function,
    pool: PoolGeometry,
    dx: Value,
    share: Share,
    target: Target,
    epilogue: Epilogue | None,
    gathered: Callable[[Value, Sequence[_Window], Sequence[_Window], Value, int], Value],
) -> None:
    """Store ``gathered(image, windows of the row, windows of the column, channel, lanes)`` for each element of the input."""

    def pixel(at: Pixel, channel: Value, vectors: Sequence[tuple[int, int]]) -> None:
        rows, columns = pool.rows.windows(f, at.row), pool.columns.windows(f, at.column)
        for start, lanes in vectors:
            vector_channel = f.add(channel, start)
            store_pixel(f, pool.x, dx, gathered(at.image, rows, columns, vector_channel, lanes), at, vector_channel, epilogue)

    _each_pixel(f, pool.x, (0, pool.x.width), pool.element, share, target, pixel)


def _if_over(f: Function, value: Value, windows: Sequence[_Window]) -> Value:
    """A value, or 0 if one of the windows does not contain the element."""
    for window in windows:
        if window.is_over is not None:
            value = f.select(f.splat(window.is_over, value.type.lanes), value, 0)
    return value


def _sum(f: Function, values: Iterable[Value]) -> Value:
    return functools.reduce(f.add, values)


def _over(
    f: Function,
    outer: tuple[Operand, Operand],
    inner: tuple[Operand, Operand],
    carried: Sequence[Value],
    body: Callable[..., list[Value]],
    most: int,
) -> list[Value]:
    """Two nested loops, ``body(i, j, *values)``; a loop of at most `most` turns is unrolled."""

    def row(number: Value, *values: Value) -> list[Value]:
        return _loop(f, inner, values, lambda inner_number, *inner_values: body(number, inner_number, *inner_values), most)

    return _loop(f, outer, carried, row, most)


def _loop(
    f: Function, bounds: tuple[Operand, Operand], carried: Sequence[Value], body: Callable[..., list[Value]], most: int
) -> list[Value]:
    """A loop; unrolled if it has at most `most` turns."""
    start, stop = bounds
    if isinstance(start, int) and isinstance(stop, int) and stop - start <= most:
        values = list(carried)
        for number in range(start, stop):
            values = body(f.int64(number), *values)
        return values
    return f.loop(start, stop, 1, carried, body)


def _each_pixel(
    f: Function,
    images: Images,
    columns: tuple[int, int],
    element: Type,
    share: Share,
    target: Target,
    body: Callable[[Pixel, Value, Sequence[tuple[int, int]]], None],
) -> None:
    """Write ``body(pixel, channel, vectors)`` for a range of columns. Each call handles some vectors of channels: (first, lanes),
    counted from `channel`. A chunk is some rows of an image."""
    if not images.count * images.height * images.channels:
        return
    lanes = target.lanes(element.bytes)
    at_once = lanes * target.limits.pool_vectors
    main = images.channels // at_once * at_once
    blocks = min(images.height, -(-target.limits.convolution_chunks // images.count))

    def chunk(number: Value) -> None:
        image, block = f.divided(number, blocks)
        start, stop = bounds_of(f, block, blocks, images.height)
        f.loop(start, stop, 1, [], lambda row: f.loop(*columns, 1, [], lambda column: channels(Pixel(image, row, column))))

    def channels(pixel: Pixel) -> None:
        f.loop(0, main, at_once, [], lambda channel: body(pixel, channel, parts(at_once, lanes)))
        if main < images.channels:
            body(pixel, f.int64(main), parts(images.channels - main, lanes))

    f.loop(*share.of(f, images.count * blocks), 1, [], chunk)
