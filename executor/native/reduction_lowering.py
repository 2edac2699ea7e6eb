"""Lowers reductions, norms, and products with vectors."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from fluid.ops.formulas import at_least
from fluid.ops.norm import channel_axis
from fluid.ops.reduction import reduced_axes

from .activation_lowering import chosen
from .emitter import BOOL
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


@lowers("logsumexp")
def logsumexp(X: GraphTensor, axis: list[int], reduce_all: bool, specs: dict[str, Any]) -> GraphTensor:
    axes = _axes(X, axis, reduce_all)
    top = GraphTensor(_greatest(X.node, axes))
    top = chosen(f.abs(top) < inf, top, 0.0)
    logs = f.log(GraphTensor(_total(f.exp(X - top).node, axes))) + top
    return GraphTensor(reshaped(logs.node, specs["Out"].shape))


# ----------------------------------------------------------------------------------------------------------------- norms
def _norm(X: GraphTensor, axes: Sequence[int], order: float) -> GraphTensor:
    """The norm over axes, which remain with extent 1."""
    if order == 2.0:
        return f.sqrt(GraphTensor(_total(f.square(X).node, axes)))
    if order == 0.0:
        is_any = mapped("une", X.node, number_like(0.0, X.node), element=BOOL)
        return GraphTensor(_total(mapped("convert", is_any, element=X.node.element), axes))
    size = f.abs(X)
    if abs(order) == inf:
        return GraphTensor((_greatest if order > 0 else _least)(size.node, axes))
    if order == 1.0:
        return GraphTensor(_total(size.node, axes))
    return f.pow(GraphTensor(_total(f.pow(size, factor=order).node, axes)), factor=1.0 / order)


def _norm_of(X: GraphTensor, axes: Sequence[int], order: float, specs: dict[str, Any]) -> GraphTensor:
    only_floats(X)
    return GraphTensor(reshaped(mapped("copy", _norm(X, axes, order).node), specs["Out"].shape))


@lowers("frobenius_norm")
def frobenius_norm(X: GraphTensor, dim: list[int], reduce_all: bool, specs: dict[str, Any]) -> GraphTensor:
    return _norm_of(X, _axes(X, dim, reduce_all), 2.0, specs)


@lowers("p_norm")
def p_norm(X: GraphTensor, porder: float, axis: int, asvector: bool, specs: dict[str, Any]) -> GraphTensor:
    return _norm_of(X, _axes(X, [axis], asvector), porder, specs)


@lowers("dist")
def dist(X: GraphTensor, Y: GraphTensor, p: float, specs: dict[str, Any]) -> GraphTensor:
    difference = X - Y
    return _norm_of(difference, range(difference.ndim), p, specs)


@lowers("l1_norm")
def l1_norm(X: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    return _norm_of(X, range(X.ndim), 1.0, specs)


@lowers("norm")
def norm(X: GraphTensor, axis: int, epsilon: float) -> dict[str, GraphTensor]:
    only_floats(X)
    size = f.sqrt(GraphTensor(_total(f.square(X).node, [axis % X.ndim])) + epsilon)
    return {"Out": X / size, "Norm": size}


@lowers("clip_by_norm")
def clip_by_norm(X: GraphTensor, max_norm: float) -> GraphTensor:
    only_floats(X)
    size = _norm(X, range(X.ndim), 2.0)
    limit: GraphTensor = at_least(f, size, max_norm)
    return X * (f.fill_any_like(size, value=max_norm) / limit)


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


@lowers("affine_channel")
def affine_channel(X: GraphTensor, Scale: GraphTensor, Bias: GraphTensor, data_layout: str) -> GraphTensor:
    only_floats(X)
    return GraphTensor(_scaled(X.node, Scale, Bias, channel_axis(data_layout, X.ndim)))


# -------------------------------------------------------------------------------------------------------------- products
@lowers("bmm")
def bmm(X: GraphTensor, Y: GraphTensor) -> GraphTensor:
    return f.matmul_v2(X, Y)


@lowers("mv")
def mv(X: GraphTensor, Vec: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    product = f.matmul_v2(X, GraphTensor(reshaped(Vec.node, (Vec.node.size, 1))))
    return GraphTensor(reshaped(product.node, specs["Out"].shape))


@lowers("dot")
def dot(X: GraphTensor, Y: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    products = X * Y
    only_floats(products)
    return GraphTensor(reshaped(_total(products.node, [products.ndim - 1]), specs["Out"].shape))


@lowers("addmm")
def addmm(Input: GraphTensor, X: GraphTensor, Y: GraphTensor, Alpha: float, Beta: float) -> GraphTensor:
    return Input * Beta + f.matmul_v2(X, Y) * Alpha
