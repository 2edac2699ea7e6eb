"""`quantize_model`: scales from data, errors by layer, what comes out in training, in files and in onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.errors import FluidTypeError, ProgramError
from fluid.ir.program import Program, Variable

DATA = np.random.default_rng(0).standard_normal((24, 3, 10, 10)).astype("float32")


def net() -> Variable:
    image = fluid.data("x", [None, 3, 10, 10])
    hidden = layers.batch_norm(layers.conv2d(image, 8, 3, padding=1, bias_attr=False), act="relu")
    hidden = layers.conv2d(layers.pool2d(hidden, 2, pool_stride=2), 8, 3, groups=2)
    out = layers.matmul(layers.fc(hidden, 6, act="tanh"), layers.create_parameter([4, 6], "float32"), transpose_y=True)
    fluid.default_startup_program().random_seed = 1
    fluid.Executor().run(fluid.default_startup_program())
    return out


def run(program: Program, out: str, data: Any = DATA) -> Any:
    return fluid.Executor().run(program.clone(for_test=True), {"x": data}, [out])[0]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_net_loses_little(dynamic: bool) -> None:
    out = net()
    report = fluid.quantize_model(fluid.default_main_program(), {"x": DATA}, dynamic=dynamic)
    assert [layer.op for layer in report.layers] == ["conv2d", "conv2d", "mul", "matmul"]
    assert all(0.001 < layer.error < 0.05 for layer in report.layers)
    assert f"{report.layers[2].error:8.2%}  {report.layers[2].out}  (mul, fc_0.w_0)" in str(report)
    exact, value = run(fluid.default_main_program(), out.name), run(report.program, out.name)
    off = np.sqrt(np.square(value - exact).sum() / np.square(exact).sum())
    np.testing.assert_allclose(off, report.layers[-1].error, rtol=1e-3)
    assert "batch_norm" not in [op.type for op in report.program.global_block().ops]
    with pytest.raises(ProgramError, match="with a weight; it is quantized already"):
        fluid.quantize_model(report.program, {"x": DATA})


def test_scales_are_those_of_the_data() -> None:
    """A range of the batches together, 0 included; the greatest weight of each output is 127 steps."""
    x = fluid.data("x", [None, 4])
    out = layers.fc(x, 2, bias_attr=False)
    fluid.Executor().run(fluid.default_startup_program())
    (weight,) = fluid.default_main_program().all_parameters()
    fluid.global_scope().put(weight.name, np.array([[1.27, 0], [0.013, 2.54], [0, 0], [0, 0]], "float32"))
    batches = [{"x": np.full((1, 4), 2, "float32")}, {"x": np.full((3, 4), -0.55, "float32")}]
    report = fluid.quantize_model(fluid.default_main_program(), iter(batches))
    x = np.array([[2, -0.55, 0, 0], [9, 0.006, 0, 0], [0, 2, 0, 0]], "float32")
    (values,) = fluid.Executor().run(report.program, {"x": x}, [out.name])
    np.testing.assert_allclose(values, [[2.54 - 0.0055, -1.397], [2.54 + 1e-4, 0.0254], [0.02, 5.08]], rtol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_numbers_that_are_too_small_for_a_scale_become_zeros(dynamic: bool) -> None:
    out = layers.fc(fluid.data("x", [None, 4]), 2, bias_attr=False)
    fluid.Executor().run(fluid.default_startup_program())
    (weight,) = fluid.default_main_program().all_parameters()
    fluid.global_scope().put(weight.name, np.array([[1e-44, 0], [0, 2], [0, 0], [0, 1]], "float32"))
    for size in (1.0, 1e-44):
        x = np.full((2, 4), size, "float32")
        report = fluid.quantize_model(fluid.default_main_program(), {"x": x}, dynamic=dynamic)
        (values,) = fluid.Executor().run(report.program, {"x": x}, [out.name])
        np.testing.assert_allclose(values, [[0, 3 * size]] * 2, rtol=0.01, atol=1e-43)


def test_the_quantized_net_trains() -> None:
    out = net()
    report = fluid.quantize_model(fluid.default_main_program(), {"x": DATA})
    program, target = report.program, np.tanh(DATA[:, 0, 0, :4])
    with fluid.program_guard(program, startup := fluid.Program()):
        program.make_trainable()
        loss = layers.reduce_mean(layers.square(program.global_block().var(out.name) - fluid.data("t", [None, 4])))
        fluid.optimizer.Adam(0.01).minimize(loss)
        executor = fluid.Executor()
        executor.run(startup)
        losses = [executor.run(program, {"x": DATA, "t": target}, [loss])[0].item() for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("dynamic", [False, True])
def test_onnxruntime_computes_the_same(dynamic: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    import onnx
    import onnxruntime

    out = net()
    report = fluid.quantize_model(fluid.default_main_program(), {"x": DATA}, dynamic=dynamic)
    path = str(tmp_path / "m.onnx")
    fluid.save_model(path, report.program, ["x"], [out.name])
    model = onnx.load(path)
    assert [node.op_type for node in model.graph.node].count("DequantizeLinear") == 8
    weights = [tensor for tensor in model.graph.initializer if len(tensor.dims) > 1]
    assert {tensor.data_type for tensor in weights} == {onnx.TensorProto.INT8}
    assert sorted(tuple(tensor.dims) for tensor in weights) == [(4, 6), (8, 3, 3, 3), (8, 4, 3, 3), (72, 6)]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (theirs,) = onnxruntime.InferenceSession(path, options).run(None, {"x": DATA})
    ours = run(report.program, out.name)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    loaded = fluid.load_model(path, scope=fluid.Scope())
    (again,) = fluid.Executor().run(loaded.program, {"x": DATA}, loaded.fetches, scope=loaded.scope)
    assert np.abs(again - ours).mean() < 2e-3 * np.abs(ours).max()


@pytest.mark.parametrize("dynamic", [False, True])
def test_onnxruntime_multiplies_integers_of_7_bits_on_every_processor(dynamic: bool, tmp_path: Path) -> None:
    """Its sums of two products saturate with 8 bits where VNNI is missing, and results are off by a tenth."""
    onnxruntime = pytest.importorskip("onnxruntime")
    out = net()
    report = fluid.quantize_model(fluid.default_main_program(), {"x": DATA}, dynamic=dynamic, weight_bits=7)
    fluid.save_model(tmp_path / "m.onnx", report.program, ["x"], [out.name])
    (theirs,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": DATA})
    ours = run(report.program, out.name)
    assert np.abs(theirs - ours).mean() < 5e-3 * np.abs(ours).max()


def test_weights_have_7_or_8_bits() -> None:
    net()
    with pytest.raises(ValueError, match="weight_bits is 4; weights have 7 or 8 bits"):
        fluid.quantize_model(fluid.default_main_program(), {"x": DATA}, weight_bits=4)


def test_what_cannot_be_quantized() -> None:
    x = fluid.data("x", [None, 4])
    layers.relu(x)
    with pytest.raises(ProgramError, match="no product or convolution with a weight"):
        fluid.quantize_model(fluid.default_main_program(), {"x": np.ones((2, 4), "float32")})
    with pytest.raises(FluidTypeError, match="should be a dict by name or a list of dicts by name, not a list of ndarray"):
        fluid.quantize_model(fluid.default_main_program(), [np.zeros((9, 8, 8), "float32")])
    with pytest.raises(ProgramError, match="no batch of data"):
        fluid.quantize_model(fluid.default_main_program(), [])
    layers.fc(x, 3)
    with pytest.raises(ProgramError, match="has no value in the scope"):
        fluid.quantize_model(fluid.default_main_program(), {"x": np.ones((2, 4), "float32")}, dynamic=True)
    fluid.Executor().run(fluid.default_startup_program())
    with pytest.raises(ProgramError, match="x is not finite for this data"):
        fluid.quantize_model(fluid.default_main_program(), {"x": np.full((2, 4), np.nan, "float32")})
    name = fluid.default_main_program().all_parameters()[0].name
    fluid.global_scope().put(name, np.full((4, 3), np.inf, "float32"))
    with pytest.raises(ProgramError, match=f"the weight {name} is not finite"):
        fluid.quantize_model(fluid.default_main_program(), {"x": np.ones((2, 4), "float32")})
