"""The memory that a program which is read may take: 64 MiB and ten times the file.

An op without anything is five bytes in a file and 340 in memory. Programs as they are take seven to nine times their file: what
has no room is many times denser than any program that computes something.
"""

from __future__ import annotations

from ..errors import FormatError
from ..ir.program import Operator

__all__ = ["Room"]

_SPARE = 64 << 20
"""What every file may take."""
_OP, _SLOT, _ATTRIBUTE, _ITEM = 400, 120, 60, 32
_VARIABLE, _BLOCK = 450, 400
"""Bytes that the parts of a program take, as measured; names and numbers are in those of what holds them."""
_FIRST_NAME = 600
"""What a name of a slot or an attribute takes besides when it comes first: real programs have some hundreds."""


class Room:
    """What is left of the memory for a program from a file of this size."""

    def __init__(self, size: int) -> None:
        self._left = _SPARE + 10 * size
        self._names: set[str] = set()

    def name(self, name: str) -> None:
        """A slot or an attribute is called so."""
        if name not in self._names:
            self._names.add(name)
            self.take(_FIRST_NAME)

    def op(self, op: Operator) -> None:
        items = 0
        for value in op.attrs.values():
            if value.__class__ is list:
                items += len(value)
        self.take(_OP + _SLOT * (len(op.inputs) + len(op.outputs)) + _ATTRIBUTE * len(op.attrs) + _ITEM * items)

    def variable(self) -> None:
        self.take(_VARIABLE)

    def block(self) -> None:
        self.take(_BLOCK)

    def take(self, size: int) -> None:
        """Use so many bytes; `FormatError` if they are not left."""
        self._left -= size
        if self._left < 0:
            raise FormatError(
                "not a program: its blocks, variables and ops are so many, and so small, that they would take more than 64 MiB "
                "of memory and ten times the file; no program that computes something is as dense"
            )
