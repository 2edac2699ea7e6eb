"""Callbacks from a compiled program to the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .arrays import for_jax, for_numpy


def _for_numpy(arrays: Any) -> list[Any]:
    return [for_numpy(np.asarray(array)) for array in arrays]


class HostCalls:
    """The callbacks of a compiled program to the host.

    An error in a callback does not end the run: it is stored, and raised when the run is over.
    """

    def __init__(self) -> None:
        self.count = 0
        """Number of callbacks in the program."""
        self._errors: dict[int, Exception] = {}
        """Number of a callback -> its error in this run."""

    def forget_errors(self) -> None:
        """Discard the errors of an invalid run."""
        if self.count:
            jax.effects_barrier()
            self._errors.clear()

    def raise_error(self) -> None:
        """Raise the first error of the finished run, if there was one."""
        if self.count:
            jax.effects_barrier()
            if self._errors:
                error = self._errors[min(self._errors)]
                self._errors.clear()
                raise error

    def add(self, function: Callable[..., Any], shapes: Any, *values: Any) -> Any:
        """Add a callback to a function of numpy arrays that returns arrays of these shapes."""
        self.count += 1
        place = self.count

        def guarded(*arrays: Any) -> Any:
            try:
                return tuple(map(for_jax, function(*_for_numpy(arrays))))
            except Exception as error:
                self._errors[place] = error
                return tuple(np.zeros(shape.shape, shape.dtype) for shape in shapes)

        return jax.pure_callback(guarded, shapes, *values)

    def add_check(self, function: Callable[..., Any], *values: Any) -> None:
        """Add a callback to a check: a function of numpy arrays that raises errors."""
        self.count += 1
        place = self.count

        def guarded(*arrays: Any) -> None:
            try:
                function(*_for_numpy(arrays))
            except Exception as error:
                self._errors[place] = error

        jax.debug.callback(guarded, *values)
