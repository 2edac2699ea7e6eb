"""Predictors with the interface of Paddle 1.x's inference engine, beside an `Executor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import core, layers
from fluid.errors import FluidTypeError, NameNotFoundError, ProgramError

IMAGES = np.random.default_rng(3).standard_normal((4, 6)).astype("float32")
IDS = np.array([[1], [0], [2], [1]], "int64")


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Any]:
    """A folder with a model of two feeds, and its output."""
    x, ids = fluid.data("x", [None, 6]), fluid.data("ids", [None, 1], "int64")
    y = layers.softmax(layers.fc(x, 3) + layers.embedding(ids, [3, 3]))
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x", "ids"], [y], exe)
    return tmp_path / "model", exe.run(feed={"x": IMAGES, "ids": IDS}, fetch_list=[y])[0]


def native(path: Path) -> core.NativeConfig:
    config = core.NativeConfig()
    config.model_dir = str(path)
    return config


def analysis(path: Path) -> core.AnalysisConfig:
    config = core.AnalysisConfig(str(path))
    config.disable_gpu()
    config.switch_ir_optim(False)
    config.set_cpu_math_library_num_threads(1)
    return config


@each("configured", [native, analysis])
def test_tensors_in_the_order_of_the_feeds(saved: tuple[Path, Any], configured: Any) -> None:
    path, expected = saved
    (result,) = core.create_paddle_predictor(configured(path)).run([core.PaddleTensor(IMAGES), core.PaddleTensor(IDS)])
    assert (result.shape, result.dtype) == ([4, 3], core.PaddleDType.FLOAT32)
    np.testing.assert_array_equal(result.as_ndarray(), expected)


def test_tensors_by_name(saved: tuple[Path, Any]) -> None:
    config = analysis(saved[0])
    config.switch_specify_input_names()
    (result,) = core.create_paddle_predictor(config).run([core.PaddleTensor(IDS, "ids"), core.PaddleTensor(IMAGES, "x")])
    np.testing.assert_array_equal(result.as_ndarray(), saved[1])


def test_tensors_without_copies(saved: tuple[Path, Any]) -> None:
    predictor = core.create_paddle_predictor(analysis(saved[0])).clone()
    assert predictor.get_input_names() == ["x", "ids"]
    for name, value in (("x", IMAGES), ("ids", IDS)):
        tensor = predictor.get_input_tensor(name)
        tensor.reshape(list(value.shape))
        tensor.copy_from_cpu(value)
    predictor.zero_copy_run()
    output = predictor.get_output_tensor(predictor.get_output_names()[0])
    assert output.shape() == [4, 3]
    np.testing.assert_array_equal(output.copy_to_cpu(), saved[1])


def test_sequences(tmp_path: Path) -> None:
    x = fluid.data("x", [None, 2], lod_level=1)
    pooled, doubled = layers.sequence_pool(x, "sum"), x * 2.0
    fluid.io.save_inference_model(str(tmp_path), ["x"], [pooled, doubled], fluid.Executor())
    rows = core.PaddleTensor(IMAGES[:3, :2], lod=[[0, 1, 3]])
    sums, rows = core.create_paddle_predictor(native(tmp_path)).run([rows])
    np.testing.assert_allclose(sums.as_ndarray(), [IMAGES[0, :2], IMAGES[1:3, :2].sum(0)], rtol=1e-6)
    assert rows.lod == [[0, 1, 3]]


@each("dtype", ["float32", "int32", "int64"])
def test_buffers(dtype: str) -> None:
    array = np.arange(20).reshape(10, 2).astype(dtype)
    tensor = core.PaddleTensor(array)
    assert tensor.dtype == dtype
    assert tensor.data.length() == array.nbytes
    assert tensor.data.tolist(dtype) == array.ravel().tolist()
    tensor.data.reset(array + 1)
    np.testing.assert_array_equal(tensor.as_ndarray(), array + 1)
    assert core.PaddleBuf().empty()


def test_faults(saved: tuple[Path, Any]) -> None:
    predictor = core.create_paddle_predictor(native(saved[0]))
    with pytest.raises(ProgramError, match="takes 2 inputs, x, ids, not 1"):
        predictor.run([core.PaddleTensor(IMAGES)])
    with pytest.raises(NameNotFoundError, match="no 'id' among x, ids; did you mean ids"):
        predictor.get_input_tensor("id")
    with pytest.raises(ProgramError, match="NativeConfig names no model: give model_dir"):
        core.create_paddle_predictor(core.NativeConfig())
    with pytest.raises(FluidTypeError, match="float32, int64, int32 or uint8, not float64"):
        core.PaddleTensor([1.5])
