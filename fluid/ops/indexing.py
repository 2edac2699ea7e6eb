"""Ops of Paddle 2.x that write to, repeat or view elements by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.composition import means
from ..opdef.registry import LINEAR, ZERO_GRADIENT, Attr, ShapeOnly, at_most, define, least, longs, required
from ..values.spec import Spec
from ..values.types import VarType, as_dtype, is_floating
from .formulas import choose
from .manipulation import LIKE, _diagonal, like_result_of, reshaped, transpose_of
from .shapes import broadcast, check_types_agree, fits, may_equal, normalize_axis

Shape = tuple[int, ...]


# ------------------------------------------------------------------------------------------------------ writing by index
def _index_add(X: Spec, Index: Spec, AddValue: Spec, axis: int) -> Spec:
    place = normalize_axis(axis, X.ndim)
    expected = (*X.shape[:place], *Index.shape, *X.shape[place + 1 :])
    if Index.ndim != 1 or AddValue.dtype is not X.dtype or not may_equal(AddValue.shape, expected):
        raise InferenceError(
            f"index_add: X is {X}, Index {Index} and AddValue {AddValue}; Index should be a vector, and AddValue {list(expected)}"
        )
    return X


@define("index_add(X, Index: int, AddValue) -> Out", infer=_index_add, wrt=("X", "AddValue"), complex_rule=LINEAR, axis=0)
def index_add(f: Any, Index: Any, AddValue: ShapeOnly, dOut: Any, axis: int) -> Any:
    """X with the slices of AddValue along `axis` added at the places in the vector Index."""
    return {"X": lambda: f.assign(dOut), "AddValue": lambda: f.index_select(dOut, Index, dim=axis)}


def picked_shape(x: Spec, indices: Sequence[Spec]) -> Shape:
    """The shape of ``x[indices]``; masks of bools pick a number of elements that is not known."""
    if not indices:
        raise InferenceError(f"indices should hold an index at least into x {x}")
    shape: Shape = ()
    used = 0
    for index in indices:
        if index.dtype is VarType.BOOL:
            if not may_equal(index.shape, x.shape[used : used + index.ndim]):
                raise InferenceError(
                    f"the mask {index} among indices should have the shape of the dimensions of x {x} it picks from"
                )
            shape, used = broadcast(shape, (-1,)), used + index.ndim
        else:
            shape, used = broadcast(shape, index.shape), used + 1
    if used > x.ndim:
        raise InferenceError(f"indices pick from {used} dimensions, and x {x} has {x.ndim}, which should be as many at least")
    return (*shape, *x.shape[used:])


def _index_put(x: Spec, indices: Sequence[Spec], value: Spec) -> Spec:
    shape = picked_shape(x, indices)
    check_types_agree({"x": x, "value": value})
    if value.ndim > len(shape) or not all(
        size in (1, -1) or fits(size, n) for size, n in zip(value.shape[::-1], shape[::-1], strict=False)
    ):
        raise InferenceError(f"value is {value}; it should broadcast to {list(shape)}, what indices pick of x {x}")
    return x


@define(
    "index_put(x, indices*: int|bool, value) -> out", infer=_index_put, wrt=("x", "value"), complex_rule=LINEAR, accumulate=False
)
def index_put(f: Any, x: ShapeOnly, indices: Any, value: ShapeOnly, dout: Any, accumulate: bool) -> Any:
    """x with `value`, which broadcasts, at the places that the `indices` (one for each of the first dimensions, broadcast
    together, or masks of bools) pick; added there with `accumulate`. Otherwise places should not repeat: each value would get the
    gradient."""

    def unreplaced() -> Any:
        return f.index_put(dout, indices, f.fill_zeros_like(value))

    return {
        "x": lambda: f.assign(dout) if accumulate else unreplaced(),
        "value": lambda: f.picked_sum(dout, indices, value),
    }


@define("picked_sum(X, Indices*: int|bool, Like) -> Out", **LIKE, complex_rule=LINEAR)
def picked_sum(f: Any, X: ShapeOnly, Indices: Any, dOut: Any) -> Any:
    """The elements of X that Indices pick, as in `index_put`, summed to the shape of Like: transposes putting values there."""
    return {"X": f.index_put(f.fill_zeros_like(X), Indices, dOut, accumulate=True)}


def _masked_fill(x: Spec, mask: Spec, value: Spec) -> Spec:
    if mask.dtype is not VarType.BOOL or value.dtype is not x.dtype or value.size not in (1, -1):
        raise InferenceError(
            f"x is {x}, mask {mask} and value {value}; they should be numbers, bools, and one number of the type of x"
        )
    return x.with_shape(broadcast(x.shape, mask.shape))


@define("masked_fill(x, mask: bool, value) -> out", infer=_masked_fill, wrt=("x", "value"), complex_rule=LINEAR)
def masked_fill(f: Any, x: ShapeOnly, mask: Any, value: ShapeOnly, dout: Any) -> Any:
    """x, with the one number `value` where `mask` holds; both broadcast. It is an op of Paddle 3."""
    zeros = f.fill_zeros_like(dout)
    return {
        "x": lambda: f.sum_to(f.masked_fill(dout, mask, f.fill_zeros_like(value)), x),
        "value": lambda: f.reshape_like(f.reduce_sum(f.where(f.expand_to(mask, dout), dout, zeros), reduce_all=True), value),
    }


# -------------------------------------------------------------------------------------------------------------- repeating
def _repeated(X: Spec, RepeatsTensor: Spec | None, Repeats: int, dim: int) -> Spec:
    axis = normalize_axis(dim, X.ndim)
    size = X.shape[axis]
    if RepeatsTensor is not None:
        if RepeatsTensor.ndim != 1 or not (fits(RepeatsTensor.shape[0], size) or RepeatsTensor.shape[0] == 1):
            raise InferenceError(
                f"RepeatsTensor is {RepeatsTensor}; it should have a number for each of dimension {dim} of X {X}"
            )
        count = -1
    else:
        if Repeats < 1:
            raise InferenceError(f"Repeats {Repeats} should be above 0")
        count = -1 if size < 0 else size * Repeats
    return X.with_shape((*X.shape[:axis], count, *X.shape[axis + 1 :]))


@define(
    "repeat_interleave(X, RepeatsTensor?: int) -> Out",
    infer=_repeated,
    wrt=("X",),
    complex_rule=LINEAR,
    Repeats=0,
    dim=0,
)
def repeat_interleave(f: Any, X: ShapeOnly, RepeatsTensor: Any, dOut: Any, Repeats: int, dim: int) -> Any:
    """Each slice of X along `dim`, `Repeats` times, or as often as RepeatsTensor says of it."""
    return {"X": f.interleaved_sum(dOut, RepeatsTensor, X, Repeats=Repeats, dim=dim)}


_REPEATS: dict[str, Any] = {"complex_rule": LINEAR, "Repeats": 0, "dim": 0}


@define("interleaved_sum(X, RepeatsTensor?: int, Like) -> Out", **transpose_of("repeat_interleave"), **_REPEATS)
def interleaved_sum(f: Any, X: ShapeOnly, RepeatsTensor: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """For each slice of Like, the sum of its copies in X: the transpose of `repeat_interleave`."""
    return {"X": f.repeat_like(dOut, RepeatsTensor, X, **attrs)}


@define("repeat_like(X, RepeatsTensor?: int, Like) -> Out", **like_result_of("repeat_interleave"), **_REPEATS)
def repeat_like(f: Any, X: ShapeOnly, RepeatsTensor: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """As `repeat_interleave`, with a result known to have the shape of Like."""
    return {"X": f.interleaved_sum(dOut, RepeatsTensor, X, **attrs)}


def _broadcast_tensors(X: list[Spec]) -> list[Spec]:
    shape: Shape = ()
    for spec in X:
        if spec.dtype is not X[0].dtype:
            raise ElementTypeError(f"X holds {X[0]} and {spec}, which should be of one element type")
        shape = broadcast(shape, spec.shape)
    return [spec.with_shape(shape) for spec in X]


@define("broadcast_tensors(X*) -> Out*", infer=_broadcast_tensors, complex_rule=LINEAR)
def broadcast_tensors(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """Tensors broadcast to one shape."""
    return {"X": lambda: [f.sum_to(grad, like) for grad, like in zip(dOut, X, strict=True)]}  # type: ignore[call-overload]


# -------------------------------------------------------------------------------------------------------------- diagonals
def _fill_diagonal(X: Spec, value: float, offset: int) -> Spec:
    if X.ndim < 2 or (X.ndim > 2 and not all(fits(size, X.shape[0]) for size in X.shape)):
        raise InferenceError(f"fill_diagonal: X is {X}; it should be a matrix, or have equal sizes")
    if not is_floating(X.dtype) and not float(value).is_integer():
        raise InferenceError(f"X is {X}, so the fraction of value {value} would be lost: cast X to float32 first")
    return X


@define("fill_diagonal(X) -> Out", infer=_fill_diagonal, value=0.0, offset=0, wrap=False)
def fill_diagonal(f: Any, dOut: Any, offset: int, wrap: bool) -> Any:
    """X with `value` on the diagonal of its first square block: moved by `offset` along the rows, within them; with `wrap` again
    after each such block and one row. With more than two dimensions, of size n each, the diagonal has all indices equal; as in
    Paddle, without `wrap` only among the first n * n elements."""
    return {"X": f.fill_diagonal(dOut, value=0.0, offset=offset, wrap=wrap)}


def _fill_diagonal_tensor(X: Spec, Y: Spec, offset: int, dim1: int, dim2: int) -> Spec:
    diagonal = _diagonal(X, offset, dim1, dim2)
    shape = Y.shape[1:] if Y.ndim == 2 and X.ndim == 2 and Y.shape[0] == 1 else Y.shape  # Paddle writes one diagonal as a row
    if X.dtype is not Y.dtype or not may_equal(shape, diagonal.shape):
        raise InferenceError(f"fill_diagonal_tensor: Y is {Y}; it should be {diagonal}, as the diagonals of X {X}")
    return X


@define(
    "fill_diagonal_tensor(X, Y) -> Out",
    infer=_fill_diagonal_tensor,
    complex_rule=LINEAR,
    offset=Attr("long", 0),
    dim1=0,
    dim2=1,
)
def fill_diagonal_tensor(
    f: Any,
    dOut: Any,
    offset: int,
    dim1: int,
    dim2: int,
    Y: ShapeOnly = None,  # type: ignore[assignment]
) -> Any:
    """X with Y, as `diagonal` gives it, on the diagonals of the matrices along `dim1` and `dim2`, moved by `offset`."""
    where = {"offset": offset, "dim1": dim1, "dim2": dim2}
    diagonals = f.diagonal(dOut, offset=offset, axis1=dim1, axis2=dim2)
    return {
        "X": lambda: f.fill_diagonal_tensor(dOut, f.fill_zeros_like(diagonals), **where),
        "Y": lambda: f.reshape_like(diagonals, Y),
    }


def _diag_embed(Input: Spec, offset: int, dim1: int, dim2: int) -> Spec:
    if not Input.ndim:
        raise InferenceError(f"diag_embed: Input is {Input}; it should have a dimension at least")
    first, second = normalize_axis(dim1, Input.ndim + 1), normalize_axis(dim2, Input.ndim + 1)
    if first == second:
        raise InferenceError(f"dim1 {dim1} and dim2 {dim2} should be two dimensions of the {Input.ndim + 1} of Out")
    size = Input.shape[-1] + abs(offset) if Input.shape[-1] >= 0 else -1
    shape = list(Input.shape[:-1])
    for axis in sorted((first, second)):
        shape.insert(axis, size)
    return Input.with_shape(tuple(shape))


def _embedded(f: Any, Input: Any, offset: int, dim1: int, dim2: int) -> Any:
    last, axes = Input.ndim - 1, [normalize_axis(axis, Input.ndim + 1) for axis in (dim1, dim2)]
    line = f.pad(Input, paddings=[0] * (2 * last + 1) + [abs(offset)], pad_value=0.0) if offset else Input
    matrices = f.unsqueeze2(line, axes=[last]) + f.unsqueeze2(line, axes=[last + 1])
    before = [axis for axis in range(last + 2) if axis not in axes]
    order = [*before, *sorted(axes)]
    like = f.transpose2(matrices, axis=[order.index(axis) for axis in range(last + 2)])
    return f.undiagonal(Input, like, offset=offset, axis1=axes[0], axis2=axes[1])


@define(
    "diag_embed(Input) -> Out",
    infer=_diag_embed,
    meaning=means(_embedded),
    inline_grad=True,
    complex_rule=LINEAR,
    offset=0,
    dim1=-2,
    dim2=-1,
)
def diag_embed(f: Any, dOut: Any, offset: int, dim1: int, dim2: int) -> Any:
    """Matrices, along `dim1` and `dim2` of the result, with the vectors in the last dimension of Input on a diagonal, `offset`
    above the main one."""
    return {"Input": f.diagonal(dOut, offset=offset, axis1=dim1, axis2=dim2)}


def _triangle(rows: int, columns: int, offset: int, dtype: int, lower: bool) -> Spec:
    if lower:
        counts = (min(max(row + offset + 1, 0), columns) for row in range(rows))
    else:
        counts = (columns - min(max(row + offset, 0), columns) for row in range(rows))
    return Spec((2, sum(counts)), as_dtype(dtype))


_MOST = 1 << 16


@define(
    "tril_indices() -> out",
    infer=lambda rows, cols, offset, dtype: _triangle(rows, cols, offset, dtype, True),
    grad=ZERO_GRADIENT,
    rows=at_most(_MOST, least(0, 0)),
    cols=at_most(_MOST, least(0, 0)),
    offset=0,
    dtype=int(VarType.INT64),
)
def tril_indices() -> None:
    """The rows and the columns, [2, elements], of the elements that are not above a diagonal of a matrix, row by row."""


@define(
    "triu_indices() -> out",
    infer=lambda row, col, offset, dtype: _triangle(row, col, offset, dtype, False),
    grad=ZERO_GRADIENT,
    row=at_most(_MOST, least(0, 0)),
    col=at_most(_MOST, least(0, 0)),
    offset=0,
    dtype=int(VarType.INT64),
)
def triu_indices() -> None:
    """The rows and the columns, [2, elements], of the elements that are not below a diagonal of a matrix, row by row."""


# ------------------------------------------------------------------------------------------------------------------ views
def _as_strided(input: Spec, dims: list[int], stride: list[int], offset: int) -> Spec:
    if len(dims) != len(stride) or min(dims, default=0) < 0 or min(stride, default=0) < 0:
        raise InferenceError(f"dims {dims} and stride {stride} should be as many, and none of them below 0")
    last = offset + sum((size - 1) * step for size, step in zip(dims, stride, strict=True))
    if input.size >= 0 and 0 not in dims and last >= input.size:
        raise InferenceError(
            f"dims {dims}, stride {stride} and offset {offset} should lead to elements of input {input}, not beyond"
        )
    return input.with_shape(tuple(dims))


_STRIDES: dict[str, Any] = {"dims": longs(), "stride": longs(), "offset": least(0, Attr("long", 0))}


@define("as_strided(input) -> out", infer=_as_strided, complex_rule=LINEAR, **_STRIDES)
def as_strided(f: Any, input: ShapeOnly, dout: Any, attrs: dict[str, Any]) -> Any:
    """A copy of elements of `input`, flattened, from `offset` on, shaped as `dims`, along each dimension `stride` apart."""
    return {"input": f.strided_sum(dout, input, **attrs)}


@define("strided_sum(X, Like) -> Out", **LIKE, complex_rule=LINEAR, **_STRIDES)
def strided_sum(f: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """X added to zeros of the shape of Like, where `as_strided` takes elements: its transpose."""
    return {"X": f.as_strided(dOut, **attrs)}


def _unfolded(input: Spec, axis: int, size: int, step: int) -> Spec:
    place = normalize_axis(axis, input.ndim)
    count = input.shape[place]
    if -1 < count < size:
        raise InferenceError(f"size {size} should not be above that of axis {axis} of input {input}")
    windows = -1 if count < 0 else (count - size) // step + 1
    return input.with_shape((*input.shape[:place], windows, *input.shape[place + 1 :], size))


@define(
    "tensor_unfold(input) -> out",
    infer=_unfolded,
    complex_rule=LINEAR,
    axis=required("long"),
    size=least(1, required("long")),
    step=least(1, required("long")),
)
def tensor_unfold(f: Any, input: ShapeOnly, dout: Any, axis: int, step: int) -> Any:
    """Windows of `size` elements along `axis`, each `step` after the one before: their number replaces the size of the axis, and
    a new last axis holds their elements."""
    ndim: int = input.ndim  # type: ignore[attr-defined]
    place = normalize_axis(axis, ndim)
    other_axes = [dim for dim in range(ndim) if dim != place]
    order = [*other_axes, place]
    windows = f.transpose2(dout, axis=[*other_axes, ndim, place])
    turned = f.overlap_like(windows, f.transpose2(input, axis=order), hop_length=step, axis=-1)
    return {"input": f.transpose2(turned, axis=[order.index(dim) for dim in range(ndim)])}


def _view_dtype(input: Spec, dtype: int) -> Spec:
    element = as_dtype(dtype)
    old, new = input.dtype.numpy.itemsize, element.numpy.itemsize
    if old == new:
        return input.with_dtype(element)
    if not input.ndim or (input.shape[-1] >= 0 and input.shape[-1] * old % new):
        raise InferenceError(
            f"view_dtype: the bytes of the last dimension of input {input} should make elements of dtype {dtype}"
        )
    last = input.shape[-1] * old // new if input.shape[-1] >= 0 else -1
    return input.with_shape((*input.shape[:-1], last)).with_dtype(element)


@define("view_dtype(input) -> out", infer=_view_dtype, dtype=required("int"))
def view_dtype(f: Any, input: ShapeOnly, dout: Any) -> Any:
    """The bytes of `input` as elements of another type; the last dimension grows or shrinks. The gradient's bytes go back in the
    same way."""
    return {"input": f.view_dtype(dout, dtype=int(input.dtype))}  # type: ignore[attr-defined]


@define(
    "view_shape(input) -> out",
    infer=lambda input, dims: input.with_shape(reshaped(input.shape, dims)),
    complex_rule=LINEAR,
    dims=longs(),
)
def view_shape(f: Any, input: ShapeOnly, dout: Any) -> Any:
    """A copy of `input` in the shape `dims`; one size may be -1."""
    return {"input": f.reshape_like(dout, input)}


def _index_select_strided(x: Spec, index: int, axis: int) -> Spec:
    place = normalize_axis(axis, x.ndim)
    size = x.shape[place]
    if index < 0 or -1 < size <= index:
        raise InferenceError(f"index {index} should be within axis {axis} of x {x}")
    return x.with_shape((*x.shape[:place], *x.shape[place + 1 :]))


@define(
    "index_select_strided(x) -> out",
    infer=_index_select_strided,
    complex_rule=LINEAR,
    index=required("long"),
    axis=required("int"),
)
def index_select_strided(f: Any, x: ShapeOnly, dout: Any, index: int, axis: int) -> Any:
    """The slice of x at `index` along `axis`, without that dimension."""
    place = normalize_axis(axis, x.ndim)  # type: ignore[attr-defined]
    row = f.unsqueeze2(dout, axes=[place])
    return {"x": f.unslice(row, x, axes=[place], starts=[index], ends=[index + 1])}


# ------------------------------------------------------------------------------------------------------------------ norms
def _renorm(X: Spec, p: float, axis: int) -> Spec:
    normalize_axis(axis, X.ndim)
    if p <= 0:
        raise InferenceError(f"p {p} should be above 0")
    return X


def _slice_total(f: Any, value: Any, axis: int) -> Any:
    """The sum of each slice along `axis`, with all dimensions."""
    other_axes = [dim for dim in range(value.ndim) if dim != normalize_axis(axis, value.ndim)]
    return f.reduce_sum(value, dim=other_axes, keep_dim=True) if other_axes else value


def _renormed(f: Any, X: Any, p: float, axis: int, max_norm: float) -> Any:
    norm = _slice_total(f, f.abs(X) ** p, axis) ** (1.0 / p)
    return X * choose(f, norm > max_norm, max_norm / (norm + _RENORM_EPSILON), 1.0)


@define(
    "renorm(X: real) -> Out",
    infer=_renorm,
    composition=means(_renormed),
    p=required("float"),
    axis=required("int"),
    max_norm=least(0, required("float")),
)
def renorm(f: Any, X: Any, dOut: Any, p: float, axis: int, max_norm: float) -> Any:
    """X with those slices along `axis` scaled down to the norm `max_norm` whose norm of order `p` is larger."""
    at_zero = f.equal(X, f.fill_zeros_like(X)).astype(X.dtype)
    size = f.abs(X) + at_zero
    powers = size**p * (1.0 - at_zero)
    sums = _slice_total(f, powers, axis)
    norm = (sums + f.equal(sums, f.fill_zeros_like(sums)).astype(X.dtype)) ** (1.0 / p)
    large = (norm > max_norm).astype(X.dtype) * f.not_equal(sums, f.fill_zeros_like(sums)).astype(X.dtype)
    scale = max_norm / (norm + _RENORM_EPSILON)
    inner = _slice_total(f, dOut * X, axis) * scale / (norm + _RENORM_EPSILON) * norm ** (1.0 - p)
    slope = f.sign(X) * size ** (p - 1.0) * inner
    return {"X": dOut * (1.0 - large) + (dOut * scale - slope) * large}


_RENORM_EPSILON = 1e-7
"""Added to the norms that `renorm` divides by."""
