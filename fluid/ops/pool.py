"""Pooling of images and volumes, and the way back.

Average pooling is linear: its gradient is its transpose, `pool2d_average_back`. Maximum pooling picks elements: its
gradient puts them back (`place`) where `pool2d_index`, which has no gradient, says that they came from. Of volumes,
`pool3d` has the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InferenceError
from ..opdef.registry import ZERO_GRADIENT, Attr, ShapeOnly, choice, counted, define, get, ints, least, like, required
from ..values.spec import Spec
from ..values.types import VarType
from .conv import Pair, image_axes, image_format, resolve_paddings, steps_of_window


def pool_geometry(extents: Sequence[int], attrs: Mapping[str, Any]) -> tuple[list[int], list[int], list[int], list[Pair]]:
    """Output extents (-1 where unknown), and sizes, strides and paddings of the windows.

    Adaptive windows that differ in size are given as of size 0: the i-th of n reaches from ``i * extent // n`` to
    ``ceil((i + 1) * extent / n)``.
    """
    ksize, strides, algorithm = attrs["ksize"], attrs["strides"], attrs["padding_algorithm"]
    count = len(extents)
    unpadded = [(0, 0)] * count
    if attrs["global_pooling"]:
        return [1] * count, list(extents), [1] * count, unpadded
    if len(ksize) != count or min(ksize) < 1:
        raise InferenceError(f"ksize {list(ksize)} should have {count} numbers, none below 1")
    if attrs["adaptive"]:
        sizes = [extent // size if extent % size == 0 else 0 for extent, size in zip(extents, ksize, strict=True)]
        return list(ksize), sizes, sizes, unpadded
    pads = resolve_paddings(attrs["paddings"], algorithm, extents, ksize, strides)
    out = []
    for extent, size, stride, pad in zip(extents, ksize, strides, pads, strict=True):
        if algorithm == "SAME":
            out.append(-(-extent // stride) if extent >= 0 else -1)
        else:
            out.append(steps_of_window(extent, size, stride, pad, attrs["ceil_mode"]))
    return out, list(ksize), list(strides), pads


def pool_attrs(count: int, data_format: str = "") -> dict[str, Any]:
    """The attributes of pooling over `count` extents."""
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
    """Inference of pooling over `count` extents."""

    def infer(X: Spec, attrs: Mapping[str, Any]) -> Spec:
        if X.ndim != count + 2:
            raise InferenceError(f"X {X} should have {('four', 'five')[count - 2]} dimensions")
        axes = image_axes(attrs["data_format"], X.ndim)[1]
        out = pool_geometry([X.shape[axis] for axis in axes], attrs)[0]
        shape = list(X.shape)
        for axis, extent in zip(axes, out, strict=True):
            if extent < 1 and extent != -1:
                raise InferenceError(f"windows of ksize {attrs['ksize']} should not be larger than the padded X {X}")
            shape[axis] = extent
        return X.with_shape(tuple(shape))

    return infer


def place_maxima(f: Any, values: Any, index: Any, like_: Any, first: int, last: int) -> Any:
    """`values` of windows put where `index` says, in images shaped like `like_` with extents at axes `first` to `last`."""

    def flat(value: Any) -> Any:
        return f.flatten_contiguous_range(value, start_axis=first, stop_axis=last)

    return f.reshape_like(f.place(flat(values), flat(index), flat(like_), axis=first), like_)


def by_channel(f: Any, value: Any, axis: int, ndim: int) -> Any:
    """A value of `ndim` dimensions, `axis` that of its channels, as images [rows, 1, channels, places]: to pool channels."""
    flat = f.flatten_contiguous_range(value, start_axis=0, stop_axis=axis - 1)
    if axis == ndim - 1:
        return f.unsqueeze2(flat, axes=[1, 3])
    return f.unsqueeze2(f.flatten_contiguous_range(flat, start_axis=2, stop_axis=ndim - axis), axes=[1])


_POOL = {
    2: """The maximum ("max") or average ("avg") of each window of images [N, C, H, W] (or [N, H, W, C]).

Padding never is a maximum; averages count it unless `exclusive`. `global_pooling` makes one window of each image;
`adaptive` takes `ksize` for the output's extents. The gradient of a maximum goes to the first of equal elements.""",
    3: """The maximum ("max") or average ("avg") of each window of volumes [N, C, D, H, W] (or [N, D, H, W, C]), as `pool2d`.""",
}


_TYPE = Attr("string", required=True, choices=("max", "avg"))


