"""Kernels of `fluid.ops.elementwise`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import numpy as np

from fluid.ops.shapes import aligned
from fluid.values.lod_array import ids_of, last_offsets
from fluid.values.spec import Lod

from .portable import copy
from .sums import sum_over
from .table import Call, OutArray, fill, prepared


def scalar(xp: Any, number: float, dtype: Any) -> Any:
    """Convert a number to an array without dimensions, which ufuncs take without conversion; integers are cut towards zero."""
    return xp.asarray(number).astype(dtype)


def negation(xp: Any, x: Any, out: Any) -> Call:
    """The call ``out = -x``. numpy's `negative` (2.4.6) is wrong if `out` is not contiguous, and the stride of `x` in elements is
    the size of an element in bytes: a column of 4 of float32, for example."""
    return partial(xp.multiply, x, scalar(xp, -1, x.dtype), out)


def align(array: Any, ndim: int, axis: int) -> Any:
    """A view of `array` that stands at `axis` of `ndim` dimensions."""
    return array.reshape(aligned(array.shape, ndim, axis))


def pair(X: Any, Y: Any, axis: int) -> tuple[Any, Any]:
    """Views of X and Y that broadcast as numpy does."""
    ndim = max(X.ndim, Y.ndim)
    return align(X, ndim, axis), align(Y, ndim, axis)


def call(xp: Any, name: str, x: Any, y: Any, out: Any) -> Call:
    """The call of a binary ufunc."""
    if name in ("maximum", "minimum"):
        return partial(getattr(xp, name), x, y, out=out)  # numpy refuses these a third argument without its name
    return partial(getattr(xp, name), x, y, out)


# --------------------------------------------------------------------------------------------------- binary, by a ufunc
def _binary(ufunc: str) -> Callable[..., Call]:
    def bind(xp: Any, X: Any, Y: Any, axis: int, Out: Any) -> Call:
        return call(xp, ufunc, *pair(X, Y, axis), Out)

    return bind


def _binary_without_axis(ufunc: str) -> Callable[..., Call]:
    def bind(xp: Any, X: Any, Y: Any, Out: Any) -> Call:
        return call(xp, ufunc, *pair(X, Y, -1), Out)

    return bind


for _op, _ufunc in {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
    "mod": "remainder",
    "floordiv": "floor_divide",
}.items():
    prepared(f"elementwise_{_op}", inplace={"Out": "X"})(_binary(_ufunc))
for _op, _ufunc in {
    "less_than": "less",
    "less_equal": "less_equal",
    "greater_than": "greater",
    "greater_equal": "greater_equal",
    "equal": "equal",
    "not_equal": "not_equal",
}.items():
    prepared(_op, inplace={"Out": "X"})(_binary(_ufunc))
for _op in ("logical_and", "logical_or", "logical_xor"):
    prepared(_op, inplace={"Out": "X"})(_binary_without_axis(_op))
prepared("minus", inplace={"Out": "X"})(_binary_without_axis("subtract"))


def _divide_whole(xp: Any, x: Any, y: Any, Out: OutArray) -> None:
    uneven = (xp.remainder(x, y) != 0) & ((x < 0) != (y < 0))
    xp.floor_divide(x, y, Out)
    xp.add(Out, uneven.astype(Out.dtype), Out)


@prepared("elementwise_div", inplace={"Out": "X"})
def elementwise_div(xp: Any, X: Any, Y: Any, axis: int, Out: Any) -> Call:
    x, y = pair(X, Y, axis)
    if Out.dtype.kind in "iub":
        return partial(_divide_whole, xp, x, y, Out)
    return partial(xp.true_divide, x, y, Out)


# ------------------------------------------------------------------------------------------------- gradients of binary ops
def unbroadcast(xp: Any, X: Any, axis: int, Out: Any, scratch: Callable[..., Any]) -> list[Call]:
    """Calls that sum X down to the shape of `Out`."""
    if X.size == Out.size:
        return copy(xp, X, Out)
    small = aligned(Out.shape, X.ndim, axis)
    return sum_over(xp, X, [i for i, extent in enumerate(small) if extent != X.shape[i]], Out, scratch)


def _gradient(
    xp: Any, dOut: Any, axis: int, target: Any, scratch: Callable[..., Any], make: Callable[[Any], list[Call]]
) -> list[Call]:
    """Calls that compute a gradient in the shape of `dOut`, by the calls from `make`, and reduce it to its array."""
    if target is None:
        return []
    if target.shape == dOut.shape:
        return make(target)
    full_size = scratch(dOut.shape, dOut.dtype)
    return make(full_size) + unbroadcast(xp, full_size, axis, target, scratch)


@prepared("sum_to", inplace={"Out": "X"})
def sum_to(xp: Any, X: Any, axis: int, Out: Any, scratch: Any) -> list[Call]:
    return unbroadcast(xp, X, axis, Out, scratch)


@prepared("expand_to", inplace={"Out": "X"})
def expand_to(xp: Any, X: Any, axis: int, Out: Any) -> list[Call]:
    return copy(xp, X, Out) if X.size == Out.size else [partial(xp.copyto, Out, align(X, Out.ndim, axis))]


# In all of these dX, which may take the place of dOut, is computed last.
@prepared("elementwise_add_grad", inplace={"dX": "dOut"})
def elementwise_add_grad(xp: Any, dOut: Any, axis: int, dX: Any, dY: Any, scratch: Any) -> list[Call]:
    return [step for target in (dY, dX) if target is not None for step in unbroadcast(xp, dOut, axis, target, scratch)]


@prepared("elementwise_sub_grad", inplace={"dX": "dOut"})
def elementwise_sub_grad(xp: Any, dOut: Any, axis: int, dX: Any, dY: Any, scratch: Any) -> list[Call]:
    steps: list[Call] = []
    if dY is not None and dY.size == dOut.size:
        steps.append(negation(xp, dOut.reshape(dY.shape), dY))
    elif dY is not None:
        steps += [*unbroadcast(xp, dOut, axis, dY, scratch), negation(xp, dY, dY)]
    return steps if dX is None else steps + unbroadcast(xp, dOut, axis, dX, scratch)


@prepared("elementwise_mul_grad", inplace={"dX": "dOut"})
def elementwise_mul_grad(xp: Any, X: Any, Y: Any, dOut: Any, axis: int, dX: Any, dY: Any, scratch: Any) -> list[Call]:
    x, y = align(X, dOut.ndim, axis), align(Y, dOut.ndim, axis)
    return [
        *_gradient(xp, dOut, axis, dY, scratch, lambda out: [partial(xp.multiply, dOut, x, out)]),
        *_gradient(xp, dOut, axis, dX, scratch, lambda out: [partial(xp.multiply, dOut, y, out)]),
    ]


@prepared("elementwise_div_grad", inplace={"dX": "dOut"})
def elementwise_div_grad(xp: Any, Y: Any, Out: Any, dOut: Any, axis: int, dX: Any, dY: Any, scratch: Any) -> list[Call]:
    y = align(Y, dOut.ndim, axis)

    def by_divisor(out: Any) -> list[Call]:
        return [partial(xp.multiply, dOut, Out, out), partial(xp.true_divide, out, y, out), negation(xp, out, out)]

    return [
        *_gradient(xp, dOut, axis, dY, scratch, by_divisor),
        *_gradient(xp, dOut, axis, dX, scratch, lambda out: [partial(xp.true_divide, dOut, y, out)]),
    ]


def _choice_grad(chosen: str, rejected: str) -> Callable[..., list[Call]]:
    def bind(xp: Any, X: Any, Y: Any, dOut: Any, axis: int, dX: Any, dY: Any, scratch: Any) -> list[Call]:
        x, y = align(X, dOut.ndim, axis), align(Y, dOut.ndim, axis)
        mask = scratch(dOut.shape, bool)

        def where(holds: str) -> Callable[[Any], list[Call]]:
            return lambda out: [partial(getattr(xp, holds), x, y, mask), partial(xp.multiply, dOut, mask, out)]

        return [*_gradient(xp, dOut, axis, dY, scratch, where(rejected)), *_gradient(xp, dOut, axis, dX, scratch, where(chosen))]

    return bind


prepared("elementwise_max_grad", inplace={"dX": "dOut"})(_choice_grad("greater", "less_equal"))
prepared("elementwise_min_grad", inplace={"dX": "dOut"})(_choice_grad("less", "greater_equal"))


# ------------------------------------------------------------------------------------------------------ of one tensor
@prepared("sum", inplace={"Out": "X"})
def sum_(xp: Any, X: list[Any], Out: Any) -> list[Call]:
    terms = sorted((x for x in X if x is not None), key=lambda x: not xp.may_share_memory(x, Out))  # read before written
    if len(terms) == 1:
        return copy(xp, terms[0], Out)
    return [partial(xp.add, terms[0], terms[1], Out), *(partial(xp.add, Out, term, Out) for term in terms[2:])]


@prepared("scale", inplace={"Out": "X"})
def scale(xp: Any, X: Any, ScaleTensor: Any, scale: float, bias: float, bias_after_scale: bool, Out: Any) -> list[Call]:
    multiply = (xp.multiply, scalar(xp, scale, X.dtype) if ScaleTensor is None else ScaleTensor.reshape(()))
    add = (xp.add, scalar(xp, bias, X.dtype))
    wanted = [(ScaleTensor is not None or scale != 1.0, multiply), (bias != 0.0, add)]
    calls = [call for needed, call in (wanted if bias_after_scale else wanted[::-1]) if needed]
    if not calls:
        return copy(xp, X, Out)
    return [partial(ufunc, Out if position else X, operand, Out) for position, (ufunc, operand) in enumerate(calls)]


@prepared("increment", inplace={"Out": "X"})
def increment(xp: Any, X: Any, step: float, Out: Any) -> Call:
    return partial(xp.add, X, scalar(xp, step, X.dtype), Out)


@prepared("cast")
def cast(xp: Any, X: Any, Out: Any) -> list[Call]:
    return copy(xp, X, Out) if X.dtype == Out.dtype else [partial(xp.copyto, Out, X, "unsafe")]


@prepared("clip", inplace={"Out": "X"})
def clip(xp: Any, X: Any, Min: Any, Max: Any, min: float, max: float, Out: Any) -> Call:
    low = scalar(xp, min, X.dtype) if Min is None else Min.reshape(())
    high = scalar(xp, max, X.dtype) if Max is None else Max.reshape(())
    return partial(xp.clip, X, low, high, Out)


def _power_of_one_exponent(x: Any, y: Any, out: OutArray) -> None:
    """Compute ``out = x ** y``, where `y` has one element.

    numpy (2.4.6) computes the root for 0.5, but the powers of -0.0 and -infinity are 0.0 and infinity.
    """
    if y.item() != 0.5:
        np.power(x, y, out)
        return
    infinite = x == -inf
    np.sqrt(np.add(x, 0.0, out), out)
    np.copyto(out, inf, where=infinite)


@prepared("elementwise_pow", inplace={"Out": "X"})
def elementwise_pow(xp: Any, X: Any, Y: Any, axis: int, Out: Any) -> Call:
    return _powers(xp, *pair(X, Y, axis), Out)


def _powers(xp: Any, x: Any, y: Any, out: Any) -> Call:
    if xp is np and y.size == 1 and out.dtype.kind == "f":
        return partial(_power_of_one_exponent, x, y, out)
    return partial(xp.power, x, y, out)


def _power(xp: Any, X: Any, factor: float, Out: Any) -> list[Call]:
    """Calls that compute ``X ** factor``; common powers use special ufuncs, which are much faster."""
    ufunc = {2.0: xp.square, 0.5: xp.sqrt, -1.0: xp.reciprocal}.get(factor)
    if ufunc is not None and X.dtype.kind == "f":
        return [partial(ufunc, X, Out)]
    if factor == 1.0:
        return copy(xp, X, Out)
    return [partial(xp.power, X, scalar(xp, factor, X.dtype), Out)]


@prepared("pow", inplace={"Out": "X"})
def pow_(xp: Any, X: Any, FactorTensor: Any, factor: float, Out: Any) -> list[Call]:
    return _power(xp, X, factor, Out) if FactorTensor is None else [_powers(xp, X, FactorTensor.reshape(()), Out)]


@prepared("where", inplace={"Out": "Y"})
def where(xp: Any, Condition: Any, X: Any, Y: Any, Out: Any) -> list[Call]:
    if X is None:
        return [partial(xp.argwhere, Condition)]
    return [*copy(xp, Y, Out), partial(xp.copyto, Out, X, "same_kind", Condition)]


@prepared("logical_not", inplace={"Out": "X"})
def logical_not(xp: Any, X: Any, Out: Any) -> Call:
    return partial(xp.logical_not, X, Out)


def _look(ufunc: str) -> None:
    @prepared(f"{ufunc}_v2")
    def test_elements(xp: Any, X: Any, Out: Any) -> Call:
        return partial(getattr(xp, ufunc), X, Out)


for _op in ("isfinite", "isinf", "isnan"):
    _look(_op)


@prepared("is_empty")
def is_empty(xp: Any, X: Any, Out: Any) -> Call:
    return fill(xp, Out, X.size == 0)


@prepared("add_position_encoding")
def add_position_encoding(xp: Any, X: Any, X_lod: Lod, alpha: float, beta: float, Out: Any) -> list[Call]:
    half = X.shape[-1] // 2
    if not X.size:
        return []
    powers = xp.arange(half) / max(half - 1, 1)
    positions = xp.arange(X.shape[1])
    if X.ndim == 2:
        offsets = last_offsets(X_lod)
        positions = xp.asarray(np.arange(len(X)) - offsets[ids_of(offsets)])
    angles = positions[:, None] / (10000.0**powers if half > 1 else 10000.0)
    waves = (beta * xp.concatenate([xp.sin(angles), xp.cos(angles)], 1)).astype(X.dtype)
    return [partial(xp.multiply, X, alpha, Out), partial(xp.add, Out, waves, Out)]
