"""Samples of `fluid.ops.loss`, softmax included."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("loss")


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


for name, function in (("softmax", softmax), ("log_softmax", lambda x, axis=-1: np.log(softmax(x, axis)))):
    add(
        name,
        *(
            Sample(
                {"X": data(*shape) * 3},
                {"axis": axis} if axis != -1 else {},
                lambda X, axis=-1, function=function: function(X, axis),
            )
            for shape, axis in (((3, 4), -1), ((2, 3, 4), 1), ((3, 4), 0), ((4,), -1), ((2, 1), -1), ((2, 3, 4), -2))
        ),
        Sample({"X": data(0, 3)}, {}, lambda X: X),
    )
add("softmax", Sample({"X": np.array([[1000.0, 0.0, -1000.0]])}, {}, lambda X: np.array([[1, 0, 0]], X.dtype)))


def probabilities(*shape: int) -> Any:
    return softmax(data(*shape)) * 0.9 + 0.05


def picked(table: Any, label: Any, ignore_index: int = -100) -> Any:
    """Of the last axis of `table`, the entries at `label`, zero where ignored; `label` ends in 1 or lacks the axis."""
    label = label if label.ndim == table.ndim else label[..., None]
    found = np.take_along_axis(table, np.where(label == ignore_index, 0, label), -1)
    return np.where(label == ignore_index, 0, found).astype(table.dtype)


def crossed(X: Any, Label: Any, soft_label: bool = False, ignore_index: int = -100) -> Any:
    if soft_label:
        return -(Label * np.log(X)).sum(-1, keepdims=True)
    return -picked(np.log(X), Label, ignore_index)


IGNORED = np.int64([[1], [-100], [2]])


def crossed_2(X: Any, Label: Any, ignore_index: int = -100) -> Any:
    found = crossed(X, Label, False, ignore_index)
    return {"Y": found, "XShape": np.zeros((0, *X.shape), X.dtype), "MatchX": np.exp(-found)}


add(
    "cross_entropy2",
    Sample({"X": probabilities(3, 4), "Label": data.ints(3, 1, high=4)}, {}, crossed_2),
    Sample({"X": probabilities(3, 4), "Label": np.int64([[1], [2], [1]])}, {"ignore_index": 2}, crossed_2),
)
add("cross_entropy", Sample({"X": probabilities(3, 4), "Label": data.ints(3, 1, high=4)}, {}, crossed))
add(
    "cross_entropy",
    Sample({"X": probabilities(2, 3, 4), "Label": data.ints(2, 3, 1, high=4)}, {}, crossed),
    Sample({"X": probabilities(3, 4), "Label": probabilities(3, 4)}, {"soft_label": True}, crossed, wrt=["X"]),
    Sample({"X": probabilities(3, 4), "Label": np.int64([[1], [2], [1]])}, {"ignore_index": 2}, crossed),
)


def crossed_logits(Logits: Any, Label: Any, soft_label: bool = False, ignore_index: int = -100, axis: int = -1, **_: Any) -> Any:
    p = softmax(Logits, axis)
    logs = np.moveaxis(np.log(p), axis, -1)
    label = np.moveaxis(Label, axis, -1) if Label.ndim == Logits.ndim else Label
    loss = -(label * logs).sum(-1, keepdims=True) if soft_label else -picked(logs, label, ignore_index)
    return {"Softmax": p, "Loss": np.moveaxis(loss, -1, axis)}


add(
    "softmax_with_cross_entropy",
    Sample({"Logits": data(3, 4), "Label": data.ints(3, 1, high=4)}, {}, crossed_logits),
    Sample({"Logits": data(1, 4), "Label": data.ints(1, 1, high=4)}, {}, crossed_logits),
    Sample({"Logits": data(2, 3, 4), "Label": data.ints(2, 3, 1, high=4)}, {}, crossed_logits),
    Sample({"Logits": data(3, 4), "Label": probabilities(3, 4)}, {"soft_label": True}, crossed_logits, wrt=["Logits"]),
    Sample({"Logits": data(3, 4), "Label": IGNORED}, {}, crossed_logits),
    Sample({"Logits": data(3, 4), "Label": np.int64([[1], [2], [1]])}, {"ignore_index": 2}, crossed_logits),
    Sample({"Logits": data(2, 4, 3), "Label": data.ints(2, 1, 3, high=4)}, {"axis": 1}, crossed_logits),
    Sample(
        {"Logits": data(2, 4, 3), "Label": probabilities(2, 3, 4).swapaxes(1, 2).copy()},
        {"axis": 1, "soft_label": True},
        crossed_logits,
        wrt=["Logits"],
    ),
)


def sigmoid_crossed(X: Any, Label: Any, ignore_index: int = -100, normalize: bool = False) -> Any:
    found = np.maximum(X, 0) - X * Label + np.log1p(np.exp(-np.abs(X)))
    found = np.where(Label == ignore_index, 0, found)
    return (found / max((Label != ignore_index).sum(), 1) if normalize else found).astype(X.dtype)


add(
    "sigmoid_cross_entropy_with_logits",
    Sample({"X": data.away(3, 4), "Label": data(3, 4, low=0)}, {}, sigmoid_crossed, wrt=["X"]),
    Sample(
        {"X": data.away(2, 3), "Label": np.array([[0.0, 1, -1], [1, -1, 0]])}, {"ignore_index": -1}, sigmoid_crossed, wrt=["X"]
    ),
    Sample(
        {"X": data.away(2, 3), "Label": np.array([[0.0, 1, -1], [1, -1, 0]])},
        {"ignore_index": -1, "normalize": True},
        sigmoid_crossed,
        wrt=["X"],
    ),
)
add(
    "log_loss",
    Sample(
        {"Predicted": data(4, 1, low=0.1, high=0.9), "Labels": np.array([[0.0], [1], [1], [0]])},
        {"epsilon": 1e-4},
        lambda Predicted, Labels, epsilon: -Labels * np.log(Predicted + epsilon) - (1 - Labels) * np.log(1 - Predicted + epsilon),
        wrt=["Predicted"],
    ),
)


def huber(X: Any, Y: Any, delta: float) -> Any:
    r = Y - X
    return {"Out": np.where(np.abs(r) <= delta, 0.5 * r * r, delta * (np.abs(r) - 0.5 * delta)).astype(X.dtype), "Residual": r}


add("huber_loss", Sample({"X": np.zeros((4, 1)), "Y": data.away(4, 1, kinks=(-1, 1, 0))}, {"delta": 1.0}, huber))
