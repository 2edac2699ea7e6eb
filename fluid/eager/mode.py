"""Whether ops are recorded: per thread, as contexts and decorators."""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from ..dygraph.tracing import Tracer
    from .engine import GraphTask

__all__ = ["enable_grad", "is_grad_enabled", "no_grad", "set_grad_enabled", "state", "tracing"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _State(threading.local):
    """What is so in this thread.

    Attributes:
        recording: ops are recorded.
        task: the backward pass that this thread works for.
        differentiating: a function is called whose derivative is asked for, so that derivatives inside it are recorded.
        forward: what runs finds a product with a Jacobian matrix, which flows through gradients of gradients.
        depth: how many backward passes are under way inside each other in this thread.
        devices: devices whose nodes this thread runs, besides the processor's.
        tracer: writes what runs into a program.
        again: what runs has run before, and is to leave all as it is.
    """

    recording = True
    differentiating = False
    forward = False
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
    """Ops are not recorded: ``with no_grad():``, ``@no_grad()`` or ``@no_grad``.

    A generator or coroutine that is decorated runs so from each resumption to the next ``yield`` or ``await``, and what runs
    between these does not. A ``with`` around an ``await`` lasts, for all coroutines of the thread, until its end.

    >>> x = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    >>> with dygraph.no_grad():
    ...     y = x * x
    >>> y.stop_gradient
    True
    """

    _mode = False


class enable_grad(_Switch):
    """Ops are recorded, inside a `no_grad` too.

    >>> x = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    >>> with dygraph.no_grad(), dygraph.enable_grad():
    ...     y = x * x
    >>> y.stop_gradient
    False
    """

    _mode = True


def _decorated(function: _Function, mode: bool) -> _Function:
    call: Any
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return (yield from _in_steps(function(*args, **kwargs), mode))

    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await _awaited(function(*args, **kwargs), mode)

    elif inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            made: AsyncGenerator[Any, Any] = function(*args, **kwargs)
            step = made.asend(None)
            while True:
                try:
                    found = await _awaited(step, mode)
                except StopAsyncIteration:
                    return
                try:
                    step = made.asend((yield found))
                except GeneratorExit:
                    await _awaited(made.aclose(), mode)
                    raise
                except BaseException as error:
                    step = made.athrow(error)

    else:

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            before = state.recording
            state.recording = mode
            try:
                return function(*args, **kwargs)
            finally:
                state.recording = before

    return cast(_Function, call)


def _in_steps(made: Any, mode: bool) -> Generator[Any, Any, Any]:
    """Run a generator, or what else has its methods, in this mode, but not what runs while it waits."""
    step, value = made.send, None
    while True:
        before = state.recording
        state.recording = mode
        try:
            found = step(value)
        except StopIteration as end:
            return end.value
        finally:
            state.recording = before
        try:
            step, value = made.send, (yield found)
        except GeneratorExit:
            with enable_grad() if mode else no_grad():
                made.close()
            raise
        except BaseException as error:
            step, value = made.throw, error


@types.coroutine
def _awaited(made: Any, mode: bool) -> Generator[Any, Any, Any]:
    """As `_in_steps`, to be awaited."""
    return (yield from _in_steps(made, mode))
