"""Resizing, and sampling by coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import VarType, is_floating
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from ..values import Size


@imports("Upsample")
def upsample(b: Builder, node: OnnxNode) -> Any:
    scales = node.floats("scales") if node.opset < 9 else node.constant_input(1, "its scales").tolist()
    x = node[0]
    sizes = [_floor(size, scale) for size, scale in zip(x.shape, scales, strict=True)]
    mode = {"linear": "linear", "bilinear": "linear", "nearest": "nearest"}[node.string("mode", "nearest")]
    return _resized(b, x, list(range(x.ndim)), scales, sizes, mode, "asymmetric", node, None)


@imports("Resize", since=10)
def resize_10(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    scales = node.constant_input(1, "its scales").tolist()
    sizes = [_floor(size, scale) for size, scale in zip(x.shape, scales, strict=True)]
    return _resized(b, x, list(range(x.ndim)), scales, sizes, node.string("mode", "nearest"), "asymmetric", node, None)


@imports("Resize", since=11)
def resize(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axes = [axis % x.ndim for axis in node.ints("axes", list(range(x.ndim)))]
    scales = node.constant_input(2, "its scales")
    input_sizes = [x.shape[axis] for axis in axes]
    if scales is not None and scales.size:
        factors = [float(scale) for scale in scales]
        sizes = [_floor(size, factor) for size, factor in zip(input_sizes, factors, strict=True)]
    else:
        sizes = _wanted_sizes(x, axes, node)
        factors = [size / have for size, have in zip(sizes, input_sizes, strict=True)]
        policy = node.string("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = (min if policy == "not_larger" else max)(factors)
            factors = [factor] * len(input_sizes)
            sizes = [math.floor(have * factor + 0.5) if have >= 0 else -1 for have in input_sizes]
    if any(have < 0 and factor != 1 for have, factor in zip(input_sizes, factors, strict=True)):
        raise FormatError("images of a size that only a run tells are not resized")
    roi = node.constant_input(1, "its region") if node.string("coordinate_transformation_mode") == "tf_crop_and_resize" else None
    transformation = node.string("coordinate_transformation_mode", "half_pixel")
    return _resized(b, x, axes, factors, sizes, node.string("mode", "nearest"), transformation, node, roi)


def _wanted_sizes(x: Any, axes: list[int], node: OnnxNode) -> list[int]:
    """The sizes that the node gives for these axes; -1 where only a run tells the size and it stays the size of `x`."""
    sizes = node.numbers(3) or []
    sizes = [-1 if size == Size(x.name, axis) else size for size, axis in zip(sizes, axes, strict=bool(sizes))]
    if not sizes or not all(isinstance(size, int) for size in sizes):
        raise FormatError("its sizes should be known beforehand, except unchanged ones")
    return sizes


def _floor(size: int, scale: float) -> int:
    return math.floor(size * np.float32(scale)) if size >= 0 else -1


def _resized(
    b: Builder,
    x: Any,
    axes: list[int],
    scales: list[float],
    sizes: list[int],
    mode: str,
    transformation: str,
    node: OnnxNode,
    roi: Any,
) -> Any:
    """Resize `x` one axis at a time: by a product with a matrix of weights, or by gathering elements."""
    dtype = x.dtype
    outside: dict[int, Any] = {}
    for place, axis in enumerate(axes):
        have, want = x.shape[axis], sizes[place]
        region = (0.0, 1.0) if roi is None or not roi.size else (float(roi[place]), float(roi[place + len(axes)]))
        if have == want and scales[place] == 1.0 and transformation != "tf_crop_and_resize":
            continue
        if have < 0:
            continue
        b.reserve(want, itemsize=32)
        at = _coordinates(transformation, have, want, scales[place], region)
        if mode == "nearest":
            how = node.string("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
            x = b.f.gather(x, b.constant(_nearest(at, have, how)), axis=axis)
        else:
            weights = _weights(b, at, have, scales[place], mode, node)
            x = _times(b, x if is_floating(x.dtype) else b.cast(x, VarType.FP32), weights, axis)
        if transformation == "tf_crop_and_resize":
            outside[axis] = (at < 0) | (at > have - 1)
    value = node.float("extrapolation_value", 0.0)
    for axis, beyond in outside.items():
        if beyond.any():
            shape = [-1 if n == axis else 1 for n in range(x.ndim)]
            keep = b.constant((~beyond).astype(x.dtype.numpy).reshape(shape))
            x = b.f.elementwise_add(
                b.f.elementwise_mul(x, keep), b.constant((beyond * value).astype(x.dtype.numpy).reshape(shape))
            )
    return b.cast(x, dtype)


def _times(b: Builder, x: Any, weights: Any, axis: int) -> Any:
    """Multiply `x` by a matrix along one axis."""
    matrix = b.constant(weights.astype(x.dtype.numpy, copy=False))
    order = [n for n in range(x.ndim) if n != axis] + [axis]
    out = b.f.matmul_v2(b.transpose(x, order), matrix, trans_y=True)
    return b.transpose(out, [order.index(n) for n in range(x.ndim)])


def _coordinates(how: str, have: int, want: int, scale: float, region: tuple[float, float]) -> Any:
    """The coordinates in the input of the output's elements."""
    at = np.arange(want, dtype=np.float64)
    if how == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if how == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if want > 1 else at * 0.0
    if how == "half_pixel_symmetric":
        adjustment = want / (have * scale)
        return have / 2 * (1 - adjustment) + (at + 0.5) / scale - 0.5
    if how == "align_corners":
        return at * (have - 1) / (have * scale - 1) if want > 1 else at * 0.0
    if how == "asymmetric":
        return at / scale
    if how == "tf_crop_and_resize":
        start, end = region
        if want > 1:
            return start * (have - 1) + at * (end - start) * (have - 1) / (want - 1)
        return 0.5 * (start + end) * (have - 1) + at
    raise FormatError(f"its coordinate_transformation_mode {how!r} is none that ONNX has")


