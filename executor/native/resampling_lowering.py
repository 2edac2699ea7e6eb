"""Lowers images that are resized, and pools with windows of different sizes: products with a matrix along each axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluid.ops.pool import pool_geometry
from fluid.ops.vision import resized_axes, scale_factors

from .emitter import BOOL, DOUBLE, FLOAT, INT64, Type
from .graph import Node, Position, channels_first, channels_last, constant, mapped, plain, product, reshaped, transposed
from .lowering import GraphTensor, NotLowered, lowers, only_floats

__all__ = ["pooled_by_parts", "pooled_by_parts_back"]

_MOST_EXTENT = 256
"""The most elements along an axis: each result sums over all of them."""

_Matrix = Callable[[int, int], Node]
"""Makes the matrix [target, source] for the extents of an axis."""


def _along(node: Node, matrix: Node, axis: int) -> Node:
    """Multiply a matrix by a tensor along one of its axes."""
    before, after = prod(node.shape[:axis]), prod(node.shape[axis + 1 :])
    target, source = matrix.shape
    shape = (*node.shape[:axis], target, *node.shape[axis + 1 :])
    if after == 1:
        return reshaped(product(reshaped(plain(node), (before, source)), transposed(matrix, (1, 0))), shape)
    return reshaped(product(reshaped(matrix, (1, target, source)), reshaped(plain(node), (before, source, after))), shape)


def _resized(image: GraphTensor, shape: Sequence[int], axes: Sequence[int], matrix_of: Callable[[int], Node]) -> GraphTensor:
    """Multiply images by a matrix along each axis; four dimensions with channels first are computed with channels last."""
    only_floats(image)
    if any(max(image.shape[axis], shape[axis]) > _MOST_EXTENT for axis in axes):
        raise NotLowered("long axes")
    turns = list(axes) == [2, 3] and image.ndim == 4
    node = channels_last(image.node) if turns else image.node
    for axis in axes:
        node = _along(node, matrix_of(axis), axis - turns)
    return GraphTensor(channels_first(node) if turns else node)


def _places(target: int, element: Type) -> tuple[Node, Callable[[int], Node]]:
    """The numbers of rows [target, 1]; and a function from the number of columns to the numbers of columns [1, source]."""

    def numbers(count: int) -> Node:
        return mapped("convert", Position((1, count), INT64), element=element)

    return reshaped(plain(numbers(target)), (target, 1)), numbers


# ------------------------------------------------------------------------------------------------------------ resizing
def _interpolating(method: str, source: int, target: int, scale: float, attrs: Mapping[str, Any], element: Type) -> Node:
    """The matrix [target, source] that interpolates along an axis; see the kernels of `fluid.ops.vision`."""
    if method not in ("linear", "bilinear", "trilinear", "nearest"):
        raise NotLowered(f"images resized by {method} interpolation")
    aligned = attrs["align_corners"]
    if target <= 1:
        ratio = 0.0
    elif aligned:
        ratio = (source - 1) / (target - 1)
    else:
        ratio = 1.0 / scale if scale > 0 else source / target
    if method == "nearest":
        if scale > 0 and not aligned and target > 1:
            ratio = float(1 / np.float32(scale))
        rows, columns = _places(target, FLOAT)
        at = mapped("floor", mapped("add", mapped("mul", rows, constant(ratio, FLOAT)), constant(0.5 if aligned else 0.0, FLOAT)))
        at = mapped("min", at, constant(source - 1, FLOAT))
        return mapped("convert", mapped("oeq", at, columns(source), element=BOOL), element=element)
    rows, columns = _places(target, DOUBLE)
    if not aligned and attrs["align_mode"] == 0:
        at = mapped(
            "sub", mapped("mul", mapped("add", rows, constant(0.5, DOUBLE)), constant(ratio, DOUBLE)), constant(0.5, DOUBLE)
        )
    else:
        at = mapped("mul", rows, constant(ratio, DOUBLE))
    at = mapped("min", mapped("max", at, constant(0.0, DOUBLE)), constant(source - 1, DOUBLE))
    distance = mapped("abs", mapped("sub", at, columns(source)))
    weights = mapped("max", mapped("sub", constant(1.0, DOUBLE), distance), constant(0.0, DOUBLE))
    return mapped("convert", weights, element=element)


def _interpolated(
    X: GraphTensor, shape: Sequence[int], sizes: tuple[Sequence[int], Sequence[int]], scale: Any, attrs: Mapping[str, Any]
) -> GraphTensor:
    """Resize images to a shape.

    Args:
        sizes: the shapes of the smaller and the larger image, in the order of interpolation.
        scale: the attribute: one number, or one for each axis.
    """
    only_floats(X)
    axes = resized_axes(attrs["data_layout"], X.ndim)
    factors = scale_factors(scale, len(axes)) or [0.0] * len(axes)
    source, target = sizes
    is_back = tuple(source) == tuple(shape)

    def matrix(axis: int) -> Node:
        factor = factors[axes.index(axis)]
        weights = _interpolating(attrs["interp_method"], source[axis], target[axis], factor, attrs, X.node.element)
        return transposed(weights, (1, 0)) if is_back else weights

    return _resized(X, shape, axes, matrix)


def _register(method: str) -> None:
    @lowers(f"{method}_interp")
    def first(X: GraphTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: dict[str, Any]) -> GraphTensor:
        return _sized(X, inputs, 0.0, attrs, specs)

    @lowers(f"{method}_interp_v2")
    def second(X: GraphTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: dict[str, Any]) -> GraphTensor:
        return _sized(X, inputs, attrs["scale"], attrs, specs)

    def _sized(X: GraphTensor, inputs: dict[str, Any], scale: Any, attrs: dict[str, Any], specs: dict[str, Any]) -> GraphTensor:
        if any(inputs.get(slot) for slot in ("OutSize", "SizeTensor", "Scale")):
            raise NotLowered("a size in tensors")
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


# --------------------------------------------------------------------------------------------------------------- pools
def _averaging(source: int, target: int, element: Type) -> Node:
    """The matrix [target, source] of averages over adaptive windows along an axis."""
    rows, columns = _places(target, INT64)
    size, parts, one = (constant(number, INT64) for number in (source, target, 1))

    def start(row: Node) -> Node:
        return mapped("floordiv", mapped("mul", row, size), parts)

    def end(row: Node) -> Node:
        following = mapped("mul", mapped("add", row, one), size)
        return mapped("floordiv", mapped("add", following, constant(target - 1, INT64)), parts)

    first, last, column = start(rows), end(rows), columns(source)
    is_within = mapped("and", mapped("oge", column, first, element=BOOL), mapped("olt", column, last, element=BOOL), element=BOOL)
    share = mapped("reciprocal", mapped("convert", mapped("sub", last, first), element=element))
    return mapped("mul", mapped("convert", is_within, element=element), share)


def pooled_by_parts(X: GraphTensor, attrs: Mapping[str, Any]) -> GraphTensor:
    """Averages over adaptive windows of different sizes."""
    axes = _axes_of_parts(attrs)
    out, *_ = pool_geometry([X.shape[axis] for axis in axes], attrs)
    shape = list(X.shape)
    for axis, extent in zip(axes, out, strict=True):
        shape[axis] = extent
    return _resized(X, shape, axes, lambda axis: _averaging(X.shape[axis], shape[axis], X.node.element))


def pooled_by_parts_back(X: GraphTensor, gradient: GraphTensor, attrs: Mapping[str, Any]) -> GraphTensor:
    """The gradient of `pooled_by_parts`."""

    def matrix(axis: int) -> Node:
        return transposed(_averaging(X.shape[axis], gradient.shape[axis], X.node.element), (1, 0))

    return _resized(gradient, X.shape, _axes_of_parts(attrs), matrix)


def _axes_of_parts(attrs: Mapping[str, Any]) -> list[int]:
    if attrs["pooling_type"] == "max":
        raise NotLowered("maxima of windows of different sizes")
    return [1, 2] if attrs["data_format"] == "NHWC" else [2, 3]
