"""Loops in the blocks of loops lie in one table with them, and give numpy's numbers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from beside_numpy import assert_alike, results_of
from checked_plans import checked_plans
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.executor.planned import unrolled_loops
from fluid.executor.planned.unrolled_loops import LoopCode
from fluid.ir.program import Variable

Build = Callable[[], Sequence[Variable]]


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def numbers(**values: int) -> dict[str, Any]:
    return {name: np.array([value]) for name, value in values.items()}


def loops_in_table(build: Build, feed: dict[str, Any]) -> int:
    with fresh_programs():
        fetches, executor = list(build()), fluid.Executor()
        executor.run(fluid.default_startup_program())
        return sum(isinstance(item, LoopCode) for item in executor.plan(feed=feed, fetch_list=fetches).instructions)


def assert_one_table(build: Build, feed: dict[str, Any]) -> None:
    """Assert that the outer loop lies in the table, with numpy's results, and the same bits for each number of threads."""
    assert loops_in_table(build, feed) == 1
    assert_alike(build, feed, runs=3)
    one, two = (results_of(build, feed, native=True, runs=3, threads=threads) for threads in (1, 2))
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name], err_msg=name)


# ----------------------------------------------------------------------------------------------------------- kinds
def fed(name: str) -> Variable:
    return fluid.data(name, [1], "int64")


def constant(number: int) -> Variable:
    return layers.fill_constant([1], "int64", number)


def counted(trips: Variable, body: Callable[..., list[Variable]], states: list[Variable]) -> list[Variable]:
    """The states after so many trips."""
    return layers.while_loop(  # type: ignore[no-any-return]
        lambda index, *states: layers.less_than(index, trips),
        lambda index, *states: [index + 1, *body(index, *states)],
        [constant(0), *states],
    )[1:]


def halved_until(most: float, state: Variable) -> Variable:
    """The state, halved until its largest number is small."""
    (last,) = layers.while_loop(
        lambda t: layers.greater_than(
            layers.reduce_max(layers.abs(t), keep_dim=True), layers.fill_constant([1], "float32", most)
        ),
        lambda t: [t * 0.5],
        [state],
    )
    return last  # type: ignore[no-any-return]


def recurrence(state: Variable) -> Variable:
    """The last output of a recurrence over the rows of a state."""
    rnn = layers.StaticRNN()
    zeros, rows = layers.fill_constant([1, int(state.shape[1])], "float32", 0.0), layers.unsqueeze(state, [1])
    with rnn.step():
        row, before = rnn.step_input(rows), rnn.memory(init=zeros)
        after = layers.tanh(row + before)
        rnn.update_memory(before, after)
        rnn.step_output(after)
    return layers.reshape(rnn(), list(state.shape))


INNER: dict[str, Callable[[Variable], Variable]] = {
    "condition": lambda h: halved_until(0.3, h),
    "constant number": lambda h: counted(constant(3), lambda index, t: [layers.tanh(t) + h], [h])[0],
    "fed number": lambda h: counted(fed("inner"), lambda index, t: [layers.tanh(t) + h], [h])[0],
    "recurrence": recurrence,
}
SIZES = [(1, 1), (1, 17), (3, 4), (2, 1025)]


@each("inner", list(INNER))
@each("is_fed", [True, False])
@each("rows, width", SIZES)
def test_an_outer_loop(inner: str, is_fed: bool, rows: int, width: int) -> None:
    def build() -> Sequence[Variable]:
        x, inside = fluid.data("x", [rows, width]), INNER[inner]
        trips = fed("outer") if is_fed else constant(5)
        return counted(trips, lambda index, h: [inside(h) - h * 0.5 + layers.cast(index, "float32")], [x])

    feed = {"x": normal(rows, width), **numbers(inner=3)}
    for outer in (0, 1, 6) if is_fed and (rows, width) == (3, 4) else (5,):
        names = ["x", *(["outer"] if is_fed else []), *(["inner"] if inner == "fed number" else [])]
        assert_one_table(build, {name: value for name, value in {**feed, **numbers(outer=outer)}.items() if name in names})


