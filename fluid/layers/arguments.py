"""Layers held against the annotations of their arguments (`fluid.ir.checked`), and errors that say which layer of the user's it
was."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from ..building.layer_helper import ParametersLost
from ..building.versions import program_of
from ..errors import FluidError, FluidTypeError, ProgramError
from ..ir.checked import Checks, checks_of, held
from ..ir.frames import user_frame, user_frames
from ..ir.program import Program, program_guard

__all__ = ["check_layers", "checked", "eager_program", "speaking_of"]


def eager_program(values: Iterable[Any]) -> Program | None:
    """The program that runs at once, where a tensor of it is among the arguments, nested perhaps."""
    program = program_of(values)
    return program if program is not None and program.eager else None


def _located(error: FluidTypeError | ProgramError, layer: str) -> None:
    """Let `error` say which layer, and where the user called it, if it does not yet."""
    if isinstance(error, ParametersLost) and "\n  made at: " not in str(error):
        error.speak_of(layer)
    text = str(error)
    if re.search(rf"(?<!\w){re.escape(layer)}(?!\w)", text.partition("\n")[0]) is None:
        text = f"{layer}: {text}"
    frame = user_frame(user_frames(1))
    if frame is not None and "\n  made at: " not in text:
        text += "\n  made at: {}:{} in {}".format(*frame)
    error.args = (text,)


def checked(layer: Callable[..., Any]) -> Callable[..., Any]:
    """`layer`, refusing arguments that its annotations do not allow; `FluidTypeError` names layer, argument, value and line."""
    name = layer.__name__
    checks: Checks | None = None

    @functools.wraps(layer)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal checks  # made at the first call: there are hundreds of layers, of which a program calls a few
        if checks is None:
            checks = checks_of(layer)
        try:
            args = held(name, checks, args, kwargs)
            program = eager_program((*args, *kwargs.values()))
            if program is None:
                return layer(*args, **kwargs)
            with program_guard(program, program):  # what it makes besides, constants say, is made at once too
                return layer(*args, **kwargs)
        except (FluidTypeError, ProgramError) as error:
            _located(error, name)
            raise

    return call


@contextlib.contextmanager
def speaking_of(arguments: Mapping[str, str]) -> Iterator[None]:
    """Inside the ``with``, messages about attributes of an op name the layer's arguments instead: ``{"axis": "perm"}``."""
    try:
        yield
    except FluidError as error:
        head, *rest = str(error).split("\n")
        for attribute, argument in arguments.items():
            head = re.sub(rf"(?<!\w){attribute}(?!\w)", argument, head)
        error.args = ("\n".join([head, *rest]),)
        raise


def check_layers(namespace: dict[str, Any]) -> None:
    """Put `checked` around the layers among the names of a module."""
    for name, value in namespace.items():
        if isinstance(value, FunctionType) and not name.startswith("_") and value.__module__.startswith(__package__):
            namespace[name] = checked(value)
