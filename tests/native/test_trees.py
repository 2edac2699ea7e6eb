"""Decision trees natively: numbers of trees and rows around the kernel's groups, deep trees, and tables that lead nowhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from beside_numpy import assert_alike
from checked_plans import checked_plans
from checks import each, fresh_programs
from samples.trees import leaves, tables

import fluid
from fluid import layers
from fluid.errors import ExecutionError
from fluid.extend import ops

RANDOM = np.random.default_rng(0)


def appended(feed: dict[str, Any], trees: int, depth: int) -> Any:
    """The sum of each row's leaves: with one op alone, there is no native code."""
    inputs = [fluid.data(name, array.shape, str(array.dtype)) for name, array in feed.items()]
    nodes = ops().tree_leaves(*inputs, trees=trees, depth=depth)
    return [nodes, layers.reduce_sum(layers.cast(nodes, "float32"), -1)]


@each("dtype", ["float32", "float64"])
@each("rows", [1, 31, 33, 100])
@each("depths", [(0,), (1,), (4,) * 7, (3,) * 8, (2, 5, 9) * 3, (1, 0, 6, 4) * 5])
def test_numbers_of_trees_and_rows(monkeypatch: pytest.MonkeyPatch, dtype: str, rows: int, depths: tuple[int, ...]) -> None:
    nodes = tables(depths, 5)
    feed = {"X": RANDOM.standard_normal((rows, 5)).astype(dtype), **nodes, "Bounds": nodes["Bounds"].astype(dtype)}
    feed["X"][::7, 2] = np.nan
    feed = {name: feed[name] for name in ("X", "Bounds", "Features", "Children")}
    depth = max(*depths, 1)
    assert_alike(lambda: appended(feed, len(depths), depth), feed, tolerance=0)
    with fresh_programs(), checked_plans(monkeypatch) as plans:
        fetches = appended(feed, len(depths), depth)
        nodes_reached = fluid.Executor().run(feed=feed, fetch_list=fetches)[0]
        assert plans.calls
    np.testing.assert_array_equal(nodes_reached, leaves(**feed, trees=len(depths), depth=depth))


@each("depth", range(1, 10))
def test_a_row_takes_the_number_of_steps_of_the_op(depth: int) -> None:
    """Where nodes lead in circles, each step more or less shows."""
    feed = {
        "X": RANDOM.standard_normal((40, 5)).astype("float32"),
        "Bounds": RANDOM.standard_normal(64).astype("float32"),
        "Features": RANDOM.integers(0, 5, 64).astype("int32"),
        "Children": RANDOM.integers(0, 63, 64).astype("int32"),
    }
    assert_alike(lambda: appended(feed, 11, depth), feed, tolerance=0)


@each("name", ["Features", "Children"])
@each("number", [-1, 5, 1 << 30])
def test_nodes_that_name_no_column_and_no_node(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    feed = {"X": RANDOM.standard_normal((9, 5)).astype("float32"), **tables((1, 1), 5)}
    feed[name][0] = 6 if (name, number) == ("Children", 5) else number
    for native in "01":
        monkeypatch.setenv("FLUID_NATIVE", native)
        with fresh_programs(), pytest.raises(ExecutionError, match=r"tree_leaves|outside"):
            fluid.Executor().run(feed=feed, fetch_list=appended(feed, 2, 1))
