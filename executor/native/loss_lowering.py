"""Lowers losses, with helpers that pick and place the labelled elements for their gradients."""

from __future__ import annotations

from functools import partial, reduce
from math import prod

from .activation_lowering import chosen
from .emitter import BOOL, INT32, INT64
from .graph import Choice, GraphNode, Position, Scattered, mapped, plain, reduced, reshaped, sliced
from .lowering import NAMESPACE, GraphTensor, NotLowered, differs, lowers, number_like
from .shape_lowering import elements_along

f = NAMESPACE


# ------------------------------------------------------------------------------------------------------- hard labels
def labels_of(labels: GraphNode, shape: tuple[int, ...], ignore_index: int) -> tuple[GraphNode, GraphNode]:
    """Labels in a shape, with 0 for ignored ones; and a mask of the valid labels."""
    if labels.element not in (INT32, INT64) or labels.size != prod(shape):
        raise NotLowered("labels that are no integers, or not one for each row")
    label = reshaped(labels, shape)
    is_valid = differs(label, ignore_index)
    return mapped("select", is_valid, label, number_like(0, label), element=label.element), is_valid


def picked(source: GraphNode, ids: GraphNode, axis: int = -1) -> GraphNode:
    """Pick one element along an axis."""
    if axis % source.ndim < source.ndim - 1:
        chosen = mapped("select", is_label(source.shape, ids, axis), source, number_like(0.0, source), element=source.element)
        return reduced("sum", chosen, [axis])
    rows = source.size // source.shape[-1]
    choice = Choice((rows, 1), source.element, reshaped(source, (rows, source.shape[-1])), reshaped(ids, (rows, 1)))
    return reshaped(choice, (*source.shape[:-1], 1))


def is_label(shape: tuple[int, ...], label: GraphNode, axis: int = -1) -> GraphNode:
    """A mask of the labelled elements along an axis."""
    ids, axis = mapped("convert", label, element=INT32), axis % len(shape)
    if axis == len(shape) - 1:
        return mapped("oeq", Position(shape, INT32), ids, element=BOOL)
    numbers = mapped("copy", Position((shape[axis],), INT32))
    return mapped("oeq", reshaped(numbers, (shape[axis], *[1] * (len(shape) - 1 - axis))), ids, element=BOOL)


def _only_last(axis: int, ndim: int) -> None:
    if not ndim or axis % ndim != ndim - 1:
        raise NotLowered("an axis that is not the last, or none")


@lowers("pick")
def pick(X: GraphTensor, Index: GraphTensor, axis: int, ignore_index: int, default: float) -> GraphTensor:
    _only_last(axis, X.ndim)
    ids, is_valid = labels_of(Index.node, (*X.shape[:-1], 1), ignore_index)
    return chosen(GraphTensor(is_valid), GraphTensor(picked(X.node, ids)), default)


_MOST_PLACED = 2
"""The most elements of a row that `place` adds, each by a comparison with each column: with AVX-512, 4 in 8,192 rows of
64 take 1.0 ms thus and 0.7 ms one after the other."""


@lowers("place")
def place(X: GraphTensor, Index: GraphTensor, Like: GraphTensor, axis: int, ignore_index: int) -> GraphTensor:
    shape, count = Like.shape[-X.ndim :], X.shape[-1] if X.ndim else 0
    if X.ndim and (count > _MOST_PLACED or axis % X.ndim != X.ndim - 1):
        return _placed_by_row(X, Index, Like, axis, ignore_index)
    _only_last(axis, X.ndim)

    def placed(x: GraphNode, index: GraphNode) -> GraphNode:
        ids, is_valid = labels_of(index, (*shape[:-1], 1), ignore_index)
        hit = mapped("and", is_label(shape, ids), is_valid)
        return mapped("select", hit, x, number_like(0.0, x), element=x.element)

    if count == 1:
        return GraphTensor(placed(X.node, Index.node))
    columns = [[sliced(plain(node), X.ndim - 1, column, 1) for node in (X.node, Index.node)] for column in range(count)]
    return GraphTensor(reduce(partial(mapped, "add"), [placed(x, index) for x, index in columns]))


def _placed_by_row(X: GraphTensor, Index: GraphTensor, Like: GraphTensor, axis: int, ignore_index: int) -> GraphTensor:
    """Add elements at any places, one after the other."""
    if not X.node.element.is_float or Like.ndim != X.ndim or not Like.node.size:
        raise NotLowered("no floats, or more dimensions")
    places = elements_along(Index, Like.shape, axis % X.ndim)
    is_valid = reshaped(differs(Index.node, ignore_index), (places.size, 1))
    places = mapped("select", is_valid, places, number_like(-1, places), element=places.element)
    sums = Scattered((Like.node.size, 1), X.node.element, reshaped(plain(X.node), (places.size, 1)), places)
    return GraphTensor(reshaped(sums, Like.shape))


def minus_log(probabilities: GraphNode) -> GraphNode:
    """The negative logarithm; 1e20 for 0."""
    is_zero = mapped("oeq", probabilities, number_like(0.0, probabilities), element=BOOL)
    logs = mapped("neg", mapped("log", probabilities))
    return mapped("select", is_zero, number_like(1e20, logs), logs, element=logs.element)
