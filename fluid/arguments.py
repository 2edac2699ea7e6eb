"""Arguments of functions held against their annotations: an error for the person who calls, not one from inside.

The annotation is the one statement of what an argument may be: ``int | Sequence[int]``, ``Variable | None``, `Positive`. Those
with a part that is not known here, such as ``Any``, take anything.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, NoReturn, TypeVar

import numpy as np

from .errors import FluidTypeError
from .framework import Block, Operator, Parameter, Program, Variable

__all__ = ["Check", "Checks", "Positive", "arguments_of", "checked", "checks_of", "refuse"]

Check = Callable[[Any], bool]
Positive = int
"""A whole number above 0, as an annotation: how many features, say."""
Checks = tuple[list[tuple[str, str, Check]], Mapping[str, tuple[str, Check]]]
"""(argument, what it should be, whether a value is that) in order, "" for what takes anything; and those by name that do not."""
_F = TypeVar("_F", bound=Callable[..., Any])


def _is_whole(value: Any) -> bool:
    return type(value) is int or (_is_number(value) and float(value).is_integer())


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf")


def _is_bool(value: Any) -> bool:
    return value is True or value is False or (_is_number(value) and value in (0, 1))


def _is(kind: type | tuple[type, ...]) -> Check:
    return lambda value: isinstance(value, kind)


def _is_scope(value: Any) -> bool:
    module = sys.modules.get(f"{__package__}.executor.scope")  # what is not loaded yet has made no scopes
    return module is not None and isinstance(value, module.Scope)


_MANY = {
    "a Variable": "Variables",
    "a whole number": "whole numbers",
    "a whole number above 0": "whole numbers above 0",
    "a number": "numbers",
    "a string": "strings",
}
_KINDS: dict[str, tuple[str, Check]] = {
    "Block": ("a Block", _is(Block)),
    "Operator": ("an Operator", _is(Operator)),
    "Parameter": ("a Parameter", _is(Parameter)),
    "Program": ("a Program", _is(Program)),
    "Scope": ("a Scope", _is_scope),
    "Variable": ("a Variable", _is(Variable)),
    "bytes": ("bytes", _is((bytes, bytearray, memoryview))),
    "int": ("a whole number", _is_whole),
    "Positive": ("a whole number above 0", lambda value: _is_whole(value) and value > 0),
    "float": ("a number", _is_number),
    "bool": ("True or False", _is_bool),
    "str": ("a string", _is(str)),
    "os.PathLike[str]": ("a path", _is(os.PathLike)),
    "None": ("None", lambda value: value is None),
}
_ALIASES = {"NameList": "Variable | str | Iterable[Variable | str]"}
_CALLED = re.compile(r"(Predicate|Builder|Callable\[.*\])$")
_SEQUENCE = re.compile(r"(Sequence|list|Iterable)\[(.*)\]$")
_BY_NAME = re.compile(r"(?:Mapping|dict)\[str, (.*)\]$")


def _parts(annotation: str) -> list[str]:
    """The alternatives of an annotation."""
    for alias, meaning in _ALIASES.items():
        annotation = annotation.replace(alias, meaning)
    return [part.strip() for part in re.split(r"\|(?![^\[]*\])", annotation)]


def _kind(part: str) -> tuple[str, Check] | None:
    """What one alternative is called, and whether a value is it; None for one that is not known here."""
    if _CALLED.match(part):
        return "a function", callable
    if _BY_NAME.match(part):
        return "a dict by name", lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    sequence = _SEQUENCE.match(part)
    if sequence is None:
        return _KINDS.get(part)
    found = _any_of(sequence.group(2))
    if found is None:
        return None
    what, holds = found
    is_one = _is_iterable if sequence.group(1) == "Iterable" else _is_list
    return (
        f"a list of {' or '.join(_MANY.get(each, each) for each in what.split(' or '))}",
        lambda value: is_one(value) and (iter(value) is value or all(map(holds, value))),  # an iterator is read only once
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, range)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _is_iterable(value: Any) -> bool:
    """Whether a value gives others; of a string, nobody means its letters, and a variable gives none while programs are built."""
    return (isinstance(value, Iterable) and not isinstance(value, (str, bytes, Variable, np.ndarray))) or _is_list(value)


def _any_of(annotation: str) -> tuple[str, Check] | None:
    kinds = [_kind(part) for part in _parts(annotation)]
    if not all(kinds):
        return None
    known = [kind for kind in kinds if kind is not None]
    if len(known) == 1:
        return known[0]
    return " or ".join(what for what, _ in known), lambda value: any(holds(value) for _, holds in known)


def arguments_of(function: Callable[..., Any]) -> dict[str, tuple[str, Check]]:
    """What is known of the arguments of a function, in order; "" for those that take anything."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            break
        known = _any_of(parameter.annotation) if isinstance(parameter.annotation, str) else None
        if known is not None and parameter.default is None and "None" not in parameter.annotation:
            known = None
        found[name] = known or ("", bool)
    return found


def checks_of(function: Callable[..., Any]) -> Checks:
    """What positional arguments are held against, and what keywords."""
    found = arguments_of(function)
    in_order = [(argument, what, holds) for argument, (what, holds) in found.items()]
    return in_order, {argument: known for argument, known in found.items() if known[0]}


def refuse(function: str, argument: str, what: str, value: Any) -> NoReturn:
    """Say that an argument is not what it should be, and what might have been meant."""
    where = f"{function}: {argument}"
    if what == "a Variable":
        from .layer_helper import check_variable  # which needs much that needs this module

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
        in_order, by_name = checks or (checks := checks_of(function))
        for value, (argument, what, holds) in zip(args, in_order, strict=False):
            if what and not holds(value):
                refuse(function.__name__, argument, what, value)
        for argument, value in kwargs.items():
            known = by_name.get(argument)
            if known is not None and not known[1](value):
                refuse(function.__name__, argument, known[0], value)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]
