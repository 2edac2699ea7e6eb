"""Programs that are fed batches of sequences, run with padded rows and op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import fluid
from fluid.executor.planned import padded_rows
from fluid.executor.planned.padded_plan import PaddedPlan
from fluid.ir.program import Variable

__all__ = [
    "BATCHES", "BESIDE", "TAGS", "WIDTH", "WORDS", "Net", "Run", "assert_as_on_numpy", "assert_close", "assert_runs_agree", "fed",
    "fed_x", "feed_of", "fill_padding",
]  # fmt: skip

WORDS, WIDTH, BESIDE, TAGS = 11, 4, 3, 5
BATCHES = [
    [2, 0, 3, 1, 1], [1, 0, 0, 0, 0], [7, 9, 8, 6, 3], [0, 0, 0, 0, 5], [4, 4, 0, 0, 3], [70, 0, 130, 4, 1], [3, 1, 1, 0, 2],
    [1, 1, 1, 1, 4], [8, 0, 0, 0, 0], [3, 3, 3, 3, 4], [4, 3, 3, 3, 4], [700, 0, 1300, 4, 1],
]  # fmt: skip
Net = Callable[[], "list[Variable]"]
"""Appends a net to the default programs; returns a loss, and further variables to fetch."""


def offsets_of(lengths: Sequence[int]) -> list[list[int]]:
    """Offsets, since lengths such as [0, 0, 5] would be taken for them."""
    return [[0, *accumulate(lengths)]]


def feed_of(lengths: Sequence[int], seed: int = 0, dtype: str = "float32") -> dict[str, Any]:
    """Arrays for all feeds: ids, tags and x have sequences of these lengths, beside has others; steps and vectors are padded."""
    rng, rows, others = np.random.default_rng(seed), sum(lengths), [(length + 1) % 4 for length in lengths]
    return {
        "ids": (rng.integers(0, WORDS, (rows, 1)), offsets_of(lengths)),
        "tags": (rng.integers(0, TAGS, (rows, 1)), offsets_of(lengths)),
        "x": (np.round(rng.standard_normal((rows, WIDTH)) * 2).astype(dtype), offsets_of(lengths)),
        "beside": (rng.standard_normal((sum(others), BESIDE)).astype(dtype), offsets_of(others)),
        "dense": rng.standard_normal((len(lengths), WIDTH)).astype(dtype),
        "label": rng.integers(0, 2, (len(lengths), 1)),
        "steps": rng.integers(0, TAGS, (len(lengths), 9)),
        "vectors": rng.standard_normal((len(lengths), 9, WIDTH)).astype(dtype),
        "length": np.array([(7 * length) % 10 for length in lengths]),
    }


def fed(name: str, dtype: str = "float32") -> Variable:
    """The variable of a feed; variables of floats get gradients."""
    shapes = {"x": [WIDTH], "beside": [BESIDE], "dense": [WIDTH], "steps": [9], "vectors": [9, WIDTH], "length": []}
    of_integers = name in ("ids", "tags", "label", "steps", "length")
    has_lod = name in ("ids", "tags", "x", "beside")
    var = fluid.data(name, [None, *shapes.get(name, [1])], "int64" if of_integers else dtype, int(has_lod))
    var.stop_gradient = of_integers
    return var


def fed_x(dtype: str = "float32") -> Variable:
    return fed("x", dtype)


class Run:
    """A program that is fed one batch after the other."""

    def __init__(self, build: Net, native: bool, patch: pytest.MonkeyPatch, threads: int = 1, dtype: str = "float32") -> None:
        patch.setenv("FLUID_NATIVE", str(int(native)))
        self.program, self._startup = fluid.Program(), fluid.Program()
        self.program.random_seed = self._startup.random_seed = 1
        with fluid.program_guard(self.program, self._startup), fluid.unique_name.guard():
            self.fetches = build()
        self.executor, self._threads, self._dtype = fluid.Executor(), threads, dtype
        self.scope = self._started()
        self.names = {name for name, var in self.program.global_block().vars.items() if var.is_data}

    def _started(self) -> fluid.Scope:
        """A scope with the first values."""
        scope = fluid.Scope()
        self.executor.run(self._startup, scope=scope)
        return scope

    def beside(self, threads: int) -> Run:
        """The same program and plans in a scope of their own, run by so many threads."""
        run = copy(self)
        run.scope, run._threads = self._started(), threads
        return run

    def feed(self, lengths: Sequence[int]) -> dict[str, Any]:
        return {name: value for name, value in feed_of(lengths, sum(lengths), self._dtype).items() if name in self.names}

    def step(self, lengths: Sequence[int]) -> list[Any]:
        """The fetched arrays with their LoDs, and the variables of the scope."""
        before = fluid.get_num_threads()
        fluid.set_num_threads(self._threads)
        try:
            fetched = self.tensors(self.feed(lengths))
        finally:
            fluid.set_num_threads(before)
        return [part for tensor in fetched for part in (np.asarray(tensor), self.lod(tensor))] + self.states()

    def tensors(self, feed: dict[str, Any]) -> list[Any]:
        """The fetched tensors of one run."""
        return self.executor.run(self.program, feed, self.fetches, scope=self.scope, return_numpy=False)

    def states(self) -> list[Any]:
        """Copies of the variables of the scope, by name."""
        return [np.array(array) for _, array in sorted(self.scope.arrays().items())]

    def lod(self, tensor: Any) -> Any:
        """The LoD of a tensor; a value of one row has that of a batch of one row by chance."""
        return tensor.lod() if np.asarray(tensor).shape[:1] != (1,) else []

    def plan(self, lengths: Sequence[int]) -> Any:
        return self.executor.plan(self.program, self.feed(lengths), self.fetches, scope=self.scope)


def assert_close(found: Sequence[Any], expected: Sequence[Any], rtol: float = 1e-4) -> None:
    """Compare what two runs fetch and leave in the scope."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        if isinstance(theirs, list):
            assert ours == theirs
        else:
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            scale = max(float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0)), 1e-2)
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol / 10 * scale)


def assert_as_on_numpy(
    build: Net, patch: pytest.MonkeyPatch, batches: Sequence[Sequence[int]] = BATCHES, dtype: str = "float32"
) -> Run:
    """Run a program natively and on numpy, batch after batch, and compare; returns the native run."""
    on_numpy, native = (Run(build, native, patch, dtype=dtype) for native in (False, True))
    for lengths in batches:
        patch.setenv("FLUID_NATIVE", "0")
        expected = on_numpy.step(lengths)
        patch.setenv("FLUID_NATIVE", "1")
        assert_close(native.step(lengths), expected, 1e-4 if dtype == "float32" else 1e-9)
    return native


def assert_runs_agree(
    build: Net, patch: pytest.MonkeyPatch, batches: Sequence[Sequence[int]] = BATCHES, dtype: str = "float32"
) -> Run:
    """As `assert_as_on_numpy`; each batch also has to run with padded rows."""
    run = assert_as_on_numpy(build, patch, batches, dtype)
    assert all(isinstance(run.plan(lengths), PaddedPlan) for lengths in batches)
    return run


def fill_padding(patch: pytest.MonkeyPatch, number: float) -> None:
    """Fill the padding rows of feeds with a large number, or with another id."""

    def filled(array: Any, capacity: int, padding: Any) -> Any:
        rows = np.full((capacity, *array.shape[1:]), number if array.dtype.kind == "f" else 1, array.dtype)
        rows[: len(array)] = array
        return rows

    patch.setattr(padded_rows, "filled", filled)
