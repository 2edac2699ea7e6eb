"""Kernels by XLA's operations, faster than the common kernels; this table has precedence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce, wraps
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from fluid.opdef.tables import OpTable
from fluid.ops.conv import conv_geometry, image_axes

from ..kernels import norm, pool
from ..kernels.selected_rows import all_at_once, row_by_row
from ..kernels.table import Kernel, sparse
from ..kernels.table import kernel as register
from .arrays import empty, operands
from .rows import add_to_rows

KERNELS: OpTable[Kernel] = OpTable("kernel of XLA")
SPARSE_KERNELS: OpTable[Kernel] = OpTable("kernel of XLA for sparse rows")
kernel = partial(register, table=KERNELS)


# -------------------------------------------------------------------------------------------------------- convolutions
def channels_last(image: Any, data_format: str) -> Any:
    """A view of images whose channels lie behind their places: as XLA's convolutions of CPUs want them."""
    channel, places = image_axes(data_format, image.ndim)
    return image.transpose(0, *places, channel)


class _ImageConvolution:
    """A convolution of images (channels last) with filters of certain shapes, and its transposes; `image` is the shape of the
    images in the layout of `attrs`."""

    def __init__(self, attrs: Any, image: tuple[int, ...], filters: tuple[int, ...]) -> None:
        _, pads, self.dilations = conv_geometry(image, filters[2:], attrs)
        _, places = image_axes(attrs["data_format"], len(image))
        self.strides, self.groups = tuple(attrs["strides"]), max(attrs["groups"], 1)
        self.axes = "DHW"[-len(places) :]
        self.images = f"N{self.axes}C"
        self.pads = [(before, after) for before, after in pads]
        self.sizes = [image[axis] for axis in places]
        self.windows = filters[2:]

    def of(self, image: Any, filters: Any) -> Any:
        return lax.conv_general_dilated(
            image,
            filters,
            window_strides=self.strides,
            padding=self.pads,
            rhs_dilation=self.dilations,
            dimension_numbers=(self.images, f"OI{self.axes}", self.images),
            feature_group_count=self.groups,
        )

    def _spans(self, received: Any) -> list[int]:
        """The extent of the results along each axis, spread out by the strides."""
        counts = received.shape[1:-1]
        return [max((count - 1) * stride + 1, 0) for count, stride in zip(counts, self.strides, strict=True)]

    def to_image(self, filters: Any, received: Any) -> Any:
        """Each element of a result goes back to the places that it came from, by the same weights: with the strides between the
        elements, this is a convolution by filters that are turned round."""
        groups, outer = self.groups, filters.shape[0] // self.groups
        turned = lax.rev(filters, tuple(range(2, filters.ndim)))
        if groups > 1:  # [groups, outer, inner, ...] to [outer, groups * inner, ...]
            apart = lax.reshape(turned, (groups, outer, *turned.shape[1:]))
            turned = lax.reshape(jnp.swapaxes(apart, 0, 1), (outer, groups * turned.shape[1], *self.windows))
        pads = []
        for size, window, dilation, (before, _), span in zip(
            self.sizes, self.windows, self.dilations, self.pads, self._spans(received), strict=True
        ):
            reach = (window - 1) * dilation
            pads.append((reach - before, size + before - span))
        return lax.conv_general_dilated(
            received,
            turned,
            window_strides=(1,) * len(self.windows),
            padding=pads,
            lhs_dilation=self.strides,
            rhs_dilation=self.dilations,
            dimension_numbers=(self.images, f"IO{self.axes}", self.images),
            feature_group_count=groups,
        )

    def to_filters(self, image: Any, received: Any) -> Any:
        """The gradient of the filters: a convolution of the images by `received`, with channels in the place of the batch."""
        pads = []
        for size, window, dilation, (before, _), span in zip(
            self.sizes, self.windows, self.dilations, self.pads, self._spans(received), strict=True
        ):
            pads.append((before, (window - 1) * dilation + span - size - before))
        image, pads = _with_cut_places(image, pads)
        by_channel = self.images.translate(str.maketrans("NC", "CN"))
        return lax.conv_general_dilated(
            image,
            received,
            window_strides=self.dilations,
            padding=pads,
            rhs_dilation=self.strides,
            dimension_numbers=(by_channel, self.images.translate(str.maketrans("NC", "IO")), f"CN{self.axes}"),
            batch_group_count=self.groups,
        )


