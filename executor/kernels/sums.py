"""Sums over axes, in blocks on numpy: it adds one row after the other and rounds each time, and so does BLAS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from .portable import LONG, copy
from .table import Call

_ELEMENTS_FOR_CALL = 150
"""The elements for which `reduceat` takes as long as a call of `reduce`."""
ROWS = 256
"""The most rows that BLAS sums at a time: it adds one row after the other and rounds each time."""


def _runs(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[bool, int]]:
    """Merge neighbouring dimensions of `shape` that are all summed, or all not: list of (is summed, extent)."""
    runs: list[tuple[bool, int]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        summed = axis in axes
        if runs and runs[-1][0] == summed:
            runs[-1] = summed, runs[-1][1] * extent
        else:
            runs.append((summed, extent))
    return runs


def sum_over(xp: Any, X: Any, axes: Sequence[int], Out: Any, scratch: Callable[..., Any]) -> list[Call]:
    """Calls that sum X over `axes` into `Out`, which has the resulting number of elements, in any shape.

    A product with ones is two to five times as fast as numpy's own reduction.
    """
    runs = _runs(X.shape, axes)
    if not any(summed for summed, _ in runs):
        return copy(xp, X, Out)
    by_product = xp.__name__ == "numpy" and X.dtype == Out.dtype and X.dtype.kind == "f" and X.dtype.itemsize >= 4
    if by_product and X.flags.c_contiguous and X.size:
        match runs:
            case [(True, total)] if total <= LONG:
                return [partial(xp.dot, X.reshape(total), xp.ones(total, X.dtype), Out.reshape(()))]
            case [(True, rows), (False, width)]:
                return _sum_rows(xp, X.reshape(rows, width), Out.reshape(width), scratch)
            case [(False, rows), (True, width)] if width <= LONG:
                sums = Out if Out.shape == (rows, 1) else Out.reshape(rows)
                return [partial(xp.dot, X.reshape(rows, width), xp.ones((width, *sums.shape[1:]), X.dtype), sums)]
            case [(False, kept), (True, rows), (False, width)] if rows > ROWS:
                return _sum_rows(xp, X.reshape(kept, rows, width), Out.reshape(kept, width), scratch)
            case [(True, rows), (False, kept), (True, width)] if width <= LONG:
                sums = scratch((rows * kept,), X.dtype)
                return [
                    partial(xp.dot, X.reshape(rows * kept, width), xp.ones(width, X.dtype), sums),
                    *_sum_rows(xp, sums.reshape(rows, kept), Out.reshape(kept), scratch),
                ]
    return [partial(xp.add.reduce, X, tuple(axes), None, Out.reshape(keepdims_shape(X.shape, axes)))]


def _sum_rows(xp: Any, X: Any, Out: Any, scratch: Callable[..., Any]) -> list[Call]:
    """Calls of BLAS that sum the rows of a matrix, or of each matrix of a stack, in blocks, then the sums of the blocks."""
    *stack, rows, width = X.shape
    blocks, remaining = divmod(rows, ROWS)
    if rows <= ROWS:
        return [partial(xp.matmul, xp.ones(rows, X.dtype), X, Out)]
    sums = scratch((*stack, blocks + bool(remaining), width), X.dtype)
    in_blocks = X[..., : blocks * ROWS, :].reshape(*stack, blocks, ROWS, width)
    steps: list[Call] = [partial(xp.matmul, xp.ones(ROWS, X.dtype), in_blocks, sums[..., :blocks, :])]
    if remaining:
        steps.append(partial(xp.matmul, xp.ones(remaining, X.dtype), X[..., -remaining:, :], sums[..., blocks, :]))
    return [*steps, *_sum_rows(xp, sums, Out, scratch)]


def keepdims_shape(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def row_sum(xp: Any, rows: Any) -> Any:
    """The sum of the rows of a matrix of floats."""
    if xp.__name__ != "numpy":
        return rows.sum(0)
    total = np.empty(rows.shape[1], rows.dtype)
    for call in _sum_rows(np, rows, total, np.empty):
        call()
    return total


def reduce_ranges(ufunc: np.ufunc, rows: Any, starts: Any, out: Any) -> None:
    """Reduce rows from each start to the next one, on numpy.

    `reduceat` takes some 7 ns for an element, `reduce` some 0.5 ns, and 1 us for a call.

    Args:
        rows: [N, ...].
        starts: numbers of rows, growing, the first one 0.
        out: [len(starts), ...].
    """
    if rows.size < _ELEMENTS_FOR_CALL * len(starts):
        ufunc.reduceat(rows, starts, axis=0, out=out)
        return
    for number, (start, end) in enumerate(pairwise([*starts.tolist(), len(rows)])):
        ufunc.reduce(rows[start:end], axis=0, out=out[number : number + 1], keepdims=True)
