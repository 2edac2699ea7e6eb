"""`DynamicRNN`, `IfElse` and the ops behind them: lod_rank_table, max_sequence_len, lod_tensor_to_array, array_to_lod_tensor,
shrink_rnn_memory, reorder_lod_tensor_by_rank (and its gradient reorder_lod_tensor_by_rank_grad), split_lod_tensor,
merge_lod_tensor, merge_lod_tensor_infer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from checks import each
from numeric import assert_gradients, interpret

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FluidError, NameNotFoundError, ProgramError
from fluid.ir.program import Program, Variable, program_guard
from fluid.values.lod_array import with_lod

LOD = ((0, 2, 3, 6),)
"""Of lengths 2, 1 and 3: in rank order, sequences 2, 0, 1."""
NESTED = ((0, 2, 3), (0, 1, 3, 6))
rng = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def program() -> Iterator[Program]:
    main = Program()
    with program_guard(main, Program()), fluid.unique_name.guard():
        yield main


class Feed:
    """The feeds of a program, as float64, with sequences."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.lods: dict[str, Any] = {}

    def data(self, name: str, shape: tuple[int, ...], lod: Any = (), value: Any = None) -> Variable:
        self.values[name] = rng.uniform(-1, 1, shape) if value is None else np.asarray(value)
        self.lods[name] = lod
        dtype = str(self.values[name].dtype)
        var = layers.data(name, [-1, *shape[1:]], append_batch_size=False, dtype=dtype, lod_level=len(lod))
        var.stop_gradient = dtype == "bool"
        return var

    def run(self, program: Program, fetch: Any, values: dict[str, Any] | None = None) -> list[Any]:
        given = self.values if values is None else values
        return interpret(program, {name: with_lod(value, self.lods[name]) for name, value in given.items()}, fetch)

    def executed(self, program: Program, fetch: Any) -> list[Any]:
        feed = {
            name: (v, [list(level) for level in self.lods[name]]) if self.lods[name] else v for name, v in self.values.items()
        }
        return fluid.Executor(fluid.CPUPlace()).run(program, feed, fetch, return_numpy=False)


def check_orders(feed: Feed, target: Variable, inputs: list[Variable], orders: int = 3) -> None:
    """Compare gradients of `target` with central differences, then gradients of their squares, and so on."""
    program = target.block.program
    for order in range(orders):
        before = program.clone()
        name = target.name
        grads = fluid.gradients([target], inputs)
        values = feed.run(program, grads)
        assert all(value is not None for value in values), f"order {order + 1}"

        def objective(given: dict[str, Any], before: Program = before, name: str = name) -> float:
            return float(feed.run(before, [name], given)[0].sum())

        assert_gradients(objective, feed.values, {var.name: value for var, value in zip(inputs, values, strict=True)}, rng, 20.0)
        target = layers.sums([layers.reduce_sum(layers.square(grad)) for grad in grads if grad is not None])


def recurrence(x: Variable, w: Variable, init: Variable | None = None, static: Variable | None = None) -> Variable:
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        memory = rnn.memory(init, need_reorder=True) if init is not None else rnn.memory(shape=[2], value=0.3, dtype="float64")
        total = layers.elementwise_add(word, layers.matmul(memory, w))
        if static is not None:
            kept = rnn.static_input(static)
            kept = layers.sequence_pool(kept, "sum") if static.lod_level else kept
            total = layers.elementwise_add(total, kept)
        new = layers.tanh(total)
        rnn.update_memory(memory, new)
        rnn.output(new)
    found: Variable = rnn()
    return found


def reference(x: Any, w: Any, first: Any, static: Any = 0.0) -> Any:
    out = []
    static = np.broadcast_to(static, first.shape)
    for number, (start, end) in enumerate(zip(LOD[0], LOD[0][1:], strict=False)):
        state = first[number]
        for t in range(start, end):
            state = np.tanh(x[t] + state @ w + static[number])
            out.append(state)
    return np.array(out)


