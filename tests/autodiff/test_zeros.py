"""Gradients that are zero, and gradients at zero."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from checks import each
from conformance.case import CASES, Case, OneOp
from numeric import flat

import fluid
from fluid import layers
from fluid.errors import FluidError
from fluid.executor.binding.compiled import apply_op
from fluid.opdef import registry
from fluid.opdef.registry import ZERO_GRADIENT, Rule
from fluid.values.lod_array import array_of, lod_of, with_lod

CONSTANT_BY_DEFINITION = {
    "held": "a copy through which no gradient flows",
    "row_of_each": "stands in gradients that treat it as a constant",
    "segment_like": "counts, in gradients of means",
    "spectral_vectors": "vectors that spectral_norm treats as constants",
    "yolo_terms": "weights and targets of a loss",
}
STEPS = [op_type for op_type, definition in registry.all_ops().items() if definition.rule is ZERO_GRADIENT]


def samples_of(op_type: str) -> Iterator[tuple[str, Any]]:
    yield from ((key, sample) for key, (kind, sample) in CASES.items() if kind == op_type and not sample.random)


def is_float(value: Any) -> bool:
    return all(item is not None and np.asarray(array_of(item)).dtype.kind == "f" and array_of(item).size for item in flat(value))


def changed(value: Any, by: Any) -> Any:
    """Floats changed by a function of their array."""
    if isinstance(value, list):
        return [changed(item, by) for item in value]
    return with_lod(by(np.asarray(array_of(value))), lod_of(value))


@each("op_type", STEPS)
def test_an_op_with_the_gradient_zero_is_constant_around_its_samples(op_type: str) -> None:
    """Small changes of the inputs change no output."""
    if op_type in CONSTANT_BY_DEFINITION:
        return
    for key, sample in samples_of(op_type):
        case = Case(key, "float64", sample)
        inputs = case.with_lods(case.inputs)
        before = apply_op(op_type, inputs, case.attrs)
        definition = registry.get(op_type)
        for slot, value in inputs.items():
            if value is None or not is_float(value) or definition.inputs[slot].shape_only:
                continue
            try:  # to the inside of where samples of integers in floats are
                after = apply_op(op_type, {**inputs, slot: changed(value, lambda array: array * (1 + 1e-9))}, case.attrs)
            except (FluidError, ValueError, IndexError):
                continue  # it takes no other value
            for name, one in before.items():
                for a, b in zip(flat(one), flat(after[name]), strict=True):
                    if a is not None and array_of(a).dtype.kind == "f" and array_of(a).shape == array_of(b).shape:
                        moved = float(np.abs(array_of(a).astype("float64") - array_of(b)).max(initial=0))
                        assert moved < 1e-12 or moved > 1e-3, f"{key}: {name} moves with {slot}"


INFINITE_AT_ZERO = {
    **dict.fromkeys(("sqrt", "pow", "elementwise_pow"), "the slope is infinite"),
    **dict.fromkeys(("cross_entropy", "cross_entropy2"), "the logarithm's slope is infinite; the loss itself is bounded"),
    "atan2": "it has no slope",
    "logspace": "the logarithm of the base is infinite",
    **dict.fromkeys(("eig", "eigh", "eigvalsh", "svd"), "equal eigenvalues have no slopes"),
    **dict.fromkeys(("allreduce", "c_allreduce_prod"), "products of workers divide by their factor, as the op says"),
    "fused_elementwise_div": "it divides",
}


@each("op_type", [op_type for op_type, definition in registry.all_ops().items() if isinstance(definition.rule, Rule)])
def test_a_gradient_is_finite_at_zero_where_the_op_is(op_type: str) -> None:
    """Each float input of each sample as zeros, and all of them: no norm or product is divided by."""
    if op_type in INFINITE_AT_ZERO:
        return
    for key, sample in samples_of(op_type):
        inputs = {slot: value for slot, value in sample.inputs.items() if value is not None}
        slots = [slot for slot, value in inputs.items() if is_float(value)]
        for chosen in [*([slot] for slot in slots), slots]:
            zeros = {slot: changed(inputs[slot], np.zeros_like) for slot in chosen}
            outputs, gradients = values_at(key, replace(sample, inputs={**inputs, **zeros}))
            if all(np.isfinite(value).all() for value in outputs if value.dtype.kind in "fc"):
                assert all(np.isfinite(value).all() for value in gradients), f"{key}: a gradient at {', '.join(chosen)} = 0"


def values_at(key: str, sample: Any) -> tuple[list[Any], list[Any]]:
    """Outputs and gradients of a sample; nothing where the op refuses its inputs."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            one = OneOp(Case(key, "float64", sample))
            if not one.wrt:
                return [], []
            outputs = [var for value in one.outputs.values() for var in flat(value)]
            gradients = [grad for grad in one.first_order()[0] if grad is not None]
            values = fluid.Executor().interpret(one.program, one.fed, [*outputs, *gradients], fluid.Scope())
        except (FluidError, ValueError, ArithmeticError, np.linalg.LinAlgError, AssertionError):
            return [], []
    return values[: len(outputs)], values[len(outputs) :]


def test_a_clipped_vector_has_the_gradient_one_at_zero() -> None:
    x = fluid.data("x", [3])
    x.stop_gradient = False
    clipped = [layers.clip_by_norm(x, bound) for bound in (0.0, 1e-20, 1.0, 1e30)]
    gradients = [fluid.gradients([value], [x])[0] for value in clipped]
    feed = {"x": np.zeros(3, "float32")}
    results = fluid.Executor().run(feed=feed, fetch_list=[*clipped, *gradients])
    np.testing.assert_array_equal(results[:4], np.zeros((4, 3)))
    np.testing.assert_array_equal(results[4:], [[0] * 3, [1] * 3, [1] * 3, [1] * 3])


def test_a_remainder_has_the_gradient_one() -> None:
    x = fluid.data("x", [3])
    x.stop_gradient = False
    (gradient,) = fluid.gradients([x % 2.0 + x], [x])
    (value,) = fluid.Executor().run(feed={"x": np.array([0.5, 3.5, -1.2], "float32")}, fetch_list=[gradient])
    np.testing.assert_array_equal(value, [2, 2, 2])
