"""Gradients of targets inside loops and branches: as in the program without them, written out trip by trip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.errors import BackwardError

TRIPS = 3

Body = Callable[..., "tuple[Any, ...]"]
"""A function from the number of a trip, and the states before it, to the states after it."""


def loop(body: Body, *states: Any) -> Any:
    """Run a body in a `While`, which overwrites the states."""
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", TRIPS)
    less = layers.less_than(i, n)
    with layers.While(less).block():
        for state, after in zip(states, body(i, *states), strict=True):
            layers.assign(after, state)
        layers.increment(i)
        layers.less_than(i, n, cond=less)
    return states


def unrolled(body: Body, *states: Any) -> Any:
    """Run a body a few times, without a loop; each trip has variables of its own."""
    for trip in range(TRIPS):
        states = body(layers.fill_constant([1], "int64", trip), *states)
    return states


def both(build: Callable[[Any], Any], feed: dict[str, Any] | None = None, runs: int = 1) -> None:
    """Hold what a program with a loop computes, in native code and on numpy, against the program without it."""
    results = []
    for repeat in (unrolled, loop):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 3
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            fetches = build(repeat)
        scope, executor = fluid.Scope(), fluid.Executor()
        executor.run(startup, scope=scope)
        for _ in range(runs):
            values = executor.run(main, feed=feed or {}, fetch_list=fetches, scope=scope)
        parameters = [np.array(scope.array(parameter.name)) for parameter in main.all_parameters()]
        assert all(np.abs(value).max() > 0 for value in values)
        results.append([*values, *parameters])
    for right, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, right, 2e-5, 1e-6)


@pytest.fixture
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_NATIVE", request.param)


def variable(value: Any, shape: Any = (1,), dtype: str = "float32") -> Any:
    var = layers.fill_constant(list(shape), dtype, value)
    var.stop_gradient = False
    return var


@pytest.mark.parametrize("native", ["0", "1"], indirect=True)
@each("order", [1, 2])
def test_newton_and_halley(native: None, order: int) -> None:
    """Slopes, and slopes of slopes, of an overwritten variable, computed in each trip."""

    def build(repeat: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            error = layers.pow(y, 3.0) - 2.0
            (slope,) = fluid.gradients(error, y)
            step = error / slope
            if order == 2:
                (curve,) = fluid.gradients(slope, y)
                step = step / (1.0 - step * curve / (2.0 * slope))
            return (y - step,)

        return repeat(body, variable(1.0, dtype="float64"))

    both(build)


@pytest.mark.parametrize("native", ["0", "1"], indirect=True)
def test_rows_of_a_jacobian(native: None) -> None:
    """The target depends on operators before the loop, so the walk goes on there."""

    def build(repeat: Any) -> Any:
        x = fluid.data("x", [1, 4])
        x.stop_gradient = False
        y = layers.fc(x, TRIPS, act="tanh")
        rows = layers.create_array("float32")

        def body(i: Any, row_sum: Any) -> Any:
            chosen = layers.reduce_sum(y * layers.cast(layers.one_hot(layers.reshape(i, [1, 1]), TRIPS), "float32"))
            (row,) = fluid.gradients(chosen * chosen, x)
            layers.array_write(row, i, rows)
            return (row_sum + row,)

        row_sums = repeat(body, layers.fill_constant([1, 4], "float32", 0.0))
        return [*row_sums, layers.tensor_array_to_tensor(rows, axis=0)[0]]

    both(build, {"x": np.array([[1, -2, 0.5, 3]], "float32")})


def test_rows_of_a_hessian() -> None:
    """The target is a gradient that operators before the loop computed."""

    def build(repeat: Any) -> Any:
        x = fluid.data("x", [TRIPS])
        x.stop_gradient = False
        (slopes,) = fluid.gradients(layers.reduce_sum(layers.exp(x) * layers.reverse(x, 0)), x)
        rows = layers.create_array("float32")

        def body(i: Any) -> Any:
            chosen = layers.reduce_sum(slopes * layers.cast(layers.one_hot(layers.reshape(i, [1, 1]), TRIPS), "float32"))
            layers.array_write(fluid.gradients(chosen, x)[0], i, rows)
            return ()

        repeat(body)
        return [layers.tensor_array_to_tensor(rows, axis=0)[0]]

    both(build, {"x": np.array([0.5, -1, 2], "float32")})


OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9, regularization=fluid.regularizer.L2Decay(0.01)),
    "adam": lambda: fluid.optimizer.Adam(0.01),
}


@pytest.mark.parametrize("native", ["0", "1"], indirect=True)
@each("name", OPTIMIZERS)
def test_steps_of_an_optimizer(native: None, name: str) -> None:
    """One run makes several updates."""

    def build(repeat: Any) -> Any:
        x, label = fluid.data("x", [8, 5]), fluid.data("label", [8, 1])
        optimizer = OPTIMIZERS[name]()
        first = [fluid.ParamAttr(name="w", initializer=fluid.initializer.Normal(seed=1)), fluid.ParamAttr(name="b")]
        last = [fluid.ParamAttr(name="v", initializer=fluid.initializer.Normal(seed=2)), fluid.ParamAttr(name="c")]

        def body(i: Any, loss: Any) -> Any:
            hidden = layers.fc(x, 4, act="tanh", param_attr=first[0], bias_attr=first[1])
            out = layers.fc(hidden, 1, param_attr=last[0], bias_attr=last[1])
            loss = layers.mean(layers.square_error_cost(out, label))
            optimizer.minimize(loss)
            return (loss,)

        return repeat(body, layers.fill_constant([1], "float32", 0.0))

    rng = np.random.default_rng(0)
    both(build, {"x": rng.normal(size=(8, 5)).astype("float32"), "label": rng.normal(size=(8, 1)).astype("float32")}, runs=2)


@pytest.mark.parametrize("native", ["0", "1"], indirect=True)
def test_learning_by_gradient_steps(native: None) -> None:
    """The loss after steps of gradient descent is differentiated with respect to where they start (MAML, second order)."""

    def build(repeat: Any) -> Any:
        x = fluid.data("x", [6, 3])
        start = layers.create_parameter([3, 1], "float32", "start", default_initializer=fluid.initializer.Normal(seed=1))

        def loss_of(weight: Any) -> Any:
            return layers.mean(layers.square(layers.tanh(layers.matmul(x, weight)) - 0.3))

        def body(i: Any, fast: Any) -> Any:
            (slope,) = fluid.gradients(loss_of(fast), fast)
            return (fast - 0.5 * slope,)

        (fast,) = repeat(body, layers.assign(start))
        loss = loss_of(fast)
        fluid.optimizer.SGD(0.5).minimize(loss)
        return [loss, start.name + "@GRAD"]

    both(build, {"x": np.random.default_rng(0).normal(size=(6, 3)).astype("float32")}, runs=2)


@pytest.mark.parametrize("native", ["0", "1"], indirect=True)
def test_penalty_of_each_step(native: None) -> None:
    """Each trip adds the norm of a gradient to the loss, and the loss is differentiated through all trips."""

    def build(repeat: Any) -> Any:
        x = fluid.data("x", [4, 3])
        weight = layers.create_parameter([3, 3], "float32", "weight", default_initializer=fluid.initializer.Normal(seed=1))
        state = layers.assign(x)
        state.stop_gradient = False

        def body(i: Any, state: Any, penalty: Any) -> Any:
            after = layers.tanh(layers.matmul(state, weight))
            (slope,) = fluid.gradients(after, state)
            return after, penalty + layers.reduce_sum(layers.square(slope))

        state, penalty = repeat(body, state, variable(0.0))
        loss = layers.mean(state) + penalty
        fluid.optimizer.SGD(0.01).minimize(loss)
        return [loss, penalty, weight.name + "@GRAD"]

    both(build, {"x": np.random.default_rng(0).normal(size=(4, 3)).astype("float32")}, runs=2)


@pytest.mark.parametrize("native", ["0", "1"], indirect=True)
@each("flags", [(True, False, True), (False, False, True)])
def test_updates_in_a_branch(native: None, flags: tuple[bool, ...]) -> None:
    """A branch that computes a loss and minimizes it learns when it is taken, through operators before it as well."""
    x, flag = fluid.data("x", [4, 3]), fluid.data("flag", [1], "bool")
    hidden = layers.fc(x, 5, act="tanh", param_attr=fluid.ParamAttr(initializer=fluid.initializer.Normal(seed=1)))

    def learn() -> Any:
        weight = fluid.ParamAttr(initializer=fluid.initializer.Normal(seed=2))
        loss = layers.mean(layers.square(layers.fc(hidden, 1, param_attr=weight) - 1.0))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        return loss

    loss = layers.cond(flag, learn, lambda: layers.fill_constant([1], "float32", -1.0))
    assert hidden.block is fluid.default_main_program().global_block()
    names = [parameter.name for parameter in fluid.default_main_program().all_parameters()]
    assert len(names) == 4
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.random.default_rng(0).normal(size=(4, 3)).astype("float32")}
    for taken in flags:
        before = [np.array(fluid.global_scope().array(name)) for name in names]
        (value,) = executor.run(feed={**feed, "flag": np.array([taken])}, fetch_list=[loss])
        after = [np.array(fluid.global_scope().array(name)) for name in names]
        assert [not np.array_equal(old, new) for old, new in zip(before, after, strict=True)] == [taken] * 4
        assert (value[0] >= 0) == taken


def test_a_branch_in_a_loop() -> None:
    """The walk goes on from the branch to the loop's block, and from there to the operators before the loop."""

    def build(repeat: Any) -> Any:
        x = fluid.data("x", [1, 4])
        x.stop_gradient = False
        outside = layers.fc(x, 3, act="tanh", param_attr=fluid.ParamAttr(initializer=fluid.initializer.Normal(seed=1)))
        one = layers.fill_constant([1], "int64", 1)

        def body(i: Any, total: Any) -> Any:
            inside = layers.square(outside) + layers.cast(i, "float32")

            def branch() -> Any:
                (slope,) = fluid.gradients(layers.reduce_sum(inside * outside), x)
                return slope

            return (total + layers.cond(layers.less_than(i, one), branch, lambda: 2.0 * x),)

        return repeat(body, layers.fill_constant([1, 4], "float32", 0.0))

    both(build, {"x": np.array([[1, -2, 0.5, 3]], "float32")})


