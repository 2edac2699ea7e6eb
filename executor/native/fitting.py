"""Adapts the graph of a plan to a processor, before fusion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import prod
from operator import mul

from .cores import fewest_images, packed_filter_size, packed_integers_size, packed_matrix_size
from .fusion import base_of, source_of
from .graph import (
    ChannelsFirst,
    Constant,
    Convolved,
    GraphNode,
    Map,
    PackedFilter,
    PackedIntegers,
    PackedMatrix,
    PlanArray,
    Position,
    Product,
    Reduction,
    Reshaped,
    Shape,
    View,
    mapped,
    offset_of,
    operands_of,
    packed_matrix,
    plain,
    reshaped,
    strides_of,
)
from .target import Limits, Target

_FEWEST_PACKED = 1 << 10
"""The fewest elements of a constant matrix that is packed when a plan is bound. Packing smaller ones
saves 0 to 2 % of the time for 1 to 16 rows (AVX-512, 2 cores), which is not worth the memory of a copy."""


def fit(nodes: Iterable[GraphNode], target: Target) -> None:
    """Set the sizes of packed operands, and split long sums into rows that threads can share."""
    for node in nodes:
        match node:
            case PackedFilter():
                node.images = fewest_images(node, target)
                node.shape = (packed_filter_size(node, target),)
            case PackedMatrix():
                node.shape = (packed_matrix_size(node, target),)
            case PackedIntegers():
                node.shape = (packed_integers_size(node, target),)
            case Reduction() if node.size == 1:
                _cut(node, target.limits)


def skip_copies(nodes: Iterable[GraphNode], changing: Container[GraphNode | None]) -> None:
    """Let views of a copy read the original, such as a feed that is reshaped and then transposed.

    Args:
        nodes: all nodes that are needed.
        changing: nodes whose memory is overwritten, perhaps before a view reads it.
    """
    for node in nodes:
        while isinstance(node, View) and isinstance(copy := node.source, Map) and copy.formula == "copy":
            (operand,) = copy.operands
            original = source_of(operand)
            is_alike = base_of(operand) is original and original.size == copy.size
            if not is_alike or isinstance(original, (Constant, Position)) or original in changing or original.within:
                break
            node.source = original


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


def scale_filters(nodes: Collection[GraphNode], stored: Container[GraphNode], constants: Container[str]) -> None:
    """Multiply packed filters by the factors of the formulas behind them, such as a batch_norm's, one for each channel.

    Filter, factors and terms depend on constants alone.

    Args:
        nodes: all nodes that are needed.
        stored: those whose values are needed as such.
        constants: the names of variables that never change.
    """
    is_constant = partial(_follows_from, constants, {})
    readers: dict[GraphNode, list[GraphNode]] = defaultdict(list)
    for node in nodes:
        for operand in set(operands_of(node)):
            readers[operand].append(node)
    for node in list(nodes):
        if type(node) is Convolved and is_constant(node.packed.filter):
            chain = _Chain(node)
            while chain.last not in stored and len(readers[chain.last]) == 1:
                if not chain.add(readers[chain.last][0], is_constant):
                    break
            chain.put_into_filter()


class _Chain:
    """Formulas behind a convolution that multiply its channels by numbers, and add numbers to them."""

    def __init__(self, convolved: Convolved) -> None:
        self._convolved = convolved
        self.last: GraphNode = convolved
        self._scale: GraphNode | None = None
        self._shift: GraphNode | None = None

    def add(self, reader: GraphNode, is_constant: Callable[[GraphNode], bool]) -> bool:
        """Add the reader of the last formula to the chain; returns False if it computes anything else."""
        last, convolved = self.last, self._convolved
        if not isinstance(reader, Map) or (reader.shape, reader.element) != (convolved.shape, convolved.element):
            return False
        if reader.formula not in ("add", "mul", "sub") or (reader.formula == "sub" and reader.operands[0] is not last):
            return False
        part = reader.operands[reader.operands[0] is last]
        is_of_channels = (part.shape[-1:], part.size) == (convolved.shape[-1:], convolved.shape[-1])
        if part.element != convolved.element or not is_of_channels or not is_constant(part):
            return False
        if reader.formula == "mul":
            self._scale = _combined("mul", self._scale, part)
            self._shift = None if self._shift is None else _combined("mul", self._shift, part)
        elif self._shift is None and reader.formula == "sub":
            self._shift = mapped("neg", part)
        else:
            self._shift = _combined(reader.formula, self._shift, part)
        self.last = reader
        return True

    def put_into_filter(self) -> None:
        """Let the packed filter take over the factors; the last formula becomes the sum of the convolution and the terms."""
        last, convolved = self.last, self._convolved
        if self._scale is None:
            return
        assert isinstance(last, Map)
        packed = replace(convolved.packed, scale=plain(reshaped(self._scale, (self._scale.size,))))
        packed.serial, convolved.packed = convolved.packed.serial, packed
        last.formula, last.operands = ("copy", (convolved,)) if self._shift is None else ("add", (convolved, self._shift))


def _combined(formula: str, first: GraphNode | None, second: GraphNode) -> GraphNode:
    """Both by the formula; the second alone if there is no first."""
    return second if first is None else mapped(formula, first, second)


def _follows_from(constants: Container[str], known: dict[GraphNode, bool], node: GraphNode) -> bool:
    """Whether a node depends on nothing but variables that never change; `known` has the answers for other nodes."""
    if node not in known:
        known[node] = isinstance(node, Constant) or (
            isinstance(node, PlanArray) and not node.value[1] and node.value[0] in constants
        )
        if isinstance(node, (ChannelsFirst, Map, Reshaped, View)):
            known[node] = all(_follows_from(constants, known, operand) for operand in operands_of(node))
    return known[node]


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
