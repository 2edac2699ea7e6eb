"""Common combinations of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import layers
from .errors import ProgramError
from .ir.program import Variable
from .param_attr import AttrLike

__all__ = ["glu", "img_conv_group", "scaled_dot_product_attention", "sequence_conv_pool", "simple_img_conv_pool"]


def simple_img_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    pool_size: int | Sequence[int],
    pool_stride: int | Sequence[int],
    pool_padding: int | Sequence[int] = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: int | Sequence[int] = 1,
    conv_padding: int | Sequence[int] = 0,
    conv_dilation: int | Sequence[int] = 1,
    conv_groups: int = 1,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Variable:
    """`layers.conv2d`, then `layers.pool2d`."""
    settings: dict[str, Any] = {"stride": conv_stride, "padding": conv_padding, "dilation": conv_dilation, "groups": conv_groups}
    conv = layers.conv2d(input, num_filters, filter_size, **settings, param_attr=param_attr, bias_attr=bias_attr, act=act)
    return layers.pool2d(conv, pool_size, pool_type, pool_stride, pool_padding, global_pooling)


def img_conv_group(
    input: Variable,
    conv_num_filter: Sequence[int],
    pool_size: int | Sequence[int],
    conv_padding: Any = 1,
    conv_filter_size: Any = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: Any = False,
    conv_batchnorm_drop_rate: Any = 0.0,
    pool_stride: int | Sequence[int] = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """Several `layers.conv2d`, each with optional `layers.batch_norm` and `layers.dropout`, then `layers.pool2d`.

    Arguments of the convolutions, such as `conv_padding`, are lists with one value each, or one value for all.
    """
    count = len(conv_num_filter)

    def each(value: Any, name: str) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            return [value] * count
        if len(value) != count:
            raise ProgramError(f"img_conv_group: there are {count} convolutions but {len(value)} of {name}")
        return list(value)

    paddings = each(conv_padding, "conv_padding")
    sizes = each(conv_filter_size, "conv_filter_size")
    attrs = each(param_attr, "param_attr")
    norms = each(conv_with_batchnorm, "conv_with_batchnorm")
    rates = each(conv_batchnorm_drop_rate, "conv_batchnorm_drop_rate")
    out = input
    for filters, padding, size, attr, norm, rate in zip(conv_num_filter, paddings, sizes, attrs, norms, rates, strict=True):
        out = layers.conv2d(out, filters, size, padding=padding, param_attr=attr, act=None if norm else conv_act)
        if norm:
            out = layers.batch_norm(out, act=conv_act)
            if rate:
                out = layers.dropout(out, rate)
    return layers.pool2d(out, pool_size, pool_type, pool_stride)


def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: AttrLike = None,
    act: str = "sigmoid",
    pool_type: str = "max",
    bias_attr: AttrLike = None,
) -> Variable:
    """`layers.sequence_conv`, then `layers.sequence_pool`."""
    conv = layers.sequence_conv(input, num_filters, filter_size, param_attr=param_attr, bias_attr=bias_attr, act=act)
    return layers.sequence_pool(conv, pool_type)


def glu(input: Variable, dim: int = -1) -> Variable:
    """Gated linear unit ``a * sigmoid(b)``, where `a` and `b` are the halves of `input` along `dim`."""
    a, b = layers.split(input, 2, dim)
    return layers.elementwise_mul(a, layers.sigmoid(b))


def scaled_dot_product_attention(
    queries: Variable, keys: Variable, values: Variable, num_heads: int = 1, dropout_rate: float = 0.0
) -> Variable:
    """``softmax(queries @ keys.T / sqrt(d)) @ values`` of inputs ``[batch, length, features]``, for each of `num_heads` heads."""
    for name, var in (("queries", queries), ("keys", keys), ("values", values)):
        if var.ndim != 3:
            raise ProgramError(f"attention: {name} should have 3 dimensions; {var.name} is {var.describe()}")
    if queries.shape[-1] != keys.shape[-1]:
        raise ProgramError(f"attention: queries have {queries.shape[-1]} features but keys {keys.shape[-1]}")
    if num_heads < 1 or keys.shape[-1] % num_heads or values.shape[-1] % num_heads:
        raise ProgramError(f"attention: {keys.shape[-1]} and {values.shape[-1]} features cannot be split into {num_heads} heads")

    def heads(var: Variable) -> Variable:
        if num_heads == 1:
            return var
        return layers.transpose(layers.reshape(var, [0, 0, num_heads, var.shape[-1] // num_heads]), [0, 2, 1, 3])

    scaled = layers.scale(heads(queries), (keys.shape[-1] // num_heads) ** -0.5)
    weights = layers.softmax(layers.matmul(scaled, heads(keys), transpose_y=True))
    if dropout_rate:
        weights = layers.dropout(weights, dropout_rate)
    out = layers.matmul(weights, heads(values))
    if num_heads == 1:
        return out
    return layers.reshape(layers.transpose(out, [0, 2, 1, 3]), [0, 0, values.shape[-1]])
