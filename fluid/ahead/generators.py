"""The generators of random numbers of a library: functions that compiled code calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import erfc, exp, log, pi, sqrt
from typing import NamedTuple

import numpy as np

from ..executor.native import mathematics as m
from ..executor.native.emitter import BYTE, DOUBLE, FLOAT, INT32, INT64, POINTER, Function, Type, Value, constant

STREAM_PARAMETERS = [POINTER, INT64, INT64, INT64, INT64, INT64]
"""Types of the first parameters of a generator: memory of the numbers, their count, key (two words), draw and run."""


class GeneratorFunction(NamedTuple):
    """A function that draws numbers.

    Attributes:
        parameters: types of its parameters behind `STREAM_PARAMETERS`.
        write: writes it; the prefix of the library's names tells the functions that it calls.
        needs: the internal functions that it calls.
    """

    parameters: Sequence[Type]
    write: Callable[[Function, str], None]
    needs: Sequence[str] = ()


# -------------------------------------------------------------------------------------------------------------- Philox
_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_INCREMENTS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_ROUNDS = 10
_NUMBERS = 8
"""Numbers of 32 bits that a block of Philox gives."""
_WORDS = 10
"""Words of a stream: number of the block, how many of its numbers are drawn, the block (4 words), key (2 words), draw, run."""


def _philox(f: Function, counter: list[Value], key: list[Value]) -> list[Value]:
    """A block of four random words."""
    for turn in range(_ROUNDS):
        if turn:
            key = [f.add(part, signed(increment)) for part, increment in zip(key, _INCREMENTS, strict=True)]
        (high_0, low_0), (high_1, low_1) = (
            _product(f, counter[place], multiplier) for place, multiplier in zip((0, 2), _MULTIPLIERS, strict=True)
        )
        counter = [
            f.bit_xor(f.bit_xor(high_1, counter[1]), key[0]),
            low_1,
            f.bit_xor(f.bit_xor(high_0, counter[3]), key[1]),
            low_0,
        ]
    return counter


def _product(f: Function, x: Value, factor: int) -> tuple[Value, Value]:
    """The higher and the lower word of a product of two words, by products of halves, which all processors have."""
    low_half = (1 << 32) - 1
    x_low, x_high = f.bit_and(x, low_half), f.shift_right_logical(x, 32)
    factor_low, factor_high = factor & low_half, factor >> 32
    low_low = f.mul(x_low, factor_low)
    middle = f.add(f.mul(x_high, factor_low), f.shift_right_logical(low_low, 32))
    second_middle = f.add(f.mul(x_low, factor_high), f.bit_and(middle, low_half))
    high = f.add(f.mul(x_high, factor_high), f.shift_right_logical(middle, 32))
    return f.add(high, f.shift_right_logical(second_middle, 32)), f.mul(x, signed(factor))


def signed(number: int) -> int:
    """A word as a signed number."""
    return number - (1 << 64) if number >> 63 else number


def _stream(f: Function) -> tuple[Value, Value, Value]:
    """Begin a stream of random bits; returns it, and the memory and the count of the numbers to draw."""
    target, count, *words = f.arguments[: len(STREAM_PARAMETERS)]
    stream = f.stack(INT64, _WORDS)
    for place, word in enumerate([f.int64(0), f.int64(_NUMBERS), *[f.int64(0)] * 4, *words]):
        f.store_number(word, f.at(stream, place, INT64))
    return stream, target, count


def write_next(f: Function) -> None:
    """Write ``int32 next(stream)``: the next 32 random bits."""
    (stream,) = f.arguments

    def word(place: int) -> Value:
        return f.load(f.at(stream, place, INT64), INT64)

    block = f.at(stream, 2, INT64)
    with f.when(f.compare("eq", word(1), _NUMBERS)):
        index = f.add(word(0), 1)
        for place, bits in enumerate(_philox(f, [index, word(8), word(9), f.int64(0)], [word(6), word(7)])):
            f.store_number(bits, f.at(block, place, INT64))
        f.store_number(index, f.at(stream, 0, INT64))
        f.store_number(f.int64(0), f.at(stream, 1, INT64))
    position = word(1)
    bits = f.load(f.at(block, position, INT32), INT32)  # processors are little-endian: the lower half comes first
    f.store_number(f.add(position, 1), f.at(stream, 1, INT64))
    f.end(bits)


def _bits(f: Function, prefix: str, stream: Value) -> Value:
    bits = f.call(f"{prefix}.next", stream, result=INT32)
    assert bits is not None
    return bits


def _unit(f: Function, prefix: str, stream: Value) -> Value:
    """A random float32 from 0 to below 1."""
    steps = f.shift_right_logical(_bits(f, prefix, stream), 8)
    return f.mul(f.convert(steps, FLOAT), constant(2.0**-24, FLOAT))


# ------------------------------------------------------------------------------------------------------------ generators
def _write_mask(f: Function, prefix: str) -> None:
    """``void mask(..., least)``: 1 where a random number of 24 bits is at least `least`, else 0."""
    stream, mask, count = _stream(f)
    least = f.arguments[-1]

    def element(number: Value) -> None:
        is_one = f.compare("sge", f.shift_right_logical(_bits(f, prefix, stream), 8), least)
        f.store_number(f.convert(is_one, BYTE), f.at(mask, number, BYTE))

    f.loop(0, count, 1, [], element)
    f.end()


def _write_uniform(element: Type) -> Callable[[Function, str], None]:
    def write(f: Function, prefix: str) -> None:
        """``void uniform(..., span, least)``: numbers from `least` to below ``least + span``."""
        stream, target, count = _stream(f)
        span, least = f.arguments[-2:]

        def draw(number: Value) -> None:
            if element is FLOAT:
                unit = _unit(f, prefix, stream)
            else:
                low, high = (f.convert(_bits(f, prefix, stream), INT64) for _ in range(2))
                word = f.bit_or(f.bit_and(low, (1 << 32) - 1), f.shift_left(high, 32))
                unit = f.mul(f.convert(f.shift_right_logical(word, 11), DOUBLE), constant(2.0**-53, DOUBLE))
            f.store_number(f.add(f.mul(unit, span), least), f.at(target, number, element))

        f.loop(0, count, 1, [], draw)
        f.end()

    return write


def _write_normal(f: Function, prefix: str) -> None:
    """``void normal(..., deviation, mean)``: normally distributed numbers."""
    stream, target, count = _stream(f)

    def draw(number: Value) -> None:
        f.store_number(_one_normal(f, prefix, stream), f.at(target, number, FLOAT))

    f.loop(0, count, 1, [], draw)
    _scale(f, target, count)
    f.end()


def _write_truncated_normal(f: Function, prefix: str) -> None:
    """``void truncated_normal(..., deviation, mean)``: normal numbers within two deviations; numbers outside are drawn again."""
    stream, target, count = _stream(f)
    f.loop(0, count, 1, [], lambda number: f.store_number(_one_normal(f, prefix, stream), f.at(target, number, FLOAT)))

    def turn(_: Value) -> tuple[Value, Value]:
        def draw_again(number: Value, outside: Value) -> list[Value]:
            place = f.at(target, number, FLOAT)
            is_outside = f.compare("ogt", m.absolute(f, f.load(place, FLOAT)), constant(2.0, FLOAT))
            with f.when(is_outside):
                f.store_number(_one_normal(f, prefix, stream), place)
            return [f.add(outside, f.convert(f.convert(is_outside, INT32), INT64))]

        (outside,) = f.loop(0, count, 1, [f.int64(0)], draw_again)
        return f.compare("eq", outside, 0), f.int64(0)

    f.search(f.int64(0), turn)
    _scale(f, target, count)
    f.end()


def _one_normal(f: Function, prefix: str, stream: Value) -> Value:
    number = f.call(f"{prefix}.one_normal", stream, result=FLOAT)
    assert number is not None
    return number


def _scale(f: Function, target: Value, count: Value) -> None:
    """Scale standard normal numbers to the deviation and the mean of the last two arguments."""
    deviation, mean = f.arguments[-2:]

    def scale(number: Value) -> None:
        place = f.at(target, number, FLOAT)
        f.store_number(f.add(f.mul(f.load(place, FLOAT), deviation), mean), place)

    f.loop(0, count, 1, [], scale)


GENERATORS: dict[str, GeneratorFunction] = {
    "mask": GeneratorFunction([INT32], _write_mask, ["next"]),
    "uniform32": GeneratorFunction([FLOAT, FLOAT], _write_uniform(FLOAT), ["next"]),
    "uniform64": GeneratorFunction([DOUBLE, DOUBLE], _write_uniform(DOUBLE), ["next"]),
    "normal": GeneratorFunction([FLOAT, FLOAT], _write_normal, ["next", "one_normal"]),
    "truncated_normal": GeneratorFunction([FLOAT, FLOAT], _write_truncated_normal, ["next", "one_normal"]),
}
"""Name -> generator."""


# --------------------------------------------------------------------------------------------- the normal distribution
_EDGE = 3.6541528853610088
"""The begin of the tail of the density; the layers end there."""
_LAYERS = 256


def generator_constants() -> Iterator[tuple[str, Type, Sequence[float]]]:
    """(name, type, numbers) of the tables of the normal distribution.

    The area below the density is cut into layers of equal area (Marsaglia and Tsang, *The ziggurat method for generating random
    variables*, 2000). A layer has a width, a least height, and a limit within which its numbers need no test.
    """

    def density(x: float) -> float:
        return exp(-x * x / 2)

    area = _EDGE * density(_EDGE) + sqrt(pi / 2) * erfc(_EDGE / sqrt(2))
    edges = [_EDGE]
    while len(edges) < _LAYERS - 1:
        edges.append(sqrt(-2 * log(area / edges[-1] + density(edges[-1]))))
    edges = [area / density(_EDGE), *edges[::-1]]
    steps = 1 << 23
    inner = [_EDGE, 0.0, *edges[1:-1]]
    yield "widths", FLOAT, [float(np.float32(edge / steps)) for edge in edges]
    yield "heights", FLOAT, [1.0, *(float(np.float32(density(edge))) for edge in edges[1:])]
    yield "limits", INT32, [round(near / edge * steps) for near, edge in zip(inner, edges, strict=True)]


def write_one_normal(f: Function, prefix: str) -> None:
    """Write ``float one_normal(stream)``: a number of the standard normal distribution."""
    (stream,) = f.arguments
    result, is_found = f.stack(FLOAT, 1), f.stack(BYTE, 1)

    def entry(table: str, row: Value, element: Type) -> Value:
        return f.load(f.at(Value(f"@{prefix}.{table}", POINTER), row, element), element)

    def minus_log(unit: Value) -> Value:
        """``-log(1 - unit)``, rounded to float32."""
        return f.neg(f.convert(m.log1p(f, f.neg(f.convert(unit, DOUBLE))), FLOAT))

    def beyond_edge(steps: Value) -> None:
        """Draw from the tail, by Marsaglia's method."""
        far = f.stack(FLOAT, 1)

        def attempt(_: Value) -> tuple[Value, Value]:
            x = f.mul(minus_log(_unit(f, prefix, stream)), constant(float(np.float32(1 / _EDGE)), FLOAT))
            y = minus_log(_unit(f, prefix, stream))
            f.store_number(x, far)
            return f.compare("ogt", f.add(y, y), f.mul(x, x)), f.int64(0)

        f.search(f.int64(0), attempt)
        x = f.add(f.load(far, FLOAT), constant(float(np.float32(_EDGE)), FLOAT))
        is_negative = f.compare("ne", f.bit_and(steps, 256), 0)
        f.store_number(f.select(is_negative, f.neg(x), x), result)
        f.store_number(Value("1", BYTE), is_found)

    def between(x: Value, row: Value) -> None:
        """Accept x if a random height in its layer is below the density."""
        low, high = entry("heights", row, FLOAT), entry("heights", f.sub(row, 1), FLOAT)
        height = f.add(f.mul(f.sub(high, low), _unit(f, prefix, stream)), low)
        wide = f.convert(x, DOUBLE)
        density = m.exp(f, f.mul(f.mul(constant(-0.5, DOUBLE), wide), wide))
        f.store_number(f.convert(f.compare("olt", f.convert(height, DOUBLE), density), BYTE), is_found)

    def attempt(_: Value) -> tuple[Value, Value]:
        bits = _bits(f, prefix, stream)
        row, steps = f.convert(f.bit_and(bits, 255), INT64), f.shift_right_logical(bits, 9)
        x = f.mul(f.convert(steps, FLOAT), entry("widths", row, FLOAT))
        x = f.select(f.compare("ne", f.bit_and(bits, 256), 0), f.neg(x), x)
        f.store_number(x, result)
        is_inside = f.compare("slt", steps, entry("limits", row, INT32))
        f.store_number(f.convert(is_inside, BYTE), is_found)
        with f.when(f.bit_xor(is_inside, 1)):
            is_base = f.compare("eq", row, 0)
            with f.when(is_base):
                beyond_edge(steps)
            with f.when(f.bit_xor(is_base, 1)):
                between(x, row)
        return f.compare("ne", f.load(is_found, BYTE), 0), f.int64(0)

    f.search(f.int64(0), attempt)
    f.end(f.load(result, FLOAT))
