"""Pooling of images and volumes, and unpooling.

Average pooling is linear: its gradient is its transpose, `pool2d_average_back`. Maximum pooling picks elements: its gradient
puts each element (`place`) at the index of its maximum, from `pool2d_index`, which has no gradient. `pool3d`, for volumes, has
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import composed
from ..opdef.registry import ZERO_GRADIENT, Attr, ShapeOnly, choice, counted, define, get, ints, least, required
from ..values.spec import Spec
from ..values.types import VarType
from .conv import Pair, channels_last, image_axes, image_format, resolve_paddings, steps_of_window
from .shapes import check_transposed, may_equal


def pool_geometry(sizes: Sequence[int], attrs: Mapping[str, Any]) -> tuple[list[int], list[int], list[int], list[Pair]]:
    """Output sizes (-1 if unknown), and the sizes, strides and paddings of the windows.

    If adaptive windows differ in size, their size is returned as 0: the i-th of n reaches from ``i * size // n`` to
    ``ceil((i + 1) * size / n)``.
    """
    ksize, strides, algorithm = attrs["ksize"], attrs["strides"], attrs["padding_algorithm"]
    count = len(sizes)
    unpadded = [(0, 0)] * count
    if attrs["global_pooling"]:
        return [1] * count, list(sizes), [1] * count, unpadded
    if len(ksize) != count or min(ksize) < 1:
        raise InferenceError(f"ksize {list(ksize)} should have {count} numbers, none below 1")
    if attrs["adaptive"]:
        windows = [size // window if size % window == 0 else 0 for size, window in zip(sizes, ksize, strict=True)]
        return list(ksize), windows, windows, unpadded
    pads = resolve_paddings(attrs["paddings"], algorithm, sizes, ksize, strides)
    out = []
    for size, window, stride, pad in zip(sizes, ksize, strides, pads, strict=True):
        if algorithm == "SAME":
            out.append(-(-size // stride) if size >= 0 else -1)
        else:
            out.append(steps_of_window(size, window, stride, pad, attrs["ceil_mode"]))
    return out, list(ksize), list(strides), pads


def pool_attrs(count: int, data_format: str = "") -> dict[str, Any]:
    """The attributes of pooling over `count` spatial dimensions."""
    return {
        "ksize": required("ints"),
        "strides": least(1, counted(ints(*[1] * count))),
        "paddings": least(0, counted(ints(*[0] * count), count, 2 * count)),
        "padding_algorithm": choice("EXPLICIT", "SAME", "VALID"),
        "ceil_mode": False,
        "global_pooling": False,
        "adaptive": False,
        "exclusive": True,
        "data_format": image_format(count, data_format),
    }


def _pooled(count: int) -> Callable[..., Spec]:
    """Inference of pooling over `count` spatial dimensions."""

    def infer(X: Spec, attrs: Mapping[str, Any]) -> Spec:
        if X.ndim != count + 2:
            raise InferenceError(f"X {X} should have {('four', 'five')[count - 2]} dimensions")
        axes = image_axes(attrs["data_format"], X.ndim)[1]
        if any(X.shape[axis] == 0 for axis in axes):
            raise InferenceError(f"X {X} should have elements to pool in each of its dimensions {axes}")
        out = pool_geometry([X.shape[axis] for axis in axes], attrs)[0]
        shape = list(X.shape)
        for axis, size in zip(axes, out, strict=True):
            if size < 1 and size != -1:
                hint = channels_last(X, attrs["data_format"])
                raise InferenceError(f"windows of ksize {attrs['ksize']} should not be larger than the padded X {X}{hint}")
            shape[axis] = size
        return X.with_shape(tuple(shape))

    return infer


def place_maxima(f: Any, values: Any, index: Any, like_: Any, first: int, last: int) -> Any:
    """`values` at the places `index`, in images of zeros shaped like `like_` whose spatial axes are `first` to `last`."""

    def flat(value: Any) -> Any:
        return f.flatten_contiguous_range(value, start_axis=first, stop_axis=last)

    return f.reshape_like(f.place(flat(values), flat(index), flat(like_), axis=first), like_)


def by_channel(f: Any, value: Any, axis: int, ndim: int) -> Any:
    """A value of `ndim` dimensions with the channels at `axis`, as images [rows, 1, channels, places], to pool channels."""
    flat = f.flatten_contiguous_range(value, start_axis=0, stop_axis=axis - 1)
    if axis == ndim - 1:
        return f.unsqueeze2(flat, axes=[1, 3])
    return f.unsqueeze2(f.flatten_contiguous_range(flat, start_axis=2, stop_axis=ndim - axis), axes=[1])


_POOL = {
    2: """The maximum ("max") or average ("avg") of each window of images [N, C, H, W] (or [N, H, W, C]).

