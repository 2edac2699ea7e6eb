"""Ops on images: cropping, shuffling, resizing, sampling by a grid.

Nearly all are linear in the image: the gradient of an op is its transpose, whose gradient is the op again: `unfold` and
`fold_like`, `crop` and `uncrop`, `uninterp` and `interp_like`, `grid_gather` and `grid_scatter`. The transposes that Paddle
lacks have a slot Like for the original image; only its shape is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import means
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, ShapeOnly, choice, counted, define, floats, ints, least, required
from ..values.spec import Spec
from .conv import image_axes, image_format, steps_of_window
from .formulas import choose, size_of
from .manipulation import LIKE
from .pool import by_channel, place_maxima
from .shapes import fits, may_equal, normalize_axis, scaled

Shape = tuple[int, ...]


def _check_images(X: Spec) -> None:
    if X.ndim != 4:
        raise InferenceError(f"X {X} should have 4 dimensions")


def divided(size: int, by: int, subject: str) -> int:
    """`size` / `by`, or -1 if it is unknown; `InferenceError` if that is not an integer."""
    if by < 1 or (size >= 0 and size % by):
        raise InferenceError(f"{subject}, {size}, cannot be divided by {by}")
    return size // by if size >= 0 else -1


def _times(size: int, by: int) -> int:
    return size * by if size >= 0 else -1


# ------------------------------------------------------------------------------------------------- channels and places
def _regrouped(f: Any, value: Any, parts: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> Any:
    """A value in the shape `parts`, transposed to `order`, in the shape `shape`."""
    return f.reshape2(f.transpose(f.reshape2(value, shape=parts), axis=order), shape=shape)


def _with_channels_first(f: Any, value: Any, data_format: str, change: Callable[[Any], Any]) -> Any:
    """Change images [N, C, H, W], or others that are transposed before and behind."""
    if image_axes(data_format, 4)[0] == 1:
        return change(value)
    return f.transpose(change(f.transpose(value, axis=[0, 3, 1, 2])), axis=[0, 2, 3, 1])


def _to_places(f: Any, X: Any, upscale_factor: int, data_format: str) -> Any:
    def change(x: Any) -> Any:
        (n, c, h, w), r = x.shape, upscale_factor
        return _regrouped(f, x, [n, c // r**2, r, r, h, w], [0, 1, 4, 2, 5, 3], [n, c // r**2, h * r, w * r])

    return _with_channels_first(f, X, data_format, change)


def _to_channels(f: Any, X: Any, downscale_factor: int, data_format: str) -> Any:
    def change(x: Any) -> Any:
        (n, c, h, w), r = x.shape, downscale_factor
        return _regrouped(f, x, [n, c, h // r, r, w // r, r], [0, 1, 3, 5, 2, 4], [n, c * r**2, h // r, w // r])

    return _with_channels_first(f, X, data_format, change)


def _to_depth(f: Any, X: Any, blocksize: int) -> Any:
    (n, c, h, w), r = X.shape, blocksize
    return _regrouped(f, X, [n, r, r, c // r**2, h, w], [0, 3, 4, 1, 5, 2], [n, c * r**2, h // r, w // r])


def _from_depth(f: Any, X: Any, blocksize: int) -> Any:
    (n, c, h, w), r = X.shape, blocksize
    return _regrouped(f, X, [n, c // r**4, h * r, r, w * r, r], [0, 3, 5, 1, 2, 4], [n, c // r**2, h * r, w * r])


def _define_shuffles() -> None:
    def shuffled(X: Spec, factor: int, data_format: str, grows: bool) -> Spec:
        _check_images(X)
        channel, places = image_axes(data_format, 4)
        shape = list(X.shape)
        if grows:
            shape[channel] = divided(shape[channel], factor * factor, f"the number of channels of X {X}")
        else:
            shape[channel] = _times(shape[channel], factor * factor)
        for axis in places:
            shape[axis] = _times(shape[axis], factor) if grows else divided(shape[axis], factor, f"a size of X {X}")
        return X.with_shape(tuple(shape))

    def larger(X: Spec, upscale_factor: int, data_format: str) -> Spec:
        return shuffled(X, upscale_factor, data_format, True)

    def smaller(X: Spec, downscale_factor: int, data_format: str) -> Spec:
        return shuffled(X, downscale_factor, data_format, False)

    @define(
        "pixel_shuffle(X) -> Out",
        infer=larger,
        meaning=means(_to_places),
        upscale_factor=least(1, 1),
        data_format=image_format(),
    )
    def pixel_shuffle(f: Any, dOut: Any, upscale_factor: int, data_format: str) -> Any:
        """Images [N, C r r, H, W] to [N, C, H r, W r], r the `upscale_factor`: each r r channels become squares of r by r."""
        return {"X": f.pixel_unshuffle(dOut, downscale_factor=upscale_factor, data_format=data_format)}

    @define(
        "pixel_unshuffle(X) -> Out",
        infer=smaller,
        meaning=means(_to_channels),
        downscale_factor=least(1, 1),
        data_format=image_format(),
    )
    def pixel_unshuffle(f: Any, dOut: Any, downscale_factor: int, data_format: str) -> Any:
        """Images [N, C, H r, W r] to [N, C r r, H, W], r the `downscale_factor`: undoes `pixel_shuffle`."""
        return {"X": f.pixel_shuffle(dOut, upscale_factor=downscale_factor, data_format=data_format)}

    def to_depth(X: Spec, blocksize: int) -> Spec:
        divided(X.shape[1] if X.ndim == 4 else -1, blocksize * blocksize, f"the number of channels of X {X}")
        return shuffled(X, blocksize, "NCHW", False)

    def from_depth(X: Spec, blocksize: int) -> Spec:
        return shuffled(X, blocksize, "NCHW", True)

    @define("space_to_depth(X) -> Out", infer=to_depth, meaning=means(_to_depth), blocksize=least(1, required("int")))
    def space_to_depth(f: Any, X: ShapeOnly, dOut: Any, blocksize: int) -> Any:
        """Images [N, C, H b, W b] to [N, C b b, H, W], b the `blocksize`, with elements in the order that Fluid has.

        The order is as in images [N, C / (b b), H b b, W b b] put together from squares of b by b; each square has the elements
        of b b channels ``C / (b b)`` apart.
        """
        return {"X": f.depth_to_space(dOut, blocksize=blocksize)}

    @define("depth_to_space(X) -> Out", infer=from_depth, meaning=means(_from_depth), blocksize=least(1, required("int")))
    def depth_to_space(f: Any, dOut: Any, blocksize: int) -> Any:
        """Undoes `space_to_depth`."""
        return {"X": f.space_to_depth(dOut, blocksize=blocksize)}


_define_shuffles()


def _interleaved(f: Any, value: Any, groups: int, data_format: str) -> Any:
    """`value` with its channels, [C / groups, groups] in order, transposed to [groups, C / groups]: undoes `shuffle_channel`."""
    if image_axes(data_format, 4)[0] == 3:
        flat = f.flatten_contiguous_range(value, start_axis=0, stop_axis=2)
        parts = f.transpose(f.reshape(flat, shape=[0, -1, groups]), axis=[0, 2, 1])
    else:
        rows = f.unsqueeze(f.flatten_contiguous_range(value, start_axis=2, stop_axis=3), axes=[1])
        parts = f.transpose(f.reshape(rows, shape=[0, -1, groups, 0]), axis=[0, 2, 1, 3])
    return f.reshape_like(parts, value)


def _shuffled(f: Any, X: Any, groups: int, data_format: str) -> Any:
    """X with its channels, [groups, C / groups] in order, transposed."""
    channel = image_axes(data_format, 4)[0]
    size = divided(X.shape[channel], groups, "the number of channels")
    if size < 0 and channel == 1:  # a shape has room for one open size: channels come last
        return f.transpose(_shuffled(f, f.transpose(X, axis=[0, 2, 3, 1]), groups, "NHWC"), axis=[0, 3, 1, 2])
    shape, order = ([0, groups, size, -1], [0, 2, 1, 3]) if channel == 1 else ([0, 0, 0, groups, size], [0, 1, 2, 4, 3])
    return f.reshape_like(f.transpose(f.reshape(X, shape=shape), axis=order), X)


def _channel_shuffle(X: Spec, groups: int, data_format: str) -> Spec:
    _check_images(X)
    divided(X.shape[image_axes(data_format, 4)[0]], groups, f"the number of channels of X {X}")
    return X


@define(
    "shuffle_channel(X) -> Out",
    infer=lambda X, group: _channel_shuffle(X, group, "NCHW"),
    composition=means(lambda f, X, group: _shuffled(f, X, group, "NCHW")),
    group=least(1, 1),
)
def shuffle_channel(f: Any, dOut: Any, group: int) -> Any:
    """Images [N, C, H, W] with the channels of `group` groups interleaved: the first of each group, the second of each, ..."""
    return {"X": _interleaved(f, dOut, group, "NCHW")}


@define(
    "channel_shuffle(X) -> Out",
    infer=_channel_shuffle,
    composition=means(_shuffled),
    groups=least(1, 1),
    data_format=image_format(),
)
def channel_shuffle(f: Any, dOut: Any, groups: int, data_format: str) -> Any:
    """As `shuffle_channel`, also of images [N, H, W, C]."""
    return {"X": _interleaved(f, dOut, groups, data_format)}


def _temporal_shift(X: Spec, seg_num: int, shift_ratio: float, data_format: str) -> Spec:
    _check_images(X)
    divided(X.shape[0], seg_num, f"the number of images of X {X}")
    if not 0 <= shift_ratio <= 0.5:
        raise InferenceError(f"shift_ratio {shift_ratio} should be in [0, 0.5]")
    return X


_SHIFT: dict[str, Any] = {"seg_num": least(1, required("int")), "shift_ratio": 0.25, "data_format": image_format()}


@define("temporal_shift(X: int|float) -> Out", infer=_temporal_shift, **_SHIFT)
def temporal_shift(f: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """Videos, each of `seg_num` consecutive images [C, H, W], with some channels moved by one image, padded with zeros.

    The first ``int(C * shift_ratio)`` channels come from the previous image, the same number after them from the next image.
    """
    return {"X": f.temporal_unshift(dOut, **attrs)}


@define("temporal_unshift(X: int|float) -> Out", infer=_temporal_shift, **_SHIFT)
def temporal_unshift(f: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """`temporal_shift` in the other direction: its transpose."""
    return {"X": f.temporal_shift(dOut, **attrs)}


def _maxout(X: Spec, groups: int, axis: int) -> Spec:
    axis = normalize_axis(axis, X.ndim)
    if axis == 0:
        raise InferenceError(f"axis should be that of the channels of X {X}, not 0")
    shape = list(X.shape)
    shape[axis] = divided(shape[axis], groups, f"the number of channels of X {X}")
    return X.with_shape(tuple(shape))


@define("maxout(X) -> Out", infer=_maxout, groups=least(1, required("int")), axis=1)
def maxout(f: Any, X: Any, Out: ShapeOnly, dOut: Any, groups: int, axis: int) -> Any:
    """The maximum of each `groups` consecutive channels; the gradient goes to the first of equal ones."""
    axis = normalize_axis(axis, X.ndim)
    x, d_out = (by_channel(f, value, axis, X.ndim) for value in (X, dOut))
    index = f.pool2d_index(x, ksize=[groups, 1], strides=[groups, 1])
    return {"X": f.reshape_like(place_maxima(f, d_out, index, x, 2, 3), X)}


def _channel_products(f: Any, X: Any, Y: Any) -> Any:
    x, y = (f.flatten_contiguous_range(value, start_axis=2, stop_axis=3) for value in (X, Y))
    return f.matmul_v2(x, y, trans_y=True) / size_of(f, x, 2)


@define(
    "fsp(X: float[N, C, H, W], Y: float[N, D, H, W]) -> Out",
    infer=lambda X, Y: X.with_shape((X.shape[0], X.shape[1], Y.shape[1])),
    meaning=means(_channel_products),
)
def fsp(f: Any, X: Any, Y: Any, dOut: Any) -> Any:
    """The product of each channel of X [N, C, H, W] with each of Y [N, D, H, W], averaged over the places: [N, C, D]."""
    x, y = (f.flatten_contiguous_range(value, start_axis=2, stop_axis=3) for value in (X, Y))
    share = dOut / size_of(f, x, 2)
    return {
        "X": lambda: f.reshape_like(f.matmul_v2(share, y), X),
        "Y": lambda: f.reshape_like(f.matmul_v2(share, x, trans_x=True), Y),
    }


def _similarity_focus(X: Spec, axis: int, indexes: list[int]) -> Spec:
    _check_images(X)
    if axis not in (1, 2, 3) or not indexes:
        raise InferenceError(f"axis {axis} should be 1, 2 or 3, and indexes {indexes} should be indices along it")
    if X.shape[axis] >= 0 and not all(0 <= index < X.shape[axis] for index in indexes):
        raise InferenceError(f"indexes {indexes} should be in [0, {X.shape[axis]}), along axis {axis} of X {X}")
    return X


@define(
    "similarity_focus(X: int|float) -> Out",
    infer=_similarity_focus,
    grad=ZERO_GRADIENT,
    axis=required("int"),
    indexes=required("ints"),
)
def similarity_focus() -> None:
    """Ones where X [N, A, B, C] is in focus, else zeros.

    In the matrix at each of `indexes` along `axis`, elements are chosen in descending order, at most one of each row and column.
    Their positions are in focus all along the axis.
    """


# ------------------------------------------------------------------------------------------------- leaky by parameter
def _prelu(X: Spec, Alpha: Spec, mode: str, data_format: str) -> Spec:
    sizes = {"all": 1, "channel": -1, "element": -1}
    if mode != "all" and X.ndim < 2:
        raise InferenceError(f"X {X} should have 2 dimensions at least in mode {mode!r}")
    size = sizes[mode]
    if mode == "channel":
        size = X.shape[image_axes(data_format, X.ndim)[0]]
    elif mode == "element":
        size = X.with_shape(X.shape[1:]).size
    if -1 not in (size, Alpha.size) and size != Alpha.size:
        raise InferenceError(f"Alpha {Alpha} should have {size} elements for X {X} in mode {mode!r}")
    return X


def _with_slopes(f: Any, X: Any, Alpha: Any, mode: str, data_format: str) -> Any:
    x = f.flatten2(X, axis=1) if mode == "element" else X
    axis = image_axes(data_format, X.ndim)[0] if mode == "channel" else -1
    out = choose(f, x <= 0.0, f.elementwise_mul(x, f.reshape(Alpha, shape=[-1]), axis=axis), x)
    return f.reshape_like(out, X) if mode == "element" else out


@define(
    "prelu(X: float[N, ...], Alpha) -> Out",
    infer=_prelu,
    mode=choice("all", "channel", "element"),
    data_format=image_format(),
    composition=means(_with_slopes),
)
def prelu(f: Any, X: Any, Alpha: Any, dOut: Any, mode: str, data_format: str) -> Any:
    """X where it is above 0, else Alpha times X; Alpha is one number, one per channel, or one per element of a row of X."""
    x, d_out = (f.flatten2(value, axis=1) if mode == "element" else value for value in (X, dOut))
    axis = image_axes(data_format, X.ndim)[0] if mode == "channel" else -1
    alpha = f.reshape(Alpha, shape=[-1])
    above = (x > f.fill_zeros_like(x)).astype(x.dtype)
    below = 1.0 - above
    return {
        "X": lambda: f.reshape_like(d_out * above + f.elementwise_mul(d_out * below, alpha, axis=axis), X),
        "Alpha": lambda: f.reshape_like(f.sum_to(d_out * x * below, alpha, axis=axis), Alpha),
    }


# -------------------------------------------------------------------------------------------------- patches of images
def four_paddings(paddings: Sequence[int]) -> list[tuple[int, int]]:
    """Padding before and after height and width: `paddings` has one number, two, or top, left, bottom, right."""
    if len(paddings) not in (1, 2, 4):
        raise InferenceError(f"paddings {list(paddings)} should be 1, 2 or 4 numbers")
    top, left, bottom, right = list(paddings) * (4 // len(paddings))
    return [(top, bottom), (left, right)]


def patch_counts(sizes: Sequence[int], attrs: Mapping[str, Any]) -> list[int]:
    """The numbers of rows and columns of patches; -1 if unknown."""
    counts = []
    pads = four_paddings(attrs["paddings"])
    for size, window, stride, dilation, pad in zip(
        sizes, attrs["kernel_sizes"], attrs["strides"], attrs["dilations"], pads, strict=True
    ):
        steps = steps_of_window(size, dilation * (window - 1) + 1, stride, pad)
        if steps < 1 and size >= 0:
            raise InferenceError(
                f"patches of kernel_sizes {attrs['kernel_sizes']} do not fit into images of {list(sizes)}, padded"
            )
        counts.append(steps)
    return counts


def _unfold(X: Spec, attrs: Mapping[str, Any]) -> Spec:
    _check_images(X)
    rows, columns = patch_counts(X.shape[2:], attrs)
    height, width = attrs["kernel_sizes"]
    return X.with_shape((X.shape[0], _times(X.shape[1], height * width), -1 if -1 in (rows, columns) else rows * columns))


def _fold(X: Spec, attrs: Mapping[str, Any]) -> Spec:
    if X.ndim != 3:
        raise InferenceError(f"X {X} should have 3 dimensions")
    rows, columns = patch_counts(attrs["output_sizes"], attrs)
    if X.shape[2] not in (-1, rows * columns):
        raise InferenceError(f"X {X} has {X.shape[2]} patches, but output_sizes {attrs['output_sizes']} have {rows} by {columns}")
    height, width = attrs["kernel_sizes"]
    channels = divided(X.shape[1], height * width, f"the number of elements of a patch of X {X}")
    return X.with_shape((X.shape[0], channels, *attrs["output_sizes"]))


_PATCHES: dict[str, Any] = {
    "kernel_sizes": least(1, counted(required("ints"), 2)),
    "strides": least(1, counted(ints(1, 1))),
    "paddings": least(0, counted(ints(0, 0, 0, 0), 1, 2, 4)),
    "dilations": least(1, counted(ints(1, 1))),
}


@define("unfold(X) -> Y", infer=_unfold, **_PATCHES)
def unfold(f: Any, X: ShapeOnly, dY: Any, attrs: dict[str, Any]) -> Any:
    """The patches under a filter, [N, C h w, places], of images [N, C, H, W]: what `conv2d` multiplies by its filter.

    `paddings`: one number, two (height, width), or four (top, left, bottom, right).
    """
    return {"X": f.fold_like(dY, X, **attrs)}


@define("fold(X) -> Y", infer=_fold, output_sizes=least(1, counted(required("ints"), 2)), **_PATCHES)
def fold(f: Any, X: ShapeOnly, dY: Any, attrs: dict[str, Any]) -> Any:
    """Images of `output_sizes`; each element is the sum of its copies in the patches X: the transpose of `unfold`."""
    return {"X": f.unfold(dY, **{name: attrs[name] for name in _PATCHES})}


@define("fold_like(X, Like) -> Y", **LIKE, **_PATCHES)
def fold_like(f: Any, dY: Any, attrs: dict[str, Any]) -> Any:
    """As `fold`, to images shaped like Like."""
    return {"X": f.unfold(dY, **attrs)}


# ------------------------------------------------------------------------------------------------------------ cropping
def _offsets(X: Spec, offsets: Sequence[int], tensor: Spec | None, tensors: Sequence[Spec] | None = None) -> list[int] | None:
    """The offsets of a crop, zeros if `offsets` is empty; None if they are in a tensor, or several."""
    if tensor is not None and tensor.size not in (-1, X.ndim):
        raise InferenceError(f"Offsets {tensor} should be {X.ndim} numbers, as X {X} has dimensions")
    if tensor is not None or tensors:
        return None
    starts = list(offsets) or [0] * X.ndim
    if len(starts) != X.ndim or min(starts, default=0) < 0:
        raise InferenceError(f"offsets {starts} should be {X.ndim} numbers, none below 0, for X {X}")
    return starts


def _cropped(X: Spec, shape: Sequence[int], offsets: list[int] | None) -> Spec:
    if len(shape) != X.ndim or any(wanted < -1 for wanted in shape):
        raise InferenceError(f"shape {list(shape)} should have {X.ndim} numbers, as X {X} has dimensions, none below -1")
    for axis, (size, wanted) in enumerate(zip(X.shape, shape, strict=True)):
        start = offsets[axis] if offsets is not None else 0
        if size >= 0 and start + max(wanted, 0) > size:
            raise InferenceError(f"shape {list(shape)} from offsets {offsets} on does not lie within axis {axis} of X {X}")
    return X.with_shape(tuple(shape))


def _crop(X: Spec, Y: Spec | None, Offsets: Spec | None, shape: list[int], offsets: list[int]) -> Spec:
    start = _offsets(X, offsets, Offsets)
    if Y is None and not shape:
        raise InferenceError(f"X {X} needs a shape to be cropped to: give Y or shape, which is {shape}")
    if Y is not None:
        return _cropped(X, Y.shape, start)
    if -1 in shape[1:]:
        raise InferenceError(f"shape {shape} may have a -1 as its first number only, which takes all rows of X {X}")
    return _cropped(X, [X.shape[0], *shape[1:]] if shape[0] == -1 and X.ndim else shape, start)


def _crop_tensor(inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> Spec:
    X: Spec = inputs["X"]
    offsets = _offsets(X, attrs["offsets"], inputs.get("Offsets"), inputs.get("OffsetsTensor"))
    shape = list(attrs["shape"])
    Shape: Spec | None = inputs.get("Shape")
    if Shape is not None and Shape.size not in (-1, X.ndim):
        raise InferenceError(f"Shape {Shape} should be {X.ndim} numbers, as X {X} has dimensions")
    if inputs.get("ShapeTensor") or Shape is not None:
        return X.with_shape(tuple(max(size, -1) or -1 for size in shape) if len(shape) == X.ndim else (-1,) * X.ndim)
    if 0 in shape:
        raise InferenceError(f"shape {shape} should have no size of 0; -1 takes the rest of X {X}")
    if len(shape) == X.ndim:  # -1 takes the rest
        to_end = [-1 if size < 0 or offsets is None else size - offsets[axis] for axis, size in enumerate(X.shape)]
        shape = [size if size > 0 else left for size, left in zip(shape, to_end, strict=True)]
    return _cropped(X, shape, offsets)


@define("crop(X, Y?, Offsets?: int) -> Out", infer=_crop, wrt=("X",), shape_only=("Y",), offsets=ints(), shape=ints())
def crop(f: Any, X: ShapeOnly, Offsets: Any, dOut: Any, offsets: list[int]) -> Any:
    """The part of X at `offsets` (or Offsets) with the shape of Y or, without it, `shape`; there, a first -1 takes all rows."""
    return {"X": f.uncrop(dOut, X, Offsets, offsets=offsets)}


@define(
    "crop_tensor(X, Shape?: int[R], ShapeTensor*?: int[one], Offsets?: int[R], OffsetsTensor*?: int[one]) -> Out",
    infer=_crop_tensor,
    wrt=("X",),
    shape=ints(),
    offsets=ints(),
)
def crop_tensor(f: Any, X: ShapeOnly, Offsets: Any, OffsetsTensor: Any, dOut: Any, offsets: list[int]) -> Any:
    """The part of X at `offsets` with the shape `shape`. Each is an attribute, a tensor, or a list of tensors for each axis.

    In `shape`, -1 takes the rest of an axis.
    """
    return {"X": f.uncrop(dOut, X, Offsets, OffsetsTensor, offsets=offsets)}


@define("uncrop(X, Like, Offsets?: int, OffsetsTensor*?: int[one]) -> Out", **LIKE, offsets=ints())
def uncrop(f: Any, X: ShapeOnly, Offsets: Any, OffsetsTensor: Any, dOut: Any, offsets: list[int]) -> Any:
    """X at `offsets` in zeros of the shape of Like: the transpose of cropping."""
    return {"X": f.crop_like(dOut, X, Offsets, OffsetsTensor, offsets=offsets)}


@define("crop_like(X, Like, Offsets?: int, OffsetsTensor*?: int[one]) -> Out", **LIKE, offsets=ints())
def crop_like(f: Any, X: ShapeOnly, Offsets: Any, OffsetsTensor: Any, dOut: Any, offsets: list[int]) -> Any:
    """The part of X at `offsets` with the shape of Like."""
    return {"X": f.uncrop(dOut, X, Offsets, OffsetsTensor, offsets=offsets)}


def _pad_constant_like(X: Spec, Y: Spec) -> Spec:
    pairs = list(zip(X.shape, Y.shape, strict=False))
    if X.ndim != Y.ndim or any(-1 not in pair and pair[0] < pair[1] for pair in pairs):
        raise InferenceError(f"Y {Y} should fit into X {X}")
    return Y.with_shape(X.shape)


@define("pad_constant_like(X, Y) -> Out", infer=_pad_constant_like, wrt=("Y",), shape_only=("X",), pad_value=0.0)
def pad_constant_like(f: Any, Y: ShapeOnly, dOut: Any) -> Any:
    """Y padded with `pad_value` at the end of each axis to the shape of X."""
    return {"Y": f.crop_like(dOut, Y)}


def _random_crop(X: Spec, shape: list[int], Seed: Spec | None) -> tuple[Spec, Spec | None]:
    leading = X.ndim - len(shape)
    if (
        not shape
        or leading < 0
        or any(size >= 0 and not 0 < wanted <= size for size, wanted in zip(X.shape[leading:], shape, strict=True))
    ):
        raise InferenceError(f"shape {shape} should fit into the last dimensions of X {X}")
    return X.with_shape((*X.shape[:leading], *shape)), Seed


@define(
    "random_crop(X, Seed?: int[one]) -> Out, SeedOut?",
    infer=_random_crop,
    grad=NOT_DIFFERENTIABLE,
    shape=required("ints"),
    startup_seed=least(0, 0),
)
def random_crop() -> None:
    """A random part of shape `shape` of each item of X, which is along the last dimensions.

    If Seed, an int64 number, is given, it seeds the random offsets, and SeedOut is the next seed.
    """


# ----------------------------------------------------------------------------------------------------------- resizing
METHODS = {"linear": (1,), "bilinear": (2,), "trilinear": (3,), "nearest": (2, 3), "bicubic": (2,)}
"""Method of interpolation -> the possible numbers of spatial dimensions."""

_INTERP_SLOTS = "OutSize?: int, SizeTensor*?: int[one], Scale?: float"
_INTERP_ATTRS: dict[str, Any] = {"data_layout": "NCHW", "interp_method": "bilinear", "align_corners": True, "align_mode": 1}
_INTERP_SIZES: dict[str, Any] = {"out_d": 0, "out_h": 0, "out_w": 0}


def resized_axes(data_layout: str, ndim: int) -> list[int]:
    """The spatial axes; layouts are called NCHW and NHWC for any number of them."""
    if data_layout not in ("NCHW", "NHWC"):
        raise InferenceError(f"data_layout {data_layout!r} should be 'NCHW' or 'NHWC', also for 3 and 5 dimensions")
    return list(range(2, ndim)) if data_layout == "NCHW" else list(range(1, ndim - 1))


def scale_factors(scale: Sequence[float] | float, count: int) -> list[float]:
    """A factor for each of `count` spatial dimensions, of one number or one for each; none if one of them is not positive."""
    factors = [scale] if isinstance(scale, (int, float)) else list(scale)
    if len(factors) not in (0, 1, count):
        raise InferenceError(f"scale {factors} should be one number, or a number for each of {count} dimensions")
    return [] if any(factor <= 0 for factor in factors) else factors if len(factors) == count else factors * count


def interp_size(sizes: Sequence[int], attrs: Mapping[str, Any], scale: Sequence[float]) -> list[int]:
    """The spatial output sizes that attributes ask for; -1 if unknown."""
    if scale:
        out = [-1 if size < 0 else scaled(size, factor) for size, factor in zip(sizes, scale, strict=True)]
        if 0 in out:
            raise InferenceError(f"scale {attrs['scale']} should leave something of the sizes {list(sizes)}, not {out}")
        return out
    names = ("out_d", "out_h", "out_w")[3 - len(sizes) :]
    out = [attrs[name] for name in names]
    if min(out) <= 0:
        raise InferenceError(f"the size {', '.join(names)}, {out}, should be above 0, or scale, {attrs['scale']}, should")
    return out


def _define_interp(method: str, doc: str) -> None:
    def infer(inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> Spec:
        X: Spec = inputs["X"]
        if X.ndim - 2 not in METHODS[method]:
            ranks = " or ".join(str(count + 2) for count in METHODS[method])
            raise InferenceError(f"X is {X}; it should be images of {ranks} dimensions, {attrs['data_layout']} ({method})")
        axes = resized_axes(attrs["data_layout"], X.ndim)
        OutSize: Spec | None = inputs.get("OutSize")
        if OutSize is not None and OutSize.size not in (-1, len(axes)):
            raise InferenceError(
                f"OutSize {OutSize} should have a size for each of the {len(axes)} dimensions of the images X {X}"
            )
        Scale: Spec | None = inputs.get("Scale")
        if Scale is not None and Scale.size not in (-1, 1, len(axes)):
            raise InferenceError(f"Scale {Scale} should be one number, or a number for each of the dimensions {axes} of X {X}")
        if any(X.shape[axis] == 0 for axis in axes):
            raise InferenceError(f"X {X} should have elements to interpolate between in each of its dimensions {axes}")
        sizes = [-1] * len(axes)
        if not any(inputs.get(slot) for slot in ("OutSize", "SizeTensor", "Scale")):
            sizes = interp_size([X.shape[axis] for axis in axes], attrs, scale_factors(attrs["scale"], len(axes)))
        shape = list(X.shape)
        for axis, size in zip(axes, sizes, strict=True):
            shape[axis] = size
        return X.with_shape(tuple(shape))

    def back(f: Any, X: Any, dOut: Any, attrs: dict[str, Any], Scale: Any = None, scale: Sequence[float] = ()) -> Any:
        how = {**{name: attrs[name] for name in _INTERP_ATTRS}, "interp_method": method}
        return {"X": f.uninterp(dOut, X, Scale, scale=list(scale), **how)}

    def rule(
        f: Any, X: ShapeOnly, OutSize: ShapeOnly, SizeTensor: ShapeOnly, Scale: ShapeOnly, dOut: Any, attrs: dict[str, Any]
    ) -> Any:
        return back(f, X, dOut, attrs)

    def rule_v2(
        f: Any, X: ShapeOnly, OutSize: ShapeOnly, SizeTensor: ShapeOnly, Scale: Any, dOut: Any, attrs: dict[str, Any]
    ) -> Any:
        return back(f, X, dOut, attrs) if SizeTensor else back(f, X, dOut, attrs, Scale, attrs["scale"])

    rule.__doc__ = f"As `{method}_interp_v2`, except that `scale` is one number, and only determines the output size."
    rule_v2.__doc__ = doc
    for name, its_rule, scale in ((f"{method}_interp", rule, 0.0), (f"{method}_interp_v2", rule_v2, floats())):
        attributes = {"scale": scale, **_INTERP_SIZES, **_INTERP_ATTRS}
        elements = "float" if method == "bicubic" else "int|float"
        define(f"{name}(X: {elements}, {_INTERP_SLOTS}) -> Out", infer=infer, wrt=("X",), constants=("Scale",), **attributes)(
            its_rule
        )


_SIZED = "Images resized; the size is given as for `bilinear_interp_v2`. "
_define_interp(
    "bilinear",
    """Images resized by linear interpolation along both axes.

