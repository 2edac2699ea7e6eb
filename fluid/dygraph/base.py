"""Switching eager mode on and off, under the module name of Fluid 1.6; see `fluid.eager.program`."""

from __future__ import annotations

import gc
from collections import Counter

from .. import unique_name
from ..eager.graph import Node
from ..eager.mode import no_grad
from ..eager.program import Parameter, _unpickled, disable_dygraph, enable_dygraph, enabled, guard, to_variable
from ..eager.tensor import Tensor

__all__ = [
    "Parameter", "_unpickled", "disable_dygraph", "disable_imperative", "enable_dygraph", "enable_imperative", "enabled", "guard",
    "no_grad", "to_variable",
]  # fmt: skip

enable_imperative, disable_imperative = enable_dygraph, disable_dygraph


def _print_debug_msg(limit: int = 5, is_test: bool = False) -> tuple[int, int, int] | None:
    """Print the numbers of name kinds, recorded ops, tensors and the commonest tensors; with `is_test`, return the text.

    Counts that grow from step to step show a leak.
    """
    objects = gc.get_objects()
    ops = sum(isinstance(one, Node) and not one.is_leaf for one in objects)
    tensors = Counter(one.describe() for one in objects if isinstance(one, Tensor))
    counts = unique_name.kinds(), ops, tensors.total()
    if is_test:
        return counts
    print("{} kinds of names, {} recorded ops, {} tensors".format(*counts))
    for kind, count in tensors.most_common(limit):
        print(f"  {count} of {kind}")
    return None
