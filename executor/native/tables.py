"""Builds tables of kernel calls. A record holds the address of a kernel, of its operands' addresses, and flags."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import numpy as np

from fluid.ir.versions import Value as PlanValue
from fluid.values.memory import aligned_bytes

from ..runtime.threads import hold_blas
from .cache import Kernels, compile_kernels
from .instructions import (
    ALL_RECORDS,
    BEGIN_LOOP,
    BRANCH_FLAGS,
    END_BRANCH,
    GO_ON,
    LEAVE_LOOP,
    RECORD_WORDS,
    REPEAT_LOOP,
    SERIAL,
    STOP,
    KernelCall,
    NativeInstruction,
    Writer,
)
from .pool import pool
from .target import Target
from .verifying import verify_accesses


def flags_of(calls: Iterable[KernelCall]) -> list[int]:
    """The flags of the calls' records."""
    return [(SERIAL if call.is_serial else 0) | BRANCH_FLAGS.get(call.kernel, 0) for call in calls]


def skips_of(calls: Sequence[KernelCall]) -> list[int]:
    """For each call, the number of records that it may skip: between a branch and its end, in a loop, or to the end of the table.

    A negative number leads back to the first record of a loop.
    """
    skips, open_branches, open_loops = [0] * len(calls), list[int](), list[list[int]]()
    for place, call in enumerate(calls):
        if call.kernel == BEGIN_LOOP:
            open_loops.append([place])
        elif call.kernel == LEAVE_LOOP:
            open_loops[-1].append(place)
        elif call.kernel == REPEAT_LOOP:
            exits = open_loops.pop()
            skips[place] = exits[0] - place
            for start in exits:
                skips[start] = place - start
        elif call.kernel == END_BRANCH:
            start = open_branches.pop()
            skips[start] = place - start - 1
        elif call.kernel in (GO_ON, STOP):
            skips[place] = ALL_RECORDS
        elif call.kernel in BRANCH_FLAGS:
            open_branches.append(place)
    assert not open_branches and not open_loops, "each branch and each loop ends in its table"
    return skips


def records_of(calls: Sequence[KernelCall], kernels: Kernels, words: int) -> Any:
    """The records of calls: an int64 array of shape [records, `RECORD_WORDS`].

    Args:
        words: the address of the calls' operand addresses, which follow each other.
    """
    sizes = np.array([len(call.operands) for call in calls], np.int64)
    rows = np.zeros((len(calls), RECORD_WORDS), np.int64)
    rows[:, 0] = [kernels.addresses[call.kernel] for call in calls]
    rows[:, 1] = words + (np.cumsum(sizes) - sizes) * rows.itemsize
    rows[:, 2], rows[:, 3] = flags_of(calls), skips_of(calls)
    return rows


class FeedReader:
    """Points native code at a caller's array in place of the value's default array, to save a copy.

    Args:
        default: the array that the plan allocated for the value.
        words: table words that hold addresses within the array (see `Tables._places`).
        spans: first and last byte of each array that a run overwrites, sorted.
    """

    def __init__(self, default: Any, words: Sequence[tuple[Any, int, int]], spans: Sequence[tuple[int, int]]) -> None:
        self._default, self._words, self._at = default, words, default.ctypes.data
        self._last: weakref.ref[Any] | None = None
        """The array that was taken last: it can be taken again."""
        self._firsts = [first for first, _ in spans]
        self._lasts = list(accumulate((last for _, last in spans), max))

    def take(self, array: Any) -> bool:
        """Read the value from `array` in the next run if possible, else from the default array. Returns whether it is possible.

        `array` needs the layout of the default array, and must not alias an array that the run overwrites.
        """
        last = self._last() if self._last is not None else None
        if last is not None and last is array and last.flags.c_contiguous:
            return True
        address = array.ctypes.data if self._has_default_layout(array) else 0
        is_taken = bool(address) and not self._is_overwritten(address, address + array.nbytes - 1)
        self._move(address if is_taken else self._default.ctypes.data)
        self._last = weakref.ref(array) if is_taken else None
        return is_taken

    def _has_default_layout(self, array: Any) -> bool:
        if type(array) is not np.ndarray or array.dtype != self._default.dtype or array.shape != self._default.shape:
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
    """Value -> the address of its array; None -> the address of the workspace."""

    def __init__(self, address: Callable[[PlanValue], int]) -> None:
        self._address = address

    def __missing__(self, value: PlanValue) -> int:
        self[value] = address = self._address(value)
        return address


