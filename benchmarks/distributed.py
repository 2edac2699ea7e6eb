"""Steps of models by two workers on this machine, beside one worker: weak scaling, with a full batch and one thread per worker.

One worker and two take turns in one run, in many short series; printed are medians. Where other jobs use the cores, wall times
mean little, and processor times more: they include most of the waiting. A model of communication, of which latency and bandwidth
are measured here, is held against the steps and carried on to more workers.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

MODELS = ("mlp", "resnet20", "table")
SIZES = (8, 1 << 10, 1 << 14, 1 << 17, 1 << 19, 1 << 21, 1 << 23)
_SMALL = 1 << 14
"""Bytes of arrays whose reduction takes the latency, and little more."""
NETWORKS = {"10 Gbit/s Ethernet": (15e-6, 1.1e9), "100 Gbit/s with RDMA": (2e-6, 11e9)}
"""Seconds until a message is there, and bytes a second, as such networks are usually said to have."""
SECONDS = 0.1
"""How long a side is timed in a round, about."""


class Way(NamedTuple):
    """How two workers train a model.

    Attributes:
        settings: of the strategy.
        divides_tables: whether tables are divided among the workers.
    """

    settings: dict[str, Any]
    divides_tables: bool = False


DENSE = {
    "one bucket": Way({"fuse_grad_size_in_MB": 1e6}),
    "256 KiB": Way({"fuse_grad_size_in_MB": 0.25}),
    "one bucket, bfloat16": Way({"fuse_grad_size_in_MB": 1e6, "gradients_sent_as": "bfloat16"}),
    "one bucket, state divided": Way({"fuse_grad_size_in_MB": 1e6, "shard_optimizer_state": True}),
}
SPARSE = {"table on each worker": Way({}), "table divided": Way({}, divides_tables=True)}
WAYS = {"mlp": DENSE, "resnet20": DENSE, "table": SPARSE}


# ------------------------------------------------------------------------------------------------------------- a worker
def measured(names: Sequence[str], rounds: int) -> dict[str, Any]:
    """The measurements of this worker; all workers take part."""
    import numpy as np
    from peers import fluid_step
    from workloads import WORKLOADS

    import fluid
    from fluid.distributed import communicator
    from fluid.incubate.fleet.collective import DistributedStrategy, fleet

    fluid.set_num_threads(1)
    fleet.init()
    group = communicator()
    result: dict[str, Any] = {"reductions": {}, "steps": {}}
    for size in SIZES:
        array = np.zeros(size // 4, np.float32)
        times = []
        for _ in range(30 if size > 1 << 20 else 200):
            group.barrier()
            start = time.perf_counter()
            group.allreduce(array, "sum")
            times.append(time.perf_counter() - start)
        result["reductions"][size] = statistics.median(times)
    for name in names:
        alone = fluid_step(WORKLOADS[name])
        for label, way in WAYS[name].items():
            strategy = DistributedStrategy()
            for setting, value in way.settings.items():
                setattr(strategy, setting, value)
            with table_divided(fluid, way.divides_tables):
                step = fluid_step(
                    WORKLOADS[name], trained_by=lambda optimizer, s=strategy: fleet.distributed_optimizer(optimizer, s)
                )
            result["steps"].setdefault(name, {})[label] = compared(alone, step, group, rounds)
    return result


@contextlib.contextmanager
def table_divided(fluid: Any, is_divided: bool) -> Iterator[None]:
    """Let the embeddings that are built meanwhile have tables that are divided among the workers."""
    embedding = fluid.embedding
    fluid.embedding = functools.partial(embedding, is_distributed=is_divided)
    try:
        yield
    finally:
        fluid.embedding = embedding


def compared(alone: Any, step: Any, group: Any, rounds: int) -> dict[str, Any]:
    """Time short series of steps of worker 0 alone and of all workers, in turn, while nothing else runs on the workers.

    Returns:
        For each side the medians of the wall time and of the processor time of a step; the bytes and calls of a step of two; and
        the medians, over the rounds, of how much of the speed of one worker each of two has: by wall and by processor time.
    """
    for side in (alone, step):
        for _ in range(3):
            side()
    start = time.perf_counter()
    step()
    count = max(int(SECONDS / max(group.exchange(time.perf_counter() - start))), 3)
    traffic = group.traffic
    before = traffic.bytes, traffic.calls
    for _ in range(count):
        step()
    size, calls = ((after - former) / count for after, former in zip((traffic.bytes, traffic.calls), before, strict=True))
    times = []
    for _ in range(rounds):
        group.barrier()
        one = series(alone, count) if group.rank == 0 else None
        group.barrier()
        two = series(step, count)
        if one is not None:
            times.append((*one, *two, *(a / b for a, b in zip(one, two, strict=True))))
        group.barrier()
    keys = ("one wall", "one processor", "two wall", "two processor", "speed by wall", "speed by processor")
    medians = dict(zip(keys, map(statistics.median, zip(*times, strict=True)), strict=False))
    return {**medians, "bytes": size, "calls": calls}


def series(step: Any, count: int) -> tuple[float, float]:
    """The median wall time and the median processor time of so many steps."""
    times = []
    for _ in range(count):
        wall, processor = time.perf_counter(), time.process_time()
        step()
        times.append((time.perf_counter() - wall, time.process_time() - processor))
    walls, processors = zip(*times, strict=True)
    return statistics.median(walls), statistics.median(processors)


# ----------------------------------------------------------------------------------------------------------- the model
def fitted(reductions: dict[str, float]) -> tuple[float, float]:
    """Seconds until a message is there and bytes a second; two workers take ``2 latency + size / bandwidth`` to reduce.

    The latency is that of the fastest of the small sizes, which other jobs disturbed least.
    """
    least = min(seconds for size, seconds in reductions.items() if int(size) <= _SMALL)
    largest = max(int(size) for size in reductions)
    return least / 2, largest / max(reductions[str(largest)] - least, 1e-9)


def reduction(workers: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds that reducing takes: each half, scattering the sums and gathering them, takes log2 steps."""
    return 2 * math.ceil(math.log2(workers)) * latency + 2 * (workers - 1) / workers * size / bandwidth


