"""Programs at an XLAPlace: their results, and where their state is stored."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import Checks, fresh_programs

pytest.importorskip("jax")

import fluid
from fluid.errors import ExecutionError

X = np.random.default_rng(0).standard_normal((8, 5), np.float32)
Y = X.sum(1, keepdims=True)


def regression() -> Any:
    """The loss of a small net that is trained, in the default program."""
    x, y = fluid.data("x", [None, 5]), fluid.data("y", [None, 1])
    hidden = fluid.layers.fc(x, size=4, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, size=1), y))
    fluid.optimizer.Adam(learning_rate=0.05).minimize(loss)
    return loss


def started(place: Any) -> tuple[fluid.Executor, fluid.Scope]:
    executor, scope = fluid.Executor(place), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    return executor, scope


def test_training_is_that_of_the_plan() -> None:
    loss = regression()
    (cpu, at_host), (xla, scope) = started(fluid.CPUPlace()), started(fluid.XLAPlace())
    for name in at_host.local_var_names():
        scope.find_var(name).get_tensor().set(at_host.array(name))
    for _ in range(4):
        losses = [each.run(feed={"x": X, "y": Y}, fetch_list=[loss], scope=own) for each, own in ((cpu, at_host), (xla, scope))]
        np.testing.assert_allclose(*losses, rtol=1e-5)
    for name in at_host.local_var_names():
        np.testing.assert_allclose(scope.array(name), at_host.array(name), rtol=1e-4, atol=1e-6, err_msg=name)


def test_state_stays_on_the_device_until_somebody_looks() -> None:
    loss = regression()
    executor, scope = started(fluid.XLAPlace())
    name = fluid.default_main_program().all_parameters()[0].name
    executor.run(feed={"x": X, "y": Y}, fetch_list=[loss], scope=scope)
    held = scope.held(name)
    assert not isinstance(held, np.ndarray)
    before = np.array(scope.find_var(name).get_tensor())  # a copy
    assert scope.held(name) is held
    executor.run(feed={"x": X, "y": Y}, scope=scope)
    assert scope.held(name) is held and (np.array(scope.find_var(name).get_tensor()) != before).any()
    scope.array(name)[...] = 0  # who has the array may write to it: it is the host's now
    test = fluid.default_main_program().clone(for_test=True)
    assert isinstance(scope.held(name), np.ndarray)
    executor.run(test, {"x": X, "y": Y}, [loss], scope=scope)
    assert not scope.array(name).any()


def test_fetches_are_the_callers() -> None:
    x = fluid.data("x", [2, 3])
    double = fluid.layers.scale(x, 2.0)
    executor = fluid.Executor(fluid.XLAPlace())
    first = executor.run(feed={"x": X[:2, :3]}, fetch_list=[double])[0]
    first[...] = 0
    assert executor.run(feed={"x": X[:2, :3]}, fetch_list=[double])[0].any()
    tensor = executor.run(feed={"x": X[:2, :3]}, fetch_list=[double], return_numpy=False)[0]
    assert isinstance(tensor, fluid.LoDTensor) and tensor.shape() == [2, 3]


def test_what_is_fed_may_become_state() -> None:
    """The scope's array does not share memory with the feed."""
    x = fluid.data("x", [2])
    kept = fluid.layers.create_global_var([2], 0.0, "float32", persistable=True, name="kept")
    fluid.layers.assign(x, kept)
    executor, scope = started(fluid.XLAPlace())
    fed = np.ones(2, np.float32)
    executor.run(feed={"x": fed}, scope=scope)
    fed[...] = 7
    assert scope.array("kept").tolist() == [1, 1]


def test_a_tensor_of_the_scope_may_be_fed() -> None:
    """The program overwrites it, and reads the fed value before and after."""
    x = fluid.data("x", [None, 5])
    w = fluid.layers.create_parameter([5, 5], "float32", "w")
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.square(fluid.layers.matmul(x, w))))
    last = fluid.layers.scale(x, 2.0)
    executor, scope = started(fluid.XLAPlace())
    for _ in range(2):
        executor.run(feed={"x": X}, scope=scope)  # it is on the device now
        before = np.array(scope.find_var("w").get_tensor())
        result = executor.run(feed={"x": scope.find_var("w").get_tensor()}, fetch_list=[last], scope=scope)[0]
        np.testing.assert_array_equal(result, 2 * before)
        assert (np.array(scope.find_var("w").get_tensor()) != before).any()


