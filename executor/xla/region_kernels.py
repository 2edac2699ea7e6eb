"""Kernels of regions of images for XLA: they compute all regions at once, each over its entire image, because the extent of a
region is known only at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from fluid.values.spec import Lod

from ..kernels.roi import bin_weights, edges_of, images_of, integrated, sampled
from ..kernels.table import kernel
from .arrays import wrap
from .kernels import KERNELS
from .namespace import XP

register = partial(kernel, table=KERNELS)
AxisWeights = Callable[..., Any]
"""Weights [R, parts, extent] of the elements along one axis, as in `fluid.executor.kernels.roi`."""


def _sampled(xp: Any, first: Any, last: Any, parts: int, extent: int, attrs: dict[str, Any], axis: int) -> Any:
    """Like `sampled`; if the number of samples depends on the size of a region, XLA computes it."""
    if attrs["sampling_ratio"] > 0:
        return sampled(xp, first, last, parts, extent, attrs, axis)
    half = 0.5 if attrs["aligned"] else 0.0
    start, end = (jnp.asarray(edge.read()) * attrs["spatial_scale"] - half for edge in (first, last))
    size = end - start if attrs["aligned"] else jnp.maximum(end - start, 1)
    step = (size / parts)[:, None]
    counts = jnp.ceil(step)
    elements = np.arange(extent)

    def add(sample: Any, weights: Any) -> Any:
        share = 1 / jnp.maximum(counts, 1)
        at = start[:, None] + np.arange(parts) * step + (sample + 0.5) * step * share
        share = jnp.where((sample < counts) & (at >= -1) & (at <= extent), share, 0)[..., None]
        at = jnp.clip(at, 0, extent - 1)[..., None]
        near = jnp.maximum(1 - jnp.abs(at - elements), 0)  # of the two elements beside a place
        return weights + (share * near).astype(weights.dtype)

    zeros = jnp.zeros((start.shape[0], parts, extent), first.dtype)
    most = counts.max().astype(np.int32) if counts.size else 0
    return wrap(lax.fori_loop(0, most, add, zeros))


def _weights(image: Any, ROIs: Any, axis_weights: AxisWeights, attrs: dict[str, Any]) -> tuple[Any, Any]:
    """The weights of rows and of columns of all regions, for images of the shape of `image`."""
    left, top, right, bottom = edges_of(ROIs, image.dtype)
    down = axis_weights(XP, top, bottom, attrs["pooled_height"], image.shape[2], attrs, 1)
    across = axis_weights(XP, left, right, attrs["pooled_width"], image.shape[3], attrs, 0)
    return down.read(), across.read()


def _parts(shape: Sequence[int], attrs: dict[str, Any]) -> tuple[tuple[int, ...], str]:
    """The shape of the images with axes for the parts, if each part has separate channels; and letters for all axes but the
    first."""
    if "output_channels" in attrs:  # each part has its own channels
        return (shape[0], attrs["output_channels"], attrs["pooled_height"], attrs["pooled_width"], *shape[2:]), "cijhw"
    return tuple(shape), "chw"


def _average(X: Any, ROIs: Any, images: list[int], axis_weights: AxisWeights, attrs: dict[str, Any], Out: Any) -> None:
    if not X.size or not Out.size:
        Out.fill(0)
        return
    down, across = _weights(X, ROIs, axis_weights, attrs)
    shape, letters = _parts(X.shape, attrs)
    seen = X.reshape(shape).read()[np.asarray(images)]
    Out.write(jnp.einsum(f"rih,r{letters},rjw->rcij", down, seen, across).astype(Out.dtype))


def _average_back(Out: Any, ROIs: Any, images: list[int], axis_weights: AxisWeights, attrs: dict[str, Any], X: Any) -> None:
    X.fill(0)
    if not X.size or not Out.size:
        return
    down, across = _weights(X, ROIs, axis_weights, attrs)
    shape, letters = _parts(X.shape, attrs)
    by_region = jnp.einsum(f"rih,rcij,rjw->r{letters}", down, Out.read(), across).astype(X.dtype)
    total = jnp.zeros(shape, X.dtype).at[np.asarray(images)].add(by_region)
    X.write(total.reshape(X.shape))


def _define_averages(op_type: str, axis_weights: AxisWeights) -> None:
    @register(op_type)
    def forward(X: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, attrs: dict[str, Any], Out: Any) -> None:
        _average(X, ROIs, images_of(ROIs, RoisNum, ROIs_lod, len(X)), axis_weights, attrs, Out)

    @register(f"{op_type}_back")
    def back(Out: Any, ROIs: Any, RoisNum: Any, ROIs_lod: Lod, attrs: dict[str, Any], X: Any) -> None:
        _average_back(Out, ROIs, images_of(ROIs, RoisNum, ROIs_lod, len(X)), axis_weights, attrs, X)


_define_averages("roi_align", _sampled)
_define_averages("psroi_pool", bin_weights)


@register("prroi_pool", "precise_parts")
def precise_parts(X: Any, ROIs: Any, ROIs_lod: Lod, attrs: dict[str, Any], Out: Any) -> None:
    _average(X, ROIs, images_of(ROIs, None, ROIs_lod, len(X)), integrated, attrs, Out)


@register("precise_parts_back")
def precise_parts_back(Out: Any, ROIs: Any, ROIs_lod: Lod, attrs: dict[str, Any], X: Any) -> None:
    _average_back(Out, ROIs, images_of(ROIs, None, ROIs_lod, len(X)), integrated, attrs, X)
