"""`to_static`: functions that are traced in their first call, and again when values that they depend on change."""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
import operator
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..eager.mode import state
from ..eager.nested import tensors_in
from ..eager.tensor import Tensor
from ..errors import FluidTypeError, shown
from .layers import Layer
from .tracing import TracedFunction, Tracer, traced_call

__all__ = [
    "BoundStatic",
    "DeepSurroundings",
    "Entries",
    "Programs",
    "StaticFunction",
    "Surroundings",
    "TracedOnCall",
    "declarative",
    "declared",
    "is_plain",
    "shared_memory",
    "signature",
    "to_static",
]

_MOST = 16
"""How many programs are kept for one signature of arguments, such as for layers in different modes."""
_PARTS = ("_parameters", "_buffers", "_sub_layers", "_before", "_after")
_INNER = {*_PARTS, "_in_backward", "_unsaved", "_norms", "_taken_away", "_helper", "_given", "_made", "training"}
"""Attributes of layers that are compared in another way, or that no program depends on."""
_PLAIN = (int, float, bool, str, bytes, complex, type(None), np.generic, enum.Enum, tuple)
"""Types that are compared by value."""
_LONGEST, _DEEPEST = 1000, 4
"""Lists and dicts that are longer, or nested deeper, are not searched."""
_PACKAGE = __name__.partition(".")[0] + "."


class _Declared:
    """How ``declarative`` functions run; `ProgramTranslator.enable` says so."""

    run_as_programs = True


declared = _Declared()


class Entries:
    """Recorded entries of a list or dict, or attributes of an object; of a weak reference, entries of its `__dict__`."""

    __slots__ = ("_keys", "_size", "_take", "_values", "_where")

    def __init__(self, where: Any, entries: Mapping[Any, Any], size: int | None = None) -> None:
        self._where, self._size = where, size
        keys = self._keys = list(entries)
        getter = operator.itemgetter if isinstance(where, (list, tuple, dict, weakref.ref)) else operator.attrgetter
        self._take: Callable[[Any], Any] = getter(*keys, keys[0]) if keys else _nothing  # one key alone would give no tuple
        self._values = [*entries.values(), *([entries[keys[0]]] if keys else [])]

    def changed_key(self) -> Any:
        """The first key whose entry has changed; None if only the number of entries has, or nothing."""
        where = self._where() if type(self._where) is weakref.ref else self._where
        for key, value in zip(self._keys, self._values, strict=False):
            try:
                now = self._take_one(where, key)
            except (LookupError, AttributeError, ValueError):
                return key
            if not _is_same_value(now, value):
                return key
        return None

    def _take_one(self, where: Any, key: Any) -> Any:
        if type(self._where) is weakref.ref:
            return where.__dict__[key]
        return where[key] if isinstance(where, (list, tuple, dict)) else getattr(where, key)

    def same(self) -> bool:
        """Whether they are unchanged: the same objects, or equal where compared by value."""
        where = self._where
        if type(where) is weakref.ref:
            where = where()
            if where is None:
                return False
            where = where.__dict__
        if self._size is not None and len(where) != self._size:
            return False
        try:
            now = self._take(where)
        except (LookupError, AttributeError, ValueError):  # ValueError: an empty cell
            return False
        return all(map(operator.is_, now, self._values)) or all(map(_is_same_value, now, self._values))


def _nothing(where: Any) -> tuple[()]:
    return ()


def _is_same_value(one: Any, peer: Any) -> bool:
    """Whether a program for one value also fits its peer."""
    if one is peer:
        return True
    if type(one) is not type(peer) or not isinstance(one, _PLAIN):
        return False
    if isinstance(one, tuple):
        return len(one) == len(peer) and all(map(_is_same_value, one, peer))
    return bool(_by_value(one) == _by_value(peer))


def _by_value(value: Any) -> Any:
    """The key that compares a value; it distinguishes 0.0 and -0.0."""
    return repr(value) if isinstance(value, (float, complex, np.inexact)) else value


