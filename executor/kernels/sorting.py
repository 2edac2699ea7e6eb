"""Stable orders of rows, by the quickest sort that numpy has.

numpy sorts numbers of 64 bits by vectors, but has no such sort that is stable. So each number is packed with its place into 64
bits: no two are equal, and sorted places are in order where numbers are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_FEWEST = 512
"""The fewest numbers that are packed: 200 take 0.003 to 0.007 ms packed and 0.002 ms by a stable sort."""


def stable_order(xp: Any, rows: Any) -> Any:
    """The indices that sort numbers along the last axis, equal ones in their order, and NaNs last."""
    if xp is not np or rows.size < _FEWEST:
        return rows.argsort(-1, kind="stable")
    bits = max(rows.shape[-1] - 1, 1).bit_length()
    numbers = _as_integers(rows, 63 - bits)
    if numbers is None:
        return _order_of_few_equals(rows) if rows.dtype == np.float64 else rows.argsort(-1, kind="stable")
    packed = np.left_shift(numbers, bits)
    packed |= np.arange(rows.shape[-1])
    packed.sort(-1)
    packed &= (1 << bits) - 1
    return packed


def _as_integers(rows: Any, bits: int) -> Any:
    """Convert numbers to integers of 64 bits in the same order, of `bits` bits and a sign; None if they do not fit."""
    if rows.dtype == np.float32 and bits >= 31:
        signed = (rows + np.float32(0)).view(np.int32)  # of two zeros, none is less
        numbers = (signed ^ ((signed >> 31) & 0x7FFFFFFF)).astype(np.int64)
        is_nan = rows != rows
        if is_nan.any():
            numbers[is_nan] = 0x7FFFFFFF
        return numbers
    if rows.dtype.kind not in "iu" or rows.dtype == np.uint64:
        return None
    limit = 1 << bits
    is_narrow = rows.dtype.itemsize < 8 and bits >= 32
    return rows.astype(np.int64) if is_narrow or (rows.min() >= -limit and rows.max() < limit) else None


def _order_of_few_equals(rows: Any) -> Any:
    """`stable_order` by a sort that is not stable; rows with equal numbers or NaNs are sorted again."""
    places = rows.argsort(-1)
    numbers = take_along_last(np, rows, places)
    is_in_doubt = ~(numbers[..., 1:] > numbers[..., :-1]).all(-1)
    if is_in_doubt.any():
        places[is_in_doubt] = rows[is_in_doubt].argsort(-1, kind="stable")
    return places


def take_along_last(xp: Any, rows: Any, places: Any) -> Any:
    """``take_along_axis`` for the last axis, by one index, which is twice as fast."""
    if xp is not np or not rows.size:
        return xp.take_along_axis(rows, places, -1)
    starts = np.arange(0, rows.size, rows.shape[-1]).reshape(*rows.shape[:-1], 1)
    return rows.reshape(-1).take(places + starts)
