"""What arrays of tensors hold in the block of a loop, and in its branches: ops on arrays become `EntryInstruction`s.

An array from outside the loop is *stored*: its entries lie in the loop's memory, where each write updates them. A copy of it
stands for it as long as nothing updates it. An array that the block makes consists of *parts*, at most one for each write:
gradients make such arrays, and add them to stored ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from fluid.ir.program import Block
from fluid.ir.versions import Value
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..stepwise.indexed_arrays import ArrayRoom
from ..stepwise.loop_body import is_plain_copy
from .array_entries import ADD, CLEAR, FAULT, FAULT_SPEC, READ, READ_OR_ZEROS, WRITE, EntryInstruction
from .lowering import NotLowered
from .op_instructions import Op, assignment
from .target import Target

__all__ = ["ArrayValues", "is_array"]

Under: TypeAlias = "Callable[[Value, list[Any]], Any]"
"""Makes an instruction that runs instructions if a condition holds."""


def is_array(block: Block, name: str) -> bool:
    """Whether a name is an array of tensors."""
    var = block.find_var(name)
    return var is not None and var.type is VarType.LOD_TENSOR_ARRAY


@dataclass(frozen=True)
class _Stored:
    """The content of an array from outside, after some updates."""

    name: str
    updates: int = 0


class _NewEntry(NamedTuple):
    """An entry of a new array.

    Attributes:
        conditions: it exists if these hold, the outermost first.
    """

    position: Value
    entry: Value
    conditions: tuple[Value, ...] = ()


_Content: TypeAlias = "_Stored | tuple[_NewEntry, ...]"


class ArrayValues:
    """The contents of arrays while the block of a loop becomes instructions.

    Args:
        rooms: array from outside -> the size of its memory.
        specs: value -> its spec; gets the specs of memories and of entries that instructions read.
        target: the processor.
    """

    def __init__(self, rooms: Mapping[str, ArrayRoom], specs: dict[Value, Spec], target: Target) -> None:
        self.rooms, self._specs, self._target = dict(rooms), specs, target
        self._contents: dict[Value, _Content] = {(name, 0): _Stored(name) for name in rooms}
        self._updates = dict.fromkeys(rooms, 0)

    def _content(self, value: Value | None) -> _Content:
        content = self._contents.get(value, ()) if value is not None else ()
        if isinstance(content, _Stored) and content.updates != self._updates[content.name]:
            raise NotLowered("an array that has changed since it was copied")
        return content

    def expand(self, instruction: Any, under: Under) -> Iterator[Any]:
        """The instructions of an op on arrays.

        Args:
            instruction: the op; a `write_to_array` reads the array before in the slot `Out`.
            under: makes branches.
        """
        op, reads, (target,) = instruction.op, instruction.reads, instruction.writes["Out"]
        if op.type == "new_array":
            self._contents[target] = ()
        elif op.type == "write_to_array":
            (former,) = reads.get("Out") or [None]
            yield from self._write(op, reads["X"][0], reads["I"][0], former, target)
        elif op.type == "read_from_array":
            yield self._read(op, reads, target)
        elif op.type == "sum":
            yield from self._sum(op, [self._content(value) for value in reads["X"]], target, under)
        elif op.type == "assign" or (op.type == "scale" and is_plain_copy(op)):
            self._contents[target] = self._content(reads["X"][0])
        else:
            raise NotLowered(f"{op.type} of an array")

    def _entry_spec(self, name: str, spec: Spec | None) -> Spec:
        """The spec of the entries of an array, which are like a value of this spec."""
        room = self.rooms[name]
        spec = room.spec if spec is None else spec
        if spec is None or not spec.known or spec.lod or spec.type is not VarType.LOD_TENSOR or room.spec not in (None, spec):
            raise NotLowered("an array whose entries have no known, equal shape")
        self.rooms[name] = ArrayRoom(room.count, spec)
        return spec

    def _instruction(self, op: Any, kind: str, name: str, position: Value | None, entry: Value | None) -> EntryInstruction:
        if position is None or entry is None:
            raise NotLowered("an array without a position, or an entry")
        spec, memory = self._specs.get(position), (name, 0)
        if spec is None or spec.size != 1:
            raise NotLowered("a position that is no single integer")
        self._specs[memory], self._specs[FAULT] = self.rooms[name].memory, FAULT_SPEC
        return EntryInstruction(op, kind, memory, self.rooms[name], position, spec.dtype, entry, self._target)

    def _update(self, op: Any, kind: str, name: str, position: Value | None, entry: Value | None) -> EntryInstruction:
        spec = self._specs.get(entry) if entry is not None else None
        if spec is None:
            raise NotLowered("an entry of unknown shape")
        self._entry_spec(name, spec)
        self._updates[name] += 1
        return self._instruction(op, kind, name, position, entry)

    def _write(self, op: Any, entry: Value | None, position: Value | None, former: Value | None, target: Value) -> Iterator[Any]:
        content = self._content(former)
        if isinstance(content, _Stored):
            yield self._update(op, CLEAR if op.attr("clears") else WRITE, content.name, position, entry)
            self._contents[target] = _Stored(content.name, self._updates[content.name])
        elif content or op.attr("clears") or entry is None or position is None:
            raise NotLowered("a new array of several entries")
        else:
            self._contents[target] = (_NewEntry(position, entry),)

    def _read(self, op: Any, reads: Mapping[str, list[Value | None]], target: Value) -> Any:
        content, (position,), (like,) = self._content(reads["X"][0]), reads["I"], reads.get("X_W") or [None]
        if not isinstance(content, _Stored):
            if len(content) != 1 or content[0].position != position or content[0].conditions:
                raise NotLowered("an entry of a new array")
            self._set_spec(target, self._specs[content[0].entry])
            return assignment(content[0].entry, target)
        self._set_spec(target, self._entry_spec(content.name, None if like is None else self._specs.get(like)))
        return self._instruction(op, READ if like is None else READ_OR_ZEROS, content.name, position, target)

    def _set_spec(self, value: Value, spec: Spec) -> None:
        if self._specs.setdefault(value, spec) != spec:
            raise NotLowered("a value that gets another shape")

    def _sum(self, op: Any, contents: list[_Content], target: Value, under: Under) -> Iterator[Any]:
        stored = [content for content in contents if isinstance(content, _Stored)]
        parts = tuple(part for content in contents if not isinstance(content, _Stored) for part in content)
        if len(stored) > 1:
            raise NotLowered("a sum of two stored arrays")
        if not stored:
            self._contents[target] = parts
            return
        (array,) = stored
        yield from self._add(op, array.name, parts, under)
        self._contents[target] = _Stored(array.name, self._updates[array.name])

    def _add(self, op: Any, name: str, parts: tuple[_NewEntry, ...], under: Under) -> Iterator[Any]:
        for part in parts:
            instruction: Any = self._update(op, ADD, name, part.position, part.entry)
            for condition in reversed(part.conditions):
                instruction = under(condition, [instruction])
            yield instruction

    # -- ends of blocks
    def leave_branch(self, inner: Value, outer: Value, former: Value | None, condition: Value) -> Iterator[Value]:
        """Let an array that a branch has written, or made, be a value outside. Gives the values that outer instructions may read.

        Args:
            inner: the array in the branch.
            outer: the array outside.
            former: the array that the branch has updated; None for a new one.
            condition: the condition of the branch.
        """
        content, before = self._content(inner), None if former is None else self._contents.get(former)
        if isinstance(content, _Stored):
            if not isinstance(before, _Stored) or before.name != content.name:
                raise NotLowered("an array of the loop that a branch gives another name")
            self._contents[outer] = content
        elif former is not None:
            raise NotLowered("an array that only a branch makes")
        else:
            self._contents[outer] = tuple(part._replace(conditions=(condition, *part.conditions)) for part in content)
            for part in content:
                yield from (part.position, part.entry)

    def end_trip(self, arrays: Mapping[str, Value], totals: Mapping[str, Value], under: Under) -> Iterator[Any]:
        """Add up what the trip leaves in arrays that are summed over the trips, and require that no memory has another content.

        Args:
            arrays: array from outside that the block updates -> its last value.
            totals: array of sums -> the last value of its summand.
        """
        for name, value in totals.items():
            content = self._content(value)
            if isinstance(content, _Stored):
                raise NotLowered("a sum of stored arrays")
            yield from self._add(Op("sum", {}), name, content, under)
        for name, updates in self._updates.items():
            if name not in totals and self._content(arrays.get(name, (name, 0))) != _Stored(name, updates):
                raise NotLowered("an array that is a copy of another")
