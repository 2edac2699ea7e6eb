"""Checkpoints: training goes on with the same bits, in another process too, and a file is whole whenever a process dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from paths import TESTS
from resumed import build, train

import fluid
from fluid import io
from fluid.errors import ExecutionError, FluidError, FluidTypeError, FormatError, ProgramError
from fluid.executor import Scope, scope_guard
from fluid.formats.npz import write_npz
from fluid.values.bfloat16 import BFLOAT16, to_bfloat16
from fluid.values.selected_rows import SelectedRows
from fluid.values.types import VarType


def values() -> dict[str, bytes]:
    scope = fluid.global_scope()
    return {name: np.asarray(scope.array(name)).tobytes() for name in scope.local_var_names() if scope.array(name) is not None}


@each("seed", [0, 7])
def test_training_goes_on_with_the_same_bits(tmp_path: Path, seed: int) -> None:
    loss, executor, path = build(seed), fluid.Executor(), str(tmp_path / "deep" / "model.ckpt")
    program = fluid.default_main_program()
    executor.run(fluid.default_startup_program())
    train(executor, loss, 0, 5)
    fluid.save_checkpoint(program, path, step=5)
    after = train(executor, loss, 5, 10)
    assert len(set(after)) == 5
    with scope_guard(Scope()):
        found = fluid.load_checkpoint(program, path, fluid.Executor())
        assert (
            (found.path, found.step) == (path, 5) and "fc_0.w_0" in found.names and any("moment1" in name for name in found.names)
        )
        assert train(fluid.Executor(), loss, 5, 10) == after
    fluid.load_checkpoint(program, path)  # where training went on meanwhile, with a plan already bound
    assert train(executor, loss, 5, 10) == after
    code = f"""
import sys

import fluid

sys.path.insert(0, {str(TESTS / "support")!r})
from resumed import build, train

