"""Samples of `fluid.ops.optimizer`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("optimizer")
RATE = np.array([0.1])
SHAPES = ((3, 4), (1,), (2, 3, 2), (0, 2))

for shape in SHAPES:
    add(
        "sgd",
        Sample(
            {"Param": data(*shape), "LearningRate": RATE, "Grad": data(*shape)},
            {},
            lambda Param, LearningRate, Grad: Param - LearningRate * Grad,
        ),
    )


def momentum(
    Param: Any,
    Grad: Any,
    Velocity: Any,
    LearningRate: Any,
    mu: float,
    use_nesterov: bool = False,
    regularization_method: str = "",
    regularization_coeff: float = 0.0,
    rescale_grad: float = 1.0,
) -> Any:
    g = Grad * rescale_grad + (regularization_coeff * Param if regularization_method == "l2_decay" else 0)
    v = mu * Velocity + g
    step = g + mu * v if use_nesterov else v
    return {key: value.astype(Param.dtype) for key, value in (("ParamOut", Param - LearningRate * step), ("VelocityOut", v))}


for attrs in (
    {"mu": 0.9},
    {"mu": 0.9, "use_nesterov": True},
    {"mu": 0.5, "regularization_method": "l2_decay", "regularization_coeff": 0.1},
    {"mu": 0.5, "rescale_grad": 0.5},
):
    for shape in SHAPES:
        inputs = {"Param": data(*shape), "Grad": data(*shape), "Velocity": data(*shape), "LearningRate": RATE}
        add("momentum", Sample(inputs, attrs, momentum))


def adam(
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    Moment1: Any,
    Moment2: Any,
    Beta1Pow: Any,
    Beta2Pow: Any,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> Any:
    m = beta1 * Moment1 + (1 - beta1) * Grad
    v = beta2 * Moment2 + (1 - beta2) * Grad * Grad
    rest = np.sqrt(1 - Beta2Pow)
    step = LearningRate * rest / (1 - Beta1Pow) * m / (np.sqrt(v) + epsilon * rest)
    return {
        "ParamOut": Param - step,
        "Moment1Out": m,
        "Moment2Out": v,
        "Beta1PowOut": Beta1Pow * beta1,
        "Beta2PowOut": Beta2Pow * beta2,
    }


for attrs in ({}, {"beta1": 0.5, "beta2": 0.75, "epsilon": 1e-3}):
    for shape in (*SHAPES, (100, 100)):  # the last is more than one cache-sized piece
        add(
            "adam",
            Sample(
                {
                    "Param": data(*shape),
                    "Grad": data(*shape),
                    "LearningRate": RATE,
                    "Moment1": data(*shape),
                    "Moment2": data(*shape, low=0.1),
                    "Beta1Pow": np.array([0.81]),
                    "Beta2Pow": np.array([0.998]),
                },
                attrs,
                adam,
                tolerance=10,
            ),
        )
