"""Loops whose trips lie in the table of a plan: they give the bits that trips prepared in each run give."""

from __future__ import annotations

import gc
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
from fluid.executor.planned.unrolled_loops import UnrolledLoop
from fluid.ir.program import Variable

Build = Callable[[], Sequence[Variable]]


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def unrolled_in(build: Build, feed: dict[str, Any]) -> list[UnrolledLoop]:
    """The unrolled loops of the plan of a program."""
    with fresh_programs():
        fetches = list(build())
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        plan: Any = executor.plan(feed=feed, fetch_list=fetches)
        return [item for item in plan.instructions if isinstance(item, UnrolledLoop)]


def assert_same_bits(build: Build, feed: dict[str, Any], loops: int) -> None:
    """Assert that so many loops are unrolled, and that the results are near numpy's and have the bits of other native code."""
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


def test_a_loop_updates_a_variable_of_the_scope() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [4, 3])
        total = layers.create_global_var([4, 3], 0.5, "float32", persistable=True)
        index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 5)
        below = layers.less_than(index, end)
        loop = layers.While(below)
        with loop.block():
            layers.assign(layers.tanh(total + x), total)
            layers.increment(index)
            layers.less_than(index, end, cond=below)
        return [total * 2.0]

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


def test_a_loop_that_draws_runs_step_by_step_with_its_gradient() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [5, 4, 8])
        rnn = layers.StaticRNN()
        with rnn.step():
            word, before = rnn.step_input(x), rnn.memory(shape=[-1, 8], batch_ref=x, ref_batch_dim_idx=1)
            h = layers.dropout(layers.fc([word, before], 8, act="tanh"), 0.3)
            rnn.update_memory(before, h)
            rnn.step_output(h)
        return trained([rnn()])

    assert_same_bits(build, {"x": normal(5, 4, 8)}, loops=0)


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
