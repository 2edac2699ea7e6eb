"""How programs are written for Paddle 2.6: ops that it lacks, ignores or computes wrongly become ops that it runs right.

An op without such a replacement is refused.

`prepare` goes over the program before the rows: it changes what the rows, which see one op each, cannot.
"""

from __future__ import annotations

from . import attributes, formulas, images, inputs, old_ops, refusals
from .gradients import EXPANDED, prepare

__all__ = ["EXPANDED", "TO_2_6", "prepare"]

TO_2_6 = [row for module in (old_ops, attributes, inputs, images, formulas, refusals) for row in module.ROWS]
"""One row per op."""
