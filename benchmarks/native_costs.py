"""The costs of native code besides computing: records, launches, memory, compiling, and the first steps of programs.

    python benchmarks/native_costs.py

Records and launches are of a kernel that does nothing. Memory is of arrays far larger than caches, the second cache of arrays
that fit into it, bytes read and written counted once. First steps are processor time of processes of their own, all threads
together, beyond the import of llvmlite: cold with nothing on disk, then warm; of the warm one also the time on the clock, least
of several.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from common import header
from native_calls import ROUNDS, aligned, compiled, words

import fluid
from fluid.executor.native.emitter import Function, Value
from fluid.executor.native.kernel import Share
from fluid.executor.native.pool import pool

ELEMENTS = 16 * 2**20
"""Of each array of float32 in memory: 64 MiB."""
CACHED, COPIES = 2**14, 6
"""Elements of each array in a cache, 64 KiB, and how many operations have arrays of their own."""
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
    """Bytes a second of one thread, of programs that read and write variables of memory or of a cache, and of numpy."""
    for where, elements, copies in (("memory", ELEMENTS, 1), ("the second cache", CACHED, COPIES)):
        out_of_numpy, one, other = (np.ones(elements, np.float32) for _ in range(3))
        numpys: tuple[Callable[[], Any], Callable[[], Any]] = (
            partial(np.maximum, one, 0, out=out_of_numpy),
            partial(np.add, one, other, out=out_of_numpy),
        )
        layers = (fluid.layers.relu, fluid.layers.elementwise_add)
        for what, layer, count, in_numpy in zip(("relu", "x + y"), layers, (1, 2), numpys, strict=True):
            gigabytes = 4e-9 * elements * (count + 1)
            calls = max(ELEMENTS // elements // 8, 1)
            # The arrays of one element take what a run takes whatever it computes.
            ours = (of_run(layer, count, elements, copies, calls) - of_run(layer, count, 1, copies, 1000)) / copies
            theirs = of_many(in_numpy, calls)
            print(f"| {what}, of {where} | {gigabytes / ours:.1f} GB/s, numpy {gigabytes / theirs:.1f} |", flush=True)


def of_run(layer: Callable[..., Any], operands: int, elements: int, copies: int, calls: int) -> float:
    """Seconds of a run of a program that applies a layer `copies` times, to variables of their own."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():

        def variable() -> Any:
            return fluid.layers.create_global_var([elements], 1.0, "float32", persistable=True)

        for _ in range(copies):
            fluid.layers.assign(layer(*[variable() for _ in range(operands)]), variable())
    executor = fluid.Executor()
    executor.run(startup, scope=scope)
    return of_many(lambda: executor.run(main, scope=scope), calls)


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
