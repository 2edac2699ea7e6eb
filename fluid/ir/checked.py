"""Arguments of functions held against their annotations: an error for the person who calls, not one from inside.

The annotation is the one statement of what an argument may be: ``int | Sequence[int]``, ``Variable | None``, `Positive`. Those
with a part that is not known here, such as ``Any``, take anything.

What is checked is handed on as Python's own: numpy's numbers and arrays, ranges, and floats that are whole where whole numbers
are asked for, become ints, floats, bools and lists of them.
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

from ..errors import FluidTypeError
from .program import Block, Operator, Parameter, Program, Variable

__all__ = ["Check", "Checks", "Known", "Positive", "arguments_of", "check_variable", "checked", "checks_of", "held", "refuse"]

Check = Callable[[Any], bool]
Positive = int
"""A whole number above 0, as an annotation: how many features, say."""


class Known(NamedTuple):
    """What is known of the values that an argument may have."""

    what: str
    """In words; "" where it takes anything."""
    holds: Check
    """Whether a value is that."""
    native: frozenset[type] = frozenset()
    """Values of exactly these types are, and are handed on as they are."""
    plain: Callable[[Any], Any] | None = None
    """What is handed on in place of a value that is that; None for the value itself."""


Checks = tuple[list[tuple[str, Known]], Mapping[str, Known]]
"""The arguments in order; and those by name that do not take anything."""
_F = TypeVar("_F", bound=Callable[..., Any])


def _is_whole(value: Any) -> bool:
    if type(value) is int:
        return True
    if not _is_number(value):
        return False
    number = _number(value)
    return isinstance(number, int) or number % 1 == 0  # the rest of what is infinite or no number is none


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf")


def _is_bool(value: Any) -> bool:
    return isinstance(value, np.bool_) or (_is_number(value) and value in (0, 1))


def _number(value: Any) -> Any:
    """A number, numpy's perhaps, as one of Python's."""
    return value.item() if isinstance(value, (np.generic, np.ndarray)) else value


def _whole(value: Any) -> int:
    return value if isinstance(value, bool) else int(_number(value))  # who tells True from 1 may still do so


def _is(kind: type | tuple[type, ...]) -> Check:
    return lambda value: isinstance(value, kind)


def _is_scope(value: Any) -> bool:
    module = sys.modules.get("fluid.executor.scope")  # what is not loaded yet has made no scopes
    return module is not None and isinstance(value, module.Scope)


_MANY = {
    "a Variable": "Variables",
    "a whole number": "whole numbers",
    "a whole number above 0": "whole numbers above 0",
    "a number": "numbers",
    "a string": "strings",
}
_KINDS: dict[str, Known] = {
    "Block": Known("a Block", _is(Block)),
    "Operator": Known("an Operator", _is(Operator)),
    "Parameter": Known("a Parameter", _is(Parameter)),
    "Program": Known("a Program", _is(Program)),
    "Scope": Known("a Scope", _is_scope),
    "Variable": Known("a Variable", _is(Variable), frozenset({Variable, Parameter})),
    "bytes": Known("bytes", _is((bytes, bytearray, memoryview))),
    "int": Known("a whole number", _is_whole, frozenset({int}), _whole),
    "Positive": Known("a whole number above 0", lambda value: _is_whole(value) and value > 0, plain=_whole),
    "float": Known("a number", _is_number, frozenset({float, int, bool}), _number),
    "bool": Known("True or False", _is_bool, frozenset({bool}), bool),
    "str": Known("a string", _is(str), frozenset({str})),
    "os.PathLike[str]": Known("a path", _is(os.PathLike)),
    "None": Known("None", lambda value: value is None, frozenset({type(None)})),
}
_ALIASES = {"NameList": "Variable | str | Iterable[Variable | str]"}
_CALLED = re.compile(r"(Predicate|Builder|Callable\[.*\])$")
_SEQUENCE = re.compile(r"(Sequence|list|Iterable)\[(.*)\]$")
_BY_NAME = re.compile(r"(?:Mapping|dict)\[str, (.*)\]$")


def _parts(annotation: str) -> list[str]:
    """The alternatives of an annotation."""
    for alias, meaning in _ALIASES.items():
        annotation = annotation.replace(alias, meaning)
    parts, depth = [""], 0
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _kind(part: str) -> Known | None:
    """What is known of one alternative; None for one that is not known here."""
    if _CALLED.match(part):
        return Known("a function", callable)
    if _BY_NAME.match(part):
        return Known("a dict by name", lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value))
    sequence = _SEQUENCE.match(part)
    if sequence is None:
        return _KINDS.get(part)
    found = _any_of(sequence.group(2))
    if found is None:
        return None
    is_one = _is_iterable if sequence.group(1) == "Iterable" else _is_list

    def holds(value: Any) -> bool:
        if not is_one(value):
            return False
        # an iterator is read only once
        return iter(value) is value or found.native.issuperset(map(type, value)) or all(map(found.holds, value))

    what = f"a list of {' or '.join(_MANY.get(each, each) for each in found.what.split(' or '))}"
    return Known(what, holds, plain=lambda value: _list(value, found))


def _list(value: Any, item: Known) -> Any:
    """A list whose items are that, with plain ones; the list itself where they are."""
    if isinstance(value, (np.ndarray, range)):
        value = value.tolist() if isinstance(value, np.ndarray) else list(value)
    elif not isinstance(value, (list, tuple)):
        return value
    plain = item.plain
    if plain is None or item.native.issuperset(map(type, value)):
        return value
    found = [one if type(one) in item.native else plain(one) for one in value]
    return found if any(one is not old for one, old in zip(found, value, strict=True)) else value


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, range)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _is_iterable(value: Any) -> bool:
    """Whether a value gives others; of a string, nobody means its letters, and a variable gives none while programs are built."""
    return (isinstance(value, Iterable) and not isinstance(value, (str, bytes, Variable, np.ndarray))) or _is_list(value)


def _any_of(annotation: str) -> Known | None:
    known = []
    for part in _parts(annotation):
        kind = _kind(part)
        if kind is None:
            return None
        known.append(kind)
    if len(known) == 1:
        return known[0]
    lists = [kind for kind in known if kind.what.startswith("a list") and kind.plain is not None]
    others = [kind for kind in known if kind not in lists and kind.plain is not None]

    def holds(value: Any) -> bool:
        for kind in known:  # noqa: SIM110  (in half the time of any)
            if kind.holds(value):
                return True
        return False

    def plain(value: Any) -> Any:
        # an array of one number is a list where there may be one
        for kind in lists if lists and _is_list(value) else others:
            if kind.plain is not None and kind.holds(value):
                return kind.plain(value)
        return value

    return Known(
        " or ".join(kind.what for kind in known),
        holds,
        frozenset().union(*(kind.native for kind in known)),
        plain if lists or others else None,
    )


_ANYTHING = Known("", lambda value: True)


def arguments_of(function: Callable[..., Any]) -> dict[str, Known]:
    """What is known of the arguments of a function, in order."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            break
        known = _any_of(parameter.annotation) if isinstance(parameter.annotation, str) else None
        if known is not None and parameter.default is None and "None" not in parameter.annotation:
            known = None
        found[name] = known or _ANYTHING
    return found


