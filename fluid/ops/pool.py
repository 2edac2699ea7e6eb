"""Pooling of images.

Average pooling is linear: its gradient is its transpose, `pool2d_average_back`. Maximum pooling picks elements: its
gradient puts them back (`place`) where `pool2d_index`, which has no gradient, says that they came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InferenceError
from ..types import VarType
from ..values import Spec
from .conv import Pair, image_axes, resolve_paddings, steps_of_window
from .registry import ZERO_GRADIENT, Like, define, ints, like, required


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
    if len(ksize) != count or len(strides) != count:
        raise InferenceError(f"pool2d: ksize {list(ksize)} and strides {list(strides)} should have {count} numbers each")
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


def _pooled(X: Spec, attrs: Mapping[str, Any]) -> Spec:
    if X.ndim != 4:
        raise InferenceError(f"pool2d: X {X} should have four dimensions")
    if attrs.get("pooling_type", "max") not in ("max", "avg"):
        raise InferenceError(f"pool2d: pooling_type {attrs['pooling_type']!r} should be 'max' or 'avg'")
    axes = image_axes(attrs["data_format"], 4)[1]
    out = pool_geometry([X.shape[axis] for axis in axes], attrs)[0]
    shape = list(X.shape)
    for axis, extent in zip(axes, out, strict=True):
        if extent < 1 and extent != -1:
            raise InferenceError(f"pool2d: windows of ksize {attrs['ksize']} are larger than the padded X {X}")
        shape[axis] = extent
    return X.with_shape(tuple(shape))


def _index(X: Spec, attrs: Mapping[str, Any]) -> Spec:
    return _pooled(X, attrs).with_dtype(VarType.INT64)


_ATTRS: dict[str, Any] = {
    "ksize": required("ints"),
    "strides": ints(1, 1),
    "paddings": ints(0, 0),
    "padding_algorithm": "EXPLICIT",
    "ceil_mode": False,
    "global_pooling": False,
    "adaptive": False,
    "exclusive": True,
    "data_format": "NCHW",
}


@define("pool2d(X) -> Out", infer=_pooled, pooling_type=required("string"), **_ATTRS)
def pool2d(f: Any, X: Any, Out: Like, dOut: Any, attrs: dict[str, Any]) -> Any:
    """The maximum ("max") or average ("avg") of each window of images [N, C, H, W] (or [N, H, W, C]).

    Padding never is a maximum; averages count it unless `exclusive`. `global_pooling` makes one window of each image;
    `adaptive` takes `ksize` for the output's extents. The gradient of a maximum goes to the first of equal elements.
    """
    windows = {name: attrs[name] for name in _ATTRS}
    if attrs["pooling_type"] == "avg":
        return {"X": f.pool2d_average_back(dOut, X, **windows)}
    first, last = image_axes(attrs["data_format"], 4)[1]

    def flat(value: Any) -> Any:
        return f.flatten_contiguous_range(value, start_axis=first, stop_axis=last)

    placed = f.place(flat(dOut), flat(f.pool2d_index(X, **windows)), flat(X), axis=first)
    return {"X": f.reshape_like(placed, X)}


@define("pool2d_index(X) -> Index", infer=_index, grad=ZERO_GRADIENT, **_ATTRS)
def pool2d_index() -> None:
    """Where in its image, counted row by row, the first maximum of each window lies."""


@define("pool2d_average_back(Output, Like) -> X", infer=like("Like"), wrt=("Output",), likes=("Like",), **_ATTRS)
def pool2d_average_back(f: Any, dX: Any, attrs: dict[str, Any]) -> Any:
    """Each element of Output shared among its window in an image shaped like Like: the transpose of average pooling."""
    return {"Output": f.pool2d(dX, pooling_type="avg", **attrs)}
