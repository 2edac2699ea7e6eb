"""Samples of `fluid.ops.pool`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Data, Sample, add
from .conv import amounts, both_sides, channels_as_asked, channels_first, linear_transpose

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
    strides: Sequence[int] = (1, 1, 1),
    paddings: Sequence[int] = (0, 0, 0),
    global_pooling: bool = False,
    exclusive: bool = True,
    adaptive: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    padding_algorithm: str = "EXPLICIT",
) -> Any:
    x = channels_first(X, data_format)
    count = x.ndim - 2
    if global_pooling:
        ksize, paddings = x.shape[2:], [0] * count
    sides = both_sides(paddings[:count] if len(paddings) == 3 else paddings, count)
    spans = []
    for extent, size, stride, side in zip(x.shape[2:], ksize, strides, sides, strict=False):
        before, after, _ = amounts(extent, size, stride, 1, side, padding_algorithm)
        spans.append(windows(extent, size, stride, before, after, ceil_mode, adaptive))
    out = np.zeros((*x.shape[:2], *map(len, spans)), x.dtype)
    for at in np.ndindex(*out.shape[2:]):
        window = [spans[i][at[i]] for i in range(count)]
        seen = x[(..., *(slice(*each) for each in window))].reshape(*x.shape[:2], -1)
        if pooling_type == "max":
            out[(..., *at)] = seen.max(2)
        else:
            out[(..., *at)] = seen.sum(2) / (seen.shape[2] if exclusive or adaptive else np.prod(ksize))
    return channels_as_asked(out, data_format)


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
VOLUMES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 2, 4, 4, 2), {"ksize": [2, 2, 2], "strides": [2, 2, 2]}),
    ((1, 1, 4, 5, 4), {"ksize": [3, 2, 2], "strides": [1, 2, 1], "paddings": [1, 0, 1]}),
    ((1, 2, 3, 5, 3), {"ksize": [2, 2, 2], "strides": [2, 2, 2], "ceil_mode": True}),
    ((1, 2, 2, 3, 2), {"ksize": [1, 1, 1], "global_pooling": True}),
    ((1, 2, 3, 5, 4), {"ksize": [2, 3, 2], "adaptive": True}),
    ((1, 3, 4, 3, 2), {"ksize": [2, 3, 2], "data_format": "NDHWC", "padding_algorithm": "SAME"}),
]
for kind in ("max", "avg"):
    add("pool2d", *(Sample({"X": data.distinct(*x)}, {"pooling_type": kind, **attrs}, pooled) for x, attrs in CASES))
    add("pool3d", *(Sample({"X": data.distinct(*x)}, {"pooling_type": kind, **attrs}, pooled) for x, attrs in VOLUMES))
add(
    "pool2d",
    Sample(
        {"X": data(1, 2, 5, 5)},
        {"pooling_type": "avg", "ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1], "exclusive": False},
        pooled,
    ),
)
add(
    "pool3d",
    Sample(
        {"X": data(1, 2, 3, 4, 3)},
        {"pooling_type": "avg", "ksize": [3, 2, 2], "strides": [2, 1, 1], "paddings": [1, 1, 0], "exclusive": False},
        pooled,
    ),
)


def first_maxima(X: Any, **attrs: Any) -> Any:
    """Where in its image each window's maximum lies, looked up."""
    data_format = attrs.get("data_format", "NCHW")
    x, found = channels_first(X, data_format), channels_first(pooled(X, "max", **attrs), data_format)
    flat, index = x.reshape(*x.shape[:2], -1), np.zeros(found.shape, np.int64)
    for n, c, *at in np.ndindex(*found.shape):
        index[(n, c, *at)] = np.flatnonzero(flat[n, c] == found[(n, c, *at)])[0]
    return channels_as_asked(index, data_format)


def shared(Output: Any, Like: Any, **attrs: Any) -> Any:
    return linear_transpose(lambda x: pooled(x, "avg", **attrs), Like, Output)


def with_index(X: Any, **attrs: Any) -> Any:
    return {"Out": pooled(X, "max", **attrs), "Mask": first_maxima(X, **attrs).astype(np.int32)}


