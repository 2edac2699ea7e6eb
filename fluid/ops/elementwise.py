"""Elementwise ops on two or more tensors, and the simplest ones on one tensor.

In Fluid the smaller operand of a binary op may be aligned with any consecutive dimensions of the larger one: the attribute
``axis`` is the position of its first dimension, -1 aligns the last ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.composition import means
from ..opdef.registry import EXPLICIT, ZERO_GRADIENT, ShapeOnly, define, required
from ..values.spec import Spec
from ..values.types import VarType, as_dtype, is_complex, is_floating
from .shapes import aligned, broadcast, check_types_agree, in_order, may_equal, one_number


# ----------------------------------------------------------------------------------------------------------- inference
def _same_dtype(X: Spec, Y: Spec) -> None:
    check_types_agree({"X": X, "Y": Y})


def _binary(X: Spec, Y: Spec, axis: int) -> Spec:
    _same_dtype(X, Y)
    return X.with_shape(broadcast(X.shape, Y.shape, axis))


def _comparison(X: Spec, Y: Spec, axis: int) -> Spec:
    return _binary(X, Y, axis).with_dtype(VarType.BOOL)


def _logical(X: Spec, Y: Spec) -> Spec:
    return Spec(broadcast(X.shape, Y.shape), VarType.BOOL)


def _bools(X: Spec) -> Spec:
    return X.with_dtype(VarType.BOOL)


def _one_bool() -> Spec:
    return Spec((1,), VarType.BOOL)


def _sum_to(X: Spec, Like: Spec, axis: int) -> Spec:
    if X.size != Like.size or X.size == -1:
        _check_expands(Like, X, axis)
    return X.with_shape(Like.shape)


def _expand_to(X: Spec, Like: Spec, axis: int) -> Spec:
    _check_expands(X, Like, axis)
    return X.with_shape(Like.shape)


def _check_expands(small: Spec, large: Spec, axis: int) -> None:
    """`InferenceError` unless a tensor broadcasts to the shape of another one."""
    fits = small.ndim <= large.ndim and all(
        a in (1, -1, b) or b == -1 for a, b in zip(aligned(small.shape, large.ndim, axis), large.shape, strict=True)
    )
    if not fits:
        raise InferenceError(
            f"shape {list(small.shape)} does not expand to {list(large.shape)} at axis {axis}; X and Like should fit"
        )


def merged(first: Spec, *terms: Spec) -> Spec:
    """The common spec of tensors that must have one shape and element type; `InferenceError` if two differ."""
    shape = first.shape
    for term in terms:
        if not may_equal(shape, term.shape):
            raise InferenceError(f"shapes {list(shape)} and {list(term.shape)} should be equal")
        _same_dtype(first, term)
        shape = tuple(max(pair) for pair in zip(shape, term.shape, strict=True))
    return first.with_shape(shape)


def _sum(X: Sequence[Spec]) -> Spec:
    terms = [x for x in X if x is not None]
    dense = next((x.type for x in terms if x.type is not VarType.SELECTED_ROWS), VarType.SELECTED_ROWS)
    return replace(merged(*terms), type=dense, lod=terms[0].lod)  # sparse only if every term is


def _where(Condition: Spec, X: Spec | None, Y: Spec | None) -> Spec:
    if Condition.dtype is not VarType.BOOL:
        raise ElementTypeError(f"Condition is {Condition}; it should be of bools")
    if X is None and Y is None:
        return Spec((-1, Condition.ndim), VarType.INT64)
    if X is None or Y is None:
        raise InferenceError("give both X and Y, or neither")
    return merged(X, Y, Condition.with_dtype(X.dtype))


def _scale(X: Spec, ScaleTensor: Spec | None, scale: float, bias: float) -> Spec:
    _check_fraction(X, "scale", scale if ScaleTensor is None else 1.0)
    _check_fraction(X, "bias", bias)
    return X


def _increment(X: Spec, step: float) -> Spec:
    _check_fraction(X, "step", step)
    return X


def _check_fraction(X: Spec, name: str, number: float) -> None:
    if not is_floating(X.dtype) and not float(number).is_integer():
        raise InferenceError(f"X is {X}, so the fraction of {name} {number} would be lost: cast X to float32 first")


def _cast(X: Spec, out_dtype: int) -> Spec:
    return X.with_dtype(as_dtype(out_dtype))


# ----------------------------------------------------------------------------------------------------------- arithmetic
@define("elementwise_add(X, Y) -> Out", infer=_binary, axis=-1)
def elementwise_add(f: Any, X: ShapeOnly, Y: ShapeOnly, dOut: Any, axis: int) -> Any:
    """``X + Y``; the smaller operand's first dimension is aligned with `axis` of the larger one; -1 aligns the last ones."""
    return {"X": lambda: f.sum_to(dOut, X, axis=axis), "Y": lambda: f.sum_to(dOut, Y, axis=axis)}