def _nearest(at: Any, have: int, how: str) -> Any:
    modes: dict[str, Callable[[Any], Any]] = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    if how not in modes:
        raise FormatError(f"its nearest_mode {how!r} should be one of {', '.join(modes)}")
    return np.clip(modes[how](at), 0, have - 1).astype(np.int64)


def _weights(b: Builder, at: Any, have: int, scale: float, mode: str, node: OnnxNode) -> Any:
    """The interpolation matrix [results, elements] along one axis."""
    antialias = bool(node.int("antialias", 0)) and scale < 1
    stretch = scale if antialias else 1.0
    kernels: dict[str, tuple[float, Callable[[Any], Any]]] = {
        "linear": (1.0, lambda distance: np.maximum(1.0 - np.abs(distance), 0.0)),
        "cubic": (2.0, lambda distance: _cubic(np.abs(distance), node.float("cubic_coeff_a", -0.75))),
    }
    if mode not in kernels:
        raise FormatError(f"its mode {mode!r} should be 'nearest', 'linear' or 'cubic'")
    support, kernel = kernels[mode]
    reach = math.ceil(support / stretch)
    first = np.floor(at).astype(np.int64) - reach + (0 if antialias else 1)
    count = 2 * reach + (1 if antialias else 0)
    b.reserve(len(at), count, itemsize=48)
    b.reserve(len(at), have, itemsize=12)
    matrix = np.zeros((len(at), have))
    places = first[:, None] + np.arange(count)[None]
    weights = kernel((at[:, None] - places) * stretch)
    exclude = bool(node.int("exclude_outside", 0))
    if exclude:
        weights = np.where((places >= 0) & (places < have), weights, 0.0)
    total = weights.sum(1, keepdims=True)
    if exclude or antialias:
        weights = weights / np.where(total == 0, 1.0, total)
    np.add.at(matrix, (np.arange(len(at))[:, None], np.clip(places, 0, have - 1)), weights)
    return matrix


def _cubic(x: Any, a: float) -> Any:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
