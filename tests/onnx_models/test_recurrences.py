"""ONNX's LSTM, GRU and RNN: native code, beside onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import fluid

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return (RANDOM.standard_normal(shape) * 0.4).astype(np.float32)


def saved(path: Path, kind: str, direction: str, has_lengths: bool, has_states: bool, **attrs: Any) -> Path:
    """A network of 5 features and 6 hidden units, for any number of steps and sequences."""
    count = 2 if direction == "bidirectional" else 1
    rows = GATES[kind] * 6
    arrays = {"w": floats(count, rows, 5), "r": floats(count, rows, 6), "b": floats(count, 2 * rows)}
    states = ["h", "c"][: 2 if kind == "LSTM" else 1] if has_states else []
    inputs = {"x": (TensorProto.FLOAT, ["t", "n", 5]), **{name: (TensorProto.FLOAT, [count, "n", 6]) for name in states}}
    if has_lengths:
        inputs["lengths"] = (TensorProto.INT32, ["n"])
    outputs = ["y", "last_h", "last_c"][: 3 if kind == "LSTM" else 2]
    names = ["x", *arrays, "lengths" if has_lengths else "", *states]
    graph = helper.make_graph(
        [helper.make_node(kind, names, outputs, hidden_size=6, direction=direction, **attrs)],
        "recurrence",
        [helper.make_tensor_value_info(name, *info) for name, info in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def feeds_of(model: Any, steps: int, batch: int, directions: int) -> dict[str, Any]:
    shapes = {"x": (steps, batch, 5), "h": (directions, batch, 6), "c": (directions, batch, 6)}
    feed = {name: floats(*shapes[name]) for name in model.feeds if name in shapes}
    return {**feed, "lengths": np.arange(batch, dtype=np.int32) % steps + 1} if "lengths" in model.feeds else feed


@each("direction", ["forward", "reverse", "bidirectional"])
@each("has_lengths", [False, True])
@each("kind", list(GATES))
def test_recurrences_beside_onnxruntime(tmp_path: Path, kind: str, has_lengths: bool, direction: str) -> None:
    if direction == "reverse" and has_lengths:
        return  # a recurrence, step by step
    attrs = {"linear_before_reset": 1} if kind == "GRU" else {}
    path = saved(tmp_path / "m.onnx", kind, direction, has_lengths, direction == "bidirectional", **attrs)
    model, session, executor = fluid.load_model(path, scope=fluid.Scope()), onnxruntime.InferenceSession(path), fluid.Executor()
    for steps, batch in ((7, 3), (1, 1)):
        feed = feeds_of(model, steps, batch, 2 if direction == "bidirectional" else 1)
        results = executor.run(model.program, feed, model.fetches, scope=model.scope)
        for result, wanted in zip(results, session.run(None, feed), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)
        assert "on numpy: none" in executor.plan(model.program, feed, model.fetches, model.scope).to_string()


@each("wanted", [("y",), ("", "last_h"), ("y", "last_h", "last_c"), ("", "", "last_c"), ("", "last_h", "last_c")])
@each("has_lengths", [False, True])
@each("kind", ["LSTM", "GRU"])
def test_outputs_that_are_left_out(tmp_path: Path, kind: str, has_lengths: bool, wanted: tuple[str, ...]) -> None:
    """Of cells that Fluid has no op for: outputs that nobody asks for are not computed, and do not move the others."""
    if kind == "GRU" and "last_c" in wanted:
        return
    arrays = {"w": floats(2, GATES[kind] * 6, 5), "r": floats(2, GATES[kind] * 6, 6), "b": floats(2, 2 * GATES[kind] * 6)}
    names = ["x", *arrays, "lengths" if has_lengths else "", *(["", "", "p"] if kind == "LSTM" else [])]
    if kind == "LSTM":
        arrays["p"] = floats(2, 18)  # peepholes
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", "n", 5])]
    inputs += [helper.make_tensor_value_info("lengths", TensorProto.INT32, ["n"])] if has_lengths else []
    graph = helper.make_graph(
        [helper.make_node(kind, names, wanted, hidden_size=6, direction="bidirectional")],
        "recurrence",
        inputs,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in wanted if name],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    model, session = fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope()), onnxruntime.InferenceSession(tmp_path / "m.onnx")
    feed = feeds_of(model, 7, 3, 2)
    results = fluid.Executor().run(model.program, feed, model.fetches, scope=model.scope)
    for result, expected in zip(results, session.run(None, feed), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_weights_are_put_in_order_and_packed_once(tmp_path: Path) -> None:
    """Weights of a file cannot change, so a run does nothing but the step itself; new weights are used from the next run on."""
    path = saved(tmp_path / "m.onnx", "LSTM", "forward", False, True)
    model, executor = fluid.load_model(path, scope=fluid.Scope()), fluid.Executor()
    feed = feeds_of(model, 1, 1, 1)
    before = executor.run(model.program, feed, model.fetches, scope=model.scope)
    bound = executor._bound(executor._check_request(_request(model, feed)))
    repeated = [item for item in bound.plan.instructions if id(item) not in bound._find_constant_code()]
    assert not any({"w", "r", "b"} & {name for name, _ in item.read} for item in repeated)
    array = model.value("w")
    model.scope.var("w").get_tensor().set(array * 2, fluid.CPUPlace())
    after = executor.run(model.program, feed, model.fetches, scope=model.scope)
    assert np.abs(after[0] - before[0]).max() > 1e-3
    model.scope.var("w").get_tensor().set(array, fluid.CPUPlace())
    np.testing.assert_array_equal(executor.run(model.program, feed, model.fetches, scope=model.scope)[0], before[0])


def _request(model: Any, feed: dict[str, Any]) -> Any:
    from fluid.executor.backend import Request

    return Request(model.program, feed, [var.name for var in model.fetches], model.scope)
