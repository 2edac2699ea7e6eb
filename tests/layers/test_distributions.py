"""`layers.Uniform`, `Normal`, `Categorical` and `MultivariateNormalDiag`, held against scipy's formulas in numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.errors import FluidTypeError, ProgramError

RNG = np.random.default_rng(4)
LOW, HIGH = RNG.uniform(-2, -1, 3).astype("float32"), RNG.uniform(1, 2, 3).astype("float32")
SCALE = RNG.uniform(0.5, 2, 3).astype("float32")
VALUE = np.array([0.5, -0.25, 5.0], "float32")


def run(*fetch: Any, **feed: Any) -> list[Any]:
    return fluid.Executor().run(feed=feed, fetch_list=list(fetch))


def given(name: str, value: Any) -> fluid.Variable:
    return fluid.data(name, [None, *np.shape(value)[1:]])


def test_uniform() -> None:
    made = layers.Uniform(LOW, HIGH)
    value = layers.assign(VALUE)
    entropy, density = run(made.entropy(), made.log_prob(value))
    np.testing.assert_allclose(entropy, np.log(HIGH - LOW), 1e-5)
    np.testing.assert_allclose(density, np.where(VALUE < HIGH, -np.log(HIGH - LOW), -np.inf), 1e-5)


def test_normal() -> None:
    one, other = layers.Normal(LOW, SCALE), layers.Normal(HIGH, [0.5, 1.0, 2.0])
    entropy, density, divergence = run(one.entropy(), one.log_prob(layers.assign(VALUE)), one.kl_divergence(other))
    np.testing.assert_allclose(entropy, 0.5 * np.log(2 * math.pi * math.e * SCALE**2), 1e-5)
    expected = -((VALUE - LOW) ** 2) / (2 * SCALE**2) - np.log(SCALE * math.sqrt(2 * math.pi))
    np.testing.assert_allclose(density, expected, 1e-5)
    second = np.array([0.5, 1.0, 2.0])
    expected = np.log(second / SCALE) + (SCALE**2 + (LOW - HIGH) ** 2) / (2 * second**2) - 0.5
    np.testing.assert_allclose(divergence, expected, 1e-5)


def test_numbers_give_batches_of_one() -> None:
    value = layers.assign(VALUE)
    normal, uniform = layers.Normal(0.0, 2), layers.Uniform(0, 4.0)
    found = run(normal.entropy(), normal.log_prob(value), uniform.entropy(), uniform.log_prob(value))
    assert [item.shape for item in found] == [(1,), (3,), (1,), (3,)]
    np.testing.assert_allclose(found[0], 0.5 * math.log(2 * math.pi * math.e * 4), 1e-5)
    np.testing.assert_allclose(found[3], [-math.log(4), -np.inf, -np.inf], 1e-5)


@each("kind", [layers.Uniform, layers.Normal])
def test_samples(kind: Any) -> None:
    fluid.default_main_program().random_seed = 7
    arrays = kind(LOW, HIGH).sample([4000])
    numbers = kind(-1.0, 3.0).sample([4000, 2], seed=5)
    low, high = given("low", LOW), given("high", HIGH)
    fed = kind(low, high).sample([1000, 2])
    assert arrays.shape == (4000, 3) and numbers.shape == (4000, 2) and fed.shape == (1000, 2, -1)
    first, second, third = run(arrays, numbers, fed, low=LOW, high=HIGH)
    assert third.shape == (1000, 2, 3)
    for drawn, a, b in ((first, LOW, HIGH), (second, -1.0, 3.0), (third.reshape(-1, 3), LOW, HIGH)):
        mean, deviation = (a, b) if kind is layers.Normal else ((a + b) / 2, (b - a) / math.sqrt(12))
        np.testing.assert_allclose(drawn.mean(0), np.broadcast_to(mean, drawn.shape[1:]), atol=0.2)
        np.testing.assert_allclose(drawn.std(0), np.broadcast_to(deviation, drawn.shape[1:]), atol=0.2)
    if kind is layers.Uniform:
        assert (first >= LOW).all() and (first < HIGH).all()


def test_categorical() -> None:
    logits, others = RNG.standard_normal((2, 4)).astype("float32"), RNG.standard_normal((2, 4)).astype("float32")
    one, other = layers.Categorical(logits), layers.Categorical(layers.assign(others))
    entropy, divergence = run(one.entropy(), one.kl_divergence(other))
    p, q = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (logits, others))
    np.testing.assert_allclose(entropy, -(p * np.log(p)).sum(-1, keepdims=True), 1e-5)
    np.testing.assert_allclose(divergence, (p * np.log(p / q)).sum(-1, keepdims=True), 1e-4)
    (large,) = run(layers.Categorical([1000.0, 0.0]).entropy())
    assert large.tolist() == [0.0]


def test_multivariate_normal() -> None:
    """The numbers in Paddle's documentation."""
    one = layers.MultivariateNormalDiag([0.3, 0.5], [[0.4, 0.0], [0.0, 0.5]])
    other = layers.MultivariateNormalDiag([0.2, 0.4], [[0.3, 0.0], [0.0, 0.4]])
    entropy, divergence = run(one.entropy(), one.kl_divergence(other))
    np.testing.assert_allclose(entropy, [2.033158], 1e-5)
    np.testing.assert_allclose(divergence, [0.06542051], 1e-5)


