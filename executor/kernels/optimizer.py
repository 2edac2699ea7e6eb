"""Kernels of `fluid.ops.optimizer`.

Parameters are updated in parts that stay in a near cache through all the calls of an update, so that each element comes
from memory, and goes back, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from fluid.ops.updates import NADAM_BASE, TINY_DECAY, decays_of

from .manipulation import ranges
from .portable import copy, sum_of_squares
from .table import Call, OutArray, Slots, kernel, prepared

_PART = 1 << 15
"""Elements of each array that are worked on together."""

_FULL_NAMES = {"SquaredAccumOut": "SquaredAccumulator", "LinearAccumOut": "LinearAccumulator"}
"""Outputs that update an input by another name than theirs without the ``Out``."""


def _parts(xp: Any, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Matching parts of arrays of one shape, as flat views."""
    if xp.__name__ != "numpy" or any(not array.flags.c_contiguous for array in arrays):
        yield arrays
        return
    flat = [array.reshape(-1) for array in arrays]
    for start, end in ranges(xp, flat[0].size, 1, _PART):
        yield tuple(array[start:end] for array in flat)


def _begun(xp: Any, inputs: Slots, outputs: Slots, attrs: Slots) -> tuple[Any, list[Call], list[Call]]:
    """The array to update, and the calls before and after an update.

    The calls before bring each input to the output that updates it, if they are not one array. With `multi_precision`, the
    array to update is the more precise copy of the parameter.
    """
    master, out = inputs.get("MasterParam"), outputs["ParamOut"]
    pairs = {"Param": out}
    pairs |= {_FULL_NAMES.get(slot, slot[:-3]): array for slot, array in outputs.items() if not slot.endswith("ParamOut")}
    after: list[Call] = []
    target = out
    if attrs.get("multi_precision") and master is not None:
        target = master if outputs.get("MasterParamOut") is None else outputs["MasterParamOut"]
        del pairs["Param"]
        pairs["MasterParam"], after = target, [partial(xp.copyto, out, target)]
    before = [step for slot, array in pairs.items() if array is not None for step in copy(xp, inputs[slot], array)]
    return target, before, after


def _spare(scratch: Any, spare: Any, part: Any) -> Any:
    """A spare array in the shape of `part`: the start of `spare`, or new scratch for several dimensions."""
    if part.ndim > 1:
        return scratch(part.shape, spare.dtype)
    return spare.reshape(-1)[: part.size].reshape(part.shape)


