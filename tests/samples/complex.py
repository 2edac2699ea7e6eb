"""Samples of `fluid.ops.complex`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("complex")
SHAPES = ((3, 4), (), (1,), (0, 3))


def of_numbers(op_type: str, function: Any) -> None:
    for shape in SHAPES:
        add(op_type, Sample({"X": data.complex(*shape)}, {}, lambda X: np.asarray(function(X))))


of_numbers("real", np.real)
of_numbers("imag", np.imag)
of_numbers("conj", np.conj)
of_numbers("angle", np.angle)
of_numbers("as_real", lambda x: np.stack([x.real, x.imag], -1))
add("conj", Sample({"X": data(2, 3)}, {}, lambda X: X), Sample({"X": data.ints(3)}, {}, lambda X: X))
add("angle", Sample({"X": data.away(2, 3)}, {}, lambda X: np.where(X < 0, np.pi, 0).astype(X.dtype)))
for x, y in (((2, 3), (2, 3)), ((2, 3), (3,)), ((1,), (2, 1)), ((), ()), ((0, 2), (2,))):
    add("complex", Sample({"X": data(*x), "Y": data(*y)}, {}, lambda X, Y: X + 1j * Y))
for shape in ((3, 2), (2,), (0, 2), (2, 3, 2)):
    add("as_complex", Sample({"X": data(*shape)}, {}, lambda X: X[..., 0] + 1j * X[..., 1]))
