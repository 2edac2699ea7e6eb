"""Sorts of few elements in native code: bit by bit numpy's, with equals in their order and NaNs last."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from beside_numpy import Built
from checks import Checks, fresh_programs
from harness import TARGETS, set_target

import fluid
from fluid import layers
from fluid.ir.program import Variable

SHAPES = (((1, 1), 1), ((7, 2), 1), ((65, 3), -1), ((3, 1025), 0), ((2, 8, 9), 1), ((63, 7), 1), ((5, 3, 2, 4), 2), ((4,), 0))


def values_of(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Any:
    """Numbers with many equals; floats have zeros of both signs, infinities and NaNs among them."""
    if dtype.startswith("int"):
        return rng.integers(-2, 3, shape).astype(dtype)
    return rng.choice([-np.inf, -1.5, -0.0, 0.0, 2.0, np.inf, np.nan], shape).astype(dtype)


def check(shape: tuple[int, ...], axis: int, dtype: str, descending: bool) -> None:
    """Hold a sort, and its gradient for floats, against numpy, with one to three threads."""
    rng = np.random.default_rng(0)
    feed = {"x": values_of(shape, dtype, rng)}
    is_float = feed["x"].dtype.kind == "f"

    def build() -> list[Variable]:
        x = fluid.data("x", list(shape), dtype)
        x.stop_gradient = not is_float
        out, places = layers.argsort(x, axis, descending=descending)
        fetches = [out, places, out * out, places + places]
        if is_float:
            fetches += fluid.gradients([out], [x], target_gradients=[fluid.data("weights", list(shape), dtype)])
        return fetches

    if is_float:
        feed["weights"] = rng.permutation(np.prod(shape)).reshape(shape).astype(dtype)
    built = Built(build)
    expected = built.results(feed, native=False)
    assert "on numpy: none" in built.plan(feed)
    for threads in (1, 2, 3):
        for name, value in built.results(feed, native=True, threads=threads).items():
            np.testing.assert_array_equal(value, expected[name], name)
            assert value.dtype.kind != "f" or (np.signbit(value) == np.signbit(expected[name])).all()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.vector_bytes} bytes")
def test_sorts_of_few_elements_are_those_of_numpy(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    set_target(monkeypatch, target)
    with Checks() as checks:
        for number, (shape, axis) in enumerate(SHAPES):
            dtypes = {("float32", "int64", "float64", "int32")[number % 4], "float32"}
            for dtype, descending in product(sorted(dtypes), (False, True)):
                with checks(f"{shape}, axis {axis}, {dtype}, {descending=}"), fresh_programs():
                    check(shape, axis, dtype, descending)
