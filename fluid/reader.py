"""Readers: functions without arguments that give an iterator over samples, and functions that make readers of readers."""

from __future__ import annotations

import itertools
import queue
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .errors import ProgramError

__all__ = ["batch", "buffered", "cache", "chain", "compose", "firstn", "map_readers", "shuffle"]

Reader = Callable[[], Iterable[Any]]


def batch(reader: Reader, batch_size: int, drop_last: bool = False) -> Reader:
    """Lists of `batch_size` samples; the last may be shorter, unless `drop_last`."""
    if batch_size < 1:
        raise ProgramError(f"batch_size should be a positive number, not {batch_size!r}")

    def read() -> Iterator[list[Any]]:
        samples = iter(reader())
        while part := list(itertools.islice(samples, batch_size)):
            if len(part) == batch_size or not drop_last:
                yield part

    return read


def shuffle(reader: Reader, buf_size: int) -> Reader:
    """The samples in random order, by shuffling `buf_size` of them at a time; ``random.seed`` fixes the order."""

    def read() -> Iterator[Any]:
        for part in batch(reader, buf_size)():
            random.shuffle(part)
            yield from part

    return read


def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """``func(a, b, ...)`` of the samples of several readers, as long as all have some."""

    def read() -> Iterator[Any]:
        return map(func, *(reader() for reader in readers))

    return read


def chain(*readers: Reader) -> Reader:
    """The samples of the first reader, then those of the next, ..."""

    def read() -> Iterator[Any]:
        return itertools.chain.from_iterable(reader() for reader in readers)

    return read


def compose(*readers: Reader, check_alignment: bool = True) -> Reader:
    """The fields of the samples of several readers, side by side: ``1`` and ``(2, 3)`` make ``(1, 2, 3)``.

    Readers of different lengths are an error, or, without `check_alignment`, cut to the shortest.
    """

    def read() -> Iterator[Any]:
        missing = object()
        for parts in itertools.zip_longest(*(reader() for reader in readers), fillvalue=missing):
            if missing in parts:
                if check_alignment:
                    raise ProgramError("the readers that are composed have different lengths")
                return
            yield tuple(field for part in parts for field in (part if isinstance(part, tuple) else (part,)))

    return read


def firstn(reader: Reader, n: int) -> Reader:
    """The first `n` samples."""

    def read() -> Iterator[Any]:
        return itertools.islice(reader(), n)

    return read


def cache(reader: Reader) -> Reader:
    """The samples, read once and then kept in memory."""
    kept: list[Any] | None = None

    def read() -> Iterator[Any]:
        nonlocal kept
        if kept is None:
            kept = list(reader())
        return iter(kept)

    return read


def buffered(reader: Reader, size: int) -> Reader:
    """The samples, of which a thread reads up to `size` ahead. What goes wrong there is raised here."""

    def read() -> Iterator[Any]:
        ahead: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=max(size, 1))
        stopped = threading.Event()

        def put(kind: str, value: Any) -> bool:
            while not stopped.is_set():
                try:
                    ahead.put((kind, value), timeout=0.1)
                    return True
                except queue.Full:
                    continue
            return False

        def work() -> None:
            try:
                for sample in reader():
                    if not put("sample", sample):
                        return
                put("end", None)
            except BaseException as error:
                put("error", error)

        threading.Thread(target=work, daemon=True).start()
        try:
            while True:
                kind, value = ahead.get()
                if kind == "end":
                    return
                if kind == "error":
                    raise value
                yield value
        finally:
            stopped.set()

    return read
