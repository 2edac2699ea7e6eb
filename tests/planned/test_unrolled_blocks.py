"""Loops in the blocks of loops are unrolled where gradients are taken: results and gradients are numpy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from beside_numpy import Built
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.ir.program import Variable

Inner = Callable[[Any, Any, Any], Any]


def integer(value: int) -> Any:
    return layers.fill_constant([1], "int64", value)


def while_inside(trips: int, end: Any = None) -> Inner:
    """A ``while`` whose last trip counts; `end` may come from outside of both loops."""

    def inner(x: Any, h: Any, weight: Any) -> Any:
        last = integer(trips) if end is None else end
        return layers.while_loop(
            lambda index, z: layers.less_than(index, last),
            lambda index, z: [index + 1, layers.tanh(layers.matmul(z, weight) + x * layers.cast(index + 1, "float32"))],
            [integer(0), h],
        )[1]

    return inner


def recurrence_inside(steps: int, is_reversed: bool = False) -> Inner:
    """A recurrence over parts of the step's input, whose outputs and last state count."""

    def inner(x: Any, h: Any, weight: Any) -> Any:
        parts = layers.stack([x * (0.5 + number) for number in range(steps)], 0)
        rnn = layers.StaticRNN()
        with rnn.step():
            part, before = rnn.step_input(parts), rnn.memory(init=h)
            after = layers.tanh(layers.matmul(before, weight) + part)
            rnn.update_memory(before, after)
            rnn.step_output(after)
            rnn.step_output(layers.square(after) * part)
        states, squares = rnn()
        if is_reversed:
            block = fluid.default_main_program().current_block()
            next(op for op in reversed(block.ops) if op.type == "recurrent").attrs["reverse"] = True
        return layers.reduce_sum(states, 0) * 0.3 + layers.reduce_mean(squares, 0)

    return inner


def two_inside(x: Any, h: Any, weight: Any) -> Any:
    """Two loops, one behind the other."""
    return recurrence_inside(2)(x, while_inside(3)(x, h, weight), weight)


def three_deep(x: Any, h: Any, weight: Any) -> Any:
    """A loop in a loop in the outer one."""
    inner = while_inside(2)
    return layers.while_loop(
        lambda index, z: layers.less_than(index, integer(2)),
        lambda index, z: [index + 1, inner(x, z, weight) + z * 0.5],
        [integer(0), h],
    )[1]


def in_recurrence(inner: Inner) -> Sequence[Variable]:
    x, weight = fluid.data("x", [3, 2, 4]), layers.create_parameter([4, 4], "float32")
    x.stop_gradient, zeros, rnn = False, layers.fill_constant([2, 4], "float32", 0.1), layers.StaticRNN()
    with rnn.step():
        step, before = rnn.step_input(x), rnn.memory(init=zeros)
        after = inner(step, before, weight) + before * 0.5
        rnn.update_memory(before, after)
        rnn.step_output(after)
    return [rnn(), weight, x]


def in_while(inner: Inner) -> Sequence[Variable]:
    x, weight = fluid.data("x", [3, 2, 4]), layers.create_parameter([4, 4], "float32")
    x.stop_gradient = False
    first, end = x[0], integer(3)

    def body(index: Any, h: Any) -> list[Any]:
        step = layers.reshape(layers.gather(x, index), [2, 4])
        return [index + 1, inner(step, h, weight) + h * 0.5]

    return [layers.while_loop(lambda index, h: layers.less_than(index, end), body, [integer(0), first])[1], weight, x]


def in_branches(inner: Inner) -> Sequence[Variable]:
    """In three nested branches that all run. The outermost calls Python, so it runs op by op."""
    x, weight = fluid.data("x", [3, 2, 4]), layers.create_parameter([4, 4], "float32")
    x.stop_gradient = False
    first, zero = x[0], layers.reduce_sum(x) * 0.0

    def branch(depth: int) -> Any:
        if not depth:
            return inner(first, first, weight) + first * 0.5
        return layers.cond(zero > depth, lambda: layers.tanh(first), lambda: branch(depth - 1))

    def outermost() -> Any:
        layers.py_func(lambda value: None, x=first, out=None)
        return branch(2) * 0.5

    return [layers.cond(zero > 3, lambda: layers.tanh(first), outermost), weight, x]


INNER: dict[str, Callable[[], Inner]] = {
    **{f"while of {trips}": lambda trips=trips: while_inside(trips) for trips in (0, 1, 2, 5)},
    "while with an end from outside": lambda: while_inside(3, integer(3)),
    "recurrence of 1": lambda: recurrence_inside(1),
    "recurrence of 3": lambda: recurrence_inside(3),
    "recurrence of 3, reversed": lambda: recurrence_inside(3, is_reversed=True),
    "two": lambda: two_inside,
    "three deep": lambda: three_deep,
}


@each("inner", INNER)
@each("outer", [in_recurrence, in_while, in_branches])
def test_gradients_through_loops_in_loops(inner: str, outer: Callable[[Inner], Sequence[Variable]]) -> None:
    feed = {"x": np.random.default_rng(0).standard_normal((3, 2, 4)).astype("float32")}

    def build() -> Sequence[Variable]:
        result, weight, x = outer(INNER[inner]())
        return [result, *fluid.gradients(layers.reduce_sum(layers.square(result)), [weight, x])]

    with fresh_programs():
        built = Built(build)
        built.assert_alike(feed)
        if inner != "while of 0" and outer is not in_branches:
            assert "(step by step)" not in built.plan(feed)


@each("kind", ["a draw", "trips by value"])
def test_loops_that_are_not_unrolled_run_as_before(kind: str) -> None:
    feed = {"x": np.random.default_rng(0).standard_normal((3, 2, 4)).astype("float32")}

    def inner(x: Any, h: Any, weight: Any) -> Any:
        def body(index: Any, z: Any) -> list[Any]:
            z = layers.tanh(layers.matmul(z, weight) + x)
            return [index + 1, layers.dropout(z, 0.5) if kind == "a draw" else z]

        def goes_on(index: Any, z: Any) -> Any:
            is_within = layers.less_than(index, integer(3))
            is_small = layers.less_than(layers.reduce_max(z), layers.fill_constant([1], "float32", 0.9))
            return is_within if kind == "a draw" else layers.logical_and(is_within, is_small)

        return layers.while_loop(goes_on, body, [integer(0), h])[1]

    def build() -> Sequence[Variable]:
        result, weight, x = in_recurrence(inner)
        return [result, *fluid.gradients(layers.reduce_sum(layers.square(result)), [weight, x])]

    with fresh_programs():
        Built(build).assert_alike(feed)


def test_second_derivatives_through_a_loop_in_a_loop() -> None:
    feed = {"x": np.random.default_rng(0).standard_normal((3, 2, 4)).astype("float32")}

    def build() -> Sequence[Variable]:
        result, weight, x = in_while(while_inside(2))
        (slope,) = fluid.gradients(layers.reduce_sum(layers.square(result)), [x])
        return [result, slope, *fluid.gradients(layers.reduce_sum(layers.square(slope)), [weight, x])]

    with fresh_programs():
        Built(build).assert_alike(feed, tolerance=1e-4)
