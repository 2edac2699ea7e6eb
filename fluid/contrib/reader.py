"""Readers for several workers, as Fluid 1.6 has them in ``contrib``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..distributed.process import communicator
from ..loading.batching import batches_of

__all__ = ["distributed_batch_reader"]


def distributed_batch_reader(batch_reader: Callable[[], Iterable[Any]]) -> Callable[[], Iterator[Any]]:
    """A reader of every n-th batch, where n is the number of workers: each worker has other batches, of the whole size.

    The last batches are left out where there is not one for each worker. See `fluid.io.shard` for parts of the same batches.

    Args:
        batch_reader: a function that gives an iterator of batches, the same on all workers.

    >>> list(fluid.contrib.reader.distributed_batch_reader(lambda: [[1, 2], [3, 4]])())
    [[1, 2], [3, 4]]
    """

    def read() -> Iterator[Any]:
        group = communicator()
        return (part[group.rank] for part in batches_of(batch_reader(), group.size, drop_last=True))

    return read
