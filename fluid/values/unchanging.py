"""Read-only numpy arrays, so that results computed from them stay true."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["never_changes", "unchanging"]


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
