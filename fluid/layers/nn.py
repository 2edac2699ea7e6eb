"""Layers with parameters, losses, matrix products, reshaping and indexing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..building.layer_helper import LayerHelper, apply, apply_many, extent, extents, listed, product
from ..building.sizes import TracedSize
from ..errors import FluidTypeError, ProgramError
from ..initializer import Constant, Normal
from ..ir.checked import Positive, check_variable
from ..ir.frames import warn_user
from ..ir.program import Operator, Parameter, Variable
from ..opdef import registry
from ..param_attr import AttrLike, ParamAttr
from ..values.types import DTypeLike, VarType, accumulated
from .arguments import speaking_of
from .tensor import constant, fill_constant, one_each

__all__ = [
    "adaptive_pool2d",
    "batch_norm",
    "bilinear_tensor_product",
    "clip",
    "clip_by_norm",
    "conv2d",
    "conv2d_transpose",
    "cross_entropy",
    "dropout",
    "einsum",
    "embedding",
    "expand",
    "fc",
    "flatten",
    "gather",
    "get_tensor_from_selected_rows",
    "huber_loss",
    "inplace_abn",
    "l2_normalize",
    "layer_norm",
    "matmul",
    "mean",
    "merge_selected_rows",
    "mse_loss",
    "mul",
    "one_hot",
    "pad2d",
    "pool2d",
    "pow",
    "rank",
    "reshape",
    "scale",
    "scatter_nd",
    "shape",
    "sigmoid_cross_entropy_with_logits",
    "slice",
    "softmax",
    "softmax_with_cross_entropy",
    "split",
    "square_error_cost",
    "squeeze",
    "stack",
    "strided_slice",
    "sum",
    "topk",
    "transpose",
    "unbind",
    "unsqueeze",
    "unstack",
    "where",
]

kIgnoreIndex = -100


# ------------------------------------------------------------------------------------------- layers with parameters
def fc(
    input: Variable | Sequence[Variable],
    size: Positive,
    num_flatten_dims: int = 1,
    param_attr: AttrLike | Sequence[AttrLike] = None,
    bias_attr: AttrLike = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """``act(sum_i input_i @ W_i + b)``.

    Args:
        input: one tensor or several; dimensions from `num_flatten_dims` on are flattened to features, and must be known.
        size: number of features of the result, ``[*input.shape[:num_flatten_dims], size]``.
        num_flatten_dims: number of dimensions that stay as they are, at least 1; negative numbers count from the end.
        param_attr: attributes of ``W_i``, ``[features_i, size]``; a list has one for each input.
        bias_attr: attributes of ``b``, ``[size]``; False for no bias.
        act: activation op, such as ``"relu"``.

    Raises:
        ProgramError: if a dimension that becomes features is -1, or `num_flatten_dims` leaves none.

    >>> x = fluid.data("x", [None, 13])
    >>> layers.fc(x, size=10, act="relu").shape
    (-1, 10)
    >>> [parameter.shape for parameter in fluid.default_main_program().all_parameters()]
    [(13, 10), (10,)]
    """
    helper = LayerHelper("fc", name, param_attr, bias_attr, act)
    inputs = listed(input)
    attrs = helper.param_attr if isinstance(helper.param_attr, list) else [helper.param_attr] * len(inputs)
    if len(attrs) != len(inputs):
        raise ProgramError(f"fc: there are {len(inputs)} inputs but {len(attrs)} param_attr")
    products = []
    for item, attr in zip(inputs, attrs, strict=True):
        check_variable(item, "fc: input")
        dims = num_flatten_dims if num_flatten_dims > 0 else item.ndim + num_flatten_dims
        if not 0 < dims < item.ndim:
            raise ProgramError(f"fc: num_flatten_dims={num_flatten_dims} leaves no features of {item.name} ({item.describe()})")
        features = product(item.shape[dims:])
        if features < 0:
            raise ProgramError(
                f"fc: the number of features of {item.name} ({item.describe()}) must be known: dimensions from "
                f"num_flatten_dims={num_flatten_dims} on cannot be -1"
            )
        weight = helper.create_parameter(attr, [features, size], item.dtype)
        products.append(helper.apply("mul", {"X": item, "Y": weight}, {"x_num_col_dims": dims, "y_num_col_dims": 1})["Out"])
    total = products[0] if len(products) == 1 else helper.apply("sum", {"X": products})["Out"]
    return helper.append_activation(helper.append_bias_op(total, dim_start=total.ndim - 1))


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: AttrLike = None,
    dtype: DTypeLike = "float32",
) -> Variable:
    """Looks up rows of a table: ids of shape ``[..., 1]`` give ``[..., size[1]]``.

    Args:
        input: int32 or int64 ids, ``[..., 1]``, each below ``size[0]``.
        size: ``[rows, columns]`` of the table, the parameter that `param_attr` describes.
        is_sparse: for large tables: the gradient is a `SelectedRows` of only the rows looked up; optimizers update only these.
        is_distributed: whether the workers of a fleet each hold a part of the rows; without several workers, no effect.
        padding_idx: an id whose row reads as zeros and is not trained; negative ids count from the end.
        param_attr: attributes of the table.
        dtype: element type of the table and of the result.

    Raises:
        ProgramError: if `size` is not two positive numbers, or `padding_idx` is not a row.

    `fluid.embedding` takes ids without the last dimension of 1.

    >>> words = layers.data("words", [1], dtype="int64")
    >>> layers.embedding(words, size=[1000, 32]).shape
    (-1, 32)
    """
    return lookup("lookup_table", input, size, is_sparse, is_distributed, padding_idx, param_attr, dtype)


def lookup(
    op_type: str,
    input: Variable,
    size: Sequence[int],
    is_sparse: bool,
    is_distributed: bool,
    padding_idx: int | None,
    param_attr: AttrLike,
    dtype: DTypeLike,
) -> Variable:
    """An embedding by the op ``lookup_table``, of ids ``[..., 1]``, or ``lookup_table_v2``, of ids ``[...]``."""
    helper = LayerHelper("embedding", param_attr=param_attr)
    if len(size) != 2 or min(size) < 1:
        raise ProgramError(f"embedding: size should be [rows, columns] of the table, both above 0, not {list(size)}")
    rows = int(size[0])
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ProgramError(f"embedding: padding_idx={padding_idx} is not a row of a table of {rows}")
    supported = registry.get(op_type).attrs
    attrs: dict[str, Any] = {"padding_idx": -1 if padding_idx is None else padding_idx % rows}
    attrs.update((k, v) for k, v in (("is_sparse", is_sparse), ("is_distributed", is_distributed)) if v and k in supported)
    table = helper.create_parameter(helper.param_attr, size, dtype)
    rows_read: Variable = helper.apply(op_type, {"W": table, "Ids": input}, attrs)["Out"]
    return rows_read


def _window(padding: Any, layer: str, data_format: str) -> tuple[list[int], str]:
    """The attributes ``paddings`` and ``padding_algorithm`` of a window over two or three dimensions."""
    count = len(data_format) - 2
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise ProgramError(f"{layer}: padding {padding!r} should be 'SAME', 'VALID' or numbers")
        return [0] * count, padding.upper()
    if isinstance(padding, (list, tuple)):
        if len(padding) == count + 2 and all(isinstance(item, (list, tuple)) for item in padding):
            start = 1 if data_format[-1] == "C" else 2
            outer = [*padding[:start], *padding[start + count :]]
            if any(side for item in outer for side in item):
                raise ProgramError(f"{layer}: batch and channels cannot be padded, as {padding} asks for")
            return [int(side) for item in padding[start : start + count] for side in item], "EXPLICIT"
        if len(padding) == 2 * count:
            return [int(item) for item in padding], "EXPLICIT"
    return extents(padding, count, f"{layer}: padding"), "EXPLICIT"


def _check_format(layer: str, input: Variable, data_format: str, formats: tuple[str, str] = ("NCHW", "NHWC")) -> int:
    """Checks a batch of images in one of two formats; returns the axis of the channels."""
    check_variable(input, f"{layer}: input")
    if data_format not in formats:
        raise ProgramError(f"{layer}: data_format should be {formats[0]!r} or {formats[1]!r}, not {data_format!r}")
    if input.ndim != len(data_format):
        raise ProgramError(
            f"{layer}: input should have {len(data_format)} dimensions ({data_format}); {input.name} is {input.describe()}"
        )
    return data_format.index("C")


def _check_groups(layer: str, input: Variable, channels: int, num_filters: int, groups: int) -> None:
    if channels < 0 or channels % groups or num_filters % groups:
        raise ProgramError(
            f"{layer}: {channels} channels of {input.name} and {num_filters} filters cannot be split into {groups} groups"
        )


_ARGUMENTS = {"strides": "stride", "paddings": "padding", "dilations": "dilation"}
"""Attributes of convolutions -> arguments of layers."""
VOLUMES = ("NCDHW", "NDHWC")
"""Formats of batches of volumes."""


def convolution(
    layer: str,
    input: Variable,
    num_filters: int,
    filter_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int | None,
    use_cudnn: bool,
    data_format: str,
    formats: tuple[str, str] = ("NCHW", "NHWC"),
    **parts: Any,
) -> Variable:
    """A convolution over two or three dimensions, with its parameters; `parts` are further arguments of `LayerHelper`."""
    axis, count = _check_format(layer, input, data_format, formats), len(formats[0]) - 2
    channels, groups = input.shape[axis], groups or 1
    _check_groups(layer, input, channels, num_filters, groups)
    if layer == "conv2d" and not use_cudnn and groups == channels:
        layer = "depthwise_conv2d"
    helper = LayerHelper(layer, **parts)
    kernel = extents(filter_size, count, f"{layer}: filter_size")
    paddings, algorithm = _window(padding, layer, data_format)
    std = math.sqrt(2.0 / (math.prod(kernel) * channels))
    weight = helper.create_parameter(
        helper.param_attr, [num_filters, channels // groups, *kernel], input.dtype, default_initializer=Normal(0.0, std)
    )
    attrs = {
        "strides": extents(stride, count, f"{layer}: stride"),
        "paddings": paddings,
        "dilations": extents(dilation, count, f"{layer}: dilation"),
        "groups": groups,
        "padding_algorithm": algorithm,
        "data_format": data_format,
    }
    with speaking_of(_ARGUMENTS):
        output = helper.apply(layer, {"Input": input, "Filter": weight}, attrs)["Output"]
    return helper.append_activation(helper.append_bias_op(output, axis, axis + 1))


def transposed_convolution(
    layer: str,
    input: Variable,
    num_filters: int,
    output_size: Any,
    filter_size: Any,
    padding: Any,
    stride: Any,
    dilation: Any,
    groups: int | None,
    use_cudnn: bool,
    data_format: str,
    formats: tuple[str, str] = ("NCHW", "NHWC"),
    **parts: Any,
) -> Variable:
    """The transpose of a convolution over two or three dimensions, with its parameters; `parts` as in `convolution`."""
    axis, count = _check_format(layer, input, data_format, formats), len(formats[0]) - 2
    channels, groups = input.shape[axis], groups or 1
    _check_groups(layer, input, channels, num_filters, groups)
    if layer == "conv2d_transpose" and not use_cudnn and groups == channels == num_filters:
        layer = "depthwise_conv2d_transpose"
    helper = LayerHelper(layer, **parts)
    strides, dilations = extents(stride, count, f"{layer}: stride"), extents(dilation, count, f"{layer}: dilation")
    paddings, algorithm = _window(padding, layer, data_format)
    size = extents(output_size, count, f"{layer}: output_size") if output_size is not None else []
    if filter_size is not None:
        kernel = extents(filter_size, count, f"{layer}: filter_size")
    elif size:
        first = 2 if axis == 1 else 1
        sides = paddings if len(paddings) > count else [padding for padding in paddings for _ in range(2)]
        pads = [sides[2 * i] + sides[2 * i + 1] for i in range(count)]
        kernel = [(size[i] - (input.shape[first + i] - 1) * strides[i] + pads[i] - 1) // dilations[i] + 1 for i in range(count)]
        if min(kernel) < 1:
            raise ProgramError(f"{layer}: output_size {size} is too small for {input.describe()}: no filter would be left")
    else:
        raise ProgramError(f"{layer}: give filter_size or output_size")
    weight = helper.create_parameter(helper.param_attr, [channels, num_filters // groups, *kernel], input.dtype)
    attrs = {
        "strides": strides,
        "paddings": paddings,
        "dilations": dilations,
        "groups": groups,
        "output_size": size,
        "padding_algorithm": algorithm,
        "data_format": data_format,
    }
    with speaking_of(_ARGUMENTS):
        output = helper.apply(layer, {"Input": input, "Filter": weight}, attrs)["Output"]
    return helper.append_activation(helper.append_bias_op(output, axis, axis + 1))


def conv2d(
    input: Variable,
    num_filters: Positive,
    filter_size: Positive | Sequence[Positive],
    stride: Positive | Sequence[Positive] = 1,
    padding: int | str | Sequence[int | Sequence[int]] = 0,
    dilation: Positive | Sequence[Positive] = 1,
    groups: Positive | None = None,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Convolution of images ``[N, C, H, W]`` with filters ``[num_filters, C / groups, *filter_size]``.

    Args:
        input: images ``[N, C, H, W]``, or ``[N, H, W, C]`` with `data_format` ``"NHWC"``; float.
        num_filters: number of channels of the result.
        filter_size: height and width of the filters, or one number for both.
        stride: steps of the window, down and across, or one number for both.
        padding: zeros around the image: one number, two (height, width), four (top, bottom, left, right), a pair for each
            dimension of the input, ``"SAME"`` or ``"VALID"``.
        dilation: how far the elements of the window are apart, down and across, or one number for both.
        groups: number of parts that channels and filters are split into, each filter seeing one part of the channels; by default
            1.
        param_attr: attributes of the filters; by default normal with the deviation ``sqrt(2 / (h * w * C))`` (He et al., Delving
            Deep into Rectifiers, 2015).
        bias_attr: attributes of the bias, ``[num_filters]``; False for none.
        use_cudnn: as in Fluid, False makes a ``depthwise_conv2d`` if each channel is a group; otherwise of no effect.
        data_format: ``"NCHW"`` or ``"NHWC"``, of input and result.

    Returns:
        ``[N, num_filters, H', W']`` with ``H' = (H + padding - dilation * (h - 1) - 1) // stride + 1``, with `padding` the sum of
        both sides.

    Raises:
        ProgramError: if the channels are unknown, or they or the filters cannot be split into `groups`.

    >>> images = fluid.data("images", [None, 3, 32, 32])
    >>> layers.conv2d(images, num_filters=16, filter_size=3, padding=1, act="relu").shape
    (-1, 16, 32, 32)
    """
    parts: dict[str, Any] = {"name": name, "param_attr": param_attr, "bias_attr": bias_attr, "act": act}
    window = filter_size, stride, padding, dilation
    return convolution("conv2d", input, num_filters, *window, groups, use_cudnn, data_format, **parts)


