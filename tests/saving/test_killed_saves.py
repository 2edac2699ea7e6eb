"""Processes that are killed while they save leave one whole save: the old one or the new one, whatever the format."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from killed_saves import WAYS, Killed, killed_at, model, put, saved_steps
from paths import TESTS

import fluid
from fluid import io
from fluid.errors import FluidError
from fluid.formats import commits
from fluid.formats.commits import current, is_saved, names_in, open_saved, write_commits
from fluid.formats.writing import together, write_file


@each("way", WAYS)
def test_killed_at_any_call_the_old_or_the_new_save_is_whole(tmp_path: Path, way: str) -> None:
    """The process ends at its first, second, ... call that changes something on the disk."""
    program, number, before, is_done = model(2), 1, {1.0}, False
    put(program, 1)
    WAYS[way].save(program, tmp_path)
    while not is_done:
        number += 1
        put(program, number)
        with killed_at(number - 2) as calls:
            try:
                WAYS[way].save(program, tmp_path)
                is_done = True
            except Killed:
                pass
        found = saved_steps(program, WAYS[way], tmp_path)
        assert found in (before, {float(number)}), calls
        before = found
    assert before == {float(number)} and number > 4
    assert "open" in calls and "write" in calls and calls.index("fsync") < calls.index("replace")
    assert not [name for _, names, files in os.walk(tmp_path) for name in (*names, *files) if name.startswith(".fluid-")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("kills", [34, pytest.param(1000, marks=pytest.mark.slow)])
def test_killed_processes_leave_one_whole_save(tmp_path: Path, kills: int) -> None:
    script = TESTS / "support" / "killed_saves.py"
    command = [sys.executable, str(script), "--kills", str(kills), "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and f"{kills} kills, 0 faults" in done.stdout, done.stdout + done.stderr


# -------------------------------------------------------------------------------------------------------------- commits
NUMBER = "0123456789abcdef"


def interrupted(folder: Path) -> None:
    """A folder after a killed save: file a is replaced, b is not renamed yet, and c is new."""
    for name, text in (("a", b"new"), ("b", b"old"), (f".fluid-{NUMBER}-2", b"new"), (f".fluid-{NUMBER}-3", b"new")):
        (folder / name).write_bytes(text)
    write_commits({(str(folder), NUMBER): {name: f".fluid-{NUMBER}-{n}" for n, name in enumerate("abc", 1)}})


def test_readers_find_what_is_not_renamed_yet(tmp_path: Path) -> None:
    interrupted(tmp_path)
    for name in "abc":
        with open_saved(str(tmp_path / name)) as file:
            assert file.read() == b"new"
        assert is_saved(str(tmp_path / name))
    assert {"a", "b", "c"} < set(names_in(str(tmp_path))) and not is_saved(str(tmp_path / "d")) and not is_saved("a\0b")
    assert (tmp_path / "b").read_bytes() == b"old"  # reading changes nothing


def test_the_next_save_ends_what_was_interrupted(tmp_path: Path) -> None:
    interrupted(tmp_path)
    write_file(str(tmp_path / "d"), [b"1"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "d"]
    assert {(tmp_path / name).read_bytes() for name in "abc"} == {b"new"}


def test_a_save_that_cannot_be_ended_is_no_mix(tmp_path: Path) -> None:
    """Nobody can write to the folder before someone has looked at it; readers find the whole save."""
    interrupted(tmp_path)
    (tmp_path / "b").unlink()
    (tmp_path / "b").mkdir()
    with pytest.raises(FluidError, match=r"d: the file .* an earlier save there was interrupted, and its .*b is no"):
        write_file(str(tmp_path / "d"), [b"1"])
    assert not (tmp_path / "d").exists() and current(str(tmp_path / "b")).endswith(f".fluid-{NUMBER}-2")


@each(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"{" * 5000,
        b"\xff",
        json.dumps({"files": {"b": f".fluid-{NUMBER}-2"}}).encode()[:-1],
        json.dumps({"files": {"b": "secret"}}).encode(),
        json.dumps({"files": {"b": f"../.fluid-{NUMBER}-2"}}).encode(),
        json.dumps({"files": {"../b": f".fluid-{NUMBER}-2"}}).encode(),
        json.dumps({"files": {"b": 3}}).encode(),
        json.dumps({"files": {"b": f".fluid-{NUMBER}-2"}, "first": [".", NUMBER]}).encode(),
        json.dumps({"files": {"b": f".fluid-{NUMBER}-2"}, "first": ["/nowhere", "x"]}).encode(),
        json.dumps({"files": {"b": f".fluid-{NUMBER}-2"}, "others": [3]}).encode(),
    ],
)
def test_commits_that_are_damaged_or_hostile_do_not_count(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    interrupted(folder)
    (folder / ".fluid-commit" / NUMBER).write_bytes(content)
    for name in (tmp_path / "b", folder / "secret"):
        name.write_bytes(b"mine")
    assert current(str(folder / "b")) == str(folder / "b")
    write_file(str(folder / "d"), [b"1"])
    assert (folder / "b").read_bytes() == b"old"
    assert (tmp_path / "b").read_bytes() == (folder / "secret").read_bytes() == b"mine"


@pytest.mark.skipif(os.name != "posix", reason="links and owners as of POSIX")
def test_commits_of_others_and_links_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(tmp_path)
    commit, path = tmp_path / ".fluid-commit" / NUMBER, str(tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        assert current(path) != path
        tmp_path.chmod(0o777 | stat.S_ISVTX)
        assert current(path) != path  # the owner of the folder made it
        real = os.lstat

        def of_another(name: str) -> os.stat_result:
            found = real(name)
            return os.stat_result((*found[:4], 54321, *found[5:])) if str(name) == str(commit) else found

        patch.setattr(os, "lstat", of_another)
        assert current(path) == path
    (tmp_path / f".fluid-{NUMBER}-2").unlink()
    (tmp_path / f".fluid-{NUMBER}-2").symlink_to("/etc/passwd")
    assert current(path) == path
    commit.rename(tmp_path / "elsewhere")
    commit.symlink_to(tmp_path / "elsewhere")
    assert commits._commits(str(tmp_path)) == []


def test_a_failed_rename_leaves_the_old_save_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk refuses the first rename, or the second: then readers find the new save, and the next writer ends it."""
    for refused, found in (("a", b"old"), ("b", b"new")):
        for name in "ab":
            write_file(str(tmp_path / name), [b"old"])
        replace = os.replace

        def refusing(source: str, target: str, refused: str = refused, replace: Any = replace) -> None:
            if os.path.basename(target) == refused:
                raise PermissionError(13, "Permission denied")
            replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", refusing)
            with pytest.raises(FluidError, match=f"{refused}: the file cannot be written: Permission denied"), together():
                for name in "ab":
                    write_file(str(tmp_path / name), [b"new"])
        for name in "ab":
            with open_saved(str(tmp_path / name)) as file:
                assert file.read() == found, refused
        write_file(str(tmp_path / "c"), [b"1"])
        assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]
        assert (tmp_path / "b").read_bytes() == found


