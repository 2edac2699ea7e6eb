"""Turns regions into tables of records: kernels are written, compiled and given the addresses of their arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..threads import MOST_THREADS, hold_blas
from .cache import compile_kernels
from .compiler import host
from .cores import Phase, is_small, phases_of
from .emitter import Function, Module, Value, zero
from .fusion import source_of
from .graph import Constant, Node, Position, offset_of, operands_of, strides_of
from .kernel import AFTER_BARRIER, RECORD_WORDS, SERIAL, Share, write_kernel
from .pool import pool
from .regions import Region

__all__ = ["Tables"]


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


_WORKSPACE = -1
"""Stands for the address of the workspace."""


class Tables:
    """The native code of a plan."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._kernels: dict[Any, str] = {}
        self._records: list[list[tuple[str, list[int], int]]] = []
        self._steps: list[Callable[[], None]] = []
        self._keep: list[Any] = []
        self._workspace_bytes = 0
        self._labels: dict[str, str] = {}
        self._core_names: dict[Any, list[tuple[str, int]]] = {}

    def add(self, regions: Sequence[Region], array: Callable[[Any], Any]) -> Callable[[], None]:
        """The step that computes some neighbouring regions, once `compile` has been called."""
        records: list[tuple[str, list[int], int]] = []
        for region in regions:
            operands = [*region.sources, *region.targets]
            addresses = [array(region.value_of[node]).ctypes.data + at * node.element.bytes for node, at in region.sources]
            for node, at in region.targets:
                addresses.append(array(region.partial.get(node, region.value_of[node])).ctypes.data + at * node.element.bytes)
            if region.nest is None:
                assert region.group.core is not None
                serial = SERIAL if is_small(region.group.core) else 0
                for name, flags in self._core_kernels(region, operands):
                    records.append((name, [*addresses, _WORKSPACE], serial | AFTER_BARRIER | flags))
                continue
            serial = SERIAL if region.nest.is_serial else 0
            records.append((self._kernel(region, operands), addresses, serial | AFTER_BARRIER))
            for node, value in region.partial.items():
                assert region.nest is not None
                name = self._totals(region.nest.chunks, region.nest.columns, node)
                records.append(
                    (name, [array(value).ctypes.data, array(region.value_of[node]).ctypes.data], SERIAL | AFTER_BARRIER)
                )
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

                names.append(
                    (
                        self._named(lambda module, name, body=body: write_kernel(module, name, len(operands) + 1, body)),
                        phase.flags,
                    )
                )
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
            words = [
                np.array([start if item == _WORKSPACE else item for item in addresses], np.int64) for _, addresses, _ in records
            ]
            for number, (name, _, flags) in enumerate(records):
                table[number] = kernels.addresses[name], words[number].ctypes.data, flags, 0
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
            return type(node).__name__, node.element, getattr(node, "number", None), node.shape
        source = source_of(node)
        where = strides_of(node), node.shape, source.halo
        at = reads.get((source, offset_of(node)), reads.get((source, 0)))
        return ("group", place[source], at, where) if source in place else ("memory", at, source.element, where)

    nodes = [
        (
            type(node).__name__, getattr(node, "formula", getattr(node, "kind", getattr(node, "axes", None))), getattr(node, "axes", None),
            node.shape, node.element, tuple(reference(operand) for operand in operands_of(node)), stored.get(node), node in region.partial, node.halo, node.within and node.within.strides, repr(getattr(node, "windows", None)), getattr(node, "images", None), getattr(node, "for_input", None),
        )
        for node in all_nodes
    ]  # fmt: skip
    return tuple(nodes), len(region.group.uniform), region.group.columns, region.nest is None
