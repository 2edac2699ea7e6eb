"""The memory that a file may take while it is read: 64 MiB and ten times the file. All readers count by this.

An op without anything is five bytes in a file and 340 in memory. Programs as they are take seven to nine times their file; a
refused one is many times denser than any program that computes something. Arrays made from sizes in a file, such as the
positions for resizing an image, count with their bytes; arrays that are the file's own bytes do not count.
"""

from __future__ import annotations

from math import prod

from ..errors import FormatError
from ..ir.program import Operator

_SPARE = 64 << 20
"""The memory that every file may take."""
_PER_BYTE = 10
_OP, _SLOT, _ATTRIBUTE, _ITEM = 400, 120, 60, 32
_VARIABLE, _BLOCK = 450, 400
"""Measured bytes for the parts of a program; each part includes its names and numbers."""
_FIRST_NAME = 600
"""Further bytes for a slot's or attribute's name at its first use: real programs have some hundreds."""
_DENSE = (
    "not a program: its blocks, variables and ops are so many, and so small, that they would take more than 64 MiB of memory and "
    "ten times the file; no program that computes something is as dense"
)


def most_bytes(size: int) -> int:
    """The memory that a file of this size may take."""
    return _SPARE + _PER_BYTE * size


class Room:
    """The memory that is left for the objects made from a file.

    Args:
        size: the bytes of the file.
        refusal: the error's text if too many small parts are made.
    """

    def __init__(self, size: int, refusal: str = _DENSE) -> None:
        self._left = most_bytes(size)
        self._refusal = refusal
        self._names: set[str] = set()

    def grow(self, size: int) -> None:
        """Add the room of another file of this size, which belongs to the first."""
        self._left += _PER_BYTE * size

    def name(self, name: str) -> None:
        """Take the room of a name of a slot or an attribute."""
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
        """Use so many bytes for small parts; `FormatError` if they are not left."""
        self._left -= size
        if self._left < 0:
            raise FormatError(self._refusal)

    def check_array(self, *sizes: int, itemsize: int = 8) -> None:
        """`FormatError` if there is no room for an array of these sizes; asked before it is made."""
        size = prod(max(size, 0) for size in sizes) * itemsize
        if size > self._left:
            raise FormatError(
                f"it asks for arrays of {size} bytes, of the sizes {', '.join(map(str, sizes))}; a file may take 64 MiB and ten "
                f"times its size, of which {max(self._left, 0)} are left"
            )

    def take_array(self, *sizes: int, itemsize: int = 8) -> None:
        """Use the room of an array of these sizes, which is kept; `FormatError` if it is not left."""
        self.check_array(*sizes, itemsize=itemsize)
        self._left -= prod(max(size, 0) for size in sizes) * itemsize
