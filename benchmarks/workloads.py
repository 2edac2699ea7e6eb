"""The workloads of native.py: each model is written once, as a function of a system's ops and of parameters.

A model is ``model(o, p, batch)``: `o` has the ops of a system (see peers.py), `p` its parameters by name, `batch` what is fed. It
gives the loss, or what is predicted. First values of parameters and batches are drawn here, the same for all systems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

Arrays = Mapping[str, Any]
Model = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Workload:
    """A model with its first values and a batch.

    Attributes:
        optimizer: its name, ``"sgd"``, ``"momentum"`` or ``"adam"``, and its rate; None for a model that only predicts.
        sparse: the parameter whose gradient is that of the rows that were looked up.
        hand_written: a step in plain numpy, given first values and batch.
    """

    what: str
    remark: str
    model: Model
    first: Callable[[], Arrays]
    batch: Callable[[], Arrays]
    optimizer: tuple[str, float] | None = None
    sparse: str | None = None
    hand_written: Callable[[Arrays, Arrays], Callable[[], float]] | None = None


class Draw:
    """Draws first values, which it keeps by name."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.values: dict[str, Any] = {}

    def normal(self, name: str, *shape: int, scale: float) -> None:
        self.values[name] = self.random.standard_normal(shape, np.float32) * np.float32(scale)

    def filled(self, name: str, *shape: int, value: float = 0.0) -> None:
        self.values[name] = np.full(shape, value, np.float32)

    def linear(self, name: str, rows: int, columns: int) -> None:
        self.normal(f"{name}.w", rows, columns, scale=(2 / rows) ** 0.5)
        self.filled(f"{name}.b", columns)

    def conv(self, name: str, filters: int, channels: int, size: int, bias: bool = False) -> None:
        self.normal(f"{name}.w", filters, channels, size, size, scale=(2 / (channels * size * size)) ** 0.5)
        if bias:
            self.filled(f"{name}.b", filters)

    def norm(self, name: str, channels: int) -> None:
        self.filled(f"{name}.scale", channels, value=1.0)
        self.filled(f"{name}.shift", channels)


def labelled(*shape: int, classes: int = 10) -> dict[str, Any]:
    random = np.random.default_rng(1)
    return {"x": random.standard_normal(shape, np.float32), "label": random.integers(0, classes, (shape[0], 1))}


# ----------------------------------------------------------------------------------------------------------- small ops
CONSTANT, REPEATS = 0.9, 200


def small_ops(o: Any, p: Any, batch: Any) -> Any:
    h, bias = o.data(batch, "x"), o.value(p["bias"])
    for i in range(REPEATS):
        h = o.matmul(o.tanh((o.tanh(h) + bias) * CONSTANT), o.value(p[f"weight_{i}"]))
    return o.mean(h * h)


def small_ops_first() -> Arrays:
    draw = Draw()
    draw.normal("bias", 32, scale=0.05)
    for i in range(REPEATS):
        draw.normal(f"weight_{i}", 32, 32, scale=32**-0.5)
    return draw.values


def small_ops_in_numpy(first: Arrays, batch: Arrays) -> Callable[[], float]:
    """Arrays are made once, each op writes into its own, backward is written out."""
    x, rate, constant = batch["x"], np.float32(0.05), np.float32(CONSTANT)
    bias, *weights = (value.copy() for value in first.values())
    inner, outer, out = (np.empty((REPEATS, *x.shape), np.float32) for _ in range(3))
    sums, grad, slope = (np.empty_like(x) for _ in range(3))
    of_weights = np.empty((REPEATS, 32, 32), np.float32)
    of_bias, part = np.empty_like(bias), np.empty_like(bias)
    ones = np.ones(len(x), np.float32)

    def step() -> float:
        h = x
        for a, b, c, weight in zip(inner, outer, out, weights, strict=True):
            np.tanh(h, a)
            np.add(a, bias, sums)
            np.multiply(sums, constant, sums)
            np.tanh(sums, b)
            h = np.dot(b, weight, c)
        loss = np.square(h, sums).mean().item()
        np.multiply(h, np.float32(2 / h.size), grad)
        of_bias.fill(0)
        for a, b, weight, of_weight in reversed(list(zip(inner, outer, weights, of_weights, strict=True))):
            np.dot(b.T, grad, of_weight)
            np.dot(grad, weight.T, sums)
            np.square(b, slope)
            np.subtract(1, slope, slope)
            np.multiply(sums, slope, sums)
            np.multiply(sums, constant, sums)
            np.add(of_bias, np.dot(ones, sums, part), of_bias)
            np.square(a, slope)
            np.subtract(1, slope, slope)
            np.multiply(sums, slope, grad)
        for weight, of_weight in zip(weights, of_weights, strict=True):
            np.multiply(of_weight, rate, of_weight)
            np.subtract(weight, of_weight, weight)
        np.subtract(bias, of_bias * rate, bias)
        return loss

    return step


