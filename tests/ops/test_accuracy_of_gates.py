"""Gates that are nearly open or nearly shut: float32 keeps what float64 says of small results, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.backward import gradients
from fluid.extend import ops


def step_and_gradients(dtype: str, feed: dict[str, Any]) -> list[Any]:
    x, before = (fluid.data(name, list(feed[name].shape), dtype) for name in ("x", "before"))
    x.stop_gradient = before.stop_gradient = False
    cell, hidden = ops().lstm_unit(x, before, forget_bias=0.5)
    found = gradients([layers.reduce_sum(hidden)], [x, before])
    return fluid.Executor().run(
        feed={name: value.astype(dtype) for name, value in feed.items()}, fetch_list=[cell, hidden, *found]
    )


@each("native", ["0", "1"])
def test_lstm_unit(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sigmoids as ``tanh(x / 2) / 2 + 1 / 2``, and slopes as ``y * (1 - y)``, results of 1e-8 had no right digit."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    rng = np.random.default_rng(0)
    feed = {"x": rng.uniform(-17, 17, (64, 4 * 64)), "before": rng.uniform(-9, 9, (64, 64))}
    exact_feed = {name: value.astype("float32") for name, value in feed.items()}
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        wide = step_and_gradients("float64", exact_feed)
    narrow = step_and_gradients("float32", exact_feed)
    for name, right, got in zip(("C", "H", "dX", "dC_prev"), wide, narrow, strict=True):
        # C and what follows from it is a sum: errors are those of its terms.
        bound = 2e-5 * np.abs(right) * (1 + np.abs(wide[0] if name != "dX" else np.tile(wide[0], 4)))
        wrong = np.abs(got - right) > bound + 1e-12
        assert wrong.mean() < 1e-2, f"{name}: {wrong.mean():.1%} of the elements are wrong"


@each("native", ["0", "1"])
@each("dtype", ["float32", "float64"])
def test_sigmoid_of_large_negative_numbers(dtype: str, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy's result stopped at 8e-39; multiplied by large numbers, that was far from 0."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    x = fluid.data("x", [None], dtype)
    feed = np.tile(np.array([-np.inf, -1e5, -1000.0, 0.0, 1e5, np.inf], dtype), 4096)
    (result,) = fluid.Executor().run(feed={"x": feed}, fetch_list=[layers.sigmoid(x)])
    assert result[:6].tolist() == [0, 0, 0, 0.5, 1, 1]
