"""Learning rate schedules as objects that eager optimizers call in each step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from ..eager.program import version_of
from ..eager.tensor import Tensor
from ..errors import FluidTypeError, ProgramError, shown
from ..layers import learning_rate_scheduler as schedules

__all__ = [
    "CosineDecay",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LambdaDecay",
    "LearningRateDecay",
    "LinearLrWarmup",
    "MultiStepDecay",
    "NaturalExpDecay",
    "NoamDecay",
    "PiecewiseDecay",
    "PolynomialDecay",
    "ReduceLROnPlateau",
    "StepDecay",
]


class LearningRateDecay:
    """A learning rate schedule: each call returns the rate of the next step.

    Args:
        begin: the number of the first step.
        step: the increment of the step number.
        dtype: the element type of tensors that `create_lr_var` makes.

    Attributes:
        step_num: the number of the next step.

    >>> class Halving(dygraph.LearningRateDecay):
    ...     def step(self):
    ...         return 0.5**self.step_num
    >>> rate = Halving()
    >>> rate(), rate(), rate()
    (1.0, 0.5, 0.25)
    """

    def __init__(self, begin: int = 0, step: int = 1, dtype: str = "float32") -> None:
        self.step_num, self.step_size, self.dtype = begin, step, dtype

    def __call__(self) -> float:
        rate = self.step()
        self.step_num += self.step_size
        return float(rate)

    def step(self) -> Any:
        """The learning rate of step `step_num`, a number or a tensor of one element; defined by each schedule."""
        raise NotImplementedError(f"{type(self).__name__} should define step()")

    def create_lr_var(self, lr: float) -> Tensor:
        """A rate as a tensor of shape ``[1]``, for schedules that compute theirs with layers."""
        return Tensor([lr], self.dtype)

    def global_step(self) -> Tensor:
        """The number of the next step as optimizers have it in their state: an int32 tensor of shape ``[1]``."""
        return Tensor([self.step_num], "int32", name="global_step")

    def state_dict(self) -> dict[str, Any]:
        """The number of the next step, to save."""
        return {"step_num": self.step_num}

    def set_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`, also one of Fluid 1.8."""
        number = state["step_num"] if "step_num" in state else state["epoch_num"]
        self.step_num = int(np.asarray(number).item())


def _python_number(value: Any) -> Any:
    """A number of Python, of an array or a tensor of one element; None as it is."""
    return value if value is None else np.asarray(value).item()


def _check_numbers(schedule: LearningRateDecay, **numbers: Any) -> None:
    for name, number in numbers.items():
        if not isinstance(number, Real):
            raise FluidTypeError(f"{type(schedule).__name__}: {name} should be a number, not {shown(number)}")


def _positive(schedule: LearningRateDecay, **numbers: float) -> None:
    _check_numbers(schedule, **numbers)
    for name, number in numbers.items():
        if not number > 0:
            raise ProgramError(f"{type(schedule).__name__}: {name} should be greater than 0, not {number!r}")


class NoamDecay(LearningRateDecay):
    """``learning_rate * d_model ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)``: it rises, then falls.

    Source: Vaswani et al., Attention is all you need, 2017.

    Args:
        d_model: the size of the features.
        warmup_steps: over how many steps it rises.
        begin, step, dtype: see `LearningRateDecay`.
        learning_rate: a factor.

    >>> rate = dygraph.NoamDecay(d_model=64, warmup_steps=2)
    >>> [round(rate(), 4) for _ in range(4)]
    [0.0442, 0.0884, 0.0722, 0.0625]
    """

    learning_rate: float = 1.0  # of schedules in files of earlier versions

    def __init__(
        self,
        d_model: float,
        warmup_steps: float,
        begin: int = 1,
        step: int = 1,
        dtype: str = "float32",
        learning_rate: float = 1.0,
    ) -> None:
        super().__init__(begin, step, dtype)
        _positive(self, d_model=d_model, warmup_steps=warmup_steps, begin=begin)
        self.d_model, self.warmup_steps, self.learning_rate = d_model, warmup_steps, learning_rate

    def step(self) -> float:
        rate = self.d_model**-0.5 * min(self.step_num**-0.5, self.step_num * self.warmup_steps**-1.5)
        return float(self.learning_rate * rate)


@version_of(schedules.noam_decay)
def _noam_decay(d_model: float, warmup_steps: float, learning_rate: float = 1.0) -> NoamDecay:
    return NoamDecay(d_model, warmup_steps, learning_rate=learning_rate)