# ------------------------------------------------------------------------------------------------- perceptrons, images
def mlp(o: Any, p: Any, batch: Any) -> Any:
    h = o.linear(o.data(batch, "x"), p, "fc1", act="relu")
    h = o.linear(h, p, "fc2", act="relu")
    return o.cross_entropy(o.linear(h, p, "fc3"), o.data(batch, "label"))


def mlp_first() -> Arrays:
    draw = Draw()
    for number, (rows, columns) in enumerate(((784, 512), (512, 512), (512, 10))):
        draw.linear(f"fc{number + 1}", rows, columns)
    return draw.values


def deep(o: Any, p: Any, batch: Any) -> Any:
    h = o.data(batch, "x")
    for layer in range(64):
        h = o.linear(h, p, f"fc{layer}", act="relu")
    return o.mean(h)


def deep_first() -> Arrays:
    draw = Draw()
    for layer in range(64):
        draw.linear(f"fc{layer}", 1024, 1024)
    return draw.values


def lenet(o: Any, p: Any, batch: Any) -> Any:
    h = o.max_pool(o.conv(o.image(batch, "x"), p, "conv1", act="relu"), 2, 2)
    h = o.max_pool(o.conv(h, p, "conv2", act="relu"), 2, 2)
    h = o.linear(o.flat(h), p, "fc1", act="relu")
    return o.cross_entropy(o.linear(h, p, "fc2"), o.data(batch, "label"))


def lenet_first() -> Arrays:
    draw = Draw()
    draw.conv("conv1", 20, 1, 5, bias=True)
    draw.conv("conv2", 50, 20, 5, bias=True)
    draw.linear("fc1", 800, 500)
    draw.linear("fc2", 500, 10)
    return draw.values


def _resnet20_blocks() -> list[tuple[str, int, int, int]]:
    """Name, channels in, channels out, and stride of each block."""
    blocks, channels = [], 16
    for stage, filters in enumerate((16, 32, 64)):
        for number in range(3):
            blocks.append((f"block{stage}{number}", channels, filters, 2 if stage and not number else 1))
            channels = filters
    return blocks


def resnet20(o: Any, p: Any, batch: Any) -> Any:
    def conv_norm(x: Any, name: str, stride: int = 1, padding: int = 1, act: str | None = None) -> Any:
        return o.batch_norm(o.conv(x, p, f"{name}.conv", stride, padding), p, f"{name}.norm", act)

    h = conv_norm(o.image(batch, "x"), "start", act="relu")
    for name, channels, filters, stride in _resnet20_blocks():
        out = conv_norm(conv_norm(h, f"{name}.a", stride, act="relu"), f"{name}.b")
        short = h if channels == filters else conv_norm(h, f"{name}.short", stride, padding=0)
        h = o.relu(out + short)
    return o.cross_entropy(o.linear(o.global_pool(h), p, "fc"), o.data(batch, "label"))


