"""Kernels of small matrices: solutions, and factors of Cholesky. A matrix lies on the stack of the thread that computes it.

Elimination rounds each product before it is subtracted, as numpy does in the checks of `fluid.executor.kernels.linalg`. So both
find the same pivots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .emitter import BOOL, Function, Operand, Type, Value, constant
from .images import affine, parts
from .kernel import Share
from .mathematics import sqrt
from .target import Target

MOST_ROWS = 16
"""The most rows of a small matrix: elimination by rows, in vectors as long as a row, is quick for these."""


@dataclass(frozen=True)
class Matrices:
    """Matrices in memory: a pointer to the first element, strides of matrices, rows and columns, shape, and element type."""

    pointer: Value
    strides: Sequence[int]
    shape: Sequence[int]
    element: Type

    def at(self, f: Function, number: Operand, row: Operand, column: Operand) -> Value:
        """The address of an element."""
        terms = zip((number, row, column), self.strides, strict=True)
        return f.at(self.pointer, affine(f, 0, *((f.int64(index), stride) for index, stride in terms)), self.element)

    def load(self, f: Function, number: Operand, row: Operand, column: Operand) -> Value:
        """An element."""
        return f.load(self.at(f, number, row, column), self.element)


class _RowsOnStack:
    """Rows of numbers on the stack."""

    def __init__(self, f: Function, rows: int, columns: int, element: Type, target: Target) -> None:
        self._f, self._columns, self._element = f, columns, element
        self._parts = parts(columns, target.lanes(element.bytes))
        self._pointer = f.stack(element, rows * columns)

    def at(self, row: Operand, column: Operand) -> Value:
        """The address of an element."""
        f = self._f
        return f.at(self._pointer, affine(f, 0, (f.int64(row), self._columns), (f.int64(column), 1)), self._element)

    def number(self, row: Operand, column: Operand) -> Value:
        """An element."""
        return self._f.load(self.at(row, column), self._element)

    def vectors(self, row: Operand) -> list[Value]:
        """A row."""
        return [self._f.load(self.at(row, start), self._element.of(lanes)) for start, lanes in self._parts]

    def set(self, row: Operand, vectors: Sequence[Value]) -> None:
        """Replace a row."""
        for (start, _), vector in zip(self._parts, vectors, strict=True):
            self._f.store(vector, self.at(row, start))

    def load(self, matrices: Matrices, number: Value) -> None:
        """Copy the rows of a matrix."""
        self._copy(matrices, number, lambda there, here: self._f.store_number(self._f.load(there, self._element), here))

    def store(self, matrices: Matrices, number: Value) -> None:
        """Copy the rows to a matrix."""
        self._copy(matrices, number, lambda there, here: self._f.store_number(self._f.load(here, self._element), there))

    def _copy(self, matrices: Matrices, number: Value, copy: Callable[[Value, Value], None]) -> None:
        f, (_, rows, columns) = self._f, matrices.shape

        def row(r: Value) -> None:
            f.loop(0, columns, 1, [], lambda c: copy(matrices.at(f, number, r, c), self.at(r, c)))

        f.loop(0, rows, 1, [], row)

    def swap(self, first: Operand, second: Operand) -> None:
        """Exchange two rows."""
        above, below = self.vectors(first), self.vectors(second)
        self.set(first, below)
        self.set(second, above)

    def subtract(self, target: Operand, factor: Value, source: Operand) -> None:
        """Subtract a multiple of a row from another row."""
        f = self._f
        pairs = zip(self.vectors(target), self.vectors(source), strict=True)
        self.set(target, [f.sub(a, f.mul(f.splat(factor, b.type.lanes), b)) for a, b in pairs])

    def divide(self, row: Operand, by: Value) -> None:
        """Divide a row by a number."""
        f = self._f
        self.set(row, [f.div(vector, f.splat(by, vector.type.lanes)) for vector in self.vectors(row)])


def write_solved(
    f: Function, matrices: Matrices, right: Matrices, solutions: Matrices, kind: str, share: Share, target: Target
) -> None:
    """Write the kernel that solves equations; see `graph.Solved`."""
    count, rows, columns = right.shape
    work = _RowsOnStack(f, rows, rows, matrices.element, target)
    results = _RowsOnStack(f, rows, columns, matrices.element, target)

    def solve(number: Value) -> None:
        work.load(matrices, number)
        results.load(right, number)
        if kind == "any":
            _eliminate(f, work, rows, results)
        if kind.startswith("lower"):
            _substitute(f, work, rows, results, is_upper=False, is_unit=kind.endswith("unit"))
        else:
            _substitute(f, work, rows, results, is_upper=True, is_unit=kind.endswith("unit"))
        results.store(solutions, number)

    f.loop(*share.of(f, count), 1, [], solve)


def write_factored(f: Function, matrices: Matrices, factors: Matrices, share: Share, target: Target) -> None:
    """Write the kernel that computes Cholesky's factors; see `graph.Factored`."""
    count, rows, _ = matrices.shape
    work, zero = _RowsOnStack(f, rows, rows, matrices.element, target), constant(0.0, matrices.element)

    def factor(number: Value) -> None:
        def clear_before_diagonal(row: Value) -> None:
            f.loop(0, row, 1, [], lambda column: f.store_number(zero, factors.at(f, number, row, column)))

        work.load(matrices, number)
        _decompose(f, work, rows)
        work.store(factors, number)
        f.loop(1, rows, 1, [], clear_before_diagonal)

    f.loop(*share.of(f, count), 1, [], factor)


