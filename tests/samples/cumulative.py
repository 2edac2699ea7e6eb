"""Samples of `fluid.ops.cumulative`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("cumulative")


def product(X: Any, dim: int) -> Any:
    return np.cumprod(X, dim).astype(X.dtype) if X.ndim else X


WITH_ZEROS = np.array([[2.0, 0, 3, 0.5], [1, 2, 0, 0], [0, 3, 1, 2], [1, -2, 3, 2]])
for X in (data(2, 3, 2), data(4), data(), data(0, 3), data(3, 0), WITH_ZEROS, data.ints(3, 2, low=1)):
    for dim in (0, -1) if X.ndim != 1 else (0,):
        add("cumprod", Sample({"X": X}, {"dim": dim}, product))
add("cumprod", Sample({"X": data(2, 3, 2)}, {"dim": 1}, product))


def extreme(best: Any) -> Any:
    def reference(x: Any, axis: int = -1, dtype: int = 3) -> dict[str, Any]:
        values = np.moveaxis(x, axis, 0) if x.ndim else x.reshape(1)
        out, places = values.copy(), np.zeros(values.shape, "int64")
        for row in range(1, len(values)):
            keep = ~best(values[row], out[row - 1])
            out[row] = np.where(keep, out[row - 1], values[row])
            places[row] = np.where(keep, places[row - 1], row)
        kind = "int32" if dtype == 2 else "int64"
        back = (lambda a: np.moveaxis(a, 0, axis)) if x.ndim else (lambda a: a.reshape(()))
        return {"out": back(out), "indices": back(places).astype(kind)}

    return reference


for op_type, best in (
    ("cummax", lambda new, old: (new >= old) | np.isnan(new)),
    ("cummin", lambda new, old: (new <= old) | np.isnan(new)),
):
    for x in (data.distinct(2, 5), data.distinct(4), data(), data(0, 3), data.distinct(2, 3, 2)):
        for attrs in ({}, {"axis": 0, "dtype": 2}):
            add(op_type, Sample({"x": x}, attrs, extreme(best)))
    add(op_type, Sample({"x": data.ints(3, 6)}, {}, extreme(best)))
    add(op_type, Sample({"x": np.array([1.0, 3, np.nan, 5, 2])}, {}, extreme(best), orders=0))


def of_exponentials(X: Any, axis: int = -1, flatten: bool = False, exclusive: bool = False, reverse: bool = False) -> Any:
    x = X.reshape(-1) if flatten or not X.ndim else np.moveaxis(X, axis, 0)
    x = x[::-1] if reverse else x
    out = np.full_like(x, -np.inf)
    for row in range(len(x)):
        part = x[:row] if exclusive else x[: row + 1]
        if len(part):
            top = part.max(0)
            out[row] = np.log(np.exp(part - top).sum(0)) + top
    out = out[::-1] if reverse else out
    return out.reshape(()) if not X.ndim and not flatten else out if flatten or not X.ndim else np.moveaxis(out, 0, axis)


for attrs in ({}, {"axis": 0}, {"flatten": True}, {"reverse": True}, {"reverse": True, "axis": 0}):
    for X in (data(2, 5), data(3), data(), data(2, 0)):
        add("logcumsumexp", Sample({"X": X}, attrs, of_exponentials))
for attrs in ({"exclusive": True}, {"exclusive": True, "reverse": True, "axis": 0}):
    add("logcumsumexp", Sample({"X": data(2, 5)}, attrs, of_exponentials, orders=0))
add("logcumsumexp", Sample({"X": np.array([-1000.0, 900, 1000, -5, 1001])}, {}, of_exponentials))
