"""Training steps at an XLAPlace beside jax written by hand: the same models, first values and batches, in one process in turns.

Both are fed numpy's arrays in each step. CPU time is that of the process, all threads together. `trace` is the time from the
program to what XLA is given, per op; `compile` is what XLA takes for it, beside what it takes for the other's; `again` is what
it takes in a second process, where it is found on disk.

    python benchmarks/xla.py --host      # the same models with a few units each: what a call takes at the host
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import machine

NAMES = ("small_ops", "mlp", "lenet", "resnet20", "lstm", "transformer", "table")
LOSSES = {"resnet20": 2e-4}
"""How far losses may be apart, relative, if that is not 1e-5. Sums over so many places round differently: after four steps
numpy is 2e-5 from jax, and native code, whose convolutions are those of Winograd, 1.3e-4."""

PAUSE = 0.05
"""Seconds in which the threads of the system before stop looking for work, which would be counted for the next."""


def compile_times(name: str) -> tuple[int, float, float]:
    """The number of ops of a program, and the CPU seconds of tracing and of compiling it."""
    from peers import fluid_program
    from workloads import WORKLOADS

    import fluid
    from fluid.executor.xla.caching import keep_compiled

    executor, main, out, scope = fluid_program(WORKLOADS[name], fluid.XLAPlace())
    plan = executor.plan(main, dict(WORKLOADS[name].batch()), [out], scope)
    keep_compiled()
    began = time.process_time()
    lowered = plan.lowered()
    traced = time.process_time()
    lowered.compile()
    return len(plan.ops), traced - began, time.process_time() - traced


def compiled_again(name: str) -> tuple[float, float]:
    """The CPU seconds of compiling in one process, and in another after it."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "FLUID_XLA_CACHE": folder}
        command = [sys.executable, str(Path(__file__)), "--compile", name]
        first, second = (
            float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout) for _ in range(2)
        )
    return first, second


def row(name: str, seconds: float) -> str:
    from peers import fluid_step, jax_training, jax_training_step
    from workloads import WORKLOADS

    import fluid

    workload = WORKLOADS[name]
    batch = dict(workload.batch())
    run, p, state = jax_training(workload)
    lowered = run.lower(p, state, batch)
    began = time.process_time()
    lowered.compile()
    of_jax = time.process_time() - began
    count, trace, compiling = compile_times(name)
    steps = {
        "plan": fluid_step(workload),
        "xla": fluid_step(workload, fluid.XLAPlace()),
        "jax": jax_training_step(run, p, state, batch),
    }
    losses = {system: [step() for _ in range(4)] for system, step in steps.items()}
    apart = max(abs(a - b) / abs(a) for a, b in zip(losses["plan"], losses["xla"], strict=True))
    assert apart <= LOSSES.get(name, 1e-5), f"{name}: losses are {apart:.2g} apart: {losses}"
    times: dict[str, list[float]] = {system: [] for system in steps}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for system, step in steps.items():
            time.sleep(PAUSE)
            step()
            for _ in range(5):
                began = time.process_time()
                step()
                times[system].append(time.process_time() - began)
    ms = {system: 1e3 * median(values) for system, values in times.items()}
    first, second = compiled_again(name)
    cells = [
        name,
        f"{ms['xla']:.2f} ms",
        f"{ms['jax']:.2f} ms",
        f"{ms['xla'] / ms['jax']:.2f}",
        f"{ms['plan']:.2f} ms",
    ]
    cells += [f"{apart:.1e}", f"{1e3 * trace / count:.2f} ms", f"{compiling / of_jax:.2f}", f"{second / first:.2f}"]
    return f"| {' | '.join(cells)} |"