The size is SizeTensor, OutSize, X's size times `scale` (or Scale), or else `out_h` and `out_w`. With `align_corners`, the
outermost elements keep their places; without, elements are areas with `align_mode` 0, points with 1. Layouts are NCHW or
NHWC. Of integers, such as uint8, the result has the integer parts.""",
)
_define_interp("nearest", _SIZED + "Each element is the nearest one of X.")
_define_interp("linear", _SIZED + "For rows [N, C, W].")
_define_interp("trilinear", _SIZED + "For volumes [N, C, D, H, W].")
_define_interp("bicubic", _SIZED + "By cubic convolution (a = -0.75) along both axes; elements are areas if not `align_corners`.")


def _resized_like(X: Spec, Like: Spec, Scale: Spec | None, scale: list[float], data_layout: str, interp_method: str) -> Spec:
    """An image of Like's shape, that X is resized to or has been resized from."""
    counts = METHODS.get(interp_method, ())
    if X.ndim != Like.ndim or X.ndim - 2 not in counts:
        raise InferenceError(f"X {X} and Like {Like} should be images of one rank that {interp_method!r} can resize")
    axes = resized_axes(data_layout, X.ndim)
    if any(axis not in axes and not fits(*pair) for axis, pair in enumerate(zip(X.shape, Like.shape, strict=True))):
        raise InferenceError(f"X {X} and Like {Like} should be images of the same number, with the same channels")
    if any(0 in (X.shape[axis], Like.shape[axis]) for axis in axes):
        raise InferenceError(f"X {X} and Like {Like} should have elements in each of their dimensions {axes}")
    if Scale is not None and Scale.size not in (-1, 1, len(axes)):
        raise InferenceError(f"Scale {Scale} should be one number, or a number for each of the dimensions {axes} of X {X}")
    scale_factors(scale, len(axes))
    return X.with_shape(Like.shape)


