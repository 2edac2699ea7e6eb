"""Transfer of batches between processes in shared memory.

A batch is pickled without its arrays, and both are written into a segment of shared memory; the reader's arrays are views of it.
When all views are gone, the reader returns the segment for the next batch. The writer makes a new segment, with a counted name,
if none is free. The reader removes the name as soon as it has opened the segment: then only the two processes hold the memory,
which is freed however they end.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import pickle
import weakref
from collections import deque
from itertools import count
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError

Message = tuple[bytes, int | None, list[int]]
"""A batch: its pickle if that is small; or the number of a segment, the bytes of each array there, and the pickle."""

_LINE = 64
_SMALL = 1 << 10
"""Batches up to this size in bytes go through the pipe. Larger ones might fill it and leave both sides waiting."""
_MOST, _MOST_IN_ALL = 16, 128
"""How many segments the reader's arrays may hold, per writer and in all; further batches are copied. Each segment has open
files."""


def _places(sizes: list[int]) -> list[int]:
    """Offsets of arrays of these sizes in a segment, aligned to cache lines; the last item is the size of the segment."""
    places = [0]
    for size in sizes:
        places.append(places[-1] + -(-size // _LINE) * _LINE)
    return places


class BatchWriter:
    """Writes batches into shared memory.

    Args:
        prefix: how the names of its segments begin.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._segments: list[SharedMemory] = []
        self._free: list[int] = []

    def release(self, numbers: list[int]) -> None:
        """Free these segments: the reader needs them no more."""
        self._free += numbers

    def write(self, batch: Any) -> Message:
        buffers: list[pickle.PickleBuffer] = []
        pickled = io.BytesIO()
        pickle.Pickler(pickled, 5, buffer_callback=buffers.append).dump(batch)
        views = [*(buffer.raw() for buffer in buffers), pickled.getbuffer()]
        sizes = [view.nbytes for view in views]
        if sum(sizes) <= _SMALL:
            return pickle.dumps(batch, 5), None, []
        places = _places(sizes)
        number = self._segment(places[-1])
        shared: Any = self._segments[number].buf
        memory = np.frombuffer(shared, np.uint8)
        for place, view in zip(places, views, strict=False):
            memory[place : place + view.nbytes] = view
        return b"", number, sizes

    def _segment(self, size: int) -> int:
        """Take a free segment that is large enough; return its number."""
        for number in self._free:
            if self._segments[number].size >= size:
                self._free.remove(number)
                return number
        name = f"{self._prefix}{len(self._segments)}"
        step = max(1 << 16, 1 << max(size.bit_length() - 3, 0))  # so that there are few sizes
        segment = SharedMemory(name, create=True, size=-(-size // step) * step)
        _reserve(segment)
        self._segments.append(segment)  # after the steps that may fail: the reader expects names without gaps
        return len(self._segments) - 1

    def close(self) -> None:
        """Release the memory; the reader holds its own reference."""
        for segment in self._segments:
            segment.close()


def _reserve(segment: SharedMemory) -> None:
    """Allocate all of a segment's memory at once: writing to missing memory would kill the process silently."""
    path = f"/dev/shm/{segment.name}"
    if not hasattr(os, "posix_fallocate") or not os.path.exists(path):
        return
    file = os.open(path, os.O_RDWR)
    try:
        os.posix_fallocate(file, 0, segment.size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            return  # a system of files that cannot
        segment.unlink()
        raise DataError(
            f"the shared memory, /dev/shm, has no room for another {segment.size / 1e6:.1f} MB, for a batch; use fewer workers, "
            "or a smaller `ahead`, or give the system more of it (docker run --shm-size=1g)"
        ) from None
    finally:
        os.close(file)


class BatchReader:
    """Reads the batches of the `BatchWriter` with the same prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._segments: dict[int, SharedMemory] = {}
        self._free: deque[int] = deque()

    def read(self, message: Message) -> Any:
        small, number, sizes = message
        if number is None:
            return pickle.loads(small)
        for new in range(len(self._segments), number + 1):
            self._segments[new] = SharedMemory(f"{self._prefix}{new}")
            self._segments[new].unlink()
        memory: Any = np.asarray(_Lease(self._segments[number], number, self._free))
        if number >= _MOST or len(_held) > _MOST_IN_ALL:
            memory = memory.copy()
        *buffers, pickled = (memory[place : place + size] for place, size in zip(_places(sizes), sizes, strict=False))
        return pickle.loads(pickled, buffers=buffers)

    def released(self) -> list[int]:
        """Segments whose arrays are gone, each reported once."""
        return [self._free.popleft() for _ in range(len(self._free))]

    def close(self) -> None:
        """Remove the segments of a writer that has ended; arrays that were read stay valid."""
        for number in count(len(self._segments)):
            try:
                left = SharedMemory(f"{self._prefix}{number}")
            except FileNotFoundError:
                break
            except ValueError:  # it has no size: its writer was killed as soon as it had made it
                Path("/dev/shm", f"{self._prefix}{number}").unlink(missing_ok=True)
                continue
            left.unlink()
            left.close()
        self._segments.clear()


class _Lease:
    """The memory of a segment as an array; the segment is free when the array is no longer referenced.

    The array has only the address and does not reference the segment's buffer, so that its last user can close the segment.
    """

    def __init__(self, segment: SharedMemory, number: int, free: deque[int]) -> None:
        self._segment, self._number, self._free = segment, number, free
        shared: Any = segment.buf
        address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
        _held.add(self)
        self.__array_interface__ = {"data": (address, False), "shape": (segment.size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._free.append(self._number)


_held: weakref.WeakSet[_Lease] = weakref.WeakSet()
"""All memory with arrays still in use."""
