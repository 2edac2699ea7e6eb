"""Constants of loops and branches: shapes are known, and lists of numbers lie in block 0, so that loops are native."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from beside_numpy import Built
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.ir.program import Variable

Build = Callable[[], Sequence[Variable]]


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def assert_native(build: Build, feed: dict[str, Any]) -> None:
    """Assert that native code computes all of a program but its constants, as numpy and single steps do."""
    with fresh_programs():
        built = Built(build)
        built.assert_alike(feed)
        (summary,) = (line for line in built.plan(feed).splitlines() if "on numpy:" in line)
        on_numpy = summary.split("on numpy: ")[1]
        assert {name.split(" x ")[0] for name in on_numpy.split(", ")} <= {"none", "assign_value"}, on_numpy


def trained(state: Variable) -> list[Variable]:
    loss = layers.reduce_mean(layers.square(state))
    return [loss, state, *fluid.gradients([loss], fluid.default_main_program().all_parameters())]


def repeat(goes_on: Callable[[Variable], Variable], step: Callable[[Variable, Variable], Variable], state: Variable) -> Variable:
    index = layers.fill_constant([1], "int32", 0)
    last: Variable = layers.while_loop(
        lambda index, state: goes_on(index), lambda index, state: [index + 1, step(index, state)], [index, state]
    )[1]
    return last


@each("dtype", ["float32", "int64", "bool"])
@each("trips", [0, 1, 6])
def test_a_list_of_numbers_in_a_loop(dtype: str, trips: int) -> None:
    numbers = (np.arange(5) % 3).astype(dtype)

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [3, 5])
        weight = layers.create_parameter([5, 5], "float32")
        end = layers.fill_constant([1], "int32", trips)

        def step(index: Variable, state: Variable) -> Variable:
            return layers.tanh(layers.matmul(state, weight)) * layers.cast(layers.assign(numbers), "float32") + x

        return trained(repeat(lambda index: layers.less_than(index, end), step, x))

    feed = {"x": normal(3, 5)}
    if trips:
        assert_native(build, feed)
    else:
        with fresh_programs():
            Built(build).assert_alike(feed)


def test_a_list_of_numbers_that_a_trip_changes() -> None:
    """Each trip begins with the numbers of the list."""

    def build() -> Sequence[Variable]:
        x, end = fluid.data("x", [4]), layers.fill_constant([1], "int32", 3)

        def step(index: Variable, state: Variable) -> Variable:
            numbers = layers.assign(np.arange(1.0, 5.0, dtype="float32"))
            layers.assign(numbers * state, numbers)
            return numbers + state

        return [repeat(lambda index: layers.less_than(index, end), step, x)]

    assert_native(build, {"x": normal(4)})


@each("taken", [0.0, 1.0])
def test_lists_of_numbers_in_branches_of_a_loop(taken: float) -> None:
    def build() -> Sequence[Variable]:
        x, taken = fluid.data("x", [2, 3]), fluid.data("taken", [1])
        weight, end = layers.create_parameter([3, 3], "float32"), layers.fill_constant([1], "int32", 4)

        def step(index: Variable, state: Variable) -> Variable:
            is_taken = layers.less_than(layers.cast(index, "float32") * taken, layers.fill_constant([1], "float32", 2.0))
            factors = layers.cond(
                is_taken,
                lambda: layers.assign(np.array([0.5, 1.0, 2.0], "float32")),
                lambda: layers.assign(np.array([1.0, -1.0, 0.25], "float32")) * 2.0,
            )
            return layers.tanh(layers.matmul(state * factors, weight)) + x

        return trained(repeat(lambda index: layers.less_than(index, end), step, x))

    assert_native(build, {"x": normal(2, 3), "taken": np.array([taken], "float32")})


# ------------------------------------------------------------------------------------------------------------- shapes
@each("is_inside", [False, True])
@each("steps", [1, 2, 7, 65])
def test_a_number_of_trips_that_is_an_extent(steps: int, is_inside: bool) -> None:
    def build() -> Sequence[Variable]:
        x, weight = fluid.data("x", [None, 2, 3]), layers.create_parameter([3, 3], "float32")
        end = layers.shape(x)[0]

        def step(index: Variable, state: Variable) -> Variable:
            word = layers.reshape(layers.gather(x, index), [2, 3])
            return layers.tanh(layers.matmul(state, weight)) + word

        zeros = layers.fill_constant([2, 3], "float32", 0.0)
        return trained(repeat(lambda index: layers.less_than(index, layers.shape(x)[0] if is_inside else end), step, zeros))

    assert_native(build, {"x": normal(steps, 2, 3)})


def test_one_program_takes_any_number_of_steps() -> None:
    pytest.importorskip("llvmlite")
    x, weight = fluid.data("x", [None, 3]), layers.create_parameter([3, 3], "float32")
    state = repeat(
        lambda index: layers.less_than(index, layers.shape(x)[0]),
        lambda index, state: layers.tanh(layers.matmul(state, weight) + layers.gather(x, index)),
        layers.fill_constant([1, 3], "float32", 0.0),
    )
    fetches, executor = trained(state), fluid.Executor()
    executor.run(fluid.default_startup_program())
    for steps in (3, 1, 0, 5, 3):
        feed = {"x": normal(steps, 3)}
        expected = executor.interpret(feed=feed, fetch_list=fetches)
        for result, reference in zip(executor.run(feed=feed, fetch_list=fetches), expected, strict=True):
            np.testing.assert_allclose(result, reference, rtol=1e-5, atol=1e-6)


def test_a_state_whose_rows_are_another_extent() -> None:
    def build() -> Sequence[Variable]:
        x, weight = fluid.data("x", [None, None, 3]), layers.create_parameter([3, 3], "float32")
        steps, rows, _ = layers.unstack(layers.shape(x))
        end, count = layers.reshape(steps, [1]), layers.cast(layers.size(x), "float32")

        def step(index: Variable, state: Variable) -> Variable:
            return layers.tanh(layers.matmul(state, weight)) + layers.squeeze(layers.gather(x, index), [0]) / count

        zeros = layers.fill_constant([layers.reshape(rows, [1]), 3], "float32", 0.0)
        return trained(repeat(lambda index: layers.less_than(index, end), step, zeros))

    assert_native(build, {"x": normal(6, 5, 3)})


def test_the_shape_of_a_state_is_that_of_each_trip() -> None:
    """A state that grows has another shape in each trip, so its shape is no constant."""
    x, end = fluid.data("x", [1, 2]), layers.fill_constant([1], "int32", 4)
    index, rows = layers.fill_constant([1], "int32", 0), layers.fill_constant([1], "int32", 0)

    def step(index: Variable, state: Variable, rows: Variable) -> list[Variable]:
        return [index + 1, layers.concat([state, x]), rows + layers.slice(layers.shape(state), [0], [0], [1])]

    rows = layers.while_loop(lambda index, *states: layers.less_than(index, end), step, [index, x, rows])[2]
    (total,) = fluid.Executor().run(feed={"x": normal(1, 2)}, fetch_list=[rows])
    assert total == 1 + 2 + 3 + 4


def test_a_feed_that_gets_another_shape_after_the_loop() -> None:
    x = fluid.data("x", [None, 2])
    rows = repeat(
        lambda index: layers.less_than(index, layers.shape(x)[0]),
        lambda index, rows: rows + 1.0,
        layers.fill_constant([1], "float32", 0.0),
    )
    layers.assign(layers.concat([x, x]), x)
    number, doubled = fluid.Executor().run(feed={"x": normal(3, 2)}, fetch_list=[rows, x])
    assert number == 3 and doubled.shape == (6, 2)
