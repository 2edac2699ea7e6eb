"""Layers for images and volumes: convolution, pooling, normalization, resizing, cropping and sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import unique_name
from ..building.layer_helper import LayerHelper, apply, apply_many, extent, extents, product
from ..errors import FluidTypeError, ProgramError
from ..initializer import Constant, Normal
from ..ir.checked import Positive, check_variable
from ..ir.program import Variable
from ..param_attr import AttrLike, ParamAttr
from ..values.types import VarType
from .nn import VOLUMES, adaptive_pooling, convolution, pooling, transposed_convolution
from .tensor import constant, one_each

__all__ = [
    "adaptive_pool3d",
    "affine_channel",
    "affine_grid",
    "conv3d",
    "conv3d_transpose",
    "crop",
    "crop_tensor",
    "data_norm",
    "deformable_conv",
    "deformable_roi_pooling",
    "fsp_matrix",
    "grid_sampler",
    "group_norm",
    "image_resize",
    "image_resize_short",
    "instance_norm",
    "lrn",
    "maxout",
    "pad_constant_like",
    "pixel_shuffle",
    "pool3d",
    "prelu",
    "prroi_pool",
    "psroi_pool",
    "random_crop",
    "resize_bilinear",
    "resize_linear",
    "resize_nearest",
    "resize_trilinear",
    "roi_align",
    "roi_perspective_transform",
    "roi_pool",
    "shuffle_channel",
    "similarity_focus",
    "space_to_depth",
    "spectral_norm",
    "temporal_shift",
    "unfold",
]


# ------------------------------------------------------------------------------------------------------------- volumes
def conv3d(
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
    data_format: str = "NCDHW",
) -> Variable:
    """`conv2d` of volumes ``[N, C, D, H, W]``, with filters ``[num_filters, C / groups, *filter_size]``.

    Args:
        input: volumes ``[N, C, D, H, W]``, or ``[N, D, H, W, C]`` with `data_format` ``"NDHWC"``; float.
        num_filters: number of channels of the result.
        filter_size: depth, height and width of the filters, or one number for all.
        stride: steps of the window along these, or one number for all.
        padding: zeros around the volume: one number, three (depth, height, width), six (front, back, top, ...), a pair for each
            dimension of the input, ``"SAME"`` or ``"VALID"``.
        dilation: how far the elements of the window are apart along these, or one number for all.
        groups: number of parts that channels and filters are split into; by default 1.
        param_attr: attributes of the filters; by default normal with the deviation ``sqrt(2 / (d * h * w * C))``.
        bias_attr: attributes of the bias, ``[num_filters]``; False for none.
        data_format: ``"NCDHW"`` or ``"NDHWC"``, of input and result.

    >>> volumes = fluid.data("volumes", [None, 3, 16, 32, 32])
    >>> layers.conv3d(volumes, num_filters=8, filter_size=3, padding=1).shape
    (-1, 8, 16, 32, 32)
    """
    parts: dict[str, Any] = {"name": name, "param_attr": param_attr, "bias_attr": bias_attr, "act": act}
    window = filter_size, stride, padding, dilation
    return convolution("conv3d", input, num_filters, *window, groups, use_cudnn, data_format, VOLUMES, **parts)


def conv3d_transpose(
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
    data_format: str = "NCDHW",
) -> Variable:
    """The transpose of `conv3d`: enlarges volumes ``[N, C, D, H, W]``.

    Args:
        input: volumes ``[N, C, D, H, W]``, or ``[N, D, H, W, C]`` with `data_format` ``"NDHWC"``; float.
        num_filters: number of channels of the result.
        output_size: depth, height and width of the result, or one number for all; by default the smallest that the convolution
            would map to the input's.
        filter_size: one number, or depth, height and width; optional if `output_size` is given, by default the largest filter
            that fits.
        padding, stride, dilation, groups: as in the `conv3d` that this layer transposes.
        param_attr: attributes of the filters, ``[C, num_filters / groups, *filter_size]``.
        bias_attr: attributes of the bias, ``[num_filters]``; False for none.
        data_format: ``"NCDHW"`` or ``"NDHWC"``, of input and result.

    >>> volumes = fluid.data("volumes", [None, 8, 4, 8, 8])
    >>> layers.conv3d_transpose(volumes, num_filters=3, filter_size=2, stride=2).shape
    (-1, 3, 8, 16, 16)
    """
    parts: dict[str, Any] = {"name": name, "param_attr": param_attr, "bias_attr": bias_attr, "act": act}
    window = filter_size, padding, stride, dilation
    return transposed_convolution(
        "conv3d_transpose", input, num_filters, output_size, *window, groups, use_cudnn, data_format, VOLUMES, **parts
    )


def pool3d(
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
    data_format: str = "NCDHW",
) -> Variable:
    """`pool2d` of volumes ``[N, C, D, H, W]``: the largest (``"max"``) or mean (``"avg"``) element of each window.

    Args:
        input: volumes ``[N, C, D, H, W]``, or ``[N, D, H, W, C]`` with `data_format` ``"NDHWC"``; float.
        pool_size: the window: one number, or depth, height and width. It is needed unless `global_pooling`.
        pool_type: ``"max"`` or ``"avg"``.
        pool_stride: step of the window: one number, or depth, height and width.
        pool_padding: as `padding` of `conv3d`.
        global_pooling: whether the window is the whole volume.
        ceil_mode: whether to round the result's sizes up, so that a last, partial window counts.
        exclusive: whether padding does not count in means.
        data_format: ``"NCDHW"`` or ``"NDHWC"``, of input and result.

    >>> volumes = fluid.data("volumes", [None, 3, 16, 32, 32])
    >>> layers.pool3d(volumes, pool_size=2, pool_type="avg", pool_stride=2).shape
    (-1, 3, 8, 16, 16)
    """
    attrs: dict[str, Any] = {"global_pooling": global_pooling, "ceil_mode": ceil_mode, "exclusive": exclusive}
    return pooling("pool3d", input, pool_size, pool_type, pool_stride, pool_padding, name, data_format, VOLUMES, **attrs)


def adaptive_pool3d(
    input: Variable,
    pool_size: Positive | Sequence[Positive],
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Variable | list[Variable]:
    """`adaptive_pool2d` of volumes ``[N, C, D, H, W]``, pooled to ``[N, C, *pool_size]``.

    Args:
        input: volumes, float.
        pool_size: depth, height and width of the result, or one number for all.
        pool_type: ``"max"`` or ``"avg"``.
        require_index: whether to return also the int32 index of each maximum in its volume; for ``"max"`` only.

    Returns:
        ``[N, C, *pool_size]``; with `require_index` a list of it and the indices.

    >>> volumes = fluid.data("volumes", [None, 3, 10, 30, 20])
    >>> layers.adaptive_pool3d(volumes, pool_size=[2, 4, 4], pool_type="avg").shape
    (-1, 3, 2, 4, 4)
    """
    return adaptive_pooling("adaptive_pool3d", input, pool_size, pool_type, require_index, name, 3)


# ------------------------------------------------------------------------------------------------------- normalization
def _by_channel(helper: LayerHelper, input: Variable, axis: int) -> dict[str, Variable]:
    """The inputs of a normalization that scales and shifts each channel."""
    inputs, shape = {"X": input}, [extent(input, axis, "input")]
    if helper.param_attr:
        inputs["Scale"] = helper.create_parameter(helper.param_attr, shape, input.dtype, default_initializer=Constant(1.0))
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, shape, input.dtype, is_bias=True)
    return inputs


def instance_norm(
    input: Variable, epsilon: float = 1e-05, param_attr: AttrLike = None, bias_attr: AttrLike = None, name: str | None = None
) -> Variable:
    """Normalizes each channel of each image: ``scale * (x - mean) / sqrt(variance + epsilon) + bias``.

    Formula: Ulyanov, Vedaldi and Lempitsky, Instance Normalization, 2016.

    Args:
        input: ``[N, C, ...]``, float.
        epsilon: added to the variance.
        param_attr: attributes of the scale, ``[C]``, which begins with ones; False for none.
        bias_attr: attributes of the bias, ``[C]``; False for none.

    >>> layers.instance_norm(fluid.data("images", [None, 3, 32, 32])).shape
    (-1, 3, 32, 32)
    """
    check_variable(input, "instance_norm: input")
    helper = LayerHelper("instance_norm", name, param_attr, bias_attr)
    output: Variable = helper.apply("instance_norm", _by_channel(helper, input, 1), {"epsilon": epsilon})["Y"]
    return output


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-05,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalizes each group of channels of each image: ``act(scale * (x - mean) / sqrt(variance + epsilon) + bias)``.

    Formula: Wu and He, Group Normalization, 2018.

    Args:
        input: ``[N, C, ...]``, or ``[N, ..., C]`` with `data_layout` ``"NHWC"``; float.
        groups: number of groups.
        epsilon: added to the variance.
        param_attr: attributes of the scale, ``[C]``, which begins with ones; False for none.
        bias_attr: attributes of the bias, ``[C]``; False for none.
        data_layout: ``"NCHW"`` or ``"NHWC"``.

    >>> layers.group_norm(fluid.data("images", [None, 8, 32, 32]), groups=4).shape
    (-1, 8, 32, 32)
    """
    check_variable(input, "group_norm: input")
    helper = LayerHelper("group_norm", name, param_attr, bias_attr, act)
    attrs = {"epsilon": epsilon, "groups": groups, "data_layout": data_layout}
    inputs = _by_channel(helper, input, 1 if data_layout == "NCHW" else -1)
    return helper.append_activation(helper.apply("group_norm", inputs, attrs)["Y"])


