"""`DynamicRNN` in native code: its loop computes the rows of the sequences that are not over."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from beside_numpy import assert_alike, results_of
from checks import each, fresh_programs, some

import fluid
from fluid import layers
from fluid.errors import ExecutionError
from fluid.executor.native import cache, compiler, repeated
from fluid.executor.planned import backend
from fluid.executor.stepwise.control import Runs
from fluid.ir.program import Variable

SIZE, FEATURES = 5, 3
Step = Callable[[Any, Variable, Variable], None]


@pytest.fixture(autouse=True)
def _without_padded_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run loops as they run for batches of very different lengths."""
    monkeypatch.setattr(backend, "is_skewed", lambda batch: True)


def sequences(lengths: Sequence[int], seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((sum(lengths), FEATURES)).astype("float32")
    return {"x": (rows, [list(lengths)]), "init": rng.standard_normal((len(lengths), SIZE)).astype("float32")}


def lstm(rnn: Any, word: Variable, init: Variable) -> None:
    hidden, cell = (rnn.memory(shape=[SIZE]) for _ in range(2))
    after, cell_after = layers.lstm_unit(word, hidden, cell)
    rnn.update_memory(hidden, after)
    rnn.update_memory(cell, cell_after)
    rnn.output(after)


def first_states(rnn: Any, word: Variable, init: Variable) -> None:
    hidden = rnn.memory(init=init, need_reorder=True)
    after = layers.fc([word, layers.scale(hidden, 0.3)], SIZE, act="relu")
    rnn.update_memory(hidden, after)
    rnn.output(after, layers.softmax(after))


def shared_input(rnn: Any, word: Variable, init: Variable) -> None:
    """Each step reads a row of each sequence that is the same for all steps."""
    context = rnn.static_input(init)
    hidden = rnn.memory(shape=[SIZE])
    after = layers.tanh(layers.fc(layers.concat([word, hidden], 1), SIZE) + context)
    rnn.update_memory(hidden, after)
    rnn.output(after)


def gru(rnn: Any, word: Variable, init: Variable) -> None:
    hidden = rnn.memory(shape=[SIZE])
    after, _, _ = layers.gru_unit(layers.fc(word, 3 * SIZE), hidden, 3 * SIZE)
    rnn.update_memory(hidden, after)
    rnn.output(after)


def trained(step: Step) -> list[Variable]:
    words = layers.fc(fluid.data("x", [None, FEATURES], lod_level=1), FEATURES)
    init, rnn = layers.scale(fluid.data("init", [None, SIZE]), 0.5), layers.DynamicRNN()
    with rnn.block():
        step(rnn, rnn.step_input(words), init)
    outputs = rnn() if isinstance(rnn(), list) else [rnn()]
    last = layers.concat([layers.sequence_pool(out, kind) for out in outputs for kind in ("last", "average")], 1)
    loss = layers.mean(layers.square(last))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss]


def assert_native(step: Step, feed: dict[str, Any], op_by_op: int = 0) -> None:
    with patch.object(Runs, "once", autospec=True, side_effect=Runs.once) as once:
        results_of(lambda: trained(step), feed, native=True)
    assert once.call_count == op_by_op
    assert_alike(lambda: trained(step), feed)


LENGTHS = {
    "many": [4, 1, 7, 2, 2, 9, 1, 3, 5],
    "equal": [6, 6, 6],
    "one sequence": [5],
    "one row": [1],
    "empty among others": [0, 3, 0, 1],
    "one long": [1, 1, 40, 1, 1],
    "1,025 rows": [1] * 300 + [25, 700],
    "300 sequences": [1 + number % 4 for number in range(300)],
}


@pytest.mark.random
@each("lengths", LENGTHS)
@each("step", some([lstm, first_states, shared_input]))
def test_sequences_of_these_lengths(step: Step, lengths: str) -> None:
    assert_native(step, sequences(LENGTHS[lengths]))


def test_sequences_that_are_all_empty_run_no_trip() -> None:
    results = [results_of(lambda: trained(lstm)[:1], sequences([0, 0]), native=native, runs=1) for native in (False, True)]
    assert results[0].keys() == results[1].keys()
    for name, value in results[0].items():
        np.testing.assert_array_equal(results[1][name], value)


def test_a_step_in_several_kernels() -> None:
    assert_native(gru, sequences(LENGTHS["many"]))


