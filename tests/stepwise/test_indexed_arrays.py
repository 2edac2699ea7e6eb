"""Arrays of tensors whose positions depend on values, or that branches read and write, in loops that run natively."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from beside_numpy import assert_alike, assert_same_error, results_of
from checks import each, fresh_programs
from control_flow_programs import integer, repeat

import fluid
from fluid import layers
from fluid.executor.stepwise.control import Runs
from fluid.ir.program import Variable

Build = Callable[[], Sequence[Variable]]
Step = Callable[..., None]


def normal(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def minimized(loss: Variable) -> list[Variable]:
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss]


def assert_native(build: Build, feed: dict[str, Any], op_by_op: int = 0, tolerance: float = 1e-5) -> None:
    """Assert that native code agrees with numpy, and that so many runs of blocks took place op by op."""
    with patch.object(Runs, "once", autospec=True, side_effect=Runs.once) as once:
        results_of(build, feed, native=True)
    assert once.call_count == op_by_op
    assert_alike(build, feed, tolerance=tolerance)


def assert_in_plan(build: Build, feed: dict[str, Any], loops: int = 1) -> None:
    """Assert that so many loops with arrays have native code in the plan."""
    with fresh_programs():
        fetches, executor = list(build()), fluid.Executor()
        executor.run(fluid.default_startup_program())
        instructions: Any = executor.plan(feed=feed, fetch_list=fetches).instructions
        assert sum(getattr(item, "loop_code", None) is not None for item in instructions) == loops


# ------------------------------------------------------------------------------------------------------------- a stack
def moves(words: int) -> Any:
    """Shifts (0) and reductions (1) that make one tree of some words."""
    rng, depth, shifts, order = np.random.default_rng(words), 0, 0, list[int]()
    while len(order) < 2 * words - 1:
        if shifts < words and (depth < 2 or rng.random() < 0.6):
            order, depth, shifts = [*order, 0], depth + 1, shifts + 1
        else:
            order, depth = [*order, 1], depth - 1
    return np.array(order, np.int64)


def parser(dtype: str, rows: int, has_writes_in_branches: bool, is_trained: bool = True) -> Build:
    """A stack of states; a reduction joins the upper two of them."""

    def build() -> Sequence[Variable]:
        words, order = fluid.data("words", [None, rows, 5], dtype), fluid.data("order", [None], "int64")
        words.stop_gradient = False
        depth, word, one = integer(0), integer(0), integer(1)
        stack = layers.array_write(layers.fill_constant([rows, 5], dtype, 0.0), depth)

        def push(state: Variable, position: Variable) -> None:
            layers.array_write(state, position, stack)
            layers.assign(position + 1, depth)

        def shift() -> Variable | None:
            state = layers.fc(layers.squeeze(layers.gather(words, word), [0]), 5, param_attr="w", bias_attr=False)
            layers.assign(word + 1, word)
            return push(state, depth) if has_writes_in_branches else state

        def join() -> Variable | None:
            pair = [layers.array_read(stack, depth - 2), layers.array_read(stack, depth - 1)]
            state = layers.fc(pair, 5, act="tanh", param_attr=["u", "v"], bias_attr="b")
            return push(state, depth - 2) if has_writes_in_branches else state

        def move(index: Variable) -> None:
            is_join = layers.equal(layers.gather(order, index), one)
            state = layers.cond(is_join, join, shift)
            if not has_writes_in_branches:
                push(state, depth - 2 * layers.cast(is_join, "int64"))

        repeat(layers.cast(layers.reshape(layers.shape(order), [1]), "int64"), move)
        root = layers.array_read(stack, integer(0))
        if not is_trained:
            return [root, layers.array_length(stack)]
        loss = layers.mean(layers.square(root))
        return [root, layers.array_length(stack), *fluid.gradients([loss], [words]), *minimized(loss)]

    return build


@each("dtype", ["float32", "float64"])
@each("rows", [1, 3])
@each("has_writes_in_branches", [False, True])
@each("words", [1, 2, 9])
def test_a_parser_is_trained(dtype: str, rows: int, has_writes_in_branches: bool, words: int) -> None:
    feed = {"words": normal(words, rows, 5, dtype=dtype), "order": moves(words)}
    assert_native(parser(dtype, rows, has_writes_in_branches), feed, tolerance=1e-5 if dtype == "float32" else 1e-12)


@each("dtype", ["float32", "float64"])
@each("rows", [1, 17])
@each("has_writes_in_branches", [False, True])
@each("words", [1, 2, 9, 70])
def test_a_parser_predicts_by_the_code_of_its_plan(dtype: str, rows: int, has_writes_in_branches: bool, words: int) -> None:
    """The stack of 70 words outgrows the memory of the plan; then the loop runs as others do."""
    feed = {"words": normal(words, rows, 5, dtype=dtype), "order": moves(words)}
    if words == 70:
        feed["order"] = np.repeat([0, 1], [words, words - 1])

    def build() -> Sequence[Variable]:
        return parser(dtype, rows, has_writes_in_branches, is_trained=False)()

    assert_in_plan(build, feed)
    assert_alike(build, feed, runs=3, tolerance=1e-5 if dtype == "float32" else 1e-12)


@each("has_writes_in_branches", [False, True])
def test_batches_of_many_lengths_leave_nothing_to_each_other(has_writes_in_branches: bool) -> None:
    """The stack of 70 words outgrows its memory."""

    def runs(native: str) -> list[Any]:
        with fresh_programs() as (program, startup), patch.dict(os.environ, FLUID_NATIVE=native):
            program.random_seed = startup.random_seed = 1
            fetches, executor, results = parser("float64", 2, has_writes_in_branches)(), fluid.Executor(), list[Any]()
            executor.run(startup)
            for words in (3, 70, 1, 12, 70, 2):
                order = np.repeat([0, 1], [words, words - 1]) if words == 70 else moves(words)
                feed = {"words": normal(words, 2, 5, dtype="float64"), "order": order}
                results.append(executor.run(program, feed, fetches))
            return results

    with patch.object(Runs, "once", autospec=True, side_effect=Runs.once) as once:
        native_runs = runs("1")
    assert not once.called
    for ours, theirs in zip(native_runs, runs("0"), strict=True):
        for value, expected in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-12)


def test_a_reduction_of_an_empty_stack_is_named() -> None:
    feed = {"words": normal(3, 1, 5), "order": np.int64([0, 1, 0])}
    for native in (True, False):
        with pytest.raises(fluid.errors.ExecutionError, match="positions in arrays start at 0"):
            results_of(parser("float32", 1, True), feed, native=native, runs=1)


# ---------------------------------------------------------------------------------------------------- roles of arrays
def chosen(step: Step, dtype: str = "float32", trips: int = 5) -> Build:
    """A loop that calls `step(index, is_odd, x, array, more)` in each trip, and adds up the entries of two arrays."""

    def build() -> Sequence[Variable]:
        x, flags = fluid.data("x", [None, 3], dtype), fluid.data("flags", [None], "int64")
        x.stop_gradient = False
        array, more = layers.array_write(x * 1.0, integer(0)), layers.array_write(x * 0.5, integer(0))
        one = integer(1)

        def body(index: Variable) -> None:
            step(index, layers.equal(layers.gather(flags, index), one), x, array, more)

        repeat(integer(trips), body)
        totals = [layers.reduce_sum(layers.tensor_array_to_tensor(item, 0)[0], 0) for item in (array, more)]
        lengths = [layers.array_length(item) for item in (array, more)]
        return [*totals, *lengths, *fluid.gradients([layers.reduce_sum(totals[0] * totals[1])], [x])]

    return build


def write_one(index: Variable, is_odd: Variable, x: Variable, array: Variable, more: Variable) -> None:
    """One branch writes to an array, the other one nothing."""
    layers.cond(is_odd, lambda: layers.array_write(layers.tanh(x), layers.array_length(array) * 0 + index * 0, array) and None)


def write_other(index: Variable, is_odd: Variable, x: Variable, array: Variable, more: Variable) -> None:
    """Each branch writes to an array of its own."""

    def write(to: Variable, factor: float) -> None:
        layers.array_write(layers.array_read(to, integer(0)) * factor + x, index, to)

    layers.cond(is_odd, lambda: write(array, 0.5), lambda: write(array, -0.5))
    layers.array_write(x, index, more)


def write_nested(index: Variable, is_odd: Variable, x: Variable, array: Variable, more: Variable) -> None:
    """A branch in a branch reads and writes."""
    is_late = layers.greater_than(index, integer(2))

    def late() -> Variable:
        return layers.array_read(array, index - 2) * 2.0 + layers.array_read(array, index)

    def odd() -> Variable:
        return layers.cond(is_late, late, lambda: layers.array_read(array, index) * 1.5)

    layers.array_write(layers.cond(is_odd, odd, lambda: layers.sin(x)), index + 1, array)


def write_by_condition(index: Variable, is_odd: Variable, x: Variable, array: Variable, more: Variable) -> None:
    """A switch overwrites entries; the position depends on what the loop computes."""
    position = layers.cast(layers.greater_than(layers.reduce_sum(layers.array_read(array, integer(0))), x * 0.0), "int64")
    position = layers.reshape(layers.reduce_max(position), [1])
    with layers.Switch() as switch:
        with switch.case(is_odd):
            layers.array_write(layers.array_read(array, integer(0)) - 0.7, integer(0), array)
        with switch.default():
            layers.array_write(layers.array_read(array, integer(0)) * 0.9 + x, position, more)


def write_copy(index: Variable, is_odd: Variable, x: Variable, array: Variable, more: Variable) -> None:
    """A new array of the trip holds one entry; the position of the write depends on a value."""
    new = layers.array_write(layers.tanh(x), index)
    position = layers.cast(is_odd, "int64")
    layers.array_write(layers.array_read(new, index) + layers.array_read(array, integer(0)), position, array)


STEPS = [write_other, write_nested, write_by_condition, write_copy]


@each("step", STEPS)
@each("flags", [[0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 1, 1, 0, 1]])
@each("dtype", ["float32", "float64"])
def test_branches_read_and_write_arrays(step: Step, flags: list[int], dtype: str) -> None:
    feed = {"x": normal(2, 3, dtype=dtype), "flags": np.int64(flags)}
    assert_native(chosen(step, dtype), feed, tolerance=1e-5 if dtype == "float32" else 1e-12)


@each("step", STEPS)
@each("trips", [0, 1])
def test_no_trip_and_one(step: Step, trips: int) -> None:
    assert_native(chosen(step, trips=trips), {"x": normal(1, 3), "flags": np.int64([1])})


# ------------------------------------------------------------------------------------------------------------- errors
@each("position", [-1, 3, 40, 1 << 21])
@each("is_written", [False, True])
def test_a_wrong_position_is_named_if_the_branch_is_taken(position: int, is_written: bool) -> None:
    def build() -> Sequence[Variable]:
        x, flags, place = fluid.data("x", [3]), fluid.data("flags", [4], "int64"), fluid.data("place", [1], "int64")
        array, total = layers.array_write(x, integer(0)), x * 1.0

        def use() -> None:
            if is_written:
                layers.array_write(total * 2.0, place, array)
            layers.assign(total + layers.array_read(array, place if not is_written else integer(0)), total)

        repeat(integer(4), lambda index: layers.cond(layers.equal(layers.gather(flags, index), integer(1)), use))
        return [total, layers.array_length(array)]

    feed = {"x": normal(3), "flags": np.int64([0, 0, 0, 0]), "place": np.int64([position])}
    assert_native(build, feed)
    feed["flags"] = np.int64([0, 0, 1, 0])
    if is_written and 0 <= position < 1 << 20:
        assert_native(build, feed)
        return
    assert_same_error(build, feed)


@each("is_taken", [False, True])
def test_ids_are_checked_in_branches_that_run(is_taken: bool) -> None:
    def build() -> Sequence[Variable]:
        ids, flags = fluid.data("ids", [4], "int64"), fluid.data("flags", [4], "int64")
        table, state = layers.create_parameter([11, 5], "float32"), layers.fill_constant([1, 5], "float32", 0.1)

        def body(index: Variable) -> None:
            is_word = layers.equal(layers.gather(flags, index), integer(1))
            word = layers.cond(is_word, lambda: layers.gather(table, layers.gather(ids, index)), lambda: state * 2.0)
            layers.assign(layers.tanh(state + word), state)

        repeat(integer(4), body)
        return [state, *minimized(layers.mean(state))]

    feed = {"ids": np.int64([3, 0, 11, 5]), "flags": np.int64([1, 0, int(is_taken), 1])}
    if not is_taken:
        assert_native(build, feed)
        return
    for native in (True, False):
        with pytest.raises(fluid.errors.ExecutionError, match="index 11 is outside of"):
            results_of(build, feed, native=native, runs=1)


# -------------------------------------------------------------------------------------------------------------- draws
@each("trips", [3, 40])
def test_a_coin_in_each_trip_falls_as_it_does_op_by_op(trips: int) -> None:
    """With 40 trips the loop runs again with more room, and draws the same numbers."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [2, 3])
        array, depth, half = layers.array_write(x, integer(0)), integer(0), layers.fill_constant([1], "float32", 0.4)

        def body(index: Variable) -> None:
            coin = layers.uniform_random([1], "float32", 0.0, 1.0)
            last = layers.array_read(array, depth)
            new = layers.cond(layers.less_than(coin, half), lambda: layers.tanh(last), lambda: last * 0.9 + 0.1)
            layers.array_write(new, depth + 1, array)
            layers.assign(depth + 1, depth)

        repeat(integer(trips), body)
        return [layers.tensor_array_to_tensor(array, 0)[0], layers.uniform_random([2])]

    assert_native(build, {"x": normal(2, 3)})


