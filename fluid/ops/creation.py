"""Ops that make tensors from attributes and shapes, and ops that return the shape of a tensor.

A shape that is given by tensors is known only when the op runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..errors import ElementTypeError, InferenceError
from ..opdef.composition import means
from ..opdef.registry import ZERO_GRADIENT, Attr, ShapeOnly, define, floats, ints, least, like, long, longs, required
from ..values.spec import Spec
from ..values.types import VarType, as_dtype, is_integer
from .shapes import normalize_axis, unknown_shape

Shape = tuple[int, ...]
FP32 = int(VarType.FP32)


# ----------------------------------------------------------------------------------------------------------- inference
def asked_shape(shape: Sequence[int], ShapeTensor: Spec | None, ShapeTensorList: Sequence[Spec] | None) -> Shape:
    """The shape that an attribute or tensors ask for; -1 for dimensions that are known only at run time."""
    if ShapeTensorList:
        if len(shape) != len(ShapeTensorList):
            return (-1,) * len(ShapeTensorList)
        return tuple(size if size > 0 else -1 for size in shape)
    if ShapeTensor is not None:
        rank = prod(ShapeTensor.shape)
        if rank < 0:
            raise InferenceError(f"ShapeTensor is {ShapeTensor}: how many dimensions it asks for is not known")
        return unknown_shape(rank)
    if any(size < 0 for size in shape):
        raise InferenceError(f"shape {list(shape)} has sizes below 0; give unknown ones as tensors")
    return tuple(shape)


def filled(shape: list[int], dtype: int, ShapeTensor: Spec | None, ShapeTensorList: Sequence[Spec] | None) -> Spec:
    """Inference of ops that fill a tensor of a shape from an attribute or from tensors."""
    return Spec(asked_shape(shape, ShapeTensor, ShapeTensorList), as_dtype(dtype))


def _filled_with(
    attrs: Mapping[str, Any], ValueTensor: Spec | None, ShapeTensor: Spec | None, ShapeTensorList: Sequence[Spec] | None
) -> Spec:
    if ValueTensor is None:
        _check_number(attrs)
    return filled(attrs["shape"], attrs["dtype"], ShapeTensor, ShapeTensorList)


def _filled_like_batch_with(Input: Spec, attrs: Mapping[str, Any]) -> Spec:
    _check_number(attrs)
    return filled_like_batch(Input, *(attrs[name] for name in ("shape", "dtype", "input_dim_idx", "output_dim_idx")))


def _check_number(attrs: Mapping[str, Any]) -> None:
    """`InferenceError` if the value to fill with is not a number, or not one of the element type."""
    value, text, dtype = attrs["value"], attrs["str_value"], as_dtype(attrs["dtype"])
    try:
        number = int(text) if text.lstrip("-").isdecimal() else float(text or value)
    except ValueError:
        raise InferenceError(f"str_value {text!r} should be a number as text") from None
    if is_integer(dtype):
        bounds = np.iinfo(dtype.numpy)
        if not bounds.min <= number <= bounds.max:
            number_text = f"str_value {text!r}" if text else f"value {value}"
            raise InferenceError(f"{number_text} should be a number of dtype {int(dtype)} ({dtype.text})")


def filled_plainly(shape: list[int], dtype: int) -> Spec:
    """Inference of ops that fill a tensor of a shape from an attribute."""
    return filled(shape, dtype, None, None)


def filled_like_batch(Input: Spec, shape: list[int], dtype: int, input_dim_idx: int, output_dim_idx: int) -> Spec:
    """Inference of ops that take one dimension from `Input`; its first counts as its number of sequences if it has any."""
    if not Input.ndim or not shape:
        raise InferenceError(f"Input {Input} and shape {shape} should have at least one dimension")
    source, target = normalize_axis(input_dim_idx, Input.ndim), normalize_axis(output_dim_idx, len(shape))
    if any(size < 0 for axis, size in enumerate(shape) if axis != target):
        raise InferenceError(
            f"shape {shape} should have no sizes below 0, but for output_dim_idx {output_dim_idx}, taken of Input"
        )
    size = Input.shape[source]
    if source == 0 and Input.lod:
        size = -1 if Input.lod[-1] is None else len(Input.lod[-1]) - 1
    return Spec((*shape[:target], size, *shape[target + 1 :]), as_dtype(dtype))


def _filled_any(X: Spec, dtype: int) -> Spec:
    return X if dtype < 0 else X.with_dtype(as_dtype(dtype))


def _assign_value(shape: list[int], dtype: int, attrs: Mapping[str, Any]) -> Spec:
    count = len(assigned_values(attrs))
    if prod(shape) != count:
        names = " or ".join(name for name in attrs if name.endswith("_values"))
        raise InferenceError(f"a tensor of shape {shape} does not have {count} elements, the number of values in {names}")
    return Spec(tuple(shape), as_dtype(dtype))


_VALUES = {VarType.BOOL: "bool_values", VarType.FP64: "fp64_values", VarType.INT32: "int32_values", VarType.INT64: "int64_values"}


def assigned_values(attrs: Mapping[str, Any]) -> list[Any]:
    """The values among the attributes of an `assign_value`."""
    typed_values: list[Any] = attrs[_VALUES.get(as_dtype(attrs["dtype"]), "fp32_values")]
    return typed_values or next((attrs[name] for name in ("fp32_values", *_VALUES.values()) if attrs[name]), [])


def _size(declared: Mapping[str, Spec]) -> Spec:
    out = declared.get("Out")
    return Spec(() if out is not None and out.shape == () else (1,), VarType.INT64)


def _range(Start: Spec, End: Spec, Step: Spec) -> Spec:
    if not Start.dtype is End.dtype is Step.dtype:
        raise ElementTypeError(f"Start is {Start}, End is {End}, Step is {Step}: their element types should be equal")
    return Spec((-1,), Start.dtype)


def _total(f: Any, value: Any, Like: Any) -> Any:
    """The sum of all elements, in the shape and element type of a tensor of one element."""
    return f.reshape_like(f.reduce_sum(value, reduce_all=True), Like).astype(Like.dtype)


def _places(f: Any, values: Any) -> Any:
    """The numbers 0, 1, 2, ... of the elements of a vector."""
    return f.cumsum(f.fill_any_like(values, value=1.0), axis=0, exclusive=True)


def _shares(f: Any, values: Any) -> Any:
    """The position of each element of a vector between the first one, at 0, and the last one, at 1."""
    places = _places(f, values)
    last = f.reduce_max(places, reduce_all=True)
    return places / f.elementwise_max(last, f.fill_any_like(last, value=1.0))


# ------------------------------------------------------------------------------------------------------------------ ops
@define(
    "fill_constant(ValueTensor?: [one], ShapeTensor?: int, ShapeTensorList*?: int[one]) -> Out",
    infer=_filled_with,
    wrt=("ValueTensor",),
    inline_grad=True,
    shape=longs(),
    dtype=FP32,
    value=0.0,
    str_value="",
    force_cpu=False,
    place_type=-1,
)
def fill_constant(f: Any, ValueTensor: ShapeOnly, dOut: Any) -> Any:
    """A tensor of `shape` and `dtype` filled with `value`.

    `str_value` is the value as text, which is exact where a float is not. Tensors may give the value and the shape.
    """
    return {"ValueTensor": _total(f, dOut, ValueTensor)}


@define(
    "fill_constant_batch_size_like(Input) -> Out",
    infer=_filled_like_batch_with,
    lod_aware=True,
    grad=ZERO_GRADIENT,
    shape_only=["Input"],
    shape=required("ints"),
    input_dim_idx=0,
    output_dim_idx=0,
    dtype=FP32,
    value=0.0,
    str_value="",
    force_cpu=False,
)
def fill_constant_batch_size_like() -> None:
    """As `fill_constant`, with dimension `input_dim_idx` of `Input` as dimension `output_dim_idx`."""


@define(
    "fill_zeros_like(X) -> Out",
    infer=like("X"),
    grad=ZERO_GRADIENT,
    shape_only=["X"],
    meaning=means(lambda f, X: f.fill_any_like(X)),
)
def fill_zeros_like() -> None:
    """Zeros with the shape and dtype of X."""


@define("fill_zeros_like2(X) -> Out", infer=_filled_any, grad=ZERO_GRADIENT, shape_only=["X"], dtype=FP32)
def fill_zeros_like2() -> None:
    """Zeros with the shape of X and of `dtype`."""


@define("fill_any_like(X) -> Out", infer=_filled_any, grad=ZERO_GRADIENT, shape_only=["X"], value=0.0, dtype=-1)
def fill_any_like() -> None:
    """A tensor of the shape of X filled with `value`; of the dtype of X if `dtype` is -1."""


@define("assign(X) -> Out", infer=like("X"), inline_grad=True)
def assign(f: Any, dOut: Any) -> Any:
    """A copy of X."""
    return {"X": f.assign(dOut)}


@define(
    "assign_value() -> Out",
    infer=_assign_value,
    grad=ZERO_GRADIENT,
    shape=required("ints"),
    dtype=required("int"),
    bool_values=ints(),
    fp32_values=floats(),
    fp64_values=Attr("float64s", []),
    int32_values=ints(),
    int64_values=longs(),
)
def assign_value() -> None:
    """A tensor of `shape` and `dtype` with the values that the attribute for its element type lists."""


@define("rnn_memory_helper(X) -> Out", infer=like("X"), dtype=FP32)
def rnn_memory_helper(f: Any, X: ShapeOnly, Out: ShapeOnly, dOut: Any = None) -> Any:
    """A copy of X: what a step of Fluid 1.6's `StaticRNN` hands to the next one; here that is an `assign`."""
    return {"X": f.fill_zeros_like(X) if dOut is None else f.assign(dOut)}


