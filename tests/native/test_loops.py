"""Loops whose blocks run natively, as one table for all trips."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from beside_numpy import assert_alike, results_of
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.executor.native import repeated
from fluid.executor.stepwise.control import Runs
from fluid.extend import ops
from fluid.ir.program import Variable

Build = Callable[[], Sequence[Variable]]


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def assert_native(build: Build, feed: dict[str, Any], runs: int = 2, op_by_op: int = 0, tolerance: float = 1e-5) -> None:
    """Assert that native code agrees with numpy, and that so many runs of blocks took place op by op."""
    with patch.object(Runs, "once", autospec=True, side_effect=Runs.once) as once:
        results_of(build, feed, native=True, runs=runs)
    assert once.call_count == op_by_op
    assert_alike(build, feed, runs, tolerance)


def minimized(loss: Variable) -> list[Variable]:
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss]


# ------------------------------------------------------------------------------------------------------------ while
@each("trips", [1, 2, 15, 16, 17, 100])
def test_a_while_loop_is_trained(trips: int) -> None:
    def build() -> Sequence[Variable]:
        x, w = fluid.data("x", [5, 7]), layers.create_parameter([7, 7], "float32")
        index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", trips)
        results = layers.while_loop(
            lambda index, h: layers.less_than(index, end),
            lambda index, h: [index + 1, layers.tanh(layers.matmul(h, w))],
            [index, x],
        )
        return [*results, *minimized(layers.mean(results[1]))]

    assert_native(build, {"x": normal(5, 7)})


def test_a_pruned_loop_leaves_outputs_that_nothing_reads() -> None:
    def build() -> Sequence[Variable]:
        x, index, end = fluid.data("x", [5]), integer(0), integer(9)
        sums, numbers = layers.create_array("float32"), layers.create_array("float32")

        def body(index: Variable, h: Variable, unread: Variable) -> list[Variable]:
            layers.array_write(h, index, numbers)
            layers.array_write(unread, index, sums)
            return [index + 1, layers.tanh(h) + 0.1, unread + h]

        _, h, unread = layers.while_loop(lambda index, *_: layers.less_than(index, end), body, [index, x, x * 2.0])
        return [h, layers.array_read(numbers, integer(7)), unread, layers.array_read(sums, integer(8))]

    def results(native: int) -> list[Any]:
        program, executor = fluid.Program(), fluid.Executor()
        with fluid.program_guard(program), patch.dict(os.environ, {"FLUID_NATIVE": str(native)}):
            fetched = build()[:2]
            return executor.run(program, {"x": normal(5)}, fetched, use_prune=True)

    with patch.object(Runs, "once", autospec=True, side_effect=Runs.once) as once:
        native_results = results(native=1)
    assert not once.called
    for ours, expected in zip(native_results, results(native=0), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6)


@each("start", [2.0, 0.5])
def test_a_condition_on_what_the_loop_computes(start: float) -> None:
    """With a start below the limit, the block never runs."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [3])
        x.stop_gradient = False
        number = layers.fill_constant([1], "float32", start)
        large = layers.greater_than(number, layers.fill_constant([1], "float32", 1.0))
        total, loop = layers.assign(x), layers.While(large)
        with loop.block():
            layers.assign(layers.scale(number, 0.9), number)
            layers.assign(layers.elementwise_mul(total, number), total)
            layers.greater_than(number, layers.fill_constant([1], "float32", 1.0), cond=large)
        return [total, number, *fluid.gradients([layers.mean(total)], [x])]

    assert_native(build, {"x": normal(3)})


def test_a_value_that_no_trip_reads_is_that_of_the_last() -> None:
    def build() -> Sequence[Variable]:
        index, end = layers.fill_constant([1], "float32", 0), layers.fill_constant([1], "float32", 20)
        last, below = layers.fill_constant([2, 3], "float32", -1), layers.less_than(index, end)
        loop = layers.While(below)
        with loop.block():
            layers.assign(index + 1.0, index)
            layers.assign(layers.expand(layers.reshape(index, [1, 1]), [2, 3]), last)
            layers.less_than(index, end, cond=below)
        return [last, index]

    assert_native(build, {})


