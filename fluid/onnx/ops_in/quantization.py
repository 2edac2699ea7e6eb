"""Reads quantized tensors: integers with a scale and a zero point.

A pair of QuantizeLinear and DequantizeLinear becomes one op on floats, which passes gradients on. Constant integers become
weights of floats where they are dequantized.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.bfloat16 import computable, converted
from ...values.types import VarType, accumulated, is_floating
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from ..types import element_type, integer_bits, name_of, number_of
from ..values import TensorValue
from .convolution import convolved
from .elementwise import rounded


def _limits(number: int) -> tuple[int, int]:
    """The least and the greatest integer of ONNX's type `number`."""
    bits = integer_bits(number) or 8
    return (0, (1 << bits) - 1) if bits > 0 else (-(1 << (-bits - 1)), (1 << (-bits - 1)) - 1)


def type_of(value: TensorValue) -> int:
    """The number of a value's element type in ONNX."""
    return value.onnx_type or number_of(value.dtype)


def check_scale(node: OnnxNode, place: int) -> None:
    """Raise a `FormatError` if a known scale is not finite, or not above 0."""
    scale = node.array(place)
    if scale is None:
        return
    scale = computable(scale)
    bad = scale[~(np.isfinite(scale) & (scale > 0))] if scale.dtype.kind == "f" else scale
    if np.size(bad):
        raise FormatError(f"its scale (input {place}) holds {np.ravel(bad)[0]}; scales should be finite floats above 0")


def _check_zero_point(node: OnnxNode, place: int, of: int) -> None:
    """Raise a `FormatError` if a zero point is of another type than the integers of input `of`."""
    if node.value(place) is None:
        return
    ours, theirs = type_of(node.tensor(place)), type_of(node.tensor(of))
    if ours != theirs:
        raise FormatError(
            f"its zero point (input {place}) is of {name_of(ours)}; it should be of the type of input {of}, {name_of(theirs)}"
        )


def check_parameters(node: OnnxNode, integers: int, scale: int, zero: int) -> None:
    """Raise a `FormatError` if the scale or the zero point of some integers is wrong; the three numbers are inputs."""
    check_scale(node, scale)
    _check_zero_point(node, zero, integers)


def _axis_of(node: OnnxNode, ndim: int) -> int:
    """The axis of the scales, counted from the front."""
    axis: int = node.int("axis", 1)
    if not -ndim <= axis < max(ndim, 2):
        raise FormatError(f"its axis is {axis}; integers of {ndim} dimensions have axes from {-ndim} to {ndim - 1}")
    return axis + ndim if axis < 0 else axis


def _along(b: Builder, x: Any, part: Any, node: OnnxNode) -> Any:
    """Shape a scale or zero point to broadcast to `x`: one for each element of an axis, or for each block along it."""
    if part.ndim == 0:
        return part
    axis = _axis_of(node, x.ndim)
    if part.shape == (1,) and x.shape[min(axis, x.ndim - 1)] != 1:
        return part
    if (part.ndim == 1 and x.ndim > 1) or part.ndim != x.ndim:
        return b.ones_like_axes(part, axis, x.ndim - axis - 1)
    size = node.int("block_size", 0)
    if not size or part.shape[axis] == x.shape[axis]:
        return part
    b.reserve(x.shape[axis], itemsize=16)
    places = np.arange(x.shape[axis]) // size
    return b.f.gather(part, b.constant(places.astype(np.int64, copy=False)), axis=axis)


