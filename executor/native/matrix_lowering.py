"""Lowers ops on the matrices of a tensor: triangles, diagonals, equations and factors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from fluid.ops.linalg import is_vector
from fluid.ops.shapes import normalize_axes

from .emitter import BOOL, DOUBLE, FLOAT, INT32
from .graph import (
    Factored,
    GraphNode,
    Position,
    Solved,
    broadcast_to,
    constant,
    mapped,
    plain,
    reshaped,
    strides_of,
    transposed,
    viewed,
)
from .lowering import GraphTensor, NotLowered, lowers, number_like
from .shape_lowering import padded
from .small_matrices import MOST_ROWS


def _rows_and_columns(shape: Sequence[int]) -> tuple[GraphNode, GraphNode]:
    """The numbers of the row and of the column of each element of matrices, to broadcast."""
    height, width = (mapped("copy", Position((count,), INT32)) for count in shape[-2:])
    return reshaped(height, (*height.shape, 1)), reshaped(width, (1, *width.shape))


def _where(relation: str, shape: Sequence[int], offset: int, node: GraphNode) -> GraphNode:
    """The elements of matrices whose column and diagonal have a relation, among zeros.

    Args:
        relation: compares the column with the column of the diagonal in the same row.
        shape: of the result.
        offset: the number of the diagonal.
        node: the elements, to broadcast.
    """
    if 0 in shape:
        raise NotLowered("matrices without elements")
    rows, columns = _rows_and_columns(shape)
    diagonal = mapped("add", rows, constant(offset, INT32))
    chosen = mapped(relation, broadcast_to(columns, tuple(shape[-2:])), diagonal, element=BOOL)
    zero = number_like(0.0, node)
    return mapped("select", broadcast_to(chosen, tuple(shape)), broadcast_to(node, tuple(shape)), zero, element=node.element)


@lowers("tril_triu")
def tril_triu(X: GraphTensor, diagonal: int, lower: bool) -> GraphTensor:
    return GraphTensor(_where("ole" if lower else "oge", X.shape, diagonal, plain(X.node)))


def _axes_last(ndim: int, axis1: int, axis2: int) -> list[int]:
    """All axes, `axis1` and `axis2` last."""
    last = normalize_axes([axis1, axis2], ndim)
    return [*(axis for axis in range(ndim) if axis not in last), *last]


@lowers("diagonal")
def diagonal(Input: GraphTensor, offset: int, axis1: int, axis2: int) -> GraphTensor:
    order, source = _axes_last(Input.ndim, axis1, axis2), plain(Input.node)
    *before, height, width = (source.shape[axis] for axis in order)
    *steps, down, across = (strides_of(source)[axis] for axis in order)
    row, column = max(-offset, 0), max(offset, 0)
    count = max(0, min(height - row, width - column))
    if not source.size or not count:
        raise NotLowered("diagonals without elements")
    diagonals = viewed(source, (*before, count), row * down + column * across, (*steps, down + across))
    return GraphTensor(mapped("copy", diagonals))


@lowers("undiagonal")
def undiagonal(X: GraphTensor, Like: GraphTensor, offset: int, axis1: int, axis2: int) -> GraphTensor:
    order = _axes_last(Like.ndim, axis1, axis2)
    shape = tuple(Like.shape[axis] for axis in order)
    *before, height, width = shape
    row = max(-offset, 0)
    count = max(0, min(height - row, width - max(offset, 0)))
    if not count:
        raise NotLowered("diagonals without elements")
    values = broadcast_to(plain(X.node), (*before, count))
    column = padded(values, [*[(0, 0)] * len(before), (row, height - row - count)], 0.0) if height > count else values
    matrices = _where("oeq", shape, offset, reshaped(plain(column), (*before, height, 1)))
    return GraphTensor(mapped("copy", transposed(matrices, [order.index(axis) for axis in range(Like.ndim)])))


# ------------------------------------------------------------------------------------------------ equations and factors
_MOST_COLUMNS = 64
"""The most right sides of equations, so that they fit on the stack."""


def _matrices(node: GraphNode, batch: tuple[int, ...]) -> GraphNode:
    """Small matrices [B, rows, columns] of a batch."""
    rows, columns = node.shape[-2:]
    if not 0 < rows <= MOST_ROWS or not 0 < columns <= _MOST_COLUMNS or 0 in batch:
        raise NotLowered("matrices that are not small")
    if node.element not in (FLOAT, DOUBLE):
        raise NotLowered("matrices of other elements")
    return reshaped(plain(broadcast_to(node, (*batch, rows, columns))), (prod(batch), rows, columns))


def _solved(matrices: GraphNode, right: GraphNode, kind: str) -> GraphTensor:
    """The solutions of equations; see `graph.Solved`."""
    if matrices.element is not right.element:
        raise NotLowered("right sides of another precision")
    batch = np.broadcast_shapes(matrices.shape[:-2], right.shape[:-2])
    columns = _matrices(right, batch)
    solutions = Solved(columns.shape, columns.element, _matrices(matrices, batch), columns, kind)
    return GraphTensor(reshaped(solutions, (*batch, *columns.shape[1:])))


def _turned(node: GraphNode) -> GraphNode:
    """Matrices transposed."""
    return transposed(plain(node), [*range(node.ndim - 2), node.ndim - 1, node.ndim - 2])


@lowers("solve")
def solve(X: GraphTensor, Y: GraphTensor) -> GraphTensor:
    if not is_vector(X.shape, Y.shape):
        return _solved(X.node, Y.node, "any")
    solutions = _solved(X.node, reshaped(plain(Y.node), (*Y.shape, 1)), "any")
    return GraphTensor(reshaped(solutions.node, solutions.shape[:-1]))


@lowers("inverse")
def inverse(Input: GraphTensor) -> GraphTensor:
    ones = _where("oeq", Input.shape, 0, number_like(1.0, Input.node))
    return _solved(Input.node, ones, "any")


@lowers("triangular_solve")
def triangular_solve(X: GraphTensor, Y: GraphTensor, upper: bool, transpose: bool, unitriangular: bool) -> GraphTensor:
    kind = f"{'upper' if upper != transpose else 'lower'}{' unit' if unitriangular else ''}"
    return _solved(_turned(X.node) if transpose else X.node, Y.node, kind)


@lowers("cholesky")
def cholesky(X: GraphTensor, upper: bool) -> GraphTensor:
    matrices = _matrices(X.node if upper else _turned(X.node), X.shape[:-2])
    factors = Factored(matrices.shape, matrices.element, matrices)
    return GraphTensor(reshaped(plain(factors if upper else _turned(factors)), X.shape))
