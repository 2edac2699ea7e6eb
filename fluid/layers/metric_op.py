"""Metrics of a batch, computed in the program."""

from __future__ import annotations

from ..building.layer_helper import LayerHelper
from ..initializer import Constant
from ..ir.program import Variable
from .nn import topk
from .tensor import constant

__all__ = ["accuracy", "auc"]


def accuracy(
    input: Variable, label: Variable, k: int = 1, correct: Variable | None = None, total: Variable | None = None
) -> Variable:
    """The fraction of rows whose label is among the `k` largest elements of `input`: float32 of shape [1].

    Args:
        input: scores ``[N, classes]``.
        label: int64 ``[N, 1]``.
        k: how many of the largest elements count.
        correct: an int32 variable of shape [1] to write the number of such rows to; by default none.
        total: an int32 variable of shape [1] to write N to; by default none.

    >>> scores = fluid.dygraph.to_variable([[0.9, 0.1], [0.3, 0.7], [0.8, 0.2], [0.4, 0.6]])
    >>> layers.accuracy(scores, fluid.dygraph.to_variable([[0], [1], [1], [1]]))
    Tensor([0.75], shape=[1], dtype=float32)
    """
    values, indices = topk(input, k)
    inputs, outputs = {"Out": values, "Indices": indices, "Label": label}, {"Correct": correct, "Total": total}
    return constant(LayerHelper("accuracy").apply("accuracy", inputs, outputs=outputs)["Accuracy"])


def auc(
    input: Variable, label: Variable, curve: str = "ROC", num_thresholds: int = 2**12 - 1, topk: int = 1, slide_steps: int = 1
) -> tuple[Variable, Variable, list[Variable]]:
    """The area under the ROC curve, of all batches so far and of the last `slide_steps` batches.

    Args:
        input: probabilities ``[N, 2]`` of negatives and positives.
        label: int64 ``[N, 1]``, 0 or 1.
        curve: ``"ROC"``.
        num_thresholds: one less than the number of bins of the histograms of predictions.
        topk: accepted and ignored, as in Fluid.
        slide_steps: how many of the last batches the second area is of; 0 for all batches.

    Returns:
        Two float64 areas of shape [1], and the persistable histograms ``[batch_stat_pos, batch_stat_neg, stat_pos, stat_neg]``.

    >>> scores, labels = fluid.data("scores", [None, 2]), fluid.data("labels", [None, 1], "int64")
    >>> area, area_of_batch, histograms = layers.auc(scores, labels)
    >>> area.shape, len(histograms)
    ((1,), 4)
    """
    helper = LayerHelper("auc")
    bins = num_thresholds + 1

    def histogram(shape: list[int]) -> Variable:
        var = helper.create_global_variable(persistable=True, dtype="int64", shape=shape, stop_gradient=True)
        helper.set_variable_initializer(var, Constant(0.0, force_cpu=True))
        return var

    def area(stats: list[Variable], steps: int) -> Variable:
        positive, negative = stats
        inputs = {"Predict": input, "Label": label, "StatPos": positive, "StatNeg": negative}
        attrs = {"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps}
        return constant(helper.apply("auc", inputs, attrs, {"StatPosOut": positive, "StatNegOut": negative})["AUC"])

    of_batches = [histogram([(1 + slide_steps) * bins + 1] if slide_steps else [1, bins]) for _ in range(2)]
    of_all = [histogram([1, bins]) for _ in range(2)]
    batch_area = area(of_batches, slide_steps)
    return area(of_all, 0), batch_area, [*of_batches, *of_all]
