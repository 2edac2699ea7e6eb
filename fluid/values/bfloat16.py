"""bfloat16, 16-bit floats with the range of float32: stored as in files, and converted to float32 for computing.

numpy has no such type. The elements of an array of `BFLOAT16` here are records of one field, the two bytes: such an array can be
copied, sliced and saved, but not computed with. `to_float32` is exact; `to_bfloat16` rounds to nearest, ties to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .types import BFLOAT16

__all__ = ["BFLOAT16", "as_bits", "computable", "converted", "to_bfloat16", "to_float32"]


def to_float32(array: Any) -> Any:
    """An array of `BFLOAT16`, or of the same bits as uint16, as float32; the values are the same."""
    bits = np.ascontiguousarray(array).view("<u2").astype(np.uint32) << 16
    return bits.view(np.float32).reshape(np.shape(array))


def as_bits(array: Any) -> Any:
    """An array of `BFLOAT16` as uint16, which every format can store; any other array unchanged."""
    return array.view("<u2") if array.dtype == BFLOAT16 else array


def to_bfloat16(array: Any) -> Any:
    """The nearest values in `BFLOAT16`; NaN stays NaN, values that are too large become infinite."""
    values = np.ascontiguousarray(array, np.float32)
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(values), (bits >> 16 | 0x40).astype("<u2"), rounded).view(BFLOAT16).reshape(np.shape(array))


def computable(array: Any) -> Any:
    """An array with which numpy computes: one of `BFLOAT16` becomes float32, any other is unchanged."""
    return to_float32(array) if array.dtype == BFLOAT16 else array


def converted(array: Any, dtype: Any) -> Any:
    """An array with elements of another numpy dtype, from or to `BFLOAT16` too; the array itself if it has them."""
    if array.dtype == dtype:
        return array
    return to_bfloat16(computable(array)) if dtype == BFLOAT16 else computable(array).astype(dtype)
