"""Read and set an optimizer's learning rate."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from ..errors import ExecutionError, FluidTypeError, ProgramError
from ..executor.runtime.scope import Scope, global_scope


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
