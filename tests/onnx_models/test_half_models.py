"""Models of float16 and bfloat16: weights stay halves, ops compute in float32 and round once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from checks import fresh_programs
from onnx import TensorProto, helper, numpy_helper
from onnx_running import session_of

import fluid
from fluid import layers
from fluid.values.bfloat16 import BFLOAT16, to_bfloat16, to_float32

HALVES = pytest.mark.parametrize("half", ["float16", "bfloat16"])
NUMBERS = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance of neighbouring halves, as a part of them."""
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


WEIGHTS = {
    "w": floats(8, 3, 3, 3) * 0.3, "b": floats(8), "scale": floats(128) ** 2, "shift": floats(128), "v": floats(128, 5) * 0.2,
    "tenth": np.float32(0.1),
}  # fmt: skip
IMAGES = floats(4, 3, 8, 8)


def saved(folder: Path, half: str) -> Path:
    """The file of a net of halves: a convolution, a layer norm and a product."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("LayerNormalization", ["f", "scale", "shift"], ["n"]),
        helper.make_node("MatMul", ["n", "v"], ["m"]),
        helper.make_node("Mul", ["m", "tenth"], ["t"]),
        helper.make_node("Cast", ["t"], ["y"], to=TensorProto.FLOAT),
    ]
    number = NUMBERS[half]
    dtype = helper.tensor_dtype_to_np_dtype(number)
    graph = helper.make_graph(
        nodes,
        "halves",
        [helper.make_tensor_value_info("x", number, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])],
        [numpy_helper.from_array(np.asarray(value).astype(dtype), name) for name, value in WEIGHTS.items()],
    )
    path = folder / f"{half}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)
    return path


ROUNDED: dict[str, Callable[[Any], Any]] = {
    "float16": lambda value: np.float32(value).astype(np.float16).astype(np.float32),
    "bfloat16": lambda value: to_float32(to_bfloat16(value)),
}


def expected(half: str) -> Any:
    """The net in plain numpy: each op in float64, then rounded to a half."""

    def r(value: Any) -> Any:
        return ROUNDED[half](value).astype(np.float64)

    x, w = r(IMAGES), {name: r(value) for name, value in WEIGHTS.items()}
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3))
    convolved = r(np.einsum("nchwij,mcij->nmhw", windows, w["w"]) + w["b"][:, None, None])
    flat = np.maximum(convolved, 0).reshape(4, 8, 4, 2, 4, 2).max((3, 5)).reshape(4, 128)
    normal = r((flat - flat.mean(1, keepdims=True)) / np.sqrt(flat.var(1, keepdims=True) + 1e-5) * w["scale"] + w["shift"])
    return r(r(normal @ w["v"]) * w["tenth"])


def results_of(path: Path) -> tuple[Any, Any]:
    model = fluid.load_model(path, scope=fluid.Scope())
    feed = IMAGES.astype(np.float16) if model.program.global_block().var("x").dtype.text == "float16" else IMAGES
    (value,) = fluid.Executor().run(model.program, {"x": feed}, model.fetches, scope=model.scope)
    return model, value


@HALVES
@pytest.mark.parametrize("native", [False, True])
def test_each_op_rounds_once(half: str, native: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for sums near the middle between two halves: they may be rounded either way, and the next ops see it."""
    monkeypatch.setenv("FLUID_NATIVE", str(int(native)))
    model, value = results_of(saved(tmp_path, half))
    held = {name: model.scope.array(name).dtype for name, array in WEIGHTS.items() if array.ndim}
    assert set(held.values()) == {np.dtype(np.float16) if half == "float16" else BFLOAT16}
    target = expected(half)
    off = np.abs(value - target)
    assert off.max() <= 2 * STEP[half] * np.abs(target).max()
    assert (off == 0).mean() > 0.5


def test_float16_beside_onnxruntime(tmp_path: Path) -> None:
    """onnxruntime computes these ops in float32 and may leave out roundings between two of them."""
    path = saved(tmp_path, "float16")
    (theirs,) = session_of(str(path)).run(None, {"x": IMAGES.astype(np.float16)})
    np.testing.assert_allclose(results_of(path)[1], theirs, rtol=0, atol=4 * STEP["float16"] * np.abs(theirs).max())


@HALVES
def test_every_op_is_native(half: str, tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    model, _ = results_of(saved(tmp_path, half))
    plan = fluid.Executor().plan(model.program, {"x": IMAGES.astype(np.float16)}, model.fetches, scope=model.scope)
    assert "on numpy: none" in plan.to_string()


@HALVES
@pytest.mark.parametrize(("target", "name"), [("paddle-2.6", "net.pdmodel"), ("paddle-3", "net.json"), (None, "again.onnx")])
def test_converted_files_give_the_same_numbers(half: str, target: str | None, name: str, tmp_path: Path) -> None:
    model, value = results_of(saved(tmp_path, half))
    how = {} if target is None else {"target": target}
    fluid.save_model(tmp_path / name, model.program, feeds=["x"], fetches=model.fetches, scope=model.scope, **how)
    np.testing.assert_array_equal(results_of(tmp_path / name)[1], value)


@HALVES
def test_a_net_of_halves_trains(half: str, tmp_path: Path) -> None:
    model = fluid.load_model(saved(tmp_path, half), scope=fluid.Scope())
    model.program.make_trainable()
    startup = fluid.Program()
    with fluid.program_guard(model.program, startup), fluid.scope_guard(model.scope):
        loss = layers.reduce_mean(layers.square(model.program.global_block().var("y") - 0.5))
        fluid.optimizer.SGD(0.25).minimize(loss)
        executor = fluid.Executor()
        executor.run(startup)
        feed = {"x": IMAGES.astype(np.float16) if half == "float16" else IMAGES}
        losses = [executor.run(model.program, feed, [loss])[0].item() for _ in range(30)]
    assert losses[-1] < 0.3 * losses[0]


OPS: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: layers.matmul(x, x, transpose_y=True),
    "gelu": layers.gelu,
    "softmax": layers.softmax,
    "mean": layers.reduce_mean,
    "transposed": lambda x: layers.transpose(x, [1, 0]),
    "number": lambda x: x * layers.fill_constant([1], x.dtype, 0.1) + layers.fill_constant([4, 6], x.dtype, 2.0),
    "ones": lambda x: x + layers.ones_like(x),
    "logits": lambda x: layers.log(layers.sigmoid(x) + 1.0),
}


@HALVES
@pytest.mark.parametrize("opset", [18, 22])
def test_written_ops_round_as_here(half: str, opset: int, tmp_path: Path) -> None:
    """ONNX's checker accepts the types, and onnx's own ops, read again, give the same halves."""
    path = tmp_path / "ops.onnx"
    feed = {"x": floats(4, 6).astype("float16" if half == "float16" else "float32")}
    executor = fluid.Executor()
    with fresh_programs() as (main, _):
        x = fluid.data("x", [4, 6], half)
        fetches = [layers.cast(build(x), "float32") for build in OPS.values()]
        fluid.save_model(path, feeds=[x], fetches=fetches, opset=opset)
        ours = executor.run(main, feed, fetches)
    onnx.checker.check_model(str(path), full_check=True)
    model = fluid.load_model(path, scope=fluid.Scope())
    again = executor.run(model.program, feed, model.fetches, scope=model.scope)
    for name, one, two in zip(OPS, ours, again, strict=True):
        assert (np.abs(one - two) <= STEP[half] * np.abs(one)).all() and (one == two).mean() > 0.8, name
