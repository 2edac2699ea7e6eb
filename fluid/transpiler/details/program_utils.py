"""Programs as text, under the name of Fluid 1.7."""

from __future__ import annotations

from ...ir.program import Program

__all__ = ["program_to_code"]


def program_to_code(prog: Program, skip_op_callstack: bool = False) -> None:
    """Print the program `prog`; `skip_op_callstack` is accepted: text tells no lines of code."""
    print(prog)
