"""Loops that Paddle wrote and differentiated give Paddle's numbers: see `golden/make_paddle_loops.py`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from checks import each
from numeric import assert_gradients
from paths import TESTS

import fluid
from fluid.ir.program import OpRole, Program

with np.load(TESTS / "golden" / "paddle_loops.npz") as file:
    GOLDEN = dict(file)
CASES = sorted({key.partition(".")[0] for key in GOLDEN})
WRONG = "wrong_in_paddle"


def load(name: str) -> tuple[Program, dict[str, Any], list[str], list[Any]]:
    """The program of a case, its feeds, the names of its result and gradients, and their values."""
    feed = {key.rpartition(".")[2]: value for key, value in GOLDEN.items() if key.startswith(f"{name}.feed.")}
    fetch = [str(item) for item in GOLDEN[f"{name}.fetch"]]
    values = [GOLDEN[f"{name}.value.{number}"] for number in range(len(fetch))]
    return Program.parse_from_string(GOLDEN[f"{name}.program"].tobytes()), feed, fetch, values


@pytest.mark.filterwarnings("ignore:a gradient is wrong")
@each("name", CASES)
def test_numbers_of_paddle(name: str) -> None:
    """Run planned and op by op, twice: a gradient block must restore the counters that it decreases."""
    program, feed, fetch, values = load(name)
    executor, scope = fluid.Executor(), fluid.Scope()
    for run in (executor.run, executor.interpret, executor.run):
        for found, expected in zip(run(program, feed, fetch, scope=scope), values, strict=True):
            np.testing.assert_allclose(found, expected, 2e-5, 2e-6)


def check_derivatives(program: Program, feed: dict[str, Any], result: str, gradients: list[Any]) -> None:
    executor = fluid.Executor()

    def value(at: dict[str, Any]) -> float:
        rounded = {key: np.float32(array) for key, array in at.items()}
        return float(executor.run(program, rounded, [result], scope=fluid.Scope())[0].item())

    found = dict(zip(("x", "w"), gradients, strict=True))
    assert_gradients(value, feed, found, np.random.default_rng(0), tolerance=3000, step=1e-2)


@each("name", [name for name in CASES if name != WRONG])
def test_they_are_derivatives(name: str) -> None:
    program, feed, fetch, values = load(name)
    check_derivatives(program, feed, fetch[0], values[1:])


@pytest.mark.filterwarnings("ignore:a gradient is wrong")
def test_a_gradient_that_is_wrong_in_paddle_is_told() -> None:
    program, feed, fetch, values = load(WRONG)
    message = "a gradient is wrong, as it is in Paddle: elementwise_mul_grad needs what a trip makes of"
    with pytest.warns(UserWarning, match=message) as told:
        fluid.Executor().run(program, feed, fetch, scope=fluid.Scope())
    (name,) = re.findall(r"Paddle keeps what (\S+) was before", str(told[0].message))
    assert name in program.global_block().vars
    with pytest.raises(AssertionError):
        check_derivatives(program, feed, fetch[0], values[1:])
    for block in program.blocks:
        block.ops[:] = [op for op in block.ops if not op.role & OpRole.BACKWARD]
    result = program.global_block().var(fetch[0])
    grads = fluid.gradients(result, [program.global_block().var(name) for name in ("x", "w")])
    check_derivatives(program, feed, fetch[0], fluid.Executor().run(program, feed, grads, scope=fluid.Scope()))
