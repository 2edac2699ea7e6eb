"""Ops on regions of interest, and convolution at places that are learned.

The regions, ROIs [R, 4], are rows of left, top, right and bottom; times `spatial_scale` these are coordinates in the image. The
regions of an image are a sequence of the rows of ROIs or, where RoisNum is given, as many rows as that says.

All ops are linear in the image: the gradient of an op is its transpose, whose gradient is the op again. A deformable
convolution is a convolution of `deform_columns`, which is linear in image and mask. The transposes of that are `deform_image`
and `deform_mask`; the gradients of each of the three are the other two. For the gradient with respect to the offsets, the
interpolation weights are replaced by their slopes along x and y (`along_x`, `along_y`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..errors import InferenceError
from ..opdef.registry import ShapeOnly, at_most, counted, define, ints, least, like
from ..values.spec import Spec
from ..values.types import VarType
from .conv import steps_of_window
from .sequence import offsets_of

_REGIONS = "ROIs: float[R, 4], RoisNum?: int[N]"
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
    define(signature, infer=like("Like"), wrt=("Out",), shape_only=("Like",), lod_aware=True, **attributes)(back)


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


@define(
    "roi_place(Out, Argmax, ROIs, RoisNum?, Like) -> X", infer=like("Like"), wrt=("Out",), shape_only=("Like",), lod_aware=True
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


# ---------------------------------------------------------------------------------------------- deformable convolution
_WINDOWS: dict[str, Any] = {
    "strides": least(1, counted(ints(1, 1))),
    "paddings": least(0, counted(ints(0, 0))),
    "dilations": least(1, counted(ints(1, 1))),
    "deformable_groups": least(1, 1),
}
_CONVOLUTION: dict[str, Any] = {**_WINDOWS, "groups": least(1, 1), "im2col_step": least(1, 64)}
_SLOPES: dict[str, Any] = {"along_x": False, "along_y": False}


def _has(spec: Spec, name: str, axis: int, size: int, what: str) -> None:
    if size >= 0 and spec.shape[axis] not in (-1, size):
        raise InferenceError(f"{name} {spec} should have {size} {what}")


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
    for name, spec, each in (("Offset", Offset, 2 * parts), ("Mask", Mask, parts)):
        if spec is not None and taps >= 0:
            what = "channels: a y and an x" if name == "Offset" else "channels: a factor"
            _has(spec, name, 1, each * taps, f"{what} for each of {taps} elements of the filter in {parts} deformable_groups")
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
    down and right of its usual place the image is read, by bilinear interpolation with zeros outside. What is read is
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


@define("deform_columns(Input, Offset, Mask?, Filter) -> Columns", infer=_columns, wrt=("Input", "Offset", "Mask"),
        shape_only=("Filter",), **_WINDOWS, **_SLOPES)  # fmt: skip
def deform_columns(f: Any, Input: Any, Offset: Any, Mask: Any, Filter: ShapeOnly, dColumns: Any, attrs: dict[str, Any]) -> Any:
    """What a `deformable_conv` reads for the K elements of a filter of Filter's size at its P output places: [N, C, K, P].

    With `along_x`, `along_y` or both, its derivative with respect to the x or y of the places.
    """
    return {
        "Input": lambda: f.deform_image(dColumns, Offset, Mask, Filter, Input, **attrs),
        "Offset": lambda: _through_offset(f, Input, Offset, Mask, Filter, dColumns, attrs),
        "Mask": lambda: f.deform_mask(Input, Offset, Filter, dColumns, **attrs),
    }


@define("deform_image(Columns, Offset, Mask?, Filter, Like) -> Input", infer=like("Like"), wrt=("Columns", "Offset", "Mask"),
        shape_only=("Filter", "Like"), **_WINDOWS, **_SLOPES)  # fmt: skip
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


@define("deform_mask(Input, Offset, Filter, Columns) -> Mask", infer=_mask_shape, wrt=("Input", "Offset", "Columns"),
        shape_only=("Filter",), **_WINDOWS, **_SLOPES)  # fmt: skip
def deform_mask(f: Any, Input: Any, Offset: Any, Filter: ShapeOnly, Columns: Any, dMask: Any, attrs: dict[str, Any]) -> Any:
    """The sum over the channels of a group of Columns times what `deform_columns` reads: its transpose for the mask."""
    return {
        "Input": lambda: f.deform_image(Columns, Offset, dMask, Filter, Input, **attrs),
        "Offset": lambda: _through_offset(f, Input, Offset, dMask, Filter, Columns, attrs),
        "Columns": lambda: f.deform_columns(Input, Offset, dMask, Filter, **attrs),
    }
