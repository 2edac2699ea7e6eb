"""Insert ops into a block, one behind the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluid.ir.frames import Frames
from fluid.ir.program import Block

__all__ = ["OpInserter"]


class OpInserter:
    """Inserts ops into a block, one behind the other.

    Args:
        block: the block.
        place: the position in the block for the first new op.
        frames: the lines in the user's code that new ops get, as `Operator.frames`.

    Attributes:
        place: the position in the block for the next new op.
    """

    def __init__(self, block: Block, place: int, frames: Frames = ()) -> None:
        self._block, self.place, self._frames = block, place, frames

    def declare(self, kind: str) -> str:
        """Declare a new variable."""
        name: str = self._block.program.fresh_name(f"inserted.{kind.lower()}")
        self._block.create_var(name=name)
        return name

    def add(self, kind: str, inputs: Mapping[str, list[str]], out: str | None = None, **attrs: Any) -> str:
        """Insert an op; returns the name of its result, a new one if `out` is None."""
        name = self.declare(kind) if out is None else out
        self._block.insert_op(self.place, kind, inputs=inputs, outputs={"Out": name}, attrs=attrs, frames=self._frames)
        self.place += 1
        return name
