"""Times the ways among which native code chooses (`fluid.executor.native.costs`), each at sizes around the choice.

    python benchmarks/kernel_choices.py --out tests/native/data/choices_avx2.json

Times are of one thread of the processor, medians, the ways of a case in turn. A test holds the choices against the stored times.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import fluid
from fluid import layers
from fluid.executor.native import compiler, regions
from fluid.extend import ops

Step = Callable[[], Any]
NEVER = 1 << 60
SECONDS = 0.3
"""Processor time for each case."""


@contextmanager
def limits(**changed: int) -> Iterator[None]:
    """Make plans with other limits."""
    host = compiler.host
    target = replace(host(), limits=replace(host().limits, **changed))
    compiler.host = lambda: target  # type: ignore[assignment]
    try:
        yield
    finally:
        compiler.host = host


@contextmanager
def fast_transforms(seconds: float) -> Iterator[None]:
    """Make plans as if fast transforms took this time."""
    estimate = regions.fast_transform_seconds
    regions.fast_transform_seconds = lambda elements: seconds  # type: ignore[attr-defined]
    try:
        yield
    finally:
        regions.fast_transform_seconds = estimate  # type: ignore[attr-defined]


def step_of(build: Callable[[], Any], feed: dict[str, Any]) -> Step:
    """A run of a program; its plan is made now."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetches = build()
    executor = fluid.Executor()
    executor.run(startup, scope=scope)
    executor.run(main, feed, fetches, scope=scope)
    return lambda: executor.run(main, feed, fetches, scope=scope)


def medians(steps: dict[str, Step]) -> dict[str, float]:
    """The median seconds of each step; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    while sum(map(sum, times.values())) < SECONDS or len(next(iter(times.values()))) < 5:
        for name, step in steps.items():
            start = time.process_time_ns()
            step()
            times[name].append((time.process_time_ns() - start) / 1e9)
    return {name: float(f"{np.median(values):.4g}") for name, values in times.items()}


def array(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def products(rows: int, inner: int, columns: int) -> dict[str, Step]:
    """Sixteen products, with a right matrix that is copied to panels, or read where it lies."""

    def build() -> Any:
        x, weight = fluid.data("x", [rows, inner]), fluid.data("w", [inner, columns])
        return [layers.reduce_sum(layers.matmul(x * float(number + 1), weight)) for number in range(16)]

    feed = {"x": array(rows, inner), "w": array(inner, columns)}
    with limits(packed_rows=1, packed_bytes=1, packed_far_rows=1):
        copied = step_of(build, feed)
    with limits(packed_rows=NEVER, packed_far_rows=NEVER):
        in_place = step_of(build, feed)
    return {"packed": copied, "in place": in_place}


def convolutions(images: int, channels: int, filters: int, size: int) -> dict[str, Step]:
    """A convolution of 3 x 3 taps with its gradients, by Winograd's algorithm, or directly."""

    def build() -> Any:
        x = fluid.data("x", [images, channels, size, size])
        x.stop_gradient = False
        weight = layers.create_parameter([filters, channels, 3, 3], "float32")
        out = fluid.layers.conv2d(x, filters, 3, padding=1, bias_attr=False, param_attr=fluid.ParamAttr(name=weight.name))
        loss = layers.reduce_sum(layers.square(out))
        return [loss, *fluid.gradients(loss, [x, weight])]

    feed = {"x": array(images, channels, size, size)}
    always = ("winograd_channels", "winograd_tiles", "winograd_gradient_tiles", "winograd_tile_work", "winograd_filter_work")
    with limits(**dict.fromkeys(always, 1)):
        by_winograd = step_of(build, feed)
    with limits(winograd_channels=NEVER):
        directly = step_of(build, feed)
    return {"Winograd": by_winograd, "direct": directly}


def transforms(rows: int, size: int, modes: int) -> dict[str, Step]:
    """The first modes of Fourier transforms, as a product, or by numpy's fast transform."""

    def build() -> Any:
        f = ops()
        x = fluid.data("x", [rows, size])
        steps = [x * float(number + 1) for number in range(4)]
        spectra = [f.fft_r2c(y, axes=[1], normalization="backward", forward=True, onesided=True) for y in steps]
        return [layers.reduce_sum(f.real(f.slice(y, axes=[1], starts=[0], ends=[modes]) * y[:, :modes])) for y in spectra]

    feed = {"x": array(rows, size)}
    with fast_transforms(float("inf")):
        as_product = step_of(build, feed)
    with fast_transforms(0.0):
        fast = step_of(build, feed)
    return {"product": as_product, "fast": fast}


CASES: dict[str, tuple[Callable[..., dict[str, Step]], list[dict[str, int]]]] = {
    "products": (
        products,
        [
            {"rows": rows, "inner": inner, "columns": columns}
            for rows in (16, 48, 96, 384)
            for inner, columns in ((64, 64), (64, 512), (512, 64), (512, 512), (1024, 1024))
        ],
    ),
    "convolutions": (
        convolutions,
        [
            {"images": images, "channels": channels, "filters": channels, "size": size}
            for channels in (4, 8, 16, 32, 96)
            for images, size in ((1, 6), (4, 14), (8, 28))
        ],
    ),
    "transforms": (
        transforms,
        [
            {"rows": 512, "size": size, "modes": modes}
            for size in (64, 256, 1024)
            for modes in (size // 16, size // 4, size // 2 + 1)
        ],
    ),
}


def machine() -> dict[str, Any]:
    """What the times are of."""
    host = compiler.host()
    caches = {}
    for path in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = (path / "type").read_text().strip()
        if kind != "Instruction":
            caches[f"L{(path / 'level').read_text().strip()}"] = (path / "size").read_text().strip()
    names = [line.split(":")[1].strip() for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "triple": host.triple,
        "cpu": host.cpu,
        "features": host.features,
        "caches": caches,
    }


def _read(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


def as_text(of: dict[str, Any], results: dict[str, list[dict[str, Any]]]) -> str:
    """JSON with a line for each case."""
    kinds = (
        f'  "{kind}": [\n' + ",\n".join(f"   {json.dumps(case)}" for case in cases) + "\n  ]" for kind, cases in results.items()
    )
    return f'{{"machine": {json.dumps(of)},\n "times": {{\n' + ",\n".join(kinds) + "\n }\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a file of JSON for the times")
    options = parser.parse_args()
    fluid.set_num_threads(1)
    results: dict[str, list[dict[str, Any]]] = {}
    for kind, (make, cases) in CASES.items():
        for sizes in cases:
            seconds = medians(make(**sizes))
            results.setdefault(kind, []).append({**sizes, "seconds": seconds})
            words = ", ".join(f"{name} {number * 1e6:.0f} µs" for name, number in seconds.items())
            print(f"| {kind} | {', '.join(f'{name} {number}' for name, number in sizes.items())} | {words} |", flush=True)
    if options.out is not None:
        options.out.parent.mkdir(exist_ok=True)
        options.out.write_text(as_text(machine(), results))


if __name__ == "__main__":
    main()
