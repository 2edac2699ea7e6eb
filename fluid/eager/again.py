"""Calls that can be repeated with the same random numbers, statistics, names and default programs."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from .. import unique_name
from ..errors import BackwardError
from ..executor.runtime.random import RANDOM, Draw
from ..ir.program import default_main_program, default_startup_program, program_guard
from .mode import state

_Result = TypeVar("_Result")


class Call:
    """A call that can be repeated, by this thread or another.

    The second time random ops draw the same numbers, layers do not change their buffers (`Layer` checks ``state.again``), and the
    default programs and device are the same as the first time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._programs = default_main_program(), default_startup_program()
        self._context = copy_context()  # has the device of new arrays
        self._draws: list[Draw] = []

    def first(self, function: Callable[[], _Result]) -> _Result:
        """Call a function, record its random draws, and return its result."""
        with RANDOM.noting(self._draws):
            return function()

    def again(self, function: Callable[[], _Result]) -> _Result:
        """Call a function with the draws of the first call, and return its result.

        Raises:
            BackwardError: the number of draws differs from the first call.
        """
        before, state.again = state.again, True
        try:
            with program_guard(*self._programs), unique_name.guard(), RANDOM.repeating(self._draws) as count:
                result = self._context.copy().run(function)
        finally:
            state.again = before
        if count[0] != len(self._draws):
            raise BackwardError(
                f"{self._name} took {len(self._draws)} numbers of the random stream at first, but {count[0]} when backward "
                "called it again; it should do the same in each call"
            )
        return result
