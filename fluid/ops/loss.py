"""Softmax and losses.

Hard labels are class numbers, with size 1 along the axis of the classes; gradients go to the labelled elements by `pick` and
`place`. Soft labels have a number for each class.

Labels of floats have gradients where Paddle gives them some. Where it gives none (the losses by hinge, rank and sigmoid), a
label is a constant, and a warning says so where that cuts a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.composition import means
from ..opdef.registry import ShapeOnly, define, least, long, required
from ..values.spec import Spec
from ..values.types import is_floating
from .elementwise import merged, shaped_as
from .formulas import as_type_of, at_least, choose, log1p_exp, number_like, size_of
from .manipulation import product
from .shapes import broadcast, in_order, may_equal, normalize_axis, one_each, scalar_shape, within


def _axis_of(X: Spec, axis: int) -> Spec:
    normalize_axis(axis, X.ndim)
    return X


@define("softmax(X: float) -> Out", infer=_axis_of, axis=-1)
def softmax(f: Any, Out: Any, dOut: Any, axis: Any) -> Any:
    """``exp(X) / sum(exp(X))`` along `axis`."""
    return {"X": Out * (dOut - f.reduce_sum(dOut * Out, dim=[axis], keep_dim=True))}


@define("log_softmax(X: float) -> Out", infer=_axis_of, axis=-1)
def log_softmax(f: Any, Out: Any, dOut: Any, axis: Any) -> Any:
    """``X - log(sum(exp(X)))`` along `axis`."""
    return {"X": dOut - f.exp(Out) * f.reduce_sum(dOut, dim=[axis], keep_dim=True)}


# ------------------------------------------------------------------------------------------------------ cross entropy
def _loss_shape(op: str, X: Spec, Label: Spec, soft_label: bool, axis: int = -1, flat_labels: bool = False) -> tuple[int, ...]:
    """X's shape with size 1 along `axis`, or without it if `flat_labels` and Label lacks it; `InferenceError` if Label does not
    fit."""
    axis = normalize_axis(axis, X.ndim)
    flat = flat_labels and not soft_label and Label.ndim == X.ndim - 1
    loss = (*X.shape[:axis], *(() if flat else (1,)), *X.shape[axis + 1 :])
    expected = X.shape if soft_label else loss
    if not may_equal(Label.shape, expected):
        is_soft = not soft_label and is_floating(Label.dtype) and may_equal(Label.shape, X.shape)
        advice = "; for a probability of each class, such as one-hot rows, give soft_label=True" if is_soft else ""
        if not soft_label and not advice and Label.ndim == X.ndim - 1:
            advice = f"; layers.unsqueeze(label, axes=[{axis}]) gives it this shape"
        elif not soft_label and not advice and may_equal(Label.shape, X.shape):
            advice = "; for one-hot rows, cast them to float32 and give soft_label=True"
        kind = "soft " if soft_label else ""
        raise InferenceError(f"{op}: {kind}Label {Label} should have shape {list(expected)} for {X}{advice}")
    if is_floating(Label.dtype) != soft_label:
        hard, soft = "class numbers, as integers (soft_label is off)", "a probability for each class (soft_label is on)"
        raise ElementTypeError(f"{op}: Label {Label} should hold {soft if soft_label else hard}")
    return loss


def _cross_entropy(X: Spec, Label: Spec, soft_label: bool) -> Spec:
    return X.with_shape(_loss_shape("cross_entropy", X, Label, soft_label, flat_labels=True))


def _as_column(f: Any, value: Any, X: Any) -> Any:
    """Labels, or losses, with a last axis of size 1, which they may lack."""
    return value if len(value.shape) == len(X.shape) else f.unsqueeze(value, axes=[len(value.shape)])


def _minus_log(f: Any, x: Any) -> Any:
    return -at_least(f, f.log(x), -1e20)


def _losses(f: Any, X: Any, Label: Any, soft_label: bool, ignore_index: int) -> Any:
    if soft_label:
        return f.reduce_sum(Label * _minus_log(f, X), dim=[-1], keep_dim=True)
    return _hard_losses(f, X, Label, ignore_index)["Y"]


def _hard_losses(f: Any, X: Any, Label: Any, ignore_index: int) -> dict[str, Any]:
    match = f.pick(X, _as_column(f, Label, X), ignore_index=ignore_index, default=1.0)
    match = match if len(Label.shape) == len(X.shape) else f.squeeze(match, axes=[-1])
    return {"Y": _minus_log(f, match), "MatchX": match}


@define(
    "cross_entropy(X: float, Label: int|float) -> Y",
    infer=_cross_entropy,
    soft_label=False,
    ignore_index=-100,
    meaning=means(_losses),
)
def cross_entropy(f: Any, X: Any, Label: Any, dY: Any, soft_label: Any, ignore_index: Any) -> Any:
    """``-log(X[label])`` of probabilities X [..., classes] and class numbers Label [..., 1] or [...]; Y has the shape of Label.

    Soft labels [..., classes] give ``-sum(Label * log(X))``, of shape [..., 1]. Rows labelled `ignore_index` give 0. The
    logarithm of 0 counts as -1e20.
    """
    if soft_label:
        return {"X": lambda: -(dY * Label / X), "Label": lambda: -(dY * f.log(X))}
    Label, dY = _as_column(f, Label, X), _as_column(f, dY, X)
    picked = f.pick(X, Label, ignore_index=ignore_index, default=1.0)
    return {"X": -f.place(dY / picked, Label, X, ignore_index=ignore_index)}


def _cross_entropy2(X: Spec, Label: Spec) -> tuple[Spec, Spec, Spec]:
    loss = X.with_shape(_loss_shape("cross_entropy2", X, Label, False, flat_labels=True))
    return loss, X.with_shape((0, *X.shape)), loss


@define(
    "cross_entropy2(X: float, Label: int) -> Y, XShape, MatchX",
    infer=_cross_entropy2,
    wrt=("X",),
    grad_type="cross_entropy_grad2",
    ignore_index=-100,
    meaning=means(_hard_losses),
)
def cross_entropy2(f: Any, Label: Any, XShape: ShapeOnly, MatchX: Any, dY: Any, ignore_index: Any, dMatchX: Any = None) -> Any:
    """`cross_entropy` with class numbers; keeps the labelled probabilities in MatchX for the gradient."""
    gradient = -(dY / MatchX)
    gradient = gradient if dMatchX is None else gradient + dMatchX
    if len(Label.shape) == len(XShape.shape) - 2:  # type: ignore[attr-defined]  # XShape has one dimension more than X
        Label, gradient = (f.unsqueeze(value, axes=[len(value.shape)]) for value in (Label, gradient))
    return {"X": f.place(gradient, Label, XShape, ignore_index=ignore_index)}


def _softmax_with_cross_entropy(Logits: Spec, Label: Spec, soft_label: bool, axis: int) -> tuple[Spec, Spec]:
    return Logits, Logits.with_shape(_loss_shape("softmax_with_cross_entropy", Logits, Label, soft_label, axis))


def _softmax_and_loss(
    f: Any, Logits: Any, Label: Any, soft_label: bool, use_softmax: bool, ignore_index: int, axis: int
) -> dict[str, Any]:
    softmax = f.softmax(Logits, axis=axis) if use_softmax else f.assign(Logits)
    losses = -f.log_softmax(Logits, axis=axis) if use_softmax else _minus_log(f, Logits)
    if soft_label:
        return {"Softmax": softmax, "Loss": f.reduce_sum(Label * losses, dim=[axis], keep_dim=True)}
    return {"Softmax": softmax, "Loss": f.pick(losses, Label, axis=axis, ignore_index=ignore_index)}


@define(
    "softmax_with_cross_entropy(Logits: float, Label: int|float) -> Softmax, Loss",
    infer=_softmax_with_cross_entropy,
    soft_label=False,
    use_softmax=True,
    numeric_stable_mode=True,
    ignore_index=-100,
    axis=-1,
    meaning=means(_softmax_and_loss),
)
def softmax_with_cross_entropy(
    f: Any,
    Label: Any,
    Softmax: Any,
    dLoss: Any,
    soft_label: Any,
    use_softmax: Any,
    ignore_index: Any,
    axis: Any,
    dSoftmax: Any = None,
) -> Any:
    """`cross_entropy` of ``softmax(Logits)`` along `axis`, computed as ``log(sum(exp(Logits))) - Logits[label]``.

    Without `use_softmax`, Logits are probabilities. The result is numerically stable for any `numeric_stable_mode`.
    """
    hard: dict[str, Any] = {"axis": axis, "ignore_index": ignore_index}

    def by_logits() -> Any:
        if not use_softmax:
            if soft_label:
                d_logits = -(dLoss * Label / Softmax)
            else:
                d_logits = -f.place(dLoss / f.pick(Softmax, Label, default=1.0, **hard), Label, Softmax, **hard)
            return d_logits if dSoftmax is None else d_logits + dSoftmax
        # g is the gradient with respect to -log(Softmax), and q / Softmax that with respect to Softmax.
        g = dLoss * Label if soft_label else f.place(dLoss, Label, Softmax, **hard)
        q = -g if dSoftmax is None else Softmax * dSoftmax - g
        return q - Softmax * f.reduce_sum(q, dim=[axis], keep_dim=True)

    return {"Logits": by_logits, "Label": lambda: -(dLoss * f.log(Softmax))}


# ------------------------------------------------------------------------------------------------------- other losses
def _same_shapes(first: str, X: Spec, second: str, Y: Spec) -> Spec:
    if not may_equal(X.shape, Y.shape):
        raise InferenceError(f"{first} {X} and {second} {Y} should have the same shape")
    return X


def _binary(X: Spec, Label: Spec) -> Spec:
    return _same_shapes("X", X, "Label", Label)


def _binary_with_logits(X: Spec, Label: Spec, pos_weight: Spec | None) -> Spec:
    if pos_weight is not None and broadcast(X.shape, pos_weight.shape) != X.shape and -1 not in (*X.shape, *pos_weight.shape):
        raise InferenceError(f"pos_weight {pos_weight} does not broadcast to X {X}")
    return _binary(X, Label)


def _losses_of_logits(f: Any, X: Any, Label: Any, pos_weight: Any, normalize: bool, ignore_index: int) -> Any:
    counted = f.not_equal(Label, number_like(f, Label, float(ignore_index))).astype(X.dtype)
    missed = log1p_exp(f, -X)
    if pos_weight is not None:
        missed = missed * pos_weight
    losses = ((1.0 - as_type_of(X, Label)) * X + missed) * counted
    return shaped_as(f, X, losses / at_least(f, f.reduce_sum(counted, reduce_all=True), 1.0)) if normalize else losses


@define(
    "sigmoid_cross_entropy_with_logits(X: float, Label, pos_weight?) -> Out",
    infer=_binary_with_logits,
    wrt=("X", "pos_weight"),
    constants=("Label",),
    normalize=False,
    ignore_index=-100,
    composition=means(_losses_of_logits),
)
def sigmoid_cross_entropy_with_logits(
    f: Any, X: Any, Label: Any, pos_weight: Any, dOut: Any, normalize: Any, ignore_index: Any
) -> Any:
    """``-pos_weight * log(sigmoid(X)) + (1 - Label) * X``, elementwise; pos_weight is 1 by default.

    Without it, that is the cross entropy ``-Label * log(sigmoid(X)) - (1 - Label) * log(1 - sigmoid(X))``. For a weight w of
    positive labels, the slot must hold ``(w - 1) * Label + 1``, also for soft labels, as in programs from Paddle 2.6. (Paddle
    computes a different number where X is negative: it adds -X once, not pos_weight times.) No layer of Fluid 1.6 uses the slot.
    Elements labelled `ignore_index` give 0; `normalize` divides by the number of the others.
    """
    counted = f.not_equal(Label, number_like(f, Label, float(ignore_index))).astype(X.dtype)
    Label = as_type_of(X, Label)
    gradient = dOut * counted
    if normalize:
        count = f.reduce_sum(counted, reduce_all=True)
        gradient = shaped_as(f, X, gradient / f.elementwise_max(count, f.fill_constant(shape=[1], dtype=int(X.dtype), value=1.0)))
    missing = 1.0 - f.sigmoid(X)
    return {
        "X": lambda: gradient * (1.0 - Label - (missing if pos_weight is None else missing * pos_weight)),
        "pos_weight": lambda: f.sum_to(gradient * f.softplus(-X), pos_weight),
    }


def _huber_loss(X: Spec, Y: Spec) -> tuple[Spec, Spec]:
    return _same_shapes("X", X, "Y", Y), X


def _huber(f: Any, X: Any, Y: Any, delta: float) -> Any:
    residual = Y - X
    bounded = f.clip(residual, min=-delta, max=delta)
    return {"Residual": residual, "Out": (bounded * -0.5 + residual) * bounded}


@define(
    "huber_loss(X: float, Y) -> Out, Residual~", infer=_huber_loss, delta=least(0, required("float")), composition=means(_huber)
)
def huber_loss(f: Any, Residual: Any, dOut: Any, delta: Any, dResidual: Any = None) -> Any:
    """``r * r / 2`` where ``|r| <= delta``, else ``delta * (|r| - delta / 2)``, of the residual ``r = Y - X``."""
    upper, lower = (number_like(f, Residual, bound) for bound in (delta, -delta))
    bounded = f.elementwise_max(f.elementwise_min(Residual, upper), lower)
    gradient = dOut * bounded if dResidual is None else dOut * bounded + dResidual
    return {"X": lambda: -gradient, "Y": gradient}


def _log_loss(Predicted: Spec, Labels: Spec) -> Spec:
    return _same_shapes("Predicted", Predicted, "Labels", Labels)


def _logs_missed(f: Any, Predicted: Any, Labels: Any, epsilon: float) -> Any:
    labels = as_type_of(Predicted, Labels)
    return {"Loss": -(labels * f.log(Predicted + epsilon)) - (1.0 - labels) * f.log((1.0 + epsilon) - Predicted)}


@define(
    "log_loss(Predicted: float, Labels: int|float) -> Loss",
    infer=_log_loss,
    epsilon=least(0, required("float")),
    meaning=means(_logs_missed),
)
def log_loss(f: Any, Predicted: Any, Labels: Any, dLoss: Any, epsilon: Any) -> Any:
    """``-Labels * log(Predicted + epsilon) - (1 - Labels) * log(1 - Predicted + epsilon)`` of probabilities.

    Args:
        Predicted: probabilities, of any shape.
        Labels: 0 or 1, or probabilities, of the same shape.
        epsilon: keeps the logarithms finite.
    """
    hit, miss = Predicted + epsilon, (1.0 + epsilon) - Predicted
    return {
        "Predicted": lambda: dLoss * ((1.0 - Labels) / miss - Labels / hit),
        "Labels": lambda: dLoss * (f.log(miss) - f.log(hit)),
    }


def _above_zero(X: Any) -> Any:
    """1 where X is above 0, 0 elsewhere."""
    return (X > 0.0).astype(X.dtype)


def _scalar(X: Spec, declared: Mapping[str, Any], slot: str) -> Spec:
    return X.with_shape(scalar_shape(declared, slot))


def _label_smooth(X: Spec, PriorDist: Spec | None, epsilon: float) -> Spec:
    within("epsilon", epsilon, 0, 1)
    if PriorDist is not None and broadcast(X.shape, PriorDist.shape) != X.shape and -1 not in X.shape:
        raise InferenceError(f"label_smooth: PriorDist {PriorDist} should have shape [1, classes] for X {X}")
    return X


def _smoothed(f: Any, X: Any, PriorDist: Any, epsilon: float) -> Any:
    scaled = X * (1.0 - epsilon)
    return scaled + (epsilon / size_of(f, X, -1) if PriorDist is None else PriorDist * epsilon)


@define("label_smooth(X: float[..., C], PriorDist?) -> Out", infer=_label_smooth, epsilon=0.0, meaning=means(_smoothed))
def label_smooth(f: Any, PriorDist: ShapeOnly, dOut: Any, epsilon: float) -> Any:
    """``(1 - epsilon) * X + epsilon * PriorDist``; the distribution is uniform, 1 / classes, by default.

    Formula: Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2016.

    Args:
        X: one-hot or other distributions, ``[..., classes]``.
        PriorDist: a distribution ``[1, classes]``, or one for each row.
        epsilon: the weight of PriorDist, from 0 to 1.
    """
    return {"X": dOut * (1.0 - epsilon), "PriorDist": lambda: f.sum_to(dOut * epsilon, PriorDist)}


def _hinge(f: Any, Logits: Any, Labels: Any) -> Any:
    return {"Loss": at_least(f, 1.0 - (as_type_of(Logits, Labels) * 2.0 - 1.0) * Logits, 0.0)}


@define(
    "hinge_loss(Logits: float, Labels) -> Loss",
    infer=lambda Logits, Labels: _same_shapes("Logits", Logits, "Labels", Labels),
    wrt=("Logits",),
    constants=("Labels",),
    meaning=means(_hinge),
)
def hinge_loss(f: Any, Logits: Any, Labels: Any, dLoss: Any) -> Any:
    """``max(0, 1 - (2 * Labels - 1) * Logits)``; Labels are 0 or 1."""
    side = as_type_of(Logits, Labels) * 2.0 - 1.0
    return {"Logits": -(dLoss * side * _above_zero(1.0 - side * Logits))}


def _bce(f: Any, X: Any, Label: Any) -> Any:
    return -(Label * at_least(f, f.log(X), -100.0) + (1.0 - Label) * at_least(f, f.log(1.0 - X), -100.0))


@define("bce_loss(X: float, Label) -> Out", infer=_binary, composition=means(_bce))
def bce_loss(f: Any, X: Any, Label: Any, dOut: Any) -> Any:
    """``-Label * log(X) - (1 - Label) * log(1 - X)`` of probabilities X; logarithms are clipped to -100 at least."""

    def by_label() -> Any:
        least = number_like(f, X, -100.0)
        return dOut * (f.elementwise_max(f.log(1.0 - X), least) - f.elementwise_max(f.log(X), least))

    spread = f.elementwise_max((1.0 - X) * X, number_like(f, X, 1e-12))
    return {"X": dOut * (X - Label) / spread, "Label": by_label}


REDUCTIONS = ("none", "mean", "sum")


def _check_reduction(op: str, reduction: str, *more: str) -> None:
    if reduction not in (*REDUCTIONS, *more):
        raise InferenceError(f"{op}: reduction {reduction!r} should be one of {', '.join((*REDUCTIONS, *more))}")


def _kldiv_loss(X: Spec, Target: Spec, reduction: str, declared: Mapping[str, Any]) -> Spec:
    _check_reduction("kldiv_loss", reduction, "batchmean")
    if reduction == "batchmean" and X.ndim == 0:
        raise InferenceError(f"kldiv_loss: X {X} has no batch to divide by; use the reduction 'mean'")
    loss = merged(X, Target)
    return loss if reduction == "none" else _scalar(X, declared, "Loss")


def _kldiv(f: Any, X: Any, Target: Any, reduction: str) -> Any:
    losses = choose(f, Target > 0.0, Target * (f.log(Target) - X), 0.0)
    if reduction == "none":
        return {"Loss": losses}
    if reduction == "mean":
        return {"Loss": f.reduce_mean(losses, reduce_all=True)}
    total = f.reduce_sum(losses, reduce_all=True)
    return {"Loss": total / size_of(f, X, 0) if reduction == "batchmean" else total}


@define("kldiv_loss(X: float, Target: float) -> Loss", infer=_kldiv_loss, reduction="mean", composition=means(_kldiv))
def kldiv_loss(f: Any, X: Any, Target: Any, dLoss: Any, reduction: str) -> Any:
    """``Target * (log(Target) - X)`` of logarithms X of probabilities, 0 where Target is not above 0.

    Args:
        X: logarithms of probabilities, of any shape.
        Target: probabilities, of the same shape.
        reduction: ``"none"``, ``"sum"``, ``"mean"``, or ``"batchmean"``, the sum divided by the number of rows.
    """
    gradient = dLoss
    if reduction != "none":
        gradient = f.expand_reduced(dLoss, X, reduce_all=True, average=reduction == "mean")
    if reduction == "batchmean":
        gradient = gradient / size_of(f, X, 0)
    counts = _above_zero(Target)
    return {
        "X": lambda: -(gradient * Target * counts),
        "Target": lambda: gradient * counts * (f.log(Target * counts + (1.0 - counts)) + 1.0 - X),
    }


def _nll_loss(X: Spec, Label: Spec, Weight: Spec | None, reduction: str, declared: Mapping[str, Any]) -> tuple[Spec, Spec]:
    _check_reduction("nll_loss", reduction)
    label_shape = X.shape[:1] + X.shape[2:]
    if X.ndim < 2 or not may_equal(Label.shape, label_shape):
        raise InferenceError(f"nll_loss: Label {Label} should have shape {list(label_shape)}, that of X {X} without the classes")
    if Weight is not None and not may_equal(Weight.shape, X.shape[1:2]):
        raise InferenceError(f"nll_loss: Weight {Weight} should have shape [{X.shape[1]}], the number of classes")
    total = _scalar(X, declared, "Total_weight")
    loss_shape = tuple(max(pair) for pair in zip(Label.shape, label_shape, strict=True))
    return X.with_shape(loss_shape) if reduction == "none" else _scalar(X, declared, "Out"), total


def _likelihoods(f: Any, X: Any, Label: Any, Weight: Any, ignore_index: int, reduction: str) -> dict[str, Any]:
    index = f.unsqueeze(Label, axes=[1])
    is_counted = f.not_equal(index, f.fill_any_like(index, value=float(ignore_index)))
    weights = is_counted.astype(X.dtype)
    if Weight is not None:
        ids = f.reshape(index * is_counted.astype(index.dtype), shape=[-1])
        weights = weights * f.reshape_like(f.gather(Weight, ids), index)
    losses = -(weights * f.pick(X, index, axis=1, ignore_index=ignore_index))
    total = f.reduce_sum(weights, reduce_all=True)
    if reduction == "none":
        return {"Out": f.squeeze(losses, axes=[1]), "Total_weight": f.fill_zeros_like(total)}
    loss = f.reduce_sum(losses, reduce_all=True)
    return {"Out": loss / total if reduction == "mean" else loss, "Total_weight": total}


@define(
    "nll_loss(X: int|float, Label: int, Weight?: int|float) -> Out, Total_weight",
    infer=_nll_loss,
    wrt=("X",),
    constants=("Weight",),
    meaning=means(_likelihoods),
    ignore_index=long(-100),
    reduction="mean",
)
def nll_loss(
    f: Any,
    X: ShapeOnly,
    Label: Any,
    Weight: Any,
    Total_weight: Any,
    dOut: Any,
    ignore_index: int,
    reduction: str,
    dTotal_weight: Any = None,
) -> Any:
    """``-Weight[label] * X[label]`` of logarithms X of probabilities, [rows, classes, ...], and labels [rows, ...].

    The reduction is "none", "sum", or "mean", the sum divided by Total_weight, the sum of the weights of the labels. Rows
    labelled `ignore_index` give 0 and weigh 0.
    """
    index = f.unsqueeze(Label, axes=[1])
    if reduction == "none":
        gradient = f.unsqueeze(dOut, axes=[1])
    else:
        gradient = f.expand_reduced(dOut if reduction == "sum" else dOut / Total_weight, index, reduce_all=True)
    if Weight is not None:
        weights = f.expand_to(Weight, X, axis=1)
        gradient = gradient * f.pick(weights, index, axis=1, ignore_index=ignore_index)
    return {"X": -f.place(gradient, index, X, axis=1, ignore_index=ignore_index)}


# ------------------------------------------------------------------------------------------------------------- ranking
def _rank_loss(Label: Spec, Left: Spec, Right: Spec) -> Spec:
    rank = min(len(spec.shape) for spec in (Label, Left, Right))
    label, left, right = (_without_ones(spec, rank) for spec in (Label, Left, Right))
    _same_shapes("Label", merged(label, left), "Right", right)
    return Label


def _without_ones(spec: Spec, rank: int) -> Spec:
    """A column ``[N, 1]`` as ``[N]``, for a rank of 1; unchanged if what follows the first `rank` sizes may not be 1."""
    return Spec(spec.shape[:rank], spec.dtype) if set(spec.shape[rank:]) <= {1, -1} else spec


def _in_shape(f: Any, x: Any, like: Any) -> Any:
    """The numbers of `x` in the shape of `like`: ``[N, 1]`` as ``[N]``, say."""
    return x if x.ndim == like.ndim else f.reshape_like(x, like)


def _rank(f: Any, Label: Any, Left: Any, Right: Any) -> Any:
    difference = _in_shape(f, Left, Label) - _in_shape(f, Right, Label)
    return log1p_exp(f, difference) - Label * difference


@define("rank_loss(Label: float, Left: float, Right) -> Out", infer=_rank_loss, composition=means(_rank))
def rank_loss(f: Any, Label: Any, Left: Any, Right: Any, dOut: Any) -> Any:
    """``log(1 + exp(Left - Right)) - Label * (Left - Right)``; Label is the probability that Left should rank higher.

    Formula: Burges et al., Learning to Rank using Gradient Descent, 2005.

    Args:
        Label: from 0 to 1, of any shape, which is the shape of Out.
        Left, Right: scores of two items, a pair for each label, as ``[N]`` or ``[N, 1]``.
    """
    difference = _in_shape(f, Left, Label) - _in_shape(f, Right, Label)
    gradient = dOut * (f.sigmoid(difference) - Label)
    return {
        "Left": lambda: _in_shape(f, gradient, Left),
        "Right": lambda: -_in_shape(f, gradient, Right),
        "Label": lambda: -(dOut * difference),
    }


def _margin_rank_loss(X1: Spec, X2: Spec, Label: Spec) -> tuple[Spec, Spec]:
    out = merged(X1, X2, Label)
    return out, out


def _margin_rank(f: Any, X1: Any, X2: Any, Label: Any, margin: float) -> Any:
    losses = at_least(f, margin - Label * (X1 - X2), 0.0)
    return {"Out": losses, "Activated": (losses > 0.0).astype(X1.dtype)}


@define(
    "margin_rank_loss(X1: float, X2: float, Label: float) -> Out, Activated~",
    infer=_margin_rank_loss,
    wrt=("X1", "X2"),
    constants=("Label",),
    margin=0.0,
    composition=means(_margin_rank),
)
def margin_rank_loss(f: Any, Label: Any, Activated: Any, dOut: Any, dActivated: Any = None) -> Any:
    """``max(0, margin - Label * (X1 - X2))``; Label is 1 where X1 should rank higher, -1 where X2 should.

    Args:
        X1, X2: scores of two items, of one shape.
        Label: 1 or -1, in the shape of the scores.
        margin: the difference of the scores above which the loss is 0.
    """
    gradient = dOut * Label * Activated
    return {"X1": lambda: -gradient, "X2": gradient}


def _bpr_loss(X: Spec, Label: Spec) -> Spec:
    return X.with_shape(_loss_shape("bpr_loss", X, Label, False))


def _pick_and_mask(f: Any, X: Any, Label: Any) -> tuple[Any, Any]:
    """The number at the label of each row, and 0 at the labels, 1 elsewhere."""
    picked = f.pick(X, Label)
    return picked, 1.0 - f.place(f.fill_any_like(picked, value=1.0), Label, X)


def _bpr(f: Any, X: Any, Label: Any) -> Any:
    picked, not_label = _pick_and_mask(f, X, Label)
    losses = log1p_exp(f, X - picked) * not_label
    return {"Y": f.reduce_sum(losses, dim=[-1], keep_dim=True) / (size_of(f, X, -1) - 1.0)}


@define("bpr_loss(X: float, Label: int) -> Y", infer=_bpr_loss, wrt=("X",), meaning=means(_bpr))
def bpr_loss(f: Any, X: Any, Label: Any, dY: Any) -> Any:
    """The mean over the other classes j of ``log(1 + exp(X[j] - X[Label]))`` (Bayesian personalized ranking), ``[..., 1]``.

    Formula: Hidasi et al., Session-based Recommendations with Recurrent Neural Networks, 2016.

    Args:
        X: scores ``[..., classes]``, with two classes at least.
        Label: the right class of each row, ``[..., 1]``.
    """
    picked, not_label = _pick_and_mask(f, X, Label)
    count = f.reduce_sum(not_label, dim=[-1], keep_dim=True)
    gradient = not_label * f.sigmoid(X - picked) * (dY / count)
    return {"X": gradient - f.place(f.reduce_sum(gradient, dim=[-1], keep_dim=True), Label, X)}


# ----------------------------------------------------------------------------------------------- distances and the like
def _rows(op: str, X: Spec, Y: Spec) -> int:
    """The number of rows of X; `InferenceError` unless Y has the shape of X, with the same number of rows or one."""
    if X.ndim < 2 or X.ndim != Y.ndim or (broadcast(X.shape, Y.shape) != X.shape and -1 not in (*X.shape, *Y.shape)):
        raise InferenceError(f"{op}: Y {Y} should be shaped as X {X}, with as many rows, or one")
    return X.shape[0] if X.shape[0] != 1 else max(X.shape[0], Y.shape[0])


def _squared_l2_distance(X: Spec, Y: Spec) -> tuple[Spec, Spec]:
    rows = _rows("squared_l2_distance", X, Y)
    return X.with_shape((rows, product(X.shape[1:]))), X.with_shape((rows, 1))


def _squared_distance(f: Any, X: Any, Y: Any) -> Any:
    difference = f.flatten2(X - Y, axis=1)
    return {"sub_result": difference, "Out": f.reduce_sum(f.square(difference), dim=[1], keep_dim=True)}


@define("squared_l2_distance(X: float, Y) -> sub_result~, Out", infer=_squared_l2_distance, meaning=means(_squared_distance))
def squared_l2_distance(f: Any, X: ShapeOnly, Y: ShapeOnly, sub_result: Any, dOut: Any, dsub_result: Any = None) -> Any:
    """For each row, the sum of the squares of X - Y, of shape [rows, 1]; Y may have one row for all."""
    apart = dOut * sub_result * 2.0
    gradient = f.reshape_like(apart if dsub_result is None else apart + dsub_result, X)
    return {"X": gradient, "Y": lambda: -f.sum_to(gradient, Y)}


def _cos_sim(X: Spec, Y: Spec) -> tuple[Spec, Spec, Spec]:
    rows = _rows("cos_sim", X, Y)
    widths = [product(spec.shape[1:]) for spec in (X, Y)]
    if -1 not in widths and widths[0] != widths[1]:
        raise InferenceError(f"cos_sim: rows of X {X} and Y {Y} should have as many elements")
    return X.with_shape((rows, 1)), X.with_shape((rows, 1)), X.with_shape((Y.shape[0], 1))


_LEAST_SQUARE = 1e-8
"""Of a vector's length, as in Paddle: so the cosine with a vector of zeros is 0."""


