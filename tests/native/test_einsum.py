"""Sums of products with random labels, natively and on numpy, beside numpy's own function."""

from __future__ import annotations

import os
import random
from typing import Any
from unittest.mock import patch

import numpy as np
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.ops.einsum import contraction_order


def random_equation(seed: int) -> tuple[str, list[tuple[int, ...]]]:
    """An equation and the shapes of its operands; some axes have extent 1 in one operand only."""
    choose = random.Random(seed)
    letters = "abcdef"[: choose.randint(1, 6)]
    sizes = {letter: choose.choice((1, 2, 3, 5, 8, 17)) for letter in letters}
    terms = ["".join(choose.sample(letters, choose.randint(1, min(4, len(letters))))) for _ in range(choose.randint(1, 4))]
    present = sorted(set("".join(terms)))
    result = "".join(choose.sample(present, choose.randint(0, min(4, len(present)))))
    shapes = [tuple(1 if choose.random() < 0.1 else sizes[letter] for letter in term) for term in terms]
    return f"{','.join(terms)}->{result}", shapes


def results(equation: str, arrays: list[Any], native: str) -> list[Any]:
    """The sum of products, and the gradients of the sum of its squares."""
    with fresh_programs() as (main, _), patch.dict(os.environ, FLUID_NATIVE=native):
        operands = [fluid.data(f"x{place}", list(array.shape), "float64") for place, array in enumerate(arrays)]
        for operand in operands:
            operand.stop_gradient = False
        block = main.global_block()
        out = block.create_var(name="out")
        copies = [block.create_var(name=f"copy{place}") for place in range(len(arrays))]
        block.append_op("einsum", {"Operands": operands}, {"Out": out, "InnerCache": copies}, {"equation": equation})
        gradients = fluid.gradients(layers.reduce_sum(layers.square(out)), operands)
        feed = {f"x{place}": array for place, array in enumerate(arrays)}
        fetches = [out, *gradients]
        executor = fluid.Executor()
        assert native == "0" or "on numpy: none" in executor.plan(main, feed, fetches).to_string()
        return [np.asarray(array) for array in executor.run(main, feed, fetches)]


@each("seed", range(60))
def test_random_equations(seed: int) -> None:
    equation, shapes = random_equation(seed)
    arrays = [np.random.default_rng(seed).standard_normal(shape) for shape in shapes]
    native, on_numpy = (results(equation, arrays, engine) for engine in "10")
    np.testing.assert_allclose(native[0].squeeze(), np.einsum(equation, *arrays).squeeze(), rtol=1e-10, atol=1e-10)
    for one, other in zip(native, on_numpy, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_the_cheapest_pair_comes_first() -> None:
    assert contraction_order(("ab", "bc", "cd"), ((100, 100), (100, 100), (100, 1)), "ad") == [(1, 2), (0, 1)]
    assert contraction_order(("ab", "bc", "cd"), ((1, 100), (100, 100), (100, 100)), "ad")[0] == (0, 1)


def test_each_operand_is_multiplied_once() -> None:
    terms = tuple("abcdefgh"[place : place + 2] for place in range(7))
    remaining = list(terms)
    for left, right in contraction_order(terms, ((2, 2),) * 7, "ah"):
        assert left < right
        remaining.append(remaining.pop(right) + remaining.pop(left))
    assert len(remaining) == 1 and all(term in remaining[0] for term in terms)
