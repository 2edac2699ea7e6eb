"""ONNX models for the fuzzers, and mutations of their messages. Needs the package onnx."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["models", "mutated"]

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
STRANGE = (0, 1, -1, 2, 7, 255, 1 << 20, 1 << 26, 1 << 31, -(1 << 31), 1 << 40, 1 << 62, -(1 << 63))
OPS = (
    "Relu",
    "Add",
    "Reshape",
    "Concat",
    "Slice",
    "Gather",
    "Conv",
    "If",
    "Loop",
    "Scan",
    "Resize",
    "LSTM",
    "Pad",
    "Expand",
    "Split",
    "MaxPool",
    "OneHot",
    "RoiAlign",
    "STFT",
    "Tile",
    "EyeLike",
    "QuantizeLinear",
    "DequantizeLinear",
    "MatMulInteger",
    "QLinearMatMul",
    "Attention",
    "MatMulNBits",
    "Magic",
)


def _model(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], weights: dict[str, Any]) -> bytes:
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    results = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    arrays = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "graph", infos, results, arrays)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return data


def _quantized() -> dict[str, bytes]:
    """Models with integers, scales and zero points."""
    parts = {
        "s": np.float32(0.5),
        "z": np.uint8(3),
        "w": np.ones((4, 2), np.int8),
        "ws": np.ones(2, np.float32),
        "wz": np.zeros(2, np.int8),
    }
    make = helper.make_node
    microsoft = {"domain": "com.microsoft"}
    nodes: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "pairs": (
            [
                make("QuantizeLinear", ["x", "s", "z"], ["q"]),
                make("DequantizeLinear", ["q", "s", "z"], ["d"]),
                make("DequantizeLinear", ["w", "ws", "wz"], ["v"], axis=1),
                make("MatMul", ["d", "v"], ["y"]),
            ],
            parts,
        ),
        "integers": (
            [
                make("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
                make("QLinearMatMul", ["q", "qs", "qz", "w", "ws", "wz", "s", "z"], ["m"]),
                make("QLinearAdd", ["m", "s", "z", "m", "s", "z", "s", "z"], ["a"], **microsoft),
                make("DequantizeLinear", ["a", "s", "z"], ["y"]),
            ],
            parts,
        ),
        "convolved": (
            [
                make("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
                make("Reshape", ["q", "image"], ["i"]),
                make("ConvInteger", ["i", "f", "qz", "fz"], ["c"], pads=[1, 0, 0, 1], dilations=[1, 2]),
                make("Cast", ["c"], ["y"], to=FLOAT),
            ],
            {"image": np.array([1, 2, 2, 3]), "f": np.ones((2, 2, 2, 1), np.int8), "fz": np.array([-3], np.int8)},
        ),
        "halves": (
            [
                make("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16),
                make("MatMul", ["h", "b"], ["m"]),
                make("Cast", ["m"], ["y"], to=FLOAT),
            ],
            {"b": np.ones((4, 2), helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16))},
        ),
        "packed": (
            [make("MatMulNBits", ["x", "w", "s"], ["y"], K=4, N=2, bits=4, block_size=16, **microsoft)],
            {"w": np.ones((2, 1, 8), np.uint8), "s": np.ones(2, np.float32)},
        ),
        "attention": (
            [
                make("Unsqueeze", ["x", "one"], ["u"]),
                make("Attention", ["u", "w", "b", "m"], ["y"], num_heads=2, **microsoft),
            ],
            {"w": np.ones((4, 12), np.float32), "b": np.ones(12, np.float32), "m": np.ones(3, np.int32), "one": np.array([1])},
        ),
    }
    return {name: _model(of_model, {"x": (FLOAT, [3, 4])}, ["y"], weights) for name, (of_model, weights) in nodes.items()}


def _tables() -> dict[str, bytes]:
    """Models with nodes for which the reader makes tables, of sizes given in the file."""
    row, image, whole = [1, 4, 1], [1, 1, 4, 4], np.array([1, 1, 4, 8])
    regions = {"r": np.array([[0, 0, 2, 2]], np.float32), "i": np.array([0])}
    window: dict[str, Any] = {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}
    mel = {"a": np.int64(4), "b": np.int64(16), "c": np.int64(8000), "d": np.float32(0), "e": np.float32(4000)}
    nodes: dict[str, tuple[list[Any], Any, dict[str, Any]]] = {
        "resize": ([helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="cubic", antialias=1)], image, {"s": whole}),
        "nearest": ([helper.make_node("Resize", ["x", "", "", "s"], ["y"])], image, {"s": whole}),
        "max": ([helper.make_node("MaxPool", ["x"], ["y", "places"], **window)], image, {}),
        "mean": ([helper.make_node("AveragePool", ["x"], ["y"], **window, dilations=[1, 2], ceil_mode=1)], image, {}),
        "norm": ([helper.make_node("LpPool", ["x"], ["y"], **window)], image, {}),
        "stft": ([helper.make_node("STFT", ["x", "s", "", "n"], ["y"])], row, {"s": np.array(1), "n": np.array(2)}),
        "dft": ([helper.make_node("DFT", ["x", "n"], ["y"], axis=1)], row, {"n": np.array(4)}),
        "mel": ([helper.make_node("MelWeightMatrix", list(mel), ["m"]), helper.make_node("Add", ["x", "m"], ["y"])], [1], mel),
        "regions": (
            [helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], output_height=2, output_width=2, sampling_ratio=2)],
            image,
            regions,
        ),
        "hot": (
            [helper.make_node("Cast", ["x"], ["k"], to=INT64), helper.make_node("OneHot", ["k", "d", "v"], ["y"])],
            [2],
            {"d": np.array(3), "v": np.array([0.0, 1.0], np.float32)},
        ),
        "parts": (
            [helper.make_node("SplitToSequence", ["x", "n"], ["q"], axis=1), helper.make_node("SequenceAt", ["q", "i"], ["y"])],
            row,
            {"n": np.array(2), "i": np.array(0)},
        ),
        "scaled": (
            [
                helper.make_node("Cast", ["x"], ["k"], to=TensorProto.INT8),
                helper.make_node("DequantizeLinear", ["k", "s"], ["y"], block_size=2, axis=1),
            ],
            row,
            {"s": np.ones((1, 2, 1), np.float32)},
        ),
        "unfolded": (
            [helper.make_node("Col2Im", ["x", "s", "k"], ["y"])],
            [1, 2, 3],
            {"s": np.array([4]), "k": np.array([2])},
        ),
    }
    return {
        name: _model(list_of_nodes, {"x": (FLOAT, shape)}, ["y"], weights)
        for name, (list_of_nodes, shape, weights) in nodes.items()
    }


def _graph(name: str, nodes: list[Any], inputs: list[tuple[str, int]], outputs: list[tuple[str, int]]) -> Any:
    sides = [[helper.make_tensor_value_info(each, kind, None) for each, kind in side] for side in (inputs, outputs)]
    return helper.make_graph(nodes, name, *sides)


def models() -> dict[str, bytes]:
    """Good models, by name."""
    ones = np.ones((2, 3, 3, 3), np.float32)
    image = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["p", "", "scales"], ["r"], mode="linear"),
        helper.make_node("Flatten", ["r"], ["y"]),
    ]
    shapes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["u"]),
        helper.make_node("Slice", ["u", "zero", "two", "one"], ["v"]),
        helper.make_node("Split", ["v", "halves"], ["a", "b"], axis=1),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    body = _graph(
        "body",
        [helper.make_node("Mul", ["h", "w"], ["g"]), helper.make_node("Identity", ["c"], ["d"])],
        [("i", INT64), ("c", BOOL), ("h", FLOAT)],
        [("d", BOOL), ("g", FLOAT), ("g", FLOAT)],
    )
    then = _graph("then", [helper.make_node("Relu", ["y"], ["z"])], [], [("z", FLOAT)])
    other = _graph("else", [helper.make_node("Neg", ["y"], ["z"])], [], [("z", FLOAT)])
    control = [
        helper.make_node("Loop", ["times", "", "x"], ["y", "all"], body=body),
        helper.make_node("ReduceSum", ["y"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["k"], to=BOOL),
        helper.make_node("If", ["k"], ["o"], then_branch=then, else_branch=other),
    ]
    recurrent = [helper.make_node("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=2)]
    gates = np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32)
    ints = {
        "zero": np.array([0]),
        "two": np.array([2]),
        "one": np.array([1]),
        "rest": np.array([-1, 4]),
        "halves": np.array([1, 1]),
    }
    return {
        "image": _model(image, {"x": (FLOAT, ["n", 3, 4, 4])}, ["y"], {"w": ones, "scales": np.array([1, 1, 2, 2], np.float32)}),
        "shapes": _model(shapes, {"x": (FLOAT, ["n", 12])}, ["y"], ints),
        "control": _model(control, {"x": (FLOAT, [3]), "times": (INT64, [])}, ["o", "all"], {"w": np.ones(3, np.float32)}),
        "recurrent": _model(recurrent, {"x": (FLOAT, [4, 1, 3])}, ["y", "h"], dict(zip("wr", gates, strict=True))),
        **_tables(),
        **_quantized(),
    }


def _fits(number: float, dtype: Any) -> bool:
    return dtype.kind not in "iu" or np.iinfo(dtype).min <= number <= np.iinfo(dtype).max


def mutated(draw: random.Random, data: bytes, bases: Any) -> bytes:
    """The model with another dimension, element type, name, op, attribute, or order of its nodes."""
    model = onnx.ModelProto.FromString(data)
    graph = model.graph
    node = draw.choice(graph.node)
    names = [name for each in graph.node for name in (*each.input, *each.output)]
    how = draw.randrange(9)
    if how in (0, 1) and not graph.initializer:
        how = 6
    if how == 0:
        tensor = draw.choice(graph.initializer)
        tensor.dims[:] = [draw.choice((*STRANGE, *tensor.dims)) for _ in range(draw.choice((0, 1, 2, 40)))]
    elif how == 1:
        draw.choice(graph.initializer).data_type = draw.randrange(30)
    elif how == 2:
        dimension = draw.choice(
            [each for info in graph.input for each in info.type.tensor_type.shape.dim] or [onnx.TensorShapeProto.Dimension()]
        )
        dimension.dim_value = draw.choice(STRANGE)
    elif how == 3 and node.input:
        node.input[draw.randrange(len(node.input))] = draw.choice([*names, "", "@EMPTY@"])
    elif how == 4 and node.output:
        node.output[draw.randrange(len(node.output))] = draw.choice([*names, "", "x@GRAD"])
    elif how == 5:
        node.op_type = draw.choice(OPS)
    elif how == 6 and node.attribute:
        attribute = draw.choice(node.attribute)
        attribute.i = draw.choice(STRANGE)
        if attribute.ints and draw.random() < 0.5:
            attribute.ints[draw.randrange(len(attribute.ints))] = draw.choice(STRANGE)
        else:
            attribute.ints[:] = [draw.choice(STRANGE) for _ in range(draw.randrange(5))]
    elif how == 7:
        graph.node.insert(draw.randrange(len(graph.node)), node)
    else:
        for tensor in graph.initializer:
            values = numpy_helper.to_array(tensor).copy()
            strange = (*STRANGE[:10], *((np.nan, -0.0, np.inf) if values.dtype.kind == "f" else ()))
            values.reshape(-1)[draw.randrange(values.size)] = draw.choice([n for n in strange if _fits(n, values.dtype)])
            tensor.raw_data = values.tobytes()
    changed: bytes = model.SerializeToString()
    return changed
