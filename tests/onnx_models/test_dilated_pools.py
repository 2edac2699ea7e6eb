"""ONNX's MaxPool with dilations: the maxima of windows whose elements lie apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime
from onnx import TensorProto, helper

import fluid
from fluid import layers

WINDOWS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "row": (["n", 2, 23], {"kernel_shape": [3], "dilations": [4], "strides": [3], "pads": [2, 1]}),
    "steps of the dilation": (["n", 2, 23], {"kernel_shape": [3], "dilations": [3], "strides": [6], "pads": [1, 0]}),
    "image": (["n", 2, 13, 17], {"kernel_shape": [3, 2], "dilations": [2, 5], "strides": [1, 5], "pads": [1, 1, 0, 1]}),
    "ceil": (["n", 1, 14, 11], {"kernel_shape": [2, 3], "dilations": [3, 2], "strides": [4, 3], "ceil_mode": 1}),
    "one way": (["n", 3, 9, 10], {"kernel_shape": [3, 3], "dilations": [1, 2]}),
    "volume": ([1, "c", 7, 6, 9], {"kernel_shape": [2, 2, 3], "dilations": [2, 1, 3], "strides": [1, 2, 1]}),
    "unknown batch and channels": (["n", "c", 9, 8], {"kernel_shape": [2, 2], "dilations": [3, 2]}),
    "long": ([1, 1, 220000], {"kernel_shape": [200], "dilations": [10], "strides": [10], "pads": [100, 100]}),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_dilated_maxima(tmp_path: Path, name: str) -> None:
    shape, attrs = WINDOWS[name]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("MaxPool", ["x"], ["y"], **attrs)], "pool", [x], [y])
    path = tmp_path / "pool.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    model = fluid.load_model(path, scope=fluid.Scope())
    sizes = [2 if isinstance(size, str) else size for size in shape]
    value = np.random.default_rng(0).standard_normal(sizes).astype(np.float32) - 3
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": value})
    (result,) = fluid.Executor().run(model.program, {"x": value}, model.fetches, scope=model.scope)
    np.testing.assert_array_equal(result, expected)
    with fluid.program_guard(model.program, fluid.Program()):
        root = model.program.global_block()
        root.var("x").stop_gradient = False
        (gradient,) = fluid.gradients(layers.reduce_sum(root.var("y")), root.var("x"))
    (got,) = fluid.Executor().run(model.program, {"x": value}, [gradient], scope=model.scope)
    assert got.sum() == expected.size and set(expected.ravel()) == set(value[got > 0])