def checks_of(function: Callable[..., Any]) -> Checks:
    """What positional arguments are held against, and what keywords."""
    found = arguments_of(function)
    return list(found.items()), {argument: known for argument, known in found.items() if known.what}


def held(function: str, checks: Checks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The positional arguments, plain; those by keyword are made plain where they are. What they may not be is refused."""
    in_order, by_name = checks
    for number, (value, (argument, (what, holds, native, plain))) in enumerate(zip(args, in_order, strict=False)):
        if what and type(value) not in native:
            if not holds(value):
                refuse(function, argument, what, value)
            if plain is not None and (found := plain(value)) is not value:
                args = (*args[:number], found, *args[number + 1 :])
    for argument, value in kwargs.items():
        known = by_name.get(argument)
        if known is not None and type(value) not in known.native:
            if not known.holds(value):
                refuse(function, argument, known.what, value)
            if known.plain is not None:
                kwargs[argument] = known.plain(value)  # of a key that is there, while they are gone through
    return args


def refuse(function: str, argument: str, what: str, value: Any) -> NoReturn:
    """Say that an argument is not what it should be, and what might have been meant."""
    where = f"{function}: {argument}"
    if what == "a Variable":
        check_variable(value, where)
    hint = "; its `program` is one" if "a Program" in what and isinstance(getattr(value, "program", None), Program) else ""
    plain = isinstance(value, (str, int, float, list, tuple, type(None))) and len(repr(value)) < 100
    raise FluidTypeError(f"{where} should be {what}, not {repr(value) if plain else type(value).__name__}{hint}")


def checked(function: _F) -> _F:
    """`function`, refusing arguments that its annotations do not allow; `FluidTypeError` names function, argument and value."""
    checks: Checks | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal checks
        if checks is None:
            checks = checks_of(function)
        return function(*held(function.__name__, checks, args, kwargs), **kwargs)

    return call  # type: ignore[return-value]


def check_variable(value: Any, where: str) -> None:
    """A `FluidTypeError` unless `value` is a `Variable`, or a tensor of eager mode; `where` names the layer and argument."""
    if isinstance(value, Variable):
        return
    hint = "; layers.assign makes one of an array" if isinstance(value, (np.ndarray, np.generic, int, float)) else ""
    hint = f"; {value.what_to_do}" if hasattr(value, "what_to_do") else hint
    raise FluidTypeError(f"{where} should be a Variable, not {type(value).__name__}{hint}")
