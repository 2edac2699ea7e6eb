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


def both_sides(paddings: Sequence[int], count: int = 2) -> list[Sequence[int]]:
    """Padding before and after each of `count` extents."""
    return [[p, p] for p in paddings] if len(paddings) == count else [paddings[2 * i : 2 * i + 2] for i in range(count)]


def channels_first(image: Any, data_format: str) -> Any:
    return np.moveaxis(image, -1, 1) if data_format.endswith("C") else image


def channels_as_asked(image: Any, data_format: str) -> Any:
    return np.moveaxis(image, 1, -1) if data_format.endswith("C") else image


def convolved(
    Input: Any,
    Filter: Any,
    strides: Sequence[int] = (1, 1, 1),
    paddings: Sequence[int] = (),
    dilations: Sequence[int] = (1, 1, 1),
    groups: int = 1,
    data_format: str = "NCHW",
    padding_algorithm: str = "EXPLICIT",
) -> Any:
    x = channels_first(Input, data_format)
    out_channels, per_group, *kernel = Filter.shape
    count = len(kernel)
    sides = both_sides(paddings or [0] * count, count)
    found = [amounts(x.shape[2 + i], kernel[i], strides[i], dilations[i], sides[i], padding_algorithm) for i in range(count)]
    x = np.pad(x, ((0, 0), (0, 0), *((before, after) for before, after, _ in found)))
    steps = [dilation for _, _, dilation in found]
    extents = [(x.shape[2 + i] - (kernel[i] - 1) * steps[i] - 1) // strides[i] + 1 for i in range(count)]
    out = np.zeros((x.shape[0], out_channels, *extents), x.dtype)
    for o, *at in np.ndindex(out_channels, *extents):
        first = o // (out_channels // groups) * per_group
        seen = tuple(
            slice(at[i] * strides[i], at[i] * strides[i] + (kernel[i] - 1) * steps[i] + 1, steps[i]) for i in range(count)
        )
        out[(slice(None), o, *at)] = (
            (x[(slice(None), slice(first, first + per_group), *seen)] * Filter[o]).reshape(len(x), -1).sum(1)
        )
    return channels_as_asked(out, data_format)


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


add(
    "conv3d",
    *(
        Sample({"Input": data(*x), "Filter": data(*w)}, attrs, convolved)
        for x, w, attrs in (
            ((2, 2, 3, 4, 3), (2, 2, 2, 3, 2), {}),
            ((1, 2, 4, 5, 3), (2, 2, 3, 3, 2), {"strides": [2, 1, 2], "paddings": [1, 1, 0]}),
            ((1, 2, 4, 4, 5), (4, 1, 2, 2, 2), {"groups": 2, "dilations": [1, 2, 2]}),
            ((1, 3, 3, 4, 2), (2, 2, 2, 2, 2), {"data_format": "NDHWC", "padding_algorithm": "SAME"}),
            ((3, 2, 2, 2, 2), (3, 2, 1, 1, 1), {}),
            ((1, 1, 2, 3, 3), (1, 1, 2, 2, 2), {"paddings": [1, 0, 0, 1, 1, 1]}),
        )
    ),
)


def spread(
    Input: Any,
    Filter: Any,
    strides: Sequence[int] = (1, 1, 1),
    paddings: Sequence[int] = (),
    dilations: Sequence[int] = (1, 1, 1),
    groups: int = 1,
    output_padding: Sequence[int] = (0, 0, 0),
    output_size: Sequence[int] = (),
    data_format: str = "NCHW",
    padding_algorithm: str = "EXPLICIT",
) -> Any:
    """Each input element adds its multiple of the filter to the output."""
    x = channels_first(Input, data_format)
    n, channels, *extents = x.shape
    _, per_group, *kernel = Filter.shape
    count = len(extents)
    sides = both_sides(paddings or [0] * count, count)
    found = [amounts(extents[i], kernel[i], strides[i], dilations[i], sides[i], padding_algorithm) for i in range(count)]
    dilations = [dilation for _, _, dilation in found]
    room = [(extents[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + strides[i] for i in range(count)]
    out = np.zeros((n, per_group * groups, *room), x.dtype)
    for c, *at in np.ndindex(channels, *extents):
        first = c // (channels // groups) * per_group
        under = tuple(
            slice(at[i] * strides[i], at[i] * strides[i] + (kernel[i] - 1) * dilations[i] + 1, dilations[i]) for i in range(count)
        )
        value = x[(slice(None), c, *at)].reshape(n, *[1] * (count + 1))
        out[(slice(None), slice(first, first + per_group), *under)] += value * Filter[c]
    kept = [
        slice(before, before + output_size[i] if output_size else room[i] - strides[i] - after + output_padding[i])
        for i, (before, after, _) in enumerate(found)
    ]
    return channels_as_asked(out[(slice(None), slice(None), *kept)], data_format)


add(
    "conv2d_transpose",
    Sample({"Input": data(2, 3, 3, 4), "Filter": data(3, 2, 3, 2)}, {}, spread),
    Sample({"Input": data(1, 2, 3, 3), "Filter": data(2, 2, 3, 3)}, {"strides": [2, 2], "paddings": [1, 1]}, spread),
    Sample({"Input": data(1, 4, 3, 3), "Filter": data(4, 2, 2, 2)}, {"groups": 2, "dilations": [2, 1]}, spread),
    Sample({"Input": data(1, 2, 3, 2), "Filter": data(2, 2, 2, 3)}, {"strides": [2, 3], "output_padding": [1, 0]}, spread),
    Sample({"Input": data(1, 3, 2, 2), "Filter": data(2, 2, 3, 3)}, {"strides": [2, 2], "data_format": "NHWC"}, spread),
    Sample({"Input": data(1, 2, 3, 4), "Filter": data(2, 1, 4, 3)}, {"strides": [2, 1], "padding_algorithm": "SAME"}, spread),
    Sample({"Input": data(1, 2, 3, 2), "Filter": data(2, 1, 1, 2)}, {"strides": [3, 2], "padding_algorithm": "SAME"}, spread),
    Sample({"Input": data(1, 2, 3, 3), "Filter": data(2, 1, 2, 3)}, {"paddings": [1, 1], "padding_algorithm": "VALID"}, spread),
    Sample({"Input": data(1, 2, 3, 3), "Filter": data(2, 1, 2, 3)}, {"paddings": [1, 0, 2, 0]}, spread),
    Sample(  # room for more windows than there are elements
        {"Input": data(1, 2, 3, 2), "Filter": data(2, 2, 2, 2)},
        {"strides": [1, 2], "dilations": [2, 3], "output_padding": [1, 2]},
        spread,
    ),
)
add(
    "depthwise_conv2d_transpose",
    Sample({"Input": data(2, 3, 3, 2), "Filter": data(3, 1, 2, 3)}, {"groups": 3}, spread),
    Sample(
        {"Input": data(1, 2, 3, 3), "Filter": data(2, 1, 3, 3)},
        {"groups": 2, "strides": [2, 2], "paddings": [1, 1], "output_size": [6, 5]},
        spread,
    ),
)
add(
    "conv3d_transpose",
    Sample({"Input": data(2, 2, 2, 3, 2), "Filter": data(2, 3, 2, 2, 3)}, {}, spread),
    Sample(
        {"Input": data(1, 4, 2, 2, 2), "Filter": data(4, 1, 2, 3, 2)},
        {"groups": 2, "strides": [2, 1, 2], "paddings": [0, 1, 1], "dilations": [1, 1, 2]},
        spread,
    ),
    Sample(
        {"Input": data(1, 2, 2, 2, 3), "Filter": data(2, 1, 2, 3, 2)},
        {"strides": [2, 1, 2], "padding_algorithm": "SAME", "dilations": [1, 1, 2]},
        spread,
    ),
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
    ((1, 2, 3, 4, 3), (2, 1, 2, 2, 3), {"strides": [1, 2, 1], "paddings": [0, 1, 1], "groups": 2}),
    ((1, 2, 3, 2, 2), (1, 2, 2, 2, 2), {"data_format": "NDHWC"}),
):
    image, filter_ = data(*x), data(*w)
    output = data(*convolved(image, filter_, **attrs).shape)
    base = f"conv{len(x) - 2}d"
    add(
        f"{base}_backprop_input",
        Sample(
            {"Filter": filter_, "Output": output, "Like": image},
            attrs,
            lambda Filter, Output, Like, **attrs: linear_transpose(lambda unit: convolved(unit, Filter, **attrs), Like, Output),
        ),
    )
    add(
        f"{base}_backprop_filter",
        Sample(
            {"Input": image, "Output": output, "Like": filter_},
            attrs,
            lambda Input, Output, Like, **attrs: linear_transpose(lambda unit: convolved(Input, unit, **attrs), Like, Output),
        ),
    )
