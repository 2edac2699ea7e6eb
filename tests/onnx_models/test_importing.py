"""ONNX models as programs: what becomes of names, sizes, weights, functions and graphs inside; and what can be done with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper
from training_steps import train

import fluid
from fluid import layers
from fluid.errors import ProgramError
from fluid.onnx import document
from fluid.onnx.table import IMPORTS
from fluid.values.types import VarType

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RANDOM = np.random.default_rng(0)


def weight(name: str, *shape: int) -> Any:
    return numpy_helper.from_array(RANDOM.standard_normal(shape).astype(np.float32), name)


def constant(name: str, value: Any, dtype: Any = np.int64) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value, dtype)))


def saved(
    path: Path,
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: list[str],
    weights: list[Any] | None = None,
    opset: int = 18,
    **more: Any,
) -> Path:
    """A model's file; inputs are (element type, shape)."""
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    results = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "graph", infos, results, weights or [])
    imports = [helper.make_opsetid("", opset), *more.pop("opsets", [])]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10, **more), path)
    return path


def load(path: Path, **how: Any) -> Any:
    return fluid.load_model(path, scope=fluid.Scope(), **how)


def run(model: Any, *values: Any) -> list[Any]:
    feed = dict(zip(model.feeds, values, strict=True))
    results: list[Any] = fluid.Executor().run(model.program, feed=feed, fetch_list=model.fetches, scope=model.scope)
    return results


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2"], ["y"], transB=1),
    ]
    weights = [weight("w1", 4, 8), weight("b1", 8), weight("w2", 3, 8)]
    return saved(tmp_path / "mlp.onnx", nodes, {"x": (FLOAT, ["batch", 4])}, ["y"], weights)


def expected(model: Any, x: Any) -> Any:
    return np.maximum(x @ model.value("w1") + model.value("b1"), 0) @ model.value("w2").T


def test_names_sizes_and_weights(mlp: Path) -> None:
    model = load(mlp)
    assert (model.format, model.feeds, [var.name for var in model.fetches]) == ("onnx", ["x"], ["y"])
    assert model.dimensions == {"x": ["batch", 4]}
    assert sorted(model.parameters) == ["b1", "w1", "w2"] and model.missing == []
    root = model.program.global_block()
    assert root.var("x").shape == (-1, 4) and root.var("y").shape == (-1, 3) and {"h", "r"} <= root.vars.keys()
    for count in (1, 5):
        x = RANDOM.standard_normal((count, 4)).astype(np.float32)
        np.testing.assert_allclose(run(model, x)[0], expected(model, x), rtol=1e-5, atol=1e-5)


def test_it_trains(mlp: Path) -> None:
    model = load(mlp)
    model.program.make_trainable()
    with fluid.program_guard(model.program, fluid.Program()):
        y = model.program.global_block().var("y")
        loss = layers.mean(layers.square(y - 1.0))
        fluid.optimizer.SGD(0.05).minimize(loss)
        startup = fluid.default_startup_program()
    executor = fluid.Executor()
    executor.run(startup, scope=model.scope)
    x = RANDOM.standard_normal((16, 4)).astype(np.float32)
    losses = [float(executor.run(model.program, {"x": x}, [loss], scope=model.scope)[0]) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]


def trained(path: Path) -> dict[str, Any]:
    """Weights and statistics of a model from x to y after three steps."""
    model = load(path)
    model.program.make_trainable()
    train(model)
    return {name: model.value(name).copy() for name in ("w1", "s1", "b1", "s2", "s3", "w2", "b2")}


