"""Positions of extremes, tests of truths, quotients of integers and rows set by number: ops of decoding loops in native code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from beside_numpy import Built, assert_alike, results_of
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.executor.stepwise.control import Runs
from fluid.extend import ops
from fluid.ir.program import Variable

Build = Callable[[], Sequence[Variable]]


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def assert_equal(build: Build, *feeds: dict[str, Any]) -> None:
    """Assert that all is native, and that results equal numpy's for feeds of the same shapes."""
    with fresh_programs():
        built = Built(build)
        for number, feed in enumerate(feeds):
            expected, actual = (built.results(feed, native=native, runs=1) for native in (False, True))
            for name, value in expected.items():
                np.testing.assert_array_equal(actual[name], value, err_msg=f"{name}, feed {number}")
                assert actual[name].dtype == value.dtype
        assert "on numpy: none" in built.plan(feeds[0])


def assert_native_loop(build: Build, feed: dict[str, Any]) -> None:
    with patch.object(Runs, "once", autospec=True, side_effect=Runs.once) as once:
        results_of(build, feed, native=True)
    assert not once.call_count
    assert_alike(build, feed)


# ----------------------------------------------------------------------------------------------------------- extremes
def numbers(shape: Sequence[int], dtype: str, kind: str) -> Any:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(dtype)
    if kind != "different":
        x = np.round(x)
    if kind == "NaN":
        x[rng.random(shape) < 0.3] = np.nan
    if kind == "infinite":
        x[rng.random(shape) < 0.4] = -np.inf
        x[rng.random(shape) < 0.1] = np.inf
    return x


def top(x: Variable, k: int, axis: int, largest: bool) -> list[Variable]:
    block = fluid.default_main_program().current_block()
    out, indices = (block.create_var(name=fluid.unique_name.generate("top")) for _ in range(2))
    attrs = {"k": k, "axis": axis, "largest": largest}
    block.append_op("top_k_v2", {"X": x}, {"Out": out, "Indices": indices}, attrs)
    return [out, indices]


@each("shape", [(1, 1), (3, 5), (4, 1), (5, 130), (2, 3, 4), (7,)])
@each("dtype", ["float32", "float64"])
def test_extremes_lie_where_numpy_finds_them(shape: Sequence[int], dtype: str) -> None:
    """With one place a NaN is the greatest, with more it comes last; of equals the first counts."""

    def build() -> Sequence[Variable]:
        x = layers.scale(fluid.data("x", list(shape), dtype), 1.0)
        results = [ops().arg_max(x, axis=0, flatten=True)]
        for axis in range(-1, len(shape) - 1):
            results += [ops().arg_max(x, axis=axis), ops().arg_min(x, axis=axis)]
            for k in {1, min(2, shape[axis]), min(5, shape[axis])}:
                results += [*top(x, k, axis, True), *top(x, k, axis, False)]
        return results

    assert_equal(build, *({"x": numbers(shape, dtype, kind)} for kind in ("different", "equal", "NaN", "infinite")))


