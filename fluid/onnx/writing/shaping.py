"""Write ops that reshape, reorder, join and cut tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size, is_number, without_symbols
from .making import as_vector, filled, joined_vector


# ---------------------------------------------------------------------------------------------------------- reshaping
def _with_shape_of(X: OnnxTensor, Out: OnnxTensor) -> dict[str, OnnxTensor]:
    """A reshaped tensor, and the tensor that stands for the shape of X."""
    return {"Out": Out, "XShape": shape_of(X)}


def shape_of(x: OnnxTensor) -> OnnxTensor:
    """A tensor without elements that stands for the shape of x, after a first dimension of size 0."""
    return OnnxTensor(x.graph, "", Spec((0, *x.shape), x.dtype), (0, *x.sizes), like=x)


@exports("reshape2", "reshape")
def reshape(
    g: OnnxGraph, X: OnnxTensor, Shape: OnnxTensor | None, ShapeTensor: Any, shape: list[int], specs: Any
) -> dict[str, OnnxTensor]:
    spec = specs["Out"]
    if ShapeTensor:
        dims = joined_vector(g, ShapeTensor)
    elif Shape is not None:
        dims = as_vector(g, Shape)
    elif 0 in X.shape or 0 in spec.shape:
        return _with_shape_of(X, g.in_shape(X, spec.shape, lambda: _copied(g, X, shape)))
    elif all(is_number(size) for size in spec.shape):
        dims = g.ints(*spec.shape)
    else:  # with a copied size of 0, a -1 cannot be inferred: give its size if it is known
        pairs = zip(shape, spec.shape, strict=True)
        dims = g.ints(*(size if wanted == -1 and is_number(size) else wanted for wanted, size in pairs))
    return _with_shape_of(X, g.sized_node("Reshape", [X, dims], X.dtype, spec.shape))


def _copied(g: OnnxGraph, X: OnnxTensor, shape: list[int]) -> list[Size]:
    if -1 in shape:
        raise NotExported("a size that follows from no elements")
    return [size or g.size(X, axis) for axis, size in enumerate(shape)]


@exports("reshape_like")
def reshape_like(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    return g.reshape_as(X, Like)


def _back_to(g: OnnxGraph, X: OnnxTensor, XShape: OnnxTensor) -> OnnxTensor:
    """Reshape X to the shape of another tensor without its first dimension."""

    def exact() -> list[Size]:
        return [g.size(XShape, axis) for axis in range(1, XShape.ndim)]

    return g.in_shape(X, XShape.sizes[1:], exact)


@exports("unreshape")
def unreshape(g: OnnxGraph, X: OnnxTensor, XShape: OnnxTensor) -> OnnxTensor:
    return _back_to(g, X, XShape)


@exports(
    "squeeze2", "squeeze", "unsqueeze2", "unsqueeze", "flatten2", "flatten", "flatten_contiguous_range"
)  # fmt: skip
def reshape_by_rank(
    g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], specs: Any, attrs: dict[str, Any]
) -> dict[str, OnnxTensor]:
    """Write ops whose result has all sizes known except one, or the sizes of X with ones."""
    spec = specs["Out"]
    if inputs.get("AxesTensor") is not None or inputs.get("AxesTensorList"):
        raise NotExported("axes that are computed")

    def exact() -> Sequence[Size]:
        if "start_axis" in attrs:
            start, stop = (attrs[name] % X.ndim for name in ("start_axis", "stop_axis"))
            sizes = g.sizes_of(X)
            return [*sizes[:start], g.product_of(sizes[start : stop + 1]), *sizes[stop + 1 :]]
        if "axis" in attrs:
            sizes = g.sizes_of(X)
            return [g.product_of(sizes[: attrs["axis"]]), g.product_of(sizes[attrs["axis"] :])]
        if spec.ndim > X.ndim:
            sizes = g.sizes_of(X)
            for axis in attrs["axes"]:
                sizes.insert(axis + len(sizes) + 1 if axis < 0 else axis, 1)
            return sizes
        axes = {axis % X.ndim for axis in attrs["axes"]} or {axis for axis, size in enumerate(X.shape) if size == 1}
        return [g.size(X, axis) for axis in range(X.ndim) if axis not in axes or X.shape[axis] not in (1, -1)]

    return _with_shape_of(X, g.in_shape(X, spec.shape, exact))


@exports("transpose2", "transpose")
def transpose(g: OnnxGraph, X: OnnxTensor, axis: list[int]) -> dict[str, OnnxTensor]:
    turned = g.transpose(X, axis)
    return _with_shape_of(X, g.identity(X) if turned is X else turned)


# -------------------------------------------------------------------------------------------------- joining and cutting
def constant_axis(AxisTensor: OnnxTensor | None, axis: int) -> int:
    if AxisTensor is None:
        return axis
    if AxisTensor.value is None:
        raise NotExported("an axis that is computed")
    return int(AxisTensor.value.reshape(-1)[0])


@exports("concat", "concat_like")
def concat(g: OnnxGraph, X: list[OnnxTensor], AxisTensor: OnnxTensor | None, attrs: dict[str, Any]) -> OnnxTensor:
    result = g.concat(X, constant_axis(AxisTensor, attrs.get("axis", 0)))
    return result


@exports("split_like")
def split_like(g: OnnxGraph, X: OnnxTensor, Like: list[OnnxTensor], AxisTensor: OnnxTensor | None, axis: int) -> Any:
    axis = constant_axis(AxisTensor, axis) % X.ndim
    return cut(g, X, axis, [g.size(part, axis) for part in Like])


def cut(g: OnnxGraph, x: OnnxTensor, axis: int, sizes: Sequence[Size]) -> list[OnnxTensor]:
    """Split x into parts of these sizes along an axis."""
    axis = axis % x.ndim
    if len(sizes) == 1:
        return [g.identity(x)]
    shapes = [(*x.sizes[:axis], size if isinstance(size, int) else -1, *x.sizes[axis + 1 :]) for size in sizes]
    specs = [Spec(without_symbols(sizes_of_part), x.dtype) for sizes_of_part in shapes]
    parts = g.nodes("Split", [x, g.joined_sizes(sizes)], specs, axis=axis)
    for part, sizes_of_part in zip(parts, shapes, strict=True):
        part.sizes = sizes_of_part
    return parts


@exports("split")
def split(
    g: OnnxGraph,
    X: OnnxTensor,
    AxisTensor: OnnxTensor | None,
    SectionsTensorList: Any,
    axis: int,
    num: int,
    sections: list[int],
    specs: Any,
) -> dict[str, Any]:
    axis = constant_axis(AxisTensor, axis) % X.ndim
    count = len(specs["Out"])
    size = g.size(X, axis)
    sizes: list[Size]
    if SectionsTensorList:
        sizes = [g.reshape(g.cast(section, VarType.INT64), [1]) for section in SectionsTensorList]
        static_places = [place for place, section_size in enumerate(sections) if section_size > 0 and len(sections) == count]
        for place in static_places:
            sizes[place] = sections[place]
    elif num or not sections:
        part = size // count if isinstance(size, int) else g.binary("Div", size, g.ints(count))
        sizes = [part] * count
    else:
        sizes = list(sections)
    if -1 in [section_size for section_size in sizes if isinstance(section_size, int)]:
        place = next(place for place, section_size in enumerate(sizes) if isinstance(section_size, int) and section_size == -1)
        sum_of_others = sum(section_size for section_size in sizes if isinstance(section_size, int)) + 1
        sizes[place] = size - sum_of_others if isinstance(size, int) else g.binary("Sub", size, g.ints(sum_of_others))
    return {"Out": cut(g, X, axis, sizes)}


@exports("stack")
def stack(g: OnnxGraph, X: list[OnnxTensor], axis: int) -> OnnxTensor:
    return g.concat([g.unsqueeze(tensor, axis % (X[0].ndim + 1)) for tensor in X], axis % (X[0].ndim + 1))


@exports("unstack", "unbind")
def unstack(g: OnnxGraph, X: OnnxTensor, axis: int, specs: Any) -> dict[str, Any]:
    slot = next(iter(specs))
    parts = cut(g, X, axis, [1] * len(specs[slot]))
    return {slot: [g.squeeze(part, axis % X.ndim) for part in parts]}


# ------------------------------------------------------------------------------------------------------------- slicing
_BOUNDS = ("Starts", "Ends", "Strides")


class SliceBounds:
    """The bounds of a slice, as numbers or as vectors."""

    def __init__(self, g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], ndim: int) -> None:
        self.axes = [axis % ndim for axis in attrs["axes"]]
        self.tensors: list[OnnxTensor | None] = []
        for name in _BOUNDS:
            tensor_list, tensor_input = inputs.get(f"{name}TensorList"), inputs.get(f"{name}Tensor")
            self.tensors.append(
                joined_vector(g, tensor_list) if tensor_list else None if tensor_input is None else as_vector(g, tensor_input)
            )
        count = len(self.axes)
        strides = attrs.get("strides") or [1] * count
        ends = [-(2**62) if stride < 0 and end == -1 else end for stride, end in zip(strides, attrs["ends"], strict=False)]
        self.numbers = [list(attrs["starts"]), ends, list(strides)]
        for place, tensor in enumerate(self.tensors):
            if tensor is not None and tensor.value is not None:
                values = [int(value) for value in tensor.value]
                self.numbers[place], self.tensors[place] = values, None
        if self.tensors == [None] * 3 and "strides" in attrs:
            self.numbers[1] = [
                -(2**62) if stride < 0 and end == -1 else end
                for stride, end in zip(self.numbers[2], self.numbers[1], strict=True)
            ]
        self.are_numbers = self.tensors == [None] * 3
        self.steps = self.numbers[2] if self.tensors[2] is None else None

    def vector(self, g: OnnxGraph, place: int) -> OnnxTensor:
        tensor = self.tensors[place]
        return g.ints(*self.numbers[place]) if tensor is None else tensor


@exports("slice", "strided_slice", "slice_like", "strided_slice_like")
def slice_(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    x: OnnxTensor = inputs["Input"] if "Input" in inputs else inputs["X"]
    bounds = SliceBounds(g, inputs, attrs, x.ndim)
    if not bounds.axes:
        result = g.identity(x)
    elif bounds.are_numbers:
        result = g.slice(x, bounds.axes, *bounds.numbers)
    else:
        if "strides" in attrs and bounds.steps is not None and min(bounds.steps) < 0:
            raise NotExported("computed bounds with a negative stride")
        sizes = tuple(-1 if axis in bounds.axes else size for axis, size in enumerate(x.sizes))
        vectors = [bounds.vector(g, place) for place in range(3)]
        result = g.sized_node("Slice", [x, *vectors[:2], g.ints(*bounds.axes), vectors[2]], x.dtype, sizes)
    dropped = [axis % x.ndim for axis in attrs["decrease_axis"]]
    spec = specs["Out"]
    if dropped and len(spec.shape) == x.ndim - len(dropped):
        return g.squeeze(result, *dropped)
    return result


@exports("unslice", "strided_unslice")
def unslice(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
    bounds = SliceBounds(g, inputs, attrs, Like.ndim)
    dropped = [axis % Like.ndim for axis in attrs["decrease_axis"]]
    if dropped:
        X = g.unsqueeze(X if X.ndim == Like.ndim - len(dropped) else g.reshape(X, []), *dropped)
    steps = bounds.steps
    if steps is None:
        raise NotExported("strides that are computed")
    result = X
    for place, axis in enumerate(bounds.axes):
        size = g.size(Like, axis)
        if bounds.are_numbers and isinstance(size, int):
            start, end, step = (numbers[place] for numbers in bounds.numbers)
            indices = range(*slice(start, None if end < -(2**61) else end, step).indices(size))
            if step == 1:
                result = padded(g, result, axis, indices.start, size - indices.start - len(indices))
            else:
                result = _at(g, result, axis, list(indices), size)
            continue
        if steps[place] != 1:
            raise NotExported("strides along a dimension whose size is known only at run time")
        full_size = g.as_size(size)
        start = g.gather(bounds.vector(g, 0), g.ints(place))
        start = g.where(g.binary("Less", start, g.ints(0)), g.binary("Add", start, full_size), start)
        start = g.binary("Min", g.binary("Max", start, g.ints(0)), full_size)
        after = g.binary("Sub", g.binary("Sub", full_size, start), g.as_size(g.size(result, axis)))
        result = padded(g, result, axis, start, after)
    return result


def padded(g: OnnxGraph, x: OnnxTensor, axis: int, before: Size, after: Size) -> OnnxTensor:
    """Pad with zeros before and after along an axis."""
    if before == 0 and after == 0 and isinstance(before, int) and isinstance(after, int):
        return x
    left: list[Size] = [0] * x.ndim
    right: list[Size] = [0] * x.ndim
    left[axis], right[axis] = before, after
    is_static = isinstance(before, int) and isinstance(after, int) and is_number(x.sizes[axis])
    size = before + after + x.sizes[axis] if is_static else -1
    return pad_node(g, x, g.joined_sizes([*left, *right]), (*x.sizes[:axis], size, *x.sizes[axis + 1 :]))


def pad_node(
    g: OnnxGraph, x: OnnxTensor, pads: OnnxTensor, sizes: tuple[int, ...], value: float = 0.0, mode: str = "constant"
) -> OnnxTensor:
    """Append `Pad`; bools are padded as integers."""
    if x.dtype is VarType.BOOL:
        return g.cast(pad_node(g, g.cast(x, VarType.INT32), pads, sizes, value, mode), VarType.BOOL)
    inputs = [x, pads] + ([g.number(value, x)] if mode == "constant" else [])
    return g.sized_node("Pad", inputs, x.dtype, sizes, mode=mode)


def _at(g: OnnxGraph, x: OnnxTensor, axis: int, places: list[int], size: int) -> OnnxTensor:
    """Place the elements of x along an axis at some places of zeros."""
    source = np.full(size, len(places))
    source[places] = np.arange(len(places))
    return g.gather(padded(g, x, axis, 0, 1), g.constant(source), axis)


# ------------------------------------------------------------------------------------------------ order and repetition
@exports("flip", "reverse")
def flip(g: OnnxGraph, X: OnnxTensor, axis: list[int]) -> OnnxTensor:
    axes = [reversed_axis % X.ndim for reversed_axis in axis]
    return g.slice(X, axes, [-1] * len(axes), [-(2**62)] * len(axes), [-1] * len(axes)) if axes else g.identity(X)


@exports("roll")
def roll(g: OnnxGraph, X: OnnxTensor, ShiftsTensor: OnnxTensor | None, shifts: list[int], axis: list[int]) -> OnnxTensor:
    x = X if axis else g.reshape(X, [-1], (X.spec.size,))
    places = [rolled_axis % x.ndim for rolled_axis in axis] or [0]
    for number, place in enumerate(places):
        size = g.size(x, place)
        if ShiftsTensor is not None:
            shift: Any = g.gather(as_vector(g, ShiftsTensor), g.ints(number))
        else:
            shift = shifts[number]
        if isinstance(size, int) and isinstance(shift, int):
            index = g.constant((np.arange(size) - shift) % max(size, 1))
        else:
            shift = g.as_size(shift)
            index = g.binary("Mod", g.binary("Sub", g.arange(size), shift), g.as_size(size))
        x = g.gather(x, index, place)
    return x if axis else g.reshape_as(x, X)


def _tiled(g: OnnxGraph, x: OnnxTensor, times: OnnxTensor, sizes: tuple[int, ...], count: int) -> OnnxTensor:
    """Append `Tile`, by a vector of `count` numbers for the last dimensions."""
    if count < 0:
        raise NotExported("repetition by a vector whose length is known only at run time")
    x = g.unsqueeze(x, *range(max(count - x.ndim, 0)))
    if count < x.ndim:
        times = g.concat([g.ints(*[1] * (x.ndim - count)), times], 0)
    return g.sized_node("Tile", [x, times], x.dtype, sizes)


@exports("tile")
def tile(
    g: OnnxGraph, X: OnnxTensor, RepeatTimes: Any, repeat_times_tensor: Any, repeat_times: list[int], specs: Any
) -> OnnxTensor:
    times, count = g.ints(*repeat_times), len(repeat_times)
    if repeat_times_tensor:
        times, count = joined_vector(g, repeat_times_tensor), len(repeat_times_tensor)
    elif RepeatTimes is not None:
        times = as_vector(g, RepeatTimes)
        count = times.shape[0]
    return _tiled(g, X, times, specs["Out"].shape, count)


@exports("expand")
def expand(
    g: OnnxGraph, X: OnnxTensor, ExpandTimes: Any, expand_times_tensor: Any, expand_times: list[int], specs: Any
) -> OnnxTensor:
    return tile(g, X, ExpandTimes, expand_times_tensor, expand_times, specs)


@exports("expand_as")
def expand_as(g: OnnxGraph, X: OnnxTensor, target_tensor: OnnxTensor) -> OnnxTensor:
    return tile_like(g, X, target_tensor)


@exports("tile_like")
def tile_like(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    times = g.binary("Div", g.dims(Like), _padded_dims(g, X, Like.ndim))
    if X.spec.known and Like.spec.known and 0 not in X.shape:
        small = (1,) * (Like.ndim - X.ndim) + X.shape
        times = g.ints(*(a // b for a, b in zip(Like.shape, small, strict=True)))
    return _tiled(g, X, times, Like.sizes, Like.ndim)


def _padded_dims(g: OnnxGraph, x: OnnxTensor, ndim: int) -> OnnxTensor:
    return g.joined_sizes([*[1] * (ndim - x.ndim), *g.sizes_of(x)])


@exports("untile")
def untile(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    sizes: list[Size] = []
    static_sizes: list[int] = []
    small: list[Size] = [*[1] * (X.ndim - Like.ndim), *g.sizes_of(Like)]
    for axis, part in enumerate(small):
        full_size = g.size(X, axis)
        if isinstance(full_size, int) and isinstance(part, int):
            sizes += [full_size // max(part, 1), part]
        else:
            sizes += [g.binary("Div", g.as_size(full_size), g.as_size(part)), part]
        static_sizes += [size if isinstance(size, int) else -1 for size in sizes[-2:]]
    parts = g.reshape(X, sizes, tuple(static_sizes))
    return g.reshape_as(g.reduce("ReduceSum", parts, range(0, 2 * X.ndim, 2)), Like)


@exports("expand_v2")
def expand_v2(g: OnnxGraph, X: OnnxTensor, Shape: Any, expand_shapes_tensor: Any, shape: list[int], specs: Any) -> OnnxTensor:
    """A -1 in the requested shape preserves the size: `Expand` gets 1 for it."""
    if expand_shapes_tensor or Shape is not None:
        dims = joined_vector(g, expand_shapes_tensor) if expand_shapes_tensor else as_vector(g, Shape)
        dims = g.binary("Max", dims, g.ints(1))
    else:
        dims = g.ints(*(1 if size == -1 else size for size in shape))
    return g.expand(X, dims, specs["Out"].shape)


@exports("expand_as_v2")
def expand_as_v2(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor | None, target_shape: list[int], specs: Any) -> OnnxTensor:
    dims = g.dims(Y) if Y is not None else g.ints(*(1 if size == -1 else size for size in target_shape))
    return g.expand(X, dims, specs["Out"].shape)


@exports("meshgrid")
def meshgrid(g: OnnxGraph, X: list[OnnxTensor], specs: Any) -> dict[str, Any]:
    vectors = [x if x.ndim else g.unsqueeze(x, 0) for x in X]
    dims = g.joined_sizes([g.size(x, 0) for x in vectors])
    sizes = specs["Out"][0].shape
    results = []
    for axis, x in enumerate(vectors):
        turned = g.unsqueeze(x, *(place for place in range(len(vectors)) if place != axis))
        results.append(g.expand(turned, dims, sizes))
    return {"Out": results}


# ------------------------------------------------------------------------------------------------- places, sums by place
def positions(g: OnnxGraph, size: Size, axis: int, ndim: int) -> OnnxTensor:
    """0, 1, ... along an axis of `ndim` dimensions."""
    return g.unsqueeze(g.arange(size), *(place for place in range(ndim) if place != axis % ndim))


def added_along(g: OnnxGraph, x: OnnxTensor, index: OnnxTensor, axis: int, size: Size, sizes: tuple[int, ...]) -> OnnxTensor:
    """Add the slices of x along an axis at these indices, [n], to zeros of `size` along this axis."""
    axis = axis % x.ndim
    order = [axis, *(place for place in range(x.ndim) if place != axis)]
    rows = g.transpose(x, order)
    turned = tuple(sizes[place] for place in order)
    dims = g.joined_sizes([size, *g.sizes_of(rows)[1:]])
    zeros = filled(g, dims, 0, Spec(without_symbols(turned), x.dtype))
    added = add_rows(g, zeros, index, rows)
    added.sizes = turned
    return g.transpose(added, [order.index(place) for place in range(x.ndim)])


def add_rows(g: OnnxGraph, base: OnnxTensor, index: OnnxTensor, rows: OnnxTensor) -> OnnxTensor:
    """Add rows [n, ...] to `base` [N, ...] at the indices [n], which may repeat."""
    if g.opset >= 16:
        return g.node("ScatterND", [base, g.unsqueeze(index, 1), rows], base, reduction="add")
    size, count = g.size(base, 0), g.size(index, 0)
    hit = g.binary("Equal", positions(g, size, 0, 2), g.unsqueeze(index, 0))
    width = g.product_of(g.sizes_of(base)[1:])
    flat = g.reshape(rows, [count, width])
    summed = g.matmul(g.cast(hit, base.dtype), flat)
    return g.binary("Add", base, g.reshape_as(summed, base))


def first_rows(g: OnnxGraph, x: OnnxTensor, count: OnnxTensor) -> OnnxTensor:
    """The first `count` entries along the first dimension."""
    return g.sized_node("Slice", [x, g.ints(0), count, g.ints(0)], x.dtype, (-1, *x.sizes[1:]))


def reverse(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    """Reverse the first dimension."""
    return g.slice(x, [0], [-1], [-(2**62)], [-1])


def gather_along(g: OnnxGraph, x: OnnxTensor, places: OnnxTensor, axis: int) -> OnnxTensor:
    """Take the elements at places along an axis, as numpy's ``take_along_axis``."""
    return g.sized_node("GatherElements", [x, places], x.dtype, places.sizes, axis=axis)
