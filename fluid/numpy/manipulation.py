"""Functions that move elements: shapes, order, repetition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..eager.tensor import Tensor
from ..errors import ProgramError
from ..ops.shapes import broadcast
from ..values.memory import allocated
from ..values.types import DTypeLike, as_dtype
from .array import device_name
from .operands import (
    alike,
    axes_of,
    axis_of,
    cast,
    expanded,
    flat,
    known_size,
    operand,
    ops_of,
    placed,
    reshaped,
    shape_of,
    spread,
    together,
)

__all__ = [
    "astype", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims",
    "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack",
]  # fmt: skip


def astype(x: Any, dtype: DTypeLike, /, *, copy: bool = True, device: Any = None) -> Any:
    """The elements in another element type.

    Args:
        x: an array.
        dtype: the element type.
        copy: False to return `x` itself where it has this type.
        device: the name of the device; by default where `x` is.

    >>> import fluid.numpy as xp
    >>> xp.astype(xp.asarray([1.5, 2.5]), xp.int32)
    NDArray([1, 2], dtype=int32)
    """
    x, element = operand(x), as_dtype(dtype)
    if device is not None and isinstance(x, Tensor) and device_name(device) != x.device:
        x = x.to_device(device)  # type: ignore[attr-defined]
    if x.dtype is not element:
        return cast(x, element)
    return ops_of(x).assign(x) if copy else x


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape that arrays of these shapes broadcast to.

    Args:
        shapes: tuples of sizes.

    Raises:
        InferenceError: two sizes differ, and neither is 1.

    >>> import fluid.numpy as xp
    >>> xp.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    result: tuple[int, ...] = ()
    for shape in shapes:
        result = broadcast(result, tuple(shape))
    return result


def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Any:
    """The array broadcast to a larger shape.

    Args:
        x: an array.
        shape: its last sizes equal the sizes of `x`, or replace a 1.

    >>> import fluid.numpy as xp
    >>> xp.broadcast_to(xp.asarray([1, 2]), (2, 2))
    NDArray([[1, 2],
             [1, 2]], dtype=int64)
    """
    x, sizes = operand(x), shape_of(shape)
    if broadcast(tuple(x.shape), sizes) != sizes:
        raise ProgramError(f"an array of shape {tuple(x.shape)} does not broadcast to {sizes}")
    return expanded(x, sizes)


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    """The arrays broadcast to their common shape.

    Args:
        arrays: any number of arrays.

    >>> import fluid.numpy as xp
    >>> a, b = xp.broadcast_arrays(xp.asarray([1, 2]), xp.asarray([[3], [4]]))
    >>> a.shape, b.shape
    ((2, 2), (2, 2))
    """
    return tuple(spread(together(arrays))) if arrays else ()


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Any:
    """Several arrays, one after another along an axis.

    Args:
        arrays: whose shapes differ along the axis at most; they are promoted to one element type.
        axis: the axis; None to join all elements in one dimension.

    >>> import fluid.numpy as xp
    >>> xp.concat([xp.asarray([1, 2]), xp.asarray([3])])
    NDArray([1, 2, 3], dtype=int64)
    """
    operands = alike(arrays)
    if axis is None:
        operands, axis = [flat(x) for x in operands], 0
    return ops_of(operands[0]).concat(operands, axis=axis_of(axis, operands[0].ndim))


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """Several arrays of one shape, along a new axis.

    Args:
        arrays: of one shape; they are promoted to one element type.
        axis: the place of the new axis.

    >>> import fluid.numpy as xp
    >>> xp.stack([xp.asarray([1, 2]), xp.asarray([3, 4])])
    NDArray([[1, 2],
             [3, 4]], dtype=int64)
    """
    operands = alike(arrays)
    return ops_of(operands[0]).stack(operands, axis=axis_of(axis, operands[0].ndim + 1))


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The parts of an array along an axis, which they lack.

    Args:
        x: an array.
        axis: the axis.

    >>> import fluid.numpy as xp
    >>> xp.unstack(xp.asarray([[1, 2], [3, 4]]))
    (NDArray([1, 2], dtype=int64), NDArray([3, 4], dtype=int64))
    """
    x = operand(x)
    axis = axis_of(axis, x.ndim)
    if not x.shape[axis]:
        return ()
    return tuple(ops_of(x).unstack(x, axis=axis, num=known_size(x, axis, "unstack")))


def expand_dims(x: Any, /, axis: int = 0) -> Any:
    """The array with a new axis of size 1.

    Args:
        x: an array.
        axis: the place of the new axis.

    >>> import fluid.numpy as xp
    >>> xp.expand_dims(xp.asarray([1, 2]), axis=1).shape
    (2, 1)
    """
    x = operand(x)
    return ops_of(x).unsqueeze2(x, axes=[axis_of(axis, x.ndim + 1)])


def squeeze(x: Any, /, axis: int | tuple[int, ...]) -> Any:
    """The array without some axes of size 1.

    Args:
        x: an array.
        axis: one axis or several, each of size 1.

    Raises:
        ProgramError: an axis has another size.

    >>> import fluid.numpy as xp
    >>> xp.squeeze(xp.ones((1, 2)), 0).shape
    (2,)
    """
    x = operand(x)
    axes = axes_of(axis, x.ndim)
    for number in axes:
        if x.shape[number] != 1:
            raise ProgramError(f"squeeze: axis {number} of {tuple(x.shape)} has the size {x.shape[number]}, not 1")
    return ops_of(x).squeeze2(x, axes=axes) if axes else ops_of(x).assign(x)


