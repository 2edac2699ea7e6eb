"""Samples of `fluid.ops.conv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("conv")


def amounts(size: int, kernel: int, stride: int, dilation: int, padding: Sequence[int], algorithm: str) -> tuple[int, int, int]:
    """Padding before and after, and the dilation that counts, of one dimension."""
    if algorithm == "VALID":
        return 0, 0, dilation
    if algorithm == "SAME":
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        return total // 2, total - total // 2, 1
    return padding[0], padding[1], dilation


def both_sides(paddings: Sequence[int]) -> list[Sequence[int]]:
    return [paddings[0:2], paddings[2:4]] if len(paddings) == 4 else [[p, p] for p in paddings]


def convolved(
    Input: Any,
    Filter: Any,
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
    data_format: str = "NCHW",
    padding_algorithm: str = "EXPLICIT",
) -> Any:
    x = np.moveaxis(Input, -1, 1) if data_format == "NHWC" else Input
    out_channels, per_group, *kernel = Filter.shape
    sides = both_sides(paddings)
    (top, bottom, down), (left, right, across) = (
        amounts(x.shape[2 + i], kernel[i], strides[i], dilations[i], sides[i], padding_algorithm) for i in range(2)
    )
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    height = (x.shape[2] - (kernel[0] - 1) * down - 1) // strides[0] + 1
    width = (x.shape[3] - (kernel[1] - 1) * across - 1) // strides[1] + 1
    out = np.zeros((x.shape[0], out_channels, height, width), x.dtype)
    for o in range(out_channels):
        first = o // (out_channels // groups) * per_group
        for i in range(height):
            for j in range(width):
                rows = slice(i * strides[0], i * strides[0] + (kernel[0] - 1) * down + 1, down)
                columns = slice(j * strides[1], j * strides[1] + (kernel[1] - 1) * across + 1, across)
                out[:, o, i, j] = (x[:, first : first + per_group, rows, columns] * Filter[o]).sum((1, 2, 3))
    return np.moveaxis(out, 1, -1) if data_format == "NHWC" else out


add(
    "conv2d",
    *(
        Sample({"Input": data(*x), "Filter": data(*w)}, attrs, convolved)
        for x, w, attrs in (
            ((2, 3, 5, 4), (4, 3, 3, 2), {}),
            ((1, 2, 4, 4), (3, 2, 1, 1), {}),
            ((2, 2, 5, 6), (2, 2, 3, 3), {"strides": [2, 1], "paddings": [1, 1]}),
            ((1, 2, 6, 6), (2, 2, 3, 3), {"strides": [2, 2], "paddings": [1, 1]}),
            ((1, 2, 7, 6), (2, 2, 2, 3), {"dilations": [2, 2], "paddings": [1, 2]}),
            ((2, 4, 4, 4), (6, 2, 3, 3), {"groups": 2, "paddings": [1, 1]}),
            ((1, 2, 5, 5), (2, 2, 3, 3), {"paddings": [1, 0, 2, 1]}),
            ((1, 2, 5, 6), (2, 2, 3, 2), {"strides": [2, 2], "padding_algorithm": "SAME"}),
            ((1, 2, 5, 5), (2, 2, 2, 2), {"paddings": [1, 1], "padding_algorithm": "VALID"}),
            ((1, 5, 4, 2), (3, 2, 3, 3), {"data_format": "NHWC", "paddings": [1, 1]}),
            ((1, 1, 3, 3), (1, 1, 3, 3), {}),
        )
    ),
)
add(
    "depthwise_conv2d",
    Sample({"Input": data(2, 3, 5, 5), "Filter": data(3, 1, 3, 3)}, {"groups": 3, "paddings": [1, 1]}, convolved),
    Sample({"Input": data(1, 2, 5, 5), "Filter": data(4, 1, 3, 3)}, {"groups": 2, "strides": [2, 2]}, convolved),
)


def spread(
    Input: Any,
    Filter: Any,
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Any:
    """Each input element adds its multiple of the filter to the output."""
    n, channels, h, w = Input.shape
    _, per_group, kh, kw = Filter.shape
    height, width = (h - 1) * strides[0] + (kh - 1) * dilations[0] + 1, (w - 1) * strides[1] + (kw - 1) * dilations[1] + 1
    out = np.zeros((n, per_group * groups, height, width), Input.dtype)
    for c in range(channels):
        first = c // (channels // groups) * per_group
        for i in range(h):
            for j in range(w):
                rows = slice(i * strides[0], i * strides[0] + (kh - 1) * dilations[0] + 1, dilations[0])
                columns = slice(j * strides[1], j * strides[1] + (kw - 1) * dilations[1] + 1, dilations[1])
                out[:, first : first + per_group, rows, columns] += Input[:, c, i, j, None, None, None] * Filter[c]
    return out[:, :, paddings[0] : height - paddings[0], paddings[1] : width - paddings[1]]


add(
    "conv2d_transpose",
    Sample({"Input": data(2, 3, 3, 4), "Filter": data(3, 2, 3, 2)}, {}, spread),
    Sample({"Input": data(1, 2, 3, 3), "Filter": data(2, 2, 3, 3)}, {"strides": [2, 2], "paddings": [1, 1]}, spread),
    Sample({"Input": data(1, 4, 3, 3), "Filter": data(4, 2, 2, 2)}, {"groups": 2, "dilations": [2, 1]}, spread),
)


def linear_transpose(forward: Any, like: Any, cotangent: Any) -> Any:
    """The transpose of a linear function, entry by entry: what each unit of its argument gives, dotted with `cotangent`."""
    out = np.zeros(like.size, cotangent.dtype)
    for i in range(like.size):
        unit = np.zeros(like.size, cotangent.dtype)
        unit[i] = 1
        out[i] = (forward(unit.reshape(like.shape)) * cotangent).sum()
    return out.reshape(like.shape)


for x, w, attrs in (
    ((2, 2, 4, 4), (2, 2, 3, 2), {}),
    ((1, 2, 5, 6), (2, 2, 3, 3), {"strides": [2, 1], "paddings": [1, 1]}),
    ((1, 2, 6, 6), (2, 2, 3, 3), {"strides": [2, 2]}),
    ((1, 2, 5, 5), (2, 2, 2, 2), {"dilations": [2, 2], "paddings": [1, 0, 2, 1]}),
    ((1, 4, 3, 3), (4, 2, 3, 3), {"groups": 2, "paddings": [1, 1]}),
    ((1, 4, 4, 2), (3, 2, 3, 3), {"data_format": "NHWC", "padding_algorithm": "SAME"}),
):
    image, filter_ = data(*x), data(*w)
    output = data(*convolved(image, filter_, **attrs).shape)
    add(
        "conv2d_backprop_input",
        Sample(
            {"Filter": filter_, "Output": output, "Like": image},
            attrs,
            lambda Filter, Output, Like, **attrs: linear_transpose(lambda unit: convolved(unit, Filter, **attrs), Like, Output),
        ),
    )
    add(
        "conv2d_backprop_filter",
        Sample(
            {"Input": image, "Output": output, "Like": filter_},
            attrs,
            lambda Input, Output, Like, **attrs: linear_transpose(lambda unit: convolved(Input, unit, **attrs), Like, Output),
        ),
    )
