"""Writing files: whole or not at all, several together, and nothing is left for good by processes that are killed."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import io
from fluid.errors import ExecutionError, FluidError, ProgramError
from fluid.formats import writing
from fluid.formats.pickles import write_arrays
from fluid.formats.writing import atomic_writer, together, write_file
from fluid.viewer import write_html


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_writing_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_writer(str(path)) as file:
        file.write(b"half")
        raise RuntimeError
    assert contents(tmp_path) == {"file": b"old"}
    with atomic_writer(str(path)) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert contents(tmp_path) == {"file": b"new"}


def test_a_file_that_failed_is_left_out_where_the_error_is_caught(tmp_path: Path) -> None:
    write_file(str(tmp_path / "file"), [b"old"])
    with together():
        with pytest.raises(RuntimeError), atomic_writer(str(tmp_path / "file")) as file:
            file.write(b"half")
            raise RuntimeError
        write_file(str(tmp_path / "other"), [b"new"])
    assert contents(tmp_path) == {"file": b"old", "other": b"new"}


@pytest.mark.skipif(os.name != "posix", reason="permissions and links as of POSIX")
def test_permissions_stay_and_links_are_followed(tmp_path: Path) -> None:
    path, link, dangling = (tmp_path / name for name in ("file", "link", "dangling"))
    write_file(str(path), [b"old"])
    path.chmod(0o600)
    link.symlink_to("file")
    (tmp_path / "folder").mkdir()
    dangling.symlink_to("folder/new")
    write_file(str(link), [b"new"])
    write_file(str(dangling), [b"1"])
    assert link.is_symlink() and path.read_bytes() == b"new" and path.stat().st_mode & 0o777 == 0o600
    assert dangling.is_symlink() and (tmp_path / "folder" / "new").read_bytes() == b"1"


def test_names_are_as_they_were_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with together():
        write_file("file", [b"1"])
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert contents(tmp_path) == {"file": b"1"}


@each(
    ("name", "says"),
    [
        ("file/below", "(Not a directory|File exists)"),
        ("folder", "Is a directory"),
        ("x" * 300, "File name too long"),
        ("a\0b", "embedded null (byte|character)"),
    ],
)
def test_names_that_no_file_can_have(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    before = contents(tmp_path)
    with pytest.raises(FluidError, match=f"the file cannot be written: .*{says}"), together():
        write_file(str(tmp_path / "other"), [b"1"])
        write_file(str(tmp_path / name), [b"1"])
    assert contents(tmp_path) == before


def identity(name: str) -> tuple[int, ...]:
    """The properties of a file that reading through a link does not change; its time of access may change."""
    status = os.lstat(name)
    return status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@pytest.mark.skipif(os.name != "posix", reason="fifos, sockets and devices as of POSIX")
@each("way", ["fifo", "link to a fifo", "socket", "device"])
def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """As root, a rename would replace /dev/null itself."""
    path = tmp_path / "name"
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    if way == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("name")
    elif way == "fifo":
        os.mkfifo(path)
    elif way == "link to a fifo":
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to("fifo")
    else:  # a file that says that it is a device
        path.write_bytes(b"old")
        real = os.stat

        def stat_of_device(name: Any, *args: Any, **kwargs: Any) -> Any:
            found = real(name, *args, **kwargs)
            if str(name) != str(path):
                return found
            return os.stat_result((stat.S_IFCHR | 0o666, *found[1:]))

        monkeypatch.setattr(os, "stat", stat_of_device)
    before = {name: identity(name) for name in os.listdir(tmp_path)}
    with pytest.raises(FluidError, match=f"name: the file cannot be written: it is a {way.split()[-1]}, no regular file"):
        write_file(str(path), [b"new"])
    with pytest.raises(FluidError, match="no regular file"):
        fluid.save_checkpoint(model(), path)
    after = {name: identity(name) for name in os.listdir(tmp_path)}
    assert after == before, "nothing was written beside it either"


def test_files_of_one_save_change_together(tmp_path: Path) -> None:
    for name in ("a", "b/c"):
        write_file(str(tmp_path / name), [b"old"])
    with pytest.raises(FluidError, match="b/c: the file cannot be written: No space left"), together():
        write_file(str(tmp_path / "a"), [b"new"])
        with together(), atomic_writer(str(tmp_path / "b" / "c")):
            raise OSError(28, "No space left on device")
    assert contents(tmp_path) == {"a": b"old", "b/c": b"old"}
    with together():
        write_file(str(tmp_path / "a"), [b"new"])
        with together():
            write_file(str(tmp_path / "b" / "c"), [b"new"])
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b" / "c").read_bytes() == b"old"
    assert contents(tmp_path) == {"a": b"new", "b/c": b"new"}


def model() -> fluid.Program:
    x = fluid.data("x", [-1, 3])
    fluid.optimizer.Adam(0.1).minimize(fluid.layers.mean(fluid.layers.fc(x, 2)))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return fluid.default_main_program()


SAVES: dict[str, tuple[Any, list[str]]] = {
    "save": (lambda program, folder: fluid.save(program, str(folder / "m")), ["m.pdopt", "m.pdparams", "m.pdmodel"]),
    "save_model": (lambda program, folder: fluid.save_model(folder / "m.pdmodel", program), ["m.pdiparams", "m.pdmodel"]),
    "inference model": (
        lambda program, folder: io.save_inference_model(str(folder), ["x"], ["fc_0.tmp_1"], None, program),
        ["fc_0.b_0", "fc_0.w_0", "__model__"],
    ),
    "params": (lambda program, folder: io.save_params(None, str(folder), program), ["fc_0.b_0", "fc_0.w_0"]),
}


@each("way", SAVES)
def test_saves_rename_when_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Files are renamed in the safest order for readers. If a rename fails, the remaining new files are deleted."""
    save, names = SAVES[way]
    program, renamed, replace = model(), [], os.replace

    def watched(source: str, target: str) -> None:
        temporaries = set(os.listdir(tmp_path)) - set(names)
        assert ".fluid-commit" in temporaries and len(temporaries) == 2 + len(names) - len(renamed), temporaries
        renamed.append(os.path.basename(target))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", watched)
        save(program, tmp_path)
    assert renamed == names and sorted(os.listdir(tmp_path)) == sorted(names)
    before = contents(tmp_path)
    for name in fluid.global_scope().local_var_names():
        fluid.global_scope().put(name, np.ones_like(fluid.global_scope().array(name)))

    def refused(source: str, target: str) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refused)
        with pytest.raises(FluidError, match=f"{names[0]}: the file cannot be written: Permission denied"):
            save(program, tmp_path)
    assert contents(tmp_path) == before


