"""Copies whose rows become columns: each element arrives, whatever the sizes, with squares that overlap at the ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from beside_numpy import assert_alike
from checks import Checks, fresh_programs
from harness import TARGETS, set_limits, set_target

import fluid
from fluid import layers

SIZES = (1, 3, 4, 5, 7, 8, 9, 17, 63, 1025)
DTYPES = ("float32", "float64", "int64", "int32")


def check(shape: tuple[int, ...], dtype: str) -> None:
    """Fetch two orders of the axes of an array, which native code copies."""
    orders = [[0, 2, 1], [2, 0, 1]] if len(shape) == 3 else [[0, 3, 1, 2], [0, 2, 3, 1]]
    with fresh_programs() as (program, _):
        x = fluid.data("x", list(shape), dtype)
        fetches = [layers.transpose(x, order) for order in orders]
        executor, feed = fluid.Executor(), {"x": np.arange(np.prod(shape)).reshape(shape).astype(dtype)}
        results = executor.run(program, feed, fetches)
        assert executor.plan(program, feed, fetches).new_tables is not None  # type: ignore[attr-defined]
        for order, result in zip(orders, results, strict=True):
            np.testing.assert_array_equal(result, feed["x"].transpose(order))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.vector_bytes} bytes")
def test_matrices_and_images(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    set_target(monkeypatch, target)
    with Checks() as checks:
        for number, rows in enumerate(SIZES):
            for columns in SIZES[: len(SIZES) - (rows > 63)]:
                set_limits(monkeypatch, part=(4096, 64)[(rows + columns) // 2 % 2], serial=1)
                dtype, images = DTYPES[(number + columns) % len(DTYPES)], 1 + number % 3
                with checks(f"{images} x {rows} x {columns}, {dtype}"):
                    check((images, rows, columns), dtype)
        for shape in ((1, 3, 9, 17), (2, 8, 7, 5), (1, 16, 4, 4), (2, 5, 12, 63), (1, 8, 2, 1)):
            with checks(str(shape)):
                check(shape, "float32")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.vector_bytes} bytes")
def test_images_with_a_halo(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions read and give images, [N, C, H, W], and copy them to channels behind pixels."""
    set_target(monkeypatch, target)
    with Checks() as checks:
        for images, channels, height, width in (
            (1, 1, 5, 7),
            (1, 3, 8, 9),
            (2, 5, 9, 4),
            (1, 64, 7, 7),
            (1, 17, 3, 63),
            (3, 8, 1, 8),
        ):

            def build(shape: Any = (images, channels, height, width)) -> Any:
                x = fluid.data("x", list(shape))
                h = layers.conv2d(x, shape[1], 3, padding=1, groups=shape[1], act="relu")
                return [h, layers.conv2d(h, 8, 3, padding=1), layers.transpose(h, [0, 2, 3, 1])]

            feed = {"x": np.random.default_rng(0).standard_normal((images, channels, height, width)).astype("float32")}
            with checks(str((images, channels, height, width))):
                assert_alike(build, feed)
