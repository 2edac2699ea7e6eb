"""The examples of the page "Train without Python", built and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from libraries import compiler_of_c
from paths import ROOT

EXAMPLES = ROOT / "examples" / "without_python"


def tool(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def ran(*command: Any, folder: Path, text: str = "") -> str:
    """The output of a command that succeeds."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} if command[0] == sys.executable else None
    done = subprocess.run(
        list(map(str, command)), cwd=folder, input=text, capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_digits_are_learned_in_c(tmp_path: Path) -> None:
    compiler = compiler_of_c()
    ran(sys.executable, EXAMPLES / "digits.py", "--output", tmp_path, folder=tmp_path)
    options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-I", tmp_path]
    ran(compiler, *options, EXAMPLES / "digits.c", "net.o", "-o", "digits", folder=tmp_path)
    first = ran("./digits", "digits.bin", "digits.state", folder=tmp_path).splitlines()
    second = ran("./digits", "digits.bin", "digits.state", folder=tmp_path).splitlines()
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in (first[0], first[-1], second[0])]
    assert losses[0] > 4 * losses[1] and losses[2] < 1.5 * losses[1], "a second run continues"


def test_digits_are_learned_in_webassembly(tmp_path: Path) -> None:
    node = tool("node")
    ran(sys.executable, EXAMPLES / "digits.py", "--target", "wasm32", "--output", tmp_path, folder=tmp_path)
    for name in ("train.js", "train_in_node.mjs"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    assert "epoch 8: loss 0." in ran(node, "train_in_node.mjs", folder=tmp_path)


def test_a_server_learns_clicks(tmp_path: Path) -> None:
    """It learns that ids divisible by three are clicked on, in any field."""
    compiler = tool("g++")
    ran(sys.executable, EXAMPLES / "clicks.py", "--output", tmp_path, folder=tmp_path)
    options = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", tmp_path]
    ran(compiler, *options, EXAMPLES / "clicks.cpp", "net.o", "-o", "clicks", folder=tmp_path)
    shown = [f"{'click' if number % 3 == 0 else 'skip'} {number % 30} {number % 30 + 100} 7" for number in range(2400)]
    lines = [*shown, "ask 3 103 7", "ask 4 104 7", "ask 3 103 1000", "sell 1 2 3"]
    likely, unlikely, error, usage = ran("./clicks", folder=tmp_path, text="\n".join(lines)).splitlines()
    assert float(likely) > 0.9 and float(unlikely) < 0.1
    assert error.startswith("ids: an id is outside of [0, 1000)") and usage.startswith("expected: click")


def test_a_board_learns_from_a_sensor(tmp_path: Path) -> None:
    compiler, emulator = tool("arm-none-eabi-gcc"), tool("qemu-system-arm")
    ran(sys.executable, EXAMPLES / "sensor.py", "--output", tmp_path, folder=tmp_path)
    options = [
        "-mthumb",
        "-mcpu=cortex-m4",
        "-mfloat-abi=hard",
        "-mfpu=fpv4-sp-d16",
        "--specs=rdimon.specs",
        "-O2",
        "-I",
        tmp_path,
    ]
    sources = [EXAMPLES / "mps2.c", EXAMPLES / "sensor.c", "net.o"]
    ran(compiler, *options, "-T", EXAMPLES / "mps2.ld", *sources, "-o", "sensor.elf", folder=tmp_path)
    machine = ["-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native"]
    lines = ran(emulator, *machine, "-kernel", "sensor.elf", folder=tmp_path).splitlines()
    assert lines[-1].startswith("after 6000 values: mean squared error 0.0")


def test_the_net_of_a_sensor_learns_here(tmp_path: Path) -> None:
    compiler = compiler_of_c()
    ran(sys.executable, EXAMPLES / "sensor.py", "--target", "host", "--output", tmp_path, folder=tmp_path)
    ran(compiler, "-std=c11", "-O2", "-I", tmp_path, EXAMPLES / "sensor.c", "net.o", "-o", "sensor", folder=tmp_path)
    ran("./sensor", folder=tmp_path)
