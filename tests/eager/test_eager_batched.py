"""Gradients for a batch of weights in one pass: `fluid.eager.batched`, which ``jacobian(..., vectorize=True)`` is made of."""

from __future__ import annotations

import zlib
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from checks import Checks, each
from conformance.in_eager_mode import SAMPLES, differentiable, run_eagerly, tensors, wrt_of
from numeric import direction_like, flat
from py_layers import Cube
from samples import Sample, cast

from fluid import dygraph, layers
from fluid.dygraph import PyLayer, Tensor, grad, hessian, jacobian
from fluid.eager import functional
from fluid.eager.batched import batched_gradients
from fluid.errors import BackwardError, ProgramError
from fluid.opdef import registry
from fluid.opdef.registry import Rule

ROWS = 2
SAMPLES = {
    op_type: {key: sample for key, sample in samples.items() if differentiable(op_type, sample)}
    for op_type, samples in SAMPLES.items()
}
"""Samples by op, and by what they are called."""


def random(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape), stop_gradient=False)


def assert_rows_agree(target: Tensor, leaves: list[Tensor], rng: np.random.Generator, tolerance: float) -> None:
    """The gradients for all rows of weights are those for one row after another."""
    weights = np.stack([direction_like(rng, target.numpy()) for _ in range(ROWS)]).astype(target.numpy().dtype)
    batched = batched_gradients(target, leaves, Tensor(weights), create_graph=False)
    by_row = [grad(target, leaves, Tensor(row), retain_graph=True, allow_unused=True) for row in weights]
    for gradient, *rows in zip(batched, *by_row, strict=True):
        if gradient is None or rows[0] is None:  # which is a gradient of zeros
            assert not any(value is not None and value.numpy().any() for value in (gradient, *rows))
        else:
            expected = np.stack([row.numpy() for row in rows])
            np.testing.assert_allclose(gradient.numpy(), expected, 1e-6 * tolerance, 1e-9 * tolerance)


def check_sample(op_type: str, sample: Sample, seed: int, orders: int) -> None:
    """The gradients of an op's outputs, and with two orders, the gradients of these gradients."""
    rule, wrt, rng = registry.get(op_type).rule, wrt_of(op_type, sample), np.random.default_rng(seed)
    inputs = tensors(sample, cast(sample.inputs, "float64"), wrt)
    leaves = [item for slot in wrt for item in flat(inputs[slot])]
    if not leaves:
        return
    assert isinstance(rule, Rule)
    outputs = run_eagerly(op_type, sample, inputs)
    for target in [item for slot in rule.cotangents for item in flat(outputs.get(slot)) if item is not None]:
        if target.stop_gradient:
            continue
        assert_rows_agree(target, leaves, rng, sample.tolerance)
        if min(orders, sample.orders) > 1:
            weight = Tensor(direction_like(rng, target.numpy()))
            for slope in grad(target, leaves, weight, create_graph=True, allow_unused=True):
                if slope is not None and not slope.stop_gradient:
                    assert_rows_agree(slope, leaves, rng, sample.tolerance)


@each("op_type", [op_type for op_type in SAMPLES if SAMPLES[op_type] and registry.get(op_type).decomposition is None])
def test_rows_of_an_op(op_type: str) -> None:
    key, sample = next(iter(SAMPLES[op_type].items()))
    check_sample(op_type, sample, zlib.crc32(key.encode()), 1)


@pytest.mark.slow
@each("op_type", [op_type for op_type in SAMPLES if SAMPLES[op_type]])
def test_rows_of_every_sample(op_type: str) -> None:
    with Checks() as check:
        for key, sample in SAMPLES[op_type].items():
            with check(key):
                check_sample(op_type, sample, zlib.crc32(key.encode()), 2)


