"""What compiled libraries may take: bytes of code, time to compile, time to start; and ten thousand steps without drift."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from libraries import Library, compiler_of_c, made
from networks import build

import fluid
from fluid import layers


def digits(optimizer: Any) -> tuple[Any, Any]:
    """An 8 x 8 image, a hidden layer, ten classes."""
    image, label = fluid.data("image", [None, 64]), fluid.data("label", [None, 1], "int64")
    logits = layers.fc(layers.fc(image, 32, act="relu"), 10)
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, label))
    optimizer.minimize(loss)
    return loss, layers.softmax(logits)


def lenet() -> tuple[Any, Any]:
    image, label = fluid.data("image", [None, 1, 28, 28]), fluid.data("label", [None, 1], "int64")
    h = layers.pool2d(layers.conv2d(image, 6, 5, padding=2, act="relu"), 2, "max", 2)
    h = layers.pool2d(layers.conv2d(h, 16, 5, act="relu"), 2, "max", 2)
    logits = layers.fc(layers.fc(layers.fc(h, 120, act="relu"), 84, act="relu"), 10)
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, label))
    fluid.optimizer.Adam(0.001).minimize(loss)
    return loss, layers.softmax(logits)


def compiled(network: Callable[[], tuple[Any, Any]], folder: Path, **options: Any) -> Any:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, prediction = network()
    options = {"predict": {"prediction": prediction}} | options
    return fluid.compile_program(main, fetches={"loss": loss}, startup=startup, output=folder / "net", **options)


CODE: dict[str, tuple[Callable[[], tuple[Any, Any]], dict[str, Any], int]] = {
    "digits, SGD": (lambda: digits(fluid.optimizer.SGD(0.05)), {"target": "cortex-m4", "batch": [32, 1]}, 12_000),
    "digits, Adam": (lambda: digits(fluid.optimizer.Adam(0.01)), {"target": "cortex-m4", "batch": [32, 1]}, 12_000),
    "lenet": (lenet, {"target": "x86-64-v3", "batch": 64, "predict": ()}, 45_000),
}
"""Network, how it is compiled, and the most bytes of instructions."""


@each("name", CODE)
def test_instructions_are_few(name: str, tmp_path: Path) -> None:
    size = shutil.which("size") or pytest.skip("there is no size here")
    network, options, most = CODE[name]
    compiled(network, tmp_path, **options)
    lines = subprocess.run([size, "-A", tmp_path / "net.o"], check=True, capture_output=True, text=True).stdout.splitlines()
    (text,) = [int(line.split()[1]) for line in lines if line.startswith(".text ")]
    assert text < most


STEPS = """
#include "net.h"
static unsigned char state[NET_STATE_BYTES] __attribute__((aligned(64))), arena[NET_ARENA_BYTES] __attribute__((aligned(64)));
static float image[64 * 784];
static int64_t label[64];

int main(void) {
    const struct net_step_feeds feeds = {image, label};
    const struct net_step_fetches fetches = {0};
    net_init(state);
    for (int i = 0; i < 5; i++)
        if (net_step(state, arena, &feeds, &fetches)) return 1;
    return 0;
}
"""


@pytest.mark.slow
def test_a_process_starts_and_makes_five_steps_in_20_ms(tmp_path: Path) -> None:
    """Of LeNet with 64 images: the least CPU time of some processes."""
    compiled(lenet, tmp_path, batch=64, predict=())
    (tmp_path / "main.c").write_text(STEPS)
    subprocess.run([compiler_of_c(), "-O1", "main.c", "net.o", "-o", "main"], cwd=tmp_path, check=True)
    seconds = []
    for _ in range(10):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([tmp_path / "main"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.02


@pytest.mark.slow
def test_a_resnet_compiles_in_3_s(tmp_path: Path) -> None:
    def normalized(x: Any, channels: int, stride: int = 1, act: str | None = "relu") -> Any:
        return layers.batch_norm(layers.conv2d(x, channels, 3, stride=stride, padding=1, bias_attr=False), act=act)

    def resnet20() -> tuple[Any, Any]:
        x, label = fluid.data("x", [None, 3, 32, 32]), fluid.data("label", [None, 1], "int64")
        h = normalized(x, 16)
        for channels in (16, 32, 64):
            for block in range(3):
                stride = 2 if channels > 16 and not block else 1
                shortcut = layers.conv2d(h, channels, 1, stride=stride) if stride > 1 else h
                h = layers.relu(shortcut + normalized(normalized(h, channels, stride), channels, act=None))
        logits = layers.fc(layers.pool2d(h, global_pooling=True, pool_type="avg"), 10)
        loss = layers.mean(layers.softmax_with_cross_entropy(logits, label))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        return loss, logits

    compiled(lenet, tmp_path, batch=2, predict=())  # imports
    start = time.process_time()
    compiled(resnet20, tmp_path, batch=32, predict=())
    assert time.process_time() - start < 3


@pytest.mark.slow
@each("name", ["convolutions", "words"])
def test_ten_thousand_steps_do_not_drift(name: str, tmp_path: Path) -> None:
    threads = fluid.get_num_threads()
    fluid.set_num_threads(1)
    try:
        network = build(name)
        executor, scope = network.started()
        library = Library(made(network, tmp_path, scope))
        batches = network.batches(20)
        for _ in range(500):
            for feed in batches:
                library.step(feed)
                executor.run(network.main, feed, [], scope=scope)
        for variable, array in library.variables().items():
            assert array.tobytes() == np.array(scope.array(variable)).tobytes(), variable
            assert np.isfinite(array).all()
    finally:
        fluid.set_num_threads(threads)
