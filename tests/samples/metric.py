"""Samples of `fluid.ops.metric`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("metric")


def accuracy(Out: Any, Indices: Any, Label: Any) -> Any:
    hits = int((Indices == Label).any(1).sum())
    return {"Accuracy": np.float32([hits / len(Label)]), "Correct": np.int32([hits]), "Total": np.int32([len(Label)])}


for k in (1, 3):
    indices = np.argsort(data(6, 5), 1)[:, :k].copy()
    add("accuracy", Sample({"Out": data(6, k), "Indices": indices, "Label": data.ints(6, 1)}, {}, accuracy, dtypes=["float32"]))


def area(positive: Any, negative: Any) -> float:
    """How often a random positive is predicted higher than a random negative, ties counting half."""
    pairs = [
        (p * n, 1.0 if i > j else 0.5 if i == j else 0.0)
        for i, p in enumerate(positive.tolist())
        for j, n in enumerate(negative.tolist())
    ]
    total = sum(weight for weight, _ in pairs)
    return sum(weight * wins for weight, wins in pairs) / total if total else 0.0


def auc(
    Predict: Any, Label: Any, StatPos: Any, StatNeg: Any, num_thresholds: int, slide_steps: int, InsTagWeight: Any = None
) -> Any:
    bins, found = num_thresholds + 1, {}
    for slot, stat, wanted in (("StatPosOut", StatPos, 1), ("StatNegOut", StatNeg, 0)):
        new = np.zeros(bins, "int64")
        for row, label in enumerate(Label[:, 0]):
            if label == wanted:
                new[int(Predict[row, -1] * num_thresholds)] += 1 if InsTagWeight is None else int(InsTagWeight[row, 0])
        if slide_steps:
            parts = stat[:-1].reshape(slide_steps + 1, bins).copy()
            parts[stat[-1] % slide_steps] = new
            parts[-1] = parts[:-1].sum(0)
            found[slot] = np.append(parts, stat[-1] + 1)
        else:
            found[slot] = stat + new
    sums = [stat[-1 - bins : -1] if slide_steps else stat.reshape(-1) for stat in found.values()]
    return {"AUC": np.array([area(*sums)]), **found}


for slide in (0, 1, 3):
    for column in (1, 2):
        parts = [data.ints(slide, 9) for _ in range(2)]
        stats = [np.append(np.append(part, part.sum(0)), 4) if slide else data.ints(1, 9) for part in parts]
        inputs = {"Predict": data(20, column, low=0), "Label": data.ints(20, 1, high=2), "StatPos": stats[0], "StatNeg": stats[1]}
        attrs = {"num_thresholds": 8, "slide_steps": slide}
        add("auc", Sample(inputs, attrs, auc, dtypes=["float32"]))
add(
    "auc",
    Sample({**inputs, "InsTagWeight": data.ints(20, 1, high=2) * 1.0}, attrs, auc, dtypes=["float32"], declared={"AUC": ()}),
)


def mean_iou(
    Predictions: Any, Labels: Any, num_classes: int, InWrongs: Any = (), InCorrects: Any = (), InMeanIou: Any = ()
) -> Any:
    correct, wrong = sum(InCorrects, np.zeros(num_classes, "int32")), sum(InWrongs, np.zeros(num_classes, "int32"))
    for predicted, label in zip(Predictions.ravel(), Labels.ravel(), strict=True):
        if predicted == label:
            correct[label] += 1
        else:
            wrong[label] += 1
            wrong[predicted] += 1
    ratios = [c / (c + w) for c, w in zip(correct, wrong, strict=True) if c + w]
    mean = np.mean(ratios) + sum(item[0] for item in InMeanIou)
    return {"OutMeanIou": np.float32([mean]), "OutWrong": wrong, "OutCorrect": correct}


COUNTS = {
    "InWrongs": [data.ints(5, dtype="int32")],
    "InCorrects": [data.ints(5, dtype="int32")],
    "InMeanIou": [np.float32([0.25])],
}
for more in ({}, COUNTS):
    inputs = {"Predictions": data.ints(4, 3, high=4), "Labels": data.ints(4, 3, high=4), **more}
    add("mean_iou", Sample(inputs, {"num_classes": 5}, mean_iou))


def ratios(states: Any) -> Any:
    """Class by class, then of the sums over classes."""

    def three(rows: list[Any]) -> list[float]:
        precision = np.mean([hits / (hits + wrong) if hits + wrong else 1.0 for hits, wrong, _, _ in rows])
        recall = np.mean([hits / (hits + missed) if hits + missed else 1.0 for hits, _, _, missed in rows])
        return [precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0]

    return np.array(three(list(states)) + three([states.sum(0)]))


def precision_recall(
    MaxProbs: Any, Indices: Any, Labels: Any, class_number: int, Weights: Any = None, StatesInfo: Any = None
) -> Any:
    states = np.zeros((class_number, 4))
    for row, (found, label) in enumerate(zip(Indices.ravel(), Labels.ravel(), strict=True)):
        for each in range(class_number):
            place = (0 if label == each else 1) if found == each else (3 if label == each else 2)
            states[each, place] += 1 if Weights is None else Weights[row, 0]
    total = states + (0 if StatesInfo is None else StatesInfo)
    return {"BatchMetrics": ratios(states), "AccumMetrics": ratios(total), "AccumStatesInfo": total.astype("float32")}


guesses = {
    "MaxProbs": data(8, 1),
    "Indices": data.ints(8, 1, high=3, dtype="int32"),
    "Labels": data.ints(8, 1, high=3, dtype="int32"),
}
for inputs, classes in (({}, 4), ({"Weights": data(8, 1, low=0.1)}, 3), ({"StatesInfo": data(3, 4, low=0.0)}, 3)):
    add("precision_recall", Sample({**guesses, **inputs}, {"class_number": classes}, precision_recall))


def ordered_pairs(Score: Any, Label: Any, QueryID: Any, column: int = 0, Weight: Any = None, **so_far: Any) -> Any:
    names = ("PositivePair", "NegativePair", "NeutralPair")
    counts = {name: so_far.get("Accumulate" + name, np.zeros(1)).copy() for name in names}
    for j in range(len(Score)):
        for i in range(j):
            if QueryID[i] == QueryID[j] and Label[i] != Label[j]:
                weight = 1 if Weight is None else (Weight[i, 0] + Weight[j, 0]) / 2
                right = (Score[i, column] - Score[j, column]) * (Label[i, 0] - Label[j, 0]) > 0
                counts["PositivePair" if right else "NegativePair"] += weight
                counts["NeutralPair"] += weight * (Score[i, column] == Score[j, column])
    return {name: count.astype(Score.dtype) for name, count in counts.items()}


ranked = {
    "Score": data.ints(9, 2, high=4).astype("float64"),
    "Label": data.ints(9, 1, high=3).astype("float64"),
    "QueryID": data.ints(9, 1, high=2),
}
before = {"Accumulate" + name: data(1) for name in ("PositivePair", "NegativePair", "NeutralPair")}
add(
    "positive_negative_pair",
    Sample(ranked, {}, ordered_pairs),
    Sample({**ranked, "Weight": data(9, 1, low=0.1), **before}, {"column": -1}, ordered_pairs),
)
