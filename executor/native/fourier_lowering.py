"""Lowers Fourier transforms to products with matrices of roots of unity.

A transform is lazy: cutting frequencies off makes its matrix smaller, and zeros around its input do, too. Where all of a long
transform is read, its op is given back to numpy's fast transform (`costs.fast_transform_seconds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

from fluid.ops.fourier import half
from fluid.values.spec import Spec
from fluid.values.types import complex_of

from .complex_tensors import ComplexTensor, InParts, Padded, joined_along
from .einsum_lowering import multiply_terms
from .graph import GraphNode, mapped, plain, reshaped, sliced
from .lowering import GraphTensor, NotLowered, lowers_complex
from .transforms import Line, Transforms, weights

_LONGEST = 4096
"""Maximal elements of a transform that may become a product."""
_OUT, _PART, _PART_OUT = ">.:"
"""Labels of the outputs of a transform, and of the parts of its complex inputs and outputs."""


class Transformed(ComplexTensor):
    """A Fourier transform along one axis, which is computed where it is read.

    Args:
        source: the tensor that is transformed; without its padding.
        axis: the axis.
        line: the transform.
        transforms: all transforms of the graph.
    """

    def __init__(self, source: GraphTensor | ComplexTensor, axis: int, line: Line, transforms: Transforms) -> None:
        self.source, self.axis, self.line, self.transforms = source, axis, line, transforms
        self.shape = (*source.shape[:axis], len(line.outputs), *source.shape[axis + 1 :])
        self.dtype = complex_of(source.dtype)
        self.op = transforms.op
        self._cuts: dict[tuple[int, range], ComplexTensor] = {}

    @cached_property
    def pairs(self) -> GraphNode:  # type: ignore[override]
        return self._product(to_complex=True)

    def real_part(self) -> GraphTensor:
        return GraphTensor(self._product(to_complex=False))

    def cut(self, axis: int, places: range) -> ComplexTensor:
        if (axis, places) not in self._cuts:
            self._cuts[axis, places] = self._cut(axis, places)
        return self._cuts[axis, places]

    def _cut(self, axis: int, places: range) -> ComplexTensor:
        source, line = self.source, self.line
        if axis == self.axis:
            line = replace(line, outputs=tuple(line.outputs[place] for place in places))
        elif isinstance(source, ComplexTensor):
            source = source.cut(axis, places)
        else:
            node = sliced(plain(source.node), axis, places.start, len(places), places.step)
            source = GraphTensor(mapped("copy", node))
        return self.of(source, line)

    def of(self, source: GraphTensor | ComplexTensor, line: Line) -> Transformed:
        """A part of this transform, of the same op."""
        result = Transformed(source, self.axis, line, self.transforms)
        result.op = self.op
        return result

    def _product(self, to_complex: bool) -> GraphNode:
        """The product with the matrix of the transform along the axis."""
        of_complex = isinstance(self.source, ComplexTensor)
        node = self.source.pairs if isinstance(self.source, ComplexTensor) else self.source.node
        element = node.element
        matrix = self.transforms.matrix(self.line, element, of_complex, to_complex)
        letters = "".join(chr(ord("a") + number) for number in range(self.ndim))
        axis = letters[self.axis]
        term = letters + _PART * of_complex
        of_matrix = axis + _PART * of_complex + _OUT + _PART_OUT * to_complex
        result = letters.replace(axis, _OUT) + _PART_OUT * to_complex
        product = multiply_terms([(node, term), (matrix, of_matrix)], result)
        batch = prod(self.shape) // len(self.line.outputs)
        self.transforms.products.append((self.op, product, batch * matrix.size))
        return product


def transformed(source: Any, axis: int, line: Line, transforms: Transforms) -> ComplexTensor:
    """The transform of a tensor along an axis; zeros around it are left out."""
    if line.size > _LONGEST:
        raise NotLowered("a long transform")
    if isinstance(source, Padded):
        if source.axis != axis:
            parts = [(start, transformed(part, axis, line, transforms)) for start, part in source.parts]
            return Padded(source.axis, source.extent, parts)
        inputs = tuple(line.inputs[place] for place in source.places)
        return Transformed(joined_along(axis, [part for _, part in source.parts]), axis, replace(line, inputs=inputs), transforms)
    return Transformed(source, axis, line, transforms)


def _line(size: int, normalization: str, forward: bool, inputs: int, outputs: int) -> Line:
    power = {"ortho": 0.5}.get(normalization, float((normalization == "forward") == forward))
    return Line(size, -1 if forward else 1, size**-power, tuple(range(inputs)), tuple(range(outputs)))


def _along(X: Any, axes: Sequence[int], normalization: str, forward: bool, transforms: Transforms) -> ComplexTensor:
    """The transform of complex numbers along several axes."""
    for axis in axes:
        size = X.shape[axis]
        X = transformed(X, axis, _line(size, normalization, forward, size, size), transforms)
    return X  # type: ignore[no-any-return]


def _count(X: Any, axes: Sequence[int], size: int, transforms: Transforms) -> list[int]:
    """Count the elements that fast transforms along some axes would read; returns the axes as positive numbers."""
    transforms.fast[transforms.op] = transforms.fast.get(transforms.op, 0) + size * len(axes)
    return [axis % X.ndim for axis in axes]


@lowers_complex("fft_c2c")
def fft_c2c(X: Any, axes: list[int], normalization: str, forward: bool, transforms: Transforms) -> ComplexTensor:
    return _along(X, _count(X, axes, 2 * prod(X.shape), transforms), normalization, forward, transforms)


@lowers_complex("fft_r2c")
def fft_r2c(X: Any, axes: list[int], normalization: str, forward: bool, onesided: bool, transforms: Transforms) -> ComplexTensor:
    *following, last = _count(X, axes, prod(X.shape), transforms)
    size = X.shape[last]
    line = _line(size, normalization, forward, size, half(size) if onesided else size)
    return _along(transformed(X, last, line, transforms), following, normalization, forward, transforms)


@lowers_complex("fft_c2r")
def fft_c2r(
    X: Any, axes: list[int], normalization: str, forward: bool, specs: dict[str, Any], transforms: Transforms
) -> GraphTensor:
    return _to_real(X, axes, normalization, forward, specs["Out"], transforms, doubles_inputs=True)


@lowers_complex("fft_r2c_adjoint")
def fft_r2c_adjoint(
    X: Any, Like: Any, axes: list[int], normalization: str, forward: bool, specs: dict[str, Any], transforms: Transforms
) -> GraphTensor:
    return _to_real(X, axes, normalization, forward, specs["Out"], transforms, doubles_inputs=False)


def _to_real(
    X: Any, axes: Sequence[int], normalization: str, forward: bool, result: Spec, transforms: Transforms, doubles_inputs: bool
) -> GraphTensor:
    """The real part of the transform of one-sided spectra."""
    *first, last = _count(X, axes, prod(result.shape), transforms)
    size = result.shape[last]
    spectrum = _along(X, first, normalization, forward, transforms)
    line = replace(_line(size, normalization, forward, half(size), size), doubles_inputs=doubles_inputs)
    return transformed(spectrum, last, line, transforms).real_part()


@lowers_complex("double_inner")
def double_inner(X: ComplexTensor, Like: Any, axis: int) -> ComplexTensor:
    axis %= X.ndim
    numbers = tuple(range(X.shape[axis]))
    if isinstance(X, Transformed) and X.axis == axis and X.line.outputs == numbers and not X.line.doubles_outputs:
        return X.of(X.source, replace(X.line, doubles_outputs=True))
    if isinstance(X, Transformed) and X.axis != axis and isinstance(X.source, Transformed):
        return X.of(double_inner(X.source, Like, axis), X.line)
    shape = tuple(extent if place == axis else 1 for place, extent in enumerate(X.shape))
    factors = GraphTensor(reshaped(weights(numbers, Like.shape[axis], X.real.node.element), shape))
    return InParts(X.real * factors, X.imag * factors)
