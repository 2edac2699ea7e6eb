"""Kernels of `fluid.ops.creation`. Where `Out` is None, its shape is known only now: the kernel makes and returns it."""

from __future__ import annotations

from functools import partial
from typing import Any

from fluid.errors import ExecutionError
from fluid.ops.creation import assigned_values
from fluid.values.types import as_dtype

from .manipulation import numbers
from .portable import copy
from .table import Call, OutArray, Slots, fill, kernel, prepared


def prepare_output(xp: Any, inputs: Slots, attrs: Slots, Out: Any) -> Any:
    """`Out`, or an array of the shape that tensors, or else the attribute, ask for."""
    if Out is not None:
        return Out
    shape, tensors = attrs["shape"], inputs.get("ShapeTensorList")
    sizes = numbers(inputs.get("ShapeTensor"), tensors, shape)
    if tensors and len(shape) == len(sizes):
        sizes = [extent_attr if extent_attr > 0 else extent for extent_attr, extent in zip(shape, sizes, strict=True)]
    if any(extent < 0 for extent in sizes):
        raise ExecutionError(f"the shape asked for, {sizes}, has extents below 0")
    return xp.empty(sizes, as_dtype(attrs["dtype"]).numpy)


def _number(value: float, str_value: str, dtype: Any) -> Any:
    """The number that `str_value`, or else `value`, says."""
    if not str_value:
        return value
    try:
        return int(str_value) if dtype.kind in "iu" else float(str_value)
    except ValueError:
        return float(str_value)


@prepared("fill_constant")
def fill_constant(xp: Any, inputs: Slots, attrs: Slots, Out: Any) -> Call:
    number = _number(attrs["value"], attrs["str_value"], as_dtype(attrs["dtype"]).numpy)
    if Out is not None and inputs.get("ValueTensor") is None:
        return fill(xp, Out, number)
    return partial(_fill_at_run, xp, inputs, attrs, number, Out)


def _fill_at_run(xp: Any, inputs: Slots, attrs: Slots, number: float, Out: OutArray) -> Any:
    out, value = prepare_output(xp, inputs, attrs, Out), inputs.get("ValueTensor")
    xp.copyto(out, xp.asarray(number) if value is None else value.reshape(()), "unsafe")
    return out


@prepared("fill_constant_batch_size_like")
def fill_constant_batch_size_like(xp: Any, value: float, str_value: str, Out: Any) -> Call:
    return fill(xp, Out, _number(value, str_value, Out.dtype))


@prepared("fill_zeros_like", "fill_zeros_like2")
def fill_zeros_like(xp: Any, Out: Any) -> Call:
    return fill(xp, Out, 0)


@prepared("fill_any_like", "fill_any")
def fill_any_like(xp: Any, value: float, Out: Any) -> Call:
    return fill(xp, Out, value)


@prepared("assign", "rnn_memory_helper", inplace={"Out": "X"})
def assign(xp: Any, X: Any, Out: Any) -> list[Call]:
    return copy(xp, X, Out)


@prepared("assign_value")
def assign_value(xp: Any, attrs: Slots, Out: Any) -> Call:
    return partial(xp.copyto, Out, xp.asarray(assigned_values(attrs)).astype(Out.dtype).reshape(Out.shape))


@prepared("fill")
def fill_with(xp: Any, value: list[float], Out: Any) -> Call:
    return partial(xp.copyto, Out, xp.asarray(value).astype(Out.dtype).reshape(Out.shape))


@prepared("shape")
def shape(xp: Any, Input: Any, Out: Any) -> Call:
    return partial(xp.copyto, Out, xp.asarray(Input.shape, Out.dtype))


@prepared("size")
def size(xp: Any, Input: Any, Out: Any) -> Call:
    return fill(xp, Out, Input.size)


@kernel("range")
def range_(xp: Any, Start: Any, End: Any, Step: Any) -> Any:
    start, end, step = (value.reshape(-1)[0].item() for value in (Start, End, Step))
    if step == 0:
        raise ExecutionError(f"a range from {start} to {end} cannot have a step of 0")
    return xp.arange(start, end, step, Start.dtype)


@kernel("linspace")
def linspace(xp: Any, Start: Any, Stop: Any, Num: Any, dtype: int) -> Any:
    start, stop, num = (value.reshape(-1)[0].item() for value in (Start, Stop, Num))
    if num < 1:
        raise ExecutionError(f"linspace: Num is {num}; there should be at least one number")
    return xp.linspace(start, stop, num).astype(as_dtype(dtype).numpy)


@kernel("logspace")
def logspace(xp: Any, Start: Any, Stop: Any, Num: Any, Base: Any, dtype: int) -> Any:
    start, stop, num, base = (value.reshape(-1)[0].item() for value in (Start, Stop, Num, Base))
    if num < 1:
        raise ExecutionError(f"logspace: Num is {num}; there should be at least one number")
    return (float(base) ** xp.linspace(start, stop, num)).astype(as_dtype(dtype).numpy)


@kernel("empty")
def empty(xp: Any, inputs: Slots, attrs: Slots, Out: Any) -> Any:
    out = prepare_output(xp, inputs, attrs, Out)
    out.fill(0)
    return out


@prepared("full_int_array")
def full_int_array(xp: Any, value: list[int], out: Any) -> Call:
    return partial(xp.copyto, out, xp.asarray(value, out.dtype))


@prepared("eye")
def eye(xp: Any, Out: Any) -> list[Call]:
    rows, columns = Out.shape
    diagonal = Out.reshape(-1)[: min(rows, columns) * columns : columns + 1]
    return [fill(xp, Out, 0), fill(xp, diagonal, 1)]


@kernel("where_index")
def where_index(xp: Any, Condition: Any) -> Any:
    return xp.ascontiguousarray(xp.argwhere(Condition)).astype("int64", copy=False)  # numpy gives a transposed view
