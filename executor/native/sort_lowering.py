"""Lowers sorts of few elements: an odd-even network exchanges neighbours, for many rows at once in the lanes of vectors."""

from __future__ import annotations

from math import prod
from typing import Any

from .emitter import BOOL, INT32
from .graph import GraphNode, broadcast_to, constant, joined, mapped, plain, reshaped, sliced, transposed
from .lowering import GraphTensor, NotLowered, element_of, lowers, number_like, only_numbers

_MOST_SORTED = 8
"""The most elements to sort: there is an exchange for each pair of them."""


def _split_columns(node: GraphNode, axis: int) -> list[GraphNode]:
    """Split a node into the elements at each place along an axis, each as [before, after]."""
    count, shape = node.shape[axis], node.shape
    before, after = prod(shape[:axis]), prod(shape[axis + 1 :])
    rows = reshaped(plain(node), (before, count, after))
    if after == 1:
        turned = joined([transposed(reshaped(rows, (before, count)), (1, 0))], 0)
        return [reshaped(sliced(turned, 0, place, 1), (before, 1)) for place in range(count)]
    return [reshaped(sliced(rows, 1, place, 1), (before, after)) for place in range(count)]


def _join_columns(columns: list[GraphNode], shape: tuple[int, ...], axis: int) -> GraphNode:
    """Undo `_split_columns`."""
    before, after = columns[0].shape
    if after == 1:
        return reshaped(
            mapped("copy", transposed(joined([reshaped(column, (1, before)) for column in columns], 0), (1, 0))), shape
        )
    return reshaped(joined([reshaped(column, (before, 1, after)) for column in columns], 1), shape)


def _checked_axis(X: GraphTensor, axis: int) -> int:
    """The axis, counted from the first one; `NotLowered` unless few elements lie along it."""
    only_numbers(X)
    if not X.ndim or X.shape[axis] > _MOST_SORTED or not X.node.size:
        raise NotLowered("many elements to sort, or none")
    return axis % X.ndim


def _belongs_behind(first: GraphNode, second: GraphNode, descending: bool) -> GraphNode:
    """Whether an element belongs behind its neighbour; a NaN belongs behind numbers."""
    is_behind = mapped("ult" if descending else "ugt", first, second, element=BOOL)
    return mapped("and", is_behind, mapped("oeq", second, second, element=BOOL)) if first.element.is_float else is_behind


def _exchanged(swaps: GraphNode, pair: list[GraphNode]) -> list[GraphNode]:
    """Exchange the elements of two columns where `swaps` holds."""
    first, second = pair
    return [mapped("select", swaps, one, another, element=one.element) for one, another in ((second, first), (first, second))]


@lowers("argsort")
def argsort(X: GraphTensor, axis: int, descending: bool, specs: dict[str, Any]) -> dict[str, GraphTensor]:
    """Sort by exchanges of neighbours, which keep the order of equals."""
    axis = _checked_axis(X, axis)
    values = _split_columns(X.node, axis)
    places: list[GraphNode] = [constant(place, INT32) for place in range(len(values))]
    for turn in range(len(values)):
        for first in range(turn % 2, len(values) - 1, 2):
            pair = slice(first, first + 2)
            swaps = _belongs_behind(values[first], values[first + 1], descending)
            values[pair], places[pair] = _exchanged(swaps, values[pair]), _exchanged(swaps, places[pair])
    results = {"Out": values}
    if (indices := specs.get("Indices")) is not None:
        numbers = [mapped("convert", place, element=element_of(indices.dtype)) for place in places]
        results["Indices"] = [broadcast_to(number, values[0].shape) for number in numbers]
    return {slot: GraphTensor(_join_columns(columns, X.shape, axis)) for slot, columns in results.items()}


@lowers("argsort_grad")
def argsort_grad(Indices: GraphTensor, dOut: GraphTensor, axis: int) -> dict[str, GraphTensor]:
    axis = _checked_axis(dOut, axis)
    places, gradients = _split_columns(Indices.node, axis), _split_columns(dOut.node, axis)
    results = []
    for number in range(len(places)):
        total: GraphNode = number_like(0.0, gradients[0])
        for place, gradient in zip(places, gradients, strict=True):
            is_here = mapped("oeq", place, number_like(number, place), element=BOOL)
            total = mapped("select", is_here, gradient, total, element=gradient.element)
        results.append(total)
    return {"X@GRAD": GraphTensor(_join_columns(results, dOut.shape, axis))}
