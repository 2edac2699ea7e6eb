"""Programs over sequences, whose plans pad the rows: the same plan serves batches of other lengths."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from checks import each, fresh_programs
from padded_runs import (
    BATCHES,
    BESIDE,
    TAGS,
    WIDTH,
    WORDS,
    Net,
    Run,
    assert_as_on_numpy,
    assert_close,
    assert_runs_agree,
    fed_x,
    feed_of,
)

import fluid
from fluid import layers
from fluid.errors import ExecutionError
from fluid.executor.native import cache, compiler
from fluid.executor.planned.padded_plan import PaddedPlan
from fluid.ir.program import Variable
from fluid.values.lod_array import capacity_of


def trained(*parts: Variable, optimizer: str = "SGD") -> Variable:
    loss = layers.reduce_mean(layers.softplus(layers.scale(layers.fc(list(parts), 2), 1e-2)))
    getattr(fluid.optimizer, optimizer)(0.01).minimize(loss)
    return loss


def pooled(kind: str, is_sparse: bool = False, optimizer: str = "SGD") -> Net:
    def build() -> list[Variable]:
        words = fluid.embedding(layers.squeeze(fluid.data("ids", [None, 1], "int64", 1), [1]), [WORDS, WIDTH], is_sparse)
        x = fed_x()
        h = layers.fc(layers.relu(words + x), WIDTH)
        out = layers.sequence_pool(h, kind)
        return [trained(out, optimizer=optimizer), out, h, x.block.var("x@GRAD")]

    return build


def of_declared_rows() -> list[Variable]:
    """Sequences whose number of rows is declared, as in programs from tests of ops."""
    x = fluid.data("x", [19, WIDTH], lod_level=1)
    x.stop_gradient = False
    h = layers.fc(layers.sequence_reverse(layers.tanh(x)), 5, act="tanh")
    weights = layers.sequence_softmax(layers.fc(h, 1))
    pooled = [layers.sequence_pool(h * weights, kind) for kind in ("sum", "max", "average")]
    return [trained(*pooled), weights, layers.sequence_concat([h, h]), x.block.var("x@GRAD")]


def test_rows_whose_number_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_runs_agree(of_declared_rows, monkeypatch, [[7, 0, 9, 2, 1], [3, 4, 5, 6, 1], [19]])


def of_equal_rows() -> list[Variable]:
    """Several rows have the maximum: the gradient goes to the first one."""
    x = fed_x()
    return [trained(layers.sequence_pool(x, "max")), x.block.var("x@GRAD")]


def in_columns() -> list[Variable]:
    words = fluid.embedding(fluid.data("ids", [None, 1], "int64", 1), [WORDS, WIDTH])
    return [trained(layers.sequence_pool(words, "sum")), words]


def expanded() -> list[Variable]:
    x, dense = fed_x(), fluid.data("dense", [None, WIDTH])
    dense.stop_gradient = False
    h = layers.fc(layers.concat([x, layers.sequence_expand(dense, x), layers.sequence_expand_as(dense, x)], 1), 4, act="relu")
    return [trained(layers.sequence_pool(h, "sqrt")), h, *(x.block.var(f"{name}@GRAD") for name in ("x", "dense"))]


def divided() -> list[Variable]:
    """Rows that no sequence fills would be 0 / 0."""
    x, dense = fed_x(), fluid.data("dense", [None, WIDTH])
    shares = layers.elementwise_div(x, layers.sequence_expand_as(layers.square(dense), x))
    return [trained(layers.sequence_pool(shares, "average")), x.block.var("x@GRAD")]


def reversed_rows() -> list[Variable]:
    x = fed_x()
    both = layers.concat([layers.sequence_conv(layers.sequence_reverse(x), 4, 3), layers.sequence_reverse(layers.tanh(x))], 1)
    return [trained(layers.sequence_last_step(both), layers.sequence_first_step(both)), both, x.block.var("x@GRAD")]


def convolved() -> list[Variable]:
    x = fed_x()
    h = layers.sequence_conv(layers.sequence_conv(x, 5, 3, act="relu"), 4, 4, padding_start=0)
    return [trained(layers.sequence_pool(h, "max"), optimizer="Adam"), h, x.block.var("x@GRAD")]


def attended() -> list[Variable]:
    x = fed_x()
    weights = layers.sequence_softmax(layers.fc(layers.fc(x, 4, act="tanh"), 1))
    return [trained(layers.sequence_pool(layers.elementwise_mul(x, weights), "sum")), weights, x.block.var("x@GRAD")]


def of_two_feeds() -> list[Variable]:
    """Two feeds with sequences of different lengths, and a third with the first one's."""
    x, other = fed_x(), fluid.data("beside", [None, BESIDE], lod_level=1)
    words = fluid.embedding(layers.squeeze(fluid.data("ids", [None, 1], "int64", 1), [1]), [WORDS, WIDTH], True)
    second = layers.sequence_pool(layers.fc(other, WIDTH, act="tanh"), "average")
    first = layers.sequence_pool(layers.elementwise_mul(x, words) + layers.sequence_expand_as(second, x), "sum")
    return [trained(first, second, optimizer="Adam"), x.block.var("x@GRAD")]


