"""Ops that stand for another op, inserted into its block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluid.ir.program import Operator

__all__ = ["OpInserter"]


class OpInserter:
    """Inserts ops that stand for an op into its block, one behind the other.

    Args:
        op: the op; new ops get its lines in the user's code.
        place: the position in the block for the first new op.

    Attributes:
        place: the position in the block for the next new op.
    """

    def __init__(self, op: Operator, place: int) -> None:
        self._op, self._block, self.place = op, op.block, place

    def declare(self, kind: str) -> str:
        """Declare a new variable."""
        name: str = self._block.program.fresh_name(f"inserted.{kind.lower()}")
        self._block.create_var(name=name)
        return name

    def add(self, kind: str, inputs: Mapping[str, list[str]], out: str | None = None, **attrs: Any) -> str:
        """Insert an op; returns the name of its result, a new one if `out` is None."""
        name = self.declare(kind) if out is None else out
        self._block.insert_op(self.place, kind, inputs=inputs, outputs={"Out": name}, attrs=attrs, frames=self._op.frames)
        self.place += 1
        return name
