"""Parameters and inference models in files: Paddle's bytes, whole or not at all; nothing is believed that no file proves."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from checks import each
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from paths import TESTS

import fluid
from fluid import io, layers, unique_name
from fluid.errors import ExecutionError, FormatError, NameNotFoundError, ProgramError
from fluid.executor.runtime.scope import Scope, global_scope, scope_guard
from fluid.formats.program import parse_program
from fluid.formats.tensors import open_tensors, write_tensor
from fluid.formats.writing import atomic_writer
from fluid.ir.program import OpRole, Parameter, Program, program_guard
from fluid.values.place import CPUPlace
from fluid.values.types import VarType

LINREG = TESTS / "golden" / "zoo" / "linreg"


class Place:
    """The part of an executor that these functions use."""

    place = CPUPlace()


EXECUTOR = Place()


@pytest.fixture(autouse=True)
def scope():
    with scope_guard(Scope()):
        yield global_scope()


def put(**values):
    for name, value in values.items():
        global_scope().var(name).get_tensor().set(np.asarray(value), CPUPlace())


def got(name):
    return np.asarray(global_scope().find_var(name).get_tensor())


def network():
    """x -> h -> prediction -> loss, with statistics, a gradient and an optimizer."""
    program = Program()
    block = program.global_block()
    for name in ("x", "y"):
        block.create_var(name=name, shape=[-1, 2], dtype="float32", is_data=True, need_check_feed=True)
    for name in ("w", "v", "unused"):
        block.create_parameter(name=name, shape=[2, 2], dtype="float32")
    for name in ("mean", "lr"):
        block.create_var(name=name, shape=[2], dtype="float32", persistable=True)
    for name in ("h", "prediction", "loss", "dw"):
        block.create_var(name=name, shape=[-1, 2], dtype="float32")
    block.append_op("my_mul", {"X": "x", "Y": "w"}, {"Out": "h"}, {"op_callstack": ["/home/somebody/train.py"]})
    block.append_op("my_norm", {"X": "h", "Mean": "mean"}, {"Out": "h", "MeanOut": "mean"})
    block.append_op("tanh", {"X": "h"}, {"Out": "prediction"})
    block.append_op("my_loss", {"X": "prediction", "Y": "y", "V": "v"}, {"Out": "loss"})
    block.append_op("my_mul_grad", {"X": "x"}, {"Y@GRAD": "dw"}, {"op_role": OpRole.BACKWARD})
    block.append_op("my_sgd", {"Param": "w", "Grad": "dw", "LR": "lr"}, {"ParamOut": "w"}, {"op_role": OpRole.OPTIMIZE})
    return program


VALUES = {
    "w": np.arange(4, dtype="float32").reshape(2, 2),
    "v": np.ones((2, 2), "float32"),
    "unused": np.full((2, 2), 7, "float32"),
    "mean": np.array([0.5, 0.25], "float32"),
    "lr": np.array([0.1, 0.2], "float32"),
}


# ------------------------------------------------------------------------------------------------------------- records
def record(array, lod=()):
    """The record of a tensor, put together as Paddle's format says, by hand."""
    numbers = {
        "float32": 5,
        "int64": 3,
        "bool": 0,
        "float64": 6,
        "int32": 2,
        "uint8": 20,
        "float16": 4,
        "complex64": 23,
        "int16": 1,
    }
    desc = b"\x08" + bytes([numbers[array.dtype.name]]) + b"".join(b"\x10" + bytes([extent]) for extent in array.shape)
    head = struct.pack("<IQ", 0, len(lod))
    for level in lod:
        head += struct.pack(f"<Q{len(level)}Q", 8 * len(level), *level)
    return head + struct.pack("<Ii", 0, len(desc)) + desc + array.tobytes()


