"""Kernels of `fluid.ops.matmul`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from fluid.ops.shapes import broadcast

from ..runtime.products import is_split, product_call
from .elementwise import scalar, unbroadcast
from .table import Call, prepared


def _matrices(xp: Any, a: Any, b: Any, out: Any) -> Call:
    """The call that multiplies two matrices."""
    if out.flags.c_contiguous and a.dtype == b.dtype == out.dtype and not is_split(xp, a, b, out):
        return partial(xp.dot, a, b, out)  # asks less of its arguments than matmul, which costs time
    return product_call(xp, a, b, out)


def _stacks(xp: Any, a: Any, b: Any, out: Any, scratch: Callable[..., Any]) -> list[Call]:
    """Calls that multiply matrices or stacks of them, and sum over the leading dimensions that `out` lacks."""
    if a.ndim == b.ndim == out.ndim == 2:
        return [_matrices(xp, a, b, out)]
    turned = a.swapaxes(-1, -2)
    (rows, inner), width = a.shape[-2:], b.shape[-1]
    if b.ndim == 2 and a.flags.c_contiguous and out.shape == (*a.shape[:-1], width):
        count = prod(a.shape[:-1])
        return [_matrices(xp, a.reshape(count, inner), b, out.reshape(count, width))]
    if out.ndim == 2 and a.shape[:-2] == b.shape[:-2] and turned.flags.c_contiguous and b.flags.c_contiguous:
        # The sum of the products of a stack is one product of matrices that are as long as the stack.
        count = prod(a.shape[:-2]) * inner
        return [_matrices(xp, turned.reshape(count, rows).T, b.reshape(count, width), out)]
    shape = (*broadcast(a.shape[:-2], b.shape[:-2]), rows, width)
    if out.shape == shape:
        return [product_call(xp, a, b, out)]
    products = scratch(shape, out.dtype)
    return [product_call(xp, a, b, products), *unbroadcast(xp, products, -1, out, scratch)]


def _turned(array: Any, turn: bool) -> Any:
    return array.swapaxes(-1, -2) if turn else array


def _as_row(array: Any) -> Any:
    return array.reshape(1, -1) if array.ndim == 1 else array


def _as_column(array: Any) -> Any:
    return array.reshape(-1, 1) if array.ndim == 1 else array


def _as_product(array: Any, x: Any, y: Any) -> Any:
    """`array` in the shape of the product of two stacks of matrices, with the dimensions that vectors leave out."""
    return array.reshape(*broadcast(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])


def _times(xp: Any, by: float, out: Any) -> list[Call]:
    return [] if by == 1.0 else [partial(xp.multiply, out, scalar(xp, by, out.dtype), out)]


def _product(xp: Any, X: Any, Y: Any, turn_x: bool, turn_y: bool, alpha: float, Out: Any, scratch: Any) -> list[Call]:
    x, y = _turned(_as_row(X), turn_x), _turned(_as_column(Y), turn_y)
    return _stacks(xp, x, y, _as_product(Out, x, y), scratch) + _times(xp, alpha, Out)


def _gradients(
    xp: Any, X: Any, Y: Any, dOut: Any, turn_x: bool, turn_y: bool, alpha: float, dX: Any, dY: Any, scratch: Any
) -> list[Call]:
    x, y = _turned(_as_row(X), turn_x), _turned(_as_column(Y), turn_y)
    grad = _as_product(dOut, x, y)
    steps: list[Call] = []
    if dX is not None:
        target = _as_row(dX)
        if turn_x:
            steps += _stacks(xp, y, _turned(grad, True), target, scratch)
        else:
            steps += _stacks(xp, grad, _turned(y, True), target, scratch)
        steps += _times(xp, alpha, dX)
    if dY is not None:
        target = _as_column(dY)
        if turn_y:
            steps += _stacks(xp, _turned(grad, True), x, target, scratch)
        else:
            steps += _stacks(xp, _turned(x, True), grad, target, scratch)
        steps += _times(xp, alpha, dY)
    return steps


@prepared("matmul_v2")
def matmul_v2(xp: Any, X: Any, Y: Any, trans_x: bool, trans_y: bool, Out: Any, scratch: Any) -> list[Call]:
    return _product(xp, X, Y, trans_x and X.ndim > 1, trans_y and Y.ndim > 1, 1.0, Out, scratch)


@prepared("matmul_v2_grad")
def matmul_v2_grad(
    xp: Any, X: Any, Y: Any, dOut: Any, trans_x: bool, trans_y: bool, dX: Any, dY: Any, scratch: Any
) -> list[Call]:
    return _gradients(xp, X, Y, dOut, trans_x and X.ndim > 1, trans_y and Y.ndim > 1, 1.0, dX, dY, scratch)


@prepared("matmul")
def matmul(xp: Any, X: Any, Y: Any, transpose_X: bool, transpose_Y: bool, alpha: float, Out: Any, scratch: Any) -> list[Call]:
    return _product(xp, X, Y, transpose_X, transpose_Y, alpha, Out, scratch)


@prepared("matmul_grad")
def matmul_grad(
    xp: Any, X: Any, Y: Any, dOut: Any, transpose_X: bool, transpose_Y: bool, alpha: float, dX: Any, dY: Any, scratch: Any
) -> list[Call]:
    return _gradients(xp, X, Y, dOut, transpose_X, transpose_Y, alpha, dX, dY, scratch)


def _flat(array: Any, rows: int) -> Any:
    """Reshape `array` to a matrix: the first `rows` dimensions become its rows."""
    return array.reshape(prod(array.shape[:rows]), prod(array.shape[rows:]))


@prepared("mul")
def mul(xp: Any, X: Any, Y: Any, x_num_col_dims: int, y_num_col_dims: int, Out: Any) -> Call:
    return _matrices(xp, _flat(X, x_num_col_dims), _flat(Y, y_num_col_dims), _flat(Out, x_num_col_dims))


@prepared("mul_grad")
def mul_grad(xp: Any, X: Any, Y: Any, dOut: Any, x_num_col_dims: int, y_num_col_dims: int, dX: Any, dY: Any) -> list[Call]:
    grad = _flat(dOut, x_num_col_dims)
    steps = []
    if dX is not None:
        steps.append(_matrices(xp, grad, _flat(Y, y_num_col_dims).T, _flat(dX, x_num_col_dims)))
    if dY is not None:
        steps.append(_matrices(xp, _flat(X, x_num_col_dims).T, grad, _flat(dY, y_num_col_dims)))
    return steps
