"""Readers, decorators of readers, and loaders.

A reader is a function without arguments that returns an iterator over samples. A loader feeds programs from a reader.
"""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
import queue
import random
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .data_feeder import DataFeeder
from .errors import EOFException, FeedError, FluidTypeError, ProgramError
from .executor.runtime.threads import HAS_THREADS
from .ir.program import Variable, default_main_program
from .loading.batching import batches_of, checked_size
from .loading.loader import DatasetLoader
from .loading.sharding import shard
from .loading.termination import accept_termination, hold_termination
from .loading.uploading import UploadAhead, device_of
from .not_here import names_here

__all__ = [
    "ComposeNotAligned", "DataLoader", "PyReader", "batch", "buffered", "cache", "chain", "compose", "firstn", "map_readers",
    "multiprocess_reader", "shard", "shuffle", "xmap_readers",
]  # fmt: skip

__dir__ = names_here(__name__)

Reader = Callable[[], Iterable[Any]]


class ComposeNotAligned(ProgramError):
    """Composed readers have different lengths.

    >>> list(fluid.io.compose(lambda: [1], lambda: [])())
    Traceback (most recent call last):
    fluid.reader.ComposeNotAligned: the readers that are composed have different lengths
    """


def batch(reader: Reader, batch_size: int, drop_last: bool = False) -> Reader:
    """A reader of lists of `batch_size` samples; the last list may be shorter, unless `drop_last`.

    Args:
        reader: a reader of samples.
        batch_size: how many samples are in a list.
        drop_last: whether to leave out a shorter last list.

    Raises:
        ProgramError: `batch_size` is not positive.

    >>> list(fluid.io.batch(lambda: range(5), batch_size=2)())
    [[0, 1], [2, 3], [4]]
    """
    size = checked_size(batch_size)
    return lambda: batches_of(reader(), size, drop_last)


def shuffle(reader: Reader, buf_size: int) -> Reader:
    """A reader that shuffles `buf_size` samples at a time; ``random.seed`` makes the order reproducible.

    Args:
        reader: a reader of samples.
        buf_size: how many are held and shuffled at a time; use the number of samples for an even shuffle.

    >>> sorted(fluid.io.shuffle(lambda: range(4), buf_size=4)())
    [0, 1, 2, 3]
    """

    def read() -> Iterator[Any]:
        for part in batch(reader, buf_size)():
            random.shuffle(part)
            yield from part

    return read


def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """A reader of ``func(a, b, ...)`` for samples of several readers; it ends with the shortest of them.

    Args:
        func: a function with one argument for each reader.
        readers: readers of samples.

    >>> list(fluid.io.map_readers(max, lambda: [1, 5], lambda: [4, 2])())
    [4, 5]
    """

    def read() -> Iterator[Any]:
        return map(func, *(reader() for reader in readers))

    return read


def chain(*readers: Reader) -> Reader:
    """A reader of the samples of several readers, one reader after the other.

    Args:
        readers: readers of samples.

    >>> list(fluid.io.chain(lambda: [1, 2], lambda: [3])())
    [1, 2, 3]
    """

    def read() -> Iterator[Any]:
        return itertools.chain.from_iterable(reader() for reader in readers)

    return read


def compose(*readers: Reader, check_alignment: bool = True) -> Reader:
    """A reader that joins samples of several readers to one tuple: ``1`` and ``(2, 3)`` become ``(1, 2, 3)``.

    Args:
        readers: readers of samples.
        check_alignment: whether readers of different lengths are an error; otherwise the shortest ends the iteration.

    Raises:
        ComposeNotAligned: when it is read, if one of the readers ends before the others.

    >>> list(fluid.io.compose(lambda: [1, 4], lambda: [(2, 3), (5, 6)])())
    [(1, 2, 3), (4, 5, 6)]
    """

    def read() -> Iterator[Any]:
        missing = object()
        for parts in itertools.zip_longest(*(reader() for reader in readers), fillvalue=missing):
            if any(part is missing for part in parts):
                if check_alignment:
                    raise ComposeNotAligned("the readers that are composed have different lengths")
                return
            yield tuple(field for part in parts for field in (part if isinstance(part, tuple) else (part,)))

    return read


def firstn(reader: Reader, n: int) -> Reader:
    """A reader of the first `n` samples.

    Args:
        reader: a reader of samples.
        n: how many; fewer if the reader has fewer.

    >>> list(fluid.io.firstn(lambda: range(100), 3)())
    [0, 1, 2]
    """

    def read() -> Iterator[Any]:
        return itertools.islice(reader(), n)

    return read


