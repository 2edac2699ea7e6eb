"""Loops whose trips lie in the table of a plan: they give the bits that trips prepared in each run give."""

from __future__ import annotations

import gc
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from beside_numpy import assert_alike, results_of
from checks import each, fresh_programs
from harness import TARGETS, run, set_limits

import fluid
from fluid import layers
from fluid.executor.native.copying import copy_call, write_copied
from fluid.executor.planned import unrolled_loops
from fluid.executor.planned.unrolled_loops import LoopCode
from fluid.ir.program import Variable

Build = Callable[[], Sequence[Variable]]


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def unrolled_in(build: Build, feed: dict[str, Any]) -> list[Any]:
    """The loops that lie in the table of a program's plan."""
    with fresh_programs():
        fetches = list(build())
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        plan: Any = executor.plan(feed=feed, fetch_list=fetches)
        return [item for item in plan.instructions if isinstance(item, LoopCode)]


def assert_same_bits(build: Build, feed: dict[str, Any], loops: int) -> None:
    """Assert that so many loops lie in tables, and that the results are near numpy's and have the bits of other native code."""
    assert len(unrolled_in(build, feed)) == loops
    for threads in (1, 2):
        results = results_of(build, feed, native=True, runs=3, threads=threads)
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(unrolled_loops, "_MOST_CALLS", 0)
            expected = results_of(build, feed, native=True, runs=3, threads=threads)
        for name, value in expected.items():
            np.testing.assert_array_equal(results[name], value, err_msg=f"{name}, {threads} threads")
    assert_alike(build, feed, runs=3)


def trained(outputs: Sequence[Variable]) -> list[Variable]:
    loss = layers.mean(outputs[0])
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return [loss, *outputs]


# ------------------------------------------------------------------------------------------------------------ copies
@each("size", [1, 7, 16, 63, 64, 65, 100, 4095, 4096, 4097, 12_289, 140_001])
def test_bytes_are_copied_and_cleared(size: int) -> None:
    source = np.random.default_rng(size).integers(1, 256, size, dtype=np.uint8)
    for target in TARGETS:

        def body(f: Any, pointers: Any, share: Any, target: Any = target) -> None:
            write_copied(f, pointers, size, share, target)

        copied, _ = run(body, [np.zeros_like(source), source], target)
        np.testing.assert_array_equal(copied, source)
        (cleared,) = run(body, [source], target)
        assert not cleared.any()
        call, writer = copy_call(("to", 0), ("from", 0), size, target)
        assert call.is_serial == (size <= target.limits.serial)
        assert [tuple(footprint) for footprint in writer("copying").footprints] == [(0, size)] * 2


