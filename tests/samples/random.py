"""Samples of `fluid.ops.random`: shapes, dtypes and statistics of what is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fluid.values.types import VarType

from .base import Data, Sample, add

data = Data("random")
MANY = [200, 100]


def drawn(shape: tuple[int, ...], mean: float, std: float, low: float = -np.inf, high: float = np.inf) -> Callable[..., None]:
    """Checks shape, range and the first two moments to five standard errors."""

    def check(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        out = outputs["Out"]
        assert out.shape == shape
        assert out.min() >= low and out.max() <= high
        assert abs(out.mean() - mean) < 5 * std / np.sqrt(out.size)
        assert abs(out.std() - std) < 5 * std / np.sqrt(out.size)
        assert len(np.unique(out)) > out.size // 2 or out.dtype.kind == "i"

    return check


def uniform_std(low: float, high: float) -> float:
    return float((high - low) / np.sqrt(12))


FP64 = int(VarType.FP64)
for dtype in (int(VarType.FP32), FP64):
    add(
        "uniform_random",
        Sample(
            {}, {"shape": MANY, "seed": 3, "dtype": dtype}, check=drawn((200, 100), 0, uniform_std(-1, 1), -1, 1), random=True
        ),
        Sample(
            {},
            {"shape": MANY, "seed": 3, "dtype": dtype, "min": 2.0, "max": 5.0},
            check=drawn((200, 100), 3.5, uniform_std(2, 5), 2, 5),
            random=True,
        ),
    )
    add(
        "gaussian_random",
        Sample({}, {"shape": MANY, "seed": 3, "dtype": dtype}, check=drawn((200, 100), 0, 1), random=True),
        Sample(
            {}, {"shape": MANY, "seed": 9, "dtype": dtype, "mean": 2.0, "std": 0.5}, check=drawn((200, 100), 2, 0.5), random=True
        ),
    )
    # A normal cut at two standard deviations has a standard deviation of 0.8796.
    add(
        "truncated_gaussian_random",
        Sample(
            {},
            {"shape": MANY, "seed": 4, "dtype": dtype, "mean": 1.0, "std": 0.5},
            check=drawn((200, 100), 1, 0.5 * 0.8796, 0, 2),
            random=True,
        ),
    )
add(
    "uniform_random_batch_size_like",
    Sample(
        {"Input": data(300, 2)},
        {"shape": [-1, 60], "seed": 3, "min": 0.0, "max": 1.0, "dtype": int(VarType.FP32)},
        check=drawn((300, 60), 0.5, uniform_std(0, 1), 0, 1),
        random=True,
    ),
)
add(
    "gaussian_random_batch_size_like",
    Sample(
        {"Input": data(300, 2)},
        {"shape": [-1, 60], "seed": 3, "mean": 0.0, "std": 1.0, "dtype": int(VarType.FP32)},
        check=drawn((300, 60), 0, 1),
        random=True,
    ),
)
add(
    "randint",
    Sample(
        {},
        {"shape": MANY, "seed": 3, "low": 0, "high": 10, "dtype": int(VarType.INT64)},
        check=drawn((200, 100), 4.5, float(np.sqrt(99 / 12)), 0, 9),
        random=True,
    ),
)


def flipped(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    X, Out = inputs["X"], outputs["Out"]
    assert Out.shape == X.shape and Out.dtype == X.dtype and set(np.unique(Out)) <= {0, 1}
    assert abs((Out - X).mean()) < 5 * np.sqrt((X * (1 - X)).mean() / X.size)
    assert not Out[X == 0].any() and Out[X == 1].all()


add(
    "bernoulli",
    Sample(
        {"X": np.concatenate([data(200, 20, low=0), np.zeros((9, 20)), np.ones((9, 20))])},
        {"seed": 3},
        check=flipped,
        random=True,
    ),
)


INT32 = int(VarType.INT32)


def permuted(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    out = outputs["Out"]
    assert out.dtype in (np.int32, np.int64) and np.array_equal(np.sort(out), np.arange(50))
    assert not np.array_equal(out, np.arange(50))


for dtype in (INT32, int(VarType.INT64)):
    add("randperm", Sample({}, {"n": 50, "dtype": dtype, "seed": 3}, check=permuted, random=True))

WEIGHTS = np.array([0.1, 0.0, 0.4, 0.5])


def often(count: int, shape: tuple[int, ...]) -> Callable[..., None]:
    """Checks how often each class is drawn."""

    def check(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        out = outputs["Out"]
        assert out.shape == shape and out.dtype == np.int64
        share = np.bincount(out.ravel(), minlength=4) / out.size
        assert np.all(np.abs(share - WEIGHTS) <= 5 * np.sqrt(WEIGHTS * (1 - WEIGHTS) / count))

    return check


def all_different(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    out = outputs["Out"]
    assert out.shape == (500, 3) and out.dtype == np.int64
    assert np.array_equal(np.sort(out, 1), np.tile([0, 2, 3], (500, 1)))
    first = np.bincount(out[:, 0], minlength=4) / 500
    assert np.all(np.abs(first - WEIGHTS) <= 5 * np.sqrt(WEIGHTS * (1 - WEIGHTS) / 500))


ROWS = np.tile(WEIGHTS, (500, 1))
add(
    "multinomial",
    Sample({"X": 3 * WEIGHTS}, {"num_samples": 2000, "replacement": True, "seed": 3}, check=often(2000, (2000,)), random=True),
    Sample({"X": ROWS}, {"num_samples": 4, "replacement": True, "seed": 3}, check=often(2000, (500, 4)), random=True),
    Sample({"X": ROWS}, {"num_samples": 3, "seed": 3}, check=all_different, random=True),
)
add("sampling_id", Sample({"X": ROWS}, {"seed": 3}, check=often(500, (500,)), random=True))


def a_seed(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    assert outputs["Out"].shape == (1,) and outputs["Out"].dtype == np.int32 and outputs["Out"][0] > 0


add("seed", Sample({}, {"seed": 7}, lambda seed: np.int32([seed])), Sample({}, {}, check=a_seed, random=True))


def dropped(prob: float, scale: float) -> Callable[..., None]:
    def check(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        X, Out, Mask = inputs["X"], outputs["Out"], outputs["Mask"]
        assert Mask.dtype == np.uint8 and Mask.shape == X.shape and Out.dtype == X.dtype
        assert set(np.unique(Mask)) <= {0, 1}
        assert abs(Mask.mean() - (1 - prob)) <= 5 * np.sqrt(prob * (1 - prob) / X.size)
        np.testing.assert_allclose(Out, X * Mask * scale, rtol=1e-6)

    return check


for implementation in ("downgrade_in_infer", "upscale_in_train"):
    for prob in (0.0, 0.3, 1.0):
        up = implementation == "upscale_in_train"
        scale = 1 / (1 - prob) if up and prob < 1 else 1.0
        attrs = {"dropout_prob": prob, "dropout_implementation": implementation, "seed": 5, "fix_seed": True}
        add("dropout", Sample({"X": data(40, 30)}, attrs, check=dropped(prob, scale), random=True))
        add(
            "dropout",
            Sample(
                {"X": data(3, 4)},
                {"dropout_prob": prob, "dropout_implementation": implementation, "is_test": True},
                lambda X, dropout_prob, dropout_implementation, is_test: {
                    "Out": X if dropout_implementation == "upscale_in_train" else (X * (1 - dropout_prob)).astype(X.dtype)
                },
                orders=0,
            ),
        )
