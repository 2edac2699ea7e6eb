"""Kernels of `fluid.ops.einsum`: pairs of operands are multiplied as stacks of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluid.ops.einsum import common_sizes, multiply_by_pairs, parsed, split_labels

from ..runtime.products import multiply
from .portable import copy
from .table import kernel


def _without(array: Any, labels: str, dropped: str) -> tuple[Any, str]:
    """`array` summed over the labels `dropped`."""
    axes = tuple(axis for axis, letter in enumerate(labels) if letter in dropped)
    return (array.sum(axes), "".join(letter for letter in labels if letter not in dropped)) if axes else (array, labels)


def _prepared(xp: Any, array: Any, labels: str, extents: dict[str, int]) -> tuple[Any, str]:
    """Reduce repeated labels of `array` to one each, and drop the dimensions to repeat it along."""
    if len(set(labels)) < len(labels):
        once = "".join(dict.fromkeys(labels))
        array, labels = xp.einsum(f"{labels}->{once}", array), once
    return _without(array, labels, "".join(x for x, n in zip(labels, array.shape, strict=True) if n == 1 != extents[x]))


def _ordered(array: Any, labels: str, order: str) -> Any:
    return array.transpose([labels.index(letter) for letter in order]) if labels != order else array


def _multiplied(xp: Any, left: Any, left_labels: str, right: Any, right_labels: str, result_labels: str) -> tuple[Any, str]:
    """Multiply two arrays, and sum over the labels that are not in `result_labels`."""
    left, left_labels = _without(left, left_labels, "".join(set(left_labels) - set(right_labels) - set(result_labels)))
    right, right_labels = _without(right, right_labels, "".join(set(right_labels) - set(left_labels) - set(result_labels)))
    extents = dict(zip(left_labels + right_labels, left.shape + right.shape, strict=True))
    stacks, rows, summed, columns = split_labels(left_labels, right_labels, result_labels)

    def matrices(array: Any, labels: str, *groups: str) -> Any:
        return _ordered(array, labels, "".join(groups)).reshape([prod(extents[x] for x in group) for group in groups])

    product = multiply(
        xp, matrices(left, left_labels, stacks, rows, summed), matrices(right, right_labels, stacks, summed, columns)
    )
    labels = stacks + rows + columns
    return product.reshape([extents[letter] for letter in labels]), labels


def contracted(xp: Any, arrays: Sequence[Any], terms: Sequence[str], result: str) -> tuple[Any, str]:
    """Sum products over all labels that `result` lacks; returns the sum, and its labels. Labels without an operand are left
    out."""
    extents = common_sizes(terms, [array.shape for array in arrays])
    factors = [_prepared(xp, array, term, extents) for array, term in zip(arrays, terms, strict=True)]
    product, labels = multiply_by_pairs(factors, result, lambda left, right, needed: _multiplied(xp, *left, *right, needed))
    return _without(product, labels, "".join(set(labels) - set(result)))


@kernel("einsum")
def einsum(xp: Any, Operands: list[Any], equation: str, Out: Any, InnerCache: Any) -> None:
    terms, result = parsed(equation, [array.ndim for array in Operands])
    if Out is not None:
        product, labels = contracted(xp, Operands, terms, result)
        xp.copyto(Out, _spread(product, labels, result))
    for source, target in zip(Operands, InnerCache or (), strict=False):
        if target is not None:
            for step in copy(xp, source, target):
                step()


def _spread(array: Any, labels: str, order: str) -> Any:
    """Reorder the labels of `array`, with an extent of 1 for missing labels."""
    array = _ordered(array, labels, "".join(letter for letter in order if letter in labels))
    return array[tuple(slice(None) if letter in labels else None for letter in order)]


@kernel("einsum_like")
def einsum_like(xp: Any, Operands: list[Any], equation: str, Out: Any) -> None:
    left, _, result = equation.partition("->")
    lasting = "".join(letter for letter, extent in zip(result, Out.shape, strict=True) if extent != 1)
    product, labels = contracted(xp, Operands, left.split(","), lasting)
    once = "".join(dict.fromkeys(result))
    target = Out
    if once != result:
        Out.fill(0)
        target = xp.lib.stride_tricks.as_strided(
            Out,
            [Out.shape[result.index(letter)] for letter in once],
            [sum(stride for stride, x in zip(Out.strides, result, strict=True) if x == letter) for letter in once],
        )
    xp.copyto(target, _spread(product, labels, once))