def two_fed_loops() -> Sequence[Variable]:
    x, (outer, inner) = fluid.data("x", [3, 5]), map(fed, ("outer", "inner"))

    def body(index: Variable, a: Variable, b: Variable) -> list[Variable]:
        c, d = counted(inner, lambda place, c, d: [d, layers.tanh(c + d) + layers.cast(place, "float32")], [a, b])
        return [b + d, c - a]

    return counted(outer, body, [x, x * 2.0])


@each("outer, inner", [(0, 0), (0, 3), (4, 0), (1, 1), (2, 5), (5, 2), (7, 40)])
def test_trips_of_both_loops(outer: int, inner: int) -> None:
    """Odd and even numbers, and none."""
    assert_one_table(two_fed_loops, {"x": normal(3, 5), **numbers(outer=outer, inner=inner)})


def test_each_access_lies_in_its_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    with checked_plans(monkeypatch) as checked:
        assert_alike(two_fed_loops, {"x": normal(3, 5), **numbers(outer=5, inner=2)})
        assert checked.calls > 100


@each("limits", [(4, 2, 3), (1, 0, 2), (0, 1, 1)])
def test_three_loops(limits: tuple[int, int, int]) -> None:
    def build() -> Sequence[Variable]:
        x, ends = fluid.data("x", [2, 7]), [fed(name) for name in "abc"]

        def nest(depth: int, h: Variable) -> Variable:
            if depth == len(ends):
                return layers.tanh(h) + 0.25
            (last,) = counted(ends[depth], lambda index, t: [nest(depth + 1, t) + layers.cast(index, "float32")], [h])
            return last

        return [nest(0, x)]

    assert_one_table(build, {"x": normal(2, 7), **numbers(**dict(zip("abc", limits, strict=True)))})


def test_several_loops_in_a_block_and_a_branch_in_one() -> None:
    def build() -> Sequence[Variable]:
        x, end = fluid.data("x", [3, 5]), fed("end")

        def choose(index: Variable, t: Variable) -> list[Variable]:
            is_small = layers.less_than(layers.mean(t), layers.fill_constant([1], "float32", 0.2))
            return [layers.cond(is_small, lambda: t + 0.5, lambda: layers.tanh(t))]

        def body(index: Variable, h: Variable) -> list[Variable]:
            (first,) = counted(end, choose, [h])
            return [halved_until(0.7, first) + recurrence(h)]

        return counted(constant(4), body, [x])

    assert_one_table(build, {"x": normal(3, 5), **numbers(end=3)})


def test_a_line_search() -> None:
    """The inner loop reads what the outer one has computed, and constants."""

    def build() -> Sequence[Variable]:
        a, x = fluid.data("a", [6, 6]), fluid.data("x", [6, 1])

        def loss(x: Variable) -> Variable:
            return layers.reshape(layers.reduce_sum(layers.square(layers.matmul(a, x))), [1])

        def body(index: Variable, x: Variable) -> list[Variable]:
            slope = layers.matmul(a, layers.matmul(a, x), transpose_x=True)
            step = layers.while_loop(
                lambda t: layers.greater_than(loss(x - t * slope), loss(x) * 0.99),
                lambda t: [t * 0.5],
                [layers.fill_constant([1], "float32", 1.0)],
            )[0]
            return [x - step * slope]

        return counted(constant(6), body, [x])

    assert_one_table(build, {"a": normal(6, 6), "x": normal(6, 1, seed=1)})


