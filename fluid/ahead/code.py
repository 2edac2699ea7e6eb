"""The text of a library in LLVM's language: kernels, tables of their calls, and the functions that C programs call.

The calls of a function are numbers in constant tables: for each call its kernel, for each operand its base and its offset. One
loop walks them. That takes less code than instructions for each address, and the same on every processor.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

import numpy as np

from ..errors import ProgramError
from ..executor.native.branches import BranchMark
from ..executor.native.cache import joined, with_private_names
from ..executor.native.emitter import BOOL, BYTE, INT32, INT64, POINTER, Function, Module, Type, Value
from ..executor.native.instructions import END_BRANCH, IF_TRUE, Check, KernelCall, Writer
from ..executor.native.lowering import ELEMENTS
from ..executor.native.target import Target
from ..executor.native.verifying import verify_accesses
from ..ir.program import Operator
from .checks import IdRange, ranges_of
from .drawing import MASK_PARAMETERS, MaskDraw, signed, write_mask_function
from .layout import ARENA, CONSTANTS, STATE, Layout, LibraryFunction

__all__ = ["LibraryCode"]

_MOST_BYTES = 2**31
"""Offsets below this are stored in 32 bits."""
_MOST_FEEDS = 100
"""Bases are stored in a byte."""


class LibraryCode:
    """Writes the functions of a library.

    Args:
        name: the prefix of all names.
        entries: the functions.
        layout: where their values lie.
        first_values: variable of the state -> its first value, as an array.
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
        self._first_values, self._runs = first_values, runs
        self.errors: list[str] = []
        self._writers: dict[str, Writer] = {}
        for instruction in chain.from_iterable(entry.native for entry in entries):
            self._writers.update(instruction.writers)
        self._numbers = {kernel: number for number, kernel in enumerate(self._writers)}
        self._offset_type = INT32 if max(layout.state_bytes, layout.arena_bytes) < _MOST_BYTES else INT64

    def text(self) -> str:
        """All functions as one module."""
        kernels = list(self._kernels())
        functions = [
            self._walk(),
            *self._mask(),
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
        """The kernels, and the table of them: address, number of operands."""
        footprints, rows = {}, []
        for kernel, number in self._numbers.items():
            symbol = f"{self._name}.kernel{number}"
            text, footprints[kernel] = with_private_names(symbol, self._writers[kernel])
            rows.append(f"{{ ptr, i32 }} {{ ptr @{symbol}, i32 {len(footprints[kernel])} }}")
            yield text.replace(f"define void @{symbol}(", f"define internal void @{symbol}(")
        for entry in self._entries:
            verify_accesses(_calls_of(entry), footprints, entry.size_of, self._layout.workspace_bytes)
        yield self._constant("kernels", "{ ptr, i32 }", rows)

    def _constant(self, name: str, kind: str, items: Iterable[str]) -> str:
        rows = list(items)
        return f"@{self._name}.{name} = internal constant [{len(rows)} x {kind}] [ {', '.join(rows)} ]"

    def _tables(self, entry: LibraryFunction) -> Iterator[str]:
        """The tables of an entry: the kernel of each call; base and offset of each operand, in order."""
        calls = _calls_of(entry)
        bases = {base: number for number, base in enumerate(_bases_of(entry))}
        places = [self._layout.place(entry, operand) for call in calls for operand in call.operands]
        offset_type = self._offset_type
        yield self._constant(f"{entry.name}.calls", "i32", (f"i32 {self._numbers[call.kernel]}" for call in calls))
        yield self._constant(f"{entry.name}.bases", "i8", (f"i8 {bases[place.base]}" for place in places))
        yield self._constant(f"{entry.name}.offsets", str(offset_type), (f"{offset_type} {place.offset}" for place in places))

    def _constants(self, entry: LibraryFunction) -> Iterator[str]:
        """The constants of an entry, one behind the other."""
        data = bytearray()
        for value, place in entry.constant_places.items():
            data += bytes(place - len(data)) + np.ascontiguousarray(entry.constants[value]).tobytes()
        if data:
            yield self._bytes(f"{entry.name}.constants", bytes(data))

    def _bytes(self, name: str, data: bytes) -> str:
        return f'@{self._name}.{name} = internal constant [{len(data)} x i8] c"{_escaped(data)}", align 16'

    def _walk(self) -> str:
        """``void walk(bases, calls, count, operand bases, operand offsets)``: make the calls of a table."""
        f = self._function("walk", [POINTER, POINTER, INT64, POINTER, POINTER], linkage="internal")
        bases, calls, count, operand_bases, operand_offsets = f.arguments
        words = f.stack(POINTER, max((len(call.operands) for entry in self._entries for call in _calls_of(entry)), default=1))

        def call(number: Value, first: Value) -> list[Value]:
            kernel_number = f.convert(f.load(f.at(calls, number, INT32), INT32), INT64)
            row = f.value(f"getelementptr {{ ptr, i32 }}, ptr @{self._name}.kernels, i64 {kernel_number}", POINTER)
            length_at = f.value(f"getelementptr {{ ptr, i32 }}, ptr {row}, i64 0, i32 1", POINTER)
            kernel, length = f.load(row, POINTER), f.convert(f.load(length_at, INT32), INT64)

            def operand(position: Value) -> None:
                at = f.add(first, position)
                base = f.load(f.at(bases, f.convert(f.load(f.at(operand_bases, at, BYTE), BYTE), INT64), POINTER), POINTER)
                offset = f.convert(f.load(f.at(operand_offsets, at, self._offset_type), self._offset_type), INT64)
                f.store_number(f.at(base, offset, BYTE), f.at(words, position, POINTER))

            f.loop(0, length, 1, [], operand)
            f.write(f"call void {kernel}(ptr {words}, i64 0, i64 1)")
            return [f.add(first, length)]

        f.loop(0, count, 1, [f.int64(0)], call)
        f.end()
        return f.module.text

    def _function(self, name: str, parameters: Sequence[Type], result: Type | None = None, linkage: str = "") -> Function:
        separator = "." if linkage else "_"
        return Function(Module(self._target), f"{self._name}{separator}{name}", parameters, result, linkage)

    # -- the functions for C
    def _entry(self, entry: LibraryFunction) -> Iterator[str]:
        """``int name_entry(state, arena, feeds, fetches)``: 0, or the code of the first check that fails."""
        yield from self._tables(entry)
        yield from self._constants(entry)
        f = self._function(entry.name, [POINTER] * 4, INT32)
        state, arena, feeds, fetches = f.arguments
        fed = [f.load(f.at(feeds, number, POINTER), POINTER) for number in range(len(entry.feeds))]
        constants = [Value(f"@{self._name}.{entry.name}.constants", POINTER)] if entry.constants else []
        addresses = dict(zip(_bases_of(entry), (state, arena, *constants, *fed), strict=True))
        bases = f.stack(POINTER, len(addresses))
        for number, address in enumerate(addresses.values()):
            f.store_number(address, f.at(bases, number, POINTER))
        self._zero_images(f, arena)
        for name, variable in entry.feeds.items():
            if entry.lasts((variable, 0)):
                offset, spec = self._layout.state[variable]
                _copy(f, f.at(addresses[STATE], offset, BYTE), addresses[name], spec.nbytes)
        code = f.stack(INT32, 1)
        f.store_number(Value("0", INT32), code)
        first_call = first_operand = 0
        branches: list[ExitStack] = []
        for part in entry.parts:
            if isinstance(part, BranchMark):
                if part.kind == END_BRANCH:
                    branches.pop().close()
                    continue
                condition = f.load(self._address(f, entry, addresses, part.condition), BYTE)
                branches.append(ExitStack())
                branches[-1].enter_context(f.when(f.compare("ne" if part.kind == IF_TRUE else "eq", condition, 0)))
                continue
            if isinstance(part, Check):
                self._check(f, entry, part, addresses, code)
                continue
            if isinstance(part, MaskDraw):
                self._draw(f, part, addresses[STATE], self._address(f, entry, addresses, part.value))
                continue
            calls = [call for instruction in part for call in instruction.calls]
            with f.when(f.compare("eq", f.load(code, INT32), 0)):
                self._walk_part(f, entry, bases, first_call, len(calls), first_operand)
            first_call += len(calls)
            first_operand += sum(len(call.operands) for call in calls)
        with f.when(f.compare("eq", f.load(code, INT32), 0)):
            self._copy_fetches(f, entry, addresses, fetches)
            if entry.follows_runs:
                runs = f.at(state, self._layout.runs_offset or 0, BYTE)
                f.store_number(f.add(f.load(runs, INT64), 1), runs)
        f.end(f.load(code, INT32))
        yield f.module.text

    def _walk_part(self, f: Function, entry: LibraryFunction, bases: Value, first: int, count: int, operands: int) -> None:
        """Make some calls of the table of an entry, from call `first` on, whose operands begin at number `operands`."""
        tables = f"@{self._name}.{entry.name}"
        starts = [
            f.value(f"getelementptr {type_}, ptr {tables}.{table}, i64 {start}", POINTER)
            for table, type_, start in (
                ("calls", INT32, first),
                ("bases", BYTE, operands),
                ("offsets", self._offset_type, operands),
            )
        ]
        calls, operand_bases, offsets = starts
        f.call(f"{self._name}.walk", bases, calls, f.int64(count), operand_bases, offsets)

    def _address(self, f: Function, entry: LibraryFunction, addresses: Mapping[str, Value], value: tuple[str, int]) -> Value:
        """The address of a value."""
        place = self._layout.place(entry, (value, 0))
        return f.at(addresses[place.base], place.offset, BYTE)

    def _zero_images(self, f: Function, arena: Value) -> None:
        """Zero all images unless the arena's stamp says that they have been zeroed."""
        layout = self._layout
        if not layout.image_bytes:
            return
        with f.when(f.compare("ne", f.load(arena, INT64), layout.stamp)):
            images = f.at(arena, layout.stamp_bytes, BYTE)
            f.write(f"call void @llvm.memset.p0.i64(ptr {images}, i8 0, i64 {layout.image_bytes}, i1 false)")
            f.store_number(f.int64(layout.stamp), arena)

    def _check(self, f: Function, entry: LibraryFunction, check: Check, addresses: Mapping[str, Value], code: Value) -> None:
        """Store the code of an error if an id that an op reads is out of its range, and no error has come before."""
        for id_range in ranges_of(check) or ():
            message = _error_text(entry, check.op, id_range)
            if message not in self.errors:
                self.errors.append(message)
            error = Value(str(self.errors.index(message) + 1), INT32)
            spec = check.specs[id_range.value]
            element = ELEMENTS[spec.dtype]
            ids = self._address(f, entry, addresses, id_range.value)

            def outside(
                i: Value, is_wrong: Value, ids: Value = ids, element: Type = element, ids_in: IdRange = id_range
            ) -> list[Value]:
                number = f.load(f.at(ids, f.add(f.mul(i, ids_in.step), ids_in.first), element), element)
                is_outside = f.compare("uge", number, ids_in.extent)  # as unsigned, a negative id is too great
                if ids_in.ignored is not None:
                    is_outside = f.bit_and(is_outside, f.compare("ne", number, ids_in.ignored))
                return [f.bit_or(is_wrong, f.value(f"zext {BOOL} {is_outside} to {INT64}", INT64))]

            (wrong,) = f.loop(0, spec.size // id_range.step, 1, [f.int64(0)], outside)
            is_first = f.compare("eq", f.load(code, INT32), 0)
            with f.when(f.bit_and(is_first, f.compare("ne", wrong, 0))):
                f.store_number(error, code)

    def _draw(self, f: Function, draw: MaskDraw, state: Value, mask: Value) -> None:
        """Draw a random mask."""
        run = f.load(f.at(state, self._layout.runs_offset or 0, BYTE), INT64) if draw.follows_runs else f.int64(0)
        key = [f.int64(signed(part)) for part in draw.key]
        f.call(f"{self._name}.mask", mask, f.int64(draw.count), *key, f.int64(draw.number), run, Value(str(draw.least), INT32))

    def _mask(self) -> Iterator[str]:
        """The function that draws masks, if one is needed."""
        if any(entry.draws for entry in self._entries):
            f = self._function("mask", MASK_PARAMETERS, linkage="internal")
            write_mask_function(f)
            yield f.module.text

    def _copy_fetches(self, f: Function, entry: LibraryFunction, addresses: Mapping[str, Value], fetches: Value) -> None:
        """Copy each fetched value to the caller's memory, unless the caller gives a null pointer for it."""
        for number, value in enumerate(entry.fetched.values()):
            target = f.load(f.at(fetches, number, POINTER), POINTER)
            with f.when(f.value(f"icmp ne ptr {target}, null", BOOL)):
                _copy(f, target, self._address(f, entry, addresses, value), entry.plan.specs[value].nbytes)

    def _init(self) -> Iterator[str]:
        """``void name_init(state)``: the first values, which the library holds."""
        f = self._function("init", [POINTER])
        (state,) = f.arguments
        f.write(f"call void @llvm.memset.p0.i64(ptr {state}, i8 0, i64 {self._layout.state_bytes}, i1 false)")
        for number, (name, (offset, _)) in enumerate(self._layout.state.items()):
            data = np.ascontiguousarray(self._first_values[name]).tobytes()
            if data.strip(b"\0"):
                yield self._bytes(f"first{number}", data)
                _copy(f, f.at(state, offset, BYTE), Value(f"@{self._name}.first{number}", POINTER), len(data))
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


def _calls_of(entry: LibraryFunction) -> list[KernelCall]:
    return [call for instruction in entry.native for call in instruction.calls]


def _bases_of(entry: LibraryFunction) -> list[str]:
    if len(entry.feeds) > _MOST_FEEDS:
        raise ProgramError(f"{entry.name} has {len(entry.feeds)} feeds; a compiled function has at most {_MOST_FEEDS}")
    return [STATE, ARENA, *([CONSTANTS] if entry.constants else []), *entry.feeds]


def _copy(f: Function, target: Value, source: Value, size: int) -> None:
    f.write(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")


def _escaped(data: bytes) -> str:
    """Bytes as the text of a constant."""
    return "\\" + data.hex("\\") if data else ""


def _error_text(entry: LibraryFunction, op: Operator, id_range: IdRange) -> str:
    """The message for an id out of its range, with the line of the user's code."""
    names = {variable: name for name, variable in entry.feeds.items()}
    name = id_range.value[0]
    frame = op.user_frame
    line = f", {os.path.basename(frame[0])}:{frame[1]}" if frame is not None else ""
    return f"{names.get(name, name)}: an id is outside of [0, {id_range.extent}) ({op.type}{line})"