# ------------------------------------------------------------------------------------------------------------- loops
def recurrence(width: int, is_reversed: bool = False, is_trained: bool = True, states: int = 2) -> Build:
    """A recurrence with some states. One is no output: predictions keep two buffers of it."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [-1, -1, width])
        rnn = layers.StaticRNN()
        with rnn.step():
            word = rnn.step_input(x)
            before = [rnn.memory(shape=[-1, width], batch_ref=x, ref_batch_dim_idx=1, init_value=0.1) for _ in range(states)]
            after = [layers.fc([word, before[0]], width, act="tanh")]
            after += [layers.elementwise_add(state, layers.sigmoid(after[0])) for state in before[1:]]
            for old, new in zip(before, after, strict=True):
                rnn.update_memory(old, new)
            rnn.step_output(layers.elementwise_mul(after[0], after[-1]))
        out = rnn()
        if is_reversed:
            for op in fluid.default_main_program().global_block().ops:
                if op.type == "recurrent":
                    op.attrs["reverse"] = True
        return trained([out]) if is_trained else [out]

    return build


@each("is_trained", [True, False])
@each("is_reversed", [False, True])
@each("shape", [(1, 2, 3), (2, 1, 7), (7, 5, 33), (20, 9, 64)])
def test_a_recurrence(shape: tuple[int, int, int], is_reversed: bool, is_trained: bool) -> None:
    build = recurrence(shape[-1], is_reversed, is_trained)
    assert_same_bits(build, {"x": normal(*shape)}, loops=1 + is_trained)


def test_tiny_limits() -> None:
    with pytest.MonkeyPatch.context() as patches:
        set_limits(patches, serial=1, part=8, long_row=4, small_core=1)
        assert_same_bits(recurrence(9), {"x": normal(5, 3, 9)}, loops=2)


@each("trips", [1, 2, 3, 8])
def test_two_buffers_take_turns(trips: int) -> None:
    """The states of a loop that is not trained exchange their places, too."""

    def build() -> Sequence[Variable]:
        x, y = fluid.data("x", [5, 7]), fluid.data("y", [5, 7])
        index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", trips)
        return layers.while_loop(  # type: ignore[no-any-return]
            lambda index, a, b: layers.less_than(index, end),
            lambda index, a, b: [index + 1, b, layers.tanh(a + b)],
            [index, x, y],
        )

    assert_same_bits(build, {"x": normal(5, 7), "y": normal(5, 7, seed=1)}, loops=1)


def test_code_that_no_trip_changes_runs_in_the_first_trip_alone() -> None:
    def build() -> Sequence[Variable]:
        x, w = fluid.data("x", [5, 7]), layers.create_parameter([7, 7], "float32")
        index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 6)
        h = layers.while_loop(
            lambda index, h: layers.less_than(index, end),
            lambda index, h: [index + 1, layers.tanh(layers.matmul(h, layers.matmul(w, w)))],
            [index, x],
        )[1]
        return [h]

    assert_same_bits(build, {"x": normal(5, 7)}, loops=1)
    (forward,) = unrolled_in(build, {"x": normal(5, 7)})
    counts = Counter(call.kernel for call in forward.calls if "bytes" not in call.kernel)
    assert sorted(counts.values())[:2] == [1, 6], "the product of weights is computed once"


def update_in_loop(end: Variable) -> Sequence[Variable]:
    """A loop that updates a variable of the scope in each trip, up to a number of trips."""
    x = fluid.data("x", [4, 3])
    total = layers.create_global_var([4, 3], 0.5, "float32", persistable=True)
    index = layers.fill_constant([1], "int64", 0)
    below = layers.less_than(index, end)
    loop = layers.While(below)
    with loop.block():
        layers.assign(layers.tanh(total + x), total)
        layers.increment(index)
        layers.less_than(index, end, cond=below)
    return [total * 2.0]


def test_a_loop_updates_a_variable_of_the_scope() -> None:
    def build() -> Sequence[Variable]:
        return update_in_loop(layers.fill_constant([1], "int64", 5))

    assert_same_bits(build, {"x": normal(4, 3)}, loops=1)


def test_branches_in_a_loop() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [6, 4, 5])
        rnn = layers.StaticRNN()
        with rnn.step():
            word, before = rnn.step_input(x), rnn.memory(shape=[-1, 5], batch_ref=x, ref_batch_dim_idx=1)
            h = layers.fc([word, before], 5, act="tanh")
            is_small = layers.less_than(layers.mean(word), layers.fill_constant([1], "float32", 0.0))
            h = layers.cond(is_small, lambda: layers.scale(h, 0.5), lambda: layers.sigmoid(h))
            rnn.update_memory(before, h)
            rnn.step_output(h)
        return trained([rnn()])

    assert_same_bits(build, {"x": normal(6, 4, 5)}, loops=2)


def test_gradients_of_second_order() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [5, 4, 3])
        x.stop_gradient = False
        rnn = layers.StaticRNN()
        with rnn.step():
            word, before = rnn.step_input(x), rnn.memory(shape=[-1, 3], batch_ref=x, ref_batch_dim_idx=1)
            h = layers.fc([word, before], 3, act="tanh")
            rnn.update_memory(before, h)
            rnn.step_output(h)
        (first,) = fluid.gradients([layers.reduce_sum(layers.square(rnn()))], [x])
        return trained([layers.square(first)])

    assert_same_bits(build, {"x": normal(5, 4, 3)}, loops=len(unrolled_in(build, {"x": normal(5, 4, 3)})))


@each(
    "draw",
    [
        lambda h: layers.dropout(h, 0.3),
        lambda h: h + layers.gaussian_random([4, 8]) * layers.uniform_random([8], seed=3),
        lambda h: h + layers.uniform_random_batch_size_like(h, [-1, 8]) + layers.dropout(layers.dropout(h, 0.1), 0.2),
    ],
)
@each("is_reversed", [False, True])
def test_a_loop_draws_the_numbers_of_all_trips_first(draw: Callable[[Variable], Variable], is_reversed: bool) -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [5, 4, 8])
        rnn = layers.StaticRNN()
        with rnn.step():
            word, before = rnn.step_input(x), rnn.memory(shape=[-1, 8], batch_ref=x, ref_batch_dim_idx=1)
            h = draw(layers.fc([word, before], 8, act="tanh"))
            rnn.update_memory(before, h)
            rnn.step_output(h)
        (recurrent,) = (op for op in fluid.default_main_program().global_block().ops if op.type == "recurrent")
        recurrent.attrs["reverse"] = is_reversed
        return trained([rnn()])

    assert_same_bits(build, {"x": normal(5, 4, 8)}, loops=2)


@each("taken", [False, True])
def test_a_branch_that_draws_does_so_in_trips_that_take_it(taken: bool) -> None:
    def build() -> Sequence[Variable]:
        x, end = fluid.data("x", [4, 8]), layers.fill_constant([1], "int64", 6)

        def body(index: Variable, h: Variable) -> list[Variable]:
            is_high = layers.greater_than(
                layers.reduce_sum(layers.dropout(h, 0.1), keep_dim=True), x[:1, :1] * 0.0 + float(taken)
            )
            h = layers.cond(is_high, lambda: layers.dropout(h, 0.5), lambda: layers.tanh(h) + layers.dropout(h, 0.2))
            return [index + 1, h]

        first = [layers.fill_constant([1], "int64", 0), layers.assign(x)]
        return layers.while_loop(lambda index, h: layers.less_than(index, end), body, first)[1:]

    assert_alike(build, {"x": normal(4, 8)}, runs=3)


def test_more_calls_than_a_table_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = {"x": normal(12, 3, 5)}
    forward, backward = unrolled_in(recurrence(5), feed)
    for most, count in ((len(backward.calls), 2), (len(forward.calls) // 2, 0)):
        monkeypatch.setattr(unrolled_loops, "_MOST_CALLS", most)
        assert len(unrolled_in(recurrence(5), feed)) == count


def test_runs_with_other_lengths_and_weights_of_another_scope() -> None:
    """One program, several plans; a feed that lies elsewhere in each run; another scope."""
    with fresh_programs():
        out = recurrence(6, is_trained=False)()
        main, executor = fluid.default_main_program(), fluid.Executor()
        expected: dict[int, Any] = {}
        for number in range(2):
            scope = fluid.Scope()
            with fluid.scope_guard(scope):
                executor.run(fluid.default_startup_program())
                for name, var in main.global_block().vars.items():
                    if var.persistable:
                        scope.array(name)[...] = 0.1 * (number + 1)
                for steps in (3, 7, 3, 1, 7):
                    (value,) = executor.run(main, {"x": normal(steps, 2, 6).copy()}, out)
                    key = 100 * number + steps
                    np.testing.assert_array_equal(value, expected.setdefault(key, value))
            gc.collect()
        assert np.abs(expected[3] - expected[103]).max() > 1e-3


# --------------------------------------------------------------------------------------------------------------- ids
def reading(vocabulary: int, is_trained: bool = True) -> Build:
    """Embeddings that a recurrence looks up by fed ids, beside lookups before and behind it."""

    def build() -> Sequence[Variable]:
        ids, first, last = (
            fluid.data(name, shape, "int64") for name, shape in (("ids", [4, 3, 1]), ("first", [3, 1]), ("last", [3, 1]))
        )

        def lookup(numbers: Variable) -> Variable:
            return layers.reshape(layers.embedding(numbers, [vocabulary, 5], param_attr="table"), [3, 5])

        before, rnn = lookup(first), layers.StaticRNN()
        with rnn.step():
            state = rnn.memory(init=before)
            rnn.update_memory(state, layers.fc([lookup(rnn.step_input(ids)), state], 5, act="tanh"))
            rnn.step_output(state)
        out = layers.elementwise_add(rnn(), lookup(last))
        return trained([out]) if is_trained else [out]

    return build


def ids_below(vocabulary: int) -> dict[str, Any]:
    rng = np.random.default_rng(vocabulary)
    return {name: rng.integers(0, vocabulary, (*steps, 3, 1)) for name, steps in (("ids", (4,)), ("first", ()), ("last", ()))}


@each("is_trained", [True, False])
def test_ids_are_checked_in_each_trip(is_trained: bool) -> None:
    assert_same_bits(reading(11, is_trained), ids_below(11), loops=1 + is_trained)


@each("name, place", [("first", (1, 0)), ("ids", (0, 2, 0)), ("ids", (3, 0, 0)), ("last", (2, 0))])
@each("number", [-1, 11, 1 << 40])
def test_wrong_ids_give_the_error_of_steps_and_change_nothing(name: str, place: tuple[int, ...], number: int) -> None:
    good = ids_below(11)
    bad = {**good, name: good[name].copy()}
    bad[name][place] = number

    def error_and_result() -> tuple[str, Any]:
        with fresh_programs():
            fetches = list(reading(11)())
            executor = fluid.Executor()
            executor.run(fluid.default_startup_program())
            executor.run(feed=good, fetch_list=fetches)
            with pytest.raises(fluid.errors.ExecutionError) as raised:
                executor.run(feed=bad, fetch_list=fetches)
            (result,) = executor.run(feed=good, fetch_list=fetches[:1])
            return str(raised.value), result

    error, result = error_and_result()
    assert str(number) in error
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(unrolled_loops, "_MOST_CALLS", 0)
        expected_error, expected = error_and_result()
    assert error == expected_error
    np.testing.assert_array_equal(result, expected)


def test_rows_by_the_number_of_the_trip() -> None:
    """A loop gathers a row in each trip; its checks need no Python time."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [6, 4])
        index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 6)
        h = layers.while_loop(
            lambda index, h: layers.less_than(index, end),
            lambda index, h: [index + 1, layers.fc([layers.gather(x, index), h], 4, act="tanh")],
            [index, layers.fill_constant([1, 4], "float32", 0.0)],
        )[1]
        return trained([h])

    assert_same_bits(build, {"x": normal(6, 4)}, loops=2)


