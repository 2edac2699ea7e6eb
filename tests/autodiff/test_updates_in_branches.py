"""Optimizers and averages whose updates stand in a branch or a loop: they act where it runs, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.contrib import mixed_precision
from fluid.ir.program import Variable
from fluid.training import GradientAccumulation

Action = Callable[[], Any]


def in_cond(flag: Variable, action: Action) -> None:
    layers.cond(flag, action, None)


def in_the_else_of_cond(flag: Variable, action: Action) -> None:
    layers.cond(layers.logical_not(flag), None, action)


def in_case(flag: Variable, action: Action) -> None:
    layers.case([(flag, action)], default=lambda: None)


def in_switch_case(flag: Variable, action: Action) -> None:
    layers.switch_case(layers.cast(flag, "int32"), {1: action}, default=lambda: None)


def in_switch(flag: Variable, action: Action) -> None:
    with layers.Switch() as switch, switch.case(flag):
        action()


def in_a_nest(flag: Variable, action: Action) -> None:
    always = layers.fill_constant([1], "bool", True)
    layers.cond(always, lambda: layers.cond(flag, action, None), None)


def in_a_loop(flag: Variable, action: Action) -> None:
    """A loop of one trip, or of none."""
    runs = layers.logical_and(flag, flag)
    with layers.While(runs).block():
        action()
        layers.logical_not(flag, out=runs)


PLACES = [in_cond, in_the_else_of_cond, in_case, in_switch_case, in_switch, in_a_nest, in_a_loop]
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: fluid.optimizer.SGD(0.1),
    "Momentum with decay": lambda: fluid.optimizer.Momentum(0.1, 0.9, regularization=fluid.regularizer.L2Decay(0.1)),
    "clipped Adam": lambda: fluid.optimizer.Adam(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)),
    "Lookahead": lambda: fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), k=2),
    "accumulated": lambda: GradientAccumulation(fluid.optimizer.SGD(0.1), 2),
    "mixed precision": lambda: mixed_precision.decorate(fluid.optimizer.SGD(0.1), init_loss_scaling=8.0),
}
FLAGS = [False, True, True, False, True, True]


def loss_of_a_net() -> tuple[Variable, Variable]:
    x, flag = fluid.data("x", [None, 3]), fluid.data("flag", [1], "bool")
    return layers.mean(layers.square(layers.fc(x, 2, param_attr="w", bias_attr="b"))), flag


def trained(build: Callable[[], None], flags: list[bool]) -> list[dict[str, Any]]:
    """Parameters after each run of a program, which is fed its flags."""
    with fresh_programs():
        fluid.default_startup_program().random_seed = 2
        build()
        executor, scope = fluid.Executor(), fluid.global_scope()
        executor.run(fluid.default_startup_program())
        states = []
        for flag in flags:
            executor.run(feed={"x": np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3), "flag": np.array([flag])})
            states.append({name: np.array(scope.array(name)) for name in ("w", "b")})
        return states


def assert_as_if_run(branched: list[dict[str, Any]], always: list[dict[str, Any]]) -> None:
    """Assert that the parameters move with the flags: after n runs of the branch, as after n runs of the updates."""
    runs = np.cumsum(FLAGS)
    assert not np.array_equal(always[-1]["w"], always[0]["w"])
    for number, state in zip(runs, branched, strict=True):
        for name, value in state.items():
            if number:
                np.testing.assert_allclose(
                    value, always[number - 1][name], rtol=1e-5, atol=1e-6, err_msg=f"{name}, {number} runs"
                )


@each("place", PLACES)
@each("optimizer", OPTIMIZERS)
def test_an_optimizer_acts_where_its_block_runs(place: Callable[[Variable, Action], None], optimizer: str) -> None:
    def branched() -> None:
        loss, flag = loss_of_a_net()
        place(flag, lambda: OPTIMIZERS[optimizer]().minimize(loss))

    def always() -> None:
        OPTIMIZERS[optimizer]().minimize(loss_of_a_net()[0])

    states = trained(branched, FLAGS)
    assert_as_if_run(states, trained(always, [True] * sum(FLAGS)))
    assert np.array_equal(states[2]["w"], states[3]["w"])


def test_apply_gradients_acts_where_its_block_runs() -> None:
    def branched() -> None:
        loss, flag = loss_of_a_net()
        optimizer = fluid.optimizer.Momentum(0.1, 0.9)
        pairs = optimizer.backward(loss)
        layers.cond(flag, lambda: optimizer.apply_gradients(pairs), None)

    assert_as_if_run(
        trained(branched, FLAGS),
        trained(lambda: fluid.optimizer.Momentum(0.1, 0.9).minimize(loss_of_a_net()[0]) and None, [True] * 4),
    )


def test_each_of_two_branches_has_its_own_optimizer() -> None:
    def build() -> None:
        loss, flag = loss_of_a_net()
        fast, slow = fluid.optimizer.SGD(0.1), fluid.optimizer.SGD(0.01)
        pairs = fast.backward(loss)
        layers.cond(flag, lambda: fast.apply_gradients(pairs), lambda: slow.apply_gradients(pairs))

    def only(rate: float) -> Callable[[], None]:
        return lambda: fluid.optimizer.SGD(rate).minimize(loss_of_a_net()[0]) and None

    for flag, rate in ((True, 0.1), (False, 0.01)):
        for state, expected in zip(trained(build, [flag] * 2), trained(only(rate), [True] * 2), strict=True):
            np.testing.assert_allclose(state["w"], expected["w"], rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_minimizing_one_loss_in_two_branches_is_no_mistake() -> None:
    def build() -> None:
        loss, flag = loss_of_a_net()
        layers.cond(
            flag,
            lambda: fluid.optimizer.Adam(0.1).minimize(loss) and None,
            lambda: fluid.optimizer.SGD(0.1).minimize(loss) and None,
        )

    assert not np.array_equal(*(trained(build, [flag] * 2)[-1]["w"] for flag in (True, False)))


def test_an_average_is_updated_where_its_block_runs() -> None:
    loss, flag = loss_of_a_net()
    fluid.optimizer.SGD(0.1).minimize(loss)
    average = fluid.optimizer.ExponentialMovingAverage(0.5)
    layers.cond(flag, average.update, None)
    executor, scope = fluid.Executor(), fluid.global_scope()
    executor.run(fluid.default_startup_program())
    x, expected = np.ones((4, 3), "float32"), np.zeros((3, 2), "float32")
    for value in FLAGS:
        executor.run(feed={"x": x, "flag": np.array([value])})
        if value:
            expected = 0.5 * expected + 0.5 * np.array(scope.array("w"))
        kept = next(np.array(scope.array(name)) for name in scope.local_var_names() if name.startswith("w_ema"))
        np.testing.assert_allclose(kept, expected, rtol=1e-5)


def test_what_an_optimizer_keeps_belongs_to_the_program() -> None:
    """Moments and the rate are declared outside of the branch, and the startup program gives them their first values."""
    loss, flag = loss_of_a_net()
    layers.cond(flag, lambda: fluid.optimizer.Adam(0.1).minimize(loss), None)
    block, startup = fluid.default_main_program().global_block(), fluid.default_startup_program().global_block()
    kept = {name for name, var in block.vars.items() if var.persistable} - {"w", "b"}
    assert len(kept) == 9  # two moments and two powers of each parameter, and the rate
    assert kept <= set(startup.vars)
    assert not any(op.type == "adam" for op in block.ops)


def test_a_branch_that_returns_ops_beside_a_variable_is_refused() -> None:
    loss, flag = loss_of_a_net()
    with pytest.raises(fluid.errors.FluidTypeError, match="holds a Operator"):
        layers.cond(flag, lambda: (loss, fluid.optimizer.SGD(0.1).minimize(loss)), lambda: (loss, None))
