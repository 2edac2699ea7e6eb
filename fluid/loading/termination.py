"""SIGTERM in processes that are forked: a handler of the parent must not run in the child.

A handler that raises an error (``sys.exit``) can leave the code that ends the child, which then runs on as a copy of its parent;
a handler that saves a checkpoint would save it twice.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_HAS_MASKS = hasattr(signal, "pthread_sigmask")


@contextmanager
def hold_termination() -> Iterator[None]:
    """Inside the ``with``, SIGTERM waits, in this thread and in processes that it forks."""
    if not _HAS_MASKS:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def accept_termination() -> None:
    """In a new process, let SIGTERM end it, also one that waits."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if _HAS_MASKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
