"""Lowers losses, with helpers that pick and place the labelled elements for their gradients."""

from __future__ import annotations

from math import prod
from typing import Any

from .activation_lowering import at_least, chosen, log1p_exp
from .emitter import BOOL, INT32, INT64
from .graph import Choice, Node, Position, mapped, reshaped
from .lowering import NAMESPACE, GraphTensor, NotLowered, lowers, number_like, only_floats

__all__ = ["is_label", "labels_of", "minus_log", "picked"]

f = NAMESPACE


# ------------------------------------------------------------------------------------------------------- hard labels
def labels_of(Label: GraphTensor, shape: tuple[int, ...], ignore_index: int) -> tuple[Node, Node]:
    """The labels of rows, with 0 for ignored ones; and a mask of the valid labels."""
    if Label.node.element not in (INT32, INT64) or Label.node.size != prod(shape[:-1]):
        raise NotLowered("labels that are no integers, or not one for each row")
    label = reshaped(Label.node, (*shape[:-1], 1))
    is_valid = mapped("une", label, number_like(ignore_index, label), element=BOOL)
    return mapped("select", is_valid, label, number_like(0, label), element=label.element), is_valid


def picked(source: Node, ids: Node) -> Node:
    """Pick one element of each row of `source`, along its last axis."""
    rows = source.size // source.shape[-1]
    choice = Choice((rows, 1), source.element, reshaped(source, (rows, source.shape[-1])), reshaped(ids, (rows, 1)))
    return reshaped(choice, (*source.shape[:-1], 1))


def is_label(shape: tuple[int, ...], label: Node) -> Node:
    """A mask of the labelled element of each row."""
    ids = mapped("convert", label, element=INT32)
    return mapped("oeq", Position(shape, INT32), ids, element=BOOL)


def _only_last(axis: int, ndim: int) -> None:
    if axis % ndim != ndim - 1:
        raise NotLowered("an axis that is not the last")


@lowers("pick")
def pick(X: GraphTensor, Index: GraphTensor, axis: int, ignore_index: int, default: float) -> GraphTensor:
    _only_last(axis, X.ndim)
    ids, is_valid = labels_of(Index, X.shape, ignore_index)
    return chosen(GraphTensor(is_valid), GraphTensor(picked(X.node, ids)), default)


@lowers("place")
def place(X: GraphTensor, Index: GraphTensor, Like: GraphTensor, axis: int, ignore_index: int) -> GraphTensor:
    shape = Like.shape[-X.ndim :]
    _only_last(axis, X.ndim)
    ids, is_valid = labels_of(Index, shape, ignore_index)
    x, hit = X.node, mapped("and", is_label(shape, ids), is_valid)
    return GraphTensor(mapped("select", hit, x, number_like(0.0, x), element=x.element))


def minus_log(probabilities: Node) -> Node:
    """The negative logarithm; 1e20 for 0."""
    is_zero = mapped("oeq", probabilities, number_like(0.0, probabilities), element=BOOL)
    logs = mapped("neg", mapped("log", probabilities))
    return mapped("select", is_zero, number_like(1e20, logs), logs, element=logs.element)


@lowers("cross_entropy")
def cross_entropy(X: GraphTensor, Label: GraphTensor, soft_label: bool, ignore_index: int, specs: dict[str, Any]) -> GraphTensor:
    if soft_label:
        loss = f.reduce_sum(Label * GraphTensor(minus_log(X.node)), dim=[-1], keep_dim=True).node
    else:
        ids, is_valid = labels_of(Label, X.shape, ignore_index)
        loss = minus_log(chosen(GraphTensor(is_valid), GraphTensor(picked(X.node, ids)), 1.0).node)
    return GraphTensor(reshaped(loss, specs["Y"].shape))


@lowers("cross_entropy2")
def cross_entropy2(X: GraphTensor, Label: GraphTensor, ignore_index: int, specs: dict[str, Any]) -> dict[str, GraphTensor]:
    ids, is_valid = labels_of(Label, X.shape, ignore_index)
    match = chosen(GraphTensor(is_valid), GraphTensor(picked(X.node, ids)), 1.0)
    shape = (specs.get("Y") or specs["MatchX"]).shape
    return {"Y": GraphTensor(reshaped(minus_log(match.node), shape)), "MatchX": GraphTensor(reshaped(match.node, shape))}


# ---------------------------------------------------------------------------------------------------------- elementwise
def _like(x: GraphTensor, label: GraphTensor) -> GraphTensor:
    """Convert labels, which may be integers, to the element type of x."""
    return label if label.dtype is x.dtype else label.astype(x.dtype)


@lowers("sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(
    X: GraphTensor, Label: GraphTensor, pos_weight: GraphTensor | None, normalize: bool, ignore_index: int
) -> GraphTensor:
    is_valid = GraphTensor(mapped("une", Label.node, number_like(ignore_index, Label.node), element=BOOL)).astype(X.dtype)
    missed = log1p_exp(-X)
    if pos_weight is not None:
        missed = missed * pos_weight
    losses = ((1.0 - _like(X, Label)) * X + missed) * is_valid
    if not normalize:
        return losses
    return losses / f.reshape(at_least(f.reduce_sum(is_valid, reduce_all=True), 1.0), shape=[1] * X.ndim)


