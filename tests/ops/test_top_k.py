"""The largest of long rows: of equal ones the first, and NaNs last, as a stable sort has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from checks import each

from fluid.executor.binding.compiled import apply_op

DRAWN = {
    "different": lambda draws, shape: draws.standard_normal(shape),
    "many equal": lambda draws, shape: draws.integers(-3, 3, shape),
    "some equal": lambda draws, shape: draws.integers(-2000, 2000, shape),
    "few NaNs": lambda draws, shape: np.where(draws.random(shape) < 0.01, np.nan, draws.standard_normal(shape)),
    "nearly all NaN": lambda draws, shape: np.where(draws.random(shape) < 0.995, np.nan, draws.standard_normal(shape)),
    "infinities": lambda draws, shape: draws.choice([np.inf, -np.inf, 0.0, 1.0], shape, p=[0.001, 0.1, 0.4, 0.499]),
}


@each("name", DRAWN)
@each("shape, k", [((2, 9001), 20), ((40, 700), 5), ((1, 20_000), 90), ((3, 2, 4099), 2)])
def test_the_largest_of_long_rows(name: str, shape: Any, k: int) -> None:
    drawn = DRAWN[name](np.random.default_rng(0), shape)
    for dtype in ("float32", "float64", *(("int32", "int64") if "equal" in name else ())):
        x = drawn.astype(dtype)
        results = apply_op("top_k", {"X": x}, {"k": k})
        places = (-x).argsort(-1, kind="stable")[..., :k]
        np.testing.assert_array_equal(results["Indices"], places)
        np.testing.assert_array_equal(results["Out"], np.take_along_axis(x, places, -1))
