"""Training steps on a GPU: Fluid by XLA and by cupy, beside jax written by hand and torch, eager, compiled and with CUDA graphs.

    python benchmarks/gpu.py --out gpu.md                    # five minutes: all workloads; writes a page for docs/speed.md
    python benchmarks/gpu.py --precision bfloat16            # products in bfloat16
    python benchmarks/gpu.py mlp lenet --tests               # two workloads; then the samples of all ops, by XLA and on cupy
    python benchmarks/gpu.py mlp --device cpu                # tries the script without a GPU

Each system has a process of its own for each workload. All compile at once; then each is timed alone, in turns. The losses of the
first steps have to agree. A cell says how long a step takes that is fed from numpy, and in brackets from arrays on the device;
both fetch the loss. `host` is how long it takes to start a step, and `in a row` how long a step takes among several that are
started without waiting: the device's time, unless the host takes longer.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parent.parent / "tests"
SYSTEMS = {
    "xla": "`XLAPlace`",
    "cupy": "`CUDAPlace`",
    "recorded": "`CUDAPlace`, recorded",
    "jax": "jax by hand",
    "torch": "torch eager",
    "compile": "torch.compile",
    "graphs": "... with CUDA graphs",
}


class Setting(NamedTuple):
    """How all systems run: on a ``"gpu"`` or a ``"cpu"``, with products in ``"float32"``, ``"tf32"`` or ``"bfloat16"``."""

    device: str
    precision: str

    @property
    def is_half(self) -> bool:
        return self.precision == "bfloat16"


class Steps(NamedTuple):
    """A system's step, and its memory on the device, in MiB.

    `from_numpy` and `start` start a step, fed from numpy and from arrays on the device; `loss` waits for what they return.
    """

    from_numpy: Callable[[], Any]
    start: Callable[[], Any]
    loss: Callable[[Any], float]
    memory: Callable[[], float | None]


class Times(NamedTuple):
    """Median seconds of a step: fed from numpy and from the device, to start one, and of one among several in a row."""

    from_numpy: float
    from_device: float
    host: float
    in_a_row: float

    def __str__(self) -> str:
        from_numpy, from_device, host, in_a_row = (f"{seconds * 1e3:.2f}" for seconds in self)
        return f"{from_numpy} ({from_device}); host {host}, in a row {in_a_row}"


IN_A_ROW = 5
"""How many steps are started without waiting."""


class Result(NamedTuple):
    """The measurements of a process: losses, seconds of the first step, and peak memory."""

    losses: list[float]
    first_step: float
    memory: float | None


# ------------------------------------------------------------------------------------------------------------- systems
def steps_of(system: str, name: str, setting: Setting) -> Steps:
    """Build a workload in a system."""
    from workloads import LARGE_WORKLOADS, WORKLOADS

    workload = {**WORKLOADS, **LARGE_WORKLOADS}[name]
    return {"xla": _fluid, "cupy": _fluid, "recorded": _fluid, "jax": _jax}.get(system, _torch)(system, workload, setting)


def _jax_memory(device: str) -> float | None:
    import jax

    counts = jax.devices(device)[0].memory_stats()
    return counts["peak_bytes_in_use"] / 2**20 if counts else None


def _fluid(system: str, workload: Any, setting: Setting) -> Steps:
    import numpy as np
    from peers import fluid_program

    import fluid

    on_gpu = setting.device == "gpu"
    if system == "xla":
        place = fluid.XLAPlace(setting.device)
    elif setting.is_half:
        raise ValueError("cupy has no bfloat16")
    else:
        place = fluid.CUDAPlace(0, recorded=system == "recorded") if on_gpu else fluid.CPUPlace()
    executor, program, loss, scope = fluid_program(
        workload, place, _in_bfloat16 if setting.is_half else lambda optimizer: optimizer
    )
    batch = dict(workload.batch())
    uploaded = {key: place.upload(value) if system == "xla" else place.asarray(value) for key, value in batch.items()}

    def start(feed: Any) -> Any:
        return executor.run(program, feed, [loss], scope=scope, return_numpy=False)[0]

    def memory() -> float | None:
        if system == "xla":
            return _jax_memory(setting.device)
        return place.xp.get_default_memory_pool().total_bytes() / 2**20 if on_gpu else None

    return Steps(lambda: start(batch), lambda: start(uploaded), lambda found: float(np.asarray(found).reshape(-1)[0]), memory)


def _in_bfloat16(optimizer: Any) -> Any:
    import fluid

    return fluid.contrib.mixed_precision.decorate(optimizer, dtype="bfloat16")


def _jax(system: str, workload: Any, setting: Setting) -> Steps:
    import jax
    from peers import Bfloat16JaxOps, JaxOps, jax_training

    run, parameters, state = jax_training(workload, Bfloat16JaxOps() if setting.is_half else JaxOps())
    batch = dict(workload.batch())
    uploaded = {key: jax.device_put(value, jax.devices(setting.device)[0]) for key, value in batch.items()}

    def start(feed: Any) -> Any:
        nonlocal parameters, state
        loss, parameters, state = run(parameters, state, feed)
        return loss

    return Steps(lambda: start(batch), lambda: start(uploaded), float, lambda: _jax_memory(setting.device))


def _torch(system: str, workload: Any, setting: Setting) -> Steps:
    import torch
    from peers import start_torch

    device = "cuda" if setting.device == "gpu" else "cpu"
    torch.set_default_device(device)
    torch.set_float32_matmul_precision("highest" if setting.precision == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = setting.precision != "float32"
    if system == "graphs":
        torch._inductor.config.triton.cudagraphs = True
    arrays = dict(workload.batch())
    batch = {key: torch.tensor(value) for key, value in arrays.items()}
    torch.set_autocast_dtype(device, torch.bfloat16)
    torch.set_autocast_enabled(device, setting.is_half)
    start = start_torch(workload, system != "torch", batch)

    def from_numpy() -> Any:
        batch.update({key: torch.from_numpy(value).to(device) for key, value in arrays.items()})
        return start()

    return Steps(
        from_numpy,
        start,
        lambda loss: loss.item(),
        lambda: torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None,
    )


# ----------------------------------------------------------------------------------------------------------- processes
class Elsewhere:
    """A system with a workload in a process of its own."""

    def __init__(self, system: str, workload: str, setting: Setting) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, system, workload, setting), daemon=True)
        self._process.start()
        theirs.close()

    def result(self, deadline: float) -> Result | str:
        """Wait for the first steps; a text says why there are none."""
        if not self._connection.poll(max(deadline - time.monotonic(), 0)):
            self._process.kill()
            return "not compiled in time"
        try:
            found: Result | str = self._connection.recv()
        except EOFError:
            return "its process ended"
        return found

    def times(self, seconds: float) -> Times:
        """Time its steps."""
        self._connection.send(seconds)
        found: Times = self._connection.recv()
        return found


def _serve(connection: Any, system: str, workload: str, setting: Setting) -> None:
    """Take the first steps, then time steps as often as asked."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if setting.precision == "float32":
        os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"
    elif system in ("cupy", "recorded"):
        os.environ["CUPY_TF32"] = "1"
    try:
        steps = steps_of(system, workload, setting)
        begun = time.perf_counter()
        losses = [steps.loss(steps.from_numpy())]
        first_step = time.perf_counter() - begun
        losses += [steps.loss(steps.from_numpy()) for _ in range(2)]
        steps.loss(steps.start())
        connection.send(Result(losses, first_step, steps.memory()))
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}"[:300])
        return
    while True:
        try:
            seconds = connection.recv()
        except EOFError:
            return
        connection.send(_times(steps, seconds))


