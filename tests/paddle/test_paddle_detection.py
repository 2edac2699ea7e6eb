"""Ops of object detection against Paddle's numbers; golden/make_paddle_detection.py made them."""

from __future__ import annotations

from checks import each
from paddle_numbers import PaddleNumbers

PADDLE = PaddleNumbers("paddle_detection.npz")


@each("number", range(len(PADDLE.records)), ids=PADDLE.names)
def test_values_and_gradients(number: int) -> None:
    PADDLE.check(number)
