"""Make batches of a dataset's samples, in this process or in a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ..errors import DataError
from .datasets import IterableDataset, MappedStream, changed, draws, sample_of
from .worker_info import WorkerInfo, as_worker


def _failed(subject: str, error: BaseException) -> DataError:
    return DataError(f"{subject}: {type(error).__name__}: {error}")


@dataclass(frozen=True)
class IndexedBatches:
    """Makes batches of a dataset whose samples have numbers."""

    dataset: Any
    collate: Callable[[list[Any]], Any]

    def start(self, info: WorkerInfo, first: int) -> Callable[[Any], Any]:
        """Return this worker's function from sample numbers to a batch; `first` has no effect here."""
        needs_generator = draws(self.dataset)

        def batch_of(numbers: list[int]) -> Any:
            samples = []
            with as_worker(info):
                for number in numbers:
                    generator = np.random.default_rng([info.seed, info.epoch, int(number)]) if needs_generator else None
                    try:
                        samples.append(sample_of(self.dataset, number, generator))
                    except Exception as error:
                        raise _failed(f"sample {number} of the dataset", error) from error
                return _collated(self.collate, samples, f"the batch of samples {_some(numbers)}")

        return batch_of


@dataclass(frozen=True)
class StreamBatches:
    """Makes batches of an iterable dataset."""

    dataset: IterableDataset
    collate: Callable[[list[Any]], Any]
    batch_size: int
    drop_last: bool

    def start(self, info: WorkerInfo, first: int) -> Callable[[Any], Any]:
        """Return the function that makes this worker's next batch; it ignores its argument, and raises `StopIteration` after the
        last one.

        The samples of the first `first` batches are read but not changed; `first` is 0 for a dataset that splits itself.
        """
        batches = self._batches(info, first)

        def next_batch(_: Any) -> Any:
            with as_worker(info):
                return next(batches)

        return next_batch

    def _batches(self, info: WorkerInfo, first: int) -> Iterator[Any]:
        source = self.dataset
        functions: list[tuple[Callable[..., Any], Any]] = []
        while isinstance(source, MappedStream):
            functions.insert(0, (source.function, source.field))
            source = source.source
        is_random = any(getattr(function, "is_random", False) for function, _ in functions)
        worker_number, worker_count = (0, 1) if source.splits_itself else (info.id, info.num_workers)
        stream = self._numbered(iter(source))
        samples: list[Any] = []
        for number, sample in stream:
            batch = number // self.batch_size
            if batch < first or (batch - first) % worker_count != worker_number:
                continue
            key = [info.seed, info.epoch, number, *([info.id] if source.splits_itself else [])]
            generator = np.random.default_rng(key) if is_random else None
            try:
                for function, field in functions:
                    sample = changed(function, field, sample, generator)
            except Exception as error:
                raise _failed(f"sample {number} of the stream", error) from error
            samples.append(sample)
            if len(samples) == self.batch_size:
                yield _collated(self.collate, samples, f"batch {batch} of the stream")
                samples = []
        if samples and not self.drop_last:
            yield _collated(self.collate, samples, "the last batch of the stream")

    @staticmethod
    def _numbered(stream: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        number = 0
        while True:
            try:
                sample = next(stream)
            except StopIteration:
                return
            except Exception as error:
                raise _failed(f"sample {number} of the stream", error) from error
            yield number, sample
            number += 1


def _some(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")


def _collated(collate: Callable[[list[Any]], Any], samples: list[Any], subject: str) -> Any:
    try:
        return collate(samples)
    except Exception as error:
        raise _failed(subject, error) from error


@dataclass(frozen=True)
class InitializedBatches:
    """Calls a function with the worker's number before it makes batches."""

    batches: IndexedBatches | StreamBatches
    initialize: Callable[[int], Any]

    def start(self, info: WorkerInfo, first: int) -> Callable[[Any], Any]:
        """Call the function, and return this worker's function that makes a batch; it raises an error if the call failed."""
        try:
            with as_worker(info):
                self.initialize(info.id)
        except Exception as error:
            return partial(_fail, _failed(f"worker_init_fn({info.id})", error))
        return self.batches.start(info, first)


def _fail(error: DataError, _: Any) -> NoReturn:
    raise error


Batches = IndexedBatches | StreamBatches | InitializedBatches