def gathering(workers: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds that gathering the rows of all workers takes, with their numbers before."""
    return 2 * math.ceil(math.log2(workers)) * latency + (workers - 1) * size / bandwidth


def exchange(workers: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds that exchanging rows with their owners takes: ids, rows, and their gradients with ids, each with numbers before.

    A worker sends a message to each other worker in each of six rounds; messages to several workers overlap, so that latencies
    count as log2 in the small rounds of numbers, and as one for each 64 workers in the others.
    """
    small = 3 * math.ceil(math.log2(workers)) * latency
    large = 4 * max(1.0, workers / 64) * latency
    return small + large + (workers - 1) / workers * size / bandwidth


def exposed(compute: float, buckets: int, seconds: float) -> float:
    """Seconds of communication that computing does not hide: buckets are full evenly over backward, two thirds of a step, and
    reduced one after the other in `seconds` each."""
    end = 0.0
    for number in range(buckets):
        ready = compute / 3 + compute * 2 / 3 * (number + 1) / buckets
        end = max(end, ready) + seconds
    return end - compute


# ---------------------------------------------------------------------------------------------------------------- tables
def show(result: dict[str, Any]) -> None:
    latency, bandwidth = fitted(result["reductions"])
    print("all-reduce of two workers:")
    for size, seconds in result["reductions"].items():
        model = reduction(2, int(size), latency, bandwidth)
        print(f"  {int(size):>9,} bytes  {seconds * 1e6:8.1f} us   model {model * 1e6:8.1f} us")
    print(f"latency {latency * 1e6:.1f} us, bandwidth {bandwidth / 1e9:.2f} GB/s\n")
    print("| model | way | one worker, wall and processor, ms | two, ms | speed kept, wall | processor | model | MB a step |")
    print("|---|---|---|---|---|---|---|---|")
    for name, ways in result["steps"].items():
        for label, way in ways.items():
            one, calls = way["one processor"], max(way["calls"], 1)
            # Nothing moves on while a worker computes where all is in one memory: no communication is hidden.
            cost = calls * reduction(2, way["bytes"] / calls, latency, bandwidth)
            print(
                f"| {name} | {label} | {way['one wall'] * 1e3:.2f}, {one * 1e3:.2f} | {way['two wall'] * 1e3:.2f}, "
                f"{way['two processor'] * 1e3:.2f} | {way['speed by wall']:.2f} | {way['speed by processor']:.2f} | "
                f"{one / (one + cost):.2f} | {way['bytes'] / 1e6:.2f} |"
            )
    print(
        "\n| model | way | network | workers | communication, ms | not hidden, ms | efficiency |\n|---|---|---|---|---|---|---|"
    )
    for name, ways in result["steps"].items():
        for label in ("table on each worker", "table divided") if name == "table" else ("256 KiB",):
            way, one = ways[label], ways[label]["one processor"]
            calls = max(round(way["calls"]), 1)
            for network, figures in NETWORKS.items():
                for workers in (8, 64, 1000):
                    if name == "table":
                        total = (exchange if label == "table divided" else gathering)(workers, way["bytes"], *figures)
                        visible = total
                    else:
                        seconds = reduction(workers, way["bytes"] / calls, *figures)
                        total, visible = calls * seconds, max(exposed(one, calls, seconds), 0.0)
                    times = f"{total * 1e3:.2f} | {visible * 1e3:.2f}"
                    print(f"| {name} | {label} | {network} | {workers:,} | {times} | {one / (one + visible):.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--rounds", type=int, default=30, help="how often one worker and two take turns (default: 30)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        from fluid.distributed import communicator

        result = measured(args.models, args.rounds)
        if communicator().rank == 0:
            print(json.dumps(result))
        return
    mpiexec = shutil.which("mpiexec", path=os.path.dirname(sys.executable)) or "mpiexec"
    command = [sys.executable, os.path.abspath(__file__), "--worker", "--rounds", str(args.rounds), "--models", *args.models]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("OPENBLAS_CORETYPE", None)
    run = subprocess.run([mpiexec, "-n", "2", *command], env=environment, check=True, stdout=subprocess.PIPE)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    show(json.loads(run.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
