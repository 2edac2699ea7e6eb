"""Checks layers' arguments against their annotations (`fluid.ir.checked`), and names the layer in errors."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from ..building.layer_helper import ParametersLost, is_keeping
from ..building.versions import program_of
from ..errors import FluidError, FluidTypeError, ProgramError
from ..ir.checked import Checks, checks_of, held
from ..ir.frames import user_frame, user_frames
from ..ir.program import Program, program_guard

__all__ = ["beside", "check_layers", "checked", "eager_program", "speaking_of"]


def eager_program(values: Iterable[Any]) -> Program | None:
    """The program of eager mode if `values`, which may be nested, contain one of its tensors, else None."""
    program = program_of(values)
    return program if program is not None and program.eager else None


def beside(values: Iterable[Any]) -> contextlib.AbstractContextManager[Any]:
    """Inside the ``with``, variables without inputs, such as constants, are tensors if one of `values` is."""
    program = eager_program(values)
    return program_guard(program, program) if program is not None else contextlib.nullcontext()


def _located(error: FluidTypeError | ProgramError, layer: str) -> None:
    """Adds the layer and the line of the user's call to the text of `error`, unless they are there."""
    if isinstance(error, ParametersLost) and "\n  made at: " not in str(error):
        error.speak_of(layer)
    text = str(error)
    if re.search(rf"(?<!\w){re.escape(layer)}(?!\w)", text.partition("\n")[0]) is None:
        text = f"{layer}: {text}"
    frame = user_frame(user_frames(1))
    if frame is not None and "\n  made at: " not in text and "\n  called at: " not in text:
        text += "\n  made at: {}:{} in {}".format(*frame)
    error.restate(text)


on_tensors: Callable[[Callable[..., Any]], Callable[[tuple[Any, ...], dict[str, Any]], Any]] | None = None
"""Makes a fast path of a layer for tensors, as a function of its arguments; set by eager mode."""


def checked(layer: Callable[..., Any]) -> Callable[..., Any]:
    """`layer` with checked arguments: a `FluidTypeError` names layer, argument, value and line if an annotation forbids it."""
    name = layer.__name__
    checks: Checks | None = None  # made in the first call, as is `shorter`: a program calls few of the hundreds of layers
    shorter: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None = None

    def in_full(*args: Any, **kwargs: Any) -> Any:
        nonlocal checks
        if checks is None:
            checks = checks_of(layer)
        args = held(name, checks, args, kwargs)
        program = eager_program((*args, *kwargs.values()))
        if program is None:
            return layer(*args, **kwargs)
        if (stand_ins := program.standing_in(args, kwargs)) is not None:
            return layer(*stand_ins[0], **stand_ins[1])
        with program_guard(program, program):  # so that variables without inputs, such as constants, are tensors too
            return layer(*args, **kwargs)

    @functools.wraps(layer)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal shorter
        try:
            if on_tensors is None or is_keeping():
                return in_full(*args, **kwargs)
            if shorter is None:
                shorter = on_tensors(in_full)
            return shorter(args, kwargs)
        except (FluidTypeError, ProgramError) as error:
            _located(error, name)
            raise

    return call


@contextlib.contextmanager
def speaking_of(arguments: Mapping[str, str]) -> Iterator[None]:
    """In the ``with``, error messages name the layer's arguments instead of the op's attributes: ``{"axis": "perm"}``."""
    try:
        yield
    except FluidError as error:
        head, *remaining = str(error).split("\n")
        for attribute, argument in arguments.items():
            head = re.sub(rf"(?<!\w){attribute}(?!\w)", argument, head)
        error.restate("\n".join([head, *remaining]))
        raise


def check_layers(namespace: dict[str, Any]) -> None:
    """Applies `checked` to all public layers in the namespace of a module."""
    for name, value in namespace.items():
        if isinstance(value, FunctionType) and not name.startswith("_") and value.__module__.startswith(__package__):
            namespace[name] = checked(value)