@define("elementwise_sub(X: int|float, Y: int|float) -> Out", infer=_binary, axis=-1)
def elementwise_sub(f: Any, X: ShapeOnly, Y: ShapeOnly, dOut: Any, axis: int) -> Any:
    """``X - Y``; operands are aligned as in `elementwise_add`."""
    return {"X": lambda: f.sum_to(dOut, X, axis=axis), "Y": lambda: -f.sum_to(dOut, Y, axis=axis)}


@define("elementwise_mul(X, Y) -> Out", infer=_binary, axis=-1)
def elementwise_mul(f: Any, X: Any, Y: Any, dOut: Any, axis: int) -> Any:
    """``X * Y``; operands are aligned as in `elementwise_add`."""
    return {
        "X": lambda: f.sum_to(f.elementwise_mul(dOut, Y, axis=axis), X, axis=axis),
        "Y": lambda: f.sum_to(f.elementwise_mul(dOut, X, axis=axis), Y, axis=axis),
    }


@define("elementwise_div(X: int|float, Y: int|float) -> Out", infer=_binary, axis=-1)
def elementwise_div(f: Any, X: ShapeOnly, Y: Any, Out: Any, dOut: Any, axis: int) -> Any:
    """``X / Y``, for integers rounded towards zero; operands are aligned as in `elementwise_add`."""
    return {
        "X": lambda: f.sum_to(f.elementwise_div(dOut, Y, axis=axis), X, axis=axis),
        "Y": lambda: -f.sum_to(f.elementwise_div(dOut * Out, Y, axis=axis), Y, axis=axis),
    }


def _choose(f: Any, X: Any, Y: Any, dOut: Any, axis: int, chosen: Any, unchosen: Any) -> Any:
    """The gradients of an op that picks X where ``chosen(X, Y)`` is true, and Y where ``unchosen(X, Y)`` is."""

    def part(holds: Any, like: Any) -> Any:
        return f.sum_to(dOut * holds(X, Y, axis=axis).astype(dOut.dtype), like, axis=axis)

    return {"X": lambda: part(chosen, X), "Y": lambda: part(unchosen, Y)}


@define("elementwise_max(X, Y) -> Out", infer=_binary, axis=-1)
def elementwise_max(f: Any, X: Any, Y: Any, dOut: Any, axis: int) -> Any:
    """The larger of X and Y, aligned as in `elementwise_add`. Where they are equal, the gradient goes to Y."""
    return _choose(f, X, Y, dOut, axis, f.greater_than, f.less_equal)


@define("elementwise_min(X, Y) -> Out", infer=_binary, axis=-1)
def elementwise_min(f: Any, X: Any, Y: Any, dOut: Any, axis: int) -> Any:
    """The smaller of X and Y, aligned as in `elementwise_add`. Where they are equal, the gradient goes to Y."""
    return _choose(f, X, Y, dOut, axis, f.less_than, f.greater_equal)


