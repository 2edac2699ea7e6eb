"""Lower the learning rate when training stops improving."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ProgramError
from ..executor.runtime.scope import Scope
from .rates import innermost_optimizer, learning_rate_of, set_learning_rate
from .stopping import Best


class ReduceOnPlateau:
    """Lowers the learning rate of an optimizer when a number stops improving.

    Args:
        optimizer: an optimizer whose rate is a number (see `learning_rate_of`), in a program or in eager mode.
        factor: multiplies the rate, between 0 and 1.
        patience: after how many numbers in a row that are not better than the best one.
        goal: ``"least"`` for a number that should fall, such as a loss; ``"greatest"`` for one that should rise.
        least_change: by how much a number has to be better to count as better.
        pause: for how many numbers after lowering none is counted.
        least_rate: the rate below which it does not fall.
        scope: the scope with the rate of a program; if None, the current scope at each call.

    Raises:
        ProgramError: an argument cannot be used.

    >>> optimizer = fluid.optimizer.SGD(0.5)
    >>> plateau = fluid.training.ReduceOnPlateau(optimizer, factor=0.5, patience=2)
    >>> [plateau.update(loss) for loss in (0.5, 0.25, 0.3, 0.26, 0.2)]
    [0.5, 0.5, 0.5, 0.25, 0.25]
    """

    def __init__(
        self,
        optimizer: Any,
        factor: float = 0.1,
        patience: int = 10,
        goal: str = "least",
        least_change: float = 0.0,
        pause: int = 0,
        least_rate: float = 0.0,
        scope: Scope | None = None,
    ) -> None:
        if not isinstance(factor, (int, float)) or not 0 < factor < 1:
            raise ProgramError(f"ReduceOnPlateau: factor should be between 0 and 1, not {factor!r}")
        for name, value, least in (("patience", patience, 1), ("pause", pause, 0)):
            if not isinstance(value, int) or value < least:
                raise ProgramError(f"ReduceOnPlateau: {name} should be a number of tries, at least {least}, not {value!r}")
        innermost_optimizer(optimizer)
        self._optimizer, self._scope = optimizer, scope
        self._factor, self._patience, self._pause, self._least_rate = float(factor), patience, pause, float(least_rate)
        self._best = Best("ReduceOnPlateau", goal, least_change)
        self._waits = 0

    def update(self, number: Any) -> float:
        """Take the next number, and return the learning rate, lowered if it is time to.

        Args:
            number: a number, or an array or tensor of one element.
        """
        self._best.take(number)
        if self._waits:
            self._waits -= 1
            self._best.misses = 0
        rate = learning_rate_of(self._optimizer, self._scope)
        if self._best.misses >= self._patience:
            self._best.misses, self._waits = 0, self._pause
            rate = max(rate * self._factor, min(rate, self._least_rate))
            set_learning_rate(self._optimizer, rate, self._scope)
        return rate

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint: numbers by name. The rate itself is part of the program's checkpoint."""
        return {**self._best.state_dict(), "waits": self._waits}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._best.load_state_dict(state)
        self._waits = int(state.get("waits", 0))
