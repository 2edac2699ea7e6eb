"""Records of runs: the executor looks in them whether a run is like the last one."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np

from fluid.ir.program import Variable

from .backend import BoundPlan

__all__ = ["FeedRecord", "RunRecord"]


class FeedRecord(NamedTuple):
    """A fed array as it was in a run, and whether its variable held it to the declared shape."""

    var: Variable
    is_checked: bool
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: bytes | None
    """Its bytes, if they decided about the plan."""


class RunRecord(NamedTuple):
    """The record of a run: its bound plan, the version of the program, and the feeds."""

    bound: weakref.ref[BoundPlan]
    version: int
    feeds: dict[str, FeedRecord]
    held: list[tuple[str, bytes]]
    """Variables of the scope that decided about the plan, and their bytes."""
