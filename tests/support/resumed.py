"""A small training with distinct steps: dropout, statistics, Adam and a falling learning rate."""

from __future__ import annotations

from typing import Any

import numpy as np

import fluid
from fluid import layers


def build(seed: int) -> fluid.Variable:
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    hidden = layers.dropout(layers.batch_norm(layers.fc(x, 8, act="relu")), 0.5)
    loss = layers.mean(layers.square_error_cost(layers.fc(hidden, 1), y))
    rate = layers.exponential_decay(0.1, 3, 0.5)
    fluid.optimizer.Adam(rate).minimize(loss)
    fluid.default_main_program().random_seed = seed
    return loss


def batch(number: int) -> dict[str, Any]:
    draw = np.random.default_rng(number)
    return {"x": draw.normal(size=(6, 4)).astype("float32"), "y": draw.normal(size=(6, 1)).astype("float32")}


def train(executor: fluid.Executor, loss: fluid.Variable, start: int, stop: int) -> list[str]:
    """The losses of these steps, bit by bit."""
    return [executor.run(feed=batch(number), fetch_list=[loss])[0].tobytes().hex() for number in range(start, stop)]