def test_a_program_that_cannot_be_written_changes_no_file(tmp_path: Path) -> None:
    program = model()
    fluid.save(program, str(tmp_path / "m"))
    before = contents(tmp_path)
    program.global_block().ops[0].attrs["odd"] = object()
    with pytest.raises(ProgramError, match="odd"):
        fluid.save(program, str(tmp_path / "m"))
    with pytest.raises(ProgramError, match="odd"):
        fluid.save_model(tmp_path / "m.pdmodel", program)
    fluid.global_scope().erase(["fc_0.w_0"])
    with pytest.raises(ExecutionError, match=r"fc_0.w_0"):
        fluid.save(program, str(tmp_path / "m"))
    assert contents(tmp_path) == before


def test_a_page_is_written_whole_too(tmp_path: Path) -> None:
    with pytest.raises(FluidError, match="the file cannot be written: Is a directory"):
        write_html(fluid.Program(), tmp_path)
    assert contents(tmp_path) == {}


# ------------------------------------------------------------------------------------------------ what is left by others
WRITES = """
import sys, time
from fluid.formats.writing import atomic_writer, together

with together():
    for name in sys.argv[1:]:
        with atomic_writer(name) as file:
            file.write(b"half")
    print("there", flush=True)
    time.sleep(100)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_what_killed_processes_leave_is_removed_by_the_next_save(tmp_path: Path) -> None:
    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", WRITES, "a", "b"], stdout=subprocess.PIPE, cwd=tmp_path)
        assert process.stdout is not None and process.stdout.readline() == b"there\n"
        return process

    with start() as dead, start() as alive:
        try:
            left = set(os.listdir(tmp_path))
            assert len(left) == 6 and all(name.startswith(".fluid-") for name in left)
            dead.send_signal(signal.SIGKILL)
            dead.wait()
            number = "0123456789abcdef"
            others = {".fluid-x", f".fluid-{number}-1", f".fluid-{number}.txt", f"fluid-{number}", f".a.{number}"}
            for name in others:
                (tmp_path / name).write_bytes(b"mine")
            links = [tmp_path / f".fluid-{digit * 16}" for digit in "01"]
            links[0].symlink_to(tmp_path / f"fluid-{number}")
            links[1].mkdir()
            write_file(str(tmp_path / "c"), [b"whole"])
            found = set(os.listdir(tmp_path)) - others - {link.name for link in links}
            assert found - left == {"c"} and len(found & left) == 3  # those of the living process
            assert all((tmp_path / name).read_bytes() == b"mine" for name in others) and all(link.exists() for link in links)
        finally:
            alive.kill()
    write_arrays(str(tmp_path / "p"), {})
    assert set(os.listdir(tmp_path)) == others | {link.name for link in links} | {"c", "p"}


def test_without_locks_what_others_left_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if writing.locks is None:
        pytest.skip("this system has no such locks")

    def unknown(descriptor: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    for name in (".fluid-0123456789abcdef", ".fluid-0123456789abcdef-1"):
        (tmp_path / name).write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr(writing.locks, "flock", unknown)
        write_file(str(tmp_path / "a"), [b"1"])
        assert len(os.listdir(tmp_path)) == 3
    write_file(str(tmp_path / "a"), [b"2"])
    assert contents(tmp_path) == {"a": b"2"}


def test_a_lock_that_is_taken_for_abandoned_at_once_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked, calls = writing._locked, []

    def late(descriptor: int) -> bool | None:
        calls.append(descriptor)
        if len(calls) == 1:  # another process comes between making the file and locking it
            for name in os.listdir(tmp_path):
                os.unlink(tmp_path / name)
        return locked(descriptor)

    monkeypatch.setattr(writing, "_locked", late)
    write_file(str(tmp_path / "a"), [b"1"])
    assert len(calls) == 2 and contents(tmp_path) == {"a": b"1"}