def _pieces(xp: Any, scratch: Any, count: int, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Split arrays into matching parts; each part comes with `count` spare arrays like its first one, shared by all parts."""
    first = arrays[0]
    is_one = xp.__name__ != "numpy" or first.size < _PART
    spares = [scratch(first.shape if is_one else (_PART,), first.dtype) for _ in range(count)]
    for parts in _parts(xp, *arrays):
        yield (*parts, *(_spare(scratch, spare, parts[0]) for spare in spares))


def _average(xp: Any, mean: Any, value: Any, beta: Any, one_minus_beta: Any, spare: Any, square: bool = False) -> list[Call]:
    """``mean = beta * mean + rest * value``, or of the value's square; `spare` may not be `value`."""
    squared = [partial(xp.multiply, spare, value, spare)] if square else []
    return [
        partial(xp.multiply, value, one_minus_beta, spare),
        *squared,
        partial(xp.multiply, mean, beta, mean),
        partial(xp.add, mean, spare, mean),
    ]


def _descend(xp: Any, param: Any, step: Any, rate: Any) -> list[Call]:
    """``param -= rate * step``; `step` is overwritten."""
    return [partial(xp.multiply, step, rate, step), partial(xp.subtract, param, step, param)]


def _norm(xp: Any, array: Any, dtype: Any) -> Any:
    """The Euclidean norm of an array, computed in `dtype`."""
    return xp.sqrt(sum_of_squares(xp, array.astype(dtype, copy=False)))


def _ratio(xp: Any, usable: Any, above: Any, below: Any) -> Any:
    """``above / below``, or 1 where not `usable`."""
    return xp.where(usable, above / xp.where(usable, below, 1), 1)


def _unless(skip: Any, before: list[Call], steps: list[Call]) -> list[Call]:
    """The calls `before` and `steps`; a run skips `steps` if `skip` holds True."""
    if skip is None:
        return before + steps
    return [*before, partial(_make_unless, skip, steps)]


def _make_unless(skip: Any, calls: list[Call]) -> None:
    if not bool(skip.reshape(-1)[0]):
        for call in calls:
            call()


def _raise_powers(xp: Any, outputs: Slots, beta1: Any, beta2: Any) -> list[Call]:
    """Calls that multiply each power by its base, if it is there."""
    powers = ((outputs.get("Beta1PowOut"), beta1), (outputs.get("Beta2PowOut"), beta2))
    return [partial(xp.multiply, power, beta, power) for power, beta in powers if power is not None]


_MASTER = {"ParamOut": "Param", "MasterParamOut": "MasterParam"}
_ADAM = {**_MASTER, **{slot + "Out": slot for slot in ("Moment1", "Moment2", "Beta1Pow", "Beta2Pow")}}


@prepared("sgd", inplace=_MASTER)
def sgd(xp: Any, scratch: Any, LearningRate: Any, Grad: Any, inputs: Slots, outputs: Slots, attrs: Slots) -> list[Call]:
    target, steps, after = _begun(xp, inputs, outputs, attrs)
    for param, grad, step in _pieces(xp, scratch, 1, target, Grad):
        steps += [partial(xp.multiply, grad, LearningRate, step), partial(xp.subtract, param, step, param)]
    return steps + after


@kernel("dpsgd", inplace={"ParamOut": "Param"})
def dpsgd(
    xp: Any, rng: Any, Param: Any, Grad: Any, LearningRate: Any, clip: float, batch_size: float, sigma: float, ParamOut: Any
) -> None:
    shrink = xp.maximum(_norm(xp, Grad, Grad.dtype) / clip, 1)
    noise = rng().standard_normal() * (sigma / batch_size)
    xp.subtract(Param, (LearningRate * (Grad / shrink + noise)).astype(Param.dtype), out=ParamOut)


@prepared("momentum", inplace={**_MASTER, "VelocityOut": "Velocity"})
def momentum(
    xp: Any, scratch: Any, Grad: Any, LearningRate: Any, VelocityOut: Any, inputs: Slots, outputs: Slots, attrs: Slots
) -> list[Call]:
    target, steps, after = _begun(xp, inputs, outputs, attrs)
    mu, factor, coefficient = attrs["mu"], attrs["rescale_grad"], attrs["regularization_coeff"]
    for param, grad, velocity, step, changed in _pieces(xp, scratch, 2, target, Grad, VelocityOut):
        if factor != 1.0:
            steps.append(partial(xp.multiply, grad, factor, changed))
            grad = changed
        if attrs["regularization_method"] == "l2_decay":
            steps += [partial(xp.multiply, param, coefficient, step), partial(xp.add, step, grad, changed)]
            grad = changed
        steps += [partial(xp.multiply, velocity, mu, velocity), partial(xp.add, velocity, grad, velocity)]
        if attrs["use_nesterov"]:
            steps += [partial(xp.multiply, velocity, mu, step), partial(xp.add, step, grad, step)]
            steps.append(partial(xp.multiply, step, LearningRate, step))
        else:
            steps.append(partial(xp.multiply, velocity, LearningRate, step))
        steps.append(partial(xp.subtract, param, step, param))
    return steps + after


@prepared("adam", "adamw", inplace=_ADAM)
def adam(
    xp: Any, scratch: Any, Grad: Any, Moment1Out: Any, Moment2Out: Any, inputs: Slots, outputs: Slots, attrs: Slots
) -> list[Call]:
    target, before, after = _begun(xp, inputs, outputs, attrs)
    with_decay = attrs.get("with_decay", False)
    numbers = [scratch((1,), target.dtype) for _ in range(8)]
    b1, b2, one_minus_beta1, one_minus_beta2, rate, eps, param_scale, _ = numbers
    tensors = [(name, inputs.get(f"{name.capitalize()}Tensor")) for name in ("beta1", "beta2", "epsilon")]
    beta1, beta2, epsilon = (attrs[name] if tensor is None else tensor.reshape(-1)[0, ...] for name, tensor in tensors)
    decay = (attrs["lr_ratio"], attrs["coeff"]) if with_decay else None
    rates = [inputs[slot].reshape(-1) for slot in ("LearningRate", "Beta1Pow", "Beta2Pow")]
    steps = _adam_numbers(xp, beta1, beta2, epsilon, decay, rates, numbers)
    for param, grad, moment1, moment2, step in _pieces(xp, scratch, 1, target, Grad, Moment1Out, Moment2Out):
        if with_decay:
            steps.append(partial(xp.multiply, param, param_scale, param))
        steps += _average(xp, moment1, grad, b1, one_minus_beta1, step)
        steps += _average(xp, moment2, grad, b2, one_minus_beta2, step, square=True)
        steps += [partial(xp.sqrt, moment2, step), partial(xp.add, step, eps, step), partial(xp.divide, moment1, step, step)]
        steps += _descend(xp, param, step, rate)
    steps += after
    if not attrs["use_global_beta_pow"]:
        steps += _raise_powers(xp, outputs, b1[0, ...], b2[0, ...])
    return _unless(inputs.get("SkipUpdate"), before, steps)


def _adam_numbers(
    xp: Any, beta1: Any, beta2: Any, epsilon: Any, decay: tuple[float, float] | None, rates: list[Any], numbers: list[Any]
) -> list[Call]:
    """Calls that compute the numbers of a step, in the parameter's precision; `rates` are the learning rate and the powers of the
    betas."""
    learning_rate, power1, power2 = rates
    b1, b2, one_minus_beta1, one_minus_beta2, rate, eps, param_scale, correction = numbers
    steps: list[Call] = [
        partial(xp.copyto, b1, beta1),
        partial(xp.copyto, b2, beta2),
        partial(xp.subtract, 1, b1, one_minus_beta1),
        partial(xp.subtract, 1, b2, one_minus_beta2),
        partial(xp.subtract, 1, power2, eps),
        partial(xp.sqrt, eps, eps),
        partial(xp.multiply, learning_rate, 1 if decay is None else decay[0], rate),
    ]
    if decay is not None:
        steps += [partial(xp.multiply, rate, decay[1], param_scale), partial(xp.subtract, 1, param_scale, param_scale)]
    return [
        *steps,
        partial(xp.multiply, rate, eps, rate),
        partial(xp.subtract, 1, power1, correction),
        partial(xp.divide, rate, correction, rate),
        partial(xp.multiply, eps, epsilon, eps),
    ]


@prepared("lamb", inplace=_ADAM)
def lamb(
    xp: Any, scratch: Any, Grad: Any, Moment1Out: Any, Moment2Out: Any, inputs: Slots, outputs: Slots, attrs: Slots
) -> list[Call]:
    target, before, after = _begun(xp, inputs, outputs, attrs)
    beta1, beta2, epsilon, weight_decay = (attrs[name] for name in ("beta1", "beta2", "epsilon", "weight_decay"))
    direction, numbers = scratch(target.shape, target.dtype), scratch((3,), target.dtype)
    rate, rest1, rest2 = (numbers[i : i + 1] for i in range(3))
    powers = ((inputs["Beta1Pow"], rest1), (inputs["Beta2Pow"], rest2))
    steps: list[Call] = [partial(xp.subtract, 1, power.reshape(-1), one_minus_power) for power, one_minus_power in powers]
    for param, grad, m1, m2, r, step in _pieces(xp, scratch, 1, target, Grad, Moment1Out, Moment2Out, direction):
        steps += _average(xp, m1, grad, beta1, 1 - beta1, step)
        steps += _average(xp, m2, grad, beta2, 1 - beta2, step, square=True)
        steps += [partial(xp.divide, m2, rest2, step), partial(xp.sqrt, step, step), partial(xp.add, step, epsilon, step)]
        steps += [partial(xp.divide, m1, rest1, r), partial(xp.divide, r, step, r)]
        steps += [partial(xp.multiply, param, weight_decay, step), partial(xp.add, r, step, r)]
    steps.append(partial(xp.copyto, rate, inputs["LearningRate"].reshape(-1), "unsafe"))
    if weight_decay != 0 or attrs["always_adapt"]:
        steps.append(partial(_adapt_to_norms, xp, target, direction, rate))
    for param, r in _parts(xp, target, direction):
        steps += _descend(xp, param, r, rate)
    steps += after + _raise_powers(xp, outputs, beta1, beta2)
    return _unless(inputs.get("SkipUpdate"), before, steps)


@prepared("uncorrected_lamb", inplace=_ADAM)
def uncorrected_lamb(
    xp: Any, scratch: Any, Grad: Any, Moment1Out: Any, Moment2Out: Any, inputs: Slots, outputs: Slots, attrs: Slots
) -> list[Call]:
    """`lamb` with powers of 0, which leave the moments as they are."""
    zero = xp.zeros(1, inputs["LearningRate"].dtype)
    uncorrected = {**inputs, "Beta1Pow": zero, "Beta2Pow": zero}
    steps: list[Call] = lamb(xp, scratch, Grad, Moment1Out, Moment2Out, uncorrected, outputs, {**attrs, "always_adapt": True})
    return steps


def _adapt_to_norms(xp: Any, param: Any, direction: Any, rate: OutArray) -> None:
    size, change = _norm(xp, param, param.dtype), _norm(xp, direction, param.dtype)
    xp.multiply(rate, _ratio(xp, (size > 0) & (change > 0), size, change), out=rate)


@prepared("adagrad", inplace={**_MASTER, "MomentOut": "Moment"})
@prepared("decayed_adagrad", inplace={"ParamOut": "Param", "MomentOut": "Moment"})
def adagrad(
    xp: Any, scratch: Any, Grad: Any, LearningRate: Any, MomentOut: Any, inputs: Slots, outputs: Slots, attrs: Slots
) -> list[Call]:
    target, steps, after = _begun(xp, inputs, outputs, attrs)
    decay, epsilon = attrs.get("decay"), attrs["epsilon"]
    for param, grad, moment, step in _pieces(xp, scratch, 1, target, Grad, MomentOut):
        if decay is None:
            steps += [partial(xp.multiply, grad, grad, step), partial(xp.add, moment, step, moment)]
        else:
            steps += _average(xp, moment, grad, decay, 1 - decay, step, square=True)
        steps += [partial(xp.sqrt, moment, step), partial(xp.add, step, epsilon, step), partial(xp.divide, grad, step, step)]
        steps += _descend(xp, param, step, LearningRate)
    return steps + after


@prepared("adadelta", inplace={**_MASTER, "AvgSquaredGradOut": "AvgSquaredGrad", "AvgSquaredUpdateOut": "AvgSquaredUpdate"})
def adadelta(xp: Any, scratch: Any, Grad: Any, LearningRate: Any, inputs: Slots, outputs: Slots, attrs: Slots) -> list[Call]:
    rho, epsilon = attrs["rho"], attrs["epsilon"]
    target, steps, after = _begun(xp, inputs, outputs, attrs)
    pieces = _pieces(xp, scratch, 2, target, Grad, outputs["AvgSquaredGradOut"], outputs["AvgSquaredUpdateOut"])
    for param, grad, grads, updates, step, spare in pieces:
        steps += _average(xp, grads, grad, rho, 1 - rho, spare, square=True)
        steps += [partial(xp.add, updates, epsilon, step), partial(xp.add, grads, epsilon, spare)]
        steps += [partial(xp.divide, step, spare, step), partial(xp.sqrt, step, step), partial(xp.multiply, step, grad, step)]
        steps += _average(xp, updates, step, rho, 1 - rho, spare, square=True)
        steps += _descend(xp, param, step, 1.0 if LearningRate is None else LearningRate)
    return steps + after


@prepared("proximal_gd", inplace={"ParamOut": "Param"})
@prepared("proximal_adagrad", inplace={"ParamOut": "Param", "MomentOut": "Moment"})
def proximal(xp: Any, scratch: Any, Grad: Any, LearningRate: Any, inputs: Slots, outputs: Slots, attrs: Slots) -> list[Call]:
    param, steps, after = _begun(xp, inputs, outputs, attrs)
    step, moment = scratch(param.shape, param.dtype), outputs.get("MomentOut")
    if moment is None:
        steps += copy(xp, Grad, step)
    else:
        steps += [partial(xp.multiply, Grad, Grad, step), partial(xp.add, moment, step, moment)]
        steps += [partial(xp.sqrt, moment, step), partial(xp.divide, Grad, step, step)]
    steps += _descend(xp, param, step, LearningRate)
    return [*steps, partial(_shrink, xp, LearningRate, attrs["l1"], attrs["l2"], param), *after]


def _shrink(xp: Any, rate: Any, l1: float, l2: float, param: OutArray) -> None:
    if l1 > 0:
        xp.multiply(xp.sign(param), xp.maximum(xp.abs(param) - rate * param.dtype.type(l1), 0), out=param)
    param /= 1 + rate * param.dtype.type(l2)


@prepared("adamax", inplace={**_MASTER, "MomentOut": "Moment", "InfNormOut": "InfNorm"})
def adamax(
    xp: Any,
    scratch: Any,
    Grad: Any,
    LearningRate: Any,
    MomentOut: Any,
    InfNormOut: Any,
    inputs: Slots,
    outputs: Slots,
    attrs: Slots,
) -> list[Call]:
    beta1, beta2, epsilon = attrs["beta1"], attrs["beta2"], attrs["epsilon"]
    target, steps, after = _begun(xp, inputs, outputs, attrs)
    rate = scratch((1,), target.dtype)
    steps.append(partial(xp.subtract, 1, inputs["Beta1Pow"].reshape(-1), rate))
    steps.append(partial(xp.divide, LearningRate.reshape(-1), rate, rate))
    for param, grad, moment, norm, step in _pieces(xp, scratch, 1, target, Grad, MomentOut, InfNormOut):
        steps += _average(xp, moment, grad, beta1, 1 - beta1, step)
        steps += [partial(xp.multiply, norm, beta2, norm), partial(xp.add, norm, epsilon, norm), partial(xp.absolute, grad, step)]
        steps += [partial(xp.maximum, norm, step, out=norm), partial(xp.divide, moment, norm, step)]
        steps += _descend(xp, param, step, rate)
    return steps + after


_MOMENTS = {slot + "Out": slot for slot in ("Param", "Moment1", "Moment2")}


@prepared("nadam", inplace={**_MOMENTS, **{slot + "Out": slot for slot in ("MomentumDecayPow", "Beta2Pow", "MuProduct")}})
def nadam(
    xp: Any,
    scratch: Any,
    Grad: Any,
    LearningRate: Any,
    Moment1Out: Any,
    Moment2Out: Any,
    inputs: Slots,
    outputs: Slots,
    attrs: Slots,
) -> list[Call]:
    beta1, beta2, epsilon = attrs["beta1"], attrs["beta2"], attrs["epsilon"]
    param, steps, after = _begun(xp, inputs, outputs, attrs)
    of_grad, of_moment, root_scale = (scratch((1,), param.dtype) for _ in range(3))
    state = [outputs[slot].reshape(-1) for slot in ("MomentumDecayPowOut", "MuProductOut", "Beta2PowOut")]
    step_decay = NADAM_BASE ** attrs["momentum_decay"]
    steps.append(partial(_nadam_numbers, xp, state, beta1, beta2, step_decay, of_grad, of_moment, root_scale))
    for part, grad, moment1, moment2, step, root in _pieces(xp, scratch, 2, param, Grad, Moment1Out, Moment2Out):
        steps += _average(xp, moment1, grad, beta1, 1 - beta1, step)
        steps += _average(xp, moment2, grad, beta2, 1 - beta2, step, square=True)
        steps += [partial(xp.multiply, grad, of_grad, step), partial(xp.multiply, moment1, of_moment, root)]
        steps += [partial(xp.add, step, root, step), partial(xp.divide, moment2, root_scale, root), partial(xp.sqrt, root, root)]
        steps += [partial(xp.add, root, epsilon, root), partial(xp.divide, step, root, step)]
        steps += _descend(xp, part, step, LearningRate)
    return steps + after


def _nadam_numbers(
    xp: Any,
    state: list[OutArray],
    beta1: float,
    beta2: float,
    step_decay: float,
    of_grad: OutArray,
    of_moment: OutArray,
    root_scale: OutArray,
) -> None:
    """The factors of the gradient and of the first moment, and ``1 - Beta2Pow``; the numbers `state` go to the next step."""
    decayed, product, power2 = state
    now, following = beta1 * (1 - decayed * 0.5), beta1 * (1 - decayed * (0.5 * step_decay))
    xp.multiply(product, now, out=product)
    xp.divide(1 - now, 1 - product, out=of_grad)
    xp.divide(following, 1 - product * following, out=of_moment)
    xp.subtract(1, power2, root_scale)
    xp.multiply(decayed, step_decay, out=decayed)
    xp.multiply(power2, beta2, out=power2)


@prepared("radam", inplace={**_MOMENTS, **{slot + "Out": slot for slot in ("Beta1Pow", "Beta2Pow", "Step")}})
def radam(
    xp: Any, scratch: Any, Grad: Any, Moment1Out: Any, Moment2Out: Any, inputs: Slots, outputs: Slots, attrs: Slots
) -> list[Call]:
    beta1, beta2, epsilon = attrs["beta1"], attrs["beta2"], attrs["epsilon"]
    param, steps, after = _begun(xp, inputs, outputs, attrs)
    numbers = [scratch((1,), param.dtype) for _ in range(3)]
    rectified, plain, rate = numbers
    state = [outputs[slot].reshape(-1) for slot in ("Beta1PowOut", "Beta2PowOut", "StepOut")]
    steps.append(partial(_radam_numbers, xp, inputs["LearningRate"].reshape(-1), state, beta2, numbers))
    for part, grad, moment1, moment2, step in _pieces(xp, scratch, 1, param, Grad, Moment1Out, Moment2Out):
        steps += _average(xp, moment1, grad, beta1, 1 - beta1, step)
        steps += _average(xp, moment2, grad, beta2, 1 - beta2, step, square=True)
        steps += [partial(xp.sqrt, moment2, step), partial(xp.add, step, epsilon, step)]
        steps += [partial(xp.divide, rectified, step, step), partial(xp.add, step, plain, step)]
        steps += [partial(xp.multiply, step, moment1, step), *_descend(xp, part, step, rate)]
    return [*steps, *after, *_raise_powers(xp, outputs, beta1, beta2), partial(xp.add, state[2], 1, state[2])]


def _radam_numbers(xp: Any, learning_rate: Any, state: list[Any], beta2: float, numbers: list[OutArray]) -> None:
    """The factor of ``1 / (sqrt(Moment2) + epsilon)``, the one without it (one of both is 0), and the rate of this step."""
    power1, power2, step = state
    rectified, plain, rate = numbers
    most = 2 / (1 - beta2) - 1
    length = most - step * power2 * 2 / (1 - power2)
    variance = (length - 4) * (length - 2) * most / (length * ((most - 4) * (most - 2)))
    xp.less_equal(length, 5, out=plain)
    xp.multiply(xp.sqrt(xp.maximum(variance, 0) * (1 - power2)), 1 - plain, out=rectified)
    xp.divide(learning_rate, 1 - power1, out=rate)


@prepared("lion", inplace={"ParamOut": "Param", "MomentOut": "Moment"})
def lion(
    xp: Any, scratch: Any, Grad: Any, LearningRate: Any, MomentOut: Any, inputs: Slots, outputs: Slots, attrs: Slots
) -> list[Call]:
    beta1, beta2, coeff = attrs["beta1"], attrs["beta2"], attrs["coeff"]
    param, steps, after = _begun(xp, inputs, outputs, attrs)
    for part, grad, moment, step, spare in _pieces(xp, scratch, 2, param, Grad, MomentOut):
        steps += [partial(xp.multiply, grad, 1 - beta1, step), partial(xp.multiply, moment, beta1, spare)]
        steps += [partial(xp.add, step, spare, step), partial(xp.sign, step, step)]
        if coeff:
            steps += [partial(xp.multiply, part, coeff, spare), partial(xp.add, step, spare, step)]
        steps += [*_average(xp, moment, grad, beta2, 1 - beta2, spare), *_descend(xp, part, step, LearningRate)]
    return steps + after


@prepared("rmsprop", inplace={**_MASTER, "MomentOut": "Moment", "MeanSquareOut": "MeanSquare", "MeanGradOut": "MeanGrad"})
def rmsprop(
    xp: Any,
    scratch: Any,
    Grad: Any,
    LearningRate: Any,
    MomentOut: Any,
    MeanSquareOut: Any,
    inputs: Slots,
    outputs: Slots,
    attrs: Slots,
) -> list[Call]:
    decay, epsilon, centered = attrs["decay"], attrs["epsilon"], attrs["centered"]
    target, steps, after = _begun(xp, inputs, outputs, attrs)
    means = outputs.get("MeanGradOut") if centered else MeanSquareOut
    if means is None:  # not an output
        means = scratch(inputs["MeanGrad"].shape, inputs["MeanGrad"].dtype)
        steps += copy(xp, inputs["MeanGrad"], means)
    pieces = _pieces(xp, scratch, 1, target, Grad, MomentOut, MeanSquareOut, means)
    for param, grad, moment, square, mean, step in pieces:
        steps += _average(xp, square, grad, decay, 1 - decay, step, square=True)
        if centered:
            steps += _average(xp, mean, grad, decay, 1 - decay, step)
            steps += [partial(xp.multiply, mean, mean, step), partial(xp.subtract, square, step, step)]
            steps.append(partial(xp.add, step, epsilon, step))
        else:
            steps.append(partial(xp.add, square, epsilon, step))
        steps += [partial(xp.sqrt, step, step), partial(xp.divide, grad, step, step)]
        steps += [partial(xp.multiply, step, LearningRate, step), partial(xp.multiply, moment, attrs["momentum"], moment)]
        steps += [partial(xp.add, moment, step, moment), partial(xp.subtract, param, moment, param)]
    return steps + after


@prepared("ftrl", inplace={"ParamOut": "Param", "SquaredAccumOut": "SquaredAccumulator", "LinearAccumOut": "LinearAccumulator"})
def ftrl(
    xp: Any,
    scratch: Any,
    Grad: Any,
    LearningRate: Any,
    SquaredAccumOut: Any,
    LinearAccumOut: Any,
    inputs: Slots,
    outputs: Slots,
    attrs: Slots,
) -> list[Call]:
    l1, l2, lr_power = attrs["l1"], attrs["l2"], attrs["lr_power"]
    param_out, steps, _ = _begun(xp, inputs, outputs, attrs)

    def root(source: Any, target: Any) -> Call:
        return partial(xp.sqrt, source, target) if lr_power == -0.5 else partial(xp.power, source, -lr_power, target)

    for param, grad, squared, linear, step, after in _pieces(xp, scratch, 2, param_out, Grad, SquaredAccumOut, LinearAccumOut):
        steps += [root(squared, step), partial(xp.multiply, grad, grad, after), partial(xp.add, squared, after, squared)]
        steps += [root(squared, after), partial(xp.subtract, after, step, step), partial(xp.divide, step, LearningRate, step)]
        steps += [partial(xp.multiply, step, param, step), partial(xp.add, linear, grad, linear)]
        steps += [partial(xp.subtract, linear, step, linear), partial(xp.divide, after, LearningRate, after)]
        steps += [partial(xp.add, after, 2 * (l2 + TINY_DECAY), after), partial(xp.clip, linear, -l1, l1, step)]
        steps += [partial(xp.subtract, step, linear, step), partial(xp.divide, step, after, param)]
    return steps


@prepared("lars_momentum", inplace={**_MASTER, "VelocityOut": "Velocity"})
def lars_momentum(xp: Any, scratch: Any, inputs: Slots, outputs: Slots, attrs: Slots) -> list[Call]:
    steps: list[Call] = []
    for i, decay in enumerate(decays_of(len(inputs["Param"]), attrs)):
        one_in, one_out = ({slot: arrays[i] for slot, arrays in slots.items() if arrays} for slots in (inputs, outputs))
        steps += _lars(xp, scratch, one_in, one_out, attrs, decay)
    return steps


def _lars(xp: Any, scratch: Any, inputs: Slots, outputs: Slots, attrs: Slots, decay: float) -> list[Call]:
    target, steps, after = _begun(xp, inputs, outputs, attrs)
    grads, rate, factor = inputs["Grad"], scratch((1,), target.dtype), attrs["rescale_grad"]
    steps.append(partial(xp.copyto, rate, inputs["LearningRate"].reshape(-1), "unsafe"))
    if decay > 0:
        steps.append(partial(_adapt_to_slope, xp, target, grads, factor, decay, attrs["epsilon"], attrs["lars_coeff"], rate))
    for param, grad, velocity, step, spare in _pieces(xp, scratch, 2, target, grads, outputs["VelocityOut"]):
        steps += [partial(xp.multiply, grad, factor, step), partial(xp.multiply, param, decay, spare)]
        steps += [partial(xp.add, step, spare, step), partial(xp.multiply, step, rate, step)]
        steps += [partial(xp.multiply, velocity, attrs["mu"], velocity), partial(xp.add, velocity, step, velocity)]
        steps.append(partial(xp.subtract, param, velocity, param))
    return steps + after


def _adapt_to_slope(
    xp: Any, param: Any, grads: Any, factor: float, decay: float, epsilon: float, coefficient: float, rate: OutArray
) -> None:
    size, slope = _norm(xp, param, param.dtype), _norm(xp, grads, param.dtype) * factor
    usable, below = (size > 0) & (slope > 0), slope + decay * size + epsilon
    xp.multiply(rate, _ratio(xp, usable, coefficient * size, below), out=rate)