class _Search:
    """Searches for the values that a program depends on.

    Attributes:
        things: entries that are tensors, layers or arrays, compared by identity.
        values: entries that are compared by value, and lists and dicts.
        objects: values that the code names, and attributes of layers, whose own attributes the code may name too.
    """

    _lists_by_value = False
    """Whether lists and dicts in globals and closures are compared by all entries, not only by tensors and layers."""

    def __init__(self, tracer: Tracer) -> None:
        self._captured = {id(tensor._array) for tensor in tracer.captured.values()}
        self._layers = tracer.layers
        self._seen: set[int] = set()
        self._names: set[str] = set()
        self._searched: set[int] = set()
        self.objects: list[Any] = []
        self.things: list[Entries] = []
        self.values: list[Entries] = []

    def _is_tracked(self, value: Any) -> bool:
        if isinstance(value, Layer):
            return id(value) in self._layers
        return id(value._array) in self._captured if isinstance(value, Tensor) else isinstance(value, np.ndarray)

    def search_entries(
        self, where: Any, items: Mapping[Any, Any], size: int | None = None, with_plain: bool = True, depth: int = 0
    ) -> bool:
        """Record the entries that a program may depend on; whether there are any.

        Args:
            size: length of the list or dict that has the entries, to be compared too.
            with_plain: also record numbers, strings and other plain values in lists and dicts.
        """
        things = {key: value for key, value in items.items() if self._is_tracked(value)}
        values: dict[Any, Any] = {}
        if with_plain or not depth:
            values = {key: value for key, value in items.items() if isinstance(value, _PLAIN)}
        for key, value in items.items():
            if isinstance(value, (list, dict)) and depth < _DEEPEST and len(value) <= _LONGEST and id(value) not in self._seen:
                self._seen.add(id(value))
                entries = value if isinstance(value, dict) else dict(enumerate(value))
                if self.search_entries(value, entries, len(value), with_plain, depth + 1):
                    values[key] = value
        if things:
            self.things.append(Entries(where, things))
        if values or (things and size is not None) or (size is not None and with_plain):
            self.values.append(Entries(where, values, size))
            return True
        return bool(things)

    def read(self, function: Any, cls: type | None) -> None:
        """Record the values that a function's code names, and search functions of its module and methods that it names."""
        plain = _plain(function)
        code = getattr(plain, "__code__", None)
        if code is None or id(code) in self._seen or (plain.__module__ or "").startswith(_PACKAGE):
            return
        self._seen.add(id(code))
        global_names, names = plain.__globals__, list(dict.fromkeys(_names_in(code)))
        self._names.update(names)
        by_value = self._lists_by_value
        self.search_entries(
            global_names, {name: global_names[name] for name in names if name in global_names}, with_plain=by_value
        )
        named_values = [global_names.get(name) for name in names]
        for cell in plain.__closure__ or ():
            value = _contents(cell)
            self.search_entries(cell, {"cell_contents": value}, with_plain=by_value)
            named_values.append(value)
        defaults, named = plain.__defaults__, plain.__kwdefaults__
        if defaults or named:
            self.values.append(Entries(plain, {"__defaults__": defaults, "__kwdefaults__": named}))
            self.search_entries(defaults, dict(enumerate(defaults or ())), with_plain=by_value)
            self.search_entries(named, named or {}, with_plain=by_value)
        self.objects += named_values
        for value in named_values:
            if getattr(_plain(value), "__globals__", None) is global_names:
                self.read(value, None)
        for name in names if cls is not None else ():
            value = _plain(inspect.getattr_static(cls, name, None))
            if isinstance(value, types.FunctionType):
                self.read(value, cls)

    def search_objects(self) -> None:
        """Record the plain attributes of `objects`, such as modules and configurations, and of their classes, that code names."""
        for value in self.objects:
            if value is None or isinstance(value, (*_PLAIN, list, dict, Tensor)) or id(value) in self._searched:
                continue
            self._searched.add(id(value))
            name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", "")
            if isinstance(name, str) and not name.startswith(_PACKAGE) and not isinstance(value, types.FunctionType):
                self._record_attributes(value)

    def _record_attributes(self, value: Any) -> None:
        attributes: dict[str, Any] = {}
        for part in [] if isinstance(value, types.ModuleType) else reversed(getattr(type(value), "__mro__", ())):
            if not part.__module__.startswith(_PACKAGE):
                attributes.update(vars(part))
        attributes.update(_attributes(value))
        named = {
            name: attributes[name]
            for name in self._names
            if name in attributes
            and isinstance(attributes[name], _PLAIN)
            and getattr(value, name, None) is attributes[name]
            and name not in _INNER
        }
        if named:
            self.values.append(Entries(value, named))


