"""Sums of products by Einstein's convention.

The gradient of `einsum` is `einsum_like`, whose result may also have labels that no operand has (it repeats along them), and
labels twice (it is zero off the diagonal). The gradient of `einsum_like` is itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import InferenceError
from ..opdef.registry import ShapeOnly, define, required
from ..values.spec import Spec
from .shapes import check_types_agree

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def parsed(equation: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """The labels of each operand and of the result: a letter for each dimension, also in place of ``...``."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise InferenceError(f"equation {equation!r} is of {len(terms)} operands, but there are {len(ndims)}")
    for letter in (left + right).replace("...", "").replace(",", ""):
        if letter not in _LETTERS:
            raise InferenceError(f"equation {equation!r}: {letter!r} is not a label; use letters, ',', '...' and '->'")
    spare = [letter for letter in _LETTERS if letter not in equation]
    hidden = [ndim - len(term.replace("...", "")) for term, ndim in zip(terms, ndims, strict=True)]
    if max(hidden, default=0) > len(spare):
        raise InferenceError(f"equation {equation!r} needs more than {len(_LETTERS)} labels")
    most = max((count for term, count in zip(terms, hidden, strict=True) if "..." in term), default=0)
    labels = []
    for term, ndim, count in zip(terms, ndims, hidden, strict=True):
        if count < 0 or (count and "..." not in term):
            raise InferenceError(f"equation {equation!r}: {term!r} does not name the {ndim} dimensions of its operand")
        labels.append(term.replace("...", "".join(spare[most - count : most])))
    if not arrow:
        once = sorted(letter for letter in set(left) - set(".,") if left.count(letter) == 1)
        right = "..." * ("..." in left) + "".join(once)
    result = right.replace("...", "".join(spare[:most]))
    for letter in result:
        if result.count(letter) > 1 or not any(letter in term for term in labels):
            raise InferenceError(f"equation {equation!r}: {letter!r} should stand once in the result, and in an operand")
    return labels, result


@lru_cache(maxsize=1024)
def contraction_order(terms: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], result: str) -> list[tuple[int, int]]:
    """Order products of operands by their cost; each pair is replaced by its product at the end of the list.

    >>> from fluid.ops.einsum import contraction_order
    >>> contraction_order(("ab", "bc", "cd"), ((100, 100), (100, 100), (100, 1)), "ad")
    [(1, 2), (0, 1)]
    """
    method = "optimal" if len(terms) < 6 else "greedy"
    operands = [np.broadcast_to(0.0, shape) for shape in shapes]
    lasting = "".join(letter for letter in dict.fromkeys(result) if any(letter in term for term in terms))
    (_, *groups), _ = np.einsum_path(f"{','.join(terms)}->{lasting}", *operands, optimize=method)
    pairs, count = [], len(terms)
    for group in groups:
        places = sorted(group)
        while len(places) > 1:  # a group of several is multiplied from the left
            pairs.append((places[0], places[1]))
            count -= 1
            places = [*(place - 2 for place in places[2:]), count - 1]
    return pairs