def conv2d_transpose(
    input: Variable,
    num_filters: Positive,
    output_size: Positive | Sequence[Positive] | None = None,
    filter_size: Positive | Sequence[Positive] | None = None,
    padding: int | str | Sequence[int | Sequence[int]] = 0,
    stride: Positive | Sequence[Positive] = 1,
    dilation: Positive | Sequence[Positive] = 1,
    groups: Positive | None = None,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """The transpose of `conv2d`: enlarges images ``[N, C, H, W]`` with filters ``[C, num_filters / groups, h, w]``.

    Args:
        input: images ``[N, C, H, W]``, or ``[N, H, W, C]`` with `data_format` ``"NHWC"``; float.
        num_filters: number of channels of the result.
        output_size: height and width of the result, or one number for both; by default ``(H - 1) * stride - padding + dilation *
            (h - 1) + 1``, the smallest that the convolution would map to the input's, with `padding` the sum of both sides.
        filter_size: one number, or height and width; optional if `output_size` is given, by default the largest filter that fits.
        padding, stride, dilation, groups: as in the `conv2d` that this layer transposes.
        param_attr: attributes of the filters, ``[C, num_filters / groups, *filter_size]``.
        bias_attr: attributes of the bias, ``[num_filters]``; False for none.
        use_cudnn: as in Fluid, False makes a ``depthwise_conv2d_transpose`` if each channel is a group with one filter; otherwise
            of no effect.
        data_format: ``"NCHW"`` or ``"NHWC"``, of input and result.

    Raises:
        ProgramError: if neither `filter_size` nor `output_size` is given, or no filter would be left.

    >>> images = fluid.data("images", [None, 16, 8, 8])
    >>> layers.conv2d_transpose(images, num_filters=3, filter_size=2, stride=2).shape
    (-1, 3, 16, 16)
    """
    parts: dict[str, Any] = {"name": name, "param_attr": param_attr, "bias_attr": bias_attr, "act": act}
    window = filter_size, padding, stride, dilation
    return transposed_convolution(
        "conv2d_transpose", input, num_filters, output_size, *window, groups, use_cudnn, data_format, **parts
    )


def pool2d(
    input: Variable,
    pool_size: int | Sequence[int] = -1,
    pool_type: str = "max",
    pool_stride: Positive | Sequence[Positive] = 1,
    pool_padding: int | str | Sequence[int | Sequence[int]] = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """The largest (``"max"``) or mean (``"avg"``) element of each window of images ``[N, C, H, W]``.

    Args:
        input: images ``[N, C, H, W]``, or ``[N, H, W, C]`` with `data_format` ``"NHWC"``; float.
        pool_size: the window: one number, or height and width. It is needed unless `global_pooling`.
        pool_type: ``"max"`` or ``"avg"``.
        pool_stride: step of the window: one number, or height and width.
        pool_padding: as `padding` of `conv2d`.
        global_pooling: the window is the whole image.
        ceil_mode: round the output's height and width up, so that a last, partial window counts.
        exclusive: do not count padding in means.
        data_format: ``"NCHW"`` or ``"NHWC"``, of input and result.

    Raises:
        ProgramError: without `pool_size` and `global_pooling`, or if `ceil_mode` meets the padding ``"VALID"``.

    >>> images = fluid.data("images", [None, 3, 32, 32])
    >>> layers.pool2d(images, pool_size=2, pool_type="max", pool_stride=2).shape
    (-1, 3, 16, 16)
    >>> layers.pool2d(images, pool_type="avg", global_pooling=True).shape
    (-1, 3, 1, 1)
    """
    attrs: dict[str, Any] = {"global_pooling": global_pooling, "ceil_mode": ceil_mode, "exclusive": exclusive}
    return pooling("pool2d", input, pool_size, pool_type, pool_stride, pool_padding, name, data_format, **attrs)


def pooling(
    layer: str,
    input: Variable,
    size: Any,
    pool_type: str,
    stride: Any,
    padding: Any,
    name: str | None,
    data_format: str,
    formats: tuple[str, str] = ("NCHW", "NHWC"),
    **attrs: Any,
) -> Variable:
    """Pooling over two or three dimensions."""
    if size == -1 and not attrs["global_pooling"]:
        raise ProgramError(f"{layer}: give pool_size, or set global_pooling=True")
    _check_format(layer, input, data_format, formats)
    _check_pool_type(layer, pool_type)
    count = len(formats[0]) - 2
    paddings, algorithm = _window(padding, layer, data_format)
    if algorithm == "VALID" and attrs["ceil_mode"]:
        raise ProgramError(f"{layer}: padding 'VALID' leaves partial windows out, and ceil_mode=True counts them; choose one")
    attrs.update(
        pooling_type=pool_type,
        ksize=extents(size, count, f"{layer}: pool_size"),
        strides=extents(stride, count, f"{layer}: pool_stride"),
        paddings=paddings,
        padding_algorithm=algorithm,
        data_format=data_format,
    )
    with speaking_of({"ksize": "pool_size", "strides": "pool_stride", "paddings": "pool_padding"}):
        return apply(layer, {"X": input}, attrs, name=name)


def _check_pool_type(layer: str, pool_type: str) -> None:
    if pool_type not in ("max", "avg"):
        raise ProgramError(f"{layer}: pool_type should be 'max' or 'avg', not {pool_type!r}")


def adaptive_pool2d(
    input: Variable,
    pool_size: Positive | Sequence[Positive],
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Variable | list[Variable]:
    """Images ``[N, C, H, W]`` pooled to ``[N, C, *pool_size]``, with windows of nearly equal size.

    Args:
        input: images, float.
        pool_size: height and width of the result, or one number for both.
        pool_type: ``"max"`` or ``"avg"``.
        require_index: whether to return also the int32 index of each maximum, counted row by row in its image; for ``"max"``
            only.

    Returns:
        ``[N, C, *pool_size]``; with `require_index` a list of it and the indices.

    >>> images = fluid.data("images", [None, 3, 30, 20])
    >>> layers.adaptive_pool2d(images, pool_size=[4, 4], pool_type="avg").shape
    (-1, 3, 4, 4)
    """
    return adaptive_pooling("adaptive_pool2d", input, pool_size, pool_type, require_index, name)


def adaptive_pooling(
    layer: str, input: Variable, size: Any, pool_type: str, require_index: bool, name: str | None, count: int = 2
) -> Variable | list[Variable]:
    """Adaptive pooling over two or three dimensions."""
    formats = ("NCHW", "NHWC") if count == 2 else VOLUMES
    _check_format(layer, input, formats[0], formats)
    _check_pool_type(layer, pool_type)
    attrs: dict[str, Any] = {"ksize": extents(size, count, f"{layer}: pool_size"), "adaptive": True}
    if not require_index:
        attrs["pooling_type"] = pool_type
        return apply(f"pool{count}d", {"X": input}, attrs, layer=layer, name=name)
    if pool_type == "avg":
        raise ProgramError(f"{layer}: only maxima have an index: require_index=True needs pool_type='max'")
    return apply_many(f"max_pool{count}d_with_index", {"X": input}, attrs, layer=layer, name=name)


def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-05,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    fuse_with_relu: bool = False,
    use_global_stats: bool = False,
) -> Variable:
    """Each channel normalized over the batch: ``act(scale * (x - mean) / sqrt(variance + epsilon) + bias)``.

    Formula: Ioffe and Szegedy, Batch Normalization, 2015.

    Args:
        input: ``[N, C]`` or ``[N, C, ...]``, such as images ``[N, C, H, W]``; float.
        is_test: whether to normalize by the moving statistics, and leave them as they are; `Program.clone` with ``for_test=True``
            sets it.
        momentum: ``moving = momentum * moving + (1 - momentum) * batch``, of mean and variance; a number, or a float variable of
            one element.
        epsilon: added to the variance.
        param_attr: attributes of the scale, ``[C]``, which begins with ones.
        bias_attr: attributes of the bias, ``[C]``.
        data_layout: ``"NCHW"``, or ``"NHWC"`` for channels in the last dimension.
        in_place, fuse_with_relu: accepted and ignored; the executor reuses memory by itself.
        moving_mean_name: name of the moving mean, which normalizes rows if `is_test`.
        moving_variance_name: name of the moving variance.
        do_model_average_for_mean_and_var: whether `ModelAverage` averages the moving statistics too.
        use_global_stats: use the moving statistics in training too.

    >>> images = fluid.data("images", [None, 3, 32, 32])
    >>> layers.batch_norm(images, act="relu").shape
    (-1, 3, 32, 32)
    >>> [parameter.shape for parameter in fluid.default_main_program().all_parameters()]
    [(3,), (3,), (3,), (3,)]
    """
    helper = LayerHelper("batch_norm", name, param_attr, bias_attr, act)
    return _batch_normed(
        helper, input, is_test, momentum, epsilon, data_layout, moving_mean_name, moving_variance_name,
        do_model_average_for_mean_and_var, use_global_stats,
    )  # fmt: skip


_ACTIVATIONS_IN_PLACE = (None, "identity", "leaky_relu", "elu")


def inplace_abn(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-05,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    act_alpha: float = 1.0,
) -> Variable:
    """`batch_norm` and an activation that can be inverted; the executor reuses memory by itself.

    Args:
        input: ``[N, C]`` or ``[N, C, ...]``, such as images ``[N, C, H, W]``; float.
        act: None or ``"identity"``, ``"leaky_relu"``, ``"elu"``.
        is_test, momentum, epsilon, param_attr, bias_attr, data_layout: as in `batch_norm`.
        moving_mean_name, moving_variance_name, do_model_average_for_mean_and_var, use_global_stats: as in `batch_norm`.
        act_alpha: the activation's slope, or factor, below 0.

    Raises:
        ProgramError: for another activation.

    >>> layers.inplace_abn(fluid.data("images", [None, 3, 32, 32]), act="leaky_relu", act_alpha=0.1).shape
    (-1, 3, 32, 32)
    """
    if act not in _ACTIVATIONS_IN_PLACE:
        raise ProgramError(f"inplace_abn: act should be {', '.join(map(repr, _ACTIVATIONS_IN_PLACE))}, not {act!r}")
    helper = LayerHelper("inplace_abn", name, param_attr, bias_attr)
    out = _batch_normed(
        helper, input, is_test, momentum, epsilon, data_layout, moving_mean_name, moving_variance_name,
        do_model_average_for_mean_and_var, use_global_stats,
    )  # fmt: skip
    return out if act in (None, "identity") else apply(act, {"X": out}, {"alpha": act_alpha}, layer="inplace_abn")


def _batch_normed(
    helper: LayerHelper,
    input: Variable,
    is_test: bool,
    momentum: float | Variable,
    epsilon: float,
    data_layout: str,
    moving_mean_name: str | None,
    moving_variance_name: str | None,
    do_model_average: bool,
    use_global_stats: bool,
) -> Variable:
    """The op `batch_norm` with its parameters, and the activation of `helper`."""
    check_variable(input, f"{helper.layer_type}: input")
    channels = [extent(input, 1 if data_layout == "NCHW" else -1, "input")]
    dtype = accumulated(input.dtype)
    inputs: dict[str, Any] = {"X": input}
    if helper.param_attr:
        inputs["Scale"] = helper.create_parameter(helper.param_attr, channels, dtype, default_initializer=Constant(1.0))
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, channels, dtype, is_bias=True)
    for slot, moving_name, first in (("Mean", moving_mean_name, 0.0), ("Variance", moving_variance_name, 1.0)):
        attr = ParamAttr(moving_name, Constant(first), trainable=False, do_model_average=do_model_average)
        inputs[slot] = constant(helper.create_parameter(attr, channels, dtype))
    saved = {slot: helper.create_variable_for_type_inference(dtype, True) for slot in ("SavedMean", "SavedVariance")}
    saved["ReserveSpace"] = helper.create_variable_for_type_inference(dtype, True)  # Paddle does not run it without
    attrs: dict[str, Any] = {}
    if isinstance(momentum, Variable):
        inputs["MomentumTensor"] = momentum
    else:
        attrs["momentum"] = momentum
    attrs |= {"epsilon": epsilon, "is_test": is_test, "data_layout": data_layout, "use_global_stats": use_global_stats}
    outputs = {"MeanOut": inputs["Mean"], "VarianceOut": inputs["Variance"], **saved}
    return helper.append_activation(helper.apply("batch_norm", inputs, attrs, outputs)["Y"])


def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-05,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """``act(scale * (x - mean) / sqrt(variance + epsilon) + bias)``, normalized over dimensions from `begin_norm_axis` on.

    Formula: Ba, Kiros and Hinton, Layer Normalization, 2016.

    Args:
        input: float; dimensions from `begin_norm_axis` on must be known.
        scale: whether there is a scale: a vector with one element for each normalized element.
        shift: whether there is a bias, of the same shape.
        begin_norm_axis: the first dimension that is normalized over.
        epsilon: added to the variance.
        param_attr: attributes of the scale, which begins with ones.
        bias_attr: attributes of the bias.

    >>> x = fluid.data("x", [None, 20, 64])
    >>> layers.layer_norm(x, begin_norm_axis=2).shape
    (-1, 20, 64)
    >>> [parameter.shape for parameter in fluid.default_main_program().all_parameters()]
    [(64,), (64,)]
    """
    check_variable(input, "layer_norm: input")
    helper = LayerHelper("layer_norm", name, param_attr, bias_attr, act)
    size = [product(input.shape[begin_norm_axis:])]
    inputs: dict[str, Any] = {"X": input}
    if scale and helper.param_attr:
        inputs["Scale"] = helper.create_parameter(helper.param_attr, size, input.dtype, default_initializer=Constant(1.0))
    if shift and helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, size, input.dtype, is_bias=True)
    saved = {slot: helper.create_variable_for_type_inference(stop_gradient=True) for slot in ("Mean", "Variance")}
    attrs = {"epsilon": epsilon, "begin_norm_axis": begin_norm_axis}
    return helper.append_activation(helper.apply("layer_norm", inputs, attrs, saved)["Y"])


