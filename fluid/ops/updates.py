"""The updates of `fluid.ops.optimizer` as formulas: the next values of a parameter and of the optimizer's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .formulas import as_type_of, at_least, choose

TINY_DECAY = 1e-10
"""Added to the decay of `ftrl`, so that parameters without any gradient so far become 0, not 0 / 0."""
NADAM_BASE = 0.96
"""The momentum of `nadam` comes closer to `beta1` by powers of this number."""


class _Update:
    """The inputs that all updates have, in the parameter's element type.

    Attributes:
        param: the parameter; with `multi_precision`, its more precise copy.
        grad, rate: the gradient and the learning rate.
    """

    def __init__(self, f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> None:
        self.f, self.values = f, values
        self._master = values.get("MasterParam") if attrs.get("multi_precision") else None
        self.param = values["Param"] if self._master is None else self._master
        self.grad = as_type_of(self.param, values["Grad"])
        self.rate = self.number("LearningRate") if values.get("LearningRate") is not None else None

    def number(self, slot: str) -> Any:
        """An input of one element, of shape [1]."""
        value = as_type_of(self.param, self.values[slot])
        return value if tuple(value.shape) == (1,) else self.f.reshape(value, shape=[1])

    def one_minus(self, beta: float) -> float:
        """``1 - beta``, computed in the element type: for 0.999 in float32, it differs from 0.001 by 1.3e-5 of it."""
        number = self.param.dtype.numpy.type
        return float(number(1) - number(beta)) if number(1).itemsize >= 4 else 1.0 - beta

    def average(self, mean: Any, value: Any, beta: float, weight: float | None = None) -> Any:
        """``beta * mean + weight * value``; the weight is ``1 - beta`` by default."""
        return mean * beta + value * (1.0 - beta if weight is None else weight)

    def results(self, param: Any, **state: Any) -> dict[str, Any]:
        """The outputs by slot; nothing changes where SkipUpdate is true."""
        values = self.values
        outputs = {"ParamOut": as_type_of(values["Param"], param), **state}
        if values.get("MasterParam") is not None:
            outputs["MasterParamOut"] = param if self._master is not None else self.f.assign(values["MasterParam"])
        skip = values.get("SkipUpdate")
        if skip is not None:
            for slot, value in outputs.items():
                skips = self.f.expand_to(self.f.reshape(skip, shape=[1]), value)
                outputs[slot] = self.f.where(skips, values[slot.removesuffix("Out")], value)
        return outputs


def _norm(f: Any, tensor: Any) -> Any:
    """The Euclidean norm, of shape [1]."""
    return f.reshape(f.sqrt(f.reduce_sum(f.square(tensor), reduce_all=True)), shape=[1])


def _ratio(f: Any, above: Any, below: Any, one: Any, two: Any) -> Any:
    """``above / below`` if both `one` and `two` are positive, else 1."""
    return choose(f, f.logical_and(one > 0.0, two > 0.0), above / below, 1.0)


def sgd(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update = _Update(f, values, attrs)
    return update.results(update.param - update.grad * update.rate)


def momentum(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update = _Update(f, values, attrs)
    gradient = update.grad if attrs["rescale_grad"] == 1.0 else update.grad * attrs["rescale_grad"]
    if attrs["regularization_method"] == "l2_decay":
        gradient = update.param * attrs["regularization_coeff"] + gradient
    velocity = values["Velocity"] * attrs["mu"] + gradient
    step = velocity * attrs["mu"] + gradient if attrs["use_nesterov"] else velocity
    return update.results(update.param - step * update.rate, VelocityOut=velocity)


def adam(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update = _Update(f, values, attrs)

    def setting(name: str) -> tuple[Any, Any]:
        """A beta, or epsilon, and 1 minus it: numbers, or tensors where an input holds it."""
        slot = f"{name.capitalize()}Tensor"
        if values.get(slot) is None:
            return attrs[name], update.one_minus(attrs[name])
        number = update.number(slot)
        return number, 1.0 - number

    (beta1, weight1), (beta2, weight2), (epsilon, _) = map(setting, ("beta1", "beta2", "epsilon"))
    rate, param = update.rate, update.param
    root = f.sqrt(1.0 - update.number("Beta2Pow"))
    if attrs.get("with_decay"):
        rate = rate * attrs["lr_ratio"]
        param = param * (1.0 - rate * attrs["coeff"])
    first = update.average(values["Moment1"], update.grad, beta1, weight1)
    second = update.average(values["Moment2"], f.square(update.grad), beta2, weight2)
    step = first / (f.sqrt(second) + root * epsilon)
    param = param - step * (rate * root / (1.0 - update.number("Beta1Pow")))
    powers = _next_powers(f, values, *((1.0, 1.0) if attrs["use_global_beta_pow"] else (beta1, beta2)))
    return update.results(param, Moment1Out=first, Moment2Out=second, **powers)


def _next_powers(f: Any, values: Mapping[str, Any], beta1: Any, beta2: Any) -> dict[str, Any]:
    """The powers of the betas for the next step."""
    return {
        f"{slot}Out": values[slot] * (beta if isinstance(beta, float) else as_type_of(values[slot], beta))
        for slot, beta in (("Beta1Pow", beta1), ("Beta2Pow", beta2))
    }


def adamax(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update = _Update(f, values, attrs)
    rate = update.rate / (1.0 - update.number("Beta1Pow"))
    moment = update.average(values["Moment"], update.grad, attrs["beta1"])
    norm = f.elementwise_max(values["InfNorm"] * attrs["beta2"] + attrs["epsilon"], f.abs(update.grad))
    return update.results(update.param - moment / norm * rate, MomentOut=moment, InfNormOut=norm)


def _moments(update: _Update, attrs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The next moments of Adam."""
    first = update.average(update.values["Moment1"], update.grad, attrs["beta1"])
    return first, update.average(update.values["Moment2"], update.f.square(update.grad), attrs["beta2"])


