"""Ops of the domain com.microsoft, which onnxruntime's optimizer writes for transformers and fused layers."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from .convolution import convolved
from .matmul import gemm

_SMALLEST = -3.4e38


def microsoft(op_type: str, trains: bool = True) -> Callable[[Any], Any]:
    """Register the decorated function as the importer of an op of com.microsoft."""
    return imports(f"com.microsoft::{op_type}", trains=trains)


def count_of(node: OnnxNode, name: str) -> int:
    """The value of an attribute that must be an integer above 0."""
    count: int | None = node.int(name)
    if count is None or count < 1:
        raise FormatError(f"its {name} is {count}; it should be above 0")
    return count


# ---------------------------------------------------------------------------------------------------------- activations
@microsoft("Gelu")
def gelu(b: Builder, node: OnnxNode) -> Any:
    return b.f.gelu(node[0])


@microsoft("BiasGelu")
def bias_gelu(b: Builder, node: OnnxNode) -> Any:
    return b.f.gelu(b.f.elementwise_add(node[0], node[1]))


@microsoft("FastGelu")
def fast_gelu(b: Builder, node: OnnxNode) -> Any:
    bias = node.get(1)
    return b.f.gelu(node[0] if bias is None else b.f.elementwise_add(node[0], bias), approximate=True)


@microsoft("QuickGelu")
def quick_gelu(b: Builder, node: OnnxNode) -> Any:
    return b.f.swish(node[0], beta=node.float("alpha", 1.702))


def activated(b: Builder, x: Any, node: OnnxNode) -> Any:
    """Apply the activation that the attributes of a fused node name."""
    name, numbers = node.string("activation"), node.floats("activation_params", [])
    alpha, beta = node.float("activation_alpha", 0.01), node.float("activation_beta", 0.5)
    first, second = (*numbers, *[alpha, beta][len(numbers) :])[:2]
    activations = {
        "": lambda: x,
        "Relu": lambda: b.f.relu(x),
        "Tanh": lambda: b.f.tanh(x),
        "Sigmoid": lambda: b.f.sigmoid(x),
        "LeakyRelu": lambda: b.f.leaky_relu(x, alpha=first),
        "Clip": lambda: b.f.clip(x, min=first, max=second),
        "HardSigmoid": lambda: b.f.hard_sigmoid(x, slope=first, offset=second),
    }
    if name not in activations:
        raise FormatError(f"its activation {name!r} should be one of {', '.join(filter(None, activations))}")
    return activations[name]()


# ------------------------------------------------------------------------------------------------- products, convolutions
@microsoft("FusedMatMul")
def fused_matmul(b: Builder, node: OnnxNode) -> Any:
    if node.int("transBatchA", 0) or node.int("transBatchB", 0):
        raise FormatError("its transBatchA and transBatchB should be 0")
    attrs = {"trans_x": bool(node.int("transA", 0)), "trans_y": bool(node.int("transB", 0))}
    out = b.f.matmul_v2(node[0], node[1], **attrs)
    return b.f.scale(out, scale=node.float("alpha", 1.0))


@microsoft("FusedGemm")
def fused_gemm(b: Builder, node: OnnxNode) -> Any:
    return activated(b, gemm(b, node), node)


@microsoft("FusedConv")
def fused_conv(b: Builder, node: OnnxNode) -> Any:
    out, added = convolved(b, node, node[0], node[1], node.get(2)), node.get(3)
    return activated(b, out if added is None else b.f.elementwise_add(out, added), node)


# -------------------------------------------------------------------------------------------------------- normalization
def _normalized(b: Builder, node: OnnxNode, x: Any, scale: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Normalize the last axis: the result, the mean (None without a bias), and the inverse deviation."""
    axis = [x.ndim - 1]
    epsilon = b.number(node.float("epsilon", 1e-12), x.dtype)
    if bias is None:
        inverse = b.f.rsqrt(b.reduce("reduce_mean", b.f.square(x), axis, True) + epsilon)
        return b.f.elementwise_mul(b.f.elementwise_mul(x, inverse), scale), None, inverse
    if not any(node.proto.output[1:3]):
        return b.f.layer_norm(x, scale, bias, epsilon=node.float("epsilon", 1e-12), begin_norm_axis=x.ndim - 1), None, None
    mean = b.reduce("reduce_mean", x, axis, True)
    centered = x - mean
    inverse = b.f.rsqrt(b.reduce("reduce_mean", b.f.square(centered), axis, True) + epsilon)
    scaled = b.f.elementwise_mul(b.f.elementwise_mul(centered, inverse), scale)
    return b.f.elementwise_add(scaled, bias), mean, inverse


