"""Programs as text and as pictures, under the names of Fluid 1.6; `fluid.graph` and ``print(program)`` are what does the work."""

from __future__ import annotations

import os
from typing import Any

from .formats.writing import atomic_writer
from .ir.program import Block, Program
from .transform.graph import to_dot

__all__ = ["draw_block_graphviz", "pprint_block_codes", "pprint_program_codes", "prepare_fast_nan_inf_debug"]


def pprint_program_codes(program: Program) -> None:
    """Print the program."""
    print(program)


def pprint_block_codes(block: Block, show_backward: bool = False) -> None:
    """Print a block; `show_backward` is accepted as in Fluid: gradient ops are always shown."""
    print(block)


def draw_block_graphviz(block: Block, highlights: Any = None, path: str | os.PathLike[str] = "./temp.dot") -> None:
    """Write the program of a block to a file of Graphviz; `highlights` is accepted as in Fluid, without effect."""
    with atomic_writer(os.fspath(path)) as file:
        file.write(to_dot(block.program).encode())


def prepare_fast_nan_inf_debug(program: Program) -> None:
    """Does nothing: ``exe.run(program, check_nan=True)`` stops at the op that makes the first NaN or infinity."""
