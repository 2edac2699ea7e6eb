"""Samples of `fluid.ops.vision`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Data, Sample, add
from .conv import channels_as_asked, channels_first, linear_transpose

data = Data("vision")


# ------------------------------------------------------------------------------------------------- channels and places
def larger(X: Any, upscale_factor: int, data_format: str = "NCHW") -> Any:
    x, r = channels_first(X, data_format), upscale_factor
    n, c, h, w = x.shape
    out = np.zeros((n, c // r**2, h * r, w * r), X.dtype)
    for k, i, j in np.ndindex(c, h, w):
        out[:, k // r**2, i * r + k % r**2 // r, j * r + k % r] = x[:, k, i, j]
    return channels_as_asked(out, data_format)


def smaller(X: Any, downscale_factor: int, data_format: str = "NCHW") -> Any:
    x, r = channels_first(X, data_format), downscale_factor
    n, c, h, w = x.shape
    out = np.zeros((n, c * r**2, h // r, w // r), X.dtype)
    for k, i, j in np.ndindex(c, h, w):
        out[:, k * r**2 + i % r * r + j % r, i // r, j // r] = x[:, k, i, j]
    return channels_as_asked(out, data_format)


def to_depth(X: Any, blocksize: int) -> Any:
    """The images put together from squares, read in their order."""
    n, c, h, w = X.shape
    b, each = blocksize, c // blocksize**2
    wide = np.zeros((n, each, h * b, w * b), X.dtype)
    for k, i, j in np.ndindex(c, h, w):
        wide[:, k % each, i * b + k // each // b, j * b + k // each % b] = X[:, k, i, j]
    return wide.reshape(n, c * b * b, h // b, w // b)


def from_depth(X: Any, blocksize: int) -> Any:
    n, c, h, w = X.shape
    shape = (n, c // blocksize**2, h * blocksize, w * blocksize)
    order = to_depth(np.arange(X.size).reshape(shape), blocksize).reshape(-1)
    out = np.zeros(X.size, X.dtype)
    out[order] = X.reshape(-1)
    return out.reshape(shape)


for shape, factor, data_format in (((2, 8, 2, 3), 2, "NCHW"), ((1, 2, 3, 9), 3, "NHWC"), ((1, 2, 2, 2), 1, "NCHW")):
    wide = larger(data(*shape), factor, data_format)
    add("pixel_shuffle", Sample({"X": data(*shape)}, {"upscale_factor": factor, "data_format": data_format}, larger))
    add("pixel_unshuffle", Sample({"X": wide}, {"downscale_factor": factor, "data_format": data_format}, smaller))
add("space_to_depth", Sample({"X": data(2, 4, 4, 2)}, {"blocksize": 2}, to_depth))
add("space_to_depth", Sample({"X": data(1, 8, 2, 4)}, {"blocksize": 2}, to_depth))
add("depth_to_space", Sample({"X": data(1, 16, 2, 1)}, {"blocksize": 2}, from_depth))
add("depth_to_space", Sample({"X": data(1, 32, 1, 2)}, {"blocksize": 2}, from_depth))


def in_turns(X: Any, group: int = 1, groups: int = 1, data_format: str = "NCHW") -> Any:
    x, count = channels_first(X, data_format), max(group, groups)
    each = x.shape[1] // count
    return channels_as_asked(x[:, [k % count * each + k // count for k in range(x.shape[1])]], data_format)


add("shuffle_channel", Sample({"X": data(2, 6, 2, 3)}, {"group": 2}, in_turns))
add("shuffle_channel", Sample({"X": data(2, 6, 1, 2)}, {"group": 3}, in_turns))
add("channel_shuffle", Sample({"X": data(2, 6, 2, 1)}, {"groups": 3}, in_turns))
add("channel_shuffle", Sample({"X": data(2, 1, 3, 4)}, {"groups": 2, "data_format": "NHWC"}, in_turns))


def shifted(X: Any, seg_num: int, shift_ratio: float = 0.25, data_format: str = "NCHW", back: int = 1) -> Any:
    x = channels_first(X, data_format)
    out = np.zeros_like(x)
    c = x.shape[1]
    for image in range(len(x)):
        for k in range(c):
            by = -back if k < int(c * shift_ratio) else back if k < int(c * 2 * shift_ratio) else 0
            if 0 <= image % seg_num + by < seg_num:
                out[image, k] = x[image + by, k]
    return channels_as_asked(out, data_format)


def unshifted(X: Any, **attrs: Any) -> Any:
    return shifted(X, back=-1, **attrs)


for shape, attrs in (
    ((6, 4, 2, 2), {"seg_num": 3}),
    ((4, 5, 1, 2), {"seg_num": 2, "shift_ratio": 0.4}),
    ((4, 2, 1, 4), {"seg_num": 4, "data_format": "NHWC"}),
    ((2, 4, 2, 2), {"seg_num": 1}),
):
    add("temporal_shift", Sample({"X": data(*shape)}, attrs, shifted))
    add("temporal_unshift", Sample({"X": data(*shape)}, attrs, unshifted))


def greatest(X: Any, groups: int, axis: int = 1) -> Any:
    x = np.moveaxis(X, axis, 0)
    return np.moveaxis(np.stack([x[i : i + groups].max(0) for i in range(0, len(x), groups)]), 0, axis)


add("maxout", Sample({"X": data.distinct(2, 6, 2, 3)}, {"groups": 2}, greatest))
add("maxout", Sample({"X": data.distinct(2, 2, 3, 6)}, {"groups": 3, "axis": -1}, greatest))
add("maxout", Sample({"X": data.distinct(3, 4)}, {"groups": 4}, greatest))


def channel_products(X: Any, Y: Any) -> Any:
    return np.einsum("nchw,ndhw->ncd", X, Y) / X.shape[2] / X.shape[3]


add("fsp", Sample({"X": data(2, 3, 2, 4), "Y": data(2, 2, 2, 4)}, {}, channel_products))


def focus(X: Any, axis: int, indexes: Sequence[int]) -> Any:
    out = np.zeros_like(X)
    for image, target in zip(np.moveaxis(X, axis, 1), np.moveaxis(out, axis, 1), strict=True):
        for index in indexes:
            left = image[index].astype("float64").copy()
            for _ in range(min(left.shape)):
                row, column = np.unravel_index(left.argmax(), left.shape)
                left[row], left[:, column] = -np.inf, -np.inf
                target[:, row, column] = 1
    return out


add("similarity_focus", Sample({"X": data.distinct(2, 3, 2, 4)}, {"axis": 1, "indexes": [0]}, focus))
add("similarity_focus", Sample({"X": data.distinct(2, 3, 2, 4)}, {"axis": 2, "indexes": [0, 1]}, focus))
add("similarity_focus", Sample({"X": data.distinct(1, 3, 3, 2)}, {"axis": 3, "indexes": [1]}, focus))


def leaky(X: Any, Alpha: Any, mode: str = "all", data_format: str = "NCHW") -> Any:
    if mode == "channel":
        alpha = Alpha.reshape([-1 if axis == (X.ndim - 1 if data_format == "NHWC" else 1) else 1 for axis in range(X.ndim)])
    else:
        alpha = Alpha.reshape(X.shape[1:]) if mode == "element" else Alpha.reshape(())
    return np.where(X > 0, X, alpha * X)


for shape, alpha, attrs in (
    ((2, 3, 2), (1,), {}),
    ((2, 3, 2, 2), (3,), {"mode": "channel"}),
    ((2, 3, 2, 2), (1, 3, 1, 1), {"mode": "channel"}),
    ((2, 2, 2, 3), (3,), {"mode": "channel", "data_format": "NHWC"}),
    ((2, 3), (3,), {"mode": "channel"}),
    ((2, 3, 2), (1, 3, 2), {"mode": "element"}),
    ((2, 3, 2), (3, 2), {"mode": "element"}),
):
    add("prelu", Sample({"X": data.away(*shape), "Alpha": data(*alpha)}, attrs, leaky))


# -------------------------------------------------------------------------------------------------- patches of images
def patches(
    X: Any,
    kernel_sizes: Sequence[int],
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
) -> Any:
    top, left, bottom, right = paddings if len(paddings) == 4 else [*paddings, *paddings] if len(paddings) == 2 else paddings * 4
    x = np.pad(X, ((0, 0), (0, 0), (top, bottom), (left, right)))
    height, width = ((kernel_sizes[i] - 1) * dilations[i] + 1 for i in (0, 1))
    found = [
        x[:, :, i : i + height : dilations[0], j : j + width : dilations[1]].reshape(len(x), -1)
        for i in range(0, x.shape[2] - height + 1, strides[0])
        for j in range(0, x.shape[3] - width + 1, strides[1])
    ]
    return np.stack(found, 2)


def put_back(X: Any, output_sizes: Sequence[int] = (), Like: Any = None, **attrs: Any) -> Any:
    channels = X.shape[1] // int(np.prod(attrs["kernel_sizes"]))
    like = np.zeros((len(X), channels, *output_sizes)) if Like is None else Like
    return linear_transpose(lambda x: patches(x, **attrs), like, X)


for shape, attrs in (
    ((2, 2, 4, 3), {"kernel_sizes": [2, 2]}),
    ((1, 3, 5, 4), {"kernel_sizes": [3, 2], "strides": [2, 1], "paddings": [1, 0, 2, 1]}),
    ((1, 1, 5, 6), {"kernel_sizes": [2, 3], "dilations": [2, 2], "paddings": [1, 1]}),
    ((1, 1, 2, 2), {"kernel_sizes": [3, 3], "strides": [1, 2], "paddings": [1]}),
):
    X = data(*shape)
    rows = data(*patches(X, **attrs).shape)
    add("unfold", Sample({"X": X}, attrs, patches))
    add("fold", Sample({"X": rows}, {**attrs, "output_sizes": list(shape[2:])}, put_back))
    add("fold_like", Sample({"X": rows, "Like": X}, attrs, put_back, wrt=["X"]))


# ------------------------------------------------------------------------------------------------------------ cropping
def cropped(
    X: Any,
    shape: Sequence[int] = (),
    offsets: Sequence[int] = (),
    Y: Any = None,
    Like: Any = None,
    Shape: Any = None,
    ShapeTensor: Any = None,
    Offsets: Any = None,
    OffsetsTensor: Any = None,
) -> Any:
    like = Y if Y is not None else Like
    sizes = given(ShapeTensor, Shape, shape if like is None else like.shape)
    starts = given(OffsetsTensor, Offsets, offsets or [0] * X.ndim)
    return X[tuple(slice(start, None if size < 0 else start + size) for start, size in zip(starts, sizes, strict=True))]


def given(tensors: Any, tensor: Any, otherwise: Sequence[int]) -> list[int]:
    """Numbers given as tensors of one each, as a tensor, or at once."""
    if tensors is not None:
        return [int(item[0]) for item in tensors]
    return [int(item) for item in (otherwise if tensor is None else tensor)]


def numbers(*values: int) -> Any:
    return np.array(values, "int32")


add(
    "crop",
    Sample({"X": data(4, 5)}, {"shape": [2, 3], "offsets": [1, 2]}, cropped),
    Sample({"X": data(2, 3, 4)}, {"shape": [2, 2, 1]}, cropped),
    Sample({"X": data(4, 3), "Y": data(2, 3)}, {"offsets": [2, 0]}, cropped, wrt=["X"]),
    Sample({"X": data(4, 3), "Offsets": numbers(1, 1)}, {"shape": [2, 2]}, cropped),
    Sample({"X": data(4, 3)}, {"shape": [-1, 2], "offsets": [0, 1]}, cropped),
)
add(
    "crop_tensor",
    Sample({"X": data(4, 5)}, {"shape": [2, -1], "offsets": [1, 2]}, cropped),
    Sample({"X": data(4, 5), "Shape": numbers(2, 3)}, {"offsets": [1, 2]}, cropped, shapes_by_value=True),
    Sample({"X": data(4, 5), "ShapeTensor": [numbers(2), numbers(3)]}, {}, cropped, shapes_by_value=True),
    Sample({"X": data(4, 5), "Offsets": numbers(2, 2)}, {"shape": [2, 3]}, cropped),
    Sample({"X": data(4, 5), "OffsetsTensor": [numbers(0), numbers(2)]}, {"shape": [2, 3]}, cropped),
)


def put_at(X: Any, Like: Any, offsets: Sequence[int] = (), Offsets: Any = None, OffsetsTensor: Any = None) -> Any:
    return linear_transpose(lambda x: cropped(x, X.shape, offsets, None, None, None, None, Offsets, OffsetsTensor), Like, X)


for inputs, attrs in (
    ({}, {"offsets": [1, 0]}),
    ({"Offsets": numbers(2, 1)}, {}),
    ({"OffsetsTensor": [numbers(0), numbers(1)]}, {}),
    ({}, {}),
):
    small, large = data(2, 3), data(4, 5)
    add("uncrop", Sample({"X": small, "Like": large, **inputs}, attrs, put_at, wrt=["X"]))
    add("crop_like", Sample({"X": large, "Like": small, **inputs}, attrs, cropped, wrt=["X"]))


def padded_like(X: Any, Y: Any, pad_value: float = 0.0) -> Any:
    widths = [(0, large - small) for large, small in zip(X.shape, Y.shape, strict=True)]
    return np.pad(Y, widths, constant_values=pad_value)


add("pad_constant_like", Sample({"X": data(3, 4), "Y": data(2, 4)}, {"pad_value": 1.5}, padded_like, wrt=["Y"]))
add("pad_constant_like", Sample({"X": data(2, 3, 2), "Y": data(2, 1, 1)}, {}, padded_like, wrt=["Y"]))


def parts_of_each(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    size = outputs["Out"].shape[1:]
    for item, part in zip(inputs["X"], outputs["Out"], strict=True):
        places = np.ndindex(*(extent - width + 1 for extent, width in zip(item.shape, size, strict=True)))
        starts = [tuple(slice(at, at + width) for at, width in zip(place, size, strict=True)) for place in places]
        assert any(np.array_equal(item[where], part) for where in starts)
    assert outputs.get("SeedOut") is None or outputs["SeedOut"] != inputs["Seed"]


add("random_crop", Sample({"X": data.distinct(3, 9, 8)}, {"shape": [4, 3]}, check=parts_of_each, random=True))
add(
    "random_crop",
    Sample(
        {"X": data.distinct(3, 9, 8), "Seed": np.array([7])},
        {"shape": [4, 3]},
        check=parts_of_each,
        dtypes=["float32"],
        known=["Seed"],
    ),
)


# ------------------------------------------------------------------------------------------------------------ resizing
def cubic(distance: float) -> float:
    """The kernel of cubic convolution, with -0.75."""
    d = abs(distance)
    if d <= 1:
        return 1.25 * d**3 - 2.25 * d**2 + 1
    return -0.75 * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0.0


def interpolated(X: Any, method: str, **attrs: Any) -> Any:
    """Element by element, as the definition has it."""
    attrs = {"align_corners": True, "align_mode": 1, "data_layout": "NCHW", "scale": [], **attrs}
    last = attrs["data_layout"] == "NHWC"
    image = np.moveaxis(X, -1, 1) if last else X
    count = X.ndim - 2
    scales = [attrs["scale"]] * count if isinstance(attrs["scale"], float) else list(attrs["scale"])
    for axis, name in zip(range(2, X.ndim), ("out_d", "out_h", "out_w")[3 - count :], strict=True):
        source = image.shape[axis]
        scale = scales[axis - 2] if scales else 0
        target = int(source * scale) if scale else attrs[name]
        if isinstance(attrs["scale"], float):
            scale = 0
        ratio = source / target if not scale else 1 / scale
        if attrs["align_corners"]:
            ratio = (source - 1) / max(target - 1, 1)
        if target == 1:
            ratio = 0
        parts = []
        for place in range(target):
            at = place * ratio
            if method == "nearest":
                parts.append(np.take(image, int(at + 0.5 * attrs["align_corners"]), axis))
                continue
            if not attrs["align_corners"] and (attrs["align_mode"] == 0 or method == "bicubic"):
                at = (place + 0.5) * ratio - 0.5
            if method == "bicubic":
                taps = {near: cubic(at - near) for near in range(int(np.floor(at)) - 1, int(np.floor(at)) + 3)}
            else:
                at = max(at, 0)
                taps = {int(at): 1 - at % 1, int(at) + 1: at % 1}
            parts.append(sum(np.take(image, min(max(near, 0), source - 1), axis) * weight for near, weight in taps.items()))
        image = np.stack(parts, axis).astype(X.dtype)
    return np.moveaxis(image, 1, -1) if last else image


INTERPOLATIONS: list[dict[str, Any]] = [
    {"scale": [2.0, 2.0]},
    {"out_h": 5, "out_w": 2},
    {"out_h": 5, "out_w": 4, "align_corners": False},
    {"out_h": 5, "out_w": 4, "align_corners": False, "align_mode": 0},
    {"scale": [2.0, 1.5], "align_corners": False, "align_mode": 0},
    {"out_h": 1, "out_w": 1},
    {"out_h": 4, "out_w": 7, "data_layout": "NHWC"},
]
ROWS: list[dict[str, Any]] = [
    {"out_w": 5},
    {"scale": [1.75], "align_corners": False},
    {"out_w": 3, "align_corners": False, "align_mode": 0, "data_layout": "NHWC"},
]
VOLUMES: list[dict[str, Any]] = [
    {"out_d": 3, "out_h": 2, "out_w": 5},
    {"scale": [2.0, 1.5, 1.0], "align_corners": False, "align_mode": 0},
    {"out_d": 1, "out_h": 3, "out_w": 2, "align_corners": False, "data_layout": "NHWC"},
]
METHODS = [("bilinear", INTERPOLATIONS), ("nearest", INTERPOLATIONS), ("bicubic", INTERPOLATIONS), ("linear", ROWS)]
METHODS += [("trilinear", VOLUMES), ("nearest", VOLUMES)]
FULL = {"interpolations": (2, 3, 4, 2), "rows": (2, 2, 4), "volumes": (1, 2, 2, 3, 2)}


def resized(X: Any, Like: Any = None, interp_method: str = "", **attrs: Any) -> Any:
    """To the size of Like, which `attrs` leave open."""
    names = ("out_d", "out_h", "out_w")[5 - X.ndim :]
    start = 1 if attrs.get("data_layout") == "NHWC" else 2
    sizes = {name: Like.shape[start + i] for i, name in enumerate(names)}
    return interpolated(X, interp_method, **sizes, **attrs)


def spread_back(X: Any, Like: Any, **attrs: Any) -> Any:
    return linear_transpose(lambda x: resized(x, X, **attrs), Like, X)


for method, cases in METHODS:
    shape = FULL["interpolations" if cases is INTERPOLATIONS else "rows" if cases is ROWS else "volumes"]
    for attrs in cases:
        X = data(*shape)

        def reference(X: Any, method: str = method, **attrs: Any) -> Any:
            return interpolated(X, method, **attrs)

        add(f"{method}_interp_v2", Sample({"X": X}, attrs, reference))
        first = {**attrs, "scale": attrs["scale"][0]} if "scale" in attrs else attrs
        if "scale" not in attrs or len(set(attrs["scale"])) == 1:
            add(f"{method}_interp", Sample({"X": X}, first, reference))
        out = data(*interpolated(X, method, **attrs).shape)
        rest = {key: attrs[key] for key in attrs if key not in ("out_d", "out_h", "out_w")}
        rest["interp_method"] = method
        add("uninterp", Sample({"X": out, "Like": X}, rest, spread_back, wrt=["X"]))
        add("interp_like", Sample({"X": X, "Like": out}, rest, resized, wrt=["X"]))
add(
    "bilinear_interp",
    Sample(
        {"X": data(1, 2, 3, 5)}, {"scale": 1.5, "align_corners": False}, lambda X, **attrs: interpolated(X, "bilinear", **attrs)
    ),
)
for method in ("bilinear", "nearest"):
    for dtype in ("uint8", "int32"):
        attrs = {"out_h": 4, "out_w": 7}
        pixels = data.ints(1, 2, 3, 5, high=256, dtype=dtype)

        def of_pixels(X: Any, method: str = method, **attrs: Any) -> Any:
            return np.round(interpolated(X.astype("float64"), method, **attrs), 6).astype(X.dtype)

        add(f"{method}_interp", Sample({"X": pixels}, attrs, of_pixels))
for method in ("bilinear", "nearest"):
    X = data(1, 2, 3, 4)
    sized: dict[str, tuple[Any, dict[str, Any]]] = {
        "OutSize": (np.array([4, 5], "int32"), {}),
        "SizeTensor": ([np.array([4], "int32"), np.array([5], "int32")], {"scale": [2.0, 2.0]}),
        "Scale": (np.array([1.5, 1.25], "float32"), {"align_corners": False}),
    }
    for slot, (value, attrs) in sized.items():

        def to_size(X: Any, method: str = method, align_corners: bool = True, Scale: Any = None, **others: Any) -> Any:
            by = {"scale": Scale} if Scale is not None else {"out_h": 4, "out_w": 5}
            return interpolated(X, method, align_corners=align_corners, **by)

        add(f"{method}_interp_v2", Sample({"X": X, slot: value}, attrs, to_size, wrt=["X"], shapes_by_value=True))
        old = {**attrs, "scale": 2.0} if "scale" in attrs else attrs
        if slot != "Scale":
            add(f"{method}_interp", Sample({"X": X, slot: value}, old, to_size, wrt=["X"], shapes_by_value=True))


# ------------------------------------------------------------------------------------------------------ sampling by grid
def place_of(coordinate: float, extent: int, padding_mode: str, align_corners: bool) -> float:
    at = (coordinate + 1) / 2 * (extent - 1) if align_corners else ((coordinate + 1) * extent - 1) / 2
    low, high = (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)
    if padding_mode == "reflection":
        while not low <= at <= high and low < high:
            at = 2 * low - at if at < low else 2 * high - at
    return at if padding_mode == "zeros" else min(max(at, 0.0), extent - 1.0)


def sampled(X: Any, Grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = True) -> Any:
    n, channels, height, width = X.shape
    out = np.zeros((n, channels, *Grid.shape[1:3]), X.dtype)
    for i, row, column in np.ndindex(n, *Grid.shape[1:3]):
        x, y = (place_of(Grid[i, row, column, k], X.shape[3 - k], padding_mode, align_corners) for k in (0, 1))
        v, u = np.ogrid[:height, :width]
        if mode == "nearest":
            weights = (u == round(x)) & (v == round(y))
        else:
            weights = np.maximum(1 - abs(x - u), 0) * np.maximum(1 - abs(y - v), 0)
        out[i, :, row, column] = (X[i] * weights).sum((1, 2))
    return out


def slope(X: Any, Grid: Any, along_x: bool = False, along_y: bool = False, **attrs: Any) -> Any:
    """By central differences, exact where the samples are linear."""
    for axis, wanted in enumerate((along_x, along_y)):
        if wanted:
            step = np.zeros(2)
            step[axis] = 1e-3
            rest = {"along_y": along_y} if axis == 0 else {}
            wide, grid = X.astype("float64"), Grid.astype("float64")
            parts = [slope(wide, grid + sign * step, **rest, **attrs) for sign in (1, -1)]
            return ((parts[0] - parts[1]) / 2e-3).astype(X.dtype)
    return sampled(X, Grid, **attrs)


def scattered(Output: Any, Grid: Any, Like: Any, **attrs: Any) -> Any:
    """The transpose of `slope`, which takes for its channels all images of a single pixel."""
    n, _, height, width = Like.shape
    pixels = np.eye(height * width, dtype=Output.dtype).reshape(-1, height, width)
    weights = slope(np.broadcast_to(pixels, (n, *pixels.shape)), Grid, **attrs)
    return np.einsum("nphw,nchw->ncp", weights, Output).reshape(Like.shape)


def grid_for(shape: Sequence[int], size: Sequence[int], beyond: float) -> Any:
    """Places that keep their distance from where samples have kinks."""
    found = np.zeros((shape[0], *size, 2))
    for index in np.ndindex(*found.shape[:-1]):
        for k in (0, 1):
            extent, place = shape[3 - k], 0.5
            while min(abs(2 * place - round(2 * place)), abs(place - round(place))) < 0.1:  # halves: mirrors, and nearest ones
                coordinate = data._rng.uniform(-beyond, beyond)
                place = (coordinate + 1) / 2 * (extent - 1)
                other = ((coordinate + 1) * extent - 1) / 2
                if abs(2 * other - round(2 * other)) < 0.1:
                    place = 0.5
            found[(*index, k)] = coordinate
    return found


for attrs in (
    {},
    {"align_corners": False},
    {"padding_mode": "border"},
    {"padding_mode": "border", "align_corners": False},
    {"padding_mode": "reflection"},
    {"padding_mode": "reflection", "align_corners": False},
    {"mode": "nearest"},
    {"mode": "nearest", "padding_mode": "border", "align_corners": False},
):
    image = data(2, 2, 3, 4)
    grid = grid_for(image.shape, (2, 3), 1.8)
    output = data(2, 2, 2, 3)
    add("grid_sampler", Sample({"X": image, "Grid": grid}, attrs, sampled))
    for extra in ({}, {"along_x": True}, {"along_y": True}, {"along_x": True, "along_y": True}):
        inputs = {"Output": output, "Grid": grid, "Like": image}
        add("grid_gather", Sample({"X": image, "Grid": grid}, {**attrs, **extra}, slope, tolerance=30))
        add("grid_scatter", Sample(inputs, {**attrs, **extra}, scattered, wrt=["Output", "Grid"], tolerance=30))


def affine_places(Theta: Any, output_shape: Sequence[int] = (), align_corners: bool = True, OutputShape: Any = None) -> Any:
    height, width = map(int, (output_shape if OutputShape is None else OutputShape)[2:])
    out = np.zeros((len(Theta), height, width, 2), Theta.dtype)
    for i, j in np.ndindex(height, width):
        x, y = (
            2 * at / (extent - 1) - 1 if align_corners else (2 * at + 1) / extent - 1 for at, extent in ((j, width), (i, height))
        )
        out[:, i, j] = Theta @ np.array([x, y, 1.0])
    return out


add(
    "affine_grid",
    Sample({"Theta": data(2, 2, 3)}, {"output_shape": [2, 3, 4, 3]}, affine_places),
    Sample({"Theta": data(1, 2, 3)}, {"output_shape": [1, 3, 2, 5], "align_corners": False}, affine_places),
    Sample({"Theta": data(2, 2, 3), "OutputShape": np.array([2, 1, 3, 2], "int32")}, {}, affine_places, shapes_by_value=True),
)


def places(Like: Any, align_corners: bool = True) -> Any:
    corners = np.array([[[1.0, 0, 0], [0, 1, 0]]], Like.dtype)
    found = affine_places(corners, [1, 1, *Like.shape[1:3]], align_corners)
    return np.concatenate([found, np.ones_like(found[..., :1])], 3)


add(
    "places_like",
    Sample({"Like": data(2, 3, 4, 2)}, {}, places),
    Sample({"Like": data(1, 2, 5, 2)}, {"align_corners": False}, places),
)
