"""Turns regions into tables of records: kernels, the addresses of their arrays, and flags."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from fluid.ir.versions import Value as PlanValue

from ..threads import MOST_THREADS, hold_blas
from .cache import compile_kernels
from .compiler import host
from .cores import Phase, phases_of
from .emitter import Function, Module, Type, Value, zero
from .fusion import source_of
from .graph import Node, offset_of
from .kernel import AFTER_BARRIER, RECORD_WORDS, SERIAL, Share, write_kernel
from .pool import pool
from .regions import Region
from .signatures import signature_of, signed

__all__ = ["Reader", "Tables"]


class Pointers:
    """Where a kernel finds what it reads and stores.

    `first` is the pointer to the first element of an operand, `start` that to the beginning of a node's memory, and `target`
    that to the first element of a node that is stored.
    """

    def __init__(self, region: Region, pointers: Sequence[Value]) -> None:
        self._reads = dict(zip(region.sources, pointers, strict=False))
        self._targets = dict(zip(region.targets, pointers[len(region.sources) :], strict=False))
        self.stored = frozenset(region.stored)

    def first(self, operand: Node) -> Value:
        return self._reads[source_of(operand), offset_of(operand)]

    def start(self, node: Node) -> Value:
        return self._reads[node, 0] if (node, 0) in self._reads else self._targets[node, 0]

    def target(self, node: Node) -> Value:
        return self._targets[node, offset_of(node)]


class _Operand(NamedTuple):
    """What a kernel is given: an address, the value in whose array it lies, and bytes from the start of that."""

    address: int
    value: PlanValue | None
    offset: int


_WRITING = threading.Lock()
"""Held while kernels are written: scopes share plans, so that several threads may bind the same regions."""
_WORKSPACE = _Operand(-1, None, 0)
"""Stands for the workspace."""


class _Record(NamedTuple):
    """A call of a kernel: its signature, its operands, and flags."""

    kernel: str
    operands: Sequence[_Operand]
    flags: int


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


class _Addresses(dict[PlanValue, int]):
    """Value -> the address of its array, which numpy takes a while to tell."""

    def __init__(self, array: Callable[[PlanValue], Any]) -> None:
        self._array = array

    def __missing__(self, value: PlanValue) -> int:
        address: int = self._array(value).__array_interface__["data"][0]
        self[value] = address
        return address


class Tables:
    """The native code of a plan."""

    def __init__(self) -> None:
        self._tables: list[list[_Record]] = []
        self._words: list[Any] = []
        """The addresses that each table gives its kernels, in order."""
        self._steps: list[Callable[[], None]] = []
        self._kernels: dict[str, list[tuple[str, int]]] = {}
        """Signature of a region -> its kernels, and the flags of their records."""
        self._writers: dict[str, Callable[[str], str]] = {}
        self._workspace_bytes = 0
        self._keep: list[Any] = []
        """What has to live as long as the steps."""

    def add(self, regions: Sequence[Region], array: Callable[[Any], Any]) -> Callable[[], None]:
        """The step that computes some neighbouring regions, once `compile` has been called."""
        address, place = _Addresses(array), len(self._tables)
        self._tables.append([record for region in regions for record in self._records(region, address)])
        return lambda: self._steps[place]()

    def _records(self, region: Region, address: Mapping[PlanValue, int]) -> Iterator[_Record]:
        value_of, sums = region.value_of, region.partial

        def operand(value: PlanValue, offset: int = 0) -> _Operand:
            return _Operand(address[value] + offset, value, offset)

        operands = [operand(value_of[node], at * node.element.bytes) for node, at in region.sources]
        operands += [operand(sums.get(node) or value_of[node], at * node.element.bytes) for node, at in region.targets]
        if region.nest is None:
            operands.append(_WORKSPACE)
        flags = AFTER_BARRIER | (SERIAL if region.is_serial else 0)
        for kernel, own_flags in self._kernels_of(region):
            yield _Record(kernel, operands, flags | own_flags)
        for node, value in sums.items():
            assert region.nest is not None
            kernel = self._totals(region.nest.chunks, region.nest.columns, node.element)
            yield _Record(kernel, [operand(value), operand(value_of[node])], SERIAL | AFTER_BARRIER)

    def _kernels_of(self, region: Region) -> list[tuple[str, int]]:
        """The kernels of a region, and the flags of their records."""
        signature = signature_of(region)
        if signature not in self._kernels:
            phases = self._phases(region)
            kernels = [(signed(signature, number), phase.flags) for number, phase in enumerate(phases)]
            self._kernels[signature] = kernels
            self._writers.update(
                (kernel, partial(_text, region, phase)) for (kernel, _), phase in zip(kernels, phases, strict=True)
            )
        return self._kernels[signature]

    def _phases(self, region: Region) -> list[Phase]:
        nest = region.nest
        if nest is not None:
            return [Phase(lambda f, pointers, workspace, share: nest.write(f, pointers, share))]
        phases, bytes_ = phases_of(region.group, host().vector_bytes, MOST_THREADS)
        self._workspace_bytes = max(self._workspace_bytes, bytes_)
        return phases

    def _totals(self, chunks: int, columns: int, element: Type) -> str:
        """The kernel that adds up sums over parts of the rows."""
        signature = signed("totals", chunks, columns, element.element)
        self._writers.setdefault(signature, partial(_text_of_totals, chunks, columns, element))
        return signature

    def compile(self) -> None:
        """Compile the kernels, and fill in the tables."""
        with _WRITING:
            kernels = compile_kernels(self._writers)
        self._writers.clear()
        workspace = np.empty(self._workspace_bytes + 64, np.uint8)  # for as many threads as there may be; few pages are touched
        start = workspace.ctypes.data + -workspace.ctypes.data % 64
        self._keep = [kernels, workspace]
        if any(not record.flags & SERIAL for records in self._tables for record in records):
            self._keep.append(hold_blas())  # the threads of two pools that spin would take turns on the cores
        for records in self._tables:
            operands = [operand for record in records for operand in record.operands]
            words = np.array([start if operand is _WORKSPACE else operand.address for operand in operands], np.int64)
            place = words.ctypes.data
            rows = np.zeros((len(records), RECORD_WORDS), np.int64)
            for row, record in zip(rows, records, strict=True):
                row[:3] = kernels.addresses[record.kernel], place, record.flags
                place += words.itemsize * len(record.operands)
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
        for words, records in zip(self._words, self._tables, strict=True):
            for place, operand in enumerate(operand for record in records for operand in record.operands):
                if operand.value is not None:
                    places[operand.value].append((words, place, operand.offset))
        return dict(places)


def _text(region: Region, phase: Phase, name: str) -> str:
    """The text of a module with a kernel of a region."""

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        phase.write(f, Pointers(region, pointers), pointers[-1], share)

    module = Module()
    write_kernel(module, name, len(region.sources) + len(region.targets) + (region.nest is None), body)
    return module.text


def _text_of_totals(chunks: int, columns: int, element: Type, name: str) -> str:
    """The text of a module with a kernel that adds up rows, of which each is a part of the sums."""

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        parts, out = pointers
        at, width = 0, host().vector_bytes // element.bytes
        while at < columns:
            while width > columns - at:
                width //= 2

            def vector(i: Value, at: int = at, width: int = width) -> None:
                column, type_ = f.add(f.mul(i, width), at), element.of(width)

                def part(number: Value, total: Value) -> list[Value]:
                    place = f.at(parts, f.add(f.mul(number, columns), column), element)
                    return [f.add(total, f.load(place, type_))]

                (total,) = f.loop(0, chunks, 1, [zero(type_)], part)
                f.store(total, f.at(out, column, element))

            count = (columns - at) // width
            f.loop(0, count, 1, [], vector)
            at += count * width

    module = Module()
    write_kernel(module, name, 2, body)
    return module.text
