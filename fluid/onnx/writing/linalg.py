"""Solve linear equations by elimination, column by column, for matrices of a known size."""

from __future__ import annotations

import numpy as np

from fluid.ops.linalg import is_vector
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor

_MOST = 64
"""The largest matrices to eliminate."""


def _size(x: OnnxTensor) -> int:
    size = max(x.shape[-2:])
    if min(x.shape[-2:]) < 0:
        raise NotExported("matrices whose size is known only at run time")
    if size > _MOST:
        raise NotExported(f"matrices larger than {_MOST} x {_MOST}")
    return size


def _turned(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    return g.transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def _row(g: OnnxGraph, x: OnnxTensor, place: int) -> OnnxTensor:
    return g.slice(x, [x.ndim - 2], [place], [place + 1])


def _column(g: OnnxGraph, x: OnnxTensor, place: int) -> OnnxTensor:
    return g.slice(x, [x.ndim - 1], [place], [place + 1])


def _is(g: OnnxGraph, size: int, place: int, axis: int) -> OnnxTensor:
    """A mask of the row (-2) or column (-1) at a place."""
    return g.constant((np.arange(size) == place).reshape((-1, 1) if axis == -2 else (1, -1)))


def _broadcast(g: OnnxGraph, x: OnnxTensor, columns: OnnxTensor) -> tuple[OnnxTensor, OnnxTensor]:
    """Broadcast the batch dimensions of matrices and columns."""
    batch = g._common(x.sizes[:-2], columns.sizes[:-2])
    if x.sizes[:-2] == columns.sizes[:-2] and -1 not in batch:
        return x, columns
    zero_factor = g.number(0, x)
    one = g.binary("Mul", g.slice(g.slice(x, [-1], [0], [1]), [-2], [0], [1]), zero_factor)
    two = g.binary("Mul", g.slice(g.slice(columns, [-1], [0], [1]), [-2], [0], [1]), zero_factor)
    zero = g.binary("Add", one, two)
    return g.binary("Add", x, zero), g.binary("Add", columns, zero)


def _eliminated(g: OnnxGraph, x: OnnxTensor, columns: OnnxTensor) -> OnnxTensor:
    """Solve ``x @ result = columns`` by Gauss-Jordan elimination; the pivot is the greatest of a column."""
    size = _size(x)
    x, columns = _broadcast(g, x, columns)
    augmented = g.concat([x, columns], x.ndim - 1)
    for place in range(size):
        column = _column(g, x := g.slice(augmented, [augmented.ndim - 1], [0], [size]), place)
        below = g.constant((np.arange(size) >= place).reshape(-1, 1))
        pivots = g.where(below, g.unary("Abs", column), g.number(-1, column))
        axis = augmented.ndim - 2
        best = g.sized_node("ArgMax", [pivots], VarType.INT64, (*pivots.sizes[:-2], 1, 1), axis=axis, keepdims=1)
        chosen = g.binary("Equal", g.constant(np.arange(size).reshape(-1, 1)), best)
        pivot = g.reduce("ReduceSum", g.where(chosen, augmented, g.number(0, augmented)), [axis], keep=True)
        # Swap the row at the place with the pivot's row; the pivot's row is divided by the pivot.
        augmented = g.where(chosen, _row(g, augmented, place), augmented)
        pivot = g.binary("Div", pivot, _column(g, pivot, place))
        reduced = g.binary("Sub", augmented, g.binary("Mul", _column(g, augmented, place), pivot))
        augmented = g.where(_is(g, size, place, -2), pivot, reduced)
    return g.slice(augmented, [augmented.ndim - 1], [size], [2**31 - 1])


def _inverse(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    size = _size(x)
    inverse = _eliminated(g, x, g.constant(np.eye(size), x.dtype))
    inverse.sizes = x.sizes
    return inverse


@exports("inverse")
def inverse(g: OnnxGraph, Input: OnnxTensor) -> OnnxTensor:
    return _inverse(g, Input)


@exports("solve")
def solve(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor) -> OnnxTensor:
    if not is_vector(X.shape, Y.shape):
        return _eliminated(g, X, Y)
    return g.squeeze(_eliminated(g, X, g.unsqueeze(Y, Y.ndim)), -1)


@exports("matrix_power")
def matrix_power(g: OnnxGraph, X: OnnxTensor, n: int) -> OnnxTensor:
    size = _size(X)
    if n == 0:
        return g.expand(g.constant(np.eye(size), X.dtype), g.dims(X), X.sizes)
    factor, result, power = _inverse(g, X) if n < 0 else X, None, abs(n)
    while power:
        if power & 1:
            result = factor if result is None else g.matmul(result, factor)
        power >>= 1
        factor = g.matmul(factor, factor) if power else factor
    assert result is not None
    return g.identity(result)


@exports("slogdeterminant")
def slogdeterminant(g: OnnxGraph, Input: OnnxTensor) -> OnnxTensor:
    value = g.sized_node("Det", [Input], Input.dtype, Input.sizes[:-2])
    parts = [g.unary("Sign", value), g.unary("Log", g.unary("Abs", value))]
    return g.concat([g.unsqueeze(part, 0) for part in parts], 0)


# ------------------------------------------------------------------------------------------------------------- triangles
def _solved(g: OnnxGraph, x: OnnxTensor, columns: OnnxTensor, upper: bool, ones: bool = False) -> OnnxTensor:
    """Solve ``x @ result = columns`` for a triangle of x, row by row."""
    size = _size(x)
    x, residual = _broadcast(g, x, columns)
    result: OnnxTensor | None = None
    for place in reversed(range(size)) if upper else range(size):
        solved_row = _row(g, residual, place)
        if not ones:
            solved_row = g.binary("Div", solved_row, _column(g, _row(g, x, place), place))
        here = g.where(_is(g, size, place, -2), solved_row, g.number(0, solved_row))
        result = here if result is None else g.binary("Add", result, here)
        residual = g.binary("Sub", residual, g.binary("Mul", _column(g, x, place), solved_row))
    assert result is not None
    return result


@exports("triangular_solve")
def triangular_solve(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, upper: bool, transpose: bool, unitriangular: bool) -> OnnxTensor:
    return _solved(g, _turned(g, X) if transpose else X, Y, upper is not transpose, unitriangular)


@exports("cholesky")
def cholesky(g: OnnxGraph, X: OnnxTensor, upper: bool) -> OnnxTensor:
    size = _size(X)
    residual, columns = _turned(g, X) if upper else X, []
    for place in range(size):
        column = _column(g, residual, place)
        column = g.where(g.constant((np.arange(size) >= place).reshape(-1, 1)), column, g.number(0, column))
        column = g.binary("Div", column, g.unary("Sqrt", _row(g, column, place)))
        columns.append(column)
        residual = g.binary("Sub", residual, g.binary("Mul", column, _turned(g, column)))
    lower = g.concat(columns, X.ndim - 1)
    lower.sizes = X.sizes
    return _turned(g, lower) if upper else lower
