"""Measures of a batch, computed in the program."""

from __future__ import annotations

from ..building.layer_helper import LayerHelper
from ..initializer import Constant
from ..ir.program import Variable
from .nn import topk

__all__ = ["accuracy", "auc"]


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
        "accuracy", {"Out": values, "Indices": indices, "Label": label}, outputs={"Correct": correct, "Total": total}
    )["Accuracy"]
    found.stop_gradient = True
    return found


def auc(
    input: Variable, label: Variable, curve: str = "ROC", num_thresholds: int = 2**12 - 1, topk: int = 1, slide_steps: int = 1
) -> tuple[Variable, Variable, list[Variable]]:
    """The area under the ROC curve: of all batches so far, of the last `slide_steps` batches, and the variables that count.

    Args:
        input: probabilities ``[N, 2]``, of which the second is that of a positive.
        label: int64 ``[N, 1]``, 0 or 1.
        num_thresholds: predictions are told apart in ``num_thresholds + 1`` bins.
        topk: accepted; it has no meaning here, nor in Fluid.

    Returns:
        float64 areas of shape [1], and ``[batch_stat_pos, batch_stat_neg, stat_pos, stat_neg]``, which begin with zeros.
    """
    helper = LayerHelper("auc")
    bins = num_thresholds + 1

    def counts(shape: list[int]) -> Variable:
        var = helper.create_global_variable(persistable=True, dtype="int64", shape=shape, stop_gradient=True)
        helper.set_variable_initializer(var, Constant(0.0, force_cpu=True))
        return var

    def area(stats: list[Variable], steps: int) -> Variable:
        positive, negative = stats
        found: Variable = helper.apply(
            "auc",
            {"Predict": input, "Label": label, "StatPos": positive, "StatNeg": negative},
            {"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps},
            {"StatPosOut": positive, "StatNegOut": negative},
        )["AUC"]
        found.stop_gradient = True
        return found

    of_batches = [counts([(1 + slide_steps) * bins + 1]) for _ in range(2)]
    of_all = [counts([1, bins]) for _ in range(2)]
    batch_area = area(of_batches, slide_steps)
    return area(of_all, 0), batch_area, [*of_batches, *of_all]
