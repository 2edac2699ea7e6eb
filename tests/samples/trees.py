"""Samples of `fluid.ops.trees`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("trees")


def tables(depths: tuple[int, ...], features: int) -> dict[str, Any]:
    """The nodes of full trees of some depths, the roots first, then a level of each tree after the other."""
    random = np.random.default_rng(sum(depths))
    bounds, columns, children = [np.inf] * len(depths), [0] * len(depths), list(range(len(depths)))
    level = [(root, depth) for root, depth in enumerate(depths)]
    for node, depth in level:  # which grows
        if depth:
            first = len(bounds)
            bounds[node], columns[node], children[node] = random.normal(), int(random.integers(features)), first
            bounds += [np.inf] * 2
            columns += [0] * 2
            children += [first, first + 1]
            level += [(first, depth - 1), (first + 1, depth - 1)]
    return {
        "Bounds": np.array(bounds, "float32"),
        "Features": np.array(columns, "int32"),
        "Children": np.array(children, "int32"),
    }


def leaves(X: Any, Bounds: Any, Features: Any, Children: Any, trees: int, depth: int) -> Any:
    nodes = np.tile(np.arange(trees, dtype="int32"), (len(X), 1))
    for row, tree in np.ndindex(nodes.shape):
        for _ in range(depth):
            node = nodes[row, tree]
            nodes[row, tree] = Children[node] + (X[row, Features[node]] > Bounds[node])
    return nodes


add(
    "tree_leaves",
    *(
        Sample(
            {"X": data(rows, 3), **tables(depths, 3)},
            {"trees": len(depths), "depth": max(*depths, 1)},
            leaves,
        )
        for rows, depths in ((5, (2, 1)), (40, (3, 5, 0, 1, 2, 4, 3, 3, 6, 1)), (1, (1, 0)))
    ),
)