def test_state_may_change_its_shape() -> None:
    """A program that keeps its last batch, whose size differs from run to run."""
    x = fluid.data("x", [None, 5])
    last_batch = fluid.layers.create_global_var([1, 5], 0.0, "float32", persistable=True, name="kept")
    count = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="count")
    fluid.layers.increment(count)
    before = fluid.layers.reduce_sum(last_batch)
    fluid.layers.assign(x, last_batch)
    executor, scope = started(fluid.XLAPlace())
    expected = 0.0
    for rows in (1, 3, 3, 1, 8, 3):
        result = executor.run(feed={"x": X[:rows]}, fetch_list=[before], scope=scope)[0]
        np.testing.assert_allclose(result, expected, rtol=1e-5)
        expected = X[:rows].sum()
        assert np.array_equal(scope.find_var("kept").get_tensor(), X[:rows])
    assert scope.array("count") == 6


def test_a_number_of_numpy_in_the_scope_is_an_array_without_dimensions() -> None:
    count = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="count")
    fluid.layers.increment(count)
    executor, scope = started(fluid.XLAPlace())
    scope.put("count", np.float32(3))
    assert [executor.run(fetch_list=[count], scope=scope)[0].item() for _ in range(2)] == [4, 5]


def test_a_checkpoint_goes_on_with_the_same_bits(tmp_path: Any) -> None:
    loss = regression()
    executor, scope = started(fluid.XLAPlace())
    main = fluid.default_main_program()

    def losses(executor: fluid.Executor, scope: fluid.Scope) -> list[Any]:
        return [executor.run(feed={"x": X, "y": Y}, fetch_list=[loss], scope=scope)[0].tobytes() for _ in range(3)]

    losses(executor, scope)
    fluid.save_checkpoint(main, tmp_path / "at.ckpt", scope=scope)
    expected = losses(executor, scope)
    other, again = fluid.Executor(fluid.XLAPlace()), fluid.Scope()
    fluid.load_checkpoint(main, tmp_path / "at.ckpt", scope=again)
    assert losses(other, again) == expected


def test_programs_take_turns_in_one_scope() -> None:
    """One program reads a variable that the other one updates; the former value is gone."""
    loss = regression()
    test = fluid.default_main_program().clone(for_test=True)
    executor, scope = started(fluid.XLAPlace())
    for _ in range(3):
        expected = executor.run(test, {"x": X, "y": Y}, [loss], scope=scope)[0]
        assert executor.run(feed={"x": X, "y": Y}, fetch_list=[loss], scope=scope)[0] == expected
        assert executor.run(test, {"x": X, "y": Y}, [loss], scope=scope)[0] < expected


def test_places_take_turns_in_one_scope() -> None:
    loss = regression()
    executor, scope = started(fluid.XLAPlace())
    (cpu, alone), other = started(fluid.CPUPlace()), fluid.Executor(fluid.CPUPlace())
    for name in alone.local_var_names():
        scope.find_var(name).get_tensor().set(alone.array(name))
    for each in (executor, other, executor, executor, other):
        taken = each.run(feed={"x": X, "y": Y}, fetch_list=[loss], scope=scope)[0]
        np.testing.assert_allclose(taken, cpu.run(feed={"x": X, "y": Y}, fetch_list=[loss], scope=alone)[0], rtol=1e-5)


def test_sparse_gradients() -> None:
    """Every update of a table's rows, with ids that repeat and one that stands for nothing."""
    ids = np.array([3, 1, 3, 0, 5, 1])
    optimizers = {
        "SGD": lambda: fluid.optimizer.SGD(0.1),
        "Momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
        "Adagrad": lambda: fluid.optimizer.Adagrad(0.1),
        "Adam": lambda: fluid.optimizer.Adam(0.1),
        "lazy Adam": lambda: fluid.optimizer.Adam(0.1, lazy_mode=True),
    }
    with Checks() as checks:
        for name, optimizer in optimizers.items():
            with checks(name), fresh_programs():
                rows = fluid.embedding(fluid.data("ids", [6], "int64"), [8, 2], is_sparse=True, padding_idx=5)
                loss = fluid.layers.reduce_sum(rows * rows)
                optimizer().minimize(loss)
                (cpu, at_host), (xla, scope) = started(fluid.CPUPlace()), started(fluid.XLAPlace())
                for key in at_host.local_var_names():
                    scope.find_var(key).get_tensor().set(at_host.array(key))
                for _ in range(3):
                    pair = [
                        each.run(feed={"ids": ids}, fetch_list=[loss], scope=own) for each, own in ((cpu, at_host), (xla, scope))
                    ]
                    np.testing.assert_allclose(*pair, rtol=1e-5)


