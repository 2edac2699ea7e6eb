"""Lowers resizing of images to products with a matrix along each axis.

Nearest elements are copies where each is repeated equally often. Between two rows that are wide enough, only these are read;
a product also multiplies all other elements by zero, so an infinity becomes NaN elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluid.ops.vision import resized_axes, scale_factors

from ..kernels.vision import nearest_places, nearest_ratio, source_ratio
from .emitter import BOOL, DOUBLE, FLOAT, INT64, Type
from .graph import (
    ChannelsFirst,
    GraphNode,
    Position,
    Rows,
    broadcast_to,
    channels_first,
    channels_last,
    constant,
    mapped,
    plain,
    product,
    reduced,
    reshaped,
    summed,
    transposed,
)
from .lowering import GraphTensor, NotLowered, lowers, only_floats

_MOST_EXTENT = 256
"""The most elements along an axis: each element of a result is a sum over the whole axis."""
_WIDE = 16
"""The fewest elements of rows that are gathered: products with a matrix are faster for narrower ones."""


def _multiply_along(node: GraphNode, matrix: GraphNode, axis: int) -> GraphNode:
    """Multiply a matrix by a tensor along one of its axes."""
    before, after = prod(node.shape[:axis]), prod(node.shape[axis + 1 :])
    target, source = matrix.shape
    shape = (*node.shape[:axis], target, *node.shape[axis + 1 :])
    if after == 1:
        return reshaped(product(reshaped(plain(node), (before, source)), transposed(matrix, (1, 0))), shape)
    return reshaped(product(reshaped(matrix, (1, target, source)), reshaped(plain(node), (before, source, after))), shape)


def _multiplied(
    image: GraphTensor, shape: Sequence[int], axes: Sequence[int], matrix_of: Callable[[int], GraphNode]
) -> GraphTensor:
    """Multiply images by a matrix along each axis. Images [N, C, H, W] are computed as [N, H, W, C]."""
    only_floats(image)
    for axis in axes:
        _only_short(image.shape[axis], shape[axis])
    is_moved = list(axes) == [2, 3] and image.ndim == 4
    node = channels_last(image.node) if is_moved else image.node
    for axis in axes:
        node = _multiply_along(node, matrix_of(axis), axis - is_moved)
    return GraphTensor(channels_first(node) if is_moved else node)


def _only_short(source: int, target: int) -> None:
    if max(source, target) > _MOST_EXTENT:
        raise NotLowered("long axes")


def _column_numbers(count: int, element: Type) -> GraphNode:
    """0, 1, 2, ... as [1, count]."""
    return mapped("convert", Position((1, count), INT64), element=element)


def _row_numbers(count: int, element: Type) -> GraphNode:
    """0, 1, 2, ... as [count, 1]."""
    return reshaped(plain(_column_numbers(count, element)), (count, 1))


# ------------------------------------------------------------------------------------------------------------ resizing
def _interpolation(method: str, source: int, target: int, scale: float, attrs: Mapping[str, Any], element: Type) -> GraphNode:
    """The matrix [target, source] that interpolates along an axis; see the kernels of `fluid.ops.vision`."""
    if method == "nearest":
        at = _nearest(source, target, scale, attrs["align_corners"])
        return mapped("convert", mapped("oeq", at, _column_numbers(source, FLOAT), element=BOOL), element=element)
    distance = mapped("abs", mapped("sub", _places(source, target, scale, attrs), _column_numbers(source, DOUBLE)))
    weights = mapped("max", mapped("sub", constant(1.0, DOUBLE), distance), constant(0.0, DOUBLE))
    return mapped("convert", weights, element=element)


def _places(source: int, target: int, scale: float, attrs: Mapping[str, Any]) -> GraphNode:
    """The places [target, 1] between elements of the source that linear interpolation reads."""
    is_half_shifted = not attrs["align_corners"] and attrs["align_mode"] == 0
    half, ratio = constant(0.5, DOUBLE), constant(source_ratio(source, target, scale, attrs["align_corners"]), DOUBLE)
    rows = _row_numbers(target, DOUBLE)
    if is_half_shifted:
        at = mapped("sub", mapped("mul", mapped("add", rows, half), ratio), half)
    else:
        at = mapped("mul", rows, ratio)
    return mapped("min", mapped("max", at, constant(0.0, DOUBLE)), constant(source - 1, DOUBLE))


def _taps(
    method: str, source: int, target: int, scale: float, attrs: Mapping[str, Any]
) -> list[tuple[GraphNode, GraphNode | None]]:
    """What interpolation along an axis reads for each element: a place [target, 1] in the source, and its weight; None for 1."""
    if method == "nearest":
        return [(_nearest(source, target, scale, attrs["align_corners"]), None)]
    at = _places(source, target, scale, attrs)
    low = mapped("floor", at)
    high = mapped("min", mapped("add", low, constant(1.0, DOUBLE)), constant(source - 1, DOUBLE))
    share = mapped("sub", at, low)
    return [(low, mapped("sub", constant(1.0, DOUBLE), share)), (high, share)]


def _gathered(node: GraphNode, axis: int, taps: Sequence[tuple[GraphNode, GraphNode | None]]) -> GraphNode:
    """Interpolate along an axis by gathering rows of the elements behind it."""
    before, source, after = prod(node.shape[:axis]), node.shape[axis], prod(node.shape[axis + 1 :])
    target = taps[0][0].shape[0]
    table = reshaped(plain(node), (before * source, after))
    firsts = reshaped(plain(mapped("mul", Position((before,), INT64), constant(source, INT64))), (before, 1))

    def for_all(row: GraphNode) -> GraphNode:
        return reshaped(broadcast_to(reshaped(plain(row), (1, target)), (before, target)), (before * target, 1))

    parts = []
    for places, weight in taps:
        numbers = reshaped(plain(mapped("convert", places, element=INT64)), (1, target))
        ids = reshaped(mapped("add", firsts, numbers), (before * target, 1))
        rows: GraphNode = Rows((before * target, after), table.element, table, ids, in_bounds=True)
        if weight is not None:
            rows = mapped("mul", rows, for_all(mapped("convert", weight, element=table.element)))
        parts.append(rows)
    total = summed(parts)
    return reshaped(total, (*node.shape[:axis], target, *node.shape[axis + 1 :]))


def _nearest(source: int, target: int, scale: float, is_aligned: bool) -> GraphNode:
    """The places [target, 1] of the nearest elements along an axis; see `nearest_places`."""
    ratio = constant(float(nearest_ratio(source, target, scale, is_aligned)), FLOAT)
    at = mapped("mul", _row_numbers(target, FLOAT), ratio)
    at = mapped("floor", mapped("add", at, constant(0.5 if is_aligned else 0.0, FLOAT)))
    return mapped("min", at, constant(source - 1, FLOAT))


def _interpolated(
    X: GraphTensor, shape: Sequence[int], sizes: tuple[Sequence[int], Sequence[int]], scale: Any, attrs: Mapping[str, Any]
) -> GraphTensor:
    """Resize images to a shape.

    Args:
        sizes: the shapes of the image before and after interpolation. If `shape` is the first of them, X is a gradient.
        scale: the attribute: one number, or one for each axis.
    """
    only_floats(X)
    axes = resized_axes(attrs["data_layout"], X.ndim)
    factors = dict(zip(axes, scale_factors(scale, len(axes)) or [0.0] * len(axes), strict=True))
    source, target = sizes
    is_gradient = tuple(source) == tuple(shape)
    method = attrs["interp_method"]
    if method == "nearest":
        aligned = attrs["align_corners"]
        if all(_is_repeated(source[axis], target[axis], factors[axis], aligned) for axis in axes):
            return _repeated(X, source, [target[axis] // source[axis] for axis in range(X.ndim)], is_gradient)
    elif method not in ("linear", "bilinear", "trilinear"):
        raise NotLowered(f"images resized by {method} interpolation")
    if not is_gradient:
        return _resized(X, shape, axes, factors, attrs)

    def matrix(axis: int) -> GraphNode:
        weights = _interpolation(method, source[axis], target[axis], factors[axis], attrs, X.node.element)
        return transposed(weights, (1, 0))

    return _multiplied(X, shape, axes, matrix)


def _is_repeated(source: int, target: int, scale: float, is_aligned: bool) -> bool:
    """Whether the nearest elements along an axis are all elements in order, each equally often."""
    if not source or target % source:
        return False
    places = nearest_places(np, source, target, scale, is_aligned)
    return bool((places == np.arange(target) // (target // source)).all())


def _repeated(X: GraphTensor, small: Sequence[int], times: Sequence[int], is_gradient: bool) -> GraphTensor:
    """Images whose elements are repeated along each axis; of a gradient, the sums over the repeated elements."""
    node, order = X.node, range(X.ndim)
    if isinstance(node, ChannelsFirst):
        node, order = node.source, (0, *range(2, X.ndim), 1)  # type: ignore[assignment]
    split = tuple(extent for axis in order for extent in (small[axis], times[axis]))
    if is_gradient:
        result = reduced("sum", reshaped(plain(node), split), range(1, len(split), 2))
        shape = tuple(small[axis] for axis in order)
    else:
        one = tuple(extent for axis in order for extent in (small[axis], 1))
        result = mapped("copy", broadcast_to(reshaped(plain(node), one), split))
        shape = tuple(small[axis] * times[axis] for axis in order)
    result = reshaped(result, shape)
    return GraphTensor(channels_first(result) if isinstance(X.node, ChannelsFirst) else result)


def _resized(
    X: GraphTensor, shape: Sequence[int], axes: Sequence[int], factors: Mapping[int, float], attrs: Mapping[str, Any]
) -> GraphTensor:
    """Images interpolated along each axis, the last one first. Its elements become rows, and columns again."""
    is_moved = isinstance(X.node, ChannelsFirst)
    node = X.node.source if isinstance(X.node, ChannelsFirst) else X.node
    for axis in reversed(axes):
        line = attrs["interp_method"], X.shape[axis], shape[axis], factors[axis], attrs
        place = axis - is_moved
        if place == X.ndim - 1 and node.shape[place - 1] >= _WIDE:
            turn = (*range(place - 1), place, place - 1)
            turned = mapped("copy", transposed(plain(node), turn))
            node = mapped("copy", transposed(plain(_gathered(turned, place - 1, _taps(*line))), turn))
        elif attrs["interp_method"] == "nearest" or prod(node.shape[place + 1 :]) >= _WIDE:
            node = _gathered(node, place, _taps(*line))
        else:
            _only_short(X.shape[axis], shape[axis])
            node = _multiply_along(node, _interpolation(*line, X.node.element), place)
    return GraphTensor(channels_first(node) if is_moved else node)


def _register(method: str) -> None:
    @lowers(f"{method}_interp")
    def first(X: GraphTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: dict[str, Any]) -> GraphTensor:
        return _sized(X, inputs, 0.0, attrs, specs)

    @lowers(f"{method}_interp_v2")
    def second(X: GraphTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: dict[str, Any]) -> GraphTensor:
        return _sized(X, inputs, attrs["scale"], attrs, specs)

    def _sized(X: GraphTensor, inputs: dict[str, Any], scale: Any, attrs: dict[str, Any], specs: dict[str, Any]) -> GraphTensor:
        if any(inputs.get(slot) for slot in ("OutSize", "SizeTensor", "Scale")):
            raise NotLowered("sizes in tensors")
        shape = specs["Out"].shape
        if shape == X.shape:
            raise NotLowered("images of the same size")
        return _interpolated(X, shape, (X.shape, shape), scale, {**attrs, "interp_method": method})


for _method in ("linear", "bilinear", "trilinear", "nearest"):
    _register(_method)


@lowers("interp_like")
def interp_like(X: GraphTensor, Like: GraphTensor, Scale: Any, scale: list[float], attrs: dict[str, Any]) -> GraphTensor:
    return _resized_like(X, Like, Scale, (X.shape, Like.shape), scale, attrs)


@lowers("uninterp")
def uninterp(X: GraphTensor, Like: GraphTensor, Scale: Any, scale: list[float], attrs: dict[str, Any]) -> GraphTensor:
    return _resized_like(X, Like, Scale, (Like.shape, X.shape), scale, attrs)


def _resized_like(
    X: GraphTensor, Like: GraphTensor, Scale: Any, sizes: tuple[Sequence[int], Sequence[int]], scale: list[float], attrs: Any
) -> GraphTensor:
    if Scale is not None or X.shape == Like.shape:
        raise NotLowered("a scale in a tensor, or images of the same size")
    return _interpolated(X, Like.shape, sizes, scale, attrs)
