"""Write pooling of image regions with shifted parts."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from fluid.executor.kernels.roi import shared_parts
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor
from .making import filled
from .regions import images_of_regions, rounded
from .shaping import add_rows


def _spread(g: OnnxGraph, ROIs: OnnxTensor, dtype: VarType, attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The start and the size of each region along y and x, [R, 1, 1, 1]."""
    edges: Any = g.unsqueeze(rounded(g, g.cast(ROIs, dtype)), 2, 3)
    left, top, right, bottom = (g.slice(edges, [1], [place], [place + 1]) for place in range(4))
    scale = g.number(attrs["spatial_scale"], edges)
    spans = []
    for first, last in ((top, bottom), (left, right)):
        start = g.binary("Mul", first, scale)
        end = g.binary("Mul", g.binary("Add", last, g.number(1, last)), scale)
        size = g.binary("Max", g.binary("Sub", end, start), g.number(0.1, end))
        spans.append((g.binary("Sub", start, g.number(0.5, start)), size))
    return spans


def _places_of_parts(attrs: dict[str, Any], sizes: tuple[int, ...], name: str) -> Any:
    """The cell of the grid `name` that each part belongs to, in order."""
    rows, columns = (np.array(shared_parts(*pair)) for pair in zip(attrs[name], sizes, strict=True))
    return (rows[:, None] * attrs[name][1] + columns).reshape(-1)