def test_two_savers_of_a_folder_help_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process finds the commit of one that is alive, and renames its files; each is renamed once."""
    write, calls = write_commits, []

    def then_another_saves(files: dict[tuple[str, str], dict[str, str]]) -> None:
        write(files)
        if not calls:
            calls.append(files)
            write_file(str(tmp_path / "c"), [b"1"])

    monkeypatch.setattr("fluid.formats.writing.write_commits", then_another_saves)
    with together():
        for name in "ab":
            write_file(str(tmp_path / name), [b"new"])
    assert calls and {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"new", "b": b"new", "c": b"1"}


def test_a_folder_that_is_copied_while_it_is_not_ended(tmp_path: Path) -> None:
    """Commits name folders as seen from theirs."""
    program, folder = fluid.Program(), tmp_path / "model"
    for name in ("a", "x/b"):
        program.global_block().create_var(name=name, shape=[2], dtype="float32", persistable=True)
        fluid.global_scope().put(name, np.zeros(2, "float32"))
    io.save_persistables(None, folder, program)
    for name in ("a", "x/b"):
        fluid.global_scope().put(name, np.ones(2, "float32"))
    number = 0
    while not (folder / "x" / ".fluid-commit").exists() or not (folder / ".fluid-commit").exists():
        with killed_at(number), pytest.raises(Killed):
            io.save_persistables(None, folder, program)
        number += 1
    with killed_at(number), pytest.raises(Killed):
        io.save_persistables(None, folder, program)
    folder.rename(tmp_path / "moved")
    for name in ("a", "x/b"):
        fluid.global_scope().put(name, np.full(2, 2, "float32"))
    io.load_persistables(None, tmp_path / "moved", program)
    assert len({float(number) for name in ("a", "x/b") for number in fluid.global_scope().array(name)}) == 1