@define("elementwise_pow(X: int|float, Y: int|float) -> Out", infer=_binary, axis=-1)
def elementwise_pow(f: Any, X: Any, Y: Any, dOut: Any, axis: int) -> Any:
    """``X ** Y``; operands are aligned as in `elementwise_add`. With respect to Y, the gradient at ``X = 0`` is 0."""

    def by_base() -> Any:
        less = Y - 1.0 + _is_zero(f, Y)  # X ** 0 has no slope, also at 0, where X ** -1 is infinite
        slope = f.elementwise_mul(f.elementwise_pow(X, less, axis=axis), Y, axis=axis)
        return f.sum_to(dOut * slope, X, axis=axis)

    def by_exponent() -> Any:
        log = f.log(X + _is_zero(f, X))
        return f.sum_to(dOut * f.elementwise_mul(f.elementwise_pow(X, Y, axis=axis), log, axis=axis), Y, axis=axis)

    return {"X": by_base, "Y": by_exponent}


def _is_zero(f: Any, X: Any) -> Any:
    return f.equal(X, f.fill_zeros_like(X)).astype(X.dtype)


@define("elementwise_mod(X: int|real, Y: int|real) -> Out", infer=_binary, inline_grad=True, axis=-1)
def elementwise_mod(f: Any, X: Any, Y: Any, dOut: Any, axis: int) -> Any:
    """The remainder of ``X / Y``, with the sign of Y; operands are aligned as in `elementwise_add`.

    The gradient with respect to X is 1, and that with respect to Y minus the rounded quotient, also where the remainder jumps.
    """
    return {
        "X": lambda: f.sum_to(dOut, X, axis=axis),
        "Y": lambda: -f.sum_to(dOut * f.floor(f.elementwise_div(X, Y, axis=axis)), Y, axis=axis),
    }


@define("elementwise_floordiv(X: int|real, Y: int|real) -> Out", infer=_binary, grad=ZERO_GRADIENT, axis=-1)
def elementwise_floordiv() -> None:
    """The largest integer that is not above ``X / Y``; operands are aligned as in `elementwise_add`."""


@define(
    "minus(X: int|float, Y: int|float) -> Out",
    infer=lambda X, Y: merged(X, Y),
    inline_grad=True,
    meaning=means(lambda f, X, Y: X - Y),
)
def minus(f: Any, dOut: Any) -> Any:
    """``X - Y``, of one shape."""
    return {"X": lambda: f.scale(dOut, scale=1.0), "Y": lambda: f.scale(dOut, scale=-1.0)}


@define("sum_to(X, Like) -> Out", infer=_sum_to, shape_only=["Like"], wrt=["X"], axis=-1)
def sum_to(f: Any, X: ShapeOnly, dOut: Any, axis: int) -> Any:
    """X summed to the shape of `Like`, which broadcasts to X's shape: the transpose of broadcasting."""
    return {"X": f.expand_to(dOut, X, axis=axis)}


@define("expand_to(X, Like) -> Out", infer=_expand_to, shape_only=["Like"], wrt=["X"], axis=-1)
def expand_to(f: Any, X: ShapeOnly, dOut: Any, axis: int) -> Any:
    """X broadcast to the shape of `Like`, aligned as in `elementwise_add`."""
    return {"X": f.sum_to(dOut, X, axis=axis)}


