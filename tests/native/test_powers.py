"""Powers of special numbers, beside numpy's and C's."""

from __future__ import annotations

import numpy as np
from beside_numpy import results_of
from checks import each

import fluid
from fluid import layers
from fluid.ir.program import Variable


@each("native", [False, True])
@each("dtype", ["float32", "float64"])
@each("factor", [-0.5, 0.5])
def test_roots_of_zero_and_infinity_have_no_sign(factor: float, dtype: str, native: bool) -> None:
    numbers = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 4.0, 0.25] * 4, dtype)
    with np.errstate(all="ignore"):
        expected = np.power(numbers, np.full(numbers.shape, factor, dtype))
        expected_sign = np.sign(1 / expected)

    def build() -> list[Variable]:
        x = fluid.data("x", [len(numbers)], dtype)
        power = layers.pow(x, factor if factor < 0 else layers.fill_constant([1], dtype, factor))
        return [power, layers.sign(1.0 / power)]

    power, sign = (results_of(build, {"x": numbers}, native)[f"fetch {number}"] for number in range(2))
    np.testing.assert_allclose(power, expected, rtol=1e-6)
    np.testing.assert_array_equal(sign, expected_sign)
