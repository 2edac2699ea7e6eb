"""Libraries for other processors: their bits are those of this one with the same vectors and rounding.

An emulator runs each. The tests of a processor are skipped where its compiler of C or its emulator is not installed:

    apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-riscv64-linux-gnu libc6-dev-riscv64-cross
    apt-get install qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi nodejs
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from harness import set_target
from libraries import made
from networks import NETWORKS, Network, build
from paths import ROOT

import fluid
from fluid.ahead.targets import TARGETS, find_target
from fluid.executor.native import compiler

STEPS = 5


@dataclass(frozen=True)
class Machine:
    """Tools for a processor: the compiler of C with its options, and the emulator."""

    compiler: Sequence[str]
    emulator: Sequence[str]

    def skip_if_missing(self) -> None:
        for tool in (self.compiler[0], *self.emulator[:1]):
            if shutil.which(tool) is None:
                pytest.skip(f"{tool} is not installed")


BOARD = ROOT / "examples" / "without_python"
BARE = ["arm-none-eabi-gcc", "-mthumb", "--specs=rdimon.specs", "-T", str(BOARD / "mps2.ld"), str(BOARD / "mps2.c")]
QEMU = ["qemu-system-arm", "-nographic", "-semihosting-config", "enable=on,target=native", "-M"]
MACHINES = {
    "x86-64": Machine(["gcc"], []),
    "aarch64": Machine(["aarch64-linux-gnu-gcc", "-static"], ["qemu-aarch64"]),
    "riscv64": Machine(["riscv64-linux-gnu-gcc", "-static"], ["qemu-riscv64"]),
    "cortex-m3": Machine([*BARE, "-mcpu=cortex-m3"], [*QEMU, "mps2-an385", "-kernel"]),
    "cortex-m4": Machine([*BARE, "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"], [*QEMU, "mps2-an386", "-kernel"]),
}


pytestmark = pytest.mark.usefixtures("one_thread")


def expected(network: Network, scope: fluid.Scope, target: str) -> bytes:
    """The losses and the variables of the executor, with the vectors and the rounding of another processor."""
    here, there = compiler.host(), find_target(target)
    emulated = replace(
        here,
        vector_bytes=there.vector_bytes,
        registers=there.registers,
        limits=there.limits,
        fused=there.fused,
        has_rounding=there.has_rounding,
    )
    executor = fluid.Executor()
    with pytest.MonkeyPatch.context() as patches:
        set_target(patches, emulated)
        losses = [executor.run(network.main, feed, [network.loss], scope=scope)[0] for feed in network.batches(STEPS)]
    return b"".join(loss.tobytes() for loss in losses)


def trained(network: Network, folder: Path, library: Any, machine: Machine) -> bytes:
    """The losses and the state of a library, in an emulator."""
    step = library.description["functions"]["step"]
    sizes = {**step["feeds"], **step["fetches"]}
    (folder / "sizes.h").write_text("".join(f"#define {key.upper()}_BYTES {part['bytes']}\n" for key, part in sizes.items()))
    data = [feed["x"].tobytes() + feed["label"].tobytes() for feed in network.batches(STEPS)]
    (folder / "batches.bin").write_bytes(b"".join(data))
    shutil.copy(Path(__file__).parent / "driver.c", folder)
    subprocess.run([*machine.compiler, "-O1", "driver.c", "net.o", "-o", "driver", "-lm"], cwd=folder, check=True)
    result = subprocess.run([*machine.emulator, "./driver"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return (folder / "results.bin").read_bytes()


def check_bits(results: bytes, losses: bytes, library: Any, scope: fluid.Scope) -> None:
    """Losses and variables are those of the scope, bit for bit."""
    assert results[: len(losses)] == losses
    variables = fluid.load_compiled_state(results[len(losses) :], library.paths[2], scope=fluid.Scope())
    different = [name for name, array in variables.items() if array.tobytes() != np.array(scope.array(name)).tobytes()]
    assert variables and not different


@each("name", NETWORKS)
@pytest.mark.parametrize("target", MACHINES)
def test_emulated_processors_compute_the_same_bits(target: str, name: str, tmp_path: Path) -> None:
    machine = MACHINES[target]
    machine.skip_if_missing()
    network = build(name)
    _, scope = network.started()
    library = made(network, tmp_path, scope, target=target)
    losses = expected(network, scope, target)
    check_bits(trained(network, tmp_path, library, machine), losses, library, scope)


@each("target", TARGETS)
@pytest.mark.parametrize("name, options", [
    ("convolutions", {}), ("convolutions", {"freeze": ["conv2d_*"], "frozen_as": "int8"}),
    ("convolutions", {"freeze": ["conv2d_*"], "frozen_as": "float16"}), ("halves", {}),
])  # fmt: skip
def test_objects_need_no_more_than_arithmetic(target: str, name: str, options: dict[str, Any], tmp_path: Path) -> None:
    nm = shutil.which("nm") or pytest.skip("there is no nm here")
    network = build(name)
    _, scope = network.started()
    made(network, tmp_path, scope, target=target, **options)
    lines = subprocess.run([nm, "-u", tmp_path / "net.o"], check=False, capture_output=True, text=True).stdout.splitlines()
    needed = {line.split()[-1] for line in lines}
    if target.startswith("cortex"):  # functions of libgcc, by the names of Arm's interface, and square roots of libm
        needed = {name for name in needed if not name.startswith("__aeabi_") and name not in ("sqrt", "sqrtf")}
    assert needed <= ({"__indirect_function_table", "__stack_pointer"} if target == "wasm32" else {"memcpy", "memset"})


def test_webassembly_computes_the_same_bits(tmp_path: Path) -> None:
    node = shutil.which("node") or pytest.skip("there is no node here")
    for name in NETWORKS:
        network = build(name)
        _, scope = network.started()
        library = made(network, tmp_path, scope, target="wasm32")
        losses = expected(network, scope, "wasm32")
        (tmp_path / "batches.bin").write_bytes(
            b"".join(feed["x"].tobytes() + feed["label"].tobytes() for feed in network.batches(STEPS))
        )
        shutil.copy(Path(__file__).parent / "driver.mjs", tmp_path)
        result = subprocess.run([node, "driver.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert result.returncode == 0, result.stderr
        results = (tmp_path / "results.bin").read_bytes()
        assert results[: len(losses)] == losses
        variables = fluid.load_compiled_state(results[len(losses) :], tmp_path / "net.json", scope=fluid.Scope())
        assert all(array.tobytes() == np.array(scope.array(key)).tobytes() for key, array in variables.items()) and variables
        assert "RangeError: label: an id is outside of [0, 3)" in result.stdout
        assert "RangeError: step: label has 6 elements, not 2" in result.stdout
        if library.description["functions"]["step"]["feeds"]["x"]["dtype"] == "float32":
            types = (tmp_path / "net.d.ts").read_text()
            assert "step(feeds: { x: Float32Array | ArrayLike<number>" in types and "label: BigInt64Array" in types


def test_a_small_net_fits_a_small_processor(tmp_path: Path) -> None:
    size = shutil.which("size") or pytest.skip("there is no size here")
    network = build("perceptron")
    _, scope = network.started()
    made(network, tmp_path, scope, target="cortex-m4", predict=())
    text = subprocess.run([size, tmp_path / "net.o"], check=True, capture_output=True, text=True).stdout.splitlines()[1]
    assert int(text.split()[0]) < 12_000


def test_a_processor_may_be_named_more_closely(tmp_path: Path) -> None:
    network = build("perceptron")
    _, scope = network.started()
    library = made(network, tmp_path, scope, target="aarch64-apple-darwin", cpu="apple-m1", features="+dotprod")
    assert library.description["target"] == {"triple": "aarch64-apple-darwin", "cpu": "apple-m1", "features": "+dotprod"}
    assert (tmp_path / "net.o").read_bytes()[:4] == b"\xcf\xfa\xed\xfe", "Mach-O"