def cache(reader: Reader) -> Reader:
    """A reader that reads the samples once and then keeps them in memory.

    Args:
        reader: a reader of samples.

    >>> samples = iter([1, 2])
    >>> reader = fluid.io.cache(lambda: samples)
    >>> list(reader()), list(reader())
    ([1, 2], [1, 2])
    """
    samples: list[Any] | None = None

    def read() -> Iterator[Any]:
        nonlocal samples
        if samples is None:
            samples = list(reader())
        return iter(samples)

    return read


# --------------------------------------------------------------------------------------------------------------- threads
_END = object()
_PATIENCE = 5.0
"""Seconds for a process to end on request."""


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Channel:
    """A queue of at most `size` items. Either side can close it, which wakes all waiting threads."""

    def __init__(self, size: int) -> None:
        self._items: queue.Queue[Any] = queue.Queue(maxsize=max(size, 1))
        self.closed = threading.Event()

    def put(self, item: Any) -> bool:
        """Add an item when there is room; returns False if the channel is closed instead."""
        while not self.closed.is_set():
            try:
                self._items.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def get(self) -> Any:
        """The next item, or `_END` once the channel is closed; raises the error of the writing thread."""
        while True:
            try:
                item = self._items.get(timeout=0.1)
            except queue.Empty:
                if self.closed.is_set():
                    return _END
                continue
            if isinstance(item, _Failure):
                raise item.error
            return item


def _in_thread(work: Callable[[], None], failures: _Channel) -> None:
    """Run `work` in a thread; an error goes into the channel."""

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.put(_Failure(error))

    threading.Thread(target=run, daemon=True).start()


class _Ahead:
    """An iterator over a reader's samples; a thread reads up to `size` of them ahead, until `close` or the end."""

    def __init__(self, reader: Reader, size: int) -> None:
        channel = self._channel = _Channel(size)

        def work() -> None:  # holds the channel, not this iterator: forgetting the iterator ends the thread
            for sample in reader():
                if not channel.put(sample):
                    return
            channel.put(_END)

        _in_thread(work, channel)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            item = self._channel.get()
        except BaseException:
            self.close()
            raise
        if item is _END:
            self.close()
            raise StopIteration
        return item

    def close(self) -> None:
        self._channel.closed.set()

    __del__ = close


def _read_ahead(reader: Reader, size: int) -> Iterator[Any]:
    """Iterate over samples that a thread reads ahead. Without threads, as in a browser, read each sample on request."""
    return _Ahead(reader, size) if HAS_THREADS else (sample for sample in reader())


def buffered(reader: Reader, size: int) -> Reader:
    """A reader whose samples a thread reads ahead, up to `size` of them; an error there is raised where samples are read.

    Args:
        reader: a reader of samples.
        size: how many wait to be read.

    >>> list(fluid.io.buffered(lambda: range(3), size=2)())
    [0, 1, 2]
    """
    return lambda: _read_ahead(reader, size)


def xmap_readers(mapper: Callable[[Any], Any], reader: Reader, process_num: int, buffer_size: int, order: bool = False) -> Reader:
    """A reader of ``mapper(sample)``, computed by threads. Errors in threads are raised here.

    Args:
        mapper: a function of a sample.
        reader: a reader of samples.
        process_num: how many threads there are.
        buffer_size: how many samples are computed ahead.
        order: whether results come in the reader's order; otherwise each comes as soon as it is ready.

    Raises:
        ProgramError: `process_num` is not positive.

    >>> list(fluid.io.xmap_readers(lambda x: x * x, lambda: range(4), process_num=2, buffer_size=4, order=True)())
    [0, 1, 4, 9]
    """
    if process_num < 1:
        raise ProgramError(f"xmap_readers: process_num should be a positive number, not {process_num!r}")
    if not HAS_THREADS:
        return map_readers(mapper, reader)

    def read() -> Iterator[Any]:
        samples, done = _Channel(buffer_size), _Channel(buffer_size)

        def number() -> None:
            for item in enumerate(reader()):
                if not samples.put(item):
                    return
            for _ in range(process_num):
                samples.put(_END)

        def work() -> None:
            while (item := samples.get()) is not _END:
                if not done.put((item[0], mapper(item[1]))):
                    return
            done.put(_END)

        _in_thread(number, done)
        for _ in range(process_num):
            _in_thread(work, done)
        try:
            waiting: dict[int, Any] = {}
            running, turn = process_num, 0
            while running:
                item = done.get()
                if item is _END:
                    running -= 1
                elif not order:
                    yield item[1]
                else:
                    waiting[item[0]] = item[1]
                    while turn in waiting:
                        yield waiting.pop(turn)
                        turn += 1
        finally:
            samples.closed.set()
            done.closed.set()

    return read