def _cosine(f: Any, X: Any, Y: Any) -> Any:
    x, y = f.flatten2(X, axis=1), f.flatten2(Y, axis=1)

    def sum_rows(value: Any) -> Any:
        return f.reduce_sum(value, dim=[1], keep_dim=True)

    x_norm, y_norm = (f.sqrt(at_least(f, sum_rows(f.square(value)), _LEAST_SQUARE)) for value in (x, y))
    return {"Out": sum_rows(x * y) / x_norm / y_norm, "XNorm": x_norm, "YNorm": y_norm}


@define("cos_sim(X: float, Y) -> Out, XNorm~, YNorm~", infer=_cos_sim, meaning=means(_cosine))
def cos_sim(f: Any, X: Any, Y: Any, Out: ShapeOnly, XNorm: ShapeOnly, YNorm: ShapeOnly, dOut: Any) -> Any:
    """For each row, the cosine of the angle between X and Y, of shape [rows, 1]; Y may have one row for all.

    Vectors shorter than 1e-4 count as if they were so long; the cosine with zeros is 0.

    Args:
        X: ``[rows, ...]``; what follows the rows is one vector.
        Y: of the shape of X, or with one row.
    """

    def unit(value: Any) -> tuple[Any, Any]:
        square = f.reduce_sum(value * value, dim=list(range(1, value.ndim)), keep_dim=True)
        length = f.sqrt(at_least(f, square, _LEAST_SQUARE))
        return value / length, length

    (x, x_length), (y, y_length) = unit(X), unit(Y)
    axes = list(range(1, X.ndim))
    cosine = f.reduce_sum(x * y, dim=axes, keep_dim=True)
    gradient = f.reshape_like(dOut, cosine)
    return {"X": lambda: gradient * (y - cosine * x) / x_length, "Y": lambda: f.sum_to(gradient * (x - cosine * y) / y_length, Y)}


