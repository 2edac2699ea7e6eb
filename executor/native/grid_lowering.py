"""Lowers the sampling of images at the places of a grid: each place gathers rows of channels, with their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod
from typing import Any

from .emitter import BOOL, DOUBLE, FLOAT, INT32, INT64, Type
from .graph import (
    ChannelsFirst,
    GraphNode,
    Joined,
    Position,
    Rows,
    Scattered,
    broadcast_to,
    channels_first,
    channels_last,
    constant,
    contiguous,
    joined,
    mapped,
    plain,
    product,
    put_within,
    reduced,
    reshaped,
    sliced,
    summed,
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
    at = _with("mul", _with("add", coordinate, 1.0), slope)
    at = at if aligned else _with("sub", at, 0.5)
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


def _corners(coordinate: GraphNode, extent: int, attrs: _Attrs) -> list[tuple[GraphNode, tuple[GraphNode, GraphNode]]]:
    """Along one axis: the elements around each place, each with its weight and the derivative of this by the coordinate."""
    at, slopes = _places(coordinate, extent, attrs)
    zero, one = constant(0.0, at.element), constant(1.0, at.element)
    if attrs["mode"] == "nearest":
        weights = [(mapped("rint", at), broadcast_to(one, at.shape), broadcast_to(zero, at.shape))]
    else:
        low = mapped("floor", at)
        above = mapped("sub", at, low)
        weights = [(low, mapped("sub", one, above), mapped("neg", slopes)), (_with("add", low, 1.0), above, slopes)]
    corners = []
    for element, weight, derivative in weights:
        exists = _where_between(element, 0.0, extent - 1)
        number = mapped("convert", _choose(exists, element, zero), element=INT32)
        corners.append((number, (_choose(exists, weight, zero), _choose(exists, derivative, zero))))
    return corners


def _store(parts: Sequence[GraphNode]) -> GraphNode:
    """Join nodes of one shape along a new first axis. All of them are in memory before a reader runs."""
    return joined([reshaped(part, (1, *part.shape)) for part in parts], 0)


@dataclass(frozen=True)
class _Pixels:
    """The layout of images and of values at the places of a grid: rows of channels. Each place reads rows.

    Attributes:
        shape: of the images, [N, C, H, W].
        extents: of the grid.
    """

    shape: Sequence[int]
    extents: Sequence[int]
    channel_axis = 1
    """The axis of channels of values at places."""

    @property
    def image_size(self) -> int:
        """The distance of two images, in rows."""
        return prod(self.shape[2:])

    def gathered(self, images: GraphNode, ids: Sequence[GraphNode]) -> list[GraphNode]:
        """Take the values at pixels, for each set of places in `ids`."""
        table, channels = self.values(images), self.shape[1]
        return [Rows((part.size, channels), table.element, table, reshaped(part, (part.size, 1)), in_bounds=True) for part in ids]

    def of_places(self, numbers: GraphNode) -> GraphNode:
        """Reshape a number for each place, [images, places], so that it broadcasts over channels."""
        return reshaped(numbers, (numbers.size, 1))

    def values(self, images: GraphNode) -> GraphNode:
        """Lay out images as values at places."""
        return reshaped(_store([channels_last(images)]), (images.size // images.shape[1], images.shape[1]))

    def images(self, values: GraphNode) -> GraphNode:
        """Lay out values at places as images."""
        return channels_first(reshaped(values, (self.shape[0], *self.extents, self.shape[1])))


class _Lines(_Pixels):
    """The layout for few channels: lines of each channel, [N, H, C, W]. Neighbouring places fill vectors."""

    channel_axis = 2

    @property
    def image_size(self) -> int:
        return prod(self.shape[1:])

    def gathered(self, images: GraphNode, ids: Sequence[GraphNode]) -> list[GraphNode]:
        count, channels, height, width = self.shape
        table, results = reshaped(plain(images), (images.size, 1)), []
        planes = reshaped(mapped("copy", _with("mul", Position((channels,), INT32), height * width)), (1, 1, channels, 1))
        for part in ids:
            shape = count, self.extents[0], channels, self.extents[1]
            elements = reshaped(mapped("add", planes, broadcast_to(self.of_places(part), shape)), (prod(shape), 1))
            results.append(reshaped(Rows(elements.shape, table.element, table, elements, in_bounds=True), shape))
        return results

    def of_places(self, numbers: GraphNode) -> GraphNode:
        return reshaped(numbers, (self.shape[0], self.extents[0], 1, self.extents[1]))

    def values(self, images: GraphNode) -> GraphNode:
        return transposed(plain(images), (0, 2, 1, 3))

    def images(self, values: GraphNode) -> GraphNode:
        shape = *self.shape[:2], *self.extents
        lines = mapped("copy", values)
        result = Joined(shape, lines.element, (lines,))
        image, plane, line, element = contiguous(shape)
        put_within(lines, result, 0, (image, line, plane, element))
        return result


_FEW_CHANNELS = 8
"""The most channels of images that are sampled as lines."""


def _choose_layout(images: GraphNode, Grid: GraphTensor) -> _Pixels:
    """Choose the layout of images that a grid samples."""
    is_few = 1 < images.shape[1] <= _FEW_CHANNELS and not isinstance(images, ChannelsFirst)
    return (_Lines if is_few else _Pixels)(images.shape, Grid.shape[1:3])


class _Taps:
    """The elements around each place of a grid.

    Attributes:
        ids: for each corner around the places, the numbers of the elements there, [images, places].
    """

    def __init__(self, layout: _Pixels, Grid: GraphTensor, attrs: _Attrs) -> None:
        images, _, height, width = layout.shape
        if prod(layout.shape) >= 1 << 31:
            raise NotLowered("images whose elements have numbers of more than 31 bits")
        places = Grid.node.size // 2 // images
        pairs = reshaped(plain(Grid.node), (images * places, 2))
        x, y = (reshaped(sliced(pairs, 1, number, 1), (images, places)) for number in range(2))
        rows, columns = _corners(y, height, attrs), _corners(x, width, attrs)
        self._corners = [*combinations((weights for _, weights in rows), (weights for _, weights in columns))]
        self._shape = x.shape
        starts = [_with("mul", row, width) for row, _ in rows]
        if images > 1:
            firsts = reshaped(_with("mul", Position((images,), INT32), layout.image_size), (images, 1))
            starts = [mapped("add", start, firsts) for start in starts]
        self.ids = self._store_parts([mapped("add", start, column) for start, (column, _) in combinations(starts, columns)])

    def weights(self, along_y: bool = False, along_x: bool = False) -> list[GraphNode]:
        """The weight of each corner, [images, places], or its derivative along y, along x, or both."""
        return self._store_parts([mapped("mul", of_row[along_y], of_column[along_x]) for of_row, of_column in self._corners])

    def _store_parts(self, nodes: Sequence[GraphNode]) -> list[GraphNode]:
        """Store the nodes of all corners before kernels gather."""
        stored = _store(nodes)
        return [reshaped(sliced(stored, 0, number, 1), self._shape) for number in range(len(nodes))]


@lowers("grid_gather")
def grid_gather(X: GraphTensor, Grid: GraphTensor, attrs: dict[str, Any]) -> GraphTensor:
    _only_one_type(X, Grid)
    layout = _choose_layout(X.node, Grid)
    taps = _Taps(layout, Grid, attrs)
    weights = taps.weights(attrs.get("along_y", False), attrs.get("along_x", False))
    total = summed(
        mapped("mul", values, layout.of_places(weight))
        for values, weight in zip(layout.gathered(X.node, taps.ids), weights, strict=True)
    )
    return GraphTensor(layout.images(total))


@lowers("grid_scatter")
def grid_scatter(Output: GraphTensor, Grid: GraphTensor, Like: GraphTensor, attrs: dict[str, Any]) -> GraphTensor:
    _only_one_type(Output, Grid)
    layout = _Pixels(Like.shape, Like.shape[2:])
    taps, values = _Taps(layout, Grid, attrs), layout.values(Output.node)
    weights = taps.weights(attrs.get("along_y", False), attrs.get("along_x", False))
    ids = joined([layout.of_places(part) for part in taps.ids], 0)
    rows = joined([mapped("mul", values, layout.of_places(weight)) for weight in weights], 0)
    shape = prod(Like.shape) // Like.shape[1], Like.shape[1]
    return GraphTensor(layout.images(Scattered(shape, values.element, rows, ids, in_bounds=True)))


@lowers("grid_sampler_grad")
def grid_sampler_grad(
    X: GraphTensor, Grid: GraphTensor, dOutput: GraphTensor, attrs: dict[str, Any], wanted: set[str]
) -> dict[str, GraphTensor]:
    """The gradient of the grid follows, along both axes, from products of the gradient with the elements at each corner."""
    results = {}
    if "X@GRAD" in wanted:
        results["X@GRAD"] = grid_scatter(dOutput, Grid, X, attrs)
    if "Grid@GRAD" in wanted:
        _only_one_type(X, Grid)
        layout = _choose_layout(X.node, Grid)
        taps, gradient, parts = _Taps(layout, Grid, attrs), layout.values(dOutput.node), []
        at_corners = layout.gathered(X.node, taps.ids)
        slopes = [reduced("sum", mapped("mul", values, gradient), [layout.channel_axis]) for values in at_corners]
        for weights in (taps.weights(along_x=True), taps.weights(along_y=True)):
            pairs = zip(slopes, weights, strict=True)
            along = summed(mapped("mul", reshaped(slope, weight.shape), weight) for slope, weight in pairs)
            parts.append(reshaped(along, (*Grid.shape[:-1], 1)))
        results["Grid@GRAD"] = GraphTensor(joined(parts, Grid.ndim - 1))
    return results


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
