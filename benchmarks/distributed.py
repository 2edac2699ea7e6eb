"""Steps of models by two workers on this machine, beside those of one: weak scaling, each with a whole batch and one thread.

A model of communication, of which latency and bandwidth are measured here, is held against the steps and carried on to more
workers. Where others use the cores, wall time says little; hence the fastest tenth of the steps, processor time, and waiting.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

MODELS = ("mlp", "resnet20", "table")
SIZES = (8, 1 << 10, 1 << 14, 1 << 17, 1 << 19, 1 << 21, 1 << 23)
BUCKETS = {"one bucket": 1e6, "1 MiB": 1.0, "256 KiB": 0.25, "each by itself": 0.0}
NETWORKS = {"10 Gbit/s Ethernet": (15e-6, 1.1e9), "100 Gbit/s with RDMA": (2e-6, 11e9)}
"""Seconds until a message is there, and bytes a second, as such networks are usually said to have."""
SECONDS = 4.0


# ------------------------------------------------------------------------------------------------------------- a worker
def measured(names: Sequence[str]) -> dict[str, Any]:
    """What this worker measures; all workers take part."""
    import numpy as np
    from peers import fluid_step
    from workloads import WORKLOADS

    import fluid
    from fluid.distributed import communicator
    from fluid.incubate.fleet.collective import DistributedStrategy, fleet

    fluid.set_num_threads(1)
    fleet.init()
    group = communicator()
    result: dict[str, Any] = {"reductions": {}, "steps": {}, "copied": copied(np)}
    for size in SIZES if group.size > 1 else ():
        array = np.zeros(size // 4, np.float32)
        times = []
        for _ in range(30 if size > 1 << 20 else 200):
            group.barrier()
            start = time.perf_counter()
            group.allreduce(array, "sum")
            times.append(time.perf_counter() - start)
        result["reductions"][size] = statistics.quantiles(times, n=10)[0]
    for name in names:
        for label, megabytes in BUCKETS.items() if group.size > 1 else [("alone", 4.0)]:
            strategy = DistributedStrategy()
            strategy.fuse_grad_size_in_MB = megabytes
            step = fluid_step(WORKLOADS[name], trained_by=lambda optimizer, s=strategy: fleet.distributed_optimizer(optimizer, s))
            result["steps"].setdefault(name, {})[label] = timed(step, group)
    return result


def copied(xp: Any, size: int = 1 << 21) -> float:
    """Bytes a second that are copied from one array to another."""
    source, target = xp.ones(size, "uint8"), xp.ones(size, "uint8")
    times = []
    for _ in range(50):
        start = time.perf_counter()
        xp.copyto(target, source)
        times.append(time.perf_counter() - start)
    return size / statistics.quantiles(times, n=10)[0]


def timed(step: Any, group: Any) -> dict[str, float]:
    """Of one step: wall time, processor time, the time that it waited, bytes that it reduced and in how many pieces. They are
    means over the tenth of the steps with the least wall time, which others disturbed least."""
    for _ in range(3):
        step()
    start = time.perf_counter()
    step()
    count = max(int(max(group.exchange(SECONDS / (time.perf_counter() - start)))), 20)
    steps = []
    for _ in range(min(count, 400)):
        traffic = group.traffic
        before = time.perf_counter(), time.process_time(), traffic.seconds_waited, traffic.bytes, traffic.calls
        step()
        after = time.perf_counter(), time.process_time(), traffic.seconds_waited, traffic.bytes, traffic.calls
        steps.append([end - start for start, end in zip(before, after, strict=True)])
    walls = [max(of_step) for of_step in zip(*group.exchange([each[0] for each in steps]), strict=True)]
    fastest = sorted(range(len(steps)), key=walls.__getitem__)[: max(len(steps) // 10, 2)]
    means = (statistics.fmean(steps[number][column] for number in fastest) for column in range(5))
    return dict(zip(("wall", "processor", "waited", "bytes", "calls"), means, strict=True))


# ----------------------------------------------------------------------------------------------------------- the model
def fitted(reductions: dict[str, float]) -> tuple[float, float]:
    """Seconds until a message is there and bytes a second; two workers take ``2 latency + size / bandwidth`` to reduce."""
    sizes = sorted(int(size) for size in reductions)
    latency = reductions[str(sizes[0])] / 2
    slope = (reductions[str(sizes[-1])] - reductions[str(sizes[0])]) / (sizes[-1] - sizes[0])
    return latency, 1 / slope


def reduction(workers: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds that reducing takes: each half, scattering the sums and gathering them, takes log2 steps."""
    return 2 * math.ceil(math.log2(workers)) * latency + 2 * (workers - 1) / workers * size / bandwidth


