"""Ensembles of decision trees."""

from __future__ import annotations

from typing import Any

from ..opdef.composition import composed
from ..opdef.registry import ZERO_GRADIENT, at_most, least
from ..values.types import VarType


@composed(
    "tree_leaves(X: float[N, F], Bounds: float[V], Features: int[V], Children: int[V]) -> Out",
    grad=ZERO_GRADIENT,
    trees=least(1, 1),
    depth=at_most(1 << 16, least(1, 1)),
)
def tree_leaves(f: Any, X: Any, Bounds: Any, Features: Any, Children: Any, trees: int, depth: int) -> Any:
    """The nodes where rows of X end in each of `trees` decision trees, as int32 [N, `trees`].

    A row starts at the first `trees` nodes, and takes `depth` steps in each tree. From a node it goes to the node's first child,
    or to the node after it if the feature is greater than the bound; NaN is not. A leaf is its own child; its bound is infinite.

    Args:
        X: features of each row.
        Bounds: the bound of each node.
        Features: the column of X that each node compares, from 0 to F - 1.
        Children: the first child of each node, from 0 to V - 1.
        trees: how many trees there are.
        depth: how many steps lead to the lowest leaf.
    """
    roots = {"axes": [0], "starts": [0], "ends": [trees]}
    values = f.gather(X, f.slice(Features, **roots), axis=1)
    nodes = _child(f, values, f.slice(Bounds, **roots), f.slice(Children, **roots))
    for _ in range(1, depth):
        at = f.reshape2(nodes, shape=[-1])
        bound, feature, child = (f.reshape2(f.gather(table, at), shape=[-1, trees]) for table in (Bounds, Features, Children))
        nodes = _child(f, f.index_sample(X, feature), bound, child)
    return nodes


def _child(f: Any, values: Any, bound: Any, child: Any) -> Any:
    return f.elementwise_add(f.greater_than(values, bound).astype(VarType.INT32), child, axis=-1)
