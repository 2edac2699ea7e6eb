"""Ranks, medians, counts: ops that sort, count, or look up among sorted numbers."""

from __future__ import annotations

from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, ShapeOnly, at_most, choice, define, ints, least, long
from ..values.spec import Spec
from ..values.types import VarType, as_dtype
from .shapes import different_axes, fits, normalize_axis, not_of_nothing, reduced


def _ranked(X: Spec, axis: int, keepdim: bool) -> tuple[Spec, Spec]:
    if not X.ndim:
        if axis not in (0, -1):
            raise InferenceError(f"axis {axis} should be 0 or -1 for X {X}, a single number")
        return X, X.with_dtype(VarType.INT64)
    not_of_nothing("an element", X.shape, [normalize_axis(axis, X.ndim)])
    out = X.with_shape(reduced(X.shape, [axis], keepdim))
    return out, out.with_dtype(VarType.INT64)


def _kthvalue(X: Spec, k: int, axis: int, keepdim: bool) -> tuple[Spec, Spec]:
    out = _ranked(X, axis, keepdim)
    size = X.shape[axis] if X.ndim else 1
    if not 1 <= k or -1 < size < k:
        raise InferenceError(f"k {k} should be from 1 to the size of axis {axis} of X {X}")
    return out


def _place_back(f: Any, X: Any, Indices: Any, dOut: Any, axis: int, keepdim: bool) -> Any:
    """The gradient of picking one element along `axis`."""
    if not X.ndim:
        return {"X": dOut * 1.0}
    axis = normalize_axis(axis, X.ndim)
    if not keepdim:
        Indices, dOut = f.unsqueeze2(Indices, axes=[axis]), f.unsqueeze2(dOut, axes=[axis])
    return {"X": f.place(dOut, Indices, X, axis=axis)}


@define("kthvalue(X: int|real) -> Out, Indices", infer=_kthvalue, k=1, axis=-1, keepdim=False)
def kthvalue(f: Any, X: ShapeOnly, Indices: Any, dOut: Any, axis: int, keepdim: bool) -> Any:
    """The `k`-th smallest element along `axis`, from 1 on, and where it is."""
    return _place_back(f, X, Indices, dOut, axis, keepdim)


@define("mode(X: int|real) -> Out, Indices", infer=lambda X, axis, keepdim: _ranked(X, axis, keepdim), axis=-1, keepdim=False)
def mode(f: Any, X: ShapeOnly, Indices: Any, dOut: Any, axis: int, keepdim: bool) -> Any:
    """The most frequent element along `axis`, and the last place where it is; of equally frequent ones the smallest."""
    return _place_back(f, X, Indices, dOut, axis, keepdim)


def median_axes(ndim: int, axis: list[int]) -> list[int]:
    """The dimensions that medians are taken over, in order; all by default."""
    return sorted(different_axes("axis", axis, ndim)) if axis else list(range(ndim))


def _nanmedian(X: Spec, axis: list[int], keepdim: bool) -> tuple[Spec, Spec]:
    axes = median_axes(X.ndim, axis)
    not_of_nothing("a median", X.shape, axes)
    out = X.with_shape(reduced(X.shape, axes, keepdim))
    return out, Spec((*out.shape, 2), VarType.INT64)


@define("nanmedian(X: real) -> Out, MedianIndex~", infer=_nanmedian, axis=ints(), keepdim=True)
def nanmedian(f: Any, X: ShapeOnly, MedianIndex: Any, dOut: Any, axis: list[int], keepdim: bool) -> Any:
    """The median of the numbers that are not NaN, over the dimensions `axis` or over all; the mean of the two in the middle.

    MedianIndex says where they are among the elements that are reduced, flattened; -1 where there are none.
    """
    return {"X": _halves_back(f, X, MedianIndex, dOut, axis)}


def _halves_back(f: Any, X: Any, index: Any, dOut: Any, axis: list[int], many: int = 2) -> Any:
    """The gradient of the mean of `many` elements; `index` has their places among the reduced elements, -1 for none."""
    ndim: int = X.ndim
    axes = median_axes(ndim, axis)
    other_axes = [dim for dim in range(ndim) if dim not in axes]
    order = [*other_axes, *axes]
    turned = f.transpose2(X, axis=order) if ndim else X
    index = f.reshape2(index, shape=[-1, many])
    halves = f.expand_v2(f.reshape2(dOut, shape=[-1, 1]) * (1.0 / many), shape=[-1, many])
    placed = f.reshape_like(f.place(halves, index, f.flatten(turned, axis=len(other_axes)), axis=1, ignore_index=-1), turned)
    return f.transpose2(placed, axis=[order.index(dim) for dim in range(ndim)]) if ndim else placed


def _median(x: Spec, axis: list[int], keepdim: bool, mode: str) -> tuple[Spec, Spec]:
    out, index = _nanmedian(x, axis, keepdim)
    return out, index if mode == "avg" else out.with_dtype(VarType.INT64)


