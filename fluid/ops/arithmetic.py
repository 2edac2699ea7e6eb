"""Elementwise ops of Paddle 2.x on two tensors, bits and closeness included. Operands broadcast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import means
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, ShapeOnly, define, like
from ..values.spec import Spec
from ..values.types import VarType, is_floating
from .formulas import number_like
from .shapes import broadcast, check_types_agree, fits, since_2


def _pair(x: Spec, y: Spec, names: str = "X and Y", axis: int = -1) -> Spec:
    check_types_agree(dict(zip(names.split(" and "), (x, y), strict=True)))
    return x.with_shape(broadcast(x.shape, y.shape, axis))


# ------------------------------------------------------------------------------------------------------------------ bits
def _bitwise(name: str, doc: str) -> None:
    def documented() -> None: ...

    documented.__doc__ = doc
    define(f"bitwise_{name}(X: int|bool, Y: int|bool) -> Out", infer=lambda X, Y: _pair(X, Y), grad=ZERO_GRADIENT)(documented)


_bitwise("and", "The bits that are set in X and in Y.")
_bitwise("or", "The bits that are set in X or in Y.")
_bitwise("xor", "The bits that are set in X or in Y, but not in both.")


@define("bitwise_not(X: int|bool) -> Out", infer=like("X"), grad=ZERO_GRADIENT)
def bitwise_not() -> None:
    """The bits that are not set in X."""


@define("bitwise_left_shift(x: int, y: int) -> out", infer=lambda x, y: _pair(x, y, "x and y"), grad=ZERO_GRADIENT)
def bitwise_left_shift() -> None:
    """The bits of x, moved by y places towards the higher ones; zeros follow."""


@define("bitwise_right_shift(x: int, y: int) -> out", infer=lambda x, y: _pair(x, y, "x and y"), grad=ZERO_GRADIENT)
def bitwise_right_shift() -> None:
    """The bits of x, moved by y places towards the lower ones; copies of the sign's bit follow."""


@define("signbit(X: real) -> Out", infer=lambda X: X.with_dtype(VarType.BOOL), grad=ZERO_GRADIENT)
def signbit() -> None:
    """Whether the bit of the sign is set: in negative numbers, in -0.0, and in some NaNs."""


# ------------------------------------------------------------------------------------------------------------ arithmetic
def _either(f: Any, X: Any, Y: Any, dOut: Any, first: Any) -> Any:
    """The gradients of an op that takes X where `first` holds, or where Y is no number, and Y elsewhere."""
    chosen = f.logical_or(first, f.isnan_v2(Y))
    return {
        "X": lambda: f.sum_to(dOut * chosen.astype(dOut.dtype), X),
        "Y": lambda: f.sum_to(dOut * f.logical_not(chosen).astype(dOut.dtype), Y),
    }


@define("elementwise_fmax(X: int|real, Y: int|real) -> Out", infer=lambda X, Y: _pair(X, Y))
def elementwise_fmax(f: Any, X: Any, Y: Any, dOut: Any) -> Any:
    """The larger of X and Y, or the one that is a number if the other is NaN. Where they are equal, the gradient goes to X."""
    return _either(f, X, Y, dOut, X >= Y)


@define("elementwise_fmin(X: int|real, Y: int|real) -> Out", infer=lambda X, Y: _pair(X, Y))
def elementwise_fmin(f: Any, X: Any, Y: Any, dOut: Any) -> Any:
    """The smaller of X and Y, or the one that is a number if the other is NaN. Where they are equal, the gradient goes to X."""
    return _either(f, X, Y, dOut, X <= Y)


@define("elementwise_heaviside(X: int|real, Y: int|real) -> Out", infer=lambda X, Y: _pair(X, Y))
def elementwise_heaviside(f: Any, X: Any, Y: ShapeOnly, dOut: Any) -> Any:
    """0 where X is negative, 1 where it is positive, and Y where it is 0."""
    at_zero = f.equal(X, f.fill_zeros_like(X)).astype(dOut.dtype)
    return {"X": lambda: f.fill_zeros_like(X), "Y": lambda: f.sum_to(dOut * at_zero, Y)}