@pytest.mark.parametrize("channels", [1, 4, 600])
def test_weights_in_constant_nodes_train_as_initializers_do(tmp_path: Path, channels: int) -> None:
    """Of any size: a convolution without bias, its statistics, a product, and a bias that is added to it."""
    draw = np.random.default_rng(1)
    shapes = {"w1": (channels, 3, 3, 3), "s1": (channels,), "b1": (channels,), "s2": (channels,), "s3": (channels,)}
    shapes |= {"w2": (channels, 2), "b2": (2,)}
    weights = [numpy_helper.from_array(draw.uniform(0.5, 1, shape).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s1", "b1", "s2", "s3"], ["n"]),
        helper.make_node("GlobalAveragePool", ["n"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w2"], ["m"]),
        helper.make_node("Add", ["m", "b2"], ["a"]),
        constant("half", [0.5, 0.5], np.float32),
        helper.make_node("Mul", ["a", "half"], ["y"]),
    ]
    constants = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in weights]
    inputs = {"x": (FLOAT, ["n", 3, 8, 8])}
    want = trained(saved(tmp_path / "initializers.onnx", nodes, inputs, ["y"], weights))
    path = saved(tmp_path / "constants.onnx", [*constants, *nodes], inputs, ["y"])
    assert sorted(load(path).parameters) == sorted({*shapes})
    trained_values = trained(path)
    for name, array in want.items():
        np.testing.assert_array_equal(trained_values[name], array, name)
        assert not np.array_equal(array, numpy_helper.to_array(weights[list(shapes).index(name)])), name


def test_it_is_saved_as_paddle_does(mlp: Path, tmp_path: Path) -> None:
    model = load(mlp)
    x = RANDOM.standard_normal((2, 4)).astype(np.float32)
    fluid.save_model(tmp_path / "net.pdmodel", model.program, model.feeds, model.fetches, scope=model.scope, target="paddle-2.6")
    again = load(tmp_path / "net.pdmodel")
    np.testing.assert_array_equal(run(again, x)[0], run(model, x)[0])
    model.program.prune(["x"], ["h"])
    assert [op.type for op in model.program.global_block().ops if op.type not in ("feed", "fetch")] == [
        "matmul_v2",
        "elementwise_add",
    ]


def test_arithmetic_on_shapes_is_folded(tmp_path: Path) -> None:
    """Shape -> Gather -> Mul -> Concat -> Reshape: the batch is told by a run, and no op computes shapes."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        constant("zero", 0),
        constant("one", [1]),
        constant("two", [2]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Slice", ["s", "one", "two"], ["c"]),
        helper.make_node("Mul", ["c", "two"], ["wide"]),
        helper.make_node("Concat", ["n1", "two", "wide"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    axes = numpy_helper.from_array(np.array([0]), "axes")
    model = load(saved(tmp_path / "m.onnx", nodes, {"x": (FLOAT, ["n", 3, 4])}, ["y"], [axes]))
    assert [op.type for op in model.program.global_block().ops] == ["feed", "reshape2", "fetch"]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(run(model, x)[0], x.reshape(2, 2, 6))


def test_shapes_that_only_a_run_tells(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        constant("four", [4]),
        helper.make_node("Concat", ["s", "four"], ["t"], axis=0),
        helper.make_node("Unsqueeze", ["x", "two"], ["u"]),
        constant("two", [2]),
        helper.make_node("Expand", ["u", "t"], ["y"]),
    ]
    nodes[3], nodes[4] = nodes[4], nodes[3]
    model = load(saved(tmp_path / "m.onnx", nodes, {"x": (FLOAT, ["a", "b"])}, ["y"]))
    x = RANDOM.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(model, x)[0], np.broadcast_to(x[:, :, None], (2, 3, 4)))


def test_inputs_that_are_known_beforehand(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "m.onnx",
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
        {"x": (FLOAT, [2, 3]), "axes": (INT64, [1])},
        ["y"],
    )
    with pytest.raises(fluid.errors.FormatError, match=r"its axes \(input 1\) is computed in a run"):
        load(path)
    model = load(path, constants={"axes": np.array([0])})
    assert model.feeds == ["x"]
    np.testing.assert_array_equal(run(model, np.ones((2, 3), np.float32))[0], [2, 2, 2])
    with pytest.raises(ProgramError, match="no input 'axis' to be a constant; did you mean axes"):
        load(path, constants={"axis": np.array([0])})


def test_large_tensors_stay_in_the_file(tmp_path: Path) -> None:
    """Large tensors are views of the mapped file, or of one beside it; both give the same results."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    path = saved(tmp_path / "m.onnx", nodes, {"x": (FLOAT, [1, 64])}, ["y"], [weight("w", 64, 64)])
    model = load(path)
    x = np.ones((1, 64), np.float32)
    assert not model.scope.array("w").flags.owndata and not model.scope.array("w").flags.writeable
    beside = onnx.load(path)
    onnx.save(beside, tmp_path / "e.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size == 64 * 64 * 4
    external_model = load(tmp_path / "e.onnx")
    np.testing.assert_array_equal(external_model.value("w"), model.value("w"))
    np.testing.assert_array_equal(run(external_model, x)[0], run(model, x)[0])


def test_functions_with_attributes(tmp_path: Path) -> None:
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"])
    reference = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    leaky.attribute.append(reference)
    function = helper.make_function("own", "Bent", ["a"], ["b"], [leaky], [helper.make_opsetid("", 18)], ["slope"])
    nodes = [helper.make_node("Bent", ["x"], ["y"], domain="own", slope=0.5)]
    path = saved(
        tmp_path / "m.onnx", nodes, {"x": (FLOAT, [2])}, ["y"], functions=[function], opsets=[helper.make_opsetid("own", 1)]
    )
    np.testing.assert_array_equal(run(load(path), np.array([-2, 2], np.float32))[0], [-1, 2])


def graph(name: str, nodes: list[Any], inputs: list[tuple[str, int]], outputs: list[tuple[str, int]]) -> Any:
    infos = [[helper.make_tensor_value_info(value_name, kind, None) for value_name, kind in side] for side in (inputs, outputs)]
    return helper.make_graph(nodes, name, *infos)


def test_a_loop_trains(tmp_path: Path) -> None:
    """``x = x * w`` as often as a run tells; and its gradient."""
    body = graph(
        "body",
        [
            helper.make_node("Mul", ["h", "w"], ["g"]),
            helper.make_node("Identity", ["c"], ["d"]),
            helper.make_node("Exp", ["g"], ["e"]),
        ],
        [("i", INT64), ("c", BOOL), ("h", FLOAT)],
        [("d", BOOL), ("g", FLOAT), ("e", FLOAT)],
    )
    nodes = [helper.make_node("Loop", ["times", "", "x"], ["y", "all"], body=body)]
    path = saved(tmp_path / "m.onnx", nodes, {"times": (INT64, []), "x": (FLOAT, [3])}, ["y", "all"], [weight("w", 3)])
    model = load(path)
    x, w = np.array([1, 2, 3], np.float32), model.value("w").copy()
    y, steps = run(model, np.int64(4), x)
    np.testing.assert_allclose(y, x * w**4, rtol=1e-5)
    np.testing.assert_allclose(steps, np.exp([x * w**n for n in range(1, 5)]), rtol=1e-5)
    model.program.make_trainable()
    with fluid.program_guard(model.program, fluid.Program()):
        root = model.program.global_block()
        (gradient,) = fluid.gradients([layers.reduce_sum(root.var("y"))], [root.var("w")])
    (value,) = fluid.Executor().run(model.program, {"times": np.int64(4), "x": x}, [gradient], scope=model.scope)
    np.testing.assert_allclose(value, x * 4 * w**3, rtol=1e-4)


def test_a_branch_and_a_scan(tmp_path: Path) -> None:
    then_graph, else_graph = (
        graph(op, [helper.make_node(op, ["t"], [f"z{op}"])], [], [(f"z{op}", FLOAT)]) for op in ("Neg", "Identity")
    )
    body = graph(
        "body",
        [helper.make_node("Add", ["s", "r"], ["t"]), helper.make_node("Identity", ["t"], ["u"])],
        [("s", FLOAT), ("r", FLOAT)],
        [("t", FLOAT), ("u", FLOAT)],
    )
    nodes = [
        helper.make_node("Scan", ["first", "x"], ["last", "t"], body=body, num_scan_inputs=1),
        helper.make_node("If", ["c"], ["y"], then_branch=then_graph, else_branch=else_graph),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"x": (FLOAT, [3, 2]), "first": (FLOAT, [2]), "c": (BOOL, [])}, ["y", "last"])
    model = load(path)
    x, first = RANDOM.standard_normal((3, 2)).astype(np.float32), np.ones(2, np.float32)
    for condition, sign in ((True, -1), (False, 1)):
        y, last = run(model, x, first, np.bool_(condition))
        np.testing.assert_allclose(y, sign * (first + np.cumsum(x, 0)), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(last, first + x.sum(0), rtol=1e-5, atol=1e-6)


def test_a_scan_of_a_batch(tmp_path: Path) -> None:
    """Opset 8: each sequence of a batch starts from a separate state; one of two inputs is read backwards."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "one"], ["product"]),
            helper.make_node("Add", ["product", "other"], ["next"]),
            helper.make_node("Identity", ["next"], ["shown"]),
        ],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("state", "one", "other")],
        [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("next", "shown")],
    )
    node = helper.make_node("Scan", ["", "first", "x", "y"], ["last", "all"], body=body, num_scan_inputs=2, directions=[0, 1])
    inputs = {name: (FLOAT, shape) for name, shape in (("first", [3, 2]), ("x", [3, 4, 2]), ("y", [3, 4, 2]))}
    model = load(saved(tmp_path / "m.onnx", [node], inputs, ["last", "all"], opset=8))
    first, x, y = (RANDOM.standard_normal(shape).astype("float32") for _, shape in inputs.values())
    state, rows = first, []
    for step in range(4):
        state = state * x[:, step] + y[:, 3 - step]
        rows.append(state)
    last, every = run(model, first, x, y)
    np.testing.assert_allclose(last, state, 1e-6)
    np.testing.assert_allclose(every, np.stack(rows, 1), 1e-6)


def test_a_quantized_model(tmp_path: Path) -> None:
    """QDQ: weights and activations go through integers; here beside onnx's reference."""
    scale, zero = numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.uint8(128), "z")
    second_scale = numpy_helper.from_array(np.float32(0.0517), "t")  # of the same scale, products would lie between two integers
    quantized = numpy_helper.from_array(RANDOM.integers(0, 255, (4, 3)).astype(np.uint8), "q")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["wd"]),
        helper.make_node("MatMul", ["xd", "wd"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "t", "z"], ["mq"]),
        helper.make_node("DequantizeLinear", ["mq", "t", "z"], ["y"]),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"x": (FLOAT, ["n", 4])}, ["y"], [scale, second_scale, zero, quantized], opset=21)
    x = RANDOM.standard_normal((5, 4)).astype(np.float32)
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator(onnx.load(path)).run(None, {"x": x})[0]
    np.testing.assert_allclose(run(load(path), x)[0], reference, atol=1e-5)


