"""Estimates what computations take on a processor, to choose among ways to compute the same."""

from __future__ import annotations

from .emitter import Type
from .target import Target

__all__ = ["fast_transform_seconds", "multiplication_seconds"]

_CYCLE = 1 / 2.45e9
_FAST_TRANSFORM = 4e-9


def multiplication_seconds(multiplications: int, element: Type, target: Target) -> float:
    """The time of a product of matrices by one thread, with two vectors per cycle at three quarters of the peak."""
    return multiplications * _CYCLE / (2 * target.vector_bytes // element.bytes * 0.75)


def fast_transform_seconds(elements: int) -> float:
    """The time of numpy's fast Fourier transforms that read this number of floats, summed over the axes."""
    return elements * _FAST_TRANSFORM
