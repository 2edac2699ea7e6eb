"""Whether ops are recorded: per thread, as contexts and decorators."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from .engine import GraphTask
    from .tracing import Tracer

__all__ = ["enable_grad", "is_grad_enabled", "no_grad", "set_grad_enabled", "state", "tracing"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _State(threading.local):
    """What is so in this thread.

    Attributes:
        recording: ops are recorded.
        task: the backward pass that this thread works for.
        depth: how many backward passes are under way inside each other in this thread.
        devices: devices whose nodes this thread runs, besides the processor's.
        tracer: writes what runs into a program.
        again: what runs has run before, and is to leave all as it is.
    """

    recording = True
    depth = 0
    task: GraphTask | None = None
    devices: frozenset[str] = frozenset()
    tracer: Tracer | None = None
    again: bool = False


state = _State()


class tracing:
    """Inside the ``with``, what runs in this thread goes to this tracer, or to none."""

    def __init__(self, tracer: Tracer | None) -> None:
        self._tracer = tracer

    def __enter__(self) -> None:
        self._before, state.tracer = state.tracer, self._tracer

    def __exit__(self, *_: object) -> None:
        state.tracer = self._before


def is_grad_enabled() -> bool:
    """Whether ops are recorded in this thread."""
    return state.recording


class set_grad_enabled:
    """Record ops, or do not: at once, inside a ``with``, or in a function that it decorates."""

    def __init__(self, mode: bool) -> None:
        self._mode = bool(mode)
        self._before = [state.recording]
        state.recording = self._mode

    def __enter__(self) -> None:
        state.recording = self._mode

    def __exit__(self, *_: object) -> None:
        state.recording = self._before[-1]

    def __call__(self, function: _Function) -> _Function:
        state.recording = self._before[-1]  # the call that made this decorator is not to last
        return _decorated(function, self._mode)


class _Switch:
    """A context and decorator that records ops, or does not. It may be entered again inside itself."""

    _mode: bool

    def __new__(cls, function: Any = None) -> Any:
        made = super().__new__(cls)
        return made if function is None else _decorated(function, cls._mode)  # as @no_grad, without brackets

    def __init__(self, function: Any = None) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(state.recording)
        state.recording = self._mode

    def __exit__(self, *_: object) -> None:
        state.recording = self._before.pop()

    def __call__(self, function: _Function) -> _Function:
        return _decorated(function, self._mode)


class no_grad(_Switch):
    """Ops are not recorded: ``with no_grad():``, ``@no_grad()`` or ``@no_grad``."""

    _mode = False


class enable_grad(_Switch):
    """Ops are recorded, inside a `no_grad` too."""

    _mode = True


def _decorated(function: _Function, mode: bool) -> _Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = state.recording
        state.recording = mode
        try:
            return function(*args, **kwargs)
        finally:
            state.recording = before

    return cast(_Function, call)
