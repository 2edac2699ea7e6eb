"""Elements by their positions: functions, ``x[...]`` and ``x[...] = v``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..eager.dispatch import op_on, simple
from ..eager.indexing import bounds_of, is_plain, setitem
from ..eager.tensor import Tensor
from ..errors import FluidTypeError, IndexRangeError, ProgramError
from ..opdef import registry
from ..ops.shapes import broadcast
from ..values.cache import Cache
from ..values.types import VarType, is_integer
from .array import ARRAYS, NDArray
from .dtypes import rank
from .operands import axis_of, cast, expanded, flat, operand, ops_of, placed, reshaped, scalar, together

__all__ = ["take", "take_along_axis"]


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """The elements at some positions along an axis.

    Args:
        x: an array.
        indices: integers; negative ones count from the end.
        axis: the axis; it may be left out for one dimension.

    >>> import fluid.numpy as xp
    >>> xp.take(xp.asarray([10, 20, 30]), xp.asarray([2, 0]))
    NDArray([30, 10], dtype=int64)
    """
    x, indices = together((x, indices))
    if axis is None:
        if x.ndim != 1:
            raise ProgramError(f"take: x has {x.ndim} dimensions; give the axis")
        axis = 0
    axis = axis_of(axis, x.ndim)
    f, places = ops_of(x), _from_start(indices, x, axis)
    result = f.gather(x, flat(places), axis=axis)
    return result if places.ndim == 1 else reshaped(result, (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))


def _from_start(indices: Any, x: Any, axis: int) -> Any:
    """Positions along an axis with negative ones counted from its end."""
    if not is_integer(indices.dtype):
        raise FluidTypeError(f"positions are integers, and not {indices.dtype.text}")
    f, places = ops_of(indices), cast(indices, VarType.INT64)
    if isinstance(places, Tensor) and not (places._array < 0).any():
        return places
    size = x.shape[axis]
    if size < 0:
        sizes = f.slice(f.shape(x), axes=[0], starts=[axis], ends=[axis + 1], infer_flags=[1], decrease_axis=[])
        moved = f.elementwise_add(places, scalar(cast(sizes, VarType.INT64)))
    else:
        moved = f.scale(places, scale=1.0, bias=size)
    return f.where(f.less_than(places, f.fill_any_like(places, value=0.0, dtype=-1)), moved, places)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """The elements at positions that are given for each row along an axis.

    Args:
        x: an array.
        indices: integers, which broadcast with `x` along the other axes.
        axis: the axis.

    >>> import fluid.numpy as xp
    >>> xp.take_along_axis(xp.asarray([[1, 2], [3, 4]]), xp.asarray([[1], [0]]), axis=1)
    NDArray([[2],
             [3]], dtype=int64)
    """
    x, indices = together((x, indices))
    if x.ndim != indices.ndim:
        raise ProgramError(f"take_along_axis: x has {x.ndim} dimensions, and indices have {indices.ndim}")
    axis = axis_of(axis, x.ndim)
    aside = broadcast((*x.shape[:axis], 1, *x.shape[axis + 1 :]), (*indices.shape[:axis], 1, *indices.shape[axis + 1 :]))
    x = expanded(x, (*aside[:axis], x.shape[axis], *aside[axis + 1 :]))
    places = expanded(_from_start(indices, x, axis), (*aside[:axis], indices.shape[axis], *aside[axis + 1 :]))
    return ops_of(x).take_along_axis(x, places, Axis=axis)


# ------------------------------------------------------------------------------------------------------- x[...] and x[...] = v
def getitem(x: NDArray, item: Any) -> NDArray:
    """``x[item]``: integers, slices, ``...`` and None, a mask of bools, or arrays of integers."""
    items = item if isinstance(item, tuple) else (item,)
    if all(is_plain(entry) for entry in items):
        return _region(x, items)
    if len(items) == 1:
        (only,) = items
        if isinstance(only, Tensor) and only.dtype is VarType.BOOL and only.ndim == x.ndim > 0 and only.shape == x.shape:
            return ARRAYS.masked_select(x, only)  # type: ignore[no-any-return]
        if isinstance(only, Tensor) and is_integer(only.dtype) and only.ndim and x.ndim:
            return take(x, only, axis=0)  # type: ignore[no-any-return]
    places = positions(x, items)
    gathered = ARRAYS.gather(flat(x), placed(places.reshape(-1), x))
    return gathered if places.ndim == 1 else reshaped(gathered, places.shape)  # type: ignore[no-any-return]


_regions: Cache[Any, tuple[Callable[[Any], Any], ...]] = Cache()
"""Kind of array, and index -> the ops, one after another, that give the region."""


def _region(x: NDArray, items: tuple[Any, ...]) -> NDArray:
    """The elements that integers and slices of step 1 choose."""
    key = x._kind, *[(entry.start, entry.stop) if entry.__class__ is slice else entry for entry in items]
    part: Any = x
    for op in _regions.get(key) or _regions.keep(key, _ops_of_region(x, items)):
        part = op(part)
    part.__class__ = NDArray
    return part  # type: ignore[no-any-return]


def _ops_of_region(x: NDArray, items: tuple[Any, ...]) -> tuple[Callable[[Any], Any], ...]:
    """The op that cuts a region out, and the one that reshapes the result where it is needed."""
    axes, starts, ends, gone, shape = bounds_of(x, items)
    if axes:
        bounds = {"axes": axes, "starts": starts, "ends": ends, "infer_flags": [1] * len(axes), "decrease_axis": gone}
        cut = op_on(registry.get("slice"), bounds, (("Input", None),))
    else:
        cut = simple("assign", "X")
    sizes = dict(enumerate(x.shape)) | {axis: end - start for axis, start, end in zip(axes, starts, ends, strict=True)}
    if shape == ([size for axis, size in sizes.items() if axis not in gone] or [1] * bool(gone)):
        return (cut,)
    return cut, partial(reshaped, shape=shape)


def positions(x: NDArray, items: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """The positions, in one dimension, of the elements that an index chooses."""
    try:
        chosen = np.arange(x.size).reshape(x.shape)[tuple(_of_numpy(entry) for entry in items)]
    except (IndexError, ValueError) as error:
        raise IndexRangeError(f"{x.describe()} cannot be indexed in this way: {error}") from None
    return np.asarray(chosen)


def _of_numpy(entry: Any) -> Any:
    if isinstance(entry, Tensor):
        return entry.numpy() if entry.ndim else np.asarray(entry.item())
    if isinstance(entry, slice):
        return slice(*(None if part is None else int(part) for part in (entry.start, entry.stop, entry.step)))
    return entry


def assign_item(x: NDArray, item: Any, value: Any) -> None:
    """``x[item] = value``: the value is cast to the type of `x`, unless its kind would change."""
    x._refuse_sparse("setitem")
    if isinstance(value, (Tensor, np.ndarray)):
        value = _cast_into(operand(value), x)
    setitem(x, item, value)


def _cast_into(value: Any, x: NDArray) -> Any:
    if rank(value.dtype) > rank(x.dtype):
        raise FluidTypeError(f"{x.describe()} cannot hold {value.describe()}; use astype")
    return cast(value, x.dtype)
