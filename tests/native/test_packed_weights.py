"""Weights of a loaded model that products read: packed once for all plans of a scope, and again when they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import Checks, fresh_programs
from harness import TARGETS, set_target

import fluid
from fluid import layers

INNER, HIDDEN, OUT = 37, 75, 129
SHAPES = {"a": (INNER, HIDDEN), "b": (OUT, HIDDEN), "c": (OUT, 70)}
"""The second one is multiplied transposed; the last result has stacks of rows."""


def net(x: Any) -> Any:
    a, b, c = (layers.create_parameter(list(shape), "float32", name=name) for name, shape in SHAPES.items())
    hidden = layers.relu(layers.matmul(x, a))
    stacks = layers.reshape(layers.matmul(hidden, b, transpose_y=True), [1, -1, OUT])
    return layers.reduce_sum(layers.matmul(stacks, c), dim=0)


def expected(weights: dict[str, Any], x: Any) -> Any:
    a, b, c = (weights[name].astype(np.float64) for name in "abc")
    return np.maximum(x @ a, 0) @ b.T @ c


class Loaded:
    """A loaded model, with the weights that its results should come from."""

    def __init__(self, folder: Path) -> None:
        with fresh_programs():
            out = net(fluid.data("x", [None, INNER]))
            fluid.Executor().run(fluid.default_startup_program())
            scope = fluid.global_scope()
            self.weights = {name: scope.array(name).copy() for name in SHAPES}
            fluid.save_model(str(folder / "net.pdmodel"), fluid.default_main_program(), ["x"], [out])
        self.model = fluid.load_model(str(folder / "net.pdmodel"), scope=fluid.Scope())
        self.scope, self.executor, self.rng = self.model.scope, fluid.Executor(), np.random.default_rng(0)

    def feed(self, rows: int) -> dict[str, Any]:
        return {"x": self.rng.standard_normal((rows, INNER)).astype("float32")}

    def check(self, rows: int = 5) -> None:
        feed = self.feed(rows)
        (out,) = self.executor.run(self.model.program, feed, self.model.fetches, scope=self.scope)
        np.testing.assert_allclose(out, expected(self.weights, feed["x"]), rtol=1e-4, atol=1e-4)

    def packed(self, rows: int) -> set[int]:
        """The ids of the packed arrays that a run with so many rows reads."""
        self.check(rows)
        return {id(packed.array) for _, packed in self.bound(rows)._packed.values()}

    def bound(self, rows: int) -> Any:
        """The bound plan of the last run with so many rows."""
        plan = self.executor.plan(self.model.program, self.feed(rows), self.model.fetches, scope=self.scope)
        if plan.new_tables is None:  # type: ignore[attr-defined]
            pytest.skip("there is no native code for this processor")
        return next(bound for bound in self.executor._bound_plans[self.scope].values() if bound.plan is plan)

    def change(self, name: str) -> Any:
        self.weights[name] = self.rng.standard_normal(SHAPES[name]).astype("float32")
        return self.weights[name]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return Loaded(tmp_path)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.vector_bytes} bytes")
def test_all_numbers_of_rows_share_one_copy(target: Any, loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    set_target(monkeypatch, target)
    with Checks() as checks:
        for rows in (*range(1, 65), 1025):
            with checks(f"{rows} rows"):
                loaded.check(rows)
    arrays = [loaded.packed(rows) for rows in (1, 3, 17, 63, 1025)]
    assert len(arrays[0]) == len(SHAPES)
    assert all(of_plan == arrays[0] for of_plan in arrays)


def test_packed_once(loaded: Loaded) -> None:
    """No kernel of a run packs."""
    loaded.check()
    bound = loaded.bound(5)
    packing = [item for item in bound.plan.instructions if "packedmatrix" in item.describe()]
    assert len(packing) == len(SHAPES)
    repeated = {id(row) for words in bound._tables._tables[:-1] for row in words}
    assert not any(id(call) in repeated for item in packing for call in item.calls)


def test_a_weight_that_is_set(loaded: Loaded) -> None:
    loaded.check()
    loaded.scope.find_var("b").get_tensor().set(loaded.change("b"), fluid.CPUPlace())
    loaded.check()
    loaded.check(7)


def test_a_weight_that_is_written_in_place(loaded: Loaded) -> None:
    """Arrays of a loaded model are read-only; one that has been set can be written, and is not packed once."""
    loaded.check()
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(loaded.scope.find_var("b").get_tensor())[0] = 1
    for name in SHAPES:
        loaded.scope.find_var(name).get_tensor().set(loaded.weights[name], fluid.CPUPlace())
    loaded.check()
    for name in SHAPES:
        loaded.scope.find_var(name).get_tensor().array[...] = loaded.change(name)
        loaded.check()


def test_weights_that_are_loaded_again(loaded: Loaded, tmp_path: Path) -> None:
    loaded.check()
    other = fluid.Scope()
    for name in SHAPES:
        other.put(name, loaded.change(name))
    with fluid.scope_guard(other):
        fluid.io.save_persistables(loaded.executor, str(tmp_path / "others"), loaded.model.program)
    with fluid.scope_guard(loaded.scope):
        fluid.io.load_persistables(loaded.executor, str(tmp_path / "others"), loaded.model.program)
    loaded.check()
    loaded.check(9)


def test_a_program_that_trains_in_the_same_scope(loaded: Loaded) -> None:
    with fresh_programs():
        x = fluid.data("x", [None, INNER])
        fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.square(net(x))))
        trainer = fluid.default_main_program()
        rate = fluid.default_startup_program()
    initial = fluid.Scope()
    loaded.executor.run(rate, scope=initial)
    for name in initial.local_var_names():
        if name not in SHAPES:
            loaded.scope.put(name, initial.array(name))
    for _ in range(3):
        loaded.check()
        before = {name: loaded.scope.array(name).copy() for name in SHAPES}
        loaded.executor.run(trainer, loaded.feed(11), scope=loaded.scope)
        loaded.weights = {name: loaded.scope.array(name).copy() for name in SHAPES}
        assert all((loaded.weights[name] != before[name]).any() for name in SHAPES)
        loaded.check()


def test_memory_goes_with_the_plans(loaded: Loaded) -> None:
    loaded.check()
    bound = loaded.bound(5)
    memory = bound._memory
    assert len(memory.packed) == len(SHAPES)
    del bound
    loaded.executor.close()
    loaded.executor = fluid.Executor()
    assert not memory.packed
    loaded.check()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.vector_bytes} bytes")
def test_numbers_of_images_share_packed_filters(target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any kind: Winograd's, other, of one channel each."""
    set_target(monkeypatch, target)
    with fresh_programs():
        x = fluid.data("x", [None, 3, 20, 20])
        for filters, size, stride, groups in ((33, 3, 1, 1), (70, 3, 1, 1), (70, 3, 1, 70), (9, 3, 2, 1), (17, 1, 1, 1)):
            x = layers.relu(layers.conv2d(x, filters, size, stride, size // 2, groups=groups))
        fluid.Executor().run(fluid.default_startup_program())
        fluid.save_model(str(tmp_path / "net.pdmodel"), fluid.default_main_program(), ["x"], [x])
    model, executor = fluid.load_model(str(tmp_path / "net.pdmodel"), scope=fluid.Scope()), fluid.Executor()
    assert model.scope is not None
    arrays = []
    for count in (1, 2, 3, 5, 16, 2, 1):
        feed = {"x": np.random.default_rng(count).standard_normal((count, 3, 20, 20)).astype("float32")}
        (out,) = executor.run(model.program, feed, model.fetches, scope=model.scope)
        np.testing.assert_allclose(out, executor.interpret(model.program, feed, model.fetches, model.scope)[0], atol=1e-5)
        plan = executor.plan(model.program, feed, model.fetches, scope=model.scope)
        bound = next(bound for bound in executor._bound_plans[model.scope].values() if bound.plan is plan)
        arrays.append({id(packed.array) for _, packed in bound._packed.values()})  # type: ignore[attr-defined]
    assert len(arrays[0]) == 5 and all(of_plan == arrays[0] for of_plan in arrays)
