"""Turns regions into tables of records: kernels are written, compiled and given the addresses of their arrays."""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ..threads import MOST_THREADS, hold_blas
from .cache import compile_kernels
from .compiler import host
from .cores import Phase, is_small, phases_of
from .emitter import Function, Module, Value, zero
from .fusion import source_of
from .graph import Constant, Node, Position, offset_of, operands_of, settings_of, strides_of
from .kernel import AFTER_BARRIER, RECORD_WORDS, SERIAL, Share, write_kernel
from .pool import pool
from .regions import Region

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


class Tables:
    """The native code of a plan."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._kernels: dict[Any, str] = {}
        self._records: list[list[_Record]] = []
        self._words: dict[Any, list[tuple[Any, int, int]]] = {}
        """Value -> the words that hold addresses in its array: the array of words, the place in it, and bytes from the start."""
        self._steps: list[Callable[[], None]] = []
        self._keep: list[Any] = []
        self._workspace_bytes = 0
        self._labels: dict[str, str] = {}
        self._core_names: dict[Any, list[tuple[str, int]]] = {}

    def add(self, regions: Sequence[Region], array: Callable[[Any], Any]) -> Callable[[], None]:
        """The step that computes some neighbouring regions, once `compile` has been called."""
        with _WRITING:
            return self._add(regions, array)

    def _add(self, regions: Sequence[Region], array: Callable[[Any], Any]) -> Callable[[], None]:
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
        return lambda: self._steps[place]()

    def _named(self, write: Callable[[Module, str], None]) -> str:
        module = Module()
        write(module, "KERNEL")
        name = "k" + hashlib.sha256(module.text.encode()).hexdigest()[:24]
        self._texts[name] = module.text.replace("@KERNEL", "@" + name)
        return name

    def _kernel(self, region: Region, operands: Sequence[tuple[Node, int]]) -> str:
        key = _signature(region, operands)
        if key not in self._kernels:

            def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
                assert region.nest is not None
                region.nest.write(f, Pointers(region, pointers), share)

            self._kernels[key] = self._named(lambda module, name: write_kernel(module, name, len(operands), body))
            self._labels[self._kernels[key]] = region.describe()
        return self._kernels[key]

    def _core_kernels(self, region: Region, operands: Sequence[tuple[Node, int]]) -> list[tuple[str, int]]:
        """The kernels of a group with a core, and the flags of their records."""
        key = _signature(region, operands)
        if key not in self._core_names:
            phases, bytes_ = phases_of(region.group, host().vector_bytes, MOST_THREADS)
            self._workspace_bytes = max(self._workspace_bytes, bytes_)
            names = []
            for phase in phases:

                def body(f: Function, pointers: Sequence[Value], share: Share, phase: Phase = phase) -> None:
                    phase.write(f, Pointers(region, pointers), pointers[-1], share)

                write = partial(write_kernel, operands=len(operands) + 1, body=body)
                names.append((self._named(write), phase.flags))
                self._labels[names[-1][0]] = region.describe()
            self._core_names[key] = names
        return self._core_names[key]

    def _totals(self, chunks: int, columns: int, node: Node) -> str:
        key = "totals", chunks, columns, node.element
        if key not in self._kernels:

            def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
                parts, out = pointers
                at, width = 0, host().vector_bytes // node.element.bytes
                while at < columns:
                    while width > columns - at:
                        width //= 2

                    def vector(i: Value, at: int = at, width: int = width) -> None:
                        column, type_ = f.add(f.mul(i, width), at), node.element.of(width)

                        def part(number: Value, total: Value) -> list[Value]:
                            place = f.at(parts, f.add(f.mul(number, columns), column), node.element)
                            return [f.add(total, f.load(place, type_))]

                        (total,) = f.loop(0, chunks, 1, [zero(type_)], part)
                        f.store(total, f.at(out, column, node.element))

                    count = (columns - at) // width
                    f.loop(0, count, 1, [], vector)
                    at += count * width

            self._kernels[key] = self._named(lambda module, name: write_kernel(module, name, 2, body))
        return self._kernels[key]

    def reader(self, value: Any, own: Any, overwritten: Sequence[Any]) -> Reader:
        """What moves the value from array to array, of those that are compiled."""
        spans = sorted((array.ctypes.data, array.ctypes.data + array.nbytes - 1) for array in overwritten if array.nbytes)
        return Reader(own, self._words.get(value, ()), spans)

    def let_lie(self, value: Any, address: int) -> None:
        """Let the array of a value begin at an address, from the next run on."""
        for words, place, offset in self._words.get(value, ()):
            words[place] = address + offset

    def compile(self) -> None:
        """Compile the kernels, and fill in the tables."""
        kernels = compile_kernels(self._texts)
        workspace = np.empty(self._workspace_bytes + 64, np.uint8)  # for as many threads as there may be; few pages are touched
        start = workspace.ctypes.data + -workspace.ctypes.data % 64
        self._keep = [kernels, workspace]
        if any(not flags & SERIAL for records in self._records for _, _, flags in records):
            self._keep.append(hold_blas())  # the threads of two pools that spin would take turns on the cores
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


def _signature(region: Region, operands: Sequence[tuple[Node, int]]) -> Any:
    """What the kernel of a region depends on: what is computed in which shapes, not of which arrays."""
    reads = {place: number for number, place in enumerate(region.sources)}
    stored = {node: number for number, (node, _) in enumerate(region.targets)}
    all_nodes = [*region.group.uniform, *region.group.nodes]
    place = {node: place for place, node in enumerate(all_nodes)}

    def reference(node: Node) -> Any:
        if isinstance(node, (Constant, Position)):
            return settings_of(node)
        source = source_of(node)
        where = strides_of(node), node.shape, source.halo
        at = reads.get((source, offset_of(node)), reads.get((source, 0)))
        return ("group", place[source], at, where) if source in place else ("memory", at, source.element, where)

    nodes = [
        (
            settings_of(node),
            tuple(reference(operand) for operand in operands_of(node)),
            stored.get(node),
            node in region.partial,
            node.halo,
            node.within and node.within.strides,
        )
        for node in all_nodes
    ]
    return tuple(nodes), len(region.group.uniform), region.group.columns, region.nest is None
