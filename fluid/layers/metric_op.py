"""Measures of a batch, computed in the program."""

from __future__ import annotations

from ..framework import Variable
from ..layer_helper import LayerHelper
from .nn import topk

__all__ = ["accuracy"]


def accuracy(
    input: Variable, label: Variable, k: int = 1, correct: Variable | None = None, total: Variable | None = None
) -> Variable:
    """The share of rows whose label is among the `k` greatest of `input`, as float32 of shape [1].

    `input` is ``[N, classes]``, `label` int64 ``[N, 1]``. How many were right, and how many rows there were, are
    written to `correct` and `total` if given.
    """
    values, indices = topk(input, k)
    helper = LayerHelper("accuracy")
    found: Variable = helper.apply(
        "accuracy",
        {"Out": values, "Indices": indices, "Label": label},
        outputs={"Correct": correct, "Total": total},
    )["Accuracy"]
    found.stop_gradient = True
    return found
