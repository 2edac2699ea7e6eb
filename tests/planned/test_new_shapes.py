"""Programs that are fed new shapes in each run do not spend their time in the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from checks import fresh_programs

pytest.importorskip("llvmlite")

import fluid
from fluid import layers
from fluid.executor.native import cache, compiler
from fluid.executor.planned import backend

FIRST, RUNS = 5, backend._MANY_RUNS


def loss() -> list[Any]:
    x = fluid.data("x", [None, 6])
    mean = layers.mean(layers.square(layers.fc(layers.fc(x, 9, act="tanh"), 2)))
    fluid.optimizer.SGD(0.1).minimize(mean)
    return [mean]


def rows(count: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(count).standard_normal((count, 6)).astype("float32")}


class Net:
    """A program with its executor.

    Attributes:
        compilations: the modules that it has compiled.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLUID_NATIVE", "1")
        monkeypatch.setenv("FLUID_NATIVE_CACHE", "0")
        monkeypatch.setattr(backend, "_MOST_SHAPES", FIRST)
        monkeypatch.setattr(cache, "compile_object", self._compile)
        self.compilations: list[str] = []
        self.fetches, self.executor = loss(), fluid.Executor()
        self.executor.run(fluid.default_startup_program())
        self.compilations.clear()

    def _compile(self, text: str, target: Any) -> bytes:
        self.compilations.append(text)
        return compiler.compile_object(text, target)

    def run(self, count: int) -> None:
        self.executor.run(feed=rows(count), fetch_list=self.fetches)

    def is_native(self, count: int) -> bool:
        return self.executor.plan(feed=rows(count), fetch_list=self.fetches).new_tables is not None


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Iterator[Net]:
    with fresh_programs():
        yield Net(monkeypatch)


def test_only_the_first_shapes_are_compiled_for_at_once(net: Net) -> None:
    for count in range(1, 1 + FIRST):
        net.run(count)
    assert net.compilations
    net.compilations.clear()
    for count in range(1 + FIRST, 40 + FIRST):
        net.run(count)
    assert not net.compilations
    assert net.is_native(FIRST) and not net.is_native(39 + FIRST)


def test_a_shape_that_comes_again_becomes_native(net: Net) -> None:
    for count in range(1, 1 + FIRST):
        net.run(count)
    net.compilations.clear()
    for run in range(2 * RUNS):
        assert bool(net.compilations) == (run > RUNS)
        net.run(1000)
    assert net.is_native(1000)


def test_a_changed_program_counts_anew(net: Net) -> None:
    for count in range(1, 3 + FIRST):
        net.run(count)
    assert not net.is_native(2 + FIRST)
    layers.scale(net.fetches[0], 2.0)
    assert net.is_native(2 + FIRST)


def losses(native: bool) -> list[float]:
    with fresh_programs() as (program, startup), pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLUID_NATIVE", str(int(native)))
        program.random_seed = startup.random_seed = 1
        fetches, executor = loss(), fluid.Executor()
        executor.run(startup)
        counts = [*range(1, 8 + FIRST), *[1025] * (2 + RUNS)]
        return [executor.run(feed=rows(count), fetch_list=fetches)[0].item() for count in counts]


def test_training_on_both_engines_in_turn_follows_numpy() -> None:
    np.testing.assert_allclose(losses(native=True), losses(native=False), rtol=1e-5)
