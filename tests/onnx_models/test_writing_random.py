"""Random ops in ONNX models: the numbers differ from Fluid's, with the same distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from conformance.case import Case, OneOp
from onnx_running import bytes_of, lengths_of, run_program, session_of

import fluid
from fluid.onnx.writing import contents_of, signature_of

pytestmark = pytest.mark.numpy_alone

MANY = 20000


def drawn(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], slot: str = "Out") -> Any:
    """The numbers that an op draws in a model, with a seed."""
    program = fluid.Program()
    block = program.global_block()
    variables = {
        name: block.create_var(name=name, shape=value.shape, dtype=value.dtype, is_data=True) for name, value in inputs.items()
    }
    out = block.create_var(name="drawn")
    block.append_op(op_type, variables, {slot: out}, {**attrs, "seed": 7})
    (result,) = run_program(program, inputs, ["drawn"])
    return result


def test_normal_numbers_within_two_deviations() -> None:
    numbers = drawn("truncated_gaussian_random", {}, {"shape": [MANY], "mean": 1.0, "std": 2.0})
    assert numbers.dtype == np.float32 and abs(numbers - 1).max() <= 4 + 1e-4
    assert abs(numbers.mean() - 1) < 0.06 and abs(numbers.std() - 2 * 0.8796) < 0.05  # the deviation of what is cut at two


def test_numbers_of_the_shape_of_others() -> None:
    like = np.zeros((MANY,), "float32")
    waits = drawn("exponential", {"X": like}, {"lambda": 4.0})
    assert waits.min() > 0 and abs(waits.mean() - 0.25) < 0.01
    normal = drawn("gaussian_inplace", {"x": like}, {"mean": -1.0, "std": 3.0}, "out")
    assert abs(normal.mean() + 1) < 0.1 and abs(normal.std() - 3) < 0.1
    uniform = drawn("uniform_random_inplace", {"X": like}, {"min": 2.0, "max": 3.0})
    assert 2 <= uniform.min() < 2.01 and 2.99 < uniform.max() <= 3


def test_orders() -> None:
    order = drawn("randperm", {}, {"n": 500, "dtype": 3})
    assert sorted(order) == list(range(500)) and (order != np.arange(500)).mean() > 0.9


def test_classes() -> None:
    weights = np.array([[0.0, 1.0, 3.0, 4.0]], "float32")
    ids = drawn("multinomial", {"X": weights}, {"num_samples": MANY, "replacement": True})
    shares = np.bincount(ids[0], minlength=4) / MANY
    np.testing.assert_allclose(shares, weights[0] / 8, atol=0.015)
    rows = np.repeat(weights, MANY, 0)
    pairs = drawn("multinomial", {"X": rows}, {"num_samples": 2, "replacement": False})
    assert (pairs[:, 0] != pairs[:, 1]).all() and pairs.min() > 0
    np.testing.assert_allclose(np.bincount(pairs[:, 0], minlength=4) / MANY, weights[0] / 8, atol=0.015)
    one = drawn("sampling_id", {"X": rows / 8}, {})
    np.testing.assert_allclose(np.bincount(one, minlength=4) / MANY, weights[0] / 8, atol=0.015)
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(rows), -50)
    hard = drawn("gumbel_softmax", {"X": logits}, {"hard": True, "temperature": 0.5})
    assert set(np.unique(hard)) == {0, 1}
    np.testing.assert_allclose(hard.mean(0), weights[0] / 8, atol=0.015)
    soft = drawn("gumbel_softmax", {"X": logits}, {"temperature": 0.5})
    np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.bincount(soft.argmax(1), minlength=4) / MANY, weights[0] / 8, atol=0.015)


@each("op_type, slot", [("rpn_target_assign", "ScoreIndex"), ("tdm_sampler", "Out")])
def test_what_a_sample_may_draw(op_type: str, slot: str) -> None:
    """The model draws the requested numbers of foreground and background anchors, or tree nodes, and others in each run."""
    case = next(case for key in range(9) if (case := Case(f"{op_type}-{key}", "float32")).sample.check)
    one = OneOp(case)
    names = [var.name for var in one.outputs.values()]
    signature = signature_of(one.program, list(one.fed), names, with_state=False)
    session = session_of(bytes_of(contents_of(one.program, signature, lambda name: None, 18)))
    draws = set()
    for _ in range(5):
        outputs = dict(zip(one.outputs, session.run(names, lengths_of(one.fed)), strict=True))
        assert case.sample.check is not None
        case.sample.check(case.sample.inputs, outputs)
        draws.add(tuple(outputs[slot].reshape(-1)))
    assert len(draws) > 1
