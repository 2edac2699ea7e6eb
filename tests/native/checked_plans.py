"""Plans whose native code asks of each access whether it lies in the array that it is meant for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_bool, c_int64, c_void_p
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from fluid.executor.native import kernel, tables
from fluid.executor.native.block_compiler import NativeBlocks
from fluid.executor.native.bounds import Footprint
from fluid.executor.native.compiler import Library, compile_object
from fluid.executor.native.emitter import Module
from fluid.executor.native.instructions import BRANCH_FLAGS, UNLESS, KernelCall, Operand
from fluid.executor.native.kernel import checked_words, fault_in
from fluid.values.memory import aligned_bytes

__all__ = ["CheckedTables", "checked_plans"]

_KERNEL = CFUNCTYPE(None, c_void_p, c_int64, c_int64)
_THREADS = 3


class CheckedTables(tables.Tables):
    """Runs each record by some threads, one after the other, and then asks whether an access lay outside."""

    calls = 0
    """How often kernels were called, of all tables."""

    def compile(self, address: Any, size: Any) -> None:
        self._array = address.__self__.array  # of the plan that is bound
        kernel_texts = {kernel: write("kernel") for kernel, write in self._writers.items()}
        libraries = {
            kernel: Library([_compiled(text, self.target)], {"kernel": footprints})
            for kernel, (text, footprints) in kernel_texts.items()
        }
        self._workspace = aligned_bytes(np.empty, self._workspace_bytes)
        kernels = {kernel: _KERNEL(library.addresses["kernel"]) for kernel, library in libraries.items()}
        for calls in self._tables:
            words = np.array([self.bounds(operand)[0] for call in calls for operand in call.operands], np.int64)
            self._words.append(words)
            starts = accumulate((len(call.operands) for call in calls), initial=0)
            runs = []
            for call, start in zip(calls, starts, strict=False):
                bounds = [
                    _narrowed(self.bounds(operand), footprint)
                    for operand, footprint in zip(call.operands, kernel_texts[call.kernel].footprints, strict=True)
                ]
                runs.append(_run(call, kernels[call.kernel], words[start:], bounds))
            self._steps.append(partial(_run_all, list(zip(runs, tables.skips_of(calls), strict=True))))
        self._keep.append(libraries)

    def bounds(self, operand: Operand) -> tuple[int, int, int]:
        """The addresses of the first element, of the first byte and of the byte after the last."""
        value, offset = operand
        if value is None:
            start = self._workspace.ctypes.data
            return start, start, start + len(self._workspace)
        array = self._array(value)
        return array.ctypes.data + offset, *np.lib.array_utils.byte_bounds(array)


_compiled = lru_cache(256)(compile_object)
"""The object file of a text; plans that are bound again need the same ones."""


def _narrowed(bounds: tuple[int, int, int], footprint: Footprint) -> tuple[int, int, int]:
    """The bounds of a kernel's footprint: it accesses nothing outside."""
    first, low, high = bounds
    return first, max(low, first + footprint[0]), min(high, first + footprint[1])


def _run(call: KernelCall, kernel: Any, addresses: Any, bounds: Sequence[tuple[int, int, int]]) -> Callable[[], bool]:
    """A function that runs a kernel on operands at `addresses`; feeds may be read in place. Returns whether it skips records."""

    if call.kernel in BRANCH_FLAGS:
        return lambda: bool(c_bool.from_address(int(addresses[0])).value) == bool(BRANCH_FLAGS[call.kernel] & UNLESS)

    threads = 1 if call.is_serial else _THREADS

    def run() -> bool:
        moves = [int(address) - bound[0] for address, bound in zip(addresses, bounds, strict=False)]
        words = checked_words([tuple(each + move for each in bound) for bound, move in zip(bounds, moves, strict=True)])
        for thread in range(threads):
            kernel(words.ctypes.data, thread, threads)
            fault = fault_in(words)
            assert fault is None, f"operand {fault[0]} of a kernel is accessed at byte {fault[1]}, outside"
            CheckedTables.calls += 1
        return False

    return run


def _run_all(calls: Sequence[tuple[Callable[[], bool], int]]) -> None:
    """Run calls; each may skip so many of the next ones."""
    place = 0
    while place < len(calls):
        call, skipped = calls[place]
        place += 1 + (skipped if call() else 0)


@contextmanager
def checked_plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[CheckedTables]]:
    """Inside, plans are bound to kernels that check each access; their class counts calls."""
    with monkeypatch.context() as patches:
        patches.setattr(kernel, "Module", partial(Module, checked=True))
        patches.setattr(tables, "Tables", CheckedTables)
        patches.setattr(CheckedTables, "calls", 0)
        patches.setattr(NativeBlocks, "compile", lambda *args: None)  # blocks of loops go op by op: their tables are no plan's
        patches.setenv("FLUID_NATIVE_CACHE", "0")  # no plan is one that was bound to other kernels
        yield CheckedTables