def test_a_value_that_grows_runs_op_by_op() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [1, 3])
        index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 4)
        return layers.while_loop(  # type: ignore[no-any-return]
            lambda index, rows: layers.less_than(index, end),
            lambda index, rows: [index + 1, layers.concat([rows, rows], 0)],
            [index, layers.assign(x)],
        )

    assert_native(build, {"x": normal(1, 3)}, op_by_op=8)


# ------------------------------------------------------------------------------------------------ ops that numpy computes
Draw = Callable[[Variable], Variable]


@each(
    "draw",
    [
        lambda h: layers.dropout(h, 0.5),
        lambda h: layers.dropout(h, 0.25, dropout_implementation="upscale_in_train"),
        lambda h: layers.elementwise_add(layers.dropout(h, 0.5, seed=7), layers.dropout(h, 0.1)),
        lambda h: layers.elementwise_add(h, layers.uniform_random([4, 3])),
        lambda h: layers.elementwise_mul(h, layers.gaussian_random([4, 3], seed=5)),
        lambda h: layers.elementwise_add(layers.uniform_random([4, 3], "float32", 0.5, 1.0), layers.scale(h, 0.0)),
    ],
)
@each("trips", [1, 17])
def test_trips_draw_the_numbers_that_ops_draw_one_by_one(draw: Draw, trips: int) -> None:
    def build() -> Sequence[Variable]:
        x, end = fluid.data("x", [4, 3]), layers.fill_constant([1], "int64", trips)
        x.stop_gradient = False
        last = layers.while_loop(
            lambda index, h: layers.less_than(index, end),
            lambda index, h: [index + 1, layers.tanh(draw(h))],
            [layers.fill_constant([1], "int64", 0), layers.assign(x)],
        )[1]
        return [last, *fluid.gradients([layers.mean(layers.square(last))], [x])]

    assert_native(build, {"x": normal(4, 3)}, runs=3)


@each("is_reversed", [False, True])
def test_a_recurrence_with_dropout_is_trained(is_reversed: bool) -> None:
    def build() -> Sequence[Variable]:
        x, first = fluid.data("x", [None, 3, 8]), fluid.data("first", [3, 12])
        x.stop_gradient = False
        rnn = layers.StaticRNN()
        with rnn.step():
            word, before = rnn.step_input(x), rnn.memory(init=first)
            after = layers.fc([layers.dropout(word, 0.3), before], 12, act="tanh")
            rnn.update_memory(before, after)
            rnn.step_output(layers.dropout(after, 0.5, dropout_implementation="upscale_in_train"))
        (recurrent,) = (op for op in fluid.default_main_program().global_block().ops if op.type == "recurrent")
        recurrent.attrs["reverse"] = is_reversed
        loss = layers.mean(layers.square(rnn()))
        return [*fluid.gradients([loss], [x]), *minimized(loss)]

    assert_native(build, {"x": normal(6, 3, 8), "first": normal(3, 12)})


def test_an_op_on_numpy_reads_and_writes_what_passes_from_trip_to_trip() -> None:
    def build() -> Sequence[Variable]:
        x, end = fluid.data("x", [4, 9]), layers.fill_constant([1], "int64", 20)
        x.stop_gradient = False
        results = layers.while_loop(
            lambda index, h, total: layers.less_than(index, end),
            lambda index, h, total: [index + 1, layers.argsort(layers.tanh(total), axis=1)[0], layers.cumsum(h, axis=1)],
            [layers.fill_constant([1], "int64", 0), layers.assign(x), layers.scale(x, 0.5)],
        )
        return [*results, *fluid.gradients([layers.mean(layers.square(results[1]))], [x])]

    assert_native(build, {"x": normal(4, 9)}, tolerance=1e-4)