@each("dtype", ["int32", "int64"])
@each("shape", [(1,), (3, 5), (4, 1), (5, 130), (2, 3, 4)])
def test_extremes_of_integers_lie_where_numpy_finds_them(shape: Sequence[int], dtype: str) -> None:
    """The least integer has no negative; of equals the first counts."""
    x, bounds = np.round(numbers(shape, "float64", "equal")).astype(dtype), np.iinfo(dtype)
    x.reshape(-1)[[0, x.size // 2, -1]] = bounds.min, bounds.max, bounds.min

    def build() -> Sequence[Variable]:
        var = layers.elementwise_mul(fluid.data("x", list(shape), dtype), layers.fill_constant([1], dtype, 1))
        results = [ops().arg_max(var, axis=0, flatten=True)]
        for axis in range(-1, len(shape) - 1):
            results += [ops().arg_max(var, axis=axis), ops().arg_min(var, axis=axis)]
            results += [layers.reduce_max(var, dim=axis), layers.reduce_min(var, dim=axis)]
            for k in {1, min(2, shape[axis]), min(5, shape[axis])}:
                results += [*top(var, k, axis, True), *top(var, k, axis, False)]
        return results

    assert_equal(build, {"x": x})


@each("k", [1, 3])
def test_the_greatest_elements_get_the_gradient(k: int) -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [4, 7])
        x.stop_gradient = False
        values, _ = layers.topk(layers.scale(x, 2.0), k)
        return [values, *fluid.gradients([layers.reduce_sum(layers.square(values))], [x])]

    assert_equal(build, {"x": normal(4, 7)})


@each("dtype", ["float32", "float64", "int32", "uint8"])
@each("shape, axis", [((3, 300), -1), ((700,), 0), ((2, 513, 3), 1)])
def test_of_equal_elements_in_long_rows_the_first_count(shape: Sequence[int], axis: int, dtype: str) -> None:
    """Many are zero, as after a relu."""
    x = np.maximum(np.round(numbers(shape, "float64", "different")), 0).astype(dtype)

    def build() -> Sequence[Variable]:
        var = fluid.data("x", list(shape), dtype)
        return [result for k in (1, 2, 5) for largest in (True, False) for result in top(var, k, axis, largest)]

    with fresh_programs():
        built = Built(build)
    for native in (False, True):
        results = [*built.results({"x": x}, native, runs=1).values()]
        for places, (k, largest) in zip(results[1::2], product((1, 2, 5), (True, False)), strict=True):
            signed = x.astype("float64") * (-1 if largest else 1)
            np.testing.assert_array_equal(places, signed.argsort(axis, kind="stable").take(range(k), axis))


def test_many_of_long_rows_are_found_by_numpy() -> None:
    with fresh_programs() as (main, _):
        x = layers.tanh(layers.scale(fluid.data("x", [2, 3000]), 1.5))
        fetches = [layers.topk(x, k)[0] for k in (8, 9)]
        text = fluid.Executor().plan(main, {"x": normal(2, 3000)}, fetches).to_string()
    assert "on numpy: top_k\n" in text


# ------------------------------------------------------------------------------------------------- integers and truths
@each("dtype", ["int32", "int64"])
@each("count", [1, 5, 36])
def test_integers_are_divided_as_numpy_does(dtype: str, count: int) -> None:
    """By zero, and the lowest integer by -1, too."""
    low = np.iinfo(dtype).min
    x = np.array([7, -7, 7, -7, 0, 5, -5, low, low, low + 1, 123456, -1] * 3, dtype)[-count:]
    y = np.array([2, 2, -2, -2, 3, 0, 0, -1, 1, -1, 1000, 7] * 3, dtype)[-count:]

    def build() -> Sequence[Variable]:
        a, b = fluid.data("a", [count], dtype), fluid.data("b", [count], dtype)
        return [layers.elementwise_mod(a, b), layers.elementwise_floordiv(a, b)]

    with np.errstate(all="ignore"):
        assert_equal(build, {"a": x, "b": y})


@each("shape", [(3, 5), (1,), (4, 1), (2, 3, 4)])
def test_truths_are_tested(shape: Sequence[int]) -> None:
    def build() -> Sequence[Variable]:
        x = layers.logical_not(fluid.data("x", list(shape), "bool"))
        axes = range(len(shape))
        some = [layers.reduce_any(x, dim=axis, keep_dim=True) for axis in axes]
        return [layers.reduce_all(x), layers.reduce_any(x), *some, *(layers.reduce_all(x, dim=axis) for axis in axes)]

    assert_equal(build, {"x": np.random.default_rng(0).random(shape) < 0.6})


@each("ids", [[2], [0, 2], [1, 1], [3, 0, 3], [0, 1, 3, 3, 1] * 5])
@each("shape", [(4, 3), (4,), (4, 2, 2)])
def test_rows_are_set(ids: list[int], shape: Sequence[int]) -> None:
    def build() -> Sequence[Variable]:
        x, updates = fluid.data("x", list(shape)), fluid.data("updates", [len(ids), *shape[1:]])
        x.stop_gradient = updates.stop_gradient = False
        out = layers.scatter(layers.scale(x, 2.0), fluid.data("ids", [len(ids)], "int64"), layers.scale(updates, 3.0))
        is_differentiated = len(set(ids)) == len(ids)
        return [out, *(fluid.gradients([layers.reduce_sum(layers.square(out))], [x, updates]) if is_differentiated else [])]

    assert_equal(build, {"x": normal(*shape), "updates": normal(len(ids), *shape[1:]), "ids": np.array(ids)})


@each("kind", ["assign", "add", "amax", "amin"])
@each("dtype", ["float32", "float64", "float16", "int32", "int64", "bool"])
@each("shape, axis, count", [((4, 3), 0, 4), ((4, 3), -1, 9), ((5,), 0, 1), ((1, 1), 1, 3), ((2, 3, 4), 1, 5)])
def test_elements_are_written_or_combined(shape: Sequence[int], axis: int, count: int, dtype: str, kind: str) -> None:
    """Indices repeat: of values that are written, the last one counts."""
    rng, many = np.random.default_rng(0), [*shape]
    many[axis] = count
    feed = {"x": rng.integers(-3, 3, shape).astype(dtype), "v": rng.integers(-3, 3, many).astype(dtype)}
    feed["ids"] = rng.integers(0, shape[axis], many)
    if dtype.startswith("float") and kind != "add":
        feed["v"].reshape(-1)[-1] = np.nan
    if dtype == "bool" and kind != "assign":
        return

    def build() -> Sequence[Variable]:
        x, v, ids = fluid.data("x", list(shape), dtype), fluid.data("v", many, dtype), fluid.data("ids", many, "int64")
        out = ops().put_along_axis(x, ids, v, Axis=axis, Reduce=kind)
        return [out, layers.logical_not(x) if dtype == "bool" else layers.elementwise_mul(x, x)]

    assert_equal(build, feed)


@each("dtype", ["float32", "int64", "bool", "float16"])
@each("sizes", [(0, 3), (3, 0, 2), (0, 0, 1)])
def test_parts_without_elements_are_left_out(sizes: Sequence[int], dtype: str) -> None:
    feed = {f"x{number}": np.ones((2, size), dtype) for number, size in enumerate(sizes)}

    def build() -> Sequence[Variable]:
        parts = [fluid.data(name, list(part.shape), dtype) for name, part in feed.items()]
        joined = layers.concat(parts, axis=-1)
        return [joined, layers.equal(joined, joined)]

    assert_equal(build, feed)


def test_a_row_that_does_not_exist_is_named() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [4, 3])
        return [layers.scatter(layers.tanh(x), fluid.data("ids", [1], "int64"), layers.scale(x[:1], 2.0))]

    with pytest.raises(fluid.errors.ExecutionError, match="4"):
        results_of(build, {"x": normal(4, 3), "ids": np.array([4])}, native=True)


