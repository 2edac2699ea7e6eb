"""Batches of the samples that an iterator yields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from ..errors import ProgramError, shown

_Sample = TypeVar("_Sample")


def checked_size(batch_size: Any) -> int:
    """Check that a value is a batch size, else raise a `ProgramError`."""
    if not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size < 1:
        raise ProgramError(f"batch_size should be a number of samples, at least 1, not {shown(batch_size)}")
    return int(batch_size)


def batches_of(samples: Iterable[_Sample], size: int, drop_last: bool = False) -> Iterator[list[_Sample]]:
    """Lists of `size` samples, at least 1; the last one may be shorter, unless `drop_last`."""
    iterator = iter(samples)
    while batch := list(islice(iterator, size)):
        if len(batch) == size or not drop_last:
            yield batch