def _sum(b: Builder, *parts: Any) -> Any:
    first, *more = [part for part in parts if part is not None]
    for part in more:
        first = b.f.elementwise_add(first, part)
    return first


def _zeros(b: Builder, like: Any) -> Any:
    return b.constant(np.zeros(like.shape, like.dtype.numpy))


@microsoft("SkipLayerNormalization")
def skip_layer_norm(b: Builder, node: OnnxNode) -> Any:
    x = _sum(b, node[0], node[1], node.get(4))
    beta = node.get(3)
    return (*_normalized(b, node, x, node[2], _zeros(b, node[2]) if beta is None else beta), x)


@microsoft("SkipSimplifiedLayerNormalization")
def skip_rms_norm(b: Builder, node: OnnxNode) -> Any:
    x = _sum(b, node[0], node[1], node.get(3))
    return (*_normalized(b, node, x, node[2], None), x)


@imports("SimplifiedLayerNormalization")
def rms_norm(b: Builder, node: OnnxNode) -> Any:
    out, _, inverse = _normalized(b, node, node[0], node[1], None)
    return out, inverse


@microsoft("EmbedLayerNormalization")
def embed_layer_norm(b: Builder, node: OnnxNode) -> Any:
    ids, segments, mask, positions = node[0], node.get(1), node.get(7), node.get(8)
    words = b.f.lookup_table_v2(node[2], ids)
    if positions is None:
        places = b.f.cumsum(b.f.fill_any_like(ids, value=1.0, dtype=int(VarType.INT64)), axis=1)
        positions = places - b.number(1, VarType.INT64)
    parts = [words, b.f.lookup_table_v2(node[3], positions)]
    if segments is not None:
        parts.append(b.f.lookup_table_v2(node[4], segments))
    total = _sum(b, *parts)
    out = _normalized(b, node, total, node[5], node[6])[0]
    if mask is None:
        counts = b.reduce("reduce_sum", b.f.fill_any_like(ids, value=0.0, dtype=int(VarType.INT32)), [1], False)
    else:  # the number of tokens before the first one that is masked
        counts = b.cast(b.reduce("reduce_sum", b.f.cumprod(b.cast(mask, VarType.FP32), dim=1), [1], False), VarType.INT32)
    return out, counts, total


# ------------------------------------------------------------------------------------------------------------ attention
def _heads(b: Builder, x: Any, heads: int) -> Any:
    """Split rows [N, S, heads * size] into [N, heads, S, size]."""
    return b.transpose(b.f.reshape2(x, shape=[0, 0, heads, -1]), [0, 2, 1, 3])


def _positions_along(b: Builder, scores: Any, axis: int) -> Any:
    return b.f.cumsum(b.f.fill_any_like(scores, value=1.0), axis=axis)