# -------------------------------------------------------------------------------------------------------- conditions
def until(end: Variable, body: Callable[..., list[Variable]], states: list[Variable]) -> list[Variable]:
    """The states after `end` trips, a number that only a run knows."""
    index = layers.fill_constant([1], "int64", 0)
    return layers.while_loop(  # type: ignore[no-any-return]
        lambda index, *states: layers.less_than(index, end), lambda index, *states: [index + 1, *body(*states)], [index, *states]
    )


@each("trips", [0, 1, 2, 33, 66])
@each("width", [3, 700])
def test_a_fed_number_of_trips(trips: int, width: int) -> None:
    """Even and odd numbers of trips are right, with one thread and with two."""

    def build() -> Sequence[Variable]:
        x, y, end = fluid.data("x", [40, width]), fluid.data("y", [40, width]), fluid.data("end", [1], "int64")
        return until(end, lambda a, b: [b, layers.tanh(a + b)], [x, y])

    feed = {"x": normal(40, width), "y": normal(40, width, seed=1), "end": np.array([trips])}
    assert_same_bits(build, feed, loops=1)


def test_other_numbers_of_trips_in_each_run() -> None:
    """Nothing of a run is left behind for the next."""
    with fresh_programs():
        x, end = fluid.data("x", [5]), fluid.data("end", [1], "int64")
        index, last = until(end, lambda state: [state * 2.0], [x])
        executor = fluid.Executor()
        for trips in (3, 0, 4, 1, 70, 33, 2, 0, 5):
            feed = {"x": normal(5), "end": np.array([trips])}
            count, result = executor.run(feed=feed, fetch_list=[index, last])
            assert count == trips
            np.testing.assert_array_equal(result, feed["x"] * np.float32(2.0) ** trips)


