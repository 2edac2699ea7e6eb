"""`to_static`: functions that are traced when they are called, and again where that is needed."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import FluidTypeError
from .layers import Layer
from .mode import state
from .tensor import Tensor
from .tracing import TracedFunction, Tracer, _tensors_in, traced_call

__all__ = ["BoundStatic", "StaticFunction", "Surroundings", "declarative", "to_static"]

_MOST = 16
"""So many programs are kept for one kind of arguments: for layers in different modes."""
_PARTS = ("_parameters", "_buffers", "_sub_layers", "_before", "_after")


class Surroundings:
    """What a program depends on besides its inputs, as it was when it was traced: layers, and where captured tensors were found.

    It holds no layer, so that a layer may hold it.
    """

    __slots__ = ("_attributes", "_entries", "_modes", "_parts", "_sizes")

    def __init__(self, tracer: Tracer, function: Any, owner: Any) -> None:
        captured = {id(tensor._array) for tensor in tracer.captured.values()}
        layers = [layer for layer, _, _ in tracer.layers.values()]
        self._modes = [(weakref.ref(layer), training) for layer, training, _ in tracer.layers.values()]
        self._entries: list[tuple[Any, Any, Any]] = []
        self._parts: list[Any] = []
        self._attributes: list[tuple[Callable[[], Any], str, Any]] = []
        for layer in layers:
            for part in _PARTS:
                entries = layer.__dict__[part]
                self._parts.append(entries)
                self._entries += [(entries, key, value) for key, value in entries.items()]

        self._sizes = list(map(len, self._parts))

        def counts(value: Any) -> bool:
            return id(value) in tracer.layers if isinstance(value, Layer) else _is_one_of(value, captured)

        for thing in [*layers, *([owner] if owner is not None and not isinstance(owner, Layer) else [])]:
            found = {name: value for name, value in _attributes(thing).items() if counts(value)}
            self._attributes += [(_reference(thing), name, value) for name, value in found.items()]
        plain = inspect.unwrap(getattr(function, "func", function))
        plain = getattr(plain, "__func__", plain)
        for cell in getattr(plain, "__closure__", None) or ():
            value = _contents(cell)
            if counts(value):
                self._attributes.append((functools.partial(_itself, cell), "cell_contents", value))
        known = getattr(plain, "__globals__", {})
        for name in getattr(getattr(plain, "__code__", None), "co_names", ()):
            if counts(known.get(name)):
                self._entries.append((known, name, known[name]))

    def same_parts(self) -> bool:
        """Whether the tensors and layers are those that they were."""
        for entries, key, value in self._entries:
            if entries.get(key) is not value:
                return False
        return list(map(len, self._parts)) == self._sizes and all(
            getattr(owner(), name, None) is value for owner, name, value in self._attributes
        )

    def same_modes(self) -> bool:
        """Whether the layers are in the same mode."""
        for reference, training in self._modes:
            layer = reference()
            if layer is None or layer.training is not training:
                return False
        return True


def _itself(value: Any) -> Any:
    return value


def _reference(thing: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(thing)
    except TypeError:  # a class with __slots__
        return functools.partial(_itself, thing)


def _attributes(thing: Any) -> dict[str, Any]:
    own = getattr(thing, "__dict__", None)
    if own is not None:
        return dict(own)
    names = [name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())]
    return {name: getattr(thing, name) for name in names if hasattr(thing, name)}


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing has been assigned yet
        return None


def _is_one_of(value: Any, arrays: set[int]) -> bool:
    return isinstance(value, Tensor) and id(value._array) in arrays


class _Known(dict[Any, list[tuple[Surroundings, TracedFunction]]]):
    """Programs by kind of arguments. A copy is empty: what is copied is traced for itself."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Known:
        return _Known()

    def __reduce__(self) -> Any:
        return _Known, ()


