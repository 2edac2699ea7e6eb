"""Samplers: the order of a dataset's samples, and how they form batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import ProgramError
from .batching import batches_of, checked_size
from .datasets import checked_seed, length_of
from .sharding import shard


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
        """Select the order of this epoch; a loader calls it before each epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng([self._seed, self._epoch]).permutation(self._length).tolist())


def _sampler_of(dataset: Any, indices: Sequence[int] | None, shuffle: bool) -> Iterable[int]:
    """The numbers of samples for the arguments that `BatchSampler` has in Fluid 1.8."""
    if (dataset is None) == (indices is None):
        raise ProgramError("BatchSampler: give a sampler, a dataset, or indices")
    samples = dataset if indices is None else indices
    order = RandomSampler(samples) if shuffle else SequentialSampler(samples)
    return order if indices is None else _Chosen(indices, order)


class _Chosen:
    """The entries of `indices` in the order of a sampler."""

    def __init__(self, indices: Sequence[int], order: Any) -> None:
        self._indices, self._order = list(indices), order

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self._order, "set_epoch"):
            self._order.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[int]:
        return (self._indices[place] for place in self._order)


class BatchSampler:
    """Lists of numbers of samples, one for each batch.

    Args:
        sampler: the numbers, such as a `RandomSampler` gives; anything that is iterated over.
        batch_size: how many are in a batch.
        drop_last: whether to leave out a shorter last batch.
        dataset, indices, shuffle: in place of `sampler`, as in Fluid 1.8: the samples to count, or the numbers themselves, and
            whether each epoch has them in another order.

    Raises:
        ProgramError: `batch_size` is no number of samples.

    >>> list(fluid.io.BatchSampler(range(5), batch_size=2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        sampler: Iterable[int] | None = None,
        batch_size: int = 1,
        drop_last: bool = False,
        *,
        dataset: Any = None,
        indices: Sequence[int] | None = None,
        shuffle: bool = False,
    ) -> None:
        self.sampler = sampler if sampler is not None else _sampler_of(dataset, indices, shuffle)
        self.batch_size, self.drop_last = checked_size(batch_size), bool(drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Select the order of this epoch; a loader calls it before each epoch."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        count, remainder = divmod(len(self.sampler), self.batch_size)  # type: ignore[arg-type]
        return count + bool(remainder and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        return batches_of(self.sampler, self.batch_size, self.drop_last)


class DistributedBatchSampler:
    """This worker's part of each batch, as `fluid.io.shard` divides them: all parts together are the batches of a single process.

    A shorter last batch is left out. With the step of a checkpoint, training goes on with any number of workers that divides the
    batch size (`DataLoader.start_at`).

    Args:
        dataset: the samples, the same on all workers.
        batch_size: how many samples are in a batch of all workers together.
        shuffle: whether the seed and the epoch decide the order; otherwise the dataset's order is kept.
        seed: the same on all workers.
        rank, count: the number of this part, and of parts; by default this worker's (`fluid.distributed`).

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
        """Select the order of this epoch; a loader calls it before each epoch."""
        self._batches.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._parts())
