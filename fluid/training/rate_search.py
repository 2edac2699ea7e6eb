"""A search for a learning rate: a short training with ever greater rates; afterwards all values are restored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import FluidTypeError, ProgramError
from ..executor.runtime.scope import Scope, global_scope
from .logs import number_of
from .rates import innermost_optimizer, is_tensor, learning_rate_of, set_learning_rate


@dataclass(frozen=True)
class RateSearch:
    """The result of `find_learning_rate`; `fluid.plots.learning_rates` draws it.

    Attributes:
        rates: the learning rates that were tried, float64 ``[n]``.
        losses: the loss of each, ``[n]``.
        smoothed: the losses smoothed, ``[n]``.
        suggestion: the rate at which the smoothed loss falls the fastest; None if it never falls.

    >>> search = fluid.training.RateSearch([0.1, 0.2], [2.0, 1.0], [2.0, 1.5], 0.1)
    >>> search.suggestion
    0.1
    """

    rates: Any
    losses: Any
    smoothed: Any
    suggestion: float | None


def find_learning_rate(
    step: Callable[[Any], Any],
    batches: Iterable[Any],
    optimizer: Any,
    least: float = 1e-6,
    greatest: float = 1.0,
    count: int = 100,
    layer: Any = None,
    scope: Scope | None = None,
) -> RateSearch:
    """Train briefly with ever greater learning rates, record the losses, and restore all values (Smith, 2015).

    It ends early when the loss is not finite, or four times the least loss.

    Args:
        step: trains on one batch and returns the loss: a number, or an array or tensor of one element, or a list of one.
        batches: the batches; begun again when they end, if they can be.
        optimizer: an optimizer whose rate is a number (see `learning_rate_of`). For a program, the startup program has run.
        least, greatest: the first rate, and the last.
        count: how many rates, at even factors.
        layer: in eager mode, the layer that is trained; its buffers are restored too.
        scope: where the values of a program are; the current scope if None.

    Returns:
        The rates, their losses, and a suggestion.

    Raises:
        ProgramError: an argument cannot be used, or there are fewer than five batches.

    >>> x = fluid.data("x", [None, 4])
    >>> loss = layers.mean(layers.square(layers.fc(x, 1) - layers.reduce_sum(x, 1, keep_dim=True)))
    >>> optimizer, executor = fluid.optimizer.SGD(0.1), fluid.Executor()
    >>> _ = optimizer.minimize(loss), executor.run(fluid.default_startup_program())
    >>> batches = [{"x": np.random.default_rng(number).normal(size=(32, 4)).astype("float32")} for number in range(10)]
    >>> train = lambda feed: executor.run(feed=feed, fetch_list=[loss])
    >>> search = fluid.training.find_learning_rate(train, batches, optimizer, least=1e-4, count=50)
    >>> 0.001 < search.suggestion < 1
    True
    """
    if not 0 < least < greatest:
        raise ProgramError(f"find_learning_rate: the rates should be 0 < least < greatest, not {least!r} and {greatest!r}")
    if not isinstance(count, int) or count < 5:
        raise ProgramError(f"find_learning_rate: count should be a number of rates, at least 5, not {count!r}")
    if not callable(step):
        raise FluidTypeError(f"find_learning_rate: step should be a function of a batch, not {step!r}")
    inner, former = innermost_optimizer(optimizer), learning_rate_of(optimizer, scope)
    restore = _snapshot(inner, layer, scope if scope is not None else global_scope())
    losses: list[float] = []
    smoothed: list[float] = []
    rates = np.geomspace(least, greatest, count)
    mean = 0.0
    try:
        for number, (rate, batch) in enumerate(zip(rates, _endless(batches), strict=False)):
            set_learning_rate(optimizer, float(rate), scope)
            returned = step(batch)
            loss = number_of(
                returned[0] if isinstance(returned, (list, tuple)) and len(returned) == 1 else returned,
                "the loss that step returns",
            )
            if not math.isfinite(loss):
                break
            mean = 0.9 * mean + 0.1 * loss
            losses.append(loss)
            smoothed.append(mean / (1 - 0.9 ** (number + 1)))
            if number >= 5 and smoothed[-1] > 4 * abs(min(smoothed)):
                break
    finally:
        restore()
        set_learning_rate(optimizer, former, scope)
    if len(losses) < 5:
        raise ProgramError(
            f"find_learning_rate: there are {len(losses)} finite losses, too few to say anything; give more batches, or a lower "
            f"rate to begin with than {least:g}"
        )
    tried, curve = rates[: len(losses)], np.array(smoothed)
    return RateSearch(tried, np.array(losses), curve, _steepest(tried, curve))


def _steepest(rates: Any, curve: Any) -> float | None:
    """The rate where the curve falls fastest before its minimum, measured over a tenth of the rates."""
    reach = max(1, len(curve) // 10)
    middles = np.arange(reach, min(int(curve.argmin()), len(curve) - reach - 1) + 1)
    falls = curve[middles - reach] - curve[middles + reach]
    return float(rates[middles[falls.argmax()]]) if len(falls) and falls.max() > 0 else None


def _endless(batches: Iterable[Any]) -> Iterator[Any]:
    """Repeat the batches without end; only once if they cannot be iterated again."""
    while True:
        is_empty = True
        for batch in batches:
            is_empty = False
            yield batch
        if is_empty or iter(batches) is batches:
            return


def _snapshot(optimizer: Any, layer: Any, scope: Scope) -> Callable[[], None]:
    """Copy all values that training changes, in the scope or in tensors; return a function that restores them."""
    programs = [program for program, rate in optimizer._rates.items() if not is_tensor(rate)]
    names = {var.name for program in programs for var in program.list_vars() if var.persistable}
    values = {name: scope.value(name) for name in names}
    copies = {name: _copied(value) for name, value in values.items() if value is not None}
    runs = scope.runs
    tensors = [] if programs else [*(optimizer._parameters() or ()), *(layer.state_dict().values() if layer is not None else ())]
    if not programs and not tensors:
        raise ProgramError(
            "find_learning_rate: the optimizer trains nothing yet; call minimize first, or give it a parameter_list in eager mode"
        )
    states = [] if programs else [dict(variables) for variables in optimizer._accumulator_vars.values()]
    tensors += [var for variables in states for var in variables.values()]
    arrays = [(tensor, np.array(tensor.numpy())) for tensor in tensors]

    def restore() -> None:
        for name, value in copies.items():
            scope.put(name, value)
        scope.runs = runs
        for tensor, array in arrays:
            tensor.set_value(array)
        if not programs:
            former_ids = {id(var) for variables in states for var in variables.values()}
            for variables in optimizer._accumulator_vars.values():
                for key in [key for key, var in variables.items() if id(var) not in former_ids]:
                    del variables[key]
            optimizer._last_updates.clear()

    return restore


def _copied(value: Any) -> Any:
    """Copy a value of a scope: an array with or without sequences, or sparse rows."""
    return [_copied(item) for item in value] if isinstance(value, list) else value.copy() if hasattr(value, "copy") else value