class StaticFunction:
    """A function that is traced when it is called, once for tensors of each shape and element type, and each mode of layers.

    It is traced again, too, where a layer that was called has got another parameter, buffer, part or hook, or where the globals,
    closure or object of the function hold another tensor or layer than they did.
    """

    def __init__(self, function: Callable[..., Any], owner: Any = None) -> None:
        self._function, self._owner = function, owner
        self._known = _Known()
        self._held: dict[int, tuple[Any, _Known]] = {}
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else BoundStatic(self, instance)

    def _known_of(self, instance: Any) -> _Known:
        """The programs of a method, which belong to the object."""
        own = getattr(instance, "__dict__", None)
        if own is None:  # a class with __slots__: the object is kept as long as the function
            return self._held.setdefault(id(instance), (instance, _Known()))[1]
        key = "_static_" + self._function.__qualname__
        found = own.get(key)
        if found is None:
            found = own[key] = _Known()
        return found  # type: ignore[no-any-return]

    def trace(self, *inputs: Any, **named: Any) -> TracedFunction:
        """The program for inputs like these."""
        return _trace(self._function, self._owner, self._known, inputs, named)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """What the function gives: by its program; as it is, where that is being recorded for gradients, or traced.

        The first time, it is traced as it runs; what it does to tensors from outside remains, as of any call.
        """
        return _call(self._function, self._owner, self._known, inputs, named)


class BoundStatic:
    """A `StaticFunction` as the method of an object."""

    __slots__ = ("_known", "_owner", "_static")

    def __init__(self, static: StaticFunction, owner: Any) -> None:
        self._static, self._owner, self._known = static, owner, static._known_of(owner)

    def trace(self, *inputs: Any, **named: Any) -> TracedFunction:
        """The program for inputs like these."""
        return _trace(self._bound(), self._owner, self._known, inputs, named)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return _call(self._bound(), self._owner, self._known, inputs, named)

    def _bound(self) -> Callable[..., Any]:
        return self._static._function.__get__(self._owner)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._static, name)


def _call(function: Callable[..., Any], owner: Any, known: _Known, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
    if state.tracer is not None:
        return function(*inputs, **named)
    recording = state.recording
    if recording and _asks(function, owner, inputs, named):
        return function(*inputs, **named)
    key = recording, _signature(inputs), _signature(named) if named else ()
    found = _find(known, key)
    if found is None:
        return _first(function, owner, known, key, inputs, named, keep=True)[0]
    if recording:
        for tensor in found.captured.values():
            if not tensor._stop:
                return function(*inputs, **named)
    return found(*inputs, **named)


def _asks(function: Any, owner: Any, inputs: Any, named: Any) -> bool:
    """Whether an argument, or a parameter of the layer, asks for a gradient."""
    if any(isinstance(item, Tensor) and not item._stop for item in _tensors_in([inputs, named])):
        return True
    return isinstance(owner, Layer) and any(not parameter._stop for _, parameter in owner.named_parameters())


def _trace(
    function: Callable[..., Any], owner: Any, known: _Known, inputs: Sequence[Any], named: Mapping[str, Any]
) -> TracedFunction:
    key = True, _signature(inputs), _signature(named) if named else ()
    found = _find(known, key)
    return found if found is not None else _first(function, owner, known, key, inputs, named, keep=False)[1]


def _find(known: _Known, key: Any) -> TracedFunction | None:
    for surroundings, traced in known.get(key, ()):
        if surroundings.same_modes() and surroundings.same_parts():
            return traced
    return None


def _first(
    function: Callable[..., Any], owner: Any, known: _Known, key: Any, inputs: Any, named: Any, keep: bool
) -> tuple[Any, TracedFunction]:
    layers = owner.sublayers(include_self=True) if isinstance(owner, Layer) else ()
    result, traced, tracer = traced_call(function, inputs, named, keep=keep, layers=layers)
    others = [entry for entry in known.get(key, ()) if entry[0].same_parts()]
    known[key] = [(Surroundings(tracer, function, owner), traced), *others[: _MOST - 1]]
    return result, traced


def _signature(value: Any) -> Any:
    """What of the inputs a program depends on."""
    if isinstance(value, Tensor):
        return value._kind, value._stop
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype
    if isinstance(value, Mapping):
        return tuple([(key, _signature(value[key])) for key in sorted(value, key=str)])
    if isinstance(value, (list, tuple)):
        return tuple([_signature(item) for item in value])
    try:
        hash(value)
    except TypeError:
        raise FluidTypeError(
            f"to_static: arguments should be tensors, or values that can be hashed, not a {type(value).__name__}"
        ) from None
    return type(value), value


def to_static(function: Any) -> Any:
    """Let a function of tensors, or a method of a layer, run as a program; a decorator.

    It is traced when it is first called with tensors of a shape and element type. Where gradients are recorded it runs as it is.
    ``to_static(layer)`` gives the layer with such a `forward`. See `StaticFunction` and `trace`.
    """
    if isinstance(function, Layer):
        layer = function
        layer.__dict__["forward"] = StaticFunction(layer.forward, layer)
        return layer
    return StaticFunction(function)


declarative = to_static