NETS = {
    **{f"the {kind} of rows": pooled(kind) for kind in ("sum", "average", "sqrt", "max", "first", "last")},
    "sparse gradients": pooled("sum", True),
    "sparse gradients, Adam": pooled("average", True, "Adam"),
    **{build.__name__: build for build in (of_equal_rows, in_columns, expanded, divided, reversed_rows, convolved, attended)},
    "of_two_feeds": of_two_feeds,
}


@each("name", NETS)
def test_batches_of_ever_new_lengths_are_computed_as_on_numpy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_numpy, native = (Run(NETS[name], native, monkeypatch) for native in (False, True))
    by_two_threads = native.beside(threads=2)
    for lengths in BATCHES:
        monkeypatch.setenv("FLUID_NATIVE", "0")
        expected = on_numpy.step(lengths)
        monkeypatch.setenv("FLUID_NATIVE", "1")
        found, by_two = native.step(lengths), by_two_threads.step(lengths)
        assert_close(found, expected)
        assert all(np.array_equal(*pair) for pair in zip(found, by_two, strict=True)), "threads change no bit"
        assert isinstance(native.plan(lengths), PaddedPlan)
        assert "on numpy: none" in str(native.plan(lengths))


def test_new_lengths_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compilations: list[str] = []

    def compile_object(text: str, target: Any) -> bytes:
        compilations.append(text)
        return compiler.compile_object(text, target)

    monkeypatch.setenv("FLUID_NATIVE_CACHE", "0")
    monkeypatch.setattr(cache, "compile_object", compile_object)
    run = Run(pooled("average"), True, monkeypatch)
    run.step([4, 5, 6, 7])
    plan = run.plan([4, 5, 6, 7])
    compilations.clear()
    rng = np.random.default_rng(0)
    for _ in range(20):
        cuts = np.sort(rng.integers(0, 23, 3))
        lengths = np.diff([0, *cuts, rng.integers(max(cuts[-1], 17), 25)]).tolist()
        run.step(lengths)
        assert run.plan(lengths) is plan
    assert not compilations


def test_the_bits_of_a_batch_do_not_depend_on_earlier_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("the max of rows", "attended", "convolved", "of_two_feeds"):
        alone, after = (Run(NETS[name], True, monkeypatch) for _ in range(2))
        state = {key: np.array(array) for key, array in after.scope.arrays().items()}
        for lengths in BATCHES:
            after.step(lengths)
        for key, array in state.items():
            after.scope.var(key).get_tensor().set(array, fluid.CPUPlace())
        found, expected = after.step(BATCHES[2]), alone.step(BATCHES[2])
        assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True)), name


def given_gradients() -> list[Variable]:
    """The gradients of weights for given gradients of rows, whose padding would be copies of the first row."""
    x = fed_x()
    h = layers.fc(x, WIDTH, act="tanh")
    weights = x.block.program.all_parameters()
    cotangent = layers.fc(x, WIDTH)
    return [*fluid.gradients([h], weights, [cotangent]), layers.sequence_pool(h, "sum")]


def of_second_order() -> list[Variable]:
    x = fed_x()
    total = layers.reduce_sum(layers.square(layers.sequence_pool(layers.tanh(x), "average")))
    (slope,) = fluid.gradients([total], [x])
    penalty = layers.reduce_sum(layers.square(layers.sequence_pool(layers.fc(slope, 2), "sum")))
    fluid.optimizer.SGD(0.1).minimize(penalty)
    return [penalty, slope]


def recomputed() -> list[Variable]:
    """The forward part between checkpoints is computed again in the backward part."""
    x, dense = fed_x(), fluid.data("dense", [None, WIDTH])
    h = layers.fc(layers.elementwise_div(x, layers.sequence_expand(layers.square(dense), x)), 4, act="tanh")
    out = layers.sequence_pool(layers.fc(layers.sequence_reverse(h), 4, act="tanh"), "max")
    loss = layers.reduce_mean(layers.square(layers.fc(out, 1)))
    optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
    optimizer._set_checkpoints([h, out])
    optimizer.minimize(loss)
    return [loss]


