"""Lowers extremes, and the broadcast that undoes a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluid.ops.reduction import reduced_axes

from .graph import Node, broadcast_to, mapped, reduced, reshaped
from .lowering import GraphTensor, lowers, number_like, only_floats


def _axes(X: GraphTensor, dim: Sequence[int], reduce_all: bool) -> tuple[int, ...]:
    only_floats(X)
    return reduced_axes(X.ndim, dim, reduce_all)


def _greatest(node: Node, axes: Sequence[int]) -> Node:
    return reduced("max", node, axes)


def _least(node: Node, axes: Sequence[int]) -> Node:
    return mapped("neg", _greatest(mapped("neg", node), axes))


@lowers("reduce_max")
def reduce_max(X: GraphTensor, dim: list[int], reduce_all: bool, specs: dict[str, Any]) -> GraphTensor:
    return GraphTensor(reshaped(mapped("copy", _greatest(X.node, _axes(X, dim, reduce_all))), specs["Out"].shape))


@lowers("reduce_min")
def reduce_min(X: GraphTensor, dim: list[int], reduce_all: bool, specs: dict[str, Any]) -> GraphTensor:
    return GraphTensor(reshaped(_least(X.node, _axes(X, dim, reduce_all)), specs["Out"].shape))


@lowers("expand_reduced")
def expand_reduced(X: GraphTensor, Like: GraphTensor, dim: list[int], reduce_all: bool, average: bool) -> GraphTensor:
    only_floats(X)
    shape, axes = Like.shape, reduced_axes(Like.ndim, dim, reduce_all)
    node = reshaped(X.node, tuple(1 if axis in axes else extent for axis, extent in enumerate(shape)))
    if average:
        node = mapped("mul", node, number_like(1.0 / max(prod(shape[axis] for axis in axes), 1), node))
    return GraphTensor(broadcast_to(node, shape))


# ----------------------------------------------------------------------------------------------------------------- norms
