"""Programs as text and as pictures, under the names of Fluid 1.6; `fluid.graph` and ``print(program)`` do the work."""

from __future__ import annotations

import os
from typing import Any

from .formats.writing import atomic_writer
from .ir.program import Block, Program
from .not_here import names_here
from .transform.graph import to_dot

__all__ = ["draw_block_graphviz", "pprint_block_codes", "pprint_program_codes", "prepare_fast_nan_inf_debug"]

__dir__ = names_here(__name__)


def pprint_program_codes(program: Program) -> None:
    """Print the program.

    >>> x = fluid.data("x", [None, 2])
    >>> fluid.debugger.pprint_program_codes(fluid.default_main_program())
    block 0 {
      data x: float32[-1, 2]
    }
    """
    print(program)


def pprint_block_codes(block: Block, show_backward: bool = False) -> None:
    """Print `block`; `show_backward` is accepted as in Fluid: gradient ops are always shown.

    >>> fluid.debugger.pprint_block_codes(fluid.data("x", [None, 2]).block)
    block 0 {
      data x: float32[-1, 2] stop_gradient need_check_feed
    }
    """
    print(block)


def draw_block_graphviz(block: Block, highlights: Any = None, path: str | os.PathLike[str] = "./temp.dot") -> None:
    """Write the program of a block to a file of Graphviz.

    Args:
        block: a block of the program.
        highlights: accepted as in Fluid, without effect.
        path: the file.

    >>> y = layers.relu(fluid.data("x", [None, 2]))
    >>> fluid.debugger.draw_block_graphviz(y.block, path="program.dot")
    >>> os.listdir()
    ['program.dot']
    """
    with atomic_writer(os.fspath(path)) as file:
        file.write(to_dot(block.program).encode())


def prepare_fast_nan_inf_debug(program: Program) -> None:
    """Does nothing: ``exe.run(program, check_nan=True)`` stops at the op that makes the first NaN or infinity.

    >>> fluid.debugger.prepare_fast_nan_inf_debug(fluid.default_main_program())
    """