def _atan2(X1: Spec, X2: Spec) -> Spec:
    out = _pair(X1, X2, "X1 and X2")
    return out if is_floating(out.dtype) else out.with_dtype(VarType.FP64)


@define("atan2(X1: int|real, X2: int|real) -> Out", infer=_atan2)
def atan2(f: Any, X1: Any, X2: Any, dOut: Any) -> Any:
    """The angle of the point with the coordinates X2 and X1, in [-pi, pi]; of integers in float64."""
    share = dOut / (X1 * X1 + X2 * X2)
    return {"X1": lambda: f.sum_to(share * X2, X1), "X2": lambda: -f.sum_to(share * X1, X2)}


@define(
    "nextafter(x: real, y: real) -> out", infer=lambda x, y: _pair(x, y, "x and y"), wrt=("x",), constants=["y"], inline_grad=True
)
def nextafter(f: Any, x: ShapeOnly, dout: Any) -> Any:
    """The float next to x in the direction of y. Its gradient is x's."""
    return {"x": f.sum_to(dout, x)}


@define("trunc(X: int|real) -> Out", infer=like("X"))
def trunc(f: Any, dOut: Any) -> Any:
    """X without its fraction."""
    return {"X": f.fill_zeros_like(dOut)}


@define(
    "grad_add(X, Y) -> Out",
    infer=lambda X, Y, axis: _pair(X, Y, axis=axis),
    grad=NOT_DIFFERENTIABLE,
    axis=-1,
    meaning=means(lambda f, X, Y, axis: f.elementwise_add(X, Y, axis=axis)),
)
def grad_add() -> None:
    """``X + Y``, as programs of Paddle sum gradients; operands are aligned as in `elementwise_add`."""


# ------------------------------------------------------------------------------------------------------------- closeness
def _tolerances(Rtol: Spec | None, Atol: Spec | None, rtol: str, atol: str) -> None:
    for name, spec, text in (("rtol", Rtol, rtol), ("atol", Atol, atol)):
        if spec is None:
            try:
                float(text)
            except ValueError:
                raise InferenceError(f"{name} {text!r} should be a number as text, such as '1e-5'") from None


def _isclose(Input: Spec, Other: Spec, Rtol: Spec | None, Atol: Spec | None, rtol: str, atol: str) -> Spec:
    _tolerances(Rtol, Atol, rtol, atol)
    return _pair(Input, Other, "Input and Other").with_dtype(VarType.BOOL)


def _allclose(
    Input: Spec, Other: Spec, Rtol: Spec | None, Atol: Spec | None, rtol: str, atol: str, declared: Mapping[str, Spec]
) -> Spec:
    _isclose(Input, Other, Rtol, Atol, rtol, atol)
    return Spec(since_2(declared), VarType.BOOL)


_CLOSE: dict[str, Any] = {"rtol": "1e-5", "atol": "1e-8", "equal_nan": False}