Padding is never a maximum; averages count it unless `exclusive`. With `global_pooling`, each image is one window; with
`adaptive`, `ksize` is the output size. The gradient of a maximum goes to the first of equal elements.""",
    3: """The maximum ("max") or average ("avg") of each window of volumes [N, C, D, H, W] (or [N, D, H, W, C]), as `pool2d`.""",
}


_TYPE = Attr("string", required=True, choices=("max", "avg"))


def _define(count: int) -> None:
    """Define pooling over `count` spatial dimensions, and the ops of its gradients."""
    name, attributes, infer = f"pool{count}d", pool_attrs(count), _pooled(count)

    def rule(f: Any, X: Any, Out: ShapeOnly, dOut: Any, attrs: dict[str, Any]) -> Any:
        windows = {key: attrs[key] for key in attributes}
        if attrs["pooling_type"] == "avg":
            return {"X": getattr(f, f"{name}_average_back")(dOut, X, **windows)}
        axes = image_axes(attrs["data_format"], count + 2)[1]
        return {"X": place_maxima(f, dOut, getattr(f, f"{name}_index")(X, **windows), X, axes[0], axes[-1])}

    def index() -> None: ...

    def back(f: Any, dX: Any, attrs: dict[str, Any]) -> Any:
        return {"Output": getattr(f, name)(dX, pooling_type="avg", **attrs)}

    def infer_index(X: Spec, attrs: Mapping[str, Any]) -> Spec:
        return infer(X, attrs).with_dtype(VarType.INT64)

    def infer_back(Output: Spec, Like: Spec, attrs: Mapping[str, Any]) -> Spec:
        pooled = infer(Like, attrs)
        if not may_equal(Output.shape, pooled.shape):
            raise InferenceError(f"Output {Output} should be {pooled}, the shape of Like {Like} after pooling")
        return Like

    rule.__doc__ = _POOL[count]
    index.__doc__ = "The index of the first maximum of each window in its image, counted row by row."
    back.__doc__ = "Each element of Output spread evenly over its window, in an image shaped like Like: transposes averaging."
    define(f"{name}(X: float) -> Out", infer=infer, pooling_type=_TYPE, **attributes)(rule)
    define(f"{name}_index(X) -> Index", infer=infer_index, grad=ZERO_GRADIENT, **attributes)(index)
    signature = f"{name}_average_back(Output, Like) -> X"
    define(signature, infer=infer_back, wrt=("Output",), shape_only=("Like",), **attributes)(back)


_define(2)
_define(3)


# ------------------------------------------------------------------------------------------- maxima with their places
def windows_of(attrs: Mapping[str, Any], count: int) -> dict[str, Any]:
    """`attrs`, some of the attributes of pooling over `count` spatial dimensions, completed with the defaults."""
    return get(f"pool{count}d_index").defaults(attrs)


def _define_with_index(count: int) -> None:
    infer = _pooled(count)

    def infer_both(X: Spec, attrs: Mapping[str, Any]) -> tuple[Spec, Spec]:
        out = infer(X, windows_of(attrs, count))
        return out, out.with_dtype(VarType.INT32)

    def rule(f: Any, X: ShapeOnly, Mask: Any, dOut: Any) -> Any:
        return {"X": place_maxima(f, dOut, Mask, X, 2, count + 1)}

    rule.__doc__ = f"`pool{count}d` of maxima; Mask is the index of each in its image, counted row by row."
    define(
        f"max_pool{count}d_with_index(X: float) -> Out, Mask",
        infer=infer_both,
        ksize=required("ints"),
        strides=least(1, counted(ints(*[1] * count))),
        paddings=least(0, counted(ints(*[0] * count), count, 2 * count)),
        global_pooling=False,
        adaptive=False,
    )(rule)


_define_with_index(2)
_define_with_index(3)


# ------------------------------------------------------------------------------------------------------------- pyramid
def _pyramid(shape: Sequence[int], height: int) -> Iterator[dict[str, Any]]:
    """The attributes of `pool2d` for each level of `spp`."""
    for level in range(height):
        bins = 2**level
        ksize = [-(-size // bins) for size in shape[2:]]
        paddings = [(window * bins - size + 1) // 2 for window, size in zip(ksize, shape[2:], strict=True)]
        yield windows_of({"ksize": ksize, "strides": ksize, "paddings": paddings}, 2)


def _spp(X: Spec, pyramid_height: int) -> Spec:
    if -1 in X.shape[1:]:
        raise InferenceError(f"X {X} should have known channels, height and width")
    for level, windows in enumerate(_pyramid(X.shape, pyramid_height)):
        bins = 2**level
        for size, window, padding in zip(X.shape[2:], windows["ksize"], windows["paddings"], strict=True):
            if padding >= window or window * (bins - 1) - padding >= size:
                raise InferenceError(f"X {X} does not divide into {bins} bins: a window would hold nothing of it")
    return X.with_shape((X.shape[0], X.shape[1] * sum(4**level for level in range(pyramid_height))))


@composed(
    "spp(X: float[N, C, H, W]) -> Out", infer=_spp, listed=["Out"], pyramid_height=least(1, required("int")), pooling_type=_TYPE
)
def spp(f: Any, X: Any, pyramid_height: int, pooling_type: str) -> Any:
    """Pools each image to 1 x 1, 2 x 2, 4 x 4, ... bins, `pyramid_height` times, and joins all of them in one row.

    The windows of a level are as in `pool2d` with ``ceil(size / bins)`` as size and stride, padded to cover the image.
    """
    levels = [f.pool2d(X, pooling_type=pooling_type, **windows) for windows in _pyramid(X.shape, pyramid_height)]
    return f.concat([f.flatten2(level, axis=1) for level in levels], axis=1)


# ----------------------------------------------------------------------------------------------------------- unpooling
def _define_unpool(name: str, count: int, **attributes: Any) -> None:
    def infer(X: Spec, Indices: Spec, OutputSize: Sequence[Spec] | None, attrs: Mapping[str, Any]) -> Spec:
        if X.ndim != count + 2 or Indices.ndim != X.ndim:
            raise InferenceError(f"X {X} and Indices {Indices} should have {count + 2} dimensions each")
        if not may_equal(X.shape, Indices.shape):
            raise InferenceError(f"X {X} and Indices {Indices} should have the same shape")
        requested = [-1] * count if OutputSize else attrs["output_size"]
        if OutputSize and len(OutputSize) != count and not may_equal((prod(OutputSize[0].shape),), (count,)):
            raise InferenceError(f"OutputSize should be {count} numbers, in one tensor or in {count}")
        default_size = [
            -1 if size < 0 else (size - 1) * stride - 2 * padding + window
            for size, stride, padding, window in zip(
                X.shape[2:], attrs["strides"], attrs["paddings"], attrs["ksize"], strict=True
            )
        ]
        if any(size >= 0 and out < 1 for size, out in zip(X.shape[2:], default_size, strict=True)):
            raise InferenceError(f"paddings {attrs['paddings']} should leave something of the images made of X {X}")
        return X.with_shape((*X.shape[:2], *(requested or default_size)))

    def infer_back(Output: Spec, Indices: Spec, Like: Spec, OutputSize: Sequence[Spec] | None, attrs: Mapping[str, Any]) -> Spec:
        check_transposed("Output", Output, name, infer(Like, Indices, OutputSize, attrs), Like)
        return Like

    def rule(f: Any, X: ShapeOnly, Indices: Any, OutputSize: Any, Out: ShapeOnly, dOut: Any, attrs: dict[str, Any]) -> Any:
        return {"X": getattr(f, f"{name}_back")(dOut, Indices, X, OutputSize, **attrs)}

    def back(f: Any, Output: ShapeOnly, Indices: Any, Like: ShapeOnly, OutputSize: Any, dX: Any, attrs: dict[str, Any]) -> Any:
        if not OutputSize:
            return {"Output": getattr(f, name)(dX, Indices, **attrs)}
        is_kept = getattr(f, f"{name}_back")(f.fill_any_like(Output, value=1.0), Indices, Like, OutputSize, **attrs)
        parts = f.fill_any_like(Output), Indices, dX * is_kept
        zeros, places, values = (f.reshape2(part, shape=[0, 0, -1]) for part in parts)
        return {"Output": f.reshape_like(f.put_along_axis(zeros, places, values, Axis=2, Reduce="add"), Output)}

    rule.__doc__ = f"""X's elements at Indices (counted row by row) in images of zeros: undoes `max_pool{count}d_with_index`.

The image has `output_size`, or the numbers in OutputSize (one tensor, or one for each), or else
``(size - 1) * stride - 2 * padding + ksize``. Of several elements with the same index, the last is kept, and only that one has a
gradient."""
    back.__doc__ = f"The transpose of `{name}`: the elements of Output at Indices; zeros for those that `{name}` overwrites."
    attributes.update(
        ksize=least(1, counted(required("ints"), count)),
        strides=least(1, counted(ints(*[1] * count))),
        paddings=least(0, counted(ints(*[0] * count))),
        output_size=least(1, counted(ints(), 0, count)),
        data_format=image_format(count),
    )
    define(f"{name}(X, Indices: int, OutputSize*?: int) -> Out", infer=infer, wrt=("X",), **attributes)(rule)
    signature = f"{name}_back(Output, Indices, Like, OutputSize*?: int) -> X"
    define(signature, infer=infer_back, wrt=("Output",), shape_only=("Like",), **attributes)(back)


_define_unpool("unpool", 2, unpooling_type=choice("max"))
_define_unpool("unpool3d", 3)
