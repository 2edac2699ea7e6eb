"""Reduces arrays in memory that the workers of one machine share (windows of MPI 3).

Each worker copies its arrays into its part of a window. Once all have, worker `i` of the machine reduces the `i`-th slice of all
parts, in the order of ranks. Between machines, the workers with the same `i` reduce their results, so that each machine sends
every element once. At the end each worker copies the results of all into its arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..values.types import BFLOAT16
from .parcel import Parcel, combine

Steps = Iterator[Sequence[int]]
"""An operation in progress. Each step advances it without waiting, and gives the ranks of the workers that it waits for; none
where MPI knows them."""

_HEADER = 128
_ARRIVED, _REDUCED = 0, 8
"""Positions of a part's flags, in elements of int64: each has a line of the cache."""
_LINE = 64
"""Bytes of a line of the cache."""
_STEP = 64
"""Slices have a multiple of so many elements, except for the last one."""
_LARGEST_ITEM = 8
"""Bytes of the largest elements that are reduced."""
_SHARED_FOLDER = "/dev/shm"


class _SharedWindow:
    """Memory for one reduction at a time: a part for each worker of the machine, with flags in front and room for a result.

    The flags of a part count uses of the window: one counts how often the worker has copied its arrays into its part, one how
    often it has reduced its slice. Results have memory of their own: others may still read them when the worker copies the
    arrays of the next use into its part.

    Args:
        window: MPI's.
        capacity: bytes of a part.
        worker: the number of this worker on the machine.
        workers: how many there are.
    """

    def __init__(self, window: Any, capacity: int, worker: int, workers: int) -> None:
        self._window, self.capacity, self._worker = window, capacity, worker
        memory = [np.frombuffer(window.Shared_query(number)[0], np.uint8) for number in range(workers)]
        self._flags = [raw[:_HEADER].view(np.int64) for raw in memory]
        self._parts = [raw[_HEADER : _HEADER + capacity] for raw in memory]
        self._results = [raw[_HEADER + capacity :] for raw in memory]
        self.uses = 0
        window.Lock_all()
        self._flags[worker][:] = 0

    def parts(self, parcel: Parcel) -> list[Any]:
        """The elements of a parcel in the part of each worker."""
        return [part[: parcel.nbytes].view(parcel.sent_as) for part in self._parts]

    def results(self, parcel: Parcel, slices: Sequence[slice]) -> list[Any]:
        """The results of the workers that reduce these slices of a parcel."""
        return [
            result.view(parcel.sent_as)[: reduced.stop - reduced.start]
            for result, reduced in zip(self._results, slices, strict=False)
        ]

    def raise_flag(self, flag: int) -> None:
        """Tell the others that this worker has come so far in this use."""
        self._window.Sync()  # the others see the part before the flag
        self._flags[self._worker][flag] = self.uses

    def late(self, flag: int, workers: int) -> list[int]:
        """Which of the first `workers` have not raised a flag in this use."""
        late = [number for number in range(workers) if self._flags[number][flag] < self.uses]
        self._window.Sync()
        return late

    def free(self) -> None:
        """Give the memory back, together with the other workers of the machine."""
        self._flags, self._parts, self._results = [], [], []
        self._window.Unlock_all()
        self._window.Free()