def multiprocess_reader(readers: Sequence[Reader], use_pipe: bool = True, queue_size: int = 1000) -> Reader:
    """A reader of the samples of several readers, in no particular order; each runs in its own process.

    Samples must be picklable. Where the system cannot fork processes (Windows), the readers run in threads; in a browser, one
    after the other.

    Args:
        readers: the readers.
        use_pipe: accepted as in Fluid; without effect.
        queue_size: how many samples may wait to be read.

    Raises:
        FluidError: a reader failed in its process; the error's text is in the message.

    >>> sorted(fluid.io.multiprocess_reader([lambda: [1, 2], lambda: [3]])())
    [1, 2, 3]
    """
    if not readers:
        raise ProgramError("multiprocess_reader needs at least one reader")
    if not HAS_THREADS:
        return chain(*readers)
    if "fork" not in multiprocessing.get_all_start_methods():
        return lambda: _merged(readers, queue_size)
    return lambda: _forked(readers, queue_size)


def _merged(readers: Sequence[Reader], size: int) -> Iterator[Any]:
    channel = _Channel(size)
    for reader in readers:

        def work(reader: Reader = reader) -> None:
            for sample in reader():
                if not channel.put(sample):
                    return
            channel.put(_END)

        _in_thread(work, channel)
    running = len(readers)
    try:
        while running:
            item = channel.get()
            if item is _END:
                running -= 1
            else:
                yield item
    finally:
        channel.closed.set()


def _forked(readers: Sequence[Reader], size: int) -> Iterator[Any]:
    context = multiprocessing.get_context("fork")
    samples = context.Queue(size)

    def work(reader: Reader) -> None:
        accept_termination()
        try:
            for sample in reader():
                samples.put(("sample", pickle.dumps(sample)))  # here, since the queue would hide an error of pickle
            samples.put(("end", None))
        except Exception as error:
            samples.put(("error", f"{type(error).__name__}: {error}"))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks with threads running; readers use none of theirs
        workers = [context.Process(target=work, args=(reader,), daemon=True) for reader in readers]
        with hold_termination():
            for worker in workers:
                worker.start()
    running = len(workers)
    try:
        while running:
            try:
                kind, value = samples.get(timeout=1)
            except queue.Empty:
                if not any(worker.is_alive() for worker in workers) and samples.empty():
                    raise ProgramError("multiprocess_reader: a process ended before its reader did") from None
                continue
            if kind == "end":
                running -= 1
            elif kind == "error":
                raise ProgramError(f"multiprocess_reader: a reader failed in its process: {value}")
            else:
                yield pickle.loads(value)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(_PATIENCE)
            if worker.is_alive():
                worker.kill()
                worker.join()


