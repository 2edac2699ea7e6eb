"""Kills processes that save models at random moments, and checks that exactly one complete save is left: the last one.

``python tests/support/killed_saves.py --kills 1000`` runs for minutes; `tests/saving/test_killed_saves.py` kills a few. A kill is
a seed and a number. Needs ``os.fork``; the numbers of a save are all alike, so that a mix of two saves shows.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io as streams
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import dygraph, io
from fluid.executor import Scope, scope_guard
from fluid.formats import commits, writing
from fluid.formats.commits import names_in
from fluid.saving.by_workers import load_by_workers, save_by_workers

HAS_ONNX, HAS_SAFETENSORS = (find_spec(name) is not None for name in ("onnx", "safetensors"))


@dataclass(frozen=True)
class Way:
    """A way to save all values of a program in a folder, and to read them there into the current scope."""

    save: Callable[[fluid.Program, Path], Any]
    load: Callable[[fluid.Program, Path], Any]


def _load_model(name: str) -> Callable[[fluid.Program, Path], Any]:
    return lambda program, folder: fluid.load_model(folder / name)


def _save_vars(program: fluid.Program, folder: Path) -> None:
    io.save_vars(None, folder, program, [var for var in program.list_vars() if var.persistable])


def _load_vars(program: fluid.Program, folder: Path) -> None:
    io.load_vars(None, folder, program, [var for var in program.list_vars() if var.persistable])


def _save_beside(program: fluid.Program, folder: Path) -> None:
    """Save parameters in separate folders, one of them a link."""
    (folder / "real").mkdir(exist_ok=True)
    if not (folder / "part").is_symlink():
        (folder / "part").symlink_to("real")
    io.save_persistables(None, folder, _with_paths(program))


def _load_beside(program: fluid.Program, folder: Path) -> None:
    io.load_persistables(None, folder, _with_paths(program))


def _with_paths(program: fluid.Program) -> fluid.Program:
    """A program in which every second variable has a name with a folder; values are the same."""
    paths, scope = fluid.Program(), fluid.global_scope()
    for number, var in enumerate(sorted(filter(io.is_persistable, program.list_vars()), key=lambda var: var.name)):
        name = ("part/", "deep/er/", "")[number % 3] + var.name
        paths.global_block().create_var(name=name, shape=var.shape, dtype=var.dtype, persistable=True)
        if scope.array(var.name) is not None:
            scope.put(name, scope.array(var.name))
    return paths


def _save_dygraph(program: fluid.Program, folder: Path) -> None:
    state = {var.name: fluid.global_scope().array(var.name) for var in program.list_vars() if io.is_persistable(var)}
    dygraph.save_dygraph(state, str(folder / "net"))


def _load_dygraph(program: fluid.Program, folder: Path) -> None:
    for name, value in dygraph.load_dygraph(str(folder / "net"))[0].items():
        fluid.global_scope().put(name, value)


WAYS = {
    "save": Way(
        lambda program, folder: fluid.save(program, folder / "net"), lambda program, folder: fluid.load(program, folder / "net")
    ),
    "save_vars": Way(_save_vars, _load_vars),
    "save_params": Way(
        lambda program, folder: io.save_params(None, folder, program),
        lambda program, folder: io.load_params(None, folder, program),
    ),
    "save_persistables": Way(
        lambda program, folder: io.save_persistables(None, folder, program),
        lambda program, folder: io.load_persistables(None, folder, program),
    ),
    "several folders": Way(_save_beside, _load_beside),
    "one file": Way(
        lambda program, folder: io.save_persistables(None, folder, program, "all"),
        lambda program, folder: io.load_persistables(None, folder, program, "all"),
    ),
    "inference model": Way(
        lambda program, folder: io.save_inference_model(folder, ["x"], ["out"], None, program),
        lambda program, folder: io.load_inference_model(folder, fluid.Executor()),
    ),
    "folder": Way(lambda program, folder: fluid.save_model(folder / "net", program), _load_model("net")),
    "pdmodel": Way(lambda program, folder: fluid.save_model(folder / "net.pdmodel", program), _load_model("net")),
    "json": Way(lambda program, folder: fluid.save_model(folder / "net.json", program, ["x"], ["out"]), _load_model("net.json")),
    "npz": Way(lambda program, folder: fluid.save_model(folder / "net.npz", program), _load_model("net.npz")),
    "pdparams": Way(lambda program, folder: fluid.save_model(folder / "net.pdparams", program), _load_model("net.pdparams")),
    "checkpoint": Way(
        lambda program, folder: fluid.save_checkpoint(program, folder / "net"),
        lambda program, folder: fluid.load_checkpoint(program, folder / "net"),
    ),
    "shards": Way(
        lambda program, folder: save_by_workers(program, folder / "net", _step(program), shards=True),
        lambda program, folder: load_by_workers(program, folder / "net"),
    ),
    "dygraph": Way(_save_dygraph, _load_dygraph),
}
if HAS_SAFETENSORS:
    WAYS["safetensors"] = Way(
        lambda program, folder: fluid.save_model(folder / "net.safetensors", program), _load_model("net.safetensors")
    )
if HAS_ONNX:
    WAYS["onnx"] = Way(
        lambda program, folder: fluid.save_model(folder / "net.onnx", program, ["x"], ["out"], external_data=True),
        _load_model("net.onnx"),
    )


def model(layers: int = 6) -> fluid.Program:
    """A program of twice as many parameters as it has layers."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        out = fluid.data("x", [None, 20])
        for _ in range(layers):
            out = fluid.layers.fc(out, 20)
        fluid.layers.scale(out, name="out")
        block = program.global_block()
        block.ops[-1].outputs["Out"] = ["out"]
        block.create_var(name="out", shape=[-1, 20], dtype="float32")
    return program