def test_sparse_narrow_and_complex_tensors(tmp_path: Path) -> None:
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("w", FLOAT, [2], [3.0, 4.0]), helper.make_tensor("i", INT64, [2], [1, 5]), [2, 3]
    )
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    path = saved(tmp_path / "m.onnx", nodes, {"x": (FLOAT, [2, 3])}, ["y"])
    model = onnx.load(path)
    model.graph.sparse_initializer.append(sparse)
    onnx.save(model, path)
    np.testing.assert_array_equal(run(load(path), np.zeros((2, 3), np.float32))[0], [[0, 3, 0], [0, 0, 4]])
    nodes = [helper.make_node("Cast", [name], [f"{name}f"], to=FLOAT) for name in ("i4", "u16", "b16")]
    weights = [
        helper.make_tensor("i4", TensorProto.INT4, [3], [-8, 0, 7]),
        helper.make_tensor("u16", TensorProto.UINT16, [2], [0, 65535]),
        helper.make_tensor("b16", TensorProto.BFLOAT16, [2], [1.5, -2.0]),
    ]
    path = saved(
        tmp_path / "n.onnx",
        [*nodes, helper.make_node("Add", ["c", "c"], ["d"])],
        {"c": (TensorProto.COMPLEX64, [1])},
        ["i4f", "u16f", "b16f", "d"],
        weights,
        opset=21,
    )
    i4, u16, b16, double = run(load(path), np.array([1 + 2j], np.complex64))
    assert (i4.tolist(), u16.tolist(), b16.tolist(), double.tolist()) == ([-8, 0, 7], [0, 65535], [1.5, -2.0], [2 + 4j])


