"""Losses by labels. Comparisons select the labelled elements, without a gather, so that rows can lie on different devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax

from ..kernels import loss as common
from .arrays import Array, wrap
from .kernels import kernel


def _labelled(xp: Any, shape: tuple[int, ...], Label: Array, axis: int, ignore_index: int) -> tuple[Array, Array]:
    """Masks of the labelled elements along an axis, and of the labels that count (in the shape of the losses)."""
    axis %= len(shape)
    label = Label.reshape(*shape[:axis], 1, *shape[axis + 1 :])
    places = wrap(lax.broadcasted_iota(label.dtype, shape, axis))
    is_counted = label != ignore_index
    return (places == xp.clip(label, 0, shape[axis] - 1)) & is_counted, is_counted


def _picked(xp: Any, is_labelled: Array, values: Any, axis: int) -> Any:
    """Pick the labelled elements; the axis gets size 1. Without a label, the result is 0."""
    return xp.sum(xp.where(is_labelled, values, 0), axis, values.dtype, keepdims=True)


def _run(kernel: Callable[..., Any], xp: Any, *args: Any) -> None:
    """Run a numpy kernel that returns calls."""
    calls = kernel(xp, xp.empty, *args)
    for call in calls if isinstance(calls, list) else [calls]:
        call()


@kernel("softmax_with_cross_entropy")
def softmax_with_cross_entropy(
    xp: Any,
    Logits: Array,
    Label: Array,
    soft_label: bool,
    use_softmax: bool,
    ignore_index: int,
    axis: int,
    Softmax: Any,
    Loss: Any,
) -> None:
    if soft_label or not use_softmax or Loss is None or not Logits.size:
        _run(
            common.softmax_with_cross_entropy,
            *(xp, Logits, Label, soft_label, use_softmax, ignore_index, axis, Softmax, Loss),
        )
        return
    is_labelled, is_counted = _labelled(xp, Logits.shape, Label, axis, ignore_index)
    shifted = Logits - xp.fmax.reduce(Logits, axis, keepdims=True)
    exponentials = xp.exp(shifted)
    row = xp.sum(exponentials, axis, keepdims=True)
    if Softmax is not None:
        xp.divide(exponentials, row, out=Softmax)
    Loss.reshape(is_counted.shape)[...] = xp.where(is_counted, xp.log(row) - _picked(xp, is_labelled, shifted, axis), 0)


@kernel("softmax_with_cross_entropy_grad")
def softmax_with_cross_entropy_grad(
    xp: Any,
    Label: Array,
    Softmax: Array,
    dLoss: Array,
    dSoftmax: Any,
    soft_label: bool,
    use_softmax: bool,
    ignore_index: int,
    axis: int,
    dLogits: Any,
    dLabel: Any,
) -> None:
    if soft_label or not use_softmax or dSoftmax is not None or dLogits is None:
        _run(
            common.softmax_with_cross_entropy_grad,
            *(xp, Label, Softmax, dLoss, dSoftmax, soft_label, use_softmax, ignore_index, axis, dLogits, dLabel),
        )
        return
    is_labelled, is_counted = _labelled(xp, Softmax.shape, Label, axis, ignore_index)
    d_loss = xp.where(is_counted, dLoss.reshape(is_counted.shape), 0)
    xp.multiply(Softmax - is_labelled.astype(Softmax.dtype), d_loss, out=dLogits)


def _hard_loss(xp: Any, X: Array, Label: Array, ignore_index: int) -> tuple[Any, Any]:
    """The labelled probabilities (1 for ignored labels), and their losses."""
    is_labelled, is_counted = _labelled(xp, X.shape, Label, -1, ignore_index)
    matched = xp.where(is_counted, _picked(xp, is_labelled, X, -1), 1)
    is_zero = matched == 0
    return matched, xp.where(is_zero, common.ZERO_PROBABILITY_LOSS, -xp.log(xp.where(is_zero, 1, matched)))


@kernel("cross_entropy")
def cross_entropy(xp: Any, X: Array, Label: Array, soft_label: bool, ignore_index: int, Y: Any) -> None:
    if soft_label:
        _run(common.cross_entropy, xp, X, Label, soft_label, ignore_index, Y)
    else:
        xp.copyto(Y, _hard_loss(xp, X, Label, ignore_index)[1].reshape(Y.shape))


@kernel("cross_entropy2")
def cross_entropy2(xp: Any, X: Array, Label: Array, ignore_index: int, Y: Any, MatchX: Any) -> None:
    matched, losses = _hard_loss(xp, X, Label, ignore_index)
    for out, value in ((Y, losses), (MatchX, matched)):
        if out is not None:
            xp.copyto(out, value.reshape(out.shape))


@kernel("cross_entropy_grad")
def cross_entropy_grad(
    xp: Any, X: Array, Label: Array, dY: Array, soft_label: bool, ignore_index: int, dX: Any, dLabel: Any
) -> None:
    if soft_label:
        _run(common.cross_entropy_grad, xp, X, Label, dY, soft_label, ignore_index, dX, dLabel)
        return
    is_labelled, _ = _labelled(xp, X.shape, Label, -1, ignore_index)
    d_loss = dY.reshape(*X.shape[:-1], 1)
    xp.copyto(dX, xp.where(is_labelled, -d_loss / xp.where(is_labelled, X, 1), 0))