def resnet20_first() -> Arrays:
    draw = Draw()

    def conv_norm(name: str, filters: int, channels: int, size: int) -> None:
        draw.conv(f"{name}.conv", filters, channels, size)
        draw.norm(f"{name}.norm", filters)

    conv_norm("start", 16, 3, 3)
    for name, channels, filters, _ in _resnet20_blocks():
        conv_norm(f"{name}.a", filters, channels, 3)
        conv_norm(f"{name}.b", filters, filters, 3)
        if channels != filters:
            conv_norm(f"{name}.short", filters, channels, 1)
    draw.linear("fc", 64, 10)
    return draw.values


# ------------------------------------------------------------------------------------------------- sequences and tables
LSTM_STEPS, LSTM_BATCH, LSTM_FEATURES, LSTM_HIDDEN = 35, 20, 256, 256


def lstm(o: Any, p: Any, batch: Any) -> Any:
    h = o.last_of_lstm(o.data(batch, "x"), p, "lstm", LSTM_HIDDEN)
    return o.cross_entropy(o.linear(h, p, "fc"), o.data(batch, "label"))


def lstm_first() -> Arrays:
    draw, gates, scale = Draw(), 4 * LSTM_HIDDEN, LSTM_HIDDEN**-0.5
    draw.normal("lstm.input", gates, LSTM_FEATURES, scale=scale)
    draw.normal("lstm.hidden", gates, LSTM_HIDDEN, scale=scale)
    draw.normal("lstm.input_bias", gates, scale=scale)
    draw.normal("lstm.hidden_bias", gates, scale=scale)
    draw.linear("fc", LSTM_HIDDEN, 10)
    return draw.values


def lstm_batch() -> Arrays:
    random = np.random.default_rng(1)
    x = random.standard_normal((LSTM_STEPS, LSTM_BATCH, LSTM_FEATURES), np.float32)
    return {"x": x, "label": random.integers(0, 10, (LSTM_BATCH, 1))}


@dataclass(frozen=True)
class TransformerSizes:
    words: int
    width: int
    heads: int
    length: int
    blocks: int


SMALL_TRANSFORMER = TransformerSizes(1000, 128, 4, 64, 2)
LARGE_TRANSFORMER = TransformerSizes(32_000, 768, 12, 512, 12)


def transformer(o: Any, p: Any, batch: Any, sizes: TransformerSizes = SMALL_TRANSFORMER) -> Any:
    h = o.embedding(o.data(batch, "ids"), p, "words") + o.value(p["places"])
    for block in range(sizes.blocks):
        name = f"block{block}"
        x = o.layer_norm(h, p, f"{name}.norm1")
        parts = (o.linear(x, p, f"{name}.{part}") for part in ("queries", "keys", "values"))
        h = h + o.linear(o.attention(*parts, sizes.heads), p, f"{name}.out")
        x = o.linear(o.layer_norm(h, p, f"{name}.norm2"), p, f"{name}.wide", act="relu")
        h = h + o.linear(x, p, f"{name}.narrow")
    return o.cross_entropy(o.linear(o.layer_norm(h, p, "norm"), p, "fc"), o.data(batch, "label"))


def transformer_first(sizes: TransformerSizes = SMALL_TRANSFORMER) -> Arrays:
    draw, width = Draw(), sizes.width
    draw.normal("words", sizes.words, width, scale=0.5)
    draw.normal("places", sizes.length, width, scale=0.5)
    for block in range(sizes.blocks):
        name = f"block{block}"
        draw.norm(f"{name}.norm1", width)
        for part in ("queries", "keys", "values", "out"):
            draw.linear(f"{name}.{part}", width, width)
        draw.norm(f"{name}.norm2", width)
        draw.linear(f"{name}.wide", width, 4 * width)
        draw.linear(f"{name}.narrow", 4 * width, width)
    draw.norm("norm", width)
    draw.linear("fc", width, sizes.words)
    return draw.values


def transformer_batch(sizes: TransformerSizes = SMALL_TRANSFORMER) -> Arrays:
    random = np.random.default_rng(1)
    ids, label = random.integers(0, sizes.words, (8, sizes.length)), random.integers(0, sizes.words, (8, sizes.length, 1))
    return {"ids": ids, "label": label}


