"""Converts programs from bfloat16 to float32."""

from __future__ import annotations

from typing import Any

from ..executor.runtime.scope import global_scope
from ..executor.widening import widen_in_place
from ..ir.program import Program


def widen(program: Program, scope: Any = None) -> list[str]:
    """Convert a program, and its values in a scope, from bfloat16 to float32.

    Numbers are then float32's. At a `CUDAPlace`, a program that is not converted runs as such a copy, with a warning;
    elsewhere it runs in bfloat16.

    Args:
        program: the program.
        scope: the scope; the current one if None.

    Returns:
        Names of the converted variables.

    >>> x = fluid.data("x", [None, 2], "bfloat16")
    >>> fluid.bfloat16.widen(fluid.default_main_program())
    ['x']
    """
    return widen_in_place(program, scope if scope is not None else global_scope())
