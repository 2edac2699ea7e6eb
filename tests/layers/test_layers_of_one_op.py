"""The layers that are one op each take tensors. The facets of the conformance suite test the ops themselves in eager mode."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from checks import each
from conformance.in_eager_mode import assert_same, tensors
from samples import OPS, cast

import fluid
from fluid import dygraph
from fluid.errors import FluidTypeError
from fluid.executor.binding.compiled import apply_op
from fluid.opdef import registry

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
    """A layer that is a single op gives the result of the op."""
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
