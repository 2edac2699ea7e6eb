"""Models whose exporter wrote parameters of equal values once: each trains as a parameter of its own, as in the model before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper
from training_steps import train

import fluid
from fluid.errors import ProgramError

CHANNELS = 4


def kernel(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape) / 4


def normalized() -> tuple[list[Any], dict[str, Any]]:
    """Two convolutions, each with a batch_norm as it is before training."""
    arrays: dict[str, Any] = {"w1": kernel(1, CHANNELS, 3, 3, 3), "w2": kernel(2, CHANNELS, CHANNELS, 3, 3)}
    nodes, value = [], "x"
    for layer in "12":
        norm = [f"{part}{layer}" for part in ("scale", "bias", "mean", "variance")]
        arrays |= dict(zip(norm, (np.ones(CHANNELS), np.zeros(CHANNELS), np.zeros(CHANNELS), np.ones(CHANNELS)), strict=True))
        nodes += [
            helper.make_node("Conv", [value, f"w{layer}"], [f"c{layer}"], pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", [f"c{layer}", *norm], [f"n{layer}"]),
            helper.make_node("Sigmoid", [f"n{layer}"], [f"s{layer}"]),
        ]
        value = f"s{layer}"
    return [*nodes, helper.make_node("Identity", [value], ["y"])], arrays


def scaled() -> tuple[list[Any], dict[str, Any]]:
    """Two residual layers: convolution with bias, LayerNormalization, a product with bias, a scale for each channel."""
    arrays: dict[str, Any] = {}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["r0"])]
    arrays["w0"] = kernel(0, CHANNELS, 3, 1, 1)
    for layer in (1, 2):
        arrays |= {f"w{layer}": kernel(layer, CHANNELS, CHANNELS, 3, 3), f"b{layer}": np.zeros(CHANNELS)}
        arrays |= {f"scale{layer}": np.ones(CHANNELS), f"shift{layer}": np.zeros(CHANNELS)}
        arrays |= {f"m{layer}": kernel(3 + layer, CHANNELS, CHANNELS), f"d{layer}": np.zeros(CHANNELS)}
        arrays |= {f"gamma{layer}": np.full((CHANNELS, 1, 1), 0.1)}
        for kind, inputs, output, attrs in (
            ("Conv", ["r", "w", "b"], "c", {"pads": [1, 1, 1, 1]}),
            ("Transpose", ["c"], "t", {"perm": [0, 2, 3, 1]}),
            ("LayerNormalization", ["t", "scale", "shift"], "n", {}),
            ("MatMul", ["n", "m"], "p", {}),
            ("Add", ["p", "d"], "a", {}),
            ("Transpose", ["a"], "u", {"perm": [0, 3, 1, 2]}),
            ("Mul", ["u", "gamma"], "g", {}),
        ):
            names = [f"{name}{layer - (name == 'r')}" for name in inputs]
            nodes.append(helper.make_node(kind, names, [f"{output}{layer}"], **attrs))
        nodes.append(helper.make_node("Add", [f"g{layer}", f"r{layer - 1}"], [f"r{layer}"]))
    return [*nodes, helper.make_node("Identity", ["r2"], ["y"])], arrays


NETS = {"batch_norm": normalized, "layer_norm": scaled}


def saved(path: Path, nodes: list[Any], arrays: dict[str, Any], merges: bool) -> dict[str, str]:
    """Write the model; return the name in the file for each array."""
    first: dict[Any, str] = {}
    names = {}
    for name, array in arrays.items():
        key = (array.shape, array.astype(np.float32).tobytes()) if merges else name
        names[name] = first.setdefault(key, name)
    tensors = [numpy_helper.from_array(arrays[name].astype(np.float32), name) for name in first.values()]
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "net", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return names


def input_names(program: Any, slots: tuple[str, ...] = ("Filter", "Y", "Bias", "Scale", "Mean", "Variance")) -> list[str]:
    """Names of the persistable inputs, op by op."""
    root = program.global_block()
    names = [name for op in root.ops for slot in slots for name in op.inputs.get(slot, ())]
    return [name for name in names if name in root.vars and root.vars[name].persistable]


def trained(path: Path) -> tuple[Any, list[str], list[Any]]:
    """The model, the names of its arrays, op by op, and their values after three steps."""
    model = fluid.load_model(path, scope=fluid.Scope())
    model.program.make_trainable(scope=model.scope)
    names = input_names(model.program)
    train(model)
    return model, names, [model.scope.array(name).copy() for name in names]


@pytest.mark.parametrize("kind", NETS)
def test_merged_weights_train_as_parameters_of_their_own(kind: str, tmp_path: Path) -> None:
    nodes, arrays = NETS[kind]()
    names = saved(tmp_path / "apart.onnx", nodes, arrays, merges=False)
    _, _, want = trained(tmp_path / "apart.onnx")
    names = saved(tmp_path / "merged.onnx", NETS[kind]()[0], arrays, merges=True)
    assert len(set(names.values())) < len(names) - 4
    model, names_now, values = trained(tmp_path / "merged.onnx")
    assert len(names_now) == len(set(names_now)) == len(arrays)
    for name, value, expected in zip(names_now, values, want, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6, err_msg=name)
    x = np.ones((2, 3, 8, 8), np.float32)
    (expected,) = fluid.Executor().run(model.program.clone(for_test=True), {"x": x}, ["y"], scope=model.scope)
    for file_name in ("again.onnx", "again.json"):
        fluid.save_model(tmp_path / file_name, model.program, feeds=["x"], fetches=["y"], scope=model.scope)
        again = fluid.load_model(tmp_path / file_name, scope=fluid.Scope())
        (result,) = fluid.Executor().run(again.program, {"x": x}, again.fetches, scope=again.scope)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=file_name)


def test_a_layer_that_is_applied_twice_stays_one(tmp_path: Path) -> None:
    """Of two images, by one convolution, batch_norm and product; the batch_norm is the first layer's, too, before any matrix."""
    arrays: dict[str, Any] = {"w": kernel(1, CHANNELS, 3, 3, 3), "m": kernel(2, CHANNELS, CHANNELS), "b": np.full(CHANNELS, 0.1)}
    arrays |= dict(zip(("s1", "b1", "m1", "v1"), np.arange(1.0, 13.0).reshape(4, 3), strict=True))
    arrays |= dict(zip(("s2", "b2", "m2", "v2"), np.arange(1.0, 17.0).reshape(4, CHANNELS), strict=True))
    nodes = []
    for part, source in enumerate(("x", "half")):
        for kind, inputs, output, attrs in (
            ("BatchNormalization", [source, "s1", "b1", "m1", "v1"], "n", {}),
            ("Conv", [f"n{part}", "w"], "c", {}),
            ("BatchNormalization", [f"c{part}", "s2", "b2", "m2", "v2"], "k", {}),
            ("ReduceMean", [f"k{part}", "axes"], "p", {"keepdims": 0}),
            ("MatMul", [f"p{part}", "m"], "q", {}),
            ("Add", [f"q{part}", "b"], "z", {}),
        ):
            nodes.append(helper.make_node(kind, inputs, [f"{output}{part}"], **attrs))
    axes = helper.make_node("Constant", [], ["axes"], value=numpy_helper.from_array(np.array([2, 3])))
    nodes = [axes, helper.make_node("Mul", ["x", "x"], ["half"]), *nodes, helper.make_node("Mul", ["z0", "z1"], ["y"])]
    saved(tmp_path / "net.onnx", nodes, arrays, merges=True)
    _, names, _ = trained(tmp_path / "net.onnx")
    assert set(names) == arrays.keys() and all(names.count(name) == 2 for name in arrays)


