"""`DynamicRNN`: its loop is written as a recurrence over padded steps, so one native plan serves batches of many lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from checks import each
from padded_runs import BATCHES, WIDTH, Run, assert_close, assert_runs_agree, fed

import fluid
from fluid import layers
from fluid.errors import IndexRangeError
from fluid.executor.planned.padded_plan import PaddedPlan
from fluid.ir.program import Variable

SIZE = 5
Step = Callable[[layers.DynamicRNN, str], "list[Variable]"]
"""Builds the block of a recurrence; returns its outputs."""


def before(build: Callable[[], Variable]) -> Variable:
    """Build a layer outside of the recurrence."""
    program = fluid.default_main_program()
    with program.block_guard(program.global_block()):
        return build()


def simple(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    x, state = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[SIZE], value=0.5, dtype=dtype)
    after = layers.fc([x, state], SIZE, act="tanh")
    rnn.update_memory(state, after)
    return [after]


def of_two_states(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """An LSTM's cell by hand, whose gates depend on ids, too."""
    x, ids = rnn.step_input(fed("x", dtype)), rnn.step_input(fed("ids"))
    state, cell = (rnn.memory(shape=[SIZE], value=value, dtype=dtype) for value in (0.0, 1.0))
    word = layers.embedding(ids, [11, 3], dtype=dtype)
    gates = layers.fc([x, word, state], 4 * SIZE)
    forget, enter, leave, new = layers.split(gates, 4, dim=1)
    new_cell = layers.sigmoid(forget) * cell + layers.sigmoid(enter) * layers.tanh(new)
    after = layers.sigmoid(leave) * layers.tanh(new_cell)
    rnn.update_memory(cell, new_cell)
    rnn.update_memory(state, after)
    return [after, cell]


