"""Turns regions into tables of records: kernels are written, compiled and given the addresses of their arrays."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .compiler import Library, compile_object, host
from .emitter import FLOAT, INT64, POINTER, Function, Module, Value, zero
from .fusion import source_of
from .graph import Constant, Node, Position, operands_of
from .kernel import AFTER_BARRIER, RECORD_WORDS, SERIAL, Share, write_kernel
from .products import write_product_group
from .regions import Region

__all__ = ["Tables"]


class Tables:
    """The native code of a plan."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._kernels: dict[Any, str] = {}
        self._records: list[list[tuple[str, list[int], int]]] = []
        self._steps: list[Callable[[], None]] = []
        self._keep: list[Any] = []

    def add(self, regions: Sequence[Region], array: Callable[[Any], Any]) -> Callable[[], None]:
        """The step that computes some neighbouring regions, once `compile` has been called."""
        records: list[tuple[str, list[int], int]] = []
        for region in regions:
            operands = [*region.sources, *region.stored]
            arrays = [array(region.value_of[node]) for node in region.sources]
            arrays += [array(region.partial.get(node, region.value_of[node])) for node in region.stored]
            addresses = [item.ctypes.data for item in arrays]
            serial = SERIAL if region.nest is None or region.nest.is_serial else 0
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
                by_node = dict(zip(operands, pointers, strict=True))
                if region.nest is None:
                    write_product_group(f, region.group, by_node, share, host().vector_bytes // 4)
                else:
                    region.nest.write(f, by_node, share)

            self._kernels[key] = self._named(lambda module, name: write_kernel(module, name, len(operands), body))
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
        runner = Module()
        _write_run(runner)
        text = "\n".join([*parts, *bodies, runner.text])
        library = Library(compile_object(text, target), [*self._texts, "run"])
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.addresses["run"])
        self._keep = [library]
        for records in self._records:
            table = np.zeros((len(records), RECORD_WORDS), np.int64)
            words = [np.array(addresses, np.int64) for _, addresses, _ in records]
            for number, (name, _, flags) in enumerate(records):
                table[number] = library.addresses[name], words[number].ctypes.data, flags, 0
            self._keep += [table, words]
            self._steps.append(_step(run, table))


def _step(run: Any, table: Any) -> Callable[[], None]:
    address, count = table.ctypes.data, len(table)
    return lambda: run(address, count)


def _write_run(module: Module) -> None:
    f = Function(module, "run", [POINTER, INT64])
    table, count = f.arguments

    def record(number: Value) -> None:
        place = f.at(table, f.mul(number, RECORD_WORDS), INT64)
        kernel, operands = f.load(place, POINTER), f.load(f.at(place, 1, INT64), POINTER)
        f.write(f"call void {kernel}(ptr {operands}, i64 0, i64 1)")

    f.loop(0, count, 1, [], record)
    f.end()


def _signature(region: Region, operands: Sequence[Node]) -> Any:
    """What the kernel of a region depends on: what is computed in which shapes, not of which arrays."""
    number = {node: place for place, node in enumerate(operands)}
    place = {node: place for place, node in enumerate(region.group.nodes)}

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
        for node in region.group.nodes
    ]  # fmt: skip
    return tuple(nodes), region.group.columns, region.nest is None
