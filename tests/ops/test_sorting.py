"""Sorted rows, their places, and distinct elements agree with a stable sort on every path."""

from __future__ import annotations

from typing import Any

import numpy as np
from checks import each

from fluid.executor.binding.compiled import apply_op
from fluid.executor.kernels.sorting import stable_order, take_along_last

SHAPES = ((600,), (40, 50), (3, 5, 77), (2, 1000), (300, 2), (1, 4), (0, 9))
TYPES = ("float32", "float64", "float16", "int32", "int64", "uint8", "bool")


def _drawn(shape: Any, dtype: str, kind: str) -> Any:
    draws = np.random.default_rng(len(shape))
    if dtype[0] != "f":
        least, most = (0, 2) if dtype == "bool" else (0, 256) if dtype == "uint8" else (-40, 40)
        if kind != "equal" and dtype.startswith("int"):
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        return draws.integers(least, most, shape, endpoint=False).astype(dtype)
    numbers = draws.integers(-9, 9, shape) if kind == "equal" else draws.standard_normal(shape)
    if kind == "special":
        numbers = draws.choice([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0], shape)
    return numbers.astype(dtype)


@each("dtype", TYPES)
def test_rows_are_sorted_as_by_a_stable_sort(dtype: str) -> None:
    for shape in SHAPES:
        for kind in ("different", "equal", "special"):
            rows = _drawn(shape, dtype, kind)
            expected = rows.argsort(-1, kind="stable")
            for array in (rows, np.asfortranarray(rows)):
                order = stable_order(np, array)
                np.testing.assert_array_equal(order, expected, err_msg=f"{shape} {kind}")
                np.testing.assert_array_equal(take_along_last(np, array, order), np.take_along_axis(rows, expected, -1))


@each("descending", [False, True])
def test_argsort_along_each_axis(descending: bool) -> None:
    for dtype in ("float32", "int64"):
        x = _drawn((20, 6, 30), dtype, "equal")
        for axis in range(3):
            results = apply_op("argsort", {"X": x}, {"axis": axis, "descending": descending})
            expected = (-x if descending else x).argsort(axis, kind="stable")
            np.testing.assert_array_equal(results["Indices"], expected)
            np.testing.assert_array_equal(results["Out"], np.take_along_axis(x, expected, axis))


@each("count", [1, 30, 5000])
def test_distinct_elements_in_the_order_of_coming(count: int) -> None:
    for dtype in ("int32", "int64", "float32"):
        x = np.random.default_rng(0).integers(-50, 500, count).astype(dtype)
        results = apply_op("unique_with_counts", {"X": x}, {"dtype": 3})
        distinct = list(dict.fromkeys(x.tolist()))
        np.testing.assert_array_equal(results["Out"], distinct)
        np.testing.assert_array_equal(results["Out"][results["Index"]], x)
        np.testing.assert_array_equal(results["Count"], [(x == one).sum() for one in distinct])