def test_an_array_that_changes_after_it_was_copied_runs_op_by_op() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [3])
        array, total, place = layers.array_write(x, integer(0)), x * 0.0, fluid.data("place", [1], "int64")

        def body(index: Variable) -> None:
            copy = layers.assign(array)
            layers.array_write(total + 1.0, place * index, array)
            layers.assign(total + layers.array_read(copy, integer(0)), total)

        repeat(integer(4), body)
        return [total]

    assert_native(build, {"x": normal(3), "place": np.int64([0])}, op_by_op=8)


# ------------------------------------------------------------------------------------------------- loops of a plan
def filled(trips: Variable, state: Variable, is_reversed: bool = False) -> tuple[Variable, Variable]:
    """An array with an entry of each trip, and the last state."""
    array, last = layers.create_array("float32"), layers.assign(state)

    def body(index: Variable) -> None:
        layers.array_write(last, (trips - 1 - index) if is_reversed else index, array)
        layers.assign(last * 0.5 + 1.0, last)

    repeat(trips, body)
    return array, last


@each("trips", [0, 1, 2, 17, 40])
@each("width", [1, 17, 1025])
@each("is_fed", [False, True])
def test_one_loop_fills_an_array_and_another_reads_it(trips: int, width: int, is_fed: bool) -> None:
    def build() -> Sequence[Variable]:
        x, total = fluid.data("x", [2, width]), layers.fill_constant([2, width], "float32", 0.0)
        end = fluid.data("end", [1], "int64") if is_fed else integer(trips)
        array, last = filled(end, x, is_reversed=True)
        repeat(end, lambda index: layers.assign(total * 0.5 + layers.array_read(array, index), total))
        return [total, last, layers.array_length(array)]

    feed = {"x": normal(2, width), **({"end": np.array([trips])} if is_fed else {})}
    if trips:
        assert_in_plan(build, feed, loops=2 if is_fed else 0)  # counted loops that collect are recurrences
    assert_alike(build, feed, runs=3)


