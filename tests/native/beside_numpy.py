"""Runs a program natively and on numpy, and compares the fetches and the scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from checks import fresh_programs

import fluid
from fluid import layers
from fluid.ir.program import Variable

__all__ = ["assert_alike", "assert_layer_is_native", "results_of"]

Build = Callable[[], "Sequence[Variable]"]


def results_of(build: Build, feed: Mapping[str, Any], native: bool, runs: int = 2, threads: int = 1) -> dict[str, Any]:
    """The fetches of the last of some runs, and the variables of the scope after it, by name.

    Args:
        build: appends to the default programs, and returns what is fetched. First values come from seed 1.
    """
    before = fluid.get_num_threads()
    with fresh_programs(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLUID_NATIVE", str(int(native)))
        program, startup, scope = fluid.default_main_program(), fluid.default_startup_program(), fluid.global_scope()
        program.random_seed = startup.random_seed = 1
        fetches = list(build())
        executor = fluid.Executor()
        executor.run(startup)
        fluid.set_num_threads(threads)
        try:
            for _ in range(runs):
                values = executor.run(program, dict(feed), fetches)
        finally:
            fluid.set_num_threads(before)
        named = {f"fetch {number}": value for number, value in enumerate(values)}
        state = {name: scope.array(name) for name, var in program.global_block().vars.items() if var.persistable}
        return named | {name: np.array(array) for name, array in state.items() if array is not None}


def assert_alike(build: Build, feed: Mapping[str, Any], runs: int = 2, tolerance: float = 1e-5) -> None:
    """Assert that native code, with one and with two threads, gives the same results as numpy.

    Args:
        tolerance: the largest error, as a part of the largest number of an array.
    """
    expected = results_of(build, feed, native=False, runs=runs)
    for threads in (1, 2):
        found = results_of(build, feed, native=True, runs=runs, threads=threads)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            bound = tolerance * max(float(np.abs(value[np.isfinite(value)]).max(initial=0)), 1e-3)
            np.testing.assert_allclose(found[name], value, rtol=0, atol=bound, err_msg=f"{name}, {threads} threads")


def assert_layer_is_native(
    shape: Sequence[int],
    layer: Callable[[Variable], Variable],
    on_numpy: str = "none",
    steps: float = 0.0,
    tolerance: float = 1e-5,
) -> None:
    """Assert that native code computes a layer and its gradients, as numpy does.

    Args:
        shape: of the layer's input.
        on_numpy: ops that the plan leaves to numpy.
        steps: the input's numbers are multiples of it, so that several may be equal; 0 for any numbers.
        tolerance: see `assert_alike`.
    """
    values = np.random.default_rng(0).standard_normal(shape).astype("float32")
    values = np.round(values / steps).astype("float32") * np.float32(steps) if steps else values

    def build() -> Sequence[Variable]:
        x = fluid.data("x", list(shape))
        x.stop_gradient = False
        out = layer(x)
        parameters = [one for one in fluid.default_main_program().all_parameters() if one.trainable]
        weights = layers.create_parameter(list(out.shape), "float32")
        return [out, *fluid.gradients([layers.reduce_sum(out * weights)], [x, *parameters])]

    assert_alike(build, {"x": values}, tolerance=tolerance)
    with fresh_programs():
        fetches, executor = build(), fluid.Executor()
        executor.run(fluid.default_startup_program())
        assert f"on numpy: {on_numpy}\n" in str(executor.plan(feed={"x": values}, fetch_list=fetches))