def test_an_error_of_an_op_on_numpy_names_it() -> None:
    def build() -> Sequence[Variable]:
        x, ids, end = fluid.data("x", [2, 5]), fluid.data("ids", [4, 1], "int64"), layers.fill_constant([1], "int64", 4)

        def body(i: Variable, h: Variable) -> list[Variable]:
            pair = layers.reshape(layers.concat([layers.gather(ids, i), layers.gather(ids, i)], 0), [2, 1])
            picked = ops().take_along_axis(Input=layers.tanh(h), Index=pair, Axis=1)
            return [layers.increment(i, in_place=False), layers.elementwise_add(h, picked)]

        start = layers.fill_constant([1], "int64", 0)
        return layers.while_loop(lambda i, h: layers.less_than(i, end), body, [start, x])  # type: ignore[no-any-return]

    feed = {"x": normal(2, 5), "ids": np.array([[0], [4], [2], [9]])}
    with pytest.raises(fluid.errors.ExecutionError, match="take_along_axis"):
        results_of(build, feed, native=True)


# -------------------------------------------------------------------------------------------------------- recurrences
def recurrence(width: int, act: str = "tanh") -> Callable[[], Variable]:
    def build() -> Variable:
        x, first = fluid.data("x", [None, None, width]), fluid.data("first", [None, width])
        x.stop_gradient = first.stop_gradient = False
        rnn = layers.StaticRNN()
        with rnn.step():
            word, before = rnn.step_input(x), rnn.memory(init=first)
            state = layers.fc([word, before], width, act=act)
            rnn.update_memory(before, state)
            rnn.step_output(state)
            rnn.step_output(layers.scale(word, 2.0))
        states, _ = rnn()
        return layers.mean(layers.square(states))

    return build


@each("steps, rows, width", [(1, 1, 1), (2, 3, 5), (35, 20, 33), (16, 1, 129)])
def test_a_recurrence_is_trained(steps: int, rows: int, width: int) -> None:
    def build() -> Sequence[Variable]:
        loss = recurrence(width)()
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        block = fluid.default_main_program().global_block()
        return [loss, block.var("x@GRAD"), block.var("first@GRAD")]

    assert_native(build, {"x": normal(steps, rows, width), "first": normal(rows, width)}, runs=3, tolerance=1e-4)


def penalized(steps: int) -> list[Variable]:
    """A loss with the squares of a recurrence's gradient by its input: its own gradient is of second order."""
    x = fluid.data("x", [steps, 3, 4])
    x.stop_gradient = False
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 5], batch_ref=word)
        state = layers.fc([word, before], 5, act="tanh")
        rnn.update_memory(before, state)
        rnn.step_output(state)
    score = layers.reduce_mean(layers.square(rnn()))
    (slope,) = fluid.gradients([score], [x])
    return minimized(score + layers.reduce_sum(layers.square(slope))) + [slope]


@each("steps", [1, 2, 9])
def test_derivatives_of_second_order_through_a_recurrence(steps: int) -> None:
    assert_native(lambda: penalized(steps), {"x": normal(steps, 3, 4)})


def test_positions_in_an_array() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [6, 3])
        x.stop_gradient = False
        values, places = layers.create_array("float32"), layers.create_array("int64")
        for number, place in enumerate((3, 0, 5, 1)):
            layers.array_write(integer(place), integer(number), places)
        for number in range(6):
            layers.array_write(layers.reshape(layers.slice(x, [0], [number], [number + 1]), [3]), integer(number), values)
        total, scale = layers.assign(layers.reduce_sum(x, 0)), layers.create_parameter([3], "float32")

        def body(index: Variable) -> None:
            value = layers.array_read(values, layers.array_read(places, index))
            layers.assign(layers.tanh(total) * scale + value, total)

        counted(4, body)
        return [total, *minimized(layers.mean(total)), *fluid.gradients([layers.mean(total)], [x])]

    assert_native(build, {"x": normal(6, 3)})


@each("is_late", [False, True])
def test_a_copy_of_an_array_keeps_its_entries(is_late: bool) -> None:
    """A copy that is read after its array has changed has the former entry; the loop runs op by op then."""

    def build() -> Sequence[Variable]:
        values, total = layers.create_array("float32"), layers.assign(fluid.data("x", [3]))
        layers.array_write(layers.assign(total), integer(0), values)

        def body(index: Variable) -> None:
            copy = layers.assign(values)
            former = None if is_late else layers.array_read(copy, integer(0))
            layers.array_write(layers.tanh(total), integer(0), values)
            former = layers.array_read(copy, integer(0)) if former is None else former
            layers.assign(total * 0.5 + former, total)

        counted(4, body)
        return [total, layers.array_read(values, integer(0))]

    assert_native(build, {"x": normal(3)}, op_by_op=8 if is_late else 0)


