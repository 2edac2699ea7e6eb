"""Actions that a program takes only in every n-th run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.program import Variable
from ..layers.control_flow import cond, increment
from ..layers.ops import elementwise_mod, equal
from ..layers.tensor import fill_constant


def do_every(count: Variable, runs: int, action: Callable[[], Any]) -> None:
    """Append ops that increment a count, and run the action's ops when the count is a multiple of `runs`.

    Args:
        count: of the runs so far, int64 of shape [1].
        runs: from one action to the next.
        action: appends ops to the default main program.
    """
    increment(count, 1)
    left = elementwise_mod(count, fill_constant([1], "int64", runs))
    cond(equal(left, fill_constant([1], "int64", 0)), action)
