"""Samples of `fluid.ops.pool`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Data, Sample, add
from .conv import amounts, both_sides, linear_transpose

data = Data("pool")


def windows(size: int, kernel: int, stride: int, before: int, after: int, ceil: bool, adaptive: bool) -> list[tuple[int, int]]:
    """From where to where each output looks, along one dimension, the padding left out."""
    if adaptive:
        return [(i * size // kernel, -(-(i + 1) * size // kernel)) for i in range(kernel)]
    count = (size - kernel + before + after + (stride - 1 if ceil else 0)) // stride + 1
    starts = [i * stride - before for i in range(count)]
    return [(max(start, 0), min(start + kernel, size)) for start in starts]


def pooled(
    X: Any,
    pooling_type: str,
    ksize: Sequence[int],
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    global_pooling: bool = False,
    exclusive: bool = True,
    adaptive: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    padding_algorithm: str = "EXPLICIT",
) -> Any:
    x = np.moveaxis(X, -1, 1) if data_format == "NHWC" else X
    if global_pooling:
        ksize, paddings = x.shape[2:], (0, 0)
    sides = both_sides(paddings)
    rows, columns = (
        windows(
            x.shape[2 + i],
            ksize[i],
            strides[i],
            *amounts(x.shape[2 + i], ksize[i], strides[i], 1, sides[i], padding_algorithm)[:2],
            ceil_mode,
            adaptive,
        )
        for i in range(2)
    )
    out = np.zeros((*x.shape[:2], len(rows), len(columns)), x.dtype)
    for i, (top, bottom) in enumerate(rows):
        for j, (left, right) in enumerate(columns):
            seen = x[:, :, top:bottom, left:right]
            if pooling_type == "max":
                out[:, :, i, j] = seen.max((2, 3))
            else:
                size = (bottom - top) * (right - left) if exclusive or adaptive else ksize[0] * ksize[1]
                out[:, :, i, j] = seen.sum((2, 3)) / size
    return np.moveaxis(out, 1, -1) if data_format == "NHWC" else out


CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 2, 4, 4), {"ksize": [2, 2], "strides": [2, 2]}),
    ((1, 2, 5, 6), {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 0]}),
    ((1, 1, 5, 5), {"ksize": [3, 3], "strides": [1, 1], "paddings": [1, 1]}),
    ((1, 2, 5, 6), {"ksize": [2, 2], "strides": [2, 2], "ceil_mode": True}),
    ((2, 2, 3, 4), {"ksize": [1, 1], "global_pooling": True}),
    ((1, 2, 5, 7), {"ksize": [2, 3], "adaptive": True}),
    ((1, 1, 5, 6), {"ksize": [3, 3], "strides": [2, 2], "padding_algorithm": "SAME"}),
    ((1, 1, 5, 5), {"ksize": [2, 2], "strides": [2, 2], "paddings": [1, 1], "padding_algorithm": "VALID"}),
    ((1, 1, 5, 5), {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 0, 0, 1]}),
    ((1, 4, 4, 2), {"ksize": [2, 2], "strides": [2, 2], "data_format": "NHWC"}),
    ((1, 1, 1, 1), {"ksize": [1, 1]}),
]
for kind in ("max", "avg"):
    add("pool2d", *(Sample({"X": data.distinct(*x)}, {"pooling_type": kind, **attrs}, pooled) for x, attrs in CASES))
add(
    "pool2d",
    Sample(
        {"X": data(1, 2, 5, 5)},
        {"pooling_type": "avg", "ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1], "exclusive": False},
        pooled,
    ),
)


def first_maxima(X: Any, **attrs: Any) -> Any:
    """Where in its image each window's maximum lies: the maximum over the values' ranks, looked up."""
    channels_last = attrs.get("data_format") == "NHWC"
    x = np.moveaxis(X, -1, 1) if channels_last else X
    found = pooled(X, "max", **attrs)
    found = np.moveaxis(found, -1, 1) if channels_last else found
    flat, index = x.reshape(*x.shape[:2], -1), np.zeros(found.shape, np.int64)
    for n, c, i, j in np.ndindex(*found.shape):
        index[n, c, i, j] = np.flatnonzero(flat[n, c] == found[n, c, i, j])[0]
    return np.moveaxis(index, 1, -1) if channels_last else index


def shared(Output: Any, Like: Any, **attrs: Any) -> Any:
    return linear_transpose(lambda x: pooled(x, "avg", **attrs), Like, Output)


for x, attrs in CASES:
    image = data.distinct(*x)
    add("pool2d_index", Sample({"X": image}, attrs, first_maxima))
    output = data(*pooled(image, "avg", **attrs).shape)
    add("pool2d_average_back", Sample({"Output": output, "Like": image}, attrs, shared, wrt=["Output"]))
