"""The part of Fluid 1.6's ``fluid.transpiler`` that makes sense on one device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir.program import Program
from ..not_here import names_here, names_not_here

__all__ = ["memory_optimize", "release_memory"]

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)


def memory_optimize(
    input_program: Program, skip_opt_set: Any = None, print_log: bool = False, level: int = 0, skip_grads: bool = True
) -> None:
    """Does nothing, as in Fluid 1.6: plans share the memory of values that are never alive together.

    Args:
        input_program, skip_opt_set, print_log, level, skip_grads: accepted as in Fluid, without effect.

    >>> fluid.memory_optimize(fluid.default_main_program())
    """


def release_memory(input_program: Program, skip_opt_set: Any = None) -> None:
    """Does nothing, as in Fluid 1.6: plans share the memory of values that are never alive together.

    Args:
        input_program, skip_opt_set: accepted as in Fluid, without effect.

    >>> fluid.release_memory(fluid.default_main_program())
    """