def _fill(value: list[float], shape: list[int], dtype: int) -> Spec:
    if prod(shape) != len(value):
        raise InferenceError(f"a tensor of shape {shape} does not have {len(value)} elements, the number of items of value")
    return Spec(tuple(shape), as_dtype(dtype))


@define(
    "fill() -> Out",
    infer=_fill,
    grad=ZERO_GRADIENT,
    value=required("floats"),
    shape=required("ints"),
    dtype=required("int"),
    force_cpu=False,
)
def fill() -> None:
    """A tensor of `shape` and `dtype` with the elements `value`."""


@define("shape(Input) -> Out", infer=lambda Input: Spec((Input.ndim,), VarType.INT32), grad=ZERO_GRADIENT, shape_only=["Input"])
def shape() -> None:
    """The shape of `Input`, as a vector of int32."""


@define("size(Input) -> Out", infer=_size, grad=ZERO_GRADIENT, shape_only=["Input"])
def size() -> None:
    """The number of elements of `Input`, as int64 of shape [1], or [] where Out is declared so."""


@define(
    "range(Start: [one], End: [one], Step: [one]) -> Out",
    infer=_range,
    wrt=("Start", "Step"),
    constants=["End"],
    inline_grad=True,
)
def range_(f: Any, Start: ShapeOnly, Step: ShapeOnly, dOut: Any) -> Any:
    """Start, Start + Step, and so on, up to End, exclusive. The inputs are tensors of one element."""
    return {"Start": lambda: _total(f, dOut, Start), "Step": lambda: _total(f, dOut * _places(f, dOut), Step)}


