"""Programs over several devices and several processes; `over_devices` has the checks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FluidTypeError, ProgramError
from fluid.parallel import Mesh

pytestmark = pytest.mark.numpy_alone

SCRIPT = Path(__file__).with_name("over_devices.py")
SECONDS = 60


def started(*args: str, devices: int = 1) -> subprocess.Popen[str]:
    """A process that makes a check, with so many devices."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    command = [sys.executable, str(SCRIPT), *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def output_of(*processes: subprocess.Popen[str]) -> list[str]:
    """The output of processes, after all have ended."""
    try:
        return [process.communicate(timeout=SECONDS)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def finish(*processes: subprocess.Popen[str]) -> None:
    """Wait for processes, and fail with what one of them said that failed."""
    for process, text in zip(processes, output_of(*processes), strict=True):
        assert process.returncode == 0, text


def test_two_devices() -> None:
    finish(started("two_devices", devices=2))


@pytest.mark.slow
@pytest.mark.parametrize("check", ["annotations", "tables", "sequences", "errors"])
def test_four_devices(check: str) -> None:
    finish(started(check, devices=4))


def two_started(check: str) -> list[subprocess.Popen[str]]:
    """Two processes that join each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return [started(check, address, str(number)) for number in range(2)]


@pytest.mark.slow
def test_two_processes() -> None:
    finish(*two_started("two_processes"))


@pytest.mark.slow
def test_two_processes_that_differ() -> None:
    """Each has the same error; without it, they would train on with gradients of parts of different batches."""
    processes = two_started("processes_that_differ")
    for text in output_of(*processes):
        assert text.count("ran\n") == 4, text
        message = "they differ in the feed of x\n  on rank 0: x: float32[4, 16]\n  on rank 1: x: float32[2, 16]\n"
        assert f"CommunicationError: the workers do not run the same: {message}" in text, text
    assert [process.returncode for process in processes] == [1, 1]


# --------------------------------------------------------------------------------------------------------- one device
def test_a_mesh_of_one_device() -> None:
    loss = layers.mean(layers.fc(fluid.data("x", [None, 3]), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor(fluid.XLAPlace())
    executor.run(fluid.default_startup_program())
    feed, main = {"x": np.ones((4, 3), "float32")}, fluid.default_main_program()
    program = fluid.CompiledProgram(main).with_mesh(Mesh(data=1, model=1))
    main.shard("fc_0.w_0", "model")
    first = executor.run(program, feed, [loss])[0].item()
    second = executor.run(program, feed, [loss])[0].item()
    assert second == pytest.approx(first - 0.4, abs=1e-5)  # of three weights and a bias
    assert executor.run(main, feed, [loss])[0].item() == pytest.approx(second - 0.4, abs=1e-5)


def test_more_devices_than_there_are() -> None:
    program = fluid.CompiledProgram(fluid.default_main_program()).with_mesh(Mesh(data=64, model=2))
    with pytest.raises(ExecutionError, match=r"Mesh\(data=64, model=2\) takes 128 devices of the kind 'cpu', but there "):
        fluid.Executor(fluid.XLAPlace()).run(program)


def test_a_mesh_where_xla_does_not_run() -> None:
    program = fluid.CompiledProgram(fluid.default_main_program()).with_mesh(Mesh(data=1))
    with pytest.raises(ExecutionError, match=r"Mesh\(data=1\) is one of devices of XLA, .* CPUPlace\(\); use fluid.XLAPlace\(\)"):
        fluid.Executor(fluid.CPUPlace()).run(program)


def test_what_is_no_mesh() -> None:
    with pytest.raises(FluidTypeError, match=r"with_mesh takes a fluid\.parallel\.Mesh, not int"):
        fluid.CompiledProgram(fluid.default_main_program()).with_mesh(2)  # type: ignore[arg-type]


def test_data_parallel_over_places() -> None:
    program = fluid.CompiledProgram(fluid.default_main_program())
    assert program.with_data_parallel(places=[fluid.XLAPlace(), fluid.XLAPlace(index=1)]).mesh == Mesh(data=2)
    with pytest.raises(ProgramError, match="one such device here, not on 2"):
        program.with_data_parallel(places=fluid.cpu_places(2))
