"""Write pooling of image regions: weights of an image's rows and columns for each part of each region."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size
from .making import as_vector, filled
from .sequence_rows import ids_of, lengths_of_rows
from .shaping import add_rows, positions


def images_of_regions(g: OnnxGraph, ROIs: OnnxTensor, RoisNum: OnnxTensor | None) -> OnnxTensor:
    """The number of the image of each region."""
    counts = lengths_of_rows(ROIs) if RoisNum is None else as_vector(g, RoisNum)
    return ids_of(g, counts, g.size(ROIs, 0))


def rounded(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    """Round to the nearest integer, halves away from zero."""
    half = g.number(0.5, x)
    return g.binary("Mul", g.unary("Sign", x), g.unary("Floor", g.binary("Add", g.unary("Abs", x), half)))


class _RegionAxis:
    """The edges of regions along an axis, [R, 1, 1], and arithmetic with them."""

    def __init__(self, g: OnnxGraph, rois: OnnxTensor, dtype: VarType, axis: int, extent: Size, attrs: dict[str, Any]) -> None:
        self.g, self.extent, self.attrs, self.axis = g, extent, attrs, axis
        boxes = g.cast(rois, dtype)
        self.first, self.last = (g.unsqueeze(g.slice(boxes, [1], [place], [place + 1]), 2) for place in (axis, axis + 2))
        self.dtype = dtype
        self.parts = attrs["pooled_width"] if axis == 0 else attrs["pooled_height"]
        self.scale = attrs["spatial_scale"]
        self.part = g.constant(np.arange(self.parts).reshape(1, -1, 1), dtype)
        self.element = g.cast(positions(g, extent, 2, 3), dtype)

    def do(self, op: str, x: Any, y: Any) -> OnnxTensor:
        """Append a node of two operands; one of them may be a number."""
        like = x if isinstance(x, OnnxTensor) else y
        x, y = (operand if isinstance(operand, OnnxTensor) else self.g.number(operand, like) for operand in (x, y))
        return self.g.binary(op, x, y)

    def most(self) -> OnnxTensor:
        """The size of the image, as a number."""
        if isinstance(self.extent, int):
            return self.g.constant(np.array(self.extent), self.dtype)
        return self.g.reshape(self.g.cast(self.extent, self.dtype), [])

    def sampled(self) -> OnnxTensor:
        """The sampling weights [R, parts, extent] of `roi_align`."""
        g, do, aligned = self.g, self.do, self.attrs["aligned"]
        start, end = (do("Sub", do("Mul", edge, self.scale), 0.5 if aligned else 0.0) for edge in (self.first, self.last))
        size = do("Sub", end, start)
        step = do("Div", size if aligned else do("Max", size, 1.0), float(self.parts))
        ratio = self.attrs["sampling_ratio"]
        samples: Size
        if ratio > 0:
            samples, counts = ratio, g.number(ratio, step)
        else:
            counts = g.unary("Ceil", step)  # 0 where a region has no size
            samples = g.cast(g.reduce("ReduceMax", g.reshape(counts, [-1], (-1,)), [0], keep=True), VarType.INT64)
            counts = g.unsqueeze(counts, 3)
        number = g.cast(positions(g, samples, 2, 4), self.dtype)
        start, step, part = (g.unsqueeze(part, 3) for part in (start, step, self.part))
        among = do("Div", do("Mul", do("Add", number, 0.5), step), do("Max", counts, 1.0))
        at = do("Add", do("Add", start, do("Mul", part, step)), among)
        is_inside = g.binary("And", do("GreaterOrEqual", at, -1.0), do("LessOrEqual", at, self.most()))
        is_inside = g.binary("And", is_inside, do("Less", number, counts))
        share = do("Div", g.cast(is_inside, self.dtype), do("Max", counts, 1.0))
        at = do("Min", do("Max", at, 0.0), do("Sub", self.most(), 1.0))
        distance = g.unary("Abs", do("Sub", at, g.unsqueeze(self.element, 2)))
        near = do("Max", do("Sub", 1.0, distance), 0.0)
        return g.reduce("ReduceSum", do("Mul", share, near), [2])

    def uniform(self) -> OnnxTensor:
        """The weights of `psroi_pool`, which averages elements."""
        g, do = self.g, self.do

        start = do("Mul", rounded(g, self.first), self.scale)
        end = do("Mul", do("Add", rounded(g, self.last), 1.0), self.scale)
        step = do("Div", do("Max", do("Sub", end, start), 0.1), float(self.parts))

        def bound(op: str, part: OnnxTensor) -> OnnxTensor:
            return do("Min", do("Max", g.unary(op, do("Add", do("Mul", part, step), start)), 0.0), self.most())

        low, high = bound("Floor", self.part), bound("Ceil", do("Add", self.part, 1.0))
        is_inside = g.binary("And", do("GreaterOrEqual", self.element, low), do("Less", self.element, high))
        return do("Div", g.cast(is_inside, self.dtype), do("Max", do("Sub", high, low), 1.0))

    def _integral(self, at: OnnxTensor, order: int) -> OnnxTensor:
        """The integral from the left of an element at 0, by linear interpolation, up to places; or a derivative of it."""
        g, do = self.g, self.do
        near = do("Min", do("Max", at, -1.0), 1.0)
        if order == 0:
            return do("Add", do("Sub", near, do("Mul", do("Mul", near, g.unary("Abs", near)), 0.5)), 0.5)
        if order == 1:
            return do("Sub", 1.0, g.unary("Abs", near))
        is_inside = g.cast(do("Less", g.unary("Abs", at), 1.0), self.dtype)
        return do("Mul", do("Mul", g.unary("Sign", at), is_inside), -1.0 if order == 2 else 0.0)

    def integrated(self) -> OnnxTensor:
        """The integration weights of `prroi_pool`, or their derivatives by the edges that `by` names."""
        g, do = self.g, self.do
        by = self.attrs.get("by", [0] * 4)
        share = np.arange(self.parts + 1, dtype=self.dtype.numpy).reshape(1, -1, 1) / self.dtype.numpy.type(self.parts)
        start, end = (do("Mul", edge, self.scale) for edge in (self.first, self.last))
        size = do("Sub", end, start)
        at = do("Sub", do("Add", start, do("Mul", size, g.constant(share))), self.element)
        is_positive = do("Greater", size, 0.0)
        safe = g.where(is_positive, size, g.number(1, size))
        total: OnnxTensor | None = None
        for low, high in product(range(by[self.axis] + 1), range(by[self.axis + 2] + 1)):
            edges = do("Mul", self._integral(at, low + high), g.constant((1 - share) ** low * share**high))
            left, right = by[self.axis] - low, by[self.axis + 2] - high
            ways = math.comb(by[self.axis], low) * math.comb(by[self.axis + 2], high) * math.factorial(left + right)
            between = do("Sub", g.slice(edges, [1], [1], [2**31 - 1]), g.slice(edges, [1], [0], [-1]))
            power = safe
            for _ in range(left + right):
                power = do("Mul", power, safe)
            term = do("Mul", do("Div", between, power), float(self.parts * ways * (-1) ** right))
            total = term if total is None else do("Add", total, term)
        assert total is not None
        factor = self.scale ** (by[self.axis] + by[self.axis + 2])
        return do("Mul", do("Mul", total, g.cast(is_positive, self.dtype)), factor)


def _weights(
    g: OnnxGraph, kind: str, dtype: VarType, rois: OnnxTensor, sizes: list[Size], attrs: dict[str, Any]
) -> list[OnnxTensor]:
    """The weights of rows [R, parts, H] and of columns [R, parts, W]."""
    return [getattr(_RegionAxis(g, rois, dtype, axis, size, attrs), kind)() for axis, size in ((1, sizes[0]), (0, sizes[1]))]


def _einsum(g: OnnxGraph, equation: str, operands: list[OnnxTensor], shape: tuple[int, ...]) -> OnnxTensor:
    return g.sized_node("Einsum", operands, operands[0].dtype, shape, equation=equation)


def _by_part(g: OnnxGraph, x: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    """Reshape images with separate channels for each part to [N, C, parts, parts, H, W]."""
    high, wide = attrs["pooled_height"], attrs["pooled_width"]
    n, _, *sizes = g.sizes_of(x)
    return g.reshape(x, [n, attrs["output_channels"], high, wide, *sizes])


def _averaged(g: OnnxGraph, kind: str, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    rois = inputs["ROIs"]
    weights = _weights(g, kind, X.dtype, rois, g.sizes_of(X)[2:], attrs)
    has_part_channels = "output_channels" in attrs
    images = g.gather(_by_part(g, X, attrs) if has_part_channels else X, images_of_regions(g, rois, inputs.get("RoisNum")))
    equation = "rcijhw,rih,rjw->rcij" if has_part_channels else "rchw,rih,rjw->rcij"
    return _einsum(g, equation, [images, *weights], specs["Out"].shape)


def _spread(
    g: OnnxGraph, kind: str, Out: OnnxTensor, Like: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]
) -> OnnxTensor:
    """Spread gradients over the images, the transpose of averaging."""
    rois = inputs["ROIs"]
    weights = _weights(g, kind, Out.dtype, rois, g.sizes_of(Like)[2:], attrs)
    has_part_channels = "output_channels" in attrs
    equation = "rcij,rih,rjw->rcijhw" if has_part_channels else "rcij,rih,rjw->rchw"
    rows = _einsum(g, equation, [Out, *weights], (-1,) * (6 if has_part_channels else 4))
    sizes = g.sizes_of(Like)
    if has_part_channels:
        rows = g.reshape(rows, [g.size(rows, 0), *sizes[1:]], (-1, *Like.sizes[1:]))
    zeros = filled(g, g.joined_sizes(sizes), 0, Spec(Like.shape, Out.dtype))
    return add_rows(g, zeros, images_of_regions(g, rois, inputs.get("RoisNum")), rows)


def _register(op_types: list[str], back: str, kind: str) -> None:
    @exports(*op_types)
    def forward(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
        return _averaged(g, kind, X, inputs, attrs, specs)

    @exports(back)
    def backward(g: OnnxGraph, Out: OnnxTensor, Like: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
        return _spread(g, kind, Out, Like, inputs, attrs)


_register([], "roi_align_back", "sampled")
_register(["psroi_pool"], "psroi_pool_back", "uniform")
_register(["prroi_pool", "precise_parts"], "precise_parts_back", "integrated")


@exports("roi_align")
def roi_align(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    if g.opset < 16 and attrs["aligned"]:
        raise NotExported("regions that are aligned, before opset 16")
    rois = inputs["ROIs"]
    modes = {"coordinate_transformation_mode": "half_pixel" if attrs["aligned"] else "output_half_pixel"} if g.opset >= 16 else {}
    return g.sized_node(
        "RoiAlign", [X, g.cast(rois, X.dtype), images_of_regions(g, rois, inputs.get("RoisNum"))], X.dtype, specs["Out"].shape,
        output_height=attrs["pooled_height"], output_width=attrs["pooled_width"],
        sampling_ratio=max(attrs["sampling_ratio"], 0), spatial_scale=float(attrs["spatial_scale"]), mode="avg", **modes,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- maxima
def _parts_of(axis: _RegionAxis) -> OnnxTensor:
    """A mask of the elements [R, parts, extent] in the parts of `roi_pool`."""
    g, do = axis.g, axis.do

    start, end = (rounded(g, do("Mul", edge, axis.scale)) for edge in (axis.first, axis.last))
    step = do("Div", do("Max", do("Add", do("Sub", end, start), 1.0), 1.0), float(axis.parts))
    low = do("Add", g.unary("Floor", do("Mul", axis.part, step)), start)
    high = do("Add", g.unary("Ceil", do("Mul", do("Add", axis.part, 1.0), step)), start)
    return g.binary("And", do("GreaterOrEqual", axis.element, low), do("Less", axis.element, high))


@exports("roi_pool")
def roi_pool(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> dict[str, OnnxTensor]:
    rois, sizes = inputs["ROIs"], g.sizes_of(X)[2:]
    down, across = (_parts_of(_RegionAxis(g, rois, X.dtype, axis, size, attrs)) for axis, size in ((1, sizes[0]), (0, sizes[1])))
    # [R, C, i, j, H, W]; the last two are flattened into one dimension.
    is_inside = g.binary("And", g.unsqueeze(down, 2, 4), g.unsqueeze(across, 1, 3))  # [R, i, j, H, W]
    high, wide = attrs["pooled_height"], attrs["pooled_width"]
    count = g.product_of(sizes)
    is_inside = g.unsqueeze(g.reshape(is_inside, [g.size(rois, 0), high, wide, count], (rois.sizes[0], high, wide, -1)), 1)
    images = g.gather(X, images_of_regions(g, rois, inputs.get("RoisNum")))
    channels = g.size(X, 1)
    flat = g.reshape(images, [g.size(rois, 0), channels, 1, 1, count], (rois.sizes[0], X.sizes[1], 1, 1, -1))
    lowest = g.number(-math.inf, flat)
    values = g.where(is_inside, flat, lowest)
    shape = specs["Out"].shape
    best = g.reduce("ReduceMax", values, [4])
    best.sizes = shape
    element_flags = g.reduce("ReduceMax", g.cast(is_inside, VarType.INT32), [4])
    has_elements = g.cast(element_flags, VarType.BOOL)
    index = g.sized_node("ArgMax", [values], VarType.INT64, shape, axis=4, keepdims=0)
    return {"Out": g.where(has_elements, best, g.number(0, best)), "Argmax": g.where(has_elements, index, g.ints(-1))}


@exports("roi_place")
def roi_place(g: OnnxGraph, Out: OnnxTensor, Argmax: OnnxTensor, inputs: dict[str, Any], Like: OnnxTensor) -> OnnxTensor:
    if g.opset < 16:
        raise NotExported("sums by index along an axis, before opset 16")
    sizes = g.sizes_of(Like)
    count = g.product_of(sizes[2:])
    regions, channels = g.size(Out, 0), sizes[1]
    flat = [g.reshape(tensor, [regions, channels, -1] if isinstance(regions, int) and isinstance(channels, int)
                      else [regions, channels, g.product_of(g.sizes_of(Out)[2:])]) for tensor in (Out, Argmax)]  # fmt: skip
    is_empty = g.binary("Less", flat[1], g.ints(0))
    values = g.where(is_empty, g.number(0, Out), flat[0])
    zeros = filled(g, g.joined_sizes([regions, channels, count]), 0, Spec((-1, -1, -1), Out.dtype))
    index = g.binary("Max", flat[1], g.ints(0))
    rows = g.node("ScatterElements", [zeros, index, values], zeros, axis=2, reduction="add")
    image = filled(g, g.joined_sizes([sizes[0], channels, count]), 0, Spec((-1, -1, -1), Out.dtype))
    return g.reshape_as(add_rows(g, image, images_of_regions(g, inputs["ROIs"], inputs.get("RoisNum")), rows), Like)


@exports("roi_pick")
def roi_pick(g: OnnxGraph, X: OnnxTensor, Argmax: OnnxTensor, inputs: dict[str, Any]) -> OnnxTensor:
    images = g.gather(X, images_of_regions(g, inputs["ROIs"], inputs.get("RoisNum")))
    regions, channels, *sizes = g.sizes_of(images)
    flat = g.reshape(images, [regions, channels, g.product_of(sizes)])
    places = g.product_of(g.sizes_of(Argmax)[2:])
    index = g.reshape(Argmax, [regions, channels, places])
    picked = g.sized_node("GatherElements", [flat, g.binary("Max", index, g.ints(0))], X.dtype, index.sizes, axis=2)
    is_empty = g.binary("Less", index, g.ints(0))
    return g.reshape_as(g.where(is_empty, g.number(0, X), picked), Argmax)


# ---------------------------------------------------------------------------------------------- deformable convolution
def _corners(g: OnnxGraph, at: OnnxTensor, extent: int, derivative: bool) -> list[tuple[OnnxTensor, OnnxTensor]]:
    """The two elements around each place along one axis, and their weights or the weights' derivatives by the place."""
    low = g.unary("Floor", at)
    one, share = g.number(1, at), g.binary("Sub", at, low)
    ones = g.where(g.binary("Equal", at, at), one, one)
    weights = (g.unary("Neg", ones), ones) if derivative else (g.binary("Sub", one, share), share)
    pairs = []
    for element, weight in zip((low, g.binary("Add", low, one)), weights, strict=True):
        is_inside = g.binary(
            "And",
            g.binary("GreaterOrEqual", element, g.number(0, at)),
            g.binary("Less", element, g.number(extent, at)),
        )
        pairs.append((g.where(is_inside, element, g.number(0, at)), g.where(is_inside, weight, g.number(0, at))))
    return pairs


