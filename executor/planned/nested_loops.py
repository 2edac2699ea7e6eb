"""Loops in the blocks of loops. This module is short because every plan imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluid.ir.versions import Value
from fluid.values.spec import Spec

from ..native.target import Target

if TYPE_CHECKING:
    from .unrolled_loops import TableLoops


def loops_in_block(target: Target, specs: dict[Value, Spec]) -> TableLoops:
    """The maker of native code for the loops in a block, from the specs of its values; specs are added."""
    from .unrolled_loops import TableLoops

    return TableLoops(specs, {}, target)
