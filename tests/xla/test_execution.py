"""Programs at an XLAPlace: what they compute, and where their state lives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import fluid

pytestmark = pytest.mark.usefixtures("fresh")

X = np.random.default_rng(0).standard_normal((8, 5), np.float32)
Y = X.sum(1, keepdims=True)


def regression() -> Any:
    """The loss of a small net that is trained, in the default program."""
    x, y = fluid.data("x", [None, 5]), fluid.data("y", [None, 1])
    hidden = fluid.layers.fc(x, size=4, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, size=1), y))
    fluid.optimizer.Adam(learning_rate=0.05).minimize(loss)
    return loss


def started(place: Any) -> tuple[fluid.Executor, fluid.Scope]:
    executor, scope = fluid.Executor(place), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    return executor, scope


def test_training_is_that_of_the_plan() -> None:
    loss = regression()
    (cpu, at_host), (xla, scope) = started(fluid.CPUPlace()), started(fluid.XLAPlace())
    for name in at_host.local_var_names():
        scope.find_var(name).get_tensor().set(at_host.array(name))
    for _ in range(4):
        losses = [each.run(feed={"x": X, "y": Y}, fetch_list=[loss], scope=own) for each, own in ((cpu, at_host), (xla, scope))]
        np.testing.assert_allclose(*losses, rtol=1e-5)
    for name in at_host.local_var_names():
        np.testing.assert_allclose(scope.array(name), at_host.array(name), rtol=1e-4, atol=1e-6, err_msg=name)


def test_state_stays_on_the_device_until_somebody_looks() -> None:
    loss = regression()
    executor, scope = started(fluid.XLAPlace())
    name = fluid.default_main_program().all_parameters()[0].name
    executor.run(feed={"x": X, "y": Y}, fetch_list=[loss], scope=scope)
    held = scope.held(name)
    assert not isinstance(held, np.ndarray)
    before = np.array(scope.find_var(name).get_tensor())  # a copy
    assert scope.held(name) is held
    executor.run(feed={"x": X, "y": Y}, scope=scope)
    assert scope.held(name) is held and (np.array(scope.find_var(name).get_tensor()) != before).any()
    scope.array(name)[...] = 0  # who has the array may write to it: it is the host's now
    test = fluid.default_main_program().clone(for_test=True)
    assert isinstance(scope.held(name), np.ndarray)
    executor.run(test, {"x": X, "y": Y}, [loss], scope=scope)
    assert not scope.array(name).any()