# -------------------------------------------------------------------------------------------------------- regularizing
def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """Sets each element to zero with probability `dropout_prob`, drawn again in every run.

    Formula: Srivastava et al., Dropout: A Simple Way to Prevent Neural Networks from Overfitting, 2014.

    Args:
        x: a float tensor of any shape.
        dropout_prob: probability, from 0 to 1.
        is_test: whether nothing is dropped; `Program.clone` with ``for_test=True`` sets it.
        seed: of the random numbers, the same in every run; by default new ones are drawn, which follow from
            ``program.random_seed`` if that is set.
        dropout_implementation: ``"downgrade_in_infer"``: kept elements are unchanged, and all are multiplied by ``1 -
            dropout_prob`` if `is_test`. ``"upscale_in_train"``: kept elements are divided by ``1 - dropout_prob``, and all are
            unchanged if `is_test`.

    Raises:
        ProgramError: for another `dropout_implementation`.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0, 4.0])
    >>> layers.dropout(x, 0.25, is_test=True)
    Tensor([0.75, 1.5 , 3.  ], shape=[3], dtype=float32)
    """
    if dropout_implementation not in ("downgrade_in_infer", "upscale_in_train"):
        raise ProgramError(
            "dropout: dropout_implementation should be 'downgrade_in_infer' or 'upscale_in_train', "
            f"not {dropout_implementation!r}"
        )
    attrs: dict[str, Any] = {"dropout_prob": dropout_prob, "is_test": is_test, "dropout_implementation": dropout_implementation}
    if seed is not None:
        attrs.update(fix_seed=True, seed=seed)
    return apply("dropout", {"X": x}, attrs, name=name)


