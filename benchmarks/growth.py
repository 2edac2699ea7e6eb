"""Times steps of nets at growing sizes: the time for a unit of work should not grow.

    python benchmarks/growth.py [NET ...]

Each row has the time for a unit (a row, a step, a multiplication) at each size, and the growth: the greatest ratio of the time at
a size to the time at a smaller one. Small sizes may take longer for a unit. Times are the processor's, with one thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import statistics
import time

import numpy as np
from common import header

import fluid
from fluid import layers

Feed = dict[str, Any]
Build = Callable[[], Any]
SECONDS = 0.4
"""How long the steps of one size are timed, at least."""


class Net(NamedTuple):
    """A net of some size.

    Attributes:
        build: appends the net to the default program; returns the loss.
        feed: its feeds.
        units: the units of work of a step.
    """

    build: Build
    feed: Feed
    units: float


def random_numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def random_integers(high: int, *shape: int) -> Any:
    return np.random.default_rng(0).integers(0, high, shape)


def random_lengths(count: int) -> list[int]:
    return [int(length) for length in np.random.default_rng(0).integers(1, 20, count)]


def cross_entropy(hidden: Any, rows: int, classes: int = 10) -> Any:
    label = fluid.data("label", [rows, 1], "int64")
    return layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, classes), label))


# ---------------------------------------------------------------------------------------------------------------- nets
def mlp(rows: int) -> Net:
    def build() -> Any:
        hidden = layers.fc(fluid.data("x", [rows, 784]), 512, act="relu")
        return cross_entropy(layers.fc(hidden, 512, act="relu"), rows)

    return Net(build, {"x": random_numbers(rows, 784), "label": random_integers(10, rows, 1)}, rows)


def lenet(images: int) -> Net:
    def build() -> Any:
        hidden = layers.conv2d(fluid.data("x", [images, 1, 28, 28]), 6, 5, padding=2, act="relu")
        hidden = layers.conv2d(layers.pool2d(hidden, 2, "max", 2), 16, 5, act="relu")
        return cross_entropy(layers.fc(layers.pool2d(hidden, 2, "max", 2), 120, act="relu"), images)

    return Net(build, {"x": random_numbers(images, 1, 28, 28), "label": random_integers(10, images, 1)}, images)


def wide_images(side: int) -> Net:
    def build() -> Any:
        hidden = fluid.data("x", [2, 16, side, side])
        for _ in range(2):
            hidden = layers.batch_norm(layers.conv2d(hidden, 16, 3, padding=1, bias_attr=False), act="relu")
        return layers.mean(layers.square(layers.pool2d(hidden, 2, "max", 2)))

    return Net(build, {"x": random_numbers(2, 16, side, side)}, side * side)


def channels(count: int) -> Net:
    def build() -> Any:
        return layers.mean(layers.square(layers.conv2d(fluid.data("x", [2, count, 14, 14]), count, 3, padding=1, act="relu")))

    return Net(build, {"x": random_numbers(2, count, 14, 14)}, count * count)


def lstm(steps: int) -> Net:
    def build() -> Any:
        states = [layers.fill_constant([1, 16, 64], "float32", 0.0) for _ in range(2)]
        hidden, *_ = layers.lstm(fluid.data("x", [steps, 16, 64]), *states, steps, 64, 1)
        return layers.mean(layers.square(hidden))

    return Net(build, {"x": random_numbers(steps, 16, 64)}, steps)


def static_rnn(steps: int) -> Net:
    def build() -> Any:
        rnn = layers.StaticRNN()
        with rnn.step():
            word = rnn.step_input(fluid.data("x", [steps, 16, 32]))
            before = rnn.memory(shape=[-1, 32], batch_ref=word, init_value=0.0)
            after = layers.fc([word, before], 32, act="tanh")
            rnn.update_memory(before, after)
            rnn.step_output(after)
        return layers.mean(layers.square(rnn()))

    return Net(build, {"x": random_numbers(steps, 16, 32)}, steps)


def while_loop(trips: int) -> Net:
    def build() -> Any:
        x, weight = fluid.data("x", [4, 32]), layers.create_parameter([32, 32], "float32")
        first, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", trips)
        _, last = layers.while_loop(
            lambda number, h: layers.less_than(number, end),
            lambda number, h: [number + 1, h + 0.01 * layers.tanh(layers.matmul(h, weight))],  # no gradient vanishes
            [first, x],
        )
        return layers.mean(layers.square(last))

    return Net(build, {"x": random_numbers(4, 32)}, trips)


def attention(words: int) -> Net:
    def build() -> Any:
        x = fluid.data("x", [2, words, 256])
        q, k, v = (layers.transpose(layers.reshape(layers.fc(x, 256, 2), [2, words, 4, 64]), [0, 2, 1, 3]) for _ in range(3))
        heads = layers.matmul(layers.softmax(layers.matmul(q, k, transpose_y=True, alpha=0.125)), v)
        return layers.mean(
            layers.square(layers.fc(layers.reshape(layers.transpose(heads, [0, 2, 1, 3]), [2, words, 256]), 256, 2))
        )

    return Net(build, {"x": random_numbers(2, words, 256)}, words * (4 * 256 * 256 + 2 * words * 256))


def normalized_rows(rows: int) -> Net:
    def build() -> Any:
        hidden = layers.layer_norm(layers.gelu(fluid.data("x", [rows, 64])), begin_norm_axis=1)
        return layers.mean(layers.square(layers.softmax(layers.fc(hidden, 64))))

    return Net(build, {"x": random_numbers(rows, 64)}, rows)


def table(rows: int) -> Net:
    def build() -> Any:
        rows_of_table = fluid.embedding(fluid.data("ids", [rows, 1], "int64"), [100_000, 16], is_sparse=True)
        return layers.mean(layers.square(layers.fc(layers.reshape(rows_of_table, [rows, 16]), 16, act="relu")))

    return Net(build, {"ids": random_integers(100_000, rows, 1)}, rows)


def text(sentences: int) -> Net:
    words = random_lengths(sentences)

    def build() -> Any:
        ids = fluid.data("ids", [-1, 1], "int64", lod_level=1)
        rows = layers.reshape(fluid.embedding(ids, [1000, 32]), [-1, 32])
        return cross_entropy(layers.sequence_pool(layers.sequence_conv(rows, 32, 3, act="tanh"), "max"), -1)

    feed = {"ids": fluid.create_lod_tensor(random_integers(1000, sum(words), 1), [words], fluid.CPUPlace())}
    return Net(build, {**feed, "label": random_integers(10, sentences, 1)}, sum(words))


def dynamic_rnn(sentences: int) -> Net:
    words = random_lengths(sentences)

    def build() -> Any:
        rnn = layers.DynamicRNN()
        with rnn.block():
            word = rnn.step_input(fluid.data("x", [-1, 32], lod_level=1))
            before = rnn.memory(shape=[32], value=0.0)
            after = layers.fc([word, before], 32, act="tanh")
            rnn.update_memory(before, after)
            rnn.output(after)
        return layers.mean(layers.sequence_last_step(rnn()))

    return Net(build, {"x": fluid.create_lod_tensor(random_numbers(sum(words), 32), [words], fluid.CPUPlace())}, sum(words))


def deep(count: int) -> Net:
    def build() -> Any:
        hidden = fluid.data("x", [16, 64])
        for _ in range(count):
            hidden = layers.fc(hidden, 64, act="relu")
        return layers.mean(hidden)

    return Net(build, {"x": random_numbers(16, 64)}, count)


def classes(count: int) -> Net:
    def build() -> Any:
        return cross_entropy(fluid.data("x", [64, 64]), 64, count)

    return Net(build, {"x": random_numbers(64, 64), "label": random_integers(count, 64, 1)}, count)


NETS: dict[str, tuple[Callable[[int], Net], str, Sequence[int]]] = {
    "MLP": (mlp, "row", (1, 16, 64, 256, 1024, 1025, 4096, 8192)),
    "LeNet": (lenet, "image", (1, 4, 16, 64, 256, 1024)),
    "images": (wide_images, "place", (8, 16, 28, 56, 112, 224)),
    "channels": (channels, "pair of channels", (8, 16, 32, 64, 128, 256)),
    "LSTM": (lstm, "step", (16, 64, 256, 1024, 4096)),
    "StaticRNN": (static_rnn, "step", (16, 64, 256, 1024, 4096)),
    "while": (while_loop, "trip", (16, 64, 256, 1024, 4096)),
    "attention": (attention, "multiplication", (16, 64, 256, 512, 1024, 2048, 4096)),
    "normalized rows": (normalized_rows, "row", (16, 256, 4096, 65_536)),
    "table": (table, "row", (16, 256, 4096, 65_536)),
    "text": (text, "word", (4, 16, 64, 256, 1024, 4096)),
    "DynamicRNN": (dynamic_rnn, "word", (2, 8, 32, 128, 512)),
    "layers": (deep, "layer", (4, 16, 64, 256)),
    "classes": (classes, "class", (16, 256, 4096, 65_536)),
}
"""Name -> the net, its unit, and its sizes."""


# ------------------------------------------------------------------------------------------------------------- timing
def seconds_of_step(net: Net) -> float:
    """The median of the processor's time for a training step."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = net.build()
        fluid.optimizer.SGD(1e-3).minimize(loss)
    executor, scope, times = fluid.Executor(), fluid.Scope(), list[float]()
    executor.run(startup, scope=scope)
    for _ in range(2):  # they compile
        executor.run(main, net.feed, [loss], scope=scope)
    end = time.perf_counter() + SECONDS
    while len(times) < 5 or time.perf_counter() < end:
        start = time.process_time()
        executor.run(main, net.feed, [loss], scope=scope)
        times.append(time.process_time() - start)
    return statistics.median(times)


def main(names: Sequence[str]) -> None:
    """Print a row for each net."""
    fluid.set_num_threads(1)
    header("Time for a unit of work at growing sizes", torch=False)
    for name in names or NETS:
        make, unit, sizes = NETS[name]
        times, growth = list[float](), 0.0
        for size in sizes:
            net = make(size)
            times.append(seconds_of_step(net) / net.units)
            growth = max(growth, times[-1] / min(times[:-1], default=float("inf")))
        shown = ", ".join(f"{size}: {1e6 * seconds:.3g}" for size, seconds in zip(sizes, times, strict=True))
        print(f"| {name} | {growth:.2f} | microseconds for a {unit}: {shown} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