def gathering(workers: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds that gathering the rows of all workers takes, with their numbers before."""
    return 2 * math.ceil(math.log2(workers)) * latency + (workers - 1) * size / bandwidth


def exposed(workers: int, compute: float, size: float, buckets: int, network: tuple[float, float], sparse: bool) -> float:
    """Seconds of communication that computing does not hide: buckets are full evenly over backward, two thirds of a step, and
    reduced one after the other."""
    if sparse:
        return gathering(workers, size, *network)
    end = 0.0
    for number in range(buckets):
        ready = compute / 3 + compute * 2 / 3 * (number + 1) / buckets
        end = max(end, ready) + reduction(workers, size / buckets, *network)
    return end - compute


# ---------------------------------------------------------------------------------------------------------------- tables
def show(alone: dict[str, Any], two: dict[str, Any]) -> None:
    latency, bandwidth = fitted(two["reductions"])
    print("all-reduce of two workers:")
    for size, seconds in two["reductions"].items():
        model = reduction(2, int(size), latency, bandwidth)
        print(f"  {int(size):>9,} bytes  {seconds * 1e6:8.1f} us   model {model * 1e6:8.1f} us")
    print(f"latency {latency * 1e6:.1f} us, bandwidth {bandwidth / 1e9:.2f} GB/s; copies {two['copied'] / 1e9:.2f} GB/s\n")
    print(
        "| model | buckets | one worker, ms | two, ms | two / one | processor, ms | waits, ms | waits | MB a step | model, ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, ways in two["steps"].items():
        one = alone["steps"][name]["alone"]["wall"]
        for label, way in ways.items():
            calls = round(way["calls"])
            is_sparse = name == "table"
            # Nothing moves on while a worker computes where all is in one memory: no communication is hidden.
            cost = gathering if is_sparse else reduction
            pieces = 1 if is_sparse else max(calls, 1)
            model = one + pieces * cost(2, way["bytes"] / pieces, latency, bandwidth)
            if not is_sparse and label != "each by itself":
                model += 2 * way["bytes"] / two["copied"]  # into the bucket, and out of it
            print(
                f"| {name} | {label} ({calls}) | {one * 1e3:.2f} | {way['wall'] * 1e3:.2f} | {way['wall'] / one:.2f} | "
                f"{alone['steps'][name]['alone']['processor'] * 1e3:.2f}, {way['processor'] * 1e3:.2f} | "
                f"{way['waited'] * 1e3:.2f} | {way['waited'] / way['wall']:.0%} | {way['bytes'] / 1e6:.2f} | {model * 1e3:.2f} |"
            )
    print("\n| model | network | workers | communication, ms | not hidden, ms | efficiency |\n|---|---|---|---|---|---|")
    for name, ways in two["steps"].items():
        way, one = ways["256 KiB"], alone["steps"][name]["alone"]["wall"]
        is_sparse = name == "table"
        buckets = max(round(way["calls"]), 1)
        for network, figures in NETWORKS.items():
            for workers in (8, 64, 1000):
                whole = (gathering if is_sparse else reduction)(workers, way["bytes"], *figures)
                left = max(exposed(workers, one, way["bytes"], buckets, figures, is_sparse), 0.0)
                print(f"| {name} | {network} | {workers:,} | {whole * 1e3:.2f} | {left * 1e3:.2f} | {one / (one + left):.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        from fluid.distributed import communicator

        result = measured(args.models)
        if communicator().rank == 0:
            print(json.dumps(result))
        return
    mpiexec = shutil.which("mpiexec", path=os.path.dirname(sys.executable)) or "mpiexec"
    command = [sys.executable, os.path.abspath(__file__), "--worker", "--models", *args.models]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("OPENBLAS_CORETYPE", None)
    runs = [
        subprocess.run(start + command, env=environment, check=True, stdout=subprocess.PIPE)
        for start in ([], [mpiexec, "-n", "2"])
    ]
    alone, two = (json.loads(run.stdout.splitlines()[-1]) for run in runs)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    show(alone, two)


if __name__ == "__main__":
    main()
