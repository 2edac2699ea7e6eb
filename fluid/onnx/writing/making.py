"""Write ops that make tensors from attributes and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluid.executor.binding.compiled import apply_op
from fluid.ops.creation import assigned_values
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import OnnxGraph, OnnxTensor, Size

# ----------------------------------------------------------------------------------------------------------- making
_MOST_CONSTANT = 64
"""The most elements of a filled tensor to write as a constant."""


def filled(g: OnnxGraph, dims: OnnxTensor, value: Any, spec: Spec) -> OnnxTensor:
    """A tensor of a shape filled with a number."""
    if dims.value is not None and np.prod(dims.value) <= _MOST_CONSTANT:
        return g.constant(np.full(dims.value, value, spec.dtype.numpy))
    return g.filled(dims, value, spec)


def zeros_like(g: OnnxGraph, x: OnnxTensor, dtype: VarType | None = None, value: float = 0) -> OnnxTensor:
    """A tensor of one number with the shape of another tensor."""
    result = filled(g, g.dims(x), value, Spec(x.shape, x.dtype if dtype is None else dtype))
    result.sizes = x.sizes if result.value is None else result.sizes
    return result


def as_vector(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    """Numbers as a vector of int64."""
    x = g.cast(x, VarType.INT64)
    return x if x.ndim == 1 else g.reshape(x, [-1], (x.spec.size,))


def joined_vector(g: OnnxGraph, tensors: Sequence[OnnxTensor]) -> OnnxTensor:
    """Join one-element tensors into a vector of int64."""
    return g.concat([g.reshape(g.cast(tensor, VarType.INT64), [1]) for tensor in tensors], 0)


def requested_shape(
    g: OnnxGraph, shape: list[int], ShapeTensor: OnnxTensor | None, ShapeTensorList: list[OnnxTensor] | None
) -> OnnxTensor:
    """The shape that attributes or tensors request."""
    if ShapeTensorList:
        return joined_vector(g, ShapeTensorList)
    return g.ints(*shape) if ShapeTensor is None else as_vector(g, ShapeTensor)


def _number(value: float, text: str, dtype: VarType) -> Any:
    if not text:
        return value
    return int(text) if text.lstrip("-").isdecimal() and dtype not in (VarType.FP32, VarType.FP64) else float(text)


@exports("fill_constant")
def fill_constant(
    g: OnnxGraph,
    ValueTensor: OnnxTensor | None,
    ShapeTensor: OnnxTensor | None,
    ShapeTensorList: Any,
    attrs: dict[str, Any],
    specs: Any,
) -> OnnxTensor:
    spec = specs["Out"]
    dims = requested_shape(g, attrs["shape"], ShapeTensor, ShapeTensorList)
    if ValueTensor is not None:
        return g.expand(g.reshape(g.cast(ValueTensor, spec.dtype), []), dims, spec.shape)
    return filled(g, dims, _number(attrs["value"], attrs["str_value"], spec.dtype), spec)


@exports("fill_constant_batch_size_like")
def fill_constant_batch_size_like(g: OnnxGraph, Input: OnnxTensor, attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    sizes: list[Size] = list(attrs["shape"])
    place, source = attrs["output_dim_idx"] % len(sizes), attrs["input_dim_idx"] % Input.ndim
    if source == 0 and Input.lengths is not None:
        sizes[place] = g.size(Input.lengths, 0)
    else:
        sizes[place] = g.size(Input, source)
    spec = specs["Out"]
    return filled(g, g.joined_sizes(sizes), _number(attrs["value"], attrs["str_value"], spec.dtype), spec)


@exports("fill_zeros_like2", "fill_any_like")
def fill_any_like(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    return zeros_like(g, X, specs["Out"].dtype, attrs.get("value", 0.0))


@exports("assign", "rnn_memory_helper")
def assign(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.identity(X)


@exports("assign_value")
def assign_value(g: OnnxGraph, attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    spec = specs["Out"]
    return g.constant(np.array(assigned_values(attrs)).astype(spec.dtype.numpy).reshape(spec.shape))


@exports("fill")
def fill(g: OnnxGraph, value: list[float], specs: Any) -> OnnxTensor:
    spec = specs["Out"]
    return g.constant(np.array(value).astype(spec.dtype.numpy).reshape(spec.shape))


@exports("shape")
def shape(g: OnnxGraph, Input: OnnxTensor) -> OnnxTensor:
    return g.dims(Input)


@exports("size")
def size(g: OnnxGraph, Input: OnnxTensor) -> OnnxTensor:
    return g.as_size(g.product_of(g.sizes_of(Input)))


@exports("range")
def range_(g: OnnxGraph, Start: OnnxTensor, End: OnnxTensor, Step: OnnxTensor) -> OnnxTensor:
    ends = [bound if bound.ndim == 0 else g.reshape(bound, []) for bound in (Start, End, Step)]
    return g.node("Range", ends, Spec((-1,), Start.dtype))


def _evenly_spaced(g: OnnxGraph, Start: OnnxTensor, Stop: OnnxTensor, Num: OnnxTensor) -> OnnxTensor:
    """Numbers of float64 from Start to Stop."""
    start, stop = (g.reshape(g.cast(bound, VarType.FP64), []) for bound in (Start, Stop))
    count = g.reshape(g.cast(Num, VarType.INT64), [1])
    steps = g.cast(g.binary("Max", g.binary("Sub", count, g.ints(1)), g.ints(1)), VarType.FP64)
    places = g.cast(g.arange(count), VarType.FP64)
    return g.binary("Add", start, g.binary("Mul", places, g.binary("Div", g.binary("Sub", stop, start), steps)))


@exports("linspace")
def linspace(g: OnnxGraph, Start: OnnxTensor, Stop: OnnxTensor, Num: OnnxTensor, specs: Any) -> OnnxTensor:
    return g.cast(_evenly_spaced(g, Start, Stop, Num), specs["Out"].dtype)


@exports("logspace")
def logspace(g: OnnxGraph, Start: OnnxTensor, Stop: OnnxTensor, Num: OnnxTensor, Base: OnnxTensor, specs: Any) -> OnnxTensor:
    base = g.reshape(g.cast(Base, VarType.FP64), [])
    return g.cast(g.binary("Pow", base, _evenly_spaced(g, Start, Stop, Num)), specs["Out"].dtype)


@exports("eye")
def eye(g: OnnxGraph, specs: Any) -> OnnxTensor:
    spec = specs["Out"]
    return g.constant(np.eye(*spec.shape, dtype=spec.dtype.numpy))


@exports("where_index")
def where_index(g: OnnxGraph, Condition: OnnxTensor) -> OnnxTensor:
    places = g.node("NonZero", [g.cast(Condition, VarType.BOOL)], Spec((Condition.ndim, -1), VarType.INT64))
    return g.transpose(places, [1, 0])


@exports("empty")
def empty(g: OnnxGraph, ShapeTensor: OnnxTensor | None, ShapeTensorList: Any, attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    return filled(g, requested_shape(g, attrs["shape"], ShapeTensor, ShapeTensorList), 0, specs["Out"])


@exports("fill_any")
def fill_any(g: OnnxGraph, X: OnnxTensor, value: float) -> OnnxTensor:
    return zeros_like(g, X, value=value)


@exports("full_int_array")
def full_int_array(g: OnnxGraph, value: list[int], specs: Any) -> OnnxTensor:
    return g.constant(value, specs["out"].dtype)


def _triangle(op_type: str) -> None:
    @exports(op_type)
    def indices(g: OnnxGraph, attrs: dict[str, Any]) -> OnnxTensor:
        [pairs] = apply_op(op_type, {}, attrs).values()
        return g.constant(pairs)


_triangle("tril_indices")
_triangle("triu_indices")
