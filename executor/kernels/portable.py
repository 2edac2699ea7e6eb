"""Helpers for functions that numpy, cupy and XLA's namespace have under different names, or compute in another order."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from .table import Call, OutArray

LONG = 4096
"""The most elements that BLAS sums, which is fastest; more are summed pairwise, which rounds less."""


def copy(xp: Any, source: Any, target: Any) -> list[Call]:
    """Calls that copy `source` to `target`, with equal numbers of elements; none if they are the same memory."""
    if xp.may_share_memory(source, target):
        return []
    return [partial(xp.copyto, target, source.reshape(target.shape))]


def reduction(xp: Any, combine: Any, X: Any, axes: Any, out: Any, keepdims: bool = True) -> Call:
    """The call that combines the elements along axes by a ufunc. cupy reduces by sums and products alone."""
    if xp.__name__ == "cupy" and combine is xp.maximum:
        return partial(xp.max, X, axes, out, keepdims)
    return partial(combine.reduce, X, axes, None, out, keepdims)


def maxima_of_numbers(xp: Any, X: Any, axes: Any, out: Any) -> Call:
    """The call for the maxima along axes, which may pass over NaNs: XLA is faster so."""
    return reduction(xp, xp.maximum if xp.__name__ in ("numpy", "cupy") else xp.fmax, X, axes, out)


def minima(xp: Any, X: Any, axes: tuple[int, ...], out: Any) -> Call:
    """The call for the minima along axes. cupy 14.2 takes the output of `min` for an element type."""
    return partial(_copy_minima, xp, X, axes, out) if xp.__name__ == "cupy" else partial(xp.min, X, axes, out)


def _copy_minima(xp: Any, X: Any, axes: tuple[int, ...], out: OutArray) -> None:
    xp.copyto(out, xp.min(X, axes))


def sum_of_squares(xp: Any, array: Any) -> Any:
    """The sum of the squares of all elements."""
    flat = array.reshape(-1)
    end = flat.size // LONG * LONG
    if not end:
        return xp.dot(flat, flat)
    rows, tail = flat[:end].reshape(-1, LONG), flat[end:]
    return xp.einsum("ij,ij->i", rows, rows).sum() + xp.dot(tail, tail)


def multiply_at(xp: Any, out: OutArray, index: tuple[Any, ...], values: Any) -> None:
    """``multiply.at``, which cupy lacks: each element is multiplied by all values that the index has for it."""
    if xp.__name__ != "cupy":
        xp.multiply.at(out, index, values)
        return
    places = _flat_places(xp, out.shape, index)
    values = xp.broadcast_to(values, places.shape).reshape(-1)
    order = xp.argsort(places.reshape(-1), kind="stable")
    places = places.reshape(-1)[order]
    turns = xp.arange(places.size) - xp.searchsorted(places, places)  # how often the element came before
    flat = out.reshape(-1)
    for turn in range(int(turns.max()) + 1 if turns.size else 0):
        now = turns == turn
        flat[places[now]] *= values[order[now]]
    xp.copyto(out, flat.reshape(out.shape))


def _flat_places(xp: Any, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """The places in a flat array of the elements that an index names."""
    places = xp.zeros(np.broadcast_shapes(*(part.shape for part in index)), "int64")
    for part, extent in zip(index, shape, strict=True):
        places = places * extent + part
    return places


def last_positions(xp: Any, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """For each position in an index of an array of this shape, the last position that names the same element.

    Positions are numbered in numpy's order of writing; an array that has the shape of the index is returned.
    """
    index_shape = np.broadcast_shapes(*(part.shape for part in index))
    dtype = "int32" if prod(index_shape) < 1 << 31 else "int64"  # of the 64-bit integers, not all devices take maxima
    numbers = xp.arange(prod(index_shape), dtype=dtype).reshape(index_shape)
    if xp.__name__ == "numpy":
        last = xp.empty(shape, dtype)
        last[index] = numbers
    else:  # of several writes to one element, any may be the last
        last = xp.zeros(shape, dtype)
        xp.maximum.at(last, index, numbers)
    return last[index]


def values_in_order(xp: Any, array: Any, index: tuple[Any, ...], values: Any) -> Any:
    """`values` for ``array[index] = values``, such that the order of writing does not matter.

    An element that the index names several times gets the last of its values, as in numpy, in each of its places. On a device
    any of them could stay.

    Args:
        index: arrays of integers, for the first dimensions of `array`.
    """
    if xp.__name__ == "numpy" or values.size == 1:
        return values
    depth = len(index)
    last = last_positions(xp, array.shape[:depth], index)
    rows = xp.broadcast_to(values, (*last.shape, *array.shape[depth:]))
    return rows.reshape(last.size, *array.shape[depth:])[last]