class _DeepSearch(_Search):
    """A search that compares lists and dicts in globals and closures by all of their entries."""

    _lists_by_value = True


class Surroundings:
    """The values besides its inputs that a traced program depends on: layers, and values of names and attributes.

    It has only weak references to the layers that are called, so that a layer may reference it.
    """

    __slots__ = ("_modes", "_parts", "_sizes", "_things", "_values", "_within")

    _search = _Search

    def __init__(self, tracer: Tracer, function: Any, owner: Any) -> None:
        layers = [layer for layer, _, _ in tracer.layers.values()]
        self._modes = [(weakref.ref(layer), training, len(layer.__dict__)) for layer, training, _ in tracer.layers.values()]
        self._parts = [layer.__dict__[part] for layer in layers for part in _PARTS]
        self._sizes = list(map(len, self._parts))
        self._within = [value for part in self._parts for value in part.values()]
        search = self._search(tracer)
        search.read(function, type(owner) if owner is not None else None)
        for layer in layers:
            private = type(layer).__module__.startswith(_PACKAGE)
            attributes = {name: value for name, value in layer.__dict__.items() if not _is_inner(name, private)}
            search.search_entries(weakref.ref(layer), attributes)
            search.objects += [] if private else [type(layer), *attributes.values()]
            search.read(attributes.get("forward", type(layer).forward), type(layer))
        if owner is not None and not isinstance(owner, Layer):
            attributes = {name: value for name, value in _attributes(owner).items() if not _is_inner(name, False)}
            search.search_entries(_reference(owner), attributes)
            search.objects += [type(owner), *attributes.values()]
        search.search_objects()
        self._things, self._values = search.things, search.values

    def same_parts(self) -> bool:
        """Whether the tensors and layers are the same objects."""
        parts = self._parts
        if list(map(len, parts)) != self._sizes:
            return False
        if not all(map(operator.is_, itertools.chain.from_iterable(map(dict.values, parts)), self._within)):
            return False
        return all(map(Entries.same, self._things))

    def same_values(self) -> bool:
        """Whether the layers are in the same mode, and values that are compared by value are equal."""
        for reference, training, size in self._modes:
            layer = reference()
            if layer is None:
                return False
            attributes = layer.__dict__
            if attributes["training"] is not training or len(attributes) != size:
                return False
        return all(map(Entries.same, self._values))


class DeepSurroundings(Surroundings):
    """Surroundings that compare lists and dicts in globals and closures by all of their entries."""

    __slots__ = ()

    _search = _DeepSearch

    def difference(self) -> str:
        """The name of a value that has changed, or "" if none is known."""
        return next(
            (str(key) for entries in self._values if not entries.same() and (key := entries.changed_key()) is not None), ""
        )


def is_plain(value: Any) -> bool:
    """Whether a value is compared by value."""
    return isinstance(value, _PLAIN)


def _is_inner(name: str, private: bool) -> bool:
    """Whether an attribute is not compared; with `private`, this includes names that begin with an underscore."""
    return name in _INNER or name.startswith("_static_") or (private and name.startswith("_"))