def _step(program: fluid.Program) -> int:
    return int(np.ravel(fluid.global_scope().array("fc_0.w_0"))[0])


def put(program: fluid.Program, step: int) -> None:
    """Give all parameters the value `step`."""
    for var in program.list_vars():
        if io.is_persistable(var):
            fluid.global_scope().put(var.name, np.full(var.shape, step, "float32"))


def saved_steps(program: fluid.Program, way: Way, folder: Path) -> set[float]:
    """All numbers that the parameters have which the folder holds; one if it holds one save."""
    with scope_guard(Scope()):
        way.load(program, folder)
        scope = fluid.global_scope()
        names = [name for name in scope.local_var_names() if scope.array(name) is not None]
        missing = {var.name for var in program.list_vars() if io.is_persistable(var)} - set(map(os.path.basename, names))
        if missing:
            raise AssertionError(f"{missing} were not read")
        return {float(number) for name in names for number in np.unique(np.asarray(scope.array(name)))}


def keep_saving(program: fluid.Program, way: Way, folder: Path, step: int, pipe: int) -> None:
    """Save again and again, and write a byte to `pipe` when a save has ended.

    Renames are as slow as on a disk far away, so that many kills fall between two of them.
    """
    replace = os.replace

    def replace_slowly(source: str, target: str) -> None:
        replace(source, target)
        time.sleep(0.001)

    os.replace = replace_slowly
    while True:
        step += 1
        put(program, step)
        way.save(program, folder)
        os.write(pipe, b".")


@dataclass
class Report:
    """Counts of the outcomes of kills.

    Attributes:
        kills: how many there were, by way.
        interrupted: after how many of them a save was only partly renamed, by way.
        faults: what was wrong after a kill.
    """

    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    interrupted: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: list[str] = field(default_factory=list)


