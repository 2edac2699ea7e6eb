"""Bounds of indices against the indices of a run: no index is outside, and the bounds that kernels rely on are exact."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from checks import Checks, each
from harness import texts

from fluid.executor.native.bounds import Footprint, IndexBounds, Sum, Turns, facts_of
from fluid.executor.native.emitter import FLOAT, INT64, POINTER, Function, Operand, Value
from fluid.executor.native.kernel import Share

MOST_RUNS = 3000


class Indices:
    """Randomly computed indices: the bounds of each, and its values for all paths through the code.

    Inside of a loop there is a way for each turn of each way before; so all indices get as many values more.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.bounds = random.Random(seed), IndexBounds()
        self.made: list[tuple[Sum | None, Any]] = [(Sum(number), np.array([number])) for number in (0, 1, 3, 8, 17)]

    def pick(self) -> tuple[Sum | None, Any]:
        return self.rng.choice(self.made[-5:] + self.made[:4])

    def grow(self) -> None:
        """Compute a new index from the present ones."""
        (a, x), (b, y), by = self.pick(), self.pick(), self.rng.choice([1, 2, 3, 4, 8, 13])
        match self.rng.choice(["loop", "loop", "sum", "scaled", "divided", "lesser", "greater", "either"]):
            case "loop":
                self.loop(a, x, b, y, by)
            case "sum" if a is not None and b is not None:
                sign = self.rng.choice([-1, 1])
                self.made.append((a.plus(b, sign * by), x + sign * by * y))
            case "scaled":
                self.made.append((self.bounds.product(a, Sum(by)), x * by))
            case "divided" if x.min(initial=0) >= 0:
                self.made.append((self.bounds.quotient(a, Sum(by)), x // by))
                self.made.append((self.bounds.remainder(a, Sum(by)), x % by))
            case "lesser":
                self.made.append((self.bounds.lesser(a, b), np.minimum(x, y)))
            case "greater":
                self.made.append((self.bounds.greater(a, b), np.maximum(x, y)))
            case "either" if a is not None and b is not None:
                (fact,) = facts_of("sle", a, b)
                self.made.append((self.bounds.either(Sum(by), Sum(2), fact), np.where(x <= y, by, 2)))

    def loop(self, start: Sum | None, first: Any, stop: Sum | None, end: Any, step: int) -> None:
        """Enter a loop that carries a value; each turn adds another index to it."""
        counts = np.maximum(-(-(end - first) // step), 0)
        if not 0 < counts.sum() <= MOST_RUNS:
            return
        turns = Turns(self.bounds, start, stop, step)
        assert not turns.are_none
        number = np.concatenate([np.arange(count) for count in counts])
        (begin, x), (further, y) = self.pick(), self.pick()
        phi = None if begin is None else self.bounds.variable()
        after = turns.end(begin, phi, phi if phi is None or further is None else phi.plus(further))
        self.made = [(known, np.repeat(values, counts)) for known, values in self.made]
        self.made.append((turns.index, np.repeat(first, counts) + number * step))
        if phi is not None and after is not None:
            self.made.append((phi, np.repeat(x, counts) + number * np.repeat(y, counts)))
            self.made.append((after, np.repeat(x + counts * y, counts)))

    def check(self) -> None:
        for known, values in self.made:
            if known is not None:
                assert self.bounds.greatest(known) >= values.max(), f"{known} is as much as {values.max()}"
                assert self.bounds.least(known) <= values.min(), f"{known} is as little as {values.min()}"

    def check_facts(self) -> None:
        """Where facts are known, bounds may be nearer, but hold there."""
        (a, x), (b, y), (c, z) = self.pick(), self.pick(), self.pick()
        if a is not None and b is not None and c is not None and (holds := x < y).any():
            facts = tuple(facts_of("slt", a, b))
            assert self.bounds.greatest(c, facts) >= z[holds].max()
            assert self.bounds.least(c, facts) <= z[holds].min()


@pytest.mark.parametrize("seeds", [range(300), pytest.param(range(300, 20_000), marks=pytest.mark.slow)], ids=["some", "many"])
def test_no_index_lies_outside(seeds: range) -> None:
    with Checks() as checks:
        for seed in seeds:
            with checks(f"indices {seed}"):
                indices = Indices(seed)
                for _ in range(12):
                    indices.grow()
                indices.check()
                for _ in range(5):
                    indices.check_facts()


def footprints(body: Callable[[Function, Sequence[Value]], None], operands: int = 1) -> list[Footprint]:
    def write(f: Function, pointers: Sequence[Value], share: Share) -> None:
        body(f, pointers)

    return texts(write, operands).footprints["kernel0"]


def every(f: Function, start: Operand, stop: Operand, step: int, body: Callable[[Value], None]) -> None:
    f.loop(start, stop, step, [], lambda index: body(index))


def vectors_and_tail(f: Function, pointers: Sequence[Value]) -> None:
    """100 floats: 12 vectors of 8 lanes, and 4 floats."""
    every(f, 0, 96, 8, lambda i: f.store(f.load(f.at(pointers[0], i, FLOAT), FLOAT.of(8)), f.at(pointers[1], i, FLOAT)))
    f.store_first(f.load_first(f.at(pointers[0], 96, FLOAT), FLOAT.of(8), 4), f.at(pointers[1], 96, FLOAT), 4)


def parts_of_a_depth(f: Function, pointers: Sequence[Value]) -> None:
    """1,030 floats in parts of 1,024, each in fours and ones, through a pointer that goes on."""

    def part(start: Value) -> None:
        extent = f.min(f.sub(1030, start), 1024)
        whole = f.mul(f.div(extent, 4), 4)

        def some(_: Value, at: Value) -> list[Value]:
            f.load(at, FLOAT.of(4))
            return [f.opaque(f.at(at, 4, FLOAT))]

        def one(_: Value, at: Value) -> list[Value]:
            f.load(at, FLOAT)
            return [f.at(at, 1, FLOAT)]

        (at,) = f.loop(0, whole, 4, [f.at(pointers[0], start, FLOAT)], some)
        f.loop(whole, extent, 1, [at], one)

    every(f, 0, 1030, 1024, part)


def rows_and_columns(f: Function, pointers: Sequence[Value]) -> None:
    """An image of 7 x 5 pixels within one of 9 x 7, by the number of a pixel."""

    def pixel(number: Value) -> None:
        row, column = f.divided(number, 5)
        f.load(f.at(pointers[0], f.add(f.mul(f.add(row, 1), 7), f.add(column, 1)), FLOAT), FLOAT)

    every(f, 0, 35, 1, pixel)


def edges(f: Function, pointers: Sequence[Value]) -> None:
    """The second of two neighbours, where there is one."""

    def pair(number: Value) -> None:
        first = f.mul(number, 2)
        with f.when(f.compare("slt", first, 8)):
            f.load(f.at(pointers[0], f.add(first, 1), FLOAT), FLOAT)

    every(f, 0, 5, 1, pair)


def no_edge(f: Function, pointers: Sequence[Value]) -> None:
    """Read the second of two neighbours in rows of one element."""

    def pair(number: Value) -> None:
        row, first = f.divided(number, 1)
        f.load(f.at(pointers[0], row, FLOAT), FLOAT)
        with f.when(f.compare("slt", first, 0)):
            f.load(f.at(pointers[0], f.add(row, 1), FLOAT), FLOAT)

    every(f, 0, 5, 1, pair)


def clamped(f: Function, pointers: Sequence[Value]) -> None:
    def near(number: Value) -> None:
        f.load(f.at(pointers[0], f.max(f.min(f.sub(number, 3), 6), 0), FLOAT), FLOAT)

    every(f, 0, 50, 1, near)


def never(f: Function, pointers: Sequence[Value]) -> None:
    every(f, 0, f.min(f.int64(0), 5), 1, lambda i: (f.load(f.at(pointers[0], i, FLOAT), FLOAT), None)[1])


def backwards(f: Function, pointers: Sequence[Value]) -> None:
    def step(_: Value, at: Value) -> list[Value]:
        f.load(at, FLOAT)
        return [f.at(at, -3, FLOAT)]

    f.loop(0, 4, 1, [f.at(pointers[0], 9, FLOAT)], step)


@each(
    "body, expected",
    [
        (vectors_and_tail, [(0, 400), (0, 400)]),
        (parts_of_a_depth, [(0, 4120)]),
        (rows_and_columns, [(4 * 8, 4 * (8 + 6 * 7 + 5))]),
        (edges, [(4, 32)]),
        (no_edge, [(0, 20)]),
        (clamped, [(0, 28)]),
        (never, [(0, 0)]),
        (backwards, [(0, 40)]),
    ],
)
def test_what_kernels_access_is_known_exactly(body: Callable[..., None], expected: list[Footprint]) -> None:
    assert footprints(body, len(expected)) == expected


def by_number(f: Function, pointers: Sequence[Value]) -> None:
    f.load(f.at(pointers[0], f.load(pointers[0], INT64), FLOAT), FLOAT)


def elsewhere(f: Function, pointers: Sequence[Value]) -> None:
    f.load(Value(f.load(pointers[0], POINTER).text, POINTER), FLOAT)


def on_the_stack(f: Function, pointers: Sequence[Value]) -> None:
    every(f, 0, 5, 1, lambda i: f.store_number(f.int64(0), f.at(f.stack(INT64, 4), i, INT64)))


@each(
    "body, message",
    [
        (by_number, "kernel0 accesses nobody knows how much of operand 0"),
        (elsewhere, "kernel0 uses a pointer with an unknown target"),
        (on_the_stack, "kernel0 accesses bytes 0 to 40 of 32 on the stack"),
    ],
)
def test_what_nobody_knows_is_refused(body: Callable[..., None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        footprints(body)


def test_what_the_writer_says_of_an_index_is_believed() -> None:
    def row(f: Function, pointers: Sequence[Value]) -> None:
        f.load(f.at(pointers[0], f.between(f.load(pointers[1], INT64), 0, 9), FLOAT), FLOAT)

    assert footprints(row, 2) == [(0, 40), (0, 8)]
