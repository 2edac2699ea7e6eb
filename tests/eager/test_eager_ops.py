"""Every op in eager mode: the same bits as in a program, forward and backward, and the same orders of derivatives."""

from __future__ import annotations

import inspect
import zlib
from typing import Any

import numpy as np
import pytest
from checks import Checks, each, some
from numeric import direction_like, flat
from samples import OPS, Sample, cast

import fluid
from fluid import dygraph
from fluid.errors import FluidTypeError
from fluid.executor.binding.compiled import apply_op
from fluid.executor.kernels.table import KERNELS
from fluid.opdef import registry
from fluid.opdef.registry import Rule, grad_slot
from fluid.values.lod_array import LoDArray, array_of, with_lod


def holds_arrays(sample: Sample) -> bool:
    items = [item for value in sample.inputs.values() for item in flat(value)]
    return all(isinstance(item, (np.ndarray, np.generic, float, int)) for item in items)


CASES = {
    op_type: {f"{op_type}-{number}": sample for number, sample in enumerate(samples) if holds_arrays(sample)}
    for op_type, samples in sorted(OPS.items())
}
"""Samples by op, and by what they are called."""


def tensor(array: Any, lod: Any, stop: bool) -> dygraph.Tensor:
    made = dygraph.Tensor(array)
    if lod:
        made = made.with_lod(lod)
    if not stop and made.dtype.text.startswith("float"):
        made.stop_gradient = False
    return made


def tensors(sample: Sample, inputs: dict[str, Any], wrt: list[str]) -> dict[str, Any]:
    return {
        slot: [tensor(item, (sample.lods.get(slot) or [()] * len(value))[i], slot not in wrt) for i, item in enumerate(value)]
        if isinstance(value, list)
        else tensor(value, sample.lods.get(slot, ()), slot not in wrt)
        for slot, value in inputs.items()
    }


def arrays(sample: Sample, inputs: dict[str, Any]) -> dict[str, Any]:
    return {
        slot: [with_lod(item, (sample.lods.get(slot) or [()] * len(value))[i]) for i, item in enumerate(value)]
        if isinstance(value, list)
        else with_lod(value, sample.lods.get(slot, ()))
        for slot, value in inputs.items()
    }


def assert_same(found: Any, expected: Any) -> None:
    """The same bits, element type and shape."""
    found, expected = found.numpy(), np.asarray(array_of(expected))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert found.tobytes() == expected.tobytes() or np.array_equal(found, expected, equal_nan=found.dtype.kind in "fc")


def run_eagerly(op_type: str, sample: Sample, given: dict[str, Any]) -> dict[str, Any]:
    found = getattr(dygraph.ops, op_type)(**given, **sample.attrs)
    visible = [name for name, slot in registry.get(op_type).outputs.items() if not slot.intermediate]
    return {visible[0]: found} if len(visible) == 1 else dict(zip(visible, found, strict=True))


def check_forward(op_type: str, sample: Sample) -> None:
    """The bits of the kernel."""
    inputs = cast(sample.inputs, "float32")
    expected = apply_op(op_type, arrays(sample, inputs), sample.attrs)
    for _ in range(2):  # found out, and remembered
        found = run_eagerly(op_type, sample, tensors(sample, inputs, []))
        for slot, value in found.items():
            for one, other in zip(flat(value), flat(expected.get(slot)), strict=False):
                if other is not None:
                    assert_same(one, other)
                    assert one.lod == (other.lod if isinstance(other, LoDArray) else ())


def differentiable(op_type: str, sample: Sample) -> bool:
    rule = registry.get(op_type).rule
    return isinstance(rule, Rule) and sample.orders > 0 and not sample.random


def wrt_of(op_type: str, sample: Sample) -> list[str]:
    rule = registry.get(op_type).rule
    assert isinstance(rule, Rule)
    if sample.wrt is not None:
        return list(sample.wrt)
    return [s for s in rule.wrt if s in sample.inputs and all(np.asarray(i).dtype.kind == "f" for i in flat(sample.inputs[s]))]


