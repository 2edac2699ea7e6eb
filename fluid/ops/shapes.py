"""Checks of, and arithmetic on, shapes that inference functions share; ``-1`` stands for a size that is not known yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import ElementTypeError, InferenceError
from ..values.spec import fits, may_equal
from ..values.types import VarType

if TYPE_CHECKING:
    from ..values.spec import Spec

__all__ = [
    "aligned",
    "alike",
    "broadcast",
    "check_transposed",
    "check_types_agree",
    "different_axes",
    "fits",
    "in_order",
    "may_equal",
    "normalize_axes",
    "normalize_axis",
    "not_of_nothing",
    "one_a_row",
    "one_each",
    "one_number",
    "reduced",
    "scalar_shape",
    "scaled",
    "since_2",
    "slice_of",
    "unknown_shape",
    "within",
]

Shape = tuple[int, ...]


def scalar_shape(declared: Mapping[str, Spec], slot: str = "Out") -> Shape:
    """The shape of an output of one element: ``[]`` if it is declared so, as in Paddle 2.6, otherwise ``[1]`` as in Fluid."""
    out = declared.get(slot)
    return () if out is not None and out.shape == () else (1,)


def since_2(declared: Mapping[str, Spec], slot: str = "Out") -> Shape:
    """The shape of an output of one element of an op that Fluid 1.x lacks: ``[]``, or ``[1]`` if it is declared so, as up to
    Paddle 2.4."""
    out = declared.get(slot)
    return (1,) if out is not None and out.shape == (1,) else ()


def within(name: str, number: float, low: float, high: float) -> None:
    """`InferenceError` unless a number, such as an attribute, is in ``[low, high]``."""
    if not low <= number <= high:
        raise InferenceError(f"{name} {number} should be in [{low}, {high}]")


def check_types_agree(specs: Mapping[str, Spec]) -> None:
    """`ElementTypeError` unless two inputs, by name, have the same element type."""
    (x_name, x), (y_name, y) = specs.items()
    if x.dtype is not y.dtype:
        kind = x.dtype if x.dtype is not VarType.FP64 else y.dtype  # numpy's default, which is rarely meant
        raise ElementTypeError(
            f"{x_name} is {x} and {y_name} is {y}: cast one to the element type of the other, as by layers.cast(x, {kind.text!r})"
        )


def in_order(low_name: str, low: float, high_name: str, high: float) -> None:
    """`InferenceError` unless the bounds of an interval are in order."""
    if not low <= high:
        raise InferenceError(f"{low_name} {low} should not be above {high_name} {high}")


def one_number(slot: str, spec: Spec | None) -> None:
    """`InferenceError` unless an input is None or one number, of shape ``[1]`` or ``[]``."""
    if spec is not None and spec.shape not in ((1,), (), (-1,)):
        raise InferenceError(f"{slot} is {spec}; it should be one number, of shape [1] or []")


def one_a_row(slot: str, spec: Spec) -> None:
    """`InferenceError` unless the rows of an input, if it has any, have one element each."""
    if any(size not in (1, -1) for size in spec.shape[1:]):
        raise InferenceError(f"{slot} is {spec}; it should have one element in each row, as [N] or [N, 1]")


def one_each(slot: str, spec: Spec | None, rows: int) -> None:
    """`InferenceError` unless an input is None or has one element for each of `rows` rows."""
    if spec is not None and -1 not in (spec.size, rows) and spec.size != rows:
        raise InferenceError(f"{slot} is {spec}; it should have one element for each of {rows} rows")


def normalize_axis(axis: int, ndim: int) -> int:
    """`axis` as a non-negative number; `InferenceError` if there is no such axis."""
    if not -ndim <= axis < ndim:
        raise InferenceError(f"axis {axis} does not exist in {ndim} dimensions")
    return axis + ndim if axis < 0 else axis


def normalize_axes(axes: Sequence[int], ndim: int) -> list[int]:
    """`axes` as non-negative numbers; `InferenceError` if there is no such axis."""
    return [normalize_axis(axis, ndim) for axis in axes]


def different_axes(name: str, axes: Sequence[int], ndim: int) -> list[int]:
    """`axes` as non-negative numbers; `InferenceError` if there is no such axis, or one occurs twice."""
    normalized = normalize_axes(axes, ndim)
    if len(set(normalized)) != len(normalized):
        raise InferenceError(f"{name} {list(axes)} should name each dimension once, of {ndim}")
    return normalized


_MOST_DIMENSIONS = 64
_MOST_OUTPUTS = 1 << 16


def unknown_shape(rank: int) -> Shape:
    """A shape of `rank` unknown dimensions; `InferenceError` if no array has that many."""
    if rank > _MOST_DIMENSIONS:
        raise InferenceError(f"a shape of {rank} dimensions is asked for, and arrays have {_MOST_DIMENSIONS} at most")
    return (-1,) * rank


def alike(spec: Spec, count: int, subject: str) -> list[Spec]:
    """`count` outputs of one spec; `InferenceError`, which says what asks for them, if no op can have that many."""
    if count > _MOST_OUTPUTS:
        raise InferenceError(f"{subject} asks for {count} outputs, and an op has {_MOST_OUTPUTS} at most")
    return [spec] * count


def not_of_nothing(statistic: str, shape: Shape, axes: Collection[int]) -> None:
    """`InferenceError` if something that only exists for one element at least, such as a maximum, is taken over none."""
    if any(shape[axis] == 0 for axis in axes):
        raise InferenceError(f"X of shape {list(shape)} has no elements over which to take {statistic}, which needs one at least")


def scaled(count: int, factor: float) -> int:
    """The integer part of `count` times `factor`, computed in single precision as Paddle does."""
    single = VarType.FP32.numpy.type
    return int(single(count) * single(factor))


def slice_of(start: int, end: int, stride: int) -> slice:
    """The Python slice for the bounds of a strided slice. With a negative stride, -1 as the end means no end.

    Paddle writes ``x[::-1]`` as from 2147483647 to -1 by -1.
    """
    return slice(start, None if stride < 0 and end == -1 else end, stride)


def aligned(shape: Shape, ndim: int, axis: int) -> Shape:
    """`shape` with ones added so that its first dimension stands at `axis` of `ndim` (at the end for ``-1``)."""
    if len(shape) >= ndim:
        return shape
    start = ndim - len(shape) if axis == -1 else axis
    while axis != -1 and len(shape) > 1 and start + len(shape) > ndim and shape[-1] == 1:
        shape = shape[:-1]  # Fluid ignores trailing ones that do not fit
    if start < 0 or start + len(shape) > ndim:
        raise InferenceError(f"a shape of {len(shape)} dimensions does not fit at axis {axis} of {ndim}")
    return (1,) * start + shape + (1,) * (ndim - start - len(shape))


def check_transposed(slot: str, value: Spec, op_type: str, result: Spec, like: Spec) -> None:
    """Raise an `InferenceError` unless an input of the transpose of an op may have the shape that the op gives for `like`.

    Args:
        slot, value: the input.
        op_type, result: the op, and the spec of its output for `like`.
    """
    if not may_equal(value.shape, result.shape):
        raise InferenceError(f"{slot} {value} should have the shape {list(result.shape)} that {op_type} gives for Like {like}")


def broadcast(x: Shape, y: Shape, axis: int = -1) -> Shape:
    """The shape of an elementwise op on two shapes, the shorter one aligned at `axis`."""
    ndim = max(len(x), len(y))
    if not -1 <= axis <= ndim:
        raise InferenceError(f"axis {axis} should be -1, or from 0 to {ndim} for shapes {list(x)} and {list(y)}")
    out = []
    for a, b in zip(aligned(x, ndim, axis), aligned(y, ndim, axis), strict=True):
        if a == b or b == 1:
            out.append(a)
        elif a == 1:
            out.append(b)
        elif -1 in (a, b):
            out.append(max(a, b))
        else:
            where = "" if len(x) == len(y) else f", the shorter one at axis {axis}"
            raise InferenceError(f"shapes {list(x)} and {list(y)}{where} do not broadcast: {a} against {b}")
    return tuple(out)


def reduced(shape: Shape, dims: Sequence[int], keep_dim: bool) -> Shape:
    """`shape` after a reduction over `dims`."""
    axes = different_axes("dim", dims, len(shape))
    if keep_dim:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)
