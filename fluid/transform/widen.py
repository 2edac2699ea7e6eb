"""Converts programs from bfloat16 to float32."""

from __future__ import annotations

from typing import Any

from ..executor.scope import global_scope
from ..executor.widening import widen_in_place
from ..ir.program import Program

__all__ = ["widen"]


def widen(program: Program, scope: Any = None) -> list[str]:
    """Convert a program, and its values in the scope (the current one if None), from bfloat16 to float32, which runs here.

    A program that is not converted runs as such a copy, with a warning.

    Returns:
        Names of the converted variables.
    """
    return widen_in_place(program, scope if scope is not None else global_scope())
