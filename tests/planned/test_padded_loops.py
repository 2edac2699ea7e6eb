"""`DynamicRNN` whose steps read sequences, as an attention does: its loop is rewritten for padded rows, and native code."""

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
from fluid.executor.native import cache, compiler
from fluid.executor.planned import backend
from fluid.executor.planned.padded_loops import with_padded_loops
from fluid.executor.stepwise.control import Runs
from fluid.ir.program import Program, Variable

SIZE, WIDTH = 5, 4
Attention = Callable[[Variable, Variable, Variable], Variable]
"""Computes a context from the state of a step, the encoded words and their keys."""


@pytest.fixture(autouse=True)
def _without_padded_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run loops as they run for batches of very different lengths."""
    monkeypatch.setattr(backend, "is_skewed", lambda batch: True)


def batch(source: Sequence[int], target: Sequence[int], dtype: str = "float32", seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    parts = {"source": source, "target": target}
    return {
        name: (rng.standard_normal((sum(part), WIDTH)).astype(dtype), [[0, *np.cumsum(part).tolist()]])
        for name, part in parts.items()
    }


def additive(state: Variable, words: Variable, keys: Variable) -> Variable:
    query = layers.sequence_expand(layers.fc(state, SIZE), keys)
    weights = layers.sequence_softmax(layers.fc(layers.tanh(keys + query), 1, bias_attr=False))
    return layers.sequence_pool(layers.elementwise_mul(words, layers.reshape(weights, [-1]), axis=0), "sum")


def of_products(state: Variable, words: Variable, keys: Variable) -> Variable:
    query = layers.sequence_expand_as(state, keys)
    scores = layers.reduce_sum(layers.elementwise_mul(query, keys), dim=1, keep_dim=True)
    weights = layers.sequence_softmax(layers.scale(scores, 0.4))
    return layers.sequence_pool(layers.elementwise_mul(words, weights), "sum")


def of_means(state: Variable, words: Variable, keys: Variable) -> Variable:
    gated = layers.elementwise_mul(words, layers.sigmoid(layers.sequence_expand(state, words)))
    return layers.sequence_pool(gated, "average") + layers.sequence_pool(layers.tanh(gated), "sqrt")


def of_shares(state: Variable, words: Variable, keys: Variable) -> Variable:
    """Divides by the state: zeros in its place would give infinities."""
    shares = layers.elementwise_div(words, layers.sequence_expand(state, words))
    return layers.scale(layers.sequence_pool(layers.log(layers.square(shares) + 0.5), "average"), 0.3)


def with_their_sequences(state: Variable, words: Variable, keys: Variable) -> Variable:
    rows = layers.lod_reset(layers.concat([layers.sequence_expand(state, keys), layers.fc(words, 2)], 1), y=words)
    return layers.sequence_pool(layers.fc(rows, SIZE, act="relu"), "sum")


ATTENTIONS = [additive, of_products, of_means, of_shares, with_their_sequences]


def translated(attend: Attention, dtype: str = "float32") -> list[Variable]:
    source, target = (fluid.data(name, [None, WIDTH], dtype, 1) for name in ("source", "target"))
    source.stop_gradient = False
    words = layers.fc(source, SIZE, act="tanh")
    projected = layers.fc(words, SIZE)
    first = layers.fc(layers.sequence_pool(words, "average"), SIZE, act="sigmoid")
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(target)
        state = rnn.memory(init=first, need_reorder=True)
        encoded, keys = rnn.static_input(words), rnn.static_input(projected)
        after = layers.fc([word, state, attend(state, encoded, keys)], SIZE, act="sigmoid")
        rnn.update_memory(state, after)
        rnn.output(after)
    loss = layers.mean(layers.square(layers.fc(layers.sequence_last_step(rnn()), 1)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss, source.block.var("source@GRAD")]


LENGTHS = {
    "other lengths": ([3, 1, 5, 2, 7], [4, 6, 1, 2, 3]),
    "one word": ([1], [1]),
    "sources without words": ([0, 4, 0, 2], [5, 1, 2, 5]),
    "no source has words but one": ([0, 0, 3], [2, 4, 1]),
    "targets without words": ([2, 3, 1], [0, 2, 0]),
    "many": ([1 + number % 7 for number in range(30)], [1 + number % 5 for number in range(30)]),
    "a long source": ([1, 1030, 2], [3, 1, 2]),
}


@each("lengths", LENGTHS)
def test_sequences_of_these_lengths(lengths: str) -> None:
    assert_native(of_means, lengths)


@each("lengths", ["other lengths", "sources without words"])
@each("attend", [additive, of_products, of_shares, with_their_sequences])
def test_gradients_are_those_on_numpy(attend: Attention, lengths: str) -> None:
    assert_native(attend, lengths)


def assert_native(attend: Attention, lengths: str) -> None:
    feed = batch(*LENGTHS[lengths])
    with patch.object(Runs, "once", autospec=True, side_effect=Runs.once) as once:
        results_of(lambda: translated(attend), feed, native=True)
    assert not once.call_count  # no trip runs op by op
    assert_alike(lambda: translated(attend), feed)


def test_double_precision() -> None:
    assert_alike(lambda: translated(of_means, "float64"), batch(*LENGTHS["other lengths"], "float64"))


@each("attend", ATTENTIONS)
def test_the_rewritten_program_computes_the_same_op_by_op(attend: Attention, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_NATIVE", "0")
    results = []
    for rewrite in (lambda program: program, with_padded_loops):
        with fresh_programs():
            fetches, executor = translated(attend), fluid.Executor()
            executor.run(fluid.default_startup_program())
            program: Program = rewrite(fluid.default_main_program())
            assert (program is fluid.default_main_program()) is (rewrite is not with_padded_loops)
            names = [var.name for var in fetches]
            for source, target in LENGTHS.values():
                results.append(executor.run(program, batch(source, target), names))
    count = len(LENGTHS)
    for original, rewritten in zip(results[:count], results[count:], strict=True):
        for expected, found in zip(original, rewritten, strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def of_two_sources() -> list[Variable]:
    """Sequences of different lengths, which are pooled apart."""
    source, target = (fluid.data(name, [None, WIDTH], lod_level=1) for name in ("source", "target"))
    source.stop_gradient = target.stop_gradient = False
    parts, rnn = [layers.fc(x, SIZE, act="tanh") for x in (source, target)], layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(target)
        state = rnn.memory(shape=[SIZE])
        sums = [layers.sequence_pool(layers.sequence_expand(state, rows) * rows, "sum") for rows in map(rnn.static_input, parts)]
        after = layers.fc([word, *sums], SIZE, act="tanh")
        rnn.update_memory(state, after)
        rnn.output(after)
    loss = layers.mean(layers.square(layers.sequence_last_step(rnn())))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss, *(source.block.var(f"{name}@GRAD") for name in ("source", "target"))]


def test_sequences_that_no_op_joins_may_have_different_lengths() -> None:
    feed = batch([3, 1, 5], [2, 4, 1])
    with patch.object(Runs, "once", autospec=True, side_effect=Runs.once) as once:
        results_of(of_two_sources, feed, native=True)
    assert not once.call_count
    assert_alike(of_two_sources, feed)


def maximum(state: Variable, words: Variable, keys: Variable) -> Variable:
    return layers.sequence_pool(layers.sequence_expand(state, words) * words, "max")


def of_all_words(state: Variable, words: Variable, keys: Variable) -> Variable:
    mean = layers.reduce_mean(words, 0, keep_dim=True)
    return layers.elementwise_mul(layers.sequence_pool(words, "sum"), layers.reshape(mean, [SIZE]), axis=1)


def dropped(state: Variable, words: Variable, keys: Variable) -> Variable:
    return layers.sequence_pool(layers.dropout(words, 0.5, seed=3), "sum")


@each("attend", [maximum, of_all_words, dropped])
def test_other_loops_stay_as_they_are(attend: Attention) -> None:
    with fresh_programs():
        translated(attend)
        assert with_padded_loops(fluid.default_main_program()) is fluid.default_main_program()
    assert_alike(lambda: translated(attend), batch(*LENGTHS["other lengths"]))


def test_sequences_of_different_lengths_are_refused_as_on_numpy() -> None:
    """Words of the source beside words of the target, in one step."""

    def build() -> list[Variable]:
        source, target = (fluid.data(name, [None, WIDTH], lod_level=1) for name in ("source", "target"))
        doubled, rnn = layers.scale(target, 2.0), layers.DynamicRNN()
        with rnn.block():
            word = rnn.step_input(target)
            sums = layers.sequence_pool(rnn.static_input(source) + rnn.static_input(doubled), "sum")
            rnn.output(word + sums)
        return [layers.mean(rnn())]

    messages = []
    for native in (False, True):
        with pytest.raises(fluid.errors.FluidError) as error:
            results_of(build, batch([2, 3], [3, 4]), native=native)
        messages.append(str(error.value))
    assert "[5, 4]" in messages[0] and "5" in messages[1] and "7" in messages[1]


def test_new_lengths_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: list[Any] = []
    compile_object = compiler.compile_object

    def counted(*arguments: Any, **named: Any) -> Any:
        kernels.append(arguments)
        return compile_object(*arguments, **named)

    monkeypatch.setenv("FLUID_NATIVE", "1")
    monkeypatch.setattr(cache, "compile_object", counted)
    with fresh_programs():
        fetches, executor = translated(additive), fluid.Executor()
        executor.run(fluid.default_startup_program())
        program = fluid.default_main_program()
        executor.run(program, batch([3, 4, 3, 4], [4, 3, 2, 1]), fetches)
        before = len(kernels)
        assert before
        for source in ([2, 5, 1, 6], [1, 4, 7, 2], [4, 4, 4, 3]):
            executor.run(program, batch(source, [2, 1, 4, 3]), fetches)
        assert len(kernels) == before
