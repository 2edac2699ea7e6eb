"""Loops whose blocks make values of a size that depends on values, but is the same in each trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from beside_numpy import assert_same_error
from checks import each
from control_flow_programs import integer, repeat
from test_indexed_arrays import assert_native, minimized, normal

import fluid
from fluid import layers
from fluid.ir.program import Variable

Numbers = Callable[[Variable, Variable], Variable]


def numbers_up_to(index: Variable, end: Variable) -> Variable:
    return layers.range(integer(0), end * 1, integer(1), "int64")


def numbers_of_a_sequence(index: Variable, end: Variable) -> Variable:
    return layers.cast(layers.linspace(integer(0), end - 1, layers.cast(end, "int32"), "float32"), "int64")


def filled(index: Variable, end: Variable) -> Variable:
    return layers.fill_constant([end], "int64", 2)


def numbers_of_the_trip(index: Variable, end: Variable) -> Variable:
    """A range of equal length in each trip. Its bounds change, so it cannot move out of the loop."""
    return layers.range(index, end + index, integer(1), "int64")


def marked(numbers: Numbers, trips: int, has_branch: bool = False) -> Callable[[], Sequence[Variable]]:
    """A recurrence that weighs one column more than others in each trip."""

    def build() -> Sequence[Variable]:
        x, end = fluid.data("x", [None, None]), fluid.data("end", [1], "int64")
        w = layers.create_parameter([1], "float32", default_initializer=fluid.initializer.Constant(0.7))
        state = x * 1.0

        def body(index: Variable) -> None:
            places = numbers(index, end)
            mark = layers.cast(
                layers.equal(places, layers.elementwise_mul(index, layers.cast(places * 0 + 1, "int64"))), "float32"
            )
            if has_branch:
                is_first = layers.equal(index, integer(0))
                mark = layers.cond(is_first, lambda: layers.cast(places, "float32"), lambda: mark * 2.0)
            layers.assign(layers.tanh(layers.elementwise_add(state * w, mark, axis=1)), state)

        repeat(integer(trips), body)
        return [state, *minimized(layers.mean(state * state))]

    return build


def feed_of(end: int = 4) -> dict[str, Any]:
    return {"x": normal(3, end), "end": np.int64([end])}


@each("numbers", [numbers_up_to, numbers_of_a_sequence, filled])
@each("trips", [0, 1, 5])
@each("has_branch", [False, True])
def test_a_size_that_stays_the_same(numbers: Numbers, trips: int, has_branch: bool) -> None:
    assert_native(marked(numbers, trips, has_branch), feed_of())


def test_a_size_that_a_trip_decides_runs_op_by_op() -> None:
    """Both runs, with five trips in each direction."""
    assert_native(marked(numbers_of_the_trip, 5), feed_of(), op_by_op=20)


def test_an_op_that_fails_before_the_loop_is_named_where_it_stands() -> None:
    def build() -> Sequence[Variable]:
        state, step = fluid.data("x", [3]) * 1.0, fluid.data("step", [1], "int64")

        def body(index: Variable) -> None:
            places = layers.range(integer(0), integer(3), step * 1, "int64")
            layers.assign(state + layers.cast(places, "float32"), state)

        repeat(fluid.data("trips", [1], "int64"), body)
        return [state]

    feed = {"x": normal(3), "step": np.int64([0]), "trips": np.int64([2])}
    assert_same_error(build, feed)
    assert_native(build, feed | {"trips": np.int64([0])})
    assert_native(build, feed | {"step": np.int64([1])})
