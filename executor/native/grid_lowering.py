"""Lowers the sampling of images at the places of a grid: each place gathers rows of channels, with their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product as combinations
from typing import Any

from .emitter import BOOL, DOUBLE, FLOAT, INT64, Type
from .graph import (
    GraphNode,
    Position,
    Rows,
    Scattered,
    broadcast_to,
    channels_first,
    channels_last,
    constant,
    mapped,
    plain,
    product,
    reshaped,
    sliced,
    transposed,
)
from .lowering import GraphTensor, NotLowered, element_of, lowers, number_like, only_floats

_Attrs = Mapping[str, Any]


def _with(formula: str, node: GraphNode, number: float, element: Type | None = None) -> GraphNode:
    """Apply a formula to a node and a number."""
    return mapped(formula, node, number_like(number, node), element=element)


def _choose(condition: GraphNode, node: GraphNode, alternative: GraphNode) -> GraphNode:
    """Select elements of a node where a condition holds, and of an alternative elsewhere."""
    return mapped("select", condition, node, alternative, element=node.element)


def _where_between(at: GraphNode, low: float, high: float) -> GraphNode:
    """Whether numbers lie between two, or are one of them."""
    return mapped("and", _with("oge", at, low, BOOL), _with("ole", at, high, BOOL), element=BOOL)


def _remainder(at: GraphNode, period: float) -> GraphNode:
    """Numbers from 0 on, modulo a period: the formula ``mod`` is for float32."""
    if at.element == FLOAT:
        return _with("mod", at, period)
    return mapped("sub", at, _with("mul", mapped("floor", _with("div", at, period)), period))


# ------------------------------------------------------------------------------------------------------------- sampling
def _places(coordinate: GraphNode, extent: int, attrs: _Attrs) -> tuple[GraphNode, GraphNode]:
    """The places of coordinates from -1 to 1 among `extent` elements, and the derivative by the coordinate."""
    aligned, last = attrs["align_corners"], extent - 1
    slope = last / 2 if aligned else extent / 2
    at = _with("sub", _with("mul", _with("add", coordinate, 1.0), slope), 0.0 if aligned else 0.5)
    slopes = broadcast_to(constant(slope, at.element), at.shape)
    if attrs["padding_mode"] == "reflection":
        edge = 0.0 if aligned else 0.5  # the distance from the outermost centres to the mirrors
        period = 2 * (last + 2 * edge)
        if not period:
            zeros = broadcast_to(constant(0.0, at.element), at.shape)
            return zeros, zeros
        shifted = _with("add", at, edge)
        beyond = _remainder(mapped("abs", shifted), period)
        is_mirrored = mapped("xor", _with("olt", shifted, 0.0, BOOL), _with("ogt", beyond, period / 2, BOOL), element=BOOL)
        slopes = _choose(is_mirrored, mapped("neg", slopes), slopes)
        mirrored = mapped("min", beyond, mapped("sub", constant(period, at.element), beyond))
        at = _with("sub", mirrored, edge)
    if attrs["padding_mode"] != "zeros":
        slopes = _choose(_where_between(at, 0.0, last), slopes, constant(0.0, at.element))
        at = _with("min", _with("max", at, 0.0), last)
    return at, slopes


def _corners(coordinate: GraphNode, extent: int, attrs: _Attrs, is_derivative: bool) -> list[tuple[GraphNode, GraphNode]]:
    """Along one axis: the elements around each place, and their weights, or the derivatives of these by the coordinate."""
    at, slopes = _places(coordinate, extent, attrs)
    if attrs["mode"] == "nearest":
        pairs = [(mapped("rint", at), broadcast_to(constant(float(not is_derivative), at.element), at.shape))]
    else:
        low = mapped("floor", at)
        above = mapped("sub", at, low)
        weights = (mapped("neg", slopes), slopes) if is_derivative else (mapped("sub", constant(1.0, at.element), above), above)
        pairs = [(low, weights[0]), (_with("add", low, 1.0), weights[1])]
    zero = constant(0.0, at.element)
    corners = []
    for element, weight in pairs:
        exists = _where_between(element, 0.0, extent - 1)
        corners.append((mapped("convert", _choose(exists, element, zero), element=INT64), _choose(exists, weight, zero)))
    return corners


def _taps(shape: Sequence[int], Grid: GraphTensor, attrs: _Attrs) -> list[tuple[GraphNode, GraphNode]]:
    """The elements of all images, counted row by row, that each place of the grid reads, and their weights: both [places, 1]."""
    images, _, height, width = shape
    column = Grid.node.size // 2, 1
    pairs = reshaped(plain(Grid.node), (column[0], 2))
    places = images, column[0] // images
    x, y = (reshaped(plain(sliced(pairs, 1, number, 1)), places) for number in range(2))
    rows = _corners(y, height, attrs, attrs.get("along_y", False))
    columns = _corners(x, width, attrs, attrs.get("along_x", False))
    firsts = reshaped(_with("mul", Position((images,), INT64), height * width), (images, 1))
    taps = []
    for (row, by_row), (place, by_column) in combinations(rows, columns):
        ids = mapped("add", mapped("add", _with("mul", row, width), place), firsts)
        taps.append((reshaped(ids, column), reshaped(mapped("mul", by_row, by_column), column)))
    return taps


@lowers("grid_gather")
def grid_gather(X: GraphTensor, Grid: GraphTensor, attrs: dict[str, Any]) -> GraphTensor:
    _only_one_type(X, Grid)
    images, channels, height, width = X.shape
    table = reshaped(plain(channels_last(X.node)), (images * height * width, channels))
    shape = Grid.node.size // 2, channels
    gathered = [
        mapped("mul", Rows(shape, table.element, table, ids, in_bounds=True), weight)
        for ids, weight in _taps(X.shape, Grid, attrs)
    ]
    total = reduce(lambda a, b: mapped("add", a, b), gathered)
    return GraphTensor(channels_first(reshaped(total, (images, *Grid.shape[1:3], channels))))


@lowers("grid_scatter")
def grid_scatter(Output: GraphTensor, Grid: GraphTensor, Like: GraphTensor, attrs: dict[str, Any]) -> GraphTensor:
    _only_one_type(Output, Grid)
    images, channels, height, width = Like.shape
    values = reshaped(plain(channels_last(Output.node)), (Grid.node.size // 2, channels))
    shape, taps = (images * height * width, channels), _taps(Like.shape, Grid, attrs)
    sums: list[GraphNode] = [
        Scattered(shape, values.element, mapped("mul", values, weight), ids, in_bounds=True) for ids, weight in taps
    ]
    total = reduce(lambda a, b: mapped("add", a, b), sums)
    return GraphTensor(channels_first(reshaped(total, (images, height, width, channels))))


def _only_one_type(image: GraphTensor, Grid: GraphTensor) -> None:
    only_floats(image, Grid)
    if image.node.element != Grid.node.element:
        raise NotLowered("a grid of another type than the images")


# ---------------------------------------------------------------------------------------------------------- affine grids
def _line(extent: int, is_aligned: bool, element: Type) -> GraphNode:
    """The coordinates of elements along an axis, from -1 to 1, [extent]."""
    last = (1.0 if is_aligned else (extent - 1) / extent) if extent > 1 else float(is_aligned)
    at = mapped("convert", Position((extent,), INT64), element=DOUBLE)
    line = _with("sub", _with("mul", at, 2 * last / max(extent - 1, 1)), last)
    return mapped("convert", line, element=element)


def _base(height: int, width: int, is_aligned: bool, element: Type) -> GraphNode:
    """The places (x, y, 1) of images of this size, [height, width, 3]."""
    number = reshaped(plain(mapped("convert", Position((3,), INT64), element=element)), (1, 1, 3))
    x = reshaped(plain(_line(width, is_aligned, element)), (1, width, 1))
    y = reshaped(plain(_line(height, is_aligned, element)), (height, 1, 1))
    y_or_one = _choose(_with("oeq", number, 1.0, BOOL), broadcast_to(y, (height, 1, 3)), constant(1.0, element))
    return _choose(_with("oeq", number, 0.0, BOOL), broadcast_to(x, (height, width, 3)), y_or_one)


@lowers("places_like")
def places_like(Like: GraphTensor, align_corners: bool, specs: dict[str, Any]) -> GraphTensor:
    shape = specs["Out"].shape
    return GraphTensor(broadcast_to(_base(shape[1], shape[2], align_corners, element_of(specs["Out"].dtype)), shape))


@lowers("affine_grid")
def affine_grid(Theta: GraphTensor, OutputShape: Any, align_corners: bool, specs: dict[str, Any]) -> GraphTensor:
    only_floats(Theta)
    if OutputShape is not None:
        raise NotLowered("sizes in tensors")
    shape = specs["Output"].shape
    places = shape[1] * shape[2]
    base = reshaped(plain(_base(shape[1], shape[2], align_corners, Theta.node.element)), (1, places, 3))
    return GraphTensor(reshaped(product(base, transposed(plain(Theta.node), (0, 2, 1))), shape))