def test_layers_of_one_block_that_repeats_stay_tied_and_others_do_not(tmp_path: Path) -> None:
    """Residual layers that all read one matrix share their scales; behind them comes a layer of its own."""
    arrays: dict[str, Any] = {"w": kernel(1, CHANNELS, 3, 1, 1), "v": kernel(2, CHANNELS, CHANNELS, 1, 1)}
    arrays |= {"u": kernel(3, CHANNELS, CHANNELS, 1, 1), "g": np.full((CHANNELS, 1, 1), 0.5)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["r0"])]
    for layer, matrix in enumerate("vvvu"):
        nodes += [
            helper.make_node("Conv", [f"r{layer}", matrix], [f"c{layer}"]),
            helper.make_node("Mul", [f"c{layer}", "g"], [f"g{layer}"]),
            helper.make_node("Add", [f"g{layer}", f"r{layer}"], [f"r{layer + 1}"]),
        ]
    saved(tmp_path / "net.onnx", [*nodes, helper.make_node("Sigmoid", ["r4"], ["y"])], arrays, merges=True)
    _, names, _ = trained(tmp_path / "net.onnx")
    assert [name for name in names if name.startswith("g")] == ["g", "g", "g", "g_0"]


def test_a_formula_that_names_a_parameter_twice_keeps_one(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"w": kernel(1, CHANNELS, 3, 3, 3), "v": kernel(2, CHANNELS, CHANNELS, 1, 1), "m": np.ones(CHANNELS)}
    shape = helper.make_node("Constant", [], ["shape"], value=numpy_helper.from_array(np.array([1, CHANNELS, 1, 1])))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Reshape", ["m", "shape"], ["d"]),
        helper.make_node("Sub", ["c", "d"], ["e"]),
        helper.make_node("Sigmoid", ["e"], ["s"]),
        helper.make_node("Reshape", ["m", "shape"], ["f"]),
        helper.make_node("Add", ["s", "f"], ["g"]),
        helper.make_node("Conv", ["g", "v"], ["y"]),
    ]
    saved(tmp_path / "net.onnx", [shape, *nodes], arrays, merges=True)
    model = fluid.load_model(tmp_path / "net.onnx", scope=fluid.Scope())
    assert model.program.make_trainable(scope=model.scope).notes == ()
    assert sorted(parameter.name for parameter in model.program.all_parameters()) == ["m", "v", "w"]


