"""The text of a library in LLVM's language: kernels, tables of their calls, and the functions that C programs call.

The calls of a function are numbers in constant tables: for each call its kernel, for each operand its base and its offset. One
loop walks them. That takes less code than instructions for each address, and the same on every processor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..executor.native.cache import joined, with_private_names
from ..executor.native.emitter import BYTE, FLOAT, INT32, INT64, POINTER, Function, Module, Type, Value, constant
from ..executor.native.instructions import Writer
from ..executor.native.target import Target
from ..executor.native.verifying import verify_accesses
from ..executor.planned.native_loops import NativeLoop
from .function import CallTables, FunctionWriter, bases_of, copy, fill_zeros
from .generators import GENERATORS, STREAM_PARAMETERS, generator_constants, write_next, write_one_normal
from .layout import Layout, LibraryFunction

_MOST_BYTES = 2**31
"""Offsets below this are stored in 32 bits."""


class LibraryCode:
    """Writes the functions of a library.

    Args:
        name: the prefix of all names.
        entries: the functions.
        layout: where their values lie.
        first_values: variable of the state, or frozen -> its first value, as an array.
        runs: the number of runs before the first step.
        target: the processor.

    Attributes:
        errors: the messages of the codes 1, 2, ... that the functions return.

    Raises:
        NativeFault: a kernel accesses memory outside of its operands.
    """

    def __init__(
        self,
        name: str,
        entries: Sequence[LibraryFunction],
        layout: Layout,
        first_values: Mapping[str, Any],
        runs: int,
        target: Target,
    ) -> None:
        self._name, self._entries, self._layout, self._target = name, entries, layout, target
        self._first_values, self._runs, self._alignment = first_values, runs, max(16, target.vector_bytes)
        self.errors: list[str] = []
        self._writers: dict[str, Writer] = {}
        for instruction in chain.from_iterable(entry.native for entry in entries):
            self._writers.update(instruction.writers)
        self._numbers = {kernel: number for number, kernel in enumerate(self._writers)}
        self._operand_counts: dict[str, int] = {}
        """Kernel -> the number of its operands."""
        self._offset_type = INT32 if max(layout.state_bytes, layout.arena_bytes) < _MOST_BYTES else INT64

    def text(self) -> str:
        """All functions as one module."""
        kernels = list(self._kernels())
        functions = [
            *self._walks(),
            *self._generators(),
            *self._frozen(),
            *chain.from_iterable(map(self._entry, self._entries)),
            *self._init(),
            *self._error(),
        ]
        return joined(
            [
                "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\ndeclare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
                *kernels,
                *functions,
            ]
        )

    # -- kernels and tables
    def _kernels(self) -> Iterator[str]:
        """The kernels, and their table: address, number of operands."""
        footprints, rows = {}, []
        for kernel, number in self._numbers.items():
            symbol = f"{self._name}.kernel{number}"
            text, footprints[kernel] = with_private_names(symbol, self._writers[kernel])
            rows.append(f"{{ ptr, i32 }} {{ ptr @{symbol}, i32 {len(footprints[kernel])} }}")
            yield text.replace(f"define void @{symbol}(", f"define internal void @{symbol}(")
        self._operand_counts = {kernel: len(of_kernel) for kernel, of_kernel in footprints.items()}
        for entry in self._entries:
            verify_accesses(entry.calls, footprints, entry.size_of, self._layout.workspace_bytes)
        yield self._constant("kernels", "{ ptr, i32 }", rows)

    def _constant(self, name: str, kind: str, items: Iterable[str]) -> str:
        rows = list(items)
        return f"@{self._name}.{name} = internal constant [{len(rows)} x {kind}] [ {', '.join(rows)} ]"

    def _tables(self, entry: LibraryFunction, tables: CallTables) -> Iterator[str]:
        """The tables of an entry: the kernel of each call; base and offset of each operand, in order; in loops, its stride."""
        bases = {base: number for number, base in enumerate(bases_of(entry, self._layout))}
        offset_type = self._offset_type
        yield self._constant(f"{entry.name}.calls", "i32", (f"i32 {self._numbers[kernel]}" for kernel in tables.kernels))
        yield self._constant(f"{entry.name}.bases", "i8", (f"i8 {bases[place.base]}" for place in tables.places))
        offsets = (f"{offset_type} {place.offset}" for place in tables.places)
        yield self._constant(f"{entry.name}.offsets", str(offset_type), offsets)
        yield self._constant(f"{entry.name}.strides", str(offset_type), (f"{offset_type} {s}" for s in tables.strides))

    def _constants(self, entry: LibraryFunction) -> Iterator[str]:
        """The constants of an entry, one behind the other."""
        data = bytearray()
        for value, place in entry.constant_places.items():
            data += bytes(place - len(data)) + np.ascontiguousarray(entry.constants[value]).tobytes()
        if data:
            yield self._bytes(f"{entry.name}.constants", bytes(data))

    def _frozen(self) -> Iterator[str]:
        """The frozen variables, one behind the other."""
        data = bytearray()
        for name, (offset, _) in self._layout.frozen.items():
            data += bytes(offset - len(data)) + np.ascontiguousarray(self._first_values[name]).tobytes()
        if data:
            yield self._bytes("frozen", bytes(data))

    def _bytes(self, name: str, data: bytes) -> str:
        return f'@{self._name}.{name} = internal constant [{len(data)} x i8] c"{_escaped(data)}", align {self._alignment}'

    def _walks(self) -> Iterator[str]:
        """The functions that make the calls of a table.

        ``void walk(bases, calls, operand bases, operand offsets, count)`` is for calls outside of loops. ``trip`` is for loops,
        and takes strides and the number of a trip, too.
        """
        yield self._walk(in_loops=False)
        if any(isinstance(instruction, NativeLoop) for entry in self._entries for instruction in entry.native):
            yield self._walk(in_loops=True)

    def _walk(self, in_loops: bool) -> str:
        pointers, words = ([POINTER] * 5, [INT64] * 2) if in_loops else ([POINTER] * 4, [INT64])
        f = self._function("trip" if in_loops else "walk", [*pointers, *words], linkage="internal")
        bases, calls, operand_bases, operand_offsets = f.arguments[:4]
        count = f.arguments[len(pointers)]
        operands = f.stack(POINTER, self._most_operands())

        def call(number: Value, first: Value) -> list[Value]:
            kernel_number = f.convert(f.load(f.at(calls, number, INT32), INT32), INT64)
            row = f.value(f"getelementptr {{ ptr, i32 }}, ptr @{self._name}.kernels, i64 {kernel_number}", POINTER)
            length_at = f.value(f"getelementptr {{ ptr, i32 }}, ptr {row}, i64 0, i32 1", POINTER)
            kernel, length = f.load(row, POINTER), f.convert(f.load(length_at, INT32), INT64)

            def operand(position: Value) -> None:
                at = f.add(first, position)
                base = f.load(f.at(bases, f.convert(f.load(f.at(operand_bases, at, BYTE), BYTE), INT64), POINTER), POINTER)
                offset = self._offset(f, operand_offsets, at)
                if in_loops:
                    offset = f.add(offset, f.mul(self._offset(f, f.arguments[4], at), f.arguments[6]))
                f.store_number(f.at(base, offset, BYTE), f.at(operands, position, POINTER))

            f.loop(0, length, 1, [], operand)
            f.write(f"call void {kernel}(ptr {operands}, i64 0, i64 1)")
            return [f.add(first, length)]

        f.loop(0, count, 1, [f.int64(0)], call)
        f.end()
        return f.module.text

    def _offset(self, f: Function, offsets: Value, number: Value) -> Value:
        return f.convert(f.load(f.at(offsets, number, self._offset_type), self._offset_type), INT64)

    def _most_operands(self) -> int:
        """The most operands of a kernel."""
        return max(self._operand_counts.values(), default=1)

    def _function(self, name: str, parameters: Sequence[Type], result: Type | None = None, linkage: str = "") -> Function:
        separator = "." if linkage else "_"
        return Function(Module(self._target), f"{self._name}{separator}{name}", parameters, result, linkage)

    # -- the functions for C
    def _entry(self, entry: LibraryFunction) -> Iterator[str]:
        """``int name_entry(state, arena, feeds, fetches)``: 0, or the code of the first check that fails."""
        f = self._function(entry.name, [POINTER] * 4, INT32)
        writer = FunctionWriter(self._name, entry, self._layout, self.errors, f, self._offset_type)
        writer.write()
        yield from self._tables(entry, writer.tables)
        yield from self._constants(entry)
        yield f.module.text

    def _generators(self) -> Iterator[str]:
        """The functions that draw random numbers, with the functions and tables that they need."""
        names = dict.fromkeys(draw.generator for entry in self._entries for draw in entry.draws.values())
        needs = dict.fromkeys(need for name in names for need in GENERATORS[name].needs)
        if "next" in needs:
            f = self._function("next", [POINTER], INT32, linkage="internal")
            write_next(f)
            yield f.module.text
        if "one_normal" in needs:
            for table, type_, numbers in generator_constants():
                yield self._constant(table, str(type_), (f"{type_} {constant(number, type_)}" for number in numbers))
            f = self._function("one_normal", [POINTER], FLOAT, linkage="internal")
            write_one_normal(f, self._name)
            yield f.module.text
        for name in names:
            f = self._function(name, [*STREAM_PARAMETERS, *GENERATORS[name].parameters], linkage="internal")
            GENERATORS[name].write(f, self._name)
            yield f.module.text

    def _init(self) -> Iterator[str]:
        """``void name_init(state)``: the first values, which the library holds."""
        f = self._function("init", [POINTER])
        (state,) = f.arguments
        fill_zeros(f, state, self._layout.state_bytes)
        for number, (name, (offset, _)) in enumerate(self._layout.state.items()):
            data = np.ascontiguousarray(self._first_values[name]).tobytes()
            if data.strip(b"\0"):
                yield self._bytes(f"first{number}", data)
                copy(f, f.at(state, offset, BYTE), Value(f"@{self._name}.first{number}", POINTER), len(data))
        if self._layout.runs_offset is not None:
            f.store_number(f.int64(self._runs), f.at(state, self._layout.runs_offset, BYTE))
        f.end()
        yield f.module.text

    def _error(self) -> Iterator[str]:
        """``const char *name_error(int code)``: the message of a code."""
        messages = ["no error", *self.errors, "an unknown code"]
        rows = []
        for number, message in enumerate(messages):
            data = message.encode() + b"\0"
            yield f'@{self._name}.message{number} = internal constant [{len(data)} x i8] c"{_escaped(data)}"'
            rows.append(f"ptr @{self._name}.message{number}")
        yield self._constant("messages", "ptr", rows)
        f = self._function("error", [INT32], POINTER)
        last = len(messages) - 1
        row_number = f.select(f.compare("ult", f.arguments[0], last), f.arguments[0], Value(str(last), INT32))
        row = f.at(Value(f"@{self._name}.messages", POINTER), f.convert(row_number, INT64), POINTER)
        f.end(f.load(row, POINTER))
        yield f.module.text


def _escaped(data: bytes) -> str:
    """Bytes as the text of a constant."""
    return "\\" + data.hex("\\") if data else ""