def test_one_program_takes_any_number_of_steps() -> None:
    """One executor and one scope: what one number of steps left must not show in the next."""
    main, startup, results = fluid.Program(), fluid.Program(), {}
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = recurrence(7)()
        fluid.append_backward(loss)
    for native in "01":
        with patch.dict("os.environ", FLUID_NATIVE=native):
            executor, scope = fluid.Executor(), fluid.Scope()
            executor.run(startup, scope=scope)
            for steps in (9, 2, 17, 9):
                feed = {"x": normal(steps, 3, 7), "first": normal(3, 7)}
                results.setdefault(native, []).append(executor.run(main, feed, [loss, "x@GRAD", "fc_0.w_1@GRAD"], scope=scope))
    for expected, found in zip(results["0"], results["1"], strict=True):
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_the_last_slice_comes_first() -> None:
    def build() -> Sequence[Variable]:
        loss = recurrence(5, "sigmoid")()
        program = fluid.default_main_program()
        (op,) = [op for op in program.global_block().ops if op.type == "recurrent"]
        op.attrs["reverse"] = True
        return minimized(loss)

    assert_native(build, {"x": normal(12, 4, 5), "first": normal(4, 5)})


def test_an_exchange_of_two_states() -> None:
    """Each state takes the other's value, which the same trip overwrites."""

    def build() -> Sequence[Variable]:
        a, b = fluid.data("a", [3]), fluid.data("b", [3])
        end = layers.fill_constant([1], "int64", 5)
        results = layers.while_loop(
            lambda index, a, b: layers.less_than(index, end),
            lambda index, a, b: [index + 1, layers.scale(b, 0.5), layers.scale(a, 2.0)],
            [layers.fill_constant([1], "int64", 0), layers.assign(a), layers.assign(b)],
        )
        return list(results)

    assert_native(build, {"a": normal(3), "b": normal(3) + 1})


def test_a_block_is_compiled_once_for_each_shape() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = recurrence(6)()
    executor = fluid.Executor()
    executor.run(startup)
    with patch.object(repeated, "compiled_block", side_effect=repeated.compiled_block) as compiled:
        for steps in (3, 5, 8, 3):
            executor.run(main, {"x": normal(steps, 2, 6), "first": normal(2, 6)}, [loss])
    assert compiled.call_count <= 3, "each number of steps has a plan, which compiles its block once"


# ----------------------------------------------------------------------------------------------------------- arrays
def integer(number: int) -> Variable:
    return layers.fill_constant([1], "int64", number)


def counted(trips: int, body: Callable[[Variable], None], start: int = 0, end: Variable | None = None) -> None:
    """Run `body` for each number from `start` on."""
    i, end = integer(start), integer(start + trips) if end is None else end
    below = layers.less_than(i, end)
    loop = layers.While(below)
    with loop.block():
        body(i)
        layers.increment(i, in_place=True)
        layers.less_than(i, end, cond=below)


def states_in_array(trips: int) -> Callable[[], Sequence[Variable]]:
    """A recurrence that passes its state through an array, and its training."""

    def build() -> Sequence[Variable]:
        x, w = fluid.data("x", [5, 7]), layers.create_parameter([7, 7], "float32")
        states = layers.array_write(x, integer(0))
        states.stop_gradient = False

        def body(i: Variable) -> None:
            h = layers.tanh(layers.matmul(layers.array_read(states, i), w))
            layers.array_write(h, layers.increment(i, in_place=False), states)

        counted(trips, body)
        joined, _ = layers.tensor_array_to_tensor(states, 0, use_stack=True)
        return [joined, *minimized(layers.mean(layers.square(joined)))]

    return build


