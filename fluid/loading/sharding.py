"""The parts of batches that several workers train on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..distributed.process import communicator
from ..errors import FeedError, ProgramError


def shard(reader: Callable[[], Iterable[Any]], rank: int | None = None, count: int | None = None) -> Callable[[], Iterator[Any]]:
    """A reader of this worker's part of each batch: consecutive samples, the same number for each worker.

    All workers read the same batches in the same order (shuffled by the same seed, say), so training sees the same batches with
    any number of workers, and goes on with another number where it stopped.

    Args:
        reader: a reader of batches, which are lists of samples.
        rank, count: the number of this part, and of parts; by default this worker's (`fluid.distributed`).

    Raises:
        FeedError: a batch cannot be divided evenly; ``fluid.io.batch(..., drop_last=True)`` leaves out a shorter last one.

    >>> list(fluid.io.shard(fluid.io.batch(lambda: range(8), batch_size=4), rank=1, count=2)())
    [[2, 3], [6, 7]]
    """
    if (rank is None) != (count is None):
        raise ProgramError("shard takes both, which part and of how many, or neither")
    if rank is not None and count is not None and not 0 <= rank < count:
        raise ProgramError(f"shard: part {rank} of {count} cannot be; it should be below that")

    def read() -> Iterator[list[Any]]:
        part, parts = (rank, count) if rank is not None and count is not None else (communicator().rank, communicator().size)
        for samples in reader():
            size, remainder = divmod(len(samples), parts)
            if remainder:
                raise FeedError(
                    f"a batch of {len(samples)} samples cannot be divided evenly among {parts} workers; choose a batch size that "
                    "can, and drop_last=True"
                )
            yield samples[part * size : (part + 1) * size]

    return read
