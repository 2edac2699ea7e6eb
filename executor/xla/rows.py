"""Gathers and scatters rows of arrays by traced indices.

jax's indexing does the same for all kinds of indices, but takes several times as long to trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax


def _nonnegative(numbers: Any, count: int) -> Any:
    """Make negative row indices count from the end, and add an axis of size 1."""
    if numbers.dtype.itemsize < 4:
        numbers = lax.convert_element_type(numbers, np.int64)
    if numbers.dtype.kind == "i":
        zero, room = (numbers.dtype.type(number) for number in (0, count))
        numbers = lax.select(lax.lt(numbers, zero), lax.add(numbers, room), numbers)
    return lax.expand_dims(numbers, (numbers.ndim,))


def rows_at(array: Any, numbers: Any, axis: int = 0) -> Any:
    """Gather elements along an axis; the axes of `numbers` replace it. Indices past the end are clipped."""
    shape, ndim = array.shape, numbers.ndim
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + ndim, len(shape) - 1 + ndim)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    sizes = (*shape[:axis], 1, *shape[axis + 1 :])
    places = _nonnegative(numbers, shape[axis])
    return lax.gather(array, places, dimensions, sizes, mode=lax.GatherScatterMode.CLIP)


def add_to_rows(array: Any, numbers: Any, rows: Any) -> Any:
    """Add rows to an array at these indices; repeated indices add up, and indices past the end are dropped."""
    dimensions = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(numbers.ndim, rows.ndim)), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    places = _nonnegative(numbers, array.shape[0])
    return lax.scatter_add(array, places, rows, dimensions, mode=lax.GatherScatterMode.FILL_OR_DROP)