def check_backward(op_type: str, sample: Sample, seed: int) -> None:
    """First-order gradients are those of the gradient op's kernel; over tensors, by the rule, they are equal up to rounding."""
    definition = registry.get(op_type)
    wrt = wrt_of(op_type, sample)
    if not wrt:
        return
    rng = np.random.default_rng(seed)
    inputs = cast(sample.inputs, "float64")
    given = tensors(sample, inputs, wrt)
    found = run_eagerly(op_type, sample, given)
    assert isinstance(definition.rule, Rule)
    outs = [(slot, i, out) for slot in definition.rule.cotangents for i, out in enumerate(flat(found.get(slot)))]
    outs = [(slot, i, out) for slot, i, out in outs if out is not None and not out.stop_gradient]
    weights = [direction_like(rng, out.numpy()) for _, _, out in outs]
    leaves = [item for slot in wrt for item in flat(given[slot])]
    targets = [out for _, _, out in outs]
    grads = dygraph.grad(targets, leaves, weights, retain_graph=True, allow_unused=True)
    recorded = dygraph.grad(targets, leaves, weights, retain_graph=True, create_graph=True, allow_unused=True)
    for one, other in zip(grads, recorded, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            np.testing.assert_allclose(one.numpy(), other.numpy(), 1e-9 * sample.tolerance, 1e-10 * sample.tolerance)
    if definition.inline_grad or definition.grad_type not in KERNELS:
        return
    values = arrays(sample, inputs)
    made = apply_op(op_type, values, sample.attrs)
    reads: dict[str, Any] = {slot: values[slot] for slot in definition.rule.inputs if slot in values}
    reads.update({slot: made[slot] for slot in definition.rule.outputs if slot in made})
    for (slot, i, _), weight in zip(outs, weights, strict=True):
        value = made[slot][i] if definition.outputs[slot].many else made[slot]
        weight = with_lod(weight, value.lod) if isinstance(value, LoDArray) else weight
        if definition.outputs[slot].many:
            reads.setdefault(grad_slot(slot), []).append(weight)
        else:
            reads[grad_slot(slot)] = weight
    expected = apply_op(definition.grad_type, reads, sample.attrs, {grad_slot(slot) for slot in wrt})
    position = 0
    for slot in wrt:
        for value in flat(expected[grad_slot(slot)]):
            assert_same(grads[position], value)
            position += 1


@pytest.mark.random
@each("op_type", some(CASES))
def test_op(op_type: str) -> None:
    check_samples(op_type, 1)


@pytest.mark.slow
@each("op_type", CASES)
def test_every_sample(op_type: str) -> None:
    check_samples(op_type, len(CASES[op_type]))


def check_samples(op_type: str, count: int) -> None:
    """The first samples of an op, forward and backward."""
    with Checks() as check:
        for key, sample in list(CASES[op_type].items())[:count]:
            if not sample.random:
                with check(f"{key}, forward"):
                    check_forward(op_type, sample)
            if differentiable(op_type, sample):
                with check(f"{key}, backward"):
                    check_backward(op_type, sample, zlib.crc32(key.encode()))


# --------------------------------------------------------------------------------------------------------- fluid.layers
FAMILIES = ("activation", "elementwise", "reduction")


def takes_only_tensors(name: str) -> bool:
    """Whether the layer can be called with the tensors of the op's first sample, and nothing else."""
    if name not in OPS or registry.get(name).module.rpartition(".")[2] not in FAMILIES:
        return False
    parameters = inspect.signature(getattr(fluid.layers, name)).parameters.values()
    return sum(parameter.default is parameter.empty for parameter in parameters) == len(OPS[name][0].inputs)


GENERATED = [name for name in fluid.layers.ops.__all__ if takes_only_tensors(name)]


@each("name", GENERATED)
def test_layers_take_tensors(name: str) -> None:
    """The layers that are one op each give what the op gives."""
    sample = OPS[name][0]
    inputs = cast(sample.inputs, "float32")
    found = getattr(fluid.layers, name)(*tensors(sample, inputs, []).values())
    expected = apply_op(name, inputs, {"reduce_all": True} if name.startswith("reduce_") else {})
    assert_same(found, next(iter(expected.values())))


def test_other_layers_take_tensors() -> None:
    x = dygraph.Tensor(np.arange(6.0).reshape(2, 3), stop_gradient=False)
    layers = fluid.layers
    assert layers.reshape(x, [3, 2]).shape == (3, 2)
    assert layers.concat([x, x], axis=1).shape == (2, 6)
    assert [part.shape for part in layers.split(x, 3, dim=1)] == [(2, 1)] * 3
    assert layers.mean(x).tolist() == [2.5]
    assert layers.transpose(x, [1, 0]).shape == (3, 2)
    assert layers.elementwise_add(x, x, act="relu").tolist() == (2 * x.numpy()).tolist()
    values, places = layers.topk(x, 1)
    assert values.tolist() == [[2], [5]] and places.tolist() == [[2], [2]]
    assert layers.softmax(x).grad_fn is not None
    out = dygraph.Tensor(np.zeros((2, 3)) > 0)
    assert layers.less_than(x, x * 2.0, cond=out) is out and out.tolist() == [[False, True, True], [True, True, True]]
    loss = layers.mean(layers.square_error_cost(x, x.detach() * 0.0))
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), x.numpy() / 3)
    with pytest.raises(FluidTypeError, match=r"tanh: x should be a Variable, not list"):
        layers.tanh([[1.0]])