@version_of(schedules.piecewise_decay)
class PiecewiseDecay(LearningRateDecay):
    """``values[i]``, where i is the number of `boundaries` that step has reached.

    Args:
        boundaries: step numbers, in increasing order.
        values: rates, one more than boundaries.
        begin, step, dtype: see `LearningRateDecay`.

    >>> rate = dygraph.PiecewiseDecay([1, 3], [0.1, 0.01, 0.001])
    >>> [round(rate(), 4) for _ in range(4)]
    [0.1, 0.01, 0.01, 0.001]
    """

    def __init__(
        self, boundaries: Sequence[float], values: Sequence[float], begin: int = 0, step: int = 1, dtype: str = "float32"
    ) -> None:
        super().__init__(begin, step, dtype)
        if len(values) != len(boundaries) + 1:
            raise ProgramError(
                f"PiecewiseDecay: there should be one more of values than of boundaries, not {len(values)} and {len(boundaries)}"
            )
        if any(not low < high for low, high in pairwise(boundaries)):
            raise ProgramError(f"PiecewiseDecay: boundaries should increase, not be {list(boundaries)}")
        self.boundaries, self.values = list(boundaries), list(values)

    def step(self) -> float:
        return self.values[sum(self.step_num >= boundary for boundary in self.boundaries)]


