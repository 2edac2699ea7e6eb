"""Errors for indices outside, and the gradient of view_dtype, which central differences cannot check."""

from __future__ import annotations

import numpy as np
import pytest

from fluid import dygraph
from fluid.eager.dispatch import namespace as o
from fluid.errors import ExecutionError
from fluid.executor.binding.compiled import apply_op


def test_view_dtype_hands_the_bytes_of_gradients_back() -> None:
    x = dygraph.Tensor(np.arange(4.0), requires_grad=True)
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    (gradient,) = dygraph.grad(o.view_dtype(x, dtype=6), [x], dygraph.Tensor(weights))
    assert gradient.numpy().tolist() == weights.tolist()
    pairs = np.arange(8, dtype="float32").reshape(2, 4)
    assert o.view_dtype(dygraph.Tensor(pairs), dtype=6).numpy().tobytes() == pairs.tobytes()


def test_indices_outside_are_told() -> None:
    x, value = np.zeros((3, 4)), np.ones(1)
    with pytest.raises(ExecutionError, match=r"index_put: indices reach from 3 to 3; for a dimension of 3"):
        apply_op("index_put", {"x": x, "indices": [np.array([3])], "value": value})
    with pytest.raises(ExecutionError, match="RepeatsTensor has -1"):
        apply_op("repeat_interleave", {"X": x, "RepeatsTensor": np.array([1, -1, 2])})
    with pytest.raises(ExecutionError, match="index_add"):
        apply_op("index_add", {"X": x, "Index": np.array([5]), "AddValue": np.ones((1, 4))})


@pytest.mark.parametrize("places", [[False] * 4, [True] * 3 + [False]])
def test_as_many_elements_are_placed_as_a_mask_has_places(places: list[bool]) -> None:
    """One element for none or for three places: numpy would repeat it."""
    one, mask, like = (dygraph.Tensor(np.array(array)) for array in ([1.0], places, [0.0] * 4))
    with pytest.raises(ExecutionError, match=f"X has 1 elements, and Mask {sum(places)} places"):
        o.masked_place(one, mask, like)