class _Reads:
    """The image elements that a filter reads at each place: four elements, and their weights."""

    def __init__(
        self, g: OnnxGraph, Offset: OnnxTensor, image: OnnxTensor, sizes: tuple[int, ...], attrs: dict[str, Any]
    ) -> None:
        places = Offset.shape[2:]
        if min(*places, *image.shape[2:], *sizes) < 0:
            raise NotExported("images whose size is known only at run time")
        self.g, self.groups, self.extents = g, attrs["deformable_groups"], image.shape[2:]
        batch = g.size(Offset, 0)
        filter_size = sizes[0] * sizes[1]
        offset = g.reshape(
            Offset, [batch, self.groups, filter_size, 2, *places], (Offset.sizes[0], self.groups, filter_size, 2, *places)
        )
        taps, steps = np.indices(sizes).reshape(2, -1, 1, 1), np.indices(places)
        pairs = []
        for axis, slope in enumerate(("along_y", "along_x")):
            base = steps[axis] * attrs["strides"][axis] - attrs["paddings"][axis] + taps[axis] * attrs["dilations"][axis]
            moved = g.squeeze(g.slice(offset, [3], [axis], [axis + 1]), 3)
            at = g.binary("Add", moved, g.constant(base, Offset.dtype))
            pairs.append(_corners(g, at, self.extents[axis], attrs.get(slope, False)))
        self.count = filter_size * places[0] * places[1]
        self.taps = []
        for (row, by_row), (column, by_column) in product(*pairs):
            index = g.binary("Add", g.binary("Mul", row, g.number(self.extents[1], row)), column)
            shape = [batch, self.groups, 1, self.count]
            static_sizes = (Offset.sizes[0], self.groups, 1, self.count)
            weight = g.reshape(g.binary("Mul", by_row, by_column), shape, static_sizes)
            self.taps.append((g.reshape(g.cast(index, VarType.INT64), shape, static_sizes), weight))

    def by_group(self, x: OnnxTensor) -> OnnxTensor:
        """Reshape [N, C, ...] to [N, G, C / G, places]."""
        places = int(np.prod(x.shape[2:]))
        sizes = [self.g.size(x, 0), self.groups, x.shape[1] // self.groups, places]
        return self.g.reshape(x, sizes, (x.sizes[0], self.groups, x.shape[1] // self.groups, places))

    def read(self, image: OnnxTensor, Mask: OnnxTensor | None) -> OnnxTensor:
        """The read values [N, G, C / G, filter elements * places]."""
        g, source = self.g, self.by_group(image)
        total: OnnxTensor | None = None
        for index, weight in self.taps:
            dims = g.joined_sizes([*g.sizes_of(source)[:3], self.count])
            expanded = g.expand(index, dims, (*source.sizes[:3], self.count))
            part = g.binary(
                "Mul", g.sized_node("GatherElements", [source, expanded], image.dtype, expanded.sizes, axis=3), weight
            )
            total = part if total is None else g.binary("Add", total, part)
        assert total is not None
        return total if Mask is None else g.binary("Mul", total, self.factors(Mask))

    def factors(self, Mask: OnnxTensor) -> OnnxTensor:
        return self.g.reshape(
            Mask, [self.g.size(Mask, 0), self.groups, 1, self.count], (Mask.sizes[0], self.groups, 1, self.count)
        )


def _convolved(g: OnnxGraph, f: Any, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    image, offset, kernel = inputs["Input"], inputs["Offset"], inputs["Filter"]
    spec = specs["Output"]
    if g.opset >= 19 and image.dtype is VarType.FP32:
        bias = None
        top, left = attrs["paddings"]
        return g.sized_node(
            "DeformConv", [image, kernel, offset, bias, inputs.get("Mask")], image.dtype, spec.shape,
            strides=list(attrs["strides"]), pads=[top, left, top, left], dilations=list(attrs["dilations"]),
            group=attrs["groups"], offset_group=attrs["deformable_groups"], kernel_shape=list(kernel.shape[2:]),
        )  # fmt: skip
    if kernel.shape[0] < 0:
        raise NotExported("a number of filters that is known only at run time")
    reads = _Reads(g, offset, image, kernel.shape[2:], attrs)
    groups, rows = attrs["groups"], int(np.prod(kernel.shape[1:]))
    places, shape = int(np.prod(offset.shape[2:])), (kernel.shape[0], *offset.shape[2:])
    batch = g.size(image, 0)
    columns = g.reshape(
        reads.read(image, inputs.get("Mask")), [batch, groups, rows, places], (image.sizes[0], groups, rows, places)
    )
    weights = g.reshape(kernel, [groups, kernel.shape[0] // groups, rows])
    return g.reshape(g.matmul(weights, columns), [batch, *shape], (image.sizes[0], *shape))


@exports("deformable_conv", "deformable_conv_v1")
def deformable_conv(g: OnnxGraph, f: Any, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    return _convolved(g, f, inputs, attrs, specs)


@exports("deform_columns")
def deform_columns(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    image = inputs["Input"]
    reads = _Reads(g, inputs["Offset"], image, inputs["Filter"].shape[2:], attrs)
    spec = specs["Columns"]
    return g.reshape(
        reads.read(image, inputs.get("Mask")), [g.size(image, 0), *spec.shape[1:]], (image.sizes[0], *spec.shape[1:])
    )


@exports("deform_image")
def deform_image(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
    if g.opset < 16:
        raise NotExported("sums by index along an axis, before opset 16")
    like, columns, mask = inputs["Like"], inputs["Columns"], inputs.get("Mask")
    reads = _Reads(g, inputs["Offset"], like, inputs["Filter"].shape[2:], attrs)
    values = reads.by_group(columns)
    values = values if mask is None else g.binary("Mul", values, reads.factors(mask))
    size = like.shape[2] * like.shape[3]
    dims = [*g.sizes_of(values)[:3], size]
    image = filled(g, g.joined_sizes(dims), 0, Spec((*values.shape[:3], size), columns.dtype))
    for index, weight in reads.taps:
        part = g.binary("Mul", values, weight)
        image = g.node(
            "ScatterElements", [image, g.expand(index, g.dims(part), part.sizes), part], image, axis=3, reduction="add"
        )
    return g.reshape_as(image, like)


@exports("deform_mask")
def deform_mask(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    image = inputs["Input"]
    reads = _Reads(g, inputs["Offset"], image, inputs["Filter"].shape[2:], attrs)
    product_ = g.binary("Mul", reads.read(image, None), reads.by_group(inputs["Columns"]))
    spec = specs["Mask"]
    return g.reshape(g.reduce("ReduceSum", product_, [2]), [g.size(image, 0), *spec.shape[1:]], (image.sizes[0], *spec.shape[1:]))