def quantized(b: Builder, node: OnnxNode, x: Any, scale: Any, zero: Any, number: int) -> Any:
    """Quantize floats to integers (or small floats) of ONNX's type `number`: round, then clip to its range."""
    dtype = element_type(number, "the type that it quantizes to")
    ratio = b.f.elementwise_div(b.cast(x, scale.dtype), _along(b, x, scale, node))
    if is_floating(dtype):
        ratio = b.cast(ratio, VarType.FP32)
        if zero is not None:
            ratio = b.f.elementwise_add(ratio, b.cast(_along(b, x, zero, node), VarType.FP32))
        return TensorValue(rounded(b, ratio, number, bool(node.int("saturate", 1))), onnx_type=number)
    levels = b.f.rint(b.cast(ratio, accumulated(ratio.dtype)))
    if zero is not None:
        levels = b.f.elementwise_add(levels, b.cast(_along(b, x, zero, node), levels.dtype))
    low, high = _limits(number)
    return TensorValue(
        b.cast(b.f.clip(levels, min=float(low), max=float(high)), dtype),
        onnx_type=number if dtype.numpy.itemsize * 8 != abs(integer_bits(number) or 8) else None,
    )


@imports("QuantizeLinear", trains=False)
def quantize_linear(b: Builder, node: OnnxNode) -> Any:
    check_scale(node, 1)
    number = 2
    if node.value(2) is not None:
        number = type_of(node.tensor(2))
    elif node.int("output_dtype", 0):
        number = node.int("output_dtype")
    out = quantized(b, node, node[0], node[1], node.get(2), number)
    out.quantized = (node.tensor(0), node.tensor(1), node.value(2))
    return out


def dequantized(b: Builder, node: OnnxNode, x: Any, scale: Any, zero: Any) -> Any:
    """Convert integers to floats: the difference from the zero point, times the scale."""
    wide = b.cast(x, VarType.FP32)
    if zero is not None:
        wide = b.f.elementwise_sub(wide, b.cast(_along(b, x, zero, node), VarType.FP32))
    return b.cast(b.f.elementwise_mul(wide, b.cast(_along(b, x, scale, node), VarType.FP32)), scale.dtype)


@imports("DequantizeLinear")
def dequantize_linear(b: Builder, node: OnnxNode) -> Any:
    check_parameters(node, 0, 1, 2)
    number = node.int("output_dtype", 0)
    out = _of_pair(b, node)
    if out is None and not number:
        return weight_of_integers(b, node, 0, 1, 2)
    out = dequantized(b, node, node[0], node[1], node.get(2)) if out is None else out
    return b.cast(out, element_type(number, "its output_dtype")) if number else out


def _of_pair(b: Builder, node: OnnxNode) -> Any:
    """Import a pair as one op; None if no QuantizeLinear with the same scale and zero point makes the integers."""
    integers = node.tensor(0)
    if not integers.quantized or is_floating(integers.dtype):
        return None
    floats, *parameters = integers.quantized
    if not all(_are_equal(ours, theirs) for ours, theirs in zip(parameters, (node.tensor(1), node.value(2)), strict=True)):
        return None
    x, scale = floats.variable(b.block), node[1]
    if floats.onnx_type or x.dtype is not VarType.FP32 or scale.dtype is not VarType.FP32:
        return None
    zero = _zero_point(b, node.value(2))
    aligned = [None if part is None else _along(b, x, b.variables(part), node) for part in (scale, zero)]
    low, high = _limits(type_of(integers))
    return b.f.fake_quantize_affine(x, *aligned, quant_min=low, quant_max=high)


def _zero_point(b: Builder, value: Any) -> Any:
    """A zero point for `fake_quantize_affine`: as floats if it is known, None if it is 0."""
    if value is None or value.array is None:
        return value
    return b.constant(value.array.astype(np.float32)) if value.array.any() else None


def _are_equal(a: Any, b: Any) -> bool:
    """Whether two values are the same, or constants that are equal."""
    if a is b:
        return True
    if not isinstance(a, TensorValue) or not isinstance(b, TensorValue) or a.array is None or b.array is None:
        return False
    return np.array_equal(a.array, b.array)


