"""Workers that have joined ``jax.distributed``: they leave each other notes with its coordinator.

Sums and gatherings of a program at an `XLAPlace` do not come this way: there XLA's own collectives do it, on the devices
(`fluid.executor.xla.workers`). Rare messages do: comparisons, checkpoints, the first values of parameters.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from ..errors import CommunicationError, how_to_install
from .agreement import first_difference
from .communicator import EXCHANGE, Communicator, Statement, statement_of, time_limit
from .ending import end_at_once
from .environment import Worker
from .parcel import combine, parcel_of

_MOST_BYTES = 1 << 20
"""The size limit of one note."""
_DAY = 86400


def has_joined_jax() -> bool:
    """Whether this process has called ``jax.distributed.initialize``."""
    jax = sys.modules.get("jax")
    return jax is not None and bool(jax.distributed.is_initialized())


def join_jax(coordinator: str, processes: int, process: int, seconds: float) -> None:
    """Make this process one of ``jax.distributed``, whose collectives on CPUs are gloo's.

    jax itself would end a process for which others do not come, or which others do not wait for at the end, without an error
    that could be caught. So it waits for days, in a thread. After an error, a process does not wait for the others, but ends.

    Args:
        coordinator: ``address:port`` of process 0.
        processes: how many there are.
        process: the number of this one, from 0.
        seconds: how long to wait for the others.

    Raises:
        CommunicationError: jax is not installed, or the others did not come.
    """
    who = f"process {process} of {processes}"
    try:
        import jax
    except ImportError:
        raise CommunicationError(f"{who} joins the others by jax, which is not installed: {how_to_install('xla')}") from None
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    errors: list[Exception] = []

    def join() -> None:
        try:
            jax.distributed.initialize(
                coordinator, processes, process, initialization_timeout=_DAY, shutdown_timeout_seconds=30 * _DAY
            )
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=join, name="fluid joins jax", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive() or errors:
        reason = f"it has waited for {seconds:g} s" if not errors else str(errors[0]).partition("\n")[0]
        raise CommunicationError(
            f"{who} did not come together with the others at {coordinator}: {reason}; start all of them, with the same address, "
            "before anything runs"
        ) from (errors[0] if errors else None)
    former = sys.excepthook

    def end(kind: Any, error: Any, traceback: Any) -> None:
        former(kind, error, traceback)
        if not hasattr(sys, "ps1"):  # at a prompt the next line may be entered
            end_at_once()

    sys.excepthook = end


class JaxCommunicator(Communicator):
    """The processes of ``jax.distributed``.

    Whatever waits for other workers does so for a limited time (`time_limit`).

    Args:
        worker: what the environment says, which jax has to confirm.

    Raises:
        CommunicationError: this process has not joined the others, or jax knows another number of them.
    """

    def __init__(self, worker: Worker) -> None:
        from jax._src.distributed import global_state  # jax has no public way to its coordinator

        if global_state.client is None:
            raise CommunicationError(
                f"this process is worker {worker.rank} of {worker.size} ({worker.source}), and has not joined the others by jax: "
                "start them by python -m fluid.distributed.launch --backend jax, or call jax.distributed.initialize first"
            )
        if (global_state.process_id, global_state.num_processes) != (worker.rank, worker.size):
            raise CommunicationError(
                f"the environment says {worker.source}, and jax says process {global_state.process_id} of "
                f"{global_state.num_processes}; tell both the same"
            )
        super().__init__(worker.rank, worker.size)
        self._notes: Any = global_state.client
        self._seconds = time_limit()
        self._rounds = 0
        self._last_keys: list[str] = []
        """Keys of this worker's notes of the round before, which all have read when all have written again."""

    # -- arrays
    def start_allreduce(self, arrays: Sequence[Any], kind: str, sent_as: np.dtype[Any] | None = None) -> None:
        parcel = parcel_of(arrays, kind, sent_as)
        flat = np.empty(parcel.size, parcel.sent_as)
        parcel.pack(flat)
        combine(parcel, self._arrays(flat, "all-reduce"), flat)
        parcel.unpack(flat)

    def finish(self, arrays: Sequence[Any]) -> None:
        return

    def reduce(self, array: Any, root: int) -> None:
        parts = self._arrays(array, "reduction")
        array[...] = reduce(np.add, parts) if self.rank == root else 0

    def broadcast(self, array: Any, root: int) -> None:
        self._count(array)
        data = self._exchange(array.tobytes() if self.rank == root else b"", f"broadcast of {_shape(array)}")[root]
        array[...] = np.frombuffer(data, array.dtype).reshape(array.shape)

    def allgather(self, array: Any, out: Any) -> None:
        np.concatenate(self._arrays(array, "all-gather"), out=out)

    def reducescatter(self, array: Any, out: Any) -> None:
        rows = len(out)
        out[...] = reduce(np.add, self._arrays(array, "reduce-scatter"))[self.rank * rows : (self.rank + 1) * rows]

    def gather_rows(self, *arrays: Any) -> list[Any]:
        gathered = []
        for array in arrays:
            self._count(array)
            parts = self._exchange(array.tobytes(), "gathering of rows")
            gathered.append(np.concatenate([np.frombuffer(part, array.dtype).reshape(-1, *array.shape[1:]) for part in parts]))
        return gathered

    def _arrays(self, array: Any, action: str) -> list[Any]:
        """The arrays of all workers."""
        self._count(array)
        return [
            np.frombuffer(part, array.dtype).reshape(array.shape)
            for part in self._exchange(array.tobytes(), f"{action} of {_shape(array)}")
        ]

    # -- plain Python
    def exchange(self, item: Any) -> list[Any]:
        """See `Communicator.exchange`; items are text, numbers, and lists and tuples of these, which travel as JSON."""
        return self._all(item, EXCHANGE)

    def state(self, statement: Statement) -> None:
        action = "comparison of what the workers run"
        if len(set(self._all(statement.digest, action))) > 1:
            raise CommunicationError(first_difference(self._all(list(statement.tell()), action)))

    def meet(self, run: int, statement: Statement) -> None:
        """As `state`, before the run numbered `run`. The other workers may run without
        asking; `is_awaited` tells them whether a worker waits here."""
        key = f"fluid/run {run}/{self.rank}"
        self._notes.key_value_set(key, "waits")
        self.state(statement)
        self._notes.key_value_delete(key)

    def is_awaited(self, run: int) -> bool:
        """Whether another worker has come to the meeting before the run of this number, and waits there."""
        try:
            return bool(self._notes.key_value_dir_get(f"fluid/run {run}/"))
        except RuntimeError:  # the coordinator is gone; what waits for workers fails, too
            return False

    def _all(self, item: Any, action: str) -> list[Any]:
        return [json.loads(part) for part in self._exchange(json.dumps(item).encode(), action)]

    # -- notes
    def _exchange(self, data: bytes, action: str) -> list[bytes]:
        """Exchange bytes with all workers in one round; `action` names the purpose, on which they should agree."""
        self._rounds += 1
        parts = [data[start : start + _MOST_BYTES] for start in range(0, len(data), _MOST_BYTES)]
        keys = [self._key(self.rank, number) for number in range(len(parts) + 1)]
        began = time.perf_counter()
        for key, part in zip(keys, [f"{len(parts)} {action}".encode(), *parts], strict=True):
            self._notes.key_value_set_bytes(key, part)
        all_data = [data if rank == self.rank else self._read(rank, action) for rank in range(self.size)]
        self.traffic.seconds_waited += time.perf_counter() - began
        for key in self._last_keys:
            self._notes.key_value_delete(key)
        self._last_keys = keys
        return all_data

    def _key(self, rank: int, number: int) -> str:
        return f"fluid/{self._rounds}/{rank}/{number}"

    def _read(self, rank: int, action: str) -> bytes:
        """The bytes of another worker in this round."""
        try:
            count, _, why = self._note(rank, 0).decode().partition(" ")
            if why == action:
                return b"".join(self._note(rank, number) for number in range(1, int(count) + 1))
            notes = [self._note(peer, 0).decode() for peer in range(self.size)]
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                raise self.waited_in_vain(self._seconds, action) from None
            raise CommunicationError(f"{self.who()}: the {action} failed, perhaps since a worker has died: {error}") from error
        raise CommunicationError(first_difference([statement_of(note.partition(" ")[2]).tell() for note in notes]))

    def _note(self, rank: int, number: int) -> bytes:
        note: bytes = self._notes.blocking_key_value_get_bytes(self._key(rank, number), int(self._seconds * 1000))
        return note


def _shape(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"
