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
            for shape, axis in (
                ((3, 4), -1),
                ((2, 3, 4), 1),
                ((3, 4), 0),
                ((4,), -1),
                ((2, 1), -1),
                ((2, 3, 4), -2),
                ((2, 3, 4), 2),
            )
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
    return -picked(np.log(X), Label, ignore_index).reshape(Label.shape)


IGNORED = np.int64([[1], [-100], [2]])


def crossed_2(X: Any, Label: Any, ignore_index: int = -100) -> Any:
    found = crossed(X, Label, False, ignore_index)
    return {"Y": found, "XShape": np.zeros((0, *X.shape), X.dtype), "MatchX": np.exp(-found)}


add(
    "cross_entropy2",
    Sample({"X": probabilities(3, 4), "Label": data.ints(3, 1, high=4)}, {}, crossed_2),
    Sample({"X": probabilities(3, 4), "Label": np.int64([[1], [2], [1]])}, {"ignore_index": 2}, crossed_2),
    Sample({"X": probabilities(3, 4), "Label": np.int64([1, 2, 1])}, {"ignore_index": 2}, crossed_2),
)
add("cross_entropy", Sample({"X": probabilities(3, 4), "Label": data.ints(3, 1, high=4)}, {}, crossed))
add(
    "cross_entropy",
    Sample({"X": probabilities(2, 3, 4), "Label": data.ints(2, 3, 1, high=4)}, {}, crossed),
    Sample({"X": probabilities(3, 4), "Label": probabilities(3, 4)}, {"soft_label": True}, crossed, wrt=["X"]),
    Sample({"X": probabilities(3, 4), "Label": np.int64([[1], [2], [1]])}, {"ignore_index": 2}, crossed),
    Sample({"X": probabilities(3, 4), "Label": np.int64([1, 2, 1])}, {"ignore_index": 2}, crossed),
    Sample({"X": probabilities(2, 3, 4), "Label": data.ints(2, 3, high=4)}, {}, crossed),
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


def sigmoid_crossed(X: Any, Label: Any, pos_weight: Any = 1.0, ignore_index: int = -100, normalize: bool = False) -> Any:
    found = (1 - Label) * X + pos_weight * np.log1p(np.exp(-X))
    found = np.where(Label == ignore_index, 0, found)
    return (found / max((Label != ignore_index).sum(), 1) if normalize else found).astype(X.dtype)


add(
    "sigmoid_cross_entropy_with_logits",
    Sample({"X": data.away(3, 4), "Label": data(3, 4, low=0)}, {}, sigmoid_crossed),
    Sample({"X": data(3, 4), "Label": data(3, 4, low=0), "pos_weight": data(3, 4, low=0.2, high=3)}, {}, sigmoid_crossed),
    Sample({"X": data(3, 4), "Label": data(3, 4, low=0), "pos_weight": data(4, low=0.2, high=3)}, {}, sigmoid_crossed),
    Sample({"X": data(3, 4), "Label": data(3, 4, low=0)}, {"normalize": True}, sigmoid_crossed),
    Sample({"X": data(3, 4), "Label": data.ints(3, 4, high=2)}, {}, sigmoid_crossed),
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


# -------------------------------------------------------------------------------------------------------- other losses
def softplus(x: Any) -> Any:
    return np.log1p(np.exp(x))


ONE_OR_ZERO = np.array([[0.0], [1], [1], [0]])
add(
    "label_smooth",
    Sample(
        {"X": probabilities(3, 4)}, {"epsilon": 0.1}, lambda X, epsilon: (1 - epsilon) * X + epsilon / X.shape[-1], known=["X"]
    ),
    Sample(
        {"X": probabilities(3, 4), "PriorDist": probabilities(1, 4)},
        {"epsilon": 0.2},
        lambda X, PriorDist, epsilon: (1 - epsilon) * X + epsilon * PriorDist,
    ),
)
add(
    "hinge_loss",
    Sample(
        {"Logits": np.array([[0.3], [1.7], [-0.4], [-2.0]]), "Labels": ONE_OR_ZERO},
        {},
        lambda Logits, Labels: np.maximum(0, 1 - (2 * Labels - 1) * Logits),
    ),
    Sample(
        {"Logits": data(4, 1), "Labels": data(4, 1, low=0)},
        {},
        lambda Logits, Labels: np.maximum(0, 1 - (2 * Labels - 1) * Logits),
    ),
)
add(
    "bce_loss",
    Sample(
        {"X": data(4, 2, low=0.1, high=0.9), "Label": data(4, 2, low=0)},
        {},
        lambda X, Label: -Label * np.log(X) - (1 - Label) * np.log(1 - X),
    ),
    Sample(
        {"X": np.array([0.0, 1, 1, 0]), "Label": np.array([1.0, 0, 1, 0])},
        {},
        lambda X, Label: np.array([100, 100, 0, 0], X.dtype),
        orders=0,
    ),
)


def divergence(X: Any, Target: Any, reduction: str = "mean") -> Any:
    with np.errstate(all="ignore"):
        each = np.where(Target > 0, Target * (np.log(Target) - X), 0)
    totals = {"mean": each.mean(), "sum": each.sum(), "batchmean": each.sum() / len(X)}
    return each if reduction == "none" else totals[reduction].reshape(1)


for reduction in ("none", "mean", "sum", "batchmean"):
    add("kldiv_loss", Sample({"X": data(3, 4), "Target": data.away(3, 4)}, {"reduction": reduction}, divergence))
add("kldiv_loss", Sample({"X": data(2, 3, 2), "Target": data(2, 3, 2, low=0.1)}, {}, divergence, declared={"Loss": ()}))


def labelled(X: Any, Label: Any, Weight: Any = None, reduction: str = "mean", ignore_index: int = -100) -> Any:
    weight = np.ones(X.shape[1], X.dtype) if Weight is None else Weight
    out, weights = np.zeros(Label.shape, X.dtype), np.zeros(Label.shape, X.dtype)
    for at in np.ndindex(Label.shape):
        if Label[at] != ignore_index:
            weights[at] = weight[Label[at]]
            out[at] = -weights[at] * X[(at[0], Label[at], *at[1:])]
    if reduction == "none":
        return {"Out": out, "Total_weight": np.zeros(1, X.dtype)}
    total = weights.sum().reshape(1)
    return {"Out": out.sum().reshape(1) / (total if reduction == "mean" else 1), "Total_weight": total}


for reduction in ("none", "mean", "sum"):
    add(
        "nll_loss",
        Sample({"X": data(4, 3), "Label": np.int64([0, 2, 1, 2])}, {"reduction": reduction}, labelled),
        Sample(
            {"X": data(4, 3), "Label": np.int64([0, 2, 1, 2]), "Weight": data(3, low=0.5)},
            {"reduction": reduction, "ignore_index": 1},
            labelled,
            wrt=["X"],
        ),
        Sample(
            {"X": data(2, 3, 2, 2), "Label": data.ints(2, 2, 2, high=3), "Weight": data(3, low=0.5)},
            {"reduction": reduction},
            labelled,
            wrt=["X"],
        ),
    )


# ------------------------------------------------------------------------------------------------------------- ranking
add(
    "rank_loss",
    Sample(
        {"Label": data(4, 1, low=0), "Left": data(4, 1), "Right": data(4, 1)},
        {},
        lambda Label, Left, Right: softplus(Left - Right) - Label * (Left - Right),
    ),
    *(
        Sample(
            {"Label": data(*label, low=0), "Left": data(*left), "Right": data(*right)},
            {},
            lambda Label, Left, Right: (
                softplus(Left.ravel() - Right.ravel()) - Label.ravel() * (Left.ravel() - Right.ravel())
            ).reshape(Label.shape),
        )
        for label, left, right in (((4,), (4, 1), (4, 1)), ((4, 1), (4,), (4, 1)), ((4, 1), (4, 1), (4,)), ((4,), (4,), (4,)))
    ),
)


def margin_ranked(X1: Any, X2: Any, Label: Any, margin: float = 0.0) -> Any:
    out = np.maximum(0, margin - Label * (X1 - X2))
    return {"Out": out, "Activated": (out > 0).astype(out.dtype)}


SIDES = np.array([[1.0], [-1], [1], [-1]])
APART = {"X1": np.array([[0.5], [0.3], [-0.2], [0.8]]), "X2": np.array([[0.1], [0.7], [0.6], [0.2]]), "Label": SIDES}
add("margin_rank_loss", Sample(APART, {}, margin_ranked), Sample(APART, {"margin": 0.3}, margin_ranked))


def bpr(X: Any, Label: Any) -> Any:
    rows = zip(X.reshape(-1, X.shape[-1]), Label.ravel(), strict=True)
    found = [np.mean([softplus(x - row[label]) for j, x in enumerate(row) if j != label]) for row, label in rows]
    return np.array(found, X.dtype).reshape(Label.shape)


add(
    "bpr_loss",
    Sample({"X": data(4, 3), "Label": data.ints(4, 1, high=3)}, {}, bpr),
    Sample({"X": data(2, 2, 4), "Label": data.ints(2, 2, 1, high=4)}, {}, bpr),
)


# ----------------------------------------------------------------------------------------------- distances and the like
def squared_distance(X: Any, Y: Any) -> Any:
    apart = (X - Y).reshape(len(X), -1)
    return {"sub_result": apart, "Out": (apart**2).sum(1, keepdims=True)}


def cosine(X: Any, Y: Any) -> Any:
    x, y = X.reshape(len(X), -1), Y.reshape(len(Y), -1)
    norms = [np.linalg.norm(value, axis=1, keepdims=True) for value in (x, y)]
    return {"Out": (x * y).sum(1, keepdims=True) / norms[0] / norms[1], "XNorm": norms[0], "YNorm": norms[1]}


for name, reference in (("squared_l2_distance", squared_distance), ("cos_sim", cosine)):
    for x, y in (((3, 4), (3, 4)), ((3, 4), (1, 4)), ((2, 3, 2), (2, 3, 2)), ((1, 4), (1, 4))):
        add(name, Sample({"X": data(*x), "Y": data(*y)}, {}, reference))


def cosine_of_zeros(X: Any, Y: Any) -> Any:
    return {"Out": [[0.0], [1.0]], "XNorm": [[1e-4], [2.0]], "YNorm": [[1.0], [1.0]]}


add(
    "cos_sim",
    Sample({"X": np.array([[0.0, 0.0], [2.0, 0.0]]), "Y": np.array([[1.0, 0.0]] * 2)}, {}, cosine_of_zeros, wrt=()),
)


def smooth_l1(X: Any, Y: Any, InsideWeight: Any = 1.0, OutsideWeight: Any = 1.0, sigma: float = 1.0) -> Any:
    d = InsideWeight * (X - Y)
    each = OutsideWeight * np.where(np.abs(d) < 1 / sigma**2, 0.5 * (sigma * d) ** 2, np.abs(d) - 0.5 / sigma**2)
    return {"Diff": d, "Out": each.reshape(len(X), -1).sum(1, keepdims=True)}


NEAR = {"X": np.zeros((3, 4)), "Y": data.away(3, 4, kinks=(-1, 0, 1))}
add(
    "smooth_l1_loss",
    Sample(NEAR, {}, smooth_l1),
    Sample({"X": np.zeros((3, 4)), "Y": data.away(3, 4, kinks=(-0.25, 0.25))}, {"sigma": 2.0}, smooth_l1),
    Sample({**NEAR, "OutsideWeight": data(3, 4)}, {}, smooth_l1, wrt=["X", "Y"]),
    Sample(
        {**NEAR, "InsideWeight": np.full((3, 4), 0.5), "OutsideWeight": data(3, 4)},
        {"sigma": 1.3},
        smooth_l1,
        wrt=["X", "Y"],
    ),
    Sample({"X": np.zeros((2, 3, 2)), "Y": data.away(2, 3, 2, kinks=(-1, 0, 1))}, {}, smooth_l1),
)


def modified_huber(X: Any, Y: Any) -> Any:
    a = (2 * Y - 1) * X
    return {"IntermediateVal": a, "Out": np.where(a < -1, -4 * a, np.maximum(1 - a, 0) ** 2)}


add(
    "modified_huber_loss",
    Sample({"X": np.array([[-3.0], [0.5], [2], [0.3]]), "Y": np.array([[1.0], [1], [1], [0]])}, {}, modified_huber),
    Sample({"X": data(4, 1) * 3, "Y": data(4, 1, low=0)}, {}, modified_huber),
)


def by_teacher(X: Any, Label: Any, **bounds: float) -> Any:
    def one(x: float, label: float) -> float:
        click = label >= 1 or -1 <= label < 0
        total = softplus(x) - x * click
        return total + softplus(x) - x * (label - click) if label >= 0 else total

    return np.array([one(*pair) for pair in zip(X.ravel(), Label.ravel(), strict=True)], X.dtype).reshape(X.shape)


add(
    "teacher_student_sigmoid_loss",
    Sample(
        {"X": data(8, 1) * 3, "Label": np.array([[-2.0], [-1], [0.3], [1.6], [0], [1], [-2], [-1]])},
        {},
        by_teacher,
        wrt=["X"],  # of labels that are whole numbers, the loss jumps
    ),
    Sample({"X": data(6, 1) * 3, "Label": np.array([[-1.5], [-0.5], [0.3], [1.6], [0.7], [1.2]])}, {}, by_teacher),
)


def centered(X: Any, Label: Any, Centers: Any, CenterUpdateRate: Any, cluster_num: int, need_update: bool = False) -> Any:
    ids = Label.ravel()
    apart = X - Centers[ids]
    centers = Centers.copy()
    for which in range(cluster_num) if need_update else ():
        rows = ids == which
        centers[which] += CenterUpdateRate[0] * apart[rows].sum(0) / (1 + rows.sum())
    loss = 0.5 * (apart**2).sum(1, keepdims=True)
    return {"CentersOut": centers, "SampleCenterDiff": apart, "Loss": loss.astype(X.dtype)}


for need_update in (False, True):
    add(
        "center_loss",
        Sample(
            {
                "X": data(4, 3),
                "Label": np.int64([[1], [0], [1], [4]]),
                "Centers": data(5, 3),
                "CenterUpdateRate": np.array([0.5]),
            },
            {"cluster_num": 5, "need_update": need_update},
            centered,
        ),
    )
