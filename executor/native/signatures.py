"""Signatures of kernels: all that their texts depend on, so that a kernel that is loaded, or on disk, is not written again."""

from __future__ import annotations

from dataclasses import fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from .fusion import source_of
from .graph import Constant, Node, PackedFilter, PackedMatrix, Turned, View, offset_of, strides_of

if TYPE_CHECKING:
    from .regions import NativeRegion

__all__ = ["described", "signature_of", "signed"]


def signed(*parts: Any) -> str:
    """A digest of numbers, texts, and tuples of them."""
    return sha256(repr(parts).encode()).hexdigest()


def described(region: NativeRegion) -> tuple[Any, ...]:
    """What a region computes, in which shapes, and where operands lie; not which arrays it reads and writes.

    Numbers are texts: those that are equal may differ, such as two zeros.
    """
    group = region.group
    describe = _Description(region)
    nodes = tuple([describe.node(node) for node in describe.places])
    stored = tuple([describe.places[node] for node, _ in region.targets])
    output = describe.places[region.core_output] if region.core_output is not None else None
    return nodes, len(group.uniform), stored, group.total, group.columns, group.breaks, output


def signature_of(description: tuple[Any, ...]) -> str:
    """A digest of what is `described` of a region."""
    *parts, breaks, output = description
    return signed(*parts, sorted(breaks), output)


class _Description:
    """Says of the nodes of a region what its text depends on."""

    def __init__(self, region: NativeRegion) -> None:
        group = region.group
        self._per_row, self._sums = group.per_row, group.sums
        self._by_start = region.by_start
        self._reads = {place: number for number, place in enumerate(region.sources)}
        self.places = {node: place for place, node in enumerate([*group.uniform, *group.nodes])}
        """Node that the region computes -> its place among them."""

    def node(self, node: Node) -> tuple[Any, ...]:
        """What is computed, and where it lies."""
        return (
            type(node).__name__, node.shape, node.element.element, node.halo, node.within and node.within.strides,
            node in self._per_row, node in self._sums, *[self._part(getattr(node, name)) for name in _parts_of(type(node))],
        )  # fmt: skip

    def _part(self, part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple([self._part(item) for item in part])
        if not isinstance(part, Node):
            return part
        start = self._reads.get((part, 0)) if part in self._by_start else None
        return start, *self._operand(part)

    def _operand(self, node: Node) -> tuple[Any, ...]:
        """Where an operand is found, among the nodes or by the number of a pointer, and how its elements lie there."""
        if type(node) is Constant:
            return repr(node.number), node.element.element
        source = source_of(node)
        is_dense = node.within is None and not isinstance(node, (View, Turned))
        return (
            self.places.get(source), self._reads.get((source, offset_of(node))), source.halo, node.shape, node.element.element,
            None if is_dense else strides_of(node), _packing_of(source),
        )  # fmt: skip


_PARTS: dict[type[Node], list[str]] = {}


def _parts_of(kind: type[Node]) -> list[str]:
    """The fields that only some nodes have."""
    if kind not in _PARTS:
        common = {field.name for field in fields(Node)}
        _PARTS[kind] = [field.name for field in fields(kind) if field.name not in common]
    return _PARTS[kind]


def _packing_of(node: Node) -> Any:
    """What those who read a packed operand ask of it, besides its elements; None for other nodes."""
    match node:
        case PackedFilter():
            return node.windows, node.images, node.for_input, node.filter.shape
        case PackedMatrix():
            return node.rows, node.source.shape
    return None
