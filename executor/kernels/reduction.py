"""Kernels of `fluid.ops.reduction`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from fluid.ops.reduction import reduced_axes

from .manipulation import numbers
from .portable import minima, sum_of_squares
from .sums import keepdims_shape, sum_over
from .table import Call, OutArray, fill, kernel, prepared


def _spread(X: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
    """A view of X, of `shape` reduced over `axes`, that broadcasts to `shape`."""
    return X.reshape([1 if axis in axes else extent for axis, extent in enumerate(shape)])


def _mean(xp: Any, X: Any, axes: tuple[int, ...], Out: Any, scratch: Callable[..., Any]) -> list[Call]:
    if X.dtype.kind not in "fc" or X.dtype.itemsize < 4:
        return [partial(_mean_by_floats, xp, X, axes, Out)]
    count = xp.asarray(prod(X.shape[axis] for axis in axes), Out.dtype)
    return [*sum_over(xp, X, axes, Out, scratch), partial(xp.true_divide, Out, count, Out)]


def _mean_by_floats(xp: Any, X: Any, axes: tuple[int, ...], Out: OutArray) -> None:
    xp.copyto(Out, xp.mean(X, axes, "float64").reshape(Out.shape), "unsafe")


def _expand(xp: Any, X: Any, axes: Sequence[int], average: bool, Out: Any, scratch: Callable[..., Any]) -> list[Call]:
    """Calls that broadcast X, reduced over `axes`, to `Out`; with `average`, divided by how many elements share one."""
    if not average:
        return [partial(xp.copyto, Out, _spread(X, Out.shape, axes), "unsafe")]
    quotients = scratch(X.shape, Out.dtype)
    count = xp.asarray(prod(Out.shape[axis] for axis in axes), Out.dtype)
    return [partial(xp.true_divide, X, count, quotients), partial(xp.copyto, Out, _spread(quotients, Out.shape, axes))]


# ---------------------------------------------------------------------------------------------------------------- kernels
@prepared("reduce_sum")
def reduce_sum(xp: Any, X: Any, dim: list[int], reduce_all: bool, Out: Any, scratch: Any) -> list[Call]:
    return sum_over(xp, X, reduced_axes(X.ndim, dim, reduce_all), Out, scratch)


@prepared("reduce_mean")
def reduce_mean(xp: Any, X: Any, dim: list[int], reduce_all: bool, Out: Any, scratch: Any) -> list[Call]:
    return _mean(xp, X, reduced_axes(X.ndim, dim, reduce_all), Out, scratch)


@prepared("expand_reduced")
def expand_reduced(xp: Any, X: Any, dim: list[int], reduce_all: bool, average: bool, Out: Any, scratch: Any) -> list[Call]:
    return _expand(xp, X, reduced_axes(Out.ndim, dim, reduce_all), average, Out, scratch)


@prepared("reduce_prod")
def reduce_prod(xp: Any, X: Any, dim: list[int], reduce_all: bool, Out: Any) -> Call:
    axes = reduced_axes(X.ndim, dim, reduce_all)
    return partial(xp.prod, X, axes, None, Out.reshape(keepdims_shape(X.shape, axes)))


def _products_of_other_rows(rows: Any) -> Any:
    """For each element, the product of the elements before and behind it along the first axis."""
    products = np.ones(rows.shape, rows.dtype)
    for before, row, product in zip(products, rows, products[1:], strict=False):
        np.multiply(before, row, product)
    behind = np.ones_like(products[0])
    for product, row in zip(products[::-1], rows[::-1], strict=True):
        product *= behind
        behind *= row
    return products


@kernel("reduce_prod_grad")
def reduce_prod_grad(xp: Any, X: Any, dOut: Any, dim: list[int], reduce_all: bool, dX: Any) -> None:
    if not X.size:
        return
    axes = reduced_axes(X.ndim, dim, reduce_all)
    if xp is np and len(axes) == 1 and _has_wide_rows(X.shape, axes[0]):
        products = _products_of_other_rows(np.moveaxis(X, axes[0], 0))
        np.multiply(np.moveaxis(products, 0, axes[0]), _spread(dOut, X.shape, axes), dX)
        return
    last = tuple(range(X.ndim - len(axes), X.ndim))
    moved = xp.moveaxis(X, axes, last)
    factors = moved.reshape(*keepdims_shape(X.shape, axes), -1)
    # The product of all other factors is the product of the factors before and behind: two running products, no division by 0.
    ahead, behind = xp.ones_like(factors), xp.ones_like(factors)
    xp.cumprod(factors[..., :-1], -1, out=ahead[..., 1:])
    xp.cumprod(factors[..., :0:-1], -1, out=behind[..., -2::-1])
    xp.multiply(ahead, behind, ahead)
    xp.multiply(xp.moveaxis(ahead.reshape(moved.shape), last, axes), _spread(dOut, X.shape, axes), dX)


@prepared("reduce_max")
def reduce_max(xp: Any, X: Any, dim: list[int], reduce_all: bool, Out: Any) -> Call:
    axes = reduced_axes(X.ndim, dim, reduce_all)
    return partial(xp.max, X, axes, Out.reshape(keepdims_shape(X.shape, axes)))


@prepared("reduce_min")
def reduce_min(xp: Any, X: Any, dim: list[int], reduce_all: bool, Out: Any) -> Call:
    axes = reduced_axes(X.ndim, dim, reduce_all)
    return minima(xp, X, axes, Out.reshape(keepdims_shape(X.shape, axes)))


@kernel("clip_by_norm", inplace={"Out": "X"})
def clip_by_norm(xp: Any, X: Any, max_norm: float, Out: Any) -> None:
    size = xp.sqrt(sum_of_squares(xp, X))
    xp.multiply(X, max_norm / xp.maximum(size, X.dtype.type(max_norm)), Out)


def _test_at_run(test: Any, X: Any, tensor: Any, tensors: Any, dim: list[int], keep_dim: bool) -> Any:
    return test(X, tuple(numbers(tensor, tensors, dim)), keepdims=keep_dim)


def _test(function: str) -> Callable[..., Call]:
    def bind(
        xp: Any, X: Any, AxisTensor: Any, AxisTensorList: Any, dim: list[int], keep_dim: bool, reduce_all: bool, Out: Any
    ) -> Call:
        test = getattr(xp, function)
        if Out is None:
            return partial(_test_at_run, test, X, AxisTensor, AxisTensorList, dim, keep_dim)
        axes = reduced_axes(X.ndim, dim, reduce_all)
        return partial(test, X, axes, Out.reshape(keepdims_shape(X.shape, axes)))

    return bind


prepared("reduce_all")(_test("all"))
prepared("reduce_any")(_test("any"))


@kernel("squared_l2_norm")
def squared_l2_norm(xp: Any, X: Any, Out: Any) -> None:
    Out[...] = sum_of_squares(xp, X)


def _position(function: str) -> Callable[..., None]:
    def find(xp: Any, X: Any, axis: int, flatten: bool, Out: Any) -> None:
        places = getattr(xp, function)(X, None if flatten or X.ndim == 0 else axis)
        xp.copyto(Out, places.reshape(Out.shape), "unsafe")

    return find


kernel("arg_max")(_position("argmax"))
kernel("arg_min")(_position("argmin"))


def _has_wide_rows(shape: Sequence[int], axis: int) -> bool:
    """Whether running sums along an axis add rows of so many neighbouring elements that a call for each row is fastest.

    Measured with AVX-512: for [32, 50, 128] along axis 1, a call for each row takes 0.2 of the time of numpy's cumsum, for
    [4, 1000, 64] 1.5.
    """
    after = prod(shape[axis % max(len(shape), 1) + 1 :])
    return bool(shape) and shape[axis] <= 1024 and prod(shape) // max(shape[axis], 1) >= 512 and after >= 16


def _running_sums(source: Any, target: Any) -> list[Call]:
    """Calls of numpy that add up along the first axis, row by row."""
    if not len(source):
        return []
    sums = [partial(np.add, before, row, total) for before, row, total in zip(target, source[1:], target[1:], strict=False)]
    return [partial(np.copyto, target[0], source[0]), *sums]


@prepared("cumsum")
def cumsum(xp: Any, X: Any, axis: int, flatten: bool, exclusive: bool, reverse: bool, Out: Any) -> list[Call]:
    source = X.reshape(-1) if flatten else xp.moveaxis(X, axis, 0)
    target = Out if flatten else xp.moveaxis(Out, axis, 0)
    if reverse:
        source, target = source[::-1], target[::-1]
    first = []
    if exclusive:
        first, source, target = [fill(xp, target[:1], 0)], source[:-1], target[1:]
    if xp is np and not flatten and _has_wide_rows(X.shape, axis) and X.dtype == Out.dtype and X.dtype.kind in "fiu":
        return [*first, *_running_sums(source, target)]
    return [*first, partial(xp.cumsum, source, 0, None, target)]
