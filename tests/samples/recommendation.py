"""Samples of `fluid.ops.recommendation`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add, structural

data = Data("recommendation")
structural("test_recommendation.py", "cvm")  # its gradient is no derivative


def counted(X: Any, use_cvm: bool = True) -> Any:
    shown, clicked = np.log(X[:, :1] + 1), np.log(X[:, 1:2] + 1)
    return np.concatenate([shown, clicked - shown, X[:, 2:]], 1) if use_cvm else X[:, 2:]


LOD = ((0, 1, 4),)
X, CVM = data(4, 5, low=0.1, high=9.0), data(2, 2, high=9.0)
for used in (True, False):
    add("cvm", Sample({"X": X, "CVM": data(4, 2, high=9.0)}, {"use_cvm": used}, counted, orders=0))
    add("cvm", Sample({"X": X, "CVM": CVM}, {"use_cvm": used}, counted, orders=0, lods={"X": LOD}))
add("row_of_each", Sample({"X": CVM, "Like": X}, {}, lambda X: X[[0, 1, 1, 1]], lods={"Like": LOD}))
add("row_of_each", Sample({"X": X, "Like": X}, {}, lambda X: X))


def filtered(Ins: Any, Ins_tag: Any, Filter_tag: Any, is_lod: bool) -> Any:
    """Four instances, of rows as in INSTANCES, with tags as in TAGS."""
    rows, places = [], []
    for instance in range(4):
        start, end = INSTANCES[0][instance : instance + 2] if is_lod else (instance, instance + 1)
        if set(Ins_tag[slice(*TAGS[0][instance : instance + 2])].reshape(-1)) & set(Filter_tag):
            places.append([len(rows), start, end - start])
            rows += list(Ins[start:end])
    weights = np.ones((len(places), 1), "float32")
    if not places:
        rows, places, weights = [np.zeros_like(Ins[0])], [[0, 0, 1]], np.zeros((1, 1), "float32")
    return {"Out": np.array(rows), "LossWeight": weights, "IndexMap": np.array(places)}


INSTANCES, TAGS = ((0, 2, 3, 6, 8),), ((0, 1, 3, 4, 6),)
tags = np.array([[1], [2], [3], [2], [1], [3]])
for is_lod, rows in ((True, data(8, 3)), (False, data(4, 3))):
    lods = {"Ins": INSTANCES, "Ins_tag": TAGS} if is_lod else {"Ins_tag": TAGS}
    for wanted in ([1], [2, 3], [7]):
        inputs = {"Ins": rows, "Ins_tag": tags, "Filter_tag": np.array(wanted)}
        add("filter_by_instag", Sample(inputs, {"is_lod": is_lod}, filtered, lods=lods, shapes_by_value=True))
PLACES = {"IndexMap": np.array([[0, 2, 1], [1, 6, 2]]), "LossWeight": np.ones((2, 1), "float32"), "Like": data(3, 2)}
add("rows_of_tagged", Sample(PLACES, {}, lambda **inputs: np.array([2, 6, 7]), dtypes=["float32"]))
none = {"IndexMap": np.array([[0, 0, 1]]), "LossWeight": np.zeros((1, 1), "float32"), "Like": data(1, 2)}
add("rows_of_tagged", Sample(none, {}, lambda **inputs: np.array([-1]), dtypes=["float32"]))
