"""Regions that run in blocks of images, compared with the interpreter, which has no blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checked_plans import checked_plans
from checks import fresh_programs
from harness import set_limits

import fluid
from fluid import layers


def _bottlenecks(x: Any) -> list[Any]:
    """Expansion, a depthwise convolution with a stride, and projection; then the same with a residual connection."""
    h = layers.relu6(layers.conv2d(x, 8, 3, padding=1))
    for stride in (2, 1):
        inner = layers.relu6(layers.conv2d(h, 24, 1))
        inner = layers.relu6(layers.conv2d(inner, 24, 3, stride, padding=1, groups=24))
        out = layers.conv2d(inner, 8, 1)
        h = layers.elementwise_add(out, h) if stride == 1 else out
    return [layers.pool2d(h, pool_type="avg", global_pooling=True)]


def _pools(x: Any) -> list[Any]:
    h = layers.pool2d(layers.conv2d(x, 8, 3, padding=1, act="relu"), 3, "max", 2, 1)
    return [layers.conv2d(layers.pool2d(layers.relu(layers.conv2d(h, 12, 1)), 2, "avg", 2), 5, 1)]


def _fetched_within(x: Any) -> list[Any]:
    first = layers.conv2d(x, 8, 3, padding=1)
    second = layers.conv2d(layers.relu(layers.conv2d(first, 8, 1)), 8, 1)
    return [layers.conv2d(second, 4, 1), second, layers.reduce_mean(first)]


def _scaled(x: Any) -> list[Any]:
    """By numbers of each image, by numbers of each pixel for all images, and by images that are computed otherwise."""
    of_image = layers.sigmoid(layers.conv2d(layers.pool2d(x, pool_type="avg", global_pooling=True), 8, 1))
    of_pixel = layers.create_parameter([1, 8, *x.shape[2:]], "float32", default_initializer=fluid.initializer.Uniform(-1, 1))
    h = layers.conv2d(x, 8, 3, padding=1) * of_image
    h = layers.conv2d(h, 8, 1) * of_pixel
    return [layers.conv2d(layers.conv2d(h, 8, 1) + layers.concat([layers.tanh(x), x[:, :2]], 1), 4, 1)]


NETS = {"bottlenecks": _bottlenecks, "pools": _pools, "fetched within": _fetched_within, "scaled": _scaled}
IMAGES = [(6, 6, 10, 9), (8, 6, 8, 8), (5, 6, 7, 12)]


@pytest.fixture(autouse=True)
def _new_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a limit so small that every value counts as large, and disable the cache."""
    set_limits(monkeypatch, image_block_bytes=1)
    monkeypatch.setenv("FLUID_NATIVE_CACHE", "0")
    monkeypatch.delenv("FLUID_NATIVE", raising=False)


def _built(net: Callable[[Any], list[Any]], shape: tuple[int, ...]) -> tuple[fluid.Executor, dict[str, Any], list[Any]]:
    x = fluid.data("x", shape)
    outs = net(x)
    executor = fluid.Executor()
    fluid.default_startup_program().random_seed = 1
    executor.run(fluid.default_startup_program())
    return executor, {"x": np.random.default_rng(0).standard_normal(shape, np.float32)}, outs


def _check(executor: fluid.Executor, feed: dict[str, Any], outs: list[Any], blocks: str) -> None:
    """Values equal the interpreter's; bits are the same for any number of threads, in two runs."""
    expected = executor.interpret(feed=feed, fetch_list=outs)
    assert f"{blocks}:" in executor.plan(feed=feed, fetch_list=outs).to_string(calls=True)
    before = fluid.get_num_threads()
    runs = []
    try:
        for count in (1, 2, 4):
            fluid.set_num_threads(count)
            runs += [executor.run(feed=feed, fetch_list=outs) for _ in range(2)]
    finally:
        fluid.set_num_threads(before)
    for value, other in zip(runs[0], expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=2e-5, atol=2e-5 * np.abs(other).max())
    for run in runs[1:]:
        for value, other in zip(run, runs[0], strict=True):
            np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("shape", IMAGES, ids=str)
@pytest.mark.parametrize("name", NETS)
def test_blocks_of_an_image(name: str, shape: tuple[int, ...]) -> None:
    _check(*_built(NETS[name], shape), f"{shape[0]} blocks of 1 image")


@pytest.mark.parametrize(
    ("name", "large", "blocks"),
    [
        ("bottlenecks", 26_000, "3 blocks of 2 images"),
        ("bottlenecks", 40_000, "2 blocks of 3 images"),
        ("pools", 6_000, "3 blocks of 2 images"),
        ("fetched within", 6_000, "3 blocks of 2 images"),
        ("scaled", 9_000, "2 blocks of 3 images"),
    ],
)
def test_blocks_of_some_images(name: str, large: int, blocks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, image_block_bytes=large)
    _check(*_built(NETS[name], IMAGES[0]), blocks)


@pytest.mark.parametrize("name", NETS)
def test_blocks_access_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with checked_plans(monkeypatch) as tables, fresh_programs():
        executor, feed, outs = _built(NETS[name], IMAGES[0])
        values = executor.run(feed=feed, fetch_list=outs)
        assert tables.calls > 0
        for value, other in zip(values, executor.interpret(feed=feed, fetch_list=outs), strict=True):
            np.testing.assert_allclose(value, other, rtol=2e-5, atol=2e-5 * np.abs(other).max())


def test_a_value_of_a_block_has_room_for_a_block() -> None:
    executor, feed, outs = _built(_bottlenecks, IMAGES[0])
    text = str(executor.plan(feed=feed, fetch_list=outs))
    assert "float32[1, 12, 11, 24], channels last, halo 1, a block" in text
    assert "float32[6, 12, 11, 24]" not in text


def test_a_plan_on_disk_has_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of a plan has the calls of all blocks."""
    monkeypatch.setenv("FLUID_NATIVE_CACHE", str(tmp_path))

    def net(x: Any) -> list[Any]:
        (out,) = _bottlenecks(x)
        for _ in range(12):  # plans of few ops are not kept
            out = layers.relu(layers.conv2d(out, 4, 1))
        return [out]

    executor, feed, outs = _built(net, IMAGES[0])
    expected = executor.run(feed=feed, fetch_list=outs)
    plan = executor.plan(feed=feed, fetch_list=outs)
    again = fluid.Executor()
    np.testing.assert_array_equal(again.run(feed=feed, fetch_list=outs)[0], expected[0])
    kept = again.plan(feed=feed, fetch_list=outs)
    assert kept.kernels is not None and "blocks of" in kept.to_string(calls=True)
    assert kept.to_string(calls=True) == plan.to_string(calls=True)
    assert [each.shares for each in kept.instructions] == [each.shares for each in plan.instructions]


def test_training_keeps_all_images() -> None:
    """Values that backward reads are there for all images."""
    x = fluid.data("x", IMAGES[0])
    (out,) = _bottlenecks(x)
    loss = layers.reduce_mean(layers.square(out))
    gradients = [gradient for _, gradient in fluid.append_backward(loss)]
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.random.default_rng(0).standard_normal(x.shape, np.float32)}
    expected = executor.interpret(feed=feed, fetch_list=gradients)
    for value, other in zip(executor.run(feed=feed, fetch_list=gradients), expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-3, atol=1e-4 * np.abs(other).max())
