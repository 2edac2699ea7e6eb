"""Workers that communicate by MPI (mpi4py)."""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import CommunicationError, how_to_install
from .agreement import first_difference
from .communicator import EXCHANGE, Communicator, Statement, statement_of, time_limit
from .environment import Worker
from .parcel import Parcel, parcel_of
from .shared_memory import SharedMemory, Steps, reduce_by_mpi, wait_for

_SPINS = 200
"""Tests of a request in a row; after that, other processes get the processor in between."""
_YIELDS = 2000
"""The number of times that the worker yields the processor without sleeping."""
_NAP = 5e-5
_leave: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))
"""Yields the processor to other processes."""
_GRACE = 0.5
_EXCHANGE_OF_ROWS = "exchange of rows"
_SHARED_KINDS = "fiu"
"""Kinds of element types that are reduced in shared memory: floating point numbers and integers."""


class MPICommunicator(Communicator):
    """The workers of MPI's world, in a communicator of their own.

    Whatever waits for other workers does so for a limited time: the environment variable ``FLUID_DISTRIBUTED_TIMEOUT`` says how
    many seconds (300). After an error nobody can speak to the others any more; when this process ends, then, so do all.

    Args:
        worker: what the environment says, which MPI has to confirm.

    Raises:
        CommunicationError: mpi4py is missing, or MPI knows another number of workers.
    """

    def __init__(self, worker: Worker) -> None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:  # without a library of MPI, mpi4py raises a RuntimeError
            raise CommunicationError(
                f"this process is worker {worker.rank} of {worker.size} ({worker.source}), and they speak by MPI, which cannot "
                f"be loaded ({error}): {how_to_install('mpi')}"
            ) from None
        world = MPI.COMM_WORLD
        if (world.rank, world.size) != (worker.rank, worker.size):
            raise CommunicationError(
                f"the environment says {worker.source}, and MPI says worker {world.rank} of {world.size}: mpiexec belongs to "
                "another MPI than mpi4py; start the workers by python -m fluid.distributed.launch, which takes the one that fits"
            )
        super().__init__(world.rank, world.size)
        self._mpi = MPI
        self._group = world.Dup()
        self._timeout = time_limit()
        self._begun: dict[int, tuple[Sequence[Any], Steps, Callable[[], None]]] = {}
        """Id of the first of the arrays of a reduction -> the arrays, the steps, and a function that takes the results."""
        self._statement: tuple[Statement, Any, Any] | None = None
        """The statement that is not compared yet, its request, and the request's array."""
        self._is_lost = False
        shared = SharedMemory(MPI, self._group, self._agree)
        self._shared = shared if shared.is_useful else None
        self._end_together()

    # -- arrays
    def start_allreduce(self, arrays: Sequence[Any], kind: str, sent_as: np.dtype[Any] | None = None) -> None:
        self._compare_statements()
        parcel = parcel_of(arrays, kind, sent_as)
        self._count(parcel)
        steps, take_results = self._call("all-reduce", lambda: self._reduction(parcel))
        self._call("all-reduce", lambda: next(steps, None))
        self._begun[id(arrays[0])] = arrays, steps, take_results

    def _reduction(self, parcel: Parcel) -> tuple[Steps, Callable[[], None]]:
        """Begin to reduce a parcel in shared memory, or by MPI; see `SharedMemory.start`."""
        if self._shared is not None and parcel.computed_in.kind in _SHARED_KINDS:
            begun = self._shared.start(parcel)
            if begun is not None:
                return begun
            self._shared = None
            if self.rank == 0:
                warnings.warn(
                    f"the workers cannot share {parcel.nbytes:,} bytes of memory each, perhaps as /dev/shm is full or read-only: "
                    "MPI sums their gradients instead, more slowly",
                    stacklevel=2,
                )
        return self._reduce_by_mpi(parcel), lambda: None

    def _reduce_by_mpi(self, parcel: Parcel) -> Steps:
        (array, *more) = parcel.arrays
        if not more and parcel.sent_as == array.dtype:
            yield from reduce_by_mpi(self._mpi, self._group, parcel, array.reshape(-1))
            return
        flat = np.empty(parcel.size, parcel.sent_as)
        parcel.pack(flat)
        yield from reduce_by_mpi(self._mpi, self._group, parcel, flat)
        parcel.unpack(flat)

    def finish(self, arrays: Sequence[Any]) -> None:
        _, steps, take_results = self._begun.pop(id(arrays[0]))
        self._go_through(self._beside_others(steps), "all-reduce")
        take_results()

    def _beside_others(self, steps: Steps) -> Steps:
        """Take the steps of one reduction, and advance the other reductions meanwhile: it may have to wait for them."""
        for late in steps:
            self.progress()
            yield late

    def progress(self) -> None:
        for _, steps, _ in self._begun.values():
            next(steps, None)

    def _agree(self, holds: bool) -> bool:
        """Whether a statement holds for all workers."""
        answer = np.array([holds], np.int64)
        self._wait(self._group.Iallreduce(self._mpi.IN_PLACE, answer, self._mpi.MIN), "sharing of memory")
        return bool(answer[0])

    def reduce(self, array: Any, root: int) -> None:
        is_root = self.rank == root
        source, target = (self._mpi.IN_PLACE, array) if is_root else (array, None)
        self._run("reduction", array, lambda: self._group.Ireduce(source, target, self._mpi.SUM, root))
        if not is_root:
            array.fill(0)

    def broadcast(self, array: Any, root: int) -> None:
        self._run("broadcast", array, lambda: self._group.Ibcast(_bytes(array), root))

    def allgather(self, array: Any, out: Any) -> None:
        self._run("all-gather", array, lambda: self._group.Iallgather(_bytes(array), _bytes(out)))

    def reducescatter(self, array: Any, out: Any) -> None:
        self._run("reduce-scatter", array, lambda: self._group.Ireduce_scatter_block(array, out, self._mpi.SUM))

    def gather_rows(self, *arrays: Any) -> list[Any]:
        self._compare_statements()
        counts = np.empty(self.size, np.int64)
        row_count = np.array([len(arrays[0])], np.int64)
        self._wait(self._call("gathering of rows", lambda: self._group.Iallgather(row_count, counts)), "gathering of rows")
        return [self._gathered(array, counts) for array in arrays]

    def _gathered(self, array: Any, counts: Any) -> Any:
        """Gather the rows of all workers; `counts` has the number of rows of each."""
        out = np.empty((int(counts.sum()), *array.shape[1:]), array.dtype)
        row = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
        target = self._places_of_rows(out, counts, row)
        self._run("gathering of rows", array, lambda: self._group.Iallgatherv(_bytes(array), target))
        return out

    def exchange_rows(self, rows: Any, counts: Sequence[int]) -> tuple[Any, list[int]]:
        self._compare_statements()
        sent, received = np.array(counts, np.int64), np.empty(self.size, np.int64)
        self._wait(self._call(_EXCHANGE_OF_ROWS, lambda: self._group.Ialltoall(sent, received)), _EXCHANGE_OF_ROWS)
        out = np.empty((int(received.sum()), *rows.shape[1:]), rows.dtype)
        row_bytes = rows.dtype.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64))
        source, target = self._places_of_rows(rows, sent, row_bytes), self._places_of_rows(out, received, row_bytes)
        self._run(_EXCHANGE_OF_ROWS, rows, lambda: self._group.Ialltoallv(source, target))
        return out, received.tolist()

    def _places_of_rows(self, rows: Any, counts: Any, row_bytes: int) -> list[Any]:
        """Where the rows for, or of, each worker lie, as MPI wants it."""
        sizes = counts * row_bytes
        return [_bytes(rows), (sizes, np.cumsum(sizes) - sizes), self._mpi.BYTE]

    # -- plain Python
    def exchange(self, item: Any) -> list[Any]:
        """See `Communicator.exchange`; items are text, numbers, and lists and tuples of these, which travel as JSON."""
        import json

        self.state(statement_of(EXCHANGE))
        self._compare_statements()
        return [json.loads(bytes(part)) for part in self._exchange(json.dumps(item).encode())]

    def _exchange(self, data: bytes) -> list[bytes]:
        sizes = np.empty(self.size, np.int64)
        payload = np.frombuffer(data, np.uint8)
        self._wait(self._group.Iallgather(np.array([len(payload)], np.int64), sizes), "exchange")
        out = np.empty(int(sizes.sum()), np.uint8)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        self._wait(self._group.Iallgatherv(payload, [out, (sizes, starts[:-1]), self._mpi.BYTE]), "exchange")
        return [out[start:end].tobytes() for start, end in pairwise(starts)]

    # -- what runs
    def state(self, statement: Statement) -> None:
        self._compare_statements()
        extremes = np.array([statement.digest, -statement.digest], np.int64)
        request = self._call("comparison", lambda: self._group.Iallreduce(self._mpi.IN_PLACE, extremes, self._mpi.MAX))
        self._statement = statement, request, extremes

    def _compare_statements(self) -> None:
        """Wait until all workers have stated their next run; `CommunicationError` on each worker if the runs differ."""
        if self._statement is None:
            return
        statement, request, extremes = self._statement
        self._statement = None
        self._wait(request, "comparison of what the workers run")
        if extremes[0] != -extremes[1]:
            import json

            statements = [json.loads(part) for part in self._exchange(json.dumps(list(statement.tell())).encode())]
            raise CommunicationError(first_difference(statements))

    # -- requests
    def _run(self, action: str, array: Any, begin: Callable[[], Any]) -> None:
        """Begin something and wait for it."""
        self._compare_statements()
        self._count(array)
        self._wait(self._call(action, begin), action)

    def _call(self, action: str, begin: Callable[[], Any]) -> Any:
        if self._is_lost:
            raise CommunicationError(f"{self.who()} has lost the others; an error before this one says how")
        try:
            return begin()
        except self._mpi.Exception as error:
            self._is_lost = True
            raise CommunicationError(f"{self.who()}: MPI refuses the {action}: {error}") from error

    def _wait(self, request: Any, action: str) -> None:
        """Wait for a request, at most as long as is allowed."""
        self._go_through(wait_for(request), action)

    def _go_through(self, steps: Steps, action: str) -> None:
        """Take all steps of an operation, at most as long as is allowed."""
        start = time.perf_counter()
        try:
            for count, late in enumerate(steps):
                if count > _YIELDS:
                    time.sleep(_NAP)
                elif count > _SPINS:
                    _leave()
                if count % 64 == 63 and time.perf_counter() - start > self._timeout:
                    self._is_lost = True
                    raise self.waited_in_vain(self._timeout, action, late)
        except self._mpi.Exception as error:
            self._is_lost = True
            raise CommunicationError(f"{self.who()}: the {action} failed, perhaps since a worker has died: {error}") from error
        finally:
            self.traffic.seconds_waited += time.perf_counter() - start

    # -- the end
    def _end_together(self) -> None:
        """See to it that the others end, too, when this process ends by an error: they would wait for it in vain."""
        former = sys.excepthook

        def end_all(kind: Any, error: Any, traceback: Any) -> None:
            former(kind, error, traceback)
            self._abort()

        sys.excepthook = end_all
        atexit.register(lambda: self._abort() if self._is_lost else None)

    def _abort(self) -> None:
        """End all workers, a little later: others may be about to tell of the same error."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        time.sleep(_GRACE)
        self._mpi.COMM_WORLD.Abort(1)


def _bytes(array: Any) -> Any:
    """The memory of an array, whatever its element type."""
    return array.reshape(-1).view(np.uint8)
