"""Ops and their gradients against Paddle 2.6.2's numbers, which `golden/make_paddle_math.py` wrote down."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from checks import each
from numeric import interpret
from paths import TESTS

import fluid.ops  # noqa: F401  (fills the registry)
from fluid.backward import gradients
from fluid.executor.binding.compiled import apply_op
from fluid.ir.program import Program
from fluid.opdef import registry

FILE = np.load(TESTS / "golden" / "paddle_math.npz")
CASES = json.loads(str(FILE["cases"]))


def slots(number: int, group: str) -> dict[str, Any]:
    """The arrays of a case by slot, lists where a slot holds many."""
    found: dict[str, Any] = {}
    for name in FILE.files:
        case, _, rest = name.partition("/")
        if case == str(number) and rest.startswith(group + "/"):
            slot, _, place = rest.removeprefix(group + "/").partition("/")
            if place:
                found.setdefault(slot, []).append(FILE[name])
            else:
                found[slot] = FILE[name]
    return found


def assert_close(found: Any, expected: Any, what: str) -> None:
    if isinstance(expected, list):
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_close(one, other, f"{what}[{place}]")
        return
    assert found.size == expected.size and found.dtype == expected.dtype, what
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-6, err_msg=what)


@each("number", range(len(CASES)), ids=[f"{case['op']}-{i}" for i, case in enumerate(CASES)])
def test_paddles_numbers(number: int) -> None:
    case, inputs = CASES[number], slots(number, "in")
    found = apply_op(case["op"], inputs, case["attrs"])
    for slot, value in slots(number, "out").items():
        assert_close(found[slot], value, slot)
    expected = slots(number, "grad")
    if not expected:
        return
    program = Program()
    block = program.global_block()
    feed: dict[str, Any] = {}

    def data(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [data(f"{name}_{place}", item) for place, item in enumerate(value)]
        feed[name] = value
        return block.create_var(name=name, shape=value.shape, dtype=value.dtype, is_data=True)

    variables = {slot: data(slot, value) for slot, value in inputs.items()}
    outputs: dict[str, Any] = {}
    for slot, definition in registry.get(case["op"]).outputs.items():
        if definition.many:
            outputs[slot] = [block.create_var(name=f"out_{slot}_{place}") for place in range(len(found[slot]))]
        else:
            outputs[slot] = block.create_var(name=f"out_{slot}")
    block.append_op(case["op"], variables, outputs, case["attrs"])
    ((target, cotangent),) = slots(number, "cotangent").items()
    factor = data("cotangent", cotangent.reshape(outputs[target].shape))
    for slot, value in expected.items():
        wrt = variables[slot] if isinstance(variables[slot], list) else [variables[slot]]
        grads = gradients([outputs[target]], wrt, [factor])
        results = interpret(program, feed, grads)
        assert_close(results if isinstance(value, list) else results[0], value, slot)