def test_an_entry_is_the_state_of_the_next_trip() -> None:
    """As loops of Paddle pass states: trip i reads entry i and writes entry i + 1."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [3, 4])
        states = layers.array_write(x, integer(0))

        def body(index: Variable) -> None:
            layers.array_write(layers.tanh(layers.array_read(states, index)) + 0.25, index + 1, states)

        repeat(fluid.data("end", [1], "int64"), body)
        return [layers.tensor_array_to_tensor(states, 0)[0], layers.array_read(states, integer(6))]

    feed = {"x": normal(3, 4), "end": np.array([6])}
    assert_in_plan(build, feed)
    assert_alike(build, feed, runs=3)


def test_results_of_a_run_stay_when_the_next_one_runs() -> None:
    with fresh_programs():
        x = fluid.data("x", [3])
        array, _ = filled(integer(4), x)
        executor, first = fluid.Executor(), normal(3)
        results = [executor.run(feed={"x": value}, fetch_list=[array])[0] for value in (first, first + 1, first)]
        np.testing.assert_array_equal(results[0], results[2])
        assert not np.array_equal(results[0][0], results[1][0])
        np.testing.assert_array_equal(results[0][0], first)


@each("place", [-1, 5, 1 << 40])
def test_a_position_without_an_entry_gives_the_error_of_steps(place: int) -> None:
    """And the next run is right."""

    def error_and_result(native: str) -> tuple[str, Any]:
        with fresh_programs(), patch.dict(os.environ, FLUID_NATIVE=native):
            x, at = fluid.data("x", [3]), fluid.data("at", [1], "int64")
            array, total = filled(integer(5), x)[0], layers.assign(x)
            repeat(integer(2), lambda index: layers.assign(total + layers.array_read(array, at), total))
            executor, feed = fluid.Executor(), {"x": normal(3), "at": np.array([3])}
            executor.run(feed=feed, fetch_list=[total])
            with pytest.raises(fluid.errors.ExecutionError) as raised:
                executor.run(feed={**feed, "at": np.array([place])}, fetch_list=[total])
            return str(raised.value), executor.run(feed=feed, fetch_list=[total])[0]

    (error, result), (expected_error, expected) = map(error_and_result, "10")
    assert error == expected_error
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_a_wrong_id_in_a_branch_gives_the_error_of_steps() -> None:
    feed = {"words": normal(3, 1, 5), "order": np.int64([0, 0, 0, 0, 1])}

    def error(native: bool) -> str:
        with pytest.raises(fluid.errors.ExecutionError, match="gather") as raised:
            results_of(parser("float32", 1, False, is_trained=False), feed, native=native, runs=1)
        return str(raised.value).partition("at run time")[0].strip()

    assert error(native=True) == error(native=False)


def test_entries_of_several_shapes_run_step_by_step() -> None:
    def build() -> Sequence[Variable]:
        x, index = fluid.data("x", [2, 3]), integer(0)
        array = layers.array_write(x, index)
        layers.array_write(layers.concat([x, x], 0), integer(1), array)
        total = layers.fill_constant([3], "float32", 0.0)
        repeat(integer(2), lambda index: layers.assign(total + layers.reduce_sum(layers.array_read(array, index), 0), total))
        return [total]

    assert_alike(build, {"x": normal(2, 3)})


# -------------------------------------------------------------------------------------------- gradients in a plan
@each("trips", [1, 2, 5, 17])
@each("rows, width", [(1, 1), (3, 17), (2, 1025)])
@each("shape", ["states", "outputs", "both"])
def test_a_loop_and_its_gradient_have_code_in_the_plan(trips: int, rows: int, width: int, shape: str) -> None:
    """A loop that reads its inputs, and passes its states or gives its outputs, by arrays."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [trips, rows, width])
        x.stop_gradient = False
        weight, zeros = layers.create_parameter([width], "float32"), layers.fill_constant([rows, width], "float32", 0.5)
        zeros.stop_gradient = False
        states, outputs, h = layers.array_write(zeros, integer(0)), layers.create_array("float32"), layers.assign(zeros)

        def body(index: Variable) -> None:
            word = layers.squeeze(layers.gather(x, index), [0])
            before = layers.array_read(states, index) if shape != "outputs" else h
            after = layers.tanh(before * weight + word)
            if shape == "states":
                layers.array_write(after, index + 1, states)
                return
            layers.assign(after, h)
            layers.array_write(after * 2.0, index, outputs)
            if shape == "both":
                layers.array_write(after, index + 1, states)

        repeat(integer(trips), body)
        out, _ = layers.tensor_array_to_tensor(states if shape == "states" else outputs, 0)
        loss = layers.mean(layers.square(out))
        return [out, *fluid.gradients([loss], [x, zeros]), *minimized(loss)]

    feed = {"x": normal(trips, rows, width)}
    assert_in_plan(build, feed, loops=3)  # two gradients
    assert_native(build, feed)
    assert_alike(build, feed, runs=4)


