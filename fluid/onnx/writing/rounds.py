"""What is computed in rounds, each of which goes on from the one before: ONNX's `Loop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .graph import Graph, Tensor

__all__ = ["in_rounds"]


def in_rounds(
    g: Graph, count: Tensor, states: Sequence[Tensor], body: Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor]]
) -> list[Tensor]:
    """What states become in `count` rounds, which keep their shapes; then, if the body gives more than the next states, what it
    gives in each round, one after the other along a new first dimension.

    Args:
        count: an int64 of one element.
        body: from the number of a round, of shape [], and the states to the next states, and more.
    """
    firsts = [g.identity(each) if each.value is not None else each for each in states]
    with g.inside() as scope:
        number = g.input("round", Spec((), VarType.INT64))
        goes = g.input("goes", Spec((), VarType.BOOL))
        inner = [g.input("state", each.spec, each.sizes) for each in firsts]
        found = list(body(number, inner))
        scope.outputs = [g.identity(each) for each in (goes, *found)]
    stacked = [Spec((-1, *each.shape), each.dtype) for each in found[len(firsts) :]]
    results = g.nodes("Loop", [g.reshape(count, []), None, *firsts], [*(each.spec for each in firsts), *stacked], body=scope)
    for result, each in zip(results, firsts, strict=False):
        result.sizes = each.sizes
    return results
