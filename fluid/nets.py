"""Common combinations of layers."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from . import layers
from .errors import FluidTypeError, ProgramError
from .ir.program import Variable
from .not_here import names_here, names_not_here
from .param_attr import AttrLike

__all__ = [
    "glu",
    "img_conv_group",
    "multi_head_attention",
    "scaled_dot_product_attention",
    "sequence_conv_pool",
    "simple_img_conv_pool",
]

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)


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
    """`layers.conv2d`, then `layers.pool2d`.

    Args:
        input: images ``[N, C, H, W]``, float.
        num_filters: number of filters of the convolution.
        filter_size: their height and width, or one number for both.
        pool_size, pool_stride, pool_padding, pool_type, global_pooling: of the pooling, as of `layers.pool2d`.
        conv_stride, conv_padding, conv_dilation, conv_groups: of the convolution, as of `layers.conv2d`.
        param_attr: attributes of the filters.
        bias_attr: attributes of the bias; False for none.
        act: activation op of the convolution.
        use_cudnn: accepted and ignored.

    >>> images = fluid.data("images", [None, 1, 28, 28])
    >>> fluid.nets.simple_img_conv_pool(images, num_filters=20, filter_size=5, pool_size=2, pool_stride=2, act="relu").shape
    (-1, 20, 12, 12)
    """
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

    Args:
        input: images ``[N, C, H, W]``, float.
        conv_num_filter: a list of the number of filters of each convolution.
        pool_size, pool_stride, pool_type: of the pooling, as of `layers.pool2d`.
        conv_padding, conv_filter_size, param_attr: of each convolution, as of `layers.conv2d`: a list, or one value for all.
        conv_act: activation op of each convolution, or of the normalization after it.
        conv_with_batchnorm: whether `layers.batch_norm` follows each convolution: a list, or one value for all.
        conv_batchnorm_drop_rate: probability of the dropout after it, 0 for none: a list, or one value for all.
        use_cudnn: accepted and ignored.

    Raises:
        ProgramError: if a list has another length than `conv_num_filter`.

    >>> images = fluid.data("images", [None, 3, 32, 32])
    >>> fluid.nets.img_conv_group(images, [64, 64], pool_size=2, conv_act="relu", conv_with_batchnorm=True, pool_stride=2).shape
    (-1, 64, 16, 16)
    """
    count = len(conv_num_filter)

    def one_per_convolution(value: Any, name: str) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            return [value] * count
        if len(value) != count:
            raise ProgramError(f"img_conv_group: there are {count} convolutions but {len(value)} of {name}")
        return list(value)

    paddings = one_per_convolution(conv_padding, "conv_padding")
    sizes = one_per_convolution(conv_filter_size, "conv_filter_size")
    attrs = one_per_convolution(param_attr, "param_attr")
    norms = one_per_convolution(conv_with_batchnorm, "conv_with_batchnorm")
    rates = one_per_convolution(conv_batchnorm_drop_rate, "conv_batchnorm_drop_rate")
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
    """`layers.sequence_conv`, then `layers.sequence_pool`.

    Args:
        input: rows of sequences, ``[rows, width]``, float.
        num_filters: number of filters of the convolution.
        filter_size: number of rows that a filter covers.
        param_attr: attributes of its weights.
        act: its activation op.
        pool_type: as of `layers.sequence_pool`.
        bias_attr: attributes of its bias.

    >>> words = fluid.data("words", [None, 16], lod_level=1)
    >>> fluid.nets.sequence_conv_pool(words, num_filters=32, filter_size=3).shape
    (-1, 32)
    """
    conv = layers.sequence_conv(input, num_filters, filter_size, param_attr=param_attr, bias_attr=bias_attr, act=act)
    return layers.sequence_pool(conv, pool_type)