def _names_in(code: types.CodeType) -> Iterator[str]:
    """The names of globals and attributes in code and in nested functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _reference(thing: Any) -> Any:
    try:
        return weakref.ref(thing) if hasattr(thing, "__dict__") else thing
    except TypeError:  # a class with __slots__
        return thing


def _attributes(thing: Any) -> dict[str, Any]:
    attributes = getattr(thing, "__dict__", None)
    if attributes is not None:
        return dict(attributes)
    names = [name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())]
    return {name: getattr(thing, name) for name in names if hasattr(thing, name)}


def _plain(function: Any) -> Any:
    """The function inside a method, a partial or a decorated function."""
    while isinstance(function, (functools.partial, types.MethodType, staticmethod, classmethod, TracedOnCall, BoundStatic)):
        if isinstance(function, functools.partial):
            function = function.func
        else:
            function = function._function if isinstance(function, (TracedOnCall, BoundStatic)) else function.__func__
    return inspect.unwrap(function) if callable(function) else function


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing has been assigned yet
        return None


class Programs(dict[Any, list[Any]]):
    """Programs, with the values that they depend on, by signature of arguments.

    A copy is empty, so that copied objects are traced anew.

    Attributes:
        last_inputs: the arguments of the last call, of tensors only their types.
    """

    last_inputs: tuple[Any, ...] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Programs:
        return Programs()

    def __reduce__(self) -> Any:
        return Programs, ()


_Known = _Programs = Programs  # the names in layers that earlier versions pickled


class TracedOnCall:
    """A function that is traced when it is called; `call` says how.

    Args:
        function: the function.
        owner: the object whose method it is, if it is bound.
    """

    def __init__(self, function: Callable[..., Any], owner: Any = None) -> None:
        self._function, self._owner = function, owner
        self._known = Programs()
        self._held: dict[int, tuple[Any, Programs]] = {}
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else BoundStatic(self, instance)

    def programs_of(self, instance: Any) -> Programs:
        """The programs of a method, which belong to the object."""
        attributes = getattr(instance, "__dict__", None)
        if attributes is None:  # a class with __slots__: the object is kept as long as the function
            return self._held.setdefault(id(instance), (instance, Programs()))[1]
        key = "_static_" + self._function.__qualname__
        programs = attributes.get(key)
        if programs is None:
            programs = attributes[key] = Programs()
        return programs  # type: ignore[no-any-return]

    def call(self, function: Callable[..., Any], owner: Any, programs: Programs, inputs: Sequence[Any], named: Any) -> Any:
        """Call the function, bound to its owner, with programs of former calls."""
        raise NotImplementedError

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the program of such a call; the first call traces the function while it runs, and its effects remain."""
        return self.call(self._function, self._owner, self._known, inputs, named)


class StaticFunction(TracedOnCall):
    """A function that is traced when it is called, once for each shape and dtype of its tensors, and each mode of layers.

    It is traced again when values that it depends on change: parameters, buffers, parts, hooks and attributes of layers that it
    calls and of the object whose method it is; and globals, closure variables and defaults named by its code, or by methods and
    functions of its module that it names. Numbers, strings, None and tuples are compared by value; tensors, layers and arrays by
    identity. Lists and dicts (of at most 1000 entries) in attributes are compared by entries; those in globals and the like only
    by tensors and layers. Some programs for former values are kept. A value that differs in each call, such as a counter, should
    be an argument or a buffer, not an attribute.

    Plain values that are attributes of modules, classes and objects that the code names (``config.scale``,
    ``self.config.scale``) are compared too. It does not notice changes of deeper attributes, of elements of numpy arrays, and
    of values that functions of other modules read.
    """

    def trace(self, *inputs: Any, **named: Any) -> TracedFunction:
        """The program for inputs like these."""
        return _trace(self._function, self._owner, self._known, inputs, named)

    def call(self, function: Callable[..., Any], owner: Any, programs: Programs, inputs: Sequence[Any], named: Any) -> Any:
        """Run the program; the function itself where it is being traced, or recorded for gradients."""
        return _call(function, owner, programs, inputs, named)


class BoundStatic:
    """A `TracedOnCall` as the method of an object."""

    __slots__ = ("_owner", "_programs", "_static")

    def __init__(self, static: TracedOnCall, owner: Any) -> None:
        self._static, self._owner, self._programs = static, owner, static.programs_of(owner)

    def trace(self, *inputs: Any, **named: Any) -> TracedFunction:
        """The program for inputs like these."""
        return _trace(self._bound(), self._owner, self._programs, inputs, named)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self._static.call(self._bound(), self._owner, self._programs, inputs, named)

    def _bound(self) -> Callable[..., Any]:
        return self._static._function.__get__(self._owner)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._static, name)


