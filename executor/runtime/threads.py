"""How many threads compute: those of native code, and those that share numpy's large products (`products.py`).

Results do not depend on that number. Those of numpy's BLAS depend on its own, so BLAS has one thread while a program or an op
computes (`OnNumpy`, `on_one_thread`). It has one as long as native code with threads is there, too (`hold_blas`): two pools whose
threads wait by spinning take each other's cores.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import cache
from operator import index
from typing import Any, NamedTuple

import numpy as np

from fluid.errors import FluidTypeError, ProgramError, shown

__all__ = [
    "HAS_THREADS", "MOST_THREADS", "OnNumpy", "available_cores", "blas_threads", "checked_count", "get_num_threads", "hold_blas",
    "on_one_thread", "set_num_threads",
]  # fmt: skip

MOST_THREADS = 256
HAS_THREADS = sys.platform not in ("emscripten", "wasi")
"""Whether threads can be started; in a browser (Pyodide) they cannot."""
_SUFFIXES = [(f"{start}openblas_", end) for start in ("scipy_", "") for end in ("64_", "")]


class _Blas(NamedTuple):
    """Functions of the OpenBLAS that numpy uses."""

    get: Callable[[], int]
    set: Callable[[int], None]


@cache
def _blas() -> _Blas | None:
    """The OpenBLAS of numpy; None where numpy has another BLAS, or the platform does not say which."""
    try:
        file = sys.modules["numpy._core._multiarray_umath"].__file__
        library = ctypes.CDLL(file)  # where a name is looked for in what it is linked with, too
    except (KeyError, OSError):
        return None
    for start, end in _SUFFIXES:
        getter = getattr(library, f"{start}get_num_threads{end}", None)
        setter = getattr(library, f"{start}set_num_threads{end}", None)
        if getter is not None and setter is not None:
            return _Blas(getter, setter)
    return None


def available_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    if not HAS_THREADS:
        return 1
    return os.cpu_count() or 1


def _default() -> int:
    """OMP_NUM_THREADS, of which the first number counts, or a thread for each core."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(int(first), MOST_THREADS) if first.isdecimal() and int(first) > 0 else available_cores()


class _Threads:
    """The number of threads, and who holds BLAS to one."""

    def __init__(self) -> None:
        self.count = _default()
        self._lock = threading.RLock()
        self._holds = 0
        self._of_blas = 1
        """Threads that BLAS has when nothing holds it; read when the first hold begins."""

    def set(self, count: int) -> None:
        with self._lock:
            self.count = self._of_blas = count
            if not self._holds:
                _set_blas(count)

    def hold(self) -> None:
        with self._lock:
            if not self._holds:
                self._of_blas = blas_threads() or 1
                if self._of_blas > 1:
                    _set_blas(1)
            self._holds += 1

    def release(self) -> None:
        with self._lock:
            self._holds -= 1
            if not self._holds and self._of_blas > 1:
                _set_blas(self._of_blas)


def _set_blas(count: int) -> None:
    blas = _blas()
    if blas is not None:
        blas.set(count)


_THREADS = _Threads()


def checked_count(number: int) -> int:
    """A number of threads as an int; `FluidTypeError` or `ProgramError` if there cannot be as many."""
    try:
        if isinstance(number, bool):
            raise TypeError
        count = index(number)
    except TypeError:
        raise FluidTypeError(f"set_num_threads: number should be an int, not {shown(number)}") from None
    if not 1 <= count <= MOST_THREADS:
        raise ProgramError(f"set_num_threads: number should be from 1 to {MOST_THREADS}, not {shown(count)}")
    return count


def set_num_threads(number: int) -> None:
    """Set how many threads compute one program, or op; results have the same bits with any number.

    At first there are as many as the environment variable ``OMP_NUM_THREADS`` says, or else one for each core that the process
    may use. They share native code and, where numpy computes, large products. All else in numpy has one thread, also its BLAS
    (OpenBLAS) while programs and ops compute; outside, BLAS has this number from now on.

    Args:
        number: at least 1; the calling thread is one of them.

    >>> fluid.set_num_threads(2)
    >>> fluid.get_num_threads()
    2
    """
    _THREADS.set(checked_count(number))


def get_num_threads() -> int:
    """Return how many threads compute one program, as `set_num_threads` says it.

    >>> fluid.set_num_threads(1)
    >>> fluid.get_num_threads()
    1
    """
    return _THREADS.count


def blas_threads() -> int | None:
    """The number of threads that numpy's BLAS has now; None where that is not known."""
    blas = _blas()
    return None if blas is None else blas.get()


class _Hold:
    """Holds BLAS to one thread as long as it lives."""


def hold_blas() -> object:
    """Hold numpy's BLAS to one thread as long as the object lives that this returns, or another one of its kind."""
    hold = _Hold()
    _THREADS.hold()
    weakref.finalize(hold, _THREADS.release).atexit = False
    return hold


class OnNumpy:
    """A context in which numpy computes for a program: its BLAS has one thread, and it does not warn, which would not name the op
    (check_nan does)."""

    def __init__(self) -> None:
        self._settings = np.errstate(all="ignore")

    def __enter__(self) -> None:
        _THREADS.hold()
        self._settings.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._settings.__exit__(*error)
        _THREADS.release()


def on_one_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls `function` while BLAS has one thread."""
    hold, release = _THREADS.hold, _THREADS.release

    def call(*arguments: Any) -> Any:
        hold()
        try:
            return function(*arguments)
        finally:
            release()

    return call
