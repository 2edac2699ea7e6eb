"""Arrays that workers reduce together, and how they are reduced on one worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..values.bfloat16 import to_bfloat16, to_float32
from ..values.types import BFLOAT16

_UFUNCS: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
_BLOCK = 1 << 15
"""Elements that are reduced at once, so that intermediate results stay in the cache."""


class Parcel(NamedTuple):
    """Arrays that travel as one.

    Attributes:
        arrays: C-contiguous arrays of one element type.
        kind: ``"sum"``, ``"max"``, ``"min"`` or ``"prod"``.
        sent_as: the element type that travels.
        computed_in: the element type that reductions compute in: float32 for halves.
    """

    arrays: Sequence[Any]
    kind: str
    sent_as: np.dtype[Any]
    computed_in: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of elements."""
        return sum(array.size for array in self.arrays)

    @property
    def nbytes(self) -> int:
        """The number of bytes that travel."""
        return self.size * self.sent_as.itemsize

    def pack(self, flat: Any) -> None:
        """Copy the arrays, one after the other, into `flat`, ``[size]``, of the type that travels."""
        position = 0
        for array in self.arrays:
            part, source = flat[position : position + array.size], array.reshape(-1)
            if self.sent_as == BFLOAT16:
                for start in range(0, array.size, _BLOCK):
                    part[start : start + _BLOCK] = to_bfloat16(source[start : start + _BLOCK])
            else:
                part[...] = source
            position += array.size

    def unpack(self, flat: Any, start: int = 0) -> None:
        """Copy `flat`, the elements from `start` on, into the arrays."""
        end, position = start + flat.size, 0
        for array in self.arrays:
            first, last = max(start, position), min(end, position + array.size)
            if first < last:
                part = flat[first - start : last - start]
                target = array.reshape(-1)[first - position : last - position]
                target[...] = to_float32(part) if self.sent_as == BFLOAT16 else part
            position += array.size


def parcel_of(arrays: Sequence[Any], kind: str, sent_as: np.dtype[Any] | None = None) -> Parcel:
    """Make a parcel of arrays; `sent_as` is the element type that travels, theirs if None."""
    travels = arrays[0].dtype if sent_as is None else sent_as
    return Parcel(arrays, kind, travels, np.dtype(np.float32) if travels in (BFLOAT16, np.float16) else travels)


def combine(parcel: Parcel, parts: Sequence[Any], out: Any) -> None:
    """Reduce the same elements of several workers, in the order of `parts`.

    Args:
        parcel: says how.
        parts: elements ``[n]`` of each worker, of the type that travels.
        out: for the result, ``[n]``; it may be one of the parts.
    """
    ufunc = _UFUNCS[parcel.kind]
    if len(parts) == 2 and parcel.computed_in == parcel.sent_as:
        ufunc(*parts, out=out)
        return
    for start in range(0, out.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        total = _widened(parts[0][block], parcel).copy()
        for part in parts[1:]:
            ufunc(total, _widened(part[block], parcel), out=total)
        out[block] = to_bfloat16(total) if parcel.sent_as == BFLOAT16 else total


def _widened(part: Any, parcel: Parcel) -> Any:
    return to_float32(part) if parcel.sent_as == BFLOAT16 else part.astype(parcel.computed_in, copy=False)
