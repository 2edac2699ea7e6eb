"""The sequences of the feeds of a run, and the indices that follow from their offsets."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from fluid.values.spec import Lod, Spec
from fluid.values.types import VarType

from ..backend import Request

__all__ = [
    "Extent", "Index", "SequenceBatch", "batch_of", "capacity_of", "countdown_of", "divisors_of", "filled", "number_of_rows",
    "offsets_of", "places_of", "roots_of", "zeros_of",
]  # fmt: skip

_PARTS = 4
"""The number of capacities from one power of two to the next: more of them mean fewer padding rows, and more plans. Feeds with
different sequences share them, since there are plans for each combination of their capacities."""
_LEAST = 8
"""Capacities are multiples of this number."""


def capacity_of(rows: int, lods: int = 1) -> int:
    """The number of rows, padding included, for a number of rows; `lods` is the number of different LoDs in the batch."""
    part = max((1 << (rows - 1).bit_length()) // (2 * max(_PARTS // lods, 1)), _LEAST)
    return -(-rows // part) * part


@dataclass(frozen=True)
class SequenceBatch:
    """The sequences of the feeds of a run.

    Attributes:
        groups: name of a feed -> the number of its LoD; feeds with equal LoDs share one.
        lods: the LoDs.
        sizes: for each LoD, the number of sequences, and the capacity.
        specs: the specs of the feeds with their padding, without LoDs.
    """

    groups: Mapping[str, int]
    lods: Sequence[Lod]
    sizes: tuple[tuple[int, int], ...]
    specs: Mapping[str, Spec]

    @property
    def key(self) -> Hashable:
        """What a plan for such batches depends on."""
        return (*self.groups.items(), *self.sizes, *self.specs.items())

    @property
    def division(self) -> Hashable:
        """Which feeds hold sequences, and which of these hold the same."""
        return tuple(self.groups.items())


def batch_of(request: Request) -> SequenceBatch | None:
    """The sequences of a request; None if a list is fed, or sequences of sequences, or no rows."""
    groups: dict[str, int] = {}
    lods: list[Lod] = []
    if len(request.specs) < len(request.feeds):
        return None
    fed = dict(sorted(request.specs.items()))
    for name, spec in fed.items():
        if not spec.lod:
            continue
        if len(spec.lod) > 1 or not spec.shape[0] or len(spec.lod[0] or ()) < 2:
            return None
        if spec.lod not in lods:
            lods.append(spec.lod)
        groups[name] = lods.index(spec.lod)
    sizes = tuple((len(lod[0] or ()) - 1, capacity_of(_rows_of(lod), len(lods))) for lod in lods)
    specs = {name: Spec((sizes[group][1], *fed[name].shape[1:]), fed[name].dtype) for name, group in groups.items()}
    return SequenceBatch(groups, lods, sizes, {**fed, **specs})


def _rows_of(lod: Lod) -> int:
    assert lod[0] is not None
    return lod[0][-1]


# ------------------------------------------------------------------------------------------------------------ indices
class Extent(Enum):
    """What an index has numbers for."""

    ROWS = "each row"
    SEQUENCES = "each sequence"
    OFFSETS = "each end of a sequence"
    BATCH = "the batch"


@dataclass(frozen=True)
class Index:
    """Numbers that follow from the offsets of sequences; they are fed.

    Attributes:
        group: the number of the LoD.
        compute: from the offsets to the numbers.
        extent: what there are numbers for.
        padding: the number in padding rows; None for the numbers of the first row.
        dtype: the element type.
        width: the numbers of a row; 0 for one in an array of one dimension.
        arguments: further arguments of `compute`.
    """

    group: int
    compute: Callable[..., Any]
    extent: Extent = Extent.ROWS
    padding: int | None = -1
    dtype: VarType = VarType.INT64
    width: int = 0
    arguments: tuple[Any, ...] = ()

    def spec(self, count: int, capacity: int) -> Spec:
        """The spec of the index for a number of sequences and a capacity."""
        lengths = {Extent.ROWS: capacity, Extent.SEQUENCES: count, Extent.OFFSETS: count + 1, Extent.BATCH: 1}
        return Spec((lengths[self.extent], *([self.width] if self.width else [])), self.dtype)

    def array(self, offsets: Any, capacity: int) -> Any:
        """The array to feed."""
        numbers = np.asarray(self.compute(offsets, *self.arguments), self.dtype.numpy)
        if self.extent is not Extent.ROWS:
            return numbers
        return filled(numbers, capacity, numbers[0] if self.padding is None else self.padding)


def filled(array: Any, capacity: int, padding: Any) -> Any:
    """An array with further rows, up to a capacity."""
    result = np.empty((capacity, *array.shape[1:]), array.dtype)
    result[: len(array)] = array
    result[len(array) :] = padding
    return result


def divisors_of(offsets: Any) -> Any:
    """The lengths of sequences, 1 for empty ones."""
    return np.maximum(np.diff(offsets), 1)


def roots_of(offsets: Any) -> Any:
    return np.sqrt(divisors_of(offsets))


def countdown_of(offsets: Any) -> Any:
    """For each row, how many rows there are from it on."""
    return np.arange(offsets[-1], 0, -1)[:, None]


def places_of(offsets: Any) -> Any:
    return np.arange(offsets[-1])


def zeros_of(offsets: Any) -> Any:
    return np.zeros(offsets[-1], np.int64)


def offsets_of(offsets: Any) -> Any:
    return offsets


def number_of_rows(offsets: Any, factor: int) -> Any:
    """The number of real rows times a factor."""
    return [offsets[-1] * factor]
