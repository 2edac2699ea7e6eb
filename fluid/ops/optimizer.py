"""Optimizers: ops that update a parameter, and their own state, in place."""

from __future__ import annotations

from typing import Any

from ..errors import InferenceError
from ..values import Spec
from .registry import NOT_DIFFERENTIABLE, define, long, required


def _check(op_type: str, Param: Spec, **others: Spec | None) -> None:
    for name, spec in others.items():
        if spec is not None and Param.known and spec.known and spec.shape != Param.shape:
            raise InferenceError(f"{op_type}: {name} {spec} should have the shape of Param {Param}")


def _outputs(master: Spec | None, **found: Spec) -> dict[str, Any]:
    return found if master is None else {**found, "MasterParamOut": master}


def _sgd(Param: Spec, Grad: Spec, MasterParam: Spec | None) -> dict[str, Any]:
    _check("sgd", Param, Grad=Grad, MasterParam=MasterParam)
    return _outputs(MasterParam, ParamOut=Param)


@define(
    "sgd(Param, LearningRate, Grad, MasterParam?) -> ParamOut, MasterParamOut?",
    infer=_sgd,
    grad=NOT_DIFFERENTIABLE,
    multi_precision=False,
)
def sgd() -> None:
    """``Param -= LearningRate * Grad``."""


def _momentum(Param: Spec, Grad: Spec, Velocity: Spec, MasterParam: Spec | None) -> dict[str, Any]:
    _check("momentum", Param, Grad=Grad, Velocity=Velocity, MasterParam=MasterParam)
    return _outputs(MasterParam, ParamOut=Param, VelocityOut=Velocity)


@define(
    "momentum(Param, Grad, Velocity, LearningRate, MasterParam?) -> ParamOut, VelocityOut, MasterParamOut?",
    infer=_momentum,
    grad=NOT_DIFFERENTIABLE,
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


def _adam(
    Param: Spec, Grad: Spec, Moment1: Spec, Moment2: Spec, Beta1Pow: Spec, Beta2Pow: Spec, MasterParam: Spec | None
) -> dict[str, Any]:
    _check("adam", Param, Grad=Grad, Moment1=Moment1, Moment2=Moment2, MasterParam=MasterParam)
    moments = {"Moment1Out": Moment1, "Moment2Out": Moment2, "Beta1PowOut": Beta1Pow, "Beta2PowOut": Beta2Pow}
    return _outputs(MasterParam, ParamOut=Param, **moments)


@define(
    "adam(Param, Grad, LearningRate, Moment1, Moment2, Beta1Pow, Beta2Pow, MasterParam?, SkipUpdate?, Beta1Tensor?, Beta2Tensor?,"
    " EpsilonTensor?) -> ParamOut, Moment1Out, Moment2Out, Beta1PowOut, Beta2PowOut, MasterParamOut?",
    infer=_adam,
    grad=NOT_DIFFERENTIABLE,
    beta1=0.9,
    beta2=0.999,
    epsilon=1e-8,
    lazy_mode=False,
    min_row_size_to_use_multithread=long(1000),
    multi_precision=False,
    use_global_beta_pow=False,
)
def adam() -> None:
    """Adam, with Beta1Pow and Beta2Pow the powers of the betas up to this step::

        Moment1 = beta1 * Moment1 + (1 - beta1) * Grad
        Moment2 = beta2 * Moment2 + (1 - beta2) * Grad * Grad
        rate = LearningRate * sqrt(1 - Beta2Pow) / (1 - Beta1Pow)
        Param -= rate * Moment1 / (sqrt(Moment2) + epsilon * sqrt(1 - Beta2Pow))

    Beta1PowOut and Beta2PowOut are the next powers. Nothing changes if SkipUpdate holds True. `lazy_mode` concerns sparse
    gradients, of which there are none here.
    """