# --------------------------------------------------------------------------------------------------------------- loops
def cell(width: int, words: int) -> Callable[[Variable, Variable], tuple[Variable, Variable]]:
    """A recurrent net over words: from words and states to states and scores."""
    table, w, u, out = (
        layers.create_parameter(shape, "float32") for shape in ([words, 8], [8, width], [width, width], [width, words])
    )

    def step(word: Variable, state: Variable) -> tuple[Variable, Variable]:
        after = layers.tanh(layers.matmul(layers.gather(table, word), w) + layers.matmul(state, u))
        return after, layers.matmul(after, out)

    return step


def test_greedy_decoding_ends_with_the_last_sentence() -> None:
    def build() -> Sequence[Variable]:
        step, end, limit = cell(12, 50), layers.fill_constant([1], "int64", 3), layers.fill_constant([1], "int64", 20)

        def goes_on(i: Variable, word: Variable, state: Variable, is_done: Variable) -> Variable:
            return layers.logical_and(layers.less_than(i, limit), layers.logical_not(layers.reduce_all(is_done)))

        def body(i: Variable, word: Variable, state: Variable, is_done: Variable) -> list[Variable]:
            after, scores = step(word, state)
            best = layers.argmax(layers.softmax(scores), axis=-1)
            best = layers.elementwise_mul(best, layers.cast(layers.logical_not(is_done), "int64"))
            return [layers.increment(i, in_place=False), best, after, layers.logical_or(is_done, layers.equal(best, end))]

        start = layers.fill_constant([1], "int64", 0), layers.fill_constant([3], "int64", 1), fluid.data("state", [3, 12])
        return layers.while_loop(goes_on, body, [*start, layers.fill_constant([3], "bool", False)])  # type: ignore[no-any-return]

    assert_native_loop(build, {"state": normal(3, 12)})


def test_beams_are_searched() -> None:
    def build() -> Sequence[Variable]:
        step, beams, limit = cell(12, 50), 4, layers.fill_constant([1], "int64", 10)
        words = layers.fill_constant([1], "int64", 50)

        def body(i: Variable, word: Variable, state: Variable, score: Variable) -> list[Variable]:
            after, scores = step(word, state)
            total = layers.elementwise_add(layers.log(layers.softmax(scores)), score, axis=0)
            best, places = layers.topk(layers.reshape(total, [1, beams * 50]), beams)
            places = layers.reshape(places, [beams])
            state = layers.gather(after, layers.elementwise_floordiv(places, words))
            word = layers.elementwise_mod(places, words)
            return [layers.increment(i, in_place=False), word, state, layers.reshape(best, [beams, 1])]

        first = fluid.data("score", [beams, 1])
        start = layers.fill_constant([1], "int64", 0), layers.fill_constant([beams], "int64", 1), fluid.data("state", [beams, 12])
        return layers.while_loop(lambda i, *_: layers.less_than(i, limit), body, [*start, first])  # type: ignore[no-any-return]

    score = np.array([[0.0], [-1e9], [-1e9], [-1e9]], "float32")
    assert_native_loop(build, {"state": normal(4, 12), "score": score})


def test_a_recurrence_attends_to_a_memory() -> None:
    """Outputs without elements (of `unsqueeze2`) need no memory."""

    def build() -> Sequence[Variable]:
        memory, x = fluid.data("memory", [3, 7, 12]), fluid.data("x", [6, 3, 8])
        memory.stop_gradient = False
        rnn, first = layers.StaticRNN(), layers.fill_constant([3, 12], "float32", 0.0)
        with rnn.step():
            word, state = rnn.step_input(x), rnn.memory(init=first)
            weights = layers.softmax(layers.squeeze(layers.matmul(memory, layers.unsqueeze(state, [2])), [2]))
            context = layers.reduce_sum(layers.elementwise_mul(memory, weights, axis=0), dim=1)
            after = layers.fc(layers.concat([word, context, state], axis=1), 12, act="tanh")
            rnn.update_memory(state, after)
            rnn.step_output(after)
        loss = layers.mean(layers.square(rnn()))
        return [loss, *fluid.gradients([loss], [memory])]

    assert_native_loop(build, {"memory": normal(3, 7, 12), "x": normal(6, 3, 8)})
