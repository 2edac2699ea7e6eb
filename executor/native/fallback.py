"""Whether native code is used. Where it cannot be made, programs run on numpy, and one warning says why."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb

__all__ = ["NativeUnavailable", "is_enabled", "or_unavailable", "warn_of", "warn_of_lowering"]

_warned: set[str] = set()
"""Reasons that a warning has told."""


class NativeUnavailable(Exception):
    """Native code cannot be made here; the message says why."""


def is_enabled() -> bool:
    """Whether llvmlite is installed, and ``FLUID_NATIVE=0`` does not switch native code off."""
    return os.environ.get("FLUID_NATIVE", "1") != "0" and _is_installed()


@cache
def _is_installed() -> bool:
    return find_spec("llvmlite") is not None


@contextmanager
def or_unavailable() -> Iterator[None]:
    """Inside the ``with``, errors that nobody expects become `NativeUnavailable`."""
    try:
        yield
    except NativeUnavailable:
        raise
    except Exception as error:
        raise NativeUnavailable(_told(error)) from error


def warn_of(error: NativeUnavailable) -> None:
    """Warn, once for each reason, that a program runs on numpy."""
    _warn(f"native code is not used, programs run on numpy: {error}")


def warn_of_lowering(op_type: str, error: Exception) -> None:
    """Warn, once for each op type, that native code does not compute it, as its lowering failed."""
    _warn(f"native code does not compute {op_type}, numpy does: {_told(error)}")


def _told(error: Exception) -> str:
    """What an error says that nobody expects, where it was raised, and what to do."""
    last = extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    return (
        f"{type(error).__name__}: {error} ({where}). This is a fault of Fluid: please report it; FLUID_NATIVE=0 switches native "
        "code off"
    )


def _warn(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, RuntimeWarning, stacklevel=3)