def _with_cut_places(image: Any, pads: list[tuple[int, int]]) -> tuple[Any, list[tuple[int, int]]]:
    """Pad an image (channels last) along the axes that are padded before and cut behind; returns it, and the pads that remain.

    XLA computes wrong filters on CPUs if a convolution does both along an axis of extent 1, for 64 images, say.
    """
    are_cut = [after < 0 < before for before, after in pads]
    if not any(are_cut):
        return image, pads
    now = [(*pad, 0) if is_cut else (0, 0, 0) for pad, is_cut in zip(pads, are_cut, strict=True)]
    image = lax.pad(image, jnp.zeros((), image.dtype), [(0, 0, 0), *now, (0, 0, 0)])
    return image, [(0, 0) if is_cut else pad for pad, is_cut in zip(pads, are_cut, strict=True)]


def _to_image(attrs: Any, filters: Any, received: Any, image: Any) -> None:
    """Apply the transposed convolution with these filters to `received`, into `image`."""
    convolution, data_format = _ImageConvolution(attrs, image.shape, filters.shape), attrs["data_format"]
    value = convolution.to_image(*operands(filters, channels_last(received, data_format)))
    channels_last(image, data_format).write(value)


def _to_filters(attrs: Any, image: Any, received: Any, filters: Any) -> None:
    """Apply the transposed convolution, as a function of the filters for this image, to `received`, into `filters`."""
    convolution, data_format = _ImageConvolution(attrs, image.shape, filters.shape), attrs["data_format"]
    filters.write(convolution.to_filters(*operands(channels_last(image, data_format), channels_last(received, data_format))))


@kernel("conv2d", "depthwise_conv2d", "conv3d")
def convolve(Input: Any, Filter: Any, attrs: Any, Output: Any) -> None:
    convolution, data_format = _ImageConvolution(attrs, Input.shape, Filter.shape), attrs["data_format"]
    channels_last(Output, data_format).write(convolution.of(*operands(channels_last(Input, data_format), Filter)))


@kernel("conv2d_backprop_input", "conv3d_backprop_input")
def convolve_back_to_input(Filter: Any, Output: Any, attrs: Any, Input: Any) -> None:
    _to_image(attrs, Filter, Output, Input)


@kernel("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose")
def transposed_convolution(Input: Any, Filter: Any, attrs: Any, Output: Any) -> None:
    _to_image(attrs, Filter, Input, Output)


@kernel("conv2d_backprop_filter", "conv3d_backprop_filter")
def convolve_back_to_filter(Input: Any, Output: Any, attrs: Any, Filter: Any) -> None:
    _to_filters(attrs, Input, Output, Filter)


# ------------------------------------------------------------------------------------------------------------- pooling
@kernel("pool2d_grad", "pool3d_grad")
def pool_grad(xp: Any, X: Any, dOut: Any, pooling_type: str, exclusive: bool, attrs: Any, dX: Any) -> None:
    windows = pool.overlapping_maxima(X.shape, attrs) if pooling_type == "max" and X.size else []
    if not windows:
        for call in pool.pool_grad(xp, xp.empty, X, dOut, pooling_type, exclusive, attrs, dX):
            call()
        return
    data_format = attrs["data_format"]
    images, gradients = (channels_last(array, data_format).read() for array in (X, dOut))
    channels_last(dX, data_format).write(_maxima_back(images, gradients, windows))