def test_variables_that_the_branch_has_overwritten() -> None:
    """Gradient operators read copies of what the branch overwrites before them."""
    x, flag = fluid.data("x", [3]), fluid.data("flag", [1], "bool")
    x.stop_gradient = False
    doubled = x * 2.0
    squares = layers.square(doubled)
    result = layers.fill_constant([3], "float32", 0.0)

    def branch() -> None:
        target = layers.reduce_sum(squares * squares)
        layers.assign(layers.zeros_like(doubled), doubled)
        layers.assign(layers.zeros_like(squares), squares)
        layers.assign(fluid.gradients(target, x)[0], result)

    layers.cond(flag, branch, None)
    values = np.array([1.0, -2, 3], "float32")
    (got,) = fluid.Executor().run(feed={"x": values, "flag": np.array([True])}, fetch_list=[result])
    np.testing.assert_allclose(got, 64 * values**3, 1e-5)


def test_a_slope_in_each_step_of_a_recurrence() -> None:
    """A `StaticRNN` adds the slope of its output by its input; the whole is differentiated as well."""
    x = fluid.data("x", [5, 2, 3])
    weight = layers.create_parameter([3, 3], "float32", "weight", default_initializer=fluid.initializer.Normal(seed=1))

    def step_of(word: Any) -> Any:
        after = layers.tanh(layers.matmul(word, weight))
        (slope,) = fluid.gradients(after, word)
        return after * 2.0 + layers.square(slope)

    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        word.stop_gradient = False
        rnn.step_output(step_of(word))
    x.stop_gradient = False
    by_step = layers.mean(rnn())
    at_once = layers.mean(layers.reshape(step_of(layers.reshape(x, [10, 3])), [5, 2, 3]))
    slopes = [fluid.gradients(loss, [weight])[0] for loss in (by_step, at_once)]
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.random.default_rng(0).normal(size=(5, 2, 3)).astype("float32")}
    first, second, right, wanted = executor.run(feed=feed, fetch_list=[by_step, at_once, slopes[1], slopes[0]])
    np.testing.assert_allclose(first, second, 1e-5)
    np.testing.assert_allclose(wanted, right, 1e-4, 1e-6)


