"""Ops that reduce dimensions: sums, means, extrema, products, positions.

A reduction over all dimensions has shape ``[1]`` as in Fluid, or ``[]`` if the output is declared so, as in Paddle 2.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.composition import means
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, Attr, ShapeOnly, define, ints, least, like, longs, required
from ..values.spec import Spec
from ..values.types import VarType, as_dtype, is_floating
from .formulas import at_least, choose, number_like
from .shapes import broadcast, check_types_agree, different_axes, normalize_axis, not_of_nothing, reduced, scalar_shape


# ----------------------------------------------------------------------------------------------------------- inference
def reduces_all(ndim: int, dim: Sequence[int], reduce_all: bool) -> bool:
    """Whether a reduction with these attributes is over all of `ndim` dimensions."""
    return reduce_all or not dim or len({axis % max(ndim, 1) for axis in dim}) >= ndim


def reduced_axes(ndim: int, dim: Sequence[int], reduce_all: bool) -> tuple[int, ...]:
    """The dimensions that attributes `dim` and `reduce_all` name, in order."""
    return tuple(range(ndim)) if reduces_all(ndim, dim, reduce_all) else tuple(sorted({axis % ndim for axis in dim}))


def _one(X: Spec, declared: Mapping[str, Spec]) -> Spec:
    return replace(X.with_shape(scalar_shape(declared)), type=VarType.LOD_TENSOR)


def _reduced(X: Spec, dim: list[int], keep_dim: bool, reduce_all: bool, declared: Mapping[str, Spec]) -> Spec:
    different_axes("dim", dim, max(X.ndim, 1))
    if reduces_all(X.ndim, dim, reduce_all):
        return X.with_shape((1,) * X.ndim) if keep_dim else _one(X, declared)
    return X.with_shape(reduced(X.shape, dim, keep_dim))


def _reduce(X: Spec, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int, declared: Mapping[str, Spec]) -> Spec:
    out = _reduced(X, dim, keep_dim, reduce_all, declared)
    if out_dtype == VarType.BOOL:
        raise InferenceError(f"out_dtype {out_dtype} (bool) should be an element type of numbers")
    return out if out_dtype < 0 else out.with_dtype(as_dtype(out_dtype))


def _summed(X: Spec, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int, declared: Mapping[str, Spec]) -> Spec:
    """The spec of a sum. Bools are counted as int64; int32 gives the int64 that Paddle 2.x declares, or Fluid 1.x's int32."""
    out = _reduce(X, dim, keep_dim, reduce_all, out_dtype, declared)
    widened = VarType.BOOL if declared.get("Out") is None or declared["Out"].dtype is not VarType.INT64 else VarType.INT32
    return out.with_dtype(VarType.INT64) if out_dtype < 0 and X.dtype in (VarType.BOOL, widened) else out


def _extreme(X: Spec, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int, declared: Mapping[str, Spec]) -> Spec:
    out = _reduce(X, dim, keep_dim, reduce_all, out_dtype, declared)
    not_of_nothing("an extremum", X.shape, reduced_axes(X.ndim, dim, reduce_all))
    return out


def _test(
    X: Spec,
    AxisTensor: Spec | None,
    AxisTensorList: Sequence[Spec] | None,
    dim: list[int],
    keep_dim: bool,
    reduce_all: bool,
    declared: Mapping[str, Spec],
) -> Spec:
    if is_floating(X.dtype):
        raise ElementTypeError(f"X is {X}; it should be of bools or integers")
    X = X.with_dtype(VarType.BOOL)
    if AxisTensor is not None or AxisTensorList:
        count = len(AxisTensorList) if AxisTensorList else prod(AxisTensor.shape if AxisTensor is not None else ())
        return X.with_shape((-1,) * (X.ndim if keep_dim else max(X.ndim - count, 0)))
    return _reduced(X, dim, keep_dim, reduce_all, declared)


def _expand_reduced(X: Spec, Like: Spec, dim: list[int], keep_dim: bool, reduce_all: bool) -> Spec:
    if not reduces_all(Like.ndim, dim, reduce_all):
        shape = reduced(Like.shape, dim, keep_dim)
        if len(shape) != X.ndim:
            raise InferenceError(f"X of shape {list(X.shape)} is not what {list(Like.shape)} reduces to over {dim}")
        broadcast(X.shape, shape)
    elif X.size not in (1, -1):
        raise InferenceError(f"X {X} should be the one number that {list(Like.shape)} reduces to")
    return X.with_shape(Like.shape)


