"""Tracebacks of errors: the user's lines, without those inside Fluid.

`FLUID_FULL_TRACEBACK=1` shows all lines. Other kinds of errors are shown as they are, and so are errors where another library has
put its own hook in place of Python's.
"""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import Any

from ..errors import FluidError
from .frames import OURS


def install() -> None:
    """Let Python, and IPython where it runs, show errors of Fluid by the user's lines."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _show_in_thread
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((FluidError,), _show_in_ipython)


def shorten(error: BaseException) -> BaseException:
    """Leave out the lines inside Fluid from the tracebacks of an error and its causes, and causes that its message repeats.

    >>> from fluid.ir.tracebacks import shorten
    >>> try:
    ...     layers.relu(3)
    ... except fluid.FluidError as error:
    ...     shorten(error).__traceback__.tb_next is None
    True
    """
    if os.environ.get("FLUID_FULL_TRACEBACK") == "1":
        return error
    error.__traceback__ = _users(error.__traceback__)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if isinstance(cause, FluidError):
        error.__cause__ = None  # which suppresses the context, too
    elif cause is not None:
        shorten(cause)
    return error


def _users(traceback: TracebackType | None) -> TracebackType | None:
    """The user's frames of a traceback; all frames if none is the user's."""
    frames = []
    step = traceback
    while step is not None:
        frames.append(step)
        step = step.tb_next
    chosen = [step for step in frames if not OURS[step.tb_frame.f_code.co_filename]]
    first: TracebackType | None = None
    for step in reversed(chosen or frames):
        first = TracebackType(first, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return first


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if isinstance(error, FluidError):
        traceback = shorten(error.with_traceback(traceback)).__traceback__
    sys.__excepthook__(kind, error, traceback)


def _show_in_thread(args: Any) -> None:
    if isinstance(args.exc_value, FluidError):
        traceback = shorten(args.exc_value).__traceback__
        args = threading.ExceptHookArgs((args.exc_type, args.exc_value, traceback, args.thread))
    threading.__excepthook__(args)


def _show_in_ipython(shell: Any, kind: Any, error: BaseException, traceback: Any, tb_offset: int | None = None) -> Any:
    error = shorten(error.with_traceback(traceback))
    return shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)