# ---------------------------------------------------------------------------------------------------------- refusals
def refused(build: Callable[[], None], match: str) -> None:
    with pytest.raises(BackwardError, match=match):
        build()


def test_what_earlier_trips_add_is_not_left_out() -> None:
    weight = layers.create_parameter([3, 3], "float32", "weight")

    def body(i: Any, state: Any) -> Any:
        after = layers.matmul(state, weight)
        layers.Print(fluid.gradients(layers.reduce_sum(after * after), weight)[0])
        return (after,)

    refused(
        lambda: loop(body, variable(1.0, [1, 3])),
        r"(?s)gradient inside while would have to go on through fill_constant_0.tmp_0.*made at",
    )


def test_such_a_part_is_left_out_on_request() -> None:
    """With stop_gradient, a gradient is that of one trip (backpropagation that is cut after each step)."""

    def build(repeat: Any) -> Any:
        weight = layers.create_parameter([3, 3], "float32", "weight", default_initializer=fluid.initializer.Normal(seed=1))

        def body(i: Any, state: Any, total: Any) -> Any:
            state.stop_gradient = True
            after = layers.tanh(layers.matmul(state, weight))
            return after, total + fluid.gradients(layers.reduce_sum(after * after), weight)[0]

        first, total = layers.fill_constant([1, 3], "float32", 1.0), layers.fill_constant([3, 3], "float32", 0.0)
        return repeat(body, first, total)

    both(build)


