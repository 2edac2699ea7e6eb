"""Random optimizers, with weight decay, gradient clips and schedules of learning rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fluid
from fluid import clip, layers, optimizer, regularizer
from fluid.ir.program import Variable

from .choices import Choices

__all__ = ["OPTIMIZERS", "minimize"]

Make = Callable[..., Any]

OPTIMIZERS: dict[str, Make] = {
    "SGD": optimizer.SGD,
    "Momentum": lambda rate, **more: optimizer.Momentum(rate, 0.9, **more),
    "Nesterov": lambda rate, **more: optimizer.Momentum(rate, 0.9, use_nesterov=True, **more),
    "Adagrad": optimizer.Adagrad,
    "DecayedAdagrad": optimizer.DecayedAdagrad,
    "Adam": optimizer.Adam,
    "AdamW": lambda rate, **more: optimizer.AdamW(rate, weight_decay=0.05, **more),
    "lazy Adam": lambda rate, **more: optimizer.Adam(rate, lazy_mode=True, **more),
    "Adamax": optimizer.Adamax,
    "Adadelta": lambda rate, **more: optimizer.Adadelta(rate, epsilon=1e-3, **more),
    "RMSProp": optimizer.RMSProp,
    "centered RMSProp": lambda rate, **more: optimizer.RMSProp(rate, centered=True, momentum=0.5, **more),
    "Ftrl": optimizer.Ftrl,
    "Ftrl with thresholds": lambda rate, **more: optimizer.Ftrl(rate, l1=0.01, l2=0.01, **more),
    "Lamb": optimizer.Lamb,
    "LarsMomentum": lambda rate, **more: optimizer.LarsMomentum(rate, 0.9, **more),
}

DECAYS: list[Callable[[], Any]] = [lambda: regularizer.L2Decay(0.01), lambda: regularizer.L1Decay(0.005)]
CLIPS: list[Callable[[], Any]] = [
    lambda: clip.GradientClipByValue(0.05),
    lambda: clip.GradientClipByNorm(0.1),
    lambda: clip.GradientClipByGlobalNorm(0.2),
]
SCHEDULES: list[Callable[[], Variable]] = [
    lambda: layers.exponential_decay(0.05, 10, 0.5),
    lambda: layers.natural_exp_decay(0.05, 10, 0.5),
    lambda: layers.inverse_time_decay(0.05, 10, 0.5, staircase=True),
    lambda: layers.polynomial_decay(0.05, 10, 0.001, power=2.0),
    lambda: layers.cosine_decay(0.05, 10, 5),
    lambda: layers.noam_decay(64, 10),
    lambda: layers.piecewise_decay([1, 3], [0.05, 0.02, 0.01]),
    lambda: layers.linear_lr_warmup(0.05, 3, 0.001, 0.05),
]


def minimize(choices: Choices, loss: Variable, dtype: str) -> None:
    """Append the backward part and updates by a random optimizer."""
    make, more = choices.pick(list(OPTIMIZERS.values())), {}
    rate: Any = choices.pick((0.01, 0.1, 0.001))
    if choices.chance(35):
        more["regularization"] = choices.pick(DECAYS)()
    if choices.chance(35):
        limit = choices.pick(CLIPS)()
        if choices.chance(50):
            clip.set_gradient_clip(limit)
        else:
            more["grad_clip"] = limit
    if choices.chance(12) and dtype == "float32":
        rate = choices.pick(SCHEDULES)()
    chosen = make(rate, **more)
    if choices.chance(6):
        chosen = fluid.training.GradientAccumulation(chosen, 2)
    chosen.minimize(loss)
    if choices.chance(8):
        fluid.optimizer.ExponentialMovingAverage(0.9).update()


def parameter_attr(choices: Choices) -> Any:
    """Attributes of a parameter: mostly none, now and then a rate, a decay or a clip of its own."""
    if not choices.chance(15):
        return None
    kind = choices.below(4)
    return fluid.ParamAttr(
        learning_rate=0.5 if kind == 0 else 1.0,
        regularizer=choices.pick(DECAYS)() if kind == 1 else None,
        gradient_clip=choices.pick(CLIPS)() if kind == 2 else None,
        initializer=fluid.initializer.Constant(0.05) if kind == 3 else None,
    )
