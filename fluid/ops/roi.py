"""Ops on regions of interest, and convolution at places that are learned.

The regions, ROIs [R, 4], are rows of left, top, right and bottom; times `spatial_scale` these are coordinates in the image. The
regions of an image are a sequence of the rows of ROIs or, where RoisNum is given, the number of rows in it.

All ops are linear in the image: the gradient of an op is its transpose, whose gradient is the op again. Some are smooth in the
regions, or in what moves their parts: there, a gradient is a sum over what the op gives with the derivatives of its weights.

A deformable convolution is a convolution of `deform_columns`, which is linear in image and mask. Its transposes are
`deform_image` and `deform_mask`; the gradients of each of the three are the other two. For the gradient with respect to the
offsets, the interpolation weights are replaced by their slopes along x and y (`along_x`, `along_y`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..errors import InferenceError
from ..opdef.registry import Attr, ShapeOnly, at_most, choice, counted, define, ints, least, like, required
from ..values.spec import Spec, may_equal
from ..values.types import VarType
from .conv import steps_of_window
from .sequence import offsets_of
from .shapes import check_transposed

_REGIONS = "ROIs: float[R, 4], RoisNum?: int[N]"
_SLOPES: dict[str, Any] = {"along_x": False, "along_y": False}
_POOLED: dict[str, Any] = {"pooled_height": least(1, 1), "pooled_width": least(1, 1), "spatial_scale": 1.0}


# ------------------------------------------------------------------------------------------------------------- regions
def _pooled(X: Spec, ROIs: Spec, RoisNum: Spec | None, channels: int, attrs: Mapping[str, Any]) -> Spec:
    offsets = offsets_of(ROIs, "ROIs") if RoisNum is None else None
    if offsets is not None and X.shape[0] not in (-1, len(offsets) - 1):
        raise InferenceError(f"ROIs {ROIs} are regions of {len(offsets) - 1} images, but X {X} holds {X.shape[0]}")
    return Spec((ROIs.shape[0], channels, attrs["pooled_height"], attrs["pooled_width"]), X.dtype)


def _define_averages(name: str, doc: str, **attributes: Any) -> None:
    """Define an op that is linear in X, and its transpose."""

    def infer(X: Spec, ROIs: Spec, RoisNum: Spec | None, attrs: Mapping[str, Any]) -> Spec:
        channels = attrs.get("output_channels", X.shape[1])
        needed = channels * attrs["pooled_height"] * attrs["pooled_width"]
        if "output_channels" in attrs and X.shape[1] not in (-1, needed):
            raise InferenceError(f"X {X} should have output_channels * pooled_height * pooled_width = {needed} channels")
        return _pooled(X, ROIs, RoisNum, channels, attrs)

    def infer_back(Out: Spec, ROIs: Spec, RoisNum: Spec | None, Like: Spec, attrs: Mapping[str, Any]) -> Spec:
        check_transposed("Out", Out, name, infer(Like, ROIs, RoisNum, attrs), Like)
        return Like

    def rule(f: Any, X: ShapeOnly, ROIs: Any, RoisNum: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
        return {"X": getattr(f, f"{name}_back")(dOut, ROIs, RoisNum, X, **attrs)}

    def back(f: Any, ROIs: Any, RoisNum: Any, dX: Any, attrs: dict[str, Any]) -> Any:
        return {"Out": getattr(f, name)(dX, ROIs, RoisNum, **attrs)}

    rule.__doc__ = doc
    back.__doc__ = f"Out spread over images shaped like Like: the transpose of `{name}`."
    attributes.update(_POOLED)
    define(
        f"{name}(X: float[N, C, H, W], {_REGIONS}) -> Out",
        infer=infer,
        wrt=("X",),
        constants=("ROIs",),
        lod_aware=True,
        **attributes,
    )(rule)
    signature = f"{name}_back(Out, ROIs, RoisNum?, Like) -> X"
    define(signature, infer=infer_back, wrt=("Out",), shape_only=("Like",), lod_aware=True, **attributes)(back)


_define_averages(
    "roi_align",
    """The mean of each part of each region ROIs [R, 4] of images X [N, C, H, W]: [R, C, `pooled_height`, `pooled_width`].

