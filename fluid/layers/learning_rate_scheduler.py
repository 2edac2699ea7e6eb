"""Learning rates that change from run to run, computed by ops of the program.

The program counts its runs in the variable ``@LR_DECAY_COUNTER@``, ``step`` in the formulas. It is 0 in the first run (1 for
`noam_decay`); schedules of one program share the counter, which the first of them initializes.
``program.clone(for_test=True)`` leaves out the ops of schedules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, ParamSpec

from .. import unique_name
from ..building.layer_helper import LayerHelper
from ..building.versions import builds
from ..errors import ProgramError
from ..initializer import Constant
from ..ir.program import OpRole, Variable, default_main_program
from . import ops
from .control_flow import Switch
from .tensor import assign, cast, create_global_var, fill_constant

__all__ = [
    "autoincreased_step_counter",
    "cosine_decay",
    "exponential_decay",
    "inverse_time_decay",
    "linear_lr_warmup",
    "natural_exp_decay",
    "noam_decay",
    "piecewise_decay",
    "polynomial_decay",
]

COUNTER = "@LR_DECAY_COUNTER@"

Arguments = ParamSpec("Arguments")
Rate = float | Variable


@builds
def autoincreased_step_counter(counter_name: str | None = None, begin: int = 1, step: int = 1) -> Variable:
    """The number of the current run, int64 of shape [1]: `begin` in the first run, and one more in each later one.

    Args:
        counter_name: name of the persistable variable, by default ``@STEP_COUNTER@``. Calls with the same name share one counter,
            and only the first call's `begin` and `step` count.
        begin: the number in the first run.
        step: added in each run instead of 1; the first number is ``begin - 1 + step``.

    >>> step = layers.autoincreased_step_counter()
    >>> executor = fluid.Executor()
    >>> _ = executor.run(fluid.default_startup_program())
    >>> [executor.run(fetch_list=[step])[0].item() for _ in range(3)]
    [1, 2, 3]
    """
    helper = LayerHelper("global_step_counter")
    name = counter_name if counter_name is not None else "@STEP_COUNTER@"
    root = helper.main_program.global_block()
    if root.has_var(name):
        return root.var(name)
    counter = helper.create_global_variable(name=name, dtype="int64", shape=[1], persistable=True, stop_gradient=True)
    helper.set_variable_initializer(counter, Constant(begin - 1, force_cpu=True))
    # The first op, so that all ops of a run read the same number.
    root.prepend_op("increment", inputs={"X": counter}, outputs={"Out": counter}, attrs={"step": float(step)})
    return counter


def _schedule(build: Callable[Arguments, Variable]) -> Callable[Arguments, Variable]:
    """`build`, whose ops get the role of learning rate schedules."""

    @builds
    @wraps(build)
    def scheduled(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Variable:
        with default_main_program().role_guard(OpRole.LR_SCHED):
            return build(*args, **kwargs)

    return scheduled


def _decay_step_counter(begin: int = 0) -> Variable:
    """The step as float32."""
    return cast(autoincreased_step_counter(COUNTER, begin), "float32")


def _positive(schedule: str, **numbers: Any) -> None:
    for name, number in numbers.items():
        if isinstance(number, Variable) or not number > 0:
            raise ProgramError(f"{schedule}: {name} should be a number greater than 0, not {number!r}")


def _periods(schedule: str, decay_steps: float, staircase: bool) -> Variable:
    """``step / decay_steps``, rounded down if `staircase`."""
    _positive(schedule, decay_steps=decay_steps)
    periods: Variable = _decay_step_counter() / decay_steps
    return ops.floor(periods) if staircase else periods


def _rate_variable(name: str) -> Variable:
    """The variable that the cases of a schedule write to."""
    if default_main_program().global_block().has_var(name):
        name = unique_name.generate(name)
    return create_global_var([1], 0.0, "float32", persistable=True, name=name)


@_schedule
def exponential_decay(learning_rate: Rate, decay_steps: float, decay_rate: float, staircase: bool = False) -> Variable:
    """``learning_rate * decay_rate ** (step / decay_steps)``, float32 [1].

    Args:
        learning_rate: the first rate, a number or a float32 variable of one element.
        decay_steps: after this number of runs, the rate has been multiplied by `decay_rate`; above 0.
        decay_rate: the factor.
        staircase: whether the quotient is rounded down.

    >>> rate = layers.exponential_decay(0.1, decay_steps=2, decay_rate=0.5, staircase=True)
    >>> executor = fluid.Executor()
    >>> _ = executor.run(fluid.default_startup_program())
    >>> [round(executor.run(fetch_list=[rate])[0].item(), 4) for _ in range(4)]
    [0.1, 0.1, 0.05, 0.05]
    """
    rate: Variable = learning_rate * decay_rate ** _periods("exponential_decay", decay_steps, staircase)
    return rate


@_schedule
def natural_exp_decay(learning_rate: Rate, decay_steps: float, decay_rate: float, staircase: bool = False) -> Variable:
    """``learning_rate * exp(-decay_rate * (step / decay_steps))``, float32 [1].

    Args:
        learning_rate: the first rate, a number or a float32 variable of one element.
        decay_steps: after this number of runs, the rate has been multiplied by ``exp(-decay_rate)``; above 0.
        decay_rate: the negative logarithm of the factor.
        staircase: whether the quotient is rounded down.

    >>> rate = layers.natural_exp_decay(0.1, decay_steps=1, decay_rate=0.5)
    >>> executor = fluid.Executor()
    >>> _ = executor.run(fluid.default_startup_program())
    >>> [round(executor.run(fetch_list=[rate])[0].item(), 4) for _ in range(4)]
    [0.1, 0.0607, 0.0368, 0.0223]
    """
    rate: Variable = learning_rate * ops.exp(-decay_rate * _periods("natural_exp_decay", decay_steps, staircase))
    return rate


@_schedule
def inverse_time_decay(learning_rate: Rate, decay_steps: float, decay_rate: float, staircase: bool = False) -> Variable:
    """``learning_rate / (1 + decay_rate * step / decay_steps)``, float32 [1].

    Args:
        learning_rate: the first rate, a number or a float32 variable of one element.
        decay_steps: after this number of runs, the divisor has grown by `decay_rate`; above 0.
        decay_rate: how much it grows.
        staircase: whether the quotient is rounded down.

    >>> rate = layers.inverse_time_decay(0.1, decay_steps=1, decay_rate=1.0)
    >>> executor = fluid.Executor()
    >>> _ = executor.run(fluid.default_startup_program())
    >>> [round(executor.run(fetch_list=[rate])[0].item(), 4) for _ in range(4)]
    [0.1, 0.05, 0.0333, 0.025]
    """
    rate: Variable = learning_rate / (1.0 + decay_rate * _periods("inverse_time_decay", decay_steps, staircase))
    return rate


@_schedule
def polynomial_decay(
    learning_rate: Rate, decay_steps: float, end_learning_rate: Rate = 0.0001, power: float = 1.0, cycle: bool = False
) -> Variable:
    """A decay from `learning_rate` to `end_learning_rate`, float32 of shape [1]::

        (learning_rate - end_learning_rate) * (1 - step / decay_steps) ** power + end_learning_rate

    Args:
        learning_rate: the first rate, a number or a float32 variable of one element.
        decay_steps: number of runs that the decay takes, above 0; later steps count as this one.
        end_learning_rate: the last rate, in the same forms.
        power: the exponent; 1 makes the decay linear.
        cycle: whether, instead, the smallest multiple of `decay_steps` not below step takes its place.

    >>> rate = layers.polynomial_decay(0.1, decay_steps=2, end_learning_rate=0.02)
    >>> executor = fluid.Executor()
    >>> _ = executor.run(fluid.default_startup_program())
    >>> [round(executor.run(fetch_list=[rate])[0].item(), 4) for _ in range(4)]
    [0.1, 0.06, 0.02, 0.02]
    """
    _positive("polynomial_decay", decay_steps=decay_steps)
    step = _decay_step_counter()
    one = fill_constant([1], "float32", 1.0)
    if cycle:
        passed = step / (decay_steps * ops.elementwise_max(ops.ceil(step / decay_steps), one))
    else:
        passed = ops.elementwise_min(step / decay_steps, one)
    rate: Variable = (learning_rate - end_learning_rate) * (1.0 - passed) ** power + end_learning_rate
    return rate


@_schedule
def piecewise_decay(boundaries: Sequence[float], values: Sequence[float]) -> Variable:
    """``values[i]``, where i is the number of `boundaries` that step has reached: float32 of shape [1].

    Args:
        boundaries: steps, in increasing order.
        values: learning rates, one more than `boundaries`.

    Raises:
        ProgramError: if there is not one more value, or `boundaries` do not increase.

    >>> rate = layers.piecewise_decay(boundaries=[1, 3], values=[0.1, 0.01, 0.001])
    >>> executor = fluid.Executor()
    >>> _ = executor.run(fluid.default_startup_program())
    >>> [round(executor.run(fetch_list=[rate])[0].item(), 4) for _ in range(4)]
    [0.1, 0.01, 0.01, 0.001]
    """
    if len(values) != len(boundaries) + 1 or not boundaries:
        counts = f"{len(boundaries)} boundaries and {len(values)} values"
        raise ProgramError(f"piecewise_decay: there should be boundaries, and one more of values; there are {counts}")
    if any(not low < high for low, high in pairwise(boundaries)):
        raise ProgramError(f"piecewise_decay: boundaries should increase, not be {list(boundaries)}")
    step = _decay_step_counter()
    rate = _rate_variable("learning_rate")
    with Switch() as switch:
        for boundary, value in zip(boundaries, values, strict=False):
            with switch.case(step < fill_constant([1], "float32", float(boundary), force_cpu=True)):
                fill_constant([1], "float32", float(value), out=rate)
        with switch.default():
            fill_constant([1], "float32", float(values[-1]), out=rate)
    return rate


@_schedule
def noam_decay(d_model: float, warmup_steps: float, learning_rate: Rate = 1.0) -> Variable:
    """``learning_rate * d_model ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)``, float32 of shape [1].

    It rises until step is `warmup_steps`, then falls. The first step is 1.

    Formula: Vaswani et al., Attention Is All You Need, 2017.

    Args:
        d_model: number of features of the model, above 0.
        warmup_steps: number of first runs, while the rate rises; above 0.
        learning_rate: a factor, a number or a float32 variable of one element.

    >>> rate = layers.noam_decay(d_model=4, warmup_steps=2)
    >>> executor = fluid.Executor()
    >>> _ = executor.run(fluid.default_startup_program())
    >>> [round(executor.run(fetch_list=[rate])[0].item(), 4) for _ in range(4)]
    [0.1768, 0.3536, 0.2887, 0.25]
    """
    _positive("noam_decay", d_model=d_model, warmup_steps=warmup_steps)
    step = _decay_step_counter(1)
    rate: Variable = learning_rate * (d_model**-0.5 * ops.elementwise_min(step**-0.5, step * warmup_steps**-1.5))
    return rate


@_schedule
def cosine_decay(learning_rate: Rate, step_each_epoch: float, epochs: float) -> Variable:
    """``learning_rate * 0.5 * (cos(epoch * pi / epochs) + 1)``, float32 of shape [1].

    The epoch is ``step / step_each_epoch``, rounded down.

    Formula: Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017; without restarts.

    Args:
        learning_rate: the first rate, a number or a float32 variable of one element.
        step_each_epoch: number of runs in an epoch, above 0.
        epochs: number of epochs after which the rate is 0, above 0.

    >>> rate = layers.cosine_decay(0.1, step_each_epoch=1, epochs=4)
    >>> executor = fluid.Executor()
    >>> _ = executor.run(fluid.default_startup_program())
    >>> [round(executor.run(fetch_list=[rate])[0].item(), 4) for _ in range(4)]
    [0.1, 0.0854, 0.05, 0.0146]
    """
    _positive("cosine_decay", step_each_epoch=step_each_epoch, epochs=epochs)
    epoch = ops.floor(_decay_step_counter() / step_each_epoch)
    rate: Variable = learning_rate * (0.5 * (ops.cos(epoch * (math.pi / epochs)) + 1.0))
    return rate


@_schedule
def linear_lr_warmup(learning_rate: Rate, warmup_steps: float, start_lr: float, end_lr: float) -> Variable:
    """``start_lr + (end_lr - start_lr) * step / warmup_steps`` before step `warmup_steps`, then `learning_rate`: float32 [1].

    Args:
        learning_rate: the rate after the warm-up, a number or another schedule.
        warmup_steps: number of runs that the warm-up takes, above 0.
        start_lr: the rate at the beginning of the warm-up.
        end_lr: the rate at its end.

    >>> rate = layers.linear_lr_warmup(0.1, warmup_steps=2, start_lr=0.0, end_lr=0.1)
    >>> executor = fluid.Executor()
    >>> _ = executor.run(fluid.default_startup_program())
    >>> [round(executor.run(fetch_list=[rate])[0].item(), 4) for _ in range(4)]
    [0.0, 0.05, 0.1, 0.1]
    """
    _positive("linear_lr_warmup", warmup_steps=warmup_steps)
    step = _decay_step_counter()
    rate = _rate_variable("learning_rate_warmup")
    with Switch() as switch:
        with switch.case(step < fill_constant([1], "float32", float(warmup_steps), force_cpu=True)):
            assign(start_lr + (end_lr - start_lr) / warmup_steps * step, rate)
        with switch.default():
            if isinstance(learning_rate, Variable):
                assign(learning_rate, rate)
            else:
                fill_constant([1], "float32", float(learning_rate), out=rate)
    return rate
