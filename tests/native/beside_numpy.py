"""Runs a program natively and on numpy, and compares the fetches and the scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from checks import fresh_programs

pytest.importorskip("llvmlite")

import fluid
from fluid import layers
from fluid.ir.program import Variable

__all__ = ["Built", "assert_alike", "assert_layer_is_native", "assert_same_error", "results_of"]

Build = Callable[[], "Sequence[Variable]"]


class Built:
    """Default programs that run natively and on numpy, each time from the first values of seed 1.

    Args:
        build: appends to the default programs, and returns the fetches.
    """

    def __init__(self, build: Build) -> None:
        self._program, self._startup = fluid.default_main_program(), fluid.default_startup_program()
        self._program.random_seed = self._startup.random_seed = 1
        self._fetches = list(build())
        self._executors = {native: fluid.Executor() for native in (False, True)}

    def _started(self, native: bool) -> fluid.Scope:
        """A scope with the first values."""
        scope = fluid.Scope()
        self._executors[native].run(self._startup, scope=scope)
        return scope

    def results(self, feed: Mapping[str, Any], native: bool, runs: int = 2, threads: int = 1) -> dict[str, Any]:
        """The fetches of the last of some runs, and the variables of the scope after it, by name."""
        before = fluid.get_num_threads()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLUID_NATIVE", str(int(native)))
            scope = self._started(native)
            fluid.set_num_threads(threads)
            try:
                for _ in range(runs):
                    values = self._executors[native].run(self._program, dict(feed), self._fetches, scope=scope)
            finally:
                fluid.set_num_threads(before)
        named = {f"fetch {number}": value for number, value in enumerate(values)}
        state = {name: scope.array(name) for name, var in self._program.global_block().vars.items() if var.persistable}
        return named | {name: np.array(array) for name, array in state.items() if array is not None}

    def plan(self, feed: Mapping[str, Any]) -> str:
        """The native plan as text."""
        return str(self._executors[True].plan(self._program, dict(feed), self._fetches, scope=self._started(True)))

    def assert_alike(self, feed: Mapping[str, Any], runs: int = 2, tolerance: float = 1e-5) -> None:
        """Assert that native code, with one and with two threads, gives the same results as numpy."""
        expected = self.results(feed, native=False, runs=runs)
        for threads in (1, 2):
            results = self.results(feed, native=True, runs=runs, threads=threads)
            assert results.keys() == expected.keys()
            for name, value in expected.items():
                bound = tolerance * max(float(np.abs(value[np.isfinite(value)]).max(initial=0)), 1e-3)
                np.testing.assert_allclose(results[name], value, rtol=0, atol=bound, err_msg=f"{name}, {threads} threads")


def results_of(build: Build, feed: Mapping[str, Any], native: bool, runs: int = 2, threads: int = 1) -> dict[str, Any]:
    """The results of new programs; see `Built`."""
    with fresh_programs():
        return Built(build).results(feed, native, runs, threads)


def assert_alike(build: Build, feed: Mapping[str, Any], runs: int = 2, tolerance: float = 1e-5) -> None:
    """Assert that native code, with one and with two threads, gives the same results as numpy.

    Args:
        tolerance: the largest error, as a part of the largest number of an array.
    """
    with fresh_programs():
        Built(build).assert_alike(feed, runs, tolerance)


def assert_same_error(build: Build, feed: Mapping[str, Any]) -> None:
    """Assert that a run fails natively and on numpy with the same message."""
    messages = list[str]()
    for native in (True, False):
        with pytest.raises(fluid.errors.ExecutionError) as error:
            results_of(build, feed, native=native, runs=1)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


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

    with fresh_programs():
        built = Built(build)
        built.assert_alike({"x": values}, tolerance=tolerance)
        assert f"on numpy: {on_numpy}\n" in built.plan({"x": values})
