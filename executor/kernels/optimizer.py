"""Kernels of `fluid.ops.optimizer`.

Parameters are updated in parts that stay in a near cache through all the calls of an update, so that each element comes
from memory, and goes back, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from .manipulation import copy
from .table import Step, prepared

_PART = 1 << 15
"""Elements of each array that are worked on together."""


def _parts(*arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Matching parts of arrays of one shape, as flat views."""
    if any(not array.flags.c_contiguous for array in arrays):
        yield arrays
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, _PART):
        yield tuple(array[start : start + _PART] for array in flat)


def _in_place(xp: Any, *pairs: tuple[Any, Any]) -> list[Step]:
    """Calls that bring each input to the output that updates it, if they are not one array."""
    return [step for source, target in pairs if target is not None for step in copy(xp, source, target)]


def _target(
    xp: Any, param: Any, out: Any, master: Any, master_out: Any, multi_precision: bool
) -> tuple[Any, list[Step], list[Step]]:
    """The array to update, and the calls before and after: with `multi_precision` it is the more precise copy."""
    if multi_precision and master is not None:
        target = master if master_out is None else master_out
        return target, _in_place(xp, (master, target)), [partial(xp.copyto, out, target)]
    return out, _in_place(xp, (param, out)), []


@prepared("sgd", inplace={"ParamOut": "Param", "MasterParamOut": "MasterParam"})
def sgd(
    xp: Any,
    scratch: Any,
    Param: Any,
    LearningRate: Any,
    Grad: Any,
    MasterParam: Any,
    multi_precision: bool,
    ParamOut: Any,
    MasterParamOut: Any,
) -> list[Step]:
    target, steps, after = _target(xp, Param, ParamOut, MasterParam, MasterParamOut, multi_precision)
    spare = scratch(Param.shape if Param.size < _PART else (_PART,), target.dtype)
    for param, grad in _parts(target, Grad):
        step = _spare(scratch, spare, param)
        steps += [partial(xp.multiply, grad, LearningRate, step), partial(xp.subtract, param, step, param)]
    return steps + after


def _spare(scratch: Any, spare: Any, part: Any) -> Any:
    """As much of `spare` as `part` needs."""
    if part.ndim > 1:
        return scratch(part.shape, spare.dtype)
    return spare.reshape(-1)[: part.size].reshape(part.shape)


@prepared("momentum", inplace={"ParamOut": "Param", "VelocityOut": "Velocity", "MasterParamOut": "MasterParam"})
def momentum(
    xp: Any,
    scratch: Any,
    Param: Any,
    Grad: Any,
    Velocity: Any,
    LearningRate: Any,
    MasterParam: Any,
    mu: float,
    use_nesterov: bool,
    regularization_method: str,
    regularization_coeff: float,
    multi_precision: bool,
    rescale_grad: float,
    ParamOut: Any,
    VelocityOut: Any,
    MasterParamOut: Any,
) -> list[Step]:
    target, steps, after = _target(xp, Param, ParamOut, MasterParam, MasterParamOut, multi_precision)
    steps += _in_place(xp, (Velocity, VelocityOut))
    spares = [scratch(Param.shape if Param.size < _PART else (_PART,), target.dtype) for _ in range(2)]
    for param, grad, velocity in _parts(target, Grad, VelocityOut):
        step, changed = (_spare(scratch, spare, param) for spare in spares)
        if rescale_grad != 1.0:
            steps.append(partial(xp.multiply, grad, rescale_grad, changed))
            grad = changed
        if regularization_method == "l2_decay":
            steps += [partial(xp.multiply, param, regularization_coeff, step), partial(xp.add, step, grad, changed)]
            grad = changed
        steps += [partial(xp.multiply, velocity, mu, velocity), partial(xp.add, velocity, grad, velocity)]
        if use_nesterov:
            steps += [partial(xp.multiply, velocity, mu, step), partial(xp.add, step, grad, step)]
            steps.append(partial(xp.multiply, step, LearningRate, step))
        else:
            steps.append(partial(xp.multiply, velocity, LearningRate, step))
        steps.append(partial(xp.subtract, param, step, param))
    return steps + after


