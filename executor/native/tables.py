"""Turns calls of kernels into tables of records: kernels, the addresses of their arrays, and flags."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import numpy as np

from fluid.ir.versions import Value as PlanValue
from fluid.values.memory import aligned_bytes

from ..runtime.threads import hold_blas
from . import compiler
from .cache import compile_kernels
from .instructions import AFTER_BARRIER, RECORD_WORDS, SERIAL, KernelCall, NativeInstruction, Writer
from .pool import pool
from .verifying import verify_accesses

__all__ = ["Reader", "Tables", "flags_of"]

_WRITING = threading.Lock()
"""Held while kernels are written: scopes share plans, so that several threads may bind the same regions."""


def flags_of(calls: Iterable[KernelCall]) -> Iterator[int]:
    """The flags of the records of calls, each of which may need what those before it compute.

    There is a barrier where one thread has to wait for another. The first record has none, as all threads have met at the end of
    the table before; nor has one that the first thread computes alone, as it has those since the last barrier.
    """
    is_first, is_shared = True, False
    for call in calls:
        waits = not is_first and (is_shared or not call.is_serial)
        yield (SERIAL if call.is_serial else 0) | (AFTER_BARRIER if waits else 0)
        is_first, is_shared = False, not call.is_serial


class Reader:
    """Lets native code read a value from another array than its own, where that can be.

    Args:
        own: the value's own array.
        words: where addresses in it stand (see `Tables`).
        spans: the first and the last byte of each array that a run overwrites, in order.
    """

    def __init__(self, own: Any, words: Sequence[tuple[Any, int, int]], spans: Sequence[tuple[int, int]]) -> None:
        self._own, self._words, self._at = own, words, own.ctypes.data
        self._firsts = [first for first, _ in spans]
        self._lasts = list(accumulate((last for _, last in spans), max))

    def take(self, array: Any) -> bool:
        """Read the value from `array` in the next run, if that can be; otherwise from its own array. Returns whether it can.

        It has to be laid out like its own, and to share no memory with what a run overwrites.
        """
        address = array.ctypes.data if self._is_like_own(array) else 0
        is_taken = bool(address) and not self._is_overwritten(address, address + array.nbytes - 1)
        self._move(address if is_taken else self._own.ctypes.data)
        return is_taken

    def _is_like_own(self, array: Any) -> bool:
        if type(array) is not np.ndarray or array.dtype != self._own.dtype or array.shape != self._own.shape:
            return False
        return bool(array.flags.c_contiguous and array.flags.aligned)

    def _is_overwritten(self, first: int, last: int) -> bool:
        place = bisect_right(self._firsts, last)
        return place > 0 and self._lasts[place - 1] >= first

    def _move(self, address: int) -> None:
        if address != self._at:
            for words, place, offset in self._words:
                words[place] = address + offset
            self._at = address


class _Addresses(dict["PlanValue | None", int]):
    """Value -> the address of its array; None -> that of the workspace."""

    def __init__(self, address: Callable[[PlanValue], int]) -> None:
        self._address = address

    def __missing__(self, value: PlanValue) -> int:
        self[value] = address = self._address(value)
        return address


class Tables:
    """The native code of a plan."""

    def __init__(self) -> None:
        self.target = compiler.host()
        self._tables: list[list[KernelCall]] = []
        self._words: list[Any] = []
        """The addresses that each table gives its kernels, in order."""
        self._steps: list[Callable[[], None]] = []
        self._writers: dict[str, Writer] = {}
        self._workspace_bytes = 0
        self._keep: list[Any] = []
        """What has to live as long as the steps."""

    def add(self, instructions: Sequence[NativeInstruction]) -> Callable[[], None]:
        """The step that computes some neighbouring instructions, once `compile` has been called."""
        place = len(self._tables)
        self._tables.append([call for instruction in instructions for call in instruction.calls])
        for instruction in instructions:
            self._writers.update(instruction.writers)
            self._workspace_bytes = max(self._workspace_bytes, instruction.workspace_bytes)
        return lambda: self._steps[place]()

    def compile(self, address: Callable[[PlanValue], int], size: Callable[[PlanValue], int]) -> None:
        """Compile the kernels, and fill in the tables, of arrays at these addresses, with so many bytes.

        Raises:
            NativeUnavailable: kernels cannot be made here, or they access more than their operands.
        """
        with _WRITING:
            kernels = compile_kernels(self._writers, self.target)
        self._writers.clear()
        verify_accesses(chain(*self._tables), kernels.footprints, size, self._workspace_bytes)
        workspace = aligned_bytes(np.empty, self._workspace_bytes)  # for as many threads as there may be; few pages are touched
        address_of = _Addresses(address)
        address_of[None] = workspace.ctypes.data
        self._keep = [kernels, workspace]
        if not all(call.is_serial for calls in self._tables for call in calls):
            self._keep.append(hold_blas())  # the threads of two pools that spin would take turns on the cores
        for calls in self._tables:
            words = np.array([address_of[value] + offset for call in calls for value, offset in call.operands], np.int64)
            place = words.ctypes.data
            rows = np.zeros((len(calls), RECORD_WORDS), np.int64)
            for row, call, flags in zip(rows, calls, flags_of(calls), strict=True):
                row[:3] = kernels.addresses[call.kernel], place, flags
                place += words.itemsize * len(call.operands)
            self._keep.append(rows)
            self._words.append(words)
            self._steps.append(pool().caller(rows))

    def reader(self, value: PlanValue, own: Any, overwritten: Sequence[Any]) -> Reader:
        """What moves the value from array to array, of those that are compiled."""
        spans = sorted((array.ctypes.data, array.ctypes.data + array.nbytes - 1) for array in overwritten if array.nbytes)
        return Reader(own, self._places.get(value, ()), spans)

    def let_lie(self, value: PlanValue, address: int) -> None:
        """Let the array of a value begin at an address, from the next run on, if it is compiled."""
        for words, place, offset in self._places.get(value, ()):
            words[place] = address + offset

    @cached_property
    def _places(self) -> dict[PlanValue, list[tuple[Any, int, int]]]:
        """Value -> the words that tell where it is, and what they say more than where its array begins; of what is compiled."""
        places: dict[PlanValue, list[tuple[Any, int, int]]] = defaultdict(list)
        for words, calls in zip(self._words, self._tables, strict=True):
            for place, (value, offset) in enumerate(operand for call in calls for operand in call.operands):
                if value is not None:
                    places[value].append((words, place, offset))
        return dict(places)
