"""Helpers of the kernel benchmarks: compile native kernels, and call them by the loop that runs tables, without a program."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import fluid
from fluid.executor.native.compiler import Library, compile_object, host
from fluid.executor.native.emitter import Function, Module, Type, Value
from fluid.executor.native.instructions import RECORD_WORDS
from fluid.executor.native.kernel import Share, write_kernel
from fluid.executor.native.pool import pool
from fluid.values.memory import aligned_bytes

ROUNDS, BLOCK = 8, 2e-3
HOST = host()
PEAK_STEPS, PEAK_SUMS = 4096, 12
Body = Callable[[Function, Sequence[Value], Share], None]
"""Writes what a kernel does: given where the code goes, pointers to its operands, and the share of a thread."""


def peak_body(element: Type, vector_bytes: int = HOST.vector_bytes, steps: int = PEAK_STEPS) -> Body:
    """Multiply-adds of `PEAK_SUMS` vectors, so many times; the operand has one vector more."""
    vector = element.of(vector_bytes // element.bytes)

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        numbers = [f.load(f.at(pointers[0], index, vector), vector) for index in range(PEAK_SUMS + 1)]
        factor, sums = numbers[-1], numbers[:-1]
        sums = f.loop(0, steps, 1, sums, lambda _, *values: [f.fma(factor, value, value) for value in values])
        for index, value in enumerate(sums):
            f.store(value, f.at(pointers[0], index, vector))

    return body


@dataclass
class Runner:
    """Runs kernels so many times that a run takes some milliseconds."""

    library: Library
    records: Sequence[tuple[str, Any]]

    def __post_init__(self) -> None:
        self.times = max(int(BLOCK / max(self.time(self.call(1))[0], 1e-7)), 1)
        self.run = self.call(self.times)

    def call(self, times: int) -> Callable[[], None]:
        one = [(self.library.addresses[name], words.ctypes.data, 2, 0) for name, words in self.records]
        self.table = np.array(one * times, np.int64).reshape(-1, RECORD_WORDS)
        return pool().caller(self.table)

    @staticmethod
    def time(run: Callable[[], None]) -> tuple[float, float]:
        """Seconds of this thread's own, and of the clock's."""
        run()
        own, clock = time.thread_time(), time.perf_counter()
        run()
        return time.thread_time() - own, time.perf_counter() - clock


def least(runners: Mapping[str, tuple[Runner, int]]) -> tuple[dict[str, float], dict[str, float]]:
    """The least seconds of each, its own and the clock's, with as many threads as it is given, in turns."""
    own, clock = (dict.fromkeys(runners, float("inf")) for _ in range(2))
    for _ in range(ROUNDS):
        for name, (runner, threads) in runners.items():
            fluid.set_num_threads(threads)
            for least, seconds in zip((own, clock), runner.time(runner.run), strict=True):
                least[name] = min(least[name], seconds / runner.times)
    fluid.set_num_threads(1)
    return own, clock


def compiled(bodies: Mapping[str, tuple[int, Body]]) -> tuple[Library, float]:
    start = time.thread_time()
    module = Module(HOST)
    for name, (operands, body) in bodies.items():
        write_kernel(module, name, operands, body)
    code = compile_object(module.text, HOST)
    return Library([code], module.footprints), time.thread_time() - start


def aligned(shape: int | Sequence[int], dtype: Any = np.float32) -> Any:
    """An array of zeros that begins where a line of the cache does."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return aligned_bytes(np.zeros, size).view(dtype).reshape(shape)


def words(*arrays: Any) -> Any:
    return np.array([array if isinstance(array, int) else array.ctypes.data for array in arrays], np.int64)
