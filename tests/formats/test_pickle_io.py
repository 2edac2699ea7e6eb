"""Pickles of arrays: Paddle's and numpy's of every protocol are read; whatever else a pickle may do ends in an error."""

from __future__ import annotations

import collections
import datetime
import os
import pickle
import pickletools
import random
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import MORE, each
from paths import TESTS

from fluid.errors import FormatError
from fluid.formats import pickles
from fluid.formats.pickles import read_pickle, write_arrays

GOLDEN = TESTS / "golden" / "pickles"

FILES = ("static.pdparams", "protocol4.pdparams", "layer.pdopt", "nested.pdparams")

ARRAYS = {
    "fc_0.w_0": np.arange(6, dtype="float32").reshape(2, 3),
    "größe": np.zeros((0, 3), "int64"),
    "scalar": np.array(3.5),
    "bool": np.array([True, False]),
    "complex": np.full(300, 1 + 2j, "complex64"),
    "half": np.array([[0.5]], "float16"),
    "bytes": np.arange(256, dtype="uint8"),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big endian": np.arange(3, dtype=">i2"),
}


def same(found: Any, expected: Any) -> None:
    np.testing.assert_equal(found, expected)
    if isinstance(expected, dict):
        for key, value in expected.items():
            same(found[key], value)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype.newbyteorder("=") and found.shape == expected.shape