ROWS, ROW_WIDTH, LOOKUPS = 1_000_000, 64, 1024


def table(o: Any, p: Any, batch: Any) -> Any:
    # Rows that went to zero would become denormal numbers, which take a processor many times as long as others.
    errors = o.embedding(o.data(batch, "ids"), p, "table", is_sparse=True) - o.data(batch, "targets")
    return o.mean(errors * errors)


def table_first() -> Arrays:
    draw = Draw()
    draw.normal("table", ROWS, ROW_WIDTH, scale=1.0)
    return draw.values


def table_batch() -> Arrays:
    random = np.random.default_rng(1)
    return {"ids": random.integers(0, ROWS, LOOKUPS), "targets": random.standard_normal((LOOKUPS, ROW_WIDTH), np.float32)}


# ------------------------------------------------------------------------------------------------------------ for a GPU
WIDE, WIDE_LAYERS = 4096, 8


def wide(o: Any, p: Any, batch: Any) -> Any:
    h = o.data(batch, "x")
    for layer in range(WIDE_LAYERS):
        h = o.linear(h, p, f"fc{layer}", act="relu")
    return o.cross_entropy(o.linear(h, p, "out"), o.data(batch, "label"))


def wide_first() -> Arrays:
    draw = Draw()
    for layer in range(WIDE_LAYERS):
        draw.linear(f"fc{layer}", WIDE, WIDE)
    draw.linear("out", WIDE, 10)
    return draw.values


def resnet50_loss(o: Any, p: Any, batch: Any) -> Any:
    return o.cross_entropy(resnet50(o, p, batch), o.data(batch, "label"))


