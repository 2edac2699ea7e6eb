"""Write optimizers: the next values of parameters and state, as formulas of the current ones."""

from __future__ import annotations

from typing import Any

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import OnnxGraph, OnnxTensor
from .reductions import norm_of

__all__: list[str] = []

_TINY_DECAY = 1e-10
"""Added to the decay of `ftrl`, so that a parameter without gradients is 0, not 0 / 0."""


class Update:
    """The inputs of all updates, as numbers: the parameter (the more precise copy if there is one), the gradient and the rate."""

    def __init__(self, g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> None:
        self.g, self.inputs = g, inputs
        self.master = inputs.get("MasterParam") if attrs.get("multi_precision") else None
        self.stored: OnnxTensor = inputs["Param"]
        self.param: OnnxTensor = self.stored if self.master is None else self.master
        self.grad: Any = g.cast(inputs["Grad"], self.param.dtype)

    def number(self, slot: str) -> Any:
        """An input of one element, of shape [] and the parameter's element type."""
        value = self.g.cast(self.inputs[slot], self.param.dtype)
        return value if not value.ndim else self.g.reshape(value, [])

    @property
    def rate(self) -> Any:
        return self.number("LearningRate")

    def constant(self, value: float) -> Any:
        """A number of the parameter's element type."""
        return self.g.number(value, self.param)

    def average(self, mean: Any, value: Any, beta: Any, weight: Any) -> Any:
        """``beta * mean + weight * value``."""
        return self.times(mean, beta) + self.times(value, weight)

    def times(self, value: Any, factor: Any) -> Any:
        return self.g.binary("Mul", value, factor if isinstance(factor, OnnxTensor) else self.constant(factor))

    def plus(self, value: Any, term: float) -> Any:
        return self.g.binary("Add", value, self.constant(term))

    def results(self, param: Any, **state: Any) -> dict[str, Any]:
        """The outputs by slot; nothing changes where SkipUpdate is true."""
        outputs: dict[str, Any] = {"ParamOut": self.g.cast(param, self.stored.dtype), **state}
        if self.inputs.get("MasterParam") is not None:
            outputs["MasterParamOut"] = param if self.master is not None else self.g.identity(self.inputs["MasterParam"])
        skip = self.inputs.get("SkipUpdate")
        if skip is not None:
            flag = self.g.reshape(self.g.cast(skip, VarType.BOOL), [])
            for slot, value in outputs.items():
                outputs[slot] = self.g.where(flag, self.inputs[slot[:-3]], value)
        return outputs


@exports("sgd")
def sgd(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    return up.results(g.binary("Sub", up.param, g.binary("Mul", up.grad, up.rate)))


@exports("momentum")
def momentum(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    grad = up.grad if attrs["rescale_grad"] == 1.0 else up.times(up.grad, attrs["rescale_grad"])
    if attrs["regularization_method"] == "l2_decay":
        grad = g.binary("Add", grad, up.times(up.param, attrs["regularization_coeff"]))
    velocity = g.binary("Add", up.times(inputs["Velocity"], attrs["mu"]), grad)
    step = g.binary("Add", up.times(velocity, attrs["mu"]), grad) if attrs["use_nesterov"] else velocity
    return up.results(g.binary("Sub", up.param, g.binary("Mul", step, up.rate)), VelocityOut=velocity)


@exports("adam", "adamw")
def adam(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    beta1, beta2, epsilon = (
        up.constant(attrs[name]) if inputs.get(f"{name.capitalize()}Tensor") is None else up.number(f"{name.capitalize()}Tensor")
        for name in ("beta1", "beta2", "epsilon")
    )
    one = up.constant(1)
    param, rate = up.param, up.rate
    if attrs.get("with_decay"):
        rate = up.times(rate, attrs["lr_ratio"])
        param = g.binary("Mul", param, g.binary("Sub", one, up.times(rate, attrs["coeff"])))
    moment1 = _mean(g, inputs["Moment1"], up.grad, beta1, one)
    moment2 = _mean(g, inputs["Moment2"], g.binary("Mul", up.grad, up.grad), beta2, one)
    root = g.unary("Sqrt", g.binary("Sub", one, up.number("Beta2Pow")))
    rate = g.binary("Div", g.binary("Mul", rate, root), g.binary("Sub", one, up.number("Beta1Pow")))
    below = g.binary("Add", g.unary("Sqrt", moment2), g.binary("Mul", root, epsilon))
    step = g.binary("Mul", g.binary("Div", moment1, below), rate)
    powers = {
        f"{name}Out": g.binary("Mul", inputs[name], g.cast(beta, inputs[name].dtype))
        if not attrs["use_global_beta_pow"]
        else g.identity(inputs[name])
        for name, beta in (("Beta1Pow", beta1), ("Beta2Pow", beta2))
    }
    return up.results(g.binary("Sub", param, step), Moment1Out=moment1, Moment2Out=moment2, **powers)


def _mean(g: OnnxGraph, mean: OnnxTensor, value: OnnxTensor, beta: OnnxTensor, one: OnnxTensor) -> OnnxTensor:
    """``beta * mean + (1 - beta) * value``."""
    weight = g.constant(one.value - beta.value) if beta.value is not None else g.binary("Sub", one, beta)
    return g.binary("Add", g.binary("Mul", mean, beta), g.binary("Mul", value, weight))


def _ratio(g: OnnxGraph, usable: OnnxTensor, above: OnnxTensor, below: OnnxTensor, one: OnnxTensor) -> OnnxTensor:
    """``above / below``, or 1 where it is not usable."""
    return g.where(usable, g.binary("Div", above, g.where(usable, below, one)), one)


def _both_positive(g: OnnxGraph, one: OnnxTensor, two: OnnxTensor) -> OnnxTensor:
    zero = g.number(0, one)
    return g.binary("And", g.binary("Greater", one, zero, VarType.BOOL), g.binary("Greater", two, zero, VarType.BOOL))


@exports("lamb")
def lamb(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    one, beta1, beta2 = up.constant(1), up.constant(attrs["beta1"]), up.constant(attrs["beta2"])
    moment1 = _mean(g, inputs["Moment1"], up.grad, beta1, one)
    moment2 = _mean(g, inputs["Moment2"], g.binary("Mul", up.grad, up.grad), beta2, one)
    first = g.binary("Div", moment1, g.binary("Sub", one, up.number("Beta1Pow")))
    second = g.unary("Sqrt", g.binary("Div", moment2, g.binary("Sub", one, up.number("Beta2Pow"))))
    decay = attrs["weight_decay"]
    direction = g.binary("Add", g.binary("Div", first, up.plus(second, attrs["epsilon"])), up.times(up.param, decay))
    rate = up.rate
    if decay != 0 or attrs["always_adapt"]:
        size, change = (norm_of(g, vector, range(vector.ndim), False) for vector in (up.param, direction))
        rate = g.binary("Mul", rate, _ratio(g, _both_positive(g, size, change), size, change, one))
    powers = {
        f"{name}Out": g.binary("Mul", inputs[name], g.number(beta, inputs[name]))
        for name, beta in (("Beta1Pow", attrs["beta1"]), ("Beta2Pow", attrs["beta2"]))
    }
    step = g.binary("Mul", direction, rate)
    return up.results(g.binary("Sub", up.param, step), Moment1Out=moment1, Moment2Out=moment2, **powers)


@exports("adagrad", "decayed_adagrad")
def adagrad(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    square, decay = g.binary("Mul", up.grad, up.grad), attrs.get("decay")
    if decay is None:
        moment = g.binary("Add", inputs["Moment"], square)
    else:
        moment = up.average(inputs["Moment"], square, decay, 1 - decay)
    step = g.binary("Div", up.grad, up.plus(g.unary("Sqrt", moment), attrs["epsilon"]))
    return up.results(g.binary("Sub", up.param, g.binary("Mul", step, up.rate)), MomentOut=moment)


@exports("adadelta")
def adadelta(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    rho, epsilon = attrs["rho"], attrs["epsilon"]
    grads = up.average(inputs["AvgSquaredGrad"], g.binary("Mul", up.grad, up.grad), rho, 1 - rho)
    ratio = g.binary("Div", up.plus(inputs["AvgSquaredUpdate"], epsilon), up.plus(grads, epsilon))
    update = g.binary("Mul", g.unary("Sqrt", ratio), up.grad)
    updates = up.average(inputs["AvgSquaredUpdate"], g.binary("Mul", update, update), rho, 1 - rho)
    step = update if inputs.get("LearningRate") is None else g.binary("Mul", update, up.rate)
    return up.results(g.binary("Sub", up.param, step), AvgSquaredGradOut=grads, AvgSquaredUpdateOut=updates)


@exports("proximal_gd", "proximal_adagrad")
def proximal(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    step, state, rate = up.grad, {}, up.rate
    if "Moment" in inputs:
        moment = g.binary("Add", inputs["Moment"], g.binary("Mul", up.grad, up.grad))
        state["MomentOut"] = moment
        step = g.binary("Div", up.grad, g.unary("Sqrt", moment))
    param = g.binary("Sub", up.param, g.binary("Mul", step, rate))
    if attrs["l1"] > 0:
        size = g.unary("Relu", g.binary("Sub", g.unary("Abs", param), up.times(rate, attrs["l1"])))
        param = g.binary("Mul", g.unary("Sign", param), size)
    return up.results(g.binary("Div", param, up.plus(up.times(rate, attrs["l2"]), 1)), **state)


@exports("adamax")
def adamax(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    one = up.constant(1)
    moment = _mean(g, inputs["Moment"], up.grad, up.constant(attrs["beta1"]), one)
    least = up.plus(up.times(inputs["InfNorm"], attrs["beta2"]), attrs["epsilon"])
    norm = g.binary("Max", least, g.unary("Abs", up.grad))
    rate = g.binary("Div", up.rate, g.binary("Sub", one, up.number("Beta1Pow")))
    step = g.binary("Mul", g.binary("Div", moment, norm), rate)
    return up.results(g.binary("Sub", up.param, step), MomentOut=moment, InfNormOut=norm)


@exports("rmsprop")
def rmsprop(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    decay, state = attrs["decay"], {}
    square = up.average(inputs["MeanSquare"], g.binary("Mul", up.grad, up.grad), decay, 1 - decay)
    below = square
    if attrs["centered"]:
        mean = up.average(inputs["MeanGrad"], up.grad, decay, 1 - decay)
        state["MeanGradOut"] = mean
        below = g.binary("Sub", square, g.binary("Mul", mean, mean))
    elif inputs.get("MeanGrad") is not None:
        state["MeanGradOut"] = g.identity(inputs["MeanGrad"])
    step = g.binary("Div", up.grad, g.unary("Sqrt", up.plus(below, attrs["epsilon"])))
    moment = g.binary("Add", up.times(inputs["Moment"], attrs["momentum"]), g.binary("Mul", step, up.rate))
    return up.results(g.binary("Sub", up.param, moment), MomentOut=moment, MeanSquareOut=square, **state)


@exports("ftrl")
def ftrl(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    power, l1, l2 = attrs["lr_power"], attrs["l1"], attrs["l2"]

    def root(x: OnnxTensor) -> OnnxTensor:
        return g.unary("Sqrt", x) if power == -0.5 else g.binary("Pow", x, up.constant(-power))

    old = inputs["SquaredAccumulator"]
    squared = g.binary("Add", old, g.binary("Mul", up.grad, up.grad))
    new = root(squared)
    sigma = g.binary("Div", g.binary("Sub", new, root(old)), up.rate)
    added = g.binary("Add", inputs["LinearAccumulator"], up.grad)
    linear = g.binary("Sub", added, g.binary("Mul", sigma, up.param))
    clipped = g.binary("Min", g.binary("Max", linear, up.constant(-l1)), up.constant(l1))
    below = up.plus(g.binary("Div", new, up.rate), 2 * (l2 + _TINY_DECAY))
    param = g.binary("Div", g.binary("Sub", clipped, linear), below)
    return up.results(param, SquaredAccumOut=squared, LinearAccumOut=linear)


@exports("lars_momentum")
def lars_momentum(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    count, decays = len(inputs["Param"]), attrs["lars_weight_decay"]
    decays = decays if len(decays) == count else decays * count
    results: dict[str, Any] = {}
    for place, decay in enumerate(decays):
        parameter_inputs = {slot: values[place] for slot, values in inputs.items() if values}
        for slot, value in _lars(g, parameter_inputs, attrs, decay).items():
            results.setdefault(slot, []).append(value)
    return results


def _lars(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], decay: float) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    grad = up.grad if attrs["rescale_grad"] == 1.0 else up.times(up.grad, attrs["rescale_grad"])
    rate = up.rate
    if decay > 0:
        size, slope = (norm_of(g, vector, range(vector.ndim), False) for vector in (up.param, grad))
        below = up.plus(g.binary("Add", slope, up.times(size, decay)), attrs["epsilon"])
        above = up.times(size, attrs["lars_coeff"])
        rate = g.binary("Mul", rate, _ratio(g, _both_positive(g, size, slope), above, below, up.constant(1)))
    step = g.binary("Mul", g.binary("Add", grad, up.times(up.param, decay)), rate)
    velocity = g.binary("Add", up.times(inputs["Velocity"], attrs["mu"]), step)
    return up.results(g.binary("Sub", up.param, velocity), VelocityOut=velocity)


@exports("dpsgd")
def dpsgd(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    up = Update(g, inputs, attrs)
    size = norm_of(g, up.grad, range(up.grad.ndim), False)
    shrink = g.binary("Max", g.binary("Div", size, up.constant(attrs["clip"])), up.constant(1))
    step = g.binary("Div", up.grad, shrink)
    if attrs["sigma"]:
        drawn = g.node(
            "RandomNormal",
            [],
            Spec((1,), VarType.FP32),
            dtype=1,
            shape=[1],
            **({"seed": float(attrs["seed"])} if attrs["seed"] else {}),
        )
        noise = up.times(g.reshape(g.cast(drawn, up.param.dtype), []), attrs["sigma"] / attrs["batch_size"])
        step = g.binary("Add", step, noise)
    return up.results(g.binary("Sub", up.param, g.binary("Mul", step, up.rate)))