# ------------------------------------------------------------------------------------------------------------ functions
class OfTheFirst(PyLayer):
    """The identity; its gradient is None where the first element's is 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor | None:
        return dy if float(dy.numpy()[0]) else None


def hooked(x: Tensor) -> Tensor:
    y = x * x
    y.register_hook(lambda gradient: gradient * 2.0)
    return y.sum(0) * x[0]


def convolved(x: Tensor) -> Tensor:
    h = layers.relu(dygraph.ops.conv2d(x, FILTER, paddings=[1, 1]))
    h = dygraph.ops.pool2d(h, pooling_type="max", ksize=[3, 3], strides=[2, 2])
    return dygraph.ops.pool2d(h, pooling_type="avg", ksize=[1, 2], strides=[1, 1])


def normalized(x: Tensor) -> Tensor:
    return layers.softmax(dygraph.ops.layer_norm(x, begin_norm_axis=1)[0] @ x.reshape(4, 3), axis=0)


def recomputed(x: Tensor) -> Tensor:
    return dygraph.recompute(lambda y: y.tanh() * y, x) * x


FILTER = random(3, 2, 3, 3, seed=5)
FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "matrix": (lambda x: (x @ x.T).tanh(), random(3, 2)),
    "several": (lambda x, y: (x * y, (x.sum() + y.exp())[1:]), [random(3), random(3, seed=1)]),
    "unused": (lambda x, y: x * 2.0, [random(3), random(2, seed=1)]),
    "constant": (lambda x: Tensor(np.ones(2)), random(2)),
    "number": (lambda x: (x * x).sum(), random(2, 2)),
    "PyLayer": (lambda x: Cube.apply(x.tanh()) * x, random(4)),
    "gradients that are None": (lambda x: OfTheFirst.apply(x * 2.0)[::-1], random(3)),
    "hook": (hooked, random(3, 2)),
    "convolution": (convolved, random(2, 2, 5, 6)),
    "softmax of layer_norm": (normalized, random(3, 4)),
    "cross entropy": (
        lambda x: layers.softmax_with_cross_entropy(x, Tensor(np.array([[1], [0], [3]]))),
        random(3, 4),
    ),
    "recomputed": (recomputed, random(3)),
}


def flattened(matrices: Any) -> list[Any]:
    return [item for part in matrices for item in flattened(part)] if isinstance(matrices, tuple) else [matrices.numpy()]


@each("name", FUNCTIONS)
def test_the_matrix_is_that_of_rows(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    for create_graph in (False, True):
        rows = flattened(jacobian(function, inputs, create_graph))
        with patch.object(functional, "_row_by_row", side_effect=AssertionError("row by row")):
            at_once = flattened(jacobian(function, inputs, create_graph, vectorize=True))
        for one, other in zip(rows, at_once, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(other, one, 1e-9, 1e-12)


def test_the_matrix_can_be_differentiated_again() -> None:
    x = random(3)
    one, other = (grad(jacobian(lambda v: v.tanh() * v[0], x, True, at_once).sum(), x)[0].numpy() for at_once in (False, True))
    np.testing.assert_allclose(one, other, 1e-9)
    cubes = lambda v: (v * v * v).sum() * v[0]
    np.testing.assert_allclose(hessian(cubes, x, vectorize=True).numpy(), hessian(cubes, x).numpy(), 1e-9)
    third = jacobian(lambda v: hessian(cubes, v, vectorize=True), x, vectorize=True)
    np.testing.assert_allclose(third.numpy(), jacobian(lambda v: hessian(cubes, v), x).numpy(), 1e-9)


def test_matrices_and_gradients_have_memory_of_their_own() -> None:
    """A hook that overwrites its gradient, and a user who overwrites a matrix, change no other."""

    def double(gradient: Tensor) -> None:
        gradient.scale_(2.0)

    def function(x: Tensor, y: Tensor) -> Tensor:
        x, y = x * 1.0, y * 1.0
        y.register_hook(double)  # which is gone back through before x
        return x + y

    inputs = [random(2), random(2, seed=1)]
    for at_once in (False, True):
        by_x, by_y = jacobian(function, inputs, vectorize=at_once)
        assert not np.shares_memory(by_x._array, by_y._array)
        np.testing.assert_array_equal(by_x.numpy(), np.eye(2))
        np.testing.assert_array_equal(by_y.numpy(), 2.0 * np.eye(2))


def test_errors_are_those_of_rows() -> None:
    x = random(2)
    for at_once in (False, True):
        with pytest.raises(BackwardError, match="is not differentiable"):
            jacobian(lambda v: dygraph.ops.clip_by_norm(v, max_norm=1.0), x, vectorize=at_once)
        with pytest.raises(ProgramError, match="the output has no elements"):
            jacobian(lambda v: v.reshape(0, 2), Tensor(np.ones((2, 0))), vectorize=at_once)
        with dygraph.detect_anomaly(), pytest.raises(BackwardError, match="sqrt_grad gave a gradient that holds a NaN"):
            jacobian(lambda v: layers.sqrt(v * 0.0 - 1.0), x, vectorize=at_once)
