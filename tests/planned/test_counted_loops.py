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
    """Run a program, and compare with the reference. Its plan holds a loop unless the number of all trips is counted."""
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


# ---------------------------------------------------------------------------------------- arrays that other ops read
def counted(trips: int, body: Callable[..., Any], states: list[Any]) -> Any:
    """The states after so many trips of a ``While`` that updates them."""
    number, limit = (layers.fill_constant([1], "int64", value) for value in (0, trips))
    states = [layers.assign(state) for state in states]
    going = layers.less_than(number, limit)
    loop = layers.While(going)
    with loop.block():
        for state, value in zip(states, body(number, *states), strict=True):
            layers.assign(value, state)
        layers.increment(number, 1)
        layers.less_than(number, limit, cond=going)
    return states


def joined(array: Any, axis: int, stacks: bool) -> list[Any]:
    return [*layers.tensor_array_to_tensor(array, axis, use_stack=stacks)]


READS: dict[str, Callable[[Any], list[Any]]] = {
    "rows": lambda array: joined(array, 0, False),
    "columns": lambda array: joined(array, 1, False),
    "the last axis": lambda array: joined(array, -1, False),
    "a stack": lambda array: joined(array, 0, True),
    "a stack along columns": lambda array: joined(array, -1, True),
    "length": lambda array: [layers.array_length(array)],
    "an entry": lambda array: [layers.array_read(array, layers.fill_constant([1], "int64", 0))],
    "another loop": lambda array: weighted_sum(array),
    "a loop that collects": lambda array: joined(half_of_entries(array), 0, False),
}


def weighted_sum(array: Any) -> list[Any]:
    zeros = layers.fill_constant([2, 3], "float32", 0.0)
    return counted(3, lambda number, total: [total * 0.5 + layers.array_read(array, 3 - (number + 1))], [zeros])


def half_of_entries(array: Any) -> Any:
    halves = layers.create_array("float32")
    counted(3, lambda number: layers.array_write(layers.array_read(array, number) * 0.5, number, halves) and [], [])
    return halves


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("order", ["forward", "backward", "after the first"])
@pytest.mark.parametrize("batch", [2, -1])
def test_entries_are_read_from_a_stack(read: str, order: str, batch: int) -> None:
    x = fluid.data("x", [batch, 3])
    array = layers.create_array("float32")
    if order == "after the first":
        layers.array_write(x * 3.0, layers.fill_constant([1], "int64", 0), array)

    def body(number: Any, state: Any) -> list[Any]:
        if order == "after the first":
            state = state + layers.array_read(array, number)
        place = {"forward": number, "backward": 2 - number, "after the first": number + 1}[order]
        layers.array_write(layers.tanh(state), place, array)
        return [state * 0.5 + 1.0]

    (last,) = counted(3, body, [x])
    fetches = READS[read](array)
    if batch == -1:  # the sizes of entries are not declared
        fetches = fetches[:1]
    run_like_the_reference(ROW, [*fetches, last], is_counted=read != "another loop")


def test_an_entry_from_outside() -> None:
    x, array = fluid.data("x", [2, 3]), layers.create_array("float32")
    counted(3, lambda number: layers.array_write(x, number, array) and [], [])
    run_like_the_reference(ROW, joined(array, 0, False), is_counted=True)


def test_a_first_entry_of_another_shape() -> None:
    x, one = fluid.data("x", [-1, 3]), fluid.data("one", [-1, 3])
    array = layers.array_write(one, layers.fill_constant([1], "int64", 0))

    def body(number: Any, state: Any) -> list[Any]:
        state = state + layers.array_read(array, number)
        layers.array_write(state, number + 1, array)
        return [state]

    (last,) = counted(3, body, [x])
    run_like_the_reference({**ROW, "one": np.ones((1, 3), "float32")}, [last, *joined(array, 0, False)], is_counted=False)


@pytest.mark.parametrize("kind", ["other places", "two writes", "written later", "read before it is written"])
def test_arrays_that_stay(kind: str) -> None:
    x = fluid.data("x", [2, 3])
    array = layers.create_array("float32")
    layers.array_write(x, layers.fill_constant([1], "int64", 0), array)

    def body(number: Any, state: Any) -> list[Any]:
        if kind == "read before it is written":
            state = state + layers.array_read(array, layers.fill_constant([1], "int64", 0))
        layers.array_write(state, number * 2 if kind == "other places" else number + 1, array)
        if kind == "two writes":
            layers.array_write(state, number + 1, array)
        return [layers.tanh(state)]

    (last,) = counted(3, body, [x])
    if kind == "written later":
        layers.array_write(last, layers.fill_constant([1], "int64", 1), array)
    run_like_the_reference(ROW, [last, layers.array_read(array, layers.fill_constant([1], "int64", 2))], is_counted=False)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("stacks", [False, True])
def test_the_joined_entries_of_a_trained_loop_have_memory(axis: int, stacks: bool) -> None:
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    array = layers.array_write(x * 2.0, layers.fill_constant([1], "int64", 0))

    def body(number: Any, state: Any) -> list[Any]:
        state = layers.tanh(state + layers.array_read(array, number))
        layers.array_write(state, number + 1, array)
        return [state]

    counted(3, body, [x])
    rows, sizes = joined(array, axis, stacks)
    loss = layers.mean(layers.square(rows))
    fetches = [loss, rows, sizes, *fluid.gradients([loss], [x])]
    run_like_the_reference(ROW, fetches, is_counted=False)
    plan: Any = fluid.Executor().plan(feed=ROW, fetch_list=fetches)
    assert not [item for item in plan.instructions if item.is_op and item.dynamic and item.op.type in ("square", "mean")]
