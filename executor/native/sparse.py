"""Kernels on rows of tables: scatter-add, merge duplicates, put.

Threads share the columns. So one thread adds all rows of a column, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .emitter import INT32, INT64, Function, Type, Value, zero
from .formulas import combine, neutral
from .images import affine, parts
from .kernel import Share
from .target import Target


@dataclass(frozen=True)
class RowSource:
    """Rows to read: a pointer to the first element, strides of rows and columns, shape, and element type."""

    pointer: Value
    strides: Sequence[int]
    shape: Sequence[int]
    element: Type

    def number(self, f: Function, row: Value) -> Value:
        """The integer in a row."""
        return f.convert(f.load(f.at(self.pointer, affine(f, 0, (row, self.strides[0])), self.element), self.element), INT64)

    def index(self, f: Function, row: Value, end: int) -> Value:
        """The integer in a row; the caller guarantees that it is from 0 to `end - 1`."""
        return f.between(self.number(f, row), 0, end - 1)

    def part(self, f: Function, row: Value, column: Value, start: int, lanes: int) -> Value:
        """A vector of consecutive elements of a row, from column + start on."""
        step = self.strides[1]
        at = f.at(self.pointer, affine(f, start * step, (row, self.strides[0]), (column, step)), self.element)
        return f.load_steps(at, self.element.of(lanes), step) if step else f.splat(f.load(at, self.element), lanes)


def _by_columns(f: Function, width: int, element: Type, share: Share, target: Target, body: Callable[..., None]) -> None:
    """Write ``body(first, vectors)`` for each thread's columns; `vectors` come from `images.parts`, relative to `first`."""
    most = target.lanes(element.bytes)
    block = most * max(1, min(target.limits.table_vectors, -(-width // most) // 2))
    full_blocks, remaining_columns = divmod(width, block)
    f.loop(*share.of(f, full_blocks), 1, [], lambda number: body(f.mul(number, block), parts(block, most)))
    if remaining_columns:
        f.loop(*share.of(f, 1), 1, [], lambda _: body(f.int64(full_blocks * block), parts(remaining_columns, most)))


def write_scattered(
    f: Function, rows: RowSource, ids: RowSource, table: Value, height: int, cleared: int, kind: str, share: Share, target: Target
) -> None:
    """See `graph.Scattered`; `height` is the number of rows of the table, and the first `cleared` rows are set to the neutral
    number of the reduction before."""
    (count, width), element = rows.shape, rows.element

    def columns(first: Value, vectors: Sequence[tuple[int, int]]) -> None:
        def clear(row: Value) -> None:
            for start, lanes in vectors:
                f.store(neutral(kind, element.of(lanes)), f.at(table, affine(f, start, (row, width), (first, 1)), element))

        def clear_all(start: int, vectors: int, lanes: int) -> None:
            nothing = neutral(kind, element.of(lanes))
            f.loop(0, vectors, 1, [], lambda i: f.store(nothing, f.at(table, affine(f, start, (i, lanes)), element)))

        def add(row: Value) -> None:
            number = ids.number(f, row)
            with f.when(f.compare("sge", number, 0)):
                number = f.between(number, 0, height - 1)
                for start, lanes in vectors:
                    place = f.at(table, affine(f, start, (number, width), (first, 1)), element)
                    f.store(combine(f, kind, f.load(place, element.of(lanes)), rows.part(f, row, first, start, lanes)), place)

        if sum(lanes for _, lanes in vectors) == width:  # all columns: rows lie without gaps
            for segment in _segments(cleared * width, target.lanes(element.bytes)):
                clear_all(*segment)
        else:
            f.loop(0, cleared, 1, [], clear)
        f.loop(0, count, 1, [], add)

    _by_columns(f, width, element, share, target, columns)


def write_merged(f: Function, rows: RowSource, firsts: RowSource, merged: Value, share: Share, target: Target) -> None:
    """See `graph.Merged`."""
    (count, width), element = rows.shape, rows.element

    def columns(first: Value, vectors: Sequence[tuple[int, int]]) -> None:
        def place(row: Value, start: int) -> Value:
            return f.at(merged, affine(f, start, (row, width), (first, 1)), element)

        def merge(row: Value) -> None:
            number = firsts.number(f, row)
            is_first = f.compare("eq", number, row)
            for start, lanes in vectors:
                first_row = f.select(f.splat(is_first, lanes), rows.part(f, row, first, start, lanes), zero(element.of(lanes)))
                f.store(first_row, place(row, start))
            is_duplicate = f.bit_and(f.compare("sge", number, 0), f.bit_xor(is_first, 1))
            with f.when(is_duplicate):
                number = f.between(number, 0, count - 1)
                for start, lanes in vectors:
                    at = place(number, start)
                    f.store(f.add(f.load(at, element.of(lanes)), rows.part(f, row, first, start, lanes)), at)

        f.loop(0, count, 1, [], merge)
        for start, lanes in vectors:
            f.store(zero(element.of(lanes)), place(f.int64(count), start))

    _by_columns(f, width, element, share, target, columns)


def write_put(
    f: Function, rows: RowSource, ids: RowSource, firsts: RowSource, table: Value, height: int, share: Share, target: Target
) -> None:
    """See `graph.Put`; `height` is the number of rows of the table."""
    (count, width), element = rows.shape, rows.element

    def columns(first: Value, vectors: Sequence[tuple[int, int]]) -> None:
        def put(row: Value) -> None:
            with f.when(f.compare("eq", firsts.number(f, row), row)):
                number = ids.index(f, row, height)
                for start, lanes in vectors:
                    at = f.at(table, affine(f, start, (number, width), (first, 1)), element)
                    f.store(rows.part(f, row, first, start, lanes), at)

        f.loop(0, count, 1, [], put)

    _by_columns(f, width, element, share, target, columns)


def write_places(
    f: Function, ids: RowSource, firsts: RowSource, places: Value, height: int, share: Share, target: Target
) -> None:
    """See `graph.Places`."""
    count = ids.shape[0]

    def all_rows(_: Value) -> None:
        for start, number, lanes in _segments(height, target.lanes(INT64.bytes)):
            absent = f.splat(f.int64(count), lanes)
            f.loop(
                0,
                number,
                1,
                [],
                lambda i, lanes=lanes, start=start, absent=absent: f.store(
                    absent, f.at(places, affine(f, start, (i, lanes)), INT64)
                ),
            )

        def place(row: Value) -> None:
            with f.when(f.compare("eq", firsts.number(f, row), row)):
                f.store_number(row, f.at(places, ids.index(f, row, height), INT64))

        f.loop(0, count, 1, [], place)

    f.loop(*share.of(f, 1), 1, [], all_rows)


def _segments(count: int, lanes: int) -> list[tuple[int, int, int]]:
    """Runs of vectors: (first element, number of vectors, lanes)."""
    full_vectors = count // lanes
    return [(0, full_vectors, lanes), (full_vectors * lanes, count - full_vectors * lanes, 1)]


# ---------------------------------------------------------------------------------------------------------- equal ids
_HASH = 0x9E3779B97F4A7C15 - (1 << 64)
"""Multiplier of the hash, 2^64 divided by the golden ratio: the upper bits of the product depend on all bits of the id."""


def _slots(count: int) -> int:
    """The number of slots of a hash table for `count` ids: a power of two, at least twice `count`."""
    return 1 << max(2 * count - 1, 1).bit_length()


def hash_bytes(count: int) -> int:
    """The bytes of workspace that `write_firsts` needs for `count` ids."""
    return _slots(count) * INT32.bytes


def write_firsts(f: Function, ids: RowSource, firsts: Value, slots: Value, share: Share) -> None:
    """See `graph.Firsts`. A slot of the hash table holds the place of an id, counted from 1; 0 if it is free."""
    count, size = ids.shape[0], _slots(ids.shape[0])

    def entry(slot: Value) -> Value:
        return f.between(f.convert(f.load(f.at(slots, slot, INT32), INT32), INT64), 0, count)

    def look(row: Value) -> None:
        number = ids.number(f, row)
        f.store_number(f.int64(-1), f.at(firsts, row, INT64))
        with f.when(f.compare("sge", number, 0)):

            def fits(slot: Value) -> tuple[Value, Value]:
                place = entry(slot)
                is_free = f.compare("eq", place, 0)
                row = f.between(f.sub(f.select(is_free, f.int64(1), place), 1), 0, count - 1)
                slot_id = ids.number(f, row)
                return f.bit_or(is_free, f.compare("eq", slot_id, number)), f.bit_and(f.add(slot, 1), size - 1)

            start = f.shift_right_logical(f.mul(number, f.int64(_HASH)), 64 - (size.bit_length() - 1))
            slot = f.search(start, fits)
            place = entry(slot)
            first = f.select(f.compare("eq", place, 0), row, f.sub(place, 1))
            f.store_number(f.convert(f.add(first, 1), INT32), f.at(slots, slot, INT32))
            f.store_number(first, f.at(firsts, row, INT64))

    def all_ids(_: Value) -> None:
        f.loop(0, size // 8 or 1, 1, [], lambda i: f.store(zero(INT32.of(min(8, size))), f.at(slots, f.mul(i, 8), INT32)))
        f.loop(0, count, 1, [], look)

    f.loop(*share.of(f, 1), 1, [], all_ids)
