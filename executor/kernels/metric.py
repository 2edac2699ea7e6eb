"""Kernels of `fluid.ops.metric`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.errors import ExecutionError

from .manipulation import check_ids, check_kept_ids, numbers, write_wanted
from .sorting import stable_order, take_along_last
from .table import checked, kernel

_FULL_SORT = 256
"""Up to this many elements a row is sorted, which leaves equal elements in order; of longer ones, first k are set apart."""
_FEWEST_GROUPED = 1 << 14
"""The fewest keys whose least are found by groups: the first 20 of 50,000 keys in 16 rows take 0.5 ms by groups and 1.5 ms by a
partition, the first 4 of 1,000 keys in 4 rows 0.027 and 0.018 ms."""


def _order(xp: Any, keys: Any, k: int) -> Any:
    """The indices of the k smallest keys along the last axis, in order."""
    count = keys.shape[-1]
    if k == 1:
        return keys.argmin(-1)[..., None]
    if count <= _FULL_SORT or 2 * k >= count:
        return stable_order(xp, keys)[..., :k]
    is_grouped = xp is np and keys.dtype.kind in "fiu" and keys.size >= _FEWEST_GROUPED
    if is_grouped and (places := _least_by_groups(keys, k)) is not None:
        return places
    places = xp.sort(xp.argpartition(keys, k - 1, -1)[..., :k], -1)
    if xp is np:  # others take the first of equal ones
        _take_first(keys, places)
    return take_along_last(xp, places, stable_order(xp, take_along_last(xp, keys, places)))


def _least_by_groups(keys: Any, k: int) -> Any:
    """`_order` by the least keys of groups; None if too many keys are equal, or too few are numbers.

    At least k groups have a key up to the limit, the k-th of their least keys. So the k smallest keys are up to it, and in
    most arrays few others.
    """
    count = keys.shape[-1]
    rows = keys.reshape(-1, count)
    size = max(round((count / k) ** 0.5) // 2, 2)
    groups = count // size
    least = np.minimum.reduce(rows[:, : groups * size].reshape(len(rows), size, groups), 1)
    least = np.concatenate([least, rows[:, groups * size :]], 1)
    if k > least.shape[1]:
        return None
    hits = np.flatnonzero(rows <= np.partition(least, k - 1, -1)[:, k - 1 : k])
    row, column = np.divmod(hits, count)
    counts = np.bincount(row, minlength=len(rows))
    if counts.min() < k or counts.max() > max(8 * k, 64):
        return None
    most = np.inf if keys.dtype.kind == "f" else np.iinfo(keys.dtype).max
    candidates, places = np.full((len(rows), counts.max()), most, keys.dtype), np.zeros((len(rows), counts.max()), np.intp)
    at = row, np.arange(len(hits)) - (counts.cumsum() - counts)[row]
    candidates[at], places[at] = rows[row, column], column
    return take_along_last(np, places, stable_order(np, candidates)[:, :k]).reshape(*keys.shape[:-1], k)


def _take_first(keys: Any, places: Any) -> None:
    """Of equal keys, and of NaNs, take those at the first places.

    Args:
        places: of the k smallest keys of each row; changed in place.
    """
    k = places.shape[-1]
    limit = np.take_along_axis(keys, places, -1).max(-1, keepdims=True)
    if (is_nan := (limit != limit)[..., 0]).any():
        places[is_nan] = stable_order(np, keys[is_nan])[:, :k]
    has_more = np.count_nonzero(keys <= limit, -1) > k
    if has_more.any():
        rows, limits = keys[has_more], limit[has_more]
        is_taken, is_last = rows < limits, rows == limits
        room = k - np.count_nonzero(is_taken, -1)[:, None]
        is_taken |= is_last & (is_last.cumsum(-1, dtype=np.int32) <= room)
        places[has_more] = is_taken.nonzero()[-1].reshape(-1, k)


def _top_k(xp: Any, X: Any, k: int, axis: int, largest: bool, out: Any, indices: Any) -> Any:
    rows = xp.moveaxis(X, axis, -1)
    keys = rows if not largest else -rows if X.dtype.kind == "f" else ~rows
    order = _order(xp, keys, k)
    places, values = (xp.moveaxis(array, -1, axis) for array in (order, take_along_last(xp, rows, order)))
    write_wanted((indices, places), (out, values))
    return values, places.astype(xp.int64)


@kernel("top_k")
def top_k(xp: Any, X: Any, K: Any, k: int, Out: Any, Indices: Any) -> Any:
    return _top_k(xp, X, numbers(K, None, [k])[0], -1, True, Out, Indices)


@kernel("top_k_v2")
def top_k_v2(xp: Any, X: Any, K: Any, k: int, axis: int, largest: bool, Out: Any, Indices: Any) -> Any:
    return _top_k(xp, X, numbers(K, None, [k])[0], axis, largest, Out, Indices)


@checked("top_k_grad")
def check_top_k_grad(xp: Any, Indices: Any, dX: Any) -> None:
    check_kept_ids(xp, Indices, -1, dX.shape[-1])


@checked("top_k_v2_grad")
def check_top_k_v2_grad(xp: Any, Indices: Any, axis: int, dX: Any) -> None:
    check_kept_ids(xp, Indices, -1, dX.shape[axis])


@kernel("accuracy")
def accuracy(Indices: Any, Label: Any, Accuracy: Any, Correct: Any, Total: Any) -> None:
    correct = (Indices == Label.reshape(-1, 1)).any(1).sum()
    total = len(Indices)
    write_wanted((Accuracy, correct / max(total, 1)), (Correct, correct), (Total, total))


def _area(xp: Any, positive: Any, negative: Any) -> Any:
    """The area under the ROC curve of counts by prediction, by trapezoids."""
    hits, misses = (xp.cumsum(counts[::-1].astype("float64")) for counts in (positive, negative))
    before = xp.concatenate([xp.zeros(1), hits[:-1]])
    area = (negative[::-1] * (hits + before)).sum() / 2
    total = hits[-1] * misses[-1]
    return xp.where(total > 0, area / xp.where(total > 0, total, 1), area)


@checked("auc")
def check_auc(Predict: Any) -> None:
    predictions = Predict[:, -1]
    if predictions.size and not (float(predictions.min()) >= 0 and float(predictions.max()) <= 1):
        low, high = predictions.min(), predictions.max()
        raise ExecutionError(f"auc: predictions should be in [0, 1]; there are some from {low} to {high}")


@kernel("auc")
def auc(
    xp: Any,
    Predict: Any,
    Label: Any,
    StatPos: Any,
    StatNeg: Any,
    InsTagWeight: Any,
    num_thresholds: int,
    slide_steps: int,
    AUC: Any,
    StatPosOut: Any,
    StatNegOut: Any,
) -> None:
    predictions, labels, bins = Predict[:, -1], Label.reshape(-1) != 0, num_thresholds + 1
    places = (predictions * num_thresholds).astype("int64")
    weights = xp.ones(len(places), "int64") if InsTagWeight is None else InsTagWeight.reshape(-1).astype("int64")
    sums = []
    for stat, out, chosen in ((StatPos, StatPosOut, labels), (StatNeg, StatNegOut, ~labels)):
        counts = stat.reshape(-1).copy()
        new = xp.zeros(bins, counts.dtype)
        xp.add.at(new, places, xp.where(chosen, weights, 0))
        if slide_steps:
            batch = counts[-1] % slide_steps * bins + xp.arange(bins)
            total = counts[slide_steps * bins : (slide_steps + 1) * bins]
            total += new - counts[batch]
            counts[batch] = new
            counts[-1] += 1
        else:
            total = counts
            total += new
        sums.append(total)
        if out is not None:
            xp.copyto(out, counts.reshape(out.shape))
    if AUC is not None:
        AUC[...] = _area(xp, *sums)


@checked("mean_iou")
def check_mean_iou(Predictions: Any, Labels: Any, num_classes: int) -> None:
    check_ids(Predictions, num_classes, "mean_iou: Predictions")
    check_ids(Labels, num_classes, "mean_iou: Labels")


@checked("precision_recall")
def check_precision_recall(Indices: Any, Labels: Any, class_number: int) -> None:
    check_ids(Indices, class_number, "Indices")
    check_ids(Labels, class_number, "Labels")
