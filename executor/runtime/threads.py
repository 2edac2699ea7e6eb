"""The number of threads of native code, and of numpy's large products (`products.py`).

Results do not depend on this number. But results of numpy's BLAS depend on the number of BLAS threads, so BLAS has one thread
while a program or an op computes (`OnNumpy`, `on_one_thread`). It also has one thread as long as native code with threads exists
(`hold_blas`): two pools with spinning threads would compete for the cores.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from functools import cache
from operator import index
from typing import Any, NamedTuple

import numpy as np

from fluid.errors import FluidTypeError, ProgramError, shown

from .blas import openblas
from .forks import fork_safe_lock

MOST_THREADS = 256
HAS_THREADS = sys.platform not in ("emscripten", "wasi")
"""Whether threads can be started; in a browser (Pyodide) they cannot."""


class _Blas(NamedTuple):
    """Functions of the OpenBLAS that numpy uses."""

    get: Callable[[], int]
    set: Callable[[int], None]


@cache
def _blas() -> _Blas | None:
    """The functions of numpy's BLAS; None if it is no OpenBLAS."""
    blas = openblas()
    names = ("openblas_get_num_threads", "openblas_set_num_threads")
    return None if blas is None else _Blas(*(blas.function(name) for name in names))


def available_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    if not HAS_THREADS:
        return 1
    return os.cpu_count() or 1


def _default() -> int:
    """The first number of OMP_NUM_THREADS, or the number of cores."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(int(first), MOST_THREADS) if first.isdecimal() and int(first) > 0 else available_cores()


class _Threads:
    """The number of threads, and the count of objects that hold BLAS to one thread."""

    def __init__(self) -> None:
        self.count = _default()
        self._lock = fork_safe_lock()
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
    """Check a number of threads and return it as an int; raises `FluidTypeError` or `ProgramError` if it is invalid."""
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
    """Set how many threads compute one program or op; results have the same bits with any number.

    The initial number comes from the environment variable ``OMP_NUM_THREADS``, otherwise from the cores that the process may use.
    The threads run native code and, on numpy, large products. Everything else in numpy runs on one thread, also its BLAS
    (OpenBLAS) while programs and ops compute; outside, BLAS gets this number from now on.

    Args:
        number: at least 1; the calling thread is one of the threads.

    >>> fluid.set_num_threads(2)
    >>> fluid.get_num_threads()
    2
    """
    _THREADS.set(checked_count(number))


def get_num_threads() -> int:
    """Return the number of threads that compute one program, as set by `set_num_threads`.

    >>> fluid.set_num_threads(1)
    >>> fluid.get_num_threads()
    1
    """
    return _THREADS.count


def blas_threads() -> int | None:
    """The current number of BLAS threads of numpy; None if unknown."""
    blas = _blas()
    return None if blas is None else blas.get()


class _Hold:
    """Holds BLAS to one thread as long as it lives."""


def hold_blas() -> object:
    """Hold numpy's BLAS to one thread, as long as the returned object or another such object lives."""
    hold = _Hold()
    _THREADS.hold()
    weakref.finalize(hold, _THREADS.release).atexit = False
    return hold


class OnNumpy:
    """A context for computing a program with numpy: BLAS has one thread, and numpy does not warn, because its warnings would not
    name the op (check_nan does)."""

    def __init__(self) -> None:
        self._settings = np.errstate(all="ignore")

    def __enter__(self) -> None:
        _THREADS.hold()
        self._settings.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._settings.__exit__(*error)
        _THREADS.release()


def on_one_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` so that BLAS has one thread while it runs."""
    hold, release = _THREADS.hold, _THREADS.release

    def call(*arguments: Any) -> Any:
        hold()
        try:
            return function(*arguments)
        finally:
            release()

    return call
