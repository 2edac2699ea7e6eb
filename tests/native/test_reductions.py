"""Reductions over any axes, alone and beside formulas and each other, are as on numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from beside_numpy import assert_alike
from checks import each

import fluid
from fluid import layers

KINDS = (layers.reduce_sum, layers.reduce_mean, layers.reduce_max, layers.reduce_min)
CASES = (
    ((5, 33, 17), [1]),
    ((257, 130), [0]),
    ((2, 1500, 9), [1]),
    ((2, 1031, 20), [1]),
    ((4, 300, 1), [1]),
    ((3, 7, 2), [1]),
    ((2, 3, 5, 33), [0, 2]),
    ((2, 3, 5, 33), [1, 2]),
    ((6, 1, 4, 300), [1, 2]),
    ((1, 19, 1030), [1]),
    ((9, 4, 5, 3, 6), [1, 3]),
    ((2, 1031), [0]),
    ((17, 129), [0]),
    ((128, 1025), [0]),
    ((300, 1000), [0]),
    ((3, 2, 2050), [0, 1]),
)


def _drawn(shape: Sequence[int], dtype: str) -> Any:
    return np.random.default_rng(len(shape)).integers(-40, 40, shape).astype(dtype)


@each("shape, axes", CASES)
def test_reductions_beside_formulas(shape: Sequence[int], axes: list[int]) -> None:
    for dtype in ("float32", "float64"):

        def build(dtype: str = dtype) -> list[Any]:
            x = fluid.data("x", list(shape), dtype)
            x.stop_gradient = False
            scaled = layers.scale(x, 0.5)
            reduced = [kind(scaled, dim=axes, keep_dim=True) for kind in KINDS]
            centered = layers.square(scaled - reduced[1])
            variance = layers.reduce_mean(centered, dim=axes)
            loss = layers.reduce_sum(layers.sums(reduced)) + layers.reduce_sum(layers.sqrt(variance + 1.0))
            return [*reduced, centered, variance, *fluid.gradients([loss], [x])]

        assert_alike(build, {"x": _drawn(shape, dtype)}, tolerance=3e-6)


@each("shape, axes", CASES)
def test_reductions_of_integers_and_truths(shape: Sequence[int], axes: list[int]) -> None:
    def build() -> list[Any]:
        x = fluid.data("x", list(shape), "int64")
        narrow = layers.cast(x, "int32")
        truths = layers.less_than(x, layers.fill_constant([1], "int64", -30))
        reduced = [kind(number, dim=axes) for number in (x, narrow) for kind in (KINDS[0], *KINDS[2:])]
        return [*reduced, layers.reduce_any(truths, dim=axes), layers.reduce_all(truths, dim=axes)]

    assert_alike(build, {"x": _drawn(shape, "int64")}, tolerance=0)


def test_sums_of_few_wide_rows_beside_broadcast_operands() -> None:
    def build() -> list[Any]:
        x, by_row, by_column = fluid.data("x", [7, 9, 133]), fluid.data("y", [9, 1]), fluid.data("z", [133])
        scaled = layers.elementwise_mul(layers.elementwise_add(x, by_column, axis=2), by_row, axis=1)
        return [scaled, *(kind(scaled, dim=0) for kind in KINDS)]

    feed = {name: _drawn(shape, "float32") for name, shape in (("x", (7, 9, 133)), ("y", (9, 1)), ("z", (133,)))}
    assert_alike(build, feed, tolerance=1e-6)


def test_sums_over_different_rows_of_one_array() -> None:
    """A kernel computes only sums of equal numbers of rows; each of these needs its own."""

    def build() -> list[Any]:
        x = fluid.data("x", [6, 10, 15, 8])
        scaled = layers.scale(x, 3.0)
        axes = ([0], [1], [2], [0, 1], [1, 2], [0, 1, 2], [3])
        return [kind(scaled, dim=list(dim)) for dim in axes for kind in (layers.reduce_sum, layers.reduce_max)]

    assert_alike(build, {"x": _drawn((6, 10, 15, 8), "float32")})


def test_extremes_of_rows_keep_nan() -> None:
    values = _drawn((3, 40, 50), "float32")
    values[1, 7, 9] = values[2, 39, 49] = np.nan

    def build() -> list[Any]:
        x = layers.scale(fluid.data("x", [3, 40, 50]), 2.0)
        return [kind(x, dim=dim) for dim in ([0], [1], [0, 1], [2]) for kind in KINDS]

    with np.errstate(invalid="ignore"):
        assert_alike(build, {"x": values})


def test_joined_reductions() -> None:
    def build() -> list[Any]:
        x = layers.scale(fluid.data("x", [4, 30, 20]), 2.0)
        return [layers.concat([layers.reduce_mean(x, dim=[1]), layers.reduce_max(x, dim=[1])], axis=1)]

    assert_alike(build, {"x": _drawn((4, 30, 20), "float32")})


@each("shape, axes", CASES)
def test_products(shape: Sequence[int], axes: list[int]) -> None:
    def build() -> list[Any]:
        x = fluid.data("x", list(shape))
        x.stop_gradient = False
        product = layers.reduce_prod(layers.scale(x, 1 / 4096, bias=1.0), dim=axes)
        return [product, *fluid.gradients([layers.reduce_sum(product)], [x])]

    assert_alike(build, {"x": _drawn(shape, "float32")})


@each(
    "shape, axis",
    [((3, 5, 33), 1), ((2, 21, 9, 17), 1), ((2, 21, 9, 17), 2), ((1, 1030, 40), 1), ((7, 3, 2), 1), ((4, 1, 20), 1)],
)
def test_softmax_and_cross_entropy_along_any_axis(shape: Sequence[int], axis: int) -> None:
    labels = np.random.default_rng(0).integers(0, shape[axis], [*shape[:axis], 1, *shape[axis + 1 :]])
    labels[0, 0, 0] = -100  # ignored

    def build() -> list[Any]:
        x, y = fluid.data("x", list(shape)), fluid.data("y", list(labels.shape), "int64")
        x.stop_gradient = False
        scaled = layers.scale(x, 0.3)
        loss, softmax = layers.softmax_with_cross_entropy(scaled, y, axis=axis, return_softmax=True)
        soft = layers.softmax_with_cross_entropy(scaled, layers.softmax(scaled * 0.5, axis=axis), soft_label=True, axis=axis)
        logs = layers.log_softmax(scaled, axis=axis)
        total = layers.reduce_sum(loss) + layers.reduce_sum(layers.square(soft)) + layers.reduce_sum(layers.square(logs))
        weighted = layers.reduce_sum(layers.square(layers.softmax(scaled, axis=axis)))
        return [loss, softmax, soft, logs, weighted, *fluid.gradients([total, weighted], [x])]

    assert_alike(build, {"x": _drawn(shape, "float32"), "y": labels})


@each("shape, axis, groups", [((2, 12, 5, 9), 1, 3), ((3, 4, 1, 2), 1, 4), ((2, 3, 5, 8), -1, 2)])
def test_maxout_of_images(shape: Sequence[int], axis: int, groups: int) -> None:
    def build() -> list[Any]:
        x = fluid.data("x", list(shape))
        x.stop_gradient = False
        out = layers.maxout(layers.scale(x, 0.5), groups, axis=axis)
        return [out, *fluid.gradients([layers.reduce_sum(layers.square(out))], [x])]

    assert_alike(build, {"x": _drawn(shape, "float32")})


def test_long_sums_of_a_prime_number_of_rows() -> None:
    """They are sums of equal runs of rows and of the rows behind them, without a copy of the array in another order."""

    def build() -> list[Any]:
        x = fluid.data("x", [3, 2053, 5], "int64")
        numbers = layers.cast(x, "float32") * 0.5
        return [layers.reduce_sum(numbers, 1), layers.reduce_mean(numbers, 1), layers.reduce_sum(x + x, 1)]

    assert_alike(build, {"x": _drawn((3, 2053, 5), "int64")}, tolerance=1e-6)