def _smooth_l1_loss(X: Spec, Y: Spec, InsideWeight: Spec | None, OutsideWeight: Spec | None) -> tuple[Spec, Spec]:
    if X.ndim < 2:
        raise InferenceError(f"smooth_l1_loss: X {X} should have two dimensions at least")
    diff = merged(X, Y, *(weight for weight in (InsideWeight, OutsideWeight) if weight is not None))
    return diff, diff.with_shape((diff.shape[0], 1))


def _smooth_l1(f: Any, X: Any, Y: Any, InsideWeight: Any, OutsideWeight: Any, sigma: float) -> Any:
    difference, square = X - Y, sigma * sigma
    if InsideWeight is not None:
        difference = difference * InsideWeight
    size = f.abs(difference)
    losses = choose(f, size * square < 1.0, difference * difference * (0.5 * square), size - 0.5 / square)
    if OutsideWeight is not None:
        losses = losses * OutsideWeight
    total = f.reduce_sum(losses, dim=list(range(1, X.ndim)), keep_dim=True)
    return {"Diff": difference, "Out": f.reshape(total, shape=[-1, 1])}


@define(
    "smooth_l1_loss(X: int|float, Y: int|float, InsideWeight?: int|float, OutsideWeight?: int|float) -> Diff~, Out",
    infer=_smooth_l1_loss,
    wrt=("X", "Y"),
    constants=("InsideWeight", "OutsideWeight"),
    sigma=least(1e-12, 1.0),
    meaning=means(_smooth_l1),
)
def smooth_l1_loss(f: Any, InsideWeight: Any, OutsideWeight: Any, Diff: Any, dOut: Any, sigma: float, dDiff: Any = None) -> Any:
    """For each row, the sum of ``(sigma * d) ** 2 / 2`` where ``|d| < 1 / sigma ** 2`` and ``|d| - 0.5 / sigma ** 2`` elsewhere.

    Here d is ``InsideWeight * (X - Y)``, and the terms are multiplied by OutsideWeight; Out is [rows, 1].

    Formula: Girshick, Fast R-CNN, 2015.

    Args:
        X, Y: predictions and targets, ``[rows, ...]``, of the same shape.
        sigma: where the quadratic part ends, at ``1 / sigma ** 2``.
        InsideWeight: factors of the differences, of the same shape; by default 1.
        OutsideWeight: factors of the losses, of the same shape; by default 1.
    """
    slope = f.elementwise_mul(f.clip(Diff * (sigma * sigma), min=-1.0, max=1.0), dOut, axis=0)
    if OutsideWeight is not None:
        slope = slope * OutsideWeight
    if dDiff is not None:
        slope = slope + dDiff
    gradient = slope if InsideWeight is None else slope * InsideWeight
    return {"X": gradient, "Y": lambda: -gradient}


