"""Samples of `fluid.ops.metric`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("metric")


def accuracy(Out: Any, Indices: Any, Label: Any) -> Any:
    hits = int((Indices == Label).any(1).sum())
    return {"Accuracy": np.float32([hits / len(Label)]), "Correct": np.int32([hits]), "Total": np.int32([len(Label)])}


for k in (1, 3):
    indices = np.argsort(data(6, 5), 1)[:, :k].copy()
    add("accuracy", Sample({"Out": data(6, k), "Indices": indices, "Label": data.ints(6, 1)}, {}, accuracy, dtypes=["float32"]))
