"""Divides a tensor among workers: each holds a part, and all parts have one shape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Division(ABC):
    """A tensor that is divided among workers.

    Args:
        shape: of the tensor.
        workers: how many hold a part.
    """

    shape: tuple[int, ...]
    workers: int

    @property
    @abstractmethod
    def part_shape(self) -> tuple[int, ...]:
        """The shape of each part."""

    def part(self, tensor: Any, worker: int) -> Any:
        """The part of a worker; zeros fill up the last parts."""
        part = np.empty(self.part_shape, tensor.dtype)
        self.take_part(tensor, worker, part)
        return part

    @abstractmethod
    def take_part(self, tensor: Any, worker: int, out: Any) -> None:
        """Write the part of a worker into `out`."""

    @abstractmethod
    def join(self, parts: Sequence[Any]) -> Any:
        """The tensor that has these parts, in the order of the workers."""


class RowDivision(Division):
    """Worker `w` holds the rows ``w``, ``w + workers``, ``w + 2 * workers`` and so on.

    Neighbouring rows lie on different workers, as the most frequent ids are often neighbours.
    """

    @property
    def part_shape(self) -> tuple[int, ...]:
        return (-(-self.shape[0] // self.workers), *self.shape[1:])

    def take_part(self, tensor: Any, worker: int, out: Any) -> None:
        _fill(out, tensor[worker :: self.workers])

    def join(self, parts: Sequence[Any]) -> Any:
        tensor = np.empty(self.shape, parts[0].dtype)
        for worker, part in enumerate(parts):
            rows = tensor[worker :: self.workers]
            rows[...] = part[: len(rows)]
        return tensor


class FlatDivision(Division):
    """Worker `w` holds the `w`-th of equal slices of the elements in one dimension."""

    @property
    def part_shape(self) -> tuple[int, ...]:
        return (-(-prod(self.shape) // self.workers),)

    def take_part(self, tensor: Any, worker: int, out: Any) -> None:
        (size,) = self.part_shape
        _fill(out, tensor.reshape(-1)[worker * size : (worker + 1) * size])

    def join(self, parts: Sequence[Any]) -> Any:
        return np.concatenate(parts)[: prod(self.shape)].reshape(self.shape)


def _fill(out: Any, rows: Any) -> None:
    out[: len(rows)] = rows
    out[len(rows) :] = 0
