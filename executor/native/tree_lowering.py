"""Lowers decision trees."""

from __future__ import annotations

from .emitter import INT32
from .graph import Leaves, plain
from .lowering import GraphTensor, NotLowered, lowers, only_floats


@lowers("tree_leaves")
def tree_leaves(
    X: GraphTensor, Bounds: GraphTensor, Features: GraphTensor, Children: GraphTensor, trees: int, depth: int
) -> GraphTensor:
    only_floats(X, Bounds)
    if X.node.element is not Bounds.node.element:
        raise NotLowered("bounds of another precision")
    rows, features = X.shape
    if not (features and Children.shape[0] >= trees > 0 and depth > 0):
        raise NotLowered("no features, or no trees")
    tables = plain(Bounds.node), plain(Features.node), plain(Children.node)
    return GraphTensor(Leaves((rows, trees), INT32, plain(X.node), *tables, depth))
