"""The tables of functions that run ops without kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fluid.ir.program import Operator
from fluid.opdef.tables import OpTable

if TYPE_CHECKING:
    from .interpreter import Environment, Machine

__all__ = ["ARRAY_HANDLERS", "HANDLERS", "Handler", "runs", "runs_on_arrays"]

Handler = Callable[["Machine", Operator, "Environment"], None]

HANDLERS: OpTable[Handler] = OpTable("handler")
"""Op type -> function, for ops that run blocks, handle lists, or have side effects."""
ARRAY_HANDLERS: OpTable[Handler] = OpTable("handler for arrays")
"""Op type -> function for ordinary ops when an input is an array of tensors, or has no value."""


def runs(*op_types: str) -> Callable[[Handler], Handler]:
    """Register the decorated function to run ops of these types; it takes the machine, the op and its environment."""
    return HANDLERS.register(*op_types)


def runs_on_arrays(*op_types: str) -> Callable[[Handler], Handler]:
    """Register the decorated function to run ops of these types if an input is an array of tensors, or has no value."""
    return ARRAY_HANDLERS.register(*op_types)
