"""Loaders of datasets: batches in a reproducible order, made in this process or by workers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FluidTypeError, ProgramError
from ..executor.runtime.threads import HAS_THREADS
from ..ir.program import Variable, default_main_program
from .batching import checked_size
from .collation import FeedCollate, NamedCollate, collate
from .datasets import IterableDataset, checked_seed, length_of
from .reading import Batches, IndexedBatches, InitializedBatches, StreamBatches
from .samplers import BatchSampler, RandomSampler, SequentialSampler
from .uploading import UploadAhead, device_of
from .worker_info import WorkerInfo

if TYPE_CHECKING:
    from .workers import Workers


class DatasetLoader:
    """Batches of a dataset, epoch by epoch; the order is the same in every run, and for any number of workers.

    Each iteration over it is an epoch; the seed and the epoch's number decide the order. An iteration after one that was left
    early is the next epoch. `state_dict` holds the position, to continue with the same batches.

    Workers are processes. They send batches through shared memory, in order, a few ahead. On Linux they are forked, and a
    dataset may be anything; elsewhere they are spawned, which needs a dataset that can be pickled, and a script that begins under
    ``if __name__ == "__main__":``. They end with the epoch (see `keep_workers`), or when it is left.

    Args:
        dataset: a `fluid.io.Dataset`, a `fluid.io.IterableDataset`, or anything with ``__getitem__`` and ``__len__``.
        batch_size: how many samples are in a batch.
        shuffle: whether the order is random.
        num_workers: how many processes make batches; 0: this one does.
        feed_list: the variables to feed, or their names, for the fields of a sample. Then a batch is a feed of `Executor.run`:
            a dict of arrays by name. Of variables they get the dtype and shape, and those with ``lod_level`` become sequences.
        collate_fn: makes a batch of a list of samples; by default `fluid.io.collate`. There are also `fluid.io.collate_sequences`
            and `fluid.io.collate_padded`.
        drop_last: whether to leave out a shorter last batch.
        sampler: the numbers of samples in their order, in place of `shuffle`.
        batch_sampler: lists of numbers, one for each batch, such as `fluid.io.DistributedBatchSampler` gives, in place of
            `batch_size`, `shuffle`, `drop_last` and `sampler`.
        seed: decides the order, and the random numbers of samples; at least 0.
        ahead: how many batches each worker makes ahead, at most 64.
        timeout: for how many seconds to wait for a worker; None or 0: for ever, as long as it lives.
        start_method: how processes start: ``"fork"``, ``"spawn"``, ``"forkserver"``; None: as said above.
        keep_workers: whether the workers wait for the next epoch, until nobody has the loader any more. That saves starting them
            anew, which takes seconds where they are spawned; they have the dataset as it was when they started.
        worker_init_fn: called in each worker process with its number, when an epoch begins.
        return_list: with `feed_list`, a batch is a list of its arrays, not a dict.
        use_buffer_reader, use_shared_memory: accepted as in Fluid 1.8; batches are read ahead, in shared memory.
        places: an `XLAPlace`, or a list of one: the arrays of batches go there, as arrays of jax, each batch while the one before
            is computed with. With other places, in eager mode, and for sequences, they stay at the host.

    In eager mode, arrays are tensors.

    Raises:
        FluidTypeError: an argument is of a wrong kind.
        ProgramError: an argument cannot be used, or not beside another.
        DataError: while it is iterated over: a sample cannot be read (the error says which, with the traceback of where that
            happened), or a worker has ended.

    >>> data = fluid.io.TensorDataset(np.arange(6.0).reshape(6, 1), np.arange(6))
    >>> loader = fluid.io.DataLoader(data, batch_size=4, shuffle=True, feed_list=["x", "label"])
    >>> for batch in loader:
    ...     print({name: array.shape for name, array in batch.items()})
    {'x': (4, 1), 'label': (4,)}
    {'x': (2, 1), 'label': (2,)}
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        num_workers: int = 0,
        *,
        feed_list: Sequence[Variable | str] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        seed: int = 0,
        ahead: int = 2,
        timeout: float | None = None,
        start_method: str | None = None,
        keep_workers: bool = False,
        places: Any = None,
        worker_init_fn: Callable[[int], Any] | None = None,
        return_list: bool = False,
        use_buffer_reader: bool = True,
        use_shared_memory: bool = True,
    ) -> None:
        for name, value, least, most in (("num_workers", num_workers, 0, 1024), ("ahead", ahead, 1, 64)):
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise ProgramError(f"DataLoader: {name} should be a whole number from {least} to {most}, not {value!r}")
        if collate_fn is not None and not callable(collate_fn):
            raise FluidTypeError(f"DataLoader: collate_fn should be a function of a list of samples, not {collate_fn!r}")
        if worker_init_fn is not None and not callable(worker_init_fn):
            raise FluidTypeError(f"DataLoader: worker_init_fn should be a function of a worker's number, not {worker_init_fn!r}")
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout >= 0):
            raise ProgramError(f"DataLoader: timeout should be a number of seconds above 0, or None, not {timeout!r}")
        timeout = timeout or None
        self.dataset, self.num_workers = dataset, num_workers
        self._seed, self._ahead, self._timeout, self._start_method = checked_seed(seed), ahead, timeout, start_method
        self._place = device_of(places, "DataLoader")
        self._drop_last, self._keep_workers = bool(drop_last), bool(keep_workers)
        self._collate = _collate_of(feed_list, collate_fn)
        self._worker_init_fn, self._returns_lists = worker_init_fn, bool(return_list)
        self._is_stream = isinstance(dataset, IterableDataset)
        own_order = {"batch_size": batch_size, "shuffle": shuffle, "drop_last": drop_last, "sampler": sampler}
        self.batch_sampler: Any = None if self._is_stream else _batch_sampler_of(dataset, self._seed, batch_sampler, **own_order)
        if self._is_stream and (shuffle or sampler is not None or batch_sampler is not None):
            raise ProgramError("DataLoader: the samples of an IterableDataset have no numbers, so no order to shuffle or sample")
        self.batch_size: Any = checked_size(batch_size) if self._is_stream else getattr(self.batch_sampler, "batch_size", None)
        self._reading = self._reading_of()
        self._workers: Workers | None = None
        """Processes that wait for the next epoch."""
        self._epoch = self._position = 0
        self._is_begun = False

    def _reading_of(self) -> IndexedBatches | StreamBatches:
        if self._is_stream:
            return StreamBatches(self.dataset, self._collate, self.batch_size, self._drop_last)
        return IndexedBatches(self.dataset, self._collate)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_workers": None}

    def __len__(self) -> int:
        """How many batches an epoch has."""
        if self._is_stream:
            raise FluidTypeError("the samples of an IterableDataset are not counted, so a DataLoader of it has no length")
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        if self._is_begun:
            self._epoch, self._position = self._epoch + 1, 0
        self._is_begun = True
        return self._batches(self._epoch, self._position)

    def __call__(self) -> Iterator[Any]:
        """An epoch's batches, as of ``iter(loader)``."""
        return iter(self)

    def _batches(self, epoch: int, position: int) -> Iterator[Any]:
        loaded = default_main_program().loaded
        with closing(self._source(epoch, position)) as source:
            batches = (_loaded(batch, loaded) for batch in source)
            for batch in batches if self._place is None else UploadAhead(batches, self._place):
                position += 1
                self._epoch, self._position = epoch, position
                yield [*batch.values()] if self._returns_lists and isinstance(batch, dict) else batch
        self._epoch, self._position, self._is_begun = epoch + 1, 0, False

    def _source(self, epoch: int, first: int) -> Generator[Any, None, None]:
        """Generate the batches of an epoch from a position on; closing the generator ends the workers."""
        info = WorkerInfo(0, 1, self._seed, epoch)
        tasks: Iterator[Any]
        if self._is_stream:
            left_out = 0 if self.dataset.splits_itself else first
            tasks, first = repeat(None), first - left_out
        else:
            left_out = 0
            if hasattr(self.batch_sampler, "set_epoch"):
                self.batch_sampler.set_epoch(epoch)
            tasks, first = islice(iter(self.batch_sampler), first, None), 0
        batches = (self._by_workers if self.num_workers else self._here)(info, left_out, tasks)
        with closing(batches):
            yield from islice(batches, first, None)

    def _here(self, info: WorkerInfo, left_out: int, tasks: Iterator[Any]) -> Generator[Any, None, None]:
        make = self._reading.start(info, left_out)
        for task in tasks:
            try:
                batch = make(task)
            except StopIteration:
                return
            yield batch

    def _by_workers(self, info: WorkerInfo, left_out: int, tasks: Iterator[Any]) -> Generator[Any, None, None]:
        if not HAS_THREADS:
            raise ProgramError("DataLoader: here, in a browser, no processes can be started; set num_workers=0")
        from .workers import Workers

        reading: Batches = self._reading
        if self._worker_init_fn is not None:
            reading = InitializedBatches(self._reading, self._worker_init_fn)
        workers, self._workers = self._workers or Workers(reading, self.num_workers, self._start_method), None
        is_whole = False
        try:
            yield from workers.batches(info, left_out, tasks, self._ahead, self._timeout)
            is_whole = True
        finally:
            if is_whole and self._keep_workers and self._workers is None:
                self._workers = workers
            else:
                workers.close()

    # -- going on
    def state_dict(self) -> dict[str, Any]:
        """The position: the epoch, the number of its batches already returned, and the settings that decide their order. Numbers
        that ``fluid.save_checkpoint(program, path, step, state={"loader": loader.state_dict()})`` saves with the rest.
        """
        return {"epoch": self._epoch, "batch": self._position, **self._kind()}

    def _kind(self) -> dict[str, Any]:
        return {"seed": self._seed, "batch_size": self.batch_size, "samples": None if self._is_stream else len(self.dataset)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`: the next iteration yields the batches that were still to come.

        Raises:
            FluidTypeError: the state is none.
            ProgramError: the loader had another seed or batch size, or another number of samples.
        """
        try:
            epoch, position = int(state["epoch"]), int(state["batch"])
            kind = {name: state[name] for name in self._kind()}
        except (KeyError, TypeError, ValueError) as error:
            raise FluidTypeError(f"load_state_dict takes what state_dict() gives, not {state!r} ({error!r})") from None
        for name, value in self._kind().items():
            if kind[name] != value:
                raise ProgramError(f"the loader whose state this is had {name} {kind[name]}, this one has {value}: other batches")
        self._go_to(epoch, position)

    def start_at(self, step: int) -> None:
        """Continue after this number of batches, counted over all epochs, as the step of a checkpoint counts them.

        Args:
            step: how many batches were trained on, each epoch to its end.
        """
        if not isinstance(step, (int, np.integer)) or step < 0:
            raise ProgramError(f"start_at: step should be a number of batches, at least 0, not {step!r}")
        if not len(self):
            raise ProgramError("start_at: this loader has no batches")
        self._go_to(*divmod(int(step), len(self)))

    @property
    def epoch(self) -> int:
        """The number of the epoch that it is in, or that comes next."""
        return self._epoch

    def _go_to(self, epoch: int, position: int) -> None:
        if epoch < 0 or position < 0:
            raise ProgramError(f"the state of a loader has epoch {epoch} and batch {position}; they should be at least 0")
        self._epoch, self._position, self._is_begun = epoch, position, False


def _batch_sampler_of(
    dataset: Any, seed: int, batch_sampler: Any, batch_size: int, shuffle: bool, drop_last: bool, sampler: Any
) -> Any:
    """Make the sampler of batches from a loader's arguments."""
    length_of(dataset)
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or drop_last or sampler is not None:
            raise ProgramError("DataLoader: batch_sampler takes the place of batch_size, shuffle, drop_last and sampler")
        return batch_sampler
    if sampler is not None and shuffle:
        raise ProgramError("DataLoader: a sampler takes the place of shuffle")
    if sampler is None:
        sampler = RandomSampler(dataset, seed) if shuffle else SequentialSampler(dataset)
    return BatchSampler(sampler, batch_size, drop_last)


def _collate_of(feed_list: Sequence[Variable | str] | None, collate_fn: Callable[[list[Any]], Any] | None) -> Any:
    if feed_list is None:
        return collate_fn or collate
    feed_list = [feed_list] if isinstance(feed_list, (str, Variable)) else feed_list
    return FeedCollate(feed_list) if collate_fn is None else NamedCollate(feed_list, collate_fn)


def _loaded(batch: Any, loaded: Callable[[Any], Any]) -> Any:
    """Convert a batch's arrays for the mode: tensors in eager mode."""
    if isinstance(batch, np.ndarray):
        return loaded(batch)
    if isinstance(batch, dict):
        return {name: _loaded(value, loaded) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)) and not hasattr(batch, "_fields"):
        return type(batch)(_loaded(value, loaded) for value in batch)
    return batch