_RESIZED_LIKE: dict[str, Any] = {**LIKE, "infer": _resized_like, "scale": floats(), **_INTERP_ATTRS}


@define("uninterp(X: float, Like, Scale?: float) -> Out", **_RESIZED_LIKE)
def uninterp(f: Any, X: ShapeOnly, Scale: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """X spread over an image of Like's shape: the transpose of interpolation by `interp_method`."""
    return {"X": f.interp_like(dOut, X, Scale, **attrs)}


@define("interp_like(X: float, Like, Scale?: float) -> Out", **_RESIZED_LIKE)
def interp_like(f: Any, X: ShapeOnly, Scale: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """X resized to the size of Like by `interp_method`; `scale` (or Scale), if given, is the ratio of the sizes."""
    return {"X": f.uninterp(dOut, X, Scale, **attrs)}


# ------------------------------------------------------------------------------------------------------ sampling by grid
_GRID: dict[str, Any] = {"mode": "bilinear", "padding_mode": "zeros", "align_corners": True}
_ALONG: dict[str, Any] = {"along_x": False, "along_y": False}


def _sampled(image: str) -> Callable[..., Spec]:
    def infer(inputs: Mapping[str, Any], Grid: Spec, mode: str, padding_mode: str) -> Spec:
        X: Spec = inputs[image]
        if X.ndim != 4 or Grid.ndim != 4 or Grid.shape[3] not in (-1, 2):
            raise InferenceError(f"{X} should be images [N, C, H, W], and Grid {Grid} of shape [N, H', W', 2]")
        if not fits(X.shape[0], Grid.shape[0]):
            raise InferenceError(f"there are {X.shape[0]} images in {X}, but {Grid.shape[0]} grids in {Grid}")
        if 0 in X.shape[2:]:
            raise InferenceError(f"{X} should be images that have elements, to sample them")
        if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border", "reflection"):
            raise InferenceError(
                f"mode {mode!r} should be 'bilinear' or 'nearest', "
                f"padding_mode {padding_mode!r} 'zeros', 'border' or 'reflection'"
            )
        return X.with_shape((*X.shape[:2], *Grid.shape[1:3]))

    return infer


def _through_grid(f: Any, X: Any, Grid: Any, dOut: Any, attrs: Mapping[str, Any]) -> Any:
    """The gradient of the grid: for each coordinate, the sum over all channels of `dOut` times the slope of X there."""

    def along(name: str) -> Any:
        if attrs.get(name) or attrs["mode"] == "nearest":  # linear between elements: no second derivative
            return f.fill_zeros_like(f.slice(Grid, axes=[3], starts=[0], ends=[1]))
        slope = f.grid_gather(X, Grid, **{**attrs, name: True})
        return f.unsqueeze2(f.reduce_sum(dOut * slope, dim=[1]), axes=[3])

    return f.concat([along("along_x"), along("along_y")], axis=3)


@define(
    "grid_sampler(X: float, Grid) -> Output",
    infer=_sampled("X"),
    meaning=means(lambda f, X, Grid, attrs: f.grid_gather(X, Grid, **attrs)),
    **_GRID,
)
def grid_sampler(f: Any, X: Any, Grid: Any, dOutput: Any, attrs: dict[str, Any]) -> Any:
    """Images X [N, C, H, W] sampled at the places (x, y) of Grid [N, H', W', 2], where -1 and 1 are the borders.

    `mode` is "bilinear", between the four elements around a place, or "nearest". The `padding_mode` for places outside is
    "zeros", "border" (the nearest place inside) or "reflection". The borders are the centres of the outermost elements with
    `align_corners`, and their outer edges without.
    """
    return {"X": lambda: f.grid_scatter(dOutput, Grid, X, **attrs), "Grid": lambda: _through_grid(f, X, Grid, dOutput, attrs)}


@define("grid_gather(X: float, Grid) -> Output", infer=_sampled("X"), **_GRID, **_ALONG)
def grid_gather(f: Any, X: Any, Grid: Any, dOutput: Any, attrs: dict[str, Any]) -> Any:
    """As `grid_sampler`, or its derivative with respect to the x (`along_x`) or y (`along_y`) of the place, or to both."""
    return {"X": lambda: f.grid_scatter(dOutput, Grid, X, **attrs), "Grid": lambda: _through_grid(f, X, Grid, dOutput, attrs)}


_SAMPLED = _sampled("Like")


def _scattered(inputs: Mapping[str, Any], Output: Spec, Grid: Spec, Like: Spec, mode: str, padding_mode: str) -> Spec:
    sampled = _SAMPLED(inputs, Grid, mode, padding_mode)
    if not may_equal(Output.shape, sampled.shape):
        raise InferenceError(f"Output {Output} should have the shape of images {Like} at the places {Grid}")
    return Output.with_shape(Like.shape)


@define(
    "grid_scatter(Output: float, Grid: float, Like) -> X",
    infer=_scattered,
    wrt=("Output", "Grid"),
    shape_only=("Like",),
    **_GRID,
    **_ALONG,
)
def grid_scatter(f: Any, Output: Any, Grid: Any, dX: Any, attrs: dict[str, Any]) -> Any:
    """The transpose of `grid_gather`: Output spread over images shaped like Like."""
    return {"Output": lambda: f.grid_gather(dX, Grid, **attrs), "Grid": lambda: _through_grid(f, dX, Grid, Output, attrs)}


def _affine_grid(Theta: Spec, OutputShape: Spec | None, output_shape: list[int]) -> Spec:
    if not may_equal(Theta.shape, (-1, 2, 3)):
        raise InferenceError(f"Theta {Theta} should have shape [N, 2, 3]")
    if OutputShape is not None:
        return Theta.with_shape((Theta.shape[0], -1, -1, 2))
    if len(output_shape) != 4 or min(output_shape[2:]) < 1:
        raise InferenceError(f"output_shape {output_shape} should be four numbers, N, C, H and W, the last two above 0")
    return Theta.with_shape((Theta.shape[0], *output_shape[2:], 2))


@define(
    "affine_grid(Theta, OutputShape?: int[4]) -> Output",
    infer=_affine_grid,
    wrt=("Theta",),
    align_corners=True,
    output_shape=ints(),
)
def affine_grid(f: Any, Theta: ShapeOnly, OutputShape: ShapeOnly, dOutput: Any, align_corners: bool) -> Any:
    """A grid [N, H, W, 2] for `grid_sampler`: ``Theta @ (x, y, 1)`` for the places (x, y) of an image of size H by W.

    `output_shape` (or OutputShape) is [N, C, H, W]; coordinates are from -1 to 1.
    """
    places = f.places_like(dOutput, align_corners=align_corners)
    rows, d_rows = (f.flatten_contiguous_range(value, start_axis=1, stop_axis=2) for value in (places, dOutput))
    return {"Theta": f.matmul_v2(d_rows, rows, trans_x=True)}


def _places_like(Like: Spec) -> Spec:
    if Like.ndim != 4:
        raise InferenceError(f"places_like: Like {Like} should be a grid [N, H, W, ...]")
    return Like.with_shape((1, *Like.shape[1:3], 3))


@define("places_like(Like) -> Out", infer=_places_like, grad=ZERO_GRADIENT, shape_only=("Like",), align_corners=True)
def places_like() -> None:
    """The places (x, y, 1) of a grid of Like's height and width, which `affine_grid` transforms."""
