"""Convolutions of images and volumes.

A convolution is linear in the image and in the filter. Its gradients are `conv2d_backprop_input` and `conv2d_backprop_filter`,
and the gradients of each of these three ops are the other two, so they have gradients of every order. `conv3d`, for volumes,
has the same three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.registry import Attr, ShapeOnly, choice, counted, define, ints, least
from ..values.spec import Spec, may_equal

Pair = tuple[int, int]


# ----------------------------------------------------------------------------------------------------------- geometry
def image_format(count: int = 2, default: str = "") -> Attr:
    """The attribute for the position of the channels of an image of `count` spatial dimensions."""
    formats = ("NCHW", "NHWC", "AnyLayout") if count == 2 else ("NCDHW", "NDHWC", "NCHW", "NHWC", "AnyLayout")
    default = default or formats[0]
    return choice(default, *(item for item in formats if item != default))


def image_axes(data_format: str, ndim: int) -> tuple[int, list[int]]:
    """The axis of the channels and the spatial axes of an image in this format."""
    if data_format in ("NHWC", "NDHWC", "NLC", "NWC"):
        return ndim - 1, list(range(1, ndim - 1))
    if data_format in ("NCHW", "NCDHW", "NCL", "NCW", "AnyLayout"):
        return 1, list(range(2, ndim))
    raise InferenceError(f"data_format {data_format!r} should be 'NCHW' or 'NHWC'")


def channels_last(image: Spec, data_format: str) -> str:
    """A hint for messages if an image that is taken as NCHW looks like NHWC: its last size is 1, 3 or 4, its second not."""
    channels = (1, 3, 4)
    if image.ndim != 4 or image.shape[3] not in channels or image.shape[1] in channels or image_axes(data_format, 4)[0] != 1:
        return ""
    return "; it looks like NHWC: layers.transpose(x, perm=[0, 3, 1, 2]) makes it NCHW"


def resolve_paddings(
    paddings: Sequence[int], algorithm: str, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int]
) -> list[Pair]:
    """Padding before and after each spatial dimension; `paddings` has one number per dimension, or two: before and after."""
    if algorithm == "VALID":
        return [(0, 0)] * len(sizes)
    if algorithm == "SAME":
        steps = zip(sizes, kernel, strides, strict=True)
        totals = [max((-(-size // by) - 1) * by + window - size, 0) if size >= 0 else 0 for size, window, by in steps]
        return [(total // 2, total - total // 2) for total in totals]
    if len(paddings) == len(sizes):
        return [(padding, padding) for padding in paddings]
    if len(paddings) == 2 * len(sizes):
        return list(zip(paddings[::2], paddings[1::2], strict=True))
    raise InferenceError(f"paddings {list(paddings)} should be {len(sizes)} or {2 * len(sizes)} numbers")


def steps_of_window(size: int, window: int, stride: int, padding: Pair, ceil: bool = False) -> int:
    """The number of positions of a window of size `window` in a padded dimension; -1 if either size is unknown (negative)."""
    if size < 0 or window < 0:
        return -1
    room = size + sum(padding) - window
    return max(-(-room // stride) + 1 if ceil else room // stride + 1, 0)


def conv_geometry(
    image: tuple[int, ...], kernel: Sequence[int], attrs: Mapping[str, Any]
) -> tuple[list[int], list[Pair], list[int]]:
    """Spatial output sizes (-1 if unknown), paddings and dilations of a convolution of an image of this shape."""
    sizes = [image[axis] for axis in image_axes(attrs["data_format"], len(image))[1]]
    algorithm, strides = attrs["padding_algorithm"], attrs["strides"]
    dilations = [1] * len(sizes) if algorithm == "SAME" else list(attrs["dilations"])
    pads = resolve_paddings(attrs["paddings"], algorithm, sizes, kernel, strides)
    if algorithm == "SAME":
        out = [-(-size // stride) if size >= 0 else -1 for size, stride in zip(sizes, strides, strict=True)]
    else:
        windows = [dilation * (window - 1) + 1 for dilation, window in zip(dilations, kernel, strict=True)]
        out = [steps_of_window(*axis_sizes) for axis_sizes in zip(sizes, windows, strides, pads, strict=True)]
    return out, pads, dilations


def convolved(count: int) -> Callable[..., Spec]:
    """Inference of a convolution over `count` spatial dimensions."""

    def infer(Input: Spec, Filter: Spec, attrs: Mapping[str, Any]) -> Spec:
        data_format, ndim = attrs["data_format"], count + 2
        if Input.ndim != ndim or Filter.ndim != ndim:
            raise InferenceError(
                f"a convolution needs Input and Filter of {ndim} dimensions, got Input {Input} and Filter {Filter}"
            )
        if Input.dtype is not Filter.dtype:
            raise ElementTypeError(f"Input {Input} and Filter {Filter} differ in element type")
        if 0 in Filter.shape[2:]:
            raise InferenceError(f"Filter {Filter} should have elements in each of its dimensions from 2 on")
        channel, axes = image_axes(data_format, ndim)
        channels, groups = Input.shape[channel], max(attrs["groups"], 1)
        if channels >= 0 and Filter.shape[1] >= 0 and channels != Filter.shape[1] * groups:
            raise InferenceError(
                f"Input {Input} ({data_format}) has {channels} channels, "
                f"but Filter {Filter} reads {Filter.shape[1]} in each of {groups} groups"
            )
        if Filter.shape[0] % groups and Filter.shape[0] > 0:
            raise InferenceError(
                f"the {Filter.shape[0]} output channels of Filter {Filter} cannot be shared among {groups} groups"
            )
        shape = list(Input.shape)
        shape[channel] = Filter.shape[0]
        out, _, dilations = conv_geometry(Input.shape, Filter.shape[2:], attrs)
        for axis, size in zip(axes, out, strict=True):
            if size < 1 and size != -1:
                raise InferenceError(
                    f"Filter {Filter} (dilations {dilations}) should not be larger than the padded Input {Input}"
                    + channels_last(Input, attrs["data_format"])
                )
            shape[axis] = size
        return Input.with_shape(tuple(shape))

    return infer


def _transposed(count: int) -> Callable[..., Spec]:
    """Inference of a transposed convolution over `count` spatial dimensions."""

    def infer(inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> Spec:
        Input: Spec = inputs["Input"]
        Filter: Spec = inputs["Filter"]
        strides, padding_algorithm = attrs["strides"], attrs["padding_algorithm"]
        for name in ("output_size", "output_padding"):
            if len(attrs[name]) not in (0, count):
                raise InferenceError(f"{name} {attrs[name]} should have {count} numbers, or none")
        output_size, output_padding = attrs["output_size"], attrs["output_padding"]
        channel, axes = image_axes(attrs["data_format"], count + 2)
        if (
            Input.ndim != count + 2
            or Filter.ndim != count + 2
            or (-1 not in (Input.shape[channel], Filter.shape[0]) and Input.shape[channel] != Filter.shape[0])
        ):
            raise InferenceError(f"Input {Input} should have as many channels as Filter {Filter} has in front")
        if 0 in Filter.shape[2:]:
            raise InferenceError(f"Filter {Filter} should have elements in each of its dimensions from 2 on")
        if inputs.get("Bias") is not None:
            raise InferenceError("a Bias slot is not supported; add the bias with elementwise_add (axis=1)")
        if Input.dtype is not Filter.dtype:
            raise ElementTypeError(f"Input {Input} and Filter {Filter} differ in element type")
        if Input.shape[channel] >= 0 and Input.shape[channel] % max(attrs["groups"], 1):
            raise InferenceError(f"the channels of Input {Input} cannot be shared among {attrs['groups']} groups")
        shape = list(Input.shape)
        shape[channel] = Filter.shape[1] * max(attrs["groups"], 1) if Filter.shape[1] >= 0 else -1
        same = padding_algorithm == "SAME"
        dilations = [1] * count if same else attrs["dilations"]
        sizes = [Input.shape[axis] for axis in axes]
        pads = resolve_paddings(attrs["paddings"], padding_algorithm, sizes, Filter.shape[2:], strides)
        for place, axis in enumerate(axes):
            stride = strides[place]
            size = shape[axis] if Filter.shape[2 + place] >= 0 else -1
            least = (size - 1) * stride - sum(pads[place]) + dilations[place] * (Filter.shape[2 + place] - 1) + 1
            requested = output_size[place] if output_size else least + (output_padding[place] if output_padding else 0)
            if size >= 0 and requested < 1:
                raise InferenceError(f"paddings {attrs['paddings']} should leave something of the output of Input {Input}")
            if size >= 0 and requested != least and same:
                raise InferenceError(
                    f"with the padding_algorithm SAME, the output of Input {Input} has size {least}, not {requested}"
                )
            if size >= 0 and not least <= requested < least + max(stride, dilations[place]):
                raise InferenceError(f"Input {Input} cannot have an output of size {requested}: the least possible is {least}")
            shape[axis] = requested if size >= 0 or output_size else -1
        return Input.with_shape(tuple(shape))

    return infer


def _backprop(count: int, slot: str) -> Callable[..., Spec]:
    """Inference of the gradient of a convolution for one of its inputs, `slot`, which Like has the shape of."""
    of_forward = convolved(count)

    def infer(inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> Spec:
        Output: Spec = inputs["Output"]
        Like: Spec = inputs["Like"]
        factors = {**inputs, slot: Like.with_dtype(Output.dtype)}
        out = of_forward(factors["Input"], factors["Filter"], attrs)
        _, axes = image_axes(attrs["data_format"], count + 2)
        steps = zip(attrs["strides"], [1] * count if attrs["padding_algorithm"] == "SAME" else attrs["dilations"], strict=True)
        # The output of a transposed convolution may have room for more windows than its input has elements.
        spare = {axis: (max(pair) - 1) // pair[0] for axis, pair in zip(axes, steps, strict=True)}
        fit = Output.ndim == out.ndim and all(
            -1 in (size, most) or min(1, most) <= size <= most <= size + spare.get(axis, 0)
            for axis, (size, most) in enumerate(zip(Output.shape, out.shape, strict=True))
        )
        if not fit:
            raise InferenceError(f"Output {Output} should have the shape of a convolution to {out}; its {slot} is like {Like}")
        return Like.with_dtype(Output.dtype)

    return infer


# ---------------------------------------------------------------------------------------------------------------- ops
def conv_attrs(count: int) -> dict[str, Any]:
    """The attributes of a convolution over `count` spatial dimensions."""
    return {
        "strides": least(1, counted(ints(*[1] * count))),
        "paddings": least(0, counted(ints(*[0] * count), count, 2 * count)),
        "padding_algorithm": choice("EXPLICIT", "SAME", "VALID"),
        "dilations": least(1, counted(ints(*[1] * count))),
        "groups": least(0, 1),
        "data_format": image_format(count),
    }


_FORWARD = {
    "conv2d": """Convolution of images [N, C, H, W] (or [N, H, W, C]) with a filter [M, C/groups, h, w] to M channels.

