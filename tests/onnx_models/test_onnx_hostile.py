"""Damaged and hostile ONNX files: each ends in an error that names the file, the place and the fault."""

from __future__ import annotations

import random
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

import fluid
from fluid.errors import FluidError, FormatError
from fluid.onnx.wire import head_of_field

FLOAT = TensorProto.FLOAT


def linear(nodes: list[Any] | None = None, initializers: list[Any] | None = None, **model: Any) -> Any:
    """A model ``y = x @ w``, or of other nodes."""
    weight = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "w")
    graph = helper.make_graph(
        nodes if nodes is not None else [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        initializers if initializers is not None else [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10, **model)


def error_of(path: Path, data: bytes | Any) -> str:
    """The error message of loading a file; nothing comes into the scope."""
    path.write_bytes(data if isinstance(data, bytes) else data.SerializeToString())
    scope = fluid.Scope()
    with pytest.raises(FormatError) as caught:
        fluid.load_model(path, scope=scope)
    assert str(caught.value).startswith(str(path)) and not scope.array("w")
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "m.onnx"


def test_truncated_anywhere(file: Path) -> None:
    data = linear().SerializeToString()
    for end in range(3, len(data), 3):
        error_of(file, data[:end])


def nested(levels: int) -> bytes:
    """Graphs in attributes of nodes, each inside of the one before."""
    parts = [b""]
    length = 0
    for level in range(levels):
        for number in (6, 5, 1) if level else (5, 1):  # AttributeProto.g, NodeProto.attribute, GraphProto.node
            head = head_of_field(number, length)
            parts.append(head)
            length += len(head)
    head = b"\x08\x0a" + head_of_field(7, length)
    return b"".join([*parts, head][::-1])


@pytest.mark.parametrize("levels", [50, 500, pytest.param(350_000, marks=pytest.mark.slow)])
def test_nested_a_million_deep(file: Path, levels: int) -> None:
    """A level is three messages."""
    error = error_of(file, nested(levels))
    assert "messages inside of each other" in error or "not an ONNX model, or damaged" in error


@pytest.mark.parametrize("dims", [[1 << 62], [1 << 31, 1 << 31], [-1], [0, 1 << 62], [1] * 70, [2, 2], [7]])
def test_shapes_that_lie(file: Path, dims: list[int]) -> None:
    model = linear()
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend(dims)
    assert "initializer 'w'" in error_of(file, model)


@pytest.mark.parametrize("dims", [[1 << 62, 3], [1 << 40, 1 << 40, 3]])
def test_inputs_that_no_array_has(file: Path, dims: list[int]) -> None:
    model = linear()
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", FLOAT, dims))
    assert "is no shape of a tensor" in error_of(file, model)


def test_cycles_and_duplicates(file: Path) -> None:
    cycle = [
        helper.make_node("Add", ["x", "b"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    assert "the node that makes 'b' is part of a circle of nodes that read each other" in error_of(file, linear(cycle))
    assert "part of a circle" in error_of(file, linear([helper.make_node("Relu", ["y"], ["y"])]))
    twice = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Tanh", ["x"], ["y"])]
    assert "node 1 (Tanh, which makes y): the value 'y' is computed twice" in error_of(file, linear(twice))
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    assert "two initializers called 'w'" in error_of(file, linear(initializers=[weight, weight]))
    assert "the value 'y' is read, and nothing computes it" in error_of(file, linear([helper.make_node("Relu", ["x"], ["z"])]))


def functions(bodies: dict[str, list[Any]]) -> Any:
    protos = [
        helper.make_function("own", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)])
        for name, nodes in bodies.items()
    ]
    model = linear([helper.make_node("f0", ["x"], ["y"], domain="own")], functions=protos)
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def test_functions_without_end(file: Path) -> None:
    assert "calls itself" in error_of(file, functions({"f0": [helper.make_node("f0", ["a"], ["b"], domain="own")]}))
    doubling = {
        f"f{n}": [helper.make_node(f"f{n + 1}", [a], [b], domain="own") for a, b in (("a", "c"), ("c", "b"))] for n in range(20)
    }
    error = error_of(file, functions(doubling | {"f20": [helper.make_node("Relu", ["a"], ["b"])]}))
    assert "a small file stands for too many nodes" in error


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "a/../../secret", "link", "missing", "folder", "..", "", "C:\\secret", "a\0b"]
)
def test_external_data_outside(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(24))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    model = linear()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    error_of(folder / "m.onnx", model)


@pytest.mark.parametrize(
    "offset, length", [("8", "24"), ("-8", "24"), ("0", "-24"), ("0", "16"), (str(1 << 62), "24"), ("x", "24")]
)
def test_external_data_beyond(file: Path, offset: str, length: str) -> None:
    (file.parent / "data").write_bytes(bytes(24))
    model = linear()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "data"), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    error_of(file, model)


