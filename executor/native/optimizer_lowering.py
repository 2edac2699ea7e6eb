"""Lowers the optimizers' updates of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..kernels.optimizer import TINY_DECAY
from .activation_lowering import chosen
from .emitter import FLOAT
from .graph import mapped, reduced, reshaped
from .lowering import NAMESPACE, GraphTensor, NotLowered, lowers, number_like, only_floats

f = NAMESPACE


def _number_for(tensor: GraphTensor, param: GraphTensor) -> GraphTensor:
    """Give a tensor of one element, such as a learning rate, the dimensions and precision of a parameter."""
    only_floats(tensor, param)
    node = reshaped(tensor.node, (1,) * param.ndim)
    same = node.element == param.node.element
    return GraphTensor(node if same else mapped("convert", node, element=param.node.element))


def _plain_update(*absent: Any) -> None:
    """Raise `NotLowered` if an update has unusual inputs, such as a master copy of higher precision."""
    if any(isinstance(value, GraphTensor) or value for value in absent):
        raise NotLowered("an update with further inputs")


def _one_minus(beta: float, like: GraphTensor) -> GraphTensor:
    """``1 - beta``, computed in the element type: for 0.999 in float32, it differs from 0.001 by 1.3e-5 of it."""
    number = np.float32 if like.node.element == FLOAT else np.float64
    return GraphTensor(number_like(float(number(1) - number(beta)), like.node))


def _average(mean: GraphTensor, value: GraphTensor, beta: float, one_minus_beta: GraphTensor | None = None) -> GraphTensor:
    """``beta * mean + one_minus_beta * value``; `one_minus_beta` is ``1 - beta`` by default."""
    return mean * beta + value * (1.0 - beta if one_minus_beta is None else one_minus_beta)


@lowers("sgd")
def sgd(Param: GraphTensor, LearningRate: GraphTensor, Grad: GraphTensor, MasterParam: GraphTensor | None) -> GraphTensor:
    _plain_update(MasterParam)
    only_floats(Param, Grad)
    return Param - Grad * _number_for(LearningRate, Param)


@lowers("momentum")
def momentum(
    Param: GraphTensor,
    Grad: GraphTensor,
    Velocity: GraphTensor,
    LearningRate: GraphTensor,
    MasterParam: GraphTensor | None,
    mu: float,
    use_nesterov: bool,
    regularization_method: str,
    regularization_coeff: float,
    rescale_grad: float,
    multi_precision: bool,
) -> dict[str, GraphTensor]:
    only_floats(Param, Grad, Velocity)
    _plain_update(MasterParam, multi_precision)
    gradient = Grad if rescale_grad == 1.0 else Grad * rescale_grad
    if regularization_method == "l2_decay":
        gradient = Param * regularization_coeff + gradient
    velocity = Velocity * mu + gradient
    step = velocity * mu + gradient if use_nesterov else velocity
    return {"ParamOut": Param - step * _number_for(LearningRate, Param), "VelocityOut": velocity}


@lowers("adam", "adamw")
def adam(
    Param: GraphTensor,
    Grad: GraphTensor,
    LearningRate: GraphTensor,
    Moment1: GraphTensor,
    Moment2: GraphTensor,
    Beta1Pow: GraphTensor,
    Beta2Pow: GraphTensor,
    MasterParam: GraphTensor | None,
    SkipUpdate: GraphTensor | None,
    Beta1Tensor: GraphTensor | None,
    Beta2Tensor: GraphTensor | None,
    EpsilonTensor: GraphTensor | None,
    attrs: dict[str, Any],
) -> dict[str, GraphTensor]:
    only_floats(Param, Grad, Moment1, Moment2)
    _plain_update(MasterParam, SkipUpdate, Beta1Tensor, Beta2Tensor, EpsilonTensor, attrs["multi_precision"])
    beta1, beta2 = attrs["beta1"], attrs["beta2"]
    rest1, rest2 = (1.0 - _number_for(power, Param) for power in (Beta1Pow, Beta2Pow))
    root, rate, param = f.sqrt(rest2), _number_for(LearningRate, Param), Param
    if attrs.get("with_decay"):
        rate = rate * attrs["lr_ratio"]
        param = Param * (1.0 - rate * attrs["coeff"])
    first = _average(Moment1, Grad, beta1, _one_minus(beta1, Grad))
    second = _average(Moment2, f.square(Grad), beta2, _one_minus(beta2, Grad))
    step = first / (f.sqrt(second) + root * attrs["epsilon"])
    results = {"ParamOut": param - step * (rate * root / rest1), "Moment1Out": first, "Moment2Out": second}
    return results | _raised(Beta1Pow, Beta2Pow, *((1.0, 1.0) if attrs["use_global_beta_pow"] else (beta1, beta2)))


def _raised(Beta1Pow: GraphTensor, Beta2Pow: GraphTensor, beta1: float, beta2: float) -> dict[str, GraphTensor]:
    """The powers of betas for the next step."""
    pairs = (("Beta1PowOut", Beta1Pow, beta1), ("Beta2PowOut", Beta2Pow, beta2))
    return {slot: GraphTensor(mapped("mul", power.node, number_like(beta, power.node))) for slot, power, beta in pairs}


@lowers("adamax")
def adamax(
    Param: GraphTensor,
    Grad: GraphTensor,
    LearningRate: GraphTensor,
    Moment: GraphTensor,
    InfNorm: GraphTensor,
    Beta1Pow: GraphTensor,
    MasterParam: GraphTensor | None,
    beta1: float,
    beta2: float,
    epsilon: float,
    multi_precision: bool,
) -> dict[str, GraphTensor]:
    only_floats(Param, Grad, Moment, InfNorm)
    _plain_update(MasterParam, multi_precision)
    rate = _number_for(LearningRate, Param) / (1.0 - _number_for(Beta1Pow, Param))
    moment = _average(Moment, Grad, beta1)
    norm = f.elementwise_max(InfNorm * beta2 + epsilon, f.abs(Grad))
    return {"ParamOut": Param - moment / norm * rate, "MomentOut": moment, "InfNormOut": norm}


@lowers("adagrad")
def adagrad(
    Param: GraphTensor,
    Grad: GraphTensor,
    Moment: GraphTensor,
    LearningRate: GraphTensor,
    MasterParam: GraphTensor | None,
    epsilon: float,
    multi_precision: bool,
) -> dict[str, GraphTensor]:
    _plain_update(MasterParam, multi_precision)
    return _by_root(Param, Grad, Moment + f.square(Grad), LearningRate, epsilon)


@lowers("decayed_adagrad")
def decayed_adagrad(
    Param: GraphTensor, Grad: GraphTensor, Moment: GraphTensor, LearningRate: GraphTensor, decay: float, epsilon: float
) -> dict[str, GraphTensor]:
    return _by_root(Param, Grad, _average(Moment, f.square(Grad), decay), LearningRate, epsilon)


def _by_root(
    Param: GraphTensor, Grad: GraphTensor, moment: GraphTensor, LearningRate: GraphTensor, epsilon: float
) -> dict[str, GraphTensor]:
    step = Grad / (f.sqrt(moment) + epsilon)
    return {"ParamOut": Param - step * _number_for(LearningRate, Param), "MomentOut": moment}


@lowers("adadelta")
def adadelta(
    Param: GraphTensor,
    Grad: GraphTensor,
    AvgSquaredGrad: GraphTensor,
    AvgSquaredUpdate: GraphTensor,
    LearningRate: GraphTensor | None,
    MasterParam: GraphTensor | None,
    rho: float,
    epsilon: float,
    multi_precision: bool,
) -> dict[str, GraphTensor]:
    only_floats(Param, Grad, AvgSquaredGrad, AvgSquaredUpdate)
    _plain_update(MasterParam, multi_precision)
    squares = _average(AvgSquaredGrad, f.square(Grad), rho)
    step = f.sqrt((AvgSquaredUpdate + epsilon) / (squares + epsilon)) * Grad
    return {
        "ParamOut": Param - (step if LearningRate is None else step * _number_for(LearningRate, Param)),
        "AvgSquaredGradOut": squares,
        "AvgSquaredUpdateOut": _average(AvgSquaredUpdate, f.square(step), rho),
    }


@lowers("rmsprop")
def rmsprop(
    Param: GraphTensor,
    MeanSquare: GraphTensor,
    Grad: GraphTensor,
    Moment: GraphTensor,
    LearningRate: GraphTensor,
    MeanGrad: GraphTensor | None,
    MasterParam: GraphTensor | None,
    epsilon: float,
    decay: float,
    momentum: float,
    centered: bool,
    multi_precision: bool,
) -> dict[str, GraphTensor]:
    only_floats(Param, MeanSquare, Grad, Moment)
    _plain_update(MasterParam, multi_precision)
    square = _average(MeanSquare, f.square(Grad), decay)
    results = {"MeanSquareOut": square}
    spread = square
    if centered:
        assert MeanGrad is not None, "inference asks for it"
        results["MeanGradOut"] = mean = _average(MeanGrad, Grad, decay)
        spread = square - f.square(mean)
    elif MeanGrad is not None:
        results["MeanGradOut"] = f.assign(MeanGrad)
    step = Grad / f.sqrt(spread + epsilon) * _number_for(LearningRate, Param)
    results["MomentOut"] = moment = Moment * momentum + step
    return results | {"ParamOut": Param - moment}


@lowers("ftrl")
def ftrl(
    Param: GraphTensor,
    SquaredAccumulator: GraphTensor,
    LinearAccumulator: GraphTensor,
    Grad: GraphTensor,
    LearningRate: GraphTensor,
    l1: float,
    l2: float,
    lr_power: float,
) -> dict[str, GraphTensor]:
    only_floats(Param, Grad, SquaredAccumulator, LinearAccumulator)
    rate = _number_for(LearningRate, Param)
    squared = SquaredAccumulator + f.square(Grad)
    before, after = (f.pow(value, factor=-lr_power) for value in (SquaredAccumulator, squared))
    linear = LinearAccumulator + Grad - (after - before) / rate * Param
    param = (f.clip(linear, min=-l1, max=l1) - linear) / (after / rate + 2.0 * (l2 + TINY_DECAY))
    return {"ParamOut": param, "SquaredAccumOut": squared, "LinearAccumOut": linear}


# ------------------------------------------------------------------------------------------------------- rates by norms
def _norm(tensor: GraphTensor) -> GraphTensor:
    """The Euclidean norm; keeps the number of dimensions."""
    return f.sqrt(GraphTensor(reduced("sum", mapped("square", tensor.node), range(tensor.ndim))))


def _ratio(above: GraphTensor, below: GraphTensor, *positive: GraphTensor) -> GraphTensor:
    """``above / below`` if all given numbers are positive, else 1."""
    usable = positive[0] > 0.0
    for number in positive[1:]:
        usable = f.logical_and(usable, number > 0.0)
    return chosen(usable, above / below, 1.0)


@lowers("lamb")
def lamb(
    Param: GraphTensor,
    Grad: GraphTensor,
    LearningRate: GraphTensor,
    Moment1: GraphTensor,
    Moment2: GraphTensor,
    Beta1Pow: GraphTensor,
    Beta2Pow: GraphTensor,
    MasterParam: GraphTensor | None,
    SkipUpdate: GraphTensor | None,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    always_adapt: bool,
    multi_precision: bool,
) -> dict[str, GraphTensor]:
    only_floats(Param, Grad, Moment1, Moment2)
    _plain_update(MasterParam, SkipUpdate, multi_precision)
    rest1, rest2 = (1.0 - _number_for(power, Param) for power in (Beta1Pow, Beta2Pow))
    first, second = _average(Moment1, Grad, beta1), _average(Moment2, f.square(Grad), beta2)
    direction = first / rest1 / (f.sqrt(second / rest2) + epsilon) + Param * weight_decay
    rate = _number_for(LearningRate, Param)
    if weight_decay != 0 or always_adapt:
        size, change = _norm(Param), _norm(direction)
        rate = rate * _ratio(size, change, size, change)
    results = {"ParamOut": Param - direction * rate, "Moment1Out": first, "Moment2Out": second}
    return results | _raised(Beta1Pow, Beta2Pow, beta1, beta2)


@lowers("lars_momentum")
def lars_momentum(
    Param: list[GraphTensor],
    Grad: list[GraphTensor],
    Velocity: list[GraphTensor],
    LearningRate: list[GraphTensor],
    MasterParam: Sequence[Any] | None,
    attrs: dict[str, Any],
) -> dict[str, list[GraphTensor]]:
    _plain_update(attrs["multi_precision"], *(MasterParam or ()))
    decays = attrs["lars_weight_decay"]
    decays = decays if len(decays) == len(Param) else decays * len(Param)
    params, velocities = [], []
    for param, gradient, velocity, rate, decay in zip(Param, Grad, Velocity, LearningRate, decays, strict=True):
        only_floats(param, gradient, velocity)
        factor = attrs["rescale_grad"]
        number = _number_for(rate, param)
        if decay > 0:
            size, slope = _norm(param), _norm(gradient) * factor
            number = number * _ratio(size * attrs["lars_coeff"], slope + size * decay + attrs["epsilon"], size, slope)
        velocity = velocity * attrs["mu"] + (gradient * factor + param * decay) * number
        params.append(param - velocity)
        velocities.append(velocity)
    return {"ParamOut": params, "VelocityOut": velocities}
