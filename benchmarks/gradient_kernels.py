"""Time of gradient kernels on numpy beside the rules that they restate: ``python benchmarks/gradient_kernels.py``.

For each op with a gradient kernel, samples are stretched to sizes of users, and the gradient runs by its kernel and by its rule,
in turn, in one thread. A line gives the ratio of their median processor times, rule / kernel: its median over the cases, the
least and the largest, and at how many elements. A kernel whose median ratio is not above 1.2 does not pay.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "ops"))

import numpy as np
from real_sizes import ops
from real_sizes.choices import Choices

from fluid.executor.binding.compiled import Argument, compiled
from fluid.executor.kernels.table import KERNELS, load_kernels
from fluid.executor.runtime.specs import spec_of
from fluid.opdef import registry
from fluid.opdef.registry import Rule, grad_slot
from fluid.values.lod_array import array_of


def gradient_values(op_type: str, inputs: Any, outputs: Any, rule: Rule) -> dict[str, Any]:
    """The inputs of a gradient op, by slot."""
    values = {slot: inputs[slot] for slot in rule.inputs if inputs.get(slot) is not None}
    values |= {slot: outputs[slot] for slot in rule.outputs if outputs.get(slot) is not None}
    for slot in rule.cotangents:
        value = outputs.get(slot)
        if value is not None and array_of(value[0] if isinstance(value, list) else value).dtype.kind == "f":
            values[grad_slot(slot)] = value
    return values


def runners(op_type: str, attrs: Any, values: dict[str, Any], wanted: set[str]) -> list[Any]:
    """Functions that run a gradient op by its kernel and by its rule."""
    definition = registry.get(op_type)
    full = definition.defaults(definition.check_attrs({k: v for k, v in attrs.items() if k in definition.attrs}))
    listed = [(slot, item) for slot, value in values.items() for item in (value if isinstance(value, list) else [value])]
    arguments = [Argument(slot, None if item is None else spec_of(item)) for slot, item in listed]
    arrays = [array_of(item) for _, item in listed]
    found = []
    for use_kernel in (True, False):
        op = compiled(
            definition, full, arguments, np, wants={slot: slot in wanted for slot in definition.outputs}, use_kernel=use_kernel
        )
        found.append(lambda op=op: op.run(*arrays))
    return found


def median_times(runs: list[Any], seconds: float) -> list[float]:
    """The median processor time of each run; they take turns until the time is over."""
    times: list[list[float]] = [[] for _ in runs]
    end = time.process_time() + seconds
    while time.process_time() < end or len(times[0]) < 5:
        for run, of_run in zip(runs, times, strict=True):
            start = time.process_time_ns()
            run()
            of_run.append((time.process_time_ns() - start) / 1e9)
    return [statistics.median(of_run) for of_run in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="gradient ops; all with a kernel by default")
    parser.add_argument("--cases", type=int, default=5, help="stretched samples of each op")
    parser.add_argument("--seconds", type=float, default=0.2, help="processor time for each case")
    options = parser.parse_args()
    load_kernels()
    names = options.ops or sorted(name for name in KERNELS if registry.get(name).forward is not None)
    for name in names:
        forward = registry.get(name).forward
        if forward is None or not isinstance(forward.rule, Rule) or forward.decomposition is not None:
            continue
        ratios = []
        for seed in range(40 * options.cases):
            if len(ratios) == options.cases:
                break
            try:
                (op_type, fed, attrs), sample = ops.stretched(Choices(seed), forward.type, "float32")
                inputs, outputs = ops._computed(op_type, fed, attrs)
                items = [item for value in inputs.values() for item in (value if isinstance(value, list) else [value])]
                elements = max(array_of(item).size for item in items)
                if elements < 2000 and not sample.lods:
                    continue
                values = gradient_values(op_type, inputs, outputs, forward.rule)
                wanted = {
                    grad_slot(slot)
                    for slot in sample.wrt or forward.rule.wrt
                    if inputs.get(slot) is not None
                    and array_of(inputs[slot][0] if isinstance(inputs[slot], list) else inputs[slot]).dtype.kind == "f"
                }
                pair = runners(name, attrs, values, wanted)
                times = median_times(pair, options.seconds)
            except Exception as error:  # a stretched sample that fits no more
                problem = f"{type(error).__name__}: {error}"
                continue
            ratios.append((times[1] / times[0], elements, times[0]))
        if not ratios:
            print(f"{name:40} no case: {problem[:80]}", flush=True)
            continue
        ratios.sort()
        middle = ratios[len(ratios) // 2]
        print(
            f"{name:40} {middle[0]:6.2f} ({ratios[0][0]:.2f} to {ratios[-1][0]:.2f})  {len(ratios)} cases, "
            f"{ratios[0][1]} to {ratios[-1][1]} elements, median {middle[2] * 1e6:.0f} us",
            flush=True,
        )


if __name__ == "__main__":
    main()