`paddings` holds two numbers (H, W) or four (top, bottom, left, right); the algorithm SAME keeps ceil(H / stride) rows,
VALID pads nothing.""",
    "conv3d": """Convolution of volumes [N, C, D, H, W] (or [N, D, H, W, C]) with a filter [M, C/groups, d, h, w] to M channels.

`paddings` holds three numbers (D, H, W) or six (front, back, top, bottom, left, right); algorithms as in `conv2d`.""",
    "depthwise_conv2d": "`conv2d` with as many groups as channels.",
}


def _convolved_like(f: Any, base: str, image: Any, filter_: Any, like: Any, attrs: dict[str, Any]) -> Any:
    """A convolution, without windows beyond the shape of `like`, for which the output of a transposed one may have room."""
    product = getattr(f, base)(image, filter_, **attrs)
    return product if may_equal(product.shape, like.shape) else f.crop_like(product, like, offsets=[0] * len(like.shape))


def _define(base: str, count: int) -> None:
    """Define the convolution `base` over `count` spatial dimensions, and its transposes for image and filter."""
    attributes = conv_attrs(count)

    def backprop_input(f: Any) -> Any:
        return getattr(f, f"{base}_backprop_input")

    def backprop_filter(f: Any) -> Any:
        return getattr(f, f"{base}_backprop_filter")

    def forward_rule(f: Any, Input: Any, Filter: Any, dOutput: Any, attrs: dict[str, Any]) -> Any:
        return {
            "Input": lambda: backprop_input(f)(Filter, dOutput, Input, **attrs),
            "Filter": lambda: backprop_filter(f)(Input, dOutput, Filter, **attrs),
        }

    def input_rule(f: Any, Filter: Any, Output: Any, dInput: Any, attrs: dict[str, Any]) -> Any:
        return {
            "Filter": lambda: backprop_filter(f)(dInput, Output, Filter, **attrs),
            "Output": lambda: _convolved_like(f, base, dInput, Filter, Output, attrs),
        }

    def filter_rule(f: Any, Input: Any, Output: Any, dFilter: Any, attrs: dict[str, Any]) -> Any:
        return {
            "Input": lambda: backprop_input(f)(dFilter, Output, Input, **attrs),
            "Output": lambda: _convolved_like(f, base, Input, dFilter, Output, attrs),
        }

    input_rule.__doc__ = (
        f"The gradient, for an image shaped like Like, of `{base}` with Filter, when that of its output is Output."
    )
    filter_rule.__doc__ = f"The gradient, for a filter shaped like Like, of `{base}` of Input, when that of its output is Output."
    for op_type in (base, "depthwise_conv2d") if count == 2 else (base,):
        forward_rule.__doc__ = _FORWARD[op_type]
        define(f"{op_type}(Input: int|float, Filter: int|float) -> Output", infer=convolved(count), **attributes)(forward_rule)
    for slot, factor, rule in (("Input", "Filter", input_rule), ("Filter", "Input", filter_rule)):
        signature = f"{base}_backprop_{slot.lower()}({factor}: float, Output: float, Like) -> {slot}"
        define(signature, infer=_backprop(count, slot), wrt=(factor, "Output"), shape_only=("Like",), **attributes)(rule)


_define("conv2d", 2)
_define("conv3d", 3)


def _transpose_rule(f: Any, base: str, Input: Any, Filter: Any, dOutput: Any, attrs: dict[str, Any]) -> Any:
    conv = {name: value for name, value in attrs.items() if name not in ("output_padding", "output_size")}
    return {
        "Input": lambda: _convolved_like(f, base, dOutput, Filter, Input, conv),
        "Filter": lambda: getattr(f, f"{base}_backprop_filter")(dOutput, Input, Filter, **conv),
    }


_TRANSPOSE: dict[str, Any] = {"wrt": ("Input", "Filter"), "output_padding": least(0, ints()), "output_size": ints()}


@define(
    "conv2d_transpose(Input: int|float, Filter, Bias?) -> Output",
    infer=_transposed(2),
    shape_only=("Bias",),
    **_TRANSPOSE,
    **conv_attrs(2),
)
def conv2d_transpose(f: Any, Input: Any, Filter: Any, Bias: ShapeOnly, dOutput: Any, attrs: dict[str, Any]) -> Any:
    """The transpose of `conv2d` with Filter [C, M/groups, h, w]: from images of C channels to larger ones of M channels.

    The output has the least size that the convolution maps to the size of Input, plus `output_padding`; or `output_size`. With
    the algorithm SAME, Input is padded as if for `conv2d`, and the same number of rows and columns is cut off around the output.
    """
    return _transpose_rule(f, "conv2d", Input, Filter, dOutput, attrs)


@define(
    "depthwise_conv2d_transpose(Input: int|float, Filter, Bias?) -> Output",
    infer=_transposed(2),
    shape_only=("Bias",),
    **_TRANSPOSE,
    **conv_attrs(2),
)
def depthwise_conv2d_transpose(f: Any, Input: Any, Filter: Any, Bias: ShapeOnly, dOutput: Any, attrs: dict[str, Any]) -> Any:
    """`conv2d_transpose` with one group per channel."""
    return _transpose_rule(f, "conv2d", Input, Filter, dOutput, attrs)


@define(
    "conv3d_transpose(Input: int|float, Filter) -> Output",
    infer=_transposed(3),
    **_TRANSPOSE,
    **{**conv_attrs(3), "data_format": image_format(3, "NCHW")},
)
def conv3d_transpose(f: Any, Input: Any, Filter: Any, dOutput: Any, attrs: dict[str, Any]) -> Any:
    """The transpose of `conv3d` with Filter [C, M/groups, d, h, w]; as `conv2d_transpose`."""
    return _transpose_rule(f, "conv3d", Input, Filter, dOutput, attrs)
