"""Averages over batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import FluidTypeError, ProgramError

__all__ = ["WeightedAverage"]


class WeightedAverage:
    """``sum(value * weight) / sum(weight)`` of numbers or arrays of one shape."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.numerator: Any = None
        self.denominator = 0.0

    def add(self, value: Any, weight: float) -> None:
        """Count `value` with this weight, such as the batch's size."""
        if not np.issubdtype(np.asarray(value).dtype, np.number):
            raise FluidTypeError(f"WeightedAverage.add takes numbers and arrays, not {value!r}")
        part = np.asarray(value, np.float64) * float(np.asarray(weight).item())
        self.numerator = part if self.numerator is None else self.numerator + part
        self.denominator += float(np.asarray(weight).item())

    def eval(self) -> Any:
        """The average so far: a float, or an array where values were arrays of more than one element."""
        if self.numerator is None or self.denominator == 0.0:
            raise ProgramError("WeightedAverage.eval: nothing has been added yet")
        found = self.numerator / self.denominator
        return float(found.item()) if found.size == 1 else found