# ---------------------------------------------------------------------------------------------------------- prediction
# The nets are those of the papers with their norms folded into the convolutions before them, for every system.
def _bottlenecks() -> list[tuple[str, int, int, int]]:
    """Of ResNet-50's blocks: name, channels in, inner channels, stride."""
    blocks, channels = [], 64
    for stage, (inner, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for number in range(count):
            blocks.append((f"block{stage}{number}", channels, inner, 2 if stage and not number else 1))
            channels = 4 * inner
    return blocks


def resnet50(o: Any, p: Any, batch: Any) -> Any:
    h = o.max_pool(o.conv(o.image(batch, "x"), p, "start", 2, 3, act="relu"), 3, 2, 1)
    for name, channels, inner, stride in _bottlenecks():
        out = o.conv(h, p, f"{name}.a", act="relu")
        out = o.conv(o.conv(out, p, f"{name}.b", stride, 1, act="relu"), p, f"{name}.c")
        short = h if channels == 4 * inner else o.conv(h, p, f"{name}.short", stride)
        h = o.relu(out + short)
    return o.linear(o.global_pool(h), p, "fc")


def resnet50_first() -> Arrays:
    draw = Draw()
    draw.conv("start", 64, 3, 7, bias=True)
    for name, channels, inner, _ in _bottlenecks():
        draw.conv(f"{name}.a", inner, channels, 1, bias=True)
        draw.conv(f"{name}.b", inner, inner, 3, bias=True)
        draw.conv(f"{name}.c", 4 * inner, inner, 1, bias=True)
        draw.values[f"{name}.c.w"] *= np.float32(0.2)  # sums of so many blocks stay small
        if channels != 4 * inner:
            draw.conv(f"{name}.short", 4 * inner, channels, 1, bias=True)
    draw.linear("fc", 2048, 1000)
    return draw.values


def _inverted() -> list[tuple[str, int, int, int, int]]:
    """Of MobileNet-v2's blocks: name, channels in, inner channels, channels out, stride."""
    blocks, channels = [], 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for stage, (factor, filters, count, stride) in enumerate(stages):
        for number in range(count):
            blocks.append((f"block{stage}{number}", channels, factor * channels, filters, 1 if number else stride))
            channels = filters
    return blocks


def mobilenet(o: Any, p: Any, batch: Any) -> Any:
    h = o.conv(o.image(batch, "x"), p, "start", 2, 1, act="relu6")
    for name, channels, inner, filters, stride in _inverted():
        out = h if inner == channels else o.conv(h, p, f"{name}.a", act="relu6")
        out = o.conv(o.conv(out, p, f"{name}.b", stride, 1, inner, act="relu6"), p, f"{name}.c")
        h = h + out if stride == 1 and channels == filters else out
    return o.linear(o.global_pool(o.conv(h, p, "end", act="relu6")), p, "fc")


def mobilenet_first() -> Arrays:
    draw = Draw()
    draw.conv("start", 32, 3, 3, bias=True)
    for name, channels, inner, filters, _ in _inverted():
        if inner != channels:
            draw.conv(f"{name}.a", inner, channels, 1, bias=True)
        draw.conv(f"{name}.b", inner, 1, 3, bias=True)
        draw.conv(f"{name}.c", filters, inner, 1, bias=True)
    draw.conv("end", 1280, 320, 1, bias=True)
    draw.linear("fc", 1280, 1000)
    return draw.values


def images(count: int) -> Arrays:
    return {"x": np.random.default_rng(1).standard_normal((count, 3, 224, 224), np.float32)}


WORKLOADS = {
    "small_ops": Workload(
        "1,000 small ops",
        "[16, 32]; SGD",
        small_ops,
        small_ops_first,
        lambda: {"x": np.random.default_rng(1).standard_normal((16, 32), np.float32)},
        ("sgd", 0.05),
        hand_written=small_ops_in_numpy,
    ),
    "mlp": Workload("MLP 784-512-512-10", "batch 64, Adam", mlp, mlp_first, lambda: labelled(64, 784), ("adam", 0.001)),
    "lenet": Workload("LeNet 28 x 28", "batch 64, SGD", lenet, lenet_first, lambda: labelled(64, 1, 28, 28), ("sgd", 0.01)),
    "resnet20": Workload(
        "ResNet-20 32 x 32", "batch 32, momentum", resnet20, resnet20_first, lambda: labelled(32, 3, 32, 32), ("momentum", 0.01)
    ),
    "lstm": Workload("LSTM 256-256", "35 steps, batch 20, SGD", lstm, lstm_first, lstm_batch, ("sgd", 0.1)),
    "transformer": Workload(
        "transformer 2 x 128", "64 words, batch 8, Adam", transformer, transformer_first, transformer_batch, ("adam", 0.001)
    ),
    "table": Workload(
        "table 1M x 64", "1,024 rows, sparse SGD", table, table_first, table_batch, ("sgd", 1000.0), sparse="table"
    ),
    "deep": Workload(
        "64 layers of 1024",
        "batch 512, SGD",
        deep,
        deep_first,
        lambda: {"x": np.random.default_rng(1).standard_normal((512, 1024), np.float32)},
        ("sgd", 0.001),
    ),
    **{
        f"{model.__name__}_{count}": Workload(what, f"batch {count}, prediction", model, first, partial(images, count))
        for what, model, first in (("ResNet-50", resnet50, resnet50_first), ("MobileNet-v2", mobilenet, mobilenet_first))
        for count in (1, 8)
    },
}

LARGE_WORKLOADS = {
    "wide": Workload("MLP of 8 x 4,096", "batch 4,096, SGD", wide, wide_first, lambda: labelled(4096, WIDE), ("sgd", 0.01)),
    "resnet50_training": Workload(
        "ResNet-50, training",
        "batch 64, momentum",
        resnet50_loss,
        resnet50_first,
        lambda: labelled(64, 3, 224, 224, classes=1000),
        ("momentum", 0.001),
    ),
    "large_transformer": Workload(
        "transformer 12 x 768",
        "512 words, batch 8, Adam",
        partial(transformer, sizes=LARGE_TRANSFORMER),
        partial(transformer_first, LARGE_TRANSFORMER),
        partial(transformer_batch, LARGE_TRANSFORMER),
        ("adam", 0.0001),
    ),
}
"""Training steps of sizes that fill a GPU."""
