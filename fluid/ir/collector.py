"""Pauses Python's garbage collector."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_pauses = 0
_was_on = False


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector during work that makes many lasting objects; it would visit all of them again and again."""
    global _pauses, _was_on
    with _lock:
        if not _pauses:
            _was_on = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses and _was_on:
                gc.enable()