def test_a_condition_on_values_beside_branches_and_code_that_no_trip_changes() -> None:
    def build() -> Sequence[Variable]:
        x, w, most = fluid.data("x", [6, 5]), layers.create_parameter([5, 5], "float32"), fluid.data("most", [1])

        def body(h: Variable, count: Variable) -> list[Variable]:
            is_small = layers.less_than(layers.mean(h), layers.fill_constant([1], "float32", 0.5))
            h = layers.cond(is_small, lambda: h + 0.25, lambda: layers.scale(h, 1.5))
            return [h + layers.reduce_mean(layers.square(layers.matmul(w, w))), count + 1]

        zero = layers.fill_constant([1], "int64", 0)
        return layers.while_loop(  # type: ignore[no-any-return]
            lambda h, count: layers.less_than(layers.reduce_max(h, keep_dim=False), most), body, [x, zero]
        )

    for most in (-9.0, 3.0, 50.0):
        assert_same_bits(build, {"x": normal(6, 5), "most": np.array([most], "float32")}, loops=1)


def test_a_condition_on_values_updates_a_variable_of_the_scope() -> None:
    def build() -> Sequence[Variable]:
        return update_in_loop(fluid.data("end", [1], "int64"))

    for trips in (0, 1, 4):
        assert_same_bits(build, {"x": normal(4, 3), "end": np.array([trips])}, loops=1)


