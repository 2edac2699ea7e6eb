"""Checks of `fluid.ops.trees`."""

from __future__ import annotations

from typing import Any

from .manipulation import check_ids
from .table import checked


@checked("tree_leaves")
def check_tree_leaves(X: Any, Features: Any, Children: Any) -> None:
    check_ids(Features, X.shape[1], "tree_leaves")
    check_ids(Children, len(Children), "tree_leaves")
