"""Composition of transforms, and transforms that draw random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from ...errors import FluidTypeError

_Function = TypeVar("_Function", bound=Callable[..., Any])


def random(function: _Function) -> _Function:
    """Decorate a function of a value and a `numpy.random.Generator`, so that it receives a generator.

    >>> @fluid.io.transforms.random
    ... def noisy(x, generator):
    ...     return x + generator.normal()
    >>> data = fluid.io.TensorDataset(np.zeros(4)).map(noisy, field=0)
    >>> [first], [again] = (list(fluid.io.DataLoader(data, batch_size=4)) for _ in range(2))
    >>> np.array_equal(first, again)
    True
    """
    function.is_random = True  # type: ignore[attr-defined]
    return function


class Compose:
    """Apply functions in order, each to the previous result.

    Args:
        functions: functions of a value; those marked by `random`, and the random ones of this module, get a generator, too.

    Raises:
        FluidTypeError: one is no function.

    >>> fluid.io.transforms.Compose([str.lower, str.split])("One Two")
    ['one', 'two']
    """

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        self._functions = list(functions)
        for function in self._functions:
            if not callable(function):
                raise FluidTypeError(f"Compose takes functions, not {function!r}")

    @property
    def is_random(self) -> bool:
        """Whether one of the functions draws random numbers."""
        return any(getattr(function, "is_random", False) for function in self._functions)

    def __call__(self, value: Any, generator: np.random.Generator | None = None) -> Any:
        for function in self._functions:
            value = function(value, generator) if getattr(function, "is_random", False) else function(value)
        return value
