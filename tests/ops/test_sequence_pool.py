"""Pooling of sequences, beyond the samples of the conformance suite."""

from __future__ import annotations

import numpy as np

from fluid.executor.binding.compiled import apply_op
from fluid.values.lod_array import LoDArray


def test_the_gradient_of_a_maximum_reads_which_row_it_was() -> None:
    """It does not search again: the rows of X here have other maxima."""
    x = LoDArray(np.zeros((5, 2), "float32"), ((0, 2, 5),))
    inputs = {"X": x, "MaxIndex": np.array([[1, 0], [4, 2]], "int32"), "Out@GRAD": np.array([[1, 2], [3, 4]], "float32")}
    gradient = apply_op("sequence_pool_grad", inputs, {"pooltype": "MAX"})["X@GRAD"]
    np.testing.assert_array_equal(np.asarray(gradient.array), [[0, 2], [1, 0], [0, 4], [0, 0], [3, 0]])


def test_a_nan_is_the_maximum_of_its_sequence() -> None:
    nan = float("nan")
    x = LoDArray(np.array([[nan, 2], [1, nan], [nan, nan], [5, 3], [nan, 4]], "float32"), ((0, 3, 3, 5),))
    index = apply_op("sequence_pool", {"X": x}, {"pooltype": "MAX"})["MaxIndex"]
    np.testing.assert_array_equal(np.asarray(index)[[0, 2]], [[0, 1], [4, 4]])