A region is divided evenly into parts. In each part, `sampling_ratio` by `sampling_ratio` places (if not above 0: about one
per element) are sampled by bilinear interpolation. With `aligned`, regions are moved by half an element, so that pixels are
areas; without, regions are at least one element large. The gradient is for X.""",
    sampling_ratio=at_most(1024, -1),
    aligned=False,
)
_define_averages(
    "psroi_pool",
    """The mean of each part of each region ROIs [R, 4], where each part has channels of its own.

Images X are [N, `output_channels` * `pooled_height` * `pooled_width`, H, W]; Out is [R, `output_channels`, `pooled_height`,
`pooled_width`]. Coordinates are rounded, parts hold whole elements; empty ones give 0. The gradient is for X.""",
    output_channels=least(1, 1),
)


def _roi_pool(X: Spec, ROIs: Spec, RoisNum: Spec | None, attrs: Mapping[str, Any]) -> tuple[Spec, Spec]:
    out = _pooled(X, ROIs, RoisNum, X.shape[1], attrs)
    return out, out.with_dtype(VarType.INT64)


@define(
    f"roi_pool(X: float[N, C, H, W], {_REGIONS}) -> Out, Argmax~",
    infer=_roi_pool,
    wrt=("X",),
    constants=("ROIs",),
    lod_aware=True,
    **_POOLED,
)
def roi_pool(f: Any, X: ShapeOnly, ROIs: Any, RoisNum: Any, Argmax: Any, dOut: Any) -> Any:
    """The maximum of each part of each region ROIs [R, 4] of images X [N, C, H, W]: [R, C, `pooled_height`, `pooled_width`].

    Coordinates are rounded; parts hold whole elements and may overlap; empty ones give 0. Argmax is the index of the first
    maximum in its image, counted row by row; -1 for none. The gradient is for X.
    """
    return {"X": f.roi_place(dOut, Argmax, ROIs, RoisNum, X)}


def _placed(Out: Spec, Argmax: Spec, ROIs: Spec, Like: Spec) -> Spec:
    regions = (*ROIs.shape[:1], *Like.shape[1:2], -1, -1)
    if Like.ndim != 4 or not may_equal(Out.shape, regions) or not may_equal(Argmax.shape, Out.shape):
        raise InferenceError(f"Out {Out} and Argmax {Argmax} should be of the parts of regions {ROIs} in images {Like}")
    return Like


@define(
    "roi_place(Out: float, Argmax: int, ROIs, RoisNum?, Like) -> X",
    infer=_placed,
    wrt=("Out",),
    shape_only=("Like",),
    lod_aware=True,
)
def roi_place(f: Any, Argmax: Any, ROIs: Any, RoisNum: Any, dX: Any) -> Any:
    """Out added at the places of the maxima of `roi_pool` in images of zeros shaped like Like."""
    return {"Out": f.roi_pick(dX, Argmax, ROIs, RoisNum)}


@define(
    "roi_pick(X, Argmax, ROIs, RoisNum?) -> Out", infer=lambda X, Argmax: Spec(Argmax.shape, X.dtype), wrt=("X",), lod_aware=True
)
def roi_pick(f: Any, X: ShapeOnly, Argmax: Any, ROIs: Any, RoisNum: Any, dOut: Any) -> Any:
    """The elements of X at the places of the maxima of `roi_pool`: the transpose of `roi_place`."""
    return {"X": f.roi_place(dOut, Argmax, ROIs, RoisNum, X)}


# --------------------------------------------------------------------------------------------------- precise regions
_DERIVATIVES: dict[str, Any] = {**_POOLED, "by": least(0, counted(ints(0, 0, 0, 0)))}


def _by_edges(f: Any, X: Any, ROIs: Any, Parts: Any, attrs: Mapping[str, Any]) -> Any:
    """The gradient, with respect to ROIs, of the sum of ``Parts * precise_parts(X, ROIs)``."""
    slopes = []
    for edge in range(4):
        by = [order + (number == edge) for number, order in enumerate(attrs.get("by", [0] * 4))]
        parts = f.precise_parts(X, ROIs, **{**attrs, "by": by})
        slopes.append(f.reduce_sum(Parts * parts, dim=[1, 2, 3]))
    return f.stack(slopes, axis=1)


def _all_parts(X: Spec, ROIs: Spec, attrs: Mapping[str, Any]) -> Spec:
    return _pooled(X, ROIs, None, X.shape[1], attrs)


@define("prroi_pool(X: float[N, C, H, W], ROIs: float[R, 4]) -> Out", infer=_all_parts, lod_aware=True, **_POOLED)
def prroi_pool(f: Any, X: Any, ROIs: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """The mean of each part of each region ROIs [R, 4] of images X [N, C, H, W]: [R, C, `pooled_height`, `pooled_width`].

    It is the integral, over the part, of the bilinear interpolation of the image, zero outside, divided by the part's area; 0
    for empty parts. So it is smooth in the edges of regions, too.
    """
    return {
        "X": lambda: f.precise_parts_back(dOut, ROIs, X, **attrs),
        "ROIs": lambda: _by_edges(f, X, ROIs, dOut, attrs),
    }


@define("precise_parts(X, ROIs) -> Out", infer=_all_parts, lod_aware=True, **_DERIVATIVES)
def precise_parts(f: Any, X: Any, ROIs: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """`prroi_pool`, or its derivative: `by` says how often by the left, top, right and bottom edge of the regions."""
    return {
        "X": lambda: f.precise_parts_back(dOut, ROIs, X, **attrs),
        "ROIs": lambda: _by_edges(f, X, ROIs, dOut, attrs),
    }


@define("precise_parts_back(Out, ROIs, Like) -> X", infer=like("Like"), wrt=("Out", "ROIs"), shape_only=("Like",),
        lod_aware=True, **_DERIVATIVES)  # fmt: skip
def precise_parts_back(f: Any, Out: Any, ROIs: Any, dX: Any, attrs: dict[str, Any]) -> Any:
    """Out spread over images shaped like Like: the transpose of `precise_parts`."""
    return {
        "Out": lambda: f.precise_parts(dX, ROIs, **attrs),
        "ROIs": lambda: _by_edges(f, dX, ROIs, Out, attrs),
    }


# ------------------------------------------------------------------------------------------------------ quadrangles
_STRAIGHT: dict[str, Any] = {
    "spatial_scale": 1.0,
    "transformed_height": Attr("int", required=True, least=1, most=1 << 14),
    "transformed_width": Attr("int", required=True, least=1, most=1 << 14),
}


def _straightened(X: Spec, ROIs: Spec, attrs: Mapping[str, Any]) -> tuple[Spec, ...]:
    height, width = attrs["transformed_height"], attrs["transformed_width"]
    _pooled(X, ROIs, None, X.shape[1], {"pooled_height": height, "pooled_width": width})
    out = Spec((ROIs.shape[0], X.shape[1], height, width), X.dtype)
    elements = Spec((out.size, 4), X.dtype)
    mask = Spec((ROIs.shape[0], 1, height, width), VarType.INT32)
    return out, mask, Spec((ROIs.shape[0], 9), X.dtype), elements.with_dtype(VarType.INT32), elements


@define(
    "roi_perspective_transform(X: float[N, C, H, W], ROIs: float[R, 8])"
    " -> Out, Mask, TransformMatrix, Out2InIdx~, Out2InWeights~",
    infer=_straightened,
    wrt=("X",),
    constants=("ROIs",),
    lod_aware=True,
    **_STRAIGHT,
)
def roi_perspective_transform(f: Any, X: ShapeOnly, ROIs: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """Regions of images X [N, C, H, W], cut out and made rectangular: [R, C, `transformed_height`, `transformed_width`].

    ROIs [R, 8] are x and y of the corners of quadrangles: left top, right top, right bottom, left bottom. TransformMatrix
    [R, 9] is the perspective transformation from places in Out to those in X, which are read by bilinear interpolation. A
    region becomes as wide as its proportions ask for at that height, at most `transformed_width`. Mask [R, 1, ..] is 1 where
    Out is in the quadrangle and in the image; elsewhere, both are 0. Out2InIdx and Out2InWeights [all elements of Out, 4] are
    the elements of X that are read, counted in all of X, and their weights. The gradient is for X.
    """
    return {"X": f.straightened_back(dOut, ROIs, X, **attrs)}


@define("straightened_back(Out, ROIs, Like) -> X", infer=like("Like"), wrt=("Out",), shape_only=("Like",), lod_aware=True,
        **_STRAIGHT)  # fmt: skip
def straightened_back(f: Any, ROIs: Any, dX: Any, attrs: dict[str, Any]) -> Any:
    """Out spread over images shaped like Like: the transpose of `roi_perspective_transform`."""
    return {"Out": f.roi_perspective_transform(dX, ROIs, **attrs)[0]}


# ------------------------------------------------------------------------------------------------- deformable regions
_MOVED: dict[str, Any] = {
    "no_trans": required("bool"),
    "spatial_scale": required("float"),
    "output_dim": Attr("int", required=True, least=1),
    "group_size": Attr("ints", required=True, least=1, counts=(2,)),
    "pooled_height": Attr("int", required=True, least=1),
    "pooled_width": Attr("int", required=True, least=1),
    "part_size": Attr("ints", required=True, least=1, counts=(2,)),
    "sample_per_part": Attr("int", required=True, least=1),
    "trans_std": required("float"),
}


def _moved_parts(Input: Spec, ROIs: Spec, Trans: Spec, attrs: Mapping[str, Any]) -> Spec:
    channels, (rows, columns) = attrs["output_dim"], attrs["group_size"]
    needed = channels * rows * columns
    if Input.shape[1] >= 0 and Input.shape[1] < needed:
        raise InferenceError(f"Input {Input} should have output_dim * group_size[0] * group_size[1] = {needed} channels")
    if not attrs["no_trans"]:
        _has(Trans, "Trans", 2, attrs["part_size"][0], "rows, as part_size says")
        _has(Trans, "Trans", 3, attrs["part_size"][1], "columns, as part_size says")
        if Trans.shape[0] >= 0 and ROIs.shape[0] not in (-1, Trans.shape[0]):
            raise InferenceError(f"Trans {Trans} should have a row for each region in ROIs {ROIs}")
        if Trans.shape[1] >= 0 and (Trans.shape[1] < 2 or Trans.shape[1] % 2 or channels % (Trans.shape[1] // 2)):
            raise InferenceError(f"Trans {Trans} should have two channels for each class; these share output_dim {channels}")
    return _pooled(Input, ROIs, None, channels, attrs)


def _by_shift(f: Any, Input: Any, ROIs: Any, Trans: Any, Parts: Any, attrs: Mapping[str, Any]) -> Any:
    """The gradient, with respect to Trans, of the sum of ``Parts * moved_parts(Input, ROIs, Trans)``."""
    names = [name for name in _SLOPES if not attrs.get(name)]
    if attrs["no_trans"] or not names:  # linear between elements: the second derivative with respect to one coordinate is zero
        return f.fill_zeros_like(Trans)
    sums = []
    for name in names:
        parts = f.moved_parts(Input, ROIs, Trans, **{**attrs, name: True})
        sums.append(f.sum_of_shifts(Parts * parts, ROIs, Trans, **{key: attrs[key] for key in _MOVED}, along=name))
    return f.sum(sums)


@define(
    "deformable_psroi_pooling(Input: float[N, C, H, W], ROIs: float[R, 4], Trans: float[a, b, c, d]) -> TopCount, Output",
    infer=lambda Input, ROIs, Trans, attrs: (_moved_parts(Input, ROIs, Trans, attrs),) * 2,
    wrt=("Input", "Trans"),
    constants=("ROIs",),
    lod_aware=True,
    **_MOVED,
)
def deformable_psroi_pooling(
    f: Any, Input: Any, ROIs: Any, Trans: Any, TopCount: ShapeOnly, dOutput: Any, attrs: dict[str, Any]
) -> Any:
    """The mean of points in each part of each region ROIs [R, 4] of images Input [N, C, H, W], where each part may be moved.

    Output is [R, `output_dim`, `pooled_height`, `pooled_width`]. Coordinates of regions are rounded; of a part,
    `sample_per_part` by `sample_per_part` points are read by bilinear interpolation. TopCount says how many of them lie in the
    image. The parts of a region form `group_size` groups, each with its own channels.

    Trans [R, 2 * classes, `part_size`] says how far right and down a part is moved, relative to `trans_std` times the size of the
    region; the channels of Output are shared by the classes. With `no_trans`, nothing is moved.
    """
    return {
        "Input": lambda: f.moved_parts_back(dOutput, ROIs, Trans, Input, **attrs),
        "Trans": lambda: _by_shift(f, Input, ROIs, Trans, dOutput, attrs),
    }


@define("moved_parts(Input, ROIs, Trans) -> Output", infer=_moved_parts, wrt=("Input", "Trans"), constants=("ROIs",),
        lod_aware=True, **_MOVED, **_SLOPES)  # fmt: skip
def moved_parts(f: Any, Input: Any, ROIs: Any, Trans: Any, dOutput: Any, attrs: dict[str, Any]) -> Any:
    """The Output of `deformable_psroi_pooling`; with `along_x`, `along_y` or both its derivative by the x or y of its points."""
    return {
        "Input": lambda: f.moved_parts_back(dOutput, ROIs, Trans, Input, **attrs),
        "Trans": lambda: _by_shift(f, Input, ROIs, Trans, dOutput, attrs),
    }


def _whole_of_parts(Output: Spec, ROIs: Spec, Trans: Spec, Like: Spec, attrs: Mapping[str, Any]) -> Spec:
    expected = _moved_parts(Like, ROIs, Trans, attrs)
    if not may_equal(Output.shape, expected.shape):
        raise InferenceError(f"Output {Output} should be {expected}, as ROIs and the attributes say")
    return Like


@define("moved_parts_back(Output, ROIs, Trans, Like) -> Input", infer=_whole_of_parts, wrt=("Output", "Trans"),
        shape_only=("Like",), lod_aware=True, **_MOVED, **_SLOPES)  # fmt: skip
def moved_parts_back(f: Any, Output: Any, ROIs: Any, Trans: Any, dInput: Any, attrs: dict[str, Any]) -> Any:
    """Output spread over images shaped like Like: the transpose of `moved_parts` with respect to the image."""
    return {
        "Output": lambda: f.moved_parts(dInput, ROIs, Trans, **attrs),
        "Trans": lambda: _by_shift(f, dInput, ROIs, Trans, Output, attrs),
    }


@define("sum_of_shifts(X, ROIs, Like) -> Out", infer=like("Like"), wrt=("X",), shape_only=("Like",), constants=("ROIs",),
        lod_aware=True, along=choice("along_x", "along_y"), **_MOVED)  # fmt: skip
def sum_of_shifts(f: Any, X: ShapeOnly, ROIs: Any, Like: ShapeOnly, dOut: Any, attrs: dict[str, Any]) -> Any:
    """Sum the numbers X of all parts of regions for each number in Trans that moves them; the result is shaped like Like.

    A number is multiplied by the part's shift for 1 in Trans: `trans_std` times the region's width, or its height with "along_y".
    """
    return {"X": f.shift_of_parts(dOut, ROIs, X, **attrs)}


@define("shift_of_parts(Out, ROIs, Like) -> X", infer=like("Like"), wrt=("Out",), shape_only=("Like",), constants=("ROIs",),
        lod_aware=True, along=choice("along_x", "along_y"), **_MOVED)  # fmt: skip
def shift_of_parts(f: Any, Out: ShapeOnly, ROIs: Any, Like: ShapeOnly, dX: Any, attrs: dict[str, Any]) -> Any:
    """The shift of each part, shaped like Like, by Out, shaped as Trans is: the transpose of `sum_of_shifts`."""
    return {"Out": f.sum_of_shifts(dX, ROIs, Out, **attrs)}


# ---------------------------------------------------------------------------------------------- deformable convolution
_WINDOWS: dict[str, Any] = {
    "strides": least(1, counted(ints(1, 1))),
    "paddings": least(0, counted(ints(0, 0))),
    "dilations": least(1, counted(ints(1, 1))),
    "deformable_groups": least(1, 1),
}
_CONVOLUTION: dict[str, Any] = {**_WINDOWS, "groups": least(1, 1), "im2col_step": least(1, 64)}


def _has(spec: Spec, name: str, axis: int, size: int, unit: str) -> None:
    if size >= 0 and spec.shape[axis] not in (-1, size):
        raise InferenceError(f"{name} {spec} should have {size} {unit}")


def _convolved(Input: Spec, Offset: Spec, Filter: Spec, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> Spec:
    groups, parts, Mask = attrs["groups"], attrs["deformable_groups"], inputs.get("Mask")
    channels, taps = Input.shape[1], Filter.shape[2] * Filter.shape[3] if -1 not in Filter.shape[2:] else -1
    if channels >= 0 and channels % parts:
        raise InferenceError(f"the channels of Input {Input} cannot be shared among {parts} deformable_groups")
    if Filter.shape[1] >= 0:
        _has(Input, "Input", 1, Filter.shape[1] * groups, f"channels: Filter {Filter} reads them in {groups} groups")
    if Filter.shape[0] > 0 and Filter.shape[0] % groups:
        raise InferenceError(f"the output channels of Filter {Filter} cannot be shared among {groups} groups")
    sizes = []
    for place, axis in enumerate((2, 3)):
        window = attrs["dilations"][place] * (Filter.shape[axis] - 1) + 1 if Filter.shape[axis] >= 0 else -1
        size = steps_of_window(Input.shape[axis], window, attrs["strides"][place], (attrs["paddings"][place],) * 2)
        if size == 0 or Filter.shape[axis] == 0:
            raise InferenceError(
                f"Filter {Filter} (dilations {attrs['dilations']}) should not be larger than the padded Input {Input}, nor empty"
            )
        for name, spec in (("Offset", Offset), ("Mask", Mask)):
            if spec is not None:
                _has(spec, name, axis, size, f"elements along axis {axis}, as the output has")
        sizes.append(size)
    for name, spec, count in (("Offset", Offset, 2 * parts), ("Mask", Mask, parts)):
        if spec is not None and taps >= 0:
            unit = "channels: a y and an x" if name == "Offset" else "channels: a factor"
            _has(spec, name, 1, count * taps, f"{unit} for each of {taps} elements of the filter in {parts} deformable_groups")
    return Input.with_shape((Input.shape[0], Filter.shape[0], *sizes))


def _through_convolution(
    f: Any, Input: Any, Offset: Any, Mask: Any, Filter: Any, dOutput: Any, attrs: Mapping[str, Any]
) -> dict[str, Any]:
    """The gradients of a deformable convolution: an ordinary one of columns, images of K rows and a column per output place."""
    windows, groups = {name: attrs[name] for name in _WINDOWS}, attrs["groups"]
    kernel = f.unsqueeze2(f.flatten_contiguous_range(Filter, start_axis=2, stop_axis=3), axes=[3])
    places = f.unsqueeze2(f.flatten_contiguous_range(dOutput, start_axis=2, stop_axis=3), axes=[2])

    @cache
    def back() -> Any:
        return f.conv2d_transpose(places, kernel, groups=groups)

    def by_filter() -> Any:
        columns = f.deform_columns(Input, Offset, Mask, Filter, **windows)
        return f.reshape_like(f.conv2d_backprop_filter(columns, places, kernel, groups=groups), Filter)

    return {
        "Input": lambda: f.deform_image(back(), Offset, Mask, Filter, Input, **windows),
        "Offset": lambda: _through_offset(f, Input, Offset, Mask, Filter, back(), windows),
        "Mask": lambda: f.deform_mask(Input, Offset, Filter, back(), **windows),
        "Filter": by_filter,
    }


@define(
    "deformable_conv(Input: float[N, C, H, W], Offset: float[N, O, h, w], Filter: float[M, I, a, b], Mask: float[N, K, h, w])"
    " -> Output",
    infer=_convolved,
    **_CONVOLUTION,
)
def deformable_conv(f: Any, Input: Any, Offset: Any, Filter: Any, Mask: Any, dOutput: Any, attrs: dict[str, Any]) -> Any:
    """Convolution of images [N, C, H, W] with a filter [M, C/groups, a, b] at places that Offset moves.

    For each output place and each element of the filter, Offset [N, 2 * `deformable_groups` * a * b, H', W'] holds how far
    down and right of its usual place the image is read, by bilinear interpolation with zeros outside. The value read is
    multiplied by Mask [N, `deformable_groups` * a * b, H', W']. Each group of channels has its own offsets. `im2col_step` has no
    effect.
    """
    return _through_convolution(f, Input, Offset, Mask, Filter, dOutput, attrs)


@define(
    "deformable_conv_v1(Input: float[N, C, H, W], Offset: float[N, O, h, w], Filter: float[M, I, a, b]) -> Output",
    infer=_convolved,
    **_CONVOLUTION,
)
def deformable_conv_v1(f: Any, Input: Any, Offset: Any, Filter: Any, dOutput: Any, attrs: dict[str, Any]) -> Any:
    """`deformable_conv` without Mask: all factors are 1."""
    return _through_convolution(f, Input, Offset, None, Filter, dOutput, attrs)


def _through_offset(f: Any, Input: Any, Offset: Any, Mask: Any, Filter: Any, Columns: Any, attrs: Mapping[str, Any]) -> Any:
    """The gradient, with respect to Offset, of the sum of ``Columns * deform_columns(Input, Offset, Mask)``."""
    names = [name for name in ("along_y", "along_x") if not attrs.get(name)]
    if not names:  # linear between elements: the second derivative with respect to one coordinate is zero
        return f.fill_zeros_like(Offset)
    slopes = {name: f.deform_mask(Input, Offset, Filter, Columns, **{**attrs, name: True}) for name in names}
    gradients = {name: slope if Mask is None else slope * Mask for name, slope in slopes.items()}
    zeros = f.fill_zeros_like(gradients[names[0]]) if len(names) == 1 else None
    return f.reshape_like(f.stack([gradients.get("along_y", zeros), gradients.get("along_x", zeros)], axis=2), Offset)


def _columns(Input: Spec, Offset: Spec, Filter: Spec) -> Spec:
    places = Offset.shape[2] * Offset.shape[3] if -1 not in Offset.shape[2:] else -1
    return Input.with_shape((*Input.shape[:2], Filter.shape[2] * Filter.shape[3] if -1 not in Filter.shape[2:] else -1, places))


@define(
    "deform_columns(Input: float[N, C, H, W], Offset: float[N, D, P, Q], Mask?: float[N, M, P, Q], Filter) -> Columns",
    infer=_columns,
    wrt=("Input", "Offset", "Mask"),
    shape_only=("Filter",),
    **_WINDOWS,
    **_SLOPES,
)
def deform_columns(f: Any, Input: Any, Offset: Any, Mask: Any, Filter: ShapeOnly, dColumns: Any, attrs: dict[str, Any]) -> Any:
    """The elements that a `deformable_conv` reads: [N, C, K, P], K the elements of a Filter, P the output places.

    With `along_x`, `along_y` or both, its derivative with respect to the x or y of the places.
    """
    return {
        "Input": lambda: f.deform_image(dColumns, Offset, Mask, Filter, Input, **attrs),
        "Offset": lambda: _through_offset(f, Input, Offset, Mask, Filter, dColumns, attrs),
        "Mask": lambda: f.deform_mask(Input, Offset, Filter, dColumns, **attrs),
    }


@define(
    "deform_image(Columns: float[N, C, K, R], Offset: float[N, D, P, Q], Mask?: float[N, M, P, Q], Filter, Like) -> Input",
    infer=like("Like"),
    wrt=("Columns", "Offset", "Mask"),
    shape_only=("Filter", "Like"),
    **_WINDOWS,
    **_SLOPES,
)
def deform_image(f: Any, Columns: Any, Offset: Any, Mask: Any, Filter: ShapeOnly, dInput: Any, attrs: dict[str, Any]) -> Any:
    """Columns spread over images shaped like Like: the transpose of `deform_columns` with respect to the image."""
    return {
        "Columns": lambda: f.deform_columns(dInput, Offset, Mask, Filter, **attrs),
        "Offset": lambda: _through_offset(f, dInput, Offset, Mask, Filter, Columns, attrs),
        "Mask": lambda: f.deform_mask(dInput, Offset, Filter, Columns, **attrs),
    }


def _mask_shape(Offset: Spec) -> Spec:
    numbers, offsets, *image = Offset.shape
    return Offset.with_shape((numbers, offsets // 2 if offsets >= 0 else -1, *image))


@define(
    "deform_mask(Input: float[N, C, H, W], Offset: float[N, D, P, Q], Filter, Columns: float[N, C, K, R]) -> Mask",
    infer=_mask_shape,
    wrt=("Input", "Offset", "Columns"),
    shape_only=("Filter",),
    **_WINDOWS,
    **_SLOPES,
)
def deform_mask(f: Any, Input: Any, Offset: Any, Filter: ShapeOnly, Columns: Any, dMask: Any, attrs: dict[str, Any]) -> Any:
    """The sum over the channels of a group of Columns times what `deform_columns` reads: its transpose for the mask."""
    return {
        "Input": lambda: f.deform_image(Columns, Offset, dMask, Filter, Input, **attrs),
        "Offset": lambda: _through_offset(f, Input, Offset, dMask, Filter, Columns, attrs),
        "Columns": lambda: f.deform_columns(Input, Offset, dMask, Filter, **attrs),
    }
