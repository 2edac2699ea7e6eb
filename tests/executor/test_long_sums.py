"""Long sums on each engine, which libraries add up term by term, rounding each time: products with a vector, rows of a table."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.extend import ops

ROWS = 160_001
ENGINES = {"numpy": "0", "native": "1", "xla": "0"}


def run(engine: str, feed: Any, fetches: Any) -> list[Any]:
    if engine == "xla":
        pytest.importorskip("jax")
    with patch.dict(os.environ, FLUID_NATIVE=ENGINES[engine]):
        executor = fluid.Executor(fluid.XLAPlace("cpu") if engine == "xla" else fluid.CPUPlace())
        executor.run(fluid.default_startup_program())
        return [np.asarray(array) for array in executor.run(feed=feed, fetch_list=fetches)]


@each("width", [1, 2, 13])
@each("engine", ENGINES)
def test_the_gradient_of_a_layer_with_one_unit_sums_many_equal_rows(engine: str, width: int) -> None:
    with fresh_programs():
        x = fluid.data("x", [ROWS, width])
        loss = layers.mean(layers.fc(x, 1))
        weight = fluid.default_main_program().all_parameters()[0]
        (gradient,) = run(engine, {"x": np.full((ROWS, width), np.float32(0.989))}, fluid.gradients(loss, weight))
    np.testing.assert_allclose(gradient, np.full((width, 1), np.float32(0.989)), rtol=1e-5)


@each("engine", ENGINES)
def test_a_row_times_a_matrix_and_a_matrix_times_a_column(engine: str) -> None:
    random = np.random.default_rng(0)
    a, b = (random.uniform(0, 1, (count, ROWS)).astype("float32") for count in (1, 3))
    with fresh_programs():
        left, right = fluid.data("a", [1, ROWS]), fluid.data("b", [3, ROWS])
        fetches = [layers.matmul(left, right, transpose_y=True), layers.matmul(right, left, transpose_y=True)]
        row, column = run(engine, {"a": a, "b": b}, fetches)
    expected = b.astype("float64") @ a[0].astype("float64")
    np.testing.assert_allclose(row[0], expected, rtol=1e-5)
    np.testing.assert_allclose(column[:, 0], expected, rtol=1e-5)


@each("engine", ENGINES)
def test_the_gradient_of_the_scale_of_layer_norm_sums_many_rows(engine: str) -> None:
    """Rows of two numbers are normalized to about 1 and -1."""
    with fresh_programs():
        loss = layers.mean(
            layers.matmul(layers.layer_norm(fluid.data("x", [ROWS, 2])), layers.fill_constant([2, 1], "float32", 1.0))
        )
        scale = fluid.default_main_program().all_parameters()[0]
        feed = {"x": np.tile(np.array([1.5, -2.5], "float32"), (ROWS, 1))}
        (gradient,) = run(engine, feed, fluid.gradients(loss, scale))
    np.testing.assert_allclose(gradient, [1, -1], rtol=2e-5)


@each("engine", ENGINES)
def test_sgd_on_rows_adds_up_what_is_too_small_alone(engine: str) -> None:
    """2,000 steps of 1e-9 change a parameter of 0.06, though one step alone is rounded away."""
    with fresh_programs():
        ids = fluid.data("ids", [2000, 1], "int64")
        table = fluid.ParamAttr("table", initializer=fluid.initializer.Constant(0.06))
        loss = layers.reduce_sum(fluid.embedding(ids, [3, 16], is_sparse=True, param_attr=table))
        fluid.optimizer.SGD(1e-9).minimize(loss)
        run(engine, {"ids": np.ones((2000, 1), "int64")}, [loss])
        rows = np.asarray(fluid.global_scope().find_var("table").get_tensor())
    np.testing.assert_allclose(rows[0], np.full(16, np.float32(0.06)))
    np.testing.assert_allclose(rows[1], np.full(16, 0.06 - 2e-6), rtol=2e-7)


@each("engine", ENGINES)
def test_gradients_of_norms_over_long_rows_subtract_exact_means(engine: str) -> None:
    """The gradient of a norm subtracts the mean of an equal gradient: nothing should be left."""
    with fresh_programs():
        x = fluid.data("x", [1, 2, 127, 3000])
        x.stop_gradient = False
        scale = fluid.ParamAttr("scale", initializer=fluid.initializer.Constant(0.7))
        norm = layers.instance_norm(x, param_attr=scale)
        (gradient,) = fluid.gradients(norm, x)
        values = np.random.default_rng(0).standard_normal((1, 2, 127, 3000)).astype("float32")
        found, _ = run(engine, {"x": values}, [gradient, norm])
    assert np.abs(found).max() < 2e-6


@each("width", [384, 768, 2176, 4096, 5000])
@each("engine", ENGINES)
def test_rows_that_hardly_vary_are_centered_exactly(engine: str, width: int) -> None:
    """Layer norm multiplies an error of the mean by as much as 316; sums round equal terms in the same direction."""
    random = np.random.default_rng(0)
    values = (np.float32(0.731) + 1e-3 * (random.uniform(size=(8, width)) < 0.01)).astype("float32")
    with fresh_programs():
        x = fluid.data("x", [8, width])
        norms = [layers.layer_norm(x), layers.instance_norm(layers.reshape(x, [8, 1, width, 1]))]
        layer, instance = run(engine, {"x": values}, norms)
    exact = values.astype("float64")
    centered = exact - exact.mean(1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(layer, expected, rtol=1e-4, atol=2.5e-4)
    np.testing.assert_allclose(instance.reshape(8, width), expected, rtol=1e-4, atol=2.5e-4)


@each("engine", ENGINES)
def test_norms_and_filters_of_many_small_images(engine: str) -> None:
    """Variances, gradients of scales and gradients of filters are sums over images of one pixel, here of equal terms."""
    count = 20_000
    values = np.full((count, 2, 1, 1), np.float32(0.6102))
    values[::2] *= -1
    squared = np.float64(values[0, 0, 0, 0]) ** 2
    with fresh_programs():
        x = fluid.data("x", [count, 2, 1, 1])
        norm = layers.batch_norm(x, epsilon=1e-12, param_attr=fluid.ParamAttr("scale"))
        grouped = layers.group_norm(
            x, 2, epsilon=1.0, param_attr=fluid.ParamAttr("of_groups"), bias_attr=fluid.ParamAttr("shift")
        )
        image = layers.conv2d(layers.square(x), 3, 1, bias_attr=False, param_attr=fluid.ParamAttr("filter"))
        loss = layers.reduce_sum(norm * x) + layers.reduce_sum(image) + layers.reduce_sum(grouped * layers.square(x))
        variables = fluid.default_main_program().global_block().var
        gradients = fluid.gradients(loss, [variables(name) for name in ("scale", "filter", "shift")])
        normalized, to_scale, to_filter, to_shift = run(engine, {"x": values}, [norm, *gradients])
    np.testing.assert_allclose(normalized, np.sign(values), rtol=1e-5)
    np.testing.assert_allclose(to_scale, [count * np.sqrt(squared)] * 2, rtol=1e-5)
    bound = 2e-4 if engine == "xla" else 5e-5  # XLA's convolutions add images one after the other, in lanes as wide as vectors
    np.testing.assert_allclose(to_filter, np.full((3, 2, 1, 1), count * squared), rtol=bound)
    np.testing.assert_allclose(to_shift, [count * squared] * 2, rtol=1e-5)


@each("shape, axis", [((20_001, 3), 0), ((2, 20_001, 3), 1), ((2, 3, 20_001), 2), ((2, 20_001, 3, 2), 1), ((513, 2, 257), 0)])
@each("engine", ENGINES)
def test_sums_along_one_axis(engine: str, shape: tuple[int, ...], axis: int) -> None:
    number = np.float32(0.37234)
    with fresh_programs():
        x = fluid.data("x", shape)
        fetches = [layers.reduce_sum(x, axis), layers.reduce_mean(x, axis)]
        total, mean = run(engine, {"x": np.full(shape, number)}, fetches)
    np.testing.assert_allclose(mean, np.full(mean.shape, number), rtol=1e-5)
    np.testing.assert_allclose(total, np.full(total.shape, number * np.float64(shape[axis])), rtol=1e-5)


def test_sums_of_long_sequences_on_numpy() -> None:
    """Native code and XLA add to the row of a sequence, one row after the other."""
    number = np.float32(0.37234)
    with fresh_programs():
        x = fluid.data("x", [None, 3], lod_level=1)
        pools = [layers.sequence_pool(x, kind) for kind in ("sum", "average")]
        fed = fluid.create_lod_tensor(np.full((20_007, 3), number), [[5, 20_000, 2]], fluid.CPUPlace())
        total, mean = run("numpy", {"x": fed}, pools)
    np.testing.assert_allclose(total, np.outer([5, 20_000, 2], [np.float64(number)] * 3), rtol=1e-5)
    np.testing.assert_allclose(mean, np.full((3, 3), number), rtol=1e-5)


@each("engine", ENGINES)
def test_gradients_of_what_is_repeated_many_times(engine: str) -> None:
    number = np.float32(0.37234)
    with fresh_programs():
        x, y = fluid.data("x", [1, 3]), fluid.data("y", [3])
        x.stop_gradient = y.stop_gradient = False
        factor = layers.fill_constant([1], "float32", number)
        repeated = layers.expand(x, [20_000, 1]), ops().kron(layers.fill_constant([625, 32], "float32", 1.0), y)
        gradients = fluid.gradients([layers.reduce_sum(layers.elementwise_mul(part, factor)) for part in repeated], [x, y])
        results = run(engine, {"x": np.ones((1, 3), "float32"), "y": np.ones(3, "float32")}, gradients)
    for gradient in results:
        np.testing.assert_allclose(gradient.reshape(3), [20_000 * np.float64(number)] * 3, rtol=1e-5)


@each("engine", ENGINES)
def test_sums_of_many_squares(engine: str) -> None:
    """In norms, in clipping by a norm, and in the step of LAMB, which is longer by the weight's norm over the update's."""
    numbers = np.full(5_000_000, np.float32(0.989))
    size = 0.989 * np.sqrt(numbers.size)
    with fresh_programs():
        x = fluid.data("x", [numbers.size])
        weight = layers.create_parameter([numbers.size], "float32", default_initializer=fluid.initializer.Constant(0.989))
        squares = layers.mean(layers.clip_by_norm(x, 1.0)), ops().squared_l2_norm(x)
        fluid.optimizer.LambOptimizer(0.1, lamb_weight_decay=0.01).minimize(layers.reduce_sum(weight * 2.0))
        clipped, total = run(engine, {"x": numbers}, list(squares))
        moved = np.asarray(fluid.global_scope().find_var(weight.name).get_tensor())[0]
    np.testing.assert_allclose(clipped, 0.989 / size, rtol=2e-5)
    np.testing.assert_allclose(total, size**2, rtol=2e-5)
    np.testing.assert_allclose(moved, 0.989 - 0.1 * 0.989, rtol=2e-5)