@each("trips, wrong", [(5, 5), (5, 4), (5, 0), (40, 37), (1, 0)])
def test_a_wrong_id_in_a_trip(trips: int, wrong: int) -> None:
    """It ends the loop with the error of the op; a trip that does not run may have any id."""
    with fresh_programs():
        x, ids, end = fluid.data("x", [4, 3]), fluid.data("ids", [64], "int64"), fluid.data("end", [1], "int64")
        index, total = layers.fill_constant([1], "int64", 0), layers.fill_constant([1, 3], "float32", 0.0)
        _, total = layers.while_loop(
            lambda index, total: layers.less_than(index, end),
            lambda index, total: [index + 1, total + layers.gather(x, layers.gather(ids, index))],
            [index, total],
        )
        executor, numbers = fluid.Executor(), np.arange(64) % 4
        feed = {"x": normal(4, 3), "ids": numbers, "end": np.array([trips])}
        (expected,) = executor.run(feed=feed, fetch_list=[total])
        np.testing.assert_allclose(expected[0], feed["x"][numbers[:trips]].sum(axis=0), rtol=1e-5)
        bad = {**feed, "ids": np.where(np.arange(64) == wrong, 4, numbers)}
        if wrong < trips:
            with pytest.raises(fluid.errors.ExecutionError, match="gather"):
                executor.run(feed=bad, fetch_list=[total])
        else:
            executor.run(feed=bad, fetch_list=[total])
        (again,) = executor.run(feed=feed, fetch_list=[total])
        np.testing.assert_array_equal(again, expected)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no timers")
def test_a_loop_without_end_can_be_interrupted() -> None:
    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    with fresh_programs():
        x = fluid.data("x", [3])
        (last,) = layers.while_loop(
            lambda state: layers.less_than(layers.reduce_max(state), layers.fill_constant([1], "float32", 2.0)),
            lambda state: [layers.tanh(state)],
            [x],
        )
        former = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 2.0)
            with pytest.raises(KeyboardInterrupt):
                fluid.Executor().run(feed={"x": normal(3)}, fetch_list=[last])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, former)
