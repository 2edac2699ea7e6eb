"""Turns regions into tables of records: kernels, the addresses of their arrays, and flags."""

from __future__ import annotations

<<<<<<< HEAD
import hashlib
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any
=======
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
>>>>>>> 2e907f1 (A native kernel's text is written only where it is compiled)

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


_WRITING = threading.Lock()
"""Held while kernels are written: scopes share plans, so that several threads may bind the same regions."""
_WORKSPACE = -1
"""Stands for the address of the workspace."""
_Operand = tuple[int, Any, int]
"""An address, the value in whose array it lies, and bytes from the start of that."""
_Record = tuple[str, list[_Operand], int]
"""The name of a kernel, its operands, and flags."""


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


class _Record(NamedTuple):
    """A call of a kernel: its signature, the addresses that it is given, and flags."""

    kernel: str
    addresses: Sequence[int]
    flags: int


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
<<<<<<< HEAD
        self._texts: dict[str, str] = {}
        self._kernels: dict[Any, str] = {}
        self._records: list[list[_Record]] = []
        self._words: dict[Any, list[tuple[Any, int, int]]] = {}
        """Value -> the words that hold addresses in its array: the array of words, the place in it, and bytes from the start."""
=======
        self._tables: list[list[_Record]] = []
>>>>>>> 2e907f1 (A native kernel's text is written only where it is compiled)
        self._steps: list[Callable[[], None]] = []
        self._kernels: dict[str, list[tuple[str, int]]] = {}
        """Signature of a region -> its kernels, and the flags of their records."""
        self._writers: dict[str, Callable[[str], str]] = {}
        self._workspace_bytes = 0
        self._keep: list[Any] = []
        """What has to live as long as the steps."""

    def add(self, regions: Sequence[Region], array: Callable[[Any], Any]) -> Callable[[], None]:
        """The step that computes some neighbouring regions, once `compile` has been called."""
<<<<<<< HEAD
        records: list[_Record] = []

        def operand(value: Any, offset: int) -> _Operand:
            return array(value).ctypes.data + offset, value, offset

        for region in regions:
            operands = [*region.sources, *region.targets]
            addresses = [operand(region.value_of[node], at * node.element.bytes) for node, at in region.sources]
            for node, at in region.targets:
                addresses.append(operand(region.partial.get(node, region.value_of[node]), at * node.element.bytes))
            if region.nest is None:
                assert region.group.core is not None
                serial = SERIAL if is_small(region.group.core) else 0
                for name, flags in self._core_kernels(region, operands):
                    records.append((name, [*addresses, (_WORKSPACE, None, 0)], serial | AFTER_BARRIER | flags))
                continue
            serial = SERIAL if region.nest.is_serial else 0
            records.append((self._kernel(region, operands), addresses, serial | AFTER_BARRIER))
            for node, value in region.partial.items():
                assert region.nest is not None
                name = self._totals(region.nest.chunks, region.nest.columns, node)
                records.append((name, [operand(value, 0), operand(region.value_of[node], 0)], SERIAL | AFTER_BARRIER))
        place = len(self._records)
        self._records.append(records)
=======
        address, place = _Addresses(array), len(self._tables)
        self._tables.append([record for region in regions for record in self._records(region, address)])
>>>>>>> 2e907f1 (A native kernel's text is written only where it is compiled)
        return lambda: self._steps[place]()

    def _records(self, region: Region, address: Mapping[PlanValue, int]) -> Iterator[_Record]:
        value_of, sums = region.value_of, region.partial
        addresses = [address[value_of[node]] + at * node.element.bytes for node, at in region.sources]
        addresses += [address[sums.get(node) or value_of[node]] + at * node.element.bytes for node, at in region.targets]
        if region.nest is None:
            addresses.append(_WORKSPACE)
        flags = AFTER_BARRIER | (SERIAL if region.is_serial else 0)
        for kernel, own_flags in self._kernels_of(region):
            yield _Record(kernel, addresses, flags | own_flags)
        for node, value in sums.items():
            assert region.nest is not None
            kernel = self._totals(region.nest.chunks, region.nest.columns, node.element)
            yield _Record(kernel, [address[value], address[value_of[node]]], SERIAL | AFTER_BARRIER)

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

    def reader(self, value: Any, own: Any, overwritten: Sequence[Any]) -> Reader:
        """What moves the value from array to array, of those that are compiled."""
        spans = sorted((array.ctypes.data, array.ctypes.data + array.nbytes - 1) for array in overwritten if array.nbytes)
        return Reader(own, self._words.get(value, ()), spans)

    def compile(self) -> None:
        """Compile the kernels, and fill in the tables."""
        kernels = compile_kernels(self._writers)
        self._writers.clear()
        workspace = np.empty(self._workspace_bytes + 64, np.uint8)  # for as many threads as there may be; few pages are touched
        start = workspace.ctypes.data + -workspace.ctypes.data % 64
        self._keep = [kernels, workspace]
        if any(not record.flags & SERIAL for records in self._tables for record in records):
            self._keep.append(hold_blas())  # the threads of two pools that spin would take turns on the cores
<<<<<<< HEAD
        for records in self._records:
            table = np.zeros((len(records), RECORD_WORDS), np.int64)
            words = []
            for number, (name, operands, flags) in enumerate(records):
                words.append(np.array([start if address == _WORKSPACE else address for address, _, _ in operands], np.int64))
                table[number] = kernels.addresses[name], words[-1].ctypes.data, flags, 0
                for place, (_, value, offset) in enumerate(operands):
                    self._words.setdefault(value, []).append((words[-1], place, offset))
            self._keep += [table, words]
            self._steps.append(pool().caller(table))
=======
        for records in self._tables:
            words = np.array([start if word == _WORKSPACE else word for record in records for word in record.addresses], np.int64)
            place = words.ctypes.data
            rows = np.zeros((len(records), RECORD_WORDS), np.int64)
            for row, (kernel, addresses, flags) in zip(rows, records, strict=True):
                row[:3] = kernels.addresses[kernel], place, flags
                place += words.itemsize * len(addresses)
            self._keep += [rows, words]
            self._steps.append(pool().caller(rows))
>>>>>>> 2e907f1 (A native kernel's text is written only where it is compiled)


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
