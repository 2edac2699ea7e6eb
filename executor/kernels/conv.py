"""Kernels of `fluid.ops.conv`: the patches under the filter are laid out as a matrix, the rest is matrix products.

Two layouts are used, and the cheaper one by estimate is taken. *By sample*, patches are [N, C h w, H' W'] and each image
is one product: no layout but the patches' own changes. *Batch last*, images are first turned to [C, H, W, N]: patches
then consist of long runs, and one large product takes all images at once, at the price of turning inputs and outputs.
Images are taken some at a time, so that the patches stay within a few MiB.

On a GPU with cuDNN, a convolution is one call of cuDNN instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any

from fluid.ops.conv import conv_geometry, image_axes

from ..runtime.cudnn import CuDnnConvolution, convolution_call, has_cudnn, layout_of
from ..runtime.products import product_call
from .sums import sum_over
from .table import Call, fill, prepared

_PATCHES = 2 << 20
"""Elements of patches that are laid out at a time, unless one image has more."""


@dataclass(frozen=True)
class _Geometry:
    """A convolution's extents, with images seen as [N, C, H, W], or [N, C, D, H, W]."""

    images: int
    channels: int
    extents: tuple[int, ...]
    filters: int
    kernel: tuple[int, ...]
    out: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilations: tuple[int, ...]
    groups: int

    @property
    def padded(self) -> tuple[int, ...]:
        return tuple(extent + sum(pad) for extent, pad in zip(self.extents, self.pads, strict=True))

    @property
    def inner(self) -> tuple[slice, ...]:
        """The slices of the image in the padded image."""
        return tuple(slice(pad[0], pad[0] + extent) for extent, pad in zip(self.extents, self.pads, strict=True))

    def under(self, tap: tuple[int, ...]) -> tuple[slice, ...]:
        """The elements of the padded image that lie under one tap of the filter."""
        starts = [place * dilation for place, dilation in zip(tap, self.dilations, strict=True)]
        return tuple(
            slice(start, start + stride * (extent - 1) + 1, stride)
            for start, stride, extent in zip(starts, self.strides, self.out, strict=True)
        )

    @property
    def is_padded(self) -> bool:
        return self.padded != self.extents

    @property
    def is_pointwise(self) -> bool:
        """The images are their own patches."""
        return set(self.kernel) == set(self.strides) == {1} and not self.is_padded

    @property
    def taps(self) -> int:
        """Rows of the matrix of patches, of all groups."""
        return self.channels * prod(self.kernel)

    @property
    def places(self) -> int:
        """Elements of one channel of one output image."""
        return prod(self.out)

    @property
    def covers_image(self) -> bool:
        """Whether the output has an element for each window of the image."""
        sizes = zip(self.padded, self.kernel, self.dilations, self.strides, self.out, strict=True)
        return all((size - (taps - 1) * dilation - 1) // stride + 1 == out for size, taps, dilation, stride, out in sizes)

    def batch_last(self, scatters: bool) -> bool:
        """Whether the layout with the batch last is cheaper (`scatters`: patches are also added back to images).

        What patches cost grows with the number of runs in them; the constants are measured.
        """
        if self.is_pointwise or self.images == 1:
            return False
        run = self.out[-1] if self.strides[-1] == 1 else 1
        images = run * self.images if self.strides[-1] == 1 else self.images
        saved = self.taps * self.places * (12 if scatters else 4) * (1 / run - 1 / images)
        return saved > 0.7 * (self.filters * self.places + self.channels * prod(self.extents))


def _geometry(image: Any, filter_: Any, out: Any, attrs: dict[str, Any]) -> _Geometry:
    """The geometry of a convolution of `image` to `out`, which may lack the last windows of a larger image."""
    shape = image.shape
    _, pads, dilations = conv_geometry(shape, filter_.shape[2:], attrs)
    channel, axes = image_axes(attrs["data_format"], len(shape))
    return _Geometry(
        shape[0],
        shape[channel],
        tuple(shape[axis] for axis in axes),
        filter_.shape[0],
        filter_.shape[2:],
        tuple(out.shape[axis] for axis in axes),
        tuple(attrs["strides"]),
        tuple(pads),
        tuple(dilations),
        max(attrs["groups"], 1),
    )


def _is_channels_last(image: Any, data_format: str) -> bool:
    return image_axes(data_format, image.ndim)[0] != 1


def _channels_first(image: Any, data_format: str) -> Any:
    if not _is_channels_last(image, data_format):
        return image
    return image.transpose(0, image.ndim - 1, *range(1, image.ndim - 1))


def _by_cudnn(
    xp: Any, scratch: Any, kind: str, geometry: _Geometry, arrays: tuple[Any, Any, Any], filter_: Any, data_format: str
) -> list[Call] | None:
    """Make the call of cuDNN that computes a convolution or one of its gradients; None if cuDNN cannot.

    Args:
        arrays: two operands and the result.
        filter_: that one of the three that is the filter, or its gradient.
    """
    left, right, out = arrays
    if not has_cudnn(xp) or not geometry.covers_image or {array.dtype for array in arrays} != {out.dtype}:
        return None
    if not all(array.size and array.flags.c_contiguous for array in arrays):
        return None
    of_left, of_right, of_out = (
        layout_of(array if array is filter_ else _channels_first(array, data_format)) for array in arrays
    )
    before, after = zip(*geometry.pads, strict=True)
    device, name, pads = xp.cuda.Device().id, out.dtype.name, (before, after)
    convolution = CuDnnConvolution(device, kind, name, of_left, of_right, of_out, pads, geometry.strides, geometry.dilations)
    call = convolution_call(xp, scratch, convolution, left, right, out)
    return None if call is None else [call]


def _swapped(array: Any) -> Any:
    """`array` with its first two axes swapped."""
    return array.swapaxes(0, 1)


class _Layout:
    """Patches of some images in one of the two layouts; `ready` calls lay out images, `add_back` is the transpose."""

    def __init__(self, xp: Any, scratch: Any, geometry: _Geometry, dtype: Any, scatters: bool, contiguous: bool) -> None:
        self.xp, self.geometry, self.scratch, self.dtype = xp, geometry, scratch, dtype
        g = geometry
        self.batch_last = not contiguous or g.batch_last(scatters)
        self.size = min(g.images, max(1, _PATCHES // max(g.taps * g.places, 1)))
        if not self.batch_last:  # also bounds the memory of the filter gradients, one for each image
            self.size = min(self.size, max(1, _PATCHES // max(g.filters * g.taps // g.groups, 1)))
        self.size = -(-g.images // -(-g.images // self.size)) if g.images else 1  # parts of about the same size
        self.is_direct = g.is_pointwise and not self.batch_last
        self._padded: Any = None
        self._patches: Any = None
        self._turned: Any = None

    def chunks(self) -> list[tuple[int, int]]:
        """Bounds of the images that are taken together."""
        return [(start, min(start + self.size, self.geometry.images)) for start in range(0, self.geometry.images, self.size)]

    def patches(self, count: int) -> Any:
        """The matrices of patches of `count` images: [count, groups, taps, places], or [groups, taps, places * count]."""
        g = self.geometry
        if self._patches is None:
            self._patches = self.scratch((g.taps * g.places * self.size,), self.dtype)
        flat = self._patches[: g.taps * g.places * count]
        if self.batch_last:
            return flat.reshape(g.groups, g.taps // g.groups, g.places * count)
        return flat.reshape(count, g.groups, g.taps // g.groups, g.places)

    def _windowed(self, count: int) -> Any:
        """The patches as [C, h, w, N, H', W'], or [C, h, w, H', W', N] with the batch last."""
        g = self.geometry
        patches = self.patches(count)
        if self.batch_last:
            return patches.reshape(g.channels, *g.kernel, *g.out, count)
        return self.xp.moveaxis(patches.reshape(count, g.channels, *g.kernel, *g.out), 0, 1 + len(g.kernel))

    def _frame(self, images: Any) -> Any:
        """The array to take patches from: the images, or an array with room for the padding."""
        g, count = self.geometry, len(images)
        if not self.batch_last and not g.is_padded:
            return _swapped(images)
        image_size = g.channels * prod(g.padded)
        if self._padded is None:
            self._padded = self.scratch((image_size * self.size,), self.dtype)
        flat = self._padded[: image_size * count]
        if self.batch_last:
            return flat.reshape(g.channels, *g.padded, count)
        return _swapped(flat.reshape(count, g.channels, *g.padded))

    def _inner(self, frame: Any) -> Any:
        """The part of a frame that holds the images, as [N, C, H, W]."""
        inner = self.geometry.inner
        if self.batch_last:
            return self.xp.moveaxis(frame[(slice(None), *inner)], -1, 0)
        return _swapped(frame[(slice(None), slice(None), *inner)])

    def lay_out(self, images: Any) -> tuple[list[Call], Any]:
        """Lay out the patches of images as matrices; returns the calls and the matrices."""
        g, xp, count = self.geometry, self.xp, len(images)
        if self.is_direct:
            return [], images.reshape(count, g.groups, g.channels // g.groups, g.places)
        frame = self._frame(images)
        steps: list[Call] = []
        if self.batch_last or g.is_padded:
            if g.is_padded:
                steps.append(partial(xp.copyto, frame, 0))
            steps.append(partial(xp.copyto, self._inner(frame), images))
        places = frame.strides[1:-1] if self.batch_last else frame.strides[2:]
        between_taps = [place * dilation for place, dilation in zip(places, g.dilations, strict=True)]
        between_windows = [place * stride for place, stride in zip(places, g.strides, strict=True)]
        if self.batch_last:
            shape: tuple[int, ...] = (g.channels, *g.kernel, *g.out, count)
            strides = (frame.strides[0], *between_taps, *between_windows, frame.strides[-1])
        else:
            shape = (g.channels, *g.kernel, count, *g.out)
            strides = (frame.strides[0], *between_taps, frame.strides[1], *between_windows)
        windows = xp.lib.stride_tricks.as_strided(frame, shape, strides)
        return [*steps, partial(xp.copyto, self._windowed(count), windows)], self.patches(count)

    def add_back(self, images: Any) -> list[Call]:
        """Calls that set images to the sums of their elements' copies in the patches."""
        g, xp = self.geometry, self.xp
        frame = self._frame(images)
        windowed = self._windowed(len(images))
        steps: list[Call] = [partial(xp.copyto, frame, 0)]
        at = (slice(None),) * (1 if self.batch_last else 2)
        for tap in product(*map(range, g.kernel)):
            target = frame[at + g.under(tap)]
            steps.append(partial(xp.add, target, windowed[(slice(None), *tap)], target))
        if self.batch_last or g.is_padded:
            steps.append(partial(xp.copyto, images, self._inner(frame)))
        return steps

    def outputs(self, array: Any) -> tuple[Any, Any]:
        """Outputs [N, M, H', W'] in the layout of the products; if that is a copy, also its view in the shape of the outputs."""
        g, count = self.geometry, len(array)
        if not self.batch_last:
            return array.reshape(count, g.groups, g.filters // g.groups, g.places), None
        if self._turned is None:
            self._turned = self.scratch((g.filters * g.places * self.size,), self.dtype)
        turned = self._turned[: g.filters * g.places * count]
        matrix = turned.reshape(g.groups, g.filters // g.groups, g.places * count)
        return matrix, self.xp.moveaxis(turned.reshape(g.filters, *g.out, count), -1, 0)


def _forward(xp: Any, scratch: Any, image: Any, filter_: Any, out: Any, attrs: dict[str, Any]) -> list[Call]:
    g = _geometry(image, filter_, out, attrs)
    if (by_cudnn := _by_cudnn(xp, scratch, "fprop", g, (image, filter_, out), filter_, attrs["data_format"])) is not None:
        return by_cudnn
    contiguous = not _is_channels_last(image, attrs["data_format"])
    image, out = (_channels_first(array, attrs["data_format"]) for array in (image, out))
    if not out.size:
        return []
    layout = _Layout(xp, scratch, g, out.dtype, False, contiguous)
    weights = filter_.reshape(g.groups, g.filters // g.groups, g.taps // g.groups)
    steps: list[Call] = []
    for start, end in layout.chunks():
        lay_out, patches = layout.lay_out(image[start:end])
        product, turned = layout.outputs(out[start:end])
        steps += [*lay_out, product_call(xp, weights, patches, product)]
        if turned is not None:
            steps.append(partial(xp.copyto, out[start:end], turned))
    return steps


def _backward(
    xp: Any, scratch: Any, image: Any, filter_: Any, out: Any, d_image: Any, d_filter: Any, attrs: dict[str, Any]
) -> list[Call]:
    """Calls that compute the gradients of image and filter (None to skip one) from the gradient `out` of the output."""
    g = _geometry(image if d_image is None else d_image, filter_ if d_filter is None else d_filter, out, attrs)
    if not out.size:
        return [fill(xp, array, 0) for array in (d_image, d_filter) if array is not None]
    operands = (out, filter_, d_image) if d_filter is None else (image, out, d_filter)
    kind, of_filters = ("dgrad", filter_) if d_filter is None else ("wgrad", d_filter)
    if (by_cudnn := _by_cudnn(xp, scratch, kind, g, operands, of_filters, attrs["data_format"])) is not None:
        return by_cudnn
    contiguous = not _is_channels_last(out, attrs["data_format"])
    image, out, d_image = (
        None if array is None else _channels_first(array, attrs["data_format"]) for array in (image, out, d_image)
    )
    layout = _Layout(xp, scratch, g, out.dtype, d_image is not None, contiguous)
    matrix = (g.groups, g.filters // g.groups, g.taps // g.groups)
    filter_part = None
    is_outer = g.filters == g.groups  # with one filter in each group, an outer product
    combine = partial(partial, xp.multiply) if is_outer else partial(product_call, xp)
    steps: list[Call] = []
    for start, end in layout.chunks():
        gradient, turned = layout.outputs(out[start:end])
        if turned is not None:
            steps.append(partial(xp.copyto, turned, out[start:end]))
        if d_filter is not None:
            target = d_filter.reshape(matrix)
            lay_out, patches = layout.lay_out(image[start:end])
            steps += lay_out
            if layout.batch_last:
                if start and filter_part is None:
                    filter_part = scratch(matrix, out.dtype)
                product = filter_part if start else target
                steps.append(product_call(xp, gradient, patches.swapaxes(1, 2), product))
                if start:
                    steps.append(partial(xp.add, target, product, target))
            else:
                if filter_part is None:
                    filter_part = scratch((layout.size + 1, *matrix), out.dtype)
                count = end - start
                if start:  # the sum so far is one more term
                    steps.append(partial(xp.copyto, filter_part[count], target))
                steps.append(product_call(xp, gradient, patches.swapaxes(2, 3), filter_part[:count]))
                steps += sum_over(xp, filter_part[: count + (start > 0)], (0,), target, scratch)
        if d_image is not None:
            weights = filter_.reshape(matrix).swapaxes(1, 2)
            part = d_image[start:end]
            if layout.is_direct:
                steps.append(combine(weights, gradient, part.reshape(end - start, g.groups, g.channels // g.groups, g.places)))
            else:
                steps.append(combine(weights, gradient, layout.patches(end - start)))
                steps += layout.add_back(part)
    return steps


@prepared("conv2d", "depthwise_conv2d", "conv3d")
def conv2d(xp: Any, scratch: Any, Input: Any, Filter: Any, attrs: dict[str, Any], Output: Any) -> list[Call]:
    return _forward(xp, scratch, Input, Filter, Output, attrs)


@prepared("conv2d_backprop_input", "conv3d_backprop_input")
def conv2d_backprop_input(xp: Any, scratch: Any, Filter: Any, Output: Any, attrs: dict[str, Any], Input: Any) -> list[Call]:
    return _backward(xp, scratch, None, Filter, Output, Input, None, attrs)


@prepared("conv2d_backprop_filter", "conv3d_backprop_filter")
def conv2d_backprop_filter(xp: Any, scratch: Any, Input: Any, Output: Any, attrs: dict[str, Any], Filter: Any) -> list[Call]:
    return _backward(xp, scratch, Input, None, Output, None, Filter, attrs)


@prepared("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose")
def conv2d_transpose(xp: Any, scratch: Any, Input: Any, Filter: Any, attrs: dict[str, Any], Output: Any) -> list[Call]:
    return _backward(xp, scratch, None, Filter, Input, Output, None, attrs)