def test_a_gradient_follows_its_loop_when_there_is_no_room() -> None:
    """The array outgrows its memory in the loop; then both run as other loops do, in the next run, too."""

    def build() -> Sequence[Variable]:
        x, far = fluid.data("x", [3]), fluid.data("far", [1], "int64")
        x.stop_gradient = False
        array, h = layers.array_write(x, integer(0)), layers.assign(x)

        def body(index: Variable) -> None:
            layers.assign(layers.tanh(h) * 1.5, h)
            layers.array_write(h, index * far + 1, array)

        repeat(integer(3), body)
        at = far * 2 + 1
        loss = layers.reduce_sum(layers.square(layers.array_read(array, at)))
        return [loss, *fluid.gradients([loss], [x])]

    for far in (1, 500, 5000):
        assert_in_plan(build, {"x": normal(3), "far": np.array([far])}, loops=2)
        assert_alike(build, {"x": normal(3), "far": np.array([far])}, runs=3)


def test_runs_with_and_without_room_take_turns() -> None:
    def results(native: str) -> list[Any]:
        with fresh_programs(), patch.dict(os.environ, FLUID_NATIVE=native):
            x, far = fluid.data("x", [3]), fluid.data("far", [1], "int64")
            x.stop_gradient = False
            array, h = layers.array_write(x, integer(0)), layers.assign(x)

            def body(index: Variable) -> None:
                layers.assign(layers.tanh(h) * 1.5 + layers.array_read(array, integer(0)), h)
                layers.array_write(h, index * far + 1, array)

            repeat(integer(3), body)
            loss = layers.reduce_sum(layers.square(layers.array_read(array, far + 1)))
            fetches, executor = [loss, *fluid.gradients([loss], [x])], fluid.Executor()
            feeds = [{"x": normal(3) + number, "far": np.array([far])} for number, far in enumerate((1, 900, 2, 900, 1))]
            return [value for feed in feeds for value in executor.run(feed=feed, fetch_list=fetches)]

    for value, expected in zip(results("1"), results("0"), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_second_derivatives_through_arrays() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [2, 3])
        x.stop_gradient = False
        array = layers.array_write(x, integer(0))

        def body(index: Variable) -> None:
            layers.array_write(layers.tanh(layers.array_read(array, index) * x), index + 1, array)

        repeat(integer(3), body)
        (first,) = fluid.gradients([layers.reduce_sum(layers.square(layers.array_read(array, integer(3))))], [x])
        return [first, *fluid.gradients([layers.reduce_sum(layers.square(first))], [x])]

    assert_alike(build, {"x": normal(2, 3)}, runs=3)


