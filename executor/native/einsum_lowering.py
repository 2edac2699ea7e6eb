"""Lowers sums of products by Einstein's convention: pairs of operands become products of stacks of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluid.ops.einsum import common_sizes, multiply_by_pairs, parsed, split_labels

from .graph import GraphNode, broadcast_to, mapped, product, reduced, reshaped, transposed
from .lowering import GraphTensor, NotLowered, lowers, only_floats

_Term = tuple[GraphNode, str]
"""A node, and a label for each of its axes."""


def _summed(term: _Term, dropped: str) -> _Term:
    """Sum a term over labels, which it loses."""
    node, labels = term
    axes = [axis for axis, letter in enumerate(labels) if letter in dropped]
    remaining = "".join(letter for letter in labels if letter not in dropped)
    shape = tuple(extent for axis, extent in enumerate(node.shape) if axis not in axes)
    return (reshaped(reduced("sum", node, axes), shape), remaining) if axes else term


def _ordered(term: _Term, order: str) -> GraphNode:
    node, labels = term
    return transposed(node, [labels.index(letter) for letter in order])


def _spread(term: _Term, order: str) -> GraphNode:
    """The node with its labels in the order of `order`, and extents of 1 for labels that it lacks."""
    node, labels = term
    present = "".join(letter for letter in order if letter in labels)
    extents = dict(zip(labels, node.shape, strict=True))
    return reshaped(_ordered(term, present), tuple(extents.get(letter, 1) for letter in order))


def _matrices(term: _Term, stacks: str, rows: str, columns: str) -> GraphNode:
    """Arrange a term as a stack of matrices: the axes of `rows` become one axis, and so do the axes of `columns`."""
    node, labels = term
    extents = dict(zip(labels, node.shape, strict=True))
    shape = [extents[letter] for letter in stacks]
    sides = [prod(extents[letter] for letter in side) for side in (rows, columns)]
    return reshaped(_ordered(term, stacks + rows + columns), (*shape, *sides))


def _multiplied(left: _Term, right: _Term, needed: str) -> _Term:
    """Multiply two terms, and sum over the labels that are not needed."""
    left = _summed(left, "".join(set(left[1]) - set(right[1]) - set(needed)))
    right = _summed(right, "".join(set(right[1]) - set(left[1]) - set(needed)))
    extents = dict(zip(left[1] + right[1], left[0].shape + right[0].shape, strict=True))
    stacks, rows, summed, columns = split_labels(left[1], right[1], needed)
    if not summed or not (rows or columns):
        labels = "".join(letter for letter in dict.fromkeys(needed) if letter in extents) + summed
        return _summed((mapped("mul", _spread(left, labels), _spread(right, labels)), labels), summed)
    if needed[max(map(needed.find, rows + columns))] in rows:  # so that columns, which come last, do in the result
        left, right, rows, columns = right, left, columns, rows
    factors = _matrices(left, stacks, rows, summed), _matrices(right, stacks, summed, columns)
    labels = stacks + rows + columns
    return reshaped(product(*factors), tuple(extents[letter] for letter in labels)), labels


def multiply_terms(terms: Sequence[_Term], result: str) -> GraphNode:
    """Multiply two terms; returns their product, with the labels `result`."""
    left, right = terms
    return mapped("copy", _ordered(_multiplied(left, right, result), result))


def _contracted(nodes: Sequence[GraphNode], terms: Sequence[str], result: str) -> _Term:
    """The sum of products of nodes, with the labels of `result` that they have."""
    extents = common_sizes(terms, [node.shape for node in nodes])
    factors = []
    for node, term in zip(nodes, terms, strict=True):
        repeated = "".join(letter for letter, extent in zip(term, node.shape, strict=True) if extent == 1 != extents[letter])
        factors.append(_summed((node, term), repeated))
    node, labels = multiply_by_pairs(factors, result, _multiplied)
    return _summed((node, labels), "".join(set(labels) - set(result)))


def _sum_of_products(operands: Sequence[GraphTensor], terms: Sequence[str], result: str, shape: tuple[int, ...]) -> GraphTensor:
    """The sum of products with the labels `result`, repeated along labels that no operand has."""
    only_floats(*operands)
    if len(set(result)) < len(result) or any(len(set(term)) < len(term) for term in terms):
        raise NotLowered("a diagonal")
    if not all(tensor.node.size for tensor in operands):
        raise NotLowered("nothing to sum")
    wide = "".join(letter for letter, extent in zip(result, shape, strict=True) if extent != 1)
    term = _contracted([tensor.node for tensor in operands], terms, wide)
    return GraphTensor(broadcast_to(mapped("copy", _spread(term, result)), shape))


@lowers("einsum")
def einsum(Operands: list[GraphTensor], equation: str, specs: dict[str, Any]) -> dict[str, Any]:
    terms, result = parsed(equation, [tensor.ndim for tensor in Operands])
    out = _sum_of_products(Operands, terms, result, specs["Out"].shape)
    return {"Out": out, "InnerCache": Operands}


@lowers("einsum_like")
def einsum_like(Operands: list[GraphTensor], Like: GraphTensor, equation: str) -> GraphTensor:
    terms, _, result = equation.partition("->")
    return _sum_of_products(Operands, terms.split(","), result, Like.shape)