def _maxima_back(images: Any, gradients: Any, windows: Sequence[Any]) -> Any:
    """The gradient of maxima of windows, of images with channels last.

    It goes from each window to the first row that has the maximum, and then to the first element there. A NaN is greater than
    all numbers, and padding less than all elements.
    """
    spans = [(axis.out - 1) * axis.stride + axis.size for axis in windows]
    pads = [
        (0, 0, 0),
        *((axis.pad[0], span - axis.extent - axis.pad[0], 0) for axis, span in zip(windows, spans, strict=True)),
        (0, 0, 0),
    ]
    lowest = jnp.finfo(images.dtype).min.astype(images.dtype)
    levels = [lax.pad(jnp.maximum(images, lowest), np.array(-np.inf, images.dtype), pads)]
    for number, axis in reversed(list(enumerate(windows, 1))):
        levels.append(reduce(jnp.maximum, (_under(tap, levels[-1], number, axis) for tap in range(axis.size))))
    zero = np.zeros((), gradients.dtype)
    for number, (axis, span) in enumerate(zip(windows, spans, strict=True), 1):
        maxima, elements = levels.pop(), levels[-1]
        is_free, parts = jnp.ones(maxima.shape, bool), []
        for tap in range(axis.size):
            value = _under(tap, elements, number, axis)
            is_first = is_free & ((value == maxima) | (value != value))
            is_free = is_free & ~is_first
            around = [(0, 0, 0)] * maxima.ndim
            around[number] = (tap, span - tap - (axis.out - 1) * axis.stride - 1, axis.stride - 1)
            parts.append(lax.pad(jnp.where(is_first, gradients, zero), zero, around))
        gradients = reduce(jnp.add, parts)
    return lax.pad(gradients, zero, [(-before, -after, 0) for before, after, _ in pads])


def _under(tap: int, elements: Any, number: int, axis: Any) -> Any:
    """The elements at one place of all windows along an axis."""
    return lax.slice_in_dim(elements, tap, tap + (axis.out - 1) * axis.stride + 1, axis.stride, number)


# --------------------------------------------------------------------------------------------------------- batch_norm
def _on_channels_last(run: Callable[..., list[Any]], images: Sequence[str], out: str) -> None:
    """Register a common kernel; if the channels of X lie last, on images whose channels are last. `out` is the image it gives."""

    @kernel(run.__name__)
    @wraps(run)
    def compute(**operands: Any) -> None:
        wanted = operands[out]
        operands["scratch"] = operands["xp"].empty
        is_turned = operands["data_layout"] == "NCHW" and operands["X"].axes is not None
        if is_turned:
            operands |= {name: channels_last(operands[name], "NCHW") for name in images} | {"data_layout": "NHWC"}
            if wanted is not None:
                operands[out] = empty(channels_last(wanted, "NCHW").shape, wanted.dtype)
        for call in run(**operands):
            call()
        if is_turned and wanted is not None:
            channels_last(wanted, "NCHW").write(operands[out].read())


_on_channels_last(norm.batch_norm, ["X"], "Y")
_on_channels_last(norm.batch_norm_grad, ["X", "dY"], "dX")


# ------------------------------------------------------------------------- kernels that need known values on numpy
@kernel("truncated_gaussian_random")
def truncated_gaussian_random(rng: Any, mean: float, std: float, Out: Any) -> None:
    drawn = rng().truncated_normal(-2.0, 2.0, Out.shape, Out.dtype)
    Out[...] = drawn * std + mean


@kernel("random_crop")
def random_crop(xp: Any, rng: Any, X: Any, Seed: Any, shape: list[int], startup_seed: int, Out: Any, SeedOut: Any) -> None:
    seed = Seed.reshape(-1)[0] if Seed is not None else startup_seed
    generator = xp.random.default_rng(seed) if Seed is not None or startup_seed else rng()
    leading = X.ndim - len(shape)
    items, parts = X.reshape(-1, *X.shape[leading:]), Out.reshape(-1, *shape)
    room = [extent - size + 1 for extent, size in zip(X.shape[leading:], shape, strict=True)]
    starts = [generator.integers(0, places, len(items)).read() for places in room]
    parts.write(jax.vmap(lambda item, *start: lax.dynamic_slice(item, start, shape))(jnp.asarray(items.read()), *starts))
    if SeedOut is not None:
        SeedOut[...] = generator.integers(0, 2**62)


@kernel("searchsorted")
def searchsorted(SortedSequence: Any, Values: Any, right: bool, Out: Any) -> None:
    find = partial(jnp.searchsorted, side="right" if right else "left")
    if SortedSequence.ndim > 1:
        rows, values = (array.reshape(-1, array.shape[-1]).read() for array in (SortedSequence, Values))
        places = jax.vmap(find)(jnp.asarray(rows), jnp.asarray(values))
    else:
        places = find(jnp.asarray(SortedSequence.read()), jnp.asarray(Values.read()))
    Out.write(lax.convert_element_type(places.reshape(Out.shape), Out.dtype))