def test_a_pattern_of_a_merged_name_means_all_its_parts(tmp_path: Path) -> None:
    nodes, arrays = normalized()
    saved(tmp_path / "net.onnx", nodes, arrays, merges=True)
    model = fluid.load_model(tmp_path / "net.onnx", scope=fluid.Scope())
    report = model.program.make_trainable("bias1", scope=model.scope)
    assert sorted(p.name for p in model.program.all_parameters() if p.trainable) == ["bias1", "bias1_1"]
    assert "bias1 is 4 parameters of equal values that the exporter merged; each has a variable of its own now" in report.notes


def test_without_their_values_merged_weights_stay_one_and_statistics_are_refused(tmp_path: Path) -> None:
    nodes, arrays = scaled()
    saved(tmp_path / "net.onnx", nodes, arrays, merges=True)
    program = fluid.load_model(tmp_path / "net.onnx", scope=fluid.Scope()).program
    notes = program.make_trainable(scope=fluid.Scope()).notes
    assert (
        "b1 is 6 parameters of equal values that the exporter merged; they train as one, since it has no value in the scope"
        in notes
    )
    saved(tmp_path / "net.onnx", *normalized(), merges=True)
    program = fluid.load_model(tmp_path / "net.onnx", scope=fluid.Scope()).program
    before = program.to_string()
    with pytest.raises(ProgramError, match=r"1 is 4 parameters of equal .* make_trainable\(scope=model.scope\)"):
        program.make_trainable(scope=fluid.Scope())
    assert program.to_string() == before
