"""Helpers of the benchmarks: a header about the machine, fair timing, and the rows of tables.

Importing it starts the process anew without OPENBLAS_CORETYPE, if that is set: it makes OpenBLAS take the kernels of
another processor, which can halve numpy's speed without a word.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

_WAS_SET = "BENCHMARK_CORETYPE_WAS"
if "OPENBLAS_CORETYPE" in os.environ:
    os.environ[_WAS_SET] = os.environ.pop("OPENBLAS_CORETYPE")
    os.execv(sys.executable, sys.orig_argv)

COLUMNS = ("what", "Fluid", "torch eager", "numpy by hand", "Fluid / torch", "remark")
Program = Any


# ------------------------------------------------------------------------------------------------------ what is shown
def header(title: str, torch: bool = True) -> None:
    """Print the subject and the machine: processor, versions, BLAS with its kernel type and threads."""
    print(f"\n{title}\n{'-' * len(title)}")
    if os.environ.get("BENCHMARK_HEADER") != "once":
        print(machine(torch))
    print()


def machine(torch: bool = True) -> str:
    """The machine and the libraries that do the work, in a few lines."""
    import numpy

    lines = [f"{processor()}, {os.cpu_count()} cores, {platform.system()}; Python {platform.python_version()}"]
    lines[0] += f", {vectors()}"
    versions = [f"numpy {numpy.__version__}"]
    if torch:
        import torch as torch_package

        versions.append(f"torch {torch_package.__version__} ({torch_package.get_num_threads()} threads)")
    lines.append(", ".join(versions))
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        lines.append("BLAS: not known (pip install threadpoolctl)")
    else:
        for pool in threadpool_info():
            kernel = f", kernels for {pool['architecture']}" if pool.get("architecture") else ""
            owner = os.path.basename(os.path.dirname(pool["filepath"]))
            version = f" {pool['version']}" if pool.get("version") else ""
            lines.append(f"{pool['user_api']}: {pool['internal_api']}{version}{kernel}, {pool['num_threads']} threads ({owner})")
    was = os.environ.get(_WAS_SET)
    lines.append("OPENBLAS_CORETYPE: " + (f"was {was}, taken out for these measurements" if was else "not set"))
    return "\n".join(lines)


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def vectors() -> str:
    """The widest vectors of the processor that matter, as their name goes."""
    try:
        with open("/proc/cpuinfo") as file:
            flags = next(line.split() for line in file if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return "vectors not known"
    names = {"avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}
    return next((name for flag, name in names.items() if flag in flags), "vectors of 16 bytes")


def row(what: str, fluid: str, torch: str = "", numpy: str = "", ratio: str = "", remark: str = "") -> None:
    """Print one row of the table; `all.py` collects them."""
    print("| " + " | ".join((what, fluid, torch, numpy, ratio, remark)) + " |", flush=True)


def table_head() -> str:
    return "| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


# --------------------------------------------------------------------------------------------------------------- time
def timed_block(run: Callable[[], Any], seconds: float) -> list[float]:
    """Time calls for some seconds, after a pause in which spinning threads stop, and after three calls; returns the seconds of
    each call."""
    time.sleep(0.3)
    for _ in range(3):
        run()
    times: list[float] = []
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        start = time.perf_counter()
        run()
        now = time.perf_counter()
        times.append(now - start)
    return times


def race_blocks(blocks: Mapping[str, Callable[[float], list[float]]], rounds: int, block: float) -> dict[str, float]:
    """Median seconds of one call of each, of functions that give the times of a block of calls. They take turns, so that all
    see the same state of the machine."""
    times: dict[str, list[float]] = {name: [] for name in blocks}
    for _ in range(rounds):
        for name, timed in blocks.items():
            times[name] += timed(block)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def race(runs: Mapping[str, Callable[[], Any]], rounds: int = 5, block: float = 0.5) -> dict[str, float]:
    """Median seconds of one call of each, in turns of blocks of so many seconds."""
    for run in runs.values():
        run()
    return race_blocks({name: partial(timed_block, run) for name, run in runs.items()}, rounds, block)


def race_row(what: str, runs: Mapping[str, Callable[[], Any]], remark: str = "") -> None:
    """Race "fluid", "torch" and perhaps "numpy"; print the medians and their ratio as a row."""
    found = race(runs)
    numpy = milliseconds(found["numpy"]) if "numpy" in found else ""
    row(
        what,
        milliseconds(found["fluid"]),
        milliseconds(found["torch"]),
        numpy,
        f"{found['fluid'] / found['torch']:.2f}",
        remark,
    )


def check_losses(losses: Mapping[str, list[float]], tolerance: float = 2e-3) -> None:
    """End the process if the competitors' losses over their first steps differ: they would not do the same work."""
    import numpy

    names = list(losses)
    for name in names[1:]:
        if not numpy.allclose(losses[names[0]], losses[name], rtol=tolerance, atol=1e-6):
            sys.exit(f"the losses differ, so the work does: {names[0]} {losses[names[0]]}, {name} {losses[name]}")
    shown = ", ".join(f"{loss:.5g}" for loss in losses[names[0]])
    print(f"losses of the first steps agree ({', '.join(names)}): {shown}\n")


# -------------------------------------------------------------------------------------------------------------- Fluid
def parameters(program: Program) -> dict[str, Any]:
    """Copies of the parameters' values in the global scope, by name, in order of creation."""
    import numpy

    import fluid

    scope = fluid.global_scope()
    names = [var.name for var in program.list_vars() if isinstance(var, fluid.framework.Parameter)]
    return {name: numpy.array(scope.find_var(name).get_tensor()) for name in names}
