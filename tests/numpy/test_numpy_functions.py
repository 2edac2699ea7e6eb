"""Functions of numpy that are called with tensors: results, gradients, traces and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph
from fluid.errors import FluidTypeError, ProgramError

A = np.random.default_rng(0).uniform(0.1, 0.9, (3, 4)).astype("float32")
B = A[::-1].copy() * 2
WITH_GRADIENTS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "arctanh": np.arctanh,
    "absolute": np.abs,
    "square": np.square,
    "maximum of an array": lambda x: np.maximum(B, x),
    "maximum of a number": lambda x: np.maximum(x, 0.5),
    "add": lambda x: np.add(1.0, x),
    "power": lambda x: np.power(x, 2.0),
    "arctan2": lambda x: np.arctan2(B, x),
    "sum": np.sum,
    "sum over an axis": lambda x: np.sum(x, 0),
    "sum that keeps axes": lambda x: np.sum(x, axis=(0, 1), keepdims=True),
    "mean": lambda x: np.mean(x, axis=-1),
    "std": lambda x: np.std(x, ddof=1),
    "max": np.max,
    "clip": lambda x: np.clip(x, 0.3, 0.6),
    "concatenate": lambda x: np.concatenate([x, B], 1),
    "stack": lambda x: np.stack((x, x), axis=-1),
    "transpose": lambda x: np.transpose(x, (1, 0)),
    "where": lambda x: np.where(B > 0.8, x, B),
    "matmul": lambda x: np.matmul(x, B.T),
    "an array times a tensor": lambda x: B * x,
    "a number of numpy minus a tensor": lambda x: np.float32(3) - x,
    "fft": lambda x: np.abs(np.fft.rfft(x)),
}


@each("name", WITH_GRADIENTS)
def test_functions_of_the_standard_give_tensors_with_gradients(name: str) -> None:
    function, x = WITH_GRADIENTS[name], dygraph.Tensor(A, stop_gradient=False)
    result = function(x)
    expected = function(A)
    assert isinstance(result, dygraph.Tensor) and result.dtype == "float32"
    np.testing.assert_allclose(result.numpy(), expected, rtol=2e-5, atol=1e-6)
    result.sum().backward()
    step = 1e-6 * np.random.default_rng(1).standard_normal(A.shape)
    exact, difference = A.astype("float64"), 0.0
    for sign in (1, -1):
        difference += sign * np.sum(function(exact + sign * step), dtype="float64") / 2
    np.testing.assert_allclose(np.sum(x.gradient() * step), difference, rtol=1e-3)


def test_traces_have_them() -> None:
    with dygraph.guard():
        traced = dygraph.trace(lambda x: np.sum(np.exp(x), axis=1), dygraph.Tensor(A))
        np.testing.assert_allclose(traced(dygraph.Tensor(B)).numpy(), np.exp(B).sum(1), rtol=1e-5)
        with pytest.raises(ProgramError, match="while it is traced"):
            dygraph.trace(np.median, dygraph.Tensor(A))


def test_other_functions_see_the_values() -> None:
    x = dygraph.Tensor(A)
    assert np.median(x) == np.median(A) and isinstance(np.median(x), np.float32)
    np.testing.assert_array_equal(np.add.reduce(x), A.sum(0))
    assert np.linalg.norm(x) == np.linalg.norm(A)
    total = A.copy()
    total += x
    np.testing.assert_array_equal(total, A + A)


def test_numbers_that_lose_a_gradient_are_an_error() -> None:
    x = dygraph.Tensor(A, stop_gradient=False)
    for name, function in {"median": np.median, "add.reduce": np.add.reduce, "norm": np.linalg.norm}.items():
        with pytest.raises(FluidTypeError, match=rf"np\.{name}: float32\[3, 4\] needs a gradient, .* x\.numpy\(\)"):
            function(x)
    assert np.allclose(x, A) and np.shape(x) == (3, 4) and np.median(x.numpy()) == np.median(A)


def test_variables_of_a_program_have_no_values() -> None:
    with pytest.raises(FluidTypeError, match=r"np\.exp: x is a Variable of a program"):
        np.exp(fluid.data("x", [3]))