@lowers("huber_loss")
def huber_loss(X: GraphTensor, Y: GraphTensor, delta: float) -> dict[str, GraphTensor]:
    residual = Y - X
    bounded = f.clip(residual, min=-delta, max=delta)
    return {"Residual": residual, "Out": (bounded * -0.5 + residual) * bounded}


@lowers("log_loss")
def log_loss(Predicted: GraphTensor, Labels: GraphTensor, epsilon: float) -> GraphTensor:
    labels = _like(Predicted, Labels)
    return -labels * f.log(Predicted + epsilon) - (1.0 - labels) * f.log(1.0 - Predicted + epsilon)


@lowers("label_smooth")
def label_smooth(X: GraphTensor, PriorDist: GraphTensor | None, epsilon: float) -> GraphTensor:
    scaled = X * (1.0 - epsilon)
    return scaled + epsilon / max(X.shape[-1], 1) if PriorDist is None else scaled + PriorDist * epsilon


@lowers("hinge_loss")
def hinge_loss(Logits: GraphTensor, Labels: GraphTensor) -> GraphTensor:
    return at_least(1.0 - (_like(Logits, Labels) * 2.0 - 1.0) * Logits, 0.0)


@lowers("bce_loss")
def bce_loss(X: GraphTensor, Label: GraphTensor) -> GraphTensor:
    return -(Label * at_least(f.log(X), -100.0) + (1.0 - Label) * at_least(f.log(1.0 - X), -100.0))


@lowers("kldiv_loss")
def kldiv_loss(X: GraphTensor, Target: GraphTensor, reduction: str, specs: dict[str, Any]) -> GraphTensor:
    losses = chosen(Target > 0.0, Target * (f.log(Target) - X), 0.0)
    if reduction != "none":
        count = {"sum": 1, "mean": max(X.node.size, 1), "batchmean": max((*X.shape, 1)[0], 1)}[reduction]
        losses = f.reduce_sum(losses, reduce_all=True) / float(count)
    return GraphTensor(reshaped(losses.node, specs["Loss"].shape))


@lowers("rank_loss")
def rank_loss(Label: GraphTensor, Left: GraphTensor, Right: GraphTensor) -> GraphTensor:
    difference = Left - Right
    return log1p_exp(difference) - Label * difference


@lowers("margin_rank_loss")
def margin_rank_loss(X1: GraphTensor, X2: GraphTensor, Label: GraphTensor, margin: float) -> dict[str, GraphTensor]:
    losses = at_least(margin - Label * (X1 - X2), 0.0)
    return {"Out": losses, "Activated": (losses > 0.0).astype(X1.dtype)}


@lowers("modified_huber_loss")
def modified_huber_loss(X: GraphTensor, Y: GraphTensor) -> dict[str, GraphTensor]:
    a = (_like(X, Y) * 2.0 - 1.0) * X
    return {"IntermediateVal": a, "Out": chosen(a < -1.0, a * -4.0, f.square(at_least(1.0 - a, 0.0)))}


@lowers("teacher_student_sigmoid_loss")
def teacher_student_sigmoid_loss(X: GraphTensor, Label: GraphTensor) -> GraphTensor:
    label = _like(X, Label)
    has_score, logs = label >= 0.0, log1p_exp(X)
    click = chosen(has_score, (label >= 1.0).astype(X.dtype), (label >= -1.0).astype(X.dtype))
    return logs - X * click + chosen(has_score, logs - X * (label - click), 0.0)


# ------------------------------------------------------------------------------------------------------------- of rows
@lowers("smooth_l1_loss")
def smooth_l1_loss(
    X: GraphTensor, Y: GraphTensor, InsideWeight: GraphTensor | None, OutsideWeight: GraphTensor | None, sigma: float
) -> dict[str, GraphTensor]:
    only_floats(X)
    difference, square = X - Y, sigma * sigma
    if InsideWeight is not None:
        difference = difference * InsideWeight
    size = f.abs(difference)
    losses = chosen(size * square < 1.0, difference * difference * (0.5 * square), size - 0.5 / square)
    if OutsideWeight is not None:
        losses = losses * OutsideWeight
    total = f.reduce_sum(losses, dim=list(range(1, X.ndim)), keep_dim=True)
    return {"Diff": difference, "Out": GraphTensor(reshaped(total.node, (X.shape[0], 1)))}


@lowers("squared_l2_distance")
def squared_l2_distance(X: GraphTensor, Y: GraphTensor) -> dict[str, GraphTensor]:
    difference = f.flatten2(X - Y, axis=1)
    return {"sub_result": difference, "Out": f.reduce_sum(f.square(difference), dim=[1], keep_dim=True)}


@lowers("cos_sim")
def cos_sim(X: GraphTensor, Y: GraphTensor) -> dict[str, GraphTensor]:
    x, y = f.flatten2(X, axis=1), f.flatten2(Y, axis=1)

    def along(value: GraphTensor) -> GraphTensor:
        return f.reduce_sum(value, dim=[1], keep_dim=True)

    x_norm, y_norm = f.sqrt(along(f.square(x))), f.sqrt(along(f.square(y)))
    return {"Out": along(x * y) / x_norm / y_norm, "XNorm": x_norm, "YNorm": y_norm}
