"""Running sums of wide rows, which are added row by row, are numpy's."""

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
