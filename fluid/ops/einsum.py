"""Sums of products by Einstein's convention.

The gradient of such a sum is another one, if its result may have labels that no operand has (it repeats along them) and
labels twice (it is zero off the diagonal). That is `einsum_like`, which is its own transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InferenceError
from ..opdef.registry import ShapeOnly, define, required
from ..values.spec import Spec

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def parsed(equation: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """The labels of each operand and of the result, one letter for each dimension, with letters in place of ``...``."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise InferenceError(f"equation {equation!r} is of {len(terms)} operands, but there are {len(ndims)}")
    for letter in (left + right).replace("...", "").replace(",", ""):
        if letter not in _LETTERS:
            raise InferenceError(f"equation {equation!r}: {letter!r} is no label; use letters, ',', '...' and '->'")
    spare = [letter for letter in _LETTERS if letter not in equation]
    hidden = [ndim - len(term.replace("...", "")) for term, ndim in zip(terms, ndims, strict=True)]
    if max(hidden, default=0) > len(spare):
        raise InferenceError(f"equation {equation!r} needs more than {len(_LETTERS)} labels")
    most = max((count for term, count in zip(terms, hidden, strict=True) if "..." in term), default=0)
    found = []
    for term, ndim, count in zip(terms, ndims, hidden, strict=True):
        if count < 0 or (count and "..." not in term):
            raise InferenceError(f"equation {equation!r}: {term!r} does not name the {ndim} dimensions of its operand")
        found.append(term.replace("...", "".join(spare[most - count : most])))
    if not arrow:
        once = sorted(letter for letter in set(left) - set(".,") if left.count(letter) == 1)
        right = "..." * ("..." in left) + "".join(once)
    result = right.replace("...", "".join(spare[:most]))
    for letter in result:
        if result.count(letter) > 1 or not any(letter in term for term in found):
            raise InferenceError(f"equation {equation!r}: {letter!r} should stand once in the result, and in an operand")
    return found, result


def _extents(equation: str, terms: Sequence[str], specs: Sequence[Spec]) -> dict[str, int]:
    found: dict[str, int] = {}
    for term, spec in zip(terms, specs, strict=True):
        if spec.dtype is not specs[0].dtype:
            raise InferenceError(f"operands {specs[0]} and {spec}: cast one to the element type of the other")
        for letter, extent in zip(term, spec.shape, strict=True):
            known = found.setdefault(letter, extent)
            if known == 1 or (known == -1 and extent > 1):
                found[letter] = extent
            elif extent not in (1, -1, known):
                raise InferenceError(
                    f"equation {equation!r}: {letter!r} has the extents {known} and {extent}, which should be equal"
                )
    return found


def _einsum(Operands: list[Spec], equation: str) -> dict[str, Any]:
    terms, result = parsed(equation, [spec.ndim for spec in Operands])
    extents = _extents(equation, terms, Operands)
    out = Operands[0].with_shape(tuple(extents[letter] for letter in result))
    return {"Out": out, "InnerCache": list(Operands), "XShape": [spec.with_shape((0, *spec.shape)) for spec in Operands]}


def _einsum_like(Like: Spec) -> Spec:
    return Like


def _parts(f: Any, values: Sequence[Any], terms: Sequence[str], grad: Any, result: str) -> list[Any]:
    """The gradient of each of `values`."""
    found = []
    for place, value in enumerate(values):
        others = [*values[:place], *values[place + 1 :]]
        labels = ",".join([result, *terms[:place], *terms[place + 1 :]])
        found.append(f.einsum_like([grad, *others], value, equation=f"{labels}->{terms[place]}"))
    return found


@define("einsum(Operands*) -> Out, InnerCache*~, XShape*~", infer=_einsum, equation=required("string"))
def einsum(f: Any, InnerCache: Any, XShape: ShapeOnly, dOut: Any, equation: str, dInnerCache: Any = None) -> Any:
    """The sum over all labels that the result lacks of the products of the operands: ``"ij,jk->ik"`` multiplies matrices.

    ``...`` stands for further dimensions, which broadcast. Without ``->`` the result has the labels that stand once, sorted.
    InnerCache holds what the gradient reads, the operands.
    """
    terms, result = parsed(equation, [value.ndim for value in InnerCache])

    def parts() -> Any:
        found = _parts(f, InnerCache, terms, dOut, result)
        return [g if more is None else g + more for g, more in zip(found, dInnerCache or [None] * len(found), strict=True)]

    return {"Operands": parts}


@define(
    "einsum_like(Operands*, Like) -> Out", infer=_einsum_like, wrt=["Operands"], shape_only=["Like"], equation=required("string")
)
def einsum_like(f: Any, Operands: Any, dOut: Any, equation: str) -> Any:
    """As `einsum`, brought to the shape of Like: transposes `einsum`.

    Along labels that no operand has, or has with an extent of 1, the sum is repeated; over labels that have an extent of 1 in
    Like alone it is taken; where the result has a label twice it is zero off the diagonal.
    """
    left, _, result = equation.partition("->")
    return {"Operands": lambda: _parts(f, Operands, left.split(","), dOut, result)}