def test_mean_of_a_multivariate_normal_may_have_an_open_size() -> None:
    """The entropy depends on the covariance alone."""
    loc, covariance = fluid.data("loc", [None]), layers.assign(np.diag([0.4, 0.5]).astype("float32"))
    entropy = layers.MultivariateNormalDiag(loc, covariance).entropy()
    (value,) = fluid.Executor().run(feed={"loc": np.zeros(2, "float32")}, fetch_list=[entropy])
    np.testing.assert_allclose(value, [2.033158], 1e-5)


def test_gradients_flow_into_parameters() -> None:
    loc = layers.create_parameter([3], "float32", default_initializer=fluid.initializer.Constant(0.5))
    loss = layers.reduce_sum(layers.Normal(loc, SCALE).log_prob(layers.assign(VALUE)))
    (grad,) = fluid.gradients(loss, [loc])
    fluid.Executor().run(fluid.default_startup_program())
    np.testing.assert_allclose(run(grad)[0], (VALUE - 0.5) / SCALE**2, 1e-5)


def test_errors() -> None:
    with pytest.raises(FluidTypeError, match="Normal: scale should be a number, an array or a Variable, not str"):
        layers.Normal(0.0, "wide")
    with pytest.raises(FluidTypeError, match="Uniform: low should hold numbers, not bool"):
        layers.Uniform(np.array([True]), 1.0)
    with pytest.raises(FluidTypeError, match=r"Normal.kl_divergence takes a Normal, not Uniform"):
        layers.Normal(0.0, 1.0).kl_divergence(layers.Uniform(0.0, 1.0))  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match=r"loc should be \[k\] and scale \[k, k\], not \[2\] and \[2\]"):
        layers.MultivariateNormalDiag([0.3, 0.5], [0.4, 0.5])
    wide = fluid.data("wide", [None, None])
    with pytest.raises(ProgramError, match=r"only the first dimension of the parameters, \[-1, -1\], may be unknown"):
        layers.Uniform(wide, wide).sample([2])


def test_methods_give_tensors_outside_of_guard_too() -> None:
    """Where a parameter is a tensor: what methods draw, and their constants, are tensors as well."""
    loc = fluid.dygraph.Tensor([0.0, 1.0])
    normal, uniform = layers.Normal(loc, 1.0), layers.Uniform(0.0, loc + 1.0)
    several = layers.MultivariateNormalDiag(loc, fluid.dygraph.Tensor(np.eye(2), "float32"))
    values = [normal.sample([3]), uniform.sample([3]), several.entropy(), several.kl_divergence(several)]
    assert [value.shape for value in values] == [(3, 2), (3, 2), (1,), (1,)]
    assert all(isinstance(value, fluid.dygraph.Tensor) for value in values)
    assert not fluid.default_main_program().global_block().ops