def _mask_of(b: Builder, node: OnnxNode, mask: Any, scores: Any) -> Any:
    """A number to add to each score [N, heads, S, T]: 0, or a large negative one at masked positions."""
    masked = node.float("mask_filter_value", -10000.0)
    one = b.number(1, scores.dtype)
    if mask.ndim == 1:  # the number of positions of each sequence
        if -1 not in (mask.shape[0], scores.shape[0]) and mask.shape[0] != scores.shape[0]:
            raise FormatError(f"its mask {mask.shape} should have a length for each of {scores.shape[0]} sequences")
        lengths = b.ones_like_axes(b.cast(mask, scores.dtype), 0, 3)
        is_visible = b.cast(b.f.less_equal(_positions_along(b, scores, 3), b.f.expand_to(lengths, scores)), scores.dtype)
    elif mask.ndim in (2, 3):
        is_visible = b.f.unsqueeze2(b.cast(mask, scores.dtype), axes=[1, 2] if mask.ndim == 2 else [1])
    else:
        raise FormatError(f"its mask has {mask.ndim} dimensions; it should have 1, 2 or 3")
    return b.f.scale(one - is_visible, scale=masked)


def _attended(b: Builder, node: OnnxNode, parts: Any, mask: Any, added: Any, heads: int) -> Any:
    """Attend with queries, keys and values [N, heads, S, size]: [N, S, heads * size]."""
    query, key, value = parts
    scale = node.float("scale", 0.0)
    if not scale:
        if query.shape[3] < 0:
            raise FormatError("the size of its heads should be known when the program is built")
        scale = 1.0 / sqrt(query.shape[3])
    scores = b.f.scale(b.f.matmul_v2(query, key, trans_y=True), scale=scale)
    scores = _sum(b, scores, added, None if mask is None else _mask_of(b, node, mask, scores))
    if node.int("unidirectional", 0):
        columns, rows = (_positions_along(b, scores, axis) for axis in (3, 2))
        earlier = b.reduce("reduce_max", columns, None, True) - b.reduce("reduce_max", rows, None, True)
        late = b.f.greater_than(columns, rows + earlier)
        scores = scores + b.f.scale(b.cast(late, scores.dtype), scale=_SMALLEST / 2)
    mixed = b.f.matmul_v2(b.f.softmax(scores, axis=-1), value)
    return b.f.reshape2(b.transpose(mixed, [0, 2, 1, 3]), shape=[0, 0, heads * value.shape[3]])


@microsoft("Attention")
def attention(b: Builder, node: OnnxNode) -> Any:
    heads = count_of(node, "num_heads")
    if node.int("do_rotary", 0) or node.int("past_present_share_buffer", 0):
        raise FormatError("its do_rotary and past_present_share_buffer should be 0")
    projected = _sum(b, b.f.matmul_v2(node[0], node[1]), node.get(2))
    sizes = node.ints("qkv_hidden_sizes", [node[1].shape[1] // 3] * 3)
    parts = [_heads(b, part, heads) for part in b.f.split(projected, sections=sizes, axis=2)]
    past = node.get(4)
    if past is not None:
        before = [b.squeeze(b.slice(past, 0, number, number + 1), [0]) for number in (0, 1)]
        parts[1:] = [b.f.concat(pair, axis=2) for pair in zip(before, parts[1:], strict=True)]
    out = _attended(b, node, parts, node.get(3), node.get(5), heads)
    wants_present = len(node.proto.output) > 1 and node.proto.output[1]
    return (out, b.f.stack(parts[1:], axis=0)) if wants_present else out


@microsoft("MultiHeadAttention")
def multi_head_attention(b: Builder, node: OnnxNode) -> Any:
    if any(node.value(place) is None for place in (1, 2)) or any(value is not None for value in node.inputs[6:]):
        raise FormatError("it should have a query, a key and a value, and neither past keys nor past values")
    if any(node[place].ndim != 3 for place in range(3)):
        raise FormatError("its query, key and value should have 3 dimensions each")
    heads, bias = count_of(node, "num_heads"), node.get(3)
    parts = [node[place] for place in range(3)]
    if bias is not None:
        biases = b.f.split(bias, sections=[part.shape[2] for part in parts], axis=0)
        parts = [b.f.elementwise_add(part, row) for part, row in zip(parts, biases, strict=True)]
    return _attended(b, node, [_heads(b, part, heads) for part in parts], node.get(4), node.get(5), heads)
