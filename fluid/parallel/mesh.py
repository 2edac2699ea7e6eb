"""A mesh: devices in a grid whose axes have names."""

from __future__ import annotations

from math import prod
from typing import Any

from ..errors import ProgramError

__all__ = ["DATA", "Mesh"]

DATA = "data"
"""The axis over which batches are split."""


class Mesh:
    """Devices in a grid. Each axis has a name and a number of devices; programs name the axis along which a value is split.

    Feeds are split over the axis ``data``, if there is one; variables are split as `Program.shard` says, and each device has
    all of the others.

    Args:
        axes: name of an axis = number of devices along it.

    Raises:
        ProgramError: there is no axis, or one has no positive number of devices.

    >>> import fluid
    >>> fluid.parallel.Mesh(data=2, model=4)
    Mesh(data=2, model=4)
    """

    __slots__ = ("axes",)

    def __init__(self, **axes: int) -> None:
        if not axes:
            raise ProgramError("a mesh has axes, each with its number of devices, such as Mesh(data=2)")
        for name, extent in axes.items():
            if type(extent) is not int or extent < 1:
                raise ProgramError(f"Mesh: the axis {name} should have a positive number of devices, not {extent!r}")
        self.axes: tuple[tuple[str, int], ...] = tuple(axes.items())

    @property
    def size(self) -> int:
        """The number of devices."""
        return prod(extent for _, extent in self.axes)

    def extent(self, axis: str) -> int:
        """The number of devices along an axis; 1 for one that the mesh does not have."""
        return dict(self.axes).get(axis, 1)

    def __eq__(self, value: Any) -> bool:
        return isinstance(value, Mesh) and self.axes == value.axes

    def __hash__(self) -> int:
        return hash(self.axes)

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{name}={extent}' for name, extent in self.axes)})"
