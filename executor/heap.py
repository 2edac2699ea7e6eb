"""What becomes of memory that arrays give back."""

from __future__ import annotations

import ctypes
import os

__all__ = ["keep_freed_memory"]

_TRIM, _MAP = -1, -3
"""Numbers of the settings in glibc's ``malloc.h``."""
_KEPT, _MAPPED = 1 << 29, 1 << 27


def keep_freed_memory() -> bool:
    """Let this process keep up to 512 MiB that arrays gave back, for the next ones; whether that could be arranged.

    By default glibc returns such memory to the system as soon as a few megabytes are free, and each step of eager mode has
    the system clear the same pages anew, which can take half as long as the step. Arrays of 128 MiB and more go back at once, as
    before. Nothing is changed where glibc is not the C library, or the environment says how it is to be
    (``MALLOC_TRIM_THRESHOLD_`` and others).
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(set_option(_TRIM, _KEPT)) and bool(set_option(_MAP, _MAPPED))
