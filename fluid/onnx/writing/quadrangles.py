"""Cut quadrangles out of images and make them rectangular: the same steps as in the kernel, in float64."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from fluid.executor.kernels.roi import NEAR
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor
from .making import filled
from .regions import images_of_regions
from .shaping import add_rows


def _either(g: OnnxGraph, conditions: list[OnnxTensor], op: str = "Or") -> OnnxTensor:
    result = conditions[0]
    for condition in conditions[1:]:
        result = g.binary(op, result, condition)
    return result


def _both(g: OnnxGraph, *conditions: OnnxTensor) -> OnnxTensor:
    return _either(g, list(conditions), "And")


class _Quadrangles:
    """ROIs [R, 8], and the image elements that their rectangles read."""

    def __init__(self, g: OnnxGraph, ROIs: OnnxTensor, image: OnnxTensor, attrs: dict[str, Any]) -> None:
        if min(image.shape[1:]) < 0:
            raise NotExported("images whose size is known only at run time")
        self.g, self.image = g, image
        self.high, self.wide = attrs["transformed_height"], attrs["transformed_width"]
        self.regions, self.number = g.size(ROIs, 0), ROIs.sizes[0]
        scaled = g.cast(ROIs, VarType.FP64)
        scaled = g.binary("Mul", scaled, g.number(attrs["spatial_scale"], scaled))
        self.corners: list[tuple[Any, Any]] = [
            (g.slice(scaled, [1], [place], [place + 1]), g.slice(scaled, [1], [place + 1], [place + 2])) for place in (0, 2, 4, 6)
        ]  # each of x and y [R, 1]
        self.matrix = self._perspective()
        self.images = images_of_regions(g, ROIs, None)
        self.seen, self.taps = self._sources()

    def _perspective(self) -> list[Any]:
        """The nine numbers [R, 1] of matrices that map a rectangle to the quadrangles."""
        g = self.g
        lengths: list[Any] = []
        for (x, y), (next_x, next_y) in zip(self.corners, self.corners[1:] + self.corners[:1], strict=True):
            lengths.append(g.unary("Sqrt", (x - next_x) * (x - next_x) + (y - next_y) * (y - next_y)))
        rows = max(2, self.high) - 1
        ideal_width = (lengths[0] + lengths[2]) * float(rows) / (lengths[1] + lengths[3])
        columns: Any = g.unary("Floor", ideal_width + 0.5) + 1.0
        columns = g.binary("Min", g.binary("Max", columns, g.number(2, columns)), g.number(max(self.wide, 2), columns)) - 1.0
        (x1, y1), (x2, y2), (x3, y3), (x4, y4) = self.corners
        dx1, dy1, dx2, dy2 = x2 - x3, y2 - y3, x4 - x3, y4 - y3
        dx3, dy3 = x1 - x2 + x3 - x4, y1 - y2 + y3 - y4
        area = dx1 * dy2 - dx2 * dy1
        across, down = (dx3 * dy2 - dx2 * dy3) / area / columns, (dx1 * dy3 - dx3 * dy1) / area / float(rows)
        lines = []
        for first, second, fourth in ((x1, x2, x4), (y1, y2, y4)):
            lines += [(second - first) / columns + across * second, (fourth - first) / float(rows) + down * fourth, first]
        return [*lines, across, down, x1 * 0.0 + 1.0]

    def _contains(self, x: Any, y: Any) -> OnnxTensor:
        """A mask of the places [R, P] in the quadrangles, or on their outlines."""
        g = self.g
        crossings: Any = None
        outline = []
        for (x1, y1), (x2, y2) in zip(self.corners, self.corners[1:] + self.corners[:1], strict=True):
            low, high = g.binary("Min", y1, y2), g.binary("Max", y1, y2)
            is_level = high - low < NEAR
            between = _both(g, x > g.binary("Min", x1, x2) - NEAR, x < g.binary("Max", x1, x2) + NEAR)
            at = (y - y1) * (x2 - x1) / g.where(is_level, g.number(1, y1), y2 - y1) + x1
            on_edge = _both(g, g.unary("Abs", at - x) < NEAR, y > low - NEAR, y < high + NEAR)
            on_level = _both(g, g.unary("Abs", y - y1) < NEAR, between)
            steep = g.unary("Not", is_level)
            outline += [_both(g, is_level, on_level), _both(g, steep, on_edge)]
            crossed = g.cast(_both(g, steep, y > low + NEAR, y < high + NEAR, at > x + NEAR), VarType.INT32)
            crossings = crossed if crossings is None else g.binary("Add", crossings, crossed)
        odd = g.binary("Equal", g.binary("Mod", crossings, g.number(2, crossings)), g.number(1, crossings))
        return _either(g, [*outline, odd])

    def _sources(self) -> tuple[OnnxTensor, list[tuple[OnnxTensor, OnnxTensor]]]:
        """A mask of the places [R, P] in a quadrangle and the image; four elements, counted in a channel, and their weights."""
        g = self.g
        rows, columns = np.indices((self.high, self.wide)).reshape(2, 1, -1).astype("float64")
        lines = [self.matrix[3 * line : 3 * line + 3] for line in range(3)]
        x, y, depth = (a * g.constant(columns) + b * g.constant(rows) + c for a, b, c in lines)
        x, y = x / depth, y / depth
        is_visible, pairs = self._contains(x, y), []
        for at, extent in ((y, self.image.shape[2]), (x, self.image.shape[3])):
            is_visible = _both(g, is_visible, at > NEAR - 0.5, at < extent - 0.5 - NEAR)
            near = g.where(is_visible, at, g.number(0, at))
            near = g.binary("Max", g.binary("Min", near, g.number(extent - 1, near)), g.number(0, near))
            low: Any = g.unary("Floor", near)
            index, share = g.cast(low, VarType.INT64), near - low
            after = g.binary("Min", g.binary("Add", index, g.ints(1)), g.ints(extent - 1))
            pairs.append([(index, 1.0 - share), (after, share)])
        visibility = g.cast(is_visible, VarType.FP64)
        taps = []
        for (row, by_row), (column, by_column) in product(*pairs):
            element = g.binary("Add", g.binary("Mul", row, g.ints(self.image.shape[3])), column)
            taps.append((element, g.cast(by_row * by_column * visibility, self.image.dtype)))
        return is_visible, taps

    def elements(self) -> list[tuple[OnnxTensor, OnnxTensor]]:
        """Elements of all images [R, C, P], and weights [R, 1, P]."""
        g, (channels, high, wide) = self.g, self.image.shape[1:]
        image = g.binary("Mul", self.images, g.ints(channels * high * wide))
        first = g.binary("Add", g.unsqueeze(image, 1, 2), g.constant(np.arange(channels).reshape(-1, 1) * high * wide))
        return [(g.binary("Add", first, g.unsqueeze(index, 1)), g.unsqueeze(weight, 1)) for index, weight in self.taps]

    def shaped(self, x: OnnxTensor, channels: int) -> OnnxTensor:
        """Reshape [R, channels, P] to [R, channels, transformed_height, transformed_width]."""
        sizes = (channels, self.high, self.wide)
        return self.g.reshape(x, [self.regions, *sizes], (self.number, *sizes))


@exports("roi_perspective_transform")
def roi_perspective_transform(
    g: OnnxGraph, X: OnnxTensor, ROIs: OnnxTensor, attrs: dict[str, Any], specs: Any
) -> dict[str, OnnxTensor]:
    quadrangles = _Quadrangles(g, ROIs, X, attrs)
    flat = g.reshape(X, [-1], (-1,))
    channels, places = X.shape[1], quadrangles.high * quadrangles.wide
    weight_shape = g.joined_sizes([quadrangles.regions, channels, places, 1])
    total: OnnxTensor | None = None
    numbers, weights = [], []
    for index, weight in quadrangles.elements():
        part = g.binary("Mul", g.gather(flat, index), weight)
        total = part if total is None else g.binary("Add", total, part)
        numbers.append(g.unsqueeze(index, 3))
        weights.append(g.expand(g.unsqueeze(weight, 3), weight_shape, (quadrangles.number, channels, places, 1)))
    assert total is not None
    results = {
        "Out": quadrangles.shaped(total, channels),
        "Mask": quadrangles.shaped(quadrangles.seen, 1),
        "TransformMatrix": g.concat(quadrangles.matrix, 1),
        "Out2InIdx": g.reshape(g.concat(numbers, 3), [-1, 4], (-1, 4)),
        "Out2InWeights": g.reshape(g.concat(weights, 3), [-1, 4], (-1, 4)),
    }
    return {slot: g.cast(value, specs[slot].dtype) for slot, value in results.items() if specs.get(slot) is not None}


@exports("straightened_back")
def straightened_back(g: OnnxGraph, Out: OnnxTensor, ROIs: OnnxTensor, Like: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    quadrangles = _Quadrangles(g, ROIs, Like, attrs)
    channels, places = Like.shape[1], quadrangles.high * quadrangles.wide
    values = g.reshape(Out, [quadrangles.regions, channels, places], (quadrangles.number, channels, places))
    flat = filled(g, g.as_size(g.product_of(g.sizes_of(Like))), 0, Spec((-1,), Out.dtype))
    for index, weight in quadrangles.elements():
        part = g.binary("Mul", values, weight)
        flat = add_rows(g, flat, g.reshape(index, [-1], (-1,)), g.reshape(part, [-1], (-1,)))
    return g.reshape_as(flat, Like)
