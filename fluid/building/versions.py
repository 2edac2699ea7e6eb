"""Layers that build parts which only programs have: blocks, arrays of tensors, schedules, fed variables.

Each is marked `builds`. Eager mode registers another version of it, which computes at once, or raises an error that says what to
use; callers need not distinguish the two.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from ..ir.program import Program, Variable, default_main_program

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


_PLAIN = frozenset({bool, int, float, str, type(None)})
"""Types of most arguments that are no variables. This test is quick, while `isinstance` asks every class that counts as one."""


_DEEPEST = 64
"""The deepest nesting of lists of arguments; deeper lists contain themselves."""


def program_of(values: Iterable[Any]) -> Program | None:
    """The program of the variables among these arguments, which may be nested: the eager one if one of them is a tensor."""
    return _program_of(values, set(), 0)


def _program_of(values: Iterable[Any], seen: set[int], depth: int) -> Program | None:
    """`program_of` for lists at this depth, except the lists in `seen`."""
    program = None
    for value in values:
        if value.__class__ in _PLAIN:
            continue
        inner = None
        if isinstance(value, Variable):
            inner = value.block.program
        elif isinstance(value, (list, tuple, dict)) and id(value) not in seen and depth < _DEEPEST:
            seen.add(id(value))
            inner = _program_of(value.values() if isinstance(value, dict) else value, seen, depth + 1)
        if inner is not None and (program is None or inner.eager):
            program = inner
            if program.eager:
                break
    return program


def builds(layer: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Mark a layer that appends to a program: a call goes to its version for the program of its arguments, or the default one."""

    @functools.wraps(layer)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        program = program_of((*args, *kwargs.values())) or default_main_program()
        return program.version_of(layer)(*args, **kwargs)  # type: ignore[no-any-return]

    return call
