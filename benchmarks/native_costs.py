"""What native code costs besides computing: records, launches, memory, compiling, and the first steps of programs.

    python benchmarks/native_costs.py

Records and launches are of a kernel that does nothing. Memory is of arrays far larger than caches, bytes read and written counted
once. First steps are processor time of processes of their own, all threads together, beyond the import of llvmlite: cold with
nothing on disk, then warm; of the warm one also the time on the clock, least of several.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from common import header
from native_calls import ROUNDS, aligned, compiled, words

import fluid
from fluid.executor.native.emitter import Function, Value
from fluid.executor.native.kernel import Share
from fluid.executor.native.pool import pool

ELEMENTS = 16 * 2**20
"""Of each array of float32: 64 MiB."""
RECORDS = 4000
"""Of a table."""
WARM_RUNS = 5


def write_nothing(f: Function, pointers: Sequence[Value], share: Share) -> None:
    """The body of a kernel that does nothing."""


def records() -> None:
    """A record of a table, and a table of one record, run by one thread and by two."""
    library, _ = compiled({"nothing": (1, write_nothing)})
    operands = words(aligned(1, np.float32))

    def table(count: int) -> Callable[[], None]:
        rows = np.array([(library.addresses["nothing"], operands.ctypes.data, 0, 0)] * count, np.int64)
        tables.append(rows)
        return pool().caller(rows)

    tables: list[Any] = []  # have to live while they run
    print(f"| a record | {of_many(table(RECORDS), 100) / RECORDS * 1e9:.1f} ns |")
    launch = table(1)
    for threads in (1, 2):
        fluid.set_num_threads(threads)
        print(f"| a launch, with {threads} thread{'s' * (threads > 1)} | {of_many(launch, 2000) * 1e6:.2f} µs |", flush=True)
    fluid.set_num_threads(1)


def of_many(run: Any, calls: int) -> float:
    """Seconds of a call on the clock, the least of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        best = min(best, time.perf_counter() - start)
    return best / calls


def memory() -> None:
    """Bytes a second of one thread, of programs that read and write large variables, and of numpy."""
    layers, out_of_numpy = fluid.layers, np.ones(ELEMENTS, np.float32)
    one, other = np.ones(ELEMENTS, np.float32), np.ones(ELEMENTS, np.float32)
    cases = {
        "relu": (layers.relu, 1, lambda: np.maximum(one, 0, out=out_of_numpy)),
        "x + y": (layers.elementwise_add, 2, lambda: np.add(one, other, out=out_of_numpy)),
    }
    for what, (layer, count, in_numpy) in cases.items():
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            read = [layers.create_global_var([ELEMENTS], 1.0, "float32", persistable=True) for _ in range(count)]
            out = layers.create_global_var([ELEMENTS], 0.0, "float32", persistable=True)
            layers.assign(layer(*read), out)
        executor = fluid.Executor()
        executor.run(startup, scope=scope)
        gigabytes = 4e-9 * ELEMENTS * (count + 1)
        ours, theirs = of_many(lambda run=executor.run, main=main, scope=scope: run(main, scope=scope), 1), of_many(in_numpy, 1)
        print(f"| {what}, of memory | {gigabytes / ours:.1f} GB/s, numpy {gigabytes / theirs:.1f} |", flush=True)


def first_step(workload: str) -> None:
    """Print the seconds of a program's first step in this process: of the processor, and on the clock."""
    import llvmlite.binding
    from peers import fluid_program
    from workloads import WORKLOADS

    assert llvmlite.binding
    executor, main, out, scope = fluid_program(WORKLOADS[workload])
    batch = dict(WORKLOADS[workload].batch())
    processor, clock = time.process_time(), time.perf_counter()
    executor.run(main, batch, [out], scope=scope)
    print(time.process_time() - processor, time.perf_counter() - clock)


def first_steps(workload: str, what: str) -> None:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "FLUID_NATIVE_CACHE": cache}

        def run() -> tuple[float, float]:
            command = [sys.executable, __file__, "--first-step", workload]
            told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()
            return float(told[0]), float(told[1])

        cold, _ = run()
        warm = [run() for _ in range(WARM_RUNS)]
    least_warm = f"{min(own for own, _ in warm) * 1e3:.0f} ms ({min(clock for _, clock in warm) * 1e3:.0f} on the clock)"
    print(f"| first step of {what}: cold, warm | {cold * 1e3:.0f} ms, {least_warm} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first-step", metavar="WORKLOAD", help="print what the first step of this workload takes, alone")
    arguments = parser.parse_args()
    if arguments.first_step is not None:
        return first_step(arguments.first_step)
    fluid.set_num_threads(1)
    header("Native code, besides computing", torch=False)
    print("| what | measured |")
    print("|---|---|")
    records()
    memory()
    for workload, what in (("small_ops", "1,000 small ops"), ("resnet20", "ResNet-20")):
        first_steps(workload, what)


if __name__ == "__main__":
    main()