def test_sequences_are_fed_as_lists(tmp_path: Path) -> None:
    node = helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)
    info = helper.make_tensor_sequence_value_info("s", FLOAT, ["n", 2])
    graph_proto = helper.make_graph([node], "g", [info], [helper.make_tensor_value_info("y", FLOAT, None)])
    onnx.save(helper.make_model(graph_proto, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    model = load(tmp_path / "m.onnx")
    assert model.program.global_block().var("s").type is VarType.LOD_TENSOR_ARRAY
    parts = [np.ones((1, 2), np.float32), np.zeros((3, 2), np.float32)]
    np.testing.assert_array_equal(run(model, parts)[0], np.concatenate(parts))


@pytest.mark.parametrize("op_type", ["SequenceInsert", "SequenceErase"])
def test_places_in_sequences_that_a_run_tells(op_type: str, tmp_path: Path) -> None:
    """Insert and erase agree with Python's lists, and gradients reach the source of each item."""
    operands = ["s", "x", "place"] if op_type == "SequenceInsert" else ["s", "place"]
    nodes = [
        helper.make_node("SplitToSequence", ["t"], ["s"], axis=0),
        helper.make_node(op_type, operands, ["changed"]),
        helper.make_node("ConcatFromSequence", ["changed"], ["joined"], axis=0),
        helper.make_node("SequenceLength", ["changed"], ["count"]),
        helper.make_node("Cast", ["count"], ["y"], to=FLOAT),
    ]
    inputs = {"t": (FLOAT, [4, 2]), "x": (FLOAT, [1, 2]), "place": (INT64, [])}
    model = load(saved(tmp_path / "m.onnx", nodes, inputs, ["joined", "y"]))
    root = model.program.global_block()
    root.ops = [op for op in root.ops if op.type not in ("feed", "fetch")]
    root.var("t").stop_gradient = False
    with fluid.program_guard(model.program, fluid.Program()):
        cotangent = fluid.data("cotangent", [-1, 2])
        (gradient,) = fluid.gradients([model.fetches[0]], [root.var("t")], [cotangent])
    t, x = RANDOM.standard_normal((4, 2)).astype("float32"), np.ones((1, 2), "float32")
    for place in (-4, -1, 0, 2, 3, 4)[: 6 if op_type == "SequenceInsert" else 5]:
        rows, source_rows = list(t), list(range(4))
        if op_type == "SequenceInsert":
            rows.insert(place, x[0])
            source_rows.insert(place, -1)
        else:
            del rows[place], source_rows[place]
        weights = RANDOM.standard_normal((len(rows), 2)).astype("float32")
        feed = {"t": t, "x": x, "place": np.int64(place), "cotangent": weights}
        fed = {name: value for name, value in feed.items() if name in (*model.feeds, "cotangent")}
        joined, count, slope = fluid.Executor().run(model.program, fed, [*model.fetches, gradient], scope=model.scope)
        assert count == len(rows)
        np.testing.assert_array_equal(joined, rows)
        wanted = np.zeros_like(t)
        for row, number in zip(weights, source_rows, strict=True):
            if number >= 0:
                wanted[number] = row
        np.testing.assert_array_equal(slope, wanted)


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_loop_without_trips_gives_no_outputs_of_trips(times: int, tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["h", "h"], ["g"]), helper.make_node("Identity", ["c"], ["d"])]
    body = graph(
        "body",
        [*nodes, helper.make_node("Identity", ["g"], ["e"])],
        [("i", INT64), ("c", BOOL), ("h", FLOAT)],
        [("d", BOOL), ("g", FLOAT), ("e", FLOAT)],
    )
    loop = [helper.make_node("Loop", ["times", "", "x"], ["y", "all"], body=body)]
    path = saved(tmp_path / "m.onnx", loop, {"times": (INT64, []), "x": (FLOAT, [2, 3])}, ["y", "all"])
    x = np.ones((2, 3), np.float32)
    y, steps = run(load(path), np.int64(times), x)
    np.testing.assert_array_equal(y, x * 2**times)
    assert steps.shape == (times, 2, 3) and steps.dtype == np.float32


def test_a_loop_that_turns_a_sequence_round(tmp_path: Path) -> None:
    """The loop carries a new sequence after each trip; gradients flow back through all of them."""
    sequence = helper.make_tensor_sequence_value_info
    infos = [helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", INT64), ("c", BOOL))]
    nodes = [
        constant("zero", 0),
        helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
        helper.make_node("SequenceInsert", ["s", "row", "zero"], ["next"]),
        helper.make_node("Identity", ["c"], ["again"]),
    ]
    outputs = [helper.make_tensor_value_info("again", BOOL, []), sequence("next", FLOAT, None)]
    body = helper.make_graph(nodes, "body", [*infos, sequence("s", FLOAT, None)], outputs)
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("Loop", ["n", "", "none"], ["turned"], body=body),
        helper.make_node("ConcatFromSequence", ["turned"], ["y"], axis=0, new_axis=1),
    ]
    model = load(saved(tmp_path / "m.onnx", nodes, {"x": (FLOAT, ["rows", 2]), "n": (INT64, [])}, ["y"]))
    root = model.program.global_block()
    root.ops = [op for op in root.ops if op.type not in ("feed", "fetch")]
    root.var("x").stop_gradient = False
    with fluid.program_guard(model.program, fluid.Program()):
        cotangent = fluid.data("cotangent", [-1, 2])
        (gradient,) = fluid.gradients(model.fetches, [root.var("x")], [cotangent])
    x, weights = (RANDOM.standard_normal((rows, 2)).astype("float32") for rows in (4, 3))
    feed = {"x": x, "n": np.int64(3), "cotangent": weights}
    y, slope = fluid.Executor().run(model.program, feed, [*model.fetches, gradient], scope=model.scope)
    np.testing.assert_array_equal(y, x[2::-1])
    np.testing.assert_array_equal(slope, [*weights[::-1], [0, 0]])


def test_values_called_as_temporaries_are(tmp_path: Path) -> None:
    """A branch needs values of its own, whose names a model may have: one that was read and written, say."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op_type, ["x"], [name])], name, [], [helper.make_empty_tensor_value_info(name)]
        )
        for name, op_type in {"then": "Neg", "else": "Abs"}.items()
    }
    names = [f"onnx.onnx.{op_type}_0.tmp_0" for op_type in ("cast", "logical_not")]
    nodes = [
        helper.make_node("Exp", ["x"], names[:1]),
        helper.make_node("Tanh", ["x"], names[1:]),
        helper.make_node("If", ["chosen"], ["branch"], **branches),
        helper.make_node("Sum", ["branch", *names], ["y"]),
    ]
    model = load(saved(tmp_path / "m.onnx", nodes, {"x": (FLOAT, [3]), "chosen": (BOOL, [])}, ["y"]))
    x = np.float32([1, -2, 3])
    np.testing.assert_allclose(run(model, x, np.bool_(True))[0], -x + np.exp(x) + np.tanh(x), rtol=1e-6)


def test_branches_that_give_a_number_with_and_without_a_dimension(tmp_path: Path) -> None:
    def branch(*nodes: Any) -> Any:
        return helper.make_graph(list(nodes), "b", [], [helper.make_tensor_value_info("z", FLOAT, None)])

    for shapes, shape in ((([], [1]), (1,)), (([], []), ()), (([1], [1]), (1,))):
        branches = [branch(constant("z", np.full(branch_shape, 2.0 + n), np.float32)) for n, branch_shape in enumerate(shapes)]
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])]
        model = load(saved(tmp_path / "m.onnx", nodes, {"c": (BOOL, [])}, ["y"]))
        for flag in (True, False):
            (result,) = run(model, np.array(flag))
            assert result.shape == shape and result == (2.0 if flag else 3.0)


def test_powers_of_two(tmp_path: Path) -> None:
    """FLOAT8E8M0, in each way to round; beyond the range, the nearest or NaN."""
    x = np.array([0.7, 1.0, 1.4, 1.5, 1.9999999, 2.0, 3e38, 1e-39, np.nan], "float32")
    ends = {True: [2.0**127, 2.0**-127], False: [np.nan, np.nan]}
    for how, numbers in (
        ("up", [1, 1, 2, 2, 2, 2]),
        ("down", [0.5, 1, 1, 1, 1, 2]),
        ("nearest", [0.5, 1, 1, 2, 2, 2]),
    ):
        for saturate in (True, False):
            nodes = [
                helper.make_node("Cast", ["x"], ["p"], to=TensorProto.FLOAT8E8M0, round_mode=how, saturate=int(saturate)),
                helper.make_node("Cast", ["p"], ["y"], to=FLOAT),
            ]
            model = load(saved(tmp_path / "m.onnx", nodes, {"x": (FLOAT, [9])}, ["y"], opset=25))
            np.testing.assert_array_equal(run(model, x)[0], np.float32([*numbers, *ends[saturate], np.nan]))


def test_a_large_graph_in_linear_time(tmp_path: Path) -> None:
    """Ten times the nodes, ten times the work, as counted in calls of the function that appends ops."""
    counts = []
    for size in (100, 1000):
        nodes = [helper.make_node("Tanh", [f"h{n}"], [f"h{n + 1}"]) for n in range(size)]
        model = load(saved(tmp_path / "m.onnx", nodes, {"h0": (FLOAT, [2])}, [f"h{size}"]))
        counts.append(len(model.program.global_block().ops))
    assert counts == [102, 1002]


def test_onnx_is_imported_when_a_file_asks_for_it() -> None:
    code = "import fluid, sys; print([name for name in sys.modules if name == 'onnx' or name.startswith('fluid.onnx')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_table_of_ops_is_current() -> None:
    text = Path(document.PATH).read_text(encoding="utf-8")
    assert text == document.render(), "run: python -m fluid.onnx.document"
    assert document.LIMITS.keys() <= IMPORTS.keys()