def nadam(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update, beta1 = _Update(f, values, attrs), attrs["beta1"]
    step_decay = NADAM_BASE ** attrs["momentum_decay"]
    decayed, done = update.number("MomentumDecayPow"), update.number("MuProduct")
    now, following = ((1.0 - power * 0.5) * beta1 for power in (decayed, decayed * step_decay))
    first, second = _moments(update, attrs)
    product = done * now
    step = update.grad * ((1.0 - now) / (1.0 - product)) + first * (following / (1.0 - product * following))
    root = f.sqrt(second / (1.0 - update.number("Beta2Pow"))) + attrs["epsilon"]
    return update.results(
        update.param - step / root * update.rate,
        Moment1Out=first,
        Moment2Out=second,
        MomentumDecayPowOut=values["MomentumDecayPow"] * step_decay,
        Beta2PowOut=values["Beta2Pow"] * attrs["beta2"],
        MuProductOut=as_type_of(values["MuProduct"], product),
    )


def radam(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update, (beta1, beta2) = _Update(f, values, attrs), (attrs["beta1"], attrs["beta2"])
    power, step = update.number("Beta2Pow"), update.number("Step")
    most = 2.0 / (1.0 - beta2) - 1.0
    length = most - step * power * 2.0 / (1.0 - power)
    variance = (length - 4.0) * (length - 2.0) * most / (length * ((most - 4.0) * (most - 2.0)))
    is_known = as_type_of(update.param, length > 5.0)
    rectified = f.sqrt(at_least(f, variance, 0.0) * (1.0 - power)) * is_known
    first, second = _moments(update, attrs)
    rate = update.rate / (1.0 - update.number("Beta1Pow"))
    factor = rectified / (f.sqrt(second) + attrs["epsilon"]) + (1.0 - is_known)
    param = update.param - first * factor * rate
    powers = _next_powers(f, values, beta1, beta2)
    return update.results(param, Moment1Out=first, Moment2Out=second, StepOut=values["Step"] + 1.0, **powers)


def lion(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update, moment = _Update(f, values, attrs), values["Moment"]
    direction = f.sign(update.average(moment, update.grad, attrs["beta1"]))
    if attrs["coeff"]:
        direction = direction + update.param * attrs["coeff"]
    moment = update.average(moment, update.grad, attrs["beta2"])
    return update.results(update.param - direction * update.rate, MomentOut=moment)


def adagrad(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    """`adagrad`, and `decayed_adagrad`, which has an attribute `decay`."""
    update, square = _Update(f, values, attrs), f.square(as_type_of(values["Moment"], values["Grad"]))
    moment = values["Moment"] + square if "decay" not in attrs else update.average(values["Moment"], square, attrs["decay"])
    step = update.grad / (f.sqrt(moment) + attrs["epsilon"])
    return update.results(update.param - step * update.rate, MomentOut=moment)


def adadelta(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update, rho, epsilon = _Update(f, values, attrs), attrs["rho"], attrs["epsilon"]
    squares = update.average(values["AvgSquaredGrad"], f.square(update.grad), rho)
    step = f.sqrt((values["AvgSquaredUpdate"] + epsilon) / (squares + epsilon)) * update.grad
    return update.results(
        update.param - (step if update.rate is None else step * update.rate),
        AvgSquaredGradOut=squares,
        AvgSquaredUpdateOut=update.average(values["AvgSquaredUpdate"], f.square(step), rho),
    )


def rmsprop(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update, decay = _Update(f, values, attrs), attrs["decay"]
    spread = square = update.average(values["MeanSquare"], f.square(update.grad), decay)
    state = {"MeanSquareOut": square}
    if attrs["centered"]:
        state["MeanGradOut"] = mean = update.average(values["MeanGrad"], update.grad, decay)
        spread = square - f.square(mean)
    elif values.get("MeanGrad") is not None:
        state["MeanGradOut"] = f.assign(values["MeanGrad"])
    step = update.grad / f.sqrt(spread + attrs["epsilon"]) * update.rate
    moment = values["Moment"] * attrs["momentum"] + step
    return update.results(update.param - moment, MomentOut=moment, **state)


def ftrl(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update, l1 = _Update(f, values, attrs), attrs["l1"]
    before = values["SquaredAccumulator"]
    squared = before + f.square(update.grad)
    root_before, root = (f.pow(value, factor=-attrs["lr_power"]) for value in (before, squared))
    linear = values["LinearAccumulator"] + update.grad - (root - root_before) / update.rate * update.param
    param = (f.clip(linear, min=-l1, max=l1) - linear) / (root / update.rate + 2.0 * (attrs["l2"] + TINY_DECAY))
    return update.results(param, SquaredAccumOut=squared, LinearAccumOut=linear)


def lamb(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update, beta1, beta2, decay = _Update(f, values, attrs), attrs["beta1"], attrs["beta2"], attrs["weight_decay"]
    first, second = _moments(update, attrs)
    root = f.sqrt(second / (1.0 - update.number("Beta2Pow")))
    direction = first / (1.0 - update.number("Beta1Pow")) / (root + attrs["epsilon"]) + update.param * decay
    rate = _adapted_rate(update, direction) if decay != 0 or attrs["always_adapt"] else update.rate
    powers = _next_powers(f, values, beta1, beta2)
    return update.results(update.param - direction * rate, Moment1Out=first, Moment2Out=second, **powers)


def uncorrected_lamb(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    update = _Update(f, values, attrs)
    first, second = _moments(update, attrs)
    direction = first / (f.sqrt(second) + attrs["epsilon"]) + update.param * attrs["weight_decay"]
    param = update.param - direction * _adapted_rate(update, direction)
    return update.results(param, Moment1Out=first, Moment2Out=second)


def _adapted_rate(update: _Update, direction: Any) -> Any:
    """The rate times the norm of the parameter, divided by the norm of the direction."""
    size, change = _norm(update.f, update.param), _norm(update.f, direction)
    return update.rate * _ratio(update.f, size, change, size, change)


def decays_of(count: int, attrs: Mapping[str, Any]) -> list[float]:
    """The decay of each of `count` parameters of `lars_momentum`; in files of Paddle 1.x the attribute is one number."""
    decays = attrs["lars_weight_decay"]
    decays = list(decays) if isinstance(decays, (list, tuple)) else [decays]
    return decays if len(decays) == count else decays * count


def lars_momentum(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    results: dict[str, list[Any]] = {}
    for place, decay in enumerate(decays_of(len(values["Param"]), attrs)):
        one = {slot: items[place] for slot, items in values.items() if items}
        for slot, value in _lars(f, one, attrs, decay).items():
            results.setdefault(slot, []).append(value)
    return results


def _lars(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any], decay: float) -> dict[str, Any]:
    update, factor, rate = _Update(f, values, attrs), attrs["rescale_grad"], None
    gradient, rate = update.grad if factor == 1.0 else update.grad * factor, update.rate
    if decay > 0:
        size, slope = _norm(f, update.param), _norm(f, update.grad) * factor
        rate = rate * _ratio(f, size * attrs["lars_coeff"], slope + size * decay + attrs["epsilon"], size, slope)
    velocity = values["Velocity"] * attrs["mu"] + (gradient + update.param * decay) * rate
    return update.results(update.param - velocity, VelocityOut=velocity)


def proximal(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    """`proximal_gd`, and `proximal_adagrad`, which has a slot `Moment`."""
    update, state, step = _Update(f, values, attrs), {}, None
    step = update.grad
    if values.get("Moment") is not None:
        state["MomentOut"] = moment = values["Moment"] + f.square(update.grad)
        step = update.grad / f.sqrt(moment)
    param = update.param - step * update.rate
    if attrs["l1"] > 0:
        param = f.sign(param) * at_least(f, f.abs(param) - update.rate * attrs["l1"], 0.0)
    return update.results(param / (update.rate * attrs["l2"] + 1.0), **state)