def put(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "file.pdparams"
    path.write_bytes(data)
    return str(path)


# --------------------------------------------------------------------------------------------------------------- reading
@each("path", sorted(GOLDEN.glob("*.pd[po][ap]*")), ids=lambda path: path.name)
def test_paddles_files(path: Path) -> None:
    if path.suffix != ".pdmodel":
        same(read_pickle(str(path)), pickle.loads(path.read_bytes()))


@each("protocol", range(6))
def test_numpys_arrays_of_any_protocol(tmp_path: Path, protocol: int) -> None:
    value = {
        **ARRAYS,
        "list": [1, -2, 300, 70000, 2**40, 10**30, 0.25, None, True, False, "text", b"raw\xff", b""],
        "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "ordered": collections.OrderedDict(a=1),
        "number": np.float32(2.5),
    }
    found = read_pickle(put(tmp_path, pickle.dumps(value, protocol)))
    same(found, value)
    assert type(found["ordered"]) is dict
    found["fc_0.w_0"][0, 0] = 7  # an array of its own


def test_a_shared_array_stays_shared(tmp_path: Path) -> None:
    one = np.arange(3.0)
    found = read_pickle(put(tmp_path, pickle.dumps({"a": one, "b": one, "c": [one]})))
    assert found["a"] is found["b"] is found["c"][0]


def test_a_file_of_python_2(tmp_path: Path) -> None:
    """Its strings are bytes, which serve as names and as elements."""
    data = (
        b"\x80\x02}q\x00U\x01wq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85q\x04U\x01bq\x05\x87q\x06Rq\x07"
        b"(K\x01K\x02\x85q\x08cnumpy\ndtype\nq\tU\x02f4q\nK\x00K\x01\x87q\x0bRq\x0c(K\x03U\x01<q\rNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00"
        b"tq\x0eb\x89U\x08" + struct.pack("<2f", 1.5, -300.0) + b"q\x0ftq\x10bs."
    )
    same(read_pickle(put(tmp_path, data)), {"w": np.array([1.5, -300.0], "float32")})


# --------------------------------------------------------------------------------------------------------------- writing
def test_what_is_written_is_a_pickle_of_protocol_2(tmp_path: Path) -> None:
    path = str(tmp_path / "w")
    write_arrays(path, ARRAYS)
    data = Path(path).read_bytes()
    assert data[:2] == b"\x80\x02" and max(op.proto for op, _, _ in pickletools.genops(data)) == 2
    found = pickle.loads(data)
    for name, array in ARRAYS.items():
        assert (
            np.array_equal(found[name], array) and found[name].shape == array.shape and found[name].dtype.kind == array.dtype.kind
        )
    same(read_pickle(path), ARRAYS)


def test_large_arrays_take_protocol_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluid.formats.pickles._LARGE", 100)
    write_arrays(str(tmp_path / "w"), ARRAYS)
    data = (tmp_path / "w").read_bytes()
    assert data[1] == 4
    same(read_pickle(str(tmp_path / "w")), ARRAYS)
    assert np.array_equal(pickle.loads(data)["complex"], ARRAYS["complex"])


def test_names_may_be_anything(tmp_path: Path) -> None:
    arrays = {"../x\n.": np.ones(1), "": np.zeros(2), "x" * 5000: np.ones((2, 2))}
    write_arrays(str(tmp_path / "w"), arrays)
    same(read_pickle(str(tmp_path / "w")), arrays)
    same(pickle.loads((tmp_path / "w").read_bytes()), arrays)


# --------------------------------------------------------------------------------------------------------------- hostile
class Evil:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


@each("protocol", [0, 2, 4, 5])
@each(
    ("value", "named"),
    [
        (Evil(os.system, ("touch /tmp/fluid-was-here",)), r"(posix|nt)\.system"),
        (Evil(eval, ("1",)), r"(builtins|__builtin__)\.eval"),
        (Evil(subprocess.Popen, ("true",)), r"(subprocess|commands)\.Popen"),
        (datetime.date(2020, 1, 1), r"datetime\.date"),
        (np.array([{}], object), "an array's element type is 'O8', which is not a type of numbers"),
        (np.zeros(2, [("a", "f4"), ("b", "i4")]), "an array's element type is 'V8'"),
        (np.array(["text"]), "an array's element type is 'U4'"),
        (np.dtype("f4"), "it holds a type, not a value"),
        (os.path.join, r"(posixpath|ntpath)\.join"),
        (np.ndarray, "it holds a type, not a value"),
        ({1, 2}, "EMPTY_SET|__builtin__.set|builtins.set"),
        (bytearray(b"x"), r"it refers to (builtins|__builtin__)\.bytearray|^$"),
        (Path("x"), r"it refers to pathlib\.\w+"),
        (np.random.default_rng(0), r"it refers to numpy\.random"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_classes_and_functions_are_refused_by_name(tmp_path: Path, value: Any, named: str, protocol: int) -> None:
    path = put(tmp_path, pickle.dumps({"w": value}, protocol))
    if isinstance(value, bytearray) and protocol == 5:
        assert read_pickle(path) == {"w": value}
        return
    with pytest.raises(FormatError, match=named) as caught:
        read_pickle(path)
    assert str(caught.value).startswith(f"{path}, at byte ")
    assert not os.path.exists("/tmp/fluid-was-here")


def test_objects_with_a_class_are_refused(tmp_path: Path) -> None:
    for data in (
        b"(ios\nsystem\n.",
        b"\x80\x02(cos\nsystem\no.",
        b"\x80\x02cos\nsystem\n)\x81.",
        b"\x80\x02\x82\x01.",
        b"P1\n.",
        b"NQ.",
    ):
        with pytest.raises(FormatError, match=r"instruction (INST|OBJ|NEWOBJ|EXT1|PERSID|BINPERSID)|refers to os\.system"):
            read_pickle(put(tmp_path, data))


def proto(*parts: bytes) -> bytes:
    return b"\x80\x04" + b"".join(parts) + b"."


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
F4 = b"cnumpy\ndtype\n\x8c\x02f4\x89\x88\x87R(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"


def array(shape: bytes, dtype: bytes = F4, raw: bytes = b"C\x04\0\0\0\0") -> bytes:
    return ARRAY + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb"


@each(
    ("data", "says"),
    [
        (b"", "the file is empty"),
        (b"hello", "at byte 0: it refers to part 101"),
        (b"\x1f\x8b\x08", "this is not a pickle, or it is damaged or cut off"),
        (b"\x80\x04}", "this is not a pickle, or it is damaged or cut off"),
        (proto(b"]" * 10_000), "values are left when the pickle ends"),
        (proto(b"(" * 5_000 + b"l" * 5_000), "containers are more than 64 deep"),
        (proto(b")" + b"\x85" * 5_000), "containers are more than 64 deep"),
        (proto(b"})" + b"\x85" * 5_000 + b"K\x01s"), "a tuple is the key of a dict"),
        (proto(b"]\x94h\x00a"), "a container holds itself"),
        (proto(b"]\x940", *(b"](h%ch%ce\x940" % (n, n) for n in range(60)), b"h\x3c"), "share parts so often"),
        (proto(b")\x940", *(b"h%ch%c\x86\x940" % (n, n) for n in range(60)), b"h\x3c"), "share parts so often"),
        (proto(b"]r\xff\xff\xff\xff"), None),
        (proto(b"j\xff\xff\xff\x7f"), "it refers to part 2147483647, which is not there"),
        (proto(b"h\x05"), "it refers to part 5"),
        (proto(b"\x8e" + struct.pack("<Q", 1 << 60)), "cut off"),
        (proto(b"\x8d" + struct.pack("<Q", 1 << 62)), "cut off"),
        (proto(b"X\xff\xff\xff\xff"), "cut off"),
        (proto(b"\x8b\xff\xff\xff\x7f"), "cut off"),
        (proto(b"I" + b"9" * 5000 + b"\n"), "cut off|damaged"),
        (proto(array(b"K\x02\x85")), r"an array float32\[2\] should have 8 bytes, but 4 are there"),
        (proto(array(b"\x8a\x08" + struct.pack("<Q", 1 << 61) + b"K\x04\x86")), "should have 36893488147419103232 bytes"),
        (proto(array(b"J\xff\xff\xff\xff\x85")), "an array's shape is a tuple, not a tuple of dimensions"),
        (proto(array(b"K\x01")), "an array's shape is 1, not a tuple of dimensions"),
        (proto(array(b"(" + b"K\x01" * 70 + b"t")), "an array's shape is a tuple"),
        (proto(array(b"K\x01\x85", b"N")), "an array has no element type"),
        (proto(array(b"K\x01\x85", raw=b"N")), "NoneType stands where bytes should"),
        (proto(array(b"K\x01\x85", raw=b"\x8c\x03\xe2\x82\xac")), "text stands where bytes should"),
        (proto(b"cnumpy\ndtype\n\x8c\x0a(99999,)f8\x89\x88\x87R"), "which is not a type of numbers"),
        (proto(b"cnumpy\ndtype\n]\x89\x88\x87R"), "an array's element type is a list"),
        (proto(b"c_codecs\nencode\n\x8c\x01x\x8c\x05utf-7\x86R"), "in the encoding 'utf-7'"),
        (proto(b"c_codecs\nencode\n\x8c\x01x\x85R"), "_codecs.encode is given 1 arguments, which it does not take"),
        (proto(b"ccollections\nOrderedDict\n]K\x01a\x85R"), "a dict is made of items that are not pairs"),
        (proto(b"cnumpy\nndarray\n)R"), "it calls something that is not a function"),
        (proto(b"N)R"), "it calls something that is not a function"),
        (proto(b"]N\x93"), "it refers to something without a name|stack"),
        (proto(b"]]\x93"), "it refers to something without a name"),
        (proto(b"NNb"), "a NoneType is given a state"),
        (proto(b"NNa"), "a list should be on the stack"),
        (proto(b"NNNs"), "a dict should be on the stack"),
        (proto(b"}(Nu"), "a dict's key has no value"),
        (proto(b"e"), "the stack has no mark"),
        (proto(b"(0"), "the stack is empty"),
        (proto(b"a"), "the stack is empty"),
        (b"\x80\x04.", "the stack is empty"),
        (proto(b"(" + b"N" * 14_000 + b"t"), "more small parts than files of parameters have"),
    ],
    ids=range(45),
)
def test_damaged_and_hostile_pickles(tmp_path: Path, data: bytes, says: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends soon, in an error that says where, without memory that the file does not justify."""
    monkeypatch.setattr(pickles, "_MOST_PARTS", 11_000)  # fewer than else, which takes a while to count
    path = put(tmp_path, data)
    tracemalloc.start()
    try:
        if says is None:
            read_pickle(path)
        else:
            with pytest.raises(FormatError, match=says) as caught:
                read_pickle(path)
            assert path in str(caught.value)
        assert tracemalloc.get_traced_memory()[1] < (64 << 20) + 10 * len(data)
    finally:
        tracemalloc.stop()


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="the file cannot be read: No such file"):
        read_pickle(str(tmp_path / "nope"))


@each("name", FILES)
def test_cut_off_anywhere(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, (GOLDEN / name).read_bytes())
    for size in reversed(range(os.path.getsize(path))):
        os.truncate(path, size)
        with pytest.raises(FormatError):
            read_pickle(path)


@pytest.mark.random
@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
def test_random_damage_ends_in_a_value_or_a_format_error(tmp_path: Path) -> None:
    draw = random.Random(5)
    sources = [
        (GOLDEN / name).read_bytes() for name in ("static.pdparams", "protocol4.pdparams", "layer.pdopt", "nested.pdparams")
    ]
    ends: collections.Counter[str] = collections.Counter()
    for _ in range(150 * MORE):
        data = bytearray(draw.choice(sources))
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path = put(tmp_path, bytes(data))
        try:
            read_pickle(path)
            ends["value"] += 1
        except FormatError:
            ends["error"] += 1
    assert ends["value"] > 10 and ends["error"] > 10


def test_reading_uses_no_unpickler(tmp_path: Path) -> None:
    """Not even imported: a process that reads a file of parameters has no need of it."""
    write_arrays(str(tmp_path / "w"), ARRAYS)
    code = (
        "import sys, pickletools; from fluid.formats import pickles\n"
        "import pickle; pickle.load = pickle.loads = pickle.Unpickler = None; import _pickle\n"
        "_pickle.load = _pickle.loads = _pickle.Unpickler = None\n"
        f"print(sorted(pickles.read_pickle({str(tmp_path / 'w')!r})))"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert "fc_0.w_0" in found
