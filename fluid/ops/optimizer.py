"""Optimizers: ops that update a parameter and the optimizer's state in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import means
from ..opdef.registry import NOT_DIFFERENTIABLE, OpDef, define, floats, least, long, required
from ..values.spec import Spec
from ..values.types import VarType
from . import updates
from .shapes import one_number

_ADAM = ("Moment1", "Moment2")
_POWERS = ("Beta1Pow", "Beta2Pow")


def _same_shape(op_type: str, Param: Spec, **specs: Spec | None) -> None:
    first = 1 if Param.type is VarType.SELECTED_ROWS else 0  # the height of a table of stored rows bounds none of their ids
    for name, spec in specs.items():
        if spec is not None and Param.known and spec.known and spec.shape[first:] != Param.shape[first:]:
            raise InferenceError(f"{op_type}: {name} {spec} should have the shape of Param {Param}")


def _updates(op_type: str, *state: str, numbers: tuple[str, ...] = ()) -> Callable[..., dict[str, Any]]:
    """Inference of an op that updates Param, the slots `state`, of the shape of Param, and the slots `numbers`."""

    def infer(inputs: Mapping[str, Any]) -> dict[str, Any]:
        for slot in ("LearningRate", *_POWERS, *numbers):
            if slot in inputs:
                one_number(slot, inputs[slot])
        _same_shape(op_type, **{slot: inputs[slot] for slot in ("Param", "Grad", "MasterParam", *state) if slot in inputs})
        updated = ("Param", *state, *numbers, "MasterParam")
        return {slot.replace("Accumulator", "Accum") + "Out": inputs[slot] for slot in updated if slot in inputs}

    return infer


def _update(
    signature: str, formula: Callable[..., Any], *state: str, numbers: tuple[str, ...] = (), **attrs: Any
) -> Callable[[Callable[[], None]], OpDef]:
    """Define an op that updates Param by a formula; `state` and `numbers` as of `_updates`."""
    infer = _updates(signature.partition("(")[0], *state, numbers=numbers)
    return define(signature, infer=infer, meaning=means(formula), grad=NOT_DIFFERENTIABLE, **attrs)


@_update("sgd(Param: float, LearningRate, Grad, MasterParam?) -> ParamOut, MasterParamOut?", updates.sgd, multi_precision=False)
def sgd() -> None:
    """``Param -= LearningRate * Grad``."""


@define(
    "dpsgd(Param: float, Grad, LearningRate) -> ParamOut",
    infer=_updates("dpsgd"),
    grad=NOT_DIFFERENTIABLE,
    clip=10.0,
    batch_size=least(1e-12, 16.0),
    sigma=1.0,
    seed=0,
)
def dpsgd() -> None:
    """``Param -= LearningRate * (Grad / max(1, |Grad| / clip) + noise / batch_size)``, with the Euclidean norm of Grad.

    ``noise`` is one number for all elements, drawn in each run from the normal distribution of standard deviation `sigma`.
    """


@_update(
    "momentum(Param: float, Grad, Velocity: float, LearningRate, MasterParam?) -> ParamOut, VelocityOut, MasterParamOut?",
    updates.momentum,
    "Velocity",
    mu=required("float"),
    use_nesterov=False,
    regularization_method="",
    regularization_coeff=0.0,
    multi_precision=False,
    rescale_grad=1.0,
)
def momentum() -> None:
    """``Velocity = mu * Velocity + g; Param -= LearningRate * Velocity``, of the gradient g.

    With `use_nesterov`, Param goes down by ``LearningRate * (g + mu * Velocity)``. The gradient is multiplied by `rescale_grad`
    first, and with the `regularization_method` "l2_decay" ``regularization_coeff * Param`` is added to it.
    """


_ADAM_SLOTS = (
    "(Param: float, Grad, LearningRate, Moment1: float, Moment2: float,"
    " Beta1Pow: float, Beta2Pow: float, MasterParam?, SkipUpdate?, Beta1Tensor?, Beta2Tensor?, EpsilonTensor?)"
    " -> ParamOut, Moment1Out, Moment2Out, Beta1PowOut, Beta2PowOut, MasterParamOut?"
)
_ADAM_ATTRS: dict[str, Any] = {
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "lazy_mode": False,
    "min_row_size_to_use_multithread": long(1000),
    "multi_precision": False,
    "use_global_beta_pow": False,
}


@_update("adam" + _ADAM_SLOTS, updates.adam, *_ADAM, numbers=_POWERS, **_ADAM_ATTRS)
def adam() -> None:
    """Adam; Beta1Pow and Beta2Pow are the powers of the betas up to this step::

        Moment1 = beta1 * Moment1 + (1 - beta1) * Grad
        Moment2 = beta2 * Moment2 + (1 - beta2) * Grad * Grad
        rate = LearningRate * sqrt(1 - Beta2Pow) / (1 - Beta1Pow)
        Param -= rate * Moment1 / (sqrt(Moment2) + epsilon * sqrt(1 - Beta2Pow))

    Beta1PowOut and Beta2PowOut are the next powers. Nothing changes if SkipUpdate is true. `lazy_mode` would only concern sparse
    gradients.
    """


@_update("adamw" + _ADAM_SLOTS, updates.adam, *_ADAM, numbers=_POWERS, lr_ratio=1.0, coeff=0.01, with_decay=False, **_ADAM_ATTRS)
def adamw() -> None:
    """`adam`, with decoupled weight decay if `with_decay`.

    Then the learning rate is multiplied by `lr_ratio`, and Param, before the update, by ``1 - LearningRate * coeff``.
    """


@_update(
    "lamb(Param: float, Grad, LearningRate, Moment1: float, Moment2: float, Beta1Pow: float, Beta2Pow: float,"
    " MasterParam?, SkipUpdate?)"
    " -> ParamOut, Moment1Out, Moment2Out, Beta1PowOut?, Beta2PowOut?, MasterParamOut?",
    updates.lamb,
    *_ADAM,
    numbers=_POWERS,
    weight_decay=required("float"),
    beta1=0.9,
    beta2=0.999,
    epsilon=1e-6,
    always_adapt=False,
    multi_precision=False,
)
def lamb() -> None:
    """The moments of `adam`, with a learning rate for each parameter::

        r = Moment1 / (1 - Beta1Pow) / (sqrt(Moment2 / (1 - Beta2Pow)) + epsilon) + weight_decay * Param
        Param -= LearningRate * |Param| / |r| * r

    with Euclidean norms. Their ratio counts as 1 if one of them is 0, and, unless `always_adapt`, if `weight_decay` is 0. Nothing
    changes if SkipUpdate is true.
    """


@_update(
    "uncorrected_lamb(Param: float, Grad, LearningRate, Moment1: float, Moment2: float, Beta1Pow: float, Beta2Pow: float)"
    " -> ParamOut, Moment1Out, Moment2Out",
    updates.uncorrected_lamb,
    *_ADAM,
    weight_decay=required("float"),
    beta1=0.9,
    beta2=0.999,
    epsilon=1e-6,
)
def uncorrected_lamb() -> None:
    """`lamb` as Paddle 1.8 computes it: moments are not corrected by the powers, and the norms count without decay, too.

    Files of Paddle 1.x call it lamb. Beta1Pow and Beta2Pow are not read.
    """


@_update(
    "adagrad(Param: float, Grad, Moment: float, LearningRate, MasterParam?) -> ParamOut, MomentOut, MasterParamOut?",
    updates.adagrad,
    "Moment",
    epsilon=1e-6,
    multi_precision=False,
)
def adagrad() -> None:
    """``Moment += Grad * Grad; Param -= LearningRate * Grad / (sqrt(Moment) + epsilon)``."""


@_update(
    "decayed_adagrad(Param: float, Grad, Moment: float, LearningRate) -> ParamOut, MomentOut",
    updates.adagrad,
    "Moment",
    decay=0.95,
    epsilon=1e-6,
)
def decayed_adagrad() -> None:
    """`adagrad` with ``Moment = decay * Moment + (1 - decay) * Grad * Grad``."""


@_update(
    "adadelta(Param: float, Grad, AvgSquaredGrad: float, AvgSquaredUpdate: float, LearningRate?, MasterParam?)"
    " -> ParamOut, AvgSquaredGradOut, AvgSquaredUpdateOut, MasterParamOut?",
    updates.adadelta,
    "AvgSquaredGrad",
    "AvgSquaredUpdate",
    rho=0.95,
    epsilon=1e-6,
    multi_precision=False,
)
def adadelta() -> None:
    """Adadelta, in the form that has a learning rate (1 in Paddle 1.x, where there is none)::

        AvgSquaredGrad = rho * AvgSquaredGrad + (1 - rho) * Grad * Grad
        update = Grad * sqrt((AvgSquaredUpdate + epsilon) / (AvgSquaredGrad + epsilon))
        AvgSquaredUpdate = rho * AvgSquaredUpdate + (1 - rho) * update * update
        Param -= LearningRate * update

    AvgSquaredGrad is updated before it is used, AvgSquaredUpdate after.
    """


@_update(
    "adamax(Param: float, Grad, LearningRate, Moment: float, InfNorm: float, Beta1Pow, MasterParam?)"
    " -> ParamOut, MomentOut, InfNormOut, MasterParamOut?",
    updates.adamax,
    "Moment",
    "InfNorm",
    beta1=0.9,
    beta2=0.999,
    epsilon=1e-8,
    multi_precision=False,
)
def adamax() -> None:
    """Adam with the maximum norm in place of the second moment::

        Moment = beta1 * Moment + (1 - beta1) * Grad
        InfNorm = max(beta2 * InfNorm + epsilon, abs(Grad))
        Param -= LearningRate / (1 - Beta1Pow) * Moment / InfNorm

    Beta1Pow is the power of `beta1` up to this step; unlike `adam`, the op leaves it as it is.
    """


@_update(
    "nadam(Param: float, Grad, LearningRate, Moment1: float, Moment2: float, MomentumDecayPow: float, Beta2Pow: float,"
    " MuProduct: float) -> ParamOut, Moment1Out, Moment2Out, MomentumDecayPowOut, Beta2PowOut, MuProductOut",
    updates.nadam,
    *_ADAM,
    numbers=("MomentumDecayPow", "Beta2Pow", "MuProduct"),
    beta1=0.9,
    beta2=0.999,
    epsilon=1e-8,
    momentum_decay=0.004,
)
def nadam() -> None:
    """Adam with Nesterov's momentum, which grows to `beta1`::

        mu = beta1 * (1 - MomentumDecayPow / 2);  next = beta1 * (1 - MomentumDecayPow * 0.96 ** momentum_decay / 2)
        Moment1 = beta1 * Moment1 + (1 - beta1) * Grad
        Moment2 = beta2 * Moment2 + (1 - beta2) * Grad * Grad
        MuProduct *= mu
        step = Grad * (1 - mu) / (1 - MuProduct) + Moment1 * next / (1 - MuProduct * next)
        Param -= LearningRate * step / (sqrt(Moment2 / (1 - Beta2Pow)) + epsilon)

    MomentumDecayPow and Beta2Pow are the powers of ``0.96 ** momentum_decay`` and `beta2` up to this step; their outputs are the
    next ones. MuProduct is the product of all mu, 1 at first.
    """


@_update(
    "radam(Param: float, Grad, LearningRate, Moment1: float, Moment2: float, Beta1Pow: float, Beta2Pow: float, Step: float)"
    " -> ParamOut, Moment1Out, Moment2Out, Beta1PowOut, Beta2PowOut, StepOut",
    updates.radam,
    *_ADAM,
    numbers=(*_POWERS, "Step"),
    beta1=0.9,
    beta2=0.999,
    epsilon=1e-8,
)
def radam() -> None:
    """Adam, whose second moment counts only from the step on where enough gradients make it up::

        Moment1 = beta1 * Moment1 + (1 - beta1) * Grad
        Moment2 = beta2 * Moment2 + (1 - beta2) * Grad * Grad
        most = 2 / (1 - beta2) - 1;  length = most - 2 * Step * Beta2Pow / (1 - Beta2Pow)
        r = sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
        factor = r * sqrt(1 - Beta2Pow) / (sqrt(Moment2) + epsilon) if length > 5, else 1
        Param -= LearningRate * factor * Moment1 / (1 - Beta1Pow)

    Beta1Pow and Beta2Pow are the powers of the betas up to this step, the number Step, from 1; their outputs are the next ones.
    """


@_update(
    "lion(Param: float, Grad, LearningRate, Moment: float) -> ParamOut, MomentOut",
    updates.lion,
    "Moment",
    beta1=0.9,
    beta2=0.99,
    coeff=0.0,
)
def lion() -> None:
    """Steps of one size, by the sign of a mean of gradients::

    direction = sign(beta1 * Moment + (1 - beta1) * Grad)
    Moment = beta2 * Moment + (1 - beta2) * Grad
    Param -= LearningRate * (direction + coeff * Param)
    """


_rmsprop = _updates("rmsprop", "MeanSquare", "Moment", "MeanGrad")


def _centered(inputs: Mapping[str, Any], centered: bool) -> dict[str, Any]:
    if centered and "MeanGrad" not in inputs:
        raise InferenceError("rmsprop: a centered update needs MeanGrad, the mean of the gradients")
    return _rmsprop(inputs)


@define(
    "rmsprop(Param: float, MeanSquare: float, Grad, Moment: float, LearningRate, MeanGrad?: float, MasterParam?)"
    " -> ParamOut, MomentOut, MeanSquareOut, MeanGradOut?, MasterParamOut?",
    infer=_centered,
    meaning=means(updates.rmsprop),
    grad=NOT_DIFFERENTIABLE,
    epsilon=1e-10,
    decay=0.9,
    momentum=0.0,
    centered=False,
    multi_precision=False,
)
def rmsprop() -> None:
    """The gradient divided by its root mean square::

        MeanSquare = decay * MeanSquare + (1 - decay) * Grad * Grad
        Moment = momentum * Moment + LearningRate * Grad / sqrt(MeanSquare + epsilon)
        Param -= Moment

    If `centered`, ``MeanGrad = decay * MeanGrad + (1 - decay) * Grad``, and the root is taken of the variance,
    ``MeanSquare - MeanGrad * MeanGrad + epsilon``.
    """


@_update(
    "ftrl(Param: float, SquaredAccumulator: float, LinearAccumulator: float, Grad, LearningRate)"
    " -> ParamOut, SquaredAccumOut, LinearAccumOut",
    updates.ftrl,
    "SquaredAccumulator",
    "LinearAccumulator",
    l1=0.0,
    l2=0.0,
    lr_power=-0.5,
)
def ftrl() -> None:
    """Follow the regularized leader::

        squared = SquaredAccumulator + Grad * Grad
        sigma = (squared ** -lr_power - SquaredAccumulator ** -lr_power) / LearningRate
        linear = LinearAccumulator + Grad - sigma * Param
        Param = (clip(linear, -l1, l1) - linear) / (squared ** -lr_power / LearningRate + 2 * l2)

    `squared` and `linear` are the next accumulators. An element whose gradient has always been 0 becomes 0.
    """


def _lars_momentum(inputs: Mapping[str, Any], lars_weight_decay: list[float] | float) -> dict[str, Any]:
    count = len(inputs["Param"])
    for slot in ("Grad", "Velocity", "LearningRate"):
        if len(inputs[slot]) != count:
            raise InferenceError(f"lars_momentum: there are {count} tensors in Param but {len(inputs[slot])} in {slot}")
    if isinstance(lars_weight_decay, (list, tuple)) and len(lars_weight_decay) not in (1, count):
        raise InferenceError(f"lars_momentum: lars_weight_decay should hold 1 number or {count}, not {list(lars_weight_decay)}")
    for rate in inputs["LearningRate"]:
        one_number("LearningRate", rate)
    for Param, Grad, Velocity in zip(inputs["Param"], inputs["Grad"], inputs["Velocity"], strict=True):
        _same_shape("lars_momentum", Param, Grad=Grad, Velocity=Velocity)
    return {slot + "Out": inputs[slot] for slot in ("Param", "Velocity", "MasterParam") if slot in inputs}


@define(
    "lars_momentum(Param*: float, Grad*: float, Velocity*: float, LearningRate*: float, MasterParam*?)"
    " -> ParamOut*, VelocityOut*, MasterParamOut*?",
    infer=_lars_momentum,
    meaning=means(updates.lars_momentum),
    grad=NOT_DIFFERENTIABLE,
    mu=required("float"),
    lars_coeff=0.001,
    lars_weight_decay=floats(0.0005)._replace(or_one=True),
    epsilon=0.0,
    multi_precision=False,
    rescale_grad=1.0,
)
def lars_momentum() -> None:
    """Momentum with a learning rate for each of one or several parameters::

        g = rescale_grad * Grad
        rate = LearningRate * lars_coeff * |Param| / (|g| + lars_weight_decay * |Param| + epsilon)
        Velocity = mu * Velocity + rate * (g + lars_weight_decay * Param)
        Param -= Velocity

    with Euclidean norms. The rate is LearningRate itself if a norm or the decay is 0. In Paddle 1.x the decay is one number.
    """


@_update("proximal_gd(Param: float, Grad, LearningRate) -> ParamOut", updates.proximal, l1=0.0, l2=0.0)
def proximal_gd() -> None:
    """A step of gradient descent, then one towards zero::

    p = Param - LearningRate * Grad
    Param = sign(p) * max(0, |p| - LearningRate * l1) / (1 + LearningRate * l2)
    """


@_update(
    "proximal_adagrad(Param: float, Moment: float, Grad, LearningRate) -> ParamOut, MomentOut",
    updates.proximal,
    "Moment",
    l1=0.0,
    l2=0.0,
)
def proximal_adagrad() -> None:
    """`proximal_gd` with ``Moment = Moment + Grad * Grad`` and ``p = Param - LearningRate * Grad / sqrt(Moment)``."""
