"""Losses that compute few of many classes: native code trains them as numpy does, with a dense or sparse gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.errors import IndexRangeError

STEPS = 3


def noise(x: Any, label: Any, classes: int, is_sparse: bool) -> Any:
    return layers.nce(x, label, classes, num_neg_samples=5, is_sparse=is_sparse)


def log_uniform_noise(x: Any, label: Any, classes: int, is_sparse: bool) -> Any:
    weight = layers.cast(label, "float32") * 0.25 + 0.5
    return layers.nce(x, label, classes, weight, num_neg_samples=1, sampler="log_uniform", is_sparse=is_sparse)


def tree(x: Any, label: Any, classes: int, is_sparse: bool) -> Any:
    return layers.hsigmoid(x, label, classes, is_sparse=is_sparse)


def own_tree(x: Any, label: Any, classes: int, is_sparse: bool) -> Any:
    nodes, directions = (fluid.data(name, [None, 4], "int64") for name in ("nodes", "directions"))
    return layers.hsigmoid(x, label, classes, None, None, None, nodes, directions, True, is_sparse)


def trained(loss_of: Any, rows: int, width: int, classes: int, is_sparse: bool, feed: dict[str, Any]) -> tuple[Any, str]:
    """The losses and parameters after some steps of SGD, and the plan."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, label = fluid.data("x", [None, width]), fluid.data("label", [None, 1], "int64")
        loss = layers.mean(loss_of(layers.fc(x, width), label, classes, is_sparse))
        fluid.optimizer.SGD(0.5).minimize(loss)
    executor = fluid.Executor()
    executor.run(startup, scope=scope)
    feed = {name: feed[name] for name, var in main.global_block().vars.items() if var.is_data}
    results = [executor.run(main, feed, [loss], scope=scope)[0] for _ in range(STEPS)]
    results += [scope.array(parameter.name) for parameter in main.all_parameters()]
    return results, str(executor.plan(main, feed, [loss], scope=scope))


def feed_of(rows: int, width: int, classes: int) -> dict[str, Any]:
    random = np.random.default_rng(rows)
    return {
        "x": random.standard_normal((rows, width)).astype("float32"),
        "label": random.integers(0, classes, (rows, 1)),
        "nodes": random.integers(-1, classes - 1, (rows, 4)),
        "directions": random.integers(0, 2, (rows, 4)),
    }


@each("is_sparse", [False, True])
@each("loss_of", [noise, log_uniform_noise, tree, own_tree])
def test_training_steps_are_those_of_numpy(loss_of: Any, is_sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for rows, width, classes in ((1, 3, 2), (1, 6, 9), (5, 7, 33), (17, 1, 3000), (1025, 16, 100)):
        feed = feed_of(rows, width, classes)
        monkeypatch.setenv("FLUID_NATIVE", "0")
        expected, _ = trained(loss_of, rows, width, classes, is_sparse, feed)
        monkeypatch.setenv("FLUID_NATIVE", "1")
        results, plan = trained(loss_of, rows, width, classes, is_sparse, feed)
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, value, 1e-4, 1e-6)
        on_numpy = [line for line in plan.splitlines() if "_grad(" in line or "hierarchical_sigmoid(" in line]
        assert not on_numpy, plan


@each("wrong", [-1, 33])
@each("loss_of", [noise, tree])
def test_a_wrong_label_changes_nothing(loss_of: Any, wrong: int) -> None:
    feed = feed_of(9, 3, 33)
    feed["label"][-1] = wrong
    with pytest.raises(IndexRangeError, match=f"{wrong} is outside of"):
        trained(loss_of, 9, 3, 33, True, feed)


def gradient(drawn: Any, weight: Any) -> Any:
    """The gradient of x by `nce`, for classes that are fed, of weights that are computed."""
    random = np.random.default_rng(2)
    x, table = random.standard_normal((len(drawn), weight.shape[1])).astype("float32"), np.tanh(weight)
    probabilities = 1 / (1 + np.exp(-np.einsum("nd,nkd->nk", x, table[np.clip(drawn, 0, len(table) - 1)])))
    feed = {"Input": x, "Weight": weight, "Cost@GRAD": np.ones((len(x), 1), np.float32), "SampleLabels": drawn}
    feed |= {"Label": drawn[:, :1], "SampleLogits": probabilities.astype("float32")}
    inputs = {name: fluid.data(name, list(array.shape), str(array.dtype)) for name, array in feed.items()}
    block = fluid.default_main_program().global_block()
    out = block.create_var(name="out", dtype="float32", shape=list(x.shape))
    attrs = {"num_total_classes": len(weight), "num_neg_samples": drawn.shape[1] - 1}
    block.append_op("nce_grad", inputs | {"Weight": layers.tanh(inputs["Weight"])}, {"Input@GRAD": out}, attrs)
    return fluid.Executor().run(feed=feed, fetch_list=[out])[0]


@each("rows", [1, 4])
@each("columns", [2, 3, 4])
def test_a_gradient_does_not_take_classes_for_rows_of_weights(rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many classes in a row as weights, a count of classes must not stand for a row of weights."""
    random, results = np.random.default_rng(rows), []
    drawn, weight = random.integers(0, 33, (rows, columns)), random.standard_normal((33, 3)).astype("float32")
    for is_native in "01":
        monkeypatch.setenv("FLUID_NATIVE", is_native)
        with fluid.program_guard(fluid.Program()):
            results.append(gradient(drawn, weight))
    np.testing.assert_allclose(results[1], results[0], 1e-4, 1e-6)


@each("is_native", [False, True])
@each("wrong", [-1, 33])
def test_a_gradient_refuses_wrong_classes(wrong: int, is_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nce` draws the classes that its gradient reads, but a program may feed them."""
    monkeypatch.setenv("FLUID_NATIVE", str(int(is_native)))
    with pytest.raises(IndexRangeError, match=f"SampleLabels.*{wrong} is outside of"):
        gradient(np.array([[0, 1], [2, 3], [4, wrong]]), np.ones((33, 3), np.float32))
