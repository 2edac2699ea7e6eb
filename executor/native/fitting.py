"""Adapts the graph of a plan to a processor, before fusion."""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import accumulate
from math import prod
from operator import mul

from .cores import packed_filter_size, packed_integers_size, packed_matrix_size
from .fusion import source_of
from .graph import (
    GraphNode,
    PackedFilter,
    PackedIntegers,
    PackedMatrix,
    PlanArray,
    Product,
    Reduction,
    Shape,
    offset_of,
    packed_matrix,
    reshaped,
    strides_of,
)
from .target import Limits, Target

_FEWEST_PACKED = 1 << 10
"""The fewest elements of a constant matrix that is packed when a plan is bound."""


def fit(nodes: Iterable[GraphNode], target: Target) -> None:
    """Set the sizes of packed operands, and split long sums into rows that threads can share."""
    for node in nodes:
        match node:
            case PackedFilter():
                node.shape = (packed_filter_size(node, target),)
            case PackedMatrix():
                node.shape = (packed_matrix_size(node, target),)
            case PackedIntegers():
                node.shape = (packed_integers_size(node, target),)
            case Reduction() if node.size == 1:
                _cut(node, target.limits)


def pack_constants(nodes: Iterable[GraphNode], constants: Container[str], target: Target) -> None:
    """Let products read packed copies of their right matrices, where these are variables that never change.

    Args:
        constants: the names of these variables. Their matrices are packed once, when a plan is bound.
    """
    packed: dict[tuple[GraphNode, int, Shape, Shape], PackedMatrix] = {}
    for node in sorted(nodes, key=lambda node: node.serial):
        if type(node) is not Product or node.packed is not None or not _is_constant(node.right, constants):
            continue
        *batch, inner, columns = node.right.shape
        if prod(batch) == 1 and columns >= target.lanes(node.element.bytes) and inner * columns >= _FEWEST_PACKED:
            matrix = reshaped(node.right, (inner, columns))
            key = source_of(matrix), offset_of(matrix), matrix.shape, strides_of(matrix)
            if key not in packed:
                packed[key] = packed_matrix(matrix)
                packed[key].serial = node.serial
            node.packed = packed[key]


def _is_constant(node: GraphNode, constants: Container[str]) -> bool:
    """Whether a node reads a variable that never changes, and nothing else."""
    source = source_of(node)
    return isinstance(source, PlanArray) and not source.value[1] and source.value[0] in constants


def _cut(total: Reduction, limits: Limits) -> None:
    """Split a reduction of many elements to one: reduce rows first, then the results of the rows."""
    while row := _row_of(total.source, limits):
        elements, rows = total.source, total.source.size // row
        of_rows = Reduction((rows, 1), total.element, total.kind, reshaped(elements, (rows, row)), (1,))
        of_rows.serial = total.serial
        total.source = reshaped(of_rows, (1,) * (total.ndim - 1) + (rows,))
        total.axes = (total.ndim - 1,)


def _row_of(source: GraphNode, limits: Limits) -> int:
    """The row length for splitting a long reduction evenly; 0 if it is not long or no length fits.

    Prefers the product of the last dimensions, because then the kernel that computes such rows can also reduce them.
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