@each("trips", [0, 1, 15, 16, 17, 100])
def test_states_in_an_array(trips: int) -> None:
    assert_native(states_in_array(trips), {"x": normal(5, 7)})


def test_more_trips_than_one_call_has() -> None:
    assert_native(states_in_array(1100), {"x": normal(5, 7)}, tolerance=1e-4)


def test_entries_from_the_last_to_the_first() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [6, 4])
        x.stop_gradient = False
        rows, sums, last = layers.create_array("float32"), layers.create_array("float32"), integer(5)
        for number in range(6):
            layers.array_write(layers.slice(x, [0], [number], [number + 1]), integer(number), rows)
        layers.array_write(layers.fill_constant([1, 4], "float32", 0.0), integer(6), sums)

        def body(i: Variable) -> None:
            at = layers.elementwise_sub(last, i)
            total = layers.elementwise_add(layers.array_read(sums, layers.scale(at, bias=1.0)), layers.array_read(rows, at))
            layers.array_write(layers.tanh(total), at, sums)

        counted(6, body)
        total = layers.array_read(sums, integer(0))
        return [total, *fluid.gradients([layers.mean(total)], [x])]

    assert_native(build, {"x": normal(6, 4)})


def test_an_entry_that_is_read_twice_and_written_twice() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [3])
        x.stop_gradient = False
        array = layers.array_write(x, integer(0))

        def body(i: Variable) -> None:
            twice = layers.array_read(array, i) * layers.array_read(array, i)
            following = layers.increment(i, in_place=False)
            layers.array_write(layers.scale(twice, 5.0), following, array)
            layers.array_write(layers.tanh(layers.array_read(array, following) + twice), following, array)

        counted(4, body)
        last = layers.array_read(array, integer(4))
        return [last, layers.array_length(array), *fluid.gradients([layers.mean(last)], [x])]

    assert_native(build, {"x": normal(3)})


def test_ids_are_checked_in_each_trip() -> None:
    def build() -> Sequence[Variable]:
        ids, table = fluid.data("ids", [4, 3], "int64"), layers.create_parameter([11, 5], "float32")
        states = layers.array_write(layers.fill_constant([3, 5], "float32", 0.0), integer(0))

        def body(i: Variable) -> None:
            words = layers.gather(table, layers.reshape(layers.gather(ids, i), [3]))
            layers.array_write(layers.tanh(layers.array_read(states, i) + words), layers.increment(i, in_place=False), states)

        counted(4, body)
        return minimized(layers.mean(layers.array_read(states, integer(4))))

    ids = np.random.default_rng(0).integers(0, 11, (4, 3))
    assert_native(build, {"ids": ids})
    ids[2, 1] = 11
    with pytest.raises(fluid.errors.ExecutionError, match="index 11 is outside of") as error:
        results_of(build, {"ids": ids}, native=True, runs=1)
    assert "test_loops.py" in str(error.value), "the error names the line of the op"


def test_an_entry_that_is_missing_is_named() -> None:
    def build() -> Sequence[Variable]:
        array = layers.array_write(fluid.data("x", [3]), integer(0))

        def body(i: Variable) -> None:
            layers.array_write(layers.array_read(array, layers.scale(i, 2.0)), layers.scale(i, 2.0, bias=1.0), array)

        counted(3, body)
        return [layers.array_length(array)]

    for native in (True, False):
        with pytest.raises(fluid.errors.ExecutionError, match="entry 2 is read from array_write_0"):
            results_of(build, {"x": normal(3)}, native=native, runs=1)


@each("is_fed", [False, True])
def test_positions_that_meet(is_fed: bool) -> None:
    """One position falls and another one rises, so they are equal in the third trip. The plan's code finds entries by position.

    Where the number of trips is fed, and a gradient reads them, the loop runs op by op from there on.
    """

    def build() -> Sequence[Variable]:
        x, end = fluid.data("x", [3]), integer(4)
        x.stop_gradient = False
        array = layers.create_array("float32")
        for number in range(5):
            layers.array_write(layers.scale(x, number + 1.0), integer(number), array)

        def body(i: Variable) -> None:
            at = layers.elementwise_sub(end, i)
            layers.array_write(layers.tanh(layers.array_read(array, i)), at, array)
            layers.array_write(layers.array_read(array, at) * layers.array_read(array, i), i, array)

        counted(5, body, end=fluid.data("trips", [1], "int64") if is_fed else None)
        joined, _ = layers.tensor_array_to_tensor(array, 0, use_stack=True)
        return [joined, *fluid.gradients([layers.mean(joined)], [x])]

    feed = {"x": normal(3), **({"trips": np.array([5])} if is_fed else {})}
    assert_native(build, feed, op_by_op=2 * (3 + 5) if is_fed else 0)


