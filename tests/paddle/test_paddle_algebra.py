"""Complex numbers, Fourier transforms, linear algebra against Paddle's own numbers; golden/make_paddle_algebra.py made them."""

from __future__ import annotations

from checks import each
from paddle_numbers import PaddleNumbers

NUMBERS = PaddleNumbers("paddle_algebra.npz")
TURNED = ("eig", "eigh", "eigvalsh", "qr", "svd")
"""Whose vectors may have other signs."""


@each("number", range(len(NUMBERS.records)), ids=NUMBERS.names)
def test_outputs_and_gradients(number: int) -> None:
    NUMBERS.check(number, 1e-4, 1e-5, signed=NUMBERS.records[number]["type"] not in TURNED)