class _PartPoints:
    """The sampling points of parts: four elements around each, counted in all images, and their weights."""

    def __init__(self, g: OnnxGraph, image: OnnxTensor, ROIs: OnnxTensor, Trans: OnnxTensor, attrs: dict[str, Any]) -> None:
        if min(image.shape[1:]) < 0 or (not attrs["no_trans"] and Trans.shape[1] < 0):
            raise NotExported("images whose size is known only at run time")
        self.g, self.image, self.dtype, self.attrs = g, image, image.dtype, attrs
        self.pooled = attrs["pooled_height"], attrs["pooled_width"]
        self.classes = 1 if attrs["no_trans"] else Trans.shape[1] // 2
        self.shape = (ROIs.sizes[0], self.classes, attrs["output_dim"] // self.classes, self.pooled[0] * self.pooled[1])
        self.sizes = [g.size(ROIs, 0), *self.shape[1:]]
        is_inside, self.taps = self._taps(ROIs, None if attrs["no_trans"] else self._shifts(Trans))
        self.is_inside = g.unsqueeze(g.cast(is_inside, self.dtype), 2)
        self.count = g.reduce("ReduceSum", self.is_inside, [4])  # [R, classes, 1, parts]
        self.first = self._first(ROIs)

    def _shifts(self, Trans: OnnxTensor) -> OnnxTensor:
        """The shifts of each part to the right and down, [R, classes, 2, parts, 1]."""
        g, cells = self.g, Trans.shape[2] * Trans.shape[3]
        by_class = g.reshape(Trans, [g.size(Trans, 0), self.classes, 2, cells], (Trans.sizes[0], self.classes, 2, cells))
        cells_of_parts = _places_of_parts(self.attrs, self.pooled, "part_size")
        return g.unsqueeze(g.gather(by_class, g.constant(cells_of_parts), 3), 4)

    def _taps(self, ROIs: OnnxTensor, shifts: OnnxTensor | None) -> tuple[OnnxTensor, list[tuple[OnnxTensor, OnnxTensor]]]:
        """A mask of the points in the image; each point's elements, counted in a channel, and weights, [R, classes, parts,
        points].
        """
        g, kind, count = self.g, self.dtype.numpy, self.attrs["sample_per_part"]
        parts, points = np.indices(self.pooled).reshape(2, 1, 1, -1, 1), np.indices((count, count)).reshape(2, 1, 1, 1, -1)
        within, pairs = [], []
        for axis, (start, size) in enumerate(_spread(g, ROIs, self.dtype, self.attrs)):
            extent = self.image.shape[2 + axis]
            part = g.binary("Mul", g.constant(parts[axis].astype(kind)), g.binary("Div", size, g.number(self.pooled[axis], size)))
            share = g.binary("Div", size, g.number(self.pooled[axis] * count, size))
            at = g.binary("Add", part, start)
            at = g.binary("Add", at, g.binary("Mul", g.constant(points[axis].astype(kind)), share))
            if shifts is not None:
                far = g.binary("Mul", size, g.number(self.attrs["trans_std"], size))
                shift = g.squeeze(g.slice(shifts, [2], [1 - axis], [2 - axis]), 2)
                at = g.binary("Add", at, g.binary("Mul", shift, far))
            within.append(g.binary("GreaterOrEqual", at, g.number(-0.5, at)))
            within.append(g.binary("LessOrEqual", at, g.number(extent - 0.5, at)))
            pairs.append(self._elements(at, extent, self.attrs.get(("along_y", "along_x")[axis], False)))
        is_inside = within[0]
        for condition in within[1:]:
            is_inside = g.binary("And", is_inside, condition)
        width = g.ints(self.image.shape[3])
        return is_inside, [
            (g.binary("Add", g.binary("Mul", row, width), column), g.binary("Mul", by_row, by_column))
            for (row, by_row), (column, by_column) in product(*pairs)
        ]

    def _elements(self, at: OnnxTensor, extent: int, derivative: bool) -> list[tuple[OnnxTensor, OnnxTensor]]:
        """The two elements around each point along one axis, and their weights or the derivatives of the weights."""
        g = self.g
        zero, last = g.number(0, at), g.number(extent - 1, at)
        near = g.binary("Max", g.binary("Min", at, last), zero)
        low = g.unary("Floor", near)
        if derivative:
            moves = g.binary("And", g.binary("Greater", at, zero), g.binary("Less", at, last))
            above = g.cast(moves, at.dtype)
            below = g.unary("Neg", above)
        else:
            above = g.binary("Sub", near, low)
            below = g.binary("Sub", g.number(1, above), above)
        index = g.cast(low, VarType.INT64)
        return [(index, below), (g.binary("Min", g.binary("Add", index, g.ints(1)), g.ints(extent - 1)), above)]

    def _first(self, ROIs: OnnxTensor) -> OnnxTensor:
        """The first element of the channel that a part reads, [R, classes, channels, parts, 1]."""
        g, (channels, high, wide) = self.g, self.image.shape[1:]
        groups = self.attrs["group_size"][0] * self.attrs["group_size"][1]
        group = _places_of_parts(self.attrs, self.pooled, "group_size")
        channel = np.arange(self.attrs["output_dim"])[:, None] * groups + group
        image = g.binary("Mul", images_of_regions(g, ROIs, None), g.ints(channels * high * wide))
        first = g.constant(channel.reshape(*self.shape[1:], 1) * high * wide)
        return g.binary("Add", g.unsqueeze(image, 1, 2, 3, 4), first)

    def elements(self) -> list[tuple[OnnxTensor, OnnxTensor]]:
        """Elements of all images [R, classes, channels, parts, points], and weights that are 0 outside the image."""
        g = self.g
        return [
            (g.binary("Add", self.first, g.unsqueeze(index, 2)), g.binary("Mul", g.unsqueeze(weight, 2), self.is_inside))
            for index, weight in self.taps
        ]

    def mean(self, total: OnnxTensor) -> OnnxTensor:
        """Divide sums over the points of a part by the number of points in the image."""
        g = self.g
        return g.binary("Div", total, g.binary("Max", self.count, g.number(1, self.count)))

    def as_parts(self, x: OnnxTensor) -> OnnxTensor:
        """Reshape [R, classes, channels, parts] to [R, output_dim, pooled_height, pooled_width]."""
        expanded = self.g.expand(x, self.g.joined_sizes(self.sizes), self.shape)
        sizes = (self.attrs["output_dim"], *self.pooled)
        return self.g.reshape(expanded, [self.sizes[0], *sizes], (self.shape[0], *sizes))


def _means(points: _PartPoints) -> OnnxTensor:
    g = points.g
    flat = g.reshape(points.image, [-1], (-1,))
    total: OnnxTensor | None = None
    for index, weight in points.elements():
        part = g.binary("Mul", g.gather(flat, index), weight)
        total = part if total is None else g.binary("Add", total, part)
    assert total is not None
    return points.as_parts(points.mean(g.reduce("ReduceSum", total, [4])))


@exports("deformable_psroi_pooling")
def deformable_psroi_pooling(
    g: OnnxGraph, Input: OnnxTensor, ROIs: OnnxTensor, Trans: OnnxTensor, attrs: dict[str, Any]
) -> dict[str, OnnxTensor]:
    points = _PartPoints(g, Input, ROIs, Trans, attrs)
    return {"TopCount": points.as_parts(points.count), "Output": _means(points)}


@exports("moved_parts")
def moved_parts(g: OnnxGraph, Input: OnnxTensor, ROIs: OnnxTensor, Trans: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    return _means(_PartPoints(g, Input, ROIs, Trans, attrs))


@exports("moved_parts_back")
def moved_parts_back(
    g: OnnxGraph, Output: OnnxTensor, ROIs: OnnxTensor, Trans: OnnxTensor, Like: OnnxTensor, attrs: dict[str, Any]
) -> OnnxTensor:
    points = _PartPoints(g, Like, ROIs, Trans, attrs)
    share = g.unsqueeze(points.mean(g.reshape(Output, points.sizes, points.shape)), 4)
    flat = filled(g, g.as_size(g.product_of(g.sizes_of(Like))), 0, Spec((-1,), Output.dtype))
    for index, weight in points.elements():
        part = g.binary("Mul", share, weight)
        flat = add_rows(g, flat, g.reshape(index, [-1], (-1,)), g.reshape(part, [-1], (-1,)))
    return g.reshape_as(flat, Like)


# ---------------------------------------------------------------------------------------------------------------- shifts
def _factor(g: OnnxGraph, ROIs: OnnxTensor, dtype: VarType, attrs: dict[str, Any]) -> tuple[OnnxTensor, int]:
    """The distance that a Trans of 1 shifts the parts of each region, [R, 1, 1, 1], and the channel of Trans."""
    (_, height), (_, width) = _spread(g, ROIs, dtype, attrs)
    size, channel = (width, 0) if attrs["along"] == "along_x" else (height, 1)
    return g.binary("Mul", size, g.number(attrs["trans_std"], size)), channel


def _by_class(g: OnnxGraph, x: OnnxTensor, classes: int) -> OnnxTensor:
    """Reshape [R, classes * n, h, w] to [R, classes, n, h * w]."""
    sizes = (classes, x.shape[1] // classes, x.shape[2] * x.shape[3])
    return g.reshape(x, [g.size(x, 0), *sizes], (x.sizes[0], *sizes))


@exports("sum_of_shifts")
def sum_of_shifts(g: OnnxGraph, X: OnnxTensor, ROIs: OnnxTensor, Like: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    if min(*X.shape[1:], *Like.shape[1:]) < 0:
        raise NotExported("numbers of parts that are known only at run time")
    factor, channel = _factor(g, ROIs, X.dtype, attrs)
    cells_of_parts = _places_of_parts(attrs, X.shape[2:], "part_size")
    chosen = cells_of_parts[:, None] == np.arange(attrs["part_size"][0] * attrs["part_size"][1])
    moved = g.reduce("ReduceSum", _by_class(g, g.binary("Mul", X, factor), Like.shape[1] // 2), [2], keep=True)
    sums = g.matmul(moved, g.constant(chosen.astype(X.dtype.numpy)))
    zeros = g.binary("Mul", sums, g.number(0, sums))
    return g.reshape_as(g.concat([zeros, sums] if channel else [sums, zeros], 2), Like)


@exports("shift_of_parts")
def shift_of_parts(g: OnnxGraph, Out: OnnxTensor, ROIs: OnnxTensor, Like: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    if min(*Out.shape[1:], *Like.shape[1:]) < 0:
        raise NotExported("numbers of parts that are known only at run time")
    factor, channel = _factor(g, ROIs, Out.dtype, attrs)
    classes = Out.shape[1] // 2
    cells_of_parts = g.constant(_places_of_parts(attrs, Like.shape[2:], "part_size"))
    moved = g.gather(g.slice(_by_class(g, Out, classes), [2], [channel], [channel + 1]), cells_of_parts, 3)
    moved = g.binary("Mul", moved, factor)
    sizes = (classes, Like.shape[1] // classes, len(cells_of_parts.value))
    expanded = g.expand(moved, g.joined_sizes([g.size(Out, 0), *sizes]), (Out.sizes[0], *sizes))
    return g.reshape_as(expanded, Like)
