"""The memory of arrays of tensors while the block of a loop runs as one call: a stack for each array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fluid.ir.versions import Value
from fluid.values.spec import Spec

from .loop_body import Entry

__all__ = ["LoopArrays", "is_plain"]

_ROOM = 4
"""A stack has room for this many entries per trip; arrays with larger holes are lists."""


def is_plain(value: Any) -> bool:
    """Whether a value is an array of numpy that compiled code can read."""
    return type(value) is np.ndarray and value.flags.c_contiguous


class _Stack:
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
            self._memory[position] = former[position]

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

    def can_run(self, positions: Mapping[str, Any], count: int) -> Any:
        """For each trip, whether its positions are valid and differ, and the entries that it needs exist."""
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

    def mark(self, positions: Mapping[str, Any], count: int) -> None:
        """Note which entries the first `count` trips have written."""
        for entry in self._entries:
            if entry.version:
                self._is_written[positions[entry.name][:count]] = True
        self._exists |= self._is_written

    def values(self) -> list[Any]:
        """The entries; None for missing ones."""
        positions = self._is_written.nonzero()[0].tolist()
        entries = [*self._former, *[None] * (max(positions, default=-1) + 1 - len(self._former))]
        for position in positions:
            entries[position] = self._memory[position]
        return entries


class LoopArrays:
    """The arrays of tensors of one execution of a loop.

    Args:
        entries: array -> the entries that trips read or write.
        former: array -> its entries before the first trip.
        spec: returns the spec of a value of the block.
        counters: integer that positions depend on -> its value in the first trip, and the step to the next.
        by_number: integer that positions depend on -> its value in each run, by number.
    """

    def __init__(
        self,
        entries: Mapping[str, Sequence[Entry]],
        former: Mapping[str, Sequence[Any]],
        spec: Callable[[Value], Spec],
        counters: Mapping[str, tuple[int, int]],
        by_number: Mapping[str, Any],
    ) -> None:
        self._stacks = {name: _Stack(former[name], spec(several[0].value), several) for name, several in entries.items()}
        self._entries = [entry for several in entries.values() for entry in several]
        self._counters, self._by_number = counters, by_number
        self._start, self._positions = 0, dict[str, Any]()
        """The first trip of the current addresses, and the positions of each entry from there on."""

    def _positions_of(self, trips: Any, numbers: Any) -> dict[str, Any]:
        integers = {name: first + step * trips for name, (first, step) in self._counters.items()}
        integers |= {name: values[numbers] for name, values in self._by_number.items()}
        return {entry.name: np.broadcast_to(entry.position.at(integers), trips.shape) for entry in self._entries}

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
        can_run = np.logical_and.reduce([stack.can_run(positions, len(trips)) for stack in self._stacks.values()])
        return len(trips) if can_run.all() else int(can_run.argmin())

    def addresses(self, trips: Any, numbers: Any) -> dict[Value, Any]:
        """The addresses of entries in some next trips, before and after each trip."""
        self._mark(trips[0])
        self._start, self._positions = trips[0], self._positions_of(trips, numbers)
        addresses: dict[Value, Any] = {}
        for stack in self._stacks.values():
            addresses |= stack.addresses(self._positions)
        return addresses

    def _mark(self, trip: int) -> None:
        """Note what the trips before a trip have written."""
        for stack in self._stacks.values() if self._positions else ():
            stack.mark(self._positions, trip - self._start)
        self._positions = {}

    def values(self, count: int) -> dict[str, list[Any]]:
        """Array -> its entries after `count` trips."""
        self._mark(count)
        return {name: stack.values() for name, stack in self._stacks.items()}
