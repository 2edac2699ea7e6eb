"""Softmax and losses.

Labels that are class numbers have an extent of 1 along the axis of the classes, and gradients go to the labelled elements
by `pick` and `place`. Soft labels have a number for each class, and gradients too.
"""

from __future__ import annotations

from typing import Any

from ..errors import InferenceError
from ..types import is_floating
from ..values import Spec
from .registry import Like, define, required
from .shapes import normalize_axis


def _axis_of(X: Spec, axis: int) -> Spec:
    normalize_axis(axis, X.ndim)
    return X


@define("softmax(X) -> Out", infer=_axis_of, axis=-1)
def softmax(f: Any, Out: Any, dOut: Any, axis: Any) -> Any:
    """``exp(X) / sum(exp(X))`` along `axis`."""
    return {"X": Out * (dOut - f.reduce_sum(dOut * Out, dim=[axis], keep_dim=True))}


@define("log_softmax(X) -> Out", infer=_axis_of, axis=-1)
def log_softmax(f: Any, Out: Any, dOut: Any, axis: Any) -> Any:
    """``X - log(sum(exp(X)))`` along `axis`."""
    return {"X": dOut - f.exp(Out) * f.reduce_sum(dOut, dim=[axis], keep_dim=True)}


# ------------------------------------------------------------------------------------------------------ cross entropy
def _loss_shape(what: str, X: Spec, Label: Spec, soft_label: bool, axis: int = -1) -> tuple[int, ...]:
    """X's shape with an extent of 1 along `axis`, after a look at Label."""
    axis = normalize_axis(axis, X.ndim)
    found = (*X.shape[:axis], 1, *X.shape[axis + 1 :])
    expected = X.shape if soft_label else found
    fits = Label.ndim == len(expected) and all(a == b or -1 in (a, b) for a, b in zip(Label.shape, expected, strict=True))
    if not fits:
        raise InferenceError(f"{what}: {'soft ' if soft_label else ''}Label {Label} should have shape {list(expected)} for {X}")
    if is_floating(Label.dtype) != soft_label:
        raise InferenceError(
            f"{what}: Label {Label} should hold "
            + (
                "a probability for each class (soft_label is on)"
                if soft_label
                else "class numbers, as integers (soft_label is off)"
            )
        )
    return found


def _cross_entropy(X: Spec, Label: Spec, soft_label: bool) -> Spec:
    return X.with_shape(_loss_shape("cross_entropy", X, Label, soft_label))


@define("cross_entropy(X, Label) -> Y", infer=_cross_entropy, soft_label=False, ignore_index=-100)
def cross_entropy(f: Any, X: Any, Label: Any, dY: Any, soft_label: Any, ignore_index: Any) -> Any:
    """``-log(X[label])`` of probabilities X [..., classes] and class numbers Label [..., 1]; Y is [..., 1].

    Soft labels [..., classes] give ``-sum(Label * log(X))``. Rows labelled `ignore_index` give 0. The logarithm of 0 counts
    as -1e20.
    """
    if soft_label:
        return {"X": lambda: -(dY * Label / X), "Label": lambda: -(dY * f.log(X))}
    picked = f.pick(X, Label, ignore_index=ignore_index, default=1.0)
    return {"X": -f.place(dY / picked, Label, X, ignore_index=ignore_index)}


def _cross_entropy2(X: Spec, Label: Spec) -> tuple[Spec, Spec, Spec]:
    loss = X.with_shape(_loss_shape("cross_entropy2", X, Label, False))
    return loss, X.with_shape((0, *X.shape)), loss


@define(
    "cross_entropy2(X, Label) -> Y, XShape, MatchX",
    infer=_cross_entropy2,
    wrt=("X",),
    grad_type="cross_entropy_grad2",
    ignore_index=-100,
)
def cross_entropy2(f: Any, Label: Any, XShape: Like, MatchX: Any, dY: Any, ignore_index: Any, dMatchX: Any = None) -> Any:
    """`cross_entropy` with class numbers; keeps the labelled probabilities in MatchX for the gradient."""
    found = -(dY / MatchX)
    return {"X": f.place(found if dMatchX is None else found + dMatchX, Label, XShape, ignore_index=ignore_index)}


def _softmax_with_cross_entropy(Logits: Spec, Label: Spec, soft_label: bool, axis: int) -> tuple[Spec, Spec]:
    return Logits, Logits.with_shape(_loss_shape("softmax_with_cross_entropy", Logits, Label, soft_label, axis))