@define(
    "linspace(Start: [one], Stop: [one], Num: int[one]) -> Out",
    infer=lambda dtype: Spec((-1,), as_dtype(dtype)),
    wrt=("Start", "Stop"),
    inline_grad=True,
    dtype=FP32,
)
def linspace(f: Any, Start: ShapeOnly, Stop: ShapeOnly, dOut: Any) -> Any:
    """`Num` equally spaced numbers from Start to Stop, inclusive. The inputs are tensors of one element."""
    shares = _shares(f, dOut)
    return {"Start": lambda: _total(f, dOut * (1.0 - shares), Start), "Stop": lambda: _total(f, dOut * shares, Stop)}


@define(
    "eye() -> Out",
    infer=lambda num_rows, num_columns, dtype: Spec((num_rows, num_rows if num_columns < 0 else num_columns), as_dtype(dtype)),
    grad=ZERO_GRADIENT,
    num_rows=least(0, required("long")),
    num_columns=least(-1, long(-1)),
    dtype=FP32,
)
def eye() -> None:
    """Ones on the diagonal, zeros elsewhere; square if `num_columns` is -1."""


def _logspace(Start: Spec, Stop: Spec, Base: Spec, dtype: int) -> Spec:
    if not Start.dtype is Stop.dtype is Base.dtype:
        raise ElementTypeError(f"Start is {Start}, Stop is {Stop}, Base is {Base}: their element types should be equal")
    return Spec((-1,), as_dtype(dtype))


@define(
    "logspace(Start: [one], Stop: [one], Num: int[one], Base: [one]) -> Out",
    infer=_logspace,
    wrt=("Start", "Stop", "Base"),
    inline_grad=True,
    dtype=required("int"),
)
def logspace(f: Any, Start: Any, Stop: Any, Base: Any, Out: Any, dOut: Any) -> Any:
    """`Num` powers of Base, whose exponents are equally spaced from Start to Stop, inclusive."""
    shares, slope = _shares(f, dOut), dOut * Out * f.log(Base).astype(dOut.dtype)
    exponents = Start.astype(dOut.dtype) * (1.0 - shares) + Stop.astype(dOut.dtype) * shares
    return {
        "Start": lambda: _total(f, slope * (1.0 - shares), Start),
        "Stop": lambda: _total(f, slope * shares, Stop),
        "Base": lambda: _total(f, dOut * Out * exponents / Base.astype(dOut.dtype), Base),
    }


@define(
    "empty(ShapeTensor?: int, ShapeTensorList*?: int[one]) -> Out", infer=filled, grad=ZERO_GRADIENT, shape=longs(), dtype=FP32
)
def empty() -> None:
    """A tensor of `shape` and `dtype` whose elements are of no meaning; here they are zeros."""


def _full_int_array(value: list[int], dtype: int) -> Spec:
    if as_dtype(dtype) not in (VarType.INT32, VarType.INT64):
        raise InferenceError(f"dtype {dtype} should be that of int32 or int64")
    return Spec((len(value),), as_dtype(dtype))


@define(
    "full_int_array() -> out",
    infer=_full_int_array,
    grad=ZERO_GRADIENT,
    value=required("longs"),
    dtype=required("int"),
    place=required("int"),
)
def full_int_array() -> None:
    """The integers `value` as a vector."""


@define("fill_any(X) -> Out", infer=like("X"), value=0.0)
def fill_any(f: Any, dOut: Any) -> Any:
    """A tensor of the shape and dtype of X filled with `value`."""
    return {"X": f.fill_zeros_like(dOut)}


@define("where_index(Condition) -> Out", infer=lambda Condition: Spec((-1, Condition.ndim), VarType.INT64), grad=ZERO_GRADIENT)
def where_index() -> None:
    """The indices, one row each, of the elements of `Condition` that are not zero.

    Args:
        Condition: bools or numbers of any shape.
    """
