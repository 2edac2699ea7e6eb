"""Normalization."""

from __future__ import annotations

from typing import Any

from ...values.types import accumulated
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports


@imports("BatchNormalization")
def batch_norm(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    training = _is_training(node)
    is_flat = x.ndim < 2
    if is_flat:
        x = b.unsqueeze(x, [1])
    scale, bias, mean, variance = (b.cast(node[n], x.dtype) for n in range(1, 5))
    names = ("Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance")
    outputs: dict[str, Any] = {name: b.temporary() for name in names}
    if training and not (mean.persistable and variance.persistable):
        mean, variance = b.f.assign(mean), b.f.assign(variance)
    outputs["MeanOut"], outputs["VarianceOut"] = mean, variance  # updated in place
    b.append(
        "batch_norm",
        {"X": x, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance},
        outputs,
        {"momentum": node.float("momentum", 0.9), "epsilon": node.float("epsilon", 1e-5), "is_test": not training},
    )
    y = b.squeeze(outputs["Y"], [1]) if is_flat else outputs["Y"]
    return (y, outputs["MeanOut"], outputs["VarianceOut"]) if training else y


def _is_training(node: OnnxNode) -> bool:
    """Whether a batch normalization computes the statistics of its batch; opsets from 7 to 13 always read stored ones."""
    if node.opset >= 14:
        return bool(node.int("training_mode", 0))
    return node.opset < 7 and not node.int("is_test", 1)


@imports("InstanceNormalization")
def instance_norm(b: Builder, node: OnnxNode) -> Any:
    return b.f.instance_norm(node[0], node[1], node[2], epsilon=node.float("epsilon", 1e-5))


@imports("LayerNormalization")
def layer_norm(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axis = node.int("axis", -1)
    axis = axis + x.ndim if axis < 0 else axis
    scale, bias = node.get(1), node.get(2)
    wants_statistics = any(name for name in node.proto.output[1:])
    is_vector = all(part is None or part.shape == x.shape[axis:] for part in (scale, bias)) and -1 not in x.shape[axis:]
    epsilon = node.float("epsilon", 1e-5)
    if axis > 0 and is_vector and not wants_statistics:
        scale, bias = (part if part is None or part.ndim == 1 else b.f.reshape2(part, shape=[-1]) for part in (scale, bias))
        return b.f.layer_norm(x, scale, bias, epsilon=epsilon, begin_norm_axis=axis)
    axes = list(range(axis, x.ndim))
    wide = b.cast(x, accumulated(x.dtype))
    mean = b.reduce("reduce_mean", wide, axes, True)
    centered = wide - mean
    inverse = b.f.rsqrt(b.reduce("reduce_mean", b.f.square(centered), axes, True) + b.number(epsilon, wide.dtype))
    out = b.cast(b.f.elementwise_mul(centered, inverse), x.dtype)
    if scale is not None:
        out = b.f.elementwise_mul(out, scale)
    if bias is not None:
        out = b.f.elementwise_add(out, bias)
    return out, mean, inverse


@imports("GroupNormalization", since=18)
def group_norm_of_groups(b: Builder, node: OnnxNode) -> Any:
    return NotImplemented  # one scale and bias for each group: ONNX's function defines it


@imports("GroupNormalization", since=21)
def group_norm(b: Builder, node: OnnxNode) -> Any:
    return b.f.group_norm(node[0], node[1], node[2], epsilon=node.float("epsilon", 1e-5), groups=node.int("num_groups"))


@imports("RMSNormalization")
def rms_norm(b: Builder, node: OnnxNode) -> Any:
    x, scale = node[0], node[1]
    axis = node.int("axis", -1)
    axes = list(range(axis + x.ndim if axis < 0 else axis, x.ndim))
    wide = b.cast(x, accumulated(x.dtype))
    inverse = b.f.rsqrt(b.reduce("reduce_mean", b.f.square(wide), axes, True) + b.number(node.float("epsilon", 1e-5), wide.dtype))
    return b.f.elementwise_mul(b.cast(b.f.elementwise_mul(wide, inverse), x.dtype), scale)


@imports("LpNormalization")
def lp_norm(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axis = node.int("axis", -1)
    size = b.f.abs(x) if node.int("p", 2) == 1 else b.f.square(x)
    norm = b.reduce("reduce_sum", size, [axis], True)
    norm = norm if node.int("p", 2) == 1 else b.f.sqrt(norm)
    is_zero = b.cast(b.f.equal(norm, b.number(0, x.dtype)), x.dtype)
    return b.f.elementwise_div(x, norm + is_zero)


@imports("LRN")
def lrn(b: Builder, node: OnnxNode) -> Any:
    size = node.int("size")
    x = node[0]
    attrs = {"n": size, "k": node.float("bias", 1.0), "alpha": node.float("alpha", 1e-4) / size, "beta": node.float("beta", 0.75)}
    if x.ndim == 4:
        return b.f.lrn(x, **attrs)
    flat = b.f.reshape2(x, shape=[0, 0, -1, 1])
    return b.f.reshape_like(b.f.lrn(flat, **attrs), x)