# --------------------------------------------------------------------------------------------------------------- loaders
def _copied(value: Any) -> Any:
    """A copy of an array, or of a tuple of an array and its LoD; other fields of a batch, such as tensors, unchanged."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return tuple(map(_copied, value)) if type(value) is tuple else value


class _Loader:
    """Feeds variables from a reader, read ahead by a thread.

    An iterable loader yields for each batch a list of one dict, name -> array, to be fed; or, with `return_list`, of one list of
    arrays. In eager mode, without `feed_list`, it yields for each batch a list of tensors. If it is not iterable, programs that
    declare the variables take the next batch whenever they run without being fed them: call `start` before an epoch; when the
    data ends, the run raises `fluid.core.EOFException`; then call `reset`.
    """

    _kind = "DataLoader"
    _setters = "set_sample_generator, set_sample_list_generator or set_batch_generator"

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        where, program = self._kind, default_main_program()
        if not feed_list and not program.eager:
            raise ProgramError(f"{where}: feed_list should name the variables that are fed")
        for var in feed_list or ():
            if not isinstance(var, Variable):
                raise FluidTypeError(f"{where}: feed_list should hold Variables, not {type(var).__name__}")
        if capacity is None or capacity < 1:
            raise ProgramError(f"{where}: capacity, the number of batches read ahead, should be positive, not {capacity!r}")
        self._vars = list(feed_list or ())
        self._program = self._vars[0].block.program if self._vars else program
        self._capacity = capacity
        self._iterable = iterable or not self._vars
        self._return_list = return_list
        self._feeds: Callable[[], Iterator[dict[Any, Any]]] | None = None
        self._place: Any = None
        self._running: Any = None
        if not self._iterable:
            self._program.loaders.append(self)

    @property
    def iterable(self) -> bool:
        """Whether the loader is iterated over; otherwise programs take batches from it."""
        return self._iterable

    @property
    def queue(self) -> Any:
        """The batches read ahead, while there are any to come."""
        return self._running

    @property
    def variables(self) -> list[Variable]:
        """The variables that are fed."""
        return list(self._vars)

    # -- where the data comes from
    def _set(self, feeds: Callable[[], Iterator[dict[Any, Any]]], places: Any) -> Any:
        self._feeds, self._place = feeds, device_of(places, self._kind) if self._vars else None
        return self

    def set_sample_generator(self, reader: Reader, batch_size: int, drop_last: bool = True, places: Any = None) -> Any:
        """Take samples ``(field, field, ...)``, one at a time, from a reader.

        Args:
            reader: a reader of samples.
            batch_size: how many are in a batch.
            drop_last: whether to leave out a shorter last batch.
            places: an `XLAPlace`, or a list of one: each batch goes there while the one before is computed with.
        """
        return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)

    def set_sample_list_generator(self, reader: Reader, places: Any = None) -> Any:
        """Take batches as lists of samples, such as `batch` makes.

        Args:
            reader: a reader of lists of samples.
            places: an `XLAPlace`, or a list of one: each batch goes there while the one before is computed with.
        """
        feed = DataFeeder(self._vars, None, self._program).feed if self._vars else _stacked
        return self._set(lambda: (feed(rows) for rows in reader()), places)

    def set_batch_generator(self, reader: Reader, places: Any = None) -> Any:
        """Take batches as tuples of arrays, one for each variable, or as dicts of arrays by name. Arrays are copied at once: the
        reader may fill them anew for the next batch.

        Args:
            reader: a reader of batches.
            places: an `XLAPlace`, or a list of one: each batch goes there while the one before is computed with.
        """
        return self._set(
            lambda: ({name: _copied(value) for name, value in self._named(arrays).items()} for arrays in reader()), places
        )

    def _named(self, arrays: Any) -> dict[Any, Any]:
        if not self._vars:
            return dict(enumerate(arrays if isinstance(arrays, (list, tuple)) else [arrays]))
        names = [var.name for var in self._vars]
        if isinstance(arrays, Mapping):
            if set(arrays) != set(names):
                raise FeedError(f"a batch has arrays for {', '.join(map(str, arrays))}; it should have {', '.join(names)}")
            return {name: arrays[name] for name in names}
        arrays = list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
        if len(arrays) != len(names):
            raise FeedError(f"a batch has {len(arrays)} arrays, but {len(names)} variables are fed: {', '.join(names)}")
        return dict(zip(names, arrays, strict=True))

    def _ahead(self) -> Any:
        if self._feeds is None:
            raise ProgramError(f"{self._kind}: say first where the data comes from, with {self._setters}")
        ahead = _read_ahead(self._feeds, self._capacity)
        return ahead if self._place is None else UploadAhead(ahead, self._place)

    # -- iterable
    def __iter__(self) -> Iterator[Any]:
        if not self._iterable:
            raise ProgramError(f"this {self._kind} is not iterable; start() it and run the program, or set iterable=True")
        return self._batches(self._ahead())

    def _batches(self, ahead: Any) -> Iterator[Any]:
        try:
            for feed in ahead:
                if not self._vars:
                    yield [self._program.loaded(array) for array in feed.values()]
                else:
                    yield [list(feed.values()) if self._return_list else feed]
        finally:
            ahead.close()

    __call__ = __iter__

    # -- not iterable
    def start(self) -> None:
        """Begin an epoch and read ahead."""
        self._check_not_iterable("start")
        if self._running is not None:
            raise ProgramError(f"this {self._kind} has been started already; reset() it first")
        self._running = self._ahead()

    def reset(self) -> None:
        """End an epoch, even before the data ends."""
        self._check_not_iterable("reset")
        if self._running is not None:
            self._running.close()
        self._running = None

    def _check_not_iterable(self, name: str) -> None:
        if self._iterable:
            raise ProgramError(f"{name}() is for loaders with iterable=False; iterate over this {self._kind}")

    def next_feed(self) -> dict[str, Any]:
        """The feed of the next run; `EOFException` at the end of the data."""
        names = ", ".join(var.name for var in self._vars)
        if self._running is None:
            raise FeedError(f"{names}: nothing is fed, and the {self._kind} that gives them has not been started; start() it")
        try:
            feed: dict[str, Any] = next(self._running)
            return feed
        except StopIteration:
            raise EOFException(f"{names}: the data has come to its end; reset() the {self._kind}, and start() it again") from None


def _stacked(rows: Sequence[Sequence[Any]]) -> dict[int, Any]:
    """The fields of a batch's samples as arrays, by their positions."""
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise FeedError(f"row {number} has {len(row)} fields, but row 0 has {len(rows[0])}")
    return {number: np.array(column) for number, column in enumerate(zip(*rows, strict=True))}


