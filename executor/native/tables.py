"""Turns regions into tables of records: kernels are written, compiled and given the addresses of their arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .compiler import Library, compile_object, host
from ..threads import get_num_threads
from .emitter import Function, Module, Value, zero
from .fusion import source_of
from .graph import Constant, Node, Position, operands_of
from .kernel import AFTER_BARRIER, RECORD_WORDS, SERIAL, Share, write_kernel
from .pool import pool
from .products import product_workspace, write_product_group
from .regions import Region

__all__ = ["Tables"]


_WORKSPACE = -1
"""Stands for the address of the workspace."""
_SERIAL_PRODUCT = 1 << 17
"""Products of fewer multiplications are computed by one thread."""


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

    def add(self, regions: Sequence[Region], array: Callable[[Any], Any]) -> Callable[[], None]:
        """The step that computes some neighbouring regions, once `compile` has been called."""
        records: list[tuple[str, list[int], int]] = []
        for region in regions:
            operands = [*region.sources, *region.stored]
            arrays = [array(region.value_of[node]) for node in region.sources]
            arrays += [array(region.partial.get(node, region.value_of[node])) for node in region.stored]
            addresses = [item.ctypes.data for item in arrays]
            if region.nest is None:
                need = product_workspace(region.group, host().vector_bytes)
                self._workspace_bytes = max(self._workspace_bytes, need)
                product = region.group.product
                serial = SERIAL if product.size * product.left.shape[-1] < _SERIAL_PRODUCT else 0
                addresses.append(_WORKSPACE)
            else:
                serial = SERIAL if region.nest.is_serial else 0
            records.append((self._kernel(region, operands), addresses, serial | AFTER_BARRIER))
            for node, value in region.partial.items():
                assert region.nest is not None
                name = self._totals(region.nest.chunks, region.nest.columns, node)
                records.append((name, [array(value).ctypes.data, array(region.value_of[node]).ctypes.data], SERIAL | AFTER_BARRIER))
        place = len(self._records)
        self._records.append(records)
        return lambda: self._steps[place]()

    def _named(self, write: Callable[[Module, str], None]) -> str:
        module = Module()
        write(module, "KERNEL")
        name = "k" + hashlib.sha256(module.text.encode()).hexdigest()[:24]
        self._texts[name] = module.text.replace("@KERNEL", "@" + name)
        return name

    def _kernel(self, region: Region, operands: list[Node]) -> str:
        key = _signature(region, operands)
        if key not in self._kernels:
            def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
                by_node = dict(zip(operands, pointers, strict=False))
                if region.nest is None:
                    write_product_group(f, region.group, by_node, pointers[-1], share, host().vector_bytes)
                else:
                    region.nest.write(f, by_node, share)

            self._kernels[key] = self._named(lambda module, name: write_kernel(module, name, len(operands) + (region.nest is None), body))
            self._labels[self._kernels[key]] = region.describe()
        return self._kernels[key]

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
        target = host()
        parts = {line: None for text in self._texts.values() for line in text.split("\n") if line.startswith("declare")}
        bodies = ["\n".join(line for line in text.split("\n") if not line.startswith("declare")) for text in self._texts.values()]
        library = Library(compile_object("\n".join([*parts, *bodies]), target), list(self._texts))
        workspace = np.empty(self._workspace_bytes * get_num_threads() + 64, np.uint8)
        start = workspace.ctypes.data + -workspace.ctypes.data % 64
        self._keep = [library, workspace]
        for records in self._records:
            table = np.zeros((len(records), RECORD_WORDS), np.int64)
            words = [np.array([start if item == _WORKSPACE else item for item in addresses], np.int64) for _, addresses, _ in records]
            for number, (name, _, flags) in enumerate(records):
                table[number] = library.addresses[name], words[number].ctypes.data, flags, 0
            self._keep += [table, words]
            self._steps.append(pool().caller(table))


def _signature(region: Region, operands: Sequence[Node]) -> Any:
    """What the kernel of a region depends on: what is computed in which shapes, not of which arrays."""
    number = {node: place for place, node in enumerate(operands)}
    all_nodes = [*region.group.uniform, *region.group.nodes]
    place = {node: place for place, node in enumerate(all_nodes)}

    def reference(node: Node) -> Any:
        if isinstance(node, (Constant, Position)):
            return type(node).__name__, node.element, getattr(node, "number", None), node.shape
        source = source_of(node)
        where = getattr(node, "offset", 0), getattr(node, "strides", None), node.shape
        return ("group", place[source], where) if source in place else ("memory", number[source], source.element, where)

    nodes = [
        (
            type(node).__name__, getattr(node, "formula", getattr(node, "kind", getattr(node, "axes", None))), getattr(node, "axes", None),
            node.shape, node.element, tuple(reference(operand) for operand in operands_of(node)), number.get(node), node in region.partial,
        )
        for node in all_nodes
    ]  # fmt: skip
    return tuple(nodes), len(region.group.uniform), region.group.columns, region.nest is None