def reshape(x: Any, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Any:
    """The elements in another shape.

    Args:
        x: an array.
        shape: one size may be -1, and follows from the others.
        copy: True or None for a new array; False is refused: arrays share no memory here.

    >>> import fluid.numpy as xp
    >>> xp.reshape(xp.arange(4), (2, -1))
    NDArray([[0, 1],
             [2, 3]], dtype=int64)
    """
    if copy is False:
        raise ProgramError("reshape: the result shares no memory with x here; leave copy=False out")
    return reshaped(operand(x), shape_of(shape))


def permute_dims(x: Any, /, axes: tuple[int, ...]) -> Any:
    """The array with its axes in another order.

    Args:
        x: an array.
        axes: the axes of `x` in the new order.

    >>> import fluid.numpy as xp
    >>> xp.permute_dims(xp.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = operand(x)
    order = axes_of(tuple(axes), x.ndim)
    if len(order) != x.ndim:
        raise ProgramError(f"permute_dims: axes {tuple(axes)} should name each of {x.ndim} dimensions")
    return ops_of(x).transpose2(x, axis=order) if order else ops_of(x).assign(x)


def moveaxis(x: Any, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Any:
    """The array with some axes at other places; the others stay in order.

    Args:
        x: an array.
        source: one axis or several.
        destination: their new places.

    >>> import fluid.numpy as xp
    >>> xp.moveaxis(xp.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = operand(x)
    sources, places = axes_of(source, x.ndim), axes_of(destination, x.ndim)
    if len(sources) != len(places):
        raise ProgramError(f"moveaxis: {len(sources)} axes cannot go to {len(places)} places")
    order = [axis for axis in range(x.ndim) if axis not in sources]
    for place, axis in sorted(zip(places, sources, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, tuple(order))


def flip(x: Any, /, *, axis: int | tuple[int, ...] | None = None) -> Any:
    """The array with its elements in reverse order along some axes.

    Args:
        x: an array.
        axis: one axis or several; all by default.

    >>> import fluid.numpy as xp
    >>> xp.flip(xp.asarray([1, 2, 3]))
    NDArray([3, 2, 1], dtype=int64)
    """
    x = operand(x)
    axes = axes_of(axis, x.ndim)
    return ops_of(x).flip(x, axis=axes) if axes else ops_of(x).assign(x)


def roll(x: Any, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Any:
    """The array with its elements moved along some axes; what leaves at the end comes in at the start.

    Args:
        x: an array.
        shift: by how many places, for all axes or for each.
        axis: one axis or several; by default the elements are moved as if in one dimension.

    >>> import fluid.numpy as xp
    >>> xp.roll(xp.asarray([1, 2, 3]), 1)
    NDArray([3, 1, 2], dtype=int64)
    """
    x = operand(x)
    f = ops_of(x)
    if axis is None:
        if not isinstance(shift, int):
            raise ProgramError(f"roll: shift {shift} has several numbers; give an axis for each")
        return reshaped(roll(flat(x), shift, axis=0), x.shape)
    axes = [axis_of(number, x.ndim) for number in (axis if isinstance(axis, tuple) else (axis,))]
    shifts = [*shift] if isinstance(shift, tuple) else [shift] * len(axes)
    if len(shifts) != len(axes):
        raise ProgramError(f"roll: there are {len(shifts)} shifts for {len(axes)} axes")
    moves = dict.fromkeys(axes, 0)
    for number, places in zip(axes, shifts, strict=True):
        moves[number] += places
    sizes = {number: x.shape[number] for number in moves if x.shape[number]}
    steps = {number: moves[number] % size if size > 0 else moves[number] for number, size in sizes.items()}
    return f.roll(x, shifts=list(steps.values()), axis=list(steps)) if steps else f.assign(x)


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """The array with each element repeated.

    Args:
        x: an array.
        repeats: how often, for all or for each along the axis.
        axis: the axis; by default all elements in one dimension.

    >>> import fluid.numpy as xp
    >>> xp.repeat(xp.asarray([1, 2]), 2)
    NDArray([1, 1, 2, 2], dtype=int64)
    """
    x = operand(x)
    if axis is None:
        x, axis = flat(x), 0
    axis = axis_of(axis, x.ndim)
    if isinstance(repeats, int) and 0 < repeats < 2**31:  # an attribute of an op
        apart = ops_of(x).unsqueeze2(x, axes=[axis + 1])
        copies = expanded(apart, (*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :]))
        return reshaped(copies, (*x.shape[:axis], _times(repeats, x.shape[axis]), *x.shape[axis + 1 :]))
    counts = repeats.numpy() if isinstance(repeats, Tensor) else np.asarray(repeats)
    rows = allocated(np.repeat, np.arange(known_size(x, axis, "repeat")), counts.astype(np.int64, casting="same_kind"))
    return ops_of(x).gather(x, placed(rows, x), axis=axis)


def tile(x: Any, repetitions: tuple[int, ...], /) -> Any:
    """Copies of an array beside each other.

    Args:
        x: an array.
        repetitions: how many along each axis, counted from the last.

    >>> import fluid.numpy as xp
    >>> xp.tile(xp.asarray([1, 2]), (2,))
    NDArray([1, 2, 1, 2], dtype=int64)
    """
    x = operand(x)
    times = (*[1] * (x.ndim - len(repetitions)), *repetitions)
    sizes = (*[1] * (len(times) - x.ndim), *x.shape)
    apart = [part for size in sizes for part in (1, size)]
    full = [part for count, size in zip(times, sizes, strict=True) for part in (count, size)]
    copies = expanded(reshaped(x, apart), full)
    return reshaped(copies, [_times(count, size) for count, size in zip(times, sizes, strict=True)])


def _times(count: int, size: int) -> int:
    """The size of several copies; -1 if a program knows it only when it runs."""
    return -1 if size < 0 else count * size
