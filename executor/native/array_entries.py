"""Entries of arrays of tensors as native instructions, at positions that only running tells.

The entries of an array lie in one memory. Behind them lies a byte for each entry, its `EntryState`. An instruction that cannot
run writes to `FAULT`, and the table stops: see `NativeTrips`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fluid.ir.program import Operator
from fluid.ir.versions import Value
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..stepwise.indexed_arrays import ArrayRoom, EntryState
from .emitter import BYTE, INT64, Function, Type, zero
from .emitter import Operand as Index
from .emitter import Value as Emitted
from .images import each_vector
from .instructions import NATIVE_PREFIX, STOP, KernelCall, NativeInstruction, Operand, Writer, WrittenKernel
from .kernel import Share, written_condition, written_kernel
from .lowering import NotLowered, element_of
from .op_instructions import Op
from .target import Target

__all__ = ["ADD", "CLEAR", "FAULT", "FAULT_SPEC", "READ", "READ_OR_ZEROS", "WRITE", "EntryInstruction"]

FAULT: Value = f"{NATIVE_PREFIX}fault", 0
FAULT_SPEC = Spec((2,), VarType.INT64)
"""Whether an instruction could not run; and the position that lies beyond the memory, or -1 for another reason."""

READ, READ_OR_ZEROS, WRITE, CLEAR, ADD = "read", "read or zeros", "write", "clear", "add"


class EntryInstruction(NativeInstruction):
    """Reads or writes an entry of an array.

    Args:
        op: the op that it belongs to.
        kind: `READ`, `READ_OR_ZEROS`, `WRITE`, `CLEAR` or `ADD`.
        memory: the value with the memory of the array.
        room: the size of the memory.
        position: one integer.
        integer: its type.
        entry: the value to write, or the value that gets the entry.
        target: the processor.
    """

    is_stateful = True

    def __init__(
        self,
        op: Operator | Op,
        kind: str,
        memory: Value,
        room: ArrayRoom,
        position: Value,
        integer: VarType,
        entry: Value,
        target: Target,
    ) -> None:
        if room.spec is None or not room.spec.size or integer not in (VarType.INT32, VarType.INT64):
            raise NotLowered("an array of unknown entries, or a position of another type")
        if kind == ADD and room.spec.dtype not in (VarType.FP32, VarType.FP64):
            raise NotLowered("sums of other numbers")
        self.ops = [op]  # type: ignore[list-item]
        self._name = f"{kind} {memory[0]}"
        is_read = kind in (READ, READ_OR_ZEROS)
        self.read, self.written = ([position], [entry]) if is_read else ([position, entry], list[Value]())
        self.layouts, self.shares, self.workspace_bytes = {}, {}, 0
        operands: list[Operand] = [(FAULT, 0), (memory, 0), (position, 0), (entry, 0)]
        number, element = element_of(integer), element_of(room.spec.dtype)
        signature = f"{kind}: entries of {room.spec.size} {element}, room for {room.count}, at {number}"
        writer = partial(_write, kind, room, number, element, target)
        self.calls = [KernelCall(signature, operands, is_serial=True), KernelCall(STOP, [(FAULT, 0)], is_serial=False)]
        self.writers: dict[str, Writer] = {signature: writer, STOP: partial(written_condition, target)}

    def describe(self) -> str:
        return self._name

    def line(self, outs: str, ins: str) -> str:
        return f"{self._name}({ins})"


def _write(kind: str, room: ArrayRoom, number: Type, element: Type, target: Target, name: str) -> WrittenKernel:
    def body(f: Function, pointers: Sequence[Emitted], share: Share) -> None:
        _Kernel(f, room, element, target, pointers).write(kind, number)

    return written_kernel(name, 4, body, target)


class _Kernel:
    """Writes the kernel of an `EntryInstruction`."""

    def __init__(self, f: Function, room: ArrayRoom, element: Type, target: Target, pointers: Sequence[Emitted]) -> None:
        assert room.spec is not None
        self._f, self._room, self._element, self._size = f, room, element, room.spec.size
        self._lanes = target.lanes(element.bytes)
        self._fault, self._memory, self._position, self._entry = pointers

    def write(self, kind: str, number: Type) -> None:
        f = self._f
        position = f.convert(f.load(self._position, number), INT64)
        is_outside = f.compare("uge", position, self._room.count)  # as unsigned, a negative position is too great
        with f.when(is_outside):
            if kind == READ_OR_ZEROS:
                with f.when(f.compare("slt", position, 0)):
                    self._fail(position)
                self._move(self._entry, None)
            else:
                self._fail(f.int64(-1) if kind == READ else position)
        with f.when(f.compare("ult", position, self._room.count)):
            self._write_within(kind, f.between(position, 0, self._room.count - 1))

    def _write_within(self, kind: str, position: Emitted) -> None:
        f = self._f
        stored = f.at(self._memory, f.mul(position, self._size), self._element)
        state_at = f.at(f.at(self._memory, self._room.count * self._size, self._element), position, BYTE)
        if kind in (WRITE, CLEAR):
            self._move(stored, self._entry if kind == WRITE else None)
            self._set_state(state_at, EntryState.UPDATED if kind == WRITE else EntryState.CLEARED)
            return
        state = f.load(state_at, BYTE)
        with f.when(f.compare("sge", state, int(EntryState.PRESENT))):
            if kind == ADD:
                self._each_vector(lambda first, lanes: self._add(stored, first, lanes))
            else:
                self._move(self._entry, stored)
        with f.when(f.compare("slt", state, int(EntryState.PRESENT))):
            if kind == READ:
                self._fail(f.int64(-1))
            elif kind == READ_OR_ZEROS:
                self._move(self._entry, None)
            else:
                self._move(stored, self._entry)
        if kind == ADD:
            self._set_state(state_at, EntryState.UPDATED)

    def _fail(self, position: Emitted) -> None:
        f = self._f
        f.store_number(f.int64(1), self._fault)
        f.store_number(position, f.at(self._fault, 1, INT64))

    def _set_state(self, at: Emitted, state: EntryState) -> None:
        f = self._f
        f.store_number(f.convert(f.int64(int(state)), BYTE), at)

    def _each_vector(self, body: Callable[[Index, int], None]) -> None:
        each_vector(self._f, self._size, self._lanes, body)

    def _move(self, to: Emitted, source: Emitted | None) -> None:
        """Copy an entry; without a source, write zeros."""
        f = self._f

        def vector(first: Index, lanes: int) -> None:
            type_ = self._element.of(lanes)
            value = zero(type_) if source is None else f.load(f.at(source, first, self._element), type_)
            f.store(value, f.at(to, first, self._element))

        self._each_vector(vector)

    def _add(self, stored: Emitted, first: Index, lanes: int) -> None:
        f, type_ = self._f, self._element.of(lanes)
        former, part = (f.load(f.at(pointer, first, self._element), type_) for pointer in (stored, self._entry))
        f.store(f.add(former, part), f.at(stored, first, self._element))