# -------------------------------------------------------------------------------------------------------------- losses
def softmax(input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1) -> Variable:
    """``exp(x) / sum(exp(x))`` along `axis`.

    Args:
        input: a float tensor of any shape.
        axis: the dimension along which the result sums to 1.

    >>> x = fluid.dygraph.to_variable([[1.0, 1.0, 3.0]])
    >>> layers.softmax(x)
    Tensor([[0.1065, 0.1065, 0.787 ]], shape=[1, 3], dtype=float32)
    """
    return apply("softmax", {"X": input}, {"axis": axis}, name=name)


def cross_entropy(input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = kIgnoreIndex) -> Variable:
    """``-log(input[label])`` of probabilities ``[..., D]``: shape ``[..., 1]``.

    Args:
        input: probabilities ``[..., D]``, float; see `softmax_with_cross_entropy` for logits.
        label: int32 or int64 ``[..., 1]``, below D; with `soft_label` a distribution ``[..., D]`` of the type of `input`.
        soft_label: whether labels are distributions; then the result is ``-sum(label * log(input))``.
        ignore_index: rows with this label give 0, and no gradient.

    >>> probabilities = fluid.dygraph.to_variable([[0.2, 0.8], [0.5, 0.5]])
    >>> layers.cross_entropy(probabilities, fluid.dygraph.to_variable([[1], [0]]))
    Tensor([[0.2231],
            [0.6931]], shape=[2, 1], dtype=float32)
    """
    if _is_affine(input):
        warn_user(
            f"cross_entropy takes probabilities, and {input.name} is a layer's result without an activation: use "
            "softmax_with_cross_entropy, or act='softmax'"
        )
    attrs = {"soft_label": soft_label, "ignore_index": ignore_index}
    return apply("cross_entropy", {"X": input, "Label": label}, attrs)


def _writer_of(x: Any) -> Operator | None:
    """The last op of the block that writes a variable of a program."""
    return next((op for op in reversed(x.block.ops) if x.name in op.output_arg_names), None) if isinstance(x, Variable) else None


def _is_affine(x: Any) -> bool:
    """Whether a variable of a program is a product with a parameter, or such a product and a bias."""
    op = _writer_of(x)
    if op is not None and op.type == "elementwise_add":
        op = _writer_of(x.block.vars.get(op.input("X")[0]))
    return op is not None and op.type in ("mul", "matmul") and isinstance(op.block.find_var(op.input("Y")[0]), Parameter)


def _warn_of_activation(layer: str, x: Variable, activation: str) -> None:
    """Warn if a layer, which applies an activation to `x`, is given a result of the same activation."""
    op = _writer_of(x)
    if op is not None and op.type == activation:
        warn_user(f"{layer} applies {activation} itself, and {x.name} is a {activation} already: leave that out")


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = kIgnoreIndex,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Any:
    """`cross_entropy` of the `softmax` of `logits` along `axis`, numerically stable: shape ``[..., 1]``.

    Args:
        logits: float, any numbers.
        label: int32 or int64, of the shape of `logits` but for `axis`, which has size 1; with `soft_label` a distribution of the
            shape of `logits`.
        soft_label: whether labels are distributions.
        ignore_index: elements with this label give 0, and no gradient.
        numeric_stable_mode: accepted and ignored: it is always stable.
        return_softmax: whether to return the pair of loss and softmax.
        axis: the dimension of the classes.

    >>> logits = fluid.dygraph.to_variable([[1.0, 1.0, 3.0]])
    >>> layers.softmax_with_cross_entropy(logits, fluid.dygraph.to_variable([[2]]))
    Tensor([[0.2395]], shape=[1, 1], dtype=float32)
    """
    _warn_of_activation("softmax_with_cross_entropy", logits, "softmax")
    softmax_out, loss = apply_many(
        "softmax_with_cross_entropy",
        {"Logits": logits, "Label": label},
        {"soft_label": soft_label, "ignore_index": ignore_index, "numeric_stable_mode": numeric_stable_mode, "axis": axis},
    )
    return (loss, softmax_out) if return_softmax else loss


