"""Fits the graph of a plan to a processor, before it is known what is computed together."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from operator import mul

from .cores import packed_filter_size, packed_matrix_size
from .graph import Node, PackedFilter, PackedMatrix, Reduction, reshaped
from .target import Limits, Target

__all__ = ["fit"]


def fit(nodes: Iterable[Node], target: Target) -> None:
    """Say how large packed operands are, and cut long sums into rows, which threads share."""
    for node in nodes:
        match node:
            case PackedFilter():
                node.shape = (packed_filter_size(node, target),)
            case PackedMatrix():
                node.shape = (packed_matrix_size(node, target),)
            case Reduction() if node.size == 1:
                _cut(node, target.limits)


def _cut(total: Reduction, limits: Limits) -> None:
    """Let a reduction of many elements to one be that of rows, and then of what these come to."""
    while row := _row_of(total.source, limits):
        elements, rows = total.source, total.source.size // row
        of_rows = Reduction((rows, 1), total.element, total.kind, reshaped(elements, (rows, row)), (1,))
        of_rows.serial = total.serial
        total.source = reshaped(of_rows, (1,) * (total.ndim - 1) + (rows,))
        total.axes = (total.ndim - 1,)


def _row_of(source: Node, limits: Limits) -> int:
    """The length of the rows that many elements are reduced by, if they can be cut evenly; else 0.

    Where the last dimensions are of such a length, what is computed of their rows can be reduced in the same kernel.
    """
    size = source.size
    if size <= limits.long_reduction:
        return 0
    most = min(limits.reduction_part, size // 2)
    least = max(min(64, most), 2)
    length: int = next(length for length in accumulate(reversed(source.shape), mul) if length >= least)
    if length <= most and size // length <= limits.reduction_rows:
        return length
    shortest = max(min(256, most), 2)
    return next((length for length in range(most, shortest - 1, -1) if size % length == 0), 0)
