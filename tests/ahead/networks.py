"""Small training programs, with their batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fluid
from fluid import layers

ROWS = 6
Feed = dict[str, Any]


@dataclass
class Network:
    """A training program."""

    main: fluid.Program
    startup: fluid.Program
    loss: Any
    prediction: Any
    feeds: dict[str, Any]
    batch: Callable[[Any], Feed]
    """Makes the arrays of a batch, by a generator of random numbers."""

    def batches(self, count: int) -> list[Feed]:
        rng = np.random.default_rng(5)
        return [self.batch(rng) for _ in range(count)]

    def started(self) -> tuple[fluid.Executor, fluid.Scope]:
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(self.startup, scope=scope)
        return executor, scope


def _images(size: int, channels: int = 1, dtype: str = "float32") -> Callable[[Any], Feed]:
    def batch(rng: Any) -> Feed:
        return {
            "x": rng.standard_normal((ROWS, channels, size, size)).astype(dtype),
            "label": rng.integers(0, 3, (ROWS, 1)),
        }

    return batch


def _classified(x: Any, logits: Any, optimizer: Any) -> tuple[Any, Any]:
    label = fluid.data("label", [None, 1], "int64")
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, label, ignore_index=-1))
    prediction = layers.softmax(logits)
    optimizer.minimize(loss)
    return loss, prediction


def perceptron(dtype: str = "float32") -> tuple[Any, Any, Any]:
    x = fluid.data("x", [None, 1, 5, 5], dtype)
    h = layers.dropout(layers.fc(x, 7, act="tanh"), 0.1, seed=11, dropout_implementation="upscale_in_train")
    return (*_classified(x, layers.fc(h, 3), fluid.optimizer.SGD(0.2)), _images(5, dtype=dtype))


def convolutions() -> tuple[Any, Any, Any]:
    """Images with halos, batch normalization, residuals, pools, a schedule of the learning rate, Adam."""
    x = fluid.data("x", [None, 3, 9, 9])
    h = layers.batch_norm(layers.conv2d(x, 8, 3, padding=1, bias_attr=False), act="relu")
    h = layers.relu(h + layers.batch_norm(layers.conv2d(h, 8, 3, padding=1, bias_attr=False)))
    h = layers.pool2d(h, 2, "max", 2)
    h = layers.pool2d(layers.conv2d(h, 4, 3, padding=1, act="relu"), global_pooling=True, pool_type="avg")
    optimizer = fluid.optimizer.Adam(layers.exponential_decay(0.01, 2, 0.5), regularization=fluid.regularizer.L2Decay(1e-3))
    return (*_classified(x, layers.fc(h, 3), optimizer), _images(9, 3))


def words() -> tuple[Any, Any, Any]:
    """A table with sparse updates, attention, layer normalization, clipped gradients, momentum."""
    ids = fluid.data("x", [None, 4], "int64")
    h = fluid.embedding(ids, [11, 8], is_sparse=True)
    scores = layers.softmax(layers.matmul(layers.fc(h, 8, num_flatten_dims=2), h, transpose_y=True, alpha=0.3))
    h = layers.layer_norm(h + layers.dropout(layers.matmul(scores, h), 0.3), begin_norm_axis=2)
    logits = layers.fc(layers.reduce_mean(layers.fc(h, 8, num_flatten_dims=2, act="gelu"), dim=1), 3)
    optimizer = fluid.optimizer.Momentum(0.1, 0.9, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0))

    def batch(rng: Any) -> Feed:
        return {"x": rng.integers(0, 11, (ROWS, 4)), "label": rng.integers(0, 3, (ROWS, 1))}

    return (*_classified(ids, logits, optimizer), batch)


def noisy() -> tuple[Any, Any, Any]:
    """A recurrent net with random numbers of two distributions, in its steps and before them."""
    x = fluid.data("x", [None, 4, 5])
    sequence = layers.transpose(x + layers.gaussian_random_batch_size_like(x, [-1, 4, 5], std=0.1), [1, 0, 2])
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(sequence)
        before = rnn.memory(shape=[-1, 7], batch_ref=word)
        h = layers.fc([word, before], 7, act="tanh") + layers.uniform_random_batch_size_like(word, [-1, 7], min=0.0, max=0.1)
        rnn.update_memory(before, h)
        rnn.step_output(h)
    logits = layers.fc(layers.reduce_sum(rnn(), 0), 3)

    def batch(rng: Any) -> Feed:
        return {"x": rng.standard_normal((ROWS, 4, 5)).astype("float32"), "label": rng.integers(0, 3, (ROWS, 1))}

    shortcut = layers.fc(layers.reduce_sum(x, 1), 3)
    loss, _ = _classified(x, logits + shortcut, fluid.optimizer.SGD(0.1))
    return loss, shortcut, batch  # predictions draw nothing


def halves() -> tuple[Any, Any, Any]:
    """Mixed precision: products and convolutions of halves, a loss that is scaled."""
    x = fluid.data("x", [None, 3, 6, 6])
    h = layers.pool2d(layers.conv2d(x, 4, 3, padding=1, act="relu"), 2, "avg", 2)
    optimizer = fluid.contrib.mixed_precision.decorate(fluid.optimizer.Momentum(0.1, 0.9), use_dynamic_loss_scaling=True)
    return (*_classified(x, layers.fc(layers.fc(h, 7, act="tanh"), 3), optimizer), _images(6, 3))


NETWORKS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "perceptron": perceptron,
    "doubles": lambda: perceptron("float64"),
    "convolutions": convolutions,
    "words": words,
    "noisy": noisy,
    "halves": halves,
}


def build(name: str) -> Network:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, prediction, batch = NETWORKS[name]()
    return Network(main, startup, loss, prediction, {"x": "x", "label": "label"}, batch)
