"""Samples of `fluid.ops.optimizer`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("optimizer")
RATE = np.array([0.1])
SHAPES = ((3, 4), (1,), (2, 3, 2), (0, 2))
LARGE = (100, 400)  # more than one cache-sized piece

for shape in SHAPES:
    add(
        "sgd",
        Sample(
            {"Param": data(*shape), "LearningRate": RATE, "Grad": data(*shape)},
            {},
            lambda Param, LearningRate, Grad: Param - LearningRate * Grad,
        ),
    )


def dpsgd(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """One number is added to all elements; apart from it the gradient is shrunk to the norm `clip`."""
    grad = inputs["Grad"]
    step = grad / max(1.0, np.linalg.norm(grad) / 2.0)
    noise = (inputs["Param"] - outputs["ParamOut"]) / RATE - step
    assert noise.size == 0 or (np.ptp(noise) < 1e-4 and 0 < abs(noise.flat[0]) < 5 * 3.0 / 4.0)


for shape in SHAPES:
    add(
        "dpsgd",
        Sample(
            {"Param": data(*shape), "Grad": data(*shape), "LearningRate": RATE},
            {"clip": 2.0, "batch_size": 4.0, "sigma": 3.0, "seed": 5},
            check=dpsgd,
            random=True,
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


def adam_inputs(*shape: int) -> dict[str, Any]:
    return {
        "Param": data(*shape),
        "Grad": data(*shape),
        "LearningRate": RATE,
        "Moment1": data(*shape),
        "Moment2": data(*shape, low=0.1),
        "Beta1Pow": np.array([0.81]),
        "Beta2Pow": np.array([0.998]),
    }


for attrs in ({}, {"beta1": 0.5, "beta2": 0.75, "epsilon": 1e-3}):
    for shape in (*SHAPES, LARGE):
        add("adam", Sample(adam_inputs(*shape), attrs, adam, tolerance=10))


def adamw(
    Param: Any, LearningRate: Any, lr_ratio: float = 1.0, coeff: float = 0.01, with_decay: bool = False, **others: Any
) -> Any:
    if with_decay:
        LearningRate = LearningRate * lr_ratio
        Param = Param * (1 - LearningRate * coeff)
    return adam(Param=Param, LearningRate=LearningRate, **others)


def lamb(
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    Moment1: Any,
    Moment2: Any,
    Beta1Pow: Any,
    Beta2Pow: Any,
    weight_decay: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    always_adapt: bool = False,
) -> Any:
    m = beta1 * Moment1 + (1 - beta1) * Grad
    v = beta2 * Moment2 + (1 - beta2) * Grad * Grad
    r = m / (1 - Beta1Pow) / (np.sqrt(v / (1 - Beta2Pow)) + epsilon) + weight_decay * Param
    size, change = np.sqrt((Param * Param).sum()), np.sqrt((r * r).sum())
    ratio = size / change if size > 0 and change > 0 and (weight_decay or always_adapt) else 1
    found = {"ParamOut": Param - LearningRate * ratio * r, "Moment1Out": m, "Moment2Out": v}
    return {**found, "Beta1PowOut": Beta1Pow * beta1, "Beta2PowOut": Beta2Pow * beta2}


def uncorrected_lamb(Beta1Pow: Any, Beta2Pow: Any, **others: Any) -> Any:
    found = lamb(Beta1Pow=0.0, Beta2Pow=0.0, always_adapt=True, **others)
    return {slot: found[slot] for slot in ("ParamOut", "Moment1Out", "Moment2Out")}


def adagrad(Param: Any, Grad: Any, Moment: Any, LearningRate: Any, epsilon: float = 1e-6) -> Any:
    m = Moment + Grad * Grad
    return {"ParamOut": Param - LearningRate * Grad / (np.sqrt(m) + epsilon), "MomentOut": m}


def decayed_adagrad(Param: Any, Grad: Any, Moment: Any, LearningRate: Any, decay: float = 0.95, epsilon: float = 1e-6) -> Any:
    m = decay * Moment + (1 - decay) * Grad * Grad
    return {"ParamOut": Param - LearningRate * Grad / (np.sqrt(m) + epsilon), "MomentOut": m}


def adadelta(
    Param: Any,
    Grad: Any,
    AvgSquaredGrad: Any,
    AvgSquaredUpdate: Any,
    LearningRate: Any,
    rho: float = 0.95,
    epsilon: float = 1e-6,
) -> Any:
    g = rho * AvgSquaredGrad + (1 - rho) * Grad * Grad
    update = Grad * np.sqrt((AvgSquaredUpdate + epsilon) / (g + epsilon))
    u = rho * AvgSquaredUpdate + (1 - rho) * update * update
    return {"ParamOut": Param - LearningRate * update, "AvgSquaredGradOut": g, "AvgSquaredUpdateOut": u}


def proximal_gd(Param: Any, Grad: Any, LearningRate: Any, l1: float = 0.0, l2: float = 0.0) -> Any:
    moved = Param - LearningRate * Grad
    nearer = np.where(np.abs(moved) > LearningRate * l1, moved - np.sign(moved) * LearningRate * l1, 0)
    return {"ParamOut": nearer / (1 + LearningRate * l2)}


def proximal_adagrad(Param: Any, Moment: Any, Grad: Any, LearningRate: Any, l1: float = 0.0, l2: float = 0.0) -> Any:
    moment = Moment + Grad**2
    return {**proximal_gd(Param, Grad / np.sqrt(moment), LearningRate, l1, l2), "MomentOut": moment}


def adamax(
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    Moment: Any,
    InfNorm: Any,
    Beta1Pow: Any,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> Any:
    m = beta1 * Moment + (1 - beta1) * Grad
    norm = np.maximum(beta2 * InfNorm + epsilon, np.abs(Grad))
    return {"ParamOut": Param - LearningRate / (1 - Beta1Pow) * m / norm, "MomentOut": m, "InfNormOut": norm}


def rmsprop(
    Param: Any,
    MeanSquare: Any,
    Grad: Any,
    Moment: Any,
    LearningRate: Any,
    MeanGrad: Any = None,
    epsilon: float = 1e-10,
    decay: float = 0.9,
    momentum: float = 0.0,
    centered: bool = False,
) -> Any:
    square = decay * MeanSquare + (1 - decay) * Grad * Grad
    mean = decay * MeanGrad + (1 - decay) * Grad if centered else MeanGrad
    m = momentum * Moment + LearningRate * Grad / np.sqrt(square + epsilon - (mean * mean if centered else 0))
    found = {"ParamOut": Param - m, "MomentOut": m, "MeanSquareOut": square}
    return found if mean is None else {**found, "MeanGradOut": mean}


def ftrl(
    Param: Any,
    SquaredAccumulator: Any,
    LinearAccumulator: Any,
    Grad: Any,
    LearningRate: Any,
    l1: float = 0.0,
    l2: float = 0.0,
    lr_power: float = -0.5,
) -> Any:
    squared = SquaredAccumulator + Grad * Grad
    linear = LinearAccumulator + Grad - (squared**-lr_power - SquaredAccumulator**-lr_power) / LearningRate * Param
    step = (np.sign(linear) * l1 - linear) / (squared**-lr_power / LearningRate + 2 * l2)
    return {"ParamOut": np.where(np.abs(linear) > l1, step, 0), "SquaredAccumOut": squared, "LinearAccumOut": linear}


def lars_momentum(
    Param: Any,
    Grad: Any,
    Velocity: Any,
    LearningRate: Any,
    mu: float,
    lars_coeff: float = 0.001,
    lars_weight_decay: Any = (0.0005,),
    epsilon: float = 0.0,
    rescale_grad: float = 1.0,
) -> Any:
    params, velocities = [], []
    decays = list(lars_weight_decay) * (len(Param) // len(lars_weight_decay))
    for p, grad, v, rate, decay in zip(Param, Grad, Velocity, LearningRate, decays, strict=True):
        g = rescale_grad * grad
        size, slope = np.sqrt((p * p).sum()), np.sqrt((g * g).sum())
        if decay > 0 and size > 0 and slope > 0:
            rate = rate * lars_coeff * size / (slope + decay * size + epsilon)
        velocities.append((mu * v + rate * (g + decay * p)).astype(p.dtype))
        params.append((p - velocities[-1]).astype(p.dtype))
    return {"ParamOut": params, "VelocityOut": velocities}


def nadam(
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    Moment1: Any,
    Moment2: Any,
    MomentumDecayPow: Any,
    Beta2Pow: Any,
    MuProduct: Any,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    momentum_decay: float = 0.004,
) -> Any:
    later = MomentumDecayPow * 0.96**momentum_decay
    mu, following = beta1 * (1 - 0.5 * MomentumDecayPow), beta1 * (1 - 0.5 * later)
    m, v = beta1 * Moment1 + (1 - beta1) * Grad, beta2 * Moment2 + (1 - beta2) * Grad * Grad
    product = MuProduct * mu
    root = np.sqrt(v / (1 - Beta2Pow)) + epsilon
    step = (1 - mu) / (1 - product) * Grad / root + following / (1 - product * following) * m / root
    outputs = {"ParamOut": Param - LearningRate * step, "Moment1Out": m, "Moment2Out": v, "MomentumDecayPowOut": later}
    outputs |= {"Beta2PowOut": Beta2Pow * beta2, "MuProductOut": product}
    return {slot: value.astype(Param.dtype) for slot, value in outputs.items()}


def radam(
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    Moment1: Any,
    Moment2: Any,
    Beta1Pow: Any,
    Beta2Pow: Any,
    Step: Any,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> Any:
    m, v = beta1 * Moment1 + (1 - beta1) * Grad, beta2 * Moment2 + (1 - beta2) * Grad * Grad
    most = 2 / (1 - beta2) - 1
    length = most - 2 * Step * Beta2Pow / (1 - Beta2Pow)
    step = m / (1 - Beta1Pow)
    if length > 5:
        r = np.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
        step = step * r * np.sqrt(1 - Beta2Pow) / (np.sqrt(v) + epsilon)
    outputs = {"ParamOut": Param - LearningRate * step, "Moment1Out": m, "Moment2Out": v, "StepOut": Step + 1}
    outputs |= {"Beta1PowOut": Beta1Pow * beta1, "Beta2PowOut": Beta2Pow * beta2}
    return {slot: value.astype(Param.dtype) for slot, value in outputs.items()}


def lion(
    Param: Any, Grad: Any, LearningRate: Any, Moment: Any, beta1: float = 0.9, beta2: float = 0.99, coeff: float = 0.0
) -> Any:
    step = np.sign(beta1 * Moment + (1 - beta1) * Grad)
    moment = beta2 * Moment + (1 - beta2) * Grad
    param = Param * (1 - LearningRate * coeff) - LearningRate * step
    return {"ParamOut": param.astype(Param.dtype), "MomentOut": moment.astype(Param.dtype)}


for shape in SHAPES:
    moments = {"Moment1": data(*shape), "Moment2": data(*shape, low=0.1)}
    gradient = {"Param": data(*shape), "Grad": data(*shape), "LearningRate": RATE}
    for attrs in ({}, {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.1, "momentum_decay": 0.5}):
        numbers = {"MomentumDecayPow": np.array([0.98]), "Beta2Pow": np.array([0.9]), "MuProduct": np.array([0.4])}
        add("nadam", Sample({**gradient, **moments, **numbers}, attrs, nadam, tolerance=10))
    for attrs, steps in (({}, 3), ({"beta2": 0.75, "epsilon": 0.1}, 1), ({"beta1": 0.5, "beta2": 0.9}, 20)):
        beta2 = attrs.get("beta2", 0.999)
        numbers = {"Beta1Pow": np.array([0.7]), "Beta2Pow": np.array([beta2**steps]), "Step": np.array([float(steps)])}
        add("radam", Sample({**gradient, **moments, **numbers}, attrs, radam, tolerance=20))
    for attrs in ({}, {"coeff": 0.1, "beta1": 0.5, "beta2": 0.75}):
        add("lion", Sample({**gradient, "Moment": data(*shape)}, attrs, lion, tolerance=10))


for shape in (*SHAPES, LARGE):
    for attrs in (
        {"coeff": 0.5},
        {"with_decay": True},
        {"with_decay": True, "coeff": 0.5, "lr_ratio": 0.3, "beta1": 0.5, "beta2": 0.75, "epsilon": 1e-3},
    ):
        add("adamw", Sample(adam_inputs(*shape), attrs, adamw, tolerance=10))
    for attrs in (
        {"weight_decay": 0.01},
        {"weight_decay": 0.0},
        {"weight_decay": 0.0, "always_adapt": True, "beta1": 0.5, "beta2": 0.75, "epsilon": 1e-3},
    ):
        add("lamb", Sample(adam_inputs(*shape), attrs, lamb, tolerance=10))
    for attrs in ({"weight_decay": 0.01}, {"weight_decay": 0.0, "beta1": 0.5, "beta2": 0.75, "epsilon": 1e-3}):
        add("uncorrected_lamb", Sample(adam_inputs(*shape), attrs, uncorrected_lamb, tolerance=10))

    for attrs in ({}, {"epsilon": 0.1}):
        given = {"Param": data(*shape), "Grad": data(*shape), "Moment": data(*shape, low=0.1), "LearningRate": RATE}
        add("adagrad", Sample(given, attrs, adagrad, tolerance=10))
    for attrs in ({}, {"decay": 0.5, "epsilon": 0.1}):
        given = {"Param": data(*shape), "Grad": data(*shape), "Moment": data(*shape, low=0.1), "LearningRate": RATE}
        add("decayed_adagrad", Sample(given, attrs, decayed_adagrad, tolerance=10))
    for attrs in ({}, {"rho": 0.5, "epsilon": 0.1}):
        given = {
            "Param": data(*shape),
            "Grad": data(*shape),
            "AvgSquaredGrad": data(*shape, low=0.1),
            "AvgSquaredUpdate": data(*shape, low=0.1),
            "LearningRate": RATE,
        }
        add("adadelta", Sample(given, attrs, adadelta, tolerance=10))
        given = {slot: value for slot, value in given.items() if slot != "LearningRate"}  # as in Paddle 1.x
        add("adadelta", Sample(given, attrs, lambda **of: adadelta(LearningRate=1.0, **of), tolerance=10))
    for attrs in ({}, {"l1": 0.5, "l2": 0.3}):
        given = {"Param": data(*shape), "Grad": data(*shape), "LearningRate": RATE}
        add("proximal_gd", Sample(given, attrs, proximal_gd, tolerance=10))
        given = {**given, "Moment": data(*shape, low=0.1)}
        add("proximal_adagrad", Sample(given, attrs, proximal_adagrad, tolerance=10))
    for attrs in ({}, {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.1}):
        given = {
            "Param": data(*shape),
            "Grad": data(*shape),
            "LearningRate": RATE,
            "Moment": data(*shape),
            "InfNorm": data(*shape, low=0.1),
            "Beta1Pow": np.array([0.81]),
        }
        add("adamax", Sample(given, attrs, adamax, tolerance=10))
    for attrs in ({}, {"decay": 0.5, "epsilon": 0.1, "momentum": 0.9}, {"centered": True, "momentum": 0.5, "decay": 0.5}):
        given = {
            "Param": data(*shape),
            "MeanSquare": data(*shape, low=0.5),
            "Grad": data(*shape),
            "Moment": data(*shape),
            "LearningRate": RATE,
        }
        if attrs:
            given["MeanGrad"] = data(*shape, low=-0.5, high=0.5)
        add("rmsprop", Sample(given, attrs, rmsprop, tolerance=10))
    for attrs in ({}, {"l1": 0.5, "l2": 0.25}, {"l1": 0.5, "lr_power": -0.75}):
        given = {
            "Param": data(*shape),
            "SquaredAccumulator": data(*shape, low=0.1),
            "LinearAccumulator": data(*shape),
            "Grad": data(*shape),
            "LearningRate": RATE,
        }
        add("ftrl", Sample(given, attrs, ftrl, tolerance=10))


def lars_inputs(*shapes: tuple[int, ...]) -> dict[str, Any]:
    found = {slot: [data(*shape) for shape in shapes] for slot in ("Param", "Grad", "Velocity")}
    return {**found, "LearningRate": [RATE * (i + 1) for i in range(len(shapes))]}


for attrs in (
    {"mu": 0.9},
    {"mu": 0.5, "lars_coeff": 0.1, "lars_weight_decay": [0.1], "epsilon": 0.1, "rescale_grad": 0.5},
    {"mu": 0.5, "lars_weight_decay": [0.0]},
):
    add("lars_momentum", *(Sample(lars_inputs(shape), attrs, lars_momentum, tolerance=10) for shape in (*SHAPES, LARGE)))
    add("lars_momentum", Sample(lars_inputs((3, 4), (5,)), attrs, lars_momentum, tolerance=10))
add(
    "lars_momentum",
    Sample(lars_inputs((3, 4), (5,)), {"mu": 0.9, "lars_weight_decay": [0.1, 0.0]}, lars_momentum, tolerance=10),
    Sample({**lars_inputs((3, 4)), "Param": [np.zeros((3, 4))]}, {"mu": 0.9}, lars_momentum, tolerance=10),
    Sample(
        lars_inputs((3, 4)),
        {"mu": 0.9, "lars_weight_decay": 0.1},
        lambda lars_weight_decay, **of: lars_momentum(lars_weight_decay=[0.1], **of),
        tolerance=10,
    ),
)
