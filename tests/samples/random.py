"""Samples of `fluid.ops.random`: shapes, dtypes and statistics of draws."""

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


# ------------------------------------------------------------------------------------------------ distributions of tensors
def moments(mean: float, std: float, low: float = -np.inf, slot: str = "Out") -> Callable[..., None]:
    """Checks range and the first two moments to six standard errors."""

    def check(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        out = outputs[slot]
        assert out.shape == next(iter(inputs.values())).shape and out.min() >= low
        assert abs(out.mean() - mean) < 6 * std / np.sqrt(out.size) and abs(out.std() - std) < 12 * std / np.sqrt(out.size)

    return check


LARGE = np.full((100, 50), 3.5)
add("poisson", Sample({"X": LARGE}, {"seed": 3}, check=moments(3.5, np.sqrt(3.5), 0), random=True, orders=0))
add("poisson", Sample({"X": data(2, 3, low=1, high=9)}, {"seed": 3}, check=lambda i, o: None, random=True))
for rate in (1.0, 4.0):
    check = moments(1 / rate, 1 / rate, 0)
    add("exponential", Sample({"X": LARGE}, {"lambda": rate, "seed": 3}, check=check, random=True))
for op_type, source, target in (("uniform_random_inplace", "X", "Out"), ("gaussian_inplace", "x", "out")):
    uniform = op_type.startswith("uniform")
    attrs = {"min": 1.0, "max": 3.0} if uniform else {"mean": 2.0, "std": 0.5}
    check = moments(2, uniform_std(1, 3) if uniform else 0.5, slot=target)
    add(op_type, Sample({source: LARGE}, {**attrs, "seed": 3}, check=check, random=True))


def check_dirichlet(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    alpha, out = inputs["Alpha"], outputs["Out"]
    np.testing.assert_allclose(out.sum(-1), np.ones(out.shape[:-1]), 1e-5)
    if len(out) > 100:
        assert np.abs(out.mean(0) - alpha[0] / alpha[0].sum()).max() < 0.03 and (out >= 0).all()


add("dirichlet", Sample({"Alpha": np.tile([1.0, 2.0, 3.0], (2000, 1))}, {"seed": 3}, check=check_dirichlet, random=True))
add("dirichlet", Sample({"Alpha": data(2, 3, 4, low=0.5, high=2)}, {"seed": 3}, check=check_dirichlet, random=True))


def check_gumbel(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    np.testing.assert_allclose(outputs["Out"].sum(-1), 1, 1e-5)
    if len(outputs["Out"]) > 100:
        chosen = np.bincount(outputs["Out"].argmax(-1), minlength=3) / len(outputs["Out"])
        assert np.abs(chosen - np.exp(inputs["X"][0])).max() < 0.05


LOGITS = np.tile(np.log([0.2, 0.3, 0.5]), (2000, 1))
for attrs in ({"seed": 3}, {"temperature": 0.5, "seed": 3}, {"hard": True, "seed": 3}):
    add("gumbel_softmax", Sample({"X": LOGITS}, attrs, check=check_gumbel, random=True, orders=0))
    add("gumbel_softmax", Sample({"X": data(4, 3)}, attrs, check=check_gumbel, random=True, orders=0 if attrs.get("hard") else 2))


def check_rrelu(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    X, noise = inputs["X"], outputs["Noise"]
    np.testing.assert_allclose(outputs["Out"], X * noise, 1e-6)
    assert (noise[X >= 0] == 1).all() and (0.2 <= noise[X < 0]).all() and (noise[X < 0] <= 0.4).all()


add("rrelu", Sample({"X": data.away(5, 6)}, {"lower": 0.2, "upper": 0.4, "seed": 3}, check=check_rrelu, random=True))
middle = {"is_test": True, "lower": 0.2, "upper": 0.4}


def tested(X: Any, **attrs: Any) -> dict[str, Any]:
    noise = np.where(X < 0, 0.3, 1).astype(X.dtype)
    return {"Out": X * noise, "Noise": noise}


for shape in ((3, 4), (), (0, 2)):
    add("rrelu", Sample({"X": data.away(*shape)}, middle, tested))


def check_shuffled(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    rows, order = inputs["X"].reshape(-1, inputs["X"].shape[-1]), outputs["ShuffleIdx"]
    assert sorted(order) == list(range(len(rows))) and outputs["SeedOut"].shape == inputs["Seed"].shape
    assert np.array_equal(outputs["Out"].reshape(rows.shape), rows[order])


for shape in ((5, 2), (2, 3, 2), (1, 1)):
    for seed in (0, 7):
        sample = Sample({"X": data(*shape), "Seed": np.array([seed])}, {"startup_seed": 3}, check=check_shuffled)
        add("shuffle_batch", sample)


def check_top_p(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    x, ids = inputs["x"], outputs["ids"]
    np.testing.assert_array_equal(outputs["out"], np.take_along_axis(x, ids, 1))
    if "threshold" in inputs:
        assert (outputs["out"] >= inputs["threshold"]).all()
    for row, p, chosen in zip(x, inputs["ps"].reshape(-1), ids[:, 0], strict=True):
        assert row[row > row[chosen]].sum() < p


CHANCES = np.tile([0.1, 0.5, 0.15, 0.25], (300, 1))
for p in (0.1, 0.6, 1.0):
    add("top_p_sampling", Sample({"x": CHANCES, "ps": np.full((300, 1), p)}, {"seed": 3}, check=check_top_p, random=p > 0.5))
limited = {"x": CHANCES, "ps": np.full((300, 1), 1.0), "threshold": np.full((300, 1), 0.2)}
add("top_p_sampling", Sample(limited, {"seed": 5}, check=check_top_p, random=True))
