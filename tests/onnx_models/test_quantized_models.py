"""Models that onnxruntime's tools quantize: they run as there, and train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx_running import session_of
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import fluid
from fluid import layers

FLOAT = TensorProto.FLOAT
RANDOM = np.random.default_rng(0)


def floats(*shape: int, size: float = 1.0) -> Any:
    return (RANDOM.standard_normal(shape) * size).astype(np.float32)


def mlp() -> tuple[Any, Any]:
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m1"]),
        helper.make_node("Add", ["m1", "b1"], ["a1"]),
        helper.make_node("Relu", ["a1"], ["h"]),
        helper.make_node("Gemm", ["h", "w2", "b2"], ["y"], transB=1),
    ]
    weights = {"w1": floats(16, 32, size=0.25), "b1": floats(32), "w2": floats(5, 32, size=0.2), "b2": floats(5)}
    return (nodes, weights), floats(64, 16)


def cnn() -> tuple[Any, Any]:
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1], group=2),
        helper.make_node("Add", ["c2", "p1"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    weights = {
        "w1": floats(8, 3, 3, 3, size=0.2), "b1": floats(8), "w2": floats(8, 4, 3, 3, size=0.2), "b2": floats(8),
        "w3": floats(5, 8), "b3": floats(5),
    }  # fmt: skip
    return (nodes, weights), floats(8, 3, 12, 12)


def lstm() -> tuple[Any, Any]:
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["", "h"], hidden_size=16),
        helper.make_node("Squeeze", ["h", "zero"], ["s"]),
        helper.make_node("MatMul", ["s", "w2"], ["y"]),
    ]
    weights = {
        "w": floats(1, 64, 8, size=0.3), "r": floats(1, 64, 16, size=0.3), "b": floats(1, 128, size=0.3),
        "w2": floats(16, 5, size=0.3), "zero": np.array([0]),
    }  # fmt: skip
    return (nodes, weights), floats(6, 4, 8)


NETS = {"mlp": mlp, "cnn": cnn, "lstm": lstm}


class Readings(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, x: Any) -> None:
        self._rows = iter([{"x": x}])

    def get_next(self) -> Any:
        return next(self._rows, None)


def saved(name: str, folder: Path) -> tuple[str, Any]:
    """The file of a net of floats, and data for it."""
    (nodes, weights), x = NETS[name]()
    shape = list(x.shape)
    shape[1 if name == "lstm" else 0] = "n"
    arrays = [numpy_helper.from_array(value, key) for key, value in weights.items()]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, ["n", 5])],
        arrays,
    )
    path = str(folder / "floats.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path, x


def by_onnxruntime(name: str, how: str, folder: Path) -> tuple[Path, Any]:
    """The file of a quantized net, and data for it. Weights have 7 bits, so that onnxruntime is right on all processors."""
    path, x = saved(name, folder)
    out = folder / "quantized.onnx"
    kind, _, of_channels = how.partition(" ")
    weights: Any = {"per_channel": bool(of_channels), "weight_type": QuantType.QInt8, "reduce_range": True}
    if kind == "dynamic":
        quantize_dynamic(path, str(out), **weights)
    else:
        formats = {"qdq": QuantFormat.QDQ, "qoperator": QuantFormat.QOperator}
        quantize_static(path, str(out), Readings(x), formats[kind], **weights)
    return out, x


@pytest.mark.parametrize("how", ["qdq", "qdq by channel", "qoperator", "qoperator by channel", "dynamic", "dynamic by channel"])
@pytest.mark.parametrize("name", NETS)
def test_it_runs_as_in_onnxruntime(name: str, how: str, tmp_path: Path) -> None:
    """But for sums that lie near the middle between two integers: these are rounded either way."""
    path, x = by_onnxruntime(name, how, tmp_path)
    model = fluid.load_model(path, scope=fluid.Scope())
    (ours,) = fluid.Executor().run(model.program, {"x": x}, model.fetches, scope=model.scope)
    (theirs,) = session_of(str(path)).run(None, {"x": x})
    assert theirs.std() > 0.1
    off = np.abs(ours - theirs)
    assert off.max() < 0.05 * np.abs(theirs).max()
    assert off.mean() < (0.01 if name == "lstm" else 0.002) * np.abs(theirs).max()


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_quantized_net_trains(name: str, tmp_path: Path) -> None:
    path, x = by_onnxruntime(name, "qdq by channel", tmp_path)
    model = fluid.load_model(path, scope=fluid.Scope())
    model.program.make_trainable()
    parameters = [parameter for parameter in model.program.all_parameters() if parameter.ndim > 1]
    assert len(parameters) == sum(1 for value in NETS[name]()[0][1].values() if value.ndim > 1)
    before = {parameter.name: model.value(parameter.name).copy() for parameter in parameters}
    target = np.tanh(x.reshape(len(x), -1)[:, :5])
    startup = fluid.Program()
    with fluid.program_guard(model.program, startup), fluid.scope_guard(model.scope):
        truth = fluid.data("truth", [None, 5])
        loss = layers.reduce_mean(layers.square(model.program.global_block().var(model.fetches[0].name) - truth))
        fluid.optimizer.Adam(0.02).minimize(loss)
        executor = fluid.Executor()
        executor.run(startup)
        losses = [executor.run(model.program, {"x": x, "truth": target}, [loss])[0].item() for _ in range(40)]
    assert losses[-1] < 0.6 * losses[0]
    assert all(np.abs(model.value(name) - value).max() > 0.01 for name, value in before.items())


@pytest.mark.parametrize("size", [0.0, 1e-44])
def test_a_range_that_is_too_small_for_a_scale(size: float, tmp_path: Path) -> None:
    """The scale is 1, as onnxruntime takes it for zeros."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["integers", "scale", "zero"]),
        helper.make_node("DequantizeLinear", ["integers", "scale", "zero"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in (("x", [3]), ("y", [3]), ("scale", []))]
    graph = helper.make_graph(nodes, "range", ends[:1], ends[1:])
    path = tmp_path / "range.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    model = fluid.load_model(path, scope=fluid.Scope())
    values, scale = fluid.Executor().run(model.program, {"x": np.full(3, size, "float32")}, model.fetches, scope=model.scope)
    assert values.tolist() == [0, 0, 0] and scale.item() == 1