def _position(X: Spec, axis: int, keepdims: bool, flatten: bool, dtype: int, declared: Mapping[str, Spec]) -> Spec:
    element = VarType.INT64 if dtype < 0 else as_dtype(dtype)
    if flatten or X.ndim < 2:
        normalize_axis(0 if flatten else axis, max(X.ndim, 1))
        not_of_nothing("an extremum", X.shape, range(X.ndim))
        return (X.with_shape((1,) * X.ndim) if keepdims else _one(X, declared)).with_dtype(element)
    not_of_nothing("an extremum", X.shape, [normalize_axis(axis, X.ndim)])
    return X.with_shape(reduced(X.shape, [axis], keepdims)).with_dtype(element)


def _cumsum(X: Spec, axis: int, flatten: bool) -> Spec:
    if flatten:
        return X.with_shape((X.size,))
    normalize_axis(axis, X.ndim)
    return X


# ------------------------------------------------------------------------------------------------------------ reductions
def _define(
    op_type: str, infer: Callable[..., Spec] = _reduce, takes: str = "", dim: Attr | None = None, **how: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Define a reduction over the dimensions `dim`; `takes` follows X in the signature."""
    signature = f"{op_type}(X{takes}) -> Out"
    return define(
        signature,
        infer=infer,
        dim=ints(0) if dim is None else dim,
        keep_dim=False,
        reduce_all=False,
        in_dtype=-1,
        out_dtype=-1,
        **how,
    )


def _back(f: Any, reduced: Any, X: Any, dim: list[int], keep_dim: bool, reduce_all: bool, average: bool = False) -> Any:
    """`reduced` broadcast to the shape of X, with the dtype of X."""
    expanded = f.expand_reduced(reduced, X, dim=dim, keep_dim=keep_dim, reduce_all=reduce_all, average=average)
    return expanded if expanded.dtype is X.dtype else expanded.astype(X.dtype)


@_define("reduce_sum", infer=_summed)
def reduce_sum(f: Any, X: ShapeOnly, dOut: Any, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """The sum of X over the dimensions `dim`, or over all; `keep_dim` keeps them with size 1. Bools are counted, as int64."""
    return {"X": _back(f, dOut, X, dim, keep_dim, reduce_all)}


@_define("reduce_mean")
def reduce_mean(f: Any, X: ShapeOnly, dOut: Any, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """The mean of X over the dimensions `dim`, or over all; `keep_dim` keeps them with size 1."""
    return {"X": _back(f, dOut, X, dim, keep_dim, reduce_all, average=True)}


def _extremum(f: Any, X: Any, Out: Any, dOut: Any, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    reached = f.equal(X, _back(f, Out, X, dim, keep_dim, reduce_all))
    return {"X": _back(f, dOut, X, dim, keep_dim, reduce_all) * reached.astype(X.dtype)}


@_define("reduce_max", infer=_extreme)
def reduce_max(f: Any, X: Any, Out: Any, dOut: Any, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """The largest element of X over the dimensions `dim`, or over all. Every element that equals it gets the whole gradient."""
    return _extremum(f, X, Out, dOut, dim, keep_dim, reduce_all)


@_define("reduce_min", infer=_extreme)
def reduce_min(f: Any, X: Any, Out: Any, dOut: Any, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """The smallest element of X over the dimensions `dim`, or over all. Every element that equals it gets the whole gradient."""
    return _extremum(f, X, Out, dOut, dim, keep_dim, reduce_all)


def _product_of_others(f: Any, X: Any, axis: int) -> Any:
    """For each element of X, the product of the others along `axis`.

    It multiplies a copy of the elements for each one, with 1 in its place. There is no division, so that zeros are no problem
    in derivatives of any order.
    """
    number = f.cumsum(f.fill_any_like(X, value=1.0), axis=axis)
    is_left_out = f.equal(f.unsqueeze2(number, axes=[axis + 1]), f.unsqueeze2(number, axes=[axis]))
    ones = f.fill_any_like(is_left_out.astype(X.dtype), value=1.0)
    return f.reduce_prod(f.where(is_left_out, ones, ones * f.unsqueeze2(X, axes=[axis])), dim=[axis + 1])


@_define("reduce_prod")
def reduce_prod(f: Any, X: Any, Out: ShapeOnly, dOut: Any, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """The product of X over the dimensions `dim`, or over all. The gradient of a factor is the product of the others."""

    gradient = _back(f, dOut, X, dim, keep_dim, reduce_all)
    everything = reduces_all(X.ndim, dim, reduce_all)
    axes = range(X.ndim) if everything else sorted({normalize_axis(axis, X.ndim) for axis in dim})
    products = X
    for axis in reversed(axes):  # the products over one dimension are the factors of the next
        gradient = gradient * _product_of_others(f, products, axis)
        if axis != axes[0]:
            products = f.reduce_prod(products, dim=[axis], keep_dim=True)
    return {"X": gradient}


def _evenly(f: Any, X: Any, Out: Any, dOut: Any, **attrs: Any) -> Any:
    reached = f.equal(X, _back(f, Out, X, **attrs)).astype(X.dtype)
    share = f.sum_to(dOut / f.sum_to(f.reduce_sum(reached, **attrs), Out), Out)
    return {"X": _back(f, share, X, **attrs) * reached}


def _define_even(op_type: str, of: str) -> Callable[[Callable[..., Any]], Any]:
    """Define an op that computes another reduction, and has another gradient."""

    def result(f: Any, X: Any, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
        return getattr(f, of)(X, dim=dim, keep_dim=keep_dim, reduce_all=reduce_all)

    return _define(op_type, _extreme, dim=longs(0), composition=means(result))


@_define_even("reduce_amax", "reduce_max")
def reduce_amax(f: Any, X: Any, Out: Any, dOut: Any, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """As `reduce_max`, but equal elements share the gradient evenly."""
    return _evenly(f, X, Out, dOut, dim=dim, keep_dim=keep_dim, reduce_all=reduce_all)


@_define_even("reduce_amin", "reduce_min")
def reduce_amin(f: Any, X: Any, Out: Any, dOut: Any, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """As `reduce_min`, but equal elements share the gradient evenly."""
    return _evenly(f, X, Out, dOut, dim=dim, keep_dim=keep_dim, reduce_all=reduce_all)


def _logsumexp(X: Spec, axis: list[int], keepdim: bool, reduce_all: bool, declared: Mapping[str, Spec]) -> Spec:
    return _reduced(X, axis, keepdim, reduce_all, declared)


def _log_of_sum(f: Any, X: Any, axis: list[int], keepdim: bool, reduce_all: bool) -> Any:
    axes = list(reduced_axes(X.ndim, axis, reduce_all))
    if 0 in [X.shape[number] for number in axes]:  # the logarithm of an empty sum
        return f.log(f.reduce_sum(X, dim=axes, keep_dim=keepdim))
    top = f.reduce_max(X, dim=axes, keep_dim=True)
    top = choose(f, f.abs(top) < inf, top, 0.0)
    logs = f.log(f.reduce_sum(f.exp(X - top), dim=axes, keep_dim=True)) + top
    return logs if keepdim else f.squeeze2(logs, axes=axes)


@define("logsumexp(X: float) -> Out", infer=_logsumexp, axis=ints(0), keepdim=False, reduce_all=False, meaning=means(_log_of_sum))
def logsumexp(f: Any, X: Any, Out: Any, dOut: Any, axis: list[int], keepdim: bool, reduce_all: bool) -> Any:
    """``log(sum(exp(X)))`` over the dimensions `axis`, or over all; without overflow."""
    attrs: dict[str, Any] = {"dim": axis, "keep_dim": keepdim, "reduce_all": reduce_all}
    return {"X": _back(f, dOut, X, **attrs) * f.exp(X - _back(f, Out, X, **attrs))}


# ----------------------------------------------------------------------------------------------------------------- norms
def _or_one(f: Any, value: Any) -> Any:
    """`value` with 1 in place of 0."""
    return value + f.equal(value, f.fill_zeros_like(value)).astype(value.dtype)


def _slope(f: Any, X: Any, norm: Any, order: float) -> Any:
    """The gradient of the norm of order `order` with respect to X; 0 where X or the norm is 0. `norm` has the shape of X."""
    if order == 0.0:
        return f.fill_zeros_like(X)
    if order == 1.0:
        return f.sign(X)
    if order == 2.0:
        return X / _or_one(f, norm)
    size = f.abs(X)
    if abs(order) == inf:
        return f.sign(X) * f.equal(size, norm).astype(X.dtype)
    return f.sign(X) * (_or_one(f, size) / _or_one(f, norm)) ** (order - 1.0)


def _norm_over(f: Any, x: Any, order: float, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """The norm of x over dimensions."""
    attrs: dict[str, Any] = {"dim": dim, "keep_dim": keep_dim, "reduce_all": reduce_all}
    if order == 2.0:
        return f.sqrt(f.reduce_sum(f.square(x), **attrs))
    if order == 0.0:
        return f.reduce_sum(f.not_equal(x, number_like(f, x, 0.0)).astype(x.dtype), **attrs)
    size = f.abs(x)
    if abs(order) == inf:
        return (f.reduce_max if order > 0 else f.reduce_min)(size, **attrs)
    return f.reduce_sum(size, **attrs) if order == 1.0 else f.reduce_sum(size**order, **attrs) ** (1.0 / order)


@_define(
    "frobenius_norm",
    takes=": float",
    meaning=means(lambda f, X, dim, keep_dim, reduce_all: _norm_over(f, X, 2.0, dim, keep_dim, reduce_all)),
)
def frobenius_norm(f: Any, X: Any, Out: Any, dOut: Any, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """The square root of the sum of squares over the dimensions `dim`, or over all; its gradient at 0 is 0."""
    attrs: dict[str, Any] = {"dim": dim, "keep_dim": keep_dim, "reduce_all": reduce_all}
    return {"X": _back(f, dOut, X, **attrs) * _slope(f, X, _back(f, Out, X, **attrs), 2.0)}


def _p_norm(X: Spec, porder: float, axis: int, keepdim: bool, asvector: bool, declared: Mapping[str, Spec]) -> Spec:
    if abs(porder) == inf:
        return _extreme(X, [axis], keepdim, asvector, -1, declared)
    return _reduced(X, [axis], keepdim, asvector, declared)


@define(
    "p_norm(X: float) -> Out",
    infer=_p_norm,
    porder=2.0,
    axis=-1,
    epsilon=1e-12,
    keepdim=False,
    asvector=False,
    composition=means(lambda f, X, porder, axis, keepdim, asvector: _norm_over(f, X, porder, [axis], keepdim, asvector)),
)
def p_norm(f: Any, X: Any, Out: Any, dOut: Any, porder: float, axis: int, keepdim: bool, asvector: bool) -> Any:
    """``sum(abs(X) ** porder) ** (1 / porder)`` along `axis`, or of all elements with `asvector`.

    Order 0 counts the nonzero elements; infinity and minus infinity are the largest and the smallest absolute value. The
    gradient at 0 is 0.
    """
    attrs: dict[str, Any] = {"dim": [axis], "keep_dim": keepdim, "reduce_all": asvector}
    return {"X": _back(f, dOut, X, **attrs) * _slope(f, X, _back(f, Out, X, **attrs), porder)}


def _dist(X: Spec, Y: Spec, p: float, declared: Mapping[str, Spec]) -> Spec:
    check_types_agree({"X": X, "Y": Y})
    shape = broadcast(X.shape, Y.shape)
    if abs(p) == inf:
        not_of_nothing("an extremum", shape, range(len(shape)))
    return _one(X, declared)


@define(
    "dist(X: float, Y: float) -> Out",
    infer=_dist,
    p=2.0,
    composition=means(lambda f, X, Y, p: _norm_over(f, X - Y, p, [], False, True)),
)
def dist(f: Any, X: Any, Y: Any, Out: Any, dOut: Any, p: float) -> Any:
    """The norm of order `p` of ``X - Y``, as in `p_norm`; X and Y broadcast."""
    apart = X - Y
    full_out = f.expand_reduced(Out, apart, reduce_all=True)
    slope = f.expand_reduced(dOut, apart, reduce_all=True) * _slope(f, apart, full_out, p)
    return {"X": lambda: f.sum_to(slope, X), "Y": lambda: -f.sum_to(slope, Y)}


def _norm(X: Spec, axis: int, epsilon: float) -> tuple[Spec, Spec]:
    return X, X.with_shape(reduced(X.shape, [axis], True))


def _unit_and_norm(f: Any, X: Any, axis: int, epsilon: float) -> Any:
    size = f.sqrt(f.reduce_sum(f.square(X), dim=[axis], keep_dim=True) + epsilon)
    return {"Out": X / size, "Norm": size}


@define(
    "norm(X: float) -> Out, Norm~",
    infer=_norm,
    axis=required("int"),
    epsilon=least(0, 1e-10),
    is_test=False,
    meaning=means(_unit_and_norm),
)
def norm(f: Any, X: Any, Norm: ShapeOnly, dOut: Any, axis: int, epsilon: float) -> Any:
    """X divided by ``Norm = sqrt(sum(X * X) + epsilon)`` along `axis`."""
    size = (f.reduce_sum(X * X, dim=[axis], keep_dim=True) + epsilon) ** 0.5
    unit = X / size
    return {"X": (dOut - unit * f.reduce_sum(dOut * unit, dim=[axis], keep_dim=True)) / size}


@define("l1_norm(X: int|float) -> Out", infer=_one, composition=means(lambda f, X: f.reduce_sum(f.abs(X), reduce_all=True)))
def l1_norm(f: Any, X: Any, dOut: Any) -> Any:
    """The sum of the absolute values of all elements, as a tensor of one element."""
    return {"X": f.expand_reduced(dOut, X, reduce_all=True) * f.sign(X)}


def _clipped_by_norm(f: Any, X: Any, max_norm: float) -> Any:
    size = f.sqrt(f.reduce_sum(f.square(X), reduce_all=True))
    return X * (number_like(f, X, max_norm) / at_least(f, size, max_norm))


@define(
    "clip_by_norm(X: float) -> Out",
    infer=like("X"),
    grad=NOT_DIFFERENTIABLE,
    max_norm=least(0, required("float")),
    meaning=means(_clipped_by_norm),
)
def clip_by_norm() -> None:
    """X, scaled down to the Euclidean norm `max_norm` if its norm is larger."""


# ------------------------------------------------------------------------------------------------------------- tests
_TEST: dict[str, Any] = {"takes": ", AxisTensor?, AxisTensorList*?", "dim": longs(0), "grad": ZERO_GRADIENT}


@_define("reduce_all", _test, **_TEST)
def reduce_all() -> None:
    """Whether all elements of X, bools or integers, over the dimensions `dim`, or over all, are true, or not 0."""


@_define("reduce_any", _test, **_TEST)
def reduce_any() -> None:
    """Whether any element of X, bools or integers, over the dimensions `dim`, or over all, is true, or not 0."""


@define("mean(X) -> Out", infer=_one, composition=means(lambda f, X: f.reduce_mean(X, reduce_all=True)))
def mean(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """The mean of all elements, as a tensor of one element."""
    return {"X": f.expand_reduced(dOut, X, reduce_all=True, average=True)}


@define("squared_l2_norm(X) -> Out", infer=_one, meaning=means(lambda f, X: f.reduce_sum(f.square(X), reduce_all=True)))
def squared_l2_norm(f: Any, X: Any, dOut: Any) -> Any:
    """The sum of the squares of all elements, as a tensor of one element."""
    return {"X": f.expand_reduced(dOut, X, reduce_all=True) * X * 2.0}


@define(
    "expand_reduced(X, Like) -> Out",
    infer=_expand_reduced,
    shape_only=["Like"],
    wrt=["X"],
    dim=ints(0),
    keep_dim=False,
    reduce_all=False,
    average=False,
)
def expand_reduced(
    f: Any, X: ShapeOnly, Like: ShapeOnly, dOut: Any, dim: list[int], keep_dim: bool, reduce_all: bool, average: bool
) -> Any:
    """X, of the shape of `Like` reduced, broadcast to the shape of `Like`; `average` divides by the number of copies."""
    reduce = f.reduce_mean if average else f.reduce_sum
    gradient = reduce(dOut, dim=dim, keep_dim=keep_dim, reduce_all=reduce_all)
    everything = reduces_all(Like.ndim, dim, reduce_all)  # type: ignore[attr-defined]
    return {"X": f.sum_to(gradient, X) if everything else gradient}  # [1] or [], as X


def _define_position(op_type: str) -> Callable[[Callable[..., Any]], Any]:
    return define(
        f"{op_type}(X) -> Out",
        infer=_position,
        grad=ZERO_GRADIENT,
        axis=required("long"),
        keepdims=False,
        flatten=False,
        dtype=Attr("int", int(VarType.INT64), choices=(int(VarType.INT64), int(VarType.INT32), -1)),  # -1 in files of Paddle 1.7
    )


@_define_position("arg_max")
def arg_max() -> None:
    """The index of the largest element along `axis`, the first of equals; over all elements with `flatten`."""


@_define_position("arg_min")
def arg_min() -> None:
    """The index of the smallest element along `axis`, the first of equals; over all elements with `flatten`."""


@define("cumsum(X) -> Out", infer=_cumsum, axis=-1, flatten=False, exclusive=False, reverse=False)
def cumsum(f: Any, X: ShapeOnly, dOut: Any, axis: int, flatten: bool, exclusive: bool, reverse: bool) -> Any:
    """Cumulative sums along `axis`.

    Args:
        X: a tensor.
        axis: the dimension; negative ones count from the end.
        flatten: whether to sum over all elements as one vector.
        exclusive: whether sums leave the element itself out, and begin with 0.
        reverse: whether to sum from the end.
    """
    gradient = f.cumsum(dOut, axis=0 if flatten else axis, exclusive=exclusive, reverse=not reverse)
    return {"X": f.reshape_like(gradient, X) if flatten else gradient}
