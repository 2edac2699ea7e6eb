"""Lowers metrics, and the checks of mixed precision."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from .emitter import BOOL, DOUBLE, FLOAT, INT32
from .graph import (
    GraphNode,
    Position,
    broadcast_to,
    constant,
    joined,
    mapped,
    plain,
    product,
    reduced,
    reshaped,
    sliced,
    transposed,
)
from .lowering import GraphTensor, NotLowered, element_of, lowers, number_like, only_floats


def _any(bools: GraphNode, axes: Sequence[int]) -> GraphNode:
    """Reduce bools by "or"; the axes remain with extent 1."""
    numbers = mapped("convert", bools, element=INT32)
    return mapped("une", reduced("max", numbers, axes), constant(0, INT32), element=BOOL)


def _as_output(node: GraphNode, spec: Any) -> GraphTensor:
    """Convert a number to the shape and the element type of an output."""
    return GraphTensor(reshaped(mapped("convert", node, element=element_of(spec.dtype)), spec.shape))


@lowers("accuracy")
def accuracy(Indices: GraphTensor, Label: GraphTensor, specs: dict[str, Any]) -> dict[str, GraphTensor]:
    rows, _ = Indices.shape
    element = DOUBLE if rows >= 1 << 24 else FLOAT
    labels = mapped("convert", reshaped(plain(Label.node), (rows, 1)), element=Indices.node.element)
    is_hit = _any(mapped("oeq", Indices.node, labels, element=BOOL), [1])
    correct = reduced("sum", mapped("convert", is_hit, element=element), [0])
    total = constant(rows, element)
    results = {"Accuracy": mapped("div", correct, total), "Correct": correct, "Total": broadcast_to(total, (1, 1))}
    return {slot: _as_output(node, specs[slot]) for slot, node in results.items() if specs.get(slot) is not None}


# ------------------------------------------------------------------------------------------- the area under the ROC curve
_BLOCK = 64
"""Suffix sums are computed in blocks of so many bins."""


@lowers("auc")
def auc(
    Predict: GraphTensor,
    Label: GraphTensor,
    StatPos: GraphTensor,
    StatNeg: GraphTensor,
    InsTagWeight: Any,
    num_thresholds: int,
    slide_steps: int,
    specs: dict[str, Any],
) -> dict[str, GraphTensor]:
    only_floats(Predict)
    rows, columns = Predict.shape
    if InsTagWeight is not None or rows >= 1 << 24:
        raise NotLowered("weighted rows, or very many")
    predicted = sliced(plain(Predict.node), 1, columns - 1, 1)
    places = mapped("convert", mapped("mul", predicted, number_like(num_thresholds, predicted)), element=INT32)
    is_positive = mapped("une", reshaped(plain(Label.node), (rows, 1)), number_like(0, Label.node), element=BOOL)
    is_in_bin = mapped("oeq", Position((rows, num_thresholds + 1), INT32), places, element=BOOL)
    results: dict[str, GraphTensor] = {}
    totals = []
    for slot, stat, chosen in (("StatPosOut", StatPos, is_positive), ("StatNegOut", StatNeg, _not(is_positive))):
        is_counted = mapped("and", is_in_bin, chosen, element=BOOL)
        new = mapped("convert", reduced("sum", mapped("convert", is_counted, element=FLOAT), [0]), element=stat.node.element)
        counts, total = _updated_counts(stat.node, new, slide_steps)
        totals.append(mapped("convert", total, element=DOUBLE))
        if specs.get(slot) is not None:
            results[slot] = GraphTensor(reshaped(counts, stat.shape))
    if specs.get("AUC") is not None:
        results["AUC"] = _as_output(_area_under_curve(*totals), specs["AUC"])
    return results


def _updated_counts(stat: GraphNode, new: GraphNode, steps: int) -> tuple[GraphNode, GraphNode]:
    """Add the counts of a batch to the state of ``auc``.

    Args:
        stat: the state: the counts of all batches; or, if `steps` is not 0, the counts of each of the last `steps` batches, their
            sums, and the number of batches.
        new: the counts of the batch [1, bins].

    Returns:
        The next state [1, size], and the sums of the counts [1, bins].
    """
    bins = new.shape[1]
    flat = reshaped(plain(stat), (1, stat.size))
    if not steps:
        total = mapped("add", flat, new)
        return total, total
    batches = reshaped(plain(sliced(flat, 1, 0, steps * bins)), (steps, bins))
    number = sliced(flat, 1, flat.size - 1, 1)
    turns = reshaped(plain(mapped("convert", Position((1, steps), INT32), element=stat.element)), (steps, 1))
    is_oldest = mapped("oeq", turns, mapped("mod", number, constant(steps, stat.element)), element=BOOL)
    oldest = mapped("select", is_oldest, batches, constant(0, stat.element), element=stat.element)
    oldest = mapped("convert", reduced("sum", mapped("convert", oldest, element=DOUBLE), [0]), element=stat.element)
    one = broadcast_to(constant(1, stat.element), (1, 1))
    changes = joined([mapped("sub", new, oldest), one], 1)  # behind the sums lies the number of batches
    sums = mapped("add", sliced(flat, 1, steps * bins, bins + 1), changes)
    batches = mapped("select", is_oldest, new, batches, element=stat.element)
    following = joined([reshaped(plain(batches), (1, steps * bins)), sums], 1)
    return mapped("copy", following), sliced(plain(sums), 1, 0, bins)  # a copy: its parts read the memory that it overwrites


def _area_under_curve(positive: GraphNode, negative: GraphNode) -> GraphNode:
    """The area under the ROC curve of counts [1, bins] of float64, by trapezoids."""
    beside = _suffix_sums(positive)
    heights = mapped("add", beside, mapped("sub", beside, positive))
    area = mapped("mul", reduced("sum", mapped("mul", negative, heights), [1]), constant(0.5, DOUBLE))
    pairs = mapped("mul", reduced("sum", positive, [1]), reduced("sum", negative, [1]))
    is_there = mapped("ogt", pairs, constant(0.0, DOUBLE), element=BOOL)
    return mapped("div", area, mapped("select", is_there, pairs, constant(1.0, DOUBLE), element=DOUBLE))


def _suffix_sums(counts: GraphNode) -> GraphNode:
    """For each bin of counts [1, bins], the sum of the counts from this bin to the last."""
    bins = counts.shape[1]
    blocks = -(-bins // _BLOCK)
    padding = blocks * _BLOCK - bins
    filled = joined([counts, broadcast_to(constant(0.0, DOUBLE), (1, padding))], 1) if padding else counts
    matrix = reshaped(plain(filled), (blocks, _BLOCK))
    within = product(matrix, _lower_triangle(_BLOCK, 0))
    later_blocks = product(transposed(_lower_triangle(blocks, 1), (1, 0)), reduced("sum", matrix, [1]))
    return sliced(reshaped(plain(mapped("add", within, later_blocks)), (1, blocks * _BLOCK)), 1, 0, bins)


def _lower_triangle(count: int, offset: int) -> GraphNode:
    """A square matrix with 1 where row >= column + offset, else 0."""
    columns = mapped("convert", Position((1, count), INT32), element=INT32)
    rows = reshaped(plain(columns), (count, 1))
    is_one = mapped("oge", rows, mapped("add", columns, constant(offset, INT32)), element=BOOL)
    return mapped("convert", is_one, element=DOUBLE)


# ------------------------------------------------------------------------------------------------------ finite numbers
def _is_nan(node: GraphNode) -> GraphNode:
    return mapped("une", node, node, element=BOOL)


def _is_infinite(node: GraphNode) -> GraphNode:
    return mapped("oeq", mapped("abs", node), number_like(inf, node), element=BOOL)


def _is_not_finite(node: GraphNode) -> GraphNode:
    return mapped("or", _is_nan(node), _is_infinite(node), element=BOOL)


def _not(node: GraphNode) -> GraphNode:
    return mapped("not", node, element=BOOL)


@lowers("isnan_v2")
def isnan_v2(X: GraphTensor) -> GraphTensor:
    only_floats(X)
    return GraphTensor(_is_nan(X.node))


@lowers("isinf_v2")
def isinf_v2(X: GraphTensor) -> GraphTensor:
    only_floats(X)
    return GraphTensor(_is_infinite(X.node))


@lowers("isfinite_v2")
def isfinite_v2(X: GraphTensor) -> GraphTensor:
    only_floats(X)
    return GraphTensor(_not(_is_not_finite(X.node)))
