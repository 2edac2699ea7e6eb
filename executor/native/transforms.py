"""Discrete Fourier transforms of a graph as products with matrices of roots of unity.

A product computes only the frequencies that are read, from the elements that are not padding. For a few of many frequencies, or
short transforms, this takes less time than a fast transform. All products of a graph with equal roots share one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import pi

from .emitter import BOOL, DOUBLE, Type
from .graph import GraphNode, Position, constant, joined, mapped, reshaped


@dataclass(frozen=True)
class Line:
    """A transform along one axis: ``y[k] = factor * sum of x[j] * exp(sign * 2 pi i j k / size)`` over j.

    Attributes:
        size: the number of elements of the whole transform.
        sign: -1 forward, 1 backward.
        factor: the normalization.
        inputs, outputs: the numbers j and k.
        doubles_inputs, doubles_outputs: whether elements are doubled that stand for two of a whole spectrum (see `weights`).
    """

    size: int
    sign: int
    factor: float
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    doubles_inputs: bool = False
    doubles_outputs: bool = False


@dataclass
class Transforms:
    """The Fourier transforms of a graph.

    Attributes:
        op: the number of the op that is being lowered.
        products: (number of an op, product, its multiplications) for each product that computes a part of a transform.
        fast: number of an op -> the elements that its fast transforms would read, once for each axis.
    """

    op: int = -1
    products: list[tuple[int, GraphNode, int]] = field(default_factory=list)
    fast: dict[int, int] = field(default_factory=dict)
    _roots: dict[tuple[Line, Type], tuple[GraphNode, GraphNode]] = field(default_factory=dict)
    _matrices: dict[tuple[Line, Type, bool, bool], GraphNode] = field(default_factory=dict)

    def matrix(self, line: Line, element: Type, of_complex: bool, to_complex: bool) -> GraphNode:
        """The matrix of a transform, [inputs, outputs]. Complex inputs, or outputs, add a dimension of 2 behind theirs."""
        key = line, element, of_complex, to_complex
        if key not in self._matrices:
            self._matrices[key] = self._matrix(*key)
        return self._matrices[key]

    def _matrix(self, line: Line, element: Type, of_complex: bool, to_complex: bool) -> GraphNode:
        cosines, sines = self._roots_of(line, element)
        shape = cosines.shape
        if not to_complex:
            parts = [reshaped(part, (shape[0], 1, shape[1])) for part in (cosines, mapped("neg", sines))]
            return joined(parts, 1) if of_complex else cosines
        rows = [(cosines, sines), (mapped("neg", sines), cosines)][: 1 + of_complex]
        parts = [joined([reshaped(part, (shape[0], 1, shape[1], 1)) for part in row], 3) for row in rows]
        return joined(parts, 1) if of_complex else reshaped(parts[0], (*shape, 2))

    def _roots_of(self, line: Line, element: Type) -> tuple[GraphNode, GraphNode]:
        """Real and imaginary parts of the roots, [inputs, outputs]."""
        key = line, element
        if key not in self._roots:
            self._roots[key] = _roots(line, element)
        return self._roots[key]


def _roots(line: Line, element: Type) -> tuple[GraphNode, GraphNode]:
    size = line.size
    rows = reshaped(_numbers(line.inputs), (len(line.inputs), 1))
    columns = reshaped(_numbers(line.outputs), (1, len(line.outputs)))
    turns = mapped("mul", rows, columns)
    nearest = mapped("floor", mapped("add", mapped("mul", turns, _double(1.0 / size)), _double(0.5)))
    angle = mapped("mul", mapped("sub", turns, mapped("mul", nearest, _double(size))), _double(line.sign * 2 * pi / size))
    factor: GraphNode = _double(line.factor)
    if line.doubles_inputs:
        factor = mapped("mul", _weights(rows, size), factor)
    if line.doubles_outputs:
        factor = mapped("mul", _weights(columns, size), factor)
    cosines, sines = (mapped("mul", mapped(formula, angle), factor) for formula in ("cos", "sin"))
    return mapped("convert", cosines, element=element), mapped("convert", sines, element=element)


def _double(number: float) -> GraphNode:
    return constant(number, DOUBLE)


def _numbers(places: Sequence[int]) -> GraphNode:
    """Numbers as a vector."""
    runs: list[list[int]] = []
    for place in places:
        if runs and (len(runs[-1]) == 1 or place - runs[-1][-1] == runs[-1][1] - runs[-1][0]):
            runs[-1].append(place)
        else:
            runs.append([place])
    parts = []
    for run in runs:
        step = run[1] - run[0] if len(run) > 1 else 1
        counted = mapped("mul", Position((len(run),), DOUBLE), _double(step))
        parts.append(mapped("add", counted, _double(run[0])))
    return parts[0] if len(parts) == 1 else joined(parts, 0)


def weights(places: Sequence[int], size: int, element: Type) -> GraphNode:
    """How many elements of a whole spectrum of `size` elements each of its first half stands for: 1 or 2."""
    return mapped("convert", _weights(_numbers(places), size), element=element)


def _weights(places: GraphNode, size: int) -> GraphNode:
    is_first, is_middle = (mapped("oeq", places, _double(place), element=BOOL) for place in (0, size / 2))
    one, two = _double(1.0), _double(2.0)
    return mapped("select", mapped("or", is_first, is_middle), one, two, element=DOUBLE)
