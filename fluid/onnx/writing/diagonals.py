"""Take, write and build triangles and diagonals of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.executor.binding.compiled import apply_op

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, is_number
from .shaping import padded, positions


def _offsets(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    """Column minus row, for the matrices in the last two dimensions."""
    rows, columns = positions(g, g.size(x, -2), 0, 2), positions(g, g.size(x, -1), 1, 2)
    if rows.value is not None and columns.value is not None:
        return g.constant(columns.value - rows.value)
    return g.binary("Sub", columns, rows)


@exports("tril_triu")
def tril_triu(g: OnnxGraph, X: OnnxTensor, diagonal: int, lower: bool) -> OnnxTensor:
    is_in_triangle = g.binary("LessOrEqual" if lower else "GreaterOrEqual", _offsets(g, X), g.constant(np.int64(diagonal)))
    return g.where(is_in_triangle, X, g.number(0, X))


def _matrices_last(g: OnnxGraph, x: OnnxTensor, axis1: int, axis2: int) -> tuple[OnnxTensor, list[int]]:
    first, second = axis1 % x.ndim, axis2 % x.ndim
    order = [*(axis for axis in range(x.ndim) if axis not in (first, second)), first, second]
    return g.transpose(x, order), order


def _diagonal_places(rows: int, columns: int, offset: int) -> Any:
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    return np.arange(count) * (columns + 1) + (offset if offset >= 0 else -offset * columns)


@exports("diagonal")
def diagonal(g: OnnxGraph, Input: OnnxTensor, offset: int, axis1: int, axis2: int) -> OnnxTensor:
    matrices, _ = _matrices_last(g, Input, axis1, axis2)
    rows, columns = g.size(matrices, -2), g.size(matrices, -1)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise NotExported("the diagonal of matrices whose size is known only at run time")
    flat = g.reshape(matrices, [*g.sizes_of(matrices)[:-2], rows * columns], (*matrices.sizes[:-2], rows * columns))
    return g.gather(flat, g.constant(_diagonal_places(rows, columns, offset)), flat.ndim - 1)


@exports("undiagonal")
def undiagonal(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, offset: int, axis1: int, axis2: int) -> OnnxTensor:
    first, second = axis1 % Like.ndim, axis2 % Like.ndim
    order = [*(axis for axis in range(Like.ndim) if axis not in (first, second)), first, second]
    rows, columns = g.size(Like, first), g.size(Like, second)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise NotExported("the diagonal of matrices whose size is known only at run time")
    flat = _diagonal_places(rows, columns, offset)
    shape = [g.size(Like, axis) for axis in order[:-2]]
    sizes = tuple(Like.sizes[axis] for axis in order)
    values = g.expand(X, g.joined_sizes([*shape, len(flat)]), (*sizes[:-2], len(flat)))
    source = np.full(rows * columns, len(flat))
    source[flat] = np.arange(len(flat))
    elements = g.gather(padded(g, values, values.ndim - 1, 0, 1), g.constant(source), values.ndim - 1)
    matrices = g.reshape(elements, [*shape, rows, columns], sizes)
    return g.transpose(matrices, [order.index(axis) for axis in range(Like.ndim)])


@exports("diag_v2")
def diag_v2(g: OnnxGraph, f: Any, X: OnnxTensor, offset: int, padding_value: float, specs: Any) -> OnnxTensor:
    if X.ndim == 2:
        return diagonal(g, X, offset, 0, 1)
    rows, columns = specs["Out"].shape
    if not (is_number(rows) and is_number(columns)):
        raise NotExported("a diagonal whose length is known only at run time")
    flat = _diagonal_places(rows, columns, offset)
    source = np.full(rows * columns, len(flat))
    source[flat] = np.arange(len(flat))
    values = g.concat([X, g.constant([padding_value], X.dtype)], 0)
    return g.reshape(g.gather(values, g.constant(source)), [rows, columns])


@exports("diag")
def diag(g: OnnxGraph, f: Any, Diagonal: OnnxTensor, specs: Any) -> OnnxTensor:
    return diag_v2(g, f, Diagonal, 0, 0.0, specs)


def _placed_on_diagonals(g: OnnxGraph, x: OnnxTensor, rows: int, columns: int, offset: int) -> OnnxTensor:
    """Matrices in two last dimensions, with the last dimension of x on a diagonal."""
    flat = _diagonal_places(rows, columns, offset)
    source = np.full(rows * columns, len(flat))
    source[flat] = np.arange(len(flat))
    elements = g.gather(padded(g, x, x.ndim - 1, 0, 1), g.constant(source), x.ndim - 1)
    return g.reshape(elements, [*g.sizes_of(x)[:-1], rows, columns], (*x.sizes[:-1], rows, columns))


def _to_axes(g: OnnxGraph, matrices: OnnxTensor, dim1: int, dim2: int) -> OnnxTensor:
    """Move matrices from the last two dimensions: rows to `dim1`, columns to `dim2`."""
    ndim = matrices.ndim
    batch_axes = iter(range(ndim - 2))
    places = {dim1 % ndim: ndim - 2, dim2 % ndim: ndim - 1}
    return g.transpose(matrices, [places[axis] if axis in places else next(batch_axes) for axis in range(ndim)])


@exports("diag_embed")
def diag_embed(g: OnnxGraph, Input: OnnxTensor, offset: int, dim1: int, dim2: int) -> OnnxTensor:
    count = g.size(Input, -1)
    if not isinstance(count, int):
        raise NotExported("a diagonal whose length is known only at run time")
    size = count + abs(offset)
    return _to_axes(g, _placed_on_diagonals(g, Input, size, size, offset), dim1, dim2)


@exports("fill_diagonal")
def fill_diagonal(g: OnnxGraph, X: OnnxTensor, value: float, attrs: dict[str, Any]) -> OnnxTensor:
    if any(not isinstance(size, int) for size in g.sizes_of(X)):
        raise NotExported("a diagonal whose length is known only at run time")
    zeros = np.zeros(X.shape, np.float32)
    [mask] = apply_op("fill_diagonal", {"X": zeros}, {**attrs, "value": 1.0}).values()
    return g.where(g.constant(mask != 0), g.number(value, X), X)


@exports("fill_diagonal_tensor")
def fill_diagonal_tensor(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, offset: int, dim1: int, dim2: int) -> OnnxTensor:
    rows, columns = (g.size(X, axis) for axis in (dim1, dim2))
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise NotExported("the diagonal of matrices whose size is known only at run time")
    y = g.squeeze(Y, 0) if X.ndim == 2 and Y.ndim == 2 else Y
    count = len(_diagonal_places(rows, columns, offset))
    flat = np.zeros(rows * columns, bool)
    flat[_diagonal_places(rows, columns, offset)] = True
    shape = [rows if axis == dim1 % X.ndim else columns if axis == dim2 % X.ndim else 1 for axis in range(X.ndim)]
    mask = flat.reshape(rows, columns) if dim1 % X.ndim < dim2 % X.ndim else flat.reshape(rows, columns).T
    if not count:
        return g.identity(X)
    return g.where(g.constant(mask.reshape(shape)), _to_axes(g, _placed_on_diagonals(g, y, rows, columns, offset), dim1, dim2), X)
