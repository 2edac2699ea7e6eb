"""Arguments of layers held against the annotations of their functions, and errors that say which layer of the user's it was.

The annotation is the one statement of what an argument may be: ``int | Sequence[int]``, ``Variable | None``. Those with a part
that is not known here, such as ``Any``, take anything.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from numbers import Real
from types import FunctionType
from typing import Any

import numpy as np

from ..errors import FluidTypeError, ProgramError
from ..frames import user_frame, user_frames
from ..framework import Program, Variable, program_guard
from ..layer_helper import check_variable

__all__ = ["check_layers", "checked"]

Check = Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return type(value) is int or (_is_number(value) and float(value).is_integer())


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf")


def _is_bool(value: Any) -> bool:
    return value is True or value is False or (_is_number(value) and value in (0, 1))


_MANY = {"a Variable": "Variables", "a whole number": "whole numbers", "a number": "numbers", "a string": "strings"}
_KINDS: dict[str, tuple[str, Check]] = {
    "Variable": ("a Variable", lambda value: isinstance(value, Variable)),
    "int": ("a whole number", _is_whole),
    "float": ("a number", _is_number),
    "bool": ("True or False", _is_bool),
    "str": ("a string", lambda value: isinstance(value, str)),
    "None": ("None", lambda value: value is None),
}
_SEQUENCE = re.compile(r"(?:Sequence|list)\[(.*)\]$")


def _parts(annotation: str) -> list[str]:
    """The alternatives of an annotation."""
    return [part.strip() for part in re.split(r"\|(?![^\[]*\])", annotation)]


def _kind(part: str) -> tuple[str, Check] | None:
    """What one alternative is called, and whether a value is it; None for one that is not known here."""
    sequence = _SEQUENCE.match(part)
    if sequence is None:
        return _KINDS.get(part)
    found = _any_of(sequence.group(1))
    if found is None:
        return None
    what, holds = found
    return (
        f"a list of {' or '.join(_MANY.get(each, each) for each in what.split(' or '))}",
        lambda value: isinstance(value, (list, tuple, np.ndarray, range)) and all(map(holds, value)),
    )


def _any_of(annotation: str) -> tuple[str, Check] | None:
    kinds = [_kind(part) for part in _parts(annotation)]
    if not all(kinds):
        return None
    known = [kind for kind in kinds if kind is not None]
    if len(known) == 1:
        return known[0]
    return " or ".join(what for what, _ in known), lambda value: any(holds(value) for _, holds in known)


def _checks(layer: Callable[..., Any]) -> dict[str, tuple[str, Check]]:
    """What is known of the arguments of a layer, in order; "" for those that take anything."""
    found = {}
    for name, parameter in inspect.signature(layer).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            break
        known = _any_of(parameter.annotation) if isinstance(parameter.annotation, str) else None
        if known is not None and parameter.default is None and "None" not in parameter.annotation:
            known = None
        found[name] = known or ("", bool)
    return found


def _refuse(layer: str, argument: str, what: str, value: Any) -> None:
    where = f"{layer}: {argument}"
    if what == "a Variable":
        check_variable(value, where)
    plain = isinstance(value, (str, int, float, list, tuple)) and len(repr(value)) < 100
    raise FluidTypeError(f"{where} should be {what}, not {repr(value) if plain else type(value).__name__}")


def _eager_program(values: tuple[Any, ...]) -> Program | None:
    """The program that runs at once, where a tensor of it is among the arguments."""
    for value in values:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, Variable):
                program = item.block.program
                if program.eager:
                    return program
    return None


def _located(error: FluidTypeError | ProgramError, layer: str) -> None:
    """Let `error` say which layer, and where the user called it, if it does not yet."""
    text = str(error)
    if re.search(rf"(?<!\w){re.escape(layer)}(?!\w)", text.partition("\n")[0]) is None:
        text = f"{layer}: {text}"
    frame = user_frame(user_frames(1))
    if frame is not None and "\n  made at: " not in text:
        text += "\n  made at: {}:{} in {}".format(*frame)
    error.args = (text,)


def checked(layer: Callable[..., Any]) -> Callable[..., Any]:
    """`layer`, refusing arguments that its annotations do not allow; `FluidTypeError` names layer, argument, value and line."""
    checks, name = _checks(layer), layer.__name__
    in_order = [(argument, what, holds) for argument, (what, holds) in checks.items()]
    by_name: Mapping[str, tuple[str, Check]] = {argument: known for argument, known in checks.items() if known[0]}

    @functools.wraps(layer)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            for value, (argument, what, holds) in zip(args, in_order, strict=False):
                if what and not holds(value):
                    _refuse(name, argument, what, value)
            for argument, value in kwargs.items():
                known = by_name.get(argument)
                if known is not None and not known[1](value):
                    _refuse(name, argument, known[0], value)
            program = _eager_program((*args, *kwargs.values()))
            if program is None:
                return layer(*args, **kwargs)
            with program_guard(program, program):  # what it makes besides, constants say, is made at once too
                return layer(*args, **kwargs)
        except (FluidTypeError, ProgramError) as error:
            _located(error, name)
            raise

    return call


def check_layers(namespace: dict[str, Any]) -> None:
    """Put `checked` around the layers among the names of a module."""
    for name, value in namespace.items():
        if isinstance(value, FunctionType) and not name.startswith("_") and value.__module__.startswith(__package__):
            namespace[name] = checked(value)
