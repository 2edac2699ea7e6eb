"""Contexts and decorators that switch recording of ops on and off, and other state of a thread."""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from ..dygraph.tracing import Tracer
    from ..ir.program import Program
    from .engine import GraphTask


_Function = TypeVar("_Function", bound=Callable[..., Any])


class _ThreadMode(threading.local):
    """State of eager mode in this thread.

    Attributes:
        recording: ops are recorded.
        task: the backward pass that this thread runs nodes of.
        differentiating: a function is being differentiated, so that derivatives computed inside it are recorded.
        depth: how many backward passes are nested in this thread.
        devices: devices other than the CPU whose nodes this thread runs.
        tracer: writes the ops that run into a program.
        sizes: the tracer that notes which sizes of tensors the user's code reads.
        interceptor: receives each call of an op in place of the op: a tracer, or a recorder of reads.
        again: a call is being repeated, and must not change state such as moving statistics.
        target: the program that a layer appends to, with variables in place of its parameters.
        keeps_gradients: tensors that ops compute keep their gradients, as if `retain_grads` were called on each.
    """

    recording = True
    differentiating = False
    depth = 0
    task: GraphTask | None = None
    devices: frozenset[str] = frozenset()
    tracer: Tracer | None = None
    sizes: Any = None
    interceptor: Any = None
    again: bool = False
    target: Program | None = None
    keeps_gradients = False


state = _ThreadMode()


class tracing:
    """Inside the ``with``, ops of this thread are traced by this tracer, or by none."""

    def __init__(self, tracer: Tracer | None) -> None:
        self._tracer = tracer

    def __enter__(self) -> None:
        self._before = state.tracer, state.interceptor
        state.tracer = state.interceptor = self._tracer

    def __exit__(self, *_: object) -> None:
        state.tracer, state.interceptor = self._before


class intercepting:
    """Inside the ``with``, ``interceptor.call(op, tensors)`` is called in place of this thread's ops; with None, they run."""

    def __init__(self, interceptor: Any) -> None:
        self._interceptor = interceptor

    def __enter__(self) -> None:
        self._before, state.interceptor = state.interceptor, self._interceptor

    def __exit__(self, *_: object) -> None:
        state.interceptor = self._before


class keeping_gradients:
    """Inside the ``with``, tensors that ops compute keep their gradients while something refers to them, as in Fluid 1.6."""

    def __enter__(self) -> None:
        self._before, state.keeps_gradients = state.keeps_gradients, True

    def __exit__(self, *_: object) -> None:
        state.keeps_gradients = self._before


def is_grad_enabled() -> bool:
    """Whether ops are recorded in this thread.

    >>> with dygraph.no_grad():
    ...     dygraph.is_grad_enabled()
    False
    """
    return state.recording


class set_grad_enabled:
    """Switch recording of ops on or off: at once, inside a ``with``, or in a decorated function.

    Args:
        mode: whether to record.

    >>> x = dygraph.Tensor([1.0], stop_gradient=False)
    >>> with dygraph.set_grad_enabled(False):
    ...     y = x * x
    >>> y.stop_gradient
    True
    """

    def __init__(self, mode: bool) -> None:
        self._mode = bool(mode)
        self._before = [state.recording]
        state.recording = self._mode

    def __enter__(self) -> None:
        state.recording = self._mode

    def __exit__(self, *_: object) -> None:
        state.recording = self._before[-1]

    def __call__(self, function: _Function) -> _Function:
        state.recording = self._before[-1]  # as a decorator it has no effect outside the function
        return _decorated(function, self._mode)


class _Switch:
    """A context manager and decorator that switches recording of ops; it may be entered again inside itself."""

    _mode: bool

    def __new__(cls, function: Any = None) -> Any:
        switch = super().__new__(cls)
        return switch if function is None else _decorated(function, cls._mode)  # as @no_grad, without parentheses

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

    A decorated generator or coroutine runs in this mode; while it is suspended at a ``yield`` or ``await``, the caller's mode
    holds. A ``with`` around an ``await`` applies to all coroutines of the thread until its end.

    Args:
        function: the function to decorate, for ``@no_grad``.

    >>> x = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    >>> with dygraph.no_grad():
    ...     y = x * x
    >>> y.stop_gradient
    True
    """

    _mode = False


class enable_grad(_Switch):
    """Ops are recorded, inside a `no_grad` too.

    Args:
        function: the function to decorate, for ``@enable_grad``.

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
            generator: AsyncGenerator[Any, Any] = function(*args, **kwargs)
            step = generator.asend(None)
            while True:
                try:
                    item = await _awaited(step, mode)
                except StopAsyncIteration:
                    return
                try:
                    step = generator.asend((yield item))
                except GeneratorExit:
                    await _awaited(generator.aclose(), mode)
                    raise
                except BaseException as error:
                    step = generator.athrow(error)

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


def _in_steps(generator: Any, mode: bool) -> Generator[Any, Any, Any]:
    """Run the steps of a generator, or of an object with its methods, in this mode; while it is suspended, the caller's mode
    holds."""
    step, value = generator.send, None
    while True:
        before = state.recording
        state.recording = mode
        try:
            item = step(value)
        except StopIteration as end:
            return end.value
        finally:
            state.recording = before
        try:
            step, value = generator.send, (yield item)
        except GeneratorExit:
            with enable_grad() if mode else no_grad():
                generator.close()
            raise
        except BaseException as error:
            step, value = generator.throw, error


@types.coroutine
def _awaited(coroutine: Any, mode: bool) -> Generator[Any, Any, Any]:
    """Like `_in_steps`, for an awaitable."""
    return (yield from _in_steps(coroutine, mode))
