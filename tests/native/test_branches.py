"""Branches as part of native code: in plans, in blocks of loops, in each other, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from beside_numpy import assert_alike, results_of
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.executor.native.branches import BranchMark
from fluid.executor.native.instructions import BRANCH, END_BRANCH, IF_FALSE, IF_TRUE, SERIAL, UNLESS, KernelCall
from fluid.executor.native.tables import flags_of, skips_of
from fluid.executor.stepwise.control import Runs
from fluid.executor.stepwise.repeated import Loop
from fluid.ir.program import Variable
from fluid.values.unchanging import unchanging

Build = Callable[[], Sequence[Variable]]


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def number(value: float, dtype: str = "float32") -> Variable:
    return layers.fill_constant([1], dtype, value)


def is_below(x: Variable, limit: float) -> Variable:
    return layers.less_than(layers.mean(x), number(limit))


def minimized(loss: Variable) -> list[Variable]:
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss]


def assert_native(build: Build, feed: dict[str, Any], runs: int = 2, op_by_op: int = 0, tolerance: float = 1e-5) -> None:
    """Assert that native code agrees with numpy, and that so many runs of blocks took place op by op."""
    with patch.object(Runs, "once", autospec=True, side_effect=Runs.once) as once:
        results_of(build, feed, native=True, runs=runs)
    assert once.call_count == op_by_op
    assert_alike(build, feed, runs, tolerance)


# -------------------------------------------------------------------------------------------------------------- plans
@each("limit", [100.0, -100.0])
@each("rows, width", [(1, 1), (4, 3), (257, 130)])
def test_a_branch_is_trained(limit: float, rows: int, width: int) -> None:
    def build() -> Sequence[Variable]:
        x, w = fluid.data("x", [rows, width]), layers.create_parameter([width, width], "float32")
        y = layers.matmul(x, w)
        z = layers.cond(is_below(y, limit), lambda: layers.tanh(layers.matmul(y, w)), lambda: layers.scale(y, 2.0))
        return [z, *minimized(layers.mean(layers.square(z)))]

    assert_native(build, {"x": normal(rows, width)}, tolerance=2e-5)


@each("limit", [100.0, -100.0])
def test_a_switch_overwrites(limit: float) -> None:
    def build() -> Sequence[Variable]:
        x, w = fluid.data("x", [4, 3]), layers.create_parameter([3, 3], "float32")
        h = layers.assign(layers.tanh(layers.matmul(x, w)))
        with layers.Switch() as switch:
            with switch.case(is_below(h, limit)):
                layers.assign(layers.scale(h, 3.0), h)
            with switch.default():
                layers.assign(layers.square(h), h)
        return [h, *minimized(layers.mean(h))]

    assert_native(build, {"x": normal(4, 3)})


@each("first, second", [(5.0, 5.0), (-5.0, 5.0), (-5.0, -5.0)])
def test_cases_of_cases(first: float, second: float) -> None:
    def build() -> Sequence[Variable]:
        x, w = fluid.data("x", [8, 4]), layers.create_parameter([4, 4], "float32")
        ways = [
            (is_below(x, first), lambda: layers.matmul(x, w)),
            (is_below(x, second), lambda: layers.tanh(layers.matmul(x, w))),
        ]
        way = layers.cast(is_below(x, first), "int64")
        chosen = layers.switch_case(way, {0: lambda: layers.matmul(x, w), 1: lambda: layers.exp(x * w[0])}, lambda: x)
        z = layers.case(ways, lambda: x * 2.0)
        return [z, chosen, *minimized(layers.mean(z) + layers.mean(chosen))]

    assert_native(build, {"x": normal(8, 4)})


def test_gradients_are_summed_over_steps() -> None:
    """Every third step updates the parameters by Adam, in a branch, and sets the sums to zero."""

    def build() -> Sequence[Variable]:
        loss = layers.mean(layers.square(layers.fc(fluid.data("x", [8, 4]), 3)))
        pairs = fluid.append_backward(loss)
        sums = [layers.create_global_var(list(p.shape), 0.0, "float32", persistable=True) for p, _ in pairs]
        step = layers.create_global_var([1], 0.0, "float32", persistable=True)
        for total, (_, gradient) in zip(sums, pairs, strict=True):
            layers.assign(total + gradient, total)
        layers.assign(step + 1.0, step)
        adam = fluid.optimizer.Adam(0.1)

        def update() -> None:
            adam.apply_gradients([(p, total) for (p, _), total in zip(pairs, sums, strict=True)])
            for total in (*sums, step):
                layers.assign(layers.zeros_like(total), total)

        layers.cond(layers.greater_equal(step, number(3.0)), update, None)
        return [loss]

    assert_native(build, {"x": normal(8, 4)}, runs=7)


def test_a_learning_rate_falls_in_pieces() -> None:
    def build() -> Sequence[Variable]:
        loss = layers.mean(layers.square(layers.fc(fluid.data("x", [8, 4]), 3)))
        fluid.optimizer.SGD(layers.piecewise_decay([2, 4], [0.5, 0.25, 0.125])).minimize(loss)
        return [loss]

    assert_native(build, {"x": normal(8, 4)}, runs=6)


def test_a_branch_with_an_op_on_numpy_runs_step_by_step() -> None:
    """So does its gradient, and the other branch, which shares a choice with it."""

    def build() -> Sequence[Variable]:
        x, w = fluid.data("x", [4, 3]), layers.create_parameter([3, 9], "float32")
        y = layers.matmul(x, w)
        z = layers.cond(is_below(y, 9.0), lambda: layers.argsort(y, axis=1)[0], lambda: layers.scale(y, 2.0))
        return [z, *minimized(layers.mean(z))]

    assert_native(build, {"x": normal(4, 3)}, op_by_op=4)


def test_a_variable_that_no_branch_makes_is_named() -> None:
    def build() -> Sequence[Variable]:
        x, out = fluid.data("x", [3]), layers.create_tensor("float32")
        with layers.Switch() as switch, switch.case(is_below(x, -9.0)):
            layers.assign(layers.tanh(x), out)
        return [layers.tanh(layers.exp(x)), out]

    with pytest.raises(fluid.errors.ExecutionError, match="create_tensor"):
        results_of(build, {"x": normal(3)}, native=True)


@each("limit, inner", [(100.0, 100.0), (-100.0, 100.0), (100.0, -100.0)])
def test_a_variable_that_only_branches_within_a_branch_read(limit: float, inner: float) -> None:
    """One branch within overwrites it, the next one reads it, and nothing reads it later."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [5, 7])
        y, is_small = x * 1.0, is_below(x, inner)

        def overwrite() -> None:
            layers.assign(layers.tanh(y), y)

        def outer() -> Variable:
            layers.cond(is_small, overwrite, None)
            return layers.cond(is_small, lambda: layers.relu(y), lambda: y * 3.0)

        return [layers.cond(is_below(x, limit), outer, lambda: x * 2.0)]

    assert_native(build, {"x": normal(5, 7)})


