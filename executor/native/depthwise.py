"""Depthwise convolutions: each channel has one filter. The lanes of a vector are channels of one pixel.

`write_packed_depthwise` packs filters as [taps][channels], both for the output and for the gradient of the input. A tile is
some pixels of a row times one vector of channels; elements that several pixels read are loaded once. The kernel computes all
channels of these pixels, whose memory is contiguous, before the next pixels. Pixels are often a power of two of bytes apart, so
that the same channels of many pixels would evict each other from the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from math import prod

from .convolution import first_pixel
from .emitter import Function, Operand, Type, Value, zero
from .filter_gradient import RowEpilogue, add_partials, to_filter
from .geometry import Convolution, Walk, forward_walk, input_walks
from .images import (
    Epilogue,
    Pixel,
    affine,
    bounds_of,
    each_vector,
    from_rows,
    parts,
    require_halo,
    scaled_rows,
    square_lanes,
    to_rows,
    write_transposed,
)
from .kernel import Share
from .target import Limits, Target
from .tiles import split


def is_depthwise(geometry: Convolution) -> bool:
    """Whether a convolution is depthwise with one filter per channel, as these kernels require."""
    return geometry.groups == geometry.x.channels == geometry.y.channels


def write_packed_depthwise(
    f: Function, geometry: Convolution, filter_: Value, packed: Value, share: Share, target: Target, scale: Value | None = None
) -> None:
    """Pack a filter [C, 1, rows, columns], times a number per channel, as [rows][columns][C], in one chunk."""
    g, element = geometry, geometry.element

    def chunk(_: Value) -> None:
        rows = scaled_rows(f, element, from_rows(f, element, filter_, g.taps), scale)
        columns = to_rows(f, element, packed, g.x.channels)
        write_transposed(f, g.x.channels, g.taps, square_lanes(element, target), rows, columns)

    f.loop(*share.of(f, 1), 1, [], chunk)


def write_depthwise(
    f: Function,
    geometry: Convolution,
    x: Value,
    packed_filter: Value,
    y: Value,
    share: Share,
    target: Target,
    epilogue: Epilogue | None = None,
) -> None:
    """Write a kernel for the output of a depthwise convolution. The halo of `y` is not written."""
    require_halo(geometry.x, geometry.x_halo, "input")
    _write_walk(f, geometry, forward_walk(geometry), x, packed_filter, y, share, target, epilogue)


def write_depthwise_input_gradient(
    f: Function,
    geometry: Convolution,
    dy: Value,
    packed_filter: Value,
    dx: Value,
    share: Share,
    target: Target,
    epilogue: Epilogue | None = None,
) -> None:
    """Write a kernel for the gradient of a depthwise convolution's input. The halo of `dx` is not written; the halo of `dy` must
    be at least `Convolution.y_halo` wide."""
    require_halo(geometry.y, geometry.y_halo, "gradient of the output")
    for walk in input_walks(geometry):
        _write_walk(f, geometry, walk, dy, packed_filter, dx, share, target, epilogue)


def _pixels(target: Target) -> int:
    """The number of pixels of a tile, small enough to stay in registers."""
    return 6 if target.registers == 16 else 8


def _height(walk: Walk, target: Target) -> int:
    """The number of rows of a tile: two where they read the same elements, and registers hold the sums of both."""
    rows, columns = walk.taps
    shares = walk.steps[0] == walk.tap_steps[0] and len(rows) > 1 and len(rows) * len(columns) <= _MOST_TAPS
    return min(walk.extents[0], 2) if shares and target.registers > 16 else 1


_MOST_TAPS = 25
"""The most taps of a tile of two rows, whose code is written for each tap."""


def _blocks(images: int, rows: int, bytes_of_row: int, limits: Limits) -> int:
    """The number of blocks of rows that an image is cut into."""
    needed = max(-(-limits.convolution_chunks // images), -(-rows * bytes_of_row // limits.gradient_bytes))
    return max(1, min(rows, needed))


def _write_walk(
    f: Function,
    g: Convolution,
    walk: Walk,
    source: Value,
    packed: Value,
    output: Value,
    share: Share,
    target: Target,
    epilogue: Epilogue | None,
) -> None:
    """Write a walk with one group per channel. A chunk is some rows of an image."""
    count, channels, element = walk.output.count, walk.output.channels, g.element
    if not prod(walk.extents) * count * channels:
        return
    height = _height(walk, target)
    bands, bytes_of_row = walk.extents[0] // height, walk.extents[1] * abs(prod(g.strides)) * channels * element.bytes
    blocks = _blocks(count, bands, height * bytes_of_row, target.limits)
    walks = prod(walk.repeats)

    def chunk(number: Value) -> None:
        repeat, number = f.divided(number, count * blocks)
        image, block = f.divided(number, blocks)
        origin, (shift_down, shift_along) = first_pixel(f, walk, repeat), f.divided(repeat, walk.repeats[1])
        taps = affine(f, 0, (shift_down, walk.tap_shifts[0] * g.kernel[1]), (shift_along, walk.tap_shifts[1]))
        weights = f.at(packed, f.mul(taps, channels), element)
        base = f.at(source, affine(f, walk.start, (image, walk.source.strides[0])), element)

        def rows(number: Value, height: int) -> None:
            for start, size, tiles in split(walk.extents[1], _pixels(target)):

                def tile(place: Value, start: int = start, size: int = size) -> None:
                    pixels(number, affine(f, start, (place, size)), (height, size))

                f.loop(0, tiles, 1, [], tile)

        def pixels(row: Value, column: Value, extents: tuple[int, int]) -> None:
            x = f.at(base, affine(f, 0, (row, walk.steps[0]), (column, walk.steps[1])), element)
            along = f.add(affine(f, 0, (column, walk.spacing[1])), origin[1])
            down = (f.add(affine(f, place * walk.spacing[0], (row, walk.spacing[0])), origin[0]) for place in range(extents[0]))
            firsts = [Pixel(image, place, along) for place in down]
            each_vector(f, channels, target.lanes(element.bytes), partial(write_tile, x, firsts, extents[1]))

        def write_tile(x: Value, firsts: Sequence[Pixel], size: int, channel: Operand, lanes: int) -> None:
            at, filter_ = f.at(x, channel, element), f.at(weights, channel, element)
            if len(firsts) == 1:
                sums = [_products(f, g, walk, at, filter_, size, lanes, target.limits.depthwise_taps)]
            else:
                sums = _products_of_rows(f, g, walk, at, filter_, (len(firsts), size), lanes)
            for first, totals in zip(firsts, sums, strict=True):
                _store_pixels(f, walk, output, first, totals, channel, element, epilogue)

        f.loop(*bounds_of(f, block, blocks, bands), 1, [], lambda number: rows(f.mul(number, height), height), at_least_once=True)
        if walk.extents[0] % height:
            with f.when(f.compare("eq", block, blocks - 1)):
                rows(f.int64(bands * height), 1)

    f.loop(*share.of(f, count * blocks * walks), 1, [], chunk)


def _store_pixels(
    f: Function,
    walk: Walk,
    output: Value,
    first: Pixel,
    totals: Sequence[Value],
    channel: Operand,
    element: Type,
    epilogue: Epilogue | None,
) -> None:
    """Store the sums of neighbouring pixels of a row, from `first` on; or what the epilogue makes of them."""
    y = f.at(output, walk.output.offset(f, first, channel), element)
    for place, total in enumerate(totals):
        shift = place * walk.spacing[1]
        result: Value | None = total
        if epilogue is not None:
            result = epilogue(f, total, first.neighbour(f, shift), f.int64(channel))
        if result is not None:
            f.store(result, f.at(y, shift * walk.output.strides[2], element))


def _products(
    f: Function, g: Convolution, walk: Walk, x: Value, filter_: Value, size: int, lanes: int, most_taps: int
) -> list[Value]:
    """Compute the sums of a tile of `size` pixels; at most `most_taps` taps are unrolled."""
    vector, channels = g.element.of(lanes), g.x.channels
    rows, columns = walk.taps
    sums = [zero(vector) for _ in range(size)]
    if not rows or not columns:
        return sums
    between = (rows[1] - rows[0]) * g.kernel[1] * channels if len(rows) > 1 else 0

    def row(number: Value, *totals: Value) -> list[Value]:
        at = f.opaque(f.at(x, f.mul(number, walk.tap_steps[0]), g.element))
        weights = f.at(filter_, affine(f, rows[0] * g.kernel[1] * channels, (number, between)), g.element)
        load = _load_once(f, at, vector)
        following = list(totals)
        for place, column in enumerate(columns):
            weight = f.load(f.at(weights, column * channels, g.element), vector)
            for pixel in range(size):
                value = load(pixel * walk.steps[1] + place * walk.tap_steps[1])
                following[pixel] = f.fma(value, weight, following[pixel])
        return following

    if len(rows) * len(columns) > most_taps:
        return f.loop(0, len(rows), 1, sums, row)
    for number in range(len(rows)):
        sums = row(f.int64(number), *sums)
    return sums


def _products_of_rows(
    f: Function, g: Convolution, walk: Walk, x: Value, filter_: Value, extents: tuple[int, int], lanes: int
) -> list[list[Value]]:
    """Compute the sums of a tile of some rows and columns, all unrolled; each element that rows share is loaded once.

    Taps are added in the order of `_products`.
    """
    vector, channels, (height, width), (rows, columns) = g.element.of(lanes), g.x.channels, extents, walk.taps
    sums = [[zero(vector) for _ in range(width)] for _ in range(height)]
    for down in range(height + len(rows) - 1):
        load = _load_once(f, x, vector)
        for along, column in enumerate(columns):
            for row in range(max(0, down - len(rows) + 1), min(height, down + 1)):
                tap = rows[down - row] * g.kernel[1] + column
                weight = f.load(f.at(filter_, tap * channels, g.element), vector)
                for pixel in range(width):
                    value = load(down * walk.tap_steps[0] + pixel * walk.steps[1] + along * walk.tap_steps[1])
                    sums[row][pixel] = f.fma(value, weight, sums[row][pixel])
    return sums


def _load_once(f: Function, pointer: Value, vector: Type) -> Callable[[int], Value]:
    """A function that loads the vector at an offset, in elements; each is loaded once."""
    return cache(lambda offset: f.load(f.at(pointer, offset, vector.number), vector))


# -------------------------------------------------------------------------------------------------- filters' gradients
def _partials(g: Convolution, target: Target) -> int:
    """The number of partial sums. It depends on the geometry alone, so that results do not depend on threads."""
    return max(1, min(g.x.count, target.limits.gradient_partials))


def depthwise_partial_elements(geometry: Convolution, target: Target) -> int:
    """Number of elements of the partial sums of the filter's gradient."""
    return _partials(geometry, target) * geometry.taps * geometry.x.channels


