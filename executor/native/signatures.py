"""Signatures of kernels: digests of everything that a kernel's text depends on. They serve as cache keys."""

from __future__ import annotations

from dataclasses import fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from .fusion import source_of
from .graph import ChannelsFirst, Constant, GraphNode, PackedFilter, PackedIntegers, PackedMatrix, View, offset_of, strides_of

if TYPE_CHECKING:
    from .regions import NativeRegion


def digest_of(*parts: Any) -> str:
    """A digest of numbers, strings, and nested tuples of them."""
    return sha256(repr(parts).encode()).hexdigest()


def describe_region(region: NativeRegion) -> tuple[Any, ...]:
    """Describe a region's computation, shapes and operand layouts, but not the arrays it reads and writes.

    Numbers are given as text, because equal numbers may differ: 0.0 and -0.0.
    """
    group = region.group
    describe = _Description(region)
    nodes = tuple([describe.node(node) for node in describe.places])
    stored = tuple([describe.places[node] for node, _ in region.targets])
    output = describe.places[region.core_output] if region.core_output is not None else None
    return nodes, len(group.uniform), stored, group.total, group.columns, group.breaks, output


def signature_of(description: tuple[Any, ...]) -> str:
    """A digest of a region's description."""
    *parts, breaks, output = description
    return digest_of(*parts, sorted(breaks), output)


class _Description:
    """Describes the nodes of a region as far as the kernel's text depends on them."""

    def __init__(self, region: NativeRegion) -> None:
        group = region.group
        self._per_row, self._sums = group.per_row, group.sums
        self._by_start = region.by_start
        self._reads = {place: number for number, place in enumerate(region.sources)}
        self.places = {node: place for place, node in enumerate([*group.uniform, *group.nodes])}
        """Node that the region computes -> its index."""

    def node(self, node: GraphNode) -> tuple[Any, ...]:
        """Describe a node: its computation and its place in memory."""
        return (
            type(node).__name__, node.shape, node.element.element, node.halo, node.within and node.within.strides,
            node in self._per_row, node in self._sums, *[self._part(getattr(node, name)) for name in _parts_of(type(node))],
        )  # fmt: skip

    def _part(self, part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple([self._part(item) for item in part])
        if not isinstance(part, GraphNode):
            return part
        start = self._reads.get((part, 0)) if part in self._by_start else None
        return start, *self._operand(part)

    def _operand(self, node: GraphNode) -> tuple[Any, ...]:
        """Describe an operand: its index among the nodes or the number of its pointer, and its layout."""
        if type(node) is Constant:
            return repr(node.number), node.element.element
        source = source_of(node)
        is_dense = node.within is None and not isinstance(node, (View, ChannelsFirst))
        return (
            self.places.get(source), self._reads.get((source, offset_of(node))), source.halo, node.shape, node.element.element,
            None if is_dense else strides_of(node), _packing_of(source),
        )  # fmt: skip


_PARTS: dict[type[GraphNode], list[str]] = {}


def _parts_of(kind: type[GraphNode]) -> list[str]:
    """The fields of a node class that `GraphNode` lacks."""
    if kind not in _PARTS:
        common = {field.name for field in fields(GraphNode)}
        _PARTS[kind] = [field.name for field in fields(kind) if field.name not in common]
    return _PARTS[kind]


def _packing_of(node: GraphNode) -> Any:
    """The properties of a packed operand that its readers depend on; None for other nodes."""
    match node:
        case PackedFilter():
            return node.windows, node.images, node.for_input, node.filter.shape
        case PackedIntegers():
            return node.source.shape, node.segments
        case PackedMatrix():
            return node.source.shape
    return None