def _modified_huber(f: Any, X: Any, Y: Any) -> Any:
    a = (as_type_of(X, Y) * 2.0 - 1.0) * X
    return {"IntermediateVal": a, "Out": choose(f, a < -1.0, a * -4.0, f.square(at_least(f, 1.0 - a, 0.0)))}


@define(
    "modified_huber_loss(X: float, Y) -> IntermediateVal~, Out",
    infer=lambda X, Y: (_same_shapes("X", X, "Y", Y), X),
    wrt=("X",),
    constants=("Y",),
    meaning=means(_modified_huber),
)
def modified_huber_loss(f: Any, Y: Any, IntermediateVal: Any, dOut: Any, dIntermediateVal: Any = None) -> Any:
    """``max(0, 1 - a) ** 2``, or ``-4 * a`` where a is below -1, of ``a = (2 * Y - 1) * X``; Y is 0 or 1."""
    gradient = dOut * f.clip(1.0 - IntermediateVal, min=0.0, max=2.0) * -2.0
    if dIntermediateVal is not None:
        gradient = gradient + dIntermediateVal
    return {"X": gradient * (as_type_of(gradient, Y) * 2.0 - 1.0)}


def _teacher_student(X: Spec, Label: Spec, soft_max_up_bound: float, soft_max_lower_bound: float) -> Spec:
    in_order("soft_max_lower_bound", soft_max_lower_bound, "soft_max_up_bound", soft_max_up_bound)
    return _same_shapes("X", X, "Label", Label)


