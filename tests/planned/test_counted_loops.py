"""Loops that collect a value of each trip, so many times as constants tell: their plans know the sizes of the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.extend import ops


def collect(
    trips: Any,
    step: Callable[[Any, Any], Any],
    state: Any,
    first: int = 0,
    read: Callable[[Any, Any], Any] | None = None,
    condition: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any]:
    """Run ``step(state, number)`` and collect the states; returns the stack of all, and the last one.

    Args:
        trips: the number after which the loop ends.
        step: the next state.
        state: the first state.
        first: where the loop begins to count.
        read: makes the collected value from the state and the array; by default the state.
        condition: whether a state lets the loop go on.
    """
    number = layers.fill_constant([1], "int64", first)
    limit = layers.fill_constant([1], "int64", trips) if isinstance(trips, int) else trips
    state, array = layers.assign(state), ops().new_array(dtype=int(fluid.core.VarDesc.VarType.FP32))
    going = layers.less_than(number, limit)
    loop = layers.While(going)
    with loop.block():
        layers.assign(step(state, number), state)
        layers.array_write(state if read is None else read(state, array), number, array)
        layers.increment(number, 1)
        goes_on = layers.less_than(number, limit)
        layers.assign(goes_on if condition is None else layers.logical_and(goes_on, condition(state)), going)
    return ops().stack_array(array), state


def types(executor: fluid.Executor, feed: dict[str, Any], fetches: list[Any]) -> list[str]:
    plan: Any = executor.plan(feed=feed, fetch_list=fetches)
    return [op.type for op in plan.ops]


def run_like_the_reference(feed: dict[str, Any], fetches: list[Any], is_counted: bool) -> list[Any]:
    """Run a program, and compare with the reference. Its plan holds a loop unless the number of trips is counted."""
    executor = fluid.Executor()
    assert ("while" not in types(executor, feed, fetches)) is is_counted
    expected, results = executor.interpret(feed=feed, fetch_list=fetches), executor.run(feed=feed, fetch_list=fetches)
    for result, reference in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, reference, rtol=1e-6)
        assert result.shape == reference.shape and result.dtype == reference.dtype
    return results


ROW = {"x": np.arange(6, dtype="float32").reshape(2, 3)}


def half_more(state: Any, number: Any) -> Any:
    return state * 1.5 + layers.cast(number, "float32")


@pytest.mark.parametrize("trips", [1, 2, 7])
def test_a_counted_loop_gives_a_stack_of_known_size(trips: int) -> None:
    stack, last = collect(trips, half_more, fluid.data("x", [2, 3]))
    out = layers.reduce_sum(layers.matmul(stack, stack, transpose_y=True), dim=[1, 2])
    sums, states, end = run_like_the_reference(ROW, [out, stack, last], is_counted=True)
    assert sums.shape == (trips,) and states.shape == (trips, 2, 3) and np.array_equal(states[-1], end)


@pytest.mark.parametrize("trips", [1, 4])
def test_values_are_collected_before_the_trip_overwrites_them(trips: int) -> None:
    x, number = fluid.data("x", [2, 3]), layers.fill_constant([1], "int64", 0)
    state, limit = layers.assign(x), layers.fill_constant([1], "int64", trips)
    before, after = (ops().new_array(dtype=int(fluid.core.VarDesc.VarType.FP32)) for _ in range(2))
    going = layers.less_than(number, limit)
    loop = layers.While(going)
    with loop.block():
        layers.array_write(state, number, before)
        layers.assign(layers.scale(state, 2.0), state)
        layers.array_write(state, number, after)
        layers.increment(number, 1)
        layers.less_than(number, limit, cond=going)
    first, second, last = run_like_the_reference(ROW, [ops().stack_array(before), ops().stack_array(after), state], True)
    powers = 2.0 ** np.arange(trips).reshape(-1, 1, 1)
    np.testing.assert_array_equal(first, ROW["x"] * powers)
    np.testing.assert_array_equal(second, 2 * first)
    np.testing.assert_array_equal(last, second[-1])


def test_a_large_state_that_is_read_after_the_loop_is_not_stacked() -> None:
    x = fluid.data("x", [1 << 19])
    _, last = collect(16, lambda state, number: state * 1.5, x, read=lambda state, array: layers.mean(state))
    run_like_the_reference({"x": np.ones(1 << 19, "float32")}, [last], is_counted=False)


def test_the_sizes_of_feeds_count_trips() -> None:
    x = fluid.data("x", [None, 3])
    rows = layers.cast(layers.slice(layers.shape(x), axes=[0], starts=[0], ends=[1]), "int64")
    stack, _ = collect(rows, lambda state, number: state + layers.gather(x, number), layers.fill_constant([1, 3], "float32", 0.0))
    for count in (1, 5, 3):
        values = np.random.default_rng(count).standard_normal((count, 3)).astype("float32")
        (sums,) = run_like_the_reference({"x": values}, [stack], is_counted=True)
        np.testing.assert_allclose(sums[:, 0], values.cumsum(0), rtol=1e-5)


def test_a_loop_behind_a_loop_is_counted_by_the_size_of_its_stack() -> None:
    stack, _ = collect(3, half_more, fluid.data("x", [2, 3]))
    rows = layers.cast(layers.slice(layers.shape(stack), axes=[0], starts=[0], ends=[1]), "int64")
    second, last = collect(rows, lambda state, number: state + layers.gather(stack, number), layers.slice(stack, [0], [0], [1]))
    run_like_the_reference(ROW, [second, last], is_counted=True)


def test_states_that_a_loop_leaves_as_they_are_do_not_pass_through_it() -> None:
    x = fluid.data("x", [2, 3])
    stays = layers.assign(x)
    stack, last = collect(4, lambda state, number: half_more(state, number) + stays, x)
    loop = next(op for op in fluid.default_main_program().global_block().ops if op.type == "while")
    with fluid.default_main_program().block_guard(loop.sub_blocks[0]):
        layers.assign(layers.assign(stays), stays)
    loop.outputs["Out"] = [*loop.output("Out"), stays.name]
    run_like_the_reference(ROW, [stack, last, stays], is_counted=True)
    plan: Any = fluid.Executor().plan(feed=ROW, fetch_list=[stack, last, stays])
    (recurrence,) = [op for op in plan.ops if op.type == "recurrent"]
    assert recurrence.input("initial_states") and stays.name not in recurrence.input("initial_states")


def test_loops_whose_trips_depend_on_values_stay() -> None:
    x = fluid.data("x", [2, 3])
    stack, last = collect(
        9,
        half_more,
        x,
        condition=lambda state: layers.less_than(layers.reduce_sum(state), layers.fill_constant([1], "float32", 300.0)),
    )
    states, _ = run_like_the_reference(ROW, [stack, last], is_counted=False)
    assert 1 < len(states) < 9


@pytest.mark.parametrize(
    "how",
    [
        {"first": 1},
        {"read": lambda state, array: state + 0.0 * layers.cast(layers.array_length(array), "float32")},
    ],
    ids=["gap", "length"],
)
def test_loops_that_do_more_than_collect_stay(how: dict[str, Any]) -> None:
    _, last = collect(3, half_more, fluid.data("x", [2, 3]), **how)
    executor = fluid.Executor()
    assert "while" in types(executor, ROW, [last])
    (result,), (expected,) = executor.run(feed=ROW, fetch_list=[last]), executor.interpret(feed=ROW, fetch_list=[last])
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_loops_that_make_no_trip_stay() -> None:
    _, last = collect(0, half_more, fluid.data("x", [2, 3]))
    (end,) = run_like_the_reference(ROW, [last], is_counted=False)
    assert np.array_equal(end, ROW["x"])


def test_a_state_that_doubles_stays() -> None:
    x = fluid.data("x", [2, 3])
    _, last = collect(
        3, lambda state, number: layers.concat([state, state], axis=0), x, read=lambda state, array: layers.reduce_sum(state)
    )
    run_like_the_reference(ROW, [last], is_counted=False)


def test_a_loop_with_a_gradient_stays() -> None:
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    stack, _ = collect(3, half_more, x)
    (gradient,) = fluid.gradients([layers.reduce_sum(layers.square(stack))], [x])
    run_like_the_reference(ROW, [gradient, stack], is_counted=False)


def test_a_loop_that_updates_a_variable_of_the_scope_stays() -> None:
    total = layers.create_global_var([2, 3], 1.0, "float32", persistable=True)
    stack, _ = collect(
        3, lambda state, number: layers.assign(layers.elementwise_add(total, state), total), fluid.data("x", [2, 3])
    )
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    assert "while" in types(executor, ROW, [stack])
    executor.run(feed=ROW, fetch_list=[stack])
    np.testing.assert_allclose(fluid.global_scope().array(total.name), 4.0 * (1.0 + ROW["x"]))