class SharedMemory:
    """Reductions in the memory of each machine. All workers make the same reductions in one order.

    Args:
        mpi: mpi4py's module.
        group: the communicator of all workers.
        agree: returns whether a statement holds for all workers, who call it together.
    """

    def __init__(self, mpi: Any, group: Any, agree: Callable[[bool], bool]) -> None:
        self._mpi, self._agree = mpi, agree
        self._machine = group.Split_type(mpi.COMM_TYPE_SHARED)
        self._worker, self._workers = int(self._machine.rank), int(self._machine.size)
        self._ranks: list[int] = self._machine.allgather(group.rank)
        """Number of a worker of this machine -> its rank among all."""
        self._reducers = int(group.allreduce(self._workers, mpi.MIN))
        """The number of workers of each machine that reduce a slice: as the smallest machine has."""
        self._peers = group.Split(self._worker if self._reduces else mpi.UNDEFINED)
        """The workers that reduce the same slice, one of each machine."""
        self._free: list[_SharedWindow] = []
        self._begun = self._combined = 0
        """The numbers of reductions that have begun, and that are combined within this machine."""
        self.is_useful: bool = not agree(self._workers == 1)
        """Whether there is a machine of several workers."""

    @property
    def _reduces(self) -> bool:
        """Whether this worker reduces a slice."""
        return self._worker < self._reducers

    def start(self, parcel: Parcel) -> tuple[Steps, Callable[[], None]] | None:
        """Begin to reduce a parcel.

        Returns:
            The steps, and a function that copies the results into the arrays. It is called after the steps, for all reductions
            in one order on all workers, as the window is free then, and they have to choose the same windows. None, on all
            workers, if a machine lacks the memory.
        """
        window = self._window_of(parcel.nbytes)
        if window is None:
            return None
        window.uses += 1
        self._begun += 1
        parcel.pack(window.parts(parcel)[self._worker])
        window.raise_flag(_ARRIVED)
        return self._reduce(parcel, window, self._begun), lambda: self._finish(parcel, window)

    def _finish(self, parcel: Parcel, window: _SharedWindow) -> None:
        slices = _slices(parcel.size, self._reducers)
        for result, reduced in zip(window.results(parcel, slices), slices, strict=True):
            parcel.unpack(result, reduced.start)
        self._free.append(window)

    def _reduce(self, parcel: Parcel, window: _SharedWindow, number: int) -> Steps:
        while late := window.late(_ARRIVED, self._workers):
            yield [self._ranks[worker] for worker in late]
        while self._combined < number - 1:  # between machines, slices travel in one order
            yield ()
        self._combined = number
        slices = _slices(parcel.size, self._reducers)
        if self._reduces:
            mine, total = slices[self._worker], window.results(parcel, slices)[self._worker]
            combine(parcel, [part[mine] for part in window.parts(parcel)], total)
            if self._peers.size > 1:
                yield from reduce_by_mpi(self._mpi, self._peers, parcel, total)
            window.raise_flag(_REDUCED)
        while late := window.late(_REDUCED, self._reducers):
            yield [self._ranks[worker] for worker in late]

    # -- memory
    def _window_of(self, nbytes: int) -> _SharedWindow | None:
        """The smallest free window of so many bytes; if there is none, a new one replaces the free ones."""
        fitting = [window for window in self._free if window.capacity >= nbytes]
        if fitting:
            window = min(fitting, key=lambda window: window.capacity)
            self._free.remove(window)
            return window
        return self._allocate(_aligned(nbytes))

    def _allocate(self, capacity: int) -> _SharedWindow | None:
        size = _HEADER + capacity + _aligned(capacity // self._reducers + _STEP * _LARGEST_ITEM)
        freed = sum(window.capacity for window in self._free)
        if not self._agree(_free_bytes() + freed * self._workers >= size * self._workers):
            return None
        for window in self._free:
            window.free()
        self._free.clear()
        allocated = None
        try:
            shared = self._mpi.Win.Allocate_shared(size, 1, comm=self._machine)
            allocated = _SharedWindow(shared, capacity, self._worker, self._workers)
        except self._mpi.Exception:
            pass  # said by the caller, on all workers
        return allocated if self._agree(allocated is not None) else None


def _free_bytes() -> float:
    """How many bytes can be shared. Writing to more, in a container that allows little, would kill the process."""
    if not os.path.isdir(_SHARED_FOLDER):
        return float("inf")
    state = os.statvfs(_SHARED_FOLDER)
    return 0 if state.f_flag & os.ST_RDONLY else state.f_bavail * state.f_frsize


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE


def _slices(size: int, count: int) -> list[slice]:
    """Divide elements into contiguous slices, each from the start of a line of the cache."""
    length = -(-size // (count * _STEP)) * _STEP
    return [slice(min(number * length, size), min((number + 1) * length, size)) for number in range(count)]


# ------------------------------------------------------------------------------------------------------- through MPI
def wait_for(request: Any) -> Steps:
    """The steps of a request of MPI."""
    while not request.Test():
        yield ()


def reduce_by_mpi(mpi: Any, group: Any, parcel: Parcel, flat: Any) -> Steps:
    """Replace `flat`, elements of a parcel, by their reduction over a communicator of MPI."""
    if parcel.sent_as == BFLOAT16:
        yield from _sum_bfloat16(mpi, group, parcel, flat)
        return
    work = flat.astype(parcel.computed_in, copy=False)
    kinds = {"sum": mpi.SUM, "max": mpi.MAX, "min": mpi.MIN, "prod": mpi.PROD}
    yield from wait_for(group.Iallreduce(mpi.IN_PLACE, work, kinds[parcel.kind]))
    if work is not flat:
        flat[...] = work


def _sum_bfloat16(mpi: Any, group: Any, parcel: Parcel, flat: Any) -> Steps:
    """Reduce elements that MPI does not know: each worker reduces a slice, and gives it to the others."""
    length = -(-flat.size // group.size)
    sent, received = (np.zeros(length * group.size, BFLOAT16) for _ in range(2))
    sent[: flat.size] = flat
    yield from wait_for(group.Ialltoall([sent, mpi.UINT16_T], [received, mpi.UINT16_T]))
    reduced = np.empty(length, BFLOAT16)
    combine(parcel, np.split(received, group.size), reduced)
    yield from wait_for(group.Iallgather([reduced, mpi.UINT16_T], [sent, mpi.UINT16_T]))
    flat[...] = sent[: flat.size]
