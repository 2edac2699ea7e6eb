"""Sample images at points between their elements."""

from __future__ import annotations

from itertools import product
from typing import Any

from ...errors import FormatError
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names of modes in opset 16 -> names in opset 20."""
_CUBIC = -0.75


@imports("GridSample")
def grid_sample(b: Builder, node: OnnxNode) -> Any:
    x, grid = node[0], node[1]
    mode, padding, aligned = (
        node.string("mode", "linear"),
        node.string("padding_mode", "zeros"),
        bool(node.int("align_corners", 0)),
    )
    mode = _MODES.get(mode, mode)
    if mode not in ("linear", "nearest", "cubic") or padding not in ("zeros", "border", "reflection"):
        raise FormatError(f"its mode {mode!r} or its padding_mode {padding!r} is none that ONNX has")
    if x.ndim == 4 and mode != "cubic":
        plain = "bilinear" if mode == "linear" else mode
        return b.f.grid_sampler(x, grid, mode=plain, padding_mode=padding, align_corners=aligned)
    count = x.ndim - 2
    if count < 1 or -1 in x.shape[1:] or grid.ndim != x.ndim:
        raise FormatError("images whose channels or sizes are known only at run time are not supported")
    axes = [_GridAxis(b, grid, count - 1 - axis, x.shape[2 + axis], mode, padding, aligned) for axis in range(count)]
    image = b.f.flatten_contiguous_range(x, start_axis=2, stop_axis=x.ndim - 1)
    total: Any = None
    for taps in product(*(axis.taps() for axis in axes)):
        place, weight = None, None
        for axis, (element, share) in zip(axes, taps, strict=True):
            place = element if place is None else b.f.elementwise_add(b.f.scale(place, scale=float(axis.size)), element)
            weight = share if weight is None else b.f.elementwise_mul(weight, share)
        index = b.cast(b.f.flatten_contiguous_range(place, start_axis=1, stop_axis=count), VarType.INT64)
        index = b.f.expand_v2(b.unsqueeze(index, [1]), shape=[-1, x.shape[1], -1])
        weight = b.unsqueeze(b.f.flatten_contiguous_range(weight, start_axis=1, stop_axis=count), [1])
        part = b.f.elementwise_mul(b.f.take_along_axis(image, index, Axis=2), weight)
        total = part if total is None else b.f.elementwise_add(total, part)
    sizes = [b.size_of(grid, axis) for axis in range(1, 1 + count)]
    return b.reshape(total, [0, 0, *sizes])


class _GridAxis:
    """The coordinates of a grid along one axis of an image."""

    def __init__(self, b: Builder, grid: Any, number: int, size: int, mode: str, padding: str, aligned: bool) -> None:
        self.b, self.size, self.mode, self.padding = b, size, mode, padding
        self.low = 0.0 if aligned else -0.5
        at = b.squeeze(b.slice(grid, grid.ndim - 1, number, number + 1), [grid.ndim - 1])
        slope = (size - 1) / 2 if aligned else size / 2
        at = b.f.scale(at, scale=slope, bias=slope if aligned else slope - 0.5)
        if mode == "nearest":
            at = b.f.rint(at)
        if padding == "border" and mode != "cubic":  # cubic clips its elements one by one, as torch does
            at = b.f.clip(at, min=0.0, max=float(size - 1))
        elif padding == "reflection" and mode != "cubic":
            at = self._reflected(at)
        self.at = at

    def _reflected(self, at: Any) -> Any:
        """Reflect places beyond the ends, as often as needed."""
        b, span = self.b, self.size - 1 - 2 * self.low
        if span <= 0:
            return b.f.scale(at, scale=0.0)
        away = b.f.abs(b.f.scale(at, scale=1.0, bias=-self.low))
        turns = b.f.floor(b.f.scale(away, scale=1 / (2 * span)))
        folded = b.f.elementwise_sub(away, b.f.scale(turns, scale=2 * span))
        return b.f.scale(b.f.elementwise_min(folded, b.f.scale(folded, scale=-1.0, bias=2 * span)), scale=1.0, bias=self.low)

    def taps(self) -> list[tuple[Any, Any]]:
        """The elements read at each place, as floats, and their weights."""
        b = self.b
        if self.mode == "nearest":
            return [self._bounded(self.at, None)]
        floor = b.f.floor(self.at)
        share = b.f.elementwise_sub(self.at, floor)
        if self.mode == "linear":
            steps: tuple[int, ...] = (0, 1)
            weights = [b.f.scale(share, scale=-1.0, bias=1.0), share]
        else:
            distances = [
                b.f.scale(share, scale=sign, bias=bias) for sign, bias in ((1.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (-1.0, 2.0))
            ]
            weights = [_cubic(b, distance, far) for distance, far in zip(distances, (True, False, False, True), strict=True)]
            steps = (-1, 0, 1, 2)
        return [self._bounded(b.f.scale(floor, scale=1.0, bias=float(step)), w) for step, w in zip(steps, weights, strict=True)]

    def _bounded(self, element: Any, weight: Any) -> tuple[Any, Any]:
        """Clip an element's place to the image; with the padding "zeros", the weight outside is 0."""
        b, most = self.b, float(self.size - 1)
        if self.padding == "reflection":
            element = self._reflected(element)
        bounded = b.f.clip(element, min=0.0, max=most)
        is_inside = b.cast(b.f.equal(bounded, element), element.dtype)
        if self.padding != "zeros":
            return bounded, b.f.fill_any_like(is_inside, value=1.0) if weight is None else weight
        return bounded, is_inside if weight is None else b.f.elementwise_mul(weight, is_inside)


def _cubic(b: Builder, x: Any, far: bool) -> Any:
    """The weight of an element at a distance up to 1, or from 1 to 2: Keys' cubic convolution."""
    a = _CUBIC
    factors = (a, -5 * a, 8 * a, -4 * a) if far else (a + 2, -(a + 3), 0.0, 1.0)
    result = b.f.scale(x, scale=factors[0], bias=factors[1])
    for factor in factors[2:]:
        result = b.f.scale(b.f.elementwise_mul(result, x), scale=1.0, bias=factor)
    return result
