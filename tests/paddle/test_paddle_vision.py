"""Ops on images give Paddle's numbers, and Paddle's gradients: see `golden/make_paddle_vision.py`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from checks import each
from paths import TESTS

import fluid
from fluid.executor.binding.compiled import apply_op
from fluid.ir.program import Program


def load(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The cases, and their arrays by name."""
    found, at = {}, {"float32": 0, "int32": 0}
    with np.load(path) as file:
        flat = {dtype: file[dtype] for dtype in at}
        for name, dtype, shape in json.loads(str(file["layout"])):
            end = at[dtype] + math.prod(shape)
            found[name] = flat[dtype][at[dtype] : end].reshape(shape)
            at[dtype] = end
        return json.loads(str(file["cases"])), found


CASES, GOLDEN = load(TESTS / "golden" / "paddle_vision.npz")


@each("n", range(len(CASES)), ids=[f"{n}-{case['op']}" for n, case in enumerate(CASES)])
def test_numbers_of_paddle(n: int) -> None:
    case = CASES[n]
    inputs = {
        slot: [GOLDEN[f"{n}.in.{slot}.{i}"] for i in range(count)] if count else GOLDEN[f"{n}.in.{slot}"]
        for slot, count in case["inputs"].items()
    }
    found = apply_op(case["op"], inputs, case["attrs"])
    for slot in case["outputs"]:
        expected = GOLDEN[f"{n}.out.{slot}"]
        assert found[slot].shape == expected.shape
        assert found[slot].dtype == expected.dtype
        np.testing.assert_allclose(found[slot], expected, 2e-5, 2e-6, err_msg=slot)
    if case["grads"]:
        for slot, grad in zip(case["grads"], gradients(case, inputs, GOLDEN[f"{n}.cotangent"]), strict=True):
            np.testing.assert_allclose(grad, GOLDEN[f"{n}.grad.{slot}"], 2e-5, 5e-6, err_msg=f"gradient of {slot}")


def gradients(case: dict[str, Any], inputs: dict[str, Any], cotangent: Any) -> list[Any]:
    """Gradients of the op's inputs, by a program."""
    program, feed = Program(), {}
    block = program.global_block()

    def data(name: str, value: Any) -> Any:
        feed[name] = value
        return block.create_var(name=name, shape=value.shape, dtype=value.dtype, is_data=True)

    made = {
        slot: [data(f"{slot}.{i}", item) for i, item in enumerate(value)] if isinstance(value, list) else data(slot, value)
        for slot, value in inputs.items()
    }
    out = {slot: block.create_var(name=f"out.{slot}") for slot in case["outputs"]}
    block.append_op(case["op"], made, out, case["attrs"])
    wanted = [made[slot] for slot in case["grads"]]
    grads = fluid.gradients([out[case["outputs"][0]]], wanted, [data("cotangent", cotangent)])
    return list(fluid.Executor().run(program, feed, grads))
