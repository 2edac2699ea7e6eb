"""The order in which the samples of a dataset are read, and which of them form batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..errors import ProgramError
from .datasets import checked_seed, length_of
from .sharding import shard

__all__ = ["BatchSampler", "DistributedBatchSampler", "RandomSampler", "SequentialSampler"]


class SequentialSampler:
    """The numbers of all samples in order.

    Args:
        dataset: the samples.

    >>> list(fluid.io.SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, dataset: Any) -> None:
        self._length = length_of(dataset)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._length))


class RandomSampler:
    """The numbers of all samples in an order that the seed and the epoch decide.

    Args:
        dataset: the samples.
        seed: at least 0.

    >>> sampler = fluid.io.RandomSampler(range(100), seed=1)
    >>> first = list(sampler)
    >>> sorted(first) == list(range(100)), list(sampler) == first
    (True, True)
    >>> sampler.set_epoch(1)
    >>> list(sampler) == first
    False
    """

    def __init__(self, dataset: Any, seed: int = 0) -> None:
        self._length, self._seed, self._epoch = length_of(dataset), checked_seed(seed), 0

    def set_epoch(self, epoch: int) -> None:
        """Let the order be that of this epoch; a loader says it before each."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng([self._seed, self._epoch]).permutation(self._length).tolist())


class BatchSampler:
    """Lists of numbers of samples, one for each batch.

    Args:
        sampler: the numbers, such as a `RandomSampler` gives; anything that is iterated over.
        batch_size: how many are in a batch.
        drop_last: whether to leave out a shorter last batch.

    Raises:
        ProgramError: `batch_size` is no number of samples.

    >>> list(fluid.io.BatchSampler(range(5), batch_size=2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, checked_size(batch_size), bool(drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Let the order be that of this epoch; a loader says it before each."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        count, rest = divmod(len(self.sampler), self.batch_size)  # type: ignore[arg-type]
        return count + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for number in self.sampler:
            batch.append(number)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch


class DistributedBatchSampler:
    """This worker's part of each batch, as `fluid.io.shard` divides them: the batches are those that one process has.

    A shorter last batch is left out. With the step of a checkpoint, training goes on with any number of workers that divides the
    batch size (`DataLoader.start_at`).

    Args:
        dataset: the samples, the same on all workers.
        batch_size: how many samples are in a batch of all workers together.
        shuffle: whether the seed and the epoch decide the order; otherwise it is that of the dataset.
        seed: the same on all workers.
        rank, count: which of how many parts; by default those of this worker (`fluid.distributed`).

    Raises:
        ProgramError: an argument cannot be used.
        FeedError: when it is iterated over, if the batch size cannot be divided evenly.

    >>> parts = [fluid.io.DistributedBatchSampler(range(9), batch_size=4, rank=rank, count=2) for rank in (0, 1)]
    >>> [list(part) for part in parts]
    [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        count: int | None = None,
    ) -> None:
        sampler = RandomSampler(dataset, seed) if shuffle else SequentialSampler(dataset)
        self._batches = BatchSampler(sampler, batch_size, drop_last=True)
        self.batch_size = batch_size
        self._parts = shard(lambda: self._batches, rank, count)

    def set_epoch(self, epoch: int) -> None:
        """Let the order be that of this epoch; a loader says it before each."""
        self._batches.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._parts())


def checked_size(batch_size: Any) -> int:
    """A batch size; a `ProgramError` for what is none."""
    if not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size < 1:
        raise ProgramError(f"batch_size should be a number of samples, at least 1, not {batch_size!r}")
    return int(batch_size)
