"""Decides whether native code is used. If it cannot be compiled, programs run on numpy, and one warning says why."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from weakref import WeakSet

from fluid.ir.frames import current_frames
from fluid.ir.program import Program

from ..backend import Unavailable

_WHAT_TO_DO = "This is a fault of Fluid: please report it; FLUID_NATIVE=0 switches native code off"

_warned: dict[str, WeakSet[Program]] = {}
"""Message of a warning -> the programs that it was issued for."""


class NativeUnavailable(Unavailable):
    """Native code cannot be compiled here; the message says why."""

    def warn(self, program: Program) -> None:
        warn_of(self, program)


class NativeFault(NativeUnavailable):
    """Native code of one program is wrong or cannot be compiled, because of a bug in Fluid."""


def fault(problem: str) -> NativeFault:
    """The error for a bug in native code."""
    return NativeFault(f"{problem}. {_WHAT_TO_DO}")


def is_enabled() -> bool:
    """Whether llvmlite is installed, and ``FLUID_NATIVE=0`` does not switch native code off."""
    return os.environ.get("FLUID_NATIVE", "1") != "0" and _is_installed()


@cache
def _is_installed() -> bool:
    return find_spec("llvmlite") is not None


@contextmanager
def or_unavailable() -> Iterator[None]:
    """In the ``with`` block, turn unexpected errors into `NativeFault`."""
    try:
        yield
    except NativeUnavailable:
        raise
    except Exception as error:
        raise NativeFault(_described(error)) from error


def warn_of(error: NativeUnavailable, program: Program | None = None) -> None:
    """Warn that a program runs on numpy: once per program for a `NativeFault`, else once per process."""
    warn_once(f"native code is not used, programs run on numpy: {error}", program if isinstance(error, NativeFault) else None)


def warn_of_lowering(op_type: str, error: Exception, program: Program | None = None) -> None:
    """Warn, once per op type and program, that the op runs on numpy because its lowering failed."""
    warn_once(f"native code does not compute {op_type}, numpy does: {_described(error)}", program)


def _described(error: Exception) -> str:
    """Text for an unexpected error: its message, where it was raised, and what to do."""
    last = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno}). {_WHAT_TO_DO}"


def warn_once(message: str, program: Program | None) -> None:
    """Issue a warning at the user's line, once per program; without a program, once."""
    is_new = message not in _warned
    programs = _warned.setdefault(message, WeakSet())
    if program is not None:
        is_new = program not in programs
        programs.add(program)
    if is_new:
        ((code, line), *_) = current_frames(1) or ((None, 0),)
        # Python shows a text once per line and registry: with a fresh registry, each of these is shown.
        warnings.warn_explicit(message, RuntimeWarning, code.co_filename if code is not None else "<unknown>", line, registry={})
