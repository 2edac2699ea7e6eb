"""Checks the arguments of a function against its annotations, so that the error names the argument that the caller gave.

An annotation alone states what an argument may be: ``int | Sequence[int]``, ``Variable | None``, `Positive`. An annotation with
a part that is not known here, such as ``Any``, accepts anything.

Accepted values become plain Python: numpy numbers and arrays, ranges, and integral floats where an integer is expected turn into
ints, floats, bools and lists of them.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from ..errors import FlagError, FluidTypeError, type_name
from ..values.types import VarType, is_floating, is_integer
from .program import Block, Operator, Parameter, Program, Variable, default_main_program

Check = Callable[[Any], bool]
Positive = int
"""An integer above 0, as an annotation: a number of features, say."""


class Accepted(NamedTuple):
    """The values that an argument accepts."""

    description: str
    """A description; "" if it accepts anything."""
    holds: Check
    """Whether a value is accepted."""
    native: frozenset[type] = frozenset()
    """Values of exactly these types are accepted and passed on unchanged."""
    plain: Callable[[Any], Any] | None = None
    """Converts an accepted value to plain Python; None if it is passed on unchanged."""


Checks = tuple[list[tuple[str, Accepted]], Mapping[str, Accepted]]
"""All arguments in order; and by name, the arguments that do not accept everything."""
_F = TypeVar("_F", bound=Callable[..., Any])


def _is_integer(value: Any) -> bool:
    if type(value) is int:
        return True
    if not _is_number(value):
        return False
    number = _number(value)
    return isinstance(number, int) or number % 1 == 0  # false for infinities and NaN


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf")


def _is_bool(value: Any) -> bool:
    return isinstance(value, np.bool_) or (_is_number(value) and value in (0, 1))


def _number(value: Any) -> Any:
    """A Python or numpy number as a Python number."""
    return value.item() if isinstance(value, (np.generic, np.ndarray)) else value


def _integer(value: Any) -> int:
    return value if isinstance(value, bool) else int(_number(value))  # some functions tell True from 1


def _is(types: type | tuple[type, ...]) -> Check:
    return lambda value: isinstance(value, types)


def _is_scope(value: Any) -> bool:
    module = sys.modules.get("fluid.executor.runtime.scope")  # there are no scopes before it is loaded
    return module is not None and isinstance(value, module.Scope)


_PLURAL = {
    "a Variable": "Variables",
    "a dict by name": "dicts by name",
    "an integer": "integers",
    "an integer above 0": "integers above 0",
    "a number": "numbers",
    "a string": "strings",
}
_BY_ANNOTATION: dict[str, Accepted] = {
    "Block": Accepted("a Block", _is(Block)),
    "Operator": Accepted("an Operator", _is(Operator)),
    "Parameter": Accepted("a Parameter", _is(Parameter)),
    "Program": Accepted("a Program", _is(Program)),
    "Scope": Accepted("a Scope", _is_scope),
    "Variable": Accepted("a Variable", _is(Variable), frozenset({Variable, Parameter})),
    "bytes": Accepted("bytes", _is((bytes, bytearray, memoryview))),
    "int": Accepted("an integer", _is_integer, frozenset({int}), _integer),
    "Positive": Accepted("an integer above 0", lambda value: _is_integer(value) and value > 0, plain=_integer),
    "float": Accepted("a number", _is_number, frozenset({float, int, bool}), _number),
    "bool": Accepted("True or False", _is_bool, frozenset({bool}), bool),
    "str": Accepted("a string", _is(str), frozenset({str})),
    "os.PathLike[str]": Accepted("a path", _is(os.PathLike)),
    "None": Accepted("None", lambda value: value is None, frozenset({type(None)})),
}
_ALIASES = {"NameList": "Variable | str | Iterable[Variable | str]", "FilePath": "str | os.PathLike[str]"}
_CALLED = re.compile(r"(Predicate|Builder|Callable\[.*\])$")
_SEQUENCE = re.compile(r"(Sequence|list|Iterable)\[(.*)\]$")
_BY_NAME = re.compile(r"(?:Mapping|dict)\[str, (.*)\]$")


def _parts(annotation: str) -> list[str]:
    """The alternatives of an annotation."""
    for alias, expansion in _ALIASES.items():
        annotation = annotation.replace(alias, expansion)
    parts, depth = [""], 0
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _alternative(part: str) -> Accepted | None:
    """The values that one alternative of an annotation accepts; None if it is not known here."""
    if _CALLED.match(part):
        return Accepted("a function", callable)
    if _BY_NAME.match(part):
        return Accepted(
            "a dict by name", lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
        )
    sequence = _SEQUENCE.match(part)
    if sequence is None:
        return _BY_ANNOTATION.get(part)
    item = _any_of(sequence.group(2))
    if item is None:
        return None
    is_sequence = _is_iterable if sequence.group(1) == "Iterable" else _is_list

    def holds(value: Any) -> bool:
        if not is_sequence(value):
            return False
        # an iterator can be read only once
        return iter(value) is value or item.native.issuperset(map(type, value)) or all(map(item.holds, value))

    description = f"a list of {' or '.join(_PLURAL.get(type_name, type_name) for type_name in item.description.split(' or '))}"
    return Accepted(description, holds, plain=lambda value: _list(value, item))


def _list(value: Any, item: Accepted) -> Any:
    """A list with its items as plain Python; the list itself if they are plain already."""
    if isinstance(value, (np.ndarray, range)):
        value = value.tolist() if isinstance(value, np.ndarray) else list(value)
    elif not isinstance(value, (list, tuple)):
        return value
    plain = item.plain
    if plain is None or item.native.issuperset(map(type, value)):
        return value
    items = [one if type(one) in item.native else plain(one) for one in value]
    return items if any(one is not old for one, old in zip(items, value, strict=True)) else value


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, range)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _is_iterable(value: Any) -> bool:
    """Whether a value is iterable; strings and variables do not count."""
    return (isinstance(value, Iterable) and not isinstance(value, (str, bytes, Variable, np.ndarray))) or _is_list(value)


def _any_of(annotation: str) -> Accepted | None:
    parts = []
    for part in _parts(annotation):
        alternative = _alternative(part)
        if alternative is None:
            return None
        parts.append(alternative)
    if len(parts) == 1:
        return parts[0]
    lists = [part for part in parts if part.description.startswith("a list") and part.plain is not None]
    single_parts = [part for part in parts if part not in lists and part.plain is not None]

    def holds(value: Any) -> bool:
        for part in parts:  # noqa: SIM110  (in half the time of any)
            if part.holds(value):
                return True
        return False

    def plain(value: Any) -> Any:
        # an array of one number counts as a list if a list is accepted
        for part in lists if lists and _is_list(value) else single_parts:
            if part.plain is not None and part.holds(value):
                return part.plain(value)
        return value

    description, native = (
        " or ".join(part.description for part in parts),
        frozenset[type]().union(*(part.native for part in parts)),
    )
    return Accepted(description, holds, native, plain if lists or single_parts else None)


_ANYTHING = Accepted("", lambda value: True)


def arguments_of(function: Callable[..., Any]) -> dict[str, Accepted]:
    """The values that each argument of a function accepts, in order."""
    accepted = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            break
        kind = _any_of(parameter.annotation) if isinstance(parameter.annotation, str) else None
        if kind is not None and parameter.default is None and "None" not in parameter.annotation:
            kind = None
        accepted[name] = kind or _ANYTHING
    return accepted


def checks_of(function: Callable[..., Any]) -> Checks:
    """The checks of a function's positional and keyword arguments."""
    accepted = arguments_of(function)
    return list(accepted.items()), {argument: kind for argument, kind in accepted.items() if kind.description}