def test_entries_of_two_shapes_run_op_by_op() -> None:
    def build() -> Sequence[Variable]:
        array = layers.array_write(fluid.data("x", [1, 3]), integer(0))

        def body(i: Variable) -> None:
            entry = layers.array_read(array, i)
            layers.array_write(layers.concat([entry, entry], 0), layers.increment(i, in_place=False), array)

        counted(3, body)
        return [layers.array_read(array, integer(3))]

    assert_native(build, {"x": normal(1, 3)}, op_by_op=6)


def test_fewer_trips_use_the_tables_of_more() -> None:
    def build() -> Sequence[Variable]:
        x, w, end = fluid.data("x", [3, 4]), layers.create_parameter([4, 4], "float32"), fluid.data("end", [1], "int64")
        results = layers.while_loop(
            lambda index, h: layers.less_than(index, end),
            lambda index, h: [index + 1, layers.tanh(layers.matmul(h, w))],
            [layers.fill_constant([1], "int64", 0), x],
        )
        return minimized(layers.mean(results[1]))

    with fresh_programs() as (program, startup), patch.dict(os.environ, FLUID_NATIVE="1"):
        program.random_seed = startup.random_seed = 1
        fetches, executor = build(), fluid.Executor()
        executor.run(startup)
        with patch.object(repeated, "NativeTrips", side_effect=repeated.NativeTrips) as tables:
            for trips in (9, 5, 1, 9, 2):
                executor.run(program, {"x": normal(3, 4), "end": np.array([trips])}, fetches)
    assert tables.call_count == 2  # of the loop, and of its gradient


@each("is_carried", [False, True])
@each("threads", [1, 2])
def test_trips_that_a_value_ends(is_carried: bool, threads: int) -> None:
    """No trip behind the last one leaves anything, or is checked, whatever the numbers of trips of the runs before were."""

    def build() -> Sequence[Variable]:
        ids, end = fluid.data("ids", [None], "int64"), fluid.data("end", [1], "int64")
        table = layers.assign(normal(5, 300))
        index, total = layers.fill_constant([1], "int64", 0), layers.fill_constant([1, 300], "float32", 0.0)
        words = layers.array_write(index, index)
        more = layers.less_than(index, end)
        loop = layers.While(more)
        with loop.block():
            row = layers.gather(table, layers.gather(ids, index))  # the id behind the last is wrong
            layers.assign(total * 0.9 + row, total)
            layers.increment(index, 1)
            layers.array_write(index, index, words)
            if is_carried:
                layers.logical_and(more, layers.less_than(index, end), out=more)
            else:
                layers.less_than(index, end, cond=more)
        return [total, index, layers.array_length(words), more]

    def runs(native: str) -> list[Any]:
        with fresh_programs() as (program, _), patch.dict(os.environ, FLUID_NATIVE=native):
            fetches, executor, results = build(), fluid.Executor(), list[Any]()
            for trips in (3, 40, 1, 16, 17, 2, 1025, 0, 40):
                ids = np.append(np.arange(trips) % 5, [7, -3])
                results.append(executor.run(program, {"ids": ids, "end": np.array([trips])}, fetches))
            return results

    before = fluid.get_num_threads()
    fluid.set_num_threads(threads)
    try:
        with patch.object(Runs, "once", autospec=True, side_effect=Runs.once) as once:
            native_runs = runs("1")
        assert not once.call_count
        for ours, theirs in zip(native_runs, runs("0"), strict=True):
            for value, other in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-5)
    finally:
        fluid.set_num_threads(before)
