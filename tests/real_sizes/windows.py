"""Random windows of convolutions and pools, as wide as practice has them, or as the image is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .cases import Unfit
from .choices import Choices

__all__ = ["Window", "divisor", "filter_window", "pool_window"]


@dataclass(frozen=True)
class Window:
    """How windows go over images: numbers for rows and for columns.

    Attributes:
        pads: before the first pixel and after the last one, of rows, then of columns.
    """

    sizes: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]

    @property
    def paddings(self) -> list[int]:
        """One number for each axis where both sides are alike, as most programs write it."""
        top, bottom, left, right = self.pads
        return [top, left] if (top, left) == (bottom, right) else self.pads

    def outputs(self, extents: Sequence[int]) -> list[int]:
        """The extents of a convolution's output; `Unfit` if a window is larger than the image."""
        return _positive([(extent - self._reach(i)) // self.strides[i] + 1 for i, extent in enumerate(extents)])

    def transposed_outputs(self, extents: Sequence[int]) -> list[int]:
        """The extents of a transposed convolution's output."""
        return _positive([(extent - 1) * self.strides[i] + self._reach(i) for i, extent in enumerate(extents)])

    def _reach(self, i: int) -> int:
        """Pixels from the first tap to the last one, without the padding."""
        return self.dilations[i] * (self.sizes[i] - 1) + 1 - self.pads[2 * i] - self.pads[2 * i + 1]


def _positive(extents: list[int]) -> list[int]:
    if min(extents) < 1:
        raise Unfit("the window is larger than the image")
    return extents


def filter_window(c: Choices, extents: Sequence[int]) -> Window:
    """The window of a convolution over an image of these extents."""
    size = c.pick((3, 1, 2, 5, 7, 4, 11))
    sizes = [size, size if c.chance(70) else c.pick((1, 3, 2, 5, 7))]
    if c.chance(20):
        sizes = [list(extents), [1, extents[1]], [extents[0], 1]][c.below(3)]
    strides = [1, 1] if c.chance(50) else [c.between(1, 4), c.between(1, 4)]
    dilations = [1, 1] if c.chance(70) else [c.between(1, 4), c.between(1, 4)]
    reaches = [(size - 1) * step for size, step in zip(sizes, dilations, strict=True)]
    rows, columns = (c.below(reach + 2) if c.chance(40) else (reach + 1) // 2 for reach in reaches)
    pads = [rows, rows, columns, columns] if c.chance(85) else [rows, c.below(3), columns, c.below(3)]
    return Window(sizes, strides, dilations, pads)


def pool_window(c: Choices, extents: Sequence[int]) -> Window:
    """The window of a pool over an image of these extents."""
    sizes = list(extents) if c.chance(15) else [min(c.pick((2, 3, 1, 4, 5, 7)), extent) for extent in extents]
    rows, columns = (c.below(size // 2 + 1) for size in sizes)
    return Window(sizes, [c.between(1, 4), c.between(1, 4)], [1, 1], [rows, rows, columns, columns])


def divisor(c: Choices, number: int, options: Sequence[int]) -> int:
    """One of some options that divides a number."""
    return c.pick([option for option in options if number % option == 0])