def test_operators_before_the_loop_that_read_what_it_overwrites() -> None:
    x = fluid.data("x", [2, 3])
    hidden = layers.fc(x, 3)

    def body(i: Any) -> Any:
        fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.square(layers.fc(hidden, 1))))
        return ()

    refused(lambda: loop(body), r"goes back to operators before the loop, which read fc_0.[wb]_0, but the loop overwrites it")


def test_slices_and_states_of_a_recurrence() -> None:
    x = fluid.data("x", [5, 2, 3])
    weight = layers.create_parameter([3, 3], "float32", "weight")

    def recurrence(is_sliced: bool) -> Callable[[], None]:
        def build() -> None:
            rnn = layers.StaticRNN()
            words, first = layers.matmul(x, weight), layers.fill_constant([2, 3], "float32", 1.0)
            with rnn.step():
                word, state = rnn.step_input(words), rnn.memory(init=first)
                after = layers.matmul(state, weight)
                (slope,) = fluid.gradients(layers.reduce_sum(word * word if is_sliced else after * after), weight)
                rnn.update_memory(state, after)
                rnn.step_output(after + layers.reduce_sum(slope) if slope is not None else after + word)

        return build

    refused(recurrence(False), "would have to go on through")
    refused(recurrence(True), "would have to go on through")


def test_a_block_that_is_complete() -> None:
    x = fluid.data("x", [1])
    x.stop_gradient = False
    inside: list[Any] = []
    layers.cond(fluid.data("flag", [1], "bool"), lambda: inside.append(layers.square(x)), None)
    refused(lambda: fluid.gradients(inside[0], x) and None, "lives in sub-block 1, which is complete")