def test_more_trips_than_a_table_has_room_for() -> None:
    """Then two trips are repeated, of the inner loop, too."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [2, 3])

        def body(index: Variable, h: Variable) -> list[Variable]:
            return [counted(constant(2000), lambda place, t: [layers.tanh(t * 1.5 + h)], [h])[0]]

        return counted(constant(9), body, [x])

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(unrolled_loops, "_MOST_CALLS", 100)
        assert_one_table(build, {"x": normal(2, 3)})


# ---------------------------------------------------------------------------------------------------------- others
def test_an_outer_loop_that_runs_some_ops_on_numpy() -> None:
    """Its trips are prepared in each run; the inner loop is a part of their records."""

    def build() -> Sequence[Variable]:
        x, end = fluid.data("x", [3, 9]), fed("end")

        def body(index: Variable, h: Variable) -> list[Variable]:
            ordered = layers.argsort(h, axis=1)[0]
            return [halved_until(0.4, ordered + 3.0) + counted(end, lambda place, t: [layers.tanh(t)], [h])[0]]

        return counted(constant(4), body, [x])

    feed = {"x": normal(3, 9), **numbers(end=3)}
    assert loops_in_table(build, feed) == 0
    assert_alike(build, feed, runs=3)


def test_a_gradient_through_both_loops_is_numpys() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [3, 4])
        x.stop_gradient = False
        (h,) = counted(constant(3), lambda index, h: [counted(constant(2), lambda place, t: [layers.tanh(t) * h], [h])[0]], [x])
        return [h, *fluid.gradients([layers.reduce_sum(h)], [x])]

    assert_alike(build, {"x": normal(3, 4)})


def test_code_that_no_trip_changes_keeps_former_values_without_a_trip() -> None:
    """A variable that each trip overwrites with the same value has its former value after no trip."""

    def build() -> Sequence[Variable]:
        x, w, end = fluid.data("x", [3, 3]), fluid.data("w", [3, 3]), fed("end")
        last = layers.assign(x)
        index = constant(0)
        below = layers.less_than(index, end)
        loop = layers.While(below)
        with loop.block():
            layers.assign(layers.matmul(w, w), last)
            layers.increment(index)
            layers.less_than(index, end, cond=below)
        return [last]

    for trips in (0, 1, 2):
        assert_one_table(build, {"x": normal(3, 3), "w": normal(3, 3, seed=1), **numbers(end=trips)})


@each("wrong", [None, 0, 3, 11])
@each("dropout", [0.0, 0.2])
def test_ids_in_an_inner_loop(wrong: int | None, dropout: float) -> None:
    """A wrong id ends all loops with the error of its op, also if the outer loop draws."""
    with fresh_programs():
        x, ids, end = fluid.data("x", [4, 3]), fluid.data("ids", [12], "int64"), fed("end")

        def body(index: Variable, total: Variable) -> list[Variable]:
            total = layers.dropout(total, dropout) if dropout else total + layers.gather(x, layers.gather(ids, index))
            place = index * 3
            return counted(end, lambda i, t: [t + layers.gather(x, layers.gather(ids, place + i))], [total])

        out = counted(constant(4), body, [layers.fill_constant([1, 3], "float32", 0.0)])
        executor, good = fluid.Executor(), np.arange(12) % 4
        feed = {"x": normal(4, 3), "ids": good, **numbers(end=3)}
        (expected,) = executor.run(feed=feed, fetch_list=out)
        if wrong is not None:
            with pytest.raises(fluid.errors.ExecutionError, match=r"gather(.|\n)*4") as raised:
                executor.run(feed={**feed, "ids": np.where(np.arange(12) == wrong, 4, good)}, fetch_list=out)
            assert __file__ in str(raised.value)
        if not dropout:
            np.testing.assert_array_equal(executor.run(feed=feed, fetch_list=out)[0], expected)
            np.testing.assert_allclose(
                expected[0], feed["x"][good].sum(axis=0) + feed["x"][good[:4]].sum(axis=0), rtol=1e-4, atol=1e-5
            )


def test_a_check_of_nan_sees_the_ops_of_an_inner_loop() -> None:
    with fresh_programs():
        x = fluid.data("x", [3])
        (last,) = counted(constant(2), lambda index, h: counted(constant(3), lambda place, t: [layers.log(t)], [h]), [x])
        with pytest.raises(fluid.errors.FluidError, match="log"):
            fluid.Executor().run(feed={"x": -np.ones(3, "float32")}, fetch_list=[last], check_nan=True)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no timers")
def test_an_inner_loop_without_end_can_be_interrupted() -> None:
    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    with fresh_programs():
        x = fluid.data("x", [3])

        def forever(index: Variable, state: Variable) -> list[Variable]:
            limit = layers.fill_constant([1], "float32", 2.0)
            return layers.while_loop(  # type: ignore[no-any-return]
                lambda t: layers.less_than(layers.reduce_max(t, keep_dim=True), limit), lambda t: [layers.tanh(t)], [state]
            )

        last = counted(constant(3), forever, [x])
        executor = fluid.Executor()
        executor.plan(feed={"x": normal(3)}, fetch_list=last)
        former = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 2.0)
            with pytest.raises(KeyboardInterrupt):
                executor.run(feed={"x": normal(3)}, fetch_list=last)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, former)