@define("sum(X*) -> Out", infer=_sum, inline_grad=True, lod_aware=True)
def sum_(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """The sum of tensors of one shape, with the sequences of the first."""
    return {"X": lambda: [f.scale(dOut, scale=1.0) for _ in X]}  # type: ignore[attr-defined]


@define(
    "scale(X, ScaleTensor?: [one]) -> Out",
    infer=_scale,
    inline_grad=True,
    wrt=["X"],
    constants=["ScaleTensor"],
    scale=1.0,
    bias=0.0,
    bias_after_scale=True,
)
def scale(f: Any, ScaleTensor: Any, dOut: Any, scale: float) -> Any:
    """``X * scale + bias``, or ``(X + bias) * scale`` without `bias_after_scale`; `ScaleTensor`, if given, is the scale."""
    return {"X": f.scale(dOut, ScaleTensor, scale=scale)}


@define(
    "cast(X) -> Out", infer=_cast, inline_grad=True, complex_rule=EXPLICIT, in_dtype=required("int"), out_dtype=required("int")
)
def cast(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """X cast to the element type with the number `out_dtype`; `in_dtype` is X's."""
    dtype = X.dtype  # type: ignore[attr-defined]
    real = is_complex(dOut.dtype) and not is_complex(dtype)
    return {"X": (f.real(dOut) if real else dOut).astype(dtype)}


@define(
    "increment(X) -> Out",
    infer=_increment,
    inline_grad=True,
    step=1.0,
    meaning=means(lambda f, X, step: f.scale(X, bias=step)),
)
def increment(f: Any, dOut: Any) -> Any:
    """``X + step``, of one element."""
    return {"X": f.assign(dOut)}


def shaped_as(f: Any, X: Any, gradient: Any) -> Any:
    """`gradient` in the shape of X where that is [] and a number of shape [1] has entered into it."""
    return gradient if X.shape else f.reshape_like(gradient, X)


def _clip(X: Spec, Min: Spec | None, Max: Spec | None, min: float, max: float) -> Spec:
    for slot, spec in (("Min", Min), ("Max", Max)):
        one_number(slot, spec)
        if spec is not None and spec.dtype is not X.dtype:
            raise ElementTypeError(f"{slot} is {spec}; it should have the element type of X {X}")
    if Min is None and Max is None:
        in_order("min", min, "max", max)
    return X


@define(
    "clip(X: int|float, Min?, Max?) -> Out",
    infer=_clip,
    wrt=["X"],
    constants=["Min", "Max"],
    min=required("float"),
    max=required("float"),
)
def clip(f: Any, X: Any, Min: Any, Max: Any, dOut: Any, min: float, max: float) -> Any:
    """Each element of X clipped to ``[min, max]``; tensors `Min` and `Max`, if given, replace the attributes."""
    in_range = f.logical_and(X > (min if Min is None else Min), X < (max if Max is None else Max))
    return {"X": shaped_as(f, X, dOut * in_range.astype(dOut.dtype))}


def _pow(X: Spec, FactorTensor: Spec | None, factor: float) -> Spec:
    one_number("FactorTensor", FactorTensor)
    if FactorTensor is not None and FactorTensor.dtype is not X.dtype:
        raise ElementTypeError(f"FactorTensor is {FactorTensor}; it should have the element type of X {X}")
    if FactorTensor is None and not is_floating(X.dtype) and (factor < 0 or factor % 1):
        raise InferenceError(f"X is {X}, so factor {factor} should be an integer, not below 0: cast X to float32 first")
    return X


@define("pow(X: int|float, FactorTensor?) -> Out", infer=_pow, wrt=["X"], constants=["FactorTensor"], factor=1.0)
def pow_(f: Any, X: Any, FactorTensor: Any, dOut: Any, factor: float) -> Any:
    """``X ** factor``; a tensor `FactorTensor`, if given, replaces the attribute."""
    if FactorTensor is not None:
        return {"X": shaped_as(f, X, dOut * f.pow(X, FactorTensor - 1.0) * FactorTensor)}
    if factor == 0.0:
        return {"X": f.fill_zeros_like(dOut)}  # not 0 * X ** -1, which is NaN at 0
    return {"X": dOut * f.pow(X, factor=factor - 1.0) * factor}


def _lerp(X: Spec, Y: Spec, Weight: Spec) -> Spec:
    _same_dtype(X, Y)
    _same_dtype(X, Weight)
    return X.with_shape(broadcast(broadcast(X.shape, Y.shape), Weight.shape))


@define(
    "lerp(X: int|float, Y: int|float, Weight: int|float) -> Out",
    infer=_lerp,
    meaning=means(lambda f, X, Y, Weight: X + Weight * (Y - X)),
)
def lerp(f: Any, X: Any, Y: Any, Weight: Any, Out: ShapeOnly, dOut: Any) -> Any:
    """``X + Weight * (Y - X)``; all three broadcast."""
    return {
        "X": lambda: f.sum_to(dOut * (1.0 - Weight), X),
        "Y": lambda: f.sum_to(dOut * Weight, Y),
        "Weight": lambda: f.sum_to(dOut * (Y - X), Weight),
    }


def _position_encoding(X: Spec) -> Spec:
    rows = X.ndim == 2 and (X.lod or X.shape[0] == -1)
    if not (rows or X.ndim == 3) or (X.shape[-1] % 2 and X.shape[-1] != -1):
        raise InferenceError(
            f"add_position_encoding: X {X} should have shape [batch, length, width], or [rows, width] of sequences "
            "(lod_level=1), of an even width"
        )
    return X


@define("add_position_encoding(X: float) -> Out", infer=_position_encoding, alpha=1.0, beta=1.0)
def add_position_encoding(f: Any, dOut: Any, alpha: float) -> Any:
    """``alpha * X + beta * P`` of X [batch, length, width], where P[position, i] are waves of lengths from 2 pi to 20000 pi.

    With ``h = width / 2`` and ``a = position / 10000 ** (k / (h - 1))``, ``P[k] = sin(a)`` and ``P[h + k] = cos(a)``.
    X may also be the rows [rows, width] of sequences (of the last level). Each sequence begins at position 0.

    Formula: Vaswani et al., Attention Is All You Need, 2017.

    Args:
        X: ``[batch, length, width]``, or the rows ``[rows, width]`` of sequences; `width` is even.
        alpha: factor of X.
        beta: factor of the waves.
    """
    return {"X": dOut * alpha}


# -------------------------------------------------------------------------------------------------- comparison and logic
def _predicate(signature: str, infer: Any, doc: str, **attrs: Any) -> None:
    """Define an op whose result is bools."""

    def documented() -> None: ...

    documented.__doc__ = doc
    define(signature, infer=infer, grad=ZERO_GRADIENT, **attrs)(documented)


def _of_all(test: str) -> Callable[..., Any]:
    """The formula of a test of all elements by the test of each."""

    def formula(f: Any, X: Any) -> Any:
        passed = getattr(f, f"{test}_v2")(X)
        reduce = f.reduce_all if test == "isfinite" else f.reduce_any
        return f.reshape(reduce(passed, reduce_all=True), shape=[1])

    return formula


for _name, _doc in {
    "less_than": "X < Y",
    "less_equal": "X <= Y",
    "greater_than": "X > Y",
    "greater_equal": "X >= Y",
    "equal": "X == Y",
    "not_equal": "X != Y",
}.items():
    _doc = f"``{_doc}``, as bools; operands are aligned as in `elementwise_add`."
    _predicate(f"{_name}(X, Y) -> Out", _comparison, _doc, axis=-1, force_cpu=False)
for _name, _doc in {"and": "X and Y", "or": "X or Y", "xor": "X or Y, but not both"}.items():
    _predicate(f"logical_{_name}(X, Y) -> Out", _logical, f"``{_doc}``, as bools; what is not zero counts as true.")
_predicate("is_empty(X) -> Out", _one_bool, "Whether X has no elements: one bool.", shape_only=["X"])
_predicate("logical_not(X) -> Out", _bools, "``not X``, as bools; what is not zero counts as true.")
for _name, _doc in {"isfinite": "is finite", "isinf": "is infinite", "isnan": "is not a number"}.items():
    _predicate(f"{_name}_v2(X) -> Out", _bools, f"Whether each element of X {_doc}, as bools.")
    _every = "every" if _name == "isfinite" else "any"
    _predicate(f"{_name}(X) -> Out", _one_bool, f"Whether {_every} element of X {_doc}: one bool.", meaning=means(_of_all(_name)))


@define("where(Condition: bool, X?, Y?) -> Out", infer=_where, wrt=["X", "Y"])
def where(f: Any, Condition: Any, X: ShapeOnly, Y: ShapeOnly, dOut: Any) -> Any:
    """X where `Condition` holds, Y elsewhere; all of one shape. Without X and Y, as in Paddle 1.x, it is `where_index`."""
    return {
        "X": lambda: f.where(Condition, dOut, f.fill_zeros_like(dOut)),
        "Y": lambda: f.where(Condition, f.fill_zeros_like(dOut), dOut),
    }