def data_norm(
    input: Variable,
    act: str | None = None,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
) -> Variable:
    """Normalizes columns of ``[N, C]`` by statistics of all data: ``act((x - sum / size) * sqrt(size / square_sum))``.

    The statistics are persistable vectors ``[C]``, named after the layer with ``.batch_size``, ``.batch_sum`` and
    ``.batch_square_sum`` appended. Nothing here updates them; in Fluid, parameter servers do.

    Args:
        input: ``[N, C]``, float.
        epsilon: accepted; the formula has none.
        param_attr: a dict of initial values ``batch_size``, ``batch_sum`` and ``batch_square_sum``; by default 1e4, 0 and 1e4.
        data_layout: ``"NCHW"``; of ``[N, C]`` there is no other.
        in_place, moving_mean_name, moving_variance_name: accepted and ignored, as in Fluid.
        do_model_average_for_mean_and_var: accepted and ignored.

    >>> layers.data_norm(fluid.data("x", [None, 3])).shape
    (-1, 3)
    >>> [parameter.name for parameter in fluid.default_main_program().all_parameters()]
    ['data_norm_0.batch_size', 'data_norm_0.batch_sum', 'data_norm_0.batch_square_sum']
    """
    check_variable(input, "data_norm: input")
    helper = LayerHelper("data_norm", name, act=act)
    first = {"batch_size": 1e4, "batch_sum": 0.0, "batch_square_sum": 1e4}
    first.update(param_attr if isinstance(param_attr, dict) else {})
    inputs = {"X": input}
    for slot, key in (("BatchSize", "batch_size"), ("BatchSum", "batch_sum"), ("BatchSquareSum", "batch_square_sum")):
        attr = ParamAttr(f"{helper.name}.{key}", Constant(first[key]), trainable=False)
        inputs[slot] = constant(helper.create_parameter(attr, [extent(input, 1, "input")], input.dtype))
    return helper.append_activation(helper.apply("data_norm", inputs, {"epsilon": epsilon, "data_layout": data_layout})["Y"])