def _teacher_student_sum(f: Any, X: Any, Label: Any) -> Any:
    label = as_type_of(X, Label)
    has_score, logs = label >= 0.0, log1p_exp(f, X)
    click = f.where(has_score, (label >= 1.0).astype(X.dtype), (label >= -1.0).astype(X.dtype))
    return {"Y": logs - X * click + choose(f, has_score, logs - X * (label - click), 0.0)}


@define(
    "teacher_student_sigmoid_loss(X: float, Label: int|float) -> Y",
    infer=_teacher_student,
    wrt=("X",),
    constants=("Label",),
    soft_max_up_bound=15.0,
    soft_max_lower_bound=-15.0,
    composition=means(_teacher_student_sum),
)
def teacher_student_sigmoid_loss(
    f: Any, X: Any, Label: Any, dY: Any, soft_max_up_bound: float, soft_max_lower_bound: float
) -> Any:
    """The cross entropy of sigmoid(X) and a click, 0 or 1, plus the cross entropy of a teacher's score z from 0 to 1, if any.

    Label is -2 for no click and no score, -1 for a click without a score, z for no click with a score, 1 + z for a click with
    one. The gradient of X is 0 where X is outside of the bounds.

    Args:
        X: logits of clicks, of any shape.
        Label: click and score in one number, of the same shape.
        soft_max_up_bound, soft_max_lower_bound: bounds of X; outside them it has no gradient.
    """

    def at_least(number: float) -> Any:
        return (Label >= number).astype(X.dtype)

    score = at_least(0.0)
    click = at_least(-1.0) - score + at_least(1.0)
    teacher = (Label - click) * score
    in_bounds = f.logical_and(X < soft_max_up_bound, X > soft_max_lower_bound).astype(X.dtype)
    p = f.sigmoid(X)
    return {"X": dY * in_bounds * (p - click + score * (p - teacher))}


