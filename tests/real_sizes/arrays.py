"""Arrays by the name of their maker, so that a failing program can be printed with its feeds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["MAKERS", "Fed", "bools", "grown", "integers", "normal", "uniform", "values"]


def normal(seed: int, shape: Sequence[int], dtype: str, scale: float = 1.0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def uniform(seed: int, shape: Sequence[int], dtype: str, low: float, high: float) -> Any:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def integers(seed: int, shape: Sequence[int], dtype: str, low: int, high: int) -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def bools(seed: int, shape: Sequence[int]) -> Any:
    return np.random.default_rng(seed).random(shape) < 0.5


def values(numbers: Any, shape: Sequence[int], dtype: str) -> Any:
    return np.array(numbers, dtype).reshape(shape)


def grown(seed: int, numbers: Any, shape: Sequence[int], dtype: str, sizes: Sequence[Sequence[int]]) -> Any:
    """An array that is stretched along axes: new floats lie between neighbours, other elements are repeated."""
    array, rng = np.array(numbers, dtype).reshape(shape), np.random.default_rng(seed)
    for axis, size in sizes:
        first, second = (rng.integers(0, array.shape[axis], size) for _ in range(2))
        part = rng.random(size).reshape([-1 if place == axis else 1 for place in range(array.ndim)])
        low, high = np.take(array, first, axis), np.take(array, second, axis)
        array = (low * part + high * (1 - part)).astype(dtype) if array.dtype.kind in "fc" else low
    return array


def repeated(numbers: Any, shape: Sequence[int], dtype: str, times: int) -> Any:
    """An array many times, one after the other."""
    return np.concatenate([np.array(numbers, dtype).reshape(shape)] * times)


MAKERS: dict[str, Callable[..., Any]] = {
    make.__name__: make for make in (normal, uniform, integers, bools, values, grown, repeated)
}


@dataclass(frozen=True)
class Fed:
    """The value of a feed: a maker of arrays and its arguments.

    Attributes:
        lod: offsets of the sequences that rows form, level by level.
    """

    maker: str
    arguments: tuple[Any, ...]
    lod: tuple[tuple[int, ...], ...] = ()

    def array(self) -> Any:
        return MAKERS[self.maker](*self.arguments)

    def next_one(self) -> Fed:
        """The feed of the next step: new random numbers of the same kind."""
        if self.maker in ("values", "repeated", "grown"):
            return self
        return Fed(self.maker, (self.arguments[0] + 1, *self.arguments[1:]), self.lod)

    def __str__(self) -> str:
        text = f"{self.maker}({', '.join(map(repr, self.arguments))})"
        return f"({text}, {[list(level) for level in self.lod]})" if self.lod else text


def sources_of(makers: set[str]) -> str:
    """The text of makers of arrays."""
    return "\n\n".join(inspect.getsource(MAKERS[name]) for name in MAKERS if name in makers)
