"""Turns regions into kernel calls (plain data) and the writers of these kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from .cores import Phase, phases_of
from .emitter import Function, Type, Value
from .formulas import combine, neutral
from .fusion import source_of
from .graph import GraphNode, Reduction, offset_of
from .instructions import WORKSPACE, KernelCall, Operand, Writer, WrittenKernel
from .kernel import Share, written_kernel
from .loops import Nest
from .regions import NativeRegion
from .signatures import describe_region, digest_of, signature_of
from .target import Target


class Pointers:
    """The pointers of a kernel to its operands and outputs.

    `first` gives the pointer to an operand's first element, `start` to the start of a node's memory, and `output` to the first
    element of a stored node.
    """

    def __init__(self, region: NativeRegion, pointers: Sequence[Value]) -> None:
        self._reads = dict(zip(region.sources, pointers, strict=False))
        self._targets = dict(zip(region.targets, pointers[len(region.sources) :], strict=False))
        self.stored = frozenset(region.stored)
        self.core_output = region.core_output

    def first(self, operand: GraphNode) -> Value:
        return self._reads[source_of(operand), offset_of(operand)]

    def start(self, node: GraphNode) -> Value:
        return self._reads[node, 0] if (node, 0) in self._reads else self._targets[node, 0]

    def output(self, node: GraphNode) -> Value:
        return self._targets[node, offset_of(node)]


def find_calls(regions: Iterable[NativeRegion]) -> None:
    """Set the calls and writers of regions; regions with equal computations share kernels."""
    finder = _Finder()
    for region in regions:
        region.calls = list(finder.calls_of(region))
        region.writers = {call.kernel: finder.writers[call.kernel] for call in region.calls}


class _Finder:
    def __init__(self) -> None:
        self._kernels: dict[tuple[Any, ...], tuple[list[str], int]] = {}
        """Description of a region -> its kernels, and their workspace in bytes."""
        self.writers: dict[str, Writer] = {}

    def calls_of(self, region: NativeRegion) -> Iterator[KernelCall]:
        """The calls of a region's kernels, then the calls that add up its partial sums."""
        value_of, sums = region.value_of, region.partial
        kernels, region.workspace_bytes = self._kernels_of(region)
        operands: list[Operand] = [(value_of[node], at * node.element.bytes) for node, at in region.sources]
        operands += [(sums.get(node) or value_of[node], at * node.element.bytes) for node, at in region.targets]
        if region.nest is None:
            operands.append(WORKSPACE)
        for kernel in kernels:
            yield KernelCall(kernel, operands, region.is_serial)
        for node, value in sums.items():
            assert region.nest is not None and isinstance(node, Reduction)
            kernel = self._totals(node, region.nest, region.target)
            yield KernelCall(kernel, [(value, 0), (value_of[node], 0)], is_serial=True)

    def _kernels_of(self, region: NativeRegion) -> tuple[list[str], int]:
        description = describe_region(region)
        if description not in self._kernels:
            signature = signature_of(description)
            phases, workspace_bytes = _phases(region)
            kernels = [digest_of(signature, number) for number in range(len(phases))]
            self._kernels[description] = kernels, workspace_bytes
            self.writers.update((kernel, partial(_kernel, region, phase)) for kernel, phase in zip(kernels, phases, strict=True))
        return self._kernels[description]

    def _totals(self, node: Reduction, nest: Nest, target: Target) -> str:
        """The kernel that combines the parts of a reduction over rows."""
        signature = digest_of("totals", nest.chunks, nest.columns, node.element.element, node.kind)
        writer = partial(_kernel_of_totals, nest.chunks, nest.columns, node.element, node.kind, target)
        self.writers.setdefault(signature, writer)
        return signature


def _phases(region: NativeRegion) -> tuple[list[Phase], int]:
    """The writers of a region's kernels, in order, and their workspace in bytes."""
    nest = region.nest
    if nest is not None:
        return [lambda f, pointers, workspace, share: nest.write(f, pointers, share)], 0
    return phases_of(region.group, region.target)


def _kernel(region: NativeRegion, phase: Phase, name: str) -> WrittenKernel:
    """Write one kernel of a region."""

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        phase(f, Pointers(region, pointers), pointers[-1], share)

    return written_kernel(name, len(region.sources) + len(region.targets) + (region.nest is None), body, region.target)


def _kernel_of_totals(chunks: int, columns: int, element: Type, kind: str, target: Target, name: str) -> WrittenKernel:
    """Write a kernel that combines rows of partial results: sums, products, maxima or minima."""

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        parts, out = pointers
        at, width, most = 0, target.lanes(element.bytes), target.limits.summed_parts
        while at < columns:
            while width > columns - at:
                width //= 2

            def vector(i: Value, at: int = at, width: int = width) -> None:
                column, type_ = f.add(f.mul(i, width), at), element.of(width)
                begin = neutral(kind, type_)

                def part(number: Value, total: Value) -> list[Value]:
                    place = f.at(parts, f.add(f.mul(number, columns), column), element)
                    return [combine(f, kind, total, f.load(place, type_))]

                def some(first: Value, total: Value) -> list[Value]:
                    end = f.min(f.add(first, most), chunks)
                    return [combine(f, kind, total, *f.loop(first, end, 1, [begin], part, at_least_once=True))]

                (total,) = f.loop(0, chunks, most, [begin], some)
                f.store(total, f.at(out, column, element))

            count = (columns - at) // width
            f.loop(0, count, 1, [], vector)
            at += count * width

    return written_kernel(name, 2, body, target)