def _times(steps: Steps, seconds: float) -> Times:
    """Time steps in turns."""
    times: list[Times] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        moments = [time.perf_counter()]
        steps.loss(steps.from_numpy())
        moments.append(time.perf_counter())
        started = steps.start()
        moments.append(time.perf_counter())
        steps.loss(started)
        moments.append(time.perf_counter())
        for _ in range(IN_A_ROW):
            started = steps.start()
        steps.loss(started)
        first, second, third, fourth = moments
        times.append(Times(second - first, fourth - second, third - second, (time.perf_counter() - fourth) / IN_A_ROW))
    return Times(*map(statistics.median, zip(*times, strict=True)))


# --------------------------------------------------------------------------------------------------------------- table
def card(device: str) -> str:
    """The name of the device, and the versions of the libraries."""
    name = "a CPU"
    if device == "gpu":
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
        name = listed.partition(": ")[2].partition(" (")[0] or "a GPU"
    versions = []
    for package in ("numpy", "jax", "cupy-cuda13x", "cupy-cuda12x", "torch"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{name}, {os.cpu_count()} CPU cores, {', '.join(versions)}"


def measure(names: list[str], systems: list[str], setting: Setting, minutes: float) -> list[str]:
    """Run all systems on all workloads; returns the lines of a table."""
    from workloads import LARGE_WORKLOADS, WORKLOADS

    deadline = time.monotonic() + 60 * minutes
    started = {(name, system): Elsewhere(system, name, setting) for name in names for system in systems}
    results = {key: process.result(deadline - 60) for key, process in started.items()}
    for (name, system), found in results.items():
        if isinstance(found, str):
            print(f"{name} by {system}: {found}", flush=True)
    lines = [f"| what | {' | '.join(SYSTEMS[system] for system in systems)} |", "|---" * (len(systems) + 1) + "|"]
    for name in names:
        fit = {system: found for system in systems if not isinstance(found := results[name, system], str)}
        _check_losses(name, {system: found.losses for system, found in fit.items()}, 3e-2 if setting.is_half else 2e-3)
        cells = []
        for system in systems:
            if system not in fit:
                cells.append("")
                continue
            times = started[name, system].times(0.4)
            memory = f"{fit[system].memory:.0f} MiB, " if fit[system].memory else ""
            cells.append(f"{times}; {memory}first {fit[system].first_step:.1f} s")
        lines.append(f"| {({**WORKLOADS, **LARGE_WORKLOADS})[name].what} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def _check_losses(name: str, losses: dict[str, list[float]], nearness: float) -> None:
    """Print the systems with losses that are relatively farther from the first system's."""
    import numpy as np

    first = next(iter(losses), None)
    for system in losses:
        if not np.allclose(losses[system], losses[first], rtol=nearness):  # type: ignore[index]
            print(f"{name}: THE LOSSES DIFFER: {first} {losses[first]}, {system} {losses[system]}", flush=True)  # type: ignore[index]


def run_tests() -> int:
    """Run the samples of all ops, on jax's first device and on cupy's."""
    ops, cupy = str(TESTS / "ops" / "test_conformance.py"), str(TESTS / "executor" / "test_cupy.py")
    runs = [[ops, cupy, "--facet", "cupy"], [ops, "--facet", "xla", "-m", "slow or not slow"]]
    return max(subprocess.run([sys.executable, "-m", "pytest", "-q", *run], check=False).returncode for run in runs)


def main() -> None:
    from workloads import LARGE_WORKLOADS, WORKLOADS

    known = [name for name, workload in WORKLOADS.items() if workload.optimizer] + list(LARGE_WORKLOADS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="workload", help=f"of {', '.join(known)} (all)")
    parser.add_argument("--against", default="xla,cupy,recorded,jax,torch,compile,graphs", help="systems (%(default)s)")
    parser.add_argument("--device", default="gpu", choices=["gpu", "cpu"])
    parser.add_argument(
        "--precision", default="float32", choices=["float32", "tf32", "bfloat16"], help="of products (%(default)s)"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="stop waiting for compilers a minute before (%(default)s)")
    parser.add_argument("--out", help="a file for the table")
    parser.add_argument("--tests", action="store_true", help="then run the samples of all ops, by XLA and on cupy")
    args = parser.parse_args()
    setting = Setting(args.device, args.precision)
    if unknown := [name for name in args.names if name not in known]:
        parser.error(f"no workload {unknown[0]!r}; there are {', '.join(known)}")
    lines = [
        f"{card(args.device)}. Products in {args.precision}. Milliseconds a step from numpy (from the device); to start one "
        "(host), and of one among several that nobody waits for (in a row).",
        "",
        *measure(args.names or known, args.against.split(","), setting, args.minutes),
    ]
    print("\n".join(["", *lines]))
    if args.out:
        Path(args.out).write_text("\n".join([*lines, ""]), encoding="utf-8")
    if args.tests:
        sys.exit(run_tests())


if __name__ == "__main__":
    main()
