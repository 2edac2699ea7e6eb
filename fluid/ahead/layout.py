"""The memory of a compiled library: where each value of its functions lies.

There are three kinds of memory, all of the caller. The *state* holds the variables that last, for all functions the same. The
*arena* holds what a call computes. A *feed* is read in place. The library itself holds constants, and frozen variables.
An address is a base and an offset from it, so all memory may move between calls.

The arena begins with the *images*: values with a border of zeros, which is zeroed once and never written. Functions do not share
the bytes of images. A stamp before them tells whether they have been zeroed. Behind them lie temporary values and the workspace
of kernels, where all functions use the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ..executor.native.branches import BranchMark
from ..executor.native.instructions import CLEARED, Check, KernelCall, NativeInstruction, Operand
from ..executor.planned.native_loops import NativeLoop
from ..executor.planned.placement import padded
from ..executor.planned.plan import ArenaPlan
from ..ir.versions import Value
from ..values.spec import Spec
from .drawing import TensorDraw

STATE, ARENA, CONSTANTS, FROZEN = "the state", "the arena", "the constants", "the frozen variables"
"""Bases of addresses; each feed is another base, under its name."""


Part: TypeAlias = "Check | TensorDraw | BranchMark | NativeLoop | list[NativeInstruction]"
"""A step of a function: a list of calls of kernels, or a check, a draw, the mark of a branch, or a loop."""


class Address(NamedTuple):
    """An address: an offset in bytes from a base."""

    base: str
    offset: int


@dataclass(eq=False)
class LibraryFunction:
    """A function of the library.

    Attributes:
        name: its name, behind the name of the library: ``step``, ``predict_32``.
        kind: the name of its structs: ``step``, ``predict``.
        plan: its plan.
        feeds, fetches: name in C -> name of the variable.
        draws: drawn tensor -> how to draw it.
        constants: value -> its array, which the library holds.
    """

    name: str
    kind: str
    plan: ArenaPlan
    feeds: dict[str, str]
    fetches: dict[str, str]
    draws: dict[Value, TensorDraw]
    constants: dict[Value, Any]

    @property
    def fetched(self) -> dict[str, Value]:
        """Name in C -> the fetched value."""
        return dict(zip(self.fetches, self.plan.fetch_values, strict=True))

    @property
    def feed_specs(self) -> dict[str, Spec]:
        """Name in C -> the spec of the feed."""
        return {name: self.plan.feeds[variable] for name, variable in self.feeds.items()}

    @property
    def fetch_specs(self) -> dict[str, Spec]:
        """Name in C -> the spec of the fetched value."""
        return {name: self.plan.specs[value] for name, value in self.fetched.items()}

    @property
    def native(self) -> list[NativeInstruction]:
        """The instructions of native code that call kernels."""
        native = (instruction for instruction in self.plan.instructions if isinstance(instruction, NativeInstruction))
        return [instruction for instruction in native if not isinstance(instruction, BranchMark)]

    @property
    def calls(self) -> list[KernelCall]:
        """The calls of kernels, of loops for the first and the last trip."""
        return [call for instruction in self.native for call in instruction.calls]

    @property
    def parts(self) -> list[Part]:
        """The steps of the function, in order."""
        return parts_of(self.plan.instructions, self.draws)

    @property
    def follows_runs(self) -> bool:
        """Whether it draws other numbers in each run."""
        return any(draw.follows_runs for draw in self.draws.values())

    @property
    def constant_places(self) -> dict[Value, int]:
        """Constant -> its offset among the constants of the function."""
        places, end = dict[Value, int](), 0
        for value in self.constants:
            places[value] = end
            end += padded(self.size_of(value))
        return places

    def size_of(self, value: Value) -> int:
        """Bytes of a value."""
        return self.plan.specs[value].nbytes

    def lasts(self, value: Value) -> bool:
        """Whether a value lies in the state."""
        return value[0] in self.plan.storage or (value[1] == 0 and value[0] in self.plan.externals)


def parts_of(instructions: Iterable[Any], draws: Mapping[Value, TensorDraw], loop: NativeLoop | None = None) -> list[Part]:
    """Group instructions: checks, draws, marks of branches and loops stand alone, and native code between them is one list.

    Args:
        instructions: of a plan, or of the body of a loop.
        draws: tensor -> how to draw it.
        loop: the loop, for its body.
    """
    parts: list[Part] = []
    for instruction in instructions:
        if isinstance(instruction, (Check, BranchMark, NativeLoop)):
            parts.append(instruction)
        elif isinstance(instruction, NativeInstruction):
            last = parts[-1] if parts else None
            if isinstance(last, list):
                last.append(instruction)
            else:
                parts.append([instruction])
        else:
            drawn = (value if loop is None else loop.places[value].value for value in instruction.written)
            parts += [draws[value] for value in drawn if value in draws]
    return parts


class Layout:
    """Places the values of functions.

    Args:
        entries: the functions.
        alignment: variables of the state begin at multiples of this many bytes.
        frozen: variables that the library holds as constants.

    Attributes:
        state: variable -> its offset in the state, and its spec.
        frozen: variable -> its offset among the frozen ones, and its spec.
        runs_offset: the offset in the state of the number of runs, of 64 bits; None if no function needs it.
        state_bytes: size of the state.
        image_bytes, temporary_bytes, workspace_bytes: sizes of the parts of the arena, in order, behind the stamp.
    """

    def __init__(self, entries: Sequence[LibraryFunction], alignment: int, frozen: Container[str] = ()) -> None:
        lasting = {name: spec for entry in entries for name, spec in {**entry.plan.externals, **entry.plan.storage}.items()}
        self.state, self.state_bytes = _in_order({n: spec for n, spec in lasting.items() if n not in frozen}, alignment)
        self.frozen, _ = _in_order({name: spec for name, spec in lasting.items() if name in frozen}, alignment)
        self.runs_offset: int | None = None
        if any(function.follows_runs for function in entries):
            self.runs_offset = self.state_bytes
            self.state_bytes += alignment
        self.image_bytes = 0
        self._images: dict[LibraryFunction, dict[Value, int]] = {entry: self._place_images(entry) for entry in entries}
        self.stamp_bytes = padded(8) if self.image_bytes else 0
        self.temporary_bytes = max(padded(entry.plan.arena_bytes) for entry in entries)
        native = [instruction for entry in entries for instruction in entry.native]
        self.workspace_bytes = max((padded(instruction.workspace_bytes) for instruction in native), default=0)

    @property
    def arena_bytes(self) -> int:
        return self._behind_images + self.temporary_bytes + self.workspace_bytes

    @property
    def stamp(self) -> int:
        """The number that the arena begins with once the images have been zeroed; other libraries have other numbers."""
        facts = (
            self.state_bytes,
            self.image_bytes,
            self.arena_bytes,
            [sorted(places.items()) for places in self._images.values()],
        )
        return int.from_bytes(hashlib.sha256(repr(facts).encode()).digest()[:8], "little", signed=True)

    @property
    def _behind_images(self) -> int:
        return self.stamp_bytes + self.image_bytes

    def place(self, entry: LibraryFunction, operand: Operand) -> Address:
        """The address of an operand of a kernel."""
        value, offset = operand
        if value is None:
            return Address(ARENA, self._behind_images + self.temporary_bytes + offset)
        if entry.lasts(value) and value[0] in self.frozen:
            return Address(FROZEN, self.frozen[value[0]][0] + offset)
        if entry.lasts(value):
            return Address(STATE, self.state[value[0]][0] + offset)
        if value in self._feeds_of(entry):
            return Address(self._feeds_of(entry)[value], offset)
        if value in entry.constants:
            return Address(CONSTANTS, entry.constant_places[value] + offset)
        if value in entry.plan.offset_of:
            return Address(ARENA, self._behind_images + entry.plan.offset_of[value] + offset)
        if value in self._images[entry]:
            return Address(ARENA, self.stamp_bytes + self._images[entry][value] + offset)
        assert not entry.plan.specs[value].nbytes, f"{value[0]} has no place"
        return Address(ARENA, 0)

    def _feeds_of(self, entry: LibraryFunction) -> Mapping[Value, str]:
        return {(variable, 0): name for name, variable in entry.feeds.items()}

    def _place_images(self, entry: LibraryFunction) -> dict[Value, int]:
        """Image -> its offset behind the stamp. Images that share memory in turn have the same offset."""
        shared = {out: source for instruction in entry.native for out, source in instruction.shares.items()}
        places: dict[Value, int] = {}
        for value in _images_of(entry.plan.specs):
            if value not in shared:
                places[value] = self.image_bytes
                self.image_bytes += padded(entry.plan.specs[value].nbytes)
        for out in shared:
            first = out
            while first in shared:
                first = shared[first]
            if first in places:
                places[out] = places[first]
        return places


def _in_order(specs: Mapping[str, Spec], alignment: int) -> tuple[dict[str, tuple[int, Spec]], int]:
    """Place variables one behind the other: variable -> its offset and its spec; and the bytes of all."""
    places: dict[str, tuple[int, Spec]] = {}
    end = 0
    for name, spec in specs.items():
        places[name] = end, spec
        end += -(-spec.nbytes // alignment) * alignment
    return places, end


def _images_of(values: Iterable[Value]) -> list[Value]:
    return [value for value in values if value[0].startswith(CLEARED)]
