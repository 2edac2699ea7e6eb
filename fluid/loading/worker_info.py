"""The worker of a loader that reads in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerInfo:
    """The worker of a loader that reads in this process.

    Attributes:
        id: its number, from 0.
        num_workers: how many there are.
        seed: the seed of the loader.
        epoch: the number of the epoch, from 0.

    >>> fluid.io.WorkerInfo(id=1, num_workers=4, seed=0, epoch=2)
    WorkerInfo(id=1, num_workers=4, seed=0, epoch=2)
    """

    id: int
    num_workers: int
    seed: int
    epoch: int


_INFO: ContextVar[WorkerInfo | None] = ContextVar("fluid_worker_info", default=None)


def get_worker_info() -> WorkerInfo | None:
    """The worker of a `fluid.io.DataLoader` that reads in this process, for an `IterableDataset` with ``splits_itself``, and for
    seeds.

    Worker 0 of 1 while a loader without workers reads; None elsewhere.

    >>> class Numbers(fluid.io.IterableDataset):
    ...     splits_itself = True
    ...     def __iter__(self):
    ...         info = fluid.io.get_worker_info()
    ...         yield from range(info.id, 6, info.num_workers)
    >>> list(fluid.io.DataLoader(Numbers(), batch_size=2, num_workers=2))
    [array([0, 2]), array([1, 3]), array([4]), array([5])]
    """
    return _INFO.get()


@contextmanager
def as_worker(info: WorkerInfo) -> Iterator[None]:
    """Be this worker inside the ``with``."""
    token = _INFO.set(info)
    try:
        yield
    finally:
        _INFO.reset(token)
