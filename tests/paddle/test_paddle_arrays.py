"""Ops of Paddle 2.x on arrays against Paddle's own numbers; golden/make_paddle_arrays.py made them."""

from __future__ import annotations

from checks import each
from paddle_numbers import PaddleNumbers

NUMBERS = PaddleNumbers("paddle_arrays.npz")


@each("number", range(len(NUMBERS.records)), ids=NUMBERS.names)
def test_outputs_and_gradients(number: int) -> None:
    NUMBERS.check(number, 1e-4, 1e-5, skipping=("MedianIndex",))  # of which Paddle leaves most as it found it
