"""Recurrent layers at an XLAPlace: their steps are loops of XLA, and give numpy's values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import fluid
from fluid.executor.runtime.scope import Scope
from fluid.extend import ops
from fluid.ops.rnn import MODES, Geometry

pytestmark = pytest.mark.usefixtures("quick_to_compile")

BATCH, FEATURES, HIDDEN = 3, 2, 4
LENGTHS = np.array([3, 1, 2], "int32")


def network(mode: str, steps: int, has_lengths: bool) -> tuple[dict[str, Any], list[Any], Any]:
    """The feeds of a bidirectional layer, the variables to differentiate, and a loss."""
    random = np.random.default_rng(3)
    geometry = Geometry(mode, 1, 2, FEATURES, HIDDEN)
    feed: dict[str, Any] = {}

    def data(name: str, *shape: int) -> Any:
        feed[name] = random.standard_normal(shape)
        var = fluid.data(name, list(shape), "float64")
        var.stop_gradient = False
        return var

    x = data("x", steps, BATCH, FEATURES)
    states = [data(f"state_{number}", geometry.passes, BATCH, HIDDEN) for number in range(MODES[mode].states)]
    weights = [data(f"weight_{number}", *shape) for number, shape in enumerate(geometry.weight_shapes())]
    lengths = None
    if has_lengths:
        feed["lengths"] = LENGTHS
        lengths = fluid.data("lengths", [BATCH], "int32")
    attrs = {"mode": mode, "input_size": FEATURES, "hidden_size": HIDDEN, "is_bidirec": True}
    out, _, last = ops().rnn(x, states, weights, lengths, **attrs)[:3]
    total = fluid.layers.reduce_sum(out * out)
    for state in last:
        total = total + fluid.layers.reduce_sum(fluid.layers.sin(state))
    return feed, [x, *states, *weights], total


def computed(place: Any, feed: dict[str, Any], fetches: list[Any]) -> list[Any]:
    values: list[Any] = fluid.Executor(place).run(feed=feed, fetch_list=fetches, scope=Scope())
    return values


@pytest.mark.parametrize("has_lengths", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("mode", MODES)
def test_values_and_gradients_of_two_orders(mode: str, has_lengths: bool) -> None:
    feed, inputs, total = network(mode, 3, has_lengths)
    first = fluid.gradients(total, inputs)
    squares = [fluid.layers.reduce_sum(gradient * gradient) for gradient in first]
    second = fluid.gradients(squares, inputs)
    fetches = [total, *first, *second]
    for at_host, by_xla in zip(computed(fluid.CPUPlace(), feed, fetches), computed(fluid.XLAPlace(), feed, fetches), strict=True):
        np.testing.assert_allclose(by_xla, at_host, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("mode", MODES)
def test_a_program_does_not_grow_with_the_steps(mode: str) -> None:
    sizes = []
    for steps in (3, 30):
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            feed, inputs, total = network(mode, steps, has_lengths=False)
            fetches = fluid.gradients(total, inputs)
            plan = fluid.Executor(fluid.XLAPlace()).plan(None, feed, fetches, Scope())
            sizes.append(plan.lowered().as_text().count("\n"))
    assert sizes[0] == sizes[1]