loss = build({seed})
step = fluid.load_checkpoint(fluid.default_main_program(), {path!r}).step
print(*train(fluid.Executor(), loss, step, 10), sep="\\n")
"""
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert again.stdout.split() == after


def test_ten_steps_are_five_and_five(tmp_path: Path) -> None:
    loss, path, program = build(3), str(tmp_path / "c"), fluid.default_main_program()
    with scope_guard(Scope()):
        fluid.Executor().run(fluid.default_startup_program())
        fluid.save_checkpoint(program, path)
        whole, end = train(fluid.Executor(), loss, 0, 10), values()
    halves = []
    for start in (0, 5):
        with scope_guard(Scope()):
            assert fluid.load_checkpoint(program, path).step == start
            halves += train(fluid.Executor(), loss, start, start + 5)
            fluid.save_checkpoint(program, path, start + 5)
            last = values()
    assert halves == whole and last == {name: end[name] for name in last}


def test_the_file_is_an_archive_of_arrays(tmp_path: Path) -> None:
    build(7)
    fluid.Executor().run(fluid.default_startup_program())
    fluid.save_checkpoint(fluid.default_main_program(), tmp_path / "c", step=np.int64(4))
    with np.load(tmp_path / "c") as found:
        np.testing.assert_array_equal(found["fc_0.w_0"], fluid.global_scope().array("fc_0.w_0"))
        assert set(found) == {var.name for var in io.get_program_persistable_vars(fluid.default_main_program())} | {
            "@CHECKPOINT@"
        }
        state = json.loads(found["@CHECKPOINT@"].tobytes())
    assert (state["step"], state["seed"], state["runs"]) == (4, 7, 1)


def test_sequences_sparse_rows_and_bfloat16(tmp_path: Path) -> None:
    program, path = fluid.Program(), str(tmp_path / "c")
    block = program.global_block()
    block.create_var(name="rows", shape=[4, 2], dtype="float32", type=VarType.SELECTED_ROWS, persistable=True)
    block.create_var(name="short", shape=[2], dtype="bfloat16", persistable=True)
    block.create_var(name="sequences", shape=[-1, 1], dtype="float32", lod_level=1, persistable=True)
    scope = fluid.global_scope()
    scope.put("rows", SelectedRows(np.array([3, 0]), np.ones((2, 2), "float32"), 4))
    scope.put("short", to_bfloat16(np.array([1.5, -2.0])))
    scope.put("sequences", np.ones((3, 1), "float32"))
    scope.var("sequences").get_tensor().set_lod([[0, 1, 3]])
    fluid.save_checkpoint(program, path)
    other = Scope()
    fluid.load_checkpoint(program, path, scope=other)
    rows = other.array("rows")
    assert rows.rows() == [3, 0] and rows.height() == 4 and (rows.value == 1).all()
    assert other.array("short").dtype == BFLOAT16 and other.array("short").tobytes() == scope.array("short").tobytes()
    assert other.var("sequences").get_tensor().lod() == [[0, 1, 3]]


# -------------------------------------------------------------------------------------------------------------- errors
def written(path: Path, state: Any, **arrays: Any) -> None:
    raw = state if isinstance(state, bytes) else json.dumps(state).encode()
    write_npz(str(path), {"@CHECKPOINT@": np.frombuffer(raw, np.uint8), **arrays})


GOOD = {"format": 1, "step": 0, "seed": 1, "runs": 0, "lod": {}, "height": {}}
W = np.ones((2, 2), "float32")


def not_zip(path: Path) -> None:
    path.write_bytes(b"\x80\x02}.")


def cut(path: Path) -> None:
    written(path, GOOD, w=W)
    path.write_bytes(path.read_bytes()[:-30])


def flipped(path: Path) -> None:
    written(path, GOOD, w=W)
    data = bytearray(path.read_bytes())
    data[data.index(W.tobytes()) + 2] ^= 1
    path.write_bytes(data)


@each(
    ("make", "says"),
    [
        (lambda path: None, "c: there is no such checkpoint: No such file"),
        (lambda path: path.write_bytes(b""), "c: the file is not a checkpoint, which begins as archives do"),
        (not_zip, "c: the file is not a checkpoint"),
        (cut, "c: the archive cannot be read: File is not a zip file"),
        (flipped, "c: the archive cannot be read: Bad CRC-32 for file 'w.npy'"),
        (lambda path: write_npz(str(path), {"w": W}), "c: the archive holds no @CHECKPOINT@, so it is not a checkpoint"),
        (lambda path: written(path, b"{", w=W), "c: its @CHECKPOINT@ is damaged"),
        (lambda path: written(path, b"[" * 100_000, w=W), "c: its @CHECKPOINT@ is damaged"),
        (lambda path: written(path, [], w=W), "c: its @CHECKPOINT@ is damaged"),
        (lambda path: written(path, {**GOOD, "format": 2}, w=W), "c: its format is 2; this version reads 1"),
        (lambda path: written(path, {**GOOD, "step": "3"}, w=W), "c: its @CHECKPOINT@ is damaged: step is '3'"),
        (lambda path: written(path, {**GOOD, "runs": -1}, w=W), "c: its @CHECKPOINT@ is damaged: runs is -1"),
        (lambda path: written(path, {**GOOD, "lod": {"w": [["a"]]}}, w=W), "an offset of a sequence is not a number"),
        (
            lambda path: written(path, {**GOOD, "lod": {"w": [[0, 9], [0, 2]]}}, w=W),
            "c: its @CHECKPOINT@ is damaged: level 0 of the",
        ),
        (lambda path: written(path, GOOD), "c: it is a checkpoint of another program: it lacks w; it has nothing too much"),
        (lambda path: written(path, GOOD, w=W, v=W), "it lacks nothing; it has v too much"),
        (lambda path: written(path, {**GOOD, "height": {"w": 3}}, w=W), "it lacks w@ROWS"),
        (
            lambda path: written(path, {**GOOD, "height": {"w": 3}}, **{"w": W, "w@ROWS": np.array([0, 3])}),
            "c, variable 'w': the rows do not fit their numbers, or these the height 3",
        ),
        (
            lambda path: written(path, GOOD, w=np.ones(3, "float32")),
            "c, variable 'w': the file holds float32[3], the program declares float32[2, 2]",
        ),
        (lambda path: written(path, GOOD, w=W.astype("int64")), "the file holds int64[2, 2]"),
    ],
)
def test_what_is_no_checkpoint_of_this_program(tmp_path: Path, make: Any, says: str) -> None:
    program = fluid.Program()
    program.global_block().create_var(name="w", shape=[2, 2], dtype="float32", persistable=True)
    make(tmp_path / "c")
    with pytest.raises(FormatError) as caught:
        fluid.load_checkpoint(program, tmp_path / "c")
    assert says in str(caught.value) and str(tmp_path / "c") in str(caught.value)
    assert not fluid.global_scope().local_var_names() and fluid.global_scope().runs == 0 and program.random_seed == 0


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    program = fluid.Program()
    program.global_block().create_var(name="w", shape=[2, 2], dtype="float32", persistable=True)
    with pytest.raises(ExecutionError, match=r"'w' \(float32\[2, 2\]\) has no value in the scope"):
        fluid.save_checkpoint(program, tmp_path / "c")
    for step in (-1, True):
        with pytest.raises(ProgramError, match="it should be the number of steps that are done"):
            fluid.save_checkpoint(program, tmp_path / "c", step=step)
    for odd in (1.5, None):
        with pytest.raises(FluidTypeError, match=f"step should be an integer, not {odd}"):
            fluid.save_checkpoint(program, tmp_path / "c", step=odd)  # type: ignore[arg-type]
    (tmp_path / "file").write_bytes(b"")
    fluid.global_scope().put("w", W)
    with pytest.raises(FluidError, match=r"file/c: the file cannot be written: (Not a directory|File exists)"):
        fluid.save_checkpoint(program, tmp_path / "file" / "c")
    program.global_block().create_var(name="a\0b", shape=[2, 2], dtype="float32", persistable=True)
    fluid.global_scope().put("a\0b", W)
    with pytest.raises(FluidError, match=r"the variable 'a\\x00b' has a name that archives cannot hold"):
        fluid.save_checkpoint(program, tmp_path / "c")
    assert os.listdir(tmp_path) == ["file"]


# ------------------------------------------------------------------------------------------------------------- killed
KEEPS_SAVING = """
import sys
import numpy as np
import fluid

program = fluid.Program()
for name in ("a", "b"):
    program.global_block().create_var(name=name, shape=[100, 1000], dtype="float32", persistable=True)
step = int(sys.argv[2])
while True:
    step += 1
    for name in ("a", "b"):
        fluid.global_scope().put(name, np.full((100, 1000), step, "float32"))
    fluid.save_checkpoint(program, sys.argv[1], step)
    print(step, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_killed_processes_leave_a_whole_checkpoint(tmp_path: Path) -> None:
    program = fluid.Program()
    for name in ("a", "b"):
        program.global_block().create_var(name=name, shape=[100, 1000], dtype="float32", persistable=True)
    path, step = tmp_path / "c", 0
    for delay in (0.003, 0.017, 0.029):
        with subprocess.Popen(
            [sys.executable, "-c", KEEPS_SAVING, str(path), str(step)], stdout=subprocess.PIPE, cwd=tmp_path
        ) as process:
            assert process.stdout is not None
            first = int(process.stdout.readline())
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.wait()
        step = fluid.load_checkpoint(program, path).step
        assert step >= first
        for name in ("a", "b"):
            assert (fluid.global_scope().array(name) == step).all()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