def sigmoid_cross_entropy_with_logits(
    x: Variable, label: Variable, ignore_index: int = kIgnoreIndex, name: str | None = None, normalize: bool = False
) -> Variable:
    """``-label * log(sigmoid(x)) - (1 - label) * log(1 - sigmoid(x))``, element by element.

    Args:
        x: float, any numbers.
        label: probabilities of the shape and type of `x`.
        ignore_index: the result is 0 where `label` is this number.
        normalize: whether to divide by the number of elements that are not ignored.

    >>> x = fluid.dygraph.to_variable([[0.0, 2.0]])
    >>> layers.sigmoid_cross_entropy_with_logits(x, fluid.dygraph.to_variable([[1.0, 0.0]]))
    Tensor([[0.6931, 2.1269]], shape=[1, 2], dtype=float32)
    """
    _warn_of_activation("sigmoid_cross_entropy_with_logits", x, "sigmoid")
    attrs = {"ignore_index": ignore_index, "normalize": normalize}
    return apply("sigmoid_cross_entropy_with_logits", {"X": x, "Label": label}, attrs, name=name)


def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """``r ** 2 / 2`` where ``|r| <= delta``, ``delta * (|r| - delta / 2)`` elsewhere, of ``r = label - input``.

    Formula: Huber, Robust Estimation of a Location Parameter, 1964.

    Args:
        input, label: predictions and targets, of the same shape and float type.
        delta: where the quadratic part ends and the linear one begins.

    >>> x = fluid.dygraph.to_variable([[0.0], [3.0]])
    >>> layers.huber_loss(x, fluid.dygraph.to_variable([[1.0], [1.0]]), delta=1.0)
    Tensor([[0.5],
            [1.5]], shape=[2, 1], dtype=float32)
    """
    return apply("huber_loss", {"X": input, "Y": label}, {"delta": float(delta)})


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """``(input - label) ** 2``, element by element.

    Args:
        input, label: predictions and targets, of the same shape and type.

    >>> x = fluid.dygraph.to_variable([[0.0], [3.0]])
    >>> layers.square_error_cost(x, fluid.dygraph.to_variable([[1.0], [1.0]]))
    Tensor([[1.],
            [4.]], shape=[2, 1], dtype=float32)
    """
    helper = LayerHelper("square_error_cost")
    minus = helper.apply("elementwise_sub", {"X": input, "Y": label})["Out"]
    cost: Variable = helper.apply("square", {"X": minus})["Out"]
    return cost


def mse_loss(input: Variable, label: Variable) -> Variable:
    """The mean of ``(input - label) ** 2``: shape [1].

    Args:
        input, label: predictions and targets, of the same shape and type.

    >>> x = fluid.dygraph.to_variable([[0.0], [3.0]])
    >>> layers.mse_loss(x, fluid.dygraph.to_variable([[1.0], [1.0]]))
    Tensor([2.5], shape=[1], dtype=float32)
    """
    return apply("reduce_mean", {"X": square_error_cost(input, label)}, {"reduce_all": True}, layer="reduce_mean")


# ------------------------------------------------------------------------------------------------------------ products
def matmul(
    x: Variable, y: Variable, transpose_x: bool = False, transpose_y: bool = False, alpha: float = 1.0, name: str | None = None
) -> Variable:
    """``alpha * x @ y`` of the last two dimensions, each transposed first if asked; the other dimensions are a batch.

    A vector is a row on the left and a column on the right; two vectors, both transposed, give their outer product.

    Args:
        x: ``[..., rows, inner]``; dimensions before the last two are broadcast.
        y: ``[..., inner, columns]``, of the same type.
        transpose_x: whether to exchange the last two dimensions of `x` first.
        transpose_y: whether to exchange the last two dimensions of `y` first.
        alpha: a factor.

    Raises:
        InferenceError: if the shapes do not fit.

    >>> x = fluid.data("x", [None, 8, 20, 64])
    >>> y = fluid.data("y", [None, 8, 30, 64])
    >>> layers.matmul(x, y, transpose_y=True).shape
    (-1, 8, 20, 30)
    """
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": float(alpha)}
    return apply("matmul", {"X": x, "Y": y}, attrs, name=name)


def mul(x: Variable, y: Variable, x_num_col_dims: int = 1, y_num_col_dims: int = 1, name: str | None = None) -> Variable:
    """The product of `x` and `y` as matrices: the first `x_num_col_dims` (`y_num_col_dims`) dimensions become the rows.

    Args:
        x: a tensor.
        y: a tensor of the same type; as a matrix, it has a row for each column of `x`.
        x_num_col_dims: how many dimensions of `x` become the rows.
        y_num_col_dims: how many dimensions of `y` become the rows.

    Returns:
        ``[*x.shape[:x_num_col_dims], *y.shape[y_num_col_dims:]]``.

    >>> x = fluid.data("x", [5, 2, 3])
    >>> y = fluid.data("y", [6, 4])
    >>> layers.mul(x, y).shape
    (5, 4)
    """
    attrs = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return apply("mul", {"X": x, "Y": y}, attrs, name=name)


def pow(x: Variable, factor: float | Variable = 1.0, name: str | None = None) -> Variable:
    """``x ** factor``, element by element.

    Args:
        x: a tensor of any shape.
        factor: the exponent: a number, or a variable of one element.

    >>> layers.pow(fluid.dygraph.to_variable([1.0, 2.0, 3.0]), factor=2.0)
    Tensor([1., 4., 9.], shape=[3], dtype=float32)
    """
    if isinstance(factor, Variable):
        return apply("pow", {"X": x, "FactorTensor": factor}, name=name)
    return apply("pow", {"X": x}, {"factor": float(factor)}, name=name)