def loaded(
    calls: Sequence[KernelCall],
    writers: Mapping[str, Writer],
    size: Callable[[PlanValue], int],
    workspace_bytes: int,
    target: Target,
) -> tuple[Kernels, int, list[Any]]:
    """Compile and verify the kernels of calls, and allocate their workspace.

    Args:
        size: value -> bytes of its array.

    Returns:
        The kernels, the address of the workspace, and objects that must live as long as the calls.

    Raises:
        NativeUnavailable: kernels cannot be compiled here, or access memory outside their operands.
    """
    kernels = compile_kernels(writers, target)
    verify_accesses(calls, kernels.footprints, size, workspace_bytes)
    workspace = aligned_bytes(np.empty, workspace_bytes)  # for the most threads possible; few pages are touched
    kept_alive: list[Any] = [kernels, workspace]
    if not all(call.is_serial for call in calls):
        kept_alive.append(hold_blas())  # the threads of two pools that spin would take turns on the cores
    return kernels, workspace.ctypes.data, kept_alive


class Tables:
    """The native code of a plan.

    Args:
        target: the processor that the plan was made for.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._tables: list[list[KernelCall]] = []
        self._words: list[Any] = []
        """Operand addresses of each table, in the order of its calls."""
        self._steps: list[Callable[[], None]] = []
        self._added: dict[Callable[[], None], int] = {}
        """Step that `add` returned -> the number of its table."""
        self._writers: dict[str, Writer] = {}
        self._workspace_bytes = 0
        self._keep: list[Any] = []
        """Objects that must live as long as the steps."""

    def add(self, instructions: Sequence[NativeInstruction]) -> Callable[[], None]:
        """Add consecutive instructions as one table; returns a step that runs it, callable after `compile`."""
        place = len(self._tables)
        self._tables.append([call for instruction in instructions for call in instruction.calls])
        for instruction in instructions:
            self._writers.update(instruction.writers)
            self._workspace_bytes = max(self._workspace_bytes, instruction.workspace_bytes)

        def step() -> None:
            self._steps[place]()

        self._added[step] = place
        return step

    def compiled(self, step: Callable[[], None]) -> Callable[[], None]:
        """The function that a step of `add` calls, after `compile`; any other step itself."""
        return self._steps[self._added[step]] if step in self._added else step

    def compile(self, address: Callable[[PlanValue], int], size: Callable[[PlanValue], int]) -> None:
        """Compile the kernels and fill in the tables.

        Args:
            address: value -> address of its array.
            size: value -> bytes of its array.

        Raises:
            NativeUnavailable: kernels cannot be compiled here, or access memory outside their operands.
        """
        kernels, workspace, self._keep = loaded(
            list(chain(*self._tables)), self._writers, size, self._workspace_bytes, self.target
        )
        self._writers.clear()
        address_of = _Addresses(address)
        address_of[None] = workspace
        for calls in self._tables:
            words = np.array([address_of[value] + offset for call in calls for value, offset in call.operands], np.int64)
            rows = records_of(calls, kernels, words.ctypes.data)
            self._keep.append(rows)
            self._words.append(words)
            self._steps.append(pool().caller(rows))

    def reader(self, value: PlanValue, default: Any, overwritten: Sequence[Any]) -> FeedReader:
        """A `FeedReader` for a value of the compiled tables; `overwritten` are the arrays that a run overwrites."""
        spans = sorted((array.ctypes.data, array.ctypes.data + array.nbytes - 1) for array in overwritten if array.nbytes)
        return FeedReader(default, self._places.get(value, ()), spans)

    def set_address(self, value: PlanValue, address: int) -> None:
        """Set the address of a value's array for the next runs; a no-op if no table uses the value."""
        for words, place, offset in self._places.get(value, ()):
            words[place] = address + offset

    @cached_property
    def _places(self) -> dict[PlanValue, list[tuple[Any, int, int]]]:
        """Value -> table words that hold its address, each with a byte offset."""
        places: dict[PlanValue, list[tuple[Any, int, int]]] = defaultdict(list)
        for words, calls in zip(self._words, self._tables, strict=True):
            for place, (value, offset) in enumerate(operand for call in calls for operand in call.operands):
                if value is not None:
                    places[value].append((words, place, offset))
        return dict(places)
