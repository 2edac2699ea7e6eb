"""One function reads models of all formats, another one writes them; errors name the broken part."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from checks import each
from hypothesis import given
from hypothesis import strategies as st
from paths import TESTS

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FluidError, FluidTypeError, FormatError, NameNotFoundError, ProgramError
from fluid.executor import Scope, global_scope
from fluid.formats import table
from fluid.saving import models as model_io
from fluid.values.bfloat16 import to_bfloat16
from fluid.values.unchanging import never_changes

ZOO = TESTS / "golden" / "zoo"
LENET = ZOO / "lenet"


@pytest.fixture
def executor():
    return fluid.Executor(fluid.CPUPlace())


def feed():
    return {"img": np.load(LENET / "feeds.npz")["img"]}


def outputs(executor, model):
    return executor.run(model.program, feed(), model.fetches, scope=model.scope)[0]


def expected():
    with np.load(LENET / "infer.npz") as found:
        return found[found.files[0]]


# ------------------------------------------------------------------------------------------------------------- reading
@pytest.mark.parametrize("name", ["model", "model.pdmodel", ""])
def test_a_model_of_paddle_under_any_of_its_names(executor, name, tmp_path):
    for file in ("model.pdmodel", "model.pdiparams"):
        shutil.copy(LENET / file, tmp_path)
    model = fluid.load_model(tmp_path / name if name else tmp_path)
    assert model.feeds == ["img"] and [var.shape for var in model.fetches] == [(-1, 10)]
    assert len(model.parameters) == 12 and not model.missing and model.scope is global_scope()
    assert model.format == ("pdmodel" if name else "folder")
    np.testing.assert_allclose(outputs(executor, model), expected(), rtol=1e-4, atol=1e-5)


def test_a_folder_with_a_file_a_parameter():
    model = fluid.load_model(ZOO / "linreg" / "separate")
    assert model.format == "folder" and model.feeds == ["x"] and model.parameters == ["fc_0.b_0", "fc_0.w_0"]
    assert fluid.load_model(ZOO / "linreg" / "separate" / "__model__").parameters == model.parameters
    assert model.value("fc_0.w_0").shape == (13, 1)
    with pytest.raises(NameNotFoundError, match=r"there is no value of 'fc_0.w'; did you mean fc_0.w_0"):
        model.value("fc_0.w")


def test_programs_without_parameters_say_what_is_missing():
    model = fluid.load_model(ZOO / "linreg" / "train.pb", scope=Scope())
    assert model.program is not None and model.format == "program" and model.feeds == ["x", "y"]
    assert model.missing == ["fc_0.b_0", "fc_0.w_0", "learning_rate_0"] and not model.parameters


def test_parameters_that_are_elsewhere(tmp_path):
    shutil.copy(ZOO / "linreg" / "model.pdmodel", tmp_path / "net.pdmodel")
    shutil.copy(ZOO / "linreg" / "model.pdiparams", tmp_path / "weights")
    assert fluid.load_model(tmp_path / "net").missing == ["fc_0.b_0", "fc_0.w_0"]
    for params in (tmp_path / "weights", ZOO / "linreg" / "separate"):
        assert fluid.load_model(tmp_path / "net", params=params, scope=Scope()).parameters == ["fc_0.b_0", "fc_0.w_0"]


def test_text_is_read_as_well(tmp_path, executor):
    model = fluid.load_model(LENET / "model")
    (tmp_path / "net.txt").write_text(model.program.to_string())
    shutil.copy(LENET / "model.pdiparams", tmp_path / "net.pdiparams")
    again = fluid.load_model(tmp_path / "net", scope=Scope())
    assert again.format == "text" and again.feeds == ["img"]
    np.testing.assert_allclose(outputs(executor, again), expected(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ending", ["npz", "safetensors", "pdparams", "pdiparams"])
def test_parameters_in_every_form_beside_a_program(tmp_path, executor, ending):
    model = fluid.load_model(LENET / "model")
    shutil.copy(LENET / "model.pdmodel", tmp_path / "net.pdmodel")
    if ending == "pdiparams":
        shutil.copy(LENET / "model.pdiparams", tmp_path / "net.pdiparams")
    else:
        model_io.save_arrays(tmp_path / f"net.{ending}", model.values())
    again = fluid.load_model(tmp_path / "net.pdmodel", scope=Scope())
    assert again.parameters == model.parameters
    np.testing.assert_allclose(outputs(executor, again), expected(), rtol=1e-4, atol=1e-5)


ARRAYS = {
    "a/b": np.arange(6, dtype="float32").reshape(2, 3),
    "../up": np.array([1, -2], "int64"),
    "file": np.array([[True], [False]]),
    "half": np.array([0.5, 3], "float16"),
    "empty": np.zeros((0, 3), "float64"),
    "columns": np.asfortranarray(np.arange(6, dtype="int32").reshape(2, 3)),
    "scalar": np.array(2.5),
}


@each("ending", ["npz", "safetensors", "pdparams"])
def test_arrays_come_back(tmp_path, ending):
    path = tmp_path / f"values.{ending}"
    model_io.save_arrays(path, ARRAYS)
    for found in (model_io.read_arrays(path), fluid.load_model(path, scope=Scope()).values()):
        assert found.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            assert found[name].dtype == array.dtype and found[name].shape == array.shape, name
            np.testing.assert_array_equal(found[name], array)
    first = path.read_bytes()
    model_io.save_arrays(path, ARRAYS)
    assert path.read_bytes() == first and os.listdir(tmp_path) == [path.name]


def test_archives_are_numpys(tmp_path):
    model_io.save_arrays(tmp_path / "ours.npz", ARRAYS)
    with np.load(tmp_path / "ours.npz") as found:
        np.testing.assert_array_equal(found["a/b"], ARRAYS["a/b"])
    np.savez_compressed(tmp_path / "theirs.npz", x=ARRAYS["half"], y=ARRAYS["columns"])
    assert list(model_io.read_arrays(tmp_path / "theirs.npz")) == ["x", "y"]


def test_bfloat16_is_read_as_float32(tmp_path):
    upper = (np.array([1.5, -2.0], "float32").view(np.uint32) >> 16).astype("<u2").tobytes()
    header = b'{"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + upper)
    found = model_io.read_arrays(tmp_path / "w.safetensors")["w"]
    assert found.dtype == np.float32 and found.tolist() == [1.5, -2.0]


def test_safetensors_are_those_of_the_library(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    arrays = {
        "a": np.arange(6, dtype="float32").reshape(2, 3), "b": np.array([True, False]), "c": np.array(5, "int64"),
        "d": np.zeros([0, 4], "float16"), "\u00e4/x": np.arange(3, dtype="uint8"), "e": np.ones([2, 2], "uint32"),
    }  # fmt: skip
    model_io.save_arrays(tmp_path / "ours.safetensors", arrays)
    library.save_file(arrays, tmp_path / "theirs.safetensors", metadata={"format": "np"})
    for found in (library.load_file(tmp_path / "ours.safetensors"), model_io.read_arrays(tmp_path / "theirs.safetensors")):
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype and found[name].shape == array.shape


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 7]}, "should have 8 bytes inside the file"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}, "should have 8 bytes inside the file"),
        ({"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 8]}, "inside the file"),
        ({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}, "has no shape of numbers"),
        ({"dtype": "F32", "shape": [2]}, "should have dtype, shape and data_offsets"),
        ({"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}, "should have dtype, shape and data_offsets"),
        ([1], "should have dtype, shape and data_offsets"),
    ],
)
def test_damaged_safetensors(entry, said, tmp_path):
    header = json.dumps({"w": entry}).encode()
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(FormatError, match=said):
        model_io.read_arrays(tmp_path / "w.safetensors")


def test_a_model_may_be_allowed_to_reach_out():
    assert fluid.load_model(LENET / "model").program.allowed_ops == frozenset()
    assert fluid.load_model(LENET / "model", allow=["save"]).program.allowed_ops == {"save"}


# ------------------------------------------------------------------------------------------------------------- writing
def small(executor):
    x = fluid.data("x", [None, 3])
    y = layers.fc(x, 2, act="tanh")
    loss = layers.mean(y)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    executor.run(fluid.default_startup_program())
    return y, loss


@pytest.mark.parametrize("name", ["folder", "net.pdmodel", "net.txt"])
def test_an_inference_model_comes_back(tmp_path, executor, name):
    y, _ = small(executor)
    test = fluid.default_main_program().clone(for_test=True)
    feed = {"x": np.ones((2, 3), "float32")}
    (want,) = executor.run(test, feed, [y.name])
    written = fluid.save_model(tmp_path / name, feeds="x", fetches=y)
    if name == "net.txt":
        fluid.save_model(tmp_path / "net.npz", feeds=["x"], fetches=[y])
    assert all(os.path.exists(path) for path in written)
    model = fluid.load_model(tmp_path / name, scope=Scope())
    assert (
        model.feeds == ["x"] and [var.name for var in model.fetches] == [y.name] and model.parameters == ["fc_0.b_0", "fc_0.w_0"]
    )
    np.testing.assert_array_equal(executor.run(model.program, feed, model.fetches, scope=model.scope)[0], want)


def test_a_training_program_comes_back_whole(tmp_path, executor):
    _, loss = small(executor)
    feed = {"x": np.ones((2, 3), "float32")}
    executor.run(feed=feed, fetch_list=[loss])
    fluid.save_model(tmp_path / "net.pdmodel")
    want = [executor.run(feed=feed, fetch_list=[loss])[0] for _ in range(3)]
    model = fluid.load_model(tmp_path / "net", scope=Scope())
    assert not model.missing and any("velocity" in name for name in model.parameters)
    got = [executor.run(model.program, feed, [loss.name], scope=model.scope)[0] for _ in range(3)]
    np.testing.assert_array_equal(got, want)


def test_a_model_for_an_old_version(tmp_path, executor):
    x = fluid.data("x", [2, 3])
    y = fluid.extend.ops().matmul_v2(x, layers.create_parameter([3, 2], "float32", name="w"))
    z = fluid.extend.ops().mish(y)
    executor.run(fluid.default_startup_program())
    fluid.save_model(tmp_path / "old", feeds="x", fetches=y, target="paddle-1.6")
    assert "matmul" in [op.type for op in fluid.load_model(tmp_path / "old").program.global_block().ops]
    with pytest.raises(ProgramError, match=r"cannot be written for paddle-1.6:\n  - mish: paddle-1.6 does not know it"):
        fluid.save_model(tmp_path / "other", feeds="x", fetches=z, target="paddle-1.6")
    assert not (tmp_path / "other").exists()


def test_what_cannot_be_written(tmp_path, executor):
    y, _ = small(executor)
    with pytest.raises(ProgramError, match="feeds without fetches"):
        fluid.save_model(tmp_path / "net", feeds="x")
    with pytest.raises(ExecutionError, match="has no value in the scope"):
        fluid.save_model(tmp_path / "net.npz", scope=Scope())
    with pytest.raises(FluidError, match=r"arrays are written to names that end in .npz, .safetensors or .pdparams"):
        model_io.save_arrays(tmp_path / "values.bin", {})
    with pytest.raises(FluidTypeError, match="program should be a Program or None, not Model; its `program` is one"):
        fluid.save_model(tmp_path / "net", fluid.load_model(ZOO / "linreg" / "model", scope=Scope()))
    with pytest.raises(FluidError, match="'z' is complex64, which safetensors cannot hold"):
        model_io.save_arrays(tmp_path / "z.safetensors", {"z": np.ones(2, "complex64")})
    assert not list(tmp_path.iterdir()) and y is not None


# --------------------------------------------------------------------------------------------------- hostile and broken
def bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.npy", bytes(200 << 20))


def npy(array, **kwargs):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **kwargs)
    return file.getvalue()


def zipped(path, *entries):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries:
            archive.writestr(name, data)


BROKEN_ARCHIVES = {
    "unpack to": bomb,
    "it is not an .npy file": lambda path: zipped(path, ("notes.txt", b"hello")),
    "it is there twice": lambda path: zipped(path, ("w.npy", npy(np.ones(2))), ("w.npy", npy(np.ones(2)))),
    "it holds Python objects": lambda path: zipped(path, ("w.npy", npy(np.array([{}]), allow_pickle=True))),
    "not what the archive holds": lambda path: zipped(path, ("w.npy", npy(np.ones((2, 3))).replace(b"(2, 3)", b"(9, 9)"))),
    "not numbers": lambda path: zipped(path, ("w.npy", npy(np.zeros(2, "i4,f4")))),
    "the archive cannot be read": lambda path: zipped(path, ("w.npy", b"\x93NUMPY\x01\x00\x10\x00nonsense")),
}


NOT_NUMBERS = {
    "text": np.array(["a", "bc"]),
    "bytes": np.array([b"a"]),
    "dates": np.array(["2019-11-01"], "datetime64[D]"),
    "spans of time": np.array([1], "timedelta64[s]"),
    "records": np.zeros(2, "i4,f4"),
}


@each("what", NOT_NUMBERS)
def test_elements_that_are_no_numbers(tmp_path, what):
    np.savez(tmp_path / "w.npz", w=NOT_NUMBERS[what])
    for read in (model_io.read_arrays, fluid.load_model):
        with pytest.raises(FormatError, match=rf"w.npz, array 'w': its elements are {what} \(.*\), not numbers"):
            read(tmp_path / "w.npz")


@each("ending", ["npz", "pdparams", "safetensors"])
@each(("what", "array"), [*NOT_NUMBERS.items(), ("Python objects", np.array([None, {}], object))])
def test_elements_that_are_no_numbers_are_not_written(tmp_path, what, array, ending):
    with pytest.raises(FluidTypeError, match=rf"w.{ending}: the elements of 'odd' are {what} \(.*\), not numbers"):
        model_io.save_arrays(tmp_path / f"w.{ending}", {"w": np.ones(2), "odd": array})
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_safetensors_lacks(tmp_path):
    for kind in ("complex64", "longdouble"):
        if np.dtype(kind).itemsize > 8 or np.dtype(kind).kind == "c":
            with pytest.raises(FluidError, match=r"which safetensors cannot hold; write \.npz"):
                model_io.save_arrays(tmp_path / "w.safetensors", {"w": np.ones(2, kind)})
        model_io.save_arrays(tmp_path / "w.npz", {"w": np.ones(2, kind)})
        assert model_io.read_arrays(tmp_path / "w.npz")["w"].dtype == kind


@pytest.mark.filterwarnings("ignore:Duplicate name")
@each("message", BROKEN_ARCHIVES)
def test_broken_archives(tmp_path, message):
    path = tmp_path / "w.npz"
    BROKEN_ARCHIVES[message](path)
    with pytest.raises(FormatError, match=f"^{path}.*{message}"):
        fluid.load_model(path)
    assert not global_scope().local_var_names()


@given(st.data())
def test_damaged_files_end_in_an_error_that_names_them(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    ending = data.draw(st.sampled_from(["npz", "safetensors", "pdparams", "pdmodel", "txt"]))
    path = folder / f"w.{ending}"
    if ending == "pdmodel":
        raw = (ZOO / "linreg" / "model.pdmodel").read_bytes()
    elif ending == "txt":
        raw = fluid.load_model(ZOO / "linreg" / "main.pb", scope=Scope()).program.to_string().encode()
    else:
        model_io.save_arrays(path, {"a": ARRAYS["a/b"], "b": ARRAYS["../up"]})
        raw = path.read_bytes()
    changed = bytearray(raw[: data.draw(st.integers(0, len(raw)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(changed)
    try:
        fluid.load_model(path, scope=Scope())
    except FluidError as error:
        assert str(path) in str(error)
    finally:
        path.unlink()


@each(("data", "message"), [(b"", "should take 4 bytes, but 0 are left"), (b"damaged!", "it should be 0")])
def test_damaged_parameters_are_not_taken_for_a_program(tmp_path, data, message):
    shutil.copy(ZOO / "linreg" / "model.pdmodel", tmp_path / "net.pdmodel")
    (tmp_path / "net.pdiparams").write_bytes(data)
    with pytest.raises(FormatError, match=rf"net.pdiparams, variable 'fc_0.b_0', at byte 0: .*{message}"):
        fluid.load_model(tmp_path / "net")


def test_pickles_without_arrays_are_told_from_parameters(tmp_path):
    (tmp_path / "nested.pdparams").write_bytes(pickle.dumps({"layers": [1, 2]}, 2))
    with pytest.raises(FormatError, match=r"nested.pdparams: it holds no array by name; under 'layers' is a list"):
        fluid.load_model(tmp_path / "nested.pdparams")
    model_io.save_arrays(tmp_path / "none.pdparams", {})
    assert fluid.load_model(tmp_path / "none.pdparams").parameters == []


def test_elements_of_safetensors_that_numpy_lacks(tmp_path):
    header = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    with pytest.raises(FormatError, match=r"w.safetensors: the tensor 'w' is of F8_E4M3"):
        fluid.load_model(tmp_path / "w.safetensors")


def test_loaded_parameters_cannot_change_so_that_plans_pack_them_once_and_still_train(tmp_path):
    x = fluid.data("x", [None, 4])
    prediction = layers.fc(x, 3)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    fluid.save_model(tmp_path / "net.pdmodel", feeds=[x], fetches=[prediction])
    model = fluid.load_model(tmp_path / "net.pdmodel", scope=fluid.Scope())
    assert all(never_changes(model.scope.array(name)) for name in model.parameters)
    before = {name: array.copy() for name, array in model.values().items()}
    model.program.make_trainable()
    with fluid.program_guard(model.program), fluid.scope_guard(model.scope):
        loss = layers.mean(layers.square(model.program.global_block().var(model.fetches[0].name)))
        startup = fluid.Program()
        fluid.optimizer.SGD(0.5).minimize(loss, startup)
        executor.run(startup)
        losses = [executor.run(model.program, {"x": np.ones((2, 4), "float32")}, [loss])[0].item() for _ in range(3)]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]
    assert any((model.value(name) != before[name]).any() for name in model.parameters)


def test_what_is_no_model(tmp_path):
    (tmp_path / "notes.md").write_text("# Notes")
    (tmp_path / "model.json").write_text('{"program": {}}')
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    shutil.copy(LENET / "model.pdiparams", tmp_path / "alone.pdiparams")
    for name, message in (
        ("notes.md", "not a program"),
        ("model.json", "not a program of Paddle 3: base_code should be an object"),
        ("empty", "the file is empty"),
        ("folder", "the folder holds no __model__, it is empty"),
        ("nowhere", "there is no such model: No such file"),
        ("alone.pdiparams", "holds parameters without their names, which only the program that they are of knows"),
    ):
        with pytest.raises(FormatError, match=f"{tmp_path / name}.*{message}"):
            fluid.load_model(tmp_path / name)
    with pytest.raises(FormatError, match=r"without their names; load the program, .*model.pdmodel, with params="):
        fluid.load_model(LENET / "model.pdiparams")
    with pytest.raises(ProgramError, match="holds parameters alone; params=, sizes= and constants= go with a program"):
        model_io.save_arrays(tmp_path / "w.npz", {"w": np.ones(1)})
        fluid.load_model(tmp_path / "w.npz", params=tmp_path)
    with pytest.raises(FormatError, match="holds a program, not arrays by name"):
        model_io.read_arrays(LENET / "model.pdmodel")
    for name in ("a.pdmodel", "b.pdmodel"):
        shutil.copy(LENET / "model.pdmodel", tmp_path / "folder" / name)
    with pytest.raises(FormatError, match=r"several programs, a.pdmodel, b.pdmodel: name one"):
        fluid.load_model(tmp_path / "folder")


def test_parameters_of_another_program(tmp_path):
    shutil.copy(LENET / "model.pdmodel", tmp_path / "net.pdmodel")
    model_io.save_arrays(tmp_path / "net.npz", {"other": np.ones(3)})
    with pytest.raises(FormatError, match=r"net.npz holds nothing of the program .*net.pdmodel: it has other, not batch_norm_0"):
        fluid.load_model(tmp_path / "net")
    model_io.save_arrays(tmp_path / "net.npz", {"fc_1.b_0": np.ones(3, "float32")})
    with pytest.raises(FormatError, match=r"the file holds float32\[3\], the program declares float32\[10\]"):
        fluid.load_model(tmp_path / "net")
    shutil.copy(ZOO / "linreg" / "model.pdiparams", tmp_path / "net.pdiparams")
    with pytest.raises(FormatError, match=r"net.pdiparams"):
        fluid.load_model(tmp_path / "net")
    assert not global_scope().local_var_names()


def test_each_format_tells_its_own_files_and_no_others(tmp_path):
    """Each row of the table of formats recognizes and reads its own files, and no other row does."""
    arrays = {"w": np.arange(6, dtype="float32").reshape(2, 3)}
    program = fluid.Program()
    program.global_block().create_var(name="x", shape=[1], dtype="float32", is_data=True, need_check_feed=True)
    files = {}
    for form in (*table.ARRAYS, *table.PROGRAMS):
        files[form.name] = str(tmp_path / form.name)
        form.write(files[form.name], arrays if form in table.ARRAYS else program)
    for name, path in files.items():
        head, size = table.head_of(path, "file")
        telling = [form.name for form in (*table.ARRAYS, *table.PROGRAMS) if form.matches(head, size)]
        assert telling == [name]
    for form in table.ARRAYS:
        np.testing.assert_array_equal(form.read(files[form.name])["w"], arrays["w"])
    for form in table.PROGRAMS:
        assert str(form.read(files[form.name])) == str(program)


def test_safetensors_are_written_and_read_one_by_one(tmp_path):
    """Writing takes no memory of its own, reading only the memory of the arrays. bfloat16 stays two bytes in the file."""
    path = tmp_path / "w.safetensors"
    arrays = {f"w{number}": np.full(1 << 18, number, np.float32) for number in range(8)}
    arrays |= {"half": to_bfloat16(np.float32([1.5, -2.0])), "swapped": np.array([1, 2], ">i4")}
    arrays |= {"empty": np.zeros((0, 3)), "one": np.array(7)}
    tracemalloc.start()
    try:
        model_io.save_arrays(path, arrays)
        assert tracemalloc.get_traced_memory()[1] < 1 << 18
        tracemalloc.reset_peak()
        read = model_io.read_arrays(path)
        assert tracemalloc.get_traced_memory()[1] < 9 << 20
    finally:
        tracemalloc.stop()
    assert b'"half":{"dtype":"BF16","shape":[2]' in path.read_bytes()[:4096]
    assert read["half"].tolist() == [1.5, -2.0] and read["swapped"].tolist() == [1, 2]
    assert read["empty"].shape == (0, 3) and read["one"].shape == () and read["one"] == 7
    assert all(read[name].flags.writeable and np.array_equal(read[name], arrays[name]) for name in arrays if name[0] == "w")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FormatError, match=r"should have .* bytes inside the file"):
        model_io.read_arrays(path)
