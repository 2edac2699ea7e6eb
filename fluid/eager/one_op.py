"""Functions of tensors that amount to one op: the first call finds the op and caches it for similar calls.

Between a layer's call and its op come checks of arguments, defaults and names, which cost several times as much as a small op.
Most of that depends only on non-tensor arguments and on the types of tensors. A function that reads or does more is detected, and
runs in full each time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..executor.runtime.random import RANDOM, Draw
from ..layers import arguments
from ..values.cache import Cache
from ..values.shape import Shape
from .dispatch import CompiledOp, TensorOp
from .mode import intercepting, state, tracing
from .tensor import Tensor

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SEQUENCES = frozenset((list, tuple, Shape))
_PLAIN = frozenset((int, bool, str, type(None), type(...)))
_DEEPEST = 8
"""The deepest nesting of argument lists that is cached."""


class ConstantTensor(Tensor):
    """A tensor computed from the types of a function's arguments, such as indices; it is never modified."""

    __slots__ = ()


class _MoreThanOps(BaseException):
    """Raised when a watched function is about to do something other than run an op."""


class _Watch:
    """Takes the place of a tracer while a function runs. It runs and lists the ops, and stops everything else that a tracer would
    see: reading values, writing in place, making tensors of data, branching."""

    def __init__(self) -> None:
        self.calls: list[tuple[TensorOp, Sequence[Tensor], Any]] = []
        self.has_caller = False
        """Whether an op's random draws depend on the layer."""
        self._around = state.interceptor

    def call(self, op: TensorOp, tensors: Sequence[Tensor]) -> Any:
        self.has_caller |= RANDOM.caller is not None
        with tracing(None), intercepting(self._around):
            result = op(*tensors)
        self.calls.append((op, tensors, result))
        return result

    def __getattr__(self, name: str) -> Any:
        raise _MoreThanOps


def one_op(function: _Function) -> _Function:
    """Decorate a function of tensors that mostly amounts to one op; see the module's text."""
    run = shortened(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return run(args, kwargs)

    return call  # type: ignore[return-value]


def shortened(function: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Like `one_op`, but the result takes a tuple of positional arguments and a dict of named ones, so that they are not packed
    again."""
    cache: Cache[Any, tuple[TensorOp, CompiledOp, list[Any] | None] | tuple[()]] = Cache()
    """Arguments -> the op and, for each of its inputs, the position among the tensors in the arguments, or a `ConstantTensor`;
    None if the inputs are exactly these tensors; () if the function does more."""

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if state.tracer is not None or state.target is not None:
            return function(*args, **kwargs)
        key: Any = None
        if len(args) == 1 and not kwargs and args[0].__class__ is Tensor:  # as below, of the commonest calls
            tensor = args[0]
            tensors: Sequence[Tensor] = args
            key = state.recording, tensor._kind, tensor._stop
        elif len(args) == 2 and not kwargs and args[0].__class__ is Tensor and (plain := _plain_key(args[1])) is not None:
            tensor = args[0]
            tensors = (tensor,)
            key = state.recording, tensor._kind, tensor._stop, plain
        else:
            parts: list[Any] = [state.recording]
            tensors = []
            if not _describe(args, parts, tensors):
                return function(*args, **kwargs)
            if kwargs and not (_describe(kwargs, parts, tensors) and _describe(kwargs.values(), parts, tensors)):
                return function(*args, **kwargs)
            if not tensors:  # whether it makes a tensor or a variable is up to the default program
                return function(*args, **kwargs)
            key = tuple(parts)
        chosen = cache.get(key)
        if not chosen:
            return function(*args, **kwargs) if chosen is not None else watched(key, tensors, args, kwargs)
        op, compiled_op, places = chosen
        if places is not None:
            tensors = [tensors[place] if place.__class__ is int else place for place in places]
        return compiled_op.call(tensors) if state.interceptor is None else op(*tensors)

    def watched(signature: Any, tensors: Sequence[Tensor], args: Any, kwargs: Any) -> Any:
        """Call the function; cache the op if the function runs nothing else."""
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
            cache.keep(signature, ())
            return function(*args, **kwargs)
        places = {id(tensor): place for place, tensor in enumerate(tensors)}
        if watch.has_caller:
            cache.keep(signature, ())
        elif len(places) == len(tensors):  # else the place of an input is ambiguous
            cache.keep(signature, _single(watch.calls, result, places))
        return result

    return run


def _single(calls: Sequence[tuple[TensorOp, Sequence[Tensor], Any]], result: Any, places: dict[int, int]) -> Any:
    """The op and the positions of its inputs among `places`, if it alone makes the result; () otherwise."""
    if len(calls) != 1 or result is not calls[0][2] or type(result) is not Tensor or result._name is not None:
        return ()
    op, inputs, _ = calls[0]
    if type(op) is not TensorOp or not all(id(tensor) in places or type(tensor) is ConstantTensor for tensor in inputs):
        return ()
    if [places.get(id(tensor)) for tensor in inputs] == list(range(len(places))):
        return op, op.compiled_for(inputs), None
    return op, op.compiled_for(inputs), [places.get(id(tensor), tensor) for tensor in inputs]


def _describe(values: Iterable[Any], key: list[Any], tensors: list[Tensor], depth: int = 0) -> bool:
    """Add the arguments to the key, except the elements of tensors, and list the tensors; False if an argument has no key."""
    for value in values:
        kind = value.__class__
        if kind is Tensor or isinstance(value, Tensor):
            tensors.append(value)
            key += (kind, value._kind, value._stop)
        elif (plain := _plain_key(value)) is not None:
            key.append(plain)
        elif kind in _SEQUENCES:
            key += (kind, len(value))
            if depth == _DEEPEST or not _describe(value, key, tensors, depth + 1):
                return False
        else:
            return False
    return True


def _plain_key(value: Any) -> Any:
    """The key of an argument without tensors; None if it has no key, and for tensors."""
    kind = value.__class__
    if kind in _PLAIN:
        return kind, value
    if kind is slice:
        kinds: tuple[type, ...] = (value.start.__class__, value.stop.__class__, value.step.__class__)
        return (kind, value.start, value.stop, value.step, *kinds) if _PLAIN.issuperset(kinds) else None
    if kind in _SEQUENCES:
        kinds = tuple(map(type, value))
        return (kind, kinds, *value) if _PLAIN.issuperset(kinds) else None
    return (kind, value) if kind is float and value else None  # 0.0 == -0.0


arguments.on_tensors = shortened
