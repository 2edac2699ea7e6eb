"""Facets in eager mode: the same bits as in a program, forward and backward."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numeric import direction_like, flat
from samples import OPS, Sample, cast

from fluid import dygraph
from fluid.executor.binding.compiled import apply_op
from fluid.executor.kernels.table import KERNELS
from fluid.opdef import registry
from fluid.opdef.registry import Rule, grad_slot
from fluid.values.lod_array import LoDArray, array_of, with_lod

from .case import Case
from .facet import Engine, facet, float32, float64

__all__ = ["SAMPLES", "assert_same", "differentiable", "holds_arrays", "run_eagerly", "tensors", "wrt_of"]

EAGER = Engine("eager mode")


def holds_arrays(sample: Sample) -> bool:
    """Whether the inputs of a sample are arrays or numbers."""
    items = [item for value in sample.inputs.values() for item in flat(value)]
    return all(isinstance(item, (np.ndarray, np.generic, float, int)) for item in items)


SAMPLES = {
    op_type: {f"{op_type}-{number}": sample for number, sample in enumerate(samples) if holds_arrays(sample)}
    for op_type, samples in sorted(OPS.items())
}
"""Samples of arrays by op and key."""
QUICK = {next(iter(samples)) for samples in list(SAMPLES.values())[::3] if samples}
"""The first sample of every third op, which the default run checks."""


def is_quick(key: str, dtype: str) -> bool:
    return key in QUICK


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


@facet(float32, lambda case: holds_arrays(case.sample) and not case.sample.random, EAGER, is_quick)
def eager_values(case: Case) -> None:
    """Eager mode gives the bits of the kernel."""
    op_type, sample = case.type, case.sample
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


@facet(
    float64, lambda case: holds_arrays(case.sample) and differentiable(case.type, case.sample), engine=EAGER, is_quick=is_quick
)
def eager_gradients(case: Case) -> None:
    """First-order gradients have the bits of the gradient op's kernel. Recorded gradients, computed by the rule, are equal up to
    rounding."""
    op_type, sample = case.type, case.sample
    definition = registry.get(op_type)
    wrt = wrt_of(op_type, sample)
    if not wrt:
        return
    rng = np.random.default_rng(zlib.crc32(case.key.encode()))
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
