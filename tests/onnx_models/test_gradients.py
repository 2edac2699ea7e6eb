"""Gradients through imported ONNX ops, against central differences: for each op that the table marks as trainable.

The cases that come with onnx are computed in float64 here, at places that are moved a little, away from the kinks where many of
them stand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import cases
from onnx import TensorProto, helper

import fluid
from fluid.errors import FormatError
from fluid.onnx import ops_in  # noqa: F401  fills the table
from fluid.onnx.table import IMPORTS, import_of
from fluid.values.types import VarType

CASES_EACH = 3
STEP = 1e-6

WITHOUT_CASE = {
    "GlobalLpPool",
    "If",
    "MaxRoiPool",
    "SequenceConstruct",
    "SequenceErase",
    "SequenceInsert",
    "SimplifiedLayerNormalization",
    "SplitToSequence",
    "Trilu",
}
"""Ops whose cases hold no floats, or that have none: `test_ops_without_a_case`, and test_microsoft_ops.py."""


def gradient_cases() -> dict[str, list[str]]:
    """For each op that trains, some cases whose last node is that op."""
    cases_of_ops: dict[str, list[str]] = {}
    for name, case in cases.all_cases().items():
        nodes = cases.model_of(case).graph.node
        if name.endswith("_expanded") or len(nodes) > 3:
            continue
        how = import_of(nodes[-1].op_type, 99)
        rounds = "FLOAT8" in name or "BFLOAT16" in name or "FLOAT4" in name or "FLOAT16" in name
        if how is not None and how.trains and name not in SKIPPED and not rounds:
            cases_of_ops.setdefault(nodes[-1].op_type, []).append(name)
    return cases_of_ops


SKIPPED = {
    **dict.fromkeys(("test_training_dropout", "test_training_dropout_default"), "draws anew in each run"),
    **dict.fromkeys(("test_training_dropout_mask", "test_training_dropout_default_mask"), "draws anew in each run"),
}


def widen(model: Any) -> None:
    """Let a loaded model compute in float64."""
    for block in model.program.blocks:
        for var in block.vars.values():
            if var.dtype is VarType.FP32 and var.has_dtype:
                var.dtype = VarType.FP64
        for op in block.ops:
            for key in ("dtype", "in_dtype", "out_dtype"):
                if op.attrs.get(key) == int(VarType.FP32):
                    op.attrs[key] = int(VarType.FP64)
    for name in model.parameters:
        value = model.value(name)
        if value.dtype == np.float32:
            model.scope.put(name, value.astype(np.float64))


def moved_a_little(value: Any, op_type: str, random: Any) -> Any:
    """Numbers away from kinks, within where the op is defined."""
    finite = np.where(np.abs(value) < 1e4, value, 1.0).astype(np.float64)  # some cases hold infinities, or what memory held
    if op_type in ("Acos", "Asin", "Atanh"):
        return finite * (1 - 0.1 * random.random(value.shape))
    return finite * (1 + 0.1 * random.random(value.shape)) + 0.01 * random.random(value.shape)


def check_case(name: str, path: Path, random: Any) -> str:
    """`check` of a case that comes with onnx."""
    case = cases.all_cases()[name]
    model = cases.model_of(case)
    return check(model, next(cases.data_sets(case, model))[0], path, random)


def check(model: Any, inputs: list[Any], path: Path, random: Any) -> str:
    """Compare the gradients of a model with differences: "checked", or why there is nothing to compare."""
    loaded = cases.load(path, model, inputs)
    op_type = model.graph.node[-1].op_type
    feed = {}
    for name, value in cases.feed_of(model, loaded, inputs).items():
        is_float = isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64)
        feed[name] = moved_a_little(value, op_type, random) if is_float else value
    widen(loaded)
    root = loaded.program.global_block()
    root.ops = [op for op in root.ops if op.type not in ("feed", "fetch")]
    names = [name for name, value in feed.items() if isinstance(value, np.ndarray) and value.dtype == np.float64 and value.size]
    for name in names:
        root.var(name).stop_gradient = False
    fetched = [var for var in loaded.fetches if var.type is VarType.LOD_TENSOR and var.dtype is VarType.FP64]
    if op_type == "BatchNormalization":
        fetched = fetched[:1]  # gradients do not flow into running statistics
    if not names or not fetched:
        return "no floats"
    executor = fluid.Executor()

    def values(feeds: dict[str, Any]) -> list[Any]:
        return executor.run(loaded.program, feed=feeds, fetch_list=fetched, scope=loaded.scope)

    weights = [random.standard_normal(np.shape(value)) for value in values(feed)]
    with fluid.program_guard(loaded.program, fluid.Program()):
        cotangents = [fluid.data(f"cotangent_{n}", weight.shape, "float64") for n, weight in enumerate(weights)]
        gradients = fluid.gradients(fetched, [root.var(name) for name in names], cotangents)
    cotangent_feed = {f"cotangent_{n}": weight for n, weight in enumerate(weights)}
    pairs = [(name, gradient) for name, gradient in zip(names, gradients, strict=True) if gradient is not None]
    if not pairs:
        return "no gradient"
    computed = executor.run(
        loaded.program, feed={**feed, **cotangent_feed}, fetch_list=[value for _, value in pairs], scope=loaded.scope
    )
    for (name, _), gradient in zip(pairs, computed, strict=True):
        direction = random.standard_normal(feed[name].shape)
        sums = []
        for sign in (1.0, -1.0):
            moved = values({**feed, name: feed[name] + sign * STEP * direction})
            sums.append(sum(float(np.sum(value * weight)) for value, weight in zip(moved, weights, strict=True)))
        difference = (sums[0] - sums[1]) / (2 * STEP)
        np.testing.assert_allclose(float(np.sum(gradient * direction)), difference, rtol=1e-4, atol=1e-5, err_msg=name)
    return "checked"


@pytest.mark.slow
@pytest.mark.numpy_alone
def test_gradients_of_every_op_that_trains(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    checked: dict[str, int] = {}
    faults = []
    for op_type, names in gradient_cases().items():
        for name in names:
            if checked.get(op_type, 0) >= CASES_EACH:
                break
            try:
                outcome = check_case(name, tmp_path / "m.onnx", random)
            except FormatError:
                continue  # tests/onnx_models/test_backend.py says which are not read
            except (AssertionError, fluid.errors.FluidError) as error:
                faults.append(f"{name}: {str(error).splitlines()[:8]}")
                continue
            checked[op_type] = checked.get(op_type, 0) + (outcome == "checked")
    assert faults == [], "\n".join(faults)
    trained = {op_type for op_type, versions in IMPORTS.items() if versions[-1].trains and "::" not in op_type}
    assert sorted(trained - {op_type for op_type, count in checked.items() if count}) == sorted(WITHOUT_CASE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["test_gemm_all_attributes", "test_layer_normalization_3d_axis1_epsilon", "test_lstm_with_peepholes"]
)
def test_gradients_of_some_ops(name: str, tmp_path: Path) -> None:
    assert check_case(name, tmp_path / "m.onnx", np.random.default_rng(0)) == "checked"


def _graph(nodes: list[Any], name: str = "g", inputs: Any = (), outputs: Any = ("y",)) -> Any:
    infos = [helper.make_tensor_value_info(input_name, TensorProto.FLOAT, shape) for input_name, shape in inputs]
    return helper.make_graph(
        nodes, name, infos, [helper.make_tensor_value_info(output_name, TensorProto.FLOAT, None) for output_name in outputs]
    )


def _branch(op: str) -> Any:
    return _graph([helper.make_node(op, ["x"], ["z"])], op, outputs=("z",))


def _number(value: int, name: str) -> Any:
    return helper.make_node("Constant", [], [name], value_int=value)


ALONE = {
    "GlobalLpPool": [helper.make_node("GlobalLpPool", ["x"], ["y"], p=3)],
    "MaxRoiPool": [
        helper.make_node("Constant", [], ["flat"], value_floats=[1.0, 0.0, 0.0, 3.0, 2.0, 0.0, 1.0, 1.0, 3.0, 3.0]),
        helper.make_node("Constant", [], ["shape"], value_ints=[2, 5]),
        helper.make_node("Reshape", ["flat", "shape"], ["rois"]),
        helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[2, 2]),
    ],
    "Trilu": [_number(1, "k"), helper.make_node("Trilu", ["x", "k"], ["y"])],
    "If": [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "s"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=_branch("Exp"), else_branch=_branch("Tanh")),
    ],
    "sequences": [
        helper.make_node("SplitToSequence", ["x"], ["a"], axis=3, keepdims=1),
        _number(0, "first"),
        helper.make_node("SequenceErase", ["a", "first"], ["b"]),
        helper.make_node("SequenceAt", ["a", "first"], ["i"]),
        helper.make_node("Exp", ["i"], ["e"]),
        helper.make_node("SequenceInsert", ["b", "e"], ["c"]),
        helper.make_node("ConcatFromSequence", ["c"], ["d"], axis=3),
        helper.make_node("SequenceConstruct", ["d", "x"], ["f"]),
        helper.make_node("ConcatFromSequence", ["f"], ["y"], axis=0),
    ],
}


@pytest.mark.parametrize("name", ALONE)
def test_ops_without_a_case(name: str, tmp_path: Path) -> None:
    graph = _graph(ALONE[name], inputs=[("x", [2, 3, 4, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype(np.float32)
    assert check(model, [x], tmp_path / "m.onnx", np.random.default_rng(0)) == "checked"