def from_outside(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """Memories from outside, in the order of the batch and in rank order; a static input."""
    x, first = rnn.step_input(fed("x", dtype)), before(lambda: layers.fc(fed("dense", dtype), SIZE))
    state, ranked = rnn.memory(init=first, need_reorder=True), rnn.memory(init=first)
    static = rnn.static_input(fed("dense", dtype))
    after = layers.fc([x, state, layers.tanh(static)], SIZE, act="sigmoid")
    rnn.update_memory(state, after)
    rnn.update_memory(ranked, ranked * 0.5 + after)
    return [after, ranked]


def of_one_first_value(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    first = before(lambda: layers.fc(fed("dense", dtype), SIZE))
    x, state, cell = rnn.step_input(fed("x", dtype)), rnn.memory(init=first), rnn.memory(init=first)
    after = layers.fc([x, state, layers.tanh(cell)], SIZE, act="sigmoid")
    rnn.update_memory(state, after)
    rnn.update_memory(cell, cell * 0.5 + after)
    return [after]


def beside_an_idle_state(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """Two states have one first value, and the result depends on one of them alone."""
    first = before(lambda: layers.fc(fed("dense", dtype), SIZE))
    x, idle, state = rnn.step_input(fed("x", dtype)), rnn.memory(init=first, need_reorder=True), rnn.memory(init=first)
    after = layers.fc([x, state], SIZE, act="sigmoid")
    rnn.update_memory(idle, layers.tanh(after))
    rnn.update_memory(state, after)
    return [after]


def attentive(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    x, words = rnn.step_input(fed("x", dtype)), rnn.static_input(fed("beside", dtype))
    state = rnn.memory(shape=[SIZE], dtype=dtype)
    query = layers.sequence_expand(layers.fc(state, SIZE), words)
    weights = layers.sequence_softmax(layers.fc(layers.tanh(layers.fc(words, SIZE) + query), 1))
    context = layers.sequence_pool(layers.elementwise_mul(words, weights, axis=0), "sum")
    after = layers.fc([x, state, context], SIZE, act="tanh")
    rnn.update_memory(state, after)
    return [after]


def attentive_to_itself(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """The steps and the static sequences have one LoD."""
    x, words = rnn.step_input(fed("x", dtype)), rnn.static_input(before(lambda: layers.fc(fed("x", dtype), SIZE)))
    state = rnn.memory(shape=[SIZE], dtype=dtype)
    gated = layers.elementwise_mul(words, layers.sigmoid(layers.sequence_expand_as(state, words)))
    after = layers.fc([x, layers.sequence_pool(gated, "average"), layers.sequence_pool(words, "max")], SIZE, act="tanh")
    rnn.update_memory(state, after)
    return [after]


def greedy(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """Each step reads the id that the step before has chosen."""
    rnn.step_input(fed("x", dtype))
    word, state = rnn.memory(shape=[1], value=1, dtype="int64"), rnn.memory(shape=[SIZE], dtype=dtype)
    read = layers.reshape(layers.embedding(word, [11, 3], dtype=dtype), [-1, 3])
    after = layers.fc([read, state], SIZE, act="tanh")
    scores = layers.fc(after, 11)
    best = layers.unsqueeze(layers.argmax(scores, axis=1), [1])
    rnn.update_memory(word, best)
    rnn.update_memory(state, after)
    return [best, scores]


def drops(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """The numbers of a trip are for the sequences that are not over, the longest first."""
    x, state = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[WIDTH], dtype=dtype)
    after = layers.tanh(layers.dropout(layers.dropout(x, 0.2) + state, 0.4, dropout_implementation="upscale_in_train"))
    rnn.update_memory(state, after)
    return [after, layers.dropout(layers.dropout(after, 0.3, seed=5), 0.3, is_test=True)]


def branching(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """The rows of a step take two branches; some trips have rows for one of them alone."""
    x, state = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[SIZE], dtype=dtype)
    after = layers.fc([x, state], SIZE, act="tanh")
    means = layers.reduce_mean(after, 1, keep_dim=True)
    branch = layers.IfElse(layers.less_than(means, layers.zeros_like(means)))
    with branch.true_block():
        branch.output(layers.fc(branch.input(after), SIZE, act="sigmoid"), branch.input(x) * 0.5)
    with branch.false_block():
        branch.output(layers.log(1.0 + layers.square(branch.input(after))), branch.input(x))
    results = branch()
    rnn.update_memory(state, results[0])
    return results


def without_states(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    x, static = rnn.step_input(fed("x", dtype)), rnn.static_input(fed("dense", dtype))
    return [layers.fc(x, SIZE), x, x + static, static]


def of_growth(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """A sequence that went on after its end would overflow, and divide by 0."""
    x, state = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[WIDTH], value=1.0, dtype=dtype)
    after = layers.elementwise_div(state * 1.01, state + 1.0) + layers.abs(x)
    rnn.update_memory(state, after)
    return [after, layers.log(after)]


def reads_all_rows(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """A step depends on the number of sequences that are not over."""
    x, state = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[WIDTH], dtype=dtype)
    after = layers.tanh(x + state - layers.reduce_mean(x))
    rnn.update_memory(state, after)
    return [after]


def reads_mean_of_states(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    x, state = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[WIDTH], dtype=dtype)
    after = layers.tanh(x + state - layers.reduce_mean(state, dim=0, keep_dim=True))
    rnn.update_memory(state, after)
    return [after]


def choosing(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """The sequences that are not over decide together; both branches read a state, one of them a static input."""
    x, static = rnn.step_input(fed("x", dtype)), rnn.static_input(fed("dense", dtype))
    state = rnn.memory(shape=[WIDTH], value=0.5, dtype=dtype)
    is_large = layers.greater_than(layers.mean(x), layers.fill_constant([1], dtype, 0.0))
    after = layers.cond(
        is_large,
        lambda: layers.fc([x, state], WIDTH, act="tanh"),
        lambda: layers.fc(layers.reshape(state, [-1, WIDTH]), WIDTH, act="sigmoid") * static,
    )
    rnn.update_memory(state, after)
    ids = rnn.step_input(fed("ids"))
    are_large = layers.greater_than(layers.reduce_sum(ids), layers.fill_constant([1], "int64", 9))
    some_are = layers.reduce_any(layers.greater_than(ids, layers.fill_constant([1], "int64", 7)))
    chosen = layers.cond(layers.logical_and(are_large, some_are), lambda: x + 1.0, lambda: layers.assign(state))
    return [after, chosen, layers.cond(some_are, lambda: layers.zeros_like(x), lambda: layers.scale(x, 0.5))]


def by_turns(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """A counter decides. In steps that take the other branch, a sequence that is over would divide by 0."""
    x, count = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[1], value=1.0, dtype=dtype)
    state = rnn.memory(shape=[WIDTH], dtype=dtype)
    number = layers.mean(count)
    is_early = layers.less_than(number, layers.fill_constant([1], dtype, 2.5))
    after = layers.cond(
        is_early, lambda: layers.tanh(x + state), lambda: layers.elementwise_div(layers.tanh(x) + state, count - 2.0, axis=0)
    )
    rnn.update_memory(count, count + 1.0)
    rnn.update_memory(state, layers.tanh(after / number))
    return [after, layers.elementwise_div(state, layers.elementwise_mul(count, number), axis=0)]


def overwriting(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """Branches overwrite a value of the step's input alone, twice, and one that depends on a state, which they read again."""
    x, state = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[WIDTH], value=0.5, dtype=dtype)
    word, after = layers.fc(x, WIDTH), layers.fc([x, state], WIDTH, act="tanh")
    is_large = layers.greater_than(layers.mean(x), layers.fill_constant([1], dtype, 0.0))
    with layers.control_flow.ConditionalBlock([is_large], is_scalar_condition=True).block():
        layers.assign(layers.sigmoid(word), word)
        layers.assign(after * layers.fc(word, WIDTH), after)
        layers.assign(layers.tanh(after), after)
    with layers.control_flow.ConditionalBlock([layers.logical_not(is_large)], is_scalar_condition=True).block():
        layers.assign(word * 0.5 + state, word)
    rnn.update_memory(state, layers.tanh(after + word))
    return [after, word]


def of_whole_steps(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """Sums and means of all rows of a step, along some axes and all; extremes of values without gradients."""
    x, state = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[WIDTH], dtype=dtype)
    total = layers.tanh(layers.reduce_sum(layers.fc(state, WIDTH), dim=[0], keep_dim=True))
    fixed = layers.cast(x, dtype)
    fixed.stop_gradient = True
    largest, least = layers.reduce_max(fixed, dim=0, keep_dim=True), layers.reduce_min(fixed, dim=[0, 1], keep_dim=True)
    after = layers.tanh(layers.fc(x, WIDTH) + state * total - layers.reduce_mean(state) + (largest - least) * 0.1)
    rnn.update_memory(state, after)
    return [after]


STEPS = [
    branching,
    drops,
    simple,
    of_two_states,
    from_outside,
    of_one_first_value,
    beside_an_idle_state,
    attentive,
    attentive_to_itself,
    greedy,
    without_states,
    of_growth,
    reads_all_rows,
    reads_mean_of_states,
    choosing,
    by_turns,
    overwriting,
    of_whole_steps,
]


def recurrence(step: Step, dtype: str = "float32") -> list[Variable]:
    rnn = layers.DynamicRNN()
    with rnn.block():
        outputs = step(rnn, dtype)
        rnn.output(*outputs)
    results = rnn()
    results = results if isinstance(results, list) else [results]
    last = layers.sequence_last_step(layers.cast(results[0], dtype))
    return [*results, layers.fc([last, layers.sequence_pool(layers.cast(results[-1], dtype), "max")], 2)]


def assert_native(run: Run) -> None:
    """Assert that native code computes the loop of a program."""
    plan = str(run.plan([3, 2, 0, 4, 1]))
    assert "while" not in plan and "recurrent(" not in plan and "recurrent_grad(" not in plan


def batches_of(dtype: str, longest: int) -> list[list[int]]:
    """Batches with short first sequences; for float64 only three, of two capacities, as the rewriting asks for no type."""
    batches = [lengths for lengths in BATCHES if lengths[0] < longest]
    return batches if dtype == "float32" else batches[:3]


@each("step", STEPS)
@each("dtype", ["float32", "float64"])
def test_predictions_have_padded_plans(step: Step, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = assert_runs_agree(lambda: recurrence(step, dtype), monkeypatch, batches_of(dtype, 100), dtype)
    assert_native(run)


def of_infinities(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """Infinite sums and means of steps, beside sequences that are over."""
    x, state = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[WIDTH], dtype=dtype)
    large = layers.exp(x * 50.0)
    after = layers.tanh(state + x * 0.1 + layers.reduce_sum(large, dim=[0], keep_dim=True) - layers.reduce_mean(x))
    rnn.update_memory(state, after)
    return [after, layers.tanh(x + layers.reduce_mean(large))]


def test_sums_of_infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_native(assert_runs_agree(lambda: recurrence(of_infinities), monkeypatch, batches_of("float32", 100)))


def test_predictions_on_one_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_runs_agree(lambda: recurrence(of_two_states), monkeypatch, [[5], [1], [9], [40]])


def nested(lengths: Sequence[Sequence[int]], seed: int = 0) -> dict[str, Any]:
    """Texts of sentences with these numbers of words."""
    sentences, words = [len(text) for text in lengths], [count for text in lengths for count in text]
    rng = np.random.default_rng(seed)
    lod = [[0, *accumulate(sentences)], [0, *accumulate(words)]]
    return {"words": (rng.standard_normal((sum(words), WIDTH)).astype("float32"), lod)}


TEXTS = [
    [[3, 1], [2], [4, 1, 2]], [[0, 2], [], [1, 0, 5]], [[1], [1], [1]], [[2, 2], [2, 2], [2, 2]], [[9, 9, 9, 9, 9], [], [1]],
]  # fmt: skip


def pooled(words: Variable) -> Variable:
    return layers.sequence_pool(layers.fc(words, SIZE, act="tanh"), "average")


def weighted(words: Variable) -> Variable:
    weights = layers.sequence_softmax(layers.fc(words, 1))
    return layers.sequence_pool(layers.elementwise_mul(words, weights, axis=0), "sum")


def encoded(words: Variable) -> Variable:
    return layers.sequence_last_step(layers.dynamic_gru(layers.fc(layers.sequence_reverse(words), 3 * SIZE), SIZE))


def over_sentences(sentence: Callable[[Variable], Variable]) -> list[Variable]:
    words = fluid.data("words", [None, WIDTH], "float32", 2)
    rnn = layers.DynamicRNN()
    with rnn.block():
        read, state = rnn.step_input(words), rnn.memory(shape=[SIZE])
        after = layers.fc([sentence(read), state], SIZE, act="tanh")
        rnn.update_memory(state, after)
        rnn.output(after)
    return [rnn(), layers.fc(layers.sequence_last_step(rnn()), 2)]


def over_words(sentence: Callable[[Variable], Variable]) -> list[Variable]:
    """A recurrence over the words of each sentence, and one over the sentences of each text."""
    words = fluid.data("words", [None, WIDTH], "float32", 2)
    inner = layers.DynamicRNN()
    with inner.block():
        read, state = inner.step_input(words, level=1), inner.memory(shape=[SIZE])
        after = layers.fc([read, state], SIZE, act="tanh")
        inner.update_memory(state, after)
        inner.output(after)
    outer = layers.DynamicRNN()
    with outer.block():
        read, state = outer.step_input(before(lambda: sentence(inner()))), outer.memory(shape=[SIZE])
        after = layers.fc([read, state], SIZE, act="tanh")
        outer.update_memory(state, after)
        outer.output(after)
    return [inner(), outer()]


@each("build", [over_sentences, over_words])
@each("sentence", [pooled, weighted, encoded])
def test_predictions_over_nested_sequences_have_padded_plans(
    build: Callable[..., list[Variable]], sentence: Callable[[Variable], Variable], monkeypatch: pytest.MonkeyPatch
) -> None:
    op_by_op, padded = (Run(lambda: build(sentence), native, monkeypatch) for native in (False, True))
    for number, lengths in enumerate(TEXTS):
        monkeypatch.setenv("FLUID_NATIVE", "0")
        expected = op_by_op.tensors(nested(lengths, number))
        monkeypatch.setenv("FLUID_NATIVE", "1")
        results = padded.tensors(nested(lengths, number))
        assert_close(list(map(np.asarray, results)), list(map(np.asarray, expected)))
        assert [one.lod() for one in results] == [one.lod() for one in expected]
        plan = padded.executor.plan(padded.program, nested(lengths), padded.fetches, scope=padded.scope)
        assert isinstance(plan, PaddedPlan)


def reads_words_unshrunk(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """A value from outside, which is the same in each step."""
    total = before(lambda: layers.reduce_sum(layers.sequence_pool(fed("beside", dtype), "sum"), dim=0, keep_dim=True))
    x = rnn.step_input(fed("x", dtype))
    return [layers.fc(x, 3) + total]


def reads_sums_of_rows(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    """The running sums of a step's rows depend on the order of the sequences."""
    x, state = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[WIDTH], dtype=dtype)
    after = layers.tanh(layers.fc(x, WIDTH) + layers.cumsum(state, axis=0))
    rnn.update_memory(state, after)
    return [after]


def reads_largest_row(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    x, state = rnn.step_input(fed("x", dtype)), rnn.memory(shape=[WIDTH], dtype=dtype)
    after = layers.tanh(layers.fc(x, WIDTH) + state - layers.reduce_max(state, dim=0, keep_dim=True))
    rnn.update_memory(state, after)
    return [after]


@each("step", [reads_sums_of_rows, reads_largest_row])
def test_steps_that_mix_sequences_run_op_by_op(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    op_by_op, native = (Run(lambda: trained(step, "float32"), flag, monkeypatch) for flag in (False, True))
    for lengths in ([3, 1, 2], [2, 0, 4]):
        assert_close(native.step(lengths), op_by_op.step(lengths))
        assert not isinstance(native.plan(lengths), PaddedPlan)


def test_values_from_outside_stay_in_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_runs_agree(lambda: recurrence(reads_words_unshrunk), monkeypatch, BATCHES[:3])


def test_batches_of_very_different_lengths_leave_out_what_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    native = Run(lambda: recurrence(simple), True, monkeypatch)
    assert isinstance(native.plan([200, 1, 2, 1]), PaddedPlan)
    assert not isinstance(native.plan([400, *[2] * 40]), PaddedPlan)


def trained(step: Step, dtype: str) -> list[Variable]:
    *results, scores = recurrence(step, dtype)
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, fed("label")))
    if results[0].dtype.name.startswith("FP"):
        loss = loss + layers.mean(layers.square(results[0]))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss, *results]


@each("step", STEPS)
@each("dtype", ["float32", "float64"])
def test_training_has_padded_plans(step: Step, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = assert_runs_agree(lambda: trained(step, dtype), monkeypatch, batches_of(dtype, 70), dtype)
    assert_native(run)


def test_gradients_of_feeds_go_through_recurrences(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is the input of steps, the first value of a state and a static input has one gradient of three parts."""

    def build() -> list[Variable]:
        x, dense = fed("x"), fed("dense")
        rnn = layers.DynamicRNN()
        with rnn.block():
            read, state = rnn.step_input(x), rnn.memory(init=dense, need_reorder=True)
            ranked, own = rnn.memory(init=dense, need_reorder=True), rnn.static_input(x)
            after = layers.tanh(read * state + rnn.static_input(dense) + layers.sequence_pool(own, "max") + ranked)
            rnn.update_memory(state, after)
            rnn.update_memory(ranked, after)
            rnn.output(after, read)
        loss = layers.mean(layers.square(rnn()[0])) + layers.mean(rnn()[1])
        return [loss, *fluid.gradients([loss], [x, dense])]

    assert_runs_agree(build, monkeypatch, [[2, 0, 3, 1, 1], [4, 4, 4], [1], [0, 5, 0]])


def test_values_without_gradients_stop_them_in_recurrences(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(no_grad: bool) -> list[Variable]:
        x = fed("x")
        rnn = layers.DynamicRNN()
        with rnn.block():
            read, state = rnn.step_input(x), rnn.memory(shape=[SIZE])
            word, former = layers.fc(read, SIZE, act="tanh"), layers.fc(state, SIZE, act="tanh")
            former.stop_gradient = True
            after = layers.tanh(word + former + state + layers.fc(read, SIZE))
            rnn.update_memory(state, after)
            rnn.output(after)
        loss = layers.mean(rnn())
        return [loss, *fluid.gradients([loss], [x], no_grad_set=[word.name] if no_grad else None)]

    for no_grad in (False, True):
        assert_runs_agree(lambda: build(no_grad), monkeypatch, [[2, 0, 3, 1, 1], [4, 1]])  # noqa: B023


def looks_up_sparsely(rnn: layers.DynamicRNN, dtype: str) -> list[Variable]:
    ids, state = rnn.step_input(fed("ids")), rnn.memory(shape=[3], dtype=dtype)
    after = layers.tanh(layers.embedding(ids, [11, 3], is_sparse=True, dtype=dtype) + state)
    rnn.update_memory(state, after)
    return [after]


def test_sparse_gradients_run_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    op_by_op, native = (Run(lambda: trained(looks_up_sparsely, "float32"), flag, monkeypatch) for flag in (False, True))
    for lengths in ([3, 1, 2], [2, 0, 4]):
        assert_close(native.step(lengths), op_by_op.step(lengths))
        assert not isinstance(native.plan(lengths), PaddedPlan)


def test_arrays_that_the_scope_keeps_run_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> list[Variable]:
        results = recurrence(simple)
        arrays = [op.output("Out")[0] for op in results[0].block.ops if op.type == "lod_tensor_to_array"]
        results[0].block.var(arrays[0]).persistable = True
        return results

    native = Run(build, True, monkeypatch)
    assert not isinstance(native.plan([2, 1]), PaddedPlan)
    native.tensors(native.feed([2, 1]))
    assert any(
        len(native.scope.find_var(name).get_lod_tensor_array()) == 2 for name in native.scope.local_var_names() if "array" in name
    )


@pytest.mark.parametrize(("word", "label"), [(20, 0), (0, 5)])
def test_errors_name_the_ops_of_the_users_program(word: int, label: int, monkeypatch: pytest.MonkeyPatch) -> None:
    words, labels = (layers.data(name, [1], dtype="int64", lod_level=1) for name in ("words", "labels"))
    rnn = layers.DynamicRNN()
    with rnn.block():
        x, y, state = rnn.step_input(words), rnn.step_input(labels), rnn.memory(shape=[8])
        update = layers.fc([layers.embedding(x, [20, 8]), state], 8, act="tanh")
        rnn.update_memory(state, update)
        rnn.output(layers.cross_entropy(layers.fc(update, 5, act="softmax"), y))
    fluid.optimizer.SGD(0.1).minimize(layers.mean(rnn()))
    executor, errors = fluid.Executor(), []
    executor.run(fluid.default_startup_program())
    lengths = [[2, 2, 3]]
    feed = {"words": (np.full([7, 1], 3), lengths), "labels": (np.full([7, 1], 2), lengths)}
    wrong = {"words": (np.full([7, 1], word), lengths), "labels": (np.full([7, 1], label), lengths)}
    for native in ("0", "1"):
        monkeypatch.setenv("FLUID_NATIVE", native)
        executor.run(feed=feed)
        with pytest.raises(IndexRangeError) as error:
            executor.run(feed=wrong)
        errors.append(str(error.value).partition("  at run time: "))
    assert errors[0][0] == errors[1][0] and "array_read_" in errors[1][0]
    for _, _, values in errors:
        assert "array_read_" in values and "moved" not in values
