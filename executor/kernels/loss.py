"""Kernels of `fluid.ops.loss`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from .elementwise import negation
from .manipulation import check_ids, check_kept_ids, kept_ids, ranges, write_wanted
from .portable import maxima_of_numbers
from .sums import sum_over
from .table import Call, OutArray, checked, fill, kernel, prepared

ZERO_PROBABILITY_LOSS = 1e20
"""The value used for the negative logarithm of 0."""


def _rows(xp: Any, axis: int, *arrays: Any) -> tuple[int, list[tuple[Any, ...]]]:
    """Views of arrays of one shape, in parts that stay in a near cache where softmax along `axis` goes row by row; and the axis
    of the views."""
    first = arrays[0]
    if axis % first.ndim != first.ndim - 1 or first.ndim < 2 or not first.size:
        return axis, [arrays]
    width = first.shape[-1]
    flat = [array.reshape(-1, array.shape[-1]) for array in arrays]
    return -1, [tuple(array[start:end] for array in flat) for start, end in ranges(xp, first.size // width, width)]


def _exponentials(
    xp: Any, scratch: Any, X: Any, out: Any, row: Any, axis: int, top: Any = None, shifted: Sequence[Call] = ()
) -> list[Call]:
    """Calls that set `out` to ``exp(X - max)``, `row` to its sums and `top` to the maxima; `shifted` are made when `out` is
    ``X - max``."""
    top = row if top is None else top
    steps: list[Call] = [maxima_of_numbers(xp, X, axis, top), partial(xp.subtract, X, top, out)]
    return [*steps, *shifted, partial(xp.exp, out, out), *_row_sums(xp, scratch, out, row, axis)]


def _row_sums(xp: Any, scratch: Any, X: Any, row: Any, axis: int) -> list[Call]:
    """Calls that sum X along `axis` into `row`."""
    return sum_over(xp, X, (axis % X.ndim,), row, scratch)


def _row_shape(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    axis %= len(shape)
    return (*shape[:axis], 1, *shape[axis + 1 :])


@prepared("softmax", inplace={"Out": "X"})
def softmax(xp: Any, scratch: Any, X: Any, axis: int, Out: Any) -> list[Call]:
    steps: list[Call] = []
    axis, parts = _rows(xp, axis, X, Out)
    for x, out in parts if X.size else ():
        row = scratch(_row_shape(x.shape, axis), X.dtype)
        steps += [*_exponentials(xp, scratch, x, out, row, axis), partial(xp.divide, out, row, out)]
    return steps


@prepared("softmax_grad")
def softmax_grad(xp: Any, scratch: Any, Out: Any, dOut: Any, axis: int, dX: Any) -> list[Call]:
    steps: list[Call] = []
    axis, parts = _rows(xp, axis, Out, dOut, dX)
    for out, d_out, d_x in parts:
        row = scratch(_row_shape(out.shape, axis), Out.dtype)
        steps += [
            partial(xp.multiply, d_out, out, d_x),
            *_row_sums(xp, scratch, d_x, row, axis),
            partial(xp.subtract, d_out, row, d_x),
            partial(xp.multiply, d_x, out, d_x),
        ]
    return steps


@prepared("log_softmax")
def log_softmax(xp: Any, scratch: Any, X: Any, axis: int, Out: Any) -> list[Call]:
    steps: list[Call] = []
    axis, parts = _rows(xp, axis, X, Out)
    for x, out in parts if X.size else ():
        row, top = (scratch(_row_shape(x.shape, axis), X.dtype) for _ in range(2))
        steps += [*_exponentials(xp, scratch, x, out, row, axis, top), partial(xp.log, row, row)]
        steps += [partial(xp.subtract, x, top, out), partial(xp.subtract, out, row, out)]
    return steps


# -------------------------------------------------------------------------------------------------------- cross entropy
def _label_places(xp: Any, shape: tuple[int, ...], axis: int) -> Any:
    """The flat index of each row's first element, in the shape of the labels; and the stride between classes."""
    axis %= len(shape)
    row_shape = _row_shape(shape, axis)
    stride = prod(shape[axis + 1 :])
    rows = xp.arange(prod(row_shape))
    return (rows // stride * (stride * shape[axis]) + rows % stride).reshape(row_shape), stride


_Labelled = tuple[Any, Any, int, int]
"""Labels, starts of rows, stride between classes, and the label to ignore: these locate the labelled elements."""


def _labelled(xp: Any, shape: tuple[int, ...], Label: Any, axis: int, ignore_index: int) -> _Labelled:
    """Locate the labelled elements, one for each row along `axis`, in arrays of one shape."""
    return (Label, *_label_places(xp, shape, axis), ignore_index)


def _find(xp: Any, labelled: _Labelled) -> tuple[Any, Any]:
    """Flat indices of the labelled elements, and the mask of labels that are not ignored."""
    label, first, stride, ignore_index = labelled
    ids, is_counted = kept_ids(xp, label, ignore_index)
    return first + (ids if stride == 1 else ids * stride), is_counted


def _get(xp: Any, labelled: _Labelled, array: Any, out: OutArray, ignored: float) -> None:
    """The labelled elements into `out`."""
    at, is_counted = _find(xp, labelled)
    xp.copyto(out, xp.where(is_counted, array.reshape(-1)[at], array.dtype.type(ignored)))


def _subtract(xp: Any, labelled: _Labelled, values: Any, array: OutArray) -> None:
    """Subtract values from the labelled elements that are not ignored."""
    at, is_counted = _find(xp, labelled)
    flat = array.reshape(-1)
    flat[at] -= xp.where(is_counted, values, values.dtype.type(0))


def _negative_log(xp: Any, probabilities: Any) -> Any:
    is_zero = probabilities == 0
    return xp.where(is_zero, probabilities.dtype.type(ZERO_PROBABILITY_LOSS), -xp.log(xp.where(is_zero, 1, probabilities)))


def _hard_losses(xp: Any, labelled: _Labelled, probabilities: Any, matched: OutArray, out: OutArray) -> None:
    _get(xp, labelled, probabilities, matched, 1.0)
    if out is not None:
        xp.copyto(out, _negative_log(xp, matched))


def _soft_losses(xp: Any, probabilities: Any, label: Any, axis: int, out: OutArray) -> None:
    xp.add.reduce(label * _negative_log(xp, probabilities), axis, None, out, True)


def _as_columns(shape: tuple[int, ...], *arrays: Any) -> list[Any]:
    """Reshape labels or losses to size 1 along the last axis of the probabilities; that axis may be missing."""
    return [None if array is None else array.reshape(*shape[:-1], 1) for array in arrays]


@checked("cross_entropy", "cross_entropy_grad")
def check_labels(xp: Any, X: Any, Label: Any, soft_label: bool, ignore_index: int) -> None:
    if not soft_label:
        check_kept_ids(xp, Label, ignore_index, X.shape[-1])


@checked("cross_entropy2")
def check_hard_labels(xp: Any, X: Any, Label: Any, ignore_index: int) -> None:
    check_kept_ids(xp, Label, ignore_index, X.shape[-1])


@checked("cross_entropy_grad2")
def check_hard_labels_back(xp: Any, Label: Any, ignore_index: int, dX: Any) -> None:
    check_kept_ids(xp, Label, ignore_index, dX.shape[-1])


@checked("softmax_with_cross_entropy")
def check_softmax_labels(xp: Any, Logits: Any, Label: Any, soft_label: bool, ignore_index: int, axis: int, Loss: Any) -> None:
    if not soft_label and Loss is not None:
        check_kept_ids(xp, Label, ignore_index, Logits.shape[axis])


@checked("softmax_with_cross_entropy_grad")
def check_softmax_labels_back(
    xp: Any, Label: Any, Softmax: Any, soft_label: bool, ignore_index: int, axis: int, dLogits: Any
) -> None:
    if not soft_label and dLogits is not None:
        check_kept_ids(xp, Label, ignore_index, Softmax.shape[axis])


@prepared("cross_entropy")
def cross_entropy(xp: Any, scratch: Any, X: Any, Label: Any, soft_label: bool, ignore_index: int, Y: Any) -> Call:
    if soft_label:
        return partial(_soft_losses, xp, X, Label, -1, Y)
    Label, Y = _as_columns(X.shape, Label, Y)
    return partial(_hard_losses, xp, _labelled(xp, X.shape, Label, -1, ignore_index), X, scratch(Y.shape, X.dtype), Y)


@prepared("cross_entropy2")
def cross_entropy2(xp: Any, scratch: Any, X: Any, Label: Any, ignore_index: int, Y: Any, MatchX: Any) -> Call:
    Label, Y, MatchX = _as_columns(X.shape, Label, Y, MatchX)
    matched = scratch(Label.shape, X.dtype) if MatchX is None else MatchX
    return partial(_hard_losses, xp, _labelled(xp, X.shape, Label, -1, ignore_index), X, matched, Y)


@prepared("cross_entropy_grad")
def cross_entropy_grad(
    xp: Any, scratch: Any, X: Any, Label: Any, dY: Any, soft_label: bool, ignore_index: int, dX: Any, dLabel: Any
) -> list[Call]:
    steps: list[Call] = []
    if soft_label:
        if dX is not None:
            steps += [partial(xp.multiply, Label, dY, dX), partial(xp.divide, dX, X, dX), negation(xp, dX, dX)]
        if dLabel is not None:
            steps += _label_gradient(xp, X, dY, dLabel)
        return steps
    Label, dY = _as_columns(X.shape, Label, dY)
    return _hard_gradient(xp, _labelled(xp, X.shape, Label, -1, ignore_index), X, dY, scratch(dY.shape, X.dtype), dX)


def _label_gradient(xp: Any, probabilities: Any, d_loss: Any, out: Any) -> list[Call]:
    """Calls for the gradient of soft labels, ``-log(probabilities) * d_loss``."""
    return [partial(xp.log, probabilities, out), partial(xp.multiply, out, d_loss, out), negation(xp, out, out)]


def _hard_gradient(xp: Any, labelled: _Labelled, probabilities: Any, d_loss: Any, row: Any, out: Any) -> list[Call]:
    """Calls for ``-d_loss / probabilities`` at the label, and 0 elsewhere; `row` is lent."""
    return [
        partial(_get, xp, labelled, probabilities, row, 1.0),
        partial(xp.divide, d_loss, row, row),
        fill(xp, out, 0),
        partial(_subtract, xp, labelled, row, out),
    ]


def _losses_unless_ignored(xp: Any, labelled: _Labelled, probabilities: Any, matched: OutArray, out: OutArray) -> None:
    _hard_losses(xp, labelled, probabilities, matched, out)
    xp.copyto(out, 0, where=~_find(xp, labelled)[1])


def _stable_losses(xp: Any, labelled: _Labelled, logits: Any, top: Any, row: OutArray, out: OutArray) -> None:
    """``log(row) - (logit of the label - top)``."""
    at, is_counted = _find(xp, labelled)
    xp.log(row, out)
    out -= logits.reshape(-1)[at] - top
    xp.copyto(out, 0, where=~is_counted)


@prepared("softmax_with_cross_entropy")
def softmax_with_cross_entropy(
    xp: Any,
    scratch: Any,
    Logits: Any,
    Label: Any,
    soft_label: bool,
    use_softmax: bool,
    ignore_index: int,
    axis: int,
    Softmax: Any,
    Loss: Any,
) -> list[Call]:
    if not Logits.size:
        return [] if Loss is None else [fill(xp, Loss, 0)]
    probabilities = Softmax if Softmax is not None else scratch(Logits.shape, Logits.dtype)
    shape = _row_shape(Logits.shape, axis)
    labelled = _labelled(xp, Logits.shape, Label, axis, ignore_index) if not soft_label else None
    if not use_softmax:
        steps: list[Call] = [] if Softmax is None else [partial(xp.copyto, Softmax, Logits)]
        if Loss is None:
            return steps
        if labelled is None:
            return [*steps, partial(_soft_losses, xp, Logits, Label, axis, Loss)]
        return [*steps, partial(_losses_unless_ignored, xp, labelled, Logits, scratch(shape, Logits.dtype), Loss)]
    row, top = scratch(shape, Logits.dtype), scratch(shape, Logits.dtype)
    picked: list[Call] = []
    if soft_label and Loss is not None:  # the labels' part of the logarithms of softmax, while the exponents are at hand
        weighted, part = scratch(Logits.shape, Logits.dtype), scratch(shape, Logits.dtype)
        picked = [partial(xp.multiply, Label, probabilities, weighted), *_row_sums(xp, scratch, weighted, part, axis)]
    steps = _exponentials(xp, scratch, Logits, probabilities, row, axis, top, picked)
    if Softmax is not None:
        steps.append(partial(xp.divide, probabilities, row, probabilities))
    if Loss is None:
        return steps
    if labelled is not None:
        return [*steps, partial(_stable_losses, xp, labelled, Logits, top, row, Loss)]
    return [
        *steps,
        *_row_sums(xp, scratch, Label, Loss, axis),
        partial(xp.log, row, row),
        partial(xp.multiply, Loss, row, Loss),
        partial(xp.subtract, Loss, part, Loss),
    ]


@prepared("softmax_with_cross_entropy_grad")
def softmax_with_cross_entropy_grad(
    xp: Any,
    scratch: Any,
    Label: Any,
    Softmax: Any,
    dLoss: Any,
    dSoftmax: Any,
    soft_label: bool,
    use_softmax: bool,
    ignore_index: int,
    axis: int,
    dLogits: Any,
    dLabel: Any,
) -> list[Call]:
    steps: list[Call] = []
    if dLabel is not None:
        steps += _label_gradient(xp, Softmax, dLoss, dLabel)
    if dLogits is None:
        return steps
    row = scratch(_row_shape(Softmax.shape, axis), Softmax.dtype)
    if soft_label:
        part = scratch(Softmax.shape, Softmax.dtype)
        steps.append(partial(xp.multiply, Label, dLoss, part))
        if use_softmax:
            steps += [
                *_row_sums(xp, scratch, part, row, axis),
                partial(xp.multiply, Softmax, row, dLogits),
                partial(xp.subtract, dLogits, part, dLogits),
            ]
        else:
            steps += [partial(xp.divide, part, Softmax, part), negation(xp, part, dLogits)]
    else:
        labelled = _labelled(xp, Softmax.shape, Label, axis, ignore_index)
        if use_softmax:
            steps.append(partial(_stable_gradient, xp, labelled, Softmax, dLoss, dLogits))
        else:
            steps += _hard_gradient(xp, labelled, Softmax, dLoss, row, dLogits)
    if dSoftmax is None:
        return steps
    through = scratch(Softmax.shape, Softmax.dtype)
    if use_softmax:
        steps += softmax_grad(xp, scratch, Softmax, dSoftmax, axis, through)
    else:
        steps.append(partial(xp.copyto, through, dSoftmax))
    return [*steps, partial(xp.add, dLogits, through, dLogits)]


def _stable_gradient(xp: Any, labelled: _Labelled, probabilities: Any, d_loss: Any, out: OutArray) -> None:
    """``(probabilities - 1 at the label) * d_loss``, with 0 for ignored labels."""
    at, is_counted = _find(xp, labelled)
    d_loss = xp.where(is_counted, d_loss, d_loss.dtype.type(0))
    xp.multiply(probabilities, d_loss, out)
    out.reshape(-1)[at] -= d_loss


# --------------------------------------------------------------------------------------------------------- other losses
@prepared("huber_loss_grad")
def huber_loss_grad(
    xp: Any, scratch: Any, Residual: Any, dOut: Any, dResidual: Any, delta: float, dX: Any, dY: Any
) -> list[Call]:
    d_y = dY if dY is not None else scratch(Residual.shape, Residual.dtype)
    steps: list[Call] = [partial(xp.clip, Residual, -delta, delta, d_y), partial(xp.multiply, d_y, dOut, d_y)]
    if dResidual is not None:
        steps.append(partial(xp.add, d_y, dResidual, d_y))
    return steps if dX is None else [*steps, negation(xp, d_y, dX)]


# -------------------------------------------------------------------------------------------------------- other losses
@checked("nll_loss")
def check_nll_loss(xp: Any, X: Any, Label: Any, ignore_index: int) -> None:
    check_kept_ids(xp, Label, ignore_index, X.shape[1])


@kernel("nll_loss")
def nll_loss(xp: Any, X: Any, Label: Any, Weight: Any, ignore_index: int, reduction: str, Out: Any, Total_weight: Any) -> None:
    ids, is_counted = kept_ids(xp, Label, ignore_index)
    weights = xp.ones(Label.shape, X.dtype) if Weight is None else Weight[ids]
    weights = xp.where(is_counted, weights, X.dtype.type(0))
    losses = -weights * xp.take_along_axis(X, ids[:, None], 1)[:, 0]
    total = weights.sum()
    if reduction == "none":
        write_wanted((Out, losses), (Total_weight, 0))
    else:
        write_wanted((Out, losses.sum() / (total if reduction == "mean" else 1)), (Total_weight, total))


@checked("bpr_loss")
def check_bpr_loss(X: Any, Label: Any) -> None:
    check_ids(Label, X.shape[-1], "bpr_loss: Label")


@kernel("modified_huber_loss")
def modified_huber_loss(xp: Any, X: Any, Y: Any, IntermediateVal: Any, Out: Any) -> None:
    a = (2 * Y - 1) * X
    write_wanted((IntermediateVal, a), (Out, xp.where(a < -1, -4 * a, xp.maximum(1 - a, 0) ** 2)))


@checked("center_loss")
def check_center_loss(Label: Any, Centers: Any) -> None:
    check_ids(Label, len(Centers), "center_loss: Label")
