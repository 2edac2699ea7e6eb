"""Resizing, and sampling by coordinates."""

from __future__ import annotations

import functools
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
from .padding import within


@imports("Upsample")
def upsample(b: Builder, node: OnnxNode) -> Any:
    scales = node.floats("scales") if node.opset < 9 else node.constant_input(1, "its scales").tolist()
    x = node[0]
    sizes = [_floor(b, x, axis, scale) for axis, scale in enumerate(_one_for_each(scales, x.ndim, "scales"))]
    mode = {"linear": "linear", "bilinear": "linear", "nearest": "nearest"}[node.string("mode", "nearest")]
    return _resized(b, x, list(range(x.ndim)), scales, sizes, mode, "asymmetric", node, None)


@imports("Resize", since=10)
def resize_10(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    scales = node.constant_input(1, "its scales").tolist()
    sizes = [_floor(b, x, axis, scale) for axis, scale in enumerate(_one_for_each(scales, x.ndim, "scales"))]
    return _resized(b, x, list(range(x.ndim)), scales, sizes, node.string("mode", "nearest"), "asymmetric", node, None)


@imports("Resize", since=11)
def resize(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axes = [axis % x.ndim for axis in node.ints("axes", list(range(x.ndim)))]
    input_sizes = [b.size_of(x, axis) for axis in axes]
    scales = node.array(2) if node.value(2) is not None and node.tensor(2).shape != (0,) else None
    if scales is not None:
        factors = [float(scale) for scale in _one_for_each(scales, len(axes), "scales")]
        sizes = [_floor(b, x, axis, factor) for axis, factor in zip(axes, factors, strict=True)]
    else:
        sizes, factors = _wanted_sizes(b, x, axes, node)
        policy = node.string("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = _one_factor(b, factors, policy)
            factors = [factor] * len(axes)
            sizes = [_scaled_size(b, size, factor) for size in input_sizes]
    roi = node.constant_input(1, "its region") if node.string("coordinate_transformation_mode") == "tf_crop_and_resize" else None
    transformation = node.string("coordinate_transformation_mode", "half_pixel")
    return _resized(b, x, axes, factors, sizes, node.string("mode", "nearest"), transformation, node, roi)


def _one_factor(b: Builder, factors: list[Any], policy: str) -> Any:
    """The factor for all axes, by `keep_aspect_ratio_policy`; a variable if a factor is known only at run time."""
    if all(isinstance(factor, float) for factor in factors):
        return (min if policy == "not_larger" else max)(factors)
    choose = b.f.elementwise_min if policy == "not_larger" else b.f.elementwise_max
    return functools.reduce(choose, [np.array([n]) if isinstance(n, float) else n for n in factors])


def _scaled_size(b: Builder, size: Any, factor: Any) -> Any:
    """A size times a factor, rounded to the nearest integer, up from the middle."""
    if isinstance(size, int) and isinstance(factor, float):
        return math.floor(size * factor + 0.5)
    product = b.f.elementwise_mul(_double(b, size), np.array([factor]) if isinstance(factor, float) else factor)
    return b.cast(b.f.floor(b.f.elementwise_add(product, np.array([0.5]))), VarType.INT64)


def _one_for_each(numbers: Any, count: int, name: str) -> Any:
    """The numbers; `FormatError` unless there is one for each of `count` dimensions."""
    if len(numbers) != count:
        raise FormatError(f"it has {len(numbers)} {name}; there should be one for each of {count} dimensions")
    return numbers


def _wanted_sizes(b: Builder, x: Any, axes: list[int], node: OnnxNode) -> tuple[list[Any], list[Any]]:
    """The sizes for these axes, and their ratios to the sizes of `x`, from the input of sizes or of scales.

    Numbers known only at run time are variables of one element.
    """
    sizes: list[Any] = []
    factors: list[Any] = []
    if node.value(3) is None and node.value(2) is not None:  # scales that are computed
        for place, axis in enumerate(axes):
            factor = b.slice(node[2], 0, place, place + 1)
            sizes.append(b.cast(b.f.floor(b.cast(b.integer(b.size_of(x, axis)), factor.dtype) * factor), VarType.INT64))
            factors.append(b.cast(factor, VarType.FP64))
        return sizes, factors
    for number, axis in zip(_one_for_each(node.numbers(3) or [], len(axes), "sizes"), axes, strict=True):
        current = b.size_of(x, axis)
        if number == current:
            factors.append(1.0)
        elif isinstance(number, int) and isinstance(current, int):
            factors.append(number / current)
        else:
            factors.append(_double(b, number) / _double(b, current))
        sizes.append(number if isinstance(number, int) or number == current else b.integer(number))
    return sizes, factors


def _double(b: Builder, number: Any) -> Any:
    """A number, as `Builder.integer` takes it, as a variable of float64."""
    return b.cast(b.integer(number), VarType.FP64)


def _floor(b: Builder, x: Any, axis: int, scale: float) -> Any:
    """The size of an axis times a scale; a variable if it is known only at run time, and a `Size` if it stays the same."""
    size = b.size_of(x, axis)
    if isinstance(size, int):
        return math.floor(size * np.float32(scale))
    if scale == 1.0:
        return size
    product = b.cast(b.integer(size), VarType.FP32) * b.number(scale, VarType.FP32)
    return b.cast(b.f.floor(product), VarType.INT64)


def _resized(
    b: Builder,
    x: Any,
    axes: list[int],
    scales: list[Any],
    sizes: list[Any],
    mode: str,
    transformation: str,
    node: OnnxNode,
    roi: Any,
) -> Any:
    """Resize `x` one axis at a time: by a product with a matrix of weights, or by gathering elements.

    Sizes and scales known only at run time are variables of one element.
    """
    dtype = x.dtype
    outside: dict[int, Any] = {}
    for place, axis in enumerate(axes):
        have, want = x.shape[axis], sizes[place]
        is_same = want == b.size_of(x, axis) if isinstance(want, (int, Size)) else False
        if is_same and isinstance(scales[place], float) and scales[place] == 1.0 and transformation != "tf_crop_and_resize":
            continue
        if not isinstance(want, int) or have < 0:
            x = _resized_at_run(b, x, axis, b.integer(want), scales[place], mode, transformation, node)
            continue
        region = (0.0, 1.0) if roi is None or not roi.size else (float(roi[place]), float(roi[place + len(axes)]))
        b.reserve(want, itemsize=32)
        at = _coordinates(transformation, have, want, scales[place], region)
        if mode == "nearest":
            how = node.string("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
            x = b.f.gather(x, b.constant(_nearest(at, have, how)), axis=axis)
        else:
            weights = _weights(b, at, have, scales[place], mode, node)
            x = x if is_floating(x.dtype) else b.cast(x, VarType.FP32)
            x = _times(b, x, b.constant(weights.astype(x.dtype.numpy, copy=False)), axis)
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


def _times(b: Builder, x: Any, matrix: Any, axis: int) -> Any:
    """Multiply `x` by a matrix of its dtype along one axis."""
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


def _resized_at_run(b: Builder, x: Any, axis: int, want: Any, scale: Any, mode: str, transformation: str, node: OnnxNode) -> Any:
    """Resize an axis to `want` elements, a variable of one int64: the weighted elements of each of its neighbours are added up.

    Args:
        scale: a number, or a variable of one float64.
    """
    if mode not in ("nearest", "linear", "cubic"):
        raise FormatError(f"its mode {mode!r} should be 'nearest', 'linear' or 'cubic'")
    scale = b.number(scale, VarType.FP64) if isinstance(scale, float) else scale
    size = b.integer(b.size_of(x, axis))
    at = _coordinates_at_run(b, transformation, b.cast(size, VarType.FP64), want, scale)
    if mode == "nearest":
        how = node.string("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
        return b.f.gather(x, within(b, b.cast(_rounded(b, at, how), VarType.INT64), size), axis=axis)
    images = x if is_floating(x.dtype) else b.cast(x, VarType.FP32)
    if node.int("antialias", 0):
        return _antialiased_at_run(b, images, axis, at, size, scale, mode, node)
    first = b.f.floor(at)
    offsets = (0, 1) if mode == "linear" else (-1, 0, 1, 2)
    weights = [_weight_at_run(b, b.f.abs(at - first - b.number(offset, VarType.FP64)), mode, node) for offset in offsets]
    places = [b.cast(first, VarType.INT64) + b.integer(offset) for offset in offsets]
    clipped = [within(b, place, size) for place in places]
    if node.int("exclude_outside", 0):
        masks = [b.cast(b.f.equal(*pair), VarType.FP64) for pair in zip(places, clipped, strict=True)]
        weights = [weight * factor for weight, factor in zip(weights, masks, strict=True)]
        total = b.f.sum(weights)
        weights = [weight / total for weight in weights]
    shape = [-1 if n == axis else 1 for n in range(x.ndim)]
    parts = []
    for place, weight in zip(clipped, weights, strict=True):
        factor = b.f.reshape2(b.cast(weight, images.dtype), shape=shape)
        parts.append(b.f.elementwise_mul(b.f.gather(images, place, axis=axis), factor))
    return b.f.sum(parts)


def _antialiased_at_run(b: Builder, x: Any, axis: int, at: Any, size: Any, scale: Any, mode: str, node: OnnxNode) -> Any:
    """Resize an axis by a product with a matrix of weights, whose columns reach beyond both ends of the axis."""
    stretch = b.f.elementwise_min(scale, b.number(1.0, VarType.FP64))
    reach = b.cast(b.f.ceil(b.number(1.0 if mode == "linear" else 2.0, VarType.FP64) / stretch), VarType.INT64) + b.integer(1)
    places = b.positions(b.integer(0) - reach, size + reach)
    clipped = within(b, places, size)
    distance = b.unsqueeze(at, [1]) - b.unsqueeze(b.cast(places, VarType.FP64), [0])
    weights = _weight_at_run(b, b.f.elementwise_mul(b.f.abs(distance), stretch), mode, node)
    if node.int("exclude_outside", 0):
        weights = b.f.elementwise_mul(weights, b.cast(b.f.equal(places, clipped), VarType.FP64))
    weights = weights / b.reduce("reduce_sum", weights, [1], True)
    return _times(b, b.f.gather(x, clipped, axis=axis), b.cast(weights, x.dtype), axis)


def _coordinates_at_run(b: Builder, how: str, have: Any, want: Any, scale: Any) -> Any:
    """`_coordinates` for sizes known only at run time; all numbers are variables of float64, `want` of int64."""
    at = b.cast(b.positions(0, want), VarType.FP64)
    half, one, least = (b.number(value, VarType.FP64) for value in (0.5, 1.0, 1e-9))
    is_several = b.cast(b.f.greater_than(want, b.integer(1)), VarType.FP64)
    if how in ("half_pixel", "pytorch_half_pixel"):
        places = (at + half) / scale - half
        return places if how == "half_pixel" else places * is_several
    if how == "half_pixel_symmetric":
        adjustment = b.cast(want, VarType.FP64) / (have * scale)
        return have * half * (one - adjustment) + (at + half) / scale - half
    if how == "align_corners":
        return at * (have - one) / b.f.elementwise_max(have * scale - one, least) * is_several
    if how == "asymmetric":
        return at / scale
    raise FormatError(f"coordinate_transformation_mode {how!r} is not supported for images whose size is known only at run time")


def _rounded(b: Builder, at: Any, how: str) -> Any:
    """Round positions to integers, by a `nearest_mode` of ONNX."""
    half = b.number(0.5, VarType.FP64)
    modes: dict[str, Callable[[], Any]] = {
        "round_prefer_floor": lambda: b.f.ceil(at - half),
        "round_prefer_ceil": lambda: b.f.floor(at + half),
        "floor": lambda: b.f.floor(at),
        "ceil": lambda: b.f.ceil(at),
    }
    if how not in modes:
        raise FormatError(f"its nearest_mode {how!r} should be one of {', '.join(modes)}")
    return modes[how]()


def _weight_at_run(b: Builder, distance: Any, mode: str, node: OnnxNode) -> Any:
    """The weights of elements at distances, which are variables of float64."""

    def polynomial(*coefficients: float) -> Any:
        total = b.number(coefficients[0], VarType.FP64)
        for coefficient in coefficients[1:]:
            total = b.f.elementwise_add(b.f.elementwise_mul(distance, total), b.number(coefficient, VarType.FP64))
        return total

    if mode == "linear":
        return b.f.elementwise_max(polynomial(-1.0, 1.0), b.number(0.0, VarType.FP64))
    a = node.float("cubic_coeff_a", -0.75)
    near, far = polynomial(a + 2, -(a + 3), 0.0, 1.0), polynomial(a, -5 * a, 8 * a, -4 * a)
    is_near, is_far = (b.cast(b.f.less_equal(distance, b.number(limit, VarType.FP64)), VarType.FP64) for limit in (1.0, 2.0))
    return near * is_near + far * (is_far - is_near)


def _cubic(x: Any, a: float) -> Any:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
