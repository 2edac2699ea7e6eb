"""What workers say to each other: the interface, and a worker that is alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Alone", "Communicator", "Statement", "Traffic"]


@dataclass
class Traffic:
    """What a communicator has done since it was made.

    Attributes:
        bytes: of the arrays that it was given.
        calls: how many arrays those were.
        seconds_waited: how long the worker stood still for the others or for the network.
    """

    bytes: int = 0
    calls: int = 0
    seconds_waited: float = 0.0


@dataclass(frozen=True)
class Statement:
    """What a worker is about to run, which should be the same on all.

    Attributes:
        digest: a number of 63 bits of all of it.
        tell: returns it in lines, each with what it is about: (a variable or the place of an op, the line).
    """

    digest: int
    tell: Callable[[], Sequence[tuple[str, str]]]


class Communicator(ABC):
    """A group of workers of which this process is one.

    All workers call the same methods in the same order, with arrays of the same shapes and types. Arrays are C-contiguous.

    Attributes:
        rank: the number of this worker.
        size: the number of workers.
        traffic: what was sent so far.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.traffic = rank, size, Traffic()

    def allreduce(self, array: Any, kind: str) -> None:
        """Replace the elements of an array by their sum (``max``, ``min``, ``prod``) over all workers."""
        self.start_allreduce(array, kind)
        self.finish(array)

    @abstractmethod
    def start_allreduce(self, array: Any, kind: str) -> None:
        """Begin to `allreduce` an array, which nobody may touch until `finish`."""

    @abstractmethod
    def finish(self, array: Any) -> None:
        """Wait for what `start_allreduce` began."""

    def progress(self) -> None:
        """Let what was begun go on, without waiting for it."""
        return

    @abstractmethod
    def reduce(self, array: Any, root: int) -> None:
        """Replace the array of worker `root` by the sum over all workers; the arrays of the others become zeros."""

    @abstractmethod
    def broadcast(self, array: Any, root: int) -> None:
        """Replace the array of each worker by that of worker `root`."""

    @abstractmethod
    def allgather(self, array: Any, out: Any) -> None:
        """Write the arrays ``[n, ...]`` of all workers one after the other into `out`, ``[size * n, ...]``."""

    @abstractmethod
    def reducescatter(self, array: Any, out: Any) -> None:
        """Write this worker's part of the sum of all arrays ``[size * n, ...]`` into `out`, ``[n, ...]``."""

    @abstractmethod
    def gather_rows(self, *arrays: Any) -> list[Any]:
        """For each of these arrays, those of all workers one after the other. A worker's arrays have one number of rows, which
        may differ from those of the others."""

    @abstractmethod
    def exchange(self, item: Any) -> list[Any]:
        """What each worker has given, in the order of their ranks: plain Python, for what is rare."""

    def barrier(self) -> None:
        """Wait until all workers are here."""
        self.exchange(None)

    @abstractmethod
    def state(self, statement: Statement) -> None:
        """Tell the others what this worker is about to run. Before anything else is sent, the answers are compared.

        Raises:
            CommunicationError: (also from the next call of another method) the workers do not run the same.
        """


class Alone(Communicator):
    """A group of one: whatever is reduced or gathered is what it was."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def start_allreduce(self, array: Any, kind: str) -> None:
        pass

    def finish(self, array: Any) -> None:
        pass

    def reduce(self, array: Any, root: int) -> None:
        pass

    def broadcast(self, array: Any, root: int) -> None:
        pass

    def allgather(self, array: Any, out: Any) -> None:
        out[...] = array

    def reducescatter(self, array: Any, out: Any) -> None:
        out[...] = array

    def gather_rows(self, *arrays: Any) -> list[Any]:
        return list(arrays)

    def exchange(self, item: Any) -> list[Any]:
        return [item]

    def state(self, statement: Statement) -> None:
        pass
