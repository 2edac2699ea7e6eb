"""Write metrics: areas under curves, precision, overlap of classes, ordered pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import OnnxGraph, OnnxTensor
from .making import as_vector, filled
from .reductions import total
from .shaping import add_rows, positions, reverse

__all__: list[str] = []


def _counted(g: OnnxGraph, places: OnnxTensor, size: int, weights: OnnxTensor) -> OnnxTensor:
    return add_rows(g, filled(g, g.ints(size), 0, Spec((size,), weights.dtype)), places, weights)


def _running(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    return g._sized("CumSum", [x, g.constant(np.int64(0))], x.dtype, x.sizes)


def _safe(g: OnnxGraph, number: OnnxTensor, share: OnnxTensor, otherwise: float) -> OnnxTensor:
    """``share / number``, or `otherwise` where `number` is 0."""
    is_positive = g.binary("Greater", number, g.number(0, number), VarType.BOOL)
    return g.where(
        is_positive, g.binary("Div", share, g.where(is_positive, number, g.number(1, number))), g.number(otherwise, number)
    )


@exports("auc")
def auc(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    predictions = g.reshape(g.slice(inputs["Predict"], [1], [-1], [2**31 - 1]), [-1], (-1,))
    true = g.binary("Equal", as_vector(g, inputs["Label"]), g.ints(0), VarType.BOOL)
    true = g.unary("Not", true)
    bins, slides = attrs["num_thresholds"] + 1, attrs["slide_steps"]
    places = g.cast(g.binary("Mul", predictions, g.number(attrs["num_thresholds"], predictions)), VarType.INT64)
    weight = inputs.get("InsTagWeight")
    ones = g.binary("Equal", places, places, VarType.BOOL) if weight is None else g.reshape(weight, [-1], (-1,))
    weights = g.cast(ones, VarType.INT64)
    sums, states = [], []
    for slot, chosen in (("StatPos", true), ("StatNeg", g.unary("Not", true))):
        stat = inputs[slot]
        counts = as_vector(g, stat)
        new = _counted(g, places, bins, g.where(chosen, weights, g.ints(0)))
        if slides:
            batch = g.binary("Mod", g.slice(counts, [0], [-1], [2**31 - 1]), g.ints(slides))
            index = g.binary("Add", g.binary("Mul", batch, g.ints(bins)), g.constant(np.arange(bins)))
            counts_of_all = g.slice(counts, [0], [slides * bins], [(slides + 1) * bins])
            counts_of_all = g.binary("Add", counts_of_all, g.binary("Sub", new, g.gather(counts, index)))
            former = g.slice(counts, [0], [0], [slides * bins])
            former = g.node("ScatterND", [former, g.unsqueeze(index, 1), new], former)
            last = g.binary("Add", g.slice(counts, [0], [-1], [2**31 - 1]), g.ints(1))
            counts = g.concat([former, counts_of_all, last], 0)
        else:
            counts = counts_of_all = g.binary("Add", counts, new)
        sums.append(g.cast(counts_of_all, VarType.FP64))
        states.append(g.reshape_as(g.cast(counts, stat.dtype), stat))
    negative = reverse(g, sums[1])
    hits, misses = (_running(g, reverse(g, counts_of_bins)) for counts_of_bins in sums)
    before = g.concat([g.constant(np.zeros(1)), g.slice(hits, [0], [0], [-1])], 0)
    area = g.binary("Mul", total(g, g.binary("Mul", negative, g.binary("Add", hits, before))), g.constant(np.array(0.5)))
    area_total = g.squeeze(g.slice(g.binary("Mul", hits, misses), [0], [-1], [2**31 - 1]), 0)
    is_positive = g.binary("Greater", area_total, g.number(0, area_total), VarType.BOOL)
    area = g.binary("Div", area, g.where(is_positive, area_total, g.number(1, area_total)))
    return {"AUC": area, "StatPosOut": states[0], "StatNegOut": states[1]}


@exports("mean_iou")
def mean_iou(g: OnnxGraph, inputs: dict[str, Any], num_classes: int) -> dict[str, OnnxTensor]:
    predicted, labels = (as_vector(g, inputs[slot]) for slot in ("Predictions", "Labels"))
    right = g.cast(g.binary("Equal", predicted, labels, VarType.BOOL), VarType.INT64)
    missed = g.binary("Sub", g.ints(1), right)
    correct = _counted(g, labels, num_classes, right)
    wrong = g.binary("Add", _counted(g, labels, num_classes, missed), _counted(g, predicted, num_classes, missed))
    for previous in inputs.get("InCorrects") or ():
        correct = g.binary("Add", correct, g.cast(previous, VarType.INT64))
    for previous in inputs.get("InWrongs") or ():
        wrong = g.binary("Add", wrong, g.cast(previous, VarType.INT64))
    union = g.binary("Add", correct, wrong)
    shares = g.binary("Div", g.cast(correct, VarType.FP64), g.cast(g.binary("Max", union, g.ints(1)), VarType.FP64))
    class_count = total(g, g.cast(g.binary("Greater", union, g.ints(0), VarType.BOOL), VarType.FP64))
    mean = g.binary("Div", total(g, shares), g.binary("Max", class_count, g.constant(np.array(1.0))))
    for previous in inputs.get("InMeanIou") or ():
        mean = g.binary("Add", mean, g.cast(g.reshape(previous, []), VarType.FP64))
    return {"OutMeanIou": mean, "OutWrong": wrong, "OutCorrect": correct}


def _metrics_of(g: OnnxGraph, states: OnnxTensor) -> OnnxTensor:
    """Precision, recall and F1: averages over classes, then over all rows."""
    hits, wrong, _, missed = (g.squeeze(g.slice(states, [1], [place], [place + 1]), 1) for place in range(4))
    predicted, actual = g.binary("Add", hits, wrong), g.binary("Add", hits, missed)
    metrics = []
    for right, wholes in ((hits, (predicted, actual)), (total(g, hits), (total(g, predicted), total(g, actual)))):
        precision, recall = (
            g.reduce("ReduceMean", share, range(share.ndim)) if share.ndim else share
            for share in (_safe(g, denominator, right, 1.0) for denominator in wholes)
        )
        product = g.binary("Mul", g.binary("Mul", precision, recall), g.constant(np.array(2.0)))
        metrics += [precision, recall, _safe(g, g.binary("Add", precision, recall), product, 0.0)]
    return g.concat([g.unsqueeze(metric, 0) for metric in metrics], 0)


@exports("precision_recall")
def precision_recall(g: OnnxGraph, inputs: dict[str, Any], class_number: int) -> dict[str, OnnxTensor]:
    indices, labels = (as_vector(g, inputs[slot]) for slot in ("Indices", "Labels"))
    weight, info = inputs.get("Weights"), inputs.get("StatesInfo")
    ones = g.binary("Equal", indices, indices, VarType.BOOL) if weight is None else g.reshape(weight, [-1], (-1,))
    weights = g.cast(ones, VarType.FP64)
    classes = g.constant(np.arange(class_number)[:, None])
    is_predicted, is_actual = (
        g.binary("Equal", classes, g.unsqueeze(classes_of_rows, 0), VarType.BOOL) for classes_of_rows in (indices, labels)
    )
    is_not_predicted, is_not_actual = g.unary("Not", is_predicted), g.unary("Not", is_actual)
    pairs = (
        (is_predicted, is_actual),
        (is_predicted, is_not_actual),
        (is_not_predicted, is_not_actual),
        (is_not_predicted, is_actual),
    )
    counts = [
        g.reduce("ReduceSum", g.binary("Mul", g.cast(g.binary("And", *pair), VarType.FP64), weights), [1], keep=True)
        for pair in pairs
    ]
    states = g.concat(counts, 1)
    all_states = states if info is None else g.binary("Add", states, g.cast(info, VarType.FP64))
    return {"BatchMetrics": _metrics_of(g, states), "AccumMetrics": _metrics_of(g, all_states), "AccumStatesInfo": all_states}


@exports("positive_negative_pair")
def positive_negative_pair(g: OnnxGraph, inputs: dict[str, Any], column: int, specs: Any) -> dict[str, OnnxTensor]:
    scores = inputs["Score"]
    column %= scores.shape[1]
    score = g.reshape(g.slice(scores, [1], [column], [column + 1]), [-1], (scores.sizes[0],))
    label, query = (g.reshape(inputs[slot], [-1], (scores.sizes[0],)) for slot in ("Label", "QueryID"))
    weight = inputs.get("Weight")
    weight = (
        g.cast(g.binary("Equal", query, query, VarType.BOOL), VarType.FP64)
        if weight is None
        else g.cast(g.reshape(weight, [-1], (scores.sizes[0],)), VarType.FP64)
    )
    rows = g.size(scores, 0)

    def compared(op: str, x: OnnxTensor) -> OnnxTensor:
        return g.binary(op, g.unsqueeze(x, 1), g.unsqueeze(x, 0), VarType.BOOL)

    behind = g.binary("Less", positions(g, rows, 0, 2), positions(g, rows, 1, 2), VarType.BOOL)
    counts = g.binary("And", behind, g.binary("And", compared("Equal", query), g.unary("Not", compared("Equal", label))))
    mean = g.binary("Mul", g.binary("Add", g.unsqueeze(weight, 1), g.unsqueeze(weight, 0)), g.constant(np.array(0.5)))
    pairs = g.binary("Mul", g.cast(counts, VarType.FP64), mean)
    right = g.where(compared("Greater", label), compared("Greater", score), compared("Less", score))
    results = {}
    for name, counted in (("Positive", right), ("Negative", g.unary("Not", right)), ("Neutral", compared("Equal", score))):
        so_far = inputs.get(f"Accumulate{name}Pair")
        count = total(g, g.binary("Mul", pairs, g.cast(counted, VarType.FP64)))
        if so_far is not None:
            count = g.binary("Add", count, g.reshape(g.cast(so_far, VarType.FP64), []))
        results[f"{name}Pair"] = count
    return {slot: value for slot, value in results.items() if slot in specs}