def test_infinity_is_found_where_it_arises() -> None:
    x = fluid.data("x", [2])
    kept = fluid.layers.create_global_var([2], 0.0, "float32", persistable=True, name="kept")
    logs = fluid.layers.log(x)
    fluid.layers.assign(fluid.layers.scale(logs, 2.0), kept)
    executor, scope = started(fluid.XLAPlace())
    with pytest.raises(ExecutionError, match="log makes infinity in log_0"):
        executor.run(feed={"x": np.array([0, 1], "float32")}, fetch_list=[logs], scope=scope, check_nan=True)
    assert scope.array("kept").tolist() == [0, 0]
    assert executor.run(feed={"x": np.ones(2, "float32")}, fetch_list=[logs], scope=scope, check_nan=True)[0].tolist() == [0, 0]


def test_the_plan_is_shown() -> None:
    x = fluid.data("x", [2, 3, 2, 2])
    focus = fluid.layers.relu(fluid.layers.similarity_focus(x, 1, [0]))
    plan = fluid.Executor(fluid.XLAPlace()).plan(feed={"x": np.zeros((2, 3, 2, 2), "float32")}, fetch_list=[focus])
    device = fluid.XLAPlace().device
    assert str(plan).startswith(f"compiled by XLA for {device} 0\ncalled back at the host: similarity_focus\n")
    assert "relu(X=" in str(plan) and "stablehlo.maximum" in plan.to_string(calls=True)


def test_functions_of_eager_mode() -> None:
    """A function traced under a guard runs at its place, on tensors in the memory of the host."""
    with fluid.dygraph.guard(fluid.XLAPlace()):
        layer = fluid.dygraph.Linear(3, 2)
        run = fluid.dygraph.to_static(lambda x: layer(x))
        x = fluid.dygraph.to_variable(X[:4, :3])
        run(x)  # traces
        for _ in range(2):
            np.testing.assert_allclose(run(x).numpy(), layer(x).numpy(), rtol=1e-5, atol=1e-6)
            layer.weight.set_value(layer.weight.numpy() * 2)


def test_functions_of_eager_mode_change_tensors() -> None:
    with fluid.dygraph.guard(fluid.XLAPlace()):
        norm = fluid.dygraph.BatchNorm("norm", 3)
        run = fluid.dygraph.to_static(lambda x: norm(x))
        x = fluid.dygraph.to_variable(X[:4, :3])
        run(x)
        before = norm._mean.numpy().copy()
        run(x)
        assert (norm._mean.numpy() != before).any()


def test_compiled_programs_are_kept() -> None:
    x = fluid.data("x", [2, 3])
    out = fluid.layers.scale(x, 1234.5)
    folder = Path(os.environ["FLUID_XLA_CACHE"])
    before = {path.name for path in folder.iterdir()}
    fluid.Executor(fluid.XLAPlace()).run(feed={"x": X[:2, :3]}, fetch_list=[out])
    assert {path.name for path in folder.iterdir()} - before


def test_ops_of_numbers_without_a_sign() -> None:
    """XLA's own absolute value refuses them, also inside a rounding."""
    array = np.array([0, 1, 200, 255], "uint8")
    x = fluid.data("x", [4], "uint8")
    for op in ("abs", "round", "sign", "square", "floor", "ceil", "relu"):
        y = getattr(fluid.layers, op)(x)
        right, got = (
            fluid.Executor(place).run(feed={"x": array}, fetch_list=[y])[0] for place in (fluid.CPUPlace(), fluid.XLAPlace())
        )
        assert got.dtype == right.dtype and np.array_equal(got, right), op