def weight_of_integers(b: Builder, node: OnnxNode, place: int, scale: int, zero: int, axis: int | None = None) -> TensorValue:
    """Dequantize integers; known ones become a weight of floats.

    Args:
        place, scale, zero: the inputs with the integers, their scale and their zero point.
        axis: the axis of a vector of scales; by default, the attribute of the node.
    """
    check_parameters(node, place, scale, zero)
    arrays: list[Any] = [node.array(part) for part in (place, scale, zero)]
    values = [node.tensor(place), node.tensor(scale), node.value(zero)]
    if any(array is None and value is not None for array, value in zip(arrays, values, strict=True)) or not arrays[0].ndim:
        return TensorValue(dequantized(b, node, node[place], node[scale], node.get(zero)))
    integers = arrays[0]
    b.reserve(*integers.shape, itemsize=12)
    if axis is None:
        axis = _axis_of(node, integers.ndim) if arrays[1].size > 1 else 0
    block_size = node.int("block_size", 0)
    floats = integers.astype(np.float32)
    if arrays[2] is not None:
        floats -= _spread(arrays[2], integers, axis, block_size).astype(np.float32)
    factor = computable(_spread(arrays[1], integers, axis, block_size)).astype(np.float32)
    floats = converted(floats * factor, arrays[1].dtype)
    name = f"{node.proto.input[place]}.floats"
    weight = TensorValue(array=floats, make=lambda value: b.persistable(b.fresh_name(name), value), is_weight=True)
    number = type_of(node.tensor(place))
    is_plain = all(part is None or part.ndim < 2 for part in arrays[1:]) and floats.dtype == np.float32
    if not is_plain or abs(integer_bits(number) or 32) > 8:
        return weight
    low, high = _limits(number)
    return TensorValue(
        b.f.fake_quantize_affine(
            weight.variable(b.block),
            b.constant(arrays[1]),
            _zero_point(b, values[2]),
            quant_axis=axis if arrays[1].size > 1 else -1,
            quant_min=low,
            quant_max=high,
        )
    )


