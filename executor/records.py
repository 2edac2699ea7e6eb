"""Records of runs: by them the executor sees that a run is like the last one, and skips its checks."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np

from fluid.ir.program import Variable

from .backend import BoundPlan


class FeedRecord(NamedTuple):
    """The facts about a fed array in a run; `is_checked` if it had to be of its variable's declared shape."""

    var: Variable
    is_checked: bool
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: bytes | None
    """The bytes of the array, if the plan depends on them."""


class RunRecord(NamedTuple):
    """The record of a run: its bound plan, the version of the program, and the feeds."""

    bound: weakref.ref[BoundPlan]
    version: int
    feeds: dict[str, FeedRecord]
    held: list[tuple[str, bytes]]
    """The variables of the scope that the plan depends on, and their bytes."""