def test_large_things_of_small_files(file: Path) -> None:
    """Nothing is computed beforehand that the file's size does not justify."""

    def constant(value: list[int], name: str) -> Any:
        return helper.make_node("Constant", [], [name], value_ints=value)

    large = [
        [constant([1 << 30, 1 << 20], "s"), helper.make_node("ConstantOfShape", ["s"], ["y"])],
        [constant([1 << 30, 3], "s"), helper.make_node("Expand", ["x", "s"], ["y"])],
        [constant([1 << 30, 1], "s"), helper.make_node("Tile", ["x", "s"], ["y"])],
        [
            *(constant([n], f"n{n}") for n in (0, 1)),
            constant([1 << 40], "n2"),
            *(helper.make_node("Squeeze", [f"n{n}"], [f"m{n}"]) for n in range(3)),
            helper.make_node("Range", ["m0", "m2", "m1"], ["y"]),
        ],
    ]
    for nodes in large:
        file.write_bytes(linear(nodes).SerializeToString())
        tracemalloc.start()
        try:
            fluid.load_model(file, scope=fluid.Scope())
        except FluidError:
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 << 20
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("w", FLOAT, [1], [1.0]), helper.make_tensor("i", TensorProto.INT64, [1], [0]), [1 << 20, 1 << 20]
    )
    model = linear(initializers=[])
    model.graph.sparse_initializer.append(sparse)
    assert "too large to be made dense" in error_of(file, model)


def test_dense_files(file: Path) -> None:
    """Two million nodes of two bytes are refused before protobuf makes messages of them."""
    body = b"\x0a\x00" * 2_000_000
    error = error_of(file, b"\x08\x0a" + head_of_field(7, len(body)) + body)
    assert "so many, and so small" in error


def test_what_is_not_read(file: Path) -> None:
    assert "the op Magic of ONNX, opset 18, is not known" in error_of(file, linear([helper.make_node("Magic", ["x"], ["y"])]))
    assert "imports no opset of the domain 'own'" in error_of(
        file, linear([helper.make_node("Relu", ["x"], ["y"], domain="own")])
    )
    model = linear()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert "input 'x' has no shape" in error_of(file, model)
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.STRING, [1]))
    assert "programs hold no strings" in error_of(file, model)
    bad = linear([helper.make_node("Concat", ["x", "x"], ["y"], axis=9)])
    assert "node 0 (Concat, which makes y)" in error_of(file, bad)
    name = linear().SerializeToString().replace(b"product", b"prod\xff\xfet")
    assert "is no text" in error_of(file, name)


@pytest.mark.random
def test_random_mutations(file: Path) -> None:
    chosen = random.Random(0)
    gates = linear([helper.make_node("Gemm", ["x", "w"], ["h"], alpha=0.5), helper.make_node("Softmax", ["h"], ["y"], axis=-1)])
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["z"])], "b", [], [helper.make_tensor_value_info("z", FLOAT, None)]
    )
    deciding = linear(
        [
            helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
            helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
            helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        ]
    )
    bases = [model.SerializeToString() for model in (linear(), gates, deciding)]
    for _ in range(200):
        data = bytearray(chosen.choice(bases))
        for _ in range(chosen.choice((1, 2, 5))):
            data[chosen.randrange(2, len(data))] = chosen.choice((0, 1, 127, 128, 255, chosen.randrange(256)))
        file.write_bytes(data)
        try:
            model = fluid.load_model(file, scope=fluid.Scope())
            if model.program is not None and model.feeds == ["x"]:
                feed = {"x": np.ones((2, 3), np.float32)}
                fluid.Executor().run(model.program, feed=feed, fetch_list=model.fetches, scope=model.scope)
        except FluidError:
            pass


LARGE = 1 << 26
INT64 = TensorProto.INT64


def node(op_type: str, inputs: list[str] | None = None, outputs: str = "y", **attributes: Any) -> Any:
    return helper.make_node(op_type, ["x"] if inputs is None else inputs, outputs.split(), **attributes)


