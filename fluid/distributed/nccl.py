"""Workers that reduce and gather arrays on GPUs by NCCL, through cupy.

Not tested on GPUs: the tests hold it against a stand-in for cupy. How long a worker waits for the others is not limited here,
except in the comparison before each run, which goes by MPI.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import CommunicationError
from .communicator import Alone, Communicator, Statement


class NCCLCommunicator(Communicator):
    """The workers of another communicator, each with a GPU. Communication has its own stream, beside the computation's.

    Args:
        cupy: the module.
        workers: connects the workers and compares their runs.
    """

    def __init__(self, cupy: Any, workers: Communicator) -> None:
        super().__init__(workers.rank, workers.size)
        self._cupy, self._workers = cupy, workers
        self._nccl = import_module("cupy.cuda.nccl")  # cupy does not import it by itself
        identity = list(self._nccl.get_unique_id()) if self.rank == 0 else None
        self._group = self._nccl.NcclCommunicator(self.size, tuple(workers.exchange(identity)[0]), self.rank)
        self._stream = cupy.cuda.Stream(non_blocking=True)

        self._joined: dict[int, Any] = {}
        """Id of the first of several arrays that are reduced together -> their elements, one after the other."""

    def start_allreduce(self, arrays: Sequence[Any], kind: str, sent_as: np.dtype[Any] | None = None) -> None:
        if sent_as is not None:
            raise CommunicationError("gradients on GPUs travel as they are: leave gradients_sent_as of the strategy unset")
        (array, *more) = arrays
        if more:
            array = self._joined[id(array)] = self._cupy.concatenate([part.reshape(-1) for part in arrays])
        self._begin(array)
        pointer, operation = array.data.ptr, getattr(self._nccl, f"NCCL_{kind.upper()}")
        self._group.allReduce(pointer, pointer, array.size, self._type(array), operation, self._stream.ptr)

    def finish(self, arrays: Sequence[Any]) -> None:
        self._wait()
        joined, position = self._joined.pop(id(arrays[0]), None), 0
        for array in arrays if joined is not None else ():
            array[...] = joined[position : position + array.size].reshape(array.shape)
            position += array.size

    def _wait(self) -> None:
        """Let the computations that follow wait for the communication so far."""
        self._cupy.cuda.get_current_stream().wait_event(self._stream.record())

    def reduce(self, array: Any, root: int) -> None:
        self._begin(array)
        pointer = array.data.ptr
        self._group.reduce(pointer, pointer, array.size, self._type(array), self._nccl.NCCL_SUM, root, self._stream.ptr)
        self._wait()
        if self.rank != root:
            array.fill(0)

    def broadcast(self, array: Any, root: int) -> None:
        self._begin(array)
        pointer = array.data.ptr
        self._group.broadcast(pointer, pointer, array.nbytes, self._nccl.NCCL_UINT8, root, self._stream.ptr)
        self._wait()

    def allgather(self, array: Any, out: Any) -> None:
        self._begin(array)
        self._group.allGather(array.data.ptr, out.data.ptr, array.nbytes, self._nccl.NCCL_UINT8, self._stream.ptr)
        self._wait()

    def reducescatter(self, array: Any, out: Any) -> None:
        self._begin(array)
        operation = self._nccl.NCCL_SUM
        self._group.reduceScatter(array.data.ptr, out.data.ptr, out.size, self._type(array), operation, self._stream.ptr)
        self._wait()

    def gather_rows(self, *arrays: Any) -> list[Any]:
        counts = self.exchange(len(arrays[0]))
        return [self._gathered(array, counts) for array in arrays]

    def _gathered(self, array: Any, counts: list[int]) -> Any:
        xp = self._cupy
        most = max(counts)
        padded = xp.zeros((most, *array.shape[1:]), array.dtype)
        padded[: len(array)] = array
        out = xp.empty((self.size * most, *array.shape[1:]), array.dtype)
        self.allgather(padded, out)
        return xp.concatenate([out[rank * most : rank * most + count] for rank, count in enumerate(counts)])

    def exchange(self, item: Any) -> list[Any]:
        return self._workers.exchange(item)

    def state(self, statement: Statement) -> None:
        self._workers.state(statement)
        self._workers.barrier()  # compares at once: what follows is not said by them

    def _begin(self, array: Any) -> None:
        """Let the stream of communication wait for the computations so far."""
        self.traffic.calls += 1
        self.traffic.bytes += int(array.nbytes)
        self._stream.wait_event(self._cupy.cuda.get_current_stream().record())

    def _type(self, array: Any) -> Any:
        return getattr(self._nccl, f"NCCL_{array.dtype.name.upper()}")


_communicators: dict[Any, Communicator] = {}


def nccl_communicator(cupy: Any, workers: Communicator) -> Communicator:
    """The communicator of this process for arrays of cupy; one for all programs, as NCCL keeps memory for each."""
    if workers.size == 1:
        return Alone()
    if workers not in _communicators:
        _communicators[workers] = NCCLCommunicator(cupy, workers)
    return _communicators[workers]
