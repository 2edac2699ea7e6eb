"""Ops on images: cutting and shuffling them, resizing, sampling by a grid.

Nearly all are linear in the image, so the gradient is the transpose, and that of the transpose is the op again: `unfold` and
`fold_like`, `crop` and `uncrop`, `uninterp` and `interp_like`, `grid_gather` and `grid_scatter`. The transposes that Paddle
does not have take the shape to return to from a slot, Like, that is read for its shape only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, ShapeOnly, choice, counted, define, floats, ints, least, required
from ..values.spec import Spec
from .conv import image_axes, image_format, steps_of_window
from .pool import by_channel, place_maxima
from .shapes import normalize_axis, scaled

Shape = tuple[int, ...]


def _check_images(X: Spec) -> None:
    if X.ndim != 4:
        raise InferenceError(f"X {X} should have 4 dimensions")


def _like_shape(X: Spec, Like: Spec) -> Spec:
    return X.with_shape(Like.shape)


def divided(extent: int, by: int, what: str) -> int:
    """`extent` / `by`, or -1 where it is unknown; an `InferenceError` if that is no whole number."""
    if by < 1 or (extent >= 0 and extent % by):
        raise InferenceError(f"{what}, {extent}, cannot be divided by {by}")
    return extent // by if extent >= 0 else -1


def _times(extent: int, by: int) -> int:
    return extent * by if extent >= 0 else -1


# ------------------------------------------------------------------------------------------------- channels and places
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
            shape[axis] = _times(shape[axis], factor) if grows else divided(shape[axis], factor, f"an extent of X {X}")
        return X.with_shape(tuple(shape))

    def larger(X: Spec, upscale_factor: int, data_format: str) -> Spec:
        return shuffled(X, upscale_factor, data_format, True)

    def smaller(X: Spec, downscale_factor: int, data_format: str) -> Spec:
        return shuffled(X, downscale_factor, data_format, False)

    @define("pixel_shuffle(X) -> Out", infer=larger, upscale_factor=least(1, 1), data_format=image_format())
    def pixel_shuffle(f: Any, dOut: Any, upscale_factor: int, data_format: str) -> Any:
        """Images [N, C r r, H, W] to [N, C, H r, W r], r the `upscale_factor`: each r r channels become squares of r by r."""
        return {"X": f.pixel_unshuffle(dOut, downscale_factor=upscale_factor, data_format=data_format)}

    @define("pixel_unshuffle(X) -> Out", infer=smaller, downscale_factor=least(1, 1), data_format=image_format())
    def pixel_unshuffle(f: Any, dOut: Any, downscale_factor: int, data_format: str) -> Any:
        """Images [N, C, H r, W r] to [N, C r r, H, W], r the `downscale_factor`: undoes `pixel_shuffle`."""
        return {"X": f.pixel_shuffle(dOut, upscale_factor=downscale_factor, data_format=data_format)}

    def to_depth(X: Spec, blocksize: int) -> Spec:
        divided(X.shape[1] if X.ndim == 4 else -1, blocksize * blocksize, f"the number of channels of X {X}")
        return shuffled(X, blocksize, "NCHW", False)

    def from_depth(X: Spec, blocksize: int) -> Spec:
        return shuffled(X, blocksize, "NCHW", True)

    @define("space_to_depth(X) -> Out", infer=to_depth, blocksize=least(1, required("int")))
    def space_to_depth(f: Any, X: ShapeOnly, dOut: Any, blocksize: int) -> Any:
        """Images [N, C, H b, W b] to [N, C b b, H, W], b the `blocksize`, with elements in the order that Fluid has.

        That is the order of the images [N, C / (b b), H b b, W b b] to which squares of b by b, each made of the elements of b b
        channels ``C / (b b)`` apart, are put together.
        """
        return {"X": f.depth_to_space(dOut, blocksize=blocksize)}

    @define("depth_to_space(X) -> Out", infer=from_depth, blocksize=least(1, required("int")))
    def depth_to_space(f: Any, dOut: Any, blocksize: int) -> Any:
        """Undoes `space_to_depth`."""
        return {"X": f.space_to_depth(dOut, blocksize=blocksize)}


_define_shuffles()


def _interleaved(f: Any, value: Any, groups: int, data_format: str) -> Any:
    """Channels [groups, C / groups] in the order [C / groups, groups], undone: what lies groups apart is brought together."""
    last = image_axes(data_format, 4)[0] == 3
    rows = value if last else f.transpose(value, axis=[0, 2, 3, 1])
    flat = f.flatten_contiguous_range(rows, start_axis=0, stop_axis=2)
    parts = f.transpose(f.reshape(flat, shape=[0, -1, groups]), axis=[0, 2, 1])
    found = f.reshape_like(parts, rows)
    return found if last else f.transpose(found, axis=[0, 3, 1, 2])


def _channel_shuffle(X: Spec, groups: int, data_format: str) -> Spec:
    _check_images(X)
    divided(X.shape[image_axes(data_format, 4)[0]], groups, f"the number of channels of X {X}")
    return X


@define("shuffle_channel(X) -> Out", infer=lambda X, group: _channel_shuffle(X, group, "NCHW"), group=least(1, 1))
def shuffle_channel(f: Any, dOut: Any, group: int) -> Any:
    """Images [N, C, H, W] with the channels of `group` groups taken in turns: the first of each group, the second of each, ..."""
    return {"X": _interleaved(f, dOut, group, "NCHW")}


@define("channel_shuffle(X) -> Out", infer=_channel_shuffle, groups=least(1, 1), data_format=image_format())
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
    """Of videos, each `seg_num` images [C, H, W] in a row, some channels moved by an image; zeros come in.

    The first ``int(C * shift_ratio)`` channels come from the image before, as many after them from the image after.
    """
    return {"X": f.temporal_unshift(dOut, **attrs)}


@define("temporal_unshift(X: int|float) -> Out", infer=_temporal_shift, **_SHIFT)
def temporal_unshift(f: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """`temporal_shift` the other way: its transpose."""
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
    """The greatest of each `groups` channels in a row; the gradient of equal ones goes to the first."""
    axis = normalize_axis(axis, X.ndim)
    x, d_out = (by_channel(f, value, axis, X.ndim) for value in (X, dOut))
    index = f.pool2d_index(x, ksize=[groups, 1], strides=[groups, 1])
    return {"X": f.reshape_like(place_maxima(f, d_out, index, x, 2, 3), X)}


def _fsp(X: Spec, Y: Spec) -> Spec:
    return X.with_shape((X.shape[0], X.shape[1], Y.shape[1]))


@define("fsp(X: float[N, C, H, W], Y: float[N, D, H, W]) -> Out", infer=_fsp)
def fsp(f: Any, X: Any, Y: Any, dOut: Any) -> Any:
    """The product of each channel of X [N, C, H, W] with each of Y [N, D, H, W], averaged over the places: [N, C, D]."""
    x, y = (f.flatten_contiguous_range(value, start_axis=2, stop_axis=3) for value in (X, Y))
    ones = f.fill_any_like(x, value=1.0)
    places = f.reduce_mean(f.reduce_sum(ones, dim=[2], keep_dim=True), dim=[1], keep_dim=True)
    share = dOut / places
    return {
        "X": lambda: f.reshape_like(f.matmul_v2(share, y), X),
        "Y": lambda: f.reshape_like(f.matmul_v2(share, x, trans_x=True), Y),
    }


def _similarity_focus(X: Spec, axis: int, indexes: list[int]) -> Spec:
    _check_images(X)
    if axis not in (1, 2, 3) or not indexes:
        raise InferenceError(f"axis {axis} should be 1, 2 or 3, and indexes {indexes} name places along it")
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

    Of the matrix at each of `indexes` along `axis`, elements are chosen from the greatest on, of each row and column at most
    one, as many as there can be; their places are in focus all along the axis.
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


@define(
    "prelu(X: float[N, ...], Alpha) -> Out", infer=_prelu, mode=choice("all", "channel", "element"), data_format=image_format()
)
def prelu(f: Any, X: Any, Alpha: Any, dOut: Any, mode: str, data_format: str) -> Any:
    """X where it is above 0, else Alpha times X; Alpha is one number, one by channel, or one by element of a row of X."""
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
    """Padding before and after each of the two extents: `paddings` has one number, two, or top, left, bottom, right."""
    top, left, bottom, right = list(paddings) * (4 // max(len(paddings), 1)) if len(paddings) in (1, 2, 4) else (0, 0, 0, 0)
    if len(paddings) not in (1, 2, 4):
        raise InferenceError(f"paddings {list(paddings)} should be 1, 2 or 4 numbers")
    return [(top, bottom), (left, right)]


def patch_counts(extents: Sequence[int], attrs: Mapping[str, Any]) -> list[int]:
    """How many patches lie below and beside each other; -1 where not known."""
    found = []
    pads = four_paddings(attrs["paddings"])
    for extent, size, stride, dilation, pad in zip(
        extents, attrs["kernel_sizes"], attrs["strides"], attrs["dilations"], pads, strict=True
    ):
        steps = steps_of_window(extent, dilation * (size - 1) + 1, stride, pad)
        if steps < 1 and extent >= 0:
            raise InferenceError(
                f"patches of kernel_sizes {attrs['kernel_sizes']} do not fit into images of {list(extents)}, padded"
            )
        found.append(steps)
    return found


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
    """Images of `output_sizes` in which each element is the sum of its copies in the patches X: the transpose of `unfold`."""
    return {"X": f.unfold(dY, **{name: attrs[name] for name in _PATCHES})}


@define("fold_like(X, Like) -> Y", infer=_like_shape, wrt=("X",), shape_only=("Like",), **_PATCHES)
def fold_like(f: Any, dY: Any, attrs: dict[str, Any]) -> Any:
    """As `fold`, to images shaped like Like."""
    return {"X": f.unfold(dY, **attrs)}


# ------------------------------------------------------------------------------------------------------------ cropping
def _offsets(X: Spec, offsets: Sequence[int], known: bool) -> list[int] | None:
    """Where the crop begins, None if only tensors say."""
    if not known:
        return None
    found = list(offsets) or [0] * X.ndim
    if len(found) != X.ndim or min(found, default=0) < 0:
        raise InferenceError(f"offsets {found} should be {X.ndim} numbers, none below 0, for X {X}")
    return found


def _cropped(X: Spec, shape: Sequence[int], offsets: list[int] | None) -> Spec:
    if len(shape) != X.ndim or any(size < -1 for size in shape):
        raise InferenceError(f"shape {list(shape)} should have {X.ndim} numbers, as X {X} has dimensions, none below -1")
    for axis, (extent, size) in enumerate(zip(X.shape, shape, strict=True)):
        start = offsets[axis] if offsets is not None else 0
        if extent >= 0 and start + max(size, 0) > extent:
            raise InferenceError(f"shape {list(shape)} from offsets {offsets} on does not lie within axis {axis} of X {X}")
    return X.with_shape(tuple(shape))


def _crop(X: Spec, Y: Spec | None, Offsets: Spec | None, shape: list[int], offsets: list[int]) -> Spec:
    start = _offsets(X, offsets, Offsets is None)
    if Y is None and not shape:
        raise InferenceError(f"X {X} needs a shape to be cropped to: give Y or shape, which is {shape}")
    return _cropped(X, Y.shape if Y is not None else shape, start)


def _crop_tensor(inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> Spec:
    X: Spec = inputs["X"]
    offsets = _offsets(X, attrs["offsets"], not (inputs.get("Offsets") or inputs.get("OffsetsTensor")))
    shape = list(attrs["shape"])
    if inputs.get("ShapeTensor") or inputs.get("Shape") is not None:
        return X.with_shape(tuple(max(size, -1) or -1 for size in shape) if len(shape) == X.ndim else (-1,) * X.ndim)
    if 0 in shape:
        raise InferenceError(f"shape {shape} should have no extent of 0; -1 takes what is left of X {X}")
    if len(shape) == X.ndim:  # -1 takes the rest
        rest = [-1 if extent < 0 or offsets is None else extent - offsets[axis] for axis, extent in enumerate(X.shape)]
        shape = [size if size > 0 else left for size, left in zip(shape, rest, strict=True)]
    return _cropped(X, shape, offsets)


@define("crop(X, Y?, Offsets?: int) -> Out", infer=_crop, wrt=("X",), shape_only=("Y",), offsets=ints(), shape=ints())
def crop(f: Any, X: ShapeOnly, Offsets: Any, dOut: Any, offsets: list[int]) -> Any:
    """The part of X that begins at `offsets` (or Offsets), and has the extents of Y, or of `shape`."""
    return {"X": f.uncrop(dOut, X, Offsets, offsets=offsets)}


@define(
    "crop_tensor(X, Shape?: int[R], ShapeTensor*?: int, Offsets?: int[R], OffsetsTensor*?: int) -> Out",
    infer=_crop_tensor,
    wrt=("X",),
    shape=ints(),
    offsets=ints(),
)
def crop_tensor(f: Any, X: ShapeOnly, Offsets: Any, OffsetsTensor: Any, dOut: Any, offsets: list[int]) -> Any:
    """The part of X that begins at `offsets` and has the extents `shape`, each as attribute, as tensor or as one for each axis.

    In `shape`, -1 takes what is left of an axis.
    """
    return {"X": f.uncrop(dOut, X, Offsets, OffsetsTensor, offsets=offsets)}


@define(
    "uncrop(X, Like, Offsets?: int, OffsetsTensor*?: int) -> Out",
    infer=_like_shape,
    wrt=("X",),
    shape_only=("Like",),
    offsets=ints(),
)
def uncrop(f: Any, X: ShapeOnly, Offsets: Any, OffsetsTensor: Any, dOut: Any, offsets: list[int]) -> Any:
    """X put into zeros of the shape of Like, at `offsets`: the transpose of cropping."""
    return {"X": f.crop_like(dOut, X, Offsets, OffsetsTensor, offsets=offsets)}


@define(
    "crop_like(X, Like, Offsets?: int, OffsetsTensor*?: int) -> Out",
    infer=_like_shape,
    wrt=("X",),
    shape_only=("Like",),
    offsets=ints(),
)
def crop_like(f: Any, X: ShapeOnly, Offsets: Any, OffsetsTensor: Any, dOut: Any, offsets: list[int]) -> Any:
    """The part of X that begins at `offsets` and has the shape of Like."""
    return {"X": f.uncrop(dOut, X, Offsets, OffsetsTensor, offsets=offsets)}


def _pad_constant_like(X: Spec, Y: Spec) -> Spec:
    pairs = list(zip(X.shape, Y.shape, strict=False))
    if X.ndim != Y.ndim or any(-1 not in pair and pair[0] < pair[1] for pair in pairs):
        raise InferenceError(f"Y {Y} should fit into X {X}")
    return Y.with_shape(X.shape)


@define("pad_constant_like(X, Y) -> Out", infer=_pad_constant_like, wrt=("Y",), shape_only=("X",), pad_value=0.0)
def pad_constant_like(f: Any, Y: ShapeOnly, dOut: Any) -> Any:
    """Y with `pad_value` after its end along each axis, to the shape of X."""
    return {"Y": f.crop_like(dOut, Y)}


def _random_crop(X: Spec, shape: list[int], Seed: Spec | None) -> tuple[Spec, Spec | None]:
    rest = X.ndim - len(shape)
    if (
        not shape
        or rest < 0
        or any(extent >= 0 and not 0 < size <= extent for extent, size in zip(X.shape[rest:], shape, strict=True))
    ):
        raise InferenceError(f"shape {shape} should fit into the last dimensions of X {X}")
    return X.with_shape((*X.shape[:rest], *shape)), Seed


@define(
    "random_crop(X, Seed?: int) -> Out, SeedOut?",
    infer=_random_crop,
    grad=NOT_DIFFERENTIABLE,
    shape=required("ints"),
    startup_seed=least(0, 0),
)
def random_crop() -> None:
    """Of each item of X a part with the extents `shape` (the last ones), from a place drawn for each.

    With Seed, an int64 number, places are drawn from it, and SeedOut is the seed for the next time.
    """


# ----------------------------------------------------------------------------------------------------------- resizing
METHODS = {"linear": (1,), "bilinear": (2,), "trilinear": (3,), "nearest": (2, 3), "bicubic": (2,)}
"""How to interpolate -> over how many extents."""

_INTERP_SLOTS = "OutSize?: int, SizeTensor*?: int, Scale?: float"
_INTERP_ATTRS: dict[str, Any] = {"data_layout": "NCHW", "interp_method": "bilinear", "align_corners": True, "align_mode": 1}
_INTERP_SIZES: dict[str, Any] = {"out_d": 0, "out_h": 0, "out_w": 0}


def resized_axes(data_layout: str, ndim: int) -> list[int]:
    """The axes of the extents; layouts are called NCHW and NHWC however many there are."""
    if data_layout not in ("NCHW", "NHWC"):
        raise InferenceError(f"data_layout {data_layout!r} should be 'NCHW' or 'NHWC', also for 3 and 5 dimensions")
    return list(range(2, ndim)) if data_layout == "NCHW" else list(range(1, ndim - 1))


def scale_factors(scale: Sequence[float] | float, count: int) -> list[float]:
    """A factor for each of `count` extents; none if `scale` has none or one that says nothing."""
    factors = [scale] if isinstance(scale, (int, float)) else list(scale)
    factors = [factor for factor in factors if factor > 0]
    return factors if len(factors) == count else factors[:1] * count


def interp_size(extents: Sequence[int], attrs: Mapping[str, Any], scale: Sequence[float]) -> list[int]:
    """The extents that attributes ask for; -1 where not known."""
    if scale:
        found = [-1 if extent < 0 else scaled(extent, factor) for extent, factor in zip(extents, scale, strict=True)]
        if 0 in found:
            raise InferenceError(f"scale {attrs['scale']} should leave something of the extents {list(extents)}, not {found}")
        return found
    names = ("out_d", "out_h", "out_w")[3 - len(extents) :]
    found = [attrs[name] for name in names]
    if min(found) <= 0:
        raise InferenceError(f"the size {', '.join(names)}, {found}, should be above 0, or scale, {attrs['scale']}, should")
    return found


def _define_interp(method: str, doc: str) -> None:
    def infer(inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> Spec:
        X: Spec = inputs["X"]
        if X.ndim - 2 not in METHODS[method]:
            known = " or ".join(str(count + 2) for count in METHODS[method])
            raise InferenceError(f"X is {X}; it should be images of {known} dimensions, {attrs['data_layout']} ({method})")
        axes = resized_axes(attrs["data_layout"], X.ndim)
        found = [-1] * len(axes)
        if not any(inputs.get(slot) for slot in ("OutSize", "SizeTensor", "Scale")):
            extents = [X.shape[axis] for axis in axes]
            found = interp_size(extents, attrs, scale_factors(attrs["scale"], len(axes)))
        shape = list(X.shape)
        for axis, extent in zip(axes, found, strict=True):
            shape[axis] = extent
        return X.with_shape(tuple(shape))

    def back(f: Any, X: Any, dOut: Any, attrs: dict[str, Any], Scale: Any = None, scale: Sequence[float] = ()) -> Any:
        given = {name: attrs[name] for name in _INTERP_ATTRS}
        return {"X": f.uninterp(dOut, X, Scale, scale=list(scale), **{**given, "interp_method": method})}

    def rule(
        f: Any, X: ShapeOnly, OutSize: ShapeOnly, SizeTensor: ShapeOnly, Scale: ShapeOnly, dOut: Any, attrs: dict[str, Any]
    ) -> Any:
        return back(f, X, dOut, attrs)

    def rule_v2(
        f: Any, X: ShapeOnly, OutSize: ShapeOnly, SizeTensor: ShapeOnly, Scale: Any, dOut: Any, attrs: dict[str, Any]
    ) -> Any:
        return back(f, X, dOut, attrs) if SizeTensor else back(f, X, dOut, attrs, Scale, attrs["scale"])

    rule.__doc__ = f"""As `{method}_interp_v2`, but for `scale`, one number for all extents, which only says the size."""
    rule_v2.__doc__ = doc
    for name, its_rule, scale in ((f"{method}_interp", rule, 0.0), (f"{method}_interp_v2", rule_v2, floats())):
        attributes = {"scale": scale, **_INTERP_SIZES, **_INTERP_ATTRS}
        define(f"{name}(X: float, {_INTERP_SLOTS}) -> Out", infer=infer, wrt=("X",), constants=("Scale",), **attributes)(its_rule)


_SIZED = "Images brought to another size; sizes are told as to `bilinear_interp_v2`. "
_define_interp(
    "bilinear",
    """Images brought to another size, by linear interpolation along both axes.