def _define(count: int) -> None:
    """Pooling over `count` extents, and what its gradients are made of."""
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

    rule.__doc__ = _POOL[count]
    index.__doc__ = "Where in its image, counted row by row, the first maximum of each window lies."
    back.__doc__ = "Each element of Output shared among its window in an image shaped like Like: the transpose of averages."
    define(f"{name}(X: float) -> Out", infer=infer, pooling_type=_TYPE, **attributes)(rule)
    define(f"{name}_index(X) -> Index", infer=infer_index, grad=ZERO_GRADIENT, **attributes)(index)
    signature = f"{name}_average_back(Output, Like) -> X"
    define(signature, infer=like("Like"), wrt=("Output",), shape_only=("Like",), **attributes)(back)


_define(2)
_define(3)


# ------------------------------------------------------------------------------------------- maxima with their places
def windows_of(attrs: Mapping[str, Any], count: int) -> dict[str, Any]:
    """All attributes of pooling over `count` extents, for an op that has some of them."""
    return get(f"pool{count}d_index").defaults(attrs)


def _define_with_index(count: int) -> None:
    infer = _pooled(count)

    def infer_both(X: Spec, attrs: Mapping[str, Any]) -> tuple[Spec, Spec]:
        found = infer(X, windows_of(attrs, count))
        return found, found.with_dtype(VarType.INT32)

    def rule(f: Any, X: ShapeOnly, Mask: Any, dOut: Any) -> Any:
        return {"X": place_maxima(f, dOut, Mask, X, 2, count + 1)}

    rule.__doc__ = f"`pool{count}d` of maxima, and in Mask where in its image, counted row by row, each of them lies."
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


# ----------------------------------------------------------------------------------------------------------- unpooling
def _define_unpool(name: str, count: int, **attributes: Any) -> None:
    def infer(X: Spec, Indices: Spec, attrs: Mapping[str, Any]) -> Spec:
        if X.ndim != count + 2 or Indices.ndim != X.ndim:
            raise InferenceError(f"X {X} and Indices {Indices} should have {count + 2} dimensions each")
        if any(-1 not in pair and pair[0] != pair[1] for pair in zip(X.shape, Indices.shape, strict=True)):
            raise InferenceError(f"X {X} and Indices {Indices} should have the same shape")
        asked = attrs["output_size"]
        found = [
            -1 if extent < 0 else (extent - 1) * stride - 2 * padding + size
            for extent, stride, padding, size in zip(
                X.shape[2:], attrs["strides"], attrs["paddings"], attrs["ksize"], strict=True
            )
        ]
        if any(extent >= 0 and size < 1 for extent, size in zip(X.shape[2:], found, strict=True)):
            raise InferenceError(f"paddings {attrs['paddings']} should leave something of the images made of X {X}")
        return X.with_shape((*X.shape[:2], *(asked or found)))

    def rule(f: Any, X: ShapeOnly, Indices: Any, Out: ShapeOnly, dOut: Any, attrs: dict[str, Any]) -> Any:
        return {"X": getattr(f, f"{name}_back")(dOut, Indices, X, **attrs)}

    def back(f: Any, Indices: Any, dX: Any, attrs: dict[str, Any]) -> Any:
        return {"Output": getattr(f, name)(dX, Indices, **attrs)}

    rule.__doc__ = f"""X's elements in images of zeros, where Indices (counted by row) says: undoes `max_pool{count}d_with_index`.

The image has `output_size`, or, where that is empty, ``(extent - 1) * stride - 2 * padding + ksize``. Of several elements
with one index the last stays, and only that one has a gradient."""
    back.__doc__ = (
        f"The transpose of `{name}`: from Output, for each index, what lies there; zeros where `{name}` writes over it."
    )
    attributes.update(
        ksize=least(1, counted(required("ints"), count)),
        strides=least(1, counted(ints(*[1] * count))),
        paddings=least(0, counted(ints(*[0] * count))),
        output_size=least(1, counted(ints(), 0, count)),
        data_format=image_format(count),
    )
    define(f"{name}(X, Indices: int) -> Out", infer=infer, wrt=("X",), **attributes)(rule)
    signature = f"{name}_back(Output, Indices, Like) -> X"
    define(signature, infer=like("Like"), wrt=("Output",), shape_only=("Like",), **attributes)(back)


_define_unpool("unpool", 2, unpooling_type=choice("max"))
_define_unpool("unpool3d", 3)
