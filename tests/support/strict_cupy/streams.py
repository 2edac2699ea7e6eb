"""Streams that record: while one does, calls are noted and not made, and what cupy or CUDA refuses then raises an error.

To know the shapes of results, a recorded call is computed, and what it has written is undone when the recording ends. So a call
that read values would get them: all ways to values raise errors.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_LOCAL = threading.local()


class CUDARuntimeError(RuntimeError):
    """An error of CUDA."""


class PinnedMemoryPool:
    """Memory of the host that copies to the device go through."""

    def malloc(self, size: int) -> Any:
        return bytearray(size)


class MemoryPool:
    """Memory of the device. What a graph uses has to come from a pool that nothing else uses."""

    def malloc(self, size: int) -> Any:
        return bytearray(size)


_PINNED, _DEFAULT = PinnedMemoryPool(), MemoryPool()
_allocate_pinned: Callable[[int], Any] = _PINNED.malloc


def get_default_pinned_memory_pool() -> PinnedMemoryPool:
    return _PINNED


def set_pinned_memory_allocator(allocator: Callable[[int], Any]) -> None:
    global _allocate_pinned
    _allocate_pinned = allocator


@contextmanager
def using_allocator(allocator: Callable[[int], Any]) -> Iterator[None]:
    former, _LOCAL.allocator = getattr(_LOCAL, "allocator", _DEFAULT.malloc), allocator
    try:
        yield
    finally:
        _LOCAL.allocator = former


class Stream:
    """A stream; calls are made at once, unless it records."""

    _numbers = itertools.count()
    by_pointer: dict[int, Stream] = {}

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self.ptr = next(Stream._numbers)
        self._tape: Graph | None = None
        self._undo: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        Stream.by_pointer[self.ptr] = self

    def __enter__(self) -> Stream:
        _stack().append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _stack().pop()

    def is_capturing(self) -> bool:
        return self._tape is not None

    def begin_capture(self, mode: Any = None) -> None:
        if self is NULL:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self._tape = Graph()

    def end_capture(self) -> Graph:
        tape, self._tape = self._tape, None
        assert tape is not None
        for array, former in reversed(self._undo):
            array[...] = former
        self._undo.clear()
        if tape.is_invalid:
            raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during capture")
        return tape

    def synchronize(self) -> None:
        refuse_waiting()

    def add_call(self, call: Callable[[], Any]) -> None:
        """Record a call without results, which writes where addresses say."""
        assert self._tape is not None
        self._tape.calls.append((call, None))

    def record_call(self, call: Callable[[], Any], operands: tuple[Any, ...]) -> Any:
        """Record a call of these arrays."""
        assert self._tape is not None
        former = [(operand._host, operand._host.copy()) for operand in operands]
        results = call()
        self._undo += [(array, copy) for array, copy in former if array.tobytes() != copy.tobytes()]
        fresh = [item for item in arrays_of(results) if not any(np.may_share_memory(item._host, array) for array, _ in former)]
        if fresh and getattr(_LOCAL, "allocator", _DEFAULT.malloc) == _DEFAULT.malloc:
            raise AssertionError("a graph uses memory of the default pool, which other calls use too")
        self._tape.calls.append((call, results))
        return results


class Graph:
    """Recorded calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[[], Any], Any]] = []
        self.is_invalid = False

    def launch(self, stream: Any = None) -> None:
        if current_stream().is_capturing():
            raise AssertionError("a graph in a graph")
        for call, results in self.calls:
            for array, new in zip(arrays_of(results), arrays_of(call()), strict=True):
                if not np.may_share_memory(array._host, new._host):
                    array._host[...] = new._host


NULL = Stream(null=True)
Stream.null = NULL  # type: ignore[attr-defined]


def _stack() -> list[Stream]:
    if not hasattr(_LOCAL, "streams"):
        _LOCAL.streams = [NULL]
    return _LOCAL.streams  # type: ignore[no-any-return]


def current_stream() -> Stream:
    return _stack()[-1]


def arrays_of(values: Any) -> list[Any]:
    """The arrays of the device among values, also in lists."""
    if isinstance(values, (list, tuple)):
        return [array for value in values for array in arrays_of(value)]
    return [values] if hasattr(values, "_host") else []


def launched(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that starts a kernel: a stream that records notes it instead. Functions that it calls are part of it."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        stream = current_stream()
        if not stream.is_capturing() or getattr(_LOCAL, "is_inside", False):
            return function(*args, **keywords)

        def make() -> Any:
            former, _LOCAL.is_inside = getattr(_LOCAL, "is_inside", False), True
            try:
                return function(*args, **keywords)
            finally:
                _LOCAL.is_inside = former

        return stream.record_call(make, tuple(arrays_of([*args, *keywords.values()])))

    return call


def refuse_waiting() -> None:
    """Raise CUDA's error if a stream records: it cannot wait for what is not computed."""
    tape = current_stream()._tape
    if tape is not None:
        tape.is_invalid = True
        raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")


def refuse_cublas() -> None:
    """Raise cupy's error if a stream records."""
    if current_stream().is_capturing():
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")


def waiting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that waits for the device."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        refuse_waiting()
        return function(*args, **keywords)

    return call


def by_cublas(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls cuBLAS."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        refuse_cublas()
        return function(*args, **keywords)

    return call


def upload(size: int) -> None:
    """Allocate the memory that a copy to the device goes through; a graph would copy whatever lies there later."""
    _allocate_pinned(size)
    if current_stream().is_capturing():
        raise AssertionError("a graph copies from memory of the host that is used again")