for x, attrs in CASES + VOLUMES:
    image, name = data.distinct(*x), f"pool{len(x) - 2}d"
    add(f"{name}_index", Sample({"X": image}, attrs, first_maxima))
    output = data(*pooled(image, "avg", **attrs).shape)
    add(f"{name}_average_back", Sample({"Output": output, "Like": image}, attrs, shared, wrt=["Output"]))
    if set(attrs) <= {"ksize", "strides", "paddings", "global_pooling", "adaptive"} and len(attrs.get("paddings", ())) < 4:
        add(f"max_{name}_with_index", Sample({"X": image}, attrs, with_index))


def pooled_by_level(X: Any, pyramid_height: int, pooling_type: str) -> Any:
    """By slices, which end where the image does."""
    levels = []
    for bins in (2**level for level in range(pyramid_height)):
        extents = []
        for size in X.shape[2:]:
            window = -(-size // bins)
            start = -((window * bins - size + 1) // 2)
            extents.append([slice(max(0, start + i * window), start + (i + 1) * window) for i in range(bins)])
        reduce = np.max if pooling_type == "max" else np.mean
        levels.append(np.stack([reduce(X[:, :, rows, columns], (2, 3)) for rows in extents[0] for columns in extents[1]], 2))
    return np.concatenate([level.reshape(len(X), -1) for level in levels], 1)


for kind in ("max", "avg"):
    for image, height in (((2, 3, 6, 4), 3), ((1, 2, 3, 7), 2)):
        attrs = {"pyramid_height": height, "pooling_type": kind}
        add("spp", Sample({"X": data.distinct(*image)}, attrs, pooled_by_level, known=["X"]))


# ----------------------------------------------------------------------------------------------------------- unpooling
def unpooled(
    X: Any,
    Indices: Any,
    ksize: Sequence[int],
    strides: Sequence[int] = (1, 1, 1),
    paddings: Sequence[int] = (0, 0, 0),
    output_size: Sequence[int] = (),
    OutputSize: Sequence[Any] = (),
) -> Any:
    output_size = [int(size) for part in OutputSize for size in np.ravel(part)] or output_size
    found = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(X.shape[2:], strides, paddings, ksize, strict=False)]
    out = np.zeros((*X.shape[:2], *(output_size or found)), X.dtype)
    for n, c, *at in np.ndindex(*X.shape):
        out[n, c].reshape(-1)[Indices[(n, c, *at)]] = X[(n, c, *at)]
    return out


def gathered_back(Output: Any, Indices: Any, Like: Any, OutputSize: Sequence[Any] = (), **attrs: Any) -> Any:
    return linear_transpose(lambda x: unpooled(x, Indices, OutputSize=OutputSize, **attrs), Like, Output)


for x, attrs in (
    ((2, 2, 2, 3), {"ksize": [2, 2], "strides": [2, 2]}),
    ((1, 2, 3, 2), {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1]}),
    ((1, 2, 2, 2), {"ksize": [2, 2], "strides": [2, 2], "output_size": [5, 4]}),
    ((1, 2, 2, 2, 1), {"ksize": [2, 2, 2], "strides": [2, 2, 2]}),
    ((1, 1, 1, 2, 2), {"ksize": [2, 2, 1], "strides": [2, 2, 1], "output_size": [2, 4, 3]}),
):
    values = data(*x)
    places = int(np.prod(unpooled(values, np.zeros(x, np.int64), **attrs).shape[2:]))
    rows = [data.ints(int(np.prod(x[2:])), high=places) for _ in range(x[0] * x[1])]  # some indices come twice
    Indices = np.array(rows).reshape(x).astype(np.int32)
    name = "unpool" if len(x) == 4 else "unpool3d"
    output = data(*unpooled(values, Indices, **attrs).shape)
    add(name, Sample({"X": values, "Indices": Indices}, attrs, unpooled))
    add(f"{name}_back", Sample({"Output": output, "Indices": Indices, "Like": values}, attrs, gathered_back, wrt=["Output"]))
    if "output_size" in attrs:
        sizes = np.array(attrs["output_size"])
        attrs = {key: value for key, value in attrs.items() if key != "output_size"}
        for parts in ([sizes], list(sizes.reshape(-1, 1).astype(np.int32))):
            add(name, Sample({"X": values, "Indices": Indices, "OutputSize": parts}, attrs, unpooled, shapes_by_value=True))
            inputs = {"Output": output, "Indices": Indices, "Like": values, "OutputSize": parts}
            add(f"{name}_back", Sample(inputs, attrs, gathered_back, wrt=["Output"], shapes_by_value=True))
