"""Locks for which forks wait."""

from __future__ import annotations

import os
import threading
from typing import Any


def fork_safe_lock() -> Any:
    """A lock that no forked process inherits as held by a thread that it lacks: a fork waits until the lock is free.

    Forks take the newest lock first. So code that holds the lock may only take locks that forks wait for if they are older.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
