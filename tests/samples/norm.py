"""Samples of `fluid.ops.norm`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("norm")


def batch_normed(
    X: Any,
    Scale: Any,
    Bias: Any,
    Mean: Any,
    Variance: Any,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
    is_test: bool = False,
    use_global_stats: bool = False,
) -> Any:
    channel = X.ndim - 1 if data_layout == "NHWC" else 1
    axes = tuple(i for i in range(X.ndim) if i != channel)
    shape = [-1 if i == channel else 1 for i in range(X.ndim)]
    fixed = is_test or use_global_stats
    mean, variance = (Mean, Variance) if fixed else (X.mean(axes), X.var(axes))
    out = {
        "Y": (X - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + epsilon) * Scale.reshape(shape) + Bias.reshape(shape),
        "MeanOut": Mean if fixed else Mean * momentum + mean * (1 - momentum),
        "VarianceOut": Variance if fixed else Variance * momentum + variance * (1 - momentum),
    }
    return out if fixed else {**out, "SavedMean": mean, "SavedVariance": 1 / np.sqrt(variance + epsilon)}


for shape, attrs in (
    ((4, 3, 2, 2), {}),
    ((5, 3), {}),
    ((4, 2, 2, 3), {"data_layout": "NHWC"}),
    ((4, 3, 2), {"momentum": 0.5, "epsilon": 1e-3}),
    ((4, 3, 2, 2), {"use_global_stats": True}),
    ((4, 3, 2, 2), {"is_test": True}),
):
    add(
        "batch_norm",
        Sample(
            {
                "X": data(*shape),
                "Scale": data(3, low=0.5),
                "Bias": data(3),
                "Mean": data(3),
                "Variance": data(3, low=0.5, high=2),
            },
            attrs,
            batch_normed,
            wrt=["X", "Scale", "Bias"],
            orders=0 if attrs.get("is_test") else 2,
            tolerance=10,
        ),
    )


def layer_normed(X: Any, Scale: Any = None, Bias: Any = None, begin_norm_axis: int = 1, epsilon: float = 1e-5) -> Any:
    flat = X.reshape(int(np.prod(X.shape[:begin_norm_axis])), -1)
    out = (flat - flat.mean(1, keepdims=True)) / np.sqrt(flat.var(1, keepdims=True) + epsilon)
    out = out * (1 if Scale is None else Scale) + (0 if Bias is None else Bias)
    return {"Y": out.reshape(X.shape).astype(X.dtype), "Mean": flat.mean(1), "Variance": flat.var(1)}


add(
    "layer_norm",
    *(
        Sample({"X": data(*shape), "Scale": data(size), "Bias": data(size)}, attrs, layer_normed, tolerance=10)
        for shape, size, attrs in (
            ((4, 5), 5, {}),
            ((2, 3, 4), 12, {}),
            ((2, 3, 4), 4, {"begin_norm_axis": 2}),
            ((3, 4), 4, {"epsilon": 0.1}),
        )
    ),
    Sample({"X": data(3, 4)}, {}, layer_normed, tolerance=10),
    Sample({"X": data(3, 4), "Scale": data(4)}, {}, layer_normed, tolerance=10),
    Sample({"X": data(3, 4), "Bias": data(4)}, {}, layer_normed, tolerance=10),
)


def by_channel(values: Any, ndim: int, channel: int) -> Any:
    return 0 if values is None else values.reshape([-1 if axis == channel else 1 for axis in range(ndim)])


def instance_normed(X: Any, Scale: Any = None, Bias: Any = None, epsilon: float = 1e-5) -> Any:
    axes = tuple(range(2, X.ndim))
    mean, variance = X.mean(axes, keepdims=True), X.var(axes, keepdims=True)
    out = (X - mean) / np.sqrt(variance + epsilon) * (1 if Scale is None else by_channel(Scale, X.ndim, 1))
    out = out + by_channel(Bias, X.ndim, 1)
    return {"Y": out.astype(X.dtype), "SavedMean": mean.reshape(-1), "SavedVariance": 1 / np.sqrt(variance + epsilon).reshape(-1)}


add(
    "instance_norm",
    *(
        Sample({"X": data(*shape), "Scale": data(3), "Bias": data(3)}, attrs, instance_normed, tolerance=10)
        for shape, attrs in (((2, 3, 4, 2), {}), ((2, 3, 5), {"epsilon": 0.1}), ((2, 3, 2, 1, 2), {}))
    ),
    Sample({"X": data(2, 3, 4)}, {}, instance_normed, tolerance=10),
)


def group_normed(
    X: Any, groups: int, Scale: Any = None, Bias: Any = None, epsilon: float = 1e-5, data_layout: str = "NCHW"
) -> Any:
    channel = X.ndim - 1 if data_layout == "NHWC" else 1
    x = np.moveaxis(X, channel, 1)
    flat = x.reshape(len(x), groups, -1)
    mean, variance = flat.mean(2, keepdims=True), flat.var(2, keepdims=True)
    out = np.moveaxis(((flat - mean) / np.sqrt(variance + epsilon)).reshape(x.shape), 1, channel)
    out = out * (1 if Scale is None else by_channel(Scale, X.ndim, channel)) + by_channel(Bias, X.ndim, channel)
    return {"Y": out.astype(X.dtype), "Mean": mean[..., 0], "Variance": variance[..., 0]}


add(
    "group_norm",
    *(
        Sample({"X": data(*shape), "Scale": data(4), "Bias": data(4)}, attrs, group_normed, tolerance=10)
        for shape, attrs in (
            ((2, 4, 3, 2), {"groups": 2}),
            ((2, 4, 3), {"groups": 4, "epsilon": 0.1}),
            ((3, 4), {"groups": 1}),
            ((2, 3, 2, 4), {"groups": 2, "data_layout": "NHWC"}),
        )
    ),
    Sample({"X": data(2, 4, 3)}, {"groups": 2}, group_normed, tolerance=10),
    Sample({"X": data(2, 4, 3), "Scale": data(4)}, {"groups": 2}, group_normed, tolerance=10),
)
