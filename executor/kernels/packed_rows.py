"""Finds when steps compute the rows of sequences: the order of packed rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.values.cache import Cache
from fluid.values.lod_array import repeated, step_counts

_MOST_ROWS = 1 << 14
"""The most rows whose order is stored. To find the order of more takes little beside computing them."""


class PackedRows:
    """The order of packed rows, on the host: the first rows of all sequences, longest sequence first, then all second rows, and
    so on. The rows of a step are consecutive, and continue the first rows of the former step.

    Args:
        starts, lengths: the first row and the number of rows of each sequence.
        reverse: whether sequences begin with their last row.

    Attributes:
        sequences: indices of the sequences, longest first.
        rows: for each packed row, the row of the input.
        before: for each packed row after the first step, the packed row of the former step.
        ends: for each sequence that is not empty, in the order of `sequences`, its last packed row.
        steps: for each step, its first packed row and its number of rows.
    """

    def __init__(self, starts: Any, lengths: Any, reverse: bool = False) -> None:
        order = np.argsort(-lengths, kind="stable")
        counts = step_counts(lengths)
        firsts = counts.cumsum() - counts
        self.steps = tuple(zip(firsts.tolist(), counts.tolist(), strict=True))
        step, rank = repeated(np.arange(len(counts)), counts), np.arange(counts.sum()) - repeated(firsts, counts)
        sequence, filled = order[rank], counts[0] if len(counts) else 0
        rows = (starts + lengths - 1)[sequence] - step if reverse else starts[sequence] + step
        self.sequences, self.rows = order, rows.astype(np.int64, copy=False)
        self.before = (firsts[step[filled:] - 1] + rank[filled:]).astype(np.int64, copy=False)
        self.ends = (firsts[lengths[order[:filled]] - 1] + np.arange(filled)).astype(np.int64, copy=False)


_orders: Cache[tuple[tuple[int, ...], bool], PackedRows] = Cache(16)
"""Offsets of sequences, and whether they are reversed -> the order: the layers of a network share it."""


def packed_rows(offsets: tuple[int, ...], reverse: bool = False) -> PackedRows:
    """The order of the rows of sequences between offsets."""
    key = offsets, reverse
    order = _orders.get(key)
    if order is None:
        level = np.asarray(offsets, np.int64)
        order = PackedRows(level[:-1], np.diff(level), reverse)
        if len(order.rows) <= _MOST_ROWS:
            _orders.keep(key, order)
    return order