def _close(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    actual, expected = (
        values[slot] if is_floating(values[slot].dtype) else values[slot].astype(VarType.FP64) for slot in ("Input", "Other")
    )
    relative, absolute = (
        number_like(f, expected, float(attrs[slot.lower()])) if values.get(slot) is None else values[slot].astype(expected.dtype)
        for slot in ("Rtol", "Atol")
    )
    is_near = f.abs(actual - expected) <= f.abs(expected) * relative + absolute
    close = f.logical_or(f.logical_and(is_near, f.isfinite_v2(expected)), f.equal(actual, expected))  # equal infinities are close
    return f.logical_or(close, f.logical_and(f.isnan_v2(actual), f.isnan_v2(expected))) if attrs["equal_nan"] else close


@define(
    "isclose(Input: int|bool|real, Other: int|bool|real, Rtol?: real[one], Atol?: real[one]) -> Out",
    infer=_isclose,
    grad=ZERO_GRADIENT,
    composition=means(_close),
    **_CLOSE,
)
def isclose() -> None:
    """Whether ``|Input - Other| <= atol + rtol * |Other|``, as bools. The tolerances are numbers as text, or the tensors Rtol and
    Atol; with `equal_nan`, NaN is close to NaN."""


@define(
    "allclose(Input: int|bool|real, Other: int|bool|real, Rtol?: real[one], Atol?: real[one]) -> Out",
    infer=_allclose,
    grad=ZERO_GRADIENT,
    composition=means(lambda f, values, attrs: f.reduce_all(_close(f, values, attrs), reduce_all=True)),
    **_CLOSE,
)
def allclose() -> None:
    """Whether all elements are close, as in `isclose`: one bool."""


def _equal_all(X: Spec, Y: Spec, declared: Mapping[str, Spec]) -> Spec:
    check_types_agree({"X": X, "Y": Y})
    return Spec(since_2(declared), VarType.BOOL)


@define("equal_all(X, Y) -> Out", infer=_equal_all, grad=ZERO_GRADIENT)
def equal_all() -> None:
    """Whether X and Y have the same shape and equal elements: one bool."""


# ------------------------------------------------------------------------------------------------------------------ sums
def _partial(X: list[Spec], start_index: int, length: int) -> tuple[int, int]:
    """The first column and the number of columns that each matrix contributes; -1 for unknown."""
    first = X[0]
    for spec in X:
        if spec.ndim != 2 or spec.dtype is not first.dtype or not all(map(fits, spec.shape, first.shape)):
            raise InferenceError(f"X {', '.join(map(str, X))} should be matrices of one shape and element type")
    columns = first.shape[1]
    if columns < 0:
        return start_index, length
    start = start_index + columns if start_index < 0 else start_index
    count = columns - start if length < 0 else length
    if not 0 <= start < columns or start + count > columns:
        raise InferenceError(f"start_index {start_index} and length {length} should be within the columns of X {first}")
    return start, count


def _rows(X: list[Spec]) -> int:
    return max(spec.shape[0] for spec in X)


def _partial_sum(X: list[Spec], start_index: int, length: int) -> Spec:
    count = _partial(X, start_index, length)[1]
    return X[0].with_shape((_rows(X), count))


def _partial_concat(X: list[Spec], start_index: int, length: int) -> Spec:
    count = _partial(X, start_index, length)[1]
    return X[0].with_shape((_rows(X), count * len(X) if count >= 0 else -1))


def _bounds(start: int, length: int) -> dict[str, list[int]]:
    """The bounds of a slice of columns."""
    end = start + length if length >= 0 and (start >= 0 or start + length < 0) else 2**31 - 1
    return {"axes": [1], "starts": [start], "ends": [end]}


def _columns(f: Any, X: list[Any], start_index: int, length: int) -> list[Any]:
    return [f.slice(matrix, **_bounds(start_index, length)) for matrix in X]


@define(
    "partial_sum(X*) -> Out",
    infer=_partial_sum,
    composition=means(lambda f, X, start_index, length: f.sum(_columns(f, X, start_index, length))),
    start_index=0,
    length=-1,
)
def partial_sum(f: Any, X: ShapeOnly, dOut: Any, start_index: int, length: int) -> Any:
    """The sum of the columns from `start_index` on, `length` or (for -1) all, of matrices."""
    return {"X": lambda: [f.unslice(dOut, like, **_bounds(start_index, length)) for like in X]}  # type: ignore[attr-defined]


@define(
    "partial_concat(X*) -> Out",
    infer=_partial_concat,
    meaning=means(lambda f, X, start_index, length: f.concat(_columns(f, X, start_index, length), axis=1)),
    start_index=0,
    length=-1,
)
def partial_concat(f: Any, X: ShapeOnly, dOut: Any, start_index: int, length: int) -> Any:
    """The columns from `start_index` on, `length` or (for -1) all, of matrices side by side."""

    def parts() -> list[Any]:
        pieces = f.split(dOut, num=len(X), axis=1)  # type: ignore[arg-type]
        pairs = zip(pieces, X, strict=True)  # type: ignore[call-overload]
        return [f.unslice(piece, like, **_bounds(start_index, length)) for piece, like in pairs]

    return {"X": parts}
