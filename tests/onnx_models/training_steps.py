"""A few training steps of a loaded model from x to y."""

from __future__ import annotations

from typing import Any

import numpy as np

import fluid
from fluid import layers

__all__ = ["train"]


def train(model: Any) -> None:
    """Train a model of images of 8 x 8 for three steps, so that y comes closer to 1."""
    with fluid.program_guard(model.program, fluid.Program()):
        loss = layers.mean(layers.square(model.program.global_block().var("y") - 1.0))
        fluid.optimizer.SGD(0.1).minimize(loss)
        startup = fluid.default_startup_program()
    executor = fluid.Executor()
    executor.run(startup, scope=model.scope)
    x = np.random.default_rng(0).standard_normal((6, 3, 8, 8)).astype(np.float32)
    for _ in range(3):
        executor.run(model.program, {"x": x}, [loss], scope=model.scope)
