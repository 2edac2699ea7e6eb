"""Calls that are made again, and are to find all as it was: the same random numbers, statistics, names, defaults."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from .. import unique_name
from ..errors import BackwardError
from ..executor.random import RANDOM, Draw
from ..ir.program import default_main_program, default_startup_program, program_guard
from .mode import state

__all__ = ["Call"]

_Result = TypeVar("_Result")


class Call:
    """A call that can be made again, by this thread or another.

    Random ops draw again what they drew; layers leave what they keep, other than parameters, as it is (`Layer` asks
    ``state.again``); and the default programs and device are those of the first time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._programs = default_main_program(), default_startup_program()
        self._context = copy_context()  # says on which device arrays are made
        self._draws: list[Draw] = []

    def first(self, function: Callable[[], _Result]) -> _Result:
        """What a function gives, whose draws are noted."""
        with RANDOM.noting(self._draws):
            return function()

    def again(self, function: Callable[[], _Result]) -> _Result:
        """What a function gives as it was at first.

        Raises:
            BackwardError: it has not drawn as often as at first.
        """
        before, state.again = state.again, True
        try:
            with program_guard(*self._programs), unique_name.guard(), RANDOM.repeating(self._draws) as count:
                found = self._context.copy().run(function)
        finally:
            state.again = before
        if count[0] != len(self._draws):
            raise BackwardError(
                f"{self._name} took {len(self._draws)} numbers of the random stream at first, but {count[0]} when backward "
                "called it again; it should do the same each time"
            )
        return found