def test_values_and_sequences_of_the_output(program: Program) -> None:
    feed = Feed()
    out = recurrence(feed.data("x", (6, 2), LOD), feed.data("w", (2, 2)))
    assert out.lod_level == 1
    expected = reference(feed.values["x"], feed.values["w"], np.full((3, 2), 0.3))
    np.testing.assert_allclose(feed.run(program, [out])[0], expected)
    (found,) = feed.executed(program, [out])
    np.testing.assert_allclose(np.asarray(found), feed.run(program, [out])[0], rtol=1e-14)
    assert found.recursive_sequence_lengths() == [[2, 1, 3]]


def test_derivatives(program: Program) -> None:
    feed = Feed()
    x, w = feed.data("x", (6, 2), LOD), feed.data("w", (2, 2))
    init, static = feed.data("init", (3, 2)), feed.data("static", (3, 2))
    out = recurrence(x, w, init, static)
    np.testing.assert_allclose(
        feed.run(program, [out])[0], reference(*(feed.values[name] for name in ("x", "w", "init", "static")))
    )
    check_orders(feed, layers.reduce_sum(layers.square(out)), [x, w, init, static])


def test_derivatives_through_static_sequences() -> None:
    feed = Feed()
    x, w = feed.data("x", (6, 2), LOD), feed.data("w", (2, 2))
    memory = feed.data("memory", (7, 2), ((0, 3, 4, 7),))
    check_orders(feed, layers.reduce_sum(layers.square(recurrence(x, w, static=memory))), [x, w, memory], orders=2)


def test_last_step_only() -> None:
    """A gradient that reaches some steps alone."""
    feed = Feed()
    x, w = feed.data("x", (6, 2), LOD), feed.data("w", (2, 2))
    check_orders(feed, layers.reduce_sum(layers.square(layers.sequence_last_step(recurrence(x, w)))), [x, w], orders=2)


def test_nested_sequences(program: Program) -> None:
    """Steps over the outer level see whole sentences."""
    feed = Feed()
    x = feed.data("x", (6, 2), NESTED)
    rnn = layers.DynamicRNN()
    with rnn.block():
        sentence = rnn.step_input(x, level=0)
        total = rnn.memory(shape=[2], dtype="float64")
        new = layers.elementwise_add(total, layers.sequence_pool(sentence, "sum"))
        rnn.update_memory(total, new)
        rnn.output(new)
    out = rnn()
    value = feed.values["x"]
    first, second, third = value[:1].sum(0), value[1:3].sum(0), value[3:].sum(0)
    np.testing.assert_allclose(feed.run(program, [out])[0], [first, first + second, third])
    check_orders(feed, layers.reduce_sum(layers.square(out)), [x], orders=2)


def test_two_outputs_and_training_to_a_smaller_loss(program: Program) -> None:
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    label = layers.data("label", [1], dtype="int64")
    embedded = layers.embedding(words, [20, 8])
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(embedded)
        memory = rnn.memory(shape=[8])
        new = layers.fc([word, memory], 8, act="tanh")
        rnn.update_memory(memory, new)
        rnn.output(new, layers.scale(new, 2.0))
    first, second = rnn()
    found = layers.fc([layers.sequence_last_step(first), layers.sequence_pool(second, "max")], 2, act="softmax")
    loss = layers.mean(layers.cross_entropy(found, label))
    fluid.optimizer.Adam(0.02).minimize(loss)
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    losses = []
    for _ in range(60):
        lengths = rng.integers(1, 6, 8).tolist()
        ids = rng.integers(0, 20, (sum(lengths), 1))
        parts = np.split(ids, np.cumsum(lengths)[:-1])
        feed = {"words": (ids, [lengths]), "label": np.array([[int((part >= 10).any())] for part in parts])}
        losses += executor.run(program, feed, [loss], scope=scope)
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


