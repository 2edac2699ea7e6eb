"""Samples of `fluid.ops.merged`: optimizers over lists in plain numpy, and ops of training loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("merged")


def momentum(param: Any, grad: Any, velocity: Any, rate: Any, decay: float, mu: float, nesterov: bool, scale: float) -> Any:
    grad = grad * scale + decay * param
    velocity = mu * velocity + grad
    return param - rate * (grad + mu * velocity if nesterov else velocity), velocity


def momenta(Param: Any, Grad: Any, Velocity: Any, LearningRate: Any, mu: float, **attrs: Any) -> Any:
    made = []
    for place in range(len(Param)):
        rate = LearningRate[place % len(LearningRate)]
        decays = attrs.get("regularization_method", [""] * len(Param))[place] == "l2_decay"
        decay = attrs["regularization_coeff"][place] if decays else 0.0
        more = (mu, attrs.get("use_nesterov", False), attrs.get("rescale_grad", 1.0))
        made.append(momentum(Param[place], Grad[place], Velocity[place], rate, decay, *more))
    return {"ParamOut": [one for one, _ in made], "VelocityOut": [other for _, other in made]}


def listed(count: int = 2) -> dict[str, Any]:
    return {name: [data(2, 3), data(4)][:count] for name in ("Param", "Grad", "Velocity")}


add(
    "merged_momentum",
    Sample({**listed(), "LearningRate": [np.array([0.1])]}, {"mu": 0.9}, momenta, orders=0),
    Sample(
        {**listed(), "LearningRate": [np.array([0.1]), np.array([0.2])]},
        {
            "mu": 0.8,
            "use_nesterov": True,
            "rescale_grad": 0.5,
            "regularization_method": ["", "l2_decay"],
            "regularization_coeff": [0.0, 0.3],
        },
        momenta,
        orders=0,
    ),
)


def some_rows(Param: Any, Grad: Any, Velocity: Any, Index: Any, LearningRate: Any, mu: float, axis: int = 0, **attrs: Any) -> Any:
    whole = np.zeros_like(Param)
    np.add.at(whole, (Index,) if axis == 0 else (slice(None), Index), Grad)
    decay = attrs.get("regularization_coeff", 0.0) if attrs.get("regularization_method") == "l2_decay" else 0.0
    param, velocity = momentum(Param, whole, Velocity, LearningRate, decay, mu, False, 1.0)
    return {"ParamOut": param, "VelocityOut": velocity}


TABLE = {"Param": data(4, 3), "Velocity": data(4, 3), "LearningRate": np.array([0.1])}
DECAY = {"regularization_method": "l2_decay", "regularization_coeff": 0.2}
add(
    "sparse_momentum",
    Sample({**TABLE, "Grad": data(2, 3), "Index": np.array([3, 1])}, {"mu": 0.9}, some_rows, orders=0),
    Sample({**TABLE, "Grad": data(4, 2), "Index": np.array([2, 0])}, {"mu": 0.9, "axis": 1, **DECAY}, some_rows, orders=0),
)


def adams(names: tuple[str, ...], grads: str) -> Any:
    def reference(beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, **given: Any) -> Any:
        rates, made = given["LearningRate"], []
        for place, (param, first, second, power1, power2) in enumerate(zip(*(given[name] for name in names), strict=True)):
            rate = rates[place % len(rates)] if isinstance(rates, list) else rates
            grad = given[grads][place]
            if given.get("use_adamw"):
                param = param * (1 - rate * given["weight_decay"])
            first, second = beta1 * first + (1 - beta1) * grad, beta2 * second + (1 - beta2) * grad**2
            root = np.sqrt(1 - power2)
            param = param - rate * root / (1 - power1) * first / (np.sqrt(second) + epsilon * root)
            kept = given.get("use_global_beta_pow")
            made.append((param, first, second, power1 if kept else power1 * beta1, power2 if kept else power2 * beta2))
        return {name + "Out": [items[at] for items in made] for at, name in enumerate(names)}

    return reference


def states(plural: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    names = ("Param" + plural, "Moment" + plural + "1", "Moment" + plural + "2", "Beta1Pow" + plural, "Beta2Pow" + plural)
    shapes = ((2, 3), (4,))
    values = {names[0]: [data(*shape) for shape in shapes], "Grad" + plural: [data(*shape) for shape in shapes]}
    values |= {name: [data(*shape) ** 2 for shape in shapes] for name in names[1:3]}
    return names, values | {names[3]: [np.array([0.9])] * 2, names[4]: [np.array([0.999])] * 2}


names, values = states("")
add(
    "merged_adam",
    Sample({**values, "LearningRate": [np.array([0.1])]}, {}, adams(names, "Grad"), orders=0, tolerance=10),
    Sample(
        {**values, "LearningRate": [np.array([0.1]), np.array([0.2])]},
        {"beta1": 0.8, "use_global_beta_pow": True},
        adams(names, "Grad"),
        orders=0,
        tolerance=10,
    ),
)
names, values = states("s")
rate = {"LearningRate": np.array([0.1])}
decays = {"use_adamw": True, "weight_decay": 0.3}
add(
    "fused_adam",
    Sample({**values, **rate}, {}, adams(names, "Grads"), orders=0, tolerance=10),
    Sample({**values, **rate}, decays, adams(names, "Grads"), orders=0, tolerance=10),
)


def rate_of(LearningRate: Any, Step: Any, warmup_steps: int, total_steps: int, base_lr: float, end_lr: float) -> Any:
    step = Step[0] + 1
    if step <= warmup_steps:
        now = base_lr * step / warmup_steps
    elif step < total_steps:
        now = (base_lr - end_lr) * ((total_steps - step) / (total_steps - warmup_steps)) ** 2 + end_lr
    else:
        now = end_lr
    return {"LearningRateOut": np.full_like(LearningRate, now), "StepOut": Step + 1}


for step in (1, 3, 6, 30):
    schedule = {"warmup_steps": 4, "total_steps": 12, "base_lr": 0.8, "end_lr": 0.1}
    inputs = {"LearningRate": np.array([0.5]), "Step": np.array([step])}
    add("pow2_decay_with_linear_warmup", Sample(inputs, schedule, rate_of, orders=0))

# --------------------------------------------------------------------------------------------------------- losses, parts
for reduction, function in ((0, np.sum), (1, np.mean), (2, lambda x: x)):
    sample = Sample(
        {"X": data(2, 3)},
        {"reduction": reduction},
        lambda X, reduction, function=function: np.asarray(function(X)).reshape(X.shape if reduction == 2 else 1),
    )
    add("identity_loss", sample)
add(
    "batch_fc",
    Sample(
        {"Input": data(2, 3, 4), "W": data(2, 4, 5), "Bias": data(2, 5)}, {}, lambda Input, W, Bias: Input @ W + Bias[:, None]
    ),
)


def with_margin(Logits: Any, Label: Any, margin1: float = 1.0, margin2: float = 0.5, margin3: float = 0.0, scale: float = 64.0):
    rows, label = np.arange(len(Logits)), Label.reshape(-1)
    scores = Logits.copy()
    scores[rows, label] = np.cos(margin1 * np.arccos(Logits[rows, label]) + margin2) - margin3
    scores = scores * scale
    scores = scores - scores.max(1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return {"Softmax": np.exp(logs), "Loss": -logs[rows, label][:, None]}


for shape in ((4,), (4, 1)):
    inputs = {"Logits": data(4, 5, low=-0.9, high=0.9), "Label": data.ints(*shape, high=5)}
    margins = {"margin1": 0.9, "margin2": 0.3, "margin3": 0.1, "scale": 4.0}
    add("margin_cross_entropy", Sample(inputs, margins, with_margin, wrt=["Logits"], tolerance=10))

PAIR = {"x": data(2, 3), "y": data(2, 3)}
add(
    "fused_dropout_add",
    Sample(PAIR, {"p": 0.3, "is_test": True}, lambda x, y, **_: {"out": x + y}),
    Sample(PAIR, {"p": 0.3, "is_test": True, "mode": "downgrade_in_infer"}, lambda x, y, **_: {"out": x * 0.7 + y}),
    Sample(PAIR, {"p": 0.0}, lambda x, y, **_: {"out": x + y}),
)


def normal(X: Any, Residual: Any, Bias: Any = 0, LnScale: Any = 1, LnBias: Any = 0, dropout_rate: float = 0.5, **_: Any) -> Any:
    x = (X + Bias) * (1 - dropout_rate) + Residual
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * LnScale + LnBias
    made = {"LnMean": x.mean(-1).reshape(-1), "LnVariance": x.var(-1).reshape(-1)}
    return {"Y": y, "BiasDropoutResidualOut": x, "DropoutMaskOut": np.ones(x.shape, "uint8"), **made}


ROWS = {"X": data(2, 3, 4), "Residual": data(2, 3, 4)}
AFFINE = {"Bias": data(4), "LnScale": data(4), "LnBias": data(4)}
op_type = "fused_bias_dropout_residual_layer_norm"
add(op_type, Sample(ROWS, {"dropout_rate": 0.0}, normal, tolerance=10))
add(op_type, Sample({**ROWS, **AFFINE}, {"dropout_rate": 0.4, "is_test": True}, normal, tolerance=10))
