"""Complex tensors of the graph: pairs of real ones.

In memory, the two parts of a complex number are neighbours, as in numpy. In the graph, a complex tensor is either one real tensor
with a last dimension of 2 (`InPairs`) or two real tensors (`InParts`); each is made from the other where an op asks for it. So
formulas, products and fusion know real numbers alone. Zeros around a tensor (`Padded`) stay a fact until an op reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from fluid.opdef.inference import OpNamespace
from fluid.values.operators import ValueOperators
from fluid.values.spec import Spec
from fluid.values.types import VarType, complex_of

from .graph import (
    Constant,
    GraphNode,
    Map,
    Reshaped,
    Shape,
    View,
    broadcast_to,
    constant,
    joined,
    mapped,
    plain,
    reshaped,
    sliced,
)
from .lowering import NAMESPACE, GraphTensor


class ComplexTensor(ValueOperators):
    """A complex tensor.

    Attributes:
        shape: its shape.
        dtype: complex64 or complex128.
        real, imag: its parts.
        pairs: its numbers as pairs of floats, in a new last dimension.
    """

    shape: Shape
    dtype: VarType
    pairs: GraphNode

    @cached_property
    def real(self) -> GraphTensor:
        return self._part(0)

    @cached_property
    def imag(self) -> GraphTensor:
        return self._part(1)

    def _part(self, place: int) -> GraphTensor:
        axis = len(self.shape)
        return GraphTensor(mapped("copy", reshaped(sliced(plain(self.pairs), axis, place, 1), self.shape)))

    def _ops(self) -> OpNamespace:
        return NAMESPACE

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def spec(self) -> Spec:
        return Spec(self.shape, self.dtype)

    def cut(self, axis: int, places: range) -> ComplexTensor:
        """The elements at some places along an axis."""
        node = mapped("copy", sliced(plain(self.pairs), axis, places.start, len(places), places.step))
        return InPairs(node)

    def real_part(self) -> GraphTensor:
        """The real part, if the imaginary part is not needed."""
        return self.real


class InPairs(ComplexTensor):
    """Complex numbers as pairs of floats, in the last dimension of a node."""

    def __init__(self, pairs: GraphNode) -> None:
        self.pairs = pairs
        self.shape = pairs.shape[:-1]
        self.dtype = complex_of(GraphTensor(pairs).dtype)


class InParts(ComplexTensor):
    """Complex numbers as two tensors of equal shapes."""

    def __init__(self, real: GraphTensor, imag: GraphTensor) -> None:
        self.real, self.imag = real, imag
        self.shape = real.shape
        self.dtype = complex_of(real.dtype)

    @cached_property
    def pairs(self) -> GraphNode:  # type: ignore[override]
        shape = (*self.shape, 1)
        parts = [broadcast_to(reshaped(part.node, shape), shape) for part in (self.real, self.imag)]
        return joined(parts, len(self.shape))


class Padded(ComplexTensor):
    """Tensors side by side along an axis, with zeros between and around them.

    Args:
        axis: the axis.
        extent: the number of elements along it.
        parts: the tensors, each with the place of its first element, in order.
    """

    def __init__(self, axis: int, extent: int, parts: Sequence[tuple[int, ComplexTensor]]) -> None:
        first = parts[0][1]
        self.axis, self.extent, self.parts = axis, extent, tuple(parts)
        self.shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
        self.dtype = first.dtype

    @property
    def places(self) -> tuple[int, ...]:
        """The places of the elements that are not padding."""
        return tuple(start + place for start, part in self.parts for place in range(part.shape[self.axis]))

    @cached_property
    def pairs(self) -> GraphNode:  # type: ignore[override]
        pieces: list[GraphNode] = []
        end = 0
        for start, part in [*self.parts, (self.extent, None)]:
            if start > end:
                shape = (*self.shape[: self.axis], start - end, *self.shape[self.axis + 1 :], 2)
                pieces.append(broadcast_to(constant(0.0, self.parts[0][1].pairs.element), shape))
            if part is not None:
                pieces.append(part.pairs)
                end = start + part.shape[self.axis]
        return joined(pieces, self.axis)

    def cut(self, axis: int, places: range) -> ComplexTensor:
        if axis != self.axis:
            return Padded(self.axis, self.extent, [(start, part.cut(axis, places)) for start, part in self.parts])
        for start, part in self.parts:
            if start <= places.start and places.stop <= start + part.shape[axis]:
                return part.cut(axis, range(places.start - start, places.stop - start, places.step))
        return super().cut(axis, places)


def in_shape(tensor: ComplexTensor, shape: tuple[int, ...]) -> ComplexTensor:
    """A complex tensor in another shape."""
    return tensor if tensor.shape == shape else InPairs(reshaped(plain(tensor.pairs), (*shape, 2)))


def padded(tensor: ComplexTensor, axis: int, start: int, extent: int) -> ComplexTensor:
    """A tensor at the place `start` of `extent` zeros along an axis."""
    if tensor.shape[axis] == extent:
        return tensor
    if isinstance(tensor, Padded) and tensor.axis == axis:
        return Padded(axis, extent, [(start + place, part) for place, part in tensor.parts])
    return Padded(axis, extent, [(start, tensor)])


def joined_along(axis: int, tensors: Sequence[ComplexTensor]) -> ComplexTensor:
    """Concatenate tensors along an axis; tensors of zeros become padding."""
    starts, end = [], 0
    for tensor in tensors:
        starts.append(end)
        end += tensor.shape[axis]
    parts = [(start, tensor) for start, tensor in zip(starts, tensors, strict=True) if not is_zero(tensor)]
    if 0 < len(parts) < len(tensors):
        return Padded(axis, end, parts)
    return tensors[0] if len(tensors) == 1 else InPairs(joined([tensor.pairs for tensor in tensors], axis))


def added(x: ComplexTensor, y: ComplexTensor) -> ComplexTensor:
    """The sum of two tensors of equal shapes; zeros around them are not added."""
    if isinstance(x, Padded) and isinstance(y, Padded) and (x.axis, x.shape) == (y.axis, y.shape):
        if x.places == y.places and len(x.parts) == len(y.parts) == 1:
            return Padded(x.axis, x.extent, [(x.parts[0][0], added(x.parts[0][1], y.parts[0][1]))])
        if not set(x.places) & set(y.places):
            return Padded(x.axis, x.extent, sorted([*x.parts, *y.parts], key=_start))
    return InPairs(mapped("add", x.pairs, y.pairs)) if isinstance(x, InPairs) and isinstance(y, InPairs) else _parts_added(x, y)


def _start(part: tuple[int, ComplexTensor]) -> int:
    return part[0]


def _parts_added(x: ComplexTensor, y: ComplexTensor) -> ComplexTensor:
    return InParts(x.real + y.real, x.imag + y.imag)


def is_zero(tensor: ComplexTensor) -> bool:
    """Whether a tensor was made of zeros."""
    return isinstance(tensor, InParts) and _is_zero(tensor.real.node) and _is_zero(tensor.imag.node)


def _is_zero(node: GraphNode) -> bool:
    while isinstance(node, (Reshaped, View)) or (isinstance(node, Map) and node.formula == "copy"):
        node = node.operands[0] if isinstance(node, Map) else node.source
    return isinstance(node, Constant) and node.number == 0


def part_of(inputs: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Inputs with one part, ``real`` or ``imag``, of each complex tensor."""

    def one(value: Any) -> Any:
        return getattr(value, part) if isinstance(value, ComplexTensor) else value

    return {slot: [one(item) for item in value] if isinstance(value, list) else one(value) for slot, value in inputs.items()}
