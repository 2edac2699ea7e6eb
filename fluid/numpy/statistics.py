"""Sums, means, extremes, and whether elements hold."""

from __future__ import annotations

from collections.abc import Callable
from math import prod as product
from typing import Any

import numpy as np

from ..eager.tensor import Tensor
from ..errors import ProgramError
from ..ops.formulas import root
from ..values.types import DTypeLike, VarType, as_dtype, is_complex, is_floating
from .dtypes import UNSIGNED
from .elementwise import not_equal
from .manipulation import concat
from .operands import axes_of, axis_of, cast, constant, known_size, operand, ops_of, placed, reshaped, scalar

__all__ = [
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip

Axis = int | tuple[int, ...] | None


def reduced(op_type: str, x: Any, axis: Axis, keepdims: bool) -> Any:
    """A reduction by an op over some axes; over all it has the shape ``()``."""
    f, axes = ops_of(x), axes_of(axis, x.ndim)
    reduce = getattr(f, op_type)
    if not axes and x.ndim:
        return reduce(reshaped(x, (*x.shape, 1)), dim=[-1])  # over nothing: of each element alone
    if len(axes) < x.ndim:
        return reduce(x, dim=tuple(axes), keep_dim=keepdims)
    result = reduce(x, reduce_all=True, keep_dim=keepdims)
    return result if keepdims and x.ndim else scalar(result)


def _accumulated(x: Any, dtype: DTypeLike | None) -> Any:
    """Numbers in the type of their sum: by default int64 or uint64 for smaller integers and bools."""
    x = operand(x)
    if dtype is not None:
        return cast(x, as_dtype(dtype))
    if is_floating(x.dtype):
        return x
    return cast(x, VarType.UINT64 if x.dtype in UNSIGNED else VarType.INT64)


def sum(x: Any, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Any:
    """The sum of elements.

    Args:
        x: numbers.
        axis: one axis or several; all by default.
        dtype: the element type of the sum; by default the type of `x`, and int64 or uint64 for smaller integers.
        keepdims: whether the axes stay, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.sum(xp.asarray([[1, 2], [3, 4]]), axis=0)
    NDArray([4, 6], dtype=int64)
    """
    return reduced("reduce_sum", _accumulated(x, dtype), axis, keepdims)


def prod(x: Any, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Any:
    """The product of elements.

    Args:
        x: numbers.
        axis: one axis or several; all by default.
        dtype: the element type of the product; by default the type of `x`, and int64 or uint64 for smaller integers.
        keepdims: whether the axes stay, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.prod(xp.asarray([2, 3, 4]))
    NDArray(24, dtype=int64)
    """
    return reduced("reduce_prod", _accumulated(x, dtype), axis, keepdims)


def max(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest element; NaN if one is.

    Args:
        x: real numbers, one at least.
        axis: one axis or several; all by default.
        keepdims: whether the axes stay, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.max(xp.asarray([2, 4, 3]))
    NDArray(4, dtype=int64)
    """
    return reduced("reduce_amax", operand(x), axis, keepdims)


def min(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest element; NaN if one is.

    Args:
        x: real numbers, one at least.
        axis: one axis or several; all by default.
        keepdims: whether the axes stay, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.min(xp.asarray([2, 4, 3]))
    NDArray(2, dtype=int64)
    """
    return reduced("reduce_amin", operand(x), axis, keepdims)


def _float_operand(x: Any) -> Any:
    x = operand(x)
    return x if is_floating(x.dtype) else cast(x, VarType.FP32)


def mean(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean; NaN of no elements.

    Args:
        x: floats; integers become float32.
        axis: one axis or several; all by default.
        keepdims: whether the axes stay, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.mean(xp.asarray([1.0, 2.0, 6.0]))
    NDArray(3., dtype=float32)
    """
    return reduced("reduce_mean", _float_operand(x), axis, keepdims)


def var(x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The variance.

    Args:
        x: floats; integers become float32.
        axis: one axis or several; all by default.
        correction: subtracted from the number of elements in the divisor; 1 for an estimate from a sample.
        keepdims: whether the axes stay, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.var(xp.asarray([1.0, 3.0]))
    NDArray(1., dtype=float32)
    """
    x = _float_operand(x)
    f = ops_of(x)
    distance = f.elementwise_sub(x, mean(x, axis=axis, keepdims=True))
    square = f.square(f.abs(distance)) if is_complex(x.dtype) else f.square(distance)
    result = mean(square, axis=axis, keepdims=keepdims)
    if not correction:
        return result
    count = product(known_size(x, number, "var") for number in axes_of(axis, x.ndim))
    divisor = count - correction
    factor = count / divisor if divisor > 0 else float("nan") if not count else float("inf")
    return f.elementwise_mul(result, constant(factor, result.dtype, result))


def std(x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The standard deviation, the root of the variance. Where it is 0, so is its gradient, as in torch; jax has NaN there.

    Args:
        x: floats; integers become float32.
        axis: one axis or several; all by default.
        correction: subtracted from the number of elements in the divisor; 1 for an estimate from a sample.
        keepdims: whether the axes stay, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.std(xp.asarray([1.0, 3.0]))
    NDArray(1., dtype=float32)
    """
    variance = var(x, axis=axis, correction=correction, keepdims=keepdims)
    return root(ops_of(variance), variance)


def _holds(x: Any) -> Any:
    x = operand(x)
    return x if x.dtype is VarType.BOOL else not_equal(x, 0)


def all(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether all elements hold, or are not zero; True of none.

    Args:
        x: an array.
        axis: one axis or several; all by default.
        keepdims: whether the axes stay, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.all(xp.asarray([True, False]))
    NDArray(False, dtype=bool)
    """
    return reduced("reduce_all", _holds(x), axis, keepdims)


def any(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether one element holds at least, or is not zero; False of none.

    Args:
        x: an array.
        axis: one axis or several; all by default.
        keepdims: whether the axes stay, with size 1.

    >>> import fluid.numpy as xp
    >>> xp.any(xp.asarray([True, False]))
    NDArray(True, dtype=bool)
    """
    return reduced("reduce_any", _holds(x), axis, keepdims)


# ------------------------------------------------------------------------------------------------------------ along one axis
def _running(x: Any, axis: int | None, dtype: DTypeLike | None, first: float | None, run: Callable[[Any, int], Any]) -> Any:
    """A cumulative function of the elements along an axis, behind the value `first` if there is one."""
    x = _accumulated(x, dtype)
    if axis is None:
        if x.ndim != 1:
            raise ProgramError(f"x has {x.ndim} dimensions; give the axis")
        axis = 0
    axis = axis_of(axis, x.ndim)
    f, result = ops_of(x), run(x, axis)
    if first is None:
        return result
    if isinstance(x, Tensor):
        initial = placed(np.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), first, x.dtype.numpy), x)
    else:
        start = f.slice(result, axes=[axis], starts=[0], ends=[1], infer_flags=[1], decrease_axis=[])
        initial = f.fill_any_like(start, value=float(first), dtype=-1)
    return f.concat([initial, result], axis=axis)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False) -> Any:
    """The sums of the elements up to each one along an axis.

    Args:
        x: numbers.
        axis: the axis; it may be left out for one dimension.
        dtype: the element type of the sums; as in `sum`.
        include_initial: whether a zero comes first.

    >>> import fluid.numpy as xp
    >>> xp.cumulative_sum(xp.asarray([1, 2, 3]))
    NDArray([1, 3, 6], dtype=int64)
    """
    return _running(x, axis, dtype, 0 if include_initial else None, lambda x, axis: ops_of(x).cumsum(x, axis=axis))


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False) -> Any:
    """The products of the elements up to each one along an axis.

    Args:
        x: numbers.
        axis: the axis; it may be left out for one dimension.
        dtype: the element type of the products; as in `prod`.
        include_initial: whether a one comes first.

    >>> import fluid.numpy as xp
    >>> xp.cumulative_prod(xp.asarray([1, 2, 3]))
    NDArray([1, 2, 6], dtype=int64)
    """
    return _running(x, axis, dtype, 1 if include_initial else None, lambda x, axis: ops_of(x).cumprod(x, dim=axis))


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """The differences of neighbours along an axis.

    Args:
        x: numbers.
        axis: the axis.
        n: how many times.
        prepend, append: arrays to put before and behind `x` along the axis.

    >>> import fluid.numpy as xp
    >>> xp.diff(xp.asarray([1, 4, 9]))
    NDArray([3, 5], dtype=int64)
    """
    if n < 0:
        raise ProgramError(f"diff: n {n} should not be below 0")
    x = operand(x)
    axis = axis_of(axis, x.ndim)
    if not n:
        return x
    parts = [part for part in (prepend, x, append) if part is not None]
    x = concat(parts, axis=axis) if len(parts) > 1 else x
    f = ops_of(x)
    subtract = f.not_equal if x.dtype is VarType.BOOL else f.elementwise_sub
    for _ in range(n):
        if x.shape[axis] == 0:
            return x
        later = f.slice(x, axes=[axis], starts=[1], ends=[2**31 - 1], infer_flags=[1], decrease_axis=[])
        earlier = f.slice(x, axes=[axis], starts=[0], ends=[-1], infer_flags=[1], decrease_axis=[])
        x = subtract(later, earlier)
    return x