def _center_loss(X: Spec, Label: Spec, Centers: Spec) -> tuple[Spec, Spec, Spec]:
    one_each("Label", Label, X.shape[0])
    return Centers, X, X.with_shape((X.shape[0], 1))


def _distances(f: Any, X: Any, Label: Any, Centers: Any, CenterUpdateRate: Any, need_update: bool) -> dict[str, Any]:
    label = f.reshape(Label, shape=[-1])
    apart = X - f.gather(Centers, label)
    centers = Centers
    if need_update:
        ones = f.fill_any_like(f.slice(apart, axes=[1], starts=[0], ends=[1]), value=1.0)
        counts = f.scatter_add_like(ones, label, f.slice(Centers, axes=[1], starts=[0], ends=[1]), axis=0)
        sums = f.scatter_add_like(apart, label, Centers, axis=0)
        centers = Centers + sums * f.reshape(CenterUpdateRate, shape=[-1]).astype(X.dtype) / (counts + 1.0)
    loss = f.reduce_sum(apart * apart, dim=[1], keep_dim=True) * 0.5
    return {"CentersOut": centers, "SampleCenterDiff": apart, "Loss": loss}


@define(
    "center_loss(X: float[N, D], Label: int[N, ...], Centers: float[C, D], CenterUpdateRate: [one])"
    " -> CentersOut, SampleCenterDiff, Loss",
    infer=_center_loss,
    wrt=("X",),
    constants=("Centers", "CenterUpdateRate"),
    composition=means(_distances),
    cluster_num=required("int"),
    need_update=False,
)
def center_loss(f: Any, SampleCenterDiff: Any, dLoss: Any, dSampleCenterDiff: Any = None) -> Any:
    """Half the squared distance of each row of X from the center of its class, ``Centers[label]``; Loss is [rows, 1].

    With `need_update`, each center moves towards the rows of its class, by CenterUpdateRate times the sum of their differences
    divided by one more than their number. SampleCenterDiff is X minus the centers.
    """
    gradient = dLoss * SampleCenterDiff
    return {"X": gradient if dSampleCenterDiff is None else gradient + dSampleCenterDiff}
