"""Kernels of `fluid.ops.metric`."""

from __future__ import annotations

from typing import Any

from .manipulation import numbers, place_into
from .table import kernel

_FULL_SORT = 256
"""Up to this many elements a row is sorted, which leaves equal elements in order; of longer ones, first k are set apart."""


def _order(xp: Any, keys: Any, k: int) -> Any:
    """Where the k smallest keys along the last axis are, in order."""
    count = keys.shape[-1]
    if k == 1:
        return keys.argmin(-1)[..., None]
    if count <= _FULL_SORT or 2 * k >= count:
        return keys.argsort(-1, kind="stable")[..., :k]
    found = xp.sort(xp.argpartition(keys, k - 1, -1)[..., :k], -1)
    return xp.take_along_axis(found, xp.take_along_axis(keys, found, -1).argsort(-1, kind="stable"), -1)


def _top_k(xp: Any, X: Any, k: int, axis: int, largest: bool, out: Any, indices: Any) -> Any:
    rows = xp.moveaxis(X, axis, -1)
    keys = rows if not largest else -rows if X.dtype.kind == "f" else ~rows
    found = xp.moveaxis(_order(xp, keys, k), -1, axis)
    values = xp.take_along_axis(X, found, axis)
    if indices is not None:
        xp.copyto(indices, found)
    if out is not None:
        xp.copyto(out, values)
    return values, found.astype(xp.int64)


@kernel("top_k")
def top_k(xp: Any, X: Any, K: Any, k: int, Out: Any, Indices: Any) -> Any:
    return _top_k(xp, X, numbers(K, None, [k])[0], -1, True, Out, Indices)


@kernel("top_k_v2")
def top_k_v2(xp: Any, X: Any, K: Any, k: int, axis: int, largest: bool, Out: Any, Indices: Any) -> Any:
    return _top_k(xp, X, numbers(K, None, [k])[0], axis, largest, Out, Indices)


@kernel("top_k_grad")
def top_k_grad(xp: Any, Indices: Any, dOut: Any, dX: Any) -> None:
    place_into(xp, dOut, Indices, -1, -1, dX)


@kernel("top_k_v2_grad")
def top_k_v2_grad(xp: Any, Indices: Any, dOut: Any, axis: int, dX: Any) -> None:
    place_into(xp, dOut, Indices, axis, -1, dX)


@kernel("accuracy")
def accuracy(xp: Any, Indices: Any, Label: Any, Accuracy: Any, Correct: Any, Total: Any) -> None:
    correct = (Indices == Label.reshape(-1, 1)).any(1).sum()
    total = len(Indices)
    for out, value in ((Accuracy, correct / max(total, 1)), (Correct, correct), (Total, total)):
        if out is not None:
            out[...] = value
