"""Read and set an optimizer's learning rate, or lower it when training stops improving."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from ..errors import ExecutionError, FluidTypeError, ProgramError
from ..executor.runtime.scope import Scope, global_scope
from .stopping import Best

__all__ = ["ReduceOnPlateau", "innermost_optimizer", "is_tensor", "learning_rate_of", "set_learning_rate"]


def innermost_optimizer(optimizer: Any) -> Any:
    """Unwrap an optimizer: the innermost one that it wraps."""
    for _ in range(10):
        inner = getattr(optimizer, "inner_optimizer", None) or getattr(optimizer, "_optimizer", None)
        if inner is None:
            break
        optimizer = inner
    if not hasattr(optimizer, "_rates"):
        raise FluidTypeError(f"this should be an optimizer of fluid.optimizer, not {optimizer!r}")
    if not isinstance(optimizer._learning_rate, Real):
        raise ProgramError(
            f"the learning rate of this {type(optimizer).__name__} is computed by a schedule ({optimizer._learning_rate!r}); "
            "only one that is a number can be set"
        )
    return optimizer


def is_tensor(variable: Any) -> bool:
    """Whether a variable is a tensor of eager mode, which holds its value; values of a program's variables are in a scope."""
    return hasattr(variable, "set_value")


def learning_rate_of(optimizer: Any, scope: Scope | None = None) -> float:
    """The learning rate that an optimizer has now.

    Args:
        optimizer: an optimizer whose rate is a number, or one around such an optimizer (`LookaheadOptimizer`, ...).
        scope: where the rate of a program is; the current scope if None.

    Raises:
        ProgramError: a schedule computes the rate.
        ExecutionError: the startup program has not run.

    >>> fluid.training.learning_rate_of(fluid.optimizer.SGD(0.5))
    0.5
    """
    inner = innermost_optimizer(optimizer)
    for variable in inner._rates.values():
        if is_tensor(variable):
            return float(variable.numpy().reshape(()))
        value = (scope if scope is not None else global_scope()).array(variable.name)
        if value is None:
            raise ExecutionError(f"{variable.name} has no value in the scope; run the startup program first")
        return float(np.asarray(value).reshape(()))
    return float(inner._learning_rate)


def set_learning_rate(optimizer: Any, rate: float, scope: Scope | None = None) -> None:
    """Change an optimizer's learning rate from its next step on, in a program or in eager mode.

    Args:
        optimizer: as of `learning_rate_of`.
        rate: the rate, at least 0.
        scope: where the rate of a program is, which has been put there by the startup program; the current scope if None.

    Raises:
        ProgramError: the rate is no such number, or a schedule computes it.
        ExecutionError: the startup program has not run.

    >>> optimizer = fluid.optimizer.SGD(0.5)
    >>> fluid.training.set_learning_rate(optimizer, 0.25)
    >>> fluid.training.learning_rate_of(optimizer)
    0.25
    """
    inner = innermost_optimizer(optimizer)
    if not isinstance(rate, (int, float, np.number)) or not 0 <= rate < float("inf"):
        raise ProgramError(f"set_learning_rate: rate should be a finite number, at least 0, not {rate!r}")
    learning_rate_of(inner, scope)  # says whether the rate can be set
    for variable in inner._rates.values():
        value = np.array([rate], variable.dtype.numpy)
        if is_tensor(variable):
            variable.set_value(value)
        else:
            (scope if scope is not None else global_scope()).put(variable.name, value)
    if all(map(is_tensor, inner._rates.values())):
        inner._learning_rate = float(rate)


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
