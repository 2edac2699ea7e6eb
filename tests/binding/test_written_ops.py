"""Ops of loops and sequences whose calls are written down as functions give the same bits as those bound each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.executor.binding import compiled
from fluid.executor.runtime.specs import spec_of
from fluid.opdef import registry

NEVER = 10**9
Runs = Callable[[], list[bytes]]


def trained(build: Callable[[], Any], feeds: list[dict[str, Any]]) -> Runs:
    """Train a program from its start; returns all losses and parameters as bytes."""
    loss = build()
    fluid.optimizer.Adam(0.1).minimize(loss)
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    main.random_seed = startup.random_seed = 3

    def runs() -> list[bytes]:
        scope = fluid.Scope()
        with fluid.scope_guard(scope):
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(startup)
            found = [executor.run(main, feed, [loss])[0] for feed in feeds]
        names = [var.name for var in main.list_vars() if var.persistable and scope.array(var.name) is not None]
        assert len(names) > 4
        return [array.tobytes() for array in (*found, *map(scope.array, names))]

    return runs


def assert_same_bits(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    function_of = compiled.function_of

    def noting(name: str, *args: Any) -> Any:
        written.append(name)
        return function_of(name, *args)

    monkeypatch.setattr(compiled, "function_of", noting)
    monkeypatch.setattr(compiled, "WRITE_AFTER", NEVER)
    expected = runs()
    assert not written
    for often in (0, 1, 2):
        monkeypatch.setattr(compiled, "WRITE_AFTER", often)
        assert runs() == expected
        assert {"mul", "mul_grad", "tanh"} <= set(written)
        written.clear()


def sequences(*lengths: int) -> dict[str, Any]:
    random = np.random.default_rng(sum(lengths))
    rows = random.standard_normal((sum(lengths), 3)).astype("float32")
    return {"x": (rows, [list(lengths)]), "y": random.integers(0, 2, (len(lengths), 1))}


def test_sequences_of_different_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_NATIVE", "0")  # the program runs op by op

    def build() -> Any:
        x, y = fluid.data("x", [None, 3], lod_level=1), fluid.data("y", [None, 1], "int64")
        rnn = layers.DynamicRNN()
        with rnn.block():
            word, before = rnn.step_input(x), rnn.memory(shape=[4])
            after = layers.dropout(layers.fc([word, before], 4, act="tanh"), 0.3)
            rnn.update_memory(before, after)
            rnn.output(after)
        score = layers.fc(layers.sequence_last_step(rnn()), 2)
        return layers.mean(layers.softmax_with_cross_entropy(score, y))

    assert_same_bits(trained(build, [sequences(2, 3, 1), sequences(1, 3, 2), sequences(2, 3, 1)]), monkeypatch)


def test_what_an_op_overwrites_is_a_copy() -> None:
    definition = registry.get("sgd")
    param, grad, rate = np.ones(3, "float32"), np.full(3, 2, "float32"), np.array([0.5], "float32")
    arrays = {"Param": param, "Grad": grad, "LearningRate": rate}
    arguments = [compiled.Argument(slot, spec_of(array)) for slot, array in arrays.items()]
    into = compiled.updates_of(definition)
    for after, copies in ((0, True), (NEVER, True), (0, False), (NEVER, False)):
        op = compiled.compiled(definition, definition.defaults({}), arguments, np, into=into, on_copies=copies, write_after=after)
        assert op.is_written == (after == 0)
        out = op.by_slot(op.run(*arrays.values()))["ParamOut"]
        assert (out is param) == (not copies)
        assert param.tolist() == ([1, 1, 1] if copies else [0, 0, 0])
        assert out.tolist() == [0, 0, 0]
        param[...] = 1


def test_arrays_that_lie_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "WRITE_AFTER", 1)
    monkeypatch.setenv("FLUID_NATIVE", "0")  # the program runs op by op
    x = fluid.data("x", [None, 3], lod_level=1)
    table = fluid.data("table", [3, 4])
    y = layers.transpose(layers.tanh(table), [1, 0])
    out = layers.sequence_pool(x, "sum")
    values = np.arange(12, dtype="float32").reshape(3, 4) / 12
    executor = fluid.Executor(fluid.CPUPlace())
    for array in (values, values, np.asfortranarray(values), np.repeat(values, 2, axis=1)[:, ::2], values):
        feed = {"x": (np.ones((3, 3), "float32"), [[1, 2]]), "table": array}
        found = executor.run(feed=feed, fetch_list=[y, out])
        assert np.array_equal(found[0], np.tanh(values).T)