def tiny_workloads() -> dict[str, Any]:
    """Workloads that compute next to nothing."""
    from workloads import WORKLOADS, Draw, TransformerSizes, labelled, transformer, transformer_batch, transformer_first

    def table_first() -> Any:
        draw = Draw()
        draw.normal("table", 64, 4, scale=1.0)
        return draw.values

    def mlp_first() -> Any:
        draw = Draw()
        for layer, units in enumerate((8, 8, 10)):
            draw.linear(f"fc{layer + 1}", 8, units)
        return draw.values

    def of_blocks(blocks: int) -> Any:
        sizes = TransformerSizes(16, 8, 2, 4, blocks)
        first, batch = partial(transformer_first, sizes), partial(transformer_batch, sizes)
        return replace(WORKLOADS["transformer"], model=partial(transformer, sizes=sizes), first=first, batch=batch)

    random = np.random.default_rng(1)
    lookups = {"ids": random.integers(0, 64, 8), "targets": random.standard_normal((8, 4), np.float32)}
    return {
        "table": replace(WORKLOADS["table"], first=table_first, batch=lambda: lookups, optimizer=("sgd", 0.1)),
        "mlp": replace(WORKLOADS["mlp"], first=mlp_first, batch=lambda: labelled(4, 8)),
        "transformer, 2 blocks": of_blocks(2),
        "transformer, 4 blocks": of_blocks(4),
    }


def host_row(name: str, workload: Any, seconds: float) -> str:
    """CPU microseconds of a step by Fluid and by jax: fed from numpy, from the device, and without waiting for the loss."""
    import jax
    from peers import fluid_program, jax_training

    import fluid

    place = fluid.XLAPlace()
    executor, program, loss, scope = fluid_program(workload, place)
    run, *state = jax_training(workload)
    batch = dict(workload.batch())
    uploaded = {key: place.upload(value) for key, value in batch.items()}
    of_jax = {key: jax.device_put(value) for key, value in batch.items()}

    def by_jax(feed: Any) -> Any:
        found, *state[:] = run(*state, feed)
        return found

    steps: dict[str, Callable[[], Any]] = {
        "numpy": lambda: executor.run(program, batch, [loss], scope=scope)[0].item(),
        "numpy, jax": lambda: float(by_jax(batch)),
        "device": lambda: executor.run(program, uploaded, [loss], scope=scope)[0].item(),
        "device, jax": lambda: float(by_jax(of_jax)),
        "no wait": lambda: executor.run(program, uploaded, [loss], scope=scope, return_numpy=False),
        "no wait, jax": lambda: by_jax(of_jax),
    }
    for step in steps.values():
        step()
        step()
    times: dict[str, list[float]] = {system: [] for system in steps}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for system, step in steps.items():
            began = time.process_time()
            for _ in range(20):
                step()
            times[system].append(1e6 * (time.process_time() - began) / 20)
    us = [f"{median(values):.0f}" for values in times.values()]
    return f"| {name} | {len(jax.tree.leaves(state))} | {' | '.join(us)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--seconds", type=float, default=5, help="how long the steps of a workload run")
    parser.add_argument("--compile", metavar="NAME", help="print the CPU seconds of compiling one")
    parser.add_argument("--host", action="store_true", help="time the calls of tiny nets")
    args = parser.parse_args()
    if args.host:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"  # all CPU time is that of the calling thread
        print("| what | arrays | numpy | by jax | device | by jax | no wait | by jax |")
        print("|---|---|---|---|---|---|---|---|")
        for name, workload in tiny_workloads().items():
            print(host_row(name, workload, args.seconds), flush=True)
        print(f"\nCPU microseconds of a step. {machine(torch=False)}")
        return
    if args.compile:
        print(compile_times(args.compile)[2])
        return
    print("| what | XLAPlace | jax | XLAPlace / jax | plan | losses apart | trace, per op | compile / jax's | again |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:  # nothing that another run has compiled
        os.environ["FLUID_XLA_CACHE"] = folder
        for name in args.names:
            print(row(name, args.seconds), flush=True)
    print(f"\n{machine(torch=False)}")


if __name__ == "__main__":
    main()