class _ByEpochs(LearningRateDecay):
    """Base of schedules that change their rate when `epoch` is called; `step_num` is the number of the epoch."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__()
        _check_numbers(self, learning_rate=learning_rate)
        self.learning_rate = float(learning_rate)

    def __call__(self) -> float:
        return float(self.step())

    def epoch(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to the one with the number `epoch`."""
        self.step_num = self.step_num + 1 if epoch is None else int(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The number of the epoch and its rate, to save, as in Fluid 1.8."""
        return {"epoch_num": self.step_num, "learning_rate": float(self.step())}


class StepDecay(_ByEpochs):
    """``learning_rate * decay_rate ** (epoch // step_size)``: lower after every `step_size` calls of `epoch`.

    Args:
        learning_rate: the first rate.
        step_size: after how many epochs the rate changes.
        decay_rate: the factor of each change.

    Raises:
        ProgramError: `step_size` is not above 0.

    >>> rate = dygraph.StepDecay(0.8, step_size=2, decay_rate=0.5)
    >>> for _ in range(3):  # epochs; an optimizer calls rate() in each of their steps
    ...     print(rate(), rate())
    ...     rate.epoch()
    0.8 0.8
    0.8 0.8
    0.4 0.4
    """

    def __init__(self, learning_rate: float, step_size: int, decay_rate: float = 0.1) -> None:
        super().__init__(learning_rate)
        _positive(self, step_size=step_size)
        self.period, self.decay_rate = step_size, decay_rate

    def step(self) -> float:
        return self.learning_rate * float(self.decay_rate ** (self.step_num // self.period))


class MultiStepDecay(_ByEpochs):
    """``learning_rate * decay_rate ** i``, where i is the number of `milestones` that the epoch has reached.

    Args:
        learning_rate: the first rate.
        milestones: numbers of epochs, in increasing order.
        decay_rate: the factor at each of them.

    Raises:
        ProgramError: `milestones` do not increase.

    >>> rate = dygraph.MultiStepDecay(0.8, milestones=[1, 3], decay_rate=0.5)
    >>> for _ in range(4):
    ...     print(rate())
    ...     rate.epoch()
    0.8
    0.4
    0.4
    0.2
    """

    def __init__(self, learning_rate: float, milestones: Sequence[int], decay_rate: float = 0.1) -> None:
        super().__init__(learning_rate)
        if any(not low < high for low, high in pairwise(milestones)):
            raise ProgramError(f"MultiStepDecay: milestones should increase, not be {list(milestones)}")
        self.milestones, self.decay_rate = list(milestones), decay_rate

    def step(self) -> float:
        return self.learning_rate * float(self.decay_rate ** sum(self.step_num >= number for number in self.milestones))


class LambdaDecay(_ByEpochs):
    """``learning_rate * lr_lambda(epoch)``.

    Args:
        learning_rate: the first rate.
        lr_lambda: a function from the number of the epoch to a factor.

    Raises:
        FluidTypeError: `lr_lambda` is no function.

    >>> rate = dygraph.LambdaDecay(0.8, lambda epoch: 0.5**epoch)
    >>> rate.epoch()
    >>> rate()
    0.4
    """

    def __init__(self, learning_rate: float, lr_lambda: Callable[[int], float]) -> None:
        super().__init__(learning_rate)
        if not callable(lr_lambda):
            raise FluidTypeError(f"LambdaDecay: lr_lambda should be a function of the epoch, not {lr_lambda!r}")
        self.lr_lambda = lr_lambda

    def step(self) -> float:
        return self.learning_rate * float(self.lr_lambda(self.step_num))


class ReduceLROnPlateau(_ByEpochs):
    """A rate that is multiplied by `decay_rate` when a watched value has not improved for more than `patience` epochs.

    ``rate.step(loss)`` gives it the value of an epoch.

    Args:
        learning_rate: the first rate.
        mode: ``"min"`` if a lower value is better, ``"max"`` if a higher one is.
        decay_rate: the factor, below 1.
        patience: how many epochs in a row may be no better than the best one.
        verbose: print a line when the rate changes.
        threshold: by how much a value has to be better to count as better.
        threshold_mode: ``"rel"`` for a part of the best value, ``"abs"`` for the difference itself.
        cooldown: for how many epochs after a change no value counts.
        min_lr: the rate does not fall below it.
        eps: a change of the rate that is not greater is not made.
        dtype: see `LearningRateDecay`.

    Raises:
        ProgramError: an argument is outside its domain.

    >>> rate = dygraph.ReduceLROnPlateau(0.8, decay_rate=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     rate.step(loss)
    >>> rate()
    0.4
    """

    def __init__(
        self,
        learning_rate: float,
        mode: str = "min",
        decay_rate: float = 0.1,
        patience: int = 10,
        verbose: bool = False,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
        dtype: str = "float32",
    ) -> None:
        super().__init__(learning_rate)
        for name, value, choices in (("mode", mode, ("min", "max")), ("threshold_mode", threshold_mode, ("rel", "abs"))):
            if value not in choices:
                raise ProgramError(f"ReduceLROnPlateau: {name} should be one of {', '.join(choices)}, not {value!r}")
        if not 0 < decay_rate < 1:
            raise ProgramError(f"ReduceLROnPlateau: decay_rate should be between 0 and 1, not {decay_rate!r}")
        self.mode, self.decay_rate, self.patience, self.verbose = mode, decay_rate, patience, verbose
        self.threshold, self.threshold_mode, self.cooldown = threshold, threshold_mode, cooldown
        self.min_lr, self.eps, self.dtype = min_lr, eps, dtype
        self.best: float | None = None
        self.bad_epochs = self.cooldown_left = 0

    _STATE: ClassVar = {
        "learning_rate": "learning_rate",
        "best_loss": "best",
        "num_bad_epochs": "bad_epochs",
        "cooldown_counter": "cooldown_left",
    }
    """Names in the state, as in Fluid 1.8 -> attributes, whose names are in files of earlier versions."""

    def __call__(self) -> float:
        return self.learning_rate

    def step(self, loss: Any) -> None:  # type: ignore[override]  # as in Fluid 1.8
        """Give the value of an epoch, which may lower the rate.

        Args:
            loss: a number, or a tensor of one element.
        """
        array = np.asarray(loss.numpy() if isinstance(loss, Tensor) else loss)
        if array.size != 1 or array.dtype.kind not in "biuf":
            raise FluidTypeError(f"ReduceLROnPlateau: loss should be a number or a tensor of one element, not {shown(loss)}")
        value = float(array.item())
        self.epoch()
        if self.cooldown_left:
            self.cooldown_left -= 1
            return
        if self._is_better(value):
            self.best, self.bad_epochs = value, 0
            return
        self.bad_epochs += 1
        if self.bad_epochs > self.patience:
            self._lower()

    def _is_better(self, value: float) -> bool:
        if self.best is None:
            return True
        margin = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1.0)
        return value < self.best - margin if self.mode == "min" else value > self.best + margin

    def _lower(self) -> None:
        self.bad_epochs, self.cooldown_left = 0, self.cooldown
        lowered = max(self.learning_rate * self.decay_rate, self.min_lr)
        if self.learning_rate - lowered > self.eps:
            self.learning_rate = lowered
            if self.verbose:
                print(f"epoch {self.step_num}: the learning rate is {lowered:g} from now on")

    def state_dict(self) -> dict[str, Any]:
        """The number of the epoch and what the rate depends on, to save, as in Fluid 1.8."""
        return {"epoch_num": self.step_num, **{name: getattr(self, attribute) for name, attribute in self._STATE.items()}}

    def set_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        super().set_dict(state)
        for name, attribute in self._STATE.items():
            for key in (name, attribute):
                if key in state:
                    setattr(self, attribute, _python_number(state[key]))


class LinearLrWarmup(LearningRateDecay):
    """A rate that rises from `start_lr` to `end_lr` along a line for `warmup_steps` steps, and then is `learning_rate`.

    Args:
        learning_rate: the rate afterwards: a number, or a schedule, which takes part in each step from the first.
        warmup_steps: how many steps the rise takes.
        start_lr, end_lr: the rates of the rise, the first not above the second.
        begin, step, dtype: see `LearningRateDecay`.

    Raises:
        ProgramError: `warmup_steps` is not above 0, or `start_lr` is above `end_lr`.

    >>> rate = dygraph.LinearLrWarmup(0.8, warmup_steps=4, start_lr=0.0, end_lr=0.4, begin=0)
    >>> [round(rate(), 2) for _ in range(6)]
    [0.0, 0.1, 0.2, 0.3, 0.8, 0.8]
    """

    def __init__(
        self,
        learning_rate: float | LearningRateDecay,
        warmup_steps: int,
        start_lr: float,
        end_lr: float,
        begin: int = 1,
        step: int = 1,
        dtype: str = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        _positive(self, warmup_steps=warmup_steps)
        if not isinstance(learning_rate, LearningRateDecay):
            _check_numbers(self, learning_rate=learning_rate)
        _check_numbers(self, start_lr=start_lr, end_lr=end_lr)
        if start_lr > end_lr:
            raise ProgramError(f"LinearLrWarmup: start_lr {start_lr} should not be above end_lr {end_lr}")
        self.learning_rate, self.warmup_steps, self.start_lr, self.end_lr = learning_rate, warmup_steps, start_lr, end_lr

    def step(self) -> float:
        rate = self.learning_rate() if isinstance(self.learning_rate, LearningRateDecay) else float(self.learning_rate)
        if self.step_num >= self.warmup_steps:
            return rate
        return self.start_lr + (self.end_lr - self.start_lr) * self.step_num / self.warmup_steps

    def state_dict(self) -> dict[str, Any]:
        """The number of the next step, and the state of the schedule afterwards, to save."""
        schedule = self.learning_rate
        inner = {"schedule": schedule.state_dict()} if isinstance(schedule, LearningRateDecay) else {}
        return {**super().state_dict(), **inner}

    def set_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`; one of Fluid 1.8 has no state of the schedule afterwards."""
        super().set_dict(state)
        if isinstance(self.learning_rate, LearningRateDecay) and "schedule" in state:
            self.learning_rate.set_dict(state["schedule"])


@version_of(schedules.linear_lr_warmup)
def _linear_lr_warmup(learning_rate: Any, warmup_steps: int, start_lr: float, end_lr: float) -> LinearLrWarmup:
    return LinearLrWarmup(learning_rate, warmup_steps, start_lr, end_lr, begin=0)


class _Periodic(LearningRateDecay):
    """A schedule over periods of `decay_steps`, whose number is rounded down if `staircase`."""

    def __init__(
        self,
        learning_rate: float,
        decay_steps: float,
        decay_rate: float,
        staircase: bool = False,
        begin: int = 0,
        step: int = 1,
        dtype: str = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        _positive(self, decay_steps=decay_steps)
        self.learning_rate, self.decay_steps, self.decay_rate, self.staircase = learning_rate, decay_steps, decay_rate, staircase

    @property
    def periods(self) -> float:
        """The step number divided by `decay_steps`."""
        periods = self.step_num / self.decay_steps
        return math.floor(periods) if self.staircase else periods


@version_of(schedules.natural_exp_decay)
class NaturalExpDecay(_Periodic):
    """``learning_rate * exp(-decay_rate * (step / decay_steps))``.

    Args:
        learning_rate: the rate at first.
        decay_steps: the length of a period, in steps.
        decay_rate: the rate of decay in a period.
        staircase: round the number of periods down, so that the rate changes once in each.
        begin, step, dtype: see `LearningRateDecay`.

    >>> rate = dygraph.NaturalExpDecay(0.1, decay_steps=2, decay_rate=0.5)
    >>> [round(rate(), 4) for _ in range(4)]
    [0.1, 0.0779, 0.0607, 0.0472]
    """

    def step(self) -> float:
        return self.learning_rate * math.exp(-self.decay_rate * self.periods)


@version_of(schedules.exponential_decay)
class ExponentialDecay(_Periodic):
    """``learning_rate * decay_rate ** (step / decay_steps)``.

    Args:
        learning_rate: the rate at first.
        decay_steps: the length of a period, in steps.
        decay_rate: the factor of a period.
        staircase: round the number of periods down, so that the rate changes once in each.
        begin, step, dtype: see `LearningRateDecay`.

    >>> rate = dygraph.ExponentialDecay(0.1, decay_steps=2, decay_rate=0.5, staircase=True)
    >>> [round(rate(), 4) for _ in range(4)]
    [0.1, 0.1, 0.05, 0.05]
    """

    def step(self) -> float:
        return self.learning_rate * float(self.decay_rate**self.periods)


@version_of(schedules.inverse_time_decay)
class InverseTimeDecay(_Periodic):
    """``learning_rate / (1 + decay_rate * step / decay_steps)``.

    Args:
        learning_rate: the rate at first.
        decay_steps: the length of a period, in steps.
        decay_rate: the rate of decay in a period.
        staircase: round the number of periods down, so that the rate changes once in each.
        begin, step, dtype: see `LearningRateDecay`.

    >>> rate = dygraph.InverseTimeDecay(0.1, decay_steps=1, decay_rate=0.5)
    >>> [round(rate(), 4) for _ in range(4)]
    [0.1, 0.0667, 0.05, 0.04]
    """

    def step(self) -> float:
        return self.learning_rate / (1 + self.decay_rate * self.periods)


@version_of(schedules.polynomial_decay)
class PolynomialDecay(LearningRateDecay):
    """``(learning_rate - end_learning_rate) * (1 - step / decay_steps) ** power + end_learning_rate``.

    Args:
        learning_rate: the rate at first.
        decay_steps: over how many steps it falls; from there on it stays, unless `cycle`.
        end_learning_rate: the rate in the end.
        power: the power in the formula.
        cycle: begin again, a little lower each time: `decay_steps` is multiplied by the smallest integer that makes it at least
            the step.
        begin, step, dtype: see `LearningRateDecay`.

    >>> rate = dygraph.PolynomialDecay(0.1, decay_steps=2, end_learning_rate=0.0)
    >>> [round(rate(), 4) for _ in range(4)]
    [0.1, 0.05, 0.0, 0.0]
    """

    def __init__(
        self,
        learning_rate: float,
        decay_steps: float,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        begin: int = 0,
        step: int = 1,
        dtype: str = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        _positive(self, decay_steps=decay_steps)
        self.learning_rate, self.decay_steps, self.end_learning_rate = learning_rate, decay_steps, end_learning_rate
        self.power, self.cycle = power, cycle

    def step(self) -> float:
        if self.cycle:
            passed = self.step_num / (self.decay_steps * max(math.ceil(self.step_num / self.decay_steps), 1))
        else:
            passed = min(self.step_num / self.decay_steps, 1.0)
        return (self.learning_rate - self.end_learning_rate) * float((1 - passed) ** self.power) + self.end_learning_rate


@version_of(schedules.cosine_decay)
class CosineDecay(LearningRateDecay):
    """``learning_rate * 0.5 * (cos(epoch * pi / epochs) + 1)``, the epoch being step over `step_each_epoch`, rounded down.

    Source: Loshchilov and Hutter, SGDR: Stochastic gradient descent with warm restarts, 2017; without restarts.

    Args:
        learning_rate: the rate at first.
        step_each_epoch: how many steps an epoch has.
        epochs: after how many epochs it is 0.
        begin, step, dtype: see `LearningRateDecay`.

    >>> rate = dygraph.CosineDecay(0.1, step_each_epoch=1, epochs=4)
    >>> [round(rate(), 4) for _ in range(4)]
    [0.1, 0.0854, 0.05, 0.0146]
    """

    def __init__(
        self, learning_rate: float, step_each_epoch: float, epochs: float, begin: int = 0, step: int = 1, dtype: str = "float32"
    ) -> None:
        super().__init__(begin, step, dtype)
        _positive(self, step_each_epoch=step_each_epoch, epochs=epochs)
        self.learning_rate, self.step_each_epoch, self.epochs = learning_rate, step_each_epoch, epochs

    def step(self) -> float:
        epoch = math.floor(self.step_num / self.step_each_epoch)
        return self.learning_rate * 0.5 * (math.cos(epoch * math.pi / self.epochs) + 1)
