"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..errors import ProgramError
from ..ops.shapes import broadcast
from ..values.types import is_complex
from .operands import axes_of, axis_of, expanded, operand, ops_of, pair, reshaped
from .statistics import reduced

__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]


def matmul(x1: Any, x2: Any, /) -> Any:
    """The product of matrices, of the last two dimensions.

    Args:
        x1, x2: numbers of one dimension at least; the dimensions before the last two broadcast. A vector counts as one row on
            the left and one column on the right, which the result lacks.

    >>> import fluid.numpy as xp
    >>> xp.matmul(xp.asarray([[1, 2], [3, 4]]), xp.asarray([1, 1]))
    NDArray([3, 7], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    if not x1.ndim or not x2.ndim:
        raise ProgramError("matmul: numbers without dimensions are multiplied by multiply, or *")
    return f.matmul_v2(x1, x2)


def matrix_transpose(x: Any, /) -> Any:
    """The transposed matrices of the last two dimensions.

    Args:
        x: an array of two dimensions at least.

    >>> import fluid.numpy as xp
    >>> xp.matrix_transpose(xp.asarray([[1, 2], [3, 4]]))
    NDArray([[1, 3],
             [2, 4]], dtype=int64)
    """
    x = operand(x)
    if x.ndim < 2:
        raise ProgramError(f"matrix_transpose: an array of {x.ndim} dimensions holds no matrices")
    return ops_of(x).transpose2(x, axis=[*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def tensordot(x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Any:
    """The sums of products over some axes of both arrays.

    Args:
        x1, x2: numbers.
        axes: axes of `x1` and axes of `x2`, with equal sizes; or N for the last N of `x1` and the first N of `x2`.

    >>> import fluid.numpy as xp
    >>> xp.tensordot(xp.ones((2, 3)), xp.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    f, x1, x2 = pair(x1, x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ProgramError(f"tensordot: axes {axes} is not in 0 to {min(x1.ndim, x2.ndim)}")
        first, second = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        first, second = axes_of(tuple(axes[0]), x1.ndim), axes_of(tuple(axes[1]), x2.ndim)
    sizes = [x1.shape[axis] for axis in first]
    if sizes != [x2.shape[axis] for axis in second]:
        raise ProgramError(f"tensordot: axes {first} of {tuple(x1.shape)} and {second} of {tuple(x2.shape)} differ in size")
    rows = [axis for axis in range(x1.ndim) if axis not in first]
    columns = [axis for axis in range(x2.ndim) if axis not in second]
    shape = [*(x1.shape[axis] for axis in rows), *(x2.shape[axis] for axis in columns)]
    left = reshaped(_ordered(x1, rows + first), (prod(x1.shape[axis] for axis in rows), prod(sizes)))
    right = reshaped(_ordered(x2, second + columns), (prod(sizes), prod(x2.shape[axis] for axis in columns)))
    return reshaped(f.matmul_v2(left, right), shape)


def _ordered(x: Any, order: list[int]) -> Any:
    return x if order == list(range(x.ndim)) else ops_of(x).transpose2(x, axis=order)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The dot products of vectors along an axis; complex elements of `x1` are conjugated.

    Args:
        x1, x2: numbers, which broadcast apart from the axis.
        axis: the axis of the vectors.

    >>> import fluid.numpy as xp
    >>> xp.vecdot(xp.asarray([1, 2]), xp.asarray([3, 4]))
    NDArray(11, dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    axis = axis_of(axis, min(x1.ndim, x2.ndim)) - min(x1.ndim, x2.ndim)
    if x1.shape[axis] != x2.shape[axis]:
        raise ProgramError(f"vecdot: vectors of {x1.shape[axis]} and of {x2.shape[axis]} elements have no dot product")
    if is_complex(x1.dtype):
        x1 = f.conj(x1)
    shape = broadcast(tuple(x1.shape), tuple(x2.shape))
    return reduced("reduce_sum", f.elementwise_mul(expanded(x1, shape), expanded(x2, shape)), len(shape) + axis, False)
