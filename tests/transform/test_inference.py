"""`optimize_for_inference`: the same numbers from fewer ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each
from paths import TESTS

import fluid
from fluid import layers
from fluid.errors import NameNotFoundError, ProgramError
from fluid.transform.flops import count_flops

ZOO = TESTS / "golden" / "zoo"
MODELS = sorted(path.parent.name for path in ZOO.glob("*/feeds.npz"))


def kinds(program: fluid.Program) -> list[str]:
    return [op.type for op in program.global_block().ops]


def run(program: fluid.Program, feed: Any, fetches: Any, scope: Any = None) -> list[Any]:
    return fluid.Executor(fluid.CPUPlace()).run(program, feed, fetches, scope=scope)


def assert_close(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-5 * max(np.abs(other).max(), 1e-30))


def started() -> None:
    """Run the startup program, and give every value noise, so that mistakes in any of them show."""
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    scope, random = fluid.global_scope(), np.random.default_rng(3)
    for var in fluid.default_main_program().list_vars():
        if var.persistable and scope.array(var.name) is not None:
            value = np.asarray(scope.array(var.name))
            scope.put(var.name, value + random.uniform(0.1, 0.3, value.shape).astype(value.dtype))


@each("name", MODELS)
def test_exported_models(name: str) -> None:
    model = fluid.load_model(str(ZOO / name / "model"), scope=fluid.Scope())
    with np.load(ZOO / name / "feeds.npz") as file:
        feed = {key: file[key] for key in model.feeds}
    before = model.program.to_string()
    report = fluid.optimize_for_inference(model.program, scope=model.scope)
    assert model.program.to_string() == before and len(kinds(report.program)) < len(kinds(model.program))
    assert "dropout" not in kinds(report.program)
    names = [var.name for var in model.fetches]
    assert_close(run(report.program, feed, names, model.scope), run(model.program, feed, names, model.scope))


def classifier() -> Any:
    x = fluid.data("x", [None, 3, 8, 8])
    hidden = layers.batch_norm(layers.conv2d(x, 4, 3, padding=1), act="relu")
    hidden = layers.conv2d(hidden, 4, 3, act="hard_swish")
    hidden = layers.dropout(hidden, 0.3, dropout_implementation="upscale_in_train")
    return layers.fc(layers.fc(hidden, 6, act="relu"), 5, act="softmax")


def test_a_program_for_training() -> None:
    scores = classifier()
    loss = layers.mean(layers.cross_entropy(scores, fluid.data("label", [None, 1], "int64")))
    fluid.optimizer.Adam(0.01).minimize(loss)
    started()
    main = fluid.default_main_program()
    before, feed = main.to_string(), {"x": np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype("float32")}
    report = fluid.optimize_for_inference(main, [scores])
    assert kinds(report.program) == ["fused_conv2d_add_act", "fused_conv2d_add_act", "fc", "fc", "softmax"]
    assert "label" not in report.program.global_block().vars and main.to_string() == before
    assert_close(run(report.program, feed, [scores]), run(main.clone(for_test=True), feed, [scores]))


def test_what_the_files_hold_is_read_again(tmp_path: Any) -> None:
    scores = classifier()
    started()
    report = fluid.optimize_for_inference(fluid.default_main_program(), [scores])
    fluid.save_model(str(tmp_path / "net.pdmodel"), report.program, ["x"], [scores.name])
    model = fluid.load_model(str(tmp_path / "net"), scope=fluid.Scope())
    assert model.missing == [] and "batch_norm" not in kinds(model.program)
    feed = {"x": np.ones((1, 3, 8, 8), "float32")}
    names = [var.name for var in model.fetches]
    assert_close(run(model.program, feed, names, model.scope), run(fluid.default_main_program().clone(True), feed, [scores]))


def test_sums_of_one_shape_and_their_norm() -> None:
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 4])
    out = layers.layer_norm(layers.elementwise_add(x, y))
    started()
    report = fluid.optimize_for_inference(fluid.default_main_program(), [out])
    assert kinds(report.program) == ["skip_layernorm"]
    feed = {name: np.random.default_rng(1).normal(size=(3, 4)).astype("float32") for name in "xy"}
    assert_close(run(report.program, feed, [out]), run(fluid.default_main_program(), feed, [out]))


def test_results_that_others_read_stay() -> None:
    """A product that is fetched, or read twice, is computed."""
    x = fluid.data("x", [None, 4])
    w, b = layers.create_parameter([4, 3], "float32", name="w"), layers.create_parameter([3], "float32", name="b", is_bias=True)
    product = layers.mul(x, w)
    biased = layers.elementwise_add(product, b)
    out = layers.relu(biased)
    started()
    main, feed = fluid.default_main_program(), {"x": np.random.default_rng(2).normal(size=(2, 4)).astype("float32")}
    for fetches, left in (
        ([out], ["fc"]),
        ([out, biased], ["fc", "relu"]),
        ([out, product], ["mul", "elementwise_add", "relu"]),
    ):
        program = fluid.optimize_for_inference(main, fetches).program
        assert kinds(program) == left
        assert_close(run(program, feed, fetches), run(main, feed, fetches))


@each("fetched", ["source", "result", "both"])
def test_ops_that_change_nothing(fetched: str) -> None:
    x = fluid.data("x", [None, 4])
    source = layers.tanh(x)
    result = layers.scale(layers.dropout(source, 0.5, is_test=True, dropout_implementation="upscale_in_train"), 1.0)
    last = layers.exp(result)
    fetches = {"source": [source, last], "result": [result], "both": [source, result]}[fetched]
    program = fluid.optimize_for_inference(fluid.default_main_program(), fetches).program
    assert kinds(program) == {"source": ["tanh", "exp"], "result": ["tanh"], "both": ["tanh", "scale"]}[fetched]
    feed = {"x": np.random.default_rng(2).normal(size=(2, 4)).astype("float32")}
    assert_close(run(program, feed, fetches), run(fluid.default_main_program(), feed, fetches))


def test_what_goes_on_in_branches() -> None:
    """Blocks still read the same values of outer ops."""
    x = fluid.data("x", [2, 4])
    kept = layers.dropout(layers.tanh(x), 0.5, is_test=True, dropout_implementation="upscale_in_train")
    one = layers.fill_constant([1], "float32", 1.0)
    out = layers.cond(layers.less_than(layers.reduce_sum(x), one), lambda: layers.fc(kept, 3), lambda: layers.fc(kept, 3) * 2.0)
    started()
    program = fluid.optimize_for_inference(fluid.default_main_program(), [out]).program
    assert "dropout" not in kinds(program)
    for sign in (-1, 1):
        feed = {"x": np.full((2, 4), sign, "float32")}
        assert_close(run(program, feed, [out]), run(fluid.default_main_program(), feed, [out]))


def test_faults() -> None:
    scores = classifier()
    main = fluid.default_main_program()
    with pytest.raises(ProgramError, match=r"conv2d_0\.w_0 .*has no value in the scope; load it first"):
        fluid.optimize_for_inference(main, [scores], fluid.Scope())
    with pytest.raises(NameNotFoundError, match="nothing"):
        fluid.optimize_for_inference(main, ["nothing"])


def test_the_arithmetic_stays_that_of_the_ops() -> None:
    """A fused op counts the arithmetic of its parts."""
    scores = classifier()
    started()
    main = fluid.default_main_program().clone(for_test=True)
    program = fluid.optimize_for_inference(main, [scores]).program
    before, after = count_flops(main), count_flops(program)
    products = sum(before.by_type[kind] for kind in ("conv2d", "mul"))
    assert not after.uncounted and products < after.total < before.total < 1.1 * products