# ------------------------------------------------------------------------------------------------------------- IfElse
@each("mask", [[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
def test_if_else(program: Program, mask: list[int]) -> None:
    feed = Feed()
    x, other = feed.data("x", (4, 2)), feed.data("other", (4, 2))
    cond = feed.data("cond", (4, 1), value=np.array(mask, bool).reshape(4, 1))
    branches = layers.IfElse(cond)
    with branches.true_block():
        branches.output(layers.elementwise_mul(branches.input(x), branches.input(other)))
    with branches.false_block():
        branches.output(layers.square(branches.input(x)))
    (out,) = branches()
    a, b = feed.values["x"], feed.values["other"]
    expected = np.where(feed.values["cond"], a * b, a * a)
    np.testing.assert_allclose(feed.run(program, [out])[0], expected)
    np.testing.assert_allclose(np.asarray(feed.executed(program, [out])[0]), expected)
    check_orders(feed, layers.reduce_sum(layers.square(out)), [x, other], orders=3)


def test_split_and_merge_sequences(program: Program) -> None:
    feed = Feed()
    x = feed.data("x", (6, 2), LOD)
    mask = feed.data("mask", (3, 1), value=np.array([[False], [True], [True]]))
    true, false = layers.split_lod_tensor(x, mask)
    merged = layers.merge_lod_tensor(true, false, x, mask)
    found = feed.executed(program, [true, false, merged])
    assert [value.recursive_sequence_lengths() for value in found] == [[[1, 3]], [[2]], [[2, 1, 3]]]
    np.testing.assert_array_equal(np.asarray(found[0]), feed.values["x"][2:])
    np.testing.assert_array_equal(np.asarray(found[2]), feed.values["x"])
    inferred = program.global_block().create_var(name="inferred")
    program.global_block().append_op(
        "merge_lod_tensor_infer", {"X": x, "Mask": mask, "InTrue": true, "InFalse": false}, {"Out": inferred}
    )
    np.testing.assert_array_equal(np.asarray(feed.executed(program, [inferred])[0]), feed.values["x"])


def test_reordering(program: Program) -> None:
    feed = Feed()
    x, rows = feed.data("x", (6, 2), LOD), feed.data("rows", (3, 2))
    table = layers.lod_rank_table(x)
    fetch = [layers.reorder_lod_tensor_by_rank(x, table), layers.reorder_lod_tensor_by_rank(rows, table)]
    fetch += [layers.max_sequence_len(table), layers.array_to_lod_tensor(layers.lod_tensor_to_array(x, table), table)]
    ordered, ordered_rows, longest, back = feed.executed(program, fetch)
    value = feed.values["x"]
    np.testing.assert_array_equal(np.asarray(ordered), np.concatenate([value[3:], value[:2], value[2:3]]))
    assert ordered.recursive_sequence_lengths() == [[3, 2, 1]]
    np.testing.assert_array_equal(np.asarray(ordered_rows), feed.values["rows"][[2, 0, 1]])
    assert np.asarray(longest) == [3]
    np.testing.assert_array_equal(np.asarray(back), value)
    check_orders(feed, dot_of(fetch[0], fetch[1]), [x, rows], orders=2)


def dot_of(x: Variable, rows: Variable) -> Variable:
    return layers.reduce_sum(layers.elementwise_mul(layers.sequence_pool(x, "sum"), layers.square(rows)))


# ------------------------------------------------------------------------------------------------------------- errors
def raises(error: type[FluidError], message: str, build: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message):
        build()


def test_errors_of_dynamic_rnn(program: Program) -> None:
    feed = Feed()
    x, plain = feed.data("x", (6, 2), LOD), feed.data("plain", (6, 2))
    rnn = layers.DynamicRNN()
    raises(ProgramError, "step_input must be called in the block", lambda: rnn.step_input(x))
    raises(ProgramError, "after its block", rnn)

    def with_block(body: Callable[[Any], Any]) -> Callable[[], None]:
        def build() -> None:
            rnn = layers.DynamicRNN()
            with rnn.block():
                body(rnn)

        return build

    raises(ProgramError, "should hold sequences", with_block(lambda rnn: rnn.step_input(plain)))
    made_inside = "visible in block 0: it is made in block 1, and is known only there. Make it before that block begins; or"
    raises(NameNotFoundError, made_inside, with_block(lambda rnn: rnn.step_input(layers.fc(x, 3))))
    raises(ProgramError, "no step_input", with_block(lambda rnn: None))
    raises(ProgramError, "memory must be called after step_input", with_block(lambda rnn: rnn.memory(shape=[2])))
    raises(ProgramError, "static_input must be called after step_input", with_block(lambda rnn: rnn.static_input(plain)))
    raises(ProgramError, "give init, or the shape", with_block(lambda rnn: (rnn.step_input(x), rnn.memory())))
    raises(ProgramError, "is never updated", with_block(lambda rnn: (rnn.step_input(x), rnn.memory(shape=[2]))))
    raises(ProgramError, "a result of memory", with_block(lambda rnn: rnn.update_memory(plain, plain)))


@each("lengths", [[0, 0], [0]])
@each("initialized", [False, True])
def test_sequences_that_are_all_empty(program: Program, lengths: list[int], initialized: bool) -> None:
    """The recurrence makes no step: its outputs have no rows, and its parameters a gradient of zeros."""
    x, first = layers.data("x", [3], lod_level=1), fluid.data("first", [-1, 4])
    x.stop_gradient = first.stop_gradient = False
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        state = rnn.memory(init=first, need_reorder=True) if initialized else rnn.memory(shape=[4])
        new = layers.fc([word, state, rnn.static_input(first)], 4, act="tanh", param_attr=[f"w{i}" for i in range(3)])
        rnn.update_memory(state, new)
        rnn.output(new)
    out = rnn()
    last = layers.sequence_pool(out, "last", pad_value=0.5)
    loss = layers.elementwise_add(layers.reduce_sum(last), layers.reduce_sum(layers.square(out)))
    fluid.optimizer.SGD(0.5).minimize(loss)
    block, executor, scope = program.global_block(), fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)

    def run(lengths: list[int], *fetch: Any) -> list[Any]:
        rows = fluid.create_lod_tensor(np.ones((sum(lengths), 3), "float32"), [lengths], fluid.CPUPlace())
        feed = {"x": rows, "first": np.ones((len(lengths), 4), "float32")}
        return executor.run(program, feed, list(fetch), scope=scope, return_numpy=False)

    before = scope.array("w0").copy()
    names = ("x@GRAD", "first@GRAD", "w0@GRAD")
    found = run(lengths, out, last, loss, *(block.var(name) for name in names))
    shapes = [np.asarray(value).shape for value in found]
    assert shapes == [(0, 4), (len(lengths), 4), (1,), (0, 3), (len(lengths), 4), (3, 4)]
    assert found[0].recursive_sequence_lengths() == [lengths]
    assert (np.asarray(found[1]) == 0.5).all() and not any(np.asarray(grad).any() for grad in found[3:])
    np.testing.assert_array_equal(scope.array("w0"), before)
    assert np.asarray(run([2, 0, 1], out)[0]).shape == (3, 4)


def test_errors_of_if_else(program: Program) -> None:
    feed = Feed()
    x, cond = feed.data("x", (4, 2)), feed.data("cond", (4, 1), value=np.ones((4, 1), bool))
    raises(ProgramError, "cond should be bool", lambda: layers.IfElse(x))
    branches = layers.IfElse(cond)
    raises(ProgramError, "input must be called in", lambda: branches.input(x))
    raises(ProgramError, "output must be called in", lambda: branches.output(x))
    raises(ProgramError, "after both blocks", branches)
    with pytest.raises(ProgramError, match="true_block has no output"), branches.true_block():
        pass
    with branches.false_block():
        branches.output(x)
        with pytest.raises(ProgramError, match="inside the other"), branches.true_block():
            pass
    with pytest.raises(ProgramError, match="has been built already"), branches.false_block():
        pass
    raises(ProgramError, "0 outputs, but the false_block has 1", branches)


def test_errors_at_run_time(program: Program) -> None:
    feed = Feed()
    x, rows = feed.data("x", (6, 2), LOD), feed.data("rows", (2, 2))
    mask = feed.data("mask", (2, 1), value=np.ones((2, 1), bool))
    table = layers.lod_rank_table(x)
    ordered = layers.reorder_lod_tensor_by_rank(rows, table)
    true, _ = layers.split_lod_tensor(x, mask)
    merged = layers.merge_lod_tensor(x, x, x, mask)
    deep = layers.max_sequence_len(layers.lod_rank_table(x, level=1))
    without = layers.max_sequence_len(layers.lod_rank_table(rows))
    for fetch, message in (
        (ordered, "has 2 sequences or rows, but the rank table has 3"),
        (true, "the mask has 2 elements, but x has 3 sequences or rows"),
        (merged, "asks for 2 and 0 rows, but InTrue has 3"),
        (deep, "made of level 1 of the sequences, but there are 1 levels"),
        (without, "rows holds no sequences"),
    ):
        with pytest.raises(ExecutionError, match=message):
            feed.executed(program, [fetch])