def held(function: str, checks: Checks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Checks arguments; returns the positional ones as plain Python, and converts those in `kwargs` in place."""
    in_order, by_name = checks
    for number, (value, (argument, (description, holds, native, plain))) in enumerate(zip(args, in_order, strict=False)):
        if description and type(value) not in native:
            accepted = value if holds(value) else _as_tensors(function, argument, description, holds, value)
            converted = accepted if plain is None else plain(accepted)
            if converted is not value:
                args = (*args[:number], converted, *args[number + 1 :])
    for argument, value in kwargs.items():
        accepted = by_name.get(argument)
        if accepted is not None and type(value) not in accepted.native:
            if not accepted.holds(value):  # assigning is allowed while iterating: the key exists
                value = kwargs[argument] = _as_tensors(function, argument, accepted.description, accepted.holds, value)
            if accepted.plain is not None:
                kwargs[argument] = accepted.plain(value)
    return args


def _as_tensors(function: str, argument: str, description: str, holds: Check, value: Any) -> Any:
    """In eager mode, an array as a tensor, also in lists; where that is not accepted either, the error of `refuse`."""
    if isinstance(value, (np.ndarray, list, tuple)):
        loaded, items = default_main_program().loaded, [value] if isinstance(value, np.ndarray) else value
        tensors = [loaded(item) if isinstance(item, np.ndarray) else item for item in items]
        converted = tensors[0] if items is not value else tensors
        if holds(converted):
            return converted
    refuse(function, argument, description, value)


def refuse(function: str, argument: str, description: str, value: Any) -> NoReturn:
    """Raise the `FluidTypeError` of an argument that is not accepted, with a hint at what may have been meant."""
    where = f"{function}: {argument}"
    if description == "a Variable":
        check_variable(value, where)
    hint = ""
    if "a Program" in description and isinstance(getattr(value, "program", None), Program):
        hint = "; its `program` is one"
    elif description == "a Program" and isinstance(value, (str, os.PathLike)):
        hint = f", a path; give the program first, as in {function}(fluid.default_main_program(), {str(value)!r})"
    elif isinstance(value, str) and _is_element_type(value):
        hint = f"; for an element type, write dtype={value!r}"
    plain = isinstance(value, (str, int, float, list, tuple, type(None))) and len(repr(value)) < 100
    error = FlagError if description == _BY_ANNOTATION["bool"].description else FluidTypeError
    raise error(f"{where} should be {description}, not {repr(value) if plain else _kind_of(value)}{hint}")


def _is_element_type(text: str) -> bool:
    """Whether this is the name of an element type, such as ``float32``."""
    return any(text == kind.text for kind in VarType if is_floating(kind) or is_integer(kind) or kind is VarType.BOOL)


def _kind_of(value: Any) -> str:
    """The type of a value; of a list, also the type of its first item."""
    kind = type_name(value)
    return f"a {kind} of {type_name(value[0])}" if isinstance(value, (list, tuple)) and value else kind


def checked(function: _F) -> _F:
    """Decorates a function to check its arguments; the `FluidTypeError` names function, argument and value."""
    checks: Checks | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal checks
        if checks is None:
            checks = checks_of(function)
        return function(*held(function.__name__, checks, args, kwargs), **kwargs)

    return call  # type: ignore[return-value]


def check_number(value: Any, where: str) -> float:
    """A number, or what becomes one, as a float; a `FluidTypeError` for anything else, such as a text."""
    try:
        if isinstance(value, str):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise FluidTypeError(f"{where} should be a number, not {value!r}") from None


def check_variable(value: Any, where: str) -> None:
    """Raise a `FluidTypeError` unless `value` is a `Variable` or a tensor of eager mode; `where` names the layer and argument."""
    if value.__class__ is Parameter or isinstance(value, Variable):
        return
    hint = "; layers.assign makes one of an array" if isinstance(value, (np.ndarray, np.generic, int, float)) else ""
    if hasattr(value, "what_to_do"):
        hint = f"; {value.what_to_do}"
    elif hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        hint = "; feed it to a variable of fluid.data, or in eager mode make a tensor of it by dygraph.to_variable"
    raise FluidTypeError(f"{where} should be a Variable, not {type_name(value)}{hint}")