@kernel("gather_tree")
def gather_tree(Ids: Any, Parents: Any, Out: Any) -> None:
    def step(beams: Any, ids_and_parents: Any) -> Any:
        ids, parents = ids_and_parents
        chosen, before = (jnp.take_along_axis(values, beams, 1, mode="clip") for values in (ids, parents))
        return before.astype(beams.dtype), chosen

    if Out.size:
        last = jnp.broadcast_to(jnp.arange(Ids.shape[2]), Ids.shape[1:])
        Out.write(lax.scan(step, last, (jnp.asarray(Ids.read()), jnp.asarray(Parents.read())), reverse=True)[1])


@kernel("place_at_most")
def place_at_most(X: Any, Index: Any, Out: Any) -> None:
    Out.fill(0)
    if X.size:
        index = Index.reshape(Index.shape[0], -1).read()
        columns = np.arange(index.shape[1])
        rows = jnp.where(index < 0, len(Out), index)  # gaps get an index past the end
        flat = Out.reshape(len(Out), -1)
        flat.write(jnp.asarray(flat.read()).at[rows, columns].set(X.reshape(X.shape[0], -1).read(), mode="drop"))


@kernel("masked_pick")
def masked_pick(X: Any, Mask: Any, Out: Any) -> None:
    places = jnp.nonzero(Mask.reshape(-1).read(), size=Out.size, fill_value=0)[0]
    Out.write(X.reshape(-1).read()[places].reshape(Out.shape))


@kernel("masked_place")
def masked_place(X: Any, Mask: Any, Out: Any) -> None:
    mask = Mask.read()
    if not X.size:
        Out.fill(0)
        return
    number = lax.cumsum(mask.reshape(-1).astype(np.int64)) - 1
    placed = X.reshape(-1).read().at[number].get(mode="clip").reshape(mask.shape)
    Out.write(jnp.where(mask, placed, 0))


# --------------------------------------------------------------------------------------------------------- sparse rows
@sparse("sgd", table=SPARSE_KERNELS)
def sgd_of_rows(Param: Any, Grad: Any, LearningRate: Any, ParamOut: Any) -> None:
    """With at least one id for each row of the table, steps of one id are added up first: one alone may be too small."""
    step, param = (Grad.value * -LearningRate.reshape(())).astype(Param.dtype).read(), jnp.asarray(Param.read())
    if len(step) < len(param):
        ParamOut.write(add_to_rows(param, Grad.index.read(), step))
    else:
        total = add_to_rows(jnp.zeros_like(param), Grad.index.read(), step)
        ParamOut.write(param + lax.optimization_barrier(total))  # XLA would scatter into the parameter


def _define_update(op_type: str) -> None:
    @sparse(op_type, table=SPARSE_KERNELS)
    def compute(xp: Any, scratch: Any, rng: Any, inputs: Any, outputs: Any, attrs: Any) -> None:
        is_lazy = attrs.get("lazy_mode", False)
        (row_by_row if is_lazy else all_at_once)(op_type, xp, scratch, rng, inputs, outputs, attrs)


for _op_type in ("adam", "adamw", "momentum", "adamax", "adadelta", "decayed_adagrad", "lion", "nadam", "radam", "rmsprop"):
    _define_update(_op_type)


# ----------------------------------------------------------------------------------------------------- complex numbers
@kernel("complex")
def complex_numbers(X: Any, Y: Any, Out: Any) -> None:
    Out.write(lax.complex(*(jnp.broadcast_to(part.read(), Out.shape) for part in (X, Y))))


@kernel("as_complex")
def as_complex(X: Any, Out: Any) -> None:
    pairs = jnp.asarray(X.read())
    Out.write(lax.complex(pairs[..., 0], pairs[..., 1]))


@kernel("as_real")
def as_real(X: Any, Out: Any) -> None:
    Out.write(jnp.stack([jnp.real(X.read()), jnp.imag(X.read())], -1))


@kernel("angle")
def angle(X: Any, Out: Any) -> None:
    Out.write(jnp.angle(X.read()))