class DataLoader(DatasetLoader):
    __doc__ = DatasetLoader.__doc__

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> Any:
        """A loader that feeds variables from a reader::

            loader = fluid.io.DataLoader.from_generator(feed_list=[image, label], capacity=4)
            loader.set_sample_list_generator(fluid.io.batch(reader, 32))
            for feed in loader():
                executor.run(program, feed, [loss])

        Args:
            feed_list: the variables, in the order of a sample's fields. In eager mode None: the loader yields lists of tensors.
            capacity: how many batches a thread reads ahead.
            use_double_buffer: accepted as in Fluid; without effect.
            iterable: whether the loader is iterated over. Otherwise ``start()`` it and run the program without `feed`,
                until ``fluid.core.EOFException``; then ``reset()`` it.
            return_list: yield arrays in a list, not in a dict by name.
            use_multiprocess: accepted as in Fluid 1.7, without effect: a thread reads ahead.
            drop_last: accepted as in Fluid 1.8, without effect: batches are not divided among devices.
        """
        return _Loader(feed_list, capacity, use_double_buffer, iterable, return_list)

    @staticmethod
    def from_dataset(dataset: Any, places: Any, drop_last: bool = True) -> Any:
        """Not supported, since Paddle's own processes read datasets; raises `ProgramError`, which says what to use.

        Args:
            dataset, places, drop_last: without effect.
        """
        raise ProgramError(
            "DataLoader.from_dataset: Paddle's dataset engines are not here; read the files in a generator, and "
            "use DataLoader.from_generator(...).set_sample_generator(...)"
        )


class PyReader(_Loader):
    """A loader with the method names from before `DataLoader.from_generator`.

    Args:
        feed_list: the variables, in the order of a sample's fields.
        capacity: how many batches a thread reads ahead.
        use_double_buffer: accepted as in Fluid; without effect.
        iterable: whether the loader is iterated over; otherwise see `DataLoader.from_generator`.
        return_list: yield arrays in a list, not in a dict by name.

    >>> reader = fluid.io.PyReader([fluid.data("x", [None, 1])], capacity=2)
    >>> reader.decorate_sample_generator(lambda: ([number] for number in range(4)), batch_size=4)
    >>> [feed["x"].shape for (feed,) in reader()]
    [(4, 1)]
    """

    _kind = "PyReader"
    _setters = "decorate_sample_generator, decorate_sample_list_generator or decorate_batch_generator"

    def decorate_sample_generator(
        self, sample_generator: Reader, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> None:
        """Take samples ``(field, field, ...)``, one at a time, from a reader.

        Args:
            sample_generator: a reader of samples.
            batch_size: how many are in a batch.
            drop_last: whether to leave out a shorter last batch.
            places: an `XLAPlace`, or a list of one: each batch goes there while the one before is computed with.
        """
        self.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(self, reader: Reader, places: Any = None) -> None:
        """Take batches as lists of samples, such as `batch` makes.

        Args:
            reader: a reader of lists of samples.
            places: an `XLAPlace`, or a list of one: each batch goes there while the one before is computed with.
        """
        self.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: Reader, places: Any = None) -> None:
        """Take batches as tuples of arrays, one for each variable.

        Args:
            reader: a reader of batches.
            places: an `XLAPlace`, or a list of one: each batch goes there while the one before is computed with.
        """
        self.set_batch_generator(reader, places)

    # The even older names of `layers.py_reader`.
    decorate_paddle_reader = decorate_sample_list_generator
    decorate_tensor_provider = decorate_batch_generator
