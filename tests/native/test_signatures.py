"""Signatures of kernels say all that their texts depend on, and little else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from checks import fresh_programs

import fluid
from fluid import layers
from fluid.executor.native import kernel_calls
from fluid.executor.native.regions import NativeRegion
from fluid.executor.native.signatures import describe_region, signature_of


def formulas(order: int) -> Any:
    """The same operands and formulas, put together differently."""
    x, y = fluid.data("x", [4, 8]), fluid.data("y", [4, 8])
    first = layers.tanh(x - y) * (x, y, x)[order]
    second = layers.exp(first)
    layers.matmul((first, first, second)[order], y, transpose_y=True).persistable = True
    return layers.reduce_sum(second)


def images(size: int, stride: int, dilation: int = 1) -> Any:
    h = layers.conv2d(fluid.data("x", [2, 3, size, size]), 8, 3, stride, dilation, dilation, act="relu")
    h = layers.batch_norm(layers.conv2d(layers.pool2d(h, 2, "max", 2), 8, 3, padding=1), act="tanh") + 0.5
    return layers.reduce_mean(layers.square(layers.pool2d(h, 2, "avg", 1, 1)))


def matrices(rows: int, columns: int, factor: float) -> Any:
    x = fluid.data("x", [rows, columns])
    h = layers.softmax(layers.fc(layers.layer_norm(x), columns, act="sigmoid")) * factor
    joined = layers.concat([h, layers.transpose(layers.matmul(h, h, transpose_x=True), [1, 0]), x], 0)
    return layers.reduce_sum(joined[1:, :2]) + layers.mean(layers.matmul(h[:2], h, transpose_y=True))


def words(count: int) -> Any:
    ids = fluid.data("x", [6, 1], "int64")
    return layers.mean(layers.square(layers.embedding(ids, [count, 8], is_sparse=count > 20)))


def recurrence(steps: int) -> Any:
    x, state = fluid.data("x", [steps, 4, 8]), layers.fill_constant([1, 4, 8], "float32", 0.0)
    return layers.mean(layers.lstm(x, state, state, steps, 8, 1)[0])


PROGRAMS: list[Callable[[], Any]] = [
    *(partial(formulas, order) for order in range(3)),
    lambda: images(8, 1),
    lambda: images(8, 2),
    lambda: images(8, 1, 2),
    lambda: images(6, 1),
    lambda: matrices(4, 6, 2.0),
    lambda: matrices(6, 4, 2.0),
    lambda: matrices(4, 6, -0.0),
    lambda: matrices(4, 6, 0.0),
    lambda: words(16),
    lambda: words(32),
    lambda: recurrence(5),
]


def regions_of(build: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[NativeRegion]:
    """The regions of a program, which trains if it has parameters."""
    with fresh_programs() as (main, startup):
        loss = build()
        if main.all_parameters():
            fluid.optimizer.Adam(0.1).minimize(loss)
        executor = fluid.Executor()
        feed = {var.name: np.zeros(var.shape, var.dtype.text) for var in main.list_vars() if var.is_data}
        with monkeypatch.context() as patch:
            patch.setenv("FLUID_NATIVE", "0")
            executor.run(startup)
        plan = executor.plan(main, feed=feed, fetch_list=[loss])
        return [instruction for instruction in plan.instructions if isinstance(instruction, NativeRegion)]


def test_a_signature_determines_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of programs that differ in strides, pads, extents, numbers and orders; two zeros are two numbers."""
    text_of: dict[str, str] = {}
    signatures_of: dict[str, set[str]] = defaultdict(set)
    count = 0
    for build in PROGRAMS:
        for region in regions_of(build, monkeypatch):
            count += 1
            signature = signature_of(describe_region(region))
            text = "\n".join(kernel_calls._kernel(region, phase, "kernel").text for phase in kernel_calls._phases(region)[0])
            assert text_of.setdefault(signature, text) == text, region.describe()
            signatures_of[text].add(signature)
    assert len(signatures_of) > 100 and len(text_of) < 1.1 * len(signatures_of) < count
