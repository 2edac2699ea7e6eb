"""Ops that are no kernels: the tables of the functions that run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fluid.ir.program import Operator

if TYPE_CHECKING:
    from .interpreter import Environment, Machine

__all__ = ["ARRAY_HANDLERS", "HANDLERS", "Handler", "runs", "runs_on_arrays"]

Handler = Callable[["Machine", Operator, "Environment"], None]

HANDLERS: dict[str, Handler] = {}
"""Ops that run blocks, handle lists, or reach outside."""
ARRAY_HANDLERS: dict[str, Handler] = {}
"""What ordinary ops mean when an input is an array of tensors, or has never been made."""


def runs(*op_types: str) -> Callable[[Handler], Handler]:
    """Let a function, which is handed the machine, the op and the values of its block, run ops of these types."""
    return _registers(HANDLERS, op_types)


def runs_on_arrays(*op_types: str) -> Callable[[Handler], Handler]:
    """Let a function run ops of these types where an input is an array of tensors, or has never been made."""
    return _registers(ARRAY_HANDLERS, op_types)


def _registers(table: dict[str, Handler], op_types: tuple[str, ...]) -> Callable[[Handler], Handler]:
    def register(fn: Handler) -> Handler:
        table.update(dict.fromkeys(op_types, fn))
        return fn

    return register