@define("median(x: real) -> out, medians", infer=_median, wrt=("x",), axis=ints(), keepdim=False, mode=choice("avg", "min"))
def median(f: Any, x: ShapeOnly, out: ShapeOnly, medians: Any, dout: Any, axis: list[int], mode: str) -> Any:
    """The median over the dimensions `axis` or over all, NaN where a number is NaN: the mean of the two in the middle, or with
    the mode "min" the smaller one. `medians` says where they are among the elements that are reduced, flattened.

    It is an op of Paddle 3.
    """
    return {"x": _halves_back(f, x, medians, dout, axis, 2 if mode == "avg" else 1)}


# -------------------------------------------------------------------------------------------------------------- counting
def _searchsorted(SortedSequence: Spec, Values: Spec, out_int32: bool) -> Spec:
    if SortedSequence.dtype is not Values.dtype:
        raise ElementTypeError(f"SortedSequence is {SortedSequence} and Values is {Values}: cast one to the type of the other")
    before = SortedSequence.shape[:-1]
    if SortedSequence.ndim != 1 and (Values.ndim != SortedSequence.ndim or not all(map(fits, before, Values.shape))):
        raise InferenceError(
            f"SortedSequence is {SortedSequence}; its rows should be as many as those of Values {Values}, or one"
        )
    if not SortedSequence.ndim:
        raise InferenceError(f"SortedSequence is {SortedSequence}; it should have a dimension at least")
    return Values.with_dtype(VarType.INT32 if out_int32 else VarType.INT64)


@define(
    "searchsorted(SortedSequence: int|real, Values: int|real) -> Out",
    infer=_searchsorted,
    grad=ZERO_GRADIENT,
    out_int32=False,
    right=False,
)
def searchsorted() -> None:
    """Where each of Values would go in the row of SortedSequence (or its only row) that belongs to its row, so that the row stays
    sorted: before equal elements, or with `right` behind them."""


def _histogram(X: Spec, bins: int, min: int, max: int) -> Spec:
    if min > max:
        raise InferenceError(f"min {min} should not be above max {max}")
    return Spec((bins,), VarType.INT64)


@define(
    "histogram(X: int|real) -> Out",
    infer=_histogram,
    grad=ZERO_GRADIENT,
    bins=at_most(1 << 30, least(1, long(100))),
    min=0,
    max=0,
)
def histogram() -> None:
    """How many elements of X are in each of `bins` equal parts of ``[min, max]``, or if these are equal, of the smallest to the
    largest element (if those are equal too, of one below to one above). Others do not count."""


def _bincount(X: Spec, Weights: Spec | None) -> Spec:
    if X.ndim != 1:
        raise InferenceError(f"bincount: X is {X}; it should be a vector")
    if Weights is not None and not (Weights.ndim == 1 and fits(Weights.shape[0], X.shape[0])):
        raise InferenceError(f"bincount: Weights is {Weights}; it should have a number for each of X {X}")
    if Weights is None:
        return X.with_dtype(VarType.INT64).with_shape((-1,))
    return Spec((-1,), VarType.FP32 if Weights.dtype is VarType.FP32 else VarType.FP64)


@define("bincount(X: int, Weights?: int|real) -> Out", infer=_bincount, wrt=("Weights",), inline_grad=True, minlength=least(0, 0))
def bincount(f: Any, X: Any, Weights: ShapeOnly, dOut: Any) -> Any:
    """How often each integer from 0 on is in the vector X, or the sums of the Weights there; `minlength` numbers at least."""
    return {"Weights": f.gather(dOut, X)}


def _unique_consecutive(
    X: Spec, return_inverse: bool, return_counts: bool, axis: list[int], dtype: int
) -> dict[str, Spec | None]:
    element = as_dtype(dtype)
    if (return_inverse or return_counts) and element not in (VarType.INT32, VarType.INT64):
        raise InferenceError(f"dtype {dtype} should be that of int32 or int64, for indices and counts")
    if len(axis) > 1:
        raise InferenceError(f"axis {axis} should be one dimension, or none for all elements")
    place = normalize_axis(axis[0], X.ndim) if axis else 0
    size = X.shape[place] if axis else X.size
    out = X.with_shape((*X.shape[:place], -1, *X.shape[place + 1 :]) if axis else (-1,))
    return {
        "Out": out,
        "Index": Spec((size,), element) if return_inverse else None,
        "Counts": Spec((-1,), element) if return_counts else None,
    }


@define(
    "unique_consecutive(X) -> Out, Index, Counts",
    infer=_unique_consecutive,
    grad=NOT_DIFFERENTIABLE,
    return_inverse=False,
    return_counts=False,
    axis=ints(),
    dtype=int(VarType.FP32),
)
def unique_consecutive() -> None:
    """X without those elements, or slices along `axis`, that equal the one before; on request, for each one its index in Out, and
    how many each of Out stands for."""
