"""Quantized tensors: integers with a scale and a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...values.types import VarType, is_floating
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from ..types import element_type, integer_bits
from ..values import TensorValue
from .convolution import convolved
from .elementwise import _number_of, round_half_even, rounded


def _limits(number: int) -> tuple[int, int]:
    bits = integer_bits(number) or 8
    return (0, (1 << bits) - 1) if bits > 0 else (-(1 << (-bits - 1)), (1 << (-bits - 1)) - 1)


def _along(b: Builder, x: Any, part: Any, node: OnnxNode) -> Any:
    """Shape a scale or zero point to broadcast to `x`: one for each element of an axis, or for each block along it."""
    axis = node.int("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    if part.ndim == 0 or (part.shape == (1,) and x.shape[min(axis, x.ndim - 1)] != 1):
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
    if is_floating(x.dtype) and x.dtype is not scale.dtype:
        x = b.cast(x, scale.dtype)
    ratio = b.f.elementwise_div(b.cast(x, scale.dtype), _along(b, x, scale, node))
    if is_floating(dtype):
        ratio = b.cast(ratio, VarType.FP32)
        if zero is not None:
            ratio = b.f.elementwise_add(ratio, b.cast(_along(b, x, zero, node), VarType.FP32))
        return TensorValue(rounded(b, ratio, number, bool(node.int("saturate", 1))), onnx_type=number)
    rounded_values = round_half_even(b, b.cast(ratio, VarType.FP32) if ratio.dtype is VarType.FP16 else ratio)
    if zero is not None:
        rounded_values = b.f.elementwise_add(rounded_values, b.cast(_along(b, x, zero, node), rounded_values.dtype))
    low, high = _limits(number)
    return TensorValue(
        b.cast(b.f.clip(rounded_values, min=float(low), max=float(high)), dtype),
        onnx_type=number if dtype.numpy.itemsize * 8 != abs(integer_bits(number) or 8) else None,
    )


@imports("QuantizeLinear", trains=False)
def quantize_linear(b: Builder, node: OnnxNode) -> Any:
    number = 2
    if node.value(2) is not None:
        zero = node.tensor(2)
        number = zero.onnx_type or _number_of(zero.dtype)
    elif node.int("output_dtype", 0):
        number = node.int("output_dtype")
    return quantized(b, node, node[0], node[1], node.get(2), number)


def dequantized(b: Builder, node: OnnxNode, x: Any, scale: Any, zero: Any) -> Any:
    """Convert integers to floats: the difference from the zero point, times the scale."""
    wide = b.cast(x, VarType.FP32)
    if zero is not None:
        wide = b.f.elementwise_sub(wide, b.cast(_along(b, x, zero, node), VarType.FP32))
    return b.cast(b.f.elementwise_mul(wide, b.cast(_along(b, x, scale, node), VarType.FP32)), scale.dtype)


@imports("DequantizeLinear")
def dequantize_linear(b: Builder, node: OnnxNode) -> Any:
    out = dequantized(b, node, node[0], node[1], node.get(2))
    number = node.int("output_dtype", 0)
    return b.cast(out, element_type(number, "its output_dtype")) if number else out


def _less_zero(b: Builder, x: Any, zero: Any, dtype: VarType, axis: int | None = None) -> Any:
    """Subtract the zero point from integers; a vector has one zero point for each element of `axis`."""
    wide = b.cast(x, dtype)
    if zero is None:
        return wide
    if zero.ndim == 1 and axis is not None and zero.shape != (1,):
        zero = b.ones_like_axes(zero, axis, x.ndim - axis - 1)
    return b.f.elementwise_sub(wide, b.cast(zero, dtype))


@imports("MatMulInteger", trains=False)
def matmul_integer(b: Builder, node: OnnxNode) -> Any:
    x, y = node[0], node[1]
    left = _less_zero(b, x, node.get(2), VarType.INT32, x.ndim - 2)
    right = _less_zero(b, y, node.get(3), VarType.INT32, y.ndim - 1)
    return b.f.matmul_v2(left, right)


@imports("ConvInteger", trains=False)
def conv_integer(b: Builder, node: OnnxNode) -> Any:
    x, weight = node[0], node[1]
    left = _less_zero(b, x, node.get(2), VarType.FP64)
    right = _less_zero(b, weight, node.get(3), VarType.FP64, 0)
    return b.cast(convolved(b, node, left, right, None), VarType.INT32)


@imports("QLinearMatMul", trains=False)
def qlinear_matmul(b: Builder, node: OnnxNode) -> Any:
    x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = (node[n] for n in range(8))
    left = _less_zero(b, x, x_zero, VarType.FP64, x.ndim - 2)
    right = _less_zero(b, y, y_zero, VarType.FP64, y.ndim - 1)
    product = b.f.matmul_v2(left, right)
    factor = b.f.elementwise_div(
        b.f.elementwise_mul(b.cast(x_scale, VarType.FP64), b.cast(y_scale, VarType.FP64)), b.cast(scale, VarType.FP64)
    )
    return _requantized(b, product, factor, zero, node.tensor(7))


def _requantized(b: Builder, product: Any, factor: Any, zero: Any, zero_value: TensorValue) -> Any:
    number = zero_value.onnx_type or _number_of(zero_value.dtype)
    low, high = _limits(number)
    rounded_values = b.f.elementwise_add(round_half_even(b, b.f.elementwise_mul(product, factor)), b.cast(zero, VarType.FP64))
    return b.cast(b.f.clip(rounded_values, min=float(low), max=float(high)), element_type(number, "its output"))


@imports("QLinearConv", trains=False)
def qlinear_conv(b: Builder, node: OnnxNode) -> Any:
    x, x_scale, x_zero, weight, w_scale, w_zero, scale, zero = (node[n] for n in range(8))
    left = _less_zero(b, x, x_zero, VarType.FP64)
    right = _less_zero(b, weight, w_zero, VarType.FP64, 0)
    bias = node.get(8)
    product = convolved(b, node, left, right, None if bias is None else b.cast(bias, VarType.FP64))
    factor = b.f.elementwise_div(
        b.f.elementwise_mul(b.cast(x_scale, VarType.FP64), b.cast(w_scale, VarType.FP64)), b.cast(scale, VarType.FP64)
    )
    if factor.ndim == 1 and factor.shape != (1,):
        factor = b.ones_like_axes(factor, 0, x.ndim - 2)
    return _requantized(b, product, factor, zero, node.tensor(7))
