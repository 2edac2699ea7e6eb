"""Write elementwise arithmetic, comparisons and logic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fluid.ops.shapes import aligned
from fluid.values.types import VarType, as_dtype

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, is_number


# ------------------------------------------------------------------------------------------------------ two operands
def align(g: OnnxGraph, x: OnnxTensor, ndim: int, axis: int) -> OnnxTensor:
    """Append dimensions of size 1, so that a tensor broadcasts at `axis` of `ndim` dimensions."""
    if x.ndim >= ndim or axis == -1 or axis + x.ndim == ndim:
        return x
    sizes = aligned(x.sizes, ndim, axis)
    dropped = x.ndim - (ndim - axis)
    if dropped > 0:  # trailing ones that do not fit
        x = g.squeeze(x, *range(x.ndim - dropped, x.ndim))
    trailing = ndim - axis - x.ndim
    assert len(sizes) == ndim
    return g.unsqueeze(x, *range(x.ndim, x.ndim + trailing))


def _pair(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, axis: int) -> tuple[OnnxTensor, OnnxTensor]:
    ndim = max(X.ndim, Y.ndim)
    return align(g, X, ndim, axis), align(g, Y, ndim, axis)


def _binary(op: str) -> Callable[..., OnnxTensor]:
    def of_two(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, axis: int) -> OnnxTensor:
        if X.dtype is VarType.BOOL and op in ("Add", "Mul", "Max", "Min"):
            return g.binary("Or" if op in ("Add", "Max") else "And", *_pair(g, X, Y, axis))
        return g.binary(op, *_pair(g, X, Y, axis))

    return of_two


for _type, _op in {
    "elementwise_add": "Add", "elementwise_sub": "Sub", "elementwise_mul": "Mul", "elementwise_div": "Div",
    "elementwise_max": "Max", "elementwise_min": "Min", "elementwise_pow": "Pow",
}.items():  # fmt: skip
    exports(_type)(_binary(_op))


def _compared(op: str, negated: bool = False) -> Callable[..., OnnxTensor]:
    def of_two(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, axis: int) -> OnnxTensor:
        if X.dtype is VarType.BOOL and op != "Equal":
            X, Y = g.cast(X, VarType.INT32), g.cast(Y, VarType.INT32)
        result = g.binary(op, *_pair(g, X, Y, axis))
        return g.unary("Not", result) if negated else result

    return of_two


exports("less_than")(_compared("Less"))
exports("less_equal")(_compared("LessOrEqual"))
exports("greater_than")(_compared("Greater"))
exports("greater_equal")(_compared("GreaterOrEqual"))
exports("equal")(_compared("Equal"))
exports("not_equal")(_compared("Equal", negated=True))


def _logical(op: str) -> Callable[..., OnnxTensor]:
    def of_two(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor) -> OnnxTensor:
        return g.binary(op, g.cast(X, VarType.BOOL), g.cast(Y, VarType.BOOL))

    return of_two


for _type, _op in {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}.items():
    exports(_type)(_logical(_op))


@exports("logical_not")
def logical_not(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.unary("Not", g.cast(X, VarType.BOOL))


@exports("elementwise_mod")
def elementwise_mod(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, axis: int) -> OnnxTensor:
    x, y = _pair(g, X, Y, axis)
    if not X.is_floating:
        return g.binary("Mod", x, y)
    remainder = g.binary("Sub", x, g.binary("Mul", g.unary("Floor", g.binary("Div", x, y)), y))
    return remainder


@exports("elementwise_floordiv")
def elementwise_floordiv(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, axis: int) -> OnnxTensor:
    x, y = _pair(g, X, Y, axis)
    if X.is_floating:
        return g.unary("Floor", g.binary("Div", x, y))
    return g.binary("Div", g.binary("Sub", x, g.binary("Mod", x, y)), y)


@exports("sum")
def sum_(g: OnnxGraph, X: list[OnnxTensor]) -> OnnxTensor:
    terms = [tensor for tensor in X if tensor is not None]
    if terms[0].spec.type is VarType.LOD_TENSOR_ARRAY:
        raise NotExported("sums of arrays of tensors")
    result = terms[0]
    for term in terms[1:]:
        result = g.binary("Add", result, term)
    if len(terms) == 1:
        result = g.identity(result)
    result.lengths = terms[0].lengths
    return result


# ------------------------------------------------------------------------------------------------- one operand, numbers
def number_of(g: OnnxGraph, tensor: OnnxTensor, ndim: int = 0) -> OnnxTensor:
    """Reshape a one-element tensor to at most `ndim` dimensions, so that it broadcasts with everything."""
    return tensor if tensor.ndim <= ndim else g.reshape(tensor, [1] * ndim)


def times(g: OnnxGraph, x: OnnxTensor, factor: float) -> OnnxTensor:
    return x if factor == 1 else g.unary("Neg", x) if factor == -1 else g.binary("Mul", x, g.number(factor, x))


def plus(g: OnnxGraph, x: OnnxTensor, term: float) -> OnnxTensor:
    return x if term == 0 else g.binary("Add", x, g.number(term, x))


@exports("scale")
def scale(
    g: OnnxGraph, X: OnnxTensor, ScaleTensor: OnnxTensor | None, scale: float, bias: float, bias_after_scale: bool
) -> OnnxTensor:
    if X.dtype is VarType.BOOL:
        raise NotExported("truth values as numbers")
    x = X if bias_after_scale else plus(g, X, bias)
    if ScaleTensor is None:
        x = times(g, x, scale)
    else:
        x = g.binary("Mul", x, g.cast(number_of(g, ScaleTensor), x.dtype))
    x = plus(g, x, bias) if bias_after_scale else x
    return g.identity(X) if x is X else x


@exports("cast")
def cast(g: OnnxGraph, X: OnnxTensor, out_dtype: int) -> OnnxTensor:
    return g.identity(X) if X.dtype is as_dtype(out_dtype) else g.cast(X, as_dtype(out_dtype))


@exports("clip")
def clip(g: OnnxGraph, X: OnnxTensor, Min: OnnxTensor | None, Max: OnnxTensor | None, min: float, max: float) -> OnnxTensor:
    low = g.number(min, X) if Min is None else number_of(g, Min)
    high = g.number(max, X) if Max is None else number_of(g, Max)
    return g.binary("Min", g.binary("Max", X, low), high)


@exports("pow")
def pow_(g: OnnxGraph, X: OnnxTensor, FactorTensor: OnnxTensor | None, factor: float) -> OnnxTensor:
    if FactorTensor is not None:
        return g.binary("Pow", X, number_of(g, FactorTensor))
    if factor == 2.0:
        return g.binary("Mul", X, X)
    if factor == 0.5:
        return g.unary("Sqrt", X)
    return g.binary("Pow", X, g.number(factor, X))


@exports("where")
def where(g: OnnxGraph, f: Any, Condition: OnnxTensor, X: OnnxTensor | None, Y: OnnxTensor | None) -> Any:
    if X is None or Y is None:
        return f.where_index(Condition)
    return g.where(Condition, X, Y)


# --------------------------------------------------------------------------------------------- broadcasting and its sums
@exports("sum_to")
def sum_to(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, axis: int) -> OnnxTensor:
    if X.sizes == Like.sizes and -1 not in X.sizes:
        return X
    ndim = X.ndim
    if ndim < Like.ndim:
        return g.reshape_as(X, Like)
    small = aligned(Like.sizes, ndim, axis)
    sure = [place for place, (a, b) in enumerate(zip(small, X.sizes, strict=True)) if a == 1 and b != 1]
    doubtful = any(a != b and a != 1 and not is_number(a) for a, b in zip(small, X.sizes, strict=True))
    doubtful = doubtful or any(a == -1 for a in small)
    if X.dtype is VarType.BOOL:
        raise NotExported("sums of truth values")
    if not doubtful:
        reduced = g.reduce("ReduceSum", X, sure, keep=True) if sure else X
        return reduced if reduced.sizes == Like.sizes else g.reshape_as(reduced, Like)
    # Which dimensions are broadcast is known only at run time: those whose sizes differ.
    like = g.dims(Like)
    start = ndim - Like.ndim if axis == -1 or Like.ndim == ndim else axis
    like_ndim = min(Like.ndim, ndim - start)
    if like_ndim < Like.ndim:
        like = g.slice(like, [0], [0], [like_ndim])
    like = g.concat(
        [part for part in (g.ints(*[1] * start), like, g.ints(*[1] * (ndim - start - like_ndim))) if part.shape[0]], 0
    )
    differ = g.differ(g.dims(X), like)
    axes = g.squeeze(g.sized_node("NonZero", [differ], VarType.INT64, (1, -1)), 0)
    summed = g.sized_node("ReduceSum", [X, axes], X.dtype, (-1,) * ndim, keepdims=1, noop_with_empty_axes=1)
    return g.reshape_as(summed, Like)


@exports("expand_to")
def expand_to(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, axis: int) -> OnnxTensor:
    return g.expand_as(align(g, X, Like.ndim, axis), Like)


# -------------------------------------------------------------------------------------------------------------- tests
@exports("isfinite_v2")
def _is_finite(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.unary("Not", g.binary("Or", _is_inf(g, X), is_nan(g, X)))


def _floats(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    return x if x.is_floating else g.cast(x, VarType.FP32)


@exports("isinf_v2")
def _is_inf(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    x = _floats(g, X)
    return g.binary("Equal", g.unary("Abs", x), g.number(math.inf, x))


@exports("isnan_v2")
def is_nan(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    x = _floats(g, X)
    return g.sized_node("IsNaN", [x], VarType.BOOL, x.sizes)


def _any(g: OnnxGraph, flags: OnnxTensor, every: bool = False) -> OnnxTensor:
    """Whether any (or every) flag is set, as one bool of shape [1]."""
    numbers = g.reshape(g.cast(flags, VarType.INT32), [-1])
    if every:
        least = g.reduce("ReduceMin", g.concat([numbers, g.constant([1], VarType.INT32)], 0), [0], keep=True)
        return g.cast(least, VarType.BOOL)
    most = g.reduce("ReduceMax", g.concat([numbers, g.constant([0], VarType.INT32)], 0), [0], keep=True)
    return g.cast(most, VarType.BOOL)


@exports("is_empty")
def is_empty(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    count = g.as_size(g.product_of(g.sizes_of(X)))
    return g.binary("Equal", count, g.ints(0))


# ------------------------------------------------------------------------------------------------------ ops of Paddle 2.x
def _bitwise(op: str) -> Callable[..., OnnxTensor]:
    def of_bits(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor | None = None) -> OnnxTensor:
        if X.dtype is not VarType.BOOL and g.opset < 18:
            raise NotExported("bits of integers, before opset 18")
        name = op if X.dtype is VarType.BOOL else f"Bitwise{op}"
        return g.unary(name, X) if Y is None else g.binary(name, X, Y)

    return of_bits


for _type, _op in {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor", "bitwise_not": "Not"}.items():
    exports(_type)(_bitwise(_op))


def _number_of_two(op: str) -> Callable[..., OnnxTensor]:
    """The larger or smaller of two numbers; if one is NaN, the other."""

    def of_two(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor) -> OnnxTensor:
        result = g.binary(op, X, Y)
        if not X.is_floating:
            return result
        return g.where(is_nan(g, X), Y, g.where(is_nan(g, Y), X, result))

    return of_two


exports("elementwise_fmax")(_number_of_two("Max"))
exports("elementwise_fmin")(_number_of_two("Min"))


@exports("elementwise_heaviside")
def elementwise_heaviside(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor) -> OnnxTensor:
    is_zero = g.binary("Equal", X, g.number(0, X))
    step = g.cast(g.binary("Greater", X, g.number(0, X)), X.dtype)
    return g.where(is_zero, Y, g.where(is_nan(g, X), X, step) if X.is_floating else step)


def _below_zero(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    """Whether numbers are below 0, or are negative zero."""
    is_zero = g.binary("Equal", x, g.number(0, x))
    # The reciprocal of negative zero is minus infinity.
    return g.binary("Less", g.where(is_zero, g.unary("Reciprocal", x), x), g.number(0, x))


@exports("atan2")
def atan2(g: OnnxGraph, X1: OnnxTensor, X2: OnnxTensor) -> OnnxTensor:
    """The arc tangent of the smaller coordinate over the larger one, moved to the octant that the signs tell."""
    y, x = (coordinate if coordinate.is_floating else g.cast(coordinate, VarType.FP64) for coordinate in (X1, X2))
    behind, below = _below_zero(g, x), _below_zero(g, y)
    wide, high = g.unary("Abs", x), g.unary("Abs", y)
    steep = g.binary("Greater", high, wide)
    larger, smaller = g.where(steep, high, wide), g.where(steep, wide, high)
    same = g.binary("Equal", larger, smaller)  # both may be infinite, or 0
    is_zero = g.binary("Equal", larger, g.number(0, x))
    ratio = g.binary("Div", smaller, g.where(is_zero, g.number(1, x), larger))
    ratio = g.where(is_zero, smaller, g.where(same, g.number(1, x), ratio))
    angle = g.cast(g.unary("Atan", ratio), x.dtype)
    angle = g.where(steep, g.binary("Sub", g.number(math.pi / 2, x), angle), angle)
    angle = g.where(behind, g.binary("Sub", g.number(math.pi, x), angle), angle)
    angle = g.where(below, g.unary("Neg", angle), angle)
    return g.where(g.binary("Or", is_nan(g, x), is_nan(g, y)), g.number(math.nan, x), angle)


@exports("trunc")
def trunc(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.binary("Mul", g.unary("Sign", X), g.unary("Floor", g.unary("Abs", X))) if X.is_floating else g.identity(X)


@exports("equal_all")
def equal_all(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor) -> OnnxTensor:
    if X.ndim != Y.ndim or any(is_number(a) and is_number(b) and a != b for a, b in zip(X.sizes, Y.sizes, strict=True)):
        return g.constant([False])
    if X.sizes != Y.sizes or -1 in X.sizes:
        raise NotExported("whether shapes are equal that are known only at run time")
    return _any(g, g.binary("Equal", X, Y), every=True)