def test_a_new_batch_of_lengths_compiles_nothing() -> None:
    """After a batch that had each quarter of the rows."""
    blocks, kernels = [], []

    def counted(calls: list[Any], function: Any) -> Any:
        def count(*arguments: Any, **named: Any) -> Any:
            calls.append(arguments)
            return function(*arguments, **named)

        return count

    with fresh_programs(), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("FLUID_NATIVE", "1")
        monkeypatch.setattr(repeated, "compiled_block", counted(blocks, repeated.compiled_block))
        monkeypatch.setattr(cache, "compile_object", counted(kernels, compiler.compile_object))
        fetches, executor = trained(lstm), fluid.Executor()
        executor.run(fluid.default_startup_program())
        program = fluid.default_main_program()
        executor.run(program, sequences([1, 2, 3, 4, 5, 6, 7, 8]), fetches)
        assert len(blocks) == 8  # four for the loop, and four for its gradient
        blocks.clear()
        kernels.clear()
        for seed in range(1, 6):
            lengths = np.random.default_rng(seed).integers(0, 30, 8).tolist()
            executor.run(program, sequences(lengths, seed), fetches)
    assert not blocks and not kernels


# ------------------------------------------------------------------------------------------- what runs op by op
def drops(rnn: Any, word: Variable, init: Variable) -> None:
    """Draws depend on the number of rows."""
    hidden = rnn.memory(shape=[SIZE])
    after = layers.dropout(layers.fc([word, hidden], SIZE, act="tanh"), 0.5)
    rnn.update_memory(hidden, after)
    rnn.output(after)


def mixes_rows(rnn: Any, word: Variable, init: Variable) -> None:
    hidden = rnn.memory(shape=[SIZE])
    after = layers.tanh(layers.fc([word, hidden], SIZE))
    rnn.update_memory(hidden, after)
    rnn.output(layers.softmax(after, axis=0))


def centres_rows(rnn: Any, word: Variable, init: Variable) -> None:
    hidden = rnn.memory(shape=[SIZE])
    after = layers.fc([word, hidden], SIZE)
    after = after - layers.reduce_mean(after, dim=0, keep_dim=True)
    rnn.update_memory(hidden, after)
    rnn.output(after)


@each("step", [drops, mixes_rows, centres_rows])
def test_ops_that_do_not_compute_each_row_by_itself(step: Step) -> None:
    lengths = LENGTHS["many"]
    assert_native(step, sequences(lengths), op_by_op=2 * 2 * max(lengths))


def test_a_memory_of_more_rows_than_sequences() -> None:
    """Its further rows are not read."""

    def step(rnn: Any, word: Variable, init: Variable) -> None:
        hidden = rnn.memory(init=init)
        after = layers.fc([word, hidden], SIZE, act="tanh")
        rnn.update_memory(hidden, after)
        rnn.output(after)

    feed = sequences([3, 2])
    feed["init"] = np.ones((3, SIZE), np.float32)
    assert_alike(lambda: trained(step), feed)


@each("sums", [False, True])
def test_a_value_of_each_sequence_that_is_no_static_input(sums: bool) -> None:
    """It has the rows of all sequences in each step; compiled code that computes so many rows must not take them."""

    def step(rnn: Any, word: Variable, init: Variable) -> None:
        hidden, of_sequence = rnn.memory(shape=[SIZE]), layers.reduce_sum(init, dim=1) if sums else init
        after = layers.elementwise_mul(layers.fc([word, hidden], SIZE), of_sequence, axis=0 if sums else -1)
        rnn.update_memory(hidden, after)
        rnn.output(after)

    with pytest.raises(ExecutionError, match=re.escape("X is float32[7, 5], Y is float32[8")):
        results_of(lambda: trained(step), sequences([5] * 7 + [3]), native=True)


def test_gradients_of_second_order() -> None:
    def build() -> list[Variable]:
        x = fluid.data("x", [None, FEATURES], lod_level=1)
        x.stop_gradient = False
        rnn = layers.DynamicRNN()
        with rnn.block():
            word = rnn.step_input(x)
            hidden = rnn.memory(shape=[FEATURES])
            after = layers.tanh(word * 0.5 + hidden * hidden)
            rnn.update_memory(hidden, after)
            rnn.output(after)
        loss = layers.reduce_sum(layers.square(layers.sequence_last_step(rnn())))
        (first,) = fluid.gradients(loss, x)
        (second,) = fluid.gradients(layers.reduce_sum(layers.square(first)), x)
        return [first, second]

    assert_alike(build, {"x": sequences(LENGTHS["many"])["x"]})


def test_an_infinity_in_one_sequence_stays_there() -> None:
    """Padding rows have the values of the longest sequence, not the first states."""

    def step(rnn: Any, word: Variable, init: Variable) -> None:
        hidden = rnn.memory(init=init, need_reorder=True)
        after = hidden * hidden * 2.0 + layers.fc(word, SIZE)
        rnn.update_memory(hidden, after)
        rnn.output(after)

    feed = sequences([1, 60, *[1] * 6])
    feed["x"][0][...] = 1e-3
    feed["init"][...] = 6.0  # finite after one step, infinite after sixty
    feed["init"][1] = 0.0
    results = results_of(lambda: trained(step), feed, native=True, runs=1)
    assert all(np.isfinite(value).all() for value in results.values())
    assert_alike(lambda: trained(step), feed, runs=1)
