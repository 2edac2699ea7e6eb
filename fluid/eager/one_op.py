"""Functions of tensors that come down to one op: which op that is, is seen in the first call and kept for calls like it.

Between a layer's call and its op stand checks of arguments, defaults and names, which cost several times what a small op does.
Most of that depends on arguments that are no tensors, and on the types of those that are. A function that looks at more, or does
more, is seen to do so, and runs in full each time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..executor.random import RANDOM, Draw
from ..layers import arguments
from ..values.cache import Cache
from .dispatch import TensorOp
from .mode import intercepting, state, tracing
from .tensor import Tensor

__all__ = ["Constant", "one_op"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_PLAIN = frozenset((int, bool, str, type(None), type(...)))


class Constant(Tensor):
    """A tensor that a function makes of its arguments' types, such as indices, and that is never modified."""

    __slots__ = ()


class _MoreThanOps(BaseException):
    """A function that is watched does, or asks, what is not an op; raised before it is done."""


class _Watch:
    """Stands where a tracer does while a function runs. It runs the ops and lists them, and stops whatever else reaches a tracer:
    reading values, writing in place, making tensors of data, branching."""

    def __init__(self) -> None:
        self.calls: list[tuple[TensorOp, Sequence[Tensor], Any]] = []
        self._around = state.interceptor

    def call(self, op: TensorOp, tensors: Sequence[Tensor]) -> Any:
        with tracing(None), intercepting(self._around):
            result = op(*tensors)
        self.calls.append((op, tensors, result))
        return result

    def __getattr__(self, name: str) -> Any:
        raise _MoreThanOps


def one_op(function: _Function) -> _Function:
    """Decorates a function of tensors that mostly comes down to one op; see the module's text."""
    kept: Cache[Any, tuple[TensorOp, list[Any] | None] | tuple[()]] = Cache()
    """Arguments -> the op and, for each of its inputs, the position among the tensors in the arguments, or a `Constant`; None if
    the inputs are just these tensors; () if the function does more."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.tracer is not None or state.target is not None:
            return function(*args, **kwargs)
        if not kwargs and len(args) < 3 and args and args[0].__class__ is Tensor and (len(args) == 1 or args[1].__class__ is int):
            tensor = args[0]  # as below, of the commonest calls: with a tensor, or with one and an integer
            signature: Any = state.recording, tensor._kind, tensor._stop, *args[1:]
            chosen = kept.get(signature)
            if chosen and chosen[1] is None:
                return chosen[0](tensor)
            return function(*args) if chosen is not None else watched(signature, (tensor,), args, kwargs)
        key: list[Any] = [state.recording]
        tensors: list[Tensor] = []
        if not _describe(args, key, tensors):
            return function(*args, **kwargs)
        if kwargs and not (_describe(kwargs, key, tensors) and _describe(kwargs.values(), key, tensors)):
            return function(*args, **kwargs)
        if not tensors:  # whether it makes a tensor or a variable is up to the default program
            return function(*args, **kwargs)
        signature = tuple(key)
        chosen = kept.get(signature)
        if chosen:
            op, places = chosen
            if places is None:
                return op(*tensors)
            return op(*[tensors[place] if place.__class__ is int else place for place in places])
        if chosen is None:
            return watched(signature, tensors, args, kwargs)
        return function(*args, **kwargs)

    def watched(signature: Any, tensors: Sequence[Tensor], args: Any, kwargs: Any) -> Any:
        """The function's result; the op is kept if it is all that the function runs."""
        if RANDOM.is_on_tape:
            return function(*args, **kwargs)
        watch: Any = _Watch()
        position = RANDOM.position()
        draws: list[Draw] = []
        try:
            with tracing(watch), RANDOM.noting(draws):
                result = function(*args, **kwargs)
        except _MoreThanOps:
            RANDOM.take_back(position, len(draws))
            kept.keep(signature, ())
            return function(*args, **kwargs)
        places = {id(tensor): place for place, tensor in enumerate(tensors)}
        if len(places) == len(tensors):  # else the place of an input is ambiguous
            kept.keep(signature, _single(watch.calls, result, places))
        return result

    return call  # type: ignore[return-value]


def _single(calls: Sequence[tuple[TensorOp, Sequence[Tensor], Any]], result: Any, places: dict[int, int]) -> Any:
    """The op and the places of its inputs if it alone makes the result, of the tensors with these places; () otherwise."""
    if len(calls) != 1 or result is not calls[0][2] or type(result) is not Tensor or result._name is not None:
        return ()
    op, inputs, _ = calls[0]
    if not all(id(tensor) in places or type(tensor) is Constant for tensor in inputs):
        return ()
    if [places.get(id(tensor)) for tensor in inputs] == list(range(len(places))):
        return op, None
    return op, [places.get(id(tensor), tensor) for tensor in inputs]


def _describe(values: Iterable[Any], key: list[Any], tensors: list[Tensor]) -> bool:
    """Add to the key what tells arguments apart, except for the elements of tensors, and list the tensors; False for others."""
    for value in values:
        kind = value.__class__
        if kind is Tensor:
            tensors.append(value)
            key += (kind, value._kind, value._stop)
        elif kind in _PLAIN:
            key += (kind, value)
        elif kind is list or kind is tuple:
            key += (kind, len(value))
            if not _describe(value, key, tensors):
                return False
        elif kind is float and value:  # 0.0 == -0.0
            key += (kind, value)
        elif kind is slice:
            key.append(kind)
            if not _describe((value.start, value.stop, value.step), key, tensors):
                return False
        elif isinstance(value, Tensor):
            tensors.append(value)
            key += (kind, value._kind, value._stop)
        else:
            return False
    return True


arguments.on_tensors = one_op
