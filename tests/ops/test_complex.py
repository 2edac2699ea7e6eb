"""Gradients of complex numbers: right where an op says that its rule is (`OpDef.complex_rule`), refused elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from checks import Checks, each, some
from conformance.case import CASES, Case
from conformance.facet import FACETS
from conformance.in_eager_mode import holds_arrays, run_eagerly
from numeric import flat
from samples import OPS, Sample, cast

import fluid
from fluid import dygraph
from fluid.backward import append_backward, gradients
from fluid.eager.dispatch import namespace as o
from fluid.errors import BackwardError, FluidError
from fluid.opdef import registry
from fluid.opdef.registry import Rule

MARKED = sorted(name for name, definition in registry.all_ops().items() if definition.complex_rule)
FACETS_OF_NUMBERS = [facet for facet in FACETS if facet.name in ("gradient rule", "gradient kernel", "second order")]
TURNED = ("eig", "eigh", "eigvalsh")
"""Whose vectors may be turned, so that differences tell of what does not depend on that alone: see test_linalg.py."""
SAMPLES = 3
"""How many samples of an op are tried."""


def complexified(value: Any, rng: np.random.Generator) -> Any:
    """Floats with imaginary parts added."""
    if isinstance(value, list):
        return [complexified(item, rng) for item in value]
    array = np.asarray(value)
    return array + 0.3j * rng.uniform(-1, 1, array.shape) if array.dtype.kind == "f" else array


def takes_complex(op_type: str, sample: Sample) -> bool:
    """Whether the op computes with complex numbers in place of the floats of a sample."""
    elements = [element for slot in registry.get(op_type).inputs.values() for element in slot.elements]
    floats = any(np.asarray(item).dtype.kind == "f" for value in sample.inputs.values() for item in flat(value))
    return floats and "real" not in elements and op_type not in ("conj", *TURNED)


@pytest.mark.random
@each("op_type", some(MARKED))
def test_gradients_of_complex_numbers(op_type: str) -> None:
    """Of the samples with imaginary parts added, the rule, kernel and second order against central differences."""
    rng, tried = np.random.default_rng(0), 0
    with Checks() as check, np.errstate(all="ignore"):
        for number, sample in enumerate(OPS[op_type]):
            key = f"{op_type}-{number}"
            if tried == SAMPLES or not takes_complex(op_type, sample) or not Case(key, "float64").wrt:
                continue
            inputs = {s: complexified(v, rng) for s, v in sample.inputs.items()}
            inputs = {s: sample.within[s](v) if s in sample.within else v for s, v in inputs.items()}
            numbers = replace(sample, inputs=inputs, reference=None)
            tried += 1
            for facet in FACETS_OF_NUMBERS:
                case = Case(key, "float64", numbers)
                if facet.applies(case):
                    with check(f"{key}, {facet.name}"):
                        facet.check(case)
    complex_samples = [s for s in OPS[op_type] if any(np.iscomplexobj(item) for v in s.inputs.values() for item in flat(v))]
    real_to_complex = any("real" in slot.elements for slot in registry.get(op_type).inputs.values())
    assert tried or complex_samples or real_to_complex, "no sample has complex numbers"


def refused(op_type: str, sample: Sample) -> bool:
    """Whether a gradient to complex inputs of an op is refused; False where it does not take any, or nothing is recorded."""

    def converted(item: Any) -> Any:
        if np.asarray(item).dtype.kind not in "fc":
            return dygraph.Tensor(item)
        leaves.append(dygraph.Tensor(item.astype("complex128"), requires_grad=True))
        return leaves[-1]

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
                weights = dygraph.Tensor(np.ones(output.shape, output.numpy().dtype))
                dygraph.grad(output, leaves, weights, create_graph=create_graph, retain_graph=True, allow_unused=True)
    return bool(outputs)


@pytest.mark.filterwarnings("ignore")
def test_every_other_op_that_computes_with_complex_numbers_refuses_their_gradient() -> None:
    taken = set()
    with Checks() as check:
        for op_type, samples in sorted(OPS.items()):
            if isinstance(registry.get(op_type).rule, Rule) and not registry.get(op_type).complex_rule:
                for number, sample in enumerate(filter(holds_arrays, samples[:2])):
                    with check(f"{op_type}-{number}"):
                        if refused(op_type, sample):
                            taken.add(op_type)
    assert len(taken) > 50 and {"relu", "tanh_shrink", "softmax", "conv2d"} <= taken


def test_every_marked_op_is_tried() -> None:
    assert len(MARKED) > 100 and set(MARKED) <= {op_type for op_type, _ in CASES.values()}


def test_the_gradient_points_where_the_value_grows() -> None:
    """Of ``|z|^2``, it is ``2 z``."""
    z = dygraph.Tensor(np.array([1 + 2j, 3 - 1j]), requires_grad=True)
    for loss in (lambda: o.square(o.abs(z)).sum(), lambda: o.real(z * o.conj(z)).sum()):
        (gradient,) = dygraph.grad(loss(), [z])
        np.testing.assert_allclose(gradient.numpy(), 2 * z.numpy())
    (first,) = dygraph.grad(o.real(z * z * z).sum(), [z], create_graph=True)
    np.testing.assert_allclose(first.numpy(), 3 * np.conj(z.numpy() ** 2))
    (second,) = dygraph.grad(o.imag(first).sum(), [z])
    np.testing.assert_allclose(second.numpy(), -6j * np.conj(z.numpy()), rtol=1e-12)


def test_casts_hand_on_real_parts() -> None:
    x = dygraph.Tensor([1.0, 2.0], requires_grad=True)
    with np.errstate(all="ignore"), pytest.warns(np.exceptions.ComplexWarning):
        (x.astype("complex64").astype("float32") * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 4.0]


def test_a_complex_loss_is_refused() -> None:
    z = fluid.data("z", [1], "complex64")
    z.stop_gradient = False
    with pytest.raises(BackwardError, match="a loss is a real number"):
        append_backward(z * z)
    with pytest.raises(BackwardError, match="only a real number has a gradient that is 1"):
        gradients(z * z, z)
    point = dygraph.Tensor(np.array([1j]), requires_grad=True)
    with pytest.raises(BackwardError, match="only a real number has a gradient that is 1"):
        (point * point).backward()


def test_programs_have_gradients_of_complex_numbers() -> None:
    """The plan, the interpreter and eager mode agree."""
    z = fluid.data("z", [3], "complex128")
    z.stop_gradient = False
    loss = fluid.layers.reduce_sum(fluid.layers.abs(fluid.layers.exp(z * z)))
    (gradient,) = gradients(loss, z)
    value = np.array([0.3 + 0.2j, -1j, 0.5])
    executor = fluid.Executor()
    (planned,) = executor.run(feed={"z": value}, fetch_list=[gradient])
    (stepwise,) = executor.interpret(fluid.default_main_program(), {"z": value}, [gradient])
    expected = np.conj(2 * value) * np.abs(np.exp(value * value))
    np.testing.assert_allclose(planned, expected)
    np.testing.assert_array_equal(planned, stepwise)


def test_programs_refuse_other_ops() -> None:
    z = fluid.data("z", [2], "complex64")
    z.stop_gradient = False
    with pytest.raises(BackwardError, match=r"(?s)relu has no gradient for complex numbers, and computes with.*test_complex"):
        gradients(fluid.layers.reduce_sum(fluid.layers.abs(fluid.layers.relu(z))), z)
    weight = fluid.layers.create_parameter([2], "float32")
    loss = fluid.layers.reduce_sum(fluid.layers.abs(z) * weight)
    assert [parameter for parameter, _ in append_backward(loss)] == [weight]
