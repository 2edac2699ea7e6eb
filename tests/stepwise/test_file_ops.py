"""The ops that touch files: save, load, save_combine and load_combine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FluidError
from fluid.ir.program import Program, program_guard

X = np.arange(6, dtype="float32").reshape(3, 2)


@pytest.fixture(autouse=True)
def guard() -> Iterator[None]:
    with fluid.unique_name.guard(), program_guard(Program(), Program()), fluid.scope_guard(fluid.Scope()):
        yield


def run(feed: Any = None, fetch: Any = (), program: Program | None = None) -> list[Any]:
    found: list[Any] = fluid.Executor(fluid.CPUPlace()).run(program, feed or {}, list(fetch), return_numpy=False)
    return found


def append(op_type: str, inputs: Any = None, outputs: Any = None, **attrs: Any) -> None:
    fluid.default_main_program().current_block().append_op(op_type, inputs or {}, outputs or {}, attrs)


def test_a_variable_and_back(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    x = fluid.data("x", [None, 2], lod_level=1)
    append("save", {"X": layers.scale(x, 2.0)}, file_path=path)
    run({"x": (X, [[1, 2]])})
    with program_guard(Program(), Program()):
        out = layers.create_tensor("float32", name="out")
        layers.load(out, path)
        (found,) = run(fetch=[out])
    np.testing.assert_array_equal(np.asarray(found), 2 * X)
    assert found.recursive_sequence_lengths() == [[1, 2]]


def test_several_in_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "all")
    x = fluid.data("x", [None, 2])
    append("save_combine", {"X": [x, layers.reduce_sum(x)]}, file_path=path, save_as_fp16=True)
    run({"x": X})
    with program_guard(Program(), Program()):
        names = [layers.create_tensor("float16", name=name) for name in "ab"]
        append("load_combine", {}, {"Out": names}, file_path=path)
        a, b = (np.asarray(value) for value in run(fetch=names))
    assert a.dtype == b.dtype == np.float16
    np.testing.assert_array_equal(a, X)
    np.testing.assert_array_equal(b, [X.sum()])


def test_not_over_a_file_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"mine")
    append("save", {"X": fluid.data("x", [None, 2])}, file_path=str(path), overwrite=False)
    with pytest.raises(ExecutionError, match=r"exists already, and the op may not overwrite it"):
        run({"x": X})
    assert path.read_bytes() == b"mine"


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    out = layers.create_tensor("float32", name="out")
    layers.load(out, str(tmp_path / "missing"))
    with pytest.raises(FluidError, match=r"missing.*cannot be read"):
        run(fetch=[out])
    (tmp_path / "missing").write_bytes(b"\x07" * 40)
    with pytest.raises(FluidError, match=r"missing, variable 'out', at byte 0: the version of the record"):
        run(fetch=[out])


def test_a_program_from_a_file_may_not(tmp_path: Path) -> None:
    path = tmp_path / "x"
    append("save", {"X": fluid.data("x", [None, 2])}, file_path=str(path))
    program = Program.parse_from_string(fluid.default_main_program().serialize_to_string())
    with pytest.raises(ExecutionError, match=r"the op save writes files, which a program from a file may do only where"):
        run({"x": X}, program=program)
    assert not path.exists()
    program.allowed_ops = frozenset({"save"})
    run({"x": X}, program=program)
    assert path.exists()


@each("attrs", [{"seek": 8}, {"shape": [2]}])
def test_what_is_not_supported_says_so(attrs: dict[str, Any], tmp_path: Path) -> None:
    out = layers.create_tensor("float32", name="out")
    append("load", {}, {"Out": out}, file_path=str(tmp_path), **attrs)
    with pytest.raises(ExecutionError, match="are not supported; give the path of a whole file"):
        run(fetch=[out])
