"""Running sums and products along any axis, for each processor that runs here, are as on numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from beside_numpy import assert_alike, results_of
from checks import each
from harness import TARGETS, set_target

import fluid
from fluid import layers
from fluid.extend import ops

SHAPES = ((7,), (1,), (33,), (3, 50), (40, 3), (5, 1, 4), (2, 5, 16), (3, 17, 7), (2, 9, 300), (1, 1000), (4, 129, 2))

OF_SEVERAL_AXES = (((3, 4, 5), [0, 2]), ((2, 3, 4, 5), [1, 3]), ((3, 4, 5), [1, 0]))


def _drawn(shape: Sequence[int], dtype: str) -> Any:
    return np.random.default_rng(len(shape)).integers(-9, 9, shape).astype(dtype)


@each("target", TARGETS)
@each("shape", SHAPES)
def test_running_sums(shape: Sequence[int], target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    set_target(monkeypatch, target)
    for dtype in ("float32", "float64", "int32", "int64"):

        def build(dtype: str = dtype) -> list[Any]:
            x = fluid.data("x", list(shape), dtype)
            doubled = x + x
            ways = [
                (axis, exclusive, reverse)
                for axis in range(len(shape))
                for exclusive in (False, True)
                for reverse in (False, True)
            ]
            return [ops().cumsum(doubled, axis=axis, exclusive=exclusive, reverse=reverse) for axis, exclusive, reverse in ways]

        assert_alike(build, {"x": _drawn(shape, dtype)}, tolerance=0, runs=1)


@each("target", TARGETS)
@each(
    "shape, axes",
    [*((shape, [len(shape) - 1]) for shape in SHAPES), *OF_SEVERAL_AXES],
)
def test_gradients_of_products(shape: Sequence[int], axes: list[int], target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    set_target(monkeypatch, target)
    values = np.random.default_rng(0).choice([0.0, 0.5, -1.0, 2.0], shape, p=[0.05, 0.3, 0.35, 0.3]).astype("float32")

    def build() -> list[Any]:
        x = fluid.data("x", list(shape))
        x.stop_gradient = False
        product = layers.reduce_prod(x * 1.0, axes)
        return fluid.gradients([layers.reduce_sum(layers.square(product + 1.0))], [x])

    assert_alike(build, {"x": values}, runs=1)


def test_running_sums_keep_special_numbers() -> None:
    values = np.array([[np.inf, 1, np.nan, 2], [1, -np.inf, np.inf, 1], [-0.0, -0.0, 0.0, -0.0], [3e38, 3e38, 1, 1]], "float32")

    def build() -> list[Any]:
        x = fluid.data("x", [4, 4])
        return [layers.cumsum(x * 1.0, axis) for axis in (0, 1)]

    found, expected = (results_of(build, {"x": values}, native).values() for native in (True, False))
    for sums, on_numpy in zip(found, expected, strict=True):
        np.testing.assert_array_equal(sums, on_numpy)
        np.testing.assert_array_equal(np.signbit(sums[2]), np.signbit(on_numpy[2]))


@each("native", ["0", "1"])
def test_the_gradient_of_a_factor_does_not_depend_on_it(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is NaN or infinite, and in gradients of gradients."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    (first,) = fluid.gradients([layers.reduce_prod(x * 1.0, 1)], [x])
    second = fluid.gradients([layers.reduce_sum(first)], [x])[0]
    values = np.array([[2, np.inf, 3], [np.nan, 5, 4]], "float32")
    gradients = fluid.Executor().run(feed={"x": values}, fetch_list=[first, second])
    nan, inf = np.nan, np.inf
    np.testing.assert_array_equal(gradients[0], [[inf, 6, inf], [20, nan, nan]])
    np.testing.assert_array_equal(gradients[1], [[inf, 5, inf], [9, nan, nan]])
