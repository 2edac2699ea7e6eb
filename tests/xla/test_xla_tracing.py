"""Tracing a program for XLA records nothing twice, and no conversions to and fro."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax

import fluid
from fluid import layers
from fluid.executor.runtime.scope import Scope
from fluid.executor.xla.arrays import wrap
from fluid.executor.xla.namespace import XP as xp

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def written(function: Callable[[Any], Any], value: Any = X) -> Counter[str]:
    """How often each of jax's operations is in a function of arrays."""
    jaxpr = jax.make_jaxpr(lambda x: function(wrap(x)).read())(value)
    return Counter(equation.primitive.name for equation in jaxpr.eqns)


def test_a_view_is_read_once_until_something_is_written() -> None:
    def twice(x: Any) -> Any:
        return x.reshape(6, 4) * 2 + x.reshape(6, 4)

    def written_between(x: Any) -> Any:
        first = x.reshape(6, 4) * 2
        x += 1
        return first + x.reshape(6, 4)

    assert written(twice)["reshape"] == 1
    assert written(written_between)["reshape"] == 2
    for function in (twice, written_between):
        expected = function(X.copy())
        np.testing.assert_array_equal(jax.jit(lambda x, function=function: function(wrap(x)).read())(X), expected)


def test_what_is_written_through_a_view_is_read_through_it() -> None:
    def back_and_forth(x: Any) -> Any:
        out = xp.empty((2, 3, 4), np.float32)
        rows = out.reshape(6, 4)
        xp.add(x.reshape(6, 4), 1, out=rows)
        xp.multiply(rows, 2, out=rows)
        return rows

    def parts(x: Any) -> Any:
        out = xp.empty((2, 4), np.float32)
        out[0] = x[0, 0]
        xp.multiply(out[0], 2, out=out[1])
        return out

    assert written(back_and_forth) == {"reshape": 1, "add": 1, "mul": 1}
    np.testing.assert_array_equal(jax.jit(lambda x: parts(wrap(x)).read())(X), [X[0, 0], 2 * X[0, 0]])


def test_what_was_read_in_a_loop_is_read_again_outside_of_it() -> None:
    def summed(x: Any) -> Any:
        def step(total: Any, _: Any) -> Any:
            return total + (x.reshape(24) * 2).read(), None

        total, _ = jax.lax.scan(step, np.zeros(24, np.float32), None, length=3)
        return wrap(total) + x.reshape(24)

    np.testing.assert_array_equal(jax.jit(lambda x: summed(wrap(x)).read())(X), 7 * X.reshape(24))


def test_broadcasting_is_one_operation_and_numbers_need_none() -> None:
    assert written(lambda x: x + x[:, 0][:, None]) == {"slice": 1, "reshape": 1, "broadcast_in_dim": 1, "add": 1}
    assert written(lambda x: x * xp.asarray([3.0]).astype(np.float32)) == {"mul": 1}


def test_bounds_at_infinity_are_none() -> None:
    assert written(lambda x: xp.clip(x, 0, np.inf)) == {"max": 1}
    assert written(lambda x: xp.clip(x, -np.inf, np.float32(1))) == {"min": 1}


def test_images_are_not_turned_between_convolutions() -> None:
    x = fluid.data("x", [2, 3, 8, 8])
    hidden = layers.batch_norm(layers.conv2d(x, 4, 3, padding=1), act="relu")
    out = layers.mean(layers.elementwise_add(hidden, layers.conv2d(hidden, 4, 3, padding=1)))
    executor, scope = fluid.Executor(fluid.XLAPlace()), Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    plan = executor.plan(feed={"x": np.zeros((2, 3, 8, 8), np.float32)}, fetch_list=[out], scope=scope)
    assert plan.lowered().as_text().count("stablehlo.transpose") == 2  # what is fed, and for the mean


def test_products_with_a_mask_of_images_keep_their_order_and_values() -> None:
    def function(x: Any) -> Any:
        image = xp.empty((2, 3, 4), np.float32)
        turned = image.transpose(0, 2, 1)
        xp.multiply(x.transpose(0, 2, 1), 1, out=turned)
        scale = xp.asarray(np.array([1, 2, 3], np.float32))
        return xp.maximum(image * scale[:, None], image) - x

    expected = np.maximum(X * np.array([1, 2, 3], np.float32)[:, None], X) - X
    np.testing.assert_array_equal(jax.jit(lambda x: function(wrap(x)).read())(X), expected)


def test_gradients_reach_the_first_column_by_narrow_indices() -> None:
    """The number that no index is, which `place` ignores, has no room in int32."""
    x, index = fluid.data("x", [3, 4]), fluid.data("index", [3, 2], "int32")
    x.stop_gradient = False
    fetches = fluid.gradients([layers.index_sample(x, index)], [x])
    feed = {"x": np.ones((3, 4), "float32"), "index": np.array([[0, 1], [0, 0], [3, 2]], "int32")}
    (gradient,) = fluid.Executor(fluid.XLAPlace()).run(feed=feed, fetch_list=fetches)
    np.testing.assert_array_equal(gradient, [[1, 1, 0, 0], [2, 0, 0, 0], [0, 0, 1, 1]])
