"""Gradient rules are those of real functions: no gradient, which would lack its conjugates, flows through complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import Checks
from numeric import flat
from samples import OPS, Sample, cast
from test_eager_ops import holds_arrays, run_eagerly

import fluid
from fluid import dygraph
from fluid.backward import gradients
from fluid.errors import BackwardError, FluidError, FluidTypeError
from fluid.opdef import registry
from fluid.opdef.registry import Rule


def refused(op_type: str, sample: Sample) -> bool:
    """Whether a gradient to complex inputs of an op is refused; False where it does not take any, or nothing is recorded."""

    def converted(item: Any) -> Any:
        if np.asarray(item).dtype.kind != "f":
            return dygraph.Tensor(item)
        leaves.append(dygraph.Tensor(item, requires_grad=True))
        return leaves[-1].astype("complex128")

    leaves: list[Any] = []
    values = cast(sample.inputs, "float64")
    given = {s: [converted(item) for item in v] if isinstance(v, list) else converted(v) for s, v in values.items()}
    try:
        found = run_eagerly(op_type, sample, given)
    except (FluidError, TypeError):  # numpy's ceil and floor take none
        return False
    outputs = [item for value in found.values() for item in flat(value) if item is not None and item.requires_grad]
    for output in outputs:
        for create_graph in (False, True):
            with pytest.raises(BackwardError, match=r"complex|not differentiable"):
                dygraph.grad(output, leaves, create_graph=create_graph, retain_graph=True, allow_unused=True)
    return bool(outputs)


@pytest.mark.filterwarnings("ignore")
def test_every_op_that_computes_with_complex_numbers_refuses_their_gradient() -> None:
    taken = set()
    with Checks() as check:
        for op_type, samples in sorted(OPS.items()):
            if isinstance(registry.get(op_type).rule, Rule):
                for number, sample in enumerate(filter(holds_arrays, samples[:2])):
                    with check(f"{op_type}-{number}"):
                        if refused(op_type, sample):
                            taken.add(op_type)
    assert len(taken) > 50 and {"abs", "elementwise_mul", "exp", "matmul_v2", "reduce_sum"} <= taken


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_a_complex_tensor_cannot_ask_for_a_gradient() -> None:
    z = dygraph.Tensor(np.array([1 + 2j, 3 - 1j]))
    with pytest.raises(FluidTypeError, match=r"complex128.*cannot have a gradient"):
        z.stop_gradient = False
    assert ((z * z).abs() ** 2.0).numpy().real == pytest.approx([25.0, 100.0])  # values are computed all the same
    x = dygraph.Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(
        BackwardError, match=r"(?s)no gradient flows through complex numbers, and cast computes with complex64.*test_complex"
    ):
        (x.astype("complex64").astype("float32") * x).sum().backward()
    (x.astype("complex64").detach().astype("float32") * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 2.0]


def test_programs_refuse_it_too(fresh: None) -> None:
    x = fluid.data("x", [2], "float32")
    x.stop_gradient = False
    z = fluid.data("z", [2], "complex64")
    z.stop_gradient = False
    through = fluid.layers.cast(fluid.layers.cast(x, "complex64"), "float32")
    with pytest.raises(
        BackwardError, match=r"(?s)no gradient flows through complex numbers, and cast computes with.*test_complex"
    ):
        gradients(fluid.layers.reduce_sum(through * x), x)
    with pytest.raises(BackwardError, match="complex numbers, and reduce_sum computes with"):
        gradients(fluid.layers.reduce_sum(fluid.layers.abs(z)), z)
    weight = fluid.layers.create_parameter([2], "float32")
    loss = fluid.layers.reduce_sum(fluid.layers.cast(fluid.layers.abs(z), "float32") * weight)
    assert [parameter for parameter, _ in fluid.backward.append_backward(loss)] == [weight]
