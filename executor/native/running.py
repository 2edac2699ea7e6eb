"""The kernel of running sums and products.

Numbers that lie far apart are added one after the other. Neighbouring numbers are added in vectors: each lane gets the sum of the
lanes before it by a few steps of shifted additions, and then the total of the vectors before.
"""

from __future__ import annotations

from collections.abc import Sequence

from .emitter import Function, Operand, Type, Value, constant
from .formulas import combine, neutral
from .images import affine, bounds_of, parts
from .kernel import Share
from .target import Target

_ROWS = 16
"""The most rows of neighbouring numbers in a chunk."""


class RunningKernel:
    """Writes the totals along the middle axis of an array [before, count, after], which lies without gaps.

    Args:
        kind: "sum" or "prod".
        exclusive: whether a total leaves the element itself out.
        reverse: whether totals begin at the end.
    """

    def __init__(self, extents: tuple[int, int, int], element: Type, kind: str, exclusive: bool, reverse: bool) -> None:
        self.before, self.count, self.after = extents
        self.element, self.kind, self.exclusive, self.reverse = element, kind, exclusive, reverse

    def write(self, f: Function, source: Value, output: Value, share: Share, target: Target) -> None:
        """Write the kernel from `source` to `output`."""
        lanes = target.lanes(self.element.bytes)
        if self.after == 1:
            self._write_neighbours(f, source, output, share, lanes)
        else:
            self._write_columns(f, source, output, share, lanes, target.registers // 2)

    def _visited_place(self, f: Function, number: Value, count: int) -> Value:
        """The place of the element that is added after `number` elements."""
        return f.sub(count - 1, number) if self.reverse else number

    def _empty_total(self, type_: Type) -> Value:
        """The total of no elements. Minus zero changes no float, not even minus zero."""
        is_sum_of_floats = self.kind == "sum" and self.element.is_float
        return constant(-0.0, type_) if is_sum_of_floats and not self.exclusive else neutral(self.kind, type_)

    # -- elements that lie apart
    def _write_columns(self, f: Function, source: Value, output: Value, share: Share, lanes: int, most: int) -> None:
        """Each thread takes blocks of columns; the totals stay in registers."""
        block = lanes * most
        full, remaining = divmod(self.after, block)

        def columns(first: Value, vectors: Sequence[tuple[int, int]]) -> None:
            def row(number: Value, *totals: Value) -> list[Value]:
                place = f.mul(self._visited_place(f, number, self.count), self.after)
                results = []
                for (lane, width), total in zip(vectors, totals, strict=True):
                    at = affine(f, lane, (first, 1), (place, 1))
                    value = combine(f, self.kind, total, f.load(f.at(source, at, self.element), self.element.of(width)))
                    f.store(total if self.exclusive else value, f.at(output, at, self.element))
                    results.append(value)
                return results

            f.loop(0, self.count, 1, [self._empty_total(self.element.of(width)) for _, width in vectors], row)

        def full_block(number: Value) -> None:
            outer, place = f.divided(number, full)
            columns(affine(f, 0, (outer, self.count * self.after), (place, block)), parts(block, lanes))

        def last_block(outer: Value) -> None:
            columns(affine(f, full * block, (outer, self.count * self.after)), parts(remaining, lanes))

        if full:
            f.loop(*share.of(f, self.before * full), 1, [], full_block)
        if remaining:
            f.loop(*share.of(f, self.before), 1, [], last_block)

    # -- neighbouring elements
    def _write_neighbours(self, f: Function, source: Value, output: Value, share: Share, lanes: int) -> None:
        """Each thread takes rows."""
        chunks = -(-self.before // _ROWS)
        full, remaining = divmod(self.count, lanes)
        behind = [(full * lanes + start, width) for start, width in parts(remaining, lanes)]

        def row(number: Value) -> None:
            first = f.mul(number, self.count)

            def vector(start: Operand, width: int, total: Value) -> Value:
                at = affine(f, 0, (first, 1), (start, 1))
                totals, following = self._scan(f, f.load(f.at(source, at, self.element), self.element.of(width)), total)
                f.store(totals, f.at(output, at, self.element))
                return following

            def full_vectors(total: Value) -> Value:
                return f.loop(
                    0, full, 1, [total], lambda i, total: [vector(f.mul(self._visited_place(f, i, full), lanes), lanes, total)]
                )[0]

            total = self._empty_total(self.element.of(1))
            if not self.reverse:
                total = full_vectors(total)
            for start, width in reversed(behind) if self.reverse else behind:
                total = vector(start, width, total)
            if self.reverse:
                full_vectors(total)

        def chunk(number: Value) -> None:
            f.loop(*bounds_of(f, number, chunks, self.before), 1, [], row)

        f.loop(*share.of(f, chunks), 1, [], chunk)

    def _scan(self, f: Function, vector: Value, before: Value) -> tuple[Value, Value]:
        """Compute the running totals of a vector, from the total `before` it; returns them, and the total after it."""
        width, empty = vector.type.lanes, self._empty_total(vector.type)
        step = 1
        while step < width:
            vector = combine(f, self.kind, self._shift(f, vector, empty, step), vector)
            step *= 2
        last = f.splat(f.lane(vector, 0 if self.reverse else width - 1), 1)
        inner = self._shift(f, vector, empty, 1) if self.exclusive else vector
        spread = f.splat(f.lane(before, 0), width)
        return combine(f, self.kind, spread, inner), combine(f, self.kind, before, last)

    def _shift(self, f: Function, vector: Value, empty: Value, step: int) -> Value:
        """Shift a vector by some lanes in the direction of the totals; `empty` follows."""
        width = vector.type.lanes
        if width == 1:
            return empty
        lanes = [lane + step if self.reverse else lane - step for lane in range(width)]
        return f.shuffle(vector, empty, [lane if 0 <= lane < width else width for lane in lanes])
