"""Products, extrema and logarithms of sums that grow element by element along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import InferenceError
from ..opdef.registry import ANALYTIC, ShapeOnly, define, required
from ..values.spec import Spec
from ..values.types import VarType, as_dtype
from .shapes import normalize_axis


def _along(X: Spec, axis: int, slot: str = "X") -> Spec:
    if X.ndim:
        normalize_axis(axis, X.ndim)
    elif axis not in (0, -1):
        raise InferenceError(f"axis {axis} should be 0 or -1 for {slot} {X}, a single number")
    return X


def _before(f: Any, X: Any, axis: int, strictly: bool = False) -> Any:
    """1 at [.., i, j, ..], of positions i and j along `axis`, where i is not after j (or `strictly` before), else 0."""
    number = f.cumsum(f.fill_any_like(X, value=1.0), axis=axis)
    row, column = f.unsqueeze2(number, axes=[axis + 1]), f.unsqueeze2(number, axes=[axis])
    return (f.less_than if strictly else f.less_equal)(row, column).astype(X.dtype)


@define("cumprod(X: int|float) -> Out", infer=lambda X, dim: _along(X, dim), complex_rule=ANALYTIC, dim=required("int"))
def cumprod(f: Any, X: Any, Out: ShapeOnly, dOut: Any, dim: int) -> Any:
    """Products of all elements up to each one along the dimension `dim`.

    The rule multiplies a copy of the elements for each one, with 1 in its place, so that zeros are no problem.
    """
    if not X.ndim:
        return {"X": dOut * 1.0}
    axis = normalize_axis(dim, X.ndim)
    before = _before(f, X, axis)
    is_current = before * (1.0 - _before(f, X, axis, strictly=True))
    product = f.cumprod(is_current + (1.0 - is_current) * f.unsqueeze2(X, axes=[axis]), dim=axis + 1)
    return {"X": f.reduce_sum(before * product * f.unsqueeze2(dOut, axes=[axis]), dim=[axis + 1])}


def _extreme(x: Spec, axis: int, dtype: int) -> tuple[Spec, Spec]:
    if as_dtype(dtype) not in (VarType.INT32, VarType.INT64):
        raise InferenceError(f"dtype {dtype} should be that of int32 or int64, for indices")
    return _along(x, axis, "x"), x.with_dtype(as_dtype(dtype))


def _define_extreme(op_type: str) -> Callable[[Callable[..., Any]], Any]:
    return define(f"{op_type}(x: int|real) -> out, indices", infer=_extreme, wrt=("x",), axis=-1, dtype=int(VarType.INT64))


def _to_its_place(f: Any, x: Any, indices: Any, dout: Any, axis: int) -> Any:
    if not x.ndim:
        return {"x": dout * 1.0}
    return {"x": f.place(dout, indices, x, axis=axis)}


@_define_extreme("cummax")
def cummax(f: Any, x: ShapeOnly, indices: Any, dout: Any, axis: int) -> Any:
    """The largest element up to each one along `axis`, and where it is: the last of equals. NaN counts as the largest."""
    return _to_its_place(f, x, indices, dout, axis)


@_define_extreme("cummin")
def cummin(f: Any, x: ShapeOnly, indices: Any, dout: Any, axis: int) -> Any:
    """The smallest element up to each one along `axis`, and where it is: the last of equals. NaN counts as the smallest."""
    return _to_its_place(f, x, indices, dout, axis)


def _logcumsumexp(X: Spec, axis: int, flatten: bool) -> Spec:
    return X.with_shape((X.size,)) if flatten else _along(X, axis)


@define("logcumsumexp(X: real) -> Out", infer=_logcumsumexp, axis=-1, flatten=False, exclusive=False, reverse=False)
def logcumsumexp(f: Any, X: Any, Out: Any, dOut: Any, axis: int, flatten: bool, exclusive: bool, reverse: bool) -> Any:
    """The logarithms of the cumulative sums, as `cumsum`, of exponentials, without overflow.

    The rule weighs each element in each of the sums.
    """
    values = f.reshape2(X, shape=[-1]) if flatten or not X.ndim else X
    if not X.ndim:
        Out, dOut = f.reshape2(Out, shape=[-1]), f.reshape2(dOut, shape=[-1])
    axis = 0 if flatten or not X.ndim else normalize_axis(axis, X.ndim)
    before = _before(f, values, axis, strictly=exclusive)
    if reverse:
        before = 1.0 - _before(f, values, axis, strictly=not exclusive)
    apart = f.unsqueeze2(values, axes=[axis + 1]) - f.unsqueeze2(Out, axes=[axis])
    weights = f.exp(f.elementwise_min(apart, f.fill_zeros_like(apart))) * before
    gradient = f.reduce_sum(weights * f.unsqueeze2(dOut, axes=[axis]), dim=[axis + 1])
    return {"X": f.reshape_like(gradient, X) if flatten or not X.ndim else gradient}
