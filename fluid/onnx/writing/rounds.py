"""Compute in rounds, each on the states of the previous one: ONNX's `Loop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .graph import OnnxGraph, OnnxTensor


def in_rounds(
    g: OnnxGraph,
    count: OnnxTensor,
    states: Sequence[OnnxTensor],
    body: Callable[[OnnxTensor, Sequence[OnnxTensor]], Sequence[OnnxTensor]],
) -> list[OnnxTensor]:
    """Run `count` rounds; return the final states, then the body's other outputs, stacked along a new first dimension.

    The states keep their shapes.

    Args:
        count: an int64 of one element.
        body: maps the number of a round, of shape [], and the states to the next states and other outputs.
    """
    firsts = [g.identity(state) if state.value is not None else state for state in states]
    with g.inner_graph() as scope:
        number = g.input("round", Spec((), VarType.INT64))
        goes = g.input("goes", Spec((), VarType.BOOL))
        inner = [g.input("state", state.spec, state.sizes) for state in firsts]
        outputs = list(body(number, inner))
        scope.outputs = [g.identity(value) for value in (goes, *outputs)]
    stacked = [Spec((-1, *output.shape), output.dtype) for output in outputs[len(firsts) :]]
    results = g.nodes("Loop", [g.reshape(count, []), None, *firsts], [*(first.spec for first in firsts), *stacked], body=scope)
    for result, first in zip(results, firsts, strict=False):
        result.sizes = first.sizes
    return results
