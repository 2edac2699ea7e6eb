"""Averages over batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import FluidTypeError, ProgramError
from .not_here import names_here

__all__ = ["WeightedAverage"]

__dir__ = names_here(__name__)


class WeightedAverage:
    """The weighted mean ``sum(value * weight) / sum(weight)`` of numbers, or of arrays with the same shape.

    >>> average = fluid.average.WeightedAverage()
    >>> average.add(0.5, weight=3)
    >>> average.add(1.0, weight=1)
    >>> average.eval()
    0.625
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all values."""
        self.numerator: Any = None
        self.denominator = 0.0

    def add(self, value: Any, weight: float) -> None:
        """Add a `value` with a `weight`, such as the size of its batch."""
        if not np.issubdtype(np.asarray(value).dtype, np.number):
            raise FluidTypeError(f"WeightedAverage.add takes numbers and arrays, not {value!r}")
        part = np.asarray(value, np.float64) * float(np.asarray(weight).item())
        self.numerator = part if self.numerator is None else self.numerator + part
        self.denominator += float(np.asarray(weight).item())

    def eval(self) -> Any:
        """The mean so far: a float, or an array if the values have more than one element."""
        if self.numerator is None or self.denominator == 0.0:
            raise ProgramError("WeightedAverage.eval: nothing has been added yet")
        mean = self.numerator / self.denominator
        return float(mean.item()) if mean.size == 1 else mean
