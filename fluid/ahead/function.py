"""Writes a function of a library: its checks, draws, branches and loops, and the tables of the calls between them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from ..errors import ProgramError
from ..executor.native.branches import BranchMark
from ..executor.native.emitter import BOOL, BYTE, INT32, INT64, POINTER, Function, Type, Value, constant
from ..executor.native.id_kernels import is_any_label_refused, is_outside, matrices_of
from ..executor.native.id_ranges import IdRange, LabelTest, MatrixTest, Test, tests_of, values_of
from ..executor.native.instructions import END_BRANCH, IF_TRUE, Check, KernelCall, NativeInstruction
from ..executor.native.lowering import ELEMENTS
from ..executor.native.small_matrices import is_any_refused
from ..executor.planned.native_loops import Copied, NativeLoop, TripPlace
from ..ir.program import Operator
from ..ir.versions import Value as PlanValue
from ..values.spec import Spec
from ..values.types import is_floating
from .drawing import TensorDraw
from .generators import GENERATORS, signed
from .layout import ARENA, CONSTANTS, FROZEN, STATE, Address, Layout, LibraryFunction, Part, parts_of

_MOST_FEEDS = 100
"""The number of a base is stored in a byte."""


class CallTables:
    """The calls of a function: the kernel of each; base and offset of each operand, and its stride in loops."""

    def __init__(self) -> None:
        self.kernels: list[str] = []
        self.places: list[Address] = []
        self.strides: list[int] = []
        """The strides of the operands of loops alone."""


class FunctionWriter:
    """Writes ``int name_entry(state, arena, feeds, fetches)``, which returns 0, or the code of the first check that fails.

    Args:
        name: the prefix of all names.
        entry: the function.
        layout: where values lie.
        errors: the messages of codes; the function's messages are added.
        function: the function to write into.
        offset_type: the type of offsets in tables.

    Attributes:
        tables: the calls that have been written.
    """

    def __init__(
        self, name: str, entry: LibraryFunction, layout: Layout, errors: list[str], function: Function, offset_type: Type
    ) -> None:
        self._name, self._entry, self._layout, self._errors, self._f = name, entry, layout, errors, function
        self._offset_type = offset_type
        self.tables = CallTables()
        f = function
        self._state, self._arena, feeds, self._fetches = f.arguments
        fed = [f.load(f.at(feeds, number, POINTER), POINTER) for number in range(len(entry.feeds))]
        constants = [Value(f"@{name}.{entry.name}.constants", POINTER)] if entry.constants else []
        frozen = [Value(f"@{name}.frozen", POINTER)] if layout.frozen else []
        values = (self._state, self._arena, *constants, *frozen, *fed)
        self._addresses = dict(zip(bases_of(entry, layout), values, strict=True))
        self._bases = f.stack(POINTER, len(self._addresses))
        self._code = f.stack(INT32, 1)

    def write(self) -> None:
        """Write the whole function."""
        f, entry = self._f, self._entry
        for number, address in enumerate(self._addresses.values()):
            f.store_number(address, f.at(self._bases, number, POINTER))
        self._zero_images()
        for name, variable in entry.feeds.items():
            if entry.lasts((variable, 0)):
                offset, spec = self._layout.state[variable]
                copy(f, f.at(self._state, offset, BYTE), self._addresses[name], spec.nbytes)
        f.store_number(Value("0", INT32), self._code)
        self._parts(entry.parts, None, f.int64(0))
        with f.when(self._is_fine()):
            self._copy_fetches()
            if entry.follows_runs:
                runs = f.at(self._state, self._layout.runs_offset or 0, BYTE)
                f.store_number(f.add(f.load(runs, INT64), 1), runs)
        f.end(f.load(self._code, INT32))

    def _is_fine(self) -> Value:
        """Whether no check has failed so far."""
        return self._f.compare("eq", self._f.load(self._code, INT32), 0)

    def _parts(self, parts: Iterable[Part], loop: NativeLoop | None, trip: Value) -> None:
        """Write some parts, of a trip of a loop or outside of loops."""
        f = self._f
        branches: list[ExitStack] = []
        for part in parts:
            if isinstance(part, BranchMark):
                if part.kind == END_BRANCH:
                    branches.pop().close()
                    continue
                condition = f.load(self._address(part.condition, loop, trip), BYTE)
                branches.append(ExitStack())
                branches[-1].enter_context(f.when(f.compare("ne" if part.kind == IF_TRUE else "eq", condition, 0)))
            elif isinstance(part, Check):
                self._check(part, loop, trip)
            elif isinstance(part, TensorDraw):
                self._draw(part, self._address(part.value, None, trip), trip)
            elif isinstance(part, NativeLoop):
                self._loop(part)
            else:
                with f.when(self._is_fine()):
                    self._walk(part, loop, trip)

    # -- calls
    def _walk(self, instructions: Sequence[NativeInstruction], loop: NativeLoop | None, trip: Value) -> None:
        """Add calls to the tables, and make them."""
        f, tables = self._f, self.tables
        first_call, first_operand, first_stride = len(tables.kernels), len(tables.places), len(tables.strides)
        calls = [call for instruction in instructions for call in instruction.calls]
        for call in calls:
            self._add(call, loop)
        starts = [("calls", INT32, first_call), ("bases", BYTE, first_operand), ("offsets", self._offset_type, first_operand)]
        if loop is not None:
            starts.append(("strides", self._offset_type, first_stride))
        prefix = f"@{self._name}.{self._entry.name}"
        pointers = [
            f.value(f"getelementptr {type_}, ptr {prefix}.{table}, i64 {start}", POINTER) for table, type_, start in starts
        ]
        words = [f.int64(len(calls)), *([trip] if loop is not None else [])]
        f.call(f"{self._name}.{'walk' if loop is None else 'trip'}", self._bases, *pointers, *words)

    def _add(self, call: KernelCall, loop: NativeLoop | None) -> None:
        """Add a call to the tables."""
        self.tables.kernels.append(call.kernel)
        for operand in call.operands:
            moved = loop.memory_of(operand) if loop is not None else None
            self.tables.places.append(self._layout.place(self._entry, operand if moved is None else moved[:2]))
            if loop is not None:
                self.tables.strides.append(0 if moved is None else moved.stride)

    def _address(self, value: PlanValue, loop: NativeLoop | None, trip: Value) -> Value:
        """The address of a value."""
        return self._address_in_trip(loop.places[value] if loop is not None else TripPlace(value), trip)

    def _address_in_trip(self, place: TripPlace, trip: Value) -> Value:
        """The address of memory in a trip of a loop."""
        f, start = self._f, self._layout.place(self._entry, place[:2])
        address = f.at(self._addresses[start.base], start.offset, BYTE)
        return f.at(address, f.mul(trip, place.stride), BYTE) if place.stride else address

    # -- loops
    def _loop(self, loop: NativeLoop) -> None:
        """Write a loop, with the copies before, between and after its trips."""
        f = self._f
        parts = parts_of(loop.body, self._entry.draws, loop)

        def body(trip: Value) -> None:
            self._parts(parts, loop, trip)
            self._copy_all(loop.between)

        self._copy_all(loop.before)
        if loop.condition is None:
            f.loop(0, loop.trips or 0, 1, [], body)
        else:
            condition = self._address_in_trip(loop.condition, f.int64(0))

            def goes_on() -> Value:
                return f.bit_and(f.compare("ne", f.load(condition, BYTE), 0), self._is_fine())

            def one(trip: Value) -> tuple[Value, Value]:
                body(trip)
                following = f.add(trip, 1)
                return f.compare("eq", f.convert(goes_on(), BYTE), 0), following

            with f.when(goes_on()):
                f.search(f.int64(0), one)
        self._copy_all(loop.after)

    def _copy_all(self, copies: Iterable[Copied]) -> None:
        """Copy, unless a check has failed."""
        f = self._f
        start = f.int64(0)
        with f.when(self._is_fine()):
            for target, source, size in copies:
                address = self._address_in_trip(target, start)
                if source is None:
                    fill_zeros(f, address, size)
                else:
                    copy(f, address, self._address_in_trip(source, start), size)

    # -- between calls
    def _zero_images(self) -> None:
        """Zero all images unless the arena's stamp says that they have been zeroed."""
        layout, f, arena = self._layout, self._f, self._arena
        if layout.image_bytes:
            with f.when(f.compare("ne", f.load(arena, INT64), layout.stamp)):
                fill_zeros(f, f.at(arena, layout.stamp_bytes, BYTE), layout.image_bytes)
                f.store_number(f.int64(layout.stamp), arena)

    def _check(self, check: Check, loop: NativeLoop | None, trip: Value) -> None:
        """Store the code of an error if a value that an op reads is wrong, and no error has come before."""
        f = self._f
        for test in tests_of(check) or ():
            code = Value(str(self._code_of(_error_text(self._entry, check.op, test))), INT32)
            specs, addresses = zip(*((check.specs[one], self._address(one, loop, trip)) for one in values_of(test)), strict=True)
            spec, address = specs[0], addresses[0]
            if isinstance(test, MatrixTest):
                is_wrong = is_any_refused(f, matrices_of(test, spec, address), test.kind, f.module.target)
            elif isinstance(test, LabelTest):
                is_wrong = is_any_label_refused(f, test, specs, *addresses)
            else:
                is_wrong = self._is_any_outside(test, spec, address)
            with f.when(f.bit_and(self._is_fine(), is_wrong)):
                f.store_number(code, self._code)

    def _code_of(self, message: str) -> int:
        """The code of an error message, which is added if it is new."""
        if message not in self._errors:
            self._errors.append(message)
        return self._errors.index(message) + 1

    def _is_any_outside(self, id_range: IdRange, spec: Spec, ids: Value) -> Value:
        """Whether any of the numbers at an address is out of a range."""
        f, element = self._f, ELEMENTS[spec.dtype]

        def outside(i: Value, is_wrong: Value) -> list[Value]:
            number = f.load(f.at(ids, f.add(f.mul(i, id_range.step), id_range.first), element), element)
            return [f.bit_or(is_wrong, f.value(f"zext {BOOL} {is_outside(f, number, id_range)} to {INT64}", INT64))]

        (wrong,) = f.loop(0, spec.size // id_range.step, 1, [f.int64(0)], outside)
        return f.compare("ne", wrong, 0)

    def _draw(self, draw: TensorDraw, target: Value, trip: Value) -> None:
        """Call the generator of a draw."""
        f = self._f
        run = f.load(f.at(self._state, self._layout.runs_offset or 0, BYTE), INT64) if draw.follows_runs else f.int64(0)
        key = [f.int64(signed(part)) for part in draw.key]
        number = f.add(trip, draw.number) if draw.counts_trips else f.int64(draw.number)
        types = GENERATORS[draw.generator].parameters
        parameters = [constant(number, type_) for number, type_ in zip(draw.parameters, types, strict=True)]
        f.call(f"{self._name}.{draw.generator}", target, f.int64(draw.count), *key, number, run, *parameters)

    def _copy_fetches(self) -> None:
        """Copy each fetched value to the caller's memory, unless the caller gives a null pointer for it."""
        f, entry = self._f, self._entry
        for number, value in enumerate(entry.fetched.values()):
            target = f.load(f.at(self._fetches, number, POINTER), POINTER)
            with f.when(f.value(f"icmp ne ptr {target}, null", BOOL)):
                source = self._address_in_trip(TripPlace(value), f.int64(0))
                copy(f, target, source, entry.plan.specs[value].nbytes)


def bases_of(entry: LibraryFunction, layout: Layout) -> list[str]:
    """The bases of addresses of a function, by number."""
    if len(entry.feeds) > _MOST_FEEDS:
        raise ProgramError(f"{entry.name} has {len(entry.feeds)} feeds; a compiled function has at most {_MOST_FEEDS}")
    constants = [*([CONSTANTS] if entry.constants else []), *([FROZEN] if layout.frozen else [])]
    return [STATE, ARENA, *constants, *entry.feeds]


def copy(f: Function, target: Value, source: Value, size: int) -> None:
    """Copy bytes."""
    f.write(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")


def fill_zeros(f: Function, target: Value, size: int) -> None:
    """Set bytes to zero."""
    f.write(f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {size}, i1 false)")


def _error_text(entry: LibraryFunction, op: Operator, test: Test) -> str:
    """The message for a wrong value, with the line of the user's code."""
    names = {variable: name for name, variable in entry.feeds.items()}
    name = test.value[0].removesuffix(".copy")
    frame = op.user_frame
    line = f", {os.path.basename(frame[0])}:{frame[1]}" if frame is not None else ""
    is_float = is_floating(entry.plan.specs[test.value].dtype) if test.value in entry.plan.specs else False
    if isinstance(test, MatrixTest):
        wrong = f"a matrix is not {'positive definite' if test.kind == 'positive' else 'invertible'}"
    elif isinstance(test, LabelTest):
        wrong = f"a label is the blank, {test.blank}, or outside of [0, {test.classes})"
    else:
        wrong = f"a number is outside of [0, {test.extent}]" if is_float else f"an id is outside of [0, {test.extent})"
    return f"{names.get(name, name)}: {wrong} ({op.type}{line})"