@define(
    "softmax_with_cross_entropy(Logits, Label) -> Softmax, Loss",
    infer=_softmax_with_cross_entropy,
    soft_label=False,
    use_softmax=True,
    numeric_stable_mode=True,
    ignore_index=-100,
    axis=-1,
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

    Without `use_softmax`, Logits are probabilities already. The result is stable in either setting of `numeric_stable_mode`.
    """
    hard: dict[str, Any] = {"axis": axis, "ignore_index": ignore_index}
    if not use_softmax:
        if soft_label:
            found = -(dLoss * Label / Softmax)
        else:
            found = -f.place(dLoss / f.pick(Softmax, Label, default=1.0, **hard), Label, Softmax, **hard)
        d_logits = found if dSoftmax is None else found + dSoftmax
    else:
        # With g the gradient for the negative logarithms of Softmax, and softmax's own gradient of q / Softmax:
        g = dLoss * Label if soft_label else f.place(dLoss, Label, Softmax, **hard)
        q = -g if dSoftmax is None else Softmax * dSoftmax - g
        d_logits = q - Softmax * f.reduce_sum(q, dim=[axis], keep_dim=True)
    return {"Logits": d_logits, "Label": lambda: -(dLoss * f.log(Softmax))}


# ------------------------------------------------------------------------------------------------------- other losses
def _same_shapes(first: str, X: Spec, second: str, Y: Spec) -> Spec:
    if X.ndim != Y.ndim or any(a != b and -1 not in (a, b) for a, b in zip(X.shape, Y.shape, strict=True)):
        raise InferenceError(f"{first} {X} and {second} {Y} should have the same shape")
    return X


def _binary(X: Spec, Label: Spec) -> Spec:
    return _same_shapes("X", X, "Label", Label)


@define(
    "sigmoid_cross_entropy_with_logits(X, Label, pos_weight?) -> Out",
    infer=_binary,
    wrt=("X",),
    normalize=False,
    ignore_index=-100,
)
def sigmoid_cross_entropy_with_logits(
    f: Any, X: Any, Label: Any, pos_weight: Any, dOut: Any, normalize: Any, ignore_index: Any
) -> Any:
    """``-(w * Label * log(sigmoid(X)) + (1 - Label) * log(1 - sigmoid(X)))``, element by element, with w = pos_weight or 1.

    Elements labelled `ignore_index` give 0; `normalize` divides by the number of the others. Labels are taken as
    constants, as Paddle does: no gradient flows to them.
    """
    kept = f.not_equal(Label, f.fill_constant(shape=[1], dtype=int(Label.dtype), value=float(ignore_index))).astype(X.dtype)
    gradient = dOut * kept
    if normalize:
        count = f.reduce_sum(kept, reduce_all=True)
        gradient = gradient / f.elementwise_max(count, f.fill_constant(shape=[1], dtype=int(X.dtype), value=1.0))
    missing = 1.0 - f.sigmoid(X)

    if pos_weight is None:
        return {"X": gradient * (1.0 - Label - missing)}
    return {"X": gradient * (1.0 - Label - ((pos_weight - 1.0) * Label + 1.0) * missing)}


def _huber_loss(X: Spec, Y: Spec) -> tuple[Spec, Spec]:
    return _same_shapes("X", X, "Y", Y), X


@define("huber_loss(X, Y) -> Out, Residual~", infer=_huber_loss, delta=required("float"))
def huber_loss(f: Any, Residual: Any, dOut: Any, delta: Any, dResidual: Any = None) -> Any:
    """``r * r / 2`` where ``|r| <= delta``, else ``delta * (|r| - delta / 2)``, of the residual ``r = Y - X``."""

    def number(value: float) -> Any:
        return f.fill_constant(shape=[1], dtype=int(Residual.dtype), value=value)

    bounded = f.elementwise_max(f.elementwise_min(Residual, number(delta)), number(-delta))
    gradient = dOut * bounded if dResidual is None else dOut * bounded + dResidual
    return {"X": lambda: -gradient, "Y": gradient}


def _log_loss(Predicted: Spec, Labels: Spec) -> Spec:
    return _same_shapes("Predicted", Predicted, "Labels", Labels)


@define("log_loss(Predicted, Labels) -> Loss", infer=_log_loss, epsilon=required("float"))
def log_loss(f: Any, Predicted: Any, Labels: Any, dLoss: Any, epsilon: Any) -> Any:
    """``-Labels * log(Predicted + epsilon) - (1 - Labels) * log(1 - Predicted + epsilon)`` of probabilities."""
    hit, miss = Predicted + epsilon, (1.0 + epsilon) - Predicted
    return {
        "Predicted": lambda: dLoss * ((1.0 - Labels) / miss - Labels / hit),
        "Labels": lambda: dLoss * (f.log(miss) - f.log(hit)),
    }