def one_op(
    nodes: list[Any], shape: list[Any], weights: dict[str, Any] | None = None, kind: int = FLOAT, opset: int = 18
) -> bytes:
    """A model of some nodes, of the feed x, with small arrays."""
    arrays = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    feeds = [helper.make_tensor_value_info("x", kind, shape)]
    results = [helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph(nodes, "graph", feeds, results, arrays)
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()
    return data


IMAGE = [1, 1, 4, 4]
WIDE = {"kernel_shape": [2, 2], "pads": [0, 0, 0, LARGE - 1]}
MEL = {"bands": np.int64(LARGE), "length": np.int64(16), "rate": np.int64(8000), "low": np.float32(0), "high": np.float32(4000)}
TABLES: dict[str, bytes] = {
    "Resize": one_op([node("Resize", ["x", "", "", "s"])], IMAGE, {"s": np.array([1, 1, 4, LARGE])}),
    "Resize linear": one_op([node("Resize", ["x", "", "", "s"], mode="linear")], [1, 1, 4, LARGE], {"s": np.array([1, 1, 4, 9])}),
    "Resize antialias": one_op(
        [node("Resize", ["x", "", "", "s"], mode="cubic", antialias=1)], [1, 1, 4, LARGE], {"s": np.array([1, 1, 4, 1])}
    ),
    "Upsample": one_op([node("Upsample", scales=[1.0, 1.0, 1.0, 2.0**24])], IMAGE, opset=7),
    "MaxPool": one_op([node("MaxPool", outputs="y i", **WIDE)], IMAGE),
    "MaxPool of one axis": one_op([node("MaxPool", outputs="y i", kernel_shape=[1], pads=[0, LARGE - 1])], [1, 1, 4]),
    "MaxPool by columns": one_op([node("MaxPool", outputs="y i", kernel_shape=[1], storage_order=1)], [1 << 18, 1 << 18, 4]),
    "MaxPool, dilated": one_op([node("MaxPool", **WIDE, dilations=[1, 2])], IMAGE),
    "MaxPool of a batch": one_op([node("MaxPool", outputs="y i", kernel_shape=[1])], [1 << 20, 1 << 19, 1]),
    "AveragePool, ceil": one_op([node("AveragePool", **WIDE, ceil_mode=1)], IMAGE),
    "LpPool": one_op([node("LpPool", **WIDE)], IMAGE),
    "a wide window": one_op([node("MaxPool", kernel_shape=[LARGE], dilations=[2], pads=[LARGE, LARGE])], [1, 1, 4]),
    "OneHot": one_op([node("OneHot", ["x", "d", "v"])], [2], {"d": np.array(LARGE), "v": np.array([0.0, 1.0])}, INT64),
    "MelWeightMatrix": one_op([node("MelWeightMatrix", list(MEL))], [1], MEL),
    "MelWeightMatrix of short transforms": one_op(
        [node("MelWeightMatrix", list(MEL))], [1], {**MEL, "bands": np.int64(1_390_000), "length": np.int64(2)}
    ),
    "MelWeightMatrix, long": one_op(
        [node("MelWeightMatrix", list(MEL))], [1], {**MEL, "bands": np.int64(16), "length": np.int64(1 << 40)}
    ),
    "STFT": one_op([node("STFT", ["x", "s", "", "n"], onesided=1)], [1, LARGE, 1], {"s": np.array(1), "n": np.array(1 << 12)}),
    "DFT": one_op([node("DFT", ["x", "n"], axis=1)], [1, LARGE, 1], {"n": np.array(LARGE)}),
    "RoiAlign": one_op(
        [node("RoiAlign", ["x", "r", "i"], output_height=LARGE, output_width=1 << 20, sampling_ratio=1 << 20)],
        IMAGE,
        {"r": np.ones((1, 4), np.float32), "i": np.array([0])},
    ),
    "DequantizeLinear": one_op(
        [node("DequantizeLinear", ["x", "s"], block_size=LARGE // 2, axis=0)],
        [LARGE, 1],
        {"s": np.ones((2, 1), np.float32)},
        TensorProto.INT8,
        21,
    ),
    "SplitToSequence": one_op(
        [node("SplitToSequence", outputs="q", axis=0), node("SequenceAt", ["q", "n"])], [LARGE, 1], {"n": np.array(0)}
    ),
    "SplitToSequence by a size": one_op(
        [node("SplitToSequence", ["x", "n"], "q", axis=0), node("SequenceAt", ["q", "n"])], [LARGE, 1], {"n": np.array(1)}
    ),
    "EyeLike": one_op([node("EyeLike")], [1 << 20, 1 << 20]),
    "GatherND": one_op([node("GatherND", ["x", "x"], batch_dims=1)], [LARGE, 1], kind=INT64),
    "Split": one_op([node("Split", num_outputs=LARGE)], [LARGE]),
    "Col2Im": one_op(
        [node("Col2Im", ["x", "s", "k"], pads=[LARGE, LARGE])], [1, 4, LARGE], {"s": np.array([4]), "k": np.array([4])}
    ),
}
"""Models of some hundred bytes, of which a reader that believes their sizes makes tables of gigabytes."""


def _read(file: Path) -> str:
    """The error message of loading a file; "" if it loads."""
    try:
        fluid.load_model(file, scope=fluid.Scope())
    except FluidError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_sizes_that_a_file_claims(file: Path, name: str) -> None:
    file.write_bytes(TABLES[name])
    start = time.process_time()
    error = _read(file)
    assert time.process_time() - start < 1
    tracemalloc.start()
    try:
        assert _read(file) == error
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert not error or len(error) < 2000


@pytest.mark.parametrize("name", ["Resize", "MaxPool of one axis"])
def test_a_table_without_room_is_refused_with_its_sizes(file: Path, name: str) -> None:
    file.write_bytes(TABLES[name])
    error = _read(file)
    assert "it asks for arrays of " in error and f"of the sizes {str(LARGE)[:6]}" in error
    assert "a file may take 64 MiB and ten times its size" in error


def test_shapes_that_double(file: Path) -> None:
    """Each `Concat` makes a vector twice as long of a shape that is partly known."""
    doubling = [node("Concat", [f"t{n}"] * 2, f"t{n + 1}", axis=0) for n in range(24)]
    file.write_bytes(one_op([node("Shape", outputs="t0"), *doubling, node("Reshape", ["x", "t24"])], ["n", 3]))
    start = time.process_time()
    assert "it takes a vector of 33554432 integers one by one" in _read(file)
    assert time.process_time() - start < 1
    broadcast = [node("Unsqueeze", [f"t{n}", "a"], f"u{n}") for n in range(1)]
    product = [*broadcast, node("Mul", ["t0", "u0"], "v"), node("Reshape", ["x", "v"])]
    many = [node("Concat", ["t0"] * 2000, "t0x", axis=0), node("Unsqueeze", ["t0x", "a"], "u0"), node("Mul", ["t0x", "u0"], "v")]
    for nodes in (product, [*many, node("Reshape", ["x", "v"])]):
        file.write_bytes(one_op([node("Shape", outputs="t0"), *nodes], ["n", 3], {"a": np.array([1])}))
        start = time.process_time()
        _read(file)
        assert time.process_time() - start < 1


def test_many_tables_share_the_room_of_a_file(file: Path) -> None:
    """Each is small enough by itself."""
    nodes = [node("Resize", ["x", "", "", "s"], f"y{n}" if n else "y", mode="linear", antialias=1, axes=[3]) for n in range(1000)]
    file.write_bytes(one_op(nodes, [1, 1, 4, 1 << 18], {"s": np.array([1])}))
    start = time.process_time()
    assert "it asks for arrays of" in _read(file)
    assert time.process_time() - start < 2


def test_names_that_are_no_text(file: Path) -> None:
    """Wherever protobuf gives the bytes of a name as they are."""
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("MARK", FLOAT, [1], [1.0]), helper.make_tensor("i", INT64, [1], [0]), [3, 2]
    )
    of_sparse, of_indices = linear(initializers=[]), linear()
    of_sparse.graph.sparse_initializer.append(sparse)
    sparse.values.name, sparse.indices.name = "v", "MARK"
    of_indices.graph.sparse_initializer.append(sparse)
    of_dimension, of_opset, of_function = linear(), linear(), functions({"f0": [helper.make_node("Relu", ["a"], ["b"])]})
    of_dimension.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "MARK"
    of_opset.opset_import.append(helper.make_opsetid("MARK", 1))
    of_function.functions[0].overload = "MARK"
    for model in (of_sparse, of_indices, of_dimension, of_opset, of_function):
        assert "no text" in error_of(file, model.SerializeToString().replace(b"MARK", b"\xff\xfe\x1b["))


def test_numbers_in_lists_take_memory_that_the_file_bounds(file: Path) -> None:
    """Two bytes in the file would be forty in a list of Python's."""
    model, count = linear(), 1 << 21
    model.graph.initializer.append(helper.make_tensor("n", INT64, [count], [300] * count))
    data = model.SerializeToString()
    assert len(data) < 2.1 * count
    file.write_bytes(data)
    del model
    tracemalloc.start()
    try:
        _read(file)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(data)
    finally:
        tracemalloc.stop()