def test_a_branch_overwrites_its_condition() -> None:
    """The flag is a variable of the scope: true in the first run, false in the next ones."""

    def build() -> Sequence[Variable]:
        x, flag = fluid.data("x", [3]), layers.create_global_var([1], 1.0, "bool", persistable=True)
        h = layers.assign(layers.tanh(x))
        with layers.Switch() as switch, switch.case(flag):
            layers.assign(layers.scale(h, 2.0), h)
            layers.assign(layers.less_than(number(1.0), number(0.0)), flag)
        return [h]

    for runs in (1, 2):
        assert_native(build, {"x": normal(3)}, runs=runs)


@each("limit", [9.0, -9.0])
def test_a_variable_of_the_scope_may_have_no_value_before(limit: float) -> None:
    def build() -> Sequence[Variable]:
        x, block = fluid.data("x", [3]), fluid.default_main_program().global_block()
        state = block.create_var(name="state", shape=[3], dtype="float32", persistable=True)
        with layers.Switch() as switch, switch.case(is_below(x, limit)):
            layers.assign(layers.tanh(x), state)
        return [layers.exp(layers.square(x))]

    assert_native(build, {"x": normal(3)}, runs=1, op_by_op=int(limit > 0))


def test_the_memory_of_a_skipped_branch_is_not_lost() -> None:
    """Values of a branch that did not run share memory with values that are alive."""

    def build() -> Sequence[Variable]:
        x, results = fluid.data("x", [33, 5]), []
        for limit in (9.0, -9.0, 9.0, -9.0):
            y = layers.tanh(layers.scale(x, 0.7))
            z = layers.cond(is_below(x, limit), lambda y=y: layers.exp(layers.tanh(y)), lambda y=y: layers.square(y))  # type: ignore[misc]
            x = layers.elementwise_add(z, y)
            results.append(layers.mean(x))
        return [x, *results]

    assert_native(build, {"x": normal(33, 5)})


