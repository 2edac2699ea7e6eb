"""A corpus of small models of each kind that packages ship, and three real ones: read, run, converted, run again and trained.

The real models are those of rapidocr-onnxruntime (extra test-models): a detector, a classifier and a recognizer of text. Only the
files of the package are read.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import test_half_models
import test_quantized_models
import test_recurrences
from checks import each, fresh_programs
from onnx import TensorProto, helper, numpy_helper, save_model
from onnx_running import session_of

import fluid
from fluid import layers

RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return (RANDOM.standard_normal(shape) * 0.4).astype(np.float32)


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes:
        make: writes a model into a folder; returns its path, and a feed.
        trains: whether its weights may be trained; ops on integers have no gradients.
        tolerance: the greatest difference from onnxruntime, as a part of the greatest number of an output.
        targets: the formats that can hold it, besides ONNX.
    """

    make: Callable[[Path], tuple[Path, dict[str, Any]]]
    trains: bool = True
    tolerance: float = 2e-6
    targets: tuple[str, ...] = ("paddle-2.6", "paddle-3")


def write_model(
    path: Path, nodes: list[Any], feed: dict[str, Any], outputs: list[str], arrays: dict[str, Any], open_size: int = 0
) -> tuple[Path, dict[str, Any]]:
    """Write a model whose inputs have an open size along one axis."""
    infos = []
    for name, value in feed.items():
        shape: list[Any] = list(value.shape)
        shape[open_size] = "n"
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape))
    graph = helper.make_graph(
        nodes,
        "kind",
        infos,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    save_model(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path, feed


def dynamic(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Sizes are computed: Shape, Gather, Concat, Reshape, Expand."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Shape", ["m"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axis"], ["rows"]),
        helper.make_node("Concat", ["rows", "parts"], ["shape"], axis=0),
        helper.make_node("Reshape", ["m", "shape"], ["r"]),
        helper.make_node("Concat", ["rows", "spread"], ["wide"], axis=0),
        helper.make_node("Expand", ["b", "wide"], ["e"]),
        helper.make_node("Add", ["r", "e"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    arrays = {
        "w": floats(6, 8), "b": floats(1, 1, 4), "zero": np.int64(0), "axis": np.int64([0]), "parts": np.int64([2, 4]),
        "spread": np.int64([1, 1]),
    }  # fmt: skip
    return write_model(folder / "m.onnx", nodes, {"x": floats(3, 6)}, ["y"], arrays)


def branching(folder: Path) -> tuple[Path, dict[str, Any]]:
    """A batch of one takes another branch, whose result has another number of dimensions."""
    squeezed, same = (
        helper.make_graph([node], name, [], [helper.make_empty_tensor_value_info(node.output[0])])
        for name, node in {
            "one": helper.make_node("Squeeze", ["m", "axis"], ["t"]),
            "many": helper.make_node("Identity", ["m"], ["u"]),
        }.items()
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["batch"]),
        helper.make_node("Equal", ["batch", "single"], ["is_one"]),
        helper.make_node("If", ["is_one"], ["s"], then_branch=squeezed, else_branch=same),
        helper.make_node("Tanh", ["s"], ["t2"]),
        helper.make_node("MatMul", ["t2", "v"], ["p"]),
        helper.make_node("ReduceSum", ["p"], ["y"], keepdims=0),
    ]
    arrays = {"w": floats(4, 5), "v": floats(5, 3), "zero": np.int64(0), "axis": np.int64([0]), "single": np.int64(1)}
    return write_model(folder / "m.onnx", nodes, {"x": floats(3, 4)}, ["y"], arrays)


def recurrence(kind: str, direction: str, **attrs: Any) -> Callable[[Path], tuple[Path, dict[str, Any]]]:
    def make(folder: Path) -> tuple[Path, dict[str, Any]]:
        path = test_recurrences.saved(folder / "m.onnx", kind, direction, has_lengths=False, has_states=False, **attrs)
        return path, {"x": floats(7, 3, 5)}

    return make


def half(folder: Path) -> tuple[Path, dict[str, Any]]:
    return test_half_models.saved(folder, "float16"), {"x": test_half_models.IMAGES.astype(np.float16)}


def quantized(name: str, how: str) -> Callable[[Path], tuple[Path, dict[str, Any]]]:
    def make(folder: Path) -> tuple[Path, dict[str, Any]]:
        path, x = test_quantized_models.by_onnxruntime(name, how, folder)
        return path, {"x": x}

    return make


def optimized(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Ops of com.microsoft, as onnxruntime's optimizer writes them for a transformer."""
    nodes = [
        helper.make_node("Attention", ["x", "qkv", "qkv_bias"], ["a"], domain="com.microsoft", num_heads=2),
        helper.make_node("SkipLayerNormalization", ["a", "x", "g", "b"], ["n"], domain="com.microsoft"),
        helper.make_node("FusedMatMul", ["n", "w"], ["m"], domain="com.microsoft", alpha=0.5),
        helper.make_node("BiasGelu", ["m", "c"], ["y"], domain="com.microsoft"),
    ]
    arrays = {"qkv": floats(8, 24), "qkv_bias": floats(24), "g": floats(8), "b": floats(8), "w": floats(8, 12), "c": floats(12)}
    return write_model(folder / "m.onnx", nodes, {"x": floats(2, 5, 8)}, ["y"], arrays)


KINDS = {
    "dynamic shapes": Kind(dynamic),
    "branches": Kind(branching),
    "lstm": Kind(recurrence("LSTM", "bidirectional")),
    "gru": Kind(recurrence("GRU", "forward")),
    "gru, linear before reset": Kind(recurrence("GRU", "reverse", linear_before_reset=1)),
    "float16": Kind(half, tolerance=4 * test_half_models.STEP["float16"]),
    "qdq": Kind(quantized("cnn", "qdq by channel"), tolerance=0.05),
    "qoperator": Kind(quantized("cnn", "qoperator"), trains=False, tolerance=0.05),
    "dynamically quantized": Kind(quantized("mlp", "dynamic"), trains=False, tolerance=0.05),
    "com.microsoft": Kind(optimized),
}


def run(model: Any, feed: dict[str, Any]) -> list[Any]:
    return fluid.Executor().run(model.program, feed, model.fetches, scope=model.scope)  # type: ignore[no-any-return]


def assert_close(ours: list[Any], theirs: list[Any], tolerance: float) -> None:
    assert len(ours) == len(theirs)
    for one, two in zip(ours, theirs, strict=True):
        assert one.shape == two.shape and np.abs(two).max() > 1e-3
        off = np.abs(one.astype(np.float64) - two.astype(np.float64)).max()
        assert off <= tolerance * np.abs(two).max(), off


def assert_converts(
    model: Any, feed: dict[str, Any], values: list[Any], targets: tuple[str, ...], tolerance: float, folder: Path
) -> None:
    """Write a model in each format, read it again, and compare the numbers; onnxruntime runs the ONNX model."""
    names = {"paddle-1.6": "folder", "paddle-2.6": "net.pdmodel", "paddle-3": "net.json", "onnx": "again.onnx"}
    for target in (*targets, "onnx"):
        path = folder / names[target]
        how = {} if target == "onnx" else {"target": target}
        fluid.save_model(path, model.program, feeds=list(feed), fetches=model.fetches, scope=model.scope, **how)
        assert_close(run(fluid.load_model(path, scope=fluid.Scope()), feed), values, 1e-5)
    assert_close(session_of(str(folder / names["onnx"])).run(None, feed), values, max(tolerance, 1e-5))


def assert_trains(model: Any, feed: dict[str, Any], values: list[Any], rate: float) -> None:
    """A few steps bring the first output closer to its value for other columns."""
    model.program.make_trainable(scope=model.scope)
    startup = fluid.Program()
    with fluid.program_guard(model.program, startup), fluid.scope_guard(model.scope):
        out = layers.cast(model.program.global_block().var(model.fetches[0].name), "float32")
        target = layers.assign(np.roll(values[0], 1, -1).astype("float32") if values[0].ndim else values[0] + np.float32(1))
        loss = layers.reduce_mean(layers.square(out - target))
        fluid.optimizer.Adam(rate).minimize(loss)
        executor = fluid.Executor()
        executor.run(startup)
        losses = [executor.run(model.program, feed, [loss])[0].item() for _ in range(8)]
    assert losses[-1] < 0.95 * losses[0], losses


@each("name", list(KINDS))
def test_models_of_each_kind(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    path, feed = kind.make(tmp_path)
    with fresh_programs():
        model = fluid.load_model(path, scope=fluid.Scope())
        values = run(model, feed)
        assert_close(values, session_of(str(path)).run(None, feed), kind.tolerance)
        assert_converts(model, feed, values, kind.targets, kind.tolerance, tmp_path)
        if kind.trains:
            assert_trains(model, feed, values, 2e-3)


REAL = {
    "ch_PP-OCRv4_det_infer.onnx": (1, 3, 64, 96),
    "ch_PP-OCRv4_rec_infer.onnx": (1, 3, 48, 80),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": (2, 3, 48, 192),
}
"""Model files -> the shape of a feed."""


def page(*shape: int) -> Any:
    """White images with black strokes in the middle."""
    images = np.ones(shape, np.float32)
    middle = images[:, :, shape[2] // 3 : -shape[2] // 3, 10:-10]
    middle[RANDOM.random(middle.shape) < 0.4] = -1
    return images


@pytest.mark.slow
@each("name", list(REAL))
def test_real_models(name: str, tmp_path: Path) -> None:
    package = importlib.util.find_spec("rapidocr_onnxruntime")
    if package is None or package.origin is None:
        pytest.skip("needs rapidocr-onnxruntime, whose files are read")
    path, feed = Path(package.origin).parent / "models" / name, {"x": page(*REAL[name])}
    with fresh_programs():
        model = fluid.load_model(path, scope=fluid.Scope())
        values = run(model, feed)
        assert_close(values, session_of(str(path)).run(None, feed), 1e-4)
        assert_converts(model, feed, values, ("paddle-2.6", "paddle-3"), 1e-4, tmp_path)
        assert_trains(model, feed, values, 1e-4)
