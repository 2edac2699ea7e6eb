"""442 patients with diabetes: ten measurements each, and the progress of the disease a year later (Efron et al. 2004).

Row ``i`` is a test row if ``i % 5 == 4`` (88 rows) and a training row otherwise (354). Features are standardised with the
mean and standard deviation of the training rows; targets are as measured, from 25 to 346.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..not_here import names_here
from ._files import Part, Reader, in_part, load

__all__ = ["FEATURES", "arrays", "test", "train"]

__dir__ = names_here(__name__)

FEATURES = ("age", "sex", "bmi", "bp", "tc", "ldl", "hdl", "tch", "ltg", "glu")
"""The columns: age, sex, body mass index, blood pressure, and six measurements of blood serum."""


def arrays(part: Part = "all") -> tuple[Any, Any]:
    """``(features, targets)`` of a part: float32 ``[n, 10]``, standardised, and ``[n, 1]``.

    Args:
        part: ``"train"``, ``"test"`` or ``"all"``.

    >>> features, targets = fluid.dataset.diabetes.arrays()
    >>> features.shape, targets.shape
    ((442, 10), (442, 1))
    """
    data = load("diabetes")
    features, targets = data["features"], data["targets"]
    training = features[in_part(len(targets), "train")].astype(np.float64)
    rows = in_part(len(targets), part)
    standardised = (features[rows] - training.mean(axis=0)) / training.std(axis=0)
    return standardised.astype(np.float32), targets[rows, None]


def train() -> Reader:
    """Creates a reader of the training rows: pairs of float32 ``[10]`` and float32 ``[1]``.

    >>> features, target = next(fluid.dataset.diabetes.train()())
    >>> features.shape, target.shape
    ((10,), (1,))
    """
    return _reader("train")


def test() -> Reader:
    """Creates a reader of the test rows: pairs of float32 ``[10]`` and float32 ``[1]``.

    >>> sum(1 for row in fluid.dataset.diabetes.test()())
    88
    """
    return _reader("test")


def _reader(part: Part) -> Reader:
    def read() -> Iterator[tuple[Any, Any]]:
        yield from zip(*arrays(part), strict=True)

    return read
