"""Quantized ops of the domain com.microsoft, which onnxruntime's quantizer writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..table import import_of
from ..values import TensorValue
from .microsoft import count_of, microsoft
from .quantization import (
    check_parameters,
    check_scale,
    dequantize_linear,
    dequantized,
    integer_product,
    quantize_linear,
    quantized,
    quantized_by_range,
    type_of,
)

microsoft("QuantizeLinear", trains=False)(quantize_linear)
microsoft("DequantizeLinear")(dequantize_linear)


def _dequantized_input(b: Builder, node: OnnxNode, place: int) -> Any:
    """Dequantize an input of a node; its scale and zero point are the next two inputs."""
    check_parameters(node, place, place + 1, place + 2)
    return dequantized(b, node, node[place], node[place + 1], node.get(place + 2))


def _quantized_result(b: Builder, node: OnnxNode, out: Any, place: int, like: int = 0) -> Any:
    """Quantize a result. Its scale is input `place`, its zero point the next one; without it, the type is of input `like`."""
    check_scale(node, place)
    typed = node.tensor(like if node.value(place + 1) is None else place + 1)
    return quantized(b, node, out, node[place], node.get(place + 1), type_of(typed))


# --------------------------------------------------------------------------------------------- integers in, integers out
def _of_two(op: str) -> Any:
    """The importer of an op with two quantized inputs."""

    def build(b: Builder, node: OnnxNode) -> Any:
        return _quantized_result(b, node, getattr(b.f, op)(_dequantized_input(b, node, 0), _dequantized_input(b, node, 3)), 6)

    return build


for _onnx, _ours in {"QLinearAdd": "elementwise_add", "QLinearMul": "elementwise_mul"}.items():
    microsoft(_onnx, trains=False)(_of_two(_ours))


@microsoft("QLinearSigmoid", trains=False)
def qlinear_sigmoid(b: Builder, node: OnnxNode) -> Any:
    return _quantized_result(b, node, b.f.sigmoid(_dequantized_input(b, node, 0)), 3)


@microsoft("QLinearLeakyRelu", trains=False)
def qlinear_leaky_relu(b: Builder, node: OnnxNode) -> Any:
    return _quantized_result(b, node, b.f.leaky_relu(_dequantized_input(b, node, 0), alpha=node.float("alpha", 0.01)), 3)


@microsoft("QLinearSoftmax", trains=False)
def qlinear_softmax(b: Builder, node: OnnxNode) -> Any:
    x, opset = _dequantized_input(b, node, 0), node.int("opset", 13)
    if opset < 13:
        raise FormatError(f"its opset {opset} should be 13 or later")
    return _quantized_result(b, node, b.f.softmax(x, axis=node.int("axis", -1)), 3)


def _channels_first(b: Builder, node: OnnxNode, x: Any) -> Any:
    """Move the channels of images to the front, if the node has them last."""
    return b.transpose(x, [0, x.ndim - 1, *range(1, x.ndim - 1)]) if node.int("channels_last", 0) else x


def _in_order_of_node(b: Builder, node: OnnxNode, x: Any) -> Any:
    """Undo `_channels_first`."""
    return b.transpose(x, [0, *range(2, x.ndim), 1]) if node.int("channels_last", 0) else x


@microsoft("QLinearGlobalAveragePool", trains=False)
def qlinear_global_average_pool(b: Builder, node: OnnxNode) -> Any:
    x = _channels_first(b, node, _dequantized_input(b, node, 0))
    out = b.reduce("reduce_mean", x, list(range(2, x.ndim)), True)
    return _quantized_result(b, node, _in_order_of_node(b, node, out), 3)


@microsoft("QLinearAveragePool", trains=False)
def qlinear_average_pool(b: Builder, node: OnnxNode) -> Any:
    x = _channels_first(b, node, _dequantized_input(b, node, 0))
    how = import_of("AveragePool", 19)
    assert how is not None
    out = how.build(b, OnnxNode(node.proto, [TensorValue(x)], 19, node.reader))
    return _quantized_result(b, node, _in_order_of_node(b, node, out), 3)


@microsoft("QLinearConcat", trains=False)
def qlinear_concat(b: Builder, node: OnnxNode) -> Any:
    if len(node) < 5 or (len(node) - 2) % 3:
        raise FormatError(f"it has {len(node)} inputs; it should have a scale, a zero point, and three for each part")
    parts = [_dequantized_input(b, node, place) for place in range(2, len(node), 3)]
    return _quantized_result(b, node, b.f.concat(parts, axis=node.int("axis")), 0)


@microsoft("QGemm", trains=False)
def qgemm(b: Builder, node: OnnxNode) -> Any:
    for place in (0, 3):
        check_parameters(node, place, place + 1, place + 2)
    a, w = node[0], node[3]
    a = b.transpose(a, [1, 0]) if node.int("transA", 0) else a
    w = b.transpose(w, [1, 0]) if node.int("transB", 0) else w
    product = integer_product(b, a, w, node.get(2), node.get(5))
    if node.value(6) is not None:
        product = b.f.elementwise_add(product, node[6])
    scale = b.f.scale(b.f.elementwise_mul(node[1], node[4]), scale=node.float("alpha", 1.0))
    out = b.f.elementwise_mul(b.cast(product, VarType.FP32), scale)
    return out if node.value(7) is None else _quantized_result(b, node, out, 7)


# ----------------------------------------------------------------------------------------------------- floats come out
def _scaled(b: Builder, product: Any, scales: list[Any], bias: Any) -> Any:
    """Scale a product of integers to floats, and add a bias."""
    out = b.cast(product, VarType.FP32)
    for scale in scales:
        out = b.f.elementwise_mul(out, scale)
    return out if bias is None else b.f.elementwise_add(out, bias)


@microsoft("MatMulIntegerToFloat", trains=False)
def matmul_integer_to_float(b: Builder, node: OnnxNode) -> Any:
    for place in (0, 1):
        check_parameters(node, place, place + 2, place + 4)
    product = integer_product(b, node[0], node[1], node.get(4), node.get(5))
    return _scaled(b, product, [node[2], node[3]], node.get(6))


@microsoft("DynamicQuantizeMatMul", trains=False)
def dynamic_quantize_matmul(b: Builder, node: OnnxNode) -> Any:
    check_parameters(node, 1, 2, 3)
    x, scale, zero = quantized_by_range(b, node, node[0])
    product = integer_product(b, x, node[1], zero, node.get(3))
    return _scaled(b, product, [scale, node[2]], node.get(4))


@microsoft("MatMulNBits")
def matmul_n_bits(b: Builder, node: OnnxNode) -> Any:
    """A product with weights of 2, 4 or 8 bits, which become a parameter of floats."""
    columns, inner, block = (count_of(node, name) for name in ("N", "K", "block_size"))
    bits = node.int("bits", 4)
    if bits not in (2, 4, 8) or node.value(4) is not None:
        raise FormatError(f"its bits, {bits}, should be 2, 4 or 8, and it should have no g_idx")
    blocks = -(-inner // block)
    b.reserve(columns, blocks * block, itemsize=12)
    packed, scales = (node.constant_input(place, label) for place, label in ((1, "its weights"), (2, "its scales")))
    if packed is None or packed.dtype != np.uint8 or packed.size * 8 != columns * blocks * block * bits:
        raise FormatError(f"its weights should be uint8 of the shape {[columns, blocks, block * bits // 8]}")
    if scales is None or scales.size != columns * blocks:
        raise FormatError(f"its scales should be {columns * blocks} numbers, one for each block")
    codes, scales = _unpacked(packed, bits).reshape(columns, blocks, block), scales.reshape(columns, blocks, 1)
    zeros = node.constant_input(3, "its zero points")
    if zeros is None:
        zeros = np.float32(1 << (bits - 1))
    elif zeros.dtype == np.uint8:
        zeros = _unpacked(zeros.reshape(columns, -1), bits)[:, :blocks, None]
    else:
        zeros = zeros.reshape(columns, blocks, 1)
    floats = ((codes - zeros) * scales.astype(np.float32)).astype(np.float32).reshape(columns, -1)[:, :inner]
    weight = b.persistable(b.fresh_name(node.proto.input[1]), floats.T)
    x = node[0]
    out = b.f.matmul_v2(b.cast(x, VarType.FP32), weight)
    out = out if node.value(5) is None else b.f.elementwise_add(out, b.cast(node[5], VarType.FP32))
    return b.cast(out, x.dtype)


def _unpacked(packed: Any, bits: int) -> Any:
    """Unpack numbers of `bits` bits from bytes, the lowest bits first, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1).astype(np.float32)
