"""The memory of arrays of tensors while the block of a loop runs as one call: a stack for each array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fluid.ir.versions import Value
from fluid.values.spec import Spec

from .active_rows import ActiveRows
from .loop_body import Entry

__all__ = ["LoopArrays", "is_plain"]

_ROOM = 4
"""A stack has room for this many entries per trip; arrays with larger holes are lists."""
_NOWHERE = -(1 << 40)
"""A position that is valid nowhere."""


def is_plain(value: Any) -> bool:
    """Whether a value is an array of numpy that compiled code can read."""
    return type(value) is np.ndarray and value.flags.c_contiguous


class _ArrayStack:
    """The memory of one array of tensors. Missing entries are zeros.

    Args:
        former: the entries before the first trip.
        spec: of each entry.
        entries: the entries that trips read or write.
    """

    def __init__(self, former: Sequence[Any], spec: Spec, entries: Sequence[Entry]) -> None:
        self._former, self._spec, self._entries = former, spec, entries
        self._memory = self._zeros(len(former))
        self._is_written = np.zeros(len(former), bool)
        self._exists = np.array([entry is not None for entry in former], bool)
        for position in self._exists.nonzero()[0].tolist():
            self._store(position, former[position])

    def _store(self, position: int, entry: Any) -> None:
        self._memory[position] = entry

    def _stored(self, positions: Sequence[int]) -> list[Any]:
        """The entries at these positions."""
        return [self._memory[position] for position in positions]

    def _zeros(self, count: int) -> Any:
        return np.zeros((count, *self._spec.shape), self._spec.dtype.array_dtype)

    def addresses(self, positions: Mapping[str, Any]) -> dict[Value, Any]:
        """The address of each entry, before and after each trip; makes room, which may end earlier addresses."""
        of_entries = {entry: positions[entry.name] for entry in self._entries}
        self._reserve(max(int(places.max(initial=-1)) for places in of_entries.values()) + 1)
        start, stride = self._memory.ctypes.data, self._memory.strides[0]
        return {
            value: start + places * stride for entry, places in of_entries.items() for value in ((entry.name, 0), entry.value)
        }

    def _reserve(self, count: int) -> None:
        room = len(self._memory)
        if count > room:
            former, self._memory = self._memory, self._zeros(max(count, 2 * room))
            self._memory[:room] = former
            self._is_written, self._exists = (
                np.concatenate([flags, np.zeros(len(self._memory) - room, bool)]) for flags in (self._is_written, self._exists)
            )

    def can_run(self, positions: Mapping[str, Any], runs: Any) -> Any:
        """Tell for each trip whether it can run: its positions are valid and differ, and the entries that it needs exist.

        Args:
            positions: entry -> its position in each trip.
            runs: the number of the run of each trip.
        """
        count = len(runs)
        most = len(self._memory) + _ROOM * count
        places_of = [(entry, positions[entry.name]) for entry in self._entries]
        can_run = np.logical_and.reduce([(places >= 0) & (places < most) for _, places in places_of])
        for number, (_, places) in enumerate(places_of):
            for _, former in places_of[:number]:
                can_run &= places != former
        needed = [places for entry, places in places_of if entry.must_exist]
        if needed:
            trips = np.arange(count)
            first_write = np.full(most, count)
            first_write[: len(self._exists)][self._exists] = -1
            for entry, places in places_of:
                if entry.version:
                    np.minimum.at(first_write, places[can_run], trips[can_run])
            for places in needed:
                can_run &= first_write[np.where(can_run, places, 0)] < trips
        return can_run

    def mark(self, positions: Mapping[str, Any], runs: Any) -> None:
        """Register the entries that the trips of these runs have written."""
        for entry in self._entries:
            if entry.version:
                self._is_written[positions[entry.name][: len(runs)]] = True
        self._exists |= self._is_written

    def values(self) -> list[Any]:
        """The entries; None for missing ones."""
        positions = self._is_written.nonzero()[0].tolist()
        entries = [*self._former, *[None] * (max(positions, default=-1) + 1 - len(self._former))]
        for position, entry in zip(positions, self._stored(positions), strict=True):
            entries[position] = entry
        return entries


class _RowsStack(_ArrayStack):
    """The memory of an array in a loop over a rank table: each entry has room for a row of each sequence.

    Args:
        active: the rows of the loop's runs.
        repeats: whether an entry's first row fills the room after its last row; otherwise zeros do.
    """

    def __init__(self, former: Sequence[Any], spec: Spec, entries: Sequence[Entry], active: ActiveRows, repeats: bool) -> None:
        self._active, self._repeats = active, repeats
        self._rows = np.zeros(len(former), np.int64)
        """The number of rows of each entry."""
        super().__init__(former, spec, entries)

    def _store(self, position: int, entry: Any) -> None:
        self._rows[position] = rows = len(entry)
        self._memory[position, :rows] = entry
        if self._repeats and rows:
            self._memory[position, rows:] = entry[0]

    def _stored(self, positions: Sequence[int]) -> list[Any]:
        return [self._memory[position, :rows] for position, rows in zip(positions, self._rows[positions].tolist(), strict=True)]

    def _reserve(self, count: int) -> None:
        super()._reserve(count)
        self._rows = np.concatenate([self._rows, np.zeros(len(self._memory) - len(self._rows), np.int64)])

    def can_run(self, positions: Mapping[str, Any], runs: Any) -> Any:
        can_run = super().can_run(positions, runs)
        rows = np.full(len(self._memory) + _ROOM * len(runs), -1)  # of each entry; -1 for a missing one
        rows[: len(self._exists)][self._exists] = self._rows[self._exists]
        for entry in self._entries:
            if entry.version:
                rows[positions[entry.name][can_run]] = self._active.of(entry.rows_of)[runs[can_run]]
        for entry in self._entries:
            present, needed = rows[np.where(can_run, positions[entry.name], 0)], self._active.of(entry.rows_of)[runs]
            can_run &= (present < 0) | (present == needed if entry.has_active_rows else present >= needed)
        return can_run

    def mark(self, positions: Mapping[str, Any], runs: Any) -> None:
        super().mark(positions, runs)
        for entry in self._entries:
            if entry.version:
                self._rows[positions[entry.name][: len(runs)]] = self._active.of(entry.rows_of)[runs]

    def rows_at(self, positions: Any) -> Any:
        """The number of rows of each of some entries."""
        return self._rows[positions]


def _integer_in(entry: Any) -> int:
    """The integer in an entry of an array of tensors; `_NOWHERE` if it is no single one."""
    return int(entry.item()) if entry is not None and entry.size == 1 else _NOWHERE


def _array_of(numbers: Any, trips: Any) -> Any:
    """Convert a number, or an array with a number for each trip, to such an array."""
    return numbers if isinstance(numbers, np.ndarray) else np.full(len(trips), numbers)


class LoopArrays:
    """The arrays of tensors of one execution of a loop.

    Args:
        entries: array -> the entries that trips read or write.
        former: array -> its entries before the first trip.
        spec: returns the spec of a value of the block.
        counters: integer that positions depend on -> its value in the first trip, and the step to the next.
        by_number: integer that positions depend on -> its value in each run, by number.
        in_entries: integer that positions depend on -> the entry that trips read it from.
        active: the rows of the runs of a loop over a rank table; None for other loops.
        is_forward: whether the loop is a forward loop, not a gradient.
    """

    def __init__(
        self,
        entries: Mapping[str, Sequence[Entry]],
        former: Mapping[str, Sequence[Any]],
        spec: Callable[[Value], Spec],
        counters: Mapping[str, tuple[int, int]],
        by_number: Mapping[str, Any],
        in_entries: Mapping[str, Entry],
        active: ActiveRows | None,
        is_forward: bool,
    ) -> None:
        self._stacks: dict[str, _ArrayStack] = {}
        for name, several in entries.items():
            of_entry = spec(several[0].value)
            if active is None:
                self._stacks[name] = _ArrayStack(former[name], of_entry, several)
            else:
                self._stacks[name] = _RowsStack(former[name], active.with_all(of_entry), several, active, is_forward)
        self._entries = [entry for several in entries.values() for entry in several]
        self._counters, self._by_number = counters, by_number
        self._in_entries = [
            (name, entry.position, np.array([_integer_in(item) for item in former[entry.array]], np.int64))
            for name, entry in in_entries.items()
        ]
        """Integer -> its position in an array, and the integers there."""
        self._start, self._runs, self._positions = 0, np.empty(0, np.int64), dict[str, Any]()
        """The first trip of the current addresses, and the runs and positions of each entry from there on."""

    def _positions_of(self, trips: Any, numbers: Any) -> dict[str, Any]:
        integers = self._integers_of(trips, numbers)
        return {entry.name: _array_of(entry.position.at(integers), trips) for entry in self._entries}

    def _integers_of(self, trips: Any, numbers: Any) -> dict[str, Any]:
        """The integers that positions depend on, in each trip."""
        integers = {name: first + step * trips for name, (first, step) in self._counters.items()}
        integers |= {name: values[numbers] for name, values in self._by_number.items()}
        for name, position, values in self._in_entries:
            places = _array_of(position.at(integers), trips)
            integers[name] = np.full(len(trips), _NOWHERE)
            is_valid = (places >= 0) & (places < len(values))
            integers[name][is_valid] = values[places[is_valid]]
        return integers

    def count_possible(self, trips: Any, numbers: Any) -> int:
        """How many of some next trips have valid positions, and entries to read.

        Args:
            trips: their order.
            numbers: the numbers of their runs.
        """
        if not self._stacks:
            return len(trips)
        self._mark(trips[0])
        positions = self._positions_of(trips, numbers)
        can_run = np.logical_and.reduce([stack.can_run(positions, numbers) for stack in self._stacks.values()])
        return len(trips) if can_run.all() else int(can_run.argmin())

    def addresses(self, trips: Any, numbers: Any) -> dict[Value, Any]:
        """The addresses of entries in some next trips, before and after each trip."""
        self._mark(trips[0])
        self._start, self._runs, self._positions = trips[0], numbers, self._positions_of(trips, numbers)
        addresses: dict[Value, Any] = {}
        for stack in self._stacks.values():
            addresses |= stack.addresses(self._positions)
        return addresses

    def _mark(self, trip: int) -> None:
        """Note what the trips before a trip have written."""
        for stack in self._stacks.values() if self._positions else ():
            stack.mark(self._positions, self._runs[: trip - self._start])
        self._positions = {}

    def rows_read(self, entry: Entry, count: int) -> Any:
        """The number of rows of an entry in each of the first `count` runs."""
        stack, runs = self._stacks[entry.array], np.arange(count)
        assert isinstance(stack, _RowsStack), "only loops over rank tables ask"
        return stack.rows_at(_array_of(entry.position.at(self._integers_of(runs, runs)), runs))

    def values(self, count: int) -> dict[str, list[Any]]:
        """Array -> its entries after `count` trips."""
        self._mark(count)
        return {name: stack.values() for name, stack in self._stacks.items()}