def scale(
    x: Variable,
    scale: float | Variable = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """``act(scale * x + bias)``, or ``act(scale * (x + bias))`` unless `bias_after_scale`.

    Args:
        x: a tensor of any shape.
        scale: a number, or a variable of one element.
        bias: a number.
        bias_after_scale: whether `bias` is added to the product rather than to `x`.

    >>> layers.scale(fluid.dygraph.to_variable([1.0, 2.0]), scale=10.0, bias=1.0)
    Tensor([11., 21.], shape=[2], dtype=float32)
    """
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {"bias": float(bias), "bias_after_scale": bias_after_scale}
    if isinstance(scale, Variable):
        inputs["ScaleTensor"] = scale
    else:
        attrs["scale"] = float(scale)
    return apply("scale", inputs, attrs, name=name, act=act)


def mean(x: Variable, name: str | None = None) -> Variable:
    """The mean of all elements: shape [1].

    Args:
        x: a tensor of any shape.

    >>> layers.mean(fluid.dygraph.to_variable([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([2.5], shape=[1], dtype=float32)
    """
    return apply("mean", {"X": x}, name=name)


def sum(x: Variable | Sequence[Variable]) -> Variable:
    """The sum of tensors of the same shape.

    Args:
        x: a tensor, or several of the same shape and type.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0])
    >>> layers.sum([x, x, x])
    Tensor([3., 6.], shape=[2], dtype=float32)
    """
    return apply("sum", {"X": listed(x)})


def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """Limits each element to ``[min, max]``.

    Args:
        x: a tensor of any shape.
        min, max: bounds; `min` should not be above `max`.

    >>> layers.clip(fluid.dygraph.to_variable([-2.0, 0.5, 3.0]), min=-1.0, max=1.0)
    Tensor([-1. ,  0.5,  1. ], shape=[3], dtype=float32)
    """
    return apply("clip", {"X": x}, {"min": float(min), "max": float(max)}, name=name)


def _check_not_negative(layer: str, argument: str, value: float) -> None:
    if not value >= 0:
        raise ProgramError(f"{layer}: {argument} should not be below 0, as {value} is")


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """`x` scaled down so that its Euclidean norm is at most `max_norm`.

    Args:
        x: a float tensor of any shape.
        max_norm: the bound, at least 0.

    >>> layers.clip_by_norm(fluid.dygraph.to_variable([3.0, 4.0]), max_norm=1.0)
    Tensor([0.6, 0.8], shape=[2], dtype=float32)
    """
    _check_not_negative("clip_by_norm", "max_norm", max_norm)
    helper = LayerHelper("clip_by_norm", name)
    if not max_norm:
        nothing: Variable = helper.apply("scale", {"X": x}, {"scale": 0.0})["Out"]
        return nothing
    # Its gradient at 0 is 0; the gradient of a square root is infinite.
    norm = helper.apply("frobenius_norm", {"X": x}, {"reduce_all": True})["Out"]
    most = helper.apply("fill_constant", {}, {"shape": [1], "dtype": int(x.dtype), "value": float(max_norm)})["Out"]
    divisor = helper.apply("elementwise_max", {"X": norm, "Y": most})["Out"]
    factor = helper.apply("elementwise_div", {"X": most, "Y": divisor})["Out"]
    clipped: Variable = helper.apply("elementwise_mul", {"X": x, "Y": factor})["Out"]
    return clipped


def l2_normalize(x: Variable, axis: int, epsilon: float = 1e-12, name: str | None = None) -> Variable:
    """``x / sqrt(sum(x ** 2) + epsilon)``, summed along `axis`.

    Args:
        x: a float tensor.
        axis: dimension along which the squares are summed; a vector is always normalized as a whole.
        epsilon: keeps the divisor above 0.

    >>> layers.l2_normalize(fluid.dygraph.to_variable([[3.0, 4.0], [0.0, 2.0]]), axis=1)
    Tensor([[0.6, 0.8],
            [0. , 1. ]], shape=[2, 2], dtype=float32)
    """
    check_variable(x, "l2_normalize: x")
    _check_not_negative("l2_normalize", "epsilon", epsilon)
    helper = LayerHelper("l2_normalize", name)
    squares = helper.apply("square", {"X": x})["Out"]
    total = helper.apply("reduce_sum", {"X": squares}, {"dim": [0 if x.ndim == 1 else axis], "keep_dim": True})["Out"]
    if epsilon:
        total = helper.apply("scale", {"X": total}, {"scale": 1.0, "bias": epsilon})["Out"]
    norm = helper.apply("sqrt", {"X": total})["Out"]
    normalized: Variable = helper.apply("elementwise_div", {"X": x, "Y": norm})["Out"]
    return normalized


# ---------------------------------------------------------------------------------------------- reshaping and selecting
def where(condition: Variable, x: Variable | None = None, y: Variable | None = None) -> Variable:
    """Elements of `x` where `condition` is true, and of `y` elsewhere; without these, the indices of the elements that are true.

    Args:
        condition: bools or numbers of any shape.
        x, y: tensors of one element type that broadcast with `condition` and with each other.

    Returns:
        The elements; or indices, int64, one row each.

    >>> x = fluid.dygraph.to_variable([True, False, True])
    >>> layers.where(x).numpy().tolist()
    [[0], [2]]
    >>> layers.where(x, fluid.dygraph.Tensor([1.0, 2.0, 3.0]), fluid.dygraph.Tensor([0.0])).numpy()
    array([1., 0., 3.], dtype=float32)
    """
    if x is None and y is None:
        return constant(apply("where_index", {"Condition": condition}, layer="where"))
    if x is None or y is None:
        raise ProgramError("where takes both x and y, to choose between them, or neither, to find indices")
    if condition.dtype is not VarType.BOOL:
        condition = condition.astype(VarType.BOOL)
    if not condition.shape == x.shape == y.shape:  # zeros of the shape that all three broadcast to
        zeros = apply("fill_zeros_like", {"X": x}) + apply("fill_zeros_like", {"X": y})
        zeros = zeros + apply("fill_zeros_like", {"X": condition.astype(x.dtype)})
        condition = (condition.astype(x.dtype) + zeros).astype(VarType.BOOL)
        x, y = x + zeros, y + zeros
    return apply("where", {"Condition": condition, "X": x, "Y": y})


def einsum(equation: str, *operands: Variable) -> Variable:
    """Products of tensors, summed as an equation of Einstein's notation says: ``"ij,jk->ik"`` is a product of matrices.

    Args:
        equation: labels of the dimensions of each operand, then those of the result; without ``->``, those that occur once, in
            alphabetic order. ``...`` stands for dimensions that broadcast.
        operands: tensors of one element type.

    Raises:
        InferenceError: the operands do not fit the equation.

    >>> x, y = fluid.data("x", [None, 3, 4]), fluid.data("y", [None, 4, 5])
    >>> layers.einsum("bij,bjk->bik", x, y).shape
    (-1, 3, 5)
    """
    if not operands:
        raise ProgramError(f"einsum: the equation {equation!r} needs operands")
    summed: Variable = apply_many("einsum", {"Operands": list(operands)}, {"equation": equation}, count=len(operands))[0]
    return summed


def reshape(
    x: Variable,
    shape: Sequence[int | Variable] | Variable,
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """`x` in another shape: one size may be -1, inferred from the others; 0 keeps the size at that axis.

    Args:
        x: a tensor.
        shape: the sizes; it may be, or contain, int32 variables.
        actual_shape: int32 variable that replaces `shape` when the program runs; shapes of later layers are inferred from
            `shape`.
        inplace: accepted and ignored; the executor shares memory where it can.

    Raises:
        InferenceError: if the number of elements differs.

    >>> x = fluid.data("x", [None, 4, 6])
    >>> layers.reshape(x, [0, -1]).shape
    (-1, 24)
    >>> layers.reshape(x, [-1, 2, 12]).shape
    (-1, 2, 12)
    """
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    if isinstance(shape, Variable):
        inputs["Shape"] = shape
    else:
        shape = [0 if isinstance(size, TracedSize) and size.is_size_of(x, axis) else size for axis, size in enumerate(shape)]
        attrs["shape"] = [-1 if isinstance(size, Variable) else int(size) for size in shape]
        if any(isinstance(size, Variable) for size in shape):
            inputs["ShapeTensor"] = one_each(shape)
    if actual_shape is not None:
        inputs["Shape"] = actual_shape
    return apply("reshape2", inputs, attrs, name=name, act=act)


def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """`x` with its dimensions in the order `perm`.

    Args:
        x: a tensor.
        perm: for each dimension of the result, which one of `x` it is.

    >>> layers.transpose(fluid.data("x", [None, 3, 32]), perm=[0, 2, 1]).shape
    (-1, 32, 3)
    """
    with speaking_of({"axis": "perm"}):
        return apply("transpose2", {"X": x}, {"axis": list(perm)}, layer="transpose", name=name)


def split(
    input: Variable, num_or_sections: int | Sequence[int | Variable], dim: int | Variable = -1, name: str | None = None
) -> list[Variable]:
    """`input` cut along `dim` into a number of equal parts, or into parts of the sizes in a list (one may be -1).

    Args:
        input: a tensor.
        num_or_sections: the number of parts, which divides the size of `dim`; or their sizes, numbers or int32 variables of one
            element; one may be -1.
        dim: the dimension, or an int32 variable that holds it; negative numbers count from the end.

    Raises:
        InferenceError: if the parts do not add up to the size of `dim`.

    >>> x = fluid.data("x", [None, 9])
    >>> [part.shape for part in layers.split(x, 3)]
    [(-1, 3), (-1, 3), (-1, 3)]
    >>> [part.shape for part in layers.split(x, [2, 3, -1])]
    [(-1, 2), (-1, 3), (-1, 4)]
    """
    check_variable(input, "split: input")
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {}
    if isinstance(dim, Variable):
        inputs["AxisTensor"] = dim
    else:
        attrs["axis"] = dim + input.ndim if -input.ndim <= dim < 0 else dim
    if isinstance(num_or_sections, int):
        count = attrs["num"] = num_or_sections
    else:
        count = len(num_or_sections)
        attrs["sections"] = [-1 if isinstance(size, Variable) else int(size) for size in num_or_sections]
        if any(isinstance(size, Variable) for size in num_or_sections):
            inputs["SectionsTensorList"] = one_each(num_or_sections)
    if count < 1:
        raise ProgramError(f"split: num_or_sections {num_or_sections} should ask for one part at least")
    with speaking_of({"axis": "dim", "sections": "num_or_sections"}):
        (parts,) = apply_many("split", inputs, attrs, name=name, count=count)
    return list(parts)


def slice(
    input: Variable, axes: Sequence[int], starts: Sequence[int | Variable] | Variable, ends: Sequence[int | Variable] | Variable
) -> Variable:
    """``input[starts[i] : ends[i]]`` along ``axes[i]``; negative indices count from the end.

    Args:
        input: a tensor.
        axes: dimensions that are cut; others are kept whole.
        starts: the first index for each of `axes`; the list may be, or contain, int32 variables.
        ends: the index after the last, in the same forms. Both are cut off at the size of the dimension.

    >>> x = fluid.dygraph.to_variable([[1, 2, 3], [4, 5, 6]])
    >>> layers.slice(x, axes=[0, 1], starts=[1, 0], ends=[2, -1])
    Tensor([[4, 5]], shape=[1, 2], dtype=int64)
    """
    return _sliced("slice", input, axes, {"starts": starts, "ends": ends})


def stack(x: Variable | Sequence[Variable], axis: int = 0) -> Variable:
    """Tensors of the same shape joined along a new dimension `axis`.

    Args:
        x: a tensor, or several of the same shape and type.
        axis: where the new dimension stands in the result; negative numbers count from its end.

    >>> x = fluid.dygraph.to_variable([1, 2])
    >>> layers.stack([x, x], axis=1)
    Tensor([[1, 1],
            [2, 2]], shape=[2, 2], dtype=int64)
    """
    return apply("stack", {"X": listed(x)}, {"axis": axis})


def unstack(x: Variable, axis: int = 0, num: Positive | None = None) -> list[Variable]:
    """The slices of `x` along `axis`, without that dimension; `num` is needed if its size is unknown.

    Args:
        x: a tensor.
        axis: the dimension that is taken apart.
        num: its size, needed if that is unknown.

    Raises:
        ProgramError: if the size is unknown, and `num` is not given.

    >>> layers.unstack(fluid.dygraph.to_variable([[1, 2], [3, 4]]))
    [Tensor([1, 2], shape=[2], dtype=int64), Tensor([3, 4], shape=[2], dtype=int64)]
    """
    check_variable(x, "unstack: x")
    if num is None:
        num = extent(x, axis, "x")
        if num < 0:
            raise ProgramError(f"unstack: the size of {x.name} ({x.describe()}) along axis {axis} is not known; give num")
    (slices,) = apply_many("unstack", {"X": x}, {"axis": axis, "num": num}, count=num)
    return list(slices)


def unbind(input: Variable, axis: int = 0) -> list[Variable]:
    """The slices of `input` along `axis`, without that dimension.

    Args:
        input: a tensor, whose size along `axis` is known; `unstack` takes others.
        axis: the dimension that is taken apart.

    Raises:
        ProgramError: if the size is unknown.

    >>> layers.unbind(fluid.dygraph.to_variable([[1, 2], [3, 4]]), axis=1)
    [Tensor([1, 3], shape=[2], dtype=int64), Tensor([2, 4], shape=[2], dtype=int64)]
    """
    check_variable(input, "unbind: input")
    size = extent(input, axis, "input")
    if size < 0:
        raise ProgramError(f"unbind: the size of {input.name} ({input.describe()}) along axis {axis} is not known; use unstack")
    (slices,) = apply_many("unbind", {"X": input}, {"axis": axis}, count=size)
    return list(slices)


def squeeze(input: Variable, axes: Sequence[int], name: str | None = None) -> Variable:
    """`input` without the dimensions in `axes` that have size 1; without all such dimensions if `axes` is empty.

    Args:
        input: a tensor.
        axes: dimensions to drop; one of unknown size (-1) must have size 1 in a run.

    >>> layers.squeeze(fluid.data("x", [None, 1, 8, 1]), axes=[1]).shape
    (-1, 8, 1)
    """
    return apply("squeeze2", {"X": input}, {"axes": list(axes)}, layer="squeeze", name=name)


def unsqueeze(input: Variable, axes: int | Sequence[int | Variable] | Variable, name: str | None = None) -> Variable:
    """`input` with dimensions of size 1 inserted, which are the dimensions `axes` of the result.

    Args:
        input: a tensor.
        axes: places of the new dimensions in the result; they may be, or contain, int32 variables.

    >>> layers.unsqueeze(fluid.data("x", [None, 8]), axes=[1, 3]).shape
    (-1, 1, 8, 1)
    """
    inputs: dict[str, Any] = {"X": input}
    if isinstance(axes, Variable):
        return apply("unsqueeze2", {**inputs, "AxesTensor": axes}, {}, layer="unsqueeze2", name=name)
    places = listed(axes)
    if any(isinstance(axis, Variable) for axis in places):
        inputs["AxesTensorList"] = one_each(places)
        places = []
    return apply("unsqueeze2", inputs, {"axes": [int(axis) for axis in places]}, layer="unsqueeze2", name=name)


def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """`x` as a matrix whose rows are its first `axis` dimensions.

    Args:
        x: a tensor.
        axis: number of dimensions that become the rows; 0 gives one row.

    >>> layers.flatten(fluid.data("x", [2, 3, 4, 5]), axis=2).shape
    (6, 20)
    """
    return apply("flatten2", {"X": x}, {"axis": axis}, layer="flatten", name=name)


def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """The rows of `input` at the indices in the vector `index`, int32 or int64.

    Args:
        input: a tensor ``[N, ...]``.
        index: int32 or int64 ``[K]`` or ``[K, 1]``, each below N.
        overwrite: accepted and ignored: gradients of rows taken several times are always added up.

    Returns:
        ``[K, ...]``.

    >>> x = fluid.dygraph.to_variable([[1, 2], [3, 4], [5, 6]])
    >>> layers.gather(x, fluid.dygraph.to_variable([2, 0]))
    Tensor([[5, 6],
            [1, 2]], shape=[2, 2], dtype=int64)
    """
    return apply("gather", {"X": input, "Index": index})


def expand(x: Variable, expand_times: Sequence[int | Variable] | Variable, name: str | None = None) -> Variable:
    """`x` repeated ``expand_times[i]`` times along dimension ``i``.

    Args:
        x: a tensor.
        expand_times: how often, for each dimension; it may be, or contain, int32 variables.

    >>> layers.expand(fluid.dygraph.to_variable([[1, 2]]), expand_times=[2, 2])
    Tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]], shape=[2, 4], dtype=int64)
    """
    inputs: dict[str, Any] = {"X": x}
    if isinstance(expand_times, Variable):
        inputs["ExpandTimes"] = expand_times
        return apply("expand", inputs, name=name)
    attrs = {"expand_times": [-1 if isinstance(item, Variable) else int(item) for item in expand_times]}
    if any(isinstance(item, Variable) for item in expand_times):
        inputs["expand_times_tensor"] = one_each(expand_times)
    return apply("expand", inputs, attrs, name=name)


def topk(input: Variable, k: Positive | Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """The `k` largest elements along the last dimension, largest first, and their int64 indices.

    Args:
        input: a tensor ``[..., D]``.
        k: how many, at most D; a number or an int variable of one element.

    Returns:
        values and indices, ``[..., k]``.

    >>> values, indices = layers.topk(fluid.dygraph.to_variable([30, 10, 20]), k=2)
    >>> values, indices
    (Tensor([30, 20], shape=[2], dtype=int64), Tensor([0, 2], shape=[2], dtype=int64))
    """
    inputs: dict[str, Any] = {"X": input}
    attrs = {}
    if isinstance(k, Variable):
        inputs["K"] = k
    else:
        attrs["k"] = int(k)
    values, indices = apply_many("top_k", inputs, attrs, name=name)
    return values, constant(indices)


def one_hot(input: Variable, depth: Positive | Variable, allow_out_of_range: bool = False) -> Variable:
    """Turns ids ``[..., 1]`` into float32 rows ``[..., depth]`` that are 1 at the id and 0 elsewhere.

    Args:
        input: int32 or int64 ``[..., 1]``.
        depth: number of columns, or an int32 variable of one element.
        allow_out_of_range: whether ids that are not below `depth` give rows of zeros; they are an error otherwise.

    >>> layers.one_hot(fluid.dygraph.to_variable([[2], [0]]), depth=3)
    Tensor([[0., 0., 1.],
            [1., 0., 0.]], shape=[2, 3], dtype=float32)
    """
    return one_hot_of("one_hot", input, depth, allow_out_of_range)


def one_hot_of(op_type: str, input: Variable, depth: int | Variable, allow_out_of_range: bool) -> Variable:
    """`one_hot` by the op ``one_hot``, of ids ``[..., 1]``, or ``one_hot_v2``, of ids ``[...]``."""
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {"allow_out_of_range": allow_out_of_range}
    if isinstance(depth, Variable):
        inputs["depth_tensor"] = depth
    else:
        attrs["depth"] = int(depth)
    return constant(apply(op_type, inputs, attrs, layer=op_type))


def shape(input: Variable) -> Variable:
    """The shape of `input` as an int32 tensor.

    Args:
        input: a tensor of any shape.

    >>> layers.shape(fluid.dygraph.to_variable([[1, 2, 3], [4, 5, 6]]))
    Tensor([2, 3], shape=[2], dtype=int32)
    """
    return constant(apply("shape", {"Input": input}))


def rank(input: Variable) -> Variable:
    """The number of dimensions of `input`: int32 of shape [].

    Args:
        input: a tensor of any shape.

    >>> layers.rank(fluid.dygraph.to_variable([[1, 2, 3], [4, 5, 6]]))
    Tensor(2, shape=[], dtype=int32)
    """
    check_variable(input, "rank: input")
    return fill_constant([], "int32", input.ndim)


def strided_slice(
    input: Variable,
    axes: Sequence[int],
    starts: Sequence[int | Variable] | Variable,
    ends: Sequence[int | Variable] | Variable,
    strides: Sequence[int | Variable] | Variable,
) -> Variable:
    """``input[starts[i] : ends[i] : strides[i]]`` along ``axes[i]``, as in Python, with one exception.

    As in Paddle, an end of -1 with a negative stride means no end: ``starts=[2], ends=[-1], strides=[-1]`` takes the elements
    2, 1 and 0.

    Args:
        input: a tensor.
        axes: dimensions that are cut; others are kept whole.
        starts: the first index for each of `axes`; the list may be, or contain, int32 variables.
        ends: the index to stop before, in the same forms.
        strides: the steps, in the same forms; negative ones go backwards.

    >>> x = fluid.dygraph.to_variable([0, 1, 2, 3, 4, 5])
    >>> layers.strided_slice(x, axes=[0], starts=[1], ends=[6], strides=[2])
    Tensor([1, 3, 5], shape=[3], dtype=int64)
    """
    return _sliced("strided_slice", input, axes, {"starts": starts, "ends": ends, "strides": strides})


def _sliced(op_type: str, input: Variable, axes: Sequence[int], bounds: dict[str, Any]) -> Variable:
    """Slices a tensor by `bounds` (``starts``, ``ends``, ``strides``), which may be, or contain, variables."""
    inputs: dict[str, Any] = {"Input": input}
    attrs: dict[str, Any] = {"axes": list(axes)}
    flags = [1] * len(attrs["axes"])
    for key, items in bounds.items():
        slot = key.capitalize() + "Tensor"
        if isinstance(items, Variable):
            inputs[slot] = items
            flags = [-1] * len(flags)
            continue
        attrs[key] = [-1 if isinstance(item, Variable) else int(item) for item in items]
        if any(isinstance(item, Variable) for item in items):
            inputs[slot + "List"] = one_each(items)
            flags = [-1 if isinstance(item, Variable) else flag for item, flag in zip(items, flags, strict=True)]
    if -1 in flags or op_type == "strided_slice":  # Paddle 1.8 ends the process without them
        attrs["infer_flags"] = flags
    return apply(op_type, inputs, attrs)


def scatter_nd(index: Variable, updates: Variable, shape: Sequence[int], name: str | None = None) -> Variable:
    """Add `updates` to zeros of `shape`, at the positions in the last dimension of `index`.

    Args:
        index: int32 or int64 ``[..., K]``, positions in the first K dimensions of the result.
        updates: ``[*index.shape[:-1], *shape[K:]]``; those for the same position are added up.
        shape: of the result, which has the type of `updates`.

    >>> index, updates = fluid.dygraph.to_variable([[1], [3], [1]]), fluid.dygraph.to_variable([1.0, 2.0, 4.0])
    >>> layers.scatter_nd(index, updates, shape=[4])
    Tensor([0., 5., 0., 2.], shape=[4], dtype=float32)
    """
    check_variable(updates, "scatter_nd: updates")
    zeros = fill_constant(shape, updates.dtype, 0.0)
    return apply("scatter_nd_add", {"X": zeros, "Index": index, "Updates": updates}, layer="scatter_nd", name=name)


def pad2d(
    input: Variable,
    paddings: Sequence[int] | Variable = [0, 0, 0, 0],  # noqa: B006  (never written to; as Fluid has it)
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Images with margins.

    Args:
        input: images ``[N, C, H, W]``, or ``[N, H, W, C]`` with `data_format` ``"NHWC"``.
        paddings: widths at the top, bottom, left and right, or an int32 variable ``[4]`` of them.
        mode: ``"constant"`` fills the margins with `pad_value`, ``"reflect"`` mirrors the image at its border (which is not
            repeated), ``"edge"`` repeats the border.
        pad_value: a number, for the mode ``"constant"``.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    >>> images = fluid.data("images", [None, 3, 32, 32])
    >>> layers.pad2d(images, paddings=[1, 1, 2, 2], mode="reflect").shape
    (-1, 3, 34, 36)
    """
    attrs: dict[str, Any] = {"mode": mode, "pad_value": float(pad_value), "data_format": data_format}
    if isinstance(paddings, Variable):
        return apply("pad2d", {"X": input, "Paddings": paddings}, attrs, name=name)
    return apply("pad2d", {"X": input}, {**attrs, "paddings": list(paddings)}, name=name)


def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: Positive,
    act: str | None = None,
    name: str | None = None,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
) -> Variable:
    """``act(x @ W[i] @ y + b[i])`` for each row of `x` ``[N, M]`` and `y` ``[N, K]``, and each i below `size`.

    Args:
        x: float ``[N, M]``; M is known.
        y: float ``[N, K]``; K is known.
        size: number of features of the result ``[N, size]``.
        param_attr: attributes of ``W``, ``[size, M, K]``.
        bias_attr: attributes of ``b``, ``[1, size]``; False for none.

    >>> x, y = fluid.data("x", [None, 5]), fluid.data("y", [None, 4])
    >>> layers.bilinear_tensor_product(x, y, size=8).shape
    (-1, 8)
    """
    check_variable(x, "bilinear_tensor_product: x")
    check_variable(y, "bilinear_tensor_product: y")
    helper = LayerHelper("bilinear_tensor_product", name, param_attr, bias_attr, act)
    weight = helper.create_parameter(helper.param_attr, [size, extent(x, 1, "x"), extent(y, 1, "y")], x.dtype)
    inputs = {"X": x, "Y": y, "Weight": weight}
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, [1, size], x.dtype, is_bias=True)
    return helper.append_activation(helper.apply("bilinear_tensor_product", inputs)["Out"])


def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """The sparse gradient `x` with sorted, distinct row indices; duplicate rows are added up.

    Args:
        x: a `SelectedRows`, such as the gradient of the table of an `embedding` with ``is_sparse=True``.

    >>> words = fluid.data("words", [None, 1], "int64")
    >>> rows = layers.embedding(words, [10, 2], is_sparse=True, param_attr=fluid.initializer.Constant(1.0))
    >>> table = fluid.default_main_program().all_parameters()[0]
    >>> (gradient,) = fluid.gradients([layers.reduce_sum(rows)], [table])
    >>> merged = layers.get_tensor_from_selected_rows(layers.merge_selected_rows(gradient))
    >>> executor = fluid.Executor()
    >>> _ = executor.run(fluid.default_startup_program())
    >>> executor.run(feed={"words": np.array([[3], [5], [3]])}, fetch_list=[merged])
    [array([[2., 2.],
           [1., 1.]], dtype=float32)]
    """
    return apply("merge_selected_rows", {"X": _sparse(x, "merge_selected_rows: x")}, name=name)


def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """The rows stored in the sparse gradient `x`, as a tensor ``[rows, ...]``.

    Args:
        x: a `SelectedRows`, such as the gradient of the table of an `embedding` with ``is_sparse=True``.

    Returns:
        ``[rows, ...]``, in storage order; see the example of `merge_selected_rows`.

    >>> words = fluid.data("words", [None, 1], "int64")
    >>> rows = layers.embedding(words, [10, 2], is_sparse=True)
    >>> table = fluid.default_main_program().all_parameters()[0]
    >>> (gradient,) = fluid.gradients([layers.reduce_sum(rows)], [table])
    >>> layers.get_tensor_from_selected_rows(gradient).shape
    (-1, 2)
    """
    return apply("get_tensor_from_selected_rows", {"X": _sparse(x, "get_tensor_from_selected_rows: x")}, name=name)


def _sparse(x: Variable, where: str) -> Variable:
    check_variable(x, where)
    if x.type is not VarType.SELECTED_ROWS:
        raise FluidTypeError(f"{where} should be a sparse gradient, as of embedding(is_sparse=True); {x.name} is {x.describe()}")
    return x
