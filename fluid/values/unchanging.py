"""Read-only numpy arrays, so that results computed from them stay true."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from .memory import contiguous_copy


def never_changes(array: Any) -> bool:
    """Whether nothing can write to the memory that an array of numpy shows, such as a file that is mapped to be read.

    An array that owns its memory, or views the memory of such an array, can be made writable again.
    """
    if not isinstance(array, np.ndarray) or array.flags.writeable:
        return False
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner is not None and memoryview(owner).readonly


def unchanging(array: Any) -> Any:
    """Make a read-only view of a contiguous array (see `never_changes`). The caller gives up the array itself."""
    if not array.size or never_changes(array):
        return array
    memory = memoryview(array.reshape(-1).view(np.uint8)).toreadonly()
    return np.frombuffer(memory, array.dtype).reshape(array.shape)


def drop_pages(array: Any) -> None:
    """Let the system take back the memory of an array that maps a file; reading the array later reads the file again.

    Args:
        array: an array that `never_changes`; one that maps no file stays as it is.
    """
    owner = array.base
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    first, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < end:
        owner.madvise(mmap.MADV_DONTNEED, first, end - first)


def is_usable(array: Any, is_overwritten: bool) -> bool:
    """Whether kernels can read or overwrite an array without a copy; views may be strided, unaligned or read-only.

    Native code gets an array's address alone, and takes its elements to lie one after the other. numpy copies an unaligned array
    in each call: parameters in a combined file begin at any byte.
    """
    flags = array.flags
    is_readable = flags.c_contiguous and getattr(flags, "aligned", True)
    return bool(is_readable and (getattr(flags, "writeable", True) or not is_overwritten))


def usable_copy(xp: Any, array: Any, is_overwritten: bool) -> Any:
    """A copy of an array that `is_usable`. Nothing can change it if nothing can change the array, or overwrites it."""
    copied = contiguous_copy(xp, array)
    return unchanging(copied) if not is_overwritten and never_changes(array) else copied