def test_a_plan_shows_its_branches() -> None:
    with fresh_programs() as (main, _):
        x = fluid.data("x", [4])
        result = layers.cond(is_below(x, 1.0), lambda: layers.tanh(x), lambda: layers.exp(x))
        plan = fluid.Executor().plan(main, {"x": normal(4)}, [result])
    kinds = [item.kind for item in plan.instructions if isinstance(item, BranchMark)]
    assert kinds == [IF_TRUE, END_BRANCH] * 2
    assert "if true(" in plan.to_string() and "on numpy: none" in plan.to_string()


# -------------------------------------------------------------------------------------------------------------- loops
def repeat(trips: int, body: Callable[[Variable, Variable], Variable], x: Variable) -> Variable:
    """The last value of a variable that each trip of a loop computes from its number and the former value."""
    end = number(trips, "int64")
    _, last = layers.while_loop(lambda i, h: layers.less_than(i, end), lambda i, h: [i + 1, body(i, h)], [number(0, "int64"), x])
    return last  # type: ignore[no-any-return]


@each("trips", [1, 4, 20])
def test_a_branch_in_a_loop_is_trained(trips: int) -> None:
    def build() -> Sequence[Variable]:
        x, w = fluid.data("x", [5, 7]), layers.create_parameter([7, 7], "float32")
        some = number(4, "int64")

        def body(i: Variable, h: Variable) -> Variable:
            is_early = layers.less_than(i, some)
            return layers.cond(is_early, lambda: layers.tanh(layers.matmul(h, w)), lambda: layers.scale(layers.square(h), 0.5))  # type: ignore[no-any-return]

        last = repeat(trips, body, x)
        return [last, *minimized(layers.mean(last))]

    assert_native(build, {"x": normal(5, 7)})


def build_nested() -> Sequence[Variable]:
    x, w = fluid.data("x", [5, 7]), layers.create_parameter([7, 7], "float32")
    two, five = number(2, "int64"), number(5, "int64")

    def body(i: Variable, h: Variable) -> Variable:
        def early() -> Variable:
            return layers.cond(layers.less_than(i, two), lambda: layers.tanh(layers.matmul(h, w)), lambda: layers.scale(h, 0.9))  # type: ignore[no-any-return]

        return layers.cond(layers.less_than(i, five), early, lambda: layers.scale(layers.square(h), 0.5))  # type: ignore[no-any-return]

    last = repeat(9, body, x)
    return [last, *minimized(layers.mean(last))]


def test_branches_of_branches_in_a_loop_are_trained() -> None:
    assert_native(build_nested, {"x": normal(5, 7)})


@each("stepwise", ["while", "while_grad"])
def test_what_branches_keep_is_read_op_by_op(stepwise: str) -> None:
    """The loop, or its gradient alone, runs op by op."""
    compiled = Loop.compiled

    def refuse(loop: Loop, *arguments: Any) -> Any:
        return None if loop.op.type == stepwise else compiled(loop, *arguments)

    with patch.object(Loop, "compiled", refuse):
        assert_alike(build_nested, {"x": normal(5, 7)})


