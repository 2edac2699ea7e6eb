"""Communication between workers: the interface, and a worker that is alone."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import CommunicationError
from .agreement import digest_of, few_ranks

_TIMEOUT = "FLUID_DISTRIBUTED_TIMEOUT"
_DEFAULT_TIMEOUT = 300.0
_LONGEST_TIMEOUT = 1e9


def time_limit() -> float:
    """How many seconds a worker waits for the others: the environment variable ``FLUID_DISTRIBUTED_TIMEOUT``, or 300."""
    return seconds_of(os.environ.get(_TIMEOUT, str(_DEFAULT_TIMEOUT)), _TIMEOUT)


def seconds_of(text: str, name: str) -> float:
    """The number of seconds that an option or a variable of this name gives as text; `CommunicationError` if it is none."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _LONGEST_TIMEOUT:  # which NaN is not, either
        raise CommunicationError(
            f"{name} is {text!r}; it should be a number of seconds, above 0 and at most {_LONGEST_TIMEOUT:.0f}"
        )
    return seconds


@dataclass
class Traffic:
    """The work of a communicator since its creation.

    Args:
        bytes: of the arrays that it was given.
        calls: how many arrays those were.
        seconds_waited: how long the worker waited for the others and for the network, and reduced arrays meanwhile.

    >>> fluid.distributed.Alone().traffic
    Traffic(bytes=0, calls=0, seconds_waited=0.0)
    """

    bytes: int = 0
    calls: int = 0
    seconds_waited: float = 0.0


@dataclass(frozen=True)
class Statement:
    """The next run of a worker, which should be the same on all workers.

    Attributes:
        digest: a number of 63 bits of all of it.
        tell: returns the statement in lines, each a pair: (a variable or the place of an op, the line).
    """

    digest: int
    tell: Callable[[], Sequence[tuple[str, str]]]


def statement_of(act: str, lines: Iterable[tuple[str, str]] = ()) -> Statement:
    """State the next action of a worker, with the facts that should be the same on all workers."""
    tagged_lines = [("what they do", act), *lines]
    return Statement(digest_of(tagged_lines), lambda: tagged_lines)


EXCHANGE = "exchange of plain values (a barrier, or a checkpoint)"
"""The action that workers state in `Communicator.exchange`."""


class Communicator(ABC):
    """A group of workers that includes this process.

    All workers call the same methods in the same order, with arrays of the same shapes and types. Arrays are C-contiguous.

    Args:
        rank: the number of this worker.
        size: the number of workers.

    Attributes:
        traffic: calls and bytes sent so far.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.traffic = rank, size, Traffic()

    def allreduce(self, array: Any, kind: str) -> None:
        """Replace the elements of `array` by their ``sum``, ``max``, ``min`` or ``prod``, as `kind` says, over all workers."""
        self.start_allreduce([array], kind)
        self.finish([array])

    def who(self) -> str:
        """This worker, for messages."""
        return f"worker {self.rank} of {self.size}"

    def waited_in_vain(self, seconds: float, action: str, late: Sequence[int] = ()) -> CommunicationError:
        """The error of a worker that has waited for the others as long as it may.

        Args:
            seconds: the limit.
            action: the communication that it waited in.
            late: the ranks of the workers that did not come, if they are known.
        """
        missing = f"worker{'s' if len(late) > 1 else ''} {few_ranks(late)}" if late else "the others"
        return CommunicationError(
            f"{self.who()} has waited {seconds:g} s for {missing} in the {action}. A worker hangs, has ended, or takes another "
            f"way through the script; {_TIMEOUT} sets how many seconds to wait"
        )

    def _count(self, array: Any) -> None:
        """Note that an array is sent."""
        self.traffic.calls += 1
        self.traffic.bytes += int(array.nbytes)

    @abstractmethod
    def start_allreduce(self, arrays: Sequence[Any], kind: str, sent_as: np.dtype[Any] | None = None) -> None:
        """Begin to `allreduce` arrays of one element type, all at once; nobody may touch them until `finish`.

        Args:
            arrays: one or more.
            kind: as of `allreduce`.
            sent_as: the element type that travels; None for the type of the arrays.
        """

    @abstractmethod
    def finish(self, arrays: Sequence[Any]) -> None:
        """Wait for the end of the `start_allreduce` of these `arrays`."""

    def progress(self) -> None:
        """Advance the operations in flight, without waiting for them."""
        return

    @abstractmethod
    def reduce(self, array: Any, root: int) -> None:
        """Replace the `array` of worker `root` by the sum over all workers; the arrays of the others become zeros."""

    @abstractmethod
    def broadcast(self, array: Any, root: int) -> None:
        """Replace the `array` of each worker by worker `root`'s."""

    @abstractmethod
    def allgather(self, array: Any, out: Any) -> None:
        """Write the `array`, ``[n, ...]``, of all workers one after the other into `out`, ``[size * n, ...]``."""

    @abstractmethod
    def reducescatter(self, array: Any, out: Any) -> None:
        """Write this worker's part of the sum of each `array`, ``[size * n, ...]``, into `out`, ``[n, ...]``."""

    @abstractmethod
    def gather_rows(self, *arrays: Any) -> list[Any]:
        """For each of these arrays, the rows of all workers one after the other. A worker's arrays all have one number of rows,
        which may differ from worker to worker."""

    def exchange_rows(self, rows: Any, counts: Sequence[int]) -> tuple[Any, list[int]]:
        """Send some rows to each worker, and receive the rows that workers send to this one.

        Args:
            rows: ``[n, ...]``, in the order of the workers that they are for.
            counts: how many are for each worker.

        Returns:
            The rows received, in the order of their senders, and how many each has sent.
        """
        raise CommunicationError(f"{self.who()}: tables that are divided among workers need workers that speak by MPI")

    @abstractmethod
    def exchange(self, item: Any) -> list[Any]:
        """The items of all workers, in the order of their ranks: plain Python, for rare messages."""

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
    """A group of one: reducing or gathering leaves values as they are.

    >>> fluid.distributed.Alone().exchange("alone")
    ['alone']
    """

    def __init__(self) -> None:
        super().__init__(0, 1)

    def start_allreduce(self, arrays: Sequence[Any], kind: str, sent_as: np.dtype[Any] | None = None) -> None:
        pass

    def finish(self, arrays: Sequence[Any]) -> None:
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

    def exchange_rows(self, rows: Any, counts: Sequence[int]) -> tuple[Any, list[int]]:
        return rows, list(counts)

    def exchange(self, item: Any) -> list[Any]:
        return [item]

    def state(self, statement: Statement) -> None:
        pass
