"""Lowers reductions, norms, and products with vectors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluid.ops.norm import channel_axis
from fluid.ops.reduction import reduced_axes

from .graph import Node, broadcast_to, mapped, plain, reduced, reshaped
from .lowering import NAMESPACE, GraphTensor, NotLowered, lowers, number_like, only_floats

f = NAMESPACE


def _axes(X: GraphTensor, dim: Sequence[int], reduce_all: bool) -> tuple[int, ...]:
    only_floats(X)
    return reduced_axes(X.ndim, dim, reduce_all)


def _total(node: Node, axes: Sequence[int]) -> Node:
    return reduced("sum", node, axes)


def _greatest(node: Node, axes: Sequence[int]) -> Node:
    return reduced("max", node, axes)


def _least(node: Node, axes: Sequence[int]) -> Node:
    return mapped("neg", _greatest(mapped("neg", node), axes))


@lowers("reduce_max", "reduce_amax")
def reduce_max(X: GraphTensor, dim: list[int], reduce_all: bool, specs: dict[str, Any]) -> GraphTensor:
    return GraphTensor(reshaped(mapped("copy", _greatest(X.node, _axes(X, dim, reduce_all))), specs["Out"].shape))


@lowers("reduce_min", "reduce_amin")
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
def _normalized(x: Node, epsilon: float) -> tuple[Node, Node, Node, Node]:
    """Normalize rows to mean 0 and variance 1; also returns means, variances and inverse deviations."""
    share = number_like(1.0 / max(x.shape[1], 1), x)
    mean = mapped("mul", _total(x, [1]), share)
    centered = mapped("sub", x, mean)
    variance = mapped("mul", _total(mapped("square", centered), [1]), share)
    inverse = mapped("reciprocal", mapped("sqrt", mapped("add", variance, number_like(epsilon, x))))
    return mapped("mul", centered, inverse), mean, variance, inverse


def _scaled(node: Node, Scale: GraphTensor | None, Bias: GraphTensor | None, axis: int) -> Node:
    """Multiply each channel by a factor and add a term."""
    for formula, tensor in (("mul", Scale), ("add", Bias)):
        if tensor is not None:
            if tensor.node.element != node.element:
                raise NotLowered("statistics of another precision")
            shape = tuple(extent if place == axis else 1 for place, extent in enumerate(node.shape))
            node = mapped(formula, node, reshaped(tensor.node, shape))
    return node


def _statistics(nodes: dict[str, Node], specs: dict[str, Any]) -> dict[str, GraphTensor]:
    return {slot: GraphTensor(reshaped(node, specs[slot].shape)) for slot, node in nodes.items() if specs.get(slot) is not None}


@lowers("group_norm")
def group_norm(
    X: GraphTensor,
    Scale: GraphTensor | None,
    Bias: GraphTensor | None,
    groups: int,
    epsilon: float,
    data_layout: str,
    specs: dict[str, Any],
) -> dict[str, GraphTensor]:
    only_floats(X)
    if channel_axis(data_layout, X.ndim) != 1:
        raise NotLowered("groups of channels that lie last")
    rows = X.shape[0] * groups
    y, mean, variance, _ = _normalized(reshaped(plain(X.node), (rows, X.node.size // rows)), epsilon)
    y = _scaled(reshaped(y, X.shape), Scale, Bias, 1)
    return {"Y": GraphTensor(y), **_statistics({"Mean": mean, "Variance": variance}, specs)}


@lowers("instance_norm")
def instance_norm(
    X: GraphTensor, Scale: GraphTensor | None, Bias: GraphTensor | None, epsilon: float, specs: dict[str, Any]
) -> dict[str, GraphTensor]:
    only_floats(X)
    rows = X.shape[0] * X.shape[1]
    y, mean, _, inverse = _normalized(reshaped(plain(X.node), (rows, X.node.size // rows)), epsilon)
    y = _scaled(reshaped(y, X.shape), Scale, Bias, 1)
    return {"Y": GraphTensor(y), **_statistics({"SavedMean": mean, "SavedVariance": inverse}, specs)}