def _spread(part: Any, integers: Any, axis: int, block_size: int) -> Any:
    """A scale or zero point as an array that broadcasts with the integers."""
    if part.size == 1:
        return part.reshape(())
    if block_size and part.ndim == integers.ndim:
        return part.take(np.arange(integers.shape[axis]) // block_size, axis)
    if part.ndim == 1:
        return part.reshape(-1, *[1] * (integers.ndim - axis - 1))
    return part.reshape(len(part), *[1] * (integers.ndim - 2), -1)  # of a recurrence: for each direction and column


@imports("DynamicQuantizeLinear", trains=False)
def dynamic_quantize_linear(b: Builder, node: OnnxNode) -> Any:
    integers, *parameters = quantized_by_range(b, node, node[0])
    scale, zero = (TensorValue(part) for part in parameters)
    integers.quantized = (node.tensor(0), scale, zero)
    return integers, scale, zero


def quantized_by_range(b: Builder, node: OnnxNode, x: Any) -> tuple[Any, Any, Any]:
    """Quantize floats to uint8 by the range of their values, 0 included: integers, scale and zero point."""
    none, most = b.number(0.0, VarType.FP32), b.number(255.0, VarType.FP32)
    low = b.f.elementwise_min(b.reduce("reduce_min", x, None, False), none)
    high = b.f.elementwise_max(b.reduce("reduce_max", x, None, False), none)
    scale = b.f.elementwise_div(high - low, most)
    scale = scale + b.cast(b.f.equal(scale, none), VarType.FP32)  # of zeros, and of numbers too small for a scale: 1
    zero = b.cast(b.f.clip(b.f.rint(b.f.elementwise_div(none - low, scale)), min=0.0, max=255.0), VarType.UINT8)
    return quantized(b, node, x, scale, zero, 2), scale, zero


# ------------------------------------------------------------------------------------------------------------- products
def integer_product(b: Builder, x: Any, y: Any, x_zero: Any, y_zero: Any) -> Any:
    """Multiply integers minus their zero points, to int32. A vector has a zero point for each row of x, or column of y."""
    if x_zero is not None and x_zero.ndim == 1 and x_zero.shape != (1,):
        x_zero = b.ones_like_axes(x_zero, 0, 1)
    return b.f.matmul_integer(x, y, x_zero, y_zero)


@imports("MatMulInteger", trains=False)
def matmul_integer(b: Builder, node: OnnxNode) -> Any:
    for zero, of in ((2, 0), (3, 1)):
        _check_zero_point(node, zero, of)
    return integer_product(b, node[0], node[1], node.get(2), node.get(3))


def _less_zero(b: Builder, x: Any, zero: Any) -> Any:
    """Subtract the zero point from integers, in float64."""
    wide = b.cast(x, VarType.FP64)
    return wide if zero is None else b.f.elementwise_sub(wide, b.cast(zero, VarType.FP64))


@imports("ConvInteger", trains=False)
def conv_integer(b: Builder, node: OnnxNode) -> Any:
    for zero, of in ((2, 0), (3, 1)):
        _check_zero_point(node, zero, of)
    x, weight, x_zero, w_zero = node[0], node[1], node.get(2), node.get(3)
    if w_zero is not None and w_zero.ndim == 1 and w_zero.shape != (1,):
        w_zero = b.ones_like_axes(w_zero, 0, max(weight.ndim, 4) - 1)
    if x.ndim == 5:
        return b.cast(convolved(b, node, _less_zero(b, x, x_zero), _less_zero(b, weight, w_zero), None), VarType.INT32)
    return convolved(b, node, x, weight, None, [x_zero, w_zero])


def _factor(b: Builder, left_scale: Any, right_scale: Any, scale: Any) -> Any:
    """The factor from a product of integers to the integers of the result, as float64."""
    left, right, result = (b.cast(part, VarType.FP64) for part in (left_scale, right_scale, scale))
    return b.f.elementwise_div(b.f.elementwise_mul(left, right), result)


@imports("QLinearMatMul", trains=False)
def qlinear_matmul(b: Builder, node: OnnxNode) -> Any:
    x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = (node[n] for n in range(8))
    for place in (0, 3):
        check_parameters(node, place, place + 1, place + 2)
    product = b.cast(integer_product(b, x, y, x_zero, y_zero), VarType.FP64)
    factor = _factor(b, x_scale, y_scale, scale)
    return _requantized(b, product, factor, zero, node.tensor(7))


def _requantized(b: Builder, product: Any, factor: Any, zero: Any, zero_value: TensorValue) -> Any:
    """Scale a product, add a zero point, and round to the zero point's type."""
    number = type_of(zero_value)
    low, high = _limits(number)
    rounded_values = b.f.elementwise_add(b.f.rint(b.f.elementwise_mul(product, factor)), b.cast(zero, VarType.FP64))
    return b.cast(b.f.clip(rounded_values, min=float(low), max=float(high)), element_type(number, "its output"))


@imports("QLinearConv", trains=False)
def qlinear_conv(b: Builder, node: OnnxNode) -> Any:
    """A convolution of the integers' floats, which native code computes with the integers."""
    for place in (0, 3):
        check_parameters(node, place, place + 1, place + 2)
    check_scale(node, 6)
    x_scale, w_scale, bias = node[1], node[4], node.get(8)
    low, high = _limits(type_of(node.tensor(0)))
    floats = dequantized(b, node, node[0], x_scale, node.get(2))
    x = b.f.fake_quantize_affine(floats, x_scale, _zero_point(b, node.value(2)), quant_min=low, quant_max=high)
    weight = weight_of_integers(b, node, 3, 4, 5, axis=0).variable(b.block)
    if bias is not None:
        bias = b.f.elementwise_mul(b.cast(bias, VarType.FP32), b.f.elementwise_mul(w_scale, x_scale))
    out = convolved(b, node, x, weight, bias)
    return quantized(b, node, out, node[6], node.get(7), type_of(node.tensor(7)))
