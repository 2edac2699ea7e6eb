"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...errors import FormatError
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from .padding import padded_for_same


def padding(
    node: OnnxNode, count: int, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """The padding before and after each spatial dimension; `windows` are sizes with their dilations.

    Sizes must be known for ``auto_pad=SAME_*`` (see `padded`).
    """
    auto = node.string("auto_pad", "NOTSET")
    if auto == "VALID":
        return [(0, 0)] * count
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pairs = []
        for size, window, stride in zip(sizes, windows, strides, strict=True):
            total = max((-(-size // stride) - 1) * stride + window - size, 0)
            less = total // 2
            pairs.append((less, total - less) if auto == "SAME_UPPER" else (total - less, less))
        return pairs
    if auto != "NOTSET":
        raise FormatError(f"its auto_pad {auto!r} should be NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    pads = node.ints("pads", [0] * 2 * count)
    if len(pads) != 2 * count:
        raise FormatError(f"its pads {pads} should be {2 * count} numbers")
    return list(zip(pads[:count], pads[count:], strict=True))


def padded(
    b: Builder, node: OnnxNode, x: Any, windows: Sequence[int], strides: Sequence[int], dilations: Sequence[int], value: Any
) -> tuple[Any, list[tuple[int, int]], str]:
    """Pad an image at run time if its padding depends on sizes known only at run time.

    Args:
        windows: the sizes of the window, with dilations.
        value: the number to pad with.

    Returns:
        The image, the padding for the op itself, and Fluid's attribute padding_algorithm.
    """
    nothing = [(0, 0)] * (x.ndim - 2)
    if not node.string("auto_pad").startswith("SAME") or -1 not in x.shape[2:]:
        return x, padding(node, x.ndim - 2, x.shape[2:], windows, strides), "EXPLICIT"
    if node.string("auto_pad") == "SAME_UPPER" and all(by == 1 for by in dilations):
        return x, nothing, "SAME"
    return padded_for_same(b, node, x, windows, strides, value), nothing, "EXPLICIT"


def numbers(node: OnnxNode, name: str, count: int) -> list[int]:
    """An attribute with a number, by default 1, for each spatial dimension."""
    values = node.ints(name, [1] * count)
    if len(values) != count or any(number < 1 for number in values):
        raise FormatError(f"its {name} {values} should be {count} numbers above 0")
    return [int(number) for number in values]


def as_image(b: Builder, x: Any, count: int) -> Any:
    """Convert rows [N, C, W] to images of height 1, the input of Fluid's ops."""
    return b.unsqueeze(x, [2]) if count == 1 else x


def spread(values: Sequence[Any], count: int, first: Any) -> list[Any]:
    """Prepend a number for the height if rows are treated as images."""
    return [first, *values] if count == 1 else list(values)


def flat(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Paddings as Fluid lists them."""
    if all(before == after for before, after in pairs):
        return [before for before, _ in pairs]
    return [number for pair in pairs for number in pair]


@imports("Conv")
def conv(b: Builder, node: OnnxNode) -> Any:
    return convolved(b, node, node[0], node[1], node.get(2))


def convolved(b: Builder, node: OnnxNode, x: Any, weight: Any, bias: Any, zero_points: Sequence[Any] = ()) -> Any:
    """Convolve by the attributes of a node.

    Args:
        zero_points: of integers, the zero points of `x` and `weight`; None for 0.
    """
    count = x.ndim - 2
    if count not in (1, 2, 3):
        raise FormatError(f"X has {x.ndim} dimensions; it should have 3 to 5")
    strides, dilations = numbers(node, "strides", count), numbers(node, "dilations", count)
    kernel = [(size - 1) * by + 1 for size, by in zip(weight.shape[2:], dilations, strict=True)]
    border = 0 if not zero_points or zero_points[0] is None else zero_points[0]
    x, pads, algorithm = padded(b, node, x, kernel, strides, dilations, border)
    if any(number < 0 for pair in pads for number in pair):
        raise FormatError(f"its pads {pads} should not be negative")
    group = node.int("group", 1)
    image, filters = as_image(b, x, count), as_image(b, weight, count)
    attrs = {
        "strides": spread(strides, count, 1),
        "paddings": flat(spread(pads, count, (0, 0))),
        "dilations": spread(dilations, count, 1),
        "groups": group,
        "padding_algorithm": algorithm,
    }
    is_depthwise = group > 1 and group == x.shape[1] == weight.shape[0] and count < 3
    if zero_points:
        out = b.f.conv2d_integer(image, filters, *zero_points, **attrs)
    else:
        op = b.f.conv3d if count == 3 else b.f.depthwise_conv2d if is_depthwise else b.f.conv2d
        out = op(image, filters, **attrs)
    if bias is not None:
        out = b.f.elementwise_add(out, bias, axis=1)
    return b.squeeze(out, [2]) if count == 1 else out


@imports("ConvTranspose")
def conv_transpose(b: Builder, node: OnnxNode) -> Any:
    x, weight, bias = node[0], node[1], node.get(2)
    count = x.ndim - 2
    strides, dilations = numbers(node, "strides", count), numbers(node, "dilations", count)
    extra = node.ints("output_padding", [0] * count)
    windows = [(size - 1) * by + 1 for size, by in zip(weight.shape[2:], dilations, strict=True)]
    full_sizes = [(s - 1) * by + w if s >= 0 else -1 for s, by, w in zip(x.shape[2:], strides, windows, strict=True)]
    output_shape = node.ints("output_shape")
    auto = node.string("auto_pad", "NOTSET")
    if output_shape is not None or auto.startswith("SAME"):
        if -1 in full_sizes:
            raise FormatError("output_shape and auto_pad are not supported for images whose size is known only at run time")
        sizes = (
            output_shape[-count:] if output_shape is not None else [s * by for s, by in zip(x.shape[2:], strides, strict=True)]
        )
        pads = []
        for full, size, extra_size in zip(full_sizes, sizes, extra, strict=True):
            total = full + extra_size - size
            less = total // 2
            pads.append((less, total - less) if auto == "SAME_UPPER" else (total - less, less))
    else:
        pads = padding(node, count, x.shape[2:], windows, strides)
    image, filters = as_image(b, x, count), as_image(b, weight, count)
    op = b.f.conv3d_transpose if count == 3 else b.f.conv2d_transpose
    out = op(
        image, filters, strides=spread(strides, count, 1), dilations=spread(dilations, count, 1), groups=node.int("group", 1)
    )
    axes, before, after, starts, ends = [], [0, 0], [0, 0], [], []
    for place, ((low, high), extra_size) in enumerate(zip(spread(pads, count, (0, 0)), spread(extra, count, 0), strict=True)):
        high -= extra_size
        before.append(max(-low, 0))
        after.append(max(-high, 0))
        if low > 0 or high > 0:
            axes.append(place + 2)
            starts.append(max(low, 0))
            ends.append(-high if high > 0 else 2**31 - 1)
    if axes:
        out = b.f.slice(out, axes=axes, starts=starts, ends=ends)
    if any(before) or any(after):
        out = b.f.pad(out, paddings=[n for pair in zip(before, after, strict=True) for n in pair], pad_value=0.0)
    if bias is not None:
        out = b.f.elementwise_add(out, bias, axis=1)
    return b.squeeze(out, [2]) if count == 1 else out


def _places(b: Builder, size: list[int], block: list[int], strides: list[int], dilations: list[int], pads: list[int]) -> Any:
    """The image index of each patch element in each patch, [block, patches]; the image size where it lies outside."""
    places, is_inside = np.zeros((1, 1), np.int64), np.ones((1, 1), bool)
    for axis, extent in enumerate(size):
        span = dilations[axis] * (block[axis] - 1) + 1
        count = (extent + pads[axis] + pads[axis + len(size)] - span) // strides[axis] + 1
        b.reserve(block[axis], count, itemsize=16)
        at = np.arange(block[axis])[:, None] * dilations[axis] + np.arange(max(count, 0)) * strides[axis] - pads[axis]
        shape = (places.shape[0] * at.shape[0], places.shape[1] * at.shape[1])
        b.reserve(*shape, itemsize=32)
        places = (places[:, None, :, None] * extent + at[None, :, None, :]).reshape(shape)
        is_inside = (is_inside[:, None, :, None] & ((at >= 0) & (at < extent))[None, :, None, :]).reshape(shape)
    return np.where(is_inside, places, prod(size))


def _added_patches(b: Builder, x: Any, size: list[int], block: list[int], places: Any) -> Any:
    """Add up overlapping patches [N, C * block, patches] into images [N, C, ...] of a size."""
    if x.shape[1] < 0:
        raise FormatError("columns of images of other than two dimensions should have a number of channels that is known")
    channels = x.shape[1] // prod(block)
    rows = b.transpose(b.f.reshape2(x, shape=[0, channels, *places.shape]), [2, 3, 0, 1])
    rows = b.f.reshape2(rows, shape=[places.size, -1, channels])
    like = {"shape": [prod(size) + 1, -1, channels], "input_dim_idx": 0, "output_dim_idx": 1, "dtype": int(x.dtype)}
    zeros = b.f.fill_constant_batch_size_like(x, value=0.0, **like)
    summed = b.slice(b.f.scatter_nd_add(zeros, b.constant(places.reshape(-1, 1)), rows), 0, 0, prod(size))
    count = len(size)
    return b.transpose(b.f.reshape2(summed, shape=[*size, -1, channels]), [count, count + 1, *range(count)])


@imports("Col2Im")
def col2im(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    size, block = (node.constant_input(n, "its sizes").reshape(-1).tolist() for n in (1, 2))
    count = len(size)
    strides, dilations = numbers(node, "strides", count), numbers(node, "dilations", count)
    pads = node.ints("pads", [0] * 2 * count)
    if count != 2:
        return _added_patches(b, x, size, block, _places(b, size, block, strides, dilations, pads))
    return b.f.fold(x, output_sizes=size, kernel_sizes=block, strides=strides, paddings=pads, dilations=dilations)


@imports("DeformConv")
def deform_conv(b: Builder, node: OnnxNode) -> Any:
    x, weight, offset, bias, mask = node[0], node[1], node[2], node.get(3), node.get(4)
    strides, dilations = numbers(node, "strides", 2), numbers(node, "dilations", 2)
    pads = padding(node, 2, x.shape[2:], weight.shape[2:], strides)
    if any(before != after for before, after in pads):
        raise FormatError(f"its pads {pads} should be the same on both sides")
    attrs = {
        "strides": strides,
        "paddings": [before for before, _ in pads],
        "dilations": dilations,
        "groups": node.int("group", 1),
        "deformable_groups": node.int("offset_group", 1),
    }
    attrs["im2col_step"] = 1
    if mask is None:
        out = b.f.deformable_conv_v1(x, offset, weight, **attrs)
    else:
        out = b.f.deformable_conv(x, offset, mask, weight, **attrs)
    return out if bias is None else b.f.elementwise_add(out, bias, axis=1)
