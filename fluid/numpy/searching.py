"""Functions that look for elements, and their order: positions, sorting, sets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..eager.tensor import Tensor
from ..errors import FluidTypeError, ProgramError
from ..values.types import VarType
from .creation import asarray
from .elementwise import not_equal
from .indexing import take
from .operands import axis_of, cast, flat, operand, ops_of, pair, placed, reshaped, scalar, spread, together
from .statistics import sum as summed

__all__ = [
    "argmax", "argmin", "argsort", "count_nonzero", "isin", "nonzero", "searchsorted", "sort", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "where",
]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------ positions
def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The positions of the largest elements; of equal ones, the first.

    Args:
        x: real numbers.
        axis: the axis along which to look; by default all elements, in one dimension.
        keepdims: whether the axis stays, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.argmax(xp.asarray([1, 5, 3]))
    NDArray(1, dtype=int64)
    """
    return _position("arg_max", x, axis, keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The positions of the smallest elements; of equal ones, the first.

    Args:
        x: real numbers.
        axis: the axis along which to look; by default all elements, in one dimension.
        keepdims: whether the axis stays, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.argmin(xp.asarray([4, 5, 3]))
    NDArray(2, dtype=int64)
    """
    return _position("arg_min", x, axis, keepdims)


def _position(op_type: str, x: Any, axis: int | None, keepdims: bool) -> Any:
    x = operand(x)
    find = getattr(ops_of(x), op_type)
    if axis is None:
        place = scalar(find(flat(x), axis=0, flatten=True))
        return reshaped(place, (1,) * x.ndim) if keepdims else place
    place = find(x, axis=axis_of(axis, x.ndim), keepdims=keepdims)
    return place if keepdims or x.ndim > 1 else scalar(place)


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """The positions of the elements that are not zero, an array for each axis.

    Args:
        x: an array with a dimension at least.

    >>> import fluid.numpy as xp
    >>> xp.nonzero(xp.asarray([0, 3, 4]))
    (NDArray([1, 2], dtype=int64),)
    """
    x = operand(x)
    if not x.ndim:
        raise ProgramError("nonzero: an array without dimensions has no positions")
    places = ops_of(x).where_index(_test(x))
    return tuple(ops_of(x).unstack(places, axis=1, num=x.ndim))


def count_nonzero(x: Any, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    """How many elements are not zero.

    Args:
        x: an array.
        axis: one axis or several; all by default.
        keepdims: whether the axes stay, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.count_nonzero(xp.asarray([0, 3, 4]))
    NDArray(2, dtype=int64)
    """
    return summed(cast(_test(operand(x)), VarType.INT64), axis=axis, keepdims=keepdims)


def _test(x: Any) -> Any:
    """Whether the elements are not zero."""
    return x if x.dtype is VarType.BOOL else not_equal(x, 0)


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """Where numbers would go in a sorted array, so that it stays sorted.

    Args:
        x1: sorted numbers, of one dimension.
        x2: the numbers.
        side: ``"left"`` for the place before equal elements, ``"right"`` for the one behind them.
        sorter: the positions of the elements of `x1` in order, if it is not sorted.

    >>> import fluid.numpy as xp
    >>> xp.searchsorted(xp.asarray([1, 3, 5]), xp.asarray([3, 4]))
    NDArray([1, 2], dtype=int64)
    """
    if side not in ("left", "right"):
        raise ProgramError(f"searchsorted: side should be 'left' or 'right', not {side!r}")
    f, x1, x2 = pair(x1, x2)
    if x1.ndim != 1:
        raise ProgramError(f"searchsorted: x1 of {x1.ndim} dimensions should have one")
    places = f.searchsorted(x1 if sorter is None else take(x1, sorter, axis=0), flat(x2), right=side == "right")
    return reshaped(places, x2.shape)


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """The elements of one array where a condition holds, and of another where it does not.

    Args:
        condition: bools.
        x1, x2: arrays or numbers, which are promoted to one element type.

    >>> import fluid.numpy as xp
    >>> xp.where(xp.asarray([True, False]), xp.asarray([1, 2]), 0)
    NDArray([1, 0], dtype=int64)
    """
    if not any(hasattr(x, "dtype") for x in (x1, x2)):
        x1 = asarray(x1)
    _, x1, x2 = pair(x1, x2)
    condition, x1, x2 = together((condition, x1, x2))
    if condition.dtype is not VarType.BOOL:
        raise FluidTypeError(f"where: the condition should be of bools, not of {condition.dtype.text}")
    return ops_of(x1).where(*spread((condition, x1, x2)))


# -------------------------------------------------------------------------------------------------------------------- sorting
def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The positions of the elements in order.

    Args:
        x: real numbers; NaNs come last.
        axis: along which to sort.
        descending: the largest first.
        stable: accepted; equal elements always stay in order.

    >>> import fluid.numpy as xp
    >>> xp.argsort(xp.asarray([3, 1, 2]))
    NDArray([1, 2, 0], dtype=int64)
    """
    x = operand(x)
    return ops_of(x).argsort(x, axis=axis_of(axis, x.ndim), descending=descending)[1]


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements in order.

    Args:
        x: real numbers; NaNs come last.
        axis: along which to sort.
        descending: the largest first.
        stable: accepted; equal elements always stay in order.

    >>> import fluid.numpy as xp
    >>> xp.sort(xp.asarray([3, 1, 2]))
    NDArray([1, 2, 3], dtype=int64)
    """
    x = operand(x)
    return ops_of(x).argsort(x, axis=axis_of(axis, x.ndim), descending=descending)[0]


# ----------------------------------------------------------------------------------------------------------------------- sets
class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any, /) -> UniqueAll:
    """The different elements, where each is first, which one each element is, and how often each occurs.

    Args:
        x: an array; each NaN differs from all others.

    >>> import fluid.numpy as xp
    >>> xp.unique_all(xp.asarray([3, 1, 3])).counts
    NDArray([1, 2], dtype=int64)
    """
    x = operand(x)
    if not isinstance(x, Tensor):
        raise FluidTypeError("the number of different elements is known only when a program runs; use fluid.layers.unique")
    elements = np.asarray(x)
    _, *places = np.unique(elements, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    indices, inverse, counts = (placed(np.asarray(part, np.int64), x) for part in places)
    return UniqueAll(take(flat(x), indices, axis=0), indices, reshaped(inverse, x.shape), counts)


def unique_counts(x: Any, /) -> UniqueCounts:
    """The different elements, and how often each occurs.

    Args:
        x: an array; each NaN differs from all others.

    >>> import fluid.numpy as xp
    >>> xp.unique_counts(xp.asarray([3, 1, 3])).counts
    NDArray([1, 2], dtype=int64)
    """
    result = unique_all(x)
    return UniqueCounts(result.values, result.counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The different elements, and which one each element is.

    Args:
        x: an array; each NaN differs from all others.

    >>> import fluid.numpy as xp
    >>> xp.unique_inverse(xp.asarray([3, 1, 3])).inverse_indices
    NDArray([1, 0, 1], dtype=int64)
    """
    result = unique_all(x)
    return UniqueInverse(result.values, result.inverse_indices)


def unique_values(x: Any, /) -> Any:
    """The different elements.

    Args:
        x: an array; each NaN differs from all others.

    >>> import fluid.numpy as xp
    >>> xp.unique_values(xp.asarray([3, 1, 3]))
    NDArray([1, 3], dtype=int64)
    """
    return unique_all(x).values


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Any:
    """Whether each element is in another array.

    Args:
        x1: the elements.
        x2: the array.
        invert: True to ask whether it is not.

    >>> import fluid.numpy as xp
    >>> xp.isin(xp.asarray([1, 2, 3]), xp.asarray([2, 5]))
    NDArray([False,  True, False], dtype=bool)
    """
    f, x1, x2 = pair(x1, x2)
    result = f.reduce_any(f.equal(reshaped(x1, (*x1.shape, 1)), flat(x2)), dim=[-1])
    is_among = scalar(result) if not x1.ndim else result
    return f.logical_not(is_among) if invert else is_among
