"""`IfElse` computes both branches for all rows natively, and chooses: results and gradients are numpy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from beside_numpy import Built
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.errors import ExecutionError
from fluid.ir.program import Variable


def chosen(x: Any, mask: Any, true: Callable[[Any], Any], false: Callable[[Any], Any]) -> Any:
    branch = layers.IfElse(mask)
    with branch.true_block():
        branch.output(true(branch.input(x)))
    with branch.false_block():
        branch.output(false(branch.input(x)))
    return branch()[0]


def is_positive(x: Any) -> Any:
    sums = layers.reduce_sum(x, list(range(1, len(x.shape))), keep_dim=True) if len(x.shape) > 1 else x
    rows = layers.reshape(sums, [-1, 1])
    return layers.greater_than(rows, rows * 0.0)


def dense(x: Any) -> Any:
    return layers.fc(x, 4, act="tanh", num_flatten_dims=len(x.shape) - 1)


def logarithm(x: Any) -> Any:
    """Rows that the branch should not see are below 0."""
    return layers.log(layers.reduce_sum(x, -1, keep_dim=True) + x * 0.0)


BRANCHES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "layers": (dense, lambda x: layers.relu(dense(x)) * 2.0),
    "softmax": (lambda x: layers.softmax(x), lambda x: x - 1.0),
    "logarithm": (logarithm, lambda x: x * 0.5),
}


def assert_alike(build: Callable[[], Sequence[Variable]], feed: dict[str, Any], is_native: bool = True) -> None:
    with fresh_programs():
        built = Built(build)
        built.assert_alike(feed)
        assert ("(step by step)" not in built.plan(feed)) == is_native


@each("kind", BRANCHES)
@each("shape", [(5, 4), (1, 4), (3, 2, 4)])
@each("signs", ["both", "positive", "negative"])
def test_rows_of_both_branches(kind: str, shape: tuple[int, ...], signs: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    x = x if signs == "both" else np.abs(x) if signs == "positive" else -np.abs(x)

    def build() -> Sequence[Variable]:
        value = fluid.data("x", list(shape))
        return [chosen(value, is_positive(value), *BRANCHES[kind])]

    assert_alike(build, {"x": x})


@each("kind", BRANCHES)
def test_branches_in_a_recurrence(kind: str) -> None:
    x = np.random.default_rng(0).standard_normal((6, 5, 4)).astype("float32")

    def build() -> Sequence[Variable]:
        steps, zeros = fluid.data("x", [6, 5, 4]), layers.fill_constant([5, 4], "float32", 0.0)
        rnn = layers.StaticRNN()
        with rnn.step():
            step, before = rnn.step_input(steps), rnn.memory(init=zeros)
            value = step + before * 0.1
            after = layers.tanh(chosen(value, is_positive(value), *BRANCHES[kind]))
            rnn.update_memory(before, after)
            rnn.step_output(after)
        return [rnn()]

    assert_alike(build, {"x": x})


def root(x: Any) -> Any:
    """Its derivative is infinite at 0, which no row that the branch sees is."""
    return layers.sqrt(layers.relu(x)) * layers.fc(layers.exp(x * 40.0), 4) * 1e-6


@each("kind", [*BRANCHES, "root", "one branch"])
@each("signs", ["both", "positive", "negative", "zeros", "one row"])
def test_gradients_of_branches(kind: str, signs: str) -> None:
    """Rows that a branch does not see add nothing to gradients, though it would make infinities of them."""
    x = np.abs(np.random.default_rng(0).standard_normal((5, 4)).astype("float32")) + 0.1
    x = {"both": x * [[1], [-1], [-20], [1], [-1]], "positive": x, "negative": -x * 9, "zeros": x * 0, "one row": x[:1]}[signs]
    true, false = BRANCHES.get(kind, (root, lambda x: x * 0.5))

    def build() -> Sequence[Variable]:
        value = fluid.data("x", list(x.shape))
        value.stop_gradient = False
        if kind == "one branch":
            result = chosen(value, is_positive(value), dense, lambda x: layers.zeros_like(x))
        else:
            result = chosen(value, is_positive(value), true, false)
        weights = fluid.default_main_program().all_parameters()
        found = fluid.gradients(layers.mean(layers.square(result)), [value, *weights])
        return [result, *(one for one in found if one is not None)]

    assert_alike(build, {"x": x.astype("float32")})


@each("kind", BRANCHES)
def test_a_recurrence_with_branches_is_trained(kind: str) -> None:
    x = np.random.default_rng(0).standard_normal((6, 5, 4)).astype("float32")

    def build() -> Sequence[Variable]:
        steps, end = fluid.data("x", [6, 5, 4]), layers.fill_constant([1], "int64", 6)

        def step(index: Any, h: Any) -> Sequence[Any]:
            value = layers.reshape(layers.gather(steps, index), [5, 4]) + h * 0.1
            return [index + 1, dense(chosen(value, is_positive(value), *BRANCHES[kind]))]

        zeros = layers.fill_constant([5, 4], "float32", 0.0)
        zeros.stop_gradient = False
        first = [layers.fill_constant([1], "int64", 0), zeros]
        last = layers.while_loop(lambda index, h: layers.less_than(index, end), step, first)[1]
        loss = layers.mean(layers.square(last))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        return [loss, last]

    assert_alike(build, {"x": x})


@each("kind", ["a mean over rows", "a look-up", "a branch in a branch", "a fetched part"])
def test_branches_that_run_as_before(kind: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, 4)).astype("float32")
    feed = {"x": x, "ids": (x[:, :1] > 0).astype("int64") * 9 - 5}

    def build() -> Sequence[Variable]:
        value, ids = fluid.data("x", [5, 4]), fluid.data("ids", [5, 1], "int64")
        value.stop_gradient = False
        table, mask = layers.create_parameter([7, 4], "float32"), layers.greater_than(ids, ids * 0)
        parts: list[Variable] = []

        def true(x: Any) -> Any:
            if kind == "a mean over rows":
                return x - layers.reduce_mean(x, 0, keep_dim=True)
            if kind == "a branch in a branch":
                return chosen(x, is_positive(x), dense, lambda x: x * 2.0)
            parts.append(x)
            return dense(x)

        if kind == "a look-up":
            branch = layers.IfElse(mask)
            with branch.true_block():
                branch.output(layers.reshape(layers.gather(table, branch.input(ids)), [-1, 4]))
            with branch.false_block():
                branch.output(branch.input(value) * 2.0)
            result = branch()[0]
        else:
            result = chosen(value, mask, true, lambda x: x * 2.0)
        if kind == "a fetched part":
            return [result, parts[0]]
        return [result]

    assert_alike(build, feed, is_native=False)


def test_a_mask_of_another_number_of_rows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for native in "01":
        monkeypatch.setenv("FLUID_NATIVE", native)
        with fresh_programs():
            x, mask = fluid.data("x", [-1, 4]), fluid.data("mask", [-1, 1], "bool")
            result = chosen(x, mask, lambda x: x * 3.0, lambda x: x * 2.0)
            feed = {"x": np.ones((5, 4), "float32"), "mask": np.ones((3, 1), bool)}
            with pytest.raises(ExecutionError, match="the mask has 3 elements"):
                fluid.Executor().run(feed=feed, fetch_list=[result])


@each("number", [0.7, -0.7])
def test_gradients_of_single_numbers_in_a_loop(number: float) -> None:
    def build() -> Sequence[Variable]:
        x, end = fluid.data("x", [1, 1]), layers.fill_constant([1], "int64", 1)
        x.stop_gradient = False

        def step(index: Any, h: Any) -> Sequence[Any]:
            result = chosen(h, is_positive(h), lambda h: layers.sigmoid(layers.fc(h, 1)), lambda h: layers.fc(h, 1))
            return [index + 1, result]

        first = [layers.fill_constant([1], "int64", 0), layers.assign(x)]
        last = layers.while_loop(lambda index, h: layers.less_than(index, end), step, first)[1]
        loss = layers.mean(layers.square(last))
        return [loss, *fluid.gradients([loss], [x, *fluid.default_main_program().all_parameters()])]

    with fresh_programs():
        Built(build).assert_alike({"x": np.array([[number]], "float32")})