def write_depthwise_partial_filters(
    f: Function, geometry: Convolution, x: Value, dy: Value, partials: Value, share: Share, target: Target
) -> None:
    """Write a kernel for partial sums, each over some images, of the gradient of a depthwise filter."""
    g, element, channels = geometry, geometry.element, geometry.x.channels
    require_halo(g.x, g.x_halo, "input")
    lanes, count, limits = target.lanes(element.bytes), _partials(g, target), target.limits
    blocks = _blocks(limits.convolution_chunks, g.y.height, g.y.width * prod(g.strides) * channels * element.bytes, limits)

    def sums(partial: Value, first: Operand, vectors: tuple[Operand, Operand], lanes: int) -> None:
        """Write the sums for a range of vectors of `lanes` channels, counted from channel `first`."""
        output = f.at(partials, affine(f, 0, (partial, g.taps * channels), (first, 1)), element)

        def for_vectors(body: Callable[[Value], None]) -> None:
            f.loop(*vectors, 1, [], lambda vector: body(f.mul(vector, lanes)))

        def clear(channel: Value) -> None:
            at = f.at(output, channel, element)
            f.loop(0, g.taps, 1, [], lambda tap: f.store(zero(element.of(lanes)), f.at(at, f.mul(tap, channels), element)))

        def image(number: Value) -> None:
            f.loop(0, blocks, 1, [], lambda block: for_vectors(lambda channel: add(number, block, channel)))

        def add(number: Value, block: Value, channel: Value) -> None:
            at = (first, 1), (channel, 1)
            source = f.at(x, affine(f, g.x.start, (number, g.x.strides[0]), *at), element)
            gradient = f.at(dy, affine(f, g.y.start, (number, g.y.strides[0]), *at), element)
            rows = bounds_of(f, block, blocks, g.y.height)
            _add_block(f, g, source, gradient, f.at(output, channel, element), rows, lanes, target)

        for_vectors(clear)
        f.loop(*bounds_of(f, partial, count, g.x.count), 1, [], image)

    full_vectors = channels // lanes
    cuts = max(1, min(full_vectors, -(-limits.convolution_chunks // count)))

    def chunk(number: Value) -> None:
        partial, cut = f.divided(number, cuts)
        sums(partial, 0, bounds_of(f, cut, cuts, full_vectors), lanes)

    if full_vectors:
        f.loop(*share.of(f, count * cuts), 1, [], chunk)
    for start, remaining_lanes in parts(channels - full_vectors * lanes, lanes):
        first = full_vectors * lanes + start
        f.loop(
            *share.of(f, count), 1, [], lambda partial, first=first, width=remaining_lanes: sums(partial, first, (0, 1), width)
        )


def _add_block(
    f: Function,
    g: Convolution,
    x: Value,
    dy: Value,
    output: Value,
    rows: tuple[Operand, Operand],
    lanes: int,
    target: Target,
) -> None:
    """Add the products of some rows of an image to the sums of one vector of channels, some rows of taps at a time."""
    element, vector, walk = g.element, g.element.of(lanes), forward_walk(g)
    most_sums, pixels = target.limits.depthwise_sums, 2 if target.registers == 16 else 4

    def taps(first: Value, count: int) -> None:
        at = f.at(output, f.mul(first, g.kernel[1] * g.x.channels), element)
        places = [f.at(at, tap * g.x.channels, element) for tap in range(count * g.kernel[1])]
        source = f.at(x, affine(f, walk.start - g.x.start, (first, walk.tap_steps[0])), element)

        def row(number: Value, *sums: Value) -> list[Value]:
            inputs = f.at(source, f.mul(number, walk.steps[0]), element)
            gradients = f.at(dy, f.mul(number, g.y.strides[1]), element)
            totals = list(sums)
            for start, size, tiles in split(g.y.width, pixels):
                totals = f.loop(
                    0,
                    tiles,
                    1,
                    totals,
                    lambda tile, *carried, start=start, size=size: tile_of(
                        inputs, gradients, affine(f, start, (tile, size)), size, carried
                    ),
                )
            return totals

        def tile_of(inputs: Value, gradients: Value, column: Value, size: int, sums: Sequence[Value]) -> list[Value]:
            at = f.opaque(f.at(inputs, f.mul(column, walk.steps[1]), element))
            gradient = f.opaque(f.at(gradients, f.mul(column, g.y.strides[2]), element))
            factors = [f.load(f.at(gradient, pixel * g.y.strides[2], element), vector) for pixel in range(size)]
            load = _load_once(f, at, vector)
            totals = list(sums)
            for place, (number, tap) in enumerate(product(range(count), range(g.kernel[1]))):
                for pixel, factor in enumerate(factors):
                    value = load(number * walk.tap_steps[0] + tap * walk.tap_steps[1] + pixel * walk.steps[1])
                    totals[place] = f.fma(value, factor, totals[place])
            return totals

        totals = f.loop(*rows, 1, [zero(vector) for _ in places], row)
        for place, total in zip(places, totals, strict=True):  # so the error does not grow with the number of images
            f.store(f.add(f.load(place, vector), total), place)

    for start, size, times in split(g.kernel[0], max(1, most_sums // g.kernel[1])):
        f.loop(0, times, 1, [], lambda number, start=start, size=size: taps(affine(f, start, (number, size)), size))


def write_depthwise_filter_gradient(
    f: Function,
    geometry: Convolution,
    partials: Value,
    d_filter: Value,
    share: Share,
    target: Target,
    epilogue: RowEpilogue | None = None,
) -> None:
    """Write a kernel that adds up the partial sums to the gradient of a depthwise filter, [C, 1, rows, columns].

    The kernel overwrites `partials`.

    ``epilogue(f, value, row, column)`` takes consecutive elements of one channel's row, from a column on.
    """
    g, element, channels = geometry, geometry.element, geometry.x.channels
    filter_size = g.taps * channels

    def chunk(_: Value) -> None:
        add_partials(f, element, partials, filter_size, _partials(g, target), filter_size, target)
        output = to_filter(f, element, d_filter, g.taps, f.int64(0), epilogue)
        source = from_rows(f, element, partials, channels)
        write_transposed(f, g.taps, channels, square_lanes(element, target), source, output)

    f.loop(*share.of(f, 1), 1, [], chunk)