def glu(input: Variable, dim: int = -1) -> Variable:
    """Gated linear unit ``a * sigmoid(b)``, where `a` and `b` are the halves of `input` along `dim`.

    Formula: Dauphin et al., Language Modeling with Gated Convolutional Networks, 2017.

    Args:
        input: float; its size along `dim` is even.
        dim: the dimension that is halved.

    >>> fluid.nets.glu(fluid.dygraph.to_variable([[1.0, 2.0, 0.0, 0.0]]))
    Tensor([[0.5, 1. ]], shape=[1, 2], dtype=float32)
    """
    a, b = layers.split(input, 2, dim)
    return layers.elementwise_mul(a, layers.sigmoid(b))


def scaled_dot_product_attention(
    queries: Variable, keys: Variable, values: Variable, num_heads: int = 1, dropout_rate: float = 0.0
) -> Variable:
    """`multi_head_attention` of queries, keys and values, projected by a layer `fc` each if there are several heads.

    Args:
        queries: ``[batch, queries, features]``, float.
        keys: ``[batch, keys, features]``.
        values: ``[batch, keys, values]``.
        num_heads: see `multi_head_attention`. With one head, there are no projections and so no parameters.
        dropout_rate: probability of dropout of the softmax.

    Returns:
        ``[batch, queries, values]``.

    Raises:
        ProgramError: if the shapes do not fit.

    >>> queries, keys = fluid.data("queries", [None, 7, 64]), fluid.data("keys", [None, 9, 64])
    >>> fluid.nets.scaled_dot_product_attention(queries, keys, keys, num_heads=8).shape
    (-1, 7, 64)
    """
    _check_heads(queries, keys, values, num_heads)
    if num_heads > 1:
        queries, keys, values = (layers.fc(var, var.shape[-1], num_flatten_dims=2) for var in (queries, keys, values))
    return multi_head_attention(queries, keys, values, num_heads, dropout_rate)


def multi_head_attention(
    queries: Variable, keys: Variable, values: Variable, num_heads: int, dropout_rate: float = 0.0
) -> Variable:
    """``softmax(queries @ keys.T / sqrt(d)) @ values``, for each head, without parameters.

    Formula: Vaswani et al., Attention Is All You Need, 2017. `fluid.dygraph.MultiHeadAttention` has projections, too.

    Args:
        queries: ``[batch, queries, features]``, float.
        keys: ``[batch, keys, features]``.
        values: ``[batch, keys, values]``.
        num_heads: number of parts that features and values are split into, which it divides; d is the size of a part of the
            features.
        dropout_rate: probability of dropout of the softmax.

    Returns:
        ``[batch, queries, values]``.

    Raises:
        ProgramError: if the shapes do not fit.

    >>> queries, keys = fluid.data("queries", [None, 7, 64]), fluid.data("keys", [None, 9, 64])
    >>> fluid.nets.multi_head_attention(queries, keys, keys, num_heads=8).shape
    (-1, 7, 64)
    """
    _check_heads(queries, keys, values, num_heads)

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


def _check_heads(queries: Variable, keys: Variable, values: Variable, num_heads: int) -> None:
    """`ProgramError` unless the shapes of queries, keys and values fit each other and the number of heads."""
    for name, var in (("queries", queries), ("keys", keys), ("values", values)):
        if var.ndim != 3:
            raise ProgramError(f"attention: {name} should have 3 dimensions; {var.name} is {var.describe()}")
    if keys.shape[-1] < 1:
        raise ProgramError(f"attention: the number of features should be known and above 0; {keys.name} is {keys.describe()}")
    if queries.shape[-1] != keys.shape[-1]:
        raise ProgramError(f"attention: queries have {queries.shape[-1]} features but keys {keys.shape[-1]}")
    if not isinstance(num_heads, Integral):
        raise FluidTypeError(f"attention: num_heads should be an integer, not {num_heads!r}")
    if num_heads < 1 or keys.shape[-1] % num_heads or values.shape[-1] % num_heads:
        raise ProgramError(f"attention: {keys.shape[-1]} and {values.shape[-1]} features cannot be split into {num_heads} heads")