@each("build", [given_gradients, of_second_order, recomputed])
def test_other_gradients_are_those_on_numpy(build: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the rows are padded."""
    assert_as_on_numpy(build, monkeypatch)


def joined() -> list[Variable]:
    """Sequences of different lengths, joined one by one, and joined again."""
    x, other = fed_x(), fluid.data("beside", [None, BESIDE], lod_level=1)
    other.stop_gradient = False
    once = layers.sequence_concat([layers.fc(other, WIDTH), x, layers.tanh(x)])
    twice = layers.sequence_concat([layers.sequence_conv(layers.sequence_reverse(once), WIDTH, 3), once])
    weights = layers.sequence_softmax(layers.fc(twice, 1))
    loss = trained(layers.sequence_pool(layers.elementwise_mul(twice, weights), "sum"), layers.sequence_pool(once, "max"))
    return [loss, once, twice, *(x.block.var(f"{name}@GRAD") for name in ("x", "beside"))]


def joined_ids() -> list[Variable]:
    """The words of two feeds look up one table."""
    ids = layers.sequence_concat([fluid.data(name, [None, 1], "int64", 1) for name in ("ids", "tags")])
    words = fluid.embedding(layers.squeeze(ids, [1]), [WORDS, WIDTH], is_sparse=True)
    return [trained(layers.sequence_pool(words, "average"), optimizer="Adam"), ids]


@each("build", [joined, joined_ids])
def test_joined_sequences(build: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_runs_agree(build, monkeypatch)


def slices() -> list[Variable]:
    x, bounds = fed_x(), [fluid.data(name, [None, 1], "int64") for name in ("start", "size")]
    h = layers.fc(x, 5, act="tanh")
    part = layers.sequence_slice(h, *bounds)
    both = layers.sequence_concat([layers.sequence_conv(part, 5, 3), h])
    loss = trained(layers.sequence_pool(both, "sum"), layers.sequence_pool(part, "average"))
    return [loss, part, both, x.block.var("x@GRAD")]


def test_slices_by_fed_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [Run(slices, native, monkeypatch) for native in (False, True)]
    for number, lengths in enumerate([[4, 1, 7, 0, 3], [2, 2, 2, 1, 9], [1, 1, 1, 1, 1], [40, 3, 1, 8, 2]]):
        rng, counts = np.random.default_rng(number), np.array(lengths)
        starts = rng.integers(0, counts + 1) * (number != 2)
        feed = {
            **runs[0].feed(lengths),
            "start": starts[:, None],
            "size": rng.integers(0, counts - starts + 1)[:, None] if number != 2 else np.zeros((5, 1), np.int64),
        }
        results: list[list[Any]] = []
        for native, run in enumerate(runs):
            monkeypatch.setenv("FLUID_NATIVE", str(native))
            results.append([part for tensor in run.tensors(feed) for part in (np.asarray(tensor), tensor.lod())])
            wrong = {**feed, "size": counts[:, None] + 1 - starts[:, None]}
            with pytest.raises(ExecutionError, match=r"sequence_slice failed: sequence 0 has .* are asked for") as error:
                run.executor.run(run.program, wrong, run.fetches, scope=run.scope)
            assert "test_padded_rows.py" in str(error.value)
        assert_close(results[1], results[0])
        assert isinstance(runs[1].executor.plan(runs[1].program, feed, runs[1].fetches, scope=runs[1].scope), PaddedPlan)


def in_steps() -> list[Variable]:
    """Sequences as steps of one length, and back."""
    x = fed_x()
    steps, lengths = layers.sequence_pad(layers.fc(x, 6, act="tanh"), layers.zeros([1], "float32"), 9)
    hidden = layers.fc(layers.transpose(steps, [0, 2, 1]), 5, act="tanh")
    rows = layers.sequence_unpad(layers.fc(steps, 3, num_flatten_dims=2, act="tanh"), lengths)
    return [trained(hidden, layers.sequence_pool(rows, "sqrt")), steps, rows, lengths, x.block.var("x@GRAD")]


def test_sequences_in_steps_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [lengths for lengths in BATCHES if max(lengths) <= 9]
    run = assert_runs_agree(in_steps, monkeypatch, batches)
    with pytest.raises(ExecutionError, match="padded_length is 9, but a sequence has 10 rows") as error:
        run.step([2, 10, 1, 3, 4])
    assert "test_padded_rows.py" in str(error.value)
    assert_runs_agree(in_steps, monkeypatch, batches)


def net_of(make: Callable[[Variable], Variable]) -> Net:
    def build() -> list[Variable]:
        x = fed_x()
        return [trained(make(x)), x.block.var("x@GRAD")]

    return build


MIXING = {
    "a mean of rows": net_of(lambda x: layers.reshape(layers.reduce_mean(x, 0), [1, WIDTH])),
    "a product of rows": net_of(lambda x: layers.reduce_prod(x, 0, keep_dim=True)),
    "a softmax over rows": net_of(lambda x: layers.sequence_pool(layers.softmax(x, axis=0), "sum")),
    "sums along rows": net_of(lambda x: layers.sequence_pool(layers.cumsum(x, axis=0), "sum")),
    "maxima, and another number": net_of(lambda x: layers.sequence_pool(x, "max", pad_value=2.0)),
    "means, and another number": net_of(lambda x: layers.sequence_pool(x, "average", pad_value=2.0)),
    "last rows, and another number": net_of(lambda x: layers.sequence_pool(x, "last", pad_value=2.0)),
}
"""Nets with an op that mixes rows."""


@each("name", MIXING)
def test_ops_that_mix_rows_get_the_real_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_runs_agree(MIXING[name], monkeypatch, [[2, 0, 3], [1, 1, 1], [5, 0, 3], [9, 0, 9]])


def with_kept_rows() -> list[Variable]:
    x = fed_x()
    last = layers.create_global_var([5, WIDTH], 0.0, "float32", persistable=True)
    layers.assign(x, last)
    return [trained(layers.sequence_pool(x, "sum"))]


def with_a_loop() -> list[Variable]:
    loop = layers.DynamicRNN()
    with loop.block():
        now = loop.step_input(fed_x())
        before = loop.memory(shape=[WIDTH], value=0.0)
        after = layers.tanh(now + layers.cumsum(before, axis=0))
        loop.update_memory(before, after)
        loop.output(after)
    return [trained(layers.sequence_last_step(loop()))]


OP_BY_OP = {
    "rows that the scope keeps": with_kept_rows,
    "a loop whose steps mix sequences": with_a_loop,
    "sequences as long as the longest": net_of(
        lambda x: layers.reduce_sum(layers.sequence_pad(x, layers.ones([1], "float32"))[0], 1)
    ),
    "sequences of a fixed length, and another number": net_of(
        lambda x: layers.reduce_sum(layers.sequence_pad(x, layers.ones([1], "float32"), 9)[0], 1)
    ),
}
"""Nets with values whose shapes follow from neither the number of rows nor the number of sequences."""


@each("name", OP_BY_OP)
def test_other_programs_run_op_by_op(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [[2, 0, 3], [1, 1, 1]]
    run = assert_as_on_numpy(OP_BY_OP[name], monkeypatch, batches)
    assert not any(isinstance(run.plan(lengths), PaddedPlan) for lengths in batches)


def test_batches_without_rows_run_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(of_equal_rows, True, monkeypatch)
    with pytest.warns(UserWarning, match="empty batch"):
        run.step([0, 0])
    assert "step by step" in str(run.plan([0, 0]))


# ---------------------------------------------------------------------------------------------------- nested sequences
def texts(kind: str) -> list[Variable]:
    """Words of sentences of texts; both levels are pooled."""
    x = fluid.data("x", [None, WIDTH], lod_level=2)
    x.stop_gradient = False
    words = layers.fc(x, 5, act="tanh")
    sentences = layers.fc(layers.sequence_pool(words, kind), 4, act="tanh")
    return [trained(layers.sequence_pool(sentences, kind)), words, sentences, x.block.var("x@GRAD")]


def of_attention() -> list[Variable]:
    """Ops over words, and a recurrence over sentences."""
    x = fluid.data("x", [None, WIDTH], lod_level=2)
    x.stop_gradient = False
    words = layers.sequence_conv(layers.sequence_reverse(layers.fc(x, 6, act="tanh")), 6, 3)
    weights = layers.sequence_softmax(layers.fc(words, 1))
    sentences = layers.sequence_pool(layers.elementwise_mul(words, weights), "sum")
    states = layers.dynamic_gru(layers.fc(sentences, 9), 3)
    parts = [layers.sequence_pool(layers.sequence_softmax(layers.fc(states, 1)) * states, "sqrt"), layers.reduce_mean(words, 0)]
    loss = trained(parts[0]) + layers.reduce_mean(parts[1])
    return [loss, weights, states, x.block.var("x@GRAD")]


def of_two_levels() -> list[Variable]:
    """A vector of each sentence beside its words, whose sentences and texts are fed apart, too."""
    x, said = fluid.data("x", [None, WIDTH], lod_level=2), fluid.data("said", [None, 3], lod_level=1)
    x.stop_gradient = said.stop_gradient = False
    sentences = layers.concat([layers.sequence_pool(x, "max"), said], 1)
    last = layers.sequence_last_step(layers.fc(sentences, 4, act="tanh"))
    return [trained(last, layers.sequence_pool(said, "average")), sentences, *(x.block.var(f"{n}@GRAD") for n in ("x", "said"))]


def over_words() -> list[Variable]:
    """Recurrences over the words of each sentence and over sentences, tags of words, and means over all of them."""
    x, tags = fluid.data("x", [None, WIDTH], lod_level=2), fluid.data("tags", [None, 1], "int64", 2)
    x.stop_gradient = False
    states, _ = layers.dynamic_lstm(layers.fc(x, 12), 12, is_reverse=True)
    sentences = layers.dynamic_gru(layers.fc(layers.sequence_pool(states, "last"), 9), 3)
    costs = layers.linear_chain_crf(layers.fc(states, TAGS), tags, param_attr=fluid.ParamAttr("moves"))
    loss = trained(layers.sequence_pool(sentences, "average")) + layers.mean(costs) + layers.mean(layers.softmax(states, axis=0))
    best = layers.crf_decoding(layers.fc(states, TAGS), param_attr=fluid.ParamAttr("moves"))
    return [loss, states, sentences, costs, best, x.block.var("x@GRAD")]


TEXTS = [
    ([2, 1], [3, 1, 2]), ([1, 0, 2], [4, 1, 1]), ([3, 3, 3], [0, 2, 1, 0, 0, 4, 1, 1, 1]), ([2, 1], [1, 1, 1]),
    ([1], [1]), ([5, 20, 3], [number % 6 for number in range(28)]), ([0, 4], [0, 0, 0, 2]), ([2, 2], [70, 1, 0, 130]),
]  # fmt: skip
"""Numbers of sentences in texts, and of words in sentences."""


@each(
    "build",
    [*(partial(texts, kind) for kind in ("sum", "average", "sqrt", "max", "first", "last"))]
    + [of_attention, of_two_levels, over_words],
)
def test_nested_sequences(build: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [Run(build, native, monkeypatch) for native in (False, True)]
    for number, (sentences, words) in enumerate(TEXTS):
        rng, levels = np.random.default_rng(number), [[0, *np.cumsum(part).tolist()] for part in (sentences, words)]
        feed = {"x": (rng.standard_normal((sum(words), WIDTH)).astype("float32"), levels)}
        feed["said"] = rng.standard_normal((sum(sentences), 3)).astype("float32"), levels[:1]
        feed["tags"] = rng.integers(0, TAGS, (sum(words), 1)), levels
        feed, results = {name: value for name, value in feed.items() if name in runs[0].names}, []
        for native, run in enumerate(runs):
            monkeypatch.setenv("FLUID_NATIVE", str(native))
            fetched = [part for tensor in run.tensors(feed) for part in (np.asarray(tensor), run.lod(tensor))]
            results.append(fetched + run.states())
        assert_close(results[1], results[0])
        plan = runs[1].executor.plan(runs[1].program, feed, runs[1].fetches, scope=runs[1].scope)
        assert isinstance(plan, PaddedPlan)


def over_sentences() -> list[Variable]:
    """A vector of each text for each of its sentences: the other level."""
    x, dense = fluid.data("x", [None, WIDTH], lod_level=2), fluid.data("dense", [None, WIDTH])
    return [trained(layers.sequence_expand(layers.tanh(dense), x, ref_level=0))]


def test_a_vector_for_each_sentence_of_a_text_runs_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, losses = np.random.default_rng(0), []
    x, dense = (rng.standard_normal((rows, WIDTH)).astype("float32") for rows in (6, 2))
    feed = {"x": (x, [[0, 2, 3], [0, 3, 4, 6]]), "dense": dense}
    for native in (False, True):
        run = Run(over_sentences, native, monkeypatch)
        losses.append(run.executor.run(run.program, feed, run.fetches, scope=run.scope)[0])
    assert "step by step" in str(run.executor.plan(run.program, feed, run.fetches, scope=run.scope))
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_ids_outside_of_the_table_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(in_columns, True, monkeypatch)
    run.step([2, 1])
    feed = {"ids": (np.array([[1], [WORDS], [2]]), [[2, 1]])}
    with pytest.raises(ExecutionError, match=f"index {WORDS}"):
        run.executor.run(run.program, feed, run.fetches, scope=run.scope)


def test_infinities_stay_in_their_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> list[Variable]:
        x = fed_x()
        return [layers.sequence_pool(layers.log(x), kind) for kind in ("sum", "max")]

    run = Run(build, True, monkeypatch)
    rows = np.array([[0, 1, 2, 3], [1, 1, 1, 1], [3, np.nan, 1, 2]], "float32")
    sums, maxima = run.executor.run(run.program, {"x": (rows, [[1, 0, 2]])}, run.fetches, scope=run.scope)
    with np.errstate(divide="ignore"):
        logs = np.log(rows)
    np.testing.assert_allclose(sums, [logs[0], [0, 0, 0, 0], logs[1] + logs[2]], rtol=1e-6)
    np.testing.assert_allclose(maxima, [logs[0], [0, 0, 0, 0], np.maximum(logs[1], logs[2])], rtol=1e-6)


def test_a_changed_program_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_programs() as (program, startup):
        x = fed_x()
        out = layers.sequence_pool(x, "sum")
        executor = fluid.Executor()
        feed = {"x": feed_of([2, 1])["x"]}
        executor.run(startup)
        first = executor.run(program, feed, [out])[0]
        mean = layers.reduce_mean(x, 0)
        found = executor.run(program, feed, [out, mean])
        np.testing.assert_array_equal(found[0], first)
        np.testing.assert_allclose(found[1], feed["x"][0].mean(0), rtol=1e-6)


def test_capacities_leave_a_quarter_free_at_most() -> None:
    for rows in (*range(1, 300), 1023, 1024, 1025, 1 << 20):
        capacity = capacity_of(rows)
        assert rows <= capacity <= max(1.25 * rows, rows + 7) and capacity == capacity_of(capacity)
    assert len({capacity_of(rows) for rows in range(1, 1 << 14)}) < 45
    assert {capacity_of(rows, 3) for rows in range(1, 1 << 10)} == {8, 16, 32, 64, 128, 256, 512, 1024}


def test_the_longest_of_nested_sequences_decides_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape that follows from the longest sequence has no padding."""
    x = fluid.data("x", [None, 2], lod_level=2)
    padded, lengths = layers.sequence_pad(layers.relu(x), layers.zeros([1], "float32"))
    for counts in ([1, 2, 3], [1, 1, 5]):
        feed = {"x": fluid.create_lod_tensor(np.ones((sum(counts), 2), "float32"), [[2, 1], counts], fluid.CPUPlace())}
        expected = (np.arange(max(counts)) < np.array(counts)[:, None]).astype("float32")
        for native in "01":
            monkeypatch.setenv("FLUID_NATIVE", native)
            found, found_lengths = fluid.Executor().run(feed=feed, fetch_list=[padded, lengths])
            np.testing.assert_array_equal(found, np.repeat(expected[..., None], 2, 2))
            assert found_lengths.tolist() == counts


@each(("width", "lengths"), [(2, [[1, 2, 3]]), (None, [[1, 2, 3]]), (2, [[1, 2], [1, 2, 3]])])
@each("layer", [layers.sequence_expand, layers.sequence_expand_as], ids=["sequence_expand", "sequence_expand_as"])
def test_a_row_for_each_sequence_is_asked_for(
    layer: Callable[..., Variable], width: Any, lengths: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With native code, too, more rows than sequences are refused."""
    monkeypatch.setenv("FLUID_NATIVE", "1")
    x, rows = fluid.data("x", [None, 2], lod_level=len(lengths)), fluid.data("rows", [None, width])
    out = layers.relu(layer(layers.relu(rows), layers.relu(x)))
    sequences = fluid.create_lod_tensor(np.ones((6, 2), "float32"), lengths, fluid.CPUPlace())
    for count in (2, 4):
        with pytest.raises(ExecutionError, match=f"{layer.__name__} failed: X float32.{count}, 2. .*3 sequences"):
            fluid.Executor().run(feed={"x": sequences, "rows": np.ones((count, 2), "float32")}, fetch_list=[out])
