"""Lowers extremes and their positions, products, running sums, and the broadcast that undoes a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan, prod
from typing import Any

from fluid.ops.reduction import reduced_axes
from fluid.ops.shapes import reduced as reduced_shape
from fluid.values.spec import Spec

from .emitter import BOOL, DOUBLE, FLOAT, INT32, INT64
from .graph import (
    GraphNode,
    Position,
    Running,
    broadcast_to,
    constant,
    joined,
    mapped,
    plain,
    reduced,
    reshaped,
    transposed,
)  # fmt: skip
from .lowering import GraphTensor, NotLowered, element_of, lowers, number_like, only_floats, only_numbers, only_truths


def _axes(X: GraphTensor, dim: Sequence[int], reduce_all: bool) -> tuple[int, ...]:
    only_numbers(X)
    return reduced_axes(X.ndim, dim, reduce_all)


def _greatest(node: GraphNode, axes: Sequence[int]) -> GraphNode:
    return reduced("max", node, axes)


def _least(node: GraphNode, axes: Sequence[int]) -> GraphNode:
    return reduced("min", node, axes)


@lowers("reduce_max")
def reduce_max(X: GraphTensor, dim: list[int], reduce_all: bool, specs: dict[str, Any]) -> GraphTensor:
    return GraphTensor(reshaped(mapped("copy", _greatest(X.node, _axes(X, dim, reduce_all))), specs["Out"].shape))


@lowers("reduce_min")
def reduce_min(X: GraphTensor, dim: list[int], reduce_all: bool, specs: dict[str, Any]) -> GraphTensor:
    return GraphTensor(reshaped(mapped("copy", _least(X.node, _axes(X, dim, reduce_all))), specs["Out"].shape))


@lowers("reduce_prod")
def reduce_prod(X: GraphTensor, dim: list[int], reduce_all: bool, specs: dict[str, Any]) -> GraphTensor:
    return GraphTensor(reshaped(mapped("copy", reduced("prod", X.node, _axes(X, dim, reduce_all))), specs["Out"].shape))


@lowers("reduce_prod_grad")
def reduce_prod_grad(X: GraphTensor, dOut: GraphTensor, dim: list[int], reduce_all: bool) -> dict[str, GraphTensor]:
    """Multiply the products of the factors before and behind each one: no division by zero."""
    only_floats(X)
    axes = reduced_axes(X.ndim, dim, reduce_all)
    order = [*(axis for axis in range(X.ndim) if axis not in axes), *axes]
    are_neighbours = axes == tuple(range(axes[0], axes[0] + len(axes))) if axes else True
    node = X.node if are_neighbours else mapped("copy", transposed(plain(X.node), order))
    count = prod(X.shape[axis] for axis in axes)
    after = prod(X.shape[axes[-1] + 1 :]) if axes and are_neighbours else 1
    before, behind = (_running("prod", node, count, after, True, reverse) for reverse in (False, True))
    products = reshaped(mapped("mul", before, behind), node.shape)
    if not are_neighbours:
        products = transposed(products, [order.index(axis) for axis in range(X.ndim)])
    gradient = reshaped(dOut.node, reduced_shape(X.shape, axes, keep_dim=True))
    return {"X@GRAD": GraphTensor(mapped("mul", products, gradient))}


def _running(kind: str, node: GraphNode, count: int, after: int, exclusive: bool, reverse: bool) -> GraphNode:
    """Running totals of every `count` elements that lie `after` elements apart, as [before, count, after]."""
    if node.element not in (FLOAT, DOUBLE, INT32, INT64):
        raise NotLowered("running totals of halves, bytes or truth values")
    if not node.size:
        raise NotLowered("running totals of nothing")
    source = reshaped(plain(node), (node.size // (count * after), count, after))
    return Running(source.shape, node.element, source, kind, exclusive, reverse)


@lowers("cumsum")
def cumsum(X: GraphTensor, axis: int, flatten: bool, exclusive: bool, reverse: bool, specs: dict[str, Any]) -> GraphTensor:
    if X.node.element == BOOL or not X.ndim:
        raise NotLowered("running sums of truth values, or of a number")
    shape = (X.node.size,) if flatten else X.shape
    axis %= len(shape)
    totals = _running("sum", X.node, shape[axis], prod(shape[axis + 1 :]), exclusive, reverse)
    result, element = reshaped(totals, specs["Out"].shape), element_of(specs["Out"].dtype)
    return GraphTensor(result if element == totals.element else mapped("convert", result, element=element))


@lowers("logcumsumexp_grad")
def logcumsumexp_grad() -> None:
    raise NotLowered("what the rule computes by differences of running sums, which cancel")


# ------------------------------------------------------------------------------------------------- positions of extremes
MOST_COLUMNS = 1 << 29
"""A position, and twice the number of columns, are integers of 32 bits."""
_LONG_ROW, _VERY_LONG_ROW = 1 << 10, 1 << 15
_MOST_PLACES, _MOST_OF_LONG_ROWS, _MOST_OF_VERY_LONG_ROWS = 16, 8, 2
"""The most elements of a row that are found one by one, each in two passes over the row. Measured with AVX2: for 16 of 5,000
columns numpy takes 0.65 of the time, for 8 of 5,000 1.4 times, for 16 of 1,000 1.3 times. The limits are half for elements of 8
bytes: for 10 of 1,000 such integers numpy takes 1.1 times. With AVX-512, for 5 of 50,000 it takes 0.7 of the time, for 2 1.4."""


def _as_rows(X: GraphTensor, axis: int) -> GraphNode:
    """A tensor as a matrix whose rows lie along an axis."""
    only_numbers(X)
    axis %= max(X.ndim, 1)
    if X.ndim and X.shape[axis] >= MOST_COLUMNS:
        raise NotLowered("positions of more than 32 bits")
    order = [*(number for number in range(X.ndim) if number != axis), axis]
    node = X.node if X.ndim < 2 or axis == X.ndim - 1 else mapped("copy", transposed(plain(X.node), order))
    count = X.shape[axis] if X.ndim else 1
    return reshaped(plain(node), (X.node.size // count, count))


def _integer(number: int) -> GraphNode:
    return constant(number, INT32)


def _shift(positions: GraphNode, number: int) -> GraphNode:
    return mapped("add", positions, _integer(number))


def _first(is_hit: GraphNode, positions: GraphNode) -> GraphNode:
    """The first position in each row where a truth holds, of at least one."""
    count = is_hit.shape[1]
    return mapped("neg", _greatest(mapped("select", is_hit, mapped("neg", positions), _integer(-count), element=INT32), [1]))


def _is_nan(node: GraphNode) -> GraphNode:
    return mapped("une", node, node, element=BOOL)


def greatest_place(rows: GraphNode) -> tuple[GraphNode, GraphNode]:
    """The greatest element of each row and its first position; a NaN is greater than all numbers, as in numpy."""
    greatest = _greatest(rows, [1])
    return greatest, _first(is_greatest(rows, greatest), Position(rows.shape, INT32))


def is_greatest(node: GraphNode, greatest: GraphNode) -> GraphNode:
    """Whether elements are as large as the greatest of theirs; a NaN is greater than all numbers."""
    is_equal = mapped("oeq", node, greatest, element=BOOL)
    return mapped("or", is_equal, _is_nan(node), element=BOOL) if node.element.is_float else is_equal


def _bounds(node: GraphNode) -> tuple[GraphNode, GraphNode]:
    """The least and the greatest number of an element type."""
    if node.element.is_float:
        return number_like(-inf, node), number_like(inf, node)
    half = 1 << (8 * node.element.bytes - 1)
    return number_like(-half, node), number_like(half - 1, node)


def _reversed(node: GraphNode) -> GraphNode:
    """Numbers in the opposite order, which gives them back when it is applied again; an integer without a negative has -1 - x."""
    return mapped("neg", node) if node.element.is_float else mapped("sub", number_like(-1, node), node)


def _greatest_places(rows: GraphNode, k: int) -> tuple[list[GraphNode], list[GraphNode]]:
    """The k greatest elements of each row in order, and their positions; NaNs come last, and of equals the first comes first.

    Each step looks for the greatest element behind the one that it found last. The place of a NaN is its position plus the number
    of columns, which is behind all numbers.
    """
    count, positions = rows.shape[1], Position(rows.shape, INT32)
    least, greatest = _bounds(rows)
    values, places = list[GraphNode](), list[GraphNode]()
    value: GraphNode = greatest
    place = _integer(-1)
    for _ in range(k):
        is_later = mapped("and", mapped("oeq", rows, value, element=BOOL), mapped("ogt", positions, place, element=BOOL))
        is_left = mapped("or", mapped("olt", rows, value, element=BOOL), is_later, element=BOOL)
        value = _greatest(mapped("select", is_left, rows, least, element=rows.element), [1])
        is_hit = mapped("and", is_left, mapped("oeq", rows, value, element=BOOL), element=BOOL)
        if not rows.element.is_float:
            place = _first(is_hit, positions)
            values.append(value)
            places.append(place)
            continue
        late = _shift(positions, count)
        is_nan = mapped("and", _is_nan(rows), mapped("ogt", late, place, element=BOOL), element=BOOL)
        rank = mapped("select", is_nan, mapped("neg", late), _integer(-2 * count), element=INT32)
        rank = mapped("select", is_hit, mapped("neg", positions), rank, element=INT32)
        place = mapped("neg", _greatest(rank, [1]))
        is_late = mapped("oge", place, _integer(count), element=BOOL)
        values.append(mapped("select", is_late, number_like(nan, rows), value, element=rows.element))
        places.append(mapped("select", is_late, _shift(place, -count), place, element=INT32))
    return values, places


@lowers("arg_max")
def arg_max(X: GraphTensor, axis: int, flatten: bool, specs: dict[str, Any]) -> GraphTensor:
    only_numbers(X)
    rows = reshaped(plain(X.node), (1, X.node.size)) if flatten else _as_rows(X, axis)
    return _position(greatest_place(rows)[1], specs["Out"])


@lowers("arg_min")
def arg_min(X: GraphTensor, axis: int, flatten: bool, specs: dict[str, Any]) -> GraphTensor:
    return arg_max(GraphTensor(_reversed(X.node)), axis, flatten, specs)


def _most_places(columns: int) -> int:
    """The most of the largest elements of a row that native code finds."""
    if columns > _VERY_LONG_ROW:
        return _MOST_OF_VERY_LONG_ROWS
    return _MOST_OF_LONG_ROWS if columns > _LONG_ROW else _MOST_PLACES


def _position(place: GraphNode, spec: Spec) -> GraphTensor:
    return GraphTensor(reshaped(place, spec.shape)).astype(spec.dtype)


@lowers("top_k")
def top_k(X: GraphTensor, K: Any, k: int, specs: dict[str, Any]) -> dict[str, GraphTensor]:
    return top_k_v2(X, K, k, -1, True, specs)


@lowers("top_k_v2")
def top_k_v2(X: GraphTensor, K: Any, k: int, axis: int, largest: bool, specs: dict[str, Any]) -> dict[str, GraphTensor]:
    only_numbers(X)
    axis %= X.ndim
    most = _most_places(X.shape[axis])
    if K is not None or k > (most // 2 if X.node.element.bytes == 8 else most):
        raise NotLowered("many places, or a number that only running tells")
    node = X.node if largest else _reversed(X.node)
    rows = _as_rows(GraphTensor(node), axis)
    if k == 1:
        parts = [[part] for part in greatest_place(rows)]
    else:
        parts = list(_greatest_places(rows, k))
    values, places = (part[0] if k == 1 else joined(part, 1) for part in parts)
    if not largest:
        values = _reversed(values)
    before = (*X.shape[:axis], *X.shape[axis + 1 :], k)
    order = [*range(axis), X.ndim - 1, *range(axis, X.ndim - 1)]

    def turned(node: GraphNode) -> GraphNode:
        return mapped("copy", transposed(reshaped(plain(node), before), order))

    return {"Out": GraphTensor(turned(values)), "Indices": GraphTensor(turned(places)).astype(specs["Indices"].dtype)}


@lowers("reduce_any")
def reduce_any(
    X: GraphTensor, AxisTensor: Any, AxisTensorList: Any, dim: list[int], reduce_all: bool, specs: dict[str, Any]
) -> GraphTensor:
    return _test(X.node, AxisTensor or AxisTensorList, dim, reduce_all, specs["Out"])


@lowers("reduce_all")
def reduce_all(
    X: GraphTensor, AxisTensor: Any, AxisTensorList: Any, dim: list[int], reduce_all: bool, specs: dict[str, Any]
) -> GraphTensor:
    only_truths(X)
    some = _test(mapped("not", X.node, element=BOOL), AxisTensor or AxisTensorList, dim, reduce_all, specs["Out"])
    return GraphTensor(mapped("not", some.node, element=BOOL))


def _test(truths: GraphNode, axes: Any, dim: list[int], reduce_all: bool, out: Spec) -> GraphTensor:
    """Whether any of some truths holds."""
    only_truths(GraphTensor(truths))
    if axes:
        raise NotLowered("axes in tensors")
    numbers = mapped("convert", truths, element=INT32)
    most = _greatest(numbers, reduced_axes(truths.ndim, dim, reduce_all))
    return GraphTensor(reshaped(mapped("une", most, _integer(0), element=BOOL), out.shape))


@lowers("expand_reduced")
def expand_reduced(X: GraphTensor, Like: GraphTensor, dim: list[int], reduce_all: bool, average: bool) -> GraphTensor:
    only_floats(X)
    shape, axes = Like.shape, reduced_axes(Like.ndim, dim, reduce_all)
    node = reshaped(X.node, reduced_shape(shape, axes, keep_dim=True))
    if average:
        node = mapped("mul", node, number_like(1.0 / max(prod(shape[axis] for axis in axes), 1), node))
    return GraphTensor(broadcast_to(node, shape))


# ----------------------------------------------------------------------------------------------------------------- norms