@prepared(
    "adam",
    inplace={
        "ParamOut": "Param",
        "Moment1Out": "Moment1",
        "Moment2Out": "Moment2",
        "Beta1PowOut": "Beta1Pow",
        "Beta2PowOut": "Beta2Pow",
        "MasterParamOut": "MasterParam",
    },
)
def adam(
    xp: Any,
    scratch: Any,
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    Moment1: Any,
    Moment2: Any,
    Beta1Pow: Any,
    Beta2Pow: Any,
    MasterParam: Any,
    SkipUpdate: Any,
    Beta1Tensor: Any,
    Beta2Tensor: Any,
    EpsilonTensor: Any,
    beta1: float,
    beta2: float,
    epsilon: float,
    multi_precision: bool,
    use_global_beta_pow: bool,
    ParamOut: Any,
    Moment1Out: Any,
    Moment2Out: Any,
    Beta1PowOut: Any,
    Beta2PowOut: Any,
    MasterParamOut: Any,
) -> list[Step]:
    target, before, after = _target(xp, Param, ParamOut, MasterParam, MasterParamOut, multi_precision)
    pairs = ((Moment1, Moment1Out), (Moment2, Moment2Out), (Beta1Pow, Beta1PowOut), (Beta2Pow, Beta2PowOut))
    before += _in_place(xp, *pairs)
    dtype = target.dtype
    numbers = scratch((6,), dtype)
    b1, b2, rest1, rest2, rate, eps = (numbers[i : i + 1] for i in range(6))

    def prepare() -> None:
        """The numbers of this step, in the parameter's precision."""
        b1[...] = beta1 if Beta1Tensor is None else Beta1Tensor.reshape(-1)[0]
        b2[...] = beta2 if Beta2Tensor is None else Beta2Tensor.reshape(-1)[0]
        xp.subtract(1, b1, rest1)
        xp.subtract(1, b2, rest2)
        xp.sqrt(1 - Beta2Pow.reshape(-1), out=eps)
        xp.multiply(LearningRate.reshape(-1), eps, out=rate)
        xp.divide(rate, 1 - Beta1Pow.reshape(-1), out=rate)
        xp.multiply(eps, epsilon if EpsilonTensor is None else EpsilonTensor.reshape(-1)[0], out=eps)

    steps: list[Step] = [prepare]
    spare = scratch(Param.shape if Param.size < _PART else (_PART,), dtype)
    for param, grad, moment1, moment2 in _parts(target, Grad, Moment1Out, Moment2Out):
        step = _spare(scratch, spare, param)
        steps += [
            partial(xp.multiply, grad, rest1, step),
            partial(xp.multiply, moment1, b1, moment1),
            partial(xp.add, moment1, step, moment1),
            partial(xp.multiply, grad, rest2, step),
            partial(xp.multiply, step, grad, step),
            partial(xp.multiply, moment2, b2, moment2),
            partial(xp.add, moment2, step, moment2),
            partial(xp.sqrt, moment2, step),
            partial(xp.add, step, eps, step),
            partial(xp.divide, moment1, step, step),
            partial(xp.multiply, step, rate, step),
            partial(xp.subtract, param, step, param),
        ]
    steps += after
    if not use_global_beta_pow:
        for power, beta in ((Beta1PowOut, b1), (Beta2PowOut, b2)):
            if power is not None:
                steps.append(partial(xp.multiply, power, beta.reshape(()) if power.ndim == 0 else beta, power))
    if SkipUpdate is None:
        return before + steps

    def update() -> None:
        if not bool(SkipUpdate.reshape(-1)[0]):
            for step in steps:
                step()

    return [*before, update]