@each("dtype", ["float32", "float64", "float16", "int16", "int32", "int64", "uint8", "bool", "complex64"])
@each("shape", [(2, 3), (), (0, 4), (1,)])
def test_records_are_paddles(tmp_path, dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    path = tmp_path / "t"
    with open(path, "wb") as file:
        write_tensor(file, array, [[0, 1, 2]])
    assert path.read_bytes() == record(array, [[0, 1, 2]])
    with open_tensors(str(path)) as reader:
        again, lod = reader.read("t")
        reader.finish(1)
    assert again.dtype == array.dtype and again.shape == array.shape and (again == array).all() and lod == [[0, 1, 2]]
    again[...] = 0  # it is an array of its own, not a view of the file


@given(arrays.arrays(st.sampled_from(["float32", "int64", "bool"]), arrays.array_shapes(min_dims=0, min_side=0)), st.booleans())
def test_any_array_comes_back(tmp_path_factory, array, transposed):
    array = array.T if transposed else array
    path = tmp_path_factory.mktemp("t") / "t"
    with atomic_writer(str(path)) as file:
        write_tensor(file, array)
    with open_tensors(str(path)) as reader:
        again, _ = reader.read("t")
    assert again.dtype == array.dtype and again.shape == array.shape and again.tobytes() == array.tobytes()


WEIGHT = np.arange(4, dtype="float32").reshape(2, 2)
GOOD = record(WEIGHT)


def at(offset, data, of=GOOD):
    return of[:offset] + data + of[offset + len(data) :]


@each(
    ("data", "says"),
    [
        (b"", "variable 'w', at byte 0: the version of the record should take 4 bytes, but 0 are left in the file of 0"),
        (at(0, b"\x07"), "at byte 0: the version of the record is 7, it should be 0"),
        (at(4, b"\xff" * 8), "at byte 4: 18446744073709551615 levels of sequence offsets cannot be in"),
        (record(WEIGHT, [[0, 2]])[:20], "at byte 20: level 0 of sequence offsets should take 16 bytes, but 0 are left"),
        (at(12, b"\x0f", record(WEIGHT, [[0, 2]])), "at byte 12: level 0 of sequence offsets takes 15 bytes"),
        (record(WEIGHT, [[0, 3, 2]]), "at byte 12: level 0 of sequence offsets does not ascend from 0"),
        (
            record(WEIGHT, [[0, 2, 9], [0, 1, 2]]),
            "at byte 4: level 0 of the lengths, [2, 7], counts 9 sequences, but level 1 has 2",
        ),
        (at(12, b"\x01"), "at byte 12: the version of the tensor is 1"),
        (at(16, b"\xff\xff\xff\xff"), "at byte 16: the size of the tensor's description is -1"),
        (at(16, b"\xff\xff\xff\x7f"), "at byte 20: the tensor's description should take 2147483647 bytes"),
        (at(20, b"\xff\xff\xff\xff\xff\xff"), "at byte 20: no description of a tensor can be read"),
        (at(21, b"\x63"), "at byte 20: its element type is number 99, which is unknown"),
        (at(21, b"\x16"), "at byte 34: 8 bytes follow the 1 variables of the program"),
        (at(21, b"\x17"), "at byte 26: the elements of complex64[2, 2] should take 32 bytes, but 16 are left"),
        (at(21, b"\x19"), "at byte 20: STRING is not an element type that numpy can compute with"),
        (at(20, b"\x10\x02\x10\x02\x10\x01"), "at byte 20: the description of the tensor lacks an element type"),
        (at(22, b"\x10\x7f\x10\x7f"), "at byte 26: the elements of float32[127, 127] should take 64516 bytes, but 16 are left"),
        (GOOD[:-1], "at byte 26: the elements of float32[2, 2] should take 16 bytes, but 15 are left in the file of 41"),
        (GOOD + b"\0", "at byte 42: 1 bytes follow the 1 variables of the program"),
        (record(WEIGHT.astype("float64")), "variable 'w': the file holds float64[2, 2], the program declares float32[2, 2]"),
        (record(WEIGHT.reshape(4, 1)), "variable 'w': the file holds float32[4, 1], the program declares float32[2, 2]"),
    ],
)
def test_damaged_records_say_where(tmp_path, data, says):
    (tmp_path / "w").write_bytes(data)
    put(w=np.zeros((2, 2), "float32"))
    with pytest.raises(FormatError) as caught:
        io.load_vars(EXECUTOR, str(tmp_path), network(), vars=["w"])
    assert says in str(caught.value) and str(caught.value).startswith(str(tmp_path / "w"))
    assert (got("w") == 0).all()


def long_desc(*extents):
    desc = b"\x08\x05" + b"".join(b"\x10" + extent for extent in extents)
    return struct.pack("<IQIi", 0, 0, 0, len(desc)) + desc


@each(
    ("data", "says"),
    [
        (long_desc(b"\xff" * 9 + b"\x01", b"\x01"), "the tensor's shape is [-1, 1], which has a negative dimension"),
        (long_desc(b"\xff" * 8 + b"\x7f", b"\xff" * 8 + b"\x7f"), "should take"),
        (long_desc(b"\0", b"\xff" * 8 + b"\x7f"), "no array of 2 dimensions"),
        (long_desc(*[b"\0"] * 100), "no array of 100 dimensions"),
    ],
)
def test_impossible_shapes_are_refused(tmp_path, data, says):
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(FormatError) as caught, open_tensors(str(tmp_path / "t")) as reader:
        reader.read("t")
    assert says in str(caught.value)


def test_random_damage_ends_in_an_array_or_a_format_error(tmp_path):
    draw = random.Random(2)
    good = record(WEIGHT, [[0, 1, 2]])
    ends = set()
    for _ in range(400):
        data = bytearray(good)
        for _ in range(draw.randint(1, 3)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        (tmp_path / "t").write_bytes(bytes(data[: draw.choice([len(data), draw.randrange(len(data))])]))
        try:
            with open_tensors(str(tmp_path / "t")) as reader:
                reader.read("t")
                reader.finish(1)
            ends.add("array")
        except FormatError as error:
            assert str(tmp_path / "t") in str(error) and "at byte" in str(error)
            ends.add("error")
    assert ends == {"array", "error"}


# ----------------------------------------------------------------------------------------------------------- variables
@each("filename", [None, "all"])
def test_saved_variables_come_back(tmp_path, filename):
    program = network()
    put(**VALUES)
    global_scope().find_var("mean").get_tensor().set_lod([[0, 1, 2]])
    io.save_persistables(EXECUTOR, str(tmp_path / "deep" / "er"), program, filename)
    names = sorted(VALUES)
    assert sorted(os.listdir(tmp_path / "deep" / "er")) == (["all"] if filename else names)
    with scope_guard(Scope()):
        io.load_persistables(EXECUTOR, str(tmp_path / "deep" / "er"), program, filename)
        for name, value in VALUES.items():
            assert got(name).dtype == value.dtype and (got(name) == value).all()
        assert global_scope().find_var("mean").get_tensor().lod() == [[0, 1, 2]]
    if filename:
        lods = {"mean": [[0, 1, 2]]}
        assert (tmp_path / "deep" / "er" / "all").read_bytes() == b"".join(record(VALUES[n], lods.get(n, ())) for n in names)


def test_which_variables(tmp_path):
    program = network()
    put(**VALUES)
    io.save_params(EXECUTOR, str(tmp_path / "params"), program)
    assert sorted(os.listdir(tmp_path / "params")) == ["unused", "v", "w"]
    io.save_vars(EXECUTOR, str(tmp_path / "vars"), program, vars=["w", program.global_block().var("lr")])
    assert sorted(os.listdir(tmp_path / "vars")) == ["lr", "w"]
    io.save_vars(EXECUTOR, str(tmp_path / "short"), program, predicate=lambda var: var.persistable and len(var.name) == 2)
    assert sorted(os.listdir(tmp_path / "short")) == ["lr"]
    with program_guard(program), scope_guard(Scope()):
        io.load_params(EXECUTOR, str(tmp_path / "params"))
        assert (got("unused") == 7).all() and global_scope().find_var("lr") is None


def test_nothing_is_written_if_a_value_is_missing(tmp_path):
    put(**{name: value for name, value in VALUES.items() if name != "w"})
    with pytest.raises(ExecutionError, match=r"'w' \(float32\[2, 2\]\) has no value in the scope; run the startup program"):
        io.save_persistables(EXECUTOR, str(tmp_path), network())
    assert os.listdir(tmp_path) == []


def test_nothing_is_loaded_if_a_file_is_missing(tmp_path):
    put(**VALUES)
    io.save_persistables(EXECUTOR, str(tmp_path), network())
    (tmp_path / "w").unlink()
    put(lr=[5.0, 5.0])
    message = r"w, variable 'w' \(float32\[2, 2\]\): the file cannot be read: No such file"
    with pytest.raises(FormatError, match=message):
        io.load_persistables(EXECUTOR, str(tmp_path), network())
    assert got("lr").tolist() == [5.0, 5.0]


def test_a_combined_file_of_another_program_is_refused(tmp_path):
    program = network()
    put(**VALUES)
    io.save_persistables(EXECUTOR, str(tmp_path), program, "all")
    with pytest.raises(
        FormatError, match=r"all, variable 'w': the file holds float32\[2\], the program declares float32\[2, 2\]"
    ):
        io.load_vars(EXECUTOR, str(tmp_path), program, ["w", "mean"], filename="all")
    with pytest.raises(FormatError, match=r"all, at byte \d+: \d+ bytes follow the 2 variables of the program"):
        io.load_vars(EXECUTOR, str(tmp_path), program, ["lr", "mean"], filename="all")
    program.global_block().create_var(name="zz", shape=[1], dtype="float32", persistable=True)
    with pytest.raises(
        FormatError, match=r"variable 'zz', at byte \d+: the version of the record should take 4 bytes, but 0 are left"
    ):
        io.load_persistables(EXECUTOR, str(tmp_path), program, "all")


def test_unknown_extents_and_scalars_fit(tmp_path):
    program = Program()
    block = program.global_block()
    block.create_var(name="rows", shape=[-1, 2], dtype="float32", persistable=True)
    block.create_var(name="scalar", shape=[], dtype="float32", persistable=True)
    put(rows=np.ones((5, 2), "float32"), scalar=np.ones(1, "float32"))
    io.save_persistables(EXECUTOR, str(tmp_path), program)
    io.load_persistables(EXECUTOR, str(tmp_path), program)
    assert got("rows").shape == (5, 2) and got("scalar").shape == (1,)


@each("name", ["../out", "/etc/passwd", "a/../../b", "a\0b", "..", "a//b", "..\\out", "C:\\x"])
def test_names_do_not_lead_out_of_the_folder(tmp_path, name):
    program = Program()
    program.global_block().create_var(name=name, shape=[2, 2], dtype="float32", persistable=True)
    put(**{name: WEIGHT})
    folder = tmp_path / "a" / "folder"
    folder.mkdir(parents=True)
    for act in (io.save_persistables, io.load_persistables):
        with pytest.raises(ProgramError, match="cannot have a file of its own"):
            act(EXECUTOR, str(folder), program)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    io.save_persistables(EXECUTOR, str(folder), program, "all")
    io.load_persistables(EXECUTOR, str(folder), program, "all")


def test_names_with_folders_in_them(tmp_path):
    program = Program()
    program.global_block().create_var(name="encoder/w", shape=[2, 2], dtype="float32", persistable=True)
    put(**{"encoder/w": WEIGHT})
    io.save_persistables(EXECUTOR, str(tmp_path), program)
    assert (tmp_path / "encoder" / "w").read_bytes() == GOOD
    io.load_persistables(EXECUTOR, str(tmp_path), program)


def test_only_tensors_are_saved(tmp_path):
    program = Program()
    program.global_block().create_var(name="array", type=VarType.LOD_TENSOR_ARRAY, persistable=True)
    with pytest.raises(ProgramError, match="'array' is a lod_tensor_array; only tensors can be saved"):
        io.save_persistables(EXECUTOR, str(tmp_path), program)


# ------------------------------------------------------------------------------------------------------------- pruning
def types(program):
    return [[op.type for op in block.ops] for block in program.blocks]


def test_prune_keeps_what_targets_need():
    program = network()
    before = str(program)
    pruned = io.prune(program, ["prediction"])
    assert types(pruned) == [["my_mul", "my_norm", "tanh"]]
    assert set(pruned.global_block().vars) == {"x", "w", "mean", "h", "prediction"}
    assert isinstance(pruned.global_block().vars["w"], Parameter)
    assert str(program) == before
    pruned.verify()
    assert types(io.prune(program, ["h"], feeds=["h"])) == [["my_norm"]]  # it overwrites what is fed
    assert types(io.prune(program, [program.global_block().var("prediction")], feeds=["h"])) == [["my_norm", "tanh"]]
    assert types(io.prune(program, ["x"])) == [[]]
    with pytest.raises(NameNotFoundError, match="no variable 'predicton' is visible in block 0; did you mean prediction"):
        io.prune(program, ["predicton"])


def test_prune_follows_the_last_write():
    program = Program()
    block = program.global_block()
    for name in ("x", "y", "t", "out"):
        block.create_var(name=name, shape=[2], dtype="float32")
    block.append_op("tanh", {"X": "y"}, {"Out": "t"})
    block.append_op("tanh", {"X": "x"}, {"Out": "t"})
    block.append_op("tanh", {"X": "t"}, {"Out": "out"})
    block.append_op("tanh", {"X": "y"}, {"Out": "t"})
    pruned = io.prune(program, ["out"])
    assert [op.inputs["X"] for op in pruned.global_block().ops] == [["x"], ["t"]]
    assert "y" not in pruned.global_block().vars


def test_prune_of_feeds_at_intermediate_variables():
    program = Program()
    block = program.global_block()
    for name in ("x", "h", "out"):
        block.create_var(name=name, shape=[2], dtype="float32")
    block.append_op("tanh", {"X": "x"}, {"Out": "h"})
    block.append_op("tanh", {"X": "h"}, {"Out": "out"})
    assert [op.outputs["Out"] for op in io.prune(program, ["out"], ["h"]).global_block().ops] == [["out"]]


def test_a_feed_that_is_overwritten_is_saved_with_what_overwrites_it(fresh, tmp_path):
    """The op that overwrites the feed does not read it, but a result of it."""
    x = fluid.data("x", [None, 3])
    y = fluid.layers.tanh(x)
    fluid.layers.assign(y, x)
    z = fluid.layers.scale(x, 2.0)
    fluid.layers.sums([x, z], out=x)
    array = np.linspace(-2, 2, 6, dtype="float32").reshape(2, 3)
    expected = fluid.Executor().run(feed={"x": array}, fetch_list=[x, z])
    np.testing.assert_allclose(expected[0], 3 * np.tanh(array), rtol=1e-6)
    for ending in (".pdmodel", ".json", ""):
        fluid.save_model(tmp_path / f"model{ending}", feeds=[x], fetches=[x, z])
        model = fluid.load_model(tmp_path / f"model{ending}", scope=fluid.Scope())
        loaded = fluid.Executor().run(model.program, {"x": array}, model.fetches, scope=model.scope)
        np.testing.assert_array_equal(loaded, expected)


@pytest.mark.parametrize("ending", [".pdmodel", ".json", "", ".onnx"])
def test_a_declared_feed_that_is_overwritten_at_once(fresh, tmp_path, ending):
    """Nothing reads what is fed, and so the op that overwrites it is needed."""
    if ending == ".onnx":
        pytest.importorskip("onnx")
    x = fluid.data("x", [2])
    fluid.layers.assign(fluid.layers.fill_constant([2], "float32", 3.0), x)
    y = fluid.layers.scale(x, 2.0)
    assert types(io.prune(fluid.default_main_program(), [y], [x.name])) == [["fill_constant", "assign", "scale"]]
    feed = {"x": np.ones(2, "float32")}
    for options in ({}, {"use_prune": True}):
        np.testing.assert_array_equal(fluid.Executor().run(feed=feed, fetch_list=[y], **options)[0], [6.0, 6.0])
    fluid.save_model(tmp_path / f"model{ending}", feeds=[x], fetches=[y])
    model = fluid.load_model(tmp_path / f"model{ending}", scope=fluid.Scope())
    np.testing.assert_array_equal(fluid.Executor().run(model.program, feed, model.fetches, scope=model.scope)[0], [6.0, 6.0])


def loop_of_loops(owner):
    """i counts; a feeds b of the next round, b is asked for; c only feeds itself; the inner loop makes a from outside."""
    program = Program()
    root = program.global_block()
    for name in ("i", "a", "b", "c", "outside", "unread", "go"):
        root.create_var(name=name, shape=[1], dtype="bool" if name == "go" else "float32")
    for name in ("outside", "unread", "a", "b", "c"):
        root.append_op("my_fill", {}, {"Out": name})
    body = program.create_block(root)
    inner = program.create_block(body)
    idle = program.create_block(body)
    body.append_op("assign", {"X": "a"}, {"Out": "b"})
    body.append_op("assign", {"X": "c"}, {"Out": "c"})
    inner.create_var(name="local", shape=[1], dtype="float32")
    inner.append_op("assign", {"X": "outside"}, {"Out": "local"})
    inner.append_op("assign", {"X": "local"}, {"Out": "a"})
    body.append_op(owner, {"X": ["outside"], "Condition": ["go"]}, {"Out": ["a"]}, {"sub_block": inner})
    idle.append_op("assign", {"X": "unread"}, {"Out": "c"})
    body.append_op(owner, {"X": ["unread"], "Condition": ["go"]}, {"Out": ["c"]}, {"sub_block": idle})
    body.append_op("my_less", {"X": "i"}, {"Out": "go"})
    root.append_op(owner, {"X": ["i"], "Condition": ["go"]}, {"Out": ["a", "b", "c"]}, {"sub_block": body})
    return program


def test_prune_goes_into_sub_blocks():
    program = loop_of_loops("while")
    pruned = io.prune(program, ["b"])
    assert types(pruned)[1:] == [["assign", "while", "my_less"], ["assign", "assign"]]
    assert pruned.blocks[2].parent is pruned.blocks[1] and pruned.blocks[1].ops[1].attrs["sub_block"] is pruned.blocks[2]
    pruned.verify()
    assert types(program)[1] == ["assign", "assign", "while", "while", "my_less"]


def test_prune_leaves_the_block_of_an_op_it_does_not_know_as_it_is():
    program = loop_of_loops("my_loop")
    assert types(io.prune(program, ["b"])) == types(program)


# ---------------------------------------------------------------------------------------------------- inference models
@each(("model", "params"), [(None, None), ("net.pdmodel", "net.pdiparams")])
def test_inference_models_come_back(tmp_path, model, params):
    program = network()
    put(**VALUES)
    folder = str(tmp_path / "model")
    assert io.save_inference_model(
        folder, ["x"], [program.global_block().var("prediction")], EXECUTOR, program, model, params
    ) == ["prediction"]
    assert sorted(os.listdir(folder)) == sorted([model, params] if params else ["__model__", "w", "mean"])
    assert b"somebody" not in (tmp_path / "model" / (model or "__model__")).read_bytes()
    with scope_guard(Scope()):
        loaded, feeds, fetches = io.load_inference_model(folder, EXECUTOR, model, params)
        assert (got("w") == VALUES["w"]).all() and (got("mean") == VALUES["mean"]).all()
        assert feeds == ["x"] and [var.name for var in fetches] == ["prediction"] and fetches[0].block is loaded.global_block()
        assert types(loaded) == [["feed", "my_mul", "my_norm", "tanh", "fetch"]]
        if model:
            again, feeds, fetches = io.load_inference_model(os.path.join(folder, "net"), EXECUTOR)
            assert feeds == ["x"] and [var.name for var in fetches] == ["prediction"] and types(again) == types(loaded)
        loaded.verify()
        io.save_inference_model(folder + "2", feeds, fetches, EXECUTOR, loaded, model, params)  # what was loaded can be saved
    for name in os.listdir(folder):
        assert Path(folder, name).read_bytes() == Path(folder + "2", name).read_bytes()
    assert types(program)[0][-1] == "my_sgd"


def test_feed_and_fetch_ops_are_paddles(tmp_path):
    program = network()
    put(**VALUES)
    io.save_inference_model(str(tmp_path), ["y", "x"], ["loss", "h"], EXECUTOR, program)
    block = parse_program((tmp_path / "__model__").read_bytes()).global_block()
    assert [(op.inputs, op.outputs, op.attrs["col"]) for op in block.ops[:2]] == [
        ({"X": ["feed"]}, {"Out": ["y"]}, 0),
        ({"X": ["feed"]}, {"Out": ["x"]}, 1),
    ]
    assert [(op.inputs, op.outputs, op.attrs["col"]) for op in block.ops[-2:]] == [
        ({"X": ["loss"]}, {"Out": ["fetch"]}, 0),
        ({"X": ["h"]}, {"Out": ["fetch"]}, 1),
    ]
    assert (block.vars["feed"].type, block.vars["feed"].persistable) == (VarType.FEED_MINIBATCH, True)
    assert (block.vars["fetch"].type, block.vars["fetch"].persistable) == (VarType.FETCH_LIST, True)
    _, feeds, fetches = io.load_inference_model(str(tmp_path), EXECUTOR)
    assert feeds == ["y", "x"] and [var.name for var in fetches] == ["loss", "h"]


def test_options_of_saving(tmp_path):
    program = network()
    put(**VALUES)
    io.save_inference_model(str(tmp_path / "a"), "x", "prediction", EXECUTOR, program, program_only=True)
    assert os.listdir(tmp_path / "a") == ["__model__"]
    io.save_inference_model(str(tmp_path / "b"), "x", "prediction", EXECUTOR, program, export_for_deployment=False)
    assert sorted(os.listdir(tmp_path / "b")) == sorted(["__model__.main_program", *VALUES])
    assert types(parse_program((tmp_path / "b" / "__model__.main_program").read_bytes())) == types(program)


@each(
    ("feeds", "targets", "says"),
    [
        (
            [],
            ["prediction"],
            "the targets prediction need 'x', which is neither fed, computed nor persistable: add it to feeded_var_names",
        ),
        (["x"], ["loss"], "the targets loss need 'y', which is neither fed"),
        (["x"], ["y"], "the target 'y' is neither fed, computed nor persistable"),
        (["x", "x"], ["h"], "a variable is to be fed twice: x, x"),
        (["z"], ["h"], "no variable 'z' is visible in block 0"),
        (["x"], ["nothing"], "no variable 'nothing' is visible in block 0"),
        (["x"], [], "save_inference_model needs at least one target variable"),
    ],
)
def test_what_cannot_be_exported_is_said(tmp_path, feeds, targets, says):
    put(**VALUES)
    with pytest.raises(ProgramError) as caught:
        io.save_inference_model(str(tmp_path), feeds, targets, EXECUTOR, network())
    assert says in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_the_export_of_paddle_loads_and_saves_to_its_own_bytes(tmp_path):
    program, feeds, fetches = io.load_inference_model(str(LINREG), EXECUTOR, "model.pdmodel", "model.pdiparams")
    assert feeds == ["x"] and [var.name for var in fetches] == ["save_infer_model/scale_0.tmp_0"]
    assert got("fc_0.w_0").shape == (13, 1) and got("fc_0.b_0").shape == (1,)
    io.save_persistables(EXECUTOR, str(tmp_path), program, "p")
    assert (tmp_path / "p").read_bytes() == (LINREG / "model.pdiparams").read_bytes()
    combined = got("fc_0.w_0").copy()
    with scope_guard(Scope()):
        program, feeds, _ = io.load_inference_model(str(LINREG / "separate"), EXECUTOR)
        assert feeds == ["x"] and (got("fc_0.w_0") == combined).all()
        io.save_persistables(EXECUTOR, str(tmp_path), program)
        for name in ("fc_0.w_0", "fc_0.b_0"):
            assert (tmp_path / name).read_bytes() == (LINREG / "separate" / name).read_bytes()


def test_the_training_program_of_paddle_is_cut_as_paddle_cuts_it(tmp_path):
    train = parse_program((LINREG / "train.pb").read_bytes())
    io.save_inference_model(str(tmp_path), ["x"], ["fc_0.tmp_1"], EXECUTOR, train, program_only=True)
    ours = parse_program((tmp_path / "__model__").read_bytes())
    theirs = parse_program((LINREG / "model.pdmodel").read_bytes())
    assert types(ours)[0] == [name for name in types(theirs)[0] if name != "scale"]
    assert {var.name for var in ours.list_vars() if var.persistable} == {
        var.name for var in theirs.list_vars() if var.persistable
    }


def test_models_that_are_none_are_named(tmp_path):
    with pytest.raises(FormatError, match="__model__: the file cannot be read: No such file or directory"):
        io.load_inference_model(str(tmp_path), EXECUTOR)
    (tmp_path / "__model__").write_bytes(b"{}")
    with pytest.raises(FormatError, match="__model__: not a program; it looks like JSON"):
        io.load_inference_model(str(tmp_path), EXECUTOR)
    (tmp_path / "__model__").write_bytes((LINREG / "main.pb").read_bytes())
    with pytest.raises(FormatError, match="the program fetches nothing, so it is not an inference model"):
        io.load_inference_model(str(tmp_path), EXECUTOR)
    program = parse_program((LINREG / "model.pdmodel").read_bytes())
    program.global_block().ops[0].outputs["Out"] = ["gone"]
    (tmp_path / "__model__").write_bytes(program.serialize_to_string())
    with pytest.raises(FormatError, match=r"block 0, op 0 \(feed\): its slot Out should name one variable"):
        io.load_inference_model(str(tmp_path), EXECUTOR)


def test_inference_model_with_a_recurrence(tmp_path):
    """States of a recurrence, and all its listed outputs, stay in the model."""
    program = Program()
    with program_guard(program, Program()), unique_name.guard():
        x = fluid.data("x", [3, 2])
        first = layers.ones([2], "float32")
        rnn = layers.StaticRNN()
        with rnn.step():
            item, before = rnn.step_input(x), rnn.memory(init=first)
            rnn.step_output(before * 1.0)
            rnn.step_output(item * 3.0)
            rnn.update_memory(before, before * item)
        states, _ = rnn()
    io.save_inference_model(str(tmp_path), ["x"], [states], EXECUTOR, program)
    exe = fluid.Executor()
    loaded, feeds, fetches = io.load_inference_model(str(tmp_path), exe)
    rows = np.array([[1, 2], [3, 4], [5, 6]], "float32")
    (found,) = exe.run(loaded, {feeds[0]: rows}, fetches)
    np.testing.assert_array_equal(found, [[1, 1], [1, 2], [3, 8]])


def test_pruning_keeps_what_gradients_of_blocks_need():
    """The owner of a gradient block reads gradients from it, and the block reads local variables of the forward block."""
    program = Program()
    with program_guard(program, Program()), unique_name.guard():
        x = fluid.data("x", [3, 2])
        x.stop_gradient = False
        first = layers.ones([2], "float32")
        rnn = layers.StaticRNN()
        with rnn.step():
            item, before = rnn.step_input(x), rnn.memory(init=first)
            rnn.update_memory(before, before * item)
            rnn.step_output(before * item)
        chosen = layers.cond(layers.reduce_sum(x) > 0.0, lambda: x * x * x, lambda: layers.tanh(x) * x)
        _, last = layers.while_loop(
            lambda i, y: i < 3.0, lambda i, y: [i + 1.0, layers.tanh(y) * y], [layers.zeros([1], "float32"), chosen]
        )
        loss = layers.reduce_sum(last) + layers.reduce_sum(rnn())
        (grad,) = fluid.gradients(loss, x)
    exe = fluid.Executor()
    pruned = io.prune(program, [grad], ["x"])
    for sign in (1.0, -1.0):
        feed = {"x": sign * np.array([[0.5, 0.25], [2, 1], [0.75, 1.5]], "float32")}
        (expected,) = exe.run(program, feed, [grad])
        (found,) = exe.run(pruned, feed, [grad.name])
        np.testing.assert_array_equal(found, expected)


def test_what_the_scope_holds_begins_where_a_line_of_the_cache_does(scope, tmp_path):
    """Vectors of native code would lie across two lines otherwise, whatever the allocator gave."""
    names = [f"w{number}" for number in range(8)]
    main = Program()
    for number, name in enumerate(names):
        main.global_block().create_var(name=name, shape=[100 + number], dtype="float32", persistable=True)
        scope.var(name).get_tensor().set(np.full(100 + number, number, np.float32))
    executor = fluid.Executor(CPUPlace())
    for filename in (None, "all"):
        io.save_persistables(executor, str(tmp_path), main, filename)
        each_set = [got(name).ctypes.data % 64 for name in names]
        io.load_persistables(executor, str(tmp_path), main, filename)
        each_loaded = [got(name).ctypes.data % 64 for name in names]
        assert each_set == each_loaded == [0] * len(names)


def test_tensors_of_parameters_in_another_scope() -> None:
    layers.fc(fluid.data("x", [None, 2]), 3)
    parameters = fluid.default_main_program().all_parameters()
    scope, executor = fluid.Scope(), fluid.Executor()
    fluid.core._create_loaded_parameter(parameters, scope, executor._default_executor)
    for parameter in parameters:
        tensor = scope.find_var(parameter.name).get_tensor()  # type: ignore[union-attr]
        np.testing.assert_array_equal(np.asarray(tensor), np.zeros(parameter.shape, "float32"), strict=True)
        assert tensor._place().is_cpu_place() and not tensor._place().is_gpu_place()
    assert isinstance(fluid.dygraph.to_variable(np.ones(2)), fluid.core.VarBase)
