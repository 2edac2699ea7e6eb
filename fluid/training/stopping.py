"""Detect when a watched number improves, and when to stop because it does not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import FluidTypeError, ProgramError
from .logs import number_of

_GOALS = {"least": -1.0, "greatest": 1.0}


class Best:
    """The best number so far.

    Args:
        goal: ``"least"`` (a loss) or ``"greatest"`` (an accuracy).
        least_change: by how much a number has to be better to count.
    """

    def __init__(self, where: str, goal: str, least_change: float = 0.0) -> None:
        if goal not in _GOALS:
            raise ProgramError(f"{where}: goal should be 'least' (of a loss) or 'greatest' (of an accuracy), not {goal!r}")
        if not isinstance(least_change, (int, float)) or not least_change >= 0:
            raise ProgramError(f"{where}: least_change should be a number, at least 0, not {least_change!r}")
        self._where, self._sign, self._least_change = where, _GOALS[goal], float(least_change)
        self.number: float | None = None
        self.misses = 0
        """How many numbers since the best were not better."""

    def take(self, number: Any) -> bool:
        """Whether this number is the best so far; NaN never is."""
        value = number_of(number, self._where)
        is_better = not math.isnan(value) and (
            self.number is None or self._sign * value > self._sign * self.number + self._least_change
        )
        if is_better:
            self.number = value
        self.misses = 0 if is_better else self.misses + 1
        return is_better

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.number, "misses": self.misses}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            best, misses = state["best"], state["misses"]
            self.number, self.misses = None if best is None else float(best), int(misses)
        except (KeyError, TypeError, ValueError) as error:
            raise FluidTypeError(f"{self._where}: {state!r} is not what state_dict() gives: {error!r}") from None


class EarlyStopping:
    """Decides when to stop because a number no longer improves.

    Args:
        patience: after how many numbers in a row that are not better than the best one to stop.
        goal: ``"least"`` for a number that should fall, such as a loss; ``"greatest"`` for one that should rise.
        least_change: by how much a number has to be better to count as better.

    Attributes:
        best: the best number so far, None before the first.

    Raises:
        ProgramError: an argument cannot be used.

    >>> stopping = fluid.training.EarlyStopping(patience=2)
    >>> [stopping.is_over(loss) for loss in (0.5, 0.25, 0.3, 0.26)]
    [False, False, False, True]
    >>> stopping.best
    0.25
    """

    def __init__(self, patience: int = 5, goal: str = "least", least_change: float = 0.0) -> None:
        if not isinstance(patience, int) or patience < 1:
            raise ProgramError(f"EarlyStopping: patience should be a number of tries, at least 1, not {patience!r}")
        self.patience = patience
        self._best = Best("EarlyStopping", goal, least_change)

    @property
    def best(self) -> float | None:
        """The best number so far; None before the first."""
        return self._best.number

    def is_over(self, number: Any) -> bool:
        """Take the next number and return whether to stop. NaN is never better.

        Args:
            number: a number, or an array or tensor of one element.
        """
        self._best.take(number)
        return self._best.misses >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint: numbers by name."""
        return self._best.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._best.load_state_dict(state)