def spectral_norm(weight: Variable, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, name: str | None = None) -> Variable:
    """`weight` divided by its largest singular value, estimated by `power_iters` steps of power iteration.

    Formula: Miyato et al., Spectral Normalization for Generative Adversarial Networks, 2018.

    Args:
        weight: a parameter, with two dimensions at least.
        dim: the dimension taken as the rows of a matrix, all others being its columns: 0 for `fc`, 1 for transposed convolutions.
        power_iters: number of steps, from vectors that are drawn once.
        eps: keeps the norms of these vectors above 0.

    >>> weight = layers.create_parameter([784, 10], "float32")
    >>> layers.spectral_norm(weight, power_iters=2).shape
    (784, 10)
    """
    check_variable(weight, "spectral_norm: weight")
    helper = LayerHelper("spectral_norm", name)
    height = extent(weight, dim, "weight")
    sizes = {"U": height, "V": product(weight.shape) // height}
    inputs = {"Weight": weight}
    for slot, size in sizes.items():
        vector = helper.create_parameter(ParamAttr(), [size], weight.dtype, default_initializer=Normal(0.0, 1.0))
        inputs[slot] = constant(vector)
    output: Variable = helper.apply("spectral_norm", inputs, {"dim": dim, "power_iters": power_iters, "eps": eps})["Out"]
    return output


def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Divides images by ``(k + alpha * s) ** beta``, where s is the sum of squares of `n` neighbouring channels.

    Formula: Krizhevsky, Sutskever and Hinton, ImageNet Classification with Deep Convolutional Neural Networks, 2012.

    Args:
        input: images, float.
        n: number of channels, around each.
        k: what the divisor begins with.
        alpha: factor of the sum of squares.
        beta: exponent of the divisor.
        data_format: ``"NCHW"``, or ``"NHWC"`` for channels in the last dimension.

    Raises:
        ProgramError: for another `data_format`.

    >>> layers.lrn(fluid.data("images", [None, 8, 32, 32]), n=5).shape
    (-1, 8, 32, 32)
    """
    if data_format not in ("NCHW", "NHWC"):
        raise ProgramError(f"lrn: data_format should be NCHW or NHWC, not {data_format!r}")
    attrs: dict[str, Any] = {"n": n, "k": k, "alpha": alpha, "beta": beta}
    if data_format != "NCHW":
        attrs["data_format"] = data_format
    output: Variable = LayerHelper("lrn", name).apply("lrn", {"X": input}, attrs)["Out"]
    return output


def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Variable:
    """``act(x * scale + bias)``, where scale and bias are ``[C]``, one number for each channel of images.

    Args:
        x: images ``[N, C, H, W]``, or ``[N, H, W, C]`` with `data_layout` ``"NHWC"``.
        scale, bias: ``[C]``, of the type of `x`; both are needed.
        data_layout: ``"NCHW"`` or ``"NHWC"``.

    Raises:
        ProgramError: without `scale` or `bias`.

    >>> images = fluid.dygraph.to_variable([[[[1.0]], [[2.0]]]])
    >>> scale, bias = fluid.dygraph.to_variable([10.0, 100.0]), fluid.dygraph.to_variable([0.0, 5.0])
    >>> layers.affine_channel(images, scale, bias).numpy().ravel()
    array([ 10., 205.], dtype=float32)
    """
    if scale is None or bias is None:
        raise ProgramError("affine_channel: give scale and bias, a number of each for each channel")
    return apply("affine_channel", {"X": x, "Scale": scale, "Bias": bias}, {"data_layout": data_layout}, name=name, act=act)


def prelu(x: Variable, mode: str, param_attr: AttrLike = None, name: str | None = None) -> Variable:
    """`x` where it is positive, ``alpha * x`` elsewhere, with a learned alpha (initially 0.25).

    Formula: He et al., Delving Deep into Rectifiers, 2015.

    Args:
        x: ``[N, ...]``, float.
        mode: ``"all"`` for one alpha, ``"channel"`` for one for each channel, or ``"element"`` for one for each element of a row.
        param_attr: attributes of alpha.

    Raises:
        ProgramError: for another `mode`.

    >>> layers.prelu(fluid.data("images", [None, 8, 32, 32]), mode="channel").shape
    (-1, 8, 32, 32)
    >>> [parameter.shape for parameter in fluid.default_main_program().all_parameters()]
    [(1, 8, 1, 1)]
    """
    check_variable(x, "prelu: x")
    shapes = {"all": [1], "channel": [1, *x.shape[1:2], *[1] * max(x.ndim - 2, 0)], "element": [1, *x.shape[1:]]}
    if mode not in shapes:
        raise ProgramError(f"prelu: mode should be 'all', 'channel' or 'element', not {mode!r}")
    helper = LayerHelper("prelu", name, param_attr)
    alpha = helper.create_parameter(helper.param_attr, shapes[mode], x.dtype, default_initializer=Constant(0.25))
    output: Variable = helper.apply("prelu", {"X": x, "Alpha": alpha}, {"mode": mode})["Out"]
    return output


# ------------------------------------------------------------------------------------------------- channels and places
def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """The maximum of each `groups` consecutive channels of images ``[N, C, H, W]``: ``[N, C / groups, H, W]``.

    Formula: Goodfellow et al., Maxout Networks, 2013.

    Args:
        x: images ``[N, C, H, W]``, or ``[N, H, W, C]``.
        groups: how many channels become one; it divides C.
        axis: the dimension of channels: 1, or 3 or -1.

    >>> layers.maxout(fluid.data("images", [None, 8, 32, 32]), groups=2).shape
    (-1, 4, 32, 32)
    """
    return apply("maxout", {"X": x}, {"groups": groups, "axis": axis}, name=name)


def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Rearranges images ``[N, C * r * r, H, W]`` to ``[N, C, H * r, W * r]``, where r is `upscale_factor`.

    Formula: Shi et al., Real-Time Single Image and Video Super-Resolution, 2016.

    Args:
        x: images, whose channels ``r * r`` divides.
        upscale_factor: how many times higher and wider images become.

    >>> layers.pixel_shuffle(fluid.data("images", [None, 12, 8, 8]), upscale_factor=2).shape
    (-1, 3, 16, 16)
    """
    return apply("pixel_shuffle", {"X": x}, {"upscale_factor": upscale_factor})


def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """Interleaves the channels of `group` groups: the first of each group, the second of each, and so on.

    Formula: Zhang et al., ShuffleNet, 2017.

    Args:
        x: images ``[N, C, H, W]``.
        group: number of groups, which divides C.

    >>> x = fluid.dygraph.to_variable(np.arange(6.0).reshape(1, 6, 1, 1))
    >>> layers.shuffle_channel(x, group=2).numpy().ravel()
    array([0., 3., 1., 4., 2., 5.])
    """
    return apply("shuffle_channel", {"X": x}, {"group": group}, name=name)


def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Rearranges images ``[N, C, H, W]`` to ``[N, C * b * b, H / b, W / b]``, where b is `blocksize`; ``b * b`` must divide C.

    Args:
        x: images, whose height and width `blocksize` divides.
        blocksize: the side of the squares that become channels.

    >>> layers.space_to_depth(fluid.data("images", [None, 4, 8, 8]), blocksize=2).shape
    (-1, 16, 4, 4)
    """
    return apply("space_to_depth", {"X": x}, {"blocksize": blocksize}, name=name)


def temporal_shift(x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None) -> Variable:
    """Shifts some channels of videos by one image forward, and some back, with zeros where no image is.

    Formula: Lin, Gan and Han, TSM: Temporal Shift Module for Efficient Video Understanding, 2019.

    Args:
        x: images of videos, ``[N * seg_num, C, H, W]``.
        seg_num: number of images of a video.
        shift_ratio: the share of channels taken from the image before; the next equal share comes from the image after.

    >>> images = fluid.dygraph.to_variable(np.arange(1.0, 9.0).reshape(2, 4, 1, 1))
    >>> layers.temporal_shift(images, seg_num=2).numpy().reshape(2, 4)
    array([[0., 6., 3., 4.],
           [1., 0., 7., 8.]])
    """
    return apply("temporal_shift", {"X": x}, {"seg_num": seg_num, "shift_ratio": shift_ratio}, name=name)


def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """The products of each channel of `x` with each of `y`, averaged over all pixels: ``[N, C of x, C of y]``.

    Formula: Yim et al., A Gift from Knowledge Distillation, 2017.

    Args:
        x, y: images of one size, ``[N, C, H, W]``, float.

    >>> x, y = fluid.dygraph.to_variable([[[[0.0, 1.0]], [[2.0, 3.0]]]]), fluid.dygraph.to_variable([[[[0.0, 1.0]]]])
    >>> layers.fsp_matrix(x, y)
    Tensor([[[0.5],
             [1.5]]], shape=[1, 2, 1], dtype=float32)
    """
    return apply("fsp", {"X": x, "Y": y}, layer="fsp_matrix")


def similarity_focus(input: Variable, axis: int, indexes: Sequence[int], name: str | None = None) -> Variable:
    """A mask of the shape of `input`: 1 where it is in focus, else 0.

    In each matrix at one of `indexes` along `axis`, elements are chosen from the largest on, at most one of each row and column;
    their places are in focus all along the axis.

    Args:
        input: four dimensions.
        axis: 1, 2 or 3.
        indexes: which matrices along the axis.

    >>> x = fluid.dygraph.to_variable([[[[0.8, 0.1], [0.4, 0.5]]]])
    >>> layers.similarity_focus(x, axis=1, indexes=[0])
    Tensor([[[[1., 0.],
              [0., 1.]]]], shape=[1, 1, 2, 2], dtype=float32)
    """
    return apply("similarity_focus", {"X": input}, {"axis": axis, "indexes": list(indexes)}, name=name)


def unfold(
    x: Variable,
    kernel_sizes: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    paddings: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    name: str | None = None,
) -> Variable:
    """The patches of images ``[N, C, H, W]`` as columns: ``[N, C * h * w, number of patches]``.

    Args:
        x: images ``[N, C, H, W]``.
        kernel_sizes: height and width of the patches, or one number for both.
        strides: steps between patches, down and across, or one number for both.
        paddings: zeros around the image: one number, two (height, width), or four (top, left, bottom, right).
        dilations: how far the elements of a patch are apart, down and across, or one number for both.

    >>> layers.unfold(fluid.data("images", [None, 3, 32, 32]), kernel_sizes=[4, 4], strides=4).shape
    (-1, 48, 64)
    """
    pairs = {"kernel_sizes": kernel_sizes, "strides": strides, "dilations": dilations}
    attrs = {key: [value] * 2 if isinstance(value, int) else list(value) for key, value in pairs.items()}
    attrs["paddings"] = [paddings] * 4 if isinstance(paddings, int) else list(paddings)
    if len(attrs["paddings"]) == 2:
        attrs["paddings"] *= 2
    return apply("unfold", {"X": x}, attrs, name=name)


# ------------------------------------------------------------------------------------------------------------ cropping
def _has_tensors(values: Any) -> bool:
    return isinstance(values, (list, tuple)) and any(isinstance(value, Variable) for value in values)


def crop(
    x: Variable,
    shape: Variable | Sequence[int] | None = None,
    offsets: Variable | Sequence[int] | None = None,
    name: str | None = None,
) -> Variable:
    """The part of `x` that begins at `offsets` and has the shape `shape`.

    Args:
        x: a tensor.
        shape: sizes, or a variable that has this shape.
        offsets: one for each dimension, or an int32 variable of them; by default zeros.

    Raises:
        ProgramError: without `shape`.

    >>> layers.crop(fluid.dygraph.to_variable([[1, 2, 3], [4, 5, 6]]), shape=[1, 2], offsets=[1, 0])
    Tensor([[4, 5]], shape=[1, 2], dtype=int64)
    """
    if not isinstance(shape, (list, tuple, Variable)):
        raise ProgramError(f"crop: shape should be a list of integers or a Variable, not {shape!r}")
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    if isinstance(shape, Variable):
        inputs["Y"] = shape
    else:
        attrs["shape"] = list(shape)
    if isinstance(offsets, Variable):
        inputs["Offsets"] = offsets
    else:
        attrs["offsets"] = list(offsets) if offsets is not None else [0] * x.ndim
    return apply("crop", inputs, attrs, name=name)


def crop_tensor(
    x: Variable,
    shape: Variable | Sequence[int | Variable] | None = None,
    offsets: Variable | Sequence[int | Variable] | None = None,
    name: str | None = None,
) -> Variable:
    """The part of `x` that begins at `offsets` and has the shape `shape`.

    Args:
        x: a tensor.
        shape: sizes; -1 means all remaining elements: integers and int32 variables, or one int32 variable of all.
        offsets: one for each dimension, in the same forms; by default zeros.

    Raises:
        ProgramError: without `shape`.

    >>> layers.crop_tensor(fluid.dygraph.to_variable([[1, 2, 3], [4, 5, 6]]), shape=[1, -1], offsets=[1, 1])
    Tensor([[5, 6]], shape=[1, 2], dtype=int64)
    """
    if not isinstance(shape, (list, tuple, Variable)):
        raise ProgramError(f"crop_tensor: shape should be a list or a Variable, not {shape!r}")
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    for key, slot, value in (("shape", "Shape", shape), ("offsets", "Offsets", offsets)):
        if isinstance(value, Variable):
            inputs[slot] = value
        elif value is not None and _has_tensors(value):
            inputs[slot + "Tensor"] = one_each(value)
            attrs[key] = [-1 if isinstance(item, Variable) else item for item in value] if key == "shape" else []
        elif value is not None:
            attrs[key] = list(value)
    return apply("crop_tensor", inputs, attrs, name=name)


def pad_constant_like(x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None) -> Variable:
    """`y` padded with `pad_value` at the end of each axis to the shape of `x`.

    Args:
        x: a tensor; only its shape is read.
        y: a tensor as large or smaller in each dimension.
        pad_value: a number.

    >>> x, y = fluid.dygraph.to_variable([[0, 0, 0], [0, 0, 0]]), fluid.dygraph.to_variable([[1, 2]])
    >>> layers.pad_constant_like(x, y)
    Tensor([[1, 2, 0],
            [0, 0, 0]], shape=[2, 3], dtype=int64)
    """
    return apply("pad_constant_like", {"X": x, "Y": y}, {"pad_value": pad_value}, name=name)


def random_crop(x: Variable, shape: Sequence[int], seed: int | Variable | None = None) -> Variable:
    """A random part of each item of `x`, drawn again in each run.

    Args:
        x: items ``[..., *sizes]``.
        shape: sizes of the part, along the last dimensions.
        seed: a first seed, or an int64 variable with the seed, which is updated in each run; None for the program's seed.

    >>> layers.random_crop(fluid.data("images", [None, 3, 32, 32]), shape=[3, 28, 28]).shape
    (-1, 3, 28, 28)
    """
    helper = LayerHelper("random_crop")
    inputs: dict[str, Any] = {"X": x}
    if seed is not None:
        inputs["Seed"] = seed_variable(helper, seed)
    output: Variable = helper.apply("random_crop", inputs, {"shape": list(shape)}, {"SeedOut": inputs.get("Seed")})["Out"]
    return output


def seed_variable(helper: LayerHelper, seed: int | Variable | None) -> Variable:
    """The variable with the seed of a layer, which is updated in each run: `seed` itself, or a new one that begins with it."""
    if isinstance(seed, Variable):
        return seed
    if not isinstance(seed, (int, type(None))):
        raise FluidTypeError(f"{helper.layer_type}: seed should be an integer or a Variable, not {type(seed).__name__}")
    name = unique_name.generate(f"{helper.layer_type}_seed")
    var = helper.create_global_variable(persistable=True, name=name, shape=[1], dtype=VarType.INT64, stop_gradient=True)
    initialized: Variable = helper.set_variable_initializer(var, Constant(seed or 0))
    return initialized


# ------------------------------------------------------------------------------------------------------------ resizing
def image_resize(
    input: Variable,
    out_shape: Variable | Sequence[int | Variable] | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resizes images.

    Args:
        input: ``[N, C, H, W]``; ``[N, C, D, H, W]`` for ``"TRILINEAR"``, ``[N, C, W]`` for ``"LINEAR"``.
        out_shape: the new size: a list of integers and variables, or an int32 variable.
        scale: a factor instead of `out_shape`: a number or a variable.
        resample: ``"BILINEAR"``, ``"NEAREST"``, ``"TRILINEAR"``, ``"LINEAR"`` or ``"BICUBIC"``.
        actual_shape: an int32 variable with the new size, which overrides `out_shape` and `scale`.
        align_corners: map the outermost elements onto each other.
        align_mode: without `align_corners`, 0 treats elements as areas, 1 as points.
        data_format: ``"NCHW"`` or ``"NHWC"``; with five dimensions ``"NCDHW"`` or ``"NDHWC"``, with three ``"NCW"`` or ``"NWC"``.

    Raises:
        ProgramError: without `out_shape` and `scale`, or if `resample`, `data_format` or the size do not fit `input`.

    >>> layers.image_resize(fluid.data("images", [None, 3, 32, 32]), out_shape=[64, 48], resample="NEAREST").shape
    (-1, 3, 64, 48)
    """
    check_variable(input, "image_resize: input")
    counts = {"LINEAR": (1,), "BILINEAR": (2,), "TRILINEAR": (3,), "NEAREST": (2, 3), "BICUBIC": (2,)}
    method = resample.upper()
    if method not in counts:
        raise ProgramError(f"image_resize: resample should be one of {', '.join(counts)}, not {resample!r}")
    count = input.ndim - 2
    if count not in counts[method]:
        raise ProgramError(f"image_resize: {resample} does not resize {input.name}, of {input.ndim} dimensions")
    formats = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[count]
    if data_format not in formats:
        advice = f"data_format should be {' or '.join(formats)}, not {data_format!r}"
        raise ProgramError(f"image_resize: {input.name} has {input.ndim} dimensions, so {advice}")
    if out_shape is None and scale is None:
        raise ProgramError("image_resize: give out_shape or scale")
    if not isinstance(align_corners, bool) or align_mode not in (0, 1):
        raise ProgramError(f"image_resize: align_corners {align_corners!r} should be a bool, align_mode {align_mode!r} 0 or 1")
    attrs: dict[str, Any] = {
        "interp_method": method.lower(),
        "align_corners": align_corners,
        "align_mode": align_mode,
        "data_layout": "NCHW" if data_format == formats[0] else "NHWC",
    }
    inputs: dict[str, Any] = {"X": input}
    names = ("out_d", "out_h", "out_w")[3 - count :]
    if isinstance(out_shape, Variable):
        inputs["OutSize"] = out_shape
    elif out_shape is not None:
        if not isinstance(out_shape, (list, tuple)) or len(out_shape) != count:
            raise ProgramError(f"image_resize: out_shape should be {count} numbers for {input.name}, not {out_shape!r}")
        if _has_tensors(out_shape):
            inputs["SizeTensor"] = one_each(out_shape)
        else:
            attrs.update(zip(names, map(int, out_shape), strict=True))
    elif isinstance(scale, Variable):
        inputs["Scale"] = scale
    elif scale is not None:
        if scale <= 0:
            raise ProgramError(f"image_resize: scale should be above 0, not {scale}")
        attrs["scale"] = float(scale)
    if actual_shape is not None:
        if not isinstance(actual_shape, Variable):
            raise FluidTypeError(f"image_resize: actual_shape should be a Variable, not {type(actual_shape).__name__}")
        inputs["OutSize"] = actual_shape
    return apply(f"{method.lower()}_interp", inputs, attrs, name=name)


def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Resizes images ``[N, C, H, W]`` of known size: the shorter side becomes `out_short_len`, the aspect ratio stays.

    Args:
        input: images of known size.
        out_short_len: the new length of the shorter side.
        resample: as in `image_resize`.

    Raises:
        ProgramError: if the size is unknown.

    >>> layers.image_resize_short(fluid.data("images", [None, 3, 60, 80]), out_short_len=30).shape
    (-1, 3, 30, 40)
    """
    check_variable(input, "image_resize_short: input")
    if input.ndim != 4 or min(input.shape[2:]) < 1:
        raise ProgramError(f"image_resize_short: input should be images of known size; {input.name} is {input.describe()}")
    short = min(input.shape[2:])
    sizes = [int(size * (out_short_len / short) + 0.5) for size in input.shape[2:]]
    sizes[input.shape[2:].index(short)] = out_short_len
    return image_resize(input, sizes, resample=resample)


def resize_bilinear(
    input: Variable,
    out_shape: Variable | Sequence[int | Variable] | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """`image_resize` by linear interpolation along height and width.

    Args:
        input: images ``[N, C, H, W]``, or ``[N, H, W, C]``.
        out_shape, scale, actual_shape: the new size, as in `image_resize`; one of the first two is needed.
        align_corners, align_mode: how places correspond, as in `image_resize`.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    >>> layers.resize_bilinear(fluid.data("images", [None, 3, 32, 32]), scale=2.0).shape
    (-1, 3, 64, 64)
    """
    return image_resize(input, out_shape, scale, name, "BILINEAR", actual_shape, align_corners, align_mode, data_format)


def resize_linear(
    input: Variable,
    out_shape: Variable | Sequence[int | Variable] | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCW",
) -> Variable:
    """`image_resize` of rows by linear interpolation along their width.

    Args:
        input: rows ``[N, C, W]``, or ``[N, W, C]``.
        out_shape, scale, actual_shape: the new size, as in `image_resize`; one of the first two is needed.
        align_corners, align_mode: how places correspond, as in `image_resize`.
        data_format: ``"NCW"`` or ``"NWC"``.

    >>> layers.resize_linear(fluid.data("rows", [None, 3, 32]), out_shape=[64]).shape
    (-1, 3, 64)
    """
    return image_resize(input, out_shape, scale, name, "LINEAR", actual_shape, align_corners, align_mode, data_format)


def resize_trilinear(
    input: Variable,
    out_shape: Variable | Sequence[int | Variable] | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCDHW",
) -> Variable:
    """`image_resize` of volumes by linear interpolation along depth, height and width.

    Args:
        input: volumes ``[N, C, D, H, W]``, or ``[N, D, H, W, C]``.
        out_shape, scale, actual_shape: the new size, as in `image_resize`; one of the first two is needed.
        align_corners, align_mode: how places correspond, as in `image_resize`.
        data_format: ``"NCDHW"`` or ``"NDHWC"``.

    >>> layers.resize_trilinear(fluid.data("volumes", [None, 3, 8, 8, 8]), out_shape=[16, 16, 16]).shape
    (-1, 3, 16, 16, 16)
    """
    return image_resize(input, out_shape, scale, name, "TRILINEAR", actual_shape, align_corners, align_mode, data_format)


def resize_nearest(
    input: Variable,
    out_shape: Variable | Sequence[int | Variable] | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """`image_resize` that takes the nearest element of the input.

    Args:
        input: images ``[N, C, H, W]``, or ``[N, H, W, C]``.
        out_shape, scale, actual_shape: the new size, as in `image_resize`; one of the first two is needed.
        align_corners: how places correspond, as in `image_resize`.
        data_format: ``"NCHW"`` or ``"NHWC"``; with five dimensions ``"NCDHW"`` or ``"NDHWC"``.

    >>> layers.resize_nearest(fluid.data("images", [None, 3, 32, 32]), out_shape=[64, 64]).shape
    (-1, 3, 64, 64)
    """
    return image_resize(input, out_shape, scale, name, "NEAREST", actual_shape, align_corners, 1, data_format)


# ------------------------------------------------------------------------------------------------------ sampling by grid
def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Samples images ``[N, C, H, W]`` by bilinear interpolation at the points in `grid` ``[N, H', W', 2]``.

    Points are (x, y); -1 and 1 are the centres of the outermost elements, and images are zero outside.

    Formula: Jaderberg et al., Spatial Transformer Networks, 2015.

    Args:
        x: images, float.
        grid: of the type of `x`, such as `affine_grid` makes it.

    >>> images = fluid.dygraph.to_variable([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> layers.grid_sampler(images, fluid.dygraph.to_variable([[[[0.0, 0.0], [1.0, 1.0]]]]))
    Tensor([[[[2.5, 4. ]]]], shape=[1, 1, 1, 2], dtype=float32)
    """
    return apply("grid_sampler", {"X": x, "Grid": grid}, name=name)


def affine_grid(theta: Variable, out_shape: Variable | Sequence[int], name: str | None = None) -> Variable:
    """A grid ``[N, H, W, 2]`` for `grid_sampler`: the points of an image of `out_shape` ``[N, C, H, W]``, transformed by `theta`.

    Formula: Jaderberg et al., Spatial Transformer Networks, 2015.

    Args:
        theta: float ``[N, 2, 3]``; it multiplies each point (x, y, 1).
        out_shape: four numbers, or an int32 variable of them.

    Raises:
        FluidTypeError: for any other `out_shape`.

    >>> theta = fluid.dygraph.to_variable([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> grid = layers.affine_grid(theta, out_shape=[1, 1, 2, 2])
    >>> layers.grid_sampler(fluid.dygraph.to_variable([[[[1.0, 2.0], [3.0, 4.0]]]]), grid)
    Tensor([[[[1., 2.],
              [3., 4.]]]], shape=[1, 1, 2, 2], dtype=float32)
    """
    inputs: dict[str, Any] = {"Theta": theta}
    attrs: dict[str, Any] = {}
    if isinstance(out_shape, Variable):
        inputs["OutputShape"] = out_shape
    elif isinstance(out_shape, (list, tuple)):
        attrs["output_shape"] = [int(size) for size in out_shape]
    else:
        raise FluidTypeError(f"affine_grid: out_shape should be a Variable or four numbers, not {out_shape!r}")
    return apply("affine_grid", inputs, attrs, name=name)


# ------------------------------------------------------------------------------------------------- regions of interest
def roi_pool(
    input: Variable, rois: Variable, pooled_height: int = 1, pooled_width: int = 1, spatial_scale: float = 1.0
) -> Variable:
    """Divides regions of images ``[N, C, H, W]`` into parts; the maxima of these: ``[R, C, pooled_height, pooled_width]``.

    Formula: Girshick, Fast R-CNN, 2015.

    Args:
        input: images, float.
        rois: left, top, right and bottom of regions ``[R, 4]``; sequence i (``lod_level=1``) belongs to image i.
        pooled_height: number of parts, down.
        pooled_width: number of parts, across.
        spatial_scale: factor from `rois` to coordinates in the images; the products are rounded.

    >>> images, rois = fluid.data("images", [None, 8, 32, 32]), fluid.data("rois", [None, 4], lod_level=1)
    >>> layers.roi_pool(images, rois, pooled_height=7, pooled_width=7).shape
    (-1, 8, 7, 7)
    """
    return _pool_regions("roi_pool", input, rois, pooled_height, pooled_width, spatial_scale)


def roi_align(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    name: str | None = None,
) -> Variable:
    """`roi_pool` that averages points interpolated between the elements of images.

    Formula: He et al., Mask R-CNN, 2017.

    Args:
        input, rois, pooled_height, pooled_width: as in `roi_pool`.
        spatial_scale: factor from `rois` to coordinates in the images.
        sampling_ratio: each part has that many points down and across; if it is not positive, about one for each element of the
            part.

    >>> images, rois = fluid.data("images", [None, 8, 32, 32]), fluid.data("rois", [None, 4], lod_level=1)
    >>> layers.roi_align(images, rois, pooled_height=7, pooled_width=7, sampling_ratio=2).shape
    (-1, 8, 7, 7)
    """
    return _pool_regions(
        "roi_align", input, rois, pooled_height, pooled_width, spatial_scale, name, sampling_ratio=sampling_ratio
    )


def psroi_pool(
    input: Variable,
    rois: Variable,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    name: str | None = None,
) -> Variable:
    """`roi_pool` that averages, with channels of its own for each part.

    Formula: Dai et al., R-FCN, 2016.

    Args:
        input: float ``[N, output_channels * pooled_height * pooled_width, H, W]``.
        rois, spatial_scale, pooled_height, pooled_width: as in `roi_pool`.
        output_channels: number of channels of the result.

    >>> images, rois = fluid.data("images", [None, 98, 32, 32]), fluid.data("rois", [None, 4], lod_level=1)
    >>> layers.psroi_pool(images, rois, output_channels=2, spatial_scale=1.0, pooled_height=7, pooled_width=7).shape
    (-1, 2, 7, 7)
    """
    return _pool_regions(
        "psroi_pool", input, rois, pooled_height, pooled_width, spatial_scale, name, output_channels=output_channels
    )


def prroi_pool(
    input: Variable,
    rois: Variable,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    name: str | None = None,
) -> Variable:
    """`roi_pool` that averages what interpolation makes of the images, exactly: gradients flow to `rois`, too.

    Formula: Jiang et al., Acquisition of Localization Confidence for Accurate Object Detection, 2018.

    Args:
        input, rois, pooled_height, pooled_width: as in `roi_pool`.
        spatial_scale: factor from `rois` to coordinates in the images.

    >>> images, rois = fluid.data("images", [None, 8, 32, 32]), fluid.data("rois", [None, 4], lod_level=1)
    >>> layers.prroi_pool(images, rois, 0.5, 7, 7).shape
    (-1, 8, 7, 7)
    """
    return _pool_regions("prroi_pool", input, rois, pooled_height, pooled_width, spatial_scale, name)


def deformable_roi_pooling(
    input: Variable,
    rois: Variable,
    trans: Variable,
    no_trans: bool = False,
    spatial_scale: float = 1.0,
    group_size: Sequence[Positive] = [1, 1],
    pooled_height: Positive = 1,
    pooled_width: Positive = 1,
    part_size: Sequence[Positive] | None = None,
    sample_per_part: int = 1,
    trans_std: float = 0.1,
    position_sensitive: bool = False,
    name: str | None = None,
) -> Variable:
    """`roi_pool` that averages `sample_per_part` by `sample_per_part` points of each part, which `trans` moves.

    Formula: Dai et al., Deformable Convolutional Networks, 2017.

    Args:
        input, rois, spatial_scale, pooled_height, pooled_width: as in `roi_pool`.
        trans: ``[R, 2 * classes, part_size]``: how far right and down parts are moved, relative to `trans_std` times the size of
            their region; ignored with `no_trans`.
        no_trans: whether parts stay where they are.
        group_size: how many groups of parts, down and across, have channels of their own.
        part_size: how many numbers in `trans`, down and across, move the parts of a region; by default, one each.
        sample_per_part: number of points of a part, down and across.
        trans_std: factor of `trans`.
        position_sensitive: the output has ``C / (pooled_height * pooled_width)`` channels; otherwise C, as the input.

    >>> images, rois = fluid.data("images", [None, 98, 32, 32]), fluid.data("rois", [None, 4], lod_level=1)
    >>> trans = fluid.data("trans", [None, 2, 7, 7])
    >>> how = {"pooled_height": 7, "pooled_width": 7, "position_sensitive": True}
    >>> layers.deformable_roi_pooling(images, rois, trans, group_size=[7, 7], **how).shape
    (-1, 2, 7, 7)
    """
    layer = "deformable_roi_pooling"
    check_variable(input, f"{layer}: input")
    channels = extent(input, 1, f"{layer}: input")
    attrs = {
        "no_trans": no_trans,
        "spatial_scale": spatial_scale,
        "output_dim": channels // (pooled_height * pooled_width) if position_sensitive else channels,
        "group_size": list(group_size),
        "pooled_height": pooled_height,
        "pooled_width": pooled_width,
        "part_size": extents(part_size, 2, f"{layer}: part_size") if part_size else [pooled_height, pooled_width],
        "sample_per_part": sample_per_part,
        "trans_std": trans_std,
    }
    inputs = {"Input": input, "ROIs": rois, "Trans": trans}
    output: Variable = LayerHelper(layer, name).apply("deformable_psroi_pooling", inputs, attrs)["Output"]
    return output


def roi_perspective_transform(
    input: Variable,
    rois: Variable,
    transformed_height: Positive,
    transformed_width: Positive,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> tuple[Variable, ...]:
    """Quadrangles of images, cut out and made rectangular, ``[R, C, transformed_height, transformed_width]``.

    Args:
        input: float ``[N, C, H, W]``.
        rois: x and y of the corners, ``[R, 8]``: left top, right top, right bottom, left bottom; sequence i belongs to image i.
        transformed_height: height of the result.
        transformed_width: width of the result.
        spatial_scale: factor from `rois` to coordinates in the images.

    Returns:
        The quadrangles; where they are in the quadrangle and the image, int32 ``[R, 1, transformed_height, transformed_width]``;
        and the matrices ``[R, 9]`` of the perspective transformation from places in the result to those in the images.

    >>> images, rois = fluid.data("images", [None, 8, 32, 32]), fluid.data("rois", [None, 8], lod_level=1)
    >>> [var.shape for var in layers.roi_perspective_transform(images, rois, 7, 9)]
    [(-1, 8, 7, 9), (-1, 1, 7, 9), (-1, 9)]
    """
    attrs = {
        "transformed_height": transformed_height,
        "transformed_width": transformed_width,
        "spatial_scale": spatial_scale,
    }
    return tuple(apply_many("roi_perspective_transform", {"X": input, "ROIs": rois}, attrs, name=name))


def _pool_regions(
    layer: str, input: Variable, rois: Variable, height: int, width: int, scale: float, name: str | None = None, **attrs: Any
) -> Variable:
    attrs.update(pooled_height=height, pooled_width=width, spatial_scale=scale)
    return apply(layer, {"X": input, "ROIs": rois}, attrs, name=name)


# ----------------------------------------------------------------------------------------------- deformable convolution
def deformable_conv(
    input: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: Positive,
    filter_size: Positive | Sequence[Positive],
    stride: Positive | Sequence[Positive] = 1,
    padding: int | Sequence[int] = 0,
    dilation: Positive | Sequence[Positive] = 1,
    groups: Positive | None = None,
    deformable_groups: Positive | None = None,
    im2col_step: int | None = None,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    modulated: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolution of images ``[N, C, H, W]`` whose filters ``[num_filters, C / groups, a, b]`` read at shifted points.

    Formula: Dai et al., Deformable Convolutional Networks, 2017; with `mask`, Zhu et al., Deformable ConvNets v2, 2019.

    Args:
        input: images, float; C is known.
        offset: ``[N, 2 * deformable_groups * a * b, H', W']``: how far down and right each filter element is shifted, for each
            element of the output. Points between elements are interpolated bilinearly; images are zero outside.
        mask: ``[N, deformable_groups * a * b, H', W']``: factors of the elements read; ignored unless `modulated`.
        num_filters: number of channels of the result.
        filter_size, stride, padding, dilation: as in `conv2d`: one number, or height and width.
        groups: number of parts that channels and filters are split into; by default 1.
        deformable_groups: number of groups of channels with offsets of their own; by default 1.
        im2col_step: accepted and ignored.
        param_attr: attributes of the filters; by default as of `conv2d`.
        bias_attr: attributes of the bias, ``[num_filters]``; False for none.
        modulated: whether there is a mask.

    Raises:
        ProgramError: if there should be a mask and is none.

    >>> images = fluid.data("images", [None, 3, 32, 32])
    >>> offset, mask = fluid.data("offset", [None, 18, 32, 32]), fluid.data("mask", [None, 9, 32, 32])
    >>> layers.deformable_conv(images, offset, mask, num_filters=8, filter_size=3, padding=1).shape
    (-1, 8, 32, 32)
    """
    layer = "deformable_conv"
    check_variable(input, f"{layer}: input")
    if modulated and mask is None:
        raise ProgramError(f"{layer}: give a mask, or modulated=False for none")
    channels, groups = extent(input, 1, f"{layer}: input"), groups or 1
    helper = LayerHelper(layer, name, param_attr, bias_attr)
    kernel = extents(filter_size, 2, f"{layer}: filter_size")
    shape = [num_filters, channels // groups, *kernel]
    std = math.sqrt(2.0 / max(math.prod(kernel) * channels, 1))
    weight = helper.create_parameter(helper.param_attr, shape, input.dtype, default_initializer=Normal(0.0, std))
    inputs = {"Input": input, "Offset": offset, "Filter": weight, **({"Mask": mask} if modulated else {})}
    attrs = {
        "strides": extents(stride, 2, f"{layer}: stride"),
        "paddings": extents(padding, 2, f"{layer}: padding"),
        "dilations": extents(dilation, 2, f"{layer}: dilation"),
        "groups": groups,
        "deformable_groups": deformable_groups or 1,
        "im2col_step": im2col_step or 64,
    }
    output = helper.apply(layer if modulated else "deformable_conv_v1", inputs, attrs)["Output"]
    return helper.append_bias_op(output, 1, 2)