def common_sizes(terms: Sequence[str], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """Label -> its size in all operands; where one has size 1, it broadcasts.

    >>> from fluid.ops.einsum import common_sizes
    >>> common_sizes(["ab", "b"], [(1, 1), (3,)])
    {'a': 1, 'b': 3}
    """
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            if sizes.get(letter, 1) == 1:
                sizes[letter] = size
    return sizes


def multiply_by_pairs(
    factors: Sequence[tuple[Any, str]], result: str, multiply: Callable[[tuple[Any, str], tuple[Any, str], str], tuple[Any, str]]
) -> tuple[Any, str]:
    """Multiply tensors with their labels, cheapest pair first.

    Args:
        multiply: ``multiply(left, right, labels)`` gives the product of two of them, summed over all labels but these.
    """
    remaining = list(factors)
    order = contraction_order(tuple(term for _, term in factors), tuple(tuple(value.shape) for value, _ in factors), result)
    for left, right in order:
        pair = remaining.pop(left), remaining.pop(right - 1)
        remaining.append(multiply(*pair, result + "".join(term for _, term in remaining)))
    return remaining[0]


def split_labels(left: str, right: str, result: str) -> tuple[str, str, str, str]:
    """The labels of stacks, rows, the sum, and columns in a product of two operands.

    >>> from fluid.ops.einsum import split_labels
    >>> split_labels("bhqd", "bhkd", "bhqk")
    ('bh', 'q', 'd', 'k')
    """
    shared = [letter for letter in left if letter in right]
    stacks = "".join(letter for letter in shared if letter in result)
    summed = "".join(letter for letter in shared if letter not in result)
    rows = "".join(letter for letter in left if letter not in shared)
    return stacks, rows, summed, "".join(letter for letter in right if letter not in shared)


def _sizes(equation: str, terms: Sequence[str], specs: Sequence[Spec]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term, spec in zip(terms, specs, strict=True):
        check_types_agree({"an operand": specs[0], "another": spec})
        for letter, size in zip(term, spec.shape, strict=True):
            repeated_sizes = {n for x, n in zip(term, spec.shape, strict=True) if x == letter and n >= 0}
            if len(repeated_sizes) > 1:
                raise InferenceError(
                    f"equation {equation!r}: {letter!r}, twice in {term!r}, has the sizes {sorted(repeated_sizes)} of {spec}"
                )
            earlier = sizes.setdefault(letter, size)
            if earlier == 1 or (earlier == -1 and size > 1):
                sizes[letter] = size
            elif size not in (1, -1, earlier):
                raise InferenceError(
                    f"equation {equation!r}: {letter!r} has the sizes {earlier} and {size}, which should be equal"
                )
    return sizes


def _einsum(Operands: list[Spec], equation: str) -> dict[str, Any]:
    terms, result = parsed(equation, [spec.ndim for spec in Operands])
    sizes = _sizes(equation, terms, Operands)
    out = Operands[0].with_shape(tuple(sizes[letter] for letter in result))
    return {"Out": out, "InnerCache": list(Operands), "XShape": [spec.with_shape((0, *spec.shape)) for spec in Operands]}


def _parts(f: Any, values: Sequence[Any], terms: Sequence[str], grad: Any, result: str) -> list[Any]:
    """The gradients of all operands, `values`, of a sum whose gradient is `grad`."""
    gradients = []
    for place, value in enumerate(values):
        other_values = [*values[:place], *values[place + 1 :]]
        labels = ",".join([result, *terms[:place], *terms[place + 1 :]])
        gradients.append(f.einsum_like([grad, *other_values], value, equation=f"{labels}->{terms[place]}"))
    return gradients


@define("einsum(Operands*) -> Out, InnerCache*~, XShape*~", infer=_einsum, equation=required("string"))
def einsum(f: Any, InnerCache: Any, XShape: ShapeOnly, dOut: Any, equation: str, dInnerCache: Any = None) -> Any:
    """The products of the operands, summed over all labels that the result lacks: ``"ij,jk->ik"`` multiplies matrices.

    ``...`` stands for further dimensions, which broadcast. Without ``->`` the result has the labels that occur once, sorted.
    InnerCache holds the operands for the gradient.
    """
    terms, result = parsed(equation, [value.ndim for value in InnerCache])

    def parts() -> Any:
        grads = _parts(f, InnerCache, terms, dOut, result)
        return [g if more is None else g + more for g, more in zip(grads, dInnerCache or [None] * len(grads), strict=True)]

    return {"Operands": parts}


def _einsum_like(Operands: list[Spec], Like: Spec, equation: str) -> Spec:
    left, _, result = equation.partition("->")
    terms, specs = [*left.split(","), result], [*Operands, Like.with_dtype(Operands[0].dtype)]
    if len(terms) != len(specs):
        raise InferenceError(f"equation {equation!r} is of {len(terms) - 1} operands, but there are {len(Operands)}")
    for term, spec in zip(terms, specs, strict=True):
        if len(term) != spec.ndim or not set(term) <= set(_LETTERS):
            raise InferenceError(f"equation {equation!r}: {term!r} does not name the {spec.ndim} dimensions of {spec}")
    _sizes(equation, terms, specs)
    return Like


@define(
    "einsum_like(Operands*, Like) -> Out",
    infer=_einsum_like,
    wrt=["Operands"],
    shape_only=["Like"],
    equation=required("string"),
)
def einsum_like(f: Any, Operands: Any, dOut: Any, equation: str) -> Any:
    """As `einsum`, with a result of the shape of Like: the transpose of `einsum`.

    The result is repeated along labels that no operand has or that have size 1 in the operands, summed over labels that have
    size 1 only in Like, and zero off the diagonal of a label that it has twice.
    """
    left, _, result = equation.partition("->")
    return {"Operands": lambda: _parts(f, Operands, left.split(","), dOut, result)}