def test_a_switch_overwrites_in_each_trip() -> None:
    def build() -> Sequence[Variable]:
        x, w = fluid.data("x", [5, 7]), layers.create_parameter([7, 7], "float32")
        i, end, h = number(0, "int64"), number(9, "int64"), layers.assign(layers.matmul(x, w))
        below = layers.less_than(i, end)
        with layers.While(below).block():
            with layers.Switch() as switch:
                with switch.case(is_below(h, 0.1)):
                    layers.assign(layers.exp(layers.scale(h, 0.5)), h)
                with switch.default():
                    layers.assign(layers.scale(layers.tanh(layers.matmul(h, w)), 0.3), h)
            layers.increment(i, in_place=True)
            layers.less_than(i, end, cond=below)
        return [h, *minimized(layers.mean(h))]

    assert_native(build, {"x": normal(5, 7)})


def test_a_recurrence_skips_words() -> None:
    def build() -> Sequence[Variable]:
        x, first = fluid.data("x", [None, 3, 4]), fluid.data("first", [3, 4])
        x.stop_gradient = False
        rnn = layers.StaticRNN()
        with rnn.step():
            word, before = rnn.step_input(x), rnn.memory(init=first)
            state = layers.cond(is_below(word, 0.0), lambda: layers.fc([word, before], 4, act="tanh"), lambda: before * 0.5)
            rnn.update_memory(before, state)
            rnn.step_output(state)
        loss = layers.mean(layers.square(rnn()))
        return [*fluid.gradients([loss], [x]), *minimized(loss)]

    assert_native(build, {"x": normal(6, 3, 4), "first": normal(3, 4)})


def test_a_norm_is_clipped_where_it_is_large() -> None:
    """With arrays large enough for several threads."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [200, 300])
        x.stop_gradient = False

        def body(i: Variable, h: Variable) -> Variable:
            norm = layers.sqrt(layers.reduce_sum(layers.square(h)))
            is_large = layers.greater_than(norm, number(100.0))
            return layers.cond(is_large, lambda: layers.elementwise_mul(h, 80.0 / norm), lambda: layers.scale(h, 1.4))  # type: ignore[no-any-return]

        last = repeat(8, body, x)
        return [last, *fluid.gradients([layers.mean(layers.square(last))], [x])]

    assert_native(build, {"x": normal(200, 300)}, tolerance=1e-4)


@each("sign", [1.0, -1.0])
def test_a_condition_that_nothing_changes_still_chooses(sign: float) -> None:
    """A condition on weights of a mapped file is computed once, at binding; what runs under it is not."""

    def build() -> Sequence[Variable]:
        x, weight = fluid.data("x", [4, 5]), layers.create_parameter([100], "float32", name="weight")
        is_above = layers.greater_than(layers.reduce_sum(weight), number(0.0))
        out = layers.tanh(x)
        with layers.Switch() as switch:
            with switch.case(is_above):
                layers.assign(layers.scale(x, 2.0), out)
            with switch.default():
                layers.assign(layers.scale(x, 3.0), out)
        return [layers.relu(out)]

    for is_native in ("1", "0"):
        with fresh_programs(), pytest.MonkeyPatch.context() as patches:
            patches.setenv("FLUID_NATIVE", is_native)
            outs, executor, x = build(), fluid.Executor(), normal(4, 5)
            fluid.global_scope().put("weight", unchanging(np.full(100, sign, "float32")))
            for _ in range(2):
                (result,) = executor.run(feed={"x": x}, fetch_list=outs)
                np.testing.assert_allclose(result, np.maximum(x * (2 if sign > 0 else 3), 0), rtol=1e-6)


# ------------------------------------------------------------------------------------------------------------- tables
def test_branches_skip_their_records() -> None:
    kinds = ["a", IF_TRUE, "b", IF_FALSE, "c", "d", END_BRANCH, END_BRANCH, "e"]
    calls = [KernelCall(kind, (), is_serial=kind in "abcde") for kind in kinds]
    assert skips_of(calls) == [0, 5, 0, 2, 0, 0, 0, 0, 0]
    flags = flags_of(calls)
    assert [flag & (BRANCH | UNLESS) for flag in flags] == [0, BRANCH, 0, BRANCH | UNLESS, 0, 0, BRANCH, BRANCH, 0]
    assert [bool(flag & SERIAL) for flag in flags] == [kind in "abcde" for kind in kinds]