def test_branches_on_arrays_are_trained_in_a_plan() -> None:
    """The parser, whose moves are known in number."""

    def build() -> Sequence[Variable]:
        return parser("float32", 2, True)()

    feed = {"words": normal(6, 2, 5), "order": moves(6)}
    assert_native(build, feed)
    assert_alike(build, feed, runs=4)


@each("change", ["none", "an entry", "one more", "a gap", "a part", "a copy"])
@each("use_stack", [False, True])
@each("axis", [0, 1])
def test_entries_of_one_block_are_joined_read_and_changed(change: str, use_stack: bool, axis: int) -> None:
    """A loop leaves entries in one block of memory; ops between loops change the array, and the next loop extends it."""

    def build() -> Sequence[Variable]:
        x, array = fluid.data("x", [2, 3]), layers.create_array("float32")
        x.stop_gradient = False
        repeat(4, lambda index: layers.array_write(layers.tanh(x * layers.cast(index, "float32")), index, array))
        if change == "an entry":
            layers.array_write(x * 5.0, integer(2), array)
        elif change == "one more":
            layers.array_write(x * 5.0, integer(4), array)
        elif change == "a gap":
            layers.array_write(x * 5.0, integer(6), array)
        elif change == "a part":
            array = layers.slice(array, axes=[0], starts=[1], ends=[3])
        elif change == "a copy":
            array = layers.assign(array)
        total = layers.fill_constant([2, 3], "float32", 0.0)
        first = 1 if change == "a part" else 3
        repeat(first, lambda index: layers.assign(total + layers.array_read(array, index), total))
        if change == "a gap":
            return [total, layers.array_length(array)]
        joined, sizes = layers.tensor_array_to_tensor(array, axis, use_stack=use_stack)
        loss = layers.reduce_sum(layers.square(joined)) + layers.reduce_sum(total)
        return [joined, sizes, *fluid.gradients(loss, [x])]

    assert_alike(build, {"x": normal(2, 3)})