def _call(function: Callable[..., Any], owner: Any, programs: Programs, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
    if state.tracer is None:
        programs.last_inputs = tuple(getattr(item, "_kind", item) for item in (*inputs, *named.values()))
    if state.tracer is not None or not declared.run_as_programs:
        return function(*inputs, **named)
    recording = state.recording
    if recording and _requires_gradient(function, owner, inputs, named):
        return function(*inputs, **named)
    key = recording, signature(inputs), signature(named) if named else (), shared_memory(inputs, named)
    traced = _find(programs, key)
    if traced is None:
        return _trace_first(function, owner, programs, key, inputs, named, keep=True)[0]
    if recording:
        for tensor in traced.captured.values():
            if not tensor._stop:
                return function(*inputs, **named)
    return traced(*inputs, **named)


def _requires_gradient(function: Any, owner: Any, inputs: Any, named: Any) -> bool:
    """Whether an argument or a parameter of the layer requires a gradient."""
    if any(isinstance(item, Tensor) and not item._stop for item in tensors_in([inputs, named])):
        return True
    return isinstance(owner, Layer) and any(not parameter._stop for _, parameter in owner.named_parameters())


def _trace(
    function: Callable[..., Any], owner: Any, programs: Programs, inputs: Sequence[Any], named: Mapping[str, Any]
) -> TracedFunction:
    key = True, signature(inputs), signature(named) if named else (), shared_memory(inputs, named)
    traced = _find(programs, key)
    return traced if traced is not None else _trace_first(function, owner, programs, key, inputs, named, keep=False)[1]


def _find(programs: Programs, key: Any) -> TracedFunction | None:
    entries: Sequence[tuple[Surroundings, TracedFunction]] = programs.get(key, ())
    for surroundings, traced in entries:
        if surroundings.same_values() and surroundings.same_parts():
            return traced
    return None


def _trace_first(
    function: Callable[..., Any], owner: Any, programs: Programs, key: Any, inputs: Any, named: Any, keep: bool
) -> tuple[Any, TracedFunction]:
    layers = owner.sublayers(include_self=True) if isinstance(owner, Layer) else ()
    result, traced, tracer = traced_call(function, inputs, named, keep=keep, layers=layers, shared=True)
    earlier = [entry for entry in programs.get(key, ()) if entry[0].same_parts()]
    programs[key] = [(Surroundings(tracer, function, owner), traced), *earlier[: _MOST - 1]]
    return result, traced


def _of_tensor(tensor: Any) -> Any:
    """The part of a tensor or array that a program for its shape depends on."""
    return (tensor._kind, tensor._stop) if isinstance(tensor, Tensor) else (tensor.shape, tensor.dtype)


def signature(value: Any, of_tensor: Callable[[Any], Any] = _of_tensor) -> Any:
    """The part of the inputs that a program depends on: structure, values other than tensors, and ``of_tensor(tensor)``."""
    if isinstance(value, (Tensor, np.ndarray)):
        return of_tensor(value)
    if isinstance(value, Mapping):
        return type(value), *[(key, signature(value[key], of_tensor)) for key in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        return type(value), *[signature(item, of_tensor) for item in value]
    try:
        hash(value)
    except TypeError:
        raise FluidTypeError(
            f"to_static: arguments should be tensors, or values that can be hashed, not a {type(value).__name__}"
        ) from None
    return type(value), _by_value(value)


def shared_memory(inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """For each tensor the index of the first one in the same memory; None if all are in different memory."""
    if len(inputs) == 1 and not named and isinstance(inputs[0], Tensor):
        return None
    memories = [id(item._array) if isinstance(item, Tensor) else id(item) for item in tensors_in([list(inputs), named])]
    return None if len(set(memories)) == len(memories) else tuple(map(memories.index, memories))


def to_static(function: Any) -> Any:
    """Decorate a function of tensors, or a method of a layer, to run it as a program.

    The first call with tensors of a shape and dtype traces it. Where gradients are recorded the function itself runs.
    ``to_static(layer)`` returns the layer with such a `forward`. See `StaticFunction` and `trace`.

    >>> @dygraph.to_static
    ... def double(x):
    ...     return x * 2.0
    ...
    >>> double(dygraph.Tensor([1.0, 2.0])).numpy()
    array([2., 4.], dtype=float32)
    """
    if isinstance(function, Layer):
        layer = function
        layer.__dict__["forward"] = StaticFunction(layer.forward, layer)
        return layer
    if not callable(function):
        raise FluidTypeError(f"to_static takes a function of tensors or a layer, not {shown(function)}")
    return StaticFunction(function)


declarative = to_static
