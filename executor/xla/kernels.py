"""Kernels for XLA's own operations, where they are faster than what the common kernels say: a second table, asked first."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jax import lax

from fluid.ops.conv import conv_geometry, image_axes

from ..kernels.table import Kernel
from ..kernels.table import kernel as register

__all__ = ["KERNELS", "SPARSE_KERNELS"]

KERNELS: dict[str, Kernel] = {}
SPARSE_KERNELS: dict[str, Kernel] = {}
kernel = partial(register, table=KERNELS)


# -------------------------------------------------------------------------------------------------------- convolutions
def _convolution(attrs: Any, image: tuple[int, ...], filters: tuple[int, ...]) -> Any:
    """The convolution of images and filters of these shapes, as a function."""
    _, pads, dilations = conv_geometry(image, filters[2:], attrs)
    axes = "DHW"[-(len(image) - 2) :]
    is_last = image_axes(attrs["data_format"], len(image))[0] != 1
    images = f"N{axes}C" if is_last else f"NC{axes}"
    return partial(
        lax.conv_general_dilated,
        window_strides=tuple(attrs["strides"]),
        padding=[tuple(pad) for pad in pads],
        rhs_dilation=tuple(dilations),
        dimension_numbers=(images, f"OI{axes}", images),
        feature_group_count=max(attrs["groups"], 1),
    )


def _of_image(attrs: Any, image: Any, filters: Any) -> Any:
    """The convolution with these filters, and its transpose, for images like `image`."""
    convolve = _convolution(attrs, image.shape, filters.shape)
    weights = filters.read()
    return jax.linear_transpose(lambda x: convolve(x, weights), jax.ShapeDtypeStruct(image.shape, image.dtype))


def _of_filters(attrs: Any, image: Any, filters: Any) -> Any:
    convolve = _convolution(attrs, image.shape, filters.shape)
    pixels = image.read()
    return jax.linear_transpose(lambda w: convolve(pixels, w), jax.ShapeDtypeStruct(filters.shape, filters.dtype))


@kernel("conv2d", "depthwise_conv2d", "conv3d")
def convolve(Input: Any, Filter: Any, attrs: Any, Output: Any) -> None:
    Output.write(_convolution(attrs, Input.shape, Filter.shape)(Input.read(), Filter.read()))


@kernel("conv2d_grad", "depthwise_conv2d_grad", "conv3d_grad")
def convolve_back(Input: Any, Filter: Any, dOutput: Any, attrs: Any, dInput: Any, dFilter: Any) -> None:
    if dInput is not None:
        dInput.write(_of_image(attrs, Input, Filter)(dOutput.read())[0])
    if dFilter is not None:
        dFilter.write(_of_filters(attrs, Input, Filter)(dOutput.read())[0])


@kernel("conv2d_backprop_input", "conv3d_backprop_input")
def convolve_back_to_input(Filter: Any, Output: Any, attrs: Any, Input: Any) -> None:
    Input.write(_of_image(attrs, Input, Filter)(Output.read())[0])


@kernel("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose")
def transposed_convolution(Input: Any, Filter: Any, attrs: Any, Output: Any) -> None:
    Output.write(_of_image(attrs, Output, Filter)(Input.read())[0])


@kernel("conv2d_backprop_filter", "conv3d_backprop_filter")
def convolve_back_to_filter(Input: Any, Output: Any, attrs: Any, Filter: Any) -> None:
    Filter.write(_of_filters(attrs, Input, Filter)(Output.read())[0])
