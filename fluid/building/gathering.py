"""``x[...]`` and ``x[...] = v`` with lists, arrays and variables of integers or bools, as ops that gather and scatter elements.

Programs and traces of tensors share this code: the namespace of ops is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import FluidError, FluidTypeError, IndexRangeError, ProgramError
from ..values.types import VarType


@contextmanager
def naming(subject: Callable[[], str]) -> Iterator[None]:
    """Errors inside the ``with`` name their subject: a value and its index."""
    try:
        yield
    except FluidError as error:
        error.restate(f"{subject()}: {error}")
        raise


def is_array_like(entry: Any) -> bool:
    """Whether an index is a list or an array, or a variable or tensor, and so gathers elements."""
    return isinstance(entry, (list, np.ndarray)) or _is_value(entry)


def _is_value(entry: Any) -> bool:
    """Whether an index is a variable or a tensor."""
    return hasattr(entry, "stop_gradient")


def _rank(entry: Any) -> int:
    """The number of axes that an index stands for: all axes of a mask, else one."""
    if _is_value(entry):
        return len(entry.shape) if entry.dtype is VarType.BOOL else 1
    if not isinstance(entry, (list, np.ndarray)):
        return 1
    try:
        array = np.asarray(entry)
    except ValueError as error:
        raise FluidTypeError(f"an index is no array: {error}") from None
    return array.ndim if array.dtype == np.bool_ else 1


def with_whole_axes(items: Sequence[Any], count: int) -> list[Any]:
    """An index with `count` whole slices in place of ``...``, or at its end."""
    at = next((place for place, entry in enumerate(items) if entry is Ellipsis), len(items))
    return [*items[:at], *[slice(None)] * count, *items[at + 1 :]]


def parts_of(x: Any, items: Sequence[Any]) -> tuple[list[slice], list[Any]]:
    """Divide an index into slices, one for each axis, and the entries for `gather_items`, which follow the slices.

    Raises:
        IndexRangeError: there are more indices than axes.
        ProgramError: the index inserts an axis.
    """
    if any(entry is None for entry in items):
        raise ProgramError("None beside a list, an array or a tensor as index; use layers.unsqueeze")
    named = sum(_rank(entry) for entry in items if entry is not Ellipsis)
    if named > x.ndim or sum(entry is Ellipsis for entry in items) > 1:
        raise IndexRangeError("too many indices")
    entries = with_whole_axes(items, x.ndim - named)
    slices: list[slice] = []
    for entry in entries:
        slices += [entry] if isinstance(entry, slice) else [slice(None)] * _rank(entry)
    return slices, [slice(None) if isinstance(entry, slice) else entry for entry in entries]


def gather_items(f: Any, x: Any, items: Sequence[Any], constant: Callable[[Any], Any]) -> Any:
    """``x[items]`` as numpy has it, for integers, arrays of integers or bools, and whole slices.

    Args:
        f: the namespace of ops.
        x: a variable or tensor.
        items: one for each axis; a mask stands for all its axes.
        constant: makes a value of an array.

    >>> x, ids = fluid.data("x", [4, 5]), fluid.data("ids", [None], "int64")
    >>> x[:, [0, 2]].shape, x[ids].shape, x[x > 0.0].shape
    ((4, 2), (-1, 5), (-1,))
    """
    return _elements_at(f, x, _positions(f, x, items, constant))


def _elements_at(f: Any, x: Any, positions: Mapping[int, Any]) -> Any:
    """Gather elements by their positions along some axes."""
    axes, values = list(positions), list(positions.values())
    if len(values) == 1 and len(values[0].shape) == 1:
        return f.gather(x, values[0], axis=axes[0])
    order = [*axes, *(axis for axis in range(x.ndim) if axis not in axes)]
    source = x if order == sorted(order) else f.transpose2(x, axis=order)
    depth = len(values[0].shape)
    result = f.gather_nd(source, f.stack(values, axis=depth))
    before = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    if not before:
        return result
    remaining = range(depth, depth + x.ndim - len(axes))
    return f.transpose2(result, axis=[*remaining[:before], *range(depth), *remaining[before:]])


def scatter_items(f: Any, x: Any, items: Sequence[Any], value: Any, constant: Callable[[Any], Any]) -> Any:
    """A copy of `x` after ``x[items] = value``, for integers, arrays of integers or bools, and whole slices.

    Of elements that are chosen several times, the last one counts, as in numpy; but each gets the gradient.

    Args:
        f: the namespace of ops.
        x: a variable or tensor.
        items: one for each axis; a mask stands for all its axes.
        value: a variable or tensor of the type of `x`; it broadcasts.
        constant: makes a value of an array.

    >>> x, ids = fluid.layers.zeros([4, 2], "float32"), fluid.data("ids", [None], "int64")
    >>> x[ids] = 1.0
    >>> fluid.Executor().run(feed={"ids": np.array([3, 1])}, fetch_list=[x])[0].tolist()
    [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    """
    if x.dtype is VarType.BOOL:
        x, value = _cast(f, x, VarType.INT32), _cast(f, value, VarType.INT32)
        return _cast(f, scatter_items(f, x, items, value, constant), VarType.BOOL)
    positions = _positions(f, x, items, constant)
    chosen = _elements_at(f, x, positions)
    if len(value.shape) > len(chosen.shape):
        raise IndexRangeError(f"a value of shape {list(value.shape)} does not fit {list(chosen.shape)} elements")
    updates = f.elementwise_mul(f.fill_any_like(chosen, value=1.0), value, axis=-1)
    if list(positions) == [0] and len(positions[0].shape) == 1:
        return f.scatter(x, positions[0], updates, overwrite=True)
    places = _elements_at(f, _numbered(f, x), positions)
    flat = f.scatter(*(f.reshape2(array, shape=[-1]) for array in (x, places, updates)), overwrite=True)
    return f.reshape_like(flat, x)


def _numbered(f: Any, x: Any) -> Any:
    """The numbers from 0 on, in the shape of `x`."""
    count = f.reshape2(f.size(x), shape=[1])
    start, step = (f.fill_any_like(count, value=number) for number in (0.0, 1.0))
    return f.reshape_like(f.range(start, count, step), x)


def _indices(f: Any, x: Any, axis: int, entry: Any) -> list[Any]:
    """The indices that an entry holds, as arrays or values: one for its axis or, for a mask, one for each of its axes."""
    return _indices_of_value(f, x, axis, entry) if _is_value(entry) else _indices_of_array(x, axis, np.asarray(entry))


def _indices_of_value(f: Any, x: Any, axis: int, entry: Any) -> list[Any]:
    if entry.dtype is VarType.BOOL:
        places = f.where_index(entry)
        return [f.slice(places, axes=[1], starts=[n], ends=[n + 1], decrease_axis=[1]) for n in range(len(entry.shape))]
    if entry.dtype not in (VarType.INT32, VarType.INT64):
        raise FluidTypeError(f"an index should be of integers or bools, not {entry.dtype.text}")
    return [_counted_from_zero(f, x, axis, _cast(f, entry, VarType.INT64))]


def _indices_of_array(x: Any, axis: int, array: Any) -> list[Any]:
    """Indices as numpy arrays; some are below 0 if only a run knows the size that they count from."""
    if array.dtype == np.bool_:
        _check_mask(x, axis, array)
        return list(np.nonzero(array))
    if not array.size:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise FluidTypeError(f"an index should be of integers or bools, not {array.dtype.name}")
    array, size = array.astype(np.int64), x.shape[axis]
    if size < 0:
        return [array]
    outside = array[(array < -size) | (array >= size)]
    if outside.size:
        raise IndexRangeError(f"index {outside.flat[0]} is outside dimension {axis} of size {size}")
    return [np.where(array < 0, array + size, array)]


def _cast(f: Any, value: Any, dtype: VarType) -> Any:
    return value if value.dtype is dtype else f.cast(value, in_dtype=int(value.dtype), out_dtype=int(dtype))


def _counted_from_zero(f: Any, x: Any, axis: int, index: Any) -> Any:
    """Add the size of the axis to the indices below 0."""
    size = _cast(f, f.slice(f.shape(x), axes=[0], starts=[axis], ends=[axis + 1]), VarType.INT64)
    is_below = _cast(f, f.less_than(index, f.fill_any_like(index)), VarType.INT64)
    return f.elementwise_add(index, f.elementwise_mul(is_below, size))


def _check_mask(x: Any, axis: int, mask: Any) -> None:
    sizes = tuple(x.shape[axis : axis + mask.ndim])
    if not mask.ndim or len(sizes) < mask.ndim or any(a not in (b, -1) for a, b in zip(sizes, mask.shape, strict=True)):
        raise IndexRangeError(f"a mask of shape {list(mask.shape)} does not fit the sizes {list(sizes)} from axis {axis} on")


def _positions(f: Any, x: Any, items: Sequence[Any], constant: Callable[[Any], Any]) -> dict[int, Any]:
    """Axis -> the positions that an index chooses along it: values of one shape, at least 0. Whole slices are left out."""
    indices: dict[int, Any] = {}
    axis = 0
    for entry in items:
        if isinstance(entry, slice):
            axis += 1
        else:
            for index in _indices(f, x, axis, entry):
                indices[axis] = index
                axis += 1
    values = _in_one_shape(f, list(indices.values()), constant)
    return {
        axis: _counted_from_zero(f, x, axis, value) if isinstance(index, np.ndarray) and (index < 0).any() else value
        for (axis, index), value in zip(indices.items(), values, strict=True)
    }


def _in_one_shape(f: Any, indices: Sequence[Any], constant: Callable[[Any], Any]) -> list[Any]:
    """The indices as values of one shape; a number beside variables or tensors is repeated."""
    arrays = [index for index in indices if isinstance(index, np.ndarray)]
    values = [index for index in indices if not isinstance(index, np.ndarray)]
    if not values:
        try:
            return [constant(array) for array in np.broadcast_arrays(*arrays)]
        except ValueError:
            raise IndexRangeError(f"indices of shapes {[list(array.shape) for array in arrays]} do not broadcast") from None
    shape = tuple(values[0].shape)
    for index in indices:
        sizes = () if _is_number(index) else tuple(index.shape)
        if sizes and (len(sizes) != len(shape) or any(a != b for a, b in zip(sizes, shape, strict=True) if min(a, b) >= 0)):
            raise IndexRangeError(f"indices of the shapes {list(shape)} and {list(sizes)}: they should have one shape")

    def value_of(index: Any) -> Any:
        if not isinstance(index, np.ndarray):
            return index
        return f.fill_any_like(values[0], value=float(index.item())) if _is_number(index) else constant(index)

    return [value_of(index) for index in indices]


def _is_number(index: Any) -> bool:
    """Whether an index is an array of one number, which is repeated for variables beside it."""
    return isinstance(index, np.ndarray) and index.size == 1 and index.ndim < 2
