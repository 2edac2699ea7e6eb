"""Samples of `fluid.ops.statistics`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("statistics")


def along(pick: Any) -> Any:
    """A reference of ops that pick one element along an axis; `pick` gives its place in a row."""

    def reference(X: Any, axis: int = -1, keepdim: bool = False, **attrs: Any) -> dict[str, Any]:
        if not X.ndim:
            return {"Out": X, "Indices": np.zeros((), "int64")}
        places = np.expand_dims(np.apply_along_axis(lambda row: pick(row, **attrs), axis, X), axis).astype("int64")
        out = np.take_along_axis(X, places, axis)
        return {"Out": out if keepdim else out.squeeze(axis), "Indices": places if keepdim else places.squeeze(axis)}

    return reference


def most_frequent(row: Any) -> int:
    counts = Counter(row.tolist())
    best = min(value for value, count in counts.items() if count == max(counts.values()))
    return int(np.nonzero(row == best)[0][-1])


for X in (data.distinct(2, 5), data.distinct(3), data.distinct(2, 3, 2)):
    for attrs in ({"k": 2}, {"k": 1, "axis": 0, "keepdim": True}, {"k": 2, "axis": -1, "keepdim": True}, {"k": 2, "axis": 0}):
        add("kthvalue", Sample({"X": X}, attrs, along(lambda row, k: np.argsort(row, kind="stable")[k - 1])))
        more = {name: value for name, value in attrs.items() if name != "k"}
        add(
            "mode", Sample({"X": np.round(X)}, more, along(most_frequent), orders=0), Sample({"X": X}, more, along(most_frequent))
        )
add(
    "kthvalue",
    Sample({"X": data()}, {}, along(None)),
    Sample({"X": data.ints(3, 6)}, {"k": 4}, along(lambda row, k: np.argsort(row, kind="stable")[k - 1])),
)
add("mode", Sample({"X": data()}, {}, along(None)), Sample({"X": data.ints(4, 9, high=3)}, {}, along(most_frequent)))


def median(X: Any, axis: Any = (), keepdim: bool = True) -> dict[str, Any]:
    axes = sorted(a % X.ndim for a in axis) if len(axis) else list(range(X.ndim))
    kept = [a for a in range(X.ndim) if a not in axes]
    rows = X.transpose([*kept, *axes]).reshape([X.shape[a] for a in kept] + [-1])
    out = np.nanmedian(rows, -1).astype(X.dtype)
    order, count = np.argsort(rows, -1, kind="stable"), (~np.isnan(rows)).sum(-1)
    places = np.stack(
        [np.take_along_axis(order, np.maximum(c, 0)[..., None], -1)[..., 0] for c in ((count - 1) // 2, count // 2)], -1
    )
    places = np.where(count[..., None] > 0, places, -1)
    shape = [1 if a in axes else X.shape[a] for a in range(X.ndim)] if keepdim else [X.shape[a] for a in kept]
    return {"Out": out.reshape(shape), "MedianIndex": places.reshape([*shape, 2])}


HOLES = data.distinct(3, 4)
HOLES[0, 1] = HOLES[2] = np.nan
for X in (data.distinct(3, 4), data.distinct(2, 3, 3), data.distinct(5), data.distinct()):
    for axis in ([], [0], [-1], [0, -1]):
        if len(axis) <= X.ndim and not (len(axis) == 2 and X.ndim < 2):
            for keepdim in (True, False) if X.ndim == 2 else (True,):
                add("nanmedian", Sample({"X": X}, {"axis": axis, "keepdim": keepdim}, median))
add("nanmedian", Sample({"X": HOLES}, {"axis": [1]}, median, orders=0), Sample({"X": HOLES}, {}, median, orders=0))


def found(SortedSequence: Any, Values: Any, out_int32: bool = False, right: bool = False) -> Any:
    rows = (
        np.broadcast_to(SortedSequence, (*Values.shape[:-1], SortedSequence.shape[-1]))
        if SortedSequence.ndim > 1 or Values.ndim
        else SortedSequence
    )
    reached = rows[..., None, :] <= Values[..., :, None] if right else rows[..., None, :] < Values[..., :, None]
    return reached.sum(-1).astype("int32" if out_int32 else "int64")


SORTED = np.array([-0.5, 0.0, 0.0, 0.3, 0.7])
for right in (True, False):
    attrs = {"right": right}
    add("searchsorted", Sample({"SortedSequence": SORTED, "Values": np.array([[0.0, -1, 1], [0.5, 0.7, 0.2]])}, attrs, found))
    both = {"SortedSequence": np.sort(data(2, 4), -1), "Values": data(2, 3)}
    add("searchsorted", Sample(both, {**attrs, "out_int32": True}, found))
    add("searchsorted", Sample({"SortedSequence": np.sort(data.ints(2, 3, 5)), "Values": data.ints(2, 3, 2)}, attrs, found))


def counted(X: Any, bins: int = 100, min: int = 0, max: int = 0) -> Any:
    low, high = (min, max) if min != max else (X.min(), X.max()) if X.size else (0, 0)
    low, high = (low - 1, high + 1) if low == high else (low, high)
    return np.histogram(X, bins, (low, high))[0].astype("int64")


for X in (data(3, 4, low=-2, high=2), data.ints(9, low=-3), np.ones(3), np.zeros(0)):
    for attrs in ({}, {"bins": 4, "min": -1, "max": 1}, {"bins": 3}):
        add("histogram", Sample({"X": X}, attrs, counted))


def counts(X: Any, Weights: Any = None, minlength: int = 0) -> Any:
    found = np.bincount(X, Weights, minlength)
    return found if Weights is None else found.astype(Weights.dtype if Weights.dtype.kind == "f" else "float64")


for attrs in ({}, {"minlength": 9}):
    add("bincount", Sample({"X": data.ints(7)}, attrs, counts, shapes_by_value=True))
    add("bincount", Sample({"X": data.ints(7, dtype="int32"), "Weights": data(7)}, attrs, counts, shapes_by_value=True))
    add("bincount", Sample({"X": data.ints(7), "Weights": data.ints(7)}, attrs, counts, shapes_by_value=True))
    add("bincount", Sample({"X": data.ints(0)}, attrs, counts, shapes_by_value=True))


def runs(X: Any, return_inverse: bool = False, return_counts: bool = False, axis: Any = (), dtype: int = 3) -> dict[str, Any]:
    rows = np.moveaxis(X, axis[0], 0) if axis else X.reshape(-1)
    starts = [i for i in range(len(rows)) if i == 0 or not np.array_equal(rows[i], rows[i - 1])]
    kind = "int32" if dtype == 2 else "int64"
    out = rows[starts]
    index = np.searchsorted(starts, np.arange(len(rows)), "right") - 1
    return {
        "Out": np.moveaxis(out, 0, axis[0]) if axis else out,
        **({"Index": index.astype(kind)} if return_inverse else {}),
        **({"Counts": np.diff([*starts, len(rows)]).astype(kind) if starts else np.zeros(0, kind)} if return_counts else {}),
    }


BOTH = {"return_inverse": True, "return_counts": True, "dtype": 3}
for X in (data.ints(9, high=2), data.ints(3, 4, high=2), np.array([[1.0, 1, 2], [1, 1, 2], [0, 1, 2]]), data.ints(0)):
    for attrs in (BOTH, {**BOTH, "axis": [0]}, {**BOTH, "axis": [-1], "dtype": 2}):
        add("unique_consecutive", Sample({"X": X}, attrs, runs, shapes_by_value=True))


def middle(x: Any, axis: Any = (), keepdim: bool = False, mode: str = "avg") -> Any:
    axes = tuple(sorted(each % x.ndim for each in axis)) or tuple(range(x.ndim))
    kept = [each for each in range(x.ndim) if each not in axes]
    rows = x.transpose([*kept, *axes]).reshape(int(np.prod([x.shape[each] for each in kept])), -1)
    order, size = rows.argsort(1, kind="stable"), rows.shape[1]
    places = order[:, [(size - 1) // 2, size // 2]] if mode == "avg" else order[:, [(size - 1) // 2]]
    values = np.take_along_axis(rows, places, 1).mean(1)
    shape = [1 if each in axes else n for each, n in enumerate(x.shape)] if keepdim else [x.shape[each] for each in kept]
    values[np.isnan(rows).any(1)] = np.nan
    return {"out": values.reshape(shape), "medians": places.reshape([*shape, 2] if mode == "avg" else shape)}


for attrs in ({"axis": [1]}, {"axis": [0], "mode": "min"}, {"axis": [-1, 0], "keepdim": True}, {}):
    add("median", Sample({"x": data.distinct(3, 4)}, attrs, middle))
add("median", Sample({"x": np.array([[1.0, np.nan, 2.0], [3.0, 1.0, 2.0]])}, {"axis": [1]}, middle, orders=0))
