"""Tracebacks of errors: the user's lines, without those inside Fluid.

`FLUID_FULL_TRACEBACK=1` shows all lines. Python's errors about wrong arguments are shown in the same way, with the arguments that
the function takes. Other kinds of errors are shown as they are, and so are errors where another library has put its own hook in
place of Python's.
"""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from ..errors import FluidError, arguments_text
from .frames import OURS

_WRONG_CALL = re.compile(
    r"(?P<name>[\w.<>]+)\(\) (got an unexpected keyword argument '(?P<argument>\w+)'|got multiple values for argument "
    r"|missing \d+ required |takes .*positional argument|got some positional-only)[^?]*?(?P<hint>\. Did you mean '\w+'\?)?$"
)
"""Python's messages for calls with arguments that a function does not take."""


def install() -> None:
    """Let Python, and IPython where it runs, show errors of Fluid by the user's lines."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _show_in_thread
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((FluidError, TypeError), _show_in_ipython)


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


def _presented(error: BaseException, traceback: TracebackType | None) -> BaseException:
    """The error as it is shown: errors of Fluid and of calls of it without the lines inside Fluid."""
    error = error.with_traceback(traceback)
    if isinstance(error, FluidError) or _explain_call(error):
        return shorten(error)
    return error


def _explain_call(error: BaseException) -> bool:
    """Add the arguments that a function takes to Python's error about a wrong call.

    Returns:
        Whether Fluid, or a call of a function of Fluid, has caused the error.
    """
    wrong = _WRONG_CALL.match(str(error)) if type(error) is TypeError else None
    step = error.__traceback__
    if wrong is None or step is None:
        return False
    while step.tb_next is not None:
        step = step.tb_next
    is_ours = OURS[step.tb_frame.f_code.co_filename]
    function = _called(wrong["name"], step.tb_frame, step.tb_lineno, is_ours)
    if function is None:
        return is_ours
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return is_ours
    explanation = arguments_text([name for name in parameters if name != "self"], wrong["argument"])
    text = str(error).removesuffix(wrong["hint"] or "")  # of Python 3.13
    if not text.endswith(explanation):  # an error may be shown twice
        error.args = (text + explanation,)
    return True


def _called(name: str, frame: FrameType, line: int, is_ours: bool) -> Callable[..., Any] | None:
    """Find the function of a qualified name that a frame calls; None if it is not found, or the user's own.

    Args:
        line: the line that calls, in a frame of the user.
        is_ours: whether the frame is one of Fluid: then its values are searched, else the names in the line.
    """
    if is_ours:
        candidates: Iterator[Any] = iter(frame.f_locals.values())
    else:
        text = linecache.getline(frame.f_code.co_filename, line)
        candidates = (_value(path, frame) for path in re.findall(r"[A-Za-z_][\w.]*(?=\s*\()", text))
    method = name.rpartition(".")[2]
    for value in candidates:
        home = value if inspect.isclass(value) else type(value)
        for function in (value, getattr(home, method, None)):
            if inspect.isroutine(function) and function.__qualname__ == name:
                code = getattr(inspect.unwrap(function), "__code__", frame.f_code)
                if is_ours or OURS[code.co_filename]:
                    return function
    return None


def _value(path: str, frame: FrameType) -> Any:
    """What a dotted name means in a frame; None if it means nothing."""
    first, *parts = path.split(".")
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for part in parts:
        value = inspect.getattr_static(value, part, None) if not inspect.ismodule(value) else getattr(value, part, None)
    return value


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    error = _presented(error, traceback)
    sys.__excepthook__(kind, error, error.__traceback__)


def _show_in_thread(args: Any) -> None:
    if args.exc_value is not None:
        error = _presented(args.exc_value, args.exc_traceback)
        args = threading.ExceptHookArgs((args.exc_type, error, error.__traceback__, args.thread))
    threading.__excepthook__(args)


def _show_in_ipython(shell: Any, kind: Any, error: BaseException, traceback: Any, tb_offset: int | None = None) -> Any:
    error = _presented(error, traceback)
    return shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)
