"""Derivatives of plain functions: `fluid.numpy` beside HIPS/autograd and jax, on one thread of a CPU.

    pip install jax autograd && python benchmarks/derivatives.py

Each row is the median time of a gradient, in microseconds: of a net of three layers, a Gaussian process, ten steps of a
solver. autograd runs each operation at once, as `fluid.numpy` does. ``fluid traced`` and ``jax jit`` run a program that was
traced before. A library that is not installed is left out.
"""

# ruff: noqa: E402

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "XLA_FLAGS"):
    os.environ[_name] = "--xla_cpu_multi_thread_eigen=false" if _name == "XLA_FLAGS" else "1"

import statistics
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import fluid
import fluid.numpy as xp
from fluid import dygraph

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.standard_normal((64, 10))
WEIGHTS = [RANDOM.standard_normal(shape) / 4 for shape in ((10, 32), (32, 32), (32, 1))]
POINTS = np.linspace(-3, 3, 50)
VALUES = np.sin(POINTS)
UNIT = np.eye(50)
LOGS, RATES = np.array([0.1, -1.0]), np.array([1.0, 1.1, 0.9])


def functions(np: Any, array: Any) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Name -> a function of one value over an array namespace, and its arguments as arrays of numpy."""

    inputs, points, values, unit = (array(constant) for constant in (INPUTS, POINTS, VALUES, UNIT))

    def net(first: Any, second: Any, third: Any) -> Any:
        return np.mean((np.tanh(np.tanh(inputs @ first) @ second) @ third) ** 2)

    def process(logs: Any) -> Any:
        distance = (points[:, None] - points[None, :]) / np.exp(logs[0])
        factor = np.linalg.cholesky(np.exp(-0.5 * distance**2) + (np.exp(logs[1]) ** 2 + 1e-6) * unit)
        return np.sum(np.linalg.solve(factor, values) ** 2) + 2 * np.sum(np.log(np.sum(factor * unit, axis=0)))

    def solver(rates: Any) -> Any:
        hares, lynxes = rates[0], rates[1] * 0.5
        for _ in range(10):
            eaten = rates[2] * hares * lynxes
            hares, lynxes = hares + 0.1 * (hares - eaten), lynxes + 0.1 * (eaten - lynxes)
        return hares * lynxes

    return {
        "net": (net, tuple(WEIGHTS)),
        "Gaussian process": (process, (LOGS,)),
        "solver": (solver, (RATES,)),
    }


def gradients() -> dict[str, dict[str, Callable[[], Any]]]:
    """Library -> name -> a call that computes a gradient."""
    calls: dict[str, dict[str, Callable[[], Any]]] = {"fluid": {}, "fluid traced": {}}
    for name, (function, args) in functions(xp, xp.asarray).items():
        arrays = [xp.asarray(arg) for arg in args]
        slope = xp.grad(function, tuple(range(len(args))))
        compiled = dygraph.trace(slope, *arrays)
        calls["fluid"][name] = lambda slope=slope, arrays=arrays: slope(*arrays)
        calls["fluid traced"][name] = lambda compiled=compiled, arrays=arrays: compiled(*arrays)
    try:
        numpy, autograd = import_module("autograd.numpy"), import_module("autograd")
    except ImportError:
        pass
    else:
        calls["autograd"] = {}
        for name, (function, args) in functions(numpy, numpy.array).items():
            slope = autograd.grad(function, tuple(range(len(args))))
            calls["autograd"][name] = lambda slope=slope, args=args: slope(*args)
    try:
        jax, numpy = import_module("jax"), import_module("jax.numpy")
    except ImportError:
        return calls
    jax.config.update("jax_enable_x64", True)
    calls["jax jit"] = {}
    for name, (function, args) in functions(numpy, numpy.array).items():
        arrays = [numpy.asarray(arg) for arg in args]
        fast = jax.jit(jax.grad(function, tuple(range(len(args)))))
        calls["jax jit"][name] = lambda fast=fast, arrays=arrays: jax.block_until_ready(fast(*arrays))
    return calls


def main() -> None:
    """Print the table."""
    fluid.set_num_threads(1)
    calls = gradients()
    print("| microseconds | " + " | ".join(calls) + " |\n|---|" + "---|" * len(calls))
    for name in ("net", "Gaussian process", "solver"):
        expected = np.asarray(calls["fluid"][name]()[0])
        times: dict[str, list[float]] = {library: [] for library in calls}
        for library in calls:
            np.testing.assert_allclose(np.asarray(calls[library][name]()[0]), expected, rtol=1e-6)
        for _ in range(9):
            for library in calls:
                start = time.process_time()
                for _ in range(5):
                    calls[library][name]()
                times[library].append((time.process_time() - start) / 5)
        print(f"| {name} | " + " | ".join(f"{statistics.median(part) * 1e6:.0f}" for part in times.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