def is_any_refused(f: Function, matrices: Matrices, kind: str, target: Target) -> Value:
    """Whether any matrix is not as `kind` says: see `MatrixTest`."""
    count, rows, _ = matrices.shape
    work = None if kind == "nonzero diagonal" else _RowsOnStack(f, rows, rows, matrices.element, target)

    def refused(number: Value, wrong: Value) -> list[Value]:
        if work is None:
            return f.loop(0, rows, 1, [wrong], lambda r, wrong: [f.bit_or(wrong, is_zero(matrices.load(f, number, r, r)))])
        work.load(matrices, number)
        return [f.bit_or(wrong, _eliminate(f, work, rows) if kind == "invertible" else _decompose(f, work, rows))]

    def is_zero(value: Value) -> Value:
        return f.compare("oeq", value, 0.0)

    (wrong,) = f.loop(0, count, 1, [constant(0, BOOL)], refused)
    return wrong


def _eliminate(f: Function, work: _RowsOnStack, rows: int, results: _RowsOnStack | None = None) -> Value:
    """Make a matrix upper triangular by Gauss's elimination with partial pivoting; returns whether a pivot is 0.

    Args:
        results: right sides, which get the same steps.
    """

    def step(k: Value, wrong: Value) -> list[Value]:
        def compare(i: Value, best: Value, place: Value) -> list[Value]:
            size = f.intrinsic("fabs", work.number(i, k))
            is_larger = f.compare("ogt", size, best)
            return [f.select(is_larger, size, best), f.select(is_larger, i, place)]

        first = f.intrinsic("fabs", work.number(k, k))
        _, place = f.loop(f.add(k, 1), rows, 1, [first, k], compare)
        place = f.between(place, 0, rows - 1)
        with f.when(f.compare("ne", place, k)):
            for part in (work, *([results] if results is not None else [])):
                part.swap(k, place)
        pivot = work.number(k, k)

        def eliminate(i: Value) -> None:
            factor = f.div(work.number(i, k), pivot)
            work.subtract(i, factor, k)
            if results is not None:
                results.subtract(i, factor, k)

        f.loop(f.add(k, 1), rows, 1, [], eliminate)
        return [f.bit_or(wrong, f.compare("oeq", pivot, 0.0))]

    (wrong,) = f.loop(0, rows, 1, [constant(0, BOOL)], step)
    return wrong


def _substitute(f: Function, work: _RowsOnStack, rows: int, results: _RowsOnStack, is_upper: bool, is_unit: bool) -> None:
    """Replace right sides by the solutions for a triangle of a matrix, whose diagonal counts as ones if `is_unit`."""

    def step(number: Value) -> None:
        k = f.sub(rows - 1, number) if is_upper else number
        if not is_unit:
            results.divide(k, work.number(k, k))
        first, last = (f.int64(0), k) if is_upper else (f.add(k, 1), f.int64(rows))
        f.loop(first, last, 1, [], lambda i: results.subtract(i, work.number(i, k), k))

    f.loop(0, rows, 1, [], step)


def _decompose(f: Function, work: _RowsOnStack, rows: int) -> Value:
    """Replace the upper triangle of a matrix by the upper factor of Cholesky; returns whether a pivot is 0 or less."""

    def step(k: Value, wrong: Value) -> list[Value]:
        pivot = work.number(k, k)
        work.divide(k, sqrt(f, pivot))
        f.loop(f.add(k, 1), rows, 1, [], lambda i: work.subtract(i, work.number(k, i), k))
        return [f.bit_or(wrong, f.compare("ole", pivot, 0.0))]

    (wrong,) = f.loop(0, rows, 1, [constant(0, BOOL)], step)
    return wrong