The size is that in SizeTensor, OutSize, or `scale` (or Scale) times X's, or else `out_h` and `out_w`. With `align_corners`
the outermost elements stay in their places; without, `align_mode` 0 takes elements to be areas, 1 to be points. Layouts are
NCHW or NHWC.""",
)
_define_interp("nearest", _SIZED + "Each element is that of X which is nearest.")
_define_interp("linear", _SIZED + "Of rows [N, C, W].")
_define_interp("trilinear", _SIZED + "Of volumes [N, C, D, H, W].")
_define_interp("bicubic", _SIZED + "By cubic convolution (with -0.75) along both axes; places are areas if not `align_corners`.")


@define("uninterp(X, Like, Scale?) -> Out", infer=_like_shape, wrt=("X",), shape_only=("Like",), scale=floats(), **_INTERP_ATTRS)
def uninterp(f: Any, X: ShapeOnly, Scale: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """X spread over an image of Like's shape: the transpose of interpolation by `interp_method`."""
    return {"X": f.interp_like(dOut, X, Scale, **attrs)}


@define(
    "interp_like(X, Like, Scale?) -> Out", infer=_like_shape, wrt=("X",), shape_only=("Like",), scale=floats(), **_INTERP_ATTRS
)
def interp_like(f: Any, X: ShapeOnly, Scale: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """X brought to the size of Like by `interp_method`; `scale` (or Scale), if given, is the ratio of the sizes."""
    return {"X": f.uninterp(dOut, X, Scale, **attrs)}


# ------------------------------------------------------------------------------------------------------ sampling by grid
_GRID: dict[str, Any] = {"mode": "bilinear", "padding_mode": "zeros", "align_corners": True}
_ALONG: dict[str, Any] = {"along_x": False, "along_y": False}


def _sampled(image: str) -> Callable[..., Spec]:
    def infer(inputs: Mapping[str, Any], Grid: Spec, mode: str, padding_mode: str) -> Spec:
        X: Spec = inputs[image]
        if X.ndim != 4 or Grid.ndim != 4 or Grid.shape[3] not in (-1, 2):
            raise InferenceError(f"{X} should be images [N, C, H, W], and Grid {Grid} of shape [N, H', W', 2]")
        if -1 not in (X.shape[0], Grid.shape[0]) and X.shape[0] != Grid.shape[0]:
            raise InferenceError(f"there are {X.shape[0]} images in {X}, but {Grid.shape[0]} grids in {Grid}")
        if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border", "reflection"):
            raise InferenceError(
                f"mode {mode!r} should be 'bilinear' or 'nearest', "
                f"padding_mode {padding_mode!r} 'zeros', 'border' or 'reflection'"
            )
        return X.with_shape((*X.shape[:2], *Grid.shape[1:3]))

    return infer


def _through_grid(f: Any, X: Any, Grid: Any, dOut: Any, attrs: Mapping[str, Any]) -> Any:
    """What reaches the grid from the sampled images: by coordinate, the slope of X there times `dOut`, over all channels."""

    def along(name: str) -> Any:
        if attrs.get(name) or attrs["mode"] == "nearest":  # linear between elements: no second derivative by one coordinate
            return f.fill_zeros_like(f.slice(Grid, axes=[3], starts=[0], ends=[1]))
        slope = f.grid_gather(X, Grid, **{**attrs, name: True})
        return f.unsqueeze2(f.reduce_sum(dOut * slope, dim=[1]), axes=[3])

    return f.concat([along("along_x"), along("along_y")], axis=3)


@define("grid_sampler(X: float, Grid) -> Output", infer=_sampled("X"), **_GRID)
def grid_sampler(f: Any, X: Any, Grid: Any, dOutput: Any, attrs: dict[str, Any]) -> Any:
    """Images X [N, C, H, W] sampled at the places (x, y) of Grid [N, H', W', 2], -1 and 1 being the borders.

    `mode`: "bilinear" between the four elements around a place, or "nearest". `padding_mode` of places outside: "zeros",
    "border" (the nearest inside) or "reflection". The borders are the centres of the outermost elements with
    `align_corners`, their outer edges without.
    """
    return {"X": lambda: f.grid_scatter(dOutput, Grid, X, **attrs), "Grid": lambda: _through_grid(f, X, Grid, dOutput, attrs)}


@define("grid_gather(X: float, Grid) -> Output", infer=_sampled("X"), **_GRID, **_ALONG)
def grid_gather(f: Any, X: Any, Grid: Any, dOutput: Any, attrs: dict[str, Any]) -> Any:
    """As `grid_sampler`, or its derivative by the x (`along_x`) or y (`along_y`) of the place, or by both."""
    return {"X": lambda: f.grid_scatter(dOutput, Grid, X, **attrs), "Grid": lambda: _through_grid(f, X, Grid, dOutput, attrs)}


def _scattered(Output: Spec, Grid: Spec, Like: Spec) -> Spec:
    return Output.with_shape(Like.shape)


@define(
    "grid_scatter(Output, Grid, Like) -> X", infer=_scattered, wrt=("Output", "Grid"), shape_only=("Like",), **_GRID, **_ALONG
)
def grid_scatter(f: Any, Output: Any, Grid: Any, dX: Any, attrs: dict[str, Any]) -> Any:
    """The transpose of `grid_gather`: Output spread over images shaped like Like."""
    return {"Output": lambda: f.grid_gather(dX, Grid, **attrs), "Grid": lambda: _through_grid(f, dX, Grid, Output, attrs)}


def _affine_grid(Theta: Spec, OutputShape: Spec | None, output_shape: list[int]) -> Spec:
    if Theta.ndim != 3 or any(extent not in (-1, size) for extent, size in zip(Theta.shape[1:], (2, 3), strict=True)):
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

    `output_shape` (or OutputShape) is [N, C, H, W]; places reach from -1 to 1.
    """
    places = f.places_like(dOutput, align_corners=align_corners)
    rows, d_rows = (f.flatten_contiguous_range(value, start_axis=1, stop_axis=2) for value in (places, dOutput))
    return {"Theta": f.matmul_v2(d_rows, rows, trans_x=True)}


def _places_like(Like: Spec) -> Spec:
    return Like.with_shape((1, *Like.shape[1:3], 3))


@define("places_like(Like) -> Out", infer=_places_like, grad=ZERO_GRADIENT, shape_only=("Like",), align_corners=True)
def places_like() -> None:
    """The places (x, y, 1) of a grid of Like's height and width, which `affine_grid` moves."""
