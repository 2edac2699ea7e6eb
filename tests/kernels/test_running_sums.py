"""Running sums and products of wide rows go row by row, and give what numpy gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from checks import each

from fluid.executor.binding.compiled import apply_op

SHAPES = [
    ((32, 50, 128), 1),
    ((257, 1023), 0),
    ((1, 1024, 512), 1),
    ((1025, 600), 0),
    ((8, 4, 28, 28), 1),
    ((3, 0, 2000), 1),
    ((1, 700), 0),
]


@each("shape, axis", SHAPES)
def test_running_sums_of_wide_rows(shape: Sequence[int], axis: int) -> None:
    for dtype in ("float32", "float64", "int32", "int64", "uint8"):
        x = np.random.default_rng(0).integers(0, 9, shape).astype(dtype)
        for exclusive in (False, True):
            for reverse in (False, True):
                attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
                ordered = np.flip(x, axis) if reverse else x
                sums = np.cumsum(ordered, axis, dtype=dtype) - (ordered if exclusive else 0)
                expected = np.flip(sums, axis) if reverse else sums
                np.testing.assert_array_equal(apply_op("cumsum", {"X": x}, attrs)["Out"], expected, err_msg=f"{dtype} {attrs}")


@each("shape, axis", SHAPES)
def test_gradients_of_products_of_wide_rows(shape: Sequence[int], axis: int) -> None:
    x = np.random.default_rng(0).choice([0.0, 0.5, -1.0, 2.0], shape, p=[0.01, 0.3, 0.39, 0.3])
    rows = np.moveaxis(x, axis, 0)
    expected = np.stack([np.delete(rows, place, 0).prod(0) for place in range(min(len(rows), 60))]) if rows.size else rows
    attrs = {"dim": [axis]}
    gradient = apply_op("reduce_prod_grad", {"X": x, "Out@GRAD": np.ones(rows.shape[1:])}, attrs)["X@GRAD"]
    np.testing.assert_allclose(np.moveaxis(gradient, axis, 0)[: len(expected)], expected, rtol=1e-12)