def kill_savers(kills: int, seed: int, folder: Path, ways: Iterable[str] = tuple(WAYS)) -> Report:
    """Kill `kills` processes, of all ways in turn, each at a random moment within its second save or soon after."""
    report, program, states = Report(), model(), {}
    turn = _turns(tuple(ways))
    for number in range(kills):
        name = next(turn)
        way, home = WAYS[name], folder / name
        if name not in states:
            home.mkdir()
            put(program, 1)
            start = time.perf_counter()
            way.save(program, home)
            states[name] = 1, time.perf_counter() - start
        step, seconds = states[name]
        wait = random.Random(f"{seed}:{number}").uniform(0, 2.5 * seconds)
        done = _kill_saver(program, way, home, step, wait)
        report.kills[name] += 1
        report.interrupted[name] += any(".fluid-commit" in names for _, names, _ in os.walk(home))
        try:
            found = saved_steps(program, way, home)
        except Exception as error:
            report.faults.append(f"kill {number}, {name}: {type(error).__name__}: {error}")
            found = {float(step + done)}
        if len(found) != 1 or not step + done <= max(found) <= step + done + 1:
            report.faults.append(f"kill {number}, {name}: {sorted(found)} were read, and {step + done} was saved")
        states[name] = int(max(found)), seconds
    for name in states:  # the next save ends what was interrupted, and leaves nothing but its files
        put(program, 0)
        WAYS[name].save(program, folder / name)
        for path, _, _ in os.walk(folder / name):
            left = [each for each in os.listdir(path) if each.startswith(".fluid-")]
            if left or sorted(os.listdir(path)) != names_in(path):
                report.faults.append(f"{name}: {left} are left")
    return report


def _turns(ways: tuple[str, ...]) -> Iterator[str]:
    while True:
        yield from ways


def _kill_saver(program: fluid.Program, way: Way, folder: Path, step: int, wait: float) -> int:
    """Start a process that saves, and kill it after `wait` seconds; how many saves it has ended."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(reading)
            keep_saving(program, way, folder, step, writing)
        finally:
            os._exit(1)
    os.close(writing)
    time.sleep(wait)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    done = 0
    while data := os.read(reading, 1 << 16):
        done += len(data)
    os.close(reading)
    if not os.WIFSIGNALED(status):
        raise AssertionError(f"the process that saves ended by itself, with {status}")
    return done


class Killed(BaseException):
    """The end of the process, at this very call."""


@contextlib.contextmanager
def killed_at(number: int) -> Iterator[list[str]]:
    """Let the call `number` that changes something on the disk be the last; the list says which calls there were."""
    calls: list[str] = []
    dead: list[bool] = []

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if dead:
                raise Killed  # not even cleaning up happens any more
            if len(calls) == number:
                dead.append(True)
                if name == "write" and len(args[0]) > 1:
                    function(args[0][: len(args[0]) // 2])
                raise Killed
            calls.append(name)
            return function(*args, **kwargs)

        return call

    class File(streams.BufferedWriter):
        def write(self, data: Any) -> int:
            return int(counted("write", super().write)(bytes(data)))

    def opened(path: str, mode: str) -> Any:
        if mode == "rb":
            return open(path, mode)
        assert mode == "xb"
        return counted("open", lambda: File(streams.FileIO(path, mode)))()

    with pytest.MonkeyPatch.context() as patch:
        for module in (writing, commits):
            patch.setattr(module, "open", opened, raising=False)
        for name in ("replace", "unlink", "fsync", "mkdir", "rmdir"):
            patch.setattr(os, name, counted(name, getattr(os, name)))
        yield calls


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where files are saved; on a disk without cache, kills come late in a save")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        report = kill_savers(options.kills, options.seed, Path(folder))
    for name, count in report.kills.items():
        print(f"{name:20} {count:6} kills, {report.interrupted[name]:5} between two renames")
    print(f"{sum(report.kills.values())} kills, {len(report.faults)} faults")
    print("\n".join(report.faults[:20]))
    sys.exit(1 if report.faults else 0)


if __name__ == "__main__":
    main()
