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


def add_both(sample: Sample) -> None:
    """For one worker, the statistics of all are those of its own."""
    for op_type in ("batch_norm", "sync_batch_norm"):
        add(op_type, sample)


for shape, attrs in (
    ((4, 3, 2, 2), {}),
    ((5, 3), {}),
    ((4, 2, 2, 3), {"data_layout": "NHWC"}),
    ((4, 3, 2), {"momentum": 0.5, "epsilon": 1e-3}),
    ((4, 3, 2, 2), {"use_global_stats": True}),
    ((4, 3, 2, 2), {"is_test": True}),
):
    add_both(
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
        )
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


# -------------------------------------------------------------------------------------- by neighbours, by data, by matrix
def by_neighbours(X: Any, n: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75, data_format: str = "NCHW") -> Any:
    x = np.moveaxis(X, -1, 1) if data_format == "NHWC" else X
    channels = x.shape[1]
    mid = np.zeros_like(x)
    for c in range(channels):
        first = c - (n - 1) // 2
        mid[:, c] = k + alpha * (x[:, max(first, 0) : first + n] ** 2).sum(1)
    mid = np.moveaxis(mid, 1, -1) if data_format == "NHWC" else mid
    return {"Out": (X / mid**beta).astype(X.dtype), "MidOut": mid}


for shape, attrs in (
    ((2, 6, 2, 2), {"alpha": 0.5}),
    ((2, 4, 2, 3), {"n": 2, "k": 1.0, "alpha": 0.3, "beta": 0.5}),
    ((1, 2, 3, 5), {"n": 3, "alpha": 0.4, "data_format": "NHWC"}),
    ((1, 2, 1, 2), {"n": 7, "k": 1.5, "alpha": 1.0, "beta": 1.0}),
    ((1, 2, 2, 1), {}),
):
    add("lrn", Sample({"X": data(*shape)}, attrs, by_neighbours))


def affine(X: Any, Scale: Any, Bias: Any, data_layout: str = "NCHW") -> Any:
    channel = X.ndim - 1 if data_layout == "NHWC" else 1
    return X * by_channel(Scale, X.ndim, channel) + by_channel(Bias, X.ndim, channel)


for shape, attrs in (((2, 3, 2, 4), {}), ((2, 2, 2, 3), {"data_layout": "NHWC"}), ((4, 3), {"data_layout": "NCHW"})):
    add("affine_channel", Sample({"X": data(*shape), "Scale": data(3), "Bias": data(3)}, attrs, affine))


def by_data(
    X: Any,
    BatchSize: Any,
    BatchSum: Any,
    BatchSquareSum: Any,
    enable_scale_and_shift: bool = False,
    scale_w: Any = None,
    bias: Any = None,
) -> Any:
    means, scales = BatchSum / BatchSize, np.sqrt(BatchSize / BatchSquareSum)
    out = (X - means) * scales
    return {"Y": out * scale_w + bias if enable_scale_and_shift else out, "Means": means, "Scales": scales}


for more, attrs in (({}, {}), ({"scale_w": data(3), "bias": data(3)}, {"enable_scale_and_shift": True})):
    statistics = {"BatchSize": data(3, low=5, high=9), "BatchSum": data(3), "BatchSquareSum": data(3, low=2, high=4)}
    add("data_norm", Sample({"X": data(4, 3), **statistics, **more}, attrs, by_data, wrt=["X", *more]))


def by_singular_value(Weight: Any, U: Any, V: Any, dim: int = 0, power_iters: int = 1, eps: float = 1e-12) -> Any:
    matrix = np.moveaxis(Weight, dim, 0).reshape(Weight.shape[dim], -1)
    u, v = singular_vectors(Weight, U, V, dim, power_iters, eps).values()
    return (Weight / (u @ matrix @ v)).astype(Weight.dtype)


def singular_vectors(Weight: Any, U: Any, V: Any, dim: int = 0, power_iters: int = 1, eps: float = 1e-12) -> Any:
    matrix = np.moveaxis(Weight, dim, 0).reshape(Weight.shape[dim], -1)
    for _ in range(power_iters):
        V = U @ matrix / (np.linalg.norm(U @ matrix) + eps)
        U = matrix @ V / (np.linalg.norm(matrix @ V) + eps)
    return {"UOut": U, "VOut": V}


for shape, attrs in (((3, 4), {}), ((2, 3, 2), {"dim": 1, "power_iters": 3}), ((3, 2, 1, 2), {"power_iters": 40})):
    dim = attrs.get("dim", 0)
    u, v = data(shape[dim]), data(int(np.prod(shape)) // shape[dim])
    Weight = data(*shape, low=0.2)
    add("spectral_vectors", Sample({"Weight": Weight, "U": u, "V": v}, attrs, singular_vectors))
    # Gradients take the vectors as given, which is exact where they are, and to first order where they have converged.
    orders = 1 if attrs.get("power_iters", 1) > 30 else 0
    add("spectral_norm", Sample({"Weight": Weight, "U": u, "V": v}, attrs, by_singular_value, orders=orders))
    given = {"Weight": Weight, "U": abs(u) + 0.2, "V": abs(v) + 0.2}
    add("spectral_norm", Sample(given, {**attrs, "power_iters": 0}, by_singular_value, tolerance=10))


def dropped(inputs: Any, outputs: Any) -> None:
    """Of rows and columns that stay or go together."""
    mask = outputs["Mask"]
    assert mask.shape == (1, 40, 1, 3) and set(np.unique(mask)) == {0, 1} and 30 < mask.sum() < 90
    np.testing.assert_allclose(outputs["Out"], inputs["X"] * mask / 0.5, 1e-6)


NARROW = {"dropout_implementation": "upscale_in_train", "axis": [1, 3]}
add("dropout_nd", Sample({"X": data(2, 40, 2, 3)}, {**NARROW, "seed": 5}, check=dropped, random=True, orders=1))
kept = Sample(
    {"X": data(2, 3)},
    {"is_test": True, "dropout_prob": 0.25, "axis": [0]},
    lambda X, **_: {"Out": X * 0.75, "Mask": np.ones((2, 1), "uint8")},
)
add("dropout_nd", kept)
